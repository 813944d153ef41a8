/* The inference response: hand-written expected text, refusals, and the way back through the request decoder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "tensor/infer_json_encode.h"

static struct tensor tensor_of(struct str name, enum dtype t, struct shape shape, const void *p, size_t n)
{
    return (struct tensor){name, t, shape, slice_borrow(p, n)};
}

static void expect_data(enum dtype t, const void *p, size_t n, const char *want)
{
    struct error err;
    struct buf b;
    buf_init(&b);
    struct tensor x = tensor_of(STR("y"), t, (struct shape){1, {(int64_t)(n / (dtype_bytes(t) ? dtype_bytes(t) : 1))}}, p, n);
    assert_int_equal(json_encode_data(&x, &b, &err), STATUS_OK);
    assert_string_equal(buf_z(&b), want);
    buf_release(&b);
}
#define DATA(t, type, want, ...) expect_data(t, (const type[]){__VA_ARGS__}, sizeof((const type[]){__VA_ARGS__}), want)

static void every_datatype_is_written(void **state)
{
    (void)state;
    DATA(DTYPE_BOOL, uint8_t, "[true,false]", 1, 0);
    DATA(DTYPE_UINT8, uint8_t, "[0,255]", 0, 255);
    DATA(DTYPE_INT8, int8_t, "[-128,127]", -128, 127);
    DATA(DTYPE_UINT16, uint16_t, "[65535]", 65535);
    DATA(DTYPE_INT16, int16_t, "[-32768]", -32768);
    DATA(DTYPE_UINT32, uint32_t, "[4294967295]", 4294967295u);
    DATA(DTYPE_INT32, int32_t, "[-2147483648,10]", INT32_MIN, 10);
    DATA(DTYPE_UINT64, uint64_t, "[18446744073709551615,9007199254740993]", UINT64_MAX, 9007199254740993u);
    DATA(DTYPE_INT64, int64_t, "[-9223372036854775808,-9007199254740993]", INT64_MIN, -9007199254740993);
    DATA(DTYPE_FP32, float, "[0.1,1.0,-2.5,3.4028235e38,1e-45]", 0.1f, 1, -2.5f, 3.4028234663852886e38f, 1e-45f);
    DATA(DTYPE_FP64, double, "[0.1,1.0,5e-324,0.30000000000000004]", 0.1, 1, 5e-324, 0.1 + 0.2);
    DATA(DTYPE_FP16, uint16_t, "[1.0,0.1,65500.0,-0.0]", 0x3c00, 0x2e66, 0x7bff,
         0x8000); /* as numpy: 6.55e+04 is its shortest */
    DATA(DTYPE_BF16, uint16_t, "[1.0,0.1,-2.0]", 0x3f80, 0x3dcd, 0xc000);
    expect_data(DTYPE_BYTES, "\2\0\0\0a\"\0\0\0\0\3\0\0\0\xc3\xa9\n", 17, "[\"a\\\"\",\"\",\"\xc3\xa9\\n\"]");
    expect_data(DTYPE_FP32, "", 0, "[]");
    expect_data(DTYPE_BYTES, "", 0, "[]");
}

static void what_json_cannot_carry_is_refused(void **state)
{
    (void)state;
    struct error err;
    struct buf b;
    buf_init(&b);
    float f[] = {1, NAN, 2}, inf[] = {-INFINITY};
    double d[] = {1, 2, INFINITY};
    uint16_t h[] = {0x7c01}, bf[] = {0x7f80};
    const struct tensor bad[] = {
        tensor_of(STR("y"), DTYPE_FP32, (struct shape){1, {3}}, f, sizeof f),
        tensor_of(STR("y"), DTYPE_FP32, (struct shape){1, {1}}, inf, sizeof inf),
        tensor_of(STR("y"), DTYPE_FP64, (struct shape){1, {3}}, d, sizeof d),
        tensor_of(STR("y"), DTYPE_FP16, (struct shape){1, {1}}, h, sizeof h),
        tensor_of(STR("y"), DTYPE_BF16, (struct shape){1, {1}}, bf, sizeof bf),
        tensor_of(STR("y"), DTYPE_BYTES, (struct shape){1, {1}}, "\1\0\0\0\xff", 5),
        tensor_of(STR("y"), DTYPE_BYTES, (struct shape){1, {1}}, "\x0d\0\0\0 0123456789\xe2\x82", 17),
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(json_encode_data(&bad[i], &b, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, "output 'y': element "));
        assert_non_null(strstr(err.text, "ask for this output as binary"));
    }
    assert_int_equal(json_encode_data(&bad[0], &b, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "element 1 is NaN or infinite"));
    buf_release(&b);
}

