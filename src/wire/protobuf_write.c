/* protobuf_write.c: appending the wire format. See protobuf.h. */
#include <string.h>

#include "base/check.h"
#include "wire/protobuf.h"

size_t pb_varint_size(uint64_t v)
{
    unsigned bits = v ? 64u - (unsigned)__builtin_clzll(v) : 1;
    return (bits + 6) / 7;
}

size_t pb_varint_write(uint8_t *p, uint64_t v)
{
    size_t n = 0;
    while (v >= 0x80) {
        p[n++] = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    p[n++] = (uint8_t)v;
    return n;
}

void pb_append_varint(struct buf *b, uint64_t v)
{
    uint8_t *p = (uint8_t *)buf_reserve(b, PB_VARINT_MAX);
    if (p)
        b->n += pb_varint_write(p, v);
}

void pb_append_tag(struct buf *b, uint32_t number, enum pb_wire wire)
{
    pb_append_varint(b, (uint64_t)number << 3 | (unsigned)wire);
}

void pb_append_u64(struct buf *b, uint32_t number, uint64_t v)
{
    pb_append_tag(b, number, PB_VARINT);
    pb_append_varint(b, v);
}

void pb_append_bytes(struct buf *b, uint32_t number, struct str v)
{
    pb_append_tag(b, number, PB_LEN);
    pb_append_varint(b, v.n);
    buf_append_str(b, v);
}

void pb_append_f64(struct buf *b, uint32_t number, double v)
{
    pb_append_tag(b, number, PB_I64);
    buf_append(b, &v, sizeof v);
}

void pb_put_packed_i64(struct buf *b, uint32_t number, const int64_t *v, size_t n)
{
    if (!n)
        return;
    size_t opened = pb_open_message(b, number);
    for (size_t i = 0; i < n; i++)
        pb_append_varint(b, (uint64_t)v[i]);
    pb_close_message(b, opened);
}

/* One byte is left for the length; a body of 128 bytes and more moves up. */
size_t pb_open_message(struct buf *b, uint32_t number)
{
    pb_append_tag(b, number, PB_LEN);
    buf_append_c(b, 0);
    return b->n;
}

void pb_close_message(struct buf *b, size_t opened)
{
    if (b->failed)
        return;
    ASSERT(opened >= 1 && opened <= b->n);
    size_t n = b->n - opened, more = pb_varint_size(n) - 1;
    if (more && !buf_reserve(b, more))
        return;
    uint8_t *at = (uint8_t *)b->p + opened - 1;
    if (more)
        memmove(at + 1 + more, at + 1, n);
    pb_varint_write(at, n);
    b->n += more;
}
