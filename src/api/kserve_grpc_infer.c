/* kserve_grpc_infer.c: ModelInfer and ModelStreamInfer: an inference's messages, and what a stream of them is.
 *
 * Both are calls in the sense of infer.c. A unary call is one with its request: it is decoded where it lies, and its answer is made
 * around the engine's buffers. In a stream each message is a call of its own, with an arena of its own, and its answer is copied, since a
 * stream may outlive the versions that answered it. Calls run side by side, up to STREAM_CALLS of them, and are answered in the order
 * of their requests, as Triton does for models with one answer to a request. Answers that a slow reader keeps waiting are held, so no more
 * calls run than STREAM_ANSWER_BYTES has room for answers of the largest size so far, and few before the first has told its size.
 *
 * A language model's request takes generate.c's way (kserve_grpc_generate.c). In a stream its answers leave as they come, between those of
 * others; no further message is taken until it has been prepared, since that is done beside this thread.
 *
 * A call that fails inside a stream is a message with error_message and the request's id; the stream goes on. With the metadata
 * triton_grpc_error: true, it ends the stream with its status instead. */
#include <stdlib.h>

#include "api/admission_priv.h"
#include "api/guard.h"
#include "api/kserve_grpc_infer_priv.h"
#include "base/check.h"
#include "base/list.h"
#include "base/status.h"
#include "tensor/infer_proto.h"

#define STREAM_CALLS         64
#define STREAM_FIRST_CALLS   8 /* until an answer has told its size */
#define STREAM_ANSWER_BYTES  (64u << 20)
#define STREAM_PACKED_CALLS  4 /* of those, with a compressed request, which may take much more than what was charged for it */
#define STREAM_ARENA_BYTES   (1u << 20)
#define STREAM_ARENA_FIRST   4096u
#define LONG_PACKED_BYTES    (16u << 10) /* of a compressed message */
#define FIELDS_LOOKED_AT     256
#define REQUEST_RAW_CONTENTS 7
#define COMPRESS_FROM_BYTES  256
#define WRAP_BYTES           6 /* the key of a message around the response, and its length: at most 2 GiB */

static struct grpc_infer *grpc_infer_of(const struct infer_call *c)
{
    return CONTAINER_OF(c, struct grpc_infer, base);
}

/* ---- decode ---- */

static int authorise(struct grpc_infer *q, const struct infer_proto *m, struct error *err)
{
    struct route_match names = {.model = m->model_name, .version = m->model_version};
    if (!m->model_name.n)
        return error_set(err, STATUS_INVALID, "the request has no model_name");
    if (!m->model_version.n)
        names.version.p = NULL;
    int rc = route_check_names(&names, err);
    return rc ? rc : edge_authorise_model(q->g->api->o.edge, q->base.call->who, m->model_name, &q->verdict, err);
}

static int decode(struct infer_call *c, struct error *err)
{
    struct grpc_infer *q = grpc_infer_of(c);
    struct infer_proto m = {0};
    struct slice message = q->message.data;
    int rc = 0;
    if (q->plain.p) { /* a stand-in decodes it again */
        message = q->plain;
    } else if (q->message.compressed) {
        rc = grpc_inflate(q->g->coding, message, q->g->limit_bytes, c->request->max_inflate_ratio, &q->plain, err);
        message = q->plain;
        if (rc == 0 && !c->request->on_body) /* a stream's are bounded in number */
            rc = http_body_charge(c->request, message.n, err);
    }
    if (rc == 0)
        rc = infer_proto_decode(message, c->arena, NULL, &m, err);
    c->in = m.request; /* the id at least, for the reply */
    q->model = m.model_name;
    if (rc == 0)
        rc = authorise(q, &m, err);
    if (rc == 0)
        c->model = m.model_name;
    if (rc == 0 && !c->version)
        rc = registry_find(q->g->api->o.registry, m.model_name, m.model_version, &c->version, err);
    if (rc == 0 &&
        model_version_contract(c->version)->face == ENGINE_TOKEN) { /* another kind of life: it begins where this one fails */
        q->generates = true;
        model_version_unref(c->version);
        c->version = NULL;
        return error_set(err, STATUS_INVALID, "the model generates text");
    }
    return rc ? rc : api__infer_bind(c, err);
}

/* Typed contents are converted one by one, raw ones aren't touched. Which they are shows in the first fields, or it's an odd message. */
static bool is_raw(struct slice message)
{
    struct pb_reader r = pb_reader_of((struct str){(const char *)message.p, message.n});
    struct pb_field f;
    for (int i = 0; i < FIELDS_LOOKED_AT && pb_next(&r, &f, NULL) == 1; i++)
        if (f.number == REQUEST_RAW_CONTENTS)
            return true;
    return false;
}

