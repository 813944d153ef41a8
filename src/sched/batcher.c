/* batcher.c: see batcher.h for the contract and batcher_priv.h for the parts. This file is the life of an item: admitted into
 * its bucket's ordered queue and the expiry heap; out by a closed batch, by its deadline, or by removal; and the life of a
 * run: handed out, finished, learned from. How a batch is closed is the policies' business.
 *
 * Time: `now` is what the caller read, perhaps before it got the lock; b->now_ns keeps the latest, so that a late reader
 * can't turn the clock back.
 * Rejected: one queue for all shapes (a shape change would cut batches, as it does in Triton); a timer wheel for deadlines
 * (needs ticks; the heap gives the exact next instant for the caller to sleep on). */
#include "sched/batcher_priv.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/status.h"

#define QUEUE_ROWS_FACTOR  64u
#define BUSY_SPAN_FLOOR_NS 20e6
#define HORIZON_FLOOR_NS   1e5
#define PAST_RUNS          16.0

static bool expiry_less(const struct heap_node *x, const struct heap_node *y)
{
    const struct batch_item *a = CONTAINER_OF(x, struct batch_item, expiry);
    const struct batch_item *b = CONTAINER_OF(y, struct batch_item, expiry);
    return a->expires_ns != b->expires_ns ? a->expires_ns < b->expires_ns : a->seq < b->seq;
}

/* Bring what conf/ should have checked into range. */
static void policy_tidy(struct batch_policy *p)
{
    p->max_rows = MIN_OF(MAX_OF(p->max_rows, 1u), (uint32_t)BATCH_ROWS_MAX);
    p->priority_levels = MIN_OF(p->priority_levels, (uint32_t)BATCH_PRIORITIES_MAX);
    if (p->default_priority_level > p->priority_levels)
        p->default_priority_level = p->priority_levels;
    if (p->priority_levels && !p->default_priority_level)
        p->default_priority_level = 1;
    if (!p->max_queue_rows)
        p->max_queue_rows = QUEUE_ROWS_FACTOR * p->max_rows;
    p->max_queue_rows = MAX_OF(p->max_queue_rows, p->max_rows);
    p->max_queue_delay_ns = MIN_OF(p->max_queue_delay_ns, SCHED_NEVER / 4); /* so that it can be added to a time */
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_preferred && i < BATCH_PREFERRED_MAX; i++)
        if (p->preferred_rows[i] && p->preferred_rows[i] <= p->max_rows)
            p->preferred_rows[n++] = p->preferred_rows[i];
    if (!n)
        p->preferred_rows[n++] = p->max_rows; /* Triton's default */
    p->n_preferred = n;
}

struct batcher *batcher_create(const struct batch_policy *policy)
{
    struct batcher *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->policy = *policy;
    policy_tidy(&b->policy);
    b->instances = 1;
    b->busy_span_ns = BUSY_SPAN_FLOOR_NS;
    list_init(&b->arrivals);
    list_init(&b->dead);
    list_init(&b->active);
    list_init(&b->idle);
    heap_init(&b->expiry, expiry_less);
    latency_tail_init(&b->tail);
    batcher__bucket_init(b, &b->alone, 0);
    b->alone.alone = true;
    return b;
}

void batcher_destroy(struct batcher *b)
{
    if (!b)
        return;
    ASSERT(b->n_items == 0);
    batcher__buckets_release(b);
    free(b->fair);
    free(b);
}

void batcher_set_instances(struct batcher *b, uint32_t instances)
{
    b->instances = MIN_OF(MAX_OF(instances, 1u), (uint32_t)BATCH_RUNS_MAX);
}

/* Move the clock to `now` and account for the time that has gone by. */
static void clock_to(struct batcher *b, uint64_t now_ns)
{
    if (now_ns <= b->now_ns)
        return;
    if (b->now_ns) {
        bool busy = b->n_runs >= batcher__lanes(b);
        double dt = (double)(now_ns - b->now_ns), keep = arrival_fade(dt / b->busy_span_ns);
        b->run_sum_ns += dt * b->n_runs;
        b->busy = b->busy * keep + (busy ? 1 - keep : 0);
    }
    b->now_ns = now_ns;
}

/* Delays beyond this teach nothing about whom to wait for. */
static double horizon_ns(const struct batcher *b, const struct batch_bucket *k)
{
    return MAX_OF(2 * latency_ns(&k->latency, b->policy.max_rows), HORIZON_FLOOR_NS);
}

/* ---- admission ---- */

