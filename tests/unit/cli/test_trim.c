/* When freed memory is given back: a burst, a quiet server, memory that is in use, a server that is never quiet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/trim.h"

#define MIB     (1ull << 20)
#define SECONDS 1000000000ull

/* Look ten times a second from `from` to `to` seconds; the number of trims, each of which leaves `left` MiB. */
static int run(struct trim *t, uint64_t from, uint64_t to, uint64_t mib, uint64_t in_flight, uint64_t left)
{
    int n = 0;
    for (uint64_t now = from * SECONDS; now < to * SECONDS; now += SECONDS / 10) {
        if (!trim_due(t, now, mib * MIB, in_flight))
            continue;
        n++;
        mib = left;
        trim_done(t, now, mib * MIB);
    }
    return n;
}

static void a_burst_is_given_back_when_it_is_over(void **state)
{
    (void)state;
    struct trim t;
    trim_init(&t, SECONDS, 10 * MIB);
    assert_int_equal(run(&t, 1, 60, 10, 0, 10), 0);    /* nothing to give back */
    assert_int_equal(run(&t, 60, 70, 1000, 5, 10), 0); /* not while it is served */
    assert_int_equal(run(&t, 70, 72, 1000, 0, 12), 0); /* two seconds of quiet first */
    assert_int_equal(run(&t, 72, 600, 1000, 0, 12), 1);
    assert_int_equal(run(&t, 600, 605, 900, 1, 12), 0); /* and the next */
    assert_int_equal(run(&t, 605, 700, 900, 0, 12), 1);
}

static void memory_in_use_is_tried_once(void **state)
{
    (void)state;
    struct trim t;
    trim_init(&t, SECONDS, 10 * MIB);
    assert_int_equal(run(&t, 1, 1000, 500, 0, 499), 1); /* a model was loaded */
    assert_int_equal(run(&t, 1000, 2000, 510, 0, 499), 0);
    assert_int_equal(run(&t, 2000, 2001, 100, 0, 100), 0); /* and unloaded: the mark goes down with it */
    assert_int_equal(run(&t, 2001, 3000, 140, 0, 101), 1);
}

static void a_server_that_is_never_quiet_is_trimmed_once_a_minute_at_most(void **state)
{
    (void)state;
    struct trim t;
    trim_init(&t, SECONDS, 10 * MIB);
    assert_int_equal(run(&t, 1, 600, 200, 3, 10), 0); /* too little to disturb anybody */
    assert_int_equal(run(&t, 600, 1200, 1000, 3, 990), 1);
    assert_int_equal(run(&t, 1200, 1230, 2000, 3, 990), 1);
    assert_int_equal(run(&t, 1230, 1259, 2000, 3, 990), 0); /* within the minute */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_is_given_back_when_it_is_over),
        cmocka_unit_test(memory_in_use_is_tried_once),
        cmocka_unit_test(a_server_that_is_never_quiet_is_trimmed_once_a_minute_at_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
