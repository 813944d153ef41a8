/* hf_config.c: from config.json and generation_config.json to hparams. Names, defaults and formulas are those of transformers'
 * configuration classes and rope utilities. A value that changes the computation and is not supported is refused by name. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "engine/llm/file/hf_priv.h"

struct reader {
    yyjson_val *root, *rope; /* rope: rope_scaling or rope_parameters, NULL when there is none */
    enum desc_arch arch;
    struct model_desc *d;
    struct error *err;
};

static int get_u32(const struct reader *r, const char *key, enum json_need need, uint32_t *out)
{
    uint64_t v;
    bool found = false;
    int rc = json_get_u64(r->root, key, need, 0, UINT32_MAX, &v, &found, r->err);
    if (rc == 0 && found)
        *out = (uint32_t)v;
    return rc;
}

static int get_f32_of(yyjson_val *obj, const char *key, enum json_need need, float *out, bool *found, struct error *err)
{
    double v;
    bool here = false;
    int rc = json_get_f64(obj, key, need, -1e30, 1e30, &v, &here, err);
    if (rc == 0 && here)
        *out = (float)v;
    if (found)
        *found = here;
    return rc;
}

static int get_f32(const struct reader *r, const char *key, enum json_need need, float *out)
{
    return get_f32_of(r->root, key, need, out, NULL, r->err);
}

