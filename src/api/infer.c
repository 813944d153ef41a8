/* infer.c: POST /v2/models/{m}[/versions/{v}]/infer: the life of a call.
 *
 *     start -> decode -> submit -> (instance thread: on_done posts the task) -> finish -> encode -> reply
 *
 * on the request's I/O thread. Bytes are infer_body.c's. A large body, or a large answer in JSON, would hold the thread, and with it
 * health and every other connection, for as long as the decoding takes; those go to the pool of work.h, and the pool posts
 * the call back:
 *
 *     start -> (pool: decode) -> decoded -> submit -> ... -> finish -> (pool: encode) -> encoded -> reply
 *
 * When the client leaves, on_gone cancels: work that still waits for the pool is dropped, a queued or running inference is cancelled,
 * work that the pool is at is dropped when it comes back. A body whose deadline (by header) passes while it waits is answered on time. */
#include <stdio.h>

#include "api/infer_priv.h"
#include "base/check.h"
#include "base/status.h"
#include "model/registry.h"

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

static void fail_gone(struct infer_call *c)
{
    struct error err = {0};
    int rc = error_set(&err, STATUS_CANCELLED, "the client closed the connection before its answer");
    fail(c, rc, &err);
}

/* The client left while its bytes wait for the pool or are in it. */
static void on_gone_in_pool(struct http_request *r)
{
    struct api_call *call = r->user;
    struct infer_call *c = call->infer;
    if (!work_pool_remove(call->api->pool, &c->work))
        return; /* it comes back, and its reply is dropped */
    loop_timer_stop(r->loop, &c->deadline);
    fail_gone(c);
}

/* False: the caller does it here. */
static bool give_to_pool(struct infer_call *c, void (*run)(struct work *w), enum api_offload kind)
{
    struct api *a = c->call->api;
    list_init(&c->work.link);
    c->work.run = run;
    if (!work_pool_add(a->pool, &c->work))
        return false;
    c->request->on_gone = on_gone_in_pool;
    metric_inc(a->offloaded[kind]);
    return true;
}

static void reply(struct http_request *r, const struct encoding *e)
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

/* ---- the way out, on the I/O thread ---- */

/* The reply is encoded, or can't be. */
static void finish_encoded(struct infer_call *c, int rc, const struct error *err)
{
    struct http_request *r = c->request;
    struct encoding e = c->encoding;
    if (rc < 0) {
        fail(c, rc, err);
        return;
    }
    c->inf.times.encoded_ns = loop_update_now(r->loop);
    model_version_record(c->version, MODEL_PROTOCOL_HTTP, STATUS_OK, &c->inf.times);
    release(c);
    reply(r, &e);
}

static void encoded(struct loop_task *t)
{
    struct infer_call *c = CONTAINER_OF(t, struct infer_call, task);
    finish_encoded(c, c->work_status, &c->work_error);
}

/* Pool thread. */
static void run_encode(struct work *w)
{
    struct infer_call *c = CONTAINER_OF(w, struct infer_call, work);
    check_set_request(c->inf.request_id);
    c->work_status = api__infer_encode(c, &c->work_error);
    check_set_request(NULL);
    c->task.run = encoded;
    loop_post(c->request->loop, &c->task);
}

/* The inference is over, one way or another. */
static void finish(struct loop_task *t)
{
    struct infer_call *c = CONTAINER_OF(t, struct infer_call, task);
    struct error err = {0};
    if (c->inf.status < 0) {
        fail(c, c->inf.status, &c->inf.error);
        return;
    }
    if (api__infer_encode_is_long(c)) {
        if (c->request->gone) {
            fail_gone(c);
            return;
        }
        if (give_to_pool(c, run_encode, API_OFFLOAD_ENCODE))
            return;
    }
    int rc = api__infer_encode(c, &err);
    finish_encoded(c, rc, &err);
}

/* Any thread: only a post, inside the burst of the loop's waker. */
static void on_done(struct infer *inf)
{
    struct infer_call *c = CONTAINER_OF(inf, struct infer_call, inf);
    c->task.run = finish;
    loop_burst_post(c->request->loop, &c->task);
}

/* ---- the way in, on the I/O thread ---- */

static void on_gone(struct http_request *r)
{
    struct api_call *call = r->user;
    infer_cancel(&call->infer->inf);
}

static void submit(struct infer_call *c, int rc, struct error *err)
{
    struct http_request *r = c->request;
    c->inf.times.decoded_ns = loop_update_now(r->loop);
    if (rc == 0) {
        r->on_gone = on_gone;
        rc = infer_submit(&c->inf, api__turn_wakes(c->turn, c->inf.times.decoded_ns), err);
    }
    if (rc < 0)
        fail(c, rc, err);
}

static void decoded(struct loop_task *t)
{
    struct infer_call *c = CONTAINER_OF(t, struct infer_call, task);
    struct http_request *r = c->request;
    loop_timer_stop(r->loop, &c->deadline);
    if (r->gone)
        fail_gone(c);
    else
        submit(c, c->work_status, &c->work_error);
}

/* Pool thread. */
static void run_decode(struct work *w)
{
    struct infer_call *c = CONTAINER_OF(w, struct infer_call, work);
    check_set_request(c->inf.request_id);
    c->work_status = api__infer_decode(c, &c->work_error);
    check_set_request(NULL);
    c->task.run = decoded;
    loop_post(c->request->loop, &c->task);
}

static void on_deadline(struct loop_timer *t)
{
    struct infer_call *c = CONTAINER_OF(t, struct infer_call, deadline);
    struct error err = {0};
    if (!work_pool_remove(c->call->api->pool, &c->work))
        return; /* being decoded: infer_submit refuses it right after */
    int rc = error_set(&err, STATUS_DEADLINE, "the request's deadline passed before its body was decoded");
    fail(c, rc, &err);
}

static void start(struct infer_call *c)
{
    struct http_request *r = c->request;
    struct error err = {0};
    int rc = api__infer_deadline(c, &err);
    if (rc < 0) {
        submit(c, rc, &err);
        return;
    }
    loop_timer_init(&c->deadline, on_deadline);
    if (api__infer_decode_is_long(c) && give_to_pool(c, run_decode, API_OFFLOAD_DECODE)) {
        if (c->inf.deadline_ns != SCHED_NEVER)
            loop_timer_start(r->loop, &c->deadline, c->inf.deadline_ns);
        return;
    }
    rc = api__infer_decode(c, &err);
    submit(c, rc, &err);
}

void api__infer(struct api *a, struct http_request *r, struct api_call *call)
{
    struct model_version *v = api__find(a, r, call);
    if (!v)
        return;
    struct infer_call *c = ARENA_NEW(r->arena, struct infer_call);
    if (!c) {
        model_version_unref(v);
        http_reply_error(r, STATUS_NOMEM, "out of memory for this request; try again later", 1);
        return;
    }
    c->turn = api__turn(r->loop);
    if (!c->turn) {
        model_version_unref(v);
        http_reply_error(r, STATUS_NOMEM, "out of memory for this request; try again later", 1);
        return;
    }
    infer_init(&c->inf);
    c->inf.waker = &c->turn->waker;
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
    start(c);
}
