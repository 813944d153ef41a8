/* test_batcher.c: what holds under every policy, and the deadline policy's promises, each with numbers worked out by hand. The
 * names C6, C7, ... are complaints of other servers' users (docs/internals/batcher.md lists them). */
#include "base/rand.h"
#include "sched/rig.h"

static struct batch_policy deadline_policy(uint32_t max_rows)
{
    return (struct batch_policy){.mode = BATCH_DEADLINE, .max_rows = max_rows};
}

/* C18: an unloaded server never waits for company. */
static void test_idle_runs_at_once(void **state)
{
    (void)state;
    struct rig *r = rig_make(deadline_policy(8));
    assert_string_equal(rig_next(r, 0), "");
    assert_int_equal(r->d.wake_ns, SCHED_NEVER);
    rig_rows(r, 1, 5 * MS);
    assert_string_equal(rig_next(r, 5 * MS), "0");
    rig_free(r);
}

static void test_order_is_priority_deadline_arrival(void **state)
{
    (void)state;
    struct batch_policy p = deadline_policy(2);
    p.priority_levels = 2;
    p.default_priority_level = 2;
    struct rig *r = rig_make(p);
    rig_admit(r, (struct batch_item){.deadline_ns = 90 * MS}, 0);
    rig_admit(r, (struct batch_item){0}, 1);
    rig_admit(r, (struct batch_item){.deadline_ns = 30 * MS}, 2);
    rig_admit(r, (struct batch_item){.deadline_ns = 30 * MS}, 3);
    rig_admit(r, (struct batch_item){.priority = 1}, 4);
    assert_string_equal(rig_next(r, 5), "4 2");
    assert_string_equal(rig_next(r, 5), "3 0");
    assert_string_equal(rig_next(r, 5), "1");
    rig_free(r);
}

/* A request without a deadline is overtaken for BATCH_PATIENCE_NS at most. */
static void test_no_deadline_does_not_starve(void **state)
{
    (void)state;
    struct rig *r = rig_make(deadline_policy(1));
    rig_admit(r, (struct batch_item){0}, 0);
    rig_admit(r, (struct batch_item){.deadline_ns = BATCH_PATIENCE_NS + 10}, 5);
    assert_string_equal(rig_next(r, 6), "0");
    rig_free(r);
}

/* C6: a queued request past its deadline is answered then, whatever is running; the wake-up time is exact. */
static void test_expires_on_time_while_running(void **state)
{
    (void)state;
    struct rig *r = rig_make(deadline_policy(1));
    rig_rows(r, 1, 0);
    assert_string_equal(rig_next(r, 0), "0"); /* runs for 90 s; nobody knows */
    rig_admit(r, (struct batch_item){.deadline_ns = 100 * MS}, 1 * MS);
    assert_int_equal(batcher_next_expiry(r->b), 100 * MS);
    assert_string_equal(rig_expire(r, 100 * MS - 1), "");
    assert_string_equal(rig_expire(r, 100 * MS), "1");
    rig_free(r);
}

/* C7: one deadline covers queue and run: what can't be answered in time isn't run. */
static void test_refuses_what_cannot_be_met(void **state)
{
    (void)state;
    struct rig *r = rig_make(deadline_policy(8));
    rig_warm(r, 0, 10 * MS, 0, 8);
    assert_int_equal(rig_admit(r, (struct batch_item){.deadline_ns = 5 * MS}, 0), STATUS_DEADLINE);
    assert_non_null(strstr(r->err.text, "5.0 ms away"));
    assert_true(rig_admit(r, (struct batch_item){.deadline_ns = 15 * MS}, 0) >= 0);
    assert_int_equal(rig_admit(r, (struct batch_item){.deadline_ns = 1 * MS}, 2 * MS), STATUS_DEADLINE);
    rig_free(r);
}

/* An estimate that is far too high (one run of 5 s at start) must not refuse everything for ever: one request now and then is
 * tried all the same, and the first that runs puts it right. What is truly too slow is tried ever more rarely. */
