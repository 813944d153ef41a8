/* HTTP/2 input behind a preface, as a server takes it. Byte 0: bit 0 a preface is sent for the input; bit 1 the owner answers at the head, else at
 * the end of a request; bit 2 it consumes bodies late; bit 3 it resets every third stream. The rest is handed in whole and cut into pieces: both must
 * give the same events and the same end, and in the cut run what is sent must be whole frames of legal length. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/size.h"
#include "wire/http2.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct http2_limits LIMITS = {.max_streams = 8,
                                           .max_header_bytes = 1000,
                                           .max_headers = 12,
                                           .max_url_bytes = 100,
                                           .max_continuations = 4,
                                           .window_bytes = 65535,
                                           .table_bytes = 512,
                                           .glitches = 30,
                                           .glitch_rate = 1};

enum { AT_HEAD = 2, LATE = 4, RESETS = 8 };

struct stream {
    struct http2_stream wire;
    struct arena arena;
    size_t left, held; /* reply bytes to come; body bytes not consumed */
    uint64_t
        body; /* as `trace`; counts when the request ends: one that is cut off for its length may have handed out more or less */
    bool replied, over, headed, ended;
    struct stream *next;
};

struct owner {
    struct http2 *h;
    struct stream *all;
    uint64_t trace; /* FNV-1a over the events */
    uint32_t n_streams, glitches;
    int how;
};

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void hash(uint64_t *h, const void *p, size_t n)
{
    const uint8_t *b = p;
    for (size_t i = 0; i < n; i++)
        *h = (*h ^ b[i]) * 1099511628211u;
}

static void note(struct owner *o, const void *p, size_t n)
{
    hash(&o->trace, p, n);
}

static void note_u32(struct owner *o, uint32_t a, uint32_t b)
{
    note(o, &a, sizeof a);
    note(o, &b, sizeof b);
}

static struct stream *of(struct http2_stream *s)
{
    return CONTAINER_OF(s, struct stream, wire);
}

static struct http2_stream *on_begin(void *user)
{
    struct owner *o = user;
    struct stream *s = calloc(1, sizeof *s);
    check(s != NULL);
    arena_init(&s->arena, 512, 1 << 20);
    s->wire.arena = &s->arena;
    s->next = o->all;
    o->all = s;
    return &s->wire;
}

static void answer(struct owner *o, struct http2_stream *s)
{
    const struct http_header h = {STR("X-Y"), STR("z")};
    of(s)->replied = true;
    of(s)->left = (size_t)s->id * 1000 % 40000;
    check(http2_respond(o->h, s, 200, &h, 1, of(s)->left > 0) == 0);
}

static void on_head(void *user, struct http2_stream *s)
{
    struct owner *o = user;
    check(!of(s)->headed && !of(s)->over);
    of(s)->headed = true;
    note_u32(o, (uint32_t)s->id, (uint32_t)s->error_status);
    check(s->error_status == 0 || s->error_status >= 400);
    if (s->error_status) {
        of(s)->replied = true;
        check(http2_respond(o->h, s, s->error_status, NULL, 0, false) == 0);
        return;
    }
    check(s->url.path.n > 0 && (s->url.path.p[0] == '/' || s->url.path.p[0] == '*'));
    check(s->n_headers > 0 && s->n_headers <= LIMITS.max_headers + 1);
    note(o, s->method.p, s->method.n);
    note(o, s->url.path.p, s->url.path.n);
    for (uint32_t i = 0; i < s->n_headers; i++) {
        check(http1_is_token(s->headers[i].name));
        check(!memchr(s->headers[i].value.p, '\n', s->headers[i].value.n) &&
              !memchr(s->headers[i].value.p, 0, s->headers[i].value.n));
        note(o, s->headers[i].name.p, s->headers[i].name.n);
        note(o, s->headers[i].value.p, s->headers[i].value.n);
    }
    if (o->how & RESETS && ++o->n_streams % 3 == 0)
        http2_reset(o->h, s, HTTP2_CANCEL, true);
    else if (o->how & AT_HEAD)
        answer(o, s);
}

