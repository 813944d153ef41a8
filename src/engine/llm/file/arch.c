/* arch.c: the architectures as data: one table of facts and one table of weights with both files' names.
 *
 * A row of the weight table says: this role, in these architectures, has this shape, is called so in GGUF and so in a
 * Hugging Face folder, and is required or optional. Names are formats with one %u for the layer. Sources: the tensor names
 * of ggml's GGUF converter and of transformers' modelling files. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "engine/llm/file/desc_priv.h"

const char *const LLM_ARCHITECTURES[] = {"llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "bert", NULL};

struct facts {
    enum llm_norm norm;
    enum llm_activation act;
    enum llm_rope rope; /* in GGUF; Hugging Face's is always halves */
    bool causal, gate, post_norms, qk_norm, gemma, encoder;
};

static const struct facts facts[DESC_ARCH_COUNT] = {
    [DESC_LLAMA] = {.act = LLM_ACT_SILU, .rope = LLM_ROPE_INTERLEAVED, .causal = true, .gate = true},
    [DESC_QWEN2] = {.act = LLM_ACT_SILU, .rope = LLM_ROPE_HALF, .causal = true, .gate = true},
    [DESC_QWEN3] = {.act = LLM_ACT_SILU, .rope = LLM_ROPE_HALF, .causal = true, .gate = true, .qk_norm = true},
    [DESC_GEMMA2] =
        {.act = LLM_ACT_GELU_TANH, .rope = LLM_ROPE_HALF, .causal = true, .gate = true, .post_norms = true, .gemma = true},
    [DESC_GEMMA3] = {.act = LLM_ACT_GELU_TANH,
                     .rope = LLM_ROPE_HALF,
                     .causal = true,
                     .gate = true,
                     .post_norms = true,
                     .qk_norm = true,
                     .gemma = true},
    [DESC_PHI3] = {.act = LLM_ACT_SILU, .rope = LLM_ROPE_HALF, .causal = true, .gate = true},
    [DESC_BERT] = {.norm = LLM_NORM_LAYER, .act = LLM_ACT_GELU_ERF, .rope = LLM_ROPE_NONE, .encoder = true},
};

int desc__arch_of(struct str name, enum desc_arch *out, struct error *err)
{
    char known[160];
    size_t at = 0;
    for (uint32_t i = 0; i < DESC_ARCH_COUNT; i++) {
        if (str_eqz(name, LLM_ARCHITECTURES[i])) {
            *out = (enum desc_arch)i;
            return 0;
        }
        int n = snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", LLM_ARCHITECTURES[i]);
        at += n > 0 ? (size_t)n : 0;
    }
    return error_set(err, STATUS_UNIMPLEMENTED, "the architecture \"%.*s\" is not supported; supported: %s", STR_ARG(name),
                     known);
}

void desc__arch_defaults(enum desc_arch arch, enum desc_naming naming, struct llm_hparams *h)
{
    const struct facts *f = &facts[arch];
    snprintf(h->arch, sizeof h->arch, "%s", LLM_ARCHITECTURES[arch]);
    h->norm = f->norm;
    h->activation = f->act;
    h->rope = f->rope != LLM_ROPE_NONE && naming == DESC_NAMES_HF ? LLM_ROPE_HALF : f->rope;
    h->causal = f->causal;
    h->parallel_gate = f->gate;
    h->post_norms = f->post_norms;
    h->qk_norm = f->qk_norm;
    h->norm_plus_one = f->gemma && naming == DESC_NAMES_HF;
    h->norm_after = f->encoder;
    h->embd_normalize = f->encoder;
    h->embd_scale = 1;
    h->rope_base = 10000;
    h->scaling_factor = h->scaling_attn_factor = 1;
    h->yarn_beta_fast = 32;
    h->yarn_beta_slow = 1;
    h->pooling = f->encoder ? LLM_POOL_MEAN : LLM_POOL_NONE;
}

/* ---- sizes ---- */

