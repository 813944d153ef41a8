/* tls_conn.c: one connection: OpenSSL over os/sock.h, made to look like a socket.
 *
 * A socket's reader may stop when a read gives less than it asked for: nothing is left then, and the loop will tell when there is more. TLS
 * hands out records of 16 KiB at most, so reads here go on until the room is filled or OpenSSL has nothing; `more` remembers the former.
 *
 * Writes are cut into records of at most 16 KiB, small parts gathered first, so that a reply's head and body share a record. OpenSSL
 * keeps a record that the socket didn't take and wants to be called with the same bytes again; the caller's queue only grows at its end,
 * so they are. */
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "net/tls_priv.h"

#define RECORD_BYTES 16384
#define NAMES_BYTES  1024
#define HOST_BYTES   256

struct tls_conn {
    SSL *ssl;
    struct tls_context *context; /* NULL: a client's */
    struct tls_set *set;
    int fd;
    bool up, more, wants_write, at_end, dead, finished, counted;
    const char *reason; /* why it is dead; NULL: nobody said */
    size_t n_names;
    struct str names[TLS_NAMES_MAX];
    char *name_bytes; /* [NAMES_BYTES]; NULL: no client certificate */
    char *host;       /* [HOST_BYTES] what tls_conn_serves was asked last; NULL: nothing yet */
    bool host_served;
};

/* --- the BIO --- */

static int bio_read(BIO *b, char *p, int n)
{
    struct tls_conn *t = BIO_get_data(b);
    BIO_clear_retry_flags(b);
    ssize_t got = os_sock_read(t->fd, p, (size_t)n);
    if (got == STATUS_AGAIN)
        BIO_set_retry_read(b);
    t->at_end |= got == 0;
    return got < 0 ? -1 : (int)got;
}

static int bio_write(BIO *b, const char *p, int n)
{
    struct tls_conn *t = BIO_get_data(b);
    struct os_iov v = {p, (size_t)n};
    BIO_clear_retry_flags(b);
    ssize_t put = os_sock_write(t->fd, &v, 1);
    if (put == STATUS_AGAIN)
        BIO_set_retry_write(b);
    return put < 0 ? -1 : (int)put;
}

static long bio_ctrl(BIO *b, int command, long number, void *p)
{
    struct tls_conn *t = BIO_get_data(b);
    (void)number, (void)p;
    if (command == BIO_CTRL_EOF)
        return t->at_end;
    return command == BIO_CTRL_FLUSH;
}

BIO_METHOD *tls__make_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "inferd socket");
    if (m) {
        BIO_meth_set_read(m, bio_read);
        BIO_meth_set_write(m, bio_write);
        BIO_meth_set_ctrl(m, bio_ctrl);
    }
    return m;
}

/* --- life --- */

struct tls_conn *tls__conn_adopt(SSL *ssl, BIO_METHOD *method, int fd)
{
    struct tls_conn *t = calloc(1, sizeof *t);
    BIO *b = t ? BIO_new(method) : NULL;
    if (!b) {
        SSL_free(ssl);
        free(t);
        return NULL;
    }
    *t = (struct tls_conn){.ssl = ssl, .fd = fd};
    BIO_set_data(b, t);
    BIO_set_init(b, 1);
    SSL_set_bio(ssl, b, b);
    return t;
}

struct tls_conn *tls_conn_create(struct tls_context *c, int fd)
{
    struct tls_set *set = tls__set_get(c);
    SSL *ssl = SSL_new(set->ctx[0]);
    struct tls_conn *t = NULL;
    if (ssl) {
        SSL_set_accept_state(ssl);
        t = tls__conn_adopt(ssl, c->method, fd);
    }
    if (!t) {
        ERR_clear_error();
        tls__set_unref(set);
        return NULL;
    }
    t->context = c;
    t->set = set;
    return t;
}

void tls_conn_destroy(struct tls_conn *t)
{
    if (!t)
        return;
    SSL_free(t->ssl);
    tls__set_unref(t->set);
    free(t->name_bytes);
    free(t->host);
    free(t);
}

/* --- the handshake's end --- */

static void count(struct tls_conn *t, enum tls_outcome outcome)
{
    if (!t->counted && t->context)
        metric_inc(t->context->outcomes[outcome]);
    t->counted = true;
}

void tls_conn_timed_out(struct tls_conn *t)
{
    count(t, TLS_TIMEOUT);
}

static const char *prefix_of(const GENERAL_NAME *g)
{
    return g->type == GEN_DNS ? "DNS:" : g->type == GEN_URI ? "URI:" : g->type == GEN_EMAIL ? "email:" : NULL;
}

