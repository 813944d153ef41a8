/* test_safetensors.c: headers written by hand after the format's description, cut at every byte and wrong in every field. Files of the
 * `safetensors` package are read in test_model_desc.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/status.h"
#include "engine/llm/file/gguf_build.h"
#include "engine/llm/file/safetensors.h"

static struct arena arena;
static struct safetensors st;
static struct error err;

static int parse(const char *header, size_t data, size_t cut)
{
    struct buf b;
    buf_init(&b);
    put_u64(&b, strlen(header));
    buf_append_z(&b, header);
    for (size_t i = 0; i < data; i++)
        buf_append_c(&b, (char)i);
    uint8_t *copy = malloc(b.n);
    assert_non_null(copy);
    memcpy(copy, b.p, b.n);
    arena_clear(&arena);
    err = (struct error){0};
    int rc = safetensors_parse(copy, b.n - cut, &arena, &st, &err);
    assert_int_equal(rc, err.code);
    for (size_t i = 0; rc == 0 && i < st.n; i++)
        assert_true(st.v[i].data >= copy && st.v[i].data + st.v[i].bytes <= copy + b.n - cut);
    if (rc == 0 && st.n)
        assert_int_equal(st.v[0].data[0], 0);
    free(copy);
    buf_release(&b);
    return rc;
}

static void refused(const char *header, size_t data, const char *text)
{
    if (parse(header, data, 0) >= 0 || !strstr(err.text, text))
        fail_msg("%s: \"%s\"; expected \"%s\"", header, err.text, text);
}

#define TWO                                                                                                                    \
    "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"                \
    "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}"

static void reads(void **state)
{
    (void)state;
    assert_int_equal(parse(TWO, 16, 0), 0);
    assert_int_equal(st.n, 2);
    assert_true(str_eqz(st.v[0].name, "a") && str_eqz(st.v[0].dtype, "F32"));
    assert_int_equal(st.v[0].n_dims, 0);
    assert_int_equal(st.v[0].bytes, 4);
    assert_true(str_eqz(st.v[1].name, "b"));
    assert_int_equal(st.v[1].n_dims, 2);
    assert_int_equal(st.v[1].shape[1], 3);
    assert_int_equal(st.v[1].bytes, 12);
    assert_int_equal(parse("{}", 0, 0), 0);
    assert_int_equal(st.n, 0);
}

static void cut_at_every_byte(void **state)
{
    (void)state;
    for (size_t cut = 1; cut <= 8 + strlen(TWO) + 16; cut++)
        assert_int_equal(parse(TWO, 16, cut), STATUS_INVALID);
}

#define T(dtype, shape, offsets) "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void wrong_fields(void **state)
{
    (void)state;
    assert_int_equal(parse(T("\"F16\"", "[2]", "[0,4]"), 4, 0), 0);
    refused("[]", 0, "must be an object");
    refused("{", 0, "header");
    refused("{\"t\":3}", 0, "\"t\": its description must be an object");
    refused("{\"t\":{}}", 0, "dtype");
    refused(T("\"F12\"", "[2]", "[0,4]"), 4, "unknown dtype \"F12\"");
    refused(T("7", "[2]", "[0,4]"), 4, "dtype");
    refused(T("\"F16\"", "2", "[0,4]"), 4, "\"shape\" must be a list");
    refused(T("\"F16\"", "[0]", "[0,0]"), 0, "not a whole number above 0");
    refused(T("\"F16\"", "[-2]", "[0,4]"), 4, "not a whole number above 0");
    refused(T("\"F16\"", "[2.0]", "[0,4]"), 4, "not a whole number above 0");
    refused(T("\"F16\"", "[4294967296,4294967296]", "[0,4]"), 4, "overflows");
    refused(T("\"F64\"", "[9223372036854775807]", "[0,4]"), 4, "not as long as dtype and shape say");
    refused(T("\"F16\"", "[1,1,1,1,1,1,1,1,2]", "[0,4]"), 4, "at most 8");
    refused(T("\"F16\"", "[2]", "[0]"), 4, "\"data_offsets\" must be two");
    refused(T("\"F16\"", "[2]", "[0,-4]"), 4, "\"data_offsets\" must be two");
    refused(T("\"F16\"", "[2]", "[4,0]"), 4, "runs past the end");
    refused(T("\"F16\"", "[2]", "[0,18446744073709551615]"), 4, "runs past the end");
    refused(T("\"F16\"", "[3]", "[0,4]"), 4, "not as long as");
    refused(T("\"F16\"", "[2]", "[2,6]"), 6, "leaves a gap");
    refused(T("\"F16\"", "[2]", "[0,4]"), 5, "1 bytes at the end belong to no tensor");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_"
            "offsets\":[2,6]}}",
            6, "overlaps");
    uint8_t huge[16];
    memset(huge, 0xff, sizeof huge);
    assert_int_equal(safetensors_parse(huge, sizeof huge, &arena, &st, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "header's length 18446744073709551615"));
}

static int setup(void **state)
{
    (void)state;
    arena_init(&arena, 4096, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_release(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads), cmocka_unit_test(cut_at_every_byte),
                                       cmocka_unit_test(wrong_fields)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
