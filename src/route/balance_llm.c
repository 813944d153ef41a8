/* balance_llm.c: for replicas that generate text. What counts, in this order (llm-d's scorers, with its users' complaints in mind:
 * gateways-ops 1.3, issue 22):
 *   - tokens in flight from here, counted at the moment of the decision: exact for own traffic, so equal scores and stale reports can't
 *     send a burst to one replica;
 *   - the queue and the KV use that the replica reported, unless the report is old;
 *   - the share of the prompt that the replica has seen, and whether it has the adapter;
 * and affinity is bounded by load: a candidate with more than `bound` times the mean of tokens in flight is out, whatever it has seen.
 * Ties go round. O(n x blocks). */
#include "base/size.h"
#include "route/pool_priv.h"

#define SCORE_EPSILON 1e-9
#define BOUND_LEAST   2 /* requests of this size that a candidate may have in any case: few in flight are no burst */

struct span {
    double least, most;
};

static void widen(struct span *s, double x, bool first)
{
    s->least = first || x < s->least ? x : s->least;
    s->most = first || x > s->most ? x : s->most;
}

/* 1 for the least loaded, 0 for the most; all equal: 1. */
static double rank(const struct span *s, double x)
{
    return s->most > s->least ? (s->most - x) / (s->most - s->least) : 1;
}

static double own(const struct pool *p, const struct upstream *u, uint64_t now_ns)
{
    return (double)u->tokens / pool__weight(p, u, now_ns);
}

/* Candidates within the bound; the least loaded always is. */
static size_t within_bound(struct pool *p, struct upstream **c, size_t n, uint64_t tokens, uint64_t now_ns)
{
    double weight = 0, load = (double)tokens;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        weight += pool__weight(p, c[i], now_ns);
        load += (double)c[i]->tokens;
    }
    double bound = MAX_OF(p->o.llm.bound * load / weight, BOUND_LEAST * (double)tokens);
    struct upstream *least = c[0];
    for (size_t i = 0; i < n; i++) {
        if (own(p, c[i], now_ns) < own(p, least, now_ns))
            least = c[i];
        if (!c[i]->tokens || ((double)c[i]->tokens + (double)tokens) / pool__weight(p, c[i], now_ns) <= bound)
            p->tie[kept++] = c[i];
    }
    if (!kept)
        p->tie[kept++] = least;
    return kept;
}

struct spans {
    struct span own, queued;
};

static bool has_adapter(const struct upstream *u, uint64_t adapter)
{
    for (uint32_t i = 0; i < u->report.n_adapters; i++)
        if (u->report.adapters[i] == adapter)
            return true;
    return false;
}

static double score(const struct pool *p, const struct upstream *u, const struct spans *s, const struct pick_request *r,
                    uint64_t now_ns)
{
    const struct llm_options *o = &p->o.llm;
    double x = o->queue * rank(&s->own, own(p, u, now_ns));
    if (upstream__fresh(u, now_ns)) {
        x += o->queue * rank(&s->queued, u->report.queued) + o->kv * (1 - u->report.kv_use);
    } else {
        x += o->queue / 2 + o->kv / 2; /* nothing known: neither good nor bad */
    }
    if (r->n_prefix)
        x += o->prefix * (double)prefix_set_match(u->prefix, r->prefix, r->n_prefix) / (double)r->n_prefix;
    if (r->adapter && has_adapter(u, r->adapter))
        x += o->adapter;
    return x;
}

struct upstream *balance__llm(struct pool *p, struct upstream **c, size_t n, const struct pick_request *r, uint64_t now_ns)
{
    uint64_t tokens = MAX_OF(r->tokens, (uint64_t)1);
    struct spans s = {0};
    size_t kept = within_bound(p, c, n, tokens, now_ns), ties = 0;
    for (size_t i = 0; i < kept; i++) {
        widen(&s.own, own(p, p->tie[i], now_ns), i == 0);
        /* beside one of which nothing is known, a queue is long by itself, not for being the longest */
        widen(&s.queued, upstream__fresh(p->tie[i], now_ns) ? p->tie[i]->report.queued : 0, i == 0);
    }
    double best = -1;
    for (size_t i = 0; i < kept; i++) {
        struct upstream *u = p->tie[i];
        double x = score(p, u, &s, r, now_ns);
        if (x < best - SCORE_EPSILON)
            continue;
        if (x > best + SCORE_EPSILON)
            ties = 0;
        best = MAX_OF(best, x);
        p->tie[ties++] = u; /* ties <= i: what is overwritten has been looked at */
    }
    return balance__round_robin(p, p->tie, ties, r, now_ns);
}
