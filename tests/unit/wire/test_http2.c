/* The sans-I/O half of HTTP/2: events for given frames, frames for given replies, limits and the budget. Expected frames and codes are
 * RFC 9113's; error texts are ours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "http2_frames.h"
#include "wire/http2.h"

#define SECOND 1000000000ull

/* A scripted owner: writes down events, answers with `reply` at the end of each request (unless `silent`). */
struct stream {
    struct http2_stream wire;
    struct arena arena;
    struct owner *o;
    const char *reply; /* what is left of it */
    bool ended;
    struct stream *next;
};

struct owner {
    struct http2 *h;
    struct buf in, trace, shown, raw;
    nghttp2_hd_inflater *hd;
    struct stream *all;
    const char *reply;
    bool silent, hold_body, at_head;
    int glitches[HTTP2_GLITCH_COUNT], overdrawn, seen;
    uint64_t now;
};

static const struct http2_limits LIMITS = {.max_streams = 5,
                                           .max_header_bytes = 2000,
                                           .max_headers = 10,
                                           .max_url_bytes = 100,
                                           .max_continuations = 4,
                                           .window_bytes = 65535,
                                           .table_bytes = 4096,
                                           .glitches = 20,
                                           .glitch_rate = 10};

static struct stream *of(struct http2_stream *s)
{
    return (struct stream *)s;
}

static struct http2_stream *on_begin(void *user)
{
    struct owner *o = user;
    struct stream *s = calloc(1, sizeof *s);
    arena_init(&s->arena, 1024, 1 << 20);
    s->wire.arena = &s->arena;
    s->o = o;
    s->next = o->all;
    o->all = s;
    return &s->wire;
}

static void answer(struct owner *o, struct http2_stream *w)
{
    const struct http_header headers[] = {{STR("X-Up"), STR(" v ")}, {STR("bad"), STR("a\r\nb: c")}};
    of(w)->reply = o->reply;
    of(w)->ended = true;
    assert_int_equal(http2_respond(o->h, w, 200, headers, 2, o->reply[0] != 0), 0);
}

static void on_head(void *user, struct http2_stream *s)
{
    struct owner *o = user;
    if (s->error_status) {
        buf_printf(&o->trace, "refused%d %d; ", s->id, s->error_status);
        assert_int_equal(http2_respond(o->h, s, s->error_status, NULL, 0, false), 0);
        return;
    }
    buf_printf(&o->trace, "head%d %.*s %.*s?%.*s body=%d", s->id, STR_ARG(s->method), STR_ARG(s->url.path),
               STR_ARG(s->url.query), s->has_body);
    for (uint32_t i = 0; i < s->n_headers; i++)
        buf_printf(&o->trace, " %.*s=%.*s", STR_ARG(s->headers[i].name), STR_ARG(s->headers[i].value));
    buf_append_z(&o->trace, "; ");
    if (s->expect_continue)
        http2_continue(o->h, s);
    if (o->at_head)
        answer(o, s);
}

static void on_body(void *user, struct http2_stream *s, const uint8_t *p, size_t n)
{
    struct owner *o = user;
    buf_append_z(&o->trace, "+");
    for (size_t i = 0; i < n && n < 20; i++) /* one by one: the parts depend on how the input is cut */
        buf_append_c(&o->trace, (char)p[i]);
    if (!o->hold_body)
        http2_consume(o->h, s, n);
}

static void on_end(void *user, struct http2_stream *s)
{
    struct owner *o = user;
    buf_printf(&o->trace, "end%d; ", s->id);
    if (!o->silent && !s->error_status && !o->at_head)
        answer(o, s);
}

static void on_closed(void *user, struct http2_stream *s, bool complete)
{
    struct owner *o = user;
    buf_printf(&o->trace, "closed%d %d; ", s->id, complete);
}

static size_t on_pending(void *user, struct http2_stream *s, bool *last)
{
    (void)user;
    *last = of(s)->ended;
    return of(s)->reply ? strlen(of(s)->reply) : 0;
}

static void on_fill(void *user, struct http2_stream *s, uint8_t *to, size_t n)
{
    (void)user;
    memcpy(to, of(s)->reply, n);
    of(s)->reply += n;
}

static void on_glitch(void *user, enum http2_glitch g)
{
    ((struct owner *)user)->glitches[g]++;
}

static void on_overdrawn(void *user)
{
    ((struct owner *)user)->overdrawn++;
}

static void on_seen(void *user)
{
    ((struct owner *)user)->seen++;
}

static const struct http2_events EVENTS = {on_begin,   on_head, on_body,   on_end,       on_closed,
                                           on_pending, on_fill, on_glitch, on_overdrawn, on_seen};

