/* options.c: what a model's config may say to this engine, as one table of rows. */
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "engine/llm/engine_priv.h"

enum kind { U64, BYTES, SHARE, KV_TYPE, KERNELS, POOLING, QUANTIZE, SPECULATION, FILE_NAME, BOOL };

static const struct row {
    const char *name;
    enum kind kind;
    size_t at;
    uint64_t min, max;
    const char *accepts;
} rows[] = {
#define AT(member) offsetof(struct llm_options, member)
    {"threads", U64, AT(threads), 0, TEAM_MAX, "0 (what the machine allows) to 256"},
    {"context", U64, AT(context_tok), 0, 1u << 24, "0 (the model's) to 16777216 tokens"},
    {"kv_cache_bytes", BYTES, AT(kv_cache_bytes), 0, UINT64_MAX, "a size like 2GiB, or 0 for kv_cache_share"},
    {"kv_cache_share", SHARE, AT(kv_cache_share), 0, 0, "a number above 0 and at most 0.95"},
    {"kv_cache_type", KV_TYPE, AT(kv_type), 0, 0, "f16, bf16 or q8_0"},
    {"max_sequences", U64, AT(max_seqs), 1, 4096, "1 to 4096"},
    {"max_waiting", U64, AT(max_waiting), 1, 1u << 20, "1 to 1048576"},
    {"max_step_tokens", U64, AT(max_step_tok), 16, 65536, "16 to 65536"},
    {"target_step_ms", U64, AT(target_step_ms), 0, 60000, "0 (2.25 times a step of the decodes alone) to 60000"},
    {"short_prompt_ms", U64, AT(short_prompt_ms), 0, 60000, "0 (every prompt is read in parts beside streams) to 60000"},
    {"max_adapters", U64, AT(max_adapters), 0, LORA_ADAPTERS_MAX, "0 (none) to 64"},
    {"max_adapter_rank", U64, AT(max_adapter_rank), 1, 4096, "1 to 4096"},
    {"adapter_memory", BYTES, AT(adapter_bytes), 0, UINT64_MAX, "a size like 512MiB"},
    {"speculation", SPECULATION, AT(speculation), 0, 0, "off, lookup or draft"},
    {"speculation_tokens", U64, AT(speculation_tok), 1, SPEC_GUESS_MAX, "1 to 16"},
    {"speculation_always", U64, AT(speculation_always), 0, 1, "0 (only while it pays) or 1"},
    {"draft_model", FILE_NAME, AT(draft_model), 0, 0, "the name of a file in the model's folder"},
    {"draft_sequences", U64, AT(draft_seqs), 1, SPEC_COLS_MAX, "1 to 64"},
    {"kernels", KERNELS, AT(kernels), 0, 0, "a kernel table that this CPU can run: ref, avx2, avx512"},
    {"quantize", QUANTIZE, AT(mix), 0, 0,
     "none, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k_s, q3_k_m, q3_k_l, q4_k_s, q4_k_m, q5_k_s, q5_k_m, q6_k"},
    {"matryoshka", BOOL, AT(matryoshka), 0, 0, "true or false"},
    {"pooling", POOLING, AT(pooling), 0, 0, "mean, cls or last"},
#undef AT
};

static bool read_kv_type(struct str v, enum kv_type *out)
{
    *out = str_eqz(v, "f16") ? KV_F16 : str_eqz(v, "bf16") ? KV_BF16 : KV_Q8;
    return *out != KV_Q8 || str_eqz(v, "q8_0");
}

static bool read_quantize(struct str v, struct llm_options *o)
{
    o->quantize = !str_eqz(v, "none");
    return !o->quantize || quant_mix_parse(v, &o->mix);
}

static bool read_pooling(struct str v, struct llm_options *o)
{
    o->has_pooling = true;
    o->pooling = str_eqz(v, "mean") ? LLM_POOL_MEAN : str_eqz(v, "cls") ? LLM_POOL_CLS : LLM_POOL_LAST;
    return o->pooling != LLM_POOL_LAST || str_eqz(v, "last");
}

static bool read_kernels(struct str v, char out[16])
{
    if (v.n == 0 || v.n > 15)
        return false;
    memcpy(out, v.p, v.n);
    out[v.n] = 0;
    return kernels_by_name(out) != NULL;
}

static bool read_speculation(struct str v, enum llm_speculation *out)
{
    *out = str_eqz(v, "off") ? LLM_SPECULATION_OFF : str_eqz(v, "lookup") ? LLM_SPECULATION_LOOKUP : LLM_SPECULATION_DRAFT;
    return *out != LLM_SPECULATION_DRAFT || str_eqz(v, "draft");
}

static bool read_name(struct str v, char out[256])
{
    if (v.n == 0 || v.n > 255 || memchr(v.p, 0, v.n))
        return false;
    memcpy(out, v.p, v.n);
    out[v.n] = 0;
    return true;
}

static bool read_value(const struct row *row, struct str v, struct llm_options *o)
{
    void *to = (char *)o + row->at;
    uint64_t *u = to;
    double *d = to;
    switch (row->kind) {
    case U64:
        return str_to_u64(v, u) && *u >= row->min && *u <= row->max;
    case BYTES:
        return str_to_bytes(v, u);
    case SHARE:
        return str_to_f64(v, d) && *d > 0 && *d <= 0.95;
    case KV_TYPE:
        return read_kv_type(v, to);
    case KERNELS:
        return read_kernels(v, to);
    case BOOL:
        *(bool *)to = str_eqz(v, "true");
        return *(bool *)to || str_eqz(v, "false");
    case QUANTIZE:
        return read_quantize(v, o);
    case POOLING:
        return read_pooling(v, o);
    case SPECULATION:
        return read_speculation(v, to);
    case FILE_NAME:
        return read_name(v, to);
    }
    return false;
}

int llm_options_read(const struct engine_option *options, size_t n, struct llm_options *out, struct error *err)
{
    *out = (struct llm_options){.kv_cache_share = 0.25,
                                .kv_type = KV_F16,
                                .max_seqs = 128,
                                .max_step_tok = 2048,
                                .short_prompt_ms = 250,
                                .max_adapters = 8,
                                .max_adapter_rank = 64,
                                .adapter_bytes = 1ull << 30,
                                .speculation = LLM_SPECULATION_LOOKUP,
                                .speculation_tok = 8,
                                .draft_seqs = 4};
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < COUNT_OF(rows); k++)
            if (str_eqz(options[i].key, rows[k].name) && !read_value(&rows[k], options[i].value, out))
                return error_set(err, STATUS_INVALID, "option %s is '%.*s'; accepted: %s", rows[k].name,
                                 STR_ARG(options[i].value), rows[k].accepts);
    if ((out->speculation == LLM_SPECULATION_DRAFT) != (out->draft_model[0] != 0))
        return error_set(err, STATUS_INVALID, "options speculation and draft_model belong together: %s",
                         out->draft_model[0] ? "with draft_model set, speculation must be 'draft'"
                                             : "speculation 'draft' needs a draft_model");
    return 0;
}
