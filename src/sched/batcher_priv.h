/* batcher_priv.h: for the files of sched/ only: what a batcher is made of, and the calls between its parts.
 *
 *   batcher.c          life, clock, admission bounds, leaving, expiry, runs, statistics, validate
 *   buckets.c          the table of shape buckets: hash, active list, reuse of idle ones
 *   promise.c          what can be promised: work ahead, refusal at admission, backlog
 *   patience.c         what waiting for company is worth
 *   portion.c          how many of the rows that are there are worth running at once
 *   sharing.c          instances that share cores, and how many are worth running at once
 *   policy_fixed.c     Triton's rules
 *   policy_deadline.c  the learned rules; NONE as the case of batches of one
 *   rank.[ch]          the ordered queue of one bucket
 *   latency.[ch]       how long a batch takes
 *   arrival.[ch]       who is about to arrive
 *   turns.c, fair.[ch] whose turn it is, where several tenants queue
 *
 * Invariants (batcher_validate): an item that is queued is in its bucket's tree, in the arrivals list, and in the expiry heap
 * exactly when expires_ns is not SCHED_NEVER. A dead item (expired or hopeless, not handed out yet) has home == NULL and is
 * in the dead list only. A bucket is in the active list when its tree has items, else in the idle list. n_items, rows and
 * bytes count queued and dead items. */
#ifndef INFERD_SCHED_BATCHER_PRIV_H
#define INFERD_SCHED_BATCHER_PRIV_H

#include "sched/arrival.h"
#include "sched/batcher.h"
#include "sched/fair.h"
#include "sched/latency.h"
#include "sched/rank.h"

#define BATCH_HASH_SLOTS 512 /* a power of two; chains stay short with at most BATCH_BUCKETS_MAX buckets */

struct batch_bucket {
    uint64_t id;
    bool alone; /* the one bucket of items that run by themselves; their own id says how long they take */
    struct rank_tree queue;
    struct batch_bucket *chain; /* next in its hash slot */
    struct list where;          /* batcher.active or batcher.idle */
    uint32_t running;           /* batches out: not to be reused */
    double row_bytes;           /* what a row weighs, as the measure of likeness between buckets; 0: unknown */
    struct latency_model latency;
    struct arrival_model arrival;         /* of what was admitted */
    struct arrival_rate offered;          /* of all that came */
    uint64_t probed_ns;                   /* when its estimate was last tried although it said too late; 0: not needed yet */
    uint32_t probe_gap;                   /* between trials, in runs */
    double past_ns, past_rows, past_runs; /* machine time, rows and runs of the latest batches, fading */
    uint32_t cap;                         /* the largest batch worth running, as far as is known; policy.max_rows at first */
    uint64_t wait_until_ns;               /* company is being waited for no longer than this; 0: not waiting */
};

struct batch_run {
    uint32_t id;
    uint32_t rows;
    uint64_t started_ns;
    double started_sum; /* batcher.run_sum_ns then */
    double expected_ns;
    struct batch_bucket *home; /* where it is learned */
};

struct batcher {
    struct batch_policy policy;
    uint64_t now_ns; /* the latest clock seen: time never runs backwards here */
    uint64_t seq;
    uint32_t n_items, rows;
    uint64_t bytes;
    uint32_t level_items[BATCH_PRIORITIES_MAX + 1];
    struct fair *fair;    /* [BATCH_CLASSES]: turns; NULL while one tenant is all that was seen */
    uint64_t tenant;      /* that one */
    bool any, classes;    /* an item was seen; one of a class but 0 */
    struct list arrivals; /* queued items, oldest first, by item->link */
    struct list dead;     /* to be handed out by batcher_expire, by item->link */
    struct heap expiry;

    struct batch_bucket *hash[BATCH_HASH_SLOTS];
    struct list active, idle; /* idle: least recently used first */
    uint32_t n_buckets;
    struct batch_bucket alone;

    struct batch_run runs[BATCH_RUNS_MAX];
    uint32_t n_runs, last_run_id, instances;

    struct latency_tail tail;
    struct batch_sharing {
        double slow;          /* with n batches at once each takes 1 + slow (n - 1) times as long */
        double alone, beside; /* log of time / what was expected, of runs with nobody and with others beside them, fading */
        double others;        /* how many those had, on average */
        uint32_t n_alone, n_beside;
    } sharing;
    double run_sum_ns;        /* time that instances have run, all together */
    double safety_ns;         /* kept in hand at admission: grows when a promise had to be broken */
    uint64_t refused_ns;      /* when a newcomer was last refused for the work ahead of it; 0: never */
    struct arrival_rate rate; /* all buckets */
    struct arrival_rate level_rate[BATCH_PRIORITIES_MAX + 1]; /* admitted rows, by level */
    struct arrival_rate class_rate[BATCH_CLASSES];            /* and by class, once there are any */
    double busy;                                              /* share of recent time in which every instance ran */
    double busy_span_ns;                                      /* what "recent" is: a few batches */
};

