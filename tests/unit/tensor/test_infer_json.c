/* The inference request over HTTP: what is right decodes to hand-made bytes, what is wrong is refused with a sentence that
 * names it. Every good request is also decoded with white space between all tokens, and cut at every byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "tensor/infer_json.h"

struct fixture {
    struct arena a;
    struct infer_json r;
    struct error err;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    arena_init(&f->a, 4096, 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    infer_json_release(&f->r);
    arena_release(&f->a);
    free(f);
    return 0;
}

/* Decode a heap copy of exactly the right size, so that the sanitizers see a read past it. The copy is kept in the arena's
 * place by leaking it into `keep`, freed by the caller. */
static int decode_n(struct fixture *f, const char *text, size_t n, const void *tail, size_t tail_n, char **keep)
{
    *keep = malloc(n + 1);
    memcpy(*keep, text, n);
    char *exact = realloc(*keep, n ? n : 1);
    *keep = exact;
    f->err = (struct error){0};
    return infer_json_decode((struct str){exact, n}, slice_borrow(tail, tail_n), &f->a, NULL, &f->r, &f->err);
}

static char *kept;

static int decode(struct fixture *f, const char *text)
{
    infer_json_release(&f->r);
    free(kept);
    return decode_n(f, text, strlen(text), NULL, 0, &kept);
}

static void drop(struct fixture *f)
{
    infer_json_release(&f->r);
    free(kept);
    kept = NULL;
}

static void good(struct fixture *f, const char *text)
{
    int rc = decode(f, text);
    if (rc)
        fail_msg("%s: refused: %s", text, f->err.text);
}

static void bad(struct fixture *f, const char *text, const char *part)
{
    int rc = decode(f, text);
    if (rc != STATUS_INVALID)
        fail_msg("%s: %s, want an error with '%s'", text, rc ? status_name(rc) : "accepted", part);
    if (!strstr(f->err.text, part))
        fail_msg("%s: says '%s', want '%s'", text, f->err.text, part);
    assert_int_equal(f->r.n_inputs, 0);
}

#define ONE(dtype, shape, data)                                                                                                \
    "{\"inputs\":[{\"name\":\"x\",\"shape\":" shape ",\"datatype\":\"" dtype "\",\"data\":" data "}]}"

static void expect_bytes(struct fixture *f, const char *text, const void *want, size_t n)
{
    good(f, text);
    if (f->r.inputs[0].data.n != n || (n && memcmp(f->r.inputs[0].data.p, want, n) != 0))
        fail_msg("%s: other bytes (%zu)", text, f->r.inputs[0].data.n);
}
#define EXPECT(f, text, type, ...) expect_bytes(f, text, (const type[]){__VA_ARGS__}, sizeof((const type[]){__VA_ARGS__}))

static void every_datatype_decodes(void **state)
{
    struct fixture *f = *state;
    EXPECT(f, ONE("BOOL", "[4]", "[true,false, 1,0]"), uint8_t, 1, 0, 1, 0);
    EXPECT(f, ONE("UINT8", "[3]", "[0,255,-0]"), uint8_t, 0, 255, 0);
    EXPECT(f, ONE("INT8", "[2]", "[-128,127]"), int8_t, -128, 127);
    EXPECT(f, ONE("UINT16", "[1]", "[65535]"), uint16_t, 65535);
    EXPECT(f, ONE("INT16", "[2]", "[-32768,32767]"), int16_t, -32768, 32767);
    EXPECT(f, ONE("UINT32", "[1]", "[4294967295]"), uint32_t, 4294967295u);
    EXPECT(f, ONE("INT32", "[2]", "[-2147483648,2147483647]"), int32_t, INT32_MIN, INT32_MAX);
    EXPECT(f, ONE("UINT64", "[2]", "[18446744073709551615,9007199254740993]"), uint64_t, UINT64_MAX, 9007199254740993u);
    EXPECT(f, ONE("INT64", "[4]", "[-9223372036854775808,9223372036854775807,9007199254740993,-9007199254740993]"), int64_t,
           INT64_MIN, INT64_MAX, 9007199254740993, -9007199254740993);
    EXPECT(f, ONE("FP32", "[4]", "[0.1,-1e-3,3,16777217]"), float, 0.1f, -1e-3f, 3, 16777216);
    EXPECT(f, ONE("FP64", "[3]", "[0.1,1e308,-0.0]"), double, 0.1, 1e308, -0.0);
    EXPECT(f, ONE("FP16", "[3]", "[1,0.1,-65504]"), uint16_t, 0x3c00, 0x2e66, 0xfbff);
    EXPECT(f, ONE("BF16", "[3]", "[1,0.1,-2]"), uint16_t, 0x3f80, 0x3dcd, 0xc000);
    expect_bytes(f, ONE("BYTES", "[3]", "[\"ab\",\"\",\"\\u0000\\u00e9\\ud83d\\ude00\\n\"]"),
                 "\2\0\0\0ab\0\0\0\0\x8\0\0\0\0\xc3\xa9\xf0\x9f\x98\x80\n", 22);
    expect_bytes(f, ONE("BYTES", "[2]", "[\"caf\xc3\xa9 longer than eight\",\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]"),
                 "\x17\0\0\0caf\xc3\xa9 longer than eight\x8\0\0\0\"\\/\b\f\n\r\t", 39);
    drop(f);
}

