/* trim.h: when to give freed memory back to the system. Pure: the caller brings the time and the figures.
 *
 * The allocator keeps what a burst of large requests needed between blocks that are in use (os/process.h bounds what it keeps
 * at the ends of its arenas), so a server that once held many bodies would hold their memory for ever.
 * Trimming walks the arenas under their locks, so it isn't done while requests run if that can be helped:
 *
 *   quiet  nothing in flight for QUIET: when memory is GROWTH above what the last quiet trim left
 *   busy   never quiet for BUSY: when memory is BUSY_GROWTH above what the last trim left, at most once in BUSY
 *
 * What a trim left is the new mark, so memory that is in use is not trimmed for again and again. Rejected: mallinfo (it walks
 * all free chunks to know less). */
#ifndef INFERD_CLI_TRIM_H
#define INFERD_CLI_TRIM_H

#include <stdbool.h>
#include <stdint.h>

struct trim {
    uint64_t quiet_since_ns; /* 0: something is in flight */
    uint64_t busy_since_ns;  /* neither quiet nor trimmed since then */
    uint64_t quiet_mark;     /* bytes resident behind the last quiet trim, or fewer since */
    uint64_t mark;           /* ... behind the last trim of either kind */
};

/* `now_ns` monotonic, not 0; `resident` bytes at the start. */
void trim_init(struct trim *t, uint64_t now_ns, uint64_t resident);
/* Every now and then, best some times a second: true when the caller should trim now, and call trim_done behind it. */
bool trim_due(struct trim *t, uint64_t now_ns, uint64_t resident, uint64_t in_flight);
void trim_done(struct trim *t, uint64_t now_ns, uint64_t resident);

#endif
