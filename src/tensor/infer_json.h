/* infer_json.h: the body of a KServe v2 inference request over HTTP, decoded in one pass into tensors.
 *
 * The body is JSON text, and with the binary tensor extension raw tensors behind it. No tree of the text is built: a pull
 * scanner walks it once, numbers go straight into the tensor's memory (json_decode.h), names and strings without escapes
 * stay where they are. Members may come in any order: where `data` comes before what says how to read it, its span is
 * checked, remembered and decoded at the end of its object.
 *
 * Decided where the protocol leaves it open:
 *   - strict RFC 8259 text: UTF-8, no comments, no trailing commas, no NaN, nothing behind the top-level object;
 *   - unknown members are checked for syntax and ignored (the protocol grows by members); a known member that comes
 *     twice, a duplicate input, output or parameter name is refused;
 *   - whole-number dtypes take whole numbers only: 1.0 and 1e3 are refused, as Triton does;
 *   - BYTES are UTF-8 strings; the input parameter content_type "base64" (as in MLServer) carries other bytes;
 *   - FP16 and BF16 take JSON numbers, rounded once, correctly;
 *   - sequence_*, shared_memory_*, headers and triton_* are refused by name unless they are 0, false or "": inferd has no sequence
 *     batcher, no shared memory regions and hands no headers to models;
 *   - `timeout` is in microseconds, as in Triton.
 * Every refusal is STATUS_INVALID with one sentence that names the input, what was expected and what came. */
#ifndef INFERD_TENSOR_INFER_JSON_H
#define INFERD_TENSOR_INFER_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "tensor/tensor.h"

#define INFER_JSON_IO_MAX     64 /* inputs, and requested outputs, of one request */
#define INFER_JSON_PARAMS_MAX 64 /* parameters of one object */
#define INFER_JSON_DEPTH_MAX  64 /* nesting of ignored members */

enum infer_param_kind { INFER_PARAM_BOOL, INFER_PARAM_INT, INFER_PARAM_DOUBLE, INFER_PARAM_STRING };

/* One `parameters` member. Text lives as long as the request text and the arena. */
struct infer_param {
    struct str key;
    enum infer_param_kind kind;
    union {
        bool b;
        int64_t i;
        double d;
        struct str s;
    };
};

struct infer_json_output {
    struct str name;
    bool binary;             /* its own binary_data, else the request's binary_data_output, else false */
    uint32_t classification; /* 0: the tensor itself; k: the k highest classes */
};

struct infer_json {
    struct str id;         /* empty: none given */
    struct tensor *inputs; /* in the request's order; data slices own references: infer_json_release */
    size_t n_inputs;
    struct infer_json_output *outputs; /* requested ones in order; none: all of the model's, by `binary_output` */
    size_t n_outputs;
    bool binary_output;         /* request parameter binary_data_output */
    uint32_t priority;          /* 0: not given */
    uint64_t timeout_us;        /* 0: not given */
    struct infer_param *params; /* the request's other parameters */
    size_t n_params;
};

struct infer_json_limits {
    size_t tensor_bytes; /* bound on the memory that JSON data may decode to, all inputs together; 0: 256 MiB */
};

/* Split a body at Inference-Header-Content-Length. `header` is the header's value, or p == NULL when it is absent: then
 * the whole body is JSON and the tail is empty. STATUS_INVALID: not a decimal number (negative, signs, spaces), beyond
 * 64 bits, or longer than the body. `*json` and `*tail` are borrowed views of `body` (tail->owner is body.owner, without
 * a reference of its own). A value of 0 gives an empty `json`: a raw request, see infer_json_raw. */
int infer_json_split(struct str header, struct slice body, struct str *json, struct slice *tail, struct error *err) MUST_CHECK;

/* Decode `json`. Inputs with the parameter binary_data_size take their bytes from `tail` in the request's order and hold a
 * reference to tail.owner (when it is NULL they borrow); the others own slabs. Everything else is in the arena `a` or points
 * into `json`: both, and borrowed tails, must outlive `out`. Each input has passed tensor_check. `limits` may be NULL.
 * STATUS_INVALID, STATUS_TOO_LARGE (tensor_bytes), STATUS_NOMEM; on error `out` holds nothing. Pure; any thread. */
int infer_json_decode(struct str json, struct slice tail, struct arena *a, const struct infer_json_limits *limits,
                      struct infer_json *out, struct error *err) MUST_CHECK;

/* A raw request: the body is the one input's data. `contract` is the model's full input shape (-1 where dynamic); when
 * `batched`, dim 0 is taken as 1. At most one other dim may be dynamic and is computed from the size; a BYTES input must
 * come to one element, and the body is that element's content. All outputs are asked for as binary. STATUS_INVALID (with
 * the input's name), STATUS_NOMEM. */
int infer_json_raw(struct str name, enum dtype dtype, const struct shape *contract, bool batched, struct slice body,
                   struct arena *a, struct infer_json *out, struct error *err) MUST_CHECK;

/* Drop the inputs' references. The struct may be zeroed or released before. */
void infer_json_release(struct infer_json *r);

/* The parameter named `key`, or NULL. */
const struct infer_param *infer_param_find(const struct infer_param *params, size_t n, const char *key);

#endif
