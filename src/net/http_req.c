/* http_req.c: a request from its first byte to its end: the object and its pool, its body, and when the handler hears of it.
 *
 * Objects are pooled per worker with the first chunk of their arena, and bodies live in slabs that are reused when nobody else
 * holds them, so that a connection in its steady state allocates nothing. Slabs that were not used for TRIM_NS go back.
 *
 * Body memory follows what has arrived, not what was announced: the first allocation is at most HTTP_BODY_FIRST_BYTES, later
 * ones at most 16 times what is there. A client that announces a gigabyte and stops costs 64 KiB. The sum over all requests of a
 * server is bounded too (max_body_memory): past it 503. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/size.h"
#include "base/status.h"
#include "net/http_priv.h"
#include "obs/trace_context.h"

#define TRIM_NS 5000000000ull

/* --- slabs --- */

static struct slab *slab_take(struct http_worker *w, size_t cap)
{
    for (uint32_t i = w->n_slabs; i-- > 0;) {
        struct slab *s = w->slabs[i];
        if (s->cap < cap || s->cap / 8 > cap)
            continue;
        w->slabs[i] = w->slabs[--w->n_slabs];
        w->slab_uses++;
        w->slabs_bytes -= s->cap;
        s->n = 0;
        return s;
    }
    return slab_create(cap);
}

/* Keep the slab when we hold the only reference; the acquire pairs with the releasing decrements of the other holders. */
static void slab_give(struct http_worker *w, struct slab *s)
{
    bool ours = atomic_load_explicit(&s->refs, memory_order_acquire) == 1 && !s->free_fn;
    if (ours && w->n_slabs < HTTP_SLABS && s->cap <= HTTP_SLABS_BYTES / 2 && w->slabs_bytes + s->cap <= HTTP_SLABS_BYTES) {
        w->slabs[w->n_slabs++] = s;
        w->slabs_bytes += s->cap;
        if (!heap_contains(&w->trim_timer.node) && !w->stopping)
            loop_timer_start(w->loop, &w->trim_timer, loop_now_ns(w->loop) + TRIM_NS);
    } else {
        slab_unref(s);
    }
}

static void release_slabs(struct http_worker *w)
{
    while (w->n_slabs)
        slab_unref(w->slabs[--w->n_slabs]);
    w->slabs_bytes = 0;
}

void http__pool_trim(struct loop_timer *t)
{
    struct http_worker *w = CONTAINER_OF(t, struct http_worker, trim_timer);
    if (w->slab_uses == w->slab_uses_seen)
        release_slabs(w);
    else
        loop_timer_start(w->loop, t, loop_now_ns(w->loop) + TRIM_NS);
    w->slab_uses_seen = w->slab_uses;
}

static void drop_body(struct req *q)
{
    if (q->slab) {
        slab_give(q->w, q->slab);
        atomic_fetch_sub_explicit(&q->w->server->body_bytes, q->slab_charged, memory_order_relaxed);
    }
    if (q->charged)
        atomic_fetch_sub_explicit(&q->w->server->body_bytes, q->charged, memory_order_relaxed);
    q->slab = NULL;
    q->slab_charged = q->charged = 0;
    q->pub.body = (struct slice){0};
    coding_destroy(q->coding);
    q->coding = NULL;
}

/* --- life --- */

struct req *http__req_begin(struct conn *c)
{
    struct http_worker *w = c->w;
    struct req *q = w->pool;
    struct arena arena;
    if (q) {
        w->pool = q->next_free;
        w->n_pool--;
        arena = q->arena;
    } else {
        q = fault_point("http_request") ? NULL : malloc(sizeof *q);
        if (!q)
            return NULL;
        arena_init(&arena, HTTP_ARENA_FIRST_BYTES, 0);
    }
    arena.limit_bytes = HTTP_ARENA_EXTRA_BYTES + (size_t)w->limits.max_header_bytes * 4;
    *q = (struct req){.conn = c, .w = w, .arena = arena, .state = REQ_READING};
    q->out_tail = &q->out;
    memcpy(q->peer, c->peer, sizeof q->peer);
    q->pub = (struct http_request){.method = HTTP_OTHER,
                                   .arena = &q->arena,
                                   .loop = w->loop,
                                   .first_byte_ns = loop_now_ns(w->loop),
                                   .body_limit_bytes = w->limits.max_body_bytes,
                                   .max_inflate_ratio = w->limits.max_inflate_ratio,
                                   .peer = str_of(q->peer)};
    if (c->tls) {
        q->pub.secure = true;
        q->pub.peer_names = tls_conn_peer_names(c->tls, &q->pub.n_peer_names);
    }
    list_init(&q->node);
    list_push_back(&c->reqs, &q->node);
    c->n_reqs++;
    w->n_out++;
    return q;
}

