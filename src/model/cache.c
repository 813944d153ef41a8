/* cache.c: see cache_priv.h. A fixed table of chains (sized from the byte limit), a list in order of use, refcounted entries. */
#include "model/cache_priv.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/list.h"
#include "base/map.h"
#include "base/size.h"
#include "os/thread.h"

#define CACHE_ENTRY_OVERHEAD 512 /* struct, slab headers, allocator: what an entry costs beside its bytes */

struct entry {
    _Atomic uint32_t refs;
    struct list use;     /* most recent first */
    struct entry *next;  /* chain */
    uint64_t hash, cost; /* cost in bytes */
    struct slab *key;
    size_t n_outputs;
    struct tensor outputs[]; /* dtype INVALID where not wanted */
};

struct cache {
    struct os_mutex lock;
    uint64_t limit, seed, hash_mask, bytes;
    size_t entries, n_chains;
    struct entry **chains;
    struct list use;
};

/* One input in front of its bytes. */
struct key_input {
    uint64_t dtype, bytes, rank;
    int64_t dim[TENSOR_RANK_MAX];
};

static bool is_wanted(const struct infer *inf, size_t i)
{
    return !inf->wanted || inf->wanted[i];
}

/* Size of the key; 0 on overflow. */
static size_t key_bytes(const struct infer *inf, size_t n_outputs)
{
    size_t n = n_outputs;
    for (size_t i = 0; i < inf->n_inputs; i++)
        if (!size_add(n, sizeof(struct key_input), &n) || !size_add(n, inf->inputs[i].data.n, &n))
            return 0;
    return n;
}

static void put_input(const struct tensor *t, struct key_input *out)
{
    *out = (struct key_input){.dtype = t->dtype, .bytes = t->data.n, .rank = t->shape.rank};
    for (int d = 0; d < t->shape.rank; d++)
        out->dim[d] = t->shape.dim[d];
}

static uint64_t key_hash(const struct cache *c, const struct infer *inf, size_t n_outputs)
{
    uint64_t h = c->seed;
    for (size_t i = 0; i < n_outputs; i++)
        h = (h << 1 | h >> 63) ^ is_wanted(inf, i);
    for (size_t i = 0; i < inf->n_inputs; i++) {
        struct key_input k;
        put_input(&inf->inputs[i], &k);
        h = hash_bytes(&k, sizeof k, h);
        h = hash_bytes(inf->inputs[i].data.p, inf->inputs[i].data.n, h);
    }
    return h & c->hash_mask;
}

/* The key as bytes: a byte an output, then each input's header and data. */
static struct slab *key_make(const struct infer *inf, size_t n_outputs, size_t bytes)
{
    struct slab *s = slab_create(bytes);
    if (!s)
        return NULL;
    uint8_t *at = s->data;
    for (size_t i = 0; i < n_outputs; i++)
        *at++ = is_wanted(inf, i);
    for (size_t i = 0; i < inf->n_inputs; i++) {
        struct key_input k;
        put_input(&inf->inputs[i], &k);
        memcpy(at, &k, sizeof k);
        at += sizeof k;
        if (k.bytes)
            memcpy(at, inf->inputs[i].data.p, k.bytes);
        at += k.bytes;
    }
    s->n = bytes;
    return s;
}

static bool key_matches(const struct entry *e, const struct infer *inf, size_t n_outputs, size_t bytes)
{
    if (e->key->n != bytes || e->n_outputs != n_outputs)
        return false;
    const uint8_t *at = e->key->data;
    for (size_t i = 0; i < n_outputs; i++)
        if (*at++ != is_wanted(inf, i))
            return false;
    for (size_t i = 0; i < inf->n_inputs; i++) {
        struct key_input k;
        put_input(&inf->inputs[i], &k);
        if (memcmp(at, &k, sizeof k) != 0 || (k.bytes && memcmp(at + sizeof k, inf->inputs[i].data.p, k.bytes) != 0))
            return false;
        at += sizeof k + k.bytes;
    }
    return true;
}

static void entry_unref(struct entry *e)
{
    if (!e || atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) != 1)
        return;
    slab_unref(e->key);
    for (size_t i = 0; i < e->n_outputs; i++)
        tensor_release(&e->outputs[i]);
    free(e);
}

struct cache *cache_create(uint64_t limit_bytes, uint64_t seed, uint64_t hash_mask)
{
    struct cache *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    size_t n = 64;
    while (n < 65536 && n < limit_bytes / 4096)
        n <<= 1;
    c->chains = (struct entry **)calloc(n, sizeof(struct entry *));
    if (!c->chains) {
        free(c);
        return NULL;
    }
    c->n_chains = n;
    c->limit = limit_bytes;
    c->seed = seed;
    c->hash_mask = hash_mask;
    list_init(&c->use);
    os_mutex_init(&c->lock, RANK_CACHE);
    return c;
}

void cache_destroy(struct cache *c)
{
    if (!c)
        return;
    struct list *l;
    while ((l = list_pop_front(&c->use)))
        entry_unref(LIST_ENTRY(l, struct entry, use));
    os_mutex_release(&c->lock);
    free((void *)c->chains);
    free(c);
}

