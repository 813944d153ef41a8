/* test_address.c: addresses against RFC 4291's and RFC 5952's examples, the PROXY protocol against its specification, split at every byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"
#include "base/status.h"
#include "net/address.h"
#include "net/http.h"
#include "net/peers.h"
#include "net/proxy_header.h"

#define S 1000000000ull

static void test_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *back;
        uint8_t bytes[16];
    } good[] = {
        {"192.0.2.1", "192.0.2.1", {[10] = 0xff, 0xff, 192, 0, 2, 1}},
        {"::ffff:192.0.2.1", "192.0.2.1", {[10] = 0xff, 0xff, 192, 0, 2, 1}},
        {"::", "::", {0}},
        {"::1", "::1", {[15] = 1}},
        {"2001:DB8:0:0:8:800:200C:417A",
         "2001:db8::8:800:200c:417a",
         {0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 8, 8, 0, 0x20, 0xc, 0x41, 0x7a}},
        {"FF01::101", "ff01::101", {0xff, 1, [14] = 1, 1}},
        {"1::", "1::", {0, 1}},
        {"1:0:2:3:4:5:6:7", "1:0:2:3:4:5:6:7", {0, 1, 0, 0, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7}},
    };
    static const char *const bad[] = {
        "",    "1.2.3",        "1.2.3.4.5", "1.2.3.256",  "01.2.3.4",          "1.2.3.4 ",         "1..3.4",
        ":",   ":::",          "1:2",       "1::2::3",    "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7::8", "12345::",
        "g::", "fe80::1%eth0", "[::1]",     "1.2.3.4:80", "::1.2.3",           "1.2.3.4::",        "::ffff:1.2.3.4:5"};
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        struct address a;
        char text[ADDRESS_TEXT_BYTES];
        if (!address_parse(str_of(good[i].text), &a))
            fail_msg("%s", good[i].text);
        assert_memory_equal(a.bytes, good[i].bytes, 16);
        assert_string_equal(address_text(&a, text), good[i].back);
    }
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct address a;
        if (address_parse(str_of(bad[i]), &a))
            fail_msg("\"%s\" was taken", bad[i]);
    }
    static const char *const with_port[] = {"192.0.2.1", "192.0.2.1:80", "::ffff:192.0.2.1", "[::ffff:192.0.2.1]",
                                            "[::ffff:192.0.2.1]:1"};
    static const char *const bad_port[] = {"192.0.2.1:", "192.0.2.1:x", "192.0.2.1:65536", "[::1",
                                           "[::1]x",     "[::1]:",      "[192.0.2.1]:1",   "unknown"};
    struct address a;
    for (size_t i = 0; i < COUNT_OF(with_port); i++) {
        assert_true(address_parse_port(str_of(with_port[i]), &a));
        assert_memory_equal(a.bytes, good[0].bytes, 16);
    }
    for (size_t i = 0; i < COUNT_OF(bad_port); i++)
        assert_false(address_parse_port(str_of(bad_port[i]), &a));
}

static void test_networks(void **state)
{
    (void)state;
    static const struct {
        const char *network, *in, *out;
    } cases[] = {{"10.0.0.0/8", "10.255.0.1", "11.0.0.0"},
                 {"192.0.2.128/25", "192.0.2.200", "192.0.2.127"},
                 {"192.0.2.7", "192.0.2.7", "192.0.2.6"},
                 {"2001:db8::/33", "2001:db8:7fff::", "2001:db8:8000::"},
                 {"::/0", "1.2.3.4", NULL},
                 {"0.0.0.0/0", "9.9.9.9", "::1"}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct network n;
        struct address a;
        assert_int_equal(network_parse(str_of(cases[i].network), &n, NULL), 0);
        assert_true(address_parse(str_of(cases[i].in), &a) && network_has(&n, &a));
        if (cases[i].out)
            assert_true(address_parse(str_of(cases[i].out), &a) && !network_has(&n, &a));
    }
    static const char *const bad[] = {"", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1", "/8", "host"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct network n;
        assert_int_equal(network_parse(str_of(bad[i]), &n, NULL), STATUS_INVALID);
    }
}

/* Feed a header as a reader would: never more than it says it wants. Bytes used, or negative. */
static int feed(const char *bytes, size_t n, size_t step, struct proxy_header *out)
{
    size_t have = 0, want = 12;
    for (;;) {
        size_t take = want < step ? want : step;
        if (have + take > n)
            take = n - have;
        have += take;
        int rc = proxy_header_parse(bytes, have, &want, out);
        if (rc != STATUS_AGAIN)
            return rc ? rc : (int)have;
        assert_true(want > 0 && have < PROXY_HEADER_MAX);
        if (have == n)
            return STATUS_AGAIN;
    }
}

#define SIG  "\r\n\r\n\0\r\nQUIT\n"
#define TAIL "GET / HTTP/1.1\r\n"

