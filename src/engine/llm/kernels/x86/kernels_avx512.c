/* kernels_avx512.c: AVX-512 with VNNI and BF16 (Zen 4, Ice Lake server and later): a vector is the 16 rows of a strip.
 *
 * vpdpbusd takes its activations as a 4-byte broadcast from memory, so the inner loop has no shuffles: one instruction is 64
 * products. Where 512-bit operations are issued in two halves (Zen 4) that is half the rate and still the best form. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "base/check.h"
#include "engine/llm/kernels/ref/ref.h"

#define VL                  16
#define DOT_SIGNED          0
#define ATTN_UNROLL(C)      2
#define FLOAT_PAIRS(C)      ((C) <= 4)
#define TOGETHER_COLS       0     /* one part is a strip */
#define PREFETCH_BYTES      16384 /* ahead, into the second-level cache: measured */
#define PREFETCH_MANY_BYTES 4096
#define PREFETCH_LEVEL      2
#define WIDE_FROM_COLS      64 /* measured, see docs/internals/kernels.md */

typedef __m512 vf;
typedef __m512i vi;
typedef __m512i vw;

static inline vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void v_store(float *p, vf v)
{
    _mm512_storeu_ps(p, v);
}
static inline vf v_set1(float x)
{
    return _mm512_set1_ps(x);
}
static inline vf v_bcast(const float *p)
{
    return _mm512_set1_ps(*p);
}
static inline vf v_zero(void)
{
    return _mm512_setzero_ps();
}
static inline vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
static inline vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
static inline vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
static inline vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline vf v_abs(vf a)
{
    return _mm512_abs_ps(a);
}
static inline vf v_rint(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf v_cvt(vi a)
{
    return _mm512_cvtepi32_ps(a);
}
static inline vf v_lt_sel(vf a, vf b, vf x, vf y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
static inline vf v_swap(vf v) /* neighbours */
{
    return _mm512_permute_ps(v, 0xb1);
}
static inline float v_hmax(vf a)
{
    return _mm512_reduce_max_ps(a);
}
static inline vf v_exp2i(vf y, vf n)
{
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(y), _mm512_slli_epi32(_mm512_cvtps_epi32(n), 23)));
}
static inline vf v_load_f16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline void v_store_f16(uint16_t *p, vf v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline vf v_load_bf16(const uint8_t *p)
{
    __m512i v = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
}
static inline __m128i load16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}
static inline vf v_load_u8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load16(p)));
}
static inline vf v_load_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(p)));
}
/* Bits [shift, shift + 4) of each byte. */
static inline vf v_load_u4(const uint8_t *p, int shift)
{
    __m512i v = _mm512_cvtepu8_epi32(load16(p));
    return _mm512_cvtepi32_ps(_mm512_and_si512((__m512i)((__v16su)v >> shift), _mm512_set1_epi32(15)));
}

static inline vw w_load(const uint8_t *p)
{
    return _mm512_load_si512((const void *)p);
}
static inline void w_store(uint8_t *p, vw v)
{
    _mm512_store_si512((void *)p, v);
}
static inline vw w_and(vw v, int mask)
{
    return _mm512_and_si512(v, _mm512_set1_epi8((char)mask));
}
static inline vw w_shr(vw v, int bits)
{
    return (__m512i)((__v16su)v >> bits);
}
static inline vw w_shl(vw v, int bits)
{
    return (__m512i)((__v16su)v << bits);
}
static inline vw w_high(vw low, vw bits, int mask)
{
    return _mm512_ternarylogic_epi32(low, bits, _mm512_set1_epi8((char)mask), 0xf8); /* low | (bits & mask) */
}
static inline vi i_zero(void)
{
    return _mm512_setzero_si512();
}
static inline vi i_init(const int32_t *p, int shift)
{
    return (__m512i)((__v16su)_mm512_set1_epi32(*p) << shift);
}
static inline vi v_dot(const vw *w, int n, const int8_t *a, int bits, vi init)
{
    (void)bits;
#pragma GCC unroll 8
    for (int t = 0; t < n; t++) {
        int32_t four;
        memcpy(&four, a + 4 * t, 4);
        init = _mm512_dpbusd_epi32(init, w[t], _mm512_set1_epi32(four));
    }
    return init;
}
/* rint(v * inv) of 32 values to int8; returns their sum, and that of the last 16. */
static inline int32_t v_quant32(const vf *v, float inv, int8_t *q, int32_t *second)
{
    __m512i i[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        vf x = _mm512_mul_ps(v[h], _mm512_set1_ps(inv));
        x = _mm512_max_ps(_mm512_min_ps(x, _mm512_set1_ps(127.0f)), _mm512_set1_ps(-127.0f));
        i[h] = _mm512_cvtps_epi32(x);
        _mm_storeu_si128((__m128i *)(void *)(q + 16 * h), _mm512_cvtepi32_epi8(i[h]));
    }
    *second = _mm512_reduce_add_epi32(i[1]);
    return _mm512_reduce_add_epi32(_mm512_add_epi32(i[0], i[1]));
}

#include "engine/llm/kernels/simd/vec.inc"
#include "engine/llm/kernels/simd/matmul.inc"
#include "engine/llm/kernels/simd/attn.inc"

#define KERNELS_NAME kernels_avx512
#define KERNELS_TEXT "avx512"
#include "engine/llm/kernels/simd/table.inc"
#endif
