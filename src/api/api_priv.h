/* api_priv.h: for api/'s own files only: the api object, the state of one call, and small reply helpers. */
#ifndef INFERD_API_API_PRIV_H
#define INFERD_API_API_PRIV_H

#include <stdatomic.h>

#include "api/api.h"
#include "base/list.h"
#include "gateway/gateway.h"
#include "model/infer.h"
#include "edge/edge.h"
#include "obs/metrics.h"
#include "os/thread.h"

#define API_CODES 600 /* HTTP status codes that can be counted */

enum api_offload { API_OFFLOAD_DECODE, API_OFFLOAD_ENCODE, API_OFFLOAD_COUNT };

struct api_listener {
    struct api *api;
    enum api_surface surface;
};

/* generate_pool.c: the workers that prepare generations, and all generations. */
struct gen_pool {
    struct work_pool *workers;
    struct os_mutex lock; /* RANK_CALLS: what follows */
    struct os_cond idle;  /* n_unprepared went down */
    struct list live;     /* gen_call.link */
    uint32_t n_unprepared;
};

struct api {
    struct api_options o;
    struct api_listener listener[3]; /* http, metrics, admin */
    _Atomic int phase;
    _Atomic unsigned compat; /* of enum api_compat */
    _Atomic uint64_t in_flight;
    struct work_pool *pool;                      /* work.h: for what would hold an I/O thread too long */
    struct metric *offloaded[API_OFFLOAD_COUNT]; /* given to the pool */
    bool open[ROUTE_COUNT];                      /* ask for nothing */
    struct gen_pool gen;
    struct {
        _Atomic uint64_t at_ns, waiting, kv_ppm;
    } load; /* load_report.c */
    struct metric_family *requests_family;
    /* By route and status code, made at the first use; racing makers get the same handle from the registry. */
    _Atomic(struct metric *) requests[ROUTE_COUNT][API_CODES];
};

struct api_guard;   /* guard.h */
struct grpc_call;   /* kserve_grpc_priv.h */
struct grpc_stream; /* kserve_grpc_priv.h */
struct infer_call;  /* infer_priv.h */
struct work_pool;   /* work.h */

/* What the inferences of one loop share (turn.c). */
struct api_turn {
    struct infer_waker waker; /* bursts of answers into the loop */
    struct infer_wakes wakes; /* instances to wake at the end of the iteration */
    uint64_t since_ns;        /* the oldest of them */
    struct loop_task flush;
    bool flushing;
    struct loop *loop;
};

/* The turn of `loop`, made at its first use; freed with the loop. NULL: out of memory. Loop thread. */
struct api_turn *api__turn(struct loop *loop);
/* For infer_submit: where to note that an instance is to be woken. That happens when the iteration ends, or here once the oldest note has
 * waited long enough. */
struct infer_wakes *api__turn_wakes(struct api_turn *t, uint64_t now_ns);
struct gen_call; /* generate.c */
struct quota_wait;

/* One question to the quotas; embedded in what waits for the answer. */
struct api_charge {
    void (*resume)(struct api_charge *c, int rc, struct error *err); /* after AGAIN: the answer; I/O thread */
    struct str model;
    uint64_t rows, tokens;
    struct api_charge *next; /* quota.c's */
};

/* A request's hold on the quotas (quota.c); in its arena, NULL without quotas. Touched by whoever works on the request. */
struct api_quota {
    bool taken;                    /* reserved, or known to need nothing */
    uint64_t id;                   /* 0: nothing to settle */
    uint64_t tokens;               /* really used, set before the reply is complete */
    struct http_header headers[7]; /* of the reply; a worker thread may set them, when the request's arena isn't its own */
    char text[5][24];
    /* while a question is with the Redis (quota_shared.h), on the I/O thread */
    struct quota_wait *wait;
    struct loop_task told;
    struct http_request *request;
    struct edge_identity *who; /* a reference */
    bool asking, over;
    struct api_charge *charge, *next,
        **last; /* the question that is asked, NULL: that of the headers; those that come after it */
    void (*parked)(void *ctx, struct http_request *r); /* waits for the headers' answer */
    void *parked_ctx;
    int refused; /* the headers' answer, when it is no, */
    struct error *why;
};

