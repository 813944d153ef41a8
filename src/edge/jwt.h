/* jwt.h: signed tokens (RFC 7519 as narrowed by RFC 8725) and the keys that verify them (RFC 7517).
 *
 * A token is believed when its signature is right under a key that this issuer published, by the one algorithm that this key is for, and
 * its claims are for us and now. What a token says about how to verify it is not believed: a key or its address inside the token (jwk, jku,
 * x5u, x5c), `none`, shared-secret algorithms, critical extensions and unencoded payloads are refused before any key is looked at.
 *
 * Pure: texts and the clock are passed in. A key set is refcounted and immutable; any thread may verify with it at once. */
#ifndef INFERD_EDGE_JWT_H
#define INFERD_EDGE_JWT_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"
#include "edge/identity.h"

#define JWT_BYTES_MAX  8192
#define JWKS_BYTES_MAX (1u << 20)
#define JWKS_KEYS_MAX  64
#define JWT_SKEW_MAX_S 60u

struct jwks;

/* Parse {"keys": [...]}. Keys that are for something else (encryption, other types, shared secrets) are left out; RSA below 2048 bits is an
 * error, and so is a set of which nothing is left. INVALID names `where` and the key. */
int jwks_parse(struct str text, const char *where, struct jwks **out, struct error *err) MUST_CHECK;
struct jwks *jwks_ref(struct jwks *j);
void jwks_unref(struct jwks *j); /* NULL is accepted */
size_t jwks_count(const struct jwks *j);

/* Is it time to ask the issuer again? `last_ns`: the last attempt, 0: none yet. Every `refresh_ns`; after a failure, or when a token named
 * an unknown key, no sooner than 30 s after the last attempt, however many ask. */
bool jwks_due(uint64_t last_ns, bool failed, bool unknown, uint64_t refresh_ns, uint64_t now_ns);

/* What a token has to say. Strings live as long as they are used. */
struct jwt_rules {
    const char *issuer;   /* `iss`, exactly */
    const char *audience; /* one of `aud`; NULL: not looked at */
    const char
        *scope_claim; /* a string of words, or an array of strings; words that are no scopes of ours are somebody else's */
    const char *scope_prefix; /* in front of our scopes there: "inferd:" makes "inferd:read" the scope read; "": none */
    const char *tenant_claim;
    uint32_t skew_s; /* <= JWT_SKEW_MAX_S */
};

/* Verify `token` at wall clock `now_s`. 0: *who is an identity with one reference: id is `sub`, models is the claim `inferd_models`, the quota
 * class `inferd_class`, the expiry `exp`. UNAUTHENTICATED: the text says what is wrong with it. NOT_FOUND: it is well-formed, for us and now,
 * but no key has its `kid`: the issuer may have a new one. NOMEM. */
int jwt_verify(const struct jwks *keys, const struct jwt_rules *rules, struct str token, uint64_t now_s,
               struct edge_identity **who, struct error *err) MUST_CHECK;

/* May this text be a token at all: three parts with dots between? */
bool jwt_looks_like(struct str text);

#endif