static int check_bounds(const struct batcher *b, const struct batch_item *item, struct error *err)
{
    const struct batch_policy *p = &b->policy;
    const struct batch_queue_policy *q = &p->queue[item->level];
    if (item->alone)
        return 0;
    if (q->max_queue_items && b->level_items[item->level] >= q->max_queue_items)
        return error_set(err, STATUS_EXHAUSTED,
                         "the queue of priority level %u is full: %u requests wait, max_queue_size is %u; try again later",
                         item->level, b->level_items[item->level], q->max_queue_items);
    if (item->rows > p->max_queue_rows - MIN_OF(b->rows, p->max_queue_rows))
        return error_set(err, STATUS_EXHAUSTED,
                         "the queue is full: %u rows wait, this request has %u and at most %u may wait; try again later",
                         b->rows, item->rows, p->max_queue_rows);
    if (p->max_queue_bytes && item->bytes > p->max_queue_bytes - MIN_OF(b->bytes, p->max_queue_bytes))
        return error_set(err, STATUS_EXHAUSTED,
                         "the queue is full: its requests hold %llu bytes, this one %llu and at most %llu may wait; try again "
                         "later",
                         (unsigned long long)b->bytes, (unsigned long long)item->bytes, (unsigned long long)p->max_queue_bytes);
    return 0;
}

static int check_item(const struct batcher *b, const struct batch_item *item, struct error *err)
{
    const struct batch_policy *p = &b->policy;
    if (item->rows == 0 || item->rows > p->max_rows)
        return error_set(err, STATUS_INVALID, "the request has %u rows, the model takes 1 to %u in a batch", item->rows,
                         p->max_rows);
    if (!item->alone && p->max_queue_bytes && item->bytes > p->max_queue_bytes) /* not even into an empty queue */
        return error_set(err, STATUS_INVALID,
                         "the request's inputs hold %llu bytes, and the model's queue takes at most %llu (max_queue_bytes)",
                         (unsigned long long)item->bytes, (unsigned long long)p->max_queue_bytes);
    uint32_t levels = MAX_OF(p->priority_levels, 1u);
    if (item->priority > levels)
        return error_set(err, STATUS_INVALID,
                         "priority %u is out of range: the model has levels 1 to %u, 1 first, and 0 for its "
                         "default",
                         item->priority, levels);
    return 0;
}

/* Triton's timeout rule: the level's default; a request may shorten it where that is allowed, never lengthen it. */
static uint64_t queue_timeout_ns(const struct batcher *b, const struct batch_item *item)
{
    const struct batch_queue_policy *q = &b->policy.queue[item->level];
    uint64_t t = q->default_timeout_ns;
    if (q->allow_timeout_override && item->timeout_ns && item->timeout_ns < t)
        t = item->timeout_ns;
    return t;
}

/* When the expiry heap has to look at the item: its deadline, or the first instant after its queue timeout. */
static uint64_t expires_at(const struct batcher *b, const struct batch_item *item)
{
    uint64_t t = item->demoted ? 0 : queue_timeout_ns(b, item), at = SCHED_NEVER;
    if (t && t < SCHED_NEVER - 1 - item->arrived_ns)
        at = item->arrived_ns + t + 1;
    return MIN_OF(at, item->deadline_ns);
}

static void fill_order(struct batcher *b, struct batch_item *item)
{
    item->arrived_ns = b->now_ns;
    item->seq = ++b->seq;
    item->demoted = false;
    item->expires_ns = expires_at(b, item);
    item->order_ns = b->policy.mode == BATCH_FIXED ? 0 : MIN_OF(item->deadline_ns, b->now_ns + BATCH_PATIENCE_NS);
    item->class = MIN_OF(item->class, (uint32_t)BATCH_CLASSES - 1);
    batcher__turn(b, item);
    rank_node_init(&item->order);
    heap_node_init(&item->expiry);
    item->order.rows = item->rows;
    item->order.deadline_ns = item->deadline_ns;
    item->order.arrived_ns = item->arrived_ns;
}

static void enter(struct batcher *b, struct batch_bucket *k, struct batch_item *item)
{
    bool was_empty = !k->queue.root;
    item->home = k;
    rank_insert(&k->queue, &item->order);
    if (item->expires_ns != SCHED_NEVER)
        heap_push(&b->expiry, &item->expiry);
    if (was_empty)
        batcher__bucket_moved(b, k);
}

