/* http_conn.c: one connection: reading, pausing, the peer's end, deadlines, closing.
 *
 *   OPEN --last reply out, Connection: close--> LINGER --peer's end, 2 s, 1 MiB--> CLOSED
 *     \--------------- reset, peer's end with nothing to answer, deadline ----------^
 *
 * Input goes to the worker's one read buffer, is parsed at once and copied to where it belongs (head: the request's arena, body:
 * its slab); large bodies are read straight into their slab. An idle connection therefore owns nothing but its struct. Input
 * that can't be taken because the pipeline is full is kept in `pend`, at most one read's worth, and reading stops.
 *
 * The peer's end. close(2) and shutdown(2) by a client look the same here: a FIN. "A client that goes away is noticed at once"
 * and "a half-closed client gets its answer" need to be told apart while the answer is computed. So when the end comes and a
 * request is outstanding we write an interim reply, "100 Continue", which every HTTP/1.1 client has to skip (RFC 9110 15.2):
 * a socket that was closed answers it with RST, which epoll reports within a round trip, and a half-closed one just reads it. It
 * isn't sent to HTTP/1.0 (not allowed), behind the beginning of a reply (that is a probe itself), nor on unix sockets (a close
 * is reported as such); a 1.0 client that closes is noticed at the first byte of its reply. Rejected: taking FIN for either of
 * the two (each breaks one half), TCP keep-alive probes (a closed peer in FIN-WAIT-2 acknowledges them), 102 Processing (clients
 * in use skip 100 only, Python's http.client for one).
 *
 * Deadlines. A connection has one timer, which is only moved when the deadline gets earlier; one that fires early is set again.
 * A busy keep-alive connection never touches the timer heap. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/size.h"
#include "base/status.h"
#include "net/http_priv.h"
#include "os/file.h"

#define SECOND          1000000000ull
#define LINGER_NS       (2 * SECOND)
#define DRAIN_IDLE_NS   SECOND /* for a first request, on a connection that was accepted while draining */
#define READS_PER_EVENT 16

static void conn_ready(struct loop_fd *w, uint32_t events);
static void conn_fire(struct loop_timer *t);

/* --- life --- */

static void run_flush(struct loop_task *t)
{
    struct conn *c = CONTAINER_OF(t, struct conn, flush_task);
    c->flush_queued = false;
    if (c->state == CONN_OPEN)
        http__conn_pump(c);
}

static void run_free(struct loop_task *t)
{
    struct conn *c = CONTAINER_OF(t, struct conn, free_task);
    http2__release(c);
    tls_conn_destroy(c->tls);
    free(c);
}

void http__conn_flush_soon(struct conn *c)
{
    if (c->flush_queued || c->state == CONN_CLOSED)
        return;
    c->flush_queued = true;
    loop_defer(c->w->loop, &c->flush_task);
}

ssize_t http__conn_recv(struct conn *c, void *p, size_t n)
{
    return c->tls ? tls_conn_read(c->tls, p, n) : os_sock_read(c->watch.fd, p, n);
}

ssize_t http__conn_send(struct conn *c, const struct os_iov *v, size_t n)
{
    return c->tls ? tls_conn_write(c->tls, v, n) : os_sock_write(c->watch.fd, v, n);
}

/* Decrypted bytes are left that the socket will not announce: read on when the others had their turn. */
static void run_read(struct loop_task *t)
{
    struct conn *c = CONTAINER_OF(t, struct conn, read_task);
    c->read_queued = false;
    if (c->state != CONN_CLOSED)
        conn_ready(&c->watch, LOOP_READ);
}

static void read_soon(struct conn *c)
{
    if (c->read_queued)
        return;
    c->read_queued = true;
    loop_defer(c->w->loop, &c->read_task);
}

