/* The HTTP server over real sockets, the protocol: what goes in and the bytes that must come out. */
#include "net_server.h"

#include <fcntl.h>
#include <pthread.h>

static void test_keep_alive_and_close(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b);
    int fd = tcp_connect(address);
    for (int i = 0; i < 3; i++) {
        send_z(fd, "GET /hi HTTP/1.1\r\n" HOST "\r\n");
        assert_true(recv_until(fd, &b, "\r\n\r\nhi"));
    }
    send_z(fd, "GET /hi HTTP/1.1\r\n" HOST CLOSE "\r\n");
    assert_true(recv_until(fd, &b, NULL));
    mask(&b);
    assert_string_equal(buf_z(&b), OK("2") "\r\nhi" OK("2") "\r\nhi" OK("2") "\r\nhi" OK("2") CLOSE "\r\nhi");
    close(fd);
    buf_release(&b);
    WAIT_FOR(completed == 4);
    assert_int_equal(last_status, 200);
    WAIT_FOR(http_server_connections(server) == 0);
    assert_int_equal(counter(metrics, "inferd_http_accepted_total{listener=\"test\"} "), 1);
}

static void test_http10(void **state)
{
    (void)state;
    talk("GET /hi HTTP/1.0\r\n\r\n", OK("2") CLOSE "\r\nhi");
    talk("GET /hi HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /hi HTTP/1.0\r\n\r\n",
         OK("2") "Connection: keep-alive\r\n\r\nhi" OK("2") CLOSE "\r\nhi");
    /* no chunks for 1.0: the end of the connection is the end of the body */
    struct buf b;
    buf_init(&b);
    int fd = tcp_connect(address);
    send_z(fd, "GET /stream?3 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_true(recv_until(fd, &b, NULL));
    assert_null(strstr(buf_z(&b), "chunked"));
    assert_non_null(strstr(buf_z(&b), CLOSE));
    const char *body = strstr(buf_z(&b), "\r\n\r\n") + 4;
    assert_int_equal(strlen(body), 3000);
    close(fd);
    buf_release(&b);
}

static void test_pipelining_in_order(void **state)
{
    (void)state;
    talk("GET /hi HTTP/1.1\r\n" HOST "\r\nPOST /echo HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabcHEAD /hi HTTP/1.1\r\n" HOST
         "\r\nGET /nothing HTTP/1.1\r\n" HOST "\r\nGET /hi HTTP/1.1\r\n" HOST CLOSE "\r\n",
         OK("2") "\r\nhi"
                 "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 3\r\n" DATE
                 "\r\nabc" OK("2") "\r\n"
                                   "HTTP/1.1 204 No Content\r\n" DATE "\r\n" OK("2") CLOSE "\r\nhi");
}

/* A slow request at the front holds back the replies behind it, and more than max_pipeline are not read. */
static void test_pipeline_waits(void **state)
{
    (void)state;
    struct http_limits l = defaults();
    l.max_pipeline = 3;
    start(&l);
    struct buf b;
    buf_init(&b);
    int fd = tcp_connect(address);
    send_z(fd, "GET /park HTTP/1.1\r\n" HOST "\r\n");
    for (int i = 0; i < 5; i++)
        send_z(fd, "GET /hi HTTP/1.1\r\n" HOST "\r\n");
    WAIT_FOR(parked && headers_seen == 3);
    assert_false(wait_readable(fd, 50));
    assert_int_equal(headers_seen, 3);
    assert_int_equal(counter(metrics, "inferd_http_limit_total{listener=\"test\",limit=\"pipeline\"} "), 1);
    loop_post(parked->loop, &answer_task);
    send_z(fd, "GET /hi HTTP/1.1\r\n" HOST CLOSE "\r\n");
    assert_true(recv_until(fd, &b, NULL));
    mask(&b);
    assert_string_equal(buf_z(&b), OK("6") "\r\nparked" OK("2") "\r\nhi" OK("2") "\r\nhi" OK("2") "\r\nhi" OK("2") "\r\nhi" OK(
                                       "2") "\r\nhi" OK("2") CLOSE "\r\nhi");
    close(fd);
    buf_release(&b);
}

static void test_refusals(void **state)
{
    (void)state;
    talk("GET / HTTP/1.1\r\n\r\n", ERR("400 Bad Request", "an HTTP/1.1 request has exactly one Host header", "0", "400", "82"));
    talk("POST / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
         ERR("400 Bad Request", "a message has one Content-Length or one 'Transfer-Encoding: chunked', not both, not twice",
             "0", "400", "124"));
    talk("POST /small HTTP/1.1\r\n" HOST "Content-Length: 11\r\n\r\nhello world",
         ERR("413 Content Too Large", "the body is larger than the 10 bytes accepted here", "1", "413", "85"));
    talk("POST /small HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n",
         ERR("413 Content Too Large", "the body is larger than the 10 bytes accepted here", "1", "413", "85"));
    talk("POST /x HTTP/1.1\r\n" HOST "Content-Encoding: br\r\nContent-Length: 1\r\n\r\nx",
         ERR("415 Unsupported Media Type", "Content-Encoding 'br' is not known; gzip, deflate and zstd are", "1", "415", "97"));
    talk("POST /x HTTP/1.1\r\n" HOST "Expect: more\r\nContent-Length: 1\r\n\r\nx",
         ERR("417 Expectation Failed", "the only expectation that can be met is '100-continue'", "0", "417", "89"));
    talk("POST /forbidden HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello",
         ERR("403 Forbidden", "not for you", "1", "403", "46"));
    /* the good ones before the bad one are answered first */
    talk("GET /hi HTTP/1.1\r\n" HOST "\r\nGET /hi HTTP/1.1\r\n" HOST "X : y\r\n\r\nGET /hi HTTP/1.1\r\n" HOST "\r\n",
         OK("2") "\r\nhi" ERR("400 Bad Request", "the request line or a header line is malformed", "0", "400", "81"));
    assert_int_equal(counter(metrics, "inferd_http_limit_total{listener=\"test\",limit=\"body\"} "), 2);
    assert_int_equal(counter(metrics, "inferd_http_malformed_total{listener=\"test\"} "), 4);
    /* a refusal of a request without body leaves the connection open */
    talk("GET /forbidden HTTP/1.1\r\n" HOST "\r\nGET /busy HTTP/1.1\r\n" HOST "\r\nGET /hi HTTP/1.1\r\n" HOST CLOSE "\r\n",
         "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: 46\r\n" DATE
         "\r\n{\"error\":\"not for you\",\"known\":1,\"status\":403}"
         "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nContent-Length: 45\r\n" DATE
         "Retry-After: 7\r\n\r\n{\"error\":\"queue full\",\"known\":1,\"status\":429}" OK("2") CLOSE "\r\nhi");
}

static void test_header_limits(void **state)
{
    (void)state;
    struct http_limits l = defaults();
    l.max_url_bytes = 20;
    l.max_header_bytes = 200;
    start(&l);
    talk("GET /0123456789012345678901234567890123456789012345678901234567890123456789 HTTP/1.1\r\n" HOST "\r\n",
         ERR("414 URI Too Long", "the request target is too long", "0", "414", "65"));
    char big[1000];
    snprintf(big, sizeof big, "GET / HTTP/1.1\r\n" HOST "X: %0300d\r\n\r\n", 1);
    talk(big, ERR("431 Request Header Fields Too Large", "the header section is too large", "0", "431", "66"));
    assert_int_equal(counter(metrics, "inferd_http_limit_total{listener=\"test\",limit=\"url\"} "), 1);
    assert_int_equal(counter(metrics, "inferd_http_limit_total{listener=\"test\",limit=\"headers\"} "), 1);
}

static void test_request_fields(void **state)
{
    (void)state;
    talk("POST /a%20b?q=1 HTTP/1.1\r\n" HOST "x-request-id: Req-1.x_y\r\ntraceparent: "
         "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nContent-Length: 3\r\n" CLOSE "\r\nabc",
         OK("115") CLOSE
         "\r\nPOST /a%20b?q=1 id=Req-1.x_y tp=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 n=5 align=0 "
         "peer=1 body=abc");
    struct buf b;
    buf_init(&b);
    /* an error says which request it was */
    int fd = tcp_connect(address);
    send_z(fd, "GET /busy HTTP/1.1\r\n" HOST CLOSE "x-request-id: Req-2\r\n\r\n");
    assert_true(recv_until(fd, &b, NULL));
    assert_non_null(strstr(buf_z(&b), "\r\nx-request-id: Req-2\r\n"));
    close(fd);
    buf_clear(&b);
    /* an unusable id is replaced by 32 hex digits, an unusable traceparent is ignored */
    fd = tcp_connect(address);
    send_z(fd, "GET /x HTTP/1.1\r\n" HOST CLOSE
               "x-request-id: a b\r\ntraceparent: 00-00000000000000000000000000000000-b7ad6b7169203331-01\r\n\r\n");
    assert_true(recv_until(fd, &b, NULL));
    const char *id = strstr(buf_z(&b), "id=");
    assert_non_null(id);
    assert_int_equal(strspn(id + 3, "0123456789abcdef"), 32);
    assert_non_null(strstr(buf_z(&b), " tp= n"));
    close(fd);
    buf_release(&b);
}

/* The whole conversation cut at every byte, with a pause between the halves that the server sees. */
static void test_split_everywhere(void **state)
{
    (void)state;
    static const char in[] =
        "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nT: v\r\n\r\n"
        "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 4\r\n" CLOSE "\r\nwxyz";
    static const char want[] =
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 5\r\n" DATE "\r\nabcde"
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 4\r\n" DATE CLOSE "\r\nwxyz";
    for (size_t cut = 0; cut < sizeof in - 1; cut++) {
        struct buf b;
        buf_init(&b);
        int fd = tcp_connect(address);
        send_all(fd, in, cut);
        os_sleep_ns(MS / 2);
        send_all(fd, in + cut, sizeof in - 1 - cut);
        assert_true(recv_until(fd, &b, NULL));
        mask(&b);
        assert_string_equal(buf_z(&b), want);
        close(fd);
        buf_release(&b);
    }
}

static void test_expect_continue(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b);
    int fd = tcp_connect(address);
    send_z(fd, "POST /echo HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert_true(recv_until(fd, &b, "\r\n\r\n"));
    assert_string_equal(buf_z(&b), "HTTP/1.1 100 Continue\r\n\r\n");
    send_z(fd, "ok");
    assert_true(recv_until(fd, &b, "\r\n\r\nok"));
    buf_clear(&b);
    /* refused before the body: no 100, and the connection closes because a body may follow */
    send_z(fd, "POST /forbidden HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert_true(recv_until(fd, &b, NULL));
    mask(&b);
    assert_string_equal(buf_z(&b), ERR("403 Forbidden", "not for you", "1", "403", "46"));
    close(fd);
    buf_release(&b);
    /* a client that doesn't wait gets no 100 */
    talk("POST /echo HTTP/1.1\r\n" HOST CLOSE "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
         "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 2\r\n" DATE CLOSE "\r\nok");
}

/* A body of several megabytes, sent slowly enough to grow the slab step by step, comes back intact. */
static void *sender(void *arg)
{
    struct {
        int fd;
        const char *p;
        size_t n;
    } *job = arg;
    for (size_t at = 0; at < job->n;) {
        size_t n = MIN_OF(job->n - at, (size_t)100000);
        send_all(job->fd, job->p + at, n);
        at += n;
    }
    return NULL;
}

static void test_large_bodies(void **state)
{
    (void)state;
    enum { BYTES = 5000001 };
    char *body = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++)
        body[i] = (char)(i * 2654435761u >> 13);
    for (int chunked = 0; chunked < 2; chunked++) {
        struct buf in, out;
        buf_init(&in);
        buf_init(&out);
        buf_printf(&in, "POST /echo HTTP/1.1\r\n" HOST CLOSE "%s", chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "");
        if (!chunked)
            buf_printf(&in, "Content-Length: %d\r\n\r\n", BYTES);
        for (size_t at = 0, n; at < BYTES; at += n) {
            n = MIN_OF((size_t)BYTES - at, (size_t)70000);
            if (chunked)
                buf_printf(&in, "%zx\r\n", n);
            buf_append(&in, body + at, n);
            if (chunked)
                buf_append_z(&in, "\r\n");
        }
        if (chunked)
            buf_append_z(&in, "0\r\n\r\n");
        int fd = tcp_connect(address);
        struct {
            int fd;
            const char *p;
            size_t n;
        } job = {fd, in.p, in.n};
        pthread_t t;
        pthread_create(&t, NULL, sender, &job);
        assert_true(recv_until(fd, &out, NULL));
        pthread_join(t, NULL);
        const char *end = strstr(buf_z(&out), "\r\n\r\n");
        assert_non_null(end);
        assert_int_equal(out.n - (size_t)(end + 4 - out.p), BYTES);
        assert_memory_equal(end + 4, body, BYTES);
        close(fd);
        buf_release(&in);
        buf_release(&out);
    }
    free(body);
}

/* gzip of "hello" by hand (RFC 1952, a stored block), in one request, and cut in the middle in another. */
static void test_compressed_body(void **state)
{
    (void)state;
    static const char gz[] = {0x1f,       (char)0x8b, 8,    0,          0,          0,   0,   0,   0,   3,
                              1,          5,          0,    (char)0xfa, (char)0xff, 'h', 'e', 'l', 'l', 'o',
                              (char)0x86, (char)0xa6, 0x10, 0x36,       5,          0,   0,   0};
    char in[512];
    int n = snprintf(in, sizeof in,
                     "POST /echo HTTP/1.1\r\n" HOST CLOSE "Content-Encoding: gzip\r\nContent-Length: %zu\r\n\r\n", sizeof gz);
    memcpy(in + n, gz, sizeof gz);
    talk_bytes(in, (size_t)n + sizeof gz, false,
               "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 5\r\n" DATE CLOSE "\r\nhello");
    n = snprintf(in, sizeof in, "POST /echo HTTP/1.1\r\n" HOST "Content-Encoding: gzip\r\nContent-Length: %zu\r\n\r\n",
                 sizeof gz - 1);
    memcpy(in + n, gz, sizeof gz);
    talk_bytes(in, (size_t)n + sizeof gz - 1, false,
               ERR("400 Bad Request", "the compressed body ends before its end mark", "1", "400", "79"));
}

static void test_stream(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b);
    int fd = tcp_connect(address);
    send_z(fd, "GET /stream?2 HTTP/1.1\r\n" HOST "\r\nGET /stream?0 HTTP/1.1\r\n" HOST "\r\nHEAD /stream?1 HTTP/1.1\r\n" HOST
               "\r\nGET /hi HTTP/1.1\r\n" HOST CLOSE "\r\n");
    assert_true(recv_until(fd, &b, NULL));
    mask(&b);
    struct buf want;
    buf_init(&want);
    const char *head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n" DATE "\r\n";
    buf_append_z(&want, head);
    for (int i = 0; i < 2; i++) {
        buf_append_z(&want, "3e8\r\n");
        for (int k = 0; k < 1000; k++)
            buf_append_c(&want, 's');
        buf_append_z(&want, "\r\n");
    }
    buf_printf(&want, "0\r\n\r\n%s0\r\n\r\n%s" OK("2") CLOSE "\r\nhi", head, head);
    assert_string_equal(buf_z(&b), buf_z(&want));
    close(fd);
    buf_release(&b);
    buf_release(&want);
}

