/* ring.h: bounded queue of fixed-size records, many producers, one consumer, no locks.
 *
 * Dmitry Vyukov's bounded queue: each slot has a sequence number that says whose turn it is. A producer claims a position by one compare
 * and swap, copies its record in and releases the slot by storing the sequence; the consumer waits for that. A full ring
 * refuses: nobody blocks. A producer that is descheduled between claim and release delays the records behind it, never other
 * producers. Sequences live apart from the slots, so that an idle ring touches 8 bytes a slot and not the records. */
#ifndef INFERD_OBS_RING_H
#define INFERD_OBS_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ring {
    size_t slots, slot_bytes;           /* slots: a power of two */
    _Atomic uint64_t *turns;            /* [slots]: == position: free for it; == position + 1: filled */
    char *records;                      /* [slots * slot_bytes] */
    _Alignas(64) _Atomic uint64_t head; /* next position to claim */
    _Alignas(64) _Atomic uint64_t tail; /* next position to take; written by the consumer only */
};

/* `slots` is rounded up to a power of two, at least 2. False when out of memory. */
bool ring_init(struct ring *r, size_t slots, size_t slot_bytes);
void ring_release(struct ring *r);
/* Copy a record in. False when full. Any thread; never blocks. */
bool ring_push(struct ring *r, const void *record);
/* Copy the oldest record out. False when there is none (or its producer has not finished). The consumer only. */
bool ring_pop(struct ring *r, void *record);
/* Records in the ring now, claimed ones included; roughly. Any thread. Sequentially consistent with ring_push: a consumer that
 * stores "I sleep" (seq_cst) and then sees 0 here is seen sleeping by whoever pushes next and loads the flag (seq_cst). */
size_t ring_length(const struct ring *r);

#endif
