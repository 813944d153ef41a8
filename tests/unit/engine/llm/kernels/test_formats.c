/* Weight formats against ggml's own results (tests/data/llm_quant.bin, made by make_llm_quant.py): dequantisation bit by bit, quantisation byte by
 * byte, and a packed matrix gives its rows back. Half floats against the definition. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "engine/llm/kernels/kernels_priv.h"
#include "engine/llm/kernels/weights.h"

struct golden {
    enum weight_type type;
    uint32_t n, bytes;
    const float *x;
    const uint8_t *quants, *raw;
    const float *y;
};

static uint8_t *file;
static struct golden golden[16];
static size_t n_golden;

static int load(void **state)
{
    (void)state;
    FILE *f = fopen(TEST_DATA "/llm_quant.bin", "rb");
    file = malloc(1 << 20);
    size_t n = f ? fread(file, 1, 1 << 20, f) : 0, at = 0;
    if (f)
        fclose(f);
    while (at < n) {
        struct golden *g = &golden[n_golden++];
        uint32_t head[3];
        memcpy(head, file + at, 12);
        g->type = (enum weight_type)head[0];
        g->n = head[1];
        g->bytes = head[2];
        g->x = (const float *)(const void *)(file + at + 12);
        g->quants = file + at + 12 + (size_t)g->n * 4;
        g->raw = g->quants + g->bytes;
        g->y = (const float *)(const void *)(g->raw + g->bytes);
        at += 12 + (size_t)g->n * 8 + (size_t)g->bytes * 2;
    }
    return n_golden == 10 ? 0 : -1;
}

static int unload(void **state)
{
    (void)state;
    free(file);
    return 0;
}

static void dequantises_as_ggml(void **state)
{
    (void)state;
    float y[1024];
    for (size_t i = 0; i < n_golden; i++)
        for (size_t k = 0; KERNELS_ALL[k]; k++) {
            if (!kernels_runnable(KERNELS_ALL[k]))
                continue;
            KERNELS_ALL[k]->dequant_row(golden[i].type, golden[i].raw, golden[i].n, y);
            if (memcmp(y, golden[i].y, sizeof y)) {
                printf("%s\n", weight_type_info(golden[i].type)->name);
                fail();
            }
        }
}

static void quantises_as_ggml(void **state)
{
    (void)state;
    uint8_t q[4096];
    for (size_t i = 0; i < n_golden; i++) {
        assert_true(quant_row(golden[i].type, golden[i].x, golden[i].n, q));
        for (uint32_t b = 0; b < golden[i].bytes; b++)
            if (q[b] != golden[i].quants[b]) {
                printf("%s: byte %u of %u is %u, not %u\n", weight_type_info(golden[i].type)->name, b, golden[i].bytes, q[b],
                       golden[i].quants[b]);
                fail();
            }
    }
    assert_false(quant_row((enum weight_type)16, golden[0].x, 256, q));
    assert_false(quant_row(WEIGHT_Q4_0, golden[0].x, 33, q));
}

/* A packed matrix gives back what dequant_row reads from the file, in any cut of strips. */
static void packed_rows_are_the_files(void **state)
{
    (void)state;
    for (size_t ti = 0; ti < N_TYPES; ti++)
        for (size_t k = 0; KERNELS_ALL[k]; k++) {
            struct matrix m;
            uint8_t *src;
            float want[512], got[512];
            if (!kernels_runnable(KERNELS_ALL[k]))
                continue;
            assert_true(random_matrix(ALL_TYPES[ti], 37, 512, 5 + ti, &m, &src));
            memset(m.data, 0x77, matrix_bytes(&m));
            KERNELS_ALL[k]->pack(&m, src, 2, 3);
            KERNELS_ALL[k]->pack(&m, src, 0, 2);
            for (uint32_t r = 0; r < 37; r++) {
                KERNELS_ALL[k]->dequant_row(m.type, src + r * matrix_row_bytes(&m), 512, want);
                KERNELS_ALL[k]->matrix_row(&m, r, got);
                assert_memory_equal(want, got, sizeof want);
            }
            free(src);
            free(m.data);
        }
}

static void half_floats(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        uint32_t exp = h >> 10 & 31, man = h & 1023;
        double want = ldexp(exp ? 1024 + man : man, (int)(exp ? exp : 1) - 25); /* IEEE 754 binary16 */
        float got = f16_to_f32((uint16_t)h);
        if (exp == 31) {
            assert_true(man ? isnan(got) : isinf(got));
            continue;
        }
        assert_true((double)got == (h & 0x8000 ? -want : want) && !signbit(got) == !(h & 0x8000));
        assert_int_equal(h, f32_to_f16(got));
        float next = f16_to_f32((uint16_t)(h + 1)), mid = got + (next - got) / 2; /* exact: a tie goes to the even one */
        if (exp < 30 || man < 1023) {
            assert_int_equal(h % 2 ? h + 1 : h, f32_to_f16(mid));
            assert_int_equal(h + 1, f32_to_f16(nextafterf(mid, next)));
            assert_int_equal(h, f32_to_f16(nextafterf(mid, got)));
        }
    }
    assert_int_equal(0x7c00, f32_to_f16(65520.0f));
    assert_int_equal(0x7bff, f32_to_f16(65519.996f));
    assert_true(isnan(f16_to_f32(f32_to_f16(NAN))) && isnan(bf16_to_f32(f32_to_bf16(NAN))));
    assert_int_equal(0x3f80, f32_to_bf16(1.00390625f)); /* a tie: even */
    assert_int_equal(0x3f82, f32_to_bf16(1.01171875f));
    assert_int_equal(0xc000, f32_to_bf16(-2.0f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(dequantises_as_ggml), cmocka_unit_test(quantises_as_ggml),
                                       cmocka_unit_test(packed_rows_are_the_files), cmocka_unit_test(half_floats)};
    return cmocka_run_group_tests(tests, load, unload);
}
