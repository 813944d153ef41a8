/* batch.c: one batch from claimed requests to answers.
 *
 * Steps: gather (the requests are CLAIMED: nobody else may touch them), then RUNNING while the engine computes (each may leave: its
 * slot is emptied and its rows are computed for nobody), then CLAIMED again for slicing, then answered. When a batch of several
 * fails in any step, its members run singly once, so that only the one at fault fails; while one of them runs, the others wait as
 * RUNNING ones and may leave as well. A batch whose outputs do not have the batch's rows cannot be cut up: that model's batches
 * run member by member from then on (model_version.unscatterable), and the log says so once. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/status.h"
#include "model/version_priv.h"
#include "os/clock.h"

#define STRAY_CANCELS 3 /* a cancel meant for the batch before may hit this one: try again so often */

static void leave_running(struct model_version *v, struct infer *inf)
{
    if (heap_contains(&inf->item.expiry))
        heap_remove(&v->running, &inf->item.expiry);
    atomic_store_explicit(&inf->state, INFER_CLAIMED, memory_order_relaxed);
}

/* CLAIMED -> RUNNING, or out: a member that was cancelled or expired meanwhile leaves. Members still there. v->lock held. */
static size_t release_members(struct instance *i, size_t first, size_t n, uint64_t now, struct parting *p)
{
    struct model_version *v = i->v;
    size_t members = 0;
    for (size_t j = first; j < first + n; j++) {
        struct infer *inf = i->slots[j].inf;
        if (!inf)
            continue;
        uint32_t state = atomic_load_explicit(&inf->state, memory_order_relaxed);
        inf->priv = &i->slots[j];
        atomic_store_explicit(&inf->state, INFER_RUNNING, memory_order_relaxed);
        if (state == INFER_CLAIMED_CANCELLED || inf->item.deadline_ns <= now) {
            parting_take(p, v, inf, state == INFER_CLAIMED_CANCELLED ? STATUS_CANCELLED : STATUS_DEADLINE, false);
            continue;
        }
        members++;
        if (inf->item.deadline_ns == SCHED_NEVER)
            continue;
        heap_push(&v->running, &inf->item.expiry);
        version_arm(v, inf->item.deadline_ns);
    }
    return members;
}

/* RUNNING -> CLAIMED for those still there. v->lock held. */
static size_t reclaim_members(struct instance *i, size_t first, size_t n)
{
    size_t members = 0;
    for (size_t j = first; j < first + n; j++)
        if (i->slots[j].inf) {
            leave_running(i->v, i->slots[j].inf);
            members++;
        }
    return members;
}

static void wanted_of(struct instance *i, size_t first, size_t n)
{
    size_t n_outputs = i->v->contract.c.n_outputs;
    for (size_t o = 0; o < n_outputs; o++) {
        i->wanted[o] = false;
        for (size_t j = first; j < first + n; j++) {
            const struct infer *inf = i->slots[j].inf;
            i->wanted[o] |= inf && (!inf->wanted || inf->wanted[o]);
        }
    }
}

static uint32_t rows_of(const struct instance *i, size_t first, size_t n)
{
    uint32_t rows = 0;
    for (size_t j = first; j < first + n; j++)
        rows += i->slots[j].rows;
    return rows;
}

static void outputs_release(struct instance *i)
{
    for (size_t o = 0; o < i->v->contract.c.n_outputs; o++) {
        tensor_release(&i->outputs[o]);
        i->outputs[o] = (struct tensor){0};
    }
}

/* Of several members each output must have one row a row of the batch. */
static bool scatterable(const struct instance *i, uint32_t rows)
{
    for (size_t o = 0; o < i->v->contract.c.n_outputs; o++)
        if (i->wanted[o] && (!i->outputs[o].shape.rank || i->outputs[o].shape.dim[0] != (int64_t)rows))
            return false;
    return true;
}

/* Slots are emptied under the lock, since others look through them. */
static void answer_failed(struct instance *i, size_t at, int status, struct error *err)
{
    os_mutex_lock(&i->v->lock);
    struct infer *inf = i->slots[at].inf;
    i->slots[at].inf = NULL;
    os_mutex_unlock(&i->v->lock);
    if (!inf)
        return;
    if (status == STATUS_CANCELLED || status == STATUS_AGAIN)
        status = STATUS_INTERNAL;
    inf->status = status;
    inf->error = *err;
    error_prefix(&inf->error, "model \"%.*s\"", STR_ARG(i->v->model));
    inf->error.code = status;
    infer_finish(inf);
}

