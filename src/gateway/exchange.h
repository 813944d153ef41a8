/* exchange.h: for the files of gateway/ only. One request at one server and its answer, whatever is spoken with it.
 *
 *     take -> (connect -> connected()) -> send -> head() -> (body() ...) -> done()          at any point: failed(), or drop by the owner
 *                                                  \-> switched() -> body() ..., ended()    a request with `upgrade`, until it is dropped
 *
 * The owner embeds it (a forward, a check), says how its request looks, and hears of the answer; the connection behind it is one of this thread's
 * (peers.c): an HTTP/1.1 one is this exchange's alone until done(), an HTTP/2 one carries many. Loop-owned. After done(), failed() and drop
 * the exchange is free to be taken again. Callbacks may drop it.
 *
 * The request's body is pulled: pending() says what is there, exchange_more that there is more than there was, taken() what needs not be kept
 * for this try any more. An answer may come before the body's end. */
#ifndef INFERD_GATEWAY_EXCHANGE_H
#define INFERD_GATEWAY_EXCHANGE_H

#include <stdatomic.h>

#include "base/list.h"
#include "net/http_client.h"
#include "wire/http2_client.h"

struct exchange;
struct gateway;
struct gateway_loop;
struct gateway_pool;
struct conn;

/* ---- transport.c: how a pool's servers are spoken to ---- */

enum gateway_protocol { GATEWAY_HTTP1, GATEWAY_HTTP2, GATEWAY_AUTO }; /* `protocol` in its order; AUTO: what ALPN says */

/* Refcounted, immutable: by its pool and by the peers that are spoken to with it. */
struct gateway_transport {
    _Atomic uint32_t refs;
    _Atomic bool retired; /* its pool is gone: nothing is kept ready */
    uint64_t id;          /* never used twice */
    enum gateway_protocol protocol;
    uint32_t keepalive_min; /* and so many kept ready */
    uint32_t keepalive;     /* idle connections kept to each server */
    uint64_t keepalive_ns;
    uint64_t ping_ns;       /* HTTP/2: see net/http2_channel.h */
    struct tls_client *tls; /* NULL: plain */
    char *tls_name;         /* whom servers must prove to be; "": their own host */
    char *pool;             /* its name, for the log */
    uint64_t stamp;         /* of the TLS files, when they were read */
};

/* INVALID names a file that can't be used. */
int transport_create(struct gateway *g, const struct gateway_pool *o, struct gateway_transport **out,
                     struct error *err) MUST_CHECK;
struct gateway_transport *transport_ref(struct gateway_transport *t);
void transport_unref(struct gateway_transport *t); /* NULL is accepted */
/* Have the files been replaced since? */
bool transport_is_stale(const struct gateway_transport *t, const struct gateway_pool *o);

/* ---- what is sent ---- */

enum exchange_body { EXCHANGE_NO_BODY, EXCHANGE_LENGTH, EXCHANGE_STREAM };

/* Borrowed from send to done, failed or drop. */
struct exchange_request {
    struct str method, path, query, authority;
    const struct http_header *headers; /* neither Host, Content-Length nor anything of one hop */
    size_t n_headers;
    enum exchange_body body;
    uint64_t length; /* EXCHANGE_LENGTH */
    bool head;       /* HEAD: the answer has no body */
    struct str
        upgrade; /* the protocol to switch to; .n 0: none. HTTP/1.1 only, over a connection of its own (`fresh`), without a body */
};

struct exchange_events {
    void (*connected)(struct exchange *x);
    void (*head)(struct exchange *x);
    void (*body)(struct exchange *x, struct str part);
    void (*done)(struct exchange *x); /* the answer's members are valid until it returns */
    /* No answer, or no more of it. x->fault, x->tls_failed, x->unsent say more. */
    void (*failed)(struct exchange *x, const struct error *err);
    struct str (*pending)(struct exchange *x, bool *last);
    void (*taken)(struct exchange *x, size_t n);
    /* (optional) 101: from here on body() brings bytes of the tunnel, pending() is asked for what goes up (its `last` ends our side), and ended()
     * says that the server sends no more */
    void (*switched)(struct exchange *x);
    void (*ended)(struct exchange *x);
};

