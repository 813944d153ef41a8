/* check.c: what goes on without requests: a thread with a loop that ticks every pool, and keeps an attendant for each of its servers, which
 * checks it (probe.c) or asks it how it is (report.c); and a thread that looks up names and reads files of servers (discover.c), because a
 * resolver may block. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "gateway/gateway_priv.h"
#include "os/clock.h"

#define TICK_NS     100000000ull
#define NEW_A_ROUND 16 /* attendants; the others are made in the next rounds */

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

/* ---- attendants of servers ---- */

static bool is_attended(struct list *list, struct str name)
{
    LIST_EACH(it, list)
    {
        struct attendant *a = LIST_ENTRY(it, struct attendant, link);
        if (str_eqz(name, a->name))
            return a->wanted = true;
    }
    return false;
}

/* The servers that nobody attends to; the others' attendants are marked as wanted. */
static size_t find_new(struct gateway_live *p, struct list *list, struct attendant fresh[NEW_A_ROUND])
{
    struct upstream_view v;
    size_t n = 0;
    os_mutex_lock(&p->lock);
    for (size_t i = 0; pool_look(p->pool, i, 0, &v); i++)
        if (!is_attended(list, v.name) && n < NEW_A_ROUND) {
            struct attendant *a = &fresh[n++];
            *a = (struct attendant){.p = p, .wanted = true};
            snprintf(a->name, sizeof a->name, "%.*s", STR_ARG(v.name));
            snprintf(a->host, sizeof a->host, "%.*s", STR_ARG(upstream_host(v.upstream)));
        }
    os_mutex_unlock(&p->lock);
    return n;
}

static void dismiss(struct attendant *a, const struct attendant_kind *kind)
{
    list_remove(&a->link);
    kind->stop(a);
}

void check__attend(struct gateway_live *p, struct list *list, const struct attendant_kind *kind, bool wanted)
{
    struct attendant fresh[NEW_A_ROUND];
    LIST_EACH(it, list)
    LIST_ENTRY(it, struct attendant, link)->wanted = false;
    size_t n = wanted ? find_new(p, list, fresh) : 0;
    LIST_EACH(it, list)
    if (!LIST_ENTRY(it, struct attendant, link)->wanted)
        dismiss(LIST_ENTRY(it, struct attendant, link), kind);
    for (size_t i = 0; i < n; i++) {
        struct attendant *a = kind->start(&fresh[i]);
        if (a)
            list_push_back(list, &a->link);
    }
}

void check__dismiss(struct list *list, const struct attendant_kind *kind)
{
    LIST_EACH(it, list)
    dismiss(LIST_ENTRY(it, struct attendant, link), kind);
}

static void stop_all(struct gateway_live *p)
{
    report__stop(p);
    probe__stop(p);
}

/* ---- the round ---- */

static void tend(struct gateway_live *p, uint64_t now)
{
    os_mutex_lock(&p->lock);
    pool_tick(p->pool, now);
    live_wake_one(p);
    os_mutex_unlock(&p->lock);
    probe__tend(p);
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
