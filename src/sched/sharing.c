/* sharing.c: instances that share cores. On a CPU two instances often run on the same threads (ONNX Runtime's one pool), and then a
 * second batch beside the first slows both: it gains little, and costs what merging the two would have saved. How much
 * they slow each other is seen from runs with and without company; and a lane more is worth its while if it adds a fifth
 * to what runs at once: n / (1 + slow (n - 1)) against the same with n - 1.
 *
 * Learned times (latency.c) are those of a run alone. `slow` starts at zero and fades slowly, so that company is tried again
 * after some thousand runs. Warm-up runs count as alone: they are what makes it known before the first pair. */
#include "sched/batcher_priv.h"

#include <math.h>

#define LANE_GAIN  1.2
#define SLOW_MAX   2.0
#define SLOW_KEEP  0.9998
#define MEMORY     16.0
#define EVIDENCE   4u
#define ALONE_MOST 0.2 /* others beside a run, on average, that still count as none */
#define BESIDE     0.5
#define OFF_MOST   2.0

uint32_t batcher__lanes(const struct batcher *b)
{
    uint32_t n = 1;
    while (n < b->instances && (n + 1) / batcher__slowed(b, n) >= LANE_GAIN * n / batcher__slowed(b, n - 1))
        n++;
    return n;
}

static void fold(double *mean, uint32_t *n, double x)
{
    *n += *n < MEMORY;
    *mean += (x - *mean) / *n;
}

/* What the runs so far say `slow` is. */
static double seen(const struct batcher *b)
{
    const struct batch_sharing *s = &b->sharing;
    double x = (batcher__slowed(b, s->others) * exp(s->beside - s->alone) - 1) / s->others;
    return MIN_OF(MAX_OF(x, 0.0), SLOW_MAX);
}

bool batcher__share_learn(struct batcher *b, double ns, double expected_ns, double others)
{
    struct batch_sharing *s = &b->sharing;
    s->slow *= SLOW_KEEP;
    if (!(ns > 0) || !(expected_ns > 0))
        return true;
    double off = MIN_OF(MAX_OF(log(ns / expected_ns), -OFF_MOST), OFF_MOST);
    if (others <= ALONE_MOST)
        fold(&s->alone, &s->n_alone, off);
    if (others < BESIDE || s->n_alone < EVIDENCE)
        return true;
    uint32_t n = s->n_beside;
    fold(&s->others, &n, others);
    fold(&s->beside, &s->n_beside, off);
    if (s->n_beside < EVIDENCE)
        return false;
    double was = s->slow;
    s->slow += (seen(b) - s->slow) / (s->n_beside == EVIDENCE ? 1 : MEMORY);
    /* What was expected has changed with it: the average follows at once, not after a memory's time. */
    s->beside -= log((1 + s->slow * s->others) / (1 + was * s->others));
    return true;
}
