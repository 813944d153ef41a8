/* seal.h: a file that is stored encrypted: its format, its keys, and reading it into memory. docs/reference/sealed-models.md is the format's
 * page, which other implementations go by.
 *
 *     0   8  magic "INFDSEAL"
 *     8   4  version, 1
 *    12   4  chunk size C in bytes of content: a power of two in 4096..16 MiB
 *    16   8  key id: the first bytes of SHA-256("inferd seal key" || key)
 *    24  32  salt, random for each file
 *    56   8  content size N in bytes
 *    64      chunks: C bytes of content each, the last one shorter or full (one empty chunk when N is 0), encrypted, and a tag of 16 bytes each
 *
 * Integers are little-endian. The key of a file is HKDF-SHA256(key, salt, "inferd sealed model v1"), so no two files share one and the
 * nonce may be the chunk's index (8 bytes, then four zeros). Each chunk is AES-256-GCM with the additional data header || index (8 bytes) ||
 * last (1 byte, 1 for the last chunk): a chunk is good in its own place of its own file only, and the end can't be moved.
 *
 * What it does not do: a whole sealed file may be put in another's place, and an old one be brought back; that is for signatures
 * (seal_sign.h). A file keeps its name when it is sealed; its first bytes say what it is.
 *
 * Rejected: one tag over the whole file (nothing could be said before all is read, and GCM ends at 64 GiB); a random nonce a chunk (12 bytes
 * each, and a bound on chunks); names in the header (a rename would be damage).
 *
 * Any thread; a struct by one thread at a time. */
#ifndef INFERD_MODEL_SEAL_H
#define INFERD_MODEL_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "os/blob.h"

#define SEAL_MAGIC         "INFDSEAL"
#define SEAL_MAGIC_BYTES   8u
#define SEAL_HEADER_BYTES  64u
#define SEAL_TAG_BYTES     16u
#define SEAL_ID_BYTES      8u
#define SEAL_ID_TEXT       17u /* hex and NUL */
#define SEAL_KEY_BYTES     32u
#define SEAL_SALT_BYTES    32u
#define SEAL_CHUNK_MIN     4096u
#define SEAL_CHUNK_MAX     (16u << 20)
#define SEAL_CHUNK_DEFAULT (1u << 20)
#define SEAL_KEYS_MAX      64u
#define SEAL_KEY_ENV       "INFERD_SEAL_KEYS"

struct seal_header {
    uint32_t chunk_bytes;
    uint8_t key_id[SEAL_ID_BYTES], salt[SEAL_SALT_BYTES];
    uint64_t plain_bytes;
};

bool seal_is_sealed(const void *p, size_t n); /* by the magic; n may be shorter */
void seal_header_write(const struct seal_header *h, uint8_t p[SEAL_HEADER_BYTES]);
/* How many chunks (at least one), and the length of the sealed file; false: more than can be counted. */
bool seal_sizes(uint64_t plain_bytes, uint32_t chunk_bytes, uint64_t *chunks, uint64_t *file_bytes);

/* ---- keys ---- */

struct seal_key {
    uint8_t id[SEAL_ID_BYTES], key[SEAL_KEY_BYTES];
};
struct seal_keys {
    struct seal_key v[SEAL_KEYS_MAX];
    size_t n;
};

/* The id as hex, NUL-terminated. */
void seal_id_text(const uint8_t id[SEAL_ID_BYTES], char out[SEAL_ID_TEXT]);
/* Add the keys of a text: one a line (or between commas), 64 hex digits; '#' begins a comment. `name` is for errors, which never show a
 * key: INVALID with the line. The first key of all is the one that `inferd seal` uses. */
int seal_keys_add(struct seal_keys *keys, struct str text, const char *name, struct error *err) MUST_CHECK;
/* The keys of these files, then of the environment variable INFERD_SEAL_KEYS. A file that others than its owner and group may read is
 * refused (FORBIDDEN). On failure `keys` is wiped. Blocks on the disk. */
int seal_keys_load(struct seal_keys *keys, const char *const *files, size_t n, struct error *err) MUST_CHECK;
void seal_keys_wipe(struct seal_keys *keys); /* zeroes; idempotent */
const struct seal_key *seal_keys_find(const struct seal_keys *keys, const uint8_t id[SEAL_ID_BYTES]);

/* ---- chunks ---- */

struct seal_cipher; /* one file's key, set up */

int seal_cipher_create(const struct seal_header *h, const struct seal_key *key, struct seal_cipher **out,
                       struct error *err) MUST_CHECK;
void seal_cipher_destroy(struct seal_cipher *c); /* zeroes; NULL accepted */
/* `n` bytes of content to n + 16 bytes; `out` may not overlap `in`. The chunk's length must be what the header says. */
int seal_chunk(struct seal_cipher *c, uint64_t index, const uint8_t *in, size_t n, uint8_t *out, struct error *err) MUST_CHECK;

/* ---- whole files ---- */

/* Somewhere to read a sealed file from: exactly `n` bytes at `offset`. */
struct seal_source {
    int (*read)(void *ctx, uint64_t offset, void *p, size_t n, struct error *err);
    void *ctx;
    uint64_t bytes; /* its length */
    const char *name;
};
/* The content of an open sealed file, in memory that is zeroed at its release. Peak: the content and one chunk. `sha256` (may be NULL) gets the
 * digest of the file as it is stored. FORBIDDEN: none of the keys is its; INVALID: changed, cut, or not sealed; TOO_LARGE, NOMEM. Errors
 * begin with the source's name. */
int seal_open(const struct seal_source *s, const struct seal_keys *keys, uint64_t limit_bytes, uint8_t *sha256,
              struct os_blob *out, struct error *err) MUST_CHECK;

#endif
