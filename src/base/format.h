/* format.h: printf for sentences that people and machines read: text that somebody else chose is shown escaped, and numbers as they were
 * typed.
 *
 * As vsnprintf, with these differences. What a "%.*s" or a "%s" shows has its control characters and what is no UTF-8 written as \n, \r, \t
 * or \xNN: nothing in it can begin a line of a log, end the sentence (NUL) or break JSON. All bytes of a "%.*s" are shown, behind a NUL,
 * too. A plain "%g" is the shortest decimal that reads back as the same float32 where the value is one, else as the same float64
 * (5.1f is 5.1). Backslashes stay as they are, so that a sentence within another is not escaped twice. Any thread; no allocation. */
#ifndef INFERD_BASE_FORMAT_H
#define INFERD_BASE_FORMAT_H

#include <stdarg.h>
#include <stddef.h>

#define FORMAT_NUMBER_BYTES 32

/* The decimal of "%g" above, terminated, in `out`; returns `out`. */
const char *format_number(double v, char out[FORMAT_NUMBER_BYTES]);

/* At most `cap` - 1 bytes and a NUL into `out`, whole characters and escapes only; returns how many there would be. A "%.*s" that takes more
 * than `echo_max` bytes is cut and ends in "..."; SIZE_MAX: never. No "%n" and no wide characters. */
size_t format_text(char *out, size_t cap, size_t echo_max, const char *fmt, va_list ap) __attribute__((format(printf, 4, 0)));

#endif
