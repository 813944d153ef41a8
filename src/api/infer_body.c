/* infer_body.c: a KServe inference's bytes: headers and body to tensors, and output tensors to the reply's slices.
 *
 * The body is decoded where it lies: binary inputs are slices of the received slab, and binary outputs go out as slices of the
 * engine's buffers. All of a call's memory is in its request's arena. */
#include <stdio.h>
#include <string.h>

#include "api/infer_priv.h"
#include "base/check.h"
#include "base/status.h"
#include "model/registry.h"
#include "tensor/classification.h"

#define NS_PER_MS 1000000u
#define NS_PER_US 1000u

/* About a quarter of a millisecond of work each, on a machine that reads a gigabyte of numbers a second and writes half of it. */
#define LONG_JSON_BYTES   (256u << 10) /* JSON text of a request */
#define LONG_OUTPUT_BYTES (32u << 10)  /* tensors to be written as JSON: three times as much text */
#define LONG_BODY_BYTES   (4u << 20)   /* any body: strings in it are checked one by one */

/* ---- headers ---- */

/* A header that decides what the request means. Two of them are two readings, and a proxy in front may have checked the other one. */
static int header_once(const struct http_request *r, const char *name, struct str *out, struct error *err)
{
    uint32_t seen = 0;
    *out = (struct str){0};
    for (size_t i = 0; i < r->n_headers; i++) {
        if (!str_ieqz(r->headers[i].name, name))
            continue;
        if (seen++)
            return error_set(err, STATUS_INVALID, "the header %s is there more than once; send it once", name);
        *out = r->headers[i].value;
    }
    return 0;
}

/* What a body may call itself. curl -d sends the form type and Triton takes it; a multipart or text body is a mistake. */
static int check_content_type(const struct http_request *r, struct error *err)
{
    static const char *const accepted[] = {"application/json", "application/octet-stream", "application/x-www-form-urlencoded",
                                           "application/vnd.kserve+json"};
    struct str rest, type;
    int rc = header_once(r, "Content-Type", &rest, err);
    if (rc || !rest.n)
        return rc;
    str_cut(&rest, ';', &type);
    type = str_trim(type);
    for (size_t i = 0; i < COUNT_OF(accepted); i++)
        if (str_ieqz(type, accepted[i]))
            return 0;
    return error_set(err, STATUS_MEDIA_TYPE,
                     "content type \"%.*s\" is not accepted; use application/json or application/octet-stream", STR_ARG(type));
}

int api__infer_deadline(struct infer_call *c, struct error *err)
{
    const struct http_request *r = c->request;
    struct str h;
    uint64_t ms, until = SCHED_NEVER, at;
    int rc = header_once(r, "x-inferd-timeout-ms", &h, err);
    if (rc)
        return rc;
    if (h.p) {
        if (!str_to_u64(h, &ms) || ms == 0)
            return error_set(err, STATUS_INVALID,
                             "header x-inferd-timeout-ms \"%.*s\": expected a whole number of milliseconds from 1", STR_ARG(h));
        if (!__builtin_mul_overflow(ms, NS_PER_MS, &at) && !__builtin_add_overflow(at, r->received_ns, &at))
            until = at;
    }
    c->inf.deadline_ns = until;
    return 0;
}

/* ---- decode ---- */

static int no_memory(struct error *err)
{
    return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
}

/* The body is the whole of the only input; the answer is binary unless Accept asks for JSON. */
static int decode_raw(struct infer_call *c, struct slice body, struct error *err)
{
    const struct engine_contract *k = model_version_contract(c->version);
    if (k->n_inputs != 1)
        return error_set(err, STATUS_INVALID,
                         "a raw request (Inference-Header-Content-Length: 0) needs a model with one input; this one has %zu",
                         k->n_inputs);
    struct str accept = http_header_get(c->request, "accept");
    c->raw_json = str_ieqz(accept, "application/json");
    bool batched = model_version_max_batch(c->version) > 0;
    return infer_json_raw(k->inputs[0].name, k->inputs[0].dtype, &k->inputs[0].shape, batched, body, c->request->arena, &c->in,
                          err);
}

static int unknown_output(const struct infer_call *c, struct str name, struct error *err)
{
    const struct engine_contract *k = model_version_contract(c->version);
    char known[256];
    size_t n = 0;
    known[0] = 0;
    for (size_t i = 0; i < k->n_outputs && n < sizeof known - 1; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s\"%.*s\"", i ? ", " : "", STR_ARG(k->outputs[i].name));
    return error_set(err, STATUS_INVALID, "unknown output \"%.*s\" for model \"%.*s\"; it has %s", STR_ARG(name),
                     STR_ARG(model_version_model(c->version)), known);
}

/* Requested outputs -> the wanted set, in contract order. */
static int map_outputs(struct infer_call *c, struct error *err)
{
    const struct engine_contract *k = model_version_contract(c->version);
    if (!c->in.n_outputs)
        return 0;
    bool *wanted = arena_array(c->request->arena, k->n_outputs, sizeof *wanted);
    size_t *index = arena_array(c->request->arena, c->in.n_outputs, sizeof *index);
    if (!wanted || !index)
        return no_memory(err);
    for (size_t i = 0; i < c->in.n_outputs; i++) {
        size_t at = 0;
        while (at < k->n_outputs && !str_eq(k->outputs[at].name, c->in.outputs[i].name))
            at++;
        if (at == k->n_outputs)
            return unknown_output(c, c->in.outputs[i].name, err);
        wanted[at] = true;
        index[i] = at;
    }
    c->inf.wanted = wanted;
    c->output_index = index;
    return 0;
}

