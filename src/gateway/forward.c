/* forward.c: one request on its way.
 *
 *   try -> pick -> (WAITING for room) -> take a connection -> (CONNECTING) -> SENT -> the head of an answer
 *             -> BUFFERING a small one -> reply           -> STREAMING a long one -> end, or broken in-band
 *   any failure before the first byte to the client: try again elsewhere, where route, budget and deadline allow; else an error reply
 *
 * What may be tried again: a try without a connection always (nothing was sent); everything else where the route is idempotent, as
 * inference is. Each try is on a server that this request has not been to. A kept connection that turns out to be closed is no try: what was
 * sent over it is sent again over a new one to the same server. A timer serves, in turn, room, connection, beginning of the answer, silence.
 *
 * The client may leave at any point: on_gone closes the connection, which is how the upstream learns of it, and the slot is free with it. */
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "gateway/gateway_priv.h"
#include "os/clock.h"
#include "route/report.h"
#include "wire/grpc_frame.h"

#define NS_PER_MS         1000000ull
#define NS_PER_S          1000000000ull
#define RETRY_AFTER_S     1
#define GRPC_UNAVAILABLE  "14"
#define RETRY_AFTER_MAX_S 60

#define HOPELESS 2 /* so many times longer than it may wait: refused at once */

static void try_next(struct forward *f);

void forward__arm(struct forward *f, uint64_t at_ns)
{
    if (f->hints.grpc) /* its deadline is the whole call's */
        at_ns = MIN_OF(at_ns, f->deadline_ns);
    if (at_ns == UINT64_MAX)
        loop_timer_stop(f->home->loop, &f->timer);
    else
        loop_timer_start(f->home->loop, &f->timer, at_ns);
}

/* ---- the end ---- */

static void leave_queue(struct forward *f)
{
    os_mutex_lock(&f->p->lock);
    waitlist_remove(&f->p->waits, &f->waiter);
    os_mutex_unlock(&f->p->lock);
}

/* The try is over: its place is free, its connection is gone. */
static void end_try(struct forward *f, enum pick_outcome outcome)
{
    exchange_drop(&f->x);
    if (!f->picked)
        return;
    f->picked = false;
    live_done(f->p, &f->pick, outcome, os_monotonic_ns());
}

/* The request has no part in its pool's budget any more. */
static void uncount(struct forward *f)
{
    os_mutex_lock(&f->p->lock);
    if (f->counted)
        retry_request_end(&f->p->budget);
    if (f->retrying)
        retry_end(&f->p->budget);
    os_mutex_unlock(&f->p->lock);
    f->counted = f->retrying = false;
}

static void release(struct loop_task *t)
{
    struct forward *f = CONTAINER_OF(t, struct forward, task);
    struct http_request *r = f->r;
    buf_release(&f->answer);
    upload_release(&f->up);
    gateway_forget(&f->target);
    http_release(r); /* frees `f`, which lives in its arena */
}

void forward__end(struct forward *f, enum pick_outcome outcome)
{
    if (f->phase == FORWARD_OVER)
        return;
    f->phase = FORWARD_OVER;
    f->r->on_gone = NULL;
    loop_timer_stop(f->home->loop, &f->timer);
    hedge__drop(f);
    if (f->tunnel && f->picked)
        tunnel__count(f);
    end_try(f, outcome);
    uncount(f);
    if (f->posted)
        return; /* its task is on the way, and will find it over */
    f->task.run = release;
    loop_defer(f->home->loop, &f->task);
}

/* For Retry-After: about when there would be room. */
static uint32_t wait_s(struct forward *f)
{
    os_mutex_lock(&f->p->lock);
    uint64_t ns = waitlist_expect_ns(&f->p->waits, f->waiter.class);
    os_mutex_unlock(&f->p->lock);
    return (uint32_t)MIN_OF(MAX_OF(ns / NS_PER_S, (uint64_t)RETRY_AFTER_S), (uint64_t)RETRY_AFTER_MAX_S);
}

