/* route.c: the route table and its matcher. Linear over some thirty patterns, cheapest test first: the segment count. */
#include "api/route.h"

#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "wire/url.h"

#define SEGMENTS_MAX 8

/* "{m}" captures a model name, "{v}" a version, label or semver. */
struct route {
    enum route_id id;
    unsigned surfaces;
    enum http_method method;
    const char *segments[SEGMENTS_MAX];
};

#define OIP "inference.GRPCInferenceService"

static const struct route routes[] = {
    {ROUTE_INFER, API_HTTP, HTTP_POST, {"v2", "models", "{m}", "infer"}},
    {ROUTE_INFER, API_HTTP, HTTP_POST, {"v2", "models", "{m}", "versions", "{v}", "infer"}},
    {ROUTE_GENERATE, API_HTTP, HTTP_POST, {"v2", "models", "{m}", "generate"}},
    {ROUTE_GENERATE, API_HTTP, HTTP_POST, {"v2", "models", "{m}", "versions", "{v}", "generate"}},
    {ROUTE_GENERATE_STREAM, API_HTTP, HTTP_POST, {"v2", "models", "{m}", "generate_stream"}},
    {ROUTE_GENERATE_STREAM, API_HTTP, HTTP_POST, {"v2", "models", "{m}", "versions", "{v}", "generate_stream"}},
    {ROUTE_LIVE, API_HTTP | API_METRICS | API_ADMIN, HTTP_GET, {"v2", "health", "live"}},
    {ROUTE_READY, API_HTTP | API_METRICS | API_ADMIN, HTTP_GET, {"v2", "health", "ready"}},
    {ROUTE_SERVER_METADATA, API_HTTP, HTTP_GET, {"v2"}},
    {ROUTE_ALL_STATS, API_HTTP, HTTP_GET, {"v2", "models", "stats"}},
    {ROUTE_MODEL_METADATA, API_HTTP, HTTP_GET, {"v2", "models", "{m}"}},
    {ROUTE_MODEL_METADATA, API_HTTP, HTTP_GET, {"v2", "models", "{m}", "versions", "{v}"}},
    {ROUTE_MODEL_READY, API_HTTP, HTTP_GET, {"v2", "models", "{m}", "ready"}},
    {ROUTE_MODEL_READY, API_HTTP, HTTP_GET, {"v2", "models", "{m}", "versions", "{v}", "ready"}},
    {ROUTE_MODEL_CONFIG, API_HTTP, HTTP_GET, {"v2", "models", "{m}", "config"}},
    {ROUTE_MODEL_CONFIG, API_HTTP, HTTP_GET, {"v2", "models", "{m}", "versions", "{v}", "config"}},
    {ROUTE_MODEL_STATS, API_HTTP, HTTP_GET, {"v2", "models", "{m}", "stats"}},
    {ROUTE_MODEL_STATS, API_HTTP, HTTP_GET, {"v2", "models", "{m}", "versions", "{v}", "stats"}},
    {ROUTE_INDEX, API_HTTP | API_ADMIN, HTTP_POST, {"v2", "repository", "index"}},
    {ROUTE_LOAD, API_HTTP | API_ADMIN, HTTP_POST, {"v2", "repository", "models", "{m}", "load"}},
    {ROUTE_UNLOAD, API_HTTP | API_ADMIN, HTTP_POST, {"v2", "repository", "models", "{m}", "unload"}},
    {ROUTE_CHAT_COMPLETIONS, API_HTTP, HTTP_POST, {"v1", "chat", "completions"}},
    {ROUTE_RESPONSES, API_HTTP, HTTP_POST, {"v1", "responses"}},
    {ROUTE_EMBEDDINGS, API_HTTP, HTTP_POST, {"v1", "embeddings"}},
    {ROUTE_RERANK, API_HTTP, HTTP_POST, {"v1", "rerank"}},
    {ROUTE_RERANK, API_HTTP, HTTP_POST, {"rerank"}},
    {ROUTE_COMPLETIONS, API_HTTP, HTTP_POST, {"v1", "completions"}},
    {ROUTE_OPENAI_MODELS, API_HTTP, HTTP_GET, {"v1", "models"}},
    {ROUTE_OPENAI_MODEL, API_HTTP, HTTP_GET, {"v1", "models", "{m}"}},
    {ROUTE_TOKENIZE, API_HTTP, HTTP_POST, {"tokenize"}},
    {ROUTE_DETOKENIZE, API_HTTP, HTTP_POST, {"detokenize"}},
    {ROUTE_ADAPTER_LOAD, API_ADMIN, HTTP_POST, {"v1", "load_lora_adapter"}},
    {ROUTE_ADAPTER_UNLOAD, API_ADMIN, HTTP_POST, {"v1", "unload_lora_adapter"}},
    {ROUTE_METRICS, API_METRICS, HTTP_GET, {"metrics"}},
    {ROUTE_ADMIN_RELOAD, API_ADMIN, HTTP_POST, {"admin", "reload"}},
    {ROUTE_ADMIN_STATUS, API_ADMIN, HTTP_GET, {"admin", "status"}},
    {ROUTE_ADMIN_LOG_LEVEL, API_ADMIN, HTTP_POST, {"admin", "log-level"}},
    {ROUTE_ADMIN_GUARD, API_ADMIN, HTTP_GET, {"admin", "guard"}},
    {ROUTE_ADMIN_GUARD_RECORD, API_ADMIN, HTTP_POST, {"admin", "guard", "{m}", "record"}},
    {ROUTE_ADMIN_GUARD_STOP, API_ADMIN, HTTP_POST, {"admin", "guard", "{m}", "stop"}},
    {ROUTE_ADMIN_GUARD_SAVE, API_ADMIN, HTTP_POST, {"admin", "guard", "{m}", "save"}},
    {ROUTE_ADMIN_LIMITS, API_ADMIN, HTTP_GET, {"admin", "limits"}},

    {ROUTE_GRPC_INFER, API_GRPC, HTTP_POST, {OIP, "ModelInfer"}},
    {ROUTE_GRPC_STREAM_INFER, API_GRPC, HTTP_POST, {OIP, "ModelStreamInfer"}},
    {ROUTE_GRPC_LIVE, API_GRPC, HTTP_POST, {OIP, "ServerLive"}},
    {ROUTE_GRPC_READY, API_GRPC, HTTP_POST, {OIP, "ServerReady"}},
    {ROUTE_GRPC_MODEL_READY, API_GRPC, HTTP_POST, {OIP, "ModelReady"}},
    {ROUTE_GRPC_SERVER_METADATA, API_GRPC, HTTP_POST, {OIP, "ServerMetadata"}},
    {ROUTE_GRPC_MODEL_METADATA, API_GRPC, HTTP_POST, {OIP, "ModelMetadata"}},
    {ROUTE_GRPC_MODEL_CONFIG, API_GRPC, HTTP_POST, {OIP, "ModelConfig"}},
    {ROUTE_GRPC_MODEL_STATS, API_GRPC, HTTP_POST, {OIP, "ModelStatistics"}},
    {ROUTE_GRPC_INDEX, API_GRPC, HTTP_POST, {OIP, "RepositoryIndex"}},
    {ROUTE_GRPC_LOAD, API_GRPC, HTTP_POST, {OIP, "RepositoryModelLoad"}},
    {ROUTE_GRPC_UNLOAD, API_GRPC, HTTP_POST, {OIP, "RepositoryModelUnload"}},
    {ROUTE_GRPC_HEALTH_CHECK, API_GRPC, HTTP_POST, {"grpc.health.v1.Health", "Check"}},
    {ROUTE_GRPC_HEALTH_WATCH, API_GRPC, HTTP_POST, {"grpc.health.v1.Health", "Watch"}},
    {ROUTE_GRPC_REFLECTION, API_GRPC, HTTP_POST, {"grpc.reflection.v1.ServerReflection", "ServerReflectionInfo"}},
    {ROUTE_GRPC_REFLECTION, API_GRPC, HTTP_POST, {"grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo"}},
};

