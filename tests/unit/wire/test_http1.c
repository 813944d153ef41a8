/* HTTP/1 messages. Each vector is read whole, byte by byte, and cut in two at every place; all must give the same trace. The
 * expected outcomes are RFC 9112's and RFC 9110's rules; the hostile ones follow the classes of published smuggling work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/size.h"
#include "wire/http1.h"

static const struct http1_limits LIMITS = {.max_head_bytes = 400, .max_headers = 8, .max_url_bytes = 60};

/* One message: head, body, how it ended, and how many bytes it took. */
static void trace_head(struct buf *t, const struct http1_parser *p)
{
    if (p->status)
        buf_printf(t, "%d '%.*s' 1.%d", p->status, STR_ARG(p->reason), p->minor);
    else
        buf_printf(t, "%.*s %.*s 1.%d", STR_ARG(p->method), STR_ARG(p->target), p->minor);
    for (uint32_t i = 0; i < p->n_headers; i++)
        buf_printf(t, " [%.*s=%.*s]", STR_ARG(p->headers[i].name), STR_ARG(p->headers[i].value));
    buf_printf(t, "%s%s", p->keep_alive ? " keep" : " close", p->expect_continue ? " expect" : "");
}

enum kind { REQUEST, RESPONSE, RESPONSE_TO_HEAD };

static void init(struct http1_parser *p, struct arena *a, enum kind kind)
{
    if (kind == REQUEST)
        http1_init_request(p, a, &LIMITS);
    else
        http1_init_response(p, a, &LIMITS, kind == RESPONSE_TO_HEAD);
}

/* Feed `in` in pieces that end at `cut` and then every `step` bytes; the trace of the first message into `t`. */
static void trace(struct buf *t, struct str in, enum kind kind, size_t cut, size_t step)
{
    struct arena a;
    struct http1_parser p;
    struct buf body;
    size_t at = 0, end = cut;
    enum http1_event e = HTTP1_MORE;
    arena_init(&a, 256, 0);
    buf_init(&body);
    buf_clear(t);
    init(&p, &a, kind);
    for (;;) {
        struct str part = {0};
        size_t used;
        /* an exact copy, so that a sanitizer sees reads past the piece */
        char *piece = malloc(end - at + 1);
        memcpy(piece, in.p + at, end - at);
        e = http1_read(&p, piece, end - at, &used, &part);
        assert_true(used <= end - at);
        if (e == HTTP1_BODY) {
            assert_true(part.n > 0 && part.p >= piece && part.p + part.n <= piece + used);
            buf_append_str(&body, part);
        }
        at += used;
        free(piece);
        if (e == HTTP1_HEAD)
            trace_head(t, &p);
        if (e == HTTP1_END || e == HTTP1_ERROR)
            break;
        if (e != HTTP1_MORE)
            continue;
        assert_int_equal(at, end);
        if (end == in.n) {
            e = http1_eof(&p);
            buf_append_z(t, " eof");
            break;
        }
        end = MIN_OF(end + step, in.n);
    }
    if (e == HTTP1_END)
        buf_printf(t, " {%.*s} +%zu", STR_ARG(buf_str(&body)), in.n - at);
    else if (at == in.n && strstr(buf_z(t), " eof"))
        buf_append_z(t, " cut");
    else
        t->n = 0, buf_printf(t, "!%d", p.error_status);
    buf_release(&body);
    arena_release(&a);
}

static void expect(enum kind kind, struct str in, const char *want)
{
    struct buf t;
    buf_init(&t);
    trace(&t, in, kind, in.n, 1);
    if (strcmp(buf_z(&t), want) != 0)
        fail_msg("input:\n%.*s\nwant: %s\ngot:  %s", STR_ARG(in), want, buf_z(&t));
    for (size_t cut = 0; cut <= in.n; cut++) {
        trace(&t, in, kind, cut, in.n);
        if (strcmp(buf_z(&t), want) != 0)
            fail_msg("cut at %zu of:\n%.*s\nwant: %s\ngot:  %s", cut, STR_ARG(in), want, buf_z(&t));
    }
    trace(&t, in, kind, 1, 1);
    assert_string_equal(buf_z(&t), want);
    buf_release(&t);
}