static void shapes_flat_nested_scalar_empty(void **state)
{
    struct fixture *f = *state;
    EXPECT(f, ONE("INT32", "[2,3]", "[1,2,3,4,5,6]"), int32_t, 1, 2, 3, 4, 5, 6);
    EXPECT(f, ONE("INT32", "[2,3]", "[[1,2,3],[4,5,6]]"), int32_t, 1, 2, 3, 4, 5, 6);
    EXPECT(f, ONE("INT32", "[1,2,1,2]", "[[[[1,2]],[[3,4]]]]"), int32_t, 1, 2, 3, 4);
    EXPECT(f, ONE("INT32", "[]", "[7]"), int32_t, 7);
    EXPECT(f, ONE("INT32", "[]", "7"), int32_t, 7);
    EXPECT(f, ONE("FP32", "[]", "-2.5e0 "), float, -2.5f);
    expect_bytes(f, ONE("BYTES", "[]", "\"z\""), "\1\0\0\0z", 5);
    expect_bytes(f, ONE("FP32", "[0]", "[]"), "", 0);
    expect_bytes(f, ONE("FP32", "[2,0]", "[[],[]]"), "", 0);
    expect_bytes(f, ONE("FP32", "[0,3]", "[ ]"), "", 0);
    expect_bytes(f, ONE("BYTES", "[0]", "[]"), "", 0);
    EXPECT(f, ONE("INT8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[5]"), int8_t, 5);
    bad(f, ONE("INT8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[5]"), "more than 16 dimensions");
    bad(f, ONE("INT32", "[2,3]", "[[1,2,3],[4,5]]"), "input 'x': data[1] has 2 elements, but shape [2,3] asks for 3 there");
    bad(f, ONE("INT32", "[2,3]", "[[1,2,3],[4,5,6,7]]"), "data[1] has more than 3 elements");
    bad(f, ONE("INT32", "[2,3]", "[[1,2,3]]"), "data has 1 elements, but shape [2,3] asks for 2");
    bad(f, ONE("INT32", "[2,3]", "[[1,2,3],[4,5,6],[]]"), "data has more than 2 elements");
    bad(f, ONE("INT32", "[2,3]", "[[1,2,3],4,5,6]"), "element [1] of data is 4");
    bad(f, ONE("INT32", "[2,3]", "[1,[2,3],4,5,6]"), "element 1 of data is an array");
    bad(f, ONE("INT32", "[2,2]", "[[1,[2]],[3,4]]"), "element [0][1] of data is an array");
    bad(f, ONE("INT32", "[2]", "[[1],[2]]"), "element 0 of data is an array");
    bad(f, ONE("INT32", "[2,3]", "[1,2,3,4,5]"), "data has 5 elements, but shape [2,3] asks for 6");
    bad(f, ONE("INT32", "[2,3]", "[1,2,3,4,5,6,7]"), "data has more than 6 elements");
    bad(f, ONE("INT32", "[2]", "7"), "expected an array of data");
    bad(f, ONE("INT32", "[]", "[[7]]"), "an array");
    bad(f, ONE("INT32", "[-1]", "[7]"), "negative dimension -1");
    bad(f, ONE("INT32", "[1.0]", "[7]"), "whole number");
    bad(f, ONE("INT32", "[1000000000000]", "[7]"), "1000000000000 elements, but only");
    bad(f, ONE("INT32", "[4294967296,4294967296]", "[7]"), "more elements than fit 63 bits");
    drop(f);
}

