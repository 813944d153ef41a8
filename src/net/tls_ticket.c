/* tls_ticket.c: the keys of session tickets (RFC 5077, RFC 8446 4.6.1): AES-256-CBC and HMAC-SHA-256, as OpenSSL lays tickets out.
 *
 * Every rotation makes a new key; tickets are sealed with the newest, opened with any of three, and one that an older key opened is replaced.
 * So a stolen process image opens tickets of the last three periods at most, and a client that comes back within one always resumes.
 * Keys live in memory only: after a restart, and between replicas, a client does a full handshake. */
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <string.h>

#include "net/tls_priv.h"
#include "os/random.h"

void tls__tickets_init(struct tls_context *c)
{
    os_random_bytes(c->tickets, sizeof c->tickets);
}

void tls__tickets_rotate(struct tls_context *c)
{
    struct tls_ticket_key fresh;
    os_random_bytes(&fresh, sizeof fresh);
    os_mutex_lock(&c->lock);
    memmove(&c->tickets[1], &c->tickets[0], (TLS_TICKET_KEYS - 1) * sizeof c->tickets[0]);
    c->tickets[0] = fresh;
    os_mutex_unlock(&c->lock);
    OPENSSL_cleanse(&fresh, sizeof fresh);
}

/* The newest key for a new ticket, else the one that `name` names. Its generation, or -1. */
static int find(struct tls_context *c, const unsigned char name[16], bool sealing, struct tls_ticket_key *out)
{
    int found = sealing ? 0 : -1;
    os_mutex_lock(&c->lock);
    for (int i = 0; !sealing && found < 0 && i < TLS_TICKET_KEYS; i++)
        if (CRYPTO_memcmp(c->tickets[i].name, name, 16) == 0)
            found = i;
    if (found >= 0)
        *out = c->tickets[found];
    os_mutex_unlock(&c->lock);
    return found;
}

/* OpenSSL's contract: 1 go on, 2 go on and give a new ticket, 0 unknown ticket, -1 fail. */
static int with_key(SSL *ssl, unsigned char name[16], unsigned char *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac, int sealing)
{
    struct tls_context *c = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    struct tls_ticket_key k;
    int generation = find(c, name, sealing != 0, &k), rc = -1;
    if (generation < 0)
        return 0;
    if (sealing) {
        memcpy(name, k.name, sizeof k.name);
        os_random_bytes(iv, 16);
    }
    OSSL_PARAM params[] = {OSSL_PARAM_octet_string(OSSL_MAC_PARAM_KEY, k.mac, sizeof k.mac),
                           OSSL_PARAM_utf8_string(OSSL_MAC_PARAM_DIGEST, (char[]){"SHA256"}, 0), OSSL_PARAM_END};
    if (EVP_CipherInit_ex(cipher, EVP_aes_256_cbc(), NULL, k.aes, iv, sealing) == 1 && EVP_MAC_CTX_set_params(mac, params) == 1)
        rc = generation == 0 ? 1 : 2;
    OPENSSL_cleanse(&k, sizeof k);
    return rc;
}

void tls__tickets_use(struct tls_context *c, SSL_CTX *ctx)
{
    SSL_CTX_set_app_data(ctx, c);
    SSL_CTX_set_tlsext_ticket_key_evp_cb(ctx, with_key);
}
