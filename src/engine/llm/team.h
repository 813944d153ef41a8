/* team.h: the compute threads of one model: they run the same function together and meet at barriers.
 *
 * A step is one team_run: every member calls fn(arg, member, team); member 0 is the calling (step) thread. Inside, work is cut by member
 * (team_range), cut and then evened out (team_share: the same rows go to the same member, so they stay in its caches and on its NUMA node, but
 * what a member that is held up has left is taken from it) or taken from a shared counter (team_take), and team_barrier separates stages. A barrier spins for about 50 us, then sleeps on a futex; between runs
 * members sleep the same way. With one member there is no thread and nothing is atomic. Oversubscribed (more members than CPUs that really
 * run) waiting members give the CPU away instead of burning it.
 *
 * Threads: a team belongs to one step thread; only that calls team_run. Members are started at creation and joined at destruction. */
#ifndef INFERD_ENGINE_LLM_TEAM_H
#define INFERD_ENGINE_LLM_TEAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define TEAM_MAX 256

struct team;
typedef void team_fn(void *arg, uint32_t member, struct team *t);

/* A team of `members` (0: what cgroup quota and affinity allow, at least 1, at most TEAM_MAX), named "<name>-N" for tools. NOMEM, IO (a thread
 * couldn't be started). */
int team_create(uint32_t members, const char *name, struct team **out, struct error *err) MUST_CHECK;
/* Stops and joins the members. NULL accepted. Not during a run. */
void team_destroy(struct team *t);
uint32_t team_size(const struct team *t);

/* Run fn on every member and return when all are done. What was written before is seen by all members, what they wrote is seen after. */
void team_run(struct team *t, team_fn *fn, void *arg);

/* Inside a run: wait until all members are here. All writes before it are seen by all after it. Every member must make the same
 * sequence of team_barrier calls. */
void team_barrier(struct team *t, uint32_t member);

/* Inside a run: the next index below `n` of the current stage's shared list, UINT32_MAX when it's empty. The counter starts at 0 after
 * team_run begins and after each team_barrier; so a stage holds at most one list. */
uint32_t team_take(struct team *t, uint32_t n);

/* A loop over n units that the members share. */
struct team_share {
    uint32_t id, n, grain; /* team.c's */
    uint32_t of, asked;    /* whose part is being taken from; how many members' parts were found used up */
};
#define TEAM_SHARES 4 /* one more than may be begun between two barriers */
/* Inside a run: begin the next such loop. Every member must begin the same ones in the same order. Pieces have `grain` >= 1 units, or what is left. */
void team_share_begin(struct team *t, uint32_t member, uint32_t n, uint32_t grain, struct team_share *s);
/* The next piece [*begin, *end) for the member that began `s`: of its own part (team_range) first, then of the others'. False: nothing is left. */
bool team_share_take(struct team *t, struct team_share *s, uint32_t *begin, uint32_t *end);

/* This member's part [*begin, *end) of n units, contiguous, sizes differing by at most one. Multiply by KERNEL_ROW_UNIT for rows. */
void team_range(const struct team *t, uint32_t member, uint32_t n, uint32_t *begin, uint32_t *end);

#endif
