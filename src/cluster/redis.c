/* redis.c: calls and their replies: see redis.h. The connection's making and bytes are in redis_conn.c.
 *
 * A script that the Redis doesn't know (NOSCRIPT) is answered for every call that was sent before it could be told, and those calls must be
 * repeated in their order, before all later ones. So the client holds back new calls, lets what is under way be answered, keeping those
 * that were refused at the head of the held ones, loads the scripts, and goes on. */
#include "cluster/redis.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "cluster/redis_priv.h"
#include "net/tls.h"
#include "obs/metrics.h"
#include "os/clock.h"
#include "os/file.h"

#define DEADLINE_NS   50000000u
#define MISSES_MAX    3
#define RING_CAP      1024u
#define CALLS_MAX     (1u << 17) /* under way at once; past it a call is not taken */
#define NS_PER_S      1e9
#define REPLY_TOO_BIG "its answer is no answer to what was asked"

/* ---- arguments ---- */

void redis_arg(struct buf *b, struct str s)
{
    buf_append_c(b, '$');
    buf_append_u64(b, s.n);
    buf_append(b, "\r\n", 2);
    buf_append_str(b, s);
    buf_append(b, "\r\n", 2);
}

void redis_arg_u64(struct buf *b, uint64_t v)
{
    char text[24], *end = text + sizeof text, *at = end;
    do
        *--at = (char)('0' + v % 10);
    while (v /= 10);
    redis_arg(b, (struct str){at, (size_t)(end - at)});
}

void redis__head(struct buf *b, size_t n_args)
{
    buf_append_c(b, '*');
    buf_append_u64(b, n_args);
    buf_append(b, "\r\n", 2);
}

size_t redis__put_scripts(struct redis *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n_users; i++) {
        if (!r->users[i]->script)
            continue;
        redis__head(&r->out, 3);
        redis_arg(&r->out, STR("SCRIPT"));
        redis_arg(&r->out, STR("LOAD"));
        redis_arg(&r->out, str_of(r->users[i]->script->text));
        n++;
    }
    return n;
}

/* ---- what is under way ---- */

static bool ring_grow(struct redis_ring *g)
{
    size_t cap = g->cap ? g->cap * 2 : RING_CAP;
    struct redis_call **at = cap <= CALLS_MAX ? malloc(cap * sizeof *at) : NULL;
    if (!at)
        return false;
    for (uint64_t i = g->head; i < g->tail; i++)
        at[i & (cap - 1)] = g->at[i & (g->cap - 1)];
    free(g->at);
    g->at = at;
    g->cap = cap;
    return true;
}

/* Into the bytes to be written; false: no memory for it. */
static bool put(struct redis *r, struct redis_call *c)
{
    struct redis_ring *g = &r->ring;
    size_t before = r->out.n;
    if (g->tail - g->head == g->cap && !ring_grow(g))
        return false;
    redis__head(&r->out, c->n_args + (c->script ? 2 : 0));
    if (c->script) {
        redis_arg(&r->out, STR("EVALSHA"));
        redis_arg(&r->out, (struct str){c->script->sha, 40});
    }
    buf_append_str(&r->out, c->args);
    if (r->out.failed) {
        r->out.n = before;
        r->out.failed = false;
        return false;
    }
    c->slot = g->tail++;
    c->sent_ns = loop_now_ns(r->loop);
    g->at[c->slot & (g->cap - 1)] = c;
    redis__flush_later(r);
    return true;
}

/* It is the caller's again. */
static void finish(struct redis_call *c, int status, const struct redisReply *reply)
{
    list_remove(&c->link);
    c->done(c, status, reply);
}

