/* http2_stream.c: a request that came over HTTP/2: from wire/http2.h's events to the same struct req that HTTP/1.x makes, and its
 * reply back.
 *
 * A stream's object lives in its request's arena. nghttp2 holds it as the stream's user data until the stream is closed or cut:
 *
 *     begin --head--> READING --end--> WAITING --reply--> REPLIED --last byte put out--> closed: finished
 *                        \--on_body: WAITING at once, pieces follow, the reply may overtake them
 *     closed early (reset by the client), http2__cut (by us): the request is gone
 *
 * Windows. The connection's is given back as bytes come (wire/http2.c). A stream's is given back as bytes are stored, or, with on_body, when
 * the handler has consumed them: what one handler does not take stops one stream and costs its window at most. */
#include <string.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/size.h"
#include "base/status.h"
#include "net/http_priv.h"

struct h2_stream {
    struct http2_stream wire;
    struct req *q;
    struct http1_parser head; /* as http_req.c wants to see it */
    uint64_t moved_ns;        /* reply bytes were put out, or the first came to wait */
    size_t unconsumed;        /* handed to on_body and not given back */
    bool reading;             /* the client has not ended the request */
    bool begun;               /* the reply's head was handed to the session */
};

static struct h2_stream *of(struct http2_stream *s)
{
    return CONTAINER_OF(s, struct h2_stream, wire);
}

bool http2__is_reading(const struct req *q)
{
    return q->h2->reading;
}

/* --- ending a request early --- */

void http2__cut(struct req *q, enum http2_code code, bool fault)
{
    struct conn *c = q->conn;
    struct http2 *session = http2__session(c);
    http2_reset(session, &q->h2->wire, code, fault);
    http2_detach(session, &q->h2->wire);
    q->h2->reading = false;
    http__req_gone(q);
    http__conn_flush_soon(c);
}

void http2__abandon(struct req *q)
{
    http2_reset(http2__session(q->conn), &q->h2->wire, HTTP2_INTERNAL_ERROR, false);
}

/* Answer with an error, or, when the handler is already at it, reset the stream. */
static void refuse(struct req *q, int status, const char *text)
{
    if (q->state != REQ_READING) {
        http2__cut(q, status == 503 ? HTTP2_REFUSED_STREAM : HTTP2_CANCEL, status < 500);
        return;
    }
    http__reply_error(q, status, text, status == 503 ? 1 : 0, q->announced);
}

/* --- events --- */

static struct http2_stream *on_begin(void *user)
{
    struct conn *c = user;
    if (c->state != CONN_OPEN)
        return NULL;
    struct req *q = http__req_begin(c);
    if (!q)
        return NULL;
    list_remove(&c->idle_node);
    q->h2 = fault_point("http2_stream") ? NULL : ARENA_NEW(&q->arena, struct h2_stream);
    if (!q->h2) {
        http__req_gone(q);
        return NULL;
    }
    q->h2->q = q;
    q->h2->wire.arena = &q->arena;
    q->h2->wire.linger = true;
    q->rate_since_ns = loop_now_ns(c->w->loop);
    q->h2->reading = true;
    return &q->h2->wire;
}

static void fill_head(struct h2_stream *s)
{
    const struct http2_stream *w = &s->wire;
    s->head = (struct http1_parser){
        .method = w->method,
        .target = w->path,
        .url = w->url,
        .headers = w->headers,
        .n_headers = w->n_headers,
        .minor = 1,
        .body = !w->has_body    ? HTTP1_NO_BODY
                : w->has_length ? HTTP1_LENGTH
                                : HTTP1_UNTIL_EOF,
        .content_length = w->content_length,
        .keep_alive = true,
    };
}

static void count_served(struct conn *c)
{
    uint32_t most = c->w->limits.max_requests;
    c->served++;
    if (most && c->served == most) {
        http__limit(c->w, LIMIT_REQUESTS);
        http2__drain(c);
    }
}

static void refuse_head(struct req *q, const struct http2_stream *w)
{
    metric_inc(q->w->server->m.malformed);
    if (w->error_status == 414)
        http__limit(q->w, LIMIT_URL);
    else if (w->error_status == 431)
        http__limit(q->w, LIMIT_HEADERS);
    refuse(q, w->error_status, w->error_text);
}

