/* forward_stages.c: the transformer itself, stage by stage, on every member of the team.
 *
 *   embed
 *   per layer:  norm + quantise | q k v | q/k norms, rope, store K V | attention | quantise | output projection + residual |
 *               norm + quantise | gate up act | down + residual
 *   final:      norm + quantise of the wanted columns | logits | soft-cap
 *
 * Columns with an adapter: its products follow those of the base (forward_lora.c), with one barrier more each; and gate and up are made apart.
 *
 * "|" is a barrier. Row work is cut by member (the same rows of a matrix meet the same member) and evened out in pieces where a member is
 * held up, as it is where other threads want its CPU; column work is cut by member, and attention tiles are taken from a shared list,
 * because their lengths differ. */
#include "base/size.h"
#include "engine/llm/forward_priv.h"

static const struct acts *acts_of(const struct acts_set *s, const struct matrix *m)
{
    return &s->a[acts_kind_for(m->type)];
}

/* ---- columns into activations ---- */

static void put(const struct run *r, const struct acts_set *s, uint32_t col, const float *x)
{
    for (int kind = 0; kind < 2; kind++)
        if (s->a[kind].data)
            r->f->k->acts_put(&s->a[kind], col, x);
}

static struct norm_args norm_of(const struct run *r, const float *w, const float *b)
{
    return (struct norm_args){w, b, r->f->h->norm_eps, r->f->h->norm == LLM_NORM_LAYER};
}

/* norm(x) as activations of column `col`; `y` (may be NULL) gets it in f32. */
static void norm_put(const struct run *r, const struct acts_set *s, uint32_t col, const float *x, const struct norm_args *n,
                     float *y)
{
    const struct kernels *k = r->f->k;
    bool q8 = s->a[ACTS_Q8].data, f32 = s->a[ACTS_F32].data;
    if (q8 != f32) {
        k->norm_acts(&s->a[q8 ? ACTS_Q8 : ACTS_F32], col, x, n, y);
        return;
    }
    float *to = y ? y : r->f->scratch[r->member].norm;
    k->norm(x, r->f->h->n_embd, n, NULL, to);
    put(r, s, col, to);
}

/* The input of a block: normed, or as it is where norms come after (post-LN). */
static void block_input(const struct run *r, const float *w, const float *b)
{
    struct forward *f = r->f;
    struct norm_args n = norm_of(r, w, b);
    uint32_t c, end;
    for (forward__my_columns(r, f->n_col, &c, &end); c < end; c++) {
        const float *x = f->x + (size_t)c * f->h->n_embd;
        float *plain = f->columns[c].lora == COLUMN_BASE ? NULL : f->scratch[r->member].norm;
        if (f->h->norm_after)
            put(r, &f->in, c, x);
        else
            norm_put(r, &f->in, c, x, &n, plain);
        if (plain)
            forward__lora_put(r, c, f->h->n_embd, f->h->norm_after ? x : plain);
    }
}

/* ---- products ---- */

static void product(const struct run *r, const struct matrix *m, const struct acts_set *in, float *y, size_t ld,
                    const float *bias, const float *residual)
{
    struct forward *f = r->f;
    struct matmul_out o = {.y = y, .ld = ld, .bias = bias, .residual = residual, .residual_ld = ld};
    struct team_share share;
    uint32_t begin, end;
    forward__share_rows(r, m->rows, &share);
    while (forward__take_rows(r, m->rows, &share, &begin, &end))
        f->k->matmul(m, acts_of(in, m), f->n_col, begin, end, &o, f->scratch[r->member].matmul);
}

/* A block's last product: added to the residual stream, or kept in y for the norm that comes first (gemma). */
static void block_output(const struct run *r, const struct matrix *m, enum lora_target target, const struct acts_set *in,
                         const float *bias, bool norm_follows)
{
    struct forward *f = r->f;
    size_t n = f->h->n_embd;
    product(r, m, in, norm_follows ? f->y : f->x, n, bias, norm_follows ? NULL : f->x);
    struct lora_use use = {target, norm_follows ? f->y : f->x, n, 0};
    forward__lora_adapt(r, &use, 1);
}

