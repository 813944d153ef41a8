/* tls_load.c: from PEM files to SSL_CTX objects, one a certificate, and the choice among them by server name.
 *
 * The first certificate is the default. A client's SNI is matched against each certificate's own names (RFC 6125, wildcards only as a whole
 * leftmost label), so there is no second place where names are configured. */
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "base/size.h"
#include "base/status.h"
#include "net/tls_priv.h"
#include "os/file.h"

#define PEM_BYTES_MAX (1u << 20)
#define CRL_BYTES_MAX (64u << 20)
#define VERIFY_DEPTH  5
#define DAY_SECONDS   86400.0

int tls__error(struct error *err, int status, const char *fmt, ...)
{
    unsigned long code = ERR_peek_last_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    char text[ERROR_TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ERR_clear_error();
    return error_set(err, status, "%s%s%s", text, reason ? ": " : "", reason ? reason : "");
}

/* A file as a memory BIO over `text`, which the caller releases after the BIO. */
static int open_pem(const char *path, size_t limit, struct buf *text, BIO **out, struct error *err)
{
    buf_init(text);
    int rc = os_file_read(path, limit, text, err);
    *out = rc == 0 ? BIO_new_mem_buf(text->n ? text->p : "", (int)text->n) : NULL;
    if (rc == 0 && !*out)
        rc = error_set(err, STATUS_NOMEM, "out of memory while reading %s", path);
    return rc;
}

static int no_password(char *buf, int size, int writing, void *ctx)
{
    (void)buf, (void)size, (void)writing, (void)ctx;
    return -1;
}

/* --- one certificate --- */

static int use_chain(SSL_CTX *ctx, const char *path, struct error *err)
{
    struct buf text;
    BIO *in = NULL;
    X509 *x = NULL;
    int n = 0, rc = open_pem(path, PEM_BYTES_MAX, &text, &in, err);
    while (rc == 0 && (x = PEM_read_bio_X509_AUX(in, NULL, no_password, NULL))) {
        bool ok = n == 0 ? SSL_CTX_use_certificate(ctx, x) == 1 : SSL_CTX_add1_chain_cert(ctx, x) == 1;
        X509_free(x);
        n++;
        if (!ok)
            rc = tls__error(err, STATUS_INVALID, "certificate %d of %s is not usable", n, path);
    }
    bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    if (rc == 0 && (n == 0 || !at_end))
        rc = tls__error(err, STATUS_INVALID, "%s: certificate %d is not readable PEM", path, n + 1);
    ERR_clear_error();
    BIO_free(in);
    buf_release(&text);
    return rc;
}

static int use_key(SSL_CTX *ctx, const char *path, struct error *err)
{
    struct buf text;
    BIO *in = NULL;
    int rc = open_pem(path, PEM_BYTES_MAX, &text, &in, err);
    EVP_PKEY *key = rc == 0 ? PEM_read_bio_PrivateKey(in, NULL, no_password, NULL) : NULL;
    if (rc == 0 && !key)
        rc = tls__error(err, STATUS_INVALID, "%s holds no private key that is readable without a password", path);
    if (rc == 0 && SSL_CTX_use_PrivateKey(ctx, key) != 1)
        rc = tls__error(err, STATUS_INVALID, "the private key of %s does not fit its certificate", path);
    EVP_PKEY_free(key);
    BIO_free(in);
    if (text.p)
        OPENSSL_cleanse(text.p, text.n);
    buf_release(&text);
    return rc;
}

int tls__use_files(SSL_CTX *ctx, const char *certificate, const char *key, struct error *err)
{
    int rc = use_chain(ctx, certificate, err);
    return rc ? rc : use_key(ctx, key ? key : certificate, err);
}

/* --- clients' certificates --- */

static int add_authorities(SSL_CTX *ctx, BIO *in, const char *path, struct error *err)
{
    X509 *x;
    int n = 0;
    while ((x = PEM_read_bio_X509(in, NULL, no_password, NULL))) {
        bool ok = X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), x) == 1 && SSL_CTX_add_client_CA(ctx, x) == 1;
        X509_free(x);
        n++;
        if (!ok)
            return tls__error(err, STATUS_INVALID, "authority %d of %s is not usable", n, path);
    }
    if (n == 0)
        return tls__error(err, STATUS_INVALID, "%s holds no certificate", path);
    ERR_clear_error();
    return 0;
}

static int add_lists(SSL_CTX *ctx, BIO *in, const char *path, struct error *err)
{
    X509_STORE *store = SSL_CTX_get_cert_store(ctx);
    X509_CRL *x;
    int n = 0;
    while ((x = PEM_read_bio_X509_CRL(in, NULL, no_password, NULL))) {
        bool ok = X509_STORE_add_crl(store, x) == 1;
        X509_CRL_free(x);
        n++;
        if (!ok)
            return tls__error(err, STATUS_INVALID, "list %d of %s is not usable", n, path);
    }
    if (n == 0)
        return tls__error(err, STATUS_INVALID, "%s holds no revocation list", path);
    ERR_clear_error();
    X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
    return 0;
}

/* Ask clients for certificates. What they are checked against becomes the session's context: a session that was made under other
 * authorities or another list isn't resumed, but verified anew. */
