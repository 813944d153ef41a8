/* series.c: counters of a model version, once as Prometheus series and once as Triton's statistics. */
#include "model/series_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "os/clock.h"

static const char *const labels_mv[] = {"model", "version", NULL};
static const char *const labels_mvw[] = {"model", "version", "where", NULL};
static const char *const labels_mvr[] = {"model", "version", "reason", NULL};
static const char *const labels_r[] = {"result", NULL};
static const char *const where_names[] = {"admission", "queue", "running"};
static const char *const reject_names[] = {"model_queue", "total_bytes"};
static const double row_bounds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};

static struct metric *one(struct metrics *m, enum metric_kind kind, const char *name, const char *help,
                          const char *const *labels, const char *const *values)
{
    struct metric_family *f = metrics_family(m, kind, name, help, labels, NULL, 0);
    return f ? metrics_series(f, values) : NULL;
}

static struct metric_histogram *many(struct metrics *m, const char *name, const char *help, const double *bounds, size_t n,
                                     const char *const *values)
{
    struct metric_family *f = metrics_family(m, METRIC_HISTOGRAM, name, help, labels_mv, bounds, n);
    return f ? metrics_histogram(f, values) : NULL;
}

void series_table_init(struct series_table *t, struct metrics *m)
{
    *t = (struct series_table){.metrics = m};
    os_mutex_init(&t->lock, RANK_VERSION_STATE);
    list_init(&t->all);
    if (!m)
        return;
    const char *help = "Model version loads that ended, by result.";
    t->loads[0] = one(m, METRIC_COUNTER, "inferd_model_loads_total", help, labels_r, (const char *const[]){"ok", NULL});
    t->loads[1] = one(m, METRIC_COUNTER, "inferd_model_loads_total", help, labels_r, (const char *const[]){"failed", NULL});
}

void series_table_release(struct series_table *t)
{
    ASSERT(list_empty(&t->all));
    os_mutex_release(&t->lock);
}

static void register_labelled(struct series *s, struct metrics *m)
{
    for (size_t i = 0; i < WHERE_COUNT; i++) {
        const char *const v[] = {s->model, s->version, where_names[i], NULL};
        s->cancelled[i] = one(m, METRIC_COUNTER, "inferd_cancelled_total",
                              "Requests whose client went away, by where they were.", labels_mvw, v);
        s->deadline[i] = one(m, METRIC_COUNTER, "inferd_deadline_total",
                             "Requests that missed their deadline, by where they were when it was noticed.", labels_mvw, v);
    }
    for (size_t i = 0; i < REJECT_COUNT; i++) {
        const char *const v[] = {s->model, s->version, reject_names[i], NULL};
        s->rejected[i] = one(m, METRIC_COUNTER, "inferd_queue_rejected_total",
                             "Requests refused because a queue bound was reached, by bound.", labels_mvr, v);
    }
}

static void register_all(struct series *s, struct metrics *m)
{
    const char *const v[] = {s->model, s->version, NULL};
    const double *lat = METRICS_LATENCY_BOUNDS;
    size_t n = METRICS_LATENCY_BOUNDS_N;
    s->rows = one(m, METRIC_COUNTER, "inferd_inference_rows_total", "Rows inferred.", labels_mv, v);
    s->executions = one(m, METRIC_COUNTER, "inferd_inference_executions_total", "Engine runs (batches).", labels_mv, v);
    s->queue_rows = one(m, METRIC_GAUGE, "inferd_queue_rows", "Rows waiting in the queue.", labels_mv, v);
    s->queue_bytes = one(m, METRIC_GAUGE, "inferd_queue_bytes", "Bytes of requests waiting in the queue.", labels_mv, v);
    s->instances = one(m, METRIC_GAUGE, "inferd_instances", "Engine instances that exist.", labels_mv, v);
    s->instances_hung =
        one(m, METRIC_GAUGE, "inferd_instances_hung", "Instances whose run has not returned in time.", labels_mv, v);
    s->busy_s =
        one(m, METRIC_SECONDS, "inferd_instance_busy_seconds_total", "Time that instances spent running.", labels_mv, v);
    s->memory =
        one(m, METRIC_GAUGE, "inferd_model_memory_bytes", "Memory of the loaded model as its engine tells it.", labels_mv, v);
    s->cache_hits =
        one(m, METRIC_COUNTER, "inferd_cache_hits_total", "Requests answered from the response cache.", labels_mv, v);
    s->cache_misses =
        one(m, METRIC_COUNTER, "inferd_cache_misses_total", "Requests looked up in the response cache in vain.", labels_mv, v);
    s->batch_rows = many(m, "inferd_batch_rows", "Rows of a batch that ran.", row_bounds, COUNT_OF(row_bounds), v);
    s->queue_s = many(m, "inferd_queue_seconds", "Time of a request in the queue.", lat, n, v);
    s->batch_wait_s = many(m, "inferd_batch_wait_seconds",
                           "Time of a request from leaving the queue to the engine's start: gathering and padding.", lat, n, v);
    s->compute_s = many(m, "inferd_compute_seconds", "Time of a request in the engine.", lat, n, v);
    register_labelled(s, m);
}

