/* Ids against Hugging Face's `tokenizers` on random Unicode, for the small vocabularies of tests/data/text/tokenizers (written by
 * tests/data/make_tokenizers.py): WordPiece cased and uncased, unigram with a character map, with and without bytes, byte-level BPE behind NFC,
 * each with added tokens that take white space with them, stand alone, or are looked for in normalised text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"
#include "base/status.h"
#include "engine/llm/file/hf_priv.h"
#include "os/dir.h"
#include "text/tokenizer.h"

#define FOLDER TEST_DATA "/text/tokenizers"

static struct tokenizer *open_tokenizer(const char *name)
{
    struct model_desc d = {0};
    struct json j = {0};
    struct error err = {0};
    struct tokenizer *t = NULL;
    char file[64];
    int dir = -1;
    arena_init(&d.arena, 4096, 0);
    snprintf(file, sizeof file, "%s.json", name);
    assert_int_equal(0, os_dir_open(FOLDER, &dir, NULL));
    assert_int_equal(0, hf__read_json(NULL, dir, file, JSON_REQUIRED, &j, NULL));
    if (hf__read_tokenizer(j.root, NULL, &d, &err) < 0 || tokenizer_create(&d.tokenizer, &t, &err) < 0)
        fail_msg("%s: %s", name, err.text);
    json_release(&j);
    arena_release(&d.arena);
    os_close(dir);
    return t;
}

static size_t from_hex(const char *hex, size_t n, char *out)
{
    for (size_t i = 0; i < n / 2; i++) {
        char byte[3] = {hex[2 * i], hex[2 * i + 1], 0};
        out[i] = (char)strtoul(byte, NULL, 16);
    }
    return n / 2;
}

static void check_line(const char *name, const struct tokenizer *t, const char *line)
{
    char text[1024];
    const char *tab = strchr(line, '\t');
    struct text_span span = {{text, 0}, true};
    struct token_list l = {0};
    size_t n = 0;
    assert_non_null(tab);
    assert_true((size_t)(tab - line) < 2 * sizeof text);
    span.text.n = from_hex(line, (size_t)(tab - line), text);
    assert_int_equal(0, tokenizer_encode(t, &span, 1, true, 0, &l, NULL));
    char *end;
    for (const char *at = tab + 1; strtol(at, &end, 10), end != at; at = end, n++)
        if (n >= l.n || strtol(at, NULL, 10) != l.v[n])
            fail_msg("%s: \"%.*s\": token %zu", name, STR_ARG(span.text), n);
    assert_int_equal(n, l.n);
    token_list_release(&l);
}

static void as_hugging_face(void **state)
{
    static const char *const names[] = {"wordpiece_uncased", "wordpiece_cased", "unigram", "unigram_bytes_words", "bpe_nfc"};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char file[128], *line = NULL;
        size_t cap = 0, n = 0;
        snprintf(file, sizeof file, FOLDER "/%s.txt", names[i]);
        FILE *f = fopen(file, "r");
        struct tokenizer *t = open_tokenizer(names[i]);
        assert_non_null(f);
        for (; getline(&line, &cap, f) > 0; n++)
            check_line(names[i], t, line);
        assert_true(n >= 200);
        free(line);
        fclose(f);
        tokenizer_destroy(t);
    }
}

static struct str decoded(const struct tokenizer *t, const char *text, struct buf *to)
{
    struct text_span span = {str_of(text), false};
    struct token_list l = {0};
    assert_int_equal(0, tokenizer_encode(t, &span, 1, false, 0, &l, NULL));
    buf_clear(to);
    tokenizer_decode(t, l.v, l.n, false, to);
    token_list_release(&l);
    return buf_str(to);
}

static void back_to_text(void **state)
{
    (void)state;
    struct tokenizer *t = open_tokenizer("wordpiece_uncased");
    struct buf b;
    buf_init(&b);
    assert_true(str_eqz(decoded(t, "The Server serves\nmodels", &b), "the server serves models"));
    tokenizer_destroy(t);
    t = open_tokenizer("unigram_bytes_words");
    assert_true(str_eqz(decoded(t, "the server  answers \xf0\x9f\x98\x80", &b), "the server answers \xf0\x9f\x98\x80"));
    tokenizer_destroy(t);
    buf_release(&b);
}

/* A control token in text that may not hold any is text; the bound on tokens holds in every model. */
static void bounds(void **state)
{
    (void)state;
    struct tokenizer *t = open_tokenizer("wordpiece_uncased");
    struct text_span span = {STR("the [SEP] the the"), false};
    struct token_list l = {0};
    struct error err = {0};
    assert_int_equal(0, tokenizer_encode(t, &span, 1, false, 0, &l, &err));
    for (size_t i = 0; i < l.n; i++)
        assert_int_not_equal(tokenizer_type(t, l.v[i]), TOKEN_CONTROL);
    l.n = 0;
    assert_int_equal(STATUS_TOO_LARGE, tokenizer_encode(t, &span, 1, true, 3, &l, &err));
    tokenizer_destroy(t);
    t = open_tokenizer("unigram");
    l.n = 0;
    assert_int_equal(STATUS_TOO_LARGE, tokenizer_encode(t, &span, 1, true, 3, &l, &err));
    tokenizer_destroy(t);
    token_list_release(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_hugging_face), cmocka_unit_test(back_to_text),
                                       cmocka_unit_test(bounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
