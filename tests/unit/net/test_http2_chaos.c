/* Clients that do everything wrong in HTTP/2, against the handlers of chaos_server.h: many streams at once that are reset, stalled, cut short, sent
 * beyond their window, or mixed with frames that make no sense. */
#include "chaos_server.h"

#include "../wire/http2_frames.h"

static void add_request(struct buf *b, struct rand *rand, uint32_t id)
{
    static const char *const paths[] = {"/now", "/a",      "/b",        "/c",        "/stream",   "/abort",
                                        "/no",  "/pieces", "/pieces-k", "/pieces-e", "/pieces-x", "*"};
    static const char *const extras[] = {
        "", "", "", "", "content-length=7", "expect=100-continue", "content-encoding=gzip", "connection=x"};
    const char *path = paths[rand_below(rand, COUNT_OF(paths))], *extra = extras[rand_below(rand, COUNT_OF(extras))];
    bool body = rand_below(rand, 2);
    put_head(b, id, body ? "POST" : "GET", path, extra, !body);
    if (body && rand_below(rand, 3)) {
        size_t n = rand_below(rand, 3) ? rand_below(rand, 300) : rand_below(rand, 16384);
        char *part = calloc(1, n + 1);
        for (uint64_t k = 1 + rand_below(rand, 4); k-- > 0;)
            put_frame(b, F_DATA, k == 0 && rand_below(rand, 4) ? END_STREAM : 0, id, part, n);
        free(part);
    }
}

static void add_noise(struct buf *b, struct rand *rand, uint32_t last_id)
{
    uint32_t id = 1 + 2 * (uint32_t)rand_below(rand, last_id / 2 + 1);
    char random[16];
    switch (rand_below(rand, 12)) {
    case 0:
    case 1:
    case 2:
        put_u32_frame(b, F_RST, id, (uint32_t)rand_below(rand, 14));
        return;
    case 3:
    case 4:
        put_u32_frame(b, F_WINDOW, id, 1 + (uint32_t)rand_below(rand, 100000));
        return;
    case 5:
        put_u32_frame(b, F_WINDOW, 0, 1 + (uint32_t)rand_below(rand, 1000000));
        return;
    case 6:
        put_setting(b, 4, (uint32_t)rand_below(rand, 2) ? (uint32_t)rand_below(rand, 100000) : 0);
        return;
    case 7:
        put_data(b, id, "unasked", rand_below(rand, 2));
        return;
    case 8:
        put_head(b, id, "GET", "/now", "", rand_below(rand, 2));
        return;
    case 9:
        put_frame(b, F_PING, 0, 0, "12345678", 8);
        return;
    case 10:
        for (size_t i = 0; i < sizeof random; i++)
            random[i] = (char)rand_below(rand, 256);
        put_frame(b, (int)rand_below(rand, 12), (int)rand_below(rand, 64), id, random, rand_below(rand, sizeof random));
        return;
    default:
        put_frame(b, F_GOAWAY, 0, 0, "\0\0\0\0\0\0\0\0", 8);
    }
}

static void one_round(const char *address, struct rand *rand)
{
    struct buf b;
    uint32_t id = 1;
    buf_init(&b);
    put_hello(&b);
    if (rand_below(rand, 3))
        put_setting(&b, 4, (uint32_t)rand_below(rand, 1 << 20));
    for (uint64_t k = 1 + rand_below(rand, 30); k-- > 0; id += 2) {
        add_request(&b, rand, id);
        while (rand_below(rand, 3) == 0)
            add_noise(&b, rand, id);
    }
    if (rand_below(rand, 8) == 0) /* one byte of it is another one */
        b.p[rand_below(rand, b.n)] = (char)rand_below(rand, 256);
    size_t n = rand_below(rand, 3) ? b.n : rand_below(rand, b.n); /* or cut short */
    int fd = tcp_connect(address);
    for (size_t at = 0; at < n;) {
        size_t want = 1 + rand_below(rand, rand_below(rand, 2) ? 100 : 100000), piece = MIN_OF(n - at, want);
        ssize_t put = send(fd, b.p + at, piece, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno != EAGAIN)
            break;
        if (put < 0 && rand_below(rand, 10) == 0)
            break;
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
    l.max_connections = 5; /* some are refused */
    l.write_timeout_ns = 300 * MS;
    l.body_timeout_ns = 100 * MS;
    l.http2_max_streams = 20;
    l.http2_window_bytes = 65535;
    l.http2_glitches = 60;
    run_chaos((struct chaos){one_round, 400}, &l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chaos)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
