/* forward.c: memory of a forward pass and the laying out of one step: columns, wanted logits, attention tiles. The stages themselves are in
 * forward_stages.c. */
#include "engine/llm/forward.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "engine/llm/forward_priv.h"
#include "os/pages.h"

/* ---- sizes ---- */

void *forward__carve(struct carve *c, size_t n, size_t size)
{
    size_t bytes, at = c->used;
    if (!size_mul(n, size, &bytes) || !size_align(bytes, KERNEL_ALIGN, &bytes) || !size_add(c->used, bytes, &c->used)) {
        c->overflow = true;
        return NULL;
    }
    return c->base && bytes ? c->base + at : NULL;
}

static void carve_acts(struct carve *c, struct acts_set *s, unsigned kinds, uint64_t cols, uint64_t capacity)
{
    for (int kind = 0; kind < 2; kind++) {
        s->a[kind].data = NULL;
        if (!(kinds & 1u << kind) || !capacity)
            continue;
        c->overflow |= !acts_layout((enum acts_kind)kind, cols, capacity, &s->a[kind]);
        s->a[kind].data = forward__carve(c, acts_bytes(&s->a[kind]), 1);
    }
}

/* Kinds of activations that each stage's matrices read. */
struct kinds {
    unsigned in, mid, ffn, out;
};

static unsigned kind_bit(const struct matrix *m)
{
    return m->rows ? 1u << acts_kind_for(m->type) : 0;
}

static struct kinds kinds_of(const struct llm_model *m)
{
    struct kinds k = {.out = kind_bit(&m->output)};
    for (uint32_t i = 0; i < m->h->n_layer; i++) {
        const struct llm_layer *l = &m->layers[i];
        k.in |= kind_bit(&l->wq) | kind_bit(&l->wk) | kind_bit(&l->wv) | kind_bit(&l->gate) | kind_bit(&l->up);
        k.mid |= kind_bit(&l->wo);
        k.ffn |= kind_bit(&l->down);
    }
    return k;
}

static uint32_t tiles_bound(const struct llm_hparams *h, uint32_t max_tok)
{
    uint32_t group = h->n_head / h->n_head_kv;
    return max_tok * h->n_head_kv * ((group + ATTN_TILE - 1) / ATTN_TILE + 1);
}

static void carve_scratch(struct carve *c, struct forward *f, uint32_t members)
{
    const struct llm_hparams *h = f->h;
    uint32_t widest = MAX_OF(MAX_OF(h->n_embd, h->n_ff), h->n_head * h->head_dim_v);
    for (uint32_t i = 0; i < members; i++) {
        struct member_scratch s;
        s.matmul = forward__carve(c, kernels_scratch_bytes(widest), 1);
        s.attn = forward__carve(c, attn_scratch_bytes(&f->kv), 1);
        s.query = forward__carve(c, attn_query_bytes(&f->kv), 1);
        s.part = forward__carve(c, attn_part_bytes(&f->kv), 1);
        s.tmp = forward__carve(c, attn_part_bytes(&f->kv), 1);
        s.norm = forward__carve(c, widest, sizeof(float));
        s.low = forward__carve(c, h->n_embd, sizeof(float));
        s.sums = forward__carve(c, (size_t)f->c.max_logits * 2, OUTPUT_CHUNK_ROWS * sizeof(float));
        if (f->scratch)
            f->scratch[i] = s;
    }
}

