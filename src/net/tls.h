/* tls.h: TLS 1.2 and 1.3 for the server's connections (OpenSSL 3): certificates, and the bytes of one connection.
 *
 * struct tls_context   what all connections of the server share: certificates by name, client authority, ticket keys. Read from files,
 *                      read again when they change; connections that are up keep what they began with.
 * struct tls_client    the same for connections that we make.
 * struct tls_conn      one connection, over a socket that somebody else owns. Reads and writes look like those of os/sock.h.
 *
 * OpenSSL sits on the socket by a BIO of our own over os/sock.h: received bytes go straight from the kernel into its record buffer and
 * decrypted ones straight into the caller's, no SIGPIPE, no errno. Memory BIOs were rejected: they copy every byte once more each way
 * and gain nothing, since the loop asks for readiness only anyway.
 *
 * What is off, for good: 0-RTT (a replayed inference costs money), renegotiation, compression, TLS below 1.2, ALPN other than what is
 * offered. A resumed session is accepted only under the client authority and revocation list that it was verified with. */
#ifndef INFERD_NET_TLS_H
#define INFERD_NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "os/sock.h"

struct tls_context;
struct tls_conn;
struct metrics;

enum tls_client_auth { TLS_CLIENT_NONE, TLS_CLIENT_OPTIONAL, TLS_CLIENT_REQUIRED };

#define TLS_CERTIFICATES_MAX 32
#define TLS_NAMES_MAX        8

/* Strings and lists must live as long as the context. */
struct tls_options {
    const char *const
        *certificates; /* [n] PEM files: the certificate, then its chain; the first is for clients that name nobody known */
    const char *const *keys; /* [n_keys] PEM files in the same order, unencrypted; n_keys 0: the keys are in the files above */
    size_t n, n_keys;
    bool only_13;          /* TLS 1.3 alone */
    bool check_host;       /* tls_conn_serves looks at the host at all */
    bool h2;               /* offer HTTP/2 before HTTP/1.1 by ALPN */
    const char *client_ca; /* PEM file of authorities for client certificates; NULL: none are asked for */
    const char *crl;       /* PEM file with a list of each authority in a client's chain; NULL: revocation isn't checked */
    enum tls_client_auth client_auth;
    uint64_t ticket_rotation_ns; /* a session ticket is good for one to two of these */
    struct metrics *metrics;     /* may be NULL */
    struct logger *log;
};

/* Read the files. INVALID and others name the file and what is wrong with it. */
int tls_context_create(const struct tls_options *o, struct tls_context **out, struct error *err) MUST_CHECK;
/* No connection may use it any more. NULL is accepted. */
void tls_context_destroy(struct tls_context *c);
/* Turn ticket keys, look whether a file changed, refresh inferd_tls_certificate_days_left and warn of what ends soon. Cheap; about once a
 * second, from the thread that reloads. */
void tls_context_tick(struct tls_context *c, uint64_t now_ns);

/* The client's side: `ca_file`: PEM of the authorities to believe; NULL: the system's. */
struct tls_client;
int tls_client_create(const char *ca_file, struct tls_client **out, struct error *err) MUST_CHECK;
struct tls_client_options {
    const char *ca_file; /* as above */
    const char *certificate,
        *key;       /* PEM files of our own certificate with its chain, and its key; NULL: none is shown; key NULL: it is in
                                      the certificate's file */
    bool http1, h2; /* what is offered by ALPN, h2 first; neither: nothing is */
};
/* The files are read once, here. INVALID and others name the file and what is wrong with it. */
int tls_client_create_with(const struct tls_client_options *o, struct tls_client **out, struct error *err) MUST_CHECK;
void tls_client_destroy(struct tls_client *c); /* after its connections; NULL is accepted */

/* Where connections to one server leave the session that the next one resumes. Zeroed at first; outlives its connections. One thread. A
 * resumed session was verified when it began. */
struct tls_resume {
    void *session;
};
void tls_resume_clear(struct tls_resume *r);
/* On a connected `fd`, to a server that must prove to be `host` (a name or an address without brackets). NULL: out of memory. Then
 * tls_conn_handshake until it is 0. */
struct tls_conn *tls_client_connect(struct tls_client *c, int fd, const char *host);
/* The same, resuming the session in `resume` (may be NULL) and leaving the next one there. */
struct tls_conn *tls_client_resume(struct tls_client *c, int fd, const char *host, struct tls_resume *resume);
/* After the handshake: was HTTP/2 agreed on by ALPN? */
bool tls_conn_is_h2(const struct tls_conn *t);
/* After a read or write that gave IO: what the TLS library or the peer's alert says; a constant, NULL when nothing is known. */
const char *tls_conn_reason(const struct tls_conn *t);
/* Go on with the handshake: 0 it is over, AGAIN (writable, if tls_conn_wants_write, else readable), IO with the reason. */
int tls_conn_handshake(struct tls_conn *t, struct error *err) MUST_CHECK;
/* After a handshake that gave IO: what was wrong with the peer's certificate; OTHER: nothing, or there was none. */
enum tls_fault { TLS_FAULT_OTHER, TLS_FAULT_NAME, TLS_FAULT_EXPIRED, TLS_FAULT_UNTRUSTED };
enum tls_fault tls_conn_fault(const struct tls_conn *t);

/* Serve on `fd`, which stays the caller's. NULL: out of memory. The loop's thread, as all below. */
struct tls_conn *tls_conn_create(struct tls_context *c, int fd);
void tls_conn_destroy(struct tls_conn *t); /* sends nothing; NULL is accepted */

/* As os_sock_read: bytes, 0 at the peer's end, AGAIN, IO. Fills `p` as far as there is something, so fewer bytes than asked for mean
 * that nothing is left. Performs the handshake. */
ssize_t tls_conn_read(struct tls_conn *t, void *p, size_t n);
/* As os_sock_write. What was not taken must come again first, unchanged. Only once tls_conn_is_up. */
ssize_t tls_conn_write(struct tls_conn *t, const struct os_iov *v, size_t n);
/* Decrypted bytes wait that no readiness of the socket will announce. */
bool tls_conn_has_more(const struct tls_conn *t);
/* A read can't go on before the socket takes bytes. */
bool tls_conn_wants_write(const struct tls_conn *t);
/* The handshake is over. */
bool tls_conn_is_up(const struct tls_conn *t);
/* Tell the peer that no more will be written; best effort. */
void tls_conn_finish(struct tls_conn *t);
/* The handshake took too long: counted. */
void tls_conn_timed_out(struct tls_conn *t);

/* Whether `host` (a host with an optional port) is to be served on this connection: the certificate that SNI chose is good for it, or is the
 * one that would be chosen for it. Always, without check_host, when there is one certificate only, the client named no server, or `host` is empty. Cheap for the
 * host of the request before. */
bool tls_conn_serves(struct tls_conn *t, struct str host);

/* Subject alternative names of the verified client certificate, "DNS:a.b", "URI:spiffe://x", "email:a@b"; *n 0: there is none. Live as
 * long as the connection. Common names are not identities and are not given. */
const struct str *tls_conn_peer_names(const struct tls_conn *t, size_t *n);

#endif
