/* scan.c: one look at the repository, and which loads follow from it.
 *
 * The first look queues the first pass. In poll mode later looks compare fingerprints. A change counts only when it has been still
 * for poll_settle: a copy in progress changes sizes and times at each look and starts the wait anew. At the first look, where there is
 * nothing to compare with, files that changed within the last poll_settle by their own times wait too. What failed is tried again when
 * its files change, not before; a model that disappeared is unloaded when it has stayed away for poll_settle. One model's trouble
 * is its own: a scan that cannot list a root changes nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/size.h"
#include "base/status.h"
#include "model/registry_priv.h"
#include "os/clock.h"

static bool named(const struct registry *r, struct str name)
{
    if (r->o.mode != REGISTRY_EXPLICIT)
        return true;
    for (size_t i = 0; i < r->o.n_load; i++)
        if (str_eqz(name, r->o.load[i]) || strcmp(r->o.load[i], "*") == 0)
            return true;
    return false;
}

/* Queue a load or an unload; the entry is free. Lock held; pushing takes a leaf lock. */
static void start(struct registry *r, struct entry *e, bool load, bool first)
{
    e->busy = true;
    e->first_pass = first;
    r->first_pending += first;
    e->tried = e->seen;
    e->work.run = load ? registry__load_run : registry__unload_run;
    if (!load) {
        e->selected = e->required = e->on_disk = false;
        e->tried = 0;
    }
    registry__work_push(r, &e->work);
}

/* Has the model been still for long enough? Lock held. */
static bool settled(struct registry *r, struct entry *e, uint64_t newest_ns, bool first, uint64_t now)
{
    if (r->o.mode != REGISTRY_POLL || !r->o.poll_settle_ns)
        return true;
    if (first) {
        uint64_t wall = os_wall_ns();
        e->seen_since_ns = wall > newest_ns && wall - newest_ns >= r->o.poll_settle_ns ? 0 : now;
    }
    bool still = !e->seen_since_ns || now - e->seen_since_ns >= r->o.poll_settle_ns;
    r->unsettled |= !still;
    return still;
}

static void enter_model(struct registry *r, const struct repo_model *m, bool first, uint64_t now)
{
    struct entry *e = registry__entry(r, m->name, true);
    if (!e)
        return;
    uint64_t newest_ns, fingerprint = repo_fingerprint(m, &newest_ns);
    if (e->gone || fingerprint != e->seen) {
        e->seen = fingerprint;
        e->seen_since_ns = now;
    }
    e->gone = false;
    e->on_disk = true;
    if (first || r->o.mode == REGISTRY_POLL)
        e->selected = named(r, m->name);
    if (first && e->selected)
        e->required = r->o.strict_readiness;
    if (!e->selected || e->busy)
        return;
    if (!settled(r, e, newest_ns, first, now)) {
        if (list_empty(&e->versions))
            snprintf(e->reason, sizeof e->reason, "%s", "waiting until its files have settled");
        return;
    }
    if (first || e->tried != e->seen)
        start(r, e, true, first);
}

/* Entries that the scan did not see. Lock held. */
static void leave_model(struct registry *r, struct entry *e, uint64_t now)
{
    if (!e->gone) {
        e->gone = true;
        e->seen_since_ns = now;
    }
    if (e->busy || r->o.mode != REGISTRY_POLL || !e->on_disk)
        return;
    if (now - e->seen_since_ns < r->o.poll_settle_ns) {
        r->unsettled = true;
        return;
    }
    start(r, e, false, false);
}

static bool in_scan(const struct repo_model *models, size_t n, const char *name)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = strncmp(name, models[mid].name.p, models[mid].name.n);
        c = c ? c : name[models[mid].name.n] != 0;
        if (c == 0)
            return true;
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return false;
}

/* Models named in `load` that the repository doesn't have. Lock held. */
static void enter_missing(struct registry *r, const struct repo_model *models, size_t n)
{
    for (size_t i = 0; r->o.mode == REGISTRY_EXPLICIT && i < r->o.n_load; i++) {
        if (strcmp(r->o.load[i], "*") == 0 || in_scan(models, n, r->o.load[i]))
            continue;
        struct entry *e = registry__entry(r, str_of(r->o.load[i]), true);
        if (!e)
            continue;
        e->on_disk = true; /* shown in the index, with its reason */
        e->required = r->o.strict_readiness;
        snprintf(e->reason, sizeof e->reason, "%s", "there is no such model in the repository");
        LOG(r->o.log, LOG_ERROR, "model_missing", LOG_S("model", e->name));
    }
}

void registry__scan_run(struct work *w)
{
    struct registry *r = CONTAINER_OF(w, struct registry, scan);
    struct arena a;
    struct error err = {0};
    struct repo_model *models = NULL;
    size_t n = 0;
    arena_init(&a, 65536, 0);
    int rc = repo_scan(&r->repo, &a, &models, &n, &err);
    if (rc)
        LOG(r->o.log, LOG_ERROR, "repository_not_scanned", LOG_S("reason", err.text));
    uint64_t now = os_monotonic_ns();
    os_mutex_lock(&r->lock);
    bool first = !r->next_scan_ns;
    r->unsettled = false;
    for (size_t i = 0; i < n && !rc && !r->stopping; i++)
        enter_model(r, &models[i], first, now);
    LIST_EACH(it, &r->entries)
    {
        struct entry *e = LIST_ENTRY(it, struct entry, link);
        if (!rc && !first && !r->stopping && !in_scan(models, n, e->name))
            leave_model(r, e, now);
    }
    if (first && !rc)
        enter_missing(r, models, n);
    uint64_t wait = r->o.poll_interval_ns;
    if (r->unsettled)
        wait = MIN_OF(wait, r->o.poll_settle_ns / 2);
    r->next_scan_ns = now + wait + 1;
    r->scan_queued = false;
    os_cond_broadcast(&r->changed);
    os_mutex_unlock(&r->lock);
    arena_release(&a);
    registry__publish(r);
    if (first)
        registry__first_pass_step(r);
}
