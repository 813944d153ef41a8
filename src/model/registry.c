/* registry.c: the registry's life, its snapshot, and what it tells.
 *
 * Ready means: the first pass over the repository is over, the server is not draining, and every *required* model has at least one
 * version that serves and is not hung. Required are the models selected at start (all of them in modes none and poll, those named in
 * `load` in explicit mode); without strict_readiness only those that have served once. A model that appears later is required from
 * the moment it first serves, so a broken copy never takes a serving replica out; one that is unloaded on purpose or removed from
 * the disk is no longer required; a (re)load in progress or a failed reload changes nothing, because the old version serves. */
#include "model/registry_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "model/version_name_priv.h"
#include "os/clock.h"

#define REGISTRY_EXIT_NS 2000000000ull /* what registry_destroy waits beyond the hang timeout */

static void insert_by_name(struct registry *r, struct entry *e)
{
    struct list *at = r->entries.prev; /* scans come in order: mostly the last one */
    while (at != &r->entries && strcmp(LIST_ENTRY(at, struct entry, link)->name, e->name) > 0)
        at = at->prev;
    list_insert_before(at->next, &e->link);
}

struct entry *registry__entry(struct registry *r, struct str name, bool make)
{
    struct entry *e = map_get(&r->by_name, name);
    if (e || !make)
        return e;
    e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->name = str_dup(name);
    if (!e->name || map_put(&r->by_name, str_of(e->name), e)) {
        free(e->name);
        free(e);
        return NULL;
    }
    e->r = r;
    list_init(&e->versions);
    list_init(&e->work.link);
    arena_init(&e->labels_arena, 512, 0);
    insert_by_name(r, e);
    return e;
}

struct entry_version *registry__entry_version(struct entry *e, struct str name, bool make)
{
    struct list *at = &e->versions;
    LIST_EACH(it, &e->versions)
    {
        struct entry_version *ev = LIST_ENTRY(it, struct entry_version, link);
        if (str_eqz(name, ev->name))
            return ev;
        if (version_name_compare(str_of(ev->name), name) > 0) {
            at = it;
            break;
        }
    }
    struct entry_version *ev = make ? calloc(1, sizeof *ev) : NULL;
    if (!ev || !(ev->name = str_dup(name))) {
        free(ev);
        return NULL;
    }
    list_insert_before(at, &ev->link);
    return ev;
}

void registry__state(struct entry_version *ev, enum version_state state, const char *reason)
{
    if (ev->state != state)
        ev->since_ns = os_monotonic_ns();
    ev->state = state;
    ev->no_memory = false;
    snprintf(ev->reason, sizeof ev->reason, "%s", reason ? reason : "");
}

static bool entry_serves(const struct entry *e)
{
    for (const struct list *it = e->versions.next; it != &e->versions; it = it->next) {
        const struct entry_version *ev = LIST_ENTRY(it, const struct entry_version, link);
        if (ev->v && !atomic_load_explicit(&ev->v->hung, memory_order_acquire))
            return true;
    }
    return false;
}

void registry__update_ready(struct registry *r)
{
    bool ready =
        atomic_load_explicit(&r->settled, memory_order_relaxed) && !atomic_load_explicit(&r->home.closed, memory_order_relaxed);
    LIST_EACH(it, &r->entries)
    {
        const struct entry *e = LIST_ENTRY(it, struct entry, link);
        if (e->required && !entry_serves(e))
            ready = false;
    }
    atomic_store_explicit(&r->ready, ready, memory_order_release);
}

static struct str copy(struct arena *a, const char *z)
{
    return str_of(arena_strdup(a, str_of(z)));
}