/* The norm behind a block: x = x + norm(y) (gemma), or x = norm(x) (post-LN). */
static void norm_behind(const struct run *r, const float *w, const float *b, bool of_output)
{
    struct forward *f = r->f;
    struct norm_args n = norm_of(r, w, b);
    uint32_t c, end;
    for (forward__my_columns(r, f->n_col, &c, &end); c < end; c++) {
        float *x = f->x + (size_t)c * f->h->n_embd;
        f->k->norm(of_output ? f->y + (size_t)c * f->h->n_embd : x, f->h->n_embd, &n, of_output ? x : NULL, x);
    }
}

/* ---- attention ---- */

static void head_norms(const struct run *r, float *x, uint32_t n_heads, const float *w)
{
    struct norm_args n = {w, NULL, r->f->h->norm_eps, false};
    uint32_t d = r->f->h->head_dim_k;
    for (uint32_t i = 0; w && i < n_heads; i++)
        r->f->k->norm(x + (size_t)i * d, d, &n, NULL, x + (size_t)i * d);
}

/* Rotate q and k of my columns and store their K and V. */
static void place_columns(const struct run *r)
{
    struct forward *f = r->f;
    const struct llm_hparams *h = f->h;
    enum kernel_rope kind = h->rope == LLM_ROPE_HALF ? KERNEL_ROPE_HALF : KERNEL_ROPE_INTERLEAVED;
    uint8_t *base = forward__layer_kv(f, r->layer);
    uint32_t c, end;
    for (forward__my_columns(r, f->n_col, &c, &end); c < end; c++) {
        float *q = f->q + (size_t)c * h->n_head * h->head_dim_k, *k = f->kv_k + (size_t)c * h->n_head_kv * h->head_dim_k;
        const float *v = f->kv_v + (size_t)c * h->n_head_kv * h->head_dim_v;
        head_norms(r, q, h->n_head, r->l->q_norm);
        head_norms(r, k, h->n_head_kv, r->l->k_norm);
        if (h->rope != LLM_ROPE_NONE) {
            const float *cs = f->cos_sin[r->l->local] + (size_t)c * h->n_rot;
            f->k->rope(q, h->n_head, h->head_dim_k, h->n_rot, cs, kind);
            f->k->rope(k, h->n_head_kv, h->head_dim_k, h->n_rot, cs, kind);
        }
        uint32_t pos = f->columns[c].pos, id = f->items[f->columns[c].item].table[pos / KV_TILE_TOK];
        for (uint32_t i = 0; i < h->n_head_kv; i++)
            f->k->kv_store(&f->kv, base + (size_t)id * f->kv.block_bytes, i, pos % KV_TILE_TOK, k + (size_t)i * h->head_dim_k,
                           v + (size_t)i * h->head_dim_v);
    }
}

/* Which keys row `row` of the tile sees. */
static void visible(const struct run *r, const struct forward_item *it, uint32_t pos, uint32_t *lo, uint32_t *hi)
{
    const struct llm_hparams *h = r->f->h;
    *hi = h->causal ? pos + 1 : it->first + it->n;
    *lo = r->l->local && *hi > h->window ? *hi - h->window : 0;
}

static void attend(const struct run *r, const struct tile *tile)
{
    struct forward *f = r->f;
    const struct llm_hparams *h = f->h;
    const struct forward_item *it = &f->items[tile->item];
    struct member_scratch *s = &f->scratch[r->member];
    struct kv_view view = {&f->kv, forward__layer_kv(f, r->layer), f->kv.block_bytes, it->table};
    struct attn_tile t = {.n = tile->n, .softcap = h->attn_softcap, .query = s->query};
    uint32_t lowest = UINT32_MAX, highest = 0;
    for (uint32_t i = 0; i < tile->n; i++) {
        uint32_t row = tile->row0 + i, col = tile->col0 + row / f->group, head = tile->head * f->group + row % f->group;
        visible(r, it, f->columns[col].pos, &t.lo[i], &t.hi[i]);
        lowest = MIN_OF(lowest, t.lo[i]);
        highest = MAX_OF(highest, t.hi[i]);
        f->k->attn_query(&f->kv, &t, i, f->q + ((size_t)col * h->n_head + head) * h->head_dim_k, h->attn_scale);
    }
    attn_run(f->k, &view, &t, tile->head, lowest / ATTN_SPAN_TOK, (highest + ATTN_SPAN_TOK - 1) / ATTN_SPAN_TOK, s->part,
             s->tmp, s->attn);
    for (uint32_t i = 0; i < tile->n; i++) {
        uint32_t row = tile->row0 + i, col = tile->col0 + row / f->group, head = tile->head * f->group + row % f->group;
        f->k->attn_finish(&f->kv, s->part, i, f->attn + ((size_t)col * h->n_head + head) * h->head_dim_v);
    }
}

