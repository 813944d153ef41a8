/* JSON limits and getters; accept/refuse cases follow RFC 8259 and the names used by the public
 * JSONTestSuite. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/status.h"
#include "wire/json.h"

static void test_parse_strict(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      " ",
                                      "[1,]",
                                      "{\"a\":1,}",
                                      "[1]x",
                                      "NaN",
                                      "[Infinity]",
                                      "01",
                                      "+1",
                                      "1.",
                                      ".5",
                                      "'a'",
                                      "[1 2]",
                                      "{a:1}",
                                      "\"\xff\"",
                                      "\"\t\"",
                                      "/**/1",
                                      "\"\\x\"",
                                      "tru",
                                      "\xef\xbb\xbf{}",
                                      "[\"\\ud800\"]"};
    struct json j;
    struct error err;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (json_parse(&j, str_of(bad[i]), NULL, &err) != STATUS_INVALID)
            fail_msg("accepted: %s", bad[i]);
    assert_int_equal(json_parse(&j, STR(" {\"a\\u0000b\":[1,2.5e3,null,true]} "), NULL, &err), 0);
    assert_true(yyjson_is_obj(j.root));
    json_release(&j);
    json_release(&j); /* twice is fine */
}

static void nested(struct buf *b, size_t n)
{
    buf_init(b);
    for (size_t i = 0; i < n; i++)
        buf_append_z(b, i % 2 ? "{\"k\":" : "[");
    buf_append_c(b, '1');
    for (size_t i = n; i-- > 0;)
        buf_append_c(b, i % 2 ? '}' : ']');
}

static void test_depth(void **state)
{
    (void)state;
    struct json j;
    struct error err;
    struct buf b;
    nested(&b, 100);
    assert_int_equal(json_parse(&j, buf_str(&b), NULL, &err), 0);
    json_release(&j);
    buf_release(&b);
    nested(&b, 101);
    assert_int_equal(json_parse(&j, buf_str(&b), NULL, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "100 levels"));
    buf_release(&b);
    nested(&b, 1000000);
    assert_int_equal(json_parse(&j, buf_str(&b), NULL, &err), STATUS_INVALID);
    buf_release(&b);
    /* brackets inside strings do not count, whatever is escaped around them */
    assert_int_equal(json_scan_depth(STR("[\"[[[\\\"[[\\\\\", \"{\"]"), 50), 1);
    assert_int_equal(json_scan_depth(STR("[[\"\\\\\"],[[3]]]"), 50), 3);
    assert_int_equal(json_scan_depth(STR("[[[[[["), 4), 4);
    assert_int_equal(json_scan_depth(STR("]]]]["), 9), 1);
    assert_int_equal(json_scan_depth(STR("\"abc"), 9), 0);
    assert_int_equal(json_scan_depth(STR("\""), 9), 0);
    assert_int_equal(json_scan_depth(STR(""), 9), 0);
    for (size_t n = 0; n < 40; n++) { /* every byte, and brackets at every place */
        char text[40];
        for (size_t i = 0; i < sizeof text; i++)
            text[i] = (char)(i < n ? "[{"[i % 2] : "]}zZ;k\x7b\xfb"[i % 7]);
        size_t opens = 0;
        for (size_t i = 0; i < sizeof text; i++)
            opens += text[i] == '[' || text[i] == '{';
        assert_true(json_opens_at_most((struct str){text, sizeof text}, (uint32_t)opens));
        assert_false(opens && json_opens_at_most((struct str){text, sizeof text}, (uint32_t)opens - 1));
    }
    for (int c = 0; c < 256; c++) {
        char text[9] = "aaaaaaaa";
        text[3] = (char)c;
        assert_int_equal(json_opens_at_most((struct str){text, 8}, 0), c != '[' && c != '{');
    }
}

static void test_size(void **state)
{
    (void)state;
    struct json j;
    struct error err;
    struct json_limits l = {.max_bytes = 5};
    assert_int_equal(json_parse(&j, STR("[1,2]"), &l, &err), 0);
    json_release(&j);
    assert_int_equal(json_parse(&j, STR("[1,2] "), &l, &err), STATUS_TOO_LARGE);
}

