/* The HTTP server over real sockets, the life of connections: clients that leave, deadlines, limits, drain, stop, sockets. */
#include "net_server.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include "os/thread.h"

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
    assert_true(last_peer_local); /* the request outlives its connection, and so does what it says about it */
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
    l.header_timeout_ns = 300 * MS;
    l.body_timeout_ns = 1000 * MS;
    l.idle_timeout_ns = 400 * MS;
    l.min_body_rate = 100;
    start(&l);
    const char *late_head = ERR("408 Request Timeout", "the request's header section did not arrive in time", "0", "408", "86");
    const char *late_body = ERR("408 Request Timeout", "the request's body did not arrive in time", "1", "408", "76");
    uint64_t t0 = os_monotonic_ns();
    talk("GET / HTTP/1.1\r\nHos", late_head);
    assert_in_range(os_monotonic_ns() - t0, 295 * MS, 3000 * MS);
    talk("POST / HTTP/1.1\r\n" HOST "Content-Length: 9\r\n\r\nabc", late_body);
    talk("", ""); /* idle: closed without a word */
    talk("GET /hi HTTP/1.1\r\n" HOST "\r\n", OK("2") "\r\nhi");
    /* a good start doesn't pay for a standstill later */
    char start_of_body[2000];
    int head = snprintf(start_of_body, sizeof start_of_body, "POST / HTTP/1.1\r\n" HOST "Content-Length: 5000\r\n\r\n");
    memset(start_of_body + head, 'b', sizeof start_of_body - (size_t)head);
    t0 = os_monotonic_ns();
    talk_bytes(start_of_body, sizeof start_of_body, false, late_body);
    assert_in_range(os_monotonic_ns() - t0, 1990 * MS, 4900 * MS);
    /* slow, but much faster than the least rate: 2000 bytes in two seconds, through two timeouts */
    struct buf b;
    buf_init(&b);
    int fd = tcp_connect(address);
    send_z(fd, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2000\r\n\r\n");
    for (int i = 0; i < 100; i++) {
        send_z(fd, "01234567890123456789");
        os_sleep_ns(20 * MS);
    }
    assert_true(recv_until(fd, &b, "0123456789"));
    assert_non_null(strstr(buf_z(&b), "200 OK"));
    close(fd);
    buf_release(&b);
    assert_int_equal(counter(metrics, "inferd_http_limit_total{listener=\"test\",limit=\"header_time\"} "), 1);
    assert_int_equal(counter(metrics, "inferd_http_limit_total{listener=\"test\",limit=\"body_time\"} "), 2);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVED(test_half_close_gets_answer),
        SERVED(test_close_is_noticed),
        OWN(test_close_while_paused),
        SERVED(test_close_in_body),
        OWN(test_timeouts),
        OWN(test_write_timeout),
        OWN(test_connection_limit),
        OWN(test_max_requests),
        OWN(test_body_memory),
        SERVED(test_drain),
        SERVED(test_stop_with_request_out),
        OWN(test_unix_socket),
        OWN(test_addresses),
        SERVED(test_out_of_descriptors),
        OWN(test_announced_bodies_cost_nothing),
        OWN(test_many_connections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
