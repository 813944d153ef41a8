/* proxy_grpc.c: gRPC calls that other servers answer. A call is passed on as it comes, both ways; only where the model's name decides (a route
 * names models, or the caller may use some only) is its beginning kept until the name is known, 16 KiB at most, and every further message is held
 * to the same name: what was decided and authorised by the first holds for the call.
 *
 * A call that turns out to be ours is given to its handler from here: what has come is handed over, or collected first where the handler wants
 * all of it. */
#include <string.h>

#include "api/api_priv.h"
#include "api/guard.h"
#include "api/kserve_grpc_priv.h"
#include "base/size.h"
#include "base/status.h"
#include "gateway/gateway.h"
#include "wire/grpc_peek.h"

#define PEEK_BYTES 16384 /* less than the smallest window that a stream may have */

struct proxy_grpc {
    struct grpc_peek peek;
    struct buf kept;
    struct api_charge charge;
    struct http_request *request;
    int spoilt; /* a message can't be looked into, for this reason */
    struct error why;
    bool peeks;    /* its messages name a model */
    bool ready;    /* on_request was called */
    bool last;     /* all of the call's messages have come */
    bool asking;   /* its quotas */
    bool decided;  /* it is with the gateway, or with our own handler */
    bool collects; /* our own handler wants all of it */
};

/* Do this method's messages name a model in their first field? */
static bool names_model(enum route_id id)
{
    return id == ROUTE_GRPC_INFER || id == ROUTE_GRPC_STREAM_INFER || id == ROUTE_GRPC_MODEL_READY ||
           id == ROUTE_GRPC_MODEL_METADATA || id == ROUTE_GRPC_MODEL_CONFIG || id == ROUTE_GRPC_MODEL_STATS;
}

bool api__proxy_grpc_knows_model(const struct api_call *call)
{
    return !names_model(call->match.id);
}

static void refuse(struct http_request *r, struct api_call *call, int status, const struct error *err)
{
    gateway_forget(&call->target);
    call->status = status;
    api__reply_error(r, status, err);
}

static void give(struct api *a, struct http_request *r, struct api_call *call, struct str model)
{
    struct gateway_hints h = {.model = model, .own_credentials = call->who != NULL, .grpc = true, .stream = true};
    h.grpc_code = &call->grpc_code;
    if (call->who)
        h.tenant = str_of(call->who->tenant);
    h.endless = call->match.id != ROUTE_GRPC_INFER;
    if (model.n)
        r->log_model = model;
    call->remote = true;
    atomic_fetch_add_explicit(&a->in_flight, 1, memory_order_relaxed);
    gateway_forward(a->o.gateway, r, &call->target, &h);
}

/* ---- calls that are ours after all ---- */

static void run_collected(struct api *a, struct http_request *r, struct api_call *call)
{
    struct proxy_grpc *p = call->proxy_grpc;
    struct slab *s = p->kept.failed ? NULL : slab_create(MAX_OF(p->kept.n, (size_t)1));
    if (!s) {
        api__grpc_fail(call->grpc, STATUS_NOMEM, "out of memory for this call; try again later", 1);
        return;
    }
    if (p->kept.n)
        memcpy(s->data, p->kept.p, p->kept.n);
    s->n = p->kept.n;
    buf_release(&p->kept);
    r->received_ns = loop_now_ns(r->loop);
    call->times.received_ns = r->received_ns;
    http_body_set(r, s);
    api__run(a, r, call);
}

static void collect(struct api *a, struct http_request *r, struct api_call *call)
{
    struct proxy_grpc *p = call->proxy_grpc;
    struct error err;
    if (p->kept.n > r->body_limit_bytes) {
        error_set(&err, STATUS_TOO_LARGE, "the call's message is larger than the %llu bytes accepted here",
                  (unsigned long long)r->body_limit_bytes);
        refuse(r, call, STATUS_TOO_LARGE, &err);
    } else if (p->last) {
        run_collected(a, r, call);
    }
}

static void run_here(struct api *a, struct http_request *r, struct api_call *call)
{
    struct proxy_grpc *p = call->proxy_grpc;
    struct error err = call->local_error;
    int rc = call->local;
    r->body_limit_bytes = MAX_OF(call->local_limit, (uint64_t)1);
    if (rc == 0 && a->o.guard)
        rc = api__guard_begin(a, r, call, &err);
    if (rc == 0)
        rc = api__grpc_headers(a, r, call, &err);
    if (rc < 0) {
        refuse(r, call, rc, &err);
        return;
    }
    if (r->on_body == api__grpc_stream_body) {
        api__run(a, r, call);
        r->on_body(r, slice_borrow(p->kept.p, p->kept.n), p->last);
        buf_release(&p->kept);
        return;
    }
    p->collects = true;
    http_body_consumed(r, p->kept.n);
    collect(a, r, call);
}

/* ---- pieces ---- */