static int ask_clients(const struct tls_options *o, SSL_CTX *ctx, struct error *err)
{
    struct buf authorities, lists;
    struct sha256 h;
    uint8_t id[32];
    BIO *in = NULL;
    int rc = open_pem(o->client_ca, PEM_BYTES_MAX, &authorities, &in, err);
    if (rc == 0)
        rc = add_authorities(ctx, in, o->client_ca, err);
    BIO_free(in);
    in = NULL;
    buf_init(&lists);
    if (rc == 0 && o->crl)
        rc = open_pem(o->crl, CRL_BYTES_MAX, &lists, &in, err);
    if (rc == 0 && o->crl)
        rc = add_lists(ctx, in, o->crl, err);
    BIO_free(in);
    sha256_init(&h);
    sha256_add(&h, authorities.p, authorities.n);
    sha256_add(&h, lists.p, lists.n);
    sha256_finish(&h, id);
    SSL_CTX_set_session_id_context(ctx, id, sizeof id);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | (o->client_auth == TLS_CLIENT_REQUIRED ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
                       NULL);
    SSL_CTX_set_verify_depth(ctx, VERIFY_DEPTH);
    buf_release(&authorities);
    buf_release(&lists);
    return rc;
}

/* --- choices during the handshake --- */

/* HTTP/2 where it is spoken here and asked for. A client that offers protocols, but none of ours, is refused (RFC 7301, 3.2). */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *n, const unsigned char *in, unsigned in_n,
                           void *ctx)
{
    const struct tls_context *c = ctx;
    static const unsigned char both[] = "\x02h2\x08http/1.1", one[] = "\x08http/1.1";
    unsigned char *chosen;
    (void)ssl;
    const unsigned char *ours = c->o.h2 ? both : one;
    unsigned ours_n = c->o.h2 ? sizeof both - 1 : sizeof one - 1;
    if (SSL_select_next_proto(&chosen, n, ours, ours_n, in, in_n) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* SNI: the first certificate that is for this name. */
static int choose_certificate(SSL *ssl, int *alert, void *ctx)
{
    const struct tls_set *s = ctx;
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    (void)alert;
    for (size_t i = 0; name && i < s->n; i++) {
        X509 *x = SSL_CTX_get0_certificate(s->ctx[i]);
        if (X509_check_host(x, name, 0, 0, NULL) == 1) {
            if (i > 0)
                SSL_set_SSL_CTX(ssl, s->ctx[i]);
            return SSL_TLSEXT_ERR_OK;
        }
    }
    return SSL_TLSEXT_ERR_OK; /* the default; the client sees whose it is */
}

/* --- a set --- */

static void configure(struct tls_context *c, struct tls_set *s, SSL_CTX *ctx)
{
    static const unsigned char context[] = "inferd";
    SSL_CTX_set_min_proto_version(ctx, c->o.only_13 ? TLS1_3_VERSION : TLS1_2_VERSION);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE |
                                 SSL_OP_PRIORITIZE_CHACHA | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(ctx, 1); /* a record and the next one's beginning in one call */
    SSL_CTX_set_max_early_data(ctx, 0);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF); /* tickets hold the state */
    SSL_CTX_set_timeout(ctx, (long)(2 * c->o.ticket_rotation_ns / 1000000000u));
    SSL_CTX_set_session_id_context(ctx, context, sizeof context - 1);
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, c);
    SSL_CTX_set_tlsext_servername_callback(ctx, choose_certificate);
    SSL_CTX_set_tlsext_servername_arg(ctx, s);
    tls__tickets_use(c, ctx);
}

/* Forward secrecy and authenticated encryption only, for 1.2; 1.3 has nothing else. */
#define CIPHERS_12 "ECDHE+AESGCM:ECDHE+CHACHA20"

static int load_one(struct tls_context *c, struct tls_set *s, size_t i, struct error *err)
{
    const struct tls_options *o = &c->o;
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (!ctx)
        return error_set(err, STATUS_NOMEM, "out of memory for TLS");
    s->ctx[s->n++] = ctx;
    configure(c, s, ctx);
    if (SSL_CTX_set_cipher_list(ctx, CIPHERS_12) != 1)
        return tls__error(err, STATUS_INTERNAL, "OpenSSL does not know the ciphers " CIPHERS_12);
    int rc = use_chain(ctx, o->certificates[i], err);
    if (rc == 0)
        rc = use_key(ctx, o->n_keys ? o->keys[i] : o->certificates[i], err);
    if (rc == 0 && o->client_ca)
        rc = ask_clients(o, ctx, err);
    return rc;
}

int tls__load(struct tls_context *c, struct tls_set **out, struct error *err)
{
    struct tls_set *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(err, STATUS_NOMEM, "out of memory for TLS");
    atomic_init(&s->refs, 1);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->o.n; i++)
        rc = load_one(c, s, i, err);
    if (rc < 0) {
        tls__set_unref(s);
        return rc;
    }
    *out = s;
    return 0;
}

static bool days_until(const ASN1_TIME *end, double *days)
{
    int d, s;
    if (!end || ASN1_TIME_diff(&d, &s, NULL, end) != 1)
        return false;
    *days = d + s / DAY_SECONDS;
    return true;
}

/* Of the list that ends first. */
static bool list_days_left(SSL_CTX *ctx, double *days)
{
    STACK_OF(X509_OBJECT) *all = X509_STORE_get0_objects(SSL_CTX_get_cert_store(ctx));
    bool found = false;
    for (int i = 0; i < sk_X509_OBJECT_num(all); i++) {
        X509_CRL *crl = X509_OBJECT_get0_X509_CRL(sk_X509_OBJECT_value(all, i));
        double d;
        if (!crl || !days_until(X509_CRL_get0_nextUpdate(crl), &d))
            continue;
        *days = found ? MIN_OF(*days, d) : d;
        found = true;
    }
    return found;
}

bool tls__days_left(const struct tls_context *c, const struct tls_set *s, size_t i, double *days)
{
    if (i < s->n)
        return days_until(X509_get0_notAfter(SSL_CTX_get0_certificate(s->ctx[i])), days);
    return c->o.crl && list_days_left(s->ctx[0], days);
}
