/* test_pressure.c: what a squeezed class sheds, under a clock of our own. Expected figures are computed by hand from pressure.h. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "edge/pressure.h"

#define MS 1000000ull
#define S  (1000 * MS)

static void assert_share(struct pressure *p, enum limit_class class, uint64_t now, double want)
{
    double got = pressure_share(p, class, now);
    if (fabs(got - want) > 1e-6)
        fail_msg("class %d at %llu ms: %f is let in, not %f", (int)class, (unsigned long long)(now / MS), got, want);
}

/* The least important first, and never the class that is squeezed. */
static void test_from_the_bottom(void **state)
{
    struct pressure p = {0};
    uint64_t now = 10 * S;
    const double low[] = {0.75, 0.5, 0.25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
                 normal[] = {1, 1, 1, 1, 0.75, 0.5, 0.25, 0, 0, 0, 0, 0, 0};
    const double high[] = {1, 1, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0, 0};
    (void)state;
    for (int c = LIMIT_CORE; c < LIMIT_CLASSES; c++)
        assert_share(&p, (enum limit_class)c, now, 1);
    for (int i = 0; i < 13; i++, now += 100 * MS) {
        pressure_tell(&p, LIMIT_CORE, true, now);
        assert_share(&p, LIMIT_CORE, now, 1);
        assert_share(&p, LIMIT_HIGH, now, high[i]);
        assert_share(&p, LIMIT_NORMAL, now, normal[i]);
        assert_share(&p, LIMIT_LOW, now, low[i]);
    }
    p = (struct pressure){0};
    for (int i = 0; i < 20; i++)
        pressure_tell(&p, LIMIT_NORMAL, true, now += 100 * MS);
    assert_share(&p, LIMIT_LOW, now, 0);
    assert_share(&p, LIMIT_NORMAL, now, 1);
    pressure_tell(&p, LIMIT_HIGH, false, now); /* calm adds nothing */
    assert_share(&p, LIMIT_NORMAL, now, 1);
    pressure_tell(&p, LIMIT_LOW, true, now); /* nor does the class that has none below it */
    assert_share(&p, LIMIT_NORMAL, now, 1);
}

/* Calm gives a class back in five seconds, in ten when it came back too early, and forgets that once all is back. */
static void test_back(void **state)
{
    struct pressure p = {0};
    uint64_t now = 10 * S;
    (void)state;
    for (int i = 0; i < 4; i++)
        pressure_tell(&p, LIMIT_CORE, true, now);
    assert_share(&p, LIMIT_LOW, now + 300 * MS, 0);
    assert_share(&p, LIMIT_LOW, now + 1300 * MS, 0.2);
    now += 2800 * MS;
    assert_share(&p, LIMIT_LOW, now, 0.5);
    pressure_tell(&p, LIMIT_CORE, true, now);
    assert_share(&p, LIMIT_LOW, now, 0.25);
    assert_share(&p, LIMIT_LOW, now + 2300 * MS, 0.45); /* a tenth a second now */
    now += 2300 * MS;
    for (int k = 0; k < 6; k++) { /* at most eight times as slow */
        for (int i = 0; i < 4; i++)
            pressure_tell(&p, LIMIT_NORMAL, true, now);
        assert_share(&p, LIMIT_LOW, now, 0);
        now += 2300 * MS;
        pressure_share(&p, LIMIT_LOW, now);
    }
    double before = pressure_share(&p, LIMIT_LOW, now);
    assert_share(&p, LIMIT_LOW, now + 4 * S, before + 0.1);
    now += 200 * S;
    assert_share(&p, LIMIT_LOW, now, 1);
    pressure_tell(&p, LIMIT_CORE, true, now);
    assert_share(&p, LIMIT_LOW, now + 300 * MS, 0.75);
    assert_share(&p, LIMIT_LOW, now + 1300 * MS, 0.95);
}

/* The share is of what comes, evenly. */
static void test_admits_a_share(void **state)
{
    struct pressure p = {0};
    uint64_t now = S;
    unsigned in = 0, gap = 0, widest = 0;
    (void)state;
    for (int i = 0; i < 3; i++)
        pressure_tell(&p, LIMIT_HIGH, true, now);
    for (int i = 0; i < 1000; i++) {
        bool yes = pressure_admit(&p, LIMIT_LOW, now);
        in += yes;
        gap = yes ? 0 : gap + 1;
        widest = gap > widest ? gap : widest;
        assert_true(pressure_admit(&p, LIMIT_CORE, now) && pressure_admit(&p, LIMIT_HIGH, now) &&
                    pressure_admit(&p, LIMIT_NORMAL, now));
    }
    assert_int_equal(in, 250);
    assert_int_equal(widest, 3);
}

struct answer {
    uint64_t latency, run, alone;
    uint32_t in_flight;
};

/* Five answers over a window; busy 4, tolerance 2. */
static bool squeezed(struct answer a)
{
    struct pressure_window w = {0};
    uint64_t now = 7 * S;
    bool out = false, ended = false;
    for (int i = 0; i < 5; i++, now += 30 * MS) {
        assert_false(ended);
        ended = pressure_window_add(&w, a.latency, a.run, a.alone, a.in_flight, 4, 2, now, &out);
    }
    assert_true(ended);
    return out;
}

static void test_what_squeezes(void **state)
{
    (void)state;
    assert_false(squeezed((struct answer){10 * MS, 10 * MS, 10 * MS, 1}));
    assert_false(squeezed((struct answer){15 * MS, 15 * MS, 10 * MS, 1}));
    assert_true(squeezed((struct answer){16 * MS, 16 * MS, 10 * MS, 1}));    /* the run: over 1.5 times, and 0.2 ms */
    assert_true(squeezed((struct answer){400 * MS, 16 * MS, 10 * MS, 100})); /* whatever waits at the model */
    assert_false(squeezed((struct answer){400 * MS, 10 * MS, 10 * MS, 5}));  /* its own queue */
    assert_true(squeezed((struct answer){21 * MS, 10 * MS, 10 * MS, 4}));    /* it waited, and not for its own */
    assert_false(squeezed((struct answer){20 * MS, 10 * MS, 10 * MS, 4}));   /* one run before it is fair */
    assert_true(squeezed((struct answer){21 * MS, 0, 10 * MS, 4}));          /* a language model's first token */
    assert_false(squeezed((struct answer){21 * MS, 0, 10 * MS, 5}));
    assert_false(squeezed((struct answer){MS / 10, MS / 10, MS / 50, 1})); /* five times nearly nothing is noise */
}

/* A window has answers enough, and time enough. */
static void test_windows(void **state)
{
    struct pressure_window w = {0};
    uint64_t now = S;
    bool out;
    (void)state;
    for (int i = 0; i < 50; i++)
        assert_false(pressure_window_add(&w, MS, MS, MS, 1, 4, 2, now + (uint64_t)i * MS, &out));
    assert_true(pressure_window_add(&w, MS, MS, MS, 1, 4, 2, now + 100 * MS, &out));
    assert_false(out);
    for (uint64_t i = 0; i < 4; i++) /* seldom: until there are five */
        assert_false(pressure_window_add(&w, 9 * MS, 9 * MS, MS, 1, 4, 2, now + (2 + i) * S, &out));
    assert_true(pressure_window_add(&w, 9 * MS, 9 * MS, MS, 1, 4, 2, now + 6 * S, &out));
    assert_true(out); /* with nothing of the window before */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_from_the_bottom), cmocka_unit_test(test_back),    cmocka_unit_test(test_admits_a_share),
        cmocka_unit_test(test_what_squeezes),   cmocka_unit_test(test_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