static void destroy(struct series *s)
{
    if (s) {
        free(s->model);
        free(s->version);
        free(s);
    }
}

static struct series *make(struct series_table *t, struct str model, struct str version)
{
    struct series *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->refs = 1;
    s->metrics = t->metrics;
    s->model = str_dup(model);
    s->version = str_dup(version);
    if (!s->model || !s->version) {
        destroy(s);
        return NULL;
    }
    if (t->metrics)
        register_all(s, t->metrics);
    return s;
}

struct series *series_get(struct series_table *t, struct str model, struct str version)
{
    struct series *found = NULL;
    os_mutex_lock(&t->lock);
    LIST_EACH(it, &t->all)
    {
        struct series *s = LIST_ENTRY(it, struct series, link);
        if (str_eqz(model, s->model) && str_eqz(version, s->version))
            found = s;
    }
    if (found)
        found->refs++;
    else if ((found = make(t, model, version)))
        list_push_back(&t->all, &found->link);
    os_mutex_unlock(&t->lock);
    return found;
}

void series_put(struct series_table *t, struct series *s)
{
    if (!s)
        return;
    os_mutex_lock(&t->lock);
    bool last = --s->refs == 0;
    if (last) {
        list_remove(&s->link);
        if (t->metrics)
            metrics_drop2(t->metrics, "model", s->model, "version", s->version);
    }
    os_mutex_unlock(&t->lock);
    if (last)
        destroy(s);
}

static void add(struct atomic_duration *d, uint64_t count, uint64_t ns)
{
    atomic_fetch_add_explicit(&d->count, count, memory_order_relaxed);
    atomic_fetch_add_explicit(&d->ns, ns, memory_order_relaxed);
}

static void observe(struct metric_histogram *h, uint64_t ns)
{
    if (h)
        metric_observe(h, (double)ns * 1e-9);
}

static uint64_t since(uint64_t from, uint64_t to)
{
    return from && to > from ? to - from : 0;
}

void series_request(struct series *s, const struct infer *inf, uint64_t now_ns)
{
    const struct infer_times *t = &inf->times;
    uint64_t start = t->received_ns ? t->received_ns : t->queued_ns;
    if (inf->status != STATUS_OK) {
        add(&s->fail, 1, since(start, now_ns));
        return;
    }
    add(&s->success, 1, since(start, now_ns));
    atomic_store_explicit(&s->last_inference_ms, os_wall_ns() / 1000000, memory_order_relaxed);
    if (inf->cache_hit)
        return;
    add(&s->queue, 1, since(t->queued_ns, t->batched_ns));
    add(&s->input, 1, since(t->batched_ns, t->input_ns));
    add(&s->infer, 1, since(t->input_ns, t->computed_ns));
    add(&s->output, 1, since(t->computed_ns, t->output_ns));
    observe(s->queue_s, since(t->queued_ns, t->batched_ns));
    observe(s->batch_wait_s, since(t->batched_ns, t->input_ns));
    observe(s->compute_s, since(t->input_ns, t->computed_ns));
    atomic_fetch_add_explicit(&s->inference_count, inf->rows, memory_order_relaxed);
    metric_add(s->rows, inf->rows);
}

void series_run(struct series *s, uint32_t rows, uint64_t input_ns, uint64_t infer_ns, uint64_t output_ns)
{
    size_t at = MIN_OF((size_t)(rows ? rows - 1 : 0), COUNT_OF(s->batch) - 1);
    atomic_fetch_add_explicit(&s->execution_count, 1, memory_order_relaxed);
    metric_inc(s->executions);
    if (s->batch_rows)
        metric_observe(s->batch_rows, rows);
    add(&s->batch[at].input, 1, input_ns);
    add(&s->batch[at].infer, 1, infer_ns);
    add(&s->batch[at].output, 1, output_ns);
}

static struct version_duration get(const struct atomic_duration *d)
{
    return (struct version_duration){atomic_load_explicit(&d->count, memory_order_relaxed),
                                     atomic_load_explicit(&d->ns, memory_order_relaxed)};
}

void series_stats(const struct series *s, struct version_stats *out)
{
    out->last_inference_ms = atomic_load_explicit(&s->last_inference_ms, memory_order_relaxed);
    out->inference_count = atomic_load_explicit(&s->inference_count, memory_order_relaxed);
    out->execution_count = atomic_load_explicit(&s->execution_count, memory_order_relaxed);
    out->success = get(&s->success);
    out->fail = get(&s->fail);
    out->queue = get(&s->queue);
    out->compute_input = get(&s->input);
    out->compute_infer = get(&s->infer);
    out->compute_output = get(&s->output);
    out->cache_hit = get(&s->cache_hit);
    out->cache_miss = get(&s->cache_miss);
    out->n_batch = 0;
    for (size_t i = 0; i < COUNT_OF(s->batch); i++) {
        struct version_duration infer = get(&s->batch[i].infer);
        if (infer.count)
            out->batch[out->n_batch++] =
                (struct version_batch_stat){(uint32_t)i + 1, get(&s->batch[i].input), infer, get(&s->batch[i].output)};
    }
}
