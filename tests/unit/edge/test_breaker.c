/* test_breaker.c: the circuit breaker under a clock of our own, against hand counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "edge/breaker.h"

#define MS 1000000ull
#define S  (1000 * MS)

static const struct breaker_options options = {
    .error_rate = 0.5, .slow_ns = 100 * MS, .slow_rate = 0.8, .minimum = 4, .window_ns = 10 * S, .open_ns = 2 * S, .probes = 2};

static void ask(struct breaker *b, enum breaker_outcome outcome, uint64_t latency_ns, uint64_t now)
{
    uint32_t epoch;
    uint64_t wait;
    assert_true(breaker_begin(b, now, &epoch, &wait));
    breaker_end(b, epoch, outcome, latency_ns, now);
}

static void break_it(struct breaker *b, uint64_t now)
{
    for (int i = 0; i < 4; i++)
        ask(b, BREAKER_ERROR, MS, now);
    assert_int_equal(b->state, BREAKER_OPEN);
}

static void test_error_rate(void **state)
{
    (void)state;
    struct breaker b;
    breaker_init(&b, &options);
    for (int i = 0; i < 3; i++)
        ask(&b, BREAKER_ERROR, MS, S);
    assert_int_equal(b.state, BREAKER_CLOSED); /* three of three, but four are asked for */
    ask(&b, BREAKER_OK, MS, S);
    assert_int_equal(b.state, BREAKER_CLOSED); /* 3 of 4, but a good answer is no reason to open it */
    ask(&b, BREAKER_ERROR, MS, S);
    assert_int_equal(b.state, BREAKER_OPEN);
}

static void test_half_is_too_much_and_less_is_not(void **state)
{
    (void)state;
    struct breaker b;
    breaker_init(&b, &options);
    for (int i = 0; i < 5; i++)
        ask(&b, BREAKER_OK, MS, S);
    for (int i = 0; i < 4; i++)
        ask(&b, BREAKER_ERROR, MS, S);
    assert_int_equal(b.state, BREAKER_CLOSED); /* 4 of 9 */
    ask(&b, BREAKER_ERROR, MS, S);
    assert_int_equal(b.state, BREAKER_OPEN); /* 5 of 10 */
}

static void test_callers_mistakes_do_not_count(void **state)
{
    (void)state;
    struct breaker b;
    breaker_init(&b, &options);
    for (int i = 0; i < 100; i++) {
        ask(&b, BREAKER_SAYS_NOTHING, 0, S);
        ask(&b, BREAKER_LATE, 99 * MS, S);
    }
    assert_int_equal(breaker_counts(&b, S).answers, 0);
    assert_int_equal(b.state, BREAKER_CLOSED);
}

static void test_slow(void **state)
{
    (void)state;
    struct breaker b;
    breaker_init(&b, &options);
    ask(&b, BREAKER_OK, 100 * MS, S); /* not more than it */
    ask(&b, BREAKER_OK, 101 * MS, S);
    ask(&b, BREAKER_OK, 200 * MS, S);
    ask(&b, BREAKER_LATE, 200 * MS, S);        /* nobody waited for it any more, but it is slow */
    assert_int_equal(b.state, BREAKER_CLOSED); /* 3 of 4 */
    ask(&b, BREAKER_OK, 200 * MS, S);
    assert_int_equal(b.state, BREAKER_OPEN); /* 4 of 5 */
}

static void test_the_window_slides(void **state)
{
    (void)state;
    struct breaker b;
    breaker_init(&b, &options);
    for (int i = 0; i < 3; i++)
        ask(&b, BREAKER_ERROR, MS, 20 * S);
    assert_int_equal(breaker_counts(&b, 29 * S).errors, 3); /* nine slots later: the last look */
    assert_int_equal(breaker_counts(&b, 30 * S).errors, 0);
    ask(&b, BREAKER_ERROR, MS, 30 * S); /* takes the same slot over */
    assert_int_equal(breaker_counts(&b, 30 * S).answers, 1);
    assert_int_equal(b.state, BREAKER_CLOSED);
}

static void test_probes(void **state)
{
    (void)state;
    struct breaker b;
    uint32_t e1, e2, e3;
    uint64_t wait, now = 5 * S;
    breaker_init(&b, &options);
    break_it(&b, now);
    assert_false(breaker_begin(&b, now + S, &e1, &wait));
    assert_int_equal(wait, S);
    now += 2 * S;
    assert_true(breaker_begin(&b, now, &e1, &wait));
    assert_int_equal(b.state, BREAKER_HALF_OPEN);
    assert_true(breaker_begin(&b, now, &e2, &wait));
    assert_false(breaker_begin(&b, now, &e3, &wait)); /* two at once */
    breaker_end(&b, e1, BREAKER_SAYS_NOTHING, 0, now);
    assert_true(breaker_begin(&b, now, &e3, &wait)); /* its place was given back */
    breaker_end(&b, e2, BREAKER_OK, MS, now);
    assert_int_equal(b.state, BREAKER_HALF_OPEN);
    breaker_end(&b, e3, BREAKER_OK, MS, now);
    assert_int_equal(b.state, BREAKER_CLOSED);
    assert_int_equal(breaker_counts(&b, now).answers, 0); /* it begins anew */
}

static void test_a_failed_probe_doubles_the_wait(void **state)
{
    (void)state;
    struct breaker b;
    uint64_t now = 5 * S, wait;
    uint32_t epoch;
    static const uint64_t seconds[] = {2, 4, 8, 16, 32, 32, 32};
    breaker_init(&b, &options);
    break_it(&b, now);
    for (int i = 0; i < 7; i++) {
        assert_false(breaker_begin(&b, now + seconds[i] * S - 1, &epoch, &wait));
        now += seconds[i] * S;
        ask(&b, i % 2 ? BREAKER_ERROR : BREAKER_OK, 101 * MS, now); /* a slow one is a failure, too */
        assert_int_equal(b.state, BREAKER_OPEN);
    }
    now += 32 * S;
    ask(&b, BREAKER_OK, MS, now);
    ask(&b, BREAKER_OK, MS, now);
    assert_int_equal(b.state, BREAKER_CLOSED);
    break_it(&b, now);
    assert_int_equal(b.until_ns - now, 2 * S); /* forgiven */
}

static void test_what_began_before_does_not_count(void **state)
{
    (void)state;
    struct breaker b;
    uint32_t early, probe, other;
    uint64_t wait, now = 5 * S;
    breaker_init(&b, &options);
    assert_true(breaker_begin(&b, now, &early, &wait));
    break_it(&b, now);
    now += 2 * S;
    assert_true(breaker_begin(&b, now, &probe, &wait));
    breaker_end(&b, early, BREAKER_ERROR, MS, now);
    assert_int_equal(b.state, BREAKER_HALF_OPEN);
    assert_true(breaker_begin(&b, now, &other, &wait));
    breaker_end(&b, probe, BREAKER_ERROR, MS, now);
    assert_int_equal(b.state, BREAKER_OPEN);
    breaker_end(&b, other, BREAKER_OK, MS, now);
    assert_int_equal(b.state, BREAKER_OPEN);
    assert_int_equal(b.until_ns - now, 4 * S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_rate),
        cmocka_unit_test(test_half_is_too_much_and_less_is_not),
        cmocka_unit_test(test_callers_mistakes_do_not_count),
        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_the_window_slides),
        cmocka_unit_test(test_probes),
        cmocka_unit_test(test_a_failed_probe_doubles_the_wait),
        cmocka_unit_test(test_what_began_before_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