static void on_head(void *user, struct http2_stream *w)
{
    struct conn *c = user;
    struct h2_stream *s = of(w);
    struct req *q = s->q;
    struct error err = {0};
    if (c->state != CONN_OPEN)
        return;
    q->pub.wire_in_bytes = w->head_bytes;
    w->linger = !w->expect_continue;
    count_served(c);
    if (w->error_status) {
        refuse_head(q, w);
        return;
    }
    fill_head(s);
    int status = http__req_head(q, &s->head, &err);
    if (status) {
        refuse(q, status, err.text);
        return;
    }
    w->linger = !q->pub.on_body;
    if (w->expect_continue)
        http2_continue(http2__session(c), w);
    if (q->pub.on_body)
        http__req_run(q);
}

static void take_piece(struct req *q, const uint8_t *p, size_t n)
{
    q->body_wire_bytes += n;
    if (q->body_wire_bytes > q->pub.body_limit_bytes) {
        http__limit(q->w, LIMIT_BODY);
        refuse(q, 413, NULL);
        return;
    }
    q->h2->unconsumed += n;
    http__req_piece(q, slice_borrow(p, n), false);
}

/* The reply is, or will be, followed by the reset that tells the client to stop. */
static void stop_lingering(struct req *q)
{
    struct http2_stream *w = &q->h2->wire;
    if (w->linger && w->answered)
        http2_reset(http2__session(q->conn), w, HTTP2_NO_ERROR, false);
    w->linger = false;
}

/* A body behind its reply. Many clients read the reply only when they have sent all of it, so it may come, as long as another request's might. */
static void discard(struct req *q, struct http2_stream *w, size_t n)
{
    q->body_wire_bytes += n;
    if (w->linger && q->body_wire_bytes <= q->w->limits.max_body_bytes)
        http2_consume(http2__session(q->conn), w, n);
    else
        stop_lingering(q);
}

static void on_body(void *user, struct http2_stream *w, const uint8_t *p, size_t n)
{
    struct conn *c = user;
    struct req *q = of(w)->q;
    struct error err = {0};
    if (c->state != CONN_OPEN)
        return;
    q->pub.wire_in_bytes += n;
    if (q->state >= REQ_REPLIED) {
        discard(q, w, n);
        return;
    }
    if (q->pub.on_body) {
        take_piece(q, p, n);
        return;
    }
    int status = http__req_body(q, &of(w)->head, (const char *)p, n, &err);
    if (status)
        refuse(q, status, err.text);
    else
        http2_consume(http2__session(c), w, n);
}

static void on_end(void *user, struct http2_stream *w)
{
    struct conn *c = user;
    struct h2_stream *s = of(w);
    struct req *q = s->q;
    struct error err = {0};
    s->reading = false;
    if (c->state != CONN_OPEN)
        return;
    if (q->pub.on_body && q->announced) {
        q->pub.received_ns = loop_now_ns(c->w->loop);
        http__req_piece(q, (struct slice){0}, true);
        return;
    }
    if (q->state != REQ_READING)
        return;
    int status = http__req_end(q, &err);
    if (status)
        refuse(q, status, err.text);
    else
        http__req_run(q);
}

static void on_closed(void *user, struct http2_stream *w, bool complete)
{
    struct conn *c = user;
    struct req *q = of(w)->q;
    if (c->state != CONN_OPEN)
        return;
    if (complete && q->state == REQ_REPLIED) {
        http__req_finish(q);
        return;
    }
    metric_inc(c->w->server->m.lost);
    http__req_gone(q);
}

static size_t on_pending(void *user, struct http2_stream *w, bool *last)
{
    struct conn *c = user;
    struct req *q = of(w)->q;
    *last = q->state == REQ_REPLIED;
    return c->state == CONN_OPEN ? q->out_bytes : 0;
}

static void on_fill(void *user, struct http2_stream *w, uint8_t *to, size_t n)
{
    struct conn *c = user;
    of(w)->moved_ns = loop_now_ns(c->w->loop);
    http__out_take(of(w)->q, to, n);
}

static void on_glitch(void *user, enum http2_glitch g)
{
    struct conn *c = user;
    metric_inc(c->w->server->m.glitch[g]);
}

static void on_overdrawn(void *user)
{
    struct conn *c = user;
    http__limit(c->w, LIMIT_HTTP2_GLITCHES);
}

static void on_shutdown_seen(void *user)
{
    http2__say_goaway(user);
}

const struct http2_events http2__events = {
    .begin = on_begin,
    .head = on_head,
    .body = on_body,
    .end = on_end,
    .closed = on_closed,
    .pending = on_pending,
    .fill = on_fill,
    .glitch = on_glitch,
    .overdrawn = on_overdrawn,
    .shutdown_seen = on_shutdown_seen,
};

/* --- replies --- */

