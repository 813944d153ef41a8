/* arrival.h: who is about to arrive, learned from who arrived.
 *
 * rate:     rows per second with exponential forgetting.
 * model:    per bucket, two learned distributions of "how long until the next":
 *   returns  from the end of a batch to its clients' next requests. With N clients in a closed loop the N-k answers that
 *            have just gone out are worth waiting for, and nothing in the mean rate says so;
 *   gaps     from one arrival to the next: bursts.
 * Both are histograms on a log scale of time, forgetting, with a share for "never" (longer than anything worth waiting for).
 * The question that is asked of them: given what has come since, how many rows are expected within the next t ns.
 * See docs/internals/batcher.md. One thread, no allocation, O(1) per event, O(ring) per question. */
#ifndef INFERD_SCHED_ARRIVAL_H
#define INFERD_SCHED_ARRIVAL_H

#include <stdint.h>

struct arrival_rate {
    double rows_per_ns, last_ns;
};
/* `rows` arrived at `now`; forgetting over `span_ns`. */
void arrival_rate_add(struct arrival_rate *r, double now_ns, double rows, double span_ns);
double arrival_rate_at(const struct arrival_rate *r, double now_ns, double span_ns);

#define ARRIVAL_BINS 44 /* half octaves from 1 us to 4 s */
#define ARRIVAL_RING 8

/* A histogram of delays; weights grow instead of the old ones fading, and are scaled back now and then. */
struct arrival_hist {
    float bin[ARRIVAL_BINS];
    float never, total, unit;
};

struct arrival_model {
    struct arrival_rate rate;
    struct arrival_hist returns, gaps;
    /* Batches that ended lately and whose clients have not all come back: oldest first. */
    struct arrival_end {
        double at_ns, away_rows;
    } ends[ARRIVAL_RING];
    uint32_t n_ends;
    double last_arrival_ns; /* 0: none yet */
    double rows_per_arrival;
};

void arrival_init(struct arrival_model *a);
/* `rows` of one request arrived. `horizon_ns`: delays beyond it are "never". */
void arrival_note(struct arrival_model *a, double now_ns, double rows, double span_ns, double horizon_ns);
/* A batch of `rows` was answered. */
void arrival_ended(struct arrival_model *a, double now_ns, double rows, double horizon_ns);
/* Rows expected to come back within `t_ns` from now, of those that are away. */
double arrival_returns(const struct arrival_model *a, double now_ns, double t_ns);
/* Rows expected by the rhythm of arrivals: the next arrival's size times the chance that it comes within `t_ns`. */
double arrival_next(const struct arrival_model *a, double now_ns, double t_ns);

#endif