static bool picture_entry(struct snapshot *s, struct snap_model *m, const struct entry *e)
{
    size_t n = 0;
    for (const struct list *it = e->versions.next; it != &e->versions; it = it->next)
        n++;
    struct config_pair *labels = arena_array(&s->arena, e->n_labels + 1, sizeof *labels);
    m->name = copy(&s->arena, e->name);
    m->reason = copy(&s->arena, e->reason);
    m->versions = arena_array(&s->arena, n + 1, sizeof *m->versions);
    if (!labels || !m->versions || !m->name.p)
        return false;
    for (size_t i = 0; i < e->n_labels; i++)
        labels[i] = (struct config_pair){{arena_strdup(&s->arena, e->labels[i].key), e->labels[i].key.n},
                                         {arena_strdup(&s->arena, e->labels[i].value), e->labels[i].value.n}};
    m->labels = labels;
    m->n_labels = e->n_labels;
    for (const struct list *it = e->versions.next; it != &e->versions; it = it->next) {
        const struct entry_version *ev = LIST_ENTRY(it, const struct entry_version, link);
        m->versions[m->n_versions++] = (struct snap_version){.name = copy(&s->arena, ev->name),
                                                             .reason = copy(&s->arena, ev->reason),
                                                             .state = ev->state,
                                                             .no_memory = ev->no_memory,
                                                             .since_ns = ev->since_ns,
                                                             .v = ev->v ? model_version_ref(ev->v) : NULL};
    }
    return map_put(&s->by_name, m->name, m) == 0;
}

/* The entries as a snapshot; NULL when out of memory. Lock held. */
static struct snapshot *picture(struct registry *r)
{
    struct snapshot *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    atomic_init(&s->refs, 1);
    arena_init(&s->arena, 8192, 0);
    map_init(&s->by_name, os_monotonic_ns());
    size_t n = 0;
    LIST_EACH(it, &r->entries)
    n++;
    s->models = arena_array(&s->arena, n + 1, sizeof *s->models);
    bool ok = s->models != NULL;
    LIST_EACH(it, &r->entries)
    {
        const struct entry *e = LIST_ENTRY(it, struct entry, link);
        if (!ok || (!e->on_disk && list_empty((struct list *)&e->versions)))
            continue;
        ok = picture_entry(s, &s->models[s->n++], e);
    }
    if (!ok) {
        snapshot_unref(s);
        return NULL;
    }
    return s;
}

void registry__publish(struct registry *r)
{
    os_mutex_lock(&r->lock);
    uint64_t mine = ++r->wanted_gen;
    while (r->published_gen < mine) {
        if (r->publishing) {
            os_cond_wait(&r->changed, &r->lock);
            continue;
        }
        r->publishing = true;
        uint64_t gen = r->wanted_gen;
        struct snapshot *s = picture(r);
        os_mutex_unlock(&r->lock);
        if (s)
            snapshot_publish(&r->box, s);
        else
            LOG(r->o.log, LOG_ERROR, "models_not_published", LOG_S("reason", "out of memory"));
        os_mutex_lock(&r->lock);
        r->publishing = false;
        r->published_gen = gen;
        os_cond_broadcast(&r->changed);
    }
    registry__update_ready(r);
    os_mutex_unlock(&r->lock);
}

void registry__first_pass_step(struct registry *r)
{
    os_mutex_lock(&r->lock);
    bool over = r->first_pending > 0 && --r->first_pending == 0;
    if (over) {
        atomic_store_explicit(&r->settled, true, memory_order_release);
        registry__update_ready(r);
        os_cond_broadcast(&r->changed);
    }
    os_mutex_unlock(&r->lock);
    if (over)
        LOG(r->o.log, LOG_INFO, "first_pass_over", LOG_B("ready", registry_ready(r)));
}

bool registry_ready(const struct registry *r)
{
    return atomic_load_explicit(&r->ready, memory_order_acquire);
}
bool registry_settled(const struct registry *r)
{
    return atomic_load_explicit(&r->settled, memory_order_acquire);
}
enum registry_mode registry_mode(const struct registry *r)
{
    return r->o.mode;
}

bool registry_waits(struct registry *r)
{
    os_mutex_lock(&r->lock);
    bool waits = r->unsettled;
    LIST_EACH(it, &r->entries)
    {
        waits |= LIST_ENTRY(it, struct entry, link)->busy;
    }
    os_mutex_unlock(&r->lock);
    return waits;
}

int registry_find(struct registry *r, struct str model, struct str version, struct model_version **out, struct error *err)
{
    uint32_t token;
    struct snapshot *s = snapshot_enter(&r->box, &token);
    int rc = snapshot_find(s, model, version, out, err);
    snapshot_leave(&r->box, token);
    return rc;
}