static void attention(const struct run *r)
{
    struct forward *f = r->f;
    const struct llm_hparams *h = f->h;
    const struct llm_layer *l = r->l;
    size_t ld_q = (size_t)h->n_head * h->head_dim_k, ld_k = (size_t)h->n_head_kv * h->head_dim_k,
           ld_v = (size_t)h->n_head_kv * h->head_dim_v;
    product(r, &l->wq, &f->in, f->q, ld_q, l->bq, NULL);
    product(r, &l->wk, &f->in, f->kv_k, ld_k, l->bk, NULL);
    product(r, &l->wv, &f->in, f->kv_v, ld_v, l->bv, NULL);
    const struct lora_use uses[] = {{LORA_Q, f->q, ld_q, 0}, {LORA_K, f->kv_k, ld_k, 0}, {LORA_V, f->kv_v, ld_v, 0}};
    forward__lora_adapt(r, uses, 3);
    team_barrier(r->t, r->member);
    place_columns(r);
    team_barrier(r->t, r->member);
    for (uint32_t i; (i = team_take(r->t, f->n_tiles)) != UINT32_MAX;)
        attend(r, &f->tiles[i]);
    team_barrier(r->t, r->member);
    uint32_t c, end;
    for (forward__my_columns(r, f->n_col, &c, &end); c < end; c++) {
        const float *x = f->attn + (size_t)c * h->n_head * h->head_dim_v;
        put(r, &f->mid, c, x);
        if (f->columns[c].lora != COLUMN_BASE)
            forward__lora_put(r, c, h->n_head * h->head_dim_v, x);
    }
    team_barrier(r->t, r->member);
}

/* ---- feed-forward ---- */

static enum kernel_act act_of(const struct llm_hparams *h)
{
    return h->activation == LLM_ACT_SILU        ? KERNEL_ACT_SILU
           : h->activation == LLM_ACT_GELU_TANH ? KERNEL_ACT_GELU_TANH
                                                : KERNEL_ACT_GELU_ERF;
}

/* act(gate x) * up x of one adapted column, as activations of the next product. */
static void finish_adapted(const struct run *r, uint32_t c, float *gate, float *up)
{
    struct forward *f = r->f;
    uint32_t n = f->h->n_ff;
    float *h = f->h->parallel_gate ? gate : up;
    f->k->act(h, n, act_of(f->h));
    for (uint32_t i = 0; h != up && i < n; i++)
        h[i] *= up[i];
    put(r, &f->ffn, c, h);
    forward__lora_put(r, c, n, h);
}

/* Columns with an adapter need gate and up before they are joined. The products begin at a tile's first column; what they give for columns
 * before the first adapted one isn't looked at. */
static void adapted_feed_forward(const struct run *r, uint32_t begin, uint32_t end)
{
    struct forward *f = r->f;
    struct lora_work *w = f->lora;
    const struct llm_layer *l = r->l;
    size_t ld = f->h->n_ff;
    uint32_t first = f->n_base / KERNEL_TILE_COLS * KERNEL_TILE_COLS, c, last;
    struct acts in = *acts_of(&f->in, &l->up);
    struct matmul_out gate = {.y = w->gate, .ld = ld}, up = {.y = w->up, .ld = ld, .bias = l->up_b};
    in.data += first / KERNEL_TILE_COLS * in.tile_bytes;
    if (begin < end && f->h->parallel_gate)
        f->k->matmul(&l->gate, &in, f->n_col - first, begin, end, &gate, f->scratch[r->member].matmul);
    if (begin < end)
        f->k->matmul(&l->up, &in, f->n_col - first, begin, end, &up, f->scratch[r->member].matmul);
    const struct lora_use uses[] = {{LORA_GATE, w->gate, ld, first}, {LORA_UP, w->up, ld, first}};
    forward__lora_adapt(r, uses, 2);
    team_barrier(r->t, r->member);
    for (forward__my_columns(r, f->n_col - f->n_base, &c, &last); c < last; c++) {
        size_t at = (size_t)(f->n_base + c - first) * ld;
        finish_adapted(r, f->n_base + c, w->gate + at, w->up + at);
    }
}

