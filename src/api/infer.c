/* infer.c: the life of an inference, whichever protocol it came by: the one place that turns a decoded request into a submission.
 *
 *     start -> decode -> submit -> (instance thread: on_done posts the task) -> finish -> encode -> reply
 *
 * on the request's I/O thread. Bytes are the protocol's (infer_priv.h). A large body, or a large answer in JSON, would hold the thread,
 * and with it health and every other connection, for as long as the decoding takes; those go to the pool of work.h, and the pool posts
 * the call back:
 *
 *     start -> (pool: decode) -> decoded -> submit -> ... -> finish -> (pool: encode) -> encoded -> reply
 *
 * When the client leaves, the call is cancelled: work that still waits for the pool is dropped, a queued or running inference is
 * cancelled, work that the pool is at is dropped when it comes back. A body whose deadline (by header) passes while it waits is answered
 * on time. */
#include "api/guard.h"
#include "api/admission_priv.h"
#include "api/infer_priv.h"
#include "base/check.h"
#include "base/status.h"
#include "conf/model_config.h"
#include "model/registry.h"

#define OWN_ARENA_BYTES 4096

/* Drop what the call holds. Outputs may go out as slices of the engine's buffers, so the version must stay until the last byte is
 * written: its reference passes to the request's call, which drops it on completion. A call that shares its request with others
 * has copied its answer. */
static void release(struct infer_call *c)
{
    c->call->times = c->inf.times;
    if (c->call->infer == c) {
        c->call->infer = NULL;
        c->call->version = c->version;
        c->request->on_gone = NULL;
    } else {
        model_version_unref(c->version);
    }
    c->version = NULL;
    atomic_fetch_sub_explicit(&c->call->api->in_flight, 1, memory_order_relaxed);
    infer_json_release(&c->in);
    infer_release(&c->inf);
}

/* The protocol's arena is in use again. What the pool's calls took their memory from is the caller's, to be released last. */
static struct arena take_own_arena(struct infer_call *c)
{
    struct arena own = c->own;
    c->own = (struct arena){0};
    c->arena = c->given ? c->given : c->arena;
    return own;
}

static bool try_another(struct infer_call *c, int status, const struct error *err);
static void on_done(struct infer *inf);

static void fail(struct infer_call *c, int status, const struct error *err)
{
    struct error first;
    if (c->admission) {
        if (try_another(c, status, err))
            return;
        if (c->admission->why) { /* what stood in the way first is the answer */
            first = *c->admission->first;
            status = c->admission->status;
            c->request->retry_after_s = c->admission->retry_after_s;
            err = &first;
        }
    }
    struct arena own = take_own_arena(c);
    uint32_t retry_s = api__retry_after_s(status, c->version);
    if (c->version)
        model_version_record(c->version, c->protocol->label, status, &c->inf.times);
    c->call->status = status;
    if (c->verdict > EDGE_ALLOWED)
        c->call->verdict = c->verdict;
    release(c);
    c->protocol->fail(c, status, err->text, retry_s);
    arena_release(&own);
}

static void fail_gone(struct infer_call *c)
{
    struct error err = {0};
    int rc = error_set(&err, STATUS_CANCELLED, "the client closed the connection before its answer");
    fail(c, rc, &err);
}

void api__infer_cancel(struct infer_call *c)
{
    switch (c->where) {
    case INFER_HERE:
        break;
    case INFER_IN_POOL:
        if (!work_pool_remove(c->call->api->pool, &c->work))
            break; /* it comes back, and its reply is dropped */
        loop_timer_stop(c->request->loop, &c->deadline);
        fail_gone(c);
        break;
    case INFER_SUBMITTED:
        infer_cancel(&c->inf);
    }
}

/* False: the caller does it here. */
static bool give_to_pool(struct infer_call *c, void (*run)(struct work *w), enum api_offload kind)
{
    struct api *a = c->call->api;
    list_init(&c->work.link);
    c->work.run = run;
    if (!c->given) {
        c->given = c->arena;
        arena_init(&c->own, OWN_ARENA_BYTES, c->given->limit_bytes);
        c->arena = &c->own;
    }
    if (!work_pool_add(a->pool, &c->work))
        return false;
    c->where = INFER_IN_POOL;
    metric_inc(a->offloaded[kind]);
    return true;
}

/* ---- limits, breakers and stand-ins ---- */

