/* sampler.h: from logits to the next token of one sequence. Pure: a function of the logits, the sequence's own history, its parameters and
 * (seed, choice, position); never of what shares the batch.
 *
 * Order, as in OpenAI's and vLLM's servers with llama.cpp's filters: logit_bias and penalties -> (grammar mask) -> log-probabilities are taken
 * from the raw logits before all of that -> temperature 0 is argmax; else softmax at temperature, then top-k, typical, top-p, min-p cut the
 * candidates, and one uniform number keyed by (seed, choice, position) picks. Sources: Holtzman et al. 2020 (top-p), Meister et al. 2023
 * (typical), Nguyen et al. 2024 (min-p), Keskar et al. 2019 (repetition penalty). One thread a sampler. */
#ifndef INFERD_ENGINE_LLM_SAMPLER_H
#define INFERD_ENGINE_LLM_SAMPLER_H

#include "engine/engine.h"
#include "engine/llm/kernels/kernels.h"

/* What constrained output allows next (a grammar's state); the sampler asks, it does not advance. */
struct sampler_constraint {
    bool (*allows)(void *ctx, int32_t id); /* cheap */
    const uint64_t *(*mask)(void *ctx);    /* bit i, 64 a word: token i is allowed; NULL: out of memory */
    void *ctx;
};

#define SAMPLER_TOP_LOGPROBS_MAX 20

/* Counts of the tokens of one sequence, for the penalties; grows with the number of distinct tokens (bounded by the context). */
struct sampler_history;
struct sampler_history *sampler_history_create(uint32_t capacity_tok); /* NULL: out of memory */
void sampler_history_destroy(struct sampler_history *h);
void sampler_history_clear(struct sampler_history *h);
/* `prompt`: counts for the repetition penalty only, as in vLLM; generated tokens count for all three. */
void sampler_history_add(struct sampler_history *h, int32_t id, bool prompt);

/* Scratch for one step thread: candidates of one vocabulary. */
struct sampler;
struct sampler *sampler_create(const struct kernels *k, uint32_t n_vocab); /* NULL: out of memory */
void sampler_destroy(struct sampler *s);

/* Check every field; INVALID names the parameter, the value and what is accepted. Fills nothing in. */
int sampler_params_check(const struct token_params *p, uint32_t n_vocab, struct error *err) MUST_CHECK;
/* OpenAI's defaults: temperature 1, top_p 1, everything else off. */
void sampler_params_default(struct token_params *p);

struct sampler_input {
    float *logits; /* [n_vocab]; overwritten */
    const struct token_params *params;
    struct sampler_history *history;             /* NULL: no penalties */
    const struct sampler_constraint *constraint; /* NULL: unconstrained */
    uint64_t seed;
    uint32_t choice, position; /* of the token to be chosen */
    bool forbid_end;           /* min_tokens not reached: end-of-generation ids may not be chosen */
    const int32_t *end_ids;
    size_t n_end_ids;
};

struct sampler_output {
    int32_t id;
    float logprob; /* of id, from the raw logits */
    uint32_t n_top;
    int32_t top_id[SAMPLER_TOP_LOGPROBS_MAX];
    float top_logprob[SAMPLER_TOP_LOGPROBS_MAX];
};

/* STATUS_OK; INTERNAL when nothing can be chosen (every logit is NaN or masked); NOMEM when the constraint's mask could not be made. */
int sampler_next(struct sampler *s, const struct sampler_input *in, struct sampler_output *out, struct error *err) MUST_CHECK;

#endif
