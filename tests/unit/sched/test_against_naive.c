/* test_against_naive.c: random operations, compared step by step with a batcher that anyone can check by reading: one array,
 * searched end to end. For FIXED it walks the queue request by request as Triton's documentation describes it; for the
 * others it says what every batch must be: a prefix of the order, in bounds, of one shape, nobody in it too late, and each
 * item handed out exactly once. */
#include "sched/rig.h"

#include "base/rand.h"

#define LIVE 300

enum fate { FATE_QUEUED, FATE_BATCH, FATE_EXPIRED, FATE_REMOVED, FATE_REFUSED };

struct twin {
    struct batch_item item;
    /* what the naive one knows */
    enum fate fate;
    uint64_t at, deadline, timeout, seq;
    uint32_t level, rows;
    bool demoted;
};

struct naive {
    struct batch_policy p;
    struct twin *all;
    size_t n;
    uint64_t seq;
};

static bool before(const struct naive *n, const struct twin *a, const struct twin *b)
{
    if (n->p.preserve_ordering)
        return a->seq < b->seq;
    if (a->level != b->level)
        return a->level < b->level;
    if (a->demoted != b->demoted)
        return b->demoted;
    if (n->p.mode != BATCH_FIXED) {
        uint64_t x = MIN_OF(a->deadline, a->at + BATCH_PATIENCE_NS), y = MIN_OF(b->deadline, b->at + BATCH_PATIENCE_NS);
        if (x != y)
            return x < y;
    }
    return a->seq < b->seq;
}

/* The queued items of a shape (or of all: UINT64_MAX), those to run alone or the others, in order. */
static size_t in_order(const struct naive *n, uint64_t bucket, bool alone, struct twin **out)
{
    size_t count = 0;
    for (size_t i = 0; i < n->n; i++) {
        struct twin *t = &n->all[i];
        if (t->fate != FATE_QUEUED || t->item.alone != alone || (!alone && bucket != UINT64_MAX && t->item.bucket != bucket))
            continue;
        size_t at = count++;
        for (; at && before(n, t, out[at - 1]); at--)
            out[at] = out[at - 1];
        out[at] = t;
    }
    return count;
}

/* Apply queue timeouts and deadlines as of `now`. */
static void naive_sweep(struct naive *n, uint64_t now)
{
    for (size_t i = 0; i < n->n; i++) {
        struct twin *t = &n->all[i];
        if (t->fate != FATE_QUEUED)
            continue;
        bool timed_out = t->timeout && !t->demoted && now > t->at + t->timeout;
        if (now >= t->deadline || (timed_out && !n->p.queue[t->level].delay_on_timeout))
            t->fate = FATE_EXPIRED;
        else if (timed_out)
            t->demoted = true;
    }
}

static bool is_preferred(const struct naive *n, uint64_t rows)
{
    for (uint32_t i = 0; i < n->p.n_preferred; i++)
        if (n->p.preferred_rows[i] == rows)
            return true;
    return n->p.n_preferred == 0 && rows == n->p.max_rows;
}

/* Triton's walk over one shape's queue. Number of items that run now; 0: wait until *wake. `next_other`: with
 * preserve_ordering, the oldest item of another shape. */
static size_t naive_fixed(const struct naive *n, struct twin **q, size_t count, const struct twin *next_other, uint64_t now,
                          uint64_t *wake)
{
    uint64_t pending = 0, largest = n->p.n_preferred ? 0 : n->p.max_rows, oldest = UINT64_MAX;
    size_t best = 0, taken = 0;
    bool send = false;
    for (uint32_t i = 0; i < n->p.n_preferred; i++)
        largest = MAX_OF(largest, (uint64_t)n->p.preferred_rows[i]);
    for (; taken < count; taken++) {
        const struct twin *t = q[taken];
        if (taken) {
            if (pending + t->rows > largest && !best)
                best = taken;
            if (pending + t->rows > n->p.max_rows || (next_other && next_other->seq < t->seq)) {
                send = true;
                break;
            }
        }
        pending += t->rows;
        oldest = MIN_OF(oldest, t->at);
        if (is_preferred(n, pending))
            best = taken + 1;
    }
    uint64_t delay = n->p.max_queue_delay_ns;
    bool exceeded = delay && now - oldest >= delay;
    if (best && !exceeded)
        return best;
    if (send || pending >= largest || exceeded || !delay)
        return taken;
    *wake = MIN_OF(*wake, oldest + delay);
    return 0;
}

