/* Views and strict parsers: expected values by hand. */
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/str.h"

static void compares(void **state)
{
    (void)state;
    struct str none = {0};
    assert_true(str_eq(none, STR("")));
    assert_true(str_eqz(none, ""));
    assert_true(str_eqz(none, NULL));
    assert_true(str_ieq(STR("Content-Length"), STR("content-length")));
    assert_false(str_ieq(STR("a"), STR("ab")));
    assert_false(str_ieq(STR("@"), STR("`"))); /* differ by 0x20 but are no letters */
    assert_false(str_ieq(STR("["), STR("{")));
    assert_true(str_ieqz(STR("GZIP"), "gzip"));
    for (size_t n = 1; n < 20; n++) /* each pair of bytes at each place of each length: eight are compared at a time */
        for (size_t at = 0; at < n; at++)
            for (int x = 0; x < 256; x++)
                for (size_t k = 0; k < 4; k++) {
                    int y = x ^ (const int[]) { 0, 0x20, 0x80, 1 }[k];
                    char a[20], b[20];
                    memset(a, 'q', sizeof a);
                    memset(b, 'Q', sizeof b);
                    a[at] = (char)x;
                    b[at] = (char)y;
                    bool letter = (x | 0x20) >= 'a' && (x | 0x20) <= 'z' && x < 128;
                    assert_int_equal(str_ieq((struct str){a, n}, (struct str){b, n}), x == y || (letter && (x ^ 0x20) == y));
                }
    assert_true(str_starts(STR("abc"), STR("ab")) && str_starts(STR("abc"), none) && !str_starts(STR("a"), STR("ab")));
    assert_true(str_ends(STR("abc"), STR("bc")) && str_ends(STR("abc"), none) && !str_ends(STR("c"), STR("bc")));
}

static void trims_and_cuts(void **state)
{
    (void)state;
    assert_true(str_eqz(str_trim(STR(" \t a b\t ")), "a b"));
    assert_int_equal(str_trim(STR(" \t ")).n, 0);
    assert_true(str_eqz(str_trim(STR("\na")), "\na")); /* only spaces and tabs */
    struct str rest = STR("a,,b"), part;
    assert_true(str_cut(&rest, ',', &part) && str_eqz(part, "a"));
    assert_true(str_cut(&rest, ',', &part) && part.n == 0);
    assert_true(str_cut(&rest, ',', &part) && str_eqz(part, "b"));
    assert_false(str_cut(&rest, ',', &part));
    rest = STR("a,"); /* a separator at the end is followed by an empty part */
    assert_true(str_cut(&rest, ',', &part) && str_cut(&rest, ',', &part) && part.n == 0 && part.p);
    assert_false(str_cut(&rest, ',', &part));
    rest = STR("");
    assert_true(str_cut(&rest, ',', &part) && part.n == 0);
    assert_false(str_cut(&rest, ',', &part));
}

static void unsigned_numbers(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",    "-1", "+1",  " 1", "1 ", "0x10", "1.0", "1e3", "18446744073709551616", "99999999999999999999",
        "1_0", "१",  "1\n", "/",  ":"};
    uint64_t v = 7;
    assert_true(str_to_u64(STR("0"), &v) && v == 0);
    assert_true(str_to_u64(STR("18446744073709551615"), &v) && v == UINT64_MAX);
    assert_true(str_to_u64(STR("0000000000000000000000000000012"), &v) && v == 12);
    v = 7;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(str_to_u64(str_of(bad[i]), &v));
    assert_false(str_to_u64((struct str){"1\0", 2}, &v));
    assert_int_equal(v, 7);
}