static void test_wrong_estimate_is_put_right(void **state)
{
    (void)state;
    struct rig *r = rig_make(deadline_policy(8));
    batcher_learn(r->b, 0, 1, 5000 * MS);
    uint64_t now = MS;
    int refused = 0, id;
    while ((id = rig_admit(r, (struct batch_item){.deadline_ns = now + 100 * MS}, now)) < 0) {
        assert_int_equal(id, STATUS_DEADLINE);
        refused++;
        now += 100 * MS;
    }
    assert_in_range(refused, 200, 300); /* about four times 5 s */
    assert_true(rig_next(r, now)[0]);
    rig_run(r, now, 3 * MS);
    now += 3 * MS;
    assert_true(rig_admit(r, (struct batch_item){.deadline_ns = now + 100 * MS}, now) >= 0);
    rig_free(r);

    r = rig_make(deadline_policy(8));
    rig_warm(r, 0, 1000 * MS, 0, 8);
    int tried = 0;
    for (now = MS; now < 1000000 * MS; now += 500 * MS)
        if (rig_admit(r, (struct batch_item){.deadline_ns = now + 100 * MS}, now) >= 0) {
            tried++;
            assert_true(rig_next(r, now)[0]);
            rig_run(r, now, 1000 * MS);
        }
    assert_in_range(tried, 3, 10); /* a thousand runs' time */
    rig_free(r);
}

/* The work ahead counts: 10 ms a batch of up to 8 rows, one instance. */
static void test_refuses_behind_a_queue(void **state)
{
    (void)state;
    struct rig *r = rig_make(deadline_policy(8));
    rig_warm(r, 0, 10 * MS, 0, 8);
    rig_rows(r, 8, 0);
    rig_next(r, 0); /* runs until 10 ms */
    for (int i = 0; i < 4; i++)
        assert_true(rig_admit(r, (struct batch_item){.rows = 8, .deadline_ns = 90 * MS}, 1 * MS) >= 0);
    /* Ahead: 9 ms of the running one and 4 batches; then its own: 59 ms and the margin. */
    assert_int_equal(rig_admit(r, (struct batch_item){.rows = 8, .deadline_ns = 100 * MS}, 1 * MS), 5);
    assert_int_equal(rig_admit(r, (struct batch_item){.rows = 8, .deadline_ns = 51 * MS}, 1 * MS), 6); /* goes first */
    batcher_remove(r->b, &r->items[6]);
    struct batch_item late = {.rows = 8, .deadline_ns = 95 * MS};
    for (int i = 0; i < 4; i++)
        rig_admit(r, late, 1 * MS);
    assert_int_equal(rig_admit(r, late, 1 * MS), STATUS_DEADLINE);
    batcher_set_instances(r->b, 3); /* three times as fast */
    assert_true(rig_admit(r, late, 1 * MS) >= 0);
    rig_free(r);
}

/* C13: bounded in rows and bytes, with the bound in the answer. */
static void test_bounds(void **state)
{
    (void)state;
    struct batch_policy p = deadline_policy(4);
    p.max_queue_rows = 10;
    p.max_queue_bytes = 1000;
    struct rig *r = rig_make(p);
    assert_int_equal(rig_admit(r, (struct batch_item){.rows = 4, .bytes = 100}, 0), 0);
    assert_int_equal(rig_admit(r, (struct batch_item){.rows = 4, .bytes = 100}, 0), 1);
    assert_int_equal(rig_admit(r, (struct batch_item){.rows = 3, .bytes = 100}, 0), STATUS_EXHAUSTED);
    assert_non_null(strstr(r->err.text, "at most 10 may wait"));
    assert_int_equal(rig_admit(r, (struct batch_item){.rows = 1, .bytes = 801}, 0), STATUS_EXHAUSTED);
    assert_non_null(strstr(r->err.text, "at most 1000 may wait"));
    assert_int_equal(rig_admit(r, (struct batch_item){.rows = 2, .bytes = 1000}, 0), STATUS_EXHAUSTED);
    /* what an empty queue would not take, either, may not be told to try again */
    assert_int_equal(rig_admit(r, (struct batch_item){.rows = 2, .bytes = 1001}, 0), STATUS_INVALID);
    assert_non_null(strstr(r->err.text, "hold 1001 bytes, and the model's queue takes at most 1000 (max_queue_bytes)"));
    assert_int_equal(rig_admit(r, (struct batch_item){.rows = 2, .bytes = UINT64_MAX}, 0), STATUS_INVALID);
    /* the members of a failed batch come back one by one: they were let in once */
    assert_int_equal(rig_admit(r, (struct batch_item){.rows = 4, .bytes = 900, .alone = true}, 0), 2);
    rig_free(r);

    p = deadline_policy(4);
    r = rig_make(p);
    for (int i = 0; i < 64 * 4; i++)
        assert_true(rig_rows(r, 1, 0) >= 0);
    assert_int_equal(rig_rows(r, 1, 0), STATUS_EXHAUSTED); /* bounded by default */
    rig_free(r);
}

