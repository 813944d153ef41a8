/* balance_least_conn.c: fewest requests in flight for the weight; ties go round (nginx's least_conn). For requests whose cost varies and
 * can't be told in advance. O(n). */
#include "route/pool_priv.h"

struct upstream *balance__least_conn(struct pool *p, struct upstream **c, size_t n, const struct pick_request *r,
                                     uint64_t now_ns)
{
    double least = 0;
    size_t ties = 0;
    for (size_t i = 0; i < n; i++) {
        double load = c[i]->in_flight / pool__weight(p, c[i], now_ns);
        if (ties && load > least)
            continue;
        if (!ties || load < least)
            ties = 0;
        least = load;
        p->tie[ties++] = c[i];
    }
    return balance__round_robin(p, p->tie, ties, r, now_ns);
}