int batcher_admit(struct batcher *b, struct batch_item *item, uint64_t now_ns, struct error *err)
{
    clock_to(b, now_ns);
    int rc = check_item(b, item, err);
    if (rc)
        return rc;
    item->level = b->policy.priority_levels ? item->priority : 0;
    if (b->policy.priority_levels && !item->level)
        item->level = b->policy.default_priority_level;
    rc = check_bounds(b, item, err);
    if (rc)
        return rc;
    struct batch_bucket *k = batcher__bucket_get(b, item->bucket, (double)item->bytes / item->rows, &rc);
    if (!k)
        return error_set(err, rc,
                         rc == STATUS_NOMEM ? "no memory for another input shape of this model; try again later"
                                            : "too many different input shapes wait at once; try again later");
    arrival_rate_add(&k->offered, (double)b->now_ns, item->rows, b->busy_span_ns);
    fill_order(b, item);
    rc = batcher__promise(b, k, item, err);
    if (rc)
        return rc;
    enter(b, item->alone ? &b->alone : k, item);
    batcher__turn_taken(b, item);
    list_init(&item->link);
    list_push_back(&b->arrivals, &item->link);
    b->n_items++;
    b->rows += item->rows;
    b->bytes += item->bytes;
    b->level_items[item->level]++;
    arrival_rate_add(&b->rate, (double)b->now_ns, item->rows, b->busy_span_ns);
    if (b->policy.priority_levels > 1)
        arrival_rate_add(&b->level_rate[item->level], (double)b->now_ns, item->rows, b->busy_span_ns);
    b->classes |= item->class > 0;
    if (b->classes)
        arrival_rate_add(&b->class_rate[item->class], (double)b->now_ns, item->rows, b->busy_span_ns);
    arrival_note(&k->arrival, (double)b->now_ns, item->rows, b->busy_span_ns, horizon_ns(b, k));
    return 0;
}

/* ---- leaving ---- */

/* Out of the queue's structures; the counts stay until it is handed out. */
static void leave(struct batcher *b, struct batch_item *item, bool served)
{
    struct batch_bucket *k = item->home;
    batcher__turn_over(b, item, served);
    rank_remove(&k->queue, &item->order);
    if (heap_contains(&item->expiry))
        heap_remove(&b->expiry, &item->expiry);
    list_remove(&item->link);
    b->level_items[item->level]--;
    if (!k->queue.root) {
        k->wait_until_ns = 0;
        batcher__bucket_moved(b, k);
    }
    item->home = NULL;
}

static void uncount(struct batcher *b, const struct batch_item *item)
{
    b->n_items--;
    b->rows -= item->rows;
    b->bytes -= item->bytes;
}

void batcher__kill(struct batcher *b, struct batch_item *item)
{
    leave(b, item, false);
    list_push_back(&b->dead, &item->link);
}

void batcher_remove(struct batcher *b, struct batch_item *item)
{
    if (item->home)
        leave(b, item, false);
    else
        list_remove(&item->link); /* dead, not handed out yet */
    uncount(b, item);
}

/* Timed out under DELAY: behind the others of its level, until its deadline if it has one. */
static void demote(struct batcher *b, struct batch_item *item)
{
    struct batch_bucket *k = item->home;
    rank_remove(&k->queue, &item->order);
    heap_remove(&b->expiry, &item->expiry);
    item->demoted = true;
    item->expires_ns = expires_at(b, item);
    rank_insert(&k->queue, &item->order);
    if (item->expires_ns != SCHED_NEVER)
        heap_push(&b->expiry, &item->expiry);
}

static void sweep(struct batcher *b)
{
    for (struct heap_node *n; (n = heap_min(&b->expiry));) {
        struct batch_item *item = CONTAINER_OF(n, struct batch_item, expiry);
        if (item->expires_ns > b->now_ns)
            return;
        if (item->deadline_ns > b->now_ns && b->policy.queue[item->level].delay_on_timeout)
            demote(b, item);
        else
            batcher__kill(b, item);
    }
}

void batcher_expire(struct batcher *b, uint64_t now_ns, struct list *expired)
{
    clock_to(b, now_ns);
    sweep(b);
    for (struct list *at; (at = list_pop_front(&b->dead));) {
        uncount(b, LIST_ENTRY(at, struct batch_item, link));
        list_push_back(expired, at);
    }
}

uint64_t batcher_next_expiry(const struct batcher *b)
{
    if (!list_empty(&b->dead))
        return b->now_ns;
    const struct heap_node *n = heap_min(&b->expiry);
    return n ? CONTAINER_OF(n, const struct batch_item, expiry)->expires_ns : SCHED_NEVER;
}

