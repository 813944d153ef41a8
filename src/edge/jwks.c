/* jwks.c: key sets (RFC 7517, RFC 7518 6, RFC 8037). The algorithm of a key follows from its type; `alg`, where it is there, must agree. */
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/param_build.h>
#include <openssl/rsa.h>

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "edge/jwt_priv.h"
#include "wire/json.h"

#define REFETCH_NS    30000000000ull
#define RSA_BITS_MIN  2048
#define RSA_BYTES_MAX 1024 /* of the modulus */

bool jwt__algorithm(struct str name, enum jwt_algorithm *out)
{
    static const char *const names[JWT_ALGORITHMS] = {"RS256", "ES256", "EdDSA"};
    for (int i = 0; i < JWT_ALGORITHMS; i++)
        if (str_eqz(name, names[i])) {
            *out = (enum jwt_algorithm)i;
            return true;
        }
    return false;
}

static int digit(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '-'             ? 62
           : c == '_'             ? 63
                                  : -1;
}

int jwt__decode(struct str t, uint8_t *out, size_t cap)
{
    uint32_t bits = 0;
    size_t n = 0, have = 0;
    if (t.n % 4 == 1)
        return -1;
    for (size_t i = 0; i < t.n; i++) {
        int d = digit(t.p[i]);
        if (d < 0)
            return -1;
        bits = bits << 6 | (uint32_t)d;
        have += 6;
        if (have < 8)
            continue;
        have -= 8;
        if (n == cap)
            return -1;
        out[n++] = (uint8_t)(bits >> have);
        bits &= (1u << have) - 1;
    }
    return bits ? -1 : (int)n;
}

/* --- one key --- */

struct reader {
    const char *where;
    size_t index; /* of the key */
    struct error *err;
};

static int bad(const struct reader *r, const char *what)
{
    ERR_clear_error();
    return error_set(r->err, STATUS_INVALID, "%s: key %zu: %s", r->where, r->index, what);
}

/* A member as bytes; their number, or negative. */
static int get_bytes(const struct reader *r, yyjson_val *o, const char *name, uint8_t *out, size_t cap)
{
    struct str text;
    if (json_get_str(o, name, JSON_REQUIRED, &text, NULL, r->err) < 0)
        return error_prefix(r->err, "%s: key %zu", r->where, r->index);
    int n = jwt__decode(text, out, cap);
    return n > 0 ? n : bad(r, "a number is not base64url, or too large");
}

static EVP_PKEY *from_params(const char *type, OSSL_PARAM_BLD *b)
{
    EVP_PKEY *key = NULL;
    OSSL_PARAM *params = b ? OSSL_PARAM_BLD_to_param(b) : NULL;
    EVP_PKEY_CTX *c = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    bool ok = params && c && EVP_PKEY_fromdata_init(c) == 1 && EVP_PKEY_fromdata(c, &key, EVP_PKEY_PUBLIC_KEY, params) == 1;
    EVP_PKEY_CTX_free(c);
    OSSL_PARAM_free(params);
    return ok ? key : NULL;
}

static int read_rsa(const struct reader *r, yyjson_val *o, EVP_PKEY **out)
{
    uint8_t n[RSA_BYTES_MAX], e[8];
    int n_n = get_bytes(r, o, "n", n, sizeof n);
    int n_e = n_n < 0 ? n_n : get_bytes(r, o, "e", e, sizeof e);
    if (n_e < 0)
        return n_e;
    BIGNUM *bn = BN_bin2bn(n, n_n, NULL), *be = BN_bin2bn(e, n_e, NULL);
    OSSL_PARAM_BLD *b = OSSL_PARAM_BLD_new();
    if (bn && be && b && OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_RSA_N, bn) == 1 &&
        OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_RSA_E, be) == 1)
        *out = from_params("RSA", b);
    int bits = bn ? BN_num_bits(bn) : 0;
    bool sound = bn && be && BN_is_odd(bn) && BN_is_odd(be) && !BN_is_one(be);
    OSSL_PARAM_BLD_free(b);
    BN_free(bn);
    BN_free(be);
    if (bits < RSA_BITS_MIN)
        return bad(r, "RSA keys of fewer than 2048 bits are not accepted");
    return *out && sound ? 0 : bad(r, "it is no usable RSA key");
}

static int read_ec(const struct reader *r, yyjson_val *o, EVP_PKEY **out)
{
    uint8_t point[65] = {4};
    int x = get_bytes(r, o, "x", point + 1, 32), y = x < 0 ? x : get_bytes(r, o, "y", point + 33, 32);
    if (y < 0)
        return y;
    if (x != 32 || y != 32)
        return bad(r, "a coordinate of P-256 has 32 bytes");
    OSSL_PARAM_BLD *b = OSSL_PARAM_BLD_new();
    if (b && OSSL_PARAM_BLD_push_utf8_string(b, OSSL_PKEY_PARAM_GROUP_NAME, "P-256", 0) == 1 &&
        OSSL_PARAM_BLD_push_octet_string(b, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof point) == 1)
        *out = from_params("EC", b);
    OSSL_PARAM_BLD_free(b);
    return *out ? 0 : bad(r, "it is no point of P-256");
}

static int read_okp(const struct reader *r, yyjson_val *o, EVP_PKEY **out)
{
    uint8_t x[32];
    int n = get_bytes(r, o, "x", x, sizeof x);
    if (n < 0)
        return n;
    *out = n == 32 ? EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, x, sizeof x) : NULL;
    return *out ? 0 : bad(r, "an Ed25519 key has 32 bytes");
}

