/* kernels_neon.c: 64-bit ARM with the dot-product instructions (ARMv8.2, Graviton 2 and later, Apple): a strip is four vectors of 4 rows. 8-bit
 * quants are taken as signed (q - 128), which is what sdot wants. Empty on other machines. */
#if defined(__aarch64__)
#pragma GCC target("arch=armv8.2-a+dotprod")
#include <arm_neon.h>

#include "base/check.h"
#include "engine/llm/kernels/ref/ref.h"

#define VL                  4
#define DOT_SIGNED          1
#define ATTN_UNROLL(C)      2
#define FLOAT_PAIRS(C)      ((C) <= 4)
#define TOGETHER_COLS       2
#define PREFETCH_BYTES      4096
#define PREFETCH_MANY_BYTES 4096
#define PREFETCH_LEVEL      2
#define WIDE_FROM_COLS      64 /* measured, see docs/internals/kernels.md */

typedef float32x4_t vf;
typedef int32x4_t vi;
typedef uint8x16_t vw;

static inline vf v_load(const float *p)
{
    return vld1q_f32(p);
}
static inline void v_store(float *p, vf v)
{
    vst1q_f32(p, v);
}
static inline vf v_set1(float x)
{
    return vdupq_n_f32(x);
}
static inline vf v_bcast(const float *p)
{
    return vld1q_dup_f32(p);
}
static inline vf v_zero(void)
{
    return vdupq_n_f32(0);
}
static inline vf v_add(vf a, vf b)
{
    return vaddq_f32(a, b);
}
static inline vf v_sub(vf a, vf b)
{
    return vsubq_f32(a, b);
}
static inline vf v_mul(vf a, vf b)
{
    return vmulq_f32(a, b);
}
static inline vf v_div(vf a, vf b)
{
    return vdivq_f32(a, b);
}
static inline vf v_fma(vf a, vf b, vf c)
{
    return vfmaq_f32(c, a, b);
}
static inline vf v_abs(vf a)
{
    return vabsq_f32(a);
}
static inline vf v_rint(vf a)
{
    return vrndnq_f32(a);
}
static inline vf v_cvt(vi a)
{
    return vcvtq_f32_s32(a);
}
static inline vf v_lt_sel(vf a, vf b, vf x, vf y)
{
    return vbslq_f32(vcltq_f32(a, b), x, y);
}
static inline vf v_swap(vf v) /* neighbours */
{
    return vrev64q_f32(v);
}
static inline float v_hmax(vf a)
{
    return vmaxvq_f32(a);
}
static inline vf v_exp2i(vf y, vf n)
{
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(y), vshlq_n_s32(vcvtnq_s32_f32(n), 23)));
}
static inline vf v_load_f16(const uint8_t *p)
{
    return vcvt_f32_f16(vld1_f16((const __fp16 *)(const void *)p));
}
static inline void v_store_f16(uint16_t *p, vf v)
{
    vst1_f16((__fp16 *)(void *)p, vcvt_f16_f32(v));
}
static inline vf v_load_bf16(const uint8_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16((const uint16_t *)(const void *)p), 16));
}
static inline uint16x8_t load4(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return vmovl_u8(vcreate_u8(v));
}
static inline vf v_load_u8(const uint8_t *p)
{
    return vcvtq_f32_u32(vmovl_u16(vget_low_u16(load4(p))));
}
static inline vf v_load_i8(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(v)))));
}
/* Bits [shift, shift + 4) of each byte. */
static inline vf v_load_u4(const uint8_t *p, int shift)
{
    uint32x4_t v = vmovl_u16(vget_low_u16(load4(p)));
    return vcvtq_f32_u32(vandq_u32(v >> (uint32_t)shift, vdupq_n_u32(15)));
}

static inline vw w_load(const uint8_t *p)
{
    return vld1q_u8(p);
}
static inline void w_store(uint8_t *p, vw v)
{
    vst1q_u8(p, v);
}
static inline vw w_and(vw v, int mask)
{
    return vandq_u8(v, vdupq_n_u8((uint8_t)mask));
}
static inline vw w_shr(vw v, int bits)
{
    return vreinterpretq_u8_u32(vreinterpretq_u32_u8(v) >> (uint32_t)bits);
}
static inline vw w_shl(vw v, int bits)
{
    return vreinterpretq_u8_u32(vreinterpretq_u32_u8(v) << (uint32_t)bits);
}
static inline vw w_high(vw low, vw bits, int mask)
{
    return vorrq_u8(low, w_and(bits, mask));
}
static inline vi i_zero(void)
{
    return vdupq_n_s32(0);
}
static inline vi i_init(const int32_t *p, int shift)
{
    return vshlq_s32(vdupq_n_s32(*p), vdupq_n_s32(shift));
}
static inline __attribute__((always_inline)) vi v_dot(const vw *w, int n, const int8_t *a, int bits, vi init)
{
#pragma GCC unroll 8
    for (int t = 0; t < n; t++) {
        int32_t four;
        memcpy(&four, a + 4 * t, 4);
        vw q = bits == 8 ? veorq_u8(w[t], vdupq_n_u8(0x80)) : w[t];
        init = vdotq_s32(init, vreinterpretq_s8_u8(q), vreinterpretq_s8_s32(vdupq_n_s32(four)));
    }
    return init;
}
/* rint(v * inv) of 32 values to int8; returns their sum, and that of the last 16. */
static inline int32_t v_quant32(const vf *v, float inv, int8_t *q, int32_t *second)
{
    int32_t sum[2] = {0};
    for (int h = 0; h < 4; h++) {
        int32x4_t i[2];
        for (int j = 0; j < 2; j++) {
            vf x = vmulq_n_f32(v[2 * h + j], inv);
            x = vmaxnmq_f32(vminnmq_f32(x, vdupq_n_f32(127.0f)), vdupq_n_f32(-127.0f));
            i[j] = vcvtnq_s32_f32(x);
        }
        vst1_s8(q + 8 * h, vmovn_s16(vcombine_s16(vmovn_s32(i[0]), vmovn_s32(i[1]))));
        sum[h / 2] += vaddvq_s32(vaddq_s32(i[0], i[1]));
    }
    *second = sum[1];
    return sum[0] + sum[1];
}

#include "engine/llm/kernels/simd/vec.inc"

#include "engine/llm/kernels/simd/matmul.inc"

#include "engine/llm/kernels/simd/attn.inc"

#define KERNELS_NAME kernels_neon
#define KERNELS_TEXT "neon"
#include "engine/llm/kernels/simd/table.inc"
#endif
