/* The HTTP server over real sockets: what goes in and the bytes that must come out. */
#include "net_util.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include "os/thread.h"

/* --- a server with scripted handlers --- */

static struct http_server *server;
static struct metrics *metrics;
static char address[128];
static _Atomic int gone, completed, last_status, headers_seen;
static _Atomic(struct http_request *) parked; /* /park: answered by the test */
static struct loop_task answer_task;

static void reply_text(struct http_request *r, int status, struct str s)
{
    struct slice body = slice_borrow(s.p, s.n);
    http_reply(r, status, "text/plain", NULL, 0, &body, 1);
}

static void on_gone(struct http_request *r)
{
    gone++;
    if (str_eqz(r->path, "/park-answer-when-gone"))
        reply_text(r, 200, STR("late"));
    else if (str_eqz(r->path, "/stream"))
        http_stream_end(r);
}

static void answer_parked(struct loop_task *t)
{
    (void)t;
    struct http_request *r = atomic_exchange(&parked, NULL);
    reply_text(r, 200, STR("parked"));
}

/* /stream?N: N pieces of 1000 bytes, as fast as the client takes them */
static void stream_more(struct http_request *r)
{
    size_t *left = r->user;
    static const char piece[1000] = {[0 ... 999] = 's'};
    while (*left) {
        --*left;
        if (!http_stream_write(r, slice_borrow(piece, sizeof piece)))
            return;
    }
    http_stream_end(r);
}

static void stream(struct http_request *r)
{
    size_t *left = arena_alloc(r->arena, sizeof *left);
    uint64_t n;
    assert_true(str_to_u64(r->query, &n));
    *left = n;
    r->user = left;
    http_stream_begin(r, 200, "text/plain", NULL, 0, stream_more);
    stream_more(r);
}

static int on_headers(void *ctx, struct http_request *r, struct error *err)
{
    (void)ctx;
    headers_seen++;
    r->on_gone = on_gone;
    if (str_eqz(r->path, "/small"))
        r->body_limit_bytes = 10;
    if (str_eqz(r->path, "/forbidden"))
        return error_set(err, STATUS_FORBIDDEN, "not for you");
    return 0;
}

static void describe(struct http_request *r)
{
    struct buf b;
    buf_init(&b);
    buf_printf(&b, "%.*s %.*s?%.*s id=%.*s tp=%.*s n=%zu align=%zu peer=%d body=", STR_ARG(r->method_text), STR_ARG(r->path),
               STR_ARG(r->query), STR_ARG(r->request_id), STR_ARG(r->traceparent), r->n_headers,
               (size_t)(uintptr_t)r->body.p % 64, r->peer.n > 9 && memcmp(r->peer.p, "127.0.0.1", 9) == 0);
    buf_append(&b, r->body.p, r->body.n);
    char *copy = arena_alloc(r->arena, b.n);
    memcpy(copy, b.p, b.n);
    reply_text(r, 200, (struct str){copy, b.n});
    buf_release(&b);
}

static void on_request(void *ctx, struct http_request *r)
{
    (void)ctx;
    if (str_eqz(r->path, "/hi"))
        reply_text(r, 200, STR("hi"));
    else if (str_starts(r->path, STR("/park")))
        parked = r;
    else if (str_eqz(r->path, "/stream"))
        stream(r);
    else if (str_eqz(r->path, "/busy"))
        http_reply_error(r, STATUS_EXHAUSTED, "queue full", 7);
    else if (str_eqz(r->path, "/nothing"))
        http_reply(r, 204, NULL, NULL, 0, NULL, 0);
    else if (str_eqz(r->path, "/abort")) {
        http_stream_begin(r, 200, "text/plain", NULL, 0, NULL);
        http_stream_write(r, slice_borrow("part", 4));
        http_stream_abort(r);
    } else if (str_eqz(r->path, "/echo")) {
        struct slice body = r->body.owner ? slice_of(r->body.owner, 0, r->body.n) : slice_borrow("", 0);
        http_reply(r, 200, "application/octet-stream", NULL, 0, &body, 1);
    } else
        describe(r);
}

