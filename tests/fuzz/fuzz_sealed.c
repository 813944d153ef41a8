/* Sealed files and signature files. First byte even: the rest is a sealed file as it comes: nothing may crash, and what opens has the length
 * that its header says. Odd: the rest is a content; its sealed form opens to the same content, and with one byte changed, one byte less or two
 * chunks swapped it doesn't. Either way the rest is also read as a signature file. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "model/seal_sign.h"

#define KEY "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

static void check(bool ok)
{
    if (!ok)
        abort();
}

struct memory {
    const uint8_t *p;
    size_t n;
};

static int read_memory(void *ctx, uint64_t offset, void *p, size_t n, struct error *err)
{
    const struct memory *m = ctx;
    check(offset <= m->n && n <= m->n - offset); /* never asked for what isn't there */
    if (n)
        memcpy(p, m->p + offset, n);
    (void)err;
    return 0;
}

static int open_sealed(const uint8_t *p, size_t n, const struct seal_keys *keys, struct os_blob *out)
{
    struct memory m = {p, n};
    struct seal_source s = {.read = read_memory, .ctx = &m, .bytes = n, .name = "input"};
    struct error err = {0};
    int rc = seal_open(&s, keys, 1 << 24, NULL, out, &err);
    check(rc == 0 || (out->p == NULL && err.code == rc && strncmp(err.text, "input: ", 7) == 0));
    return rc;
}

static size_t seal_content(const uint8_t *p, size_t n, const struct seal_key *key, uint8_t *out)
{
    struct seal_header h = {.chunk_bytes = SEAL_CHUNK_MIN, .plain_bytes = n};
    struct seal_cipher *c;
    uint64_t chunks, bytes;
    memcpy(h.key_id, key->id, sizeof h.key_id);
    memset(h.salt, 7, sizeof h.salt);
    check(seal_sizes(n, h.chunk_bytes, &chunks, &bytes) && seal_cipher_create(&h, key, &c, NULL) == 0);
    seal_header_write(&h, out);
    uint8_t *at = out + SEAL_HEADER_BYTES;
    for (uint64_t i = 0; i < chunks; i++) {
        size_t part = n - i * SEAL_CHUNK_MIN < SEAL_CHUNK_MIN ? n - i * SEAL_CHUNK_MIN : SEAL_CHUNK_MIN;
        check(seal_chunk(c, i, p + i * SEAL_CHUNK_MIN, part, at, NULL) == 0);
        at += part + SEAL_TAG_BYTES;
    }
    seal_cipher_destroy(c);
    check((size_t)(at - out) == bytes);
    return (size_t)bytes;
}

static void round_trip(const uint8_t *p, size_t n, const struct seal_keys *keys)
{
    struct os_blob blob;
    uint8_t *sealed = malloc(n + SEAL_HEADER_BYTES + (n / SEAL_CHUNK_MIN + 1) * SEAL_TAG_BYTES), *whole = NULL;
    check(sealed != NULL);
    size_t bytes = seal_content(p, n, &keys->v[0], sealed);
    check(open_sealed(sealed, bytes, keys, &blob) == 0 && blob.n == n && (n == 0 || memcmp(blob.p, p, n) == 0));
    os_blob_release(&blob);
    size_t at = n ? (p[0] * 257u + p[n - 1]) % bytes : 0;
    sealed[at] ^= 1;
    check(open_sealed(sealed, bytes, keys, &blob) != 0);
    sealed[at] ^= 1;
    check(open_sealed(sealed, bytes - 1, keys, &blob) != 0);
    if (n > 2 * SEAL_CHUNK_MIN && memcmp(p, p + SEAL_CHUNK_MIN, SEAL_CHUNK_MIN) != 0) {
        size_t chunk = SEAL_CHUNK_MIN + SEAL_TAG_BYTES;
        whole = malloc(bytes);
        check(whole != NULL);
        memcpy(whole, sealed, bytes);
        memcpy(whole + SEAL_HEADER_BYTES, sealed + SEAL_HEADER_BYTES + chunk, chunk);
        memcpy(whole + SEAL_HEADER_BYTES + chunk, sealed + SEAL_HEADER_BYTES, chunk);
        check(open_sealed(whole, bytes, keys, &blob) != 0);
    }
    free(sealed);
    free(whole);
}

static void signature(const uint8_t *p, size_t n)
{
    struct sign_manifest m;
    struct sign_keys none = {.n = 0};
    struct arena a;
    struct error err = {0};
    uint8_t id[SEAL_ID_BYTES];
    arena_init(&a, 1024, 1 << 24);
    if (sign_parse((struct str){(const char *)p, n}, &a, &m, &err) == 0) {
        for (size_t i = 0; i < m.n; i++)
            check(sign_path_valid(m.entries[i].path) &&
                  sign_find(&m, m.entries[i].model_file, m.entries[i].path) == &m.entries[i]);
        check(sign_verify(&m, &none, id, &err) < 0);
        struct buf again; /* what is read is written so that it is the same */
        buf_init(&again);
        sign_render(m.model, m.version, m.entries, m.n, &again);
        struct sign_manifest twin;
        buf_append_z(&again, "signature \n");
        check(sign_parse(buf_str(&again), &a, &twin, &err) == 0 && twin.n == m.n && str_eq(twin.model, m.model));
        buf_release(&again);
    } else {
        check(err.code != 0 && err.text[0]);
    }
    arena_release(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seal_keys keys = {.n = 0};
    struct os_blob blob;
    struct error err = {0};
    if (size == 0 || size > (1u << 20))
        return 0;
    check(seal_keys_add(&keys, STR(KEY), "key", &err) == 0 && keys.n == 1);
    if (data[0] & 1) {
        round_trip(data + 1, size - 1, &keys);
    } else if (open_sealed(data + 1, size - 1, &keys, &blob) == 0) {
        uint64_t n = 0;
        for (int i = 7; i >= 0; i--)
            n = n << 8 | data[1 + 56 + i];
        check(blob.n == n);
        os_blob_release(&blob);
    }
    signature(data + 1, size - 1);
    seal_keys_wipe(&keys);
    return 0;
}
