/* proxy.c: where the protocols meet the gateway: which requests another server answers.
 *
 * Decided in two steps, because a model's name may be in the body: on the head, where host, path, method, headers and the path's model are
 * enough; else once the body is in, from the members that a router needs, without building a tree of it. A request that no route sends away
 * is answered here as ever. Liveness and readiness are always about this process. Authorisation comes before both: by the route of our own
 * table where the path is one of ours, else as an inference; and again for the model once it is known. */
#include <string.h>

#include "api/api_priv.h"
#include "api/guard.h"
#include "base/size.h"
#include "base/status.h"
#include "gateway/gateway.h"
#include "wire/json_peek.h"
#include "wire/url.h"

#define BYTES_PER_TOKEN 4 /* of English, roughly; for balancing only */

static bool is_about_us(enum route_id id)
{
    return id == ROUTE_LIVE || id == ROUTE_READY || id == ROUTE_GRPC_LIVE || id == ROUTE_GRPC_READY ||
           id == ROUTE_GRPC_HEALTH_CHECK || id == ROUTE_GRPC_HEALTH_WATCH || id == ROUTE_GRPC_REFLECTION;
}

/* Does anybody want to know what the body says? Else it is not looked at, however long it is. */
static bool asks_for_body(const struct api_call *call)
{
    bool closed = edge_is_closed(call->api->o.edge) && !call->match.model.n;
    return call->undecided || closed || call->quota || call->guard || gateway_asks_for_body(&call->target);
}

int api__proxy_head(struct api *a, struct http_request *r, struct api_call *call, int local, struct error *err)
{
    struct gateway_target target;
    if (local == 0 && is_about_us(call->match.id))
        return 0;
    enum gateway_where where =
        gateway_match(a->o.gateway, r, call->match.model,
                      call->is_grpc ? api__proxy_grpc_knows_model(call) : gateway_asks_upgrade(r), &target);
    if (where == GATEWAY_LOCAL)
        return local;
    int rc = url_check_path(r->path, err); /* else a route for /a would let /a/../b through, to who resolves it */
    if (rc == 0)
        rc = gateway_offer_upgrade(&target, r, err);
    if (rc < 0) {
        gateway_forget(&target);
        return rc;
    }
    if (local < 0)
        call->match = (struct route_match){.id = ROUTE_PROXY, .model = call->match.model};
    rc = api__authorise(a, r, call, err);
    if (rc == 0)
        rc = api__quota_begin(a, r, call, err);
    if (rc == 0)
        rc = api__guard_begin_forwarding(a, r, call, err);
    if (rc < 0) {
        gateway_forget(&target);
        return rc;
    }
    call->target = target;
    call->undecided = where == GATEWAY_MODEL;
    call->local = local;
    if (local < 0)
        call->local_error = *err;
    r->log_model = call->match.model;
    if (call->is_grpc)
        return api__proxy_grpc_head(r, call, asks_for_body(call), err);
    if (where == GATEWAY_REMOTE)
        r->body_limit_bytes = target.route->max_body;
    else /* it may be ours after all */
        r->body_limit_bytes = MAX_OF(gateway_max_body(a->o.gateway), local ? 0 : api__body_limit(r, call->match.id));
    if (where == GATEWAY_REMOTE && !asks_for_body(call))
        gateway_stream_body(&call->target, r);
    return api__guard_forward_head(r, call, err);
}

/* What the body says. Bodies that are no JSON object say nothing. */
static int peek(const struct http_request *r, struct json_peek *p, struct gateway_hints *h, struct error *err)
{
    const char *body = (const char *)r->body.p;
    json_peek_init(p);
    int rc = json_peek_feed(p, body, r->body.n, err);
    if (rc)
        return rc;
    h->user = (struct str){p->user, p->user_n};
    if (p->has_model) {
        h->model = (struct str){p->model, p->model_n};
        h->model_raw = (struct str){body + p->model_at, p->model_raw_n};
    }
    if (p->prompt_n)
        h->prompt = (struct str){body + p->prompt_at, p->prompt_n};
    h->stream = p->has_stream && p->stream;
    h->tokens = p->max_tokens + p->prompt_n / BYTES_PER_TOKEN;
    return 0;
}

