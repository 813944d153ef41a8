/* generate_pool.c: the threads that turn a body into prompt tokens and submit them.
 *
 * Rendering a template over a long conversation, tokenizing it and compiling a grammar take milliseconds to seconds; an I/O thread has
 * thousands of other connections. Two threads, started with the first generation, take calls from one bounded queue. */
#include "api/generate_priv.h"
#include "base/size.h"
#include "base/status.h"

#define JOBS_MAX 1024u

void generate__pool_init(struct gen_pool *p)
{
    os_mutex_init(&p->lock, RANK_CALLS);
    os_cond_init(&p->work);
    os_cond_init(&p->idle);
    list_init(&p->live);
    list_init(&p->jobs);
}

void generate__pool_release(struct gen_pool *p)
{
    os_mutex_lock(&p->lock);
    p->stop = true;
    os_cond_broadcast(&p->work);
    os_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->n_threads; i++)
        os_thread_join(&p->threads[i]);
    os_cond_release(&p->work);
    os_cond_release(&p->idle);
    os_mutex_release(&p->lock);
}

static void work_main(void *arg)
{
    struct gen_pool *p = arg;
    os_mutex_lock(&p->lock);
    for (;;) {
        struct list *l = list_pop_front(&p->jobs);
        if (l) {
            p->n_jobs--;
            p->n_busy++;
            os_mutex_unlock(&p->lock);
            generate__work(LIST_ENTRY(l, struct gen_call, job));
            os_mutex_lock(&p->lock);
            p->n_busy--;
            os_cond_broadcast(&p->idle);
        } else if (p->stop) {
            break;
        } else {
            os_cond_wait(&p->work, &p->lock);
        }
    }
    os_mutex_unlock(&p->lock);
}

int generate__pool_push(struct gen_pool *p, struct gen_call *c, struct error *err)
{
    int rc = 0;
    os_mutex_lock(&p->lock);
    while (rc == 0 && p->n_threads < COUNT_OF(p->threads)) {
        rc = os_thread_start(&p->threads[p->n_threads], "prepare", work_main, p, err);
        p->n_threads += rc == 0;
    }
    rc = p->n_threads ? 0 : rc;
    if (rc == 0 && p->n_jobs >= JOBS_MAX)
        rc = error_set(err, STATUS_EXHAUSTED, "the queue is full: %u requests wait to be read; try again later", p->n_jobs);
    if (rc == 0) {
        list_push_back(&p->live, &c->link);
        list_push_back(&p->jobs, &c->job);
        p->n_jobs++;
        os_cond_signal(&p->work);
    }
    os_mutex_unlock(&p->lock);
    return rc;
}

void generate__pool_remove(struct gen_pool *p, struct gen_call *c)
{
    os_mutex_lock(&p->lock);
    list_remove(&c->link);
    os_mutex_unlock(&p->lock);
}

void generate__cancel_ids(struct gen_call *c)
{
    for (size_t i = 0; i < c->n_prompts; i++) {
        uint64_t id = atomic_load(&c->prompts[i].id);
        if (id)
            model_version_ops(c->version)->cancel_id(model_version_engine(c->version), id);
    }
}

void api_cancel_generations(struct api *a)
{
    struct gen_pool *p = &a->gen;
    os_mutex_lock(&p->lock);
    LIST_EACH(l, &p->live)
    atomic_store(&LIST_ENTRY(l, struct gen_call, link)->cancelled, true);
    while (p->n_jobs || p->n_busy) /* from here on no worker touches a call or the registry */
        os_cond_wait(&p->idle, &p->lock);
    LIST_EACH(l, &p->live)
    generate__cancel_ids(LIST_ENTRY(l, struct gen_call, link));
    os_mutex_unlock(&p->lock);
}
