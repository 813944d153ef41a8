/* policy_deadline.c: the learned policy, and NONE as its case of batches of one item. Derivation: docs/internals/batcher.md. */
#include "sched/batcher_priv.h"

#include "base/check.h"

/* A full-size batch may cost this share of its rate to keep an urgent member's promise. */
#define KEEP_PROMISE_SHARE 0.8

/* The rows to run of `k`, at most `allowed`: fewer where the most urgent member would be late in the company of all, members
 * that can't be saved at a bearable price dropped (killed). 0: nothing is left. */
static uint64_t fit_deadlines(struct batcher *b, struct batch_bucket *k, uint64_t allowed)
{
    for (;;) {
        struct rank_span s = rank_prefix(&k->queue, allowed);
        if (!s.rows || s.min_deadline_ns == SCHED_NEVER)
            return s.rows;
        double slack = (double)s.min_deadline_ns - (double)b->now_ns;
        if (batcher__promise_ns(b, k, (uint32_t)s.rows) <= slack)
            return s.rows;
        struct batch_item *urgent = batcher__item(rank_prefix_urgent(&k->queue, allowed));
        double scale = b->tail.p99, over = b->overhead_ns + 4 * b->overhead_spread_ns;
        uint32_t fits = latency_rows_within(&k->latency, (slack - over) / scale, (uint32_t)s.rows);
        double alone = latency_ns(&k->latency, urgent->rows);
        uint64_t ahead = rank_rows_before(&k->queue, &urgent->order, NULL) + urgent->rows;
        if (fits >= ahead && fits / latency_ns(&k->latency, fits) >=
                                 KEEP_PROMISE_SHARE * (double)s.rows / latency_ns(&k->latency, (uint32_t)s.rows))
            return fits;
        if (alone > slack) { /* out of reach even by itself */
            batcher__kill(b, urgent);
            continue;
        }
        if (fits >= ahead)
            return fits;
        return s.rows;
    }
}

struct batch_decision batcher__next_deadline(struct batcher *b, uint32_t free_instances, struct list *batch)
{
    (void)free_instances;
    for (struct batch_bucket *k; (k = batcher__bucket_urgent(b, NULL));) {
        if (batcher__single(b, k))
            return batcher__close(b, k, b->policy.max_rows, batch);
        bool cut;
        uint64_t rows = fit_deadlines(b, k, batcher__rows_allowed(b, k, &cut));
        if (rows)
            return batcher__close(b, k, rows, batch);
    }
    return (struct batch_decision){.wake_ns = SCHED_NEVER};
}
