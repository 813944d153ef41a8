/* loader.c: loader threads, and the one way in which a model gets loaded, reloaded and unloaded.
 *
 * A load looks at the model's folder afresh, parses the config, asks the version policy which versions are wanted, and builds those
 * whose files or config differ from what serves (all of them when nothing differs: the operator asked). Each is built and warmed
 * beside the old one, then swapped in by publishing a snapshot; the old one drains by its references. Files that changed while they
 * were being read make the build void. Only when every wanted version serves are the others dropped, so a failed load never takes
 * anything away. Loader threads run niced once the first pass is over: until then
 * nothing serves that they could disturb, and readiness waits for them. The threads that serve are started elsewhere (service.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/map.h"
#include "base/size.h"
#include "base/status.h"
#include "model/registry_priv.h"
#include "os/cgroup.h"
#include "os/clock.h"
#include "os/dir.h"
#include "os/process.h"

#define LOADER_NICE 10

void registry__work_push(struct registry *r, struct work *w)
{
    os_mutex_lock(&r->work_lock);
    list_push_back(&r->work, &w->link);
    os_cond_signal(&r->work_cond);
    os_mutex_unlock(&r->work_lock);
}

static void loader_main(void *arg)
{
    struct registry *r = arg;
    bool niced = false;
    os_mutex_lock(&r->work_lock);
    for (;;) {
        struct list *l = list_pop_front(&r->work);
        if (l) {
            struct work *w = LIST_ENTRY(l, struct work, link);
            os_mutex_unlock(&r->work_lock);
            if (!niced && registry_settled(r)) {
                os_thread_set_nice(LOADER_NICE);
                niced = true;
            }
            w->run(w);
            os_mutex_lock(&r->work_lock);
        } else if (r->work_stop) {
            break;
        } else {
            os_cond_wait(&r->work_cond, &r->work_lock);
        }
    }
    os_mutex_unlock(&r->work_lock);
}

int registry__loaders_start(struct registry *r, struct error *err)
{
    size_t n = MIN_OF(MAX_OF(r->o.loader_threads, 1u), (uint32_t)REGISTRY_LOADERS_MAX);
    for (size_t i = 0; i < n; i++) {
        int rc = os_thread_start(&r->loaders[i], "loader", loader_main, r, err);
        if (rc)
            return rc;
        r->n_loaders++;
    }
    return 0;
}

void registry__loaders_stop(struct registry *r)
{
    os_mutex_lock(&r->work_lock);
    r->work_stop = true;
    os_cond_broadcast(&r->work_cond);
    os_mutex_unlock(&r->work_lock);
    for (size_t i = 0; i < r->n_loaders; i++)
        os_thread_join(&r->loaders[i]);
}

/* ---- the end of a version ---- */

static struct registry *registry_of(struct version_home *h)
{
    return CONTAINER_OF(h, struct registry, home);
}

void registry__write_off(struct registry *r, struct model_version *v)
{
    os_mutex_lock(&r->lock);
    v->written_off = true;
    v->entry->alive--;
    os_mutex_unlock(&r->lock);
}

/* A version that build_version counted is gone now. */
static void version_gone(struct registry *r, struct entry *e, bool written_off, uint64_t reserved)
{
    os_mutex_lock(&r->lock);
    e->alive -= !written_off;
    r->alive--;
    r->reserved_bytes -= reserved;
    os_cond_broadcast(&r->changed);
    os_mutex_unlock(&r->lock);
    registry__unload_check(r, e, NULL);
}

static void reap_run(struct work *w)
{
    struct model_version *v = CONTAINER_OF(w, struct model_version, reap);
    struct registry *r = registry_of(v->home);
    struct entry *e = v->entry;
    uint64_t reserved = v->reserved_bytes;
    bool written_off = v->written_off; /* set before the reference of the load was dropped */
    LOG(r->o.log, LOG_INFO, "model_freed", LOG_STR("model", v->model), LOG_STR("version", v->name));
    version_destroy(v);
    os_memory_trim();
    version_gone(r, e, written_off, reserved);
}

