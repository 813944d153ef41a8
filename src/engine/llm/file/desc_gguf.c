/* desc_gguf.c: from GGUF's key/values to hparams. Keys carry the architecture as prefix; a key of a wrong type is an error, never
 * a default. Defaults are those that the format's writers leave out. Key names: the GGUF specification and ggml's converter. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "engine/llm/file/desc_priv.h"

struct reader {
    const struct gguf *g;
    const char *arch;
    struct model_desc *d;
    struct error *err;
};

static const struct gguf_kv *find(const struct reader *r, const char *key, char *full, size_t cap)
{
    snprintf(full, cap, "%s.%s", r->arch, key);
    return gguf_kv(r->g, full);
}

/* One number per model. Some writers give a list with a number a layer: fine while they are all the same. */
static int get_u32(const struct reader *r, const char *key, bool need, uint32_t *out)
{
    char full[96];
    const struct gguf_kv *kv = find(r, key, full, sizeof full);
    uint64_t u;
    if (!kv)
        return need ? error_set(r->err, STATUS_INVALID, "GGUF: the key \"%s\" is missing", full) : 0;
    if (kv->type == GGUF_ARRAY && kv->a.type != GGUF_STRING && kv->a.n) {
        int64_t first = gguf_array_i64(&kv->a, 0);
        for (uint64_t i = 1; i < kv->a.n; i++)
            if (gguf_array_i64(&kv->a, i) != first)
                return error_set(r->err, STATUS_UNIMPLEMENTED, "GGUF: \"%s\" differs between layers, which is not supported",
                                 full);
        if (first >= 0 && first <= UINT32_MAX)
            return *out = (uint32_t)first, 0;
    }
    if (!gguf_get_u64(r->g, full, &u) || u > UINT32_MAX)
        return error_set(r->err, STATUS_INVALID, "GGUF: \"%s\" must be an integer from 0 to 2^32-1", full);
    *out = (uint32_t)u;
    return 0;
}

static int get_f32(const struct reader *r, const char *key, bool need, float *out)
{
    char full[96];
    double f;
    if (!find(r, key, full, sizeof full))
        return need ? error_set(r->err, STATUS_INVALID, "GGUF: the key \"%s\" is missing", full) : 0;
    if (!gguf_get_f64(r->g, full, &f) || !isfinite(f))
        return error_set(r->err, STATUS_INVALID, "GGUF: \"%s\" must be a finite number", full);
    *out = (float)f;
    return 0;
}

static int read_sizes(const struct reader *r)
{
    struct llm_hparams *h = &r->d->h;
    uint32_t experts = 0;
    int rc = get_u32(r, "context_length", true, &h->n_ctx_train);
    if (rc == 0)
        rc = get_u32(r, "embedding_length", true, &h->n_embd);
    if (rc == 0)
        rc = get_u32(r, "block_count", true, &h->n_layer);
    if (rc == 0)
        rc = get_u32(r, "feed_forward_length", true, &h->n_ff);
    if (rc == 0)
        rc = get_u32(r, "attention.head_count", true, &h->n_head);
    h->n_head_kv = h->n_head;
    if (rc == 0)
        rc = get_u32(r, "attention.head_count_kv", false, &h->n_head_kv);
    if (rc == 0)
        rc = get_u32(r, "expert_count", false, &experts);
    if (rc < 0)
        return rc;
    if (experts)
        return error_set(r->err, STATUS_UNIMPLEMENTED, "GGUF: a mixture of %u experts is not supported", experts);
    if (!h->n_head || !h->n_head_kv)
        return error_set(r->err, STATUS_INVALID, "GGUF: \"%s.attention.head_count\" and head_count_kv must not be 0", r->arch);
    h->head_dim_k = h->head_dim_v = h->n_embd / h->n_head;
    rc = get_u32(r, "attention.key_length", false, &h->head_dim_k);
    if (rc == 0)
        rc = get_u32(r, "attention.value_length", false, &h->head_dim_v);
    return rc;
}