struct range {
    const char *name;
    size_t offset;
    uint32_t min, max;
};
#define H(field) offsetof(struct llm_hparams, field)
static const struct range ranges[] = {
    {"context length", H(n_ctx_train), 1, 1u << 28},
    {"embedding length", H(n_embd), 1, 1u << 18},
    {"number of layers", H(n_layer), 1, 1024},
    {"number of heads", H(n_head), 1, 4096},
    {"number of key/value heads", H(n_head_kv), 1, 4096},
    {"feed-forward length", H(n_ff), 1, 1u << 20},
    {"key length", H(head_dim_k), 1, 4096},
    {"value length", H(head_dim_v), 1, 4096},
    {"rope dimensions", H(n_rot), 0, 4096},
    {"token types", H(n_token_types), 0, 1024},
    {"rope's original context length", H(scaling_ctx_orig), 0, 1u << 28},
};
struct frange {
    const char *name;
    size_t offset;
    float min, max;
};
static const struct frange franges[] = {
    {"norm epsilon", H(norm_eps), 0, 1},
    {"embedding scale", H(embd_scale), 1e-6f, 1e6f},
    {"attention scale", H(attn_scale), 1e-6f, 1e3f},
    {"attention soft-cap", H(attn_softcap), 0, 1e6f},
    {"logit soft-cap", H(logit_softcap), 0, 1e6f},
    {"rope base", H(rope_base), 1, 1e12f},
    {"local rope base", H(rope_base_local), 1, 1e12f},
    {"rope scaling factor", H(scaling_factor), 1e-3f, 1e6f},
    {"rope attention factor", H(scaling_attn_factor), 1e-3f, 1e3f},
    {"yarn beta_fast", H(yarn_beta_fast), 0, 1e6f},
    {"yarn beta_slow", H(yarn_beta_slow), 0, 1e6f},
};

static int check_ranges(const struct llm_hparams *h, struct error *err)
{
    for (size_t i = 0; i < COUNT_OF(ranges); i++) {
        uint32_t v;
        memcpy(&v, (const char *)h + ranges[i].offset, sizeof v);
        if (v < ranges[i].min || v > ranges[i].max)
            return error_set(err, STATUS_INVALID, "model: %s is %u; accepted: %u to %u", ranges[i].name, v, ranges[i].min,
                             ranges[i].max);
    }
    for (size_t i = 0; i < COUNT_OF(franges); i++) {
        float v;
        memcpy(&v, (const char *)h + franges[i].offset, sizeof v);
        if (!(v >= franges[i].min && v <= franges[i].max))
            return error_set(err, STATUS_INVALID, "model: %s is %g; accepted: %g to %g", franges[i].name, (double)v,
                             (double)franges[i].min, (double)franges[i].max);
    }
    if (h->n_head % h->n_head_kv)
        return error_set(err, STATUS_INVALID, "model: %u heads are not a multiple of %u key/value heads", h->n_head,
                         h->n_head_kv);
    if (h->n_rot > h->head_dim_k || h->n_rot % 2)
        return error_set(err, STATUS_INVALID, "model: rope dimensions are %u; accepted: an even number up to the key length %u",
                         h->n_rot, h->head_dim_k);
    if (h->rope != LLM_ROPE_NONE && !h->n_rot)
        return error_set(err, STATUS_INVALID, "model: rope dimensions are 0, which %s can't have", h->arch);
    return 0;
}

static int local_layers(struct model_desc *d, uint32_t period, struct error *err)
{
    struct llm_hparams *h = &d->h;
    if (h->window >= h->n_ctx_train)
        h->window = 0; /* nothing is ever out of sight */
    if (!h->window || h->layer_is_local)
        return 0;
    bool *local = arena_array(&d->arena, h->n_layer, sizeof *local);
    if (!local)
        return error_set(err, STATUS_NOMEM, "out of memory while describing a model");
    for (uint32_t i = 0; i < h->n_layer; i++)
        local[i] = period == 1 || (period > 1 && i % period < period - 1);
    h->layer_is_local = local;
    return 0;
}

int desc__hparams_finish(enum desc_arch arch, struct model_desc *d, uint32_t window_period, struct error *err)
{
    struct llm_hparams *h = &d->h;
    if (facts[arch].gemma)
        h->embd_scale = sqrtf((float)h->n_embd);
    if (h->rope_base_local == 0)
        h->rope_base_local = h->rope_base;
    if (h->attn_scale == 0 && h->head_dim_k)
        h->attn_scale = 1.0f / sqrtf((float)h->head_dim_k);
    int rc = check_ranges(h, err);
    return rc < 0 ? rc : local_layers(d, window_period, err);
}

/* ---- weights ---- */

#define A(x)     (1u << DESC_##x)
#define GEMMAS   (A(GEMMA2) | A(GEMMA3))
#define PLAIN    (A(LLAMA) | A(QWEN2) | A(QWEN3) | GEMMAS) /* separate q, k, v and gate, up */
#define DECODERS (PLAIN | A(PHI3))
#define ALL      (DECODERS | A(BERT))
#define NEED     1
#define MAY      0

