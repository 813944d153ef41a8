/* sha256.h: SHA-256 (FIPS 180-4), for names of cached content where a collision must not be constructible. Any thread. */
#ifndef INFERD_BASE_SHA256_H
#define INFERD_BASE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sha256 {
    uint32_t h[8];
    uint64_t n; /* bytes taken so far */
    uint8_t block[64];
    bool by_cpu; /* with the CPU's own instructions; a test may clear it after sha256_init */
};

void sha256_init(struct sha256 *s);
/* Take `n` more bytes. */
void sha256_add(struct sha256 *s, const void *p, size_t n);
/* The digest; `s` must be initialised again before another use. */
void sha256_finish(struct sha256 *s, uint8_t out[32]);

#endif
