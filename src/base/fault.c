/* fault.c: parsing and counting behind fault.h. Exception: holds process-wide state, in test builds only, because a
 * fault point must be reachable from anywhere without a context pointer. */
#include "base/fault.h"

#ifdef INFERD_FAULTS
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/size.h"
#include "base/status.h"
#include "base/str.h"

struct fault {
    struct str name;
    uint64_t delay_ns, first, count; /* hits [first, first + count) are faulty; 1-based */
    int status;
    _Atomic uint64_t hits;
};

static struct fault faults[16];
static size_t n_faults;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void parse_action(struct fault *f, struct str action)
{
    struct str part = action, word;
    f->first = 1;
    f->count = UINT64_MAX;
    struct str at = part;
    if (str_cut(&at, '@', &word) && at.p) {
        struct str times = at, first;
        str_cut(&times, 'x', &first);
        str_to_u64(first, &f->first);
        if (times.p)
            str_to_u64(times, &f->count);
        part = word;
    } else {
        /* "x" also ends "exit"-free words here: the actions are delay=, error and oom */
        struct str times = part, head;
        if (str_cut(&times, 'x', &head) && times.p && str_to_u64(times, &f->count))
            part = head;
    }
    if (str_starts(part, STR("delay=")))
        str_to_duration_ns((struct str){part.p + 6, part.n - 6}, &f->delay_ns);
    else if (str_eq(part, STR("oom")))
        f->status = STATUS_NOMEM;
    else
        f->status = STATUS_INTERNAL;
}

static void parse_environment(void)
{
    struct str rest = str_of(getenv("INFERD_FAULT")), entry;
    while (n_faults < COUNT_OF(faults) && rest.p && str_cut(&rest, ',', &entry)) {
        struct str action = entry, name;
        if (!str_cut(&action, ':', &name) || !action.p)
            continue;
        faults[n_faults].name = name;
        parse_action(&faults[n_faults++], action);
    }
}

int fault_point(const char *name)
{
    pthread_once(&once, parse_environment);
    for (size_t i = 0; i < n_faults; i++) {
        struct fault *f = &faults[i];
        if (!str_eqz(f->name, name))
            continue;
        uint64_t hit = atomic_fetch_add_explicit(&f->hits, 1, memory_order_relaxed) + 1;
        if (hit < f->first || hit - f->first >= f->count)
            return 0;
        if (f->delay_ns) {
            struct timespec ts = {(time_t)(f->delay_ns / 1000000000u), (long)(f->delay_ns % 1000000000u)};
            nanosleep(&ts, NULL);
        }
        return f->status;
    }
    return 0;
}
#else
typedef int fault_nothing_to_compile; /* ISO C wants a declaration */
#endif
