/* The client's half of HTTP/2: frames for given calls, events for given frames, cut at every byte. Expected frames and codes are RFC 9113's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/size.h"
#include "base/status.h"
#include "http2_frames.h"
#include "wire/http2_client.h"

static const struct http2_client_limits LIMITS = {
    .max_header_bytes = 300, .max_headers = 6, .window_bytes = 65535, .connection_bytes = 1 << 20, .table_bytes = 4096};

struct owner {
    struct http2_client *h;
    struct http2_call calls[4];
    struct arena arena;
    struct buf in, trace, shown, raw;
    nghttp2_hd_inflater *hd;
    const char *body; /* of calls with one: what is left */
    bool body_ends, hold;
};

static int number(const struct owner *o, const struct http2_call *c)
{
    return (int)(c - o->calls);
}

static void on_head(void *user, struct http2_call *c)
{
    struct owner *o = user;
    buf_printf(&o->trace, "head%d %d body=%d", number(o, c), c->status, c->has_body);
    for (uint32_t i = 0; i < c->n_headers; i++)
        buf_printf(&o->trace, " %.*s=%.*s", STR_ARG(c->headers[i].name), STR_ARG(c->headers[i].value));
    buf_append_z(&o->trace, "; ");
}

static void on_body(void *user, struct http2_call *c, const uint8_t *p, size_t n)
{
    struct owner *o = user;
    if (n < 100)
        buf_append(&o->trace, p, n);
    if (!o->hold)
        http2_client_consume(o->h, c, n);
}

static void on_end(void *user, struct http2_call *c)
{
    struct owner *o = user;
    buf_printf(&o->trace, "end%d", number(o, c));
    for (uint32_t i = 0; i < c->n_trailers; i++)
        buf_printf(&o->trace, " %.*s=%.*s", STR_ARG(c->trailers[i].name), STR_ARG(c->trailers[i].value));
    buf_append_z(&o->trace, "; ");
}

static void on_failed(void *user, struct http2_call *c, enum http2_failure why, uint32_t code)
{
    struct owner *o = user;
    buf_printf(&o->trace, "failed%d %s %u; ", number(o, c),
               why == HTTP2_CALL_LEFT      ? "left"
               : why == HTTP2_CALL_UNBEGUN ? "unbegun"
                                           : "reset",
               code);
}

static struct str on_pending(void *user, struct http2_call *c, bool *last)
{
    struct owner *o = user;
    (void)c;
    *last = o->body_ends;
    return str_of(o->body);
}

static void on_taken(void *user, struct http2_call *c, size_t n)
{
    struct owner *o = user;
    (void)c;
    o->body += n;
}

static const struct http2_client_events EVENTS = {on_head, on_body, on_end, on_failed, on_pending, on_taken};

static const char *sent(struct owner *o)
{
    uint8_t out[HTTP2_OUTPUT_MIN];
    size_t n;
    buf_clear(&o->shown);
    while ((n = http2_client_output(o->h, out, sizeof out)))
        buf_append(&o->raw, out, n);
    size_t used = show_frames(o->hd, (const uint8_t *)o->raw.p, o->raw.n, &o->shown);
    memmove(o->raw.p, o->raw.p + used, o->raw.n - used);
    o->raw.n -= used;
    return buf_z(&o->shown);
}

static void start(struct owner *o)
{
    struct error err;
    *o = (struct owner){.body = ""};
    arena_init(&o->arena, 4096, 1 << 20);
    struct buf *all[] = {&o->in, &o->trace, &o->shown, &o->raw};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        buf_init(all[i]);
    nghttp2_hd_inflate_new(&o->hd);
    assert_int_equal(http2_client_create(&LIMITS, &EVENTS, o, &o->h, &err), 0);
    uint8_t out[HTTP2_OUTPUT_MIN];
    size_t n = http2_client_output(o->h, out, sizeof out);
    assert_memory_equal(out, PREFACE, HTTP2_PREFACE_BYTES);
    /* 2 push, 4 window, 6 header list, 1 table */
    show_frames(o->hd, out + HTTP2_PREFACE_BYTES, n - HTTP2_PREFACE_BYTES, &o->shown);
    assert_string_equal(buf_z(&o->shown), "SETTINGS 0 2=0 4=65535 6=300 1=4096\nWINDOW 0 983041\n");
    put_frame(&o->in, F_SETTINGS, 0, 0, NULL, 0);
}

static void stop(struct owner *o)
{
    struct buf *all[] = {&o->in, &o->trace, &o->shown, &o->raw};
    http2_client_destroy(o->h);
    nghttp2_hd_inflate_del(o->hd);
    arena_release(&o->arena);
    for (size_t i = 0; i < COUNT_OF(all); i++)
        buf_release(all[i]);
}

