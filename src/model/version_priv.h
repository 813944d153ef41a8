/* version_priv.h: for siblings in model/ only: one loaded model version with its queue and its instances.
 *
 * Life: version_create (loader thread: engine load, contract, instances, warm-up) -> published in a snapshot (READY) ->
 * superseded or unloaded: the registry drops its reference (DRAINING; requests that hold one go on being served) -> the last
 * reference goes -> version_destroy on a loader thread (join instances, unload the engine's model). Each request holds one
 * reference, each running batch one more, so a hung run keeps everything that it may touch.
 *
 * Locks: `lock` (RANK_QUEUE) guards the batcher, the running heap, the instance list and every infer.state transition. It is held
 * for list and heap operations only, never across an engine, a callback or an allocation that a request's size decides. */
#ifndef INFERD_MODEL_VERSION_PRIV_H
#define INFERD_MODEL_VERSION_PRIV_H

#include <stdatomic.h>

#include "base/arena.h"
#include "base/heap.h"
#include "base/list.h"
#include "model/cache_priv.h"
#include "model/contract_priv.h"
#include "model/infer.h"
#include "model/registry.h"
#include "model/series_priv.h"
#include "os/thread.h"
#include "sched/batcher.h"
#include "sched/delivery.h"
#include "sched/scaler.h"

/* infer.state. QUEUED: linked in the batcher. CLAIMED: an instance thread works on the request itself, nobody else may. RUNNING: the
 * engine has its data, the request may be answered without it (cancel, deadline, hang) by emptying its slot. */
enum infer_state { INFER_IDLE, INFER_QUEUED, INFER_CLAIMED, INFER_CLAIMED_CANCELLED, INFER_RUNNING, INFER_DONE };

struct instance;
struct entry;
struct warmup;

#define RUN_REQUESTS_BYTES 256

/* Something for a loader thread to do; embedded in what it is about. */
struct work {
    struct list link;
    void (*run)(struct work *w);
};

/* The memory that an instance gathers one input's batches in, kept from batch to batch; how large it may be, see gather.c. */
struct gather_buffer {
    struct slab *slab;   /* NULL: none kept */
    size_t peak, before; /* most bytes a batch took in this window and in the one before */
};

/* One request's place in a running batch. */
struct slot {
    struct infer *inf;    /* NULL: answered already */
    struct infer *answer; /* taken off `inf` by the instance's thread, which is about to answer it */
    struct instance *home;
    uint32_t rows;
};

struct instance {
    struct list link; /* version.instances */
    struct work reap; /* queued when it was shrunk away */
    struct model_version *v;
    struct engine_instance *engine;
    struct os_thread thread;
    bool started, stop; /* `stop` and the rest of this group: guarded by v->lock */
    bool exited;        /* the thread is past its last use of anything but this struct */
    bool abandoned;     /* all members of the running batch are gone: the engine was asked to stop */
    uint32_t pins;      /* threads that are about to call ops->cancel on it */
    struct list stops;  /* in a parting's list while pinned by it */
    struct slot *slots; /* [max_rows] */
    size_t n_slots;
    uint32_t run_id;               /* the batcher's name for the batch in the slots */
    uint64_t learned_ns;           /* how long the whole batch took in the engine; 0: it failed, or ran in parts */
    _Atomic uint64_t run_since_ns; /* the engine runs since then; 0: it doesn't */
    /* only this instance's thread */
    struct gather_buffer *buffer;      /* [n_inputs] reused batch inputs */
    uint32_t gathers;                  /* batches gathered: where the window of the peaks is */
    uint64_t served_ns;                /* when the last batch was taken */
    struct tensor *inputs;             /* [n_inputs] of the run */
    struct tensor *outputs;            /* [n_outputs] of the run */
    const struct tensor **members;     /* [max_rows] scratch of one input */
    bool *wanted;                      /* [n_outputs] */
    char requests[RUN_REQUESTS_BYTES]; /* ids of the members that run now, for the crash report; cut where it is full */
};

