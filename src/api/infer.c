/* infer.c: POST /v2/models/{m}[/versions/{v}]/infer.
 *
 * From bytes to tensors (JSON, binary tails, or a raw body), to infer_submit, and from output tensors back to a reply. The
 * body is decoded where it lies: binary inputs are slices of the received slab, and binary outputs go out as slices of the
 * engine's buffers. All of a call's memory is in its request's arena.
 *
 * Life: start -> decode -> submit -> (instance thread: on_done posts the task) -> finish on the I/O thread -> reply. When the
 * client leaves, on_gone cancels; finish still runs and its reply is dropped. */
#include <stdio.h>
#include <string.h>

#include "api/api_priv.h"
#include "base/check.h"
#include "base/status.h"
#include "model/registry.h"
#include "tensor/classification.h"
#include "tensor/infer_json.h"
#include "tensor/infer_json_encode.h"

#define NS_PER_MS 1000000u
#define NS_PER_US 1000u

struct infer_call {
    struct infer inf;
    struct loop_task task;
    struct http_request *request;
    struct api_call *call;
    struct infer_json in;
    const size_t *output_index;    /* [in.n_outputs]: contract index of each requested output */
    bool raw_json;                 /* a raw request that asked for a JSON answer by Accept */
    struct model_version *version; /* own reference: the reply needs contract and names, and the engine's bytes, to the end */
};

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

/* The header. What the KServe timeout parameter means is the model's policy to say, which also knows its default: model/infer.c
 * takes the least. */
static int set_deadline(struct infer_call *c, struct error *err)
{
    const struct http_request *r = c->request;
    struct str h;
    uint64_t ms, us = c->in.timeout_us, until = SCHED_NEVER, at;
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
    c->inf.timeout_ns = us && us < UINT64_MAX / NS_PER_US ? us * NS_PER_US : 0;
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

static int decode(struct infer_call *c, struct error *err)
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
    if (rc == 0)
        rc = set_deadline(c, err);
    c->inf.priority = c->in.priority;
    return rc;
}

/* ---- completion ---- */

static void finish(struct loop_task *t);

/* Any thread: only a post, inside the burst of the loop's waker. */
static void on_done(struct infer *inf)
{
    struct infer_call *c = CONTAINER_OF(inf, struct infer_call, inf);
    c->task.run = finish;
    loop_burst_post(c->request->loop, &c->task);
}

static void on_gone(struct http_request *r)
{
    struct api_call *call = r->user;
    struct infer_call *c = call->infer;
    infer_cancel(&c->inf);
}

/* Drop what the call holds; its memory goes with the request. Binary outputs go out as slices of the engine's buffers, so the
 * version must stay until the last byte is written: its reference passes to the call, which drops it on completion. */
static void release(struct infer_call *c)
{
    c->call->times = c->inf.times;
    c->call->infer = NULL;
    c->call->version = c->version;
    c->request->on_gone = NULL;
    atomic_fetch_sub_explicit(&c->call->api->in_flight, 1, memory_order_relaxed);
    infer_json_release(&c->in);
    infer_release(&c->inf);
}

static void fail(struct infer_call *c, int status, const struct error *err)
{
    struct http_request *r = c->request;
    uint32_t retry_s = api__retry_after_s(status, c->version);
    model_version_record(c->version, MODEL_PROTOCOL_HTTP, status, &c->inf.times);
    c->call->status = status;
    release(c);
    http_reply_error(r, status, err->text, retry_s);
}

/* Outputs of one reply, in the order the client named them, else in the contract's. */
struct encoding {
    struct infer_json_reply_output *outputs; /* [n] */
    struct tensor *tops;                     /* [n]: classification results that outputs point to; zero elsewhere */
    struct slice *slices;                    /* [1 + n]: JSON head, then binary tails */
    size_t n, n_slices, header_bytes;        /* n_slices: with the head once it is there; the tails alone after an error */
};

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

static int encode(struct infer_call *c, struct encoding *e, struct error *err)
{
    struct arena *arena = c->request->arena;
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
    e->slices[0] = api__slice_from_buf(&head);
    if (!e->slices[0].p)
        return no_memory(err);
    e->n_slices++;
    return 0;
}

static void reply(struct http_request *r, struct encoding *e)
{
    char length[24];
    struct http_header headers[2] = {{STR("x-request-id"), r->request_id}};
    size_t n = 1;
    if (e->header_bytes) {
        int len = snprintf(length, sizeof length, "%zu", e->header_bytes);
        headers[n++] = (struct http_header){STR("Inference-Header-Content-Length"), {length, (size_t)len}};
    }
    http_reply(r, 200, e->header_bytes ? "application/octet-stream" : "application/json", headers, n, e->slices, e->n_slices);
}

/* I/O thread: the inference is over, one way or another. */
static void finish(struct loop_task *t)
{
    struct infer_call *c = CONTAINER_OF(t, struct infer_call, task);
    struct http_request *r = c->request;
    struct error err = {0};
    struct encoding e = {0};
    int rc = c->inf.status;
    if (rc < 0) {
        fail(c, rc, &c->inf.error);
        return;
    }
    rc = encode(c, &e, &err);
    if (rc < 0) {
        for (size_t i = 1; e.slices && i <= e.n_slices; i++)
            slice_release(&e.slices[i]);
        fail(c, rc, &err);
        return;
    }
    c->inf.times.encoded_ns = loop_update_now(r->loop);
    model_version_record(c->version, MODEL_PROTOCOL_HTTP, STATUS_OK, &c->inf.times);
    release(c);
    reply(r, &e);
}

void api__infer(struct api *a, struct http_request *r, struct api_call *call)
{
    struct error err = {0};
    struct model_version *v = api__find(a, r, call);
    if (!v)
        return;
    struct infer_call *c = ARENA_NEW(r->arena, struct infer_call);
    if (!c) {
        model_version_unref(v);
        http_reply_error(r, STATUS_NOMEM, "out of memory for this request; try again later", 1);
        return;
    }
    struct api_turn *turn = api__turn(r->loop);
    if (!turn) {
        model_version_unref(v);
        http_reply_error(r, STATUS_NOMEM, "out of memory for this request; try again later", 1);
        return;
    }
    infer_init(&c->inf);
    c->inf.waker = &turn->waker;
    c->request = r;
    c->call = call;
    c->version = v;
    c->inf.version = model_version_ref(v);
    c->inf.request_id = r->request_id.p;
    c->inf.done = on_done;
    c->inf.times.received_ns = r->received_ns;
    call->infer = c;
    atomic_fetch_add_explicit(&a->in_flight, 1, memory_order_relaxed);
    r->log_version = model_version_version(v);
    int rc = decode(c, &err);
    c->inf.times.decoded_ns = loop_update_now(r->loop);
    if (rc == 0) {
        r->on_gone = on_gone;
        rc = infer_submit(&c->inf, api__turn_wakes(turn, c->inf.times.decoded_ns), &err);
    }
    if (rc < 0)
        fail(c, rc, &err);
}
