/* Rules over text. Card numbers are the networks' published test numbers, the resident ids those of GB 11643's own examples, the social security
 * number the one that stood on wallets; what regular expressions find is written down by hand. Every text goes in whole, byte by byte and in
 * pieces of each size up to 17, and must come out the same. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/size.h"
#include "base/status.h"
#include "edge/policy.h"
#include "os/clock.h"

#define RULES 8

struct rules {
    struct policy_rule *v[RULES];
    size_t n;
};

static struct policy_rule *make(const struct policy_rule_spec *s)
{
    struct policy_rule *r = NULL;
    struct error err = {0};
    if (policy_rule_create(s, &r, &err) < 0)
        fail_msg("%s", err.text);
    return r;
}

static void add(struct rules *rs, struct policy_rule_spec s)
{
    s.name = s.name ? s.name : s.builtin;
    rs->v[rs->n++] = make(&s);
}

static void drop(struct rules *rs)
{
    for (size_t i = 0; i < rs->n; i++)
        policy_rule_destroy(rs->v[i]);
    rs->n = 0;
}

static struct redactor *redactor_of(const struct rules *rs, size_t hold, enum redactor_form form)
{
    struct redactor *r = redactor_create((const struct policy_rule *const *)rs->v, rs->n, hold, form);
    assert_non_null(r);
    return r;
}

/* Through a new redactor in pieces of `piece` bytes, the last one alone or empty. */
static int run(const struct rules *rs, size_t hold, enum redactor_form form, struct str text, size_t piece, struct buf *out)
{
    struct redactor *r = redactor_of(rs, hold, form);
    int rc = 0;
    buf_init(out);
    for (size_t at = 0; rc == 0 && at < text.n; at += piece)
        rc = redactor_push(r, (struct str){text.p + at, MIN_OF(piece, text.n - at)}, false, out);
    if (rc == 0)
        rc = redactor_push(r, (struct str){0}, true, out);
    redactor_destroy(r);
    return rc;
}

static void expect_form(const struct rules *rs, size_t hold, enum redactor_form form, const char *text, int rc,
                        const char *want)
{
    struct buf out;
    for (size_t piece = 1; piece <= 18; piece++) {
        size_t n = piece == 18 ? strlen(text) + 1 : piece;
        assert_int_equal(run(rs, hold, form, str_of(text), n, &out), rc);
        assert_string_equal(buf_z(&out), want);
        buf_release(&out);
    }
}

static void expect(const struct rules *rs, const char *text, const char *want)
{
    expect_form(rs, 0, REDACTOR_TEXT, text, 0, want);
}

static void test_cards(void **state)
{
    struct rules rs = {0};
    (void)state;
    add(&rs, (struct policy_rule_spec){.builtin = "card"});
    expect(&rs, "pay 4111111111111111 now", "pay [REDACTED:card] now");
    expect(&rs, "4111 1111 1111 1111 2 pieces", "[REDACTED:card] 2 pieces");
    expect(&rs, "4111-1111-1111-1111", "[REDACTED:card]");
    expect(&rs, "amex 3782 822463 10005.", "amex [REDACTED:card].");
    expect(&rs, "378282246310005,6011111111111117,3530111333300000,5555555555554444",
           "[REDACTED:card],[REDACTED:card],[REDACTED:card],[REDACTED:card]");
    expect(&rs,
           "a 4111\xc2\xa0"
           "1111\xc2\xa0"
           "1111\xc2\xa0"
           "1111 b",
           "a [REDACTED:card] b");
    expect(&rs, "wrong digit 4111111111111112", "wrong digit 4111111111111112");
    expect(&rs, "no issuer 1234567812345670", "no issuer 1234567812345670"); /* Luhn is right */
    expect(&rs, "longer 41111111111111111111", "longer 41111111111111111111");
    expect(&rs, "1234 4111 1111 1111 1111", "1234 [REDACTED:card]");
    drop(&rs);
}

static void test_ids(void **state)
{
    struct rules rs = {0};
    (void)state;
    add(&rs, (struct policy_rule_spec){.builtin = "cn_id"});
    add(&rs, (struct policy_rule_spec){.builtin = "us_ssn"});
    expect(&rs, "\xe5\x8f\xb7 11010519491231002X \xe3\x80\x82", "\xe5\x8f\xb7 [REDACTED:cn_id] \xe3\x80\x82");
    expect(&rs, "440524188001010014", "[REDACTED:cn_id]");
    expect(&rs, "11010519491231002x 110105194912310021", "[REDACTED:cn_id] 110105194912310021");
    expect(&rs, "078-05-1120; 987-65-4321; 000-12-3456; 078 05 1120",
           "[REDACTED:us_ssn]; 987-65-4321; 000-12-3456; [REDACTED:us_ssn]");
    expect(&rs, "078-05 1120", "078-05 1120");
    drop(&rs);
}

