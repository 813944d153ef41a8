/* server_priv.h: for cli/server*.c only: the parts of a running server. */
#ifndef INFERD_CLI_SERVER_PRIV_H
#define INFERD_CLI_SERVER_PRIV_H

#include <stdatomic.h>

#include "api/api.h"
#include "base/log.h"
#include "cli/engines.h"
#include "cli/server.h"
#include "net/http.h"
#include "os/notify.h"
#include "os/signals.h"
#include "os/thread.h"

struct edge;
struct gateway;
struct guard_gate;
struct limit_gate;

struct server {
    struct server_options o;
    /* The running configuration. Read and replaced under `reload_lock` once threads run; the one before is freed then. The first one
     * stays to the end: parts that were started with it refer to its strings, and rows that need a restart never change. */
    struct config *config, *first_config;
    uint32_t compute_threads; /* as resolved at the start */
    struct os_mutex reload_lock;

    struct log_sink *log_sink;
    struct logger *log;
    struct access_log *access, *audit;
    struct edge *edge;
    struct jwt_rules *jwt_rules;  /* NULL: no tokens */
    struct jwks_fetcher *fetcher; /* asks a URL for the issuer's keys; NULL: none */
    struct network *proxies;      /* [first_config->proxy.trusted.n] */
    struct quota_gate *quota;     /* NULL: no quotas */
    struct redis *redis;          /* NULL: nothing is shared */
    uint64_t quota_next_ns;
    struct guard_gate *guard;  /* what may come in and go out; empty without guard.file */
    struct limit_gate *limits; /* NULL: no rules of overload */
    struct tls_context *tls;   /* NULL: no listener speaks TLS */
    struct edge_watch {
        uint64_t next_ns, size_bytes, mtime_ns, inode; /* of the key file as it was last read */
        bool failing;                                  /* told the log already */
    } keys_watch;
    struct metrics *metrics;
    struct process_metrics *process_metrics;
    struct engine *engines[CLI_ENGINES_MAX];
    bool engines_open;
    struct registry *registry;
    struct gateway *gateway; /* NULL: no routes */
    struct api *api;
    struct http_server *listeners[3]; /* http, metrics, admin; NULL where off */
    struct line_server *agent;        /* NULL: off */

    struct os_signals signals;
    struct os_notify notify;
    struct os_thread control;
    bool control_started;
    _Atomic bool control_stop;
    _Atomic bool released; /* server__release is over */
    _Atomic bool hopeless; /* the one model that this server is for can't be served: `why` is set, and the main thread woken */
    struct error why;      /* written before `hopeless`, read after */
    uint64_t started_ns;
};

/* server_start.c: build every part in order; on error the caller runs server__release on what there is. */
int server__start(struct server *s, struct error *err) MUST_CHECK;
void server__release(struct server *s);

/* The folder that the configuration names for what outlives the process; NULL: it names none. */
const char *server__state_dir(const struct server *s);

/* Append the folder for crash reports and state: the configured one, or where such things go by default; nothing when there is none. */
void server__state_folder(const struct server *s, struct buf *out);

/* server_sandbox.c: give up the files that the configuration doesn't need (sandbox.files). On the main thread, before any other runs. */
int server__enter_sandbox(struct server *s, struct error *err) MUST_CHECK;

/* The configured limits, with as many connections as there are descriptors for: raises the process's limit when it can, else warns and
 * lowers max_connections, so that a flood of connections is answered with 503 and doesn't take the descriptors of health checks,
 * metrics and loads. At start and at a reload. */
void server__http_limits(struct server *s, struct http_limits *out);

/* server_edge.c: who may do what. Start: the key file must be readable and right, and the log says what is open to whom. Tick (control
 * thread): read the file again when it changed. Reload: now. A file with a mistake leaves the old keys in force. */
int server__start_edge(struct server *s, struct error *err) MUST_CHECK;
void server__tick_edge(struct server *s, uint64_t now_ns);
int server__reload_edge(struct server *s, struct error *err) MUST_CHECK;

/* server_jwks.c: the issuer's keys. A file must be there and right at start, and is watched; a URL is asked by a thread of its own, and
 * while it has not answered tokens get 503. */
int server__start_jwks(struct server *s, struct error *err) MUST_CHECK;
void server__tick_jwks(struct server *s, uint64_t now_ns);
void server__stop_jwks(struct server *s);

/* server_quota.c. Start: the policies must be right, and the models that they name must be there. Tick: expire and save. */
int server__start_quota(struct server *s, struct error *err) MUST_CHECK;
void server__tick_quota(struct server *s, uint64_t now_ns);
void server__stop_quota(struct server *s);
/* JSON members about what is shared, each with a comma in front. */
void server__describe_quota(struct server *s, struct buf *out);
/* Is there a model of this name in one of the repositories? Reads the folders. */
bool cli_repository_holds(const struct config *c, struct str model);

/* server_overload.c: overload.file. Start and reload: the rules must be right, and the models that they name must be there; at a reload those
 * before stay in force otherwise. */
int server__start_overload(struct server *s, struct error *err) MUST_CHECK;
int server__reload_overload(struct server *s, struct error *err) MUST_CHECK;
void server__stop_overload(struct server *s);

/* server_guard.c: input and output policies. Reload: read them from the guard.file of `c`, and see whether they fit its routes; a mistake changes
 * nothing. */
int server__start_guard(struct server *s, struct error *err) MUST_CHECK;
int server__reload_guard(struct server *s, const struct config *c, struct error *err) MUST_CHECK;
void server__stop_guard(struct server *s);

/* server_reload.c. Any thread. The report is JSON. */
int server__reload(struct server *s, struct buf *report, struct error *err) MUST_CHECK;

#endif
