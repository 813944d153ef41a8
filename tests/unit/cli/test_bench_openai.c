/* The arithmetic of a language-model benchmark, against hand computations and numpy's percentile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "cli/bench_openai.h"

static void near(double a, double b)
{
    assert_true(a - b < 1e-9 && b - a < 1e-9);
}

static void test_tpot_and_limits(void **state)
{
    (void)state;
    struct bench_sample s = {.ttft_ns = 200, .e2e_ns = 1200, .output_tok = 11};
    near(bench_tpot_ns(&s), 100);
    s.output_tok = 1;
    near(bench_tpot_ns(&s), 0);
    s.output_tok = 11;
    assert_true(bench_is_good(&s, &(struct bench_limits){0}));
    assert_true(bench_is_good(&s, &(struct bench_limits){.ttft_ns = 200, .tpot_ns = 100, .e2e_ns = 1200}));
    assert_false(bench_is_good(&s, &(struct bench_limits){.ttft_ns = 199}));
    assert_false(bench_is_good(&s, &(struct bench_limits){.tpot_ns = 99}));
    assert_false(bench_is_good(&s, &(struct bench_limits){.e2e_ns = 1199}));
}

static void test_summary(void **state)
{
    (void)state;
    struct bench_summary x;
    double v[] = {5, 1, 4, 2, 3};
    bench_summarise(v, 5, &x); /* numpy.percentile([1..5], [50, 90, 95, 99]) */
    near(x.mean, 3);
    near(x.std, 1.4142135623730951);
    near(x.median, 3);
    near(x.p90, 4.6);
    near(x.p95, 4.8);
    near(x.p99, 4.96);
    double one[] = {7};
    bench_summarise(one, 1, &x);
    near(x.p99, 7);
    near(x.std, 0);
    bench_summarise(one, 0, &x);
    near(x.mean, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tpot_and_limits), cmocka_unit_test(test_summary)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
