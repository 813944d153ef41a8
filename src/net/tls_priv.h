/* tls_priv.h: private to net/tls_*.c: what a context shares with its connections.
 *
 *   tls_context --lock--> tls_set (refcounted, immutable) 1--n SSL_CTX, one a certificate
 *
 * A reload swaps the set; a connection holds the one that it began with until it ends. */
#ifndef INFERD_NET_TLS_PRIV_H
#define INFERD_NET_TLS_PRIV_H

#include <stdatomic.h>

#include <openssl/ssl.h>

#include "net/tls.h"
#include "obs/metrics.h"
#include "os/thread.h"

enum tls_outcome { TLS_FULL, TLS_RESUMED, TLS_FAILED, TLS_TIMEOUT, TLS_OUTCOMES };

struct tls_set {
    _Atomic uint32_t refs;
    size_t n;
    SSL_CTX *ctx[TLS_CERTIFICATES_MAX];
};

#define TLS_TICKET_KEYS 3

/* A ticket names the key it is sealed with; one of an older generation is read and replaced. */
struct tls_ticket_key {
    uint8_t name[16], aes[32], mac[32];
};

struct tls_file {
    const char *path;
    uint64_t size_bytes, mtime_ns, inode;
};

#define TLS_FILES_MAX (2 * TLS_CERTIFICATES_MAX + 2)

struct tls_context {
    struct tls_options o;
    BIO_METHOD *method;   /* OpenSSL over os/sock.h */
    struct os_mutex lock; /* guards set, tickets */
    struct tls_set *set;
    struct tls_ticket_key tickets[TLS_TICKET_KEYS]; /* newest first */
    /* the reloading thread's own */
    struct tls_file files[TLS_FILES_MAX];
    size_t n_files;
    uint64_t next_rotation_ns, next_look_ns, next_expiry_ns;
    bool failing; /* told the log already */
    struct metric_family *days_left;
    int warned[TLS_CERTIFICATES_MAX + 1]; /* days of the last warning, for the certificate in use; the last is the CRL's */
    struct metric *outcomes[TLS_OUTCOMES];
};

/* tls_conn.c: NULL: out of memory. `ssl` is taken over, in any case. */
BIO_METHOD *tls__make_method(void);
struct tls_conn *tls__conn_adopt(SSL *ssl, BIO_METHOD *method, int fd);
/* The certificate and its chain, and a private key, from PEM files into `ctx`. */
int tls__use_files(SSL_CTX *ctx, const char *certificate, const char *key, struct error *err) MUST_CHECK;

/* tls_context.c */
struct tls_set *tls__set_get(struct tls_context *c); /* a reference */
void tls__set_unref(struct tls_set *s);

/* tls_load.c: build a set from the files. */
int tls__load(struct tls_context *c, struct tls_set **out, struct error *err) MUST_CHECK;
/* Days until the certificate of ctx `i` (i == n: the revocation list) ends; false: there is none. */
bool tls__days_left(const struct tls_context *c, const struct tls_set *s, size_t i, double *days);
/* OpenSSL's queue of errors as the end of a sentence; empties it. */
int tls__error(struct error *err, int status, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* tls_ticket.c */
void tls__tickets_init(struct tls_context *c);
void tls__tickets_rotate(struct tls_context *c);
void tls__tickets_use(struct tls_context *c, SSL_CTX *ctx);

#endif