static bool decode_is_long(const struct infer_call *c)
{
    const struct grpc_message *m = &grpc_infer_of(c)->message;
    if (m->compressed)
        return m->data.n > LONG_PACKED_BYTES;
    return m->data.n > INFER_LONG_BODY_BYTES || api__guard_is_long(c->call, m->data.n) ||
           (m->data.n > INFER_LONG_TEXT_BYTES && !is_raw(m->data));
}

/* ---- encode ---- */

/* The outputs as tensors in `outputs`; `tops` are the caller's to release. */
static int select_outputs(struct infer_call *c, const struct tensor **outputs, struct tensor *tops, size_t n, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = api__infer_output(c, i, &tops[i], &outputs[i], err);
    return rc;
}

/* What every message of the reply begins with is at the end of the `front` bytes before it: the frame's prefix and, in a stream, the key
 * and length of the message around the response. */
static void write_front(struct grpc_infer *q, uint8_t *head, size_t front, size_t message_bytes, bool in_stream)
{
    size_t wrap = in_stream ? 1 + pb_varint_size(message_bytes) : 0, skip = front - GRPC_PREFIX_BYTES - wrap;
    if (in_stream) {
        head[front - wrap] = STREAM_RESPONSE << 3 | PB_LEN;
        pb_varint_write(head + front - wrap + 1, message_bytes);
    }
    grpc_prefix_write(head + skip, false, (uint32_t)(message_bytes + wrap));
    q->slices[0].p += skip;
    q->slices[0].n -= skip;
}

/* In place of the reply's slices, one that is compressed. */
static int compress(struct grpc_infer *q, struct error *err)
{
    struct slice packed;
    q->slices[0].p += GRPC_PREFIX_BYTES;
    q->slices[0].n -= GRPC_PREFIX_BYTES;
    int rc = grpc_deflate(q->g->coding, q->slices, q->n, &packed, err);
    for (size_t i = 0; i < q->n; i++)
        slice_release(&q->slices[i]);
    q->n = rc == 0;
    q->slices[0] = packed;
    return rc;
}

static int encode_message(struct infer_call *c, bool in_stream, struct error *err)
{
    struct grpc_infer *q = grpc_infer_of(c);
    const struct admission *m = c->admission;
    struct infer_param params[2] = {{.key = STR("triton_final_response"), .kind = INFER_PARAM_BOOL, .b = true},
                                    {.key = STR("x-inferd-degraded"), .kind = INFER_PARAM_STRING}};
    if (m && m->why) /* each message of a stream says so itself; a unary answer does in its metadata */
        params[1].s = str_of(m->text);
    size_t n = api__infer_outputs(c), front = GRPC_PREFIX_BYTES + (in_stream ? WRAP_BYTES : 0), bytes;
    const struct tensor **outputs = arena_array(c->arena, n, sizeof *outputs);
    struct tensor *tops = arena_array(c->arena, n, sizeof *tops);
    uint8_t *head;
    q->slices = arena_array(c->arena, 1 + 2 * n, sizeof *q->slices);
    if (!outputs || !tops || !q->slices)
        return error_set(err, STATUS_NOMEM, "out of memory for this answer; try again later");
    struct infer_proto_reply reply = {
        .model_name = model_version_model(c->version),
        .model_version = model_version_version(c->version),
        .id = c->in.id,
        .params = params,
        .n_params = in_stream ? 1 + (params[1].s.n > 0) : 0,
        .outputs = outputs,
        .n_outputs = n,
        .copy_bytes = in_stream ? SIZE_MAX : INFER_PROTO_COPY_BYTES,
    };
    int rc = select_outputs(c, outputs, tops, n, err);
    if (rc == 0)
        rc = infer_proto_encode(&reply, front, q->slices, &q->n, &head, &bytes, err);
    for (size_t i = 0; i < n; i++)
        tensor_release(&tops[i]);
    if (rc)
        return rc;
    write_front(q, head, front, bytes, in_stream);
    return q->g->compress && bytes >= COMPRESS_FROM_BYTES ? compress(q, err) : 0;
}

static bool encode_is_long(const struct infer_call *c)
{
    size_t n = api__infer_outputs(c), bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += c->inf.outputs[c->in.n_outputs ? c->output_index[i] : i].data.n;
    return grpc_infer_of(c)->g->compress && bytes > INFER_LONG_OUTPUT_BYTES;
}