static const char *const names[ROUTE_COUNT] = {
    [ROUTE_NONE] = "none",
    [ROUTE_SERVER_METADATA] = "server_metadata",
    [ROUTE_LIVE] = "live",
    [ROUTE_READY] = "ready",
    [ROUTE_MODEL_METADATA] = "model_metadata",
    [ROUTE_MODEL_READY] = "model_ready",
    [ROUTE_MODEL_CONFIG] = "model_config",
    [ROUTE_MODEL_STATS] = "model_stats",
    [ROUTE_ALL_STATS] = "all_stats",
    [ROUTE_INFER] = "infer",
    [ROUTE_INDEX] = "repository_index",
    [ROUTE_LOAD] = "repository_load",
    [ROUTE_UNLOAD] = "repository_unload",
    [ROUTE_CHAT_COMPLETIONS] = "chat_completions",
    [ROUTE_COMPLETIONS] = "completions",
    [ROUTE_OPENAI_MODELS] = "openai_models",
    [ROUTE_OPENAI_MODEL] = "openai_model",
    [ROUTE_GENERATE] = "generate",
    [ROUTE_GENERATE_STREAM] = "generate_stream",
    [ROUTE_RESPONSES] = "responses",
    [ROUTE_EMBEDDINGS] = "embeddings",
    [ROUTE_ADAPTER_LOAD] = "load_lora_adapter",
    [ROUTE_ADAPTER_UNLOAD] = "unload_lora_adapter",
    [ROUTE_RERANK] = "rerank",
    [ROUTE_TOKENIZE] = "tokenize",
    [ROUTE_DETOKENIZE] = "detokenize",
    [ROUTE_METRICS] = "metrics",
    [ROUTE_ADMIN_RELOAD] = "admin_reload",
    [ROUTE_ADMIN_STATUS] = "admin_status",
    [ROUTE_ADMIN_LOG_LEVEL] = "admin_log_level",
    [ROUTE_ADMIN_GUARD] = "admin_guard",
    [ROUTE_ADMIN_GUARD_RECORD] = "admin_guard_record",
    [ROUTE_ADMIN_GUARD_STOP] = "admin_guard_stop",
    [ROUTE_ADMIN_GUARD_SAVE] = "admin_guard_save",
    [ROUTE_ADMIN_LIMITS] = "admin_limits",
    [ROUTE_GRPC_NONE] = "grpc_none",
    [ROUTE_GRPC_LIVE] = "grpc_server_live",
    [ROUTE_GRPC_READY] = "grpc_server_ready",
    [ROUTE_GRPC_MODEL_READY] = "grpc_model_ready",
    [ROUTE_GRPC_SERVER_METADATA] = "grpc_server_metadata",
    [ROUTE_GRPC_MODEL_METADATA] = "grpc_model_metadata",
    [ROUTE_GRPC_MODEL_CONFIG] = "grpc_model_config",
    [ROUTE_GRPC_MODEL_STATS] = "grpc_model_stats",
    [ROUTE_GRPC_INFER] = "grpc_model_infer",
    [ROUTE_GRPC_STREAM_INFER] = "grpc_model_stream_infer",
    [ROUTE_GRPC_INDEX] = "grpc_repository_index",
    [ROUTE_GRPC_LOAD] = "grpc_repository_load",
    [ROUTE_GRPC_UNLOAD] = "grpc_repository_unload",
    [ROUTE_GRPC_HEALTH_CHECK] = "grpc_health_check",
    [ROUTE_GRPC_HEALTH_WATCH] = "grpc_health_watch",
    [ROUTE_GRPC_REFLECTION] = "grpc_reflection",
    [ROUTE_PROXY] = "proxy",
};

