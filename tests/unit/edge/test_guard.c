/* Policies from YAML and what they find in tensors and texts. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"
#include "base/status.h"
#include "edge/guard.h"

static struct guard_set *parse(const char *text)
{
    struct guard_set *s = NULL;
    struct error err = {0};
    if (guard_set_parse(str_of(text), "guards.yaml", &s, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

static void test_reading(void **state)
{
    struct guard_set *s = parse("inputs:\n"
                                "- name: a\n"
                                "  match: {model: 'res*', tenant: acme, route: infer}\n"
                                "  mode: flag\n"
                                "  max_body: 64MiB\n"
                                "  json_depth: 8\n"
                                "  content_types: application/json\n"
                                "  tensors:\n"
                                "  - {input: X, dtype: [FP32, FP16], shape: [-1, 3, 32..512], range: [-1, 1], finite: true}\n"
                                "  - {image: {layout: hwc, width: 8}}\n"
                                "  text: {max_bytes: 1KiB, max_tokens: 5, control: true}\n"
                                "  deny: [{builtin: card}, {name: x, literals: [a, b], words: true}]\n"
                                "- name: b\n"
                                "  match: {model: m}\n"
                                "  reference: {file: r.npy, methods: robust_z, false_positive_rate: 0.02, record_rows: 50}\n"
                                "outputs:\n"
                                "- {name: c, hold_bytes: 256, rules: [{regex: 'a.b', action: refuse, ignore_case: true}]}\n");
    const struct guard_input *a = &s->inputs[0], *b = &s->inputs[1];
    (void)state;
    assert_int_equal(s->n_inputs, 2);
    assert_int_equal(a->mode, GUARD_FLAG);
    assert_int_equal(a->max_body, 64 << 20);
    assert_int_equal(a->max_depth, 8);
    assert_string_equal(a->types[0], "application/json");
    assert_int_equal(a->tensors[0].dtypes, 1u << DTYPE_FP32 | 1u << DTYPE_FP16);
    assert_int_equal(a->tensors[0].rank, 3);
    assert_int_equal(a->tensors[0].most[0], INT64_MAX);
    assert_int_equal(a->tensors[0].least[2], 32);
    assert_int_equal(a->tensors[0].most[2], 512);
    assert_int_equal(a->tensors[1].image.layout, GUARD_HWC);
    assert_int_equal(a->text.max_tokens, 5);
    assert_int_equal(a->n_denied, 2);
    assert_int_equal(b->mode, GUARD_REFUSE);
    assert_int_equal(b->max_body, 10000000);
    assert_int_equal(b->reference->methods, 1u << GUARD_ROBUST_Z);
    assert_int_equal(b->reference->mode, GUARD_FLAG);
    assert_int_equal(s->outputs[0].hold_bytes, 256);
    struct guard_who who = {
        .tenant = STR("acme"), .quota_class = STR("default"), .model = STR("resnet"), .route = STR("infer")};
    assert_true(guard_matches(&a->match, &who));
    who.model = STR("light"), who.asked = STR("resnet"); /* another one answers in its place */
    assert_true(guard_matches(&a->match, &who));
    who.asked = STR("");
    assert_false(guard_matches(&a->match, &who));
    who.model = STR("resnet"), who.tenant = STR("other");
    assert_false(guard_matches(&a->match, &who));
    guard_set_unref(s);
}