enum dim { D_ONE, D_EMBD, D_Q, D_K, D_V, D_QKV, D_O, D_FF, D_FF2, D_HEAD, D_VOCAB, D_CTX, D_TYPES };

struct role {
    uint32_t archs;
    bool need;
    size_t offset; /* in struct llm_layer_desc, or struct model_desc for the ones without a layer */
    enum dim rows, cols;
    const char *gguf, *hf; /* hf NULL: not there */
};

#define L(field) offsetof(struct llm_layer_desc, field)
#define M(field) offsetof(struct model_desc, field)
#define BL       "blk.%u."
#define ML       "model.layers.%u."
#define EL       "encoder.layer.%u."

/* The position's norms of bert stand behind the residual add: they are attn_post_norm and ffn_post_norm. */
static const struct role layer_roles[] = {
    {DECODERS, NEED, L(attn_norm), D_ONE, D_EMBD, BL "attn_norm.weight", ML "input_layernorm.weight"},
    {PLAIN, NEED, L(wq), D_Q, D_EMBD, BL "attn_q.weight", ML "self_attn.q_proj.weight"},
    {PLAIN, NEED, L(wk), D_K, D_EMBD, BL "attn_k.weight", ML "self_attn.k_proj.weight"},
    {PLAIN, NEED, L(wv), D_V, D_EMBD, BL "attn_v.weight", ML "self_attn.v_proj.weight"},
    {A(LLAMA), MAY, L(bq), D_ONE, D_Q, BL "attn_q.bias", ML "self_attn.q_proj.bias"},
    {A(LLAMA), MAY, L(bk), D_ONE, D_K, BL "attn_k.bias", ML "self_attn.k_proj.bias"},
    {A(LLAMA), MAY, L(bv), D_ONE, D_V, BL "attn_v.bias", ML "self_attn.v_proj.bias"},
    {A(LLAMA), MAY, L(bo), D_ONE, D_EMBD, BL "attn_output.bias", ML "self_attn.o_proj.bias"},
    {A(QWEN2), NEED, L(bq), D_ONE, D_Q, BL "attn_q.bias", ML "self_attn.q_proj.bias"},
    {A(QWEN2), NEED, L(bk), D_ONE, D_K, BL "attn_k.bias", ML "self_attn.k_proj.bias"},
    {A(QWEN2), NEED, L(bv), D_ONE, D_V, BL "attn_v.bias", ML "self_attn.v_proj.bias"},
    {A(QWEN3) | A(GEMMA3), NEED, L(q_norm), D_ONE, D_HEAD, BL "attn_q_norm.weight", ML "self_attn.q_norm.weight"},
    {A(QWEN3) | A(GEMMA3), NEED, L(k_norm), D_ONE, D_HEAD, BL "attn_k_norm.weight", ML "self_attn.k_norm.weight"},
    {A(PHI3), NEED, L(wqkv), D_QKV, D_EMBD, BL "attn_qkv.weight", ML "self_attn.qkv_proj.weight"},
    {DECODERS, NEED, L(wo), D_EMBD, D_O, BL "attn_output.weight", ML "self_attn.o_proj.weight"},
    {GEMMAS, NEED, L(attn_post_norm), D_ONE, D_EMBD, BL "post_attention_norm.weight", ML "post_attention_layernorm.weight"},
    {GEMMAS, NEED, L(ffn_norm), D_ONE, D_EMBD, BL "ffn_norm.weight", ML "pre_feedforward_layernorm.weight"},
    {DECODERS & ~GEMMAS, NEED, L(ffn_norm), D_ONE, D_EMBD, BL "ffn_norm.weight", ML "post_attention_layernorm.weight"},
    {PLAIN, NEED, L(gate), D_FF, D_EMBD, BL "ffn_gate.weight", ML "mlp.gate_proj.weight"},
    {PLAIN, NEED, L(up), D_FF, D_EMBD, BL "ffn_up.weight", ML "mlp.up_proj.weight"},
    {A(PHI3), NEED, L(up), D_FF2, D_EMBD, BL "ffn_up.weight", ML "mlp.gate_up_proj.weight"},
    {DECODERS, NEED, L(down), D_EMBD, D_FF, BL "ffn_down.weight", ML "mlp.down_proj.weight"},
    {GEMMAS, NEED, L(ffn_post_norm), D_ONE, D_EMBD, BL "post_ffw_norm.weight", ML "post_feedforward_layernorm.weight"},

    {A(BERT), NEED, L(wq), D_Q, D_EMBD, BL "attn_q.weight", EL "attention.self.query.weight"},
    {A(BERT), NEED, L(wk), D_K, D_EMBD, BL "attn_k.weight", EL "attention.self.key.weight"},
    {A(BERT), NEED, L(wv), D_V, D_EMBD, BL "attn_v.weight", EL "attention.self.value.weight"},
    {A(BERT), NEED, L(bq), D_ONE, D_Q, BL "attn_q.bias", EL "attention.self.query.bias"},
    {A(BERT), NEED, L(bk), D_ONE, D_K, BL "attn_k.bias", EL "attention.self.key.bias"},
    {A(BERT), NEED, L(bv), D_ONE, D_V, BL "attn_v.bias", EL "attention.self.value.bias"},
    {A(BERT), NEED, L(wo), D_EMBD, D_O, BL "attn_output.weight", EL "attention.output.dense.weight"},
    {A(BERT), NEED, L(bo), D_ONE, D_EMBD, BL "attn_output.bias", EL "attention.output.dense.bias"},
    {A(BERT), NEED, L(attn_post_norm), D_ONE, D_EMBD, BL "attn_output_norm.weight", EL "attention.output.LayerNorm.weight"},
    {A(BERT), NEED, L(attn_post_norm_b), D_ONE, D_EMBD, BL "attn_output_norm.bias", EL "attention.output.LayerNorm.bias"},
    {A(BERT), NEED, L(up), D_FF, D_EMBD, BL "ffn_up.weight", EL "intermediate.dense.weight"},
    {A(BERT), NEED, L(up_b), D_ONE, D_FF, BL "ffn_up.bias", EL "intermediate.dense.bias"},
    {A(BERT), NEED, L(down), D_EMBD, D_FF, BL "ffn_down.weight", EL "output.dense.weight"},
    {A(BERT), NEED, L(down_b), D_ONE, D_EMBD, BL "ffn_down.bias", EL "output.dense.bias"},
    {A(BERT), NEED, L(ffn_post_norm), D_ONE, D_EMBD, BL "layer_output_norm.weight", EL "output.LayerNorm.weight"},
    {A(BERT), NEED, L(ffn_post_norm_b), D_ONE, D_EMBD, BL "layer_output_norm.bias", EL "output.LayerNorm.bias"},
};