bool http2__head(struct req *q, int status, const char *content_type, const struct http_header *headers, size_t n,
                 int64_t length, bool body)
{
    struct http_worker *w = q->w;
    struct http_header *all = fault_point("http2_reply")
                                  ? NULL
                                  : arena_array(&q->arena, n + q->pub.n_reply_headers + q->pub.n_own_headers + 4, sizeof *all);
    size_t at = 0;
    char *date = arena_strdup(&q->arena, (struct str){http__date(w), 29});
    q->pub.reply_status = status;
    if (!all || !date)
        return false;
    if (content_type)
        all[at++] = (struct http_header){STR("content-type"), str_of(content_type)};
    if (length > 0) {
        char *digits = arena_printf(&q->arena, "%lld", (long long)length);
        if (!digits)
            return false;
        all[at++] = (struct http_header){STR("content-length"), str_of(digits)};
    }
    all[at++] = (struct http_header){STR("date"), {date, 29}};
    if (w->server->server_header)
        all[at++] = (struct http_header){STR("server"), str_of(w->server->server_header)};
    if (n)
        memcpy(all + at, headers, n * sizeof *all);
    at += n;
    if (q->pub.n_reply_headers)
        memcpy(all + at, q->pub.reply_headers, q->pub.n_reply_headers * sizeof *all);
    at += q->pub.n_reply_headers;
    if (q->pub.n_own_headers)
        memcpy(all + at, q->pub.own_headers, q->pub.n_own_headers * sizeof *all);
    at += q->pub.n_own_headers;
    q->h2->begun = true;
    q->h2->moved_ns = loop_now_ns(w->loop);
    return http2_respond(http2__session(q->conn), &q->h2->wire, status, all, at, body) == 0;
}

bool http2__trailers(struct req *q, const struct http_header *trailers, size_t n)
{
    struct http_header *copy = arena_array(&q->arena, n, sizeof *copy);
    if (!copy)
        return false;
    for (size_t i = 0; i < n; i++) {
        const char *name = arena_strdup(&q->arena, trailers[i].name), *value = arena_strdup(&q->arena, trailers[i].value);
        if (!name || !value)
            return false;
        copy[i] = (struct http_header){{name, trailers[i].name.n}, {value, trailers[i].value.n}};
    }
    http2_set_trailers(&q->h2->wire, copy, n);
    return true;
}

void http2__ready(struct req *q)
{
    if (q->h2->wire.deferred) /* nothing was waiting to be sent until now */
        q->h2->moved_ns = loop_now_ns(q->w->loop);
    http2_resume(http2__session(q->conn), &q->h2->wire);
    http__conn_flush_soon(q->conn);
}

void http2__consumed(struct req *q, size_t n)
{
    struct h2_stream *s = q->h2;
    ASSERT(n <= s->unconsumed);
    s->unconsumed -= n;
    http2_consume(http2__session(q->conn), &s->wire, n);
    http__conn_flush_soon(q->conn);
}

/* --- deadlines --- */

static bool body_is_late(struct req *q, uint64_t now_ns)
{
    struct h2_stream *s = q->h2;
    bool handler_paces = q->pub.on_body && (q->pub.body_unhurried || s->unconsumed);
    bool lingers = s->wire.answered && s->wire.linger;
    if (!s->reading || !(lingers || (q->announced && q->state < REQ_REPLIED)))
        return false;
    if (handler_paces) {
        q->rate_since_ns = now_ns;
        q->rate_since_bytes = q->body_wire_bytes;
        return false;
    }
    return now_ns - q->rate_since_ns >= q->w->limits.body_timeout_ns && !http__body_fast_enough(q);
}

bool http2__look_at_stream(struct req *q, uint64_t now_ns)
{
    struct h2_stream *s = q->h2;
    const struct http_limits *l = &q->w->limits;
    /* what waits is the socket's business while that is full; else the client has closed its window */
    if (s->begun && !s->wire.answered && !q->conn->blocked && (q->out_bytes || q->state == REQ_REPLIED) &&
        now_ns - s->moved_ns >= l->write_timeout_ns) {
        http__limit(q->w, LIMIT_WRITE_TIMEOUT);
        metric_inc(q->w->server->m.lost);
        http2__cut(q, HTTP2_CANCEL, true);
        return false;
    }
    if (!body_is_late(q, now_ns))
        return true;
    http__limit(q->w, LIMIT_BODY_TIMEOUT);
    if (s->wire.answered) {
        stop_lingering(q);
        return true;
    }
    s->wire.linger = false;
    refuse(q, 408, "the request's body did not arrive in time");
    return false;
}
