/* Attention over paged KV: every table equals the scalar one bit by bit; a row's result is the same whatever shares its tile and however the
 * spans are dealt; the scalar one is near softmax in float64 over the stored keys and values. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "engine/llm/kernels/weights.h"

#define N_TOK  700
#define BLOCKS ((N_TOK + 31) / 32)
#define HEADS  2
#define HEAD   1 /* the one that is looked at */

struct cache {
    struct kv_layout l;
    struct kv_view v;
    uint8_t *pool;
    uint32_t table[BLOCKS];
    float *k, *val; /* what was stored, of HEAD */
    uint8_t *query;
    struct attn_part *part, *tmp;
    void *scratch;
};

static void cache_init(struct cache *c, enum kv_type t, uint32_t dk, uint32_t dv)
{
    uint64_t seed = t * 77 + dk + dv;
    assert_true(kv_layout(t, HEADS, dk, dv, &c->l));
    c->pool = aligned(c->l.block_bytes * BLOCKS);
    memset(c->pool, 0xff, c->l.block_bytes * BLOCKS); /* NaN wherever nobody writes */
    c->k = malloc(sizeof(float) * N_TOK * dk);
    c->val = malloc(sizeof(float) * N_TOK * dv);
    for (uint32_t b = 0; b < BLOCKS; b++)
        c->table[b] = (b * 5 + 3) % BLOCKS;
    c->v = (struct kv_view){&c->l, c->pool, c->l.block_bytes, c->table};
    for (uint32_t i = 0; i < N_TOK; i++) {
        for (uint32_t d = 0; d < dk; d++)
            c->k[i * dk + d] = next_float(&seed) * 2;
        for (uint32_t d = 0; d < dv; d++)
            c->val[i * dv + d] = next_float(&seed) * 2;
        for (uint32_t h = 0; h < HEADS; h++)
            kernels_best()->kv_store(&c->l, c->pool + c->table[i / 32] * c->l.block_bytes, h, i % 32, c->k + i * dk,
                                     c->val + i * dv);
    }
    c->query = aligned(attn_query_bytes(&c->l));
    c->part = aligned(attn_part_bytes(&c->l));
    c->tmp = aligned(attn_part_bytes(&c->l));
    c->scratch = aligned(attn_scratch_bytes(&c->l));
}

static void cache_release(struct cache *c)
{
    free(c->pool);
    free(c->k);
    free(c->val);
    free(c->query);
    free(c->part);
    free(c->tmp);
    free(c->scratch);
}

/* Rows with the given visible ranges; the query of a row depends on its hi only. y: [n][dv] */
static void attend(const struct kernels *k, struct cache *c, uint32_t n, const uint32_t *lo, const uint32_t *hi, float softcap,
                   bool apart, float *y)
{
    struct attn_tile t = {.n = n, .softcap = softcap, .query = c->query};
    uint32_t max = 0, min = UINT32_MAX;
    float q[1024];
    for (uint32_t i = 0; i < n; i++) {
        uint64_t seed = hi[i];
        for (uint32_t d = 0; d < c->l.head_dim_k; d++)
            q[d] = next_float(&seed) * 4;
        t.lo[i] = lo[i];
        t.hi[i] = hi[i];
        max = hi[i] > max ? hi[i] : max;
        min = lo[i] < min ? lo[i] : min;
        k->attn_query(&c->l, &t, i, q, 0.3f);
    }
    uint32_t s0 = min / ATTN_SPAN_TOK, s1 = (max + ATTN_SPAN_TOK - 1) / ATTN_SPAN_TOK;
    if (!apart) {
        attn_run(k, &c->v, &t, HEAD, s0, s1, c->part, c->tmp, c->scratch);
    } else { /* from span 0 on, each on its own, as a split decode does */
        k->attn_span(&c->v, &t, HEAD, 0, c->part, c->scratch);
        for (uint32_t s = 1; s < s1 + 1; s++) {
            k->attn_span(&c->v, &t, HEAD, s < s1 ? s : s1, c->tmp, c->scratch);
            if (s < s1)
                k->attn_merge(&c->l, n, c->part, c->tmp);
        }
    }
    for (uint32_t i = 0; i < n; i++)
        k->attn_finish(&c->l, c->part, i, y + i * c->l.head_dim_v);
}

static const uint32_t LO[8] = {0, 0, 0, 100, 255, 256, 300, 0}, HI[8] = {1, 256, 257, 700, 256, 700, 301, 513};

static const struct {
    uint32_t dk, dv;
} dims[] = {{64, 64}, {128, 128}, {80, 80}, {8, 24}, {256, 256}};

static void tables_agree(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++)
        for (size_t d = 0; d < 5; d++)
            for (int cap = 0; cap < 2; cap++) {
                struct cache c;
                float want[8 * 256], got[8 * 256];
                cache_init(&c, (enum kv_type)t, dims[d].dk, dims[d].dv);
                attend(kernels_by_name("ref"), &c, 8, LO, HI, cap ? 20.0f : 0, false, want);
                for (size_t k = 0; KERNELS_ALL[k]; k++) {
                    if (!kernels_runnable(KERNELS_ALL[k]))
                        continue;
                    attend(KERNELS_ALL[k], &c, 8, LO, HI, cap ? 20.0f : 0, false, got);
                    assert_memory_equal(want, got, sizeof(float) * 8 * dims[d].dv);
                    attend(KERNELS_ALL[k], &c, 8, LO, HI, cap ? 20.0f : 0, true, got);
                    assert_memory_equal(want, got, sizeof(float) * 8 * dims[d].dv);
                    for (uint32_t i = 0; i < 8; i++) { /* alone */
                        attend(KERNELS_ALL[k], &c, 1, LO + i, HI + i, cap ? 20.0f : 0, false, got);
                        assert_memory_equal(want + i * dims[d].dv, got, sizeof(float) * dims[d].dv);
                    }
                    for (uint32_t n = 2; n < 8; n++) { /* in company */
                        attend(KERNELS_ALL[k], &c, n, LO + 8 - n, HI + 8 - n, cap ? 20.0f : 0, false, got);
                        assert_memory_equal(want + (8 - n) * dims[d].dv, got, sizeof(float) * n * dims[d].dv);
                    }
                }
                cache_release(&c);
            }
}

