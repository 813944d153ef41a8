/* outlier.c: passive health. Envoy's outlier detection with what its users stumble over changed (gateways-ops 1.2, issues 14 and 15):
 *
 * - the row of failures is counted as requests end, so it doesn't depend on when a sweep comes by;
 * - gateway failures eject by default;
 * - an ejection never leaves fewer than min_healthy usable upstreams; one that would is refused and reported;
 * - ejections are jittered, so that upstreams that failed together don't come back together;
 * - a passing check does not end an ejection (a model may answer health and fail inference): time does.
 * The multiplier falls by one for each base time that an upstream has served without another ejection. */
#include <math.h>
#include <stdio.h>

#include "base/check.h"
#include "base/size.h"
#include "route/pool_priv.h"

#define NS_PER_S 1000000000ull

void outlier__defaults(struct outlier_options *o)
{
    o->consecutive = o->consecutive ? o->consecutive : 5;
    o->base_ns = o->base_ns ? o->base_ns : 30 * NS_PER_S;
    o->max_ns = o->max_ns ? o->max_ns : 300 * NS_PER_S;
    o->jitter = o->jitter > 0 ? o->jitter : 0.1;
    o->sweep_ns = o->sweep_ns ? o->sweep_ns : 10 * NS_PER_S;
    o->rate_hosts = o->rate_hosts ? o->rate_hosts : 5;
    o->rate_requests = o->rate_requests ? o->rate_requests : 100;
    o->rate_sigma = o->rate_sigma > 0 ? o->rate_sigma : 1.9;
    o->failure_share = o->failure_share > 0 ? o->failure_share : 0.85;
    o->failure_requests = o->failure_requests ? o->failure_requests : 50;
    o->slow_factor = o->slow_factor > 0 ? o->slow_factor : 5;
    o->slow_hosts = o->slow_hosts ? o->slow_hosts : 3;
    o->slow_requests = o->slow_requests ? o->slow_requests : 50;
}

static size_t usable(const struct pool *p, uint64_t now_ns)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        n += upstream__usable(p->all[i], now_ns);
    return n;
}

/* How often it was ejected lately: once less for each base time since it came back. */
static uint32_t remembered(const struct pool *p, const struct upstream *u, uint64_t now_ns)
{
    uint64_t served = u->readmitted_ns && now_ns > u->readmitted_ns ? (now_ns - u->readmitted_ns) / p->o.outlier.base_ns : 0;
    return served >= u->times_ejected ? 0 : u->times_ejected - (uint32_t)served;
}

static void eject(struct pool *p, struct upstream *u, uint64_t fixed_ns, uint64_t now_ns, const char *reason)
{
    const struct outlier_options *o = &p->o.outlier;
    u->failures = 0;
    if (upstream__ejected(u, now_ns))
        return;
    if (upstream__usable(u, now_ns) && usable(p, now_ns) <= p->o.min_healthy) {
        pool__event(p, u, POOL_EJECTION_REFUSED, "it would leave fewer usable upstreams than min_healthy");
        return;
    }
    u->times_ejected = remembered(p, u, now_ns) + 1;
    double ns = fixed_ns ? (double)fixed_ns : MIN_OF((double)o->base_ns * u->times_ejected, (double)o->max_ns);
    if (!fixed_ns)
        ns *= 1 + o->jitter * rand_f64(&p->rand);
    u->ejected_until_ns = now_ns + (uint64_t)ns;
    pool__event(p, u, POOL_EJECTED, reason);
}

/* nginx's rule where an upstream has one of its own, else so many in a row. */
static void count_failure(struct pool *p, struct upstream *u, uint64_t now_ns)
{
    char reason[96];
    if (u->o.max_fails) {
        if (!u->failures || now_ns - u->first_failure_ns > u->o.fail_timeout_ns) {
            u->failures = 0;
            u->first_failure_ns = now_ns;
        }
        if (++u->failures < u->o.max_fails)
            return;
        snprintf(reason, sizeof reason, "%u failures within fail_timeout", u->failures);
        eject(p, u, u->o.fail_timeout_ns, now_ns, reason);
        return;
    }
    if (++u->failures < p->o.outlier.consecutive)
        return;
    snprintf(reason, sizeof reason, "%u gateway failures in a row", u->failures);
    eject(p, u, 0, now_ns, reason);
}

void outlier__learn(struct pool *p, struct upstream *u, enum pick_outcome outcome, uint64_t latency_ns, uint64_t now_ns)
{
    switch (outcome) {
    case PICK_CANCELLED:
        return;
    case PICK_OK:
        u->sweep_ok++;
        u->sweep_latency_ns += (double)latency_ns;
        if (!u->o.max_fails)
            u->failures = 0;
        if (u->suspect) {
            u->suspect = false;
            pool__event(p, u, POOL_CLEARED, "a request was answered");
        }
        return;
    case PICK_SERVER_ERROR: /* an answer: it ends a row, and counts as failed in the rates */
        u->sweep_bad++;
        if (!u->o.max_fails)
            u->failures = 0;
        return;
    case PICK_TIMEOUT:
        if (!u->suspect) {
            u->suspect = true;
            pool__event(p, u, POOL_SUSPECT, "a request got no answer in the time for one try");
        }
        break;
    case PICK_GATEWAY_FAILURE:
        break;
    }
    u->sweep_bad++;
    count_failure(p, u, now_ns);
}

