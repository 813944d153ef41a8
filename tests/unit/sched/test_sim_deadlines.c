/* test_sim_deadlines.c: promises under load. The model takes 4 ms + 0.5 ms a row, at most 32 rows a batch: at its best 1600
 * rows/s an instance. What is expected follows from that arithmetic, not from the batcher. */
#include "sched/sim.h"

#define PEAK (32 / (4e-3 + 32 * 0.5e-3))

static struct sim_config model(void)
{
    return (struct sim_config){
        .policy = {.mode = BATCH_DEADLINE, .max_rows = 32},
        .instances = 1,
        .base_us = {4000},
        .row_us = {500},
        .noise = 0.05,
        .warm = true,
        .seconds = 20,
        .warmup_s = 2,
        .seed = 5,
    };
}

static void report(const char *what, double deadline_ms, const struct sim_result *r)
{
    print_message("%-22s deadline %5.0f ms: goodput %5.0f/s, p99 %6.1f ms, late %" PRIu64 ", given up %" PRIu64
                  ", refused %" PRIu64 "\n",
                  what, deadline_ms, r->goodput, r->p99_ms, r->late, r->expired, r->refused);
}

/* Three times what fits: goodput at least 0.9 of the peak, the accepted answered within their deadline. */
static void test_overload(void **state)
{
    (void)state;
    static const double deadline[] = {40, 50, 70, 100, 300, 1000};
    for (size_t i = 0; i < COUNT_OF(deadline); i++) {
        struct sim_config c = model();
        c.deadline_ms = deadline[i];
        c.rate_per_s = 3 * PEAK;
        struct sim_result r = sim_go(c);
        report("3 x capacity", deadline[i], &r);
        assert_true(r.goodput >= 0.95 * PEAK);
        assert_true(r.p99_ms <= deadline[i]);
        assert_true(r.late <= 0.005 * (double)r.served);
        assert_true(r.expired <= 0.03 * (double)r.served); /* refused at once, not accepted and given up */
        assert_true(r.full == 0);
    }
}

static void test_overload_variants(void **state)
{
    (void)state;
    struct sim_config c = model();
    c.rate_per_s = 3 * PEAK;
    c.deadline_ms = 100;
    c.warm = false; /* nothing known at the start */
    struct sim_result r = sim_go(c);
    report("cold", 100, &r);
    assert_true(r.goodput >= 0.95 * PEAK && r.p99_ms <= 100);

    c = model();
    c.instances = 2;
    c.rate_per_s = 6 * PEAK;
    c.deadline_ms = 60;
    r = sim_go(c);
    report("two instances", 60, &r);
    assert_true(r.goodput >= 2 * 0.95 * PEAK && r.p99_ms <= 60);

    c = model();
    c.wake_late_us = 80;
    c.turnaround_us = 30;
    c.rate_per_s = 3 * PEAK;
    c.deadline_ms = 50;
    r = sim_go(c);
    report("late threads", 50, &r);
    assert_true(r.goodput >= 0.95 * PEAK && r.p99_ms <= 50 && r.late <= 0.005 * (double)r.served);

    c = model();
    c.clients = 256; /* a closed loop that retries at once when refused, a deadline that holds 128 of them */
    c.think_us = 500;
    c.think_spread_us = 1000;
    c.deadline_ms = 80;
    r = sim_go(c);
    report("closed loop of 256", 80, &r);
    assert_true(r.goodput >= 0.95 * PEAK && r.p99_ms <= 80 && r.late <= 0.005 * (double)r.served);

    c = model();
    c.rows_max = 8;
    c.rate_per_s = 3 * PEAK / 4.5;
    c.deadline_ms = 100;
    r = sim_go(c);
    report("1 to 8 rows", 100, &r);
    assert_true(r.goodput >= 0.9 * PEAK && r.p99_ms <= 100);

    c = model();
    c.noise = 0.2;
    c.outlier_share = 0.004; /* as many answers are bound to be late, the deadline being short for a fourfold run */
    c.outlier_times = 4;
    c.rate_per_s = 3 * PEAK;
    c.deadline_ms = 150;
    r = sim_go(c);
    report("noise and outliers", 150, &r); /* the mean run is 5 % longer: exp(0.2^2 / 2) and 0.4 % of 4 times */
    assert_true(r.goodput >= 0.85 * PEAK && r.p99_ms <= 150);

    c = model();
    c.shapes = 4;
    double work = 0;
    for (int i = 0; i < 4; i++) {
        c.base_us[i] = 4000;
        c.row_us[i] = 200 * (i + 1);
        work += (4e-3 + 32 * 200e-6 * (i + 1)) / 4 / 32;
    }
    c.rate_per_s = 3 * PEAK;
    c.deadline_ms = 150;
    r = sim_go(c);
    report("four shapes", 150, &r);
    assert_true(r.goodput >= 0.9 / work && r.p99_ms <= 150);
}

/* Batches don't pay: 1 ms a row alone, a fifth more for each doubling, so that a full batch of 32 takes 64 ms. One by one 1000 rows/s are
 * served; what fits into that within the deadline isn't refused for the time that a full batch would take, and overload costs nothing. */