static bool give(struct owner *o, size_t step)
{
    bool ok = true;
    for (size_t at = 0; at < o->in.n && ok; at += step)
        ok = http2_client_input(o->h, (const uint8_t *)o->in.p + at, MIN_OF(step, o->in.n - at));
    buf_clear(&o->in);
    return ok;
}

static void call(struct owner *o, int i, bool body)
{
    const struct http_header headers[] = {{STR("X-Up"), STR("v")}, {STR("bad name"), STR("left out")}};
    const struct http2_client_request r = {.method = STR("POST"),
                                           .scheme = STR("http"),
                                           .authority = STR("h"),
                                           .path = STR("/p?q"),
                                           .headers = headers,
                                           .n_headers = 2,
                                           .body = body};
    o->calls[i].arena = &o->arena;
    assert_int_equal(http2_client_submit(o->h, &o->calls[i], &r), 0);
}

#define HEAD ":method=POST :scheme=http :authority=h :path=/p?q x-up=v"

static void put_answer(struct buf *b, uint32_t stream, const char *fields, int flags)
{
    struct buf block;
    struct str rest = str_of(fields), field, name;
    buf_init(&block);
    while (rest.n && str_cut(&rest, '|', &field) && str_cut(&field, '=', &name)) {
        buf_append_c(&block, 0);
        put_int7(&block, name.n);
        buf_append_str(&block, name);
        put_int7(&block, field.n);
        buf_append_str(&block, field);
    }
    put_frame(b, F_HEADERS, END_HEADERS | flags, stream, block.p, block.n);
    buf_release(&block);
}

/* Interim answers, two calls in turn, trailers: the same for every cut. */
static void test_cut_everywhere(void **state)
{
    (void)state;
    for (size_t step = 1; step < 200; step++) {
        struct owner o;
        start(&o);
        call(&o, 0, false);
        call(&o, 1, false);
        assert_string_equal(sent(&o), "HEADERS 1 end " HEAD "\nHEADERS 3 end " HEAD "\n");
        put_answer(&o.in, 1, ":status=103|link=x", 0);
        put_answer(&o.in, 3, ":status=204", END_STREAM);
        put_answer(&o.in, 1, ":status=200|content-length=6", 0);
        put_data(&o.in, 1, "abc", false);
        put_data(&o.in, 1, "def", false);
        put_answer(&o.in, 1, "grpc-status=0", END_STREAM);
        assert_true(give(&o, step));
        assert_string_equal(buf_z(&o.trace),
                            "head1 204 body=0; end1; head0 200 body=1 content-length=6; abcdefend0 grpc-status=0; ");
        assert_int_equal(http2_client_calls(o.h), 0);
        stop(&o);
    }
}

/* A body that comes as it comes; an answer before its end resets the rest. */
static void test_request_bodies(void **state)
{
    (void)state;
    struct owner o;
    start(&o);
    call(&o, 0, true);
    assert_true(give(&o, 1000));
    assert_string_equal(sent(&o), "SETTINGS 0 ack\nHEADERS 1 " HEAD "\n");
    o.body = "hello";
    http2_client_resume(o.h, &o.calls[0]);
    assert_string_equal(sent(&o), "DATA 1 5 hello\n");
    put_answer(&o.in, 1, ":status=413", END_STREAM);
    assert_true(give(&o, 1000));
    assert_string_equal(buf_z(&o.trace), "head0 413 body=0; end0; ");
    assert_string_equal(sent(&o), "RST 1 0\n");
    o.body = "all";
    o.body_ends = true;
    call(&o, 1, true);
    assert_string_equal(sent(&o), "HEADERS 3 " HEAD "\nDATA 3 end 3 all\n");
    stop(&o);
}

/* GOAWAY: what is above its last stream was not begun; what is below goes on; nothing new. */
static void test_goaway(void **state)
{
    (void)state;
    struct owner o;
    start(&o);
    call(&o, 0, false);
    call(&o, 1, false);
    sent(&o);
    struct buf p;
    buf_init(&p);
    put_be(&p, 1, 4);
    put_be(&p, 0, 4);
    put_frame(&o.in, F_GOAWAY, 0, 0, p.p, p.n);
    buf_release(&p);
    assert_true(give(&o, 1000));
    assert_string_equal(buf_z(&o.trace), "failed1 left 7; ");
    assert_int_equal(http2_client_room(o.h), 0);
    o.calls[2].arena = &o.arena;
    assert_int_equal(http2_client_submit(o.h, &o.calls[2], &(struct http2_client_request){.method = STR("GET")}),
                     STATUS_UNAVAILABLE);
    sent(&o);
    assert_false(http2_client_done(o.h));
    put_answer(&o.in, 1, ":status=200", END_STREAM);
    assert_true(give(&o, 1000));
    assert_string_equal(buf_z(&o.trace), "failed1 left 7; head0 200 body=0; end0; ");
    sent(&o);
    assert_true(http2_client_done(o.h));
    stop(&o);
}