void registry__retired(struct version_home *h, struct model_version *v)
{
    v->reap.run = reap_run;
    registry__work_push(registry_of(h), &v->reap);
}

/* ---- one version ---- */

static int admit_memory(struct registry *r, const struct version_spec *spec, uint64_t need, struct error *err)
{
    struct os_memory_limits mem;
    os_memory_limits_read(&mem);
    uint64_t limit = r->o.memory_limit_bytes ? r->o.memory_limit_bytes : mem.limit_bytes;
    os_mutex_lock(&r->lock);
    uint64_t held = r->reserved_bytes;
    bool fits = held <= limit && need <= limit - held;
    bool available = fits && (r->o.memory_limit_bytes || need <= mem.available_bytes);
    if (available)
        r->reserved_bytes += need;
    os_mutex_unlock(&r->lock);
    if (available)
        return 0;
    if (!fits)
        return error_set(
            err, STATUS_EXHAUSTED,
            "loading model \"%.*s\" needs about %llu MiB, and loaded models hold %llu of the limit of %llu MiB: unload "
            "one, or raise the memory limit",
            STR_ARG(spec->model), (unsigned long long)(need >> 20), (unsigned long long)(held >> 20),
            (unsigned long long)(limit >> 20));
    return error_set(
        err, STATUS_EXHAUSTED,
        "loading model \"%.*s\" needs about %llu MiB, and %llu of %llu MiB are available: unload another model, or give the "
        "server more memory",
        STR_ARG(spec->model), (unsigned long long)(need >> 20), (unsigned long long)(mem.available_bytes >> 20),
        (unsigned long long)(mem.limit_bytes >> 20));
}

static int read_config(struct registry *r, const struct repo_model *m, const char *inline_config, struct arena *a,
                       struct model_config *cfg, struct error *err)
{
    if (!inline_config)
        return repo_config(&r->repo, m, a, cfg, err);
    model_config_init(cfg);
    return model_config_from_json(str_of(inline_config), "the load request's config", a, cfg, err);
}

/* Build, not published yet. On success the entry and the registry count it. */
static int build_version(struct registry *r, struct entry *e, const struct repo_model *m, const struct repo_version *rv,
                         uint64_t fingerprint, struct model_version **out, struct error *err)
{
    struct version_spec spec = {.load = {.dir_fd = -1}};
    uint64_t need = 0;
    struct arena a;
    arena_init(&a, 4096, 0);
    struct model_version *v = version_new(&r->home);
    int rc = v ? read_config(r, m, e->inline_config, &v->arena, &v->config, err)
               : error_set(err, STATUS_NOMEM, "no memory for a model version");
    if (!rc)
        rc = registry__spec(&r->repo, m, rv, &v->config, &a, &spec, err);
    if (!rc && e->inline_config && seal_vault_signed(spec.vault))
        rc = error_set(err, STATUS_FORBIDDEN, "model \"%s\" is signed, and a config in the load request is not what was signed",
                       e->name);
    if (!rc) {
        need = registry__estimate(&spec, rv);
        rc = admit_memory(r, &spec, need, err);
        need = rc ? 0 : need;
    }
    if (!rc) {
        spec.fingerprint = fingerprint;
        spec.reserved_bytes = need;
        rc = version_build(v, &spec, err);
    }
    registry__spec_release(&spec);
    arena_release(&a);
    if (rc) {
        if (v)
            version_destroy(v);
        os_mutex_lock(&r->lock);
        r->reserved_bytes -= need;
        os_mutex_unlock(&r->lock);
        return rc;
    }
    v->entry = e;
    os_mutex_lock(&r->lock);
    e->alive++;
    r->alive++;
    os_mutex_unlock(&r->lock);
    *out = v;
    return 0;
}

