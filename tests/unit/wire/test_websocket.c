/* WebSockets as somebody in the middle sees them. The handshake and the frames are the examples of RFC 6455 (1.2, 5.7), others are written by hand
 * from 5.2. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/size.h"
#include "base/status.h"
#include "wire/websocket.h"

#define H(name, value)                                                                                                         \
    {                                                                                                                          \
        STR(name), STR(value)                                                                                                  \
    }

static void test_who_asks(void **state)
{
    (void)state;
    const struct http_header yes[] = {H("Host", "x"), H("Upgrade", "websocket"), H("Connection", "Upgrade")};
    const struct http_header lists[] = {H("upgrade", "h2c, WebSocket"), H("connection", "keep-alive"),
                                        H("Connection", "foo, upgrade")};
    const struct http_header other[] = {H("Upgrade", "h2c"), H("Connection", "Upgrade")};
    const struct http_header unlisted[] = {H("Upgrade", "websocket"), H("Connection", "keep-alive")};
    assert_true(websocket_is_upgrade(yes, COUNT_OF(yes)));
    assert_true(websocket_is_upgrade(lists, COUNT_OF(lists)));
    assert_false(websocket_is_upgrade(other, COUNT_OF(other)));
    assert_false(websocket_is_upgrade(unlisted, COUNT_OF(unlisted)));
    assert_false(websocket_is_upgrade(NULL, 0));
}

static int check(const char *key, const char *version, struct error *err)
{
    const struct http_header h[] = {{STR("Sec-WebSocket-Key"), str_of(key)}, {STR("Sec-WebSocket-Version"), str_of(version)}};
    return websocket_check_request(h, COUNT_OF(h), err);
}

static void test_a_proper_request(void **state)
{
    struct error err;
    (void)state;
    assert_int_equal(check("dGhlIHNhbXBsZSBub25jZQ==", "13", &err), 0);
    static const char *const bad[] = {"",
                                      "dGhlIHNhbXBsZSBub25jZQ=",
                                      "dGhlIHNhbXBsZSBub25jZQ",
                                      "dGhlIHNhbXBsZSBub25jZQ==A",
                                      "dGhlIHNhbXBsZSBub25jZR==",
                                      "dGhlIHNhbXBsZSBub25j*Q==",
                                      "dGhlIHNhbXBsZSBub25jZQA="};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(check(bad[i], "13", &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, "Sec-WebSocket-Key"));
    }
    assert_int_equal(check("dGhlIHNhbXBsZSBub25jZQ==", "8", &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "must be 13, not 8"));
    const struct http_header twice[] = {H("Sec-WebSocket-Version", "13"), H("Sec-WebSocket-Version", "13"),
                                        H("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")};
    assert_int_equal(websocket_check_request(twice, 3, &err), STATUS_INVALID);
    assert_int_equal(websocket_check_request(twice + 2, 1, &err), STATUS_INVALID);
    const struct http_header keys[] = {twice[0], twice[2], twice[2]};
    assert_int_equal(websocket_check_request(keys, 3, &err), STATUS_INVALID);
}

/* RFC 6455, 5.7. */
static const uint8_t hello[] = {0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f};
static const uint8_t masked[] = {0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58};

/* However it is cut: only where a frame has ended may a Close be put. */
static void assert_edges(const uint8_t *bytes, size_t n, const size_t *edges, size_t n_edges)
{
    for (size_t cut = 0; cut <= n; cut++) {
        struct websocket_frames f = {0};
        bool edge = false;
        for (size_t i = 0; i < n_edges; i++)
            edge |= edges[i] == cut;
        websocket_frames_take(&f, bytes, cut);
        assert_int_equal(websocket_frames_may_close(&f), edge);
        websocket_frames_take(&f, bytes + cut, n - cut);
        assert_true(websocket_frames_may_close(&f));
    }
}

static void test_edges(void **state)
{
    (void)state;
    uint8_t both[sizeof hello + sizeof masked];
    memcpy(both, hello, sizeof hello);
    memcpy(both + sizeof hello, masked, sizeof masked);
    assert_edges(both, sizeof both, (const size_t[]){0, sizeof hello, sizeof both}, 3);
    /* a 256-byte binary message with a length of 16 bits, an empty ping behind it */
    uint8_t medium[4 + 256 + 2] = {0x82, 0x7e, 0x01, 0x00};
    medium[260] = 0x89;
    assert_edges(medium, sizeof medium, (const size_t[]){0, 260, 262}, 3);
    /* the same with 64 bits, masked */
    uint8_t large[10 + 4 + 300] = {0x82, 0xff, 0, 0, 0, 0, 0, 0, 0x01, 0x2c};
    assert_edges(large, sizeof large, (const size_t[]){0, sizeof large}, 2);
}

static void test_no_second_close(void **state)
{
    (void)state;
    uint8_t out[WEBSOCKET_CLOSE_BYTES];
    struct websocket_frames f = {0};
    size_t n = websocket_write_close(out, WEBSOCKET_GOING_AWAY, false, 0);
    assert_int_equal(n, 4);
    assert_memory_equal(out, ((const uint8_t[]){0x88, 0x02, 0x03, 0xe9}), 4);
    websocket_frames_take(&f, out, n);
    assert_false(websocket_frames_may_close(&f));
    n = websocket_write_close(out, WEBSOCKET_GOING_AWAY, true, 0x37fa213d);
    assert_int_equal(n, 8);
    assert_memory_equal(out, ((const uint8_t[]){0x88, 0x82, 0x37, 0xfa, 0x21, 0x3d, 0x03 ^ 0x37, 0xe9 ^ 0xfa}), 8);
    f = (struct websocket_frames){0};
    websocket_frames_take(&f, out, n);
    assert_true(f.closing && !f.lost && f.left == 0);
    assert_false(websocket_frames_may_close(&f));
}

static void test_lost(void **state)
{
    (void)state;
    const uint8_t negative[] = {0x82, 0x7f, 0x80, 0, 0, 0, 0, 0, 0, 0};
    struct websocket_frames f = {0};
    websocket_frames_take(&f, negative, sizeof negative);
    assert_true(f.lost);
    websocket_frames_take(&f, hello, sizeof hello);
    assert_false(websocket_frames_may_close(&f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_who_asks), cmocka_unit_test(test_a_proper_request),
                                       cmocka_unit_test(test_edges), cmocka_unit_test(test_no_second_close),
                                       cmocka_unit_test(test_lost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