static const char *on_error(void *ctx, struct http_request *r, int status, const char *text, struct buf *body)
{
    (void)ctx;
    buf_printf(body, "{\"error\":\"%s\",\"known\":%d,\"status\":%d}", text, r != NULL, status);
    return "application/json";
}

static void on_complete(void *ctx, struct http_request *r, uint64_t now_ns)
{
    (void)ctx;
    (void)now_ns;
    last_status = r->reply_status;
    completed++;
}

static void start_on(const struct http_limits *limits, uint32_t threads, const char *const *listen_on, size_t n)
{
    struct error err;
    struct http_server_options o = {.listen = listen_on,
                                    .n_listen = n,
                                    .threads = threads,
                                    .name = "test",
                                    .server_header = NULL,
                                    .limits = *limits,
                                    .handler = {on_headers, on_request, on_error, on_complete, NULL}};
    gone = completed = headers_seen = 0;
    parked = NULL;
    answer_task.run = answer_parked;
    metrics = metrics_create();
    o.metrics = metrics;
    if (http_server_start(&o, &server, &err))
        fail_msg("%s", err.text);
    snprintf(address, sizeof address, "%s", http_server_address(server, 0));
}

static void start(const struct http_limits *limits)
{
    start_on(limits, 1, (const char *const[]){"127.0.0.1:0"}, 1);
}

static struct http_limits defaults(void)
{
    struct http_limits l;
    http_limits_default(&l);
    return l;
}

static int stop(void **state)
{
    (void)state;
    if (server)
        http_server_stop(server);
    metrics_destroy(metrics);
    server = NULL;
    metrics = NULL;
    return 0;
}

static int start_default(void **state)
{
    (void)state;
    struct http_limits l = defaults();
    start(&l);
    return 0;
}

/* --- helpers --- */

/* Replace the value of each Date header, and the request id, by stars. */
static void mask(struct buf *b)
{
    char *at = (char *)(uintptr_t)buf_z(b);
    while ((at = strstr(at, "Date: ")))
        for (at += 6; *at && *at != '\r'; at++)
            *at = '*';
}

#define DATE  "Date: *****************************\r\n"
#define OK(n) "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: " n "\r\n" DATE

/* Send `in`, close our writing half when `half`, and compare everything until the server closes. */
static void talk_bytes(const char *in, size_t n, bool half, const char *want)
{
    struct buf b;
    buf_init(&b);
    int fd = tcp_connect(address);
    send_all(fd, in, n);
    if (half)
        assert_int_equal(shutdown(fd, SHUT_WR), 0);
    if (!recv_until(fd, &b, NULL))
        fail_msg("not closed after: %s", buf_z(&b));
    mask(&b);
    assert_string_equal(buf_z(&b), want);
    close(fd);
    buf_release(&b);
}

static void talk(const char *in, const char *want)
{
    talk_bytes(in, strlen(in), false, want);
}

#define HOST  "Host: h\r\n"
#define CLOSE "Connection: close\r\n"

/* --- tests --- */

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

#define ERR(line, text, known, status, length)                                                                                 \
    "HTTP/1.1 " line "\r\nContent-Type: application/json\r\nContent-Length: " length "\r\n" DATE CLOSE                         \
    "\r\n{\"error\":\"" text "\",\"known\":" known ",\"status\":" status "}"

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
    /* an unusable id is replaced by 32 hex digits, an unusable traceparent is ignored */
    struct buf b;
    buf_init(&b);
    int fd = tcp_connect(address);
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

