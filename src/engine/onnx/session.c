/* session.c: from a model's bytes to a session.
 *
 * The bytes come from memory, not from a path: they were read beneath the model's folder and scanned, and what was scanned is what
 * gets loaded. External data files are handed over the same way. Weights are allocated outside the arena, which would round them
 * up to powers of two and keep them. Memory patterns (the runtime's plan of all buffers per input shape) are kept per shape for
 * ever; they are off where shapes vary beyond the batch axis, since there they would grow without bound. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "engine/onnx/onnx_priv.h"

#define PROVIDER_OPTIONS_MAX 32
#define SPEC_TEXT_MAX        256

/* A NUL-terminated copy of a configuration text; false when it is too long. */
static bool copy_z(struct str s, char *out)
{
    if (s.n >= SPEC_TEXT_MAX || (s.n && memchr(s.p, 0, s.n)))
        return false;
    if (s.n)
        memcpy(out, s.p, s.n);
    out[s.n] = 0;
    return true;
}

static bool shapes_vary(const struct onnx_scan *scan)
{
    for (const struct onnx_value *v = scan->inputs; v; v = v->next) {
        if (!v->has_shape)
            return true;
        for (size_t d = 1; d < v->rank && d < TENSOR_RANK_MAX; d++)
            if (v->dim[d] == TENSOR_DIM_DYNAMIC)
                return true;
    }
    return false;
}

static int set_entry(const OrtApi *api, OrtSessionOptions *so, const char *key, const char *value, struct error *err)
{
    return onnx__take(api, api->AddSessionConfigEntry(so, key, value), ONNX_CALLING, err, key);
}

static int set_threads(const OrtApi *api, OrtSessionOptions *so, const struct onnx_options *o, struct error *err)
{
    if (o->intra_op_threads == 0)
        return onnx__take(api, api->DisablePerSessionThreads(so), ONNX_CALLING, err, "shared threads");
    int rc = onnx__take(api, api->SetIntraOpNumThreads(so, (int)o->intra_op_threads), ONNX_CALLING, err, "intra_op_threads");
    if (!rc)
        rc = set_entry(api, so, "session.intra_op.allow_spinning", o->spinning ? "1" : "0", err);
    if (!rc)
        rc = set_entry(api, so, "session.inter_op.allow_spinning", o->spinning ? "1" : "0", err);
    return rc;
}

static int set_memory(const OrtApi *api, OrtSessionOptions *so, const struct onnx_options *o, const struct onnx_scan *scan,
                      struct error *err)
{
    bool pattern = o->mem_pattern == ONNX_ON || (o->mem_pattern == ONNX_AUTO && !o->parallel && !shapes_vary(scan));
    int rc = onnx__take(api, o->arena ? api->EnableCpuMemArena(so) : api->DisableCpuMemArena(so), ONNX_CALLING, err, "arena");
    if (!rc)
        rc =
            onnx__take(api, pattern ? api->EnableMemPattern(so) : api->DisableMemPattern(so), ONNX_CALLING, err, "mem_pattern");
    if (!rc)
        rc = set_entry(api, so, "session.use_device_allocator_for_initializers", "1", err);
    return rc;
}

static int set_entries(const OrtApi *api, OrtSessionOptions *so, const struct engine_load *spec, struct error *err)
{
    char key[SPEC_TEXT_MAX], value[SPEC_TEXT_MAX];
    for (size_t i = 0; i < spec->n_options; i++) {
        if (!onnx_session_entry(spec->options[i].key))
            continue;
        if (!copy_z(spec->options[i].key, key) || !copy_z(spec->options[i].value, value))
            return error_set(err, STATUS_INVALID, "the value of '%.*s' is too long", STR_ARG(spec->options[i].key));
        int rc = set_entry(api, so, key, value, err);
        if (rc)
            return rc;
    }
    return STATUS_OK;
}

/* ---- providers ---- */

