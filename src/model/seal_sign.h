/* seal_sign.h: the signature of a model version: a text file beside the model that lists the files of the version with their digests, and is
 * signed with Ed25519. docs/reference/sealed-models.md is the format's page.
 *
 *     inferd-signature 1
 *     model NAME
 *     version VERSION
 *     file SHA256 BYTES PATH            a file of the version's folder, as it is stored (a sealed file: sealed)
 *     model-file SHA256 BYTES PATH      a file of the model's folder that holds the version folders: config, labels, warm-up data
 *     signature KEYID HEX               Ed25519 over all lines above the first of these, line ends included; one a signer
 *
 * Key id: the first 8 bytes of SHA-256("inferd sign key" || public key). Since name and version are signed, too, one model's files can't
 * pass for another's. An older signed state of the same version can: signatures know no time.
 *
 * Parsing and verifying are pure; any thread. */
#ifndef INFERD_MODEL_SEAL_SIGN_H
#define INFERD_MODEL_SEAL_SIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "model/seal.h"

#define SIGN_FILE         "inferd.sig" /* in the version's folder; of a lone file FILE: FILE.sig */
#define SIGN_BYTES_MAX    ((size_t)16 << 20)
#define SIGN_ENTRIES_MAX  100000u
#define SIGN_KEYS_MAX     64u
#define SIGN_DIGEST_BYTES 32u
#define SIGN_PUBLIC_BYTES 32u
#define SIGN_BYTES        64u /* of a signature */

struct sign_entry {
    bool model_file;
    uint8_t sha256[SIGN_DIGEST_BYTES];
    uint64_t bytes;
    struct str path;
};

struct sign_manifest {
    struct str model, version;
    struct sign_entry *entries; /* sorted: files, then model files, each by path */
    size_t n;
    struct str body, signatures; /* what is signed, and the lines behind it; views into the text */
};

/* Strict: unknown, missing and repeated lines, paths that leave their folder, and entries out of order are INVALID with the line. Strings are
 * views into `text`. */
int sign_parse(struct str text, struct arena *a, struct sign_manifest *out, struct error *err) MUST_CHECK;
/* NULL: not listed. `path` may begin with "./". */
const struct sign_entry *sign_find(const struct sign_manifest *m, bool model_file, struct str path);
/* Is this a path that may be listed: relative, no empty, "." or ".." component, no control characters, at most 4096 bytes. */
bool sign_path_valid(struct str path);

/* Append the lines above the signatures; `entries` are sorted here. */
void sign_render(struct str model, struct str version, struct sign_entry *entries, size_t n, struct buf *out);

/* ---- keys ---- */

struct sign_key {
    uint8_t id[SEAL_ID_BYTES], public_key[SIGN_PUBLIC_BYTES];
};
struct sign_keys {
    struct sign_key v[SIGN_KEYS_MAX];
    size_t n;
};
/* Read these PEM files. Blocks on the disk. */
int sign_keys_load(struct sign_keys *keys, const char *const *files, size_t n, struct error *err) MUST_CHECK;

/* One of `keys` signed it; its id is given back. FORBIDDEN: none of them did; INVALID: one that says so did not. */
int sign_verify(const struct sign_manifest *m, const struct sign_keys *keys, uint8_t id[SEAL_ID_BYTES],
                struct error *err) MUST_CHECK;

/* Sign `body` with the private key of a PEM text (PKCS#8, unencrypted) and append the signature's line. */
int sign_append(struct str body, struct str private_pem, struct buf *out, struct error *err) MUST_CHECK;
/* A new pair as PEM texts; the caller cleanses the private one. */
int sign_new_keys(struct buf *private_pem, struct buf *public_pem, struct error *err) MUST_CHECK;

/* SHA-256 by the library, which has the processor's instructions for it. False: it failed. */
bool sign_digest(const void *p, size_t n, uint8_t out[SIGN_DIGEST_BYTES]);

#endif
