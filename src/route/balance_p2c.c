/* balance_p2c.c: the better of two candidates drawn at random (Mitzenmacher 2001), where better is the lower latency times requests in
 * flight, as Finagle's peak EWMA has it: an answer that is slower than the average replaces it, faster ones are averaged in, and an
 * average that nobody renews fades, so that an upstream that was slow once is tried again. O(1) but for the unknown ones. */
#include <math.h>

#include "base/size.h"
#include "route/pool_priv.h"

void balance__learn_latency(const struct pool *p, struct upstream *u, uint64_t ns, uint64_t now_ns)
{
    double x = (double)ns;
    if (x < u->latency_ns && u->latency_at_ns) {
        double keep = exp(-(double)(now_ns - u->latency_at_ns) / (double)p->o.latency_tau_ns);
        x = u->latency_ns * keep + x * (1 - keep);
    }
    u->latency_ns = x;
    u->latency_at_ns = now_ns;
}

static double faded(const struct pool *p, const struct upstream *u, uint64_t now_ns)
{
    uint64_t age = now_ns > u->latency_at_ns ? now_ns - u->latency_at_ns : 0;
    return u->latency_ns * exp(-(double)age / (double)p->o.latency_tau_ns);
}

/* Nothing is known of a new one: it is taken to be like the others. */
static double expected(const struct pool *p, const struct upstream *u, uint64_t now_ns)
{
    double sum = 0, n = 0;
    if (u->latency_at_ns)
        return faded(p, u, now_ns);
    for (size_t i = 0; i < p->n; i++)
        if (p->all[i]->latency_at_ns) {
            sum += faded(p, p->all[i], now_ns);
            n++;
        }
    return n > 0 ? sum / n : 1;
}

static double cost(const struct pool *p, const struct upstream *u, uint64_t now_ns)
{
    return MAX_OF(expected(p, u, now_ns), 1.0) * (u->in_flight + 1) / pool__weight(p, u, now_ns);
}

struct upstream *balance__p2c(struct pool *p, struct upstream **c, size_t n, const struct pick_request *r, uint64_t now_ns)
{
    (void)r;
    if (n == 1)
        return c[0];
    size_t a = (size_t)rand_below(&p->rand, n), b = (size_t)rand_below(&p->rand, n - 1);
    b += b >= a;
    double x = cost(p, c[a], now_ns), y = cost(p, c[b], now_ns);
    return y < x ? c[b] : c[a];
}
