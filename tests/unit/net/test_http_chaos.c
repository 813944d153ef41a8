/* Clients that do everything wrong in HTTP/1.x, against the handlers of chaos_server.h. */
#include "chaos_server.h"

static void add_request(struct buf *b, struct rand *rand)
{
    static const char *const paths[] = {"/now", "/now", "/a", "/b", "/c", "/stream", "/abort", "/no", "/%41?x", "/pieces"};
    const char *path = paths[rand_below(rand, COUNT_OF(paths))];
    size_t n = rand_below(rand, 3) ? rand_below(rand, 300) : rand_below(rand, 200000);
    const char *extra = rand_below(rand, 8) ? "" : rand_below(rand, 2) ? "Connection: close\r\n" : "Expect: 100-continue\r\n";
    switch (rand_below(rand, 4)) {
    case 0:
        buf_printf(b, "GET %s HTTP/1.%d\r\nHost: h\r\n%s\r\n", path, (int)rand_below(rand, 2), extra);
        return;
    case 1:
        buf_printf(b, "POST %s HTTP/1.1\r\nHost: h\r\n%sTransfer-Encoding: chunked\r\n\r\n", path, extra);
        for (size_t k = rand_below(rand, 5); k-- > 0 && n;) {
            buf_printf(b, "%zx\r\n", n);
            memset(buf_reserve(b, n), 'c', n);
            b->n += n;
            buf_append_z(b, "\r\n");
        }
        buf_append_z(b, "0\r\n\r\n");
        return;
    default:
        buf_printf(b, "POST %s HTTP/1.1\r\nHost: h\r\n%sContent-Length: %zu\r\n\r\n", path, extra, n);
        memset(buf_reserve(b, n + 1), 'l', n);
        b->n += n;
    }
}

static void one_round(const char *address, struct rand *rand)
{
    struct buf b;
    buf_init(&b);
    for (uint64_t k = 1 + rand_below(rand, 5); k-- > 0;)
        add_request(&b, rand);
    if (rand_below(rand, 6) == 0) /* noise */
        b.p[rand_below(rand, b.n)] = (char)rand_below(rand, 256);
    size_t n = rand_below(rand, 3) ? b.n : rand_below(rand, b.n); /* or cut short */
    int fd = tcp_connect(address);
    for (size_t at = 0; at < n;) {
        size_t want = 1 + rand_below(rand, rand_below(rand, 2) ? 100 : 100000), piece = MIN_OF(n - at, want);
        ssize_t put = send(fd, b.p + at, piece, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno != EAGAIN)
            break;
        if (put < 0 && rand_below(rand, 10) == 0)
            break; /* the server doesn't take more; lose patience now and then */
        at += put > 0 ? (size_t)put : 0;
        sip(fd, rand);
    }
    end_badly(fd, rand);
    buf_release(&b);
}

static void test_chaos(void **state)
{
    (void)state;
    struct http_limits l;
    default_limits(&l);
    l.max_pipeline = 3;
    l.max_connections = 5; /* some are refused */
    l.write_timeout_ns = 300 * MS;
    run_chaos((struct chaos){one_round, 600}, &l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chaos)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
