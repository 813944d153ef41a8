/* quant_mix.c: the rules of quant_mix.h, checked against files that llama.cpp writes (tests/tools/quantize_oracle.py). */
#include "engine/llm/file/quant_mix.h"

#include "base/size.h"

static const struct {
    const char *name;
    enum weight_type base;
    uint32_t file_type;
} mixes[MIX_COUNT] = {
    [MIX_F32] = {"f32", WEIGHT_F32, 0},         [MIX_F16] = {"f16", WEIGHT_F16, 1},
    [MIX_BF16] = {"bf16", WEIGHT_BF16, 32},     [MIX_Q8_0] = {"q8_0", WEIGHT_Q8_0, 7},
    [MIX_Q4_0] = {"q4_0", WEIGHT_Q4_0, 2},      [MIX_Q4_1] = {"q4_1", WEIGHT_Q4_1, 3},
    [MIX_Q5_0] = {"q5_0", WEIGHT_Q5_0, 8},      [MIX_Q5_1] = {"q5_1", WEIGHT_Q5_1, 9},
    [MIX_Q2_K] = {"q2_k", WEIGHT_Q2_K, 10},     [MIX_Q3_K_S] = {"q3_k_s", WEIGHT_Q3_K, 11},
    [MIX_Q3_K_M] = {"q3_k_m", WEIGHT_Q3_K, 12}, [MIX_Q3_K_L] = {"q3_k_l", WEIGHT_Q3_K, 13},
    [MIX_Q4_K_S] = {"q4_k_s", WEIGHT_Q4_K, 14}, [MIX_Q4_K_M] = {"q4_k_m", WEIGHT_Q4_K, 15},
    [MIX_Q5_K_S] = {"q5_k_s", WEIGHT_Q5_K, 16}, [MIX_Q5_K_M] = {"q5_k_m", WEIGHT_Q5_K, 17},
    [MIX_Q6_K] = {"q6_k", WEIGHT_Q6_K, 18},
};

bool quant_mix_parse(struct str name, enum quant_mix *out)
{
    static const struct {
        const char *name;
        enum quant_mix mix;
    } shorts[] = {{"q3_k", MIX_Q3_K_M}, {"q4_k", MIX_Q4_K_M}, {"q5_k", MIX_Q5_K_M}};
    for (uint32_t i = 0; i < MIX_COUNT; i++)
        if (str_ieqz(name, mixes[i].name))
            return *out = (enum quant_mix)i, true;
    for (size_t i = 0; i < COUNT_OF(shorts); i++)
        if (str_ieqz(name, shorts[i].name))
            return *out = shorts[i].mix, true;
    return false;
}

const char *quant_mix_name(enum quant_mix m)
{
    return mixes[m].name;
}
uint32_t quant_mix_file_type(enum quant_mix m)
{
    return mixes[m].file_type;
}

const char *quant_mix_known(void)
{
    return "f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k_s, q3_k_m, q3_k_l, q4_k_s, q4_k_m, q5_k_s, "
           "q5_k_m, q6_k";
}

static bool has(struct str name, const char *part)
{
    size_t n = strlen(part);
    for (size_t i = 0; i + n <= name.n; i++)
        if (memcmp(name.p + i, part, n) == 0)
            return true;
    return false;
}

/* "blk.12.ffn_down.weight" -> 12; 0 for what has no layer. */
static uint32_t layer_of(struct str name)
{
    uint32_t layer = 0;
    if (!str_starts(name, STR("blk.")))
        return 0;
    for (size_t i = 4; i < name.n && name.p[i] >= '0' && name.p[i] <= '9' && layer < 1u << 20; i++)
        layer = layer * 10 + (uint32_t)(name.p[i] - '0');
    return layer;
}