/* The timer is at the earliest deadline. Held calls are few and rare: they are walked. */
static void watch_deadline(struct redis *r)
{
    struct list *l = list_first(&r->timed);
    uint64_t at = l ? LIST_ENTRY(l, struct redis_call, link)->due_ns : UINT64_MAX;
    LIST_EACH(n, &r->held)
    {
        const struct redis_call *c = LIST_ENTRY(n, struct redis_call, link);
        at = c->patient ? at : MIN_OF(at, c->due_ns);
    }
    if (at == UINT64_MAX)
        loop_timer_stop(r->loop, &r->due);
    else if (!heap_contains(&r->due.node) || r->due.at_ns != at)
        loop_timer_start(r->loop, &r->due, at);
}

static void on_call(struct loop_task *t)
{
    struct redis_call *c = CONTAINER_OF(t, struct redis_call, task);
    struct redis *r = (struct redis *)c->slot; /* redis_send put it there */
    list_init(&c->link);
    c->queued = r->reloading;
    c->sent_ns = 0;
    if (r->state != REDIS_UP || (!r->reloading && !put(r, c))) {
        metric_inc(r->m_lost);
        c->done(c, STATUS_UNAVAILABLE, NULL);
        return;
    }
    c->due_ns = loop_now_ns(r->loop) + r->o.deadline_ns;
    if (c->queued)
        list_push_back(&r->held, &c->link);
    else if (!c->patient)
        list_push_back(&r->timed, &c->link);
    watch_deadline(r);
}

bool redis_send(struct redis *r, struct redis_call *c)
{
    if (!atomic_load_explicit(&r->up, memory_order_acquire))
        return false;
    static_assert(sizeof c->slot >= sizeof(uintptr_t), "the client is passed in it");
    c->slot = (uint64_t)(uintptr_t)r;
    c->task.run = on_call;
    loop_post(r->loop, &c->task);
    return true;
}

void redis__fail_all(struct redis *r)
{
    struct redis_ring *g = &r->ring;
    struct list *l;
    while (g->head < g->tail) {
        struct redis_call *c = g->at[g->head++ & (g->cap - 1)];
        if (c) {
            metric_inc(r->m_lost);
            finish(c, STATUS_UNAVAILABLE, NULL);
        }
    }
    while ((l = list_first(&r->held))) {
        metric_inc(r->m_lost);
        finish(LIST_ENTRY(l, struct redis_call, link), STATUS_UNAVAILABLE, NULL);
    }
    r->reloading = false;
    r->n_loads = 0;
    ASSERT(list_empty(&r->timed));
    loop_timer_stop(r->loop, &r->due);
}

/* ---- the breaker ---- */

static void miss(struct redis *r, const char *why)
{
    if (++r->misses >= MISSES_MAX)
        r->reset = why;
}

#define SILENT "it does not answer within redis.deadline"

static void time_out(struct redis *r, struct redis_call *c)
{
    metric_inc(r->m_timeout);
    miss(r, SILENT);
    if (c->sent_ns && r->heard_ns < c->sent_ns)
        r->reset = SILENT; /* not a word to anybody since: it hangs */
    finish(c, STATUS_DEADLINE, NULL);
}

/* Deadlines have passed. The places of sent calls in the ring stay, empty: answers come in order. */
static void on_due(struct loop_timer *t)
{
    struct redis *r = CONTAINER_OF(t, struct redis, due);
    uint64_t now = loop_now_ns(r->loop);
    struct list *l, *next;
    while ((l = list_first(&r->timed)) && LIST_ENTRY(l, struct redis_call, link)->due_ns <= now) {
        struct redis_call *c = LIST_ENTRY(l, struct redis_call, link);
        r->ring.at[c->slot & (r->ring.cap - 1)] = NULL;
        time_out(r, c);
    }
    for (l = r->held.next; l != &r->held; l = next) {
        struct redis_call *c = LIST_ENTRY(l, struct redis_call, link);
        next = l->next;
        if (!c->patient && c->due_ns <= now)
            time_out(r, c);
    }
    if (r->reset)
        redis__lose(r, r->reset);
    else
        watch_deadline(r);
}

/* ---- replies ---- */

