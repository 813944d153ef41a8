/* npy.h: numpy's .npy files, read and written (NEP 1; versions 1.0, 2.0 and 3.0).
 *
 * Read: bool, int8..int64, uint8..uint64, float16/32/64 in either byte order, C or Fortran order, and fixed-width byte (S) and
 * Unicode (U) strings as BYTES, their trailing NULs dropped as numpy does. Refused by name: objects (they would be pickles),
 * complex numbers, dates, structures. Written: the same types, little-endian, C order; BF16, which numpy has no name for, is
 * written as float32 (exact); BYTES as S of the longest element's width. */
#ifndef INFERD_TENSOR_NPY_H
#define INFERD_TENSOR_NPY_H

#include "base/buf.h"
#include "tensor/tensor.h"

/* Read the whole file. `out` gets an empty name; its data is a view of `file` (with a reference to file.owner, when it has
 * one) where the bytes are already little-endian in C order, else a slab of its own. STATUS_INVALID says what the file has and
 * what is taken; STATUS_NOMEM. Nothing is allocated that the file's own size does not justify. Pure; any thread. */
int npy_read(struct slice file, struct tensor *out, struct error *err) MUST_CHECK;

/* Append `t` (which has passed tensor_check) as a version 1.0 file (16 dims always fit its header). STATUS_INVALID for a BYTES
 * element that ends in a NUL (numpy would drop it); STATUS_NOMEM. Pure. */
int npy_write(const struct tensor *t, struct buf *out, struct error *err) MUST_CHECK;

#endif
