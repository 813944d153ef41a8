/* arena.c: bump allocation over malloc'ed chunks that double in size. See arena.h for the contract. */
#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"

struct arena_chunk {
    struct arena_chunk *next;
    size_t bytes; /* usable, behind the header */
};

#define HEADER_BYTES 32
#define ALIGN        16
#define CHUNK_MAX    (1u << 20) /* growth stops doubling here */
static_assert(sizeof(struct arena_chunk) <= HEADER_BYTES, "the header leaves data aligned");

void arena_init(struct arena *a, size_t first_bytes, size_t limit_bytes)
{
    *a = (struct arena){.limit_bytes = limit_bytes, .first_bytes = MAX_OF(first_bytes, (size_t)256)};
}

static void enter(struct arena *a, struct arena_chunk *c)
{
    a->at = (char *)c + HEADER_BYTES;
    a->end = a->at + c->bytes;
}

static void free_all_but_last(struct arena *a)
{
    while (a->chunks && a->chunks->next) {
        struct arena_chunk *next = a->chunks->next;
        a->used_bytes -= a->chunks->bytes + HEADER_BYTES;
        free(a->chunks);
        a->chunks = next;
    }
}

void arena_clear(struct arena *a)
{
    free_all_but_last(a);
    if (a->chunks && a->chunks->bytes > a->first_bytes)
        arena_trim(a); /* made for one large request: a kept-alive connection must not hold it */
    if (a->chunks)
        enter(a, a->chunks);
}

void arena_trim(struct arena *a)
{
    free_all_but_last(a);
    free(a->chunks);
    a->chunks = NULL;
    a->at = a->end = NULL;
    a->used_bytes = 0;
}

void arena_release(struct arena *a)
{
    arena_trim(a);
}

static bool grow(struct arena *a, size_t n)
{
    size_t bytes = a->chunks ? MIN_OF(a->chunks->bytes * 2, (size_t)CHUNK_MAX) : a->first_bytes;
    size_t total, left = a->limit_bytes ? a->limit_bytes - a->used_bytes : SIZE_MAX;
    if (left < HEADER_BYTES || n > left - HEADER_BYTES)
        return false;
    bytes = MIN_OF(MAX_OF(bytes, n), left - HEADER_BYTES); /* near the limit a smaller chunk does as well */
    total = bytes + HEADER_BYTES;
    struct arena_chunk *c = malloc(total);
    if (!c)
        return false;
    c->bytes = bytes;
    c->next = a->chunks;
    a->chunks = c;
    a->used_bytes += total;
    enter(a, c);
    return true;
}

void *arena_alloc(struct arena *a, size_t n)
{
    size_t need;
    if (!size_align(n ? n : 1, ALIGN, &need))
        return NULL;
    if ((size_t)(a->end - a->at) < need && !grow(a, need))
        return NULL;
    void *p = a->at;
    a->at += need;
    return p;
}

void *arena_zalloc(struct arena *a, size_t n)
{
    void *p = arena_alloc(a, n);
    return p ? memset(p, 0, n) : NULL;
}

void *arena_array(struct arena *a, size_t n, size_t size)
{
    size_t bytes;
    return size_mul(n, size, &bytes) ? arena_zalloc(a, bytes) : NULL;
}

char *arena_strdup(struct arena *a, struct str s)
{
    size_t bytes;
    char *p = size_add(s.n, 1, &bytes) ? arena_alloc(a, bytes) : NULL;
    if (!p)
        return NULL;
    if (s.n)
        memcpy(p, s.p, s.n);
    p[s.n] = 0;
    return p;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : arena_alloc(a, (size_t)n + 1);
    if (p)
        vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}
