/* kernels.h: the arithmetic of a language model on a CPU, one table of functions per instruction set.
 *
 * No allocation, threads, system calls or logging here: memory comes from the caller, work is cut by the caller (rows, columns,
 * spans), every function may run on any thread as long as two calls don't write the same output. Nothing blocks, nothing fails: shapes
 * are checked once, by the *_layout functions, and asserted afterwards.
 *
 * THE PROMISE. A result never depends on how the work was cut: not on the number of columns in a call, the row range, the tile of
 * queries or the number of threads. Each output element has one order of f32 operations: along K, group after group, one fused
 * multiply-add per group into one accumulator; reductions over a row have 16 lanes (index mod 16) joined by a fixed tree; attention
 * cuts the keys at multiples of ATTN_SPAN_TOK and folds the spans from left to right. Integer parts are exact, so their order is free.
 * All instruction sets follow the same order, with the same exp(), so that they agree with kernels/ref bit by bit where
 * docs/internals/kernels.md says so.
 *
 * Terms. strip: 16 rows of a matrix, interleaved. group: 32 consecutive elements along K (16 where the format scales by 16).
 * column: one token's activation vector. tile: 8 columns side by side. */
#ifndef INFERD_ENGINE_LLM_KERNELS_KERNELS_H
#define INFERD_ENGINE_LLM_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/llm/file/weight_type.h"

#define KERNEL_STRIP_ROWS 16
#define KERNEL_ROW_UNIT   32 /* row ranges are cut at multiples of this (the last one ends at `rows`) */
#define KERNEL_TILE_COLS  8
#define KERNEL_ALIGN      64 /* alignment of every packed buffer and scratch */

/* ---- weights ---- */

/* One linear layer y = W x, W being rows x cols (cols = K, the input dimension), packed. The layout is drawn in pack.c and in
 * docs/internals/kernels.md; only kernels look into `data`. Plain struct, immutable once packed; `data` belongs to the caller. */
struct matrix {
    enum weight_type type;
    uint32_t rows, cols;
    uint32_t strips;    /* ceil(rows / 16); missing rows are packed as zeros */
    uint32_t groups;    /* ceil(cols / 32) */
    size_t strip_bytes; /* multiple of 64 */
    size_t off_high, off_scale,
        off_super; /* planes inside a strip behind the quants: high bits, scales, d/dmin of a superblock */
    uint8_t *data; /* [strips][strip_bytes], aligned to KERNEL_ALIGN */
};

/* Fill `m` for a matrix of this type and shape, data = NULL. False when the type isn't supported, cols isn't a whole number of its blocks,
 * rows or cols is 0, or a size overflows. The caller allocates matrix_bytes(m), sets m->data and has the strips packed. Huge pages
 * (MADV_HUGEPAGE) under the weights are worth 15 % of a decode step where the machine gives them. */
bool matrix_layout(enum weight_type type, uint64_t rows, uint64_t cols, struct matrix *m);
size_t matrix_bytes(const struct matrix *m);
/* Bytes of one row in the file's own format. */
size_t matrix_row_bytes(const struct matrix *m);

/* ---- activations ---- */

enum acts_kind {
    ACTS_Q8,  /* for quantised weights: int8 per group of 32 with an f32 scale and the sums */
    ACTS_F32, /* for F32, F16 and BF16 weights */
};

/* The columns that a matmul reads, in tiles of KERNEL_TILE_COLS: data is [ceil(n_cols / 8)][tile_bytes], aligned, caller's memory. Columns are
 * written one at a time (acts_put, norm_acts, or by matmul_gated), from any thread, different columns at the same time; each slot is
 * written in full. Tile layout: ACTS_Q8 per group { int8 q[8][32]; f32 scale[8]; f32 scale_sum[8]; int32 neg_sum[2][8] } = 384 bytes,
 * ACTS_F32 f32 x[cols][8]. */
