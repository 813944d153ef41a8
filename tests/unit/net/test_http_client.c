/* Both clients, against a scripted server that sends exactly the bytes given, and against our own. */
#include "net_util.h"

#include "net/http_client.h"
#include "os/thread.h"

/* --- a server that plays a script: for each connection, wait for the request's end, send bytes, maybe close --- */

struct act {
    const char *answer; /* NULL: close without a word */
    size_t piece;       /* send so many bytes at a time; 0: all */
    bool close;
    bool same; /* on the connection of the act before */
};

static struct {
    int listen_fd;
    char address[64];
    const struct act *acts;
    size_t n;
    struct buf seen; /* all requests */
    struct os_thread thread;
} script;

static void play(void *arg)
{
    (void)arg;
    int fd = -1;
    for (size_t i = 0; i < script.n; i++) {
        const struct act *a = &script.acts[i];
        if (!a->same) {
            if (fd >= 0)
                close(fd);
            fd = accept(script.listen_fd, NULL, NULL);
        }
        struct buf in;
        buf_init(&in);
        recv_until(fd, &in, "\r\n\r\n");
        buf_append(&script.seen, in.p, in.n);
        buf_release(&in);
        size_t n = a->answer ? strlen(a->answer) : 0, piece = a->piece ? a->piece : n;
        for (size_t at = 0; at < n; at += piece) {
            send(fd, a->answer + at, MIN_OF(piece, n - at), MSG_NOSIGNAL);
            if (a->piece)
                os_sleep_ns(MS / 4);
        }
        if (a->close || !a->answer) {
            close(fd);
            fd = -1;
        }
    }
    if (fd < 0)
        return;
    char c;
    while (recv(fd, &c, 1, 0) > 0) /* until the client closes */
        ;
    close(fd);
}

static void script_start(const struct act *acts, size_t n)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t len = sizeof a;
    struct error err;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    script.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(script.listen_fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(script.listen_fd, 8), 0);
    getsockname(script.listen_fd, (struct sockaddr *)&a, &len);
    snprintf(script.address, sizeof script.address, "127.0.0.1:%u", ntohs(a.sin_port));
    script.acts = acts;
    script.n = n;
    buf_init(&script.seen);
    assert_int_equal(os_thread_start(&script.thread, "script", play, NULL, &err), 0);
}

static void script_end(void)
{
    os_thread_join(&script.thread);
    close(script.listen_fd);
}

static struct http_client *client(const char *url, const struct http_client_options *o)
{
    struct http_client *c;
    struct error err;
    if (http_client_create(url, o, &c, &err))
        fail_msg("%s", err.text);
    return c;
}

static void call(struct http_client *c, const char *method, const char *path, const char *body, int status, const char *answer)
{
    struct http_client_request r = {.method = method, .path = path, .body = str_of(body)};
    struct http_client_answer a;
    struct error err;
    if (http_client_call(c, &r, &a, &err))
        fail_msg("%s", err.text);
    assert_int_equal(a.status, status);
    assert_int_equal(a.body.n, strlen(answer));
    assert_memory_equal(a.body.n ? a.body.p : "", answer, a.body.n);
}

static int call_fails(struct http_client *c, struct error *err)
{
    struct http_client_request r = {.method = "GET", .path = "/"};
    struct http_client_answer a;
    return http_client_call(c, &r, &a, err);
}

static void test_targets(void **state)
{
    (void)state;
    struct http_target t;
    struct error err;
    assert_int_equal(http_target_parse("http://127.0.0.1:8000/base/", &t, &err), 0);
    assert_string_equal(t.authority, "127.0.0.1:8000");
    assert_string_equal(t.prefix, "/base");
    assert_int_equal(os_addr_port(&t.addr), 8000);
    assert_int_equal(http_target_parse("http://127.0.0.1", &t, &err), 0);
    assert_int_equal(os_addr_port(&t.addr), 80);
    assert_int_equal(http_target_parse("http://[::1]", &t, &err), 0);
    assert_int_equal(os_addr_port(&t.addr), 80);
    assert_int_equal(http_target_parse("[::1]:9", &t, &err), 0);
    assert_int_equal(os_addr_port(&t.addr), 9);
    assert_int_equal(http_target_parse("unix:/tmp/x", &t, &err), 0);
    assert_true(os_addr_is_unix(&t.addr));
    assert_int_equal(http_target_parse("https://[::1]/x", &t, &err), 0);
    assert_string_equal(t.host, "::1");
    assert_int_equal(os_addr_port(&t.addr), 443);
    assert_int_equal(http_target_parse("https://127.0.0.1:1", &t, &err), 0);
    assert_string_equal(t.host, "127.0.0.1");
    static const char *const bad[] = {"",          "127.0.0.1", "http://", "http://a b:1", "127.0.0.1:99999", "127.0.0.1:x",
                                      "ftp://h:1", "unix:"};
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        if (http_target_parse(bad[i], &t, &err) != STATUS_INVALID)
            fail_msg("accepted: %s", bad[i]);
    struct buf b;
    buf_init(&b);
    assert_int_equal(http_target_parse("http://127.0.0.1:8000/base", &t, &err), 0);
    struct http_header h = {STR("X"), STR("y")};
    assert_true(http_target_request(&t, &b, STR("POST"), STR("/v2"), &h, 1, STR("abc")));
    assert_string_equal(buf_z(&b), "POST /base/v2 HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nContent-Length: 3\r\nX: y\r\n\r\nabc");
    buf_clear(&b);
    h.value = STR("y\r\nZ: z");
    assert_false(http_target_request(&t, &b, STR("GET"), STR("/"), &h, 1, STR("")));
    assert_false(http_target_request(&t, &b, STR("GET"), STR("/a b"), NULL, 0, STR("")));
    assert_int_equal(b.n, 0);
    buf_release(&b);
}