/* A candidate with this hash behind `after` in the chain (NULL: the first), referenced. Lock held. */
static struct entry *next_candidate(struct cache *c, uint64_t hash, struct entry *after)
{
    struct entry *e = after ? after->next : c->chains[hash & (c->n_chains - 1)];
    while (e && e->hash != hash)
        e = e->next;
    if (e)
        atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
    return e;
}

static void unlink_entry(struct cache *c, struct entry *e)
{
    struct entry **at = &c->chains[e->hash & (c->n_chains - 1)];
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    list_remove(&e->use);
    c->bytes -= e->cost;
    c->entries--;
}

/* The entry of this very request, referenced and moved to the front; NULL. Comparing happens under the lock only for entries whose
 * whole hash is equal: in practice the right one. */
static struct entry *find(struct cache *c, const struct infer *inf, size_t n_outputs, size_t bytes, uint64_t hash)
{
    os_mutex_lock(&c->lock);
    struct entry *e = next_candidate(c, hash, NULL);
    while (e && !key_matches(e, inf, n_outputs, bytes)) {
        struct entry *next = next_candidate(c, hash, e);
        atomic_fetch_sub_explicit(&e->refs, 1, memory_order_relaxed); /* linked: not the last one */
        e = next;
    }
    if (e) {
        list_remove(&e->use);
        list_push_front(&c->use, &e->use);
    }
    os_mutex_unlock(&c->lock);
    return e;
}

bool cache_get(struct cache *c, struct infer *inf, size_t n_outputs)
{
    size_t bytes = key_bytes(inf, n_outputs);
    if (!bytes || bytes > c->limit / 4)
        return false;
    struct entry *e = find(c, inf, n_outputs, bytes, key_hash(c, inf, n_outputs));
    if (!e)
        return false;
    for (size_t i = 0; i < n_outputs; i++) {
        inf->outputs[i] = e->outputs[i];
        if (inf->outputs[i].data.owner)
            slab_ref(inf->outputs[i].data.owner);
    }
    entry_unref(e);
    return true;
}

/* All outputs packed into one slab, each at a multiple of 64. */
static struct entry *entry_make(const struct infer *inf, size_t n_outputs, size_t key_size, uint64_t hash, uint64_t most)
{
    size_t total = 0, at = 0;
    for (size_t i = 0; i < n_outputs; i++)
        if (!size_add(total, inf->outputs[i].data.n, &total) || !size_align(total, 64, &total))
            return NULL;
    uint64_t cost = (uint64_t)total + key_size + CACHE_ENTRY_OVERHEAD + n_outputs * sizeof(struct tensor);
    if (cost > most)
        return NULL;
    struct entry *e = calloc(1, sizeof *e + n_outputs * sizeof(struct tensor));
    struct slab *data = slab_create(total ? total : 1);
    if (e)
        e->key = key_make(inf, n_outputs, key_size);
    if (!e || !data || !e->key) {
        slab_unref(data);
        slab_unref(e ? e->key : NULL);
        free(e);
        return NULL;
    }
    e->refs = 1;
    e->hash = hash;
    e->cost = cost;
    e->n_outputs = n_outputs;
    for (size_t i = 0; i < n_outputs; i++) {
        e->outputs[i] = inf->outputs[i];
        size_t n = inf->outputs[i].data.n;
        if (n)
            memcpy(data->data + at, inf->outputs[i].data.p, n);
        e->outputs[i].data = slice_of(data, at, n);
        at = (at + n + 63) & ~(size_t)63;
    }
    slab_unref(data);
    return e;
}

void cache_put(struct cache *c, const struct infer *inf, size_t n_outputs)
{
    size_t bytes = key_bytes(inf, n_outputs);
    if (!bytes || bytes > c->limit / 4)
        return;
    uint64_t hash = key_hash(c, inf, n_outputs);
    struct entry *known = find(c, inf, n_outputs, bytes, hash);
    if (known) {
        entry_unref(known);
        return;
    }
    struct entry *e = entry_make(inf, n_outputs, bytes, hash, c->limit / 4);
    if (!e)
        return;
    struct list out;
    list_init(&out);
    os_mutex_lock(&c->lock);
    while (c->bytes + e->cost > c->limit) {
        struct entry *old = LIST_ENTRY(list_last(&c->use), struct entry, use);
        unlink_entry(c, old);
        list_push_back(&out, &old->use);
    }
    struct entry **chain = &c->chains[hash & (c->n_chains - 1)];
    e->next = *chain;
    *chain = e;
    list_push_front(&c->use, &e->use);
    c->bytes += e->cost;
    c->entries++;
    os_mutex_unlock(&c->lock);
    struct list *l;
    while ((l = list_pop_front(&out)))
        entry_unref(LIST_ENTRY(l, struct entry, use));
}

void cache_get_stats(struct cache *c, struct cache_stats *out)
{
    os_mutex_lock(&c->lock);
    *out = (struct cache_stats){c->bytes, c->entries};
    os_mutex_unlock(&c->lock);
}
