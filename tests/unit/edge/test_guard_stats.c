/* Scores of inputs against a reference. Expected values are numpy's, scipy's and scikit-learn's, over the same numbers: make_guard_vectors.py
 * prints them. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "edge/guard_stats.h"

#define ALL (1u << GUARD_ROBUST_Z | 1u << GUARD_MAHALANOBIS)

static uint64_t state_of_lcg;

static double next(void)
{
    state_of_lcg = (state_of_lcg * 1103515245u + 12345u) % (1u << 31);
    return (double)state_of_lcg / (double)(1u << 31) - 0.5;
}

static struct tensor tensor_of(const float *v, size_t rows, size_t features)
{
    return (struct tensor){.name = STR("X"),
                           .dtype = DTYPE_FP32,
                           .shape = {2, {(int64_t)rows, (int64_t)features}},
                           .data = slice_borrow(v, rows * features * sizeof *v)};
}

static void near(double got, double want)
{
    if (fabs(got - want) > 2e-5 * fmax(1, fabs(want)))
        fail_msg("%.9g is not %.9g", got, want);
}

static struct guard_reference *fit(const struct tensor *t, unsigned methods, double rate, const struct guard_grid *grid)
{
    struct guard_reference *r = NULL;
    struct error err = {0};
    if (guard_reference_fit(t, methods, rate, grid, &r, &err) < 0)
        fail_msg("%s", err.text);
    return r;
}

static void fill_three(float *x)
{
    state_of_lcg = 1;
    for (int i = 0; i < 80; i++) {
        double a = next(), b = next(), c = next();
        x[i * 3] = (float)(a * 4 + 1);
        x[i * 3 + 1] = (float)(a * 2 + b);
        x[i * 3 + 2] = (float)(c * 100);
    }
}

static void test_few_features(void **state)
{
    float x[240], q[3] = {2.5f, -1.0f, 30.0f};
    struct guard_score s;
    (void)state;
    fill_three(x);
    struct tensor t = tensor_of(x, 80, 3), one = tensor_of(q, 1, 3);
    struct guard_reference *r = fit(&t, ALL, 0.1, NULL);
    guard_reference_score(r, &one, 0, &s);
    near(s.v[GUARD_ROBUST_Z], 1.6605999527402981);
    assert_int_equal(s.feature, 1);
    near(s.v[GUARD_MAHALANOBIS], 5.048037560855741);
    near(guard_reference_threshold(r, GUARD_ROBUST_Z), 1.8707323779633822);
    near(guard_reference_threshold(r, GUARD_MAHALANOBIS), 2.361180113173369);
    q[0] = NAN;
    guard_reference_score(r, &one, 0, &s);
    assert_true(s.v[GUARD_ROBUST_Z] > 1e30 && s.v[GUARD_MAHALANOBIS] > 1e30);
    guard_reference_unref(r);
}

static void test_many_features(void **state)
{
    float *y = calloc(60 * 100, sizeof *y), q[100];
    struct guard_score s;
    (void)state;
    state_of_lcg = 7;
    for (int i = 0; i < 6000; i++)
        y[i] = (float)(next() * (i % 100 + 1));
    for (int i = 0; i < 100; i++)
        q[i] = (float)i * 0.25f;
    struct tensor t = tensor_of(y, 60, 100), one = tensor_of(q, 1, 100);
    struct guard_reference *r = fit(&t, 1u << GUARD_MAHALANOBIS, 0.1, NULL);
    guard_reference_score(r, &one, 0, &s);
    near(s.v[GUARD_MAHALANOBIS], 8.705196856547653);
    guard_reference_unref(r);
    free(y);
}

static void test_images(void **state)
{
    const struct guard_grid grids[] = {{4, 5, 3, true}, {4, 5, 3, false}};
    const double want[] = {52.56348503330244, 40.52499654552656};
    float *y = calloc(40 * 60, sizeof *y), q[60];
    (void)state;
    state_of_lcg = 3;
    for (int i = 0; i < 2400; i++)
        y[i] = (float)next();
    for (int i = 0; i < 60; i++)
        q[i] = i % 2 ? -0.9f : 0.9f;
    struct tensor t = tensor_of(y, 40, 60), one = tensor_of(q, 1, 60);
    for (int i = 0; i < 2; i++) {
        struct guard_score s;
        struct guard_reference *r = fit(&t, 1u << GUARD_TOTAL_VARIATION, 0.1, &grids[i]);
        guard_reference_score(r, &one, 0, &s);
        near(s.v[GUARD_TOTAL_VARIATION], want[i]);
        guard_reference_unref(r);
    }
    free(y);
}

/* Whatever the type, the same numbers give the same scores. */
static void test_types(void **state)
{
    uint8_t bytes[40 * 4], row8[4] = {9, 200, 3, 77};
    int64_t row64[4] = {9, 200, 3, 77};
    double rowd[4] = {9, 200, 3, 77};
    uint16_t row16[4];
    struct guard_score a, b;
    (void)state;
    state_of_lcg = 11;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)((next() + 0.5) * 200);
    struct tensor t = {.dtype = DTYPE_UINT8, .shape = {3, {40, 2, 2}}, .data = slice_borrow(bytes, sizeof bytes)};
    struct guard_reference *r = fit(&t, ALL, 0.2, NULL);
    assert_int_equal(guard_reference_features(r), 4);
    for (int i = 0; i < 4; i++)
        row16[i] = f32_to_f16((float)row8[i]);
    struct tensor one = {.dtype = DTYPE_UINT8, .shape = {3, {1, 2, 2}}, .data = slice_borrow(row8, sizeof row8)};
    guard_reference_score(r, &one, 0, &a);
    const struct {
        enum dtype dtype;
        const void *p;
        size_t n;
    } others[] = {{DTYPE_INT64, row64, sizeof row64}, {DTYPE_FP64, rowd, sizeof rowd}, {DTYPE_FP16, row16, sizeof row16}};
    for (size_t i = 0; i < 3; i++) {
        one.dtype = others[i].dtype;
        one.data = slice_borrow(others[i].p, others[i].n);
        guard_reference_score(r, &one, 0, &b);
        assert_memory_equal(&a, &b, sizeof a);
    }
    guard_reference_unref(r);
}

