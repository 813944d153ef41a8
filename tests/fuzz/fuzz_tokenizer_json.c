/* fuzz_tokenizer_json.c: any bytes as a tokenizer.json. A zero byte separates tokenizer_config.json where there is one. What is accepted must be
 * a whole specification: a text and a type for every id, special ids in range; a tokenizer made of it gives ids in range for any text. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "engine/llm/file/hf_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_spec(const struct tokenizer_spec *s)
{
    const int32_t ids[] = {s->bos, s->eos, s->eot, s->eom, s->unk, s->sep, s->pad, s->cls, s->mask};
    ASSERT(s->n_tokens > 0);
    for (size_t i = 0; i < s->n_tokens; i++)
        ASSERT(s->tokens[i].p && s->types[i] >= TOKEN_NORMAL && s->types[i] <= TOKEN_BYTE);
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        ASSERT(ids[i] >= TOKEN_NONE && ids[i] < (int32_t)s->n_tokens);
    for (size_t i = 0; i < s->n_eog; i++)
        ASSERT(s->eog[i] >= 0 && s->eog[i] < (int32_t)s->n_tokens);
    for (size_t i = 0; i < s->n_merges; i++)
        ASSERT(s->merges[i].n >= 3);
}

static void use_spec(const struct tokenizer_spec *s, struct error *err)
{
    static const char text[] =
        "Hello w\xc3\xb6rld  it's <s> [MASK]\n e\xcc\x81 \xe6\x97\xa5\xe6\x9c\xac \xff \xf0\x9f\x98\x80 12.5 ab aab";
    struct text_span spans[] = {{{text, sizeof text - 1}, false}, {{text, sizeof text - 1}, true}};
    struct tokenizer *t = NULL;
    struct token_list l = {0};
    struct buf back;
    if (tokenizer_create(s, &t, err) < 0)
        return;
    buf_init(&back);
    if (tokenizer_encode(t, spans, 2, true, 0, &l, err) == 0) {
        for (size_t i = 0; i < l.n; i++)
            ASSERT(l.v[i] >= 0 && (size_t)l.v[i] < s->n_tokens);
        tokenizer_decode(t, l.v, l.n, true, &back);
    }
    buf_release(&back);
    token_list_release(&l);
    tokenizer_destroy(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *cut = size ? memchr(data, 0, size) : NULL;
    size_t n = cut ? (size_t)(cut - data) : size;
    struct json tok = {0}, config = {0};
    struct error err = {0};
    struct model_desc *d = calloc(1, sizeof *d);
    ASSERT(d);
    d->maps = calloc(1, sizeof(struct desc_maps));
    arena_init(&d->arena, 4096, 64 << 20);
    if (json_parse(&tok, (struct str){(const char *)data, n}, NULL, &err) == 0) {
        if (cut && json_parse(&config, (struct str){(const char *)cut + 1, size - n - 1}, NULL, &err) < 0)
            config = (struct json){0};
        err = (struct error){0};
        int rc = hf__read_tokenizer(tok.root, config.root, d, &err);
        ASSERT(rc <= 0 && rc == err.code);
        if (rc == 0)
            check_spec(&d->tokenizer), use_spec(&d->tokenizer, &err);
    }
    json_release(&tok);
    json_release(&config);
    model_desc_release(d);
    return 0;
}
