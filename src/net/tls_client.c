/* tls_client.c: the client's side: one context per client object, verification of chain and name always on. There is no way to turn it
 * off: who has a certificate of his own names its authority. */
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

int tls_client_create(const char *ca_file, struct tls_client **out, struct error *err)
{
    struct tls_client *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(err, STATUS_NOMEM, "out of memory for TLS");
    c->ctx = SSL_CTX_new(TLS_client_method());
    c->method = tls__make_method();
    int rc = c->ctx && c->method ? trust(c->ctx, ca_file, err) : error_set(err, STATUS_NOMEM, "out of memory for TLS");
    if (rc < 0) {
        tls_client_destroy(c);
        return rc;
    }
    SSL_CTX_set_min_proto_version(c->ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(c->ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(c->ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_verify(c->ctx, SSL_VERIFY_PEER, NULL);
    *out = c;
    return 0;
}

void tls_client_destroy(struct tls_client *c)
{
    if (!c)
        return;
    SSL_CTX_free(c->ctx);
    BIO_meth_free(c->method);
    free(c);
}

struct tls_conn *tls_client_connect(struct tls_client *c, int fd, const char *host)
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
    return tls__conn_adopt(ssl, c->method, fd);
}
