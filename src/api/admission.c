/* admission.c: see admission_priv.h. Limits, breakers and who is important are the edge's; here a request becomes the question, and a refusal
 * becomes an answer, by another model where the rules name one. */
#include "api/admission_priv.h"

#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/size.h"
#include "base/status.h"
#include "conf/model_config.h"
#include "model/registry.h"
#include "os/clock.h"

#define NS_PER_S 1000000000u

struct admission *api__admission_new(struct api *a, struct arena *arena, struct str model)
{
    struct admission *m = a->o.limits ? ARENA_NEW(arena, struct admission) : NULL;
    if (m)
        m->model = model;
    return m;
}

bool api__admission_is_early(const struct api *a)
{
    return !limit_gate_policy(a->o.limits)->asks;
}

/* ---- how much a request matters ---- */

/* What the client asks for: by header, or by KServe's priority (1 is most urgent) where the model has no levels that it would mean. */
static int asked_class(const struct http_request *r, const struct model_version *v, uint32_t priority, int *out,
                       struct error *err)
{
    struct str h = http_header_get(r, "x-inferd-class");
    *out = -1;
    if (h.p) {
        *out = limit_class_parse(h);
        if (*out < 0)
            return error_set(err, STATUS_INVALID, "the header x-inferd-class is \"%.*s\"; it takes core, high, normal or low",
                             STR_ARG(h));
    } else if (priority && model_version_config(v)->priority_levels <= 1) {
        *out = (int)MIN_OF(priority, (uint32_t)LIMIT_CLASSES) - 1;
    }
    return 0;
}

static int classify(const struct http_request *r, const struct api_call *call, struct str model, const struct model_version *v,
                    uint32_t priority, enum limit_class *out, struct error *err)
{
    const struct edge_identity *who = call->who;
    struct limit_ask ask = {
        .quota_class = who ? str_of(who->quota) : STR("default"),
        .tenant = who ? str_of(who->tenant) : STR("default"),
        .model = model,
        .route = str_of(route_name(call->match.id)),
    };
    int rc = asked_class(r, v, priority, &ask.asked, err);
    *out = limit_policy_class(limit_gate_policy(call->api->o.limits), &ask);
    return rc;
}

uint64_t api__tenant_of(const struct api_call *call)
{
    uint64_t h = call->who ? hash_bytes(call->who->tenant, strlen(call->who->tenant), 0) : 0;
    return call->who && !h ? 1 : h;
}

/* ---- admission ---- */

static int refuse(struct http_request *r, const struct admission *m, struct str model, uint64_t wait_ns, struct error *err)
{
    if (m->refused == LIMIT_SATURATED && m->ticket.pressed)
        return error_set(
            err, STATUS_EXHAUSTED,
            "more important requests of this server take longer than they should, and this one is of class %s: try "
            "again later",
            limit_class_name(m->class));
    if (m->refused == LIMIT_SATURATED)
        return error_set(
            err, STATUS_EXHAUSTED,
            "model \"%.*s\" has as much under way as it can answer in time, and this request is of class %s: try again later",
            STR_ARG(model), limit_class_name(m->class));
    r->retry_after_s = (uint32_t)MIN_OF(wait_ns / NS_PER_S + 1, (uint64_t)3600);
    return error_set(err, STATUS_UNAVAILABLE,
                     "model \"%.*s\" is out of service because too many of its answers failed or were late (circuit breaker): "
                     "try again later",
                     STR_ARG(model));
}

int api__admit(struct http_request *r, struct api_call *call, struct admission *m, const struct model_version *v,
               uint32_t priority, struct error *err)
{
    uint64_t wait_ns, now = os_monotonic_ns();
    struct str model = model_version_model(v);
    int rc = classify(r, call, model, v, priority, &m->class, err);
    if (rc < 0)
        return rc;
    m->refused = limit_gate_begin(call->api->o.limits, model, m->class, api__tenant_of(call), model_version_busy(v), now,
                                  &m->ticket, &wait_ns);
    m->admitted = m->refused == LIMIT_NONE;
    m->since_ns = now;
    return m->admitted ? 0 : refuse(r, m, model, wait_ns, err);
}

