/* seal.c: see seal.h: the header, the cipher, and reading a file. Keys: seal_keys.c. */
#include "model/seal.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"

#define VERSION      1u
#define AAD_BYTES    (SEAL_HEADER_BYTES + 8u + 1u)
#define NONCE_BYTES  12u
#define HKDF_CONTEXT "inferd sealed model v1"

static void put_le(uint8_t *p, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get_le(const uint8_t *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

bool seal_is_sealed(const void *p, size_t n)
{
    return n >= SEAL_MAGIC_BYTES && memcmp(p, SEAL_MAGIC, SEAL_MAGIC_BYTES) == 0;
}

bool seal_sizes(uint64_t plain_bytes, uint32_t chunk_bytes, uint64_t *chunks, uint64_t *file_bytes)
{
    uint64_t n = plain_bytes / chunk_bytes + (plain_bytes % chunk_bytes != 0), tags;
    *chunks = n ? n : 1;
    return !__builtin_mul_overflow(*chunks, (uint64_t)SEAL_TAG_BYTES, &tags) &&
           !__builtin_add_overflow(plain_bytes, tags + SEAL_HEADER_BYTES, file_bytes);
}

void seal_header_write(const struct seal_header *h, uint8_t p[SEAL_HEADER_BYTES])
{
    memcpy(p, SEAL_MAGIC, SEAL_MAGIC_BYTES);
    put_le(p + 8, VERSION, 4);
    put_le(p + 12, h->chunk_bytes, 4);
    memcpy(p + 16, h->key_id, SEAL_ID_BYTES);
    memcpy(p + 24, h->salt, SEAL_SALT_BYTES);
    put_le(p + 56, h->plain_bytes, 8);
}

/* From the first bytes of a file of `file_bytes`. INVALID: which field, what it is, what is accepted; also when the file is not exactly as long
 * as its header says. */
static int header_read(const void *at, size_t n, uint64_t file_bytes, struct seal_header *h, struct error *err)
{
    const uint8_t *p = at;
    uint64_t chunks, expected;
    if (!seal_is_sealed(p, n))
        return error_set(err, STATUS_INVALID, "the file is not sealed: it doesn't begin with " SEAL_MAGIC);
    if (n < SEAL_HEADER_BYTES)
        return error_set(err, STATUS_INVALID, "the sealed file ends inside its header of %u bytes", SEAL_HEADER_BYTES);
    uint32_t version = (uint32_t)get_le(p + 8, 4);
    if (version != VERSION)
        return error_set(err, STATUS_INVALID, "the sealed file's format version is %u; this server reads %u", version, VERSION);
    h->chunk_bytes = (uint32_t)get_le(p + 12, 4);
    memcpy(h->key_id, p + 16, SEAL_ID_BYTES);
    memcpy(h->salt, p + 24, SEAL_SALT_BYTES);
    h->plain_bytes = get_le(p + 56, 8);
    if (h->chunk_bytes < SEAL_CHUNK_MIN || h->chunk_bytes > SEAL_CHUNK_MAX || (h->chunk_bytes & (h->chunk_bytes - 1)))
        return error_set(err, STATUS_INVALID, "the sealed file's chunk size is %u; accepted: a power of two in %u..%u",
                         h->chunk_bytes, SEAL_CHUNK_MIN, SEAL_CHUNK_MAX);
    if (!seal_sizes(h->plain_bytes, h->chunk_bytes, &chunks, &expected) || expected != file_bytes)
        return error_set(
            err, STATUS_INVALID,
            "the sealed file has %llu bytes, and its header, for a content of %llu, asks for another length: it was "
            "cut, or changed",
            (unsigned long long)file_bytes, (unsigned long long)h->plain_bytes);
    return 0;
}

/* ---- cipher ---- */

struct seal_cipher {
    uint8_t key[SEAL_KEY_BYTES], aad[AAD_BYTES];
    uint64_t chunks, plain_bytes;
    uint32_t chunk_bytes;
    EVP_CIPHER_CTX *ctx;
};

static bool derive(const struct seal_key *key, const uint8_t *salt, uint8_t out[SEAL_KEY_BYTES])
{
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)key->key, SEAL_KEY_BYTES),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)(uintptr_t)salt, SEAL_SALT_BYTES),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)(uintptr_t)HKDF_CONTEXT, sizeof HKDF_CONTEXT - 1),
        OSSL_PARAM_construct_end(),
    };
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *ctx = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
    bool ok = ctx && EVP_KDF_derive(ctx, out, SEAL_KEY_BYTES, params) == 1;
    EVP_KDF_CTX_free(ctx);
    EVP_KDF_free(kdf);
    return ok;
}

