/* delivery.h: how long a request takes between the wire and the engine's hands.
 *
 * A deadline is the client's: an answer that is computed just in time is late when the I/O thread has other work, or shares its core with
 * the engine. The way out is measured: the mean and four mean deviations, as TCP estimates its retransmission timeout (RFC 6298). The way in
 * waits for the same thread but can't be seen, as a request's clock starts when it is read; it is taken to be as long. The batcher is given
 * deadlines that are earlier by both ways, and never by more than a fifth of the time there is. Refusals get out in time that way, too.
 *
 * Written by any number of threads without a lock: a lost update is a lost sample. */
#ifndef INFERD_SCHED_DELIVERY_H
#define INFERD_SCHED_DELIVERY_H

#include <stdatomic.h>
#include <stdint.h>

/* Zeroed: nothing known. */
struct delivery {
    _Atomic uint64_t mean_ns, deviation_ns;
};

/* One answer took `ns`. */
void delivery_learn(struct delivery *d, uint64_t ns);
/* What to keep in hand of `left_ns` that an answer has. */
uint64_t delivery_allowance_ns(const struct delivery *d, uint64_t left_ns);

#endif
