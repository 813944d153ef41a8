/* test_client.c: whose request it is behind proxies, and which pages may ask. Cases are written out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/size.h"
#include "edge/client.h"

static void test_forwarded(void **state)
{
    (void)state;
    struct network trusted[2];
    assert_int_equal(network_parse(STR("10.0.0.0/8"), &trusted[0], NULL), 0);
    assert_int_equal(network_parse(STR("2001:db8::/32"), &trusted[1], NULL), 0);
    static const struct {
        const char *peer, *values[3], *client; /* client NULL: the peer */
    } cases[] = {
        {"10.0.0.1", {"192.0.2.7"}, "192.0.2.7"},
        {"192.0.2.1", {"192.0.2.7"}, NULL},                              /* not a proxy of ours: anybody can write a header */
        {"10.0.0.1", {"6.6.6.6, 192.0.2.7"}, "192.0.2.7"},               /* what the client wrote himself stands left */
        {"10.0.0.1", {"6.6.6.6, 192.0.2.7, 10.0.0.2"}, "192.0.2.7"},     /* through two proxies */
        {"10.0.0.1", {"6.6.6.6", "192.0.2.7", "10.0.0.2"}, "192.0.2.7"}, /* header lines join in order */
        {"10.0.0.1", {"10.0.0.9, 10.0.0.2"}, "10.0.0.9"},                /* all ours: the first of them */
        {"10.0.0.1", {""}, NULL},
        {"10.0.0.1", {"unknown"}, NULL},
        {"10.0.0.1", {"192.0.2.7, unknown, 10.0.0.2"}, "10.0.0.2"},
        {"10.0.0.1", {"192.0.2.7:4711"}, "192.0.2.7"},
        {"2001:db8::5", {"[2001:db9::1]:80"}, "2001:db9::1"},
        {"::ffff:10.0.0.1", {"192.0.2.7"}, "192.0.2.7"},
        {"10.0.0.1", {"192.0.2.7,"}, NULL},
        {"10.0.0.1", {NULL}, NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct str values[3];
        struct address peer, client = {{0}}, want;
        size_t n = 0;
        assert_true(address_parse(str_of(cases[i].peer), &peer));
        for (; n < 3 && cases[i].values[n]; n++)
            values[n] = str_of(cases[i].values[n]);
        if (client_address(trusted, 2, &peer, values, n, &client) != (cases[i].client != NULL))
            fail_msg("case %zu", i);
        if (!cases[i].client)
            continue;
        assert_true(address_parse(str_of(cases[i].client), &want));
        if (memcmp(&client, &want, sizeof want) != 0)
            fail_msg("case %zu", i);
    }
}

static void test_origins(void **state)
{
    (void)state;
    static const char *const list[] = {"https://app.example", "https://*.example.org", "http://localhost:3000"};
    static const char *const yes[] = {"https://app.example", "https://a.example.org", "https://a.b.example.org",
                                      "http://localhost:3000"};
    static const char *const no[] = {"http://app.example",
                                     "https://app.example:8443",
                                     "https://example.org",
                                     "https://.example.org",
                                     "null",
                                     "https://evil/.example.org",
                                     "https://evil.test#.example.org",
                                     "https://a@b.example.org",
                                     "",
                                     "https://app.example.evil"};
    for (size_t i = 0; i < COUNT_OF(yes); i++)
        assert_true(cors_allows(list, 3, str_of(yes[i])));
    for (size_t i = 0; i < COUNT_OF(no); i++)
        assert_false(cors_allows(list, 3, str_of(no[i])));
    assert_true(cors_allows((const char *const[]){"*"}, 1, STR("null")));
    for (size_t i = 0; i < COUNT_OF(list); i++)
        assert_true(cors_origin_valid(str_of(list[i])));
    static const char *const bad[] = {"",        "app.example",   "https://",   "https://a*.example", "https://*",
                                      "ftp://x", "https://*.*.x", "https://x/", "HTTPS://x"};
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_false(cors_origin_valid(str_of(bad[i])));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forwarded), cmocka_unit_test(test_origins)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
