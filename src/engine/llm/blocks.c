/* blocks.c: the pool of blocks.h. Three kinds of links, all by index: the free list and the LRU queue share prev/next (a block is in at
 * most one of them), hash chains use `chain`. */
#include "engine/llm/blocks.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/map.h"

struct block {
    uint32_t refs;
    uint32_t prev, next; /* in the free list or the LRU queue */
    uint32_t chain;      /* next in its hash bucket */
    uint32_t parent;     /* registered: parent's id */
    bool registered;
    uint64_t salt, hash;
    int32_t tokens[KV_BLOCK_TOK];
};

struct queue {
    uint32_t head, tail, n; /* head: next to be taken */
};

struct blocks {
    struct block *v;
    uint32_t total;
    struct queue free, lru;
    uint32_t *buckets;
    uint32_t mask;
    uint64_t seed;
    struct blocks_stats stats;
};

/* ---- queues ---- */

static void queue_push(struct blocks *b, struct queue *q, uint32_t id)
{
    struct block *k = &b->v[id];
    k->prev = q->tail;
    k->next = KV_BLOCK_NONE;
    if (q->tail != KV_BLOCK_NONE)
        b->v[q->tail].next = id;
    else
        q->head = id;
    q->tail = id;
    q->n++;
}

static void queue_remove(struct blocks *b, struct queue *q, uint32_t id)
{
    struct block *k = &b->v[id];
    if (k->prev != KV_BLOCK_NONE)
        b->v[k->prev].next = k->next;
    else
        q->head = k->next;
    if (k->next != KV_BLOCK_NONE)
        b->v[k->next].prev = k->prev;
    else
        q->tail = k->prev;
    k->prev = k->next = KV_BLOCK_NONE;
    q->n--;
}

/* ---- hash ---- */

static uint64_t hash_of(const struct blocks *b, uint32_t parent, uint64_t salt, const int32_t *tokens)
{
    uint64_t head[2] = {salt, parent};
    uint64_t h = hash_bytes(head, sizeof head, b->seed);
    return hash_bytes(tokens, KV_BLOCK_TOK * sizeof *tokens, h);
}

static uint32_t find(const struct blocks *b, uint64_t hash, uint32_t parent, uint64_t salt, const int32_t *tokens)
{
    for (uint32_t id = b->buckets[hash & b->mask]; id != KV_BLOCK_NONE; id = b->v[id].chain) {
        const struct block *k = &b->v[id];
        if (k->hash == hash && k->parent == parent && k->salt == salt && memcmp(k->tokens, tokens, sizeof k->tokens) == 0)
            return id;
    }
    return KV_BLOCK_NONE;
}

static void unregister(struct blocks *b, uint32_t id)
{
    struct block *k = &b->v[id];
    uint32_t *at = &b->buckets[k->hash & b->mask];
    while (*at != id) {
        ASSERT(*at != KV_BLOCK_NONE);
        at = &b->v[*at].chain;
    }
    *at = k->chain;
    k->chain = KV_BLOCK_NONE;
    k->registered = false;
}

/* ---- life ---- */

struct blocks *blocks_create(uint32_t total, uint64_t seed)
{
    if (total == 0 || total == KV_BLOCK_NONE)
        return NULL;
    struct blocks *b = calloc(1, sizeof *b);
    uint32_t n_buckets = 16;
    while (n_buckets < total && n_buckets < 1u << 31)
        n_buckets *= 2;
    if (b) {
        b->v = calloc(total, sizeof *b->v);
        b->buckets = malloc(n_buckets * sizeof *b->buckets);
    }
    if (!b || !b->v || !b->buckets) {
        blocks_destroy(b);
        return NULL;
    }
    b->total = total;
    b->mask = n_buckets - 1;
    b->seed = seed;
    b->free = b->lru = (struct queue){KV_BLOCK_NONE, KV_BLOCK_NONE, 0};
    for (uint32_t i = 0; i < n_buckets; i++)
        b->buckets[i] = KV_BLOCK_NONE;
    for (uint32_t id = 0; id < total; id++) {
        b->v[id].chain = KV_BLOCK_NONE;
        queue_push(b, &b->free, id);
    }
    return b;
}

void blocks_destroy(struct blocks *b)
{
    if (!b)
        return;
    free(b->v);
    free(b->buckets);
    free(b);
}

uint32_t blocks_available(const struct blocks *b)
{
    return b->free.n + b->lru.n;
}
uint32_t blocks_refs(const struct blocks *b, uint32_t id)
{
    return b->v[id].refs;
}

uint32_t blocks_alloc(struct blocks *b)
{
    uint32_t id = b->free.head;
    if (id != KV_BLOCK_NONE) {
        queue_remove(b, &b->free, id);
    } else {
        id = b->lru.head;
        if (id == KV_BLOCK_NONE)
            return KV_BLOCK_NONE;
        queue_remove(b, &b->lru, id);
        unregister(b, id);
        b->stats.evictions++;
    }
    DASSERT(b->v[id].refs == 0 && !b->v[id].registered);
    b->v[id].refs = 1;
    return id;
}

