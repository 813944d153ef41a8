/* test_model_desc.c: descriptions of tests/data/llm, which Python's gguf, safetensors and tokenizers packages wrote (make_llm.py): the
 * facts of each architecture, the same weights and vocabulary out of both kinds of file, and files that must be refused by name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/size.h"
#include "base/status.h"
#include "text/normal.h"
#include "engine/llm/file/model_desc.h"
#include "os/dir.h"

static struct error err;

static struct model_desc *open_in(const char *folder, const char *file)
{
    struct model_desc *d = NULL;
    int fd = -1;
    err = (struct error){0};
    assert_int_equal(os_dir_open(folder, &fd, &err), 0);
    int rc = model_desc_open(fd, file, &d, &err);
    os_close(fd);
    assert_int_equal(rc, err.code);
    assert_true((rc == 0) == (d != NULL));
    return d;
}

static struct model_desc *open_gguf(const char *arch)
{
    char name[64];
    snprintf(name, sizeof name, "%s.gguf", arch);
    struct model_desc *d = open_in(TEST_DATA "/llm", name);
    if (!d)
        fail_msg("%s: %s", name, err.text);
    return d;
}

static struct model_desc *open_folder(const char *arch)
{
    char path[512];
    snprintf(path, sizeof path, "%s/llm/%s", TEST_DATA, arch);
    struct model_desc *d = open_in(path, ".");
    if (!d)
        fail_msg("%s: %s", path, err.text);
    return d;
}

/* ---- facts, from make_llm.py and the papers ---- */

static void llama_facts(void **state)
{
    (void)state;
    struct model_desc *d = open_gguf("llama");
    const struct llm_hparams *h = &d->h;
    assert_string_equal(h->arch, "llama");
    assert_int_equal(h->n_ctx_train, 64);
    assert_int_equal(h->n_embd, 32);
    assert_int_equal(h->n_layer, 2);
    assert_int_equal(h->n_head, 4);
    assert_int_equal(h->n_head_kv, 2);
    assert_int_equal(h->n_ff, 64);
    assert_int_equal(h->head_dim_k, 8);
    assert_int_equal(h->n_rot, 8);
    assert_int_equal(h->n_vocab, 300);
    assert_int_equal(h->rope, LLM_ROPE_INTERLEAVED);
    assert_int_equal(h->norm, LLM_NORM_RMS);
    assert_int_equal(h->activation, LLM_ACT_SILU);
    assert_int_equal(h->scaling, LLM_SCALING_LLAMA3);
    assert_true(h->causal && h->parallel_gate && !h->post_norms && !h->qk_norm && !h->tied_output && !h->norm_plus_one);
    assert_float_equal(h->norm_eps, 1e-6, 1e-12);
    assert_float_equal(h->rope_base, 500000, 0);
    assert_float_equal(h->attn_scale, 1 / sqrt(8), 1e-7);
    assert_float_equal(h->embd_scale, 1, 0);
    /* wavelengths 2 pi 500000^(2i/8): 6.28 < 32/4 stays, 167 > 32 is slowed by 8 */
    assert_float_equal(h->rope_factors[0], 1, 0);
    assert_float_equal(h->rope_factors[1], 8, 0);
    assert_float_equal(h->rope_factors[3], 8, 0);
    assert_null(h->rope_factors_long);
    assert_true(str_eqz(d->tokenizer.pre, "llama-bpe"));
    assert_true(d->tokenizer.add_bos && d->tokenizer.ignore_merges && !d->tokenizer.add_eos);
    assert_int_equal(d->tokenizer.bos, 296);
    assert_int_equal(d->tokenizer.eos, 297);
    assert_int_equal(d->tokenizer.eot, 298);
    assert_int_equal(d->tokenizer.eom, 299);
    assert_int_equal(d->tokenizer.n_eog, 3);
    assert_true(str_eqz(d->name, "tiny llama"));
    assert_true(str_starts(d->chat_template, STR("{% for m in messages %}")));
    model_desc_drop_pages(d);
    assert_int_equal(d->layers[1].wq.rows, 32);
    model_desc_release(d);
    model_desc_release(NULL);
}

