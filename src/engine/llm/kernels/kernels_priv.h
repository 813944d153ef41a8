/* kernels_priv.h: for the files of this folder only: number formats, the decoded form of a group, and the scalar functions whose
 * order of operations every instruction set repeats. */
#ifndef INFERD_ENGINE_LLM_KERNELS_KERNELS_PRIV_H
#define INFERD_ENGINE_LLM_KERNELS_KERNELS_PRIV_H

#include <math.h>
#include <string.h>

#include "engine/llm/kernels/kernels.h"

#define GROUP        32
#define SUPER        256 /* elements of a K-quant superblock */
#define SUPER_GROUPS 8

/* Tile of ACTS_Q8: one record per group. */
struct acts_group {
    int8_t q[KERNEL_TILE_COLS][GROUP];
    float scale[KERNEL_TILE_COLS];
    float scale_sum[KERNEL_TILE_COLS];        /* scale * (float)sum of q */
    int32_t neg_sum[KERNEL_TILE_COLS];        /* -(sum of all 32 q) */
    int32_t neg_sum_second[KERNEL_TILE_COLS]; /* -(sum of q[16..31]) */
};
_Static_assert(sizeof(struct acts_group) == 384, "drawn in kernels.h");

static inline struct acts_group *acts_group_at(const struct acts *a, uint32_t tile, uint32_t g)
{
    return (struct acts_group *)(void *)(a->data + (size_t)tile * a->tile_bytes) + g;
}
static inline float *acts_f32_at(const struct acts *a, uint32_t tile, uint32_t k)
{
    return (float *)(void *)(a->data + (size_t)tile * a->tile_bytes) + (size_t)k * KERNEL_TILE_COLS;
}

/* ---- what a packed type is made of ---- */

enum pack_scale {
    PACK_FLOAT,   /* no groups: [k][16 rows] of the file's float type */
    PACK_D,       /* f16 d[16] per group */
    PACK_DM,      /* f16 d[16], m[16] per group: w = d q + m */
    PACK_K_MIN,   /* u8 sc[16], mn[16] per group; super f16 d[16], dmin[16]: w = d sc q - dmin mn */
    PACK_K_16,    /* i8 sc[2][16] per group; super f16 d[16]: w = d sc q, scales per 16 elements */
    PACK_K_MIN16, /* u8 (sc | mn << 4)[2][16] per group; super f16 d[16], dmin[16] */
};

struct pack_spec {
    enum pack_scale scale;
    uint16_t quant_bytes; /* per strip and group: 128 (2 bits), 256 (4 bits), 512 (8 bits); PACK_FLOAT: bytes per k */
    uint16_t high_bytes;  /* 0, 64 (1 more bit), 128 (2 more bits) */
    uint16_t scale_bytes, super_bytes;
    uint8_t low_bits;
    uint8_t zero; /* subtracted from the unsigned quant */
};

/* Never NULL for a supported type. */
const struct pack_spec *pack_spec(enum weight_type t);

/* One row's group of 32, decoded: unsigned quants (zero point still in), scales as they are in the file. */
struct group {
    uint8_t q[GROUP];
    uint16_t d, m; /* f16 bits: d and m, or d and dmin of the superblock */
    int16_t sc[2]; /* integer scales of the halves (equal where the format scales by 32) */
    uint8_t mn[2];
};

/* Group `g` of a row in the file's format; `row` needs no alignment. Not for float types. */
void group_from_file(enum weight_type t, const uint8_t *row, uint32_t g, struct group *out);
/* Group `g` of row `r` (0..15) of a packed strip. */
void group_from_strip(const struct matrix *m, const uint8_t *strip, uint32_t r, uint32_t g, struct group *out);
/* The 32 values, with ggml's order of operations. */
void group_values(enum weight_type t, const struct group *in, float *out);

void pack_strips(const struct matrix *m, const uint8_t *src, uint32_t strip0, uint32_t strip1);
void pack_matrix_row(const struct matrix *m, uint32_t row, float *dst);
void ref_dequant_row(enum weight_type t, const void *src, size_t n, float *dst);

/* ---- number formats ---- */

static inline uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
static inline float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline uint16_t load_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}
static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = (h >> 10) & 31, man = h & 0x3ff;
    if (exp == 31)
        return float_of(sign | 0x7f800000u | man << 13);
    if (exp)
        return float_of(sign | (exp + 112) << 23 | man << 13);
    float f = (float)man * 0x1p-24f; /* exact */
    return sign ? -f : f;
}
/* Round to nearest even, as F16C does. */
static inline uint16_t f32_to_f16(float f)
{
    uint32_t u = bits_of(f), sign = (u >> 16) & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | ((a >> 13) & 0x3ff));
    if (a >= 0x477ff000) /* rounds to 2^16 or more */
        return (uint16_t)(sign | 0x7c00);
    if (a < 0x38800000) { /* denormal: let the adder round */
        float r = float_of(a) + 0.5f;
        return (uint16_t)(sign | (bits_of(r) - 0x3f000000u));
    }
    uint32_t r = a + 0xfff + ((a >> 13) & 1);
    return (uint16_t)(sign | ((r - 0x38000000u) >> 13));
}
static inline float bf16_to_f32(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}
static inline uint16_t f32_to_bf16(float f)
{
    uint32_t u = bits_of(f);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)((u >> 16) | 64);
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

/* ---- exp(), the same in every instruction set ----
 * Cody-Waite reduction to |r| <= ln2/2, Cephes' degree-5 polynomial behind 1 + r, 2^n put into the exponent; within 2 ulp. Below
 * -87 the result is 0 (no denormals), above 88.72 infinity; NaN stays NaN. */