static double reference(const struct cache *c, uint32_t lo, uint32_t hi, float softcap, uint32_t d)
{
    uint32_t dk = c->l.head_dim_k, dv = c->l.head_dim_v;
    double s[N_TOK], max = -INFINITY, sum = 0, out = 0;
    for (uint32_t i = lo; i < hi; i++) {
        uint64_t seed = hi;
        s[i] = 0;
        for (uint32_t j = 0; j < dk; j++)
            s[i] += (double)(next_float(&seed) * 4) * 0.3 * (double)c->k[i * dk + j];
        if (softcap > 0)
            s[i] = (double)softcap * tanh(s[i] / (double)softcap);
        max = s[i] > max ? s[i] : max;
    }
    for (uint32_t i = lo; i < hi; i++) {
        double p = exp(s[i] - max);
        sum += p;
        out += p * (double)c->val[i * dv + d];
    }
    return out / sum;
}

static void near_float64(void **state)
{
    (void)state;
    static const double limit[] = {2e-5, 1.5e-3, 2e-3}; /* NMSE: what the rounding of keys, values and queries does */
    for (int t = 0; t < 3; t++)
        for (int cap = 0; cap < 2; cap++) {
            struct cache c;
            float y[8 * 64];
            double err = 0, power = 0;
            cache_init(&c, (enum kv_type)t, 64, 64);
            attend(kernels_best(), &c, 8, LO, HI, cap ? 20.0f : 0, false, y);
            for (uint32_t i = 0; i < 8; i++)
                for (uint32_t d = 0; d < 64; d += 7) {
                    double want = reference(&c, LO[i], HI[i], cap ? 20.0f : 0, d);
                    err += (want - (double)y[i * 64 + d]) * (want - (double)y[i * 64 + d]);
                    power += want * want;
                }
            if (err / power > limit[t]) {
                printf("kv type %d: NMSE %g\n", t, err / power);
                fail();
            }
            cache_release(&c);
        }
}

static void values_out_of_range_are_clamped(void **state)
{
    (void)state;
    struct cache c;
    float k[64] = {1e30f, -1e30f}, v[64] = {1e30f, -INFINITY, 65504.0f}, y[64];
    cache_init(&c, KV_F16, 64, 64);
    kernels_best()->kv_store(&c.l, c.pool + c.table[0] * c.l.block_bytes, HEAD, 0, k, v);
    uint32_t lo = 0, hi = 1;
    attend(kernels_best(), &c, 1, &lo, &hi, 0, false, y);
    assert_true(y[0] == 65504.0f && y[1] == -65504.0f && y[2] == 65504.0f && y[3] == 0);
    cache_release(&c);
}

static void stores_agree(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++)
        for (size_t d = 0; d < 5; d++) {
            struct kv_layout l;
            float k[256], v[256];
            uint64_t seed = d;
            assert_true(kv_layout((enum kv_type)t, 2, dims[d].dk, dims[d].dv, &l));
            uint8_t *want = aligned(l.block_bytes), *got = aligned(l.block_bytes);
            for (int i = 0; i < 256; i++) {
                k[i] = next_float(&seed) * (i % 37 == 36 ? 1e6f : 3);
                v[i] = next_float(&seed) * (i % 41 == 40 ? 1e-7f : 3);
            }
            for (size_t n = 0; KERNELS_ALL[n]; n++)
                for (int odd = 0; odd < 3 && kernels_runnable(KERNELS_ALL[n]); odd++) {
                    v[3] = odd == 1 ? INFINITY : odd == 2 ? NAN : 1;
                    kernels_by_name("ref")->kv_store(&l, want, 1, 5, k, v);
                    KERNELS_ALL[n]->kv_store(&l, got, 1, 5, k, v);
                    assert_memory_equal(want, got, l.block_bytes);
                }
            free(want);
            free(got);
        }
}

static void geometry(void **state)
{
    (void)state;
    struct kv_layout l;
    assert_true(kv_layout(KV_F16, 8, 64, 64, &l));
    assert_int_equal(8 * 32 * (64 + 64) * 2, l.block_bytes);
    assert_true(kv_layout(KV_Q8, 8, 64, 64, &l));
    assert_int_equal(8 * 32 * (64 + 64 + 4 * 4), l.block_bytes); /* a scale per 32 dims of K and of V */
    assert_false(kv_layout(KV_F16, 0, 64, 64, &l));
    assert_false(kv_layout(KV_F16, 8, 2048, 64, &l));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tables_agree), cmocka_unit_test(near_float64),
                                       cmocka_unit_test(values_out_of_range_are_clamped), cmocka_unit_test(stores_agree),
                                       cmocka_unit_test(geometry)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
