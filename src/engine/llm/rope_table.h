/* rope_table.h: cosines and sines of rotary positions, with the scalings that models declare. engine/llm's own. Pure. */
#ifndef INFERD_ENGINE_LLM_ROPE_TABLE_H
#define INFERD_ENGINE_LLM_ROPE_TABLE_H

#include "engine/llm/file/model_desc.h"

/* Frequencies of one rope base. */
struct rope_table {
    uint32_t n_rot;
    double *inv_freq; /* [n_rot / 2], scaling applied */
    float mscale;     /* multiplies cosines and sines (yarn, longrope) */
};

/* `inv_freq` is the caller's [n_rot / 2]. local: the sliding-window layers' base, never scaled. n_ctx: the context that is served (longrope
 * chooses its factors by it). Sources: Su et al. 2021 (rope); Peng et al. 2023 (YaRN, NTK by parts); Llama 3.1's and Phi-3's published
 * configurations. */
void rope_table_init(struct rope_table *t, const struct llm_hparams *h, bool local, uint32_t n_ctx, double *inv_freq);

/* cos_sin[n_rot]: n_rot/2 cosines, then n_rot/2 sines, for position `pos`. */
void rope_table_fill(const struct rope_table *t, uint32_t pos, float *cos_sin);

#endif