static void test_half_close_gets_answer(void **state)
{
    (void)state;
    const char *in = "GET /hi HTTP/1.1\r\n" HOST "\r\n";
    talk_bytes(in, strlen(in), true, OK("2") "\r\nhi");
    /* ... also when it takes a while, and the interim reply that asks whether we still listen is the only trace */
    struct buf b;
    buf_init(&b);
    int fd = tcp_connect(address);
    send_z(fd, "GET /park HTTP/1.1\r\n" HOST "\r\n");
    WAIT_FOR(parked);
    shutdown(fd, SHUT_WR);
    assert_true(recv_until(fd, &b, "\r\n\r\n"));
    assert_string_equal(buf_z(&b), "HTTP/1.1 100 Continue\r\n\r\n");
    assert_false(wait_readable(fd, 30));
    assert_int_equal(gone, 0);
    loop_post(parked->loop, &answer_task);
    assert_true(recv_until(fd, &b, NULL));
    mask(&b);
    assert_string_equal(buf_z(&b), "HTTP/1.1 100 Continue\r\n\r\n" OK("6") "\r\nparked");
    close(fd);
    buf_clear(&b);
    /* HTTP/1.0 is answered without the probe */
    fd = tcp_connect(address);
    send_z(fd, "GET /park HTTP/1.0\r\n\r\n");
    WAIT_FOR(parked);
    shutdown(fd, SHUT_WR);
    assert_false(wait_readable(fd, 30));
    loop_post(parked->loop, &answer_task);
    assert_true(recv_until(fd, &b, NULL));
    mask(&b);
    assert_string_equal(buf_z(&b), OK("6") CLOSE "\r\nparked");
    close(fd);
    buf_release(&b);
    assert_int_equal(gone, 0);
}

static void test_close_is_noticed(void **state)
{
    (void)state;
    int fd = tcp_connect(address);
    send_z(fd, "GET /park HTTP/1.1\r\n" HOST "\r\n");
    WAIT_FOR(parked);
    uint64_t t0 = os_monotonic_ns();
    close(fd);
    WAIT_FOR(gone == 1);
    assert_true(os_monotonic_ns() - t0 < 500 * MS);
    WAIT_FOR(http_server_connections(server) == 0);
    assert_int_equal(completed, 0); /* not before the handler answers */
    loop_post(parked->loop, &answer_task);
    WAIT_FOR(completed == 1);
    assert_int_equal(last_status, 499);
    /* a handler that answers from on_gone */
    fd = tcp_connect(address);
    send_z(fd, "GET /park-answer-when-gone HTTP/1.1\r\n" HOST "\r\n");
    WAIT_FOR(parked);
    close(fd);
    WAIT_FOR(completed == 2);
    assert_int_equal(gone, 2);
}

/* The pipeline is full, reading is paused, and there is unread input: the close is seen all the same. */
static void test_close_while_paused(void **state)
{
    (void)state;
    struct http_limits l = defaults();
    l.max_pipeline = 1;
    start(&l);
    int fd = tcp_connect(address);
    send_z(fd, "GET /park HTTP/1.1\r\n" HOST "\r\n");
    WAIT_FOR(parked);
    for (int i = 0; i < 1000; i++)
        send_z(fd, "GET /hi HTTP/1.1\r\n" HOST "\r\n");
    os_sleep_ns(20 * MS);
    assert_int_equal(gone, 0);
    close(fd);
    WAIT_FOR(gone == 1);
    loop_post(parked->loop, &answer_task);
    WAIT_FOR(completed == 1);
    WAIT_FOR(http_server_connections(server) == 0);
}

/* Gone in the middle of a body: on_gone and on_complete, no on_request. */
static void test_close_in_body(void **state)
{
    (void)state;
    int fd = tcp_connect(address);
    send_z(fd, "POST /x HTTP/1.1\r\n" HOST "Content-Length: 100\r\n\r\npart");
    WAIT_FOR(headers_seen == 1);
    close(fd);
    WAIT_FOR(completed == 1);
    assert_int_equal(gone, 1);
    assert_int_equal(last_status, 499);
}

