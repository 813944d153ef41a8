/* test_sim_batching.c: when does the deadline policy wait for company, and is it right to? Simulated traffic without deadlines;
 * the yardstick is the best of a grid of Triton's fixed policies (preferred size x delay), found by brute force on the same
 * traffic, and "greedy": run whatever is there as soon as an instance is free. */
#include "sched/sim.h"

static struct sim_config model(double base_us, double row_us)
{
    return (struct sim_config){
        .policy = {.mode = BATCH_DEADLINE, .max_rows = 32, .max_queue_rows = 4096},
        .instances = 1,
        .base_us = {base_us},
        .row_us = {row_us},
        .noise = 0.03,
        .warm = true,
        .send_us = 10,
        .think_us = 50,
        .think_spread_us = 50,
        .seconds = 5,
        .warmup_s = 1,
        .seed = 3,
    };
}

static struct sim_result greedy(struct sim_config c)
{
    c.policy = (struct batch_policy){.mode = BATCH_FIXED, .max_rows = c.policy.max_rows, .max_queue_rows = 4096};
    return sim_go(c);
}

/* The most rows per second that any fixed policy of the grid serves. */
static double best_fixed_rate(struct sim_config c)
{
    static const uint32_t size[] = {1, 4, 8, 16, 32};
    static const uint32_t delay_us[] = {100, 400, 1600, 5000};
    c.seconds = c.warmup_s + 0.5 * (c.seconds - c.warmup_s);
    double best = greedy(c).rows_per_s;
    for (size_t i = 0; i < COUNT_OF(size); i++)
        for (size_t k = 0; k < COUNT_OF(delay_us); k++) {
            c.policy = (struct batch_policy){.mode = BATCH_FIXED,
                                             .max_rows = 32,
                                             .max_queue_rows = 4096,
                                             .preferred_rows = {size[i]},
                                             .n_preferred = 1,
                                             .max_queue_delay_ns = delay_us[k] * US};
            double rate = sim_go(c).rows_per_s;
            best = MAX_OF(best, rate);
        }
    return best;
}

/* One client in a closed loop never waits for anybody: not a nanosecond. */
static void test_single_client_never_waits(void **state)
{
    (void)state;
    for (uint32_t instances = 1; instances <= 4; instances += 3) {
        struct sim_config c = model(4000, 100);
        c.clients = 1;
        c.instances = instances;
        struct sim_result r = sim_go(c);
        assert_true(r.served > 900);
        assert_true(r.held_ms == 0);
        assert_true(r.mean_rows == 1);
    }
}

/* A Poisson stream: company is never worth waiting for, at any load; the wait is exactly zero at light load and the mean
 * latency is greedy's (which is optimal here) at every load up to the saturation of single runs and far beyond it. */
static void test_poisson_does_not_wait(void **state)
{
    (void)state;
    static const double load[] = {0.05, 0.1, 0.3, 0.6, 0.9, 1.5, 4};
    for (size_t i = 0; i < COUNT_OF(load); i++) {
        struct sim_config c = model(4000, 100);
        c.rate_per_s = load[i] / 4.1e-3;
        c.seconds = 20;
        struct sim_result r = sim_go(c), g = greedy(c);
        if (load[i] <= 0.3)
            assert_true(r.held_ms == 0);
        assert_true(r.mean_ms <= 1.01 * g.mean_ms);
    }
}

/* N clients in a closed loop, a model that gains from batches. Greedy ends in two halves that wait for each other; the policy
 * must find the batch of N by itself: at least 0.95 of the best fixed policy and far above greedy. */
static void test_closed_loop_finds_the_big_batch(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 32; n *= 2) {
        struct sim_config c = model(4000, 100);
        c.clients = n;
        double rate = sim_go(c).rows_per_s, simple = greedy(c).rows_per_s;
        assert_true(rate >= 1.35 * simple);
        /* A run of N takes 4 + 0.1 N ms, and its answers come back within about 0.2 + 0.01 N ms. */
        assert_true(rate >= 0.95 * 1000 * n / (4 + 0.1 * n + 0.2 + 0.01 * n));
    }
}