static void index_model(const struct snap_model *m, bool ready_only, void (*row)(void *, const struct index_row *), void *ctx)
{
    if (!m->n_versions && !ready_only)
        row(ctx, &(struct index_row){.model = m->name, .state = VERSION_UNLOADED, .reason = m->reason});
    for (size_t i = 0; i < m->n_versions; i++) {
        const struct snap_version *v = &m->versions[i];
        bool hung = v->v && atomic_load_explicit(&v->v->hung, memory_order_acquire);
        struct index_row out = {m->name, v->name, v->state, v->since_ns, v->reason};
        if (hung)
            out.state = VERSION_FAILED, out.reason = STR("its instances have stopped answering");
        if (!ready_only || out.state == VERSION_READY)
            row(ctx, &out);
    }
}

void registry_index(struct registry *r, bool ready_only, void (*row)(void *ctx, const struct index_row *row), void *ctx)
{
    struct snapshot *s = snapshot_get(&r->box);
    for (size_t i = 0; i < s->n; i++)
        index_model(&s->models[i], ready_only, row, ctx);
    snapshot_unref(s);
}

int registry_versions(struct registry *r, struct str model, void (*each)(void *ctx, struct str version), void *ctx,
                      struct error *err)
{
    struct snapshot *s = snapshot_get(&r->box);
    const struct snap_model *m = map_get(&s->by_name, model);
    int rc = m ? 0 : error_set(err, STATUS_NOT_FOUND, "there is no model \"%.*s\"", STR_ARG(model));
    for (size_t i = 0; m && i < m->n_versions; i++)
        if (m->versions[i].v && m->versions[i].state == VERSION_READY)
            each(ctx, m->versions[i].name);
    snapshot_unref(s);
    return rc;
}

static void free_entries(struct registry *r)
{
    for (struct list *it = r->entries.next, *after = NULL; it != &r->entries; it = after) {
        struct entry *e = LIST_ENTRY(it, struct entry, link);
        after = it->next;
        for (struct list *k = e->versions.next, *next = NULL; k != &e->versions; k = next) {
            struct entry_version *ev = LIST_ENTRY(k, struct entry_version, link);
            next = k->next;
            free(ev->name);
            free(ev);
        }
        arena_release(&e->labels_arena);
        free(e->inline_config);
        free(e->name);
        free(e);
    }
}

/* What destroy releases: everything that init set up. */
static void release(struct registry *r)
{
    snapshot_unref(atomic_load(&r->box.current));
    map_release(&r->by_name);
    free_entries(r);
    version_home_release(&r->home);
    series_table_release(&r->home.series);
    repo_release(&r->repo);
    os_cond_release(&r->work_cond);
    os_mutex_release(&r->work_lock);
    os_cond_release(&r->changed);
    os_mutex_release(&r->lock);
    free(r);
}

static int init(struct registry *r, struct error *err)
{
    os_mutex_init(&r->lock, RANK_REGISTRY);
    os_cond_init(&r->changed);
    os_mutex_init(&r->work_lock, RANK_LEAF);
    os_cond_init(&r->work_cond);
    list_init(&r->entries);
    map_init(&r->by_name, os_monotonic_ns());
    list_init(&r->work);
    list_init(&r->scan.link);
    r->scan.run = registry__scan_run;
    r->first_pending = 1;
    r->home.log = r->o.log;
    r->home.hang_timeout_ns = r->o.hang_timeout_ns;
    r->home.default_deadline_ns = r->o.default_deadline_ns;
    r->home.queue_bytes_total = r->o.queue_bytes_total;
    r->home.retired = registry__retired;
    series_table_init(&r->home.series, r->o.metrics);
    struct snapshot *s = picture(r);
    atomic_store(&r->box.current, s);
    if (!s)
        return error_set(err, STATUS_NOMEM, "no memory for the registry of models");
    return version_home_init(&r->home, err);
}

