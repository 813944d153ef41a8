/* exchange_h2.c: exchanges over HTTP/2: many on one connection, as many as the server allows. Exchanges that come while the connection is being
 * made wait for it together; a connection that nobody waits for any more is given up.
 *
 * A connection takes no more exchanges once its server said GOAWAY; what the server had not begun by then fails as unsent, so that it may be
 * tried elsewhere whatever the route says. It ends with its last exchange. A paused exchange keeps what comes unconsumed: the window of that
 * stream closes, the others go on. */
#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "gateway/gateway_priv.h"

#define WAITING_MAX 100 /* exchanges that wait for one connection to come about */

static struct exchange *of(struct http2_call *call)
{
    return CONTAINER_OF(call, struct exchange, call);
}

/* ---- life of a connection ---- */

/* The exchange is over, whoever ended it. */
static void detach(struct conn *c, struct exchange *x)
{
    list_remove(&x->link);
    c->n_streams--;
    x->ops = NULL;
    x->conn = NULL;
}

/* Nobody is left on it: keep it for the next, or let it go. */
static void settle(struct conn *c, bool fresh)
{
    if (c->n_streams || c->gone)
        return;
    if (fresh || !c->h2 || http2_client_room(c->h2->session) == 0)
        peers__drop(c);
    else
        peers__rest(c);
}

/* No exchange of it goes on. `unsent`: none of them was. */
static void fail_all(struct conn *c, const struct error *err, bool unsent)
{
    struct list *l;
    bool tls_failed = c->channel.dial.tls_failed;
    if (tls_failed)
        peers__tls_failed(c, err);
    peers__drop(c); /* first: a failed exchange tries again from within, and must not find it */
    while ((l = list_first(&c->streams))) {
        struct exchange *x = LIST_ENTRY(l, struct exchange, link);
        detach(c, x);
        x->unsent = unsent;
        x->tls_failed = tls_failed;
        x->fault = x->connecting ? exchange__connect_fault(&c->channel.dial) : x->heard ? EXCHANGE_CUT : EXCHANGE_CLOSED;
        x->events->failed(x, err);
    }
}

static void on_over(struct http2_channel *ch, const struct error *err)
{
    fail_all(ch->user, err, false);
}

/* ---- the session's events ---- */

static void on_head(void *user, struct http2_call *call)
{
    struct exchange *x = of(call);
    (void)user;
    x->heard = true;
    x->status = call->status;
    x->headers = call->headers;
    x->n_headers = call->n_headers;
    x->content_length = call->content_length;
    x->answer_body = !call->has_body ? HTTP1_NO_BODY : call->has_length ? HTTP1_LENGTH : HTTP1_UNTIL_EOF;
    x->events->head(x);
}

static void on_body(void *user, struct http2_call *call, const uint8_t *p, size_t n)
{
    struct conn *c = user;
    struct exchange *x = of(call);
    if (x->paused)
        x->unconsumed += n;
    else
        http2_client_consume(c->h2->session, call, n);
    if (n)
        x->events->body(x, (struct str){(const char *)p, n});
}

static void on_end(void *user, struct http2_call *call)
{
    struct conn *c = user;
    struct exchange *x = of(call);
    bool fresh = x->fresh;
    x->trailers = call->trailers;
    x->n_trailers = call->n_trailers;
    detach(c, x);
    x->events->done(x);
    settle(c, fresh);
}

static void on_failed(void *user, struct http2_call *call, enum http2_failure why, uint32_t code)
{
    struct conn *c = user;
    struct exchange *x = of(call);
    struct error err;
    bool fresh = x->fresh;
    detach(c, x);
    x->unsent = why != HTTP2_CALL_RESET;
    x->left = why == HTTP2_CALL_LEFT;
    x->fault = x->unsent ? EXCHANGE_UNBEGUN : x->heard ? EXCHANGE_CUT : EXCHANGE_CLOSED;
    error_set(&err, STATUS_IO,
              x->unsent ? "the server did not begin on it (HTTP/2 error %u)" : "the stream was reset (HTTP/2 error %u)",
              (unsigned)code);
    x->events->failed(x, &err);
    settle(c, fresh);
}

static struct str on_pending(void *user, struct http2_call *call, bool *last)
{
    struct exchange *x = of(call);
    (void)user;
    return x->events->pending(x, last);
}

static void on_taken(void *user, struct http2_call *call, size_t n)
{
    struct exchange *x = of(call);
    (void)user;
    x->events->taken(x, n);
}

static const struct http2_client_events events = {
    .head = on_head, .body = on_body, .end = on_end, .failed = on_failed, .pending = on_pending, .taken = on_taken};

/* ---- connecting ---- */

bool h2__start(struct conn *c, struct error *err)
{
    if (http2_channel_create(&c->channel.dial, &events, c, c->peer->transport->ping_ns, &c->h2, err))
        return false;
    c->h2->over = on_over;
    return true;
}

