/* prefix.c: chained block hashes, and a set-associative table of them. */
#include "route/prefix.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/size.h"

#define WAYS        4
#define SETS_MIN    16
#define SETS_MAX    (1u << 20)
#define EMPTY_STAMP 0u

struct way {
    uint64_t hash;
    uint32_t stamp; /* of its latest use; EMPTY_STAMP: free */
};

struct prefix_set {
    size_t sets; /* a power of two */
    uint32_t now;
    struct way ways[];
};

size_t prefix_hash(struct str text, uint64_t salt, uint64_t *out, size_t max)
{
    size_t n = MIN_OF(text.n / PREFIX_BLOCK_BYTES, max);
    uint64_t chain = salt;
    for (size_t i = 0; i < n; i++)
        out[i] = chain = hash_bytes(text.p + i * PREFIX_BLOCK_BYTES, PREFIX_BLOCK_BYTES, chain);
    return n;
}

struct prefix_set *prefix_set_create(size_t blocks)
{
    size_t sets = SETS_MIN;
    while (sets < SETS_MAX && sets * WAYS < blocks)
        sets *= 2;
    struct prefix_set *s = calloc(1, sizeof *s + sets * WAYS * sizeof *s->ways);
    if (s)
        s->sets = sets;
    return s;
}

void prefix_set_destroy(struct prefix_set *s)
{
    free(s);
}

void prefix_set_clear(struct prefix_set *s)
{
    memset(s->ways, 0, s->sets * WAYS * sizeof *s->ways);
    s->now = EMPTY_STAMP;
}

static size_t set_of(const struct prefix_set *s, uint64_t hash)
{
    return (size_t)(hash >> 7) & (s->sets - 1);
}

size_t prefix_set_match(const struct prefix_set *s, const uint64_t *blocks, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct way *w = &s->ways[set_of(s, blocks[i]) * WAYS];
        size_t k = 0;
        while (k < WAYS && (w[k].stamp == EMPTY_STAMP || w[k].hash != blocks[i]))
            k++;
        if (k == WAYS)
            return i;
    }
    return n;
}

/* Its place: where it is, else a free one, else the one used longest ago. */
static struct way *place(struct way *w, uint64_t hash)
{
    struct way *worst = w;
    for (size_t k = 0; k < WAYS; k++) {
        if (w[k].stamp != EMPTY_STAMP && w[k].hash == hash)
            return &w[k];
        if (w[k].stamp < worst->stamp)
            worst = &w[k];
    }
    return worst;
}

void prefix_set_add(struct prefix_set *s, const uint64_t *blocks, size_t n)
{
    if (s->now == UINT32_MAX)
        prefix_set_clear(s); /* after four billion prompts it starts afresh rather than with wrong ages */
    s->now++;
    for (size_t i = 0; i < n; i++)
        *place(&s->ways[set_of(s, blocks[i]) * WAYS], blocks[i]) = (struct way){blocks[i], s->now};
}
