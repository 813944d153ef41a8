/* quota_shared.c: see quota_shared.h.
 *
 *   hold    one reservation at the Redis, or one debt that is paid to it: its call, its keys, what is charged
 *   outbox  holds that are over, in the order of their sequence numbers, until the Redis has confirmed them
 *
 * States of a hold: ASKING (take or more is under way) -> OPEN -> CLOSING (in the outbox) -> free. A question that got no answer leaves its
 * hold OPEN and in doubt: whether the Redis charged it or not, its `set` at the end names what it really took, and the script knows the rest.
 *
 * The lock is the gate's. Sending under it is a push to a list, and keeps the order of sequence numbers the order of calls. */
#include "edge/quota_shared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/list.h"
#include "base/size.h"
#include "base/status.h"
#include "cluster/redis.h"
#include "edge/quota_script.h"
#include "obs/metrics.h"
#include "os/clock.h"
#include "os/random.h"
#include "os/thread.h"

#define HOLD_BIT     (1ull << 63)
#define HOLDS        65536u
#define LEASE_NS     10000000000u
#define NS_PER_US    1000u
#define NS_PER_S     1000000000u
#define BEAT_PARTS   4   /* of a lease */
#define DEBTS_A_BEAT 256 /* meters */
#define POLL_NS      1000000u
#define NONE         UINT32_MAX

enum hold_state { HOLD_FREE, HOLD_ASKING, HOLD_OPEN, HOLD_CLOSING };
enum hold_kind { HOLD_RESERVATION, HOLD_DEBT };

struct hold {
    struct redis_call call;
    struct quota_shared *shared;
    struct list link; /* outbox */
    uint32_t next_free;
    enum hold_state state;
    enum hold_kind kind;
    bool confirmed; /* the Redis has said that it charged it */
    uint64_t id, local, seq;
    uint64_t rows, tokens;         /* reserved there, as far as is known */
    uint64_t ask_rows, ask_tokens; /* under way */
    uint64_t really[3];            /* CLOSING: requests, rows, tokens */
    struct quota_wait *wait;
    uint8_t n, policies[QUOTA_LEVELS_MAX];
    struct buf keys, specs; /* as arguments; kept while the hold lasts */
    struct buf args;        /* of the call */
};

struct quota_shared {
    struct quota_shared_options o;
    struct redis_user user;
    struct redis_script script;
    char owner[33];
    struct buf owner_keys; /* the first two keys, as arguments */
    char **spec;           /* [n] each policy's text for the script */
    bool *has_rows, *has_tokens;

    /* under the lock */
    bool ready, quiet;
    uint64_t epoch, seq, n_asking, n_unconfirmed;
    struct hold *holds;
    uint32_t n_holds, n_used, free;
    uint64_t serial;
    struct list outbox;
    uint32_t servers; /* that share, as the limits of o.local say */
    uint64_t since_ns;

    /* the client's thread */
    struct loop_timer beat;
    bool greeted_before;
    struct redis_call control; /* hello and beat */
    struct buf control_args;
    bool control_busy;

    struct metric *m_there, *m_here, *m_shared, *m_unconfirmed, *m_dropped;
};

bool quota_shared_owns(uint64_t id)
{
    return id & HOLD_BIT;
}

/* ---- holds ---- */

static struct hold *take_hold(struct quota_shared *s)
{
    struct hold *h;
    if (s->free != NONE) {
        h = &s->holds[s->free];
        s->free = h->next_free;
    } else if (s->n_used < s->n_holds) {
        h = &s->holds[s->n_used++];
    } else {
        return NULL;
    }
    h->shared = s;
    h->id = HOLD_BIT | (++s->serial * s->n_holds + (uint64_t)(h - s->holds));
    h->local = h->seq = h->rows = h->tokens = 0;
    h->confirmed = false;
    h->n = 0;
    list_init(&h->link);
    buf_clear(&h->keys);
    buf_clear(&h->specs);
    return h;
}

