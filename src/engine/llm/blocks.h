/* blocks.h: the bookkeeping of the paged KV cache: which block belongs to whom, and which prefixes can be reused. No KV data here.
 *
 * A block stands for KV_BLOCK_TOK consecutive tokens of a sequence in every layer. It is free, used (refs > 0) or cached (refs == 0,
 * full, found by its content until somebody needs the room); free + used + cached = total at all times. All arrays are fixed at
 * creation and every operation is O(1) per block: nothing grows with requests.
 *
 * Prefix cache. A full block is registered under (parent block, salt, its 32 tokens); a lookup compares the tokens, so equal
 * hashes never give wrong content. Unused registered blocks queue in LRU order. A sequence gives its blocks back last first, and
 * whoever uses a block uses its parent, so a parent is always younger in that queue than its children: eviction takes tails first and
 * never orphans a registered child. When a sequence seals a block that is registered already, it is given the registered one and its own
 * is freed: contents are equal bit by bit, because the engine computes them so.
 *
 * The design is vLLM's (block hash, free list that holds cached blocks); token comparison and sharing at seal are ours. One
 * thread (the step thread); counters for metrics are plain and read by that thread. */
#ifndef INFERD_ENGINE_LLM_BLOCKS_H
#define INFERD_ENGINE_LLM_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define KV_BLOCK_TOK  32
#define KV_BLOCK_NONE UINT32_MAX

struct blocks;

struct blocks_stats {
    uint32_t total, free, used, cached;
    uint64_t evictions, shared; /* cached blocks reused for something else; duplicates dropped at seal */
};

/* `total` blocks with ids 0..total-1; `seed` keys the hash. NULL when out of memory or total is 0 or KV_BLOCK_NONE. */
struct blocks *blocks_create(uint32_t total, uint64_t seed);
void blocks_destroy(struct blocks *b);

/* Find the longest registered chain for the first full blocks of `tokens` (at most `max_blocks`), take a reference to each and
 * write their ids to `table`. Returns how many. `salt` separates adapters and tenants. */
uint32_t blocks_match(struct blocks *b, uint64_t salt, const int32_t *tokens, size_t n_tok, uint32_t max_blocks,
                      uint32_t *table);

/* A fresh block with one reference, unregistered: from the free list, else by evicting the oldest cached one. KV_BLOCK_NONE: all
 * blocks are in use. */
uint32_t blocks_alloc(struct blocks *b);

/* Blocks that alloc can give: free + cached. */
uint32_t blocks_available(const struct blocks *b);

/* One more sequence uses `id` (choices that share a prompt). */
void blocks_ref(struct blocks *b, uint32_t id);
/* Give `id` back. Last reference: a registered block becomes cached (youngest), another one free. A sequence releases its table from
 * the last entry to the first. */
void blocks_unref(struct blocks *b, uint32_t id);

/* May the holder write into `id`, that is, is it the only one and the block not registered? If not, copy on write: alloc another. */
bool blocks_writable(const struct blocks *b, uint32_t id);

/* `id` (one reference, unregistered) now holds these KV_BLOCK_TOK tokens, behind `parent` (KV_BLOCK_NONE: first block). Returns the id
 * to use from now on: `id`, or the equal block that was registered before (a reference is taken to that, `id` is freed). When the
 * parent is itself unregistered, nothing is registered. */
uint32_t blocks_seal(struct blocks *b, uint32_t id, uint32_t parent, uint64_t salt, const int32_t *tokens);

/* Forget everything that is registered (adapter unloaded, weights swapped). Blocks in use stay with their users. */
void blocks_forget(struct blocks *b);

/* For metrics and tests: the counts now, and how many users a block has. */
void blocks_stats(const struct blocks *b, struct blocks_stats *out);
uint32_t blocks_refs(const struct blocks *b, uint32_t id);

/* Every count, list and hash link agrees; parents of registered blocks are registered and younger. O(total). For tests, and after each
 * step in debug builds. */
bool blocks_validate(const struct blocks *b);

#endif
