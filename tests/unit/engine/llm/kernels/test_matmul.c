/* Matrix products: every table against the scalar one bit by bit, at all types, ragged sizes, column counts and row cuts; the scalar one against
 * a float64 product of the dequantised weights. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "engine/llm/kernels/weights.h"

struct problem {
    struct matrix m;
    uint8_t *src;
    float *x; /* [n][cols] */
    struct acts a;
    uint32_t n;
    float *bias, *residual;
    void *scratch;
};

static void problem_init(struct problem *p, enum weight_type t, uint32_t rows, uint32_t cols, uint32_t n)
{
    uint64_t seed = (uint64_t)t * 1000003 + rows * 131 + cols;
    p->n = n;
    assert_true(random_matrix(t, rows, cols, seed, &p->m, &p->src));
    assert_true(acts_layout(acts_kind_for(t), cols, n, &p->a));
    p->a.data = aligned(acts_bytes(&p->a));
    p->x = malloc(sizeof(float) * n * cols);
    p->bias = malloc(sizeof(float) * rows);
    p->residual = malloc(sizeof(float) * rows * n);
    for (size_t i = 0; i < (size_t)n * cols; i++)
        p->x[i] = next_float(&seed) * 3.0f;
    for (size_t i = 0; i < rows; i++)
        p->bias[i] = next_float(&seed);
    for (size_t i = 0; i < (size_t)rows * n; i++)
        p->residual[i] = next_float(&seed);
    p->scratch = aligned(kernels_scratch_bytes(cols));
    for (uint32_t c = 0; c < n; c++)
        kernels_by_name("ref")->acts_put(&p->a, c, p->x + (size_t)c * cols);
}

static void problem_release(struct problem *p)
{
    free(p->m.data);
    free(p->src);
    free(p->x);
    free(p->a.data);
    free(p->bias);
    free(p->residual);
    free(p->scratch);
}

static uint32_t cols_of(enum weight_type t, uint32_t blocks)
{
    uint32_t b = weight_type_info(t)->block_elems;
    return b == 1 ? 37 * blocks : b * blocks; /* float rows may have any length */
}

/* The whole product, or with row cuts of one unit each, with or without the extras. */
static void product(const struct kernels *k, const struct problem *p, uint32_t n, bool cut, bool extras, float *y)
{
    struct matmul_out o = {.y = y, .ld = p->m.rows};
    if (extras)
        o = (struct matmul_out){y, p->m.rows, p->bias, KERNEL_ACT_SILU, p->residual, p->m.rows};
    if (!cut) {
        k->matmul(&p->m, &p->a, n, 0, p->m.rows, &o, p->scratch);
        return;
    }
    for (uint32_t r = 0; r < p->m.rows; r += KERNEL_ROW_UNIT)
        k->matmul(&p->m, &p->a, n, r, r + KERNEL_ROW_UNIT < p->m.rows ? r + KERNEL_ROW_UNIT : p->m.rows, &o, p->scratch);
}

static void assert_same(const float *a, const float *b, size_t n, const char *what, enum weight_type t, uint32_t rows,
                        uint32_t cols, uint32_t n_cols)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, 4)) {
            printf("%s %s rows %u cols %u columns %u: element %zu is %.9g, not %.9g\n", what, weight_type_info(t)->name, rows,
                   cols, n_cols, i, (double)b[i], (double)a[i]);
            fail();
        }
}

static void equals_ref(void **state)
{
    (void)state;
    static const uint32_t rows[] = {1, 16, 31, 32, 33, 80}, counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 35, 70};
    for (size_t ti = 0; ti < N_TYPES; ti++)
        for (size_t ri = 0; ri < 6; ri++) {
            enum weight_type t = ALL_TYPES[ti];
            struct problem p;
            problem_init(&p, t, rows[ri], cols_of(t, 1 + ri % 3), 70);
            size_t n = (size_t)70 * p.m.rows;
            float *want = malloc(n * sizeof(float)), *got = malloc(n * sizeof(float));
            for (int extras = 0; extras < 2; extras++) {
                product(kernels_by_name("ref"), &p, 70, false, extras, want);
                for (size_t k = 0; KERNELS_ALL[k]; k++)
                    for (size_t ci = 0; ci < 12 && kernels_runnable(KERNELS_ALL[k]); ci++)
                        for (int cut = 0; cut < 2; cut++) {
                            memset(got, 0xff, n * sizeof(float));
                            product(KERNELS_ALL[k], &p, counts[ci], cut, extras, got);
                            assert_same(want, got, (size_t)counts[ci] * p.m.rows, KERNELS_ALL[k]->name, t, p.m.rows, p.m.cols,
                                        counts[ci]);
                        }
            }
            free(want);
            free(got);
            problem_release(&p);
        }
}

