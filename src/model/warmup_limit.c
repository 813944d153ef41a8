/* warmup_limit.c: a warm-up under a time limit, so that an engine that never returns takes a load with it and not a loader thread.
 *
 * The warm-up runs on a thread of its own while the loader waits. When the limit passes, the engine is asked to stop where it can; if it
 * has not returned STOP_NS later, the load fails and the loader goes on. A thread inside an engine can't be killed, so the
 * thread, its state and the version stay until the run returns, if ever: the thread holds a reference to the version, which is
 * freed by a loader once that is dropped (version_destroy joins the thread). Its memory stays reserved meanwhile. */
#include <stdlib.h>

#include "base/status.h"
#include "model/registry_priv.h"
#include "os/clock.h"

#define STOP_NS  1000000000u
#define NS_PER_S 1000000000.0

struct warmup {
    struct os_thread thread;
    struct os_mutex lock; /* RANK_LEAF: done, given_up */
    struct os_cond cond;
    struct registry *r;
    struct model_version *v;
    struct repo_model model; /* its `dir` is in `arena`: the loader's own goes when the load is over */
    struct arena arena;
    bool done, given_up;
    _Atomic(struct engine_instance *) running;
    int rc;
    struct error err;
};

static void warmup_main(void *arg)
{
    struct warmup *w = arg;
    int rc = registry__warmup_run(w->r, &w->model, w->v, &w->err);
    os_mutex_lock(&w->lock);
    w->rc = rc;
    w->done = true;
    bool given_up = w->given_up;
    os_cond_broadcast(&w->cond);
    os_mutex_unlock(&w->lock);
    /* unless it was given up, the loader may have freed `w` by now */
    if (given_up)
        model_version_unref(w->v);
}

static struct warmup *create(struct registry *r, const struct repo_model *m, struct model_version *v)
{
    struct warmup *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->r = r;
    w->v = v;
    arena_init(&w->arena, 512, 0);
    w->model = (struct repo_model){.root = m->root, .dir = arena_strdup(&w->arena, str_of(m->dir))};
    if (!w->model.dir) {
        arena_release(&w->arena);
        free(w);
        return NULL;
    }
    os_mutex_init(&w->lock, RANK_LEAF);
    os_cond_init(&w->cond);
    return w;
}

static void release(struct warmup *w)
{
    os_cond_release(&w->cond);
    os_mutex_release(&w->lock);
    arena_release(&w->arena);
    free(w);
}

void warmup_join(struct warmup *w)
{
    if (!w)
        return;
    os_thread_join(&w->thread);
    release(w);
}

bool warmup_goes_on(struct model_version *v, struct engine_instance *next)
{
    struct warmup *w = v->warmup;
    if (!w)
        return true;
    atomic_store(&w->running, next);
    os_mutex_lock(&w->lock);
    bool on = !w->given_up;
    os_mutex_unlock(&w->lock);
    return on;
}

/* w->lock held. */
static bool wait_done(struct warmup *w, uint64_t until_ns)
{
    while (!w->done && os_cond_wait_until(&w->cond, &w->lock, until_ns))
        ;
    return w->done;
}

/* The limit passed. True: it ended after all; false: it was left behind. w->lock held, dropped on the way. */
static bool give_up(struct warmup *w)
{
    struct model_version *v = w->v;
    w->given_up = true;
    model_version_ref(v); /* the thread's */
    os_mutex_unlock(&w->lock);
    struct engine_instance *at = atomic_load(&w->running);
    if (at && v->ops->cancel)
        v->ops->cancel(at);
    os_mutex_lock(&w->lock);
    return wait_done(w, os_monotonic_ns() + STOP_NS);
}

int registry__warmup(struct registry *r, const struct repo_model *m, struct model_version *v, struct error *err)
{
    uint64_t limit = r->o.warmup_timeout_ns;
    if (v->contract.c.face != ENGINE_BATCH || !v->config.n_warmup)
        return 0;
    if (!limit)
        return registry__warmup_run(r, m, v, err);
    struct warmup *w = create(r, m, v);
    if (!w)
        return error_set(err, STATUS_NOMEM, "no memory for a warm-up");
    v->warmup = w;
    int rc = os_thread_start(&w->thread, "warmup", warmup_main, w, err);
    if (rc) {
        v->warmup = NULL;
        release(w);
        return rc;
    }
    os_mutex_lock(&w->lock);
    bool in_time = wait_done(w, os_monotonic_ns() + limit), ended = in_time || give_up(w);
    os_mutex_unlock(&w->lock);
    if (ended) {
        rc = w->rc;
        *err = w->err;
        v->warmup = NULL;
        warmup_join(w);
    }
    if (in_time)
        return rc;
    if (!ended)
        registry__write_off(r, v);
    return error_set(err, STATUS_DEADLINE, "the warm-up did not end within %.3g s (repository.warmup_timeout)%s",
                     (double)limit / NS_PER_S, ended ? "" : "; the model's memory stays in use until its engine returns");
}
