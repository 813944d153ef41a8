/* infer_json.c: the request object: members in any order, parameters, binary tail. See infer_json.h. */
#include "tensor/infer_json.h"

#include <stdio.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "tensor/infer_json_priv.h"
#include "tensor/tensor_priv.h"

#define JSON_TENSOR_BYTES_DEFAULT ((size_t)256 << 20)

int infer_json_split(struct str header, struct slice body, struct str *json, struct slice *tail, struct error *err)
{
    uint64_t n = body.n;
    if (header.p && !str_to_u64(header, &n))
        return error_set(err, STATUS_INVALID,
                         "Inference-Header-Content-Length is '%.*s', but it must be the JSON part's length in bytes, a "
                         "decimal number from 0 to the body's length (%zu)",
                         NAME_ARG(header), body.n);
    if (n > body.n)
        return error_set(err, STATUS_INVALID, "Inference-Header-Content-Length is %llu, but the whole body has only %zu bytes",
                         (unsigned long long)n, body.n);
    *json = (struct str){(const char *)body.p, (size_t)n};
    *tail = (struct slice){body.p ? body.p + n : NULL, body.n - (size_t)n, body.owner};
    return STATUS_OK;
}

void infer_json_release(struct infer_json *r)
{
    for (size_t i = 0; i < r->n_inputs; i++)
        tensor_release(&r->inputs[i]);
    *r = (struct infer_json){0};
}

const struct infer_param *infer_param_find(const struct infer_param *params, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (str_eqz(params[i].key, key))
            return &params[i];
    return NULL;
}

int infer_json__twice(const char *member, const char *of, struct str name, struct error *err)
{
    if (name.n)
        return error_set(err, STATUS_INVALID, "the request's JSON: %s '%.*s' has the member '%s' twice", of, NAME_ARG(name),
                         member);
    return error_set(err, STATUS_INVALID, "the request's JSON: %s has the member '%s' twice", of, member);
}

int infer_json__nomem(struct error *err)
{
    return error_set(err, STATUS_NOMEM, "no memory for the request: it is larger than what one request may take");
}

/* ---- requested outputs ---- */

static int output_member(struct infer_json_decoder *d, struct infer_json_output *o, struct str key, unsigned *seen,
                         bool *has_binary, struct error *err)
{
    struct infer_param *params;
    size_t n;
    if (STR_IS(key, "name")) {
        if (*seen & 1)
            return infer_json__twice("name", "output", o->name, err);
        *seen |= 1;
        return json_string(&d->s, d->arena, &o->name, err);
    }
    if (!STR_IS(key, "parameters"))
        return json_skip(&d->s, INFER_JSON_DEPTH_MAX, err);
    if (*seen & 2)
        return infer_json__twice("parameters", "output", o->name, err);
    *seen |= 2;
    int rc = infer_json__params(d, &params, &n, err);
    return rc ? rc : infer_json__output_params(o, params, n, has_binary, err);
}

static int output_object(struct infer_json_decoder *d, struct infer_json_output *o, bool *has_binary, struct error *err)
{
    bool first = true;
    unsigned seen = 0;
    struct str key;
    int rc;
    while ((rc = json_member(&d->s, &first, d->arena, &key, err)) == 1)
        if ((rc = output_member(d, o, key, &seen, has_binary, err)) != 0)
            return rc;
    if (!rc && !o->name.n)
        return error_set(err, STATUS_INVALID, "the request's JSON: outputs[%zu] has no name", d->out->n_outputs);
    return rc;
}

/* Room for 8 at first, then for all. */
static bool room_for_output(struct infer_json_decoder *d)
{
    struct infer_json *r = d->out;
    size_t n = r->n_outputs, cap = n ? INFER_JSON_IO_MAX : 8;
    if (n != 0 && n != 8)
        return true;
    struct infer_json_output *outputs = arena_array(d->arena, cap, sizeof *outputs);
    bool *binary = arena_array(d->arena, cap, sizeof *binary);
    if (!outputs || !binary)
        return false;
    if (n) {
        memcpy(outputs, r->outputs, n * sizeof *outputs);
        memcpy(binary, d->output_binary, n * sizeof *binary);
    }
    r->outputs = outputs;
    d->output_binary = binary;
    return true;
}

