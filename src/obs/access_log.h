/* access_log.h: one line a request, written without ever making a request wait.
 *
 * An I/O thread copies a fixed-size record into a bounded ring; one writer thread renders and writes. When the ring is full the
 * record is dropped and counted (inferd_access_log_dropped_total): a full disk or a pipe that nobody reads costs lines, not
 * latency. The writer is woken once a burst and then rests 5 ms between drains, so that a busy server pays one wake-up and one
 * write(2) for many lines. */
#ifndef INFERD_OBS_ACCESS_LOG_H
#define INFERD_OBS_ACCESS_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"
#include "obs/log_sink.h"

struct access_log;
struct metrics;

/* Strings are NUL-terminated and cut to their field (access_field_set); empty ones are left out of the line. */
struct access_record {
    uint64_t wall_ns; /* arrival, since 1970 */
    uint64_t bytes_in, bytes_out;
    uint64_t queue_ns, compute_ns, total_ns; /* waiting for an instance; in the engine; first byte in to last byte out */
    uint16_t status;                         /* HTTP status; 499: the client went away */
    char request_id[64];
    char peer[64]; /* address:port, or "unix" */
    char method[16];
    char path[256];    /* without the query, which may hold secrets */
    char protocol[24]; /* "kserve_http", "admin", ... */
    char subject[64];  /* who asked: the id of a key, the subject of a token */
    char tenant[65];
    char model[129];
    char version[64];
    char error[32]; /* status_name of a failure */
    char traceparent[56];
};

/* Copy `s` into a field of `cap` bytes, cut at a character boundary, NUL-terminated; an embedded NUL ends it. */
void access_field_set(char *field, size_t cap, struct str s);
#define ACCESS_SET(field, s) access_field_set((field), sizeof(field), (s))

struct access_log_options {
    const char *path; /* as log_sink_options.path */
    enum log_format format;
    bool audit;              /* other names of the counters: inferd_audit_log_* */
    size_t slots;            /* of the ring, rounded up to a power of two; 0: 4096 (3.8 MiB once all were used) */
    struct metrics *metrics; /* for the two counters; may be NULL */
    struct logger *log;      /* told when lines can't be written and when they can again; may be NULL */
};

/* Opens the file and starts the writer thread. */
int access_log_create(const struct access_log_options *o, struct access_log **out, struct error *err) MUST_CHECK;
/* Nobody may write any more. Writes what is in the ring, for at most one second; what is left counts as dropped. NULL is accepted. */
void access_log_destroy(struct access_log *l);
/* Any thread; never blocks; NULL `l` does nothing. */
void access_log_write(struct access_log *l, const struct access_record *r);
/* Ask the writer to open the file again (log rotation). Any thread; never blocks. */
void access_log_reopen(struct access_log *l);
/* Records dropped so far. Any thread. */
uint64_t access_log_dropped(const struct access_log *l);

#endif
