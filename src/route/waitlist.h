/* waitlist.h: requests that wait at the gateway while every server of a pool is full, instead of piling onto one of them. Pure: no clock but
 * the one passed in, no allocation; the waiters are embedded in their owners.
 *
 * Who is next: the most important class that waits, strictly; within it, tenants in turn by what their requests cost (start-time fair queueing,
 * Goyal, Vin, Cheng 1996), so that one with a thousand requests delays another's first by one turn; within a tenant, in order of arrival.
 * Tenants share SLOTS queues by hash (stochastic fairness queueing, McKenney 1990).
 *
 * A full list makes room for who deserves it more: the latest of the least important class gives way to a more important newcomer, the latest
 * of the tenant with the most waiting to a newcomer of one with fewer. Everybody else is refused.
 *
 * One thread at a time (the pool's lock). next and remove O(log n), add O(log n), but O(SLOTS) when the list is full. */
#ifndef INFERD_ROUTE_WAITLIST_H
#define INFERD_ROUTE_WAITLIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/heap.h"
#include "base/list.h"

#define WAIT_SLOTS 128

enum wait_class { WAIT_CORE, WAIT_HIGH, WAIT_NORMAL, WAIT_LOW, WAIT_CLASSES };

struct waiter {
    /* set by the owner before waitlist_add */
    enum wait_class class;
    uint64_t tenant; /* hash; equal ones share a turn */
    uint64_t cost;   /* of the request, e.g. in tokens; at least 1 */
    /* the list's */
    struct heap_node node;
    struct list in_flow; /* in its tenant's queue; empty: it doesn't wait */
    uint64_t start, seq; /* virtual start, order of arrival; seq 0: never waited */
};

struct wait_flow {
    struct list waiters; /* in order of arrival */
    uint32_t n;
    uint64_t finish; /* virtual, of its latest */
};

struct waitlist {
    uint32_t n, max;
    uint64_t seq, virtual_now;
    struct wait_band {
        struct heap order;
        struct wait_flow flows[WAIT_SLOTS];
        uint32_t n;
    } bands[WAIT_CLASSES];
    uint64_t gone_ns, gap_ns; /* the latest grant; smoothed time between two while somebody waits; 0: unknown */
};

void waitlist_init(struct waitlist *l, uint32_t max);
/* Before its first waitlist_add. */
void waiter_init(struct waiter *w);
static inline bool waiter_waits(const struct waiter *w)
{
    return !list_empty(&w->in_flow);
}

/* `w` waits from now on. True: done; *evicted is who was thrown out for it, or NULL. False: the list is full of others who may wait as well
 * as it. One that had been next but found no room after all keeps its place, and is never refused. */
bool waitlist_add(struct waitlist *l, struct waiter *w, struct waiter **evicted);
/* The next one, taken off; NULL: nobody waits. */
struct waiter *waitlist_next(struct waitlist *l);
/* One that was next has found room: how fast the list moves is learned from that. */
void waitlist_served(struct waitlist *l, uint64_t now_ns);
/* It leaves. Idempotent. */
void waitlist_remove(struct waitlist *l, struct waiter *w);
/* About how long a newcomer of this class would wait, by how fast the list has moved; 0: unknown. Strangers' turns are counted as if all
 * that wait in its class and above came first. */
uint64_t waitlist_expect_ns(const struct waitlist *l, enum wait_class class);
/* ASSERTs that counts, queues and heaps agree. For tests. */
void waitlist_validate(const struct waitlist *l);

#endif
