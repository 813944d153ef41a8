/* policy_deadline.c: the learned policy, and NONE as its case of batches of one item. Derivation: docs/internals/batcher.md. */
#include "sched/batcher_priv.h"

#include "base/check.h"

/* What keeping an urgent member's promise may cost when it makes others late: the batch that it can bear must still serve
 * this share of the rows per second of the full one. Below it the member is given up. */
#define OVERDUE_TIMES 2.0
#define KEEP_SHARE    0.95
/* How many times longer a batch may take for the less important that fill it up. */
#define RIDERS_TIMES 1.5

/* Would a batch of `rows` of the `all` that could run leave the rest late? */
static bool harms(const struct batcher *b, const struct batch_bucket *k, uint32_t rows, uint32_t all)
{
    const struct rank_node *next = rank_after(&k->queue, rows);
    if (!next || next->deadline_ns == SCHED_NEVER)
        return false;
    double then = (double)b->now_ns + latency_ns(&k->latency, rows) + batcher__promise_ns(b, k, all - rows);
    return then > (double)next->deadline_ns;
}

/* The rows to run of `k`, at most `allowed`: fewer where the most urgent member would be late in the company of all; members
 * that can't be saved at a bearable price are given up (killed). 0: nothing is left. Each round settles it or kills one. */
static uint64_t fit_deadlines(struct batcher *b, struct batch_bucket *k, uint64_t allowed)
{
    for (;;) {
        struct rank_span s = rank_prefix(&k->queue, allowed);
        uint32_t all = (uint32_t)s.rows;
        double slack = (double)s.min_deadline_ns - (double)b->now_ns;
        if (!all || s.min_deadline_ns == SCHED_NEVER || batcher__promise_ns(b, k, all) <= slack)
            return all;
        struct batch_item *urgent = batcher__item(rank_prefix_urgent(&k->queue, allowed));
        uint64_t upto = rank_rows_before(&k->queue, &urgent->order, NULL) + urgent->rows;
        uint32_t fits = latency_rows_within(&k->latency, slack / b->tail.margin, all);
        if (upto == urgent->rows && latency_ns(&k->latency, urgent->rows) <= slack)
            fits = MAX_OF(fits, urgent->rows); /* without the margin, it might */
        bool cheap = fits && fits * latency_ns(&k->latency, all) >= KEEP_SHARE * all * latency_ns(&k->latency, fits);
        if (fits >= upto && (cheap || !(batcher__overloaded(b, k) || harms(b, k, fits, all))))
            return fits;
        batcher__kill(b, urgent);
        batcher__broke(b, k);
    }
}

/* Rows that go along with the head's class: the less important fill its batch up, as far as that doesn't make it take much longer. So whoever
 * is important waits for one batch at most, the one that runs when he comes, and then for his own. */
static uint64_t fit_classes(const struct batcher *b, const struct batch_bucket *k, uint64_t rows)
{
    if (!b->classes || !rows || !latency_known(&k->latency) || b->policy.preserve_ordering)
        return rows;
    const struct batch_item after = {.class = batcher__head(k)->class + 1}; /* comes before all of the next class */
    uint64_t own = rank_rows_before(&k->queue, &after.order, NULL);
    if (own >= rows)
        return rows;
    double most = RIDERS_TIMES * latency_ns(&k->latency, (uint32_t)own);
    return MAX_OF(own, (uint64_t)latency_rows_within(&k->latency, most, (uint32_t)rows));
}

/* How long company may be waited for at most: no member may become late by it, nor wait beyond max_queue_delay, and beyond
 * the fixed part of a run there is nothing to gain. */
static double wait_limit(const struct batcher *b, struct batch_bucket *k, uint64_t rows)
{
    struct rank_span s = rank_prefix(&k->queue, rows);
    double limit = k->latency.base_ns, now = (double)b->now_ns;
    if (s.min_deadline_ns != SCHED_NEVER) {
        double company = (double)rows + 1 + arrival_away(&k->arrival); /* each arrival asks again, with itself counted in */
        uint32_t most = (uint32_t)MIN_OF(company, (double)b->policy.max_rows);
        limit = MIN_OF(limit, (double)s.min_deadline_ns - batcher__promise_ns(b, k, most) - now);
    }
    if (b->policy.max_queue_delay_ns)
        limit = MIN_OF(limit, (double)(s.min_arrived_ns + b->policy.max_queue_delay_ns) - now);
    if (k->wait_until_ns)
        limit = MIN_OF(limit, (double)k->wait_until_ns - now);
    return limit;
}