static void test_closed_loop_against_best_fixed(void **state)
{
    (void)state;
    static const struct {
        double base_us, row_us, think_spread_us;
        uint32_t clients, instances;
    } cases[] = {
        {4000, 100, 50, 8, 1},   {4000, 100, 50, 64, 1},  {800, 200, 200, 4, 1}, {800, 200, 200, 16, 1},
        {100, 1000, 200, 16, 1}, {1000, 1000, 50, 16, 1}, {200, 10, 50, 16, 1},  {4000, 100, 6000, 32, 1},
        {4000, 100, 50, 32, 2},  {4000, 100, 50, 64, 4},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct sim_config c = model(cases[i].base_us, cases[i].row_us);
        c.clients = cases[i].clients;
        c.instances = cases[i].instances;
        c.think_spread_us = cases[i].think_spread_us;
        c.seconds = 3;
        double rate = sim_go(c).rows_per_s, best = best_fixed_rate(c);
        if (rate < 0.93 * best)
            print_error("case %zu: %.0f rows/s, best fixed %.0f\n", i, rate, best);
        assert_true(rate >= 0.93 * best);
    }
}

/* From the cold (nothing learned, no warm-up runs) it gets there as well, and it lets go when the load changes. */
static void test_learns_from_the_cold(void **state)
{
    (void)state;
    struct sim_config c = model(4000, 100);
    c.warm = false;
    c.clients = 16;
    assert_true(sim_go(c).rows_per_s >= 0.95 * 1000 * 16 / (4 + 1.6 + 0.36));
}

/* Noisy run times with outliers: a fifth of a second of every ten is five times as long. */
static void test_noise_does_not_confuse(void **state)
{
    (void)state;
    struct sim_config c = model(4000, 100);
    c.noise = 0.3;
    c.outlier_share = 0.02;
    c.outlier_times = 5;
    c.clients = 16;
    c.seconds = 10;
    assert_true(sim_go(c).rows_per_s >= 1.5 * greedy(c).rows_per_s);
}

/* Threads wake up late (80 us on average) and take 30 us from answering to asking: as an operating system does. */
static void test_late_threads(void **state)
{
    (void)state;
    struct sim_config c = model(4000, 100);
    c.clients = 16;
    c.wake_late_us = 80;
    c.turnaround_us = 30;
    assert_true(sim_go(c).rows_per_s >= 0.95 * 1000 * 16 / (4 + 1.6 + 0.36));
    c.clients = 0;
    c.rate_per_s = 60;
    assert_true(sim_go(c).held_ms <= 0.001);
}

/* Bursts of 8 on an idle server, 20 a second: the first is held for its followers; mean latency falls by a quarter at least. */
static void test_bursts_are_gathered(void **state)
{
    (void)state;
    struct sim_config c = model(4000, 100);
    c.rate_per_s = 20;
    c.burst = 8;
    c.burst_gap_us = 20;
    c.seconds = 30;
    struct sim_result r = sim_go(c), g = greedy(c);
    assert_true(r.mean_ms <= 0.75 * g.mean_ms);
    assert_true(r.held_ms < 0.5);
}

/* Idle instances are used when that is sooner: without gain from batches, 4 instances share the work of 8 clients. */
static void test_idle_instances_are_used(void **state)
{
    (void)state;
    struct sim_config c = model(100, 1000);
    c.clients = 8;
    c.instances = 4;
    struct sim_result r = sim_go(c);
    assert_true(r.rows_per_s >= 0.9 * 4 * 1000 / 1.1);
    c = model(4000, 100); /* light load: a newcomer takes the next idle instance, nothing is merged */
    c.instances = 4;
    c.rate_per_s = 100;
    r = sim_go(c);
    assert_true(r.held_ms == 0);
    assert_true(r.mean_ms < 4.3);
}

/* Two instances on the same cores: each nearly twice as slow when both run. One batch at a time is better, and it finds out; with cores
 * of their own (slow 0) or half so it keeps both busy. */