static void carve_all(struct carve *c, struct forward *f, struct kinds k, uint32_t members)
{
    const struct llm_hparams *h = f->h;
    size_t tok = f->c.max_tok, hk = (size_t)h->n_head * h->head_dim_k, hv = (size_t)h->n_head * h->head_dim_v;
    f->x = forward__carve(c, tok * h->n_embd, sizeof(float));
    f->y = h->post_norms ? forward__carve(c, tok * h->n_embd, sizeof(float)) : NULL;
    carve_acts(c, &f->in, k.in, h->n_embd, tok);
    carve_acts(c, &f->mid, k.mid, hv, tok);
    carve_acts(c, &f->ffn, k.ffn, h->n_ff, tok);
    f->out_twice = k.out & 1u << ACTS_Q8;
    carve_acts(c, &f->out, k.out, h->n_embd, (uint64_t)f->c.max_logits * (f->out_twice ? 2 : 1));
    f->q = forward__carve(c, tok * hk, sizeof(float));
    f->kv_k = forward__carve(c, tok * h->n_head_kv * h->head_dim_k, sizeof(float));
    f->kv_v = forward__carve(c, tok * h->n_head_kv * h->head_dim_v, sizeof(float));
    f->attn = forward__carve(c, tok * hv, sizeof(float));
    f->logits = forward__carve(c, (size_t)f->c.max_logits * h->n_vocab, sizeof(float));
    f->hidden = f->c.hidden ? forward__carve(c, tok * h->n_embd, sizeof(float)) : NULL;
    for (int local = 0; local < 2; local++) {
        bool used = h->rope != LLM_ROPE_NONE && (!local || h->window);
        f->cos_sin[local] = used ? forward__carve(c, tok * h->n_rot, sizeof(float)) : NULL;
        f->rope[local].inv_freq = used ? forward__carve(c, h->n_rot, sizeof(double)) : NULL;
    }
    f->columns = forward__carve(c, tok, sizeof *f->columns);
    f->wanted = forward__carve(c, f->c.max_logits, sizeof *f->wanted);
    f->max_tiles = tiles_bound(h, f->c.max_tok);
    f->tiles = forward__carve(c, f->max_tiles, sizeof *f->tiles);
    f->scratch = forward__carve(c, members, sizeof *f->scratch);
    carve_scratch(c, f, members);
}

size_t forward_block_bytes(const struct llm_hparams *h, enum kv_type t)
{
    struct kv_layout l;
    return kv_layout(t, h->n_head_kv, h->head_dim_k, h->head_dim_v, &l) ? l.block_bytes * h->n_layer : 0;
}

bool forward_bytes(const struct llm_model *m, uint32_t members, const struct forward_config *c, size_t *kv, size_t *buffers)
{
    struct forward f = {.m = m, .h = m->h, .c = *c};
    struct carve count = {0};
    if (!kv_layout(c->kv_type, m->h->n_head_kv, m->h->head_dim_k, m->h->head_dim_v, &f.kv))
        return false;
    carve_all(&count, &f, kinds_of(m), members);
    *buffers = count.used;
    return !count.overflow && size_mul(forward_block_bytes(m->h, c->kv_type), c->n_blocks, kv);
}

/* ---- life ---- */

int forward_create(const struct llm_model *m, struct team *team, const struct forward_config *c, struct forward **out,
                   struct error *err)
{
    struct forward *f = calloc(1, sizeof *f);
    if (!f)
        return error_set(err, STATUS_NOMEM, "no memory for a forward pass");
    f->m = m;
    f->k = m->k;
    f->h = m->h;
    f->team = team;
    f->c = *c;
    f->group = m->h->n_head / m->h->n_head_kv;
    bool ok = kv_layout(c->kv_type, m->h->n_head_kv, m->h->head_dim_k, m->h->head_dim_v, &f->kv) &&
              forward_bytes(m, team_size(team), c, &f->kv_bytes, &f->buffer_bytes);
    if (ok) {
        f->kv_base = os_pages_map(f->kv_bytes);
        f->buffers = os_pages_map(f->buffer_bytes);
    }
    if (!ok || !f->kv_base || !f->buffers) {
        size_t kv = f->kv_bytes, buffers = f->buffer_bytes;
        forward_destroy(f);
        return error_set(err, STATUS_NOMEM, "no memory for a KV cache of %zu bytes and buffers of %zu bytes", kv, buffers);
    }
    struct carve place = {.base = f->buffers};
    carve_all(&place, f, kinds_of(m), team_size(team));
    for (int local = 0; local < 2; local++)
        if (f->rope[local].inv_freq)
            rope_table_init(&f->rope[local], f->h, local, c->n_ctx, f->rope[local].inv_freq);
    *out = f;
    return 0;
}

void forward_destroy(struct forward *f)
{
    if (!f)
        return;
    os_pages_unmap(f->kv_base, f->kv_bytes);
    os_pages_unmap(f->buffers, f->buffer_bytes);
    forward__lora_release(f->lora);
    free(f);
}

