/* pool.h: upstreams that serve the same thing, and which of them gets the next request.
 *
 * Pure: the clock is passed in, nothing is sent from here, and the same calls in the same order give the same picks. One thread at a time:
 * the owner holds a lock around each call, which is a short loop over the upstreams (a pick over 8 of them takes less than a microsecond)
 * and keeps counts exact at the moment of the decision: 64 requests at once over 8 equal replicas see each other.
 *
 * A pick narrows down in this order, and each step keeps what it has when nothing would be left (but for the first and the last):
 *   1. in service: not draining, not in maintenance, not loading, and its checks pass; not tried already by this request
 *   2. not ejected (last-host rule: when all are, those that pass their checks are used after all, and the pick says so)
 *   3. not suspect (a request timed out there and nothing has answered since)
 *   4. the priority level: level 0 takes all while 1 / overprovision of its weight is usable, then spills to the next (Envoy)
 *   5. the zone: the local one, as far as its share of the healthy capacity goes (Envoy's zone aware routing)
 *   6. room: fewer requests in flight than max_conns, fewer reported as waiting than max_queued; none with room: EXHAUSTED, and the caller may queue
 *   7. the policy, one file each: balance_*.c */
#ifndef INFERD_ROUTE_POOL_H
#define INFERD_ROUTE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

enum balance_policy {
    BALANCE_ROUND_ROBIN, /* smooth weighted round robin */
    BALANCE_LEAST_CONN,  /* fewest requests in flight for its weight */
    BALANCE_P2C,         /* the better of two at random, by latency times requests in flight */
    BALANCE_HASH,        /* the same key to the same upstream, within bounded load */
    BALANCE_LLM,         /* tokens in flight, reported queue and KV use, prompt prefix */
    BALANCE_COUNT
};
const char *balance_name(enum balance_policy p);

/* Passive health: what requests tell. Zeroed fields take the defaults in brackets. */
struct outlier_options {
    uint32_t consecutive;               /* gateway failures in a row that eject [5] */
    uint64_t base_ns, max_ns;           /* an ejection lasts base times the times ejected lately, at most max [30 s, 300 s] */
    double jitter;                      /* share of that by which it is lengthened at random [0.1] */
    uint64_t sweep_ns;                  /* the rates below are looked at so often [10 s] */
    uint32_t rate_hosts, rate_requests; /* success rate: with so many hosts with so many requests each [5, 100] ... */
    double rate_sigma;                  /* ... one whose rate is so many deviations below the mean is ejected [1.9] */
    double failure_share;               /* and any whose share of failed requests is this much [0.85] ... */
    uint32_t failure_requests;          /* ... of so many [50] */
    double slow_factor;                 /* and one so many times slower than the median host [5] ... */
    uint32_t slow_hosts, slow_requests; /* ... of so many with so many requests each [3, 50] */
};

/* Weights of the llm policy's parts. Zeroed: 2, 2, 3, 1 and 1.25. */
struct llm_options {
    double queue, kv, prefix, adapter;
    double bound;           /* tokens in flight over the mean that affinity may pile up */
    uint64_t report_max_ns; /* older reports are ignored [200 ms] */
};

struct pool_options {
    const char *name;
    enum balance_policy policy;
    uint32_t min_healthy;      /* passive ejection leaves so many [1] */
    uint32_t fall, rise;       /* checks in a row that take an upstream down and up [3, 2]; the very first decides alone */
    double overprovision;      /* [1.4] */
    uint32_t local_zone;       /* id of the zone this process is in; 0: none */
    uint32_t zone_min_healthy; /* zones are looked at while each has so many usable upstreams [2] */
    double hash_bound;         /* requests in flight over the mean that the hash policy allows [1.25] */
    uint64_t slow_start_ns;    /* weight grows from a tenth to the whole for so long after coming into service [0: at once] */
    uint64_t latency_tau_ns;   /* memory of the latency average [10 s] */
    uint32_t max_requests;     /* in flight on all of its upstreams together; 0: no bound */
    uint32_t max_queued; /* a server whose fresh report has so many waiting has no room; 0: reports don't matter for that */
    uint64_t word_ns;    /* "draining" and the like hold so long, unless they are said again [10 s] */
    struct outlier_options outlier;
    struct llm_options llm;
    uint64_t seed;
};

/* One upstream as configured. Names are unique within a pool. */
struct upstream_options {
    struct str name;          /* "10.0.0.7:8000": what the caller connects to; copied */
    struct str host;          /* what it calls itself, for TLS; copied when the name comes into the pool, and kept */
    uint32_t weight;          /* 1..1000 [1] */
    uint32_t level;           /* 0; backups 1 and up */
    uint32_t zone;            /* id, 0: none */
    uint64_t source;          /* the caller's: what it was made from */
    uint32_t max_conns;       /* requests in flight; 0: no bound */
    uint32_t max_fails;       /* nginx: so many failures within fail_timeout take it out for fail_timeout; 0: the pool's rule */
    uint64_t fail_timeout_ns; /* [10 s] */
    uint64_t slow_start_ns;   /* 0: the pool's */
};

/* What an upstream says of itself (ORCA headers, an agent line, its metrics: report.h). A report changes what it has, no more. */
enum upstream_says { UPSTREAM_READY, UPSTREAM_LOADING, UPSTREAM_DRAINING, UPSTREAM_MAINTENANCE, UPSTREAM_DOWN };
const char *upstream_says_name(enum upstream_says s); /* "ready", "loading" ... */

