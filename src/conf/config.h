/* config.h: the server's configuration: defaults, then inferd.yaml, then command-line flags, all through the one option
 * table (conf/options.h).
 *
 * A struct config is built once, checked as a whole and then read-only; a reload builds a second one from the same sources
 * and reconciles it with the running one. Strings and lists live in its arena. Pure: the caller reads the file and passes the
 * text. One thread builds, any may read. */
#ifndef INFERD_CONF_CONFIG_H
#define INFERD_CONF_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"
#include "conf/gateway_config.h"

struct option; /* conf/options.h */

#define CONFIG_OPTIONS_MAX 192
#define CONFIG_LISTEN_MAX  16 /* addresses of one listener */

struct config_list {
    const char **v; /* n strings and a NULL behind them */
    size_t n;
};

enum config_source { CONFIG_DEFAULT, CONFIG_FILE, CONFIG_FLAG };

/* Enums are stored as int; the words of the table's row are in the order of these. */
enum config_mode { CONFIG_MODE_NONE, CONFIG_MODE_POLL, CONFIG_MODE_EXPLICIT }; /* as enum registry_mode */
enum config_metrics_compat {
    CONFIG_COMPAT_NONE,
    CONFIG_COMPAT_TRITON,
    CONFIG_COMPAT_VLLM,
    CONFIG_COMPAT_ALL
}; /* bits of enum api_compat */
enum config_tls_version { CONFIG_TLS_12, CONFIG_TLS_13 };
enum config_client_auth { CONFIG_CLIENT_NONE, CONFIG_CLIENT_OPTIONAL, CONFIG_CLIENT_REQUIRED }; /* as enum tls_client_auth */
enum config_log_format { CONFIG_LOG_TEXT, CONFIG_LOG_JSON };

/* Times in nanoseconds, sizes in bytes. Field names are the option's names. */
enum config_sandbox { CONFIG_SANDBOX_OFF, CONFIG_SANDBOX_TRY, CONFIG_SANDBOX_REQUIRE };

struct config {
    struct {
        struct config_list listen;
        uint32_t threads;        /* 0: from the CPU quota */
        uint32_t decode_threads; /* 0: from the CPU quota, at most 4 */
    } http;
    struct {
        struct config_list listen; /* further addresses of the same server; empty: gRPC is spoken on http.listen only */
    } grpc;
    struct {
        uint32_t max_connections, max_header_bytes, max_headers, max_url_bytes, max_inflate_ratio, max_pipeline, max_requests,
            max_connections_per_address, max_handshakes_per_address, max_tunnels;
        uint32_t http2_max_streams, http2_window_bytes, http2_table_bytes, http2_max_continuations, http2_glitches,
            http2_glitch_rate;
        uint64_t max_body_bytes, header_timeout, body_timeout, idle_timeout, write_timeout, min_body_rate, max_body_memory;
    } limits;
    struct {
        struct config_list paths, load;
        int mode; /* enum config_mode */
        uint64_t poll_interval, poll_settle, memory_limit, warmup_timeout;
        bool follow_symlinks, strict_readiness;
        uint32_t loader_threads;
    } repository;
    struct {
        int files; /* enum config_sandbox */
        struct config_list read, write;
    } sandbox;
    struct {
        struct config_list seal_keys, signature_keys; /* files */
        bool require_sealed, require_signature;
    } models;
    struct {
        uint64_t queue_bytes, default_deadline, hang_timeout;
    } scheduler;
    struct {
        uint32_t threads; /* 0: from the CPU quota */
    } compute;
    struct {
        const char *library;
        struct config_list providers;
        const char *graph_optimization, *cache_dir, *log_level;
        uint64_t cache_bytes;
        bool provider_fallback, spinning, denormals_as_zero;
    } onnxruntime;
    struct {
        const char *adapter_path;
    } llm;
    struct {
        struct config_list listen;
        int compat; /* enum config_metrics_compat */
    } metrics;
    struct {
        struct config_list listen; /* empty: no admin listener */
    } admin;
    struct {
        struct config_list listen; /* empty: nobody is told a line */
    } agent;
    struct {
        int level;        /* enum log_level */
        int format;       /* enum config_log_format */
        const char *file; /* "": stderr */
    } log;
    struct {
        const char *file; /* "": off, "-": stdout */
        int format;
        uint32_t queue; /* records */
    } access_log;
    struct {
        uint64_t grace, drain_timeout;
    } shutdown;
    struct {
        const char *keys_file; /* "": no API keys */
        struct config_list open;
    } auth;
    struct {
        const char *file; /* "": none */
        bool shared;
        uint32_t replicas; /* 0: as many as are seen */
        uint64_t lease;
    } quota;
    struct {
        const char *url; /* "": none */
        const char *password_file, *ca, *prefix;
        uint64_t deadline;
    } redis;
    struct {
        const char *file; /* "": none */
    } guard;
    struct {
        const char *file; /* "": none */
    } overload;
    struct {
        struct config_list trusted;
        bool protocol;
    } proxy;
    struct {
        struct config_list origins;
        uint64_t max_age;
    } cors;
    struct {
        struct config_list certificates, keys, listeners;
        int min_version; /* enum config_tls_version */
        int client_auth; /* enum config_client_auth */
        bool check_host;
        const char *client_ca, *crl;
        uint64_t handshake_timeout, ticket_rotation;
    } tls;
    struct {
        const char *keys; /* file or URL; "": no tokens */
        const char *issuer, *audience, *scope_claim, *scope_prefix, *tenant_claim, *ca;
        uint64_t skew, refresh;
    } jwt;
    struct {
        const char *file; /* "": audit.log in state_dir, if there is one; "off" */
    } audit;
    bool insecure;
    const char *state_dir; /* "": none */
    const char *zone;      /* "": none */
    const char *resolver;  /* of names of upstreams; "": the system's */
    bool load_report;
    struct gateway_config gateway; /* `upstreams:` and `routes:`, from the file only */