static struct conn *conn_create(struct http_worker *w, int fd, const struct os_addr *peer)
{
    char text[OS_ADDR_TEXT_BYTES];
    struct conn *c = fault_point("http_conn") ? NULL : calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->w = w;
    c->watch = (struct loop_fd){.fd = fd, .ready = conn_ready};
    c->flush_task.run = run_flush;
    c->read_task.run = run_read;
    c->free_task.run = run_free;
    c->is_unix = os_addr_is_unix(peer);
    c->idle_since_ns = loop_now_ns(w->loop);
    list_init(&c->node);
    list_init(&c->idle_node);
    list_init(&c->reqs);
    loop_timer_init(&c->timer, conn_fire);
    os_addr_text(peer, text);
    size_t n = MIN_OF(strlen(text), sizeof c->peer - 1);
    memcpy(c->peer, text, n);
    return c;
}

void http__conn_open(struct http_worker *w, int fd, const struct os_addr *peer, const struct conn_origin *origin, bool refused)
{
    struct error err;
    bool secure = w->server->tls && !os_addr_is_unix(peer);
    /* a refusal that could be read would cost a handshake: over TLS the connection is just closed */
    struct conn *c = secure && refused ? NULL : conn_create(w, fd, peer);
    if (c && secure)
        c->tls = tls_conn_create(w->server->tls, fd);
    if (!c || (secure && !c->tls) || loop_fd_add(w->loop, &c->watch, LOOP_READ, &err)) {
        if (c)
            tls_conn_destroy(c->tls);
        free(c);
        http__peer_leave(w, &(struct conn_origin){origin->address, origin->counted, false, 0, NULL});
        os_close(fd);
        if (!refused)
            atomic_fetch_sub_explicit(&w->server->connections, 1, memory_order_relaxed);
        return;
    }
    c->refused = refused;
    c->origin = *origin;
    list_push_back(&w->conns, &c->node);
    if (!refused) {
        list_push_back(&w->idle, &c->idle_node);
        metric_adjust(w->server->m.connections, 1);
        http__conn_pump(c);
        return;
    }
    w->n_refused++;
    struct req *q = http__req_begin(c);
    if (!q) {
        http__conn_close(c);
        return;
    }
    http__conn_stop_reading(c);
    http__reply_error(q, 503, "the server has as many connections as it may; try again", 1, false);
}

void http__conn_close(struct conn *c)
{
    struct http_worker *w = c->w;
    struct list *n;
    if (c->state == CONN_CLOSED)
        return;
    c->state = CONN_CLOSED;
    http2__closed(c);
    if (c->tls)
        tls_conn_finish(c->tls);
    http__peer_leave(w, &c->origin);
    loop_fd_remove(w->loop, &c->watch);
    os_close(c->watch.fd);
    loop_timer_stop(w->loop, &c->timer);
    list_remove(&c->node);
    list_remove(&c->idle_node);
    while ((n = list_first(&c->reqs))) {
        metric_inc(w->server->m.lost);
        http__req_gone(LIST_ENTRY(n, struct req, node));
    }
    free(c->pend);
    c->pend = NULL;
    c->pend_n = 0;
    if (c->refused) {
        w->n_refused--;
    } else {
        atomic_fetch_sub_explicit(&w->server->connections, 1, memory_order_relaxed);
        metric_adjust(w->server->m.connections, -1);
        metric_inc(w->server->m.closed);
    }
    loop_defer(w->loop, &c->free_task);
    http__accept_resume(w);
}

void http__conn_stop_reading(struct conn *c)
{
    c->closing = true;
    c->paused = false;
    c->want_continue = false;
    c->cur = NULL;
    free(c->pend);
    c->pend = NULL;
    c->pend_n = 0;
}

void http__conn_linger(struct conn *c)
{
    if (c->eof) {
        http__conn_close(c);
        return;
    }
    if (c->tls)
        tls_conn_finish(c->tls);
    os_sock_shutdown(c->watch.fd);
    c->state = CONN_LINGER;
    c->paused = false;
    c->discarded = 0;
    c->deadline_kind = DEADLINE_LINGER;
    c->deadline_ns = loop_now_ns(c->w->loop) + LINGER_NS;
    c->blocked = false;
    loop_fd_set(c->w->loop, &c->watch, LOOP_READ);
    loop_timer_start(c->w->loop, &c->timer, c->deadline_ns);
}