static void values_out_of_range_are_named(void **state)
{
    struct fixture *f = *state;
    bad(f, ONE("INT32", "[2]", "[1,1.0]"),
        "input 'x': element 1 of data is 1.0, but INT32 takes whole numbers from -2147483648 to "
        "2147483647");
    bad(f, ONE("INT32", "[1]", "[1e3]"), "element 0 of data is 1e3");
    bad(f, ONE("INT32", "[1]", "[2147483648]"), "is 2147483648");
    bad(f, ONE("UINT8", "[1]", "[256]"), "from 0 to 255");
    bad(f, ONE("UINT8", "[1]", "[-1]"), "is -1");
    bad(f, ONE("INT8", "[1]", "[-129]"), "is -129");
    bad(f, ONE("UINT64", "[1]", "[18446744073709551616]"), "is 18446744073709551616");
    bad(f, ONE("UINT64", "[1]", "[99999999999999999999]"), "is 99999999999999999999");
    bad(f, ONE("UINT64", "[1]", "[100000000000000000000]"), "is 100000000000000000000");
    bad(f, ONE("INT64", "[1]", "[9223372036854775808]"), "is 9223372036854775808");
    bad(f, ONE("INT64", "[1]", "[-9223372036854775809]"), "is -9223372036854775809");
    bad(f, ONE("INT64", "[1]", "[01]"), "is 01");
    bad(f, ONE("FP32", "[1]", "[1e400]"), "element 0 of data is 1e400, but FP32 takes numbers from -3.4028235e38");
    bad(f, ONE("FP64", "[1]", "[-1e400]"), "is -1e400, but FP64");
    bad(f, ONE("FP32", "[1]", "[3.5e38]"), "is 3.5e38");
    bad(f, ONE("FP16", "[1]", "[65520]"), "is 65520");
    bad(f, ONE("BF16", "[1]", "[3.4e38]"), "is 3.4e38");
    bad(f, ONE("FP32", "[1]", "[NaN]"), "is NaN, but FP32 takes numbers");
    bad(f, ONE("FP32", "[1]", "[NaN]"), "send this input as binary");
    bad(f, ONE("FP32", "[1]", "[-Infinity]"), "no infinities");
    bad(f, ONE("FP32", "[1]", "[\"1\"]"), "is a string, but FP32 takes numbers");
    bad(f, ONE("FP32", "[1]", "[null]"), "is null");
    bad(f, ONE("FP32", "[1]", "[true]"), "is true");
    bad(f, ONE("FP32", "[1]", "[.5]"), "is .5");
    bad(f, ONE("FP32", "[2]", "[1,]"), "element 1 of data is missing");
    bad(f, ONE("FP32", "[2]", "[1 2]"), "expected ',' or ']' behind an element of data, but 2 stands");
    bad(f, ONE("BOOL", "[1]", "[2]"), "is 2, but BOOL takes true, false, 0 and 1");
    bad(f, ONE("BOOL", "[1]", "[0.0]"), "is 0.0");
    bad(f, ONE("BOOL", "[1]", "[trued]"), "expected ',' or ']'");
    bad(f, ONE("BYTES", "[1]", "[5]"), "is 5, but BYTES takes strings");
    bad(f, ONE("BYTES", "[1]", "[\"\\ud83d\"]"), "half of a surrogate pair");
    bad(f, ONE("BYTES", "[1]", "[\"\\ude00\\ud83d\"]"), "half of a surrogate pair");
    bad(f, ONE("BYTES", "[1]", "[\"\\x\"]"), "backslash");
    bad(f, ONE("BYTES", "[1]", "[\"a\xff\"]"), "not valid UTF-8");
    bad(f, ONE("BYTES", "[1]", "[\"\xed\xa0\x80\"]"), "not valid UTF-8");
    bad(f, ONE("BYTES", "[1]", "[\"\xc0\x80\"]"), "not valid UTF-8");
    bad(f, ONE("BYTES", "[1]", "[\"a\nb\"]"), "control character");
    bad(f, ONE("BYTES", "[1]", "[\"ab"), "no closing quote");
    drop(f);
}

static void base64_content(void **state)
{
    struct fixture *f = *state;
#define B64(data)                                                                                                              \
    "{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"BYTES\",\"data\":[" data                                        \
    "],\"parameters\":{\"content_type\":\"base64\"}}]}"
    /* RFC 4648 section 10 */
    expect_bytes(f, B64("\"Zm9vYmFy\""), "\6\0\0\0foobar", 10);
    expect_bytes(f, B64("\"Zm9vYmE=\""), "\5\0\0\0fooba", 9);
    expect_bytes(f, B64("\"Zg==\""), "\1\0\0\0f", 5);
    expect_bytes(f, B64("\"\""), "\0\0\0\0", 4);
    expect_bytes(f, B64("\"+\\/8=\""), "\2\0\0\0\xfb\xff", 6);
    bad(f, B64("\"Zg=\""), "not base64");
    bad(f, B64("\"Zh==\""), "not base64");
    bad(f, B64("\"Z===\""), "not base64");
    bad(f, B64("\"Zg==Zg==\""), "not base64");
    bad(f, B64("\"Zm9v YmE\""), "not base64");
    bad(f,
        "{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1],\"parameters\":{\"content_type\":"
        "\"base64\"}}]}",
        "for BYTES");
    drop(f);
}