/* State of one request, in its arena, at http_request.user. */
struct api_call {
    struct api *api;
    struct route_match match;
    bool is_grpc;
    struct edge_identity *who; /* the caller; NULL: nobody was asked, or nobody is known */
    enum edge_verdict verdict;
    struct api_quota *quota;
    struct api_guard *guard; /* guard.h; NULL: nothing is guarded */
    bool preflight;
    struct infer_times times; /* zero but for received_ns unless the route is infer */
    int status;               /* of the inference; 0 elsewhere */
    struct gen_call *gen;     /* while a generation is under way */
    const char *error_param;  /* what an error in OpenAI's shape names: the field, and its code; NULL: none */
    const char *error_code;
    struct infer_call *infer;      /* while an inference is under way */
    int grpc_code;                 /* of a gRPC call that another server answered: what it said */
    struct gateway_target target;  /* of a request that another server answers; taken by gateway_forward */
    bool undecided, remote;        /* the body decides; it is with the gateway, and counted in flight */
    struct proxy_grpc *proxy_grpc; /* proxy_grpc.c; of a gRPC call whose model decides */
    uint64_t local_limit;          /* of a body that is for us after all */
    int local;                     /* what our own table said of it, */
    struct error local_error;      /* and why not */
    struct model_version *version; /* of an inference that was answered; held until the reply is written */
    struct grpc_call *grpc;        /* kserve_grpc_priv.h; of a gRPC call */
    struct grpc_stream *stream;    /* of one that streams */
};

/* One handler a route; runs on the I/O thread and leads to exactly one reply. */
typedef void (*route_handler)(struct api *a, struct http_request *r, struct api_call *call);

/* Add this server's load to the reply, when the request asks for it (load_report.c). */
void api__load_report(struct api *a, struct http_request *r);

void api__live(struct api *a, struct http_request *r, struct api_call *call);
void api__ready(struct api *a, struct http_request *r, struct api_call *call);
void api__server_metadata(struct api *a, struct http_request *r, struct api_call *call);
void api__model_metadata(struct api *a, struct http_request *r, struct api_call *call);
void api__model_ready(struct api *a, struct http_request *r, struct api_call *call);
void api__model_config(struct api *a, struct http_request *r, struct api_call *call);
void api__model_stats(struct api *a, struct http_request *r, struct api_call *call);
void api__all_stats(struct api *a, struct http_request *r, struct api_call *call);
void api__infer(struct api *a, struct http_request *r, struct api_call *call);
void api__index(struct api *a, struct http_request *r, struct api_call *call);
void api__load(struct api *a, struct http_request *r, struct api_call *call);
void api__unload(struct api *a, struct http_request *r, struct api_call *call);
void api__metrics(struct api *a, struct http_request *r, struct api_call *call);
void api__chat_completions(struct api *a, struct http_request *r, struct api_call *call);
void api__completions(struct api *a, struct http_request *r, struct api_call *call);
void api__openai_models(struct api *a, struct http_request *r, struct api_call *call);
void api__openai_model(struct api *a, struct http_request *r, struct api_call *call);
void api__generate(struct api *a, struct http_request *r, struct api_call *call);
void api__generate_stream(struct api *a, struct http_request *r, struct api_call *call);
void api__responses(struct api *a, struct http_request *r, struct api_call *call);
void api__rerank(struct api *a, struct http_request *r, struct api_call *call);
void api__embeddings(struct api *a, struct http_request *r, struct api_call *call);
void api__adapter_load(struct api *a, struct http_request *r, struct api_call *call);
void api__adapter_unload(struct api *a, struct http_request *r, struct api_call *call);
void api__tokenize(struct api *a, struct http_request *r, struct api_call *call);
void api__detokenize(struct api *a, struct http_request *r, struct api_call *call);
void api__admin_reload(struct api *a, struct http_request *r, struct api_call *call);
void api__admin_status(struct api *a, struct http_request *r, struct api_call *call);
void api__admin_log_level(struct api *a, struct http_request *r, struct api_call *call);
void api__admin_guard(struct api *a, struct http_request *r, struct api_call *call);
void api__admin_limits(struct api *a, struct http_request *r, struct api_call *call);

/* The largest body that our own handler of a route takes, within the listener's limit. */
uint64_t api__body_limit(const struct http_request *r, enum route_id id);
/* proxy.c. On the head: `local` is what route_match said. 0: go on (call->target or call->undecided may be set); else refuse with that. */
int api__proxy_head(struct api *a, struct http_request *r, struct api_call *call, int local, struct error *err) MUST_CHECK;
/* With the body: true: the request is taken care of. */
bool api__proxy_body(struct api *a, struct http_request *r, struct api_call *call);
/* proxy_grpc.c. On the head of a call that may be sent on; `asks`: its model must be known first. */
int api__proxy_grpc_head(struct http_request *r, struct api_call *call, bool asks, struct error *err) MUST_CHECK;
/* From on_request: such a call is taken care of. */
void api__proxy_grpc_run(struct api *a, struct http_request *r, struct api_call *call);
void api__proxy_grpc_over(struct api_call *call);
/* False: the model stands in its messages. */
bool api__proxy_grpc_knows_model(const struct api_call *call);
/* Call the handler of the call's route, once what it needs is there. */
void api__run(struct api *a, struct http_request *r, struct api_call *call);
/* The request is complete. */
void api__proxy_over(struct api *a, struct api_call *call);

