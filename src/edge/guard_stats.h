/* guard_stats.h: how unlike its model's reference an input is.
 *
 * A reference is a sample of good inputs, rows of features. Half of it (the even rows) is fitted, the other half scored, and the threshold
 * of a method is the score that a share `rate` of that half exceeds: the k-th smallest of m with k = ceil((m + 1)(1 - rate)) (split conformal
 * prediction, Vovk et al. 2005; Lei et al. 2018). So an input drawn as the reference was passes it with a probability of at most `rate`
 * a method, whatever the distribution.
 *
 *   ROBUST_Z          the largest |x - median| / (1.4826 MAD) of a row's features; without spread the standard deviation counts
 *   MAHALANOBIS       sqrt((x - mean)' C^-1 (x - mean)); C is the covariance of standardised features, shrunk (Ledoit and Wolf 2004), up to
 *                     GUARD_DENSE features, past that its diagonal
 *   TOTAL_VARIATION   of an image: mean |difference| of neighbours, down and right, as a robust z: noise added to deceive a model raises it
 *
 * Fitted references are immutable: any thread scores, without allocating. */
#ifndef INFERD_EDGE_GUARD_STATS_H
#define INFERD_EDGE_GUARD_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "tensor/tensor.h"

#define GUARD_DENSE        64
#define GUARD_ROWS_MIN     20
#define GUARD_FEATURES_MAX (16u << 20)

enum guard_method { GUARD_ROBUST_Z, GUARD_MAHALANOBIS, GUARD_TOTAL_VARIATION, GUARD_METHODS };
/* "robust_z" and so on. Constants. */
const char *guard_method_name(enum guard_method m);

/* Where neighbours are, in a row's features; width 0: it is no image. */
struct guard_grid {
    size_t height, width, channels; /* features are height * width * channels, */
    bool planes;                    /* a plane a channel one behind the other, else channels side by side */
};

struct guard_reference;

/* From `rows` (axis 0: rows; a numeric dtype). INVALID: too few rows for the rate, no numbers, no image for a method that needs one; NOMEM. */
int guard_reference_fit(const struct tensor *rows, unsigned methods, double rate, const struct guard_grid *grid,
                        struct guard_reference **out, struct error *err) MUST_CHECK;
struct guard_reference *guard_reference_ref(struct guard_reference *r);
void guard_reference_unref(struct guard_reference *r); /* NULL is accepted */

/* Features of a row; rows that it was fitted from. */
size_t guard_reference_features(const struct guard_reference *r);
size_t guard_reference_rows(const struct guard_reference *r);
double guard_reference_threshold(const struct guard_reference *r, enum guard_method m);

struct guard_score {
    double v[GUARD_METHODS];
    size_t feature; /* the one of the largest robust z */
};

/* Row `row` of `t`, whose rows have the reference's number of features. */
void guard_reference_score(const struct guard_reference *r, const struct tensor *t, size_t row, struct guard_score *out);

/* Elements of a row along axis 0 (of all for a scalar); false when there are no rows or no numbers. */
bool guard_row_features(const struct tensor *t, size_t *rows, size_t *features);
/* Features [at, at + n) of a row as floats. */
void guard_load(const struct tensor *t, size_t first, size_t n, float *out);
/* Elements [first, first + n) as doubles; 0 where the type has no numbers. guard_input.c */
void guard_load_f64(const struct tensor *t, size_t first, size_t n, double *out);

#endif