static bool is_error(const struct redisReply *reply, const char *code)
{
    size_t n = strlen(code);
    return reply->type == REDIS_REPLY_ERROR && reply->len >= n && memcmp(reply->str, code, n) == 0;
}

/* Of the server as a whole, not of one call. */
static bool is_servers_fault(const struct redisReply *reply)
{
    static const char *const codes[] = {"LOADING", "READONLY", "OOM ",    "NOAUTH",     "NOPERM", "MASTERDOWN", "CLUSTERDOWN",
                                        "MOVED",   "BUSY ",    "MISCONF", "NOREPLICAS", "ASK ",   "TRYAGAIN"};
    for (size_t i = 0; i < COUNT_OF(codes); i++)
        if (is_error(reply, codes[i]))
            return true;
    return false;
}

/* The scripts are there again, or on their way: send what waits, in order. */
static void release_held(struct redis *r)
{
    struct list *l;
    r->reloading = false;
    while ((l = list_first(&r->held))) {
        struct redis_call *c = LIST_ENTRY(l, struct redis_call, link);
        list_remove(&c->link);
        c->queued = false;
        if (!put(r, c)) {
            metric_inc(r->m_lost);
            c->done(c, STATUS_UNAVAILABLE, NULL);
        } else if (!c->patient) {
            list_push_back(&r->timed, &c->link);
        }
    }
    watch_deadline(r);
}

/* A call that the Redis had no script for is held, before those that came later; answers arrive in order, so pushing at the back of the
 * refused ones does: nothing newer can be there, since newer ones were sent before or are held behind. */
static void hold_refused(struct redis *r, struct redis_call *c)
{
    list_remove(&c->link);
    c->queued = true;
    struct list *at = r->held.next; /* behind the last one that was refused: those have been sent once */
    while (at != &r->held && LIST_ENTRY(at, struct redis_call, link)->sent_ns)
        at = at->next;
    list_insert_before(at, &c->link);
    r->reloading = true;
}

bool redis__take_sha(struct redis *r, size_t i, const struct redisReply *reply, struct error *err)
{
    for (size_t u = 0; u < r->n_users; u++) {
        if (!r->users[u]->script || i--)
            continue;
        if (reply->type != REDIS_REPLY_STRING || reply->len != 40) {
            error_set(err, STATUS_UNAVAILABLE, "it does not take scripts: %s",
                      reply->type == REDIS_REPLY_ERROR ? reply->str : REPLY_TOO_BIG);
            return false;
        }
        memcpy(r->users[u]->script->sha, reply->str, 41);
        return true;
    }
    return false;
}

/* Everything sent before is answered: nothing is under way but the loading. */
static void reload_if_idle(struct redis *r)
{
    if (!r->reloading || r->n_loads || r->ring.head < r->ring.tail)
        return;
    r->n_loads = redis__put_scripts(r);
    redis__flush_later(r);
}

/* "MOVED 1234 10.0.0.2:6379": all our keys have one hash tag, so the connection goes there, whole. */
static void note_move(struct redis *r, struct str answer)
{
    struct str word, slot, address = {0};
    if (!str_cut(&answer, ' ', &word) || !str_cut(&answer, ' ', &slot) || !str_cut(&answer, ' ', &address) || address.n < 3 ||
        address.p[0] == ':' || address.n >= sizeof r->moved)
        return; /* it doesn't say where */
    memcpy(r->moved, address.p, address.n);
    r->moved[address.n] = 0;
    r->reset = "our keys are with another server of its cluster";
}

static void answer(struct redis *r, struct redis_call *c, const struct redisReply *reply)
{
    bool failed = reply->type == REDIS_REPLY_ERROR;
    metric_observe(r->m_round_trip, (double)(loop_now_ns(r->loop) - c->sent_ns) / NS_PER_S);
    metric_inc(failed ? r->m_error : r->m_ok);
    if (failed && is_servers_fault(reply)) {
        LOG(r->o.log, LOG_WARN, "redis_refuses", LOG_S("answer", reply->str));
        miss(r, "it refuses calls");
        if (is_error(reply, "MOVED "))
            note_move(r, (struct str){reply->str, reply->len});
        else if (is_error(reply, "READONLY") && r->url.n_sentinels)
            r->reset = "it is the master no more";
    } else {
        r->misses = 0;
    }
    finish(c, failed ? STATUS_INTERNAL : 0, reply);
}

