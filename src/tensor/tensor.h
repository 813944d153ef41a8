/* tensor.h: element types, shapes and tensor views: the currency between protocols, batcher and engines.
 *
 * A tensor is a dtype, a shape and a slice of bytes: little-endian, row-major, densely packed. BYTES tensors hold the
 * wire form of KServe's binary extension: per element a little-endian u32 length, then that many bytes. Nothing here is
 * aligned by promise; whoever needs alignment checks it. Names are those of the Open Inference Protocol. */
#ifndef INFERD_TENSOR_TENSOR_H
#define INFERD_TENSOR_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

enum dtype {
    DTYPE_INVALID,
    DTYPE_BOOL,
    DTYPE_UINT8,
    DTYPE_UINT16,
    DTYPE_UINT32,
    DTYPE_UINT64,
    DTYPE_INT8,
    DTYPE_INT16,
    DTYPE_INT32,
    DTYPE_INT64,
    DTYPE_FP16,
    DTYPE_FP32,
    DTYPE_FP64,
    DTYPE_BF16,
    DTYPE_BYTES,
    DTYPE_COUNT,
};

/* "FP32" and so on; "INVALID" outside the set. */
const char *dtype_name(enum dtype t);
/* KServe name -> dtype; DTYPE_INVALID when unknown. Also accepts Triton's config names with the TYPE_ prefix
 * ("TYPE_FP32", "TYPE_STRING"). */
enum dtype dtype_parse(struct str name);
/* Bytes of one element; 0 for BYTES and INVALID. */
size_t dtype_bytes(enum dtype t);

#define TENSOR_RANK_MAX    16
#define TENSOR_DIM_DYNAMIC (-1)

struct shape {
    uint8_t rank;                 /* 0: a scalar */
    int64_t dim[TENSOR_RANK_MAX]; /* >= 0; in contracts -1 means dynamic */
};

/* Same rank and same dims. */
bool shape_eq(const struct shape *a, const struct shape *b);
/* Product of the dims; false when a dim is negative or the product overflows int64. A scalar has 1 element. */
bool shape_elements(const struct shape *s, uint64_t *out);
/* "[1,-1,224]" into `text` of `cap` bytes, always NUL-terminated; returns text. */
const char *shape_format(const struct shape *s, char *text, size_t cap);

struct tensor {
    struct str name; /* borrowed: from the contract or the request's arena */
    enum dtype dtype;
    struct shape shape;
    struct slice data;
};

/* Bytes that a dense tensor of fixed-size dtype has; false on overflow, negative dims or BYTES. THE one place for this
 * computation. */
bool tensor_bytes(enum dtype t, const struct shape *s, size_t *out);

/* Check that data agrees with dtype and shape: exact size for fixed dtypes; for BYTES a walk that every length stays
 * inside, the count equals the shape's and nothing is left over. BOOL bytes must be 0 or 1. STATUS_INVALID with the
 * tensor's name, the expected and the found size. */
int tensor_check(const struct tensor *t, struct error *err) MUST_CHECK;

/* Rows `[first, first + rows)` along axis 0 of `t` as a view with a reference of its own; shape dim[0] = rows. For BYTES
 * this walks the lengths. Bounds are asserted. */
void tensor_rows(const struct tensor *t, int64_t first, int64_t rows, struct tensor *out);

static inline void tensor_release(struct tensor *t)
{
    slice_release(&t->data);
}

/* IEEE half and bfloat16 <-> float, round to nearest even, NaN kept quiet. */
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);
float bf16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float f);

#endif
