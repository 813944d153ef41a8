/* run.c: instances and runs.
 *
 * Instances of a model share its session, which the runtime allows any number of threads to run at once; an instance is the run
 * options (what cancel needs) and arrays. Inputs are wrapped where they lie; outputs stay where the runtime allocated them and are
 * handed out as slices of one block per run, whose last reference gives the runtime's values back. So a run copies nothing and
 * takes one block, which is recycled through the model's spare slots, one per instance.
 *
 * An output may be an input or lie in it (a graph that passes a value through): the caller reuses its input memory, so such an
 * output is copied.
 *
 * Memory after a burst: the runtime's arena keeps what its largest batch needed. When the last 32 runs took less than a quarter of
 * the largest one's input, the next run goes with options that make the arena give back its unused parts at the end,
 * and the heap is trimmed (some ms, once a burst). Then the count starts anew with twice the patience, so that a steady mix of
 * large and small batches doesn't shrink and grow for ever. After every run (`arena_shrink: true`) it doubles a large batch's time.
 *
 * Cancel: `running` and `cancelled` are guarded by the instance's lock, and the runtime's terminate flag is set only while a run is
 * on, and cleared before the next: a cancel that comes between runs does nothing. Exception to "no lock across a library call":
 * setting that flag is one store. */
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/size.h"
#include "base/status.h"
#include "engine/onnx/onnx_priv.h"
#include "os/process.h"

#define PATIENCE_RUNS     32
#define PATIENCE_RUNS_MAX 16384
#define BURST_BYTES       (256 * 1024) /* inputs below this leave nothing behind that is worth a shrink */

struct engine_instance {
    struct engine_model *model;
    size_t index;
    OrtRunOptions *options, *shrinking; /* the usual ones; those that shrink the arena at the end */
    uint64_t peak_bytes;                /* largest run's input since the last shrink */
    uint32_t small_runs, patience_runs; /* runs in a row that were much smaller; how many are enough */
    struct os_mutex lock;
    bool running, cancelled;
    /* scratch of a run */
    OrtValue **inputs;         /* [n_inputs] given ones */
    const char **input_names;  /* their names */
    const char **output_names; /* [n_outputs] wanted ones */
    size_t *output_index;      /* their contract index */
};

/* ---- blocks ---- */

static void block_free(struct slab *s)
{
    struct onnx_block *b = CONTAINER_OF(s, struct onnx_block, slab);
    struct engine_model *m = b->model;
    for (size_t i = 0; i < b->n; i++) {
        if (b->values[i])
            m->e->api->ReleaseValue(b->values[i]);
        b->values[i] = NULL;
    }
    free(atomic_exchange_explicit(&m->spares[b->spare_slot], b, memory_order_acq_rel));
}

static struct onnx_block *block_take(struct engine_instance *i)
{
    struct engine_model *m = i->model;
    size_t slot = i->index % ONNX_SPARES, n = m->contract.n_outputs;
    struct onnx_block *b = atomic_exchange_explicit(&m->spares[slot], NULL, memory_order_acq_rel);
    if (!b)
        b = calloc(1, sizeof *b + n * sizeof b->values[0]);
    if (!b)
        return NULL;
    b->model = m;
    b->spare_slot = slot;
    b->n = n;
    b->slab.free_fn = block_free;
    atomic_store_explicit(&b->slab.refs, 1, memory_order_relaxed);
    return b;
}

void onnx__spares_release(struct engine_model *m)
{
    for (size_t s = 0; s < ONNX_SPARES; s++)
        free(atomic_exchange_explicit(&m->spares[s], NULL, memory_order_acq_rel));
}

/* ---- inputs ---- */

