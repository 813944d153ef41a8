/* Triton's classification extension: texts as std::to_string writes them (C++ [string.conversions]: "%f", "%d" ...), the
 * shape rule of its HTTP server, and random rows against a full sort. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "tensor/classification.h"

static void expect(const struct tensor *t, const char *const *texts, size_t n)
{
    size_t at = 0;
    struct error err;
    assert_int_equal(tensor_check(t, &err), STATUS_OK);
    for (size_t i = 0; i < n; i++) {
        uint32_t len;
        memcpy(&len, t->data.p + at, 4);
        char got[128];
        snprintf(got, sizeof got, "%.*s", (int)len, (const char *)t->data.p + at + 4);
        assert_string_equal(got, texts[i]);
        at += 4 + len;
    }
    assert_int_equal(at, t->data.n);
}
#define EXPECT(t, ...)                                                                                                         \
    expect(t, (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void rows_are_ranked_alone(void **state)
{
    (void)state;
    struct error err;
    struct tensor out;
    const float p[] = {0.1f, 0.7f, 0.2f, 0.5f, 0.25f, 0.25f};
    const struct str labels[] = {STR("cat"), STR(""), STR("dog")};
    struct tensor t = {STR("p"), DTYPE_FP32, {2, {2, 3}}, slice_borrow(p, sizeof p)};
    assert_int_equal(classification_top(&t, true, 2, labels, 3, &out, &err), STATUS_OK);
    EXPECT(&out, "0.700000:1", "0.200000:2:dog", "0.500000:0:cat", "0.250000:1");
    assert_int_equal(out.shape.rank, 2);
    assert_true(out.shape.dim[0] == 2 && out.shape.dim[1] == 2);
    tensor_release(&out);
    assert_int_equal(classification_top(&t, false, 2, labels, 1, &out, &err), STATUS_OK);
    EXPECT(&out, "0.700000:1", "0.500000:3");
    assert_true(out.shape.rank == 1 && out.shape.dim[0] == 2);
    tensor_release(&out);
    assert_int_equal(classification_top(&t, true, 1000, NULL, 0, &out, &err), STATUS_OK);
    EXPECT(&out, "0.700000:1", "0.200000:2", "0.100000:0", "0.500000:0", "0.250000:1", "0.250000:2");
    tensor_release(&out);
}

static void other_types(void **state)
{
    (void)state;
    struct error err;
    struct tensor out;
    const int64_t l[] = {-5, INT64_MAX, INT64_MIN, 0};
    struct tensor t = {STR("p"), DTYPE_INT64, {1, {4}}, slice_borrow(l, sizeof l)};
    assert_int_equal(classification_top(&t, false, 4, NULL, 0, &out, &err), STATUS_OK);
    EXPECT(&out, "9223372036854775807:1", "0:3", "-5:0", "-9223372036854775808:2");
    tensor_release(&out);
    const uint64_t u[] = {1, UINT64_MAX};
    t = (struct tensor){STR("p"), DTYPE_UINT64, {1, {2}}, slice_borrow(u, sizeof u)};
    assert_int_equal(classification_top(&t, false, 1, NULL, 0, &out, &err), STATUS_OK);
    EXPECT(&out, "18446744073709551615:1");
    tensor_release(&out);
    const int8_t b[] = {-1, -128, 127};
    t = (struct tensor){STR("p"), DTYPE_INT8, {1, {3}}, slice_borrow(b, sizeof b)};
    assert_int_equal(classification_top(&t, false, 3, NULL, 0, &out, &err), STATUS_OK);
    EXPECT(&out, "127:2", "-1:0", "-128:1");
    tensor_release(&out);
    const double d[] = {NAN, -INFINITY, 1e300, INFINITY, -0.0, 0.0};
    t = (struct tensor){STR("p"), DTYPE_FP64, {1, {6}}, slice_borrow(d, sizeof d)};
    assert_int_equal(classification_top(&t, false, 1, NULL, 0, &out, &err), STATUS_OK);
    EXPECT(&out, "inf:3");
    tensor_release(&out);
    t.data.p += 16 + 16; /* -0, 0: equal, the lower index first */
    t.data.n = 16;
    t.shape.dim[0] = 2;
    assert_int_equal(classification_top(&t, false, 2, NULL, 0, &out, &err), STATUS_OK);
    EXPECT(&out, "-0.000000:0", "0.000000:1");
    tensor_release(&out);
    t.data = slice_borrow(d, 16);
    assert_int_equal(classification_top(&t, false, 2, NULL, 0, &out, &err), STATUS_OK);
    assert_int_equal(memcmp(out.data.p + 4, "-inf:1", 6), 0);
    tensor_release(&out);
    const uint16_t h[] = {0x3c00, 0x4000};
    t = (struct tensor){STR("p"), DTYPE_FP16, {2, {1, 2}}, slice_borrow(h, sizeof h)};
    assert_int_equal(classification_top(&t, true, 1, NULL, 0, &out, &err), STATUS_OK);
    EXPECT(&out, "2.000000:1");
    tensor_release(&out);
    t = (struct tensor){STR("p"), DTYPE_FP32, {2, {0, 5}}, slice_borrow(NULL, 0)};
    assert_int_equal(classification_top(&t, true, 3, NULL, 0, &out, &err), STATUS_OK);
    assert_true(out.data.n == 0 && out.shape.rank == 2 && out.shape.dim[0] == 0);
    tensor_release(&out);
    t = (struct tensor){STR("s"), DTYPE_BYTES, {1, {1}}, slice_borrow("\0\0\0\0", 4)};
    assert_int_equal(classification_top(&t, false, 1, NULL, 0, &out, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "output 's' is BYTES"));
}

static const int32_t *sorted_by;
static int by_value(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return sorted_by[x] != sorted_by[y] ? (sorted_by[x] > sorted_by[y] ? -1 : 1) : x - y;
}

static void random_rows_agree_with_a_sort(void **state)
{
    (void)state;
    static int32_t v[5000];
    static int order[5000];
    uint32_t x = 1;
    for (int round = 0; round < 60; round++) {
        size_t n = 1 + (x >> 8) % 5000, k = 1 + (x >> 3) % (round % 2 ? 10 : 2000);
        for (size_t i = 0; i < n; i++) {
            x = x * 1664525u + 1013904223u;
            v[i] = (int32_t)(x >> 20) - 2048;
            order[i] = (int)i;
        }
        sorted_by = v;
        qsort(order, n, sizeof *order, by_value);
        struct tensor t = {STR("p"), DTYPE_INT32, {1, {(int64_t)n}}, slice_borrow(v, n * 4)}, out;
        struct error err;
        assert_int_equal(classification_top(&t, false, (uint32_t)k, NULL, 0, &out, &err), STATUS_OK);
        const uint8_t *p = out.data.p;
        for (size_t i = 0; i < (k < n ? k : n); i++) {
            char want[64];
            int len = snprintf(want, sizeof want, "%d:%d", v[order[i]], order[i]);
            assert_memory_equal(p + 4, want, (size_t)len);
            p += 4 + len;
        }
        assert_ptr_equal(p, out.data.p + out.data.n);
        tensor_release(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_ranked_alone),
        cmocka_unit_test(other_types),
        cmocka_unit_test(random_rows_agree_with_a_sort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
