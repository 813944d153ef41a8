/* trim.c: see trim.h. */
#include "cli/trim.h"

#include "base/size.h"

#define SECOND      1000000000ull
#define MIB         (1ull << 20)
#define QUIET       (2 * SECOND)
#define GROWTH      (16 * MIB)
#define BUSY        (60 * SECOND)
#define BUSY_GROWTH (256 * MIB)

void trim_init(struct trim *t, uint64_t now_ns, uint64_t resident)
{
    *t = (struct trim){.busy_since_ns = now_ns, .quiet_mark = resident, .mark = resident};
}

bool trim_due(struct trim *t, uint64_t now_ns, uint64_t resident, uint64_t in_flight)
{
    t->quiet_mark = MIN_OF(t->quiet_mark, resident);
    t->mark = MIN_OF(t->mark, resident);
    if (in_flight)
        t->quiet_since_ns = 0;
    else if (!t->quiet_since_ns)
        t->quiet_since_ns = now_ns;
    if (t->quiet_since_ns) {
        t->busy_since_ns = now_ns;
        return now_ns - t->quiet_since_ns >= QUIET && resident > t->quiet_mark + GROWTH;
    }
    return now_ns - t->busy_since_ns >= BUSY && resident > t->mark + BUSY_GROWTH;
}

void trim_done(struct trim *t, uint64_t now_ns, uint64_t resident)
{
    t->busy_since_ns = now_ns;
    t->mark = resident;
    if (t->quiet_since_ns)
        t->quiet_mark = resident;
}
