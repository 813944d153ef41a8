/* json_decode.h: for tensor/ only: one tensor's JSON `data`, straight from the text into the tensor's memory.
 *
 * The value is an array: flat (row-major order, whatever the rank) or nested exactly as the shape says. A bare value is taken
 * for a scalar's (rank 0). Which of the two forms it is shows in the first element; mixtures and ragged nesting are errors
 * that name the tensor and the position. Memory is taken once, at its final size, and only after the text is known to be
 * long enough to hold that many elements: a shape alone can't make the server allocate. */
#ifndef INFERD_TENSOR_JSON_DECODE_H
#define INFERD_TENSOR_JSON_DECODE_H

#include "tensor/json_scan.h"
#include "tensor/tensor.h"

struct json_decode_options {
    bool base64;           /* BYTES elements are base64 text (content_type "base64") */
    size_t bytes_max;      /* what the tensor's data may take */
    const char *value_end; /* where the value ends, when the caller has passed it once (BYTES need to know); else NULL */
};

/* `s` stands at the value; t->name, dtype and shape are set and valid dtypes, dims are checked here. On success `s` is behind
 * the value and t->data owns a slab. STATUS_INVALID, STATUS_TOO_LARGE, STATUS_NOMEM; then t->data is empty. */
int json_decode_data(struct json_scan *s, struct tensor *t, const struct json_decode_options *opt,
                     struct error *err) MUST_CHECK;

/* ---- the element readers (json_decode_values.c) ---- */

/* How a run of elements ended. */
enum json_run_end {
    JSON_RUN_CLOSED,   /* at the ']' that was passed */
    JSON_RUN_BAD,      /* run->at is an element that is not a value of this dtype */
    JSON_RUN_SYNTAX,   /* run->at is where ',' or ']' was expected */
    JSON_RUN_TOO_MANY, /* run->at is an element past the limit */
};

struct json_run {
    const char *at, *end; /* in: behind the '['; out: behind the ']' or where it went wrong */
    uint8_t *out;         /* in: where the first element goes; out: behind the last one */
    size_t n;             /* out: elements read */
    const char *why;      /* BYTES, JSON_RUN_BAD: what is wrong with the string, or NULL when it is none */
};

/* Read elements of dtype `t` up to the closing bracket, at most `max`. */
enum json_run_end json_run_read(enum dtype t, bool base64, size_t max, struct json_run *run);

#endif