static void log_ready(struct registry *r, const struct model_version *v, uint64_t ms)
{
    static const char *const modes[] = {"none", "fixed", "deadline"};
    for (size_t i = 0; i < v->config.n_warnings; i++)
        LOG(r->o.log, LOG_WARN, "model_config", LOG_STR("model", v->model), LOG_STR("warning", v->config.warnings[i]));
    uint32_t queue_rows = v->policy.max_queue_rows ? v->policy.max_queue_rows : 64 * v->policy.max_rows;
    LOG(r->o.log, LOG_INFO, "model_ready", LOG_STR("model", v->model), LOG_STR("version", v->name),
        LOG_S("platform", v->contract.c.platform), LOG_S("devices", v->contract.c.devices), LOG_U("load_ms", ms),
        LOG_U("max_batch", v->contract.max_batch), LOG_S("batching", modes[v->policy.mode]),
        LOG_U("max_queue_delay_us", v->policy.max_queue_delay_ns / 1000), LOG_U("max_queue_rows", queue_rows),
        LOG_U("instances_min", v->config.instances_min), LOG_U("instances_max", v->config.instances_max),
        LOG_U("default_deadline_ms",
              v->config.default_deadline_ms ? v->config.default_deadline_ms : v->home->default_deadline_ns / 1000000));
}

static void show_state(struct registry *r, struct entry *e, struct str version, enum version_state state, const char *reason,
                       bool no_memory)
{
    os_mutex_lock(&r->lock);
    struct entry_version *ev = registry__entry_version(e, version, true);
    if (ev && !ev->v) { /* a reload beside a serving version leaves it READY */
        registry__state(ev, state, reason);
        ev->no_memory = no_memory;
    }
    os_mutex_unlock(&r->lock);
    registry__publish(r);
}

/* Put `v` in the place of what served under its name. Takes the reference, also on NOMEM. */
static int swap_in(struct registry *r, struct entry *e, struct model_version *v, struct error *err)
{
    struct model_version *old = NULL;
    os_mutex_lock(&r->lock);
    struct entry_version *ev = registry__entry_version(e, v->name, true);
    bool kept = ev != NULL;
    if (kept) {
        old = ev->v;
        ev->v = v;
        registry__state(ev, VERSION_READY, "");
        e->required |= e->selected;
        e->reason[0] = 0;
    }
    os_mutex_unlock(&r->lock);
    registry__publish(r);
    model_version_unref(kept ? old : v);
    return kept ? 0 : error_set(err, STATUS_NOMEM, "no memory to put model \"%s\" into service", e->name);
}

static uint64_t fingerprint_of(const struct repo_model *m, const struct repo_version *rv, const char *inline_config)
{
    uint64_t parts[2] = {m->fingerprint, rv->fingerprint};
    uint64_t h = hash_bytes(parts, sizeof parts, 1);
    return inline_config ? hash_bytes(inline_config, strlen(inline_config), h) : h;
}

/* The fingerprint now, to see whether files changed under the load. */
static bool unchanged(struct registry *r, const struct repo_model *m, const struct repo_version *rv, const char *inline_config,
                      uint64_t fingerprint)
{
    struct arena a;
    struct repo_model now;
    bool same = false;
    arena_init(&a, 8192, 0);
    if (!repo_find(&r->repo, m->name, &a, &now, NULL) && !now.problem)
        for (size_t i = 0; i < now.n_versions; i++)
            same |=
                str_eq(now.versions[i].name, rv->name) && fingerprint_of(&now, &now.versions[i], inline_config) == fingerprint;
    arena_release(&a);
    return same;
}

