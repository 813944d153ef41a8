/* sock.c: sockets for sock.h. The one subtle thing is a unix socket's file: it stays behind when a server dies, and bind(2)
 * refuses to reuse it. We connect to it: refused means that nobody listens and the file is removed; accepted means in use. */
#include "os/sock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/status.h"
#include "base/str.h"
#include "os/file.h"
#include "os/sys_error.h"

static_assert(sizeof(struct sockaddr_un) <= sizeof((struct os_addr){0}.bytes), "every address fits");
static_assert(sizeof(struct os_iov) == sizeof(struct iovec) && offsetof(struct os_iov, n) == offsetof(struct iovec, iov_len),
              "os_iov is an iovec");

static struct sockaddr *sa(const struct os_addr *a)
{
    return (struct sockaddr *)(uintptr_t)a->bytes;
}
static int family(const struct os_addr *a)
{
    return a->len ? sa(a)->sa_family : AF_UNSPEC;
}

bool os_addr_is_unix(const struct os_addr *a)
{
    return family(a) == AF_UNIX;
}

bool os_addr_ip(const struct os_addr *a, uint8_t out[16])
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (sa(a)->sa_family == AF_INET6) {
        memcpy(out, &((const struct sockaddr_in6 *)a->bytes)->sin6_addr, 16);
        return true;
    }
    if (sa(a)->sa_family != AF_INET)
        return false;
    memcpy(out, mapped, sizeof mapped);
    memcpy(out + 12, &((const struct sockaddr_in *)a->bytes)->sin_addr, 4);
    return true;
}

uint16_t os_addr_port(const struct os_addr *a)
{
    if (family(a) == AF_INET)
        return ntohs(((struct sockaddr_in *)sa(a))->sin_port);
    return family(a) == AF_INET6 ? ntohs(((struct sockaddr_in6 *)sa(a))->sin6_port) : 0;
}

void os_addr_set_port(struct os_addr *a, uint16_t port)
{
    if (family(a) == AF_INET)
        ((struct sockaddr_in *)sa(a))->sin_port = htons(port);
    else if (family(a) == AF_INET6)
        ((struct sockaddr_in6 *)sa(a))->sin6_port = htons(port);
}

void os_addr_text(const struct os_addr *a, char out[OS_ADDR_TEXT_BYTES])
{
    char ip[INET6_ADDRSTRLEN] = "";
    if (family(a) == AF_INET) {
        inet_ntop(AF_INET, &((struct sockaddr_in *)sa(a))->sin_addr, ip, sizeof ip);
        snprintf(out, OS_ADDR_TEXT_BYTES, "%s:%u", ip, os_addr_port(a));
    } else if (family(a) == AF_INET6) {
        inet_ntop(AF_INET6, &((struct sockaddr_in6 *)sa(a))->sin6_addr, ip, sizeof ip);
        snprintf(out, OS_ADDR_TEXT_BYTES, "[%s]:%u", ip, os_addr_port(a));
    } else {
        const struct sockaddr_un *u = (const struct sockaddr_un *)sa(a);
        bool named = a->len > offsetof(struct sockaddr_un, sun_path) && u->sun_path[0];
        snprintf(out, OS_ADDR_TEXT_BYTES, named ? "unix:%.108s" : "unix", u->sun_path);
    }
}

static int parse_unix(const char *path, struct os_addr *out, struct error *err)
{
    struct sockaddr_un u = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof u.sun_path)
        return error_set(err, STATUS_INVALID, "a unix socket's path has 1 to %zu bytes, '%s' has %zu", sizeof u.sun_path - 1,
                         path, n);
    memcpy(u.sun_path, path, n);
    out->len = (uint32_t)(offsetof(struct sockaddr_un, sun_path) + n + 1);
    memcpy(out->bytes, &u, out->len);
    return 0;
}

