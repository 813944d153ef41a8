/* server_start.c: from a checked configuration to a serving process, part by part, and back.
 *
 * Order: logs, process (descriptors, crash report), metrics, engines, registry (loads begin in the background), protocols,
 * listeners, control thread. Each part only knows those before it. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "edge/quota_gate.h"
#include "cli/from_config.h"
#include "cli/server_priv.h"
#include "cli/trim.h"
#include "edge/edge.h"
#include "gateway/gateway.h"
#include "model/registry.h"
#include "net/tls.h"
#include "obs/access_log.h"
#include "obs/log_sink.h"
#include "net/line_server.h"
#include "obs/metrics.h"
#include "obs/process_metrics.h"
#include "os/clock.h"
#include "os/crash.h"
#include "os/process.h"

#define CONTROL_PERIOD_NS              100000000u
#define LOG_RECORDS_PER_SECOND         200 /* of one event */
#define DESCRIPTORS_BESIDE_CONNECTIONS 1024u
#define CONNECTIONS_MIN                8u
#define REFUSED_FEW                    4u
#define DECODE_THREADS_MAX             4u /* that nobody asked for */

static int no_memory(struct error *err)
{
    return error_set(err, STATUS_NOMEM, "out of memory while starting");
}

/* ---- logs and process ---- */

static enum log_format format_of(int configured)
{
    return configured == CONFIG_LOG_JSON ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT;
}

static int start_logs(struct server *s, struct error *err)
{
    const struct config *c = s->config;
    struct log_sink_options o = {
        .path = c->log.file[0] ? c->log.file : NULL,
        .format = format_of(c->log.format),
        .level = (enum log_level)c->log.level,
        .max_per_second = LOG_RECORDS_PER_SECOND,
    };
    int rc = log_sink_create(&o, &s->log_sink, err);
    if (rc < 0)
        return rc;
    s->log = log_sink_logger(s->log_sink);
    return 0;
}

static int start_access_log(struct server *s, struct error *err)
{
    const struct config *c = s->config;
    struct access_log_options o = {
        .path = strcmp(c->access_log.file, "-") == 0 ? "stdout" : c->access_log.file,
        .format = format_of(c->access_log.format),
        .slots = c->access_log.queue,
        .metrics = s->metrics,
        .log = s->log,
    };
    return c->access_log.file[0] ? access_log_create(&o, &s->access, err) : 0;
}

/* Descriptors that connections must leave to everything else, out of `limit`: threads, files of loads, the other listeners. */
static uint64_t descriptors_kept(const struct server *s, uint64_t limit)
{
    uint64_t kept = 48 + 4ull * cli_threads(s->config->http.threads) + limit / 8;
    return MIN_OF(kept, (uint64_t)DESCRIPTORS_BESIDE_CONNECTIONS);
}

void server__http_limits(struct server *s, struct http_limits *out)
{
    struct error err = {0};
    cli_http_limits(s->config, out);
    uint64_t want = (uint64_t)out->max_connections + DESCRIPTORS_BESIDE_CONNECTIONS, got = 0;
    if (os_fd_limit_raise(want, &got, &err) == 0 && got >= want)
        return;
    uint64_t kept = descriptors_kept(s, got), most = got > kept + CONNECTIONS_MIN ? got - kept : CONNECTIONS_MIN;
    out->max_connections = (uint32_t)MIN_OF((uint64_t)out->max_connections, most);
    out->max_refused = REFUSED_FEW; /* each holds a descriptor until its client has read why */
    LOG(s->log, LOG_WARN, "descriptor_limit_low", LOG_U("wanted", want), LOG_U("limit", got),
        LOG_U("max_connections", out->max_connections),
        LOG_S("hint", "raise the hard limit (ulimit -Hn, LimitNOFILE) or lower limits.max_connections"));
}

const char *server__state_dir(const struct server *s)
{
    const char *given = s->first_config->state_dir;
    return given[0] && strcmp(given, "-") != 0 ? given : NULL;
}

/* Where crash reports go when nobody said: what systemd made for the service (the first, if several), else where the XDG base directory
 * specification puts what a program of this user keeps. Empty: nowhere. */