static void test_addresses(void **state)
{
    struct rules rs = {0};
    (void)state;
    add(&rs, (struct policy_rule_spec){.builtin = "phone"});
    add(&rs, (struct policy_rule_spec){.builtin = "email", .replacement = "<mail>"});
    expect(&rs, "call +49 30 1234567 or (212) 555-0123, 13800138000, 212-555-0123.",
           "call [REDACTED:phone] or [REDACTED:phone], [REDACTED:phone], [REDACTED:phone].");
    expect(&rs, "in 2024 we sold 1234567 of 12", "in 2024 we sold 1234567 of 12");
    expect(&rs, "write to ann.o'neil+x@mail.example.co.uk. Or a@b", "write to <mail>. Or a@b");
    drop(&rs);
}

static void test_secrets(void **state)
{
    struct rules rs = {0};
    (void)state;
    add(&rs, (struct policy_rule_spec){.builtin = "secret", .replacement = "***"});
    expect(&rs, "key=AKIAIOSFODNN7EXAMPLE;", "key=***;"); /* AWS's documentation */
    expect(&rs, "sk-proj-abcdefghijklmnopqrstuvwx1234 end", "*** end");
    expect(&rs, "task-abcdefghijklmnopqrstuvwxyz", "task-abcdefghijklmnopqrstuvwxyz");
    expect(&rs, "ghp_0123456789abcdefghijklmnopqrstuvwxyz.", "***.");
    expect(&rs,
           "-----BEGIN RSA PRIVATE "
           "KEY-----\nMIIBOgIBAAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf9Cnzj4p4WGeKLs1Pt8Qu\nKUpRKfFLfRYC9AIKjbJTWit+"
           "CqvjWYzvQwECAwEAAQ==\n-----END RSA PRIVATE KEY-----\nthat was it",
           "***\nthat was it");
    expect(&rs, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlLXRoYXQtaXMtbm90", "***");
    drop(&rs);
}

static void test_literals(void **state)
{
    const struct str list[] = {STR("Falcon"), STR("Falcon Heavy"), STR("a+b (c)")};
    struct rules rs = {0};
    (void)state;
    add(&rs, (struct policy_rule_spec){.name = "names", .literals = list, .n_literals = 3, .ignore_case = true, .words = true});
    expect(&rs, "FALCON heavy and falcon, falcons, a+b (c)",
           "[REDACTED:names] and [REDACTED:names], falcons, [REDACTED:names]");
    expect(&rs,
           "Falconheavy \xc3\xa9"
           "falcon",
           "Falconheavy \xc3\xa9"
           "falcon"); /* e acute is a letter */
    drop(&rs);
}

static void test_which_rule(void **state)
{
    struct rules rs = {0};
    (void)state;
    add(&rs, (struct policy_rule_spec){.name = "long", .regex = "abc.{0,6}xyz", .replacement = "L"});
    add(&rs, (struct policy_rule_spec){.name = "short", .regex = "ab", .replacement = "S"});
    add(&rs, (struct policy_rule_spec){.name = "inner", .regex = "bc", .replacement = "I"});
    expect(&rs, "abc123xyz", "L");                /* the first rule of those that start there, once it can't be any more */
    expect(&rs, "abc1234567xyz", "Sc1234567xyz"); /* too far: the second; the third starts later */
    expect(&rs, "bcabab", "ISS");
    expect(&rs, "ab", "S");
    drop(&rs);
}

static void test_boundaries(void **state)
{
    struct rules rs = {0};
    (void)state;
    add(&rs, (struct policy_rule_spec){.name = "start", .regex = "^foo", .replacement = "1"});
    add(&rs, (struct policy_rule_spec){.name = "end", .regex = "bar$", .replacement = "2"});
    add(&rs, (struct policy_rule_spec){.name = "word", .regex = "\\bcat\\b", .replacement = "3"});
    add(&rs, (struct policy_rule_spec){.name = "behind", .regex = "(?<=\xe2\x82\xac )\\d+", .replacement = "4"});
    expect(&rs, "foo foo bar bar", "1 foo bar 2");
    expect(&rs, "cat concat cats cat", "3 concat cats 3");
    expect(&rs, "\xe2\x82\xac 100, $ 100", "\xe2\x82\xac 4, $ 100");
    drop(&rs);
}

/* A start is judged by hold_bytes of text: what may go on for ever is cut there, wherever the pieces end. */
static void test_the_bound(void **state)
{
    struct rules rs = {0};
    struct buf text, want;
    (void)state;
    add(&rs, (struct policy_rule_spec){.name = "quoted", .regex = "<[^>]*>", .replacement = "#"});
    add(&rs, (struct policy_rule_spec){.name = "run", .regex = "x+", .replacement = "X"});
    buf_init(&text), buf_init(&want);
    buf_append_z(&text, "a<short>b<");
    buf_append_z(&want, "a#b<");
    for (int i = 0; i < 100; i++) {
        buf_append_c(&text, 'y');
        buf_append_c(&want, 'y');
    }
    buf_append_z(&text, ">c");
    buf_append_z(&want, ">c");
    for (int i = 0; i < 160; i++)
        buf_append_c(&text, 'x');
    for (int i = 0; i < 3; i++) /* of 64, 64 and 32 */
        buf_append_c(&want, 'X');
    expect_form(&rs, 64, REDACTOR_TEXT, buf_z(&text), 0, buf_z(&want));
    buf_release(&text), buf_release(&want);
    drop(&rs);
}

static void test_what_is_held(void **state)
{
    struct rules rs = {0};
    struct buf out;
    (void)state;
    add(&rs, (struct policy_rule_spec){.builtin = "card"});
    struct redactor *r = redactor_of(&rs, 0, REDACTOR_TEXT);
    buf_init(&out);
    assert_int_equal(redactor_push(r, STR("plain words"), false, &out), 0);
    assert_string_equal(buf_z(&out), "plain words");
    assert_int_equal(redactor_push(r, STR(" and 41"), false, &out), 0);
    assert_string_equal(buf_z(&out), "plain words and ");
    assert_int_equal(redactor_push(r, STR("a"), false, &out), 0);
    assert_string_equal(buf_z(&out), "plain words and 41a");
    assert_int_equal(redactor_push(r, STR(" 4111"), true, &out), 0);
    assert_string_equal(buf_z(&out), "plain words and 41a 4111");
    assert_false(redactor_changed(r));
    buf_release(&out);
    redactor_destroy(r);
    drop(&rs);
}

static void test_refusal_and_log(void **state)
{
    struct rules rs = {0};
    struct buf out;
    (void)state;
    add(&rs, (struct policy_rule_spec){.name = "seen", .regex = "[a-z]+ secret", .action = POLICY_LOG});
    add(&rs, (struct policy_rule_spec){.name = "stop", .regex = "top secret", .action = POLICY_REFUSE});
    expect_form(&rs, 0, REDACTOR_TEXT, "this is top secret, you see", STATUS_FORBIDDEN, "this is ");
    expect_form(&rs, 0, REDACTOR_TEXT, "this is no secret, big secret", 0, "this is no secret, big secret");
    struct redactor *r = redactor_of(&rs, 0, REDACTOR_TEXT);
    buf_init(&out);
    assert_int_equal(redactor_push(r, STR("no secret, big secret, top secret"), true, &out), STATUS_FORBIDDEN);
    assert_string_equal(policy_rule_name(redactor_refused_by(r)), "stop");
    assert_false(redactor_gave_up(r));
    assert_int_equal(redactor_hits(r, 0), 3);
    assert_int_equal(redactor_hits(r, 1), 1);
    assert_int_equal(redactor_push(r, STR("more"), true, &out), STATUS_FORBIDDEN); /* for good */
    buf_release(&out);
    redactor_destroy(r);
    drop(&rs);
}

/* The classic: exponential in the number of a's without a bound. */
static void test_runaway_patterns(void **state)
{
    static const char *const patterns[] = {"(a+)+[bc]", "(?:a|a)*[cd]", "(a|aa)+$", "(?:.*a){25}[xy]"};
    char text[2001];
    (void)state;
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 2] = '!';
    text[sizeof text - 1] = 0;
    for (size_t i = 0; i < COUNT_OF(patterns); i++) {
        struct rules rs = {0};
        struct buf out;
        add(&rs, (struct policy_rule_spec){.name = "bad", .regex = patterns[i]});
        uint64_t began = os_monotonic_ns();
        int rc = run(&rs, 0, REDACTOR_TEXT, str_of(text), sizeof text, &out);
        assert_true(os_monotonic_ns() - began < 5000000000u);
        assert_true(rc == STATUS_FORBIDDEN || (rc == 0 && out.n == sizeof text - 1));
        if (i == 0)
            assert_int_equal(rc, STATUS_FORBIDDEN);
        buf_release(&out);
        drop(&rs);
    }
}

