/* lora_desc.c: the two adapter formats of lora_desc.h. Names and scaling as in llama.cpp's adapters and Hugging Face's PEFT. */
#include "engine/llm/file/lora_desc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "engine/llm/file/hf_priv.h"

#define RANK_MAX 4096u

struct reader {
    const struct model_desc *base;
    struct lora_desc *d;
    struct desc_tensors tensors;
    double alpha; /* 0: none given, the scale is 1 */
    bool rslora;
    bool halves; /* the file's rows of q and k are laid out for rope in halves */
    struct error *err;
};

static int nomem(struct error *err)
{
    return error_set(err, STATUS_NOMEM, "out of memory while reading an adapter");
}

/* One adapted matrix of a layer, by both names; fused ones are cut into `parts` targets. */
struct target {
    const char *gguf, *hf;
    size_t parts[3];   /* offsets in struct lora_layer_desc */
    size_t weights[3]; /* offsets in struct llm_layer_desc: the base's matrices */
    uint32_t n_parts;
    bool rope; /* parts 0 (q) and 1 (k), or the only one, are turned by rope */
};
#define P(field) offsetof(struct lora_layer_desc, field)
#define W(field) offsetof(struct llm_layer_desc, field)
static const struct target targets[] = {
    {"attn_q", "self_attn.q_proj", {P(q)}, {W(wq)}, 1, true},
    {"attn_k", "self_attn.k_proj", {P(k)}, {W(wk)}, 1, true},
    {"attn_v", "self_attn.v_proj", {P(v)}, {W(wv)}, 1, false},
    {"attn_qkv", "self_attn.qkv_proj", {P(q), P(k), P(v)}, {W(wq), W(wk), W(wv)}, 3, true},
    {"attn_output", "self_attn.o_proj", {P(o)}, {W(wo)}, 1, false},
    {"ffn_gate", "mlp.gate_proj", {P(gate)}, {W(gate)}, 1, false},
    {"ffn_up", "mlp.up_proj", {P(up)}, {W(up)}, 1, false},
    {"ffn_down", "mlp.down_proj", {P(down)}, {W(down)}, 1, false},
};
/* phi3's ffn_up is gate and up in one */
static const struct target gate_up = {"ffn_up", "mlp.gate_up_proj", {P(gate), P(up)}, {W(gate), W(up)}, 2, false};

/* Rows of B from one rope layout to the other: halves (i, i + d/2) and interleaved pairs (2i, 2i + 1). */
static int turn_rows(const struct reader *r, struct llm_weight *b)
{
    uint32_t dim = r->base->h.head_dim_k, rot = r->base->h.n_rot;
    size_t row = b->bytes / b->rows;
    uint8_t *out = arena_alloc(&r->d->arena, b->bytes);
    if (!out)
        return nomem(r->err);
    for (uint32_t i = 0; i < b->rows; i++) {
        uint32_t in = i % dim, pair = i - in + (in & 1) * rot / 2 + in / 2; /* where halves keep what pairs have at i */
        if (in >= rot)
            pair = i;
        if (r->halves)
            memcpy(out + i * row, b->data + pair * row, row);
        else
            memcpy(out + pair * row, b->data + i * row, row);
    }
    b->data = out;
    return 0;
}

