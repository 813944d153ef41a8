/* thread.c: pthread wrappers. The rank check keeps a per-thread chain of held mutexes (debug builds). */
#include "os/thread.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "os/crash.h"

#ifdef INFERD_DEBUG
static _Thread_local struct os_mutex *held; /* most recent; linked by `below` */

static void rank_push(struct os_mutex *m)
{
    for (struct os_mutex *h = held; h; h = h->below)
        ASSERT(h->rank < m->rank);
    m->below = held;
    held = m;
}

static void rank_pop(struct os_mutex *m)
{
    struct os_mutex **at = &held;
    while (*at && *at != m)
        at = &(*at)->below;
    ASSERT(*at == m);
    *at = m->below;
}
#else
static void rank_push(struct os_mutex *m)
{
    (void)m;
}
static void rank_pop(struct os_mutex *m)
{
    (void)m;
}
#endif

void os_mutex_init(struct os_mutex *m, enum lock_rank rank)
{
    *m = (struct os_mutex){.rank = rank};
    ASSERT(pthread_mutex_init(&m->m, NULL) == 0);
}

void os_mutex_release(struct os_mutex *m)
{
    ASSERT(pthread_mutex_destroy(&m->m) == 0);
}

void os_mutex_lock(struct os_mutex *m)
{
    ASSERT(pthread_mutex_lock(&m->m) == 0);
    rank_push(m);
}

void os_mutex_unlock(struct os_mutex *m)
{
    rank_pop(m);
    ASSERT(pthread_mutex_unlock(&m->m) == 0);
}

void os_cond_init(struct os_cond *c)
{
    pthread_condattr_t attr;
    ASSERT(pthread_condattr_init(&attr) == 0);
    ASSERT(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
    ASSERT(pthread_cond_init(&c->c, &attr) == 0);
    pthread_condattr_destroy(&attr);
}

void os_cond_release(struct os_cond *c)
{
    ASSERT(pthread_cond_destroy(&c->c) == 0);
}
void os_cond_signal(struct os_cond *c)
{
    pthread_cond_signal(&c->c);
}
void os_cond_broadcast(struct os_cond *c)
{
    pthread_cond_broadcast(&c->c);
}

void os_cond_wait(struct os_cond *c, struct os_mutex *m)
{
    rank_pop(m);
    pthread_cond_wait(&c->c, &m->m);
    rank_push(m);
}

bool os_cond_wait_until(struct os_cond *c, struct os_mutex *m, uint64_t until_ns)
{
    if (until_ns == UINT64_MAX) {
        os_cond_wait(c, m);
        return true;
    }
    struct timespec ts = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    rank_pop(m);
    int rc = pthread_cond_timedwait(&c->c, &m->m, &ts);
    rank_push(m);
    return rc == 0;
}

static const int crash_signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

static void *thread_main(void *arg)
{
    struct os_thread *t = arg;
    pthread_setname_np(pthread_self(), t->name);
    void *stack = os_crash_stack_enter();
    t->run(t->arg);
    os_crash_stack_leave(stack);
    return NULL;
}

int os_thread_start(struct os_thread *t, const char *name, void (*run)(void *arg), void *arg, struct error *err)
{
    sigset_t all, old;
    t->run = run;
    t->arg = arg;
    snprintf(t->name, sizeof t->name, "%s", name);
    sigfillset(&all);
    for (size_t i = 0; i < COUNT_OF(crash_signals); i++)
        sigdelset(&all, crash_signals[i]); /* a blocked fault would kill without a report */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&t->t, NULL, thread_main, t);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc)
        return error_set(err, STATUS_IO, "cannot start thread %s: %s", name, strerror(rc));
    return 0;
}

void os_thread_join(struct os_thread *t)
{
    ASSERT(pthread_join(t->t, NULL) == 0);
}

void os_thread_set_nice(int nice)
{
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), nice);
}
