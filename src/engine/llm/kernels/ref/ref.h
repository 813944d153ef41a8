/* ref.h: for the files of kernels/ only: functions of the scalar reference that other files use. */
#ifndef INFERD_ENGINE_LLM_KERNELS_REF_REF_H
#define INFERD_ENGINE_LLM_KERNELS_REF_REF_H

#include "engine/llm/kernels/kernels_priv.h"

/* Assert what matmul asks of its arguments: matching shapes and kinds, columns within the capacity, rows cut at KERNEL_ROW_UNIT. */
void matmul_check(const struct matrix *m, const struct acts *x, uint32_t n_cols, uint32_t row0, uint32_t row1);

/* 32 values as slot `c` of a group. */
void ref_quant_group(const float *x, struct acts_group *out, uint32_t c);
/* Rows [row, row + rows) of one column of matmul_gated: y and h. v has 32 values, zeros beyond `rows`. */
void ref_gated_put(const struct matmul_out *o, const struct acts *h, uint32_t col, uint32_t row, uint32_t rows, const float *v);

/* The scalar entries of the table (struct kernels), by the same names; a vector table that has nothing better takes them. */
void ref_acts_put(const struct acts *a, uint32_t col, const float *x);
void ref_matmul(const struct matrix *m, const struct acts *x, uint32_t n_cols, uint32_t row0, uint32_t row1,
                const struct matmul_out *o, void *scratch);
void ref_matmul_gated(const struct matrix *gate, const struct matrix *up, const struct acts *x, uint32_t n_cols, uint32_t row0,
                      uint32_t row1, const struct matmul_out *o, const float *up_bias, const struct acts *h, void *scratch);

/* Likewise for attention: one span of one head, the fold of two parts, one row of the result. */
void ref_attn_span(const struct kv_view *kv, const struct attn_tile *t, uint32_t head, uint32_t span, struct attn_part *part,
                   void *scratch);
void ref_attn_merge(const struct kv_layout *l, uint32_t n, struct attn_part *into, const struct attn_part *part);
void ref_attn_finish(const struct kv_layout *l, const struct attn_part *part, uint32_t i, float *y);

#endif