static void test_mistakes(void **state)
{
    static const char *const bad[][2] = {
        {"input: []", "it has inputs, outputs"},
        {"inputs: [{match: {model: a}}]", "needs a name"},
        {"inputs: [{name: a}, {name: a}]", "there twice"},
        {"inputs: [{name: a, mode: warn}]", "refuse, flag or log"},
        {"inputs: [{name: a, match: {modle: x}}]", "it has tenant, class, model, route"},
        {"inputs: [{name: a, max_body: big}]", "10MB"},
        {"inputs: [{name: a, json_depth: 101}]", "1 to 100"},
        {"inputs: [{name: a, tensors: [{dtype: FP31}]}]", "FP32"},
        {"inputs: [{name: a, tensors: [{range: [2, 1]}]}]", "two numbers"},
        {"inputs: [{name: a, tensors: [{shape: [3..1]}]}]", "32..512"},
        {"inputs: [{name: a, deny: [{builtin: card, action: redact}]}]", "no action of its own"},
        {"inputs: [{name: a, match: {model: 'x*'}, reference: {}}]", "match.model must be its name"},
        {"inputs: [{name: a, match: {model: x}, reference: {methods: [total_variation]}}]", "none of its tensors is an image"},
        {"inputs: [{name: a, match: {model: x}, reference: {}}, {name: b, match: {model: x}, reference: {}}]", "of one model"},
        {"inputs: [{name: a, tensors: [{text: {max_tokens: 3}}]}]", "max_tokens is for prompts"},
        {"outputs: [{name: a}]", "needs rules"},
        {"outputs:\n- name: a\n  rules:\n  - {regex: '(', name: r}", "guards.yaml:4: the rule \"r\""},
        {"outputs: [{name: a, rules: [{builtin: iban}]}]", "iban"},
        {"outputs: [{name: a, hold_bytes: 1MiB, rules: [{builtin: card}]}]", "64 to 64KiB"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct guard_set *s = NULL;
        struct error err = {0};
        assert_int_equal(guard_set_parse(str_of(bad[i][0]), "guards.yaml", &s, &err), STATUS_INVALID);
        if (!strstr(err.text, bad[i][1]))
            fail_msg("%s\n  says \"%s\", not \"%s\"", bad[i][0], err.text, bad[i][1]);
    }
}

static int check(const char *policy, const struct tensor *t, enum guard_check *what, struct error *err)
{
    char text[512];
    snprintf(text, sizeof text, "inputs: [{name: p, tensors: [%s]}]", policy);
    struct guard_set *s = parse(text);
    int rc = guard_check_tensor(&s->inputs[0], t, NULL, what, err);
    guard_set_unref(s);
    return rc;
}

static void expect(const char *policy, const struct tensor *t, enum guard_check want, const char *words)
{
    enum guard_check what = GUARD_CHECKS;
    struct error err = {0};
    int rc = check(policy, t, &what, &err);
    if (!words) {
        if (rc)
            fail_msg("%s: %s", policy, err.text);
        return;
    }
    assert_int_equal(rc, STATUS_INVALID);
    assert_int_equal(what, want);
    if (!strstr(err.text, words))
        fail_msg("%s\n  says \"%s\", not \"%s\"", policy, err.text, words);
}

/* The bad value at every place of every length up to two vectors, at every alignment. */
static void test_every_place(void **state)
{
    struct guard_set *s = parse("inputs: [{name: p, tensors: [{range: [-1, 1]}]}]");
    static uint8_t bytes[4 * 70 + 4];
    (void)state;
    for (size_t n = 1; n <= 67; n += n < 40 ? 1 : 9)
        for (size_t at = 0; at < n; at++)
            for (int kind = 0; kind < 3; kind++) {
                float bad = kind == 0 ? NAN : kind == 1 ? 1.0000001f : -INFINITY;
                uint8_t *p = bytes + n % 4;
                for (size_t i = 0; i < n; i++) {
                    float v = i == at ? bad : i % 2 ? 1.0f : -1.0f;
                    memcpy(p + i * 4, &v, 4);
                }
                struct tensor t = {
                    .name = STR("x"), .dtype = DTYPE_FP32, .shape = {1, {(int64_t)n}}, .data = slice_borrow(p, n * 4)};
                char place[32];
                enum guard_check what;
                struct error err = {0};
                snprintf(place, sizeof place, " at [%zu] is ", at);
                assert_int_equal(guard_check_tensor(&s->inputs[0], &t, NULL, &what, &err), STATUS_INVALID);
                assert_non_null(strstr(err.text, place));
                assert_int_equal(what, kind == 1 ? GUARD_RANGE : GUARD_FINITE);
                bad = 0.25f;
                memcpy(p + at * 4, &bad, 4);
                assert_int_equal(guard_check_tensor(&s->inputs[0], &t, NULL, &what, &err), 0);
            }
    guard_set_unref(s);
}

static void test_types(void **state)
{
    static const uint8_t u8[] = {0, 255, 7, 200};
    static const int64_t i64[] = {-5, 1ll << 40, 3};
    static const double f64[] = {0.1, 1e300, -2};
    const uint16_t f16[] = {f32_to_f16(1), 0x7c00 /* infinity */, f32_to_f16(-3)}, bf16[] = {f32_to_bf16(2), 0x7fc0 /* NaN */};
    struct tensor t = {.name = STR("x"), .dtype = DTYPE_UINT8, .shape = {2, {2, 2}}, .data = slice_borrow(u8, sizeof u8)};
    (void)state;
    expect("{range: [0, 255]}", &t, 0, NULL);
    expect("{range: [0, 199]}", &t, GUARD_RANGE, "value 255 at [0,1]");
    expect("{finite: true}", &t, 0, NULL);
    expect("{dtype: [FP32, INT8]}", &t, GUARD_DTYPE, "UINT8; accepted: INT8, FP32");
    expect("{input: y, dtype: FP32}", &t, 0, NULL);
    t = (struct tensor){.name = STR("x"), .dtype = DTYPE_INT64, .shape = {1, {3}}, .data = slice_borrow(i64, sizeof i64)};
    expect("{range: [-5, 1e9]}", &t, GUARD_RANGE, "at [1]");
    t = (struct tensor){.name = STR("x"), .dtype = DTYPE_FP64, .shape = {1, {3}}, .data = slice_borrow(f64, sizeof f64)};
    expect("{finite: true}", &t, 0, NULL);
    expect("{range: [-2, 1]}", &t, GUARD_RANGE, "value 1e+300 at [1]");
    t = (struct tensor){.name = STR("x"), .dtype = DTYPE_FP16, .shape = {1, {3}}, .data = slice_borrow(f16, sizeof f16)};
    expect("{finite: true}", &t, GUARD_FINITE, "at [1] is infinite");
    expect("{range: [-2, 70000]}", &t, GUARD_FINITE, "at [1]");
    t = (struct tensor){.name = STR("x"), .dtype = DTYPE_BF16, .shape = {1, {2}}, .data = slice_borrow(bf16, sizeof bf16)};
    expect("{finite: true}", &t, GUARD_FINITE, "at [1] is NaN");
    expect("{}", &t, 0, NULL);
}

static void test_shapes(void **state)
{
    static const float x[2 * 3 * 4 * 5];
    struct tensor t = {.name = STR("x"), .dtype = DTYPE_FP32, .shape = {4, {2, 3, 4, 5}}, .data = slice_borrow(x, sizeof x)};
    (void)state;
    expect("{shape: [-1, 3, 4..8, 1..5]}", &t, 0, NULL);
    expect("{shape: [-1, 3, 4..8]}", &t, GUARD_SHAPE, "[2,3,4,5]; accepted: 3 dimensions");
    expect("{shape: [-1, 3, 5..8, 5]}", &t, GUARD_SHAPE, "dimension 2 is 4, accepted: 5..8");
    expect("{image: {layout: chw, channels: 3, height: 4, width: 5}}", &t, 0, NULL);
    expect("{image: {layout: hwc, channels: 5, height: 3, width: 4}}", &t, 0, NULL);
    expect("{image: {layout: hwc, channels: 1..4}}", &t, GUARD_IMAGE, "channels is 5; accepted: 1..4");
    expect("{image: {width: 6..100}}", &t, GUARD_IMAGE, "width is 5; accepted: 6..100");
    t.shape = (struct shape){2, {6, 20}};
    expect("{image: {}}", &t, GUARD_IMAGE, "[6,20]");
}

static void test_text(void **state)
{
    static const struct {
        struct guard_text limits;
        const char *text, *words;
    } rows[] = {
        {{.max_chars = 3}, "\xe4\xb8\xad\xe6\x96\x87!", NULL},
        {{.max_chars = 2}, "\xe4\xb8\xad\xe6\x96\x87!", "it has 3 characters; accepted: at most 2"},
        {{.max_bytes = 6}, "\xe4\xb8\xad\xe6\x96\x87!", "it has 7 bytes; accepted: at most 6"},
        {{0}, "a\tb\r\n", NULL},
        {{0}, "a\x1b[31m", "0x1b at offset 1"},
        {{0}, "a\xc2\x85", "0x85 at offset 1"},
        {{.control = true}, "a\x1b[31m\x7f", NULL},
        {{0}, "ok \xc0\xaf", "byte 0xc0 at offset 3 is not valid UTF-8"},
        {{0}, "\xed\xa0\x80", "byte 0xed at offset 0"},
        {{.any_bytes = true}, "\xff\xfe", NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        enum guard_check what = GUARD_CHECKS;
        struct error err = {0};
        int rc = guard_check_text(&rows[i].limits, str_of(rows[i].text), "f", &what, &err);
        assert_int_equal(rc, rows[i].words ? STATUS_INVALID : 0);
        if (rows[i].words && (!strstr(err.text, rows[i].words) || what != GUARD_TEXT))
            fail_msg("\"%s\" doesn't say \"%s\"", err.text, rows[i].words);
    }
}

static void test_elements(void **state)
{
    static const uint8_t bytes[] = "\2\0\0\0ok\0\0\0\0\3\0\0\0a\1b";
    struct tensor t = {
        .name = STR("x"), .dtype = DTYPE_BYTES, .shape = {1, {3}}, .data = slice_borrow(bytes, sizeof bytes - 1)};
    (void)state;
    expect("{text: {}}", &t, GUARD_TEXT, "input \"x\", element 2: the control character 0x01 at offset 1");
    expect("{text: {control: true}}", &t, 0, NULL);
    expect("{range: [0, 1]}", &t, 0, NULL); /* numbers have ranges */
}

static void test_content_types(void **state)
{
    struct guard_set *s = parse("inputs: [{name: p, content_types: [application/json, text/plain]}, {name: q}]");
    enum guard_check what = GUARD_CHECKS;
    struct error err = {0};
    (void)state;
    assert_int_equal(guard_check_type(&s->inputs[0], STR("Application/JSON; charset=utf-8"), &what, &err), 0);
    assert_int_equal(guard_check_type(&s->inputs[1], STR("a/b"), &what, &err), 0);
    assert_int_equal(guard_check_type(&s->inputs[0], STR("a/b"), &what, &err), STATUS_MEDIA_TYPE);
    assert_non_null(strstr(err.text, "\"a/b\" is not accepted for this model; accepted: application/json, text/plain"));
    guard_set_unref(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reading),  cmocka_unit_test(test_mistakes),      cmocka_unit_test(test_every_place),
        cmocka_unit_test(test_types),    cmocka_unit_test(test_shapes),        cmocka_unit_test(test_text),
        cmocka_unit_test(test_elements), cmocka_unit_test(test_content_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