void http__conn_drain(struct conn *c)
{
    if (c->state == CONN_OPEN && c->tunnel)
        http__tunnel_drain(c);
    else if (c->state == CONN_OPEN && c->h2)
        http2__drain(c);
    else if (c->state == CONN_OPEN && c->n_reqs == 0 &&
             (c->served || loop_now_ns(c->w->loop) - c->idle_since_ns > DRAIN_IDLE_NS))
        http__conn_close(c);
    else if (c->state == CONN_OPEN)
        http__conn_pump(c);
}

/* --- input to requests --- */

static bool begin_request(struct conn *c)
{
    c->cur = http__req_begin(c);
    if (!c->cur) {
        http__conn_close(c);
        return false;
    }
    list_remove(&c->idle_node);
    http1_init_request(&c->parser, &c->cur->arena, &c->w->wire_limits);
    return true;
}

/* Answer the request that is being read with an error, and read no more. */
static void refuse(struct conn *c, int status, const char *text)
{
    struct req *q = c->cur;
    if (q->state == REQ_WAITING && q->pub.on_body) {
        /* its handler is at it already, with the body's beginning, and hears that the client has left; what is wrong is answered in its place */
        http__req_gone(q);
        if (c->state != CONN_OPEN || !begin_request(c))
            return;
        q = c->cur;
    } else if (q->state != REQ_READING) { /* the client sees that the reply is cut off */
        http__conn_close(c);
        return;
    }
    q->close_after = true;
    http__conn_stop_reading(c);
    http__reply_error(q, status, text, status == 503 ? 1 : 0, q->announced);
}

static void protocol_error(struct conn *c)
{
    metric_inc(c->w->server->m.malformed);
    if (c->parser.error_status == 414)
        http__limit(c->w, LIMIT_URL);
    else if (c->parser.error_status == 431)
        http__limit(c->w, LIMIT_HEADERS);
    refuse(c, c->parser.error_status, c->parser.error_text);
}

static void head_read(struct conn *c)
{
    struct error err = {0};
    struct req *q = c->cur;
    int status = http__req_head(q, &c->parser, &err);
    if (c->state != CONN_OPEN)
        return;
    if (status && c->parser.body == HTTP1_NO_BODY) {
        /* nothing of it is under way: the connection lives on */
        c->cur = NULL;
        c->served++;
        if (!q->keep_alive)
            http__conn_stop_reading(c);
        http__reply_error(q, status, err.text, 1, true);
    } else if (status) {
        refuse(c, status, err.text);
    } else {
        c->want_continue = c->parser.expect_continue;
        if (q->pub.on_body)
            http__req_run(q);
    }
}

static void message_read(struct conn *c)
{
    struct http_worker *w = c->w;
    struct error err = {0};
    struct req *q = c->cur;
    int status = http__req_end(q, &err);
    if (status) {
        refuse(c, status, err.text);
        return;
    }
    c->cur = NULL;
    c->want_continue = false;
    c->served++;
    if (w->limits.max_requests && c->served >= w->limits.max_requests && q->keep_alive) {
        http__limit(w, LIMIT_REQUESTS);
        q->keep_alive = false;
    }
    if (q->tunnel_offered)
        c->tunnel = q;
    else if (!q->keep_alive)
        http__conn_stop_reading(c);
    if (q->pub.on_body)
        http__req_piece(q, (struct slice){0}, true);
    else
        http__req_run(q);
}

static void body_read(struct conn *c, struct str part)
{
    struct error err = {0};
    struct req *q = c->cur;
    c->want_continue = false;
    if (!q->pub.on_body) {
        int status = http__req_body(q, &c->parser, part.p, part.n, &err);
        if (status)
            refuse(c, status, err.text);
        return;
    }
    q->body_wire_bytes += part.n;
    if (q->body_wire_bytes <= q->pub.body_limit_bytes) {
        http__req_piece(q, slice_borrow(part.p, part.n), false);
        return;
    }
    http__limit(c->w, LIMIT_BODY);
    error_set(&err, STATUS_TOO_LARGE, "the body is larger than the %llu bytes accepted here",
              (unsigned long long)q->pub.body_limit_bytes);
    refuse(c, 413, err.text);
}

