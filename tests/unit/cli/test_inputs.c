/* Request tensors from the command line: JSON, generated data, conversion of numbers. Files go through the whole program in
 * tests/wire/test_cli.py, against numpy, Pillow and soundfile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"
#include "base/status.h"
#include "cli/inputs_priv.h"

static struct kserve_model model = {
    .inputs = {{STR("x"), DTYPE_FP32, {2, {-1, 3}}, false},
               {STR("ids"), DTYPE_INT64, {2, {-1, -1}}, false},
               {STR("s"), DTYPE_BYTES, {1, {-1}}, false},
               {STR("flag"), DTYPE_BOOL, {0}, true}},
    .n_inputs = 4,
    .max_batch = 8,
};

static void json_is(const char *text, int rank, int64_t d0, int64_t d1, const void *bytes, size_t n)
{
    struct inputs in;
    struct error err = {0};
    inputs_init(&in);
    if (inputs_add_json(&in, &model, text, &err) != 0)
        fail_msg("%s", err.text);
    const struct tensor *t = &in.tensors[0];
    assert_int_equal(t->shape.rank, rank);
    assert_true(rank < 1 || t->shape.dim[0] == d0);
    assert_true(rank < 2 || t->shape.dim[1] == d1);
    assert_int_equal(t->data.n, n);
    assert_memory_equal(t->data.p, bytes, n);
    inputs_release(&in);
}

static void json_refused(const char *text, int status)
{
    struct inputs in;
    struct error err = {0};
    inputs_init(&in);
    assert_int_equal(inputs_add_json(&in, &model, text, &err), status);
    assert_true(err.text[0]);
    inputs_release(&in);
}

static void json(void **state)
{
    (void)state;
    const float row[] = {1, 2, 3, 4, 5, 6};
    const int64_t ids[] = {5, -6};
    json_is("x=[[1,2,3],[4,5,6]]", 2, 2, 3, row, 24);
    json_is("x=[1,2,3]", 2, 1, 3, row, 12); /* one row without its batch axis */
    json_is("ids=[5,-6]", 2, 1, 2, ids, 16);
    json_is("s=[\"a\",\"\"]", 1, 2, 0, "\1\0\0\0a\0\0\0\0", 9);
    json_is("s=\"a\"", 1, 1, 0, "\1\0\0\0a", 5);
    json_is("flag=true", 0, 0, 0, "\1", 1);
    json_refused("x", STATUS_INVALID);
    json_refused("y=1", STATUS_NOT_FOUND);
    json_refused("x=[1,", STATUS_INVALID);
    json_refused("x=[[1,2],[3]]", STATUS_INVALID);
    json_refused("x=[\"1\"]", STATUS_INVALID);
    json_refused("ids=[1.5]", STATUS_INVALID);
    struct inputs in;
    struct error err = {0};
    inputs_init(&in);
    assert_int_equal(inputs_add_json(&in, &model, "x=[1,2,3]", &err), 0);
    assert_int_equal(inputs_add_json(&in, &model, "x=[1,2,3]", &err), STATUS_INVALID);
    assert_string_equal(err.text, "input 'x' is given twice");
    inputs_release(&in);
}

static void generated(void **state)
{
    (void)state;
    struct inputs_generate g = {.rows = 4, .dynamic = 7, .int_below = 10, .shapes = {.v = {"ids=4,2"}, .n = 1}};
    struct inputs in;
    struct error err = {0};
    rand_init(&g.rand, 1);
    inputs_init(&in);
    assert_int_equal(inputs_generate(&in, &model, &g, &err), 0);
    assert_int_equal(in.n, 3); /* the optional one is left out */
    assert_int_equal(in.tensors[0].shape.dim[0], 4);
    assert_int_equal(in.tensors[0].shape.dim[1], 3);
    assert_int_equal(in.tensors[1].shape.dim[1], 2);
    assert_int_equal(in.tensors[2].shape.dim[0], 4);
    for (size_t i = 0; i < in.n; i++)
        assert_int_equal(tensor_check(&in.tensors[i], &err), 0);
    for (size_t i = 0; i < 12; i++) {
        float f;
        memcpy(&f, in.tensors[0].data.p + 4 * i, 4);
        assert_true(f >= 0 && f < 1);
    }
    for (size_t i = 0; i < 8; i++) {
        int64_t v;
        memcpy(&v, in.tensors[1].data.p + 8 * i, 8);
        assert_true(v >= 0 && v < 10);
    }
    inputs_release(&in);
    static const char *const bad[] = {"ids", "ids=1,x", "ids=-1", "nope=1", "ids=1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        g.shapes.v[0] = bad[i];
        inputs_init(&in);
        assert_true(inputs_generate(&in, &model, &g, &err) < 0);
        inputs_release(&in);
    }
    g.shapes.v[0] = "x=4294967296,4294967296";
    inputs_init(&in);
    assert_int_equal(inputs_generate(&in, &model, &g, &err), STATUS_NOMEM); /* neither overflow nor 64 EiB */
    inputs_release(&in);
}

