/* dequant.c: one row of a file's format to f32, bit-exact with ggml. */
#include "base/check.h"
#include "engine/llm/kernels/kernels_priv.h"

void ref_dequant_row(enum weight_type t, const void *src, size_t n, float *dst)
{
    const uint8_t *p = src;
    switch (t) {
    case WEIGHT_F32:
        memcpy(dst, p, n * 4);
        return;
    case WEIGHT_F16:
        for (size_t i = 0; i < n; i++)
            dst[i] = f16_to_f32(load_u16(p + 2 * i));
        return;
    case WEIGHT_BF16:
        for (size_t i = 0; i < n; i++)
            dst[i] = bf16_to_f32(load_u16(p + 2 * i));
        return;
    default:
        break;
    }
    ASSERT(n % GROUP == 0);
    for (uint32_t g = 0; g < n / GROUP; g++) {
        struct group in;
        group_from_file(t, p, g, &in);
        group_values(t, &in, dst + (size_t)g * GROUP);
    }
}
