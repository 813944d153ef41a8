/* test_fixed.c: Triton's dynamic batcher. The cases are those that Triton's own QA checks (L0_batcher, L0_model_queue), retold
 * for a fake clock; what is expected follows from Triton's documentation of the parameters. */
#include "sched/rig.h"

/* max_batch_size 8, preferred 2 and 6, delay 500 ms: the model that most L0_batcher cases use. */
static struct batch_policy policy(uint64_t delay_ns)
{
    return (struct batch_policy){
        .mode = BATCH_FIXED, .max_rows = 8, .preferred_rows = {2, 6}, .n_preferred = 2, .max_queue_delay_ns = delay_ns};
}

static void test_no_preferred_waits_for_delay(void **state)
{
    (void)state;
    struct rig *r = rig_make(policy(500 * MS));
    rig_rows(r, 1, 10 * MS);
    assert_string_equal(rig_next(r, 10 * MS), "");
    assert_int_equal(r->d.wake_ns, 510 * MS);
    assert_string_equal(rig_next(r, 510 * MS - 1), "");
    assert_string_equal(rig_next(r, 510 * MS), "0");
    assert_int_equal(r->d.rows, 1);
    rig_free(r);
}

static void test_preferred_runs_at_once(void **state)
{
    (void)state;
    struct rig *r = rig_make(policy(500 * MS));
    rig_rows(r, 1, 0);
    assert_string_equal(rig_next(r, 0), "");
    rig_rows(r, 1, 3 * MS);
    assert_string_equal(rig_next(r, 3 * MS), "0 1");
    rig_free(r);
}

/* One request that is larger than every preferred size runs at once. */
static void test_larger_than_preferred(void **state)
{
    (void)state;
    struct rig *r = rig_make(policy(500 * MS));
    rig_rows(r, 7, 0);
    assert_string_equal(rig_next(r, 0), "0");
    rig_free(r);
}

/* 4 and 3 rows: together more than the largest preferred size: the first runs now, the second when its delay is over. */
static void test_sum_larger_than_preferred(void **state)
{
    (void)state;
    struct rig *r = rig_make(policy(500 * MS));
    rig_rows(r, 4, 0);
    rig_rows(r, 3, 1 * MS);
    assert_string_equal(rig_next(r, 1 * MS), "0");
    assert_string_equal(rig_next(r, 1 * MS), "");
    assert_int_equal(r->d.wake_ns, 501 * MS);
    assert_string_equal(rig_next(r, 501 * MS), "1");
    rig_free(r);
}

/* ... but once the delay is over the whole of max_batch_size is used. */
static void test_delay_over_uses_max_batch(void **state)
{
    (void)state;
    struct rig *r = rig_make(policy(500 * MS));
    rig_rows(r, 4, 0);
    rig_rows(r, 3, 1 * MS);
    rig_rows(r, 2, 2 * MS);
    assert_string_equal(rig_next(r, 500 * MS), "0 1");
    assert_int_equal(r->d.rows, 7);
    rig_free(r);
}

/* 1, 1, 1: the best preferred size is 2; the third waits. */
static void test_best_preferred(void **state)
{
    (void)state;
    struct rig *r = rig_make(policy(500 * MS));
    for (int i = 0; i < 3; i++)
        rig_rows(r, 1, 0);
    assert_string_equal(rig_next(r, 0), "0 1");
    assert_string_equal(rig_next(r, 0), "");
    rig_free(r);
}

/* 1, 1, 1, 1, 1, 1: the biggest preferred size wins over the first one met. */
static void test_biggest_preferred(void **state)
{
    (void)state;
    struct rig *r = rig_make(policy(500 * MS));
    for (int i = 0; i < 7; i++)
        rig_rows(r, 1, 0);
    assert_string_equal(rig_next(r, 0), "0 1 2 3 4 5");
    rig_free(r);
}

/* Without a delay nothing waits: preferred sizes only choose how the queue is cut. */
static void test_no_delay(void **state)
{
    (void)state;
    struct rig *r = rig_make(policy(0));
    rig_rows(r, 1, 0);
    assert_string_equal(rig_next(r, 0), "0");
    for (int i = 0; i < 3; i++)
        rig_rows(r, 1, 0);
    assert_string_equal(rig_next(r, 0), "1 2");
    assert_string_equal(rig_next(r, 0), "3");
    rig_free(r);
}

/* A delay that no clock can reach is a long one, not one that is over. */
static void test_endless_delay(void **state)
{
    (void)state;
    struct rig *r = rig_make(policy(SCHED_NEVER));
    rig_rows(r, 1, 10 * MS);
    assert_string_equal(rig_next(r, 20 * MS), "");
    assert_true(r->d.wake_ns > 1000000 * MS);
    rig_free(r);
}

/* No preferred sizes given: max_batch_size is the preferred one. */
static void test_default_preferred(void **state)
{
    (void)state;
    struct rig *r = rig_make((struct batch_policy){.mode = BATCH_FIXED, .max_rows = 4, .max_queue_delay_ns = 5 * MS});
    for (int i = 0; i < 3; i++)
        rig_rows(r, 1, 0);
    assert_string_equal(rig_next(r, 0), "");
    rig_rows(r, 1, 1 * MS);
    assert_string_equal(rig_next(r, 1 * MS), "0 1 2 3");
    rig_free(r);
}

