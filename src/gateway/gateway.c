/* gateway.c: tables of routes: made from a configuration, swapped whole, matched.
 *
 * A table is immutable. A request takes a reference to the current one and keeps it to its end, so a reload never pulls anything from under
 * it. Pools live in tables by reference; one whose options did not change goes over to the next table with all it knows. */
#include "gateway/gateway.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "gateway/gateway_priv.h"
#include "os/clock.h"
#include "route/table.h"

/* ---- tables ---- */

void gateway__table_unref(struct gateway_table *t)
{
    if (!t || atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; t->pools && i < t->config.n_pools; i++)
        live_unref(t->pools[i]);
    arena_release(&t->arena);
    free(t);
}

struct gateway_table *gateway__table_get(struct gateway *g)
{
    os_mutex_lock(&g->lock);
    struct gateway_table *t = g->table;
    if (t)
        atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    os_mutex_unlock(&g->lock);
    return t;
}

struct gateway_live *gateway__pool_of(const struct gateway_table *t, const char *name)
{
    for (size_t i = 0; i < t->config.n_pools; i++)
        if (strcmp(t->config.pools[i].name, name) == 0)
            return t->pools[i];
    return NULL;
}

/* The pool of the same name and options in `old`, or a new one. */
static int take_pool(struct gateway *g, const struct gateway_table *old, const struct gateway_pool *o,
                     struct gateway_live **out, struct error *err)
{
    struct gateway_live *before = old ? gateway__pool_of(old, o->name) : NULL;
    bool same = before && gateway_pool_same(&before->o, o) && !transport_is_stale(before->transport, o);
    *out = same ? live_ref(before) : live_create(g, o, err);
    return *out ? discover__servers(*out, o, err) : err->code;
}

static int make_table(struct gateway *g, const struct gateway_config *config, const struct gateway_table *old,
                      struct gateway_table **out, struct error *err)
{
    struct gateway_table *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(err, STATUS_NOMEM, "out of memory for the gateway's routes");
    atomic_init(&t->refs, 1);
    arena_init(&t->arena, 4096, 0);
    int rc = gateway_config_copy(config, &t->arena, &t->config);
    t->pools = rc ? NULL : (struct gateway_live **)arena_array(&t->arena, config->n_pools, sizeof(struct gateway_live *));
    if (!t->pools)
        rc = error_set(err, STATUS_NOMEM, "out of memory for the gateway's routes");
    for (size_t i = 0; i < config->n_pools && !rc; i++)
        rc = take_pool(g, old, &t->config.pools[i], &t->pools[i], err);
    for (size_t i = 0; i < config->n_routes && !rc; i++)
        t->max_body = MAX_OF(t->max_body, t->config.routes[i].max_body);
    if (rc)
        gateway__table_unref(t);
    else
        *out = t;
    return rc;
}

/* ---- life ---- */

static void register_metrics(struct gateway *g, struct metrics *m)
{
    static const char *const by_outcome[] = {"pool", "upstream", "outcome", NULL};
    g->requests_family = metrics_family(m, METRIC_COUNTER, "inferd_upstream_requests_total",
                                        "Tries sent to upstreams, by how they ended.", by_outcome, NULL, 0);
}

int gateway_create(const struct gateway_options *o, struct gateway **out, struct error *err)
{
    struct gateway *g = calloc(1, sizeof *g);
    if (!g)
        return error_set(err, STATUS_NOMEM, "out of memory for the gateway");
    g->o = *o;
    g->seed = os_wall_ns() ^ os_monotonic_ns() << 32 ^ (uintptr_t)g;
    snprintf(g->via, sizeof g->via, "inferd-%08x", (unsigned)hash_bytes(&g->seed, sizeof g->seed, 1));
    snprintf(g->via_http1, sizeof g->via_http1, "1.1 %s", g->via);
    snprintf(g->via_http2, sizeof g->via_http2, "2.0 %s", g->via);
    os_mutex_init(&g->lock, RANK_ROUTES);
    register_metrics(g, o->metrics);
    int rc = make_table(g, o->config, NULL, &g->table, err);
    if (!rc)
        rc = check__start(g, err);
    if (!rc)
        metrics_on_render(o->metrics, gauges__render, g);
    if (rc) {
        gateway_destroy(g);
        return rc;
    }
    *out = g;
    return 0;
}

int gateway_reload(struct gateway *g, const struct gateway_config *config, struct error *err)
{
    struct gateway_table *old = gateway__table_get(g), *fresh;
    int rc = make_table(g, config, old, &fresh, err);
    if (!rc) {
        os_mutex_lock(&g->lock);
        struct gateway_table *current = g->table;
        g->table = fresh;
        os_mutex_unlock(&g->lock);
        gateway__table_unref(current);
    }
    gateway__table_unref(old);
    return rc;
}

void gateway_close(struct gateway *g)
{
    check__stop(g);
}

void gateway_destroy(struct gateway *g)
{
    if (!g)
        return;
    metrics_unhook(g->o.metrics, g);
    check__stop(g);
    gateway__table_unref(g->table);
    for (size_t i = 0; i < GATEWAY_ZONES; i++)
        free(g->zones[i]);
    os_mutex_release(&g->lock);
    free(g);
}