/* Parse until the input is used up, the pipeline is full, or no more is wanted. Returns the bytes used. */
static size_t feed(struct conn *c, const char *data, size_t n)
{
    size_t at = 0;
    bool ended = n > 0; /* nothing more can happen without more input */
    c->corked = true;
    while (c->state == CONN_OPEN && !c->closing && (at < n || !ended)) {
        struct str part;
        size_t used;
        if (!c->cur && (c->tunnel || c->n_reqs >= MAX_OF(c->w->limits.max_pipeline, 1u)))
            break;
        if (!c->cur && !begin_request(c))
            break;
        enum http1_event e = http1_read(&c->parser, data + at, n - at, &used, &part);
        at += used;
        c->cur->pub.wire_in_bytes += used;
        ended = e == HTTP1_END || e == HTTP1_MORE;
        if (e == HTTP1_HEAD)
            head_read(c);
        else if (e == HTTP1_BODY)
            body_read(c, part);
        else if (e == HTTP1_END)
            message_read(c);
        else if (e == HTTP1_ERROR)
            protocol_error(c);
        if (!c->cur)
            ended = true;
    }
    c->corked = false;
    return c->closing ? n : at;
}

/* A request object is not kept for empty lines, which some clients send behind a body. */
static void drop_idle_request(struct conn *c)
{
    if (c->state == CONN_OPEN && c->cur && http1_idle(&c->parser))
        http__req_gone(c->cur);
}

static void pause_reading(struct conn *c)
{
    if (!c->paused)
        http__limit(c->w, LIMIT_PIPELINE);
    c->paused = true;
}

static void keep(struct conn *c, const char *data, size_t n)
{
    ASSERT(c->pend_n == 0);
    c->pend = fault_point("http_pending") ? NULL : malloc(n);
    if (!c->pend) {
        http__conn_close(c);
        return;
    }
    memcpy(c->pend, data, n);
    c->pend_n = (uint32_t)n;
    pause_reading(c);
}

/* Go on with what had to wait. True: something was parsed. */
static bool resume(struct conn *c)
{
    if (c->tunnel && !c->closing)
        return http__tunnel_resume(c);
    if (!c->paused || c->closing || c->n_reqs >= MAX_OF(c->w->limits.max_pipeline, 1u) || (c->cur && http__req_is_full(c->cur)))
        return false;
    if (c->pend_n == 0) {
        c->paused = false;
        return false;
    }
    /* the handler may end the connection, which frees pend: parse from a pointer that is ours */
    char *data = c->pend;
    size_t n = c->pend_n;
    c->pend = NULL;
    c->pend_n = 0;
    size_t used = feed(c, data, n);
    if (c->state == CONN_OPEN && used < n) {
        memmove(data, data + used, n - used);
        c->pend = data;
        c->pend_n = (uint32_t)(n - used);
        return true;
    }
    drop_idle_request(c);
    free(data);
    return c->state == CONN_OPEN;
}

/* --- the peer's end --- */

/* Its end is known and something is still to be answered: find out whether it listens. */
static void half_closed(struct conn *c)
{
    struct req *q = LIST_ENTRY(list_first(&c->reqs), struct req, node);
    c->half = true;
    if (c->probed || c->is_unix || q->http10 || q->out || q->state >= REQ_STREAM || q->pub.wire_out_bytes)
        return;
    c->probed = true;
    http__send_continue(c);
}

static void end_read(struct conn *c)
{
    c->eof = c->half = true;
    if (c->state == CONN_LINGER) {
        http__conn_close(c);
        return;
    }
    if (c->h2) {
        http2__eof(c);
        return;
    }
    if (c->cur) { /* the rest of this one will never come */
        metric_inc(c->w->server->m.lost);
        http__req_gone(c->cur);
    }
    if (c->state != CONN_OPEN)
        return;
    c->closing = true;
    if (c->n_reqs == 0)
        http__conn_close(c);
    else
        half_closed(c);
}