static int check_shapes(const struct reader *r, const struct target *t, const struct llm_layer_desc *l,
                        const struct desc_tensor *a, const struct desc_tensor *b)
{
    uint64_t out = 0, in = 0, rank = a->dims[1];
    for (uint32_t i = 0; i < t->n_parts; i++) {
        const struct llm_weight *w = (const struct llm_weight *)((const char *)l + t->weights[i]);
        if (!w->data)
            return error_set(r->err, STATUS_INVALID, "adapter: \"%.*s\": the base model has no such matrix", STR_ARG(a->name));
        out += w->rows;
        in = w->cols;
    }
    if (a->n_dims != 2 || b->n_dims != 2 || rank < 1 || rank > RANK_MAX)
        return error_set(r->err, STATUS_INVALID, "adapter: \"%.*s\": its rank is %llu; accepted: 1 to %u", STR_ARG(a->name),
                         (unsigned long long)rank, RANK_MAX);
    if (a->dims[0] != in || b->dims[0] != rank || b->dims[1] != out)
        return error_set(
            r->err, STATUS_INVALID,
            "adapter: \"%.*s\" is %llu x %llu and its B %llu x %llu; the base model needs %llu inputs and %llu outputs",
            STR_ARG(a->name), (unsigned long long)a->dims[1], (unsigned long long)a->dims[0], (unsigned long long)b->dims[1],
            (unsigned long long)b->dims[0], (unsigned long long)in, (unsigned long long)out);
    return 0;
}

static struct llm_weight whole(const struct desc_tensor *t)
{
    return (struct llm_weight){t->type, (uint32_t)t->dims[1], (uint32_t)t->dims[0], t->data, t->bytes};
}

static int bind_target(struct reader *r, const struct target *t, uint32_t layer, struct desc_tensor *a, struct desc_tensor *b)
{
    const struct llm_layer_desc *base = &r->base->layers[layer];
    int rc = check_shapes(r, t, base, a, b);
    if (rc < 0)
        return rc;
    struct llm_weight wa = whole(a), wb = whole(b);
    double rank = (double)wa.rows, scale = r->alpha == 0 ? 1 : r->alpha / (r->rslora ? sqrt(rank) : rank);
    ASSERT(wb.rows > 0); /* the base's matrices have rows, and check_shapes compared */
    size_t row = wb.bytes / wb.rows;
    uint32_t at = 0;
    for (uint32_t i = 0; rc == 0 && i < t->n_parts; i++) {
        struct lora_pair *p = (struct lora_pair *)((char *)&r->d->layers[layer] + t->parts[i]);
        uint32_t rows = ((const struct llm_weight *)((const char *)base + t->weights[i]))->rows;
        if (p->a.data)
            return error_set(r->err, STATUS_INVALID, "adapter: \"%.*s\" adapts a matrix that another tensor adapts too",
                             STR_ARG(a->name));
        *p = (struct lora_pair){wa, {wb.type, rows, wb.cols, wb.data + at * row, rows * row}, (float)scale};
        at += rows;
        bool file_halves = r->halves, base_halves = r->base->h.rope == LLM_ROPE_HALF;
        if (t->rope && i < 2 && file_halves != base_halves)
            rc = turn_rows(r, &p->b);
    }
    r->d->max_rank = MAX_OF(r->d->max_rank, wa.rows);
    return rc;
}

/* A's name is B's but for one letter near the end. */
static int bind_one(struct reader *r, const struct target *t, uint32_t layer, const char *a_name, const char *b_name)
{
    struct desc_tensor *a = desc__tensor(&r->tensors, a_name), *b = desc__tensor(&r->tensors, b_name);
    if (!a && !b)
        return 0;
    if (!a || !b)
        return error_set(r->err, STATUS_INVALID, "adapter: \"%s\" is there, but not its other half \"%s\"", a ? a_name : b_name,
                         a ? b_name : a_name);
    return bind_target(r, t, layer, a, b);
}

static int bind_layer(struct reader *r, uint32_t layer)
{
    char a[160], b[160];
    bool phi3 = strcmp(r->base->h.arch, "phi3") == 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < COUNT_OF(targets) + 1; i++) {
        const struct target *t = i < COUNT_OF(targets) ? &targets[i] : &gate_up;
        if (r->tensors.naming == DESC_NAMES_GGUF) {
            if (phi3 ? strcmp(t->gguf, "ffn_up") == 0 && t != &gate_up : t == &gate_up)
                continue; /* the same name for two things */
            snprintf(a, sizeof a, "blk.%u.%s.weight.lora_a", layer, t->gguf);
            snprintf(b, sizeof b, "blk.%u.%s.weight.lora_b", layer, t->gguf);
        } else {
            snprintf(a, sizeof a, "base_model.model.model.layers.%u.%s.lora_A.weight", layer, t->hf);
            snprintf(b, sizeof b, "base_model.model.model.layers.%u.%s.lora_B.weight", layer, t->hf);
        }
        rc = bind_one(r, t, layer, a, b);
    }
    return rc;
}