static void default_state_dir(struct buf *out)
{
    const char *systemd = getenv("STATE_DIRECTORY"), *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (systemd && systemd[0] == '/')
        buf_append(out, systemd, strcspn(systemd, ":"));
    else if (xdg && xdg[0] == '/')
        buf_printf(out, "%s/inferd", xdg);
    else if (home && home[0] == '/')
        buf_printf(out, "%s/.local/state/inferd", home);
}

void server__state_folder(const struct server *s, struct buf *out)
{
    const char *named = server__state_dir(s);
    if (named)
        buf_append_z(out, named);
    else if (!s->first_config->state_dir[0])
        default_state_dir(out);
}

static void catch_crashes(struct server *s)
{
    const char *given = s->config->state_dir;
    struct error err = {0};
    struct buf folder;
    buf_init(&folder);
    server__state_folder(s, &folder);
    const char *path = buf_z(&folder);
    if (os_crash_install(path[0] ? path : NULL, INFERD_VERSION, &err) < 0)
        LOG(s->log, given[0] ? LOG_WARN : LOG_INFO, "crash_folder_unusable", LOG_S("reason", err.text),
            LOG_S("hint", "set state_dir to a folder that can be written"));
    buf_release(&folder);
}

/* What can be refused by the system without being fatal is a warning. */
static void prepare_process(struct server *s)
{
    struct error err = {0};
    os_memory_tune();
    catch_crashes(s);
    if (os_notify_open(&s->notify, &err) < 0)
        LOG(s->log, LOG_WARN, "supervisor_unreachable", LOG_S("reason", err.text));
}

/* ---- engines ---- */

static int open_engines(struct server *s, struct error *err)
{
    int rc = cli_open_engines(s->config, s->log, s->engines, err);
    s->engines_open = rc == 0;
    return rc;
}

static int start_registry(struct server *s, struct error *err)
{
    struct registry_options o;
    cli_registry_options(s->config, &o);
    o.engine_state = s->engines;
    o.metrics = s->metrics;
    o.log = s->log;
    int rc = seal_policy_check(&o.seal, err);
    if (rc < 0)
        return rc;
    /* what is decrypted is in the heap of the runtime, too: nothing of it may end in a core dump or in a debugger */
    if ((o.seal.n_seal_keys || getenv(SEAL_KEY_ENV)) && !os_process_hide())
        LOG(s->log, LOG_WARN, "memory_not_hidden", LOG_S("hint", "sealed models may end in a core dump: ulimit -c 0"));
    return registry_create(&o, &s->registry, err);
}

/* ---- protocols and listeners ---- */

static int reload_from_api(void *ctx, struct buf *report, struct error *err)
{
    return server__reload(ctx, report, err);
}

static int set_log_level(void *ctx, enum log_level level, struct error *err)
{
    struct server *s = ctx;
    (void)err;
    s->log->level = level;
    return 0;
}

static void append_status(void *ctx, struct buf *out)
{
    struct server *s = ctx;
    buf_append_z(out, "\"version\":");
    buf_append_json_str(out, str_of(INFERD_VERSION));
    buf_append_z(out, ",\"build_id\":");
    buf_append_json_str(out, str_of(os_build_id()));
    if (s->gateway) {
        buf_append_c(out, ',');
        gateway_status(s->gateway, out);
    }
    server__describe_quota(s, out);
    buf_printf(out, ",\"uptime_s\":%.3f,\"rss_bytes\":%llu,\"compute_threads\":%u,\"connections\":%llu",
               (double)(os_monotonic_ns() - s->started_ns) * 1e-9, (unsigned long long)os_process_rss_bytes(),
               s->compute_threads, (unsigned long long)(s->listeners[0] ? http_server_connections(s->listeners[0]) : 0));
}

static int start_gateway(struct server *s, struct error *err)
{
    struct gateway_options o = {
        .config = &s->config->gateway,
        .zone = s->config->zone,
        .resolver = s->config->resolver,
        .metrics = s->metrics,
        .log = s->log,
    };
    return s->config->gateway.n_routes ? gateway_create(&o, &s->gateway, err) : 0;
}

