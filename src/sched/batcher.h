/* batcher.h: one model version's queue and the decision when to close a batch. Pure: no clock, no locks, no threads, no I/O;
 * the caller passes `now` and serialises calls (model/ holds the version's queue lock around each).
 *
 * Items are embedded in the caller's request. Order of service: by (class, priority level, demoted, tenant's turn, deadline, arrival);
 * FIXED, as Triton, has arrival order in place of deadlines, and preserve_ordering makes it arrival order altogether. A deadline further off
 * than BATCH_PATIENCE_NS counts as that for the order (and only for it), so that a request without a deadline is overtaken
 * for that long at most. Turns: where items of more than one tenant have been seen, each gets a quarter of a batch in turn (sched/fair.h), so
 * that a tenant waits for his own backlog and not for others'; within a turn, and while there is but one tenant, deadlines decide. Only items with the same `bucket` (padded shape class, see below) share a batch. Rows, never
 * requests, are counted. Every item ends in exactly one of: a batch, an expiry list, a removal.
 *
 * The caller's loop. An arrival: batcher_admit, then wake an instance thread. An instance thread that is free: batcher_expire
 * and answer those, batcher_next; run what it hands out and then batcher_finish; else sleep until wake_ns or an arrival.
 * Some thread also calls batcher_expire at batcher_next_expiry while all instances are busy.
 *
 * Policies. FIXED is Triton's dynamic batcher under Triton's names (preferred_batch_size, max_queue_delay, priority levels,
 * queue policies). DEADLINE (default) learns the latency L(bucket, rows) online and closes a batch when one of these holds:
 *   - the batch is full or no further arrival could fit;
 *   - waiting longer would make the most urgent member late: now + L(rows + expected) + margin >= deadline;
 *   - the expected gain of waiting (less time per row) no longer exceeds its cost (the members' added waiting time), by the
 *     observed arrival rate; with a free instance and a thin arrival stream that is at once: light load waits zero.
 * An item whose deadline can't be met even if it ran next (now + L(its rows) > deadline) is refused at admission.
 * See docs/internals/batcher.md for the derivation and the sources (Clockwork OSDI'20, Clipper NSDI'17, Nexus SOSP'19). */
#ifndef INFERD_SCHED_BATCHER_H
#define INFERD_SCHED_BATCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/heap.h"
#include "base/list.h"
#include "sched/rank.h"

#define SCHED_NEVER          UINT64_MAX
#define BATCH_ROWS_MAX       4096
#define BATCH_PRIORITIES_MAX 16
#define BATCH_CLASSES        4
#define BATCH_PREFERRED_MAX  16
#define BATCH_BUCKETS_MAX    256 /* distinct shapes queued or running at once; idle ones are reused, least recent first */
#define BATCH_RUNS_MAX       256 /* instances of one version */
#define BATCH_PATIENCE_NS    5000000000u

enum batch_mode {
    BATCH_NONE,     /* every request runs alone */
    BATCH_FIXED,    /* Triton's rules */
    BATCH_DEADLINE, /* learned */
};

/* Triton's ModelQueuePolicy, per priority level. */
struct batch_queue_policy {
    bool delay_on_timeout;       /* DELAY: past its timeout the item is served after all others; false: REJECT (504) */
    uint64_t default_timeout_ns; /* 0: none; queue time only, Triton's meaning */
    bool allow_timeout_override;
    uint32_t max_queue_items; /* 0: only the byte and row bounds below */
};

struct batch_policy {
    enum batch_mode mode;
    uint32_t max_rows; /* per batch; 1 when the model doesn't batch */
    uint32_t preferred_rows[BATCH_PREFERRED_MAX];
    uint32_t n_preferred;
    uint64_t max_queue_delay_ns; /* FIXED: the delay. DEADLINE: an upper bound on waiting for company; 0: learned only */
    bool preserve_ordering;
    uint32_t priority_levels;        /* 0 or 1: one class. Levels are 1..n as in Triton, 1 is most urgent */
    uint32_t default_priority_level; /* used for items with priority 0 */
    struct batch_queue_policy queue[BATCH_PRIORITIES_MAX + 1]; /* [level]; [0] is the default policy */
    uint32_t max_queue_rows;                                   /* bound over all levels; 0: 64 x max_rows */
    uint64_t max_queue_bytes;                                  /* bound over all levels; 0: no bound of its own */
};

