/* seal_sign_keys.c: see seal_sign.h: Ed25519 keys as PEM, verifying and signing. */
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "model/seal_sign_priv.h"
#include "os/file.h"

#define PEM_FILE_MAX ((size_t)1 << 20)
#define ID_CONTEXT   "inferd sign key"

bool sign_digest(const void *p, size_t n, uint8_t out[SIGN_DIGEST_BYTES])
{
    return EVP_Digest(n ? p : "", n, out, NULL, EVP_sha256(), NULL) == 1;
}

static bool key_id(const uint8_t public_key[SIGN_PUBLIC_BYTES], uint8_t id[SEAL_ID_BYTES])
{
    uint8_t named[sizeof ID_CONTEXT - 1 + SIGN_PUBLIC_BYTES], digest[SIGN_DIGEST_BYTES];
    memcpy(named, ID_CONTEXT, sizeof ID_CONTEXT - 1);
    memcpy(named + sizeof ID_CONTEXT - 1, public_key, SIGN_PUBLIC_BYTES);
    bool ok = sign_digest(named, sizeof named, digest);
    memcpy(id, digest, SEAL_ID_BYTES);
    return ok;
}

/* The public half of `pkey`, which must be Ed25519, and its id. */
static bool take_public(EVP_PKEY *pkey, struct sign_key *out)
{
    size_t n = SIGN_PUBLIC_BYTES;
    return EVP_PKEY_is_a(pkey, "ED25519") && EVP_PKEY_get_raw_public_key(pkey, out->public_key, &n) == 1 &&
           n == SIGN_PUBLIC_BYTES && key_id(out->public_key, out->id);
}

static BIO *bio_of(struct str text)
{
    return text.n <= PEM_FILE_MAX ? BIO_new_mem_buf(text.p ? text.p : "", (int)text.n) : NULL;
}

/* Add the public keys of a PEM text (any number of PUBLIC KEY blocks). INVALID: none, or one that is not Ed25519. */
static int add_keys(struct sign_keys *keys, struct str pem, const char *name, struct error *err)
{
    BIO *bio = bio_of(pem);
    EVP_PKEY *pkey;
    size_t found = 0;
    int rc = bio ? 0 : error_set(err, STATUS_NOMEM, "%s: no memory for keys", name);
    while (!rc && (pkey = PEM_read_bio_PUBKEY(bio, NULL, NULL, NULL))) {
        found++;
        if (keys->n == SIGN_KEYS_MAX)
            rc = error_set(err, STATUS_INVALID, "%s: more than %u keys", name, SIGN_KEYS_MAX);
        else if (!take_public(pkey, &keys->v[keys->n]))
            rc = error_set(err, STATUS_INVALID, "%s: key %zu is not an Ed25519 key", name, found);
        else
            keys->n++;
        EVP_PKEY_free(pkey);
    }
    ERR_clear_error(); /* the end of the text is an error to it */
    BIO_free(bio);
    if (!rc && !found)
        rc = error_set(err, STATUS_INVALID, "%s holds no public key (PEM, \"BEGIN PUBLIC KEY\")", name);
    return rc;
}

int sign_keys_load(struct sign_keys *keys, const char *const *files, size_t n, struct error *err)
{
    int rc = 0;
    keys->n = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        struct buf text;
        buf_init(&text);
        rc = os_file_read(files[i], PEM_FILE_MAX, &text, err);
        if (!rc)
            rc = add_keys(keys, buf_str(&text), files[i], err);
        buf_release(&text);
    }
    return rc;
}

/* ---- verifying ---- */

static bool verifies(const struct sign_key *key, struct str body, const uint8_t sig[SIGN_BYTES])
{
    EVP_PKEY *pkey = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key->public_key, SIGN_PUBLIC_BYTES);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = pkey && ctx && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, pkey) == 1 &&
              EVP_DigestVerify(ctx, sig, SIGN_BYTES, (const uint8_t *)body.p, body.n) == 1;
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(pkey);
    ERR_clear_error();
    return ok;
}