/* Over HTTP/1.1 too a handler that asks for pieces gets them as they come, and its reply may flow meanwhile; trailers are left out, and the
 * connection ends behind a reply that has overtaken its request. */
static void test_pieces_of_http1(void **state)
{
    (void)state;
    const char *head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n" DATE CLOSE "\r\n";
    struct buf want, b;
    buf_init(&want);
    buf_init(&b);
    buf_printf(&want, "%s5\r\n[abc]\r\n4\r\n[de]\r\n2\r\n[]\r\n0\r\n\r\n", head);
    talk("POST /pieces HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", buf_z(&want));
    talk("GET /pieces HTTP/1.1\r\n" HOST CLOSE "\r\n",
         "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n" DATE CLOSE "\r\n2\r\n[]\r\n0\r\n\r\n");
    /* each piece is answered before the next is sent */
    int fd = tcp_connect(address);
    send_z(fd, "POST /pieces HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\n");
    for (int i = 0; i < 2; i++) {
        char piece[2] = {(char)('x' + i), 0}, answer[6] = {'[', piece[0], ']', '\r', '\n', 0};
        send_z(fd, piece);
        assert_true(recv_until(fd, &b, answer));
    }
    send_z(fd, "z");
    assert_true(recv_until(fd, &b, NULL));
    close(fd);
    buf_release(&want);
    buf_release(&b);
}

