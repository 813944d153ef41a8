/* team.c: see team.h.
 *
 * Two words are what members meet at: `go` counts runs (members wait for it between runs), `phase` counts barriers passed. The
 * last to arrive at a barrier resets the counters and moves `phase`; the others spin on it, then sleep on it as a futex. A word moves with
 * release order after the data and is read with acquire order, so what was written before is seen. The mover makes the wake-up call only
 * when somebody sleeps: a sleeper counts itself (seq_cst) before it looks at the word a last time, the mover moves the word (seq_cst)
 * before it looks at the count, so one of them sees the other.
 *
 * Where more members than CPUs run, spinning takes the CPU from the very one that everybody waits for. Each member therefore remembers
 * how its last waits ended: after a few that had to sleep it spins a tenth, until a meeting is quick again. */
#include "engine/llm/team.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/status.h"
#include "os/cgroup.h"
#include "os/clock.h"
#include "os/futex.h"
#include "os/thread.h"

#define SPIN_NS     50000u
#define SPIN_MISSES 4  /* sleeps in a row after which a member spins shorter */
#define PAUSES      32 /* looks at the word between looks at the clock */

/* A word that members wait on, on a cache line of its own. */
struct meeting {
    alignas(64) _Atomic uint32_t word;
    _Atomic uint32_t sleepers;
};

struct member {
    alignas(64) struct os_thread thread;
    struct team *team;
    uint32_t index;
    uint32_t misses; /* this member's own */
    uint32_t shares; /* loops begun; its own */
    /* How far its part of a loop is taken: the loop's id above, the next unit below. By id, so that nobody needs to reset it: another id means
     * untouched. Loops that can be under way at once differ by less than TEAM_SHARES. */
    alignas(64) _Atomic uint64_t taken[TEAM_SHARES];
};

struct team {
    struct meeting go, phase;
    alignas(64) _Atomic uint32_t arrived;
    alignas(64) _Atomic uint32_t taken; /* team_take's counter */
    team_fn *fn;                        /* written before `go` moves */
    void *arg;
    bool stop;
    uint32_t size, started;
    struct member members[];
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Spin until the word isn't `seen` any more; false when the time is up. */
static bool spin(struct meeting *m, uint32_t seen, uint64_t ns)
{
    uint64_t start = 0;
    for (;;) {
        for (int i = 0; i < PAUSES; i++) {
            if (atomic_load_explicit(&m->word, memory_order_acquire) != seen)
                return true;
            relax();
        }
        uint64_t now = os_monotonic_ns();
        if (!start)
            start = now;
        else if (now - start > ns)
            return false;
    }
}

static void meeting_wait(struct meeting *m, uint32_t seen, uint32_t *misses)
{
    if (spin(m, seen, *misses >= SPIN_MISSES ? SPIN_NS / 10 : SPIN_NS)) {
        *misses = 0;
        return;
    }
    ++*misses;
    atomic_fetch_add(&m->sleepers, 1);
    while (atomic_load(&m->word) == seen)
        os_futex_wait(&m->word, seen);
    atomic_fetch_sub(&m->sleepers, 1);
}

static void meeting_open(struct meeting *m)
{
    atomic_fetch_add(&m->word, 1);
    if (atomic_load(&m->sleepers))
        os_futex_wake_all(&m->word);
}

static void member_main(void *arg)
{
    struct member *me = arg;
    struct team *t = me->team;
    for (uint32_t run = 0;; run++) {
        meeting_wait(&t->go, run, &me->misses);
        if (t->stop)
            return;
        t->fn(t->arg, me->index, t);
        team_barrier(t, me->index);
    }
}

static uint32_t default_size(void)
{
    struct os_cpu_limits cpu;
    os_cpu_limits_read(&cpu);
    return cpu.threads < TEAM_MAX ? cpu.threads : TEAM_MAX;
}

int team_create(uint32_t members, const char *name, struct team **out, struct error *err)
{
    uint32_t n = members ? members : default_size();
    if (n > TEAM_MAX)
        return error_set(err, STATUS_INVALID, "a team of %u compute threads was asked for; at most %u are possible", n,
                         TEAM_MAX);
    size_t bytes = sizeof(struct team) + n * sizeof(struct member);
    struct team *t = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (!t)
        return error_set(err, STATUS_NOMEM, "no memory for a team of %u compute threads", n);
    *t = (struct team){.size = n, .started = 1};
    for (uint32_t i = 0; i < n; i++)
        t->members[i] = (struct member){.team = t, .index = i};
    for (; t->started < n; t->started++) {
        char label[24]; /* os_thread_start cuts it to 15 characters */
        snprintf(label, sizeof label, "%.10s-%u", name, t->started);
        struct member *m = &t->members[t->started];
        int rc = os_thread_start(&m->thread, label, member_main, m, err);
        if (rc < 0) {
            team_destroy(t);
            return rc;
        }
    }
    *out = t;
    return STATUS_OK;
}

void team_destroy(struct team *t)
{
    if (!t)
        return;
    t->stop = true;
    meeting_open(&t->go);
    for (uint32_t i = 1; i < t->started; i++)
        os_thread_join(&t->members[i].thread);
    free(t);
}

uint32_t team_size(const struct team *t)
{
    return t->size;
}

void team_run(struct team *t, team_fn *fn, void *arg)
{
    atomic_store_explicit(&t->taken, 0, memory_order_relaxed);
    t->fn = fn;
    t->arg = arg;
    if (t->size > 1)
        meeting_open(&t->go);
    fn(arg, 0, t);
    team_barrier(t, 0);
}

void team_barrier(struct team *t, uint32_t member)
{
    DASSERT(member < t->size);
    if (t->size == 1) {
        atomic_store_explicit(&t->taken, 0, memory_order_relaxed);
        return;
    }
    uint32_t seen = atomic_load_explicit(&t->phase.word, memory_order_relaxed); /* can't move before we arrive */
    if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) + 1 < t->size) {
        meeting_wait(&t->phase, seen, &t->members[member].misses);
        return;
    }
    atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&t->taken, 0, memory_order_relaxed);
    meeting_open(&t->phase);
}

