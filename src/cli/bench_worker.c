/* bench_worker.c: see the header. The loop's callbacks: connected, done and failed of each channel; `pace` fires at the next scheduled
 * send; `sweep` every 50 ms ends what hangs and, at last, the loop. */
#include "cli/bench_worker.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "os/clock.h"

#define SWEEP_NS    50000000u
#define RETRY_NS    20000000u
#define BACKLOG_MAX (1u << 20)

struct bench_channel {
    struct http_channel http;
    struct bench_worker *w;
    struct bench_channel *next_idle;
    struct loop_timer retry;
    uint64_t start_ns; /* what latency is measured from */
    size_t request;
    bool busy;
};

static void send_next(struct bench_channel *c, uint64_t start_ns)
{
    struct bench_worker *w = c->w;
    c->request = w->next_request++ % w->plan->n_requests;
    c->start_ns = start_ns;
    c->busy = true;
    w->busy++;
    http_channel_send(&c->http, w->plan->requests[c->request]);
}

/* ---- recording ---- */

static bool counts(const struct bench_worker *w, const struct bench_channel *c, uint64_t now)
{
    uint64_t at = w->plan->open ? c->start_ns : now;
    return at >= w->plan->warm_ns && at < w->plan->stop_ns;
}

static void note_error(struct bench_worker *w, const char *text)
{
    if (!w->first_error[0])
        snprintf(w->first_error, sizeof w->first_error, "%s", text);
}

static void record_live(struct bench_worker *w, uint64_t latency, bool ok)
{
    os_mutex_lock(&w->lock);
    if (ok)
        hdr_record(w->live.latency, MIN_OF(latency, BENCH_LIVE_MAX));
    w->live.ok += ok;
    w->live.bad += !ok;
    os_mutex_unlock(&w->lock);
}

/* The median of the warm-up is how far apart a connection's requests would be if nothing stalled. */
static void end_warm_up(struct bench_worker *w)
{
    if (w->plan->open || !w->warm)
        return;
    w->expected_ns = w->warm->n ? hdr_percentile(w->warm, 50) : 0;
    hdr_destroy(w->warm);
    w->warm = NULL;
}

static void record_answer(struct bench_worker *w, struct bench_channel *c, int status, uint64_t now)
{
    uint64_t latency = now - c->start_ns;
    bool ok = status / 100 == 2;
    record_live(w, latency, ok);
    if (!counts(w, c, now)) {
        if (ok && w->warm && now < w->plan->warm_ns)
            hdr_record(w->warm, latency);
        return;
    }
    end_warm_up(w);
    w->first_ns = w->first_ns ? w->first_ns : now;
    w->last_ns = now;
    w->counts.ok += ok;
    w->counts.failed += !ok;
    w->counts.status[status > 0 && status < BENCH_STATUS_MAX ? status : 0]++;
    w->counts.bytes_in += c->http.body_bytes;
    w->counts.bytes_out += w->plan->requests[c->request].n;
    if (!ok)
        return;
    hdr_record(w->latency, latency);
    if (!w->plan->open)
        hdr_record_corrected(w->corrected, latency, w->expected_ns);
}

/* ---- pacing ---- */

static bool backlog_push(struct bench_worker *w, uint64_t at)
{
    if (w->backlog_n == w->backlog_cap) {
        size_t cap = w->backlog_cap ? 2 * w->backlog_cap : 1024;
        uint64_t *grown = cap <= BACKLOG_MAX ? malloc(cap * sizeof *grown) : NULL;
        if (!grown)
            return false;
        for (size_t i = 0; i < w->backlog_n; i++)
            grown[i] = w->backlog[(w->backlog_at + i) % w->backlog_cap];
        free(w->backlog);
        w->backlog = grown;
        w->backlog_at = 0;
        w->backlog_cap = cap;
    }
    w->backlog[(w->backlog_at + w->backlog_n++) % w->backlog_cap] = at;
    return true;
}

static uint64_t backlog_pop(struct bench_worker *w)
{
    uint64_t at = w->backlog[w->backlog_at];
    w->backlog_at = (w->backlog_at + 1) % w->backlog_cap;
    w->backlog_n--;
    return at;
}