static const struct role model_roles[] = {
    {DECODERS, NEED, M(token_embd), D_VOCAB, D_EMBD, "token_embd.weight", "model.embed_tokens.weight"},
    {DECODERS, NEED, M(output_norm), D_ONE, D_EMBD, "output_norm.weight", "model.norm.weight"},
    {DECODERS, MAY, M(output), D_VOCAB, D_EMBD, "output.weight", "lm_head.weight"},
    {A(BERT), NEED, M(token_embd), D_VOCAB, D_EMBD, "token_embd.weight", "embeddings.word_embeddings.weight"},
    {A(BERT), NEED, M(pos_embd), D_CTX, D_EMBD, "position_embd.weight", "embeddings.position_embeddings.weight"},
    {A(BERT), NEED, M(token_types), D_TYPES, D_EMBD, "token_types.weight", "embeddings.token_type_embeddings.weight"},
    {A(BERT), NEED, M(embd_norm), D_ONE, D_EMBD, "token_embd_norm.weight", "embeddings.LayerNorm.weight"},
    {A(BERT), NEED, M(embd_norm_b), D_ONE, D_EMBD, "token_embd_norm.bias", "embeddings.LayerNorm.bias"},
    {A(BERT), MAY, M(pooler), D_EMBD, D_EMBD, "cls.weight", "pooler.dense.weight"},
    {A(BERT), MAY, M(pooler_b), D_ONE, D_EMBD, "cls.bias", "pooler.dense.bias"},
    {A(BERT), MAY, M(classifier), D_ONE, D_EMBD, "cls.output.weight", "classifier.weight"},
    {A(BERT), MAY, M(classifier_b), D_ONE, D_ONE, "cls.output.bias", "classifier.bias"},
};