static void a_whole_reply(void **state)
{
    (void)state;
    struct slab *s = slab_create(16);
    memcpy(s->data, (const float[]){1, 2, 3}, 12);
    struct tensor a = {STR("a\"b"), DTYPE_FP32, {2, {1, 3}}, slice_of(s, 0, 12)};
    struct tensor b = {STR("n"), DTYPE_INT64, {0, {0}}, slice_borrow((const int64_t[]){-5}, 8)};
    struct infer_param params[] = {{STR("p"), INFER_PARAM_INT, {.i = INT64_MIN}},
                                   {STR("q"), INFER_PARAM_STRING, {.s = STR("x\n")}},
                                   {STR("r"), INFER_PARAM_BOOL, {.b = true}},
                                   {STR("s"), INFER_PARAM_DOUBLE, {.d = 0.25}}};
    struct infer_json_reply_output outs[] = {{&a, true}, {&b, false}};
    struct infer_json_reply r = {STR("m"), STR("3"), STR("id-1"), params, 4, outs, 2};
    struct buf head;
    struct slice tail[2];
    size_t n_tail, header;
    struct error err;
    buf_init(&head);
    assert_int_equal(infer_json_encode(&r, &head, tail, &n_tail, &header, &err), STATUS_OK);
    assert_string_equal(
        buf_z(&head),
        "{\"model_name\":\"m\",\"model_version\":\"3\",\"id\":\"id-1\",\"parameters\":{\"p\":-9223372036854775808,"
        "\"q\":\"x\\n\",\"r\":true,\"s\":0.25},\"outputs\":[{\"name\":\"a\\\"b\",\"datatype\":\"FP32\",\"shape\":[1,3],"
        "\"parameters\":{\"binary_data_size\":12}},{\"name\":\"n\",\"datatype\":\"INT64\",\"shape\":[],\"data\":[-5]}]}");
    assert_int_equal(header, head.n);
    assert_int_equal(n_tail, 1);
    assert_ptr_equal(tail[0].p, s->data);
    assert_int_equal(s->refs, 3);
    slice_release(&tail[0]);

    r = (struct infer_json_reply){STR("m"), {NULL, 0}, {NULL, 0}, NULL, 0, NULL, 0};
    buf_clear(&head);
    assert_int_equal(infer_json_encode(&r, &head, tail, &n_tail, &header, &err), STATUS_OK);
    assert_string_equal(buf_z(&head), "{\"model_name\":\"m\",\"outputs\":[]}");
    assert_int_equal(header, 0);
    float nan = NAN;
    struct tensor c = tensor_of(STR("c"), DTYPE_FP32, (struct shape){1, {1}}, &nan, 4);
    struct infer_json_reply_output bad[] = {{&a, true}, {&c, false}};
    r.outputs = bad;
    r.n_outputs = 2;
    assert_int_equal(infer_json_encode(&r, &head, tail, &n_tail, &header, &err), STATUS_INVALID);
    assert_int_equal(n_tail, 0);
    assert_int_equal(s->refs, 2);
    /* NaN is fine as binary. */
    bad[1].binary = true;
    assert_int_equal(infer_json_encode(&r, &head, tail, &n_tail, &header, &err), STATUS_OK);
    assert_int_equal(n_tail, 2);
    slice_release(&tail[0]);
    buf_release(&head);
    tensor_release(&a);
    slab_unref(s);
}

/* More elements than one chunk, every dtype: decoded again they are the same bytes. */
static void long_outputs_come_back_bit_for_bit(void **state)
{
    (void)state;
    enum { N = 1500 };
    static uint8_t bytes[N * 8];
    uint64_t x = 1;
    for (size_t i = 0; i < sizeof bytes; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t)(x >> 56);
        if (i % 8 == 7 || i % 4 == 3 || i % 2 == 1)
            bytes[i] &= 0xbf; /* no NaN, no infinity in any float type */
    }
    for (int t = DTYPE_UINT8; t < DTYPE_BYTES; t++) {
        struct tensor out = tensor_of(STR("x"), (enum dtype)t, (struct shape){1, {N}}, bytes, N * dtype_bytes((enum dtype)t));
        struct buf b;
        struct arena a;
        struct infer_json r;
        struct error err;
        buf_init(&b);
        arena_init(&a, 4096, 0);
        buf_printf(&b, "{\"inputs\":[{\"name\":\"x\",\"shape\":[%d],\"datatype\":\"%s\",\"data\":", N,
                   dtype_name((enum dtype)t));
        assert_int_equal(json_encode_data(&out, &b, &err), STATUS_OK);
        buf_append_z(&b, "}]}");
        if (infer_json_decode(buf_str(&b), slice_borrow(NULL, 0), &a, NULL, &r, &err))
            fail_msg("%s", err.text);
        assert_int_equal(r.inputs[0].data.n, out.data.n);
        assert_memory_equal(r.inputs[0].data.p, bytes, out.data.n);
        infer_json_release(&r);
        arena_release(&a);
        buf_release(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_datatype_is_written),
        cmocka_unit_test(what_json_cannot_carry_is_refused),
        cmocka_unit_test(a_whole_reply),
        cmocka_unit_test(long_outputs_come_back_bit_for_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
