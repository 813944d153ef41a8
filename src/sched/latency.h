/* latency.h: how long a batch of r rows takes, learned from the runs seen so far.
 *
 * The curve of a model on one device is nearly affine (a fixed part a, a part b a row) with steps where kernels change
 * tiles. So: one robust mean per size class (1, 2, 3, 4-5, 6-7, 8-11, 12-15, ...), an affine fit through those means with
 * relative weights, and between them the fit times the neighbours' deviation from it. Sizes never seen come from the fit,
 * so that the curve extrapolates as a line and not as a polynomial. Outliers (a page fault, a noisy neighbour) are clipped
 * at a distance of the observed spread; several in a row on one side are believed: the machine has changed, and the classes
 * that haven't run lately change along with it.
 * The mean of a class never fades by itself: a class that isn't visited keeps its value, at a falling weight in the fit,
 * which is why this isn't recursive least squares with forgetting (it blows up when only one size runs for hours).
 * Derivation and constants: docs/internals/batcher.md. One thread, no allocation, O(1) queries, O(classes) learning. */
#ifndef INFERD_SCHED_LATENCY_H
#define INFERD_SCHED_LATENCY_H

#include <stdbool.h>
#include <stdint.h>

#define LATENCY_CLASSES 26 /* 4096 is in class 24; one more as the right end of the last interval */

struct latency_class {
    double mean_rows, mean_ns, spread_ns; /* spread: mean absolute deviation */
    uint32_t n;                           /* runs, counted up to a limit: the weight */
    int8_t streak;                        /* outliers in a row, signed by side */
    uint64_t stamp;                       /* latency_model.runs at its last run */
};

struct latency_model {
    struct latency_class at[LATENCY_CLASSES];
    double curve_ns[LATENCY_CLASSES]; /* at the first size of each class; non-decreasing */
    double base_ns, row_ns;           /* the fit: base + row * r */
    double drift;                     /* relative change of class means since the curve was made */
    uint64_t moved;                   /* runs at the last time that all were taken along by a change of the machine */
    uint64_t runs;                    /* learned here; 0 with `borrowed` set: another bucket's curve, scaled */
    bool borrowed;
};

void latency_init(struct latency_model *m);
/* Start from another bucket's curve with its per-row part scaled by `row_scale`; the first own runs take over. */
void latency_borrow(struct latency_model *m, const struct latency_model *from, double row_scale);
/* A run of `rows` (1..4096) took `run_ns` (> 0). */
void latency_learn(struct latency_model *m, uint32_t rows, double run_ns);
/* Estimated run time in ns; 0 while nothing is known. Non-decreasing in `rows`. */
double latency_ns(const struct latency_model *m, uint32_t rows);
/* The largest number of rows in 1..max_rows that is estimated to run within `ns`; 0 when not even one; max_rows while
 * nothing is known. */
uint32_t latency_rows_within(const struct latency_model *m, double ns, uint32_t max_rows);
/* Runs of about `rows` rows that count (up to a limit), and how many runs of other sizes came after the last of them. */
uint32_t latency_size_runs(const struct latency_model *m, uint32_t rows);
uint64_t latency_size_age(const struct latency_model *m, uint32_t rows);
static inline bool latency_known(const struct latency_model *m)
{
    return m->runs > 0 || m->borrowed;
}

/* The spread of run time / estimate over all buckets of a batcher, as a quantile: the margin that promises are made with.
 * A histogram on a log scale that forgets with a half-life of a few hundred runs. */
#define LATENCY_TAIL_BINS 48
struct latency_tail {
    float bin[LATENCY_TAIL_BINS];
    float total, unit; /* the weight of the next run: it grows instead of the old ones fading */
    uint32_t fresh;    /* runs since the quantiles were taken */
    double margin;     /* the quantile of run time / estimate that promises are made with */
};
void latency_tail_init(struct latency_tail *t);
void latency_tail_learn(struct latency_tail *t, double run_ns, double estimate_ns);

#endif