static int read_norm(const struct reader *r)
{
    struct llm_hparams *h = &r->d->h;
    return h->norm == LLM_NORM_RMS ? get_f32(r, "attention.layer_norm_rms_epsilon", true, &h->norm_eps)
                                   : get_f32(r, "attention.layer_norm_epsilon", true, &h->norm_eps);
}

static const char *const scaling_names[] = {[LLM_SCALING_NONE] = "none",
                                            [LLM_SCALING_LINEAR] = "linear",
                                            [LLM_SCALING_YARN] = "yarn",
                                            [LLM_SCALING_LONGROPE] = "longrope"};

static int read_scaling_kind(const struct reader *r)
{
    char full[96];
    const struct gguf_kv *kv = find(r, "rope.scaling.type", full, sizeof full);
    struct str name;
    if (!kv)
        return 0;
    if (!gguf_get_str(r->g, full, &name))
        return error_set(r->err, STATUS_INVALID, "GGUF: \"%s\" must be a string", full);
    for (size_t i = 0; i < COUNT_OF(scaling_names); i++)
        if (scaling_names[i] && str_eqz(name, scaling_names[i]))
            return r->d->h.scaling = (enum llm_rope_scaling)i, 0;
    return error_set(r->err, STATUS_UNIMPLEMENTED, "GGUF: \"%s\" is \"%.*s\"; supported: none, linear, yarn, longrope", full,
                     STR_ARG(name));
}

/* The factors of Llama 3 and of longrope are tensors; their presence decides. */
static int read_factors(const struct reader *r, struct desc_tensors *t)
{
    struct llm_hparams *h = &r->d->h;
    const struct desc_tensor *llama3 = desc__tensor(t, "rope_freqs.weight");
    const struct desc_tensor *shorts = desc__tensor(t, "rope_factors_short.weight");
    const struct desc_tensor *longs = desc__tensor(t, "rope_factors_long.weight");
    int rc = 0;
    if (!llama3 && !shorts != !longs)
        return error_set(r->err, STATUS_INVALID, "GGUF: rope_factors_short and rope_factors_long must come together");
    if (llama3 && (shorts || h->scaling != LLM_SCALING_NONE))
        return error_set(r->err, STATUS_INVALID, "GGUF: rope_freqs beside another kind of rope scaling");
    if (llama3) {
        h->scaling = LLM_SCALING_LLAMA3;
        return desc__rope_factors(r->d, llama3, &h->rope_factors, r->err);
    }
    if (h->scaling == LLM_SCALING_LONGROPE && !shorts)
        return error_set(r->err, STATUS_INVALID, "GGUF: longrope needs the tensors rope_factors_short and rope_factors_long");
    if (!shorts)
        return 0;
    h->scaling = LLM_SCALING_LONGROPE;
    rc = desc__rope_factors(r->d, shorts, &h->rope_factors, r->err);
    return rc < 0 ? rc : desc__rope_factors(r->d, longs, &h->rope_factors_long, r->err);
}