static void test_proxy_headers(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n, used;
        const char *source;
    } good[] = {
#define GOOD(z, source) {z TAIL, sizeof z TAIL - 1, sizeof z - 1, source}
        GOOD("PROXY TCP4 192.0.2.1 192.0.2.2 4711 443\r\n", "192.0.2.1"),
        GOOD("PROXY TCP6 2001:db8::1 ::1 1 2\r\n", "2001:db8::1"),
        GOOD("PROXY UNKNOWN\r\n", NULL),
        GOOD("PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", NULL),
        GOOD(SIG "\x21\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x02\x12\x34\x01\xbb", "192.0.2.1"),
        GOOD(SIG "\x21\x21\0\x24\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0\x01\0\x02",
             "2001:db8::1"),
        GOOD(SIG "\x21\x11\0\x10\xc0\0\x02\x01\xc0\0\x02\x02\x12\x34\x01\xbb\x04\0\x01x", "192.0.2.1"),
        GOOD(SIG "\x20\0\0\0", NULL),
        GOOD(SIG "\x20\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x02\x12\x34\x01\xbb", NULL),
        GOOD(SIG "\x21\0\0\x04"
                 "abcd",
             NULL),
    };
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = {
#define BAD(z) {z, sizeof z - 1}
        BAD("GET / HTTP/1.1\r\n\r\n"),
        BAD("PROXY TCP4 192.0.2.1\n............"),
        BAD("PROXY TCP5 1.2.3.4 1.2.3.4 1 1\r\n"),
        BAD("PROXY TCP4 host 1.2.3.4 1 1\r\n"),
        BAD("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00"),
        BAD(SIG "\x31\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x02\x12\x34\x01\xbb"),
        BAD(SIG "\x22\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x02\x12\x34\x01\xbb"),
        BAD(SIG "\x21\x11\0\x0b\xc0\0\x02\x01\xc0\0\x02\x02\x12\x34\x01"),
        BAD(SIG "\x21\x11\xff\xff"),
        BAD("PROXY TCP4 "
            "111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111"),
    };
    for (size_t i = 0; i < COUNT_OF(good); i++)
        for (size_t step = 1; step <= 64; step++) {
            struct proxy_header h;
            struct address want;
            assert_int_equal(feed(good[i].bytes, good[i].n, step, &h), good[i].used); /* not a byte of what is behind */
            assert_int_equal(h.has_source, good[i].source != NULL);
            if (good[i].source) {
                assert_true(address_parse(str_of(good[i].source), &want));
                assert_memory_equal(&h.source, &want, sizeof want);
            }
            for (size_t cut = 0; cut < good[i].used; cut++)
                assert_int_equal(feed(good[i].bytes, cut, step, &h), STATUS_AGAIN);
        }
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct proxy_header h;
        assert_int_equal(feed(bad[i].bytes, bad[i].n, 64, &h), STATUS_INVALID);
    }
}

static struct address at(const char *text)
{
    struct address a;
    assert_true(address_parse(str_of(text), &a));
    return a;
}

static void test_peers(void **state)
{
    (void)state;
    struct peers *p = peers_create(1);
    const struct peers_limits two = {.max_connections = 2}, fast = {.max_rate = 3}, none = {0};
    struct address a = at("192.0.2.1"), b = at("192.0.2.2"), c = at("2001:db8::1"), d = at("2001:db8::ffff"),
                   e = at("2001:db8:0:1::1");
    bool counted;
    assert_int_equal(peers_enter(p, &a, &none, S, &counted), PEERS_OK);
    assert_false(counted);
    for (int i = 0; i < 2; i++)
        assert_int_equal(peers_enter(p, &a, &two, S, &counted), PEERS_OK);
    assert_true(counted);
    assert_int_equal(peers_enter(p, &a, &two, S, &counted), PEERS_TOO_MANY);
    assert_false(counted);
    assert_int_equal(peers_enter(p, &b, &two, S, &counted), PEERS_OK);
    peers_leave(p, &a);
    assert_int_equal(peers_enter(p, &a, &two, S, &counted), PEERS_OK);
    /* a /64 is one client */
    assert_int_equal(peers_enter(p, &c, &two, S, &counted), PEERS_OK);
    assert_int_equal(peers_enter(p, &d, &two, S, &counted), PEERS_OK);
    assert_int_equal(peers_enter(p, &d, &two, S, &counted), PEERS_TOO_MANY);
    assert_int_equal(peers_enter(p, &e, &two, S, &counted), PEERS_OK);
    peers_destroy(p);
    /* three a second, exactly */
    p = peers_create(1);
    int n = 0;
    for (uint64_t t = 0; t < 10 * S; t += S / 100) {
        if (peers_enter(p, &a, &fast, S + t, &counted) == PEERS_OK) {
            n++;
            peers_leave(p, &a);
        }
    }
    assert_in_range(n, 32, 33); /* 3 at once, then 3 a second for just under 10 seconds */
    /* what nobody holds is forgotten */
    for (uint32_t i = 0; i < 20000; i++) {
        struct address x = a;
        memcpy(x.bytes + 12, &i, 4);
        assert_int_equal(peers_enter(p, &x, &fast, 100 * S + i * (S / 1000), &counted), PEERS_OK);
        peers_leave(p, &x);
    }
    assert_in_range(peers_count(p), 0, 4000);
    peers_destroy(p);
}

static void peer_addresses(void **state)
{
    static const char *const cases[][2] = {
        {"192.0.2.1:4711", "192.0.2.1"},
        {"192.0.2.1", "192.0.2.1"},
        {"[2001:db8::1]:80", "2001:db8::1"},
        {"2001:db8::1", "2001:db8::1"}, /* as a trusted proxy names it */
        {"[::1]", "::1"},
        {"unix", "unix"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct http_request r = {.peer = str_of(cases[i][0])};
        assert_true(str_eqz(http_peer_address(&r), cases[i][1]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(peer_addresses), cmocka_unit_test(test_addresses),
                                       cmocka_unit_test(test_networks), cmocka_unit_test(test_proxy_headers),
                                       cmocka_unit_test(test_peers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