/* A name with a byte that isn't printable ASCII could be read as another one, and is left out. */
static void add_name(struct tls_conn *t, const GENERAL_NAME *g, size_t *used)
{
    const char *prefix = prefix_of(g);
    if (!prefix || t->n_names == TLS_NAMES_MAX)
        return;
    const unsigned char *p = ASN1_STRING_get0_data(g->d.ia5);
    size_t n = (size_t)ASN1_STRING_length(g->d.ia5), front = strlen(prefix);
    if (n == 0 || n > NAMES_BYTES || *used + front + n > NAMES_BYTES)
        return;
    for (size_t i = 0; i < n; i++)
        if (p[i] <= ' ' || p[i] > '~')
            return;
    char *to = t->name_bytes + *used;
    memcpy(to, prefix, front);
    memcpy(to + front, p, n);
    t->names[t->n_names++] = (struct str){to, front + n};
    *used += front + n;
}

static void read_names(struct tls_conn *t)
{
    X509 *x = SSL_get0_peer_certificate(t->ssl);
    size_t used = 0;
    if (!x || SSL_get_verify_result(t->ssl) != X509_V_OK)
        return;
    GENERAL_NAMES *all = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
    t->name_bytes = all ? malloc(NAMES_BYTES) : NULL;
    for (int i = 0; t->name_bytes && i < sk_GENERAL_NAME_num(all); i++)
        add_name(t, sk_GENERAL_NAME_value(all, i), &used);
    GENERAL_NAMES_free(all);
}

static void came_up(struct tls_conn *t)
{
    t->up = true;
    count(t, SSL_session_reused(t->ssl) ? TLS_RESUMED : TLS_FULL);
    read_names(t);
}

bool tls_conn_is_up(const struct tls_conn *t)
{
    return t->up;
}

const struct str *tls_conn_peer_names(const struct tls_conn *t, size_t *n)
{
    *n = t->n_names;
    return t->names;
}

/* --- the host that is asked for --- */

/* The name in "name:port" or "[address]:port", NUL-terminated in `out`; false: too long to be in any certificate. */
static bool name_of_host(struct str host, char out[HOST_BYTES])
{
    bool literal = host.n && host.p[0] == '[';
    const char *end = literal ? memchr(host.p, ']', host.n) : memchr(host.p, ':', host.n);
    struct str name = {host.p + literal, (end ? (size_t)(end - host.p) : host.n) - literal};
    if (name.n && name.p[name.n - 1] == '.') /* the root, spelt out */
        name.n--;
    if (name.n >= HOST_BYTES)
        return false;
    memcpy(out, name.p, name.n);
    out[name.n] = 0;
    return true;
}

static bool is_good_for(X509 *x, const char *name)
{
    return X509_check_host(x, name, 0, 0, NULL) == 1 || X509_check_ip_asc(x, name, 0) == 1;
}

/* As choose_certificate of tls_load.c has it: the first that is good for it, else the first. */
static bool serves(const struct tls_conn *t, const char *name)
{
    const struct tls_set *s = t->set;
    X509 *mine = SSL_get_certificate(t->ssl), *chosen = SSL_CTX_get0_certificate(s->ctx[0]);
    if (is_good_for(mine, name))
        return true;
    for (size_t i = 0; i < s->n; i++)
        if (is_good_for(SSL_CTX_get0_certificate(s->ctx[i]), name)) {
            chosen = SSL_CTX_get0_certificate(s->ctx[i]);
            break;
        }
    return chosen == mine;
}

bool tls_conn_serves(struct tls_conn *t, struct str host)
{
    char name[HOST_BYTES];
    if (!t->set || t->set->n < 2 || !t->context->o.check_host || !host.n ||
        !SSL_get_servername(t->ssl, TLSEXT_NAMETYPE_host_name))
        return true;
    if (!name_of_host(host, name))
        return false;
    if (!t->host && !(t->host = calloc(1, HOST_BYTES)))
        return serves(t, name);
    if (strcmp(t->host, name) != 0 || !t->host_served) {
        memcpy(t->host, name, strlen(name) + 1);
        t->host_served = serves(t, name);
    }
    return t->host_served;
}

/* --- bytes --- */

/* What an OpenSSL call that gave nothing means. */
static ssize_t failure(struct tls_conn *t, int rc)
{
    int why = SSL_get_error(t->ssl, rc);
    if (why == SSL_ERROR_WANT_READ)
        return STATUS_AGAIN;
    if (why == SSL_ERROR_WANT_WRITE) {
        t->wants_write = true;
        return STATUS_AGAIN;
    }
    if (why == SSL_ERROR_ZERO_RETURN && t->up)
        return 0;
    if (!t->up && t->context && log_on(t->context->o.log, LOG_DEBUG)) {
        unsigned long code = ERR_peek_last_error();
        const char *reason = code ? ERR_reason_error_string(code) : NULL;
        LOG(t->context->o.log, LOG_DEBUG, "tls_handshake_failed", LOG_S("reason", reason ? reason : "the client left"));
    }
    if (!t->up)
        count(t, TLS_FAILED);
    if (!t->dead && ERR_peek_last_error())
        t->reason = ERR_reason_error_string(ERR_peek_last_error());
    t->dead = true;
    return STATUS_IO;
}

