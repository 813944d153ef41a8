/* jwt_priv.h: private to edge/jwt.c and edge/jwks.c: a key set from the inside. */
#ifndef INFERD_EDGE_JWT_PRIV_H
#define INFERD_EDGE_JWT_PRIV_H

#include <openssl/evp.h>

#include "edge/jwt.h"

enum jwt_algorithm { JWT_RS256, JWT_ES256, JWT_EDDSA, JWT_ALGORITHMS };

struct jwk {
    enum jwt_algorithm algorithm; /* the only one it is for */
    EVP_PKEY *key;
    char kid[129]; /* "": it has none */
};

struct jwks {
    _Atomic uint32_t refs;
    size_t n;
    struct jwk keys[JWKS_KEYS_MAX];
};

/* "RS256" -> JWT_RS256; false: none of ours. */
bool jwt__algorithm(struct str name, enum jwt_algorithm *out);
/* Strict base64url without padding (RFC 7515, 2): bytes, at most `cap`; -1 when it isn't, or bits are left over that are not zero. */
int jwt__decode(struct str text, uint8_t *out, size_t cap);

#endif
