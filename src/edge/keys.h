/* keys.h: API keys: their text, their file, and the table that requests are looked up in.
 *
 *     inferd_3f0c9a5e7d21b846_<64 hex digits>
 *            `-- id, public --'  `- secret --'
 *
 * The secret is 256 random bits and is shown once; the file keeps a random salt and SHA-256(salt, whole key). A slow hash as for passwords
 * would buy nothing: nobody can try 2^256 keys, and it would cost every request. The id is in clear in the key, so that a lookup
 * needs no search, and the comparison takes the same time wherever two hashes first differ.
 *
 * The file has a JSON object a line (see docs/guide/security.md); '#' begins a comment line. An entry may name a client certificate
 * instead of a hash: then it gives whoever holds that certificate (verified by TLS) this tenant and these scopes.
 *
 * Pure: the caller reads and writes the file, and brings the random bytes and the clock. A table is immutable once parsed. */
#ifndef INFERD_EDGE_KEYS_H
#define INFERD_EDGE_KEYS_H

#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "edge/identity.h"

#define KEY_RANDOM_BYTES 56 /* id 8, secret 32, salt 16 */
#define KEY_TEXT_BYTES   89 /* "inferd_" 16 "_" 64 and the NUL */
#define KEY_ID_BYTES     16
#define KEY_FILE_MAX     (64u << 20)
#define KEY_LINE_MAX     4096

struct key_spec {
    struct edge_identity_spec who; /* kind and id are set by the maker */
    struct str certificate;        /* "DNS:host", "URI:spiffe://...", "email:a@b"; empty: a key */
    uint64_t created_s;
};

struct key_entry {
    struct edge_identity *identity;
    const char *certificate; /* NULL: a key */
    uint64_t created_s;
    uint8_t salt[16], hash[32];
    size_t line; /* in the file, from 1 */
};

struct key_table {
    struct key_entry *entries;
    size_t n;
    struct map by_id, by_certificate; /* to struct key_entry */
    char *certificates;               /* their texts */
};

/* Every line of the file. INVALID names file, line, field and what is accepted; nothing is to be released then. */
int key_table_parse(struct str text, const char *where, uint64_t map_seed, struct key_table *out, struct error *err) MUST_CHECK;
void key_table_release(struct key_table *t); /* a zeroed one is accepted */

/* The entry that the presented key belongs to, if it is right in every bit; NULL. Does not look at the expiry. */
const struct key_entry *key_table_check(const struct key_table *t, struct str presented);
/* The entry for a verified certificate's name; NULL. */
const struct key_entry *key_table_certificate(const struct key_table *t, struct str name);

/* Check `s` and append its line, newline included, to `line`. For a key, `key` gets its text, to be shown once and then wiped.
 * `random`: KEY_RANDOM_BYTES of them. INVALID names the field. */
int key_make(const struct key_spec *s, const uint8_t random[KEY_RANDOM_BYTES], struct buf *line, char key[KEY_TEXT_BYTES],
             char id[KEY_ID_BYTES + 1], struct error *err) MUST_CHECK;

/* "2027-01-31T12:00:00Z" or "2027-01-31" (midnight UTC), years 1970 to 9999. */
bool key_time_parse(struct str text, uint64_t *seconds);
void key_time_render(uint64_t seconds, char out[24]);

#endif
