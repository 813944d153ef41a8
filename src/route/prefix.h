/* prefix.h: which prompts an upstream has seen lately, as the gateway knows it: an approximation of the replica's prefix cache.
 *
 * A prompt is cut into blocks of bytes; a block's hash takes in the hash of the one before it, so equal hashes mean equal prompts up to
 * there (vLLM's block hashes; llm-d's approximate prefix scorer). A set is a table of fixed size, four ways, least recently used out. */
#ifndef INFERD_ROUTE_PREFIX_H
#define INFERD_ROUTE_PREFIX_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

#define PREFIX_BLOCK_BYTES 256
#define PREFIX_BLOCKS_MAX  128

/* Hashes of the whole blocks of `text`, at most `max`; `salt`: model and adapter, which don't share a cache. Returns how many. */
size_t prefix_hash(struct str text, uint64_t salt, uint64_t *out, size_t max);

struct prefix_set;
/* Room for about `blocks` blocks (12 bytes each). NULL: out of memory. */
struct prefix_set *prefix_set_create(size_t blocks);
void prefix_set_destroy(struct prefix_set *s);
/* How many of the leading blocks are in it. */
size_t prefix_set_match(const struct prefix_set *s, const uint64_t *blocks, size_t n);
/* It sees this prompt now. */
void prefix_set_add(struct prefix_set *s, const uint64_t *blocks, size_t n);
void prefix_set_clear(struct prefix_set *s);

#endif
