/* guard_stats_priv.h: for guard_fit.c and guard_score.c only: a fitted reference. */
#ifndef INFERD_EDGE_GUARD_STATS_PRIV_H
#define INFERD_EDGE_GUARD_STATS_PRIV_H

#include <stdatomic.h>

#include "edge/guard_stats.h"

struct guard_reference {
    _Atomic uint32_t refs;
    unsigned methods; /* of enum guard_method, a bit each */
    size_t features, rows;
    struct guard_grid grid;
    float *median, *inverse_spread, *mean, *inverse_sigma; /* [features] */
    float *whiten; /* [features][features]: the inverse of the covariance's root, lower triangle; NULL: the diagonal alone */
    double variation, variation_spread;
    double threshold[GUARD_METHODS];
};

/* Mean absolute difference of neighbours in the row whose first element is `first`. */
double guard__variation(const struct guard_grid *g, const struct tensor *t, size_t first);

#endif
