/* pressure.h: what models that share a machine owe each other. A model's own limit (limit.h) knows its own queue; it doesn't see that the
 * processor went to somebody else's requests. Here a class that is squeezed on one model sheds the classes below it on all of them, the least
 * important first:
 *
 *     squeezed  an answer's run took more than STRETCH times what runs of its size take alone; or the whole took longer than `tolerance` times that
 *               though its model had no more under way than keeps it busy. Means over a window of a class on a model, so that what a model
 *               does to itself (its own queue, its own batches) is none: that is its own limit's affair.
 *     cut       how much is shed: 0 to 1 of the lowest class, then to 2 of the next, then to 3. A squeezed window adds a quarter; as far as the
 *               squeezed class itself, never into it. Calm takes it back at a rate that halves each time that it came back too early.
 *     share     the part of a class's requests that is let in: 1 - cut for the lowest. It is a part of what comes, so whatever flood there is, the
 *               cut finds what may be let in of it.
 *
 * Pure: no clock, no lock, no allocation. One thread at a time (limit_gate.c locks). */
#ifndef INFERD_EDGE_PRESSURE_H
#define INFERD_EDGE_PRESSURE_H

#include "edge/limit.h"

#define PRESSURE_WINDOW_NS   100000000ull
#define PRESSURE_WINDOW_MIN  5             /* answers in a window */
#define PRESSURE_STRETCH     1.5           /* times its time alone, and */
#define PRESSURE_SLACK_NS    200000.0      /* so much longer at least, on average: less is noise */
#define PRESSURE_STEP        0.25          /* a squeezed window adds so much */
#define PRESSURE_CALM_NS     300000000ull  /* after the last squeezed window, before anything is taken back */
#define PRESSURE_BACK_NS     5000000000ull /* a whole class comes back in so long, */
#define PRESSURE_BACKOFF_MAX 3             /* or in twice that, as often as this */

/* One class on one model: the answers of a window. */
struct pressure_window {
    uint64_t began_ns;      /* 0: empty */
    uint32_t answers, peak; /* peak: requests of all classes under way at the model */
    bool blind;             /* a run's time isn't known apart */
    double latency_ns, run_ns, alone_ns;
};

struct pressure {
    double cut;
    uint64_t at_ns, squeezed_ns; /* `cut` is as of; last squeezed */
    uint32_t backoff;
    bool back; /* some of it was taken back since it last rose */
    double credit[LIMIT_CLASSES];
};

/* An answer: what it took in all and in its run (0: not known apart), and what a run of its size takes alone. `busy`: requests under way that keep
 * the model busy; `tolerance`: limit.h's. True: a window has ended, and *squeezed is what came of it. */
bool pressure_window_add(struct pressure_window *w, uint64_t latency_ns, uint64_t run_ns, uint64_t alone_ns, uint32_t in_flight,
                         uint32_t busy, double tolerance, uint64_t now_ns, bool *squeezed);

/* A window of `class` has ended. */
void pressure_tell(struct pressure *p, enum limit_class class, bool squeezed, uint64_t now_ns);
/* May a request of `class` be let in? Core always. */
bool pressure_admit(struct pressure *p, enum limit_class class, uint64_t now_ns);
/* The part of a class that is let in, 0 to 1. */
double pressure_share(struct pressure *p, enum limit_class class, uint64_t now_ns);

#endif