void blocks_ref(struct blocks *b, uint32_t id)
{
    ASSERT(id < b->total);
    struct block *k = &b->v[id];
    ASSERT(k->refs > 0 || k->registered);
    if (k->refs++ == 0)
        queue_remove(b, &b->lru, id);
}

void blocks_unref(struct blocks *b, uint32_t id)
{
    ASSERT(id < b->total && b->v[id].refs > 0);
    if (--b->v[id].refs > 0)
        return;
    queue_push(b, b->v[id].registered ? &b->lru : &b->free, id);
}

bool blocks_writable(const struct blocks *b, uint32_t id)
{
    return b->v[id].refs == 1 && !b->v[id].registered;
}

uint32_t blocks_match(struct blocks *b, uint64_t salt, const int32_t *tokens, size_t n_tok, uint32_t max_blocks,
                      uint32_t *table)
{
    uint32_t parent = KV_BLOCK_NONE, n = 0;
    while (n < max_blocks && (size_t)(n + 1) * KV_BLOCK_TOK <= n_tok) {
        const int32_t *t = tokens + (size_t)n * KV_BLOCK_TOK;
        uint32_t id = find(b, hash_of(b, parent, salt, t), parent, salt, t);
        if (id == KV_BLOCK_NONE)
            break;
        blocks_ref(b, id);
        table[n++] = parent = id;
    }
    return n;
}

uint32_t blocks_seal(struct blocks *b, uint32_t id, uint32_t parent, uint64_t salt, const int32_t *tokens)
{
    ASSERT(id < b->total && blocks_writable(b, id));
    if (parent != KV_BLOCK_NONE && !b->v[parent].registered)
        return id;
    uint64_t hash = hash_of(b, parent, salt, tokens);
    uint32_t same = find(b, hash, parent, salt, tokens);
    if (same != KV_BLOCK_NONE) {
        blocks_ref(b, same);
        blocks_unref(b, id);
        b->stats.shared++;
        return same;
    }
    struct block *k = &b->v[id];
    k->hash = hash;
    k->parent = parent;
    k->salt = salt;
    memcpy(k->tokens, tokens, sizeof k->tokens);
    k->registered = true;
    k->chain = b->buckets[hash & b->mask];
    b->buckets[hash & b->mask] = id;
    return id;
}

void blocks_forget(struct blocks *b)
{
    for (uint32_t id = 0; id < b->total; id++) {
        if (!b->v[id].registered)
            continue;
        unregister(b, id);
        if (b->v[id].refs == 0) {
            queue_remove(b, &b->lru, id);
            queue_push(b, &b->free, id);
        }
    }
}

void blocks_stats(const struct blocks *b, struct blocks_stats *out)
{
    *out = b->stats;
    out->total = b->total;
    out->free = b->free.n;
    out->cached = b->lru.n;
    out->used = b->total - b->free.n - b->lru.n;
}

/* ---- validation ---- */

/* Walk a queue: links agree both ways, the count is right, and each member fits. `age[id]`: position + 1. */
static bool validate_queue(const struct blocks *b, const struct queue *q, bool registered, uint32_t *age)
{
    uint32_t n = 0, prev = KV_BLOCK_NONE;
    for (uint32_t id = q->head; id != KV_BLOCK_NONE; id = b->v[id].next) {
        const struct block *k = &b->v[id];
        if (n >= b->total || k->prev != prev || k->refs != 0 || k->registered != registered || age[id])
            return false;
        age[id] = ++n;
        prev = id;
    }
    return n == q->n && q->tail == prev;
}

/* A registered block is in its bucket; its parent is registered and, when both are unused, younger. */
static bool validate_registered(const struct blocks *b, uint32_t id, const uint32_t *age)
{
    const struct block *k = &b->v[id];
    if (k->hash != hash_of(b, k->parent, k->salt, k->tokens) || find(b, k->hash, k->parent, k->salt, k->tokens) != id)
        return false;
    if (k->parent == KV_BLOCK_NONE)
        return true;
    const struct block *p = &b->v[k->parent];
    if (!p->registered || (k->refs > 0 && p->refs == 0))
        return false;
    return k->refs > 0 || p->refs > 0 || age[k->parent] > age[id];
}

bool blocks_validate(const struct blocks *b)
{
    uint32_t *age = calloc(b->total, sizeof *age);
    bool ok = age && validate_queue(b, &b->free, false, age) && validate_queue(b, &b->lru, true, age);
    for (uint32_t id = 0; ok && id < b->total; id++) {
        const struct block *k = &b->v[id];
        ok = (k->refs > 0) == (age[id] == 0) && (!k->registered || validate_registered(b, id, age));
    }
    free(age);
    return ok;
}