/* What is drawn as the reference was is flagged at the stated rate or less, but for the luck of a finite sample: with 500 rows for the threshold
 * and 4000 drawn at 5 %, four standard deviations are 5 % + 4 sqrt(0.05 * 0.95 * (1/500 + 1/4000)) = 9.1 %. */
static void test_the_rate(void **state)
{
    size_t n = 1000, m = 4000, over[2] = {0, 0};
    float *x = calloc((n + m) * 3, sizeof *x);
    (void)state;
    state_of_lcg = 99;
    for (size_t i = 0; i < n + m; i++) {
        double a = next() + next() + next(), b = next() + next();
        x[i * 3] = (float)a, x[i * 3 + 1] = (float)(a + b), x[i * 3 + 2] = (float)(b * b);
    }
    struct tensor t = tensor_of(x, n, 3), fresh = tensor_of(x + n * 3, m, 3);
    struct guard_reference *r = fit(&t, ALL, 0.05, NULL);
    for (size_t i = 0; i < m; i++) {
        struct guard_score s;
        guard_reference_score(r, &fresh, i, &s);
        over[0] += s.v[GUARD_ROBUST_Z] > guard_reference_threshold(r, GUARD_ROBUST_Z);
        over[1] += s.v[GUARD_MAHALANOBIS] > guard_reference_threshold(r, GUARD_MAHALANOBIS);
    }
    for (int k = 0; k < 2; k++)
        assert_true(over[k] > m / 100 && over[k] < m * 91 / 1000);
    guard_reference_unref(r);
    free(x);
}

static void expect_error(const struct tensor *t, unsigned methods, double rate, const char *words)
{
    struct guard_reference *r = NULL;
    struct error err = {0};
    assert_int_equal(guard_reference_fit(t, methods, rate, NULL, &r, &err), STATUS_INVALID);
    assert_null(r);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" doesn't say \"%s\"", err.text, words);
}

static void test_samples_of_no_use(void **state)
{
    float x[240];
    (void)state;
    fill_three(x);
    struct tensor t = tensor_of(x, 80, 3), few = tensor_of(x, 19, 3);
    expect_error(&few, ALL, 0.1, "19 rows; at least 20");
    expect_error(&t, ALL, 0.001, "at least 1998");
    expect_error(&t, 1u << GUARD_TOTAL_VARIATION, 0.1, "images");
    x[2 * 3 + 1] = INFINITY;
    expect_error(&t, ALL, 0.1, "feature 1");
    struct tensor text = {.dtype = DTYPE_BYTES, .shape = {1, {80}}};
    expect_error(&text, ALL, 0.1, "BYTES");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_features), cmocka_unit_test(test_many_features), cmocka_unit_test(test_images),
        cmocka_unit_test(test_types),        cmocka_unit_test(test_the_rate),      cmocka_unit_test(test_samples_of_no_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