/* What the registry gives a version; outlives it. */
struct version_home {
    struct series_table series;
    struct logger *log;
    uint64_t hang_timeout_ns, default_deadline_ns;
    uint64_t queue_bytes_total; /* 0: no bound */
    _Atomic uint64_t queued_bytes;
    _Atomic bool closed; /* shutting down: submits are refused */
    /* the list of versions that have instances, for the expirer, the watchdog and the scraper */
    struct os_mutex live_lock; /* RANK_VERSION_STATE */
    struct list live;
    /* the service thread: expires on time and starts threads at normal priority */
    struct os_mutex service_lock; /* RANK_LEAF */
    struct os_cond service_cond;
    struct list spawn; /* struct spawn */
    bool service_stop;
    _Atomic uint64_t service_wake_ns;
    struct os_thread service;
    void (*retired)(struct version_home *h, struct model_version *v); /* the last reference went; any thread */
};

struct model_version {
    _Atomic uint32_t refs;
    struct version_home *home;
    struct arena arena;
    struct str model, name;
    struct model_config config;
    const struct engine_ops *ops;
    struct engine_model *engine;
    struct contract contract;
    struct batch_policy policy;
    struct series *series;
    struct cache *cache; /* NULL: off */
    uint64_t fingerprint;
    uint64_t reserved_bytes;         /* counted against the memory limit while loaded */
    struct list live;                /* home->live */
    struct work reap;                /* queued when the last reference is gone */
    struct entry *entry;             /* the registry's entry of this model; NULL outside a registry */
    bool written_off;                /* the entry doesn't count it any more; guarded by registry.lock */
    struct warmup *warmup;           /* under way, or given up and still in the engine; NULL */
    _Atomic bool hung;               /* the watchdog: every instance runs longer than it may */
    _Atomic bool unscatterable;      /* an output's rows did not follow the batch's: members run one by one */
    _Atomic uint64_t next_expiry_ns; /* lower bound of the earliest expiry; SCHED_NEVER: none */
    _Atomic uint64_t pending, busy_ns;
    struct delivery delivery; /* of its answers, to keep deadlines on the wire */

    struct os_mutex lock; /* RANK_QUEUE */
    struct os_cond work;
    struct batcher *batcher;
    struct heap running; /* by deadline, over item.expiry */
    struct list queue;   /* infer.queued, in order of arrival */
    struct list instances;
    uint32_t n_instances, idle;
    uint32_t n_hung;                     /* written by the control thread, which may read it without the lock */
    size_t n_created;                    /* instances ever: the index of the next one */
    bool scaling;                        /* a loader thread adds or removes one */
    struct scaler scaler;                /* control thread */
    uint64_t steps_seen, steps_since_ns; /* control thread: progress of a token engine */
};

/* Instances that the batcher may count on, at least one. v->lock held. */
static inline uint32_t version_healthy(const struct model_version *v)
{
    return v->n_instances > v->n_hung ? v->n_instances - v->n_hung : 1;
}

/* Set up / take down what versions share. The service thread starts and stops here. */
int version_home_init(struct version_home *h, struct error *err) MUST_CHECK;
void version_home_release(struct version_home *h);

/* version.c */
struct version_spec {
    struct str model, name;
    const struct engine_ops *ops;
    struct engine *engine;
    struct engine_load load;  /* dir, file; options and n_instances are filled from the config */
    struct seal_vault *vault; /* where load.files comes from */
    const struct config_labels {
        size_t output;
        struct str *lines;
        size_t n;
    } * labels;
    uint64_t fingerprint, reserved_bytes;
};
/* Load and build: engine model, contract, queue, `min` instances (their threads not started). `v->arena` and `v->config` have been
 * filled by version_new's caller. On error everything is released, `v` too. Loader thread, long. */
