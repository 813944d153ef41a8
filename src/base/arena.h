/* arena.h: memory that is freed all at once; the one per request holds everything the request needs.
 *
 * A bump allocator over a list of chunks. `arena_clear` keeps the first chunk, so that a keep-alive connection serves
 * its steady state without calling malloc. A byte limit bounds what one request may take: past it, and when malloc
 * fails, arena_alloc returns NULL and the request fails alone (STATUS_NOMEM). One thread at a time. */
#ifndef INFERD_BASE_ARENA_H
#define INFERD_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

#include "base/error.h"
#include "base/str.h"

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks; /* newest first */
    char *at, *end;             /* free part of the newest chunk */
    size_t used_bytes;          /* of all chunks, headers included */
    size_t limit_bytes;         /* 0: none */
    size_t first_bytes;         /* size of the first chunk */
};

/* `first_bytes`: size of the chunk that is kept across arena_clear, allocated at the first use; `limit_bytes`: bound on
 * the sum of all chunks, 0 for none. Allocates nothing. */
void arena_init(struct arena *a, size_t first_bytes, size_t limit_bytes);

/* Free everything. The arena may be initialised again. */
void arena_release(struct arena *a);

/* Forget all allocations, keep the first chunk (not one that had to be larger than first_bytes). */
void arena_clear(struct arena *a);

/* Like arena_clear, and give the first chunk back too (idle connections). */
void arena_trim(struct arena *a);

/* `n` bytes aligned to 16, uninitialised / zeroed; NULL when out of memory or past the limit. `n` may be 0. */
void *arena_alloc(struct arena *a, size_t n);
void *arena_zalloc(struct arena *a, size_t n);
/* n elements of `size` bytes, zeroed, overflow-checked. */
void *arena_array(struct arena *a, size_t n, size_t size);

/* A NUL-terminated copy of `s`; NULL when out of memory. */
char *arena_strdup(struct arena *a, struct str s);
char *arena_printf(struct arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);

#define ARENA_NEW(a, type) ((type *)arena_zalloc((a), sizeof(type)))

#endif
