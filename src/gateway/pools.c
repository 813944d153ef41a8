/* pools.c: a route/pool with what it takes to run it: a lock, the retry budget, requests that wait for room, and metrics. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "gateway/gateway_priv.h"
#include "os/clock.h"

static void on_event(void *ctx, const struct pool *pool, const struct upstream *u, enum pool_event e, const char *reason)
{
    struct gateway_live *p = ctx;
    bool bad =
        e == POOL_EJECTED || e == POOL_EJECTION_REFUSED || e == POOL_CHECK_DOWN || e == POOL_LAST_RESORT || e == POOL_SUSPECT;
    LOG(p->g->o.log, bad ? LOG_WARN : LOG_INFO, "upstream_state", LOG_S("pool", pool_name(pool)),
        LOG_STR("upstream", upstream_name(u)), LOG_S("event", pool_event_name(e)), LOG_S("reason", reason));
}

static struct metric *counter(struct gateway *g, const char *name, const char *help, const char *pool)
{
    static const char *const labels[] = {"pool", NULL};
    struct metric_family *f = metrics_family(g->o.metrics, METRIC_COUNTER, name, help, labels, NULL, 0);
    return f ? metrics_series(f, (const char *const[]){pool, NULL}) : NULL;
}

static void register_pool(struct gateway_live *p)
{
    p->retries = counter(p->g, "inferd_upstream_retries_total", "Tries after a first one that failed.", p->o.name);
    p->unreplayable = counter(p->g, "inferd_upstream_unreplayable_total",
                              "Tries not made again because the body's beginning was let go (retry.buffer).", p->o.name);
    p->queued =
        counter(p->g, "inferd_upstream_queued_total", "Requests that waited because every server was at max_conns.", p->o.name);
    p->queue_refused = counter(p->g, "inferd_upstream_queue_refused_total",
                               "Requests refused because too many waited, or they waited too long.", p->o.name);
    p->budget_refused = counter(p->g, "inferd_upstream_retry_budget_refused_total",
                                "Retries not made because too many were under way.", p->o.name);
    p->lookup_failures =
        counter(p->g, "inferd_upstream_lookup_failures_total",
                "Names and files of servers that yielded nothing: the servers known from them stayed.", p->o.name);
    static const char *const results[HEDGE_RESULTS] = {
        [HEDGE_STARTED] = "started", [HEDGE_WON] = "won", [HEDGE_LOST] = "lost", [HEDGE_FAILED] = "failed"};
    static const char *const by_result[] = {"pool", "result", NULL};
    struct metric_family *hedges =
        metrics_family(p->g->o.metrics, METRIC_COUNTER, "inferd_upstream_hedges_total",
                       "Second tries beside a slow first one, by what became of them.", by_result, NULL, 0);
    for (int i = 0; i < HEDGE_RESULTS && hedges; i++)
        p->hedges[i] = metrics_series(hedges, (const char *const[]){p->o.name, results[i], NULL});
    p->evicted = counter(p->g, "inferd_upstream_queue_evicted_total",
                         "Waiting requests that gave way to more important ones, or to another tenant's.", p->o.name);
    static const char *const labels[] = {"pool", NULL};
    struct metric_family *seconds =
        metrics_family(p->g->o.metrics, METRIC_HISTOGRAM, "inferd_upstream_queue_seconds",
                       "Time that requests waited for room.", labels, METRICS_LATENCY_BOUNDS, METRICS_LATENCY_BOUNDS_N);
    const char *const values[] = {p->o.name, NULL};
    p->queue_seconds = seconds ? metrics_histogram(seconds, values) : NULL;
    static const char *const ended[TUNNEL_RESULTS] = {[TUNNEL_ENDED] = "ended",
                                                      [TUNNEL_CLIENT_LEFT] = "client_left",
                                                      [TUNNEL_BROKEN] = "broken",
                                                      [TUNNEL_IDLE] = "idle",
                                                      [TUNNEL_DRAINED] = "drained"};
    static const char *const ways[TUNNEL_WAYS] = {[TUNNEL_UP] = "to_upstream", [TUNNEL_DOWN] = "to_client"};
    static const char *const by_way[] = {"pool", "direction", NULL};
    struct metrics *m = p->g->o.metrics;
    struct metric_family *tunnels =
        metrics_family(m, METRIC_GAUGE, "inferd_upstream_tunnels", "WebSockets that are open.", labels, NULL, 0);
    struct metric_family *over = metrics_family(m, METRIC_COUNTER, "inferd_upstream_tunnels_total",
                                                "WebSockets that have ended, by how.", by_result, NULL, 0);
    struct metric_family *bytes =
        metrics_family(m, METRIC_COUNTER, "inferd_upstream_tunnel_bytes_total", "Bytes through WebSockets.", by_way, NULL, 0);
    p->tunnels = tunnels ? metrics_series(tunnels, values) : NULL;
    for (int i = 0; i < TUNNEL_RESULTS && over; i++)
        p->tunnels_ended[i] = metrics_series(over, (const char *const[]){p->o.name, ended[i], NULL});
    for (int i = 0; i < TUNNEL_WAYS && bytes; i++)
        p->tunnel_bytes[i] = metrics_series(bytes, (const char *const[]){p->o.name, ways[i], NULL});
    p->report_failures = counter(
        p->g, "inferd_upstream_report_failures_total",
        "Reports of servers about themselves that could not be read: no connection, no answer, not understood.", p->o.name);
}

static void options_of(const struct gateway_live *p, struct pool_options *o)
{
    const struct gateway_pool *c = &p->o;
    *o = (struct pool_options){
        .name = c->name,
        .policy = (enum balance_policy)c->balance,
        .min_healthy = c->min_healthy,
        .fall = c->check.fall,
        .rise = c->check.rise,
        .slow_start_ns = c->slow_start,
        .max_requests = c->max_requests,
        .max_queued = c->report.max_queued,
        .local_zone = gateway__zone_id(p->g, p->g->o.zone),
        .llm = {.queue = c->llm.queue,
                .kv = c->llm.kv,
                .prefix = c->llm.prefix,
                .adapter = c->llm.adapter,
                .report_max_ns = c->report.max_age},
        .outlier = {.consecutive = c->max_fails, .base_ns = c->eject_base, .max_ns = c->eject_max},
        .seed = p->g->seed,
    };
}

struct gateway_live *live_create(struct gateway *g, const struct gateway_pool *o, struct error *err)
{
    struct gateway_live *p = calloc(1, sizeof *p);
    struct gateway_config one = {.pools = (struct gateway_pool *)(uintptr_t)o, .n_pools = 1}, copy;
    if (!p) {
        error_set(err, STATUS_NOMEM, "out of memory for an upstream pool");
        return NULL;
    }
    atomic_init(&p->refs, 1);
    p->g = g;
    arena_init(&p->arena, 2048, 0);
    os_mutex_init(&p->lock, RANK_POOL);
    waitlist_init(&p->waits, o->queue);
    list_init(&p->checks);
    list_init(&p->pages);
    list_init(&p->agents);
    int rc = gateway_config_copy(&one, &p->arena, &copy);
    if (!rc) {
        struct pool_options po;
        p->o = copy.pools[0];
        options_of(p, &po);
        rc = pool_create(&po, on_event, p, &p->pool, err);
    } else {
        error_set(err, STATUS_NOMEM, "out of memory for an upstream pool");
    }
    if (!rc)
        rc = transport_create(g, &p->o, &p->transport, err);
    if (!rc && p->o.report.path[0] && p->o.report.port) {
        struct gateway_pool plain = p->o;
        plain.protocol = GATEWAY_HTTP1;
        plain.tls.ca = "";
        rc = transport_create(g, &plain, &p->plain, err);
    }
    if (!rc && p->o.geo.file[0]) {
        atomic_store_explicit(&p->geo_stamp, discover__stamp(p->o.geo.file), memory_order_relaxed);
        rc = geo__open(&p->o, &p->geo, err);
    }
    if (rc) {
        live_unref(p);
        return NULL;
    }
    retry_budget_init(&p->budget, o->retry.budget_percent / 100.0, o->retry.budget_least);
    register_pool(p);
    return p;
}

struct gateway_live *live_ref(struct gateway_live *p)
{
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    return p;
}

void live_unref(struct gateway_live *p)
{
    if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
        return;
    ASSERT(list_empty(&p->checks) && list_empty(&p->pages) && list_empty(&p->agents) && !p->waits.n);
    pool_destroy(p->pool);
    geo__close(p->geo);
    if (p->transport)
        atomic_store_explicit(&p->transport->retired, true, memory_order_relaxed);
    transport_unref(p->transport);
    transport_unref(p->plain);
    arena_release(&p->arena);
    os_mutex_release(&p->lock);
    free(p);
}

/* ---- ends of tries ---- */