static const char full[] =
    "{\"id\":\"r\\u00e9-1\",\"parameters\":{\"priority\":3,\"timeout\":1500,\"binary_data_output\":true,\"k\":\"v\",\"f\":0.5,"
    "\"b\":false,\"n\":-7,\"sequence_id\":0,\"sequence_start\":false},"
    "\"inputs\":[{\"data\":[[1,2],[3,4]],\"datatype\":\"FP32\",\"shape\":[2,2],\"name\":\"a\"},"
    "{\"name\":\"b\",\"datatype\":\"BYTES\",\"shape\":[2],\"data\":[\"q\\\"\",\"w\"],\"extra\":{\"deep\":[1,{\"x\":null}]}}],"
    "\"outputs\":[{\"name\":\"y\"},{\"name\":\"z\",\"parameters\":{\"binary_data\":false,\"classification\":5}}],\"more\":[[]]"
    "}";

static void check_full(struct fixture *f)
{
    struct infer_json *r = &f->r;
    assert_true(str_eqz(r->id, "r\xc3\xa9-1"));
    assert_int_equal(r->priority, 3);
    assert_int_equal(r->timeout_us, 1500);
    assert_true(r->binary_output);
    assert_int_equal(r->n_params, 4);
    const struct infer_param *p = infer_param_find(r->params, r->n_params, "k");
    assert_true(p && p->kind == INFER_PARAM_STRING && str_eqz(p->s, "v"));
    p = infer_param_find(r->params, r->n_params, "f");
    assert_true(p && p->kind == INFER_PARAM_DOUBLE && p->d == 0.5);
    p = infer_param_find(r->params, r->n_params, "b");
    assert_true(p && p->kind == INFER_PARAM_BOOL && !p->b);
    p = infer_param_find(r->params, r->n_params, "n");
    assert_true(p && p->kind == INFER_PARAM_INT && p->i == -7);
    assert_null(infer_param_find(r->params, r->n_params, "priority"));
    assert_int_equal(r->n_inputs, 2);
    assert_true(str_eqz(r->inputs[0].name, "a"));
    assert_int_equal(r->inputs[0].dtype, DTYPE_FP32);
    assert_int_equal(r->inputs[0].data.n, 16);
    assert_memory_equal(r->inputs[0].data.p, ((const float[]){1, 2, 3, 4}), 16);
    assert_int_equal(r->inputs[1].data.n, 11);
    assert_memory_equal(r->inputs[1].data.p, "\2\0\0\0q\"\1\0\0\0w", 11);
    assert_int_equal(r->n_outputs, 2);
    assert_true(r->outputs[0].binary && r->outputs[0].classification == 0);
    assert_true(!r->outputs[1].binary && r->outputs[1].classification == 5);
}

static void whole_requests_with_any_spacing(void **state)
{
    struct fixture *f = *state;
    good(f, full);
    check_full(f);
    char spaced[4 * sizeof full];
    static const char *const spaces[] = {" ", "\n", "\r\n\t ", "  "};
    for (size_t k = 0; k < 4; k++) {
        size_t n = 0;
        bool quoted = false;
        for (const char *p = full; *p; p++) {
            if (*p == '"' && p[-(p > full)] != '\\')
                quoted = !quoted;
            bool mark = !quoted && strchr("{}[],:", *p);
            n += (size_t)snprintf(spaced + n, sizeof spaced - n, "%s%c%s", mark ? spaces[k] : "", *p, mark ? spaces[k] : "");
        }
        good(f, spaced);
        check_full(f);
    }
    drop(f);
}

/* Numbers where they stand, in the usual order of members. */
static const char *const ordered[] = {
    full,
    ONE("FP32", "[2,2]", "[[1.5,-2e3],[3,0.125]]"),
    ONE("INT64", "[2,1,2]", "[[[1,2]],[[3,4]]]"),
    ONE("BOOL", "[2,2]", "[[true,false],[1,0]]"),
    ONE("FP16", "[]", "7"),
    ONE("BYTES", "[2,1]", "[[\"a\\u00e9\"],[\"\\ud83d\\ude00 and more\"]]"),
    "{\"inputs\":[],\"z\":[[{\"a\":[1,{}]},-1.5e-3,true,null,\"s\\n\"]]}",
};

static void every_cut_is_refused(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof ordered / sizeof *ordered; i++)
        for (size_t n = 0; n < strlen(ordered[i]); n++) {
            char *keep;
            int rc = decode_n(f, ordered[i], n, NULL, 0, &keep);
            assert_int_equal(rc, STATUS_INVALID);
            assert_true(f->err.text[0] != 0);
            free(keep);
            arena_clear(&f->a);
        }
}

static void every_changed_byte_is_survived(void **state)
{
    struct fixture *f = *state;
    char text[sizeof full];
    static const char with[] = "\"\\[]{},:0x-\xff\n";
    for (size_t j = 0; j < sizeof ordered / sizeof *ordered; j++)
        for (size_t i = 0; i < strlen(ordered[j]); i++)
            for (size_t k = 0; k < sizeof with; k++) {
                char *keep;
                snprintf(text, sizeof text, "%s", ordered[j]);
                text[i] = with[k];
                int rc = decode_n(f, text, strlen(ordered[j]), NULL, 0, &keep);
                assert_true(rc == STATUS_OK || rc == STATUS_INVALID);
                infer_json_release(&f->r);
                free(keep);
                arena_clear(&f->a);
            }
}