static uint32_t decode_threads(const struct config *c)
{
    uint32_t n = cli_threads(c->http.decode_threads);
    return c->http.decode_threads ? n : MIN_OF(n, DECODE_THREADS_MAX);
}

static int start_api(struct server *s, struct error *err)
{
    struct api_options o = {
        .registry = s->registry,
        .metrics = s->metrics,
        .log = s->log,
        .access = s->access,
        .name = "inferd",
        .version = INFERD_VERSION,
        .decode_threads = decode_threads(s->config),
        .edge = s->edge,
        .gateway = s->gateway,
        .quota = s->quota,
        .guard = s->guard,
        .limits = s->limits,
        .proxies = s->proxies,
        .n_proxies = s->first_config->proxy.trusted.n,
        .origins = s->first_config->cors.origins.v,
        .n_origins = s->first_config->cors.origins.n,
        .cors_max_age_ns = s->first_config->cors.max_age,
        .audit = s->audit,
        .open = s->config->auth.open.v,
        .n_open = s->config->auth.open.n,
        .load_report = s->config->load_report,
        .compat = (unsigned)s->config->metrics.compat,
        .adapter_path = s->config->llm.adapter_path,
        .reload = s->o.rebuild ? reload_from_api : NULL,
        .set_log_level = set_log_level,
        .status = append_status,
        .ctx = s,
    };
    return api_create(&o, &s->api, err);
}

/* Addresses of one server: those of `listen` and, where it has any, those of gRPC's own port, which takes the same requests. */
struct addresses {
    const char *v[2 * CONFIG_LISTEN_MAX];
    size_t n, n_first;
};

static void collect(struct addresses *a, const struct config_list *listen, const struct config_list *grpc)
{
    *a = (struct addresses){.n_first = listen->n};
    for (size_t i = 0; i < listen->n && a->n < COUNT_OF(a->v); i++)
        a->v[a->n++] = listen->v[i];
    for (size_t i = 0; grpc && i < grpc->n && a->n < COUNT_OF(a->v); i++)
        a->v[a->n++] = grpc->v[i];
}

static int start_listener(struct server *s, int index, enum api_surface surface, const char *name,
                          const struct addresses *listen, uint32_t threads, const struct http_limits *limits, struct error *err)
{
    struct http_server_options o = {
        .listen = listen->v,
        .n_listen = listen->n,
        .threads = threads,
        .name = name,
        .metrics = s->metrics,
        .log = s->log,
    };
    if (!listen->n)
        return 0;
    o.limits = *limits;
    o.proxies = s->proxies;
    o.n_proxies = s->first_config->proxy.trusted.n;
    o.proxy_protocol = index == 0 && s->first_config->proxy.protocol;
    o.tls = config_has_tls(s->config, name) ? s->tls : NULL;
    api_handler(s->api, surface, &o.handler);
    struct error why = {0};
    int rc = http_server_start(&o, &s->listeners[index], &why);
    if (rc == STATUS_CONFLICT)
        return error_set(err, rc, "%.300s: stop what listens there, or choose another with --%s.listen%s", why.text, name,
                         listen->n > listen->n_first ? " and --grpc.listen" : "");
    if (rc < 0)
        return error_set(err, rc, "%s", why.text);
    for (size_t i = 0; i < listen->n; i++)
        LOG(s->log, LOG_INFO, "listening", LOG_S("name", i < listen->n_first ? name : "grpc"),
            LOG_S("address", http_server_address(s->listeners[index], i)));
    return 0;
}

static void say_load(void *ctx, struct buf *line)
{
    api_agent_line(ctx, line);
}

static int start_agent(struct server *s, struct error *err)
{
    struct addresses listen;
    collect(&listen, &s->config->agent.listen, NULL);
    struct line_server_options o = {.listen = listen.v, .n_listen = listen.n, .name = "agent", .say = say_load, .ctx = s->api};
    int rc = listen.n ? line_server_start(&o, &s->agent, err) : 0;
    if (rc < 0)
        return error_prefix(err, "agent.listen");
    for (size_t i = 0; i < listen.n; i++)
        LOG(s->log, LOG_INFO, "listening", LOG_S("name", "agent"), LOG_S("address", line_server_address(s->agent, i)));
    return 0;
}