/* Probes are open unless `auth.open` says otherwise; what shows or changes all models at once is for those who may see them all. */
static const struct edge_need needs[ROUTE_COUNT] = {
    [ROUTE_NONE] = {.open = true}, /* no resource: 404 and 405 say nothing */
    [ROUTE_SERVER_METADATA] = {.scope = EDGE_READ},
    [ROUTE_LIVE] = {.scope = EDGE_READ},
    [ROUTE_READY] = {.scope = EDGE_READ},
    [ROUTE_MODEL_METADATA] = {.scope = EDGE_READ},
    [ROUTE_MODEL_READY] = {.scope = EDGE_READ},
    [ROUTE_MODEL_CONFIG] = {.scope = EDGE_READ},
    [ROUTE_MODEL_STATS] = {.scope = EDGE_READ},
    [ROUTE_ALL_STATS] = {.scope = EDGE_READ},
    [ROUTE_INFER] = {.scope = EDGE_INFER},
    [ROUTE_INDEX] = {.scope = EDGE_READ},
    [ROUTE_LOAD] = {.scope = EDGE_ADMIN},
    [ROUTE_UNLOAD] = {.scope = EDGE_ADMIN},
    [ROUTE_CHAT_COMPLETIONS] = {.scope = EDGE_INFER},
    [ROUTE_COMPLETIONS] = {.scope = EDGE_INFER},
    [ROUTE_OPENAI_MODELS] = {.scope = EDGE_READ},
    [ROUTE_OPENAI_MODEL] = {.scope = EDGE_READ},
    [ROUTE_GENERATE] = {.scope = EDGE_INFER},
    [ROUTE_GENERATE_STREAM] = {.scope = EDGE_INFER},
    [ROUTE_RESPONSES] = {.scope = EDGE_INFER},
    [ROUTE_EMBEDDINGS] = {.scope = EDGE_INFER},
    [ROUTE_ADAPTER_LOAD] = {.scope = EDGE_ADMIN},
    [ROUTE_ADAPTER_UNLOAD] = {.scope = EDGE_ADMIN},
    [ROUTE_RERANK] = {.scope = EDGE_INFER},
    [ROUTE_TOKENIZE] = {.scope = EDGE_INFER},
    [ROUTE_DETOKENIZE] = {.scope = EDGE_INFER},
    [ROUTE_METRICS] = {.scope = EDGE_READ, .every_model = true},
    [ROUTE_ADMIN_RELOAD] = {.scope = EDGE_ADMIN, .every_model = true},
    [ROUTE_ADMIN_STATUS] = {.scope = EDGE_ADMIN, .every_model = true},
    [ROUTE_ADMIN_LOG_LEVEL] = {.scope = EDGE_ADMIN, .every_model = true},
    [ROUTE_ADMIN_GUARD] = {.scope = EDGE_ADMIN, .every_model = true},
    [ROUTE_ADMIN_GUARD_RECORD] = {.scope = EDGE_ADMIN},
    [ROUTE_ADMIN_GUARD_STOP] = {.scope = EDGE_ADMIN},
    [ROUTE_ADMIN_GUARD_SAVE] = {.scope = EDGE_ADMIN},
    [ROUTE_ADMIN_LIMITS] = {.scope = EDGE_ADMIN, .every_model = true},
    [ROUTE_GRPC_NONE] = {.open = true},
    [ROUTE_GRPC_LIVE] = {.scope = EDGE_READ},
    [ROUTE_GRPC_READY] = {.scope = EDGE_READ},
    [ROUTE_GRPC_MODEL_READY] = {.scope = EDGE_READ},
    [ROUTE_GRPC_SERVER_METADATA] = {.scope = EDGE_READ},
    [ROUTE_GRPC_MODEL_METADATA] = {.scope = EDGE_READ},
    [ROUTE_GRPC_MODEL_CONFIG] = {.scope = EDGE_READ},
    [ROUTE_GRPC_MODEL_STATS] = {.scope = EDGE_READ},
    [ROUTE_GRPC_INFER] = {.scope = EDGE_INFER},
    [ROUTE_GRPC_STREAM_INFER] = {.scope = EDGE_INFER},
    [ROUTE_GRPC_INDEX] = {.scope = EDGE_READ},
    [ROUTE_GRPC_LOAD] = {.scope = EDGE_ADMIN},
    [ROUTE_GRPC_UNLOAD] = {.scope = EDGE_ADMIN},
    [ROUTE_GRPC_HEALTH_CHECK] = {.scope = EDGE_READ},
    [ROUTE_GRPC_HEALTH_WATCH] = {.scope = EDGE_READ},
    [ROUTE_GRPC_REFLECTION] = {.scope = EDGE_READ},
    [ROUTE_PROXY] = {.scope = EDGE_INFER},
};

