/* test_keys.c: keys, their file and times. Hashes were made with sha256sum, times with `date -u`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"
#include "base/status.h"
#include "edge/keys.h"

/* printf '%b' '\x00...\x0f' "$KEY" | sha256sum, the salt being the bytes 00 to 0f */
#define KEY  "inferd_0011223344556677_000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define SALT "000102030405060708090a0b0c0d0e0f"
#define HASH "00cec7e9ea7ed44aba61f6527ddc409c2d24e01dbdedd488f603b10326bddbc1"
#define LINE                                                                                                                   \
    "{\"id\":\"0011223344556677\",\"name\":\"ci\",\"scopes\":\"infer,read\",\"salt\":\"" SALT "\",\"hash\":\"" HASH "\"}\n"

static void parse(struct key_table *t, const char *text)
{
    struct error err = {0};
    int rc = key_table_parse(str_of(text), "keys", 1, t, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
}

static void test_right_key_only(void **state)
{
    (void)state;
    struct key_table t;
    char key[KEY_TEXT_BYTES];
    parse(&t, "# ours\n\n" LINE);
    assert_int_equal(t.n, 1);
    const struct key_entry *e = key_table_check(&t, STR(KEY));
    assert_non_null(e);
    assert_string_equal(e->identity->name, "ci");
    assert_string_equal(e->identity->tenant, "default");
    assert_string_equal(e->identity->models, "*");
    assert_int_equal(e->identity->scopes, EDGE_INFER | EDGE_READ);
    assert_int_equal(e->line, 3);
    for (size_t i = 0; i < sizeof key - 1; i++) { /* any one character changed */
        memcpy(key, KEY, sizeof key);
        key[i] = key[i] == '7' ? '6' : '7';
        assert_null(key_table_check(&t, str_of(key)));
    }
    for (size_t n = 0; n < sizeof key - 1; n++)
        assert_null(key_table_check(&t, (struct str){KEY, n}));
    assert_null(key_table_check(&t, STR(KEY "0")));
    assert_null(key_table_check(&t, (struct str){0}));
    key_table_release(&t);
}

static void test_made_key_is_found(void **state)
{
    (void)state;
    uint8_t random[KEY_RANDOM_BYTES];
    char key[KEY_TEXT_BYTES], id[KEY_ID_BYTES + 1];
    struct key_table t;
    struct buf line;
    for (size_t i = 0; i < sizeof random; i++)
        random[i] = (uint8_t)(i < 8 ? i * 0x11 : i < 40 ? i - 8 : i - 40);
    struct key_spec s = {.who = {.name = STR("ci"),
                                 .scopes = EDGE_INFER | EDGE_READ,
                                 .tenant = STR("acme"),
                                 .models = STR("a*,b"),
                                 .quota = STR("gold"),
                                 .expires_s = 1798718400},
                         .created_s = 1764547200};
    buf_init(&line);
    assert_int_equal(key_make(&s, random, &line, key, id, NULL), 0);
    assert_string_equal(key, KEY);
    assert_string_equal(id, "0011223344556677");
    assert_null(strstr(buf_z(&line), key + 24)); /* the secret is not in the file */
    assert_string_equal(buf_z(&line),
                        "{\"id\":\"0011223344556677\",\"name\":\"ci\",\"tenant\":\"acme\",\"scopes\":\"infer,read\","
                        "\"models\":\"a*,b\",\"class\":\"gold\",\"created\":\"2025-12-01T00:00:00Z\","
                        "\"expires\":\"2026-12-31T12:00:00Z\",\"salt\":\"" SALT "\",\"hash\":\"" HASH "\"}\n");
    parse(&t, buf_z(&line));
    assert_ptr_equal(key_table_check(&t, STR(KEY)), &t.entries[0]);
    assert_int_equal(t.entries[0].identity->expires_s, 1798718400);
    key_table_release(&t);
    buf_release(&line);
}

static void test_certificates(void **state)
{
    (void)state;
    struct key_table t;
    parse(&t, "{\"id\":\"00000000000000aa\",\"name\":\"svc\",\"scopes\":\"admin\",\"certificate\":\"URI:spiffe://x/y\"}");
    assert_ptr_equal(key_table_certificate(&t, STR("URI:spiffe://x/y")), &t.entries[0]);
    assert_null(key_table_certificate(&t, STR("URI:spiffe://x/")));
    /* an entry without a hash is nobody's key */
    assert_null(
        key_table_check(&t, STR("inferd_00000000000000aa_0000000000000000000000000000000000000000000000000000000000000000")));
    key_table_release(&t);
}

static void test_bad_files(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"{", "keys:1: "},
        {LINE LINE, "keys:2: id: \"0011223344556677\" is that of line 1"},
        {"{\"id\":\"1\",\"name\":\"a\",\"scopes\":\"read\"}", "keys:1: id: \"1\" is not accepted; give 16 hex digits"},
        {"\n{\"name\":\"a\",\"scopes\":\"read\"}", "keys:2: "},
        {"{\"id\":\"00000000000000aa\",\"name\":\"a\",\"scopes\":\"red\"}", "keys:1: scope \"red\" is not known"},
        {"{\"id\":\"00000000000000aa\",\"name\":\"a\",\"scopes\":\"read\"}", "keys:1: salt: "},
        {"{\"id\":\"00000000000000aa\",\"name\":\"a b\",\"scopes\":\"read\",\"certificate\":\"DNS:x\"}",
         "keys:1: name: \"a b\""},
        {"{\"id\":\"00000000000000aa\",\"name\":\"a\",\"scopes\":\"read\",\"certificate\":\"x\"}",
         "keys:1: certificate: \"x\""},
        {"{\"id\":\"00000000000000aa\",\"name\":\"a\",\"scopes\":\"read\",\"certificate\":\"DNS:x\",\"models\":\"a/b\"}",
         "keys:1: models: \"a/b\""},
        {"{\"id\":\"00000000000000aa\",\"name\":\"a\",\"scopes\":\"read\",\"certificate\":\"DNS:x\",\"expires\":\"2026-02-"
         "29\"}",
         "keys:1: expires: \"2026-02-29\""},
        {"{\"id\":\"00000000000000aa\",\"name\":\"a\",\"scopes\":\"read\",\"certificate\":\"DNS:x\",\"tennant\":\"x\"}",
         "keys:1: unknown field \"tennant\""},
        {"{\"id\":\"00000000000000aa\",\"name\":\"a\",\"scopes\":\"read\",\"scopes\":\"admin\",\"certificate\":\"DNS:x\"}",
         "keys:1: "},
        {"[]", "keys:1: "},
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct key_table t;
        struct error err = {0};
        assert_int_equal(key_table_parse(str_of(bad[i][0]), "keys", 1, &t, &err), STATUS_INVALID);
        if (strncmp(err.text, bad[i][1], strlen(bad[i][1])) != 0)
            fail_msg("case %zu: \"%s\" does not begin with \"%s\"", i, err.text, bad[i][1]);
    }
}

