/* rand.h: xoshiro256** (Blackman and Vigna 2018), seeded by splitmix64. For jitter, sampling and tests; never for secrets. */
#ifndef INFERD_BASE_RAND_H
#define INFERD_BASE_RAND_H

#include <stdint.h>

struct rand {
    uint64_t s[4];
};

void rand_init(struct rand *r, uint64_t seed);
/* The next 64 bits. */
uint64_t rand_u64(struct rand *r);
/* Uniform in [0, n), n > 0, without modulo bias. */
uint64_t rand_below(struct rand *r, uint64_t n);
/* Uniform in [0, 1) with 53 bits. */
double rand_f64(struct rand *r);

#endif