static void fail(struct forward *f, int status, const char *text, enum pick_outcome outcome)
{
    uint32_t retry = status == STATUS_UNAVAILABLE ? RETRY_AFTER_S : status == STATUS_EXHAUSTED ? wait_s(f) : 0;
    http_reply_error(f->r, status, text, retry);
    forward__end(f, outcome);
}

/* ---- the client leaves ---- */

static void answer_nobody(struct loop_task *t)
{
    struct forward *f = CONTAINER_OF(t, struct forward, task);
    if (f->phase == FORWARD_STREAMING || f->phase == FORWARD_TUNNEL)
        http_stream_end(f->r);
    else
        http_reply_error(f->r, STATUS_CANCELLED, "the client went away", 0);
    forward__end(f, PICK_CANCELLED);
}

static void on_gone(struct http_request *r)
{
    struct forward *f = r->taker;
    r->on_gone = NULL;
    loop_timer_stop(f->home->loop, &f->timer);
    leave_queue(f);
    hedge__drop(f);
    if (f->tunnel)
        tunnel__count(f);
    end_try(f, PICK_CANCELLED);
    if (f->posted)
        return; /* `woken` sees that the client is gone */
    f->task.run = answer_nobody;
    loop_defer(f->home->loop, &f->task);
}

/* ---- trying again ---- */

static bool wanted(const struct forward *f, const char *why)
{
    const struct gateway_words *on = &f->p->o.retry.on;
    for (size_t i = 0; i < on->n; i++)
        if (strcmp(on->v[i], why) == 0)
            return true;
    return false;
}

/* A share of the budget, which the request keeps to its end. */
static bool budget(struct forward *f)
{
    if (f->retrying)
        return true;
    os_mutex_lock(&f->p->lock);
    f->retrying = retry_begin(&f->p->budget);
    os_mutex_unlock(&f->p->lock);
    if (!f->retrying)
        metric_inc(f->p->budget_refused);
    return f->retrying;
}

static struct gateway_live *other_pool(const struct forward *f)
{
    const char *name = f->target.route->fallback;
    struct gateway_live *other = f->on_fallback || !name[0] ? NULL : gateway__pool_of(f->target.table, name);
    return other == f->p ? NULL : other;
}

/* To the route's other pool, once. The budget is that pool's, whose first try it is. */
static bool fall_back(struct forward *f)
{
    struct gateway_live *other = other_pool(f);
    if (!other)
        return false;
    uncount(f);
    f->p = other;
    f->on_fallback = true;
    f->tries = 0;
    f->ask.n_tried = 0;
    return true;
}

/* Try again elsewhere, if that is allowed after `outcome` for reason `why` ("connect", "reset", "timeout", "503"); false: it isn't. */
static bool forward__retry(struct forward *f, enum pick_outcome outcome, const char *why, uint64_t now_ns)
{
    if (f->picked && hedge__takes_over(f)) {
        if (f->ask.n_tried < PICK_TRIED_MAX)
            f->ask.tried[f->ask.n_tried++] = f->pick.upstream;
        end_try(f, outcome);
        buf_clear(&f->answer);
        return true;
    }
    bool allowed = (strcmp(why, "connect") == 0 || f->target.route->idempotent) && now_ns < f->deadline_ns && !f->r->gone;
    if (allowed && !upload_can_rewind(&f->up)) {
        metric_inc(f->p->unreplayable);
        allowed = false;
    }
    bool again = allowed && wanted(f, why) && f->tries < f->p->o.retry.attempts && f->ask.n_tried < PICK_TRIED_MAX && budget(f);
    if (!again && !(allowed && other_pool(f)))
        return false;
    struct upstream *was = f->pick.upstream;
    end_try(f, outcome);
    if (again)
        f->ask.tried[f->ask.n_tried++] = was;
    else
        fall_back(f);
    buf_clear(&f->answer);
    try_next(f);
    return true;
}

/* ---- a try ---- */