int seal_cipher_create(const struct seal_header *h, const struct seal_key *key, struct seal_cipher **out, struct error *err)
{
    struct seal_cipher *c = calloc(1, sizeof *c);
    uint64_t file_bytes;
    *out = NULL;
    if (c)
        c->ctx = EVP_CIPHER_CTX_new();
    if (!c || !c->ctx || !derive(key, h->salt, c->key)) {
        seal_cipher_destroy(c);
        return error_set(err, STATUS_NOMEM, "no memory for a cipher");
    }
    ASSERT(seal_sizes(h->plain_bytes, h->chunk_bytes, &c->chunks, &file_bytes));
    c->plain_bytes = h->plain_bytes;
    c->chunk_bytes = h->chunk_bytes;
    seal_header_write(h, c->aad);
    *out = c;
    return 0;
}

void seal_cipher_destroy(struct seal_cipher *c)
{
    if (!c)
        return;
    EVP_CIPHER_CTX_free(c->ctx); /* cleanses its key schedule */
    OPENSSL_cleanse(c, sizeof *c);
    free(c);
}

static size_t chunk_len(const struct seal_cipher *c, uint64_t index)
{
    return index + 1 < c->chunks ? c->chunk_bytes : (size_t)(c->plain_bytes - index * c->chunk_bytes);
}

/* Begin chunk `index`: nonce and additional data. */
static bool begin(struct seal_cipher *c, uint64_t index, int encrypt)
{
    uint8_t nonce[NONCE_BYTES] = {0};
    int n;
    put_le(nonce, index, 8);
    put_le(c->aad + SEAL_HEADER_BYTES, index, 8);
    c->aad[SEAL_HEADER_BYTES + 8] = index + 1 == c->chunks;
    return EVP_CipherInit_ex(c->ctx, EVP_aes_256_gcm(), NULL, c->key, nonce, encrypt) == 1 &&
           EVP_CipherUpdate(c->ctx, NULL, &n, c->aad, AAD_BYTES) == 1;
}

int seal_chunk(struct seal_cipher *c, uint64_t index, const uint8_t *in, size_t n, uint8_t *out, struct error *err)
{
    int done = 0, more = 0;
    ASSERT(index < c->chunks && n == chunk_len(c, index));
    if (!begin(c, index, 1) || (n && EVP_CipherUpdate(c->ctx, out, &done, in, (int)n) != 1) ||
        EVP_CipherFinal_ex(c->ctx, out + done, &more) != 1 ||
        EVP_CIPHER_CTX_ctrl(c->ctx, EVP_CTRL_AEAD_GET_TAG, SEAL_TAG_BYTES, out + n) != 1)
        return error_set(err, STATUS_INTERNAL, "the cipher failed");
    return 0;
}

/* n + 16 bytes to `n` of content. INVALID: not what was sealed; `out` is zeroed then. */
static int unchunk(struct seal_cipher *c, uint64_t index, const uint8_t *in, size_t n, uint8_t *out, struct error *err)
{
    int done = 0, more = 0;
    uint8_t none = 0;
    ASSERT(index < c->chunks && n == chunk_len(c, index));
    if (begin(c, index, 0) && (!n || EVP_CipherUpdate(c->ctx, out, &done, in, (int)n) == 1) &&
        EVP_CIPHER_CTX_ctrl(c->ctx, EVP_CTRL_AEAD_SET_TAG, SEAL_TAG_BYTES, (void *)(uintptr_t)(in + n)) == 1 &&
        EVP_CipherFinal_ex(c->ctx, n ? out + done : &none, &more) == 1)
        return 0;
    if (n)
        OPENSSL_cleanse(out, n);
    return error_set(err, STATUS_INVALID,
                     "part %llu of %llu of the sealed file is not what was sealed: the file was changed, or is damaged",
                     (unsigned long long)index + 1, (unsigned long long)c->chunks);
}

