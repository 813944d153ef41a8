/* arrival.h: who is about to arrive, learned from who arrived.
 *
 * rate:     rows per second with exponential forgetting.
 * model:    per bucket, two learned distributions of "how long until the next":
 *   returns  from the end of a batch to its clients' next requests. With N clients in a closed loop the N-k answers that
 *            have just gone out are worth waiting for, and nothing in the mean rate says so;
 *   bursts   arrivals that aren't returns: how likely the j-th of a burst is followed by another, and how soon.
 * The distributions are histograms on a log scale of time, forgetting, with a share for "never" (longer than anything worth
 * waiting for). An arrival is counted as the return of the longest-gone row that is still away; who really came doesn't
 * matter, the counts do. The question that is asked: given what has come since, how many rows are expected within the next
 * t ns? It is answered from below, at about two standard errors: thin evidence is no reason to make anyone wait; and mixed
 * with the mean rate's answer by how much better than it the returns predict (in a Poisson stream, not at all).
 * See docs/internals/batcher.md. One thread, no allocation, O(1) per event, O(bins) per look, O(ring) per question. */
#ifndef INFERD_SCHED_ARRIVAL_H
#define INFERD_SCHED_ARRIVAL_H

#include <stdbool.h>
#include <stdint.h>

struct arrival_rate {
    double rows_per_ns, last_ns;
};
/* exp(-x) for x >= 0, near enough for forgetting: within 3 % of 1 below x = 1, and cheap. */
static inline double arrival_fade(double x)
{
    return 1 / (1 + x * (1 + x * (0.5 + x * (1.0 / 6))));
}
/* `rows` arrived at `now`; forgetting over `span_ns`. */
void arrival_rate_add(struct arrival_rate *r, double now_ns, double rows, double span_ns);
double arrival_rate_at(const struct arrival_rate *r, double now_ns, double span_ns);

#define ARRIVAL_BINS  44 /* half octaves from 1 us to 4 s */
#define ARRIVAL_RING  8
#define ARRIVAL_BURST 64 /* places told apart in a burst; the last stands for all beyond */

/* A histogram of delays; weights grow instead of the old ones fading, and are scaled back now and then. */
struct arrival_hist {
    float bin[ARRIVAL_BINS];
    float never, total, unit;
};

struct arrival_model {
    struct arrival_rate rate;
    struct arrival_hist returns, gaps; /* gaps: within bursts */
    /* Batches that ended lately and whose clients have not all come back: oldest first. */
    struct arrival_end {
        double at_ns, away_rows;
    } ends[ARRIVAL_RING];
    uint32_t n_ends;
    /* Bursts: `place` is how many have come in the current one; `followed` of `seen` at that place had a successor. */
    double last_fresh_ns; /* 0: none yet */
    uint32_t place;
    struct arrival_burst {
        float followed, seen;
    } burst[ARRIVAL_BURST];
    double rows_per_arrival;
    /* Do the returns explain anything? A window after each batch's end in which their prediction and the mean rate's are
     * compared with what comes: squared errors, fading. */
    double check_until_ns, check_returns, check_rate, check_came;
    double error_returns, error_rate;
    double fresh_share; /* of the rows that came, those that nobody was away for */
};

void arrival_init(struct arrival_model *a);
/* `rows` of one request arrived. `horizon_ns`: delays beyond it are "never"; a quarter of it ends a burst. */
void arrival_note(struct arrival_model *a, double now_ns, double rows, double span_ns, double horizon_ns);
/* A batch of `rows` was answered; what comes back within `window_ns` is compared with the prediction. */
void arrival_ended(struct arrival_model *a, double now_ns, double rows, double horizon_ns, double window_ns, double span_ns);
/* Rows that are away: answered, and not come back yet. */
double arrival_away(const struct arrival_model *a);
/* False: nobody is expected at all, whatever the horizon. */
bool arrival_any(const struct arrival_model *a);
/* What the model expects as of one moment, prepared so that many horizons can be asked about cheaply. */
struct arrival_view {
    const struct arrival_model *model;
    double now_ns;
    double rate;                                             /* rows per ns */
    double trust;                                            /* in the returns, against the rate: 0..1 */
    float returns[ARRIVAL_BINS + 1], gaps[ARRIVAL_BINS + 1]; /* cumulative weights below each bin */
};
void arrival_look(struct arrival_view *v, const struct arrival_model *a, double now_ns, double span_ns);
/* Rows expected to come back within `t_ns`, of those that are away. */
double arrival_returns(const struct arrival_view *v, double t_ns);
/* Rows expected within `t_ns` beyond the returns, by their mean rate. */
double arrival_fresh(const struct arrival_view *v, double t_ns);
/* Rows expected to follow in the current burst within `t_ns`: the next arrival's size times its chance. */
double arrival_next(const struct arrival_view *v, double t_ns);

#endif
