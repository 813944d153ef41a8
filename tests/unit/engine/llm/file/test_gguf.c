/* test_gguf.c: files made by hand after the specification (gguf_build.h), cut at every byte, with every byte changed, and the
 * known ways to attack a reader: zero and huge dims, overflowing products, counts of 2^60, strings of 2^63, odd alignments, tensors that
 * overlap or lie outside. The `gguf` package's files are read in test_model_desc.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/status.h"
#include "base/size.h"
#include "engine/llm/file/gguf_build.h"

static struct buf b;
static struct arena arena;
static struct gguf g;
static struct error err;

/* Parse a copy of exactly this size, so that AddressSanitizer sees any step past the end. */
static int parse_n(const char *p, size_t n)
{
    uint8_t *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, p, n);
    arena_clear(&arena);
    err = (struct error){0};
    int rc = gguf_parse(copy, n, &arena, &g, &err);
    assert_int_equal(rc, err.code);
    if (rc == 0) {
        for (size_t i = 0; i < g.n_tensors; i++) /* touch what was promised */
            for (size_t k = 0; k < g.tensors[i].bytes; k += MAX_OF(1, g.tensors[i].bytes / 7))
                assert_true(g.tensors[i].data[k] <= 255);
        gguf_release(&g);
    }
    free(copy);
    return rc;
}

static void refused(const char *text)
{
    int rc = parse_n(b.p, b.n);
    if (rc >= 0 || !strstr(err.text, text))
        fail_msg("\"%s\"; expected \"%s\"", err.text, text);
    buf_clear(&b);
}

static void whole_file(void)
{
    const uint64_t a[] = {64, 3}, v[] = {5};
    buf_clear(&b);
    put_header(&b, 3, 2, 9);
    put_kv_str(&b, "general.architecture", "llama");
    put_kv_u32(&b, "general.alignment", 64);
    put_str(&b, "i8"), put_u32(&b, GGUF_I8), buf_append_c(&b, (char)-3);
    put_str(&b, "f64"), put_u32(&b, GGUF_F64), buf_append(&b, &(double){0.1}, 8);
    put_str(&b, "f32"), put_u32(&b, GGUF_F32), buf_append(&b, &(float){-2.5f}, 4);
    put_str(&b, "yes"), put_u32(&b, GGUF_BOOL), buf_append_c(&b, 1);
    put_str(&b, "u64"), put_u32(&b, GGUF_U64), put_u64(&b, UINT64_MAX);
    put_str(&b, "words"), put_u32(&b, GGUF_ARRAY), put_u32(&b, GGUF_STRING), put_u64(&b, 3);
    put_str(&b, "a"), put_str(&b, ""), put_str(&b, "two words");
    put_str(&b, "i16s"), put_u32(&b, GGUF_ARRAY), put_u32(&b, GGUF_I16), put_u64(&b, 2);
    buf_append(&b, &(int16_t){-7}, 2), buf_append(&b, &(int16_t){300}, 2);
    put_tensor(&b, "blk.0.w", 2, a, WEIGHT_Q4_0, 64);
    put_tensor(&b, "norm", 1, v, WEIGHT_F32, 0);
    put_pad(&b, 64);
    put_zeros(&b, 64);         /* norm: 20 bytes and padding */
    put_zeros(&b, 3 * 2 * 18); /* 3 rows of 2 blocks */
}