/* C17: members of a failed batch run singly. */
static void test_alone(void **state)
{
    (void)state;
    struct rig *r = rig_make(deadline_policy(8));
    rig_rows(r, 1, 0);
    for (int i = 0; i < 3; i++)
        rig_admit(r, (struct batch_item){.rows = 2, .bucket = 5, .alone = true}, 1);
    rig_rows(r, 1, 2);
    assert_string_equal(rig_next(r, 3), "0 4");
    assert_string_equal(rig_next(r, 3), "1");
    assert_int_equal(r->d.bucket, 5);
    assert_int_equal(r->d.rows, 2);
    assert_string_equal(rig_next(r, 3), "2");
    assert_string_equal(rig_next(r, 3), "3");
    rig_free(r);
}

/* C19: clients that go away leave nothing behind. */
static void test_removed_leave_no_ghosts(void **state)
{
    (void)state;
    struct rig *r = rig_make(deadline_policy(8));
    rig_warm(r, 0, 10 * MS, 0, 8);
    for (int i = 0; i < 64; i++)
        rig_admit(r, (struct batch_item){.rows = 4, .deadline_ns = 800 * MS, .bytes = 10}, 0);
    for (int i = 0; i < 64; i++)
        batcher_remove(r->b, &r->items[(i * 37) % 64]);
    struct batcher_stats s;
    batcher_stats(r->b, &s);
    assert_int_equal(s.queued_items, 0);
    assert_int_equal(s.queued_rows, 0);
    assert_int_equal(s.queued_bytes, 0);
    assert_true(s.oldest_ns == SCHED_NEVER);
    assert_int_equal(batcher_backlog_ns(r->b, 1), 0);
    assert_int_equal(batcher_next_expiry(r->b), SCHED_NEVER);
    assert_true(rig_admit(r, (struct batch_item){.rows = 1, .deadline_ns = 15 * MS}, 1) >= 0); /* healthy traffic at once */
    assert_string_equal(rig_next(r, 1), "64");
    rig_free(r);
}

/* An expired item that was not handed out yet can still be removed. */
static void test_remove_of_dead(void **state)
{
    (void)state;
    struct rig *r = rig_make(deadline_policy(8));
    rig_admit(r, (struct batch_item){.deadline_ns = 5 * MS}, 0);
    rig_admit(r, (struct batch_item){.deadline_ns = 5 * MS}, 0);
    assert_string_equal(rig_next(r, 6 * MS), ""); /* the policy sees them gone */
    assert_int_equal(r->d.wake_ns, 6 * MS);       /* and wants them answered now */
    batcher_remove(r->b, &r->items[0]);
    assert_string_equal(rig_expire(r, 6 * MS), "1");
    rig_free(r);
}

static void test_none_runs_singly(void **state)
{
    (void)state;
    struct rig *r = rig_make((struct batch_policy){.mode = BATCH_NONE, .max_rows = 8});
    rig_rows(r, 2, 0);
    rig_rows(r, 3, 0);
    assert_string_equal(rig_next(r, 0), "0");
    assert_int_equal(r->d.rows, 2);
    assert_string_equal(rig_next(r, 0), "1");
    rig_free(r);
}

/* A full batch would make its most urgent member late: it runs in the company that it can bear. 10 ms, and half a ms a row. */
static void test_batch_shrinks_for_its_urgent_member(void **state)
{
    (void)state;
    struct rig *r = rig_make(deadline_policy(32));
    rig_warm(r, 0, 10 * MS, MS / 2, 32);
    rig_admit(r, (struct batch_item){.deadline_ns = 25 * MS}, 0);
    for (int i = 0; i < 31; i++)
        rig_rows(r, 1, 0);
    rig_next(r, 5 * MS); /* 20 ms left, 26 needed for all: the batch must end in time with the 10 % of margin */
    assert_true(r->d.run);
    assert_in_range(r->d.rows, 14, 19);
    rig_free(r);
}

/* What can't be met any more when its turn comes isn't run, and is handed out by batcher_expire at once. */
static void test_hopeless_is_not_run(void **state)
{
    (void)state;
    struct rig *r = rig_make(deadline_policy(8));
    rig_warm(r, 0, 10 * MS, 0, 8);
    rig_admit(r, (struct batch_item){.deadline_ns = 15 * MS}, 0);
    rig_admit(r, (struct batch_item){.deadline_ns = 40 * MS}, 0);
    assert_string_equal(rig_next(r, 8 * MS), "1");
    assert_int_equal(batcher_next_expiry(r->b), 8 * MS);
    assert_string_equal(rig_expire(r, 8 * MS), "0");
    rig_free(r);
}

