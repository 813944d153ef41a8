/* http2_channel.c: bytes between a socket and a client's HTTP/2 session. Output is put together on the stack, one write each time it is full, and
 * only what the socket does not take is kept; while there is some, no further frame is made.
 *
 * Silence. A connection that died without a word (a cable, a firewall that forgot) looks like a server that thinks. With `ping_ns` set it is
 * asked; the timer is only looked at while calls are under way, and moved lazily: what was heard meanwhile is seen when it fires. */
#include "net/http2_channel.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"

#define READ_BYTES      32768
#define READS_PER_EVENT 8
#define WRITE_BYTES     (2 * HTTP2_OUTPUT_MIN)

/* What a server may send: heads of 64 KiB; 256 KiB of each answer ahead of its client, as net's own replies queue. */
static const struct http2_client_limits LIMITS = {.max_header_bytes = 64 << 10,
                                                  .max_headers = 200,
                                                  .window_bytes = 256 << 10,
                                                  .connection_bytes = 16 << 20,
                                                  .table_bytes = 4096};

static void on_ready(struct dial *d, uint32_t events);
static void on_timer(struct loop_timer *t);
static void run_flush(struct loop_task *t);

int http2_channel_create(struct dial *dial, const struct http2_client_events *events, void *user, uint64_t ping_ns,
                         struct http2_channel **out, struct error *err)
{
    struct http2_channel *ch = calloc(1, sizeof *ch);
    if (!ch)
        return error_set(err, STATUS_NOMEM, "out of memory for an HTTP/2 connection");
    int rc = http2_client_create(&LIMITS, events, user, &ch->session, err);
    if (rc) {
        free(ch);
        return rc;
    }
    ch->dial = dial;
    ch->user = user;
    ch->ping_ns = ping_ns;
    ch->heard_ns = loop_now_ns(dial->loop);
    ch->flush.run = run_flush;
    loop_timer_init(&ch->timer, on_timer);
    dial->user = ch;
    dial->ready = on_ready;
    *out = ch;
    http2_channel_flush_soon(ch);
    return 0;
}

void http2_channel_destroy(struct http2_channel *ch)
{
    if (!ch)
        return;
    loop_timer_stop(ch->dial->loop, &ch->timer);
    http2_client_destroy(ch->session);
    free(ch->rest);
    free(ch);
}

static void shut(struct http2_channel *ch)
{
    ch->closed = true;
    loop_timer_stop(ch->dial->loop, &ch->timer);
    dial_close(ch->dial);
}

static void fail(struct http2_channel *ch, int code, const char *text)
{
    struct error err;
    const char *why = ch->dial->tls ? tls_conn_reason(ch->dial->tls) : NULL;
    if (ch->closed)
        return;
    error_set(&err, code, "%s%s%s", text, why ? ": " : "", why ? why : "");
    shut(ch);
    ch->over(ch, &err);
}

/* ---- writing ---- */

static bool keep_rest(struct http2_channel *ch, const uint8_t *p, size_t n)
{
    ch->rest = malloc(n);
    if (!ch->rest) {
        fail(ch, STATUS_NOMEM, "out of memory for an HTTP/2 connection");
        return false;
    }
    memcpy(ch->rest, p, n);
    ch->rest_at = 0;
    ch->rest_n = n;
    return true;
}

/* Bytes written; 0 the socket is full, -1 over. */
static ssize_t write_some(struct http2_channel *ch, const uint8_t *p, size_t n)
{
    struct os_iov v = {p, n};
    ssize_t put = dial_write(ch->dial, &v, 1);
    if (put == STATUS_AGAIN)
        return 0;
    if (put < 0) {
        fail(ch, STATUS_IO, "the server closed the connection");
        return -1;
    }
    return put;
}

/* 1 nothing is left over, 0 the socket is full, -1 over. */
static int write_rest(struct http2_channel *ch)
{
    while (ch->rest_n) {
        ssize_t put = write_some(ch, ch->rest + ch->rest_at, ch->rest_n);
        if (put <= 0)
            return (int)put;
        ch->rest_at += (size_t)put;
        ch->rest_n -= (size_t)put;
    }
    free(ch->rest);
    ch->rest = NULL;
    return 1;
}