void forward_copy_block(struct forward *f, uint32_t from, uint32_t to)
{
    size_t n = f->kv.block_bytes;
    for (uint32_t l = 0; l < f->h->n_layer; l++)
        memcpy(forward__layer_kv(f, l) + (size_t)to * n, forward__layer_kv(f, l) + (size_t)from * n, n);
}

/* ---- one step ---- */

static void lay_tiles(struct forward *f, uint32_t item, uint32_t col0, uint32_t n_tok)
{
    uint32_t rows = n_tok * f->group;
    for (uint32_t head = 0; head < f->h->n_head_kv; head++) {
        for (uint32_t row = 0; row < rows; row += ATTN_TILE) {
            ASSERT(f->n_tiles < f->max_tiles);
            f->tiles[f->n_tiles++] = (struct tile){item, col0, head, row, MIN_OF(rows - row, (uint32_t)ATTN_TILE)};
        }
    }
}

/* `wanted0`: where the item's logits begin; they are given in item order, whatever the order of columns. */
static void lay_item(struct forward *f, uint32_t index, uint32_t wanted0, struct lora_group *g)
{
    const struct forward_item *it = &f->items[index];
    uint32_t col0 = f->n_col;
    ASSERT(it->n > 0 && it->n <= f->c.max_tok - f->n_col && it->n_logits <= it->n);
    ASSERT(it->n_logits <= f->c.max_logits && wanted0 <= f->c.max_logits - it->n_logits);
    for (uint32_t i = 0; i < it->n; i++) {
        uint32_t lora = g ? g->tile0 * KERNEL_TILE_COLS + g->n++ : COLUMN_BASE;
        f->columns[f->n_col++] = (struct column){index, it->first + i, it->tokens[i], lora};
    }
    for (uint32_t i = 0; i < it->n_logits; i++)
        f->wanted[wanted0 + i] = col0 + it->n - it->n_logits + i;
    lay_tiles(f, index, col0, it->n);
}

/* All items of one adapter (NULL: of none), in order. */
static void lay_items_of(struct forward *f, const struct lora_adapter *a, struct lora_group *g)
{
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < f->n_items; wanted += f->items[i++].n_logits)
        if (f->items[i].lora == a)
            lay_item(f, i, wanted, g);
    f->n_wanted = wanted;
}

static bool has_group(const struct forward *f, const struct lora_adapter *a)
{
    for (uint32_t i = 0; i < f->n_groups; i++)
        if (f->groups[i].a == a)
            return true;
    return false;
}

/* Columns without an adapter first, then adapter after adapter. */
static void lay_groups(struct forward *f)
{
    uint32_t tile = 0;
    f->n_base = f->n_col;
    for (uint32_t i = 0; i < f->n_items; i++) {
        const struct lora_adapter *a = f->items[i].lora;
        if (!a || has_group(f, a))
            continue;
        ASSERT(f->lora && f->n_groups < LORA_ADAPTERS_MAX && a->max_rank <= f->lora->max_rank);
        struct lora_group *g = &f->groups[f->n_groups++];
        *g = (struct lora_group){.a = a, .col0 = f->n_col, .tile0 = tile};
        lay_items_of(f, a, g);
        tile += (g->n + KERNEL_TILE_COLS - 1) / KERNEL_TILE_COLS;
        ASSERT(tile <= f->lora->max_tiles);
    }
}

bool forward_run(struct forward *f, const struct forward_item *items, size_t n_items)
{
    f->items = items;
    f->n_items = n_items;
    f->n_col = f->n_wanted = f->n_tiles = f->n_groups = 0;
    atomic_store_explicit(&f->abandoned, false, memory_order_relaxed);
    lay_items_of(f, NULL, NULL);
    lay_groups(f);
    if (f->n_col)
        team_run(f->team, forward__member, f);
    return !atomic_load_explicit(&f->abandoned, memory_order_relaxed);
}

float *forward_logits(struct forward *f, uint32_t i)
{
    ASSERT(i < f->n_wanted);
    return f->logits + (size_t)i * f->h->n_vocab;
}

const float *forward_hidden(const struct forward *f, uint32_t column)
{
    ASSERT(f->keep_hidden && column < f->n_col);
    return f->hidden + (size_t)column * f->h->n_embd;
}

void forward_keep_hidden(struct forward *f, bool keep)
{
    ASSERT(!keep || f->hidden);
    f->keep_hidden = keep;
}
