/* test_limit_policy.c: rules of overload from YAML: what is understood, what is refused, and who is in which class. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"
#include "base/status.h"
#include "edge/limit_policy.h"

#define S 1000000000ull

static void parse(const char *yaml, struct arena *arena, struct limit_policy *p)
{
    struct error err = {0};
    arena_init(arena, 4096, 0);
    int rc = limit_policy_parse(str_of(yaml), "o.yaml", arena, p, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
}

static void test_values_and_defaults(void **state)
{
    (void)state;
    struct limit_policy p;
    struct arena arena;
    parse("models:\n"
          "- {match: 'a*', limit: {min: 4, max: 500, burst: 0, tolerance: 1.5, remeasure: 5s}, cache: true, fallback: b,\n"
          "   breaker: {errors: 25%, slow: 250ms, slow_rate: 0.1, minimum: 7, window: 1m, open: 1s, probes: 2}}\n"
          "- {match: b}\n- {match: c, limit: off, breaker: off}\n",
          &arena, &p);
    const struct limit_model_policy *m = limit_policy_model(&p, STR("alpha"));
    assert_true(m->limited && m->breaks && m->cache && m->limit.adaptive);
    assert_string_equal(m->fallback, "b");
    assert_int_equal(m->limit.least, 4);
    assert_int_equal(m->limit.most, 500);
    assert_int_equal(m->limit.burst, 0);
    assert_true(m->limit.tolerance == 1.5 && m->limit.epoch_ns == 5 * S);
    assert_true(m->breaker.error_rate == 0.25 && m->breaker.slow_rate == 0.1 && m->breaker.slow_ns == S / 4);
    assert_true(m->breaker.minimum == 7 && m->breaker.window_ns == 60 * S && m->breaker.open_ns == S && m->breaker.probes == 2);
    m = limit_policy_model(&p, STR("b"));
    assert_true(m->limited && m->breaks && !m->cache && !m->fallback && m->limit.burst == UINT32_MAX &&
                m->limit.tolerance == 2);
    assert_true(m->breaker.error_rate == 0.5 && m->breaker.minimum == 20 && m->breaker.slow_ns == 0);
    m = limit_policy_model(&p, STR("c"));
    assert_true(!m->limited && !m->breaks);
    assert_null(limit_policy_model(&p, STR("d")));
    arena_release(&arena);
}

static enum limit_class class_of(const struct limit_policy *p, const char *quota_class, const char *tenant, const char *model,
                                 int asked)
{
    struct limit_ask a = {str_of(quota_class), str_of(tenant), str_of(model), STR("infer"), asked};
    return limit_policy_class(p, &a);
}

static void test_classes(void **state)
{
    (void)state;
    struct limit_policy p;
    struct arena arena;
    parse("rules:\n"
          "- {class: core, match: {class: gold, model: 'fraud*'}}\n"
          "- {class: low, best: high, match: {tenant: crawler}}\n"
          "- {class: high, match: {model: 'fraud*', route: infer}}\n"
          "- {class: low, match: {route: chat_completions}}\n",
          &arena, &p);
    assert_true(p.asks);
    assert_int_equal(class_of(&p, "gold", "t", "fraud-1", -1), LIMIT_CORE);
    assert_int_equal(class_of(&p, "gold", "t", "other", -1), LIMIT_NORMAL);
    assert_int_equal(class_of(&p, "gold", "crawler", "fraud-1", -1), LIMIT_CORE); /* the first that matches */
    assert_int_equal(class_of(&p, "default", "t", "fraud-1", -1), LIMIT_HIGH);
    assert_int_equal(class_of(&p, "default", "crawler", "x", -1), LIMIT_LOW);
    assert_int_equal(class_of(&p, "default", "crawler", "x", LIMIT_NORMAL), LIMIT_NORMAL);
    assert_int_equal(class_of(&p, "default", "crawler", "x", LIMIT_CORE), LIMIT_HIGH); /* as far as the rule goes */
    assert_int_equal(class_of(&p, "default", "t", "x", LIMIT_CORE), LIMIT_NORMAL);     /* no rule: no more than normal */
    assert_int_equal(class_of(&p, "gold", "t", "fraud-1", LIMIT_LOW), LIMIT_LOW);      /* less may always be asked for */
    arena_release(&arena);
}

