/* gRPC framing: the one message of a unary call, messages of a stream cut at every byte, compression against zlib itself, deadlines
 * and status texts from the protocol document. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/size.h"
#include "base/status.h"
#include "wire/grpc_frame.h"

static void unary(void **state)
{
    (void)state;
    struct grpc_message m;
    struct error err;
    assert_int_equal(grpc_split(slice_borrow("\0\0\0\0\3abc", 8), 3, &m, &err), 0);
    assert_true(m.data.n == 3 && memcmp(m.data.p, "abc", 3) == 0 && !m.compressed);
    assert_int_equal(grpc_split(slice_borrow("\1\0\0\0\0", 5), 3, &m, &err), 0);
    assert_true(m.data.n == 0 && m.compressed);
    assert_int_equal(grpc_split(slice_borrow("", 0), 3, &m, &err), STATUS_INVALID);
    assert_int_equal(grpc_split(slice_borrow("\0\0\0\0", 4), 3, &m, &err), STATUS_INVALID);
    assert_int_equal(grpc_split(slice_borrow("\2\0\0\0\0", 5), 3, &m, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "first byte is 2"));
    assert_int_equal(grpc_split(slice_borrow("\0\0\0\0\3ab", 7), 3, &m, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "has 3 bytes by its prefix, but only 2 came"));
    assert_int_equal(grpc_split(slice_borrow("\0\0\0\0\3abcd", 9), 3, &m, &err), STATUS_UNIMPLEMENTED);
    assert_int_equal(grpc_split(slice_borrow("\0\0\0\0\4abcd", 9), 3, &m, &err), STATUS_TOO_LARGE);
    assert_int_equal(grpc_split(slice_borrow("\0\xff\xff\xff\xff", 5), UINT64_MAX, &m, &err), STATUS_INVALID);
    uint8_t prefix[5];
    grpc_prefix_write(prefix, true, 0x01020304);
    assert_memory_equal(prefix, "\1\1\2\3\4", 5);
}

/* Three messages (one of them empty, one of 200 KB, so that its memory grows) in pieces of `step` bytes. */
static void stream_in_pieces(size_t step)
{
    enum { BIG = 200000 };
    static uint8_t wire[5 + 1 + 5 + 5 + BIG];
    struct grpc_reader r;
    struct grpc_message m;
    struct error err;
    static const size_t sizes[] = {1, 0, BIG};
    size_t at = 0, seen = 0;
    for (size_t i = 0; i < 3; i++) {
        grpc_prefix_write(wire + at, i == 1, (uint32_t)sizes[i]);
        at += 5;
        for (size_t k = 0; k < sizes[i]; k++)
            wire[at++] = (uint8_t)(k * 7 + i);
    }
    grpc_reader_init(&r, BIG);
    for (at = 0; at < sizeof wire;) {
        size_t n = MIN_OF(step, sizeof wire - at);
        const uint8_t *p = wire + at;
        at += n;
        int rc;
        while ((rc = grpc_read(&r, &p, &n, &m, &err)) == 1) {
            assert_int_equal(m.data.n, sizes[seen]);
            assert_int_equal(m.compressed, seen == 1);
            for (size_t k = 0; k < m.data.n; k++)
                assert_true(m.data.p[k] == (uint8_t)(k * 7 + seen));
            slice_release(&m.data);
            seen++;
        }
        assert_int_equal(rc, 0);
        assert_int_equal(n, 0);
        assert_true(grpc_reader_bytes(&r) <= BIG);
    }
    assert_int_equal(seen, 3);
    assert_int_equal(grpc_reader_finish(&r, &err), 0);
    grpc_reader_release(&r);
}

static void streams(void **state)
{
    (void)state;
    static const size_t steps[] = {1, 2, 3, 4, 5, 6, 7, 11, 4096, 70000, 1000000};
    for (size_t i = 0; i < COUNT_OF(steps); i++)
        stream_in_pieces(steps[i]);
}

static void broken_streams(void **state)
{
    (void)state;
    struct grpc_reader r;
    struct grpc_message m;
    struct error err;
    const uint8_t *p = (const uint8_t *)"\0\0\1\0\0x";
    size_t n = 6;
    grpc_reader_init(&r, 1 << 20);
    assert_int_equal(grpc_read(&r, &p, &n, &m, &err), 0);
    assert_true(grpc_reader_bytes(&r) <= 65536); /* not what was announced */
    assert_int_equal(grpc_reader_finish(&r, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "1 of 65536 bytes came"));
    grpc_reader_release(&r);
    grpc_reader_init(&r, 10);
    p = (const uint8_t *)"\0\0\0\0\x0b";
    n = 5;
    assert_int_equal(grpc_read(&r, &p, &n, &m, &err), STATUS_TOO_LARGE);
    grpc_reader_init(&r, 10);
    p = (const uint8_t *)"\x80\0\0\0\1";
    n = 5;
    assert_int_equal(grpc_read(&r, &p, &n, &m, &err), STATUS_INVALID);
    grpc_reader_init(&r, 10);
    p = (const uint8_t *)"\0\0";
    n = 2;
    assert_int_equal(grpc_read(&r, &p, &n, &m, &err), 0);
    assert_int_equal(grpc_reader_finish(&r, &err), STATUS_INVALID);
    grpc_reader_release(&r);
}

