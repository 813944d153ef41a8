/* Tunnels of the HTTP server over real sockets: /tunnel accepts what asks for one and echoes; /refuse offers one and answers 403; /late begins when
 * the test says so. The 101 is RFC 9110's (15.2.2). */
#include "net_server.h"

#define UPGRADE "Upgrade: x\r\nConnection: upgrade\r\n"
#define SWITCHED                                                                                                               \
    "HTTP/1.1 101 Switching Protocols\r\nDate: *****************************\r\nConnection: Upgrade\r\nUpgrade: x\r\nX-A: "    \
    "b\r\n\r\n"

static _Atomic int drained_tunnels, ended_inputs;
static _Atomic(struct http_request *) late, up;
static struct loop_task begin_task, shut_task;
static _Atomic size_t unconsumed;
static size_t withheld;    /* until what was written has left; the loop's */
static _Atomic bool hoard; /* take, and give nothing back */

static void input(struct http_request *r, struct slice piece, bool last)
{
    if (piece.n && !hoard) {
        struct slab *copy = slab_create(piece.n);
        memcpy(copy->data, piece.p, piece.n);
        bool more = http_stream_write(r, (struct slice){copy->data, piece.n, copy});
        if (more)
            http_body_consumed(r, piece.n);
        else
            withheld += piece.n;
    }
    unconsumed += hoard ? piece.n : 0;
    if (!last)
        return;
    ended_inputs++;
    if (str_eqz(r->query, "linger"))
        return;
    http_stream_end(r);
}

static void writable(struct http_request *r)
{
    http_body_consumed(r, withheld);
    withheld = 0;
}

static void drain(struct http_request *r)
{
    drained_tunnels++;
    http_stream_write(r, slice_borrow("bye", 3));
    http_stream_end(r);
}

static const struct http_tunnel_events tunnel = {writable, input, drain};

static void begin(struct http_request *r)
{
    up = r;
    http_tunnel_begin(r, STR("x"), &(struct http_header){STR("X-A"), STR("b")}, 1, &tunnel);
}

static void begin_late(struct loop_task *t)
{
    (void)t;
    begin(atomic_exchange(&late, NULL));
}

static void shut_now(struct loop_task *t)
{
    (void)t;
    http_tunnel_shut(up);
}

static void tunnel_gone(struct http_request *r)
{
    gone++;
    if (r == late) {
        late = NULL;
        reply_text(r, 200, STR("nobody"));
    } else {
        http_stream_end(r);
    }
}

static int tunnel_headers(void *ctx, struct http_request *r, struct error *err)
{
    (void)ctx;
    r->on_gone = tunnel_gone;
    return http_header_get(r, "upgrade").p ? http_tunnel_offer(r, err) : 0;
}

static void tunnel_request(void *ctx, struct http_request *r)
{
    (void)ctx;
    if (!http_tunnel_offered(r))
        reply_text(r, 200, STR("plain"));
    else if (str_eqz(r->path, "/refuse"))
        reply_text(r, 403, STR("no"));
    else if (str_eqz(r->path, "/late"))
        late = r;
    else
        begin(r);
}

static void start_tunnels(uint32_t most)
{
    static const char *const listen_on[] = {"127.0.0.1:0"};
    struct error err;
    struct http_server_options o = {.listen = listen_on,
                                    .n_listen = 1,
                                    .threads = 1,
                                    .name = "test",
                                    .limits = defaults(),
                                    .handler = {tunnel_headers, tunnel_request, on_error, on_complete, NULL}};
    o.limits.max_tunnels = most;
    o.limits.write_timeout_ns = 300 * MS;
    gone = completed = drained_tunnels = ended_inputs = 0;
    unconsumed = withheld = 0;
    hoard = false;
    begin_task.run = begin_late;
    shut_task.run = shut_now;
    metrics = metrics_create();
    o.metrics = metrics;
    assert_int_equal(http_server_start(&o, &server, &err), 0);
    snprintf(address, sizeof address, "%s", http_server_address(server, 0));
}

