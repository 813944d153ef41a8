/* test_tokens.c: texts to ids with the vocabulary of a folder and of the GGUF beside it, against what Python's `tokenizers` made of the same
 * tokenizer.json (vectors.json, written by make_llm.py). Special tokens written in a text are left out: ours never become tokens. */
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
#include "engine/llm/file/model_desc.h"
#include "os/dir.h"
#include "os/file.h"
#include "text/tokenizer.h"
#include "wire/json.h"

static struct error err;

static struct tokenizer *tokenizer_in(const char *folder, const char *file)
{
    struct model_desc *d = NULL;
    struct tokenizer *t = NULL;
    int fd = -1;
    assert_int_equal(os_dir_open(folder, &fd, &err), 0);
    if (model_desc_open(fd, file, &d, &err) < 0 || tokenizer_create(&d->tokenizer, &t, &err) < 0)
        fail_msg("%s/%s: %s", folder, file, err.text);
    os_close(fd);
    model_desc_release(d); /* the tokenizer keeps its own copy */
    return t;
}

static void check(const struct tokenizer *t, const char *what, struct str text, yyjson_val *ids)
{
    struct text_span span = {text, false};
    struct token_list out = {0};
    char want[1024], have[1024];
    size_t n = 0, m = 0;
    assert_int_equal(tokenizer_encode(t, &span, 1, true, 0, &out, &err), 0);
    for (size_t i = 0; i < yyjson_arr_size(ids) && n < sizeof want - 16; i++)
        n += (size_t)snprintf(want + n, sizeof want - n, " %d", yyjson_get_int(yyjson_arr_get(ids, i)));
    for (size_t i = 0; i < out.n && m < sizeof have - 16; i++)
        m += (size_t)snprintf(have + m, sizeof have - m, " %d", out.v[i]);
    want[n] = have[m] = 0;
    if (strcmp(want, have) != 0)
        fail_msg("%s: \"%.*s\":%s; tokenizers has%s", what, STR_ARG(text), have, want);
    token_list_release(&out);
}

static void same_ids(const char *arch)
{
    char path[600], folder[512];
    struct buf text;
    struct json j;
    snprintf(folder, sizeof folder, "%s/llm/%s", TEST_DATA, arch);
    snprintf(path, sizeof path, "%s/vectors.json", folder);
    buf_init(&text);
    assert_int_equal(os_file_read(path, 1 << 20, &text, &err), 0);
    assert_int_equal(json_parse(&j, buf_str(&text), NULL, &err), 0);
    struct tokenizer *f = tokenizer_in(folder, ".");
    snprintf(path, sizeof path, "%s.gguf", arch);
    struct tokenizer *g = tokenizer_in(TEST_DATA "/llm", path);
    size_t i, n;
    yyjson_val *v;
    yyjson_arr_foreach(j.root, i, n, v)
    {
        struct str s = json_str(yyjson_obj_get(v, "text"));
        if (memmem(s.p, s.n, "<|", 2))
            continue;
        check(f, arch, s, yyjson_obj_get(v, "ids"));
        check(g, path, s, yyjson_obj_get(v, "ids"));
    }
    assert_true(n >= 12);
    tokenizer_destroy(f);
    tokenizer_destroy(g);
    json_release(&j);
    buf_release(&text);
}

static void byte_level(void **state)
{
    (void)state;
    same_ids("llama");
    same_ids("qwen2");
    same_ids("qwen3");
}

static void sentencepiece(void **state)
{
    (void)state;
    same_ids("gemma2");
    same_ids("gemma3");
    same_ids("phi3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(byte_level), cmocka_unit_test(sentencepiece)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