/* How many of `rows` the one free instance takes: all, unless a part is the better start and keeps the promises made to the rest. */
static uint64_t first_part(const struct batcher *b, struct batch_bucket *k, uint64_t rows)
{
    uint32_t part = batcher__portion(b, k, (uint32_t)rows);
    return part < rows && harms(b, k, part, (uint32_t)rows) ? rows : part;
}

/* Run `rows` of `k` now, all at once, in part, or split over the free instances, or wait for more. */
static struct batch_decision run_or_wait(struct batcher *b, struct batch_bucket *k, uint64_t rows, uint32_t free_instances,
                                         struct list *batch)
{
    uint64_t part = free_instances > 1 ? rows : first_part(b, k, rows);
    double limit = wait_limit(b, k, rows), wait = 0;
    if (limit >= 1 && part == rows && rows == rank_all(&k->queue).rows)
        wait = batcher__wait_ns(b, k, (uint32_t)rows, b->rows - (uint32_t)rows, free_instances, limit);
    if (wait >= 1) {
        uint64_t until = b->now_ns + (uint64_t)wait;
        if (!k->wait_until_ns)
            k->wait_until_ns = b->now_ns + (uint64_t)limit;
        return (struct batch_decision){.wake_ns = until};
    }
    if (free_instances > 1) {
        uint32_t n = batcher__split(b, k, (uint32_t)rows, free_instances);
        part = (rows + n - 1) / n;
    }
    return batcher__close(b, k, part, batch);
}

/* Runs that take up a lane: not those long overdue, which may hang. *until_ns: when the first of them will be. */
static uint32_t lanes_used(const struct batcher *b, uint64_t *until_ns)
{
    uint32_t n = 0;
    *until_ns = SCHED_NEVER;
    for (uint32_t i = 0; i < b->n_runs; i++) {
        uint64_t overdue = b->runs[i].started_ns + (uint64_t)(OVERDUE_TIMES * b->runs[i].expected_ns);
        if (overdue <= b->now_ns)
            continue;
        n++;
        *until_ns = MIN_OF(*until_ns, overdue);
    }
    return n;
}

/* Instances that share cores don't all run at once, except where that alone saves a member's deadline. The end of a run brings the
 * next look; *look_ns is the latest time for one without that. */
static bool lanes_full(const struct batcher *b, struct batch_bucket *k, uint64_t rows, uint64_t *look_ns)
{
    uint64_t look;
    if (lanes_used(b, &look) < batcher__lanes(b))
        return false;
    struct rank_span s = rank_prefix(&k->queue, rows);
    double run = batcher__promise_ns(b, k, (uint32_t)rows), slack = (double)s.min_deadline_ns - (double)b->now_ns;
    double beside = run * batcher__slowed(b, b->n_runs);
    if (s.min_deadline_ns != SCHED_NEVER && batcher__first_end_ns(b) + run > slack) {
        if (beside > slack)
            return false;
        look = MIN_OF(look, s.min_deadline_ns - (uint64_t)beside);
    }
    *look_ns = look;
    return look > b->now_ns;
}

struct batch_decision batcher__next_deadline(struct batcher *b, uint32_t free_instances, struct list *batch)
{
    struct batch_decision d = {.wake_ns = SCHED_NEVER};
    uint32_t lanes = batcher__lanes(b);
    if (b->n_runs < lanes)
        free_instances = MIN_OF(free_instances, lanes - b->n_runs);
    for (struct batch_bucket *k; (k = batcher__bucket_urgent(b, NULL));) {
        if (batcher__single(b, k))
            return batcher__close(b, k, b->policy.max_rows, batch);
        bool cut;
        uint64_t rows = fit_deadlines(b, k, batcher__rows_allowed(b, k, &cut));
        rows = fit_classes(b, k, rows);
        if (rows && lanes_full(b, k, rows, &d.wake_ns))
            return d;
        if (rows)
            return run_or_wait(b, k, rows, free_instances, batch);
    }
    return d;
}