/* A client can make up shapes without end: the table is bounded and reused; only shapes in use are refused. */
static void test_bucket_table_is_bounded(void **state)
{
    (void)state;
    struct batch_policy p = deadline_policy(4);
    p.max_queue_rows = 1000;
    struct rig *r = rig_make(p);
    for (uint64_t i = 0; i < 3000; i++) {
        assert_true(rig_admit(r, (struct batch_item){.bucket = i * 7919}, i) >= 0);
        assert_true(rig_next(r, i)[0]);
        rig_run(r, i, 100);
    }
    uint32_t before = r->n;
    for (uint64_t i = 0; i < BATCH_BUCKETS_MAX; i++)
        assert_true(rig_admit(r, (struct batch_item){.bucket = i}, 5000) >= 0);
    assert_int_equal(rig_admit(r, (struct batch_item){.bucket = 999999}, 5000), STATUS_EXHAUSTED);
    assert_non_null(strstr(r->err.text, "too many different input shapes"));
    assert_true(rig_admit(r, (struct batch_item){.bucket = 7}, 5000) >= 0);
    assert_int_equal(r->n, before + BATCH_BUCKETS_MAX + 1);
    rig_free(r);
}

/* Two instances on the same cores, found out to be worth one; then one hangs. The other doesn't wait for it for ever. */
static void test_hung_run_frees_its_lane(void **state)
{
    (void)state;
    struct rig *r = rig_make(deadline_policy(8));
    rig_warm(r, 0, 10 * MS, 0, 8);
    batcher_set_instances(r->b, 2);
    uint64_t now = MS;
    for (int i = 0; i < 40; i++, now += 100 * MS) { /* always two at once, each twice as slow */
        rig_rows(r, 8, now);
        struct batch_decision a = batcher_next(r->b, now, 2, &r->batch);
        rig_ids(r, &r->batch);
        rig_rows(r, 8, now);
        struct batch_decision b = batcher_next(r->b, now, 1, &r->batch);
        rig_ids(r, &r->batch);
        batcher_finish(r->b, a.run_id, now + (b.run ? 20 : 10) * MS, (b.run ? 20 : 10) * MS);
        if (b.run)
            batcher_finish(r->b, b.run_id, now + 20 * MS, 20 * MS);
        else if (rig_next(r, now + 10 * MS)[0])
            rig_run(r, now + 10 * MS, 10 * MS);
        r->d = b;
    }
    assert_false(r->d.run); /* it has learned not to */
    rig_rows(r, 8, now);
    assert_true(rig_next(r, now)[0]); /* hangs */
    rig_rows(r, 8, now + MS);
    assert_string_equal(rig_next(r, now + MS), "");
    assert_in_range(r->d.wake_ns, now + 15 * MS, now + 25 * MS);
    assert_true(rig_next(r, r->d.wake_ns)[0]);
    rig_free(r);
}

static void test_runs_that_never_finish(void **state)
{
    (void)state;
    struct rig *r = rig_make(deadline_policy(4));
    for (uint64_t i = 0; i < 1000; i++) {
        rig_rows(r, 1, i);
        assert_true(rig_next(r, i)[0]); /* never finished */
    }
    assert_int_equal(batcher_backlog_ns(r->b, 1), 0);
    batcher_finish(r->b, 12345678, 2000, 5); /* unknown: ignored */
    rig_free(r);
}

static void test_stats(void **state)
{
    (void)state;
    struct rig *r = rig_make((struct batch_policy){.mode = BATCH_FIXED, .max_rows = 8, .max_queue_delay_ns = 900 * MS});
    for (uint64_t i = 0; i < 200; i++) {
        rig_admit(r, (struct batch_item){.rows = 2, .bytes = 5}, i * MS);
        if (i < 197)
            batcher_remove(r->b, &r->items[i]);
    }
    struct batcher_stats s;
    batcher_stats(r->b, &s);
    assert_int_equal(s.queued_items, 3);
    assert_int_equal(s.queued_rows, 6);
    assert_int_equal(s.queued_bytes, 15);
    assert_int_equal(s.oldest_ns, 197 * MS);
    assert_true(s.arrival_rows_per_s > 1700 && s.arrival_rows_per_s < 2300); /* two rows a millisecond */
    rig_free(r);
}

