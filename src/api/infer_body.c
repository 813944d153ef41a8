/* infer_body.c: POST /v2/models/{m}[/versions/{v}]/infer: a KServe inference's bytes: headers and body to tensors, and output tensors
 * to the reply's slices.
 *
 * The body is decoded where it lies: binary inputs are slices of the received slab, and binary outputs go out as slices of the
 * engine's buffers. All of a call's memory is in its request's arena. */
#include <stdio.h>

#include "api/guard.h"
#include "api/infer_priv.h"
#include "base/check.h"
#include "base/status.h"
#include "tensor/infer_json_encode.h"

/* Outputs of one reply, in the order the client named them, else in the contract's. */
struct encoding {
    struct infer_json_reply_output *outputs; /* [n] */
    struct tensor *tops;                     /* [n]: classification results that outputs point to; zero elsewhere */
    struct slice *slices;                    /* [1 + n]: JSON head, then binary tails */
    size_t n, n_slices, header_bytes;        /* n_slices: with the head once it is there; the tails alone after an error */
};

struct http_infer {
    struct infer_call base;
    bool raw_json; /* a raw request that asked for a JSON answer by Accept */
    struct encoding encoding;
};

static struct http_infer *http_infer_of(const struct infer_call *c)
{
    return CONTAINER_OF(c, struct http_infer, base);
}

static int no_memory(struct error *err)
{
    return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
}

/* ---- decode ---- */

/* What a body may call itself. curl -d sends the form type and Triton takes it; a multipart or text body is a mistake. */
static int check_content_type(const struct http_request *r, struct error *err)
{
    static const char *const accepted[] = {"application/json", "application/octet-stream", "application/x-www-form-urlencoded",
                                           "application/vnd.kserve+json"};
    struct str rest, type;
    int rc = api__header_once(r, "Content-Type", &rest, err);
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

/* The body is the whole of the only input; the answer is binary unless Accept asks for JSON. */
static int decode_raw(struct infer_call *c, struct slice body, struct error *err)
{
    const struct engine_contract *k = model_version_contract(c->version);
    if (k->n_inputs != 1)
        return error_set(err, STATUS_INVALID,
                         "a raw request (Inference-Header-Content-Length: 0) needs a model with one input; this one has %zu",
                         k->n_inputs);
    struct str accept = http_header_get(c->request, "accept");
    http_infer_of(c)->raw_json = str_ieqz(accept, "application/json");
    bool batched = model_version_max_batch(c->version) > 0;
    return infer_json_raw(k->inputs[0].name, k->inputs[0].dtype, &k->inputs[0].shape, batched, body, c->arena, &c->in, err);
}

static int decode(struct infer_call *c, struct error *err)
{
    struct http_request *r = c->request;
    struct str json, header;
    struct slice tail;
    int rc = check_content_type(r, err);
    if (rc == 0)
        rc = api__header_once(r, "Inference-Header-Content-Length", &header, err);
    if (rc == 0)
        rc = infer_json_split(header, r->body, &json, &tail, err);
    if (rc == 0)
        rc = api__guard_json(c, json, err);
    if (rc == 0)
        rc = header.p && !json.n ? decode_raw(c, tail, err) : infer_json_decode(json, tail, c->arena, NULL, &c->in, err);
    if (rc == 0)
        rc = api__infer_bind(c, err);
    return rc;
}

static bool decode_is_long(const struct infer_call *c)
{
    const struct http_request *r = c->request;
    struct str header = http_header_get(r, "Inference-Header-Content-Length");
    uint64_t json = r->body.n;
    if (header.p && !str_to_u64(header, &json))
        json = 0; /* refused at once */
    return json > INFER_LONG_TEXT_BYTES || r->body.n > INFER_LONG_BODY_BYTES || api__guard_is_long(c->call, r->body.n);
}

/* ---- encode ---- */

static bool is_binary(const struct http_infer *h, size_t i)
{
    const struct infer_json *in = &h->base.in;
    return !h->raw_json && (in->n_outputs ? in->outputs[i].binary : in->binary_output);
}

static int encode(struct infer_call *c, struct error *err)
{
    struct http_infer *h = http_infer_of(c);
    struct encoding *e = &h->encoding;
    e->n = api__infer_outputs(c);
    e->outputs = arena_array(c->arena, e->n, sizeof *e->outputs);
    e->tops = arena_array(c->arena, e->n, sizeof *e->tops);
    e->slices = arena_array(c->arena, e->n + 1, sizeof *e->slices);
    if (!e->outputs || !e->tops || !e->slices)
        return no_memory(err);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < e->n; i++) {
        e->outputs[i].binary = is_binary(h, i);
        rc = api__infer_output(c, i, &e->tops[i], &e->outputs[i].tensor, err);
    }
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

static bool encode_is_long(const struct infer_call *c)
{
    size_t n = api__infer_outputs(c), bytes = 0;
    for (size_t i = 0; i < n; i++)
        if (!is_binary(http_infer_of(c), i) || (c->in.n_outputs && c->in.outputs[i].classification))
            bytes += c->inf.outputs[c->in.n_outputs ? c->output_index[i] : i].data.n;
    return bytes > INFER_LONG_OUTPUT_BYTES;
}

/* ---- the end ---- */

static void reply(struct infer_call *c)
{
    struct http_request *r = c->request;
    const struct encoding *e = &http_infer_of(c)->encoding;
    char length[24];
    struct http_header headers[2] = {{STR("x-request-id"), r->request_id}};
    size_t n = 1;
    if (e->header_bytes) {
        int len = snprintf(length, sizeof length, "%zu", e->header_bytes);
        headers[n++] = (struct http_header){STR("Inference-Header-Content-Length"), {length, (size_t)len}};
    }
    http_reply(r, 200, e->header_bytes ? "application/octet-stream" : "application/json", headers, n, e->slices, e->n_slices);
}

static void fail(struct infer_call *c, int status, const char *text, uint32_t retry_after_s)
{
    http_reply_error(c->request, status, text, retry_after_s);
}

static const struct infer_protocol http_protocol = {
    .label = MODEL_PROTOCOL_HTTP,
    .decode = decode,
    .decode_is_long = decode_is_long,
    .encode = encode,
    .encode_is_long = encode_is_long,
    .reply = reply,
    .fail = fail,
};

void api__infer(struct api *a, struct http_request *r, struct api_call *call)
{
    struct error err = {0};
    uint64_t deadline_ns;
    struct model_version *v = NULL;
    int found = registry_find(a->o.registry, call->match.model, call->match.version, &v, &err), rc = found;
    struct http_infer *h = ARENA_NEW(r->arena, struct http_infer);
    if (rc == 0 || (registry_is_unready(rc) && a->o.limits)) /* another may answer */
        rc = h ? api__header_deadline(r, r->received_ns, &deadline_ns, &err) : no_memory(&err);
    if (rc < 0) {
        if (v)
            model_version_record(v, MODEL_PROTOCOL_HTTP, rc, &call->times);
        model_version_unref(v);
        call->status = rc;
        api__reply_error(r, rc, &err);
        return;
    }
    h->base.protocol = &http_protocol;
    h->base.request = r;
    h->base.call = call;
    h->base.arena = r->arena;
    h->base.version = v;
    h->base.model = call->match.model;
    h->base.received_ns = r->received_ns;
    h->base.deadline_ns = deadline_ns;
    call->infer = &h->base;
    if (v)
        r->log_version = model_version_version(v);
    api__infer_start(&h->base, found, &err);
}