/* Complaint C16: rows are counted, not requests, and the batch never exceeds the maximum. */
static void test_counts_rows(void **state)
{
    (void)state;
    struct rig *r = rig_make((struct batch_policy){.mode = BATCH_FIXED, .max_rows = 8});
    uint32_t rows[] = {3, 3, 3, 5, 8, 1};
    for (size_t i = 0; i < 6; i++)
        rig_rows(r, rows[i], 0);
    assert_string_equal(rig_next(r, 0), "0 1");
    assert_string_equal(rig_next(r, 0), "2 3");
    assert_string_equal(rig_next(r, 0), "4");
    assert_string_equal(rig_next(r, 0), "5");
    assert_int_equal(rig_rows(r, 9, 0), STATUS_INVALID);
    assert_string_equal(r->err.text, "the request has 9 rows, the model takes 1 to 8 in a batch");
    rig_free(r);
}

static void test_shapes_never_mix(void **state)
{
    (void)state;
    struct rig *r = rig_make(policy(500 * MS));
    rig_admit(r, (struct batch_item){.rows = 1, .bucket = 11}, 0);
    rig_admit(r, (struct batch_item){.rows = 1, .bucket = 22}, 1);
    rig_admit(r, (struct batch_item){.rows = 1, .bucket = 22}, 2);
    assert_string_equal(rig_next(r, 3), "1 2"); /* the pair is preferred; bucket 11 still waits for company */
    assert_int_equal(r->d.bucket, 22);
    assert_string_equal(rig_next(r, 3), "");
    assert_int_equal(r->d.wake_ns, 500 * MS);
    rig_free(r);
}

/* preserve_ordering: another shape in the queue sends the batch before it, and is never overtaken. */
static void test_ordering_kept_across_shapes(void **state)
{
    (void)state;
    struct batch_policy p = policy(500 * MS);
    p.preserve_ordering = true;
    struct rig *r = rig_make(p);
    uint64_t shape[] = {11, 22, 22, 11, 11};
    for (size_t i = 0; i < 5; i++)
        rig_admit(r, (struct batch_item){.rows = 1, .bucket = shape[i]}, i);
    assert_string_equal(rig_next(r, 5), "0");
    assert_string_equal(rig_next(r, 5), "1 2");
    assert_string_equal(rig_next(r, 5), "3 4");
    rig_free(r);
}

static void test_ordering_ignores_deadlines(void **state)
{
    (void)state;
    for (int mode = BATCH_NONE; mode <= BATCH_DEADLINE; mode++) {
        struct rig *r =
            rig_make((struct batch_policy){.mode = (enum batch_mode)mode, .max_rows = 8, .preserve_ordering = true});
        rig_admit(r, (struct batch_item){.rows = 8, .deadline_ns = 900 * MS}, 0);
        rig_admit(r, (struct batch_item){.rows = 8, .deadline_ns = 100 * MS}, 0);
        assert_string_equal(rig_next(r, 0), "0");
        assert_string_equal(rig_next(r, 0), "1");
        rig_free(r);
    }
}

/* ---- L0_model_queue ---- */

static void test_max_queue_size(void **state)
{
    (void)state;
    struct batch_policy p = policy(500 * MS);
    p.queue[0].max_queue_items = 3;
    struct rig *r = rig_make(p);
    for (int i = 0; i < 3; i++)
        assert_int_equal(rig_rows(r, 1, 0), i);
    assert_int_equal(rig_rows(r, 1, 0), STATUS_EXHAUSTED);
    assert_non_null(strstr(r->err.text, "max_queue_size is 3"));
    rig_next(r, 0);
    assert_int_equal(rig_rows(r, 1, 0), 3); /* two left: room again */
    rig_free(r);
}

/* REJECT: answered at its timeout, also while nothing runs. */
static void test_timeout_reject(void **state)
{
    (void)state;
    struct batch_policy p = policy(500 * MS);
    p.queue[0].default_timeout_ns = 100 * MS;
    struct rig *r = rig_make(p);
    rig_rows(r, 1, 0);
    assert_string_equal(rig_next(r, 0), "");
    assert_int_equal(r->d.wake_ns, 100 * MS + 1); /* past its timeout is "more than", as in Triton */
    assert_int_equal(batcher_next_expiry(r->b), 100 * MS + 1);
    assert_string_equal(rig_expire(r, 100 * MS), "");
    assert_string_equal(rig_expire(r, 100 * MS + 1), "0");
    assert_int_equal(batcher_next_expiry(r->b), SCHED_NEVER);
    rig_free(r);
}

