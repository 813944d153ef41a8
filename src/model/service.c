/* service.c: the thread that keeps time for all versions, and starts other threads.
 *
 * Expiry must be on time while every instance is busy, so it can't be their job alone. The service thread sleeps until the earliest
 * expiry of any version. Each version publishes a lower bound of its own (next_expiry_ns); it is lowered under the version's lock
 * when an earlier one comes in and raised only here, so with a usual deadline of seconds this thread wakes about once per deadline,
 * not once per request. Sleeping and arming meet in service_wake_ns: while the thread looks around it is SCHED_NEVER, so that
 * every arming meanwhile takes the lock and leaves its time there.
 *
 * Threads are started here because a new thread inherits the nice value of the one that starts it, and loaders run niced. */
#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "model/version_priv.h"
#include "os/clock.h"

void version_arm(struct model_version *v, uint64_t expiry_ns)
{
    if (expiry_ns >= atomic_load(&v->next_expiry_ns))
        return;
    struct version_home *h = v->home;
    atomic_store(&v->next_expiry_ns, expiry_ns);
    if (expiry_ns >= atomic_load(&h->service_wake_ns))
        return;
    os_mutex_lock(&h->service_lock);
    if (expiry_ns < atomic_load(&h->service_wake_ns)) {
        atomic_store(&h->service_wake_ns, expiry_ns);
        os_cond_broadcast(&h->service_cond);
    }
    os_mutex_unlock(&h->service_lock);
}

int version_spawn(struct version_home *h, struct spawn *s, struct error *err)
{
    list_init(&s->link);
    s->finished = false;
    os_mutex_lock(&h->service_lock);
    list_push_back(&h->spawn, &s->link);
    os_cond_broadcast(&h->service_cond);
    while (!s->finished)
        os_cond_wait(&h->service_cond, &h->service_lock);
    os_mutex_unlock(&h->service_lock);
    if (s->rc && err)
        *err = s->err;
    return s->rc;
}

/* Expire what is due in every version; the earliest time that is left. */
static uint64_t look_around(struct version_home *h)
{
    uint64_t now = os_monotonic_ns(), next = SCHED_NEVER;
    struct parting p;
    parting_init(&p);
    os_mutex_lock(&h->live_lock);
    LIST_EACH(it, &h->live)
    {
        struct model_version *v = LIST_ENTRY(it, struct model_version, live);
        if (atomic_load(&v->next_expiry_ns) <= now) {
            os_mutex_lock(&v->lock);
            parting_take_expired(&p, v, now);
            os_mutex_unlock(&v->lock);
        }
        next = MIN_OF(next, atomic_load(&v->next_expiry_ns));
    }
    os_mutex_unlock(&h->live_lock);
    parting_finish(&p, NULL);
    return next;
}

/* service_lock held; given up while a thread is started. */
static void start_threads(struct version_home *h)
{
    struct list *l;
    while ((l = list_pop_front(&h->spawn))) {
        struct spawn *s = LIST_ENTRY(l, struct spawn, link);
        os_mutex_unlock(&h->service_lock);
        s->rc = os_thread_start(s->thread, s->name, s->run, s->arg, &s->err);
        os_mutex_lock(&h->service_lock);
        s->finished = true;
        os_cond_broadcast(&h->service_cond);
    }
}

static void service_main(void *arg)
{
    struct version_home *h = arg;
    os_mutex_lock(&h->service_lock);
    while (!h->service_stop) {
        start_threads(h);
        atomic_store(&h->service_wake_ns, SCHED_NEVER);
        os_mutex_unlock(&h->service_lock);
        uint64_t next = look_around(h);
        os_mutex_lock(&h->service_lock);
        uint64_t wake = MIN_OF(next, atomic_load(&h->service_wake_ns));
        atomic_store(&h->service_wake_ns, wake);
        while (!h->service_stop && list_empty(&h->spawn) && os_monotonic_ns() < (wake = atomic_load(&h->service_wake_ns)))
            os_cond_wait_until(&h->service_cond, &h->service_lock, wake);
    }
    os_mutex_unlock(&h->service_lock);
}

int version_home_init(struct version_home *h, struct error *err)
{
    os_mutex_init(&h->live_lock, RANK_VERSION_STATE);
    os_mutex_init(&h->service_lock, RANK_LEAF);
    os_cond_init(&h->service_cond);
    list_init(&h->live);
    list_init(&h->spawn);
    atomic_init(&h->service_wake_ns, SCHED_NEVER);
    return os_thread_start(&h->service, "expirer", service_main, h, err);
}

void version_home_release(struct version_home *h)
{
    os_mutex_lock(&h->service_lock);
    h->service_stop = true;
    os_cond_broadcast(&h->service_cond);
    os_mutex_unlock(&h->service_lock);
    os_thread_join(&h->service);
    ASSERT(list_empty(&h->live));
    os_cond_release(&h->service_cond);
    os_mutex_release(&h->service_lock);
    os_mutex_release(&h->live_lock);
}