    /* where each row's value came from */
    uint8_t source[CONFIG_OPTIONS_MAX];
    int line[CONFIG_OPTIONS_MAX]; /* in the file; 0 otherwise */
    const char *where;            /* the file's name in messages; NULL: no file */
    struct arena arena;
};

/* Every option at its default. NOMEM only. */
int config_init(struct config *c, struct error *err) MUST_CHECK;
void config_release(struct config *c);

/* Apply the text of inferd.yaml. `where` names it in messages and is copied. Values may hold ${NAME} or ${NAME:-default};
 * `env` looks NAME up (getenv; NULL: none is set), $$ is a dollar sign. INVALID: file, line, key, value, what is accepted. */
int config_apply_yaml(struct config *c, struct str text, const char *where, const char *(*env)(const char *name),
                      struct error *err) MUST_CHECK;

/* Apply one flag: `name` is an option's name or alias without the dashes. Lists: "a,b"; given again, a flag adds to a list that
 * flags began. NOT_FOUND: no such option (the text has the nearest); INVALID: bad value. */
int config_apply_flag(struct config *c, struct str name, struct str value, struct error *err) MUST_CHECK;

/* Rules over several rows, after file and flags: listeners off loopback need `insecure`, no address twice, explicit-mode
 * options only in explicit mode. Names the file and line where the value came from a file. */
int config_check(const struct config *c, struct error *err) MUST_CHECK;

/* Reload. `fresh` was built from the same sources as `running` was. Calls back for each row whose value differs: `applies` is
 * true when it is reloadable; the other rows are set back in `fresh` to what `running` has, so that afterwards `fresh` is what
 * the server should run on. Returns the number of changed rows, or a negative status. */
int config_reconcile(struct config *fresh, const struct config *running,
                     void (*changed)(void *ctx, const struct option *row, bool applies), void *ctx,
                     struct error *err) MUST_CHECK;

/* The value of one row as text that config_apply_flag reads back ("64MiB", "250ms", "a,b"). */
void config_render_value(const struct config *c, const struct option *row, struct buf *out);
/* The whole configuration as YAML that config_apply_yaml reads back, each row with its source as a comment. */
void config_render_yaml(const struct config *c, struct buf *out);

/* `inferd config --help`: the table as text; `inferd config --markdown`: docs/reference/config.md. */
void config_render_help(struct buf *out);
void config_render_markdown(struct buf *out);

/* One listen address: "127.0.0.1:8000", "[::1]:8000", "localhost:8000", "*:8000", "unix:/run/inferd.sock". */
bool config_listen_valid(struct str address);
bool config_listen_is_loopback(struct str address); /* unix sockets are */

/* Does the configuration ask callers of this listener ("http", "metrics", "admin") who they are? Does it speak TLS? */
bool config_has_auth(const struct config *c, const char *listener);
bool config_has_tls(const struct config *c, const char *listener);

#endif
