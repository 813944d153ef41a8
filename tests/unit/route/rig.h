/* rig.h: a pool under a fake clock, for the tests of route/. */
#ifndef INFERD_TESTS_ROUTE_RIG_H
#define INFERD_TESTS_ROUTE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "route/pool.h"
#include "route/prefix.h"

#define MS  1000000ull
#define SEC 1000000000ull

struct rig {
    struct pool *p;
    uint64_t now;
    unsigned events[16];
    char last_reason[160];
};

static inline void rig_event(void *ctx, const struct pool *p, const struct upstream *u, enum pool_event e, const char *reason)
{
    struct rig *r = ctx;
    (void)p, (void)u;
    r->events[e]++;
    snprintf(r->last_reason, sizeof r->last_reason, "%s", reason);
}

static inline void rig_init(struct rig *r, const struct pool_options *o)
{
    struct error err;
    *r = (struct rig){.now = 1000 * SEC};
    assert_int_equal(pool_create(o, rig_event, r, &r->p, &err), 0);
}

static inline void rig_set(struct rig *r, const struct upstream_options *list, size_t n)
{
    struct error err;
    assert_int_equal(pool_set(r->p, list, n, r->now, &err), 0);
    pool_validate(r->p);
}

/* `n` equal upstreams "a", "b", ... */
static inline void rig_equal(struct rig *r, size_t n)
{
    static const char names[] = "abcdefghijklmnopqrstuvwxyz";
    struct upstream_options list[26] = {0};
    for (size_t i = 0; i < n; i++)
        list[i].name = (struct str){names + i, 1};
    rig_set(r, list, n);
}

static inline struct pick rig_pick(struct rig *r, const struct pick_request *q)
{
    static const struct pick_request plain;
    struct pick k;
    struct error err;
    assert_int_equal(pool_pick(r->p, q ? q : &plain, r->now, &k, &err), 0);
    return k;
}

static inline char rig_name(const struct pick *k)
{
    return upstream_name(k->upstream).p[0];
}

/* One request that takes `ns`; who got it. */
static inline char rig_ask(struct rig *r, const struct pick_request *q, uint64_t ns, enum pick_outcome outcome)
{
    struct pick k = rig_pick(r, q);
    r->now += ns;
    char who = rig_name(&k);
    pool_done(r->p, &k, outcome, r->now);
    pool_validate(r->p);
    return who;
}

static inline struct upstream_view rig_view(const struct rig *r, char who)
{
    struct upstream_view v;
    for (size_t i = 0; pool_look(r->p, i, r->now, &v); i++)
        if (v.name.p[0] == who)
            return v;
    fail_msg("no upstream %c", who);
    return v;
}

static inline void rig_release(struct rig *r)
{
    pool_destroy(r->p);
}

#endif
