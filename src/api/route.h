/* route.h: the one table of what can be asked for, and the matcher over it. api/'s own.
 *
 * Every request becomes a route id here, before anything else looks at it: authorisation (edge), metrics, logs and limits are
 * keyed by that id, never by the text of a path, so there is no second way in. A pattern is a list of literal segments and
 * captures; a path matches when it has the same number of segments. Segments are percent-decoded one by one, so an encoded
 * slash never makes a new segment, and captures that are not model names or version texts are refused before a lookup. */
#ifndef INFERD_API_ROUTE_H
#define INFERD_API_ROUTE_H

#include "base/error.h"
#include "base/str.h"
#include "edge/edge.h"
#include "net/http.h"

/* Where a route is served: a bit per listener, and one for gRPC calls, which come in on the inference listener's ports. */
enum api_surface { API_HTTP = 1, API_METRICS = 2, API_ADMIN = 4, API_GRPC = 8 };

enum route_id {
    ROUTE_NONE,
    ROUTE_SERVER_METADATA,
    ROUTE_LIVE,
    ROUTE_READY,
    ROUTE_MODEL_METADATA,
    ROUTE_MODEL_READY,
    ROUTE_MODEL_CONFIG,
    ROUTE_MODEL_STATS,
    ROUTE_ALL_STATS,
    ROUTE_INFER,
    ROUTE_INDEX,
    ROUTE_LOAD,
    ROUTE_UNLOAD,
    ROUTE_METRICS,
    ROUTE_CHAT_COMPLETIONS,
    ROUTE_COMPLETIONS,
    ROUTE_OPENAI_MODELS,
    ROUTE_OPENAI_MODEL,
    ROUTE_GENERATE,
    ROUTE_GENERATE_STREAM,
    ROUTE_RESPONSES,
    ROUTE_EMBEDDINGS,
    ROUTE_ADAPTER_LOAD,
    ROUTE_ADAPTER_UNLOAD,
    ROUTE_RERANK,
    ROUTE_TOKENIZE,
    ROUTE_DETOKENIZE,
    ROUTE_ADMIN_RELOAD,
    ROUTE_ADMIN_STATUS,
    ROUTE_ADMIN_LOG_LEVEL,
    ROUTE_ADMIN_GUARD,
    ROUTE_ADMIN_GUARD_RECORD,
    ROUTE_ADMIN_GUARD_STOP,
    ROUTE_ADMIN_GUARD_SAVE,
    ROUTE_ADMIN_LIMITS,

    ROUTE_GRPC_NONE, /* a gRPC call of no method that there is */
    ROUTE_GRPC_LIVE,
    ROUTE_GRPC_READY,
    ROUTE_GRPC_MODEL_READY,
    ROUTE_GRPC_SERVER_METADATA,
    ROUTE_GRPC_MODEL_METADATA,
    ROUTE_GRPC_MODEL_CONFIG,
    ROUTE_GRPC_MODEL_STATS,
    ROUTE_GRPC_INFER,
    ROUTE_GRPC_STREAM_INFER,
    ROUTE_GRPC_INDEX,
    ROUTE_GRPC_LOAD,
    ROUTE_GRPC_UNLOAD,
    ROUTE_GRPC_HEALTH_CHECK,
    ROUTE_GRPC_HEALTH_WATCH,
    ROUTE_GRPC_REFLECTION,
    ROUTE_PROXY, /* no pattern: a path that only another server knows */
    ROUTE_COUNT,
};

struct route_match {
    enum route_id id;
    struct str model, version; /* captures, decoded, in the request's arena; empty when the route has none */
};

/* Match method and path of `r` for listener `surface`. NOT_FOUND: no such path here; METHOD: the path exists for another
 * method (`allow` then lists them for the Allow header, a constant); INVALID: a malformed escape; NOMEM. HEAD matches
 * GET routes. */
int route_match(const struct http_request *r, enum api_surface surface, struct route_match *out, const char **allow,
                struct error *err) MUST_CHECK;

/* Are model and version (either p == NULL: not given) spelled like ones? route_match has asked already; for protocols that name them in
 * the body. NOT_FOUND, as for any unknown model. */
int route_check_names(const struct route_match *m, struct error *err) MUST_CHECK;

/* What a route asks of its caller. A route that says nothing here asks for more than anybody has. */
struct edge_need route_need(enum route_id id);

/* One pattern of the table, for pages and tests. */
struct route_row {
    enum route_id id;
    unsigned surfaces; /* of enum api_surface */
    enum http_method method;
    char path[96]; /* "/v2/models/{m}/infer" */
};
/* The `i`th; false past the end. */
bool route_row_at(size_t i, struct route_row *out);

/* The protocol that requests of a route are counted and logged under: "http" for KServe over HTTP. Constant. */
const char *route_protocol(enum route_id id);
/* Triton's generate extension, which is KServe's protocol. */
static inline bool route_is_generate(enum route_id id)
{
    return id == ROUTE_GENERATE || id == ROUTE_GENERATE_STREAM;
}

/* Its body holds text for a language model: more than a small JSON document. */
bool route_takes_prompt(enum route_id id);

/* Constant name of a route for metrics and logs: "infer", "model_ready". */
const char *route_name(enum route_id id);

#endif