static void reads_every_kind(void **state)
{
    (void)state;
    uint64_t u;
    int64_t i;
    double f;
    bool yes;
    struct str s;
    struct gguf_array a;
    size_t at = 0;
    whole_file();
    arena_clear(&arena);
    assert_int_equal(gguf_parse((const uint8_t *)b.p, b.n, &arena, &g, &err), 0);
    assert_int_equal(g.version, 3);
    assert_int_equal(g.alignment, 64);
    assert_true(gguf_get_str(&g, "general.architecture", &s) && str_eqz(s, "llama"));
    assert_true(gguf_get_i64(&g, "i8", &i) && i == -3);
    assert_false(gguf_get_u64(&g, "i8", &u));
    assert_true(gguf_get_f64(&g, "i8", &f) && f == -3);
    assert_true(gguf_get_f64(&g, "f64", &f) && f == 0.1);
    assert_true(gguf_get_f64(&g, "f32", &f) && f == -2.5);
    assert_false(gguf_get_i64(&g, "f32", &i));
    assert_true(gguf_get_bool(&g, "yes", &yes) && yes);
    assert_false(gguf_get_u64(&g, "yes", &u));
    assert_true(gguf_get_u64(&g, "u64", &u) && u == UINT64_MAX);
    assert_false(gguf_get_i64(&g, "u64", &i));
    assert_false(gguf_get_str(&g, "absent", &s));
    assert_true(gguf_get_array(&g, "words", &a));
    assert_int_equal(a.n, 3);
    assert_true(gguf_array_next_str(&a, &at, &s) && str_eqz(s, "a"));
    assert_true(gguf_array_next_str(&a, &at, &s) && s.n == 0);
    assert_true(gguf_array_next_str(&a, &at, &s) && str_eqz(s, "two words"));
    assert_false(gguf_array_next_str(&a, &at, &s));
    assert_true(gguf_get_array(&g, "i16s", &a));
    assert_int_equal(gguf_array_i64(&a, 0), -7);
    assert_true(gguf_array_f64(&a, 1) == 300);
    const struct gguf_tensor *t = gguf_tensor(&g, STR("blk.0.w"));
    assert_non_null(t);
    assert_int_equal(t->type, WEIGHT_Q4_0);
    assert_int_equal(t->bytes, 108);
    assert_int_equal(t->dims[1], 3);
    assert_int_equal(t->dims[2], 1);
    assert_ptr_equal(t->data + t->bytes, (const uint8_t *)b.p + b.n);
    assert_null(gguf_tensor(&g, STR("blk.0")));
    gguf_release(&g);
}

static void cut_at_every_byte(void **state)
{
    (void)state;
    whole_file();
    for (size_t n = 0; n < b.n; n++)
        assert_true(parse_n(b.p, n) < 0 && err.text[0]);
    assert_int_equal(parse_n(b.p, b.n), 0);
    buf_append_c(&b, 'x'); /* bytes behind the last tensor are nobody's */
    assert_int_equal(parse_n(b.p, b.n), 0);
}

/* Each byte of the header part to 0, 1, 0x7f, 0x80, 0xff: read or refused, never a step outside. */
static void every_byte_changed(void **state)
{
    (void)state;
    static const uint8_t to[] = {0, 1, 9, 0x7f, 0x80, 0xff};
    whole_file();
    for (size_t at = 0; at < b.n; at++) {
        char was = b.p[at];
        for (size_t k = 0; k < sizeof to; k++) {
            b.p[at] = (char)to[k];
            parse_n(b.p, b.n);
        }
        b.p[at] = was;
    }
}

static void bad_headers(void **state)
{
    (void)state;
    buf_clear(&b);
    buf_append_z(&b, "GGML");
    put_zeros(&b, 20);
    refused("does not begin with \"GGUF\"");
    put_header(&b, 1, 0, 0);
    refused("version 1 is not supported");
    put_header(&b, 0x03000000, 0, 0);
    refused("big-endian");
    put_header(&b, 3, 0, 1ull << 60);
    refused("key/value count 1152921504606846976");
    put_header(&b, 3, 1ull << 60, 0);
    refused("tensor count 1152921504606846976");
    put_header(&b, 3, 0, 3);
    put_zeros(&b, 20);
    refused("key/value count 3");
    put_header(&b, 3, 0, 0);
    assert_int_equal(parse_n(b.p, b.n), 0);
    buf_clear(&b);
    put_header(&b, 2, 0, 1);
    put_kv_u32(&b, "a", 1);
    assert_int_equal(parse_n(b.p, b.n), 0);
    buf_clear(&b);
}

