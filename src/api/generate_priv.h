/* generate_priv.h: for api/'s own files: one generation from request to last byte, whatever protocol asked for it.
 *
 *   I/O thread: generate_start ---> worker: protocol->prepare (JSON, chat template, tokens), submit ---> I/O thread: prepared
 *   step thread: on_event (copy, post) ---> I/O thread: protocol->event ... final event of every prompt ---> protocol->end, reply, free
 *
 * A call is heap memory that lives until its worker is done with it, every submitted prompt has had its final event, and the reply is
 * complete; all three are known on the request's I/O thread alone, which frees it. Each event is a message of its own, posted to the
 * request's loop, which wakes once a burst. The client leaving, a reader that is too slow, a failed sibling and the server's end all
 * cancel the same way: `cancelled` is set, then every prompt that has an id is cancelled; the worker looks at the flag after each
 * submit, so that none slips through. A reply starts with its first event (or the first keep-alive), so what fails before is a proper
 * error status. */
#ifndef INFERD_API_GENERATE_PRIV_H
#define INFERD_API_GENERATE_PRIV_H

#include <stdatomic.h>

#include "api/api_priv.h"
#include "api/work.h"
#include "base/arena.h"
#include "base/list.h"
#include "model/registry.h"
#include "wire/json.h"

#define GENERATE_PROMPTS_MAX 2048
/* A reply that nothing was written to begins after the first; then a comment each time the second went by in silence: proxies see life,
 * and a client that has left is noticed. */
#define GENERATE_BEGIN_NS     5000000000ull
#define GENERATE_KEEPALIVE_NS 1000000000ull

struct admission; /* admission_priv.h */
struct gen_call;
struct gen_guard;
struct guard_who;
struct gen_prompt;

/* One engine event on its way to the I/O thread: a single allocation, but for the final ones (gen_prompt.last). */
struct gen_event {
    struct loop_task task;
    struct gen_prompt *prompt;
    enum token_event_kind kind;
    uint32_t choice; /* of the whole call: prompt * n + choice of the prompt */
    enum token_finish finish;
    struct str text, stop;
    const int32_t *tokens;
    size_t n_tokens;
    const struct token_logprob *logprobs; /* [n_tokens * (1 + top)] or NULL */
    size_t n_logprobs;
    struct token_usage usage;
};

/* One engine request of a call. */
struct gen_prompt {
    struct gen_call *call;
    uint32_t index;
    int32_t *tokens; /* malloc'ed */
    size_t n_tokens;
    size_t n_first;      /* of a pair of texts: tokens of the first */
    _Atomic uint64_t id; /* 0: not submitted */
    _Atomic bool lost;   /* an event could not be copied: the answer is incomplete and must fail */
    int status;          /* of a FAILED end */
    char error[ERROR_TEXT_BYTES];
    struct token_usage usage; /* final */
    float *embedding;         /* [n_embedding], malloc'ed; of an embedding */
    size_t n_embedding;
    struct gen_event last;
};

/* What a protocol adds. `event` and `end` append to c->out; in a stream it is written from there, else it becomes the body. */
struct gen_protocol {
    /* Worker thread. Sets c->params, prompts, stream, keep-alive and its own state. INVALID etc.: an error reply. */
    int (*prepare)(struct gen_call *c, struct error *err);
    void (*event)(struct gen_call *c, const struct gen_event *ev);  /* TEXT events; I/O thread, as the others */
    void (*end)(struct gen_call *c);                                /* every prompt is DONE */
    void (*fail)(struct gen_call *c, int status, const char *text); /* in a stream that has begun */
    void (*release)(struct gen_call *c);                            /* (optional) */
    const char *stream_type;                                        /* content type of a stream */
    const char *prompt_field;                                       /* what the body calls it: "messages", "prompt" */
    bool only_prepare; /* nothing is submitted; prepare writes the body, and it is all */
};

/* How a reply leaves that isn't HTTP's own. Of each function, `owner` is what the call was started with; I/O thread. */
struct gen_carrier {
    /* What the worker was at, it has done: it no longer touches the request. (optional) */
    void (*prepared)(void *owner);
    /* A stream's next piece; its reference passes. False: the reader is behind, and generate__resume is called when it isn't any more. */
    bool (*write)(void *owner, struct slice piece);
    /* Once, the last: the call is gone. `body` (its reference passes) is an answer that isn't streamed. */
    void (*end)(void *owner, int status, const char *text, struct slice body);
};

struct gen_times {
    uint64_t submitted_ns, first_ns, last_ns, written_ns;
};

