/* http_channel.c: a client connection on a loop.
 *
 *   CLOSED --connect--> CONNECTING --> IDLE --send--> BUSY --answer--> IDLE ...      any --failure, close--> CLOSED
 *                                                       \--101, where it was asked for--> TUNNEL
 *
 * A callback may do anything to its channel, release included (the memory is the owner's and must outlive the callback): after each
 * one the generation tells whether this connection still is what it was. Reads go to a buffer on the stack, because a load
 * generator's answers are small and thousands of channels shouldn't own one each.
 *
 * Bodies that come as they come are pulled: each flush asks body_next anew where the bytes are, since their owner may have moved them while
 * the socket was full; what was announced of a chunk is remembered as a number. */
#include "net/http_client.h"

#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"

enum channel_state { CHANNEL_CLOSED, CHANNEL_CONNECTING, CHANNEL_IDLE, CHANNEL_BUSY, CHANNEL_TUNNEL };
enum body_mode { BODY_NONE, BODY_PLAIN, BODY_CHUNKED }; /* of the request; NONE: all of it was put into `out` */

#define READ_BYTES      16384
#define READS_PER_EVENT 16
#define FLAT_BYTES      4096

static const struct http1_limits ANSWER_LIMITS = {.max_head_bytes = 64 << 10, .max_headers = 200, .max_url_bytes = 8192};

static void on_connected(struct dial *d);
static void on_failed(struct dial *d, const struct error *err);
static void on_ready(struct dial *d, uint32_t events);

void http_channel_init(struct http_channel *ch, struct loop *loop)
{
    *ch = (struct http_channel){.loop = loop};
    dial_init(&ch->dial, loop);
    ch->dial.connected = on_connected;
    ch->dial.failed = on_failed;
    ch->dial.ready = on_ready;
    arena_init(&ch->arena, 1024, 0);
}

bool http_channel_is_open(const struct http_channel *ch)
{
    return ch->state != CHANNEL_CLOSED;
}

void http_channel_close(struct http_channel *ch)
{
    if (ch->state == CHANNEL_CLOSED)
        return;
    ch->state = CHANNEL_CLOSED;
    ch->generation++;
    ch->out = ch->out_next = (struct str){0};
    ch->paused = ch->eof = ch->shut = false;
    ch->body_mode = BODY_NONE;
    dial_close(&ch->dial);
}

void http_channel_release(struct http_channel *ch)
{
    http_channel_close(ch);
    arena_release(&ch->arena);
}

static void fail(struct http_channel *ch, const struct error *err)
{
    http_channel_close(ch);
    ch->failed(ch, err);
}

static void fail_text(struct http_channel *ch, int code, const char *text)
{
    const char *why = ch->dial.tls ? tls_conn_reason(ch->dial.tls) : NULL;
    struct error err;
    error_set(&err, code, "%s%s%s", text, why ? ": " : "", why ? why : "");
    fail(ch, &err);
}

/* ---- connecting ---- */

static void on_connected(struct dial *d)
{
    struct http_channel *ch = CONTAINER_OF(d, struct http_channel, dial);
    ch->state = CHANNEL_IDLE;
    ch->connected(ch);
}

static void on_failed(struct dial *d, const struct error *err)
{
    struct http_channel *ch = CONTAINER_OF(d, struct http_channel, dial);
    fail(ch, err);
}

void http_channel_connect_tls(struct http_channel *ch, const struct os_addr *addr, const struct dial_tls *tls)
{
    ASSERT(ch->state == CHANNEL_CLOSED);
    ch->state = CHANNEL_CONNECTING;
    dial_start(&ch->dial, addr, tls);
}

void http_channel_connect(struct http_channel *ch, const struct os_addr *addr)
{
    http_channel_connect_tls(ch, addr, NULL);
}

/* ---- writing ---- */

/* The request's last byte was written, or there is none to wait for. */
static bool sent_all(const struct http_channel *ch)
{
    return ch->out.n == 0 && ch->body_mode == BODY_NONE && ch->tail_left == 0;
}

static void watch(struct http_channel *ch)
{
    bool writes = ch->out.n || ch->chunk_left || ch->tail_left;
    uint32_t reads = ch->eof ? LOOP_NO_RDHUP : ch->paused ? 0u : LOOP_READ;
    dial_want(&ch->dial, reads | (writes ? LOOP_WRITE : 0u));
}

/* Bytes of `s` that `*n` written ones cover. */
static void skip(struct str *s, size_t *n)
{
    size_t take = MIN_OF(*n, s->n);
    s->p += take;
    s->n -= take;
    *n -= take;
}

static void written(struct http_channel *ch, size_t n)
{
    skip(&ch->out, &n);
    if (ch->out.n == 0) {
        ch->out = ch->out_next;
        ch->out_next = (struct str){0};
        skip(&ch->out, &n);
    }
    size_t data = MIN_OF(n, ch->chunk_left);
    ch->chunk_left -= data;
    ch->tail_left -= (uint8_t)(n - data);
    if (data)
        ch->body_taken(ch, data);
}