/* --- reading --- */

static void discard(struct conn *c, size_t n)
{
    c->discarded += (uint32_t)n;
    if (c->discarded <= HTTP_LINGER_BYTES)
        return;
    if (c->state == CONN_LINGER)
        http__conn_close(c);
    else
        c->paused = true; /* until the reply is out */
}

/* What a read gave: nothing yet, a reset, the peer's end, or bytes. */
static bool has_bytes(struct conn *c, ssize_t n)
{
    if (n == 0)
        end_read(c);
    else if (n < 0 && n != STATUS_AGAIN)
        http__conn_close(c);
    return n > 0;
}

/* One read to where the body belongs. True: read again. */
static bool read_body(struct conn *c, uint8_t *at, size_t room)
{
    ssize_t n = http__conn_recv(c, at, room);
    if (!has_bytes(c, n))
        return false;
    struct req *q = c->cur;
    q->slab->n += (size_t)n;
    q->body_wire_bytes += (size_t)n;
    q->pub.wire_in_bytes += (size_t)n;
    metric_add(c->w->server->m.bytes_in, (uint64_t)n);
    c->want_continue = false;
    http1_body_taken(&c->parser, (uint64_t)n);
    if (http1_body_left(&c->parser))
        return (size_t)n == room;
    feed(c, NULL, 0);
    return false;
}

/* The first bytes of a connection tell HTTP/2 (prior knowledge, RFC 9113 3.3) from HTTP/1.x: no request of the latter begins with
 * all of the preface. Bytes that could be either are only counted, as they are known. True: decided, and `data` is to be parsed. */
static bool decide(struct conn *c, const char *data, size_t n)
{
    static const char preface[] = HTTP2_PREFACE;
    size_t seen = c->preface_n, take = MIN_OF(n, HTTP2_PREFACE_BYTES - seen);
    bool same = memcmp(data, preface + seen, take) == 0;
    if (same && seen + take < HTTP2_PREFACE_BYTES) {
        c->preface_n = (uint8_t)(seen + take);
        return false;
    }
    c->decided = true;
    if (same)
        return http2__start(c) && http2__input(c, preface, seen);
    feed(c, preface, seen);
    return c->state == CONN_OPEN && !c->closing;
}

/* One read to the shared buffer. True: read again. */
static bool read_shared(struct conn *c)
{
    char *buf = (char *)c->w->read_buf;
    size_t room = c->cur || c->h2 || c->state == CONN_LINGER ? HTTP_READ_BYTES : HTTP_HEAD_READ_BYTES;
    ssize_t n = http__conn_recv(c, buf, room);
    if (!has_bytes(c, n))
        return false;
    metric_add(c->w->server->m.bytes_in, (uint64_t)n);
    if (c->closing || c->state == CONN_LINGER) {
        discard(c, (size_t)n);
        return c->state != CONN_CLOSED && (size_t)n == room;
    }
    if (!c->decided && !decide(c, buf, (size_t)n))
        return c->state == CONN_OPEN && (size_t)n == room;
    if (c->h2)
        return http2__input(c, buf, (size_t)n) && (size_t)n == room;
    size_t used = feed(c, buf, (size_t)n);
    if (c->state != CONN_OPEN)
        return false;
    drop_idle_request(c);
    if (used < (size_t)n)
        keep(c, buf + used, (size_t)n - used);
    return (size_t)n == room;
}

static bool read_once(struct conn *c)
{
    uint8_t *at;
    int status = 0;
    struct error err = {0};
    if (c->tunnel && !c->closing && c->state == CONN_OPEN)
        return http__tunnel_read(c);
    if (c->cur && c->cur->pub.on_body && !c->closing && c->state == CONN_OPEN) {
        c->paused = http__req_is_full(c->cur);
        return !c->paused && read_shared(c);
    }
    if (c->cur && !c->closing && c->state == CONN_OPEN) {
        size_t room = http__req_body_room(c->cur, &c->parser, &at, &status, &err);
        if (room)
            return read_body(c, at, room);
        if (status) {
            c->corked = true;
            refuse(c, status, err.text);
            c->corked = false;
            return false;
        }
    } else if (!c->h2 && !c->closing && c->state == CONN_OPEN && c->n_reqs >= MAX_OF(c->w->limits.max_pipeline, 1u)) {
        pause_reading(c);
        return false;
    }
    return read_shared(c);
}