static void cast_is(enum dtype from, const void *in, size_t n_in, enum dtype to, const void *want, size_t n)
{
    struct tensor t = {STR("x"), from, {1, {(int64_t)(n_in / dtype_bytes(from))}}, slice_borrow(in, n_in)};
    struct error err = {0};
    assert_int_equal(inputs__cast(&t, to, &err), 0);
    assert_int_equal(t.dtype, to);
    assert_int_equal(t.data.n, n);
    assert_memory_equal(t.data.p, want, n);
    tensor_release(&t);
}

#define CAST(from, in, to, want) cast_is(from, in, sizeof(in), to, want, sizeof(want))

static void casts(void **state)
{
    (void)state;
    const float reals[] = {1.75f, -1.75f, 300, -300, 1e30f, -1e30f, 0.0f / 1};
    const int8_t bytes[] = {1, -1, 127, -128, 127, -128, 0};
    const uint8_t unsigned_bytes[] = {1, 0, 255, 0, 255, 0, 0};
    const int64_t whole[] = {1, -1, 300, -300, INT64_MAX, INT64_MIN, 0};
    CAST(DTYPE_FP32, reals, DTYPE_INT8, bytes);
    CAST(DTYPE_FP32, reals, DTYPE_UINT8, unsigned_bytes);
    CAST(DTYPE_FP32, reals, DTYPE_INT64, whole);
    const int64_t big[] = {INT64_MAX, INT64_MIN, -1};
    const uint64_t unsigned_big[] = {INT64_MAX, 0, 0};
    CAST(DTYPE_INT64, big, DTYPE_UINT64, unsigned_big);
    const uint64_t top[] = {UINT64_MAX, 9007199254740993ull};
    const int64_t signed_top[] = {INT64_MAX, 9007199254740993ll}; /* past 2^53, exact */
    CAST(DTYPE_UINT64, top, DTYPE_INT64, signed_top);
    const double d[] = {0.1, 65504};
    const uint16_t half[] = {0x2e66, 0x7bff}; /* IEEE binary16 */
    const uint8_t truth[] = {1, 1};
    CAST(DTYPE_FP64, d, DTYPE_FP16, half);
    CAST(DTYPE_FP64, d, DTYPE_BOOL, truth);
    const int16_t s16[] = {-5};
    const float f5[] = {-5};
    const uint16_t brain[] = {0xc0a0};
    CAST(DTYPE_INT16, s16, DTYPE_FP32, f5);
    CAST(DTYPE_INT16, s16, DTYPE_BF16, brain);
    struct tensor text = {STR("x"), DTYPE_BYTES, {1, {1}}, slice_borrow("\0\0\0\0", 4)};
    struct error err = {0};
    assert_int_equal(inputs__cast(&text, DTYPE_FP32, &err), STATUS_INVALID);
}

static void kinds(void **state)
{
    (void)state;
    assert_int_equal(inputs__kind("a", STR("\x93NUMPY\1")), INPUTS_NPY);
    assert_int_equal(inputs__kind("a.json", STR("{")), INPUTS_JSON);
    assert_int_equal(inputs__kind("a", STR("{")), INPUTS_RAW);
    assert_int_equal(inputs__kind("a.txt", STR("\xff\xd8\xff\xe0")), INPUTS_IMAGE);
    assert_int_equal(inputs__kind("a", STR("RIFF\0\0\0\0WEBP")), INPUTS_IMAGE);
    assert_int_equal(inputs__kind("a", STR("RIFF\0\0\0\0WAVE")), INPUTS_SOUND);
    assert_int_equal(inputs__kind("a", STR("fLaC")), INPUTS_SOUND);
    assert_int_equal(inputs__kind("a", STR("\xff\xfb\x90")), INPUTS_SOUND);
    assert_int_equal(inputs__kind("a", STR("RIFF")), INPUTS_RAW);
    assert_int_equal(inputs__kind("a", STR("")), INPUTS_RAW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(json), cmocka_unit_test(generated), cmocka_unit_test(casts),
                                       cmocka_unit_test(kinds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