static int load_version(struct registry *r, struct entry *e, const struct repo_model *m, const struct repo_version *rv,
                        struct error *err)
{
    uint64_t fingerprint = fingerprint_of(m, rv, e->inline_config), start = os_monotonic_ns();
    struct model_version *v = NULL;
    LOG(r->o.log, LOG_INFO, "model_loading", LOG_STR("model", m->name), LOG_STR("version", rv->name));
    show_state(r, e, rv->name, VERSION_LOADING, "", false);
    int rc = build_version(r, e, m, rv, fingerprint, &v, err);
    if (!rc && v->config.n_warmup)
        show_state(r, e, rv->name, VERSION_WARMING, "", false);
    if (!rc)
        rc = registry__warmup(r, m, v, err);
    if (!rc && !unchanged(r, m, rv, e->inline_config, fingerprint))
        rc = error_set(err, STATUS_CONFLICT, "the model's files changed while they were being loaded: load it again");
    if (!rc)
        rc = version_start(v, err);
    metric_inc(r->home.series.loads[rc != 0]);
    if (rc) {
        LOG(r->o.log, LOG_ERROR, "model_failed", LOG_STR("model", m->name), LOG_STR("version", rv->name),
            LOG_S("reason", err->text));
        model_version_unref(v);
        show_state(r, e, rv->name, VERSION_FAILED, err->text, rc == STATUS_NOMEM || rc == STATUS_EXHAUSTED);
        return rc;
    }
    log_ready(r, v, (os_monotonic_ns() - start) / 1000000);
    return swap_in(r, e, v, err);
}

/* ---- one model ---- */

static bool serves_unchanged(struct registry *r, struct entry *e, struct str version, uint64_t fingerprint)
{
    os_mutex_lock(&r->lock);
    const struct entry_version *ev = registry__entry_version(e, version, false);
    bool same = ev && ev->v && ev->v->fingerprint == fingerprint;
    os_mutex_unlock(&r->lock);
    return same;
}

static void keep_labels(struct registry *r, struct entry *e, const struct model_config *cfg)
{
    os_mutex_lock(&r->lock);
    arena_release(&e->labels_arena);
    arena_init(&e->labels_arena, 512, 0);
    e->labels = arena_array(&e->labels_arena, cfg->n_labels + 1, sizeof *e->labels);
    e->n_labels = e->labels ? cfg->n_labels : 0;
    for (size_t i = 0; i < e->n_labels; i++)
        e->labels[i] = (struct config_pair){{arena_strdup(&e->labels_arena, cfg->labels[i].key), cfg->labels[i].key.n},
                                            {arena_strdup(&e->labels_arena, cfg->labels[i].value), cfg->labels[i].value.n}};
    os_mutex_unlock(&r->lock);
}

static bool is_wanted(const struct repo_model *m, const bool *wanted, const char *name)
{
    for (size_t i = 0; i < m->n_versions; i++)
        if (str_eqz(m->versions[i].name, name))
            return wanted[i];
    return false;
}

/* Forget the versions that are not wanted any more. */
static void drop_unwanted(struct registry *r, struct entry *e, const struct repo_model *m, const bool *wanted)
{
    struct list gone;
    list_init(&gone);
    os_mutex_lock(&r->lock);
    LIST_EACH(it, &e->versions)
    {
        if (is_wanted(m, wanted, LIST_ENTRY(it, struct entry_version, link)->name))
            continue;
        list_remove(it);
        list_push_back(&gone, it);
    }
    os_mutex_unlock(&r->lock);
    registry__publish(r);
    struct list *l;
    while ((l = list_pop_front(&gone))) {
        struct entry_version *ev = LIST_ENTRY(l, struct entry_version, link);
        model_version_unref(ev->v);
        free(ev->name);
        free(ev);
    }
}

static int load_wanted(struct registry *r, struct entry *e, const struct repo_model *m, const bool *wanted, struct error *err)
{
    bool force = true; /* nothing differs: the operator wants it built anew */
    for (size_t i = 0; i < m->n_versions; i++)
        if (wanted[i] && !serves_unchanged(r, e, m->versions[i].name, fingerprint_of(m, &m->versions[i], e->inline_config)))
            force = false;
    int rc = 0;
    struct error one = {0};
    for (size_t i = 0; i < m->n_versions; i++) {
        if (!wanted[i] ||
            (!force && serves_unchanged(r, e, m->versions[i].name, fingerprint_of(m, &m->versions[i], e->inline_config))))
            continue;
        int result = load_version(r, e, m, &m->versions[i], &one);
        if (result && !rc) {
            rc = result;
            *err = one;
        }
    }
    return rc;
}