static void free_hold(struct hold *h)
{
    struct quota_shared *s = h->shared;
    list_remove(&h->link);
    h->state = HOLD_FREE;
    h->id = 0;
    h->next_free = s->free;
    s->free = (uint32_t)(h - s->holds);
}

static struct hold *find(struct quota_shared *s, uint64_t id)
{
    struct hold *h = &s->holds[(id & ~HOLD_BIT) % s->n_holds];
    return h->id == id ? h : NULL;
}

/* "{prefix}:q:m:policy:subject": what stands in braces is all that a cluster places a key by, so that one server of it has them all. */
static void put_level(struct hold *h, const struct quota_level *level)
{
    const struct quota_shared *s = h->shared;
    struct str name = str_of(s->o.policies[level->policy].name);
    const char *head = s->o.prefix;
    size_t n = strlen(head) + 2 + sizeof ":q:m:" - 1 + name.n + 1 + level->subject.n;
    struct buf *b = &h->keys;
    h->policies[h->n++] = (uint8_t)level->policy;
    buf_printf(b, "$%zu\r\n{%s}:q:m:", n, head);
    buf_append_str(b, name);
    buf_append_c(b, ':');
    buf_append_str(b, level->subject);
    buf_append(b, "\r\n", 2);
}

/* ---- calls ---- */

static void begin_args(struct quota_shared *s, struct buf *b, size_t meters, const struct buf *keys, const char *op)
{
    buf_clear(b);
    redis_arg_u64(b, 2 + meters);
    buf_append_str(b, buf_str(&s->owner_keys));
    if (keys)
        buf_append_str(b, buf_str(keys));
    redis_arg(b, str_of(op));
    redis_arg(b, STR("0")); /* the Redis's clock */
    redis_arg_u64(b, s->epoch);
}

static uint64_t serial_of(const struct hold *h)
{
    return h->id & ~HOLD_BIT;
}

/* False: it isn't sent; `done` won't be called. */
static bool send(struct hold *h, size_t n_fixed, void (*done)(struct redis_call *c, int status, const struct redisReply *reply))
{
    struct quota_shared *s = h->shared;
    buf_append_str(&h->args, buf_str(&h->specs));
    h->call.script = &s->script;
    h->call.args = buf_str(&h->args);
    h->call.n_args = (uint32_t)(1 + 2 + h->n + 3 + n_fixed + h->n);
    h->call.done = done;
    h->call.patient = h->state == HOLD_CLOSING;
    return !h->args.failed && !h->keys.failed && !h->specs.failed && redis_send(s->o.redis, &h->call);
}

static void on_set(struct redis_call *c, int status, const struct redisReply *reply);

/* Tell the Redis what a hold of the outbox came to. */
static void send_set(struct hold *h)
{
    struct quota_shared *s = h->shared;
    struct buf *b = &h->args;
    size_t n = 1;
    if (h->kind == HOLD_DEBT) {
        begin_args(s, b, h->n, &h->keys, "add");
        redis_arg_u64(b, h->seq);
    } else {
        begin_args(s, b, h->n, &h->keys, "set");
        redis_arg_u64(b, serial_of(h));
        redis_arg_u64(b, h->seq);
        redis_arg_u64(b, h->confirmed);
        redis_arg_u64(b, h->rows);
        for (int i = 0; i < 3; i++)
            redis_arg_u64(b, h->really[i]);
        n = 7;
    }
    (void)!send(h, n, on_set); /* the next connection sends it again */
}

static void close_hold(struct hold *h)
{
    struct quota_shared *s = h->shared;
    h->state = HOLD_CLOSING;
    h->seq = ++s->seq;
    list_push_back(&s->outbox, &h->link);
    metric_set(s->m_unconfirmed, (double)++s->n_unconfirmed);
    if (s->ready)
        send_set(h);
}