static void bad_kvs(void **state)
{
    (void)state;
    buf_clear(&b);
    put_header(&b, 3, 0, 1);
    put_u64(&b, 1ull << 63);
    put_zeros(&b, 32);
    refused("key at byte 24 has length 9223372036854775808");
    put_header(&b, 3, 0, 1);
    put_kv_u32(&b, "", 1);
    put_zeros(&b, 32);
    refused("a key has 0 bytes");
    put_header(&b, 3, 0, 1);
    put_str(&b, "k"), put_u32(&b, 13), put_u64(&b, 0);
    refused("unknown value type 13");
    put_header(&b, 3, 0, 1);
    put_str(&b, "k"), put_u32(&b, GGUF_STRING), put_u64(&b, 1ull << 63), put_zeros(&b, 8);
    refused("length 9223372036854775808");
    put_header(&b, 3, 0, 1);
    put_str(&b, "k"), put_u32(&b, GGUF_BOOL), buf_append_c(&b, 2), put_zeros(&b, 8);
    refused("a bool must be 0 or 1, not 2");
    put_header(&b, 3, 0, 1);
    put_str(&b, "k"), put_u32(&b, GGUF_ARRAY), put_u32(&b, GGUF_ARRAY), put_u64(&b, 1), put_zeros(&b, 8);
    refused("array element type 9");
    put_header(&b, 3, 0, 1);
    put_str(&b, "k"), put_u32(&b, GGUF_ARRAY), put_u32(&b, GGUF_U64), put_u64(&b, 1ull << 61), put_zeros(&b, 8);
    refused("array count 2305843009213693952 overflows");
    put_header(&b, 3, 0, 1);
    put_str(&b, "k"), put_u32(&b, GGUF_ARRAY), put_u32(&b, GGUF_STRING), put_u64(&b, 1ull << 40), put_zeros(&b, 8);
    refused("array count 1099511627776 is more than the file can hold");
    put_header(&b, 3, 0, 2);
    put_kv_u32(&b, "k", 1), put_kv_u32(&b, "k", 1);
    refused("key \"k\" occurs twice");
    static const uint32_t aligns[] = {0, 1, 3, 4, 33, 1u << 21, UINT32_MAX};
    for (size_t i = 0; i < COUNT_OF(aligns); i++) {
        put_header(&b, 3, 0, 1);
        put_kv_u32(&b, "general.alignment", aligns[i]);
        refused("general.alignment must be a power of two");
    }
    put_header(&b, 3, 0, 1);
    put_kv_str(&b, "general.alignment", "32");
    refused("general.alignment");
}

/* A file with one tensor and `data` bytes behind it. */
static void one(uint32_t n_dims, uint64_t d0, uint64_t d1, uint64_t d2, uint64_t d3, uint32_t type, uint64_t offset,
                size_t data)
{
    const uint64_t dims[5] = {d0, d1, d2, d3, 1};
    put_header(&b, 3, 1, 0);
    put_tensor(&b, "t", n_dims, dims, type, offset);
    put_pad(&b, 32);
    put_zeros(&b, data);
}

static void bad_tensors(void **state)
{
    (void)state;
    buf_clear(&b);
    one(2, 0, 4, 0, 0, WEIGHT_F32, 0, 64);
    refused("tensor \"t\": dim 0 is 0");
    one(2, 4, 0, 0, 0, WEIGHT_F32, 0, 64);
    refused("dim 1 is 0");
    one(4, 1ull << 42, 1ull << 42, 1, 1, WEIGHT_F32, 0, 64);
    refused("its size overflows");
    one(4, 1, 1ull << 42, 1ull << 42, 1, WEIGHT_F32, 0, 64);
    refused("the product of its dims overflows");
    one(1, 1ull << 63, 0, 0, 0, WEIGHT_F32, 0, 64);
    refused("dim 0 is 9223372036854775808");
    one(0, 1, 0, 0, 0, WEIGHT_F32, 0, 64);
    refused("has 0 dims; accepted: 1 to 4");
    one(5, 1, 1, 1, 1, WEIGHT_F32, 0, 64);
    refused("has 5 dims");
    one(1, 33, 0, 0, 0, WEIGHT_Q4_0, 0, 64);
    refused("row length 33 is not a multiple of Q4_0's block of 32");
    one(2, 128, 2, 0, 0, WEIGHT_Q4_K, 0, 512);
    refused("not a multiple of Q4_K's block of 256");
    one(1, 32, 0, 0, 0, 20, 0, 64);
    refused("has type IQ4_NL, which is not supported; supported: F32");
    one(1, 32, 0, 0, 0, 4, 0, 64);
    refused("unknown type 4");
    one(1, 32, 0, 0, 0, UINT32_MAX, 0, 64);
    refused("unknown type 4294967295");
    one(1, 8, 0, 0, 0, WEIGHT_F32, 8, 64);
    refused("offset 8 is not a multiple of the alignment 32");
    one(1, 8, 0, 0, 0, WEIGHT_F32, 64, 64);
    refused("offset 64 + 32 bytes runs past the end");
    one(1, 8, 0, 0, 0, WEIGHT_F32, UINT64_MAX - 31, 64);
    refused("runs past the end");
    one(1, 17, 0, 0, 0, WEIGHT_F32, 0, 64);
    refused("runs past the end");
    one(1, 16, 0, 0, 0, WEIGHT_F32, 0, 64);
    assert_int_equal(parse_n(b.p, b.n), 0);
    buf_clear(&b);
}