/* Announce the next `n` bytes of the body, 0: its end. */
static void announce(struct http_channel *ch, size_t n)
{
    ch->chunk_left = n;
    if (ch->body_mode == BODY_CHUNKED && n) {
        ch->out_next = (struct str){ch->chunk_head, http1_chunk_head(ch->chunk_head, n)};
        ch->tail_left = 2;
    } else if (ch->body_mode == BODY_CHUNKED) {
        ch->out_next = STR(HTTP1_LAST_CHUNK);
    }
    if (n == 0)
        ch->body_mode = BODY_NONE;
}

/* What is ready of the body; announces it, and the end, where that is due. */
static struct str next_part(struct http_channel *ch)
{
    bool last = false;
    struct str part = {0};
    if (ch->body_mode == BODY_NONE || ch->out_next.n || (ch->chunk_left == 0 && ch->tail_left))
        return part;
    part = ch->body_next(ch, &last);
    if (ch->chunk_left == 0 && (part.n || last))
        announce(ch, part.n);
    part.n = MIN_OF(part.n, ch->chunk_left);
    if (ch->out.n == 0) {
        ch->out = ch->out_next;
        ch->out_next = (struct str){0};
    }
    return part;
}

/* Small parts go out as one: cheaper than the kernel's walk over several. */
static size_t flatten(char to[FLAT_BYTES], struct os_iov *v, size_t n)
{
    size_t total = 0, at = 0;
    for (size_t i = 0; i < n; i++)
        total += v[i].n;
    if (n < 2 || total > FLAT_BYTES)
        return n;
    for (size_t i = 0; i < n; i++) {
        memcpy(to + at, v[i].p, v[i].n);
        at += v[i].n;
    }
    v[0] = (struct os_iov){to, at};
    return 1;
}

static void flush(struct http_channel *ch)
{
    char flat[FLAT_BYTES];
    uint32_t generation = ch->generation;
    for (;;) {
        struct str part = next_part(ch);
        struct os_iov v[4] = {{ch->out.p, ch->out.n}};
        size_t n = ch->out.n ? 1 : 0;
        if (ch->out_next.n)
            v[n++] = (struct os_iov){ch->out_next.p, ch->out_next.n};
        if (part.n)
            v[n++] = (struct os_iov){part.p, part.n};
        if (ch->tail_left && part.n == ch->chunk_left)
            v[n++] = (struct os_iov){"\r\n" + 2 - ch->tail_left, ch->tail_left};
        if (n == 0)
            break;
        ssize_t put = dial_write(&ch->dial, v, flatten(flat, v, n));
        if (put == STATUS_AGAIN)
            break;
        if (put < 0) { /* an early answer may be waiting to be read; the end comes by itself */
            ch->out = ch->out_next = (struct str){0};
            ch->body_mode = BODY_NONE;
            ch->chunk_left = ch->tail_left = 0;
            ch->parser.keep_alive = false;
            break;
        }
        written(ch, (size_t)put);
        if (ch->generation != generation)
            return;
    }
    if (ch->state == CHANNEL_TUNNEL && sent_all(ch) && !ch->shut) {
        ch->shut = true;
        dial_shut(&ch->dial);
    }
    watch(ch);
}

void http_channel_pause(struct http_channel *ch, bool paused)
{
    ch->paused = paused;
    if (ch->state >= CHANNEL_BUSY)
        watch(ch);
}

static void begin_answer(struct http_channel *ch)
{
    arena_clear(&ch->arena);
    http1_init_response(&ch->parser, &ch->arena, &ANSWER_LIMITS, ch->head_request);
    ch->body_bytes = 0;
}

static void send(struct http_channel *ch, struct str head, struct str body, enum body_mode mode)
{
    ASSERT(ch->state == CHANNEL_IDLE && head.n);
    ch->state = CHANNEL_BUSY;
    ch->out = head;
    ch->out_next = body;
    ch->body_mode = (uint8_t)mode;
    ch->chunk_left = ch->tail_left = 0;
    ch->sent_ns = loop_update_now(ch->loop);
    ch->first_byte_ns = 0;
    begin_answer(ch);
    flush(ch);
}

void http_channel_send(struct http_channel *ch, struct str request)
{
    send(ch, request, (struct str){0}, BODY_NONE);
}

void http_channel_send_stream(struct http_channel *ch, struct str head, bool chunked)
{
    send(ch, head, (struct str){0}, chunked ? BODY_CHUNKED : BODY_PLAIN);
}

void http_channel_more(struct http_channel *ch)
{
    if (ch->state >= CHANNEL_BUSY && ch->body_mode != BODY_NONE && ch->out.n == 0)
        flush(ch);
}

/* ---- reading ---- */

