/* Tokens and key sets: no input may crash, and nothing but a right signature is believed. The first byte chooses how the rest is taken: as a key
 * set, as a token, or as the JSON of header and payload (a line each), so that mutations get past base64url. */
#include <stdint.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/status.h"
#include "edge/jwt.h"

static const char set[] =
    "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"z\",\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}]}";

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void encode(struct str s, struct buf *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for (size_t i = 0; i < s.n; i += 3) {
        uint32_t v = 0;
        for (size_t k = 0; k < 3; k++)
            v = v << 8 | (i + k < s.n ? (uint8_t)s.p[i + k] : 0u);
        for (size_t k = 0; k < 4 && i * 4 / 3 + k < (s.n * 4 + 2) / 3; k++)
            buf_append_c(out, digits[v >> (18 - 6 * k) & 63]);
    }
}

static void take_token(struct str token)
{
    const struct jwt_rules rules = {
        .issuer = "joe", .scope_claim = "scope", .scope_prefix = "", .tenant_claim = "tenant", .skew_s = 30};
    struct edge_identity *who;
    struct jwks *keys;
    struct error err;
    check(jwks_parse(str_of(set), "set", &keys, &err) == 0);
    int rc = jwt_verify(keys, &rules, token, 1800000000, &who, &err);
    /* nobody has the private key of RFC 8037's example in this process */
    check(rc == STATUS_UNAUTHENTICATED || rc == STATUS_NOT_FOUND || rc == STATUS_NOMEM);
    check(!who && err.text[0]);
    jwks_unref(keys);
}

static void take_parts(struct str text)
{
    struct str header = {0}, payload = text;
    struct buf token;
    buf_init(&token);
    if (!str_cut(&payload, '\n', &header))
        return;
    encode(header, &token);
    buf_append_c(&token, '.');
    encode(payload, &token);
    buf_append_z(&token, ".AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    take_token(buf_str(&token));
    buf_release(&token);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err;
    struct jwks *keys;
    if (size == 0)
        return 0;
    struct str rest = {(const char *)data + 1, size - 1};
    if (data[0] % 3 == 0 && jwks_parse(rest, "set", &keys, &err) == 0) {
        check(jwks_count(keys) > 0);
        jwks_unref(keys);
    }
    if (data[0] % 3 == 1)
        take_token(rest);
    if (data[0] % 3 == 2)
        take_parts(rest);
    return 0;
}