bool redis__on_reply(struct redis *r, const struct redisReply *reply, struct error *err)
{
    struct redis_ring *g = &r->ring;
    r->heard_ns = loop_now_ns(r->loop);
    if (r->n_loads && g->head == g->tail) {
        size_t i = 0;
        for (size_t u = 0; u < r->n_users; u++)
            i += r->users[u]->script != NULL;
        if (!redis__take_sha(r, i - r->n_loads, reply, err))
            return false;
        if (--r->n_loads == 0)
            release_held(r);
        return true;
    }
    if (g->head == g->tail) {
        error_set(err, STATUS_UNAVAILABLE, "it answers what was not asked");
        return false;
    }
    struct redis_call *c = g->at[g->head++ & (g->cap - 1)];
    if (c && c->script && is_error(reply, "NOSCRIPT"))
        hold_refused(r, c);
    else if (c)
        answer(r, c, reply);
    reload_if_idle(r);
    watch_deadline(r);
    if (r->reset)
        error_set(err, STATUS_UNAVAILABLE, "%s", r->reset);
    return !r->reset;
}

bool redis_reply_i64(const struct redisReply *reply, size_t i, int64_t *out)
{
    if (!reply || reply->type != REDIS_REPLY_ARRAY || i >= reply->elements || reply->element[i]->type != REDIS_REPLY_INTEGER)
        return false;
    *out = reply->element[i]->integer;
    return true;
}

/* ---- what others see ---- */

static const char *state_name(enum redis_state s)
{
    return s == REDIS_UP ? "up" : s == REDIS_DOWN ? "down" : "connecting";
}

void redis__set_state(struct redis *r, enum redis_state state, const char *reason)
{
    r->state = state;
    atomic_store_explicit(&r->up, state == REDIS_UP, memory_order_release);
    metric_set(r->m_up, state == REDIS_UP);
    os_mutex_lock(&r->lock);
    if ((state == REDIS_UP) != (r->told_state == REDIS_UP) || !r->since_ns)
        r->since_ns = os_monotonic_ns();
    r->told_state = state;
    if (state == REDIS_UP)
        r->reason[0] = 0;
    else if (reason) {
        size_t n = MIN_OF(strlen(reason), sizeof r->reason - 1);
        memcpy(r->reason, reason, n);
        r->reason[n] = 0;
    }
    os_mutex_unlock(&r->lock);
}

void redis__tell_address(struct redis *r, const char *address)
{
    os_mutex_lock(&r->lock);
    memcpy(r->told_address, address, strlen(address) + 1);
    os_mutex_unlock(&r->lock);
}

void redis_describe(struct redis *r, struct buf *out)
{
    os_mutex_lock(&r->lock);
    buf_printf(out, "\"state\":\"%s\",\"address\":", state_name(r->told_state));
    buf_append_json_str(out, str_of(r->told_address));
    buf_printf(out, ",\"since_s\":%llu",
               (unsigned long long)(r->since_ns ? (os_monotonic_ns() - r->since_ns) / (uint64_t)NS_PER_S : 0));
    if (r->reason[0]) {
        buf_append_z(out, ",\"reason\":");
        buf_append_json_str(out, str_of(r->reason));
    }
    os_mutex_unlock(&r->lock);
}

struct loop *redis_loop(struct redis *r)
{
    return r->loop;
}

void redis_reset(struct redis *r, const char *reason)
{
    if (r->state != REDIS_UP)
        return; /* it is gone already */
    r->reset = reason;
    redis__flush_later(r);
}

/* ---- life ---- */

