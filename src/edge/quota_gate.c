/* quota_gate.c: see quota_gate.h. */
#include "edge/quota_gate.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/status.h"
#include "cluster/redis.h"
#include "edge/quota_shared.h"
#include "obs/metrics.h"
#include "os/clock.h"
#include "os/random.h"
#include "os/thread.h"

struct quota_gate {
    struct os_mutex lock; /* guards quota */
    struct quota *quota;
    struct arena arena;            /* of the policies */
    struct quota_policy *policies; /* with this server's share of what is shared */
    struct quota_policy *written;  /* as in the file */
    size_t n;
    struct quota_shared *shared;             /* NULL: none is */
    struct metric *refused[QUOTA_UNITS + 1]; /* by unit; the last: no room to keep count */
};

static void make_metrics(struct quota_gate *g, struct metrics *m)
{
    static const char *const labels[] = {"limit", NULL};
    struct metric_family *f = m ? metrics_family(m, METRIC_COUNTER, "inferd_quota_refused_total",
                                                 "Requests refused by a quota, by the limit that was reached.", labels, NULL, 0)
                                : NULL;
    for (int u = 0; f && u <= QUOTA_UNITS; u++)
        g->refused[u] =
            metrics_series(f, (const char *const[]){u < QUOTA_UNITS ? quota_unit_name((enum quota_unit)u) : "capacity"});
}

/* Which policies are shared, and what that takes. */
static int start_sharing(struct quota_gate *g, const struct quota_gate_options *o, struct error *err)
{
    if (!quota_policies_share(g->policies, g->n, o->redis && o->share))
        return 0;
    for (size_t i = 0; !o->redis && i < g->n; i++)
        if (g->policies[i].shared)
            return error_set(err, STATUS_INVALID, "the policy \"%s\" is to be shared, but redis.url is not set",
                             g->policies[i].name);
    g->written = arena_array(&g->arena, g->n, sizeof *g->written);
    if (!g->written)
        return error_set(err, STATUS_NOMEM, "out of memory for the quotas");
    memcpy(g->written, g->policies, g->n * sizeof *g->written);
    const struct quota_shared_options shared = {.redis = o->redis,
                                                .quota = g->quota,
                                                .lock = &g->lock,
                                                .policies = g->written,
                                                .local = g->policies,
                                                .n = g->n,
                                                .prefix = o->prefix,
                                                .lease_ns = o->lease_ns,
                                                .replicas = o->replicas,
                                                .metrics = o->metrics,
                                                .log = o->log};
    return quota_shared_create(&shared, &g->shared, err);
}

int quota_gate_create(struct str text, const char *where, const struct quota_gate_options *o, struct quota_gate **out,
                      struct error *err)
{
    struct quota_gate *g = calloc(1, sizeof *g);
    if (!g)
        return error_set(err, STATUS_NOMEM, "out of memory for the quotas");
    os_mutex_init(&g->lock, RANK_LEAF);
    arena_init(&g->arena, 16 << 10, 16 << 20);
    int rc = quota_policies_parse(text, where, &g->arena, &g->policies, &g->n, err);
    if (rc == 0) {
        const struct quota_options q = {.policies = g->policies, .n_policies = g->n, .seed = os_random_u64()};
        g->quota = quota_create(&q);
        rc = g->quota ? start_sharing(g, o, err) : error_set(err, STATUS_NOMEM, "out of memory for the quotas");
    }
    if (rc < 0) {
        quota_gate_destroy(g);
        return rc;
    }
    make_metrics(g, o->metrics);
    *out = g;
    return 0;
}

void quota_gate_destroy(struct quota_gate *g)
{
    if (!g)
        return;
    quota_shared_destroy(g->shared);
    quota_destroy(g->quota);
    arena_release(&g->arena);
    os_mutex_release(&g->lock);
    free(g);
}

static int judged(struct quota_gate *g, int rc, const struct quota_verdict *v)
{
    if (rc == STATUS_EXHAUSTED)
        metric_inc(g->refused[v->full ? QUOTA_UNITS : v->unit]);
    return rc;
}

void quota_gate_count(struct quota_gate *g, const struct quota_wait *w)
{
    judged(g, w->rc, &w->v);
}

int quota_gate_ask(struct quota_gate *g, const struct quota_ask *ask, struct quota_wait *w)
{
    if (g->shared)
        return judged(g, quota_shared_reserve(g->shared, ask, w), &w->v);
    os_mutex_lock(&g->lock);
    w->rc = quota_reserve(g->quota, ask, &w->id, &w->v);
    os_mutex_unlock(&g->lock);
    return judged(g, w->rc, &w->v);
}

