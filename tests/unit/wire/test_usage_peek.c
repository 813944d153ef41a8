/* Tokens out of answers, at every cut. Documents have the shapes of OpenAI's API reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/size.h"
#include "wire/usage_peek.h"

static const struct {
    const char *text;
    int64_t tokens; /* -1: none */
    bool events;
} cases[] = {
    {"{\"id\":\"a\",\"choices\":[{\"message\":{\"content\":\"x\"}}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":12,"
     "\"total_tokens\":21,"
     "\"completion_tokens_details\":{\"reasoning_tokens\":5}}}",
     21, false},
    {"{\"usage\" : { \"input_tokens\" : 7 , \"output_tokens\":5\n}, \"x\":[1,2]}", 12, false},
    {"{\"usage\":null,\"choices\":[]}", -1, false},
    {"{\"content\":\"\\\"usage\\\":{\\\"total_tokens\\\":99}\"}", -1, false},
    {"{\"content\":\"{\\\"usage\\\":{\",\"usage\":{\"total_tokens\":3}}", 3, false},
    {"{\"a\":{\"b\":{\"c\":{\"usage\":{\"total_tokens\":3}}}}}", -1, false},
    {"{\"usage\":{\"total_tokens\":3.5}}", -1, false},
    {"{\"usage\":{\"total_tokens\":-3}}", -1, false},
    {"{\"usage\":{\"total_tokens\":99999999999999999999999}}", -1, false},
    {"{\"usage\":{\"total_tokens\":5", -1, false},
    {"{\"usage\":5,\"total_tokens\":7}", -1, false},
    {"{\"\\u0075sage\":{\"total_tokens\":7}}", -1, false},
    {"data: {\"choices\":[{\"delta\":{\"content\":\"{\"}}],\"usage\":null}\n\ndata: "
     "{\"choices\":[],\"usage\":{\"prompt_tokens\":4,"
     "\"completion_tokens\":6,\"total_tokens\":10}}\n\ndata: [DONE]\n\n",
     10, true},
    {"data: {\"usage\":{\"total_tokens\":1}}\n\ndata: {\"usage\":{\"total_tokens\":2}}\n\n", 2, true},
    {"data: {\"broken\":{\n\ndata: {\"usage\":{\"total_tokens\":8}}\n\n", 8, true},
    {"event: response.completed\ndata: "
     "{\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"usage\":{\"input_tokens\":3,"
     "\"input_tokens_details\":{\"cached_tokens\":2},\"output_tokens\":4,\"total_tokens\":7}}}\n\n",
     7, true},
};

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        size_t n = strlen(cases[i].text);
        for (size_t step = 1; step <= n; step++) {
            struct usage_peek p;
            usage_peek_init(&p, cases[i].events);
            for (size_t at = 0; at < n; at += step)
                usage_peek_feed(&p, cases[i].text + at, MIN_OF(step, n - at));
            if ((p.known ? (int64_t)p.tokens : -1) != cases[i].tokens)
                fail_msg("case %zu, step %zu: %d %llu", i, step, p.known, (unsigned long long)p.tokens);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