static uint64_t dim_of(const struct llm_hparams *h, enum dim dim)
{
    uint64_t q = (uint64_t)h->n_head * h->head_dim_k, k = (uint64_t)h->n_head_kv * h->head_dim_k;
    uint64_t v = (uint64_t)h->n_head_kv * h->head_dim_v;
    switch (dim) {
    case D_ONE:
        return 1;
    case D_EMBD:
        return h->n_embd;
    case D_Q:
        return q;
    case D_K:
        return k;
    case D_V:
        return v;
    case D_QKV:
        return q + k + v;
    case D_O:
        return (uint64_t)h->n_head * h->head_dim_v;
    case D_FF:
        return h->n_ff;
    case D_FF2:
        return 2ull * h->n_ff;
    case D_HEAD:
        return h->head_dim_k;
    case D_VOCAB:
        return h->n_vocab;
    case D_CTX:
        return h->n_ctx_train;
    case D_TYPES:
        return h->n_token_types;
    }
    ASSERT(!"dim");
    return 0;
}

int desc__tensors_index(struct desc_tensors *t, struct error *err)
{
    map_init(&t->by_name, 0x64657363);
    for (size_t i = 0; i < t->n; i++) {
        if (map_get(&t->by_name, t->v[i].name))
            return error_set(err, STATUS_INVALID, "model: the tensor \"%.*s\" occurs twice", STR_ARG(t->v[i].name));
        if (map_put(&t->by_name, t->v[i].name, &t->v[i]) < 0)
            return error_set(err, STATUS_NOMEM, "out of memory while listing a model's tensors");
    }
    return 0;
}

void desc__tensors_release(struct desc_tensors *t)
{
    map_release(&t->by_name);
}

struct desc_tensor *desc__tensor(struct desc_tensors *t, const char *name)
{
    struct desc_tensor *x = map_get(&t->by_name, str_of(name));
    if (x)
        x->used = true;
    return x;
}

static int bind_role(const struct role *r, const struct llm_hparams *h, struct desc_tensors *t, uint32_t layer, void *base,
                     struct error *err)
{
    char name[128];
    const char *format = t->naming == DESC_NAMES_GGUF ? r->gguf : r->hf;
    const char *at = strstr(format, "%u"); /* our own constants: one %u at most */
    if (at)
        snprintf(name, sizeof name, "%.*s%u%s", (int)(at - format), format, layer, at + 2);
    else
        snprintf(name, sizeof name, "%s", format);
    struct desc_tensor *x = desc__tensor(t, name);
    if (!x && !r->need)
        return 0;
    if (!x)
        return error_set(err, STATUS_INVALID, "model: the tensor \"%s\" is missing; %s needs it", name, h->arch);
    uint64_t rows = dim_of(h, r->rows), cols = dim_of(h, r->cols);
    uint64_t have_rows = x->dims[1] * x->dims[2] * x->dims[3]; /* the product was checked by the reader */
    if (x->dims[0] != cols || have_rows != rows || (x->n_dims > 2 && have_rows != x->dims[1]))
        return error_set(err, STATUS_INVALID, "model: the tensor \"%s\" has %llu x %llu values; expected %llu x %llu", name,
                         (unsigned long long)have_rows, (unsigned long long)x->dims[0], (unsigned long long)rows,
                         (unsigned long long)cols);
    *(struct llm_weight *)((char *)base + r->offset) =
        (struct llm_weight){x->type, (uint32_t)rows, (uint32_t)cols, x->data, x->bytes};
    return 0;
}

/* Rows [at, at + n) of `w`, which is in one piece by rows. */
static struct llm_weight rows_of(const struct llm_weight *w, uint64_t at, uint64_t n)
{
    size_t row_bytes = w->bytes / w->rows;
    return (struct llm_weight){w->type, (uint32_t)n, w->cols, w->data + at * row_bytes, (size_t)n * row_bytes};
}

static void split_fused(const struct llm_hparams *h, struct llm_layer_desc *l)
{
    uint64_t q = dim_of(h, D_Q), k = dim_of(h, D_K), v = dim_of(h, D_V);
    if (l->wqkv.data) {
        l->wq = rows_of(&l->wqkv, 0, q);
        l->wk = rows_of(&l->wqkv, q, k);
        l->wv = rows_of(&l->wqkv, q + k, v);
    }
    if (l->up.data && h->parallel_gate && !l->gate.data) { /* phi3: gate, then up */
        struct llm_weight both = l->up;
        l->gate = rows_of(&both, 0, h->n_ff);
        l->up = rows_of(&both, h->n_ff, h->n_ff);
    }
}

