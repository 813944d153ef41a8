/* sim.h: a discrete-event simulation of clients, a batcher and instances, on a fake clock: hours of traffic in seconds.
 *
 * The model: a run of r rows takes (base + row * r) x lognormal noise (a row dearer by `dearer` of itself for each doubling of r), now and then an outlier; with several instances busy at
 * once it can be slowed down (they share cores). Clients: open (Poisson, or bursts at Poisson times) or closed (each sends its
 * next request a think time after its answer; the answers of a batch go out one after another, `send_ns` apart, as a server's
 * I/O thread does). Each request has a shape, rows, and a deadline relative to its birth.
 * The simulation knows the truth (arrival times, run times), the batcher only what it is told. Everything is counted from
 * outside the batcher. It checks conservation: each request is answered exactly once, a batch is within bounds and of one
 * shape, and batcher_validate holds after every step (every 64th in long runs). */
#ifndef TEST_SCHED_SIM_H
#define TEST_SCHED_SIM_H

#include <inttypes.h>
#include <math.h>

#include "base/rand.h"
#include "sched/rig.h"

#define SIM_CLIENTS  1024
#define SIM_REQUESTS 65536 /* open-loop requests in flight at once */
#define SIM_SHAPES   16

struct sim_config {
    struct batch_policy policy;
    uint32_t instances;
    /* model */
    double base_us[SIM_SHAPES], row_us[SIM_SHAPES];
    uint32_t shapes; /* 0: one */
    double dearer;
    double noise, outlier_share, outlier_times;
    double slow_per_busy; /* see sim_flow */
    bool warm;            /* told the latencies at start */
    double wake_late_us;  /* a sleeping thread wakes up this much later than asked, on average (exponential) */
    double turnaround_us; /* an instance thread takes this long from answering to asking for more */
    /* clients: closed when clients > 0 */
    uint32_t clients;
    double think_us, think_spread_us, send_us;
    double rate_per_s; /* open: requests (or bursts) a second */
    uint32_t burst;    /* requests a burst, 0 or 1: plain Poisson */
    double burst_gap_us;
    uint32_t rows_min, rows_max;           /* 0: 1 */
    double deadline_ms;                    /* 0: none */
    double other_share, other_deadline_ms; /* a second class of requests: its share, deadline and priority */
    uint32_t other_priority;
    double seconds, warmup_s;
    uint64_t seed;
};

struct sim_result {
    uint64_t born, served, on_time, late, refused, full, expired, batches;
    double rows_per_s, mean_rows, mean_ms, p50_ms, p99_ms, max_ms;
    double held_ms; /* mean time per request during which it waited although an instance was free */
    double busy;    /* share of instance time that ran */
    double goodput; /* rows per second answered on time */
    uint64_t other_born, other_served, other_on_time;
};

struct sim_request {
    struct batch_item item;
    uint64_t born_ns, free_wait_from;
    int client;
    bool live, other;
};

enum sim_kind { SIM_BIRTH, SIM_END, SIM_FREE, SIM_WAKE, SIM_BURST };
struct sim_event {
    uint64_t at, order;
    enum sim_kind kind;
    uint32_t who;
};

struct sim_run {
    bool busy;
    struct list batch;
    uint32_t id;
    uint64_t started;
    double left_ns; /* of its work, at full speed, as of the last change of how many run */
    uint32_t end;   /* which of its end events counts */
};

struct sim {
    struct sim_config c;
    struct batcher *b;
    struct rand rnd;
    uint64_t now, order, steps;
    struct sim_event *events;
    size_t n_events, cap_events;
    struct sim_request *requests;
    uint32_t *free_requests, n_free;
    struct sim_run run[16];
    uint32_t busy;
    uint64_t flowed_at; /* when left_ns was true */
    uint32_t running;
    uint64_t wake_at; /* earliest wake-up scheduled */
    double held_ns, busy_ns;
    uint64_t held_from; /* an instance is free and rows wait since then; 0: not so */
    float *latencies;
    size_t n_latencies, cap_latencies;
    double sum_latency;
    uint64_t rows_served, rows_good, warm_until;
    struct sim_result r;
};