struct provider_options {
    size_t n;
    const char *keys[PROVIDER_OPTIONS_MAX], *values[PROVIDER_OPTIONS_MAX];
    char text[PROVIDER_OPTIONS_MAX][2][SPEC_TEXT_MAX];
};

/* "cuda.device_id" of the model's options -> device_id for cuda. */
static int collect(const struct engine_load *spec, enum onnx_provider p, struct provider_options *out, struct error *err)
{
    struct str name = str_of(onnx_provider_name(p));
    out->n = 0;
    for (size_t i = 0; i < spec->n_options; i++) {
        struct str key = spec->options[i].key;
        if (!str_starts(key, name) || key.n <= name.n + 1 || key.p[name.n] != '.')
            continue;
        struct str rest = {key.p + name.n + 1, key.n - name.n - 1};
        if (out->n == PROVIDER_OPTIONS_MAX || !copy_z(rest, out->text[out->n][0]) ||
            !copy_z(spec->options[i].value, out->text[out->n][1]))
            return error_set(err, STATUS_INVALID, "too many or too long options of the provider %s", name.p);
        out->keys[out->n] = out->text[out->n][0];
        out->values[out->n] = out->text[out->n][1];
        out->n++;
    }
    return STATUS_OK;
}

static OrtStatus *append_cuda(const OrtApi *api, OrtSessionOptions *so, const struct provider_options *po)
{
    OrtCUDAProviderOptionsV2 *o = NULL;
    OrtStatus *st = api->CreateCUDAProviderOptions(&o);
    if (!st && po->n)
        st = api->UpdateCUDAProviderOptions(o, po->keys, po->values, po->n);
    if (!st)
        st = api->SessionOptionsAppendExecutionProvider_CUDA_V2(so, o);
    if (o)
        api->ReleaseCUDAProviderOptions(o);
    return st;
}

static OrtStatus *append_tensorrt(const OrtApi *api, OrtSessionOptions *so, const struct provider_options *po)
{
    OrtTensorRTProviderOptionsV2 *o = NULL;
    OrtStatus *st = api->CreateTensorRTProviderOptions(&o);
    if (!st && po->n)
        st = api->UpdateTensorRTProviderOptions(o, po->keys, po->values, po->n);
    if (!st)
        st = api->SessionOptionsAppendExecutionProvider_TensorRT_V2(so, o);
    if (o)
        api->ReleaseTensorRTProviderOptions(o);
    return st;
}

static OrtStatus *append(const OrtApi *api, OrtSessionOptions *so, enum onnx_provider p, const struct provider_options *po)
{
    switch (p) {
    case ONNX_CUDA:
        return append_cuda(api, so, po);
    case ONNX_TENSORRT:
        return append_tensorrt(api, so, po);
    case ONNX_OPENVINO:
        return api->SessionOptionsAppendExecutionProvider_OpenVINO_V2(so, po->keys, po->values, po->n);
    case ONNX_XNNPACK:
        return api->SessionOptionsAppendExecutionProvider(so, "XNNPACK", po->keys, po->values, po->n);
    case ONNX_CPU:
        break;
    }
    return NULL; /* the CPU is always there, last */
}

static void add_device(struct engine_model *m, enum onnx_provider p, const struct provider_options *po)
{
    size_t at = strlen(m->devices);
    const char *id = p == ONNX_CUDA || p == ONNX_TENSORRT ? ":0" : "";
    for (size_t i = 0; i < po->n; i++) {
        if (strcmp(po->keys[i], "device_id") == 0) {
            snprintf(m->devices + at, sizeof m->devices - at, "%s%s:%.8s", at ? ", " : "", onnx_provider_name(p),
                     po->values[i]);
            return;
        }
    }
    snprintf(m->devices + at, sizeof m->devices - at, "%s%s%s", at ? ", " : "", onnx_provider_name(p), id);
}

