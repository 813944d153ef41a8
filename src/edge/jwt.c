/* jwt.c: see jwt.h. Order: shape, header, claims, key, signature. Claims come before the signature so that a token that would be refused
 * anyway can't make us ask the issuer for new keys. */
#include <openssl/ecdsa.h>
#include <openssl/err.h>

#include <math.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "edge/jwt_priv.h"
#include "wire/json.h"

#define SIGNATURE_MAX 1024
#define MODELS_BYTES  256
#define SCOPES_MAX    256 /* words */

static const struct json_limits LIMITS = {.max_bytes = JWT_BYTES_MAX, .max_depth = 16};

static int refuse(struct error *err, const char *text)
{
    return error_set(err, STATUS_UNAUTHENTICATED, "the token %s", text);
}

bool jwt_looks_like(struct str t)
{
    size_t dots = 0;
    for (size_t i = 0; i < t.n; i++)
        dots += t.p[i] == '.';
    return dots == 2;
}

/* --- parts --- */

struct parts {
    struct str header, payload, signature;
    struct str signed_text; /* header.payload */
};

static int split(struct str t, struct parts *p, struct error *err)
{
    if (t.n > JWT_BYTES_MAX)
        return refuse(err, "is longer than 8192 bytes");
    struct str rest = t;
    if (!jwt_looks_like(t) || !str_cut(&rest, '.', &p->header) || !str_cut(&rest, '.', &p->payload))
        return refuse(err, "is not three parts with dots between");
    p->signature = rest;
    p->signed_text = (struct str){t.p, p->header.n + 1 + p->payload.n};
    return 0;
}

/* A part as a JSON object. `bytes` has JWT_BYTES_MAX. */
static int open_part(struct str part, uint8_t *bytes, struct json *j, struct error *err)
{
    struct error inner;
    int n = jwt__decode(part, bytes, JWT_BYTES_MAX);
    if (n < 0)
        return refuse(err, "is not base64url");
    if (json_parse(j, (struct str){(const char *)bytes, (size_t)n}, &LIMITS, &inner) < 0)
        return refuse(err, "holds a part that is not JSON");
    if (yyjson_is_obj(j->root))
        return 0;
    json_release(j);
    *j = (struct json){0};
    return refuse(err, "holds a part that is no JSON object");
}

/* --- header --- */

static bool is_jwt_type(struct str typ)
{
    const struct str front = STR("application/");
    if (typ.n > front.n && str_ieq((struct str){typ.p, front.n}, front))
        typ = (struct str){typ.p + front.n, typ.n - front.n};
    return str_ieqz(typ, "JWT") || str_ieqz(typ, "at+jwt");
}

static int read_header(yyjson_val *h, enum jwt_algorithm *alg, struct str *kid, struct error *err)
{
    static const char *const never[] = {"crit", "jku", "jwk", "x5u", "x5c", "b64", "zip", "enc"};
    struct error inner;
    struct str name, typ = {0};
    for (size_t i = 0; i < COUNT_OF(never); i++)
        if (yyjson_obj_get(h, never[i]))
            return error_set(err, STATUS_UNAUTHENTICATED, "the token's header has \"%s\", which is not accepted", never[i]);
    if (json_get_str(h, "alg", JSON_REQUIRED, &name, NULL, &inner) < 0 || !jwt__algorithm(name, alg))
        return refuse(err, "is signed by an algorithm that is not accepted; accepted: RS256, ES256, EdDSA");
    if (json_get_str(h, "typ", JSON_OPTIONAL, &typ, NULL, &inner) < 0 || (typ.n && !is_jwt_type(typ)))
        return refuse(err, "is of another type than JWT");
    if (json_get_str(h, "kid", JSON_OPTIONAL, kid, NULL, &inner) < 0)
        return refuse(err, "has a kid that is not one string");
    return 0;
}

/* --- claims --- */

static bool read_time(yyjson_val *p, const char *name, enum json_need need, double *out, bool *found)
{
    struct error inner;
    return json_get_f64(p, name, need, 0, 9007199254740992.0, out, found, &inner) == 0;
}

