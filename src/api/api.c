/* api.c: from a parsed HTTP request to the handler of its route, and the shape of every error.
 *
 * on_headers routes before the body is read, so an unknown path or method is refused without taking its body in; the
 * result stays in the request's arena for on_request. Counting by route and code happens at on_complete, once a reply is
 * written or dropped. */
#include "api/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_priv.h"
#include "api/guard.h"
#include "api/kserve_grpc_priv.h"
#include "api/work.h"
#include "api/generate_priv.h"
#include "base/check.h"
#include "base/status.h"
#include "model/registry.h"
#include "obs/access_log.h"
#include "os/clock.h"
#include "wire/url.h"

static const route_handler handlers[ROUTE_COUNT] = {
    [ROUTE_SERVER_METADATA] = api__server_metadata,
    [ROUTE_LIVE] = api__live,
    [ROUTE_READY] = api__ready,
    [ROUTE_MODEL_METADATA] = api__model_metadata,
    [ROUTE_MODEL_READY] = api__model_ready,
    [ROUTE_MODEL_CONFIG] = api__model_config,
    [ROUTE_MODEL_STATS] = api__model_stats,
    [ROUTE_ALL_STATS] = api__all_stats,
    [ROUTE_INFER] = api__infer,
    [ROUTE_INDEX] = api__index,
    [ROUTE_LOAD] = api__load,
    [ROUTE_UNLOAD] = api__unload,
    [ROUTE_METRICS] = api__metrics,
    [ROUTE_CHAT_COMPLETIONS] = api__chat_completions,
    [ROUTE_COMPLETIONS] = api__completions,
    [ROUTE_OPENAI_MODELS] = api__openai_models,
    [ROUTE_OPENAI_MODEL] = api__openai_model,
    [ROUTE_GENERATE] = api__generate,
    [ROUTE_GENERATE_STREAM] = api__generate_stream,
    [ROUTE_RESPONSES] = api__responses,
    [ROUTE_EMBEDDINGS] = api__embeddings,
    [ROUTE_ADAPTER_LOAD] = api__adapter_load,
    [ROUTE_ADAPTER_UNLOAD] = api__adapter_unload,
    [ROUTE_RERANK] = api__rerank,
    [ROUTE_TOKENIZE] = api__tokenize,
    [ROUTE_DETOKENIZE] = api__detokenize,
    [ROUTE_ADMIN_RELOAD] = api__admin_reload,
    [ROUTE_ADMIN_STATUS] = api__admin_status,
    [ROUTE_ADMIN_LOG_LEVEL] = api__admin_log_level,
    [ROUTE_ADMIN_GUARD] = api__admin_guard,
    [ROUTE_ADMIN_GUARD_RECORD] = api__admin_guard,
    [ROUTE_ADMIN_GUARD_STOP] = api__admin_guard,
    [ROUTE_ADMIN_GUARD_SAVE] = api__admin_guard,
    [ROUTE_ADMIN_LIMITS] = api__admin_limits,
    [ROUTE_GRPC_LIVE] = api__grpc_unary,
    [ROUTE_GRPC_READY] = api__grpc_unary,
    [ROUTE_GRPC_MODEL_READY] = api__grpc_unary,
    [ROUTE_GRPC_SERVER_METADATA] = api__grpc_unary,
    [ROUTE_GRPC_MODEL_METADATA] = api__grpc_unary,
    [ROUTE_GRPC_MODEL_CONFIG] = api__grpc_unary,
    [ROUTE_GRPC_MODEL_STATS] = api__grpc_unary,
    [ROUTE_GRPC_INFER] = api__grpc_infer,
    [ROUTE_GRPC_STREAM_INFER] = api__grpc_stream,
    [ROUTE_GRPC_INDEX] = api__grpc_unary,
    [ROUTE_GRPC_LOAD] = api__grpc_unary,
    [ROUTE_GRPC_UNLOAD] = api__grpc_unary,
    [ROUTE_GRPC_HEALTH_CHECK] = api__grpc_unary,
    [ROUTE_GRPC_HEALTH_WATCH] = api__grpc_stream,
    [ROUTE_GRPC_REFLECTION] = api__grpc_stream,
};

/* Bodies other than inference are small JSON documents. */
#define CONTROL_BODY_BYTES (1u << 20)
/* A conversation of a million tokens is some 5 MB of text. */
#define PROMPT_BODY_BYTES (32u << 20)

/* Large bodies give way to the I/O threads; prompts do not: a first token waits for them. */
#define DECODE_NICE       5
#define NS_PER_S          1000000000u
#define RETRY_AFTER_MAX_S 60u