/* One queued request. Embedded by the caller, who owns it; the batcher links it from admit until it leaves. */
struct batch_item {
    /* set by the caller before batcher_admit */
    uint32_t rows;        /* 1..max_rows */
    uint32_t priority;    /* 0: default level; else 1..priority_levels */
    uint64_t bytes;       /* what it pins in memory */
    uint64_t bucket;      /* batches never mix buckets; equal padded shapes have equal buckets */
    uint64_t deadline_ns; /* absolute, covers queue and run; SCHED_NEVER: none */
    uint64_t timeout_ns;  /* Triton's per-request queue timeout (relative); 0: none given */
    uint32_t class;       /* 0: most important, to BATCH_CLASSES - 1; before levels, which are the model's own */
    uint64_t tenant;      /* a hash: whose turn it takes; 0: nobody's */
    bool alone;           /* must run in a batch of its own (re-run after a failed batch): not held to the queue bounds, which
                              it passed before */
    /* owned by the batcher */
    uint64_t arrived_ns, expires_ns, order_ns, seq;
    uint64_t start, turn; /* where several tenants queue */
    uint32_t level;
    bool fair;              /* counted among them */
    bool demoted;           /* timed out under DELAY */
    struct rank_node order; /* in its bucket's queue */
    struct heap_node expiry;
    struct batch_bucket *home;
    struct list link; /* in the batch or expiry list handed out */
};

struct batcher; /* private: see batcher.c */

/* `policy` is copied; values out of range are brought into it (max_rows into 1..BATCH_ROWS_MAX, ...): conf/ is where a user
 * is told. NULL when out of memory. One instance until batcher_set_instances says otherwise. */
struct batcher *batcher_create(const struct batch_policy *policy);
/* The queue must be empty. */
void batcher_destroy(struct batcher *b);

/* How many instances exist now (busy and free): for what can be promised at admission. 1..BATCH_RUNS_MAX. */
void batcher_set_instances(struct batcher *b, uint32_t instances);

/* Queue `item`. Errors leave it untouched:
 *   STATUS_INVALID    rows 0 or > max_rows (text names both), priority outside 1..levels
 *   STATUS_EXHAUSTED  a bound is reached (text names which bound and its value)
 *   STATUS_DEADLINE   cannot be met any more: the text has the expected time and the time left
 *   STATUS_NOMEM
 * Cost: O(log n) and, for an item with a deadline, one O(log n) look at each bucket that has items queued. */
int batcher_admit(struct batcher *b, struct batch_item *item, uint64_t now_ns, struct error *err) MUST_CHECK;

/* Take a queued item out again (client gone). No scan; O(1) amortised against its admission (docs/internals/batcher.md). The item must be queued here. */
void batcher_remove(struct batcher *b, struct batch_item *item);

/* Move every item whose deadline (or REJECT timeout) has passed, or was found by batcher_next to be out of reach, onto
 * `expired` (linked by item->link). A deadline has passed at now >= deadline, a queue timeout at now > timeout (Triton). */
void batcher_expire(struct batcher *b, uint64_t now_ns, struct list *expired);

struct batch_decision {
    bool run;      /* items in `batch` are to run now */
    uint32_t rows; /* their sum */
    uint64_t bucket;
    uint32_t run_id;  /* for batcher_finish */
    uint64_t wake_ns; /* when !run: decide again at this time or at the next admit; SCHED_NEVER: nothing queued. Covers
                          expiry times too */
};

/* An instance is free at `now`: decide. `free_instances` >= 1 counts it and its idle siblings. Items of a closed batch are
 * moved onto `batch` in service order. */
struct batch_decision batcher_next(struct batcher *b, uint64_t now_ns, uint32_t free_instances, struct list *batch);

/* The batch `run_id` ended at `now`, having run for `run_ns`; 0 when it failed, was cancelled or never started. What is learned
 * is the time from batcher_next to here: gathering and slicing keep an instance as busy as running. To be called for every
 * batch handed out, before its answers go out (else the first new request of an answered client comes before the news that
 * it was answered, and isn't recognised as its return) and before batcher_next is asked on behalf of the same instance.
 * 0 and unknown ids are ignored. */
void batcher_finish(struct batcher *b, uint32_t run_id, uint64_t now_ns, uint64_t run_ns);

/* When the caller should call batcher_expire although no instance is free. SCHED_NEVER: nothing queued expires. */
uint64_t batcher_next_expiry(const struct batcher *b);

/* A batch of `rows` of `bucket` that did not come from batcher_next took `run_ns`: learn (warm-up runs, one a batch size, are
 * worth giving: they make the first promises right). */
void batcher_learn(struct batcher *b, uint64_t bucket, uint32_t rows, uint64_t run_ns);

struct batcher_stats {
    uint32_t queued_items, queued_rows;
    uint64_t queued_bytes;
    uint64_t oldest_ns; /* arrival of the oldest queued item; SCHED_NEVER: none */
    double arrival_rows_per_s;
};
void batcher_stats(const struct batcher *b, struct batcher_stats *out);

/* How long `instances` would take for all that is queued and running, as of the last call that had a clock: what a newcomer of
 * the lowest priority has in front of it, for Retry-After and instance scaling; 0 when unknown. */
uint64_t batcher_backlog_ns(const struct batcher *b, uint32_t instances);

/* Structure check for tests and debug builds. */
bool batcher_validate(const struct batcher *b);

#endif
