/* kserve_grpc_infer_priv.h: for kserve_grpc_infer.c and kserve_grpc_generate.c: an inference's message as it came. */
#ifndef INFERD_API_KSERVE_GRPC_INFER_PRIV_H
#define INFERD_API_KSERVE_GRPC_INFER_PRIV_H

#include "api/generate_priv.h"
#include "api/infer_priv.h"
#include "api/kserve_grpc_priv.h"

/* Fields of ModelStreamInferResponse and ModelInferResponse. */
enum { STREAM_ERROR = 1, STREAM_RESPONSE = 2, RESPONSE_ID = 3 };

struct grpc_infer {
    struct infer_call base;
    struct grpc_call *g;
    struct grpc_message message; /* as received */
    struct slice plain;          /* its own reference; what it was compressed from */
    struct str model;            /* as the message names it, where it lies */
    enum edge_verdict verdict;   /* about the model */
    struct slice *slices;        /* the reply: [n] */
    size_t n;
    bool generates;              /* it is a language model's, and so no inference */
    struct gen_call *generation; /* then; NULL: not begun, or over */
};

/* Generate what `q` asks for, which stays with its message until the carrier's end. `alone`: q is its request's only call, and its answer one
 * message; else a part of a stream. I/O thread. */
void api__grpc_generate(struct grpc_infer *q, const struct gen_carrier *carrier, void *owner, bool alone);

#endif
