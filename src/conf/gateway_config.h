/* gateway_config.h: the sections `upstreams:` and `routes:` of inferd.yaml: lists of maps, which the flat option table can't hold.
 *
 *     upstreams:
 *       - name: llm
 *         balance: llm                    # round_robin least_conn p2c hash llm
 *         servers:
 *           - 10.0.0.7:8000               # or a map:
 *           - {address: 10.0.0.8:8000, weight: 2, zone: b, backup: true, max_conns: 64}
 *         check: {path: /v2/health/ready, interval: 2s}
 *     routes:
 *       - {model: "llama-*", upstream: llm, timeout: 5m}
 *       - {path_prefix: /v2/, upstream: triton}
 *
 * Routes are tried in order; the first that matches decides, `upstream: local` is this process. A request that no route matches is local.
 * Read-only once built; everything lives in the arena that was given. Pure. */
#ifndef INFERD_CONF_GATEWAY_CONFIG_H
#define INFERD_CONF_GATEWAY_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "conf/node.h"

struct gateway_words {
    const char **v;
    size_t n;
};

struct gateway_server {
    const char *address, *zone;
    uint32_t weight, max_conns, max_fails;
    uint64_t fail_timeout, slow_start;
    bool backup;
};

enum gateway_hash { GATEWAY_HASH_CLIENT, GATEWAY_HASH_MODEL, GATEWAY_HASH_USER, GATEWAY_HASH_PATH }; /* or hash_header */

struct gateway_pool {
    const char *name;
    int balance; /* enum balance_policy of route/pool.h, in its order */
    struct gateway_server *servers;
    size_t n_servers;
    const char *servers_file, *servers_port; /* "": none; see endpoint_slice.h */
    struct {
        const char *file, *path;    /* "": none; of the record's text, dots between its parts */
        struct gateway_words zones; /* "VALUE=zone" */
    } geo;
    const char *zone_header; /* names the zone to prefer for a request; "": this process's own */
    int hash_key;            /* enum gateway_hash */
    const char *hash_header; /* "": hash_key */
    int protocol;            /* enum gateway_protocol of gateway/exchange.h, in its order */
    uint32_t min_healthy, keepalive, keepalive_min, max_fails, queue, max_requests;
    uint64_t slow_start, connect_timeout, eject_base, eject_max, resolve_interval, queue_timeout, keepalive_timeout,
        ping_interval;
    struct {
        const char *ca;                /* "": no TLS; "system"; a PEM file */
        const char *certificate, *key; /* "": none */
        const char *name;              /* "": the server's own host */
    } tls;
    struct {
        const char *path;                         /* "": no active checks, unless grpc */
        const char *body, *content_type, *expect; /* body "": GET; expect "": the status is enough */
        bool grpc;
        const char *service; /* of grpc; "": the whole server */
        uint64_t interval, timeout;
        uint32_t fall, rise;
    } check;
    struct {
        bool headers;              /* ask for endpoint-load-metrics, and read it */
        const char *path;          /* of a metrics page; "": none is read */
        uint32_t max_queued;       /* 0: reports don't keep requests away */
        uint32_t port, agent_port; /* 0: the server's own; 0: no agent */
        uint64_t interval, timeout, max_age;
    } report;
    struct {
        uint32_t queue, kv, prefix, adapter; /* weights */
    } llm;
    struct {
        uint64_t after;      /* 0: see percentile */
        uint32_t percentile; /* of the pool's latency; 0: `after` alone; both 0: no hedging */
    } hedge;
    struct {
        uint32_t attempts; /* in all, the first included */
        uint32_t budget_percent, budget_least;
        uint64_t buffer;         /* bytes of a body kept for another try */
        struct gateway_words on; /* connect reset timeout 502 503 504 */
    } retry;
};

struct gateway_route {
    /* what it matches; what is "" or empty matches everything */
    const char *host, *path, *path_prefix, *model; /* model: a name, or a beginning and '*' */
    const char *header;                            /* "name" (is there) or "name: value" */
    struct gateway_words methods;
    double percent; /* of the requests that match, by request id [100] */
    /* what then */
    const char *upstream, *fallback, *rewrite_model;
    int priority; /* enum wait_class of route/waitlist.h, in its order */
    uint64_t timeout, try_timeout, idle_timeout, max_body;
    bool idempotent; /* may be sent again although it may have been started [true: inference has no side effects] */
    bool websocket;  /* may become one */
    struct gateway_words set_headers, remove_headers; /* "name: value"; "name" */
};

struct gateway_config {
    struct gateway_pool *pools;
    size_t n_pools;
    struct gateway_route *routes;
    size_t n_routes;
};

/* Read the two sections; either may be NULL. INVALID: file, line, the key's path, the value, what is accepted; an unknown key with the nearest
 * one; a route to a pool that isn't there. NOMEM. */
int gateway_config_read(const struct node *upstreams, const struct node *routes, const char *where, struct arena *arena,
                        struct gateway_config *out, struct error *err) MUST_CHECK;

/* A list of servers as `servers:` has it, from a file of its own. INVALID, NOMEM. */
int gateway_servers_read(const struct node *list, const char *where, struct arena *arena, struct gateway_server **out,
                         size_t *n, struct error *err) MUST_CHECK;
/* A server with the defaults of its keys; the texts are borrowed. NOMEM. */
int gateway_server_init(struct arena *arena, const char *address, const char *zone, struct gateway_server *out) MUST_CHECK;

/* A deep copy into `arena`, for who outlives the configuration that it came from. STATUS_NOMEM. */
int gateway_config_copy(const struct gateway_config *from, struct arena *arena, struct gateway_config *out) MUST_CHECK;

/* The same in everything but their servers? */
bool gateway_pool_same(const struct gateway_pool *a, const struct gateway_pool *b);

/* Reference of all keys, for docs/reference/gateway.md. */
void gateway_config_render_markdown(struct buf *out);

#endif