static void on_set(struct redis_call *c, int status, const struct redisReply *reply)
{
    struct hold *h = CONTAINER_OF(c, struct hold, call);
    struct quota_shared *s = h->shared;
    int64_t code = -1;
    bool answered = status == 0 && redis_reply_i64(reply, 0, &code);
    os_mutex_lock(s->o.lock);
    if (answered && code < 0) {
        redis_reset(s->o.redis, "it has lost what it knew of this server");
    } else if (answered || status == STATUS_INTERNAL) {
        /* an error of the script would come again: what was reserved goes back with the lease */
        metric_add(s->m_dropped, status == STATUS_INTERNAL);
        metric_set(s->m_unconfirmed, (double)--s->n_unconfirmed);
        free_hold(h);
    }
    os_mutex_unlock(s->o.lock);
}

/* ---- judging here ---- */

static int judge_here(struct quota_shared *s, const struct quota_ask *ask, struct quota_wait *w)
{
    struct quota_level levels[QUOTA_LEVELS_MAX];
    struct quota_ask a = *ask;
    a.elsewhere = false;
    w->rc = quota_reserve(s->o.quota, &a, &w->id, &w->v);
    if (w->rc == 0 && quota_levels(s->o.quota, w->id, levels)) {
        metric_inc(s->m_here);
        quota_owe(s->o.quota, w->id);
    }
    return w->rc;
}

/* ---- asking ---- */

/* Which of two that passed has less left, in parts of the limit. */
static bool is_tighter(const struct quota_verdict *a, const struct quota_verdict *b)
{
    return !b->limit || (a->limit && (double)a->remaining / (double)a->limit < (double)b->remaining / (double)b->limit);
}

/* {code, meter, unit, left, reset, wait} of the script. */
static bool read_verdict(const struct hold *h, const struct redisReply *reply, uint64_t rows, uint64_t tokens, int64_t *code,
                         struct quota_verdict *v)
{
    int64_t x[6] = {0};
    for (size_t i = 0; i < COUNT_OF(x); i++)
        if (!redis_reply_i64(reply, i, &x[i]))
            return redis_reply_i64(reply, 0, code) && *code < 0;
    *code = x[0];
    if (x[1] < 0 || x[1] >= h->n || x[2] < 0 || x[2] >= QUOTA_UNITS || x[3] < 0)
        return false;
    const struct quota_policy *p = &h->shared->o.policies[h->policies[x[1]]];
    enum quota_unit u = (enum quota_unit)x[2];
    uint64_t cost = quota_unit_counts_tokens(u) ? tokens : quota_unit_counts_rows(u) ? rows : 1;
    *v = (struct quota_verdict){.policy = p->name,
                                .unit = u,
                                .limit = p->limit[u],
                                .remaining = (uint64_t)x[3],
                                .cost = cost,
                                .reset_ns = (uint64_t)MAX_OF(x[4], 0) * NS_PER_US,
                                .wait_ns = (uint64_t)MAX_OF(x[5], 0) * NS_PER_US};
    return true;
}

/* No proper answer: the share decides. The hold stays, in doubt. */
static void without_answer(struct hold *h, struct quota_wait *w, bool first)
{
    struct quota_shared *s = h->shared;
    uint64_t now_ns = os_monotonic_ns(), now_s = os_wall_ns() / NS_PER_S;
    struct quota_ask a = w->ask;
    a.elsewhere = false;
    a.now_ns = now_ns;
    a.now_s = now_s;
    metric_inc(s->m_here);
    h->state = HOLD_OPEN;
    if (!first) {
        /* the copy is charged twice until it is settled: too strict rather than too lax */
        quota_judge_here(s->o.quota, h->local);
        w->rc = quota_more(s->o.quota, h->local, h->ask_rows, h->ask_tokens, now_ns, now_s, &w->v);
        h->rows += w->rc == 0 ? h->ask_rows : 0;
        return;
    }
    h->rows = h->ask_rows;
    quota_refund(s->o.quota, h->local, now_ns, now_s);
    w->rc = quota_reserve(s->o.quota, &a, &h->local, &w->v);
    w->id = w->rc == 0 ? h->id : 0;
    if (w->rc < 0) {
        memset(h->really, 0, sizeof h->really);
        close_hold(h);
    }
}

