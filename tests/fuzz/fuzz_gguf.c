/* fuzz_gguf.c: any bytes as a GGUF file, through to a model's description. The parse must end and stay inside the bytes; what it hands
 * out must be views of them; a description is either made whole or refused with a text. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "engine/llm/file/desc_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_views(const struct gguf *g, const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < g->n_kv; i++) {
        const struct gguf_kv *kv = &g->kv[i];
        size_t at = 0, n = 0;
        struct str s;
        if (kv->type == GGUF_ARRAY && kv->a.type == GGUF_STRING) {
            for (; gguf_array_next_str(&kv->a, &at, &s); n++)
                ASSERT((const uint8_t *)s.p + s.n <= data + size);
            ASSERT(n == kv->a.n);
        } else if (kv->type == GGUF_ARRAY && kv->a.n) {
            ASSERT(gguf_array_i64(&kv->a, kv->a.n - 1) || true);
            ASSERT(gguf_array_f64(&kv->a, 0) != 0 || true);
        }
    }
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        ASSERT(t->data >= data && t->data + t->bytes <= data + size);
        ASSERT(gguf_tensor(g, t->name) == t);
    }
}

static void check_weight(const struct llm_weight *w, const uint8_t *data, size_t size)
{
    size_t bytes;
    if (!w->data)
        return;
    ASSERT(w->data >= data && w->data + w->bytes <= data + size);
    ASSERT(weight_bytes(w->type, w->rows, w->cols, &bytes) && bytes == w->bytes);
}

static void describe(const uint8_t *data, size_t size)
{
    struct os_map map = {data, size};
    struct model_desc *d = calloc(1, sizeof *d);
    struct desc_maps *maps = calloc(1, sizeof *maps);
    struct error err = {0};
    ASSERT(d && maps);
    arena_init(&d->arena, 4096, 64 << 20);
    d->maps = maps;
    int rc = desc__read_gguf(&map, d, &err);
    ASSERT(rc == err.code && (rc == 0 || err.text[0]));
    if (rc == 0) {
        check_weight(&d->token_embd, data, size);
        check_weight(&d->output, data, size);
        for (uint32_t i = 0; i < d->h.n_layer; i++) {
            check_weight(&d->layers[i].wq, data, size);
            check_weight(&d->layers[i].wv, data, size);
            check_weight(&d->layers[i].gate, data, size);
            check_weight(&d->layers[i].down, data, size);
        }
        ASSERT(d->tokenizer.n_tokens <= d->h.n_vocab);
    }
    model_desc_release(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a;
    struct gguf g;
    struct error err = {0};
    arena_init(&a, 4096, 64 << 20);
    int rc = gguf_parse(data, size, &a, &g, &err);
    ASSERT(rc <= 0 && (rc == 0) == (err.code == 0));
    if (rc == 0) {
        check_views(&g, data, size);
        gguf_release(&g);
        describe(data, size);
    }
    arena_release(&a);
    return 0;
}
