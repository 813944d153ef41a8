/* coding.h: decoding Content-Encoding as it arrives: gzip, deflate (zlib-wrapped or raw), zstd; bounded against bombs.
 *
 * A decoder is fed input and fills whatever room the caller has; it never allocates in proportion to the output. Two bounds:
 * `max_out_bytes` on what comes out, and `max_ratio` on out/in, looked at once the output passes CODING_RATIO_FREE_BYTES (small
 * bodies of zeros compress very well and harm nobody). Concatenated gzip members and zstd frames are one body, as their formats
 * say; anything else behind the end, and an end that does not come, are errors. One thread. */
#ifndef INFERD_WIRE_CODING_H
#define INFERD_WIRE_CODING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

enum coding_kind { CODING_IDENTITY, CODING_GZIP, CODING_DEFLATE, CODING_ZSTD };

#define CODING_RATIO_FREE_BYTES 65536
/* Largest zstd window accepted, as for every HTTP sender (RFC 9659): 8 MiB. */
#define CODING_ZSTD_WINDOW_LOG 23

struct coding;

/* Reads a Content-Encoding value: empty, "identity", "gzip", "x-gzip", "deflate", "zstd", without regard to case.
 * STATUS_MEDIA_TYPE for any other coding and for more than one. */
int coding_parse(struct str value, enum coding_kind *out, struct error *err) MUST_CHECK;

/* `kind` is not CODING_IDENTITY. `max_ratio` 0: none. STATUS_NOMEM. */
int coding_create(enum coding_kind kind, uint64_t max_out_bytes, uint32_t max_ratio, struct coding **out,
                  struct error *err) MUST_CHECK;
void coding_destroy(struct coding *c); /* NULL is accepted */

/* Decode from `in` into `out` (out_room at least 64). *in_used and *out_n say how far it came. 0: all input was taken and everything that it yields was
 * written, or the room is full (*out_n == out_room: call again with more room, also when the input is used up).
 * STATUS_INVALID malformed, STATUS_TOO_LARGE a bound is passed, STATUS_NOMEM. After an error only coding_destroy. */
int coding_step(struct coding *c, const uint8_t *in, size_t n, size_t *in_used, uint8_t *out, size_t out_room, size_t *out_n,
                struct error *err) MUST_CHECK;
/* The input has ended. STATUS_INVALID when the stream has not. */
int coding_finish(struct coding *c, struct error *err) MUST_CHECK;

#endif