uint64_t api__body_limit(const struct http_request *r, enum route_id id)
{
    if (id == ROUTE_INFER)
        return r->body_limit_bytes;
    return MIN_OF(r->body_limit_bytes, route_takes_prompt(id) ? (uint64_t)PROMPT_BODY_BYTES : CONTROL_BODY_BYTES);
}

static int on_headers(void *ctx, struct http_request *r, struct error *err)
{
    struct api_listener *l = ctx;
    struct api_call *call = ARENA_NEW(r->arena, struct api_call);
    if (!call)
        return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
    call->api = l->api;
    r->user = call;
    api__find_client(l->api, r);
    call->preflight = api__cors(l->api, r);
    if (call->preflight)
        return 0;
    call->is_grpc = l->surface == API_HTTP && api__is_grpc(r);
    int rc = route_match(r, call->is_grpc ? API_GRPC : l->surface, &call->match, &r->allow, err);
    if (call->is_grpc && rc == STATUS_NOT_FOUND) {
        call->match.id = ROUTE_GRPC_NONE;
        rc = error_set(err, STATUS_UNIMPLEMENTED, "there is no method \"%.*s\" here", STR_ARG(r->path));
    }
    if (l->api->o.gateway && l->surface == API_HTTP && rc != STATUS_NOMEM) {
        rc = api__proxy_head(l->api, r, call, rc, err);
        if (rc == 0 && (call->target.route || call->undecided))
            return 0;
    }
    if (l->api->o.load_report && l->surface == API_HTTP)
        api__load_report(l->api, r);
    if (rc < 0)
        return rc;
    r->log_model = call->match.model;
    r->log_version = call->match.version;
    rc = api__authorise(l->api, r, call, err);
    if (rc == 0)
        rc = api__quota_begin(l->api, r, call, err);
    if (rc < 0)
        return rc;
    if (!call->is_grpc)
        r->body_limit_bytes = api__body_limit(r, call->match.id);
    if (l->api->o.guard)
        rc = api__guard_begin(l->api, r, call, err);
    return rc == 0 && call->is_grpc ? api__grpc_headers(l->api, r, call, err) : rc;
}

void api__run(struct api *a, struct http_request *r, struct api_call *call)
{
    handlers[call->match.id](a, r, call);
}

static void on_request(void *ctx, struct http_request *r)
{
    struct api_listener *l = ctx;
    struct api_call *call = r->user;
    if (api__quota_park(r, call, on_request, ctx))
        return;
    ASSERT(call && (call->preflight || handlers[call->match.id] || call->match.id == ROUTE_PROXY));
    call->times.received_ns = r->received_ns;
    if (atomic_load_explicit(&l->api->phase, memory_order_acquire) == API_CLOSED && call->match.id != ROUTE_LIVE) {
        call->status = STATUS_UNAVAILABLE;
        http_reply_error(r, STATUS_UNAVAILABLE, "the server is stopping; ask another one", 1);
        return;
    }
    if (call->quota && (call->quota->refused || (call->quota->parked && r->gone))) {
        call->status = call->quota->refused ? call->quota->refused : STATUS_CANCELLED;
        http_reply_error(r, call->status, call->quota->why ? call->quota->why->text : "the client left", 0);
        return;
    }
    if (call->preflight)
        api__preflight(l->api, r);
    else if (!api__proxy_body(l->api, r, call))
        api__run(l->api, r, call);
}

static const char *on_error(void *ctx, struct http_request *r, int status, const char *text, struct buf *body)
{
    (void)ctx;
    if (r && api__is_openai(r)) {
        const struct api_call *call = r->user;
        api__openai_error(body, status, text, call ? call->error_param : NULL, call ? call->error_code : NULL);
        return "application/json";
    }
    buf_append_z(body, "{\"error\":");
    buf_append_json_str(body, str_of(text));
    buf_append_z(body, "}");
    return "application/json";
}

static bool on_refuse(void *ctx, struct http_request *r, int status, const char *text, uint32_t retry_after_s)
{
    const struct api_call *call = r->user;
    (void)ctx;
    if (!call || !call->is_grpc)
        return false;
    api__grpc_refuse(r, status, text, retry_after_s);
    return true;
}

/* What a request came to, in its protocol's numbers. */
static int code_of(const struct http_request *r, const struct api_call *call)
{
    if (call->is_grpc && !r->gone && !call->status)
        return call->grpc_code;
    if (call->is_grpc)
        return status_grpc(r->gone ? STATUS_CANCELLED : call->status);
    return r->gone ? 499 : r->reply_status;
}

