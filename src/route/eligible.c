/* eligible.c: who may be picked. The steps are those of pool.h; a list is narrowed in place, and a step that would leave nobody is
 * skipped, except where it says otherwise. */
#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "route/pool_priv.h"

static bool was_tried(const struct pick_request *r, const struct upstream *u)
{
    for (size_t i = 0; i < r->n_tried; i++)
        if (r->tried[i] == u)
            return true;
    return false;
}

/* Step 1. */
static int in_service(struct pool *p, const struct pick_request *r, size_t *n, struct error *err)
{
    size_t served = 0;
    *n = 0;
    for (size_t i = 0; i < p->n; i++) {
        struct upstream *u = p->all[i];
        if (!upstream__in_service(u))
            continue;
        served++;
        if (!was_tried(r, u))
            p->few[(*n)++] = u;
    }
    if (*n)
        return 0;
    if (served)
        return error_set(err, STATUS_UNAVAILABLE, "every upstream of pool \"%s\" that is in service was tried already",
                         p->name);
    return error_set(err, STATUS_UNAVAILABLE, "no upstream of pool \"%s\" is in service", p->name);
}

enum narrowing { NOT_EJECTED, NOT_SUSPECT, HAS_ROOM };

static bool passes(const struct upstream *u, enum narrowing what, uint64_t now_ns)
{
    switch (what) {
    case NOT_EJECTED:
        return !upstream__ejected(u, now_ns);
    case NOT_SUSPECT:
        return !u->suspect;
    case HAS_ROOM:
        return (!u->o.max_conns || u->in_flight < u->o.max_conns) &&
               (!u->report.max_conns || u->in_flight < u->report.max_conns) &&
               !(u->pool->o.max_queued && upstream__fresh(u, now_ns) && u->report.queued >= u->pool->o.max_queued);
    }
    return true;
}

/* Keep those that pass; when none does, all stay and false is returned. */
static bool narrow(struct pool *p, size_t *n, enum narrowing what, uint64_t now_ns)
{
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++)
        kept += passes(p->few[i], what, now_ns);
    if (!kept)
        return false;
    size_t to = 0;
    for (size_t i = 0; i < *n; i++)
        if (passes(p->few[i], what, now_ns))
            p->few[to++] = p->few[i];
    *n = kept;
    return true;
}

/* Step 4: the share of each level, after Envoy: a level can take `overprovision` times its usable share of weight, the first ones first;
 * what nobody can take is spread over all in proportion. Levels are chosen by a draw from those shares among the levels of the
 * candidates. */
static void level_shares(const struct pool *p, uint64_t now_ns, double share[POOL_LEVELS_MAX])
{
    double all[POOL_LEVELS_MAX] = {0}, usable[POOL_LEVELS_MAX] = {0}, left = 1, sum = 0;
    for (size_t i = 0; i < p->n; i++) {
        const struct upstream *u = p->all[i];
        if (u->gone)
            continue;
        all[u->o.level] += u->o.weight;
        usable[u->o.level] += upstream__usable(u, now_ns) ? u->o.weight : 0;
    }
    for (size_t l = 0; l < POOL_LEVELS_MAX; l++) {
        double can = all[l] > 0 ? MIN_OF(1.0, p->o.overprovision * usable[l] / all[l]) : 0;
        share[l] = MIN_OF(can, left);
        left -= share[l];
        sum += share[l];
    }
    for (size_t l = 0; sum > 0 && l < POOL_LEVELS_MAX; l++)
        share[l] /= sum;
}

static void keep_level(struct pool *p, size_t *n, uint32_t level)
{
    size_t to = 0;
    for (size_t i = 0; i < *n; i++)
        if (p->few[i]->o.level == level)
            p->few[to++] = p->few[i];
    *n = to;
}

