/* infer_json_encode.h: the body of a KServe v2 inference response over HTTP.
 *
 * Head: the JSON text, in one struct buf. Tail: the binary outputs' own slices, by reference, in the order of the outputs;
 * each has `binary_data_size` in its parameters. Floats are written as the shortest decimal that reads back to the same
 * bits (json_number.h); whole numbers exactly; BOOL as true and false; BYTES as strings. What JSON can't carry (NaN,
 * infinities, BYTES that are not UTF-8) is an error that says to ask for binary, never a changed value. */
#ifndef INFERD_TENSOR_INFER_JSON_ENCODE_H
#define INFERD_TENSOR_INFER_JSON_ENCODE_H

#include "base/buf.h"
#include "tensor/infer_json.h"

struct infer_json_reply_output {
    const struct tensor *tensor; /* has passed tensor_check */
    bool binary;
};

struct infer_json_reply {
    struct str model_name, model_version; /* version empty: left out */
    struct str id;                        /* empty: left out */
    const struct infer_param *params;     /* none: no `parameters` member */
    size_t n_params;
    const struct infer_json_reply_output *outputs;
    size_t n_outputs;
};

/* Append the JSON text to `head` (initialised by the caller) and fill tail[0..*n_tail) with references of the caller's own
 * (release each), in order; `tail` has room for n_outputs. `*header_bytes`: the value of Inference-Header-Content-Length
 * when an output is binary, else 0: the header is then left out. STATUS_INVALID names the output and what to do;
 * STATUS_NOMEM. On error the tail is empty. Pure; any thread. */
int infer_json_encode(const struct infer_json_reply *r, struct buf *head, struct slice *tail, size_t *n_tail,
                      size_t *header_bytes, struct error *err) MUST_CHECK;

/* Append the elements of `t` as one flat JSON array ("[1,2,3]"). Errors as above. */
int json_encode_data(const struct tensor *t, struct buf *out, struct error *err) MUST_CHECK;

#endif