struct edge_need route_need(enum route_id id)
{
    return needs[id];
}

bool route_row_at(size_t i, struct route_row *out)
{
    if (i >= COUNT_OF(routes))
        return false;
    const struct route *t = &routes[i];
    *out = (struct route_row){.id = t->id, .surfaces = t->surfaces, .method = t->method};
    for (size_t at = 0, s = 0; s < SEGMENTS_MAX && t->segments[s]; s++)
        at += (size_t)snprintf(out->path + at, sizeof out->path - at, "/%s", t->segments[s]);
    return true;
}

/* Where it is not "http", which stands for KServe's protocol and what belongs to no protocol. Routes of others have their row here. */
static const char *const protocols[ROUTE_COUNT] = {
    [ROUTE_NONE] = "http",
    [ROUTE_EMBEDDINGS] = "openai",
    [ROUTE_RERANK] = "openai",
    [ROUTE_RESPONSES] = "openai",
    [ROUTE_CHAT_COMPLETIONS] = "openai",
    [ROUTE_COMPLETIONS] = "openai",
    [ROUTE_OPENAI_MODELS] = "openai",
    [ROUTE_OPENAI_MODEL] = "openai",
    [ROUTE_TOKENIZE] = "openai",
    [ROUTE_DETOKENIZE] = "openai",
    [ROUTE_GRPC_NONE] = "grpc",
    [ROUTE_GRPC_LIVE] = "grpc",
    [ROUTE_GRPC_READY] = "grpc",
    [ROUTE_GRPC_MODEL_READY] = "grpc",
    [ROUTE_GRPC_SERVER_METADATA] = "grpc",
    [ROUTE_GRPC_MODEL_METADATA] = "grpc",
    [ROUTE_GRPC_MODEL_CONFIG] = "grpc",
    [ROUTE_GRPC_MODEL_STATS] = "grpc",
    [ROUTE_GRPC_INFER] = "grpc",
    [ROUTE_GRPC_STREAM_INFER] = "grpc",
    [ROUTE_GRPC_INDEX] = "grpc",
    [ROUTE_GRPC_LOAD] = "grpc",
    [ROUTE_GRPC_UNLOAD] = "grpc",
    [ROUTE_GRPC_HEALTH_CHECK] = "grpc",
    [ROUTE_GRPC_HEALTH_WATCH] = "grpc",
    [ROUTE_GRPC_REFLECTION] = "grpc",
    [ROUTE_ADAPTER_LOAD] = "openai",
    [ROUTE_ADAPTER_UNLOAD] = "openai",
};

