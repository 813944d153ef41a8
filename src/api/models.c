/* models.c: what the server and its models are: server metadata, model metadata, readiness, configuration, statistics and
 * the repository index, in the JSON of the Open Inference Protocol and Triton's extensions. Everything comes from memory. */
#include "api/api_priv.h"
#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "conf/model_config.h"
#include "model/registry.h"
#include "wire/json.h"

size_t api__extensions(const struct api *a, const char *names[API_EXTENSIONS_MAX])
{
    static const char *const always[] = {"classification", "model_configuration", "binary_tensor_data",
                                         "parameters",     "statistics",          "schedule_policy",
                                         "generate"};
    static_assert(COUNT_OF(always) < API_EXTENSIONS_MAX, "and model_repository");
    size_t n = 0;
    while (n < COUNT_OF(always)) {
        names[n] = always[n];
        n++;
    }
    if (registry_mode(a->o.registry) == REGISTRY_EXPLICIT)
        names[n++] = "model_repository";
    return n;
}

void api__server_metadata(struct api *a, struct http_request *r, struct api_call *call)
{
    struct buf out;
    (void)call;
    buf_init(&out);
    buf_append_z(&out, "{\"name\":");
    buf_append_json_str(&out, str_of(a->o.name));
    buf_append_z(&out, ",\"version\":");
    buf_append_json_str(&out, str_of(a->o.version));
    const char *extensions[API_EXTENSIONS_MAX];
    size_t n = api__extensions(a, extensions);
    buf_append_z(&out, ",\"extensions\":[");
    for (size_t i = 0; i < n; i++)
        buf_printf(&out, "%s\"%s\"", i ? "," : "", extensions[i]);
    buf_append_z(&out, "]}");
    api__reply_json(r, 200, &out);
}

static void append_io(struct buf *out, const struct engine_io *io, size_t n, bool batch_axis)
{
    for (size_t i = 0; i < n; i++) {
        buf_append_z(out, i ? ",{\"name\":" : "{\"name\":");
        buf_append_json_str(out, io[i].name);
        buf_printf(out, ",\"datatype\":\"%s\",\"shape\":[", dtype_name(io[i].dtype));
        for (int d = 0; d < io[i].shape.rank; d++) {
            if (d)
                buf_append_c(out, ',');
            buf_append_i64(out, batch_axis && d == 0 ? TENSOR_DIM_DYNAMIC : io[i].shape.dim[d]);
        }
        buf_append_z(out, "]}");
    }
}

struct list_json {
    struct buf *out;
    bool comma;
    const struct api_call *call; /* whose caller the list is for */
};

static void append_version(void *ctx, struct str version)
{
    struct list_json *l = ctx;
    if (l->comma)
        buf_append_c(l->out, ',');
    l->comma = true;
    buf_append_json_str(l->out, version);
}

void api__model_metadata(struct api *a, struct http_request *r, struct api_call *call)
{
    struct model_version *v = api__find(a, r, call);
    struct error err = {0};
    struct buf out;
    if (!v)
        return;
    const struct engine_contract *c = model_version_contract(v);
    struct list_json versions = {&out, false, call};
    bool batch_axis = model_version_max_batch(v) > 0;
    buf_init(&out);
    buf_append_z(&out, "{\"name\":");
    buf_append_json_str(&out, model_version_model(v));
    buf_append_z(&out, ",\"versions\":[");
    int rc = registry_versions(a->o.registry, call->match.model, append_version, &versions, &err);
    buf_printf(&out, "],\"platform\":\"%s\",\"inputs\":[", c->platform);
    append_io(&out, c->inputs, c->n_inputs, batch_axis);
    buf_append_z(&out, "],\"outputs\":[");
    append_io(&out, c->outputs, c->n_outputs, batch_axis);
    buf_append_z(&out, "]}");
    model_version_unref(v);
    if (rc < 0) {
        buf_release(&out);
        api__reply_error(r, rc, &err);
        return;
    }
    api__reply_json(r, 200, &out);
}

void api__model_ready(struct api *a, struct http_request *r, struct api_call *call)
{
    struct model_version *v = api__find(a, r, call);
    struct buf out;
    if (!v)
        return;
    buf_init(&out);
    buf_append_z(&out, "{\"name\":");
    buf_append_json_str(&out, model_version_model(v));
    buf_append_z(&out, ",\"ready\":true}");
    model_version_unref(v);
    api__reply_json(r, 200, &out);
}

void api__model_config(struct api *a, struct http_request *r, struct api_call *call)
{
    struct model_version *v = api__find(a, r, call);
    struct buf out;
    if (!v)
        return;
    buf_init(&out);
    model_config_render_json(model_version_config(v), api__generates(v), &out);
    model_version_unref(v);
    api__reply_json(r, 200, &out);
}

static void append_duration(struct buf *out, const char *name, struct version_duration d, bool comma)
{
    buf_printf(out, "%s\"%s\":{\"count\":%llu,\"ns\":%llu}", comma ? "," : "", name, (unsigned long long)d.count,
               (unsigned long long)d.ns);
}

static void append_batch_stats(struct buf *out, const struct version_stats *s)
{
    buf_append_z(out, ",\"batch_stats\":[");
    for (size_t i = 0; i < s->n_batch; i++) {
        buf_printf(out, "%s{\"batch_size\":%u", i ? "," : "", s->batch[i].rows);
        append_duration(out, "compute_input", s->batch[i].input, true);
        append_duration(out, "compute_infer", s->batch[i].infer, true);
        append_duration(out, "compute_output", s->batch[i].output, true);
        buf_append_c(out, '}');
    }
    buf_append_z(out, "]");
}

