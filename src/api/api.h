/* api.h: the protocols, as handlers for net's HTTP servers. One `struct api` serves every listener.
 *
 * Created once by the server, immutable afterwards except for atomics; used by all I/O threads at once. It owns nothing it
 * is given. */
#ifndef INFERD_API_API_H
#define INFERD_API_API_H

#include <stdbool.h>
#include <stdint.h>

#include "api/route.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "net/http.h"

struct registry;
struct metrics;
struct access_log;
struct edge;
struct quota_gate;
struct guard_gate;
struct limit_gate;
struct network; /* net/address.h */
struct api;

/* Where the process is in its life; written by the main thread, read by health answers. DRAINING: no new connections; what runs may
 * finish, and streams on which nothing runs are ended. CLOSED: every request but liveness is
 * answered with 503 and touches nothing but the request, so that registry and server may be taken down under open listeners. */
enum api_phase { API_STARTING, API_SERVING, API_STOPPING, API_DRAINING, API_CLOSED };

/* Names of others on the metrics page: nv_inference_*, vllm:*. */
enum api_compat { API_COMPAT_TRITON = 1, API_COMPAT_VLLM = 2 };

struct api_options {
    struct registry *registry;
    struct metrics *metrics;
    struct logger *log;
    struct access_log *access; /* NULL: no access log */
    struct edge *edge;         /* who may do what */
    struct gateway *gateway;   /* sends requests on; NULL: all are answered here */
    struct quota_gate *quota;  /* NULL: none */
    struct guard_gate *guard;  /* what may come in and go out; NULL: anything */
    struct limit_gate *limits; /* of overload; NULL: none */
    struct access_log *audit;  /* admin actions and refusals; NULL: not written */
    const char *const *open;   /* [n_open] names of routes that ask for nothing */
    size_t n_open;
    const struct network *proxies; /* [n_proxies] whose x-forwarded-for is believed; all these lists are borrowed */
    size_t n_proxies;
    const char *const *origins; /* [n_origins] web pages that may send requests (edge/client.h: cors_allows) */
    size_t n_origins;
    uint64_t cors_max_age_ns;   /* how long browsers may remember the answer to a preflight */
    const char *name, *version; /* of the server, for GET /v2 */
    uint32_t decode_threads;    /* at most so many for decoding and encoding large bodies; at least 1 */
    bool load_report;           /* tell balancers that ask how loaded this server is */
    unsigned compat;            /* of enum api_compat: further names on the metrics page; may be changed later */
    const char *adapter_path;   /* folder that LoRA adapters are loaded from; NULL or empty: none */
    /* POST /admin/reload: apply the configuration again; `report` gets JSON that lists what was applied and what needs a
     * restart. Called on an I/O thread of the admin listener; must not take longer than reading a file. */
    int (*reload)(void *ctx, struct buf *report, struct error *err);
    /* POST /admin/log-level: may be NULL. */
    int (*set_log_level)(void *ctx, enum log_level level, struct error *err);
    /* GET /admin/status: members of a JSON object, without braces. May be NULL. */
    void (*status)(void *ctx, struct buf *out);
    void *ctx;
};

/* Registers its metric families; starts no thread. INVALID: a name in `open` is no route's; NOMEM. */
int api_create(const struct api_options *o, struct api **out, struct error *err) MUST_CHECK;
/* No server may use it any more. */
void api_destroy(struct api *a);

/* Finish the decoding and encoding that is under way on threads of its own, and end these; what comes later is done by the I/O
 * threads. Blocks. Once, before the registry is destroyed: calls that come back from the pool use it. */
void api_close(struct api *a);

/* Append what HAProxy's agent-check wants to hear, with its end of line: "up ready N%", "down #loading", or "drain" from the beginning of a shutdown.
 * N is api_load_percent of what load reports say. Any thread. */
void api_agent_line(struct api *a, struct buf *out);
/* The share of its weight that a server can take, 1..100: what is left of the fullest KV cache (kv: 0..1 used), or 8 of 8 + waiting requests,
 * whichever is less. */
unsigned api_load_percent(double kv, uint64_t waiting);

/* The handler for a listener; `ctx` inside refers to `a`. */
void api_handler(struct api *a, enum api_surface surface, struct http_handler *out);

/* Any thread. */
void api_set_compat(struct api *a, unsigned compat);

/* Any thread. */
void api_set_phase(struct api *a, enum api_phase phase);

/* Cancel every generation: each still gets its end through its loop. After the phase is CLOSED and http_server_sync: none begins any
 * more. Waits for workers that prepare one. */
void api_cancel_generations(struct api *a);

/* Inference requests between arrival and reply. Any thread. */
uint64_t api_in_flight(const struct api *a);

#endif
