/* engine_priv.h: for siblings in engine/llm only: a loaded model with its step thread, its requests and their choices.
 *
 * Threads. Callers (any thread) make requests and put them into `incoming` under `lock`. The step thread takes them from there and
 * owns them until their final event; it alone changes `live`, under `lock`, so that cancel_id may look through it. Scheduler, blocks,
 * forward pass, sampler and buffers belong to the step thread. Events are delivered without a lock. */
#ifndef INFERD_ENGINE_LLM_ENGINE_PRIV_H
#define INFERD_ENGINE_LLM_ENGINE_PRIV_H

#include <stdatomic.h>

#include "base/arena.h"
#include "base/list.h"
#include "engine/llm/draft.h"
#include "engine/llm/forward.h"
#include "engine/llm/llm.h"
#include "engine/llm/lora.h"
#include "engine/llm/sampler.h"
#include "engine/llm/spec.h"
#include "engine/llm/step.h"
#include "os/thread.h"
#include "text/grammar.h"
#include "text/stop.h"

/* ---- options.c ---- */

enum llm_speculation { LLM_SPECULATION_OFF, LLM_SPECULATION_LOOKUP, LLM_SPECULATION_DRAFT };

struct llm_options {
    uint64_t threads;        /* 0: what affinity and cgroup allow */
    uint64_t context_tok;    /* 0: the model's */
    uint64_t kv_cache_bytes; /* 0: a share */
    double kv_cache_share;   /* of the memory that is left after the weights */
    enum kv_type kv_type;
    uint64_t max_seqs, max_waiting /* 0: by what the model gives */, max_step_tok, target_step_ms, short_prompt_ms;
    uint64_t max_adapters, max_adapter_rank, adapter_bytes;
    char kernels[16]; /* "": the best */
    bool quantize;    /* matrices that are stored in floats, as `mix` says */
    enum quant_mix mix;
    bool matryoshka;  /* an embedding may be shortened, whatever the file says */
    bool has_pooling; /* the file's word on it is overruled */
    enum llm_pooling pooling;
    enum llm_speculation speculation;
    uint64_t speculation_tok, draft_seqs, speculation_always;
    char draft_model[256]; /* beneath the model's folder; "": none */
};

/* Defaults, then what `options` say. INVALID names the option, its value and what is accepted; keys that aren't ours are left alone. */
int llm_options_read(const struct engine_option *options, size_t n, struct llm_options *out, struct error *err) MUST_CHECK;

/* ---- llm_metrics.c ---- */

#define LLM_BUCKETS_MAX 24

struct llm_histogram {
    uint64_t counts[LLM_BUCKETS_MAX + 1], n; /* not cumulative; the last is over all bounds */
    double sum;
};

/* Guesses: groups of them (one sequence, one step), tokens guessed, tokens that were right. */
struct llm_speculated {
    uint64_t drafts, draft_tok, accepted_tok;
};

/* Guarded by the model's lock. */
struct llm_stats {
    struct llm_histogram ttft_s, itl_s, e2e_s, queue_s, step_tok;
    uint64_t prompt_tok, cached_tok, generated_tok;
    uint64_t finished[TOKEN_FINISH_CANCELLED + 1], failed, rejected;
    struct step_stats step;     /* as of the last step */
    struct blocks_stats blocks; /* likewise */
    struct llm_speculated speculated;
};

void llm_observe_seconds(struct llm_histogram *h, uint64_t ns);
void llm_observe_tokens(struct llm_histogram *h, uint32_t tok);

/* ---- requests: request.c ---- */

/* Tokens whose text is still held back. */
struct pending {
    int32_t *ids;
    size_t *ends;                   /* bytes of the choice's output up to and including each token */
    struct token_logprob *logprobs; /* [cap * (1 + top_n)] or NULL */
    size_t n, cap;
};

/* One answer of a request: a sequence of the scheduler. */
struct choice {
    struct step_seq seq; /* seq.state == STEP_NEW: not with the scheduler */
    struct request *request;
    uint32_t index;
    int32_t *tokens; /* [limit_tok]: prompt, then output */
    uint32_t *table;
    struct sampler_history *history; /* NULL: no penalties asked */
    struct grammar_state *grammar;   /* NULL: unconstrained */
    struct stop_text text;
    struct pending pending;
    size_t bytes; /* of output so far */
    uint32_t n_generated;
    uint64_t last_token_ns;
    struct spec_record record;
};

