/* quota_gate.c: see quota_gate.h. */
#include "edge/quota_gate.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/status.h"
#include "obs/metrics.h"
#include "os/random.h"
#include "os/thread.h"

struct quota_gate {
    struct os_mutex lock; /* guards quota */
    struct quota *quota;
    struct arena arena; /* of the policies */
    struct quota_policy *policies;
    size_t n;
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

int quota_gate_create(struct str text, const char *where, struct metrics *metrics, struct quota_gate **out, struct error *err)
{
    struct quota_gate *g = calloc(1, sizeof *g);
    if (!g)
        return error_set(err, STATUS_NOMEM, "out of memory for the quotas");
    os_mutex_init(&g->lock, RANK_LEAF);
    arena_init(&g->arena, 16 << 10, 16 << 20);
    int rc = quota_policies_parse(text, where, &g->arena, &g->policies, &g->n, err);
    if (rc == 0) {
        const struct quota_options o = {.policies = g->policies, .n_policies = g->n, .seed = os_random_u64()};
        g->quota = quota_create(&o);
        if (!g->quota)
            rc = error_set(err, STATUS_NOMEM, "out of memory for the quotas");
    }
    if (rc < 0) {
        quota_gate_destroy(g);
        return rc;
    }
    make_metrics(g, metrics);
    *out = g;
    return 0;
}

void quota_gate_destroy(struct quota_gate *g)
{
    if (!g)
        return;
    quota_destroy(g->quota);
    arena_release(&g->arena);
    os_mutex_release(&g->lock);
    free(g);
}

static int judged(struct quota_gate *g, int rc, const struct quota_verdict *v)
{
    if (rc < 0)
        metric_inc(g->refused[v->full ? QUOTA_UNITS : v->unit]);
    return rc;
}

int quota_gate_reserve(struct quota_gate *g, const struct quota_ask *ask, uint64_t *id, struct quota_verdict *v)
{
    os_mutex_lock(&g->lock);
    int rc = quota_reserve(g->quota, ask, id, v);
    os_mutex_unlock(&g->lock);
    return judged(g, rc, v);
}

int quota_gate_more(struct quota_gate *g, uint64_t id, uint64_t rows, uint64_t tokens, uint64_t now_ns, uint64_t now_s,
                    struct quota_verdict *v)
{
    os_mutex_lock(&g->lock);
    int rc = quota_more(g->quota, id, rows, tokens, now_ns, now_s, v);
    os_mutex_unlock(&g->lock);
    return judged(g, rc, v);
}

void quota_gate_note(struct quota_gate *g, uint64_t id, uint64_t tokens)
{
    os_mutex_lock(&g->lock);
    quota_note(g->quota, id, tokens);
    os_mutex_unlock(&g->lock);
}

void quota_gate_settle(struct quota_gate *g, uint64_t id, uint64_t tokens, uint64_t now_ns, uint64_t now_s)
{
    os_mutex_lock(&g->lock);
    quota_settle(g->quota, id, tokens, now_ns, now_s);
    os_mutex_unlock(&g->lock);
}

void quota_gate_refund(struct quota_gate *g, uint64_t id, uint64_t now_ns, uint64_t now_s)
{
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