uint32_t team_take(struct team *t, uint32_t n)
{
    uint32_t i = atomic_load_explicit(&t->taken, memory_order_relaxed);
    if (t->size == 1) {
        atomic_store_explicit(&t->taken, i + 1, memory_order_relaxed);
        return i < n ? i : UINT32_MAX;
    }
    if (i >= n) /* don't count beyond: the list may be asked often */
        return UINT32_MAX;
    i = atomic_fetch_add_explicit(&t->taken, 1, memory_order_relaxed);
    return i < n ? i : UINT32_MAX;
}

void team_share_begin(struct team *t, uint32_t member, uint32_t n, uint32_t grain, struct team_share *s)
{
    *s = (struct team_share){.id = ++t->members[member].shares, .n = n, .grain = grain, .of = member};
}

/* The next piece of member `of`'s part. */
static bool take_of(struct team *t, const struct team_share *s, uint32_t of, uint32_t *begin, uint32_t *end)
{
    _Atomic uint64_t *word = &t->members[of].taken[s->id % TEAM_SHARES];
    uint32_t first, stop;
    team_range(t, of, s->n, &first, &stop);
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    for (;;) {
        uint32_t next = (uint32_t)(seen >> 32) == s->id ? (uint32_t)seen : first;
        if (next >= stop)
            return false;
        *begin = next;
        *end = stop - next < s->grain ? stop : next + s->grain;
        if (atomic_compare_exchange_weak_explicit(word, &seen, (uint64_t)s->id << 32 | *end, memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    }
}

bool team_share_take(struct team *t, struct team_share *s, uint32_t *begin, uint32_t *end)
{
    if (t->size == 1) {
        *begin = 0;
        *end = s->n;
        return s->asked++ == 0 && s->n > 0;
    }
    for (; s->asked < t->size; s->asked++, s->of = s->of + 1 < t->size ? s->of + 1 : 0)
        if (take_of(t, s, s->of, begin, end))
            return true;
    return false;
}

void team_range(const struct team *t, uint32_t member, uint32_t n, uint32_t *begin, uint32_t *end)
{
    *begin = (uint32_t)((uint64_t)n * member / t->size);
    *end = (uint32_t)((uint64_t)n * (member + 1) / t->size);
}
