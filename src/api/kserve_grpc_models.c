/* kserve_grpc_models.c: what the server and its models are, over gRPC: the counterpart of models.c and health.c. Everything comes from
 * memory and from atomics. */
#include "api/kserve_grpc_priv.h"
#include "base/status.h"
#include "model/registry.h"

/* A response of one bool in field 1. */
static void reply_bool(struct grpc_call *g, bool yes)
{
    struct buf b;
    api__grpc_begin(&b);
    pb_put_bool(&b, 1, yes);
    api__grpc_reply(g, &b);
}

void api__grpc_server_live(struct grpc_call *g, struct str message)
{
    (void)message;
    reply_bool(g, true);
}

void api__grpc_server_ready(struct grpc_call *g, struct str message)
{
    (void)message;
    reply_bool(g, api__is_ready(g->api));
}

/* A model that isn't there is not ready: Triton's clients ask this in a loop until it is. */
void api__grpc_model_ready(struct grpc_call *g, struct str message)
{
    struct error err = {0};
    struct str name, version;
    struct model_version *v = NULL;
    int rc = api__grpc_read_model(g, message, &name, &version, &err);
    if (rc == 0 && !name.n)
        rc = error_set(&err, STATUS_INVALID, "the request has no name; ModelReady is about one model");
    if (rc == 0)
        rc = registry_find(g->api->o.registry, name, version, &v, &err);
    model_version_unref(v);
    if (rc == 0 || rc == STATUS_NOT_FOUND || registry_is_unready(rc))
        reply_bool(g, rc == 0);
    else
        api__grpc_fail(g, rc, err.text, 0);
}

void api__grpc_server_metadata(struct grpc_call *g, struct str message)
{
    const char *extensions[API_EXTENSIONS_MAX];
    size_t n = api__extensions(g->api, extensions);
    struct buf b;
    (void)message;
    api__grpc_begin(&b);
    pb_put_str(&b, 1, str_of(g->api->o.name));
    pb_put_str(&b, 2, str_of(g->api->o.version));
    for (size_t i = 0; i < n; i++)
        pb_append_bytes(&b, 3, str_of(extensions[i]));
    api__grpc_reply(g, &b);
}

/* The version that a request names; fails the call and gives NULL when there is none. */
static struct model_version *find(struct grpc_call *g, struct str message)
{
    struct error err = {0};
    struct str name, version;
    struct model_version *v = NULL;
    int rc = api__grpc_read_model(g, message, &name, &version, &err);
    if (rc == 0 && !name.n)
        rc = error_set(&err, STATUS_INVALID, "the request has no name; it is about one model");
    if (rc == 0)
        rc = registry_find(g->api->o.registry, name, version, &v, &err);
    if (rc == 0)
        return v;
    api__grpc_fail(g, rc, err.text, api__retry_after_s(rc, NULL));
    return NULL;
}

/* ---- metadata ---- */

static void append_io(struct buf *b, uint32_t number, const struct engine_io *io, bool batch_axis)
{
    int64_t dims[TENSOR_RANK_MAX];
    size_t opened = pb_open_message(b, number);
    pb_put_str(b, 1, io->name);
    pb_put_str(b, 2, str_of(dtype_name(io->dtype)));
    for (int d = 0; d < io->shape.rank; d++)
        dims[d] = batch_axis && d == 0 ? TENSOR_DIM_DYNAMIC : io->shape.dim[d];
    pb_put_packed_i64(b, 3, dims, io->shape.rank);
    pb_close_message(b, opened);
}

static void append_version(void *ctx, struct str version)
{
    pb_append_bytes(ctx, 2, version);
}

void api__grpc_model_metadata(struct grpc_call *g, struct str message)
{
    struct error err = {0};
    struct buf b;
    struct model_version *v = find(g, message);
    if (!v)
        return;
    const struct engine_contract *c = model_version_contract(v);
    bool batch_axis = model_version_max_batch(v) > 0;
    api__grpc_begin(&b);
    pb_put_str(&b, 1, model_version_model(v));
    int rc = registry_versions(g->api->o.registry, model_version_model(v), append_version, &b, &err);
    pb_put_str(&b, 3, str_of(c->platform));
    for (size_t i = 0; i < c->n_inputs; i++)
        append_io(&b, 4, &c->inputs[i], batch_axis);
    for (size_t i = 0; i < c->n_outputs; i++)
        append_io(&b, 5, &c->outputs[i], batch_axis);
    model_version_unref(v);
    if (rc == 0) {
        api__grpc_reply(g, &b);
        return;
    }
    buf_release(&b);
    api__grpc_fail(g, rc, err.text, 0);
}

void api__grpc_model_config(struct grpc_call *g, struct str message)
{
    struct error err = {0};
    struct buf b;
    struct model_version *v = find(g, message);
    if (!v)
        return;
    api__grpc_begin(&b);
    size_t config = pb_open_message(&b, 1);
    int rc = api__grpc_append_config(&b, v, &err);
    pb_close_message(&b, config);
    model_version_unref(v);
    if (rc == 0) {
        api__grpc_reply(g, &b);
        return;
    }
    buf_release(&b);
    api__grpc_fail(g, rc, err.text, 0);
}