static void count_name(void *ctx, struct str model)
{
    char *all = ctx;
    size_t n = strlen(all);
    snprintf(all + n, 64 - n, "%.*s;", STR_ARG(model));
}

static void test_names(void **state)
{
    (void)state;
    struct limit_policy p;
    struct arena arena;
    char names[64] = "";
    parse("{rules: [{class: core, match: {model: 'a,b*'}}], models: [{match: 'c,?', fallback: dd}]}", &arena, &p);
    limit_policy_each_name(&p, count_name, names);
    assert_string_equal(names, "a;c;dd;");
    arena_release(&arena);
}

static void test_mistakes(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"models: [{match: a, fallback: a}]", "\"a\" leads back to \"a\""},
        {"models: [{match: a, fallback: b}, {match: b, fallback: c}, {match: c, fallback: a}]", "leads back to \"a\""},
        {"models: [{match: x, fallback: a}, {match: a, fallback: b}, {match: 'b', fallback: a}]", "leads back to \"a\""},
        {"models: [{match: '*', fallback: light}]", "entry of its own"},
        {"models: [{match: a, fallback: 'b c'}]", "the name of a model"},
        {"models: [{match: a, limits: 1}]", "o.yaml:1: a model has no \"limits\""},
        {"models: [{match: a, limit: {min: 0}}]", "min: \"0\""},
        {"models: [{match: a, limit: {min: 5, max: 4}}]", "min is 5 and max 4"},
        {"models: [{match: a, limit: often}]", "adaptive, off or a map"},
        {"models: [{match: a, limit: {tolerance: 1}}]", "1.1"},
        {"models: [{match: a, breaker: {errors: 101%}}]", "0 to 100%"},
        {"models: [{match: a, breaker: {errors: nan}}]", "0 to 100%"},
        {"models: [{match: a, breaker: {errors: 0}}]", "nothing could open it"},
        {"models: [{match: a, breaker: {open: 10}}]", "a time with its unit"},
        {"models: [{match: a, breaker: {slow: 2h}}]", "up to 1h"},
        {"models: [{match: a, cache: maybe}]", "true or false"},
        {"models: [{limit: off}]", "needs a match"},
        {"models: [a]", "a map of match"},
        {"rules: [{match: {model: a}}]", "needs a class"},
        {"rules: [{class: urgent}]", "core, high, normal or low"},
        {"rules: [{class: normal, best: low}]", "less important"},
        {"rules: [{class: low, match: {key: k}}]", "match has no \"key\""},
        {"rules: [{class: low, match: {model: 'a b'}}]", "separated by commas"},
        {"rule: []", "rules and models"},
        {"rules: 1", "rules and models"},
        {"", "rules and models"},
        {"[]", "rules and models"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct limit_policy p;
        struct arena arena;
        struct error err = {0};
        arena_init(&arena, 4096, 0);
        assert_int_equal(limit_policy_parse(str_of(cases[i][0]), "o.yaml", &arena, &p, &err), STATUS_INVALID);
        if (!strstr(err.text, cases[i][1]))
            fail_msg("%s\nsays: %s\nnot: %s", cases[i][0], err.text, cases[i][1]);
        arena_release(&arena);
    }
}

static void test_a_long_chain(void **state)
{
    (void)state;
    char yaml[1024] = "models: [";
    for (int i = 0; i < 9; i++) {
        size_t n = strlen(yaml);
        snprintf(yaml + n, sizeof yaml - n, "%s{match: m%d, fallback: m%d}", i ? ", " : "", i, i + 1);
    }
    size_t end = strlen(yaml);
    snprintf(yaml + end, sizeof yaml - end, "]");
    struct limit_policy p;
    struct arena arena;
    struct error err = {0};
    arena_init(&arena, 4096, 0);
    assert_int_equal(limit_policy_parse(str_of(yaml), "o.yaml", &arena, &p, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "9 models in a row; at most 8"));
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_and_defaults),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_a_long_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
