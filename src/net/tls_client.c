/* tls_client.c: the client's side: one context per client object, verification of chain and name always on. There is no way to turn it
 * off: who has a certificate of his own names its authority.
 *
 * Sessions are not kept in the context, whose cache is locked and knows nothing of whom a session is with, but where the caller says: beside
 * its connections to one server, on one thread. A ticket comes when it comes (TLS 1.3 sends it behind the handshake), so the connection
 * remembers the place. */
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <stdlib.h>

#include "base/status.h"
#include "net/tls_priv.h"

struct tls_client {
    SSL_CTX *ctx;
    BIO_METHOD *method;
};

static int trust(SSL_CTX *ctx, const char *ca_file, struct error *err)
{
    bool ok = ca_file ? SSL_CTX_load_verify_file(ctx, ca_file) == 1 : SSL_CTX_set_default_verify_paths(ctx) == 1;
    if (ok)
        return 0;
    return ca_file ? tls__error(err, STATUS_INVALID, "%s holds no usable certificate of an authority", ca_file)
                   : tls__error(err, STATUS_IO, "the system's certificates of authorities can't be read");
}

/* What the connection's `app data` is: where to leave the session. 1: the reference is kept. */
static int on_session(SSL *ssl, SSL_SESSION *session)
{
    struct tls_resume *r = SSL_get_app_data(ssl);
    if (!r)
        return 0;
    tls_resume_clear(r);
    r->session = session;
    return 1;
}

void tls_resume_clear(struct tls_resume *r)
{
    SSL_SESSION_free(r->session);
    r->session = NULL;
}

static bool offer(SSL_CTX *ctx, const struct tls_client_options *o)
{
    static const unsigned char both[] = "\x02h2\x08http/1.1";
    const unsigned char *from = o->h2 ? both : both + 3;
    unsigned n = (o->h2 ? 3u : 0u) + (o->http1 ? 9u : 0u);
    return n == 0 || SSL_CTX_set_alpn_protos(ctx, from, n) == 0;
}

static int set_up(struct tls_client *c, const struct tls_client_options *o, struct error *err)
{
    if (!c->ctx || !c->method || !offer(c->ctx, o))
        return error_set(err, STATUS_NOMEM, "out of memory for TLS");
    SSL_CTX_set_min_proto_version(c->ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(c->ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(c->ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_verify(c->ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_session_cache_mode(c->ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(c->ctx, on_session);
    int rc = trust(c->ctx, o->ca_file, err);
    return rc || !o->certificate ? rc : tls__use_files(c->ctx, o->certificate, o->key, err);
}

int tls_client_create_with(const struct tls_client_options *o, struct tls_client **out, struct error *err)
{
    struct tls_client *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(err, STATUS_NOMEM, "out of memory for TLS");
    c->ctx = SSL_CTX_new(TLS_client_method());
    c->method = tls__make_method();
    int rc = set_up(c, o, err);
    if (rc < 0) {
        ERR_clear_error();
        tls_client_destroy(c);
        return rc;
    }
    *out = c;
    return 0;
}

int tls_client_create(const char *ca_file, struct tls_client **out, struct error *err)
{
    return tls_client_create_with(&(struct tls_client_options){.ca_file = ca_file}, out, err);
}

void tls_client_destroy(struct tls_client *c)
{
    if (!c)
        return;
    SSL_CTX_free(c->ctx);
    BIO_meth_free(c->method);
    free(c);
}

struct tls_conn *tls_client_resume(struct tls_client *c, int fd, const char *host, struct tls_resume *resume)
{
    SSL *ssl = SSL_new(c->ctx);
    if (!ssl)
        return NULL;
    SSL_set_connect_state(ssl);
    bool is_ip = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    ERR_clear_error();
    if (!is_ip && (SSL_set1_host(ssl, host) != 1 || SSL_set_tlsext_host_name(ssl, host) != 1)) {
        SSL_free(ssl);
        return NULL;
    }
    SSL_set_app_data(ssl, resume);
    if (resume && resume->session && SSL_set_session(ssl, resume->session) != 1)
        ERR_clear_error();
    return tls__conn_adopt(ssl, c->method, fd);
}

struct tls_conn *tls_client_connect(struct tls_client *c, int fd, const char *host)
{
    return tls_client_resume(c, fd, host, NULL);
}
