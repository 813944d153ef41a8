/* portion.c: how many of the rows that could run at once are worth running at once.
 *
 * Large batches don't pay for every model: where a row's work alone fills the cores, a batch only pushes the tensors of its rows out of the
 * caches and makes the first row wait for the last. For R rows, compare the sums of answer times as patience.c does:
 *   at once:        all R end at L(R);
 *   in parts of r:  they end at L(r), 2 L(r), ... n L(r), with n = R / r, and the instance is held n L(r) instead of L(R).
 * Instance time is worth V rows' waiting. Only sizes that have run are compared: the fit is a line, and a line can't tell. Half of what would
 * be chosen is tried until it is known, and now and then after that, as is twice as much where less was chosen. */
#include "sched/batcher_priv.h"

#include "base/size.h"

#define SEEN_RUNS  2u   /* of a size, before it is compared */
#define RETRY_RUNS 512u /* after as many without it, a size is tried again */
#define MARGIN     0.03 /* of the answer times: less may be noise */

/* What parts of `r` save against all `rows` at once, in row-nanoseconds. */
static double saves(const struct batch_bucket *k, uint32_t rows, uint32_t r, double later_rows)
{
    double n = (double)rows / r, whole = latency_ns(&k->latency, rows), part = latency_ns(&k->latency, r);
    return rows * (whole - part * (n + 1) / 2) + later_rows * (whole - n * part);
}

static bool seen(const struct batch_bucket *k, uint32_t rows)
{
    return latency_size_runs(&k->latency, rows) >= SEEN_RUNS;
}

static bool to_try(const struct batch_bucket *k, uint32_t rows)
{
    return !seen(k, rows) || latency_size_age(&k->latency, rows) > RETRY_RUNS;
}

/* The best part of `rows`, a size that has been seen, among the sizes that have. */
static uint32_t best_part(const struct batcher *b, const struct batch_bucket *k, uint32_t rows)
{
    double later_rows = batcher__pressure(b, k), most = MARGIN * rows * latency_ns(&k->latency, rows);
    uint32_t best = rows;
    for (uint32_t r = (rows + 1) / 2; r > 0 && seen(k, r); r = r > 1 ? (r + 1) / 2 : 0) {
        double s = saves(k, rows, r, later_rows);
        if (s > most) {
            most = s;
            best = r;
        }
    }
    return best;
}

uint32_t batcher__cap(const struct batcher *b, const struct batch_bucket *k)
{
    uint32_t largest = b->policy.max_rows;
    while (largest > 1 && !seen(k, largest))
        largest = (largest + 1) / 2;
    uint32_t best = best_part(b, k, largest);
    return best < largest ? best : b->policy.max_rows;
}

uint32_t batcher__portion(const struct batcher *b, const struct batch_bucket *k, uint32_t rows)
{
    if (rows < 2 || !seen(k, rows))
        return rows;
    uint32_t best = best_part(b, k, rows);
    if (best > 1 && to_try(k, (best + 1) / 2))
        return (best + 1) / 2;
    uint32_t twice = MIN_OF(2 * best, rows);
    return to_try(k, twice) ? twice : best;
}
