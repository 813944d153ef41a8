/* weight_type.h: the element formats of weights in files, by ggml's numbers, and their block geometry.
 *
 * A row of a tensor is a whole number of blocks; a block holds `block_elems` values in `block_bytes` bytes. The layouts are drawn
 * beside the code that reads them (kernels/ref). Types without geometry here are known by name only and refused by name. */
#ifndef INFERD_ENGINE_LLM_FILE_WEIGHT_TYPE_H
#define INFERD_ENGINE_LLM_FILE_WEIGHT_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum weight_type {
    WEIGHT_F32 = 0,
    WEIGHT_F16 = 1,
    WEIGHT_Q4_0 = 2,
    WEIGHT_Q4_1 = 3,
    WEIGHT_Q5_0 = 6,
    WEIGHT_Q5_1 = 7,
    WEIGHT_Q8_0 = 8,
    WEIGHT_Q2_K = 10,
    WEIGHT_Q3_K = 11,
    WEIGHT_Q4_K = 12,
    WEIGHT_Q5_K = 13,
    WEIGHT_Q6_K = 14,
    WEIGHT_BF16 = 30,
    WEIGHT_TYPE_COUNT = 43, /* ids that ggml has given out so far */
};

struct weight_type_info {
    const char *name;     /* "Q4_K"; NULL for an id that was never given out */
    uint16_t block_elems; /* 0: known by name, not supported */
    uint16_t block_bytes;
};

/* NULL when `id` is outside the table. */
const struct weight_type_info *weight_type_info(uint32_t id);
static inline bool weight_type_supported(uint32_t id)
{
    const struct weight_type_info *i = weight_type_info(id);
    return i && i->block_elems > 0;
}
/* "q4_k" or "Q4_K" -> type; false when unknown or unsupported. */
bool weight_type_parse(struct str name, enum weight_type *out);
/* Bytes of `rows` rows of `cols` elements; false when cols isn't a whole number of blocks, or on overflow, or unsupported. */
bool weight_bytes(enum weight_type t, uint64_t rows, uint64_t cols, size_t *out);

#endif
