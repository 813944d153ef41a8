/* version.c: building, starting and taking down one model version; what it tells about itself. */
#include "model/version_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "os/clock.h"

#define TOKEN_BUSY          4 /* sequences: enough for a step to read the weights for more than one */
#define VERSION_ARENA_BYTES 16384

const char *version_state_name(enum version_state s)
{
    switch (s) {
    case VERSION_LOADING:
    case VERSION_WARMING:
        return "LOADING";
    case VERSION_READY:
        return "READY";
    case VERSION_DRAINING:
        return "UNLOADING";
    case VERSION_UNLOADED:
    case VERSION_FAILED:
        break;
    }
    return "UNAVAILABLE";
}

static bool sooner(const struct heap_node *a, const struct heap_node *b)
{
    return CONTAINER_OF(a, struct batch_item, expiry)->deadline_ns < CONTAINER_OF(b, struct batch_item, expiry)->deadline_ns;
}

struct model_version *version_new(struct version_home *h)
{
    struct model_version *v = calloc(1, sizeof *v);
    if (!v)
        return NULL;
    atomic_init(&v->refs, 1);
    v->home = h;
    atomic_init(&v->next_expiry_ns, SCHED_NEVER);
    arena_init(&v->arena, VERSION_ARENA_BYTES, 0);
    model_config_init(&v->config);
    list_init(&v->live);
    list_init(&v->reap.link);
    list_init(&v->queue);
    list_init(&v->instances);
    heap_init(&v->running, sooner);
    os_mutex_init(&v->lock, RANK_QUEUE);
    os_cond_init(&v->work);
    return v;
}

static int engine_options(struct model_version *v, struct engine_load *load, struct error *err)
{
    struct engine_option *o = arena_array(&v->arena, v->config.n_parameters + 1, sizeof *o);
    if (!o)
        return error_set(err, STATUS_NOMEM, "no memory for model \"%.*s\"", STR_ARG(v->model));
    for (size_t i = 0; i < v->config.n_parameters; i++)
        o[i] = (struct engine_option){v->config.parameters[i].key, v->config.parameters[i].value};
    load->options = o;
    load->n_options = v->config.n_parameters;
    load->n_instances = v->config.instances_min;
    load->log = v->home->log;
    return 0;
}

/* Label lines live in the spec's caller's memory: copied. */
static int copy_labels(struct model_version *v, const struct version_spec *spec, struct error *err)
{
    for (size_t i = 0; i < v->config.n_outputs && spec->labels; i++) {
        const struct config_labels *from = &spec->labels[i];
        int at = contract_find(v->contract.c.outputs, v->contract.c.n_outputs, v->config.outputs[i].name);
        if (!from->n || at < 0)
            continue;
        struct str *lines = arena_array(&v->arena, from->n, sizeof *lines);
        for (size_t k = 0; lines && k < from->n; k++) {
            lines[k] = (struct str){arena_strdup(&v->arena, from->lines[k]), from->lines[k].n};
            if (!lines[k].p)
                lines = NULL;
        }
        if (!lines)
            return error_set(err, STATUS_NOMEM, "no memory for the labels of model \"%.*s\"", STR_ARG(v->model));
        v->contract.out[at].labels = lines;
        v->contract.out[at].n_labels = from->n;
    }
    return 0;
}

static int create_instances(struct model_version *v, struct error *err)
{
    for (uint32_t k = 0; k < v->config.instances_min; k++) {
        struct instance *i;
        int rc = instance_create(v, v->n_created++, &i, err);
        if (rc)
            return rc;
        list_push_back(&v->instances, &i->link);
        v->n_instances++;
    }
    return 0;
}

static int build_queue(struct model_version *v, struct error *err)
{
    contract_policy(&v->contract, &v->config, &v->policy);
    v->batcher = batcher_create(&v->policy);
    if (v->config.response_cache_bytes)
        v->cache = cache_create(v->config.response_cache_bytes, os_monotonic_ns() * 0x9e3779b97f4a7c15u, UINT64_MAX);
    if (!v->batcher || (v->config.response_cache_bytes && !v->cache))
        return error_set(err, STATUS_NOMEM, "no memory for the queue of model \"%.*s\"", STR_ARG(v->model));
    batcher_set_instances(v->batcher, v->config.instances_min);
    scaler_init(&v->scaler, v->config.instances_min, v->config.instances_max, os_monotonic_ns());
    return create_instances(v, err);
}