static double sim_normal(struct sim *s)
{
    double u = 1 - rand_f64(&s->rnd), v = rand_f64(&s->rnd);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static void sim_push(struct sim *s, uint64_t at, enum sim_kind kind, uint32_t who)
{
    if (s->n_events == s->cap_events) {
        s->cap_events = s->cap_events ? 2 * s->cap_events : 1024;
        s->events = realloc(s->events, s->cap_events * sizeof *s->events);
    }
    struct sim_event e = {at, s->order++, kind, who};
    size_t i = s->n_events++;
    for (; i && s->events[(i - 1) / 2].at > at; i = (i - 1) / 2)
        s->events[i] = s->events[(i - 1) / 2];
    s->events[i] = e;
}

static bool sim_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static struct sim_event sim_pop(struct sim *s)
{
    struct sim_event top = s->events[0], last = s->events[--s->n_events];
    size_t i = 0;
    for (;;) {
        size_t k = 2 * i + 1;
        if (k >= s->n_events)
            break;
        if (k + 1 < s->n_events && sim_before(&s->events[k + 1], &s->events[k]))
            k++;
        if (!sim_before(&s->events[k], &last))
            break;
        s->events[i] = s->events[k];
        i = k;
    }
    if (s->n_events)
        s->events[i] = last;
    return top;
}

static void sim_answer(struct sim *s, struct sim_request *q, uint64_t at)
{
    assert_true(q->live);
    q->live = false;
    if (q->client >= 0) {
        double think = s->c.think_us + s->c.think_spread_us * -log(1 - rand_f64(&s->rnd));
        sim_push(s, at + (uint64_t)(think * 1e3), SIM_BIRTH, (uint32_t)q->client);
    } else {
        s->free_requests[s->n_free++] = (uint32_t)(q - s->requests);
    }
}

static void sim_birth(struct sim *s, int client)
{
    struct sim_request *q;
    if (client >= 0) {
        q = &s->requests[client];
    } else {
        assert_true(s->n_free > 0);
        q = &s->requests[s->free_requests[--s->n_free]];
    }
    uint32_t lo = MAX_OF(s->c.rows_min, 1u), hi = MAX_OF(s->c.rows_max, lo);
    uint32_t shape = s->c.shapes > 1 ? (uint32_t)rand_below(&s->rnd, s->c.shapes) : 0;
    *q = (struct sim_request){.born_ns = s->now, .client = client, .live = true};
    q->item.rows = lo + (uint32_t)rand_below(&s->rnd, hi - lo + 1);
    q->item.bucket = shape;
    q->item.bytes = 1000 * q->item.rows;
    q->other = s->c.other_share > 0 && rand_f64(&s->rnd) < s->c.other_share;
    double within = q->other ? s->c.other_deadline_ms : s->c.deadline_ms;
    q->item.priority = q->other ? s->c.other_priority : 0;
    q->item.deadline_ns = within > 0 ? s->now + (uint64_t)(within * 1e6) : SCHED_NEVER;
    bool counted = s->now >= s->warm_until;
    s->r.born += counted;
    s->r.other_born += counted && q->other;
    int rc = batcher_admit(s->b, &q->item, s->now, NULL);
    if (rc == STATUS_DEADLINE)
        s->r.refused += counted;
    else if (rc == STATUS_EXHAUSTED)
        s->r.full += counted;
    else
        assert_int_equal(rc, 0);
    if (rc)
        sim_answer(s, q, s->now);
}

static uint64_t sim_run_ns(struct sim *s, uint32_t shape, uint32_t rows)
{
    double t = s->c.base_us[shape] + s->c.row_us[shape] * rows * (1 + s->c.dearer * log2(rows));
    t *= exp(s->c.noise * sim_normal(s));
    if (s->c.outlier_share > 0 && rand_f64(&s->rnd) < s->c.outlier_share)
        t *= s->c.outlier_times;
    return (uint64_t)(t * 1e3) + 1;
}

static void sim_served(struct sim *s, struct sim_request *q)
{
    if (s->now < s->warm_until)
        return;
    double ms = (double)(s->now - q->born_ns) / 1e6;
    s->r.served++;
    s->rows_served += q->item.rows;
    bool good = s->now <= q->item.deadline_ns;
    s->rows_good += good ? q->item.rows : 0;
    s->r.on_time += good;
    s->r.late += !good;
    s->r.other_served += q->other;
    s->r.other_on_time += q->other && good;
    s->sum_latency += ms;
    if (s->n_latencies == s->cap_latencies) {
        s->cap_latencies = s->cap_latencies ? 2 * s->cap_latencies : 4096;
        s->latencies = realloc(s->latencies, s->cap_latencies * sizeof *s->latencies);
    }
    s->latencies[s->n_latencies++] = (float)ms;
}

/* Runs that share cores slow each other down: with n of them each goes at 1 / (1 + slow (n - 1)). To be called around each
 * change of how many run. */
static void sim_flow(struct sim *s)
{
    double speed = s->running ? 1 / (1 + s->c.slow_per_busy * (s->running - 1)) : 1;
    for (uint32_t i = 0; i < s->c.instances; i++)
        s->run[i].left_ns -= (double)(s->now - s->flowed_at) * speed;
    s->flowed_at = s->now;
}

static void sim_ends(struct sim *s)
{
    double slow = 1 + s->c.slow_per_busy * (s->running ? s->running - 1 : 0);
    for (uint32_t i = 0; i < s->c.instances; i++)
        if (s->run[i].busy && s->run[i].end % 2)
            sim_push(s, s->now + (uint64_t)(MAX_OF(s->run[i].left_ns, 0.0) * slow) + 1, SIM_END, i + 16 * (s->run[i].end += 2));
}

static void sim_end(struct sim *s, uint32_t who)
{
    struct sim_run *run = &s->run[who % 16];
    if (who / 16 != run->end)
        return; /* it runs longer or shorter than it was thought */
    sim_flow(s);
    run->end++; /* even: not running */
    s->running--;
    sim_ends(s);
    if (s->now >= s->warm_until)
        s->busy_ns += (double)(s->now - run->started);
    batcher_finish(s->b, run->id, s->now, s->now - run->started);
    sim_push(s, s->now + (uint64_t)(s->c.turnaround_us * 1e3), SIM_FREE, who % 16);
    uint64_t at = s->now;
    for (struct list *n; (n = list_pop_front(&run->batch));) {
        struct sim_request *q = CONTAINER_OF(LIST_ENTRY(n, struct batch_item, link), struct sim_request, item);
        sim_served(s, q);
        at += (uint64_t)(s->c.send_us * 1e3);
        sim_answer(s, q, at);
    }
}

static void sim_start(struct sim *s, const struct batch_decision *d, struct list *batch)
{
    uint32_t i = 0, rows = 0;
    while (s->run[i].busy)
        i++;
    assert_true(i < s->c.instances);
    struct sim_run *run = &s->run[i];
    list_init(&run->batch);
    for (struct list *n; (n = list_pop_front(batch));) {
        struct batch_item *item = LIST_ENTRY(n, struct batch_item, link);
        assert_int_equal(item->bucket, d->bucket);
        assert_true(s->now < item->deadline_ns); /* what is late already is never run */
        rows += item->rows;
        list_push_back(&run->batch, n);
    }
    assert_int_equal(rows, d->rows);
    assert_true(rows <= s->c.policy.max_rows);
    sim_flow(s);
    run->busy = true;
    s->busy++;
    s->running++;
    run->id = d->run_id;
    run->started = s->now;
    run->left_ns = (double)sim_run_ns(s, (uint32_t)d->bucket, rows);
    run->end |= 1;
    sim_ends(s);
    s->r.batches += s->now >= s->warm_until;
}

static void sim_expire(struct sim *s)
{
    struct list dead;
    list_init(&dead);
    batcher_expire(s->b, s->now, &dead);
    for (struct list *n; (n = list_pop_front(&dead));) {
        struct sim_request *q = CONTAINER_OF(LIST_ENTRY(n, struct batch_item, link), struct sim_request, item);
        s->r.expired += s->now >= s->warm_until;
        sim_answer(s, q, s->now);
    }
}

/* What the threads of model/ would do now. Returns when to do it again. */
static uint64_t sim_serve(struct sim *s)
{
    struct list batch;
    list_init(&batch);
    sim_expire(s);
    while (s->busy < s->c.instances) {
        struct batch_decision d = batcher_next(s->b, s->now, s->c.instances - s->busy, &batch);
        if (!d.run)
            return d.wake_ns;
        sim_start(s, &d, &batch);
    }
    return batcher_next_expiry(s->b);
}

static void sim_pump(struct sim *s)
{
    uint64_t wake = s->now;
    for (int rounds = 0; wake <= s->now; rounds++) {
        assert_true(rounds < 2); /* a wake-up for now is for giving up hopeless ones, once */
        wake = sim_serve(s);
    }
    if (wake != SCHED_NEVER && (wake < s->wake_at || s->wake_at <= s->now)) {
        s->wake_at = wake;
        uint64_t late = s->c.wake_late_us > 0 ? (uint64_t)(-log(1 - rand_f64(&s->rnd)) * s->c.wake_late_us * 1e3) : 0;
        sim_push(s, wake + late, SIM_WAKE, 0);
    }
    if (++s->steps % 64 == 0 || s->steps < 2000)
        assert_true(batcher_validate(s->b));
}

/* Between two events: rows that wait although an instance is free are being held. */
static void sim_advance(struct sim *s, uint64_t to)
{
    struct batcher_stats st;
    if (s->busy < s->c.instances && s->now >= s->warm_until) {
        batcher_stats(s->b, &st);
        s->held_ns += (double)st.queued_items * (double)(to - s->now);
    }
    s->now = to;
}

static int sim_compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void sim_summary(struct sim *s, double seconds)
{
    struct sim_result *r = &s->r;
    r->rows_per_s = (double)s->rows_served / seconds;
    r->goodput = (double)s->rows_good / seconds;
    r->mean_rows = r->batches ? (double)s->rows_served / (double)r->batches : 0;
    r->busy = s->busy_ns / (seconds * 1e9 * s->c.instances);
    r->held_ms = s->held_ns / 1e6 / (double)MAX_OF(r->born, (uint64_t)1);
    if (!s->n_latencies)
        return;
    qsort(s->latencies, s->n_latencies, sizeof *s->latencies, sim_compare);
    r->mean_ms = s->sum_latency / (double)s->n_latencies;
    r->p50_ms = s->latencies[s->n_latencies / 2];
    r->p99_ms = s->latencies[(size_t)((double)s->n_latencies * 0.99)];
    r->max_ms = s->latencies[s->n_latencies - 1];
}

static void sim_begin(struct sim *s)
{
    rand_init(&s->rnd, s->c.seed + 1);
    batcher_set_instances(s->b, s->c.instances);
    if (s->c.warm)
        for (uint32_t shape = 0; shape < MAX_OF(s->c.shapes, 1u); shape++)
            for (uint32_t rows = 1; rows <= s->c.policy.max_rows; rows *= 2)
                for (int k = 0; k < 3; k++)
                    batcher_learn(s->b, shape, rows, sim_run_ns(s, shape, rows));
    for (uint32_t i = SIM_REQUESTS; i > 0; i--)
        s->free_requests[s->n_free++] = i - 1;
    for (uint32_t i = 0; i < s->c.clients; i++)
        sim_push(s, 1000 + (uint64_t)(rand_f64(&s->rnd) * 1e6 * 10), SIM_BIRTH, i);
    if (!s->c.clients)
        sim_push(s, 1000, SIM_BURST, 0);
}

static void sim_step(struct sim *s, const struct sim_event *e)
{
    switch (e->kind) {
    case SIM_BIRTH:
        sim_birth(s, s->c.clients ? (int)e->who : -1);
        break;
    case SIM_BURST:
        sim_birth(s, -1);
        for (uint32_t i = 1; i < s->c.burst; i++)
            sim_push(s, s->now + (uint64_t)(i * s->c.burst_gap_us * 1e3), SIM_BIRTH, 0);
        sim_push(s, s->now + 1 + (uint64_t)(-log(1 - rand_f64(&s->rnd)) * 1e9 / s->c.rate_per_s), SIM_BURST, 0);
        break;
    case SIM_END:
        sim_end(s, e->who);
        break;
    case SIM_FREE:
        s->run[e->who].busy = false;
        s->busy--;
        break;
    case SIM_WAKE:
        break;
    }
}

static inline struct sim_result sim_go(struct sim_config c)
{
    struct sim *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->c = c;
    s->c.instances = MAX_OF(c.instances, 1u);
    s->b = batcher_create(&c.policy);
    s->requests = calloc(SIM_REQUESTS, sizeof *s->requests);
    s->free_requests = calloc(SIM_REQUESTS, sizeof *s->free_requests);
    assert_true(s->b && s->requests && s->free_requests);
    s->warm_until = (uint64_t)(c.warmup_s * 1e9);
    sim_begin(s);
    uint64_t end = (uint64_t)(c.seconds * 1e9);
    while (s->n_events && s->events[0].at < end) {
        struct sim_event e = sim_pop(s);
        sim_advance(s, e.at);
        sim_step(s, &e);
        sim_pump(s);
    }
    sim_summary(s, c.seconds - c.warmup_s);
    for (uint32_t i = 0; i < SIM_REQUESTS; i++)
        if (s->requests[i].live && (s->requests[i].item.home != NULL))
            batcher_remove(s->b, &s->requests[i].item);
    struct batcher_stats st;
    batcher_stats(s->b, &st);
    assert_int_equal(st.queued_items, 0); /* nothing left behind */
    assert_int_equal(st.queued_rows, 0);
    assert_int_equal(st.queued_bytes, 0);
    assert_true(batcher_validate(s->b));
    struct sim_result r = s->r;
    batcher_destroy(s->b);
    free(s->requests);
    free(s->free_requests);
    free(s->latencies);
    free(s->events);
    free(s);
    return r;
}

#endif