#define KEXP_LO     (-87.0f)
#define KEXP_HI     88.72f
#define KEXP_LOG2E  1.44269504088896341f
#define KEXP_LN2_HI 0.693359375f
#define KEXP_LN2_LO (-2.12194440e-4f)
#define KEXP_C0     1.9875691500e-4f
#define KEXP_C1     1.3981999507e-3f
#define KEXP_C2     8.3334519073e-3f
#define KEXP_C3     4.1665795894e-2f
#define KEXP_C4     1.6666665459e-1f
#define KEXP_C5     5.0000001201e-1f

static inline float kexp(float x)
{
    if (!(x >= KEXP_LO))
        return x < KEXP_LO ? 0.0f : x;
    if (x > KEXP_HI)
        return INFINITY;
    float n = rintf(x * KEXP_LOG2E);
    float r = fmaf(n, -KEXP_LN2_HI, x);
    r = fmaf(n, -KEXP_LN2_LO, r);
    float p = KEXP_C0;
    p = fmaf(p, r, KEXP_C1);
    p = fmaf(p, r, KEXP_C2);
    p = fmaf(p, r, KEXP_C3);
    p = fmaf(p, r, KEXP_C4);
    p = fmaf(p, r, KEXP_C5);
    float y = fmaf(p, r * r, r) + 1.0f;
    return float_of(bits_of(y) + ((uint32_t)(int32_t)n << 23));
}

/* tanh(x) = 1 - 2 / (exp(2x) + 1); absolute error below 2e-7. */
static inline float ktanh(float x)
{
    return 1.0f - 2.0f / (kexp(2.0f * x) + 1.0f);
}

/* GELU's inner factor: 2 sqrt(2/pi) (x + 0.044715 x^3), so that gelu_tanh(x) = x / (1 + exp(-z)). */
#define KGELU_A 1.5957691216057308f
#define KGELU_B 0.044715f
/* erf by Abramowitz and Stegun 7.1.26 (absolute error 1.5e-7). */
#define KERF_P  0.3275911f
#define KERF_A1 0.254829592f
#define KERF_A2 (-0.284496736f)
#define KERF_A3 1.421413741f
#define KERF_A4 (-1.453152027f)
#define KERF_A5 1.061405429f

static inline float kact(float x, enum kernel_act act)
{
    switch (act) {
    case KERNEL_ACT_NONE:
        return x;
    case KERNEL_ACT_RELU:
        return x > 0 ? x : 0.0f;
    case KERNEL_ACT_SILU:
        return x / (1.0f + kexp(-x));
    case KERNEL_ACT_GELU_TANH: {
        float z = KGELU_A * (x * fmaf(KGELU_B, x * x, 1.0f));
        return x / (1.0f + kexp(-z));
    }
    case KERNEL_ACT_GELU_ERF: {
        float a = fabsf(x) * 0.70710678118654752f;
        float t = 1.0f / fmaf(KERF_P, a, 1.0f);
        float p = fmaf(KERF_A5, t, KERF_A4);
        p = fmaf(p, t, KERF_A3);
        p = fmaf(p, t, KERF_A2);
        p = fmaf(p, t, KERF_A1);
        float e = 1.0f - (p * t) * kexp(-(a * a)); /* erf(|x| / sqrt 2) */
        return 0.5f * x * (1.0f + (x < 0 ? -e : e));
    }
    }
    return x;
}

/* The fixed tree that joins 16 lanes. */
static inline float lanes_sum(const float *v)
{
    float s[8];
    for (int i = 0; i < 8; i++)
        s[i] = v[i] + v[i + 8];
    for (int i = 0; i < 4; i++)
        s[i] += s[i + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
}

/* Scale of 32 activations whose largest magnitude is amax: x = scale * q, q = rint(x * inv). */
#define ACTS_TINY 1e-30f
static inline void acts_scale(float amax, float *scale, float *inv)
{
    bool tiny = !(amax > ACTS_TINY);
    *scale = tiny ? 0.0f : amax / 127.0f;
    *inv = tiny ? 0.0f : 127.0f / amax;
}

/* ---- attention's buffers ---- */

/* Query buffer: KV_F16/BF16 f32 [pad_k][ATTN_TILE]; KV_Q8 one acts_group per 32 dims. */
static inline const uint8_t *kv_head_at(const struct kv_view *kv, uint32_t block, uint32_t head)
{
    return kv->base + (size_t)kv->table[block] * kv->block_stride + (size_t)head * kv->layout->head_bytes;
}

#define KV_F16_MAX  65504.0f
#define KV_BF16_MAX 3.3895313892515355e38f

extern const struct kernels kernels_ref;
#if defined(__x86_64__)
extern const struct kernels kernels_avx2, kernels_avxvnni, kernels_avx512;
#elif defined(__aarch64__)
extern const struct kernels kernels_neon;
#endif

/* Shared by all tables (order-free or scalar anyway). */
uint32_t ref_argmax(const float *x, size_t n);
void ref_top_k(const float *x, size_t n, uint32_t k, uint32_t *idx, float *val);
void ref_kv_store(const struct kv_layout *l, uint8_t *block, uint32_t head, uint32_t slot, const float *k, const float *v);
void ref_attn_query(const struct kv_layout *l, const struct attn_tile *t, uint32_t i, const float *q, float scale);
void ref_rope(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t n_rot, const float *cos_sin, enum kernel_rope kind);

#endif