static void test_json(void **state)
{
    struct rules rs = {0};
    (void)state;
    add(&rs, (struct policy_rule_spec){.builtin = "email", .replacement = "<\"mail\">"});
    add(&rs, (struct policy_rule_spec){.builtin = "card"});
    add(&rs, (struct policy_rule_spec){.name = "brace", .regex = "\\}.*"});
    expect_form(&rs, 0, REDACTOR_JSON, "{\"to\": \"ann\\u0040example.org\", \"n\": [1, -2.5e3, true, null]}", 0,
                "{\"to\": \"<\\\"mail\\\">\", \"n\": [1, -2.5e3, true, null]}");
    expect_form(&rs, 0, REDACTOR_JSON, "{\"card\":4111111111111111,\"x\":\"4111\\u00a01111\\u00a01111\\u00a01111\"}", 0,
                "{\"card\":\"[REDACTED:card]\",\"x\":\"[REDACTED:card]\"}");
    expect_form(&rs, 0, REDACTOR_JSON, "{\"a\":\"x} y\",\"b\":\"\\n\\ud83d\\ude00 \\u4e2d\\/\\\"\\\\ \\u0001\"}", 0,
                "{\"a\":\"x[REDACTED:brace]\",\"b\":\"\\n\xf0\x9f\x98\x80 \xe4\xb8\xad/\\\"\\\\ \\u0001\"}");
    expect_form(&rs, 0, REDACTOR_JSON, "{\"a\":\"cut sho", 0, "{\"a\":\"cut sho");
    expect_form(&rs, 64, REDACTOR_JSON,
                "[11111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111]",
                STATUS_FORBIDDEN, "[");
    drop(&rs);
}