/* What an outcome says of the model. The caller's mistakes, refusals for want of room and clients that left say nothing; a deadline that
 * passed may be the queue's doing, so it only counts where the run alone took too long. */
static enum breaker_outcome outcome_of(int status)
{
    switch (status) {
    case STATUS_OK:
        return BREAKER_OK;
    case STATUS_DEADLINE:
    case STATUS_CANCELLED:
        return BREAKER_LATE;
    case STATUS_INTERNAL:
    case STATUS_UNAVAILABLE:
    case STATUS_NOMEM:
    case STATUS_IO:
        return BREAKER_ERROR;
    default:
        return BREAKER_SAYS_NOTHING;
    }
}

void api__admission_end(struct api *a, struct admission *m, int status, uint64_t latency_ns, uint64_t run_ns, uint64_t size)
{
    struct limit_result res = {.outcome = outcome_of(status), .latency_ns = latency_ns, .run_ns = run_ns, .size = size};
    limit_gate_end(a->o.limits, &m->ticket, &res, os_monotonic_ns());
    m->admitted = false;
}

/* ---- others that may answer ---- */

static enum limit_reason reason_of(const struct api_call *call, const struct admission *m, int status)
{
    if (m->refused)
        return m->refused;
    if (status == STATUS_EXHAUSTED && call->verdict != EDGE_OVER_QUOTA)
        return LIMIT_SATURATED;
    return status == STATUS_UNAVAILABLE ? LIMIT_NOT_READY : status == STATUS_NOMEM ? LIMIT_NO_MEMORY : LIMIT_NONE;
}

bool api__admission_may_degrade(struct http_request *r, struct api_call *call, struct admission *m, int status,
                                const struct error *err, struct arena *arena)
{
    enum limit_reason why = reason_of(call, m, status);
    m->refused = LIMIT_NONE;
    if (m->why)
        return true; /* nor does the one in its place, for whatever reason */
    if (why == LIMIT_NONE)
        return false;
    struct error *first = ARENA_NEW(arena, struct error);
    if (!first)
        return false;
    *first = *err;
    m->first = first;
    m->why = why;
    m->status = status;
    m->retry_after_s = r->retry_after_s;
    return true;
}

bool api__admission_may_use_cache(struct api *a, struct admission *m)
{
    const struct limit_model_policy *p = limit_policy_model(limit_gate_policy(a->o.limits), m->model);
    if (m->from_cache || m->fallback || !p || !p->cache)
        return false;
    m->from_cache = true;
    snprintf(m->text, sizeof m->text, "cache; reason=%s", limit_reason_name(m->why));
    return true;
}

static bool fits(const struct model_version *v, bool token, bool embeds)
{
    const struct engine_contract *k = model_version_contract(v);
    return (k->face == ENGINE_TOKEN) == token && (k->embedding_dims > 0) == embeds;
}

struct model_version *api__admission_next(struct api *a, struct admission *m, bool token, bool embeds)
{
    const struct limit_policy *rules = limit_gate_policy(a->o.limits);
    const char *at = m->fallback;
    m->from_cache = false;
    while (m->hops++ < LIMIT_CHAIN_MAX) {
        const struct limit_model_policy *p = limit_policy_model(rules, at ? str_of(at) : m->model);
        struct model_version *v;
        if (!p || !p->fallback)
            return NULL;
        at = p->fallback;
        if (registry_find(a->o.registry, str_of(at), (struct str){0}, &v, NULL) < 0)
            continue;
        if (fits(v, token, embeds)) {
            m->fallback = at;
            snprintf(m->text, sizeof m->text, "fallback=%s; reason=%s", at, limit_reason_name(m->why));
            return v;
        }
        model_version_unref(v);
    }
    return NULL;
}

void api__admission_tell(struct http_request *r, struct api *a, struct admission *m, bool in_headers)
{
    if (!m->why)
        return;
    const char *text =
        in_headers ? arena_strdup(r->arena, str_of(m->text)) : NULL; /* `m` may be gone before the reply is written */
    const struct http_header h = {STR("x-inferd-degraded"), str_of(text ? text : m->text)};
    if (text)
        api__add_headers(r, &h, 1);
    limit_gate_note_degraded(a->o.limits, m->model, m->why, m->from_cache ? NULL : m->fallback, os_monotonic_ns());
}