/* What acts_get gives back is what was put, to half a step of the group's largest value in 127; f32 exactly. */
static void columns_are_read_back(void **state)
{
    (void)state;
    static const enum weight_type types[] = {WEIGHT_Q4_0, WEIGHT_F16};
    for (size_t ti = 0; ti < 2; ti++) {
        struct problem p;
        problem_init(&p, types[ti], 32, 160, 19);
        float got[160];
        for (uint32_t c = 0; c < 19; c++) {
            const float *x = p.x + (size_t)c * 160;
            acts_get(&p.a, c, got);
            for (uint32_t k = 0; k < 160; k++) {
                float largest = 0;
                for (uint32_t j = k & ~31u; j < (k & ~31u) + 32; j++)
                    largest = fabsf(x[j]) > largest ? fabsf(x[j]) : largest;
                assert_true(fabsf(got[k] - x[k]) <= (ti ? 0 : largest / 127 * 0.501f));
            }
        }
        problem_release(&p);
    }
}

/* So long rows that many columns are cut into several blocks (L2), with a ragged last tile. */
static void blocks_of_columns(void **state)
{
    (void)state;
    static const enum weight_type types[] = {WEIGHT_Q4_0, WEIGHT_Q8_0, WEIGHT_Q4_K, WEIGHT_Q6_K, WEIGHT_F16};
    for (size_t ti = 0; ti < sizeof types / sizeof *types; ti++) {
        struct problem p;
        problem_init(&p, types[ti], 48, 6144, 131);
        size_t n = (size_t)131 * p.m.rows;
        float *want = malloc(n * sizeof(float)), *got = malloc(n * sizeof(float));
        product(kernels_by_name("ref"), &p, 131, false, true, want);
        for (size_t k = 0; KERNELS_ALL[k]; k++) {
            if (!kernels_runnable(KERNELS_ALL[k]))
                continue;
            memset(got, 0xff, n * sizeof(float));
            product(KERNELS_ALL[k], &p, 131, false, true, got);
            assert_same(want, got, n, KERNELS_ALL[k]->name, types[ti], p.m.rows, p.m.cols, 131);
        }
        free(want);
        free(got);
        problem_release(&p);
    }
}

/* Largest error of y against float64, in units of what rounding the activations to int8 can do: sum |w| * amax(group) / 254. */
static double worst(const struct problem *p, const float *y)
{
    double worst_ratio = 0;
    float *w = malloc(sizeof(float) * p->m.cols);
    for (uint32_t r = 0; r < p->m.rows; r++) {
        kernels_by_name("ref")->dequant_row(p->m.type, p->src + r * matrix_row_bytes(&p->m), p->m.cols, w);
        for (uint32_t c = 0; c < p->n; c++) {
            const float *x = p->x + (size_t)c * p->m.cols;
            double sum = 0, bound = 0, mass = 0;
            for (uint32_t k = 0; k < p->m.cols; k++) {
                double amax = 0;
                for (uint32_t j = k & ~31u; j < (k & ~31u) + 32 && j < p->m.cols; j++)
                    amax = fabs((double)x[j]) > amax ? fabs((double)x[j]) : amax;
                sum += (double)w[k] * (double)x[k];
                mass += fabs((double)w[k] * (double)x[k]);
                bound += p->a.kind == ACTS_Q8 ? fabs((double)w[k]) * amax / 254 : 0;
            }
            /* The parts of a scaled-and-shifted weight round apart: 32 of |d q| and |m| for a |w|. */
            double err = fabs(sum - (double)y[(size_t)c * p->m.rows + r]) / (bound * 1.05 + mass * 1e-6 + p->m.cols * 1e-6);
            worst_ratio = err > worst_ratio ? err : worst_ratio;
        }
    }
    free(w);
    return worst_ratio;
}

static void near_float64(void **state)
{
    (void)state;
    for (size_t ti = 0; ti < N_TYPES; ti++) {
        struct problem p;
        problem_init(&p, ALL_TYPES[ti], 48, cols_of(ALL_TYPES[ti], 4), 5);
        float *y = malloc(sizeof(float) * 5 * 48);
        product(kernels_best(), &p, 5, false, false, y);
        double w = worst(&p, y);
        if (w > 1.0) {
            printf("%s: %g times the bound\n", weight_type_info(ALL_TYPES[ti])->name, w);
            fail();
        }
        free(y);
        problem_release(&p);
    }
}