/* One scheduled request: now if a connection is free, else it waits and its latency runs. */
static void arrive(struct bench_worker *w, uint64_t at)
{
    struct bench_channel *c = w->idle;
    if (c) {
        w->idle = c->next_idle;
        send_next(c, at);
    } else if (!backlog_push(w, at) && at >= w->plan->warm_ns) {
        w->counts.unfinished++;
    }
}

static void on_pace(struct loop_timer *t)
{
    struct bench_worker *w = CONTAINER_OF(t, struct bench_worker, pace);
    uint64_t now = loop_update_now(w->loop);
    while (!w->stopping && pacer_at_ns(&w->pacer) <= now && pacer_at_ns(&w->pacer) < w->plan->stop_ns) {
        arrive(w, pacer_at_ns(&w->pacer));
        pacer_advance(&w->pacer);
    }
    if (!w->stopping && pacer_at_ns(&w->pacer) < w->plan->stop_ns)
        loop_timer_start(w->loop, t, pacer_at_ns(&w->pacer));
}

/* A connection is free: the next request, if one is due. */
static void go_on(struct bench_channel *c)
{
    struct bench_worker *w = c->w;
    uint64_t now = loop_now_ns(w->loop);
    if (w->plan->open && w->backlog_n) {
        send_next(c, backlog_pop(w));
    } else if (w->plan->open) {
        c->next_idle = w->idle;
        w->idle = c;
    } else if (!w->stopping && now < w->plan->stop_ns) {
        send_next(c, os_monotonic_ns());
    }
}

/* ---- the channel's callbacks ---- */

static void on_connected(struct http_channel *ch)
{
    go_on(ch->user);
}

static void reconnect(struct bench_channel *c, bool soon)
{
    struct bench_worker *w = c->w;
    if (w->stopping && !w->backlog_n)
        return;
    if (soon)
        http_channel_connect(&c->http, &w->plan->addr);
    else
        loop_timer_start(w->loop, &c->retry, loop_now_ns(w->loop) + RETRY_NS);
}

static void on_retry(struct loop_timer *t)
{
    reconnect(CONTAINER_OF(t, struct bench_channel, retry), true);
}

static void on_done(struct http_channel *ch, int status)
{
    struct bench_channel *c = ch->user;
    struct bench_worker *w = c->w;
    c->busy = false;
    w->busy--;
    record_answer(w, c, status, os_monotonic_ns());
    if (w->plan->most && w->counts.ok + w->counts.failed >= w->plan->most)
        w->stopping = true;
    if (http_channel_is_open(ch))
        go_on(c);
    else
        reconnect(c, true); /* the server said Connection: close */
}

static void unlink_idle(struct bench_worker *w, const struct bench_channel *c)
{
    for (struct bench_channel **at = &w->idle; *at; at = &(*at)->next_idle)
        if (*at == c) {
            *at = c->next_idle;
            return;
        }
}

static void on_failed(struct http_channel *ch, const struct error *err)
{
    struct bench_channel *c = ch->user;
    struct bench_worker *w = c->w;
    if (c->busy) {
        c->busy = false;
        w->busy--;
        w->counts.broken += counts(w, c, loop_now_ns(w->loop));
        record_live(w, 0, false);
        note_error(w, err->text);
    } else if (err->code == STATUS_UNAVAILABLE) {
        w->counts.connects++;
        note_error(w, err->text);
    } else {
        unlink_idle(w, c); /* an idle connection that the server closed */
    }
    reconnect(c, false);
}

/* ---- the end ---- */

static void end_overdue(struct bench_worker *w, uint64_t now)
{
    for (uint32_t i = 0; i < w->plan->connections; i++) {
        struct bench_channel *c = &w->channels[i];
        if (!c->busy || now < c->http.sent_ns + w->plan->timeout_ns)
            continue;
        c->busy = false;
        w->busy--;
        w->counts.timeouts += counts(w, c, now);
        record_live(w, 0, false);
        note_error(w, "a request took longer than --timeout");
        http_channel_close(&c->http);
        reconnect(c, true);
    }
}