static int resolve(const char *text, const char *host, const char *port, struct os_addr *out, size_t max, size_t *n,
                   struct error *err)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found;
    int rc = getaddrinfo(host, port, &hints, &found);
    if (rc)
        return error_set(err, STATUS_NOT_FOUND, "cannot find the address '%s': %s", text, gai_strerror(rc));
    for (const struct addrinfo *a = found; a && *n < max; a = a->ai_next, ++*n) {
        out[*n] = (struct os_addr){.len = (uint32_t)a->ai_addrlen};
        memcpy(out[*n].bytes, a->ai_addr, a->ai_addrlen);
    }
    freeaddrinfo(found);
    return 0;
}

int os_addr_parse(const char *text, struct os_addr *out, struct error *err)
{
    size_t n;
    return os_addr_resolve(text, out, 1, &n, err);
}

int os_addr_resolve(const char *text, struct os_addr *out, size_t max, size_t *n, struct error *err)
{
    *out = (struct os_addr){0};
    *n = 0;
    if (strncmp(text, "unix:", 5) == 0) {
        *n = 1;
        return parse_unix(text + 5, out, err);
    }
    const char *colon = strrchr(text, ':');
    char host[256];
    uint64_t port;
    size_t len = colon ? (size_t)(colon - text) : 0;
    bool bracketed = len > 1 && text[0] == '[' && text[len - 1] == ']';
    if (!colon || len == 0 || len >= sizeof host || !str_to_u64(str_of(colon + 1), &port) || port > 65535 ||
        (!bracketed && memchr(text, ':', len)))
        return error_set(err, STATUS_INVALID, "'%s' is no address: write HOST:PORT, [IPV6]:PORT or unix:/path", text);
    memcpy(host, text + bracketed, len - 2 * bracketed);
    host[len - 2 * bracketed] = 0;
    return resolve(text, strcmp(host, "*") == 0 ? "0.0.0.0" : host, colon + 1, out, max, n, err);
}

static void set_option(int fd, int level, int name, int value)
{
    WARN_ON(setsockopt(fd, level, name, &value, sizeof value) != 0);
}

static int make_socket(const struct os_addr *a, int *fd, struct error *err)
{
    *fd = socket(family(a), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return *fd < 0 ? os_error_set(err, errno, "cannot create a socket") : 0;
}

static int bind_to(int fd, const struct os_addr *a, struct error *err)
{
    char text[OS_ADDR_TEXT_BYTES];
    if (bind(fd, sa(a), a->len) == 0)
        return 0;
    int e = errno;
    os_addr_text(a, text);
    if (e == EADDRINUSE)
        return error_set(err, STATUS_CONFLICT, "the address %s is already in use", text);
    return os_error_set(err, e, "cannot bind to %s", text);
}

int os_sock_probe_free(const struct os_addr *a, struct error *err)
{
    int fd;
    if (os_addr_is_unix(a) || os_addr_port(a) == 0)
        return 0;
    int rc = make_socket(a, &fd, err);
    if (rc)
        return rc;
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (family(a) == AF_INET6)
        set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    rc = bind_to(fd, a, err);
    os_close(fd);
    return rc;
}

/* A socket file that nobody listens on goes; 0 when the path is free. */
static int clear_stale(const struct os_addr *a, struct error *err)
{
    const char *path = ((struct sockaddr_un *)sa(a))->sun_path;
    struct stat st;
    int fd;
    if (lstat(path, &st) != 0)
        return 0;
    if (!S_ISSOCK(st.st_mode))
        return error_set(err, STATUS_CONFLICT, "%s exists and is not a socket", path);
    int rc = make_socket(a, &fd, err);
    if (rc)
        return rc;
    bool dead = connect(fd, sa(a), a->len) != 0 && errno == ECONNREFUSED;
    os_close(fd);
    if (!dead)
        return error_set(err, STATUS_CONFLICT, "another process listens on unix:%s", path);
    unlink(path);
    return 0;
}

static int configure(int fd, const struct os_addr *a, bool share, struct error *err)
{
    if (os_addr_is_unix(a))
        return clear_stale(a, err);
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 60);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 20);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    if (family(a) == AF_INET6)
        set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (share)
        set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1);
    return 0;
}