static void test_times(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t s;
    } good[] = {{"1970-01-01", 0},
                {"2000-02-29T23:59:59Z", 951868799},
                {"2026-11-30T20:40:28Z", 1796071228},
                {"2100-03-01", 4107542400},
                {"9999-12-31T23:59:59Z", 253402300799}};
    static const char *const bad[] = {"",
                                      "2026-1-01",
                                      "1969-12-31",
                                      "2026-13-01",
                                      "2026-00-10",
                                      "2100-02-29",
                                      "2026-04-31",
                                      "2026-01-01T24:00:00Z",
                                      "2026-01-01T00:60:00Z",
                                      "2026-01-01T00:00:00",
                                      "2026-01-01 00:00:00Z",
                                      "2026-01-01T00:00:00+"};
    char text[24];
    uint64_t s;
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        assert_true(key_time_parse(str_of(good[i].text), &s));
        assert_int_equal(s, good[i].s);
        key_time_render(s, text);
        assert_memory_equal(text, good[i].text, strlen(good[i].text));
    }
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_false(key_time_parse(str_of(bad[i]), &s));
}

static void test_patterns(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool match;
    } cases[] = {{"*", "a", true},
                 {"*", "", true},
                 {"a*", "a", true},
                 {"a*", "ba", false},
                 {"a?c", "abc", true},
                 {"a?c", "ac", false},
                 {"*a*b", "xaayb", true},
                 {"*a*b", "xaayc", false},
                 {"x,y*", "yes", true},
                 {"x,y*", "xy", false},
                 {"a**b", "ab", true},
                 {"resnet", "resnet-50", false},
                 {"*-50", "resnet-50", true},
                 {"*x*x*x*x*y", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", false}};
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_int_equal(edge_pattern_match(str_of(cases[i].pattern), str_of(cases[i].name)), cases[i].match);
    assert_true(edge_pattern_valid(STR("a*,b?")));
    assert_false(edge_pattern_valid(STR("")));
    assert_false(edge_pattern_valid(STR("a,")));
    assert_false(edge_pattern_valid(STR(",a")));
    assert_false(edge_pattern_valid(STR("a b")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_key_only), cmocka_unit_test(test_made_key_is_found),
        cmocka_unit_test(test_certificates),   cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_times),          cmocka_unit_test(test_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