/* Why it failed, as far as a client may know (explain.c). */
enum exchange_fault {
    EXCHANGE_CLOSED,      /* before anything of an answer came */
    EXCHANGE_UNREACHABLE, /* no connection: */
    EXCHANGE_REFUSED,
    EXCHANGE_SLOW_CONNECT, /* the owner's word: it waited long enough */
    EXCHANGE_TLS_NAME,
    EXCHANGE_TLS_EXPIRED,
    EXCHANGE_TLS_UNTRUSTED,
    EXCHANGE_TLS_FAILED,
    EXCHANGE_GARBAGE, /* a bad answer: */
    EXCHANGE_HEAD_TOO_LARGE,
    EXCHANGE_SHORT,
    EXCHANGE_CUT,
    EXCHANGE_UNBEGUN, /* see exchange.unsent */
};

struct exchange_ops {
    void (*send)(struct exchange *x, const struct exchange_request *r);
    void (*more)(struct exchange *x);
    void (*pause)(struct exchange *x, bool paused);
    void (*drop)(struct exchange *x);
};

struct exchange {
    /* set by the owner, once */
    const struct exchange_events *events;
    struct arena *arena; /* for what HTTP/2 makes of requests and answers; freed by the owner after the exchange */
    bool fresh;          /* over a connection of its own, closed behind it: checks */
    bool anew;           /* set before a take, for that one: over a new connection, kept behind it like any other */
    /* of the current one; read-only */
    const struct exchange_ops *ops; /* NULL: none */
    struct conn *conn;
    bool reused;               /* over a connection that had idled: the server may have closed it meanwhile */
    bool connecting;           /* connected() is still to come */
    bool heard;                /* something of an answer came */
    bool tls_failed;           /* it was TLS that did not come about */
    enum exchange_fault fault; /* failed */
    bool unsent;               /* failed: the server says, or it is plain, that it has not begun on this request */
    bool left;                 /* unsent, as the server ended the connection in an orderly way: another one to it is as good */
    /* the answer, from head() to the end */
    int status;
    const struct http_header *headers;
    size_t n_headers;
    enum http1_body answer_body;
    uint64_t content_length;
    const struct http_header *trailers;
    size_t n_trailers;
    /* private to exchange_h2.c */
    struct http2_call call;
    struct list link; /* conn.streams */
    size_t unconsumed;
    bool paused, submitted;
};

/* A connection to `name` (an address as text), where `host` is what the server calls itself. x->connecting: call exchange_connect, and wait for
 * connected(); else send. NULL memory: STATUS_NOMEM. */
int exchange_take(struct exchange *x, struct gateway_loop *home, struct gateway_transport *t, struct str name,
                  struct str host) MUST_CHECK;
/* connected() or failed(), maybe from within this call. */
void exchange_connect(struct exchange *x);
static inline bool exchange_is_open(const struct exchange *x)
{
    return x->ops != NULL;
}
static inline void exchange_send(struct exchange *x, const struct exchange_request *r)
{
    x->ops->send(x, r);
}
static inline void exchange_more(struct exchange *x)
{
    if (x->ops)
        x->ops->more(x);
}
static inline void exchange_pause(struct exchange *x, bool paused)
{
    if (x->ops)
        x->ops->pause(x, paused);
}
/* Nothing of it is wanted any more: the server is told, by the connection's end or the stream's reset. Quiet. */
static inline void exchange_drop(struct exchange *x)
{
    if (x->ops)
        x->ops->drop(x);
}
struct str exchange_header(const struct exchange *x, const char *name); /* first of the answer; .p == NULL: absent */

#endif
