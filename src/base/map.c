/* map.c: linear probing, at most 3/4 full, backward-shift deletion (no tombstones, so probes never grow stale). */
#include "base/map.h"

#include <stdlib.h>

#include "base/size.h"
#include "base/status.h"

static uint64_t rotl(uint64_t x, int b)
{
    return (x << b) | (x >> (64 - b));
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1], v[1] = rotl(v[1], 13) ^ v[0], v[0] = rotl(v[0], 32);
    v[2] += v[3], v[3] = rotl(v[3], 16) ^ v[2];
    v[0] += v[3], v[3] = rotl(v[3], 21) ^ v[0];
    v[2] += v[1], v[1] = rotl(v[1], 17) ^ v[2], v[2] = rotl(v[2], 32);
}

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed)
{
    const uint8_t *in = p;
    uint64_t k0 = seed, k1 = rotl(seed, 32) ^ 0x9e3779b97f4a7c15u, word;
    uint64_t v[4] = {k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du, k0 ^ 0x6c7967656e657261u, k1 ^ 0x7465646279746573u};
    for (size_t left = n; left >= 8; left -= 8, in += 8) {
        memcpy(&word, in, 8);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    word = (uint64_t)n << 56;
    for (size_t i = 0; i < n % 8; i++)
        word |= (uint64_t)in[i] << (8 * i);
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void map_init(struct map *m, uint64_t seed)
{
    *m = (struct map){.seed = seed};
}

void map_release(struct map *m)
{
    free(m->slots);
    map_init(m, m->seed);
}

/* Slot of `key`, or the empty slot where it would go. cap > 0. */
static struct map_slot *probe(const struct map *m, uint64_t hash, struct str key)
{
    for (size_t i = hash & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        struct map_slot *s = &m->slots[i];
        if (!s->value || (s->hash == hash && str_eq(s->key, key)))
            return s;
    }
}

void *map_get(const struct map *m, struct str key)
{
    return m->n ? probe(m, hash_bytes(key.p, key.n, m->seed), key)->value : NULL;
}

static int grow(struct map *m)
{
    struct map old = *m;
    size_t cap;
    if (!size_mul(m->cap ? m->cap : 8, 2, &cap))
        return STATUS_NOMEM;
    struct map_slot *slots = calloc(cap, sizeof *slots);
    if (!slots)
        return STATUS_NOMEM;
    m->slots = slots;
    m->cap = cap;
    for (size_t i = 0; i < old.cap; i++)
        if (old.slots[i].value)
            *probe(m, old.slots[i].hash, old.slots[i].key) = old.slots[i];
    free(old.slots);
    return 0;
}

int map_put(struct map *m, struct str key, void *value)
{
    if ((m->n + 1) * 4 > m->cap * 3) {
        int rc = grow(m);
        if (rc < 0)
            return rc;
    }
    uint64_t hash = hash_bytes(key.p, key.n, m->seed);
    struct map_slot *s = probe(m, hash, key);
    m->n += !s->value;
    *s = (struct map_slot){hash, key, value};
    return 0;
}

void *map_remove(struct map *m, struct str key)
{
    if (!m->n)
        return NULL;
    struct map_slot *hole = probe(m, hash_bytes(key.p, key.n, m->seed), key);
    void *value = hole->value;
    if (!value)
        return NULL;
    size_t mask = m->cap - 1, at = (size_t)(hole - m->slots);
    for (size_t i = (at + 1) & mask; m->slots[i].value; i = (i + 1) & mask) {
        size_t home = m->slots[i].hash & mask;
        if (((i - home) & mask) >= ((i - at) & mask)) { /* its home is at or before the hole */
            m->slots[at] = m->slots[i];
            at = i;
        }
    }
    m->slots[at] = (struct map_slot){0};
    m->n--;
    return value;
}

bool map_next(const struct map *m, size_t *at, struct str *key, void **value)
{
    for (; *at < m->cap; ++*at) {
        if (!m->slots[*at].value)
            continue;
        if (key)
            *key = m->slots[*at].key;
        if (value)
            *value = m->slots[*at].value;
        ++*at;
        return true;
    }
    return false;
}