/* True: the PROXY header has come, and what is behind it may be read. */
static bool begin_proxied(struct conn *c)
{
    int rc = http__peer_read_proxy(c);
    if (rc == 0)
        return true;
    if (rc == STATUS_AGAIN)
        http__conn_pump(c);
    else
        http__conn_close(c);
    return false;
}

static void conn_ready(struct loop_fd *watch, uint32_t events)
{
    struct conn *c = CONTAINER_OF(watch, struct conn, watch);
    loop_update_now(c->w->loop);
    if (events & LOOP_DEAD) {
        if (!c->tunnel || !http__tunnel_closed(c))
            http__conn_close(c);
        return;
    }
    if (c->origin.waits_proxy && !begin_proxied(c))
        return;
    bool reading = !c->paused && !c->eof;
    if (events & LOOP_WRITE && c->tls && tls_conn_wants_write(c->tls))
        events |= LOOP_READ; /* the read that stopped for want of room to write */
    if (events & LOOP_READ && reading)
        for (int i = 0; i < READS_PER_EVENT && c->state != CONN_CLOSED && !c->eof && !c->paused; i++)
            if (!read_once(c))
                break;
    if (c->state == CONN_CLOSED)
        return;
    if (events & LOOP_HANGUP && c->paused && !c->half && c->n_reqs)
        half_closed(c);
    http__conn_pump(c);
}

/* --- deadlines and interest --- */

static void set_deadline(struct conn *c, uint64_t at_ns, enum conn_deadline kind)
{
    if (at_ns < c->deadline_ns) {
        c->deadline_ns = at_ns;
        c->deadline_kind = kind;
    }
}

static uint64_t later(uint64_t at, uint64_t by)
{
    return at > UINT64_MAX - by ? UINT64_MAX : at + by;
}

/* While a handler is behind with a body that comes in pieces, or asked for no hurry, time does not count. */
static uint64_t body_deadline(struct conn *c)
{
    struct req *q = c->cur;
    if (q->pub.on_body && (q->pub.body_unhurried || q->unconsumed)) {
        q->rate_since_ns = loop_now_ns(c->w->loop);
        q->rate_since_bytes = q->body_wire_bytes;
        return UINT64_MAX;
    }
    return later(c->cur->rate_since_ns, c->w->limits.body_timeout_ns);
}

bool http__body_fast_enough(struct req *q)
{
    uint64_t now = loop_now_ns(q->w->loop), rate = q->w->limits.min_body_rate;
    uint64_t bytes = q->body_wire_bytes - q->rate_since_bytes, ms = (now - q->rate_since_ns) / 1000000;
    if (rate == 0 || MIN_OF(bytes, UINT64_MAX / 1000) * 1000 / (ms + 1) < rate)
        return false;
    q->rate_since_ns = now;
    q->rate_since_bytes = q->body_wire_bytes;
    return true;
}

static void choose_deadline(struct conn *c)
{
    const struct http_limits *l = &c->w->limits;
    c->deadline_ns = UINT64_MAX;
    c->deadline_kind = DEADLINE_NONE;
    if (c->cur && !c->cur->announced)
        set_deadline(c, later(c->cur->pub.first_byte_ns, l->header_timeout_ns), DEADLINE_HEADER);
    else if (c->cur)
        set_deadline(c, body_deadline(c), DEADLINE_BODY);
    if (c->origin.waits_proxy || (c->tls && !tls_conn_is_up(c->tls)))
        set_deadline(c, later(c->idle_since_ns, l->handshake_timeout_ns), DEADLINE_HANDSHAKE);
    if (c->blocked)
        set_deadline(c, later(c->wrote_ns, l->write_timeout_ns), DEADLINE_WRITE);
    if (c->n_reqs == 0)
        set_deadline(c, later(c->idle_since_ns, c->w->draining ? DRAIN_IDLE_NS : l->idle_timeout_ns), DEADLINE_IDLE);
    if (c->preface_n && !c->decided)
        set_deadline(c, later(c->idle_since_ns, l->header_timeout_ns), DEADLINE_IDLE);
    if (c->h2)
        set_deadline(c, http2__look_at_ns(c), DEADLINE_STREAMS);
}