static void on_sweep(struct loop_timer *t)
{
    struct bench_worker *w = CONTAINER_OF(t, struct bench_worker, sweep);
    uint64_t now = loop_now_ns(w->loop);
    if (now >= w->plan->stop_ns || atomic_load_explicit(&w->stop, memory_order_relaxed))
        w->stopping = true;
    end_overdue(w, now);
    bool asked = atomic_load_explicit(&w->stop, memory_order_relaxed);
    bool finished = w->stopping && !w->busy && (!w->backlog_n || asked);
    if (finished || now >= w->plan->drain_ns) {
        loop_stop(w->loop);
        return;
    }
    loop_timer_start(w->loop, t, now + SWEEP_NS);
}

static void count_unfinished(struct bench_worker *w)
{
    while (w->backlog_n)
        w->counts.unfinished += backlog_pop(w) >= w->plan->warm_ns;
    for (uint32_t i = 0; w->plan->open && i < w->plan->connections; i++)
        w->counts.unfinished += w->channels[i].busy && w->channels[i].start_ns >= w->plan->warm_ns;
}

static void worker_main(void *arg)
{
    struct bench_worker *w = arg;
    for (uint32_t i = 0; i < w->plan->connections; i++)
        http_channel_connect(&w->channels[i].http, &w->plan->addr);
    loop_timer_start(w->loop, &w->sweep, loop_now_ns(w->loop) + SWEEP_NS);
    if (w->plan->open) {
        pacer_init(&w->pacer, w->plan->rate, w->plan->poisson, w->seed, os_monotonic_ns());
        loop_timer_start(w->loop, &w->pace, pacer_at_ns(&w->pacer));
    }
    if (w->plan->busy_poll)
        loop_busy_poll(w->loop);
    loop_run(w->loop);
    count_unfinished(w);
    for (uint32_t i = 0; i < w->plan->connections; i++) {
        loop_timer_stop(w->loop, &w->channels[i].retry);
        http_channel_release(&w->channels[i].http);
    }
    loop_timer_stop(w->loop, &w->pace);
    loop_timer_stop(w->loop, &w->sweep);
    atomic_store_explicit(&w->ended, true, memory_order_release); /* pairs with the acquire in bench.c's watch() */
}

/* ---- life ---- */

static int prepare(struct bench_worker *w, struct error *err)
{
    int rc = loop_create(&w->loop, err);
    if (rc < 0)
        return rc;
    w->latency = hdr_create(BENCH_LATENCY_MAX);
    w->corrected = hdr_create(BENCH_LATENCY_MAX);
    w->warm = hdr_create(BENCH_LATENCY_MAX);
    w->live.latency = hdr_create(BENCH_LIVE_MAX);
    w->channels = calloc(w->plan->connections, sizeof *w->channels);
    if (!w->latency || !w->corrected || !w->warm || !w->live.latency || !w->channels)
        return error_set(err, STATUS_NOMEM, "not enough memory for %u connections", w->plan->connections);
    loop_timer_init(&w->pace, on_pace);
    loop_timer_init(&w->sweep, on_sweep);
    for (uint32_t i = 0; i < w->plan->connections; i++) {
        struct bench_channel *c = &w->channels[i];
        http_channel_init(&c->http, w->loop);
        loop_timer_init(&c->retry, on_retry);
        c->w = w;
        c->http.user = c;
        c->http.connected = on_connected;
        c->http.done = on_done;
        c->http.failed = on_failed;
    }
    return 0;
}

int bench_worker_start(struct bench_worker *w, const struct bench_plan *plan, uint64_t seed, struct error *err)
{
    *w = (struct bench_worker){.plan = plan, .seed = seed};
    os_mutex_init(&w->lock, RANK_LEAF);
    int rc = prepare(w, err);
    if (rc == 0)
        rc = os_thread_start(&w->thread, "bench", worker_main, w, err);
    if (rc < 0)
        bench_worker_release(w);
    return rc;
}

void bench_worker_join(struct bench_worker *w)
{
    os_thread_join(&w->thread);
}

void bench_worker_release(struct bench_worker *w)
{
    if (w->loop)
        loop_destroy(w->loop);
    hdr_destroy(w->latency);
    hdr_destroy(w->corrected);
    hdr_destroy(w->warm);
    hdr_destroy(w->live.latency);
    free(w->channels);
    free(w->backlog);
    os_mutex_release(&w->lock);
}