/* Is it a key that verifies signatures of ours? */
static bool is_ours(yyjson_val *o, struct str kty, struct str crv, struct str use, struct jwk *k)
{
    yyjson_val *ops = yyjson_obj_get(o, "key_ops"), *op;
    size_t i, n;
    bool verifies = !yyjson_is_arr(ops);
    yyjson_arr_foreach(ops, i, n, op) verifies |= yyjson_equals_str(op, "verify");
    if (!verifies || (use.n && !str_eqz(use, "sig")))
        return false;
    if (str_eqz(kty, "RSA"))
        k->algorithm = JWT_RS256;
    else if (str_eqz(kty, "EC") && str_eqz(crv, "P-256"))
        k->algorithm = JWT_ES256;
    else if (str_eqz(kty, "OKP") && str_eqz(crv, "Ed25519"))
        k->algorithm = JWT_EDDSA;
    else
        return false;
    return true;
}

static int read_key(const struct reader *r, yyjson_val *o, struct jwks *j)
{
    struct str kty = {0}, crv = {0}, use = {0}, alg = {0}, kid = {0};
    struct jwk k = {0};
    enum jwt_algorithm named;
    int rc = json_get_str(o, "kty", JSON_REQUIRED, &kty, NULL, r->err);
    if (rc == 0)
        rc = json_get_str(o, "crv", JSON_OPTIONAL, &crv, NULL, r->err);
    if (rc == 0)
        rc = json_get_str(o, "use", JSON_OPTIONAL, &use, NULL, r->err);
    if (rc == 0)
        rc = json_get_str(o, "alg", JSON_OPTIONAL, &alg, NULL, r->err);
    if (rc == 0)
        rc = json_get_str(o, "kid", JSON_OPTIONAL, &kid, NULL, r->err);
    if (rc < 0)
        return error_prefix(r->err, "%s: key %zu", r->where, r->index);
    if (!is_ours(o, kty, crv, use, &k))
        return 0;
    if (alg.n && (!jwt__algorithm(alg, &named) || named != k.algorithm))
        return 0; /* RS512, PS256: for another use of the same kind of key */
    if (kid.n >= sizeof k.kid || (kid.n && memchr(kid.p, 0, kid.n)))
        return bad(r, "its kid has more than 128 bytes");
    if (kid.n)
        memcpy(k.kid, kid.p, kid.n);
    for (size_t i = 0; i < j->n; i++)
        if (k.kid[0] && strcmp(j->keys[i].kid, k.kid) == 0)
            return bad(r, "its kid is that of an earlier one");
    rc = k.algorithm == JWT_RS256   ? read_rsa(r, o, &k.key)
         : k.algorithm == JWT_ES256 ? read_ec(r, o, &k.key)
                                    : read_okp(r, o, &k.key);
    if (rc < 0) {
        EVP_PKEY_free(k.key);
        return rc;
    }
    j->keys[j->n++] = k;
    return 0;
}

/* --- the set --- */

int jwks_parse(struct str text, const char *where, struct jwks **out, struct error *err)
{
    const struct json_limits limits = {.max_bytes = JWKS_BYTES_MAX, .max_depth = 8};
    struct reader r = {.where = where, .err = err};
    struct jwks *j = calloc(1, sizeof *j);
    struct json doc = {0};
    yyjson_val *keys = NULL, *o;
    size_t i, n;
    if (!j)
        return error_set(err, STATUS_NOMEM, "out of memory for the issuer's keys");
    atomic_init(&j->refs, 1);
    int rc = json_parse(&doc, text, &limits, err);
    if (rc == 0)
        rc = json_get_arr(doc.root, "keys", JSON_REQUIRED, &keys, NULL, err);
    if (rc < 0)
        error_prefix(err, "%s", where);
    if (rc == 0 && yyjson_arr_size(keys) > JWKS_KEYS_MAX)
        rc = error_set(err, STATUS_INVALID, "%s: it holds more than %d keys", where, JWKS_KEYS_MAX);
    if (rc == 0) {
        yyjson_arr_foreach(keys, i, n, o)
        {
            r.index = i + 1;
            if (rc == 0)
                rc = read_key(&r, o, j);
        }
    }
    if (rc == 0 && j->n == 0)
        rc = error_set(err, STATUS_INVALID, "%s: none of its keys verifies RS256, ES256 or EdDSA", where);
    json_release(&doc);
    if (rc < 0) {
        jwks_unref(j);
        return rc;
    }
    *out = j;
    return 0;
}

struct jwks *jwks_ref(struct jwks *j)
{
    atomic_fetch_add_explicit(&j->refs, 1, memory_order_relaxed);
    return j;
}

bool jwks_due(uint64_t last_ns, bool failed, bool unknown, uint64_t refresh_ns, uint64_t now_ns)
{
    uint64_t since = now_ns - last_ns;
    return !last_ns || since >= refresh_ns || ((failed || unknown) && since >= REFETCH_NS);
}

void jwks_unref(struct jwks *j)
{
    if (!j || atomic_fetch_sub_explicit(&j->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < j->n; i++)
        EVP_PKEY_free(j->keys[i].key);
    free(j);
}

size_t jwks_count(const struct jwks *j)
{
    return j->n;
}