static int bind_all(struct reader *r)
{
    struct lora_desc *d = r->d;
    int rc = desc__tensors_index(&r->tensors, r->err);
    d->n_layer = r->base->h.n_layer;
    d->layers = arena_array(&d->arena, d->n_layer, sizeof *d->layers);
    if (rc == 0 && !d->layers)
        rc = nomem(r->err);
    for (uint32_t i = 0; rc == 0 && i < d->n_layer; i++)
        rc = bind_layer(r, i);
    for (size_t i = 0; rc == 0 && i < r->tensors.n; i++) {
        if (!r->tensors.v[i].used)
            rc = error_set(r->err, STATUS_UNIMPLEMENTED,
                           "adapter: \"%.*s\" adapts something that inferd can't adapt in this model",
                           STR_ARG(r->tensors.v[i].name));
        d->weight_bytes += r->tensors.v[i].bytes;
    }
    if (rc == 0 && !d->max_rank)
        rc = error_set(r->err, STATUS_INVALID, "adapter: the file adapts nothing");
    return rc;
}

/* ---- GGUF ---- */

static int check_adapter(const struct reader *r, const struct gguf *g)
{
    struct str type, lora, arch;
    if (!gguf_get_str(g, "general.type", &type) || !str_eqz(type, "adapter"))
        return error_set(r->err, STATUS_INVALID, "adapter: the key \"general.type\" is not \"adapter\"");
    if (!gguf_get_str(g, "adapter.type", &lora) || !str_eqz(lora, "lora"))
        return error_set(r->err, STATUS_UNIMPLEMENTED, "adapter: the key \"adapter.type\" is not \"lora\"");
    if (!gguf_get_str(g, "general.architecture", &arch) || !str_eqz(arch, r->base->h.arch))
        return error_set(r->err, STATUS_INVALID, "adapter: it is for the architecture \"%.*s\", the base model is %s",
                         STR_ARG(arch), r->base->h.arch);
    if (gguf_kv(g, "adapter.alora.invocation_tokens"))
        return error_set(r->err, STATUS_UNIMPLEMENTED, "adapter: activated LoRA is not supported");
    return 0;
}

static int read_gguf(struct reader *r, int dir_fd, const char *file)
{
    struct os_map map;
    struct gguf g;
    int rc = desc__map_file(dir_fd, file, r->d->maps, &map, r->err);
    if (rc == 0)
        rc = gguf_parse(map.p, map.n, &r->d->arena, &g, r->err);
    if (rc < 0)
        return rc;
    rc = check_adapter(r, &g);
    if (rc == 0 && gguf_kv(&g, "adapter.lora.alpha") &&
        (!gguf_get_f64(&g, "adapter.lora.alpha", &r->alpha) || !isfinite(r->alpha)))
        rc = error_set(r->err, STATUS_INVALID, "adapter: \"adapter.lora.alpha\" must be a finite number");
    gguf_get_str(&g, "general.name", &r->d->name);
    r->halves = strcmp(r->base->h.arch, "llama") != 0;
    if (rc == 0)
        rc = desc__list_gguf(&g, &r->d->arena, &r->tensors, r->err); /* indexes too: released before bind_all does it again */
    desc__tensors_release(&r->tensors);
    gguf_release(&g);
    return rc < 0 ? rc : bind_all(r);
}

/* ---- PEFT ---- */

static bool is_set(yyjson_val *v)
{
    return v && !yyjson_is_null(v) && !yyjson_is_false(v) && !(yyjson_is_ctn(v) && unsafe_yyjson_get_len(v) == 0);
}