static void recycle(struct req *q)
{
    struct http_worker *w = q->w;
    ASSERT(q->holds == 0 && !q->conn);
    http__req_drop_out(q);
    drop_body(q);
    w->n_out--;
    if (w->n_pool < HTTP_POOL_REQS) {
        arena_clear(&q->arena);
        q->next_free = w->pool;
        w->pool = q;
        w->n_pool++;
    } else {
        arena_release(&q->arena);
        free(q);
    }
    http__worker_check_stop(w);
}

void http__pool_release(struct http_worker *w)
{
    struct req *q;
    while ((q = w->pool)) {
        w->pool = q->next_free;
        arena_release(&q->arena);
        free(q);
    }
    w->n_pool = 0;
    release_slabs(w);
}

static void leave_conn(struct req *q)
{
    if (!q->conn)
        return;
    if (q->conn->cur == q)
        q->conn->cur = NULL;
    if (q->conn->tunnel == q)
        q->conn->tunnel = NULL;
    q->conn->n_reqs--;
    list_remove(&q->node);
    q->conn = NULL;
}

void http__req_finish(struct req *q)
{
    const struct http_handler *h = &q->w->server->handler;
    leave_conn(q);
    http__req_drop_out(q);
    if (q->tunnel_offered)
        http__tunnel_over(q);
    if (q->announced && h->on_complete) {
        if (!q->pub.reply_status)
            q->pub.reply_status = 499;
        h->on_complete(h->ctx, &q->pub, loop_now_ns(q->w->loop));
    }
    q->announced = false;
    q->state = REQ_REPLIED;
    if (q->holds == 0)
        recycle(q);
}

void http__req_gone(struct req *q)
{
    bool unanswered = q->state == REQ_WAITING || q->state == REQ_STREAM;
    leave_conn(q);
    http__req_drop_out(q);
    q->pub.gone = true;
    if (q->announced && q->state != REQ_REPLIED && q->pub.on_gone && !q->gone_told) {
        q->gone_told = true;
        q->holds++; /* the callback may answer */
        q->pub.on_gone(&q->pub);
        q->holds--;
        if (unanswered && q->state == REQ_REPLIED) { /* it did, and that finished the request */
            if (q->holds == 0)
                recycle(q);
            return;
        }
    }
    if (!unanswered)
        http__req_finish(q);
}

void http_hold(struct http_request *r)
{
    http__req_of(r)->holds++;
}

void http_release(struct http_request *r)
{
    struct req *q = http__req_of(r);
    ASSERT(q->holds > 0);
    if (--q->holds == 0 && !q->conn && q->state == REQ_REPLIED && !q->announced)
        recycle(q);
}

/* --- head --- */

static enum http_method method_of(struct str s)
{
    static const struct {
        const char *name;
        enum http_method method;
    } known[] = {{"GET", HTTP_GET},       {"POST", HTTP_POST},       {"HEAD", HTTP_HEAD},  {"PUT", HTTP_PUT},
                 {"DELETE", HTTP_DELETE}, {"OPTIONS", HTTP_OPTIONS}, {"PATCH", HTTP_PATCH}};
    for (size_t i = 0; i < COUNT_OF(known); i++)
        if (str_eqz(s, known[i].name))
            return known[i].method;
    return HTTP_OTHER;
}

