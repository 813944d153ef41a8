/* log_sink.h: where log records of base/log.h go: text or JSON lines, to stderr or a file.
 *
 * One record is one line is one write(2) of at most 4096 bytes, so lines never mix, not even with those of other processes on the
 * same pipe. A reader that stalls costs a record at most 20 ms once; while it stays stalled records are dropped and counted, and the
 * number is logged when it reads again. The same event more than `max_per_second` times in a second is counted instead of
 * written ("log_suppressed"), so that a client that provokes warnings can't fill a disk. Any thread; one lock (RANK_LOG). */
#ifndef INFERD_OBS_LOG_SINK_H
#define INFERD_OBS_LOG_SINK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"

struct log_sink;

enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };
enum log_colour { LOG_COLOUR_AUTO /* on a terminal, unless NO_COLOR is set */, LOG_COLOUR_NEVER, LOG_COLOUR_ALWAYS };

struct log_sink_options {
    const char *path; /* NULL, "-" or "stderr": descriptor 2; "stdout": 1; else a file to append to */
    enum log_format format;
    enum log_level level;
    enum log_colour colour;  /* text only */
    uint32_t max_per_second; /* per event; 0: no limit */
};

/* NOMEM, or what opening the file gave. */
int log_sink_create(const struct log_sink_options *o, struct log_sink **out, struct error *err) MUST_CHECK;
/* Nobody may log any more. NULL is accepted. */
void log_sink_destroy(struct log_sink *s);
/* What code is handed; lives as long as the sink. */
struct logger *log_sink_logger(struct log_sink *s);
/* Open the file again after a rotation; on failure the old one stays. Any thread. */
int log_sink_reopen(struct log_sink *s, struct error *err) MUST_CHECK;
/* Records dropped because the reader stalled, the disk was full or memory ran out. Any thread. */
uint64_t log_sink_dropped(const struct log_sink *s);

#endif
