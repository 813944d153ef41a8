/* exchange_h1.c: an exchange over HTTP/1.1: it has its connection to itself from take to the answer's end. The request is written anew from
 * its parts; nothing of the client's message goes on as bytes. */
#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "gateway/gateway_priv.h"

#define HEAD_BYTES 1024 /* most fit: no growing step by step */

static struct conn *conn_of(struct http_channel *ch)
{
    return CONTAINER_OF(ch, struct conn, channel);
}

/* The exchange is over, whoever ended it. */
static struct exchange *detach(struct conn *c)
{
    struct exchange *x = c->x;
    c->x = NULL;
    x->ops = NULL;
    x->conn = NULL;
    return x;
}

/* ---- callbacks ---- */

/* ALPN chose HTTP/2 for a connection that could be either. */
static void become_h2(struct conn *c)
{
    struct exchange *x = detach(c);
    struct error err;
    bool fresh = x->fresh;
    c->is_h2 = true;
    c->peer->speaks_h2 = true;
    if (!h2__start(c, &err)) {
        peers__drop(c);
        x->unsent = true;
        x->events->failed(x, &err);
        return;
    }
    if (!fresh)
        list_push_back(&c->peer->h2, &c->idle);
    h2__join(c, x);
    x->reused = false;
    x->events->connected(x);
}

static void on_connected(struct http_channel *ch)
{
    struct exchange *x = conn_of(ch)->x;
    if (conn_of(ch)->warming) {
        peers__warm(conn_of(ch));
        peers__give(conn_of(ch));
        return;
    }
    if (ch->dial.tls && tls_conn_is_h2(ch->dial.tls)) {
        become_h2(conn_of(ch));
        return;
    }
    x->connecting = false;
    x->events->connected(x);
}

static struct exchange *take_head(struct http_channel *ch)
{
    struct exchange *x = conn_of(ch)->x;
    const struct http1_parser *p = &ch->parser;
    x->heard = true;
    x->status = p->status;
    x->headers = p->headers;
    x->n_headers = p->n_headers;
    return x;
}

static void on_head(struct http_channel *ch)
{
    struct exchange *x = take_head(ch);
    const struct http1_parser *p = &ch->parser;
    x->answer_body = p->body;
    x->content_length = p->content_length;
    x->events->head(x);
}

static void on_body(struct http_channel *ch, struct str part)
{
    struct exchange *x = conn_of(ch)->x;
    x->events->body(x, part);
}

/* The answer's head, and that nothing else is HTTP. */
static void on_switched(struct http_channel *ch)
{
    struct exchange *x = take_head(ch);
    x->events->switched(x);
}

static void on_ended(struct http_channel *ch)
{
    struct exchange *x = conn_of(ch)->x;
    x->events->ended(x);
}

static void on_done(struct http_channel *ch, int status)
{
    struct conn *c = conn_of(ch);
    struct exchange *x = detach(c);
    (void)status;
    x->events->done(x);
    if (x->fresh)
        peers__drop(c);
    else
        peers__give(c);
}

static enum exchange_fault fault_of(const struct http_channel *ch, const struct exchange *x, const struct error *err)
{
    if (x->connecting)
        return exchange__connect_fault(&ch->dial);
    if (err->code == STATUS_INVALID)
        return ch->parser.error_status == 431 ? EXCHANGE_HEAD_TOO_LARGE : EXCHANGE_GARBAGE;
    if (x->status && x->answer_body == HTTP1_LENGTH)
        return EXCHANGE_SHORT;
    return x->heard ? EXCHANGE_CUT : EXCHANGE_CLOSED;
}

static void on_failed(struct http_channel *ch, const struct error *err)
{
    struct conn *c = conn_of(ch);
    if (!c->x) { /* idle, and closed by the other side */
        peers__drop(c);
        return;
    }
    struct exchange *x = detach(c);
    x->heard |= ch->first_byte_ns && !x->connecting;
    x->fault = fault_of(ch, x, err);
    x->tls_failed = ch->dial.tls_failed;
    if (x->tls_failed)
        peers__tls_failed(c, err);
    peers__drop(c);
    x->events->failed(x, err);
}

static struct str on_body_next(struct http_channel *ch, bool *last)
{
    struct exchange *x = conn_of(ch)->x;
    return x->events->pending(x, last);
}

static void on_body_taken(struct http_channel *ch, size_t n)
{
    struct exchange *x = conn_of(ch)->x;
    x->events->taken(x, n);
}

void h1__attach(struct conn *c)
{
    c->channel.connected = on_connected;
    c->channel.head = on_head;
    c->channel.body = on_body;
    c->channel.done = on_done;
    c->channel.failed = on_failed;
    c->channel.body_next = on_body_next;
    c->channel.body_taken = on_body_taken;
    c->channel.switched = on_switched;
    c->channel.ended = on_ended;
}

/* ---- ops ---- */

static void write_head(struct buf *out, const struct exchange_request *r)
{
    buf_clear(out);
    buf_reserve(out, HEAD_BYTES);
    buf_append_str(out, r->method);
    buf_append_c(out, ' ');
    buf_append_str(out, r->path);
    if (r->query.n) {
        buf_append_c(out, '?');
        buf_append_str(out, r->query);
    }
    buf_append_z(out, " HTTP/1.1\r\n");
    http1_write_header(out, STR("Host"), r->authority);
    for (size_t i = 0; i < r->n_headers; i++)
        WARN_ON(!http1_write_header(out, r->headers[i].name, r->headers[i].value));
    if (r->body == EXCHANGE_LENGTH)
        http1_write_header_u64(out, "Content-Length", r->length);
    else if (r->body == EXCHANGE_STREAM)
        buf_append_z(out, "Transfer-Encoding: chunked\r\n");
    if (r->upgrade.n) {
        http1_write_header(out, STR("Connection"), STR("Upgrade"));
        http1_write_header(out, STR("Upgrade"), r->upgrade);
    }
    buf_append_z(out, "\r\n");
}

static void h1_send(struct exchange *x, const struct exchange_request *r)
{
    struct conn *c = x->conn;
    struct error err;
    write_head(&c->head, r);
    c->channel.head_request = r->head;
    c->channel.upgrade = r->upgrade.n;
    if (c->head.failed) {
        error_set(&err, STATUS_NOMEM, "out of memory for this request; try again later");
        detach(c);
        peers__drop(c);
        x->unsent = true;
        x->events->failed(x, &err);
    } else if (r->body == EXCHANGE_NO_BODY) {
        http_channel_send(&c->channel, buf_str(&c->head));
    } else {
        http_channel_send_stream(&c->channel, buf_str(&c->head), r->body == EXCHANGE_STREAM);
    }
}

static void h1_more(struct exchange *x)
{
    http_channel_more(&x->conn->channel);
}

static void h1_pause(struct exchange *x, bool paused)
{
    http_channel_pause(&x->conn->channel, paused);
}

static void h1_drop(struct exchange *x)
{
    peers__drop(x->conn);
    x->ops = NULL;
    x->conn = NULL;
}

const struct exchange_ops h1__ops = {.send = h1_send, .more = h1_more, .pause = h1_pause, .drop = h1_drop};
