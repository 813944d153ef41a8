/* triton_metrics.c: Triton's nv_inference_* names over our statistics, for dashboards that exist (metrics.compat: triton).
 * Meanings follow Triton's metrics page: durations are cumulative microseconds, counts are cumulative. */
#include <stdlib.h>

#include "api/api_priv.h"
#include "model/registry.h"

struct family {
    const char *name, *kind, *help;
    uint64_t (*value)(const struct version_stats *s);
};

static uint64_t success(const struct version_stats *s)
{
    return s->success.count;
}
static uint64_t failure(const struct version_stats *s)
{
    return s->fail.count;
}
static uint64_t rows(const struct version_stats *s)
{
    return s->inference_count;
}
static uint64_t execs(const struct version_stats *s)
{
    return s->execution_count;
}
static uint64_t request_us(const struct version_stats *s)
{
    return (s->success.ns + s->fail.ns) / 1000;
}
static uint64_t queue_us(const struct version_stats *s)
{
    return s->queue.ns / 1000;
}
static uint64_t input_us(const struct version_stats *s)
{
    return s->compute_input.ns / 1000;
}
static uint64_t infer_us(const struct version_stats *s)
{
    return s->compute_infer.ns / 1000;
}
static uint64_t output_us(const struct version_stats *s)
{
    return s->compute_output.ns / 1000;
}
static uint64_t pending(const struct version_stats *s)
{
    return s->pending;
}
static uint64_t hits(const struct version_stats *s)
{
    return s->cache_hit.count;
}
static uint64_t misses(const struct version_stats *s)
{
    return s->cache_miss.count;
}

static const struct family families[] = {
    {"nv_inference_request_success", "counter", "Requests answered successfully.", success},
    {"nv_inference_request_failure", "counter", "Requests that failed.", failure},
    {"nv_inference_count", "counter", "Inferences done: rows of all batches.", rows},
    {"nv_inference_exec_count", "counter", "Model executions: batches run.", execs},
    {"nv_inference_request_duration_us", "counter", "Cumulative request time in microseconds.", request_us},
    {"nv_inference_queue_duration_us", "counter", "Cumulative queue time in microseconds.", queue_us},
    {"nv_inference_compute_input_duration_us", "counter", "Cumulative input preparation in microseconds.", input_us},
    {"nv_inference_compute_infer_duration_us", "counter", "Cumulative execution in microseconds.", infer_us},
    {"nv_inference_compute_output_duration_us", "counter", "Cumulative output handling in microseconds.", output_us},
    {"nv_inference_pending_request_count", "gauge", "Requests waiting or running.", pending},
    {"nv_cache_num_hits_per_model", "counter", "Response cache hits.", hits},
    {"nv_cache_num_misses_per_model", "counter", "Response cache misses.", misses},
};

struct row {
    char model[132], version[132];
    struct version_stats stats;
};

struct rows {
    struct api *api;
    struct row *v;
    size_t n, cap;
};

static void gather(void *ctx, const struct index_row *row)
{
    struct rows *all = ctx;
    struct model_version *v;
    if (!row->version.n || registry_find(all->api->o.registry, row->model, row->version, &v, NULL) < 0)
        return;
    if (all->n == all->cap) {
        size_t cap = all->cap ? all->cap * 2 : 16;
        struct row *grown = reallocarray(all->v, cap, sizeof *grown);
        if (!grown) {
            model_version_unref(v);
            return;
        }
        all->v = grown;
        all->cap = cap;
    }
    struct row *r = &all->v[all->n++];
    *r = (struct row){0};
    memcpy(r->model, row->model.p, MIN_OF(row->model.n, sizeof r->model - 1));
    memcpy(r->version, row->version.p, MIN_OF(row->version.n, sizeof r->version - 1));
    model_version_stats(v, &r->stats);
    model_version_unref(v);
}

void api__render_triton(struct api *a, struct buf *out)
{
    struct rows all = {.api = a};
    registry_index(a->o.registry, true, gather, &all);
    for (size_t f = 0; f < COUNT_OF(families); f++) {
        buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", families[f].name, families[f].help, families[f].name, families[f].kind);
        for (size_t i = 0; i < all.n; i++)
            buf_printf(out, "%s{model=\"%s\",version=\"%s\"} %llu\n", families[f].name, all.v[i].model, all.v[i].version,
                       (unsigned long long)families[f].value(&all.v[i].stats));
    }
    free(all.v);
}
