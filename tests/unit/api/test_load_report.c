/* test_load_report.c: the share of a server's weight that an agent's line gives. Expected: by hand, from the sentence in api.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "api/api.h"

static void test_percent(void **state)
{
    (void)state;
    assert_int_equal(api_load_percent(0, 0), 100);
    assert_int_equal(api_load_percent(0, 8), 50);
    assert_int_equal(api_load_percent(0, 24), 25);
    assert_int_equal(api_load_percent(0.25, 0), 75);
    assert_int_equal(api_load_percent(0.25, 8), 50); /* whichever is less */
    assert_int_equal(api_load_percent(0.75, 8), 25);
    assert_int_equal(api_load_percent(1, 0), 1); /* a server that works has never none: 0 would be a drain */
    assert_int_equal(api_load_percent(7, UINT64_MAX), 1);
    assert_int_equal(api_load_percent(-1, 0), 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_percent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
