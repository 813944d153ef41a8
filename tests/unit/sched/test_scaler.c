/* test_scaler.c: instances follow pressure, with hysteresis. Expected values by hand from the rules in scaler.h. */
#include "sched/rig.h"

#include "sched/scaler.h"

static void test_grows_after_pressure_has_lasted(void **state)
{
    (void)state;
    struct scaler s;
    scaler_init(&s, 1, 4, 0);
    assert_int_equal(scaler_decide(&s, 10 * MS, 1, 1, 0, 60 * MS), 1);
    assert_int_equal(scaler_decide(&s, 209 * MS, 1, 1, 0, 60 * MS), 1);
    assert_int_equal(scaler_decide(&s, 210 * MS, 1, 1, 0, 60 * MS), 2);
    /* the clock of pressure starts again */
    assert_int_equal(scaler_decide(&s, 220 * MS, 2, 2, 0, 60 * MS), 2);
    assert_int_equal(scaler_decide(&s, 420 * MS, 2, 2, 0, 60 * MS), 3);
}

static void test_pressure_interrupted(void **state)
{
    (void)state;
    struct scaler s;
    scaler_init(&s, 1, 4, 0);
    scaler_decide(&s, 10 * MS, 1, 1, 0, 60 * MS);
    scaler_decide(&s, 150 * MS, 1, 1, 0, 40 * MS); /* backlog below the threshold */
    assert_int_equal(scaler_decide(&s, 220 * MS, 1, 1, 0, 60 * MS), 1);
    scaler_decide(&s, 230 * MS, 1, 0, 0, 60 * MS); /* an instance idle: more of them won't help */
    assert_int_equal(scaler_decide(&s, 425 * MS, 1, 1, 0, 60 * MS), 1);
    assert_int_equal(scaler_decide(&s, 625 * MS, 1, 1, 0, 60 * MS), 2);
}

static void test_limits(void **state)
{
    (void)state;
    struct scaler s;
    scaler_init(&s, 2, 3, 0);
    assert_int_equal(scaler_decide(&s, 1, 0, 0, 0, 0), 1);
    assert_int_equal(scaler_decide(&s, 2, 1, 0, 0, 0), 2);
    scaler_decide(&s, 10 * MS, 3, 3, 0, 500 * MS);
    assert_int_equal(scaler_decide(&s, 1000 * MS, 3, 3, 0, 500 * MS), 3);
    assert_int_equal(scaler_decide(&s, 1001 * MS, 5, 0, 0, 0), 4);
    assert_int_equal(scaler_decide(&s, 60000 * MS, 2, 0, 0, 0), 2);
}

/* 3 instances with the work of one: 1 / 2 = 50 % < 60 %: shrink. With the work of 1.3: 65 %: keep. */
static void test_shrinks_when_one_fewer_would_do(void **state)
{
    (void)state;
    struct scaler s;
    scaler_init(&s, 1, 4, 0);
    assert_int_equal(scaler_decide(&s, 9999 * MS, 3, 1, 9999 * MS, 0), 3);
    assert_int_equal(scaler_decide(&s, 10000 * MS, 3, 1, 10000 * MS, 0), 2);
    scaler_init(&s, 1, 4, 0);
    assert_int_equal(scaler_decide(&s, 10000 * MS, 3, 1, 13000 * MS, 0), 3);
    /* a new window began: 10 s more with the work of one */
    assert_int_equal(scaler_decide(&s, 19999 * MS, 3, 1, 23000 * MS, 0), 3);
    assert_int_equal(scaler_decide(&s, 20000 * MS, 3, 1, 23000 * MS, 0), 2);
}

/* Steady load between the two thresholds never changes anything: 1.5 instances of work. */
static void test_does_not_flap(void **state)
{
    (void)state;
    struct scaler s;
    scaler_init(&s, 1, 4, 0);
    uint32_t n = 1, changes = 0;
    uint64_t busy = 0;
    for (uint64_t t = 0; t < 300000 * MS; t += 50 * MS) {
        double load = 1.5, used = load < n ? load : n;
        busy += (uint64_t)(used * 50 * MS);
        uint32_t want = scaler_decide(&s, t, n, used >= n ? n : 1, busy, load > n ? 100 * MS : 5 * MS);
        changes += want != n;
        n = want;
    }
    assert_int_equal(n, 2);
    assert_int_equal(changes, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grows_after_pressure_has_lasted),
        cmocka_unit_test(test_pressure_interrupted),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_shrinks_when_one_fewer_would_do),
        cmocka_unit_test(test_does_not_flap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