static void test_timeouts(void **state)
{
    (void)state;
    struct http_limits l = defaults();
    l.header_timeout_ns = 60 * MS;
    l.body_timeout_ns = 80 * MS;
    l.idle_timeout_ns = 100 * MS;
    l.min_body_rate = 1000;
    start(&l);
    const char *late_head = ERR("408 Request Timeout", "the request's header section did not arrive in time", "0", "408", "86");
    const char *late_body = ERR("408 Request Timeout", "the request's body did not arrive in time", "1", "408", "76");
    uint64_t t0 = os_monotonic_ns();
    talk("GET / HTTP/1.1\r\nHos", late_head);
    assert_in_range(os_monotonic_ns() - t0, 55 * MS, 2000 * MS);
    talk("POST / HTTP/1.1\r\n" HOST "Content-Length: 9\r\n\r\nabc", late_body);
    talk("", ""); /* idle: closed without a word */
    talk("GET /hi HTTP/1.1\r\n" HOST "\r\n", OK("2") "\r\nhi");
    /* slow, but faster than the least rate: 400 bytes in 200 ms */
    struct buf b;
    buf_init(&b);
    int fd = tcp_connect(address);
    send_z(fd, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 400\r\n\r\n");
    for (int i = 0; i < 20; i++) {
        send_z(fd, "01234567890123456789");
        os_sleep_ns(10 * MS);
    }
    assert_true(recv_until(fd, &b, "0123456789"));
    assert_non_null(strstr(buf_z(&b), "200 OK"));
    close(fd);
    buf_release(&b);
    assert_int_equal(counter(metrics, "inferd_http_limit_total{listener=\"test\",limit=\"header_time\"} "), 1);
    assert_int_equal(counter(metrics, "inferd_http_limit_total{listener=\"test\",limit=\"body_time\"} "), 1);
    assert_int_equal(counter(metrics, "inferd_http_limit_total{listener=\"test\",limit=\"idle_time\"} "), 2);
}

static void test_write_timeout(void **state)
{
    (void)state;
    struct http_limits l = defaults();
    l.write_timeout_ns = 100 * MS;
    start(&l);
    int fd = tcp_connect(address);
    send_z(fd, "GET /stream?100000 HTTP/1.1\r\n" HOST "\r\n");
    WAIT_FOR(http_server_connections(server) == 1);
    WAIT_FOR(http_server_connections(server) == 0); /* we never read */
    WAIT_FOR(gone == 1);
    assert_int_equal(counter(metrics, "inferd_http_limit_total{listener=\"test\",limit=\"write_time\"} "), 1);
    close(fd);
}

static void test_connection_limit(void **state)
{
    (void)state;
    struct http_limits l = defaults();
    l.max_connections = 2;
    start(&l);
    int a = tcp_connect(address), c = tcp_connect(address);
    WAIT_FOR(http_server_connections(server) == 2);
    talk("GET /hi HTTP/1.1\r\n" HOST "\r\n",
         "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 90\r\n" DATE CLOSE
         "Retry-After: 1\r\n\r\n{\"error\":\"the server has as many connections as it may; try "
         "again\",\"known\":0,\"status\":503}");
    close(a);
    WAIT_FOR(http_server_connections(server) == 1);
    talk("GET /hi HTTP/1.1\r\n" HOST CLOSE "\r\n", OK("2") CLOSE "\r\nhi");
    assert_int_equal(counter(metrics, "inferd_http_limit_total{listener=\"test\",limit=\"connections\"} "), 1);
    close(c);
}

static void test_max_requests(void **state)
{
    (void)state;
    struct http_limits l = defaults();
    l.max_requests = 2;
    start(&l);
    talk("GET /hi HTTP/1.1\r\n" HOST "\r\nGET /hi HTTP/1.1\r\n" HOST "\r\nGET /hi HTTP/1.1\r\n" HOST "\r\n",
         OK("2") "\r\nhi" OK("2") CLOSE "\r\nhi");
    /* limits may change while serving */
    l.max_requests = 1;
    http_server_set_limits(server, &l);
    os_sleep_ns(20 * MS);
    talk("GET /hi HTTP/1.1\r\n" HOST "\r\n", OK("2") CLOSE "\r\nhi");
}

/* Bodies of all requests together are bounded. */
static void test_body_memory(void **state)
{
    (void)state;
    struct http_limits l = defaults();
    l.max_body_memory = 100000;
    start(&l);
    struct buf b;
    buf_init(&b);
    int fd = tcp_connect(address);
    send_z(fd, "POST /x HTTP/1.1\r\n" HOST "Content-Length: 60000\r\n\r\nx");
    WAIT_FOR(headers_seen == 1);
    os_sleep_ns(10 * MS);
    int fd2 = tcp_connect(address);
    send_z(fd2, "POST /x HTTP/1.1\r\n" HOST "Content-Length: 60000\r\n\r\nx");
    assert_true(recv_until(fd2, &b, NULL));
    assert_non_null(strstr(buf_z(&b), "503 Service Unavailable"));
    assert_non_null(strstr(buf_z(&b), "Retry-After: 1"));
    close(fd);
    close(fd2);
    buf_release(&b);
    assert_int_equal(counter(metrics, "inferd_http_limit_total{listener=\"test\",limit=\"body_memory\"} "), 1);
}

static void test_drain(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b);
    int idle = tcp_connect(address), busy = tcp_connect(address);
    send_z(idle, "GET /hi HTTP/1.1\r\n" HOST "\r\n");
    assert_true(recv_until(idle, &b, "hi"));
    buf_clear(&b);
    send_z(busy, "GET /park HTTP/1.1\r\n" HOST "\r\n");
    WAIT_FOR(parked);
    http_server_drain(server);
    assert_true(recv_until(idle, &b, NULL)); /* closed */
    assert_int_equal(b.n, 0);
    WAIT_FOR(http_server_connections(server) == 1);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)strtoul(strrchr(address, ':') + 1, NULL, 10))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_not_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0); /* nobody listens */
    close(fd);
    loop_post(parked->loop, &answer_task);
    assert_true(recv_until(busy, &b, NULL));
    mask(&b);
    assert_string_equal(buf_z(&b), OK("6") CLOSE "\r\nparked");
    close(idle);
    close(busy);
    buf_release(&b);
    WAIT_FOR(http_server_connections(server) == 0);
}