static void on_answer(struct redis_call *c, int status, const struct redisReply *reply)
{
    struct hold *h = CONTAINER_OF(c, struct hold, call);
    struct quota_shared *s = h->shared;
    struct quota_wait *w = h->wait;
    struct quota_verdict v = {0};
    int64_t code = -1;
    bool first = w->id == 0;
    os_mutex_lock(s->o.lock);
    s->n_asking--;
    h->wait = NULL;
    if (status != 0 || !read_verdict(h, reply, h->ask_rows, h->ask_tokens, &code, &v) || code < 0) {
        without_answer(h, w, first);
        if (status == 0)
            redis_reset(s->o.redis, "it has lost what it knew of this server");
    } else if (code == 0) {
        metric_inc(s->m_there);
        h->state = HOLD_OPEN;
        h->confirmed = true;
        h->rows += h->ask_rows;
        h->tokens += h->ask_tokens;
        w->rc = 0;
        w->id = h->id;
        if (is_tighter(&v, &w->v))
            w->v = v;
    } else {
        metric_inc(s->m_there);
        w->rc = STATUS_EXHAUSTED;
        w->v = v;
        h->state = HOLD_OPEN;
        if (first) {
            quota_refund(s->o.quota, h->local, os_monotonic_ns(), os_wall_ns() / NS_PER_S);
            free_hold(h);
        }
    }
    os_mutex_unlock(s->o.lock);
    w->done(w);
}

static bool ask(struct hold *h, const char *op, uint64_t rows, uint64_t tokens, struct quota_wait *w)
{
    struct buf *b = &h->args;
    h->state = HOLD_ASKING;
    h->wait = w;
    h->ask_rows = rows;
    h->ask_tokens = tokens;
    begin_args(h->shared, b, h->n, &h->keys, op);
    redis_arg_u64(b, serial_of(h));
    redis_arg_u64(b, rows);
    redis_arg_u64(b, tokens);
    if (!send(h, 3, on_answer)) {
        h->state = HOLD_OPEN;
        return false;
    }
    h->shared->n_asking++;
    return true;
}

int quota_shared_reserve(struct quota_shared *s, const struct quota_ask *question, struct quota_wait *w)
{
    struct quota_level levels[QUOTA_LEVELS_MAX];
    struct quota_ask a = *question;
    struct hold *h = NULL;
    size_t n = 0;
    uint64_t local;
    int rc;
    a.elsewhere = true;
    w->ask = *question;
    os_mutex_lock(s->o.lock);
    if (!s->ready || s->quiet || question->at_once) {
        rc = judge_here(s, question, w);
        goto out;
    }
    rc = w->rc = quota_reserve(s->o.quota, &a, &local, &w->v);
    w->id = local;
    n = rc == 0 ? quota_levels(s->o.quota, local, levels) : 0;
    if (!n)
        goto out;
    h = take_hold(s);
    if (h) {
        h->kind = HOLD_RESERVATION;
        h->local = local;
        for (size_t i = 0; i < n; i++) {
            put_level(h, &levels[i]);
            redis_arg(&h->specs, str_of(s->spec[levels[i].policy]));
        }
        w->id = 0;
        rc = STATUS_AGAIN;
        if (ask(h, "take", question->rows, question->tokens, w))
            goto out;
        free_hold(h);
    }
    quota_refund(s->o.quota, local, question->now_ns, question->now_s);
    rc = judge_here(s, question, w);
out:
    os_mutex_unlock(s->o.lock);
    return rc;
}