static int wrap_input(struct engine_instance *i, const struct tensor *t, size_t at, OrtValue **out, struct error *err)
{
    struct engine_model *m = i->model;
    static const uint64_t empty[8] = {0};
    if (t->dtype != m->inputs[at].dtype)
        return error_set(err, STATUS_INVALID, "input '%.*s' must be %s, it is %s", STR_ARG(m->inputs[at].name),
                         dtype_name(m->inputs[at].dtype), dtype_name(t->dtype));
    if (t->dtype == DTYPE_BYTES)
        return onnx__text_in(m->e, t, out, err);
    void *p = (void *)(uintptr_t)(t->data.n ? (const void *)t->data.p : empty);
    return onnx__take(m->e->api,
                      m->e->api->CreateTensorWithDataAsOrtValue(m->e->cpu, p, t->data.n, t->shape.dim, t->shape.rank,
                                                                m->input_types[at], out),
                      ONNX_RUNNING, err, m->input_names[at]);
}

static void release_inputs(struct engine_instance *i, size_t n)
{
    for (size_t k = 0; k < n; k++)
        i->model->e->api->ReleaseValue(i->inputs[k]);
}

static int wrap_inputs(struct engine_instance *i, const struct engine_run *run, size_t *given, struct error *err)
{
    struct engine_model *m = i->model;
    size_t n = 0;
    if (run->n_inputs != m->contract.n_inputs)
        return error_set(err, STATUS_INVALID, "%zu inputs came, the model has %zu", run->n_inputs, m->contract.n_inputs);
    for (size_t k = 0; k < run->n_inputs; k++) {
        if (run->inputs[k].dtype == DTYPE_INVALID)
            continue;
        int rc = wrap_input(i, &run->inputs[k], k, &i->inputs[n], err);
        if (rc) {
            release_inputs(i, n);
            return rc;
        }
        i->input_names[n++] = m->input_names[k];
    }
    *given = n;
    return STATUS_OK;
}

/* ---- outputs ---- */

static bool lies_in_input(const struct engine_run *run, const uint8_t *p, size_t n)
{
    for (size_t k = 0; k < run->n_inputs; k++) {
        const struct slice *in = &run->inputs[k].data;
        if (run->inputs[k].dtype != DTYPE_INVALID && n && in->n && p < in->p + in->n && in->p < p + n)
            return true;
    }
    return false;
}

static int read_shape(const OrtApi *api, OrtValue *v, struct tensor *t, struct error *err)
{
    OrtTensorTypeAndShapeInfo *info = NULL;
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    size_t rank = 0;
    int rc = onnx__take(api, api->GetTensorTypeAndShape(v, &info), ONNX_CALLING, err, "an output of the model");
    if (rc)
        return rc;
    rc = onnx__take(api, api->GetDimensionsCount(info, &rank), ONNX_CALLING, err, "an output's shape");
    if (!rc && rank > TENSOR_RANK_MAX)
        rc = error_set(err, STATUS_INTERNAL, "output '%.*s' has %zu dims, at most %d are possible", STR_ARG(t->name), rank,
                       TENSOR_RANK_MAX);
    if (!rc)
        rc = onnx__take(api, api->GetDimensions(info, t->shape.dim, rank), ONNX_CALLING, err, "an output's shape");
    if (!rc)
        rc = onnx__take(api, api->GetTensorElementType(info, &type), ONNX_CALLING, err, "an output's type");
    t->shape.rank = (uint8_t)rank;
    if (!rc && onnx_dtype((int32_t)type) != t->dtype)
        rc = error_set(err, STATUS_INTERNAL, "output '%.*s' came with another datatype than the model declares",
                       STR_ARG(t->name));
    api->ReleaseTensorTypeAndShapeInfo(info);
    return rc;
}

/* The value at b->values[at] as tensor `t`. */
static int hand_out(struct engine_model *m, const struct engine_run *run, struct onnx_block *b, size_t at, struct tensor *t,
                    struct error *err)
{
    const OrtApi *api = m->e->api;
    OrtValue *v = b->values[at];
    void *p = NULL;
    size_t bytes;
    uint64_t elements;
    int rc = read_shape(api, v, t, err);
    if (rc)
        return rc;
    if (t->dtype == DTYPE_BYTES) {
        if (!shape_elements(&t->shape, &elements))
            return error_set(err, STATUS_INTERNAL, "output '%.*s' has an unusable shape", STR_ARG(t->name));
        return onnx__text_out(m->e, v, elements, &t->data, err);
    }
    if (!tensor_bytes(t->dtype, &t->shape, &bytes))
        return error_set(err, STATUS_INTERNAL, "output '%.*s' has an unusable shape", STR_ARG(t->name));
    rc = onnx__take(api, api->GetTensorMutableData(v, &p), ONNX_CALLING, err, "an output of the model");
    if (rc)
        return rc;
    if (!lies_in_input(run, p, bytes)) {
        t->data = (struct slice){p, bytes, slab_ref(&b->slab)};
        return STATUS_OK;
    }
    struct slab *copy = slab_create(bytes);
    if (!copy)
        return error_set(err, STATUS_NOMEM, "no memory for output '%.*s' of %zu bytes", STR_ARG(t->name), bytes);
    memcpy(copy->data, p, bytes);
    copy->n = bytes;
    t->data = (struct slice){copy->data, bytes, copy};
    return STATUS_OK;
}