const char *route_protocol(enum route_id id)
{
    return protocols[id] ? protocols[id] : "http";
}

bool route_takes_prompt(enum route_id id)
{
    return id == ROUTE_CHAT_COMPLETIONS || id == ROUTE_COMPLETIONS || id == ROUTE_EMBEDDINGS || id == ROUTE_RERANK ||
           id == ROUTE_RESPONSES || id == ROUTE_GENERATE || id == ROUTE_GENERATE_STREAM || id == ROUTE_TOKENIZE ||
           id == ROUTE_DETOKENIZE;
}

const char *route_name(enum route_id id)
{
    return names[id];
}

/* Decoded segments; one trailing slash is forgiven. "*": *n is 0. */
static int split(const struct http_request *r, struct str seg[SEGMENTS_MAX], size_t *n, struct error *err)
{
    struct str path = r->path;
    *n = 0;
    if (!path.n || path.p[0] != '/')
        return 0;
    if (path.n > 1 && path.p[path.n - 1] == '/')
        path.n--;
    return url_split_path(r->arena, path, seg, SEGMENTS_MAX, n, err);
}

static size_t count_segments(const struct route *t)
{
    size_t n = 0;
    while (n < SEGMENTS_MAX && t->segments[n])
        n++;
    return n;
}

static bool match_segments(const struct route *t, const struct str *seg, size_t n, struct route_match *m)
{
    *m = (struct route_match){.id = t->id};
    for (size_t i = 0; i < n; i++) {
        if (strcmp(t->segments[i], "{m}") == 0)
            m->model = seg[i];
        else if (strcmp(t->segments[i], "{v}") == 0)
            m->version = seg[i];
        else if (!str_eqz(seg[i], t->segments[i]))
            return false;
    }
    return true;
}

/* A version as a path may name it: characters of labels and of semantic versions, whose build metadata follows a '+'. */
static bool is_version_text(struct str s)
{
    const char *plus = s.n ? memchr(s.p, '+', s.n) : NULL;
    if (!plus)
        return str_is_model_name(s);
    size_t front = (size_t)(plus - s.p);
    return str_is_model_name((struct str){s.p, front}) && str_is_model_name((struct str){plus + 1, s.n - front - 1});
}

int route_check_names(const struct route_match *m, struct error *err)
{
    if (m->model.p && !str_is_model_name(m->model))
        return error_set(err, STATUS_NOT_FOUND, "unknown model: a model name has 1 to 128 characters of A-Z a-z 0-9 . _ -");
    if (m->version.p && !is_version_text(m->version))
        return error_set(err, STATUS_NOT_FOUND,
                         "unknown version of model \"%.*s\": a version is an integer, a semantic version or a label",
                         STR_ARG(m->model));
    return 0;
}

static const char *allow_text(unsigned methods)
{
    bool get = methods & 1u << HTTP_GET, post = methods & 1u << HTTP_POST;
    return get && post ? "GET, HEAD, POST" : get ? "GET, HEAD" : "POST";
}

int route_match(const struct http_request *r, enum api_surface surface, struct route_match *out, const char **allow,
                struct error *err)
{
    struct str seg[SEGMENTS_MAX];
    size_t n;
    unsigned other_methods = 0;
    enum http_method method = r->method == HTTP_HEAD ? HTTP_GET : r->method;
    *out = (struct route_match){0};
    int rc = split(r, seg, &n, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; n && i < COUNT_OF(routes); i++) {
        const struct route *t = &routes[i];
        if (!(t->surfaces & surface) || count_segments(t) != n || !match_segments(t, seg, n, out))
            continue;
        if (t->method == method)
            return route_check_names(out, err);
        other_methods |= 1u << t->method;
    }
    *out = (struct route_match){0};
    if (other_methods) {
        *allow = allow_text(other_methods);
        return error_set(err, STATUS_METHOD, "method %.*s is not allowed here; allowed: %s", STR_ARG(r->method_text), *allow);
    }
    return error_set(err, STATUS_NOT_FOUND, "no such resource; see GET /v2 for what this server speaks");
}