/* Copies, since a member may leave while the engine runs. The members are CLAIMED. */
static void name_requests(struct instance *i, size_t first, size_t n)
{
    size_t at = 0;
    for (size_t j = first; j < first + n; j++) {
        const char *id = i->slots[j].inf ? i->slots[j].inf->request_id : NULL;
        size_t len = id ? strlen(id) : 0;
        if (!len || len + 2 > sizeof i->requests - at)
            continue;
        if (at)
            i->requests[at++] = ' ';
        memcpy(i->requests + at, id, len);
        at += len;
    }
    i->requests[at] = 0;
    check_set_request(at ? i->requests : NULL);
}

struct run_times {
    uint64_t start, input, computed;
};

/* Slice every member that is there (CLAIMED). On error none keeps a slice. */
static int slice_members(struct instance *i, size_t first, size_t n, struct error *err)
{
    uint32_t total = rows_of(i, first, n), at = 0;
    int rc = 0;
    for (size_t j = first; j < first + n && !rc; at += i->slots[j].rows, j++)
        if (i->slots[j].inf)
            rc = scatter_outputs(i, i->slots[j].inf, at, total, err);
    for (size_t j = first; j < first + n && rc; j++)
        for (size_t o = 0; i->slots[j].inf && o < i->v->contract.c.n_outputs; o++)
            tensor_release(&i->slots[j].inf->outputs[o]);
    return rc;
}

/* The members become this thread's own. The batcher hears of the end of a whole batch before the clients do, or their next requests
 * would be strangers to it. */
static void take_answers(struct instance *i, size_t first, size_t n, uint64_t now)
{
    struct model_version *v = i->v;
    os_mutex_lock(&v->lock);
    if (n == i->n_slots) {
        batcher_finish(v->batcher, i->run_id, now, i->learned_ns);
        i->run_id = 0;
    }
    for (size_t j = first; j < first + n; j++) {
        i->slots[j].answer = i->slots[j].inf;
        i->slots[j].inf = NULL;
    }
    os_mutex_unlock(&v->lock);
}

/* Distinct wakers of the members; more than there is room for wake by themselves. */
struct burst {
    struct infer_waker *wakers[INFER_WAKES_MAX];
    size_t n;
};

static bool burst_has(const struct burst *b, const struct infer_waker *w)
{
    for (size_t k = 0; k < b->n; k++)
        if (b->wakers[k] == w)
            return true;
    return false;
}

static void burst_begin(struct burst *b, const struct instance *i, size_t first, size_t n)
{
    b->n = 0;
    for (size_t j = first; j < first + n && b->n < INFER_WAKES_MAX; j++) {
        struct infer_waker *w = i->slots[j].answer ? i->slots[j].answer->waker : NULL;
        if (!w || burst_has(b, w))
            continue;
        w->begin(w);
        b->wakers[b->n++] = w;
    }
}

static void burst_end(struct burst *b)
{
    for (size_t k = 0; k < b->n; k++)
        b->wakers[k]->end(b->wakers[k]);
}

/* Answer them. Statistics of the run are in place before the first client hears of it. */
static void answer_members(struct instance *i, size_t first, size_t n, const struct run_times *t)
{
    struct model_version *v = i->v;
    uint32_t total = rows_of(i, first, n);
    uint64_t now = os_monotonic_ns();
    series_run(v->series, total, t->input - t->start, t->computed - t->input, now - t->computed);
    take_answers(i, first, n, now);
    struct burst burst;
    burst_begin(&burst, i, first, n);
    for (size_t j = first; j < first + n; j++) {
        struct infer *inf = i->slots[j].answer;
        if (!inf)
            continue;
        inf->times.input_ns = t->input;
        inf->times.computed_ns = t->computed;
        inf->times.output_ns = now;
        inf->batch_rows = total;
        inf->status = STATUS_OK;
        if (v->cache)
            cache_put(v->cache, inf, v->contract.c.n_outputs);
        if (!inf->waker || burst_has(&burst, inf->waker))
            infer_finish_in_burst(inf, now);
        else
            infer_finish(inf);
    }
    burst_end(&burst);
}

