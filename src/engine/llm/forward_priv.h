/* forward_priv.h: for forward*.c only: the buffers of a step and its stages. */
#ifndef INFERD_ENGINE_LLM_FORWARD_PRIV_H
#define INFERD_ENGINE_LLM_FORWARD_PRIV_H

#include "engine/llm/forward.h"
#include "engine/llm/lora.h"
#include "base/size.h"
#include "engine/llm/rope_table.h"

/* The activations that a stage's matrices read: one or both kinds. */
struct acts_set {
    struct acts a[2]; /* by enum acts_kind; data NULL where not needed */
};

/* One column (token) of the step. */
struct column {
    uint32_t item, pos;
    int32_t token;
    uint32_t lora; /* its column in the adapters' buffers; COLUMN_BASE: it has no adapter */
};
#define COLUMN_BASE UINT32_MAX

/* The columns [col0, col0 + n) of one adapter. In the adapters' buffers they begin at tile `tile0`, so that no tile has columns of two. */
struct lora_group {
    const struct lora_adapter *a;
    uint32_t col0, n, tile0;
};

/* What adapted columns need besides; made at the first load of an adapter. */
struct lora_work {
    uint32_t max_rank, max_tiles;
    uint8_t *x, *u[3]; /* activations in f32, ACTS_F32: inputs of A [max_tiles][8][widest], of B [max_tiles][8][max_rank] */
    float *gate, *up;  /* [max_tok + 8][n_ff]: of adapted columns, from the tile of the first on */
    float *low;        /* [team_size][8][max_rank] */
    uint8_t *base;
    size_t bytes;
};

/* Up to ATTN_TILE query rows of one item on one KV head: rows [row0, row0 + n) of its tokens x group rows, row r being token r / group,
 * head r % group of the group. */
struct tile {
    uint32_t item, col0, head, row0, n;
};

#define OUTPUT_CHUNK_ROWS 256 /* rows of the output matrix at a time */

/* What each member has for itself. */
struct member_scratch {
    uint8_t *matmul, *attn, *query;
    struct attn_part *part, *tmp;
    float *norm, *low; /* [widest vector], [n_embd] */
    float *sums;       /* [2 * max_logits][OUTPUT_CHUNK_ROWS] */
};

struct forward {
    const struct llm_model *m;
    const struct kernels *k;
    const struct llm_hparams *h;
    struct team *team;
    struct forward_config c;
    uint32_t group; /* query heads a KV head */

    float *x, *y;                      /* [max_tok][n_embd]: residual stream; a block's output where a norm follows it */
    struct acts_set in, mid, ffn, out; /* n_embd; n_head * head_dim_v; n_ff; n_embd of wanted columns */
    bool out_twice; /* the output matrix meets its input as two rounded vectors: `out` has the second ones behind the first */
    float *q, *kv_k, *kv_v; /* [max_tok][n_head * head_dim_k], [..][n_head_kv * head_dim_k], [..][n_head_kv * head_dim_v] */
    float *attn;            /* [max_tok][n_head * head_dim_v] */
    float *logits;          /* [max_logits][n_vocab] */
    float *hidden;          /* [max_tok][n_embd], when kept */
    bool keep_hidden;
    float *cos_sin[2]; /* [max_tok][n_rot]: global, local */
    struct rope_table rope[2];
    struct column *columns; /* [max_tok] */
    uint32_t *wanted;       /* [max_logits]: columns */
    struct tile *tiles;
    uint32_t max_tiles;
    struct member_scratch *scratch; /* [team_size] */

    struct kv_layout kv;
    uint8_t *kv_base; /* [n_layer][n_blocks][kv.block_bytes] */
    uint8_t *buffers;
    size_t kv_bytes, buffer_bytes;

    /* the step in progress */
    const struct forward_item *items;
    size_t n_items;
    uint32_t n_col, n_wanted, n_tiles;
    uint32_t n_base, n_groups; /* columns without an adapter come first; then the groups' */
    struct lora_group groups[LORA_ADAPTERS_MAX];
    struct lora_work *lora; /* NULL: no adapter was ever loaded */
    _Atomic bool abandoned;
};

/* A bump "allocator" that only counts when `base` is NULL, so that one list of buffers gives both the size and the pointers. */
struct carve {
    uint8_t *base;
    size_t used;
    bool overflow;
};
void *forward__carve(struct carve *c, size_t n, size_t size);

/* One member in one layer. */
struct run {
    struct forward *f;
    const struct llm_layer *l;
    uint32_t layer, member;
    struct team *t;
};

/* ---- cutting work ---- */

static inline void forward__my_columns(const struct run *r, uint32_t n, uint32_t *begin, uint32_t *end)
{
    team_range(r->t, r->member, n, begin, end);
}

static inline void forward__my_rows(const struct run *r, uint32_t rows, uint32_t *begin, uint32_t *end)
{
    uint32_t units = (rows + KERNEL_ROW_UNIT - 1) / KERNEL_ROW_UNIT;
    team_range(r->t, r->member, units, begin, end);
    *begin *= KERNEL_ROW_UNIT;
    *end = MIN_OF(*end * KERNEL_ROW_UNIT, rows);
}

/* Rows that members take from each other where one is held up: pieces of an eighth of a part, but not below two units, which share reads. */
static inline void forward__share_rows(const struct run *r, uint32_t rows, struct team_share *s)
{
    uint32_t units = (rows + KERNEL_ROW_UNIT - 1) / KERNEL_ROW_UNIT, grain = units / (8 * team_size(r->t)) / 2 * 2;
    team_share_begin(r->t, r->member, units, MAX_OF(grain, 2u), s);
}

static inline bool forward__take_rows(const struct run *r, uint32_t rows, struct team_share *s, uint32_t *begin, uint32_t *end)
{
    if (!team_share_take(r->t, s, begin, end))
        return false;
    *begin *= KERNEL_ROW_UNIT;
    *end = MIN_OF(*end * KERNEL_ROW_UNIT, rows);
    return true;
}

/* ---- forward_lora.c ---- */

/* A product of the base that adapters change: y[c - first][row] += scale * B (A x). */
struct lora_use {
    enum lora_target target;
    float *y;
    size_t ld;
    uint32_t first; /* column of y[0] */
};

/* x[n] of column c, which has an adapter, as the input of A. */
void forward__lora_put(const struct run *r, uint32_t c, uint32_t n, const float *x);
/* Add the adapters' parts to what the products in the same stage gave. Nothing when no column has an adapter; else one barrier inside. The
 * rows of y belong to the members as in the products. */
void forward__lora_adapt(const struct run *r, const struct lora_use *uses, uint32_t n);

void forward__lora_release(struct lora_work *w); /* NULL accepted */

/* forward_stages.c: everything between the plan and the logits, on every member. */
void forward__member(void *forward, uint32_t member, struct team *t);

static inline uint8_t *forward__layer_kv(const struct forward *f, uint32_t layer)
{
    return f->kv_base + (size_t)layer * f->c.n_blocks * f->kv.block_bytes;
}

#endif
