/* pacer.h: when an open-loop load generator sends: at a constant distance, or as a Poisson process (exponential distances), which is
 * what many independent clients look like. The schedule never depends on answers. Pure: no clock. One thread. */
#ifndef INFERD_CLI_PACER_H
#define INFERD_CLI_PACER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rand.h"

struct pacer {
    double interval_ns; /* mean */
    bool poisson;
    struct rand rand;
    uint64_t n;   /* sends so far; constant: at = n x interval, so that no rate drifts */
    double at_ns; /* since `start` */
    uint64_t start_ns;
};

/* `rate` > 0 per second; the first send is one distance after `start_ns`. */
void pacer_init(struct pacer *p, double rate, bool poisson, uint64_t seed, uint64_t start_ns);
/* Time of the current send; then pacer_advance. */
static inline uint64_t pacer_at_ns(const struct pacer *p)
{
    return p->start_ns + (uint64_t)p->at_ns;
}
void pacer_advance(struct pacer *p);

#endif