static void malformed_requests_say_what_is_wrong(void **state)
{
    struct fixture *f = *state;
    bad(f, "", "no body");
    bad(f, "  ", "expected an object, but the end of the text stands");
    bad(f, "[]", "expected an object, but an array stands at byte 0");
    bad(f, "{}", "no 'inputs'");
    bad(f, "{\"inputs\":{}}", "expected an array");
    bad(f, "{\"inputs\":[1]}", "expected an object");
    bad(f, "{\"inputs\":[{}]}", "inputs[0] has no name");
    bad(f, "{\"inputs\":[{\"name\":\"\"}]}", "inputs[0] has no name");
    bad(f, "{\"inputs\":[{\"name\":5}]}", "inputs[0]: the request's JSON: expected a string, but 5 stands");
    bad(f, "{\"inputs\":[{\"name\":\"x\"}]}", "input 'x' has no 'shape'");
    bad(f, "{\"inputs\":[{\"name\":\"x\",\"shape\":[1]}]}", "input 'x' has no 'datatype'");
    bad(f, "{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"FP32\"}]}", "neither 'data' nor");
    bad(f, "{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"fp32\"}]}", "datatype 'fp32' is not one of BOOL, ");
    bad(f, "{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"TYPE_FP32\"}]}", "is not one of");
    bad(f, "{\"inputs\":[{\"name\":\"x\",\"shape\":5}]}", "input 'x': the request's JSON: expected an array");
    bad(f, "{\"inputs\":[{\"name\":\"x\",\"name\":\"y\"}]}", "input 'x' has the member 'name' twice");
    bad(f, "{\"inputs\":[],\"inputs\":[]}", "has the member 'inputs' twice");
    bad(f, "{\"inputs\":[],\"id\":7}", "expected a string, but 7");
    bad(f, "{\"inputs\":[],}", "a member's name");
    bad(f, "{\"inputs\":[] \"id\":\"a\"}", "',' or '}'");
    bad(f, "{\"inputs\":[]}x", "1 bytes follow");
    bad(f, "{'inputs':[]}", "a member's name in quotes, but ''' stands");
    bad(f, "{\"inputs\":[],\"z\":tru}", "expected a value, but tru stands");
    bad(f, "{\"inputs\":[],\"z\":[1,]}", "expected a value");
    bad(f, "{\"inputs\":[],\"z\":01}", "");
    bad(f, ONE("FP32", "[1]", "[1]}, {\"name\":\"x\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1]"),
        "input 'x' is given twice");
    bad(f, "{\"inputs\":[],\"outputs\":[{\"name\":\"y\"},{\"name\":\"y\"}]}", "output 'y' is requested twice");
    bad(f, "{\"inputs\":[],\"outputs\":[{}]}", "outputs[0] has no name");
    bad(f, "{\"inputs\":[],\"outputs\":[{\"name\":\"y\",\"name\":\"z\"}]}", "output 'y' has the member 'name' twice");
    drop(f);
}

static void parameters_are_typed_and_reserved_ones_checked(void **state)
{
    struct fixture *f = *state;
#define PARAMS(p) "{\"inputs\":[],\"parameters\":{" p "}}"
    bad(f, PARAMS("\"priority\":-1"), "parameter 'priority'");
    bad(f, PARAMS("\"priority\":\"high\""), "parameter 'priority' is a string");
    bad(f, PARAMS("\"timeout\":1.5"), "parameter 'timeout' is a fraction, but it takes a whole number of microseconds");
    bad(f, PARAMS("\"binary_data_output\":1"), "takes true or false");
    bad(f, PARAMS("\"sequence_id\":42"), "does not batch sequences");
    bad(f, PARAMS("\"sequence_id\":\"s\""), "does not batch sequences");
    bad(f, PARAMS("\"sequence_start\":true"), "sequence_start");
    bad(f, PARAMS("\"headers\":\"x: y\""), "'headers' is reserved");
    bad(f, PARAMS("\"triton_enable_empty_final_response\":true"), "'triton_enable_empty_final_response'");
    good(f, PARAMS("\"triton_enable_empty_final_response\":false,\"headers\":\"\""));
    good(f, PARAMS("\"tritonic\":1,\"header\":\"h\""));
    bad(f, PARAMS("\"a\":null"), "a bool, a number or a string");
    bad(f, PARAMS("\"a\":[1]"), "a bool, a number or a string");
    bad(f, PARAMS("\"a\":1,\"a\":2"), "parameter 'a' is given twice");
    bad(f, PARAMS("\"a\":9223372036854775808"), "parameter 'a'");
    bad(f, PARAMS("\"a\":1e999"), "beyond the range of a double");
    bad(f,
        "{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"FP32\",\"parameters\":{\"shared_memory_region\":\"r\"}}]}",
        "no shared memory regions");
    bad(f, "{\"inputs\":[],\"outputs\":[{\"name\":\"y\",\"parameters\":{\"binary_data\":\"yes\"}}]}",
        "output 'y': parameter 'binary_data' is a string");
    bad(f, "{\"inputs\":[],\"outputs\":[{\"name\":\"y\",\"parameters\":{\"classification\":-2}}]}", "'classification'");
    good(f, PARAMS("\"sequence_id\":0,\"sequence_end\":false,\"priority\":4294967295"));
    assert_int_equal(f->r.priority, 4294967295u);
    assert_int_equal(f->r.n_params, 0);
    drop(f);
}

