/* test_jwt.c: tokens against PyJWT's (jwt_vectors.h), the clock passed in; base64url against RFC 4648's vectors; when to ask again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"
#include "base/status.h"
#include "edge/edge.h"
#include "edge/jwt.h"
#include "edge/jwt_priv.h"
#include "jwt_vectors.h"

#define NOW 1800000000u
#define END 4102444800u

static const struct jwt_rules rules = {
    .issuer = "joe", .audience = "us", .scope_claim = "scope", .scope_prefix = "", .tenant_claim = "tenant", .skew_s = 30};

static struct jwks *keys(void)
{
    struct jwks *j = NULL;
    struct error err = {0};
    int rc = jwks_parse(str_of(vector_jwks), "set", &j, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    return j;
}

static int verify(const struct jwks *j, const struct jwt_rules *r, const char *token, uint64_t now)
{
    struct edge_identity *who;
    struct error err = {0};
    int rc = jwt_verify(j, r, str_of(token), now, &who, &err);
    assert_int_equal(rc == 0, who != NULL);
    assert_int_equal(rc == 0, err.text[0] == 0);
    if (who) {
        assert_string_equal(who->id, "ann");
        assert_string_equal(who->tenant, "acme");
        assert_int_equal(who->scopes, EDGE_READ);
        assert_int_equal(who->expires_s, END + r->skew_s);
    }
    edge_identity_unref(who);
    return rc;
}

static void test_good(void **state)
{
    (void)state;
    struct jwks *j = keys();
    assert_int_equal(jwks_count(j), 3);
    for (size_t i = 0; i < COUNT_OF(vector_tokens); i++)
        assert_int_equal(verify(j, &rules, vector_tokens[i], NOW), 0);
    jwks_unref(j);
}

static void test_clock(void **state)
{
    (void)state;
    struct jwks *j = keys();
    struct jwt_rules wide = rules;
    wide.skew_s = 1000; /* cut to 60 */
    const char *t = vector_tokens[2];
    assert_int_equal(verify(j, &rules, t, END + 29), 0);
    assert_int_equal(verify(j, &rules, t, END + 30), STATUS_UNAUTHENTICATED);
    assert_int_equal(verify(j, &rules, t, 1000000000 - 30), 0);
    assert_int_equal(verify(j, &rules, t, 1000000000 - 31), STATUS_UNAUTHENTICATED);
    struct edge_identity *who;
    assert_int_equal(jwt_verify(j, &wide, str_of(t), END + 60, &who, NULL), STATUS_UNAUTHENTICATED);
    jwks_unref(j);
}

static void test_rules(void **state)
{
    (void)state;
    struct jwks *j = keys();
    struct jwt_rules other = rules;
    other.issuer = "jo";
    assert_int_equal(verify(j, &other, vector_tokens[0], NOW), STATUS_UNAUTHENTICATED);
    other = rules;
    other.audience = "them";
    assert_int_equal(verify(j, &other, vector_tokens[0], NOW), STATUS_UNAUTHENTICATED);
    jwks_unref(j);
}

/* Any one character of the token changed; any part of it alone. */
static void test_every_character(void **state)
{
    (void)state;
    struct jwks *j = keys();
    struct edge_identity *who;
    char token[2048];
    for (size_t k = 0; k < COUNT_OF(vector_tokens); k++) {
        size_t n = strlen(vector_tokens[k]);
        for (size_t i = 0; i < n; i++) {
            memcpy(token, vector_tokens[k], n + 1);
            token[i] = token[i] == 'A' ? 'B' : 'A';
            int rc = jwt_verify(j, &rules, str_of(token), NOW, &who, NULL);
            assert_true(rc == STATUS_UNAUTHENTICATED || rc == STATUS_NOT_FOUND);
            assert_int_equal(jwt_verify(j, &rules, (struct str){vector_tokens[k], i}, NOW, &who, NULL), STATUS_UNAUTHENTICATED);
        }
    }
    jwks_unref(j);
}