struct world {
    struct naive n;
    struct batcher *b;
    struct rand r;
    uint64_t now;
};

/* The batch that the naive one closes: its items in `out`. */
static size_t naive_next(struct world *w, struct twin **out, uint64_t *wake)
{
    static struct twin *q[LIVE], *head[BATCH_BUCKETS_MAX + 1];
    uint64_t shapes[BATCH_BUCKETS_MAX];
    size_t n_heads = 0, n_shapes = 0;
    *wake = UINT64_MAX;
    for (size_t i = 0; i < w->n.n; i++) { /* distinct shapes queued */
        const struct twin *t = &w->n.all[i];
        if (t->fate != FATE_QUEUED || t->item.alone)
            continue;
        size_t k = 0;
        while (k < n_shapes && shapes[k] != t->item.bucket)
            k++;
        if (k == n_shapes)
            shapes[n_shapes++] = t->item.bucket;
    }
    for (size_t k = 0; k < n_shapes; k++)
        if (in_order(&w->n, shapes[k], false, q))
            head[n_heads++] = q[0];
    if (in_order(&w->n, 0, true, q))
        head[n_heads++] = q[0];
    for (size_t i = 1; i < n_heads; i++) /* by urgency */
        for (size_t j = i; j && before(&w->n, head[j], head[j - 1]); j--) {
            struct twin *t = head[j];
            head[j] = head[j - 1];
            head[j - 1] = t;
        }
    bool singly = w->n.p.mode == BATCH_NONE || w->n.p.max_rows == 1;
    for (size_t i = 0; i < n_heads; i++) {
        size_t count = in_order(&w->n, head[i]->item.bucket, head[i]->item.alone, q), run;
        const struct twin *other = NULL;
        for (size_t k = 0; w->n.p.preserve_ordering && k < n_heads; k++)
            if (k != i && (!other || head[k]->seq < other->seq))
                other = head[k];
        if (singly || head[i]->item.alone) {
            run = 1;
        } else if (w->n.p.mode == BATCH_FIXED) {
            run = naive_fixed(&w->n, q, count, other, w->now, wake);
        } else {
            uint64_t rows = 0;
            for (run = 0; run < count && rows + q[run]->rows <= w->n.p.max_rows && (!other || q[run]->seq < other->seq); run++)
                rows += q[run]->rows;
        }
        if (run) {
            memcpy(out, q, run * sizeof *q);
            return run;
        }
        if (w->n.p.preserve_ordering)
            break;
    }
    return 0;
}

static uint64_t naive_expiry(const struct naive *n)
{
    uint64_t at = UINT64_MAX;
    for (size_t i = 0; i < n->n; i++) {
        const struct twin *t = &n->all[i];
        if (t->fate != FATE_QUEUED)
            continue;
        at = MIN_OF(at, t->deadline);
        if (t->timeout && !t->demoted)
            at = MIN_OF(at, t->at + t->timeout + 1);
    }
    return at;
}

