/* test_delay.c: the percentile of known latencies, to within a bucket, and that the past fades. */
#include "route/rig.h"

#include "route/delay.h"

static void percentiles(void **state)
{
    (void)state;
    struct delay d = {0};
    for (unsigned i = 1; i < 100; i++)
        delay_learn(&d, i * MS);
    assert_int_equal(delay_percentile_ns(&d, 95), 0); /* too few */
    delay_learn(&d, 100 * MS);
    assert_in_range(delay_percentile_ns(&d, 95), 95 * MS, 107 * MS);
    assert_in_range(delay_percentile_ns(&d, 50), 50 * MS, 57 * MS);
    assert_in_range(delay_percentile_ns(&d, 99), 99 * MS, 112 * MS);
}

static void the_past_fades(void **state)
{
    (void)state;
    struct delay d = {0};
    for (unsigned i = 0; i < 100000; i++)
        delay_learn(&d, SEC);
    for (unsigned i = 0; i < 30000; i++)
        delay_learn(&d, MS);
    assert_in_range(delay_percentile_ns(&d, 95), MS, 2 * MS);
}

static void extremes(void **state)
{
    (void)state;
    struct delay d = {0};
    for (unsigned i = 0; i < 200; i++)
        delay_learn(&d, i % 2 ? 0 : UINT64_MAX);
    assert_in_range(delay_percentile_ns(&d, 50), 1, MS);
    assert_true(delay_percentile_ns(&d, 95) > 3600 * SEC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(percentiles), cmocka_unit_test(the_past_fades),
                                       cmocka_unit_test(extremes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