static void limits_hold(void **state)
{
    struct fixture *f = *state;
    struct buf b;
    for (int n = 64; n <= 65; n++) {
        buf_init(&b);
        buf_append_z(&b, "{\"inputs\":[");
        for (int i = 0; i < n; i++)
            buf_printf(&b, "%s{\"name\":\"x%d\",\"shape\":[1],\"datatype\":\"UINT8\",\"data\":[%d]}", i ? "," : "", i, i);
        buf_append_z(&b, "],\"outputs\":[");
        for (int i = 0; i < n - (n > 64); i++)
            buf_printf(&b, "%s{\"name\":\"y%d\"}", i ? "," : "", i);
        buf_append_z(&b, "]}");
        if (n == 64) {
            good(f, buf_z(&b));
            assert_int_equal(f->r.n_inputs, 64);
            assert_int_equal(f->r.n_outputs, 64);
            for (int i = 0; i < n; i++) {
                assert_int_equal(f->r.inputs[i].data.p[0], i);
                char name[16];
                snprintf(name, sizeof name, "y%d", i);
                assert_true(str_eqz(f->r.outputs[i].name, name));
            }
        } else {
            bad(f, buf_z(&b), "more than 64 inputs");
        }
        buf_release(&b);
    }
    buf_init(&b);
    buf_append_z(&b, "{\"inputs\":[],\"z\":");
    for (int i = 0; i < 100000; i++)
        buf_append_c(&b, '[');
    bad(f, buf_z(&b), "nested too deeply");
    buf_clear(&b);
    buf_append_z(&b, "{\"inputs\":[{\"name\":\"x\",\"data\":");
    for (int i = 0; i < 100000; i++)
        buf_append_c(&b, '[');
    bad(f, buf_z(&b), "nested too deeply");
    buf_release(&b);
    struct infer_json_limits small = {.tensor_bytes = 100};
    char text[] =
        "{\"inputs\":[{\"name\":\"x\",\"shape\":[8],\"datatype\":\"FP64\",\"data\":[1,2,3,4,5,6,7,8]},{\"name\":\"y\","
        "\"shape\":[8],\"datatype\":\"FP64\",\"data\":[1,2,3,4,5,6,7,8]}]}";
    assert_int_equal(infer_json_decode(str_of(text), slice_borrow(NULL, 0), &f->a, &small, &f->r, &f->err), STATUS_TOO_LARGE);
    assert_non_null(
        strstr(f->err.text, "input 'y': its data takes 64 bytes of memory, and JSON data of one request may take 36 more"));
    drop(f);
}

/* With less and less room in the arena the request fails alone, holding nothing (the sanitizers watch), or succeeds. */
static void a_full_arena_fails_the_request_only(void **state)
{
    struct fixture *f = *state;
    size_t refused = 0, served = 0;
    for (size_t limit = 0; limit < 16384; limit += 48) {
        struct arena small;
        arena_init(&small, 256, limit + 1);
        int rc = infer_json_decode(str_of(full), slice_borrow(NULL, 0), &small, NULL, &f->r, &f->err);
        assert_true(rc == STATUS_OK || rc == STATUS_NOMEM);
        if (rc)
            assert_int_equal(f->r.n_inputs, 0);
        else
            check_full(f);
        refused += rc != 0;
        served += rc == 0;
        infer_json_release(&f->r);
        arena_release(&small);
    }
    assert_true(refused > 5 && served > 100);
}

/* ---- the binary extension ---- */

static int binary(struct fixture *f, const char *json, const void *tail, size_t n)
{
    f->err = (struct error){0};
    infer_json_release(&f->r);
    return infer_json_decode(str_of(json), slice_borrow(tail, n), &f->a, NULL, &f->r, &f->err);
}

static void bad_binary(struct fixture *f, const char *json, const void *tail, size_t n, const char *part)
{
    assert_int_equal(binary(f, json, tail, n), STATUS_INVALID);
    if (!strstr(f->err.text, part))
        fail_msg("says '%s', want '%s'", f->err.text, part);
}

