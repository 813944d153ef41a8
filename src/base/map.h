/* map.h: string-keyed hash table with open addressing.
 *
 * Keys are borrowed: they must live as long as the entry (usually they are members of the value). The hash is keyed
 * with random bits given at init, so that a client can't choose colliding names. One thread at a time. */
#ifndef INFERD_BASE_MAP_H
#define INFERD_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

struct map_slot {
    uint64_t hash;
    struct str key;
    void *value; /* NULL: empty slot */
};

struct map {
    struct map_slot *slots;
    size_t n, cap; /* cap is 0 or a power of two */
    uint64_t seed;
};

void map_init(struct map *m, uint64_t seed);
void map_release(struct map *m); /* frees the table, not the values */
/* The value, or NULL. */
void *map_get(const struct map *m, struct str key);
/* Insert or replace. `value` must not be NULL. STATUS_NOMEM is the only error. */
int map_put(struct map *m, struct str key, void *value) MUST_CHECK;
/* Remove; returns the value that was there, or NULL. */
void *map_remove(struct map *m, struct str key);
/* Iteration: start with *at = 0; returns false at the end. Not stable across changes. */
bool map_next(const struct map *m, size_t *at, struct str *key, void **value);

/* 64-bit keyed hash of bytes (SipHash-1-3 with both key halves derived from `seed`; Aumasson and Bernstein 2012). */
uint64_t hash_bytes(const void *p, size_t n, uint64_t seed);

#endif