/* Does any of its shared policies count what is asked for? */
static bool counts(const struct hold *h, uint64_t rows, uint64_t tokens)
{
    for (size_t i = 0; i < h->n; i++)
        if ((rows && h->shared->has_rows[h->policies[i]]) || (tokens && h->shared->has_tokens[h->policies[i]]))
            return true;
    return false;
}

int quota_shared_more(struct quota_shared *s, uint64_t id, uint64_t rows, uint64_t tokens, uint64_t now_ns, uint64_t now_s,
                      struct quota_wait *w)
{
    os_mutex_lock(s->o.lock);
    struct hold *h = find(s, id);
    w->rc = 0;
    w->id = id;
    w->v = (struct quota_verdict){0};
    if (!h)
        goto out;
    if (!s->ready || s->quiet)
        quota_judge_here(s->o.quota, h->local);
    w->rc = quota_more(s->o.quota, h->local, rows, tokens, now_ns, now_s, &w->v);
    if (w->rc < 0)
        goto out;
    if (!counts(h, rows, tokens) || !s->ready || s->quiet) {
        h->rows += rows; /* for the record's sake; nothing there counts them */
        goto out;
    }
    ASSERT(h->state == HOLD_OPEN);
    if (ask(h, "more", rows, tokens, w))
        w->rc = STATUS_AGAIN;
    else
        without_answer(h, w, false);
out:;
    int rc = w->rc;
    os_mutex_unlock(s->o.lock);
    return rc;
}

void quota_shared_end(struct quota_shared *s, uint64_t id, bool refund, uint64_t tokens, uint64_t now_ns, uint64_t now_s)
{
    os_mutex_lock(s->o.lock);
    struct hold *h = find(s, id);
    if (h && h->state == HOLD_OPEN) {
        if (refund)
            quota_refund(s->o.quota, h->local, now_ns, now_s);
        else
            quota_settle(s->o.quota, h->local, tokens, now_ns, now_s);
        h->really[0] = !refund;
        h->really[1] = refund ? 0 : h->rows;
        h->really[2] = refund ? 0 : tokens;
        close_hold(h);
    }
    os_mutex_unlock(s->o.lock);
}

/* ---- debts ---- */

/* What was admitted while the Redis was away, meter by meter. Lock held, ready. */
static void pay_debts(struct quota_shared *s)
{
    struct quota_debt debt;
    uint64_t now_s = os_wall_ns() / NS_PER_S;
    struct hold *h;
    for (int i = 0; i < DEBTS_A_BEAT && (h = take_hold(s)); i++) {
        if (!quota_take_debt(s->o.quota, now_s, &debt)) {
            free_hold(h);
            return;
        }
        char text[QUOTA_UNITS * 48];
        size_t n = 0;
        h->kind = HOLD_DEBT;
        put_level(h, &debt.level);
        for (int u = 0; u < QUOTA_UNITS; u++)
            if (debt.amount[u])
                n += (size_t)snprintf(text + n, sizeof text - n, "%d:%llu:%llu,", u, (unsigned long long)debt.window[u],
                                      (unsigned long long)debt.amount[u]);
        redis_arg(&h->specs, (struct str){text, n});
        close_hold(h);
    }
}

/* ---- the connection ---- */

/* The share of a limit that is this server's. */
static uint64_t share(uint64_t limit, uint32_t servers)
{
    return limit / servers + (limit % servers != 0);
}

static void divide(struct quota_shared *s, uint32_t servers)
{
    servers = s->o.replicas ? s->o.replicas : MAX_OF(servers, 1u);
    if (servers == s->servers)
        return;
    s->servers = servers;
    for (size_t i = 0; i < s->o.n; i++)
        for (int u = 0; s->o.local[i].shared && u < QUOTA_UNITS; u++) {
            s->o.local[i].limit[u] = share(s->o.policies[i].limit[u], servers);
            s->o.local[i].burst[u] = share(s->o.policies[i].burst[u], servers);
        }
    quota_limits_changed(s->o.quota);
}

