/* peers.c: the connections of one I/O thread to upstreams: kept alive, taken latest first (the one least likely to be closed by the other
 * side), and given back. Everything here is the loop's; nothing is locked.
 *
 * A peer is an address as one transport speaks to it; another pool's servers, or the same pool's behind a reload with other TLS files, are
 * other peers. Idle connections past their time are closed by a sweep, which also forgets peers that have none left.
 *
 * An HTTP/2 connection is shared, and found in its peer's list as long as it takes more exchanges. Where ALPN decides (`auto`), the first connection
 * finds out, and the next ones know.
 *
 * A connection whose callback is running may be dropped in it; its memory goes at the end of the iteration. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "gateway/gateway_priv.h"

#define SWEEP_NS 1000000000ull  /* how soon connections of a pool that is gone close, while any are idle */
#define TELL_NS  10000000000ull /* between two log lines about failing handshakes with one server */

static void peer_free(struct peer *p)
{
    tls_resume_clear(&p->resume);
    transport_unref(p->transport);
    free(p->host);
    free(p);
}

static void conn_free(struct conn *c)
{
    http_channel_release(&c->channel);
    http2_channel_destroy(c->h2);
    buf_release(&c->head);
    free(c);
}

static void free_loop(void *local)
{
    struct gateway_loop *home = local;
    size_t at = 0;
    struct str key;
    void *value;
    loop_timer_stop(home->loop, &home->sweep);
    LIST_EACH(it, &home->conns)
    {
        struct conn *c = LIST_ENTRY(it, struct conn, all);
        conn_free(c);
    }
    while (map_next(&home->peers, &at, &key, &value))
        peer_free(value);
    map_release(&home->peers);
    free(home);
}

/* ---- the sweep ---- */

static uint64_t due(const struct conn *c)
{
    return c->idle_since_ns + c->peer->transport->keepalive_ns;
}

/* Its pool was replaced or taken away: nobody will use it again, whatever keepalive_timeout says. */
static bool is_left_over(const struct peer *p)
{
    return atomic_load_explicit(&p->transport->retired, memory_order_relaxed);
}

/* More than has to be kept ready? */
static bool is_spare(const struct conn *c)
{
    const struct gateway_transport *t = c->peer->transport;
    return c->is_h2 ? t->keepalive_min == 0 || c->peer->n_conns > 1 : c->peer->n_idle > t->keepalive_min;
}

static void sweep(struct loop_timer *t)
{
    struct gateway_loop *home = CONTAINER_OF(t, struct gateway_loop, sweep);
    uint64_t now = loop_now_ns(home->loop), next = UINT64_MAX;
    size_t at = 0;
    struct str key;
    void *value;
    bool aged = false;
    LIST_EACH(it, &home->idle)
    {
        struct conn *c = LIST_ENTRY(it, struct conn, old);
        aged |= due(c) <= now;
        if (is_left_over(c->peer) || (due(c) <= now && is_spare(c)))
            peers__drop(c);
        else if (due(c) <= now)
            next = MIN_OF(next, now + c->peer->transport->keepalive_ns);
        else
            next = MIN_OF(next, due(c));
    }
    while (map_next(&home->peers, &at, &key, &value)) {
        struct peer *p = value;
        if (p->n_conns || !(aged || is_left_over(p)))
            continue; /* one that works now and then keeps its TLS session */
        map_remove(&home->peers, key);
        peer_free(p);
        at = 0;
    }
    if (next != UINT64_MAX)
        loop_timer_start(home->loop, t, MIN_OF(next, now + SWEEP_NS));
}

struct gateway_loop *peers_of_loop(struct gateway *g, struct loop *loop)
{
    struct gateway_loop *home = loop_local(loop, LOOP_SLOT_GATEWAY);
    if (home)
        return home;
    home = calloc(1, sizeof *home);
    if (!home)
        return NULL;
    home->g = g;
    home->loop = loop;
    map_init(&home->peers, g->seed);
    list_init(&home->conns);
    list_init(&home->idle);
    loop_timer_init(&home->sweep, sweep);
    loop_set_local(loop, LOOP_SLOT_GATEWAY, home, free_loop);
    return home;
}

/* ---- peers ---- */

static struct peer *peer_new(struct gateway_loop *home, struct gateway_transport *t, struct str key, struct str host)
{
    struct peer *p = calloc(1, sizeof *p);
    struct error err;
    if (!p)
        return NULL;
    memcpy(p->key, key.p, key.n);
    p->name = p->key + sizeof t->id;
    p->host = t->tls_name[0] ? strdup(t->tls_name) : str_dup(host);
    p->transport = transport_ref(t);
    p->tls = (struct dial_tls){t->tls, p->host, &p->resume};
    list_init(&p->idle);
    list_init(&p->h2);
    /* a numeric address, made by os_addr_text: no resolver is asked */
    if (!p->host || os_addr_parse(p->name, &p->addr, &err) < 0 || map_put(&home->peers, (struct str){p->key, key.n}, p) < 0) {
        peer_free(p);
        return NULL;
    }
    return p;
}

static struct peer *peer_of(struct gateway_loop *home, struct gateway_transport *t, struct str name, struct str host)
{
    char text[PEER_KEY_BYTES];
    struct str key = {text, sizeof t->id + name.n};
    if (name.n >= OS_ADDR_TEXT_BYTES)
        return NULL;
    memcpy(text, &t->id, sizeof t->id);
    memcpy(text + sizeof t->id, name.p, name.n);
    struct peer *p = map_get(&home->peers, key);
    return p ? p : peer_new(home, t, key, host);
}

/* ---- connections ---- */