int registry_create(const struct registry_options *o, struct registry **out, struct error *err)
{
    struct registry *r = calloc(1, sizeof *r);
    if (!r)
        return error_set(err, STATUS_NOMEM, "no memory for the registry of models");
    r->o = *o;
    int rc = repo_open(&r->repo, &r->o, err);
    if (rc) {
        free(r);
        return rc;
    }
    rc = init(r, err);
    if (!rc)
        rc = registry__loaders_start(r, err);
    if (rc) {
        /* Exception: a process that cannot start its first threads is about to exit; what init made is left to it */
        return rc;
    }
    os_mutex_lock(&r->lock);
    r->scan_queued = true;
    os_mutex_unlock(&r->lock);
    registry__work_push(r, &r->scan);
    *out = r;
    return 0;
}

void registry_tick(struct registry *r, uint64_t now_ns)
{
    registry__watch(r, now_ns);
    registry__scale(r, now_ns);
    registry__gauges(r, now_ns);
    if (r->o.mode != REGISTRY_POLL)
        return;
    os_mutex_lock(&r->lock);
    bool scan = !r->scan_queued && !r->stopping && r->next_scan_ns && now_ns >= r->next_scan_ns;
    r->scan_queued |= scan;
    os_mutex_unlock(&r->lock);
    if (scan)
        registry__work_push(r, &r->scan);
}

void registry_drain(struct registry *r)
{
    atomic_store_explicit(&r->home.closed, true, memory_order_release);
    struct parting p;
    parting_init(&p);
    os_mutex_lock(&r->home.live_lock);
    LIST_EACH(it, &r->home.live)
    {
        struct model_version *v = LIST_ENTRY(it, struct model_version, live);
        os_mutex_lock(&v->lock);
        parting_take_all(&p, v, STATUS_UNAVAILABLE, false);
        os_mutex_unlock(&v->lock);
    }
    os_mutex_unlock(&r->home.live_lock);
    parting_finish(&p, "the server is shutting down: send the request to another replica");
    os_mutex_lock(&r->lock);
    registry__update_ready(r);
    os_mutex_unlock(&r->lock);
}

/* Drop what serves. Returns after readers can't find any of it. */
static void drop_all(struct registry *r)
{
    struct model_version *drop[64];
    size_t n;
    do {
        n = 0;
        os_mutex_lock(&r->lock);
        LIST_EACH(it, &r->entries)
        LIST_EACH(k, &LIST_ENTRY(it, struct entry, link)->versions)
        {
            struct entry_version *ev = LIST_ENTRY(k, struct entry_version, link);
            if (ev->v && n < COUNT_OF(drop)) {
                drop[n++] = ev->v;
                ev->v = NULL;
                registry__state(ev, VERSION_DRAINING, "the server is shutting down");
            }
        }
        os_mutex_unlock(&r->lock);
        registry__publish(r);
        for (size_t i = 0; i < n; i++)
            model_version_unref(drop[i]);
    } while (n);
}

void registry_destroy(struct registry *r)
{
    if (!r)
        return;
    os_mutex_lock(&r->lock);
    r->stopping = true;
    os_mutex_unlock(&r->lock);
    registry_drain(r);
    uint64_t until = os_monotonic_ns() + r->o.hang_timeout_ns + REGISTRY_EXIT_NS;
    os_mutex_lock(&r->lock);
    bool over = false; /* loads in progress end first: they would put a version up again */
    while (!over) {
        over = true;
        LIST_EACH(it, &r->entries)
        over &= !LIST_ENTRY(it, struct entry, link)->busy || LIST_ENTRY(it, struct entry, link)->unloading;
        over &= !r->scan_queued;
        if (!over && !os_cond_wait_until(&r->changed, &r->lock, until))
            break;
    }
    os_mutex_unlock(&r->lock);
    drop_all(r);
    os_mutex_lock(&r->lock);
    while (r->alive && os_cond_wait_until(&r->changed, &r->lock, until))
        ;
    bool gone = r->alive == 0 && over;
    os_mutex_unlock(&r->lock);
    if (!gone) {
        /* a hung run or a request that was never released still uses this memory: it is left to the process's end */
        LOG(r->o.log, LOG_WARN, "models_left_behind", LOG_U("versions", r->alive));
        return;
    }
    registry__loaders_stop(r);
    release(r);
}
