/* work.h: threads for what would hold an I/O thread too long: decoding a large body, encoding a large answer, preparing a prompt.
 *
 * A bounded pool. A `struct work` is embedded in the caller's call; its memory stays valid until `run` has
 * been called or work_pool_remove said that it won't be. First come, first served. Threads start when there is work for them. */
#ifndef INFERD_API_WORK_H
#define INFERD_API_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"

struct work_pool;

/* Touched by the pool alone between work_pool_add and `run`. */
struct work {
    struct list link;
    void (*run)(struct work *w); /* on a thread of the pool; the work is the caller's again: usually ends with loop_post */
};

/* At most `threads` (at least 1) threads, called `name` (a literal). `nice` is added to their niceness: what is above 0 gives way to
 * the I/O threads, so that on a busy machine health checks and small requests come first. NULL: out of memory. */
struct work_pool *work_pool_create(const char *name, uint32_t threads, int nice);
/* Closes first. Blocks as work_pool_close does. NULL is accepted. */
void work_pool_destroy(struct work_pool *p);

/* Any thread; does not block. False: the pool is closed or has no thread and can't start one: the caller does the work itself,
 * where it is. */
bool work_pool_add(struct work_pool *p, struct work *w) MUST_CHECK;
/* The caller doesn't want it any more. True: it was still waiting and `run` won't be called; false: it runs or has run. Only
 * between work_pool_add and what `run` posts. Any thread; does not block; O(1). */
bool work_pool_remove(struct work_pool *p, struct work *w) MUST_CHECK;

/* Take no more work, finish what there is, end the threads. Blocks until then; once. */
void work_pool_close(struct work_pool *p);

#endif
