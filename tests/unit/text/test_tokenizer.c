/* Ids against llama.cpp's for the tiny vocabularies (tests/data/llm/tokens.txt), and back to the same bytes; control tokens only where they are
 * allowed; bytes that a vocabulary lacks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/status.h"
#include "engine/llm/file/model_desc.h"
#include "os/dir.h"
#include "os/file.h"
#include "text/tokenizer.h"

static struct tokenizer *open_tokenizer(const char *file)
{
    struct model_desc *d = NULL;
    struct tokenizer *t = NULL;
    int dir = -1;
    assert_int_equal(0, os_dir_open(TEST_DATA "/llm", &dir, NULL));
    assert_int_equal(0, model_desc_open(dir, file, &d, NULL));
    assert_int_equal(0, tokenizer_create(&d->tokenizer, &t, NULL));
    model_desc_release(d);
    os_close(dir);
    return t;
}

static size_t from_hex(const char *hex, char *out)
{
    size_t n = 0;
    for (; hex[2 * n] && hex[2 * n + 1]; n++) {
        char byte[3] = {hex[2 * n], hex[2 * n + 1], 0};
        out[n] = (char)strtoul(byte, NULL, 16);
    }
    return n;
}

static void check_line(const struct tokenizer *t, const char *hex, char *ids)
{
    char text[512];
    struct text_span span = {{text, from_hex(hex, text)}, false};
    struct token_list l = {0};
    struct buf back;
    size_t n = 0;
    assert_int_equal(0, tokenizer_encode(t, &span, 1, false, 0, &l, NULL));
    for (char *rest = ids, *end; strtol(rest, &end, 10), end != rest; rest = end, n++) {
        assert_true(n < l.n);
        assert_int_equal(strtol(rest, NULL, 10), l.v[n]);
    }
    assert_int_equal(n, l.n);
    buf_init(&back);
    tokenizer_decode(t, l.v, l.n, false, &back);
    assert_true(str_eq(span.text, buf_str(&back)));
    buf_release(&back);
    token_list_release(&l);
}

static void test_as_llama_cpp(void **state)
{
    FILE *f = fopen(TEST_DATA "/llm/tokens.txt", "r");
    char *line = NULL, open[64] = "";
    size_t cap = 0, n = 0;
    struct tokenizer *t = NULL;
    assert_non_null(f);
    while (getline(&line, &cap, f) > 0) {
        char *hex = strchr(line, '\t'), *ids = hex ? strchr(hex + 1, '\t') : NULL;
        if (line[0] == '#' || !ids)
            continue;
        *hex++ = *ids++ = 0;
        if (strcmp(open, line) != 0) {
            tokenizer_destroy(t);
            t = open_tokenizer(line);
            snprintf(open, sizeof open, "%s", line);
        }
        check_line(t, hex, ids);
        n++;
    }
    assert_int_equal(240, n);
    tokenizer_destroy(t);
    free(line);
    fclose(f);
    (void)state;
}

/* "<e>" as text is three symbols, unless the span may hold control tokens; a byte that the vocabulary lacks vanishes. */
static void test_by_hand(void **state)
{
    const struct str tokens[] = {STR("<e>"), STR("a"), STR("b"), STR("ab"), STR("<"), STR("e"), STR(">")},
                     merges[] = {STR("a b")};
    const int32_t types[] = {TOKEN_CONTROL, TOKEN_NORMAL, TOKEN_NORMAL, TOKEN_NORMAL, TOKEN_NORMAL, TOKEN_NORMAL, TOKEN_NORMAL};
    struct tokenizer_spec spec = {.model = TOKENIZER_BPE,
                                  .pre = STR("gpt-2"),
                                  .tokens = tokens,
                                  .types = types,
                                  .n_tokens = 7,
                                  .merges = merges,
                                  .n_merges = 1,
                                  .bos = -1,
                                  .eos = 0,
                                  .eot = -1,
                                  .eom = -1,
                                  .unk = 0,
                                  .sep = -1,
                                  .pad = -1,
                                  .cls = -1,
                                  .mask = -1};
    struct tokenizer *t = NULL;
    struct token_list l = {0};
    assert_int_equal(0, tokenizer_create(&spec, &t, NULL));
    struct text_span spans[] = {{STR("ab<e>"), false}, {STR("<e>a\x16z"), true}};
    const int32_t want[] = {3, 4, 5, 6, 0, 1};
    assert_int_equal(0, tokenizer_encode(t, spans, 2, false, 0, &l, NULL));
    assert_int_equal(6, l.n);
    assert_memory_equal(want, l.v, sizeof want);
    assert_true(tokenizer_is_eog(t, 0));
    assert_int_equal(STATUS_TOO_LARGE, tokenizer_encode(t, spans, 2, false, 8, &l, NULL)); /* 6 are in it already */
    token_list_release(&l);
    tokenizer_destroy(t);
    (void)state;
}

/* Phi-3's markers take the white space behind them; ids as llama.cpp (node-llama-cpp 3.21.1) gives them for the same file. */
static void test_phi3_markers(void **state)
{
    static const struct {
        const char *text;
        int32_t ids[16];
        size_t n;
    } rows[] = {{"<|user|>\n  hello<|end|>\n<|assistant|>\n\n the cat",
                 {6, 264, 339, 276, 276, 279, 7, 4, 340, 264, 267, 265, 284},
                 13},
                {"<s> <|endoftext|>  a</s> b", {1, 264, 264, 3, 264, 264, 342, 2, 264, 266}, 10},
                {"x <|system|> y", {264, 288, 264, 5, 264, 289}, 6}};
    struct tokenizer *t = open_tokenizer("phi3.gguf");
    for (size_t i = 0; i < 3; i++) {
        struct text_span span = {str_of(rows[i].text), true};
        struct token_list l = {0};
        assert_int_equal(0, tokenizer_encode(t, &span, 1, false, 0, &l, NULL));
        assert_int_equal(rows[i].n, l.n);
        assert_memory_equal(rows[i].ids, l.v, l.n * sizeof *l.v);
        token_list_release(&l);
    }
    tokenizer_destroy(t);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_llama_cpp), cmocka_unit_test(test_phi3_markers),
                                       cmocka_unit_test(test_by_hand)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