int os_sock_listen(const struct os_addr *a, bool share, uint32_t unix_mode, int *fd, struct error *err)
{
    char text[OS_ADDR_TEXT_BYTES];
    int rc = make_socket(a, fd, err);
    if (rc)
        return rc;
    rc = configure(*fd, a, share, err);
    if (rc == 0)
        rc = bind_to(*fd, a, err);
    if (rc == 0) {
        os_addr_text(a, text);
        if (os_addr_is_unix(a) && chmod(((struct sockaddr_un *)sa(a))->sun_path, (mode_t)unix_mode) != 0)
            rc = os_error_set(err, errno, "cannot set the mode of %s", text);
        else if (listen(*fd, SOMAXCONN) != 0)
            rc = os_error_set(err, errno, "cannot listen on %s", text);
    }
    if (rc) {
        os_close(*fd);
        *fd = -1;
    }
    return rc;
}

int os_sock_local(int fd, struct os_addr *out, struct error *err)
{
    socklen_t len = sizeof out->bytes;
    *out = (struct os_addr){0};
    if (getsockname(fd, (struct sockaddr *)out->bytes, &len) != 0)
        return os_error_set(err, errno, "cannot read a socket's address");
    out->len = len;
    return 0;
}

void os_sock_unlink(const struct os_addr *a)
{
    if (os_addr_is_unix(a))
        unlink(((struct sockaddr_un *)sa(a))->sun_path);
}

int os_sock_accept(int fd, struct os_addr *peer)
{
    socklen_t len = sizeof peer->bytes;
    int got = accept4(fd, (struct sockaddr *)peer->bytes, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    peer->len = got < 0 ? 0 : (uint32_t)len;
    if (got >= 0)
        return got;
    switch (errno) {
    case EAGAIN:
        return STATUS_AGAIN;
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
        return STATUS_EXHAUSTED;
    default:
        return STATUS_IO;
    }
}

ssize_t os_sock_read(int fd, void *p, size_t n)
{
    ssize_t got;
    do
        got = recv(fd, p, n, 0);
    while (got < 0 && errno == EINTR);
    if (got >= 0)
        return got;
    return errno == EAGAIN ? STATUS_AGAIN : STATUS_IO;
}

ssize_t os_sock_write(int fd, const struct os_iov *v, size_t n)
{
    struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)v, .msg_iovlen = n};
    ssize_t put;
    do
        put = n == 1 ? send(fd, v->p, v->n, MSG_NOSIGNAL) : sendmsg(fd, &m, MSG_NOSIGNAL);
    while (put < 0 && errno == EINTR);
    if (put >= 0)
        return put;
    return errno == EAGAIN ? STATUS_AGAIN : STATUS_IO;
}

void os_sock_shutdown(int fd)
{
    shutdown(fd, SHUT_WR);
}

int os_sock_connect(const struct os_addr *a, int *fd, struct error *err)
{
    char text[OS_ADDR_TEXT_BYTES];
    int rc = make_socket(a, fd, err);
    if (rc)
        return rc;
    if (!os_addr_is_unix(a))
        set_option(*fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (connect(*fd, sa(a), a->len) == 0)
        return 0;
    if (errno == EINPROGRESS)
        return STATUS_AGAIN;
    int e = errno;
    os_close(*fd);
    *fd = -1;
    os_addr_text(a, text);
    return error_set(err, STATUS_UNAVAILABLE, "cannot connect to %s: %s", text, strerror(e));
}

int os_sock_connected(int fd, struct error *err)
{
    bool refused;
    return os_sock_connected_why(fd, &refused, err);
}

int os_sock_connected_why(int fd, bool *refused, struct error *err)
{
    int e = 0;
    socklen_t len = sizeof e;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) != 0)
        e = errno;
    *refused = e == ECONNREFUSED;
    return e ? error_set(err, STATUS_UNAVAILABLE, "cannot connect: %s", strerror(e)) : 0;
}

bool os_sock_wait(int fd, bool write, uint64_t timeout_ns)
{
    struct pollfd p = {.fd = fd, .events = write ? POLLOUT : POLLIN};
    struct timespec ts = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
    return ppoll(&p, 1, timeout_ns == UINT64_MAX ? NULL : &ts, NULL) > 0;
}

int os_fd_placeholder(void)
{
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}
