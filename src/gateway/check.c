/* check.c: what goes on without requests: a thread with a loop that ticks every pool and checks its servers, and a thread that looks up names
 * again, because a resolver may block.
 *
 * A check is one GET on a connection of its own, closed afterwards: that a new connection can be made is part of what is checked. A check
 * belongs to a pool's server by name; servers that left lose theirs at the next round. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "gateway/gateway_priv.h"
#include "os/clock.h"

#define TICK_NS 100000000ull

struct server_check {
    struct list link;
    struct gateway_live *p;
    struct exchange x;
    struct arena arena;
    struct loop_timer timer; /* next check, or the end of this one */
    struct loop_task reap;
    char name[OS_ADDR_TEXT_BYTES];
    char host[256];
    struct http_header agent;
    struct exchange_request request;
    bool running, seen;
};

struct ticker {
    struct gateway *g;
    struct loop_timer timer;
    struct gateway_table *table; /* whose pools have checks now */
};

struct upstream *check__find(struct gateway_live *p, const char *name)
{
    struct upstream_view v;
    for (size_t i = 0; pool_look(p->pool, i, 0, &v); i++)
        if (str_eqz(v.name, name))
            return v.upstream;
    return NULL;
}

/* ---- one check ---- */

static void ended(struct server_check *c, bool passed)
{
    uint64_t now = loop_update_now(c->p->g->loop);
    c->running = false;
    exchange_drop(&c->x);
    os_mutex_lock(&c->p->lock);
    struct upstream *u = check__find(c->p, c->name);
    if (u)
        pool_checked(c->p->pool, u, passed, now);
    if (passed)
        live_wake_one(c->p);
    os_mutex_unlock(&c->p->lock);
    loop_timer_start(c->p->g->loop, &c->timer, now + c->p->o.check.interval);
}

static struct server_check *of(struct exchange *x)
{
    return CONTAINER_OF(x, struct server_check, x);
}

static void on_connected(struct exchange *x)
{
    exchange_send(x, &of(x)->request);
}

static void on_head(struct exchange *x)
{
    (void)x;
}

static void on_body(struct exchange *x, struct str part)
{
    (void)x, (void)part;
}

static void on_done(struct exchange *x)
{
    ended(of(x), x->status / 100 == 2);
}

static void on_failed(struct exchange *x, const struct error *err)
{
    (void)err;
    if (of(x)->running)
        ended(of(x), false);
}

static struct str nothing_pending(struct exchange *x, bool *last)
{
    (void)x;
    *last = true;
    return (struct str){0};
}

static void nothing_taken(struct exchange *x, size_t n)
{
    (void)x, (void)n;
}

static const struct exchange_events events = {.connected = on_connected,
                                              .head = on_head,
                                              .body = on_body,
                                              .done = on_done,
                                              .failed = on_failed,
                                              .pending = nothing_pending,
                                              .taken = nothing_taken};

/* Over a connection of its own: that a new one comes about is part of what is checked. */
static void begin(struct server_check *c)
{
    c->running = true;
    arena_clear(&c->arena);
    loop_timer_start(c->p->g->loop, &c->timer, loop_now_ns(c->p->g->loop) + c->p->o.check.timeout);
    struct gateway_loop *home = peers_of_loop(c->p->g, c->p->g->loop);
    if (!home || exchange_take(&c->x, home, c->p->transport, str_of(c->name), str_of(c->host)))
        return; /* no memory: the timer says that it failed */
    exchange_connect(&c->x);
}

static void on_timer(struct loop_timer *t)
{
    struct server_check *c = CONTAINER_OF(t, struct server_check, timer);
    if (c->running) {
        ended(c, false);
        return;
    }
    begin(c);
}

static void check_start(struct gateway_live *p, struct str name, struct str host)
{
    struct server_check *c = calloc(1, sizeof *c);
    if (!c || name.n >= sizeof c->name || host.n >= sizeof c->host) {
        free(c); /* tried again at the next round */
        return;
    }
    memcpy(c->name, name.p, name.n);
    memcpy(c->host, host.p, host.n);
    c->p = p;
    c->seen = true;
    arena_init(&c->arena, 1024, 1 << 20);
    c->x = (struct exchange){.events = &events, .arena = &c->arena, .fresh = true};
    c->agent = (struct http_header){STR("User-Agent"), str_of(p->g->via)};
    c->request = (struct exchange_request){.method = STR("GET"),
                                           .path = str_of(p->o.check.path),
                                           .authority = host.n ? str_of(c->host) : str_of(c->name),
                                           .headers = &c->agent,
                                           .n_headers = 1};
    loop_timer_init(&c->timer, on_timer);
    list_push_back(&p->checks, &c->link);
    loop_timer_start(p->g->loop, &c->timer, loop_now_ns(p->g->loop));
}

static void reap(struct loop_task *t)
{
    struct server_check *c = CONTAINER_OF(t, struct server_check, reap);
    arena_release(&c->arena);
    free(c);
}

static void check_stop(struct server_check *c)
{
    c->running = false;
    loop_timer_stop(c->p->g->loop, &c->timer);
    exchange_drop(&c->x);
    list_remove(&c->link);
    c->reap.run = reap;
    loop_defer(c->p->g->loop, &c->reap);
}

static void stop_all(struct gateway_live *p)
{
    report__stop(p);
    LIST_EACH(it, &p->checks)
    check_stop(LIST_ENTRY(it, struct server_check, link));
}

/* ---- the round ---- */

