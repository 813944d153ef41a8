/* promise.c: what a newcomer can be promised. A request that can't make its deadline is refused when it comes, not computed
 * and thrown away; for that the work ahead of it is estimated: what runs now, the rows that come before it in the order of
 * service, bucket by bucket in whole batches, divided over the instances, and then its own batch. */
#include "sched/batcher_priv.h"

#include <math.h>

#include "base/check.h"
#include "base/status.h"

double batcher__promise_ns(const struct batcher *b, const struct batch_bucket *k, uint32_t rows)
{
    double run = latency_ns(&k->latency, rows);
    return run > 0 ? run * b->tail.p99 + b->overhead_ns + 4 * b->overhead_spread_ns : 0;
}

/* Time until the first of the instances is free, and the sum over all of them. A run that is over its estimate is expected
 * to need another tenth of it. */
static void running_ns(const struct batcher *b, double *first, double *sum)
{
    double least = INFINITY;
    *sum = 0;
    for (uint32_t i = 0; i < b->n_runs; i++) {
        const struct batch_run *r = &b->runs[i];
        double left = (double)r->started_ns + r->expected_ns - (double)b->now_ns;
        left = MAX_OF(left, 0.1 * r->expected_ns);
        *sum += left;
        least = MIN_OF(least, left);
    }
    *first = b->n_runs < b->instances ? 0 : least;
}

/* Run time of `rows` in `nodes` items of `k`, in batches as large as they get. */
static double work_ns(const struct batcher *b, const struct batch_bucket *k, uint64_t rows, uint32_t nodes)
{
    if (!rows)
        return 0;
    if (batcher__single(b, k)) {
        uint32_t each = (uint32_t)MAX_OF(rows / nodes, (uint64_t)1);
        return nodes * latency_ns(&k->latency, each);
    }
    uint32_t cap = b->policy.max_rows, rest = (uint32_t)(rows % cap);
    return (double)(rows / cap) * latency_ns(&k->latency, cap) + (rest ? latency_ns(&k->latency, rest) : 0);
}

/* Work of other buckets, and whole batches of the item's own, that come before it; *with: rows of its own bucket that will
 * share its batch. */
static double ahead_ns(const struct batcher *b, const struct batch_bucket *own, const struct batch_item *item, uint32_t *with)
{
    double sum = 0;
    *with = 0;
    for (const struct list *at = b->active.next; at != &b->active; at = at->next) {
        const struct batch_bucket *k = LIST_ENTRY((struct list *)at, struct batch_bucket, where);
        uint32_t nodes;
        uint64_t rows = rank_rows_before(&k->queue, &item->order, &nodes);
        if (k == own && !batcher__single(b, k)) {
            uint32_t cap = b->policy.max_rows, rest = (uint32_t)(rows % cap);
            if (rest + item->rows <= cap) { /* they run together */
                rows -= rest;
                *with = rest;
            }
        }
        sum += work_ns(b, k, rows, nodes);
    }
    return sum;
}

int batcher__promise(const struct batcher *b, const struct batch_bucket *k, const struct batch_item *item, struct error *err)
{
    if (item->deadline_ns == SCHED_NEVER || !latency_known(&k->latency))
        return 0;
    double left = (double)item->deadline_ns - (double)b->now_ns;
    double first, running;
    uint32_t with = 0;
    running_ns(b, &first, &running);
    double queued = item->alone ? 0 : ahead_ns(b, k, item, &with);
    double start = queued > 0 ? MAX_OF(first, (running + queued) / b->instances) : first;
    double need = start + batcher__promise_ns(b, k, with + item->rows);
    if (need <= left)
        return 0;
    return error_set(err, STATUS_DEADLINE,
                     "the answer would take about %.1f ms (%.1f ms of it behind other requests), and the request's deadline is "
                     "%.1f ms away: refused now rather than computed too late; allow more time, or send less at once",
                     need / 1e6, start / 1e6, MAX_OF(left, 0.0) / 1e6);
}

uint64_t batcher_backlog_ns(const struct batcher *b, uint32_t instances)
{
    double sum, first;
    running_ns(b, &first, &sum);
    for (const struct list *at = b->active.next; at != &b->active; at = at->next) {
        const struct batch_bucket *k = LIST_ENTRY((struct list *)at, struct batch_bucket, where);
        struct rank_span all = rank_all(&k->queue);
        sum += work_ns(b, k, all.rows, all.nodes); /* items to run alone count 0: few and short-lived */
    }
    return (uint64_t)MAX_OF(first, sum / MAX_OF(instances, 1u));
}
