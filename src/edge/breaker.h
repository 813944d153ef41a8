/* breaker.h: one model's circuit breaker: stop asking a model that fails, and find out cheaply when it has recovered.
 *
 *     CLOSED --too many errors, or too many slow answers, in the window--> OPEN --after open_ns--> HALF_OPEN --probes succeed--> CLOSED
 *                                                                           ^                        |
 *                                                                           +---- a probe fails -----+  (open twice as long, up to 16 times)
 *
 * The window is ten slots; a slot's count leaves with its time. In HALF_OPEN at most `probes` requests are under way at once, and as many
 * successes in a row close it. What is the caller's fault, or nobody's (he left), says nothing about the model: such a probe
 * gives its place back. An answer to a request from before the last change of state is not counted.
 *
 * Pure: no clock, no lock, no allocation. One thread at a time (limit_gate.c locks). */
#ifndef INFERD_EDGE_BREAKER_H
#define INFERD_EDGE_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#define BREAKER_SLOTS 10

enum breaker_state { BREAKER_CLOSED, BREAKER_HALF_OPEN, BREAKER_OPEN };
/* "closed", "half_open", "open". */
const char *breaker_state_name(enum breaker_state s);

/* LATE: nobody waits for the answer any more: it says something only when it is slow already. */
enum breaker_outcome { BREAKER_OK, BREAKER_ERROR, BREAKER_LATE, BREAKER_SAYS_NOTHING };

struct breaker_options {
    double error_rate;  /* share of answers that opens it; 0: errors don't */
    uint64_t slow_ns;   /* an answer that took longer is slow; 0: latency doesn't open it */
    double slow_rate;   /* share of slow answers that opens it */
    uint32_t minimum;   /* answers in the window before anything is concluded; at least 1 */
    uint64_t window_ns; /* at least BREAKER_SLOTS */
    uint64_t open_ns;
    uint32_t probes; /* at least 1 */
};

struct breaker {
    struct breaker_options o;
    enum breaker_state state;
    uint32_t epoch; /* changes with the state */
    struct breaker_slot {
        uint64_t index; /* which slot of time it counts */
        uint32_t answers, errors, slow;
    } slots[BREAKER_SLOTS];
    uint64_t until_ns; /* OPEN */
    uint32_t failures; /* times opened without having closed in between */
    uint32_t probing, succeeded;
};

void breaker_init(struct breaker *b, const struct breaker_options *o);
/* New thresholds; what was counted stays. */
void breaker_configure(struct breaker *b, const struct breaker_options *o);

/* May a request be tried? *epoch is for breaker_end. False: not before *wait_ns. May change the state to HALF_OPEN. */
bool breaker_begin(struct breaker *b, uint64_t now_ns, uint32_t *epoch, uint64_t *wait_ns);
/* How it ended. May change the state; a good answer never opens it. */
void breaker_end(struct breaker *b, uint32_t epoch, enum breaker_outcome outcome, uint64_t latency_ns, uint64_t now_ns);

/* Sums over the window. */
struct breaker_slot breaker_counts(const struct breaker *b, uint64_t now_ns);

#endif
