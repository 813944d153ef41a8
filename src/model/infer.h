/* infer.h: one inference on one model version, from validated tensors to output tensors.
 *
 * A `struct infer` is embedded in the protocol's own request state (api/). Life: filled by the protocol -> infer_submit ->
 * queued -> (batched, run) -> done() exactly once -> the protocol encodes -> infer_release. Ownership: inputs keep the
 * slices they came with until infer_release; outputs own references into the engine's buffers until infer_release.
 * Threads: built and released on the I/O thread; between submit and done only model/ touches it, except infer_cancel. */
#ifndef INFERD_MODEL_INFER_H
#define INFERD_MODEL_INFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"
#include "sched/batcher.h"
#include "tensor/tensor.h"

struct model_version;

#define INFER_IO_MAX 64 /* inputs or outputs of one model; a model with more is refused at load */

/* Timestamps of the stages, monotonic ns; 0 where a stage did not happen. The one record that metrics, access log, traces
 * and monitors read. */
struct infer_times {
    uint64_t received_ns; /* last byte of the request */
    uint64_t decoded_ns;  /* tensors ready */
    uint64_t queued_ns;   /* admitted */
    uint64_t batched_ns;  /* left the queue in a batch */
    uint64_t input_ns;    /* batch gathered and padded */
    uint64_t computed_ns; /* engine returned */
    uint64_t output_ns;   /* outputs sliced */
    uint64_t encoded_ns;  /* reply built (set by api) */
};

/* Whoever done() tells, told once for all answers of a batch rather than once an answer: begin, done() for each, end. Lives as long as
 * any infer that names it, and from begin to end. Any thread, must not block. */
struct infer_waker {
    void (*begin)(struct infer_waker *w);
    void (*end)(struct infer_waker *w);
};

/* Versions that got requests and whose instances have not been woken for them yet. A thread that has more requests at hand collects
 * them, so that an instance on the same core does not run in between, batch by batch of one. Zeroed: empty. */
#define INFER_WAKES_MAX 8
struct infer_wakes {
    struct model_version *versions[INFER_WAKES_MAX]; /* each holds a reference */
    size_t n;
};

struct infer {
    /* set by the caller */
    struct model_version *version; /* holds a reference, dropped by infer_release */
    struct tensor *inputs; /* caller's array (request arena) with room for max(n_inputs, contract n_inputs): given in any
                                order, by name; infer_submit reorders it to the contract's order, absent optional ones as
                                DTYPE_INVALID */
    size_t n_inputs;
    const bool *wanted;     /* [contract n_outputs], or NULL: every output */
    struct tensor *outputs; /* caller's array [contract n_outputs], results in contract order; dtype DTYPE_INVALID where not
                                wanted. Given zeroed. Arrays belong to the caller, their slices are dropped by infer_release */
    uint64_t deadline_ns;   /* absolute monotonic, SCHED_NEVER: the model's default is used */
    uint64_t timeout_ns;    /* KServe/Triton queue timeout, 0: none */
    uint32_t priority;      /* 0: default */
    uint32_t class;         /* how much it matters, as batch_item.class; before priority */
    uint64_t tenant;        /* as batch_item.tenant */
    const char *request_id; /* for messages; lives as long as the infer */
    void (*done)(struct infer *inf); /* exactly once after a successful infer_submit; any thread, must not block */
    struct infer_waker *waker;       /* stands around done(); NULL: none */

    /* results */
    int status; /* STATUS_OK or negative with error.text set */
    struct error error;
    struct infer_times times;
    uint32_t rows;       /* of this request; 1 for models that don't batch */
    uint32_t batch_rows; /* of the batch it ran in */
    bool cache_hit;

    /* model/'s own */
    struct batch_item item;
    struct list queued;     /* in the version's list of queued requests */
    _Atomic uint32_t state; /* see infer.c */
    void *priv;             /* padding bookkeeping; owned by model/ */
};

void infer_init(struct infer *inf);

/* Validate the inputs against the version's contract (names, dtypes, shapes with the batch rule, sizes), look in the response
 * cache, and queue. 0: done() will be called (perhaps before this returns). Negative: not queued, done() is not called,
 * `err` is a whole client-facing sentence. STATUS_INVALID / EXHAUSTED / DEADLINE / UNAVAILABLE / NOMEM. Never blocks.
 * `later`: where to note that an instance is to be woken, by infer_wake soon after; NULL: it is woken here. */
int infer_submit(struct infer *inf, struct infer_wakes *later, struct error *err) MUST_CHECK;

/* As infer_submit, but only from the response cache, also where the queue would refuse it. NOT_FOUND: it isn't there, or there is no cache. */
int infer_answer_cached(struct infer *inf, struct error *err) MUST_CHECK;

/* Wake what infer_submit noted; `w` is empty afterwards. */
void infer_wake(struct infer_wakes *w);

/* The client went away. Queued: removed now, done() is called with STATUS_CANCELLED. Running: the engine is asked to stop
 * when it runs alone and can be cancelled; done() follows either way. Idempotent; no effect after done(). */
void infer_cancel(struct infer *inf);

/* Drop inputs, outputs and the version. */
void infer_release(struct infer *inf);

#endif
