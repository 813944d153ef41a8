/* step_cost.h: for step.c: what steps cost, learned from the steps that were run. Pure; the step thread's.
 *
 * A step of decodes alone has a price by their number (with guesses: of columns), and one more part by how many keys they read. A token of a prompt costs
 *     level * (1 + slope * position)
 * since its products with the weights are always the same and its attention reads every position before it (8,000 positions can make it
 * three times as dear). The level follows the last few steps; the slope changes only with the model and the machine, and is a line fitted
 * through the last few hundred. A step that the machine held up must teach neither that decodes are slow (prompts would be given as much
 * again) nor that prompts are: of decodes the cheapest of the last three counts, and a prompt's step counts twice its expectation at most. */
#ifndef INFERD_ENGINE_LLM_STEP_COST_H
#define INFERD_ENGINE_LLM_STEP_COST_H

#include <stdbool.h>
#include <stdint.h>

/* Counts of decodes with a cost of their own: each up to 31, then two for each doubling. */
#define STEP_COST_BUCKETS 48
#define STEP_COST_SEEN    3

/* Zero-initialised is "nothing known". */
struct step_cost {
    struct {
        double ns[STEP_COST_SEEN]; /* steps of decodes alone, without what their keys cost; 0: not seen yet */
        uint32_t next;             /* the entry to be replaced */
        uint32_t mixed;            /* steps with prompts beside so many decodes since the last entry */
    } decodes[STEP_COST_BUCKETS];
    double here_ns, here; /* a prompt token at this position: where prompts were last read; 0: unknown */
    double slope;         /* what a position adds, as a share of the cost at position 0 */
    struct {
        double n, x, y, xx, xy; /* of (mean position, ns a token), each step once, fading */
    } fit;
};

/* What a step did: `n_decode` counts guesses as well, `decode_keys` is the sum of the decodes' positions, `prompt_keys` that of the prompts' tokens. */
struct step_load {
    uint32_t n_decode, n_prompt;
    double decode_keys, prompt_keys;
};

/* A step of `load` took `ns` > 0. */
void step_cost_learn(struct step_cost *c, const struct step_load *load, double ns);
/* What the decodes of `load` cost alone; 0: not known. */
double step_cost_decodes(const struct step_cost *c, const struct step_load *load);
/* It isn't known, or was last seen so long ago that a step of decodes alone is due. */
bool step_cost_due(const struct step_cost *c, uint32_t n_decode);
/* How many tokens of a prompt, from position `first` on, cost `ns`, to the nearest; as far as is known, else what can't cost more than that by
 * the costs of the decodes in `load`. */
uint32_t step_cost_fit(const struct step_cost *c, const struct step_load *load, uint32_t first, double ns);
/* What `n` tokens from `first` on cost; 0: not known. */
double step_cost_prompt(const struct step_cost *c, uint32_t first, uint32_t n);

#endif
