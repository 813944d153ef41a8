/* A keep-alive connection in its steady state allocates nothing: counted by standing in front of glibc's malloc. Under the
 * sanitizers, which own malloc, the test is empty. */
#include "net_util.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int main(void)
{
    return 0;
}
#else

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
void *aligned_alloc(size_t align, size_t n);

static _Atomic uint64_t calls;

void *malloc(size_t n)
{
    calls++;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size)
{
    calls++;
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n)
{
    calls++;
    return __libc_realloc(p, n);
}
void *aligned_alloc(size_t align, size_t n)
{
    calls++;
    return __libc_memalign(align, n);
}

static void on_request(void *ctx, struct http_request *r)
{
    (void)ctx;
    struct http_header h = {STR("X-Sum"), {arena_strdup(r->arena, STR("1")), 1}};
    struct slice body = slice_of(r->body.owner, 0, r->body.n);
    http_reply(r, 200, "application/octet-stream", &h, 1, &body, 1);
}

static uint64_t run(const char *address, size_t body_n, int n)
{
    char *in = __libc_malloc(body_n + 200), *out = __libc_malloc(body_n + 1000);
    int fd = tcp_connect(address);
    size_t in_n = (size_t)snprintf(in, 200, "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n", body_n);
    memset(in + in_n, 'b', body_n);
    in_n += body_n;
    uint64_t before = 0;
    for (int i = 0; i < n; i++) {
        if (i == n / 2)
            before = calls;
        send_all(fd, in, in_n);
        size_t got = 0;
        const char *end = NULL;
        while (!end || got < (size_t)(end + 4 - out) + body_n) {
            ssize_t k = recv(fd, out + got, body_n + 1000 - got, 0);
            assert_true(k > 0);
            got += (size_t)k;
            end = memmem(out, got, "\r\n\r\n", 4);
        }
    }
    uint64_t used = calls - before;
    close(fd);
    free(in);
    free(out);
    return used;
}

static void test_steady_state(void **state)
{
    (void)state;
    struct http_server *s;
    struct error err;
    struct http_server_options o = {.listen = (const char *const[]){"127.0.0.1:0"},
                                    .n_listen = 1,
                                    .threads = 1,
                                    .name = "t",
                                    .handler = {.on_request = on_request}};
    default_limits(&o.limits);
    assert_int_equal(http_server_start(&o, &s, &err), 0);
    assert_true(calls > 0); /* the counter counts */
    assert_int_equal(run(http_server_address(s, 0), 100, 1000), 0);
    assert_int_equal(run(http_server_address(s, 0), 50000, 200), 0);
    assert_int_equal(run(http_server_address(s, 0), 600000, 100), 0);
    http_server_stop(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steady_state)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