static int write_ready(struct http2_channel *ch)
{
    uint8_t out[WRITE_BYTES];
    int rc = write_rest(ch);
    while (rc == 1) {
        ch->busy = true;
        size_t n = http2_client_output(ch->session, out, sizeof out);
        ch->busy = false;
        if (ch->closed)
            return -1;
        if (n == 0)
            return 1;
        ssize_t put = write_some(ch, out, n);
        if (put < 0 || ((size_t)put < n && !keep_rest(ch, out + put, n - (size_t)put)))
            return -1;
        rc = write_rest(ch);
    }
    return rc;
}

static void flush(struct http2_channel *ch)
{
    if (ch->closed || write_ready(ch) < 0 || ch->closed)
        return;
    if (http2_client_done(ch->session)) {
        fail(ch, STATUS_IO, http2_client_why(ch->session));
        return;
    }
    dial_want(ch->dial, LOOP_READ | (ch->rest_n ? LOOP_WRITE : 0u));
    if (ch->ping_ns && http2_client_calls(ch->session) && !heap_contains(&ch->timer.node)) {
        ch->heard_ns = loop_now_ns(ch->dial->loop);
        loop_timer_start(ch->dial->loop, &ch->timer, ch->heard_ns + ch->ping_ns);
    }
}

static void run_flush(struct loop_task *t)
{
    struct http2_channel *ch = CONTAINER_OF(t, struct http2_channel, flush);
    ch->flush_queued = false;
    flush(ch);
}

void http2_channel_flush_soon(struct http2_channel *ch)
{
    if (ch->flush_queued || ch->closed)
        return;
    ch->flush_queued = true;
    loop_defer(ch->dial->loop, &ch->flush);
}

void http2_channel_close(struct http2_channel *ch)
{
    if (ch->closed)
        return;
    if (!ch->busy && !ch->rest_n) {
        uint8_t out[WRITE_BYTES];
        http2_client_goaway(ch->session);
        struct os_iov v = {out, http2_client_output(ch->session, out, sizeof out)};
        WARN_ON(v.n && dial_write(ch->dial, &v, 1) > (ssize_t)v.n); /* best effort */
    }
    shut(ch);
}

/* ---- reading ---- */

/* One read. True: read again. */
static bool read_once(struct http2_channel *ch)
{
    uint8_t in[READ_BYTES];
    ssize_t n = dial_read(ch->dial, in, sizeof in);
    if (n == STATUS_AGAIN)
        return false;
    if (n <= 0) {
        fail(ch, STATUS_IO, http2_client_why(ch->session));
        return false;
    }
    ch->heard_ns = loop_now_ns(ch->dial->loop);
    ch->pinged = false;
    ch->busy = true;
    bool on = http2_client_input(ch->session, in, (size_t)n);
    ch->busy = false;
    if (!on && !ch->closed) {
        fail(ch, STATUS_INVALID, http2_client_why(ch->session));
        return false;
    }
    return !ch->closed && (size_t)n == sizeof in;
}

static void on_ready(struct dial *d, uint32_t events)
{
    struct http2_channel *ch = d->user;
    if (events & (LOOP_READ | LOOP_HANGUP))
        for (int i = 0; i < READS_PER_EVENT && !ch->closed; i++)
            if (!read_once(ch))
                break;
    flush(ch);
}

static void on_timer(struct loop_timer *t)
{
    struct http2_channel *ch = CONTAINER_OF(t, struct http2_channel, timer);
    uint64_t now = loop_now_ns(ch->dial->loop);
    if (!http2_client_calls(ch->session))
        return; /* started again with the next call */
    if (now - ch->heard_ns < ch->ping_ns) {
        loop_timer_start(ch->dial->loop, t, ch->heard_ns + ch->ping_ns);
        return;
    }
    if (ch->pinged) {
        fail(ch, STATUS_IO, "the server is silent and does not answer a PING");
        return;
    }
    ch->pinged = true;
    ch->heard_ns = now;
    http2_client_ping(ch->session);
    loop_timer_start(ch->dial->loop, t, now + ch->ping_ns);
    flush(ch);
}
