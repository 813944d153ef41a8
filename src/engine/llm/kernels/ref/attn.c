/* attn.c: the oracle of attention over paged KV, and the storing of keys, values and queries, which all tables share. */
#include "base/check.h"
#include "engine/llm/kernels/ref/ref.h"

static float clampf(float x, float limit)
{
    x = x < limit ? x : limit;
    return x > -limit ? x : -limit;
}

static uint16_t to_half(enum kv_type t, float x)
{
    return t == KV_F16 ? f32_to_f16(clampf(x, KV_F16_MAX)) : f32_to_bf16(clampf(x, KV_BF16_MAX));
}

static float from_half(enum kv_type t, uint16_t h)
{
    return t == KV_F16 ? f16_to_f32(h) : bf16_to_f32(h);
}

static void store_half(const struct kv_layout *l, uint8_t *base, uint32_t slot, const float *k, const float *v)
{
    uint16_t *kk = (uint16_t *)(void *)base, *vv = (uint16_t *)(void *)(base + l->off_v);
    for (uint32_t d = 0; d < l->pad_k; d++)
        kk[(size_t)d * KV_TILE_TOK + slot] = d < l->head_dim_k ? to_half(l->type, k[d]) : 0;
    for (uint32_t d = 0; d < l->pad_v; d++)
        vv[(size_t)slot * l->pad_v + d] = d < l->head_dim_v ? to_half(l->type, v[d]) : 0;
}

/* 32 dims from `x`, of which `n` are there: int8 and scale. */
static float quant32(const float *x, uint32_t n, int8_t *q)
{
    struct acts_group g;
    float v[GROUP] = {0};
    for (uint32_t i = 0; i < n && i < GROUP; i++)
        v[i] = clampf(x[i], KV_BF16_MAX);
    ref_quant_group(v, &g, 0);
    memcpy(q, g.q[0], GROUP);
    return g.scale[0];
}

/* Q8 keys: [quad of dims][32 keys][4 dims], unsigned (+128); values: [32 tokens][dim] signed. Scales f32 [dim / 32][32 tokens]. */
static void store_q8(const struct kv_layout *l, uint8_t *base, uint32_t slot, const float *k, const float *v)
{
    float *ks = (float *)(void *)(base + l->off_k_scale), *vs = (float *)(void *)(base + l->off_v_scale);
    int8_t q[GROUP];
    for (uint32_t d = 0; d < l->pad_k; d += GROUP) {
        ks[d / GROUP * KV_TILE_TOK + slot] = quant32(k + d, l->head_dim_k - d, q);
        for (uint32_t i = 0; i < GROUP; i++)
            base[(size_t)((d + i) / 4) * (4 * KV_TILE_TOK) + 4 * slot + i % 4] = (uint8_t)q[i] ^ 0x80;
    }
    for (uint32_t d = 0; d < l->pad_v; d += GROUP) {
        vs[d / GROUP * KV_TILE_TOK + slot] = quant32(v + d, l->head_dim_v - d, q);
        memcpy(base + l->off_v + (size_t)slot * l->pad_v + d, q, GROUP);
    }
}

void ref_kv_store(const struct kv_layout *l, uint8_t *block, uint32_t head, uint32_t slot, const float *k, const float *v)
{
    uint8_t *base = block + (size_t)head * l->head_bytes;
    ASSERT(head < l->n_head_kv && slot < KV_TILE_TOK);
    if (l->type == KV_Q8)
        store_q8(l, base, slot, k, v);
    else
        store_half(l, base, slot, k, v);
}

void ref_attn_query(const struct kv_layout *l, const struct attn_tile *t, uint32_t i, const float *q, float scale)
{
    ASSERT(i < ATTN_TILE);
    if (l->type != KV_Q8) {
        float *out = (float *)(void *)t->query;
        for (uint32_t d = 0; d < l->pad_k; d++)
            out[(size_t)d * ATTN_TILE + i] = d < l->head_dim_k ? q[d] * scale : 0.0f;
        return;
    }
    for (uint32_t d = 0; d < l->pad_k; d += GROUP) {
        float v[GROUP] = {0};
        for (uint32_t j = 0; j < GROUP && d + j < l->head_dim_k; j++)
            v[j] = q[d + j] * scale;
        ref_quant_group(v, (struct acts_group *)(void *)t->query + d / GROUP, i);
    }
}

static float score_half(const struct kv_layout *l, const uint8_t *base, uint32_t slot, const struct attn_tile *t, uint32_t i)
{
    const uint16_t *k = (const uint16_t *)(const void *)base;
    const float *q = (const float *)(const void *)t->query;
    float s = 0;
    for (uint32_t d = 0; d < l->pad_k; d++)
        s = fmaf(from_half(l->type, k[(size_t)d * KV_TILE_TOK + slot]), q[(size_t)d * ATTN_TILE + i], s);
    return s;
}