/* buckets.c. Hash of an id; NULL when absent. */
struct batch_bucket *batcher__bucket_find(const struct batcher *b, uint64_t id);
/* Find or make; NULL with *status set: STATUS_EXHAUSTED (all in use) or STATUS_NOMEM. */
struct batch_bucket *batcher__bucket_get(struct batcher *b, uint64_t id, double row_bytes, int *status);
/* To be called when a bucket's queue became empty or non-empty, or its last run ended. */
void batcher__bucket_moved(struct batcher *b, struct batch_bucket *k);
void batcher__buckets_release(struct batcher *b);
/* The active bucket whose head comes first in the order; NULL when nothing is queued. */
struct batch_bucket *batcher__bucket_urgent(const struct batcher *b, const struct batch_bucket *but_not);
void batcher__bucket_init(const struct batcher *b, struct batch_bucket *k, uint64_t id);

/* batcher.c */
static inline struct batch_item *batcher__item(const struct rank_node *n)
{
    return CONTAINER_OF(n, struct batch_item, order);
}
static inline struct batch_item *batcher__head(const struct batch_bucket *k)
{
    return batcher__item(rank_first(&k->queue));
}
/* Take a queued item out of its bucket and into the dead list. */
void batcher__kill(struct batcher *b, struct batch_item *item);
/* Rows of `k` that one batch may hold now: max_rows, less where the order must be kept (preserve_ordering) and other
 * buckets have older items. `cut`: the latter is why. */
uint64_t batcher__rows_allowed(const struct batcher *b, const struct batch_bucket *k, bool *cut);
/* Close a batch: the longest prefix of `k` within `rows` (one item where batches are of one), moved onto `batch`. */
struct batch_decision batcher__close(struct batcher *b, struct batch_bucket *k, uint64_t rows, struct list *batch);
/* Its batches are of one item. */
static inline bool batcher__single(const struct batcher *b, const struct batch_bucket *k)
{
    return k->alone || b->policy.mode == BATCH_NONE || b->policy.max_rows == 1;
}

/* turns.c. Give the item its turn, before it is ordered; nothing is counted yet. The first item of a second tenant makes the table, and puts what
 * is queued in turns (without memory there are none). */
void batcher__turn(struct batcher *b, struct batch_item *item);
/* It is queued; it leaves the queue, `served` or not. */
void batcher__turn_taken(struct batcher *b, struct batch_item *item);
void batcher__turn_over(struct batcher *b, struct batch_item *item, bool served);

/* patience.c. How long to wait for company for the `now` rows of `k` before the next look, in ns; 0: run now. At most
 * `most_ns`. `others`: rows queued in other buckets. */
double batcher__wait_ns(const struct batcher *b, const struct batch_bucket *k, uint32_t rows, uint32_t others,
                        uint32_t free_instances, double most_ns);
/* Rows pushed back by a delay of an instance: what its time is worth in waiting rows. */
double batcher__pressure(const struct batcher *b, const struct batch_bucket *k);
/* Into how many batches to split `rows` when several instances are free. */
uint32_t batcher__split(const struct batcher *b, const struct batch_bucket *k, uint32_t rows, uint32_t free_instances);

/* portion.c. How many of `rows` that could run now are worth running at once: rows, or less where smaller batches are known to do as
 * well, or where that is to be found out. */
uint32_t batcher__portion(const struct batcher *b, const struct batch_bucket *k, uint32_t rows);
/* What bucket.cap should be. */
uint32_t batcher__cap(const struct batcher *b, const struct batch_bucket *k);

/* sharing.c. A run with `others` beside it, on average, took as long as one alone of `ns` would, as far as is known, where
 * `expected_ns` was expected of it: learn how much they slow each other down. False: too little is known of that for this run
 * to say how long one alone takes. */
bool batcher__share_learn(struct batcher *b, double ns, double expected_ns, double others);
/* How much longer a run takes with `others` beside it. */
static inline double batcher__slowed(const struct batcher *b, double others)
{
    return 1 + b->sharing.slow * others;
}
/* How many batches are worth running at once: all instances, or fewer where they share cores. */
uint32_t batcher__lanes(const struct batcher *b);

/* promise.c. Time from hand-out to finish that holds in all but about one case of a hundred; 0 while nothing is known. */
double batcher__promise_ns(const struct batcher *b, const struct batch_bucket *k, uint32_t rows);
/* Until the first of the batches that run now is expected to end; INFINITY when none runs. */
double batcher__first_end_ns(const struct batcher *b);
/* A promise had to be broken; a batch that kept all of them ran. */
void batcher__broke(struct batcher *b, const struct batch_bucket *k);
void batcher__kept(struct batcher *b);
/* Are newcomers being refused for lack of time these days? Then rows per second matter more than any one request. */
bool batcher__overloaded(const struct batcher *b, const struct batch_bucket *k);
/* 0, or STATUS_DEADLINE with `err` set. The item's order fields are filled in; a trial of the estimate loses the deadline among
 * them, so that it will be run. */
int batcher__promise(struct batcher *b, struct batch_bucket *k, struct batch_item *item, struct error *err) MUST_CHECK;

/* The policies: decide for one free instance. Expired items are gone already. */
struct batch_decision batcher__next_fixed(struct batcher *b, struct list *batch);
struct batch_decision batcher__next_deadline(struct batcher *b, uint32_t free_instances, struct list *batch);

#endif
