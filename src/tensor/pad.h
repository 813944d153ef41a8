/* pad.h: many requests into one padded batch, and a batch's output back into each request's own.
 *
 * All tensors of a batch share dtype, rank and the axes that are not padded. Axis 0 is the batch axis: members are laid
 * one behind the other along it. On the other axes a member may be shorter than the batch (`target`); the rest is filled.
 * Everything is pure: memory in, memory out, no allocation but the slab of a cut that can't be a view. Sizes are computed
 * with overflow checks and compared with the caller's buffer before the first byte is written. Any thread. */
#ifndef INFERD_TENSOR_PAD_H
#define INFERD_TENSOR_PAD_H

#include "tensor/tensor.h"

/* The bytes of one element of dtype `t` for the fill value `v`: rounded to nearest even for floats. Whole-number types take
 * only whole values inside their range, BOOL only 0 and 1, BYTES (whose padding is the empty string) only 0: else
 * STATUS_INVALID with value and range. */
struct pad_fill {
    uint8_t element[8]; /* the first dtype_bytes() of them */
};
int pad_fill_set(enum dtype t, double v, struct pad_fill *out, struct error *err) MUST_CHECK;

/* Shape of the batch of `n` members: dim 0 the sum of rows, every other dim the greatest among the members (so the least
 * target; callers round the padded axes up to their bucket). n >= 1. STATUS_INVALID when dtype or rank differ, a member
 * is a scalar, or the sum overflows; the text names the tensor and both shapes. */
int pad_shape(const struct tensor *const *members, size_t n, struct shape *out, struct error *err) MUST_CHECK;

/* Bytes that pad_gather writes for this `target` (dim 0 >= the members' rows; extra rows are filled whole): a dense tensor,
 * for BYTES the members' elements and a 4-byte empty string per filled element. STATUS_INVALID as above, or when a member
 * is longer than the target on some axis, or on overflow. */
int pad_bytes(const struct tensor *const *members, size_t n, const struct shape *target, size_t *bytes,
              struct error *err) MUST_CHECK;

/* Write the batch into dst[0..bytes); `bytes` must be what pad_bytes said (else STATUS_INTERNAL, nothing is written).
 * Members have passed tensor_check. Where no axis is padded this is one memcpy a member. */
int pad_gather(const struct tensor *const *members, size_t n, const struct shape *target, const struct pad_fill *fill,
               void *dst, size_t bytes, struct error *err) MUST_CHECK;

/* The mask of a padded axis: dst is a dense [rows_total, length] tensor of dtype `t` (not BYTES); position j of a row of
 * member i gets 1 when j < lengths[i], else 0; rows behind the last member get 0. `bytes` is the size of dst.
 * STATUS_INVALID when a length or the rows don't fit or t is BYTES. */
int pad_mask(enum dtype t, const int64_t *rows, const int64_t *lengths, size_t n, int64_t rows_total, int64_t length, void *dst,
             size_t bytes, struct error *err) MUST_CHECK;

/* One axis (>= 1) that is cut to `length`. */
struct pad_cut {
    uint8_t axis;
    int64_t length;
};

/* Rows [first, first + rows) of `batch`, cut to cuts[i].length on their axes: into `out`, which borrows name and owns a
 * reference in data. A view into `batch` where the result is contiguous there (no cut that matters, or a cut whose outer
 * dims are all 1), else a packed copy in a slab of its own. STATUS_INVALID (text has the axis and the shapes) when a range
 * is outside `batch`; STATUS_NOMEM. On error out->data is empty. */
int pad_cut(const struct tensor *batch, int64_t first, int64_t rows, const struct pad_cut *cuts, size_t n_cuts,
            struct tensor *out, struct error *err) MUST_CHECK;

#endif