static void append_memory(struct buf *out, const struct engine_memory *m)
{
    buf_printf(out, ",\"memory_usage\":[{\"type\":\"CPU\",\"id\":0,\"byte_size\":%llu}]",
               (unsigned long long)(m->weights_bytes + m->scratch_bytes));
}

static void append_stats(struct buf *out, struct model_version *v, struct version_stats *s)
{
    model_version_stats(v, s);
    buf_append_z(out, "{\"name\":");
    buf_append_json_str(out, model_version_model(v));
    buf_append_z(out, ",\"version\":");
    buf_append_json_str(out, model_version_version(v));
    buf_printf(out, ",\"last_inference\":%llu,\"inference_count\":%llu,\"execution_count\":%llu,\"inference_stats\":{",
               (unsigned long long)s->last_inference_ms, (unsigned long long)s->inference_count,
               (unsigned long long)s->execution_count);
    append_duration(out, "success", s->success, false);
    append_duration(out, "fail", s->fail, true);
    append_duration(out, "queue", s->queue, true);
    append_duration(out, "compute_input", s->compute_input, true);
    append_duration(out, "compute_infer", s->compute_infer, true);
    append_duration(out, "compute_output", s->compute_output, true);
    append_duration(out, "cache_hit", s->cache_hit, true);
    append_duration(out, "cache_miss", s->cache_miss, true);
    buf_append_z(out, "},\"response_stats\":{}");
    append_batch_stats(out, s);
    append_memory(out, &s->memory);
    buf_append_c(out, '}');
}

/* The index walks a snapshot that it holds, so its callback may look versions up: one that is gone meanwhile is left out. */
struct stats_walk {
    struct api *api;
    struct buf *out;
    const struct api_call *call;
    struct str only; /* model name; empty: all */
    struct version_stats *stats;
    bool comma;
};

static void append_index_stats(void *ctx, const struct index_row *row)
{
    struct stats_walk *w = ctx;
    struct model_version *v;
    if ((w->only.n && !str_eq(w->only, row->model)) || !row->version.n || !api__shows(w->call, row->model))
        return;
    if (registry_find(w->api->o.registry, row->model, row->version, &v, NULL) < 0)
        return;
    if (w->comma)
        buf_append_c(w->out, ',');
    w->comma = true;
    append_stats(w->out, v, w->stats);
    model_version_unref(v);
}

static void reply_stats(struct api *a, struct http_request *r, const struct api_call *call, struct str only,
                        struct model_version *one)
{
    struct buf out;
    struct stats_walk w = {a, &out, call, only, arena_alloc(r->arena, sizeof(struct version_stats)), false};
    if (!w.stats) {
        http_reply_error(r, STATUS_NOMEM, "out of memory for this reply; try again later", 1);
        return;
    }
    buf_init(&out);
    buf_append_z(&out, "{\"model_stats\":[");
    if (one)
        append_stats(&out, one, w.stats);
    else
        registry_index(a->o.registry, true, append_index_stats, &w);
    buf_append_z(&out, "]}");
    api__reply_json(r, 200, &out);
}

void api__all_stats(struct api *a, struct http_request *r, struct api_call *call)
{
    reply_stats(a, r, call, (struct str){0}, NULL);
}

void api__model_stats(struct api *a, struct http_request *r, struct api_call *call)
{
    struct model_version *v = api__find(a, r, call);
    if (!v)
        return;
    reply_stats(a, r, call, call->match.model, call->match.version.n ? v : NULL);
    model_version_unref(v);
}

static void append_index_row(void *ctx, const struct index_row *row)
{
    struct list_json *l = ctx;
    if (!api__shows(l->call, row->model))
        return;
    buf_append_z(l->out, l->comma ? ",{\"name\":" : "{\"name\":");
    l->comma = true;
    buf_append_json_str(l->out, row->model);
    if (row->version.n) {
        buf_append_z(l->out, ",\"version\":");
        buf_append_json_str(l->out, row->version);
    }
    buf_printf(l->out, ",\"state\":\"%s\"", version_state_name(row->state));
    if (row->reason.n) {
        buf_append_z(l->out, ",\"reason\":");
        buf_append_json_str(l->out, row->reason);
    }
    buf_append_c(l->out, '}');
}

/* The body is optional: {"ready": bool}. */
static int parse_index_body(const struct http_request *r, bool *ready_only, struct error *err)
{
    struct json j;
    if (!r->body.n)
        return 0;
    int rc = json_parse(&j, (struct str){(const char *)r->body.p, r->body.n}, NULL, err);
    if (rc < 0)
        return rc;
    rc = json_get_bool(j.root, "ready", JSON_OPTIONAL, ready_only, NULL, err);
    json_release(&j);
    return rc;
}

void api__index(struct api *a, struct http_request *r, struct api_call *call)
{
    struct error err = {0};
    bool ready_only = false;
    struct buf out;
    int rc = parse_index_body(r, &ready_only, &err);
    if (rc < 0) {
        api__reply_error(r, rc, &err);
        return;
    }
    struct list_json l = {&out, false, call};
    buf_init(&out);
    buf_append_c(&out, '[');
    registry_index(a->o.registry, ready_only, append_index_row, &l);
    buf_append_c(&out, ']');
    api__reply_json(r, 200, &out);
}