/* stop answers what is out as gone, and waits for what is held. */
static struct http_request *held;
static void release_later(void *arg)
{
    (void)arg;
    os_sleep_ns(50 * MS);
    loop_post(held->loop, &answer_task);
}

static void test_stop_with_request_out(void **state)
{
    (void)state;
    struct os_thread t;
    struct error err;
    int fd = tcp_connect(address);
    send_z(fd, "GET /park HTTP/1.1\r\n" HOST "\r\n");
    WAIT_FOR(parked);
    held = parked;
    assert_int_equal(os_thread_start(&t, "later", release_later, NULL, &err), 0);
    http_server_stop(server);
    server = NULL;
    os_thread_join(&t);
    assert_int_equal(gone, 1);
    assert_int_equal(completed, 1);
    close(fd);
}

static void test_unix_socket(void **state)
{
    (void)state;
    char path[] = "/tmp/inferd-test-XXXXXX", text[128], file[64];
    assert_non_null(mkdtemp(path));
    snprintf(file, sizeof file, "%s/s", path);
    snprintf(text, sizeof text, "unix:%s", file);
    struct http_limits l = defaults();
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, file, strlen(file));
    /* a stale socket file is replaced */
    int stale = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(stale, (struct sockaddr *)&a, sizeof a), 0);
    close(stale);
    start_on(&l, 2, (const char *const[]){text}, 1);
    struct stat st;
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
    /* a live one is not, and stays */
    struct http_server *second;
    struct error err;
    struct http_server_options o = {
        .listen = (const char *const[]){text}, .n_listen = 1, .limits = l, .handler = {.on_request = on_request}};
    assert_int_equal(http_server_start(&o, &second, &err), STATUS_CONFLICT);
    assert_int_equal(stat(file, &st), 0);
    struct buf b;
    buf_init(&b);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    send_z(fd, "GET /park HTTP/1.1\r\n" HOST "\r\n");
    WAIT_FOR(parked);
    shutdown(fd, SHUT_WR);
    assert_false(wait_readable(fd, 30)); /* no probe needed here */
    loop_post(parked->loop, &answer_task);
    assert_true(recv_until(fd, &b, NULL));
    mask(&b);
    assert_string_equal(buf_z(&b), OK("6") "\r\nparked");
    close(fd);
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    send_z(fd, "GET /park HTTP/1.1\r\n" HOST "\r\n");
    WAIT_FOR(parked);
    close(fd);
    WAIT_FOR(gone == 1);
    loop_post(parked->loop, &answer_task);
    buf_release(&b);
    http_server_stop(server);
    server = NULL;
    assert_int_not_equal(stat(file, &st), 0); /* removed */
    rmdir(path);
}