static void gemma_facts(void **state)
{
    (void)state;
    struct model_desc *d = open_gguf("gemma3");
    const struct llm_hparams *h = &d->h;
    static const bool local[] = {1, 1, 1, 1, 1, 0, 1}; /* five local layers, then a global one */
    assert_int_equal(h->window, 8);
    assert_memory_equal(h->layer_is_local, local, sizeof local);
    assert_float_equal(h->rope_base, 1e6, 0);
    assert_float_equal(h->rope_base_local, 1e4, 0);
    assert_float_equal(h->embd_scale, sqrt(32), 1e-6);
    assert_true(h->post_norms && h->qk_norm && h->tied_output && !h->norm_plus_one);
    assert_int_equal(h->activation, LLM_ACT_GELU_TANH);
    assert_float_equal(h->attn_softcap, 0, 0);
    assert_float_equal(h->logit_softcap, 0, 0);
    assert_ptr_equal(d->output.data, d->token_embd.data);
    assert_int_equal(d->tokenizer.model, TOKENIZER_SPM);
    assert_int_equal(d->tokenizer.types[6], TOKEN_BYTE);
    assert_true(!d->tokenizer.add_space_prefix);
    model_desc_release(d);

    d = open_gguf("gemma2");
    assert_float_equal(d->h.attn_softcap, 50, 0);
    assert_float_equal(d->h.logit_softcap, 30, 0);
    assert_true(d->h.layer_is_local[0] && !d->h.layer_is_local[1]);
    assert_true(d->h.post_norms && !d->h.qk_norm);
    assert_float_equal(d->h.rope_base_local, 1e4, 0);
    model_desc_release(d);
}

static void other_facts(void **state)
{
    (void)state;
    struct model_desc *d = open_gguf("phi3");
    size_t row = 32 * 2; /* F16 */
    const struct llm_layer_desc *l = &d->layers[1];
    assert_int_equal(l->wqkv.rows, 96);
    assert_ptr_equal(l->wq.data, l->wqkv.data);
    assert_ptr_equal(l->wk.data, l->wqkv.data + 32 * row);
    assert_ptr_equal(l->wv.data, l->wqkv.data + 64 * row);
    assert_int_equal(l->up.rows, 64);
    assert_ptr_equal(l->up.data, l->gate.data + 64 * row);
    assert_true(d->tokenizer.add_space_prefix);
    assert_int_equal(d->tokenizer.eot, 7); /* <|end|> */
    model_desc_release(d);

    d = open_gguf("qwen2");
    assert_non_null(d->layers[0].bq.data);
    assert_true(d->h.tied_output && d->h.rope == LLM_ROPE_HALF && !d->tokenizer.add_bos);
    model_desc_release(d);

    d = open_gguf("qwen3");
    assert_true(d->h.qk_norm && !d->h.tied_output);
    assert_int_equal(d->h.head_dim_k, 16);
    assert_int_equal(d->layers[0].q_norm.cols, 16);
    model_desc_release(d);

    d = open_gguf("bert");
    assert_true(!d->h.causal && d->h.norm_after && !d->h.parallel_gate && d->h.embd_normalize && !d->h.tied_output);
    assert_int_equal(d->h.norm, LLM_NORM_LAYER);
    assert_int_equal(d->h.rope, LLM_ROPE_NONE);
    assert_int_equal(d->h.activation, LLM_ACT_GELU_ERF);
    assert_int_equal(d->h.pooling, LLM_POOL_MEAN);
    assert_int_equal(d->h.n_token_types, 2);
    assert_int_equal(d->pos_embd.rows, 64);
    assert_int_equal(d->tokenizer.model, TOKENIZER_WORDPIECE);
    assert_int_equal(d->tokenizer.cls, 2);
    assert_int_equal(d->tokenizer.sep, 3);
    assert_true(d->tokenizer.n_normal == 5 && d->tokenizer.add_bos && d->tokenizer.add_eos);
    model_desc_release(d);
}

/* ---- both files say the same ---- */