static void signed_numbers(void **state)
{
    (void)state;
    int64_t v;
    assert_true(str_to_i64(STR("-9223372036854775808"), &v) && v == INT64_MIN);
    assert_true(str_to_i64(STR("9223372036854775807"), &v) && v == INT64_MAX);
    assert_true(str_to_i64(STR("-0"), &v) && v == 0);
    assert_false(str_to_i64(STR("9223372036854775808"), &v));
    assert_false(str_to_i64(STR("-9223372036854775809"), &v));
    assert_false(str_to_i64(STR("-"), &v) || str_to_i64(STR("--1"), &v) || str_to_i64(STR("+1"), &v) ||
                 str_to_i64(STR(""), &v));
}

static void floating_numbers(void **state)
{
    (void)state;
    static const char *const bad[] = {"",   "nan", "inf", "-inf", "Infinity", "0x10", "1e999", " 1",
                                      "1 ", "1e",  "--1", "1,5",  "e5",       ".",    "-"};
    double v;
    assert_true(str_to_f64(STR("0.1"), &v) && v == 0.1);
    assert_true(str_to_f64(STR("-1.5e-3"), &v) && v == -0.0015);
    assert_true(str_to_f64(STR("1.7976931348623157e308"), &v) && v == DBL_MAX);
    assert_true(str_to_f64(STR("5e-324"), &v) && v > 0); /* the smallest subnormal */
    assert_true(str_to_f64(STR("9007199254740993"), &v) && v == 9007199254740992.0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(str_to_f64(str_of(bad[i]), &v));
    char longest[80];
    memset(longest, '1', sizeof longest);
    assert_true(str_to_f64((struct str){longest, 63}, &v));
    assert_false(str_to_f64((struct str){longest, 64}, &v)); /* the bound of the parser, not a wrong value */
}

static void sizes_for_people(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t want;
    } good[] = {{"512", 512},          {"64MiB", 67108864},     {"10MB", 10000000}, {"1k", 1024},
                {"2 GiB", 2147483648}, {"3tib", 3298534883328}, {"0b", 0},          {"16777215TiB", 18446742974197923840u},
                {"5KB", 5000},         {"1G", 1073741824}};
    static const char *const bad[] = {"",
                                      "MiB",
                                      "-1",
                                      "1.5MiB",
                                      "1 M iB",
                                      "16777216TiB",
                                      "18446744073709551616",
                                      "1MiBs",
                                      "0x1k",
                                      "1 "
                                      "PiB"};
    uint64_t v;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(str_to_bytes(str_of(good[i].text), &v) && v == good[i].want);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(str_to_bytes(str_of(bad[i]), &v));
}

static void durations_for_people(void **state)
{
    (void)state;
    uint64_t v;
    assert_true(str_to_duration_ns(STR("250ms"), &v) && v == 250000000);
    assert_true(str_to_duration_ns(STR("2s"), &v) && v == 2000000000);
    assert_true(str_to_duration_ns(STR("7ns"), &v) && v == 7);
    assert_true(str_to_duration_ns(STR("3us"), &v) && v == 3000);
    assert_true(str_to_duration_ns(STR("90 m"), &v) && v == 5400000000000);
    assert_true(str_to_duration_ns(STR("5124095h"), &v) && v == 18446742000000000000u);
    assert_false(str_to_duration_ns(STR("5124096h"), &v)); /* overflows */
    assert_false(str_to_duration_ns(STR("5"), &v));        /* a time needs its unit */
    assert_false(str_to_duration_ns(STR("1s500ms"), &v) || str_to_duration_ns(STR("-1s"), &v) ||
                 str_to_duration_ns(STR("1d"), &v));
}

