/* log_sink_priv.h: for log_sink.c, log_render.c and their tests: a record as a line, without writing it. */
#ifndef INFERD_OBS_LOG_SINK_PRIV_H
#define INFERD_OBS_LOG_SINK_PRIV_H

#include "base/buf.h"
#include "obs/log_sink.h"

#define LOG__LINE_BYTES  4096 /* newline included */
#define LOG__VALUE_BYTES 1024 /* a longer string value is cut and ends in "..." */

/* Append the line, newline included. A field that no longer fits ends the record, with truncated=true. */
void log__render_text(struct buf *out, uint64_t wall_ns, bool colour, enum log_level level, const char *event,
                      const struct log_field *fields);
void log__render_json(struct buf *out, uint64_t wall_ns, enum log_level level, const char *event,
                      const struct log_field *fields);

#endif