static const struct act ANSWERS[] = {
    {.answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\n\r\nok"},
    {.answer = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 404 Not Found\r\nTransfer-Encoding: "
               "chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
     .same = true,
     .piece = 1},
    {.answer = "HTTP/1.1 204 No Content\r\n\r\n", .same = true},
    {.answer = "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", .same = true}, /* to a HEAD */
    {.answer = "HTTP/1.0 200 OK\r\n\r\nto the end", .same = true, .close = true},
    {.answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", .close = true},
    {.answer = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes"}, /* asked again: the connection before had been closed */
};

static void test_answers(void **state)
{
    (void)state;
    script_start(ANSWERS, COUNT_OF(ANSWERS));
    struct http_client *c = client(script.address, NULL);
    call(c, "GET", "/1", "", 200, "ok");
    call(c, "GET", "/2", "", 404, "no");
    call(c, "POST", "/3", "", 204, "");
    call(c, "HEAD", "/4", "", 200, "");
    call(c, "GET", "/5", "", 200, "to the end");
    call(c, "GET", "/6", "", 200, "");
    os_sleep_ns(20 * MS);
    call(c, "GET", "/7", "", 200, "yes");
    http_client_destroy(c);
    script_end();
    assert_non_null(strstr(buf_z(&script.seen), "POST /3 HTTP/1.1\r\nHost: 127.0.0.1:"));
    assert_non_null(strstr(buf_z(&script.seen), "Content-Length: 0\r\n\r\nHEAD /4"));
    buf_release(&script.seen);
}

static void test_failures(void **state)
{
    (void)state;
    static const struct act acts[] = {
        {.answer = NULL},
        {.answer = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", .close = true},
        {.answer = "SSH-2.0-x\r\n\r\n", .close = true},
        {.answer = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789"},
        {.answer = "HTTP/1.1 200 OK\r\n", .piece = 0},
    };
    script_start(acts, COUNT_OF(acts));
    struct http_client_options o = {.timeout_ns = 200 * MS, .max_body_bytes = 5};
    struct http_client *c = client(script.address, &o);
    struct error err;
    assert_int_equal(call_fails(c, &err), STATUS_IO);
    assert_int_equal(call_fails(c, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "in the middle"));
    assert_int_equal(call_fails(c, &err), STATUS_INVALID);
    assert_int_equal(call_fails(c, &err), STATUS_TOO_LARGE);
    uint64_t t0 = os_monotonic_ns();
    assert_int_equal(call_fails(c, &err), STATUS_TIMEOUT);
    assert_in_range(os_monotonic_ns() - t0, 190 * MS, 3000 * MS);
    script_end();
    assert_int_equal(call_fails(c, &err), STATUS_UNAVAILABLE); /* nobody listens now */
    assert_non_null(strstr(err.text, script.address));
    http_client_destroy(c);
    buf_release(&script.seen);
}

static int collect(void *ctx, struct str part)
{
    buf_append_str(ctx, part);
    return ((struct buf *)ctx)->n > 6 ? STATUS_CANCELLED : 0;
}

static void test_body_in_pieces(void **state)
{
    (void)state;
    static const struct act acts[] = {
        {.answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n", .piece = 10},
        {.answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nabcdefgh\r\n", .same = true},
    };
    script_start(acts, COUNT_OF(acts));
    struct http_client *c = client(script.address, NULL);
    struct buf b;
    buf_init(&b);
    struct http_client_request r = {.method = "GET", .path = "/", .on_body = collect, .ctx = &b};
    struct http_client_answer a;
    struct error err;
    assert_int_equal(http_client_call(c, &r, &a, &err), 0);
    assert_string_equal(buf_z(&b), "abcdef");
    assert_int_equal(a.body.n, 0);
    buf_clear(&b);
    assert_int_equal(http_client_call(c, &r, &a, &err), STATUS_CANCELLED);
    http_client_destroy(c);
    script_end();
    buf_release(&b);
    buf_release(&script.seen);
}

/* --- channels against our server --- */

static void serve(void *ctx, struct http_request *r)
{
    (void)ctx;
    if (str_eqz(r->path, "/stream")) {
        http_stream_begin(r, 200, "text/plain", NULL, 0, NULL);
        for (int i = 0; i < 10; i++)
            http_stream_write(r, slice_borrow("0123456789", 10));
        http_stream_end(r);
        return;
    }
    struct slice body = slice_borrow("hello", 5);
    http_reply(r, 200, "text/plain", NULL, 0, &body, 1);
}

enum { CHANNELS = 50, EACH = 40 };

static struct load {
    struct loop *loop;
    struct http_target target;
    struct buf request[2];
    struct http_channel ch[CHANNELS];
    uint32_t sent[CHANNELS], answers, bytes, failures, connects, open;
} load;

static void send_next(struct http_channel *ch)
{
    size_t i = (size_t)(ch - load.ch);
    if (load.sent[i] == EACH) {
        http_channel_close(ch);
        if (--load.open == 0)
            loop_stop(load.loop);
        return;
    }
    http_channel_send(ch, buf_str(&load.request[load.sent[i]++ % 2]));
}

static void load_connected(struct http_channel *ch)
{
    load.connects++;
    send_next(ch);
}

static void load_body(struct http_channel *ch, struct str part)
{
    (void)ch;
    load.bytes += (uint32_t)part.n;
}

static void load_done(struct http_channel *ch, int status)
{
    assert_int_equal(status, 200);
    assert_true(ch->first_byte_ns >= ch->sent_ns);
    load.answers++;
    if (http_channel_is_open(ch))
        send_next(ch);
    else
        http_channel_connect(ch, &load.target.addr);
}

static void load_failed(struct http_channel *ch, const struct error *err)
{
    (void)ch;
    load.failures++;
    assert_true(err->code < 0 && err->text[0]);
    if (--load.open == 0)
        loop_stop(load.loop);
}

static void run_load(const char *address)
{
    struct error err;
    load = (struct load){.open = CHANNELS};
    assert_int_equal(loop_create(&load.loop, &err), 0);
    assert_int_equal(http_target_parse(address, &load.target, &err), 0);
    for (int k = 0; k < 2; k++)
        assert_true(http_target_request(&load.target, &load.request[k], STR("GET"), k ? STR("/stream") : STR("/hello"), NULL, 0,
                                        STR("")));
    for (int i = 0; i < CHANNELS; i++) {
        http_channel_init(&load.ch[i], load.loop);
        load.ch[i].connected = load_connected;
        load.ch[i].body = load_body;
        load.ch[i].done = load_done;
        load.ch[i].failed = load_failed;
        http_channel_connect(&load.ch[i], &load.target.addr);
    }
    if (load.open)
        loop_run(load.loop);
    for (int i = 0; i < CHANNELS; i++)
        http_channel_release(&load.ch[i]);
    loop_destroy(load.loop);
    buf_release(&load.request[0]);
    buf_release(&load.request[1]);
}

static void test_channels(void **state)
{
    (void)state;
    struct http_server *s;
    struct error err;
    struct http_server_options o = {.listen = (const char *const[]){"127.0.0.1:0"},
                                    .n_listen = 1,
                                    .threads = 2,
                                    .name = "t",
                                    .handler = {.on_request = serve}};
    default_limits(&o.limits);
    o.limits.max_requests = 7; /* the server closes now and then */
    assert_int_equal(http_server_start(&o, &s, &err), 0);
    run_load(http_server_address(s, 0));
    assert_int_equal(load.failures, 0);
    assert_int_equal(load.answers, CHANNELS * EACH);
    assert_int_equal(load.bytes, CHANNELS * EACH / 2 * 105);
    assert_int_equal(load.connects, CHANNELS * 6); /* ceil(40 / 7) */
    http_server_stop(s);
    run_load("127.0.0.1:1"); /* nobody there */
    assert_int_equal(load.failures, CHANNELS);
}

static void test_channel_broken(void **state)
{
    (void)state;
    static const struct act acts[] = {{.answer = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", .close = true}};
    script_start(acts, 1);
    struct error err;
    load = (struct load){.open = 1};
    assert_int_equal(loop_create(&load.loop, &err), 0);
    assert_int_equal(http_target_parse(script.address, &load.target, &err), 0);
    assert_true(http_target_request(&load.target, &load.request[0], STR("GET"), STR("/"), NULL, 0, STR("")));
    http_channel_init(&load.ch[0], load.loop);
    load.ch[0].connected = load_connected;
    load.ch[0].done = load_done;
    load.ch[0].failed = load_failed;
    http_channel_connect(&load.ch[0], &load.target.addr);
    loop_run(load.loop);
    assert_int_equal(load.failures, 1);
    assert_int_equal(load.ch[0].body_bytes, 5);
    http_channel_release(&load.ch[0]);
    loop_destroy(load.loop);
    buf_release(&load.request[0]);
    script_end();
    buf_release(&script.seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_targets),        cmocka_unit_test(test_answers),  cmocka_unit_test(test_failures),
        cmocka_unit_test(test_body_in_pieces), cmocka_unit_test(test_channels), cmocka_unit_test(test_channel_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