static bool send_control(struct quota_shared *s, const char *op,
                         void (*done)(struct redis_call *c, int status, const struct redisReply *reply))
{
    begin_args(s, &s->control_args, 0, NULL, op);
    redis_arg_u64(&s->control_args, s->o.lease_ns / NS_PER_US);
    s->control =
        (struct redis_call){.script = &s->script, .args = buf_str(&s->control_args), .n_args = 1 + 2 + 3 + 1, .done = done};
    s->control_busy = !s->control_args.failed && redis_send(s->o.redis, &s->control);
    return s->control_busy;
}

static void on_beat(struct redis_call *c, int status, const struct redisReply *reply)
{
    struct quota_shared *s = CONTAINER_OF(c, struct quota_shared, control);
    int64_t code = -1, servers = 0;
    s->control_busy = false;
    if (status != 0)
        return; /* the breaker knows */
    if (!redis_reply_i64(reply, 0, &code) || code < 0 || !redis_reply_i64(reply, 2, &servers)) {
        redis_reset(s->o.redis, "it has lost what it knew of this server");
        return;
    }
    os_mutex_lock(s->o.lock);
    divide(s, (uint32_t)MIN_OF(servers, (int64_t)UINT16_MAX));
    os_mutex_unlock(s->o.lock);
}

static void beat(struct loop_timer *t)
{
    struct quota_shared *s = CONTAINER_OF(t, struct quota_shared, beat);
    struct loop *l = redis_loop(s->o.redis);
    if (!s->control_busy)
        (void)!send_control(s, "beat", on_beat);
    os_mutex_lock(s->o.lock);
    if (s->ready)
        pay_debts(s);
    os_mutex_unlock(s->o.lock);
    loop_timer_start(l, t, loop_now_ns(l) + s->o.lease_ns / BEAT_PARTS);
}

/* The Redis knows nothing of us any more: reservations are not there, and all that was settled is in the local copy. */
static void begin_anew(struct quota_shared *s)
{
    struct list *l;
    while ((l = list_first(&s->outbox))) {
        s->n_unconfirmed--;
        free_hold(LIST_ENTRY(l, struct hold, link));
    }
    for (uint32_t i = 0; i < s->n_used; i++)
        s->holds[i].confirmed = false;
    metric_set(s->m_unconfirmed, (double)s->n_unconfirmed);
    quota_owe_all(s->o.quota, os_wall_ns() / NS_PER_S);
}

static void on_hello(struct redis_call *c, int status, const struct redisReply *reply)
{
    struct quota_shared *s = CONTAINER_OF(c, struct quota_shared, control);
    int64_t code = -1, known = 0, servers = 0;
    s->control_busy = false;
    if (status != 0 || !redis_reply_i64(reply, 0, &code) || code < 0 || !redis_reply_i64(reply, 1, &known) ||
        !redis_reply_i64(reply, 2, &servers)) {
        redis_reset(s->o.redis, status == STATUS_DEADLINE || status == STATUS_UNAVAILABLE
                                    ? "it does not answer within redis.deadline"
                                    : "it does not run the script of shared quotas");
        return;
    }
    os_mutex_lock(s->o.lock);
    bool lost = s->greeted_before && !known;
    if (lost)
        begin_anew(s);
    s->greeted_before = true;
    s->ready = true;
    s->since_ns = os_monotonic_ns();
    divide(s, (uint32_t)MIN_OF(servers, (int64_t)UINT16_MAX));
    LIST_EACH(l, &s->outbox)
    send_set(LIST_ENTRY(l, struct hold, link));
    pay_debts(s);
    uint32_t n = s->servers;
    os_mutex_unlock(s->o.lock);
    metric_set(s->m_shared, 1);
    LOG(s->o.log, lost ? LOG_WARN : LOG_INFO, "quotas_shared", LOG_U("servers", n), LOG_B("counts_were_lost", lost));
    struct loop *loop = redis_loop(s->o.redis);
    loop_timer_start(loop, &s->beat, loop_now_ns(loop) + s->o.lease_ns / BEAT_PARTS);
}

