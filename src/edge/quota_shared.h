/* quota_shared.h: policies whose counts all servers share, in a Redis.
 *
 * The Redis judges them, by one script in one round trip (quota_script.lua: what quota.c does, atomically over all meters of a request). The
 * local quota judges the other policies, and keeps a copy of what this server has admitted under the shared ones, which is what it judges
 * those by while the Redis is away:
 *
 *     reserve ── local policies here ── shared ones there ──> yes / no                       (one round trip, others meanwhile)
 *                                        └── no answer in time, or away ──> here, against this server's share of each limit
 *     settle, refund ── here at once ── there when it may be: numbered, repeated until confirmed, done once
 *
 * A server's share is the limit divided by the number of servers, rounded up. So with the Redis away all servers together admit at most the limit
 * (and a unit a server, from rounding) in a window that began without it; in one that began with it, that beside what was used before: under
 * twice the limit. What was admitted then is told to the Redis when it is back (budgets; rates and concurrency pass by themselves).
 *
 * A reservation belongs to this process (a random name), which renews a lease with the Redis; when the lease is over, any other server's next
 * call gives back what the process held. Calls carry the connection's epoch, and those that change counts for good a sequence number:
 * a Redis that wakes up and executes what an old connection still had in its buffers does nothing twice.
 *
 * When the Redis has lost its data the counts of budgets begin with what the servers that run have settled themselves in the windows that
 * run. Threads: any, under the gate's lock; answers come on the Redis client's thread. */
#ifndef INFERD_EDGE_QUOTA_SHARED_H
#define INFERD_EDGE_QUOTA_SHARED_H

#include "base/log.h"
#include "edge/quota_gate.h"

struct quota_shared;
struct os_mutex;

#define QUOTA_PREFIX_MAX 64

struct quota_shared_options {
    struct redis *redis;                 /* not started yet; is attached to. Destroyed before this */
    struct quota *quota;                 /* of `local` */
    struct os_mutex *lock;               /* guards the quota */
    const struct quota_policy *policies; /* [n] as written */
    struct quota_policy *local;          /* [n] the same; their limits are kept at this server's share */
    size_t n;
    const char *prefix;    /* of all keys: [A-Za-z0-9._-]{1,64} */
    uint64_t lease_ns;     /* 0: 10 s */
    uint32_t replicas;     /* servers that share; 0: as many as the Redis has seen alive, 1 before it has been seen */
    uint32_t reservations; /* at the Redis at once, unconfirmed ones included; 0: 65536. Past it they are judged here */
    struct metrics *metrics;
    struct logger *log;
};

/* INVALID (the prefix), NOMEM. */
int quota_shared_create(const struct quota_shared_options *o, struct quota_shared **out, struct error *err) MUST_CHECK;
void quota_shared_destroy(struct quota_shared *s); /* NULL is accepted */

/* As the functions of quota_gate.h that have the same name there. */
int quota_shared_reserve(struct quota_shared *s, const struct quota_ask *ask, struct quota_wait *w) MUST_CHECK;
int quota_shared_more(struct quota_shared *s, uint64_t id, uint64_t rows, uint64_t tokens, uint64_t now_ns, uint64_t now_s,
                      struct quota_wait *w) MUST_CHECK;
void quota_shared_end(struct quota_shared *s, uint64_t id, bool refund, uint64_t tokens, uint64_t now_ns, uint64_t now_s);
/* Is it one of quota_shared's ids? */
bool quota_shared_owns(uint64_t id);
/* Judge everything here from now on; return when no question is under way and settlements are confirmed, or `until_ns` has come. Blocks. */
void quota_shared_quiet(struct quota_shared *s, uint64_t until_ns);
/* Until the Redis judges, at most until `until_ns`. Blocks. */
void quota_shared_wait(struct quota_shared *s, uint64_t until_ns);
/* JSON members. */
void quota_shared_describe(struct quota_shared *s, struct buf *out);

#endif
