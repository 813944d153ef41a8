/* protobuf text format: expected values by hand from protobuf's "Text Format Language Specification"; tests/wire/test_model_config.py
 * compares whole configurations with google.protobuf. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/status.h"
#include "conf/pbtxt.h"

static void show(const struct node *n, struct buf *out)
{
    if (n->kind == NODE_SCALAR) {
        if (n->quoted)
            buf_append_json_str(out, n->text);
        else
            buf_append_str(out, n->text);
        return;
    }
    buf_append_c(out, n->kind == NODE_MAP ? '{' : '[');
    for (const struct node *c = n->first; c; c = c->next) {
        if (c != n->first)
            buf_append_c(out, ' ');
        if (n->kind == NODE_MAP)
            buf_printf(out, "%.*s:", STR_ARG(c->key));
        show(c, out);
    }
    buf_append_c(out, n->kind == NODE_MAP ? '}' : ']');
}

static void parses(const char *text, const char *want)
{
    struct arena a;
    struct buf out = {0};
    struct node *root;
    struct error err = {0};
    arena_init(&a, 4096, 0);
    if (pbtxt_parse(str_of(text), "c.pbtxt", &a, &root, &err) != 0)
        fail_msg("%s", err.text);
    show(root, &out);
    assert_string_equal(buf_z(&out), want);
    buf_release(&out);
    arena_release(&a);
}

static void refuses(const char *text, const char *want)
{
    struct arena a;
    struct node *root;
    struct error err = {0};
    arena_init(&a, 4096, 0);
    assert_int_equal(pbtxt_parse(str_of(text), "c.pbtxt", &a, &root, &err), STATUS_INVALID);
    assert_string_equal(err.text, want);
    arena_release(&a);
}

static void messages(void **state)
{
    (void)state;
    parses("", "{}");
    parses(" # nothing\n\t", "{}");
    parses("a: 1", "{a:1}");
    parses("a { b: 1 }", "{a:{b:1}}");
    parses("a: { b: 1 c { } }", "{a:{b:1 c:{}}}");
    parses("a < b: 1 > c: <d: 2>", "{a:{b:1} c:{d:2}}");
    parses("a: 1, b: 2; c: 3 d: 4", "{a:1 b:2 c:3 d:4}");
    parses("a { b: 1; c: 2, }; d: 1", "{a:{b:1 c:2} d:1}");
    parses("a:1#x\nb:2#y", "{a:1 b:2}");
    parses("input [ { name: \"x\" }, { name: \"y\" } ]", "{input:[{name:\"x\"} {name:\"y\"}]}");
    parses("input: [ ]", "{input:[]}");
}

static void repeated_fields(void **state)
{
    (void)state;
    parses("a: 1 a: 2 a: 3", "{a:[1 2 3]}");
    parses("a: [1, 2] a: 3 a: [4]", "{a:[1 2 3 4]}");
    parses("a: 3 b: 0 a: [4, 5]", "{a:[3 4 5] b:0}");
    parses("m { k: 1 } m { k: 2 }", "{m:[{k:1} {k:2}]}");
}

static void scalars(void **state)
{
    (void)state;
    parses("a: -5 b: - 6 c: -\n#x\n7", "{a:-5 b:-6 c:-7}");
    parses("a: 0x1F b: -0x10 c: 0 d: 017 e: 0xffffffffffffffff", "{a:31 b:-16 c:0 d:15 e:18446744073709551615}");
    parses("a: 1.5 b: 2f c: .25 d: 1e-3 e: 1.5E+2F f: 5.", "{a:1.5 b:2 c:.25 d:1e-3 e:1.5E+2 f:5.}");
    parses("a: inf b: -inf c: nan d: true e: KIND_CPU f: _x9", "{a:inf b:-inf c:nan d:true e:KIND_CPU f:_x9}");
    parses("a: 09.5 b: 0.5", "{a:09.5 b:0.5}");
}

static void strings(void **state)
{
    (void)state;
    parses("a: \"x\" 'y'\n  \"z\"", "{a:\"xyz\"}");
    parses("a: 'say \"hi\"' b: \"it's\"", "{a:\"say \\\"hi\\\"\" b:\"it's\"}");
    parses("a: \"\\n\\r\\t\\\\\\'\\\"\\?\"", "{a:\"\\n\\r\\t\\\\'\\\"?\"}");
    parses("a: \"\\101\\x42\\x4a\\103D\"", "{a:\"ABJCD\"}");
    parses("a: \"\\1014\"", "{a:\"A4\"}"); /* at most three octal digits */
    parses("a: \"\\u00e9\\U0001F600\\ud83d\\ude00\"", "{a:\"\xc3\xa9\xf0\x9f\x98\x80\xf0\x9f\x98\x80\"}");
    parses("a: \"# no comment { } [ ] ; ,\"", "{a:\"# no comment { } [ ] ; ,\"}");
    parses("a: \"\"", "{a:\"\"}");
}