static int check_times(yyjson_val *p, const struct jwt_rules *rules, uint64_t now_s, double *exp, struct error *err)
{
    double now = (double)now_s, skew = (double)MIN_OF(rules->skew_s, JWT_SKEW_MAX_S), nbf = 0, iat = 0;
    bool found;
    if (!read_time(p, "exp", JSON_REQUIRED, exp, &found))
        return refuse(err, "has no usable exp");
    if (now >= *exp + skew)
        return refuse(err, "has expired");
    if (!read_time(p, "nbf", JSON_OPTIONAL, &nbf, &found) || !read_time(p, "iat", JSON_OPTIONAL, &iat, &found))
        return refuse(err, "has an nbf or iat that is no time");
    if (nbf > now + skew || iat > now + skew)
        return refuse(err, "is not valid yet");
    return 0;
}

static bool has_audience(yyjson_val *p, const char *want)
{
    struct error inner;
    yyjson_val *aud = NULL, *one;
    size_t i, n;
    bool found = false;
    if (json_get_any(p, "aud", JSON_REQUIRED, &aud, NULL, &inner) < 0)
        return false;
    if (yyjson_is_str(aud))
        return str_eqz(json_str(aud), want);
    yyjson_arr_foreach(aud, i, n, one) found |= yyjson_is_str(one) && str_eqz(json_str(one), want);
    return found;
}

static int check_claims(yyjson_val *p, const struct jwt_rules *rules, uint64_t now_s, double *exp, struct error *err)
{
    struct error inner;
    struct str iss;
    if (json_get_str(p, "iss", JSON_REQUIRED, &iss, NULL, &inner) < 0 || !str_eqz(iss, rules->issuer))
        return refuse(err, "is from another issuer");
    if (rules->audience && !has_audience(p, rules->audience))
        return refuse(err, "is for another audience");
    return check_times(p, rules, now_s, exp, err);
}

/* --- who --- */

/* A word of the scope claim: one of ours, or somebody else's. */
static void add_scope(const struct jwt_rules *rules, struct str word, unsigned *scopes)
{
    struct str prefix = str_of(rules->scope_prefix);
    struct error inner;
    unsigned bit;
    if (!str_starts(word, prefix))
        return;
    word = (struct str){word.p + prefix.n, word.n - prefix.n};
    if (!memchr(word.p, ',', word.n) && !memchr(word.p, ' ', word.n) && edge_scopes_parse(word, &bit, &inner) == 0)
        *scopes |= bit;
}

static bool read_scopes(yyjson_val *p, const struct jwt_rules *rules, unsigned *scopes)
{
    struct error inner;
    yyjson_val *v = NULL, *one;
    size_t i, n;
    if (json_get_any(p, rules->scope_claim, JSON_OPTIONAL, &v, NULL, &inner) < 0)
        return false;
    if (yyjson_is_str(v)) {
        struct str rest = json_str(v), word;
        while (str_cut(&rest, ' ', &word))
            if (word.n)
                add_scope(rules, word, scopes);
        return true;
    }
    yyjson_arr_foreach(v, i, n, one)
    {
        if (!yyjson_is_str(one) || i == SCOPES_MAX)
            return false;
        if (yyjson_get_len(one))
            add_scope(rules, json_str(one), scopes);
    }
    return !v || yyjson_is_arr(v);
}

/* A label claim; absent: empty. */
static bool read_label(yyjson_val *p, const char *name, struct str *out)
{
    struct error inner;
    return json_get_str(p, name, JSON_OPTIONAL, out, NULL, &inner) == 0 && (!out->n || edge_label_valid(*out));
}

static int make_identity(yyjson_val *p, const struct jwt_rules *rules, double exp, struct edge_identity **who,
                         struct error *err)
{
    struct error inner;
    struct edge_identity_spec s = {.kind = EDGE_TOKEN, .expires_s = (uint64_t)exp + MIN_OF(rules->skew_s, JWT_SKEW_MAX_S)};
    if (json_get_str(p, "sub", JSON_OPTIONAL, &s.id, NULL, &inner) < 0 || s.id.n > 255 || (s.id.n && memchr(s.id.p, 0, s.id.n)))
        return refuse(err, "has a sub that is no string of at most 255 bytes");
    if (!read_scopes(p, rules, &s.scopes))
        return refuse(err, "has a scope claim that is neither a string nor a list of strings");
    if (!read_label(p, rules->tenant_claim, &s.tenant))
        return refuse(err, "has a tenant claim that is no name of 1 to 64 characters of A-Z a-z 0-9 . _ - @ : /");
    if (!read_label(p, "inferd_class", &s.quota))
        return refuse(err, "has an inferd_class that is no name");
    if (json_get_str(p, "inferd_models", JSON_OPTIONAL, &s.models, NULL, &inner) < 0 ||
        (s.models.n && !edge_pattern_valid(s.models)))
        return refuse(err, "has inferd_models that are no names with * and ?, separated by commas");
    s.name = s.id;
    *who = edge_identity_create(&s);
    return *who ? 0 : error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
}