static void on_up(struct redis_user *u)
{
    struct quota_shared *s = CONTAINER_OF(u, struct quota_shared, user);
    s->epoch++; /* written here and under the lock by nobody else; read by calls, which begin once `ready` is set under the lock */
    if (!send_control(s, "hello", on_hello))
        redis_reset(s->o.redis, "out of memory");
}

static void on_down(struct redis_user *u)
{
    struct quota_shared *s = CONTAINER_OF(u, struct quota_shared, user);
    loop_timer_stop(redis_loop(s->o.redis), &s->beat);
    os_mutex_lock(s->o.lock);
    bool was = s->ready;
    s->ready = false;
    s->since_ns = os_monotonic_ns();
    uint32_t n = s->servers;
    os_mutex_unlock(s->o.lock);
    metric_set(s->m_shared, 0);
    if (was && !s->quiet)
        LOG(s->o.log, LOG_WARN, "quotas_local", LOG_U("servers", n),
            LOG_S("effect", "each server admits its share of every shared limit until the Redis is back"));
}

/* ---- life ---- */

static bool is_prefix(const char *p)
{
    size_t n = strlen(p);
    return n > 0 && n <= QUOTA_PREFIX_MAX &&
           strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

static bool make_specs(struct quota_shared *s)
{
    s->spec = calloc(s->o.n + 1, sizeof *s->spec);
    s->has_rows = calloc(s->o.n + 1, sizeof *s->has_rows);
    s->has_tokens = calloc(s->o.n + 1, sizeof *s->has_tokens);
    for (size_t i = 0; s->spec && s->has_rows && s->has_tokens && i < s->o.n; i++) {
        const struct quota_policy *p = &s->o.policies[i];
        struct buf b;
        buf_init(&b);
        for (int u = 0; u < QUOTA_UNITS; u++) {
            if (!p->limit[u])
                continue;
            buf_printf(&b, "%d:%llu:%llu,", u, (unsigned long long)p->limit[u],
                       (unsigned long long)(p->burst[u] ? p->burst[u] : p->limit[u]));
            s->has_rows[i] |= quota_unit_counts_rows((enum quota_unit)u);
            s->has_tokens[i] |= quota_unit_counts_tokens((enum quota_unit)u);
        }
        s->spec[i] = b.failed ? NULL : str_dup(buf_str(&b));
        buf_release(&b);
        if (!s->spec[i])
            return false;
    }
    return s->spec && s->has_rows && s->has_tokens;
}

static void name_owner(struct quota_shared *s)
{
    char key[QUOTA_PREFIX_MAX + 64];
    snprintf(s->owner, sizeof s->owner, "%016llx%016llx", (unsigned long long)os_random_u64(),
             (unsigned long long)os_random_u64());
    snprintf(key, sizeof key, "{%s}:q:o:%s", s->o.prefix, s->owner);
    redis_arg(&s->owner_keys, str_of(key));
    snprintf(key, sizeof key, "{%s}:q:owners", s->o.prefix);
    redis_arg(&s->owner_keys, str_of(key));
}

static void make_metrics(struct quota_shared *s, struct metrics *m)
{
    static const char *const by[] = {"by", NULL}, *const none[] = {NULL};
    if (!m)
        return;
    struct metric_family *f =
        metrics_family(m, METRIC_COUNTER, "inferd_quota_decisions_total",
                       "Decisions about shared quotas, by who made them: the Redis, or this server by its share.", by, NULL, 0);
    if (f) {
        s->m_there = metrics_series(f, (const char *const[]){"redis"});
        s->m_here = metrics_series(f, (const char *const[]){"local"});
    }
    f = metrics_family(m, METRIC_GAUGE, "inferd_quota_shared", "Whether shared quotas are judged by the Redis.", NULL, NULL, 0);
    s->m_shared = f ? metrics_series(f, none) : NULL;
    f = metrics_family(m, METRIC_GAUGE, "inferd_quota_unconfirmed", "Settlements that the Redis has not confirmed yet.", NULL,
                       NULL, 0);
    s->m_unconfirmed = f ? metrics_series(f, none) : NULL;
    f = metrics_family(m, METRIC_COUNTER, "inferd_quota_dropped_total",
                       "Settlements that the Redis refused; what they held goes back with the lease.", NULL, NULL, 0);
    s->m_dropped = f ? metrics_series(f, none) : NULL;
}

int quota_shared_create(const struct quota_shared_options *o, struct quota_shared **out, struct error *err)
{
    if (!is_prefix(o->prefix))
        return error_set(err, STATUS_INVALID, "redis.prefix \"%s\" is not accepted; give 1 to 64 of A-Z a-z 0-9 . _ -",
                         o->prefix);
    struct quota_shared *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(err, STATUS_NOMEM, "out of memory for the quotas");
    s->o = *o;
    s->o.lease_ns = o->lease_ns ? o->lease_ns : LEASE_NS;
    s->n_holds = o->reservations ? o->reservations : HOLDS;
    s->holds = calloc(s->n_holds, sizeof *s->holds);
    s->free = NONE;
    list_init(&s->outbox);
    loop_timer_init(&s->beat, beat);
    name_owner(s);
    if (!s->holds || s->owner_keys.failed || !make_specs(s)) {
        quota_shared_destroy(s);
        return error_set(err, STATUS_NOMEM, "out of memory for the quotas");
    }
    make_metrics(s, o->metrics);
    divide(s, 1);
    s->script.text = QUOTA_SCRIPT;
    s->user = (struct redis_user){.script = &s->script, .up = on_up, .down = on_down};
    redis_attach(o->redis, &s->user);
    *out = s;
    return 0;
}

void quota_shared_destroy(struct quota_shared *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->n_used; i++) {
        buf_release(&s->holds[i].keys);
        buf_release(&s->holds[i].specs);
        buf_release(&s->holds[i].args);
    }
    for (size_t i = 0; s->spec && i < s->o.n; i++)
        free(s->spec[i]);
    free(s->spec);
    free(s->has_rows);
    free(s->has_tokens);
    free(s->holds);
    buf_release(&s->owner_keys);
    buf_release(&s->control_args);
    free(s);
}