static void test_unknown_key(void **state)
{
    (void)state;
    struct jwks *j = NULL;
    struct edge_identity *who;
    /* of the three only RFC 8037's own Ed25519 key, under another name */
    const char *set = "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"z\",\"x\":\"11qYAYKxCrfVS_"
                      "7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}]}";
    assert_int_equal(jwks_parse(str_of(set), "set", &j, NULL), 0);
    assert_int_equal(jwt_verify(j, &rules, str_of(vector_tokens[2]), NOW, &who, NULL), STATUS_NOT_FOUND);
    /* a token that is refused for itself doesn't ask for keys */
    assert_int_equal(jwt_verify(j, &rules, str_of(vector_tokens[2]), END + 99, &who, NULL), STATUS_UNAUTHENTICATED);
    jwks_unref(j);
}

static void test_base64url(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"", ""}, {"Zg", "f"}, {"Zm8", "fo"}, {"Zm9v", "foo"}, {"Zm9vYg", "foob"}, {"Zm9vYmFy", "foobar"}, {"_-8", "\xff\xef"}};
    static const char *const bad[] = {"Z", "Zg==", "Zh", "Zm9", "Zm9v ", "Zm+v", "Zm/v", "Zm9vY", "\xff\xff"};
    uint8_t out[16];
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        int n = jwt__decode(str_of(good[i][0]), out, sizeof out);
        assert_int_equal(n, strlen(good[i][1]));
        assert_memory_equal(out, good[i][1], (size_t)n);
    }
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_int_equal(jwt__decode(str_of(bad[i]), out, sizeof out), -1);
    assert_int_equal(jwt__decode(STR("Zm9vYmFy"), out, 5), -1);
}

static void test_when_to_ask(void **state)
{
    (void)state;
    const uint64_t s = 1000000000u, refresh = 600 * s, at = 5000 * s;
    assert_true(jwks_due(0, false, false, refresh, at));
    assert_false(jwks_due(at, false, false, refresh, at + 599 * s));
    assert_true(jwks_due(at, false, false, refresh, at + 600 * s));
    assert_false(jwks_due(at, false, true, refresh, at + 29 * s));
    assert_true(jwks_due(at, false, true, refresh, at + 30 * s));
    assert_false(jwks_due(at, true, false, refresh, at + 29 * s));
    assert_true(jwks_due(at, true, false, refresh, at + 30 * s));
}

/* Through the authorisation point: remembered tokens end with their keys. */
static void test_edge_forgets_with_the_keys(void **state)
{
    (void)state;
    const struct edge_options o = {.tokens = &rules};
    struct edge *e = edge_create(&o);
    struct edge_identity *who;
    enum edge_verdict verdict;
    struct error err;
    char header[2048];
    size_t n;
    snprintf(header, sizeof header, "Bearer %s", vector_tokens[1]);
    struct edge_ask ask = {.credentials.authorization = str_of(header), .need.scope = EDGE_READ, .now_s = NOW};
    assert_true(edge_is_closed(e));
    assert_int_equal(edge_authorise(e, &ask, &who, &verdict, &err), STATUS_UNAVAILABLE);
    assert_int_equal(edge_set_issuer_keys(e, str_of(vector_jwks), "set", &n, &err), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(edge_authorise(e, &ask, &who, &verdict, &err), 0);
        assert_int_equal(verdict, EDGE_ALLOWED);
        edge_identity_unref(who);
    }
    assert_false(edge_misses_key(e, false));
    assert_int_equal(edge_set_issuer_keys(e,
                                          STR("{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"z\","
                                              "\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}]}"),
                                          "set", &n, &err),
                     0);
    assert_int_equal(edge_authorise(e, &ask, &who, &verdict, &err), STATUS_UNAUTHENTICATED);
    assert_null(who);
    assert_true(edge_misses_key(e, true));
    assert_false(edge_misses_key(e, false));
    /* a broken set changes nothing */
    assert_int_equal(edge_set_issuer_keys(e, STR("{}"), "set", &n, &err), STATUS_INVALID);
    edge_destroy(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_rules),       cmocka_unit_test(test_every_character),
        cmocka_unit_test(test_unknown_key), cmocka_unit_test(test_base64url),
        cmocka_unit_test(test_when_to_ask), cmocka_unit_test(test_edge_forgets_with_the_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
