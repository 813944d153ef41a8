/* http2_conn.c: a connection that speaks HTTP/2: its bytes in and out, the peer's end, the ways it ends. Its requests are in
 * http2_stream.c, the protocol in wire/http2.h; sockets, timers and pausing are those of http_conn.c.
 *
 * Output has no buffer of the connection's own: frames are put together in the worker's, one write each time it is full, and only what
 * the socket does not take is kept (`rest`); while there is some, no further frame is made. So an idle connection owns its session and
 * 56 bytes, and a client that does not read costs one worker buffer at most, besides the replies that wait on its streams.
 *
 * Ways to end. Drain and max_requests: a notice ("open no more"), a PING behind it, and when that is answered or after NOTICE_NS the GOAWAY
 * that names the last stream; the connection ends with its last stream. Idle, and errors: GOAWAY at once. Then the socket is shut
 * down and lingers as over HTTP/1.x.
 *
 * Deadlines of streams are looked at several times within the shortest of them rather than kept in a heap: a connection has few
 * streams, and a deadline of seconds may be a quarter late. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/size.h"
#include "base/status.h"
#include "net/http_priv.h"

#define MS        1000000ull
#define NOTICE_NS (1000 * MS)

struct h2_conn {
    struct http2 *session;
    uint8_t *rest; /* written by nobody yet */
    size_t rest_at, rest_n;
    uint64_t head_since_ns; /* a header block is under way; 0: none */
    uint64_t notice_ns;     /* when the client was told to go; 0: not */
    uint64_t look_ns;       /* next look at the streams; 0: not planned */
    bool went;              /* the final GOAWAY is out */
};

bool http2__start(struct conn *c)
{
    const struct http_limits *l = &c->w->limits;
    const struct http2_limits wire = {
        .max_streams = l->http2_max_streams,
        .max_header_bytes = l->max_header_bytes,
        .max_headers = l->max_headers,
        .max_url_bytes = l->max_url_bytes,
        .max_continuations = l->http2_max_continuations,
        .window_bytes = l->http2_window_bytes,
        .table_bytes = l->http2_table_bytes,
        .glitches = l->http2_glitches,
        .glitch_rate = l->http2_glitch_rate,
    };
    struct error err;
    struct h2_conn *h = fault_point("http2_conn") ? NULL : calloc(1, sizeof *h);
    c->decided = true;
    if (!h || http2_create(&wire, &http2__events, c, &h->session, &err)) {
        free(h);
        http__conn_close(c);
        return false;
    }
    c->h2 = h;
    metric_adjust(c->w->server->m.http2_connections, 1);
    if (c->w->draining)
        http2__drain(c);
    return true;
}

void http2__closed(struct conn *c)
{
    if (c->h2)
        metric_adjust(c->w->server->m.http2_connections, -1);
}

void http2__release(struct conn *c)
{
    if (!c->h2)
        return;
    http2_destroy(c->h2->session);
    free(c->h2->rest);
    free(c->h2);
    c->h2 = NULL;
}

struct http2 *http2__session(struct conn *c)
{
    return c->h2->session;
}

/* --- bytes --- */

static void watch_head(struct conn *c)
{
    struct h2_conn *h = c->h2;
    if (!http2_in_head(h->session))
        h->head_since_ns = 0;
    else if (!h->head_since_ns)
        h->head_since_ns = loop_now_ns(c->w->loop);
}

bool http2__input(struct conn *c, const char *data, size_t n)
{
    c->corked = true;
    if (!http2_input(c->h2->session, (const uint8_t *)data, n, loop_now_ns(c->w->loop)))
        c->closing = true; /* what still comes is discarded; the flush says goodbye */
    c->corked = false;
    if (c->state != CONN_OPEN)
        return false;
    watch_head(c);
    return !c->closing;
}

/* Keep what the socket did not take. False: no memory, closed. */
static bool keep_rest(struct conn *c, const uint8_t *p, size_t n)
{
    struct h2_conn *h = c->h2;
    h->rest = fault_point("http2_rest") ? NULL : malloc(n);
    if (!h->rest) {
        http__conn_close(c);
        return false;
    }
    memcpy(h->rest, p, n);
    h->rest_at = 0;
    h->rest_n = n;
    return true;
}

/* Bytes written; 0 the socket is full, -1 closed. */
static ssize_t write_some(struct conn *c, const uint8_t *p, size_t n)
{
    struct os_iov v = {p, n};
    ssize_t put = http__conn_send(c, &v, 1);
    if (put == STATUS_AGAIN)
        return 0;
    if (put < 0) {
        http__conn_close(c);
        return -1;
    }
    c->wrote_ns = loop_now_ns(c->w->loop);
    metric_add(c->w->server->m.bytes_out, (uint64_t)put);
    return put;
}

/* 1 nothing is left over, 0 the socket is full, -1 closed. */
static int write_rest(struct conn *c)
{
    struct h2_conn *h = c->h2;
    while (h->rest_n) {
        ssize_t put = write_some(c, h->rest + h->rest_at, h->rest_n);
        if (put <= 0)
            return (int)put;
        h->rest_at += (size_t)put;
        h->rest_n -= (size_t)put;
    }
    free(h->rest);
    h->rest = NULL;
    return 1;
}