static void count(struct api *a, enum route_id route, int code)
{
    char text[8];
    if (code < 0 || code >= API_CODES)
        code = 0;
    struct metric *m = atomic_load_explicit(&a->requests[route][code], memory_order_acquire);
    if (!m) {
        snprintf(text, sizeof text, "%d", code);
        m = metrics_series(a->requests_family, (const char *const[]){route_protocol(route), route_name(route), text});
        atomic_store_explicit(&a->requests[route][code], m, memory_order_release);
    }
    metric_inc(m);
}

/* One access record from what the request and its call know. */
static void write_record(struct access_log *log, const struct http_request *r, const struct api_call *call, uint64_t now_ns)
{
    const struct infer_times *t = &call->times;
    struct access_record e;
    uint64_t total = r->first_byte_ns && now_ns > r->first_byte_ns ? now_ns - r->first_byte_ns : 0;
    memset(&e, 0, offsetof(struct access_record, request_id));
    e.wall_ns = os_wall_ns() - total;
    e.bytes_in = r->wire_in_bytes;
    e.bytes_out = r->wire_out_bytes;
    e.queue_ns = t->queued_ns && t->batched_ns > t->queued_ns ? t->batched_ns - t->queued_ns : 0;
    e.compute_ns = t->input_ns && t->computed_ns > t->input_ns ? t->computed_ns - t->input_ns : 0;
    e.total_ns = total;
    /* a gRPC call's HTTP status is always 200: what the same outcome is over HTTP says more */
    e.status = (uint16_t)(r->gone ? 499 : call->is_grpc ? status_http(call->status) : r->reply_status);
    ACCESS_SET(e.request_id, r->request_id);
    ACCESS_SET(e.peer, r->peer);
    ACCESS_SET(e.method, r->method_text);
    ACCESS_SET(e.path, r->path);
    ACCESS_SET(e.protocol, str_of(route_protocol(call->match.id)));
    ACCESS_SET(e.model, r->log_model);
    ACCESS_SET(e.version, r->log_version);
    ACCESS_SET(e.subject, call->who ? str_of(call->who->id) : STR(""));
    ACCESS_SET(e.tenant, call->who ? str_of(call->who->tenant) : STR(""));
    ACCESS_SET(e.error, call->verdict > EDGE_ALLOWED ? str_of(edge_verdict_name(call->verdict))
                        : call->status < 0           ? str_of(status_name(call->status))
                                                     : STR(""));
    ACCESS_SET(e.traceparent, r->traceparent);
    access_log_write(log, &e);
}

void api__call_end(struct http_request *r, struct api_call *call)
{
    api__quota_end(r, call);
    api__guard_end(call);
    edge_identity_unref(call->who);
    call->who = NULL;
    model_version_unref(call->version);
    call->version = NULL;
}

static void on_complete(void *ctx, struct http_request *r, uint64_t now_ns)
{
    struct api_call unrouted = {.match = {.id = ROUTE_NONE}};
    struct api_listener *l = ctx;
    struct api_call *call = r->user ? r->user : &unrouted;
    count(l->api, call->match.id, code_of(r, call));
    if (l->api->o.access)
        write_record(l->api->o.access, r, call, now_ns);
    if (l->api->o.audit && (call->verdict > EDGE_ALLOWED || api__is_admin(call->match.id)))
        write_record(l->api->o.audit, r, call, now_ns);
    api__proxy_over(l->api, call);
    if (!call->stream || !api__grpc_stream_outlives(call->stream))
        api__call_end(r, call);
}

/* Mark what `open` names. */
static int set_open(struct api *a, struct error *err)
{
    for (size_t i = 0; i < a->o.n_open; i++) {
        int id = ROUTE_NONE + 1;
        while (id < ROUTE_COUNT && strcmp(route_name((enum route_id)id), a->o.open[i]) != 0)
            id++;
        if (id == ROUTE_COUNT)
            return error_set(err, STATUS_INVALID,
                             "auth.open: there is no route \"%s\"; routes are %s to %s, see "
                             "docs/guide/security.md",
                             a->o.open[i], route_name(ROUTE_NONE + 1), route_name(ROUTE_COUNT - 1));
        a->open[id] = true;
    }
    return 0;
}

