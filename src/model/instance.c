/* instance.c: one engine instance and its thread: wait for the batcher's word, take a batch, run it.
 *
 * Instances of a version share its queue and its condition. An idle one asks the batcher at each wake-up; the batcher says run now or
 * wait until. A submit wakes one idle instance; an instance that takes a batch and leaves something behind wakes the next. The
 * thread holds the version's lock except while it works on a batch. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "model/version_priv.h"
#include "os/clock.h"

/* Requests of a closed batch become slots. v->lock held. */
static void claim(struct instance *i, struct list *batch, uint32_t run_id, uint64_t now)
{
    struct model_version *v = i->v;
    struct list *l;
    i->n_slots = 0;
    i->run_id = run_id;
    i->learned_ns = 0;
    while ((l = list_pop_front(batch))) {
        struct infer *inf = CONTAINER_OF(LIST_ENTRY(l, struct batch_item, link), struct infer, item);
        ASSERT(i->n_slots < v->policy.max_rows);
        struct slot *s = &i->slots[i->n_slots++];
        *s = (struct slot){.inf = inf, .home = i, .rows = inf->rows};
        list_remove(&inf->queued);
        heap_node_init(&inf->item.expiry);
        atomic_fetch_sub_explicit(&v->home->queued_bytes, inf->item.bytes, memory_order_relaxed);
        inf->times.batched_ns = now;
        inf->priv = s;
        atomic_store_explicit(&inf->state, INFER_CLAIMED, memory_order_relaxed);
    }
}

/* v->lock held on entry and on return. */
static void serve_batch(struct instance *i, struct list *batch, uint32_t run_id, uint64_t now)
{
    struct model_version *v = i->v;
    claim(i, batch, run_id, now);
    i->served_ns = now;
    model_version_ref(v);
    if (v->idle && !list_empty(&v->queue))
        os_cond_signal(&v->work);
    os_mutex_unlock(&v->lock);
    batch_run(i);
    os_mutex_lock(&v->lock);
    i->n_slots = 0;
    batcher_finish(v->batcher, i->run_id, os_monotonic_ns(), i->learned_ns); /* unless answer_members did; it ignores 0 */
    os_mutex_unlock(&v->lock);
    model_version_unref(v);
    os_mutex_lock(&v->lock);
}

static bool expire_due(struct model_version *v, uint64_t now)
{
    if (batcher_next_expiry(v->batcher) > now)
        return false;
    struct parting p;
    parting_init(&p);
    parting_take_expired(&p, v, now);
    os_mutex_unlock(&v->lock);
    parting_finish(&p, NULL);
    os_mutex_lock(&v->lock);
    return true;
}

/* Nothing to run until `until_ns`. An instance that stays idle for long gives its memory back meanwhile. v->lock held. */
static void wait_for_work(struct instance *i, uint64_t until_ns)
{
    struct model_version *v = i->v;
    uint64_t trim_ns = gather_trim_at(i);
    v->idle++;
    bool woken = os_cond_wait_until(&v->work, &v->lock, MIN_OF(until_ns, trim_ns));
    v->idle--;
    if (woken || trim_ns > until_ns || i->stop)
        return;
    os_mutex_unlock(&v->lock);
    gather_trim(i);
    os_mutex_lock(&v->lock);
}

static void instance_main(void *arg)
{
    struct instance *i = arg;
    struct model_version *v = i->v;
    struct list batch;
    list_init(&batch);
    os_mutex_lock(&v->lock);
    while (!i->stop) {
        uint64_t now = os_monotonic_ns();
        if (expire_due(v, now))
            continue;
        struct batch_decision d = batcher_next(v->batcher, now, v->idle + 1, &batch);
        if (d.run) {
            serve_batch(i, &batch, d.run_id, now);
            continue;
        }
        wait_for_work(i, d.wake_ns);
    }
    i->exited = true;
    os_cond_broadcast(&v->work);
    os_mutex_unlock(&v->lock);
}

static int allocate(struct instance *i, struct error *err)
{
    const struct model_version *v = i->v;
    size_t n_in = v->contract.c.n_inputs + 1, n_out = v->contract.c.n_outputs + 1, rows = v->policy.max_rows;
    i->slots = calloc(rows, sizeof *i->slots);
    i->buffer = calloc(n_in, sizeof *i->buffer);
    i->inputs = calloc(n_in, sizeof *i->inputs);
    i->outputs = calloc(n_out, sizeof *i->outputs);
    i->members = (const struct tensor **)calloc(rows, sizeof *i->members);
    i->wanted = calloc(n_out, sizeof *i->wanted);
    if (!i->slots || !i->buffer || !i->inputs || !i->outputs || !i->members || !i->wanted)
        return error_set(err, STATUS_NOMEM, "no memory for an instance of model \"%.*s\"", STR_ARG(v->model));
    return 0;
}

int instance_create(struct model_version *v, size_t index, struct instance **out, struct error *err)
{
    struct instance *i = calloc(1, sizeof *i);
    if (!i)
        return error_set(err, STATUS_NOMEM, "no memory for an instance of model \"%.*s\"", STR_ARG(v->model));
    i->v = v;
    list_init(&i->link);
    list_init(&i->stops);
    int rc = allocate(i, err);
    if (!rc)
        rc = v->ops->instance_create(v->engine, index, &i->engine, err);
    if (rc)
        instance_destroy(i);
    else
        *out = i;
    return rc;
}

int instance_start(struct instance *i, struct error *err)
{
    char name[16];
    snprintf(name, sizeof name, "run/%.*s", (int)MIN_OF(i->v->model.n, (size_t)10), i->v->model.p);
    struct spawn s = {.thread = &i->thread, .name = name, .run = instance_main, .arg = i};
    int rc = version_spawn(i->v->home, &s, err);
    i->started = rc == 0;
    return rc;
}

void instance_destroy(struct instance *i)
{
    if (!i)
        return;
    if (i->started) {
        os_mutex_lock(&i->v->lock);
        while (i->pins)
            os_cond_wait(&i->v->work, &i->v->lock);
        os_mutex_unlock(&i->v->lock);
        os_thread_join(&i->thread);
    }
    if (i->engine)
        i->v->ops->instance_destroy(i->engine);
    if (i->buffer)
        gather_trim(i);
    free(i->slots);
    free(i->buffer);
    free(i->inputs);
    free(i->outputs);
    free((void *)i->members);
    free(i->wanted);
    free(i);
}