/* The answer is complete. The server may have asked to close. */
static void answered(struct http_channel *ch)
{
    bool keep = ch->parser.keep_alive && sent_all(ch);
    int status = ch->parser.status;
    ch->state = CHANNEL_IDLE;
    ch->paused = false;
    if (keep)
        watch(ch);
    else
        http_channel_close(ch);
    ch->done(ch, status);
}

/* 101: from here on the bytes are nobody's but the owner's. */
static void become_tunnel(struct http_channel *ch, struct str rest)
{
    uint32_t generation = ch->generation;
    ch->state = CHANNEL_TUNNEL;
    ch->body_mode = BODY_PLAIN;
    ch->chunk_left = 0;
    ch->switched(ch);
    if (ch->generation == generation && rest.n)
        ch->body(ch, rest);
}

/* Parse; stops when the channel is no longer what it was, or the answer is complete. */
static void take(struct http_channel *ch, const char *data, size_t n)
{
    size_t at = 0;
    bool more = true;
    while (more) {
        struct str part;
        size_t used;
        uint32_t generation = ch->generation;
        enum http1_event e = http1_read(&ch->parser, data + at, n - at, &used, &part);
        at += used;
        more = at < n || e == HTTP1_HEAD || e == HTTP1_BODY;
        if (e == HTTP1_HEAD && ch->head && ch->parser.status / 100 != 1) {
            ch->head(ch);
            if (ch->generation != generation)
                return;
        } else if (e == HTTP1_BODY) {
            ch->body_bytes += part.n;
            if (ch->body)
                ch->body(ch, part);
            if (ch->generation != generation)
                return;
        } else if (e == HTTP1_ERROR) {
            fail_text(ch, STATUS_INVALID, ch->parser.error_text);
            return;
        } else if (e == HTTP1_END && ch->parser.status == 101 && ch->upgrade && sent_all(ch)) {
            become_tunnel(ch, (struct str){data + at, n - at});
            return;
        } else if (e == HTTP1_END && ch->parser.status == 101) {
            fail_text(ch, STATUS_INVALID, "the server switches to a protocol that nobody asked for");
            return;
        } else if (e == HTTP1_END && ch->parser.status / 100 == 1) {
            begin_answer(ch);
        } else if (e == HTTP1_END) {
            if (at < n) /* bytes that nobody asked for */
                ch->parser.keep_alive = false;
            answered(ch);
            return;
        }
    }
}

static void ended(struct http_channel *ch, ssize_t n)
{
    if (ch->state == CHANNEL_BUSY && n == 0 && http1_eof(&ch->parser) == HTTP1_END)
        answered(ch);
    else
        fail_text(ch, STATUS_IO,
                  n > 0 ? "the server sent an answer that nobody asked for" : "the server closed the connection");
}

static void tunnel_take(struct http_channel *ch, const char *data, size_t n)
{
    if (n) {
        ch->body_bytes += n;
        ch->body(ch, (struct str){data, n});
        return;
    }
    ch->eof = true;
    watch(ch);
    ch->ended(ch);
}

/* One read. True: read again. */
static bool read_once(struct http_channel *ch)
{
    char in[READ_BYTES];
    uint32_t generation = ch->generation;
    ssize_t n = dial_read(&ch->dial, in, sizeof in);
    if (n == STATUS_AGAIN)
        return false;
    if (n >= 0 && ch->state == CHANNEL_TUNNEL && !ch->eof) {
        tunnel_take(ch, in, (size_t)n);
        return ch->generation == generation && (size_t)n == sizeof in && !ch->paused;
    }
    if (n <= 0 || ch->state == CHANNEL_IDLE) {
        ended(ch, n);
        return false;
    }
    if (!ch->first_byte_ns)
        ch->first_byte_ns = loop_update_now(ch->loop);
    take(ch, in, (size_t)n);
    return ch->generation == generation && ch->state == CHANNEL_BUSY && (size_t)n == sizeof in && !ch->paused;
}

static void on_ready(struct dial *d, uint32_t events)
{
    struct http_channel *ch = CONTAINER_OF(d, struct http_channel, dial);
    uint32_t generation = ch->generation;
    if (events & LOOP_WRITE && ch->state >= CHANNEL_BUSY) {
        flush(ch);
        if (ch->generation != generation)
            return;
    }
    if (ch->paused && !(events & LOOP_DEAD)) { /* the peer's end is behind what has not been read yet */
        if (events & LOOP_HANGUP)
            dial_want(d, d->watch.interest | LOOP_NO_RDHUP);
        return;
    }
    if (events & (LOOP_READ | LOOP_HANGUP)) {
        for (int i = 0; i < READS_PER_EVENT && ch->generation == generation; i++)
            if (!read_once(ch))
                break;
        if (d->tls && ch->generation == generation) /* what was read may have left more behind, decrypted */
            watch(ch);
    }
}
