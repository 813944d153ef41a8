/* The HTTP server spoken to in HTTP/2 over real sockets: the same handlers as over HTTP/1.x, streams beside each other, bodies and replies in
 * pieces, windows, cancellation, deadlines, ends. Frames of the client are made by hand (wire/http2_frames.h). */
#include "net_server.h"

#include "../wire/http2_frames.h"
#include "os/thread.h"

struct client {
    int fd;
    struct buf in, raw, shown; /* to be sent; received and not shown yet; all frames since the last clear, shown */
    nghttp2_hd_inflater *hd;
};

static void client_send(struct client *c)
{
    send_all(c->fd, c->in.p, c->in.n);
    buf_clear(&c->in);
}

/* Take what comes within `ms`. False: nothing did, or the server closed. */
static bool client_take(struct client *c, int ms)
{
    if (!wait_readable(c->fd, ms))
        return false;
    ssize_t n = recv(c->fd, buf_reserve(&c->raw, 65536), 65536, 0);
    if (n <= 0)
        return false;
    c->raw.n += (size_t)n;
    size_t used = show_frames(c->hd, (const uint8_t *)c->raw.p, c->raw.n, &c->shown);
    memmove(c->raw.p, c->raw.p + used, c->raw.n - used);
    c->raw.n -= used;
    return true;
}