static void step_admit(struct world *w)
{
    struct naive *n = &w->n;
    if (n->n == LIVE)
        return;
    struct twin *t = &n->all[n->n];
    uint32_t levels = MAX_OF(n->p.priority_levels, 1u);
    *t = (struct twin){.at = w->now, .deadline = SCHED_NEVER, .seq = ++n->seq};
    t->item.rows = t->rows = 1 + (uint32_t)rand_below(&w->r, n->p.max_rows + (rand_below(&w->r, 20) == 0));
    t->item.priority = (uint32_t)rand_below(&w->r, levels + 1);
    t->item.bucket = rand_below(&w->r, 3) * 1000003;
    t->item.bytes = rand_below(&w->r, 100);
    t->item.alone = rand_below(&w->r, 12) == 0;
    if (rand_below(&w->r, 2))
        t->deadline = w->now + rand_below(&w->r, 4000);
    if (rand_below(&w->r, 2))
        t->item.timeout_ns = 1 + rand_below(&w->r, 2000);
    t->item.deadline_ns = t->deadline;
    t->level = n->p.priority_levels ? t->item.priority ? t->item.priority : n->p.default_priority_level : 0;
    const struct batch_queue_policy *q = &n->p.queue[t->level];
    t->timeout = q->default_timeout_ns;
    if (q->allow_timeout_override && t->item.timeout_ns && t->item.timeout_ns < t->timeout)
        t->timeout = t->item.timeout_ns;
    uint32_t rows = 0, here = 0;
    for (size_t i = 0; i < n->n; i++)
        if (n->all[i].fate == FATE_QUEUED) {
            rows += n->all[i].rows;
            here += n->all[i].level == t->level;
        }
    int want = 0;
    if (t->rows > n->p.max_rows)
        want = STATUS_INVALID;
    else if (!t->item.alone && ((q->max_queue_items && here >= q->max_queue_items) || rows + t->rows > n->p.max_queue_rows))
        want = STATUS_EXHAUSTED;
    else if (t->deadline <= w->now)
        want = STATUS_DEADLINE;
    assert_int_equal(batcher_admit(w->b, &t->item, w->now, NULL), want);
    if (want)
        n->seq--;
    else
        n->n++;
}

static void step_expire(struct world *w)
{
    struct list dead;
    list_init(&dead);
    assert_true(batcher_next_expiry(w->b) <= naive_expiry(&w->n));
    naive_sweep(&w->n, w->now);
    batcher_expire(w->b, w->now, &dead);
    for (struct list *l; (l = list_pop_front(&dead));) {
        struct twin *t = CONTAINER_OF(LIST_ENTRY(l, struct batch_item, link), struct twin, item);
        assert_int_equal(t->fate, FATE_EXPIRED);
        t->fate = FATE_REMOVED;
    }
    for (size_t i = 0; i < w->n.n; i++)
        assert_true(w->n.all[i].fate != FATE_EXPIRED); /* none was missed */
    assert_true(batcher_next_expiry(w->b) == naive_expiry(&w->n));
}

static void step_next(struct world *w)
{
    static struct twin *want[LIVE];
    uint64_t wake;
    struct list batch;
    list_init(&batch);
    step_expire(w);
    size_t n = naive_next(w, want, &wake);
    struct batch_decision d = batcher_next(w->b, w->now, 1, &batch);
    assert_int_equal(d.run, n > 0);
    uint32_t rows = 0;
    for (size_t i = 0; i < n; i++) {
        struct list *l = list_pop_front(&batch);
        assert_non_null(l);
        struct twin *t = CONTAINER_OF(LIST_ENTRY(l, struct batch_item, link), struct twin, item);
        assert_ptr_equal(t, want[i]);
        assert_int_equal(t->item.bucket, d.bucket);
        t->fate = FATE_BATCH;
        rows += t->rows;
    }
    assert_true(list_empty(&batch));
    assert_int_equal(rows, d.rows);
    assert_true(rows <= w->n.p.max_rows);
    if (!d.run)
        assert_true(d.wake_ns == MIN_OF(wake, naive_expiry(&w->n)));
    else
        batcher_finish(w->b, d.run_id, w->now, 0); /* nothing is learned: the naive one makes no promises */
}

static void step_remove(struct world *w)
{
    if (!w->n.n)
        return;
    struct twin *t = &w->n.all[rand_below(&w->r, w->n.n)];
    if (t->fate != FATE_QUEUED)
        return;
    batcher_remove(w->b, &t->item);
    t->fate = FATE_REMOVED;
}

/* Drop those that are gone from the naive array, keeping the order. The queued ones must not move in memory: they are linked.
 * So only a world without queued items is compacted. */
static void compact(struct world *w)
{
    for (size_t i = 0; i < w->n.n; i++)
        if (w->n.all[i].fate == FATE_QUEUED)
            return;
    w->n.n = 0;
}

