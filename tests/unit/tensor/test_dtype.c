/* Element types. The 16-bit floats are compared with the processor's own conversions (F16C, or ARM's __fp16): every
 * half, and for the other direction every half's rounding boundary with its neighbours plus a walk over all floats.
 * bfloat16 is compared with the definition of rounding, computed in double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "tensor/tensor.h"

#if defined(__x86_64__)
#include <immintrin.h>
static bool have_oracle(void)
{
    return __builtin_cpu_supports("f16c");
}
__attribute__((target("f16c"))) static float oracle_f16_to_f32(uint16_t h)
{
    return _cvtsh_ss(h);
}
__attribute__((target("f16c"))) static uint16_t oracle_f32_to_f16(float f)
{
    return _cvtss_sh(f, 0);
}
#elif defined(__aarch64__)
static bool have_oracle(void)
{
    return true;
}
static float oracle_f16_to_f32(uint16_t h)
{
    __fp16 v;
    memcpy(&v, &h, 2);
    return (float)v;
}
static uint16_t oracle_f32_to_f16(float f)
{
    __fp16 v = (__fp16)f;
    uint16_t h;
    memcpy(&h, &v, 2);
    return h;
}
#else
static bool have_oracle(void)
{
    return false;
}
static float oracle_f16_to_f32(uint16_t h)
{
    return h;
}
static uint16_t oracle_f32_to_f16(float f)
{
    return (uint16_t)f;
}
#endif

static uint32_t bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static void names_are_the_protocols(void **state)
{
    (void)state;
    /* Open Inference Protocol, "Tensor Data Types", and ModelConfig's TYPE_ names. */
    static const struct {
        const char *name, *config;
        size_t bytes;
    } t[] = {{"BOOL", "TYPE_BOOL", 1},     {"UINT8", "TYPE_UINT8", 1},   {"UINT16", "TYPE_UINT16", 2},
             {"UINT32", "TYPE_UINT32", 4}, {"UINT64", "TYPE_UINT64", 8}, {"INT8", "TYPE_INT8", 1},
             {"INT16", "TYPE_INT16", 2},   {"INT32", "TYPE_INT32", 4},   {"INT64", "TYPE_INT64", 8},
             {"FP16", "TYPE_FP16", 2},     {"FP32", "TYPE_FP32", 4},     {"FP64", "TYPE_FP64", 8},
             {"BF16", "TYPE_BF16", 2},     {"BYTES", "TYPE_STRING", 0}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        enum dtype d = dtype_parse(str_of(t[i].name));
        assert_int_not_equal(d, DTYPE_INVALID);
        assert_string_equal(dtype_name(d), t[i].name);
        assert_int_equal(dtype_parse(str_of(t[i].config)), d);
        assert_int_equal(dtype_bytes(d), t[i].bytes);
    }
    assert_int_equal(dtype_parse(STR("fp32")), DTYPE_INVALID);
    assert_int_equal(dtype_parse(STR("")), DTYPE_INVALID);
    assert_int_equal(dtype_parse(STR("TYPE_INVALID")), DTYPE_INVALID);
    assert_string_equal(dtype_name((enum dtype)99), "INVALID");
    assert_int_equal(dtype_bytes((enum dtype)99), 0);
}

static void every_half_widens_as_the_processor_does(void **state)
{
    (void)state;
    if (!have_oracle())
        skip();
    for (uint32_t h = 0; h < 0x10000; h++)
        assert_int_equal(bits(f16_to_f32((uint16_t)h)), bits(oracle_f16_to_f32((uint16_t)h)));
}

static void floats_narrow_as_the_processor_does(void **state)
{
    (void)state;
    if (!have_oracle())
        skip();
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint32_t base = bits(oracle_f16_to_f32((uint16_t)h));
        static const int32_t steps[] = {0, 1, -1, 0xfff, 0x1000, 0x1001, -0xfff, -0x1000, -0x1001, 0x800000};
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            float f = from_bits(base + (uint32_t)steps[i]);
            assert_int_equal(f32_to_f16(f), oracle_f32_to_f16(f));
        }
    }
    for (uint64_t u = 0; u < 1ull << 32; u += 1021) {
        float f = from_bits((uint32_t)u);
        assert_int_equal(f32_to_f16(f), oracle_f32_to_f16(f));
    }
}

/* The nearer of the two bfloat16 neighbours of a finite float, ties to the even one; computed in double. */
static uint16_t nearest_bf16(float f)
{
    uint16_t low = (uint16_t)(bits(f) >> 16), high = (uint16_t)(low + 1);
    double a = fabs((double)from_bits((uint32_t)low << 16)), x = fabs((double)f);
    double b = (high & 0x7fff) == 0x7f80 ? 0x1p128 : fabs((double)from_bits((uint32_t)high << 16));
    if (x - a == b - x)
        return low & 1 ? high : low;
    return x - a < b - x ? low : high;
}

static void bfloat16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        if ((h & 0x7fff) > 0x7f80) {
            assert_true(isnan(bf16_to_f32((uint16_t)h)));
            assert_int_equal(bits(bf16_to_f32((uint16_t)h)), h << 16 | 0x400000);
            assert_int_equal(f32_to_bf16(from_bits(h << 16)), h | 0x40);
            continue;
        }
        assert_int_equal(bits(bf16_to_f32((uint16_t)h)), h << 16);
        assert_int_equal(f32_to_bf16(from_bits(h << 16)), h);
        static const uint32_t low[] = {1, 0x7fff, 0x8000, 0x8001, 0xffff};
        for (size_t i = 0; i < 5 && (h & 0x7fff) != 0x7f80; i++) {
            float f = from_bits(h << 16 | low[i]);
            assert_int_equal(f32_to_bf16(f), nearest_bf16(f));
        }
    }
    assert_int_equal(f32_to_bf16(from_bits(0x7f800001)), 0x7fc0); /* a NaN with only low payload bits stays a NaN */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_the_protocols),
        cmocka_unit_test(every_half_widens_as_the_processor_does),
        cmocka_unit_test(floats_narrow_as_the_processor_does),
        cmocka_unit_test(bfloat16_rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