int quota_gate_ask_more(struct quota_gate *g, uint64_t id, uint64_t rows, uint64_t tokens, uint64_t now_ns, uint64_t now_s,
                        struct quota_wait *w)
{
    if (quota_shared_owns(id))
        return judged(g, quota_shared_more(g->shared, id, rows, tokens, now_ns, now_s, w), &w->v);
    os_mutex_lock(&g->lock);
    w->rc = quota_more(g->quota, id, rows, tokens, now_ns, now_s, &w->v);
    w->id = id;
    os_mutex_unlock(&g->lock);
    return judged(g, w->rc, &w->v);
}

#define QUIET_NS 500000000u

void quota_gate_quiet(struct quota_gate *g)
{
    if (g->shared)
        quota_shared_quiet(g->shared, os_monotonic_ns() + QUIET_NS);
}

void quota_gate_wait_shared(struct quota_gate *g, uint64_t until_ns)
{
    if (g->shared)
        quota_shared_wait(g->shared, until_ns);
}

bool quota_gate_describe(struct quota_gate *g, struct buf *out)
{
    if (g->shared)
        quota_shared_describe(g->shared, out);
    return g->shared;
}

void quota_gate_settle(struct quota_gate *g, uint64_t id, uint64_t tokens, uint64_t now_ns, uint64_t now_s)
{
    if (quota_shared_owns(id)) {
        quota_shared_end(g->shared, id, false, tokens, now_ns, now_s);
        return;
    }
    os_mutex_lock(&g->lock);
    quota_settle(g->quota, id, tokens, now_ns, now_s);
    os_mutex_unlock(&g->lock);
}

void quota_gate_refund(struct quota_gate *g, uint64_t id, uint64_t now_ns, uint64_t now_s)
{
    if (quota_shared_owns(id)) {
        quota_shared_end(g->shared, id, true, 0, now_ns, now_s);
        return;
    }
    os_mutex_lock(&g->lock);
    quota_refund(g->quota, id, now_ns, now_s);
    os_mutex_unlock(&g->lock);
}

bool quota_gate_tick(struct quota_gate *g, uint64_t now_ns, uint64_t now_s, struct buf *out)
{
    os_mutex_lock(&g->lock);
    quota_expire(g->quota, now_ns, now_s);
    bool dirty = quota_is_dirty(g->quota);
    if (dirty)
        quota_save(g->quota, now_s, out);
    os_mutex_unlock(&g->lock);
    return dirty;
}

void quota_gate_mark_dirty(struct quota_gate *g)
{
    os_mutex_lock(&g->lock);
    quota_mark_dirty(g->quota);
    os_mutex_unlock(&g->lock);
}

int quota_gate_load(struct quota_gate *g, struct str text, uint64_t now_s, struct error *err)
{
    os_mutex_lock(&g->lock);
    int rc = quota_load(g->quota, text, now_s, err);
    os_mutex_unlock(&g->lock);
    return rc;
}

void quota_gate_models(const struct quota_gate *g, void (*each)(void *ctx, const char *policy, struct str model), void *ctx)
{
    for (size_t i = 0; i < g->n; i++) {
        struct str rest = str_of(g->policies[i].model), part;
        while (str_cut(&rest, ',', &part))
            if (part.n && !memchr(part.p, '*', part.n) && !memchr(part.p, '?', part.n))
                each(ctx, g->policies[i].name, part);
    }
}

void quota_explain(const struct quota_verdict *v, struct error *err)
{
    const char *unit = quota_unit_name(v->unit);
    if (v->full)
        error_set(err, STATUS_EXHAUSTED,
                  "too many callers or requests are under way to keep count of another; try again later");
    else if (!v->wait_ns)
        error_set(err, STATUS_EXHAUSTED,
                  "this request alone takes %llu of %s, which allows at most %llu (policy \"%s\"); make it smaller",
                  (unsigned long long)v->cost, unit, (unsigned long long)v->limit, v->policy);
    else if (quota_unit_is_budget(v->unit))
        error_set(err, STATUS_EXHAUSTED, "the budget of %llu %s is used up: %llu are left and %llu are needed (policy \"%s\")",
                  (unsigned long long)v->limit, unit, (unsigned long long)v->remaining, (unsigned long long)v->cost, v->policy);
    else
        error_set(err, STATUS_EXHAUSTED,
                  "the rate limit of %llu %s is reached: %llu are left and %llu are needed (policy \"%s\")",
                  (unsigned long long)v->limit, unit, (unsigned long long)v->remaining, (unsigned long long)v->cost, v->policy);
}
