/* http_peer.c: whom a connection comes from, and how many that one may have.
 *
 * Counted is the address that the socket shows. A trusted proxy stands for many clients: it is not counted, and where the PROXY protocol is
 * spoken its header says who is, before any byte of TLS or HTTP. Then nobody else may connect at all: a header that anybody could send
 * would be worth nothing. Proxies without that protocol name the client in x-forwarded-for, which is for api/ to judge. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "net/http_priv.h"

#define PROXY_FIRST_BYTES 12

static bool admit(struct http_worker *w, struct conn_origin *o)
{
    const struct peers_limits l = {.max_connections = w->limits.max_connections_per_address,
                                   .max_rate = w->server->tls ? w->limits.max_handshakes_per_address : 0};
    switch (peers_enter(w->server->peers, &o->address, &l, loop_now_ns(w->loop), &o->counted)) {
    case PEERS_TOO_MANY:
        http__limit(w, LIMIT_ADDRESS_CONNECTIONS);
        return false;
    case PEERS_TOO_FAST:
        http__limit(w, LIMIT_ADDRESS_HANDSHAKES);
        return false;
    default:
        return true;
    }
}

bool http__peer_admit(struct http_worker *w, const struct os_addr *peer, struct conn_origin *o)
{
    const struct http_server *s = w->server;
    *o = (struct conn_origin){0};
    if (!os_addr_ip(peer, o->address.bytes))
        return true; /* a unix socket */
    bool proxy = networks_have(s->proxies, s->n_proxies, &o->address);
    if (s->proxy_protocol) {
        if (!proxy)
            http__limit(w, LIMIT_PROXY);
        o->waits_proxy = proxy;
        return proxy;
    }
    return proxy || admit(w, o);
}

void http__peer_leave(struct http_worker *w, struct conn_origin *o)
{
    if (o->counted)
        peers_leave(w->server->peers, &o->address);
    o->counted = false;
    free(o->header);
    o->header = NULL;
}

/* The header is whole: its source is the client from here on. */
static int take_source(struct conn *c, const struct proxy_header *h)
{
    struct conn_origin *o = &c->origin;
    char text[ADDRESS_TEXT_BYTES];
    o->waits_proxy = false;
    free(o->header);
    o->header = NULL;
    if (!h->has_source)
        return 0; /* the balancer's own health check */
    o->address = h->source;
    address_text(&h->source, text);
    snprintf(c->peer, sizeof c->peer, strchr(text, ':') ? "[%s]:0" : "%s:0", text);
    return admit(c->w, o) ? 0 : STATUS_EXHAUSTED;
}

int http__peer_read_proxy(struct conn *c)
{
    struct conn_origin *o = &c->origin;
    struct proxy_header h;
    size_t want = PROXY_FIRST_BYTES;
    int rc = STATUS_AGAIN;
    if (!o->header && !(o->header = malloc(PROXY_HEADER_MAX)))
        return STATUS_NOMEM;
    if (o->header_n)
        rc = proxy_header_parse(o->header, o->header_n, &want, &h);
    while (rc == STATUS_AGAIN) {
        ssize_t n = os_sock_read(c->watch.fd, o->header + o->header_n, want);
        if (n == STATUS_AGAIN)
            return STATUS_AGAIN;
        if (n <= 0)
            return STATUS_IO;
        o->header_n += (uint16_t)n;
        rc = proxy_header_parse(o->header, o->header_n, &want, &h);
    }
    if (rc < 0) {
        http__limit(c->w, LIMIT_PROXY);
        return rc;
    }
    return take_source(c, &h);
}
