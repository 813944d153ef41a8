/* test_arrival.c: what is expected of clients whose habits are known. */
#include "sched/rig.h"

#include <math.h>

#include "base/rand.h"
#include "sched/arrival.h"

#define SPAN    100e6
#define HORIZON 20e6
#define WINDOW  2e6

static double expect(const struct arrival_model *a, double now, double t)
{
    struct arrival_view v;
    arrival_look(&v, a, now, SPAN);
    return arrival_returns(&v, t);
}

static void test_nothing_known(void **state)
{
    (void)state;
    struct arrival_model a;
    arrival_init(&a);
    struct arrival_view v;
    arrival_look(&v, &a, 5e6, SPAN);
    assert_true(arrival_returns(&v, 1e9) == 0);
    assert_true(arrival_next(&v, 1e9) == 0);
    assert_false(arrival_any(&a));
}

/* Ten clients, each back 100 to 300 us after its answer; a batch every 5 ms. */
static double closed_loop(struct arrival_model *a, struct rand *r, int cycles)
{
    double now = 1e6;
    for (int c = 0; c < cycles; c++, now += 5e6) {
        arrival_ended(a, now, 10, HORIZON, WINDOW, SPAN);
        for (int i = 0; i < 10; i++) /* in order, evenly spread with some jitter */
            arrival_note(a, now + 100e3 + 20e3 * (i + rand_f64(r)), 1, SPAN, HORIZON);
    }
    return now;
}

static void test_returns(void **state)
{
    (void)state;
    struct arrival_model a;
    struct rand r;
    rand_init(&r, 1);
    arrival_init(&a);
    double now = closed_loop(&a, &r, 100);
    arrival_ended(&a, now, 10, HORIZON, WINDOW, SPAN);
    assert_true(expect(&a, now, 50e3) < 0.2);                    /* nobody is that quick */
    assert_true(expect(&a, now, 400e3) > 9);                     /* all ten come */
    assert_true(expect(&a, now, 400e3) <= 10);                   /* and no more than ten */
    assert_in_range((int)(10 * expect(&a, now, 200e3)), 30, 60); /* half of them */
    for (int i = 0; i < 9; i++)
        arrival_note(&a, now + 150e3, 1, SPAN, HORIZON);
    double one = expect(&a, now + 150e3, 200e3);
    assert_true(one > 0.7 && one <= 1); /* one is still away */
    arrival_note(&a, now + 160e3, 1, SPAN, HORIZON);
    assert_true(expect(&a, now + 160e3, 10e6) == 0); /* now all are back */
}

/* The clients stop: what was expected a moment ago is not waited for any more. */
static void test_clients_that_left(void **state)
{
    (void)state;
    struct arrival_model a;
    struct rand r;
    rand_init(&r, 1);
    arrival_init(&a);
    double now = closed_loop(&a, &r, 100);
    arrival_ended(&a, now, 10, HORIZON, WINDOW, SPAN);
    assert_true(expect(&a, now + 2e6, 2e6) < 0.5); /* 2 ms gone and none came */
    now += 100e6;
    arrival_note(&a, now, 1, SPAN, HORIZON);
    assert_true(expect(&a, now, 2e6) == 0); /* beyond the horizon they are forgotten */
}

/* A Poisson stream at 1 row a ms, batches of what came every 4 ms: the returns predict nothing that the rate doesn't. */
static void test_poisson_is_not_mistaken(void **state)
{
    (void)state;
    struct arrival_model a;
    struct rand r;
    rand_init(&r, 2);
    arrival_init(&a);
    double now = 0, next = 0;
    for (int c = 0; c < 500; c++) {
        now += 4e6;
        int came = 0;
        while (next < now) {
            arrival_note(&a, next, 1, SPAN, HORIZON);
            next += -log(1 - rand_f64(&r)) * 1e6;
            came++;
        }
        if (came)
            arrival_ended(&a, now, came, HORIZON, WINDOW, SPAN);
    }
    struct arrival_view v;
    arrival_look(&v, &a, now, SPAN);
    assert_true(v.trust < 0.2);
    assert_true(fabs(arrival_returns(&v, 2e6) - 2) < 0.8);
}

/* Bursts of four, 30 us apart, far between: after the first three are expected, after the fourth none. */
static void test_bursts(void **state)
{
    (void)state;
    struct arrival_model a;
    arrival_init(&a);
    double now = 1e6;
    for (int c = 0; c < 100; c++, now += 100e6)
        for (int i = 0; i < 4; i++)
            arrival_note(&a, now + 30e3 * i, 1, SPAN, HORIZON);
    for (int i = 0; i < 4; i++) {
        arrival_note(&a, now + 30e3 * i, 1, SPAN, HORIZON);
        struct arrival_view v;
        arrival_look(&v, &a, now + 30e3 * i, SPAN);
        double soon = arrival_next(&v, 60e3);
        assert_true(i < 3 ? soon > 0.7 && soon <= 1 : soon < 0.05);
        arrival_look(&v, &a, now + 30e3 * i + 1e6, SPAN);
        assert_true(arrival_next(&v, 60e3) < 0.05); /* a millisecond later the burst is over */
    }
}

static void test_rate(void **state)
{
    (void)state;
    struct arrival_rate r = {0};
    double now = 0;
    for (; now < 1e9; now += 1e6)
        arrival_rate_add(&r, now, 3, SPAN);
    assert_true(fabs(arrival_rate_at(&r, now, SPAN) * 1e6 - 3) < 0.1);
    assert_true(arrival_rate_at(&r, now + 5 * SPAN, SPAN) * 1e6 < 0.2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_known),
        cmocka_unit_test(test_returns),
        cmocka_unit_test(test_clients_that_left),
        cmocka_unit_test(test_poisson_is_not_mistaken),
        cmocka_unit_test(test_bursts),
        cmocka_unit_test(test_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