static void on_timer(struct loop_timer *t)
{
    struct forward *f = CONTAINER_OF(t, struct forward, timer);
    uint64_t now = loop_now_ns(f->home->loop);
    switch (f->phase) {
    case FORWARD_WAITING:
        leave_queue(f);
        metric_inc(f->p->queue_refused);
        if (f->posted)
            return;
        fail(f, now >= f->deadline_ns ? STATUS_DEADLINE : STATUS_EXHAUSTED,
             "all servers for this request are busy, and it waited as long as it may: try again later", PICK_CANCELLED);
        return;
    case FORWARD_CONNECTING:
        f->last_status = STATUS_UPSTREAM;
        error_set(&f->last, STATUS_UPSTREAM, "%s", exchange__explain(EXCHANGE_SLOW_CONNECT));
        if (!forward__retry(f, PICK_GATEWAY_FAILURE, "connect", now))
            fail(f, now >= f->deadline_ns ? STATUS_DEADLINE : STATUS_UPSTREAM, f->last.text, PICK_GATEWAY_FAILURE);
        return;
    case FORWARD_SENT:
    case FORWARD_BUFFERING:
        f->last_status = STATUS_DEADLINE; /* should nobody else be left to ask */
        error_set(&f->last, STATUS_DEADLINE, "the server for this request did not answer in time");
        if (now < f->deadline_ns && forward__retry(f, PICK_TIMEOUT, "timeout", now))
            return;
        fail(f, STATUS_DEADLINE, f->last.text, now >= f->try_until_ns ? PICK_TIMEOUT : PICK_CANCELLED);
        return;
    case FORWARD_STREAMING:
        if (f->hints.grpc && now >= f->deadline_ns)
            answer__break(f, STATUS_DEADLINE, "the call's deadline passed");
        else
            answer__break(f, STATUS_UPSTREAM, "the server that answered this request fell silent");
        return;
    case FORWARD_TUNNEL:
        tunnel__silent(f);
        return;
    case FORWARD_OVER:
        return;
    }
}

/* The time for the try counts from the last that moved, and not while it is the client who has more to send. */
static void await(struct forward *f)
{
    uint64_t most = f->target.route->try_timeout;
    bool client_paces = f->up.streamed && !f->up.ended && f->up.sent == f->up.total;
    f->try_until_ns = most && !client_paces ? loop_now_ns(f->home->loop) + most : UINT64_MAX;
    forward__arm(f, MIN_OF(f->deadline_ns, f->try_until_ns));
}

static void send_now(struct forward *f)
{
    f->phase = FORWARD_SENT;
    upload_rewind(&f->up);
    await(f);
    exchange_send(&f->x, &f->request);
}

void forward__yield(struct forward *f)
{
    loop_timer_stop(f->home->loop, &f->timer);
    end_try(f, PICK_CANCELLED);
}

void forward__lost(struct forward *f, const char *why)
{
    f->last_status = strcmp(why, "timeout") == 0 ? STATUS_DEADLINE : STATUS_UPSTREAM;
    error_set(&f->last, f->last_status, "no server that was asked for this request answered it");
    if (!forward__retry(f, PICK_CANCELLED, why, loop_update_now(f->home->loop)))
        fail(f, f->last_status, f->last.text, PICK_CANCELLED);
}

/* To the server that was picked. */
static void ask_server(struct forward *f, uint64_t now)
{
    struct error err;
    f->try_until_ns = UINT64_MAX;
    int rc = headers__request(f, now, &err);
    if (!rc && exchange_take(&f->x, f->home, f->p->transport, upstream_name(f->pick.upstream), upstream_host(f->pick.upstream)))
        rc = error_set(&err, STATUS_NOMEM, "out of memory for this request; try again later");
    if (rc) {
        fail(f, rc, err.text, PICK_CANCELLED);
        return;
    }
    hedge__arm(f, now);
    if (!f->x.connecting) {
        send_now(f);
        return;
    }
    f->phase = FORWARD_CONNECTING;
    forward__arm(f, MIN_OF(f->deadline_ns, now + f->p->o.connect_timeout));
    exchange_connect(&f->x);
}