/* --- signature --- */

/* The key the header names; without a kid the only one of that algorithm. */
static const struct jwk *find_key(const struct jwks *j, struct str kid, enum jwt_algorithm alg)
{
    const struct jwk *only = NULL;
    size_t n = 0;
    for (size_t i = 0; i < j->n; i++) {
        const struct jwk *k = &j->keys[i];
        if (kid.n && str_eqz(kid, k->kid))
            return k;
        if (!kid.n && k->algorithm == alg) {
            only = k;
            n++;
        }
    }
    return n == 1 ? only : NULL;
}

/* r and s, 32 bytes each (RFC 7518, 3.4), as the DER that OpenSSL wants. Its length; 0: no memory. */
static size_t to_der(const uint8_t raw[64], uint8_t *out, size_t cap)
{
    ECDSA_SIG *sig = ECDSA_SIG_new();
    BIGNUM *r = BN_bin2bn(raw, 32, NULL), *s = BN_bin2bn(raw + 32, 32, NULL);
    size_t n = 0;
    if (sig && r && s && ECDSA_SIG_set0(sig, r, s) == 1) {
        r = s = NULL;
        int len = i2d_ECDSA_SIG(sig, NULL);
        if (len > 0 && (size_t)len <= cap)
            n = (size_t)i2d_ECDSA_SIG(sig, &out);
    }
    BN_free(r);
    BN_free(s);
    ECDSA_SIG_free(sig);
    return n;
}

static bool signature_is_right(const struct jwk *k, const struct parts *p)
{
    uint8_t raw[SIGNATURE_MAX], der[80];
    const uint8_t *sig = raw;
    int n = jwt__decode(p->signature, raw, sizeof raw);
    size_t sig_n = n > 0 ? (size_t)n : 0;
    if (k->algorithm != JWT_RS256 && n != 64)
        return false;
    if (k->algorithm == JWT_ES256) {
        sig_n = to_der(raw, der, sizeof der);
        sig = der;
    }
    if (!sig_n)
        return false;
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    bool ok = c && EVP_DigestVerifyInit(c, NULL, k->algorithm == JWT_EDDSA ? NULL : EVP_sha256(), NULL, k->key) == 1 &&
              EVP_DigestVerify(c, sig, sig_n, (const uint8_t *)p->signed_text.p, p->signed_text.n) == 1;
    EVP_MD_CTX_free(c);
    ERR_clear_error();
    return ok;
}

/* --- the whole --- */

static int check_signature(const struct jwks *keys, const struct parts *p, struct str kid, enum jwt_algorithm alg,
                           struct error *err)
{
    const struct jwk *k = find_key(keys, kid, alg);
    if (!k)
        return error_set(err, STATUS_NOT_FOUND, "the token is signed by a key that its issuer has not published yet");
    if (k->algorithm != alg)
        return refuse(err, "is signed by another algorithm than its key is for");
    return signature_is_right(k, p) ? 0 : refuse(err, "has a wrong signature");
}

int jwt_verify(const struct jwks *keys, const struct jwt_rules *rules, struct str token, uint64_t now_s,
               struct edge_identity **who, struct error *err)
{
    uint8_t bytes[JWT_BYTES_MAX];
    struct json header = {0}, payload = {0};
    struct parts p;
    struct str kid = {0};
    enum jwt_algorithm alg = JWT_RS256;
    double exp = 0;
    *who = NULL;
    int rc = split(token, &p, err);
    if (rc == 0)
        rc = open_part(p.header, bytes, &header, err);
    if (rc == 0)
        rc = read_header(header.root, &alg, &kid, err);
    if (rc == 0)
        rc = open_part(p.payload, bytes, &payload, err);
    if (rc == 0)
        rc = check_claims(payload.root, rules, now_s, &exp, err);
    if (rc == 0)
        rc = check_signature(keys, &p, kid, alg, err);
    if (rc == 0)
        rc = make_identity(payload.root, rules, exp, who, err);
    json_release(&header);
    json_release(&payload);
    return rc;
}
