/* http_channel.c: a client connection on a loop.
 *
 *   CLOSED --connect--> CONNECTING --> IDLE --send--> BUSY --answer--> IDLE ...      any --failure, close--> CLOSED
 *
 * A callback may do anything to its channel, release included (the memory is the owner's and must outlive the callback): after each
 * one the generation tells whether this connection still is what it was. Reads go to a buffer on the stack, because a load
 * generator's answers are small and thousands of channels shouldn't own one each. */
#include "net/http_client.h"

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "os/file.h"

enum channel_state { CHANNEL_CLOSED, CHANNEL_CONNECTING, CHANNEL_IDLE, CHANNEL_BUSY };

#define READ_BYTES      16384
#define READS_PER_EVENT 16

static const struct http1_limits ANSWER_LIMITS = {.max_head_bytes = 64 << 10, .max_headers = 200, .max_url_bytes = 8192};

static void channel_ready(struct loop_fd *w, uint32_t events);

void http_channel_init(struct http_channel *ch, struct loop *loop)
{
    *ch = (struct http_channel){.loop = loop, .watch = {.fd = -1, .ready = channel_ready}};
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
    ch->paused = false;
    loop_fd_remove(ch->loop, &ch->watch);
    os_close(ch->watch.fd);
    ch->watch.fd = -1;
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
    struct error err;
    error_set(&err, code, "%s", text);
    fail(ch, &err);
}

static void set_connected(struct http_channel *ch)
{
    ch->state = CHANNEL_IDLE;
    loop_fd_set(ch->loop, &ch->watch, LOOP_READ);
    ch->connected(ch);
}

void http_channel_connect(struct http_channel *ch, const struct os_addr *addr)
{
    struct error err;
    int fd;
    ASSERT(ch->state == CHANNEL_CLOSED);
    int rc = os_sock_connect(addr, &fd, &err);
    if (rc && rc != STATUS_AGAIN) {
        ch->failed(ch, &err);
        return;
    }
    ch->watch.fd = fd;
    if (loop_fd_add(ch->loop, &ch->watch, rc ? LOOP_WRITE : LOOP_READ, &err)) {
        os_close(fd);
        ch->watch.fd = -1;
        ch->failed(ch, &err);
        return;
    }
    ch->state = CHANNEL_CONNECTING;
    if (rc == 0)
        set_connected(ch);
}

static void watch(struct http_channel *ch)
{
    loop_fd_set(ch->loop, &ch->watch, (ch->paused ? 0u : LOOP_READ) | (ch->out.n ? LOOP_WRITE : 0u));
}

static void written(struct http_channel *ch, size_t n)
{
    size_t first = MIN_OF(n, ch->out.n);
    ch->out.p += first;
    ch->out.n -= first;
    if (ch->out.n)
        return;
    ch->out = ch->out_next;
    ch->out_next = (struct str){0};
    ch->out.p += n - first;
    ch->out.n -= n - first;
}

static void flush(struct http_channel *ch)
{
    while (ch->out.n) {
        struct os_iov v[2] = {{ch->out.p, ch->out.n}, {ch->out_next.p, ch->out_next.n}};
        ssize_t n = os_sock_write(ch->watch.fd, v, ch->out_next.n ? 2 : 1);
        if (n == STATUS_AGAIN)
            break;
        if (n < 0) { /* an early answer may be waiting to be read; the end comes by itself */
            ch->out = ch->out_next = (struct str){0};
            break;
        }
        written(ch, (size_t)n);
    }
    watch(ch);
}

void http_channel_pause(struct http_channel *ch, bool paused)
{
    ch->paused = paused;
    if (ch->state == CHANNEL_BUSY)
        watch(ch);
}

static void begin_answer(struct http_channel *ch)
{
    arena_clear(&ch->arena);
    http1_init_response(&ch->parser, &ch->arena, &ANSWER_LIMITS, ch->head_request);
    ch->body_bytes = 0;
}

void http_channel_send(struct http_channel *ch, struct str request)
{
    http_channel_send_parts(ch, request, (struct str){0});
}

void http_channel_send_parts(struct http_channel *ch, struct str head, struct str body)
{
    ASSERT(ch->state == CHANNEL_IDLE && head.n);
    ch->state = CHANNEL_BUSY;
    ch->out = head;
    ch->out_next = body;
    ch->sent_ns = loop_update_now(ch->loop);
    ch->first_byte_ns = 0;
    begin_answer(ch);
    flush(ch);
}

/* The answer is complete. The server may have asked to close. */
static void answered(struct http_channel *ch)
{
    bool keep = ch->parser.keep_alive && ch->out.n == 0;
    int status = ch->parser.status;
    ch->state = CHANNEL_IDLE;
    ch->paused = false;
    if (keep)
        watch(ch);
    else
        http_channel_close(ch);
    ch->done(ch, status);
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

/* One read. True: read again. */
static bool read_once(struct http_channel *ch)
{
    char in[READ_BYTES];
    uint32_t generation = ch->generation;
    ssize_t n = os_sock_read(ch->watch.fd, in, sizeof in);
    if (n == STATUS_AGAIN)
        return false;
    if (n <= 0 || ch->state == CHANNEL_IDLE) {
        if (n == 0 && ch->state == CHANNEL_BUSY && http1_eof(&ch->parser) == HTTP1_END)
            answered(ch);
        else
            fail_text(ch, STATUS_IO,
                      n > 0 ? "the server sent an answer that nobody asked for" : "the server closed the connection");
        return false;
    }
    if (!ch->first_byte_ns)
        ch->first_byte_ns = loop_update_now(ch->loop);
    take(ch, in, (size_t)n);
    return ch->generation == generation && ch->state == CHANNEL_BUSY && (size_t)n == sizeof in && !ch->paused;
}

static void channel_ready(struct loop_fd *w, uint32_t events)
{
    struct http_channel *ch = CONTAINER_OF(w, struct http_channel, watch);
    uint32_t generation = ch->generation;
    struct error err;
    if (ch->state == CHANNEL_CONNECTING) {
        if (os_sock_connected(w->fd, &err))
            fail(ch, &err);
        else if (events & LOOP_WRITE)
            set_connected(ch);
        return;
    }
    if (events & LOOP_WRITE)
        flush(ch);
    if (ch->paused && !(events & LOOP_DEAD)) { /* the peer's end is behind what has not been read yet */
        if (events & LOOP_HANGUP)
            loop_fd_set(ch->loop, w, w->interest | LOOP_NO_RDHUP);
        return;
    }
    if (events & (LOOP_READ | LOOP_HANGUP))
        for (int i = 0; i < READS_PER_EVENT && ch->generation == generation; i++)
            if (!read_once(ch))
                return;
}