uint32_t gateway__zone_id(struct gateway *g, const char *name)
{
    uint32_t id = 0;
    if (!name[0])
        return 0;
    os_mutex_lock(&g->lock);
    for (uint32_t i = 0; i < GATEWAY_ZONES && !id; i++) {
        if (!g->zones[i])
            g->zones[i] = strdup(name);
        if (g->zones[i] && strcmp(g->zones[i], name) == 0)
            id = i + 1;
    }
    os_mutex_unlock(&g->lock);
    return id;
}

uint32_t gateway__find_zone(struct gateway *g, struct str name)
{
    uint32_t id = 0;
    os_mutex_lock(&g->lock);
    for (uint32_t i = 0; name.n && i < GATEWAY_ZONES && !id && g->zones[i]; i++)
        if (str_eqz(name, g->zones[i]))
            id = i + 1;
    os_mutex_unlock(&g->lock);
    return id;
}

/* ---- matching ---- */

enum gateway_where gateway_match(struct gateway *g, const struct http_request *r, struct str model, bool model_known,
                                 struct gateway_target *target)
{
    struct gateway_table *t = gateway__table_get(g);
    struct table_query q = {
        .host = http_header_get(r, "host"),
        .path = r->path,
        .method = r->method_text,
        .model = model,
        .model_known = model_known || model.p,
        .headers = r->headers,
        .n_headers = r->n_headers,
        .sticky = hash_bytes(r->request_id.p, r->request_id.n, 0),
    };
    *target = (struct gateway_target){t, NULL};
    switch (table_match(&t->config, &q, &target->route)) {
    case TABLE_ROUTE:
        if (strcmp(target->route->upstream, "local") != 0)
            return GATEWAY_REMOTE;
        break;
    case TABLE_MODEL:
        gateway_forget(target);
        return GATEWAY_MODEL;
    case TABLE_NONE:
        break;
    }
    gateway_forget(target);
    return GATEWAY_LOCAL;
}

void gateway_forget(struct gateway_target *target)
{
    gateway__table_unref(target->table);
    *target = (struct gateway_target){0};
}

static bool pool_asks(const struct gateway_table *t, const char *name)
{
    const struct gateway_live *p = name[0] ? gateway__pool_of(t, name) : NULL;
    return p && (p->o.balance == BALANCE_LLM || p->o.hash_key == GATEWAY_HASH_MODEL || p->o.hash_key == GATEWAY_HASH_USER);
}

bool gateway_asks_for_body(const struct gateway_target *target)
{
    const struct gateway_route *t = target->route;
    return t->rewrite_model[0] || pool_asks(target->table, t->upstream) || pool_asks(target->table, t->fallback);
}

bool gateway_rewrites(const struct gateway_target *target)
{
    return target->route->rewrite_model[0] != 0;
}

uint64_t gateway_max_body(struct gateway *g)
{
    struct gateway_table *t = gateway__table_get(g);
    uint64_t most = t->max_body;
    gateway__table_unref(t);
    return most;
}

/* ---- status ---- */

static const char *state_of(const struct upstream_view *v)
{
    return v->down                     ? "down"
           : v->says != UPSTREAM_READY ? upstream_says_name(v->says)
           : v->ejected                ? "ejected"
           : v->suspect                ? "suspect"
                                       : "ready";
}

static void pool_status(struct gateway_live *p, struct buf *out)
{
    struct upstream_view v;
    uint64_t now = os_monotonic_ns();
    buf_append_json_str(out, str_of(p->o.name));
    buf_append_z(out, ":{\"balance\":");
    buf_append_json_str(out, str_of(balance_name((enum balance_policy)p->o.balance)));
    os_mutex_lock(&p->lock);
    buf_printf(out, ",\"waiting\":%u,\"active\":%u,\"retrying\":%u,\"servers\":[", p->waits.n, p->budget.active,
               p->budget.running);
    for (size_t i = 0; pool_look(p->pool, i, now, &v); i++) {
        buf_append_z(out, i ? ",{\"address\":" : "{\"address\":");
        buf_append_json_str(out, v.name);
        buf_printf(out, ",\"state\":\"%s\",\"in_flight\":%u,\"weight\":%u,\"share\":%.2f,\"level\":%u,\"latency_ms\":%.3f",
                   state_of(&v), v.in_flight, v.weight, v.share, v.level, v.latency_ns / 1e6);
        if (v.report_age_ns != UINT64_MAX)
            buf_printf(out, ",\"queued\":%u,\"kv_use\":%.3f,\"report_age_ms\":%.0f", v.queued, v.kv_use,
                       (double)v.report_age_ns / 1e6);
        buf_printf(out, ",\"times_ejected\":%u,\"ejected_for_s\":%.1f}", v.times_ejected,
                   v.ejected ? (double)(v.ejected_until_ns - now) / 1e9 : 0.0);
    }
    os_mutex_unlock(&p->lock);
    buf_append_z(out, "]}");
}

void gateway_status(struct gateway *g, struct buf *out)
{
    struct gateway_table *t = gateway__table_get(g);
    buf_append_z(out, "\"upstreams\":{");
    for (size_t i = 0; i < t->config.n_pools; i++) {
        if (i)
            buf_append_c(out, ',');
        pool_status(t->pools[i], out);
    }
    buf_append_z(out, "}");
    gateway__table_unref(t);
}
