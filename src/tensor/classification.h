/* classification.h: Triton's classification extension: an output tensor as its k highest classes.
 *
 * The answer is a BYTES tensor whose elements are "value:index" or "value:index:label". With a batch axis each row is
 * ranked by itself: shape [batch, min(k, elements of a row)], else [min(k, elements)]. Values are written as Triton writes
 * them: floats with six decimals, whole numbers exactly. Highest first; among equals the lower index first; NaN last. */
#ifndef INFERD_TENSOR_CLASSIFICATION_H
#define INFERD_TENSOR_CLASSIFICATION_H

#include "tensor/tensor.h"

/* `t` has passed tensor_check and is any dtype but BYTES; `k` >= 1. labels[i] belongs to class i; classes past `n_labels` and
 * empty labels have no label. `out` borrows t's name and owns a slab. STATUS_INVALID for BYTES; STATUS_NOMEM. Pure. */
int classification_top(const struct tensor *t, bool batched, uint32_t k, const struct str *labels, size_t n_labels,
                       struct tensor *out, struct error *err) MUST_CHECK;

#endif