static int read_rope(const struct reader *r, struct desc_tensors *t)
{
    struct llm_hparams *h = &r->d->h;
    bool given = false;
    if (h->rope == LLM_ROPE_NONE)
        return 0;
    h->n_rot = h->head_dim_k;
    h->scaling_ctx_orig = h->n_ctx_train;
    int rc = get_u32(r, "rope.dimension_count", false, &h->n_rot);
    if (rc == 0)
        rc = get_f32(r, "rope.freq_base", false, &h->rope_base);
    if (rc == 0)
        rc = get_f32(r, "rope.freq_base_swa", false, &h->rope_base_local);
    if (rc == 0)
        rc = read_scaling_kind(r);
    if (rc == 0)
        rc = get_f32(r, "rope.scale_linear", false, &h->scaling_factor); /* before 2023-10: no type */
    if (rc == 0 && h->scaling_factor != 1 && h->scaling == LLM_SCALING_NONE)
        h->scaling = LLM_SCALING_LINEAR;
    given = h->scaling != LLM_SCALING_NONE;
    if (rc == 0 && given)
        rc = get_f32(r, "rope.scaling.factor", false, &h->scaling_factor);
    if (rc == 0)
        rc = get_u32(r, "rope.scaling.original_context_length", false, &h->scaling_ctx_orig);
    if (rc == 0)
        rc = get_f32(r, "rope.scaling.attn_factor", false, &h->scaling_attn_factor);
    if (rc == 0)
        rc = get_f32(r, "rope.scaling.yarn_beta_fast", false, &h->yarn_beta_fast);
    if (rc == 0)
        rc = get_f32(r, "rope.scaling.yarn_beta_slow", false, &h->yarn_beta_slow);
    if (rc == 0 && h->scaling_factor == 0) /* some writers say 0 for "none" */
        h->scaling_factor = 1;
    if (rc == 0 && h->scaling == LLM_SCALING_YARN && h->scaling_factor > 1) /* Peng et al. 2023, equation 22 */
        h->scaling_attn_factor *= 1.0f + 0.1f * logf(h->scaling_factor);
    return rc < 0 ? rc : read_factors(r, t);
}

/* The window and which layers use it. The period is a fact of the architecture that older files don't say: gemma 2 alternates,
 * gemma 3 has one global layer in six, phi3 (4k) uses it everywhere. */
static int read_window(const struct reader *r, enum desc_arch arch, uint32_t *period)
{
    struct llm_hparams *h = &r->d->h;
    *period = arch == DESC_GEMMA2 ? 2 : arch == DESC_GEMMA3 ? 6 : 1;
    if (arch != DESC_GEMMA2 && arch != DESC_GEMMA3 && arch != DESC_PHI3)
        return 0;
    int rc = get_u32(r, "attention.sliding_window", arch != DESC_PHI3, &h->window);
    char full[96];
    const struct gguf_kv *kv = find(r, "attention.sliding_window_pattern", full, sizeof full);
    if (rc == 0 && kv && kv->type == GGUF_ARRAY && kv->a.type == GGUF_BOOL && kv->a.n == h->n_layer) {
        bool *local = arena_array(&r->d->arena, h->n_layer, sizeof *local);
        if (!local)
            return error_set(r->err, STATUS_NOMEM, "out of memory while describing a model");
        for (uint32_t i = 0; i < h->n_layer; i++)
            local[i] = gguf_array_i64(&kv->a, i) != 0;
        h->layer_is_local = local;
    } else if (rc == 0 && kv) {
        rc = get_u32(r, "attention.sliding_window_pattern", true, period);
    }
    return rc;
}

static int read_gemma(const struct reader *r, enum desc_arch arch)
{
    struct llm_hparams *h = &r->d->h;
    if (arch != DESC_GEMMA2 && arch != DESC_GEMMA3)
        return 0;
    if (arch == DESC_GEMMA2) { /* what its files leave out; gemma 3 has neither cap unless a file says so */
        h->attn_softcap = 50;
        h->logit_softcap = 30;
    } else if (h->rope_base_local == 0) {
        h->rope_base_local = 10000;
    }
    int rc = get_f32(r, "attn_logit_softcapping", false, &h->attn_softcap);
    if (rc == 0)
        rc = get_f32(r, "final_logit_softcapping", false, &h->logit_softcap);
    /* The 27B models scale by the embedding's share of a head, not by the head's size; files don't say it, the depth does. */
    if (h->n_layer == (arch == DESC_GEMMA2 ? 46u : 62u))
        h->attn_scale = 1.0f / sqrtf((float)h->n_embd / (float)h->n_head);
    return rc;
}