static void compression(void **state)
{
    (void)state;
    static uint8_t plain[300000], back[300000];
    struct slice parts[3], packed, whole;
    struct error err;
    for (size_t i = 0; i < sizeof plain; i++)
        plain[i] = (uint8_t)(i / 50 * 31 + i % 13);
    parts[0] = slice_borrow(plain, 1000);
    parts[1] = slice_borrow(plain + 1000, 0);
    parts[2] = slice_borrow(plain + 1000, sizeof plain - 1000);
    for (enum coding_kind k = CODING_GZIP; k <= CODING_DEFLATE; k++) {
        assert_int_equal(grpc_deflate(k, parts, 3, &packed, &err), 0);
        assert_int_equal(packed.p[0], 1);
        assert_int_equal((packed.p[1] << 24) + (packed.p[2] << 16) + (packed.p[3] << 8) + packed.p[4], packed.n - 5);
        z_stream z = {.next_in = (Bytef *)(uintptr_t)(packed.p + 5),
                      .avail_in = (uInt)packed.n - 5,
                      .next_out = back,
                      .avail_out = sizeof back};
        assert_int_equal(inflateInit2(&z, k == CODING_GZIP ? 31 : 15), Z_OK);
        assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
        assert_int_equal(z.avail_out, 0);
        inflateEnd(&z);
        assert_memory_equal(back, plain, sizeof plain);
        struct slice message = slice_borrow(packed.p + 5, packed.n - 5);
        assert_int_equal(grpc_inflate(k, message, sizeof plain, 0, &whole, &err), 0);
        assert_int_equal(whole.n, sizeof plain);
        assert_memory_equal(whole.p, plain, sizeof plain);
        slice_release(&whole);
        assert_int_equal(grpc_inflate(k, message, sizeof plain - 1, 0, &whole, &err), STATUS_TOO_LARGE);
        assert_int_equal(grpc_inflate(k, message, sizeof plain, 2, &whole, &err), STATUS_TOO_LARGE);
        message.n--;
        assert_int_equal(grpc_inflate(k, message, sizeof plain, 0, &whole, &err), STATUS_INVALID);
        slice_release(&packed);
    }
    assert_int_equal(grpc_inflate(CODING_IDENTITY, parts[0], 10, 0, &whole, &err), STATUS_INVALID);
    assert_int_equal(grpc_inflate(CODING_GZIP, slice_borrow("", 0), 10, 0, &whole, &err), STATUS_INVALID);
    assert_int_equal(grpc_inflate(CODING_GZIP, slice_borrow("garbage", 7), 10, 0, &whole, &err), STATUS_INVALID);
}

static void codings(void **state)
{
    (void)state;
    enum coding_kind k;
    struct error err;
    assert_int_equal(grpc_coding_parse(STR(""), &k, &err), 0);
    assert_int_equal(k, CODING_IDENTITY);
    assert_int_equal(grpc_coding_parse(STR("gzip"), &k, &err), 0);
    assert_int_equal(k, CODING_GZIP);
    assert_int_equal(grpc_coding_parse(STR("deflate"), &k, &err), 0);
    assert_int_equal(k, CODING_DEFLATE);
    assert_int_equal(grpc_coding_parse(STR("snappy"), &k, &err), STATUS_UNIMPLEMENTED);
    assert_true(grpc_coding_accepted(STR("identity, deflate ,gzip"), CODING_GZIP));
    assert_true(grpc_coding_accepted(STR("identity, deflate ,gzip"), CODING_DEFLATE));
    assert_false(grpc_coding_accepted(STR("identity,gzipped"), CODING_GZIP));
    assert_false(grpc_coding_accepted((struct str){0}, CODING_GZIP));
}

static void timeouts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ns;
    } good[] = {{"1n", 1},
                {"25u", 25000},
                {"100m", 100000000},
                {"0S", 0},
                {"3M", 180000000000},
                {"2H", 7200000000000},
                {"99999999H", UINT64_MAX}};
    static const char *const bad[] = {"", "1", "S", "-1S", "1.5S", "123456789S", "1s", "1 S", "+1S", "1SS"};
    struct error err;
    uint64_t ns;
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        assert_int_equal(grpc_timeout_parse(str_of(good[i].text), &ns, &err), 0);
        assert_true(ns == good[i].ns);
    }
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_int_equal(grpc_timeout_parse(str_of(bad[i]), &ns, &err), STATUS_INVALID);
}

static void status_texts(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b);
    grpc_message_append(&b, STR("50% of \"caf\xc3\xa9\"\n~"));
    assert_string_equal(buf_z(&b), "50%25 of \"caf%C3%A9\"%0A~");
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unary),   cmocka_unit_test(streams),  cmocka_unit_test(broken_streams), cmocka_unit_test(compression),
        cmocka_unit_test(codings), cmocka_unit_test(timeouts), cmocka_unit_test(status_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