static int setup(void **state)
{
    (void)state;
    start_tunnels(0);
    return 0;
}

static void expect(struct buf *b, const char *want)
{
    mask(b);
    assert_string_equal(buf_z(b), want);
    buf_release(b);
}

static int open_tunnel(const char *more)
{
    int fd = tcp_connect(address);
    struct buf b;
    char text[4096];
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\n" HOST UPGRADE "\r\n", more);
    buf_init(&b);
    send_z(fd, text);
    assert_true(recv_until(fd, &b, "\r\n\r\n"));
    expect(&b, SWITCHED);
    return fd;
}

/* What comes with the head, at every cut of the whole: it is the tunnel's, in order, and the end is the last of it. */
static void test_early_bytes_belong_to_it(void **state)
{
    static const char in[] = "GET /tunnel HTTP/1.1\r\n" HOST UPGRADE "\r\nGET /not HTTP/1.1\r\n\r\n";
    (void)state;
    for (size_t cut = 1; cut < sizeof in - 1; cut += 7) {
        struct buf b;
        buf_init(&b);
        int fd = tcp_connect(address);
        assert_int_equal(send(fd, in, cut, 0), (ssize_t)cut);
        os_sleep_ns(1 * MS);
        send_z(fd, in + cut);
        shutdown(fd, SHUT_WR);
        recv_until(fd, &b, NULL);
        expect(&b, SWITCHED "GET /not HTTP/1.1\r\n\r\n");
        close(fd);
    }
    WAIT_FOR(completed == ended_inputs);
    assert_int_equal(last_status, 101);
    assert_int_equal(gone, 0);
}

static void test_bytes_wait_for_a_late_beginning(void **state)
{
    struct buf b;
    (void)state;
    buf_init(&b);
    int fd = tcp_connect(address);
    send_z(fd, "GET /late HTTP/1.1\r\n" HOST UPGRADE "\r\nearly ");
    WAIT_FOR(late);
    send_z(fd, "GET /hi HTTP/1.1\r\n" HOST "\r\n");
    assert_false(wait_readable(fd, 30));
    loop_post(late->loop, &begin_task);
    assert_true(recv_until(fd, &b, "/hi HTTP/1.1\r\n" HOST "\r\n"));
    expect(&b, SWITCHED "early GET /hi HTTP/1.1\r\n" HOST "\r\n");
    close(fd);
    WAIT_FOR(completed == 1);
}

/* Refused: the answer, the end, and nothing of what follows is read as a request. */
static void test_refused_ends_the_connection(void **state)
{
    struct buf b;
    (void)state;
    buf_init(&b);
    int fd = tcp_connect(address);
    send_z(fd, "GET /refuse HTTP/1.1\r\n" HOST UPGRADE "\r\nGET /hi HTTP/1.1\r\n" HOST "\r\n");
    recv_until(fd, &b, NULL);
    expect(&b, "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nDate: "
               "*****************************\r\nConnection: close\r\n\r\nno");
    close(fd);
    WAIT_FOR(completed == 1);
    fd = tcp_connect(address);
    buf_init(&b);
    send_z(fd, "GET /hi HTTP/1.1\r\n" HOST "\r\nGET /tunnel HTTP/1.1\r\n" HOST UPGRADE "\r\nx");
    assert_true(recv_until(fd, &b, "\r\n\r\nx"));
    expect(&b, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nDate: "
               "*****************************\r\n\r\nplain" SWITCHED "x");
    close(fd);
    WAIT_FOR(completed == 3);
}