static bool is_request_id(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i], low = (char)(c | 0x20);
        if (!((low >= 'a' && low <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-'))
            return false;
    }
    return s.n > 0 && s.n <= 128;
}

static void hex64(char *to, uint64_t v)
{
    for (int i = 15; i >= 0; i--, v >>= 4)
        to[i] = "0123456789abcdef"[v & 15];
}

/* The client's id when it is well-formed, else 128 random bits. NUL-terminated for the crash report. */
static bool set_request_id(struct req *q)
{
    struct str given = http_header_get(&q->pub, "x-request-id");
    char *id;
    if (given.p && is_request_id(given)) {
        id = arena_strdup(&q->arena, given);
        q->pub.request_id = (struct str){id, given.n};
        return id != NULL;
    }
    id = arena_alloc(&q->arena, 33);
    if (!id)
        return false;
    hex64(id, rand_u64(&q->w->rand));
    hex64(id + 16, rand_u64(&q->w->rand));
    id[32] = 0;
    q->pub.request_id = (struct str){id, 32};
    return true;
}

struct str http_peer_address(const struct http_request *r)
{
    struct str a = r->peer;
    const char *first = a.n ? memchr(a.p, ':', a.n) : NULL, *close = a.n ? memchr(a.p, ']', a.n) : NULL;
    if (close && a.p[0] == '[')
        return (struct str){a.p + 1, (size_t)(close - a.p) - 1};
    if (!first || memchr(first + 1, ':', a.n - (size_t)(first + 1 - a.p)))
        return a; /* no port, or IPv6 without one */
    return (struct str){a.p, (size_t)(first - a.p)};
}

struct str http_header_get(const struct http_request *r, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < r->n_headers; i++)
        if (r->headers[i].name.n == n && str_ieqz(r->headers[i].name, name))
            return r->headers[i].value;
    return (struct str){NULL, 0};
}

static int check_coding(struct req *q, struct error *err)
{
    enum coding_kind kind = CODING_IDENTITY;
    uint32_t seen = 0;
    for (size_t i = 0; i < q->pub.n_headers; i++) {
        const struct http_header *h = &q->pub.headers[i];
        if (h->name.n != 16 || !str_ieqz(h->name, "content-encoding"))
            continue;
        if (seen++)
            return error_set(err, STATUS_MEDIA_TYPE,
                             "the body has more than one Content-Encoding; at most one of gzip, deflate, zstd is accepted");
        int rc = coding_parse(h->value, &kind, err);
        if (rc)
            return rc;
    }
    if (kind == CODING_IDENTITY)
        return 0;
    return coding_create(kind, q->pub.body_limit_bytes, q->w->limits.max_inflate_ratio, &q->coding, err);
}

static int body_too_large(struct req *q, struct error *err)
{
    http__limit(q->w, LIMIT_BODY);
    return error_set(err, STATUS_TOO_LARGE, "the body is larger than the %llu bytes accepted here",
                     (unsigned long long)q->pub.body_limit_bytes);
}

int http__req_head(struct req *q, const struct http1_parser *p, struct error *err)
{
    struct http_request *r = &q->pub;
    const struct http_handler *h = &q->w->server->handler;
    r->method = method_of(p->method);
    r->method_text = p->method;
    r->path = p->url.path;
    r->query = p->url.query;
    r->headers = p->headers;
    r->n_headers = p->n_headers;
    r->version = q->h2 ? 20 : (uint8_t)(10 + p->minor);
    q->keep_alive = p->keep_alive;
    q->http10 = p->minor == 0;
    q->head_only = r->method == HTTP_HEAD;
    q->rate_since_ns = loop_now_ns(q->w->loop);
    if (!set_request_id(q))
        return status_http(error_set(err, STATUS_NOMEM, "out of memory for the request"));
    struct trace_context context;
    struct str trace = http_header_get(r, "traceparent");
    if (trace.p && trace_context_parse(trace, &context))
        r->traceparent = trace;
    if (q->conn && q->conn->tls && !tls_conn_serves(q->conn->tls, http_header_get(r, "host"))) {
        metric_inc(q->w->server->m.malformed);
        return status_http(error_set(err, STATUS_MISDIRECTED,
                                     "this connection was made for another server name than the host asked for: connect anew"));
    }
    q->announced = true;
    int rc = h->on_headers ? h->on_headers(h->ctx, r, err) : 0;
    if (rc == 0 && p->body != HTTP1_NO_BODY && !r->body_raw)
        rc = check_coding(q, err);
    if (rc == 0 && r->on_body && q->coding)
        rc = error_set(err, STATUS_MEDIA_TYPE, "this body can't have a Content-Encoding");
    if (rc == 0 && p->body == HTTP1_LENGTH && p->content_length > r->body_limit_bytes)
        rc = body_too_large(q, err);
    return rc ? status_http(rc) : 0;
}