/* ---- ModelInfer ---- */

static int encode_unary(struct infer_call *c, struct error *err)
{
    return encode_message(c, false, err);
}

/* For the access log; the version may be unknown. */
static void note_end(struct grpc_infer *q)
{
    if (q->verdict > EDGE_ALLOWED)
        q->base.call->verdict = q->verdict;
    slice_release(&q->plain);
}

static void reply_unary(struct infer_call *c)
{
    struct grpc_infer *q = grpc_infer_of(c);
    note_end(q);
    api__grpc_reply_slices(q->g, q->g->compress, q->slices, q->n);
}

static void end_generated(void *owner, int status, const char *text, struct slice body)
{
    struct grpc_infer *q = owner;
    note_end(q);
    if (status < 0)
        api__grpc_fail(q->g, status, text, api__retry_after_s(status, NULL));
    else
        api__grpc_reply_slices(q->g, false, &body, 1);
}

static const struct gen_carrier unary_carrier = {.end = end_generated};

static void fail_unary(struct infer_call *c, int status, const char *text, uint32_t retry_after_s)
{
    struct grpc_infer *q = grpc_infer_of(c);
    if (q->generates && !c->request->gone) {
        api__grpc_generate(q, &unary_carrier, q, true);
        return;
    }
    note_end(q);
    api__grpc_fail(q->g, status, text, retry_after_s);
}

/* Its names outlive the message, for the log. */
static int decode_unary(struct infer_call *c, struct error *err)
{
    struct http_request *r = c->request;
    int rc = decode(c, err);
    if (c->version) {
        r->log_model = model_version_model(c->version);
        r->log_version = model_version_version(c->version);
    }
    return rc;
}

static const struct infer_protocol unary_protocol = {
    .label = MODEL_PROTOCOL_GRPC,
    .decode = decode_unary,
    .decode_is_long = decode_is_long,
    .encode = encode_unary,
    .encode_is_long = encode_is_long,
    .reply = reply_unary,
    .fail = fail_unary,
};

void api__grpc_infer(struct api *a, struct http_request *r, struct api_call *call)
{
    struct error err = {0};
    struct grpc_infer *q = ARENA_NEW(r->arena, struct grpc_infer);
    (void)a;
    int rc = q ? grpc_split(r->body, call->grpc->limit_bytes, &q->message, &err)
               : error_set(&err, STATUS_NOMEM, "out of memory for this call; try again later");
    if (rc < 0) {
        api__grpc_fail(call->grpc, rc, err.text, 0);
        return;
    }
    q->g = call->grpc;
    q->base.protocol = &unary_protocol;
    q->base.request = r;
    q->base.call = call;
    q->base.arena = r->arena;
    q->base.received_ns = r->received_ns;
    q->base.deadline_ns = call->grpc->deadline_ns;
    call->infer = &q->base;
    api__infer_start(&q->base, 0, NULL);
}

/* ---- ModelStreamInfer ---- */

struct infer_stream {
    struct grpc_stream s;
    struct list calls;     /* in the order of their requests */
    struct list generated; /* those of language models */
    bool preparing;        /* one of them is being prepared */
    size_t n_calls, n_packed;
    size_t answer_bytes; /* of the largest so far; 0: none yet */
    bool errors_end_it;  /* triton_grpc_error */
    bool begun;
};

struct stream_call {
    struct grpc_infer q;
    struct infer_stream *stream;
    struct list link;
    struct arena arena;
    size_t message_bytes;
    struct str id; /* of the request, for an error; lies in the message */
    bool done;
    int status; /* of one that failed and will end the stream */
    struct slice frame;
    struct error error;
};

static struct infer_stream *infer_stream_of(const struct grpc_stream *s)
{
    return CONTAINER_OF(s, struct infer_stream, s);
}

static void free_call(struct stream_call *sc)
{
    struct infer_stream *is = sc->stream;
    size_t bytes = sc->message_bytes;
    slice_release(&sc->frame);
    slice_release(&sc->q.plain);
    slice_release(&sc->q.message.data);
    arena_release(&sc->arena);
    free(sc);
    api__grpc_stream_release(&is->s, bytes);
}

static void take_off(struct stream_call *sc)
{
    list_remove(&sc->link);
    sc->stream->n_calls--;
    sc->stream->n_packed -= sc->q.message.compressed;
}

