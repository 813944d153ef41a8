/* stop.h: from token bytes to text that may leave the server: whole UTF-8 characters, and nothing that belongs to a stop string.
 *
 * Bytes are held back while they may still be the beginning of a stop string or of a character; everything else is given at once.
 * The first stop string found ends the text in front of it. Bytes that are no UTF-8 become U+FFFD. Pure; one thread a state. */
#ifndef INFERD_TEXT_STOP_H
#define INFERD_TEXT_STOP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/str.h"

#define STOP_STRINGS_MAX 64   /* of a request */
#define STOP_BYTES_MAX   1024 /* of a stop string */

struct stop_text {
    const struct str *stops; /* borrowed, none empty */
    size_t n_stops;
    struct buf held; /* bytes that came and were not given */
    size_t given;    /* bytes that came and were given (as they came, before any U+FFFD) */
};

/* Room for `room` held bytes is made at once, so that pushes of tokens shorter than that allocate nothing. False: out of memory. */
bool stop_text_init(struct stop_text *s, const struct str *stops, size_t n_stops, size_t room);
void stop_text_release(struct stop_text *s);

/* Add `bytes`; what may leave is appended to `out`. Returns the index of the stop string that was found, whose bytes and those behind it
 * are dropped (push no more), or -1. The earliest occurrence wins, among those the string listed first. s->held.failed or
 * out->failed: out of memory. O(bytes x sum of stop strings). */
int stop_text_push(struct stop_text *s, struct str bytes, struct buf *out);

/* The text ends without a stop string: give what is held; an unfinished character becomes one U+FFFD. */
void stop_text_finish(struct stop_text *s, struct buf *out);

#endif