static int set_providers(struct engine_model *m, OrtSessionOptions *so, const struct onnx_source *src, struct error *err)
{
    const struct onnx_options *o = src->options;
    struct provider_options po = {0};
    m->devices[0] = 0;
    for (size_t i = 0; i < o->n_providers; i++) {
        enum onnx_provider p = o->providers[i];
        struct error why = {0};
        if (p == ONNX_CPU)
            continue;
        int rc = collect(src->spec, p, &po, err);
        if (rc)
            return rc;
        rc = m->e->built_in[p]
                 ? onnx__take(m->e->api, append(m->e->api, so, p, &po), ONNX_CALLING, &why, onnx_provider_name(p))
                 : error_set(&why, STATUS_UNAVAILABLE, "this build of ONNX Runtime (%s) doesn't have it", m->e->version);
        if (!rc) {
            add_device(m, p, &po);
        } else if (o->provider_fallback) {
            LOG(src->spec->log, LOG_WARN, "onnx_provider_left_out", LOG_S("model", src->spec->name),
                LOG_S("provider", onnx_provider_name(p)), LOG_S("reason", why.text));
        } else {
            return error_set(err, STATUS_UNAVAILABLE,
                             "the execution provider '%s' can't be used: %s; list another provider or allow provider_fallback",
                             onnx_provider_name(p), why.text);
        }
    }
    add_device(m, ONNX_CPU, &(struct provider_options){0});
    return STATUS_OK;
}

/* Providers that compile for a device can be told to keep what they made, weights and all, in files. */
static int check_secret(const struct onnx_source *src, enum engine_file external, struct error *err)
{
    const struct onnx_options *o = src->options;
    if (src->kind != ENGINE_FILE_SECRET && external != ENGINE_FILE_SECRET)
        return STATUS_OK;
    for (size_t i = 0; i < o->n_providers; i++)
        if (o->providers[i] == ONNX_TENSORRT || o->providers[i] == ONNX_OPENVINO)
            return error_set(
                err, STATUS_UNIMPLEMENTED,
                "the model is sealed, and the provider %s may write what it compiles to a disk: use cpu, cuda or xnnpack",
                onnx_provider_name(o->providers[i]));
    return STATUS_OK;
}

/* ---- sessions ---- */

static int set_external(const OrtApi *api, OrtSessionOptions *so, struct onnx_external *x, int dir_fd, struct arena *a,
                        struct error *err)
{
    if (x->n == 0)
        return STATUS_OK;
    char **data = arena_array(a, x->n, sizeof data[0]);
    size_t *sizes = arena_array(a, x->n, sizeof sizes[0]);
    if (!data || !sizes)
        return error_set(err, STATUS_NOMEM, "no memory for the model's external data");
    for (size_t i = 0; i < x->n; i++) {
        data[i] = (char *)(uintptr_t)x->files[i].p;
        sizes[i] = x->files[i].n;
    }
    /* Tensors inside branches and loops aren't taken from the buffers: the runtime opens their files itself. The checked names are
     * resolved in the folder that the descriptor stands for, whatever its path means by now. */
    char folder[64];
    snprintf(folder, sizeof folder, "/proc/self/fd/%d", dir_fd);
    int rc = set_entry(api, so, "session.model_external_initializers_file_folder_path", folder, err);
    if (rc)
        return rc;
    return onnx__take(api, api->AddExternalInitializersFromFilesInMemory(so, x->names, data, sizes, x->n), ONNX_CALLING, err,
                      "external data of the model");
}