static int load_model(struct registry *r, struct entry *e, struct arena *a, struct error *err)
{
    struct repo_model m;
    struct model_config cfg;
    int rc = repo_find(&r->repo, str_of(e->name), a, &m, err);
    if (!rc && m.problem)
        rc = error_set(err, STATUS_INVALID, "model \"%s\": %s", e->name, m.problem);
    uint64_t newest_ns;
    if (!rc && r->o.mode == REGISTRY_POLL && repo_fingerprint(&m, &newest_ns) != e->tried)
        rc = error_set(err, STATUS_AGAIN, "the files of model \"%s\" changed after they had settled: waiting again", e->name);
    for (size_t i = 0; !rc && i < m.n_warnings; i++)
        LOG(r->o.log, LOG_WARN, "model_folder", LOG_S("model", e->name), LOG_S("warning", m.warnings[i]));
    if (!rc)
        rc = read_config(r, &m, e->inline_config, a, &cfg, err);
    bool *wanted = rc ? NULL : arena_array(a, m.n_versions + 1, sizeof *wanted);
    if (!rc && !wanted)
        rc = error_set(err, STATUS_NOMEM, "no memory to load model \"%s\"", e->name);
    if (!rc)
        rc = repo_wanted(&m, &cfg, wanted, err);
    if (!rc)
        rc = load_wanted(r, e, &m, wanted, err);
    if (rc)
        return rc;
    keep_labels(r, e, &cfg);
    drop_unwanted(r, e, &m, wanted);
    return 0;
}

void registry__load_run(struct work *w)
{
    struct entry *e = CONTAINER_OF(w, struct entry, work);
    struct registry *r = e->r;
    struct arena a;
    struct error err = {0};
    arena_init(&a, 8192, 0);
    os_mutex_lock(&r->lock);
    bool stopping = r->stopping;
    os_mutex_unlock(&r->lock);
    int rc = stopping ? error_set(&err, STATUS_UNAVAILABLE, "the server is shutting down") : load_model(r, e, &a, &err);
    arena_release(&a);
    if (rc && !stopping)
        LOG(r->o.log, LOG_ERROR, "load_failed", LOG_S("model", e->name), LOG_S("reason", err.text));
    os_mutex_lock(&r->lock);
    void (*done)(void *, int, const char *) = e->done;
    void *ctx = e->ctx;
    bool first = e->first_pass;
    if (rc)
        snprintf(e->reason, sizeof e->reason, "%s", err.text);
    free(e->inline_config);
    e->inline_config = NULL;
    e->done = NULL;
    e->first_pass = false;
    e->busy = false;
    os_cond_broadcast(&r->changed);
    os_mutex_unlock(&r->lock);
    registry__publish(r);
    if (first)
        registry__first_pass_step(r);
    if (done)
        done(ctx, rc, rc ? err.text : "");
}

/* ---- unload ---- */

void registry__unload_check(struct registry *r, struct entry *e, const char *hung)
{
    os_mutex_lock(&r->lock);
    bool over = e->unloading && (e->alive == 0 || hung);
    void (*done)(void *, int, const char *) = e->done;
    void *ctx = e->ctx;
    if (over) {
        e->unloading = e->busy = false;
        e->done = NULL;
        LIST_EACH(it, &e->versions)
        {
            struct entry_version *ev = LIST_ENTRY(it, struct entry_version, link);
            registry__state(ev, hung ? VERSION_DRAINING : VERSION_UNLOADED, hung ? hung : "unloaded");
            if (!e->on_disk) { /* gone from the repository: nothing to show any more */
                list_remove(it);
                free(ev->name);
                free(ev);
            }
        }
        snprintf(e->reason, sizeof e->reason, "%s", hung ? hung : "unloaded");
        os_cond_broadcast(&r->changed);
    }
    os_mutex_unlock(&r->lock);
    if (!over)
        return;
    registry__publish(r);
    if (done)
        done(ctx, hung ? STATUS_UNAVAILABLE : STATUS_OK, hung ? hung : "");
}

