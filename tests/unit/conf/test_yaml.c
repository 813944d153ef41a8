/* YAML into the tree: expected trees by hand from the YAML 1.1 specification's rules for the accepted subset. */
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
#include "conf/yaml.h"

/* The tree as one line: scalars as text (quoted ones in ''), [lists], {key: maps}. */
static void show(const struct node *n, struct buf *out)
{
    if (n->kind == NODE_SCALAR) {
        buf_printf(out, n->quoted ? "'%.*s'" : "%.*s", STR_ARG(n->text));
        return;
    }
    buf_append_c(out, n->kind == NODE_MAP ? '{' : '[');
    for (const struct node *c = n->first; c; c = c->next) {
        if (c != n->first)
            buf_append_z(out, ", ");
        if (n->kind == NODE_MAP)
            buf_printf(out, "%.*s: ", STR_ARG(c->key));
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
    if (yaml_parse(str_of(text), "f.yaml", &a, &root, &err) != 0)
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
    assert_int_equal(yaml_parse(str_of(text), "f.yaml", &a, &root, &err), STATUS_INVALID);
    assert_string_equal(err.text, want);
    arena_release(&a);
}

static void trees(void **state)
{
    (void)state;
    parses("", "{}");
    parses("# only a comment\n", "{}");
    parses("---\n", "{}");
    parses("a: 1\nb: two\n", "{a: 1, b: two}");
    parses("a:\n  b:\n    c: 3\nd: [1, 2, x]\n", "{a: {b: {c: 3}}, d: [1, 2, x]}");
    parses("- 1\n- {a: b}\n-\n  - c\n", "[1, {a: b}, [c]]");
    parses("a: \"x\\ty\"\nb: 'it''s'\nc: |\n  l1\n  l2\n", "{a: 'x\ty', b: 'it's', c: 'l1\nl2\n'}");
    parses("a:\nb: ~\n", "{a: , b: ~}");
    parses("{\"a\": [1, {\"b\": null}], \"c\": \"\\u00e9\"}", "{a: [1, {b: null}], c: '\xc3\xa9'}");
}

static void lines_and_nulls(void **state)
{
    (void)state;
    struct arena a;
    struct node *root;
    struct error err = {0};
    arena_init(&a, 4096, 0);
    assert_int_equal(yaml_parse(STR("a: 1\n\nb:\n  c: [x,\n   y]\n  d: \n"), "f", &a, &root, &err), 0);
    struct node *b = node_get(root, "b"), *c = node_get(b, "c");
    assert_int_equal(node_get(root, "a")->line, 1);
    assert_int_equal(c->line, 4);
    assert_int_equal(c->last->line, 5);
    assert_int_equal(c->n, 2);
    assert_true(node_is_null(node_get(b, "d")));
    assert_false(node_is_null(node_get(root, "a")));
    assert_null(node_get(root, "z"));
    assert_null(node_get(NULL, "z"));
    arena_release(&a);
}

static void refusals(void **state)
{
    (void)state;
    refuses("a: 1\nb: 2\na: 3\n", "f.yaml:3: the key 'a' is there twice; the first is in line 1");
    refuses("a: &x 1\nb: 2\n", "f.yaml:1: anchors (&name) are not accepted; write the value out");
    refuses("a: 1\nb: *x\n", "f.yaml:2: aliases (*name) are not accepted; write the value out");
    refuses("a: !!binary aGk=\n", "f.yaml:1: tags (!name) are not accepted");
    refuses("a: 1\n---\nb: 2\n", "f.yaml:2: a second document (---) is not accepted");
    refuses("[a, b]: 1\n", "f.yaml:1: a key must be plain text, not a list or a map");
    refuses("\"\": 1\n", "f.yaml:1: a key is empty");
    refuses("a: [1\nb: 2\n", "f.yaml:2: not YAML: while parsing a flow sequence, did not find expected ',' or ']'");
    refuses("a:\n\t- b\n",
            "f.yaml:2: not YAML: while scanning for the next token, found character that cannot start any token");
    refuses("a: \xff\n", "f.yaml: not YAML at byte 3: invalid leading UTF-8 octet");
}

static void bounds(void **state)
{
    (void)state;
    struct buf deep = {0}, wide = {0};
    for (int i = 0; i < NODE_DEPTH_MAX + 1; i++)
        buf_append_c(&deep, '[');
    refuses(buf_z(&deep), "f.yaml:1: nested deeper than 32 levels");
    buf_append_c(&wide, '[');
    for (int i = 0; i < NODE_COUNT_MAX; i++)
        buf_append_z(&wide, "1,");
    buf_append_c(&wide, ']');
    refuses(buf_z(&wide), "f.yaml:1: the file has more than 20000 values");
    buf_release(&deep);
    buf_release(&wide);
    /* the classic: nine levels of nine aliases each would be 9^9 values */
    refuses("a: &a [x,x]\nb: &b [*a,*a]\n", "f.yaml:1: anchors (&name) are not accepted; write the value out");
}

static void every_prefix_is_safe(void **state)
{
    (void)state;
    static const char text[] = "http:\n  listen: [\"127.0.0.1:8000\", 'x']\nlimits: {a: 1, b: |\n  x}\n";
    struct arena a;
    for (size_t n = 0; n < sizeof text; n++) {
        struct node *root = NULL;
        struct error err = {0};
        char *copy = malloc(n ? n : 1); /* exact size, so that ASan sees a read past the end */
        memcpy(copy, text, n);
        arena_init(&a, 4096, 0);
        int rc = yaml_parse((struct str){copy, n}, "f", &a, &root, &err);
        assert_true(rc == 0 ? root != NULL : rc == STATUS_INVALID && err.text[0]);
        arena_release(&a);
        free(copy);
    }
}

static void json_trees(void **state)
{
    (void)state;
    struct arena a;
    struct node *root;
    struct buf out = {0};
    struct error err = {0};
    arena_init(&a, 4096, 0);
    assert_int_equal(json_tree_parse(STR("{\"a\":[1,-2.5e3,true,null,\"x\"],\"b\":{}}"), "body", &a, &root, &err), 0);
    show(root, &out);
    assert_string_equal(buf_z(&out), "{a: [1, -2.5e3, true, null, 'x'], b: {}}");
    assert_int_equal(json_tree_parse(STR("{\"a\":1,\"a\":2}"), "body", &a, &root, &err), STATUS_INVALID);
    assert_string_equal(err.text, "body: the key 'a' is there twice");
    assert_int_equal(json_tree_parse(STR("{\"a\":}"), "body", &a, &root, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "body: not JSON at byte 5: "));
    char deep[2 * NODE_DEPTH_MAX + 3] = {0};
    memset(deep, '[', NODE_DEPTH_MAX + 1);
    memset(deep + NODE_DEPTH_MAX + 1, ']', NODE_DEPTH_MAX + 1);
    assert_int_equal(json_tree_parse(str_of(deep), "body", &a, &root, &err), STATUS_INVALID);
    assert_string_equal(err.text, "body: the JSON is nested deeper than 32 levels");
    buf_release(&out);
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees),  cmocka_unit_test(lines_and_nulls),      cmocka_unit_test(refusals),
        cmocka_unit_test(bounds), cmocka_unit_test(every_prefix_is_safe), cmocka_unit_test(json_trees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
