/* http_out.c: replies: building the head, queueing pieces on the request, writing them in the order of the requests.
 *
 * There is no output buffer. A request owns the pieces of its reply (slices of slabs and arena memory), and writing gathers
 * pieces from the front of the connection's request list into one sendmsg, as far as replies are ready in order. A request
 * ends when its last piece is written.
 *
 * Streams are flushed at the end of the loop's iteration, so that what was produced in one iteration leaves in one call; whole
 * replies leave at once. */
#include <string.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/size.h"
#include "base/status.h"
#include "net/http_priv.h"
#include "os/clock.h"

#define CONTINUE   "HTTP/1.1 100 Continue\r\n\r\n"
#define SECOND     1000000000ull
#define FLAT_BYTES 2048

const char *http__date(struct http_worker *w)
{
    uint64_t now = loop_now_ns(w->loop);
    if (now >= w->date_until_ns) {
        uint64_t wall = os_wall_ns();
        http1_date(w->date, wall / SECOND);
        w->date_until_ns = now + SECOND - wall % SECOND;
    }
    return w->date;
}

/* --- pieces --- */

static struct piece *piece_new(struct req *q)
{
    struct piece *p = q->spare;
    if (p)
        q->spare = p->next;
    else
        p = arena_alloc(&q->arena, sizeof *p);
    if (p)
        *p = (struct piece){0};
    return p;
}

static void piece_queue(struct req *q, struct piece *p)
{
    *q->out_tail = p;
    q->out_tail = &p->next;
    q->out_bytes += p->head_n + p->s.n + p->crlf * 2u;
}

static bool queue_slice(struct req *q, struct slice s)
{
    struct piece *p = piece_new(q);
    if (!p) {
        slice_release(&s);
        return false;
    }
    p->s = s;
    piece_queue(q, p);
    return true;
}

static void piece_pop(struct req *q)
{
    struct piece *p = q->out;
    q->out = p->next;
    if (!q->out)
        q->out_tail = &q->out;
    slice_release(&p->s);
    p->next = q->spare;
    q->spare = p;
    q->out_skip = 0;
}

void http__req_drop_out(struct req *q)
{
    while (q->out)
        piece_pop(q);
    q->out_bytes = 0;
}

void http__out_take(struct req *q, uint8_t *to, size_t n)
{
    q->out_bytes -= n;
    q->pub.wire_out_bytes += n;
    while (n) {
        size_t take = MIN_OF(n, q->out->s.n - q->out_skip);
        memcpy(to, q->out->s.p + q->out_skip, take);
        q->out_skip += take;
        to += take;
        n -= take;
        if (q->out_skip == q->out->s.n)
            piece_pop(q);
    }
}

/* --- heads --- */

static bool has_no_body(int status)
{
    return status / 100 == 1 || status == 204 || status == 304;
}

/* Over HTTP/1.x: pieces of the request, or at least its end, are still to come. */
static bool is_being_read(const struct req *q)
{
    return q->conn && !q->h2 && q->conn->cur == q && q->pub.on_body;
}

/* A reply that begins before its request's body has ended. */
static bool overtakes(const struct req *q)
{
    return is_being_read(q) && q->conn->parser.body != HTTP1_NO_BODY;
}

static void decide_close(struct req *q)
{
    bool last = !q->conn || q->conn->reqs.prev == &q->node;
    if (!q->keep_alive || (last && (q->w->draining || q->w->stopping)) || overtakes(q))
        q->close_after = true;
}

void http__put_headers(struct buf *b, const struct req *q, const struct http_header *headers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        WARN_ON(!http1_write_header(b, headers[i].name, headers[i].value));
    for (size_t i = 0; i < q->pub.n_reply_headers; i++)
        WARN_ON(!http1_write_header(b, q->pub.reply_headers[i].name, q->pub.reply_headers[i].value));
    for (size_t i = 0; i < q->pub.n_own_headers; i++)
        http1_put_header(b, q->pub.own_headers[i].name, q->pub.own_headers[i].value);
    buf_append(b, "\r\n", 2);
}