static void start_try(struct forward *f, uint64_t now)
{
    f->tries++;
    ask_server(f, now);
}

/* The same try again, over a new connection: its pick stays, and neither budget nor the server's record hears of it. False: what was sent
 * may have been begun and must not be twice, or can't be sent again; or a server has left twice, which is no orderly end. */
static bool renew(struct forward *f, uint64_t now)
{
    bool may = f->x.left ? !f->left : f->target.route->idempotent;
    if (!may || !upload_can_rewind(&f->up) || now >= f->deadline_ns || f->r->gone)
        return false;
    f->left |= f->x.left;
    f->x.anew = true;
    ask_server(f, now);
    return true;
}

/* No server has room: wait for it, behind those who wait already. p->lock held; it is let go. */
static void wait_for_room(struct forward *f, uint64_t now)
{
    struct gateway_live *p = f->p;
    bool again = f->wait_until_ns != 0; /* somebody was faster: it keeps its place */
    uint64_t until = MIN_OF(f->deadline_ns, again ? f->wait_until_ns : now + p->o.queue_timeout);
    uint64_t expect = again ? 0 : waitlist_expect_ns(&p->waits, f->waiter.class);
    bool hopeless = p->waits.n && expect / HOPELESS > until - MIN_OF(now, until);
    struct waiter *out = NULL;
    f->waiter.seq = again ? f->waiter.seq : 0;
    bool full = hopeless || !waitlist_add(&p->waits, &f->waiter, &out);
    if (!full) {
        f->phase = FORWARD_WAITING;
        f->wait_until_ns = again ? f->wait_until_ns : now + p->o.queue_timeout;
        f->waits_since_ns = again ? f->waits_since_ns : now;
    }
    if (out) {
        struct forward *other = CONTAINER_OF(out, struct forward, waiter);
        other->evicted = other->posted = true;
        loop_post(other->home->loop, &other->task);
    }
    os_mutex_unlock(&p->lock);
    if (!again)
        metric_inc(full ? p->queue_refused : p->queued);
    if (full)
        fail(
            f, STATUS_EXHAUSTED,
            hopeless
                ? "all servers for this request are busy, and more wait already than can be served in its time: try again later"
                : "all servers for this request are busy, and so many wait already: try again later",
            PICK_CANCELLED);
    else
        forward__arm(f, MIN_OF(f->deadline_ns, f->wait_until_ns));
}

static void try_next(struct forward *f)
{
    struct gateway_live *p = f->p;
    struct upstream_view view;
    struct error err;
    uint64_t now = loop_update_now(f->home->loop);
    os_mutex_lock(&p->lock);
    if (!f->counted)
        retry_request_begin(&p->budget);
    f->counted = true;
    bool behind = p->waits.n && !f->wait_until_ns; /* others wait already */
    int rc = behind ? STATUS_EXHAUSTED : pool_pick(p->pool, &f->ask, now, &f->pick, &err);
    if (rc == STATUS_EXHAUSTED) {
        wait_for_room(f, now);
        return;
    }
    if (rc == 0 && f->wait_until_ns)
        live_wake_one(p); /* there may be room for one more */
    if (rc == 0 && f->wait_until_ns) {
        waitlist_served(&p->waits, now);
        metric_observe(p->queue_seconds, (double)(now - f->waits_since_ns) / NS_PER_S);
    }
    f->wait_until_ns = 0;
    bool unknown = rc != 0 && !pool_look(p->pool, 0, now, &view);
    os_mutex_unlock(&p->lock);
    if (rc == 0 && f->tries)
        metric_inc(p->retries);
    f->picked = rc == 0;
    if (rc == 0) {
        start_try(f, now);
    } else if (fall_back(f)) {
        try_next(f);             /* once: there is no fallback from the fallback */
    } else if (f->ask.n_tried) { /* nobody left to ask: the latest failure is the answer */
        fail(f, f->last_status, f->last.text, PICK_CANCELLED);
    } else {
        fail(f, STATUS_UNAVAILABLE,
             unknown ? "no server for this request is known: the names of its servers can't be resolved: try again later"
                     : "no server for this request is in service: try again later",
             PICK_CANCELLED);
    }
}