void live_wake_one(struct gateway_live *p)
{
    struct waiter *w = waitlist_next(&p->waits);
    if (!w)
        return;
    struct forward *f = CONTAINER_OF(w, struct forward, waiter);
    f->posted = true;
    loop_post(f->home->loop, &f->task);
}

static_assert(GATEWAY_OUTCOMES <= UPSTREAM_TAGS, "a handle an outcome");

/* p->lock held. */
static void count(struct gateway_live *p, struct upstream *u, enum pick_outcome outcome)
{
    static const char *const names[GATEWAY_OUTCOMES] = {
        [PICK_OK] = "ok",           [PICK_SERVER_ERROR] = "server_error", [PICK_GATEWAY_FAILURE] = "gateway_failure",
        [PICK_TIMEOUT] = "timeout", [PICK_CANCELLED] = "cancelled",
    };
    char name[OS_ADDR_TEXT_BYTES];
    void **tag = &upstream_tags(u)[outcome];
    if (!*tag && p->g->requests_family) {
        snprintf(name, sizeof name, "%.*s", STR_ARG(upstream_name(u)));
        *tag = metrics_series(p->g->requests_family, (const char *const[]){p->o.name, name, names[outcome], NULL});
    }
    metric_inc(*tag);
}

void live_done(struct gateway_live *p, const struct pick *k, enum pick_outcome outcome, uint64_t now_ns)
{
    os_mutex_lock(&p->lock);
    count(p, k->upstream, outcome);
    if (outcome == PICK_OK)
        delay_learn(&p->delay, now_ns > k->at_ns ? now_ns - k->at_ns : 0);
    pool_done(p->pool, k, outcome, now_ns);
    live_wake_one(p);
    os_mutex_unlock(&p->lock);
}