static void check_counts(struct world *w)
{
    struct batcher_stats s;
    uint32_t items = 0, rows = 0;
    uint64_t bytes = 0, oldest = SCHED_NEVER;
    for (size_t i = 0; i < w->n.n; i++) {
        const struct twin *t = &w->n.all[i];
        if (t->fate != FATE_QUEUED && t->fate != FATE_EXPIRED)
            continue;
        items++, rows += t->rows, bytes += t->item.bytes;
        oldest = MIN_OF(oldest, t->at);
    }
    batcher_stats(w->b, &s);
    assert_int_equal(s.queued_items, items);
    assert_int_equal(s.queued_rows, rows);
    assert_int_equal(s.queued_bytes, bytes);
    assert_true(s.oldest_ns == oldest);
    assert_true(batcher_validate(w->b));
}

static struct batch_policy random_policy(struct rand *r, enum batch_mode mode)
{
    struct batch_policy p = {.mode = mode, .max_rows = 1 + (uint32_t)rand_below(r, 12)};
    p.n_preferred = (uint32_t)rand_below(r, 3);
    for (uint32_t i = 0; i < p.n_preferred; i++)
        p.preferred_rows[i] = 1 + (uint32_t)rand_below(r, p.max_rows);
    p.max_queue_delay_ns = mode == BATCH_FIXED && rand_below(r, 3) ? 1 + rand_below(r, 1500) : 0;
    p.preserve_ordering = rand_below(r, 4) == 0;
    p.max_queue_rows = p.max_rows + (uint32_t)rand_below(r, 200);
    if (!p.preserve_ordering && rand_below(r, 2)) {
        p.priority_levels = 1 + (uint32_t)rand_below(r, 4);
        p.default_priority_level = 1 + (uint32_t)rand_below(r, p.priority_levels);
    }
    for (uint32_t l = 0; l <= p.priority_levels; l++) {
        struct batch_queue_policy *q = &p.queue[l];
        q->delay_on_timeout = !p.preserve_ordering && rand_below(r, 2);
        q->default_timeout_ns = rand_below(r, 2) ? rand_below(r, 3000) : 0;
        q->allow_timeout_override = rand_below(r, 2);
        q->max_queue_items = rand_below(r, 3) == 0 ? 1 + (uint32_t)rand_below(r, 30) : 0;
    }
    return p;
}

static void run_world(uint64_t seed, enum batch_mode mode)
{
    struct world w = {.now = 1};
    rand_init(&w.r, seed);
    w.n.p = random_policy(&w.r, mode);
    w.n.all = calloc(LIVE, sizeof *w.n.all);
    w.b = batcher_create(&w.n.p);
    assert_true(w.n.all && w.b);
    uint64_t busy = 1 + rand_below(&w.r, 6);
    for (int step = 0; step < 1500; step++) {
        w.now += rand_below(&w.r, 3) ? rand_below(&w.r, 60) : 0;
        uint64_t what = rand_below(&w.r, 8 + busy);
        if (what < 4 + busy)
            step_admit(&w);
        else if (what < 6 + busy)
            step_next(&w);
        else if (what < 7 + busy)
            step_expire(&w);
        else
            step_remove(&w);
        check_counts(&w);
        if (w.n.n == LIVE) { /* let everything run out */
            w.now += 100000;
            for (int i = 0; i < LIVE; i++)
                step_next(&w);
            check_counts(&w);
            compact(&w);
        }
    }
    for (size_t i = 0; i < w.n.n; i++)
        if (w.n.all[i].fate == FATE_QUEUED)
            batcher_remove(w.b, &w.n.all[i].item);
    batcher_destroy(w.b);
    free(w.n.all);
}

static void test_fixed(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++)
        run_world(seed, BATCH_FIXED);
}

static void test_deadline(void **state)
{
    (void)state;
    for (uint64_t seed = 100; seed < 130; seed++)
        run_world(seed, BATCH_DEADLINE);
}

static void test_none(void **state)
{
    (void)state;
    for (uint64_t seed = 200; seed < 215; seed++)
        run_world(seed, BATCH_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixed),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