int tls_conn_handshake(struct tls_conn *t, struct error *err)
{
    t->wants_write = false;
    ERR_clear_error();
    int rc = SSL_do_handshake(t->ssl);
    if (rc == 1) {
        came_up(t);
        return 0;
    }
    long verified = SSL_get_verify_result(t->ssl);
    unsigned long code = ERR_peek_last_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    rc = (int)failure(t, rc);
    if (rc == STATUS_AGAIN)
        return rc;
    ERR_clear_error();
    return error_set(err, STATUS_IO, "TLS failed: %s",
                     verified != X509_V_OK ? X509_verify_cert_error_string(verified)
                     : reason              ? reason
                                           : "the peer closed the connection");
}

enum tls_fault tls_conn_fault(const struct tls_conn *t)
{
    switch (SSL_get_verify_result(t->ssl)) {
    case X509_V_OK:
        return TLS_FAULT_OTHER;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return TLS_FAULT_NAME;
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return TLS_FAULT_EXPIRED;
    default:
        return TLS_FAULT_UNTRUSTED;
    }
}

ssize_t tls_conn_read(struct tls_conn *t, void *p, size_t n)
{
    size_t total = 0, got;
    int rc = 1;
    if (t->dead)
        return STATUS_IO;
    t->more = t->wants_write = false;
    ERR_clear_error();
    while (total < n && (rc = SSL_read_ex(t->ssl, (char *)p + total, n - total, &got)) == 1)
        total += got;
    if (!t->up && SSL_is_init_finished(t->ssl))
        came_up(t);
    if (rc == 1) {
        t->more = true;
        return (ssize_t)total;
    }
    ssize_t why = failure(t, rc);
    return total ? (ssize_t)total : why;
}

/* The next record's worth from part *i, byte *at on: where it lies when one part has it all, else gathered into `chunk`. */
static const char *next_chunk(const struct os_iov *v, size_t n, size_t i, size_t at, char chunk[RECORD_BYTES], size_t *bytes)
{
    size_t used = 0, whole = MIN_OF(v[i].n - at, (size_t)RECORD_BYTES);
    if (whole == RECORD_BYTES || i + 1 == n) {
        *bytes = whole;
        return (const char *)v[i].p + at;
    }
    for (; i < n && used < RECORD_BYTES; i++, at = 0) {
        size_t take = MIN_OF(v[i].n - at, RECORD_BYTES - used);
        memcpy(chunk + used, (const char *)v[i].p + at, take);
        used += take;
    }
    *bytes = used;
    return chunk;
}

ssize_t tls_conn_write(struct tls_conn *t, const struct os_iov *v, size_t n)
{
    char chunk[RECORD_BYTES];
    size_t total = 0, i = 0, at = 0, put;
    if (t->dead || t->finished)
        return STATUS_IO;
    ERR_clear_error();
    while (i < n) {
        size_t bytes;
        if (at == v[i].n) {
            i++, at = 0;
            continue;
        }
        const char *p = next_chunk(v, n, i, at, chunk, &bytes);
        int rc = SSL_write_ex(t->ssl, p, bytes, &put);
        if (rc != 1) {
            bool before = t->wants_write;
            ssize_t why = failure(t, rc);
            t->wants_write = before; /* who writes waits for that anyway */
            return total ? (ssize_t)total : why == 0 ? STATUS_IO : why;
        }
        total += put;
        for (at += put; i < n && at >= v[i].n && at > 0;)
            at -= v[i++].n;
    }
    return (ssize_t)total;
}

const char *tls_conn_reason(const struct tls_conn *t)
{
    return t->reason;
}

bool tls_conn_is_h2(const struct tls_conn *t)
{
    const unsigned char *name;
    unsigned n;
    SSL_get0_alpn_selected(t->ssl, &name, &n);
    return n == 2 && memcmp(name, "h2", 2) == 0;
}

bool tls_conn_has_more(const struct tls_conn *t)
{
    return t->more && SSL_has_pending(t->ssl);
}

bool tls_conn_wants_write(const struct tls_conn *t)
{
    return t->wants_write;
}

void tls_conn_finish(struct tls_conn *t)
{
    if (t->dead || t->finished || !t->up)
        return;
    t->finished = true;
    ERR_clear_error();
    if (SSL_shutdown(t->ssl) < 0)
        ERR_clear_error();
}