static int start_listeners(struct server *s, struct error *err)
{
    const struct config *c = s->config;
    struct http_limits limits;
    server__http_limits(s, &limits);
    struct addresses a;
    collect(&a, &c->http.listen, &c->grpc.listen);
    int rc = start_listener(s, 0, API_HTTP, "http", &a, cli_threads(c->http.threads), &limits, err);
    collect(&a, &c->metrics.listen, NULL);
    if (rc == 0)
        rc = start_listener(s, 1, API_METRICS, "metrics", &a, 1, &limits, err);
    collect(&a, &c->admin.listen, NULL);
    if (rc == 0)
        rc = start_listener(s, 2, API_ADMIN, "admin", &a, 1, &limits, err);
    if (rc == 0)
        rc = start_agent(s, err);
    return rc;
}

/* ---- control thread ---- */

struct first_model {
    struct registry *registry;
    struct model_version *version;
};

static void find_first(void *ctx, const struct index_row *row)
{
    struct first_model *f = ctx;
    if (!f->version && registry_find(f->registry, row->model, row->version, &f->version, NULL) < 0)
        f->version = NULL;
}

/* Why the first model of the index doesn't serve. */
static void find_reason(void *ctx, const struct index_row *row)
{
    struct error *why = ctx;
    if (!why->code && row->reason.n)
        error_set(why, STATUS_UNAVAILABLE, "the model \"%.*s\" can't be served: %.*s", STR_ARG(row->model),
                  STR_ARG(row->reason));
    else if (!why->code)
        error_set(why, STATUS_UNAVAILABLE,
                  "the model \"%.*s\" is not loaded: repository.mode is explicit and repository.load doesn't name it",
                  STR_ARG(row->model));
}

static void give_up(struct server *s)
{
    registry_index(s->registry, false, find_reason, &s->why);
    if (!s->why.code)
        error_set(&s->why, STATUS_NOT_FOUND,
                  "there is no model in this folder; accepted: a model file, a folder with one in it, or NAME/VERSION/FILE");
    atomic_store_explicit(&s->hopeless, true, memory_order_release);
    os_signals_wake(&s->signals);
}

/* Once a model serves, or none will. False: that can't be told yet. */
static bool tell_serving(struct server *s)
{
    struct first_model f = {.registry = s->registry};
    if (!s->o.serving)
        return true;
    bool waits = registry_waits(s->registry); /* before the look: what was loaded in between is in it */
    registry_index(s->registry, true, find_first, &f);
    if (f.version)
        s->o.serving(s->o.ctx, s->listeners[0] ? http_server_address(s->listeners[0], 0) : "", f.version);
    else if (!waits)
        give_up(s);
    bool told = f.version || !waits;
    model_version_unref(f.version);
    return told;
}

static void count_row(void *ctx, const struct index_row *row)
{
    (void)row;
    ++*(size_t *)ctx;
}

/* A server that serves nothing is ready and answers every request with 404: whoever typed its command should hear it. */
static void warn_if_nothing(struct server *s)
{
    size_t rows = 0;
    registry_index(s->registry, false, count_row, &rows);
    if (rows == 0 && !s->gateway && !s->o.serving && registry_mode(s->registry) != REGISTRY_EXPLICIT)
        LOG(s->log, LOG_WARN, "no_models",
            LOG_S("hint", s->config->repository.paths.n
                              ? "nothing that looks like a model is in the repository: NAME/VERSION/model.onnx"
                              : "no repository was given: inferd serve FOLDER|FILE"));
}