static float value(const struct llm_weight *w, size_t i)
{
    uint32_t u;
    uint16_t h;
    float f;
    if (w->type == WEIGHT_F32) {
        memcpy(&f, w->data + 4 * i, 4);
        return f;
    }
    memcpy(&h, w->data + 2 * i, 2);
    if (w->type == WEIGHT_BF16) {
        u = (uint32_t)h << 16;
        memcpy(&f, &u, 4);
        return f;
    }
    assert_int_equal(w->type, WEIGHT_F16);
    int exp = h >> 10 & 31, man = h & 1023;
    f = exp ? ldexpf((float)(1024 + man), exp - 25) : ldexpf((float)man, -24);
    return h & 0x8000 ? -f : f;
}

/* `pairs`: rows of one head's half that GGUF's llama stores interleaved; 0: as they are. */
static void same_weight(const char *what, const struct llm_weight *g, const struct llm_weight *f, uint32_t head_dim, float plus)
{
    assert_int_equal(g->rows, f->rows);
    assert_int_equal(g->cols, f->cols);
    assert_true((g->data != NULL) == (f->data != NULL));
    for (uint32_t r = 0; g->data && r < g->rows; r++) {
        uint32_t in = head_dim ? r % head_dim : 0, from = head_dim ? r - in + (in & 1) * head_dim / 2 + in / 2 : r;
        for (uint32_t c = 0; c < g->cols; c++)
            if (value(g, (size_t)r * g->cols + c) != value(f, (size_t)from * f->cols + c) + plus)
                fail_msg("%s differs at %u, %u", what, r, c);
    }
}

static void same_weights(const struct model_desc *g, const struct model_desc *f)
{
    float plus = f->h.norm_plus_one ? 1.0f : 0.0f;
    uint32_t pairs = g->h.rope == LLM_ROPE_INTERLEAVED ? g->h.head_dim_k : 0;
    same_weight("token_embd", &g->token_embd, &f->token_embd, 0, 0);
    same_weight("output", &g->output, &f->output, 0, 0);
    same_weight("output_norm", &g->output_norm, &f->output_norm, 0, plus);
    same_weight("pos_embd", &g->pos_embd, &f->pos_embd, 0, 0);
    same_weight("token_types", &g->token_types, &f->token_types, 0, 0);
    same_weight("embd_norm", &g->embd_norm, &f->embd_norm, 0, 0);
    same_weight("embd_norm_b", &g->embd_norm_b, &f->embd_norm_b, 0, 0);
    for (uint32_t i = 0; i < g->h.n_layer; i++) {
        const struct llm_layer_desc *a = &g->layers[i], *b = &f->layers[i];
        same_weight("wq", &a->wq, &b->wq, pairs, 0);
        same_weight("wk", &a->wk, &b->wk, pairs, 0);
        same_weight("bq", &a->bq, &b->bq, 0, 0);
        same_weight("q_norm", &a->q_norm, &b->q_norm, 0, plus);
        same_weight("k_norm", &a->k_norm, &b->k_norm, 0, plus);
        same_weight("attn_norm", &a->attn_norm, &b->attn_norm, 0, plus);
        same_weight("attn_post_norm", &a->attn_post_norm, &b->attn_post_norm, 0, plus);
        same_weight("ffn_norm", &a->ffn_norm, &b->ffn_norm, 0, plus);
        same_weight("ffn_post_norm", &a->ffn_post_norm, &b->ffn_post_norm, 0, plus);
#define SAME(role) same_weight(#role, &a->role, &b->role, 0, 0)
        SAME(wv), SAME(bk), SAME(bv), SAME(wo), SAME(bo), SAME(gate), SAME(up), SAME(down), SAME(up_b), SAME(down_b);
        SAME(attn_post_norm_b), SAME(ffn_post_norm_b), SAME(attn_norm_b), SAME(ffn_norm_b);
    }
}

