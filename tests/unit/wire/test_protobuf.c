/* The protobuf wire format: the encodings that the specification shows, what is malformed, groups, and what is written read again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "wire/protobuf.h"

static struct pb_reader over(const void *p, size_t n)
{
    return pb_reader_of((struct str){p, n});
}

#define OVER(literal) over(literal, sizeof(literal) - 1)

/* From the "Encoding" page: a=150 in field 1; "testing" in field 2; both fixed sizes by hand. */
static void fields_of_the_specification(void **state)
{
    (void)state;
    struct pb_field f;
    struct error err;
    struct pb_reader r = OVER("\x08\x96\x01\x12\x07testing\x19\1\0\0\0\0\0\0\x80\x25\4\3\2\1");
    assert_int_equal(pb_next(&r, &f, &err), 1);
    assert_true(f.number == 1 && f.wire == PB_VARINT && f.value == 150);
    assert_int_equal(pb_next(&r, &f, &err), 1);
    assert_true(f.number == 2 && f.wire == PB_LEN && str_eqz(f.bytes, "testing"));
    assert_int_equal(pb_next(&r, &f, &err), 1);
    assert_true(f.number == 3 && f.wire == PB_I64 && f.value == 0x8000000000000001u);
    assert_int_equal(pb_next(&r, &f, &err), 1);
    assert_true(f.number == 4 && f.wire == PB_I32 && f.value == 0x01020304);
    assert_int_equal(pb_next(&r, &f, &err), 0);
    assert_int_equal(pb_next(&r, &f, &err), 0);
}

static void varints(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        bool ok;
        uint64_t value;
    } cases[] = {
        {"\0", 1, true, 0},
        {"\x7f", 1, true, 127},
        {"\x80\x01", 2, true, 128},
        {"\x80\x00", 2, true, 0}, /* longer than needed, and legal */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10, true, UINT64_MAX},
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10, false, 0},
        {"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 11, false, 0},
        {"\x80", 1, false, 0},
        {"", 0, false, 0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const uint8_t *p = (const uint8_t *)cases[i].bytes, *end = p + cases[i].n;
        uint64_t v = 0;
        assert_int_equal(pb_varint(&p, end, &v), cases[i].ok);
        if (cases[i].ok) {
            assert_true(v == cases[i].value);
            assert_ptr_equal(p, end);
        }
    }
    assert_int_equal(pb_varint_count(STR("\1\x80\1\xff\xff\1")), 3);
}

static void malformed(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *part;
    } cases[] = {
        {"\x08", 1, "a number is cut off"},
        {"\x80", 1, "key is cut off"},
        {"\x00\x01", 2, "number is not in 1..536870911"},
        {"\x80\x80\x80\x80\x10\x01", 6, "number is not in 1..536870911"},
        {"\x0e", 1, "wire type is 6 or 7"},
        {"\x0f", 1, "wire type is 6 or 7"},
        {"\x0a\x02x", 3, "longer than the message"},
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x", 12, "longer than the message"},
        {"\x0a", 1, "a length is cut off"},
        {"\x09\1\2\3\4\5\6\7", 8, "fixed size is cut off"},
        {"\x0d\1\2\3", 4, "fixed size is cut off"},
        {"\x0c", 1, "a group ends that did not begin"},
        {"\x0b\x14", 2, "a group ends that did not begin"}, /* 1 begins, 2 ends */
        {"\x0b\x08\x01", 3, "key is cut off"},
    };
    struct pb_field f;
    struct error err;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint8_t *copy = malloc(cases[i].n); /* exact, for the sanitizers */
        memcpy(copy, cases[i].bytes, cases[i].n);
        struct pb_reader r = over(copy, cases[i].n);
        assert_int_equal(pb_next(&r, &f, &err), STATUS_INVALID);
        if (!strstr(err.text, cases[i].part))
            fail_msg("case %zu: \"%s\" is not in \"%s\"", i, cases[i].part, err.text);
        free(copy);
    }
}