struct request {
    struct list link; /* incoming or live */
    struct engine_model *model;
    uint64_t id, seed, deadline_ns, arrived_ns, started_ns;
    uint32_t n_prompt, n_open; /* choices that have not ended */
    struct token_params params;
    int32_t *end_ids; /* end-of-generation ids (unless ignored), then the request's stop ids */
    size_t n_end_ids;
    void (*on_event)(void *ctx, const struct token_event *ev);
    void *ctx;
    _Atomic bool cancelled;
    bool forked;                  /* the other choices have been started from the first */
    struct lora_adapter *adapter; /* NULL: the base; held until the request is destroyed */
    bool embed;
    bool picked; /* embed: part of the step that is being laid out */
    uint32_t n_first;
    float *pooled; /* [n_embd] of a request with embed */
    struct arena arena;
    struct choice *choices; /* [params.n] */
};

/* Check and copy. INVALID names the parameter. The request is not yet known to anybody. */
int request_create(struct engine_model *m, const struct token_request *in, struct request **out, struct error *err) MUST_CHECK;
void request_destroy(struct request *r); /* NULL accepted; no choice may be with the scheduler */
/* Remember a token of `c` until its text is given. False: out of memory. */
bool choice_add_pending(struct choice *c, const struct sampler_output *o);
struct token_usage request_usage(const struct request *r);

/* ---- constraint.c: constrained output ---- */

#define LLM_CONSTRAINTS_KEPT 32
#define LLM_CONSTRAINT_BYTES ((size_t)128 << 20) /* of all that are kept */

struct llm_constraint {
    struct grammar *grammar; /* NULL: a free place */
    enum grammar_kind kind;
    char *source;
    size_t n;
    uint64_t hash, used;
};

struct llm_constraints {
    struct grammar_vocab *vocab;
    struct os_mutex lock; /* RANK_ENGINE: v, clock */
    struct llm_constraint v[LLM_CONSTRAINTS_KEPT];
    uint64_t clock;
    bool ready;
};

int llm_constraints_open(struct engine_model *m, struct error *err) MUST_CHECK;
void llm_constraints_close(struct engine_model *m); /* no request may be left */
/* The grammar that `p` asks for, with a reference for the caller, or NULL when it asks for none. INVALID says why it can't be used. Any thread;
 * compiles for up to the grammar's time limit. */
int llm_constraint_get(struct engine_model *m, const struct token_params *p, struct grammar **out,
                       struct error *err) MUST_CHECK;
/* Is there room for the shortest output? `g` may be NULL. */
int llm_constraint_fits(const struct grammar *g, uint32_t max_tok, struct error *err) MUST_CHECK;
/* For a sampler_constraint whose ctx is a grammar_state. */
bool llm_constraint_allows(void *grammar_state, int32_t id);
const uint64_t *llm_constraint_mask(void *grammar_state);

/* ---- encoder.c: models that give embeddings ---- */

/* One step of such a model, on the step thread: as many whole requests as fit, computed together; each gets its final event. */
void llm_encoder_step(struct engine_model *m);
/* Blocks of the KV pool that such a model's steps can use at most, for sequences of up to n_ctx. */
uint64_t llm_encoder_blocks(const struct llm_options *o, uint64_t n_ctx);

/* ---- loop.c: for encoder.c ---- */

/* The final event; `r` is gone afterwards. */
void llm_finish(struct engine_model *m, struct request *r, struct token_event ev);
/* `r` begins to run. */
void llm_start_request(struct engine_model *m, struct request *r, uint64_t now);

/* ---- the model ---- */

