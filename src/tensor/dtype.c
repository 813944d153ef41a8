/* dtype.c: the table of element types, and the conversions of the two 16-bit floats.
 *
 * The conversions are the scalar form of what the F16C instructions do (IEEE 754-2019 round to nearest even, signalling
 * NaNs made quiet, payload bits kept from the top); the tests compare all 2^16 halves and all roundings with them. */
#include "tensor/tensor.h"

#include "tensor/tensor_priv.h"

#define NAME(literal) literal, sizeof(literal) - 1

static const struct {
    const char *name;
    size_t name_n;
    const char *config_name; /* Triton's ModelConfig */
    size_t config_n;
    size_t bytes;
} dtypes[DTYPE_COUNT] = {
    [DTYPE_INVALID] = {NAME("INVALID"), NAME("TYPE_INVALID"), 0}, [DTYPE_BOOL] = {NAME("BOOL"), NAME("TYPE_BOOL"), 1},
    [DTYPE_UINT8] = {NAME("UINT8"), NAME("TYPE_UINT8"), 1},       [DTYPE_UINT16] = {NAME("UINT16"), NAME("TYPE_UINT16"), 2},
    [DTYPE_UINT32] = {NAME("UINT32"), NAME("TYPE_UINT32"), 4},    [DTYPE_UINT64] = {NAME("UINT64"), NAME("TYPE_UINT64"), 8},
    [DTYPE_INT8] = {NAME("INT8"), NAME("TYPE_INT8"), 1},          [DTYPE_INT16] = {NAME("INT16"), NAME("TYPE_INT16"), 2},
    [DTYPE_INT32] = {NAME("INT32"), NAME("TYPE_INT32"), 4},       [DTYPE_INT64] = {NAME("INT64"), NAME("TYPE_INT64"), 8},
    [DTYPE_FP16] = {NAME("FP16"), NAME("TYPE_FP16"), 2},          [DTYPE_FP32] = {NAME("FP32"), NAME("TYPE_FP32"), 4},
    [DTYPE_FP64] = {NAME("FP64"), NAME("TYPE_FP64"), 8},          [DTYPE_BF16] = {NAME("BF16"), NAME("TYPE_BF16"), 2},
    [DTYPE_BYTES] = {NAME("BYTES"), NAME("TYPE_STRING"), 0},
};

const char *dtype_name(enum dtype t)
{
    return (unsigned)t < DTYPE_COUNT ? dtypes[t].name : dtypes[0].name;
}

size_t dtype_bytes(enum dtype t)
{
    return (unsigned)t < DTYPE_COUNT ? dtypes[t].bytes : 0;
}

enum dtype dtype_parse(struct str name)
{
    for (int t = DTYPE_INVALID + 1; t < DTYPE_COUNT; t++)
        if ((name.n == dtypes[t].name_n && memcmp(name.p, dtypes[t].name, name.n) == 0) ||
            (name.n == dtypes[t].config_n && memcmp(name.p, dtypes[t].config_name, name.n) == 0))
            return (enum dtype)t;
    return DTYPE_INVALID;
}

static uint32_t float_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float bits_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = (h >> 10) & 31, man = h & 0x3ff;
    if (exp == 31)
        return bits_float(sign | 0x7f800000 | man << 13 | (man ? 0x400000 : 0));
    if (exp)
        return bits_float(sign | (exp + 112) << 23 | man << 13);
    /* A subnormal is man x 2^-24, exact in float. */
    return bits_float(sign | float_bits((float)man * 0x1p-24f));
}

uint16_t f32_to_f16(float f)
{
    uint32_t u = float_bits(f), sign = u >> 16 & 0x8000, mag = u & 0x7fffffff;
    if (mag > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (mag >> 13 & 0x1ff));
    if (mag >= 0x477ff000) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (mag < 0x38800000) { /* below 2^-14: adding 0.5 leaves the half's subnormal in the low bits, rounded to even */
        uint32_t r = float_bits(bits_float(mag) + 0.5f) - float_bits(0.5f);
        return (uint16_t)(sign | r);
    }
    uint32_t odd = mag >> 13 & 1;
    return (uint16_t)(sign | (mag - 0x38000000 + 0xfff + odd) >> 13);
}

float bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    return bits_float((u & 0x7fffffff) > 0x7f800000 ? u | 0x400000 : u);
}

uint16_t f32_to_bf16(float f)
{
    uint32_t u = float_bits(f);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

float f64_to_f32_odd(double v)
{
    float f = (float)v;
    if ((double)f == v || v != v)
        return f;
    uint32_t u = float_bits(f);
    if (__builtin_fabs((double)f) > __builtin_fabs(v))
        u--;
    return bits_float(u | 1);
}