/* ---- statistics ---- */

static void append_duration(struct buf *b, uint32_t number, struct version_duration d)
{
    size_t opened = pb_open_message(b, number);
    pb_put_u64(b, 1, d.count);
    pb_put_u64(b, 2, d.ns);
    pb_close_message(b, opened);
}

static void append_inference_stats(struct buf *b, const struct version_stats *s)
{
    size_t opened = pb_open_message(b, 6);
    append_duration(b, 1, s->success);
    append_duration(b, 2, s->fail);
    append_duration(b, 3, s->queue);
    append_duration(b, 4, s->compute_input);
    append_duration(b, 5, s->compute_infer);
    append_duration(b, 6, s->compute_output);
    append_duration(b, 7, s->cache_hit);
    append_duration(b, 8, s->cache_miss);
    pb_close_message(b, opened);
}

static void append_batch_stats(struct buf *b, const struct version_batch_stat *s)
{
    size_t opened = pb_open_message(b, 7);
    pb_put_u64(b, 1, s->rows);
    append_duration(b, 2, s->input);
    append_duration(b, 3, s->infer);
    append_duration(b, 4, s->output);
    pb_close_message(b, opened);
}

static void append_stats(struct buf *b, struct model_version *v, struct version_stats *s)
{
    model_version_stats(v, s);
    size_t opened = pb_open_message(b, 1);
    pb_put_str(b, 1, model_version_model(v));
    pb_put_str(b, 2, model_version_version(v));
    pb_put_u64(b, 3, s->last_inference_ms);
    pb_put_u64(b, 4, s->inference_count);
    pb_put_u64(b, 5, s->execution_count);
    append_inference_stats(b, s);
    for (size_t i = 0; i < s->n_batch; i++)
        append_batch_stats(b, &s->batch[i]);
    size_t memory = pb_open_message(b, 8);
    pb_append_bytes(b, 1, STR("CPU"));
    pb_put_u64(b, 3, s->memory.weights_bytes + s->memory.scratch_bytes);
    pb_close_message(b, memory);
    pb_close_message(b, opened);
}

struct stats_walk {
    struct grpc_call *g;
    struct buf *b;
    struct str only; /* empty: all */
    struct version_stats *stats;
};

/* The index walks a snapshot that it holds: a version that is gone meanwhile is left out. */
static void append_index_stats(void *ctx, const struct index_row *row)
{
    struct stats_walk *w = ctx;
    struct model_version *v;
    if ((w->only.n && !str_eq(w->only, row->model)) || !row->version.n || !api__shows(w->g->call, row->model))
        return;
    if (registry_find(w->g->api->o.registry, row->model, row->version, &v, NULL) < 0)
        return;
    append_stats(w->b, v, w->stats);
    model_version_unref(v);
}

void api__grpc_model_stats(struct grpc_call *g, struct str message)
{
    struct error err = {0};
    struct buf b;
    struct str name, version;
    struct model_version *v = NULL;
    struct stats_walk w = {g, &b, {0}, arena_alloc(g->request->arena, sizeof(struct version_stats))};
    int rc = w.stats ? api__grpc_read_model(g, message, &name, &version, &err)
                     : error_set(&err, STATUS_NOMEM, "out of memory for this answer; try again later");
    if (rc == 0 && name.n)
        rc = registry_find(g->api->o.registry, name, version, &v, &err);
    if (rc < 0) {
        api__grpc_fail(g, rc, err.text, api__retry_after_s(rc, NULL));
        return;
    }
    api__grpc_begin(&b);
    w.only = name;
    if (v && version.n)
        append_stats(&b, v, w.stats);
    else
        registry_index(g->api->o.registry, true, append_index_stats, &w);
    model_version_unref(v);
    api__grpc_reply(g, &b);
}

/* ---- the repository's index ---- */

struct index_walk {
    struct grpc_call *g;
    struct buf b;
};

static void append_index_row(void *ctx, const struct index_row *row)
{
    struct index_walk *w = ctx;
    if (!api__shows(w->g->call, row->model))
        return;
    size_t opened = pb_open_message(&w->b, 1);
    pb_put_str(&w->b, 1, row->model);
    pb_put_str(&w->b, 2, row->version);
    pb_put_str(&w->b, 3, str_of(version_state_name(row->state)));
    pb_put_str(&w->b, 4, row->reason);
    pb_close_message(&w->b, opened);
}

void api__grpc_index(struct grpc_call *g, struct str message)
{
    struct error err = {0};
    struct index_walk w = {.g = g};
    struct pb_reader r = pb_reader_of(message);
    struct pb_field f;
    bool ready_only = false;
    int rc = 0;
    while (rc == 0 && (rc = pb_next(&r, &f, &err)) == 1)
        rc = f.number == 2 ? pb_get_bool(&f, "ready", &ready_only, &err) : 0;
    if (rc < 0) {
        api__grpc_fail(g, rc, err.text, 0);
        return;
    }
    api__grpc_begin(&w.b);
    registry_index(g->api->o.registry, ready_only, append_index_row, &w);
    api__grpc_reply(g, &w.b);
}