/* DELAY: served after the others of its level that have not timed out, also those that came later, but before lower levels. */
static void test_timeout_delay(void **state)
{
    (void)state;
    struct batch_policy p = {.mode = BATCH_FIXED, .max_rows = 1, .priority_levels = 2, .default_priority_level = 1};
    p.queue[1] = (struct batch_queue_policy){.delay_on_timeout = true, .default_timeout_ns = 10 * MS};
    struct rig *r = rig_make(p);
    rig_admit(r, (struct batch_item){.priority = 1}, 0);
    rig_admit(r, (struct batch_item){.priority = 2}, 1);
    rig_admit(r, (struct batch_item){.priority = 1}, 8 * MS);
    assert_string_equal(rig_expire(r, 11 * MS), "");
    rig_admit(r, (struct batch_item){.priority = 1}, 12 * MS);
    assert_string_equal(rig_next(r, 12 * MS), "2");
    assert_string_equal(rig_next(r, 12 * MS), "3");
    assert_string_equal(rig_next(r, 12 * MS), "0");
    assert_string_equal(rig_next(r, 12 * MS), "1");
    rig_free(r);
}

/* A request may shorten the level's timeout where that is allowed, and never lengthen it. */
static void test_timeout_override(void **state)
{
    (void)state;
    struct batch_policy p = policy(500 * MS);
    p.queue[0] = (struct batch_queue_policy){.default_timeout_ns = 100 * MS, .allow_timeout_override = true};
    struct rig *r = rig_make(p);
    rig_admit(r, (struct batch_item){.rows = 1, .timeout_ns = 10 * MS}, 0);
    assert_int_equal(batcher_next_expiry(r->b), 10 * MS + 1);
    assert_string_equal(rig_expire(r, 20 * MS), "0");
    rig_admit(r, (struct batch_item){.rows = 1, .timeout_ns = 400 * MS}, 20 * MS);
    assert_int_equal(batcher_next_expiry(r->b), 120 * MS + 1);
    rig_free(r);

    p.queue[0].allow_timeout_override = false;
    r = rig_make(p);
    rig_admit(r, (struct batch_item){.rows = 1, .timeout_ns = 10 * MS}, 0);
    assert_int_equal(batcher_next_expiry(r->b), 100 * MS + 1);
    rig_free(r);
}

static void test_priority_levels(void **state)
{
    (void)state;
    struct batch_policy p = {.mode = BATCH_FIXED, .max_rows = 2, .priority_levels = 3, .default_priority_level = 2};
    struct rig *r = rig_make(p);
    uint32_t level[] = {3, 0, 1, 2, 1};
    for (size_t i = 0; i < 5; i++)
        rig_admit(r, (struct batch_item){.rows = 1, .priority = level[i]}, i);
    assert_string_equal(rig_next(r, 5), "2 4");
    assert_string_equal(rig_next(r, 5), "1 3");
    assert_string_equal(rig_next(r, 5), "0");
    assert_int_equal(rig_admit(r, (struct batch_item){.priority = 4}, 5), STATUS_INVALID);
    assert_non_null(strstr(r->err.text, "levels 1 to 3"));
    rig_free(r);
}

/* Each level has its own policy: the queue size of one doesn't bind another, nor its timeout. */
static void test_policy_per_level(void **state)
{
    (void)state;
    struct batch_policy p = {.mode = BATCH_FIXED,
                             .max_rows = 8,
                             .max_queue_delay_ns = 900 * MS,
                             .priority_levels = 16,
                             .default_priority_level = 16};
    p.queue[1].max_queue_items = 1;
    p.queue[2].default_timeout_ns = 5 * MS;
    struct rig *r = rig_make(p);
    assert_int_equal(rig_admit(r, (struct batch_item){.priority = 1}, 0), 0);
    assert_int_equal(rig_admit(r, (struct batch_item){.priority = 1}, 0), STATUS_EXHAUSTED);
    assert_int_equal(rig_admit(r, (struct batch_item){.priority = 2}, 0), 1);
    assert_int_equal(rig_admit(r, (struct batch_item){.priority = 0}, 0), 2);
    assert_int_equal(r->items[2].level, 16);
    assert_string_equal(rig_expire(r, 50 * MS), "1");
    assert_string_equal(rig_next(r, 900 * MS), "0 2");
    rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_preferred_waits_for_delay),
        cmocka_unit_test(test_preferred_runs_at_once),
        cmocka_unit_test(test_larger_than_preferred),
        cmocka_unit_test(test_sum_larger_than_preferred),
        cmocka_unit_test(test_delay_over_uses_max_batch),
        cmocka_unit_test(test_best_preferred),
        cmocka_unit_test(test_biggest_preferred),
        cmocka_unit_test(test_no_delay),
        cmocka_unit_test(test_endless_delay),
        cmocka_unit_test(test_default_preferred),
        cmocka_unit_test(test_counts_rows),
        cmocka_unit_test(test_shapes_never_mix),
        cmocka_unit_test(test_ordering_kept_across_shapes),
        cmocka_unit_test(test_ordering_ignores_deadlines),
        cmocka_unit_test(test_max_queue_size),
        cmocka_unit_test(test_timeout_reject),
        cmocka_unit_test(test_timeout_delay),
        cmocka_unit_test(test_timeout_override),
        cmocka_unit_test(test_priority_levels),
        cmocka_unit_test(test_policy_per_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