struct model_version *version_new(struct version_home *h);
int version_build(struct model_version *v, const struct version_spec *spec, struct error *err) MUST_CHECK;
/* Start the instance threads and join the live list: from now on it serves. */
int version_start(struct model_version *v, struct error *err) MUST_CHECK;
/* A reference, unless the last one is gone already (then false). For those who found `v` in the live list. */
bool version_try_ref(struct model_version *v);
/* The last reference is gone: stop and join instances, unload. Loader thread, may take long. Frees `v`. */
void version_destroy(struct model_version *v);
/* After the queue or the running heap got an earlier expiry: tell the service thread. v->lock held. */
void version_arm(struct model_version *v, uint64_t expiry_ns);

/* instance.c */
int instance_create(struct model_version *v, size_t index, struct instance **out, struct error *err) MUST_CHECK;
/* Start its thread through the service thread, so that it doesn't inherit a loader's low priority. */
int instance_start(struct instance *i, struct error *err) MUST_CHECK;
/* Join (when started; it must have been told to stop) and free. */
void instance_destroy(struct instance *i);

/* warmup_limit.c. Before a run of the warm-up on `next`: whether anybody still waits for it. */
bool warmup_goes_on(struct model_version *v, struct engine_instance *next);
/* Join its thread, which is at its end, and free it. NULL is accepted. */
void warmup_join(struct warmup *w);

/* batch.c: run the requests in i->slots (CLAIMED). Instance thread, no locks. */
void batch_run(struct instance *i);

/* parting.c: requests that leave before their answer (cancelled, expired, failed by the watchdog) are collected under the lock and
 * finished after it. */
struct parting {
    struct list items; /* infer.item.link */
    struct list stops; /* instance.stops: their engines are to be asked to stop */
};
void parting_init(struct parting *p);
/* `inf` is QUEUED in v's batcher, or off it already (`unlinked`), or RUNNING: take it for `status`. v->lock held. */
void parting_take(struct parting *p, struct model_version *v, struct infer *inf, int status, bool unlinked);
/* Take all that are past their deadline; lowers nothing but v->next_expiry_ns. v->lock held. */
void parting_take_expired(struct parting *p, struct model_version *v, uint64_t now_ns);
/* Take what the engine of `i` has. v->lock held. */
void parting_take_run(struct parting *p, struct model_version *v, struct instance *i, int status);
/* Take everything queued; with `running` also what is in the engine. v->lock held. */
void parting_take_all(struct parting *p, struct model_version *v, int status, bool running);
/* Answer them; `text` (may be NULL: made from status and times) is the client-facing sentence. No locks held. */
void parting_finish(struct parting *p, const char *text);

/* gather.c: build i->inputs from the slots [first, first + n): INVALID when the members' shapes do not fit together. */
int gather_inputs(struct instance *i, size_t first, size_t n, struct error *err) MUST_CHECK;
/* Drop references that i->inputs hold. */
void gather_release(struct instance *i);
/* When an instance that stays idle is to give its buffers back; SCHED_NEVER when it keeps none. */
uint64_t gather_trim_at(const struct instance *i);
/* Give them back. Instance thread. */
void gather_trim(struct instance *i);
/* Outputs of member `inf`, rows [at, at + rows) of `total`, from i->outputs; cut back. Fills inf->outputs. */
int scatter_outputs(struct instance *i, struct infer *inf, uint32_t at, uint32_t total, struct error *err) MUST_CHECK;

/* infer.c: the request ends here: counts it and calls done(), after which `inf` is gone. inf->status and inf->error are set. The
 * caller owns the request (CLAIMED, or DONE by parting_take). No locks held. */
void infer_finish(struct infer *inf);
/* The same, inside begin and end of inf->waker. */
void infer_finish_in_burst(struct infer *inf, uint64_t now_ns);

/* One thread to start at normal priority. */
struct spawn {
    struct list link;
    struct os_thread *thread;
    const char *name;
    void (*run)(void *);
    void *arg;
    int rc;
    bool finished;
    struct error err;
};
/* Start a thread from the service thread and wait until it runs. */
int version_spawn(struct version_home *h, struct spawn *s, struct error *err) MUST_CHECK;

#endif