/* There may be room. */
static void woken(struct loop_task *t)
{
    struct forward *f = CONTAINER_OF(t, struct forward, task);
    f->posted = false;
    if (f->phase == FORWARD_OVER) {
        release(t);
        return;
    }
    if (f->r->gone) {
        answer_nobody(t);
        return;
    }
    if (f->evicted) {
        metric_inc(f->p->evicted);
        fail(f, STATUS_EXHAUSTED,
             "all servers for this request are busy, and its place in the queue went to another: try again later",
             PICK_CANCELLED);
        return;
    }
    if (loop_update_now(f->home->loop) >= f->deadline_ns) {
        fail(f, STATUS_DEADLINE, "all servers for this request were busy until its deadline", PICK_CANCELLED);
        return;
    }
    try_next(f);
}

/* ---- the connection says something ---- */

enum pick_outcome forward__outcome(int status)
{
    if (status == 502 || status == 503 || status == 504)
        return PICK_GATEWAY_FAILURE;
    return status == 500 ? PICK_SERVER_ERROR : PICK_OK;
}

static const char *retry_word(int status)
{
    return status == 502 ? "502" : status == 503 ? "503" : status == 504 ? "504" : NULL;
}

static struct forward *of(struct exchange *x)
{
    return CONTAINER_OF(x, struct forward, x);
}

static void on_connected(struct exchange *x)
{
    send_now(of(x));
}

/* The answer's status in HTTP's terms: a gRPC call that ends with UNAVAILABLE and nothing else is what 503 is there. */
static int status_of(const struct forward *f)
{
    const struct exchange *x = &f->x;
    struct str said = f->hints.grpc && x->status == 200 ? exchange_header(x, "grpc-status") : (struct str){0};
    return str_eqz(said, GRPC_UNAVAILABLE) ? 503 : x->status;
}

static void on_head(struct exchange *x)
{
    struct forward *f = of(x);
    int status = status_of(f);
    const char *why = retry_word(status);
    uint64_t now = loop_now_ns(f->home->loop);
    report__head(f);
    if (why && wanted(f, why)) {
        f->last_status = status == 503 ? STATUS_UNAVAILABLE : status == 504 ? STATUS_DEADLINE : STATUS_UPSTREAM;
        error_set(&f->last, f->last_status, "every server that was asked answered %d", status);
        if (forward__retry(f, PICK_GATEWAY_FAILURE, why, now))
            return;
    }
    forward__arm(f, now + f->target.route->idle_timeout);
    answer__begin(f);
}

static void on_body(struct exchange *x, struct str part)
{
    struct forward *f = of(x);
    if (f->phase == FORWARD_TUNNEL) {
        tunnel__take(f, part);
        return;
    }
    if (f->phase == FORWARD_STREAMING)
        forward__arm(f, loop_now_ns(f->home->loop) + f->target.route->idle_timeout);
    answer__take(f, part);
}

static void on_done(struct exchange *x)
{
    struct forward *f = of(x);
    answer__end(f);
    forward__end(f, forward__outcome(status_of(f)));
}

/* The server has switched to another protocol, as it was asked to: if it has understood. */
static void on_switched(struct exchange *x)
{
    struct forward *f = of(x);
    bool accepted = tunnel__is_accepted(f);
    report__head(f);
    if (accepted && tunnel__begin(f)) {
        uncount(f); /* what may last for days is no measure of how many retries are too many */
        return;
    }
    if (accepted) {
        fail(f, STATUS_NOMEM, "out of memory for this request; try again later", PICK_CANCELLED);
        return;
    }
    f->last_status = STATUS_UPSTREAM;
    error_set(&f->last, STATUS_UPSTREAM, "the server for this request answered the WebSocket's handshake wrongly");
    if (!forward__retry(f, PICK_GATEWAY_FAILURE, "reset", loop_update_now(f->home->loop)))
        fail(f, STATUS_UPSTREAM, f->last.text, PICK_GATEWAY_FAILURE);
}

