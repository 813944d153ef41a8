/* step_cost.c: the cost model of step_cost.h. */
#include "engine/llm/step_cost.h"

#include <math.h>

#define MIXED_MAX    32         /* steps beside prompts until decodes are alone once, to see what they cost */
#define FIT_FADE     (1 / 256.) /* what a step weighs in the fitted line */
#define FIT_SPREAD   256.       /* standard deviation of positions that a line needs */
#define LEVEL_WEIGHT 0.25       /* what a step weighs in the level */

static uint32_t bucket_of(uint32_t n_decode)
{
    uint32_t log = 31 - (uint32_t)__builtin_clz(n_decode | 1);
    uint32_t i = n_decode < 32 ? n_decode : 22 + 2 * log + (n_decode >> (log - 1) & 1);
    return i < STEP_COST_BUCKETS ? i : STEP_COST_BUCKETS - 1;
}

/* A prompt token at position 0. */
static double level_ns(const struct step_cost *c)
{
    return c->here_ns / (1 + c->slope * c->here);
}

/* A decode reads a key for about what a prompt token does. */
static double keys_ns(const struct step_cost *c, double keys)
{
    return level_ns(c) * c->slope * keys;
}

/* ---- decodes ---- */

double step_cost_decodes(const struct step_cost *c, const struct step_load *load)
{
    const double *seen = c->decodes[bucket_of(load->n_decode)].ns;
    double least = 0;
    for (int i = 0; i < STEP_COST_SEEN; i++)
        if (seen[i] > 0 && (least <= 0 || seen[i] < least))
            least = seen[i];
    return least > 0 ? least + keys_ns(c, load->decode_keys) : 0;
}

bool step_cost_due(const struct step_cost *c, uint32_t n_decode)
{
    uint32_t i = bucket_of(n_decode);
    return c->decodes[i].ns[0] <= 0 || c->decodes[i].mixed >= MIXED_MAX;
}

static void learn_decodes(struct step_cost *c, const struct step_load *load, double ns)
{
    uint32_t i = bucket_of(load->n_decode);
    double keys = keys_ns(c, load->decode_keys);
    c->decodes[i].ns[c->decodes[i].next] = fmax(ns - keys, ns / 4);
    c->decodes[i].next = (c->decodes[i].next + 1) % STEP_COST_SEEN;
    c->decodes[i].mixed = 0;
}

/* ---- prompts ---- */

double step_cost_prompt(const struct step_cost *c, uint32_t first, uint32_t n)
{
    return level_ns(c) * n * (1 + c->slope * (first + 0.5 * n));
}

uint32_t step_cost_fit(const struct step_cost *c, const struct step_load *load, uint32_t first, double ns)
{
    double n;
    if (ns <= 0)
        return 0;
    if (c->here_ns <= 0) { /* a token more costs no more than a decode by its share in a step of them */
        double decodes = step_cost_decodes(c, load);
        n = decodes > 0 ? ns * load->n_decode / decodes : 0;
    } else { /* half * n^2 + one * n = ns, in the form that is exact where half is 0 */
        double one = level_ns(c) * (1 + c->slope * first), half = level_ns(c) * c->slope / 2;
        n = 2 * ns / (one + sqrt(one * one + 4 * half * ns));
    }
    n += 0.5; /* to the nearest: where a few tokens are all, always less would be a tenth of the time lost */
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* The slope of the line through what was seen, as a share of its height at position 0. */
static void fit(struct step_cost *c, double position, double ns)
{
    double keep = 1 - FIT_FADE;
    c->fit.n = c->fit.n * keep + 1;
    c->fit.x = c->fit.x * keep + position;
    c->fit.y = c->fit.y * keep + ns;
    c->fit.xx = c->fit.xx * keep + position * position;
    c->fit.xy = c->fit.xy * keep + position * ns;
    double x = c->fit.x / c->fit.n, y = c->fit.y / c->fit.n, spread = c->fit.xx / c->fit.n - x * x;
    if (spread < FIT_SPREAD * FIT_SPREAD)
        return;
    double rise = (c->fit.xy / c->fit.n - x * y) / spread, base = y - rise * x;
    base = fmax(base, y / 16); /* noise may turn the line too steep, or down */
    c->slope = rise > 0 ? rise / base : 0;
}

static void learn_prompts(struct step_cost *c, const struct step_load *load, double ns)
{
    double position = load->prompt_keys / load->n_prompt, each = ns / load->n_prompt;
    double expected = level_ns(c) * (1 + c->slope * position);
    if (expected > 0 && each > 2 * expected)
        each = 2 * expected;
    fit(c, position, each);
    expected = level_ns(c) * (1 + c->slope * position); /* by the new slope, which leaves the cost `here` as it was */
    c->here_ns = expected > 0 ? expected + LEVEL_WEIGHT * (each - expected) : each;
    c->here = position;
}

void step_cost_learn(struct step_cost *c, const struct step_load *load, double ns)
{
    if (!load->n_prompt) {
        learn_decodes(c, load, ns);
        return;
    }
    double decodes = load->n_decode ? step_cost_decodes(c, load) : 0;
    c->decodes[bucket_of(load->n_decode)].mixed++;
    learn_prompts(c, load, fmax(ns - decodes, ns / 10));
}
