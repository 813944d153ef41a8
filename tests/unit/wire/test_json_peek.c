/* test_json_peek.c: bodies as the OpenAI SDK and curl send them, cut at every byte; expected values read off by eye. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/status.h"
#include "wire/json_peek.h"

static int peek(struct json_peek *p, const char *text, size_t cut, struct error *err)
{
    size_t n = strlen(text);
    json_peek_init(p);
    int rc = json_peek_feed(p, text, cut < n ? cut : n, err);
    if (!rc && cut < n)
        rc = json_peek_feed(p, text + cut, n - cut, err);
    return rc;
}

static void a_chat(void **state)
{
    static const char text[] = " { \"messages\" : [{\"role\":\"user\",\"content\":\"say \\\"model\\\": \\\\ {[\"}], "
                               "\"model\":\"smol\\/lm-2\",\"temperature\":0.5e-1,"
                               "\"stream\" : true ,\"max_tokens\": "
                               "128,\"tools\":[{\"model\":\"no\",\"stream\":false}],\"user\":\"u-1\",\"stop\":null} ";
    (void)state;
    for (size_t cut = 0; cut < sizeof text; cut++) {
        struct json_peek p;
        struct error err;
        assert_int_equal(peek(&p, text, cut, &err), 0);
        assert_true(p.done && p.has_model && p.has_stream && p.stream);
        assert_string_equal(p.model, "smol/lm-2");
        assert_memory_equal(text + p.model_at, "\"smol\\/lm-2\",", p.model_raw_n + 1);
        assert_string_equal(p.user, "u-1");
        assert_int_equal(p.max_tokens, 128);
        assert_memory_equal(text + p.prompt_at, "[{\"role\":\"user\"", 15);
        assert_memory_equal(text + p.prompt_at + p.prompt_n - 4, "[\"}]", 4);
    }
}

static void small_ones(void **state)
{
    static const struct {
        const char *text, *model;
        uint64_t max_tokens;
        bool done, stream;
    } cases[] = {
        {"{}", "", 0, true, false},
        {"", "", 0, false, false},
        {"[1,2]", "", 0, false, false},
        {"{\"stream\":true}", "", 0, true, true},
        {"{\"stream\":null,\"model\":\"a\"}", "a", 0, true, false},
        {"{\"max_completion_tokens\":7,\"max_tokens\":5}", "", 7, true, false},
        {"{\"x\":1,\"model\":\"b\"}", "b", 0, true, false},
        {"{\"prompt\":\"abc\",\"model\":\"c\"}", "c", 0, true, false},
        {"{\"model\":\"d\",\"x\":{\"y\":[1,{\"z\":2}]},\"max_tokens\":3}", "d", 3, true, false},
        {"{\"model\":\"f\"", "f", 0, false, false},
        {"{\"user\":5,\"model\":\"g\"}", "g", 0, true, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t cut = 0; cut <= strlen(cases[i].text); cut++) {
            struct json_peek p;
            struct error err;
            assert_int_equal(peek(&p, cases[i].text, cut, &err), 0);
            assert_string_equal(p.model, cases[i].model);
            assert_int_equal(p.max_tokens, cases[i].max_tokens);
            assert_int_equal(p.done, cases[i].done);
            assert_int_equal(p.stream, cases[i].stream);
        }
}

static void refused(void **state)
{
    static const char *const cases[][2] = {
        {"{\"model\":\"a\",\"model\":\"b\"}", "\"model\" is there twice; send it once"},
        {"{\"model\":5}", "\"model\" must be a string"},
        {"{\"mod\\u0065l\":\"x\",\"model\":\"e\"}", "a member's name holds an escape; write names in plain characters"},
        {"{\"model\":\"\\u0061\"}", "\"model\" holds the escape \\u; write the name in plain characters"},
        {"{\"stream\":1}", "\"stream\" must be true or false"},
        {"{\"stream\":\"true\"}", "\"stream\" must be true or false"},
        {"{\"max_tokens\":-1}", "\"max_tokens\" must be a whole number"},
        {"{\"max_tokens\":1e309}", "\"max_tokens\" must be a whole number"},
        {"{\"max_tokens\":[1]}", "\"max_tokens\" must be a whole number"},
        {"{\"max_tokens\":111111111111111111111111111111}", "\"max_tokens\" must be a whole number"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t cut = 0; cut <= strlen(cases[i][0]); cut++) {
            struct json_peek p;
            struct error err;
            assert_int_equal(peek(&p, cases[i][0], cut, &err), STATUS_INVALID);
            assert_string_equal(err.text, cases[i][1]);
        }
    char long_name[400] = "{\"model\":\"";
    memset(long_name + 10, 'm', 300);
    struct json_peek p;
    struct error err;
    assert_int_equal(peek(&p, long_name, 0, &err), STATUS_INVALID);
    assert_string_equal(err.text, "\"model\" is longer than 256 bytes");
}

/* The prompt is a bare value at the end of the object, or the last thing that came. */
static void prompts(void **state)
{
    (void)state;
    struct json_peek p;
    struct error err;
    static const char text[] = "{\"input\":12}", open[] = "{\"input\":\"ab";
    assert_int_equal(peek(&p, text, 0, &err), 0);
    assert_int_equal(p.prompt_at, 9);
    assert_int_equal(p.prompt_n, 2);
    assert_true(p.done);
    assert_int_equal(peek(&p, open, 0, &err), 0);
    assert_int_equal(p.prompt_n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_chat), cmocka_unit_test(small_ones), cmocka_unit_test(refused),
                                       cmocka_unit_test(prompts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