static void same_tokens(const struct tokenizer_spec *g, const struct tokenizer_spec *f)
{
    assert_int_equal(g->model, f->model);
    assert_true(str_eq(g->pre, f->pre));
    assert_int_equal(g->n_tokens, f->n_tokens);
    for (size_t i = 0; i < g->n_tokens; i++) {
        if (!str_eq(g->tokens[i], f->tokens[i]))
            fail_msg("token %zu: \"%.*s\" and \"%.*s\"", i, STR_ARG(g->tokens[i]), STR_ARG(f->tokens[i]));
        if (g->types[i] != f->types[i])
            fail_msg("token %zu \"%.*s\": type %d and %d", i, STR_ARG(g->tokens[i]), g->types[i], f->types[i]);
        if (g->model == TOKENIZER_SPM)
            assert_float_equal(g->scores[i], f->scores[i], 0);
    }
    assert_int_equal(g->n_merges, f->n_merges);
    for (size_t i = 0; i < g->n_merges; i++)
        assert_true(str_eq(g->merges[i], f->merges[i]));
#define ID(x) assert_int_equal(g->x, f->x)
    ID(bos), ID(eos), ID(eot), ID(eom), ID(unk), ID(sep), ID(pad), ID(cls), ID(mask);
    ID(add_bos), ID(add_eos), ID(add_space_prefix), ID(n_normal);
    for (size_t i = 0; i < g->n_normal; i++)
        assert_int_equal(g->normal[i].kind, f->normal[i].kind);
}

static const char *const archs[] = {"llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "bert"};

static void folder_and_gguf_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(archs); i++) {
        struct model_desc *g = open_gguf(archs[i]), *f = open_folder(archs[i]);
        struct llm_hparams a = g->h, b = f->h;
        if (a.rope_factors)
            for (uint32_t k = 0; k < a.n_rot / 2; k++)
                assert_float_equal(a.rope_factors[k], b.rope_factors[k], 1e-6 * (double)a.rope_factors[k]);
        if (a.layer_is_local)
            assert_memory_equal(a.layer_is_local, b.layer_is_local, a.n_layer * sizeof *a.layer_is_local);
        assert_int_equal(b.rope, a.rope == LLM_ROPE_NONE ? LLM_ROPE_NONE : LLM_ROPE_HALF);
        a.rope = b.rope, a.rope_factors = b.rope_factors, a.layer_is_local = b.layer_is_local;
        a.norm_plus_one = b.norm_plus_one;
        if (a.scaling == LLM_SCALING_LLAMA3) /* what the factors already say */
            a.scaling_factor = b.scaling_factor, a.scaling_ctx_orig = b.scaling_ctx_orig;
        assert_memory_equal(&a, &b, sizeof a);
        same_weights(g, f);
        same_tokens(&g->tokenizer, &f->tokenizer);
        assert_true(str_eq(g->chat_template, f->chat_template));
        model_desc_release(g);
        model_desc_release(f);
    }
}

static void generation_defaults(void **state)
{
    (void)state;
    struct model_desc *d = open_folder("gemma3");
    assert_float_equal(d->temperature, 0.7, 1e-6);
    assert_float_equal(d->top_p, 0.95, 1e-6);
    assert_int_equal(d->top_k, 64);
    assert_true(isnan(d->min_p) && isnan(d->repetition_penalty));
    model_desc_release(d);
    d = open_folder("phi3");
    assert_true(isnan(d->temperature) && isnan(d->top_p));
    assert_int_equal(d->top_k, 0);
    model_desc_release(d);
}

/* ---- what must be refused ---- */

static char tmp[64];

static size_t slurp(const char *path, char *out, size_t cap)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(out, 1, cap, f);
    assert_true(n < cap);
    fclose(f);
    return n;
}

static void spill(const char *name, const char *p, size_t n)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", tmp, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

static char bytes[1 << 20];

/* Replace the first `from` behind the first `after` by `to`, of the same length, and open the outcome. */
static void refused(const char *arch, const char *after, const char *from, const char *to, int code, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/llm/%s.gguf", TEST_DATA, arch);
    size_t n = slurp(path, bytes, sizeof bytes);
    assert_int_equal(strlen(from), strlen(to));
    char *at = memmem(bytes, n, after, strlen(after));
    assert_non_null(at);
    at = memmem(at, n - (size_t)(at - bytes), from, strlen(from));
    assert_non_null(at);
    memcpy(at, to, strlen(to));
    spill("m.gguf", bytes, n);
    struct model_desc *d = open_in(tmp, "m.gguf");
    assert_null(d);
    if (err.code != code || !strstr(err.text, text))
        fail_msg("%d %s; expected %d %s", err.code, err.text, code, text);
}

