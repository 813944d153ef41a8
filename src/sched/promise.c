/* promise.c: what a newcomer can be promised. A request that can't make its deadline is refused when it comes, not computed
 * and thrown away; for that the work ahead of it is estimated: what runs now, the rows that come before it in the order of
 * service, bucket by bucket in batches as large as it is worth, divided over the instances, and then its own batch. */
#include "sched/batcher_priv.h"

#include <math.h>

#include "base/check.h"
#include "base/status.h"

double batcher__promise_ns(const struct batcher *b, const struct batch_bucket *k, uint32_t rows)
{
    return latency_ns(&k->latency, rows) * b->tail.margin * batcher__slowed(b, batcher__lanes(b) - 1);
}

#define OVERLOAD_RUNS   10 /* full batches after a refusal that count as overload */
#define PROBE_FLOOR_NS  1e8
#define PROBE_GAP_FIRST 4u
#define PROBE_GAP_MAX   256u
#define SAFETY_STEP     0.05 /* of a full batch's time, for each promise broken */
#define SAFETY_KEEP     0.98 /* of the safety, after each batch */

void batcher__broke(struct batcher *b, const struct batch_bucket *k)
{
    double run = latency_ns(&k->latency, k->cap);
    b->safety_ns = MIN_OF(b->safety_ns + SAFETY_STEP * run, run);
}

void batcher__kept(struct batcher *b)
{
    b->safety_ns *= SAFETY_KEEP;
}

bool batcher__overloaded(const struct batcher *b, const struct batch_bucket *k)
{
    return b->refused_ns && (double)(b->now_ns - b->refused_ns) < OVERLOAD_RUNS * latency_ns(&k->latency, k->cap);
}

/* A run that is over its estimate is expected to need another tenth of it. */
static double left_ns(const struct batcher *b, const struct batch_run *r)
{
    double left = (double)r->started_ns + r->expected_ns - (double)b->now_ns;
    return MAX_OF(left, 0.1 * r->expected_ns);
}

double batcher__first_end_ns(const struct batcher *b)
{
    double least = INFINITY;
    for (uint32_t i = 0; i < b->n_runs; i++)
        least = MIN_OF(least, left_ns(b, &b->runs[i]));
    return least;
}

/* Time until the first of the instances is free, and the sum over all of them. */
static void running_ns(const struct batcher *b, double *first, double *sum)
{
    *sum = 0;
    for (uint32_t i = 0; i < b->n_runs; i++)
        *sum += left_ns(b, &b->runs[i]);
    *first = b->n_runs < batcher__lanes(b) ? 0 : batcher__first_end_ns(b);
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
    uint32_t cap = k->cap, rest = (uint32_t)(rows % cap);
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
            uint32_t cap = k->cap, rest = (uint32_t)(rows % cap);
            if (rest + item->rows <= cap) { /* they run together */
                rows -= rest;
                *with = rest;
            }
        }
        sum += work_ns(b, k, rows, nodes);
    }
    return sum;
}

/* How large the batch of a newcomer gets that starts in `start_ns` and has `rows` so far: those who come until then join. To
 * promise a small batch and run a large one would make its first members late; to run it small would waste the instance just
 * when it is short. */
static uint32_t company(const struct batcher *b, const struct batch_bucket *k, uint32_t rows, double start_ns)
{
    if (batcher__single(b, k))
        return rows;
    double more = arrival_rate_at(&k->offered, (double)b->now_ns, b->busy_span_ns) * start_ns;
    return (uint32_t)MIN_OF(rows + more, (double)MAX_OF(k->cap, rows));
}

/* Share of the instances that classes and levels more urgent than the item's take, now and as long as they keep coming. */
static double overtaken_share(const struct batcher *b, const struct batch_bucket *k, const struct batch_item *item)
{
    if (b->policy.preserve_ordering)
        return 0;
    double rows_per_ns = 0, cap = batcher__single(b, k) ? 1 : k->cap;
    for (uint32_t class = 0; class < item->class; class ++)
        rows_per_ns += arrival_rate_at(&b->class_rate[class], (double)b->now_ns, b->busy_span_ns);
    for (uint32_t level = 1; level < item->level; level++)
        rows_per_ns += arrival_rate_at(&b->level_rate[level], (double)b->now_ns, b->busy_span_ns);
    return rows_per_ns * latency_ns(&k->latency, (uint32_t)cap) / cap / batcher__lanes(b);
}

/* Estimates are learned from runs, and a request that is refused doesn't run: an estimate that is too high (a slow first run, a
 * machine that was busy with something else) would refuse for ever. So, while the bucket has nothing queued or running and an
 * instance is free, one request now and then is let through in spite of it: at first after four times the estimate, twice as
 * long after each such trial. */
static bool try_anyway(struct batcher *b, struct batch_bucket *k, double estimate_ns)
{
    if (k->queue.root || k->running || b->n_runs >= b->instances)
        return false;
    if (!k->probed_ns) {
        k->probed_ns = b->now_ns; /* from now on it counts how long nothing has been learned */
        k->probe_gap = PROBE_GAP_FIRST;
    }
    if ((double)(b->now_ns - k->probed_ns) < MAX_OF(PROBE_FLOOR_NS, k->probe_gap * estimate_ns))
        return false;
    k->probed_ns = b->now_ns;
    k->probe_gap = MIN_OF(2 * k->probe_gap, (uint32_t)PROBE_GAP_MAX);
    return true;
}

int batcher__promise(struct batcher *b, struct batch_bucket *k, struct batch_item *item, struct error *err)
{
    if (item->deadline_ns == SCHED_NEVER)
        return 0;
    if (item->deadline_ns <= b->now_ns)
        return error_set(err, STATUS_DEADLINE, "the request's deadline had passed when it came to the queue; allow more time");
    if (!latency_known(&k->latency))
        return 0;
    double left = (double)item->deadline_ns - (double)b->now_ns;
    double first, running;
    uint32_t with = 0;
    running_ns(b, &first, &running);
    double queued = item->alone ? 0 : ahead_ns(b, k, item, &with);
    double lanes = batcher__lanes(b), all = running + queued * batcher__slowed(b, lanes - 1);
    double start = queued > 0 ? MAX_OF(first, all / lanes) : first;
    if (start > 0)
        start = start / MAX_OF(1 - overtaken_share(b, k, item), 1e-3) + b->safety_ns;
    double need = start + batcher__promise_ns(b, k, company(b, k, with + item->rows, start));
    if (need <= left) {
        k->probed_ns = 0;
        return 0;
    }
    if (try_anyway(b, k, need)) {
        item->order.deadline_ns = SCHED_NEVER;
        return 0;
    }
    if (start > 0)
        b->refused_ns = b->now_ns;
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
