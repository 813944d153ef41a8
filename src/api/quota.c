/* quota.c: a request's hold on the quotas (edge/quota_gate.h), from its headers to its last byte.
 *
 * Only routes that ask for the scopes infer and read are counted: probes, and what operators do, are never refused for want of quota. Where the
 * model is in the path, the request's share is taken before its body is read; where it is in the body, as soon as the body is understood.
 *
 * A question that the Redis has to answer (edge/quota_shared.h) is out while the request goes on: that of the headers while the body comes in,
 * then, and for later ones, the request is parked and goes on from a task on its loop. It is held meanwhile, so what the question points to
 * stays. Questions of one request are asked one after the other.
 *
 * Settled when the reply is complete: by what was produced, also when the client has left. A request that was refused for want of anything
 * (429, 503) takes nothing. */
#include "api/api_priv.h"
#include "base/size.h"
#include "base/status.h"
#include "edge/quota_gate.h"
#include "os/clock.h"
#include "os/thread.h"

#define NS_PER_S 1000000000u

static uint64_t seconds(uint64_t ns)
{
    return ns / NS_PER_S + (ns % NS_PER_S != 0);
}

static void add_text(struct api_quota *q, size_t *n, const char *name, size_t name_n, struct str value)
{
    q->headers[(*n)++] = (struct http_header){{name, name_n}, value};
}

static void add_number(struct api_quota *q, size_t *n, size_t *t, const char *name, size_t name_n, uint64_t value)
{
    char *text = q->text[(*t)++], *end = text + sizeof q->text[0], *at = end;
    do
        *--at = (char)('0' + value % 10);
    while (value /= 10);
    add_text(q, n, name, name_n, (struct str){at, (size_t)(end - at)});
}

#define NAME(z) z, sizeof z - 1

/* The headers that say how things stand: of the policy that refused, else of the one with the least left. */
static void set_headers(struct http_request *r, struct api_quota *q, const struct quota_verdict *v, bool refused)
{
    size_t n = 0, t = 0;
    if (!v->limit)
        return;
    add_text(q, &n, NAME("x-ratelimit-policy"), str_of(v->policy));
    add_text(q, &n, NAME("x-ratelimit-unit"), str_of(quota_unit_name(v->unit)));
    add_number(q, &n, &t, NAME("x-ratelimit-limit"), v->limit);
    add_number(q, &n, &t, NAME("x-ratelimit-remaining"), v->remaining);
    add_number(q, &n, &t, NAME("x-ratelimit-reset"), seconds(v->reset_ns));
    add_number(q, &n, &t, NAME("x-ratelimit-cost"), v->cost);
    if (refused)
        add_text(q, &n, NAME("x-ratelimit-kind"), quota_unit_is_budget(v->unit) ? STR("budget") : STR("rate"));
    r->own_headers = q->headers;
    r->n_own_headers = n;
}

static int refuse(struct http_request *r, struct api_call *call, const struct quota_verdict *v, struct error *err)
{
    bool budget = !v->full && quota_unit_is_budget(v->unit);
    call->verdict = EDGE_OVER_QUOTA;
    call->error_code = budget ? "insufficient_quota" : "rate_limit_exceeded";
    r->retry_after_s = v->wait_ns ? (uint32_t)MIN_OF(seconds(v->wait_ns), (uint64_t)UINT32_MAX - 1) : UINT32_MAX;
    quota_explain(v, err);
    return STATUS_EXHAUSTED;
}

/* When a question is asked. */
struct moment {
    uint64_t now_ns, now_s;
};

/* The loop's own clocks do for whoever runs on it. */
static struct moment on_loop(const struct http_request *r)
{
    return (struct moment){loop_now_ns(r->loop), loop_wall_s(r->loop)};
}