static void on_body(void *user, struct http2_stream *s, const uint8_t *p, size_t n)
{
    struct owner *o = user;
    check(of(s)->headed && !of(s)->ended && !of(s)->over && n > 0);
    hash(&of(s)->body, p, n);
    if (o->how & LATE)
        of(s)->held += n;
    else
        http2_consume(o->h, s, n);
}

static void on_end(void *user, struct http2_stream *s)
{
    struct owner *o = user;
    check(of(s)->headed && !of(s)->ended && !of(s)->over);
    of(s)->ended = true;
    note_u32(o, (uint32_t)s->id, 77);
    note(o, &of(s)->body, sizeof of(s)->body);
    http2_consume(o->h, s, of(s)->held);
    if (!of(s)->replied)
        answer(o, s);
}

static void on_closed(void *user, struct http2_stream *s, bool complete)
{
    (void)user;
    check(!of(s)->over && (!complete || of(s)->left == 0));
    of(s)->over = true;
}

static size_t on_pending(void *user, struct http2_stream *s, bool *last)
{
    (void)user;
    *last = true;
    return of(s)->left;
}

static void on_fill(void *user, struct http2_stream *s, uint8_t *to, size_t n)
{
    (void)user;
    check(n <= of(s)->left);
    memset(to, 'f', n);
    of(s)->left -= n;
}

static void on_glitch(void *user, enum http2_glitch g)
{
    check(g < HTTP2_GLITCH_COUNT && http2_glitch_name(g) != NULL);
    ((struct owner *)user)->glitches++;
}

static void on_nothing(void *user)
{
    (void)user;
}

static const struct http2_events EVENTS = {on_begin,   on_head, on_body,   on_end,     on_closed,
                                           on_pending, on_fill, on_glitch, on_nothing, on_nothing};

/* Everything sent so far is a sequence of whole frames, each of a length that the peer allows. */
static void check_frames(const struct buf *b)
{
    const uint8_t *p = (const uint8_t *)b->p;
    size_t at = 0;
    while (at < b->n) {
        check(b->n - at >= 9);
        size_t n = (size_t)p[at] << 16 | (size_t)p[at + 1] << 8 | p[at + 2];
        check(n <= 16384 && b->n - at - 9 >= n);
        at += 9 + n;
    }
}

static bool run(const uint8_t *p, size_t n, size_t step, int how, uint64_t *trace)
{
    struct owner o = {.how = how, .trace = 14695981039346656037u};
    struct error err;
    struct stream *s;
    struct buf sent;
    static uint8_t to[HTTP2_OUTPUT_MIN];
    bool ok = true;
    buf_init(&sent);
    check(http2_create(&LIMITS, &EVENTS, &o, &o.h, &err) == 0);
    if (how & 1)
        check(http2_input(o.h, (const uint8_t *)HTTP2_PREFACE, HTTP2_PREFACE_BYTES, 1));
    for (size_t at = 0; ok && at < n; at += step)
        ok = http2_input(o.h, p + at, MIN_OF(step, n - at), 1);
    *trace = o.trace;
    for (size_t got; (got = http2_output(o.h, to, sizeof to));)
        buf_append(&sent, to, got);
    check(!sent.failed);
    check_frames(&sent);
    check(ok || http2_done(o.h));
    check(o.glitches <= LIMITS.glitches + 1 + LIMITS.max_streams);
    http2_destroy(o.h);
    while ((s = o.all)) {
        o.all = s->next;
        arena_release(&s->arena);
        free(s);
    }
    buf_release(&sent);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t whole, cut;
    if (size < 2)
        return 0;
    int how = data[0] & 15;
    size_t step = data[1] % 32 + 1u;
    bool a = run(data + 2, size - 2, SIZE_MAX / 2, how, &whole), b = run(data + 2, size - 2, step, how, &cut);
    check(a == b && whole == cut);
    return 0;
}