static void hostile_gguf(void **state)
{
    (void)state;
    refused("llama", "general.architecture", "llama", "lxama", STATUS_UNIMPLEMENTED,
            "\"lxama\" is not supported; supported: llama, qwen2, qwen3, gemma2, gemma3, phi3, bert");
    refused("llama", "tokenizer.ggml.pre", "blk.1.ffn_up.weight", "blk.1.ffn_uq.weight", STATUS_INVALID,
            "\"blk.1.ffn_up.weight\" is missing");
    refused("qwen2", "tokenizer.ggml.pre", "blk.1.attn_q.bias", "blk.9.attn_q.bias", STATUS_INVALID,
            "\"blk.1.attn_q.bias\" is missing");
    refused("llama", "rope_freqs", "rope_freqs.weight", "rope_freqx.weight", STATUS_UNIMPLEMENTED,
            "\"rope_freqx.weight\" is not part of llama");
}

static void wrong_number(const char *key, uint32_t value_now, uint32_t to, const char *text)
{
    size_t n = slurp(TEST_DATA "/llm/llama.gguf", bytes, sizeof bytes);
    char *at = memmem(bytes, n, key, strlen(key));
    uint32_t type, was;
    assert_non_null(at);
    at += strlen(key);
    memcpy(&type, at, 4);
    assert_int_equal(type, 4); /* u32 */
    memcpy(&was, at + 4, 4);
    assert_int_equal(was, value_now);
    memcpy(at + 4, &to, 4);
    spill("m.gguf", bytes, n);
    struct model_desc *d = open_in(tmp, "m.gguf");
    assert_null(d);
    if (err.code != STATUS_INVALID || !strstr(err.text, text))
        fail_msg("%s = %u: %s; expected %s", key, to, err.text, text);
}

static void wrong_numbers(void **state)
{
    (void)state;
    wrong_number("llama.block_count", 2, 0, "number of layers is 0; accepted: 1 to 1024");
    wrong_number("llama.block_count", 2, 3, "\"blk.2.attn_norm.weight\" is missing");
    wrong_number("llama.block_count", 2, UINT32_MAX, "number of layers is 4294967295");
    wrong_number("llama.embedding_length", 32, 64, "\"token_embd.weight\" has 300 x 32 values; expected 300 x 64");
    wrong_number("llama.attention.head_count", 4, 0, "head_count");
    wrong_number("llama.attention.head_count", 4, 3, "3 heads are not a multiple of 2");
    wrong_number("llama.attention.head_count", 4, 8, "\"blk.0.attn_q.weight\" has 32 x 32 values; expected 64 x 32");
    wrong_number("llama.rope.dimension_count", 8, 7, "rope_freqs");
    wrong_number("llama.rope.dimension_count", 8, 10, "rope_freqs");
    wrong_number("llama.context_length", 64, 0, "context length is 0");
    wrong_number("llama.feed_forward_length", 64, 65, "\"blk.0.ffn_gate.weight\"");
    wrong_number("tokenizer.ggml.bos_token_id", 296, 300, "\"tokenizer.ggml.bos_token_id\" must be a token id below 300");
}

/* A folder's file with one text replaced. */
static void folder_refused(const char *arch, const char *file, const char *from, const char *to, int code, const char *text)
{
    static const char *const names[] = {"config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "model.safetensors",
                                        "model.safetensors.index.json",
                                        "model-00001-of-00002.safetensors",
                                        "model-00002-of-00002.safetensors"};
    char path[600];
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        snprintf(path, sizeof path, "%s/%s", tmp, names[i]);
        unlink(path);
        snprintf(path, sizeof path, "%s/llm/%s/%s", TEST_DATA, arch, names[i]);
        if (access(path, R_OK) != 0)
            continue;
        size_t n = slurp(path, bytes, sizeof bytes - 4096);
        if (strcmp(file, names[i]) == 0) {
            char *at = memmem(bytes, n, from, strlen(from));
            if (!at)
                fail_msg("%s has no %s", path, from);
            size_t tail = n - (size_t)(at - bytes) - strlen(from);
            memmove(at + strlen(to), at + strlen(from), tail);
            memcpy(at, to, strlen(to));
            n = n - strlen(from) + strlen(to);
        }
        spill(names[i], bytes, n);
    }
    struct model_desc *d = open_in(tmp, ".");
    if (d)
        fail_msg("%s with %s was not refused", file, to);
    if (err.code != code || !strstr(err.text, text))
        fail_msg("%s: %d %s; expected %d %s", file, err.code, err.text, code, text);
}