/* ---- batches ---- */

uint64_t batcher__rows_allowed(const struct batcher *b, const struct batch_bucket *k, bool *cut)
{
    uint64_t rows = b->policy.max_rows;
    *cut = false;
    if (b->policy.preserve_ordering) {
        const struct batch_bucket *other = batcher__bucket_urgent(b, k);
        if (other) {
            uint64_t before = rank_rows_before(&k->queue, rank_first(&other->queue), NULL);
            *cut = before < rank_all(&k->queue).rows;
            rows = MIN_OF(rows, before);
        }
    }
    return rows;
}

/* The estimate table can be full only when the caller has more instances out than it said: the oldest is forgotten. */
static void run_start(struct batcher *b, struct batch_bucket *k, struct batch_decision *d)
{
    if (b->n_runs == BATCH_RUNS_MAX)
        batcher_finish(b, b->runs[0].id, b->now_ns, 0);
    k->running++;
    d->run_id = ++b->last_run_id ? b->last_run_id : ++b->last_run_id;
    struct batch_run run = {.id = d->run_id,
                            .rows = d->rows,
                            .started_ns = b->now_ns,
                            .started_sum = b->run_sum_ns,
                            .expected_ns = latency_ns(&k->latency, d->rows) * batcher__slowed(b, b->n_runs),
                            .home = k};
    b->runs[b->n_runs++] = run;
}

struct batch_decision batcher__close(struct batcher *b, struct batch_bucket *k, uint64_t rows, struct list *batch)
{
    struct batch_decision d = {.run = true};
    batcher__kept(b);
    bool single = batcher__single(b, k);
    k->wait_until_ns = 0;
    while (k->queue.root) {
        struct batch_item *item = batcher__head(k);
        if (d.rows && (single || d.rows + item->rows > rows))
            break;
        d.bucket = item->bucket;
        d.rows += item->rows;
        leave(b, item, true);
        uncount(b, item);
        list_push_back(batch, &item->link);
    }
    ASSERT(d.rows > 0 && d.rows <= b->policy.max_rows);
    struct batch_bucket *home = k->alone ? batcher__bucket_find(b, d.bucket) : k;
    int status = 0;
    if (!home) /* an item to run alone whose bucket was reused meanwhile */
        home = batcher__bucket_get(b, d.bucket, 0, &status);
    if (home)
        run_start(b, home, &d);
    return d;
}

struct batch_decision batcher_next(struct batcher *b, uint64_t now_ns, uint32_t free_instances, struct list *batch)
{
    clock_to(b, now_ns);
    ASSERT(free_instances >= 1);
    /* Runs that were never finished (the caller's bug, or more instances than it said) must not count for ever. */
    while (b->n_runs > 0 && b->n_runs + free_instances > MAX_OF(b->instances, free_instances))
        batcher_finish(b, b->runs[0].id, b->now_ns, 0);
    sweep(b);
    struct batch_decision d =
        b->policy.mode == BATCH_FIXED ? batcher__next_fixed(b, batch) : batcher__next_deadline(b, free_instances, batch);
    if (!d.run)
        d.wake_ns = MIN_OF(d.wake_ns, batcher_next_expiry(b));
    return d;
}

/* ---- learning ---- */

/* `others` ran beside it, on average. */
static void learn(struct batcher *b, struct batch_bucket *k, uint32_t rows, double run_ns, double others)
{
    double expected = latency_ns(&k->latency, rows);
    run_ns /= batcher__slowed(b, others); /* what it would have taken alone */
    if (k->latency.runs >= 3) {
        if (!batcher__share_learn(b, run_ns, expected, others))
            return;
        latency_tail_learn(&b->tail, run_ns, expected);
    }
    latency_learn(&k->latency, rows, run_ns);
    k->cap = batcher__cap(b, k);
    b->busy_span_ns = MAX_OF(20 * latency_ns(&k->latency, rows), BUSY_SPAN_FLOOR_NS);
}