static void test_addresses(void **state)
{
    (void)state;
    struct http_limits l = defaults();
    start_on(&l, 2, (const char *const[]){"127.0.0.1:0", "[::1]:0"}, 2);
    assert_true(strncmp(http_server_address(server, 1), "[::1]:", 6) == 0);
    talk("GET /hi HTTP/1.1\r\n" HOST CLOSE "\r\n", OK("2") CLOSE "\r\nhi");
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    a.sin6_port = htons((uint16_t)strtoul(http_server_address(server, 1) + 6, NULL, 10));
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    struct buf b;
    buf_init(&b);
    send_z(fd, "GET /hi HTTP/1.1\r\n" HOST CLOSE "\r\n");
    assert_true(recv_until(fd, &b, NULL));
    close(fd);
    buf_release(&b);
    /* the port is taken, although SO_REUSEPORT would let us in */
    struct http_server *second;
    struct error err;
    struct http_server_options o = {.listen = (const char *const[]){address},
                                    .n_listen = 1,
                                    .threads = 2,
                                    .limits = l,
                                    .handler = {.on_request = on_request}};
    assert_int_equal(http_server_start(&o, &second, &err), STATUS_CONFLICT);
    assert_non_null(strstr(err.text, address));
    o.listen = (const char *const[]){"nonsense"};
    assert_int_equal(http_server_start(&o, &second, &err), STATUS_INVALID);
}

/* --- descriptors run out --- */

static int filler[4096];
static size_t n_filler;
static struct rlimit old_limit;

static void fill_descriptors(void)
{
    struct rlimit l;
    getrlimit(RLIMIT_NOFILE, &old_limit);
    l = old_limit;
    l.rlim_cur = 256;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &l), 0);
    n_filler = 0;
    int fd;
    while ((fd = dup(0)) >= 0)
        filler[n_filler++] = fd;
    assert_int_equal(errno, EMFILE);
}

static void free_descriptors(void)
{
    while (n_filler)
        close(filler[--n_filler]);
    setrlimit(RLIMIT_NOFILE, &old_limit);
}

static void connect_fd(int fd)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)strtoul(strrchr(address, ':') + 1, NULL, 10))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
}

