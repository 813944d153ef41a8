/* infer_priv.h: for api/infer*.c only: the state of one KServe inference over HTTP, and the two halves of its work that touch bytes. */
#ifndef INFERD_API_INFER_PRIV_H
#define INFERD_API_INFER_PRIV_H

#include "api/api_priv.h"
#include "api/work.h"
#include "tensor/infer_json.h"
#include "tensor/infer_json_encode.h"

/* Outputs of one reply, in the order the client named them, else in the contract's. */
struct encoding {
    struct infer_json_reply_output *outputs; /* [n] */
    struct tensor *tops;                     /* [n]: classification results that outputs point to; zero elsewhere */
    struct slice *slices;                    /* [1 + n]: JSON head, then binary tails */
    size_t n, n_slices, header_bytes;        /* n_slices: with the head once it is there; the tails alone after an error */
};

struct infer_call {
    struct infer inf;
    struct loop_task task;
    struct http_request *request;
    struct api_call *call;
    struct api_turn *turn; /* of the request's loop */
    struct infer_json in;
    const size_t *output_index;    /* [in.n_outputs]: contract index of each requested output */
    bool raw_json;                 /* a raw request that asked for a JSON answer by Accept */
    struct model_version *version; /* own reference: the reply needs contract and names, and the engine's bytes, to the end */

    /* while decoding or encoding is done by the pool, see infer.c */
    struct work work;
    struct loop_timer deadline; /* for a body that waits to be decoded */
    int work_status;
    struct error work_error;
    struct encoding encoding;
};

/* infer_body.c. Any one thread at a time: they read the request's headers and body and allocate in its arena. */

/* The deadline that x-inferd-timeout-ms asks for into inf.deadline_ns; SCHED_NEVER without it. STATUS_INVALID. */
int api__infer_deadline(struct infer_call *c, struct error *err) MUST_CHECK;
/* Headers and body -> inf's inputs, outputs, parameters. On error inf and in hold what was decoded so far. */
int api__infer_decode(struct infer_call *c, struct error *err) MUST_CHECK;
/* inf's outputs -> c->encoding. On error it holds nothing. */
int api__infer_encode(struct infer_call *c, struct error *err) MUST_CHECK;
/* Whether that takes so long that it shouldn't be done on an I/O thread. */
bool api__infer_decode_is_long(const struct infer_call *c);
bool api__infer_encode_is_long(const struct infer_call *c);

#endif
