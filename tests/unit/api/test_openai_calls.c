/* Text taken apart: what must come is written by hand beside each text, in the form kind(text); cutting the text anywhere must not
 * change it. The formats are those of the models' own chat templates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "api/openai_calls.h"

struct seen {
    struct buf text;
    int kind; /* of the run at the end; -1: none */
};

static void note(void *ctx, enum calls_piece kind, struct str text)
{
    static const char *const names[] = {"C(", "R(", "call(", "A("};
    struct seen *s = ctx;
    if (s->kind != (int)kind || kind == CALLS_BEGIN) {
        if (s->kind >= 0)
            buf_append_c(&s->text, ')');
        buf_append_z(&s->text, names[kind]);
    }
    s->kind = (int)kind;
    buf_append_str(&s->text, text);
}

struct setup {
    enum calls_format format;
    const char *named;
    bool thinking, reasoning;
};

static void check_cut(const struct setup *u, const char *text, size_t step, size_t first, const char *want)
{
    struct seen s = {.kind = -1};
    struct calls_sink sink = {note, &s};
    struct calls c;
    size_t n = strlen(text), at = first < n ? first : n;
    calls_init(&c, u->format, u->named, u->thinking, u->reasoning);
    calls_push(&c, (struct str){text, at}, &sink);
    while (at < n) {
        size_t take = step < n - at ? step : n - at;
        calls_push(&c, (struct str){text + at, take}, &sink);
        at += take;
    }
    calls_finish(&c, &sink);
    if (s.kind >= 0)
        buf_append_c(&s.text, ')');
    assert_false(c.failed);
    assert_string_equal(buf_z(&s.text), want);
    calls_release(&c);
    buf_release(&s.text);
}

static void check(struct setup u, const char *text, const char *want)
{
    check_cut(&u, text, 1, 0, want);
    for (size_t first = 0; first <= strlen(text); first++)
        check_cut(&u, text, SIZE_MAX, first, want);
}

static const struct setup plain = {0}, hermes = {.format = CALLS_HERMES}, mistral = {.format = CALLS_MISTRAL},
                          llama = {.format = CALLS_LLAMA}, array = {.format = CALLS_ARRAY},
                          named = {.format = CALLS_NAMED, .named = "f"}, think = {.thinking = true};

static void test_plain(void **state)
{
    (void)state;
    check(plain, "", "");
    check(plain, " a <tool_call>{\"name\":\"x\"}</tool_call> ", "C( a <tool_call>{\"name\":\"x\"}</tool_call> )");
    check(hermes, "  nothing but text\n", "C(  nothing but text\n)");
    check(hermes, "a < b <tool_cal me", "C(a < b <tool_cal me)");
    check(llama, "{ is a brace", "C({ is a brace)");
    check(mistral, "[TOOL", "C([TOOL)");
}

static void test_hermes(void **state)
{
    (void)state;
    check(hermes,
          "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"city\": \"Rome}\", \"n\": [1, {\"a\": 2}]}}\n</tool_call>",
          "call(get)A({\"city\": \"Rome}\", \"n\": [1, {\"a\": 2}]})");
    check(hermes, "Let me see.\n\n<tool_call>{\"arguments\": {\"q\": \"\\\"\"}, \"name\": \"f\"}</tool_call>\n",
          "C(Let me see.)call(f)A({\"q\": \"\\\"\"})");
    check(hermes,
          "<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"b\",\"arguments\":{}}</tool_call>",
          "call(a)A({})call(b)A({})");
    check(hermes, "<tool_call>{\"name\":\"a\"}</tool_call> done", "call(a)A({})C( done)");
    check(hermes, "<tool_call>{\"name\":\"a\",\"arguments\":\"{\\\"x\\\":1}\"}</tool_call>", "call(a)A({\"x\":1})");
    check(hermes, "<tool_call>{\"name\":\"a\",\"arguments\":{\"x\":", "call(a)A({\"x\":)"); /* cut by max_tokens */
}

static void test_no_call_after_all(void **state)
{
    (void)state;
    check(hermes, "<tool_call>get the weather</tool_call>", "C(<tool_call>get the weather</tool_call>)");
    check(hermes, "<tool_call>{\"arguments\":{}}</tool_call>", "C(<tool_call>{\"arguments\":{}}</tool_call>)");
    check(llama, "{\"answer\": 42}", "C({\"answer\": 42})");
    check(hermes, "<tool_call>", "C(<tool_call>)");
}

static void test_mistral(void **state)
{
    (void)state;
    check(mistral, "[TOOL_CALLS][{\"name\": \"a\", \"arguments\": {\"x\": 1}}, {\"name\": \"b\", \"arguments\": {}}]",
          "call(a)A({\"x\": 1})call(b)A({})");
    check(mistral, "[TOOL_CALLS]get_time[ARGS]{\"zone\": \"UTC\"}", "call(get_time)A({\"zone\": \"UTC\"})");
    check(mistral, "[TOOL_CALLS]get_time{\"zone\": {}}[TOOL_CALLS]b{\"y\":2}",
          "call(get_time)A({\"zone\": {}})call(b)A({\"y\":2})");
}

static void test_llama(void **state)
{
    (void)state;
    check(llama, "{\"name\": \"a\", \"parameters\": {\"x\": \"1\"}}", "call(a)A({\"x\": \"1\"})");
    check(llama, "<|python_tag|>{\"type\": \"function\", \"name\": \"a\", \"parameters\": {}}", "call(a)A({})");
    check(llama, "{\"name\": \"a\", \"parameters\": {}}; {\"name\": \"b\", \"parameters\": {}}", "call(a)A({})call(b)A({})");
    check(llama, "I say {\"name\": \"a\"}", "C(I say {\"name\": \"a\"})");
}

static void test_forced(void **state)
{
    (void)state;
    check(array, " [{\"name\": \"a\", \"arguments\": {\"x\": 1}},{\"name\":\"b\",\"arguments\":{}}] ",
          "call(a)A({\"x\": 1})call(b)A({})");
    check(named, "{\"x\": {\"y\": \"}\"}}", "call(f)A({\"x\": {\"y\": \"}\"}})");
    check(named, "\n{}\n", "call(f)A({})");
}

static void test_reasoning(void **state)
{
    (void)state;
    check(think, "<think>\nOne <b> two\n</think>\n\nAnswer </think> x", "R(\nOne <b> two)C(Answer </think> x)");
    check(think, "No thought <think>", "C(No thought <think>)");
    check(think, "<think>cut", "R(cut)");
    check((struct setup){.thinking = true, .reasoning = true}, "hm\n</think>\n\nYes", "R(hm)C(Yes)");
    check((struct setup){.format = CALLS_HERMES, .thinking = true},
          "<think>a</think>\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", "R(a)call(f)A({})");
}

static void test_formats(void **state)
{
    (void)state;
    assert_int_equal(calls_format_of(STR("...<tool_call>\\n{\"name\": <function-name>...")), CALLS_HERMES);
    assert_int_equal(calls_format_of(STR("{{ '[TOOL_CALLS]' }}")), CALLS_MISTRAL);
    assert_int_equal(calls_format_of(STR("Respond in the format {\"name\": function name, \"parameters\": ...} ipython")),
                     CALLS_LLAMA);
    assert_int_equal(calls_format_of(STR("{{ messages[0].content }}")), CALLS_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),     cmocka_unit_test(test_hermes),  cmocka_unit_test(test_no_call_after_all),
        cmocka_unit_test(test_mistral),   cmocka_unit_test(test_llama),   cmocka_unit_test(test_forced),
        cmocka_unit_test(test_reasoning), cmocka_unit_test(test_formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
