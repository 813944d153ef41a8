/* peers.c: the connections of one I/O thread to upstreams: kept alive, taken latest first (the one least likely to be closed by the other
 * side), and given back. Everything here is the loop's; nothing is locked.
 *
 * A connection whose callback is running may be dropped in it; its memory goes at the end of the iteration. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "gateway/gateway_priv.h"

static void free_loop(void *local)
{
    struct gateway_loop *home = local;
    size_t at = 0;
    struct str key;
    void *value;
    LIST_EACH(it, &home->conns)
    {
        struct conn *c = LIST_ENTRY(it, struct conn, all);
        http_channel_release(&c->channel);
        free(c);
    }
    while (map_next(&home->peers, &at, &key, &value))
        free(value);
    map_release(&home->peers);
    free(home);
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
    loop_set_local(loop, LOOP_SLOT_GATEWAY, home, free_loop);
    return home;
}

static struct peer *peer_of(struct gateway_loop *home, struct str name)
{
    struct peer *p = map_get(&home->peers, name);
    struct error err;
    if (p)
        return p;
    p = calloc(1, sizeof *p);
    if (!p || name.n >= sizeof p->name) {
        free(p);
        return NULL;
    }
    memcpy(p->name, name.p, name.n);
    list_init(&p->idle);
    /* a numeric address, made by os_addr_text: no resolver is asked */
    if (os_addr_parse(p->name, &p->addr, &err) < 0 || map_put(&home->peers, str_of(p->name), p) < 0) {
        free(p);
        return NULL;
    }
    return p;
}

static void reap(struct loop_task *t)
{
    struct conn *c = CONTAINER_OF(t, struct conn, reap);
    http_channel_release(&c->channel);
    free(c);
}

void peers_drop(struct conn *c)
{
    http_channel_close(&c->channel);
    if (!list_empty(&c->idle)) {
        list_remove(&c->idle);
        c->peer->n_idle--;
    }
    list_remove(&c->all);
    c->user = NULL;
    c->reap.run = reap;
    loop_defer(c->home->loop, &c->reap);
}

/* ---- callbacks ---- */

static void on_connected(struct http_channel *ch)
{
    struct conn *c = ch->user;
    forward__connected(c->user);
}

static void on_head(struct http_channel *ch)
{
    struct conn *c = ch->user;
    forward__head(c->user);
}

static void on_body(struct http_channel *ch, struct str part)
{
    struct conn *c = ch->user;
    forward__body(c->user, part);
}

static void on_done(struct http_channel *ch, int status)
{
    struct conn *c = ch->user;
    forward__done(c->user, status);
}

static void on_failed(struct http_channel *ch, const struct error *err)
{
    struct conn *c = ch->user;
    if (c->user)
        forward__failed(c->user, err);
    else
        peers_drop(c); /* idle, and closed by the other side */
}

/* ---- taking and giving ---- */

static struct conn *conn_new(struct gateway_loop *home, struct peer *p)
{
    struct conn *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    http_channel_init(&c->channel, home->loop);
    c->channel.user = c;
    c->channel.connected = on_connected;
    c->channel.head = on_head;
    c->channel.body = on_body;
    c->channel.done = on_done;
    c->channel.failed = on_failed;
    c->home = home;
    c->peer = p;
    list_init(&c->idle);
    list_push_back(&home->conns, &c->all);
    return c;
}

struct conn *peers_take(struct gateway_loop *home, struct str name, struct forward *user)
{
    struct peer *p = peer_of(home, name);
    if (!p)
        return NULL;
    struct list *l = list_pop_front(&p->idle);
    struct conn *c = l ? LIST_ENTRY(l, struct conn, idle) : conn_new(home, p);
    if (!c)
        return NULL;
    p->n_idle -= l != NULL;
    c->reused = l != NULL;
    c->user = user;
    return c;
}

void peers_give(struct conn *c, uint32_t keep)
{
    struct peer *p = c->peer;
    c->user = NULL;
    if (!http_channel_is_open(&c->channel) || p->n_idle >= keep) {
        peers_drop(c);
        return;
    }
    list_push_front(&p->idle, &c->idle);
    p->n_idle++;
}