/* Send the answers whose turn it is. */
static void flush(struct infer_stream *is)
{
    while (!is->s.over && is->s.writable && !list_empty(&is->calls)) {
        struct stream_call *sc = LIST_ENTRY(list_first(&is->calls), struct stream_call, link);
        if (!sc->done)
            return;
        take_off(sc);
        if (sc->status < 0) {
            api__grpc_stream_finish(&is->s, sc->status, sc->error.text);
        } else {
            api__grpc_stream_send(&is->s, sc->frame);
            sc->frame = (struct slice){0};
        }
        free_call(sc);
    }
    if (is->s.reading_ended && list_empty(&is->calls) && list_empty(&is->generated))
        api__grpc_stream_finish(&is->s, STATUS_OK, "");
}

/* A stream's first model stands for it in the access log. */
static void note_model(struct http_request *r, struct str model)
{
    if (r->log_model.n || !str_is_model_name(model))
        return;
    const char *copy = arena_strdup(r->arena, model);
    if (copy)
        r->log_model = (struct str){copy, model.n};
}

/* A call is over: its answer waits for its turn, or nobody wants it any more. */
static void finish_call(struct stream_call *sc)
{
    struct infer_stream *is = sc->stream;
    struct http_request *r = is->s.g->request;
    http_hold(r);
    sc->done = true;
    is->answer_bytes = MAX_OF(is->answer_bytes, MAX_OF(sc->frame.n, (size_t)1));
    if (sc->q.verdict > EDGE_ALLOWED)
        sc->q.base.call->verdict = sc->q.verdict;
    note_model(r, sc->q.model);
    if (is->s.over) {
        take_off(sc);
        free_call(sc);
    } else {
        flush(is);
        api__grpc_stream_resume(&is->s);
    }
    http_release(r);
}

static int encode_in_stream(struct infer_call *c, struct error *err)
{
    return encode_message(c, true, err);
}

static void reply_in_stream(struct infer_call *c)
{
    struct stream_call *sc = CONTAINER_OF(c, struct stream_call, q.base);
    sc->frame = sc->q.slices[0]; /* all of it: nothing goes by reference */
    finish_call(sc);
}

/* What a failure is to its stream: a message, or its end. */
static void make_error(struct stream_call *sc, int status, const char *text)
{
    struct buf b;
    if (sc->stream->s.over || sc->stream->errors_end_it) {
        sc->status = error_set(&sc->error, status, "%s", text);
        return;
    }
    api__grpc_begin(&b);
    pb_put_str(&b, STREAM_ERROR, str_of(text));
    size_t response = pb_open_message(&b, STREAM_RESPONSE);
    pb_put_str(&b, RESPONSE_ID, sc->id);
    pb_close_message(&b, response);
    sc->status = api__grpc_frame(sc->q.g, &b, &sc->frame, &sc->error);
}

/* ---- a language model's call in a stream ---- */

static void on_generation_prepared(void *owner)
{
    struct stream_call *sc = owner;
    sc->stream->preparing = false;
    api__grpc_stream_resume(&sc->stream->s);
}

static bool write_generated(void *owner, struct slice piece)
{
    struct stream_call *sc = owner;
    api__grpc_stream_send(&sc->stream->s, piece);
    return sc->stream->s.writable;
}

static void end_in_stream(void *owner, int status, const char *text, struct slice body)
{
    struct stream_call *sc = owner;
    struct infer_stream *is = sc->stream;
    struct http_request *r = is->s.g->request;
    http_hold(r);
    is->answer_bytes = MAX_OF(is->answer_bytes, (size_t)1);
    note_model(r, sc->q.model);
    if (status < 0)
        make_error(sc, status, text);
    else
        sc->frame = body;
    if (sc->status < 0)
        api__grpc_stream_finish(&is->s, sc->status, sc->error.text);
    else if (sc->frame.p)
        api__grpc_stream_send(&is->s, sc->frame);
    sc->frame = (struct slice){0};
    take_off(sc);
    free_call(sc);
    flush(is);
    api__grpc_stream_resume(&is->s);
    http_release(r);
}

static const struct gen_carrier stream_carrier = {
    .prepared = on_generation_prepared, .write = write_generated, .end = end_in_stream};

static void generate_in_stream(struct stream_call *sc)
{
    list_remove(&sc->link);
    list_push_back(&sc->stream->generated, &sc->link);
    sc->stream->preparing = true;
    api__grpc_generate(&sc->q, &stream_carrier, sc, false);
}

