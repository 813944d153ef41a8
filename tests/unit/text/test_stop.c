/* Text leaves as whole characters and never holds a part of a stop string, however the bytes are cut. Expected texts are written by hand
 * (U+FFFD per maximal broken stretch: Unicode 15, table 3-8). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "text/stop.h"

static const struct example {
    const char *bytes;
    struct str stops[3];
    const char *text;
    int found;
} examples[] = {
    {"plain text", {{0}}, "plain text", -1},
    {"one\n\ntwo", {STR("\n\n")}, "one", 0},
    {"one\ntwo", {STR("\n\n")}, "one\ntwo", -1},
    {"aab", {STR("aaa")}, "aab", -1},
    {"aaaab", {STR("aab")}, "aa", 0},
    {"xENDySTOP", {STR("STOP"), STR("END")}, "x", 1},
    {"abcd", {STR("bcd"), STR("bc")}, "a", 0}, /* the same place: the one listed first, when it is there */
    {"ends in a start of STO", {STR("STOP")}, "ends in a start of STO", -1},
    {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80!", {STR("!")}, "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80", 0},
    {"\xe2\x82", {{0}}, "\xef\xbf\xbd", -1},
    {"a\xe2\x82z", {{0}}, "a\xef\xbf\xbdz", -1},
    {"\xc0\xaf\xff", {{0}}, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", -1},
    {"\xed\xa0\x80", {{0}}, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", -1}, /* a surrogate: no byte continues 0xed */
    {"\xf1\x80\x80\x41",
     {{0}},
     "\xef\xbf\xbd"
     "A",
     -1},
    {"", {STR("x")}, "", -1},
};

/* Push in pieces of `step` bytes; stops found late may differ only where a shorter one completes first. */
static void run(const struct example *e, size_t step)
{
    struct str in = str_of(e->bytes);
    size_t n_stops = 0;
    while (n_stops < 3 && e->stops[n_stops].n)
        n_stops++;
    struct stop_text s;
    struct buf out;
    int found = -1;
    buf_init(&out);
    assert_true(stop_text_init(&s, e->stops, n_stops, 8));
    for (size_t i = 0; i < in.n && found < 0; i += step) {
        found = stop_text_push(&s, (struct str){in.p + i, in.n - i < step ? in.n - i : step}, &out);
        for (size_t k = 0; k < out.n; k += str_utf8_at(buf_str(&out), k))
            assert_true(str_utf8_at(buf_str(&out), k) > 0);
    }
    if (found < 0)
        stop_text_finish(&s, &out);
    assert_string_equal(e->text, buf_z(&out));
    if (step >= in.n)
        assert_int_equal(e->found, found);
    else
        assert_int_equal(e->found < 0, found < 0);
    buf_release(&out);
    stop_text_release(&s);
}

static void test_every_cut(void **state)
{
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
        for (size_t step = 1; step <= 32; step++)
            run(&examples[i], step);
    (void)state;
}

/* What may become a stop string waits; everything else is given at once. */
static void test_nothing_waits_longer(void **state)
{
    struct str stops[] = {STR("</end>")};
    struct stop_text s;
    struct buf out;
    buf_init(&out);
    assert_true(stop_text_init(&s, stops, 1, 8));
    assert_int_equal(-1, stop_text_push(&s, STR("hello <"), &out));
    assert_string_equal("hello ", buf_z(&out));
    assert_int_equal(-1, stop_text_push(&s, STR("/en"), &out));
    assert_string_equal("hello ", buf_z(&out));
    assert_int_equal(-1, stop_text_push(&s, STR("t"), &out));
    assert_string_equal("hello </ent", buf_z(&out));
    assert_int_equal(11, s.given);
    buf_release(&out);
    stop_text_release(&s);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_cut), cmocka_unit_test(test_nothing_waits_longer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
