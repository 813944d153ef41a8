/* quota.c: a request's hold on the quotas (edge/quota_gate.h), from its headers to its last byte.
 *
 * Only routes that ask for the scopes infer and read are counted: probes, and what operators do, are never refused for want of quota. Where the
 * model is in the path, the request's share is taken before its body is read; where it is in the body, as soon as the body is understood.
 *
 * Settled when the reply is complete: by what was produced, also when the client has left. A request that was refused for want of anything
 * (429, 503) takes nothing. */
#include "api/api_priv.h"
#include "base/size.h"
#include "base/status.h"
#include "edge/quota_gate.h"
#include "os/clock.h"

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
    size_t n = q->n_base, t = 0;
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
    r->reply_headers = q->headers;
    r->n_reply_headers = n;
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

static int take(struct http_request *r, struct api_call *call, struct str model, uint64_t rows, uint64_t tokens,
                struct error *err)
{
    struct api_quota *q = call->quota;
    const struct edge_identity *who = call->who;
    struct quota_verdict v;
    const struct quota_ask ask = {
        .key = who ? str_of(who->id) : http_peer_address(r), /* an address is as good as a key where nobody is asked for one */
        .tenant = who ? str_of(who->tenant) : STR("default"),
        .quota_class = who ? str_of(who->quota) : STR("default"),
        .model = model,
        .route = str_of(route_name(call->match.id)),
        .runs = route_need(call->match.id).scope == EDGE_INFER,
        .rows = rows,
        .tokens = tokens,
        .now_ns = os_monotonic_ns(),
        .now_s = os_wall_ns() / NS_PER_S,
    };
    int rc = quota_gate_reserve(call->api->o.quota, &ask, &q->id, &v);
    q->taken = rc == 0;
    set_headers(r, q, &v, rc < 0);
    return rc < 0 ? refuse(r, call, &v, err) : 0;
}

int api__quota_begin(struct api *a, struct http_request *r, struct api_call *call, struct error *err)
{
    struct edge_need need = route_need(call->match.id);
    if (!a->o.quota || need.open || a->open[call->match.id] || !(need.scope & (EDGE_INFER | EDGE_READ)))
        return 0;
    call->quota = ARENA_NEW(r->arena, struct api_quota);
    if (!call->quota)
        return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
    struct api_quota *q = call->quota;
    /* a worker thread may add to them later, when the request's arena isn't its own: there is room for that beside them */
    q->n_base = MIN_OF(r->n_reply_headers, COUNT_OF(q->headers) - 7);
    if (q->n_base)
        memcpy(q->headers, r->reply_headers, q->n_base * sizeof *q->headers);
    if (need.scope == EDGE_INFER && !call->match.model.n)
        return 0; /* the model is in the body */
    return take(r, call, call->match.model, 0, 0, err);
}

int api__quota_charge(struct http_request *r, struct api_call *call, struct str model, uint64_t rows, uint64_t tokens,
                      struct error *err)
{
    struct api_quota *q = call->quota;
    struct quota_verdict v;
    if (!q)
        return 0;
    if (!q->taken)
        return take(r, call, model, rows, tokens, err);
    if (!q->id)
        return 0;
    int rc = quota_gate_more(call->api->o.quota, q->id, rows, tokens, os_monotonic_ns(), os_wall_ns() / NS_PER_S, &v);
    if (rc == 0)
        return 0;
    set_headers(r, q, &v, true);
    return refuse(r, call, &v, err);
}

void api__quota_end(const struct http_request *r, struct api_call *call)
{
    struct api_quota *q = call->quota;
    if (!q || !q->id)
        return;
    uint64_t now_ns = os_monotonic_ns(), now_s = os_wall_ns() / NS_PER_S;
    if (!r->gone && (r->reply_status == 429 || r->reply_status == 503))
        quota_gate_refund(call->api->o.quota, q->id, now_ns, now_s);
    else
        quota_gate_settle(call->api->o.quota, q->id, q->tokens, now_ns, now_s);
    q->id = 0;
}
