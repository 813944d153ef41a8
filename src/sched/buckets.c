/* buckets.c: the table of shape buckets. A client chooses shapes, so it can make up any number of them: the table holds at
 * most BATCH_BUCKETS_MAX, idle ones are reused least recently used first, and when all of them have work queued or running
 * the next new shape is refused. What a bucket learned goes with it when it is reused; its neighbours still know roughly. */
#include "sched/batcher_priv.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/status.h"

static uint32_t slot_of(uint64_t id)
{
    id ^= id >> 32;
    id *= 0xd6e8feb86659fd93u;
    id ^= id >> 32;
    return (uint32_t)id & (BATCH_HASH_SLOTS - 1);
}

static bool arrival_less(const struct rank_node *x, const struct rank_node *y)
{
    return batcher__item(x)->seq < batcher__item(y)->seq;
}

static bool order_less(const struct rank_node *x, const struct rank_node *y)
{
    const struct batch_item *a = batcher__item(x), *b = batcher__item(y);
    if (a->class != b->class)
        return a->class < b->class;
    if (a->level != b->level)
        return a->level < b->level;
    if (a->demoted != b->demoted)
        return b->demoted;
    if (a->turn != b->turn)
        return a->turn < b->turn;
    if (a->order_ns != b->order_ns)
        return a->order_ns < b->order_ns;
    return a->seq < b->seq;
}

void batcher__bucket_init(const struct batcher *b, struct batch_bucket *k, uint64_t id)
{
    *k = (struct batch_bucket){.id = id, .cap = b->policy.max_rows};
    rank_init(&k->queue, b->policy.preserve_ordering ? arrival_less : order_less);
    list_init(&k->where);
    latency_init(&k->latency);
    arrival_init(&k->arrival);
}

struct batch_bucket *batcher__bucket_find(const struct batcher *b, uint64_t id)
{
    struct batch_bucket *k = b->hash[slot_of(id)];
    while (k && k->id != id)
        k = k->chain;
    return k;
}

static void unhash(struct batcher *b, struct batch_bucket *k)
{
    struct batch_bucket **at = &b->hash[slot_of(k->id)];
    while (*at != k)
        at = &(*at)->chain;
    *at = k->chain;
}

/* How unlike two row weights are; unknown weights are all alike. */
static double unlikeness(double a, double b)
{
    return a > 0 && b > 0 ? fabs(log(a / b)) : 0;
}

/* The bucket with own runs whose rows weigh most nearly `row_bytes`, busier ones first among equals. */
/* The bucket with own runs whose rows weigh most nearly `row_bytes` (0: unknown, the one with most runs); NULL: none. */
static const struct batch_bucket *bucket_like(const struct batcher *b, double row_bytes)
{
    const struct batch_bucket *best = NULL;
    for (uint32_t i = 0; i < BATCH_HASH_SLOTS; i++)
        for (const struct batch_bucket *k = b->hash[i]; k; k = k->chain) {
            if (k->latency.runs == 0)
                continue;
            double d = best ? unlikeness(k->row_bytes, row_bytes) - unlikeness(best->row_bytes, row_bytes) : -1;
            if (d < 0 || (d == 0 && k->latency.runs > best->latency.runs))
                best = k;
        }
    return best;
}

static struct batch_bucket *make(struct batcher *b, int *status)
{
    if (b->n_buckets < BATCH_BUCKETS_MAX) {
        struct batch_bucket *k = malloc(sizeof *k);
        if (!k) {
            *status = STATUS_NOMEM;
            return NULL;
        }
        b->n_buckets++;
        return k;
    }
    LIST_EACH(at, &b->idle)
    {
        struct batch_bucket *k = LIST_ENTRY(at, struct batch_bucket, where);
        if (k->running)
            continue;
        list_remove(&k->where);
        unhash(b, k);
        return k;
    }
    *status = STATUS_EXHAUSTED;
    return NULL;
}

struct batch_bucket *batcher__bucket_get(struct batcher *b, uint64_t id, double row_bytes, int *status)
{
    struct batch_bucket *k = batcher__bucket_find(b, id);
    if (k)
        return k;
    k = make(b, status);
    if (!k)
        return NULL;
    batcher__bucket_init(b, k, id);
    k->row_bytes = row_bytes;
    const struct batch_bucket *like = bucket_like(b, row_bytes);
    if (like) {
        double scale = row_bytes > 0 && like->row_bytes > 0 ? row_bytes / like->row_bytes : 1;
        latency_borrow(&k->latency, &like->latency, MIN_OF(MAX_OF(scale, 0.125), 8.0));
        k->cap = like->cap;
    }
    struct batch_bucket **slot = &b->hash[slot_of(id)];
    k->chain = *slot;
    *slot = k;
    list_push_back(&b->idle, &k->where);
    return k;
}

void batcher__bucket_moved(struct batcher *b, struct batch_bucket *k)
{
    list_remove(&k->where);
    if (k->queue.root)
        list_push_back(&b->active, &k->where);
    else if (!k->alone)
        list_push_back(&b->idle, &k->where);
}

struct batch_bucket *batcher__bucket_urgent(const struct batcher *b, const struct batch_bucket *but_not)
{
    struct batch_bucket *best = NULL;
    for (const struct list *at = b->active.next; at != &b->active; at = at->next) {
        struct batch_bucket *k = LIST_ENTRY(at, struct batch_bucket, where);
        if (k != but_not && (!best || k->queue.less(rank_first(&k->queue), rank_first(&best->queue))))
            best = k;
    }
    return best;
}

void batcher__buckets_release(struct batcher *b)
{
    for (uint32_t i = 0; i < BATCH_HASH_SLOTS; i++) {
        while (b->hash[i]) {
            struct batch_bucket *k = b->hash[i];
            b->hash[i] = k->chain;
            free(k);
        }
    }
}
