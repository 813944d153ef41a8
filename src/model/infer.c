/* infer.c: a request's way in and out.
 *
 * States (infer.state; every change under the version's lock, but for the first and the last):
 *
 *     IDLE -submit-> QUEUED -batch closed-> CLAIMED -gathered-> RUNNING -engine returned-> CLAIMED -sliced-> DONE
 *                      |                       |                   |
 *                      +-- cancel, expiry -----+(at the next step) +---> DONE (the batch goes on without it)
 *
 * DONE means that exactly one thread goes on to call done(). The deadline is the least of the request's own (header, KServe
 * `timeout`) and the model's default, from the moment the request was received; it covers queue and run. Under a fixed batching
 * policy that declares Triton queue policies, `timeout` keeps Triton's meaning (queue time, REJECT or DELAY) instead. */
#include <string.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/size.h"
#include "base/status.h"
#include "model/version_priv.h"
#include "os/clock.h"

#define NS_PER_MS 1000000u

void infer_init(struct infer *inf)
{
    memset(inf, 0, sizeof *inf);
    inf->deadline_ns = SCHED_NEVER;
    list_init(&inf->queued);
    list_init(&inf->item.link);
    heap_node_init(&inf->item.expiry);
}

void infer_release(struct infer *inf)
{
    struct model_version *v = inf->version;
    for (size_t i = 0; i < inf->n_inputs; i++)
        tensor_release(&inf->inputs[i]);
    inf->n_inputs = 0;
    for (size_t o = 0; v && inf->outputs && o < v->contract.c.n_outputs; o++) {
        tensor_release(&inf->outputs[o]);
        inf->outputs[o].dtype = DTYPE_INVALID;
    }
    inf->version = NULL;
    model_version_unref(v);
}

void infer_finish_in_burst(struct infer *inf, uint64_t now)
{
    struct model_version *v = inf->version;
    atomic_store_explicit(&inf->state, INFER_DONE, memory_order_release);
    series_request(v->series, inf, now);
    atomic_fetch_sub_explicit(&v->pending, 1, memory_order_relaxed);
    inf->done(inf);
}

void infer_finish(struct infer *inf)
{
    struct infer_waker *w = inf->waker;
    if (w)
        w->begin(w);
    infer_finish_in_burst(inf, os_monotonic_ns());
    if (w)
        w->end(w);
}

/* An idle instance is to look at the queue of `v`: now, or when the caller has handed in what it has. */
static void wake_or_note(struct model_version *v, struct infer_wakes *later)
{
    for (size_t i = 0; later && i < later->n; i++)
        if (later->versions[i] == v)
            return;
    if (later && later->n < INFER_WAKES_MAX)
        later->versions[later->n++] = model_version_ref(v);
    else
        os_cond_signal(&v->work);
}

void infer_wake(struct infer_wakes *w)
{
    for (size_t i = 0; i < w->n; i++) {
        os_cond_signal(&w->versions[i]->work);
        model_version_unref(w->versions[i]);
    }
    w->n = 0;
}

static bool triton_timeouts(const struct model_version *v)
{
    if (v->policy.mode != BATCH_FIXED)
        return false;
    for (size_t i = 0; i < COUNT_OF(v->policy.queue); i++)
        if (v->policy.queue[i].delay_on_timeout || v->policy.queue[i].default_timeout_ns ||
            v->policy.queue[i].allow_timeout_override)
            return true;
    return false;
}

static uint64_t after(uint64_t start, uint64_t ns)
{
    return ns > SCHED_NEVER - 1 - start ? SCHED_NEVER : start + ns;
}

static void set_deadline(const struct model_version *v, struct infer *inf, uint64_t now)
{
    uint64_t start = inf->times.received_ns ? inf->times.received_ns : now, ms = v->config.default_deadline_ms;
    uint64_t fallback = ms ? MIN_OF(ms, SCHED_NEVER / NS_PER_MS) * NS_PER_MS : v->home->default_deadline_ns;
    uint64_t d = inf->deadline_ns;
    if (fallback)
        d = MIN_OF(d, after(start, fallback));
    if (triton_timeouts(v))
        inf->item.timeout_ns = inf->timeout_ns;
    else if (inf->timeout_ns)
        d = MIN_OF(d, after(start, inf->timeout_ns));
    if (d != SCHED_NEVER && d > now)
        d -= delivery_allowance_ns(&v->delivery, d - now);
    inf->item.deadline_ns = d;
    inf->item.priority = inf->priority;
    inf->item.class = inf->class;
    inf->item.tenant = inf->tenant;
}

static int check_serving(const struct model_version *v, struct error *err)
{
    if (v->contract.c.face == ENGINE_TOKEN)
        return error_set(err, STATUS_INVALID, "model \"%.*s\" generates text: use generate, the OpenAI endpoints, or gRPC",
                         STR_ARG(v->model));
    if (atomic_load_explicit(&v->home->closed, memory_order_acquire))
        return error_set(err, STATUS_UNAVAILABLE, "the server is shutting down: send the request to another replica");
    if (atomic_load_explicit(&v->hung, memory_order_acquire))
        return error_set(err, STATUS_UNAVAILABLE, "model \"%.*s\" is not ready: its instances have stopped answering",
                         STR_ARG(v->model));
    return 0;
}