static void groups_are_passed_over(void **state)
{
    (void)state;
    struct pb_field f;
    struct error err;
    char deep[2 * PB_GROUP_DEPTH_MAX + 3];
    struct pb_reader r = OVER("\x0b\x13\x08\x05\x14\x1a\1x\x0c\x10\x07");
    assert_int_equal(pb_next(&r, &f, &err), 1);
    assert_true(f.number == 2 && f.value == 7);
    memset(deep, 0x0b, PB_GROUP_DEPTH_MAX);
    memset(deep + PB_GROUP_DEPTH_MAX, 0x0c, PB_GROUP_DEPTH_MAX);
    r = over(deep, 2 * PB_GROUP_DEPTH_MAX);
    assert_int_equal(pb_next(&r, &f, &err), 0);
    memset(deep, 0x0b, PB_GROUP_DEPTH_MAX + 1);
    memset(deep + PB_GROUP_DEPTH_MAX + 1, 0x0c, PB_GROUP_DEPTH_MAX + 1);
    r = over(deep, 2 * PB_GROUP_DEPTH_MAX + 2);
    assert_int_equal(pb_next(&r, &f, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "too deeply"));
}

static void typed_getters(void **state)
{
    (void)state;
    struct pb_field f = {.number = 9, .wire = PB_LEN, .bytes = STR("a\xff")};
    struct error err;
    struct str s;
    uint64_t u;
    double d;
    assert_int_equal(pb_get_string(&f, "the name", &s, &err), STATUS_INVALID);
    assert_string_equal(err.text, "the name (field 9) is not UTF-8 at byte 1; a string must be");
    assert_int_equal(pb_get_bytes(&f, "the name", &s, &err), 0);
    assert_int_equal(pb_get_u64(&f, "the size", &u, &err), STATUS_INVALID);
    assert_string_equal(err.text, "the size (field 9) was sent as length-delimited, but it is a varint");
    f = (struct pb_field){.number = 9, .wire = PB_VARINT, .value = 3};
    assert_int_equal(pb_get_f64(&f, "the share", &d, &err), STATUS_INVALID);
    assert_int_equal(pb_get_string(&f, "the name", &s, &err), STATUS_INVALID);
}

static void written_is_read(void **state)
{
    (void)state;
    struct buf b;
    struct pb_field f;
    struct error err;
    int64_t dims[] = {1, -1, 300};
    buf_init(&b);
    pb_put_u64(&b, 1, 0); /* the default is left out */
    pb_put_str(&b, 2, (struct str){0});
    assert_int_equal(b.n, 0);
    pb_put_u64(&b, 1, 150);
    pb_put_packed_i64(&b, 3, dims, 3);
    pb_append_f64(&b, 4, 0.5);
    assert_int_equal(b.n, 3 + 2 + 13 + 9);
    assert_memory_equal(b.p, "\x08\x96\x01\x1a\x0d\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\xac\2\x21\0\0\0\0\0\0\xe0\x3f", b.n);
    /* messages of every size around those where the length grows by a byte */
    for (size_t n = 0; n<17000; n += n> 300 && n < 16200 ? 97 : 1) {
        buf_clear(&b);
        size_t outer = pb_open_message(&b, 7), inner = pb_open_message(&b, 8);
        for (size_t i = 0; i < n; i++)
            buf_append_c(&b, (char)i);
        pb_close_message(&b, inner);
        pb_close_message(&b, outer);
        pb_append_u64(&b, 9, 1);
        struct pb_reader r = over(b.p, b.n);
        assert_int_equal(pb_next(&r, &f, &err), 1);
        assert_int_equal(f.number, 7);
        struct pb_reader in = pb_reader_of(f.bytes);
        assert_int_equal(pb_next(&in, &f, &err), 1);
        assert_true(f.number == 8 && f.bytes.n == n && in.p == in.end);
        for (size_t i = 0; i < n; i++)
            assert_true(f.bytes.p[i] == (char)i);
        assert_int_equal(pb_next(&r, &f, &err), 1);
        assert_true(f.number == 9 && r.p == r.end);
    }
    for (unsigned bit = 0; bit < 64; bit++) {
        uint8_t bytes[PB_VARINT_MAX];
        uint64_t v;
        size_t n = pb_varint_write(bytes, 1ull << bit);
        const uint8_t *p = bytes;
        assert_int_equal(n, bit / 7 + 1);
        assert_int_equal(n, pb_varint_size(1ull << bit));
        assert_true(pb_varint(&p, bytes + n, &v) && v == 1ull << bit);
    }
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_of_the_specification), cmocka_unit_test(varints),       cmocka_unit_test(malformed),
        cmocka_unit_test(groups_are_passed_over),      cmocka_unit_test(typed_getters), cmocka_unit_test(written_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
