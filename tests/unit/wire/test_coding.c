/* Content codings: streams made by zlib and libzstd themselves (and one gzip file written out by hand from RFC 1952), decoded
 * whole and in small pieces through small rooms; bombs, truncation, garbage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/status.h"
#include "wire/coding.h"

enum { PLAIN_BYTES = 100000 };
static uint8_t plain[PLAIN_BYTES], packed[PLAIN_BYTES * 2];

static size_t z_pack(int window_bits, const uint8_t *in, size_t n, uint8_t *out)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)in;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = sizeof packed;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return z.total_out;
}

static size_t pack(enum coding_kind kind, bool raw, const uint8_t *in, size_t n, uint8_t *out)
{
    if (kind == CODING_ZSTD)
        return ZSTD_compress(out, sizeof packed, in, n, 3);
    return z_pack(kind == CODING_GZIP ? 31 : raw ? -15 : 15, in, n, out);
}

/* Decode `in` in pieces of `step` bytes through a room of `room`; 0 and the result in `out`, or the error. */
static int decode(enum coding_kind kind, const uint8_t *in, size_t n, size_t step, size_t room, uint64_t max, uint32_t ratio,
                  struct buf *out)
{
    struct coding *c;
    struct error err;
    uint8_t *piece = malloc(room);
    int rc = coding_create(kind, max, ratio, &c, &err);
    assert_int_equal(rc, 0);
    buf_clear(out);
    for (size_t at = 0; rc == 0 && at < n;) {
        size_t used, made, give = n - at < step ? n - at : step;
        do {
            rc = coding_step(c, in + at, give, &used, piece, room, &made, &err);
            assert_true(used <= give && made <= room);
            at += used;
            give -= used;
            buf_append(out, piece, made);
            if (rc == 0 && made < room)
                assert_int_equal(give, 0); /* with room left, everything is taken */
        } while (rc == 0 && made == room);
    }
    if (rc == 0)
        rc = coding_finish(c, &err);
    coding_destroy(c);
    free(piece);
    return rc;
}

static void fill(void)
{
    uint32_t x = 12345;
    for (size_t i = 0; i < PLAIN_BYTES; i++) {
        x = x * 1664525u + 1013904223u;
        plain[i] = (uint8_t)(i % 7 ? 'a' + (x >> 28) : x >> 24);
    }
}

static void test_round_trips(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 2, 100, 5000, PLAIN_BYTES}, steps[] = {1, 2, 3, 1000, SIZE_MAX},
                        rooms[] = {64, 65, 4096, 200000};
    struct buf out;
    buf_init(&out);
    fill();
    for (int k = 0; k < 4; k++)
        for (size_t s = 0; s < 6; s++) {
            enum coding_kind kind = k == 0 ? CODING_GZIP : k == 3 ? CODING_ZSTD : CODING_DEFLATE;
            size_t n = pack(kind, k == 2, plain, sizes[s], packed);
            for (size_t i = 0; i < 5; i++)
                for (size_t j = 0; j < 4; j++) {
                    assert_int_equal(decode(kind, packed, n, steps[i], rooms[j], PLAIN_BYTES, 0, &out), 0);
                    assert_int_equal(out.n, sizes[s]);
                    assert_memory_equal(out.p ? out.p : "", plain, sizes[s]);
                }
        }
    buf_release(&out);
}

/* "hello" as a stored block with header and trailer by RFC 1952: CRC-32 0x3610a686, size 5. */
static const uint8_t HELLO[] = {0x1f, 0x8b, 8,   0,   0,   0,   0,    0,    0,    3,    1, 5, 0, 0xfa,
                                0xff, 'h',  'e', 'l', 'l', 'o', 0x86, 0xa6, 0x10, 0x36, 5, 0, 0, 0};

static void test_by_hand(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out);
    assert_int_equal(decode(CODING_GZIP, HELLO, sizeof HELLO, 1, 64, 5, 0, &out), 0);
    assert_string_equal(buf_z(&out), "hello");
    uint8_t bad[sizeof HELLO];
    memcpy(bad, HELLO, sizeof HELLO);
    bad[20] ^= 1; /* the check sum */
    assert_int_equal(decode(CODING_GZIP, bad, sizeof bad, 1, 64, 5, 0, &out), STATUS_INVALID);
    buf_release(&out);
}

