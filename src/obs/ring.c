/* ring.c: see ring.h. Pairing: the producer's release store of `turns` with the consumer's acquire load (record contents), and
 * the consumer's release store with the producer's acquire load (slot is free again). */
#include "obs/ring.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"

bool ring_init(struct ring *r, size_t slots, size_t slot_bytes)
{
    size_t n = 2, bytes;
    while (n < slots)
        if (!size_mul(n, 2, &n))
            return false;
    memset(r, 0, sizeof *r);
    r->slots = n;
    r->slot_bytes = slot_bytes;
    r->turns = calloc(n, sizeof *r->turns);
    r->records = size_mul(n, slot_bytes, &bytes) ? malloc(bytes) : NULL;
    if (!r->turns || !r->records) {
        ring_release(r);
        return false;
    }
    for (size_t i = 0; i < n; i++)
        atomic_init(&r->turns[i], i);
    return true;
}

void ring_release(struct ring *r)
{
    free(r->turns);
    free(r->records);
    r->turns = NULL;
    r->records = NULL;
}

static size_t slot_of(const struct ring *r, uint64_t position)
{
    return (size_t)position & (r->slots - 1);
}

bool ring_push(struct ring *r, const void *record)
{
    uint64_t at = atomic_load_explicit(&r->head, memory_order_relaxed);
    for (;;) {
        uint64_t turn = atomic_load_explicit(&r->turns[slot_of(r, at)], memory_order_acquire);
        int64_t ahead = (int64_t)(turn - at);
        if (ahead < 0)
            return false; /* still holds the record of one round ago */
        if (ahead == 0) {
            if (atomic_compare_exchange_weak_explicit(&r->head, &at, at + 1, memory_order_seq_cst, memory_order_relaxed))
                break;
        } else {
            at = atomic_load_explicit(&r->head, memory_order_relaxed);
        }
    }
    memcpy(r->records + slot_of(r, at) * r->slot_bytes, record, r->slot_bytes);
    atomic_store_explicit(&r->turns[slot_of(r, at)], at + 1, memory_order_release);
    return true;
}

bool ring_pop(struct ring *r, void *record)
{
    uint64_t at = atomic_load_explicit(&r->tail, memory_order_relaxed);
    size_t slot = slot_of(r, at);
    if (atomic_load_explicit(&r->turns[slot], memory_order_acquire) != at + 1)
        return false;
    memcpy(record, r->records + slot * r->slot_bytes, r->slot_bytes);
    atomic_store_explicit(&r->turns[slot], at + r->slots, memory_order_release);
    atomic_store_explicit(&r->tail, at + 1, memory_order_relaxed);
    return true;
}

size_t ring_length(const struct ring *r)
{
    uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&r->head, memory_order_seq_cst);
    return head > tail ? (size_t)MIN_OF(head - tail, (uint64_t)r->slots) : 0;
}