/* Move the decoded tensors into an array with room for the whole contract, and make one for the outputs. */
static int place_tensors(struct infer_call *c, struct error *err)
{
    const struct engine_contract *k = model_version_contract(c->version);
    struct arena *arena = c->request->arena;
    c->inf.inputs = arena_array(arena, MAX_OF(k->n_inputs, c->in.n_inputs), sizeof *c->inf.inputs);
    c->inf.outputs = arena_array(arena, k->n_outputs, sizeof *c->inf.outputs);
    if (!c->inf.inputs || !c->inf.outputs)
        return no_memory(err);
    if (c->in.n_inputs)
        memcpy(c->inf.inputs, c->in.inputs, c->in.n_inputs * sizeof *c->inf.inputs);
    c->inf.n_inputs = c->in.n_inputs;
    c->in.n_inputs = 0; /* their references belong to inf now */
    return 0;
}

int api__infer_decode(struct infer_call *c, struct error *err)
{
    struct http_request *r = c->request;
    struct str json, header;
    struct slice tail;
    int rc = check_content_type(r, err);
    if (rc == 0)
        rc = header_once(r, "Inference-Header-Content-Length", &header, err);
    if (rc == 0)
        rc = infer_json_split(header, r->body, &json, &tail, err);
    if (rc == 0)
        rc = header.p && !json.n ? decode_raw(c, tail, err) : infer_json_decode(json, tail, r->arena, NULL, &c->in, err);
    if (rc == 0)
        rc = map_outputs(c, err);
    if (rc == 0)
        rc = place_tensors(c, err);
    /* What the KServe timeout means is the model's policy to say, which also knows its default: model/infer.c takes the least. */
    uint64_t us = c->in.timeout_us;
    c->inf.timeout_ns = us && us < UINT64_MAX / NS_PER_US ? us * NS_PER_US : 0;
    c->inf.priority = c->in.priority;
    return rc;
}

bool api__infer_decode_is_long(const struct infer_call *c)
{
    const struct http_request *r = c->request;
    struct str header = http_header_get(r, "Inference-Header-Content-Length");
    uint64_t json = r->body.n;
    if (header.p && !str_to_u64(header, &json))
        json = 0; /* refused at once */
    return json > LONG_JSON_BYTES || r->body.n > LONG_BODY_BYTES;
}

/* ---- encode ---- */

/* Output `i` of the reply: the tensor itself, or its top classes. */
static int select_output(struct infer_call *c, struct encoding *e, size_t i, struct error *err)
{
    const struct infer_json_output *asked = c->in.n_outputs ? &c->in.outputs[i] : NULL;
    size_t index = asked ? c->output_index[i] : i, n_labels = 0;
    struct tensor *t = &c->inf.outputs[index];
    t->name = model_version_contract(c->version)->outputs[index].name;
    e->outputs[i] = (struct infer_json_reply_output){t, !c->raw_json && (asked ? asked->binary : c->in.binary_output)};
    if (!asked || !asked->classification)
        return 0;
    const struct str *labels = model_version_labels(c->version, index, &n_labels);
    e->outputs[i].tensor = &e->tops[i];
    return classification_top(t, model_version_max_batch(c->version) > 0, asked->classification, labels, n_labels, &e->tops[i],
                              err);
}

int api__infer_encode(struct infer_call *c, struct error *err)
{
    struct arena *arena = c->request->arena;
    struct encoding *e = &c->encoding;
    e->n = c->in.n_outputs ? c->in.n_outputs : model_version_contract(c->version)->n_outputs;
    e->outputs = arena_array(arena, e->n, sizeof *e->outputs);
    e->tops = arena_array(arena, e->n, sizeof *e->tops);
    e->slices = arena_array(arena, e->n + 1, sizeof *e->slices);
    if (!e->outputs || !e->tops || !e->slices)
        return no_memory(err);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < e->n; i++)
        rc = select_output(c, e, i, err);
    struct infer_json_reply reply = {
        .model_name = model_version_model(c->version),
        .model_version = model_version_version(c->version),
        .id = c->in.id,
        .outputs = e->outputs,
        .n_outputs = e->n,
    };
    struct buf head;
    buf_init(&head);
    if (rc == 0)
        rc = infer_json_encode(&reply, &head, e->slices + 1, &e->n_slices, &e->header_bytes, err);
    for (size_t i = 0; i < e->n; i++)
        tensor_release(&e->tops[i]);
    if (rc < 0) {
        buf_release(&head);
        return rc;
    }
    e->slices[0] = slice_take(&head);
    if (!e->slices[0].p) {
        for (size_t i = 1; i <= e->n_slices; i++)
            slice_release(&e->slices[i]);
        return no_memory(err);
    }
    e->n_slices++;
    return 0;
}

bool api__infer_encode_is_long(const struct infer_call *c)
{
    size_t n = c->in.n_outputs ? c->in.n_outputs : model_version_contract(c->version)->n_outputs, bytes = 0;
    for (size_t i = 0; i < n; i++) {
        const struct infer_json_output *asked = c->in.n_outputs ? &c->in.outputs[i] : NULL;
        bool binary = asked ? asked->binary : c->in.binary_output;
        if (!binary || c->raw_json || (asked && asked->classification))
            bytes += c->inf.outputs[asked ? c->output_index[i] : i].data.n;
    }
    return bytes > LONG_OUTPUT_BYTES;
}