static void tensors_share_nothing(void **state)
{
    (void)state;
    buf_clear(&b);
    const uint64_t dims[] = {16};
    put_header(&b, 3, 2, 0);
    put_tensor(&b, "one", 1, dims, WEIGHT_F32, 32);
    put_tensor(&b, "two", 1, dims, WEIGHT_F32, 0);
    put_pad(&b, 32), put_zeros(&b, 96);
    refused("tensors \"two\" and \"one\" overlap");
    put_header(&b, 3, 2, 0);
    put_tensor(&b, "one", 1, dims, WEIGHT_F32, 0);
    put_tensor(&b, "one", 1, dims, WEIGHT_F32, 64);
    put_pad(&b, 32), put_zeros(&b, 128);
    refused("tensor \"one\" occurs twice");
    put_header(&b, 3, 1, 0);
    put_tensor(&b, "", 1, dims, WEIGHT_F32, 0);
    put_pad(&b, 32), put_zeros(&b, 128);
    refused("a tensor name has 0 bytes");
}

static void out_of_memory(void **state)
{
    (void)state;
    struct arena small;
    whole_file();
    for (size_t limit = 64; limit < 4096; limit += 64) {
        arena_init(&small, 64, limit);
        int rc = gguf_parse((const uint8_t *)b.p, b.n, &small, &g, &err);
        assert_true(rc == 0 || rc == STATUS_NOMEM);
        if (rc == 0)
            gguf_release(&g);
        arena_release(&small);
    }
}

static void weight_types(void **state)
{
    (void)state;
    /* bytes of a block from the drawings in ggml-common.h: scales, mins, high bits and quants */
    static const struct {
        const char *name;
        uint32_t elems, bytes;
    } rows[] = {{"F32", 1, 4},        {"F16", 1, 2},        {"BF16", 1, 2},       {"Q4_0", 32, 2 + 16}, {"Q4_1", 32, 4 + 16},
                {"Q5_0", 32, 2 + 20}, {"Q5_1", 32, 4 + 20}, {"Q8_0", 32, 2 + 32}, {"Q2_K", 256, 84},    {"Q3_K", 256, 110},
                {"Q4_K", 256, 144},   {"Q5_K", 256, 176},   {"Q6_K", 256, 210}};
    enum weight_type t;
    size_t n;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        assert_true(weight_type_parse(str_of(rows[i].name), &t));
        assert_int_equal(weight_type_info(t)->block_elems, rows[i].elems);
        assert_int_equal(weight_type_info(t)->block_bytes, rows[i].bytes);
        assert_true(weight_bytes(t, 3, 512, &n) && n == 3 * 512 / rows[i].elems * rows[i].bytes);
    }
    assert_true(weight_type_parse(STR("q4_k"), &t) && t == WEIGHT_Q4_K);
    assert_false(weight_type_parse(STR("IQ4_NL"), &t));
    assert_false(weight_type_parse(STR(""), &t));
    assert_false(weight_bytes(WEIGHT_Q4_K, 1, 128, &n));
    assert_false(weight_bytes(WEIGHT_F32, 1ull << 62, 4, &n));
    assert_null(weight_type_info(4));
    assert_null(weight_type_info(1000));
}

static int setup(void **state)
{
    (void)state;
    buf_init(&b);
    arena_init(&arena, 1 << 16, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    buf_release(&b);
    arena_release(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_kind),      cmocka_unit_test(cut_at_every_byte), cmocka_unit_test(every_byte_changed),
        cmocka_unit_test(bad_headers),           cmocka_unit_test(bad_kvs),           cmocka_unit_test(bad_tensors),
        cmocka_unit_test(tensors_share_nothing), cmocka_unit_test(out_of_memory),     cmocka_unit_test(weight_types),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