/* A handler that takes nothing stops its client at the window and the socket's buffers; when it gives back, all of it comes. */
static void test_pieces_push_back(void **state)
{
    (void)state;
    enum { TOTAL = 8 << 20 };
    static char big[1 << 16];
    struct buf b;
    buf_init(&b);
    int fd = tcp_connect(address);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    char head[128];
    snprintf(head, sizeof head, "POST /hold HTTP/1.1\r\n" HOST "Content-Length: %d\r\n\r\n", TOTAL);
    send_z(fd, head);
    size_t sent = 0;
    for (int quiet = 0; sent < TOTAL && quiet < 20;) {
        ssize_t n = send(fd, big, sizeof big < TOTAL - sent ? sizeof big : TOTAL - sent, MSG_NOSIGNAL);
        quiet = n > 0 ? 0 : quiet + 1;
        sent += n > 0 ? (size_t)n : 0;
        if (n <= 0)
            os_sleep_ns(10 * MS);
    }
    assert_in_range(held_bytes, 256 << 10, (256 << 10) + (64 << 10)); /* the window, and the read that passed it */
    size_t before = held_bytes;
    loop_post(holding->loop, &release_task);
    for (int i = 0; i < 500 && held_bytes < before + (256 << 10); i++)
        os_sleep_ns(10 * MS);
    assert_in_range(held_bytes - before, 256 << 10, (256 << 10) + (64 << 10)); /* another window's worth */
    close(fd);
    buf_release(&b);
}

