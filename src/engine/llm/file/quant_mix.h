/* quant_mix.h: which type each tensor of a model gets under a named mix ("q4_k_m"): llama.cpp's rules, so that a file written here is
 * what its users expect under that name.
 *
 * A mix has a base type; the matrices that suffer most get a better one: the output, a part of the layers' attn_v and ffn_down. Vectors,
 * norms and position tables stay as they are. Rows that a type's blocks don't divide fall back to a type of 32, then to F16. Pure. */
#ifndef INFERD_ENGINE_LLM_FILE_QUANT_MIX_H
#define INFERD_ENGINE_LLM_FILE_QUANT_MIX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "engine/llm/file/weight_type.h"

enum quant_mix {
    MIX_F32,
    MIX_F16,
    MIX_BF16,
    MIX_Q8_0,
    MIX_Q4_0,
    MIX_Q4_1,
    MIX_Q5_0,
    MIX_Q5_1,
    MIX_Q2_K,
    MIX_Q3_K_S,
    MIX_Q3_K_M,
    MIX_Q3_K_L,
    MIX_Q4_K_S,
    MIX_Q4_K_M,
    MIX_Q5_K_S,
    MIX_Q5_K_M,
    MIX_Q6_K,
    MIX_COUNT,
};

/* What a rule looks at besides the tensor. */
struct quant_model {
    uint32_t n_layer, n_head, n_head_kv;
    bool tied_output; /* there is no output.weight: token_embd.weight is treated as it */
};

/* "q4_k_m", "Q8_0", "q4_k" (= q4_k_m); false when unknown. */
bool quant_mix_parse(struct str name, enum quant_mix *out);
const char *quant_mix_name(enum quant_mix m);
/* "f32, f16, ...": for messages; static. */
const char *quant_mix_known(void);
/* general.file_type of such a file. */
uint32_t quant_mix_file_type(enum quant_mix m);

/* The type for a tensor; `now`: the type it has, which is kept where the mix doesn't touch it. */
enum weight_type quant_mix_type(enum quant_mix mix, const struct quant_model *m, struct str name, uint32_t n_dims,
                                uint64_t cols, enum weight_type now);

#endif
