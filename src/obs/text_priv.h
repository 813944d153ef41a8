/* text_priv.h: for siblings: how times and values look in log lines. */
#ifndef INFERD_OBS_TEXT_PRIV_H
#define INFERD_OBS_TEXT_PRIV_H

#include <stdint.h>

#include "base/buf.h"

/* "2026-02-03T04:05:06.789012Z" for ns since 1970 (RFC 3339, UTC, microseconds). */
void text__append_time(struct buf *out, uint64_t wall_ns);
/* A value in a text line: bare when it is one plain word, else a JSON string in which also DEL and the C1 controls (U+0080..U+009F) are
 * escaped, so that nothing a client sends can steer a terminal or start a new line. Empty is "". */
void text__append_value(struct buf *out, struct str s);
/* A finite double by the shortest of %.15g, %.16g and %.17g that reads back to the same value. */
void text__append_f64(struct buf *out, double v);
/* `s` cut to `limit` bytes at a character boundary; *cut says whether anything went. */
struct str text__cut(struct str s, size_t limit, bool *cut);

#endif