/* Send what is to be sent, and read until `text` is among the frames. */
static void client_wait(struct client *c, const char *text)
{
    uint64_t until = os_monotonic_ns() + 5000 * MS;
    client_send(c);
    while (!strstr(buf_z(&c->shown), text) && os_monotonic_ns() < until)
        if (!client_take(c, 100) && !wait_readable(c->fd, 0))
            continue;
        else if (strstr(buf_z(&c->shown), text) == NULL && recv(c->fd, &(char){0}, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
            break;
    if (!strstr(buf_z(&c->shown), text))
        fail_msg("no '%s' in:\n%s", text, buf_z(&c->shown));
}

static void client_open(struct client *c)
{
    *c = (struct client){.fd = tcp_connect(address)};
    buf_init(&c->in);
    buf_init(&c->raw);
    buf_init(&c->shown);
    assert_int_equal(nghttp2_hd_inflate_new(&c->hd), 0);
    put_hello(&c->in);
    put_frame(&c->in, F_SETTINGS, ACK, 0, NULL, 0);
    client_wait(c, "SETTINGS 0 ack\n");
    buf_clear(&c->shown);
}

static void client_close(struct client *c)
{
    close(c->fd);
    nghttp2_hd_inflate_del(c->hd);
    buf_release(&c->in);
    buf_release(&c->raw);
    buf_release(&c->shown);
}

/* The server closes; what came before is in `shown`. */
static void client_wait_end(struct client *c)
{
    uint64_t until = os_monotonic_ns() + 5000 * MS;
    client_send(c);
    while (client_take(c, 5000) && os_monotonic_ns() < until)
        ;
    assert_true(os_monotonic_ns() < until);
    assert_int_equal(recv(c->fd, &(char){0}, 1, MSG_DONTWAIT), 0);
}

#define GET(c, id, path)  put_head(&(c)->in, id, "GET", path, "", true)
#define POST(c, id, path) put_head(&(c)->in, id, "POST", path, "", false)

static void test_requests(void **state)
{
    (void)state;
    struct client c;
    client_open(&c);
    GET(&c, 1, "/hi");
    client_wait(&c, "DATA 1 end 2 hi\n");
    assert_string_equal(buf_z(&c.shown), "HEADERS 1 :status=200 content-type=text/plain content-length=2\nDATA 1 end 2 hi\n");
    buf_clear(&c.shown);
    put_head(&c.in, 3, "POST", "/x?q=1", "x-request-id=abc|traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
             false);
    put_data(&c.in, 3, "bo", false);
    put_data(&c.in, 3, "dy", true);
    client_wait(&c, "DATA 3 end");
    assert_non_null(strstr(buf_z(&c.shown), "POST /x?q=1 id=abc tp=00-0af7651916cd43d"));
    buf_clear(&c.shown);
    put_head(&c.in, 5, "HEAD", "/hi", "", true);
    client_wait(&c, "HEADERS 5 end");
    assert_string_equal(buf_z(&c.shown), "HEADERS 5 end :status=200 content-type=text/plain content-length=2\n");
    buf_clear(&c.shown);
    GET(&c, 7, "/nothing");
    client_wait(&c, "HEADERS 7 end :status=204\n");
    GET(&c, 9, "/busy");
    client_wait(&c, "DATA 9 end");
    assert_non_null(strstr(buf_z(&c.shown), " retry-after=7\n"));
    WAIT_FOR(completed == 5);
    assert_int_equal(last_status, 429);
    client_close(&c);
    WAIT_FOR(http_server_connections(server) == 0);
    assert_int_equal(counter(metrics, "inferd_http2_connections{listener=\"test\"} "), 0);
}

/* One port for both protocols, whatever the first bytes look like and however they come. */
static void test_first_bytes(void **state)
{
    (void)state;
    struct client c = {.fd = tcp_connect(address)};
    buf_init(&c.in);
    buf_init(&c.raw);
    buf_init(&c.shown);
    assert_int_equal(nghttp2_hd_inflate_new(&c.hd), 0);
    put_hello(&c.in);
    GET(&c, 1, "/hi");
    for (size_t i = 0; i < c.in.n; i++) {
        send_all(c.fd, c.in.p + i, 1);
        if (i < 30)
            os_sleep_ns(MS);
    }
    buf_clear(&c.in);
    client_wait(&c, "DATA 1 end 2 hi\n");
    client_close(&c);
    static const char *const heads[] = {"P", "PR", "PRI * HTTP/", "PRI * HTTP/2.0\r\n\r\nSM\r\n"};
    static const char *const rests[] = {"OST /hi HTTP/1.1\r\n" HOST CLOSE "Content-Length: 0\r\n\r\n",
                                        "OPFIND /hi HTTP/1.1\r\n" HOST CLOSE "\r\n", "1.1\r\n" HOST CLOSE "\r\n", "\n\n"};
    static const char *const wants[] = {"HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\n",
                                        "HTTP/1.1 505 HTTP Version Not Supported\r\n",
                                        "HTTP/1.1 505 HTTP Version Not Supported\r\n"};
    for (int i = 0; i < 4; i++) {
        struct buf b;
        buf_init(&b);
        int fd = tcp_connect(address);
        send_z(fd, heads[i]);
        os_sleep_ns(5 * MS);
        send_z(fd, rests[i]);
        assert_true(recv_until(fd, &b, NULL));
        if (strncmp(buf_z(&b), wants[i], strlen(wants[i])) != 0)
            fail_msg("%s%s: %s", heads[i], rests[i], buf_z(&b));
        close(fd);
        buf_release(&b);
    }
}

static void test_streams_beside_each_other(void **state)
{
    (void)state;
    struct client c;
    client_open(&c);
    GET(&c, 1, "/park");
    GET(&c, 3, "/hi");
    client_wait(&c, "DATA 3 end 2 hi\n");
    assert_null(strstr(buf_z(&c.shown), "HEADERS 1"));
    loop_post(parked->loop, &answer_task);
    client_wait(&c, "DATA 1 end 6 parked\n");
    client_close(&c);
}

/* With windows of 256 KiB. */
static void start_narrow(void)
{
    struct http_limits l = defaults();
    l.http2_window_bytes = 256 << 10;
    start(&l);
}

/* Half a megabyte up, in windows as the server opens them, and down again. */
static void test_echo(void **state)
{
    (void)state;
    start_narrow();
    static char part[16000];
    struct client c;
    client_open(&c);
    memset(part, 'e', sizeof part);
    put_setting(&c.in, 4, 1 << 20);
    put_u32_frame(&c.in, F_WINDOW, 0, 1 << 20);
    put_head(&c.in, 1, "POST", "/echo", "content-length=512000", false);
    size_t window = 256 << 10, seen = 0, got = 0;
    for (int i = 0; i < 32; i++) {
        while (window < sizeof part) {
            client_send(&c);
            assert_true(client_take(&c, 5000));
            for (const char *at; (at = strstr(buf_z(&c.shown) + seen, "WINDOW 1 ")); seen = (size_t)(at + 9 - c.shown.p))
                window += strtoull(at + 9, NULL, 10);
        }
        put_frame(&c.in, F_DATA, i == 31 ? END_STREAM : 0, 1, part, sizeof part);
        window -= sizeof part;
    }
    client_wait(&c, "DATA 1 end");
    for (const char *at = buf_z(&c.shown); (at = strstr(at, "DATA 1 ")); at += 7)
        got += strtoull(strncmp(at + 7, "end", 3) == 0 ? at + 11 : at + 7, NULL, 10);
    assert_int_equal(got, 512000);
    assert_true(seen > 0);
    client_close(&c);
}

/* Both directions at once: each piece comes back before the next is sent; then trailers. */
static void test_pieces(void **state)
{
    (void)state;
    struct client c;
    client_open(&c);
    POST(&c, 1, "/pieces");
    client_wait(&c, "HEADERS 1 :status=200 content-type=text/plain\n");
    for (int i = 0; i < 5; i++) {
        char text[2] = {(char)('a' + i), 0}, want[40];
        put_data(&c.in, 1, text, false);
        snprintf(want, sizeof want, "DATA 1 3 [%s]\n", text);
        client_wait(&c, want);
    }
    put_data(&c.in, 1, "", true);
    client_wait(&c, "HEADERS 1 end grpc-status=0\n");
    assert_non_null(strstr(buf_z(&c.shown), "DATA 1 2 []\n"));
    /* without a body: one empty last piece */
    GET(&c, 3, "/pieces");
    client_wait(&c, "DATA 3 2 []\nHEADERS 3 end grpc-status=0\n");
    /* cancelled in the middle: the handler hears of it, once */
    POST(&c, 5, "/pieces");
    client_wait(&c, "HEADERS 5");
    put_u32_frame(&c.in, F_RST, 5, NGHTTP2_CANCEL);
    client_send(&c);
    WAIT_FOR(gone == 1);
    WAIT_FOR(completed == 3);
    /* compressed pieces are not */
    put_head(&c.in, 7, "POST", "/pieces", "content-encoding=gzip", false);
    client_wait(&c, "HEADERS 7 :status=415");
    client_close(&c);
}

/* What a handler does not take closes the window of its stream, and of no other. */
static void test_slow_handler(void **state)
{
    (void)state;
    start_narrow();
    static char part[16000];
    struct client c;
    client_open(&c);
    POST(&c, 1, "/hold");
    for (int i = 0; i < 16; i++)
        put_frame(&c.in, F_DATA, 0, 1, part, sizeof part);
    client_send(&c);
    WAIT_FOR(held_bytes == 256000);
    put_head(&c.in, 3, "POST", "/echo", "", false);
    put_data(&c.in, 3, "others go on", true);
    client_wait(&c, "DATA 3 end 12 others go on\n");
    assert_null(strstr(buf_z(&c.shown), "WINDOW 1"));
    loop_post(holding->loop, &release_task);
    client_wait(&c, "WINDOW 1 256000\n");
    put_data(&c.in, 1, "!", true);
    client_wait(&c, "DATA 1 end 6 256001\n");
    assert_null(strstr(buf_z(&c.shown), "RST"));
    client_close(&c);
}

/* A client that does not read a stream stops only that one; the handler of it waits. */
static void test_slow_reader(void **state)
{
    (void)state;
    struct client c;
    client_open(&c);
    put_setting(&c.in, 4, 0);
    GET(&c, 1, "/stream?100000");
    client_wait(&c, "HEADERS 1 :status=200");
    put_setting(&c.in, 4, 100);
    GET(&c, 3, "/hi");
    client_wait(&c, "DATA 3 end 2 hi\n");
    os_sleep_ns(20 * MS);
    assert_int_equal(completed, 1); /* 100 MB are not queued: the stream goes on when it is read */
    put_u32_frame(&c.in, F_RST, 1, NGHTTP2_CANCEL);
    client_send(&c);
    WAIT_FOR(completed == 2);
    assert_int_equal(gone, 1);
    client_close(&c);
}

static void test_stream_in_full(void **state)
{
    (void)state;
    struct client c;
    client_open(&c);
    put_setting(&c.in, 4, 0x7fffffff);
    put_u32_frame(&c.in, F_WINDOW, 0, 0x7fff0000);
    GET(&c, 1, "/stream?5000");
    client_wait(&c, "DATA 1 end");
    size_t got = 0;
    for (const char *at = buf_z(&c.shown); (at = strstr(at, "DATA 1 ")); at += 7)
        got += strtoull(strncmp(at + 7, "end", 3) == 0 ? at + 11 : at + 7, NULL, 10);
    assert_int_equal(got, 5000000);
    client_close(&c);
}

static void test_abort(void **state)
{
    (void)state;
    struct client c;
    client_open(&c);
    GET(&c, 1, "/abort");
    client_wait(&c, "RST 1 2\n");
    assert_null(strstr(buf_z(&c.shown), " end"));
    GET(&c, 3, "/hi"); /* the connection lives on */
    client_wait(&c, "DATA 3 end 2 hi\n");
    assert_int_equal(counter(metrics, "inferd_http2_glitches_total{listener=\"test\",class=\"induced_reset\"} "), 0);
    client_close(&c);
}

static void test_cancel_and_close(void **state)
{
    (void)state;
    struct client c;
    client_open(&c);
    GET(&c, 1, "/park");
    client_send(&c);
    WAIT_FOR(parked);
    put_u32_frame(&c.in, F_RST, 1, NGHTTP2_CANCEL);
    client_send(&c);
    WAIT_FOR(gone == 1);
    assert_int_equal(completed, 0); /* not before its handler has answered */
    loop_post(parked->loop, &answer_task);
    WAIT_FOR(completed == 1);
    assert_int_equal(last_status, 499);
    GET(&c, 3, "/park-answer-when-gone");
    client_send(&c);
    WAIT_FOR(parked);
    close(c.fd); /* it goes with the connection */
    WAIT_FOR(gone == 2);
    WAIT_FOR(completed == 2);
    assert_int_equal(last_status, 499);
    WAIT_FOR(http_server_connections(server) == 0);
    c.fd = -1;
    client_close(&c);
}

/* A FIN while something is worked on: a PING learns whether the client still listens. */
static void test_half_close(void **state)
{
    (void)state;
    struct client c;
    client_open(&c);
    GET(&c, 1, "/park");
    client_send(&c);
    WAIT_FOR(parked);
    shutdown(c.fd, SHUT_WR);
    client_wait(&c, "PING 0\n");
    loop_post(parked->loop, &answer_task);
    client_wait(&c, "DATA 1 end 6 parked\n");
    client_wait_end(&c);
    client_close(&c);
    assert_int_equal(gone, 0);
    client_open(&c);
    GET(&c, 1, "/park-answer-when-gone");
    POST(&c, 3, "/echo"); /* its rest will never come */
    client_send(&c);
    WAIT_FOR(parked);
    client_close(&c);
    WAIT_FOR(gone == 2);
    WAIT_FOR(completed == 3);
}

static void test_refusals(void **state)
{
    (void)state;
    struct client c;
    client_open(&c);
    POST(&c, 1, "/forbidden"); /* answered before the body, which may still come: many clients read when they have sent */
    client_wait(&c, "HEADERS 1 :status=403");
    put_data(&c.in, 1, "the rest", false);
    put_data(&c.in, 1, " of it", true);
    put_head(&c.in, 11, "POST", "/forbidden", "expect=100-continue", false); /* this body will not */
    client_wait(&c, "RST 11 0\n");
    assert_null(strstr(buf_z(&c.shown), "RST 1 "));
    put_head(&c.in, 13, "POST", "/small", "content-length=11", false);
    client_wait(&c, "HEADERS 13 :status=413");
    POST(&c, 15, "/small");
    put_data(&c.in, 15, "hello world", true);
    client_wait(&c, "HEADERS 15 :status=413");
    GET(&c, 17, "/a#b");
    client_wait(&c, "HEADERS 17 :status=400");
    client_wait(&c, "\"known\":0,\"status\":400}");
    POST(&c, 19, "/hi");
    put_data(&c.in, 19, "x", true);
    client_wait(&c, "DATA 19 end 2 hi\n");
    assert_int_equal(counter(metrics, "inferd_http_limit_total{listener=\"test\",limit=\"body\"} "), 2);
    assert_int_equal(counter(metrics, "inferd_http_malformed_total{listener=\"test\"} "), 1);
    client_close(&c);
}

static void test_compressed_body(void **state)
{
    (void)state;
    /* gzip of "hello", by gzip -n */
    static const char gz[] =
        "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xcb\x48\xcd\xc9\xc9\x07\x00\x86\xa6\x10\x36\x05\x00\x00\x00";
    struct client c;
    client_open(&c);
    put_head(&c.in, 1, "POST", "/echo", "content-encoding=gzip", false);
    put_frame(&c.in, F_DATA, 0, 1, gz, 10);
    put_frame(&c.in, F_DATA, END_STREAM, 1, gz + 10, sizeof gz - 11);
    client_wait(&c, "DATA 1 end 5 hello\n");
    client_close(&c);
}

/* --- limits and deadlines --- */

static void test_deadlines(void **state)
{
    (void)state;
    struct http_limits l = defaults();
    l.body_timeout_ns = 100 * MS;
    l.header_timeout_ns = 100 * MS;
    l.write_timeout_ns = 150 * MS;
    l.min_body_rate = 0;
    start(&l);
    struct client c;
    client_open(&c);
    POST(&c, 1, "/echo"); /* its body does not come */
    client_wait(&c, "HEADERS 1 :status=408");
    POST(&c, 3, "/hold"); /* ... to a handler that has begun: the stream is reset */
    client_wait(&c, "RST 3 8\n");
    WAIT_FOR(gone == 1);
    POST(&c, 5, "/pieces"); /* ... to one that has time */
    client_wait(&c, "HEADERS 5");
    put_setting(&c.in, 4, 0);
    GET(&c, 7, "/hi"); /* its reply is not taken */
    client_wait(&c, "RST 7 8\n");
    put_data(&c.in, 5, "x", true);
    client_wait(&c, "SETTINGS 0 ack");
    assert_null(strstr(buf_z(&c.shown), "RST 5"));
    assert_int_equal(counter(metrics, "inferd_http_limit_total{listener=\"test\",limit=\"body_time\"} "), 2);
    assert_int_equal(counter(metrics, "inferd_http_limit_total{listener=\"test\",limit=\"write_time\"} "), 1);
    client_close(&c);
    client_open(&c);
    put_frame(&c.in, F_HEADERS, 0, 1, "\x82", 1); /* a head that does not end */
    client_wait_end(&c);
    assert_non_null(strstr(buf_z(&c.shown), "GOAWAY 0 1 11\n"));
    assert_int_equal(counter(metrics, "inferd_http_limit_total{listener=\"test\",limit=\"header_time\"} "), 1);
    client_close(&c);
}

/* A body behind its reply is taken for as long and as far as another would be. */
static void test_lingering(void **state)
{
    (void)state;
    static char part[16000];
    struct http_limits l = defaults();
    l.body_timeout_ns = 200 * MS;
    l.min_body_rate = 0;
    l.max_body_bytes = 100000;
    start(&l);
    struct client c;
    client_open(&c);
    POST(&c, 1, "/forbidden");
    client_wait(&c, "HEADERS 1 :status=403");
    assert_null(strstr(buf_z(&c.shown), "RST"));
    client_wait(&c, "RST 1 0\n"); /* the time is up */
    POST(&c, 3, "/forbidden");
    for (int i = 0; i < 6; i++)
        put_frame(&c.in, F_DATA, 0, 3, part, sizeof part);
    client_wait(&c, "HEADERS 3 :status=403");
    put_frame(&c.in, F_PING, 0, 0, "12345678", 8);
    client_wait(&c, "PING 0 ack");
    assert_null(strstr(buf_z(&c.shown), "RST 3"));
    put_frame(&c.in, F_DATA, 0, 3, part, sizeof part); /* 112,000 bytes */
    put_frame(&c.in, F_DATA, 0, 3, part, sizeof part);
    client_wait(&c, "RST 3 0\n");
    GET(&c, 5, "/hi");
    client_wait(&c, "DATA 5 end 2 hi\n");
    assert_int_equal(counter(metrics, "inferd_http2_glitches_total{listener=\"test\",class=\"induced_reset\"} "), 0);
    client_close(&c);
}

static void test_idle(void **state)
{
    (void)state;
    struct http_limits l = defaults();
    l.idle_timeout_ns = 80 * MS;
    start(&l);
    struct client c;
    client_open(&c);
    GET(&c, 1, "/hi");
    client_wait_end(&c);
    assert_non_null(strstr(buf_z(&c.shown), "DATA 1 end 2 hi\nGOAWAY 0 1 0\n"));
    client_close(&c);
}

static void test_max_requests(void **state)
{
    (void)state;
    struct http_limits l = defaults();
    l.max_requests = 2;
    start(&l);
    struct client c;
    client_open(&c);
    GET(&c, 1, "/hi");
    client_wait(&c, "DATA 1 end 2 hi\n");
    GET(&c, 3, "/hi");
    client_wait(&c, "PING 0\n");
    assert_non_null(strstr(buf_z(&c.shown), "GOAWAY 0 2147483647 0\nPING 0\n"));
    put_frame(&c.in, F_PING, ACK, 0, "shutdown", 8);
    client_wait_end(&c);
    assert_non_null(strstr(buf_z(&c.shown), "GOAWAY 0 3 0\n"));
    assert_non_null(strstr(buf_z(&c.shown), "DATA 3 end 2 hi\n"));
    client_close(&c);
}

static void test_glitches(void **state)
{
    (void)state;
    struct http_limits l = defaults();
    l.http2_glitches = 10;
    l.http2_glitch_rate = 0;
    start(&l);
    struct client c;
    client_open(&c);
    for (uint32_t id = 1; id < 40; id += 2) {
        GET(&c, id, "/park-answer-when-gone");
        put_u32_frame(&c.in, F_RST, id, NGHTTP2_CANCEL);
    }
    client_wait_end(&c);
    assert_non_null(strstr(buf_z(&c.shown), " 11\n"));
    assert_int_equal(counter(metrics, "inferd_http2_glitches_total{listener=\"test\",class=\"reset\"} "), 10);
    assert_int_equal(counter(metrics, "inferd_http_limit_total{listener=\"test\",limit=\"http2_glitches\"} "), 1);
    WAIT_FOR(http_server_connections(server) == 0);
    client_close(&c);
}

/* Drain: told to go, the client finishes what it has, also what was on its way, and is let go. */
static void test_drain(void **state)
{
    (void)state;
    struct client c, idle;
    client_open(&c);
    client_open(&idle);
    GET(&c, 1, "/park");
    client_send(&c);
    WAIT_FOR(parked);
    http_server_drain(server);
    client_wait(&c, "GOAWAY 0 2147483647 0\nPING 0\n");
    GET(&c, 3, "/hi");
    put_frame(&c.in, F_PING, ACK, 0, "shutdown", 8);
    client_wait(&c, "DATA 3 end 2 hi\n");
    client_wait(&c, "GOAWAY 0 3 0\n");
    loop_post(parked->loop, &answer_task);
    client_wait_end(&c);
    assert_non_null(strstr(buf_z(&c.shown), "DATA 1 end 6 parked\n"));
    client_wait_end(&idle); /* does not answer the PING: let go all the same */
    assert_non_null(strstr(buf_z(&idle.shown), "GOAWAY 0 0 0\n"));
    client_close(&c);
    client_close(&idle);
}

/* Stop with streams in every state. */
static void test_stop(void **state)
{
    (void)state;
    struct http_limits l = defaults();
    start(&l);
    struct client c;
    client_open(&c);
    put_setting(&c.in, 4, 10);
    GET(&c, 1, "/park-answer-when-gone");
    POST(&c, 3, "/echo");
    POST(&c, 5, "/pieces");
    POST(&c, 7, "/hold");
    GET(&c, 9, "/stream?1000");
    put_data(&c.in, 7, "x", false);
    client_wait(&c, "DATA 9 10");
    WAIT_FOR(held_bytes == 1 && headers_seen == 5);
    http_server_stop(server);
    server = NULL;
    assert_int_equal(completed, 5);
    assert_int_equal(gone, 5);
    client_close(&c);
}

/* Bytes that a handler keeps of its pieces count against the server's memory for bodies. */
static void test_charge(void **state)
{
    (void)state;
    struct http_limits l = defaults();
    l.max_body_memory = 1000;
    start(&l);
    struct client c;
    client_open(&c);
    POST(&c, 1, "/charge");
    put_data(&c.in, 1, "x", true);
    client_wait(&c, "DATA 1 end");
    assert_non_null(strstr(buf_z(&c.shown), "600: 0, 1001: unavailable, 400: 0, 1000: 0"));
    assert_int_equal(counter(metrics, "inferd_http_limit_total{listener=\"test\",limit=\"body_memory\"} "), 1);
    POST(&c, 3, "/charge"); /* it was given back */
    put_data(&c.in, 3, "x", true);
    client_wait(&c, "DATA 3 end");
    assert_non_null(strstr(strstr(buf_z(&c.shown), "DATA 3"), "600: 0, 1001: unavailable, 400: 0, 1000: 0"));
    client_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVED(test_requests),
        SERVED(test_first_bytes),
        SERVED(test_streams_beside_each_other),
        OWN(test_echo),
        SERVED(test_pieces),
        OWN(test_slow_handler),
        SERVED(test_slow_reader),
        SERVED(test_stream_in_full),
        SERVED(test_abort),
        SERVED(test_cancel_and_close),
        SERVED(test_half_close),
        SERVED(test_refusals),
        SERVED(test_compressed_body),
        OWN(test_deadlines),
        OWN(test_lingering),
        OWN(test_idle),
        OWN(test_max_requests),
        OWN(test_glitches),
        SERVED(test_drain),
        OWN(test_stop),
        OWN(test_charge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
