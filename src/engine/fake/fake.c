/* fake.c: the engine around a script: load, memory, time, failure, hang, cancel.
 *
 * A run: count it, look for triggers, wait out its time (or hang), then fail or compute. Waiting sleeps on the instance's
 * condition, so a cancel ends it at once; a spinning run looks at the flag. Cancel between runs has no effect: `running`
 * says, under the lock, whether there is something to cancel.
 *
 * Threads: the model is immutable after load but for one atomic run counter; the instance's lock (RANK_ENGINE) guards
 * running and cancelled. */
#include "engine/fake/fake.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/status.h"
#include "engine/fake/script_priv.h"
#include "engine/fake/token.h"
#include "os/blob.h"
#include "os/clock.h"
#include "os/pages.h"
#include "os/thread.h"

#define SCRIPT_BYTES_MAX (256 * 1024)

struct engine_model {
    struct arena arena;
    struct fake_script script;
    struct engine_contract contract;
    struct fake_tokens *tokens; /* NULL: the batch face */
    uint8_t *held;              /* script.memory_bytes, touched */
    _Atomic uint64_t runs;
};

struct engine_instance {
    struct engine_model *model;
    struct os_mutex lock;
    struct os_cond changed;
    bool running;
    _Atomic bool cancelled; /* written under the lock; a spinning run reads it without */
    uint64_t random;
};

static void model_free(struct engine_model *m)
{
    fake_tokens_destroy(m->tokens);
    os_pages_unmap(m->held, m->script.memory_bytes);
    arena_release(&m->arena);
    free(m);
}

static int hold_memory(struct engine_model *m, struct error *err)
{
    if (m->script.memory_bytes == 0)
        return STATUS_OK;
    m->held = os_pages_map(m->script.memory_bytes); /* not from the heap, which would keep it: what is held is given back */
    if (!m->held)
        return error_set(err, STATUS_NOMEM, "no memory for the %llu bytes that the script asks to hold",
                         (unsigned long long)m->script.memory_bytes);
    memset(m->held, 1, m->script.memory_bytes);
    return STATUS_OK;
}

/* The file, then the model's options over it; options that are not ours belong to somebody else. */
static int read_script(struct engine_model *m, const struct engine_load *spec, struct error *err)
{
    struct os_blob blob = {0};
    enum engine_file kind = ENGINE_FILE_PLAIN;
    int rc = 0;
    if (spec->files)
        rc = spec->files->read(spec->files, spec->dir_fd, spec->file, spec->follow_symlinks, SCRIPT_BYTES_MAX, &blob, &kind,
                               err);
    if (!rc && kind == ENGINE_FILE_PLAIN)
        rc = os_blob_read(spec->dir_fd, spec->file, spec->follow_symlinks, SCRIPT_BYTES_MAX, &blob, err);
    if (!rc)
        rc = fake_script_parse((struct str){(const char *)blob.p, blob.n}, &m->arena, &m->script, err);
    for (size_t i = 0; i < spec->n_options && !rc; i++) {
        rc = fake_script_set(&m->script, spec->options[i].key, spec->options[i].value, &m->arena, err);
        if (rc == STATUS_NOT_FOUND)
            rc = STATUS_OK;
    }
    os_blob_release(&blob);
    return rc;
}

static int fake_load(struct engine *e, const struct engine_load *spec, struct engine_model **out, struct error *err)
{
    (void)e;
    int rc = fault_point("fake_load");
    if (rc)
        return error_set(err, rc, "the fault point fake_load was hit");
    struct engine_model *m = calloc(1, sizeof *m);
    if (!m)
        return error_set(err, STATUS_NOMEM, "no memory for a model");
    arena_init(&m->arena, 4096, 16 * SCRIPT_BYTES_MAX);
    rc = read_script(m, spec, err);
    if (rc)
        goto fail;
    os_sleep_ns(m->script.load_delay_ms * 1000000);
    if (m->script.load_fail.n) {
        rc = error_set(err, STATUS_INTERNAL, "%.*s", STR_ARG(m->script.load_fail));
        goto fail;
    }
    rc = hold_memory(m, err);
    if (rc)
        goto fail;
    m->contract = (struct engine_contract){
        .face = ENGINE_BATCH,
        .platform = "inferd_fake",
        .inputs = m->script.inputs,
        .outputs = m->script.outputs,
        .n_inputs = m->script.n_inputs,
        .n_outputs = m->script.n_outputs,
        .batchable = m->script.batchable,
        .description = m->script.description,
        .devices = "cpu",
    };
    if (m->script.tokens) {
        m->contract.face = ENGINE_TOKEN;
        m->contract.context_tokens = m->script.context;
        m->contract.max_waiting = m->script.max_waiting;
        rc = fake_tokens_create(&m->script, &m->tokens, err);
        if (rc)
            goto fail;
    }
    *out = m;
    return STATUS_OK;
fail:
    model_free(m);
    return rc;
}