void quota_shared_quiet(struct quota_shared *s, uint64_t until_ns)
{
    bool asking, unconfirmed;
    os_mutex_lock(s->o.lock);
    s->quiet = true;
    do {
        asking = s->n_asking > 0;
        unconfirmed = s->ready && s->n_unconfirmed > 0;
        os_mutex_unlock(s->o.lock);
        if (asking || unconfirmed)
            os_sleep_ns(POLL_NS);
        os_mutex_lock(s->o.lock);
    } while (asking || (unconfirmed && os_monotonic_ns() < until_ns)); /* questions end by their deadline */
    os_mutex_unlock(s->o.lock);
}

void quota_shared_wait(struct quota_shared *s, uint64_t until_ns)
{
    bool ready;
    do {
        os_mutex_lock(s->o.lock);
        ready = s->ready;
        os_mutex_unlock(s->o.lock);
        if (!ready)
            os_sleep_ns(POLL_NS);
    } while (!ready && os_monotonic_ns() < until_ns);
}

void quota_shared_describe(struct quota_shared *s, struct buf *out)
{
    os_mutex_lock(s->o.lock);
    buf_printf(out, "\"judged_by\":\"%s\",\"since_s\":%llu,\"servers\":%u,\"unconfirmed\":%llu,\"owner\":\"%s\"",
               s->ready ? "redis" : "local",
               (unsigned long long)(s->since_ns ? (os_monotonic_ns() - s->since_ns) / NS_PER_S : 0), s->servers,
               (unsigned long long)s->n_unconfirmed, s->owner);
    os_mutex_unlock(s->o.lock);
}
