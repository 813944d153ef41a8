/* step.h: which tokens of which sequences the next step computes: continuous batching over the paged KV pool. Pure: no clock, no
 * threads; the caller passes time and reports what a step took. One thread (the step thread).
 *
 * There are no prefill and decode phases: a sequence has `n_tok` tokens known and `n_computed` of them in the KV cache, and a step
 * lets n_computed catch up (vLLM's V1 scheduler). Each plan, in order:
 *   1. sequences that miss one token (decodes); then short prompts, whole and one after the other; then the parts of long ones, in order of
 *      (priority, arrival). Long prompts share what is left of the budget equally, so that a longer one can't starve a shorter one;
 *   2. when a block is needed and none is left, the running sequence that is worst by (priority, arrival) is preempted: its blocks go back
 *      (they stay findable as cached prefixes), its computed count to 0, and it returns to its place among the waiting;
 *   3. if nothing was preempted, waiting sequences are started while their whole known context, and one token more, fits in free and cached
 *      blocks. Within a priority the tenant that has been served least goes first (virtual token counter: Sheng et al., OSDI'24).
 * The best sequence is never a victim and everything admitted fits the pool alone, so every plan with work makes progress.
 *
 * Guesses (speculation) ride along with decodes where tokens and blocks are left that nobody else has a claim to: they never preempt.
 *
 * A prompt is short when reading all of it (but what the prefix cache has) costs at most `short_prompt_ns`. It is computed in one step, before
 * longer ones that came earlier: running streams wait that long for once, and nobody waits for it but those behind it. (First come,
 * first served is what the 95th percentile of the time to the first token wants: equal shares make every prompt as late as the last.)
 * A step takes one of them, or as many as are few tokens together. One that costs k times as much gets a k-th of that time in each step, while
 * that is more than a long one gets: a machine that is a little slower than thought must not make prompts of a common length long ones.
 *
 * While anything decodes, long prompts get what fits into a step of 2.25 times the decodes alone (or the target time, if that is less), but one
 * token at least: so the gap between two tokens of a stream stays below three times the usual, on a machine that may take 1.3 times as long
 * as foreseen, and a prompt gets more than half of the time. What
 * decodes and prompt tokens cost is learned (step_cost.h), the latter by their depth: an 8k prompt's last chunks are a third of its first.
 * One step in 32 has decodes alone even where prompts never end, to see their cost. With nothing decoding a step of long prompts takes about as
 * long as a short prompt may, so that no newcomer waits for longer, or `whole_tok`: smaller parts would read the weights too often. */
#ifndef INFERD_ENGINE_LLM_STEP_H
#define INFERD_ENGINE_LLM_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"
#include "engine/llm/blocks.h"

struct step_config {
    uint32_t max_seqs;    /* running at once */
    uint32_t max_waiting; /* queue bound */
    uint32_t max_tok;     /* tokens of one step, at most */
    uint32_t
        min_chunk_tok;  /* prompts share a step in parts of at least this much, if there is so much: else the older go first */
    uint32_t whole_tok; /* a step of prompts takes so many tokens for about the price, each, of any larger one */
    uint64_t short_prompt_ns; /* a prompt that costs no more is computed in one step; 0: none is */
    uint64_t target_step_ns;  /* a step with prompts beside decodes takes no longer; 0: only `stretch` counts */
    double stretch;           /* nor longer than so many times the decodes alone; 0: no bound */
    uint32_t max_tenants;     /* remembered for fairness; beyond it the least recently served is forgotten */
};
void step_config_default(struct step_config *c); /* 128, 1024, 2048, 16, 256, 250 ms, no target, 2.25, 1024 */

enum step_state { STEP_NEW, STEP_WAITING, STEP_RUNNING };