static int make_options(struct engine_model *m, const struct onnx_source *src, struct onnx_external *x,
                        GraphOptimizationLevel level, OrtSessionOptions **out, struct error *err)
{
    const OrtApi *api = m->e->api;
    const struct onnx_options *o = src->options;
    int rc = onnx__take(api, api->CreateSessionOptions(out), ONNX_CALLING, err, "session options");
    if (rc)
        return rc;
    OrtSessionOptions *so = *out;
    rc = onnx__take(api, api->SetSessionLogId(so, src->spec->name), ONNX_CALLING, err, "session options");
    if (!rc)
        rc = onnx__take(api, api->SetSessionGraphOptimizationLevel(so, level), ONNX_CALLING, err, "graph_optimization");
    if (!rc)
        rc = onnx__take(api, api->SetSessionExecutionMode(so, o->parallel ? ORT_PARALLEL : ORT_SEQUENTIAL), ONNX_CALLING, err,
                        "parallel");
    if (!rc)
        rc = set_threads(api, so, o, err);
    if (!rc)
        rc = set_memory(api, so, o, src->scan, err);
    if (!rc)
        rc = set_entries(api, so, src->spec, err);
    if (!rc)
        rc = set_providers(m, so, src, err);
    if (!rc)
        rc = set_external(api, so, x, src->spec->dir_fd, &m->arena, err);
    return rc;
}

/* One attempt. `temp`: where the runtime writes its optimised model; NULL: nowhere. */
static int attempt(struct engine_model *m, const struct onnx_source *src, struct os_blob bytes, GraphOptimizationLevel level,
                   const char *temp, struct error *err)
{
    const OrtApi *api = m->e->api;
    OrtSessionOptions *so = NULL;
    struct onnx_external x;
    int rc = onnx__external_read(src->spec, src->scan, &m->arena, &x, err);
    if (!rc)
        rc = check_secret(src, x.kind, err);
    if (!rc)
        rc = make_options(m, src, &x, level, &so, err);
    if (!rc && temp)
        rc = onnx__take(api, api->SetOptimizedModelFilePath(so, temp), ONNX_CALLING, err, "cache_dir");
    if (!rc)
        rc = onnx__take(api, api->CreateSessionFromArray(m->e->env, bytes.p, bytes.n, so, &m->session), ONNX_LOADING, err,
                        "ONNX Runtime refused the model");
    if (so)
        api->ReleaseSessionOptions(so);
    onnx__external_release(&x);
    return rc;
}

/* A hit saves the optimiser's work, which goes with the nodes, and costs a second reading of the weights. Measured: 0.05 ms a node and
 * 1 to 2 ms a MiB. */
static bool worth_caching(const struct onnx_scan *scan)
{
    return scan->n_nodes >= 25 * (scan->initializer_bytes >> 20);
}

static bool cacheable(const struct onnx_source *src)
{
    const struct onnx_options *o = src->options;
    return src->kind == ENGINE_FILE_PLAIN && worth_caching(src->scan) && o->cache_dir.n && o->use_cache &&
           o->level != ORT_DISABLE_ALL && src->scan->n_external == 0 && o->n_providers == 1 && o->providers[0] == ONNX_CPU;
}

int onnx__session_create(struct engine_model *m, const struct onnx_source *src, struct error *err)
{
    const struct onnx_options *o = src->options;
    struct logger *log = src->spec->log;
    struct onnx_cache_key key;
    char temp[1024];
    if (!cacheable(src))
        return attempt(m, src, src->file, o->level, NULL, err);
    onnx__cache_key(src, m->e->version, &key);
    struct os_blob cached;
    onnx__cache_get(o, &key, &cached);
    if (cached.n) {
        struct error why = {0};
        int rc = attempt(m, src, cached, ORT_DISABLE_ALL, NULL, &why);
        os_blob_release(&cached);
        LOG(log, rc ? LOG_WARN : LOG_DEBUG, "onnx_cache_hit", LOG_S("model", src->spec->name), LOG_B("usable", !rc),
            LOG_S("reason", why.text));
        if (!rc)
            return STATUS_OK;
        onnx__cache_drop(o, &key);
    }
    bool writes = onnx__cache_temp(o, &key, log, temp, sizeof temp);
    int rc = attempt(m, src, src->file, o->level, writes ? temp : NULL, err);
    if (rc && writes) /* the cache must never be the reason that a load fails */
        rc = attempt(m, src, src->file, o->level, NULL, err);
    if (writes)
        onnx__cache_commit(o, &key, temp, !rc, log);
    return rc;
}
