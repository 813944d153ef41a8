/* watch.c: the control thread's tick: hung instances, the number of instances, gauges.
 *
 * An instance is hung when the engine has not returned for hang_timeout. What is in its run is answered with UNAVAILABLE, and its engine
 * is asked to stop where it can; the batcher counts on the others. A version whose every instance is hung is NOT READY: what is queued is
 * answered with UNAVAILABLE too, and new requests are refused, until one of them is back: the run that came back finds its requests
 * gone and drops its result. As long as one instance is well the version serves, more slowly, and stays READY: taking it out of a
 * balancer for one stuck run would give its load to others that may be stuck by the same request. The hung thread is never killed (a
 * thread killed inside a library takes the library's locks along); it holds a reference to its version, so nothing it uses is freed.
 * Token engines have no instances: they are hung when work is pending and no step was made for as long. */
#include <stdlib.h>

#include "base/size.h"
#include "base/status.h"
#include "model/registry_priv.h"
#include "os/clock.h"

/* How many of v's instances are hung; what runs in them is taken. `*total`: how many there are. v->lock held. */
static uint32_t take_hung(struct model_version *v, uint64_t now, struct parting *p, uint32_t *total)
{
    uint64_t limit = v->home->hang_timeout_ns;
    uint32_t hung = 0;
    *total = 0;
    LIST_EACH(it, &v->instances)
    {
        struct instance *i = LIST_ENTRY(it, struct instance, link);
        uint64_t since = atomic_load_explicit(&i->run_since_ns, memory_order_relaxed);
        ++*total;
        if (!since || now <= since || now - since <= limit)
            continue;
        hung++;
        parting_take_run(p, v, i, STATUS_UNAVAILABLE);
    }
    return hung;
}

/* Token face: progress is asked for without any lock. */
static bool steps_hung(struct model_version *v, uint64_t now)
{
    uint64_t steps = 0;
    bool busy = false;
    if (!v->ops->progress)
        return false;
    v->ops->progress(v->engine, &steps, &busy);
    if (!busy || steps != v->steps_seen || !v->steps_since_ns) {
        v->steps_seen = steps;
        v->steps_since_ns = now;
        return false;
    }
    return now > v->steps_since_ns && now - v->steps_since_ns > v->home->hang_timeout_ns;
}

/* True when something changed. */
static bool check_version(struct model_version *v, uint64_t now, struct parting *p)
{
    bool stuck = v->contract.c.face == ENGINE_TOKEN && steps_hung(v, now);
    bool was = atomic_load_explicit(&v->hung, memory_order_relaxed);
    uint32_t total;
    os_mutex_lock(&v->lock);
    uint32_t before = v->n_hung, hung = take_hung(v, now, p, &total);
    bool none_left = stuck || (hung && hung == total);
    v->n_hung = hung;
    if (hung != before && v->batcher)
        batcher_set_instances(v->batcher, version_healthy(v));
    if (none_left)
        atomic_store_explicit(&v->hung, true, memory_order_release);
    if (none_left && v->batcher)
        parting_take_all(p, v, STATUS_UNAVAILABLE, true);
    if (!none_left)
        atomic_store_explicit(&v->hung, false, memory_order_release);
    os_mutex_unlock(&v->lock);
    return none_left != was || hung != before;
}

/* Every version that exists, with a reference each; versions whose last reference is gone are left out. Caller frees the array. */
static struct model_version **all_versions(struct registry *r, size_t *n)
{
    size_t cap = 0;
    *n = 0;
    os_mutex_lock(&r->home.live_lock);
    LIST_EACH(it, &r->home.live)
    cap++;
    struct model_version **all = (struct model_version **)calloc(cap + 1, sizeof *all);
    LIST_EACH(it, &r->home.live)
    {
        struct model_version *v = LIST_ENTRY(it, struct model_version, live);
        if (all && version_try_ref(v))
            all[(*n)++] = v;
    }
    os_mutex_unlock(&r->home.live_lock);
    return all;
}

static bool idle(const struct model_version *v)
{
    uint64_t steps;
    bool busy = false;
    if (v->contract.c.face == ENGINE_TOKEN && v->ops->progress)
        v->ops->progress(v->engine, &steps, &busy);
    return !busy && atomic_load(&v->pending) == 0;
}

bool registry_idle(const struct registry *r)
{
    size_t n;
    bool all_idle = true;
    struct model_version **all = all_versions((struct registry *)r, &n); /* changes nothing but reference counts */
    for (size_t i = 0; all && i < n; i++) {
        all_idle &= idle(all[i]);
        model_version_unref(all[i]);
    }
    free((void *)all);
    return all && all_idle;
}

void registry__watch(struct registry *r, uint64_t now_ns)
{
    size_t n;
    if (!r->o.hang_timeout_ns)
        return;
    struct model_version **all = all_versions(r, &n);
    struct parting p;
    parting_init(&p);
    for (size_t i = 0; all && i < n; i++) {
        struct model_version *v = all[i];
        bool changed = check_version(v, now_ns, &p);
        bool none_left = atomic_load_explicit(&v->hung, memory_order_relaxed), any = v->n_hung || none_left;
        parting_finish(&p, "the model's instance has stopped answering: the request was given up, try again later");
        if (changed) {
            LOG(r->o.log, any ? LOG_ERROR : LOG_INFO, any ? "instance_hung" : "instance_recovered", LOG_STR("model", v->model),
                LOG_STR("version", v->name), LOG_U("hung", v->n_hung), LOG_B("ready", !none_left),
                LOG_U("timeout_ms", r->o.hang_timeout_ns / 1000000));
            os_mutex_lock(&r->lock);
            registry__update_ready(r);
            os_mutex_unlock(&r->lock);
        }
        if (any && v->entry)
            registry__unload_check(r, v->entry, "an instance has stopped answering; the model is freed when its run returns");
        model_version_unref(v);
    }
    free((void *)all);
}