struct acts {
    enum acts_kind kind;
    uint32_t cols;     /* K */
    uint32_t capacity; /* columns there is room for */
    uint32_t groups;
    size_t tile_bytes;
    uint8_t *data;
};

enum acts_kind acts_kind_for(enum weight_type t);
/* Fill `a` for K = cols and up to `capacity` columns, data = NULL; the caller allocates acts_bytes(a). False on 0 or overflow. Slots of a
 * ragged last tile that nobody wrote may hold anything; results of real columns don't depend on them. */
bool acts_layout(enum acts_kind kind, uint64_t cols, uint64_t capacity, struct acts *a);
size_t acts_bytes(const struct acts *a);
/* Column `col` as products see it, x[a->cols]: rounded where the kind rounds. */
void acts_get(const struct acts *a, uint32_t col, float *x);

/* ---- matrix products ---- */

enum kernel_act { KERNEL_ACT_NONE, KERNEL_ACT_SILU, KERNEL_ACT_GELU_TANH, KERNEL_ACT_GELU_ERF, KERNEL_ACT_RELU };

/* Where results go: y[c][r] = residual[c][r] + act(sum + bias[r]). */
struct matmul_out {
    float *y;          /* [n_cols][ld], row r of the matrix at index r; only the asked rows are written */
    size_t ld;         /* in floats; >= rows */
    const float *bias; /* [rows], or NULL */
    enum kernel_act act;
    const float *residual; /* [n_cols][residual_ld], or NULL; may be y itself */
    size_t residual_ld;
};

/* Scratch that one thread needs for any matmul call on matrices with up to `max_cols_k` columns (K). */
size_t kernels_scratch_bytes(uint32_t max_cols_k);

/* ---- vectors ---- */

enum kernel_rope { KERNEL_ROPE_INTERLEAVED /* pairs (2i, 2i+1) */, KERNEL_ROPE_HALF /* pairs (i, i + n_rot/2) */ };

struct norm_args {
    const float *weight; /* [n], or NULL: 1 */
    const float *bias;   /* [n], or NULL: 0 */
    float eps;
    bool layer; /* false: RMS norm; true: layer norm (mean subtracted) */
};

/* ---- attention ---- */

#define KV_TILE_TOK   32  /* tokens in a KV block; equals KV_BLOCK_TOK of blocks.h */
#define ATTN_SPAN_TOK 256 /* keys of one span: 8 blocks, cut at absolute token positions */
#define ATTN_TILE     8   /* query rows of one call */

enum kv_type { KV_F16, KV_BF16, KV_Q8 };

/* Geometry of one layer's KV in one block: [n_head_kv][head_bytes]; a head holds K transposed ([dim][32 tokens]; Q8: quads of dims), then
 * V by token ([32 tokens][dim]), then (Q8) f32 scales per token and 32 dims. Dims are padded to a multiple of 32 with zeros. */
struct kv_layout {
    enum kv_type type;
    uint32_t n_head_kv, head_dim_k, head_dim_v;
    uint32_t pad_k, pad_v; /* padded dims */
    size_t off_v, off_k_scale, off_v_scale;
    size_t head_bytes, block_bytes; /* block_bytes = n_head_kv * head_bytes, multiple of 64 */
};

/* False on zero or absurd dims (> 1024) or overflow. */
bool kv_layout(enum kv_type type, uint32_t n_head_kv, uint32_t head_dim_k, uint32_t head_dim_v, struct kv_layout *l);

/* Where one sequence's keys of one layer are: token t lies in block table[t / 32], slot t % 32. */
struct kv_view {
    const struct kv_layout *layout;
    const uint8_t *base;   /* this layer's blocks: block id b starts at base + b * block_bytes (or stride below) */
    size_t block_stride;   /* bytes between consecutive block ids; >= layout->block_bytes */
    const uint32_t *table; /* the sequence's block ids, in token order */
};

