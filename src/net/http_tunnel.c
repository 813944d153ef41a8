/* http_tunnel.c: an HTTP/1.1 connection that becomes a pair of byte streams (a WebSocket), behind a 101.
 *
 *   on_headers: http_tunnel_offer --reply--> an ordinary answer, and the connection's end behind it
 *                      \--http_tunnel_begin--> 101, then bytes both ways --http_stream_end--> over
 *
 * A tunnel is a request whose body is what the client sends from then on and whose reply is what is written: pieces go out as they are, what comes
 * in is handed out as it is, and both directions push back as a body and a stream do (http.h). So the connection's writing, its write timeout,
 * its end and its log record need to know nothing of it.
 *
 * From the offer on nothing behind the request's head is parsed. What a client sends before it has seen the 101 waits (one read's worth; the rest in
 * the socket) and belongs to the tunnel, or is dropped with the connection if there is none: were it read as the next request, who believes in a
 * tunnel in front of us could be made to carry requests past us (the Upgrade kind of request smuggling).
 *
 * Ends: the client's (a FIN) is the last, empty piece; ours is http_tunnel_shut. Each may come first, and the other direction goes on. Both
 * are behind us when the handler calls http_stream_end. Loop thread, as all of the connection. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/size.h"
#include "base/status.h"
#include "net/http_priv.h"

/* ---- offering ---- */

int http_tunnel_offer(struct http_request *r, struct error *err)
{
    struct req *q = http__req_of(r);
    struct http_server *s = q->w->server;
    uint32_t most = q->w->limits.max_tunnels;
    ASSERT(q->conn && !q->h2 && r->version == 11 && q->state == REQ_READING);
    q->keep_alive = false; /* whatever comes of it */
    q->tunnel_offered = true;
    uint64_t before = atomic_fetch_add_explicit(&s->tunnels, 1, memory_order_relaxed);
    if (most && before >= most) {
        http__limit(q->w, LIMIT_TUNNELS);
        return error_set(err, STATUS_UNAVAILABLE, "the server has as many WebSockets as it may (%u); try again later", most);
    }
    return 0;
}

bool http_tunnel_offered(const struct http_request *r)
{
    return ((const struct req *)r)->tunnel_offered;
}

/* ---- beginning ---- */

static void write_head(struct buf *b, const struct req *q, struct str protocol, const struct http_header *headers, size_t n)
{
    const char *server = q->w->server->server_header;
    buf_clear(b);
    http1_write_status(b, 101);
    http1_write_header(b, STR("Date"), (struct str){http__date(q->w), 29});
    if (server)
        http1_write_header(b, STR("Server"), str_of(server));
    http1_write_header(b, STR("Connection"), STR("Upgrade"));
    WARN_ON(!http1_write_header(b, STR("Upgrade"), protocol));
    http__put_headers(b, q, headers, n);
}

void http_tunnel_begin(struct http_request *r, struct str protocol, const struct http_header *headers, size_t n,
                       const struct http_tunnel_events *events)
{
    struct req *q = http__req_of(r);
    struct buf *b = &q->w->scratch;
    ASSERT(q->state == REQ_WAITING && q->tunnel_offered);
    q->state = REQ_STREAM;
    q->on_writable = events->writable;
    q->tunnel = events;
    q->close_after = true;
    r->on_body = events->input;
    if (!q->conn) {
        r->reply_status = 499;
        return;
    }
    r->reply_status = 101;
    q->tunnel_up = true;
    metric_adjust(q->w->server->m.tunnels, 1);
    write_head(b, q, protocol, headers, n);
    char *copy = b->failed || fault_point("http_tunnel") ? NULL : arena_alloc(&q->arena, b->n);
    if (!copy) { /* the client sees a cut connection; the handler hears that it has left */
        q->conn->broken = true;
        http__conn_flush_soon(q->conn);
        return;
    }
    memcpy(copy, b->p, b->n);
    http_stream_write(r, slice_borrow(copy, b->n));
    if (q->w->draining)
        events->drain(r);
}

void http_tunnel_shut(struct http_request *r)
{
    struct req *q = http__req_of(r);
    ASSERT(q->tunnel && q->state == REQ_STREAM);
    q->tunnel_shut = true;
    if (q->conn)
        http__conn_flush_soon(q->conn);
}

/* ---- what the connection calls ---- */

void http__tunnel_over(struct req *q)
{
    struct http_server *s = q->w->server;
    atomic_fetch_sub_explicit(&s->tunnels, 1, memory_order_relaxed);
    if (q->tunnel_up)
        metric_adjust(s->m.tunnels, -1);
    q->tunnel_up = q->tunnel_offered = false;
}

/* May the handler be given more? */
static bool takes(const struct req *q)
{
    return q->state == REQ_STREAM && !http__req_is_full(q);
}

static void hand_over(struct conn *c, const void *p, size_t n)
{
    struct req *q = c->tunnel;
    q->pub.wire_in_bytes += n;
    http__req_piece(q, slice_borrow(p, n), n == 0);
}

bool http__tunnel_read(struct conn *c)
{
    struct req *q = c->tunnel;
    if (!takes(q) || c->pend_n) {
        c->paused = true;
        return false;
    }
    ssize_t n = http__conn_recv(c, c->w->read_buf, HTTP_READ_BYTES);
    if (n < 0) {
        if (n != STATUS_AGAIN)
            http__conn_close(c);
        return false;
    }
    if (n == 0)
        c->eof = c->half = true;
    metric_add(c->w->server->m.bytes_in, (uint64_t)n);
    hand_over(c, c->w->read_buf, (size_t)n);
    return n == HTTP_READ_BYTES && c->state == CONN_OPEN && c->tunnel == q;
}

bool http__tunnel_resume(struct conn *c)
{
    if (!c->paused || !takes(c->tunnel))
        return false;
    c->paused = false;
    if (c->pend_n == 0)
        return false;
    char *data = c->pend; /* the handler may end the connection, which frees pend */
    size_t n = c->pend_n;
    c->pend = NULL;
    c->pend_n = 0;
    hand_over(c, data, n);
    free(data);
    return c->state == CONN_OPEN && c->tunnel;
}

void http__tunnel_flushed(struct conn *c)
{
    struct req *q = c->tunnel;
    if (!q->tunnel_shut || q->out || c->shut)
        return;
    c->shut = true;
    if (c->tls)
        tls_conn_finish(c->tls);
    os_sock_shutdown(c->watch.fd);
}

bool http__tunnel_closed(struct conn *c)
{
    struct req *q = c->tunnel;
    while (c->state == CONN_OPEN && c->tunnel == q && !c->eof && takes(q))
        if (!http__tunnel_read(c) && !c->eof)
            break;
    if (c->state != CONN_OPEN || c->tunnel != q)
        return true;
    if (!c->eof || q->state != REQ_REPLIED)
        return false;
    http__conn_pump(c);
    return true;
}

void http__tunnel_drain(struct conn *c)
{
    struct req *q = c->tunnel;
    if (q->state == REQ_STREAM && q->tunnel)
        q->tunnel->drain(&q->pub);
}