#define BIN(name, dtype, shape, size)                                                                                          \
    "{\"name\":\"" name "\",\"shape\":" shape ",\"datatype\":\"" dtype "\",\"parameters\":{\"binary_data_size\":" size "}}"

static void binary_inputs_point_into_the_tail(void **state)
{
    struct fixture *f = *state;
    struct slab *s = slab_create(32);
    memcpy(s->data, "\0\0\x80?\0\0\0@\2\0\0\0hi", 14);
    struct slice tail = {s->data, 14, s};
    static const char json[] =
        "{\"inputs\":[" BIN("a", "FP32", "[2]", "8") ",{\"name\":\"j\",\"shape\":[1],\"datatype\":\"INT8\","
                                                     "\"data\":[9]}," BIN("b", "BYTES", "[1]", "6") "]}";
    assert_int_equal(infer_json_decode(str_of(json), tail, &f->a, NULL, &f->r, &f->err), STATUS_OK);
    assert_ptr_equal(f->r.inputs[0].data.p, s->data);
    assert_ptr_equal(f->r.inputs[2].data.p, s->data + 8);
    assert_int_equal(f->r.inputs[2].data.n, 6);
    assert_int_equal(s->refs, 3);
    infer_json_release(&f->r);
    assert_int_equal(s->refs, 1);
    slab_unref(s);
}

static void malformed_binary_is_refused(void **state)
{
    struct fixture *f = *state;
    static const char z[64];
    bad_binary(f, "{\"inputs\":[" BIN("a", "FP32", "[2]", "4") "]}", z, 4,
               "input 'a': binary_data_size is 4, but FP32 of shape [2] takes 8 bytes");
    bad_binary(f, "{\"inputs\":[" BIN("a", "FP32", "[2]", "8") "]}", z, 7,
               "input 'a': binary_data_size is 8, but only 7 of the 7 bytes behind the JSON are left");
    bad_binary(f, "{\"inputs\":[" BIN("a", "FP32", "[2]", "8") "]}", z, 9, "1 bytes are left over");
    bad_binary(f, "{\"inputs\":[]}", z, 3, "3 bytes are left over");
    bad_binary(f, "{\"inputs\":[" BIN("a", "FP32", "[2]", "-8") "]}", z, 8, "binary_data_size");
    bad_binary(f, "{\"inputs\":[" BIN("a", "FP32", "[2]", "8.0") "]}", z, 8, "binary_data_size");
    bad_binary(f, "{\"inputs\":[" BIN("a", "FP32", "[2]", "\"8\"") "]}", z, 8, "'binary_data_size' is a string");
    bad_binary(f, "{\"inputs\":[" BIN("a", "FP32", "[2]", "99999999999999999999999") "]}", z, 8, "binary_data_size");
    bad_binary(f, "{\"inputs\":[" BIN("a", "BYTES", "[1]", "9223372036854775807") "]}", z, 8, "only 8 of the 8 bytes");
    bad_binary(f, "{\"inputs\":[" BIN("a", "FP32", "[4294967296,4294967296]", "0") "]}", z, 0,
               "more elements than fit 63 bits");
    bad_binary(f, "{\"inputs\":[" BIN("a", "FP64", "[2305843009213693952]", "0") "]}", z, 0, "does not fit any memory");
    bad_binary(f, "{\"inputs\":[" BIN("a", "FP32", "[-1]", "8") "]}", z, 8, "negative dimension");
    bad_binary(f, "{\"inputs\":[" BIN("a", "BYTES", "[1]", "8") "]}", "\5\0\0\0abcd", 8,
               "BYTES element 0 says it is 5 bytes long, but only 4");
    bad_binary(f, "{\"inputs\":[" BIN("a", "BYTES", "[1]", "8") "]}",
               "\xff\xff\xff\xff"
               "abcd",
               8, "4294967295 bytes long");
    bad_binary(f, "{\"inputs\":[" BIN("a", "BYTES", "[2]", "8") "]}", "\4\0\0\0abcd", 8, "ends inside the length of element 1");
    bad_binary(f, "{\"inputs\":[" BIN("a", "BYTES", "[1]", "8") "]}", "\1\0\0\0abcd", 8, "left over");
    bad_binary(f, "{\"inputs\":[" BIN("a", "BOOL", "[2]", "2") "]}", "\1\2", 2, "input 'a': BOOL element 1 is the byte 2");
    bad_binary(f,
               "{\"inputs\":[{\"name\":\"a\",\"shape\":[1],\"datatype\":\"INT8\",\"data\":[1],\"parameters\":{\"binary_data_"
               "size\":1}}]}",
               z, 1, "input 'a' has both 'data' and the parameter binary_data_size");
    assert_int_equal(binary(f, "{\"inputs\":[" BIN("a", "FP32", "[0,4]", "0") "]}", NULL, 0), STATUS_OK);
    assert_int_equal(binary(f, "{\"inputs\":[" BIN("a", "FP32", "[]", "4") "]}", z, 4), STATUS_OK);
    infer_json_release(&f->r);
}