static int read_peft_config(struct reader *r, yyjson_val *root)
{
    static const char *const unsupported[] = {"use_dora",       "modules_to_save",         "alpha_pattern",
                                              "fan_in_fan_out", "megatron_config",         "trainable_token_indices",
                                              "lora_bias",      "alora_invocation_tokens", "layer_replication"};
    struct str type, bias = STR("none");
    bool found = false;
    int rc = json_get_str(root, "peft_type", JSON_REQUIRED, &type, NULL, r->err);
    if (rc == 0 && !str_eqz(type, "LORA"))
        return error_set(r->err, STATUS_UNIMPLEMENTED, "\"peft_type\" is \"%.*s\"; supported: LORA", STR_ARG(type));
    if (rc == 0)
        rc = json_get_f64(root, "lora_alpha", JSON_REQUIRED, -1e6, 1e6, &r->alpha, NULL, r->err);
    if (rc == 0 && r->alpha == 0)
        return error_set(r->err, STATUS_INVALID, "\"lora_alpha\" must not be 0");
    if (rc == 0)
        rc = json_get_bool(root, "use_rslora", JSON_OPTIONAL, &r->rslora, &found, r->err);
    if (rc == 0)
        rc = json_get_str(root, "bias", JSON_OPTIONAL, &bias, NULL, r->err);
    if (rc == 0 && !str_eqz(bias, "none"))
        return error_set(r->err, STATUS_UNIMPLEMENTED, "\"bias\" is \"%.*s\"; supported: none", STR_ARG(bias));
    for (size_t i = 0; rc == 0 && i < COUNT_OF(unsupported); i++)
        if (is_set(yyjson_obj_get(root, unsupported[i])))
            return error_set(r->err, STATUS_UNIMPLEMENTED, "\"%s\" is set, which is not supported", unsupported[i]);
    return rc;
}

static int read_peft(struct reader *r, int dir_fd)
{
    struct json config;
    struct os_map map;
    size_t cap = 0;
    int rc = hf__read_json(r->d->maps, dir_fd, "adapter_config.json", JSON_REQUIRED, &config, r->err);
    if (rc < 0)
        return rc;
    rc = read_peft_config(r, config.root);
    if (rc < 0)
        rc = error_prefix(r->err, "adapter_config.json");
    json_release(&config);
    if (rc == 0)
        rc = desc__map_file(dir_fd, "adapter_model.safetensors", r->d->maps, &map, r->err);
    if (rc == 0 && (rc = hf__list_safetensors(&map, &r->d->arena, &r->tensors, &cap, r->err)) < 0)
        rc = error_prefix(r->err, "adapter_model.safetensors");
    r->tensors.naming = DESC_NAMES_HF;
    r->halves = true;
    return rc < 0 ? rc : bind_all(r);
}

int lora_desc_open(int dir_fd, const char *file, const struct model_desc *base, struct lora_desc **out, struct error *err)
{
    struct lora_desc *d = calloc(1, sizeof *d);
    struct reader r = {.base = base, .d = d, .err = err};
    *out = NULL;
    if (!d || !(d->maps = calloc(1, sizeof(struct desc_maps)))) {
        free(d);
        return nomem(err);
    }
    arena_init(&d->arena, 1 << 14, 0);
    map_init(&r.tensors.by_name, 0);
    int rc = base->h.rope == LLM_ROPE_NONE
                 ? error_set(err, STATUS_UNIMPLEMENTED, "adapter: adapters of %s are not supported", base->h.arch)
             : strcmp(file, ".") == 0 ? read_peft(&r, dir_fd)
                                      : read_gguf(&r, dir_fd, file);
    desc__tensors_release(&r.tensors);
    if (rc < 0) {
        lora_desc_release(d);
        return rc;
    }
    *out = d;
    return 0;
}

void lora_desc_release(struct lora_desc *d)
{
    if (!d)
        return;
    desc__maps_release(d->maps);
    arena_release(&d->arena);
    free(d);
}