#define R(line, rest) line "\r\nHost: h\r\n" rest
#define GET(rest)     R("GET / HTTP/1.1", rest)
#define POST(rest)    R("POST /x HTTP/1.1", rest)
#define CHUNKED(rest) POST("Transfer-Encoding: chunked\r\n\r\n" rest)
#define H             " [Host=h]"
#define C             H " [Transfer-Encoding=chunked] keep"

static void test_accepted(void **state)
{
    (void)state;
    static const struct {
        struct str in;
        const char *want;
    } v[] = {
        {STR(GET("\r\n")), "GET / 1.1" H " keep {} +0"},
        {STR("GET / HTTP/1.0\r\n\r\n"), "GET / 1.0 close {} +0"},
        {STR("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"), "GET / 1.0 [Connection=Keep-Alive] keep {} +0"},
        {STR(GET("Connection: close\r\n\r\n")), "GET / 1.1" H " [Connection=close] close {} +0"},
        {STR(GET("Connection: x, CLOSE , y\r\n\r\n")), "GET / 1.1" H " [Connection=x, CLOSE , y] close {} +0"},
        {STR(GET("Connection: keep-alive\r\nConnection: close\r\n\r\n")),
         "GET / 1.1" H " [Connection=keep-alive] [Connection=close] close {} +0"},
        {STR("\r\n\r\n" GET("\r\n")), "GET / 1.1" H " keep {} +0"},
        {STR(GET("A:\r\nB: \t v \t \r\nC:\xc3\xa9\r\n\r\n")), "GET / 1.1" H " [A=] [B=v] [C=\xc3\xa9] keep {} +0"},
        {STR(POST("Content-Length: 5\r\n\r\nhelloGET")), "POST /x 1.1" H " [Content-Length=5] keep {hello} +3"},
        {STR(POST("Content-Length: 0\r\n\r\nGET")), "POST /x 1.1" H " [Content-Length=0] keep {} +3"},
        {STR(POST("Content-Length: 0005\r\n\r\nhello")), "POST /x 1.1" H " [Content-Length=0005] keep {hello} +0"},
        {STR(GET("Content-Length: 1\r\n\r\nx")), "GET / 1.1" H " [Content-Length=1] keep {x} +0"},
        {STR(POST("\r\nGET")), "POST /x 1.1" H " keep {} +3"}, /* no length, no body */
        {STR(POST("Content-Length: 2\r\nExpect: 100-Continue\r\n\r\nok")),
         "POST /x 1.1" H " [Content-Length=2] [Expect=100-Continue] keep expect {ok} +0"},
        {STR(GET("Expect: 100-continue\r\n\r\n")), "GET / 1.1" H " [Expect=100-continue] keep {} +0"},
        {STR("POST / HTTP/1.0\r\nExpect: miracles\r\nContent-Length: 1\r\n\r\nx"),
         "POST / 1.0 [Expect=miracles] [Content-Length=1] close {x} +0"},
        {STR("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n"), "OPTIONS * 1.1" H " keep {} +0"},
        {STR("GET http://h/p?q HTTP/1.1\r\nHost: H\r\n\r\n"), "GET http://h/p?q 1.1 [Host=H] keep {} +0"},
        {STR("GET / HTTP/1.1\r\nHost:\r\n\r\n"), "GET / 1.1 [Host=] keep {} +0"},
        /* a protocol upgrade is an offer that we do not take: the message stays what it is */
        {STR(POST("Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabcX")),
         "POST /x 1.1" H " [Connection=Upgrade] [Upgrade=h2c] [Content-Length=3] keep {abc} +1"},
        {STR(CHUNKED("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\nGET")), "POST /x 1.1" C " {hello world} +3"},
        {STR(CHUNKED("0\r\n\r\n")), "POST /x 1.1" C " {} +0"},
        {STR(CHUNKED("00a;n=v;q=\"a b\"\r\n0123456789\r\n0;x\r\nT: v\r\nU:\r\n\r\n")), "POST /x 1.1" C " {0123456789} +0"},
        {STR(CHUNKED("A\r\n\r\n\n\r0\r\n\r\n1\r\n0\r\n\r\n")), "POST /x 1.1" C " {\r\n\n\r0\r\n\r\n1} +0"},
        {STR(POST("Transfer-Encoding:  CHUNKED \r\n\r\n1\r\nx\r\n0\r\n\r\n")),
         "POST /x 1.1" H " [Transfer-Encoding=CHUNKED] keep {x} +0"},
    };
    for (size_t i = 0; i < COUNT_OF(v); i++)
        expect(REQUEST, v[i].in, v[i].want);
}

