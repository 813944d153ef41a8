/* protobuf.h: the protobuf wire format, read where it lies and appended to a buffer; no schema, no tree, no allocation.
 *
 * Reading pulls one field at a time; a length-delimited field is a view of the message's own bytes, and a caller that knows it to
 * be a message opens a reader on that view. Nothing here calls itself: how deep messages nest is decided by the caller's code, not
 * by the sender. Groups, which proto3 does not have, are skipped as unknown fields, at most PB_GROUP_DEPTH_MAX deep.
 *
 * Writing appends to a struct buf; sizes are computed by the pb_*_size functions or, for short messages, patched in by
 * pb_close_message. Fields that hold their default are not written (pb_put_*), as proto3 wants.
 *
 * Source: protobuf.dev, "Encoding". Pure; any thread. */
#ifndef INFERD_WIRE_PROTOBUF_H
#define INFERD_WIRE_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

#define PB_GROUP_DEPTH_MAX 32
#define PB_VARINT_MAX      10 /* bytes */

enum pb_wire { PB_VARINT = 0, PB_I64 = 1, PB_LEN = 2, PB_GROUP = 3, PB_GROUP_END = 4, PB_I32 = 5 };

struct pb_reader {
    const uint8_t *p, *end;
};

struct pb_field {
    uint32_t number;
    enum pb_wire wire; /* VARINT, I64, LEN or I32 */
    uint64_t value;    /* of VARINT, I64, I32 */
    struct str bytes;  /* of LEN; borrowed from the message */
};

static inline struct pb_reader pb_reader_of(struct str message)
{
    const uint8_t *p = (const uint8_t *)message.p;
    return (struct pb_reader){p, p ? p + message.n : p};
}

/* The next field. 1: *f is set; 0: the message ends here; STATUS_INVALID: the bytes are not protobuf, the sentence says why and
 * at which byte of what `r` was opened on. Field number 0 and wire types 6 and 7 are malformed. */
int pb_next(struct pb_reader *r, struct pb_field *f, struct error *err) MUST_CHECK;

/* One varint at *p before end; moves *p. False: it is cut off or longer than 64 bits. For packed fields. */
bool pb_varint(const uint8_t **p, const uint8_t *end, uint64_t *out);
/* How many varints end in `packed`: its bytes without a continuation bit. Fast; whether they are well-formed shows in reading. */
size_t pb_varint_count(struct str packed);

/* The field as the named scalar or text, when it was sent as one: STATUS_INVALID names `what` ("the request's field 'id'"). Text
 * is checked to be UTF-8, as proto3 demands of `string`. */
int pb_get_string(const struct pb_field *f, const char *what, struct str *out, struct error *err) MUST_CHECK;
int pb_get_bytes(const struct pb_field *f, const char *what, struct str *out, struct error *err) MUST_CHECK;
int pb_get_bool(const struct pb_field *f, const char *what, bool *out, struct error *err) MUST_CHECK;
int pb_get_u64(const struct pb_field *f, const char *what, uint64_t *out, struct error *err) MUST_CHECK;
int pb_get_i64(const struct pb_field *f, const char *what, int64_t *out, struct error *err) MUST_CHECK;
int pb_get_f64(const struct pb_field *f, const char *what, double *out, struct error *err) MUST_CHECK;

/* ---- writing ---- */

/* Bytes that `v` takes as a varint, 1..10. */
size_t pb_varint_size(uint64_t v);
/* Write `v` at `p`, which has room for PB_VARINT_MAX; returns the bytes written. */
size_t pb_varint_write(uint8_t *p, uint64_t v);

/* Append a key, or a key with its value, whatever the value is. */
void pb_append_tag(struct buf *b, uint32_t number, enum pb_wire wire);
void pb_append_varint(struct buf *b, uint64_t v);
void pb_append_u64(struct buf *b, uint32_t number, uint64_t v);
void pb_append_bytes(struct buf *b, uint32_t number, struct str v);
void pb_append_f64(struct buf *b, uint32_t number, double v);

/* Append a field unless it holds proto3's default. */
static inline void pb_put_u64(struct buf *b, uint32_t number, uint64_t v)
{
    if (v)
        pb_append_u64(b, number, v);
}
static inline void pb_put_bool(struct buf *b, uint32_t number, bool v)
{
    pb_put_u64(b, number, v);
}
static inline void pb_put_str(struct buf *b, uint32_t number, struct str v)
{
    if (v.n)
        pb_append_bytes(b, number, v);
}
/* A packed repeated int64; nothing when n is 0. */
void pb_put_packed_i64(struct buf *b, uint32_t number, const int64_t *v, size_t n);

/* A message inside a message: open, append its fields, close with what open returned. The length is written when it is known, and
 * what was appended moves up by its size: for messages of some kilobytes. An empty message is written as one. */
size_t pb_open_message(struct buf *b, uint32_t number);
void pb_close_message(struct buf *b, size_t opened);

#endif