static void feed_forward(const struct run *r)
{
    struct forward *f = r->f;
    const struct llm_layer *l = r->l;
    struct matmul_out o = {.act = act_of(f->h)};
    struct team_share share;
    uint32_t begin, end;
    forward__share_rows(r, l->up.rows, &share);
    while (f->n_base && forward__take_rows(r, l->up.rows, &share, &begin, &end))
        f->k->matmul_gated(f->h->parallel_gate ? &l->gate : NULL, &l->up, acts_of(&f->in, &l->up), f->n_base, begin, end, &o,
                           l->up_b, acts_of(&f->ffn, &l->down), f->scratch[r->member].matmul);
    if (f->n_groups) {
        forward__my_rows(r, l->up.rows, &begin, &end);
        adapted_feed_forward(r, begin, end);
    }
    team_barrier(r->t, r->member);
}

static void layer(const struct run *r)
{
    const struct llm_layer *l = r->l;
    const struct llm_hparams *h = r->f->h;
    block_input(r, l->attn_norm, l->attn_norm_b);
    team_barrier(r->t, r->member);
    attention(r);
    block_output(r, &l->wo, LORA_O, &r->f->mid, l->bo, h->post_norms);
    team_barrier(r->t, r->member);
    if (h->post_norms)
        norm_behind(r, l->attn_post_norm, l->attn_post_norm_b, true);
    else if (h->norm_after)
        norm_behind(r, l->attn_post_norm, l->attn_post_norm_b, false);
    block_input(r, l->ffn_norm, l->ffn_norm_b); /* the same columns as the norm before: no barrier between */
    team_barrier(r->t, r->member);
    feed_forward(r);
    block_output(r, &l->down, LORA_DOWN, &r->f->ffn, l->down_b, h->post_norms);
    team_barrier(r->t, r->member);
    if (h->post_norms)
        norm_behind(r, l->ffn_post_norm, l->ffn_post_norm_b, true);
    else if (h->norm_after)
        norm_behind(r, l->ffn_post_norm, l->ffn_post_norm_b, false);
}

/* ---- ends ---- */

static void embed(const struct run *r)
{
    struct forward *f = r->f;
    uint32_t c, end;
    for (forward__my_columns(r, f->n_col, &c, &end); c < end; c++) {
        float *x = f->x + (size_t)c * f->h->n_embd;
        uint32_t second = f->items[f->columns[c].item].n_first;
        llm_model_embed(f->m, f->columns[c].token, second && f->columns[c].pos >= second, x);
        llm_model_add_position(f->m, f->columns[c].pos, x, f->scratch[r->member].norm);
        if (f->m->embd_norm) {
            struct norm_args n = norm_of(r, f->m->embd_norm, f->m->embd_norm_b);
            f->k->norm(x, f->h->n_embd, &n, NULL, x);
        }
        for (int local = 0; local < 2 && f->h->rope != LLM_ROPE_NONE; local++)
            if (f->cos_sin[local])
                rope_table_fill(&f->rope[local], f->columns[c].pos, f->cos_sin[local] + (size_t)c * f->h->n_rot);
    }
}

/* Hidden states of all columns, for embeddings. */
static void keep_hidden(const struct run *r)
{
    struct forward *f = r->f;
    size_t n = f->h->n_embd;
    struct norm_args args = norm_of(r, f->m->output_norm, f->m->output_norm_b);
    uint32_t c, end;
    for (forward__my_columns(r, f->n_col, &c, &end); c < end; c++) {
        float *to = f->hidden + (size_t)c * n;
        if (f->m->output_norm) {
            f->k->norm(f->x + (size_t)c * n, n, &args, NULL, to);
            continue;
        }
        for (size_t i = 0; i < n; i++)
            to[i] = f->x[(size_t)c * n + i];
    }
}