static float score_q8(const struct kv_layout *l, const uint8_t *base, uint32_t slot, const struct attn_tile *t, uint32_t i)
{
    const float *ks = (const float *)(const void *)(base + l->off_k_scale);
    float s = 0;
    for (uint32_t g = 0; g < l->pad_k / GROUP; g++) {
        const struct acts_group *q = (const struct acts_group *)(const void *)t->query + g;
        int32_t dot = 0;
        for (uint32_t j = 0; j < GROUP; j++)
            dot += (base[(size_t)((g * GROUP + j) / 4) * (4 * KV_TILE_TOK) + 4 * slot + j % 4] - 128) * q->q[i][j];
        s = fmaf((float)dot, ks[g * KV_TILE_TOK + slot] * q->scale[i], s);
    }
    return s;
}

/* out[d] += p V[slot][d]. */
static void add_value(const struct kv_layout *l, const uint8_t *base, uint32_t slot, float p, float *out)
{
    const uint16_t *half = (const uint16_t *)(const void *)(base + l->off_v) + (size_t)slot * l->pad_v;
    const int8_t *q = (const int8_t *)(base + l->off_v) + (size_t)slot * l->pad_v;
    const float *vs = (const float *)(const void *)(base + l->off_v_scale);
    for (uint32_t d = 0; d < l->pad_v; d++) {
        if (l->type == KV_Q8)
            out[d] = fmaf(p * vs[d / GROUP * KV_TILE_TOK + slot], (float)q[d], out[d]);
        else
            out[d] = fmaf(p, from_half(l->type, half[d]), out[d]);
    }
}

static void span_row(const struct kv_view *kv, const struct attn_tile *t, uint32_t head, uint32_t span, uint32_t i,
                     struct attn_part *part)
{
    const struct kv_layout *l = kv->layout;
    uint32_t first = span * ATTN_SPAN_TOK, lo = t->lo[i] > first ? t->lo[i] : first;
    uint32_t hi = t->hi[i] < first + ATTN_SPAN_TOK ? t->hi[i] : first + ATTN_SPAN_TOK;
    float s[ATTN_SPAN_TOK], lanes[16] = {0}, max = -INFINITY, *out = part->out + (size_t)i * l->pad_v;
    memset(out, 0, l->pad_v * sizeof *out);
    for (uint32_t k = lo; k < hi; k++) {
        const uint8_t *base = kv_head_at(kv, k / KV_TILE_TOK, head);
        float v = l->type == KV_Q8 ? score_q8(l, base, k % KV_TILE_TOK, t, i) : score_half(l, base, k % KV_TILE_TOK, t, i);
        if (t->softcap > 0)
            v = t->softcap * ktanh(v / t->softcap);
        s[k - first] = v;
        max = v > max ? v : max;
    }
    for (uint32_t k = lo; k < hi; k++) {
        float p = kexp(s[k - first] - max);
        lanes[(k - first) % 16] += p;
        add_value(l, kv_head_at(kv, k / KV_TILE_TOK, head), k % KV_TILE_TOK, p, out);
    }
    part->max[i] = max;
    part->sum[i] = lo < hi ? lanes_sum(lanes) : 0;
}

void ref_attn_span(const struct kv_view *kv, const struct attn_tile *t, uint32_t head, uint32_t span, struct attn_part *part,
                   void *scratch)
{
    (void)scratch;
    for (uint32_t i = 0; i < t->n; i++)
        span_row(kv, t, head, span, i, part);
}

void ref_attn_merge(const struct kv_layout *l, uint32_t n, struct attn_part *into, const struct attn_part *part)
{
    for (uint32_t i = 0; i < n; i++) {
        float *a = into->out + (size_t)i * l->pad_v;
        const float *b = part->out + (size_t)i * l->pad_v;
        if (part->sum[i] == 0)
            continue;
        if (into->sum[i] == 0) {
            into->max[i] = part->max[i];
            into->sum[i] = part->sum[i];
            memcpy(a, b, l->pad_v * sizeof *a);
            continue;
        }
        float m = into->max[i] > part->max[i] ? into->max[i] : part->max[i];
        float ea = kexp(into->max[i] - m), eb = kexp(part->max[i] - m);
        into->max[i] = m;
        into->sum[i] = fmaf(part->sum[i], eb, into->sum[i] * ea);
        for (uint32_t d = 0; d < l->pad_v; d++)
            a[d] = fmaf(b[d], eb, a[d] * ea);
    }
}

void ref_attn_finish(const struct kv_layout *l, const struct attn_part *part, uint32_t i, float *y)
{
    float inv = part->sum[i] == 0 ? 0.0f : 1.0f / part->sum[i];
    for (uint32_t d = 0; d < l->head_dim_v; d++)
        y[d] = part->sum[i] == 0 ? 0.0f : part->out[(size_t)i * l->pad_v + d] * inv;
}