static void start(struct owner *o, const struct http2_limits *l)
{
    struct error err;
    memset(o, 0, sizeof *o);
    buf_init(&o->in);
    buf_init(&o->trace);
    buf_init(&o->shown);
    buf_init(&o->raw);
    o->reply = "hello";
    o->now = SECOND;
    assert_int_equal(nghttp2_hd_inflate_new(&o->hd), 0);
    assert_int_equal(http2_create(l, &EVENTS, o, &o->h, &err), 0);
}

static void stop(struct owner *o)
{
    struct stream *s;
    http2_destroy(o->h);
    nghttp2_hd_inflate_del(o->hd);
    while ((s = o->all)) {
        o->all = s->next;
        arena_release(&s->arena);
        free(s);
    }
    buf_release(&o->in);
    buf_release(&o->trace);
    buf_release(&o->shown);
    buf_release(&o->raw);
}

/* Everything that is to be sent, through a buffer of the least size, shown from the start of the last call. */
static const char *sent(struct owner *o)
{
    static uint8_t to[HTTP2_OUTPUT_MIN];
    size_t n;
    while ((n = http2_output(o->h, to, sizeof to)))
        buf_append(&o->raw, to, n);
    buf_clear(&o->shown);
    assert_int_equal(show_frames(o->hd, (const uint8_t *)o->raw.p, o->raw.n, &o->shown), o->raw.n);
    buf_clear(&o->raw);
    return buf_z(&o->shown);
}

/* Hand in what was put to `in`, `step` bytes at a time. */
static bool give(struct owner *o, size_t step)
{
    bool ok = true;
    for (size_t at = 0; at < o->in.n; at += step)
        ok = http2_input(o->h, (const uint8_t *)o->in.p + at, o->in.n - at < step ? o->in.n - at : step, o->now);
    buf_clear(&o->in);
    return ok;
}

static void greet(struct owner *o, const struct http2_limits *l)
{
    start(o, l);
    put_hello(&o->in);
    put_frame(&o->in, F_SETTINGS, ACK, 0, NULL, 0);
    assert_true(give(o, SIZE_MAX / 2));
    /* 3 streams, 4 window, 6 header list, 1 table, 9 no RFC 7540 priorities; the connection's window becomes 1 MiB */
    assert_string_equal(sent(o), "SETTINGS 0 3=5 4=65535 6=2000 1=4096 9=1\nSETTINGS 0 ack\nWINDOW 0 983041\n");
}

static void test_one_request(void **state)
{
    (void)state;
    struct owner o;
    greet(&o, &LIMITS);
    put_head(&o.in, 1, "GET", "/a/b?c=d", "x=y", true);
    assert_true(give(&o, 1000));
    assert_string_equal(buf_z(&o.trace), "head1 GET /a/b?c=d body=0 host=h x=y; end1; ");
    assert_string_equal(sent(&o), "HEADERS 1 :status=200 x-up=v\nDATA 1 end 5 hello\n");
    assert_string_equal(buf_z(&o.trace), "head1 GET /a/b?c=d body=0 host=h x=y; end1; closed1 1; ");
    assert_false(http2_done(o.h));
    stop(&o);
}

static void test_cut_everywhere(void **state)
{
    (void)state;
    for (size_t step = 1; step < 120; step++) {
        struct owner o;
        start(&o, &LIMITS);
        put_hello(&o.in);
        put_head(&o.in, 1, "POST", "/p", "content-length=6", false);
        put_data(&o.in, 1, "abc", false);
        put_head(&o.in, 3, "GET", "/q", "", true);
        put_data(&o.in, 1, "def", true);
        assert_true(give(&o, step));
        struct buf plain; /* without the marks of the parts */
        buf_init(&plain);
        for (size_t i = 0; i < o.trace.n; i++)
            if (o.trace.p[i] != '+')
                buf_append_c(&plain, o.trace.p[i]);
        assert_string_equal(buf_z(&plain),
                            "head1 POST /p? body=1 host=h content-length=6; abchead3 GET /q? body=0 host=h; end3; defend1; ");
        buf_release(&plain);
        stop(&o);
    }
}

static void test_continuation(void **state)
{
    (void)state;
    struct owner o;
    struct buf block;
    greet(&o, &LIMITS);
    buf_init(&block);
    put_field(&block, ":method", "GET");
    put_field(&block, ":scheme", "http");
    put_frame(&o.in, F_HEADERS, END_STREAM, 1, block.p, block.n);
    assert_true(give(&o, 1000));
    assert_true(http2_in_head(o.h));
    buf_clear(&block);
    put_field(&block, ":path", "/");
    put_field(&block, ":authority", "h");
    put_frame(&o.in, F_CONTINUATION, END_HEADERS, 1, block.p, block.n);
    assert_true(give(&o, 1000));
    assert_false(http2_in_head(o.h));
    assert_string_equal(buf_z(&o.trace), "head1 GET /? body=0 host=h; end1; ");
    /* five of them are one too many */
    put_frame(&o.in, F_HEADERS, END_STREAM, 3, block.p, block.n);
    for (int i = 0; i < 5; i++)
        put_frame(&o.in, F_CONTINUATION, 0, 3, NULL, 0);
    assert_false(give(&o, 1000));
    assert_string_equal(sent(&o), "GOAWAY 0 3 11\n");
    assert_true(http2_done(o.h));
    assert_int_equal(o.glitches[HTTP2_GLITCH_CONTINUATION], 6);
    buf_release(&block);
    stop(&o);
}

