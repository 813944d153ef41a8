/* guard_stats_priv.h: for guard_fit.c and guard_score.c only: a fitted reference. */
#ifndef INFERD_EDGE_GUARD_STATS_PRIV_H
#define INFERD_EDGE_GUARD_STATS_PRIV_H

#include <stdatomic.h>

#include "edge/guard_stats.h"

#define GUARD_ROWS 8 /* of `whiten` that are worked on at once */

/* Elements of a column of `whiten`: whole groups of rows. */
static inline size_t guard__stride(size_t features)
{
    return (features + GUARD_ROWS - 1) / GUARD_ROWS * GUARD_ROWS;
}

struct guard_reference {
    _Atomic uint32_t refs;
    unsigned methods; /* of enum guard_method, a bit each */
    size_t features, rows;
    struct guard_grid grid;
    float *median, *inverse_spread, *mean, *inverse_sigma; /* [features] */
    /* The inverse of the covariance's root, a lower triangle by columns: [features][guard__stride(features)]. NULL: the diagonal alone. */
    float *whiten;
    double variation, variation_spread;
    double threshold[GUARD_METHODS];
};

/* Mean absolute difference of neighbours in the row whose first element is `first`. */
double guard__variation(const struct guard_grid *g, const struct tensor *t, size_t first);

#endif
