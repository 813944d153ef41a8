/* test_pretokenize.c: each pre-tokeniser's cut against Hugging Face's `tokenizers` running the published expressions
 * (tests/data/text/pretokenize_cases.txt, written by tests/tools/tokenizer_oracle.py cases); names; and that time is linear in the text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"
#include "text/pretokenize.h"

static size_t from_hex(const char *hex, char *out)
{
    size_t n = 0;
    for (; hex[2 * n] && hex[2 * n + 1]; n++) {
        char byte[3] = {hex[2 * n], hex[2 * n + 1], 0};
        out[n] = (char)strtoul(byte, NULL, 16);
    }
    return n;
}

static void check_case(const char *name, const char *hex, char *lengths)
{
    char text[256];
    const struct pre_rules *r = pre_rules_find(str_of(name));
    struct pre_cut cut;
    struct str piece;
    assert_non_null(r);
    pre_cut_init(&cut, r, (struct str){text, from_hex(hex, text)});
    for (char *end; pre_cut_next(&cut, &piece); lengths = end) {
        unsigned long want = strtoul(lengths, &end, 10);
        if (want != piece.n)
            fail_msg("%s, %s: a piece of %zu bytes, should be %lu", name, hex, piece.n, want);
    }
    assert_int_equal(0, strspn(lengths, " 0123456789")); /* all were seen */
}

static void as_published(void **state)
{
    FILE *f = fopen(TEST_DATA "/text/pretokenize_cases.txt", "r");
    char *line = NULL;
    size_t cap = 0, n = 0;
    assert_non_null(f);
    while (getline(&line, &cap, f) > 0) {
        char *hex = strchr(line, '\t'), *lengths = hex ? strchr(hex + 1, '\t') : NULL;
        if (line[0] == '#' || !lengths)
            continue;
        *hex++ = *lengths++ = 0;
        check_case(line, hex, lengths);
        n++;
    }
    assert_int_equal(400, n);
    free(line);
    fclose(f);
    (void)state;
}

static void names(void **state)
{
    static const char *const same[][2] = {
        {"llama3", "llama-bpe"},          {"gpt3-finnish", "bloom"},     {"poro-chat", "bloom"},   {"llama4", "gpt-4o"},
        {"hunyuan-dense", "deepseek-v3"}, {"deepseek-r1-qwen", "qwen2"}, {"minerva-7b", "smollm"}, {"olmo", "gpt-2"}};
    for (size_t i = 0; i < COUNT_OF(same); i++) {
        assert_non_null(pre_rules_find(str_of(same[i][0])));
        assert_ptr_equal(pre_rules_find(str_of(same[i][0])), pre_rules_find(str_of(same[i][1])));
    }
    assert_null(pre_rules_find(STR("kimi-k2")));
    assert_null(pre_rules_find(STR("gpt")));
    assert_null(pre_rules_find(STR("")));
    (void)state;
}

/* Nothing of what a stage looks for, 128 KiB of it, and every piece a segment of its own to all the others: what looked at the rest of the
 * text again for each piece would take minutes. */
static void linear_time(void **state)
{
    static const char *const names[] = {"gpt-2",  "llama-bpe", "smollm",       "minicpm5",       "falcon",     "bloom",
                                        "viking", "gpt-4o",    "deepseek-llm", "deepseek-coder", "deepseek-v3"};
    static const char *const parts[] = {"ab ", " ", "A", "1", "!", "\xcc\x81", "\x01", "\xe4\xb8\x80 ", " \n", "'"};
    size_t size = 1 << 17;
    char *text = malloc(size);
    assert_non_null(text);
    for (size_t p = 0; p < COUNT_OF(parts); p++) {
        size_t n = strlen(parts[p]), given = 0;
        for (size_t i = 0; i + n < size; i += n)
            memcpy(text + i, parts[p], n);
        text[size / n * n - n] = 'x'; /* the end is none of it */
        for (size_t k = 0; k < COUNT_OF(names); k++, given = 0) {
            struct pre_cut cut;
            struct str piece;
            pre_cut_init(&cut, pre_rules_find(str_of(names[k])), (struct str){text, size / n * n - n + 1});
            while (pre_cut_next(&cut, &piece)) {
                assert_ptr_equal(text + given, piece.p);
                given += piece.n;
            }
            assert_int_equal(size / n * n - n + 1, given);
        }
    }
    free(text);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_published), cmocka_unit_test(names), cmocka_unit_test(linear_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