static void test_batches_that_do_not_pay(void **state)
{
    (void)state;
    static const double load[] = {0.6, 0.8, 3};
    for (size_t i = 0; i < COUNT_OF(load); i++) {
        struct sim_config c = model();
        c.base_us[0] = 0;
        c.row_us[0] = 1000;
        c.dearer = 0.2;
        c.deadline_ms = 50;
        c.rate_per_s = load[i] * 1000;
        struct sim_result r = sim_go(c);
        report("batches don't pay", 50, &r);
        assert_true(r.goodput >= 0.95 * MIN_OF(load[i], 1.0) * 1000);
        assert_true(r.p99_ms <= 50 && r.late <= 0.005 * (double)r.served);
    }
}

/* Deadlines too short for a full batch after a full batch: the best that any fixed batch size reaches, found by brute force. */
static void test_tight_deadlines(void **state)
{
    (void)state;
    for (double deadline = 20; deadline <= 35; deadline += 5) {
        struct sim_config c = model();
        c.deadline_ms = deadline;
        c.rate_per_s = 3 * PEAK;
        c.seconds = 10;
        struct sim_result r = sim_go(c);
        report("tight", deadline, &r);
        double best = 0;
        for (uint32_t rows = 2; rows <= 32; rows += 2) {
            /* r rows a batch, each of which waits for the one before: 2 L(r) must fit */
            double run = 4 + 0.5 * rows;
            if (2 * run <= deadline)
                best = MAX_OF(best, 1000 * rows / run);
        }
        assert_true(r.goodput >= 0.9 * best);
        assert_true(r.p99_ms <= deadline);
    }
}

/* At light load nobody is late who could have been in time: with 0.3 of the capacity of single runs and a deadline of three
 * single runs, a request waits for one batch of at most three rows (5.5 ms) and runs in another: 13.5 ms hold it. */
static void test_no_avoidable_lateness(void **state)
{
    (void)state;
    struct sim_config c = model();
    c.rate_per_s = 0.3 / 4.5e-3;
    c.deadline_ms = 13.5;
    c.seconds = 60;
    struct sim_result r = sim_go(c);
    assert_int_equal(r.late, 0);
    assert_true(r.expired + r.refused <= 0.01 * (double)r.born);
    assert_true(r.held_ms == 0);
}

/* Strict priorities: the first level is served as if it were alone, and the second gets what is left, in time. */
static void test_priorities(void **state)
{
    (void)state;
    static const double share[] = {0.05, 0.2};
    for (size_t i = 0; i < COUNT_OF(share); i++) {
        struct sim_config c = model();
        c.policy.priority_levels = 2;
        c.policy.default_priority_level = 2;
        c.deadline_ms = c.other_deadline_ms = 100;
        c.other_priority = 1;
        c.other_share = share[i];
        c.rate_per_s = 3 * PEAK;
        struct sim_result r = sim_go(c);
        assert_true(r.other_on_time + 32 >= r.other_born); /* a batch may be on its way at the end */
        assert_true(r.goodput >= 0.95 * PEAK);
        assert_true(r.expired <= 0.05 * (double)r.served);
    }
}

/* Requests without a deadline among urgent ones at 90 % of the capacity: all are served, and soon. */
static void test_no_deadline_is_not_starved(void **state)
{
    (void)state;
    struct sim_config c = model();
    c.deadline_ms = 0;
    c.other_share = 0.5;
    c.other_deadline_ms = 40;
    c.rate_per_s = 0.9 * PEAK;
    struct sim_result r = sim_go(c);
    assert_true(r.served - r.other_served >= 0.999 * (double)(r.born - r.other_born) - 64);
    assert_true(r.other_on_time >= 0.99 * (double)r.other_born);
    assert_true(r.max_ms < 200);
    /* Urgent ones alone would fill it twice over: the others are still served within BATCH_PATIENCE_NS and a little. */
    c.rate_per_s = 4 * PEAK;
    c.seconds = 30;
    c.warmup_s = 12;
    r = sim_go(c);
    assert_true(r.served > r.other_served);
    assert_true(r.max_ms < 5000 + 2000);
}

/* C19 in three phases: healthy, a burst whose clients all give up, healthy again: nothing of the burst is left to run. */
static void test_storm_of_timeouts_leaves_nothing(void **state)
{
    (void)state;
    struct sim_config c = model();
    c.deadline_ms = 60;
    c.rate_per_s = 1;
    c.burst = 2000; /* all at once, a hundred times what 60 ms hold */
    c.burst_gap_us = 1;
    c.seconds = 20;
    struct sim_result r = sim_go(c);
    assert_int_equal(r.late, 0);
    assert_true(r.goodput > 50);
    assert_true(r.busy < 0.15); /* 60 ms of each second, no ghosts */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overload),
        cmocka_unit_test(test_overload_variants),
        cmocka_unit_test(test_batches_that_do_not_pay),
        cmocka_unit_test(test_tight_deadlines),
        cmocka_unit_test(test_no_avoidable_lateness),
        cmocka_unit_test(test_priorities),
        cmocka_unit_test(test_no_deadline_is_not_starved),
        cmocka_unit_test(test_storm_of_timeouts_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