static void settle(struct conn *c)
{
    struct loop *l = c->w->loop;
    if (c->state != CONN_OPEN)
        return;
    if (c->n_reqs == 0 && list_empty(&c->idle_node)) {
        c->idle_since_ns = loop_now_ns(l);
        list_push_back(&c->w->idle, &c->idle_node);
    }
    uint32_t interest =
        (c->paused || c->eof ? 0u : LOOP_READ) | (c->blocked ? LOOP_WRITE : 0u) | (c->half ? LOOP_NO_RDHUP : 0u);
    if (c->tls) {
        if (interest & LOOP_READ && tls_conn_has_more(c->tls))
            read_soon(c);
        if (tls_conn_wants_write(c->tls))
            interest |= LOOP_WRITE;
    }
    loop_fd_set(l, &c->watch, interest);
    choose_deadline(c);
    if (c->deadline_ns != UINT64_MAX && (!heap_contains(&c->timer.node) || c->deadline_ns < c->timer.at_ns))
        loop_timer_start(l, &c->timer, c->deadline_ns);
}

void http__conn_pump(struct conn *c)
{
    if (c->corked || c->state != CONN_OPEN)
        return;
    if (c->broken) {
        http__conn_close(c);
        return;
    }
    do {
        struct list *first = list_first(&c->reqs);
        if (c->want_continue && c->cur && first == &c->cur->node) {
            c->want_continue = false;
            if (c->cur->state < REQ_STREAM)
                http__send_continue(c);
        }
        if (c->h2 ? !http2__flush(c) : !http__flush(c))
            return;
        if (c->eof && c->n_reqs == 0) {
            http__conn_close(c);
            return;
        }
    } while (resume(c));
    if (c->tunnel)
        http__tunnel_flushed(c);
    settle(c);
}

static void time_out(struct conn *c)
{
    switch (c->deadline_kind) {
    case DEADLINE_HEADER:
        http__limit(c->w, LIMIT_HEADER_TIMEOUT);
        refuse(c, 408, "the request's header section did not arrive in time");
        return;
    case DEADLINE_BODY:
        if (http__body_fast_enough(c->cur)) {
            http__conn_pump(c);
            return;
        }
        http__limit(c->w, LIMIT_BODY_TIMEOUT);
        refuse(c, 408, "the request's body did not arrive in time");
        return;
    case DEADLINE_WRITE:
        http__limit(c->w, LIMIT_WRITE_TIMEOUT);
        break;
    case DEADLINE_IDLE:
        http__limit(c->w, LIMIT_IDLE_TIMEOUT);
        if (!c->h2)
            break;
        http2__end(c);
        return;
    case DEADLINE_STREAMS:
        http2__look(c);
        http__conn_pump(c);
        return;
    case DEADLINE_HANDSHAKE:
        http__limit(c->w, LIMIT_HANDSHAKE_TIMEOUT);
        if (c->tls)
            tls_conn_timed_out(c->tls);
        break;
    default:
        break;
    }
    http__conn_close(c);
}

static void conn_fire(struct loop_timer *t)
{
    struct conn *c = CONTAINER_OF(t, struct conn, timer);
    if (c->deadline_ns == UINT64_MAX)
        return; /* waiting for a handler: settle sets it again */
    if (loop_now_ns(c->w->loop) < c->deadline_ns)
        loop_timer_start(c->w->loop, &c->timer, c->deadline_ns);
    else
        time_out(c);
}
