/* grpc_frame.h: what gRPC puts between HTTP/2 and protobuf: message prefixes, message compression, deadlines, status texts.
 *
 *     message = flag (1 byte: 0 plain, 1 compressed) | length (4 bytes, big-endian) | that many bytes
 *
 * A call with one request is read whole and split where it lies (grpc_split); a stream of requests goes through a struct
 * grpc_reader, which collects each message in a slab of its own. Both refuse a message above its limit by its prefix, before memory
 * is taken for it. Source: the "gRPC over HTTP/2" protocol document. Pure; a reader belongs to one thread. */
#ifndef INFERD_WIRE_GRPC_FRAME_H
#define INFERD_WIRE_GRPC_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"
#include "wire/coding.h"

#define GRPC_PREFIX_BYTES 5

/* The prefix of a message of n bytes at p. */
void grpc_prefix_write(uint8_t *p, bool compressed, uint32_t n);

struct grpc_message {
    struct slice data; /* as sent: compressed where the flag says so */
    bool compressed;
};

/* The one message that `body` is. `m->data` is a view of body without a reference of its own. INVALID: cut off, bytes behind it (a
 * second message: UNIMPLEMENTED, as gRPC has it for unary calls), no message, an unknown flag. TOO_LARGE: longer than `limit`. */
int grpc_split(struct slice body, uint64_t limit, struct grpc_message *m, struct error *err) MUST_CHECK;

struct grpc_reader {
    uint8_t prefix[GRPC_PREFIX_BYTES];
    size_t n_prefix;
    uint64_t limit_bytes; /* of one message */
    uint32_t length;      /* of the message under way */
    struct slab *slab;    /* it, as far as it has come; NULL before its first byte */
};

void grpc_reader_init(struct grpc_reader *r, uint64_t limit_bytes);
void grpc_reader_release(struct grpc_reader *r);
/* Take from *data[0..*n), moving both. 1: a message is whole (the slice's reference is the caller's; more bytes may be left); 0:
 * everything was taken; INVALID (flag), TOO_LARGE, NOMEM: nothing more can be read. Memory follows what has arrived, not what was
 * announced. */
int grpc_read(struct grpc_reader *r, const uint8_t **data, size_t *n, struct grpc_message *m, struct error *err) MUST_CHECK;
/* Bytes that the reader holds memory for. */
size_t grpc_reader_bytes(const struct grpc_reader *r);
/* The sender has ended: INVALID inside a message. */
int grpc_reader_finish(const struct grpc_reader *r, struct error *err) MUST_CHECK;

/* The value of grpc-encoding. UNIMPLEMENTED for what is not identity, gzip or deflate. */
int grpc_coding_parse(struct str value, enum coding_kind *out, struct error *err) MUST_CHECK;
/* Its name: "gzip". */
const char *grpc_coding_name(enum coding_kind kind);
#define GRPC_ACCEPTED "identity,deflate,gzip"
/* Does a list like "identity, gzip" (grpc-accept-encoding) name it? */
bool grpc_coding_accepted(struct str list, enum coding_kind kind);

/* Undo a message's compression into a slab of its own (*out holds its reference). INVALID: malformed, or compressed although `kind` is
 * identity; TOO_LARGE: past max_bytes or max_ratio (coding.h); NOMEM. */
int grpc_inflate(enum coding_kind kind, struct slice message, uint64_t max_bytes, uint32_t max_ratio, struct slice *out,
                 struct error *err) MUST_CHECK;
/* Compress the bytes of slices[0..n) as one message, fast rather than small, with its prefix in front. NOMEM. */
int grpc_deflate(enum coding_kind kind, const struct slice *slices, size_t n, struct slice *out, struct error *err) MUST_CHECK;

/* grpc-timeout: 1 to 8 digits and one of H M S m u n, into ns (UINT64_MAX when longer). INVALID. */
int grpc_timeout_parse(struct str value, uint64_t *ns, struct error *err) MUST_CHECK;
/* Append `text` as the value of grpc-message: bytes outside 0x20..0x7e and % as %XX. */
void grpc_message_append(struct buf *b, struct str text);

#endif