/* A window is given back as bytes are consumed, and a client that passes it is told so. */
static void test_request_window(void **state)
{
    (void)state;
    static char big[16384];
    struct owner o;
    greet(&o, &LIMITS);
    o.silent = true;
    put_head(&o.in, 1, "POST", "/", "", false);
    for (int i = 0; i < 3; i++)
        put_frame(&o.in, F_DATA, 0, 1, big, sizeof big);
    assert_true(give(&o, 1 << 20));
    assert_string_equal(sent(&o), "WINDOW 1 32768\n"); /* once half of it is consumed */
    o.hold_body = true;
    for (int i = 0; i < 2; i++)
        put_frame(&o.in, F_DATA, 0, 1, big, sizeof big);
    assert_true(give(&o, 1 << 20));
    assert_string_equal(sent(&o), "");
    put_frame(&o.in, F_DATA, 0, 1, big, sizeof big); /* 65535 + 32768 were allowed, 6 * 16384 is one more */
    assert_true(give(&o, 1 << 20));
    assert_string_equal(sent(&o), "RST 1 3\n"); /* FLOW_CONTROL_ERROR */
    assert_int_equal(o.glitches[HTTP2_GLITCH_INDUCED_RESET], 1);
    stop(&o);
}

/* The connection's window is given back although no handler has consumed anything. */
static void test_connection_window(void **state)
{
    (void)state;
    static char big[16384];
    struct owner o;
    greet(&o, &LIMITS);
    o.hold_body = true;
    int updates = 0;
    for (uint32_t id = 1; id < 200; id += 2) {
        put_head(&o.in, id, "POST", "/", "", false);
        put_frame(&o.in, F_DATA, 0, id, big, sizeof big);
        put_u32_frame(&o.in, F_RST, id, HTTP2_CANCEL);
        o.now += SECOND; /* the budget recovers */
        assert_true(give(&o, 1 << 20));
        updates += strstr(sent(&o), "WINDOW 0") != NULL;
    }
    assert_int_equal(updates, 100 * 16384 / (1 << 19)); /* half of 1 MiB each time */
    stop(&o);
}

/* A client that takes ten bytes of one stream stops that one only. */
static void test_reply_window(void **state)
{
    (void)state;
    struct owner o;
    greet(&o, &LIMITS);
    o.reply = "0123456789abcdef";
    put_setting(&o.in, 4, 10);
    put_head(&o.in, 1, "GET", "/", "", true);
    assert_true(give(&o, 1000));
    assert_string_equal(sent(&o), "SETTINGS 0 ack\nHEADERS 1 :status=200 x-up=v\nDATA 1 10 0123456789\n");
    o.reply = "second";
    put_head(&o.in, 3, "GET", "/", "", true);
    assert_true(give(&o, 1000));
    assert_string_equal(sent(&o), "HEADERS 3 :status=200 x-up=v\nDATA 3 end 6 second\n");
    put_u32_frame(&o.in, F_WINDOW, 1, 4);
    assert_true(give(&o, 1000));
    assert_string_equal(sent(&o), "DATA 1 4 abcd\n");
    put_u32_frame(&o.in, F_WINDOW, 1, 100);
    assert_true(give(&o, 1000));
    assert_string_equal(sent(&o), "DATA 1 end 2 ef\n");
    stop(&o);
}