/* The engine's part: RUNNING on entry, CLAIMED on return. `*members` is who is still there. */
static int compute(struct instance *i, size_t first, size_t n, struct run_times *t, size_t *members, struct error *err)
{
    struct model_version *v = i->v;
    struct engine_run run = {
        .inputs = i->inputs, .n_inputs = v->contract.c.n_inputs, .wanted = i->wanted, .outputs = i->outputs};
    int rc = fault_point("model_run");
    if (rc)
        error_set(err, rc, "a fault was injected");
    else
        rc = v->ops->run(i->engine, &run, err);
    t->computed = os_monotonic_ns();
    atomic_fetch_add_explicit(&v->busy_ns, t->computed - t->input, memory_order_relaxed);
    metric_adjust(v->series->busy_s, (double)(t->computed - t->input) * 1e-9);
    os_mutex_lock(&v->lock);
    atomic_store_explicit(&i->run_since_ns, 0, memory_order_relaxed);
    *members = reclaim_members(i, first, n);
    if (!rc && *members && n == i->n_slots)
        i->learned_ns = t->computed - t->input;
    os_mutex_unlock(&v->lock);
    return rc;
}

/* Run slots [first, first + n), which are CLAIMED or empty, and answer them. On error the members that are left are CLAIMED. */
static int run_part(struct instance *i, size_t first, size_t n, struct error *err)
{
    struct model_version *v = i->v;
    struct run_times t = {.start = os_monotonic_ns()};
    name_requests(i, first, n);
    int rc = gather_inputs(i, first, n, err);
    if (rc) {
        check_set_request(NULL);
        return rc;
    }
    struct parting p;
    parting_init(&p);
    wanted_of(i, first, n);
    os_mutex_lock(&v->lock);
    t.input = os_monotonic_ns();
    i->abandoned = false;
    size_t members = release_members(i, first, n, t.input, &p);
    if (members)
        atomic_store_explicit(&i->run_since_ns, t.input, memory_order_relaxed);
    os_mutex_unlock(&v->lock);
    parting_finish(&p, NULL);
    uint32_t rows = rows_of(i, first, n);
    if (members)
        rc = compute(i, first, n, &t, &members, err);
    if (!rc && members && n > 1 && !scatterable(i, rows)) {
        rc = error_set(err, STATUS_INTERNAL, "the model's outputs do not have one row a row of the batch");
        if (!atomic_exchange_explicit(&v->unscatterable, true, memory_order_relaxed))
            LOG(v->home->log, LOG_WARN, "model_not_batchable", LOG_STR("model", v->model), LOG_STR("version", v->name),
                LOG_S("hint", "an output's first dim is not the batch: set max_batch_size: 0"));
    }
    if (!rc && members)
        rc = slice_members(i, first, n, err);
    if (!rc && members)
        answer_members(i, first, n, &t);
    outputs_release(i);
    gather_release(i);
    check_set_request(NULL);
    return rc;
}

/* One member alone: what is wrong with it is its own. */
static void run_single(struct instance *i, size_t at)
{
    struct model_version *v = i->v;
    struct error err = {0};
    int rc = STATUS_OK;
    for (int tries = 0; tries <= STRAY_CANCELS; tries++) {
        os_mutex_lock(&v->lock);
        struct infer *inf = i->slots[at].inf;
        if (inf && atomic_load_explicit(&inf->state, memory_order_relaxed) == INFER_RUNNING)
            leave_running(v, inf);
        os_mutex_unlock(&v->lock);
        if (!inf)
            return;
        rc = run_part(i, at, 1, &err);
        if (rc != STATUS_CANCELLED)
            break;
    }
    if (rc)
        answer_failed(i, at, rc, &err);
}

void batch_run(struct instance *i)
{
    struct model_version *v = i->v;
    size_t n = i->n_slots;
    if (n == 1) {
        run_single(i, 0);
        return;
    }
    struct error err = {0};
    int rc = STATUS_INTERNAL;
    if (!atomic_load_explicit(&v->unscatterable, memory_order_relaxed))
        rc = run_part(i, 0, n, &err);
    if (!rc)
        return;
    LOG(v->home->log, LOG_DEBUG, "batch_failed", LOG_STR("model", v->model), LOG_U("members", n), LOG_S("reason", err.text));
    struct parting p;
    parting_init(&p);
    os_mutex_lock(&v->lock);
    release_members(i, 0, n, os_monotonic_ns(), &p);
    os_mutex_unlock(&v->lock);
    parting_finish(&p, NULL);
    for (size_t j = 0; j < n; j++)
        run_single(i, j);
}
