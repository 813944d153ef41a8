/* Every allocation of the server made to fail, each once at each of its first hits: the connection may be lost or refused with 503,
 * the server lives on. Only in builds with fault points; elsewhere the loop just serves. */
#include "net_server.h"

#include "../wire/http2_frames.h"

static const char BODY[] = "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc";

/* The server may have given the connection up before all is sent: what it said is read all the same. */
static void send_while_open(int fd, const char *z)
{
    for (size_t n = strlen(z); n;) {
        ssize_t put = send(fd, z, n, MSG_NOSIGNAL);
        if (put < 0) {
            assert_true(errno == EPIPE || errno == ECONNRESET);
            return;
        }
        z += put;
        n -= (size_t)put;
    }
}

static void test_allocations_fail(void **state)
{
    (void)state;
    size_t ok = 0;
    for (int i = 0; i < 40; i++) {
        struct buf b;
        buf_init(&b);
        int fd = tcp_connect(address);
        send_while_open(fd, BODY);
        send_while_open(fd, "GET /stream?2 HTTP/1.1\r\n" HOST "\r\nGET /hi HTTP/1.1\r\n" HOST CLOSE "\r\n");
        while (wait_readable(fd, 5000)) { /* whatever comes, the end comes too */
            ssize_t n = recv(fd, buf_reserve(&b, 65536), 65536, 0);
            if (n <= 0)
                break;
            b.n += (size_t)n;
        }
        ok += strstr(buf_z(&b), "\r\n\r\nabc") && b.n > 3 && strcmp(buf_z(&b) + b.n - 2, "hi") == 0;
        if (b.n && strncmp(buf_z(&b), "HTTP/1.1 200", 12) != 0)
            assert_int_equal(strncmp(buf_z(&b), "HTTP/1.1 503", 12), 0);
        close(fd);
        buf_release(&b);
    }
    assert_in_range(ok, 20, 40);
    WAIT_FOR(http_server_connections(server) == 0);
    WAIT_FOR(headers_seen == completed);
}

/* The same over HTTP/2: a stream or the connection may be lost, never more. */
static void test_allocations_fail_http2(void **state)
{
    (void)state;
    size_t ok = 0;
    for (int i = 0; i < 40; i++) {
        struct buf in, got, shown;
        nghttp2_hd_inflater *hd;
        buf_init(&in);
        buf_init(&got);
        buf_init(&shown);
        assert_int_equal(nghttp2_hd_inflate_new(&hd), 0);
        put_hello(&in);
        put_head(&in, 1, "POST", "/echo", "", false);
        put_data(&in, 1, "abc", true);
        put_head(&in, 3, "GET", "/stream?2", "", true);
        put_head(&in, 5, "POST", "/pieces", "", false);
        put_data(&in, 5, "x", true);
        put_head(&in, 7, "GET", "/stream?60", "", true);
        put_frame(&in, F_GOAWAY, 0, 0, "\0\0\0\0\0\0\0\0", 8); /* no more will come: the server closes when all is answered */
        buf_append_c(&in, 0);
        int fd = tcp_connect(address);
        send_while_open(fd, PREFACE);
        if (send(fd, in.p + strlen(PREFACE), in.n - strlen(PREFACE) - 1, MSG_NOSIGNAL) < 0)
            assert_true(errno == EPIPE || errno == ECONNRESET);
        while (wait_readable(fd, 5000)) {
            ssize_t n = recv(fd, buf_reserve(&got, 65536), 65536, 0);
            if (n <= 0)
                break;
            got.n += (size_t)n;
        }
        show_frames(hd, (const uint8_t *)got.p, got.n, &shown);
        ok += strstr(buf_z(&shown), "DATA 1 end 3 abc\n") && strstr(buf_z(&shown), "HEADERS 5 end grpc-status=0\n") &&
              strstr(buf_z(&shown), "DATA 3 end") && strstr(buf_z(&shown), "DATA 7 end");
        close(fd);
        nghttp2_hd_inflate_del(hd);
        buf_release(&in);
        buf_release(&got);
        buf_release(&shown);
    }
    assert_in_range(ok, 20, 40);
    WAIT_FOR(http_server_connections(server) == 0);
    WAIT_FOR(headers_seen == completed);
}

int main(void)
{
    setenv("INFERD_FAULT",
           "http_conn:oom@3x1,http_request:oom@1x2,http_body:oom@2x2,http_reply:oom@5x4,http_pending:oom@1x3,"
           "http2:oom@2x2,http2_conn:oom@1x2,http2_stream:oom@4x2,http2_reply:oom@3x6",
           1);
    const struct CMUnitTest tests[] = {SERVED(test_allocations_fail), SERVED(test_allocations_fail_http2)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