static int hand_out_all(struct engine_instance *i, struct engine_run *run, struct onnx_block *b, size_t wanted,
                        struct error *err)
{
    struct engine_model *m = i->model;
    for (size_t k = 0; k < wanted; k++) {
        size_t at = i->output_index[k];
        struct tensor *t = &run->outputs[at];
        *t = (struct tensor){.name = m->outputs[at].name, .dtype = m->outputs[at].dtype};
        int rc = hand_out(m, run, b, k, t, err);
        if (rc) {
            for (size_t done = 0; done <= k; done++) {
                tensor_release(&run->outputs[i->output_index[done]]);
                run->outputs[i->output_index[done]] = (struct tensor){0};
            }
            return rc;
        }
    }
    return STATUS_OK;
}

/* ---- the run ---- */

static void ignore(struct engine_instance *i, OrtStatus *st)
{
    if (st)
        i->model->e->api->ReleaseStatus(st);
}

/* Is it time to give a burst's memory back? */
static const OrtRunOptions *choose_options(struct engine_instance *i, const struct engine_run *run)
{
    uint64_t bytes = 0;
    if (i->model->arena_shrink != ONNX_AUTO)
        return i->options;
    for (size_t k = 0; k < run->n_inputs; k++)
        bytes += run->inputs[k].dtype == DTYPE_INVALID ? 0 : run->inputs[k].data.n;
    i->peak_bytes = MAX_OF(i->peak_bytes, bytes);
    i->small_runs = i->peak_bytes >= BURST_BYTES && bytes < i->peak_bytes / 4 ? i->small_runs + 1 : 0;
    if (i->small_runs < i->patience_runs)
        return i->options;
    i->small_runs = 0;
    i->patience_runs = MIN_OF(i->patience_runs * 2, PATIENCE_RUNS_MAX);
    i->peak_bytes = bytes;
    return i->shrinking;
}

static void begin(struct engine_instance *i)
{
    os_mutex_lock(&i->lock);
    i->running = true;
    i->cancelled = false;
    os_mutex_unlock(&i->lock);
}

/* Was it cancelled? Clears the runtime's flag for the next run. */
static bool end(struct engine_instance *i)
{
    os_mutex_lock(&i->lock);
    bool cancelled = i->cancelled;
    i->running = false;
    os_mutex_unlock(&i->lock);
    if (cancelled) {
        ignore(i, i->model->e->api->RunOptionsUnsetTerminate(i->options));
        ignore(i, i->model->e->api->RunOptionsUnsetTerminate(i->shrinking));
    }
    return cancelled;
}

void onnx__cancel(struct engine_instance *i)
{
    os_mutex_lock(&i->lock);
    if (i->running && !i->cancelled) {
        i->cancelled = true;
        ignore(i, i->model->e->api->RunOptionsSetTerminate(i->options));
        ignore(i, i->model->e->api->RunOptionsSetTerminate(i->shrinking));
    }
    os_mutex_unlock(&i->lock);
}

static size_t choose_outputs(struct engine_instance *i, const struct engine_run *run)
{
    struct engine_model *m = i->model;
    size_t n = 0;
    for (size_t k = 0; k < m->contract.n_outputs; k++) {
        run->outputs[k] = (struct tensor){0};
        if (run->wanted && !run->wanted[k])
            continue;
        i->output_names[n] = m->output_names[k];
        i->output_index[n++] = k;
    }
    return n;
}