/* ---- whole files ---- */

struct opening {
    const struct seal_source *s;
    struct seal_header h;
    struct seal_cipher *c;
    EVP_MD_CTX *md; /* NULL: no digest asked for */
    uint8_t *chunk; /* [chunk_bytes + tag] as stored */
    uint8_t head[SEAL_HEADER_BYTES];
};

static int read_header(struct opening *o, const struct seal_keys *keys, uint64_t limit, struct error *err)
{
    size_t n = (size_t)MIN_OF(o->s->bytes, (uint64_t)SEAL_HEADER_BYTES);
    int rc = o->s->read(o->s->ctx, 0, o->head, n, err);
    if (!rc)
        rc = header_read(o->head, n, o->s->bytes, &o->h, err);
    if (rc)
        return rc;
    if (o->h.plain_bytes > limit || o->h.plain_bytes > SIZE_MAX / 2)
        return error_set(err, STATUS_TOO_LARGE, "its content has %llu bytes, the limit is %llu",
                         (unsigned long long)o->h.plain_bytes, (unsigned long long)limit);
    const struct seal_key *key = seal_keys_find(keys, o->h.key_id);
    if (key)
        return seal_cipher_create(&o->h, key, &o->c, err);
    char id[SEAL_ID_TEXT];
    seal_id_text(o->h.key_id, id);
    return error_set(err, STATUS_FORBIDDEN,
                     "it is sealed with the key %s, which is not among the %zu keys of models.seal_keys and $" SEAL_KEY_ENV, id,
                     keys->n);
}

static int read_chunks(struct opening *o, uint8_t *out, struct error *err)
{
    uint64_t at = SEAL_HEADER_BYTES;
    if (o->md && EVP_DigestUpdate(o->md, o->head, SEAL_HEADER_BYTES) != 1)
        return error_set(err, STATUS_INTERNAL, "the digest failed");
    for (uint64_t i = 0; i < o->c->chunks; i++) {
        size_t n = chunk_len(o->c, i);
        int rc = o->s->read(o->s->ctx, at, o->chunk, n + SEAL_TAG_BYTES, err);
        if (!rc && o->md && EVP_DigestUpdate(o->md, o->chunk, n + SEAL_TAG_BYTES) != 1)
            rc = error_set(err, STATUS_INTERNAL, "the digest failed");
        if (!rc)
            rc = unchunk(o->c, i, o->chunk, n, out ? out + i * o->h.chunk_bytes : out, err);
        if (rc)
            return rc;
        at += n + SEAL_TAG_BYTES;
    }
    return 0;
}

static int open_all(struct opening *o, uint8_t *sha256, struct os_blob *out, struct error *err)
{
    uint8_t *p;
    o->chunk = malloc((size_t)o->h.chunk_bytes + SEAL_TAG_BYTES);
    if (sha256 && (o->md = EVP_MD_CTX_new()) && EVP_DigestInit_ex(o->md, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(o->md);
        o->md = NULL;
    }
    if (!o->chunk || (sha256 && !o->md))
        return error_set(err, STATUS_NOMEM, "no memory to unseal it");
    int rc = os_blob_alloc((size_t)o->h.plain_bytes, true, out, &p, err);
    if (!rc)
        rc = read_chunks(o, p, err);
    if (!rc && sha256 && EVP_DigestFinal_ex(o->md, sha256, NULL) != 1)
        rc = error_set(err, STATUS_INTERNAL, "the digest failed");
    if (rc)
        os_blob_release(out);
    return rc;
}

int seal_open(const struct seal_source *s, const struct seal_keys *keys, uint64_t limit_bytes, uint8_t *sha256,
              struct os_blob *out, struct error *err)
{
    struct opening o = {.s = s};
    *out = (struct os_blob){0};
    int rc = read_header(&o, keys, limit_bytes, err);
    if (!rc)
        rc = open_all(&o, sha256, out, err);
    seal_cipher_destroy(o.c);
    EVP_MD_CTX_free(o.md);
    free(o.chunk);
    return rc ? error_prefix(err, "%s", s->name) : 0;
}
