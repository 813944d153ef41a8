/* draft.h: a smaller model of the same vocabulary that guesses what the target will say.
 *
 * It has its own KV cache: a fixed number of slots, each as long as the context it serves. A slot belongs to one sequence until another takes
 * it; what it has computed is compared token by token with what the sequence now is, so nothing has to be told to it when guesses turn out
 * wrong, sequences end or come back. Guesses are sampled with the request's own parameters and random numbers: the closer the two models,
 * the more often both pick the same. Used by the step thread only, between steps, with the same team. */
#ifndef INFERD_ENGINE_LLM_DRAFT_H
#define INFERD_ENGINE_LLM_DRAFT_H

#include "base/error.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/llm/kernels/kernels.h"
#include "engine/llm/team.h"
#include "text/tokenizer.h"

struct draft;

struct draft_config {
    const struct kernels *kernels;
    struct team *team;
    const struct tokenizer *tokenizer; /* the target's: the draft's must have the same tokens */
    uint32_t n_vocab;                  /* the target's */
    uint32_t n_slots, n_ctx;           /* sequences that may be guessed for at once; tokens of each */
    struct logger *log;
};

/* Load `file` (or a folder) beneath dir_fd. INVALID: not a decoder, or another vocabulary (text says where it differs); NOMEM with numbers. Blocks. */
int draft_create(const struct engine_files *files, int dir_fd, const char *file, const struct draft_config *c,
                 struct draft **out, struct error *err) MUST_CHECK;
void draft_destroy(struct draft *d); /* NULL accepted */
size_t draft_weight_bytes(const struct draft *d);
size_t draft_scratch_bytes(const struct draft *d);

/* A sequence to guess for. */
struct draft_job {
    uint64_t request; /* with `choice`, the name of the sequence; never 0 */
    const int32_t *tokens;
    uint32_t n_tok;
    const struct token_params *params;
    uint64_t seed;
    uint32_t choice;
    uint32_t want; /* tokens to guess */
    int32_t *out;  /* [want] */
    uint32_t got;  /* filled by draft_run */
};

/* A new round of decisions: slots asked for by draft_claim until the next call are held. */
void draft_round(struct draft *d);
/* Does the sequence have a slot, or can it have one now? False as well when it is longer than a slot by then. */
bool draft_claim(struct draft *d, uint64_t request, uint32_t choice, uint32_t n_tok);
/* Guess for all jobs (claimed in this round) together. A job whose context isn't computed yet is brought closer and gets nothing; returns false
 * when there was one. */
bool draft_run(struct draft *d, struct draft_job *jobs, uint32_t n);

#endif