static void test_out_of_descriptors(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b);
    int idle = tcp_connect(address), second = socket(AF_INET, SOCK_STREAM, 0), third = socket(AF_INET, SOCK_STREAM, 0);
    send_z(idle, "GET /hi HTTP/1.1\r\n" HOST "\r\n");
    assert_true(recv_until(idle, &b, "hi"));
    fill_descriptors();
    /* an idle connection gives way to a new one */
    connect_fd(second);
    send_z(second, "GET /park HTTP/1.1\r\n" HOST "\r\n");
    WAIT_FOR(parked);
    assert_true(recv_until(idle, &b, NULL));
    assert_true(counter(metrics, "inferd_http_limit_total{listener=\"test\",limit=\"descriptors\"} ") >= 1);
    /* nobody is idle: the next one is told at once, and accepting pauses */
    connect_fd(third);
    assert_true(wait_readable(third, 5000));
    char c;
    assert_int_equal(recv(third, &c, 1, 0), 0);
    free_descriptors();
    /* ... and recovers */
    talk("GET /hi HTTP/1.1\r\n" HOST CLOSE "\r\n", OK("2") CLOSE "\r\nhi");
    loop_post(parked->loop, &answer_task);
    assert_true(recv_until(second, &b, "parked"));
    close(idle);
    close(second);
    close(third);
    buf_release(&b);
}

/* A hundred clients announce 64 MB each and send a byte: under 80 KiB each. */
static void test_announced_bodies_cost_nothing(void **state)
{
    (void)state;
    enum { N = 100 };
    int fd[N];
    struct http_limits l = defaults();
    l.max_body_memory = N * 80 << 10;
    start(&l);
    for (int i = 0; i < N; i++) {
        fd[i] = tcp_connect(address);
        send_z(fd[i], "POST /x HTTP/1.1\r\n" HOST "Content-Length: 67108864\r\n\r\nx");
    }
    WAIT_FOR(headers_seen == N);
    for (int i = 0; i < N; i++) {
        assert_false(wait_readable(fd[i], 0)); /* nobody was refused */
        close(fd[i]);
    }
    WAIT_FOR(completed == N);
    assert_int_equal(counter(metrics, "inferd_http_limit_total{listener=\"test\",limit=\"body_memory\"} "), 0);
}

/* Two workers, many connections, requests answered from another thread: for the thread sanitizer. */
static void *hammer(void *arg)
{
    (void)arg;
    for (int i = 0; i < 50; i++) {
        struct buf b;
        buf_init(&b);
        int fd = tcp_connect(address);
        send_z(fd, "GET /hi HTTP/1.1\r\n" HOST "\r\nPOST /echo HTTP/1.1\r\n" HOST
                   "Content-Length: 3\r\n\r\nabcGET /stream?3 HTTP/1.1\r\n" HOST CLOSE "\r\n");
        assert_true(recv_until(fd, &b, NULL));
        assert_true(b.n > 3000);
        close(fd);
        buf_release(&b);
    }
    return NULL;
}

static void test_many_connections(void **state)
{
    (void)state;
    struct http_limits l = defaults();
    start_on(&l, 2, (const char *const[]){"127.0.0.1:0"}, 1);
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, hammer, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    WAIT_FOR(completed == 600);
    WAIT_FOR(http_server_connections(server) == 0);
}

#define T(f)   cmocka_unit_test_setup_teardown(f, start_default, stop)
#define OWN(f) cmocka_unit_test_teardown(f, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_keep_alive_and_close),
        T(test_http10),
        T(test_pipelining_in_order),
        OWN(test_pipeline_waits),
        T(test_refusals),
        OWN(test_header_limits),
        T(test_request_fields),
        T(test_split_everywhere),
        T(test_expect_continue),
        T(test_large_bodies),
        T(test_compressed_body),
        T(test_stream),
        T(test_stream_back_pressure),
        T(test_stream_abort),
        T(test_half_close_gets_answer),
        T(test_close_is_noticed),
        OWN(test_close_while_paused),
        T(test_close_in_body),
        OWN(test_timeouts),
        OWN(test_write_timeout),
        OWN(test_connection_limit),
        OWN(test_max_requests),
        OWN(test_body_memory),
        T(test_drain),
        T(test_stop_with_request_out),
        OWN(test_unix_socket),
        OWN(test_addresses),
        OWN(test_many_connections),
        T(test_out_of_descriptors),
        OWN(test_announced_bodies_cost_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
