/* limit.h: how many requests of one model may be under way at once, found by measuring.
 *
 * A request that waits behind others takes longer than its run; one that runs beside others may, too. So every answer brings two times: how long
 * it took from admission on, and how long the run that answered it took. The least run time seen for runs of its size is what an unloaded
 * model would have taken. The ratio of the two, summed over a window, is the congestion, and the limit follows it:
 *
 *     gradient = clamp(tolerance * sum of minima / sum of latencies, 1/2, 1)
 *     limit   <- 0.8 limit + 0.2 (gradient * limit + sqrt(limit)),  within [least, most]
 *
 * as in Envoy's gradient controller and Netflix's Gradient2; sqrt(limit) is the room that lets it rise again, and it rises only while requests
 * use more than half of it. What is different here: the minimum is kept by size of the run (powers of two), since a batch of sixteen is not
 * congestion; and it is re-measured without throttling, because inside the server a run can be told from the wait before it. Where it
 * can't (a language model's first token), an epoch spent at the limit ends with one window at half of it, which shows the minimum again.
 * A minimum lives for one to two epochs, so a model that became slower for good is believed after that.
 *
 * Classes: a request counts against those of its own class and of more important ones only. A queue that serves the important first makes
 * them wait for nobody else; so the least important are refused first, and the most important only for their own number.
 *
 * Tenants: when a class is at the limit, a tenant that has less under way than an equal part of it is let in all the same, so that one
 * that fills the limit alone does not lock the others out.
 *
 * Bursts: past the limit, `burst` more are let in until less than half of it is under way again.
 *
 * Pure: no clock, no lock, no allocation. One thread at a time (limit_gate.c locks). */
#ifndef INFERD_EDGE_LIMIT_H
#define INFERD_EDGE_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most important first; the names are those of files, headers and metrics. */
enum limit_class { LIMIT_CORE, LIMIT_HIGH, LIMIT_NORMAL, LIMIT_LOW, LIMIT_CLASSES };
/* "core", "high", "normal", "low". */
const char *limit_class_name(enum limit_class c);

#define LIMIT_SIZES        24
#define LIMIT_TENANTS      256 /* told apart at once; more share no equal part */
#define LIMIT_WINDOW_NS    100000000ull
#define LIMIT_WINDOW_MIN   10 /* answers in a window at least */
#define LIMIT_REQUESTS_MAX 1000000u

struct limit_options {
    bool adaptive;     /* false: `most` is the limit */
    uint32_t least;    /* never below: what keeps the model busy. At least 1 */
    uint32_t most;     /* never above; at least `least` */
    uint32_t burst;    /* UINT32_MAX: a quarter of the limit */
    double tolerance;  /* how many times the minimum a latency may be before the limit falls; > 1 */
    uint64_t epoch_ns; /* see above */
};

/* Requests under way by tenant and class: open addressing, emptied slots are closed up. */
struct limit_shares {
    struct limit_share {
        uint64_t tenant; /* 0: empty */
        uint32_t n;
    } slots[LIMIT_TENANTS];
    uint32_t used;
    uint32_t active[LIMIT_CLASSES]; /* tenants with something under way */
};

struct limit {
    struct limit_options o;
    double limit;
    uint32_t in_flight[LIMIT_CLASSES];
    uint32_t burst_left;
    struct limit_shares shares;
    /* the window */
    uint64_t window_ns; /* began; 0: none yet */
    uint32_t samples, peak;
    double latency_ns, minimum_ns;
    /* the minimum */
    uint64_t epoch_at_ns;
    uint64_t least_ns[2][LIMIT_SIZES]; /* this epoch's and the one before's; 0: none */
    double least_each[2][LIMIT_SIZES]; /* the same for a row or token of it */
    bool blind;                        /* run and wait can't be told apart */
    bool reached;                      /* the limit was, in this epoch */
    double probing;                    /* the limit to go back to; 0: no probe is under way */
    double gradient;                   /* of the last window */
};

void limit_init(struct limit *l, const struct limit_options *o);
/* New bounds for a limiter at work. */
void limit_configure(struct limit *l, const struct limit_options *o);

/* May a request of `class` begin? It is counted when it may. `tenant`: 0: nobody's. *shared: the tenant was counted; for limit_end. */
bool limit_begin(struct limit *l, enum limit_class class, uint64_t tenant, bool *shared);
/* It is over. */
void limit_end(struct limit *l, enum limit_class class, uint64_t tenant, bool shared);

/* What a request that was answered took: `latency_ns` from admission, `run_ns` of it in the run that answered it (0: not known apart), a run
 * of `size` (rows, tokens). To be given before limit_end. */
void limit_sample(struct limit *l, uint64_t latency_ns, uint64_t run_ns, uint64_t size, uint64_t now_ns);

/* What a run of `size` takes alone, as far as is known: the least that runs like it took, or its rows at the least that one took. 0: unknown. */
uint64_t limit_alone_ns(const struct limit *l, uint64_t size);

/* The limit now, in requests. */
uint32_t limit_now(const struct limit *l);
/* Requests under way that count for one of `class`. */
uint32_t limit_counted(const struct limit *l, enum limit_class class);

#endif
