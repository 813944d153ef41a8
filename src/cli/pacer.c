/* pacer.c: exponential distances by inversion. */
#include "cli/pacer.h"

#include <math.h>

void pacer_advance(struct pacer *p)
{
    p->n++;
    if (p->poisson)
        p->at_ns += p->interval_ns * -log1p(-rand_f64(&p->rand)); /* u in [0, 1): never log 0 */
    else
        p->at_ns = p->interval_ns * (double)p->n;
}

void pacer_init(struct pacer *p, double rate, bool poisson, uint64_t seed, uint64_t start_ns)
{
    *p = (struct pacer){.interval_ns = 1e9 / rate, .poisson = poisson, .start_ns = start_ns};
    rand_init(&p->rand, seed);
    pacer_advance(p);
}