/* Up to ATTN_TILE query rows that look at the same KV head: heads that share it and consecutive tokens, in any mix. The caller gives
 * kernels->attn_query each row once; [lo, hi) are the visible key positions of that row (causal: hi = pos + 1; encoder: hi = n; sliding
 * window w: lo = max(0, pos + 1 - w)). Keys below the largest hi of the tile must have been stored. */
struct attn_tile {
    uint32_t n;
    uint32_t lo[ATTN_TILE], hi[ATTN_TILE];
    float softcap;  /* s = cap * tanh(s / cap) before masking; 0: none */
    uint8_t *query; /* attn_query_bytes(layout), aligned, caller's */
};
size_t attn_query_bytes(const struct kv_layout *l);
/* Per-thread scratch of attn_span. */
size_t attn_scratch_bytes(const struct kv_layout *l);

/* Partial result of a tile over some keys: max, sum and unnormalised output per row. An empty row has sum == 0. */
struct attn_part {
    float max[ATTN_TILE], sum[ATTN_TILE];
    float out[]; /* [ATTN_TILE][pad_v] */
};
size_t attn_part_bytes(const struct kv_layout *l); /* multiple of 64 */

/* ---- the table ---- */

struct kernels {
    const char *name; /* "ref", "avx2", "avxvnni", "avx512", "neon" */

    /* One row of n elements (whole blocks) from a file's format to f32, bit-exact with ggml. src needs no alignment. */
    void (*dequant_row)(enum weight_type t, const void *src, size_t n, float *dst);

    /* Pack strips [strip0, strip1) of m. `src` is row 0 of the file's tensor, rows matrix_row_bytes apart. Different strips may be packed at
     * the same time. */
    void (*pack)(const struct matrix *m, const uint8_t *src, uint32_t strip0, uint32_t strip1);
    /* Row `row` of a packed matrix as f32[cols]: what dequant_row gives for the file's row. For embeddings of tied matrices. */
    void (*matrix_row)(const struct matrix *m, uint32_t row, float *dst);

    /* Write x[a->cols] as column `col`. */
    void (*acts_put)(const struct acts *a, uint32_t col, const float *x);
    /* norm(x) straight into column `col`; also to y[a->cols] where y isn't NULL (y may be x). Equal to norm + acts_put. */
    void (*norm_acts)(const struct acts *a, uint32_t col, const float *x, const struct norm_args *n, float *y);
    /* y = norm(x) (+ residual where not NULL); y may be x or residual. For per-head norms call it per head. */
    void (*norm)(const float *x, size_t n, const struct norm_args *a, const float *residual, float *y);

    /* Rows [row0, row1) of y = W x for columns [0, n_cols) of `x`. row0 and row1 are multiples of KERNEL_ROW_UNIT (row1 may be m->rows);
     * x->kind == acts_kind_for(m->type), x->cols == m->cols; scratch: kernels_scratch_bytes, aligned, this thread's. */
    void (*matmul)(const struct matrix *m, const struct acts *x, uint32_t n_cols, uint32_t row0, uint32_t row1,
                   const struct matmul_out *o, void *scratch);
    /* h = act(gate x + gate_bias) * (up x + up_bias), written as activations of the next matmul: columns of `h` (h->cols == gate->rows; a
     * row unit is a group, so each thread writes its own). gate and up have the same shape; their types may differ, their kind not. Of
     * o, y (then also written; may be NULL), ld and act are read, bias is the gate's. A gate of NULL: h = act(up x + up_bias). */
    void (*matmul_gated)(const struct matrix *gate, const struct matrix *up, const struct acts *x, uint32_t n_cols,
                         uint32_t row0, uint32_t row1, const struct matmul_out *o, const float *up_bias, const struct acts *h,
                         void *scratch);

    /* Rotate the first n_rot dims of n_heads vectors x[n_heads][head_dim] in place. cos_sin: f32[n_rot] for this position: n_rot/2
     * cosines, then n_rot/2 sines (scaling factors already in). */
    void (*rope)(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t n_rot, const float *cos_sin, enum kernel_rope kind);