static void refuse(struct http_request *r, struct api_call *call, int status, const struct error *err)
{
    gateway_forget(&call->target);
    call->status = status;
    api__reply_error(r, status, err);
}

/* A request on its way to the gateway, while its quotas are asked. */
struct proxying {
    struct api_charge charge;
    struct http_request *request;
    struct gateway_hints hints;
};

/* The quotas have answered. */
static void go_on(struct http_request *r, const struct gateway_hints *h, int rc, const struct error *err)
{
    struct api_call *call = r->user;
    struct api *a = call->api;
    if (rc < 0) {
        refuse(r, call, rc, err);
        return;
    }
    if (h->model.n)
        r->log_model = h->model;
    call->remote = true;
    atomic_fetch_add_explicit(&a->in_flight, 1, memory_order_relaxed);
    gateway_forward(a->o.gateway, r, &call->target, h);
}

static void charged(struct api_charge *charge, int rc, struct error *err)
{
    struct proxying *p = CONTAINER_OF(charge, struct proxying, charge);
    go_on(p->request, &p->hints, rc, err);
}

/* What the server behind will take, by the request's own words: reserved, and settled unless the answer says what it took. AGAIN: `charged` goes
 * on. */
static int charge(struct http_request *r, struct api_call *call, const struct gateway_hints *h, struct error *err)
{
    if (!call->quota)
        return 0;
    struct proxying *p = ARENA_NEW(r->arena, struct proxying);
    if (!p)
        return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
    call->quota->tokens = h->tokens;
    p->request = r;
    p->hints = *h;
    p->hints.used = &call->quota->tokens;
    p->charge = (struct api_charge){.resume = charged, .model = h->model, .rows = 1, .tokens = h->tokens};
    return api__quota_charge(r, call, &p->charge, err);
}

/* The request belongs to the gateway, or is answered with an error; false: it is for us. */
bool api__proxy_body(struct api *a, struct http_request *r, struct api_call *call)
{
    struct error err = {0};
    if (!call->target.route && !call->undecided)
        return false;
    if (call->is_grpc) {
        api__proxy_grpc_run(a, r, call);
        return true;
    }
    struct gateway_hints h = {.model = call->match.model, .own_credentials = call->who != NULL};
    if (call->who)
        h.tenant = str_of(call->who->tenant);
    int rc = 0;
    if (asks_for_body(call)) {
        struct json_peek *p = ARENA_NEW(r->arena, struct json_peek);
        rc = p ? peek(r, p, &h, &err) : error_set(&err, STATUS_NOMEM, "out of memory for this request; try again later");
    }
    if (!rc && call->undecided && gateway_match(a->o.gateway, r, h.model, true, &call->target) != GATEWAY_REMOTE) {
        rc = call->local;
        err = call->local_error;
        if (!rc && a->o.guard)
            rc = api__guard_begin(a, r, call, &err);
        if (!rc)
            return false;
    }
    if (!rc && r->body.n > call->target.route->max_body)
        rc = error_set(&err, STATUS_TOO_LARGE, "the body has %zu bytes; this model's route takes at most %llu", r->body.n,
                       (unsigned long long)call->target.route->max_body);
    if (!rc && h.model.n && !call->match.model.n)
        rc = api__authorise_model(a, call, h.model, &err);
    if (!rc && call->guard)
        rc = api__guard_forward(r, call, h.model, &err);
    if (!rc)
        rc = charge(r, call, &h, &err);
    h.used = call->quota ? &call->quota->tokens : NULL;
    if (rc != STATUS_AGAIN)
        go_on(r, &h, rc, &err);
    return true;
}

void api__proxy_over(struct api *a, struct api_call *call)
{
    api__proxy_grpc_over(call);
    if (call->target.table)
        gateway_forget(&call->target);
    if (call->remote)
        atomic_fetch_sub_explicit(&a->in_flight, 1, memory_order_relaxed);
    call->remote = false;
}