/* 1 everything that is ready was written, 0 the socket is full, -1 closed. */
static int write_ready(struct conn *c)
{
    int rc = write_rest(c);
    while (rc == 1) {
        size_t n = http2_output(c->h2->session, c->w->write_buf, HTTP2_WRITE_BYTES);
        if (c->state != CONN_OPEN)
            return -1;
        if (n == 0)
            return 1;
        ssize_t put = write_some(c, c->w->write_buf, n);
        if (put < 0 || ((size_t)put < n && !keep_rest(c, c->w->write_buf + put, n - (size_t)put)))
            return -1;
        rc = write_rest(c);
    }
    return rc;
}

static void tell_writable(struct conn *c)
{
    LIST_EACH(node, &c->reqs)
    {
        http__tell_writable(LIST_ENTRY(node, struct req, node));
    }
}

/* The protocol has ended: requests that are left are gone, the socket lingers. */
static void finish(struct conn *c)
{
    struct list *n;
    while ((n = list_first(&c->reqs))) {
        metric_inc(c->w->server->m.lost);
        http__req_gone(LIST_ENTRY(n, struct req, node));
    }
    if (c->state != CONN_OPEN)
        return;
    http__conn_stop_reading(c);
    http__conn_linger(c);
}

bool http2__flush(struct conn *c)
{
    c->corked = true;
    int rc = write_ready(c);
    if (rc >= 0)
        tell_writable(c);
    c->corked = false;
    if (c->state == CONN_CLOSED)
        return false;
    if (rc == 0 && !c->blocked)
        c->wrote_ns = loop_now_ns(c->w->loop);
    c->blocked = rc == 0;
    if (rc == 0 || !http2_done(c->h2->session))
        return true;
    finish(c);
    return false;
}

/* --- ends --- */

void http2__eof(struct conn *c)
{
    LIST_EACH(node, &c->reqs)
    {
        struct req *q = LIST_ENTRY(node, struct req, node);
        if (!http2__is_reading(q))
            continue;
        metric_inc(c->w->server->m.lost);
        http2__cut(q, HTTP2_CANCEL, false); /* the rest of it will never come */
        if (c->state != CONN_OPEN)
            return;
    }
    c->closing = true;
    if (c->n_reqs == 0) {
        http__conn_close(c);
    } else if (!c->probed && !c->is_unix) {
        c->probed = true; /* as over HTTP/1.x: a socket that was closed answers with RST */
        http2_ping(c->h2->session);
    }
}

void http2__drain(struct conn *c)
{
    struct h2_conn *h = c->h2;
    if (h->notice_ns)
        return;
    h->notice_ns = loop_now_ns(c->w->loop);
    http2_shutdown(h->session);
    http__conn_flush_soon(c);
}

void http2__say_goaway(struct conn *c)
{
    if (c->h2->went)
        return;
    c->h2->went = true;
    http2_goaway(c->h2->session);
}

void http2__end(struct conn *c)
{
    c->h2->went = true;
    c->closing = true;
    http2_terminate(c->h2->session, HTTP2_NO_ERROR);
    http__conn_pump(c);
}

/* --- deadlines --- */

static uint64_t look_every_ns(const struct http_limits *l)
{
    uint64_t shortest = MIN_OF(MIN_OF(l->header_timeout_ns, l->body_timeout_ns), l->write_timeout_ns);
    return MIN_OF(MAX_OF(shortest / 4, MS), 1000 * MS);
}

uint64_t http2__look_at_ns(struct conn *c)
{
    struct h2_conn *h = c->h2;
    bool needed = c->n_reqs || h->head_since_ns || (h->notice_ns && !h->went);
    if (!needed)
        h->look_ns = 0;
    else if (!h->look_ns)
        h->look_ns = loop_now_ns(c->w->loop) + look_every_ns(&c->w->limits);
    return needed ? h->look_ns : UINT64_MAX;
}

static bool look_at_streams(struct conn *c, uint64_t now)
{
    LIST_EACH(node, &c->reqs)
    {
        if (!http2__look_at_stream(LIST_ENTRY(node, struct req, node), now))
            return false;
    }
    return true;
}

void http2__look(struct conn *c)
{
    struct h2_conn *h = c->h2;
    uint64_t now = loop_now_ns(c->w->loop);
    h->look_ns = 0;
    if (h->head_since_ns && now - h->head_since_ns >= c->w->limits.header_timeout_ns) {
        http__limit(c->w, LIMIT_HEADER_TIMEOUT);
        c->closing = true;
        http2_terminate(h->session, HTTP2_ENHANCE_YOUR_CALM);
        return;
    }
    if (h->notice_ns && now - h->notice_ns >= NOTICE_NS)
        http2__say_goaway(c);
    c->corked = true;
    while (c->state == CONN_OPEN && !look_at_streams(c, now))
        ;
    c->corked = false;
}
