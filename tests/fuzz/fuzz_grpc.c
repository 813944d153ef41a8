/* gRPC's framing: the outcome of a stream of messages does not depend on how it is cut, memory follows what has come, and compression undone
 * and done again gives the same bytes. Input: a byte for the size of the pieces, one for the coding and the header values, then the stream. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "wire/grpc_frame.h"

#define LIMIT 70000

static void check(bool ok)
{
    if (!ok)
        abort();
}

/* Read all of it in pieces of `step`; the messages, each with its flag and length, into `out`; the last status. */
static int read_all(const uint8_t *data, size_t size, size_t step, struct buf *out)
{
    struct grpc_reader r;
    struct grpc_message m;
    struct error err = {0};
    int rc = 0;
    grpc_reader_init(&r, LIMIT);
    for (size_t at = 0; rc == 0 && at < size;) {
        size_t n = MIN_OF(step, size - at), left = n;
        uint8_t *copy = malloc(n);
        memcpy(copy, data + at, n);
        const uint8_t *p = copy;
        at += n;
        while ((rc = grpc_read(&r, &p, &left, &m, &err)) == 1) {
            uint32_t length = (uint32_t)m.data.n;
            buf_append_c(out, m.compressed);
            buf_append(out, &length, sizeof length);
            buf_append(out, m.data.p, m.data.n);
            slice_release(&m.data);
        }
        check(rc < 0 || left == 0);
        check(grpc_reader_bytes(&r) <= LIMIT);
        free(copy);
    }
    if (rc == 0)
        rc = grpc_reader_finish(&r, &err);
    check(rc == 0 || (err.code == rc && err.text[0]));
    grpc_reader_release(&r);
    return rc;
}

static void unpack(enum coding_kind kind, const uint8_t *data, size_t size)
{
    struct slice plain, packed, back;
    struct error err = {0};
    int rc = grpc_inflate(kind, slice_borrow(data, size), LIMIT, 100, &plain, &err);
    check(rc == 0 || (err.code == rc && err.text[0]));
    if (rc)
        return;
    check(plain.n <= LIMIT);
    check(grpc_deflate(kind, &plain, 1, &packed, &err) == 0);
    check(grpc_inflate(kind, slice_borrow(packed.p + GRPC_PREFIX_BYTES, packed.n - GRPC_PREFIX_BYTES), LIMIT, 0, &back, &err) ==
          0);
    check(back.n == plain.n && (!plain.n || memcmp(back.p, plain.p, plain.n) == 0));
    slice_release(&back);
    slice_release(&packed);
    slice_release(&plain);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf whole, pieces;
    struct grpc_message m;
    struct error err = {0};
    enum coding_kind kind;
    uint64_t ns;
    if (size < 2)
        return 0;
    buf_init(&whole);
    buf_init(&pieces);
    int a = read_all(data + 2, size - 2, size, &whole), b = read_all(data + 2, size - 2, 1 + data[0], &pieces);
    check(a == b && whole.n == pieces.n && (!whole.n || memcmp(whole.p, pieces.p, whole.n) == 0));
    int rc = grpc_split(slice_borrow(data + 2, size - 2), LIMIT, &m, &err);
    check(rc != 0 || (a == 0 && whole.n == m.data.n + 5)); /* one message is a stream of one */
    buf_release(&whole);
    buf_release(&pieces);
    unpack(data[1] & 1 ? CODING_GZIP : CODING_DEFLATE, data + 2, size - 2);
    struct str text = {(const char *)data + 2, MIN_OF(size - 2, (size_t)64)};
    rc = grpc_timeout_parse(text, &ns, &err);
    check(rc == 0 || rc == STATUS_INVALID);
    rc = grpc_coding_parse(text, &kind, &err);
    check(rc == 0 || rc == STATUS_UNIMPLEMENTED);
    grpc_coding_accepted(text, CODING_GZIP);
    struct buf escaped;
    buf_init(&escaped);
    grpc_message_append(&escaped, text);
    for (size_t i = 0; i < escaped.n; i++)
        check(escaped.p[i] >= 0x20 && escaped.p[i] <= 0x7e);
    buf_release(&escaped);
    return 0;
}