/* What is asked first: 0, EXHAUSTED or AGAIN of the gate. */
static int ask_first(struct http_request *r, struct api_call *call, struct str model, uint64_t rows, uint64_t tokens,
                     struct moment at)
{
    const struct edge_identity *who = call->who;
    enum route_id id = call->match.id;
    const struct quota_ask ask = {
        .key = who ? str_of(who->id) : http_peer_address(r), /* an address is as good as a key where nobody is asked for one */
        .tenant = who ? str_of(who->tenant) : STR("default"),
        .quota_class = who ? str_of(who->quota) : STR("default"),
        .model = model,
        .route = str_of(route_name(id)),
        .runs = route_need(id).scope == EDGE_INFER,
        .at_once = id == ROUTE_GRPC_REFLECTION || id == ROUTE_GRPC_HEALTH_WATCH, /* their bodies come in pieces at once */
        .rows = rows,
        .tokens = tokens,
        .now_ns = at.now_ns,
        .now_s = at.now_s,
    };
    return quota_gate_ask(call->api->o.quota, &ask, call->quota->wait);
}

/* The gate's answer: into the request. */
static int answered(struct http_request *r, struct api_call *call, bool first, struct error *err)
{
    struct api_quota *q = call->quota;
    const struct quota_wait *w = q->wait;
    if (first) {
        q->taken = w->rc == 0;
        q->id = w->rc == 0 ? w->id : 0;
    }
    if (first || w->rc < 0)
        set_headers(r, q, &w->v, w->rc < 0);
    return w->rc < 0 ? refuse(r, call, &w->v, err) : 0;
}

static int ask(struct http_request *r, struct api_call *call, struct str model, uint64_t rows, uint64_t tokens,
               struct moment at)
{
    struct api_quota *q = call->quota;
    if (!q->taken)
        return ask_first(r, call, model, rows, tokens, at);
    return quota_gate_ask_more(call->api->o.quota, q->id, rows, tokens, at.now_ns, at.now_s, q->wait);
}

/* ---- questions that are out ---- */

static void on_told(struct loop_task *t);

/* Any thread. */
static void tell(struct quota_wait *w)
{
    struct api_quota *q = w->ctx;
    loop_post(q->request->loop, &q->told);
}

/* The question is out, and may be answered already: `on_told` runs on this thread, later. */
static void begin_asking(struct http_request *r, struct api_call *call, struct api_charge *c)
{
    struct api_quota *q = call->quota;
    http_hold(r);
    q->who = call->who ? edge_identity_ref(call->who) : NULL;
    q->charge = c;
    q->asking = true;
}

static void prepare_wait(struct api_quota *q)
{
    q->told.run = on_told;
    q->wait->done = tell;
    q->wait->ctx = q;
}

/* The request ended before its answer came. */
static void drop_answer(struct api_call *call)
{
    struct api_quota *q = call->quota;
    struct moment at = on_loop(q->request);
    if (q->wait->rc == 0 && !q->taken && q->wait->id)
        quota_gate_refund(call->api->o.quota, q->wait->id, at.now_ns, at.now_s);
    else if (q->taken && q->id)
        quota_gate_settle(call->api->o.quota, q->id, q->tokens, at.now_ns, at.now_s);
    q->taken = true;
    q->id = 0;
}

/* Those that waited for the one before. */
static void ask_next(struct http_request *r, struct api_call *call)
{
    struct api_quota *q = call->quota;
    while (q->next && !q->asking) {
        struct api_charge *c = q->next;
        struct error err = {0};
        q->next = c->next;
        if (!q->next)
            q->last = &q->next;
        int rc = q->taken && !q->id ? 0 : ask(r, call, c->model, c->rows, c->tokens, on_loop(r));
        if (rc == STATUS_AGAIN) {
            begin_asking(r, call, c);
            return;
        }
        if (!q->taken || rc < 0)
            rc = answered(r, call, !q->taken, &err);
        c->resume(c, rc, &err);
    }
}

static void on_told(struct loop_task *t)
{
    struct api_quota *q = CONTAINER_OF(t, struct api_quota, told);
    struct http_request *r = q->request;
    struct api_call *call = r->user;
    struct api_charge *c = q->charge;
    struct error err = {0};
    int rc = 0;
    q->asking = false;
    q->charge = NULL;
    quota_gate_count(call->api->o.quota, q->wait);
    if (q->over)
        drop_answer(call);
    else
        rc = answered(r, call, !q->taken, &err);
    if (c) {
        c->resume(c, rc, &err);
    } else if (rc < 0) {
        q->refused = rc;
        q->why = ARENA_NEW(r->arena, struct error);
        if (q->why)
            *q->why = err;
    }
    if (!c && q->parked)
        q->parked(q->parked_ctx, r);
    ask_next(r, call);
    edge_identity_unref(q->who);
    q->who = NULL;
    http_release(r);
}