int onnx__run(struct engine_instance *i, struct engine_run *run, struct error *err)
{
    struct engine_model *m = i->model;
    const OrtApi *api = m->e->api;
    int rc = fault_point("onnx_run");
    if (rc)
        return error_set(err, rc, "the fault point onnx_run was hit");
    size_t given = 0, wanted = choose_outputs(i, run);
    if (wanted == 0)
        return STATUS_OK;
    struct onnx_block *b = block_take(i);
    if (!b)
        return error_set(err, STATUS_NOMEM, "no memory for the outputs of a run");
    rc = wrap_inputs(i, run, &given, err);
    if (!rc) {
        begin(i);
        const OrtRunOptions *options = choose_options(i, run);
        OrtStatus *st = api->Run(m->session, options, i->input_names, (const OrtValue *const *)i->inputs, given,
                                 i->output_names, wanted, b->values);
        bool cancelled = end(i);
        rc = onnx__take(api, st, ONNX_RUNNING, err, "the model failed");
        if (rc && cancelled)
            rc = error_set(err, STATUS_CANCELLED, "the run was cancelled");
        if (!rc)
            rc = hand_out_all(i, run, b, wanted, err);
        release_inputs(i, given);
        if (options == i->shrinking)
            os_memory_trim();
    }
    slab_unref(&b->slab);
    return rc;
}

/* ---- instances ---- */

static int make_run_options(struct engine_instance *i, bool shrink, OrtRunOptions **out, struct error *err)
{
    const OrtApi *api = i->model->e->api;
    int rc = onnx__take(api, api->CreateRunOptions(out), ONNX_CALLING, err, "run options");
    /* A failed run is an answer to its client, not a line in the log for each bad request. */
    if (!rc)
        rc = onnx__take(api, api->RunOptionsSetRunLogSeverityLevel(*out, ORT_LOGGING_LEVEL_FATAL), ONNX_CALLING, err,
                        "run options");
    if (!rc && shrink)
        rc = onnx__take(api, api->AddRunConfigEntry(*out, "memory.enable_memory_arena_shrinkage", "cpu:0"), ONNX_CALLING, err,
                        "arena_shrink");
    return rc;
}

static int make_scratch(struct engine_instance *i, struct error *err)
{
    const struct engine_contract *c = &i->model->contract;
    i->inputs = calloc(c->n_inputs + 1, sizeof i->inputs[0]);
    i->input_names = calloc(c->n_inputs + 1, sizeof i->input_names[0]);
    i->output_names = calloc(c->n_outputs + 1, sizeof i->output_names[0]);
    i->output_index = calloc(c->n_outputs + 1, sizeof i->output_index[0]);
    return i->inputs && i->input_names && i->output_names && i->output_index
               ? STATUS_OK
               : error_set(err, STATUS_NOMEM, "no memory for an instance");
}

int onnx__instance_create(struct engine_model *m, size_t index, struct engine_instance **out, struct error *err)
{
    struct engine_instance *i = calloc(1, sizeof *i);
    if (!i)
        return error_set(err, STATUS_NOMEM, "no memory for an instance");
    i->model = m;
    i->index = index;
    i->patience_runs = PATIENCE_RUNS;
    os_mutex_init(&i->lock, RANK_ENGINE);
    int rc = make_scratch(i, err);
    if (!rc)
        rc = make_run_options(i, m->arena_shrink == ONNX_ON, &i->options, err);
    if (!rc)
        rc = make_run_options(i, m->arena_shrink != ONNX_OFF, &i->shrinking, err);
    if (rc)
        onnx__instance_destroy(i);
    else
        *out = i;
    return rc;
}

void onnx__instance_destroy(struct engine_instance *i)
{
    if (!i)
        return;
    if (i->options)
        i->model->e->api->ReleaseRunOptions(i->options);
    if (i->shrinking)
        i->model->e->api->ReleaseRunOptions(i->shrinking);
    free(i->inputs);
    free(i->input_names);
    free(i->output_names);
    free(i->output_index);
    os_mutex_release(&i->lock);
    free(i);
}