static int outputs_array(struct infer_json_decoder *d, struct error *err)
{
    bool first = true;
    int rc;
    struct infer_json *r = d->out;
    while ((rc = json_element(&d->s, &first, err)) == 1) {
        if (r->n_outputs == INFER_JSON_IO_MAX)
            return error_set(err, STATUS_INVALID, "the request asks for more than %d outputs", INFER_JSON_IO_MAX);
        if (!room_for_output(d))
            return infer_json__nomem(err);
        struct infer_json_output *o = &r->outputs[r->n_outputs];
        if ((rc = output_object(d, o, &d->output_binary[r->n_outputs], err)) != 0)
            return rc;
        for (size_t i = 0; i < r->n_outputs; i++)
            if (str_eq(r->outputs[i].name, o->name))
                return error_set(err, STATUS_INVALID, "output '%.*s' is requested twice; ask for it once", NAME_ARG(o->name));
        r->n_outputs++;
    }
    return rc;
}

/* ---- the request object ---- */

enum { SEEN_ID = 1, SEEN_PARAMETERS = 2, SEEN_INPUTS = 4, SEEN_OUTPUTS = 8 };

static int request_member(struct infer_json_decoder *d, struct str key, unsigned *seen, struct error *err)
{
    static const struct str none = {NULL, 0};
    unsigned bit = STR_IS(key, "id")           ? SEEN_ID
                   : STR_IS(key, "parameters") ? SEEN_PARAMETERS
                   : STR_IS(key, "inputs")     ? SEEN_INPUTS
                   : STR_IS(key, "outputs")    ? SEEN_OUTPUTS
                                               : 0;
    struct infer_param *params;
    size_t n;
    int rc;
    if (*seen & bit) {
        static const char *const names[] = {
            [SEEN_ID] = "id", [SEEN_PARAMETERS] = "parameters", [SEEN_INPUTS] = "inputs", [SEEN_OUTPUTS] = "outputs"};
        return infer_json__twice(names[bit], "the request", none, err);
    }
    *seen |= bit;
    switch (bit) {
    case SEEN_ID:
        return json_string(&d->s, d->arena, &d->out->id, err);
    case SEEN_PARAMETERS:
        rc = infer_json__params(d, &params, &n, err);
        return rc ? rc : infer_json__request_params(d->out, params, n, err);
    case SEEN_INPUTS:
        return infer_json__inputs(d, err);
    case SEEN_OUTPUTS:
        return outputs_array(d, err);
    default:
        return json_skip(&d->s, INFER_JSON_DEPTH_MAX, err);
    }
}

static int request_object(struct infer_json_decoder *d, struct error *err)
{
    bool first = true;
    unsigned seen = 0;
    struct str key;
    int rc;
    while ((rc = json_member(&d->s, &first, d->arena, &key, err)) == 1)
        if ((rc = request_member(d, key, &seen, err)) != 0)
            return rc;
    if (rc)
        return rc;
    if (!(seen & SEEN_INPUTS))
        return error_set(err, STATUS_INVALID, "the request's JSON has no 'inputs'");
    if (json_peek(&d->s) || d->s.p < d->s.end)
        return error_set(err, STATUS_INVALID,
                         "%zu bytes follow the request's JSON object; where binary tensors follow it, the header "
                         "Inference-Header-Content-Length must say how long the JSON is",
                         (size_t)(d->s.end - d->s.p));
    return STATUS_OK;
}

int infer_json_decode(struct str json, struct slice tail, struct arena *a, const struct infer_json_limits *limits,
                      struct infer_json *out, struct error *err)
{
    *out = (struct infer_json){0};
    struct infer_json_decoder d = {
        .s = json_scan_of(json),
        .arena = a,
        .out = out,
        .tail = tail,
        .bytes_left = limits && limits->tensor_bytes ? limits->tensor_bytes : JSON_TENSOR_BYTES_DEFAULT,
    };
    int rc = json.n ? request_object(&d, err)
                    : error_set(err, STATUS_INVALID, "the request has no body; expected a JSON object with 'inputs'");
    if (!rc)
        rc = infer_json__binary(&d, err);
    for (size_t i = 0; !rc && i < out->n_outputs; i++)
        if (!d.output_binary[i])
            out->outputs[i].binary = out->binary_output;
    if (rc)
        infer_json_release(out);
    return rc;
}
