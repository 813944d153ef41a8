/* Request targets: expected values are hand-decoded from RFC 3986 and RFC 9112's own examples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/size.h"
#include "base/status.h"
#include "wire/url.h"

static void assert_str(struct str s, const char *want)
{
    assert_int_equal(s.n, strlen(want));
    assert_memory_equal(s.p, want, s.n);
}

static void test_target_forms(void **state)
{
    (void)state;
    struct url_target t;
    struct error err;
    assert_int_equal(url_parse_target(STR("/where?q=now"), &t, &err), 0);
    assert_null(t.authority.p);
    assert_str(t.path, "/where");
    assert_str(t.query, "q=now");
    assert_int_equal(url_parse_target(STR("http://www.example.org/pub/WWW/TheProject.html"), &t, &err), 0);
    assert_str(t.authority, "www.example.org");
    assert_str(t.path, "/pub/WWW/TheProject.html");
    assert_str(t.query, "");
    assert_int_equal(url_parse_target(STR("HTTPS://[2001:db8::1]:8443?a=/b?c"), &t, &err), 0);
    assert_str(t.authority, "[2001:db8::1]:8443");
    assert_str(t.path, "/");
    assert_str(t.query, "a=/b?c");
    assert_int_equal(url_parse_target(STR("*"), &t, &err), 0);
    assert_str(t.path, "*");
}

static void test_target_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "v2",
                                      "example.com:80",
                                      "/a#b",
                                      "/a b",
                                      "/\x7f",
                                      "/\xc3\xa9",
                                      "ftp://h/",
                                      "http:///x",
                                      "http://",
                                      "http://u@h/",
                                      "http://h:99999/",
                                      "http://[::1/",
                                      "http://h%zz/",
                                      "http://[]/",
                                      "**",
                                      "/a\tb",
                                      "http://[::1]x/"};
    struct url_target t;
    struct error err;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (url_parse_target(str_of(bad[i]), &t, &err) != STATUS_INVALID)
            fail_msg("accepted: %s", bad[i]);
    assert_int_equal(url_parse_target((struct str){"/a\0b", 4}, &t, &err), STATUS_INVALID);
}

static void test_authority(void **state)
{
    (void)state;
    static const char *const good[] = {"",      "localhost", "localhost:8000", "h:", "127.0.0.1:65535",
                                       "[::1]", "[::1]:80",  "a_b.c-d",        "%41"};
    static const char *const bad[] = {"a b", "a/b", "h:x", "h:1:2", "h:65536", "u@h", "[::1", "h\"", "a,b:x", "\\"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!url_is_authority(str_of(good[i])))
            fail_msg("refused: %s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (url_is_authority(str_of(bad[i])))
            fail_msg("accepted: %s", bad[i]);
}

static void test_split_path(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1024, 0);
    struct str s[4];
    size_t n;
    struct error err;
    assert_int_equal(url_split_path(&a, STR("/"), s, 4, &n, &err), 0);
    assert_int_equal(n, 0);
    assert_int_equal(url_split_path(&a, STR("/v2/models/m%C3%A9%2Fx/"), s, 4, &n, &err), 0);
    assert_int_equal(n, 4);
    assert_str(s[0], "v2");
    assert_str(s[2], "m\xc3\xa9/x");
    assert_str(s[3], "");
    assert_int_equal(url_split_path(&a, STR("//a"), s, 4, &n, &err), 0);
    assert_int_equal(n, 2);
    assert_str(s[0], "");
    assert_int_equal(url_split_path(&a, STR("/a+b"), s, 4, &n, &err), 0);
    assert_str(s[0], "a+b");
    assert_int_equal(url_split_path(&a, STR("/1/2/3/4/5"), s, 4, &n, &err), STATUS_NOT_FOUND);
    static const char *const bad[] = {"",     "a",   "*",       "/%00",    "/a%0", "/a%",    "/%g1",
                                      "/%1g", "/..", "/a/../b", "/%2e%2E", "/./b", "/.%2e/x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (url_split_path(&a, str_of(bad[i]), s, 4, &n, &err) != STATUS_INVALID)
            fail_msg("accepted: %s", bad[i]);
    arena_release(&a);
}

static void test_query(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1024, 0);
    struct str v;
    struct error err;
    assert_int_equal(url_query_get(&a, STR("a=1&b=x+y%2Bz&b=2&c&=e"), "b", &v, &err), 0);
    assert_str(v, "x y+z");
    assert_int_equal(url_query_get(&a, STR("a=1&b&c=3"), "b", &v, &err), 0);
    assert_int_equal(v.n, 0);
    assert_int_equal(url_query_get(&a, STR("a=1=2"), "a", &v, &err), 0);
    assert_str(v, "1=2");
    assert_int_equal(url_query_get(&a, STR("w%61it=5s"), "wait", &v, &err), 0);
    assert_str(v, "5s");
    assert_int_equal(url_query_get(&a, STR("ab=1"), "a", &v, &err), STATUS_NOT_FOUND);
    assert_int_equal(url_query_get(&a, STR(""), "a", &v, &err), STATUS_NOT_FOUND);
    assert_int_equal(url_query_get(&a, STR("a=%zz"), "a", &v, &err), STATUS_INVALID);
    assert_int_equal(url_query_get(&a, STR("a=%00"), "a", &v, &err), STATUS_INVALID);
    arena_release(&a);
}

/* What servers are known to read differently: RFC 3986 (5.2.4), decoding before resolving, Windows' separators, Java's path parameters. */
static void test_check_path(void **state)
{
    (void)state;
    static const char *const good[] = {"/",     "*",      "/a/b",     "/a//b", "/a/",   "/.a/..b/...",    "/a.b/c..",
                                       "/a%20", "/a%2fb", "/a;x=../", "/a%0d", "/;x/b", "/.well-known/x", "/....",
                                       "/a\\b", "/..x/y", "/x..;y"};
    static const char *const bad[] = {"/.",        "/..",         "/a/../b",   "/a/./b",      "/a/..",     "/%2e",
                                      "/%2E%2e/b", "/.%2e/b",     "/a/..%2fb", "/a%2f..%2fb", "/a/..%5cb", "/a\\..\\b",
                                      "/a/..;x/b", "/a/..%3bx/b", "/a/.;/b",   "/a%00",       "/a%",       "/a%2",
                                      "/a%zz",     "/a%2g",       "/%%2e"};
    struct error err;
    for (size_t i = 0; i < COUNT_OF(good); i++)
        if (url_check_path(str_of(good[i]), &err) != 0)
            fail_msg("refused: %s", good[i]);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        if (url_check_path(str_of(bad[i]), &err) != STATUS_INVALID)
            fail_msg("not refused: %s", bad[i]);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 256, 8); /* a limit below the first chunk: every allocation fails */
    struct str v;
    struct error err;
    assert_int_equal(url_decode(&a, STR("%41"), false, &v, &err), STATUS_NOMEM);
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_target_forms), cmocka_unit_test(test_target_refused), cmocka_unit_test(test_authority),
        cmocka_unit_test(test_split_path),   cmocka_unit_test(test_query),          cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_check_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
