/* sse.h: server-sent events: framing what goes out, and reading what a server sends.
 *
 * An event is lines "event: NAME" and "data: TEXT", ended by an empty line; a line that begins with ':' is a comment, which clients
 * ignore and proxies count as life. Source: WHATWG HTML, section "Server-sent events". Sans I/O; one thread an object. */
#ifndef INFERD_WIRE_SSE_H
#define INFERD_WIRE_SSE_H

#include <stdbool.h>

#include "base/buf.h"

/* Append one event; `name` NULL: unnamed. A line break in `data` (\n, \r, or both) begins a new data line. */
void sse_write(struct buf *out, const char *name, struct str data);
/* The same in two halves around JSON that is appended in between and has no line breaks. */
void sse_begin(struct buf *out, const char *name);
void sse_end(struct buf *out);
/* A comment of one line. */
void sse_comment(struct buf *out, const char *text);

#define SSE_EVENT_BYTES_MAX (16u << 20)

/* Reading. Zeroed is ready. */
struct sse_reader {
    struct buf line, data, name;
    bool cr;     /* the last byte was \r: a \n that follows is part of it */
    bool any;    /* the event has a data line */
    bool failed; /* out of memory, or an event longer than SSE_EVENT_BYTES_MAX: nothing more comes */
};
void sse_reader_release(struct sse_reader *r);
/* Take bytes in; `each` is called for every event that ends in them (name empty: "message"). Borrowed for the call. */
void sse_reader_push(struct sse_reader *r, struct str bytes, void (*each)(void *ctx, struct str name, struct str data),
                     void *ctx);

#endif