int api_create(const struct api_options *o, struct api **out, struct error *err)
{
    static const char *const labels[] = {"protocol", "route", "code", NULL};
    struct api *a = calloc(1, sizeof *a);
    if (!a)
        return error_set(err, STATUS_NOMEM, "out of memory while starting");
    a->o = *o;
    int rc = set_open(a, err);
    if (rc < 0) {
        free(a);
        return rc;
    }
    atomic_init(&a->compat, o->compat);
    a->pool = work_pool_create("decode", o->decode_threads, DECODE_NICE);
    if (!a->pool || generate__pool_init(&a->gen) < 0) {
        work_pool_destroy(a->pool);
        free(a);
        return error_set(err, STATUS_NOMEM, "out of memory while starting");
    }
    static const char *const work_labels[] = {"work", NULL};
    struct metric_family *offloaded =
        metrics_family(o->metrics, METRIC_COUNTER, "inferd_api_offloaded_total",
                       "Large bodies decoded or encoded off the I/O threads, by which.", work_labels, NULL, 0);
    a->offloaded[API_OFFLOAD_DECODE] = metrics_series(offloaded, (const char *const[]){"decode"});
    a->offloaded[API_OFFLOAD_ENCODE] = metrics_series(offloaded, (const char *const[]){"encode"});
    a->requests_family =
        metrics_family(o->metrics, METRIC_COUNTER, "inferd_api_requests_total",
                       "Requests answered, by protocol, route and status code (HTTP's, 499: the client left first; or gRPC's).",
                       labels, NULL, 0);
    for (int i = 0; i < 3; i++)
        a->listener[i] = (struct api_listener){a, (enum api_surface)(1 << i)};
    *out = a;
    return 0;
}

void api_close(struct api *a)
{
    work_pool_close(a->pool);
}

void api_destroy(struct api *a)
{
    if (!a)
        return;
    work_pool_destroy(a->pool);
    generate__pool_release(&a->gen);
    free(a);
}

void api_handler(struct api *a, enum api_surface surface, struct http_handler *out)
{
    struct api_listener *l = &a->listener[surface == API_HTTP ? 0 : surface == API_METRICS ? 1 : 2];
    *out = (struct http_handler){.on_headers = on_headers,
                                 .on_request = on_request,
                                 .on_error = on_error,
                                 .on_refuse = on_refuse,
                                 .on_complete = on_complete,
                                 .ctx = l};
}

/* The phase is a single word; release pairs with the acquire in readers only to order what was set up before it. */
void api_set_phase(struct api *a, enum api_phase phase)
{
    atomic_store_explicit(&a->phase, phase, memory_order_release);
}

void api_set_compat(struct api *a, unsigned compat)
{
    atomic_store_explicit(&a->compat, compat, memory_order_relaxed);
}

uint64_t api_in_flight(const struct api *a)
{
    return atomic_load_explicit(&a->in_flight, memory_order_relaxed);
}

void api__reply_json(struct http_request *r, int http_status, struct buf *body)
{
    struct slice s = slice_take(body);
    if (!s.p) {
        http_reply_error(r, STATUS_NOMEM, "out of memory for this reply; try again later", 1);
        return;
    }
    http_reply(r, http_status, "application/json", NULL, 0, &s, 1);
}

uint32_t api__retry_after_s(int status, struct model_version *v)
{
    if (status != STATUS_EXHAUSTED && status != STATUS_UNAVAILABLE && status != STATUS_NOMEM)
        return 0;
    uint64_t backlog_ns = status == STATUS_EXHAUSTED && v ? model_version_backlog_ns(v) : 0;
    uint64_t s = backlog_ns / NS_PER_S + (backlog_ns % NS_PER_S != 0);
    return (uint32_t)MIN_OF(MAX_OF(s, (uint64_t)1), (uint64_t)RETRY_AFTER_MAX_S);
}

void api__reply_error(struct http_request *r, int status, const struct error *err)
{
    http_reply_error(r, status, err->text, api__retry_after_s(status, NULL));
}

int api__query_flag(const struct http_request *r, const char *name, bool absent, bool *out, struct error *err)
{
    struct str v;
    int rc = url_query_get(r->arena, r->query, name, &v, err);
    *out = absent;
    if (rc)
        return rc == STATUS_NOT_FOUND ? 0 : rc;
    *out = !v.n || str_eqz(v, "true") || str_eqz(v, "1");
    if (!*out && !str_eqz(v, "false") && !str_eqz(v, "0"))
        return error_set(err, STATUS_INVALID, "the query parameter %s is \"%.*s\"; it takes true or false", name, STR_ARG(v));
    return 0;
}

bool api__generates(const struct model_version *v)
{
    const struct engine_contract *c = model_version_contract(v);
    return c->face == ENGINE_TOKEN && !c->embedding_dims;
}

struct model_version *api__find(struct api *a, struct http_request *r, struct api_call *call)
{
    struct model_version *v;
    struct error err = {0};
    int rc = registry_find(a->o.registry, call->match.model, call->match.version, &v, &err);
    if (rc < 0) {
        api__reply_error(r, rc, &err);
        return NULL;
    }
    return v;
}
