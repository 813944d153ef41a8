/* balance_hash.c: the same key to the same upstream, by weighted rendezvous hashing (Thaler and Ravishankar 1998; the weights after
 * Schindelhauer and Schomaker 2005): each candidate draws a score from (key, its name), the highest wins. When one leaves, only its own keys
 * move; no ring has to be built. Loads are bounded (Mirrokni, Thorup, Zadimoghaddam 2016): a candidate whose requests in flight would pass
 * `hash_bound` times the mean for its weight is skipped, and the next by score takes it. O(n). */
#include <math.h>

#include "base/map.h"
#include "route/pool_priv.h"

static double score(const struct pool *p, const struct upstream *u, uint64_t key, uint64_t now_ns)
{
    uint64_t h = hash_bytes(u->o.name.p, u->o.name.n, key);
    double unit = ((double)(h >> 11) + 0.5) * 0x1p-53; /* in (0, 1) */
    return -pool__weight(p, u, now_ns) / log(unit);
}

struct upstream *balance__hash(struct pool *p, struct upstream **c, size_t n, const struct pick_request *r, uint64_t now_ns)
{
    double weight = 0, load = 1, best_score = -1;
    struct upstream *best = NULL;
    for (size_t i = 0; i < n; i++) {
        weight += pool__weight(p, c[i], now_ns);
        load += c[i]->in_flight;
    }
    for (size_t i = 0; i < n; i++) {
        double bound = ceil(p->o.hash_bound * load * pool__weight(p, c[i], now_ns) / weight);
        if (c[i]->in_flight + 1 > bound)
            continue;
        double s = score(p, c[i], r->hash, now_ns);
        if (s > best_score) {
            best_score = s;
            best = c[i];
        }
    }
    return best; /* the bounds add up to more than the load: one has room */
}