static void reap(struct loop_task *t)
{
    conn_free(CONTAINER_OF(t, struct conn, reap));
}

static void leave_idle(struct conn *c)
{
    list_remove(&c->old);
    if (c->is_h2 || list_empty(&c->idle))
        return;
    list_remove(&c->idle);
    c->peer->n_idle--;
}

void peers__drop(struct conn *c)
{
    if (c->gone)
        return;
    c->gone = true;
    peers__warm(c);
    if (c->h2)
        http2_channel_close(c->h2);
    http_channel_close(&c->channel);
    leave_idle(c);
    list_remove(&c->idle);
    list_remove(&c->all);
    c->peer->n_conns--;
    c->x = NULL;
    c->reap.run = reap;
    loop_defer(c->home->loop, &c->reap);
}

void peers__tls_failed(struct conn *c, const struct error *err)
{
    struct peer *p = c->peer;
    uint64_t now = loop_now_ns(c->home->loop);
    if (p->told_ns && now - p->told_ns < TELL_NS)
        return;
    p->told_ns = now;
    LOG(c->home->g->o.log, LOG_WARN, "upstream_tls_failed", LOG_S("pool", p->transport->pool), LOG_S("upstream", p->name),
        LOG_S("name", p->host), LOG_S("reason", err->text));
}

static struct conn *conn_new(struct gateway_loop *home, struct peer *p)
{
    struct conn *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    http_channel_init(&c->channel, home->loop);
    c->home = home;
    c->peer = p;
    p->n_conns++;
    buf_init(&c->head);
    list_init(&c->idle);
    list_init(&c->old);
    list_init(&c->streams);
    list_push_back(&home->conns, &c->all);
    return c;
}

void peers__warm(struct conn *c)
{
    c->peer->n_warming -= c->warming;
    c->warming = false;
}

/* Open what is missing of the connections that are kept ready. */
static void warm(struct gateway_loop *home, struct peer *p)
{
    while (p->n_idle + p->n_warming < p->transport->keepalive_min) {
        struct conn *c = conn_new(home, p);
        if (!c)
            return;
        c->warming = true;
        p->n_warming++;
        h1__attach(c);
        http_channel_connect_tls(&c->channel, &p->addr, p->tls.client ? &p->tls : NULL);
        if (c->gone)
            return; /* it failed at once: the next request tries again */
    }
}

static bool wants_h2(const struct peer *p)
{
    return p->transport->protocol == GATEWAY_HTTP2 || (p->transport->protocol == GATEWAY_AUTO && p->speaks_h2);
}

/* One with room, or a new one. NULL: out of memory. */
static struct conn *take_h2(struct gateway_loop *home, struct peer *p, bool fresh, bool anew)
{
    LIST_EACH(it, &p->h2)
    {
        struct conn *c = LIST_ENTRY(it, struct conn, idle);
        if (!fresh && !anew && h2__has_room(c))
            return c;
    }
    struct conn *c = conn_new(home, p);
    if (!c)
        return NULL;
    h2__attach(c);
    if (!fresh)
        list_push_back(&p->h2, &c->idle);
    return c;
}

static struct conn *take_h1(struct gateway_loop *home, struct peer *p, struct exchange *x, bool anew)
{
    struct list *l = x->fresh || anew ? NULL : list_first(&p->idle);
    struct conn *c = l ? LIST_ENTRY(l, struct conn, idle) : conn_new(home, p);
    if (!c)
        return NULL;
    if (!l)
        h1__attach(c);
    x->ops = &h1__ops;
    x->conn = c;
    x->reused = l;
    x->connecting = !l;
    c->x = x;
    return c;
}

int exchange_take(struct exchange *x, struct gateway_loop *home, struct gateway_transport *t, struct str name, struct str host)
{
    struct peer *p = peer_of(home, t, name, host);
    bool anew = x->anew;
    ASSERT(!x->ops);
    *x = (struct exchange){.events = x->events, .arena = x->arena, .fresh = x->fresh};
    if (!p)
        return STATUS_NOMEM;
    struct conn *c = wants_h2(p) ? take_h2(home, p, x->fresh, anew) : take_h1(home, p, x, anew);
    if (!c)
        return STATUS_NOMEM;
    leave_idle(c);
    if (c->is_h2)
        h2__join(c, x);
    else if (!x->fresh && p->transport->protocol == GATEWAY_HTTP1)
        warm(home, p);
    return 0;
}

void exchange_connect(struct exchange *x)
{
    struct peer *p = x->conn->peer;
    if (!http_channel_is_open(&x->conn->channel)) /* else another exchange has begun to connect it */
        http_channel_connect_tls(&x->conn->channel, &p->addr, p->tls.client ? &p->tls : NULL);
}

void peers__rest(struct conn *c)
{
    struct gateway_loop *home = c->home;
    list_push_back(&home->idle, &c->old);
    c->idle_since_ns = loop_now_ns(home->loop);
    if (!heap_contains(&home->sweep.node))
        loop_timer_start(home->loop, &home->sweep, MIN_OF(due(c), loop_now_ns(home->loop) + SWEEP_NS));
}

void peers__give(struct conn *c)
{
    struct peer *p = c->peer;
    c->x = NULL;
    if (!http_channel_is_open(&c->channel) || p->n_idle >= p->transport->keepalive) {
        peers__drop(c);
        return;
    }
    list_push_front(&p->idle, &c->idle);
    p->n_idle++;
    peers__rest(c);
}

struct str exchange_header(const struct exchange *x, const char *name)
{
    for (size_t i = 0; i < x->n_headers; i++)
        if (str_ieqz(x->headers[i].name, name))
            return x->headers[i].value;
    return (struct str){0};
}