/* The vocabulary's size is the embedding's number of rows; files that also say it elsewhere may be padded. */
static int find_vocab(struct model_desc *d, struct desc_tensors *t, uint32_t arch, struct error *err)
{
    const struct role *r = arch == DESC_BERT ? &model_roles[3] : &model_roles[0];
    const char *name = t->naming == DESC_NAMES_GGUF ? r->gguf : r->hf;
    const struct desc_tensor *x = desc__tensor(t, name);
    if (!x)
        return error_set(err, STATUS_INVALID, "model: the tensor \"%s\" is missing; %s needs it", name, d->h.arch);
    if (x->dims[1] < 1 || x->dims[1] > 1u << 24)
        return error_set(err, STATUS_INVALID, "model: the tensor \"%s\" has %llu rows; accepted: 1 to 16777216", name,
                         (unsigned long long)x->dims[1]);
    d->h.n_vocab = (uint32_t)x->dims[1];
    if (d->tokenizer.n_tokens > d->h.n_vocab)
        return error_set(err, STATUS_INVALID, "model: the vocabulary has %zu tokens but \"%s\" only %u rows",
                         d->tokenizer.n_tokens, name, d->h.n_vocab);
    return 0;
}

static int refuse_unused(const struct model_desc *d, const struct desc_tensors *t, struct error *err)
{
    for (size_t i = 0; i < t->n; i++)
        if (!t->v[i].used)
            return error_set(err, STATUS_UNIMPLEMENTED, "model: the tensor \"%.*s\" is not part of %s as inferd computes it",
                             STR_ARG(t->v[i].name), d->h.arch);
    return 0;
}

int desc__bind(enum desc_arch arch, struct model_desc *d, struct desc_tensors *t, struct error *err)
{
    int rc = find_vocab(d, t, arch, err);
    if (rc < 0)
        return rc;
    d->layers = arena_array(&d->arena, d->h.n_layer, sizeof *d->layers);
    if (!d->layers)
        return error_set(err, STATUS_NOMEM, "out of memory while describing a model");
    for (size_t i = 0; rc == 0 && i < COUNT_OF(model_roles); i++)
        if (model_roles[i].archs & 1u << arch)
            rc = bind_role(&model_roles[i], &d->h, t, 0, d, err);
    for (uint32_t layer = 0; rc == 0 && layer < d->h.n_layer; layer++) {
        for (size_t i = 0; rc == 0 && i < COUNT_OF(layer_roles); i++)
            if (layer_roles[i].archs & 1u << arch)
                rc = bind_role(&layer_roles[i], &d->h, t, layer, &d->layers[layer], err);
        if (rc == 0)
            split_fused(&d->h, &d->layers[layer]);
    }
    if (rc < 0)
        return rc;
    if (d->classifier.data)
        d->h.pooling = LLM_POOL_RANK;
    if (d->h.pooling == LLM_POOL_RANK && !(d->pooler.data && d->pooler_b.data && d->classifier.data && d->classifier_b.data))
        return error_set(err, STATUS_INVALID, "model: a model that ranks needs a pooler and a classifier, each with its bias");
    d->h.tied_output = d->h.causal && !d->output.data;
    if (d->h.tied_output)
        d->output = d->token_embd;
    for (size_t i = 0; i < t->n; i++)
        d->weight_bytes += t->v[i].bytes;
    return refuse_unused(d, t, err);
}

int desc__rope_factors(struct model_desc *d, const struct desc_tensor *t, const float **out, struct error *err)
{
    uint32_t n = d->h.n_rot / 2;
    if (t->type != WEIGHT_F32 || t->dims[0] != n || t->bytes != n * sizeof(float))
        return error_set(err, STATUS_INVALID, "model: the tensor \"%.*s\" must hold %u F32 values", STR_ARG(t->name), n);
    float *f = arena_array(&d->arena, n, sizeof *f);
    if (!f)
        return error_set(err, STATUS_NOMEM, "out of memory while describing a model");
    memcpy(f, t->data, t->bytes);
    for (uint32_t i = 0; i < n; i++)
        if (!(f[i] > 0 && f[i] < 1e12f))
            return error_set(err, STATUS_INVALID, "model: the tensor \"%.*s\" has the factor %g at %u; accepted: above 0",
                             STR_ARG(t->name), (double)f[i], i);
    *out = f;
    return 0;
}
