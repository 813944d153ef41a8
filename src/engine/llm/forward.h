/* forward.h: the forward pass: from tokens at positions to logits, reading and writing the paged KV cache.
 *
 * One call computes one step: any mix of sequences and stretches. All buffers are allocated at creation for the largest step, so a step
 * allocates nothing. The team's members run the same stages and meet at a barrier after each; results don't depend on how many they are
 * or on what else is in the batch (kernels.h, THE PROMISE). One thread calls; it is the team's member 0. */
#ifndef INFERD_ENGINE_LLM_FORWARD_H
#define INFERD_ENGINE_LLM_FORWARD_H

#include <stdatomic.h>

#include "engine/llm/model.h"

struct forward_config {
    uint32_t max_tok;    /* columns of one step */
    uint32_t max_logits; /* columns whose logits may be asked for in one step */
    uint32_t n_blocks;   /* of the KV pool */
    uint32_t n_ctx;      /* longest sequence that is served */
    bool hidden;         /* forward_keep_hidden will be used */
    enum kv_type kv_type;
};

/* A stretch of one sequence. */
struct forward_item {
    const int32_t *tokens; /* [n] to compute */
    uint32_t first;        /* position of tokens[0] */
    uint32_t n;
    const uint32_t *table; /* block ids from position 0 on */
    uint32_t n_logits;     /* logits of the last n_logits tokens are wanted (0, 1, or more for speculation) */
    uint32_t n_first;      /* above 0: tokens at this position and behind it are of type 1 (bert), else all of type 0 */
    const struct lora_adapter *lora; /* NULL: none; else forward_lora_prepare was called before */
    const _Atomic bool *cancelled;   /* NULL, or: the item need not be finished */
};

struct forward;
struct lora_adapter;

/* `m` and `team` are borrowed. NOMEM names the bytes. */
int forward_create(const struct llm_model *m, struct team *team, const struct forward_config *c, struct forward **out,
                   struct error *err) MUST_CHECK;
void forward_destroy(struct forward *f); /* NULL accepted */
/* Bytes of the KV pool and of the buffers for a configuration and so many team members; false on overflow or absurd shapes. */
bool forward_bytes(const struct llm_model *m, uint32_t members, const struct forward_config *c, size_t *kv, size_t *buffers);
/* Bytes of one block over all layers. */
size_t forward_block_bytes(const struct llm_hparams *h, enum kv_type t);

/* Copy a block's content in every layer (copy on write), before the step that needs it. */
void forward_copy_block(struct forward *f, uint32_t from, uint32_t to);

/* Make room for steps with adapters of up to `max_rank`, up to `max_adapters` in one step. Any thread, but once, and before the first
 * item with an adapter; NOMEM names the bytes. */
int forward_lora_prepare(struct forward *f, uint32_t max_rank, uint32_t max_adapters, struct error *err) MUST_CHECK;
/* What that took; 0 before. */
size_t forward_lora_bytes(const struct forward *f);

/* Compute. The sums of n and of n_logits must be within the configuration. Returns false when every item was cancelled in the middle:
 * nothing may then be counted as computed. */
bool forward_run(struct forward *f, const struct forward_item *items, size_t n_items);

/* Logits of the i-th wanted column of the last run, in item order: f32[n_vocab], soft-capped, writable until the next run. */
float *forward_logits(struct forward *f, uint32_t i);
/* Hidden state after the last norm of column c of the last run (items without adapters one after the other), f32[n_embd]: embeddings. Only
 * in runs with forward_keep_hidden. */
const float *forward_hidden(const struct forward *f, uint32_t column);
void forward_keep_hidden(struct forward *f, bool keep);

#endif