static void test_getters(void **state)
{
    (void)state;
    struct json j;
    struct error err;
    assert_int_equal(json_parse(&j,
                                STR("{\"s\":\"a\\u0000b\",\"t\":true,\"u\":18446744073709551615,\"i\":-5,\"f\":2.5,\"n\":null,"
                                    "\"o\":{},\"a\":[],\"d\":1,\"d\":2,\"w\":1.0,\"big\":18446744073709551616}"),
                                NULL, &err),
                     0);
    struct str s;
    bool b, found;
    uint64_t u = 7;
    int64_t i;
    double f;
    yyjson_val *v;
    assert_int_equal(json_get_str(j.root, "s", JSON_REQUIRED, &s, NULL, &err), 0);
    assert_int_equal(s.n, 3);
    assert_memory_equal(s.p, "a\0b", 3);
    assert_int_equal(json_get_bool(j.root, "t", JSON_REQUIRED, &b, &found, &err), 0);
    assert_true(b && found);
    assert_int_equal(json_get_u64(j.root, "u", JSON_REQUIRED, 0, UINT64_MAX, &u, NULL, &err), 0);
    assert_true(u == UINT64_MAX);
    assert_int_equal(json_get_i64(j.root, "i", JSON_REQUIRED, -5, 0, &i, NULL, &err), 0);
    assert_int_equal(i, -5);
    assert_int_equal(json_get_f64(j.root, "f", JSON_REQUIRED, 0, 3, &f, NULL, &err), 0);
    assert_true(f == 2.5);
    assert_int_equal(json_get_f64(j.root, "i", JSON_REQUIRED, -9, 3, &f, NULL, &err), 0);
    assert_true(f == -5);
    assert_int_equal(json_get_obj(j.root, "o", JSON_REQUIRED, &v, NULL, &err), 0);
    assert_int_equal(json_get_arr(j.root, "a", JSON_REQUIRED, &v, NULL, &err), 0);
    u = 7;
    assert_int_equal(json_get_u64(j.root, "n", JSON_OPTIONAL, 0, 9, &u, &found, &err), 0);
    assert_true(u == 7 && !found);
    assert_int_equal(json_get_u64(j.root, "none", JSON_OPTIONAL, 0, 9, &u, &found, &err), 0);
    assert_true(u == 7 && !found);
    json_release(&j);
}

static void test_getter_errors(void **state)
{
    (void)state;
    struct json j;
    struct error err;
    assert_int_equal(json_parse(&j, STR("{\"s\":1,\"u\":-1,\"d\":1,\"d\":2,\"w\":1.0,\"n\":null,\"big\":1e400}"), NULL, &err),
                     STATUS_INVALID); /* 1e400 is not a finite double */
    assert_int_equal(json_parse(&j, STR("{\"s\":1,\"u\":-1,\"d\":1,\"d\":2,\"w\":1.0,\"n\":null}"), NULL, &err), 0);
    struct str s;
    uint64_t u;
    int64_t i;
    yyjson_val *v;
    assert_int_equal(json_get_str(j.root, "s", JSON_OPTIONAL, &s, NULL, &err), STATUS_INVALID);
    assert_string_equal(err.text, "'s' must be a string, but it is an integer");
    assert_int_equal(json_get_u64(j.root, "u", JSON_OPTIONAL, 0, 10, &u, NULL, &err), STATUS_INVALID);
    assert_string_equal(err.text, "'u' must be between 0 and 10");
    assert_int_equal(json_get_any(j.root, "d", JSON_OPTIONAL, &v, NULL, &err), STATUS_INVALID);
    assert_string_equal(err.text, "'d' is given twice in one object");
    assert_int_equal(json_get_i64(j.root, "w", JSON_OPTIONAL, 0, 10, &i, NULL, &err), STATUS_INVALID);
    assert_string_equal(err.text, "'w' must be an integer, but it is a number");
    assert_int_equal(json_get_i64(j.root, "x", JSON_REQUIRED, 0, 10, &i, NULL, &err), STATUS_INVALID);
    assert_string_equal(err.text, "'x' is missing");
    assert_int_equal(json_get_i64(j.root, "n", JSON_REQUIRED, 0, 10, &i, NULL, &err), STATUS_INVALID);
    assert_string_equal(err.text, "'n' must be an integer, but it is null");
    assert_int_equal(json_get_str(yyjson_obj_get(j.root, "s"), "k", JSON_OPTIONAL, &s, NULL, &err), STATUS_INVALID);
    json_release(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_strict), cmocka_unit_test(test_depth),         cmocka_unit_test(test_size),
        cmocka_unit_test(test_getters),      cmocka_unit_test(test_getter_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