/* The attempt is over. What it took can be measured where it ran: a cached answer says nothing. */
static void end_admission(struct infer_call *c, int status, bool answered)
{
    const struct infer_times *t = &c->inf.times;
    uint64_t now = t->output_ns ? t->output_ns : loop_now_ns(c->request->loop);
    bool ran = t->batched_ns && t->queued_ns && now > t->batched_ns;
    struct admission *m = c->admission;
    api__admission_end(c->call->api, m, status, ran ? now - t->queued_ns : 0, ran ? now - t->batched_ns : 0,
                       MAX_OF(c->inf.batch_rows, 1u));
    if (answered)
        api__admission_tell(c->request, c->call->api, m, c->call->infer == c);
}

static void start(struct infer_call *c, int rc, struct error *err);

/* From the beginning, with the model that `v` is; its reference is taken over. */
static void again(struct infer_call *c, struct model_version *v)
{
    struct infer_times times = {.received_ns = c->received_ns};
    struct error err = {0};
    struct arena own = take_own_arena(c);
    infer_json_release(&c->in);
    infer_release(&c->inf);
    arena_release(&own);
    model_version_unref(c->version);
    c->version = v;
    c->output_index = NULL;
    c->in = (struct infer_json){0};
    infer_init(&c->inf);
    c->inf.request_id = c->request->request_id.p;
    c->inf.deadline_ns = c->deadline_ns;
    c->inf.times = times;
    c->inf.done = on_done;
    start(c, 0, &err);
}

/* The attempt failed. True: another is under way. */
static bool try_another(struct infer_call *c, int status, const struct error *err)
{
    struct admission *m = c->admission;
    struct api *a = c->call->api;
    end_admission(c, status, false);
    m->model = c->model;
    if (c->request->gone || !api__admission_may_degrade(c->request, c->call, m, status, err, c->given ? c->given : c->arena))
        return false;
    if (c->version && api__admission_may_use_cache(a, m)) {
        again(c, model_version_ref(c->version));
        return true;
    }
    struct model_version *v = api__admission_next(a, m, false, false);
    if (v)
        again(c, v);
    return v != NULL;
}

/* ---- the way out, on the I/O thread ---- */

/* The reply is encoded, or can't be. */
static void finish_encoded(struct infer_call *c, int rc, const struct error *err)
{
    if (rc < 0) {
        fail(c, rc, err);
        return;
    }
    c->inf.times.encoded_ns = loop_update_now(c->request->loop);
    if (c->admission)
        end_admission(c, STATUS_OK, true);
    model_version_record(c->version, c->protocol->label, STATUS_OK, &c->inf.times);
    struct arena own = take_own_arena(c);
    if (c->call->guard && c->call->infer == c)
        api__guard_headers(c->request, c->call, c->flagged);
    release(c);
    c->protocol->reply(c);
    arena_release(&own);
}

static void encoded(struct loop_task *t)
{
    struct infer_call *c = CONTAINER_OF(t, struct infer_call, task);
    c->where = INFER_HERE;
    finish_encoded(c, c->work_status, &c->work_error);
}

static int encode(struct infer_call *c, struct error *err)
{
    int rc = api__guard_outputs(c, err);
    return rc ? rc : c->protocol->encode(c, err);
}

static int decode(struct infer_call *c, struct error *err)
{
    int rc = c->protocol->decode(c, err);
    return rc ? rc : api__guard_inputs(c, err);
}

/* Pool thread. */
static void run_encode(struct work *w)
{
    struct infer_call *c = CONTAINER_OF(w, struct infer_call, work);
    check_set_request(c->inf.request_id);
    c->work_status = encode(c, &c->work_error);
    check_set_request(NULL);
    c->task.run = encoded;
    loop_post(c->request->loop, &c->task);
}