static void make_metrics(struct redis *r, struct metrics *m)
{
    static const char *const labels[] = {"result", NULL}, *const none[] = {NULL};
    if (!m)
        return;
    struct metric_family *f =
        metrics_family(m, METRIC_GAUGE, "inferd_redis_up",
                       "Whether the Redis is used: 0 while it is away or the breaker is open.", NULL, NULL, 0);
    r->m_up = f ? metrics_series(f, none) : NULL;
    f = metrics_family(m, METRIC_COUNTER, "inferd_redis_connects_total", "Attempts to reach the Redis, by what came of them.",
                       labels, NULL, 0);
    if (f) {
        r->m_connects = metrics_series(f, (const char *const[]){"ok"});
        r->m_failures = metrics_series(f, (const char *const[]){"failed"});
    }
    f = metrics_family(
        m, METRIC_COUNTER, "inferd_redis_calls_total",
        "Calls to the Redis (ok, error, timeout: no answer within redis.deadline, lost: the connection went first).", labels,
        NULL, 0);
    if (f) {
        r->m_ok = metrics_series(f, (const char *const[]){"ok"});
        r->m_error = metrics_series(f, (const char *const[]){"error"});
        r->m_timeout = metrics_series(f, (const char *const[]){"timeout"});
        r->m_lost = metrics_series(f, (const char *const[]){"lost"});
    }
    f = metrics_family(m, METRIC_HISTOGRAM, "inferd_redis_round_trip_seconds", "From a call's sending to its answer.", NULL,
                       METRICS_LATENCY_BOUNDS, METRICS_LATENCY_BOUNDS_N);
    r->m_round_trip = f ? metrics_histogram(f, none) : NULL;
}

int redis_create(const struct redis_options *o, struct redis **out, struct error *err)
{
    struct redis *r = calloc(1, sizeof *r);
    if (!r)
        return error_set(err, STATUS_NOMEM, "out of memory for the Redis client");
    r->o = *o;
    r->fd = -1;
    if (!r->o.deadline_ns)
        r->o.deadline_ns = DEADLINE_NS;
    os_mutex_init(&r->lock, RANK_LEAF);
    list_init(&r->timed);
    list_init(&r->held);
    loop_timer_init(&r->due, on_due);
    loop_timer_init(&r->retry, NULL);
    int rc = redis_url_parse(o->url, &r->url, err);
    memcpy(r->told_address, r->url.address, sizeof r->told_address);
    if (rc == 0)
        rc = loop_create(&r->loop, err);
    if (rc == 0 && r->url.tls)
        rc = tls_client_create(o->ca_file, &r->trust, err);
    if (rc < 0) {
        redis_destroy(r);
        return rc;
    }
    make_metrics(r, o->metrics);
    *out = r;
    return 0;
}

void redis_attach(struct redis *r, struct redis_user *u)
{
    ASSERT(!r->started && r->n_users < REDIS_USERS_MAX);
    r->users[r->n_users++] = u;
}

static void run(void *arg)
{
    struct redis *r = arg;
    redis__connect(r);
    loop_run(r->loop);
}

int redis_start(struct redis *r, struct error *err)
{
    int rc = os_thread_start(&r->thread, "redis", run, r, err);
    r->started = rc == 0;
    return rc;
}

static void on_stop(struct loop_task *t)
{
    struct redis *r = CONTAINER_OF(t, struct redis, stop);
    redis__lose(r, "the server is stopping");
    loop_stop(r->loop);
}

void redis_destroy(struct redis *r)
{
    if (!r)
        return;
    if (r->started) {
        atomic_store(&r->stopping, true);
        r->stop.run = on_stop;
        loop_post(r->loop, &r->stop);
        os_thread_join(&r->thread);
        redis__resolver_end(r);
    }
    loop_destroy(r->loop); /* runs what was posted last: those calls are done with UNAVAILABLE */
    tls_client_destroy(r->trust);
    buf_release(&r->out);
    free(r->ring.at);
    os_mutex_release(&r->lock);
    free(r);
}