static void test_pieces_and_trailers(void **state)
{
    (void)state;
    struct owner o;
    greet(&o, &LIMITS);
    o.silent = true;
    put_head(&o.in, 1, "POST", "/", "te=trailers", false);
    assert_true(give(&o, 1000));
    struct http2_stream *s = &o.all->wire;
    assert_int_equal(http2_respond(o.h, s, 200, NULL, 0, true), 0);
    assert_string_equal(sent(&o), "HEADERS 1 :status=200\n");
    of(s)->reply = "one";
    http2_resume(o.h, s);
    assert_string_equal(sent(&o), "DATA 1 3 one\n");
    put_data(&o.in, 1, "up", true); /* the other direction meanwhile */
    assert_true(give(&o, 1000));
    struct http_header trailers[] = {{STR("grpc-status"), STR("0")}, {STR("Grpc-Message"), STR("fine")}};
    of(s)->reply = "two";
    of(s)->ended = true;
    http2_set_trailers(s, trailers, 2);
    http2_resume(o.h, s);
    assert_string_equal(sent(&o), "DATA 1 3 two\nHEADERS 1 end grpc-status=0 grpc-message=fine\n");
    assert_string_equal(buf_z(&o.trace), "head1 POST /? body=1 host=h te=trailers; +upend1; closed1 1; ");
    /* nothing but trailers behind the head: no empty DATA frame */
    put_head(&o.in, 3, "GET", "/", "", true);
    assert_true(give(&o, 1000));
    s = &o.all->wire;
    assert_int_equal(http2_respond(o.h, s, 200, NULL, 0, true), 0);
    of(s)->ended = true;
    http2_set_trailers(s, trailers, 1);
    assert_string_equal(sent(&o), "HEADERS 3 :status=200\nHEADERS 3 end grpc-status=0\n");
    stop(&o);
}

/* Bodies of many frames through a buffer for one. */
static void test_large_reply(void **state)
{
    (void)state;
    struct owner o;
    char *big = malloc(100001);
    memset(big, 'x', 100000);
    big[100000] = 0;
    greet(&o, &LIMITS);
    o.reply = big;
    put_u32_frame(&o.in, F_WINDOW, 0, 1 << 20);
    put_setting(&o.in, 4, 1 << 20);
    put_head(&o.in, 1, "GET", "/", "", true);
    put_head(&o.in, 3, "GET", "/", "", true);
    assert_true(give(&o, 1000));
    const char *at = sent(&o);
    size_t total[4] = {0}, n;
    unsigned id;
    for (; (at = strstr(at, "DATA ")); at += 5) {
        const char *number = strstr(at, "end") == at + 7 ? at + 11 : at + 7;
        id = (unsigned)(at[5] - '0');
        n = strtoull(number, NULL, 10);
        assert_true(n <= 16384);
        total[id] += n;
    }
    assert_int_equal(total[1], 100000);
    assert_int_equal(total[3], 100000);
    free(big);
    stop(&o);
}

/* The reply ends before the request: the client is told that the rest is not wanted. */
static void test_early_reply(void **state)
{
    (void)state;
    struct owner o;
    greet(&o, &LIMITS);
    o.at_head = true;
    put_head(&o.in, 1, "POST", "/", "", false);
    assert_true(give(&o, 1000));
    assert_string_equal(sent(&o), "HEADERS 1 :status=200 x-up=v\nDATA 1 end 5 hello\nRST 1 0\n");
    put_data(&o.in, 1, "late", true); /* on its way meanwhile: no error */
    assert_true(give(&o, 1000));
    assert_string_equal(sent(&o), "");
    assert_string_equal(buf_z(&o.trace), "head1 POST /? body=1 host=h; closed1 1; ");
    assert_int_equal(o.glitches[HTTP2_GLITCH_INDUCED_RESET], 0);
    stop(&o);
}

static void test_expect(void **state)
{
    (void)state;
    struct owner o;
    greet(&o, &LIMITS);
    put_head(&o.in, 1, "POST", "/", "expect=100-continue", false);
    assert_true(give(&o, 1000));
    assert_string_equal(sent(&o), "HEADERS 1 :status=100\n");
    put_head(&o.in, 3, "POST", "/", "expect=wonders", false);
    assert_true(give(&o, 1000));
    assert_string_equal(sent(&o), "HEADERS 3 end :status=417\nRST 3 0\n");
    stop(&o);
}