/* ---- the sweep ---- */

static double success(const struct upstream *u)
{
    return (double)u->sweep_ok / ((double)u->sweep_ok + u->sweep_bad);
}

static uint32_t requests(const struct upstream *u)
{
    return u->sweep_ok + u->sweep_bad;
}

/* Success rates far below those of the others. */
static void sweep_rates(struct pool *p, uint64_t now_ns)
{
    const struct outlier_options *o = &p->o.outlier;
    double sum = 0, squares = 0, n = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (requests(p->all[i]) < o->rate_requests)
            continue;
        double s = success(p->all[i]);
        sum += s;
        squares += s * s;
        n++;
    }
    if (n < o->rate_hosts)
        return;
    double mean = sum / n, least = mean - o->rate_sigma * sqrt(MAX_OF(squares / n - mean * mean, 0.0));
    for (size_t i = 0; i < p->n; i++) {
        char reason[96];
        if (requests(p->all[i]) < o->rate_requests || success(p->all[i]) >= least)
            continue;
        snprintf(reason, sizeof reason, "success rate %.3f, the pool's mean is %.3f", success(p->all[i]), mean);
        eject(p, p->all[i], 0, now_ns, reason);
    }
}

static void sweep_failures(struct pool *p, uint64_t now_ns)
{
    const struct outlier_options *o = &p->o.outlier;
    for (size_t i = 0; i < p->n; i++) {
        struct upstream *u = p->all[i];
        char reason[96];
        if (requests(u) < o->failure_requests || 1 - success(u) < o->failure_share)
            continue;
        snprintf(reason, sizeof reason, "%u of %u requests failed", u->sweep_bad, requests(u));
        eject(p, u, 0, now_ns, reason);
    }
}

static double mean_latency(const struct upstream *u)
{
    return u->sweep_latency_ns / u->sweep_ok;
}

/* Median of the hosts' mean latencies: the one with as many below as above it. O(n^2), over the hosts that had enough requests, once a
 * sweep. 0: too few. */
static double median_latency(const struct pool *p)
{
    const struct outlier_options *o = &p->o.outlier;
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        n += p->all[i]->sweep_ok >= o->slow_requests;
    if (n < o->slow_hosts)
        return 0;
    for (size_t i = 0; i < p->n; i++) {
        size_t below = 0, same = 0;
        if (p->all[i]->sweep_ok < o->slow_requests)
            continue;
        for (size_t j = 0; j < p->n; j++) {
            if (p->all[j]->sweep_ok < o->slow_requests)
                continue;
            below += mean_latency(p->all[j]) < mean_latency(p->all[i]);
            same += mean_latency(p->all[j]) == mean_latency(p->all[i]);
        }
        if (below <= (n - 1) / 2 && (n - 1) / 2 < below + same)
            return mean_latency(p->all[i]);
    }
    return 0;
}

static void sweep_slow(struct pool *p, uint64_t now_ns)
{
    const struct outlier_options *o = &p->o.outlier;
    double median = median_latency(p);
    for (size_t i = 0; median > 0 && i < p->n; i++) {
        struct upstream *u = p->all[i];
        char reason[96];
        if (u->sweep_ok < o->slow_requests || mean_latency(u) < o->slow_factor * median)
            continue;
        snprintf(reason, sizeof reason, "answers take %.1f ms, the median upstream's %.1f ms", mean_latency(u) / 1e6,
                 median / 1e6);
        eject(p, u, 0, now_ns, reason);
    }
}

void outlier__tick(struct pool *p, uint64_t now_ns)
{
    for (size_t i = 0; i < p->n; i++) {
        struct upstream *u = p->all[i];
        if (!u->ejected_until_ns || u->ejected_until_ns > now_ns)
            continue;
        u->ejected_until_ns = 0;
        u->readmitted_ns = now_ns;
        u->failures = 0;
        pool__enter(p, u, now_ns);
        pool__event(p, u, POOL_READMITTED, "its ejection is over");
    }
    if (!p->swept_ns)
        p->swept_ns = now_ns;
    if (now_ns - p->swept_ns < p->o.outlier.sweep_ns)
        return;
    p->swept_ns = now_ns;
    sweep_rates(p, now_ns);
    sweep_failures(p, now_ns);
    sweep_slow(p, now_ns);
    for (size_t i = 0; i < p->n; i++) {
        p->all[i]->sweep_ok = p->all[i]->sweep_bad = 0;
        p->all[i]->sweep_latency_ns = 0;
    }
}