/* Classes come before everything else that a request says of itself. */
static void test_the_most_important_class_goes_first(void **state)
{
    (void)state;
    struct batch_policy p = deadline_policy(2);
    p.priority_levels = 2;
    p.default_priority_level = 2;
    struct rig *r = rig_make(p);
    rig_admit(r, (struct batch_item){.class = 3, .priority = 1, .deadline_ns = 10 * MS}, 0);
    rig_admit(r, (struct batch_item){.class = 0}, 1);
    rig_admit(r, (struct batch_item){.class = 2}, 2);
    rig_admit(r, (struct batch_item){.class = 2, .priority = 1}, 3);
    assert_string_equal(rig_next(r, 4), "1 3");
    assert_string_equal(rig_next(r, 4), "2 0");
    rig_free(r);
}

/* 4 ms a batch and 1 ms a row: one important row takes 5 ms, and may take 7.5 for those that ride along: three rows. */
static void test_riders_do_not_make_the_important_wait(void **state)
{
    (void)state;
    struct rig *r = rig_make(deadline_policy(16));
    rig_warm(r, 0, 4 * MS, 1 * MS, 16);
    for (int i = 0; i < 20; i++)
        rig_admit(r, (struct batch_item){.class = 3}, 0);
    rig_admit(r, (struct batch_item){.class = 1}, 0);
    assert_string_equal(rig_next(r, 1), "20 0 1");
    rig_run(r, 1, 7 * MS);
    for (int i = 0; i < 20; i++)
        rig_admit(r, (struct batch_item){.class = 1}, 8 * MS);
    rig_next(r, 8 * MS);
    assert_true(r->d.rows >= 8); /* their own kind is no company that is asked how long it takes */
    rig_free(r);
}

/* What is promised to the less important counts the more important ones that are queued, and not the other way round. 10 ms a batch of one. */
static void test_promises_know_of_classes(void **state)
{
    (void)state;
    struct rig *r = rig_make(deadline_policy(1));
    rig_warm(r, 0, 10 * MS, 0, 1);
    for (int i = 0; i < 5; i++)
        rig_admit(r, (struct batch_item){.class = i < 3 ? 1 : 3}, 0);
    assert_int_equal(rig_admit(r, (struct batch_item){.class = 2, .deadline_ns = 35 * MS}, 0),
                     STATUS_DEADLINE); /* three before it */
    assert_true(rig_admit(r, (struct batch_item){.class = 0, .deadline_ns = 35 * MS}, 0) >= 0);
    rig_free(r);
}

/* Batches of 4, turns of one row. Tenant 1 has eight queued when tenant 2 comes: turns are 0..7 and 0. Then 0, 1 and 2 have been served, so what
 * tenant 2 sends next begins at 2, before the 3 of tenant 1. */
static void test_a_tenant_waits_for_his_own_backlog_only(void **state)
{
    (void)state;
    struct rig *r = rig_make(deadline_policy(4));
    for (int i = 0; i < 8; i++)
        rig_admit(r, (struct batch_item){.tenant = 1}, 0);
    rig_admit(r, (struct batch_item){.tenant = 2}, 1);
    assert_string_equal(rig_next(r, 1), "0 8 1 2");
    rig_admit(r, (struct batch_item){.tenant = 2}, 2);
    assert_string_equal(rig_next(r, 2), "9 3 4 5");
    assert_string_equal(rig_next(r, 2), "6 7");
    /* nothing is saved up by being idle: tenant 2 had two rows, tenant 1 eight */
    for (int i = 0; i < 4; i++)
        rig_admit(r, (struct batch_item){.tenant = i % 2 ? 1 : 2, .rows = 2}, 3);
    assert_string_equal(rig_next(r, 3), "10 11");
    rig_free(r);
}

static void test_backlogged_tenants_share_equally(void **state)
{
    (void)state;
    struct rig *r = rig_make(deadline_policy(8));
    uint32_t rows[4] = {0};
    for (int i = 0; i < 180; i++) /* three times as much of 1 as of 3, in its own order of arrival, and rows of 1 and 2 */
        rig_admit(r, (struct batch_item){.tenant = i < 90 ? 1 : i < 150 ? 2 : 3, .rows = 1 + i % 2}, 0);
    for (int batch = 0; batch < 12; batch++) {
        struct list l;
        list_init(&l);
        struct batch_decision d = batcher_next(r->b, 1, 1, &l);
        assert_true(d.run && d.rows >= 7);
        for (struct list *n; (n = list_pop_front(&l));) {
            const struct batch_item *item = LIST_ENTRY(n, struct batch_item, link);
            rows[item->tenant] += item->rows;
        }
    }
    /* some ninety rows: thirty each, but for a turn and a request */
    for (int t = 1; t <= 3; t++)
        assert_in_range(rows[t], 26, 35);
    rig_free(r);
}

