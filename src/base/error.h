/* error.h: the message that goes with a status code.
 *
 * A fallible function takes an optional `struct error *err` as its last parameter and fills it when it returns a
 * negative status: one whole sentence that says what went wrong, where, and what to do. Callers may put context in
 * front (error_prefix) and never rewrite. The struct is caller's memory, usually on the stack; no ownership.
 * Text meant for clients must not hold paths, pointers or another tenant's names. Any thread; never blocks. */
#ifndef INFERD_BASE_ERROR_H
#define INFERD_BASE_ERROR_H

#include <stdarg.h>

#define ERROR_TEXT_BYTES 512

struct error {
    int code; /* enum status; 0 when nothing was reported */
    char text[ERROR_TEXT_BYTES];
};

#define MUST_CHECK             __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

/* Store `code` and the formatted sentence in `err` (may be NULL) and return `code`, so that
 * `return error_set(err, STATUS_INVALID, "...")` is the usual form. What somebody else chose is shown
 * escaped (base/format.h: "%.*s" shows a NUL, too), so that a message can't inject lines into a log and is UTF-8; "%g" is the shortest
 * decimal that reads back. An over-long text is cut and ends in "...", those of "%.*s" first. */
int error_set(struct error *err, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);
int error_vset(struct error *err, int code, const char *fmt, va_list ap);

/* Put "context: " in front of the text already in `err` (no effect when NULL or when nothing is there); returns
 * err->code, or STATUS_INTERNAL when `err` is NULL. */
int error_prefix(struct error *err, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
