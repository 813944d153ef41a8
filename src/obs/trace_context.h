/* trace_context.h: the W3C traceparent header (Trace Context, Recommendation 2021-11-23): parse, check, make a child. Pure:
 * random bits are passed in. Any thread. */
#ifndef INFERD_OBS_TRACE_CONTEXT_H
#define INFERD_OBS_TRACE_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

#define TRACEPARENT_BYTES 55 /* "00-" 32 hex "-" 16 hex "-" 2 hex */

struct trace_context {
    uint8_t trace_id[16]; /* never all zero in a valid context */
    uint8_t span_id[8];   /* of the sender ("parent-id" in the header); never all zero */
    uint8_t flags;        /* bit 0: sampled */
};

/* True when `header` is a valid traceparent: version 00 in exactly 55 characters, or a later version (not ff) whose first 55 characters
 * have that form and are followed by nothing or "-". Hex digits are lower case. On false *out is untouched: start a new
 * trace, as the standard says. */
bool trace_context_parse(struct str header, struct trace_context *out);
/* A new trace from 192 random bits. */
void trace_context_start(struct trace_context *out, const uint64_t random[3], bool sampled);
/* The context to send on: the same trace, a new span id from 64 random bits, flags other than sampled cleared. */
void trace_context_child(const struct trace_context *parent, uint64_t random, struct trace_context *out);
/* Write the header's value, version 00, and a NUL. */
void trace_context_format(const struct trace_context *t, char out[TRACEPARENT_BYTES + 1]);

#endif