static void fail_in_stream(struct infer_call *c, int status, const char *text, uint32_t retry_after_s)
{
    struct stream_call *sc = CONTAINER_OF(c, struct stream_call, q.base);
    struct grpc_stream *s = &sc->stream->s;
    (void)retry_after_s;
    if (sc->q.generates && !s->over) {
        generate_in_stream(sc);
        return;
    }
    /* the stream's deadline, which its timer sees about now: not this call's own misfortune */
    if (status == STATUS_DEADLINE && loop_update_now(c->request->loop) >= s->g->deadline_ns)
        api__grpc_stream_finish(s, status, text);
    make_error(sc, status, text);
    finish_call(sc);
}

static int decode_in_stream(struct infer_call *c, struct error *err)
{
    struct stream_call *sc = CONTAINER_OF(c, struct stream_call, q.base);
    int rc = decode(c, err);
    sc->id = c->in.id;
    return rc;
}

static const struct infer_protocol stream_protocol = {
    .label = MODEL_PROTOCOL_GRPC,
    .decode = decode_in_stream,
    .decode_is_long = decode_is_long,
    .encode = encode_in_stream,
    .encode_is_long = encode_is_long,
    .reply = reply_in_stream,
    .fail = fail_in_stream,
};

static void begin(struct infer_stream *is)
{
    is->begun = true;
    list_init(&is->calls);
    list_init(&is->generated);
    is->errors_end_it = str_ieqz(http_header_get(is->s.g->request, "triton_grpc_error"), "true");
}

static int on_message(struct grpc_stream *s, struct grpc_message *m, struct error *err)
{
    struct infer_stream *is = infer_stream_of(s);
    struct http_request *r = s->g->request;
    struct stream_call *sc = calloc(1, sizeof *sc);
    if (!is->begun)
        begin(is);
    if (!sc) {
        slice_release(&m->data);
        return error_set(err, STATUS_NOMEM, "out of memory for this call; try again later");
    }
    arena_init(&sc->arena, STREAM_ARENA_FIRST, STREAM_ARENA_BYTES);
    sc->stream = is;
    sc->message_bytes = m->data.n;
    sc->q.g = s->g;
    sc->q.message = *m;
    sc->q.base.protocol = &stream_protocol;
    sc->q.base.request = r;
    sc->q.base.call = r->user;
    sc->q.base.arena = &sc->arena;
    sc->q.base.received_ns = loop_now_ns(r->loop);
    sc->q.base.deadline_ns = s->g->deadline_ns;
    list_push_back(&is->calls, &sc->link);
    is->n_calls++;
    is->n_packed += m->compressed;
    api__grpc_stream_hold(s, sc->message_bytes);
    api__infer_start(&sc->q.base, 0, NULL);
    return 0;
}

static bool is_busy(const struct grpc_stream *s)
{
    const struct infer_stream *is = infer_stream_of(s);
    size_t most = is->answer_bytes ? MAX_OF(STREAM_ANSWER_BYTES / is->answer_bytes, (size_t)1) : STREAM_FIRST_CALLS;
    return is->n_calls >= MIN_OF(most, (size_t)STREAM_CALLS) || is->n_packed >= STREAM_PACKED_CALLS || is->preparing ||
           !s->writable;
}

static void on_input_end(struct grpc_stream *s)
{
    struct infer_stream *is = infer_stream_of(s);
    if (!is->begun)
        begin(is);
    flush(is);
}

static void on_writable(struct grpc_stream *s)
{
    struct infer_stream *is = infer_stream_of(s);
    if (!is->begun)
        return;
    LIST_EACH(link, &is->generated)
    {
        struct stream_call *sc = LIST_ENTRY(link, struct stream_call, link);
        if (sc->q.generation && s->writable)
            generate__resume(sc->q.generation);
    }
    flush(is);
    api__grpc_stream_resume(s);
}

static void on_over(struct grpc_stream *s)
{
    struct infer_stream *is = infer_stream_of(s);
    if (!is->begun)
        return;
    LIST_EACH(link, &is->generated)
    {
        struct stream_call *sc = LIST_ENTRY(link, struct stream_call, link);
        if (sc->q.generation)
            generate__abandon(sc->q.generation);
    }
    LIST_EACH(link, &is->calls)
    {
        struct stream_call *sc = LIST_ENTRY(link, struct stream_call, link);
        if (!sc->done) {
            api__infer_cancel(&sc->q.base);
        } else {
            take_off(sc);
            free_call(sc);
        }
    }
}

const struct grpc_stream_ops api__grpc_stream_infer = {
    .bytes = sizeof(struct infer_stream),
    .message = on_message,
    .input_end = on_input_end,
    .busy = is_busy,
    .writable = on_writable,
    .over = on_over,
};
