/* policy_fixed.c: Triton's dynamic batcher, rule by rule, on one bucket at a time.
 *
 * Source of the rules: Triton's documentation of preferred_batch_size, max_queue_delay_microseconds and ModelQueuePolicy, and
 * the behaviour of its scheduler (dynamic_batch_scheduler.cc, scheduler_utils.cc as of 2024). In order:
 *   1. The pending batch is the longest prefix of the queue within max_rows.
 *   2. If its oldest member hasn't waited max_queue_delay yet (or there is no delay) and some prefix of it has exactly a
 *      preferred size, the largest such prefix runs. If none has, but the pending batch reaches beyond the largest preferred
 *      size, the part before the request that crosses it runs.
 *   3. Otherwise all of the pending batch runs at once if it can't grow, has the largest preferred size or more, has waited for
 *      max_queue_delay, or there is no delay.
 *   4. Otherwise: wait until the oldest member has waited for max_queue_delay.
 * Where it differs, for the better: shapes queue apart, so another shape doesn't cut a batch short (with preserve_ordering
 * it does, as in Triton); timeouts fire on time and not at the next look. */
#include "sched/batcher_priv.h"

#include "base/check.h"

/* Rule 2: rows of the prefix that runs, 0 when none qualifies. `pending`: rule 1's prefix. */
static uint64_t preferred_prefix(const struct batcher *b, const struct batch_bucket *k, const struct rank_span *pending)
{
    const struct batch_policy *p = &b->policy;
    uint64_t best = 0, largest = 0;
    for (uint32_t i = 0; i < p->n_preferred; i++) {
        uint64_t want = p->preferred_rows[i];
        largest = MAX_OF(largest, want);
        if (want > best && want <= pending->rows && rank_prefix(&k->queue, want).rows == want)
            best = want;
    }
    if (best)
        return best;
    uint64_t before = rank_prefix(&k->queue, largest).rows;
    if (!before) /* the first request alone is larger: it is crossed by the second one, if there is one */
        before = batcher__head(k)->rows;
    return before < rank_all(&k->queue).rows ? before : 0;
}

/* Rows of `k` to run now; 0: wait, and *wake_ns is when to ask again. */
static uint64_t ready_rows(const struct batcher *b, const struct batch_bucket *k, uint64_t *wake_ns)
{
    const struct batch_policy *p = &b->policy;
    if (batcher__single(b, k))
        return batcher__head(k)->rows;
    bool cut;
    uint64_t allowed = batcher__rows_allowed(b, k, &cut);
    struct rank_span pending = rank_prefix(&k->queue, allowed);
    bool full = cut || pending.rows < rank_all(&k->queue).rows; /* the next one doesn't fit, or must not come along */
    uint64_t waited = b->now_ns - MIN_OF(pending.min_arrived_ns, b->now_ns);
    bool exceeded = p->max_queue_delay_ns && waited >= p->max_queue_delay_ns;
    uint64_t largest = 0;
    for (uint32_t i = 0; i < p->n_preferred; i++)
        largest = MAX_OF(largest, (uint64_t)p->preferred_rows[i]);

    uint64_t best = exceeded ? 0 : MIN_OF(preferred_prefix(b, k, &pending), pending.rows);
    if (best)
        return best;
    if (full || pending.rows >= largest || exceeded || !p->max_queue_delay_ns)
        return pending.rows;
    *wake_ns = MIN_OF(*wake_ns, pending.min_arrived_ns + p->max_queue_delay_ns);
    return 0;
}

/* The most urgent bucket that is ready; others may be while it waits for company. With preserve_ordering there is no other. */
struct batch_decision batcher__next_fixed(struct batcher *b, struct list *batch)
{
    struct batch_decision d = {.wake_ns = SCHED_NEVER};
    struct batch_bucket *best = batcher__bucket_urgent(b, NULL);
    if (!best)
        return d;
    uint64_t rows = ready_rows(b, best, &d.wake_ns);
    if (!rows && !b->policy.preserve_ordering) {
        struct batch_bucket *first = best;
        best = NULL;
        for (struct list *at = b->active.next; at != &b->active; at = at->next) {
            struct batch_bucket *k = LIST_ENTRY(at, struct batch_bucket, where);
            if (k == first || (best && !k->queue.less(rank_first(&k->queue), rank_first(&best->queue))))
                continue;
            uint64_t ready = ready_rows(b, k, &d.wake_ns);
            if (ready) {
                best = k;
                rows = ready;
            }
        }
    }
    return rows ? batcher__close(b, best, rows, batch) : d;
}
