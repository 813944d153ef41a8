/* grpc_peek.h: which model a gRPC call is for, from the messages as their bytes come: field 1 of each, a string, as KServe's requests have it
 * (ModelInferRequest.model_name, ModelMetadataRequest.name ...). Nothing is copied but the name, nothing is re-encoded.
 *
 * What two readers could read differently is refused: a message that names the model twice, or another one than the first message of the call
 * did. So what was decided by the first name holds for the whole call. A compressed message can't be looked into: UNIMPLEMENTED. Works on any
 * cut of the input. Pure; no allocation. */
#ifndef INFERD_WIRE_GRPC_PEEK_H
#define INFERD_WIRE_GRPC_PEEK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

#define GRPC_PEEK_NAME 256

struct grpc_peek {
    char name[GRPC_PEEK_NAME + 1]; /* NUL-terminated once `known`; "" when the first message names none */
    size_t name_n;
    bool known;
    /* private */
    uint8_t state, wire, shift, n_prefix;
    uint8_t prefix[5];
    bool named; /* the message under way has named its model */
    uint32_t field;
    uint64_t left; /* of the message */
    uint64_t value, skip;
    size_t at; /* in the name being read */
};

void grpc_peek_init(struct grpc_peek *p);
/* Take the next bytes. INVALID, UNIMPLEMENTED; after an error no more calls. */
int grpc_peek_feed(struct grpc_peek *p, const uint8_t *data, size_t n, struct error *err) MUST_CHECK;

#endif