/* The body of an error as OpenAI's clients expect it. `param` and `code` may be NULL. */
void api__openai_error(struct buf *body, int http_status, const char *text, const char *param, const char *code);
/* Whether errors of this request have OpenAI's shape. */
bool api__is_openai(const struct http_request *r);
/* Past start, not stopping, and the registry says ready. From atomics. */
bool api__is_ready(const struct api *a);
/* The protocol's extensions that this server has; returns how many. Constants. */
#define API_EXTENSIONS_MAX 8
size_t api__extensions(const struct api *a, const char *names[API_EXTENSIONS_MAX]);

/* Append the nv_inference_* families for every ready version. */
void api__render_triton(struct api *a, struct buf *out);
/* Append vLLM's names for what stands in `engines`, the text of api__render_engines. */
void api__render_vllm(struct str engines, struct buf *out);
/* Append the series that the engines of ready versions render themselves (engine_ops.metrics). */
void api__render_engines(struct api *a, struct buf *out);
/* Join texts of TYPE lines with their samples so that each family stands once. */
void api__merge_metrics(const struct str *texts, size_t n, struct buf *out);

/* Reply with `body`, which is released. A failed (out of memory) body becomes 503. */
void api__reply_json(struct http_request *r, int http_status, struct buf *body);
/* Seconds for Retry-After, 0: none. A full queue: how long `v` (may be NULL) has to work on what it holds, 1 to 60; what passes by
 * itself soon: 1. */
uint32_t api__retry_after_s(int status, struct model_version *v);
/* Reply with err->text under `status`. */
void api__reply_error(struct http_request *r, int status, const struct error *err);

/* A yes or no in the query: "name", "name=true" or "=1"; "name=false" or "=0"; `absent` when it isn't there. INVALID names it. */
int api__query_flag(const struct http_request *r, const char *name, bool absent, bool *out, struct error *err) MUST_CHECK;

/* The authorisation point (access.c): may this caller use the call's route and model? Fills call->who and call->verdict. For every protocol,
 * once, as soon as the route is known. */
int api__authorise(struct api *a, struct http_request *r, struct api_call *call, struct error *err) MUST_CHECK;
/* For protocols that name the model in the body: may the caller use this one? NOT_FOUND: as if it didn't exist. */
int api__authorise_model(struct api *a, struct api_call *call, struct str model, struct error *err) MUST_CHECK;
/* client.c. Set r->peer to the client's address behind trusted proxies. */
void api__find_client(struct api *a, struct http_request *r);
/* Headers for whatever reply follows; the array is copied, what it points to is not. */
void api__add_headers(struct http_request *r, const struct http_header *headers, size_t n);
/* Add CORS headers; true: it is a preflight, to be answered by api__preflight alone. */
bool api__cors(struct api *a, struct http_request *r);
void api__preflight(struct api *a, struct http_request *r);

/* admission.c. Whose share of a queue it takes: a hash of the caller's tenant; 0: nobody's. */
uint64_t api__tenant_of(const struct api_call *call);

/* Quotas (quota.c). Begin: when the route is known; takes the request's share at once where the model is known, too; the answer may be out
 * when it returns 0. Park: true: it still is, and `go` will be called; else `refused` says what it was. Charge: rows and tokens that the
 * request is about to take, as soon as they are known. EXHAUSTED: 429, with the headers that say why; AGAIN: c->resume will be called. I/O
 * thread. Charge_now: the same for a thread that may wait, up to redis.deadline. End: what was not used goes back. */
int api__quota_begin(struct api *a, struct http_request *r, struct api_call *call, struct error *err) MUST_CHECK;
bool api__quota_park(struct http_request *r, struct api_call *call, void (*go)(void *ctx, struct http_request *r), void *ctx);
int api__quota_charge(struct http_request *r, struct api_call *call, struct api_charge *c, struct error *err) MUST_CHECK;
int api__quota_charge_now(struct http_request *r, struct api_call *call, struct str model, uint64_t rows, uint64_t tokens,
                          struct error *err) MUST_CHECK;
void api__quota_end(const struct http_request *r, struct api_call *call);
/* Is a model shown to the caller in lists? */
bool api__shows(const struct api_call *call, struct str model);
/* Is the route one that changes the server, to be recorded whoever asked? */
bool api__is_admin(enum route_id id);

/* Look up the model and version of the call; replies and returns NULL when it can't be served. The caller unrefs. */
struct model_version *api__find(struct api *a, struct http_request *r, struct api_call *call);
/* The call's last: what it holds of others is given back. */
void api__call_end(struct http_request *r, struct api_call *call);
/* Does it generate text? Any thread. */
bool api__generates(const struct model_version *v);

#endif