static void test_members(void **state)
{
    (void)state;
    struct buf out;
    uint8_t two[2 * sizeof HELLO + 1];
    buf_init(&out);
    memcpy(two, HELLO, sizeof HELLO);
    memcpy(two + sizeof HELLO, HELLO, sizeof HELLO);
    assert_int_equal(decode(CODING_GZIP, two, 2 * sizeof HELLO, 5, 64, 100, 0, &out), 0);
    assert_string_equal(buf_z(&out), "hellohello");
    two[2 * sizeof HELLO] = 'x';
    assert_int_equal(decode(CODING_GZIP, two, sizeof two, 5, 64, 100, 0, &out), STATUS_INVALID);
    size_t n = ZSTD_compress(packed, sizeof packed, "ab", 2, 1);
    n += ZSTD_compress(packed + n, sizeof packed - n, "cd", 2, 1);
    assert_int_equal(decode(CODING_ZSTD, packed, n, 3, 64, 100, 0, &out), 0);
    assert_string_equal(buf_z(&out), "abcd");
    buf_release(&out);
}

/* Cut anywhere, or followed by anything, each stream is an error. */
static void test_truncated_and_garbage(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out);
    fill();
    for (int k = 0; k < 4; k++) {
        enum coding_kind kind = k == 0 ? CODING_GZIP : k == 3 ? CODING_ZSTD : CODING_DEFLATE;
        size_t n = pack(kind, k == 2, plain, 300, packed);
        for (size_t cut = 0; cut < n; cut++)
            assert_int_equal(decode(kind, packed, cut, 7, 64, 1000, 0, &out), STATUS_INVALID);
        for (size_t extra = 1; extra < 10; extra++) {
            memset(packed + n, 'g', extra);
            assert_int_equal(decode(kind, packed, n + extra, SIZE_MAX, 64, 1000, 0, &out), STATUS_INVALID);
            assert_int_equal(decode(kind, packed, n + extra, 1, 64, 1000, 0, &out), STATUS_INVALID);
        }
        assert_int_equal(decode(kind, (const uint8_t *)"not compressed at all", 21, 4, 64, 1000, 0, &out), STATUS_INVALID);
    }
    buf_release(&out);
}

static void test_bounds(void **state)
{
    (void)state;
    struct buf out;
    uint8_t *zeros = calloc(1, 10u << 20);
    buf_init(&out);
    for (int k = 0; k < 4; k++) {
        enum coding_kind kind = k == 0 ? CODING_GZIP : k == 3 ? CODING_ZSTD : CODING_DEFLATE;
        size_t n = pack(kind, k == 2, zeros, 10u << 20, packed);
        /* 10 MiB of zeros pack about 1000 to 1 (deflate's bound is 1032), zstd further */
        assert_int_equal(decode(kind, packed, n, SIZE_MAX, 4096, 20u << 20, 100, &out), STATUS_TOO_LARGE);
        assert_true(out.n < 4u << 20); /* noticed early */
        assert_int_equal(decode(kind, packed, n, 100, 4096, 5u << 20, 0, &out), STATUS_TOO_LARGE);
        assert_true(out.n <= (5u << 20) + 4096);
        assert_int_equal(decode(kind, packed, n, 100, 4096, 10u << 20, 0, &out), 0);
        assert_int_equal(out.n, 10u << 20);
        n = pack(kind, k == 2, zeros, 60000, packed); /* below 64 KiB any ratio will do */
        assert_int_equal(decode(kind, packed, n, SIZE_MAX, 4096, 1u << 20, 2, &out), 0);
    }
    free(zeros);
    buf_release(&out);
}

static void test_zstd_window(void **state)
{
    (void)state;
    /* a frame header that asks for a 1 GiB window: magic, descriptor without content size, window byte 10+20 */
    static const uint8_t frame[] = {0x28, 0xb5, 0x2f, 0xfd, 0x00, 20 << 3, 1, 0, 0};
    struct buf out;
    buf_init(&out);
    assert_int_equal(decode(CODING_ZSTD, frame, sizeof frame, SIZE_MAX, 64, 1000, 0, &out), STATUS_TOO_LARGE);
    buf_release(&out);
}

static void test_parse(void **state)
{
    (void)state;
    enum coding_kind k;
    struct error err;
    assert_int_equal(coding_parse(STR(" GZip "), &k, &err), 0);
    assert_int_equal(k, CODING_GZIP);
    assert_int_equal(coding_parse((struct str){0}, &k, &err), 0);
    assert_int_equal(k, CODING_IDENTITY);
    assert_int_equal(coding_parse(STR("zstd"), &k, &err), 0);
    assert_int_equal(k, CODING_ZSTD);
    assert_int_equal(coding_parse(STR("br"), &k, &err), STATUS_MEDIA_TYPE);
    assert_int_equal(coding_parse(STR("gzip, gzip"), &k, &err), STATUS_MEDIA_TYPE);
    assert_int_equal(coding_parse(STR("gzip\0"), &k, &err), STATUS_MEDIA_TYPE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips), cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_members),     cmocka_unit_test(test_truncated_and_garbage),
        cmocka_unit_test(test_bounds),      cmocka_unit_test(test_zstd_window),
        cmocka_unit_test(test_parse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