static int model_type(yyjson_val *root, enum desc_arch *arch, struct error *err)
{
    static const struct {
        const char *type;
        enum desc_arch arch;
    } types[] = {{"llama", DESC_LLAMA},   {"mistral", DESC_LLAMA},      {"qwen2", DESC_QWEN2}, {"qwen3", DESC_QWEN3},
                 {"gemma2", DESC_GEMMA2}, {"gemma3_text", DESC_GEMMA3}, {"phi3", DESC_PHI3},   {"bert", DESC_BERT}};
    struct str type;
    int rc = json_get_str(root, "model_type", JSON_REQUIRED, &type, NULL, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (str_eqz(type, types[i].type))
            return *arch = types[i].arch, 0;
    return error_set(
        err, STATUS_UNIMPLEMENTED,
        "the architecture \"%.*s\" is not supported; supported: llama, mistral, qwen2, qwen3, gemma2, gemma3_text, phi3, bert",
        STR_ARG(type));
}

static int read_sizes(const struct reader *r)
{
    struct llm_hparams *h = &r->d->h;
    float partial = 1;
    int rc = get_u32(r, "hidden_size", JSON_REQUIRED, &h->n_embd);
    if (rc == 0)
        rc = get_u32(r, "num_hidden_layers", JSON_REQUIRED, &h->n_layer);
    if (rc == 0)
        rc = get_u32(r, "intermediate_size", JSON_REQUIRED, &h->n_ff);
    if (rc == 0)
        rc = get_u32(r, "num_attention_heads", JSON_REQUIRED, &h->n_head);
    h->n_head_kv = h->n_head;
    if (rc == 0 && r->arch != DESC_BERT)
        rc = get_u32(r, "num_key_value_heads", JSON_OPTIONAL, &h->n_head_kv);
    if (rc == 0)
        rc = get_u32(r, "max_position_embeddings", JSON_REQUIRED, &h->n_ctx_train);
    if (rc < 0)
        return rc;
    if (!h->n_head)
        return error_set(r->err, STATUS_INVALID, "\"num_attention_heads\" must not be 0");
    h->head_dim_k = r->arch == DESC_GEMMA2 || r->arch == DESC_GEMMA3 ? 256
                    : r->arch == DESC_QWEN3                          ? 128
                                                                     : h->n_embd / h->n_head;
    rc = get_u32(r, "head_dim", JSON_OPTIONAL, &h->head_dim_k);
    h->head_dim_v = h->head_dim_k;
    h->scaling_ctx_orig = h->rope == LLM_ROPE_NONE ? 0 : h->n_ctx_train;
    if (rc == 0)
        rc = get_f32(r, "partial_rotary_factor", JSON_OPTIONAL, &partial);
    if (rc == 0 && !(partial > 0 && partial <= 1))
        return error_set(r->err, STATUS_INVALID, "\"partial_rotary_factor\" is %g; accepted: above 0, up to 1",
                         (double)partial);
    h->n_rot = h->rope == LLM_ROPE_NONE ? 0 : (uint32_t)((float)h->head_dim_k * partial);
    return rc;
}

static int read_activation(const struct reader *r)
{
    static const struct {
        const char *name;
        enum llm_activation act;
    } acts[] = {{"silu", LLM_ACT_SILU},          {"swish", LLM_ACT_SILU},          {"gelu_pytorch_tanh", LLM_ACT_GELU_TANH},
                {"gelu_new", LLM_ACT_GELU_TANH}, {"gelu_fast", LLM_ACT_GELU_TANH}, {"gelu", LLM_ACT_GELU_ERF}};
    const char *key = r->arch == DESC_GEMMA2 || r->arch == DESC_GEMMA3 ? "hidden_activation" : "hidden_act";
    struct str name;
    bool found = false;
    int rc = json_get_str(r->root, key, JSON_OPTIONAL, &name, &found, r->err);
    if (rc < 0 || !found)
        return rc;
    for (size_t i = 0; i < COUNT_OF(acts); i++)
        if (str_eqz(name, acts[i].name))
            return r->d->h.activation = acts[i].act, 0;
    return error_set(r->err, STATUS_UNIMPLEMENTED,
                     "\"%s\" is \"%.*s\"; supported: silu, gelu, gelu_pytorch_tanh, gelu_new, gelu_fast", key, STR_ARG(name));
}

/* ---- rope ---- */

static int rope_f32(const struct reader *r, const char *key, enum json_need need, float *out, bool *found)
{
    int rc = get_f32_of(r->rope, key, need, out, found, r->err);
    return rc < 0 ? error_prefix(r->err, "rope_scaling") : 0;
}

/* Llama 3: long wavelengths are slowed by the factor, short ones stay, and those between are blended. As divisors of a frequency. */
static int scale_llama3(const struct reader *r)
{
    struct llm_hparams *h = &r->d->h;
    float low = 1, high = 4, orig = 8192;
    int rc = rope_f32(r, "low_freq_factor", JSON_REQUIRED, &low, NULL);
    if (rc == 0)
        rc = rope_f32(r, "high_freq_factor", JSON_REQUIRED, &high, NULL);
    if (rc == 0)
        rc = rope_f32(r, "original_max_position_embeddings", JSON_REQUIRED, &orig, NULL);
    if (rc < 0)
        return rc;
    if (!(low > 0 && high > low && orig >= 1))
        return error_set(r->err, STATUS_INVALID, "rope_scaling: low_freq_factor must be above 0 and below high_freq_factor");
    float *f = arena_array(&r->d->arena, h->n_rot / 2 + 1, sizeof *f);
    if (!f)
        return error_set(r->err, STATUS_NOMEM, "out of memory while describing a model");
    for (uint32_t i = 0; i < h->n_rot / 2; i++) {
        double wave = 2 * M_PI * pow((double)h->rope_base, 2.0 * i / h->n_rot), s = (double)h->scaling_factor;
        double blend = ((double)orig / wave - (double)low) / (double)(high - low);
        f[i] = wave < (double)(orig / high)  ? 1.0f
               : wave > (double)(orig / low) ? (float)s
                                             : (float)(1 / ((1 - blend) / s + blend));
    }
    h->rope_factors = f;
    h->scaling_ctx_orig = (uint32_t)orig;
    return 0;
}

static float yarn_mscale(float factor, float mscale)
{
    return factor <= 1 ? 1 : 0.1f * mscale * logf(factor) + 1;
}

static int scale_yarn(const struct reader *r)
{
    struct llm_hparams *h = &r->d->h;
    float orig = (float)h->n_ctx_train, mscale = 0, all = 0;
    bool given = false;
    int rc = rope_f32(r, "original_max_position_embeddings", JSON_OPTIONAL, &orig, NULL);
    if (rc == 0)
        rc = rope_f32(r, "beta_fast", JSON_OPTIONAL, &h->yarn_beta_fast, NULL);
    if (rc == 0)
        rc = rope_f32(r, "beta_slow", JSON_OPTIONAL, &h->yarn_beta_slow, NULL);
    if (rc == 0)
        rc = rope_f32(r, "mscale", JSON_OPTIONAL, &mscale, NULL);
    if (rc == 0)
        rc = rope_f32(r, "mscale_all_dim", JSON_OPTIONAL, &all, NULL);
    if (rc == 0)
        rc = rope_f32(r, "attention_factor", JSON_OPTIONAL, &h->scaling_attn_factor, &given);
    if (rc < 0)
        return rc;
    if (!(orig >= 1 && orig < 1u << 28))
        return error_set(r->err, STATUS_INVALID, "rope_scaling: original_max_position_embeddings is out of range");
    h->scaling_ctx_orig = (uint32_t)orig;
    if (!given)
        h->scaling_attn_factor = mscale > 0 && all > 0
                                     ? yarn_mscale(h->scaling_factor, mscale) / yarn_mscale(h->scaling_factor, all)
                                     : yarn_mscale(h->scaling_factor, 1);
    return 0;
}

static int factor_list(const struct reader *r, const char *key, const float **out)
{
    yyjson_val *list, *v;
    size_t i, n;
    uint32_t want = r->d->h.n_rot / 2;
    int rc = json_get_arr(r->rope, key, JSON_REQUIRED, &list, NULL, r->err);
    if (rc < 0)
        return error_prefix(r->err, "rope_scaling");
    float *f = arena_array(&r->d->arena, want + 1, sizeof *f);
    if (!f)
        return error_set(r->err, STATUS_NOMEM, "out of memory while describing a model");
    if (yyjson_arr_size(list) != want)
        return error_set(r->err, STATUS_INVALID, "rope_scaling: \"%s\" has %zu factors; expected %u", key,
                         yyjson_arr_size(list), want);
    yyjson_arr_foreach(list, i, n, v)
    {
        f[i] = (float)yyjson_get_num(v);
        if (!yyjson_is_num(v) || !(f[i] > 0 && f[i] < 1e12f))
            return error_set(r->err, STATUS_INVALID, "rope_scaling: \"%s\" has something else than a number above 0 at %zu",
                             key, i);
    }
    *out = f;
    return 0;
}

static int scale_longrope(const struct reader *r)
{
    struct llm_hparams *h = &r->d->h;
    uint32_t orig = h->n_ctx_train;
    float given_orig = 0;
    bool given = false;
    int rc = get_u32(r, "original_max_position_embeddings", JSON_OPTIONAL, &orig);
    if (rc == 0)
        rc = rope_f32(r, "original_max_position_embeddings", JSON_OPTIONAL, &given_orig, NULL);
    if (rc == 0)
        rc = factor_list(r, "short_factor", &h->rope_factors);
    if (rc == 0)
        rc = factor_list(r, "long_factor", &h->rope_factors_long);
    if (rc == 0)
        rc = rope_f32(r, "attention_factor", JSON_OPTIONAL, &h->scaling_attn_factor, &given);
    if (rc < 0)
        return rc;
    if (given_orig >= 1 && given_orig < 1u << 28)
        orig = (uint32_t)given_orig;
    if (orig < 2)
        return error_set(r->err, STATUS_INVALID, "\"original_max_position_embeddings\" is %u; accepted: 2 or more", orig);
    h->scaling_ctx_orig = orig;
    h->scaling_factor = (float)h->n_ctx_train / (float)orig;
    if (!given && h->scaling_factor > 1)
        h->scaling_attn_factor = sqrtf(1 + logf(h->scaling_factor) / logf((float)orig));
    return 0;
}

static int read_scaling(const struct reader *r)
{
    struct llm_hparams *h = &r->d->h;
    struct str type = STR("default");
    bool found = false;
    int rc = json_get_str(r->rope, "rope_type", JSON_OPTIONAL, &type, &found, r->err);
    if (rc == 0 && !found)
        rc = json_get_str(r->rope, "type", JSON_OPTIONAL, &type, &found, r->err);
    if (rc < 0 || str_eqz(type, "default"))
        return rc;
    bool longrope = str_eqz(type, "longrope") || str_eqz(type, "su");
    rc = rope_f32(r, "factor", longrope ? JSON_OPTIONAL : JSON_REQUIRED, &h->scaling_factor, NULL);
    if (rc < 0)
        return rc;
    if (str_eqz(type, "linear"))
        return h->scaling = LLM_SCALING_LINEAR, 0;
    if (str_eqz(type, "llama3"))
        return h->scaling = LLM_SCALING_LLAMA3, scale_llama3(r);
    if (str_eqz(type, "yarn"))
        return h->scaling = LLM_SCALING_YARN, scale_yarn(r);
    if (longrope)
        return h->scaling = LLM_SCALING_LONGROPE, scale_longrope(r);
    return error_set(r->err, STATUS_UNIMPLEMENTED,
                     "rope_scaling: the type \"%.*s\" is not supported; supported: default, linear, llama3, yarn, longrope",
                     STR_ARG(type));
}

/* Three spellings: rope_theta + rope_scaling; rope_parameters (2025) with both; and rope_parameters per kind of layer (gemma 3). */
static int read_rope(struct reader *r)
{
    struct llm_hparams *h = &r->d->h;
    yyjson_val *rope = NULL, *full = NULL, *local = NULL;
    if (h->rope == LLM_ROPE_NONE)
        return 0;
    if (r->arch == DESC_GEMMA3) {
        h->rope_base = 1e6f;
        h->rope_base_local = 10000;
    }
    int rc = get_f32(r, "rope_theta", JSON_OPTIONAL, &h->rope_base);
    if (rc == 0 && r->arch == DESC_GEMMA3)
        rc = get_f32(r, "rope_local_base_freq", JSON_OPTIONAL, &h->rope_base_local);
    if (rc == 0)
        rc = json_get_obj(r->root, "rope_parameters", JSON_OPTIONAL, &rope, NULL, r->err);
    if (rc == 0 && rope)
        rc = json_get_obj(rope, "full_attention", JSON_OPTIONAL, &full, NULL, r->err);
    if (rc == 0 && rope)
        rc = json_get_obj(rope, "sliding_attention", JSON_OPTIONAL, &local, NULL, r->err);
    if (rc == 0 && local)
        rc = get_f32_of(local, "rope_theta", JSON_OPTIONAL, &h->rope_base_local, NULL, r->err);
    if (rc == 0 && !rope)
        rc = json_get_obj(r->root, "rope_scaling", JSON_OPTIONAL, &rope, NULL, r->err);
    r->rope = full ? full : rope;
    if (rc < 0 || !r->rope)
        return rc;
    rc = rope_f32(r, "rope_theta", JSON_OPTIONAL, &h->rope_base, NULL);
    return rc < 0 ? rc : read_scaling(r);
}

/* ---- windows ---- */

static int mark_layers(const struct reader *r, yyjson_val *types, uint32_t from)
{
    struct llm_hparams *h = &r->d->h;
    if (h->n_layer == 0 || h->n_layer > 1024 || (types && yyjson_arr_size(types) != h->n_layer))
        return error_set(r->err, STATUS_INVALID,
                         "\"layer_types\" must be a list with one entry a layer (\"num_hidden_layers\" is %u)", h->n_layer);
    bool *local = arena_array(&r->d->arena, h->n_layer, sizeof *local);
    if (!local)
        return error_set(r->err, STATUS_NOMEM, "out of memory while describing a model");
    for (uint32_t i = 0; i < h->n_layer; i++) {
        yyjson_val *t = types ? yyjson_arr_get(types, i) : NULL;
        if (t && !yyjson_equals_str(t, "sliding_attention") && !yyjson_equals_str(t, "full_attention"))
            return error_set(r->err, STATUS_UNIMPLEMENTED,
                             "\"layer_types\" may only hold sliding_attention and full_attention");
        local[i] = t ? yyjson_equals_str(t, "sliding_attention") : i >= from;
    }
    h->layer_is_local = local;
    return 0;
}

static int read_window(const struct reader *r, uint32_t *period)
{
    struct llm_hparams *h = &r->d->h;
    yyjson_val *types = NULL;
    bool use = false, qwen = r->arch == DESC_QWEN2 || r->arch == DESC_QWEN3;
    uint32_t from = 0;
    *period = r->arch == DESC_GEMMA2 ? 2 : r->arch == DESC_GEMMA3 ? 6 : 1;
    if (r->arch == DESC_BERT)
        return 0;
    /* transformers' default of a mistral, gemma 2 or 3 that does not say it; null says "none" */
    if (!yyjson_obj_get(r->root, "sliding_window") &&
        (*period > 1 || yyjson_equals_str(yyjson_obj_get(r->root, "model_type"), "mistral")))
        h->window = 4096;
    int rc = get_u32(r, "sliding_window", JSON_OPTIONAL, &h->window);
    if (rc == 0 && qwen)
        rc = json_get_bool(r->root, "use_sliding_window", JSON_OPTIONAL, &use, NULL, r->err);
    if (rc == 0 && qwen)
        rc = get_u32(r, "max_window_layers", JSON_OPTIONAL, &from);
    if (rc == 0 && r->arch == DESC_GEMMA3)
        rc = get_u32(r, "sliding_window_pattern", JSON_OPTIONAL, period);
    if (rc == 0)
        rc = json_get_arr(r->root, "layer_types", JSON_OPTIONAL, &types, NULL, r->err);
    if (rc == 0 && qwen && !use)
        h->window = 0;
    if (rc < 0 || !h->window)
        return rc;
    return types || qwen ? mark_layers(r, types, from) : 0;
}

/* ---- the rest ---- */

static int read_gemma(const struct reader *r)
{
    struct llm_hparams *h = &r->d->h;
    float scalar = 256;
    if (r->arch != DESC_GEMMA2 && r->arch != DESC_GEMMA3)
        return 0;
    int rc = get_f32(r, "attn_logit_softcapping", JSON_OPTIONAL, &h->attn_softcap);
    if (rc == 0)
        rc = get_f32(r, "final_logit_softcapping", JSON_OPTIONAL, &h->logit_softcap);
    if (rc == 0)
        rc = get_f32(r, "query_pre_attn_scalar", JSON_OPTIONAL, &scalar);
    if (rc == 0 && !(scalar > 0))
        return error_set(r->err, STATUS_INVALID, "\"query_pre_attn_scalar\" must be above 0");
    h->attn_scale = 1 / sqrtf(scalar);
    return rc;
}

static int read_bert(const struct reader *r)
{
    struct str kind = STR("absolute");
    if (r->arch != DESC_BERT)
        return 0;
    r->d->h.n_token_types = 2;
    int rc = get_u32(r, "type_vocab_size", JSON_OPTIONAL, &r->d->h.n_token_types);
    if (rc == 0)
        rc = json_get_str(r->root, "position_embedding_type", JSON_OPTIONAL, &kind, NULL, r->err);
    if (rc == 0 && !str_eqz(kind, "absolute"))
        return error_set(r->err, STATUS_UNIMPLEMENTED, "\"position_embedding_type\" is \"%.*s\"; supported: absolute",
                         STR_ARG(kind));
    return rc;
}

/* Two spellings: "is_matryoshka": true, "matryoshka_dimensions": [128, 256]. */
static int read_matryoshka(const struct reader *r)
{
    yyjson_val *dims = NULL;
    int rc = json_get_bool(r->root, "is_matryoshka", JSON_OPTIONAL, &r->d->h.embd_cut, NULL, r->err);
    if (rc == 0)
        rc = json_get_arr(r->root, "matryoshka_dimensions", JSON_OPTIONAL, &dims, NULL, r->err);
    r->d->h.embd_cut |= yyjson_arr_size(dims) > 0;
    return rc;
}

static int refuse_quantised(yyjson_val *root, struct error *err)
{
    yyjson_val *q = NULL;
    int rc = json_get_any(root, "quantization_config", JSON_OPTIONAL, &q, NULL, err);
    if (rc == 0 && q && !yyjson_is_null(q))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "\"quantization_config\" is set: folders are read in F32, F16 and BF16 only");
    return rc;
}