static void model_names(void **state)
{
    (void)state;
    char longest[129];
    memset(longest, 'a', sizeof longest);
    assert_true(str_is_model_name((struct str){longest, 128}));
    assert_false(str_is_model_name((struct str){longest, 129}));
    assert_true(str_is_model_name(STR("pp-ocr_V4.det")) && str_is_model_name(STR("...")) && str_is_model_name(STR("7")));
    static const char *const bad[] = {"", ".", "..", "a/b", "a\\b", "a b", "a%2e", "caf\xc3\xa9", "a\n", "a:b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(str_is_model_name(str_of(bad[i])));
    assert_false(str_is_model_name((struct str){"a\0b", 3}));
}

static void distances(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        unsigned want;
    } cases[] = {{"", "", 0},      {"abc", "abc", 0},        {"abc", "ABC", 0},
                 {"", "abc", 3},   {"kitten", "sitting", 3}, {"port", "prot", 1},
                 {"ca", "abc", 3}, {"listen", "silent", 4},  {"max_btach", "max_batch", 1},
                 {"a", "b", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(str_distance(str_of(cases[i].a), str_of(cases[i].b)), cases[i].want);
        assert_int_equal(str_distance(str_of(cases[i].b), str_of(cases[i].a)), cases[i].want);
    }
    char big[65];
    memset(big, 'x', sizeof big);
    assert_int_equal(str_distance((struct str){big, 65}, STR("x")), 255);
    assert_int_equal(str_distance((struct str){big, 64}, STR("x")), 63);
}

/* Every code point encoded by the rules of RFC 3629 is one sequence, and cut short it is none. */
static void utf8_sequences(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10ffff + 16; c++) {
        char p[4];
        size_t n;
        if (c < 0x80)
            n = 1, p[0] = (char)c;
        else if (c < 0x800)
            n = 2, p[0] = (char)(0xc0 | c >> 6), p[1] = (char)(0x80 | (c & 63));
        else if (c < 0x10000)
            n = 3, p[0] = (char)(0xe0 | c >> 12), p[1] = (char)(0x80 | (c >> 6 & 63)), p[2] = (char)(0x80 | (c & 63));
        else
            n = 4, p[0] = (char)(0xf0 | c >> 18), p[1] = (char)(0x80 | (c >> 12 & 63)), p[2] = (char)(0x80 | (c >> 6 & 63)),
            p[3] = (char)(0x80 | (c & 63));
        bool valid = c <= 0x10ffff && !(c >= 0xd800 && c <= 0xdfff);
        assert_int_equal(str_utf8_at((struct str){p, n}, 0), valid ? n : 0);
        if (n > 1)
            assert_int_equal(str_utf8_at((struct str){p, n - 1}, 0), 0);
    }
    static const char *const bad[] = {"\x80",         "\xc0\x80",         "\xc1\xbf",         "\xe0\x80\x80",
                                      "\xe0\x9f\xbf", "\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf", "\xf5\x80\x80\x80",
                                      "\xff",         "\xc3\x28",         "\xe2\x82\x28"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(str_utf8_at(str_of(bad[i]), 0), 0);
    assert_int_equal(str_utf8_at(STR("a\xc3\xa9"), 1), 2);
}

/* The Unicode standard's examples, table 3-4, and the largest of each length. */
static void test_utf8_put(void **state)
{
    (void)state;
    static const struct {
        uint32_t c;
        const char *bytes;
    } cases[] = {
        {0x4d, "\x4d"},           {0x7f, "\x7f"},           {0x430, "\xd0\xb0"},           {0x7ff, "\xdf\xbf"},
        {0x4e8c, "\xe4\xba\x8c"}, {0xffff, "\xef\xbf\xbf"}, {0x10302, "\xf0\x90\x8c\x82"}, {0x10ffff, "\xf4\x8f\xbf\xbf"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[5] = {0};
        size_t n = str_utf8_put(cases[i].c, out);
        assert_int_equal(n, strlen(cases[i].bytes));
        assert_string_equal(out, cases[i].bytes);
        assert_int_equal(str_utf8_at((struct str){out, n}, 0), n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8_put),    cmocka_unit_test(compares),
        cmocka_unit_test(trims_and_cuts),   cmocka_unit_test(unsigned_numbers),
        cmocka_unit_test(signed_numbers),   cmocka_unit_test(floating_numbers),
        cmocka_unit_test(sizes_for_people), cmocka_unit_test(durations_for_people),
        cmocka_unit_test(model_names),      cmocka_unit_test(distances),
        cmocka_unit_test(utf8_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
