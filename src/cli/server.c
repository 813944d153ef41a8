/* server.c: the life of a serving process on its main thread: start, wait for signals, stop.
 *
 * Stopping has phases, so that no request is lost when a balancer sits in front:
 *   1. not ready: /v2/health/ready says 503, everything else is served for `shutdown.grace`;
 *   2. drain: listeners close, replies carry `Connection: close`, what runs may finish within `shutdown.drain_timeout`;
 *   3. what is still queued is answered with 503, models unload, exit status 0.
 * A second signal skips to the end: the process exits at once with status 1. */
#include "cli/server.h"

#include <stdlib.h>

#include "base/status.h"
#include "cli/server_priv.h"
#include "model/registry.h"
#include "obs/access_log.h"
#include "obs/log_sink.h"
#include "os/clock.h"

#define DRAIN_POLL_NS 5000000u

static void reopen_logs(struct server *s)
{
    struct error err = {0};
    if (log_sink_reopen(s->log_sink, &err) < 0)
        LOG(s->log, LOG_ERROR, "log_reopen_failed", LOG_S("reason", err.text));
    if (s->access)
        access_log_reopen(s->access);
    access_log_reopen(s->audit);
    LOG(s->log, LOG_INFO, "logs_reopened");
}

/* Until a stop signal, or until the control thread has found that there is nothing to serve. */
static void serve(struct server *s)
{
    while (!atomic_load_explicit(&s->hopeless, memory_order_acquire)) {
        struct error err = {0};
        struct buf report = {0};
        switch (os_signals_wait(&s->signals, UINT64_MAX)) {
        case OS_SIGNAL_STOP:
            return;
        case OS_SIGNAL_RELOAD:
            if (server__reload(s, &report, &err) < 0)
                LOG(s->log, LOG_WARN, "still_running_on_the_old_configuration");
            buf_release(&report);
            break;
        case OS_SIGNAL_REOPEN:
            reopen_logs(s);
            break;
        case OS_SIGNAL_NONE:
            break;
        }
    }
}

/* Wait until `until_ns` or until `done` says so; false when a second stop signal came. */
static bool wait_phase(struct server *s, uint64_t until_ns, bool (*done)(struct server *s))
{
    for (;;) {
        uint64_t now = os_monotonic_ns();
        if (now >= until_ns || (done && done(s)))
            return true;
        uint64_t next = done && now + DRAIN_POLL_NS < until_ns ? now + DRAIN_POLL_NS : until_ns;
        if (os_signals_wait(&s->signals, next) == OS_SIGNAL_STOP)
            return false;
    }
}

static bool drained(struct server *s)
{
    return api_in_flight(s->api) == 0 && registry_idle(s->registry) &&
           (!s->listeners[0] || http_server_connections(s->listeners[0]) == 0);
}

/* The phases above. False: cut short by a second signal. */
static bool stop(struct server *s)
{
    os_mutex_lock(&s->reload_lock);
    uint64_t grace = s->config->shutdown.grace, drain = s->config->shutdown.drain_timeout;
    os_mutex_unlock(&s->reload_lock);
    api_set_phase(s->api, API_STOPPING);
    os_notify_stopping(&s->notify);
    LOG(s->log, LOG_INFO, "stopping", LOG_U("in_flight", api_in_flight(s->api)), LOG_F("grace_s", (double)grace / 1e9));
    if (!wait_phase(s, os_monotonic_ns() + grace, NULL))
        return false;
    api_set_phase(s->api, API_DRAINING);
    if (s->listeners[0])
        http_server_drain(s->listeners[0]);
    if (!wait_phase(s, os_monotonic_ns() + drain, drained))
        return false;
    if (!drained(s))
        LOG(s->log, LOG_WARN, "drain_timeout", LOG_U("in_flight", api_in_flight(s->api)));
    registry_drain(s->registry);
    return true;
}

/* Taking the server down waits for loads and runs that can't be interrupted. The main thread is in there, so another one sees to it that
 * a further stop signal still ends the process at once. It doesn't log: the log is taken down, too. */
static void force_on_signal(void *arg)
{
    struct server *s = arg;
    while (!atomic_load_explicit(&s->released, memory_order_acquire))
        if (os_signals_wait(&s->signals, UINT64_MAX) == OS_SIGNAL_STOP)
            _Exit(1);
}

static void release_parts(struct server *s, bool signals_open)
{
    struct os_thread watcher;
    struct error err;
    bool watched = signals_open && os_thread_start(&watcher, "last-signal", force_on_signal, s, &err) == 0;
    server__release(s);
    atomic_store_explicit(&s->released, true, memory_order_release);
    if (watched) {
        os_signals_wake(&s->signals);
        os_thread_join(&watcher);
    }
}

static void release_configs(struct server *s)
{
    if (s->config != s->first_config) {
        config_release(s->config);
        free(s->config);
    }
    config_release(s->first_config);
    free(s->first_config);
}

int server_run(const struct server_options *o, struct error *err)
{
    struct server *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(err, STATUS_NOMEM, "out of memory while starting");
    s->o = *o;
    s->config = s->first_config = o->config;
    s->notify.fd = -1;
    s->started_ns = os_monotonic_ns();
    os_mutex_init(&s->reload_lock, RANK_RELOAD);
    int rc = os_signals_open(&s->signals, err);
    bool signals_open = rc == 0;
    if (rc == 0)
        rc = server__start(s, err);
    if (rc == 0) {
        api_set_phase(s->api, API_SERVING);
        serve(s);
        if (atomic_load_explicit(&s->hopeless, memory_order_acquire)) {
            *err = s->why;
            rc = err->code;
        } else if (!stop(s)) {
            LOG(s->log, LOG_WARN, "forced_stop", LOG_U("in_flight", api_in_flight(s->api)));
            _Exit(1);
        }
        LOG(s->log, LOG_INFO, "stopped", LOG_F("uptime_s", (double)(os_monotonic_ns() - s->started_ns) / 1e9));
    }
    release_parts(s, signals_open);
    if (signals_open)
        os_signals_close(&s->signals);
    os_mutex_release(&s->reload_lock);
    release_configs(s);
    free(s);
    return rc;
}
