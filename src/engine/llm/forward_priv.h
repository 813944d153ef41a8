/* forward_priv.h: for forward*.c only: the buffers of a step and its stages. */
#ifndef INFERD_ENGINE_LLM_FORWARD_PRIV_H
#define INFERD_ENGINE_LLM_FORWARD_PRIV_H

#include "engine/llm/forward.h"
#include "engine/llm/rope_table.h"

/* The activations that a stage's matrices read: one or both kinds. */
struct acts_set {
    struct acts a[2]; /* by enum acts_kind; data NULL where not needed */
};

/* One column (token) of the step. */
struct column {
    uint32_t item, pos;
    int32_t token;
};

/* Up to ATTN_TILE query rows of one item on one KV head: rows [row0, row0 + n) of its tokens x group rows, row r being token r / group,
 * head r % group of the group. */
struct tile {
    uint32_t item, col0, head, row0, n;
};

/* What each member has for itself. */
struct member_scratch {
    uint8_t *matmul, *attn, *query;
    struct attn_part *part, *tmp;
    float *norm; /* [widest vector] */
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
    _Atomic bool abandoned;
};

/* forward_stages.c: everything between the plan and the logits, on every member. */
void forward__member(void *forward, uint32_t member, struct team *t);

static inline uint8_t *forward__layer_kv(const struct forward *f, uint32_t layer)
{
    return f->kv_base + (size_t)layer * f->c.n_blocks * f->kv.block_bytes;
}

#endif