static bool has_check(struct gateway_live *p, struct str name)
{
    LIST_EACH(it, &p->checks)
    {
        struct server_check *c = LIST_ENTRY(it, struct server_check, link);
        if (str_eqz(name, c->name))
            return c->seen = true;
    }
    return false;
}

static void show(struct gateway_live *p, const struct upstream_view *v)
{
    char name[OS_ADDR_TEXT_BYTES];
    void **tags = upstream_tags(v->upstream) + GATEWAY_OUTCOMES;
    snprintf(name, sizeof name, "%.*s", STR_ARG(v->name));
    const char *const values[] = {p->o.name, name, NULL};
    if (!tags[0] && p->g->state_family)
        tags[0] = metrics_series(p->g->state_family, values);
    if (!tags[1] && p->g->in_flight_family)
        tags[1] = metrics_series(p->g->in_flight_family, values);
    if (tags[0])
        metric_set(tags[0], v->usable);
    if (tags[1])
        metric_set(tags[1], v->in_flight);
}

static_assert(GATEWAY_OUTCOMES + 2 <= UPSTREAM_TAGS, "two gauges behind the counters");

/* Checks for the servers that are there, none for those that left. */
static void tend(struct gateway_live *p, uint64_t now)
{
    struct upstream_view v;
    char fresh[16][OS_ADDR_TEXT_BYTES], hosts[16][256]; /* a few a round; the others in the next */
    size_t n = 0;
    LIST_EACH(it, &p->checks)
    LIST_ENTRY(it, struct server_check, link)->seen = false;
    os_mutex_lock(&p->lock);
    pool_tick(p->pool, now);
    for (size_t i = 0; pool_look(p->pool, i, now, &v); i++) {
        show(p, &v);
        if (p->o.check.path[0] && !has_check(p, v.name) && n < COUNT_OF(fresh))
            snprintf(fresh[n], sizeof fresh[0], "%.*s", STR_ARG(v.name)),
                snprintf(hosts[n++], sizeof hosts[0], "%.*s", STR_ARG(upstream_host(v.upstream)));
    }
    live_wake_one(p);
    if (p->waiting)
        metric_set(p->waiting, p->waits.n);
    os_mutex_unlock(&p->lock);
    LIST_EACH(it, &p->checks)
    if (!LIST_ENTRY(it, struct server_check, link)->seen)
        check_stop(LIST_ENTRY(it, struct server_check, link));
    for (size_t i = 0; i < n; i++)
        check_start(p, str_of(fresh[i]), str_of(hosts[i]));
    report__tend(p);
}

static bool in_table(const struct gateway_table *t, const struct gateway_live *p)
{
    for (size_t i = 0; i < t->config.n_pools; i++)
        if (t->pools[i] == p)
            return true;
    return false;
}

static void on_tick(struct loop_timer *timer)
{
    struct ticker *k = CONTAINER_OF(timer, struct ticker, timer);
    struct gateway_table *t = gateway__table_get(k->g);
    uint64_t now = loop_update_now(k->g->loop);
    for (size_t i = 0; k->table && i < k->table->config.n_pools; i++)
        if (!in_table(t, k->table->pools[i]))
            stop_all(k->table->pools[i]);
    gateway__table_unref(k->table);
    k->table = t;
    for (size_t i = 0; i < t->config.n_pools; i++)
        tend(t->pools[i], now);
    loop_timer_start(k->g->loop, &k->timer, now + TICK_NS);
}

static void checker_main(void *arg)
{
    struct gateway *g = arg;
    struct ticker k = {.g = g};
    loop_timer_init(&k.timer, on_tick);
    loop_timer_start(g->loop, &k.timer, loop_now_ns(g->loop));
    loop_run(g->loop);
    for (size_t i = 0; k.table && i < k.table->config.n_pools; i++)
        stop_all(k.table->pools[i]);
    loop_timer_stop(g->loop, &k.timer);
    loop_destroy(g->loop); /* runs what stop_all has left */
    g->loop = NULL;
    gateway__table_unref(k.table);
}

/* ---- names ---- */

static void resolver_main(void *arg)
{
    struct gateway *g = arg;
    uint64_t waited = 0;
    while (!atomic_load_explicit(&g->stop, memory_order_acquire)) {
        struct gateway_table *t = gateway__table_get(g);
        for (size_t i = 0; waited && i < t->config.n_pools; i++)
            discover__round(t->pools[i], &t->config.pools[i], waited);
        gateway__table_unref(t);
        waited++;
        for (int i = 0; i < 2 && !atomic_load_explicit(&g->stop, memory_order_acquire); i++)
            os_sleep_ns(RESOLVE_NS / 2);
    }
}

int check__start(struct gateway *g, struct error *err)
{
    int rc = loop_create(&g->loop, err);
    if (!rc)
        rc = os_thread_start(&g->checker, "upstreams", checker_main, g, err);
    if (rc) {
        loop_destroy(g->loop);
        g->loop = NULL;
        return rc;
    }
    g->checker_started = true;
    rc = os_thread_start(&g->resolver, "resolver", resolver_main, g, err);
    g->resolver_started = rc == 0;
    return rc;
}

void check__stop(struct gateway *g)
{
    atomic_store_explicit(&g->stop, true, memory_order_release);
    if (g->checker_started) {
        loop_stop(g->loop);
        os_thread_join(&g->checker);
    }
    if (g->resolver_started)
        os_thread_join(&g->resolver);
    g->checker_started = g->resolver_started = false;
}