/* Our side ends first: the client reads the end, and is still heard. */
static void test_our_side_ends_first(void **state)
{
    struct buf b;
    (void)state;
    buf_init(&b);
    hoard = true;
    int fd = open_tunnel("/tunnel");
    loop_post(up->loop, &shut_task);
    assert_false(recv_until(fd, &b, "never"));
    assert_int_equal(b.n, 0);
    send_z(fd, "still heard");
    WAIT_FOR(unconsumed == 11);
    close(fd);
    WAIT_FOR(completed == 1);
    assert_int_equal(gone, 0);
    assert_int_equal(last_status, 101);
    buf_release(&b);
}

/* Who takes nothing stops its client at the window; who is not read is cut by the write timeout. */
static void test_both_ways_push_back(void **state)
{
    static const char block[65536];
    (void)state;
    hoard = true;
    int fd = open_tunnel("/tunnel");
    size_t sent = 0;
    for (uint64_t until = os_monotonic_ns() + 200 * MS; os_monotonic_ns() < until;) {
        ssize_t n = send(fd, block, sizeof block, MSG_DONTWAIT);
        sent += n > 0 ? (size_t)n : 0;
    }
    assert_true(unconsumed >= 256 << 10 && unconsumed <= (256 << 10) + (64 << 10));
    assert_true(sent > unconsumed && sent < 32 << 20);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)), 0);
    close(fd); /* a reset: an end would stand behind what is not read */
    WAIT_FOR(completed == 1);
    assert_int_equal(gone, 1);
    gone = 0;
    hoard = false;
    fd = open_tunnel("/tunnel");
    uint64_t start = os_monotonic_ns();
    while (!gone && os_monotonic_ns() - start < 20000 * MS)
        if (send(fd, block, sizeof block, MSG_DONTWAIT) < 0)
            os_sleep_ns(1 * MS);
    assert_int_equal(gone, 1);
    close(fd);
    WAIT_FOR(completed == 2);
}

static void test_as_many_as_may(void **state)
{
    struct buf b;
    (void)state;
    stop(state);
    start_tunnels(1);
    buf_init(&b);
    int fd = open_tunnel("/tunnel"), other = tcp_connect(address);
    send_z(other, "GET /tunnel HTTP/1.1\r\n" HOST UPGRADE "\r\n");
    recv_until(other, &b, NULL);
    assert_true(str_starts(buf_str(&b), STR("HTTP/1.1 503 ")));
    assert_non_null(strstr(buf_z(&b), "as many WebSockets as it may (1)"));
    buf_release(&b);
    close(other);
    close(fd);
    WAIT_FOR(completed == 2);
    close(open_tunnel("/tunnel"));
    WAIT_FOR(completed == 3);
}

/* Left while it waits for its beginning; and a stop that is told. */
static void test_leaving_and_draining(void **state)
{
    struct buf b;
    (void)state;
    int fd = tcp_connect(address);
    send_z(fd, "GET /late HTTP/1.1\r\n" HOST UPGRADE "\r\nwords");
    WAIT_FOR(late);
    close(fd);
    WAIT_FOR(gone == 1 && completed == 1);
    assert_int_equal(last_status, 499);
    fd = open_tunnel("/tunnel");
    http_server_drain(server);
    buf_init(&b);
    recv_until(fd, &b, NULL);
    expect(&b, "bye");
    assert_int_equal(drained_tunnels, 1);
    close(fd);
    WAIT_FOR(http_server_connections(server) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_early_bytes_belong_to_it, setup, stop),
                                       cmocka_unit_test_setup_teardown(test_bytes_wait_for_a_late_beginning, setup, stop),
                                       cmocka_unit_test_setup_teardown(test_refused_ends_the_connection, setup, stop),
                                       cmocka_unit_test_setup_teardown(test_our_side_ends_first, setup, stop),
                                       cmocka_unit_test_setup_teardown(test_both_ways_push_back, setup, stop),
                                       cmocka_unit_test_setup_teardown(test_as_many_as_may, setup, stop),
                                       cmocka_unit_test_setup_teardown(test_leaving_and_draining, setup, stop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