static int fake_estimate(struct engine *e, const struct engine_load *spec, uint64_t *bytes, struct error *err)
{
    (void)e;
    struct engine_model *m = calloc(1, sizeof *m);
    if (!m)
        return error_set(err, STATUS_NOMEM, "no memory for a model");
    arena_init(&m->arena, 4096, 16 * SCRIPT_BYTES_MAX);
    int rc = read_script(m, spec, err);
    if (!rc)
        *bytes = m->script.estimate_bytes ? m->script.estimate_bytes : m->script.memory_bytes;
    model_free(m);
    return rc;
}

static const struct engine_contract *fake_contract(const struct engine_model *m)
{
    return &m->contract;
}

static void fake_memory(const struct engine_model *m, struct engine_memory *out)
{
    *out = (struct engine_memory){.weights_bytes = m->script.memory_bytes};
}

static int fake_instance_create(struct engine_model *m, size_t index, struct engine_instance **out, struct error *err)
{
    if (m->script.instance_fail.n)
        return error_set(err, STATUS_INTERNAL, "%.*s", STR_ARG(m->script.instance_fail));
    struct engine_instance *i = calloc(1, sizeof *i);
    if (!i)
        return error_set(err, STATUS_NOMEM, "no memory for an instance");
    i->model = m;
    i->random = 0x9e3779b97f4a7c15u * (index + 1);
    os_mutex_init(&i->lock, RANK_ENGINE);
    os_cond_init(&i->changed);
    *out = i;
    return STATUS_OK;
}

static void fake_instance_destroy(struct engine_instance *i)
{
    if (!i)
        return;
    os_cond_release(&i->changed);
    os_mutex_release(&i->lock);
    free(i);
}

static void fake_cancel(struct engine_instance *i)
{
    if (!i->model->script.cancellable)
        return;
    os_mutex_lock(&i->lock);
    if (i->running) {
        atomic_store_explicit(&i->cancelled, true, memory_order_relaxed);
        os_cond_broadcast(&i->changed);
    }
    os_mutex_unlock(&i->lock);
}

/* Let the time pass until `until_ns` or a cancel. */
static void pass_time(struct engine_instance *i, uint64_t until_ns, bool spin)
{
    if (spin) {
        while (os_monotonic_ns() < until_ns && !atomic_load_explicit(&i->cancelled, memory_order_relaxed))
            ;
        return;
    }
    os_mutex_lock(&i->lock);
    while (!atomic_load_explicit(&i->cancelled, memory_order_relaxed) && os_cond_wait_until(&i->changed, &i->lock, until_ns))
        ;
    os_mutex_unlock(&i->lock);
}

static uint64_t run_time_ns(struct engine_instance *i, uint64_t rows, uint64_t elements)
{
    const struct fake_script *s = &i->model->script;
    uint64_t ns = s->base_us * 1000 + s->per_row_us * 1000 * rows + s->per_element_ns * elements;
    if (s->jitter_us) {
        i->random ^= i->random << 13, i->random ^= i->random >> 7,
            i->random ^= i->random << 17; /* xorshift64, Marsaglia 2003 */
        ns += i->random % (s->jitter_us * 1000);
    }
    return ns;
}

/* Wait or hang as the script says; then what it answers before computing. */
static int act(struct engine_instance *i, const struct engine_run *run, uint64_t count, uint64_t rows, uint64_t elements,
               struct error *err)
{
    const struct fake_script *s = &i->model->script;
    bool hangs = s->hang_every && count % s->hang_every == 0, poisoned = false;
    for (size_t k = 0; k < run->n_inputs; k++) {
        hangs |= fake_matches(&s->hang, &run->inputs[k]);
        poisoned |= fake_matches(&s->poison, &run->inputs[k]);
    }
    uint64_t now = os_monotonic_ns(), ns = run_time_ns(i, rows, elements);
    if (hangs)
        pass_time(i, s->hang_ms ? now + s->hang_ms * 1000000 : UINT64_MAX, false);
    else if (ns)
        pass_time(i, now + ns, s->spin);
    if (atomic_load_explicit(&i->cancelled, memory_order_relaxed))
        return error_set(err, STATUS_CANCELLED, "the run was cancelled");
    if (poisoned)
        return error_set(err, STATUS_INVALID, "an input holds the poison value %.*s", STR_ARG(s->poison.text));
    if ((s->fail_every && count % s->fail_every == 0) || (s->fail_rows_over && rows > s->fail_rows_over))
        return error_set(err,
                         s->fail_no_memory ? STATUS_NOMEM
                         : s->fail_invalid ? STATUS_INVALID
                                           : STATUS_INTERNAL,
                         "%.*s", STR_ARG(s->fail_text.n ? s->fail_text : STR("the model failed as its script says")));
    return STATUS_OK;
}

