/* weights.h: random rows in a file's format, and buffers, for the tests and the benchmark of kernels. */
#ifndef INFERD_TESTS_KERNELS_WEIGHTS_H
#define INFERD_TESTS_KERNELS_WEIGHTS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/llm/kernels/kernels.h"

static const enum weight_type ALL_TYPES[] = {
    WEIGHT_F32,  WEIGHT_F16,  WEIGHT_BF16, WEIGHT_Q8_0, WEIGHT_Q4_0, WEIGHT_Q4_1, WEIGHT_Q5_0,
    WEIGHT_Q5_1, WEIGHT_Q2_K, WEIGHT_Q3_K, WEIGHT_Q4_K, WEIGHT_Q5_K, WEIGHT_Q6_K,
};
#define N_TYPES (sizeof ALL_TYPES / sizeof *ALL_TYPES)

static inline uint32_t next_u32(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*s >> 32);
}

static inline float next_float(uint64_t *s) /* (-1, 1), roughly bell-shaped */
{
    float a = (float)(next_u32(s) >> 8) * 0x1p-24f, b = (float)(next_u32(s) >> 8) * 0x1p-24f;
    return a + b - 1.0f;
}

static inline void *aligned(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    memset(p, 0x5a, (bytes + 63) & ~(size_t)63); /* what nobody writes must not matter */
    return p;
}

/* f16 bits of a scale in [2^-10, 2^-8), of either sign where asked. */
static inline void put_scale(uint8_t *p, uint64_t *s, int signs)
{
    uint16_t h = (uint16_t)(5u << 10 | (next_u32(s) & 0x7ff));
    if (signs && next_u32(s) % 2)
        h |= 0x8000;
    memcpy(p, &h, 2);
}

static inline void random_row(enum weight_type t, uint8_t *row, size_t bytes, uint64_t *s)
{
    const struct weight_type_info *info = weight_type_info(t);
    size_t b = info->block_bytes;
    for (size_t i = 0; i < bytes; i++)
        row[i] = (uint8_t)next_u32(s);
    for (size_t i = 0; i < bytes; i += b) {
        uint8_t *p = row + i;
        float f = next_float(s) * 0.1f;
        uint32_t u;
        memcpy(&u, &f, 4);
        switch (t) {
        case WEIGHT_F32:
            memcpy(p, &f, 4);
            break;
        case WEIGHT_F16:
            put_scale(p, s, 1);
            break;
        case WEIGHT_BF16:
            p[0] = (uint8_t)(u >> 16), p[1] = (uint8_t)(u >> 24);
            break;
        case WEIGHT_Q4_1:
        case WEIGHT_Q5_1:
            put_scale(p + 2, s, 1); /* fall through */
        case WEIGHT_Q4_0:
        case WEIGHT_Q5_0:
        case WEIGHT_Q8_0:
            put_scale(p, s, 1);
            break;
        case WEIGHT_Q4_K:
        case WEIGHT_Q5_K:
            put_scale(p, s, 1), put_scale(p + 2, s, 1);
            break;
        case WEIGHT_Q2_K:
            put_scale(p + 80, s, 1), put_scale(p + 82, s, 1);
            break;
        case WEIGHT_Q3_K:
            put_scale(p + 108, s, 1);
            break;
        case WEIGHT_Q6_K:
            put_scale(p + 208, s, 1);
            break;
        default:
            break;
        }
    }
}

/* A packed random matrix and the rows it was made from (both malloc'ed; free m->data and *rows). */
static inline int random_matrix(enum weight_type t, uint32_t rows, uint32_t cols, uint64_t seed, struct matrix *m,
                                uint8_t **src)
{
    if (!matrix_layout(t, rows, cols, m))
        return 0;
    size_t row_bytes = matrix_row_bytes(m);
    *src = malloc(row_bytes * rows + 1);
    for (uint32_t r = 0; r < rows; r++)
        random_row(t, *src + r * row_bytes, row_bytes, &seed);
    m->data = aligned(matrix_bytes(m));
    kernels_by_name("ref")->pack(m, *src, 0, m->strips);
    return 1;
}

#endif