static void the_header_splits_the_body(void **state)
{
    struct fixture *f = *state;
    struct slice body = slice_borrow("{}1234", 6), tail;
    struct str json;
    assert_int_equal(infer_json_split(STR("2"), body, &json, &tail, &f->err), STATUS_OK);
    assert_true(str_eqz(json, "{}") && tail.n == 4 && tail.p == body.p + 2);
    assert_int_equal(infer_json_split((struct str){NULL, 0}, body, &json, &tail, &f->err), STATUS_OK);
    assert_true(json.n == 6 && tail.n == 0);
    assert_int_equal(infer_json_split(STR("0"), body, &json, &tail, &f->err), STATUS_OK);
    assert_true(json.n == 0 && tail.n == 6);
    assert_int_equal(infer_json_split(STR("7"), body, &json, &tail, &f->err), STATUS_INVALID);
    assert_string_equal(f->err.text, "Inference-Header-Content-Length is 7, but the whole body has only 6 bytes");
    static const char *const wrong[] = {"-1", "", "+2", "2 ", "0x2", "99999999999999999999", "18446744073709551616", "2.0"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(infer_json_split(str_of(wrong[i]), body, &json, &tail, &f->err), STATUS_INVALID);
    assert_int_equal(infer_json_split(STR("18446744073709551615"), body, &json, &tail, &f->err), STATUS_INVALID);
}

static int raw(struct fixture *f, enum dtype t, struct shape shape, bool batched, const void *p, size_t n)
{
    infer_json_release(&f->r);
    return infer_json_raw(STR("x"), t, &shape, batched, slice_borrow(p, n), &f->a, &f->r, &f->err);
}

static void raw_requests_take_their_shape_from_the_model(void **state)
{
    struct fixture *f = *state;
    static const char z[48];
    assert_int_equal(raw(f, DTYPE_FP32, (struct shape){3, {-1, 3, -1}}, true, z, 48), STATUS_OK);
    assert_int_equal(f->r.inputs[0].shape.dim[0], 1);
    assert_int_equal(f->r.inputs[0].shape.dim[2], 4);
    assert_true(f->r.binary_output);
    assert_int_equal(raw(f, DTYPE_FP32, (struct shape){2, {-1, 12}}, false, z, 48), STATUS_OK);
    assert_int_equal(f->r.inputs[0].shape.dim[0], 1);
    assert_int_equal(raw(f, DTYPE_FP32, (struct shape){2, {-1, -1}}, false, z, 48), STATUS_INVALID);
    assert_non_null(strstr(f->err.text, "more than one variable dimension"));
    assert_int_equal(raw(f, DTYPE_FP32, (struct shape){1, {-1}}, false, z, 47), STATUS_INVALID);
    assert_int_equal(raw(f, DTYPE_FP32, (struct shape){1, {4}}, false, z, 47), STATUS_INVALID);
    assert_non_null(strstr(f->err.text, "takes 16 bytes, but 47 came"));
    assert_int_equal(raw(f, DTYPE_FP32, (struct shape){2, {0, -1}}, false, z, 48), STATUS_INVALID);
    assert_int_equal(raw(f, DTYPE_BYTES, (struct shape){2, {-1, 1}}, true, "hello", 5), STATUS_OK);
    assert_int_equal(f->r.inputs[0].data.n, 9);
    assert_memory_equal(f->r.inputs[0].data.p, "\5\0\0\0hello", 9);
    assert_int_equal(raw(f, DTYPE_BYTES, (struct shape){1, {2}}, false, "hello", 5), STATUS_INVALID);
    infer_json_release(&f->r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_datatype_decodes, setup, teardown),
        cmocka_unit_test_setup_teardown(shapes_flat_nested_scalar_empty, setup, teardown),
        cmocka_unit_test_setup_teardown(values_out_of_range_are_named, setup, teardown),
        cmocka_unit_test_setup_teardown(base64_content, setup, teardown),
        cmocka_unit_test_setup_teardown(whole_requests_with_any_spacing, setup, teardown),
        cmocka_unit_test_setup_teardown(every_cut_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(every_changed_byte_is_survived, setup, teardown),
        cmocka_unit_test_setup_teardown(malformed_requests_say_what_is_wrong, setup, teardown),
        cmocka_unit_test_setup_teardown(parameters_are_typed_and_reserved_ones_checked, setup, teardown),
        cmocka_unit_test_setup_teardown(limits_hold, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_arena_fails_the_request_only, setup, teardown),
        cmocka_unit_test_setup_teardown(binary_inputs_point_into_the_tail, setup, teardown),
        cmocka_unit_test_setup_teardown(malformed_binary_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(the_header_splits_the_body, setup, teardown),
        cmocka_unit_test_setup_teardown(raw_requests_take_their_shape_from_the_model, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