static void refusals(void **state)
{
    (void)state;
    refuses("a 1", "c.pbtxt:1: ':' or '{' is expected behind 'a'");
    refuses("\n\n: 1", "c.pbtxt:3: a field name is expected here");
    refuses("a:\n", "c.pbtxt:2: the file ends where a value is expected");
    refuses("a: }", "c.pbtxt:1: a value is expected here");
    refuses("a {\n b: 1\n", "c.pbtxt:3: the '{' of line 1 is not closed");
    refuses("a { b: 1 >", "c.pbtxt:1: a field name is expected here");
    refuses("a: 1 }", "c.pbtxt:1: a field name is expected here");
    refuses("a: \"x", "c.pbtxt:1: a string is not closed");
    refuses("a: \"x\ny\"", "c.pbtxt:1: a string ends at the end of its line; write \\n for a line break");
    refuses("a: \"\\q\"", "c.pbtxt:1: an unknown escape in a string");
    refuses("a: \"\\777\"", "c.pbtxt:1: an octal escape is larger than \\377");
    refuses("a: \"\\u12\"", "c.pbtxt:1: \\u takes 4 and \\U takes 8 hex digits");
    refuses("a: \"\\ud800\"", "c.pbtxt:1: not a Unicode character");
    refuses("a: \"\\U00110000\"", "c.pbtxt:1: not a Unicode character");
    refuses("a: 08", "c.pbtxt:1: not an octal integer of 64 bits (a leading 0 means octal)");
    refuses("a: 0x", "c.pbtxt:1: not an octal integer of 64 bits (a leading 0 means octal)");
    refuses("a: 0x1ffffffffffffffff", "c.pbtxt:1: not a hexadecimal integer of 64 bits");
    refuses("a: 12abc", "c.pbtxt:1: not a number");
    refuses("a: 1.2.3", "c.pbtxt:1: not a number");
    refuses("a: .", "c.pbtxt:1: not a number");
    refuses("a [1]", "c.pbtxt:1: ':' is expected behind 'a'"); /* only messages may leave it out */
    refuses("a: [1, 2", "c.pbtxt:1: ',' or ']' is expected in the list");
    refuses("a: [1,]", "c.pbtxt:1: a value is expected here");
    refuses("a: [[1]]", "c.pbtxt:1: a list in a list is not accepted");
    refuses("[x.y]: 1", "c.pbtxt:1: extension names and Any in [ ] are not accepted");
    refuses("a: $", "c.pbtxt:1: a value is expected here");
    struct arena a;
    struct node *root;
    struct error err = {0};
    arena_init(&a, 4096, 0);
    assert_int_equal(pbtxt_parse(STR("a: 1\0b: 2"), "c.pbtxt", &a, &root, &err), STATUS_INVALID);
    assert_string_equal(err.text, "c.pbtxt:1: a NUL byte is not accepted");
    arena_release(&a);
}

static void bounds(void **state)
{
    (void)state;
    struct buf t = {0};
    for (int i = 0; i < NODE_DEPTH_MAX + 1; i++)
        buf_append_z(&t, "a{");
    refuses(buf_z(&t), "c.pbtxt:1: nested deeper than 32 levels");
    buf_clear(&t);
    for (int i = 0; i < NODE_COUNT_MAX + 1; i++)
        buf_append_z(&t, "a:1\n");
    refuses(buf_z(&t), "c.pbtxt:19999: the file has more than 20000 values");
    buf_release(&t);
}

static void every_prefix_is_safe(void **state)
{
    (void)state;
    static const char text[] =
        "name: \"a\\x41\\u00e9\" 'b' # c\ninput [ { dims: [ -1, 0x10 ] } ]\nx < y: 1.5f, z: inf; > w { }";
    for (size_t n = 0; n < sizeof text; n++) {
        struct arena a;
        struct node *root = NULL;
        struct error err = {0};
        char *copy = malloc(n ? n : 1);
        memcpy(copy, text, n);
        arena_init(&a, 4096, 0);
        int rc = pbtxt_parse((struct str){copy, n}, "f", &a, &root, &err);
        assert_true(rc == 0 ? root != NULL : rc == STATUS_INVALID && err.text[0]);
        arena_release(&a);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages),
        cmocka_unit_test(repeated_fields),
        cmocka_unit_test(scalars),
        cmocka_unit_test(strings),
        cmocka_unit_test(refusals),
        cmocka_unit_test(bounds),
        cmocka_unit_test(every_prefix_is_safe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