static void on_ended(struct exchange *x)
{
    tunnel__ended(of(x));
}

static void on_failed(struct exchange *x, const struct error *err)
{
    struct forward *f = of(x);
    uint64_t now = loop_update_now(f->home->loop);
    const char *why = f->phase == FORWARD_CONNECTING || x->unsent ? "connect" : "reset";
    if (f->phase == FORWARD_STREAMING) {
        answer__break(f, STATUS_UPSTREAM, "the server that answered this request broke off");
        return;
    }
    if (f->phase == FORWARD_TUNNEL) {
        tunnel__broke(f);
        return;
    }
    f->last_status = STATUS_UPSTREAM;
    error_set(&f->last, STATUS_UPSTREAM, "%s", exchange__explain(x->fault));
    LOG(f->g->o.log, LOG_DEBUG, "upstream_failed", LOG_STR("upstream", upstream_name(f->pick.upstream)), LOG_S("why", why),
        LOG_S("reason", err->text), LOG_STR("request_id", f->r->request_id));
    /* a kept connection that the server closed while it idled, or one that it ends as it had enough requests, says nothing about the server */
    bool stale = x->reused && f->phase == FORWARD_SENT && !x->heard;
    if ((x->left || (stale && !x->unsent)) && renew(f, now))
        return;
    enum pick_outcome outcome = stale ? PICK_CANCELLED : PICK_GATEWAY_FAILURE;
    if (!forward__retry(f, outcome, why, now))
        fail(f, STATUS_UPSTREAM, f->last.text, outcome);
}

static struct str on_pending(struct exchange *x, bool *last)
{
    return upload_pending(&of(x)->up, last);
}

static void on_taken(struct exchange *x, size_t n)
{
    struct forward *f = of(x);
    upload_taken(&f->up, f->r, n);
    if (f->phase == FORWARD_TUNNEL)
        tunnel__taken(f);
    else if (f->phase == FORWARD_SENT && f->up.streamed)
        await(f);
}

static const struct exchange_events events = {
    .connected = on_connected,
    .head = on_head,
    .body = on_body,
    .done = on_done,
    .failed = on_failed,
    .pending = on_pending,
    .taken = on_taken,
    .switched = on_switched,
    .ended = on_ended,
};

/* ---- the beginning ---- */

static uint64_t hash_key(const struct forward *f)
{
    const struct gateway_pool *o = &f->p->o;
    struct str s = o->hash_header[0] ? http_header_get(f->r, o->hash_header) : (struct str){0};
    if (!s.p)
        switch ((enum gateway_hash)o->hash_key) {
        case GATEWAY_HASH_CLIENT:
            s = http_peer_address(f->r);
            break;
        case GATEWAY_HASH_MODEL:
            s = f->hints.model;
            break;
        case GATEWAY_HASH_USER:
            s = f->hints.user;
            break;
        case GATEWAY_HASH_PATH:
            s = f->r->path;
            break;
        }
    return hash_bytes(s.p, s.n, 7);
}

/* A gRPC client's: of the whole call. */
static uint64_t grpc_deadline_of(const struct http_request *r)
{
    struct str timeout = http_header_get(r, "grpc-timeout");
    uint64_t ns, at;
    struct error err;
    if (!timeout.p || grpc_timeout_parse(timeout, &ns, &err) < 0 || __builtin_add_overflow(r->first_byte_ns, ns, &at))
        return UINT64_MAX;
    return at;
}