/* Build the head and queue it. `length` < 0: a stream. False: out of memory. */
static bool queue_head(struct req *q, int status, const char *content_type, const struct http_header *headers, size_t n_headers,
                       int64_t length)
{
    struct http_worker *w = q->w;
    struct buf *b = &w->scratch;
    q->pub.reply_status = status;
    decide_close(q);
    if (q->close_after && q->conn && !is_being_read(q))
        http__conn_stop_reading(q->conn);
    buf_clear(b);
    http1_write_status(b, status);
    if (content_type)
        http1_write_header(b, STR("Content-Type"), str_of(content_type));
    if (length >= 0 && !has_no_body(status))
        http1_write_header_u64(b, "Content-Length", (uint64_t)length);
    else if (q->chunked_out)
        buf_append_z(b, "Transfer-Encoding: chunked\r\n");
    buf_append_z(b, "Date: ");
    buf_append(b, http__date(w), 29);
    buf_append(b, "\r\n", 2);
    if (w->server->server_header)
        http1_write_header(b, STR("Server"), str_of(w->server->server_header));
    if (q->close_after)
        buf_append_z(b, "Connection: close\r\n");
    else if (q->http10)
        buf_append_z(b, "Connection: keep-alive\r\n");
    http__put_headers(b, q, headers, n_headers);
    char *copy = b->failed || fault_point("http_reply") ? NULL : arena_alloc(&q->arena, b->n);
    if (!copy)
        return false;
    memcpy(copy, b->p, b->n);
    return queue_slice(q, slice_borrow(copy, b->n));
}

/* No memory for a reply: the client gets a cut connection or stream, which it can tell from an answer. */
/* The reply can't be finished: over HTTP/1.x the connection is cut, over HTTP/2 the stream. */
static void reply_failed(struct req *q)
{
    q->state = REQ_REPLIED;
    if (q->conn && q->h2) {
        http2__cut(q, HTTP2_INTERNAL_ERROR, false);
        return;
    }
    if (q->conn)
        http__conn_close(q->conn);
    else
        http__req_finish(q);
}

static void reply_queued(struct req *q)
{
    struct conn *c = q->conn;
    q->state = REQ_REPLIED;
    if (!c)
        http__req_finish(q);
    else if (q->h2)
        http2__ready(q);
    else if (!c->corked)
        http__conn_pump(c);
}

static void release_all(struct slice *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        slice_release(&s[i]);
}

void http_reply(struct http_request *r, int status, const char *content_type, const struct http_header *headers,
                size_t n_headers, struct slice *body, size_t n_body)
{
    struct req *q = http__req_of(r);
    uint64_t length = 0;
    ASSERT(q->state == REQ_WAITING);
    for (size_t i = 0; i < n_body; i++)
        length += body[i].n;
    if (!q->conn) {
        r->reply_status = 499;
        release_all(body, n_body);
        reply_queued(q);
        return;
    }
    bool send = !q->head_only && !has_no_body(status), ok;
    int64_t says = q->head_only && r->has_head_length ? r->head_length : (int64_t)length;
    if (q->h2)
        ok = http2__head(q, status, content_type, headers, n_headers, has_no_body(status) ? -1 : says, send && length > 0);
    else
        ok = queue_head(q, status, content_type, headers, n_headers, says);
    send = send && ok;
    for (size_t i = 0; i < n_body; i++)
        if (send && body[i].n)
            ok = queue_slice(q, body[i]) && ok;
        else
            slice_release(&body[i]);
    if (ok)
        reply_queued(q);
    else
        reply_failed(q);
}

/* The body of an error, in the handler's format, in the request's arena. */
static struct slice error_body(struct req *q, int status, const char *text, bool announced, const char **type)
{
    const struct http_handler *h = &q->w->server->handler;
    struct buf b;
    buf_init(&b);
    *type = "text/plain; charset=utf-8";
    if (h->on_error)
        *type = h->on_error(h->ctx, announced ? &q->pub : NULL, status, text, &b);
    else
        buf_append_z(&b, text);
    char *copy = b.failed ? NULL : arena_alloc(&q->arena, b.n);
    if (copy && b.n)
        memcpy(copy, b.p, b.n);
    struct slice s = slice_borrow(copy, copy ? b.n : 0);
    buf_release(&b);
    return s;
}

