/* fair.h: whose turn it is, where several tenants queue: start-time fair queueing (Goyal, Vin, Cheng, "Start-time Fair Queuing", SIGCOMM 1996)
 * over rows, with room for a bounded number of flows.
 *
 * A flow's requests stand one behind the other on a line of rows; a request starts where the one before it of the same flow ends, but not before
 * the place that is being served now. Whoever starts first is served first. So a flow that sends more than its part gets places ever
 * further back, and one that sends little is always served about now, whatever the others have queued. An idle flow saves nothing up.
 *
 * Flows beyond the table share one place in it. Pure; one thread at a time. */
#ifndef INFERD_SCHED_FAIR_H
#define INFERD_SCHED_FAIR_H

#include <stdbool.h>
#include <stdint.h>

#define FAIR_FLOWS  256
#define FAIR_PROBES 16

struct fair {
    uint64_t now; /* the start of what was served last */
    struct fair_flow {
        uint64_t id;
        uint64_t next; /* where its next request starts at the earliest */
        uint32_t queued;
    } flows[FAIR_FLOWS + 1]; /* the last: everybody else */
};

/* Zeroed memory is ready for use. Where a request of `flow` would start; nothing is changed. */
uint64_t fair_start(struct fair *f, uint64_t flow);
/* It is queued there. */
void fair_enter(struct fair *f, uint64_t flow, uint32_t rows);
/* A request that started at `start` leaves the queue; `served`: it is being run. */
void fair_leave(struct fair *f, uint64_t flow, uint64_t start, bool served);

#endif