/* What is malformed by RFC 9113, 8.2 and 8.3, resets the stream (PROTOCOL_ERROR); what is well-formed and not served gets a status. */
static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *method, *path, *more, *want;
    } rows[] = {
        {"GET", "/", "connection=close", "RST 1 1\n"},
        {"GET", "/", "keep-alive=5", "RST 1 1\n"},
        {"GET", "/", "proxy-connection=x", "RST 1 1\n"},
        {"GET", "/", "transfer-encoding=chunked", "RST 1 1\n"},
        {"GET", "/", "upgrade=h2c", "RST 1 1\n"},
        {"GET", "/", "te=gzip", "RST 1 1\n"},
        {"GET", "/", "X-Upper=1", "RST 1 1\n"},
        {"GET", "/", "x y=1", "RST 1 1\n"},
        {"GET", "/", "x:y=1", "RST 1 1\n"},
        {"GET", "/", "=1", "RST 1 1\n"},
        {"GET", "/", "x=a\rb", "RST 1 1\n"},
        {"GET", "/", "x=a\nb: c", "RST 1 1\n"},
        {"GET", "/", "x= a", "RST 1 1\n"},
        {"GET", "/", "x=a ", "RST 1 1\n"},
        {"GET", "/", ":path=/", "RST 1 1\n"},
        {"GET", "/", "x=1|:authority=h", "RST 1 1\n"},
        {"GET", "/", ":status=200", "RST 1 1\n"},
        {"GET", "", "", "RST 1 1\n"},
        {"GET", "relative", "", "RST 1 1\n"},
        {"GET", "http://h/", "", "RST 1 1\n"},
        {"GET", "*", "", "RST 1 1\n"},
        {"G T", "/", "", "RST 1 1\n"},
        {"GET", "/a\x7f", "", "RST 1 1\n"},
        {"GET", "/a b", "", "RST 1 1\n"},
        {"GET", "/", "content-length=5", "RST 1 1\n"},
        {"GET", "/", "content-length=0|content-length=0", "RST 1 1\n"},
        {"GET", "/", "content-length=+0", "RST 1 1\n"},
        {"GET", "/a#b", "", "HEADERS 1 end :status=400\n"},
        {"GET", "/", "host=other", "HEADERS 1 end :status=400\n"},
        {"GET", "/", "expect=wonders", "HEADERS 1 end :status=417\n"},
        {"GET", "/0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789", "",
         "HEADERS 1 end :status=414\n"},
        {"GET", "/", "a=1|b=1|c=1|d=1|e=1|f=1|g=1|h=1|i=1|j=1|k=1", "HEADERS 1 end :status=431\n"},
        {"OPTIONS", "*", "", "HEADERS 1 :status=200 x-up=v\nDATA 1 end 5 hello\n"},
        {"GET", "/", "host=h", "HEADERS 1 :status=200 x-up=v\nDATA 1 end 5 hello\n"},
        {"GET", "/", "content-length=0", "HEADERS 1 :status=200 x-up=v\nDATA 1 end 5 hello\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct owner o;
        greet(&o, &LIMITS);
        put_head(&o.in, 1, rows[i].method, rows[i].path, rows[i].more, true);
        assert_true(give(&o, 10000));
        const char *got = sent(&o);
        if (strcmp(got, rows[i].want) != 0)
            fail_msg("%s %s %s: %s instead of %s", rows[i].method, rows[i].path, rows[i].more, got, rows[i].want);
        if (rows[i].want[0] == 'R')
            assert_int_equal(o.glitches[HTTP2_GLITCH_INDUCED_RESET], 1);
        /* the connection lives on */
        put_head(&o.in, 3, "GET", "/", "", true);
        assert_true(give(&o, 10000));
        assert_string_equal(sent(&o), "HEADERS 3 :status=200 x-up=v\nDATA 3 end 5 hello\n");
        stop(&o);
    }
}

#define BY_EITHER "a 400, or an RST by nghttp2 (from 1.60 on)"