/* The client's own deadline, from the request's first byte when its end has not come yet. */
static uint64_t deadline_of(const struct http_request *r)
{
    struct str h = http_header_get(r, "x-inferd-timeout-ms");
    uint64_t ms, at = UINT64_MAX, ns, from = r->on_body ? r->first_byte_ns : r->received_ns;
    if (h.p && str_to_u64(h, &ms) && ms && !__builtin_mul_overflow(ms, NS_PER_MS, &ns) && __builtin_add_overflow(from, ns, &at))
        at = UINT64_MAX;
    return at;
}

/* The route's time counts from the request's end. */
static void set_deadline(struct forward *f, uint64_t ended_ns)
{
    uint64_t most = f->target.route->timeout;
    f->deadline_ns = most ? MIN_OF(f->client_deadline_ns, ended_ns + most) : f->client_deadline_ns;
}

/* The body with another model's name in it: everything else stays as it was. NOMEM. */
static int take_body(struct forward *f)
{
    const char *name = f->target.route->rewrite_model;
    struct str body = {(const char *)f->r->body.p, f->r->body.n};
    if (f->r->on_body) {
        upload_init_streamed(&f->up, f->p->o.retry.buffer);
        return 0;
    }
    if (!name[0] || !f->hints.model_raw.p) {
        upload_init(&f->up, slice_borrow(f->r->body.p, f->r->body.n));
        return 0;
    }
    struct buf out;
    buf_init(&out);
    size_t at = (size_t)(f->hints.model_raw.p - body.p), end = at + f->hints.model_raw.n;
    buf_append(&out, body.p, at);
    buf_append_json_str(&out, str_of(name));
    buf_append(&out, body.p + end, body.n - end);
    upload_init(&f->up, slice_take(&out));
    return f->up.whole.p ? 0 : STATUS_NOMEM;
}

static struct forward *forward_new(struct gateway *g, struct http_request *r, struct gateway_target *target,
                                   const struct gateway_hints *hints)
{
    struct forward *f = arena_alloc(r->arena, sizeof *f);
    struct gateway_loop *home = peers_of_loop(g, r->loop);
    if (!f || !home)
        return NULL;
    *f = (struct forward){.r = r,
                          .g = g,
                          .target = *target,
                          .home = home,
                          .hints = *hints,
                          .task.run = woken,
                          .x.events = &events,
                          .x.arena = r->arena,
                          .x.fresh = http_tunnel_offered(r),
                          .upgrade = http_tunnel_offered(r)};
    f->p = gateway__pool_of(target->table, target->route->upstream);
    f->client_deadline_ns = f->deadline_ns = hints->grpc ? grpc_deadline_of(r) : deadline_of(r);
    if (!r->on_body)
        set_deadline(f, r->received_ns);
    waiter_init(&f->waiter);
    f->waiter.class = (enum wait_class)(hints->priority ? hints->priority - 1 : target->route->priority);
    f->waiter.tenant = hash_bytes(hints->tenant.p, hints->tenant.n, g->seed);
    f->waiter.cost = MAX_OF(hints->tokens, (uint64_t)1);
    loop_timer_init(&f->timer, on_timer);
    buf_init(&f->answer);
    f->ask.hash = hash_key(f);
    f->ask.tokens = hints->tokens;
    if (f->p->o.zone_header[0])
        f->ask.zone = gateway__find_zone(g, http_header_get(r, f->p->o.zone_header));
    if (!f->ask.zone && f->p->o.geo.file[0])
        f->ask.zone = geo__zone(f->p, http_peer_address(r));
    if (f->p->o.balance == BALANCE_LLM && hints->model.n)
        f->ask.adapter = report_adapter(target->route->rewrite_model[0] ? str_of(target->route->rewrite_model) : hints->model);
    if (f->p->o.balance == BALANCE_LLM && hints->prompt.n) {
        f->blocks = arena_array(r->arena, PREFIX_BLOCKS_MAX, sizeof *f->blocks);
        if (!f->blocks)
            return NULL;
        f->ask.prefix = f->blocks;
        f->ask.n_prefix =
            prefix_hash(hints->prompt, hash_bytes(hints->model.p, hints->model.n, 3), f->blocks, PREFIX_BLOCKS_MAX);
    }
    return take_body(f) ? NULL : f;
}

