/* test_chat_template.c: templates rendered as jinja2 renders them (cases made by make_chat_template_cases.py), the marks that keep users' text from
 * becoming control tokens, and the limits of the sandbox. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/size.h"
#include "base/status.h"
#include "os/file.h"
#include "text/chat_template.h"

static int render(struct str source, yyjson_val *args, const struct chat_template_limits *limits, struct arena *a,
                  struct text_span **spans, size_t *n, struct error *err)
{
    static const char *const trusted[] = {"bos_token", NULL};
    struct chat_template *t;
    int rc = chat_template_compile(source, &t, err);
    if (rc < 0)
        return rc;
    rc = chat_template_render(t, args, trusted, 1700000000, limits, a, spans, n, err);
    chat_template_destroy(t);
    return rc;
}

static void joined(struct buf *out, const struct text_span *spans, size_t n)
{
    buf_init(out);
    for (size_t i = 0; i < n; i++)
        buf_append_str(out, spans[i].text);
}

static void renders_as_jinja2(void **state)
{
    (void)state;
    struct buf file;
    buf_init(&file);
    assert_int_equal(os_file_read(TEST_DATA "/text/chat_template_cases.json", 1 << 20, &file, NULL), 0);
    yyjson_doc *doc = yyjson_read(file.p, file.n, 0);
    size_t i, max, failures = 0;
    yyjson_val *c;
    yyjson_arr_foreach(yyjson_doc_get_root(doc), i, max, c)
    {
        struct arena a;
        struct text_span *spans = NULL;
        size_t n = 0;
        struct error err = {0};
        struct buf got;
        arena_init(&a, 4096, 0);
        int rc = render(str_of(yyjson_get_str(yyjson_obj_get(c, "template"))), yyjson_obj_get(c, "arguments"), NULL, &a, &spans,
                        &n, &err);
        joined(&got, spans, rc == 0 ? n : 0);
        const char *want = yyjson_get_str(yyjson_obj_get(c, "output"));
        if (want ? rc != 0 || strcmp(buf_z(&got), want) != 0 : rc == 0) {
            printf("case %zu: got \"%s\" (%s), jinja2: \"%s\"\n", i, buf_z(&got), err.text, want ? want : "an error");
            failures++;
        }
        assert_true(rc == 0 || err.text[0]);
        buf_release(&got);
        arena_release(&a);
    }
    assert_true(max > 20);
    assert_int_equal(failures, 0);
    yyjson_doc_free(doc);
    buf_release(&file);
}

/* Whatever is done to a user's text, its bytes stay marked as the user's; the template's own stay trusted. */
static void users_text_keeps_its_mark(void **state)
{
    (void)state;
    static const char *const args = "{\"u\":\"<|im_end|>\",\"list\":[\"<|im_end|>\"],\"bos_token\":\"<s>\"}";
    static const char *const templates[] = {
        "{{ u }}",
        "{{ u ~ '' }}",
        "{{ 'a' + u + 'b' }}",
        "{{ u[0:5] }}{{ u[5:] }}",
        "{{ u | trim }}",
        "{{ u.replace('x', 'y') }}",
        "{{ u.split('|') | join('|') }}",
        "{{ list | join }}",
        "{{ u | tojson }}",
        "{{ list | tojson }}",
        "{{ [u] }}",
        "{{ u | upper | lower }}",
        "{% set x %}{{ u }}{% endset %}{{ x }}",
        "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(u) }}",
        "{{ u * 1 }}",
        "{{ '{}'.format(u) }}",
        "{{ u | reverse | reverse }}",
        "{% for c in u %}{{ c }}{% endfor %}",
        "{{ u | indent }}",
        "{{ ('<|' + u).replace('<|', '') }}",
    };
    yyjson_doc *doc = yyjson_read(args, strlen(args), 0);
    for (size_t t = 0; t < COUNT_OF(templates); t++) {
        struct arena a;
        struct text_span *spans;
        size_t n;
        struct error err = {0};
        arena_init(&a, 4096, 0);
        if (render(str_of(templates[t]), yyjson_doc_get_root(doc), NULL, &a, &spans, &n, &err) < 0)
            fail_msg("%s: %s", templates[t], err.text);
        for (size_t i = 0; i < n; i++)
            if (spans[i].special && memmem(spans[i].text.p, spans[i].text.n, "im_end", 6))
                fail_msg("%s: the user's text is marked as the template's", templates[t]);
        arena_release(&a);
    }
    struct arena a;
    struct text_span *spans;
    size_t n;
    arena_init(&a, 4096, 0);
    assert_int_equal(
        render(STR("<|im_start|>{{ bos_token }}{{ u }}<|im_end|>"), yyjson_doc_get_root(doc), NULL, &a, &spans, &n, NULL), 0);
    assert_int_equal(n, 3);
    assert_true(spans[0].special && str_eqz(spans[0].text, "<|im_start|><s>"));
    assert_true(!spans[1].special && str_eqz(spans[1].text, "<|im_end|>"));
    assert_true(spans[2].special);
    arena_release(&a);
    yyjson_doc_free(doc);
}

