/* rig.h: what the tests of sched/ share: a batcher, a pool of items and short names for what one does with them. */
#ifndef TEST_SCHED_RIG_H
#define TEST_SCHED_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "sched/batcher.h"

#define MS        1000000ull
#define US        1000ull
#define RIG_ITEMS 4096

struct rig {
    struct batcher *b;
    struct batch_item items[RIG_ITEMS];
    uint32_t n;
    struct error err;
    struct batch_decision d;
    struct list batch;
    char ids[4096]; /* of the latest batch or expiry list: "0 3 4" */
};

static inline struct rig *rig_make(struct batch_policy p)
{
    struct rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->b = batcher_create(&p);
    assert_non_null(r->b);
    list_init(&r->batch);
    return r;
}

/* Write the ids of `l` into r->ids and empty it. */
static inline const char *rig_ids(struct rig *r, struct list *l)
{
    size_t at = 0;
    r->ids[0] = 0;
    for (struct list *n; (n = list_pop_front(l));) {
        struct batch_item *i = LIST_ENTRY(n, struct batch_item, link);
        at += (size_t)snprintf(r->ids + at, sizeof r->ids - at, "%s%d", at ? " " : "", (int)(i - r->items));
    }
    assert_true(batcher_validate(r->b));
    return r->ids;
}

/* What is left is removed first: a test need not drain the queue. */
static inline void rig_free(struct rig *r)
{
    struct list dead;
    list_init(&dead);
    batcher_expire(r->b, r->d.wake_ns == 0 ? 1 : UINT64_MAX - 1, &dead);
    rig_ids(r, &dead);
    for (uint32_t i = 0; i < r->n; i++)
        if (r->items[i].home)
            batcher_remove(r->b, &r->items[i]);
    assert_true(batcher_validate(r->b));
    batcher_destroy(r->b);
    free(r);
}

/* Admit the item as the next of the pool; its id on success, else the status. */
static inline int rig_admit(struct rig *r, struct batch_item want, uint64_t now)
{
    assert_true(r->n < RIG_ITEMS);
    struct batch_item *i = &r->items[r->n];
    *i = want;
    if (!i->rows)
        i->rows = 1;
    if (!i->deadline_ns)
        i->deadline_ns = SCHED_NEVER;
    int rc = batcher_admit(r->b, i, now, &r->err);
    assert_true(batcher_validate(r->b));
    return rc ? rc : (int)r->n++;
}

static inline int rig_rows(struct rig *r, uint32_t rows, uint64_t now)
{
    return rig_admit(r, (struct batch_item){.rows = rows}, now);
}

/* The ids of the batch closed at `now`, "" when none; r->d has the decision. */
static inline const char *rig_next(struct rig *r, uint64_t now)
{
    r->d = batcher_next(r->b, now, 1, &r->batch);
    if (!r->d.run)
        assert_true(list_empty(&r->batch));
    return rig_ids(r, &r->batch);
}

static inline const char *rig_expire(struct rig *r, uint64_t now)
{
    struct list dead;
    list_init(&dead);
    batcher_expire(r->b, now, &dead);
    return rig_ids(r, &dead);
}

/* Run the batch just closed for `run_ns` from `now`. */
static inline void rig_run(struct rig *r, uint64_t now, uint64_t run_ns)
{
    batcher_finish(r->b, r->d.run_id, now + run_ns, run_ns);
}

/* Teach L(rows) = a + b * rows by one run of each size, as a warm-up would. */
static inline void rig_warm(struct rig *r, uint64_t bucket, uint64_t a, uint64_t b, uint32_t max_rows)
{
    for (int round = 0; round < 4; round++)
        for (uint32_t rows = 1; rows <= max_rows; rows *= 2)
            batcher_learn(r->b, bucket, rows, a + b * rows);
}

#endif