struct gen_call {
    const struct gen_protocol *protocol;
    const struct gen_carrier *carrier; /* NULL: HTTP */
    void *owner;                       /* the carrier's */
    struct gen_call **at;              /* with a carrier: points here until the call is gone */
    uint64_t received_ns;
    struct api *api;
    struct api_call *call;
    struct http_request *request;
    struct list link; /* api->gen.live */
    struct work job;  /* api->gen.workers */
    struct loop_task prepared_task;
    struct loop_timer keepalive;
    struct arena arena; /* the call's own: the worker's until prepared, then the I/O thread's */
    struct json doc;    /* the body */
    yyjson_val *fields; /* the object of it that has the sampling parameters */
    _Atomic bool cancelled;

    /* set by prepare */
    struct model_version *version;
    struct str model;            /* as the client named it */
    struct admission *admission; /* admission_priv.h; NULL: the server has no rules of overload, or it runs nothing */
    struct str adapter, cache_salt;
    int priority;
    bool embed;
    struct token_params params;
    uint64_t deadline_ns;
    struct gen_prompt *prompts;
    size_t n_prompts;
    bool stream;
    void *state;       /* the protocol's, in the arena */
    const char *param; /* of an error: the field, and OpenAI's code */
    const char *code;
    const char *grammar_param; /* the field that the grammar came from */
    uint64_t flagged;          /* by input policies, a bit each */
    bool bad_input;            /* one of them refused it */
    struct guard_who *who;     /* whom policies are looked up for; in the arena, NULL: nothing is guarded, or not known yet */
    struct gen_guard *guard;   /* guard_generate.c: output policies; NULL: none */

    /* the outcome of preparing, read by the I/O thread once `prepared` */
    int rc;
    struct error err;
    size_t n_submitted;

    /* I/O thread */
    bool prepared, began, blocked, cut, failed;
    size_t n_final;
    struct buf out;
    struct gen_times times;
};

/* Make a call and give it to a worker. Always leads to exactly one reply. I/O thread. */
void generate__start(struct api *a, struct http_request *r, struct api_call *call, const struct gen_protocol *protocol);

/* The same with a carrier. A request may have several such calls, but of one at a time may the worker be at work. *at points to the call as
 * long as there is one: it may have ended already on return. `alone`: it is its request's only call, and looks for the client's leaving itself. */
void generate__start_carried(struct api *a, struct http_request *r, struct api_call *call, const struct gen_protocol *protocol,
                             const struct gen_carrier *carrier, void *owner, struct gen_call **at, bool alone);
/* The carrier's reader takes more again. */
void generate__resume(struct gen_call *c);
/* Nobody wants the answer any more; the carrier's `end` follows, perhaps before this returns. */
void generate__abandon(struct gen_call *c);

/* For prepare. Parse the body (an object) into c->doc. */
int generate__parse_body(struct gen_call *c, struct error *err) MUST_CHECK;
/* Find the model and see that it generates; sets c->version. */
int generate__find(struct gen_call *c, struct str model, struct str version, struct error *err) MUST_CHECK;
/* Room for n prompts. INVALID: too many for one request, or for the model's queue even when it is empty. */
int generate__prompts(struct gen_call *c, size_t n, struct error *err) MUST_CHECK;
/* The engine's tokenizer on one prompt text; control tokens in it count. */
int generate__tokenize(struct gen_call *c, struct str text, size_t index, struct error *err) MUST_CHECK;
/* x-inferd-timeout-ms, or the model's own default. */
int generate__deadline(struct gen_call *c, struct error *err) MUST_CHECK;
/* Remember which field is at fault; returns rc. */
int generate__fault(struct gen_call *c, int rc, const char *param, const char *code);

/* Sum over all prompts; complete in `end`. */
struct token_usage generate__usage(const struct gen_call *c);

/* ---- generate_pool.c: the workers that prepare ---- */

/* NOMEM. */
int generate__pool_init(struct gen_pool *p) MUST_CHECK;
/* Join the threads; no call lives any more. */
void generate__pool_release(struct gen_pool *p);
/* EXHAUSTED: the queue is full. */
int generate__pool_push(struct gen_pool *p, struct gen_call *c, struct error *err) MUST_CHECK;
void generate__pool_remove(struct gen_pool *p, struct gen_call *c);
/* Worker thread: prepare, submit, post c->prepared_task. */
void generate__work(struct gen_call *c);
/* Cancel what was submitted. Once the worker is done with the call. */
void generate__cancel_ids(struct gen_call *c);

/* generate_events.c: token_request.on_event; ctx is a gen_prompt. */
void generate__on_event(void *ctx, const struct token_event *ev);
/* I/O thread: a message arrived. generate.c */
void generate__take(struct gen_call *c, struct gen_event *ev);

#endif
