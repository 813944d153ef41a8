/* net_util.h: what the server tests share: a test server with scripted handlers, and raw blocking sockets. */
#ifndef TESTS_NET_UTIL_H
#define TESTS_NET_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <poll.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/size.h"
#include "base/status.h"
#include "limits.h"
#include "net/http.h"
#include "obs/metrics.h"
#include "os/clock.h"

#define MS 1000000ull

static inline int tcp_connect(const char *address)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)strtoul(strrchr(address, ':') + 1, NULL, 10))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static inline void send_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t put = send(fd, p, n, MSG_NOSIGNAL);
        assert_true(put > 0);
        p += put;
        n -= (size_t)put;
    }
}

static inline void send_z(int fd, const char *z)
{
    send_all(fd, z, strlen(z));
}

static inline bool wait_readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, ms) > 0;
}

/* Append what comes until `b` ends in `end`, or (end NULL) until the peer closes. False: 5 s passed, or the wrong end. */
static inline bool recv_until(int fd, struct buf *b, const char *end)
{
    for (;;) {
        if (end && b->n >= strlen(end) && memcmp(b->p + b->n - strlen(end), end, strlen(end)) == 0)
            return true;
        if (!wait_readable(fd, 5000))
            return false;
        char *at = buf_reserve(b, 65536);
        ssize_t n = recv(fd, at, 65536, 0);
        if (n <= 0)
            return !end && n == 0;
        b->n += (size_t)n;
    }
}

/* The value of a counter with these label values, or UINT64_MAX. */
static inline uint64_t counter(struct metrics *m, const char *line_start)
{
    struct buf b;
    buf_init(&b);
    metrics_render(m, &b);
    const char *at = strstr(buf_z(&b), line_start);
    uint64_t v = at ? strtoull(at + strlen(line_start), NULL, 10) : UINT64_MAX;
    buf_release(&b);
    return v;
}

/* Poll a condition of another thread for up to 5 s. */
#define WAIT_FOR(cond)                                                                                                         \
    do {                                                                                                                       \
        uint64_t until_ = os_monotonic_ns() + 5000 * MS;                                                                       \
        while (!(cond) && os_monotonic_ns() < until_)                                                                          \
            os_sleep_ns(MS);                                                                                                   \
        assert_true(cond);                                                                                                     \
    } while (0)

#endif