/* Within a turn, and where there is one tenant, deadlines decide. */
static void test_deadlines_within_a_turn(void **state)
{
    (void)state;
    struct rig *r = rig_make(deadline_policy(16)); /* turns of four rows */
    for (int i = 0; i < 5; i++)
        rig_admit(r, (struct batch_item){.tenant = 1, .deadline_ns = (uint64_t)(900 - i * 100) * MS}, 0);
    rig_admit(r, (struct batch_item){.tenant = 2, .deadline_ns = 650 * MS}, 0);
    assert_string_equal(rig_next(r, 1), "3 5 2 1 0 4"); /* the fifth is of the second turn, urgent as it is */
    rig_free(r);
    r = rig_make(deadline_policy(1));
    for (int i = 0; i < 40; i++)
        rig_admit(r, (struct batch_item){.tenant = 7}, 0);
    rig_admit(r, (struct batch_item){.tenant = 7, .deadline_ns = 900 * MS}, 1);
    assert_string_equal(rig_next(r, 1), "40");
    rig_free(r);
}

/* Removed and expired ones leave their tenant's line, too; the structure holds in any order of events. */
static void test_turns_random(void **state)
{
    (void)state;
    struct rig *r = rig_make(deadline_policy(8));
    struct rand x;
    rand_init(&x, 5);
    uint64_t now = 1;
    for (int step = 0; step < 4000; step++, now += MS) {
        uint64_t deadline = rand_below(&x, 3) ? SCHED_NEVER : now + rand_below(&x, 20) * MS + 1;
        rig_admit(r,
                  (struct batch_item){.tenant = rand_below(&x, 600),
                                      .class = (uint32_t)rand_below(&x, 4),
                                      .rows = 1 + (uint32_t)rand_below(&x, 3),
                                      .bucket = rand_below(&x, 3),
                                      .deadline_ns = deadline},
                  now);
        uint32_t at = (uint32_t)rand_below(&x, r->n);
        if (r->items[at].home && rand_below(&x, 4) == 0)
            batcher_remove(r->b, &r->items[at]);
        if (rand_below(&x, 3) == 0) {
            rig_expire(r, now);
            rig_next(r, now);
            if (r->d.run)
                rig_run(r, now, MS);
        }
    }
    while (rig_expire(r, now), *rig_next(r, now))
        rig_run(r, now, MS);
    struct batcher_stats s;
    batcher_stats(r->b, &s);
    assert_int_equal(s.queued_items, 0);
    rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idle_runs_at_once),
        cmocka_unit_test(test_order_is_priority_deadline_arrival),
        cmocka_unit_test(test_the_most_important_class_goes_first),
        cmocka_unit_test(test_riders_do_not_make_the_important_wait),
        cmocka_unit_test(test_promises_know_of_classes),
        cmocka_unit_test(test_a_tenant_waits_for_his_own_backlog_only),
        cmocka_unit_test(test_backlogged_tenants_share_equally),
        cmocka_unit_test(test_deadlines_within_a_turn),
        cmocka_unit_test(test_turns_random),
        cmocka_unit_test(test_no_deadline_does_not_starve),
        cmocka_unit_test(test_expires_on_time_while_running),
        cmocka_unit_test(test_refuses_what_cannot_be_met),
        cmocka_unit_test(test_wrong_estimate_is_put_right),
        cmocka_unit_test(test_refuses_behind_a_queue),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_removed_leave_no_ghosts),
        cmocka_unit_test(test_remove_of_dead),
        cmocka_unit_test(test_none_runs_singly),
        cmocka_unit_test(test_batch_shrinks_for_its_urgent_member),
        cmocka_unit_test(test_hopeless_is_not_run),
        cmocka_unit_test(test_bucket_table_is_bounded),
        cmocka_unit_test(test_hung_run_frees_its_lane),
        cmocka_unit_test(test_runs_that_never_finish),
        cmocka_unit_test(test_stats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
