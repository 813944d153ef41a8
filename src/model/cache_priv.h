/* cache_priv.h: for siblings in model/ only: the response cache of one model version.
 *
 * Least recently used first out, bounded in bytes. The key is the whole request: which outputs are wanted, and of every input its
 * presence, dtype, shape and bytes. Lookup is by a keyed hash and then by comparing the whole key, so two requests that collide
 * get their own answers (they only share a chain). Keys and answers are copies in slabs of their own: an entry costs what it
 * counts, and never keeps a batch's buffer or a request's body alive. All operations are O(1) beside hashing and copying.
 * Any thread; one mutex (RANK_CACHE), held while keys of equal
 * hash are compared, not while hashing, copying or freeing. */
#ifndef INFERD_MODEL_CACHE_PRIV_H
#define INFERD_MODEL_CACHE_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/infer.h"

struct cache;

/* `limit_bytes` > 0. `hash_mask` is ANDed onto each hash: UINT64_MAX outside tests, where 0 makes every key collide. */
struct cache *cache_create(uint64_t limit_bytes, uint64_t seed, uint64_t hash_mask);
void cache_destroy(struct cache *c);

/* Look `inf` up (inputs in contract order, checked). Hit: fills inf->outputs with references, returns true. */
bool cache_get(struct cache *c, struct infer *inf, size_t n_outputs);
/* Keep the answer of `inf`. Does nothing when it is too large (more than a quarter of the cache), known, or memory is short. */
void cache_put(struct cache *c, const struct infer *inf, size_t n_outputs);

struct cache_stats {
    uint64_t bytes;
    size_t entries;
};
/* How much is in it now. */
void cache_get_stats(struct cache *c, struct cache_stats *out);

#endif
