/* fuzz_hf_config.c: any bytes as a config.json; behind a zero byte, as a generation_config.json. What is accepted must be a configuration
 * whose sizes are in their ranges; what is refused must say why. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "engine/llm/file/hf_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_facts(const struct llm_hparams *h)
{
    ASSERT(h->n_embd > 0 && h->n_layer > 0 && h->n_layer <= 1024 && h->n_head > 0 && h->n_head_kv > 0);
    ASSERT(h->n_head % h->n_head_kv == 0 && h->head_dim_k > 0 && h->head_dim_v > 0 && h->n_ctx_train > 0);
    ASSERT(h->n_rot <= h->head_dim_k && h->n_rot % 2 == 0);
    ASSERT(isfinite(h->attn_scale) && isfinite(h->embd_scale) && isfinite(h->norm_eps) && h->rope_base >= 1);
    for (uint32_t i = 0; h->rope_factors && i < h->n_rot / 2; i++)
        ASSERT(h->rope_factors[i] > 0);
    for (uint32_t i = 0; h->layer_is_local && i < h->n_layer; i++)
        ASSERT(h->layer_is_local[i] == 0 || h->layer_is_local[i] == 1);
}

static void read_generation(struct str text, struct model_desc *d)
{
    struct json j = {0};
    struct error err = {0};
    if (json_parse(&j, text, NULL, &err) == 0) {
        err = (struct error){0};
        d->tokenizer.n_tokens = 100;
        int rc = hf__read_generation(j.root, d, &err);
        ASSERT(rc == err.code && (rc == 0 || err.text[0]));
        for (size_t i = 0; rc == 0 && i < d->tokenizer.n_eog; i++)
            ASSERT(d->tokenizer.eog[i] >= 0 && d->tokenizer.eog[i] < 100);
    }
    json_release(&j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *cut = size ? memchr(data, 0, size) : NULL;
    size_t n = cut ? (size_t)(cut - data) : size;
    struct json j = {0};
    struct error err = {0};
    struct hf_config c = {0};
    struct model_desc *d = calloc(1, sizeof *d);
    ASSERT(d);
    d->maps = calloc(1, sizeof(struct desc_maps));
    arena_init(&d->arena, 4096, 64 << 20);
    if (json_parse(&j, (struct str){(const char *)data, n}, NULL, &err) == 0) {
        err = (struct error){0};
        int rc = hf__read_config(j.root, &c, d, &err);
        ASSERT(rc == err.code && (rc == 0 || err.text[0]));
        if (rc == 0)
            check_facts(&d->h);
    }
    if (cut)
        read_generation((struct str){(const char *)cut + 1, size - n - 1}, d);
    json_release(&j);
    model_desc_release(d);
    return 0;
}