/* Not yet at a server, or before its answer: an error is still possible. */
static void refuse_body(struct forward *f, int status, const char *text)
{
    if (f->phase == FORWARD_STREAMING && f->hints.grpc) {
        answer__break(f, status, text);
        return;
    }
    if (f->phase == FORWARD_STREAMING) {
        http_stream_abort(f->r);
        forward__end(f, PICK_CANCELLED);
        return;
    }
    leave_queue(f);
    fail(f, status, text, PICK_CANCELLED);
}

void gateway_piece(struct http_request *r, struct slice piece, bool last)
{
    struct forward *f = r->taker;
    struct error err;
    if (!f || f->phase == FORWARD_OVER || r->gone) {
        http_body_consumed(r, piece.n);
        return;
    }
    int rc = upload_add(&f->up, r, piece, last, f->hints.endless ? UINT64_MAX : f->target.route->max_body, &err);
    if (rc) {
        refuse_body(f, rc, err.text);
        return;
    }
    if (last)
        set_deadline(f, loop_now_ns(f->home->loop));
    if (f->phase == FORWARD_SENT)
        await(f);
    else if (f->phase == FORWARD_STREAMING && !f->blocked)
        forward__arm(f, loop_now_ns(f->home->loop) + f->target.route->idle_timeout);
    if (f->phase >= FORWARD_SENT)
        exchange_more(&f->x);
}

void gateway_cut(struct http_request *r, int status, const char *text)
{
    struct forward *f = r->taker;
    if (f && f->phase != FORWARD_OVER && !r->gone)
        refuse_body(f, status, text);
}

/* May a body of this request be passed on as it comes? Not where it is announced within what is kept anyway, nor where there will be none. */
static bool is_worth_streaming(const struct gateway_live *p, const struct http_request *r)
{
    struct str length = http_header_get(r, "content-length");
    uint64_t n;
    bool bodiless = r->method == HTTP_GET || r->method == HTTP_HEAD || r->method == HTTP_DELETE || r->method == HTTP_OPTIONS;
    if (length.p)
        return str_to_u64(length, &n) && n > p->o.retry.buffer;
    return r->version == 20 ? !bodiless : http_header_get(r, "transfer-encoding").p != NULL;
}

bool gateway_stream_body(const struct gateway_target *target, struct http_request *r)
{
    const struct gateway_live *p = gateway__pool_of(target->table, target->route->upstream);
    if (!is_worth_streaming(p, r))
        return false;
    r->on_body = gateway_piece;
    r->body_raw = true;
    return true;
}

void gateway_forward(struct gateway *g, struct http_request *r, struct gateway_target *target,
                     const struct gateway_hints *hints)
{
    if (headers__looped(g, r)) {
        gateway_forget(target);
        http_reply_error(r, STATUS_LOOP, "this request came back to the gateway that had sent it on: its routes form a loop",
                         0);
        return;
    }
    struct forward *f = forward_new(g, r, target, hints);
    if (!f) {
        gateway_forget(target);
        http_reply_error(r, STATUS_NOMEM, "out of memory for this request; try again later", 1);
        return;
    }
    *target = (struct gateway_target){0};
    if (hints->grpc && f->p->transport->protocol == GATEWAY_HTTP1) {
        gateway_forget(&f->target);
        http_reply_error(r, STATUS_UNAVAILABLE,
                         "the servers for this call are spoken to in HTTP/1.1: their pool needs protocol: http2", 0);
        return;
    }
    http_hold(r);
    r->taker = f;
    r->on_gone = on_gone;
    if (r->on_body)
        r->body_limit_bytes = UINT64_MAX; /* counted here, so that one past it can be told */
    try_next(f);
}