int hf__read_config(yyjson_val *root, struct hf_config *out, struct model_desc *d, struct error *err)
{
    struct reader r = {.root = root, .d = d, .err = err};
    uint32_t period = 1;
    int rc = refuse_quantised(root, err);
    if (rc == 0)
        rc = model_type(root, &r.arch, err);
    if (rc < 0)
        return rc;
    out->arch = r.arch;
    desc__arch_defaults(r.arch, DESC_NAMES_HF, &d->h);
    /* transformers' defaults: gemma 2 and 3 share the embedding with the output, the others don't */
    out->tied = r.arch == DESC_GEMMA2 || r.arch == DESC_GEMMA3;
    rc = json_get_bool(root, "tie_word_embeddings", JSON_OPTIONAL, &out->tied, NULL, err);
    if (rc == 0)
        rc = read_sizes(&r);
    if (rc == 0)
        rc = get_f32(&r, d->h.norm == LLM_NORM_RMS ? "rms_norm_eps" : "layer_norm_eps", JSON_REQUIRED, &d->h.norm_eps);
    if (rc == 0)
        rc = read_activation(&r);
    if (rc == 0)
        rc = read_rope(&r);
    if (rc == 0)
        rc = read_window(&r, &period);
    if (rc == 0)
        rc = read_gemma(&r);
    if (rc == 0)
        rc = read_bert(&r);
    if (rc == 0)
        rc = read_matryoshka(&r);
    return rc < 0 ? rc : desc__hparams_finish(r.arch, d, period, err);
}