/* The quotas have answered. */
static void settled(struct http_request *r, struct api_call *call, int rc, const struct error *err)
{
    struct proxy_grpc *p = call->proxy_grpc;
    struct error gone;
    if (rc == 0 && p->spoilt) {
        rc = p->spoilt;
        err = &p->why;
    }
    if (rc == 0 && r->gone) {
        rc = error_set(&gone, STATUS_CANCELLED, "the client left");
        err = &gone;
    }
    p->decided = true;
    if (rc) {
        refuse(r, call, rc, err);
        return;
    }
    give(call->api, r, call, (struct str){p->peek.name, p->peek.name_n});
    gateway_piece(r, slice_borrow(p->kept.p, p->kept.n), p->last);
    buf_release(&p->kept);
}

static void charged(struct api_charge *charge, int rc, struct error *err)
{
    struct proxy_grpc *p = CONTAINER_OF(charge, struct proxy_grpc, charge);
    p->asking = false;
    settled(p->request, p->request->user, rc, err);
}

/* What decides is known. */
static void decide(struct api *a, struct http_request *r, struct api_call *call)
{
    struct proxy_grpc *p = call->proxy_grpc;
    struct str model = {p->peek.name, p->peek.name_n};
    struct error err = p->why;
    int rc = p->spoilt;
    if (!rc && call->undecided && gateway_match(a->o.gateway, r, model, true, &call->target) != GATEWAY_REMOTE) {
        p->decided = true;
        run_here(a, r, call);
        return;
    }
    if (!rc && gateway_rewrites(&call->target))
        rc = error_set(&err, STATUS_UNIMPLEMENTED, "this route gives models another name, which it can't in a gRPC call");
    if (!rc && model.n)
        rc = api__authorise_model(a, call, model, &err);
    if (!rc && call->guard)
        rc = api__guard_forward(r, call, model, &err);
    p->charge = (struct api_charge){.resume = charged, .model = model, .rows = 1};
    if (!rc)
        rc = api__quota_charge(r, call, &p->charge, &err);
    p->asking = rc == STATUS_AGAIN;
    if (!p->asking)
        settled(r, call, rc, &err);
}

static void go_on(struct http_request *r, struct api_call *call)
{
    struct proxy_grpc *p = call->proxy_grpc;
    struct error err;
    if (!p->ready || p->asking || p->decided)
        return;
    if (!p->peeks || p->peek.known || p->last) {
        decide(call->api, r, call);
    } else if (p->kept.n >= PEEK_BYTES) {
        p->decided = true;
        error_set(&err, STATUS_INVALID, "the model's name is not within the first %d bytes of the call", PEEK_BYTES);
        refuse(r, call, STATUS_INVALID, &err);
    }
}

static void keep(struct http_request *r, struct api_call *call, struct slice piece, bool last)
{
    struct proxy_grpc *p = call->proxy_grpc;
    struct error err;
    p->last |= last;
    buf_append(&p->kept, piece.p, piece.n);
    if (p->kept.failed) {
        p->decided = true;
        error_set(&err, STATUS_NOMEM, "out of memory for this call; try again later");
        refuse(r, call, STATUS_NOMEM, &err);
        return;
    }
    go_on(r, call);
}

/* A message that can't be looked into: said at once, or when the quotas have answered. */
static void spoil(struct http_request *r, struct api_call *call, int rc, const struct error *err)
{
    struct proxy_grpc *p = call->proxy_grpc;
    p->spoilt = rc;
    p->why = *err;
    p->last = true;
    go_on(r, call);
}

static void on_piece(struct http_request *r, struct slice piece, bool last)
{
    struct api_call *call = r->user;
    struct proxy_grpc *p = call->proxy_grpc;
    struct error err;
    if (p->spoilt)
        return;
    if (p->collects) {
        p->last |= last;
        buf_append(&p->kept, piece.p, piece.n);
        http_body_consumed(r, piece.n);
        collect(call->api, r, call);
        return;
    }
    int rc = p->peeks ? grpc_peek_feed(&p->peek, piece.p, piece.n, &err) : 0;
    if (rc && p->decided)
        gateway_cut(r, rc, err.text);
    else if (rc)
        spoil(r, call, rc, &err);
    else if (p->decided)
        gateway_piece(r, piece, last);
    else
        keep(r, call, piece, last);
}

/* ---- from proxy.c ---- */

int api__proxy_grpc_head(struct http_request *r, struct api_call *call, bool asks, struct error *err)
{
    call->local_limit = r->body_limit_bytes;
    r->body_limit_bytes = UINT64_MAX; /* the gateway counts */
    r->body_unhurried = true;
    if (!asks) {
        r->on_body = gateway_piece;
        return 0;
    }
    call->proxy_grpc = ARENA_NEW(r->arena, struct proxy_grpc);
    if (!call->proxy_grpc)
        return error_set(err, STATUS_NOMEM, "out of memory for this call; try again later");
    call->proxy_grpc->request = r;
    call->proxy_grpc->peeks = names_model(call->match.id);
    grpc_peek_init(&call->proxy_grpc->peek);
    buf_init(&call->proxy_grpc->kept);
    r->on_body = on_piece;
    return 0;
}

void api__proxy_grpc_run(struct api *a, struct http_request *r, struct api_call *call)
{
    if (!call->proxy_grpc) {
        give(a, r, call, (struct str){0});
        return;
    }
    call->proxy_grpc->ready = true;
    go_on(r, call);
}

void api__proxy_grpc_over(struct api_call *call)
{
    if (call->proxy_grpc)
        buf_release(&call->proxy_grpc->kept);
}
