/* delay.c: a histogram of latencies. Bucket k holds times up to LEAST * 2^(k / PER_DOUBLING): 10 us to 5 h. */
#include "route/delay.h"

#include <math.h>

#include "base/size.h"

#define LEAST_NS     1e4
#define PER_DOUBLING 6.0
#define WINDOW       2048
#define ENOUGH       100

void delay_learn(struct delay *d, uint64_t ns)
{
    double k = ns > LEAST_NS ? ceil(log2((double)ns / LEAST_NS) * PER_DOUBLING) : 0;
    d->counts[MIN_OF((uint32_t)k, (uint32_t)DELAY_BUCKETS - 1)]++;
    if (++d->n < WINDOW)
        return;
    d->n = 0;
    for (size_t i = 0; i < DELAY_BUCKETS; i++)
        d->n += d->counts[i] /= 2;
}

uint64_t delay_percentile_ns(const struct delay *d, uint32_t percentile)
{
    uint64_t want = ((uint64_t)d->n * percentile + 99) / 100, seen = 0;
    if (d->n < ENOUGH)
        return 0;
    for (size_t i = 0; i < DELAY_BUCKETS; i++) {
        seen += d->counts[i];
        if (seen >= want)
            return (uint64_t)(LEAST_NS * exp2((double)i / PER_DOUBLING));
    }
    return UINT64_MAX;
}