static void test_resets_and_cancels(void **state)
{
    (void)state;
    struct owner o;
    start(&o);
    for (int i = 0; i < 3; i++)
        call(&o, i, false);
    sent(&o);
    put_u32_frame(&o.in, F_RST, 1, HTTP2_REFUSED_STREAM);
    put_u32_frame(&o.in, F_RST, 3, HTTP2_INTERNAL_ERROR);
    assert_true(give(&o, 1000));
    assert_string_equal(buf_z(&o.trace), "failed0 unbegun 7; failed1 reset 2; ");
    http2_client_cancel(o.h, &o.calls[2]);
    assert_string_equal(sent(&o), "SETTINGS 0 ack\nRST 5 8\n");
    put_answer(&o.in, 5, ":status=200", END_STREAM); /* it was on its way: passed over */
    assert_true(give(&o, 1000));
    assert_string_equal(buf_z(&o.trace), "failed0 unbegun 7; failed1 reset 2; ");
    call(&o, 3, false); /* cancelled before it left: it never does */
    http2_client_cancel(o.h, &o.calls[3]);
    assert_string_equal(sent(&o), "");
    assert_int_equal(http2_client_calls(o.h), 0);
    stop(&o);
}

/* What is past a limit, or malformed, costs its call and not the connection; a flood costs the connection. */
static void test_limits(void **state)
{
    (void)state;
    static const char *const bad[] = {":status=200|a=b|c=d|e=f|g=h|i=j|k=l|m=n",
                                      ":status=200|connection=close",
                                      ":status=abc",
                                      "x=y",
                                      ":status=200|:status=200",
                                      ":status=200|content-length=1,2"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct owner o;
        start(&o);
        call(&o, 0, false);
        sent(&o);
        put_answer(&o.in, 1, bad[i], END_STREAM);
        assert_true(give(&o, 1000));
        sent(&o);
        assert_non_null(strstr(buf_z(&o.trace), "failed0 reset"));
        assert_null(strstr(buf_z(&o.trace), "head"));
        call(&o, 1, false);
        assert_string_equal(sent(&o), "HEADERS 3 end " HEAD "\n");
        stop(&o);
    }
    struct owner o;
    char large[301];
    memset(large, 'x', sizeof large - 1);
    large[300] = 0;
    start(&o);
    call(&o, 0, false);
    sent(&o);
    struct buf block;
    buf_init(&block);
    put_field(&block, ":status", "200");
    put_field(&block, "x", large);
    put_frame(&o.in, F_HEADERS, END_HEADERS | END_STREAM, 1, block.p, block.n);
    assert_true(give(&o, 1000));
    sent(&o);
    assert_non_null(strstr(buf_z(&o.trace), "failed0 reset"));
    put_frame(&o.in, F_HEADERS, 0, 1, block.p, 2);
    for (int i = 0; i < 9; i++)
        put_frame(&o.in, F_CONTINUATION, 0, 1, NULL, 0);
    assert_false(give(&o, 1000));
    buf_release(&block);
    stop(&o);
}

/* The answer's window is given back as its bytes are consumed, the connection's at once. */
static void test_windows(void **state)
{
    (void)state;
    static char big[16384];
    struct owner o;
    start(&o);
    call(&o, 0, false);
    sent(&o);
    put_answer(&o.in, 1, ":status=200", 0);
    for (int i = 0; i < 3; i++)
        put_frame(&o.in, F_DATA, 0, 1, big, sizeof big);
    assert_true(give(&o, 1 << 20));
    assert_string_equal(sent(&o), "SETTINGS 0 ack\nWINDOW 1 32768\n");
    o.hold = true;
    put_frame(&o.in, F_DATA, 0, 1, big, sizeof big);
    put_frame(&o.in, F_DATA, 0, 1, big, sizeof big);
    assert_true(give(&o, 1 << 20));
    assert_string_equal(sent(&o), "");
    put_frame(&o.in, F_DATA, 0, 1, big, sizeof big); /* one more than was allowed */
    assert_true(give(&o, 1 << 20));
    assert_string_equal(sent(&o), "RST 1 3\n");
    stop(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_everywhere),     cmocka_unit_test(test_request_bodies), cmocka_unit_test(test_goaway),
        cmocka_unit_test(test_resets_and_cancels), cmocka_unit_test(test_limits),         cmocka_unit_test(test_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