/* A NUL can't be written in the table above; missing pseudo-headers and schemes neither. */
static void test_refusals_by_hand(void **state)
{
    (void)state;
    static const struct {
        const char *fields[5][2];
        size_t value_n;
        const char *want;
    } rows[] = {
        {{{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "h"}, {"x", "a\0b"}}, 3, "RST 1 1\n"},
        {{{":method", "GET"}, {":scheme", "http"}, {":path", "/"}}, 0, "RST 1 1\n"}, /* no authority */
        {{{":method", "GET"}, {":path", "/"}, {":authority", "h"}}, 0, "RST 1 1\n"},
        {{{":scheme", "http"}, {":path", "/"}, {":authority", "h"}}, 0, "RST 1 1\n"},
        {{{":method", "GET"}, {":scheme", "http"}, {":authority", "h"}}, 0, "RST 1 1\n"},
        {{{":method", "GET"}, {":scheme", "ftp"}, {":path", "/"}, {":authority", "h"}}, 0, "HEADERS 1 end :status=400\n"},
        {{{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "u@h"}}, 0, BY_EITHER},
        {{{":method", "CONNECT"}, {":authority", "h:80"}}, 0, "HEADERS 1 end :status=501\n"},
        {{{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {"host", "h"}},
         0,
         "HEADERS 1 :status=200 x-up=v\nDATA 1 end 5 hello\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct owner o;
        struct buf block;
        greet(&o, &LIMITS);
        buf_init(&block);
        for (int k = 0; k < 5 && rows[i].fields[k][0]; k++)
            put_field_n(&block, rows[i].fields[k][0], rows[i].fields[k][1],
                        k == 4 && rows[i].value_n ? rows[i].value_n : strlen(rows[i].fields[k][1]));
        put_frame(&o.in, F_HEADERS, END_HEADERS | END_STREAM, 1, block.p, block.n);
        assert_true(give(&o, 10000));
        const char *got = sent(&o);
        if (strcmp(rows[i].want, BY_EITHER) == 0)
            assert_true(strcmp(got, "HEADERS 1 end :status=400\n") == 0 || strcmp(got, "RST 1 1\n") == 0);
        else
            assert_string_equal(got, rows[i].want);
        buf_release(&block);
        stop(&o);
    }
}

static void test_length_mismatch(void **state)
{
    (void)state;
    static const struct {
        const char *first, *second;
    } rows[] = {{"abcd", NULL}, {"ab", "cd"}, {"ab", ""}};
    for (size_t i = 0; i < 3; i++) {
        struct owner o;
        greet(&o, &LIMITS);
        put_head(&o.in, 1, "POST", "/", "content-length=3", false);
        put_data(&o.in, 1, rows[i].first, !rows[i].second);
        if (rows[i].second)
            put_data(&o.in, 1, rows[i].second, true);
        assert_true(give(&o, 1000));
        assert_string_equal(sent(&o), "RST 1 1\n");
        assert_null(strstr(buf_z(&o.trace), "end1"));
        stop(&o);
    }
}

/* --- the budget --- */

/* Send `frame` over and over: how many until GOAWAY with ENHANCE_YOUR_CALM (0: never in 1000), on one open stream. */
static int until_goaway(struct owner *o, const struct buf *frame)
{
    for (int i = 1; i <= 1000; i++) {
        buf_append(&o->in, frame->p, frame->n);
        bool ok = give(o, 1 << 20);
        const char *out = sent(o), *end = strstr(out, "GOAWAY");
        if (!ok || http2_done(o->h)) {
            assert_non_null(end);
            assert_non_null(strstr(end, " 11\n"));
            assert_true(http2_done(o->h));
            return i;
        }
    }
    return 0;
}

static void test_floods(void **state)
{
    (void)state;
    static const struct {
        const char *payload;
        size_t n;
        int type, flags;
        uint32_t stream;
        enum http2_glitch g;
        int want; /* the 21st has nothing left to be paid from; light frames have 64 + 4 for the stream first, SETTINGS one less */
    } rows[] = {
        {"", 0, F_DATA, 0, 1, HTTP2_GLITCH_EMPTY_DATA, 20},
        {"\3\0\0\0", 4, F_DATA, PADDED, 1, HTTP2_GLITCH_EMPTY_DATA, 20},
        {"", 0, F_SETTINGS, 0, 0, HTTP2_GLITCH_SETTINGS, 20},
        {"12345678", 8, F_PING, 0, 0, HTTP2_GLITCH_PING, 88},
        {"12345678", 8, F_PING, ACK, 0, HTTP2_GLITCH_PING, 88},
        {"\0\0\0\0\1", 5, F_PRIORITY, 0, 7, HTTP2_GLITCH_PRIORITY, 88},
        {"\0\0\0\1", 4, F_WINDOW, 0, 1, HTTP2_GLITCH_WINDOW, 88},
        {"x", 1, 0x77, 0, 0, HTTP2_GLITCH_UNKNOWN, 20},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct owner o;
        struct buf frame;
        greet(&o, &LIMITS); /* its SETTINGS has cost one */
        put_head(&o.in, 1, "POST", "/", "", false);
        assert_true(give(&o, 1000));
        buf_init(&frame);
        put_frame(&frame, rows[i].type, rows[i].flags, rows[i].stream, rows[i].payload, rows[i].n);
        int n = until_goaway(&o, &frame);
        if (n != rows[i].want)
            fail_msg("%s: ended after %d, not %d", http2_glitch_name(rows[i].g), n, rows[i].want);
        assert_int_equal(o.overdrawn, 1);
        assert_int_equal(o.glitches[rows[i].g], 20 + (rows[i].g == HTTP2_GLITCH_SETTINGS));
        buf_release(&frame);
        stop(&o);
    }
}

static void test_rapid_reset(void **state)
{
    (void)state;
    struct owner o;
    greet(&o, &LIMITS);
    o.silent = true;
    int n = 0;
    for (uint32_t id = 1; !http2_done(o.h) && id < 2000; id += 2, n++) {
        put_head(&o.in, id, "GET", "/", "", true);
        put_u32_frame(&o.in, F_RST, id, HTTP2_CANCEL);
        give(&o, 1 << 20);
        sent(&o);
    }
    assert_int_equal(n, 20);
    assert_int_equal(o.glitches[HTTP2_GLITCH_RESET], 20);
    stop(&o);
}

/* MadeYouReset: the client does not reset, it makes the server do it. */
static void test_induced_reset(void **state)
{
    (void)state;
    struct owner o;
    greet(&o, &LIMITS);
    o.silent = true;
    int n = 0;
    for (uint32_t id = 1; !http2_done(o.h) && id < 2000; id += 2, n++) {
        put_head(&o.in, id, "GET", "/", "", true);
        put_u32_frame(&o.in, F_WINDOW, id, 0x7fffffff); /* overflows the window */
        give(&o, 1 << 20);
        sent(&o);
    }
    assert_int_equal(n, 20);
    assert_int_equal(o.glitches[HTTP2_GLITCH_INDUCED_RESET], 20);
    stop(&o);
}

/* More streams than allowed are refused one by one, at a price. */
static void test_too_many_streams(void **state)
{
    (void)state;
    struct owner o;
    greet(&o, &LIMITS);
    o.silent = true;
    for (uint32_t id = 1; id <= 11; id += 2)
        put_head(&o.in, id, "GET", "/", "", true);
    put_head(&o.in, 13, "GET", "/", "", true);
    give(&o, 1 << 20);
    const char *out = sent(&o);
    assert_true(strstr(out, "RST 11 7\n") || strstr(out, "GOAWAY"));
    assert_null(strstr(buf_z(&o.trace), "head11"));
    stop(&o);
}

/* A client that behaves gets its budget back, and its traffic earns the frames that belong to it. */
static void test_budget_recovers(void **state)
{
    (void)state;
    struct owner o;
    greet(&o, &LIMITS);
    uint32_t id = 1;
    for (int i = 0; i < 500; i++, id += 2) { /* each answer acknowledged with two WINDOW_UPDATE and a PING */
        put_head(&o.in, id, "GET", "/", "", true);
        assert_true(give(&o, 1000));
        sent(&o);
        put_u32_frame(&o.in, F_WINDOW, 0, 5);
        put_u32_frame(&o.in, F_WINDOW, id, 5);
        put_frame(&o.in, F_PING, 0, 0, "12345678", 8);
        assert_true(give(&o, 1000));
        sent(&o);
    }
    for (int g = 0; g < HTTP2_GLITCH_COUNT; g++)
        assert_int_equal(o.glitches[g], g == HTTP2_GLITCH_SETTINGS);
    o.silent = true;
    for (int i = 0; i < 200; i++, id += 2) { /* ten cancelled requests a second are within the rate */
        o.now += SECOND / 10;
        put_head(&o.in, id, "GET", "/", "", true);
        put_u32_frame(&o.in, F_RST, id, HTTP2_CANCEL);
        assert_true(give(&o, 1000));
        sent(&o);
    }
    assert_int_equal(o.glitches[HTTP2_GLITCH_RESET], 200);
    stop(&o);
}

/* Nothing else than the budget counts resets: nghttp2 has a bucket of a thousand of its own. */
static void test_budget_alone_decides(void **state)
{
    (void)state;
    struct owner o;
    struct http2_limits l = LIMITS;
    l.glitches = 5000;
    greet(&o, &l);
    o.silent = true;
    for (uint32_t id = 1; id < 8000; id += 2) {
        put_head(&o.in, id, "GET", "/", "", true);
        put_u32_frame(&o.in, F_RST, id, HTTP2_CANCEL);
        assert_true(give(&o, 1 << 20));
        assert_null(strstr(sent(&o), "GOAWAY"));
    }
    assert_int_equal(o.glitches[HTTP2_GLITCH_RESET], 4000);
    stop(&o);
}

static void test_header_list(void **state)
{
    (void)state;
    struct owner o;
    char field[3000];
    memset(field, 'v', sizeof field - 1);
    field[sizeof field - 1] = 0;
    memcpy(field, "x=", 2);
    greet(&o, &LIMITS);
    put_head(&o.in, 1, "GET", "/", field, true);
    assert_true(give(&o, 10000));
    assert_string_equal(sent(&o), "HEADERS 1 end :status=431\n");
    assert_int_equal(o.glitches[HTTP2_GLITCH_HEADERS], 1);
    /* an HPACK bomb: one entry of the table, named again and again, is past four times the limit */
    struct buf block;
    buf_init(&block);
    put_field(&block, ":method", "GET");
    buf_append_c(&block, 0x40); /* literal with indexing */
    put_int7(&block, 1);
    buf_append_c(&block, 'y');
    put_int7(&block, 1000);
    buf_append(&block, field + 2, 1000);
    for (int i = 0; i < 9; i++)
        buf_append_c(&block, (char)(0x80 | 62)); /* the newest entry */
    put_frame(&o.in, F_HEADERS, END_HEADERS | END_STREAM, 3, block.p, block.n);
    assert_false(give(&o, 10000));
    assert_string_equal(sent(&o), "GOAWAY 0 3 11\n");
    buf_release(&block);
    stop(&o);
}

/* --- streams that are over, and the end --- */

static void test_closed_streams(void **state)
{
    (void)state;
    static const struct {
        int type;
        const char *want;
    } rows[] = {{F_DATA, "GOAWAY 0 1 5\n"}, {F_HEADERS, "GOAWAY 0 1 5\n"}};
    for (size_t i = 0; i < 2; i++) { /* the client had ended it: STREAM_CLOSED */
        struct owner o;
        greet(&o, &LIMITS);
        put_head(&o.in, 1, "GET", "/", "", true);
        assert_true(give(&o, 1000));
        sent(&o);
        if (rows[i].type == F_DATA)
            put_data(&o.in, 1, "x", true);
        else
            put_head(&o.in, 1, "GET", "/", "", true);
        assert_false(give(&o, 1000));
        assert_string_equal(sent(&o), rows[i].want);
        stop(&o);
    }
    struct owner o; /* never opened, and behind the last one: PROTOCOL_ERROR */
    greet(&o, &LIMITS);
    put_head(&o.in, 5, "GET", "/", "", true);
    put_head(&o.in, 3, "GET", "/", "", true);
    assert_false(give(&o, 1000));
    assert_non_null(strstr(sent(&o), "GOAWAY 0 5 1\n"));
    stop(&o);
}

static void test_shutdown(void **state)
{
    (void)state;
    struct owner o;
    greet(&o, &LIMITS);
    o.silent = true;
    put_head(&o.in, 1, "GET", "/", "", true);
    assert_true(give(&o, 1000));
    struct http2_stream *first = &o.all->wire;
    http2_shutdown(o.h);
    assert_string_equal(sent(&o), "GOAWAY 0 2147483647 0\nPING 0\n");
    put_head(&o.in, 3, "GET", "/", "", true); /* it was on its way */
    put_frame(&o.in, F_PING, ACK, 0, "shutdown", 8);
    assert_true(give(&o, 1000));
    assert_int_equal(o.seen, 1);
    http2_goaway(o.h);
    assert_string_equal(sent(&o), "GOAWAY 0 3 0\n");
    put_head(&o.in, 5, "GET", "/", "", true); /* too late: passed over */
    assert_true(give(&o, 1000));
    assert_null(strstr(buf_z(&o.trace), "head5"));
    answer(&o, &o.all->wire);
    assert_non_null(strstr(sent(&o), "DATA 3 end 5 hello\n"));
    assert_false(http2_done(o.h));
    answer(&o, first);
    assert_non_null(strstr(sent(&o), "DATA 1 end 5 hello\n"));
    assert_true(http2_done(o.h));
    stop(&o);
}

static void test_terminate_reset_detach(void **state)
{
    (void)state;
    struct owner o;
    greet(&o, &LIMITS);
    o.silent = true;
    put_head(&o.in, 1, "GET", "/", "", true);
    put_head(&o.in, 3, "GET", "/", "", true);
    assert_true(give(&o, 1000));
    http2_reset(o.h, &o.all->wire, HTTP2_CANCEL, false);
    http2_detach(o.h, &o.all->wire);
    http2_reset(o.h, &o.all->next->wire, HTTP2_CANCEL, true);
    assert_string_equal(sent(&o), "RST 3 8\nRST 1 8\n");
    assert_null(strstr(buf_z(&o.trace), "closed3"));
    assert_non_null(strstr(buf_z(&o.trace), "closed1 0; "));
    assert_int_equal(o.glitches[HTTP2_GLITCH_INDUCED_RESET], 1);
    http2_terminate(o.h, HTTP2_NO_ERROR);
    assert_string_equal(sent(&o), "GOAWAY 0 3 0\n");
    assert_true(http2_done(o.h));
    stop(&o);
}

static void test_bad_preface(void **state)
{
    (void)state;
    struct owner o;
    start(&o, &LIMITS);
    buf_append_z(&o.in, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_false(give(&o, 1000));
    assert_string_equal(sent(&o), "GOAWAY 0 0 1\n");
    assert_true(http2_done(o.h));
    stop(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_request),
        cmocka_unit_test(test_cut_everywhere),
        cmocka_unit_test(test_continuation),
        cmocka_unit_test(test_request_window),
        cmocka_unit_test(test_connection_window),
        cmocka_unit_test(test_reply_window),
        cmocka_unit_test(test_pieces_and_trailers),
        cmocka_unit_test(test_large_reply),
        cmocka_unit_test(test_early_reply),
        cmocka_unit_test(test_expect),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_refusals_by_hand),
        cmocka_unit_test(test_length_mismatch),
        cmocka_unit_test(test_floods),
        cmocka_unit_test(test_rapid_reset),
        cmocka_unit_test(test_induced_reset),
        cmocka_unit_test(test_too_many_streams),
        cmocka_unit_test(test_budget_recovers),
        cmocka_unit_test(test_budget_alone_decides),
        cmocka_unit_test(test_header_list),
        cmocka_unit_test(test_closed_streams),
        cmocka_unit_test(test_shutdown),
        cmocka_unit_test(test_terminate_reset_detach),
        cmocka_unit_test(test_bad_preface),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