    void (*act)(float *x, size_t n, enum kernel_act act);      /* x = act(x) */
    void (*softcap)(float *x, size_t n, float cap);            /* x = cap * tanh(x / cap) */
    void (*add)(float *y, const float *x, size_t n);           /* y += x */
    void (*scale)(float *x, size_t n, float s);                /* x *= s */
    void (*axpy)(float *y, const float *x, float s, size_t n); /* y = fma(s, x, y) */
    float (*dot)(const float *a, const float *b, size_t n);    /* 16 lanes, fixed tree */

    /* Store one token's K and V of one KV head: k[head_dim_k], v[head_dim_v] into `block` (base of this layer's part of the block), slot
     * 0..31. Values beyond the format's range are clamped to its largest finite one. Different heads and slots at the same time. */
    void (*kv_store)(const struct kv_layout *l, uint8_t *block, uint32_t head, uint32_t slot, const float *k, const float *v);
    /* Row `i` of the tile's queries: q[head_dim_k] after rope, times `scale` (attn_scale). */
    void (*attn_query)(const struct kv_layout *l, const struct attn_tile *t, uint32_t i, const float *q, float scale);
    /* Partial of tile `t` over span `span` (keys [256 * span, 256 * span + 256) cut to each row's [lo, hi)) of KV head `head`. */
    void (*attn_span)(const struct kv_view *kv, const struct attn_tile *t, uint32_t head, uint32_t span, struct attn_part *part,
                      void *scratch);
    /* into = into + part, row by row; an empty side changes nothing. The result of a row is the left fold over its spans in ascending order, so
     * spans that are computed apart (long decodes) are kept apart until all are there, then merged from the lowest up. */
    void (*attn_merge)(const struct kv_layout *l, uint32_t n, struct attn_part *into, const struct attn_part *part);
    /* y[head_dim_v] = out / sum of row i (zeros for an empty row). */
    void (*attn_finish)(const struct kv_layout *l, const struct attn_part *part, uint32_t i, float *y);

    /* Index of the largest of x[n], n > 0, the lowest index on a tie; NaN never wins (0 when all are NaN). */
    uint32_t (*argmax)(const float *x, size_t n);
    /* log(sum(exp(x))) in fixed order; -inf entries are fine. log-softmax of i is x[i] - logsumexp. */
    float (*logsumexp)(const float *x, size_t n);
    /* y = exp(x - sub) elementwise, and the sum of y. y may be x. */
    float (*exp_sum)(const float *x, size_t n, float sub, float *y);
    /* The k largest, in descending order (ties: lower index first); idx[k], val[k] (val may be NULL). k <= n. NaN sorts last. */
    void (*top_k)(const float *x, size_t n, uint32_t k, uint32_t *idx, float *val);
};

/* Convenience over attn_span/attn_merge: spans [span0, span1) folded from left to right into *part (overwritten), `tmp` being a second
 * part. Whole rows in one go: span0 = min(lo) / 256, span1 = ceil(max(hi) / 256). */
void attn_run(const struct kernels *k, const struct kv_view *kv, const struct attn_tile *t, uint32_t head, uint32_t span0,
              uint32_t span1, struct attn_part *part, struct attn_part *tmp, void *scratch);

/* The best table that this CPU (and its operating system) can run. Never NULL; the same pointer each time. */
const struct kernels *kernels_best(void);
/* By name; NULL when unknown, not built for this architecture, or this CPU can't run it. */
const struct kernels *kernels_by_name(const char *name);
/* All tables built in, runnable or not; NULL-terminated. */
extern const struct kernels *const KERNELS_ALL[];
bool kernels_runnable(const struct kernels *k);

/* Quantise n elements (whole blocks of t) to a file format, with ggml's reference algorithm. F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1,
 * Q2_K..Q6_K. False when t isn't one of these. NaN and infinities are the caller's to refuse. Slow by nature; any thread. */
bool quant_row(enum weight_type t, const float *src, size_t n, void *dst);

#endif