static const struct {
    int status;
    struct str in;
} REFUSED[] = {
    /* two lengths */
    {400, STR(POST("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"))},
    {400, STR(POST("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"))},
    {400, STR(POST("Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"))},
    {400, STR(POST("Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"))},
    {400, STR(POST("Content-Length: 5, 5\r\n\r\nhello"))},
    {400, STR(POST("Content-Length: 0\r\nContent-Length: 0\r\n\r\n"))},
    /* lengths that are not digits */
    {400, STR(POST("Content-Length: +5\r\n\r\nhello"))},
    {400, STR(POST("Content-Length: -5\r\n\r\nhello"))},
    {400, STR(POST("Content-Length: 0x5\r\n\r\nhello"))},
    {400, STR(POST("Content-Length: 5 5\r\n\r\nhello"))},
    {400, STR(POST("Content-Length: 5_0\r\n\r\nhello"))},
    {400, STR(POST("Content-Length: 5.0\r\n\r\nhello"))},
    {400, STR(POST("Content-Length:\r\n\r\n"))},
    {400, STR(POST("Content-Length: 9223372036854775808\r\n\r\n"))},
    {400, STR(POST("Content-Length: 18446744073709551621\r\n\r\nhello"))},
    /* codings */
    {400, STR(POST("Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"))},
    {400, STR(POST("Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"))},
    {400, STR(POST("Transfer-Encoding: identity\r\n\r\n"))},
    {400, STR(POST("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"))},
    {400, STR(POST("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"))},
    {400, STR(POST("Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"))},
    {400, STR(POST("Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"))},
    {400, STR(POST("Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n"))},
    {400, STR(POST("Transfer-Encoding: \x0b"
                   "chunked\r\n\r\n0\r\n\r\n"))},
    {400, STR(POST("Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"))},
    {400, STR(POST("Transfer-Encoding:\r\n\r\n0\r\n\r\n"))},
    {400, STR("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")},
    /* lines that do not end in CRLF */
    {400, STR("GET / HTTP/1.1\nHost: h\r\n\r\n")},
    {400, STR("GET / HTTP/1.1\r\nHost: h\n\r\n")},
    {400, STR("GET / HTTP/1.1\r\nHost: h\r\n\n")},
    {400, STR("GET / HTTP/1.1\nHost: h\n\n")},
    {400, STR("GET / HTTP/1.1\r\nHost: h\r\n\r\r\n")},
    {400, STR("GET / HTTP/1.1\rHost: h\r\n\r\n")},
    {400, STR("GET / HTTP/1.1\r\nHost: h\rX: y\r\n\r\n")},
    {400, STR("GET / HTTP/1.1\r\nHost: h\r\r\n\r\n")},
    {400, STR("GET / HTTP/1.1\r\nHost: h\r\nX: a\nTransfer-Encoding: chunked\r\n\r\n")},
    {400, STR("\nGET / HTTP/1.1\r\nHost: h\r\n\r\n")},
    {400, STR("\rGET / HTTP/1.1\r\nHost: h\r\n\r\n")},
    {400, STR("\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n")},
    /* fields */
    {400, STR(GET("Content-Length : 5\r\n\r\n"))},
    {400, STR(GET("Content-Length\t: 5\r\n\r\n"))},
    {400, STR(GET("X: a\r\n b\r\n\r\n"))},
    {400, STR(GET("X: a\r\n\tb\r\n\r\n"))},
    {400, STR(GET("X: a\r\n \r\n\r\n"))},
    {400, STR("GET / HTTP/1.1\r\n Host: h\r\n\r\n")},
    {400, STR("GET / HTTP/1.1\r\n\tX: y\r\nHost: h\r\n\r\n")},
    {400, STR(GET("no colon\r\n\r\n"))},
    {400, STR(GET("NoColon\r\n\r\n"))},
    {400, STR(GET(": nameless\r\n\r\n"))},
    {400, STR(GET("X Y: z\r\n\r\n"))},
    {400, STR(GET("X(: z\r\n\r\n"))},
    {400, STR(GET("X\x80: z\r\n\r\n"))},
    {400, STR(GET("X: a\0b\r\n\r\n"))},
    {400, STR(GET("X\0: a\r\n\r\n"))},
    {400, STR(GET("X: a\x01\r\n\r\n"))},
    {400, STR(GET("X: a\x7f\r\n\r\n"))},
    {400, STR(GET("X: a\x0b\r\n\r\n"))},
    /* Host and target */
    {400, STR("GET / HTTP/1.1\r\n\r\n")},
    {400, STR("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n")},
    {400, STR("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n")},
    {400, STR("GET / HTTP/1.1\r\nHost: a b\r\n\r\n")},
    {400, STR("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n")},
    {400, STR("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n")},
    {400, STR("GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n")},
    {400, STR("GET http://a/ HTTP/1.1\r\n\r\n")},
    {400, STR("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n")},
    {400, STR("GET x HTTP/1.1\r\nHost: a\r\n\r\n")},
    {400, STR("GET * HTTP/1.1\r\nHost: a\r\n\r\n")},
    {400, STR("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n")},
    {400, STR("GET /\x80 HTTP/1.1\r\nHost: a\r\n\r\n")},
    {400, STR("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n")},
    {501, STR("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n")},
    /* the request line */
    {400, STR("GET  / HTTP/1.1\r\nHost: h\r\n\r\n")},
    {400, STR("GET /  HTTP/1.1\r\nHost: h\r\n\r\n")},
    {400, STR("GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n")},
    {400, STR("GET / HTTP/1.1 \r\nHost: h\r\n\r\n")},
    {400, STR("GET / a HTTP/1.1\r\nHost: h\r\n\r\n")},
    {400, STR(" GET / HTTP/1.1\r\nHost: h\r\n\r\n")},
    {505, STR("GET /\r\n\r\n")}, /* HTTP/0.9 */
    {400, STR("GET\r\n\r\n")},
    {400, STR("GET / http/1.1\r\nHost: h\r\n\r\n")},
    {400, STR("GET / HTTP/1.10\r\nHost: h\r\n\r\n")},
    {400, STR("GET / HTTP/11\r\nHost: h\r\n\r\n")},
    {400, STR("GET / ICE/1.1\r\nHost: h\r\n\r\n")},
    {400, STR("get / HTTP/1.1\r\nHost: h\r\n\r\n")},
    {400, STR("\x16\x03\x01\x02\x00\x01\x00")}, /* TLS */
    {501, STR("BREW / HTTP/1.1\r\nHost: h\r\n\r\n")},
    {505, STR("GET / HTTP/1.2\r\nHost: h\r\n\r\n")},
    {505, STR("GET / HTTP/2.0\r\nHost: h\r\n\r\n")},
    {505, STR("GET / HTTP/0.9\r\nHost: h\r\n\r\n")},
    {505, STR("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")},
    /* expectations */
    {417, STR(POST("Content-Length: 1\r\nExpect: 200-ok\r\n\r\nx"))},
    {417, STR(POST("Content-Length: 1\r\nExpect: 100-continue\r\nExpect: more\r\n\r\nx"))},
    {417, STR(POST("Content-Length: 1\r\nExpect: 100-continue, more\r\n\r\nx"))},
    /* chunks */
    {400, STR(CHUNKED("\r\n"))},
    {400, STR(CHUNKED(" 1\r\nx\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED("1 \r\nx\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED("1 ;a\r\nx\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED("0x1\r\nx\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED("+1\r\nx\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED("-1\r\nx\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED("1_0\r\nx\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED("g\r\nx\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED(";a=b\r\nx\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED("1\nx\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED("1\r\nx\n0\r\n\r\n"))},
    {400, STR(CHUNKED("1\r\nx0\r\n\r\n"))},
    {400, STR(CHUNKED("1\r\nxx\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED("1\r\nx\r\n\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED("1\r\nx\r\n0\n\r\n"))},
    {400, STR(CHUNKED("1\r\nx\r\n0\r\n\n"))},
    {400, STR(CHUNKED("1\r\nx\r\n0\r\n\rX"))},
    {400, STR(CHUNKED("1;a\rb\r\nx\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED("1;a\nb\r\nx\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED("1;a\0b\r\nx\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED("1;\r\nx\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED("1;a=\r\nx\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED("1;a=\"\r\nx\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED("1;a=\"b\"c\r\nx\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED("1;a b\r\nx\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED("1;\xa6\r\nx\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED("1\r;\nx\r\n0\r\n\r\n"))},
    {400, STR(CHUNKED("0000000000000001\r\nx\r\n0\r\n\r\n"))}, /* 16 digits */
    {400, STR(CHUNKED("ffffffffffffffff\r\nx"))},
    {400, STR(CHUNKED("fffffffffffffff\r\nx"))},
    {400, STR(CHUNKED("0\r\nT : v\r\n\r\n"))},
    {400, STR(CHUNKED("0\r\nT: v\n\r\n"))},
    {400, STR(CHUNKED("0\r\nT: v\r\n w\r\n\r\n"))},
    {400, STR(CHUNKED("0\r\nT\r\n\r\n"))},
    {400, STR(CHUNKED("0\r\nContent-Length: 5\r\n\r\n"))},
    {400, STR(CHUNKED("0\r\nX: y\r\nTRANSFER-encoding: chunked\r\n\r\n"))},
    {400, STR(CHUNKED("0\r\n: v\r\n\r\n"))},
    {400, STR(CHUNKED("0\r\nT: \0\r\n\r\n"))},
    {400, STR(CHUNKED("0\r\nA:\r\nB:\r\nC:\r\nD:\r\nE:\r\nF:\r\nG:\r\nH:\r\nI:\r\n\r\n"))},
};

static void test_refused(void **state)
{
    (void)state;
    char want[16];
    for (size_t i = 0; i < COUNT_OF(REFUSED); i++) {
        snprintf(want, sizeof want, "!%d", REFUSED[i].status);
        expect(REQUEST, REFUSED[i].in, want);
    }
}

/* A message that stops anywhere before its end is "cut", never complete and never an error of another kind. */
static void test_truncated(void **state)
{
    (void)state;
    static const char *const whole[] = {
        POST("Content-Length: 5\r\n\r\nhello"),
        CHUNKED("5;x=y\r\nhello\r\n0\r\nT: v\r\n\r\n"),
        "GET / HTTP/1.0\r\n\r\n",
    };
    struct buf t;
    buf_init(&t);
    for (size_t i = 0; i < COUNT_OF(whole); i++)
        for (size_t n = 0; n < strlen(whole[i]); n++) {
            trace(&t, (struct str){whole[i], n}, REQUEST, n, 1);
            if (!strstr(buf_z(&t), " eof cut"))
                fail_msg("%zu bytes of\n%s\n: %s", n, whole[i], buf_z(&t));
        }
    buf_release(&t);
}

/* `prefix`, `n` times `c`, `suffix`. */
static void expect_long(const char *prefix, size_t n, char c, const char *suffix, const char *want_start)
{
    struct buf in, t;
    buf_init(&in);
    buf_init(&t);
    buf_append_z(&in, prefix);
    for (size_t i = 0; i < n; i++)
        buf_append_c(&in, c);
    buf_append_z(&in, suffix);
    for (size_t cut = 0; cut <= in.n; cut++) {
        trace(&t, buf_str(&in), REQUEST, cut, cut % 3 ? in.n : 1);
        if (strncmp(buf_z(&t), want_start, strlen(want_start)) != 0)
            fail_msg("%zu of %c, cut at %zu: want %s, got %s", n, c, cut, want_start, buf_z(&t));
    }
    buf_release(&in);
    buf_release(&t);
}

static void test_limits(void **state)
{
    (void)state;
    const char *tail = " HTTP/1.1\r\nHost: h\r\n\r\n";
    expect_long("GET /", 59, 'a', tail, "GET /aaa");
    expect_long("GET /", 60, 'a', tail, "!414");
    expect_long("GET /", 200, 'a', tail, "!414");
    expect_long("GET /", 5000, 'a', "", "!414"); /* long before the line ends */
    /* 400 bytes of header lines: "Host: h\r\n" 9, "X: " 3, value, CRLF 2, CRLF 2 */
    expect_long("GET / HTTP/1.1\r\nHost: h\r\nX: ", 384, 'v', "\r\n\r\n", "GET / 1.1");
    expect_long("GET / HTTP/1.1\r\nHost: h\r\nX: ", 385, 'v', "\r\n\r\n", "!431");
    expect_long("GET / HTTP/1.1\r\nHost: h\r\nX: ", 3000, 'v', "", "!431");
    expect(REQUEST, STR(GET("a:\r\nb:\r\nc:\r\nd:\r\ne:\r\nf:\r\ng:\r\n\r\n")),
           "GET / 1.1" H " [a=] [b=] [c=] [d=] [e=] [f=] [g=] keep {} +0");
    expect(REQUEST, STR(GET("a:\r\nb:\r\nc:\r\nd:\r\ne:\r\nf:\r\ng:\r\nh:\r\n\r\n")), "!431");
    /* a chunk's line: 256 bytes with its CR */
    expect_long(CHUNKED("1;"), 253, 'e', "\r\nx\r\n0\r\n\r\n", "POST /x 1.1");
    expect_long(CHUNKED("1;"), 254, 'e', "\r\nx\r\n0\r\n\r\n", "!400");
    expect_long(CHUNKED("0\r\nT:"), 394, 'v', "\r\n\r\n", "POST /x 1.1");
    expect_long(CHUNKED("0\r\nT:"), 500, 'v', "\r\n\r\n", "!400");
}

/* Extensions can't make a body cost more than 16 times its data plus 64 KiB. */
static void test_framing_ratio(void **state)
{
    (void)state;
    struct buf in, t;
    buf_init(&in);
    buf_init(&t);
    buf_append_z(&in, CHUNKED(""));
    for (int i = 0; i < 10000; i++)
        buf_append_z(&in, "1\r\nx\r\n");
    buf_append_z(&in, "0\r\n\r\n");
    trace(&t, buf_str(&in), REQUEST, in.n, 1);
    assert_non_null(strstr(buf_z(&t), "+0")); /* one byte a chunk is slow but honest */
    buf_clear(&in);
    buf_append_z(&in, CHUNKED(""));
    for (int i = 0; i < 10000; i++)
        buf_append_z(&in, "1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n");
    buf_append_z(&in, "0\r\n\r\n");
    trace(&t, buf_str(&in), REQUEST, in.n, 1);
    assert_string_equal(buf_z(&t), "!400");
    buf_release(&in);
    buf_release(&t);
}

static void test_responses(void **state)
{
    (void)state;
    expect(RESPONSE, STR("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokX"), "200 'OK' 1.1 [Content-Length=2] keep {ok} +1");
    expect(RESPONSE, STR("HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n"), "200 '' 1.1 [Content-Length=0] keep {} +0");
    expect(RESPONSE, STR("HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n"),
           "404 'Not Found' 1.1 [Transfer-Encoding=chunked] keep {no} +0");
    expect(RESPONSE, STR("HTTP/1.0 200 OK\r\n\r\nall of it"), "200 'OK' 1.0 close eof {all of it} +0");
    expect(RESPONSE, STR("HTTP/1.1 200 OK\r\n\r\n"), "200 'OK' 1.1 close eof {} +0");
    expect(RESPONSE, STR("HTTP/1.1 100 Continue\r\n\r\nHTTP"), "100 'Continue' 1.1 keep {} +4");
    expect(RESPONSE, STR("HTTP/1.1 204 No Content\r\n\r\nX"), "204 'No Content' 1.1 keep {} +1");
    expect(RESPONSE, STR("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\nX"),
           "304 'Not Modified' 1.1 [Content-Length=9] keep {} +1");
    expect(RESPONSE_TO_HEAD, STR("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nX"),
           "200 'OK' 1.1 [Content-Length=9] keep {} +1");
    expect(RESPONSE, STR("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"),
           "200 'OK' 1.1 [Connection=close] [Content-Length=1] close {x} +0");
    expect(RESPONSE, STR("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), "!400");
    expect(RESPONSE, STR("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok"), "!400");
    expect(RESPONSE, STR("HTTP/1.1 200 OK\nContent-Length: 2\r\n\r\nok"), "!400");
    expect(RESPONSE, STR("HTTP/1.1 20 OK\r\n\r\n"), "!400");
    expect(RESPONSE, STR("HTTP/1.1 000 OK\r\n\r\n"), "!400");
    expect(RESPONSE, STR("HTTP/1.1 099 OK\r\n\r\n"), "!400");
    expect(RESPONSE, STR("SSH-2.0-OpenSSH\r\n\r\n"), "!400");
    expect(RESPONSE, STR("\x15\x03"), "!400");
    expect(RESPONSE, STR("HTTP/2.0 200 OK\r\n\r\n"), "!505");
}

/* Body bytes that the caller reads past the parser. */
static void test_body_taken(void **state)
{
    (void)state;
    struct arena a;
    struct http1_parser p;
    struct str body, in = STR(POST("Content-Length: 10\r\n\r\nabc"));
    size_t used, more;
    arena_init(&a, 256, 0);
    http1_init_request(&p, &a, &LIMITS);
    assert_true(http1_idle(&p));
    assert_int_equal(http1_body_left(&p), 0);
    assert_int_equal(http1_read(&p, in.p, in.n, &used, &body), HTTP1_HEAD);
    assert_false(http1_idle(&p));
    assert_int_equal(http1_body_left(&p), 10);
    assert_int_equal(http1_read(&p, in.p + used, in.n - used, &more, &body), HTTP1_BODY);
    assert_int_equal(more, 3);
    assert_int_equal(http1_body_left(&p), 7);
    http1_body_taken(&p, 7);
    assert_int_equal(http1_read(&p, NULL, 0, &used, &body), HTTP1_END);
    arena_release(&a);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    struct arena a;
    struct http1_parser p;
    struct str body, in = STR(GET("\r\n"));
    size_t used;
    arena_init(&a, 256, 100);
    http1_init_request(&p, &a, &LIMITS);
    assert_int_equal(http1_read(&p, in.p, in.n, &used, &body), HTTP1_ERROR);
    assert_int_equal(p.error_status, 503);
    arena_release(&a);
}

static void test_helpers(void **state)
{
    (void)state;
    assert_true(http1_list_has(STR("gzip;q=0.5, Deflate"), "deflate"));
    assert_true(http1_list_has(STR("gzip;q=0.5, Deflate"), "gzip"));
    assert_false(http1_list_has(STR("gzipx, a b"), "gzip"));
    assert_false(http1_list_has(STR(""), "gzip"));
    assert_true(http1_is_token(STR("x-A_1!#$%&'*+.^`|~")));
    for (int c = 0; c < 256; c++) { /* RFC 9110, 5.6.2 */
        char x = (char)c;
        bool digit = c >= '0' && c <= '9', letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        bool mark = c && strchr("!#$%&'*+-.^_`|~", c);
        assert_int_equal(http1_is_token((struct str){&x, 1}), digit || letter || mark);
    }
    assert_false(http1_is_token(STR("")) || http1_is_token(STR("a b")) || http1_is_token((struct str){"a\0", 2}));
}

static void test_writing(void **state)
{
    (void)state;
    struct buf b;
    char chunk[HTTP1_CHUNK_HEAD_BYTES];
    buf_init(&b);
    http1_write_status(&b, 404);
    assert_true(http1_write_header(&b, STR("X-A"), STR("b c\td")));
    http1_write_header_u64(&b, "Content-Length", 18446744073709551615u);
    assert_string_equal(buf_z(&b), "HTTP/1.1 404 Not Found\r\nX-A: b c\td\r\nContent-Length: 18446744073709551615\r\n");
    buf_clear(&b);
    assert_false(http1_write_header(&b, STR("X"), STR("a\r\nY: b")));
    assert_false(http1_write_header(&b, STR("X"), STR("a\nb")));
    assert_false(http1_write_header(&b, STR("X"), (struct str){"a\0b", 3}));
    assert_false(http1_write_header(&b, STR("X:"), STR("a")));
    assert_int_equal(b.n, 0);
    for (int c = 0; c < 256; c++) /* each byte at each place: values are looked at eight bytes at a time */
        for (size_t at = 0; at < 19; at++) {
            char value[19];
            memset(value, 'v', sizeof value);
            value[at] = (char)c;
            value[(at + 5) % 19] = '\t';
            assert_int_equal(http1_write_header(&b, STR("X"), (struct str){value, sizeof value}),
                             c == '\t' || (c >= 0x20 && c != 0x7f));
        }
    buf_release(&b);
    assert_int_equal(http1_chunk_head(chunk, 255), 4);
    assert_memory_equal(chunk, "ff\r\n", 4);
    assert_int_equal(http1_chunk_head(chunk, SIZE_MAX), 18);
    assert_memory_equal(chunk, "ffffffffffffffff\r\n", 18);
    assert_int_equal(http1_chunk_head(chunk, 1), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),   cmocka_unit_test(test_refused),       cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_limits),     cmocka_unit_test(test_framing_ratio), cmocka_unit_test(test_responses),
        cmocka_unit_test(test_body_taken), cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_helpers),
        cmocka_unit_test(test_writing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