void http__reply_error(struct req *q, int status, const char *text, uint32_t retry_after_s, bool announced)
{
    const struct http_handler *h = &q->w->server->handler;
    const char *type;
    char seconds[16];
    if (announced && q->pub.retry_after_s)
        retry_after_s = q->pub.retry_after_s == UINT32_MAX ? 0 : q->pub.retry_after_s;
    struct buf digits;
    q->state = REQ_WAITING;
    if (announced && h->on_refuse && h->on_refuse(h->ctx, &q->pub, status, text, retry_after_s))
        return;
    struct slice body = error_body(q, status, text, announced, &type);
    buf_init(&digits);
    buf_append_u64(&digits, retry_after_s);
    size_t n = MIN_OF(digits.n, sizeof seconds);
    if (n)
        memcpy(seconds, digits.p, n);
    buf_release(&digits);
    struct http_header headers[3];
    size_t n_headers = 0;
    if (announced && q->pub.request_id.n)
        headers[n_headers++] = (struct http_header){STR("x-request-id"), q->pub.request_id};
    if (retry_after_s > 0 && (status == 429 || status == 503))
        headers[n_headers++] = (struct http_header){STR("Retry-After"), {seconds, n}};
    if (status == 405 && q->pub.allow)
        headers[n_headers++] = (struct http_header){STR("Allow"), str_of(q->pub.allow)};
    q->state = REQ_WAITING;
    http_reply(&q->pub, status, type, headers, n_headers, &body, 1);
}

void http_reply_error(struct http_request *r, int status, const char *text, uint32_t retry_after_s)
{
    ASSERT(http__req_of(r)->state == REQ_WAITING);
    http__reply_error(http__req_of(r), status_http(status), text, retry_after_s, true);
}

/* --- streams --- */

/* A stream that has begun can't go on. Its handler hears of it as of a client that has left, but not from within its own call. */
static void lose(struct req *q)
{
    if (q->h2)
        http2__abandon(q);
    else
        q->conn->broken = true;
    http__conn_flush_soon(q->conn);
}

void http_stream_begin(struct http_request *r, int status, const char *content_type, const struct http_header *headers,
                       size_t n_headers, void (*on_writable)(struct http_request *r))
{
    struct req *q = http__req_of(r);
    ASSERT(q->state == REQ_WAITING && !has_no_body(status));
    q->state = REQ_STREAM;
    q->on_writable = on_writable;
    q->chunked_out = !q->http10 && !q->h2;
    if (q->http10)
        q->keep_alive = false; /* the end of the body is the end of the connection */
    if (!q->conn) {
        r->reply_status = 499;
        return;
    }
    bool ok = q->h2 ? http2__head(q, status, content_type, headers, n_headers, -1, true)
                    : queue_head(q, status, content_type, headers, n_headers, -1);
    if (!ok) {
        lose(q);
        return;
    }
    http__conn_flush_soon(q->conn);
}

bool http_stream_write(struct http_request *r, struct slice s)
{
    struct req *q = http__req_of(r);
    ASSERT(q->state == REQ_STREAM);
    struct piece *p = NULL;
    if (q->conn && s.n && !q->head_only) {
        p = piece_new(q);
        if (!p)
            lose(q); /* the client must see that something is missing */
    }
    if (!p) {
        slice_release(&s);
        return true;
    }
    p->s = s;
    if (q->chunked_out) {
        p->head_n = (uint8_t)http1_chunk_head(p->head, s.n);
        p->crlf = 1;
    }
    piece_queue(q, p);
    if (q->h2)
        http2__ready(q);
    else
        http__conn_flush_soon(q->conn);
    q->waits_writable = q->out_bytes > HTTP_STREAM_HIGH_BYTES;
    return !q->waits_writable;
}

void http_stream_end(struct http_request *r)
{
    struct req *q = http__req_of(r);
    ASSERT(q->state == REQ_STREAM);
    if (!q->conn) {
        reply_queued(q);
        return;
    }
    if (q->chunked_out && !q->head_only && !queue_slice(q, slice_borrow(HTTP1_LAST_CHUNK, sizeof HTTP1_LAST_CHUNK - 1))) {
        reply_failed(q);
        return;
    }
    q->waits_writable = false;
    if (q->h2) {
        reply_queued(q);
        return;
    }
    q->state = REQ_REPLIED;
    http__conn_flush_soon(q->conn);
}

void http_stream_end_trailers(struct http_request *r, const struct http_header *trailers, size_t n)
{
    struct req *q = http__req_of(r);
    ASSERT(q->state == REQ_STREAM);
    if (q->conn && q->h2 && !http2__trailers(q, trailers, n)) {
        reply_failed(q);
        return;
    }
    http_stream_end(r);
}

void http_stream_abort(struct http_request *r)
{
    struct req *q = http__req_of(r);
    ASSERT(q->state == REQ_STREAM);
    q->gone_told = true; /* the handler knows */
    reply_failed(q);
}

/* --- writing --- */

void http__send_continue(struct conn *c)
{
    struct req *q = LIST_ENTRY(list_first(&c->reqs), struct req, node);
    WARN_ON(!queue_slice(q, slice_borrow(CONTINUE, sizeof CONTINUE - 1)));
}

