/* test_redis_url.c: addresses of a Redis; expected parts are read off the texts by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"
#include "base/status.h"
#include "cluster/redis_url.h"

static void test_good(void **state)
{
    (void)state;
    static const struct {
        const char *text, *address, *host, *user, *password;
        uint32_t db;
        bool tls, numeric;
    } cases[] = {
        {"redis://cache", "cache:6379", "cache", "", "", 0, false, false},
        {"redis://10.0.0.1:6380/7", "10.0.0.1:6380", "10.0.0.1", "", "", 7, false, true},
        {"rediss://ops:s%40crt%2F@cache.example:1", "cache.example:1", "cache.example", "ops", "s@crt/", 0, true, false},
        {"redis://:p@ss:w@h/", "h:6379", "h", "", "p@ss:w", 0, false, false},
        {"redis://only@h", "h:6379", "h", "", "only", 0, false, false},
        {"redis://[2001:db8::1]:99/65535", "[2001:db8::1]:99", "2001:db8::1", "", "", 65535, false, true},
        {"redis://[::1]", "[::1]:6379", "::1", "", "", 0, false, true},
        {"unix:/run/redis.sock", "unix:/run/redis.sock", "", "", "", 0, false, true},
        {"unix:/run/redis.sock?db=3", "unix:/run/redis.sock", "", "", "", 3, false, true},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct redis_url u;
        struct error err = {0};
        assert_int_equal(redis_url_parse(cases[i].text, &u, &err), 0);
        assert_string_equal(u.address, cases[i].address);
        assert_string_equal(u.host, cases[i].host);
        assert_string_equal(u.user, cases[i].user);
        assert_string_equal(u.password, cases[i].password);
        assert_int_equal(u.db, cases[i].db);
        assert_int_equal(u.tls, cases[i].tls);
        assert_int_equal(u.numeric, cases[i].numeric);
    }
}

static void test_sentinels(void **state)
{
    (void)state;
    struct redis_url u;
    struct error err = {0};
    assert_int_equal(redis_url_parse("redis+sentinel://ops:pw@s1,10.0.0.2:26380,[::1]:5/cache-a/3", &u, &err), 0);
    assert_int_equal(u.n_sentinels, 3);
    assert_string_equal(u.sentinels[0].host, "s1");
    assert_int_equal(u.sentinels[0].port, 26379);
    assert_string_equal(u.sentinels[1].host, "10.0.0.2");
    assert_int_equal(u.sentinels[1].port, 26380);
    assert_string_equal(u.sentinels[2].host, "::1");
    assert_int_equal(u.sentinels[2].port, 5);
    assert_string_equal(u.master, "cache-a");
    assert_string_equal(u.address, "sentinel/cache-a");
    assert_string_equal(u.user, "ops");
    assert_string_equal(u.password, "pw");
    assert_int_equal(u.db, 3);
    assert_false(u.numeric || u.tls);
    assert_int_equal(redis_url_parse("redis://h", &u, &err), 0);
    assert_int_equal(u.n_sentinels, 0);
}

static void test_bad(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"", "scheme"},
        {"cache:6379", "scheme"},
        {"http://h", "scheme"},
        {"redis://", "host"},
        {"redis://h:0", "port"},
        {"redis://h:65536", "port"},
        {"redis://h:", "port"},
        {"redis://h:x", "port"},
        {"redis://h/x", "database"},
        {"redis://h/65536", "database"},
        {"redis://[::1", "bracket"},
        {"redis://[::1]x", "HOST:PORT"},
        {"redis://a b", "host"},
        {"redis://u:@h", "password"},
        {"redis://:%zz@h", "credentials"},
        {"redis://:%4@h", "credentials"},
        {"redis://:%00@h", "credentials"},
        {"redis+sentinel://h", "none is named"},
        {"redis+sentinel://h/", "none is named"},
        {"redis+sentinel:///m", "host"},
        {"redis+sentinel://a,,b/m", "host"},
        {"redis+sentinel://a:0/m", "port"},
        {"redis+sentinel://a/m/x", "database"},
        {"redis+sentinel://a/m n", "character"},
        {"redis+sentinel://1,2,3,4,5,6,7,8,9/m", "more than 8"},
        {"unix:run", "path"},
        {"unix:/r/s?x=1", "?db=DB"},
        {"unix:/r/s?db=", ""},
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct redis_url u;
        struct error err = {0};
        int rc = redis_url_parse(bad[i][0], &u, &err);
        if (!bad[i][1][0])
            continue; /* an empty database is none */
        assert_int_equal(rc, STATUS_INVALID);
        if (!strstr(err.text, bad[i][1]))
            fail_msg("%s: \"%s\" does not say \"%s\"", bad[i][0], err.text, bad[i][1]);
        assert_null(strstr(err.text, "%zz"));
    }
    char longest[700] = "redis://:";
    memset(longest + 9, 'p', 600);
    memcpy(longest + 609, "@h", 3);
    struct redis_url u;
    assert_int_equal(redis_url_parse(longest, &u, NULL), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_sentinels),
                                       cmocka_unit_test(test_bad)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