static const struct sign_key *find(const struct sign_keys *keys, const uint8_t id[SEAL_ID_BYTES])
{
    for (size_t i = 0; i < keys->n; i++)
        if (memcmp(keys->v[i].id, id, SEAL_ID_BYTES) == 0)
            return &keys->v[i];
    return NULL;
}

int sign_verify(const struct sign_manifest *m, const struct sign_keys *keys, uint8_t id[SEAL_ID_BYTES], struct error *err)
{
    struct str rest = m->signatures, line, word, key_text;
    char shown[SEAL_ID_TEXT] = "";
    while (str_cut(&rest, '\n', &line) && (line.n || rest.n)) {
        uint8_t sig[SIGN_BYTES];
        if (!str_cut(&line, ' ', &word) || !str_eqz(word, "signature") || !str_cut(&line, ' ', &key_text) ||
            !sign__unhex(key_text, id, SEAL_ID_BYTES) || !sign__unhex(line, sig, sizeof sig))
            return error_set(err, STATUS_INVALID, "the signature file has a line that is not \"signature KEYID HEX\"");
        seal_id_text(id, shown);
        const struct sign_key *key = find(keys, id);
        if (!key)
            continue;
        if (!verifies(key, m->body, sig))
            return error_set(err, STATUS_INVALID, "the signature of the key %s is wrong: the list of files was changed", shown);
        return 0;
    }
    return error_set(err, STATUS_FORBIDDEN, "it is signed with the key %s, which is not among the %zu of models.signature_keys",
                     shown, keys->n);
}

/* ---- signing ---- */

int sign_append(struct str body, struct str private_pem, struct buf *out, struct error *err)
{
    uint8_t sig[SIGN_BYTES];
    size_t n = sizeof sig;
    char id[SEAL_ID_TEXT];
    struct sign_key key;
    BIO *bio = bio_of(private_pem);
    EVP_PKEY *pkey = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, (void *)(uintptr_t) "") : NULL;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    int rc = 0;
    if (!pkey || !take_public(pkey, &key))
        rc = error_set(err, STATUS_INVALID, "this is no private Ed25519 key without a password (PEM, \"BEGIN PRIVATE KEY\")");
    else if (!ctx || EVP_DigestSignInit(ctx, NULL, NULL, NULL, pkey) != 1 ||
             EVP_DigestSign(ctx, sig, &n, (const uint8_t *)body.p, body.n) != 1 || n != SIGN_BYTES)
        rc = error_set(err, STATUS_INTERNAL, "signing failed");
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(pkey);
    BIO_free(bio);
    ERR_clear_error();
    if (rc)
        return rc;
    seal_id_text(key.id, id);
    buf_printf(out, "signature %s ", id);
    for (size_t i = 0; i < SIGN_BYTES; i++)
        buf_printf(out, "%02x", sig[i]);
    buf_append_c(out, '\n');
    return out->failed ? error_set(err, STATUS_NOMEM, "no memory for a signature") : 0;
}

static void append_bio(struct buf *out, BIO *bio)
{
    char *p = NULL;
    long n = BIO_get_mem_data(bio, &p);
    buf_append(out, p, n > 0 ? (size_t)n : 0);
}

int sign_new_keys(struct buf *private_pem, struct buf *public_pem, struct error *err)
{
    EVP_PKEY *pkey = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    BIO *secret = BIO_new(BIO_s_secmem()), *open = BIO_new(BIO_s_mem());
    bool ok = pkey && secret && open && PEM_write_bio_PKCS8PrivateKey(secret, pkey, NULL, NULL, 0, NULL, NULL) == 1 &&
              PEM_write_bio_PUBKEY(open, pkey) == 1;
    if (ok) {
        append_bio(private_pem, secret);
        append_bio(public_pem, open);
        ok = !private_pem->failed && !public_pem->failed;
    }
    BIO_free(secret);
    BIO_free(open);
    EVP_PKEY_free(pkey);
    return ok ? 0 : error_set(err, STATUS_INTERNAL, "a key pair could not be made");
}