void registry__unload_run(struct work *w)
{
    struct entry *e = CONTAINER_OF(w, struct entry, work);
    struct registry *r = e->r;
    struct model_version *drop = NULL;
    do {
        drop = NULL;
        os_mutex_lock(&r->lock);
        LIST_EACH(it, &e->versions)
        {
            struct entry_version *ev = LIST_ENTRY(it, struct entry_version, link);
            if (ev->v && !drop) {
                drop = ev->v;
                ev->v = NULL;
                registry__state(ev, VERSION_DRAINING, "running requests may finish");
            }
        }
        os_mutex_unlock(&r->lock);
        registry__publish(r);
        model_version_unref(drop);
    } while (drop);
    /* From here on the last version to go ends the unload, and a new load may begin at once: nothing of the entry may be touched
     * after it. So this is set only when all are dropped. */
    os_mutex_lock(&r->lock);
    e->unloading = true;
    os_mutex_unlock(&r->lock);
    registry__unload_check(r, e, NULL);
}

static int begin(struct registry *r, struct str model, bool load, struct str config, void (*done)(void *, int, const char *),
                 void *ctx, struct entry **out, struct error *err)
{
    struct entry *e = registry__entry(r, model, load);
    if (load && !e)
        return error_set(err, STATUS_NOMEM, "no memory to load model \"%.*s\"", STR_ARG(model));
    if (!e)
        return error_set(err, STATUS_NOT_FOUND, "there is no model \"%.*s\"", STR_ARG(model));
    if (e->busy)
        return error_set(err, STATUS_CONFLICT, "model \"%.*s\" is being %s: try again when that is over", STR_ARG(model),
                         e->unloading ? "unloaded" : "loaded or unloaded");
    if (r->stopping)
        return error_set(err, STATUS_UNAVAILABLE, "the server is shutting down");
    e->inline_config = config.n ? str_dup(config) : NULL;
    if (config.n && !e->inline_config)
        return error_set(err, STATUS_NOMEM, "no memory to load model \"%.*s\"", STR_ARG(model));
    e->busy = true;
    e->selected = load;
    e->required &= load;
    e->done = done;
    e->ctx = ctx;
    e->work.run = load ? registry__load_run : registry__unload_run;
    *out = e;
    return 0;
}

int registry_load(struct registry *r, struct str model, struct str config,
                  void (*done)(void *ctx, int status, const char *text), void *ctx, struct error *err)
{
    struct entry *e = NULL;
    if (r->o.mode != REGISTRY_EXPLICIT)
        return error_set(err, STATUS_CONFLICT,
                         "models are not loaded by request here: start the server with --repository.mode=explicit");
    if (!str_is_model_name(model))
        return error_set(err, STATUS_NOT_FOUND, "there is no model \"%.*s\" in the repository", STR_ARG(model));
    int rc = repo_has(&r->repo, model, err);
    if (rc)
        return rc;
    os_mutex_lock(&r->lock);
    rc = begin(r, model, true, config, done, ctx, &e, err);
    if (!rc)
        e->on_disk = true;
    os_mutex_unlock(&r->lock);
    if (!rc)
        registry__work_push(r, &e->work);
    return rc;
}

int registry_unload(struct registry *r, struct str model, void (*done)(void *ctx, int status, const char *text), void *ctx,
                    struct error *err)
{
    struct entry *e = NULL;
    if (r->o.mode != REGISTRY_EXPLICIT)
        return error_set(err, STATUS_CONFLICT,
                         "models are not unloaded by request here: start the server with --repository.mode=explicit");
    os_mutex_lock(&r->lock);
    int rc = begin(r, model, false, (struct str){0}, done, ctx, &e, err);
    os_mutex_unlock(&r->lock);
    if (!rc)
        registry__work_push(r, &e->work);
    return rc;
}
