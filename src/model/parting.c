/* parting.c: how a request leaves early: client gone, deadline passed, instance hung, server draining.
 *
 * Under the version's lock it is unlinked from where it is (the batcher, or its slot in a running batch) and its state becomes
 * DONE: from then on this thread alone owns it. After the lock it is answered. A batch that lost its last member is of no use to
 * anybody: its engine is asked to stop, also after the lock. The instance is pinned meanwhile, so that it can't be destroyed
 * under the call; the version stays because the pin holds a reference to it. */
#include <stdio.h>

#include "base/check.h"
#include "base/status.h"
#include "model/version_priv.h"
#include "os/clock.h"

void parting_init(struct parting *p)
{
    list_init(&p->items);
    list_init(&p->stops);
}

static void empty_slot(struct parting *p, struct model_version *v, struct infer *inf)
{
    struct slot *slot = inf->priv;
    struct instance *i = slot->home;
    DASSERT(slot->inf == inf);
    slot->inf = NULL;
    if (heap_contains(&inf->item.expiry))
        heap_remove(&v->running, &inf->item.expiry);
    for (size_t k = 0; k < i->n_slots; k++)
        if (i->slots[k].inf)
            return;
    if (!v->ops->cancel || i->abandoned || !atomic_load_explicit(&i->run_since_ns, memory_order_relaxed))
        return;
    i->abandoned = true;
    i->pins++;
    model_version_ref(v);
    list_push_back(&p->stops, &i->stops);
}

void parting_take(struct parting *p, struct model_version *v, struct infer *inf, int status, bool unlinked)
{
    uint32_t state = atomic_load_explicit(&inf->state, memory_order_relaxed);
    enum series_where where = WHERE_QUEUE;
    if (state == INFER_QUEUED) {
        if (!unlinked)
            batcher_remove(v->batcher, &inf->item);
        list_remove(&inf->queued);
        atomic_fetch_sub_explicit(&v->home->queued_bytes, inf->item.bytes, memory_order_relaxed);
    } else {
        where = WHERE_RUNNING;
        empty_slot(p, v, inf);
    }
    inf->status = status;
    inf->priv = (void *)(uintptr_t)where;
    atomic_store_explicit(&inf->state, INFER_DONE, memory_order_relaxed);
    list_init(&inf->item.link);
    list_push_back(&p->items, &inf->item.link);
}

void parting_take_expired(struct parting *p, struct model_version *v, uint64_t now_ns)
{
    struct list expired;
    list_init(&expired);
    batcher_expire(v->batcher, now_ns, &expired);
    struct list *l;
    while ((l = list_pop_front(&expired)))
        parting_take(p, v, CONTAINER_OF(LIST_ENTRY(l, struct batch_item, link), struct infer, item), STATUS_DEADLINE, true);
    struct heap_node *n;
    uint64_t next = batcher_next_expiry(v->batcher);
    while ((n = heap_min(&v->running))) {
        struct batch_item *item = CONTAINER_OF(n, struct batch_item, expiry);
        if (item->deadline_ns > now_ns) {
            next = MIN_OF(next, item->deadline_ns);
            break;
        }
        parting_take(p, v, CONTAINER_OF(item, struct infer, item), STATUS_DEADLINE, false);
    }
    atomic_store(&v->next_expiry_ns, next);
}

void parting_take_run(struct parting *p, struct model_version *v, struct instance *i, int status)
{
    for (size_t k = 0; k < i->n_slots; k++) {
        struct infer *inf = i->slots[k].inf;
        if (inf && atomic_load_explicit(&inf->state, memory_order_relaxed) == INFER_RUNNING)
            parting_take(p, v, inf, status, false);
    }
}

void parting_take_all(struct parting *p, struct model_version *v, int status, bool running)
{
    struct list *l;
    while ((l = list_first(&v->queue)))
        parting_take(p, v, LIST_ENTRY(l, struct infer, queued), status, false);
    LIST_EACH(it, &v->instances)
    {
        if (running)
            parting_take_run(p, v, LIST_ENTRY(it, struct instance, link), status);
    }
}

static void explain(struct infer *inf)
{
    const struct model_version *v = inf->version;
    enum series_where where = (enum series_where)(uintptr_t)inf->priv;
    if (inf->status == STATUS_CANCELLED) {
        error_set(&inf->error, STATUS_CANCELLED, "the client went away");
        return;
    }
    unsigned long long ms = (os_monotonic_ns() - inf->times.queued_ns) / 1000000;
    error_set(&inf->error, inf->status,
              where == WHERE_QUEUE
                  ? "the deadline passed after %llu ms in the queue of model \"%.*s\": allow more time, or give "
                    "the model more instances"
                  : "the deadline passed after %llu ms while model \"%.*s\" was computing: allow more time",
              ms, STR_ARG(v->model));
}

static void stop_engine(struct instance *i)
{
    struct model_version *v = i->v;
    v->ops->cancel(i->engine);
    os_mutex_lock(&v->lock);
    i->pins--;
    os_cond_broadcast(&v->work);
    os_mutex_unlock(&v->lock);
    model_version_unref(v);
}

void parting_finish(struct parting *p, const char *text)
{
    struct list *l;
    while ((l = list_pop_front(&p->stops)))
        stop_engine(LIST_ENTRY(l, struct instance, stops));
    while ((l = list_pop_front(&p->items))) {
        struct infer *inf = CONTAINER_OF(LIST_ENTRY(l, struct batch_item, link), struct infer, item);
        struct series *s = inf->version->series;
        enum series_where where = (enum series_where)(uintptr_t)inf->priv;
        if (inf->status == STATUS_CANCELLED)
            metric_inc(s->cancelled[where]);
        else if (inf->status == STATUS_DEADLINE)
            metric_inc(s->deadline[where]);
        if (text)
            error_set(&inf->error, inf->status, "%s", text);
        else
            explain(inf);
        infer_finish(inf);
    }
}
