/* test_delivery.c: expected values by hand from RFC 6298's formulas, for two ways of equal length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "sched/delivery.h"

static void nothing_known(void **state)
{
    (void)state;
    struct delivery d = {0};
    assert_int_equal(delivery_allowance_ns(&d, 100000), 0);
}

/* R = 800: SRTT = 800, RTTVAR = 400. R' = 1600: RTTVAR = 3/4 400 + 1/4 800 = 500, SRTT = 7/8 800 + 1/8 1600 = 900. */
static void by_hand(void **state)
{
    (void)state;
    struct delivery d = {0};
    delivery_learn(&d, 800);
    assert_int_equal(delivery_allowance_ns(&d, 1000000), 2 * (800 + 4 * 400));
    delivery_learn(&d, 1600);
    assert_int_equal(delivery_allowance_ns(&d, 1000000), 2 * (900 + 4 * 500));
}

static void steady_and_bounded(void **state)
{
    (void)state;
    struct delivery d = {0};
    for (int i = 0; i < 1000; i++)
        delivery_learn(&d, 80000);
    assert_in_range(delivery_allowance_ns(&d, 100000000), 159800, 160200); /* no deviation left but rounding */
    assert_int_equal(delivery_allowance_ns(&d, 100000), 20000);
    assert_int_equal(delivery_allowance_ns(&d, 0), 0);
    for (int i = 0; i < 1000; i++)
        delivery_learn(&d, UINT64_MAX); /* no overflow: still the bound */
    assert_int_equal(delivery_allowance_ns(&d, 100000), 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_known),
        cmocka_unit_test(by_hand),
        cmocka_unit_test(steady_and_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
