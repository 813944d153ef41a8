/* sink.h: where lines go: an inherited descriptor (stderr) or a file that is appended to and can be reopened.
 *
 * A stalled reader must not stall the server: a write first waits, for as long as the caller allows, until the descriptor takes
 * 4096 bytes (PIPE_BUF: poll promises that for pipes, and such a write is one piece among those of other processes), and gives up otherwise.
 * No lock: a file is reopened onto the same descriptor number, in one step. Writes may come from several threads, but then
 * two of them may both be let through to the last free place of a pipe: who must not block writes from one thread or under a lock. */
#ifndef INFERD_OS_SINK_H
#define INFERD_OS_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define OS_SINK_PIECE_BYTES 4096

struct os_sink {
    int fd;
    char *path;     /* NULL: inherited */
    bool terminal;  /* colours make sense */
    bool unlimited; /* a regular file: one write may have any size */
};

/* Append to the file `path`, made with mode 0640; "-" or "stderr" is descriptor 2, "stdout" is 1. */
int os_sink_open(const char *path, struct os_sink *out, struct error *err) MUST_CHECK;
void os_sink_close(struct os_sink *s);
/* Open the path again (after log rotation). Inherited descriptors: nothing to do. On failure the old file stays in use. Any thread. */
int os_sink_reopen(struct os_sink *s, struct error *err) MUST_CHECK;
/* Write at most one piece (OS_SINK_PIECE_BYTES; any size to a regular file), waiting for room until monotonic `until_ns`. 0 is success;
 * AGAIN: no room in time; IO and others: the write failed (disk full, reader gone). */
int os_sink_write(struct os_sink *s, const void *p, size_t n, uint64_t until_ns) MUST_CHECK;

#endif
