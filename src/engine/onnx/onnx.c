/* onnx.c: the engine's table: open and close, load and unload.
 *
 * A load: read the file beneath the model's folder, scan it (what would leave the folder or can't be served is refused here, with a
 * name), open the runtime if this is the first load, make the session, read its contract. The file's bytes are given back before
 * the load returns. The model is immutable afterwards but for the spare slots. */
#include "engine/onnx/onnx.h"

#include <stdlib.h>

#include "base/fault.h"
#include "base/status.h"
#include "engine/onnx/onnx_priv.h"
#include "os/process.h"

#define FILE_BYTES_MAX   INT32_MAX /* protobuf's own limit */
#define SCAN_ARENA_BYTES ((size_t)256 << 20)
#define SESSION_BYTES    ((uint64_t)12 << 20) /* what a session takes beside its weights */
#define TRIM_BYTES       ((uint64_t)1 << 20)

static void engine_close(struct engine *e)
{
    if (!e)
        return;
    onnx__runtime_close(e);
    os_cond_release(&e->changed);
    os_mutex_release(&e->lock);
    arena_release(&e->arena);
    free(e);
}

static int engine_open(const struct engine_option *options, size_t n, struct logger *log, struct engine **out,
                       struct error *err)
{
    struct engine *e = calloc(1, sizeof *e);
    if (!e)
        return error_set(err, STATUS_NOMEM, "no memory for an engine");
    e->log = log;
    arena_init(&e->arena, 1024, 1 << 20);
    os_mutex_init(&e->lock, RANK_ENGINE);
    os_cond_init(&e->changed);
    onnx_options_init(&e->options);
    int rc = onnx_options_server(&e->options, options, n, &e->arena, err);
    if (!rc)
        rc = onnx__runtime_start(e, err);
    if (rc)
        engine_close(e);
    else
        *out = e;
    return rc;
}

int onnx__file_read(const struct engine_load *spec, const char *rel, uint64_t limit_bytes, struct os_blob *out,
                    enum engine_file *kind, struct error *err)
{
    int rc = 0;
    *kind = ENGINE_FILE_PLAIN;
    *out = (struct os_blob){0};
    if (spec->files)
        rc = spec->files->read(spec->files, spec->dir_fd, rel, spec->follow_symlinks, limit_bytes, out, kind, err);
    return rc || *kind != ENGINE_FILE_PLAIN ? rc
                                            : os_blob_read(spec->dir_fd, rel, spec->follow_symlinks, limit_bytes, out, err);
}

/* Read and scan; the scan's strings point into `file`. Both are the caller's to release, also after an error. */
static int read_and_scan(const struct engine_load *spec, struct arena *a, struct os_blob *file, enum engine_file *kind,
                         struct onnx_scan *scan, struct error *err)
{
    int rc = onnx__file_read(spec, spec->file, FILE_BYTES_MAX, file, kind, err);
    if (!rc)
        rc = onnx_scan((struct str){(const char *)file->p, file->n}, a, scan, err);
    if (!rc)
        rc = onnx_scan_check(scan, err);
    return rc;
}

/* Weights are freed in many pieces that the allocator would keep for itself: the trim gives them back to the system. */
static void model_free(struct engine_model *m)
{
    bool had_session = m->session != NULL;
    if (had_session)
        m->e->api->ReleaseSession(m->session);
    onnx__spares_release(m);
    arena_release(&m->arena);
    free(m);
    if (had_session)
        os_memory_trim();
}

static int load_session(struct engine_model *m, const struct engine_load *spec, const struct onnx_scan *scan,
                        struct os_blob file, enum engine_file kind, struct error *err)
{
    struct onnx_options o = m->e->options;
    int rc = onnx_options_model(&o, spec->options, spec->n_options, spec->name, spec->log, err);
    if (!rc)
        rc = onnx__external_bytes(spec, scan, &m->weights_bytes, err);
    if (!rc)
        rc = onnx__runtime_open(m->e, err);
    if (rc)
        return rc;
    m->weights_bytes += scan->initializer_bytes;
    m->arena_shrink = o.arena ? o.arena_shrink : ONNX_OFF; /* the runtime refuses to shrink what isn't there */
    struct onnx_source src = {spec, &o, scan, file, kind};
    rc = onnx__session_create(m, &src, err);
    if (!rc)
        rc = onnx__contract_read(m, scan, o.optional_inputs, err);
    return rc;
}

static int load(struct engine *e, const struct engine_load *spec, struct engine_model **out, struct error *err)
{
    int rc = fault_point("onnx_load");
    if (rc)
        return error_set(err, rc, "the fault point onnx_load was hit");
    struct engine_model *m = calloc(1, sizeof *m);
    if (!m)
        return error_set(err, STATUS_NOMEM, "no memory for a model");
    m->e = e;
    arena_init(&m->arena, 4096, SCAN_ARENA_BYTES);
    struct arena scratch;
    arena_init(&scratch, 4096, SCAN_ARENA_BYTES);
    struct os_blob file = {0};
    enum engine_file kind;
    struct onnx_scan scan;
    rc = read_and_scan(spec, &scratch, &file, &kind, &scan, err);
    if (!rc)
        rc = load_session(m, spec, &scan, file, kind, err);
    os_blob_release(&file);
    arena_release(&scratch);
    if (rc) {
        model_free(m);
        return rc;
    }
    if (m->weights_bytes > TRIM_BYTES)
        os_memory_trim(); /* the loader's garbage is as large as the weights, or twice */
    *out = m;
    return STATUS_OK;
}

/* While loading there are, at the peak: the files, the runtime's copies of the tensors in them, and the kernels' repacked weights, which
 * then take the place of the copies. Measured on 96 MiB of matrices: 272 to 304 MiB in one file, 320 to 352 with external data. */
static int estimate(struct engine *e, const struct engine_load *spec, uint64_t *bytes, struct error *err)
{
    struct arena a;
    onnx__runtime_want(e);
    arena_init(&a, 4096, SCAN_ARENA_BYTES);
    struct os_blob file = {0};
    enum engine_file kind;
    struct onnx_scan scan;
    uint64_t external = 0;
    int rc = read_and_scan(spec, &a, &file, &kind, &scan, err);
    if (!rc)
        rc = onnx__external_bytes(spec, &scan, &external, err);
    if (!rc &&
        (__builtin_mul_overflow(external, 3, bytes) ||
         __builtin_add_overflow(*bytes, external / 2 + 2 * (uint64_t)file.n + scan.initializer_bytes + SESSION_BYTES, bytes)))
        rc = error_set(err, STATUS_INVALID, "the model is larger than can be counted");
    os_blob_release(&file);
    arena_release(&a);
    return rc;
}

static const struct engine_contract *contract(const struct engine_model *m)
{
    return &m->contract;
}

static void memory(const struct engine_model *m, struct engine_memory *out)
{
    *out = (struct engine_memory){.weights_bytes = m->weights_bytes};
}

const struct engine_ops engine_onnx = {
    .name = "onnxruntime",
    .files = (const char *const[]){"model.onnx", NULL},
    .open = engine_open,
    .close = engine_close,
    .estimate = estimate,
    .load = load,
    .unload = model_free,
    .contract = contract,
    .memory = memory,
    .instance_create = onnx__instance_create,
    .instance_destroy = onnx__instance_destroy,
    .run = onnx__run,
    .cancel = onnx__cancel,
};