static void test_instances_that_share_cores(void **state)
{
    (void)state;
    struct sim_config c = model(4000, 100);
    c.clients = 32;
    c.instances = 2;
    c.slow_per_busy = 0.9;
    assert_true(sim_go(c).rows_per_s >= 0.95 * 1000 * 32 / (4 + 3.2 + 0.52)); /* as one instance with all 32 */
    c.slow_per_busy = 0.3;
    assert_true(sim_go(c).rows_per_s >= 0.95 * 2 * 1000 * 16 / (1.3 * (4 + 1.6) + 0.36));
    c.clients = 0;
    c.rate_per_s = 200; /* two in turn end sooner than two at once */
    c.slow_per_busy = 0.9;
    assert_true(sim_go(c).mean_ms <= 0.9 * greedy(c).mean_ms);
}

/* Four shapes at once: they never mix (the simulation checks it), and none starves. */
static void test_shapes_share_fairly(void **state)
{
    (void)state;
    struct sim_config c = model(4000, 100);
    c.shapes = 4;
    for (int i = 0; i < 4; i++) {
        c.base_us[i] = 2000;
        c.row_us[i] = 100 * (i + 1);
    }
    c.clients = 64;
    struct sim_result r = sim_go(c);
    assert_true(r.rows_per_s >= 0.97 * greedy(c).rows_per_s);
    assert_true(r.max_ms < 4 * r.mean_ms);
}

/* Models for which large batches don't pay: a row of 1 ms gets dearer with each doubling of the batch, as when its tensors leave the
 * caches. 64 clients; the rows per second of the best size by hand: without a fixed part one by one; with one of 1 ms and a tenth a
 * doubling, 8 / (1 + 8 x 1.3) a ms, the maximum over all powers of two. Nothing is known at the start. */
static void test_large_batches_that_do_not_pay(void **state)
{
    (void)state;
    static const struct {
        double base_us, dearer, best;
    } cases[] = {
        {0, 0.05, 1000}, {0, 0.2, 1000}, {1000, 0.1, 8000 / 11.4}, {1000, 0.3, 2000 / 3.6}, {8000, 0.02, 32000 / 43.2}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct sim_config c = model(cases[i].base_us, 1000);
        c.dearer = cases[i].dearer;
        c.clients = 64;
        c.warm = false;
        c.seconds = 21;
        struct sim_result r = sim_go(c);
        if (r.rows_per_s < 0.95 * cases[i].best)
            print_error("case %zu: %.0f rows/s, best %.0f, %.1f rows a batch\n", i, r.rows_per_s, cases[i].best, r.mean_rows);
        assert_true(r.rows_per_s >= 0.95 * cases[i].best);
    }
}

/* Where a batch costs exactly what its rows cost one by one, the first need not wait for the last: half the mean latency. */
static void test_equal_cost_runs_small(void **state)
{
    (void)state;
    struct sim_config c = model(0, 1000);
    c.rate_per_s = 20;
    c.burst = 16;
    c.seconds = 20;
    c.warmup_s = 3;
    assert_true(sim_go(c).mean_ms <= 0.75 * greedy(c).mean_ms);
}

/* max_queue_delay stays an upper bound on the wait. */
static void test_delay_bound_holds(void **state)
{
    (void)state;
    struct sim_config c = model(4000, 100);
    c.clients = 16;
    c.policy.max_queue_delay_ns = 1; /* no waiting at all, then */
    struct sim_result r = sim_go(c);
    assert_true(r.held_ms < 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_single_client_never_waits),
        cmocka_unit_test(test_poisson_does_not_wait),
        cmocka_unit_test(test_closed_loop_finds_the_big_batch),
        cmocka_unit_test(test_closed_loop_against_best_fixed),
        cmocka_unit_test(test_learns_from_the_cold),
        cmocka_unit_test(test_noise_does_not_confuse),
        cmocka_unit_test(test_late_threads),
        cmocka_unit_test(test_bursts_are_gathered),
        cmocka_unit_test(test_idle_instances_are_used),
        cmocka_unit_test(test_instances_that_share_cores),
        cmocka_unit_test(test_shapes_share_fairly),
        cmocka_unit_test(test_large_batches_that_do_not_pay),
        cmocka_unit_test(test_equal_cost_runs_small),
        cmocka_unit_test(test_delay_bound_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