/* A client that leaves in the middle of such a body is gone for its handler, once; so is one that sends garbage, and is told. */
static void test_pieces_broken_off(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b);
    int fd = tcp_connect(address);
    send_z(fd, "POST /hold HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\nabc");
    while (!holding)
        os_sleep_ns(MS);
    close(fd);
    while (gone != 1)
        os_sleep_ns(MS);
    fd = tcp_connect(address);
    send_z(fd, "POST /hold HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nnonsense\r\n");
    assert_true(recv_until(fd, &b, NULL));
    assert_true(str_starts(buf_str(&b), STR("HTTP/1.1 400 "))); /* in the place of the handler's reply */
    while (gone != 2)
        os_sleep_ns(MS);
    close(fd);
    buf_release(&b);
}

/* 100 MB to a client that doesn't read: the server stops producing; then everything arrives. */
static void test_stream_back_pressure(void **state)
{
    (void)state;
    int fd = tcp_connect(address);
    send_z(fd, "GET /stream?100000 HTTP/1.0\r\n\r\n");
    os_sleep_ns(100 * MS);
    uint64_t sent = counter(metrics, "inferd_http_sent_bytes_total{listener=\"test\"} ");
    assert_true(sent < 50000000); /* what the kernel's buffers take */
    size_t total = 0;
    char *buf = malloc(1 << 20);
    ssize_t n;
    while ((n = recv(fd, buf, 1 << 20, 0)) > 0)
        total += (size_t)n;
    assert_int_equal(n, 0);
    assert_in_range(total, 100000000, 100000400);
    free(buf);
    close(fd);
}

static void test_stream_abort(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b);
    int fd = tcp_connect(address);
    send_z(fd, "GET /abort HTTP/1.1\r\n" HOST "\r\n");
    recv_until(fd, &b, NULL);
    assert_null(strstr(buf_z(&b), "0\r\n\r\n")); /* no proper end */
    close(fd);
    buf_release(&b);
    WAIT_FOR(completed == 1);
    assert_int_equal(gone, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVED(test_keep_alive_and_close),
        SERVED(test_http10),
        SERVED(test_pipelining_in_order),
        OWN(test_pipeline_waits),
        SERVED(test_refusals),
        OWN(test_header_limits),
        SERVED(test_request_fields),
        SERVED(test_split_everywhere),
        SERVED(test_expect_continue),
        SERVED(test_large_bodies),
        SERVED(test_compressed_body),
        SERVED(test_stream),
        SERVED(test_stream_back_pressure),
        SERVED(test_stream_abort),
        SERVED(test_pieces_of_http1),
        SERVED(test_pieces_push_back),
        SERVED(test_pieces_broken_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
