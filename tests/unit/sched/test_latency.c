/* test_latency.c: the learned curve against the true one, for the shapes that curves have. */
#include "sched/rig.h"

#include <math.h>

#include "base/rand.h"
#include "sched/latency.h"

static double affine(uint32_t rows)
{
    return 2e6 + 3e5 * rows;
}

/* Kernels that work eight rows at a time. */
static double stairs(uint32_t rows)
{
    return 1e6 + 8e5 * ((rows + 7) / 8);
}

static double noisy(struct rand *r, double t, double sigma)
{
    double u = 1 - rand_f64(r), v = rand_f64(r);
    return t * exp(sigma * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

static void near_to(double got, double want, double share)
{
    if (fabs(got / want - 1) > share)
        print_error("%.0f is not within %.0f %% of %.0f\n", got, 100 * share, want);
    assert_true(fabs(got / want - 1) <= share);
}

static void test_unknown(void **state)
{
    (void)state;
    struct latency_model m;
    latency_init(&m);
    assert_false(latency_known(&m));
    assert_true(latency_ns(&m, 5) == 0);
    assert_int_equal(latency_rows_within(&m, 1, 32), 32);
}

static void test_affine_from_few_sizes(void **state)
{
    (void)state;
    struct latency_model m;
    struct rand r;
    rand_init(&r, 1);
    latency_init(&m);
    for (int i = 0; i < 60; i++)
        latency_learn(&m, i % 2 ? 16 : 2, noisy(&r, affine(i % 2 ? 16 : 2), 0.03));
    for (uint32_t rows = 1; rows <= 64; rows++) /* between, below and four times beyond */
        near_to(latency_ns(&m, rows), affine(rows), 0.1);
}

static void test_stairs_are_followed(void **state)
{
    (void)state;
    struct latency_model m;
    latency_init(&m);
    for (int i = 0; i < 20; i++)
        for (uint32_t rows = 1; rows <= 64; rows *= 2)
            latency_learn(&m, rows, stairs(rows));
    for (uint32_t rows = 1; rows <= 64; rows *= 2)
        near_to(latency_ns(&m, rows), stairs(rows), 0.03);
}

/* With one size seen nothing is known about others, but it has to be sane: less for fewer rows, more for more, not absurd. */
static void test_one_size_only(void **state)
{
    (void)state;
    struct latency_model m;
    latency_init(&m);
    latency_learn(&m, 8, 8e6);
    near_to(latency_ns(&m, 8), 8e6, 0.001);
    assert_true(latency_ns(&m, 1) > 1e6 && latency_ns(&m, 1) < 8e6);
    assert_true(latency_ns(&m, 32) > 8e6 && latency_ns(&m, 32) < 33e6);
}

static void test_never_decreases(void **state)
{
    (void)state;
    struct rand r;
    rand_init(&r, 9);
    for (int round = 0; round < 300; round++) {
        struct latency_model m;
        latency_init(&m);
        for (int i = 0; i < 30; i++)
            latency_learn(&m, 1 + (uint32_t)rand_below(&r, 4096), 1 + 1e7 * rand_f64(&r));
        double last = 0;
        for (uint32_t rows = 1; rows <= 4096; rows++) {
            double t = latency_ns(&m, rows);
            assert_true(t >= last && isfinite(t));
            last = t;
        }
        double ns = 1e7 * rand_f64(&r);
        uint32_t fits = latency_rows_within(&m, ns, 4096);
        assert_true(fits == 0 || latency_ns(&m, fits) <= ns);
        assert_true(fits == 4096 || latency_ns(&m, fits + 1) > ns);
    }
}

/* One run in fifty takes ten times as long: the estimate stays with the other forty-nine. */
static void test_outliers(void **state)
{
    (void)state;
    struct latency_model m;
    struct rand r;
    rand_init(&r, 3);
    latency_init(&m);
    for (int i = 0; i < 1000; i++) {
        latency_learn(&m, 8, noisy(&r, affine(8), 0.05) * (i % 50 == 49 ? 10 : 1));
        if (i > 10)
            near_to(latency_ns(&m, 8), affine(8), 0.12);
    }
}

/* The machine becomes three times as slow, then as fast as before: believed within a dozen runs. */
static void test_change_is_believed(void **state)
{
    (void)state;
    struct latency_model m;
    latency_init(&m);
    for (int i = 0; i < 500; i++)
        latency_learn(&m, 8, affine(8));
    for (int i = 0; i < 12; i++)
        latency_learn(&m, 8, 3 * affine(8));
    near_to(latency_ns(&m, 8), 3 * affine(8), 0.05);
    for (int i = 0; i < 12; i++)
        latency_learn(&m, 8, affine(8));
    near_to(latency_ns(&m, 8), affine(8), 0.05);
}

/* The very first run of a size pays for start-up (lazy allocation, code not in the cache): a hundred times as long. */
static void test_slow_first_run(void **state)
{
    (void)state;
    struct latency_model m;
    latency_init(&m);
    for (uint32_t rows = 1; rows <= 32; rows *= 2)
        for (int i = 0; i < 3; i++)
            latency_learn(&m, rows, affine(rows) * (i == 0 ? 100 : 1));
    for (uint32_t rows = 1; rows <= 32; rows++)
        near_to(latency_ns(&m, rows), affine(rows), 0.1);
}

/* The machine was throttled while all sizes ran, and recovers while only small ones do: large ones are expected to be as quick
 * as ever again, though none has run since. */
static void test_unvisited_sizes_change_along(void **state)
{
    (void)state;
    struct latency_model m;
    latency_init(&m);
    for (int i = 0; i < 50; i++)
        for (uint32_t rows = 1; rows <= 32; rows *= 2)
            latency_learn(&m, rows, 5 * affine(rows));
    for (int i = 0; i < 200; i++)
        latency_learn(&m, 2, 5 * affine(2));
    for (int i = 0; i < 10; i++)
        latency_learn(&m, 2, affine(2));
    near_to(latency_ns(&m, 32), affine(32), 0.15);
    near_to(latency_ns(&m, 2), affine(2), 0.05);
}

/* Thousands of runs of one size don't spoil what was known of another. */
static void test_unvisited_sizes_keep(void **state)
{
    (void)state;
    struct latency_model m;
    struct rand r;
    rand_init(&r, 5);
    latency_init(&m);
    for (int i = 0; i < 40; i++)
        latency_learn(&m, 1 + (uint32_t)(i % 4), noisy(&r, affine(1 + (uint32_t)(i % 4)), 0.03));
    for (int i = 0; i < 20000; i++)
        latency_learn(&m, 32, noisy(&r, affine(32), 0.03));
    near_to(latency_ns(&m, 1), affine(1), 0.1);
    near_to(latency_ns(&m, 32), affine(32), 0.05);
}

static void test_borrowing(void **state)
{
    (void)state;
    struct latency_model from, m;
    latency_init(&from);
    for (int i = 0; i < 10; i++)
        for (uint32_t rows = 1; rows <= 32; rows *= 2)
            latency_learn(&from, rows, affine(rows));
    latency_borrow(&m, &from, 2);
    assert_true(latency_known(&m));
    near_to(latency_ns(&m, 16), 2e6 + 2 * 3e5 * 16, 0.05);
    for (int i = 0; i < 10; i++) /* its own runs tell otherwise */
        latency_learn(&m, 16, 30e6);
    near_to(latency_ns(&m, 16), 30e6, 0.1);
}

/* The margin is about the 97th percentile of time over estimate: exp(1.88 sigma) for lognormal noise, in steps of 5 %. */
static void test_margin(void **state)
{
    (void)state;
    static const double sigma[] = {0.02, 0.1, 0.3};
    for (size_t i = 0; i < 3; i++) {
        struct latency_tail t;
        struct rand r;
        rand_init(&r, 11);
        latency_tail_init(&t);
        assert_true(t.margin >= 1.05 && t.margin <= 1.2);
        for (int k = 0; k < 20000; k++)
            latency_tail_learn(&t, noisy(&r, 1e6, sigma[i]), 1e6);
        near_to(t.margin, exp(1.88 * sigma[i]), 0.08);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_affine_from_few_sizes),
        cmocka_unit_test(test_stairs_are_followed),
        cmocka_unit_test(test_one_size_only),
        cmocka_unit_test(test_never_decreases),
        cmocka_unit_test(test_outliers),
        cmocka_unit_test(test_change_is_believed),
        cmocka_unit_test(test_unvisited_sizes_keep),
        cmocka_unit_test(test_borrowing),
        cmocka_unit_test(test_slow_first_run),
        cmocka_unit_test(test_unvisited_sizes_change_along),
        cmocka_unit_test(test_margin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