static void control_main(void *arg)
{
    struct server *s = arg;
    uint64_t next_watchdog = 0;
    bool told_ready = false, told_serving = false;
    struct trim trim;
    trim_init(&trim, os_monotonic_ns(), os_process_rss_bytes());
    while (!atomic_load_explicit(&s->control_stop, memory_order_acquire)) {
        uint64_t now = os_monotonic_ns();
        registry_tick(s->registry, now);
        server__tick_edge(s, now);
        if (!told_ready && registry_settled(s->registry)) {
            told_ready = true;
            os_notify_ready(&s->notify, "serving");
            warn_if_nothing(s);
            LOG(s->log, LOG_INFO, "serving", LOG_B("ready", registry_ready(s->registry)),
                LOG_F("start_ms", (double)(now - s->started_ns) / 1e6));
        }
        if (told_ready && !told_serving)
            told_serving = tell_serving(s);
        if (s->notify.watchdog_ns && now >= next_watchdog) {
            os_notify_watchdog(&s->notify);
            next_watchdog = now + s->notify.watchdog_ns / 2;
        }
        if (told_ready && trim_due(&trim, now, os_process_rss_bytes(), api_in_flight(s->api))) {
            os_memory_trim();
            trim_done(&trim, os_monotonic_ns(), os_process_rss_bytes());
        }
        os_sleep_ns(told_ready ? CONTROL_PERIOD_NS : CONTROL_PERIOD_NS / 50);
    }
}

int server__start(struct server *s, struct error *err)
{
    int rc = start_logs(s, err);
    if (rc < 0)
        return rc;
    s->compute_threads = cli_threads(s->config->compute.threads);
    prepare_process(s);
    rc = server__enter_sandbox(s, err);
    if (rc < 0)
        return rc;
    s->metrics = metrics_create();
    s->process_metrics = s->metrics ? process_metrics_create(s->metrics, INFERD_VERSION, os_build_id()) : NULL;
    if (!s->process_metrics)
        return no_memory(err);
    rc = start_access_log(s, err);
    if (rc == 0)
        rc = server__start_edge(s, err);
    if (rc == 0)
        rc = open_engines(s, err);
    if (rc == 0)
        rc = start_registry(s, err);
    if (rc == 0)
        rc = start_gateway(s, err);
    if (rc == 0)
        rc = start_api(s, err);
    if (rc == 0)
        rc = start_listeners(s, err);
    if (rc == 0)
        rc = os_thread_start(&s->control, "control", control_main, s, err);
    s->control_started = rc == 0;
    return rc;
}

void server__release(struct server *s)
{
    atomic_store_explicit(&s->control_stop, true, memory_order_release);
    if (s->control_started)
        os_thread_join(&s->control);
    line_server_stop(s->agent);
    /* A handler may use any part of the server, the registry and other listeners included: from here on none does. The loops go on:
     * destroying the registry answers what still runs, through them. */
    if (s->api)
        api_set_phase(s->api, API_CLOSED);
    for (int i = 0; i < 3; i++)
        if (s->listeners[i])
            http_server_sync(s->listeners[i]);
    if (s->quota) /* what waits for the Redis goes on, the last time before the models go */
        quota_gate_quiet(s->quota);
    if (s->api)
        api_close(s->api);
    for (int i = 0; i < 3; i++) /* what the pool handed back is submitted, too */
        if (s->listeners[i])
            http_server_sync(s->listeners[i]);
    if (s->gateway)
        gateway_close(s->gateway);
    if (s->api)
        api_cancel_generations(s->api); /* they hold their models; their ends go out through the loops */
    registry_destroy(s->registry);
    for (int i = 0; i < 3; i++)
        http_server_stop(s->listeners[i]);
    api_destroy(s->api);
    gateway_destroy(s->gateway);
    if (s->engines_open)
        cli_engines_close(s->engines);
    access_log_destroy(s->access);
    access_log_destroy(s->audit);
    server__stop_jwks(s);
    server__stop_quota(s);
    server__stop_guard(s);
    server__stop_overload(s);
    edge_destroy(s->edge);
    free(s->jwt_rules);
    free(s->proxies);
    tls_context_destroy(s->tls);
    process_metrics_destroy(s->process_metrics);
    metrics_destroy(s->metrics);
    log_sink_destroy(s->log_sink);
    os_notify_close(&s->notify);
}