/* One sequence. Embedded in the engine's own, which keeps `tokens` and `table` alive. */
struct step_seq {
    /* set by the caller before step_admit */
    const int32_t *tokens; /* [n_tok]: prompt, then what was generated */
    uint32_t n_tok;        /* the caller raises it as tokens are sampled */
    uint32_t limit_tok;    /* the most it will ever have: prompt + max_tokens; fixes what must fit the pool */
    uint32_t *table;       /* [(limit_tok + 31) / 32]: block ids */
    uint64_t salt;         /* of the prefix cache */
    uint64_t tenant;
    uint32_t priority; /* 0 is most urgent */
    /* set by the caller before step_next, taken by it: tokens[n_tok, n_tok + n_draft) are guesses to be computed along with the one token
     * that a decode misses; n_tok + n_draft <= limit_tok */
    uint32_t n_draft;
    /* the scheduler's */
    enum step_state state;
    uint32_t n_computed;   /* tokens in the KV cache */
    uint32_t n_blocks;     /* entries of table in use */
    uint32_t n_sealed;     /* of them, full and offered to the prefix cache */
    uint32_t n_cached_tok; /* found in the prefix cache at its first start: usage.cached_tokens */
    uint32_t n_found_tok;  /* the same at its last start */
    uint32_t n_preempted;
    bool started;
    bool planned;     /* has an item in the plan */
    uint64_t arrival; /* sequence number */
    uint32_t tenant_slot;
    struct list link; /* waiting or running list */
};

/* A stretch of one sequence to compute: tokens [first, first + n). Positions' blocks are in seq->table. */
struct step_item {
    struct step_seq *seq;
    uint32_t first, n;
    uint32_t n_draft; /* of n, at the end: guesses; logits are wanted for the known token and each of them */
    bool last;        /* reaches the end of what is known: logits of the last known token are wanted */
};

/* The KV content of `from` must be copied to `to` before the step (copy on write of a shared block). */
struct step_copy {
    const struct step_seq *seq;
    uint32_t from, to;
};

struct step_plan {
    struct step_item *items;
    size_t n_items;
    struct step_copy *copies;
    size_t n_copies;
    uint32_t n_tok;       /* sum over items */
    uint32_t n_decode;    /* items with one known token that is the last */
    uint32_t n_draft;     /* sum over items */
    uint32_t n_preempted; /* in this plan */
};

struct step;

/* `blocks` is borrowed. NULL when out of memory. */
struct step *step_create(const struct step_config *c, struct blocks *blocks);
void step_destroy(struct step *s); /* no sequence may be left */

/* Queue a new sequence. EXHAUSTED: the queue is full (text has the bound); INVALID: limit_tok can never fit the pool (text has both
 * numbers). Afterwards the sequence is WAITING. */
int step_admit(struct step *s, struct step_seq *seq, struct error *err) MUST_CHECK;

/* Start `child` as a copy of the running `parent` (choices that share a prompt): it takes references to parent's blocks; the last,
 * partly filled one is copied on the first write. EXHAUSTED: max_seqs. */
int step_fork(struct step *s, const struct step_seq *parent, struct step_seq *child, struct error *err) MUST_CHECK;

/* The sequence is over (finished, cancelled, failed): its blocks go back now. Any state but NEW. */
void step_remove(struct step *s, struct step_seq *seq);

/* Between steps: is a prompt that takes several steps in the midst of them? */
bool step_reads_prompt(struct step *s);

/* What to compute now; valid until the next call. n_items == 0: nothing can run (only when nothing is admitted). */
const struct step_plan *step_next(struct step *s);

/* The plan was computed in `step_ns`: counts advance, full blocks are offered to the prefix cache. An item of a sequence that is
 * to be abandoned (failed in the middle) must be removed before this call. */
void step_done(struct step *s, uint64_t step_ns);

/* After step_done: the first `n` more of the guesses computed in that step were right, and the caller has raised n_tok over them. */
void step_accept(struct step *s, struct step_seq *seq, uint32_t n);

struct step_stats {
    uint32_t running, waiting;
    uint64_t preemptions, steps, tokens;
    uint64_t prefix_queries_tok, prefix_hits_tok; /* of started sequences */
};
void step_stats(const struct step *s, struct step_stats *out);
/* Lists, counts and blocks agree; for tests and debug builds. */
bool step_validate(const struct step *s);

#endif
