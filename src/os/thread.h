/* thread.h: threads, mutexes with ranks, conditions on the monotonic clock.
 *
 * Lock order is a ranked enum: a thread may only lock a mutex whose rank is higher than every rank it holds. Debug builds
 * check it at every lock (jemalloc's witness idea); docs/locks.md lists what each rank guards. No lock is held across a call
 * into an engine, a library or a callback. */
#ifndef INFERD_OS_THREAD_H
#define INFERD_OS_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum lock_rank {
    RANK_RELOAD = 5,         /* cli/: one configuration reload at a time */
    RANK_REGISTRY = 10,      /* model/: publishing a new set of models, load queue */
    RANK_VERSION_STATE = 20, /* model/: one version's state, reason, instance list */
    RANK_CALLS = 25,         /* api/: generations under way, and those that wait to be prepared */
    RANK_ROUTES = 27,        /* gateway/: the current table of routes */
    RANK_POOL = 28,          /* gateway/: one upstream pool */
    RANK_QUEUE = 30,         /* model/: one version's batcher */
    RANK_CACHE = 40,         /* model/: response cache */
    RANK_ENGINE = 50,        /* engine/: private to one engine */
    RANK_METRICS = 60,       /* obs/: family and series tables */
    RANK_LOG = 70,           /* obs/: sinks */
    RANK_LEAF = 100,         /* holds nothing else, ever */
};

struct os_mutex {
    pthread_mutex_t m;
    enum lock_rank rank;
    struct os_mutex *below; /* the lock taken before this one by the holding thread; debug builds only */
};

void os_mutex_init(struct os_mutex *m, enum lock_rank rank);
void os_mutex_release(struct os_mutex *m);
void os_mutex_lock(struct os_mutex *m);
void os_mutex_unlock(struct os_mutex *m);

struct os_cond {
    pthread_cond_t c;
};
void os_cond_init(struct os_cond *c); /* CLOCK_MONOTONIC */
void os_cond_release(struct os_cond *c);
void os_cond_signal(struct os_cond *c);
void os_cond_broadcast(struct os_cond *c);
void os_cond_wait(struct os_cond *c, struct os_mutex *m);
/* Until signalled or monotonic `until_ns`; UINT64_MAX waits for ever. False: the time came. */
bool os_cond_wait_until(struct os_cond *c, struct os_mutex *m, uint64_t until_ns);

struct os_thread {
    pthread_t t;
    void (*run)(void *arg);
    void *arg;
    char name[16];
};

/* Start `run(arg)` with all signals blocked but those of a crash (the main thread handles the others) and the name shown by ps -L, cut to 15 characters.
 * `t` must stay valid until os_thread_join. */
int os_thread_start(struct os_thread *t, const char *name, void (*run)(void *arg), void *arg, struct error *err) MUST_CHECK;
void os_thread_join(struct os_thread *t);
/* Lower this thread's scheduling priority (nice value), best effort: loader threads. */
void os_thread_set_nice(int nice);

#endif
