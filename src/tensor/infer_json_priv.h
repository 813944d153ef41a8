/* infer_json_priv.h: for the infer_json*.c files only: the state of one decode. */
#ifndef INFERD_TENSOR_INFER_JSON_PRIV_H
#define INFERD_TENSOR_INFER_JSON_PRIV_H

#include "tensor/infer_json.h"
#include "tensor/json_scan.h"

struct infer_json_decoder {
    struct json_scan s;
    struct arena *arena;
    struct infer_json *out;
    struct slice tail;
    size_t bytes_left;   /* what JSON data may still decode to */
    uint64_t *binary;    /* [n_inputs] binary_data_size of each input, or UINT64_MAX: its data is JSON */
    bool *output_binary; /* [n_outputs] the output has a binary_data of its own */
};

/* infer_json_inputs.c: the `inputs` array; then, when everything is known, each binary input's part of the tail. */
int infer_json__inputs(struct infer_json_decoder *d, struct error *err) MUST_CHECK;
int infer_json__binary(struct infer_json_decoder *d, struct error *err) MUST_CHECK;

/* infer_json_params.c: a `parameters` object as a typed list in the arena, in order. */
int infer_json__params(struct infer_json_decoder *d, struct infer_param **params, size_t *n, struct error *err) MUST_CHECK;
/* Take the reserved ones out: into `r` (the rest becomes r->params), `o`, or the two values of an input. */
int infer_json__request_params(struct infer_json *r, struct infer_param *params, size_t n, struct error *err) MUST_CHECK;
int infer_json__output_params(struct infer_json_output *o, const struct infer_param *params, size_t n, bool *has_binary,
                              struct error *err) MUST_CHECK;
int infer_json__input_params(struct str input, const struct infer_param *params, size_t n, uint64_t *binary_size, bool *base64,
                             struct error *err) MUST_CHECK;

/* STATUS_INVALID: the object `of` (with its name, when it has one) has `member` twice. */
int infer_json__twice(const char *member, const char *of, struct str name, struct error *err);
/* The arena is full: STATUS_NOMEM. */
int infer_json__nomem(struct error *err);

#endif