void batcher_finish(struct batcher *b, uint32_t run_id, uint64_t now_ns, uint64_t run_ns)
{
    clock_to(b, now_ns);
    uint32_t i = 0;
    while (i < b->n_runs && b->runs[i].id != run_id)
        i++;
    if (i == b->n_runs)
        return;
    struct batch_run r = b->runs[i];
    for (b->n_runs--; i < b->n_runs; i++)
        b->runs[i] = b->runs[i + 1];
    r.home->running--;
    arrival_ended(&r.home->arrival, (double)b->now_ns, r.rows, horizon_ns(b, r.home), r.home->latency.base_ns / 2,
                  b->busy_span_ns);
    if (!run_ns)
        return;
    /* What counts is how long the instance was taken, gathering and slicing included. */
    double took = (double)MAX_OF(run_ns, b->now_ns - MIN_OF(r.started_ns, b->now_ns));
    double age = (double)(b->now_ns - MIN_OF(r.started_ns, b->now_ns));
    learn(b, r.home, r.rows, took, age > 0 ? MAX_OF((b->run_sum_ns - r.started_sum) / age - 1, 0.0) : 0);
    r.home->past_ns += took - r.home->past_ns / PAST_RUNS;
    r.home->past_rows += r.rows - r.home->past_rows / PAST_RUNS;
    r.home->past_runs += 1 - r.home->past_runs / PAST_RUNS;
}

void batcher_learn(struct batcher *b, uint64_t bucket, uint32_t rows, uint64_t run_ns)
{
    int status = 0;
    struct batch_bucket *k = batcher__bucket_get(b, bucket, 0, &status);
    if (k && rows && rows <= b->policy.max_rows && run_ns)
        learn(b, k, rows, (double)run_ns, 0);
}

/* ---- looking in ---- */

void batcher_stats(const struct batcher *b, struct batcher_stats *out)
{
    const struct list *first = b->arrivals.next;
    *out = (struct batcher_stats){
        .queued_items = b->n_items,
        .queued_rows = b->rows,
        .queued_bytes = b->bytes,
        .oldest_ns = first == &b->arrivals ? SCHED_NEVER : LIST_ENTRY(first, const struct batch_item, link)->arrived_ns,
        .arrival_rows_per_s = 1e9 * arrival_rate_at(&b->rate, (double)b->now_ns, b->busy_span_ns),
    };
}

static bool items_ok(const struct batcher *b)
{
    uint32_t items = 0, rows = 0, expiring = 0, level[BATCH_PRIORITIES_MAX + 1] = {0};
    uint64_t bytes = 0, seq = 0;
    for (const struct list *at = b->arrivals.next; at != &b->arrivals; at = at->next) {
        const struct batch_item *i = LIST_ENTRY(at, const struct batch_item, link);
        if (!i->home || i->seq <= seq || !rank_contains(&i->order) || i->level > BATCH_PRIORITIES_MAX ||
            heap_contains(&i->expiry) != (i->expires_ns != SCHED_NEVER) || (!i->home->alone && i->home->id != i->bucket) ||
            i->alone != i->home->alone)
            return false;
        seq = i->seq;
        expiring += i->expires_ns != SCHED_NEVER;
        level[i->level]++;
        items++, rows += i->rows, bytes += i->bytes;
    }
    uint32_t queued = items, in_trees = 0;
    for (const struct list *at = b->active.next; at != &b->active; at = at->next)
        in_trees += rank_all(&LIST_ENTRY(at, const struct batch_bucket, where)->queue).nodes;
    for (const struct list *at = b->dead.next; at != &b->dead; at = at->next) {
        const struct batch_item *i = LIST_ENTRY(at, const struct batch_item, link);
        if (i->home || rank_contains(&i->order) || heap_contains(&i->expiry))
            return false;
        items++, rows += i->rows, bytes += i->bytes;
    }
    for (uint32_t l = 0; l <= BATCH_PRIORITIES_MAX; l++)
        if (level[l] != b->level_items[l])
            return false;
    return items == b->n_items && rows == b->rows && bytes == b->bytes && expiring == b->expiry.n && queued == in_trees;
}

bool batcher_validate(const struct batcher *b)
{
    uint32_t buckets = 0, running = 0;
    for (const struct list *at = b->active.next; at != &b->active; at = at->next) {
        const struct batch_bucket *k = LIST_ENTRY(at, const struct batch_bucket, where);
        if (!k->queue.root || !rank_validate(&k->queue))
            return false;
        buckets += !k->alone;
        running += k->running;
    }
    for (const struct list *at = b->idle.next; at != &b->idle; at = at->next, buckets++) {
        const struct batch_bucket *k = LIST_ENTRY(at, const struct batch_bucket, where);
        if (k->queue.root || k->alone || batcher__bucket_find(b, k->id) != k)
            return false;
        running += k->running;
    }
    return buckets == b->n_buckets && buckets <= BATCH_BUCKETS_MAX && running == b->n_runs && heap_validate(&b->expiry) &&
           items_ok(b);
}