/* ---- instances ---- */

struct grow {
    struct work work;
    struct model_version *v;
};

static void grow_run(struct work *w)
{
    struct grow *g = CONTAINER_OF(w, struct grow, work);
    struct model_version *v = g->v;
    struct instance *i = NULL;
    struct error err = {0};
    int rc = instance_create(v, v->n_created, &i, &err);
    if (!rc) {
        os_mutex_lock(&v->lock);
        list_push_back(&v->instances, &i->link);
        os_mutex_unlock(&v->lock);
        rc = instance_start(i, &err);
    }
    os_mutex_lock(&v->lock);
    if (!rc) {
        v->n_instances++;
        v->n_created++;
        batcher_set_instances(v->batcher, version_healthy(v));
    } else if (i) {
        list_remove(&i->link);
    }
    v->scaling = false;
    uint32_t n = v->n_instances;
    os_mutex_unlock(&v->lock);
    if (rc)
        instance_destroy(i);
    LOG(v->home->log, rc ? LOG_WARN : LOG_INFO, rc ? "instance_not_added" : "instance_added", LOG_STR("model", v->model),
        LOG_U("instances", n), LOG_S("reason", err.text));
    model_version_unref(v);
    free(g);
}

static void shrink_run(struct work *w)
{
    struct instance *i = CONTAINER_OF(w, struct instance, reap);
    struct model_version *v = i->v;
    instance_destroy(i);
    os_mutex_lock(&v->lock);
    v->scaling = false;
    uint32_t n = v->n_instances;
    os_mutex_unlock(&v->lock);
    LOG(v->home->log, LOG_INFO, "instance_removed", LOG_STR("model", v->model), LOG_U("instances", n));
    model_version_unref(v);
}

/* Tell an idle instance to stop and hand it to a loader thread, which joins it. v->lock held. */
static struct instance *shrink(struct model_version *v)
{
    LIST_EACH(it, &v->instances)
    {
        struct instance *i = LIST_ENTRY(it, struct instance, link);
        if (i->n_slots || i->stop)
            continue;
        i->stop = true;
        i->reap.run = shrink_run;
        list_remove(&i->link);
        v->n_instances--;
        batcher_set_instances(v->batcher, version_healthy(v));
        os_cond_broadcast(&v->work);
        return i;
    }
    return NULL;
}

static void scale_version(struct registry *r, struct model_version *v, uint64_t now)
{
    uint64_t busy_ns = atomic_load_explicit(&v->busy_ns, memory_order_relaxed);
    uint32_t busy = 0;
    struct instance *gone = NULL;
    os_mutex_lock(&v->lock);
    if (v->scaling || atomic_load(&v->hung)) {
        os_mutex_unlock(&v->lock);
        return;
    }
    LIST_EACH(it, &v->instances)
    {
        uint64_t since = atomic_load_explicit(&LIST_ENTRY(it, struct instance, link)->run_since_ns, memory_order_relaxed);
        busy += since != 0;
        busy_ns += since && now > since ? now - since : 0;
    }
    uint64_t backlog = batcher_backlog_ns(v->batcher, v->n_instances);
    uint32_t want = scaler_decide(&v->scaler, now, v->n_instances, busy, busy_ns, backlog);
    bool add = want > v->n_instances;
    if (want < v->n_instances)
        gone = shrink(v);
    v->scaling = add || gone;
    os_mutex_unlock(&v->lock);
    struct grow *g = add ? calloc(1, sizeof *g) : NULL;
    if (g) {
        *g = (struct grow){.work.run = grow_run, .v = model_version_ref(v)};
        list_init(&g->work.link);
        registry__work_push(r, &g->work);
    } else if (gone) {
        model_version_ref(v);
        registry__work_push(r, &gone->reap);
    } else if (add) {
        os_mutex_lock(&v->lock);
        v->scaling = false;
        os_mutex_unlock(&v->lock);
    }
}

void registry__scale(struct registry *r, uint64_t now_ns)
{
    size_t n;
    struct model_version **all = all_versions(r, &n);
    for (size_t i = 0; all && i < n; i++) {
        if (all[i]->batcher && all[i]->scaler.max > all[i]->scaler.min)
            scale_version(r, all[i], now_ns);
        model_version_unref(all[i]);
    }
    free((void *)all);
}

void registry__gauges(struct registry *r, uint64_t now_ns)
{
    size_t n;
    bool memory = now_ns >= r->next_memory_ns;
    if (!r->o.metrics)
        return;
    if (memory)
        r->next_memory_ns = now_ns + 1000000000;
    struct model_version **all = all_versions(r, &n);
    for (size_t i = 0; all && i < n; i++) {
        struct model_version *v = all[i];
        struct batcher_stats b = {0};
        struct engine_memory mem = {0};
        os_mutex_lock(&v->lock);
        if (v->batcher)
            batcher_stats(v->batcher, &b);
        uint32_t instances = v->n_instances, hung = v->n_hung;
        os_mutex_unlock(&v->lock);
        metric_set(v->series->queue_rows, b.queued_rows);
        metric_set(v->series->queue_bytes, (double)b.queued_bytes);
        metric_set(v->series->instances, instances);
        metric_set(v->series->instances_hung, hung);
        if (memory && v->ops->memory) {
            v->ops->memory(v->engine, &mem);
            metric_set(v->series->memory, (double)(mem.weights_bytes + mem.scratch_bytes));
        }
        model_version_unref(v);
    }
    free((void *)all);
}
