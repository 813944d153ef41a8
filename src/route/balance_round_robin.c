/* balance_round_robin.c: smooth weighted round robin, after nginx (Igor Sysoev's commit of 2012): each candidate gains its weight, the
 * richest is taken and pays what all gained. {a: 5, b: 1, c: 1} gives a a b a c a a rather than five a in a row. O(n). */
#include "route/pool_priv.h"

struct upstream *balance__round_robin(struct pool *p, struct upstream **c, size_t n, const struct pick_request *r,
                                      uint64_t now_ns)
{
    struct upstream *best = NULL;
    double sum = 0;
    (void)r;
    for (size_t i = 0; i < n; i++) {
        double w = pool__weight(p, c[i], now_ns);
        c[i]->current += w;
        sum += w;
        if (!best || c[i]->current > best->current)
            best = c[i];
    }
    best->current -= sum;
    return best;
}