/* --- body --- */

/* Room for at least `more` bytes behind slab->n. */
static int grow(struct req *q, size_t want_cap, struct error *err)
{
    struct http_server *s = q->w->server;
    uint64_t cap = want_cap, bound = q->w->limits.max_body_memory;
    uint64_t held = atomic_fetch_add_explicit(&s->body_bytes, cap, memory_order_relaxed);
    if (bound && held + cap > bound) {
        atomic_fetch_sub_explicit(&s->body_bytes, cap, memory_order_relaxed);
        http__limit(q->w, LIMIT_MEMORY);
        return error_set(err, STATUS_UNAVAILABLE, "the server holds as many request bytes as it may; try again");
    }
    struct slab *bigger = fault_point("http_body") ? NULL : slab_take(q->w, want_cap);
    if (!bigger) {
        atomic_fetch_sub_explicit(&s->body_bytes, cap, memory_order_relaxed);
        return error_set(err, STATUS_NOMEM, "out of memory for the request's body");
    }
    if (q->slab) {
        memcpy(bigger->data, q->slab->data, q->slab->n);
        bigger->n = q->slab->n;
        slab_give(q->w, q->slab);
        atomic_fetch_sub_explicit(&s->body_bytes, q->slab_charged, memory_order_relaxed);
    }
    q->slab = bigger;
    q->slab_charged = want_cap;
    return 0;
}

/* Make the slab larger than what it holds. The size follows what is there (16 times), what was announced and the limit. */
static int make_room(struct req *q, const struct http1_parser *p, struct error *err)
{
    size_t have = q->slab ? q->slab->n : 0;
    if (q->slab && q->slab->cap > have)
        return 0;
    bool known = p->body == HTTP1_LENGTH && !q->coding;
    uint64_t most = known ? p->content_length : q->pub.body_limit_bytes;
    uint64_t cap = have ? (uint64_t)have * (known ? 16 : 2) : known ? HTTP_BODY_FIRST_BYTES : HTTP_BODY_FIRST_BYTES / 4;
    if (have >= most)
        return body_too_large(q, err);
    return grow(q, (size_t)MAX_OF(MIN_OF(cap, most), (uint64_t)64), err);
}

static int decode(struct req *q, const uint8_t *data, size_t n, struct error *err)
{
    for (;;) {
        size_t used, made;
        /* one byte more than the limit may be seen, so that the decoder is the one to refuse it */
        if (!q->slab || q->slab->cap - q->slab->n < 64) {
            size_t have = q->slab ? q->slab->n : 0;
            int rc = grow(q, (size_t)MAX_OF(MIN_OF((uint64_t)have * 2, q->pub.body_limit_bytes), have) + 4096, err);
            if (rc)
                return rc;
        }
        size_t room = q->slab->cap - q->slab->n;
        int rc = coding_step(q->coding, data, n, &used, q->slab->data + q->slab->n, room, &made, err);
        if (rc == STATUS_TOO_LARGE)
            http__limit(q->w, LIMIT_INFLATE);
        if (rc)
            return rc;
        q->slab->n += made;
        data += used;
        n -= used;
        if (made < room)
            return 0;
    }
}

