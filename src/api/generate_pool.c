/* generate_pool.c: the threads that turn a body into prompt tokens and submit them.
 *
 * Rendering a template over a long conversation, tokenizing it and compiling a grammar take milliseconds to seconds; an I/O thread has
 * thousands of other connections. Two threads of work.h take calls from one queue, bounded here: a call is heap memory of its own. */
#include "api/generate_priv.h"
#include "base/size.h"
#include "base/status.h"

#define UNPREPARED_MAX 1024u
#define WORKERS        2u

int generate__pool_init(struct gen_pool *p)
{
    p->workers = work_pool_create("prepare", WORKERS, 0);
    if (!p->workers)
        return STATUS_NOMEM;
    os_mutex_init(&p->lock, RANK_CALLS);
    os_cond_init(&p->idle);
    list_init(&p->live);
    return 0;
}

void generate__pool_release(struct gen_pool *p)
{
    work_pool_destroy(p->workers);
    os_cond_release(&p->idle);
    os_mutex_release(&p->lock);
}

/* Whether or not a worker ran: the call isn't the workers' any more. Lock held. */
static void count_prepared(struct gen_pool *p)
{
    p->n_unprepared--;
    os_cond_broadcast(&p->idle);
}

static void run(struct work *w)
{
    struct gen_call *c = LIST_ENTRY(w, struct gen_call, job);
    struct gen_pool *p = &c->api->gen; /* the call may be gone once it is posted */
    generate__work(c);
    os_mutex_lock(&p->lock);
    count_prepared(p);
    os_mutex_unlock(&p->lock);
}

int generate__pool_push(struct gen_pool *p, struct gen_call *c, struct error *err)
{
    os_mutex_lock(&p->lock);
    uint32_t n = p->n_unprepared;
    if (n < UNPREPARED_MAX) {
        list_push_back(&p->live, &c->link);
        p->n_unprepared++;
    }
    os_mutex_unlock(&p->lock);
    if (n >= UNPREPARED_MAX)
        return error_set(err, STATUS_EXHAUSTED, "the queue is full: %u requests wait to be read; try again later", n);
    c->job.run = run;
    if (work_pool_add(p->workers, &c->job))
        return 0;
    os_mutex_lock(&p->lock);
    list_remove(&c->link);
    count_prepared(p);
    os_mutex_unlock(&p->lock);
    return error_set(err, STATUS_EXHAUSTED, "no thread could be started to read this request; try again later");
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
    while (p->n_unprepared) /* from here on no worker touches a call or the registry */
        os_cond_wait(&p->idle, &p->lock);
    LIST_EACH(l, &p->live)
    generate__cancel_ids(LIST_ENTRY(l, struct gen_call, link));
    os_mutex_unlock(&p->lock);
}