/* The first and last eighth of the layers, and every third of those between. */
static bool more_bits(uint32_t layer, uint32_t n)
{
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

static enum weight_type for_attn_v(enum quant_mix mix, const struct quant_model *m, uint32_t layer, enum weight_type base)
{
    enum weight_type t = base;
    bool shared = m->n_head / m->n_head_kv >= 4;
    if (mix == MIX_Q2_K)
        t = shared ? WEIGHT_Q4_K : WEIGHT_Q3_K;
    else if (mix == MIX_Q3_K_M)
        t = layer < 2 ? WEIGHT_Q5_K : WEIGHT_Q4_K;
    else if (mix == MIX_Q3_K_L)
        t = WEIGHT_Q5_K;
    else if ((mix == MIX_Q4_K_M || mix == MIX_Q5_K_M) && more_bits(layer, m->n_layer))
        t = WEIGHT_Q6_K;
    else if (mix == MIX_Q4_K_S && layer < 4)
        t = WEIGHT_Q5_K;
    if (m->n_layer == 80 && m->n_head != m->n_head_kv &&
        (t == WEIGHT_Q3_K || t == WEIGHT_Q4_K)) /* the 70B class: v is tiny there */
        t = WEIGHT_Q5_K;
    return t;
}

static enum weight_type for_ffn_down(enum quant_mix mix, uint32_t layer, uint32_t n, enum weight_type base)
{
    switch (mix) {
    case MIX_Q2_K:
        return WEIGHT_Q3_K;
    case MIX_Q3_K_M:
        return layer < n / 16 ? WEIGHT_Q5_K : WEIGHT_Q4_K;
    case MIX_Q3_K_L:
        return WEIGHT_Q5_K;
    case MIX_Q4_K_S:
        return layer < n / 8 ? WEIGHT_Q5_K : base;
    case MIX_Q4_K_M:
    case MIX_Q5_K_M:
        return more_bits(layer, n) ? WEIGHT_Q6_K : base;
    default:
        return base;
    }
}

static enum weight_type for_attn_output(enum quant_mix mix, enum weight_type base)
{
    return mix == MIX_Q2_K ? WEIGHT_Q3_K : mix == MIX_Q3_K_M ? WEIGHT_Q4_K : mix == MIX_Q3_K_L ? WEIGHT_Q5_K : base;
}

/* A type whose blocks divide the rows. */
static enum weight_type that_fits(enum weight_type t, uint64_t cols)
{
    if (cols % weight_type_info((uint32_t)t)->block_elems == 0)
        return t;
    switch (t) {
    case WEIGHT_Q2_K:
    case WEIGHT_Q3_K:
        t = WEIGHT_Q4_0;
        break;
    case WEIGHT_Q4_K:
        t = WEIGHT_Q5_0;
        break;
    case WEIGHT_Q5_K:
        t = WEIGHT_Q5_1;
        break;
    case WEIGHT_Q6_K:
        t = WEIGHT_Q8_0;
        break;
    default:
        return WEIGHT_F16;
    }
    return cols % weight_type_info((uint32_t)t)->block_elems == 0 ? t : WEIGHT_F16;
}

static bool is_touched(struct str name, uint32_t n_dims)
{
    return n_dims >= 2 && str_ends(name, STR("weight")) && !has(name, "_norm.weight") &&
           !str_eqz(name, "position_embd.weight") && !str_eqz(name, "token_types.weight") && !has(name, "ffn_gate_inp.weight");
}

enum weight_type quant_mix_type(enum quant_mix mix, const struct quant_model *m, struct str name, uint32_t n_dims,
                                uint64_t cols, enum weight_type now)
{
    enum weight_type base = mixes[mix].base, t = base;
    uint32_t layer = layer_of(name);
    if (!is_touched(name, n_dims))
        return now;
    if (base == WEIGHT_F32 || base == WEIGHT_F16 || base == WEIGHT_BF16)
        return base;
    if (str_eqz(name, "output.weight") || (m->tied_output && str_eqz(name, "token_embd.weight")))
        t = cols % weight_type_info((uint32_t)base)->block_elems ? WEIGHT_Q8_0 : base == WEIGHT_Q8_0 ? base : WEIGHT_Q6_K;
    else if (has(name, "attn_v.weight") || has(name, "attn_qkv.weight"))
        t = for_attn_v(mix, m, layer, base);
    else if (has(name, "ffn_down"))
        t = for_ffn_down(mix, layer, m->n_layer, base);
    else if (has(name, "attn_output.weight"))
        t = for_attn_output(mix, base);
    return that_fits(t, cols);
}