int http__req_body(struct req *q, const struct http1_parser *p, const char *data, size_t n, struct error *err)
{
    q->body_wire_bytes += n;
    if (q->body_wire_bytes > q->pub.body_limit_bytes)
        return status_http(body_too_large(q, err));
    if (q->coding) {
        int rc = decode(q, (const uint8_t *)data, n, err);
        return rc ? status_http(rc) : 0;
    }
    while (n) {
        int rc = make_room(q, p, err);
        if (rc)
            return status_http(rc);
        size_t take = MIN_OF(n, q->slab->cap - q->slab->n);
        memcpy(q->slab->data + q->slab->n, data, take);
        q->slab->n += take;
        data += take;
        n -= take;
    }
    return 0;
}

size_t http__req_body_room(struct req *q, const struct http1_parser *p, uint8_t **at, int *status, struct error *err)
{
    *status = 0;
    uint64_t left = http1_body_left(p);
    if (left == 0 || q->coding)
        return 0;
    int rc = make_room(q, p, err);
    if (rc) {
        *status = status_http(rc);
        return 0;
    }
    *at = q->slab->data + q->slab->n;
    return (size_t)MIN_OF((uint64_t)(q->slab->cap - q->slab->n), left);
}

int http__req_end(struct req *q, struct error *err)
{
    if (q->coding) {
        int rc = coding_finish(q->coding, err);
        if (rc)
            return status_http(rc);
        coding_destroy(q->coding);
        q->coding = NULL;
    }
    if (q->slab && q->slab->n)
        q->pub.body = (struct slice){q->slab->data, q->slab->n, q->slab};
    q->pub.received_ns = loop_now_ns(q->w->loop);
    return 0;
}

void http__req_run(struct req *q)
{
    const struct http_handler *h = &q->w->server->handler;
    q->state = REQ_WAITING;
    check_set_request(q->pub.request_id.p);
    h->on_request(h->ctx, &q->pub);
    check_set_request(NULL);
}

void http__req_piece(struct req *q, struct slice piece, bool last)
{
    if (q->state >= REQ_REPLIED || q->pub.gone)
        return;
    if (!q->h2)
        q->unconsumed += piece.n;
    q->holds++;
    q->pub.on_body(&q->pub, piece, last);
    http_release(&q->pub);
}

bool http__req_is_full(const struct req *q)
{
    /* behind the peer's end there is only what the socket holds: it is read, to learn whether the body is complete or the client has left */
    return q->pub.on_body && q->state < REQ_REPLIED && q->unconsumed >= HTTP_BODY_WINDOW_BYTES && q->conn && !q->conn->half;
}

void http_body_consumed(struct http_request *r, size_t n)
{
    struct req *q = http__req_of(r);
    if (!q->conn)
        return;
    if (q->h2) {
        http2__consumed(q, n);
        return;
    }
    bool was_full = http__req_is_full(q);
    ASSERT(n <= q->unconsumed);
    q->unconsumed -= n;
    if (was_full && !http__req_is_full(q))
        http__conn_flush_soon(q->conn); /* which reads on */
}

void http_body_set(struct http_request *r, struct slab *s)
{
    struct req *q = http__req_of(r);
    ASSERT(r->on_body && !q->slab);
    q->slab = s;
    r->body = (struct slice){s->data, s->n, s};
}

int http_body_charge(struct http_request *r, uint64_t bytes, struct error *err)
{
    struct req *q = http__req_of(r);
    _Atomic uint64_t *total = &q->w->server->body_bytes;
    uint64_t bound = q->w->limits.max_body_memory;
    uint64_t more = bytes > q->charged ? bytes - q->charged : 0;
    uint64_t held = atomic_fetch_add_explicit(total, more, memory_order_relaxed);
    if (bound && more && (more > bound || held > bound - more)) {
        atomic_fetch_sub_explicit(total, more, memory_order_relaxed);
        http__limit(q->w, LIMIT_MEMORY);
        return error_set(err, STATUS_UNAVAILABLE, "the server holds as many request bytes as it may; try again");
    }
    if (bytes < q->charged)
        atomic_fetch_sub_explicit(total, q->charged - bytes, memory_order_relaxed);
    q->charged = bytes;
    return 0;
}