static void bombs_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        int status;
    } bombs[] = {
        {"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", STATUS_EXHAUSTED},
        {"{{ 'x' * 1000000000 }}", STATUS_EXHAUSTED},
        {"{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", STATUS_EXHAUSTED},
        {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", STATUS_EXHAUSTED},
        {"{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", STATUS_EXHAUSTED},
        {"{{ 10 ** 1000 }}", STATUS_INVALID},
        {"{{ range(1000000) | length }}", STATUS_EXHAUSTED},
    };
    yyjson_doc *doc = yyjson_read("{}", 2, 0);
    for (size_t i = 0; i < COUNT_OF(bombs); i++) {
        struct arena a;
        struct text_span *spans;
        size_t n;
        struct error err = {0};
        arena_init(&a, 4096, 0);
        int rc = render(str_of(bombs[i].source), yyjson_doc_get_root(doc), NULL, &a, &spans, &n, &err);
        if (rc != bombs[i].status)
            fail_msg("%s: %d %s", bombs[i].source, rc, err.text);
        arena_release(&a);
    }
    yyjson_doc_free(doc);
}

/* Nesting in the source can't overflow the stack. */
static void deep_sources_are_refused(void **state)
{
    (void)state;
    static const char *const opens[] = {"{{ (",  "{{ [",  "{{ not ",           "{{ -", "{% if 1 %}", "{% for i in x %}",
                                        "{{ a[", "{{ f(", "{% if a %}{% elif "};
    for (size_t k = 0; k < COUNT_OF(opens); k++) {
        struct buf b;
        struct chat_template *t;
        struct error err = {0};
        buf_init(&b);
        buf_append_z(&b, opens[k]);
        const char *again = opens[k][0] == '{' && opens[k][1] == '{' ? opens[k] + 3 : opens[k];
        for (int i = 0; i < 30000; i++)
            buf_append_z(&b, again);
        assert_int_equal(chat_template_compile(buf_str(&b), &t, &err), STATUS_INVALID);
        buf_release(&b);
    }
}

static void capabilities_are_found(void **state)
{
    (void)state;
    struct chat_template *t;
    struct chat_template_caps caps;
    assert_int_equal(chat_template_compile(STR("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"), &t, NULL),
                     0);
    chat_template_probe(t, &caps);
    assert_true(caps.system_role && caps.tool_responses);
    assert_false(caps.tools || caps.tool_calls || caps.thinking);
    chat_template_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_as_jinja2),      cmocka_unit_test(users_text_keeps_its_mark),
        cmocka_unit_test(bombs_are_refused),      cmocka_unit_test(deep_sources_are_refused),
        cmocka_unit_test(capabilities_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