static void on_connected(struct http_channel *ch)
{
    struct conn *c = CONTAINER_OF(ch, struct conn, channel);
    struct error err;
    if (ch->dial.tls && !tls_conn_is_h2(ch->dial.tls)) {
        c->peer->speaks_h2 = false;
        error_set(&err, STATUS_UNAVAILABLE, "the server does not offer HTTP/2 (ALPN)");
        fail_all(c, &err, true);
        return;
    }
    if (!h2__start(c, &err)) {
        fail_all(c, &err, true);
        return;
    }
    c->waiting = false;
    LIST_EACH(it, &c->streams)
    {
        struct exchange *x = LIST_ENTRY(it, struct exchange, link);
        x->connecting = false;
        x->events->connected(x);
        if (c->gone)
            return;
    }
}

static void on_connect_failed(struct http_channel *ch, const struct error *err)
{
    fail_all(CONTAINER_OF(ch, struct conn, channel), err, true);
}

void h2__attach(struct conn *c)
{
    c->is_h2 = c->waiting = true;
    c->channel.connected = on_connected;
    c->channel.failed = on_connect_failed;
}

bool h2__has_room(const struct conn *c)
{
    return c->waiting ? c->n_streams < WAITING_MAX : !c->gone && c->h2 && http2_client_room(c->h2->session) > 0;
}

void h2__join(struct conn *c, struct exchange *x)
{
    x->ops = &h2__ops;
    x->conn = c;
    x->connecting = c->waiting;
    x->reused = !c->waiting && c->n_streams == 0;
    list_init(&x->link);
    list_push_back(&c->streams, &x->link);
    c->n_streams++;
}

/* ---- ops ---- */

/* Only gRPC needs it, and says so itself (its te header is of one hop). */
static bool is_grpc(const struct exchange_request *r)
{
    static const char type[] = "application/grpc";
    for (size_t i = 0; i < r->n_headers; i++)
        if (str_ieqz(r->headers[i].name, "content-type"))
            return r->headers[i].value.n >= sizeof type - 1 &&
                   str_ieqz((struct str){r->headers[i].value.p, sizeof type - 1}, type);
    return false;
}

static int submit(struct exchange *x, const struct exchange_request *r)
{
    struct conn *c = x->conn;
    struct http_header *all = arena_array(x->arena, r->n_headers + 2, sizeof *all);
    size_t n = r->n_headers;
    char *length = r->body == EXCHANGE_LENGTH ? arena_printf(x->arena, "%llu", (unsigned long long)r->length) : NULL;
    char *path = r->query.n ? arena_printf(x->arena, "%.*s?%.*s", STR_ARG(r->path), STR_ARG(r->query)) : NULL;
    if (!all || (r->body == EXCHANGE_LENGTH && !length) || (r->query.n && !path))
        return STATUS_NOMEM;
    if (n)
        memcpy(all, r->headers, n * sizeof *all);
    if (length)
        all[n++] = (struct http_header){STR("content-length"), str_of(length)};
    if (is_grpc(r))
        all[n++] = (struct http_header){STR("te"), STR("trailers")};
    const struct http2_client_request request = {
        .method = r->method,
        .scheme = c->peer->tls.client ? STR("https") : STR("http"),
        .authority = r->authority,
        .path = path ? str_of(path) : r->path,
        .headers = all,
        .n_headers = n,
        .body = r->body == EXCHANGE_STREAM || (r->body == EXCHANGE_LENGTH && r->length),
    };
    x->call = (struct http2_call){.arena = x->arena};
    return http2_client_submit(c->h2->session, &x->call, &request);
}

static void h2_send(struct exchange *x, const struct exchange_request *r)
{
    struct conn *c = x->conn;
    struct error err;
    int rc = submit(x, r);
    if (rc == 0) {
        x->submitted = true;
        http2_channel_flush_soon(c->h2);
        return;
    }
    bool fresh = x->fresh;
    detach(c, x);
    x->unsent = true;
    error_set(&err, rc,
              rc == STATUS_NOMEM ? "out of memory for this request; try again later" : "the connection takes no more requests");
    x->events->failed(x, &err);
    settle(c, fresh);
}

static void h2_more(struct exchange *x)
{
    if (!x->submitted)
        return;
    http2_client_resume(x->conn->h2->session, &x->call);
    http2_channel_flush_soon(x->conn->h2);
}

static void h2_pause(struct exchange *x, bool paused)
{
    x->paused = paused;
    if (paused || !x->unconsumed)
        return;
    http2_client_consume(x->conn->h2->session, &x->call, x->unconsumed);
    x->unconsumed = 0;
    http2_channel_flush_soon(x->conn->h2);
}

static void h2_drop(struct exchange *x)
{
    struct conn *c = x->conn;
    if (x->submitted) {
        http2_client_cancel(c->h2->session, &x->call);
        http2_channel_flush_soon(c->h2);
    }
    detach(c, x);
    if (c->waiting && c->n_streams == 0)
        peers__drop(c);
    else
        settle(c, false);
}

const struct exchange_ops h2__ops = {.send = h2_send, .more = h2_more, .pause = h2_pause, .drop = h2_drop};
