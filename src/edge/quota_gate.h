/* quota_gate.h: one struct quota for all threads of a server, behind a lock, with its policies and the file of its budgets' text.
 *
 * The lock is held for a decision: some hash lookups and additions, under a microsecond. Clocks are passed in. */
#ifndef INFERD_EDGE_QUOTA_GATE_H
#define INFERD_EDGE_QUOTA_GATE_H

#include "edge/quota.h"

struct quota_gate;
struct metrics;
struct redis;
struct logger;

struct quota_gate_options {
    struct metrics *metrics; /* may be NULL */
    /* Policies are shared through it (quota_shared.h); not started yet, and destroyed before the gate. NULL: all are local */
    struct redis *redis;
    bool share;         /* those that don't say, too */
    const char *prefix; /* of keys */
    uint64_t lease_ns;
    uint32_t replicas;
    struct logger *log;
};

/* From the text of a policy file. Errors as quota_policies_parse; INVALID: a policy is shared and there is no Redis; NOMEM. */
int quota_gate_create(struct str text, const char *where, const struct quota_gate_options *o, struct quota_gate **out,
                      struct error *err) MUST_CHECK;
void quota_gate_destroy(struct quota_gate *g); /* NULL is accepted */

/* A question that may need the Redis. Embedded by the caller; what is private is the gate's while AGAIN stands. */
struct quota_wait {
    void (*done)(struct quota_wait *w); /* after AGAIN, once, on another thread, within redis.deadline: usually a loop_post */
    void *ctx;                          /* of `done` */
    int rc;                             /* 0 or EXHAUSTED */
    uint64_t id;                        /* of what was reserved */
    struct quota_verdict v;
    struct quota_ask ask; /* private; its strings must live until `done` */
};

/* As quota_reserve and quota_more: 0 or EXHAUSTED, with w->rc, w->id and w->v set; or AGAIN. One question of a reservation at a time, and
 * none when it is settled. Any thread; never blocks. */
int quota_gate_ask(struct quota_gate *g, const struct quota_ask *ask, struct quota_wait *w) MUST_CHECK;
int quota_gate_ask_more(struct quota_gate *g, uint64_t id, uint64_t rows, uint64_t tokens, uint64_t now_ns, uint64_t now_s,
                        struct quota_wait *w) MUST_CHECK;
/* After `done`: count a refusal, as the two above have done for those they answered themselves. */
void quota_gate_count(struct quota_gate *g, const struct quota_wait *w);
/* No question is under way any more, and from now on none needs the Redis. Waits for that, at most about its deadline. */
void quota_gate_quiet(struct quota_gate *g);
/* Wait until the Redis judges what is shared, at most until then; at start. */
void quota_gate_wait_shared(struct quota_gate *g, uint64_t until_ns);
/* What shares it, as JSON members; false: nothing does. */
bool quota_gate_describe(struct quota_gate *g, struct buf *out);

/* As in quota.h. Any thread. */
void quota_gate_settle(struct quota_gate *g, uint64_t id, uint64_t tokens, uint64_t now_ns, uint64_t now_s);
void quota_gate_refund(struct quota_gate *g, uint64_t id, uint64_t now_ns, uint64_t now_s);

/* Expire; and, when budgets have changed, append their text to `out` and return true. The control thread, now and then. */
bool quota_gate_tick(struct quota_gate *g, uint64_t now_ns, uint64_t now_s, struct buf *out);
/* What the tick gave could not be written. */
void quota_gate_mark_dirty(struct quota_gate *g);
int quota_gate_load(struct quota_gate *g, struct str text, uint64_t now_s, struct error *err) MUST_CHECK;

/* Call back with each model that a policy names without a wildcard. */
void quota_gate_models(const struct quota_gate *g, void (*each)(void *ctx, const char *policy, struct str model), void *ctx);

/* One whole sentence for the caller who was refused. */
void quota_explain(const struct quota_verdict *v, struct error *err);

#endif
