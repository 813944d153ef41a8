/* sock.h: stream sockets (TCP over IPv4 and IPv6, unix) without errno: numbers of bytes, or a negative status.
 *
 * Every socket is non-blocking and close-on-exec, and writing to a closed one is an error instead of SIGPIPE. TCP_NODELAY and
 * keep-alive probes are set on listeners and inherited by what they accept (Linux), so that accepting costs one call. Any thread. */
#ifndef INFERD_OS_SOCK_H
#define INFERD_OS_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct os_addr {
    uint32_t len;
    _Alignas(8) unsigned char bytes[112]; /* a struct sockaddr_in, _in6 or _un */
};

#define OS_ADDR_TEXT_BYTES 128

/* "127.0.0.1:8000", "[::1]:8000", "localhost:8000", "*:8000" (every IPv4 address), "[::]:8000" (every address), or
 * "unix:/run/x.sock". Names other than numbers go to the resolver, which may block. STATUS_INVALID, STATUS_NOT_FOUND (name). */
int os_addr_parse(const char *text, struct os_addr *out, struct error *err) MUST_CHECK;
/* Every address that `text` names, at most `max`. As os_addr_parse otherwise. */
int os_addr_resolve(const char *text, struct os_addr *out, size_t max, size_t *n, struct error *err) MUST_CHECK;
/* The form above; "unix" for a peer that has no name. */
void os_addr_text(const struct os_addr *a, char out[OS_ADDR_TEXT_BYTES]);
bool os_addr_is_unix(const struct os_addr *a);
/* The address as 16 bytes, IPv4 as ::ffff:a.b.c.d; false for unix. */
bool os_addr_ip(const struct os_addr *a, uint8_t out[16]);
/* 0 for unix. */
uint16_t os_addr_port(const struct os_addr *a);
void os_addr_set_port(struct os_addr *a, uint16_t port);

/* Bind and listen. `share`: SO_REUSEPORT, for more sockets on the same address in this process (TCP only). A unix socket's file
 * that nobody listens on any more is replaced; its mode becomes `unix_mode`. STATUS_CONFLICT when somebody listens there. */
int os_sock_listen(const struct os_addr *a, bool share, uint32_t unix_mode, int *fd, struct error *err) MUST_CHECK;
/* Ask whether an address is free although another process may have asked to share it: binds without sharing, and lets go. */
int os_sock_probe_free(const struct os_addr *a, struct error *err) MUST_CHECK;
int os_sock_local(int fd, struct os_addr *out, struct error *err) MUST_CHECK;
void os_sock_unlink(const struct os_addr *a); /* remove a unix socket's file; nothing for others */

/* The accepted descriptor; STATUS_AGAIN nobody waits, STATUS_EXHAUSTED no descriptor or memory, STATUS_IO this one is lost. */
int os_sock_accept(int fd, struct os_addr *peer);

/* Bytes read, 0 at the end; STATUS_AGAIN, STATUS_IO. */
ssize_t os_sock_read(int fd, void *p, size_t n);

/* Same layout as struct iovec. */
struct os_iov {
    const void *p;
    size_t n;
};
#define OS_IOV_MAX 64
/* Bytes written, maybe fewer than given; STATUS_AGAIN, STATUS_IO. `n` <= OS_IOV_MAX. */
ssize_t os_sock_write(int fd, const struct os_iov *v, size_t n);
/* No more will be written: the peer reads the end. */
void os_sock_shutdown(int fd);

/* Start to connect. 0 connected, STATUS_AGAIN under way (writable when decided: ask os_sock_connected), else failed. */
int os_sock_connect(const struct os_addr *a, int *fd, struct error *err) MUST_CHECK;
int os_sock_connected(int fd, struct error *err) MUST_CHECK;
/* The same; *refused: the other machine says that nobody listens. */
int os_sock_connected_why(int fd, bool *refused, struct error *err) MUST_CHECK;
/* Block until readable / writable or `timeout_ns` passed (false). For blocking clients. */
bool os_sock_wait(int fd, bool write, uint64_t timeout_ns);

/* A descriptor that only holds a place in the table, to be given up when the table is full; -1 when there is none. */
int os_fd_placeholder(void);

#endif
