/* pool_priv.h: for the files of route/ only: what a pool and an upstream are made of.
 *
 *   pool.c        life, membership, pick and done
 *   eligible.c    who may be picked: service, ejection, suspicion, levels, zones, room
 *   outlier.c     passive health: failures in a row, rates, ejection, readmission
 *   balance_*.c   a policy each
 *   prefix.c      which prompt blocks an upstream has seen */
#ifndef INFERD_ROUTE_POOL_PRIV_H
#define INFERD_ROUTE_POOL_PRIV_H

#include "base/rand.h"
#include "base/size.h"
#include "route/pool.h"
#include "route/prefix.h"

#define POOL_LEVELS_MAX 8
#define POOL_ZONES_MAX  32

struct upstream {
    struct pool *pool;
    struct upstream_options o;
    char *name, *host;
    bool gone; /* left the pool; lives for its picks */
    uint32_t in_flight;
    uint64_t tokens;   /* in flight */
    uint64_t since_ns; /* in service since then; 0: no slow start */

    /* active checks */
    bool checked, down;
    uint32_t check_run; /* results in a row that differ from the state */

    /* passive health */
    uint32_t failures;         /* in a row */
    uint64_t first_failure_ns; /* of those */
    uint64_t ejected_until_ns; /* 0: not ejected */
    uint64_t readmitted_ns;
    uint32_t times_ejected;
    bool suspect;
    uint32_t sweep_ok, sweep_bad; /* since the last sweep */
    double sweep_latency_ns;      /* sum over sweep_ok */

    struct upstream_report report;
    uint64_t reported_ns;   /* of its load; 0: never */
    uint64_t said_until_ns; /* its word, when that is not ready */

    double latency_ns; /* peak-sensitive average; 0: nothing known */
    uint64_t latency_at_ns;
    double current; /* smooth weighted round robin */
    struct prefix_set *prefix;
    void *tags[UPSTREAM_TAGS];
};

struct pool {
    struct pool_options o;
    char *name;
    struct upstream **all, **few, **tie; /* [cap]: members; scratch of a pick */
    size_t n, cap;
    pool_event_fn on_event;
    void *ctx;
    struct rand rand;
    uint64_t swept_ns;
};

/* Where it stands in slow start, times what its agent says: 0 < share <= 1 or more if the agent wants more. */
double pool__share(const struct pool *p, const struct upstream *u, uint64_t now_ns);
static inline double pool__weight(const struct pool *p, const struct upstream *u, uint64_t now_ns)
{
    return u->o.weight * pool__share(p, u, now_ns);
}
static inline bool upstream__in_service(const struct upstream *u)
{
    return !u->gone && !u->down && u->report.says == UPSTREAM_READY;
}
static inline bool upstream__ejected(const struct upstream *u, uint64_t now_ns)
{
    return u->ejected_until_ns > now_ns;
}
static inline bool upstream__usable(const struct upstream *u, uint64_t now_ns)
{
    return upstream__in_service(u) && !upstream__ejected(u, now_ns);
}
/* Is what it said of its load still worth something? */
static inline bool upstream__fresh(const struct upstream *u, uint64_t now_ns)
{
    return u->reported_ns && now_ns - MIN_OF(now_ns, u->reported_ns) <= u->pool->o.llm.report_max_ns;
}
void pool__event(struct pool *p, struct upstream *u, enum pool_event e, const char *reason);
/* In service from now on, after a time out of it. */
void pool__enter(struct pool *p, struct upstream *u, uint64_t now_ns);

/* eligible.c. Candidates into p->few, at least one. UNAVAILABLE, EXHAUSTED as pool_pick. */
int pool__eligible(struct pool *p, const struct pick_request *r, uint64_t now_ns, size_t *n, bool *last_resort,
                   struct error *err) MUST_CHECK;

/* outlier.c */
void outlier__defaults(struct outlier_options *o);
void outlier__learn(struct pool *p, struct upstream *u, enum pick_outcome outcome, uint64_t latency_ns, uint64_t now_ns);
void outlier__tick(struct pool *p, uint64_t now_ns);

/* balance_*.c: choose among c[n], n > 0. */
typedef struct upstream *(*balance_fn)(struct pool *p, struct upstream **c, size_t n, const struct pick_request *r,
                                       uint64_t now_ns);
struct upstream *balance__round_robin(struct pool *p, struct upstream **c, size_t n, const struct pick_request *r,
                                      uint64_t now_ns);
struct upstream *balance__least_conn(struct pool *p, struct upstream **c, size_t n, const struct pick_request *r,
                                     uint64_t now_ns);
struct upstream *balance__p2c(struct pool *p, struct upstream **c, size_t n, const struct pick_request *r, uint64_t now_ns);
struct upstream *balance__hash(struct pool *p, struct upstream **c, size_t n, const struct pick_request *r, uint64_t now_ns);
struct upstream *balance__llm(struct pool *p, struct upstream **c, size_t n, const struct pick_request *r, uint64_t now_ns);
/* balance_p2c.c: a request took `ns`. */
void balance__learn_latency(const struct pool *p, struct upstream *u, uint64_t ns, uint64_t now_ns);

#endif