/* The i-th wanted column, normed, as input of the output matrix; and behind all of them what rounding took from it. */
static void put_wanted(const struct run *r, uint32_t i, const struct norm_args *n)
{
    struct forward *f = r->f;
    uint32_t n_embd = f->h->n_embd;
    float *x = f->scratch[r->member].norm, *low = f->scratch[r->member].low;
    norm_put(r, &f->out, i, f->x + (size_t)f->wanted[i] * n_embd, n, x);
    if (!f->out_twice)
        return;
    acts_get(&f->out.a[ACTS_Q8], i, low);
    for (uint32_t k = 0; k < n_embd; k++)
        low[k] = x[k] - low[k];
    f->k->acts_put(&f->out.a[ACTS_Q8], f->n_wanted + i, low);
}

/* Rows [row, stop) of the logits. Rounding the last activations to 8 bits would be a third of all the error that such rounding makes
 * (docs/internals/llm-engine.md), so the output matrix meets them as the sum of two such vectors: twice the columns, read in one go. */
static void logit_rows(const struct run *r, uint32_t row, uint32_t stop)
{
    struct forward *f = r->f;
    const struct member_scratch *s = &f->scratch[r->member];
    struct matrix m = f->m->output; /* the part with these rows */
    const float *bias = f->m->output_b ? f->m->output_b + row : NULL;
    uint32_t n = f->n_wanted, rows = stop - row;
    m.data += row / KERNEL_STRIP_ROWS * m.strip_bytes;
    m.rows = rows;
    struct matmul_out o = {.y = s->sums, .ld = OUTPUT_CHUNK_ROWS};
    f->k->matmul(&m, acts_of(&f->out, &m), f->out_twice ? 2 * n : n, 0, rows, &o, s->matmul);
    for (uint32_t i = 0; i < n; i++) {
        const float *high = s->sums + (size_t)i * OUTPUT_CHUNK_ROWS, *low = high + (size_t)n * OUTPUT_CHUNK_ROWS;
        float *y = f->logits + (size_t)i * f->h->n_vocab + row;
        for (uint32_t k = 0; k < rows; k++)
            y[k] = (f->out_twice ? high[k] + low[k] : high[k]) + (bias ? bias[k] : 0);
        if (f->h->logit_softcap > 0)
            f->k->softcap(y, rows, f->h->logit_softcap);
    }
}

static void logits(const struct run *r)
{
    struct forward *f = r->f;
    struct norm_args n = norm_of(r, f->m->output_norm, f->m->output_norm_b);
    uint32_t begin, end;
    team_range(r->t, r->member, f->n_wanted, &begin, &end);
    for (uint32_t i = begin; i < end; i++)
        put_wanted(r, i, &n);
    team_barrier(r->t, r->member);
    struct team_share share;
    forward__share_rows(r, f->m->output.rows, &share);
    while (forward__take_rows(r, f->m->output.rows, &share, &begin, &end))
        for (uint32_t row = begin; row < end; row += OUTPUT_CHUNK_ROWS)
            logit_rows(r, row, MIN_OF(end, row + OUTPUT_CHUNK_ROWS));
}

/* Member 0 looks whether anybody still wants the result; the others see its answer behind the next barrier. */
static void look_for_cancel(struct forward *f)
{
    for (size_t i = 0; i < f->n_items; i++)
        if (!f->items[i].cancelled || !atomic_load_explicit(f->items[i].cancelled, memory_order_relaxed))
            return;
    atomic_store_explicit(&f->abandoned, true, memory_order_relaxed);
}

void forward__member(void *forward, uint32_t member, struct team *t)
{
    struct forward *f = forward;
    struct run r = {.f = f, .member = member, .t = t};
    embed(&r);
    for (r.layer = 0; r.layer < f->h->n_layer; r.layer++) {
        r.l = &f->m->layers[r.layer];
        if (member == 0)
            look_for_cancel(f);
        team_barrier(t, member);
        if (atomic_load_explicit(&f->abandoned, memory_order_relaxed))
            return;
        layer(&r);
    }
    team_barrier(t, member);
    if (f->keep_hidden)
        keep_hidden(&r);
    if (f->n_wanted)
        logits(&r);
}