#define REPORT_ADAPTERS_MAX 16

struct upstream_report {
    bool has_says, has_load, has_adapters, has_weight, has_max_conns;
    enum upstream_says says;
    uint32_t queued;                        /* load: requests waiting */
    double kv_use;                          /* load: 0..1 */
    uint64_t adapters[REPORT_ADAPTERS_MAX]; /* [n_adapters] hashes of those that are loaded */
    uint32_t n_adapters;
    uint32_t weight_pc; /* of the configured weight, percent; 0: nothing new, please */
    uint32_t max_conns; /* 0: no bound of its own */
};

struct pool;
struct upstream; /* lives while it is in the pool or has picks out */

/* What happened to an upstream, for the log and the metrics. Called inside the pool_* call that caused it; must not call back. */
enum pool_event {
    POOL_EJECTED,
    POOL_EJECTION_REFUSED, /* it would leave fewer than min_healthy */
    POOL_READMITTED,
    POOL_CHECK_DOWN,
    POOL_CHECK_UP,
    POOL_SUSPECT,
    POOL_CLEARED,     /* suspect no more */
    POOL_SAYS,        /* its own word changed */
    POOL_LAST_RESORT, /* a pick had only ejected ones to choose from */
};
const char *pool_event_name(enum pool_event e);
typedef void (*pool_event_fn)(void *ctx, const struct pool *p, const struct upstream *u, enum pool_event e, const char *reason);

/* A pool without upstreams. `name` is copied. NOMEM. */
int pool_create(const struct pool_options *o, pool_event_fn on_event, void *ctx, struct pool **out,
                struct error *err) MUST_CHECK;
/* Every pick must be done. */
void pool_destroy(struct pool *p);
/* The upstreams from now on. Those named before keep their state; those left out get no more picks and end with their last one; new ones
 * start slowly only when some are there already. INVALID: a name twice, a weight out of range. On error nothing changes. */
int pool_set(struct pool *p, const struct upstream_options *list, size_t n, uint64_t now_ns, struct error *err) MUST_CHECK;

#define PICK_TRIED_MAX 8

struct pick_request {
    uint64_t hash;          /* key of the hash policy; the others ignore it */
    const uint64_t *prefix; /* chained hashes of the prompt's blocks (prefix.h); the llm policy */
    size_t n_prefix;
    uint64_t tokens;  /* what it is expected to cost; the llm policy [1] */
    uint32_t zone;    /* to prefer; 0: the pool's local one */
    uint64_t adapter; /* hash of the adapter's name, 0: none */
    const struct upstream *tried[PICK_TRIED_MAX];
    size_t n_tried;
};

struct pick {
    struct upstream *upstream;
    uint64_t at_ns, tokens;
    bool last_resort; /* it is ejected, but so were all */
};

/* Choose and count. UNAVAILABLE: none in service that was not tried. EXHAUSTED: all of those are at max_conns. */
int pool_pick(struct pool *p, const struct pick_request *r, uint64_t now_ns, struct pick *out, struct error *err) MUST_CHECK;

enum pick_outcome {
    PICK_OK,              /* any answer that is the upstream's own, 4xx and 501 too */
    PICK_SERVER_ERROR,    /* 500: counts for rates, not for the row of failures */
    PICK_GATEWAY_FAILURE, /* no connection, reset, garbage, 502, 503, 504 */
    PICK_TIMEOUT,         /* the time for one try passed: a gateway failure, and it is suspect from now on */
    PICK_CANCELLED,       /* the client left: says nothing */
};

/* The pick is over. Its latency is from pick to `now_ns`, learned when OK. Exactly once a pick. */
void pool_done(struct pool *p, const struct pick *k, enum pick_outcome outcome, uint64_t now_ns);

/* An active check of `u` ended. */
void pool_checked(struct pool *p, struct upstream *u, bool passed, uint64_t now_ns);
/* `u` said something. A word other than ready takes it out of service until it says otherwise or word_ns have passed in silence: one that
 * gets no requests has no answers to take its word back in. */
void pool_reported(struct pool *p, struct upstream *u, const struct upstream_report *r, uint64_t now_ns);
/* Readmission, rates: call at least once a second. */
void pool_tick(struct pool *p, uint64_t now_ns);

/* What an upstream is like; for checks, metrics and the admin page. */
struct upstream_view {
    struct upstream *upstream;
    struct str name;
    const struct upstream_options *options; /* as configured */
    bool usable, down, ejected, suspect;
    enum upstream_says says;
    uint32_t in_flight, level, zone, weight, times_ejected;
    uint64_t tokens, ejected_until_ns;
    uint32_t queued; /* reported, and of that age; UINT64_MAX: never */
    double kv_use;
    uint64_t report_age_ns;
    double latency_ns, share; /* share: of its weight, in slow start */
};
/* The `i`th; false past the end. */
bool pool_look(const struct pool *p, size_t i, uint64_t now_ns, struct upstream_view *out);
const char *pool_name(const struct pool *p);
/* Any thread that has a pick of it, without the lock. */
struct str upstream_name(const struct upstream *u);
struct str upstream_host(const struct upstream *u);
/* Room for handles of the pool's owner, zeroed at first. */
#define UPSTREAM_TAGS 8
void **upstream_tags(struct upstream *u);
/* ASSERTs the invariants: counts add up, indexes agree. For tests. */
void pool_validate(const struct pool *p);

#endif
