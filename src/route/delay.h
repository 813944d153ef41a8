/* delay.h: how long a pool's answers take, as a percentile of the latest thousand or so: when to ask a second server (hedging). Pure, embedded,
 * guarded by its owner's lock. Log-spaced buckets of 12 %; all counts are halved when there are WINDOW, so that the past fades. */
#ifndef INFERD_ROUTE_DELAY_H
#define INFERD_ROUTE_DELAY_H

#include <stdint.h>

#define DELAY_BUCKETS 176

struct delay {
    uint32_t counts[DELAY_BUCKETS];
    uint32_t n;
};

/* An answer took so long. */
void delay_learn(struct delay *d, uint64_t ns);
/* Upper bound of the bucket that the percentile (1..99) falls into; 0: fewer than 100 answers known. */
uint64_t delay_percentile_ns(const struct delay *d, uint32_t percentile);

#endif
