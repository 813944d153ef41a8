/* rope_table.c: angles in double, so that long positions lose nothing; rounded once to float. */
#include "engine/llm/rope_table.h"

#include <math.h>

#include "base/size.h"

static double clamp01(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

/* Dimension pair at which a rotation fits `turns` times into the original context (YaRN, eq. 15). */
static double yarn_dim(const struct llm_hparams *h, double base, double turns)
{
    return h->n_rot * log(h->scaling_ctx_orig / (turns * 2 * 3.14159265358979323846)) / (2 * log(base));
}

static void apply_yarn(struct rope_table *t, const struct llm_hparams *h, double base)
{
    uint32_t half = h->n_rot / 2;
    double low = floor(yarn_dim(h, base, h->yarn_beta_fast)), high = ceil(yarn_dim(h, base, h->yarn_beta_slow));
    low = low < 0 ? 0 : low;
    high = high > h->n_rot - 1 ? h->n_rot - 1 : high;
    for (uint32_t i = 0; i < half; i++) {
        double ramp = clamp01((i - low) / (high - low > 0.001 ? high - low : 0.001));
        t->inv_freq[i] *= ramp / h->scaling_factor + (1 - ramp);
    }
    t->mscale = (h->scaling_attn_factor > 0 ? h->scaling_attn_factor : 1.0f) * (float)(1 + 0.1 * log(h->scaling_factor));
}

static void divide(struct rope_table *t, const float *factors)
{
    for (uint32_t i = 0; factors && i < t->n_rot / 2; i++)
        t->inv_freq[i] /= factors[i];
}

void rope_table_init(struct rope_table *t, const struct llm_hparams *h, bool local, uint32_t n_ctx, double *inv_freq)
{
    double base = local ? h->rope_base_local : h->rope_base;
    *t = (struct rope_table){.n_rot = h->n_rot, .inv_freq = inv_freq, .mscale = 1.0f};
    for (uint32_t i = 0; i < h->n_rot / 2; i++)
        inv_freq[i] = pow(base, -2.0 * i / h->n_rot);
    if (local)
        return;
    switch (h->scaling) {
    case LLM_SCALING_NONE:
        divide(t, h->rope_factors);
        break;
    case LLM_SCALING_LINEAR:
        for (uint32_t i = 0; i < h->n_rot / 2; i++)
            inv_freq[i] /= h->scaling_factor;
        break;
    case LLM_SCALING_YARN:
        apply_yarn(t, h, base);
        break;
    case LLM_SCALING_LLAMA3:
        divide(t, h->rope_factors);
        break;
    case LLM_SCALING_LONGROPE:
        divide(t, n_ctx > h->scaling_ctx_orig && h->rope_factors_long ? h->rope_factors_long : h->rope_factors);
        t->mscale = h->scaling_attn_factor > 0 ? h->scaling_attn_factor : 1.0f;
        break;
    }
}

void rope_table_fill(const struct rope_table *t, uint32_t pos, float *cos_sin)
{
    uint32_t half = t->n_rot / 2;
    for (uint32_t i = 0; i < half; i++) {
        double angle = pos * t->inv_freq[i];
        cos_sin[i] = (float)cos(angle) * t->mscale;
        cos_sin[half + i] = (float)sin(angle) * t->mscale;
    }
}