static void choose_level(struct pool *p, size_t *n, uint64_t now_ns)
{
    bool there[POOL_LEVELS_MAX] = {false};
    double share[POOL_LEVELS_MAX], sum = 0;
    uint32_t first = POOL_LEVELS_MAX, levels = 0;
    for (size_t i = 0; i < *n; i++) {
        levels += !there[p->few[i]->o.level];
        there[p->few[i]->o.level] = true;
        first = MIN_OF(first, p->few[i]->o.level);
    }
    if (levels < 2)
        return;
    level_shares(p, now_ns, share);
    for (size_t l = 0; l < POOL_LEVELS_MAX; l++)
        sum += there[l] ? share[l] : 0;
    double at = rand_f64(&p->rand) * sum;
    uint32_t level = first;
    for (uint32_t l = 0; sum > 0 && l < POOL_LEVELS_MAX; l++) {
        if (!there[l] || share[l] <= 0)
            continue;
        level = l;
        at -= share[l];
        if (at < 0)
            break;
    }
    keep_level(p, n, level);
}

/* Step 5. Capacity of each zone among the candidates; false: zones are not to be looked at. */
static bool zone_capacity(const struct pool *p, size_t n, uint32_t local, uint64_t now_ns, double cap[POOL_ZONES_MAX],
                          size_t *zones)
{
    uint32_t count[POOL_ZONES_MAX] = {0};
    double sum = 0;
    *zones = 0;
    for (size_t z = 0; z < POOL_ZONES_MAX; z++)
        cap[z] = 0;
    for (size_t i = 0; i < n; i++) {
        const struct upstream *u = p->few[i];
        if (!u->o.zone)
            return false;
        count[u->o.zone]++;
        cap[u->o.zone] += pool__weight(p, u, now_ns);
        sum += pool__weight(p, u, now_ns);
    }
    for (size_t z = 0; z < POOL_ZONES_MAX; z++) {
        if (count[z] && count[z] < p->o.zone_min_healthy)
            return false;
        *zones += count[z] > 0;
        cap[z] /= sum;
    }
    return *zones > 1 && count[local] > 0;
}

/* The gateways are taken to be spread evenly over the zones. A zone with more than its even share of the capacity takes what its own
 * gateways get; one with less keeps what it can, and the rest goes where capacity is to spare. */
static void choose_zone(struct pool *p, size_t *n, uint32_t local, uint64_t now_ns)
{
    double cap[POOL_ZONES_MAX], spare = 0;
    size_t zones;
    if (!local || !zone_capacity(p, *n, local, now_ns, cap, &zones))
        return;
    double even = 1.0 / (double)zones;
    uint32_t zone = local;
    if (cap[zone] < even && rand_f64(&p->rand) >= cap[zone] / even) {
        for (size_t z = 0; z < POOL_ZONES_MAX; z++)
            spare += MAX_OF(cap[z] - even, 0.0);
        double at = rand_f64(&p->rand) * spare;
        for (uint32_t z = 0; z < POOL_ZONES_MAX; z++) {
            if (cap[z] <= even)
                continue;
            zone = z;
            at -= cap[z] - even;
            if (at < 0)
                break;
        }
    }
    size_t to = 0;
    for (size_t i = 0; i < *n; i++)
        if (p->few[i]->o.zone == zone)
            p->few[to++] = p->few[i];
    *n = to;
}

static uint64_t in_flight(const struct pool *p)
{
    uint64_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        n += p->all[i]->in_flight;
    return n;
}

/* Step 6 looks at room before levels and zones are chosen, so that a full local zone spills. Only when none at all has room is it a
 * refusal. */
int pool__eligible(struct pool *p, const struct pick_request *r, uint64_t now_ns, size_t *n, bool *last_resort,
                   struct error *err)
{
    int rc = in_service(p, r, n, err);
    if (rc)
        return rc;
    if (p->o.max_requests && in_flight(p) >= p->o.max_requests)
        return error_set(err, STATUS_EXHAUSTED, "pool \"%s\" has its max_requests in flight", p->name);
    *last_resort = !narrow(p, n, NOT_EJECTED, now_ns);
    size_t healthy = *n;
    narrow(p, n, NOT_SUSPECT, now_ns);
    if (!narrow(p, n, HAS_ROOM, now_ns))
        return error_set(err, STATUS_EXHAUSTED, "all %zu upstreams of pool \"%s\" that can be used are full", healthy, p->name);
    choose_level(p, n, now_ns);
    choose_zone(p, n, r->zone ? r->zone : p->o.local_zone, now_ns);
    ASSERT(*n > 0);
    return 0;
}