/* Gate, up, activation and quantisation fused equal the same done one by one. */
static void gated(const struct kernels *k, enum weight_type t, enum weight_type t_up, uint32_t n, uint32_t rows, uint32_t wider,
                  enum kernel_act act)
{
    struct problem g, u;
    uint32_t cols = cols_of(t, weight_type_info(t)->block_elems == 256 ? 1 : 8) * wider;
    problem_init(&g, t, rows, cols, n);
    problem_init(&u, t_up, rows, cols, n);
    u.n = n;
    struct acts want, got;
    enum acts_kind kind = rows % 32 ? ACTS_F32 : ACTS_Q8;
    assert_true(acts_layout(kind, rows, n, &want) && acts_layout(kind, rows, n, &got));
    want.data = aligned(acts_bytes(&want));
    got.data = aligned(acts_bytes(&got));
    float *yg = malloc(sizeof(float) * n * rows), *yu = malloc(sizeof(float) * n * rows), *y = malloc(sizeof(float) * n * rows);
    struct matmul_out og = {.y = yg, .ld = rows, .bias = g.bias, .act = act}, ou = {.y = yu, .ld = rows, .bias = u.bias};
    kernels_by_name("ref")->matmul(&g.m, &g.a, n, 0, rows, &og, g.scratch);
    kernels_by_name("ref")->matmul(&u.m, &g.a, n, 0, rows, &ou, g.scratch);
    for (size_t i = 0; i < (size_t)n * rows; i++)
        yu[i] *= yg[i];
    for (uint32_t c = 0; c < n; c++)
        kernels_by_name("ref")->acts_put(&want, c, yu + (size_t)c * rows);
    struct matmul_out o = {.y = y, .ld = rows, .bias = g.bias, .act = act};
    uint32_t mid = rows / 2 & ~31u;
    if (mid)
        k->matmul_gated(&g.m, &u.m, &g.a, n, 0, mid, &o, u.bias, &got, g.scratch);
    k->matmul_gated(&g.m, &u.m, &g.a, n, mid, rows, &o, u.bias, &got, g.scratch);
    assert_memory_equal(yu, y, sizeof(float) * n * rows);
    assert_memory_equal(want.data, got.data, acts_bytes(&want));
    free(yg);
    free(yu);
    free(y);
    free(want.data);
    free(got.data);
    problem_release(&g);
    problem_release(&u);
}

static void gated_equals_parts(void **state)
{
    (void)state;
    static const enum kernel_act acts[] = {KERNEL_ACT_SILU, KERNEL_ACT_GELU_TANH, KERNEL_ACT_GELU_ERF, KERNEL_ACT_RELU};
    for (size_t k = 0; KERNELS_ALL[k]; k++) {
        if (!kernels_runnable(KERNELS_ALL[k]))
            continue;
        for (size_t a = 0; a < 4; a++) {
            gated(KERNELS_ALL[k], WEIGHT_Q4_K, WEIGHT_Q4_K, 3, 96, 1, acts[a]);
            gated(KERNELS_ALL[k], WEIGHT_Q4_0, WEIGHT_Q8_0, 27, 64, 1, acts[a]);
            gated(KERNELS_ALL[k], WEIGHT_F16, WEIGHT_F32, 9, 40, 1, acts[a]);
        }
        gated(KERNELS_ALL[k], WEIGHT_Q4_K, WEIGHT_Q6_K, 131, 64, 24, KERNEL_ACT_SILU); /* more than one block of columns */
    }
}

static void layouts(void **state)
{
    (void)state;
    struct matrix m;
    assert_true(matrix_layout(WEIGHT_Q4_0, 17, 64, &m));
    assert_int_equal(2, m.strips);
    assert_int_equal(2 * 16 * 2 * 18, matrix_bytes(&m)); /* 32 rows of two 18-byte blocks */
    assert_true(matrix_layout(WEIGHT_Q6_K, 16, 512, &m));
    assert_int_equal(16 * 2 * 210, matrix_bytes(&m));
    assert_false(matrix_layout(WEIGHT_Q4_0, 16, 33, &m));
    assert_false(matrix_layout(WEIGHT_Q4_K, 16, 128, &m));
    assert_false(matrix_layout(WEIGHT_Q4_0, 0, 32, &m));
    assert_false(matrix_layout(WEIGHT_F32, UINT64_MAX, 32, &m));
    assert_false(matrix_layout((enum weight_type)16, 16, 256, &m));
    struct acts a;
    assert_true(acts_layout(ACTS_Q8, 64, 9, &a));
    assert_int_equal(2 * 2 * 384, acts_bytes(&a));
    assert_false(acts_layout(ACTS_Q8, 33, 9, &a));
    assert_false(acts_layout(ACTS_F32, 32, 0, &a));
}

/* A table that isn't listed is a table that isn't tested. */
static void all_tables_are_listed(void **state)
{
    (void)state;
#if defined(__x86_64__)
    static const char *const names[] = {"avx512", "avxvnni", "avx2", "ref"};
    if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16"))
        assert_string_equal("avx512", kernels_best()->name);
#elif defined(__aarch64__)
    static const char *const names[] = {"neon", "ref"};
    if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP)
        assert_string_equal("neon", kernels_best()->name);
#else
    static const char *const names[] = {"ref"};
#endif
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_non_null(KERNELS_ALL[i]);
        assert_string_equal(names[i], KERNELS_ALL[i]->name);
    }
    assert_null(KERNELS_ALL[sizeof names / sizeof *names]);
    assert_null(kernels_by_name("mmx"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_ref),           cmocka_unit_test(blocks_of_columns),  cmocka_unit_test(columns_are_read_back),
        cmocka_unit_test(near_float64),         cmocka_unit_test(gated_equals_parts), cmocka_unit_test(layouts),
        cmocka_unit_test(all_tables_are_listed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