static void test_bytes_that_are_no_text(void **state)
{
    struct rules rs = {0};
    (void)state;
    add(&rs, (struct policy_rule_spec){.builtin = "card"});
    add(&rs, (struct policy_rule_spec){.name = "dot", .regex = "q.r", .replacement = "-"});
    expect(&rs, "\xff\xfe 4111111111111111\xc3(\xe2\x82 4111111111111111 \xf0\x9f",
           "\xff\xfe [REDACTED:card]\xc3(\xe2\x82 [REDACTED:card] \xf0\x9f");
    expect(&rs, "q\xe2\x82\xacr q\xe2\x82r q\xffr", "- q\xe2\x82r -"); /* a byte that is no character counts as one */
    drop(&rs);
}

static void test_mistakes(void **state)
{
    static const struct {
        struct policy_rule_spec s;
        const char *words;
    } bad[] = {
        {{.name = "x"}, "none"},
        {{.name = "x", .regex = "a", .builtin = "card"}, "several"},
        {{.name = "x", .builtin = "passport"}, "passport"},
        {{.name = "x", .regex = "a(b"}, "character 3"},
        {{.name = "x", .regex = "a*"}, "empty text"},
        {{.name = "x", .regex = "a\\Kb"}, "\\K"},
        {{.name = "x", .regex = "\\Gb"}, "\\G"},
        {{.name = "x", .regex = "(*COMMIT)b"}, "(*"},
        {{.name = "x", .regex = "a", .replacement = "line\n"}, "byte 4"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct policy_rule *r = NULL;
        struct error err = {0};
        assert_int_equal(policy_rule_create(&bad[i].s, &r, &err), STATUS_INVALID);
        assert_null(r);
        assert_non_null(strstr(err.text, bad[i].words));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cards),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_secrets),
        cmocka_unit_test(test_literals),
        cmocka_unit_test(test_which_rule),
        cmocka_unit_test(test_boundaries),
        cmocka_unit_test(test_the_bound),
        cmocka_unit_test(test_what_is_held),
        cmocka_unit_test(test_refusal_and_log),
        cmocka_unit_test(test_runaway_patterns),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_bytes_that_are_no_text),
        cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