/* ---- generation_config.json ---- */

int hf__read_eos(yyjson_val *root, struct model_desc *d, struct error *err)
{
    yyjson_val *eos = NULL, *v;
    size_t i, n;
    int rc = json_get_any(root, "eos_token_id", JSON_OPTIONAL, &eos, NULL, err);
    if (rc < 0 || !eos || yyjson_is_null(eos))
        return rc;
    size_t count = yyjson_is_arr(eos) ? yyjson_arr_size(eos) : 1;
    int32_t *ids = arena_array(&d->arena, count + d->tokenizer.n_eog, sizeof *ids);
    if (!ids)
        return error_set(err, STATUS_NOMEM, "out of memory while describing a model");
    if (d->tokenizer.n_eog)
        memcpy(ids, d->tokenizer.eog, d->tokenizer.n_eog * sizeof *ids);
    for (i = 0, n = d->tokenizer.n_eog; i < count; i++) {
        v = yyjson_is_arr(eos) ? yyjson_arr_get(eos, i) : eos;
        if (!yyjson_is_uint(v) || yyjson_get_uint(v) >= d->tokenizer.n_tokens)
            return error_set(err, STATUS_INVALID, "\"eos_token_id\" must be token ids below %zu", d->tokenizer.n_tokens);
        ids[n++] = (int32_t)yyjson_get_uint(v);
    }
    if (d->tokenizer.eos == TOKEN_NONE && n)
        d->tokenizer.eos = ids[n - count];
    d->tokenizer.eog = ids;
    d->tokenizer.n_eog = n;
    return 0;
}

int hf__read_generation(yyjson_val *root, struct model_desc *d, struct error *err)
{
    const struct {
        const char *key;
        float *out;
    } rows[] = {{"temperature", &d->temperature},
                {"top_p", &d->top_p},
                {"min_p", &d->min_p},
                {"repetition_penalty", &d->repetition_penalty}};
    uint64_t k = 0;
    int rc = json_get_u64(root, "top_k", JSON_OPTIONAL, 0, INT32_MAX, &k, NULL, err);
    for (size_t i = 0; rc == 0 && i < COUNT_OF(rows); i++)
        rc = get_f32_of(root, rows[i].key, JSON_OPTIONAL, rows[i].out, NULL, err);
    if (rc == 0)
        d->top_k = (int32_t)k;
    return rc < 0 ? rc : hf__read_eos(root, d, err);
}