static int compute_all(const struct engine_model *m, struct engine_run *run, uint64_t rows, struct error *err)
{
    for (size_t k = 0; k < m->script.n_outputs; k++)
        run->outputs[k] = (struct tensor){0};
    for (size_t k = 0; k < m->script.n_outputs; k++) {
        if (run->wanted && !run->wanted[k])
            continue;
        int rc = fake_compute(&m->script.rules[k], &m->script.outputs[k], run->inputs, (int64_t)rows, &run->outputs[k], err);
        if (rc) {
            while (k > 0)
                tensor_release(&run->outputs[--k]);
            return rc;
        }
    }
    return STATUS_OK;
}

static int fake_run(struct engine_instance *i, struct engine_run *run, struct error *err)
{
    struct engine_model *m = i->model;
    int rc = fault_point("fake_run");
    if (rc)
        return error_set(err, rc, "the fault point fake_run was hit");
    if (run->n_inputs != m->script.n_inputs)
        return error_set(err, STATUS_INVALID, "%zu inputs came, the model has %zu", run->n_inputs, m->script.n_inputs);
    uint64_t elements = 0, rows = 1, n;
    for (size_t k = 0; k < run->n_inputs; k++) {
        const struct tensor *t = &run->inputs[k];
        if (t->dtype == DTYPE_INVALID)
            continue;
        if (t->dtype != m->script.inputs[k].dtype || !shape_elements(&t->shape, &n))
            return error_set(err, STATUS_INVALID, "input '%.*s' must be %s", STR_ARG(m->script.inputs[k].name),
                             dtype_name(m->script.inputs[k].dtype));
        elements += n;
        if (m->script.batchable && t->shape.rank > 0)
            rows = (uint64_t)t->shape.dim[0];
    }
    os_mutex_lock(&i->lock);
    i->running = true;
    os_mutex_unlock(&i->lock);
    uint64_t count = atomic_fetch_add_explicit(&m->runs, 1, memory_order_relaxed) + 1;
    rc = act(i, run, count, rows, elements, err);
    if (!rc)
        rc = compute_all(m, run, rows, err);
    os_mutex_lock(&i->lock);
    i->running = false;
    atomic_store_explicit(&i->cancelled, false, memory_order_relaxed);
    os_mutex_unlock(&i->lock);
    return rc;
}

/* ---- token face ---- */

static int fake_submit(struct engine_model *m, const struct token_request *req, uint64_t *id, struct error *err)
{
    return fake_tokens_submit(m->tokens, req, id, err);
}

static void fake_cancel_id(struct engine_model *m, uint64_t id)
{
    fake_tokens_cancel(m->tokens, id);
}

static int fake_tokenize(struct engine_model *m, struct str text, bool special, bool control, int32_t **tokens, size_t *n,
                         struct error *err)
{
    (void)m, (void)special, (void)control;
    return fake_tokens_encode(text, tokens, n, err);
}

static int fake_detokenize(struct engine_model *m, const int32_t *tokens, size_t n, struct buf *out, struct error *err)
{
    (void)m;
    return fake_tokens_decode(tokens, n, out, err);
}

static const struct engine_text *fake_text(const struct engine_model *m)
{
    return fake_tokens_text(m->tokens);
}

static int fake_chat(struct engine_model *m, struct str args, size_t max_tok, int32_t **tokens, size_t *n, struct error *err)
{
    return fake_tokens_chat(m->tokens, args, max_tok, tokens, n, err);
}

static void fake_progress(const struct engine_model *m, uint64_t *steps, bool *busy)
{
    fake_tokens_progress(m->tokens, steps, busy);
}

const struct engine_ops engine_fake = {
    .name = "fake",
    .files = (const char *const[]){"model.fake", NULL},
    .estimate = fake_estimate,
    .load = fake_load,
    .unload = model_free,
    .contract = fake_contract,
    .memory = fake_memory,
    .instance_create = fake_instance_create,
    .instance_destroy = fake_instance_destroy,
    .run = fake_run,
    .cancel = fake_cancel,
    .submit = fake_submit,
    .cancel_id = fake_cancel_id,
    .tokenize = fake_tokenize,
    .detokenize = fake_detokenize,
    .text = fake_text,
    .chat = fake_chat,
    .progress = fake_progress,
};