static bool answer_from_cache(struct model_version *v, struct infer *inf)
{
    uint64_t start = os_monotonic_ns();
    bool hit = cache_get(v->cache, inf, v->contract.c.n_outputs);
    struct atomic_duration *d = hit ? &v->series->cache_hit : &v->series->cache_miss;
    atomic_fetch_add_explicit(&d->count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&d->ns, os_monotonic_ns() - start, memory_order_relaxed);
    metric_inc(hit ? v->series->cache_hits : v->series->cache_misses);
    if (!hit)
        return false;
    for (size_t o = 0; o < v->contract.c.n_outputs; o++)
        inf->outputs[o].name = v->contract.c.outputs[o].name;
    inf->cache_hit = true;
    inf->batch_rows = inf->rows;
    inf->times.output_ns = os_monotonic_ns();
    return true;
}

/* Bytes of all models' queues together. */
static int reserve_bytes(struct model_version *v, uint64_t bytes, struct error *err)
{
    struct version_home *h = v->home;
    uint64_t before = atomic_fetch_add_explicit(&h->queued_bytes, bytes, memory_order_relaxed);
    if (!h->queue_bytes_total || before + bytes <= h->queue_bytes_total)
        return 0;
    atomic_fetch_sub_explicit(&h->queued_bytes, bytes, memory_order_relaxed);
    metric_inc(v->series->rejected[REJECT_TOTAL]);
    return error_set(err, STATUS_EXHAUSTED,
                     "the queues of all models hold %llu of %llu bytes and this request has %llu: try again later",
                     (unsigned long long)before, (unsigned long long)h->queue_bytes_total, (unsigned long long)bytes);
}

static int enqueue(struct model_version *v, struct infer *inf, uint64_t now, struct infer_wakes *later, struct error *err)
{
    os_mutex_lock(&v->lock);
    /* again under the lock: who closes or fails the queue does it under the lock after setting the flag */
    int rc = check_serving(v, err);
    if (!rc)
        rc = batcher_admit(v->batcher, &inf->item, now, err);
    if (rc) {
        os_mutex_unlock(&v->lock);
        return rc;
    }
    atomic_store_explicit(&inf->state, INFER_QUEUED, memory_order_relaxed);
    list_push_back(&v->queue, &inf->queued);
    version_arm(v, batcher_next_expiry(v->batcher));
    bool wake = v->idle > 0;
    os_mutex_unlock(&v->lock);
    /* from here on `inf` may be gone; `v` is held by infer_submit */
    if (wake)
        wake_or_note(v, later);
    return 0;
}

static void finish_from_cache(struct model_version *v, struct infer *inf)
{
    atomic_fetch_add_explicit(&v->pending, 1, memory_order_relaxed);
    inf->status = STATUS_OK;
    infer_finish(inf);
}

int infer_answer_cached(struct infer *inf, struct error *err)
{
    struct model_version *v = inf->version;
    int rc = contract_check(&v->contract, inf, err);
    if (rc)
        return rc;
    inf->times.queued_ns = os_monotonic_ns();
    if (!v->cache || !answer_from_cache(v, inf))
        return error_set(err, STATUS_NOT_FOUND, "there is no cached answer to this request");
    finish_from_cache(v, inf);
    return 0;
}

int infer_submit(struct infer *inf, struct infer_wakes *later, struct error *err)
{
    struct model_version *v = inf->version;
    ASSERT(inf->done && v);
    int rc = check_serving(v, err);
    int fault = rc ? 0 : fault_point("queue_push");
    if (fault)
        rc = error_set(err, fault, "a fault was injected");
    if (!rc)
        rc = contract_check(&v->contract, inf, err);
    if (rc)
        return rc;
    uint64_t now = os_monotonic_ns();
    inf->times.queued_ns = now;
    set_deadline(v, inf, now);
    if (v->cache && answer_from_cache(v, inf)) {
        finish_from_cache(v, inf);
        return 0;
    }
    rc = reserve_bytes(v, inf->item.bytes, err);
    if (rc)
        return rc;
    model_version_ref(v); /* done() may drop the request's reference before the wake-up below is through */
    atomic_fetch_add_explicit(&v->pending, 1, memory_order_relaxed);
    uint64_t bytes = inf->item.bytes;
    rc = enqueue(v, inf, now, later, err);
    if (rc) {
        atomic_fetch_sub_explicit(&v->pending, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&v->home->queued_bytes, bytes, memory_order_relaxed);
        if (rc == STATUS_EXHAUSTED)
            metric_inc(v->series->rejected[REJECT_MODEL]);
        else if (rc == STATUS_DEADLINE)
            metric_inc(v->series->deadline[WHERE_ADMISSION]);
    }
    model_version_unref(v);
    return rc;
}

void infer_cancel(struct infer *inf)
{
    struct model_version *v = inf->version;
    if (!v || atomic_load_explicit(&inf->state, memory_order_acquire) == INFER_DONE)
        return;
    struct parting p;
    parting_init(&p);
    os_mutex_lock(&v->lock);
    switch ((enum infer_state)atomic_load_explicit(&inf->state, memory_order_relaxed)) {
    case INFER_QUEUED:
    case INFER_RUNNING:
        parting_take(&p, v, inf, STATUS_CANCELLED, false);
        break;
    case INFER_CLAIMED: {
        /* against the one change that is made without the lock: CLAIMED -> DONE */
        uint32_t claimed = INFER_CLAIMED;
        atomic_compare_exchange_strong_explicit(&inf->state, &claimed, INFER_CLAIMED_CANCELLED, memory_order_relaxed,
                                                memory_order_relaxed);
        break;
    }
    case INFER_IDLE:
    case INFER_CLAIMED_CANCELLED:
    case INFER_DONE:
        break;
    }
    os_mutex_unlock(&v->lock);
    parting_finish(&p, NULL);
}