int version_build(struct model_version *v, const struct version_spec *spec, struct error *err)
{
    struct model_config *cfg = &v->config;
    struct engine_load load = spec->load;
    v->model = (struct str){arena_strdup(&v->arena, spec->model), spec->model.n};
    v->name = (struct str){arena_strdup(&v->arena, spec->name), spec->name.n};
    v->ops = spec->ops;
    v->fingerprint = spec->fingerprint;
    v->reserved_bytes = spec->reserved_bytes;
    if (!v->model.p || !v->name.p)
        return error_set(err, STATUS_NOMEM, "no memory for a model version");
    cfg->instances_min = cfg->instances_min ? cfg->instances_min : 1;
    cfg->instances_max = MAX_OF(cfg->instances_max, cfg->instances_min);
    load.name = v->model.p;
    load.version = v->name.p;
    int rc = engine_options(v, &load, err);
    if (!rc)
        rc = v->ops->load(spec->engine, &load, &v->engine, err);
    if (!rc)
        rc = contract_merge(v->ops->contract(v->engine), cfg, &v->arena, &v->contract, err);
    if (!rc)
        rc = copy_labels(v, spec, err);
    if (!rc && !(v->series = series_get(&v->home->series, v->model, v->name)))
        rc = error_set(err, STATUS_NOMEM, "no memory for the metrics of model \"%.*s\"", STR_ARG(v->model));
    if (!rc && v->contract.c.face == ENGINE_BATCH)
        rc = build_queue(v, err);
    if (!rc)
        rc = contract_effective(&v->contract, v->model, v->ops->name, &v->arena, cfg, err);
    return rc;
}

int version_start(struct model_version *v, struct error *err)
{
    LIST_EACH(it, &v->instances)
    {
        int rc = instance_start(LIST_ENTRY(it, struct instance, link), err);
        if (rc)
            return rc;
    }
    os_mutex_lock(&v->home->live_lock);
    list_push_back(&v->home->live, &v->live);
    os_mutex_unlock(&v->home->live_lock);
    return 0;
}

void version_destroy(struct model_version *v)
{
    warmup_join(v->warmup);
    os_mutex_lock(&v->home->live_lock);
    list_remove(&v->live);
    os_mutex_unlock(&v->home->live_lock);
    os_mutex_lock(&v->lock);
    ASSERT(list_empty(&v->queue));
    LIST_EACH(it, &v->instances)
    LIST_ENTRY(it, struct instance, link)->stop = true;
    os_cond_broadcast(&v->work);
    os_mutex_unlock(&v->lock);
    struct list *l;
    while ((l = list_pop_front(&v->instances)))
        instance_destroy(LIST_ENTRY(l, struct instance, link));
    cache_destroy(v->cache);
    if (v->batcher)
        batcher_destroy(v->batcher);
    if (v->engine)
        v->ops->unload(v->engine);
    series_put(&v->home->series, v->series);
    os_cond_release(&v->work);
    os_mutex_release(&v->lock);
    arena_release(&v->arena);
    free(v);
}

struct model_version *model_version_ref(struct model_version *v)
{
    atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
    return v;
}

bool version_try_ref(struct model_version *v)
{
    uint32_t n = atomic_load_explicit(&v->refs, memory_order_relaxed);
    while (n)
        if (atomic_compare_exchange_weak_explicit(&v->refs, &n, n + 1, memory_order_acquire, memory_order_relaxed))
            return true;
    return false;
}

void model_version_unref(struct model_version *v)
{
    /* release: what this thread did to the version is seen by the thread that destroys it (acquire below) */
    if (v && atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) == 1)
        v->home->retired(v->home, v);
}

struct str model_version_model(const struct model_version *v)
{
    return v->model;
}
struct str model_version_version(const struct model_version *v)
{
    return v->name;
}
const struct engine_contract *model_version_contract(const struct model_version *v)
{
    return &v->contract.c;
}
const struct model_config *model_version_config(const struct model_version *v)
{
    return &v->config;
}
uint32_t model_version_max_batch(const struct model_version *v)
{
    return v->contract.max_batch;
}
uint32_t model_version_busy(const struct model_version *v)
{
    uint32_t rows = v->policy.mode == BATCH_NONE ? 1 : MAX_OF(v->contract.max_batch, 1u);
    return v->contract.c.face == ENGINE_TOKEN ? TOKEN_BUSY : rows * (v->config.instances_max + 1);
}
const struct engine_ops *model_version_ops(const struct model_version *v)
{
    return v->ops;
}
struct engine_model *model_version_engine(const struct model_version *v)
{
    return v->engine;
}

const struct str *model_version_labels(const struct model_version *v, size_t index, size_t *n)
{
    ASSERT(index < v->contract.c.n_outputs);
    *n = v->contract.out[index].n_labels;
    return v->contract.out[index].labels;
}

void model_version_stats(const struct model_version *v, struct version_stats *out)
{
    memset(out, 0, sizeof *out);
    series_stats(v->series, out);
    if (v->ops->memory)
        v->ops->memory(v->engine, &out->memory);
    out->pending = atomic_load_explicit(&v->pending, memory_order_relaxed);
}

uint64_t model_version_backlog_ns(struct model_version *v)
{
    if (!v->batcher)
        return 0;
    os_mutex_lock(&v->lock);
    uint64_t ns = batcher_backlog_ns(v->batcher, v->n_instances);
    os_mutex_unlock(&v->lock);
    return ns;
}
