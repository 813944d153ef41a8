/* patience.c: what waiting for company is worth, by the learned latency and the learned arrivals. The derivation is in
 * docs/internals/batcher.md; in short, for R rows now and m rows expected within t, compare the sums of answer times:
 *   run now:  the R rows end at L(R); the m rows start when an instance is free again, at f, with all M that came by then;
 *   wait t:   all R + m end at t + L(R + m); this instance is free t + L(R + m) - L(R) later for everybody else.
 * and the instance time: the m rows cost s m here (s = the time of one more row) and t of holding the instance, where a row
 * has cost c lately. Instance time is worth V rows' waiting: V is how many rows are pushed back when the instance is held up;
 * it grows without bound as the instances near saturation.
 * The second part is what lets N closed-loop clients find to one batch of N instead of two halves that wait for each other
 * for ever; in a Poisson stream it is never positive, so nothing waits there. */
#include "sched/batcher_priv.h"

#include <math.h>

#define FIRST_LOOK_NS 16000.0 /* less isn't worth a sleep and a wake-up of a thread */
#define PRESSURE_MAX  16.0
#define MACHINE_SHARE 0.1 /* what instance time is worth against waiting time while instances are idle */

struct stake {
    double rows, others, rows_max, instances;
    double run_ns, slope_ns; /* L(R); one more row */
    double cost_ns;          /* machine time a row, lately */
    double later_rows;       /* V */
    double free_ns;          /* f: until an instance is free again, if R runs now and none is left free */
    double come;             /* M: rows that come by then */
    double crowded;          /* chance that a newcomer finds no instance free, if R runs now */
};

/* A batch's worth, times the batches until it is idle again. */
double batcher__pressure(const struct batcher *b, const struct batch_bucket *k)
{
    double mean = k->past_runs > 0 ? k->past_rows / k->past_runs : 1;
    double g = b->busy < 1 ? b->busy / (1 - b->busy) : PRESSURE_MAX;
    return mean * MIN_OF(g, PRESSURE_MAX);
}

static double latency_of(const struct batch_bucket *k, double rows, double rows_max)
{
    return latency_ns(&k->latency, (uint32_t)MIN_OF(MAX_OF(rows, 1.0), rows_max));
}

/* What waiting `t` for `m` rows saves, in row-nanoseconds. */
static double gain(const struct batch_bucket *k, const struct stake *s, double m, double t)
{
    m = MIN_OF(m, s->rows_max - s->rows);
    double come = MAX_OF(s->come, m), slower = t + s->slope_ns * m;
    double later = MAX_OF(s->free_ns, t) + latency_of(k, come, s->rows_max), at_once = t + latency_of(k, 1, s->rows_max);
    double now = s->crowded * later + (1 - s->crowded) * at_once; /* when a newcomer ends, if R runs now */
    double direct = m * (now - s->run_ns - slower) - s->rows * slower;
    double held = s->crowded * (come - m) + s->others;
    return direct - held * t / s->instances + s->crowded * s->later_rows * (m * s->cost_ns - slower);
}

double batcher__wait_ns(const struct batcher *b, const struct batch_bucket *k, uint32_t rows, uint32_t others,
                        uint32_t free_instances, double most_ns)
{
    if (most_ns < FIRST_LOOK_NS || !latency_known(&k->latency) || k->past_runs <= 0 || rows >= b->policy.max_rows ||
        !arrival_any(&k->arrival))
        return 0;
    double run = latency_ns(&k->latency, rows);
    struct stake s = {.rows = rows,
                      .others = others,
                      .rows_max = b->policy.max_rows,
                      .instances = batcher__lanes(b),
                      .run_ns = run,
                      .slope_ns = k->latency.row_ns,
                      .cost_ns = k->past_ns / k->past_rows,
                      .later_rows = batcher__pressure(b, k),
                      .free_ns = MIN_OF(run, batcher__first_end_ns(b))};
    struct arrival_view v;
    arrival_look(&v, &k->arrival, (double)b->now_ns, b->busy_span_ns);
    s.come = arrival_returns(&v, s.free_ns) + arrival_fresh(&v, s.free_ns);
    s.crowded = free_instances - 1 < s.come ? 1 - (free_instances - 1) / s.come : 0;
    if (free_instances == 1)
        s.crowded = 1;
    /* Even all of those who may come within the limit, had they come at once, may not be worth it: the usual case. */
    double most = MAX_OF(arrival_returns(&v, most_ns), arrival_next(&v, most_ns));
    if (gain(k, &s, most, 0) <= 0)
        return 0;
    double best = 0, wait = 0;
    for (double t = FIRST_LOOK_NS; t < 2 * most_ns; t *= 2) {
        double at = MIN_OF(t, most_ns);
        double g = MAX_OF(gain(k, &s, arrival_returns(&v, at), at), gain(k, &s, arrival_next(&v, at), at));
        if (g > best) {
            best = g;
            wait = at;
        }
    }
    return wait;
}

uint32_t batcher__split(const struct batcher *b, const struct batch_bucket *k, uint32_t rows, uint32_t free_instances)
{
    if (!latency_known(&k->latency))
        return 1;
    double one = latency_ns(&k->latency, rows), least = INFINITY;
    struct arrival_view v;
    arrival_look(&v, &k->arrival, (double)b->now_ns, b->busy_span_ns);
    double until = MIN_OF(one, batcher__first_end_ns(b));
    double come = arrival_returns(&v, until) + arrival_fresh(&v, until);
    uint32_t best = 1;
    for (uint32_t n = 1; n <= free_instances && n <= rows; n++) {
        double each = latency_ns(&k->latency, (rows + n - 1) / n);
        double cost = rows * each + MACHINE_SHARE * rows * (n * each - one);
        if (n == free_instances) /* those who come meanwhile find none free, for half of that time on average */
            cost += come * MIN_OF(each, until) / 2;
        if (cost < least) {
            least = cost;
            best = n;
        }
    }
    return best;
}