static int read_encoder(const struct reader *r)
{
    struct llm_hparams *h = &r->d->h;
    uint32_t pooling = h->pooling, types = 2;
    uint64_t u;
    if (gguf_get_u64(r->g, "tokenizer.ggml.token_type_count", &u) && u <= UINT32_MAX)
        types = (uint32_t)u;
    if (!h->causal)
        h->n_token_types = types;
    int rc = get_u32(r, "pooling_type", false, &pooling);
    if (rc == 0 && pooling > LLM_POOL_RANK)
        return error_set(r->err, STATUS_UNIMPLEMENTED,
                         "GGUF: pooling type %u is not supported; supported: 0 none, 1 mean, 2 cls, 3 last, 4 rank", pooling);
    h->pooling = (enum llm_pooling)pooling;
    if (rc == 0 && h->causal && h->pooling != LLM_POOL_NONE) /* an embedding model made of a decoder */
        h->embd_normalize = true;
    return rc;
}

static void read_sampling(const struct gguf *g, struct model_desc *d)
{
    const struct {
        const char *key;
        float *out;
    } rows[] = {{"general.sampling.temp", &d->temperature},
                {"general.sampling.top_p", &d->top_p},
                {"general.sampling.min_p", &d->min_p},
                {"general.sampling.penalty_repeat", &d->repetition_penalty}};
    double f;
    int64_t k;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (gguf_get_f64(g, rows[i].key, &f) && isfinite(f))
            *rows[i].out = (float)f;
    if (gguf_get_i64(g, "general.sampling.top_k", &k) && k > 0 && k <= INT32_MAX)
        d->top_k = (int32_t)k;
}

int desc__list_gguf(const struct gguf *g, struct arena *a, struct desc_tensors *t, struct error *err)
{
    t->naming = DESC_NAMES_GGUF;
    t->n = g->n_tensors;
    t->v = arena_array(a, t->n, sizeof *t->v);
    if (!t->v)
        return error_set(err, STATUS_NOMEM, "out of memory while listing a model's tensors");
    for (size_t i = 0; i < t->n; i++) {
        const struct gguf_tensor *x = &g->tensors[i];
        t->v[i] =
            (struct desc_tensor){.name = x->name, .type = x->type, .n_dims = x->n_dims, .data = x->data, .bytes = x->bytes};
        memcpy(t->v[i].dims, x->dims, sizeof x->dims);
    }
    return desc__tensors_index(t, err);
}

static int read_all(const struct reader *r, enum desc_arch arch, struct desc_tensors *t)
{
    uint32_t period = 0;
    int rc = read_sizes(r);
    if (rc == 0)
        rc = read_norm(r);
    if (rc == 0)
        rc = read_rope(r, t);
    if (rc == 0)
        rc = read_window(r, arch, &period);
    if (rc == 0)
        rc = read_gemma(r, arch);
    if (rc == 0)
        rc = read_encoder(r);
    if (rc == 0)
        rc = desc__hparams_finish(arch, r->d, period, r->err);
    if (rc == 0)
        rc = desc__gguf_tokenizer(r->g, r->d, r->err);
    return rc < 0 ? rc : desc__bind(arch, r->d, t, r->err);
}

int desc__read_gguf(const struct os_map *map, struct model_desc *d, struct error *err)
{
    struct gguf g;
    struct str name;
    enum desc_arch arch;
    struct desc_tensors t = {0};
    int rc = gguf_parse(map->p, map->n, &d->arena, &g, err);
    if (rc < 0)
        return rc;
    if (!gguf_get_str(&g, "general.architecture", &name))
        rc = error_set(err, STATUS_INVALID, "GGUF: the key \"general.architecture\" is missing or not a string");
    if (rc == 0)
        rc = desc__arch_of(name, &arch, err);
    if (rc == 0)
        rc = desc__list_gguf(&g, &d->arena, &t, err);
    if (rc == 0) {
        struct reader r = {&g, LLM_ARCHITECTURES[arch], d, err};
        desc__arch_defaults(arch, DESC_NAMES_GGUF, &d->h);
        rc = read_all(&r, arch, &t);
    }
    if (rc == 0) {
        gguf_get_str(&g, "general.name", &d->name);
        read_sampling(&g, d);
    }
    desc__tensors_release(&t);
    gguf_release(&g);
    return rc;
}