/* Add what is left of a part behind `*skip` written bytes. */
static void add_part(struct os_iov *v, size_t *n, const void *p, size_t bytes, size_t *skip)
{
    if (*skip >= bytes) {
        *skip -= bytes;
        return;
    }
    v[(*n)++] = (struct os_iov){(const char *)p + *skip, bytes - *skip};
    *skip = 0;
}

/* Gather from the front, as long as replies are ready in order. Returns the number of parts. */
static size_t gather(struct conn *c, struct os_iov *v, size_t *total)
{
    size_t n = 0;
    *total = 0;
    LIST_EACH(node, &c->reqs)
    {
        struct req *q = LIST_ENTRY(node, struct req, node);
        size_t skip = q->out_skip;
        for (struct piece *p = q->out; p; p = p->next) {
            if (n + 3 > OS_IOV_MAX)
                return n;
            size_t before = skip;
            add_part(v, &n, p->head, p->head_n, &skip);
            add_part(v, &n, p->s.p, p->s.n, &skip);
            add_part(v, &n, "\r\n", p->crlf * 2u, &skip);
            *total += p->head_n + p->s.n + p->crlf * 2u - before;
        }
        if (q->state != REQ_REPLIED)
            break;
    }
    return n;
}

/* `put` bytes of the front requests are written. */
static void consume(struct conn *c, size_t put)
{
    LIST_EACH(node, &c->reqs)
    {
        struct req *q = LIST_ENTRY(node, struct req, node);
        while (q->out) {
            size_t left = q->out->head_n + q->out->s.n + q->out->crlf * 2u - q->out_skip, take = MIN_OF(left, put);
            q->pub.wire_out_bytes += take;
            q->out_bytes -= take;
            put -= take;
            if (take < left) {
                q->out_skip += take;
                return;
            }
            piece_pop(q);
        }
        if (put == 0)
            return;
    }
}

/* End the requests at the front whose replies are out. True: one of them asked for the connection to be closed. */
static bool finish_written(struct conn *c)
{
    struct list *n;
    while (c->state == CONN_OPEN && (n = list_first(&c->reqs))) {
        struct req *q = LIST_ENTRY(n, struct req, node);
        if (q->state != REQ_REPLIED || q->out)
            return false;
        bool close = q->close_after;
        http__req_finish(q);
        if (close)
            return true;
    }
    return false;
}

void http__tell_writable(struct req *q)
{
    if (!q->waits_writable || q->out_bytes > HTTP_STREAM_LOW_BYTES)
        return;
    q->waits_writable = false;
    if (q->on_writable)
        q->on_writable(&q->pub);
}

/* A small reply in several parts costs less as one: a copy of some cache lines is cheaper than the kernel's walk over the parts. */
static size_t flatten(char to[FLAT_BYTES], struct os_iov *v, size_t n, size_t total)
{
    if (n == 1 || total > FLAT_BYTES)
        return n;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        memcpy(to + at, v[i].p, v[i].n);
        at += v[i].n;
    }
    v[0] = (struct os_iov){to, at};
    return 1;
}

/* 1 written everything that was ready, 0 the socket is full, -1 closed. */
static int write_ready(struct conn *c)
{
    struct os_iov v[OS_IOV_MAX];
    char flat[FLAT_BYTES];
    size_t total, n;
    while ((n = gather(c, v, &total))) {
        n = flatten(flat, v, n, total);
        ssize_t put = http__conn_send(c, v, n);
        if (put == STATUS_AGAIN)
            return 0;
        if (put < 0) {
            http__conn_close(c);
            return -1;
        }
        c->wrote_ns = loop_now_ns(c->w->loop);
        metric_add(c->w->server->m.bytes_out, (uint64_t)put);
        consume(c, (size_t)put);
        if ((size_t)put < total)
            return 0;
    }
    return 1;
}

bool http__flush(struct conn *c)
{
    c->corked = true;
    int rc = write_ready(c);
    bool close = rc >= 0 && finish_written(c);
    struct list *first = list_first(&c->reqs);
    if (rc >= 0 && !close && c->state == CONN_OPEN && first)
        http__tell_writable(LIST_ENTRY(first, struct req, node));
    c->corked = false;
    if (c->state == CONN_CLOSED)
        return false;
    if (rc == 0 && !c->blocked)
        c->wrote_ns = loop_now_ns(c->w->loop);
    c->blocked = rc == 0;
    if (!close)
        return true;
    http__conn_stop_reading(c);
    http__conn_linger(c);
    return false;
}
