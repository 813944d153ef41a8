/* work.c: see work.h. A list under one lock; a condition wakes idle threads.
 *
 * Whether a work waits is told by its link alone: a thread unlinks it (list_remove makes it point to itself) under the lock
 * before it runs. There is no bound on the list's length: each entry is a request whose body is held already, and those are
 * bounded by limits.max_body_memory. */
#include "api/work.h"

#include <stdlib.h>

#include "base/check.h"
#include "os/thread.h"

#define WORK_THREADS_MAX 1024u

struct work_pool {
    struct os_mutex lock;
    struct os_cond wake;
    struct list waiting; /* struct work.link, oldest first */
    const char *name;
    int nice;
    uint32_t n_threads, max_threads, n_idle, n_waiting;
    bool closed;
    struct os_thread threads[]; /* [max_threads], the first n_threads run */
};

struct work_pool *work_pool_create(const char *name, uint32_t threads, int nice)
{
    ASSERT(threads > 0 && threads <= WORK_THREADS_MAX);
    struct work_pool *p = calloc(1, sizeof *p + threads * sizeof p->threads[0]);
    if (!p)
        return NULL;
    p->name = name;
    p->nice = nice;
    p->max_threads = threads;
    list_init(&p->waiting);
    os_mutex_init(&p->lock, RANK_LEAF);
    os_cond_init(&p->wake);
    return p;
}

static void thread_main(void *arg)
{
    struct work_pool *p = arg;
    if (p->nice)
        os_thread_set_nice(p->nice);
    os_mutex_lock(&p->lock);
    for (;;) {
        struct list *l = list_pop_front(&p->waiting);
        if (l) {
            struct work *w = LIST_ENTRY(l, struct work, link);
            p->n_waiting--;
            os_mutex_unlock(&p->lock);
            w->run(w);
            os_mutex_lock(&p->lock);
        } else if (p->closed) {
            break;
        } else {
            p->n_idle++;
            os_cond_wait(&p->wake, &p->lock);
            p->n_idle--;
        }
    }
    os_mutex_unlock(&p->lock);
}

/* Lock held. A thread that can't be started now is tried again with the next work. */
static void add_thread(struct work_pool *p)
{
    struct error err;
    if (p->n_threads < p->max_threads && os_thread_start(&p->threads[p->n_threads], p->name, thread_main, p, &err) == 0)
        p->n_threads++;
}

bool work_pool_add(struct work_pool *p, struct work *w)
{
    os_mutex_lock(&p->lock);
    if (!p->closed && p->n_waiting >= p->n_idle)
        add_thread(p);
    bool taken = !p->closed && p->n_threads > 0;
    if (taken) {
        list_push_back(&p->waiting, &w->link);
        p->n_waiting++;
        os_cond_signal(&p->wake);
    }
    os_mutex_unlock(&p->lock);
    return taken;
}

bool work_pool_remove(struct work_pool *p, struct work *w)
{
    os_mutex_lock(&p->lock);
    bool waiting = !list_empty(&w->link);
    p->n_waiting -= waiting;
    list_remove(&w->link);
    os_mutex_unlock(&p->lock);
    return waiting;
}

void work_pool_close(struct work_pool *p)
{
    os_mutex_lock(&p->lock);
    p->closed = true;
    uint32_t n = p->n_threads;
    p->n_threads = 0;
    os_cond_broadcast(&p->wake);
    os_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < n; i++)
        os_thread_join(&p->threads[i]);
}

void work_pool_destroy(struct work_pool *p)
{
    if (!p)
        return;
    work_pool_close(p);
    ASSERT(list_empty(&p->waiting));
    os_cond_release(&p->wake);
    os_mutex_release(&p->lock);
    free(p);
}