/* The inference is over, one way or another. */
static void finish(struct loop_task *t)
{
    struct infer_call *c = CONTAINER_OF(t, struct infer_call, task);
    struct error err = {0};
    c->where = INFER_HERE;
    if (c->inf.status < 0) {
        fail(c, c->inf.status, &c->inf.error);
        return;
    }
    if (c->protocol->encode_is_long(c) || api__guard_is_long_answer(c)) {
        if (c->request->gone) {
            fail_gone(c);
            return;
        }
        if (give_to_pool(c, run_encode, API_OFFLOAD_ENCODE))
            return;
    }
    int rc = encode(c, &err);
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

static void charged(struct api_charge *charge, int rc, struct error *err);

/* Its rows, against the caller's quotas. AGAIN: `charged` goes on. */
static int charge(struct infer_call *c, struct error *err)
{
    if (!c->call->quota || (c->admission && c->admission->charged))
        return 0;
    if (c->admission)
        c->admission->charged = true; /* once, whichever model answers */
    const struct tensor *t = c->inf.n_inputs ? &c->inf.inputs[0] : NULL;
    bool batched = model_version_max_batch(c->version) > 0 && t && t->shape.rank > 0 && t->shape.dim[0] > 0;
    c->charge.resume = charged;
    c->charge.model = model_version_model(c->version);
    c->charge.rows = batched ? (uint64_t)t->shape.dim[0] : 1;
    return api__quota_charge(c->request, c->call, &c->charge, err);
}

/* Before it is queued, if not before it was decoded. From the cache alone: what is there needs no leave. */
static int admit(struct infer_call *c, struct error *err)
{
    struct admission *m = c->admission;
    if (!m || m->admitted || m->from_cache)
        return 0;
    return api__admit(c->request, c->call, m, c->version, c->in.priority, err);
}

static int enter_queue(struct infer_call *c, struct error *err)
{
    const struct admission *m = c->admission;
    c->inf.tenant = api__tenant_of(c->call);
    c->inf.class = m ? (uint32_t)m->class : 0;
    if (m && model_version_config(c->version)->priority_levels <= 1)
        c->inf.priority = 0; /* it said the class */
    c->where = INFER_SUBMITTED;
    if (m && m->from_cache)
        return infer_answer_cached(&c->inf, err);
    return infer_submit(&c->inf, api__turn_wakes(c->turn, c->inf.times.decoded_ns), err);
}

static void enter(struct infer_call *c, int rc, struct error *err)
{
    if (rc == 0)
        rc = enter_queue(c, err);
    if (rc < 0) {
        c->where = INFER_HERE;
        fail(c, rc, err);
    }
}

static void charged(struct api_charge *charge, int rc, struct error *err)
{
    struct infer_call *c = CONTAINER_OF(charge, struct infer_call, charge);
    c->inf.times.decoded_ns = loop_update_now(c->request->loop);
    if (c->request->gone)
        fail_gone(c);
    else
        enter(c, rc, err);
}

static void submit(struct infer_call *c, int rc, struct error *err)
{
    struct http_request *r = c->request;
    c->inf.times.decoded_ns = loop_update_now(r->loop);
    if (rc == 0)
        rc = admit(c, err);
    if (rc == 0)
        rc = charge(c, err);
    if (rc != STATUS_AGAIN)
        enter(c, rc, err);
}

static void decoded(struct loop_task *t)
{
    struct infer_call *c = CONTAINER_OF(t, struct infer_call, task);
    struct http_request *r = c->request;
    c->where = INFER_HERE;
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
    c->work_status = decode(c, &c->work_error);
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

static void on_gone(struct http_request *r)
{
    struct api_call *call = r->user;
    api__infer_cancel(call->infer);
}

static void start(struct infer_call *c, int rc, struct error *err)
{
    struct http_request *r = c->request;
    c->turn = api__turn(r->loop);
    if (!c->turn)
        rc = error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
    if (rc == 0 && c->admission && c->version && api__admission_is_early(c->call->api))
        rc = admit(c, err);
    if (rc < 0) {
        fail(c, rc, err);
        return;
    }
    c->inf.waker = &c->turn->waker;
    loop_timer_init(&c->deadline, on_deadline);
    if (c->protocol->decode_is_long(c) && give_to_pool(c, run_decode, API_OFFLOAD_DECODE)) {
        if (c->deadline_ns != SCHED_NEVER)
            loop_timer_start(r->loop, &c->deadline, c->deadline_ns);
        return;
    }
    rc = decode(c, err);
    submit(c, rc, err);
}

void api__infer_start(struct infer_call *c, int rc, const struct error *why)
{
    struct http_request *r = c->request;
    struct error err = rc < 0 ? *why : (struct error){0};
    c->admission = api__admission_new(c->call->api, c->arena, c->model);
    infer_init(&c->inf);
    c->inf.request_id = r->request_id.p;
    c->inf.done = on_done;
    c->inf.deadline_ns = c->deadline_ns;
    c->inf.times.received_ns = c->received_ns;
    if (c->call->infer == c)
        r->on_gone = on_gone;
    atomic_fetch_add_explicit(&c->call->api->in_flight, 1, memory_order_relaxed);
    start(c, rc, &err);
}