struct engine_model {
    char name[132];
    struct llm_chat *chat; /* chat.c */
    struct engine_text text_facts;
    char labels[320]; /* of all its series: model="...",version="..." */
    struct llm_options options;
    struct logger *log;
    struct engine_contract contract;
    char devices[64];
    struct llm_model *weights;
    struct tokenizer *tokenizer;
    struct team *team;
    struct forward *forward;
    struct forward_config forward_config;
    struct blocks *blocks;
    struct step *step;
    struct sampler *sampler;
    struct llm_constraints constraints;
    size_t kv_bytes, buffer_bytes;
    uint64_t hash_seed;
    uint32_t n_ctx, n_blocks;
    bool embeds;  /* gives embeddings: no scheduler, no sampler */
    int32_t *eog; /* all end-of-generation ids of the vocabulary */
    size_t n_eog;

    struct os_mutex lock; /* RANK_ENGINE: incoming, live's links, n_unstarted, next_id, closing, stats, adapters */
    struct os_cond wake;
    struct list incoming, live;
    uint32_t n_unstarted; /* requests that have not begun to run: what max_waiting bounds */
    uint64_t next_id;
    bool closing;
    struct llm_stats stats;
    struct lora_set adapters;
    bool adapters_prepared; /* the forward pass has its buffers for them */
    _Atomic uint64_t steps;
    _Atomic uint32_t n_requests; /* incoming and live */
    struct os_thread thread;
    bool thread_started;

    /* the step thread's */
    struct forward_item *items;     /* [max_seqs] */
    struct choice **item_choices;   /* [max_seqs] */
    struct request **item_requests; /* [max_seqs]: compared, never followed */
    uint32_t *item_logits;          /* [max_seqs]: rows of logits */
    float *logits_copy;             /* [n_vocab]: choices that share a first distribution */
    uint32_t *block_ids;            /* [n_blocks]: 0, 1, 2, ...: tables of a step that embeds */
    struct buf text;                /* of one event */
    struct spec_gate gate;
    struct spec_want *wants;      /* [SPEC_COLS_MAX] */
    struct choice **guessers;     /* [SPEC_COLS_MAX] */
    struct draft *draft;          /* NULL: none */
    struct draft_job *draft_jobs; /* [SPEC_COLS_MAX] */
    struct llm_speculated speculated;
};

/* ---- adapters.c ---- */

/* The slots of engine_ops. */
int llm_adapter_load(struct engine_model *m, struct str name, int dir_fd, const char *path, struct error *err) MUST_CHECK;
int llm_adapter_unload(struct engine_model *m, struct str name, struct error *err) MUST_CHECK;
void llm_adapter_each(struct engine_model *m, void (*each)(void *ctx, struct str name), void *ctx);
/* The adapter of that name, held for a request; empty: none. NOT_FOUND names it. Takes the lock. */
int llm_adapter_hold(struct engine_model *m, struct str name, struct lora_adapter **out, struct error *err) MUST_CHECK;
/* Give it back; the last one of an unloaded adapter frees it. NULL accepted. Takes the lock. */
void llm_adapter_drop(struct engine_model *m, struct lora_adapter *a);
/* All of them, when no request is left. */
void llm_adapters_release(struct engine_model *m);
/* chat.c: compile the model's templates and fill text_facts. Only NOMEM fails: a template that can't be used makes a model that doesn't
 * chat and says why. After weights and tokenizer. */
int llm_chat_open(struct engine_model *m, struct error *err) MUST_CHECK;
void llm_chat_close(struct engine_model *m);
int llm_chat(struct engine_model *m, struct str args, size_t max_tok, int32_t **tokens, size_t *n, struct error *err);
const struct engine_text *llm_text(const struct engine_model *m);

/* ---- speculate.c: the step thread's ---- */

/* Before a plan: write guesses behind the decodes' tokens and say so in seq.n_draft. */
void llm_speculate(struct engine_model *m);
/* Behind a step that was computed whole. */
void llm_speculation_cost(struct engine_model *m, const struct step_plan *plan, uint64_t step_ns);
/* Of the n > 0 guesses of `c` in that step the first `right` were right. */
void llm_speculation_outcome(struct engine_model *m, struct choice *c, uint32_t n, uint32_t right);

/* loop.c: the step thread's body. Ends when m->closing, after a final event for every request. */
void llm_loop(void *engine_model);
/* llm_metrics.c */
void llm_metrics(const struct engine_model *m, struct buf *out);

#endif