static void hostile_folder(void **state)
{
    (void)state;
    const int no = STATUS_UNIMPLEMENTED, bad = STATUS_INVALID;
    folder_refused("llama", "config.json", "\"llama\"", "\"mamba\"", no, "supported: llama, mistral, qwen2");
    folder_refused("llama", "config.json", "\"silu\"", "\"relu2\"", no, "\"hidden_act\" is \"relu2\"");
    folder_refused("llama", "config.json", "\"llama3\"", "\"dynamic\"", no, "\"dynamic\" is not supported");
    folder_refused("llama", "config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", bad,
                   "\"model.layers.2.input_layernorm.weight\" is missing");
    folder_refused("llama", "config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": -1", bad, "num_hidden_layers");
    folder_refused("llama", "config.json", "\"rms_norm_eps\"", "\"rms_norm_epx\"", bad, "rms_norm_eps");
    folder_refused("llama", "config.json", "\"low_freq_factor\": 1.0", "\"low_freq_factor\": 9.0", bad, "low_freq_factor");
    folder_refused("llama", "config.json", "{", "{\"quantization_config\": {\"bits\": 4},", no, "quantization_config");
    folder_refused("bert", "config.json", "\"absolute\"", "\"relative_key\"", no, "position_embedding_type");
    folder_refused("llama", "model.safetensors", "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.uq_proj.weight", bad,
                   "\"model.layers.1.mlp.up_proj.weight\" is missing");
    folder_refused("llama", "model.safetensors", "\"F16\"", "\"I16\"", no, "dtype I16; supported: F32, F16, BF16");
    folder_refused("llama", "model.safetensors", "lm_head.weight", "lm_heax.weight", no,
                   "\"lm_heax.weight\" is not part of llama");
    folder_refused("qwen3", "model.safetensors.index.json", "\"model-00001", "\"../el-00001", bad,
                   "must be a name in the folder");
    folder_refused("qwen3", "model.safetensors.index.json", "\"model-00001", "\"modex-00001", STATUS_NOT_FOUND, "modex-00001");
    folder_refused("llama", "tokenizer.json", "\\\\p{N}{1,3}", "\\\\p{N}{1,2}", no, "is not a known one");
    folder_refused("llama", "tokenizer.json", "\"BPE\"", "\"WordLevel\"", no,
                   "\"WordLevel\" is not supported; supported: BPE, Unigram, WordPiece");
    folder_refused("llama", "tokenizer.json", "\"id\":296", "\"id\":99999999", bad, "far beyond");
    folder_refused("llama", "tokenizer.json", "\"id\":296", "\"id\":295", bad, "given to two tokens");
    folder_refused("bert", "tokenizer.json", "subword_prefix\":\"##\"", "subword_prefix\":\"__\"", no,
                   "continuing_subword_prefix");
    folder_refused("bert", "tokenizer.json", "\"BertNormalizer\"", "\"Zap\"", no, "\"Zap\" is not supported");
    folder_refused("gemma3", "config.json", "\"eos_token_id\": 1", "\"eos_token_id\": 5000", bad, "eos_token_id");
}

static int make_tmp(void **state)
{
    (void)state;
    snprintf(tmp, sizeof tmp, "/tmp/inferd_desc_XXXXXX");
    return mkdtemp(tmp) ? 0 : -1;
}

static int drop_tmp(void **state)
{
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", tmp);
    return system(cmd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_facts),           cmocka_unit_test(gemma_facts),         cmocka_unit_test(other_facts),
        cmocka_unit_test(folder_and_gguf_agree), cmocka_unit_test(generation_defaults), cmocka_unit_test(hostile_gguf),
        cmocka_unit_test(wrong_numbers),         cmocka_unit_test(hostile_folder),
    };
    return cmocka_run_group_tests(tests, make_tmp, drop_tmp);
}