/* ---- what the protocols call ---- */

int api__quota_begin(struct api *a, struct http_request *r, struct api_call *call, struct error *err)
{
    struct edge_need need = route_need(call->match.id);
    if (!a->o.quota || need.open || a->open[call->match.id] || !(need.scope & (EDGE_INFER | EDGE_READ)))
        return 0;
    call->quota = ARENA_NEW(r->arena, struct api_quota);
    if (call->quota)
        call->quota->wait = ARENA_NEW(r->arena, struct quota_wait);
    if (!call->quota || !call->quota->wait)
        return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
    struct api_quota *q = call->quota;
    q->request = r;
    q->last = &q->next;
    prepare_wait(q);
    if (need.scope == EDGE_INFER && !call->match.model.n)
        return 0; /* the model is in the body */
    int rc = ask_first(r, call, call->match.model, 0, 0, on_loop(r));
    if (rc != STATUS_AGAIN)
        return answered(r, call, true, err);
    begin_asking(r, call, NULL);
    return 0;
}

bool api__quota_park(struct http_request *r, struct api_call *call, void (*go)(void *ctx, struct http_request *r), void *ctx)
{
    struct api_quota *q = call->quota;
    (void)r;
    if (!q || !q->asking)
        return false;
    q->parked = go;
    q->parked_ctx = ctx;
    return true;
}

int api__quota_charge(struct http_request *r, struct api_call *call, struct api_charge *c, struct error *err)
{
    struct api_quota *q = call->quota;
    if (!q)
        return 0;
    if (q->asking) {
        c->next = NULL;
        *q->last = c;
        q->last = &c->next;
        return STATUS_AGAIN;
    }
    if (q->taken && !q->id)
        return 0;
    bool first = !q->taken;
    int rc = ask(r, call, c->model, c->rows, c->tokens, on_loop(r));
    if (rc != STATUS_AGAIN)
        return answered(r, call, first, err);
    begin_asking(r, call, c);
    return rc;
}

struct waiter {
    struct os_mutex lock;
    struct os_cond come;
    bool there;
};

static void wake(struct quota_wait *w)
{
    struct waiter *x = w->ctx;
    os_mutex_lock(&x->lock);
    x->there = true;
    os_cond_signal(&x->come);
    os_mutex_unlock(&x->lock);
}

int api__quota_charge_now(struct http_request *r, struct api_call *call, struct str model, uint64_t rows, uint64_t tokens,
                          struct error *err)
{
    struct api_quota *q = call->quota;
    struct waiter x = {.there = false};
    if (!q || (q->taken && !q->id))
        return 0;
    bool first = !q->taken;
    os_mutex_init(&x.lock, RANK_LEAF);
    os_cond_init(&x.come);
    q->wait->done = wake;
    q->wait->ctx = &x;
    const struct moment at = {os_monotonic_ns(), os_wall_ns() / NS_PER_S};
    if (ask(r, call, model, rows, tokens, at) == STATUS_AGAIN) {
        os_mutex_lock(&x.lock);
        while (!x.there)
            os_cond_wait(&x.come, &x.lock);
        os_mutex_unlock(&x.lock);
        quota_gate_count(call->api->o.quota, q->wait);
    }
    prepare_wait(q);
    os_cond_release(&x.come);
    os_mutex_release(&x.lock);
    return answered(r, call, first, err);
}

void api__quota_end(const struct http_request *r, struct api_call *call)
{
    struct api_quota *q = call->quota;
    if (!q)
        return;
    if (q->asking) {
        q->over = true;
        return;
    }
    if (!q->id)
        return;
    struct moment at = on_loop(r);
    if (!r->gone && (r->reply_status == 429 || r->reply_status == 503))
        quota_gate_refund(call->api->o.quota, q->id, at.now_ns, at.now_s);
    else
        quota_gate_settle(call->api->o.quota, q->id, q->tokens, at.now_ns, at.now_s);
    q->id = 0;
}
