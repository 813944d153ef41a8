/* infer_priv.h: for api's own files: one inference's life, which is the same whichever protocol it came by (infer.c), and what a
 * protocol brings to it (infer_body.c for HTTP, kserve_grpc_infer.c for gRPC). */
#ifndef INFERD_API_INFER_PRIV_H
#define INFERD_API_INFER_PRIV_H

#include "api/api_priv.h"
#include "api/work.h"
#include "model/registry.h"
#include "tensor/infer_json.h"

/* What takes so long that it shouldn't be done on an I/O thread: about a quarter of a millisecond of work, on a machine that reads a
 * gigabyte of numbers a second and writes half of it. */
#define INFER_LONG_TEXT_BYTES   (256u << 10) /* numbers of a request that are converted one by one */
#define INFER_LONG_OUTPUT_BYTES (32u << 10)  /* tensors to be written as JSON (three times as much text), or compressed */
#define INFER_LONG_BODY_BYTES   (4u << 20)   /* any body: strings in it are checked one by one */

struct admission; /* admission_priv.h */
struct infer_call;

/* A protocol's part. A call is in one thread at a time. */
struct infer_protocol {
    enum model_protocol label;
    /* Bytes -> c->in, c->version and inf (api__infer_bind). I/O or pool thread. On error c holds what was decoded so far. Called once more
     * for each model that is to answer in place of the one asked for, with c->version set to it. */
    int (*decode)(struct infer_call *c, struct error *err);
    bool (*decode_is_long)(const struct infer_call *c);
    /* inf's outputs -> the protocol's own slices. I/O or pool thread. On error it holds nothing. */
    int (*encode)(struct infer_call *c, struct error *err);
    bool (*encode_is_long)(const struct infer_call *c);
    /* I/O thread; the last call, exactly one of the two: infer.c is done with `c` and holds nothing of it any more. */
    void (*reply)(struct infer_call *c);
    void (*fail)(struct infer_call *c, int status, const char *text, uint32_t retry_after_s);
};

enum infer_where { INFER_HERE, INFER_IN_POOL, INFER_SUBMITTED };

/* Embedded in the protocol's own call, zeroed. */
struct infer_call {
    /* set by the protocol */
    const struct infer_protocol *protocol;
    struct http_request *request;
    struct api_call *call;
    struct arena *arena; /* lives until reply or fail; decode and encode take their memory from it, whichever it is then */
    struct model_version
        *version; /* own reference: the reply needs contract and names, and the engine's bytes, to the end. Before
                                      the start, or by decode */
    uint64_t received_ns, deadline_ns; /* the latter SCHED_NEVER: none */
    struct str model;                  /* as asked for, once it is known */

    struct infer inf;
    struct infer_json in;
    uint64_t flagged;           /* by input policies (guard.h), a bit each */
    enum edge_verdict verdict;  /* of the guard, where it refused */
    const size_t *output_index; /* [in.n_outputs]: contract index of each requested output */

    /* infer.c's own */
    enum infer_where where;
    struct admission *admission; /* admission_priv.h; NULL: the server has no rules of overload */
    struct api_charge charge;
    struct loop_task task;
    struct api_turn *turn; /* of the request's loop */
    struct work work;
    struct arena
        own; /* what `arena` points to from the first time in the pool on: the given one is the I/O thread's, who also uses
                            it then (net probes a half-closed client) */
    struct arena *given;        /* the protocol's; NULL while it is in use */
    struct loop_timer deadline; /* for a body that waits to be decoded */
    int work_status;
    struct error work_error;
};

/* Run the call to its reply or fail, now or later. `rc` < 0: its model isn't ready, as `err` says, but another may answer. When it is its request's only one, call->infer points to it. I/O thread. */
void api__infer_start(struct infer_call *c, int rc, const struct error *err);
/* The client doesn't want it any more; reply or fail follows all the same, perhaps before this returns. I/O thread. */
void api__infer_cancel(struct infer_call *c);

/* For decode: c->in against c->version's contract; c->in's tensors become inf's. INVALID, NOMEM. */
int api__infer_bind(struct infer_call *c, struct error *err) MUST_CHECK;
/* How many outputs the reply has. */
size_t api__infer_outputs(const struct infer_call *c);
/* Output `i` of the reply: *out is the tensor itself, or its top classes, which are then put into *top (the caller releases it). */
int api__infer_output(struct infer_call *c, size_t i, struct tensor *top, const struct tensor **out,
                      struct error *err) MUST_CHECK;

/* A header that decides what the request means: more than one is INVALID. */
int api__header_once(const struct http_request *r, const char *name, struct str *out, struct error *err) MUST_CHECK;
/* The deadline that x-inferd-timeout-ms asks for; SCHED_NEVER without it. INVALID. */
int api__header_deadline(const struct http_request *r, uint64_t from_ns, uint64_t *deadline_ns, struct error *err) MUST_CHECK;

#endif
