/* warmup.c: run a version before it is READY, so that the first client doesn't pay for lazy work in the engine.
 *
 * Each configured request runs on every instance: with its own batch_size when it has one, else once for every batch size that the
 * batcher is likely to form (1, 2, 4, ... max, and the preferred ones). A warm-up that fails fails the load: it would have failed for
 * the first client. Data: zeros, pseudo-random numbers (the same at each load), or a file recorded below <model>/warmup/ that holds
 * the tensor of one row (or of the whole batch) as the binary extension sends it. Shapes are those that requests will have in a
 * batch (see warmup_limit.c for how long it may take): padded axes are padded (but for files), and a mask that clients may leave out is made as it will be for them. */
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "base/size.h"
#include "base/status.h"
#include "model/registry_priv.h"
#include "os/cgroup.h"
#include "os/clock.h"
#include "tensor/pad.h"

#define WARMUP_FILE_BYTES (256u << 20)

static const struct config_warmup_input *input_named(const struct config_warmup *w, struct str name)
{
    for (size_t i = 0; i < w->n_inputs; i++)
        if (str_eq(w->inputs[i].name, name))
            return &w->inputs[i];
    return NULL;
}

/* The input's full shape at batch `rows`: from the request, else from the contract with dynamic dims taken as 1. */
static void shape_of(const struct contract *c, size_t i, const struct config_warmup_input *in, uint32_t rows, struct shape *out)
{
    const struct engine_io *io = &c->c.inputs[i];
    int lead = c->max_batch ? 1 : 0;
    *out = io->shape;
    if (lead)
        out->dim[0] = rows;
    for (int d = lead; d < io->shape.rank; d++) {
        if (in && in->n_dims == io->shape.rank - lead && in->dims[d - lead] >= 0)
            out->dim[d] = in->dims[d - lead];
        else if (out->dim[d] < 0)
            out->dim[d] = 1;
    }
}

/* The same as a batch will have it, and as given. */
static void padded_shape_of(const struct contract *c, size_t i, const struct config_warmup *w, uint32_t rows,
                            struct shape *given, struct shape *padded)
{
    const struct config_warmup_input *in = input_named(w, c->c.inputs[i].name);
    shape_of(c, i, in, rows, given);
    if (in && in->kind == WARMUP_FILE)
        *padded = *given;
    else
        contract_padded(c, i, given, padded);
}

/* Random values that no model chokes on: small whole numbers for integers, [0, 1) for floats. */
static void random_fill(enum dtype t, void *p, size_t n, struct rand *rnd)
{
    uint8_t *at = p;
    size_t size = dtype_bytes(t);
    for (size_t i = 0; i < n; i++, at += size) {
        double f = rand_f64(rnd);
        float f32 = (float)f;
        uint16_t half = t == DTYPE_FP16 ? f32_to_f16(f32) : f32_to_bf16(f32);
        uint64_t whole = rand_below(rnd, t == DTYPE_BOOL ? 2 : 16);
        if (t == DTYPE_FP64)
            memcpy(at, &f, sizeof f);
        else if (t == DTYPE_FP32)
            memcpy(at, &f32, sizeof f32);
        else if (t == DTYPE_FP16 || t == DTYPE_BF16)
            memcpy(at, &half, sizeof half);
        else
            memcpy(at, &whole, size); /* little-endian */
    }
}

/* Memory for `bytes` of warm-up data, when the server may have that much more: a typing error in a shape must not take the machine. */
static int make_slab(struct registry *r, size_t bytes, struct slab **out, struct error *err)
{
    struct os_memory_limits mem;
    os_memory_limits_read(&mem);
    uint64_t most = mem.available_bytes;
    if (r->o.memory_limit_bytes)
        most = MIN_OF(most, r->o.memory_limit_bytes);
    *out = NULL;
    if (bytes > most)
        return error_set(err, STATUS_EXHAUSTED,
                         "the warm-up data has %zu MiB, and %llu MiB are available: give it smaller dims", bytes >> 20,
                         (unsigned long long)(most >> 20));
    *out = slab_create(bytes ? bytes : 1);
    return *out ? 0 : error_set(err, STATUS_NOMEM, "no memory for warm-up data");
}

/* The bytes of a recorded tensor, repeated until `bytes` are full when it is one row. */
static int file_fill(struct registry *r, const struct repo_model *m, const struct config_warmup_input *in, uint32_t rows,
                     struct slab **out, size_t bytes, struct error *err)
{
    struct buf text;
    struct arena a;
    buf_init(&text);
    arena_init(&a, 512, 0);
    const char *path = arena_printf(&a, "warmup/%.*s", STR_ARG(in->file));
    int rc = path ? repo_read(&r->repo, m, path, WARMUP_FILE_BYTES, &text, err)
                  : error_set(err, STATUS_NOMEM, "no memory for warm-up data");
    size_t times = 1, total = text.n;
    if (!rc && text.n != bytes && (bytes == 0 || text.n * rows == bytes)) {
        times = rows;
        if (!size_mul(text.n, rows, &total))
            rc = error_set(err, STATUS_TOO_LARGE, "the warm-up file \"%.*s\" is too large", STR_ARG(in->file));
    }
    if (!rc && bytes && total != bytes)
        rc = error_set(err, STATUS_INVALID,
                       "the warm-up file \"%.*s\" has %zu bytes, and input \"%.*s\" needs %zu a row or %zu in all",
                       STR_ARG(in->file), text.n, STR_ARG(in->name), bytes / rows, bytes);
    *out = NULL;
    if (!rc)
        rc = make_slab(r, total, out, err);
    for (size_t k = 0; !rc && k < times; k++)
        if (text.n)
            memcpy((*out)->data + k * text.n, text.p, text.n);
    if (!rc)
        (*out)->n = total;
    arena_release(&a);
    buf_release(&text);
    return rc;
}

/* The mask of another input, which the request left out: ones over that input's own length. */
static int make_mask(const struct contract *c, size_t i, const struct config_warmup *w, uint32_t rows, struct tensor *out,
                     struct error *err)
{
    size_t of = (size_t)c->in[i].mask_of, bytes;
    struct shape given, padded;
    padded_shape_of(c, of, w, rows, &given, &padded);
    int axis = c->in[of].pad[0].axis;
    int64_t n = rows, length = given.dim[axis];
    out->shape = (struct shape){.rank = 2, .dim = {n, padded.dim[axis]}};
    if (!tensor_bytes(out->dtype, &out->shape, &bytes))
        return error_set(err, STATUS_INVALID, "the warm-up shape of input \"%.*s\" is too large", STR_ARG(out->name));
    struct slab *s = slab_create(bytes ? bytes : 1);
    if (!s)
        return error_set(err, STATUS_NOMEM, "no memory for warm-up data");
    s->n = bytes;
    int rc = pad_mask(out->dtype, &n, &length, 1, n, padded.dim[axis], s->data, bytes, err);
    out->data = slice_of(s, 0, bytes);
    slab_unref(s);
    return rc;
}

static int make_input(struct registry *r, const struct repo_model *m, const struct contract *c, size_t i,
                      const struct config_warmup *w, uint32_t rows, struct tensor *out, struct error *err)
{
    const struct engine_io *io = &c->c.inputs[i];
    const struct config_warmup_input *in = input_named(w, io->name);
    struct slab *s = NULL;
    size_t bytes = 0;
    uint64_t elements = 0;
    *out = (struct tensor){.name = io->name, .dtype = io->dtype};
    if (!in && c->in[i].mask_of >= 0)
        return make_mask(c, i, w, rows, out, err);
    if (!in && io->optional) {
        out->dtype = DTYPE_INVALID;
        return 0;
    }
    struct shape given;
    padded_shape_of(c, i, w, rows, &given, &out->shape);
    bool strings = io->dtype == DTYPE_BYTES;
    bool fits = shape_elements(&out->shape, &elements) && (strings ? size_mul((size_t)elements, 4, &bytes) /* empty strings */
                                                                   : tensor_bytes(io->dtype, &out->shape, &bytes));
    if (!fits)
        return error_set(err, STATUS_INVALID, "the warm-up shape of input \"%.*s\" is too large", STR_ARG(io->name));
    if (in && in->kind == WARMUP_FILE) {
        int rc = file_fill(r, m, in, rows, &s, strings ? 0 : bytes, err);
        if (rc)
            return rc;
    } else {
        int rc = make_slab(r, bytes, &s, err);
        if (rc)
            return rc;
        memset(s->data, 0, bytes);
        s->n = bytes;
        struct rand rnd;
        rand_init(&rnd, 1 + i);
        if (in && in->kind == WARMUP_RANDOM && !strings)
            random_fill(io->dtype, s->data, (size_t)elements, &rnd);
    }
    out->data = slice_of(s, 0, s->n);
    slab_unref(s);
    return tensor_check(out, err);
}

static int run_once(struct instance *i, uint64_t *took_ns, struct error *err)
{
    struct model_version *v = i->v;
    struct engine_run run = {.inputs = i->inputs, .n_inputs = v->contract.c.n_inputs, .outputs = i->outputs};
    if (!warmup_goes_on(v, i->engine))
        return error_set(err, STATUS_CANCELLED, "the warm-up was given up");
    uint64_t start = os_monotonic_ns();
    int rc = v->ops->run(i->engine, &run, err);
    *took_ns = os_monotonic_ns() - start;
    for (size_t o = 0; o < v->contract.c.n_outputs; o++) {
        tensor_release(&i->outputs[o]);
        i->outputs[o] = (struct tensor){0};
    }
    return rc;
}

static int run_rows(struct registry *r, const struct repo_model *m, struct model_version *v, const struct config_warmup *w,
                    uint32_t rows, struct error *err)
{
    struct instance *first = LIST_ENTRY(list_first(&v->instances), struct instance, link);
    int rc = 0;
    for (size_t k = 0; k < v->contract.c.n_inputs && !rc; k++)
        rc = make_input(r, m, &v->contract, k, w, rows, &first->inputs[k], err);
    LIST_EACH(it, &v->instances)
    {
        struct instance *i = LIST_ENTRY(it, struct instance, link);
        if (i != first)
            memcpy(i->inputs, first->inputs, v->contract.c.n_inputs * sizeof *i->inputs);
        uint64_t took_ns = 0;
        for (uint32_t n = 0; n <= MAX_OF(w->count, 1u) && !rc; n++)
            rc = run_once(i, &took_ns, err);
        if (!rc) /* the last run, one more than asked for, is as fast as a client's will be */
            batcher_learn(v->batcher, contract_bucket(&v->contract, i->inputs), rows, took_ns);
        if (i != first)
            memset(i->inputs, 0, v->contract.c.n_inputs * sizeof *i->inputs);
    }
    gather_release(first);
    return rc ? error_prefix(err, "warm-up \"%.*s\" with batch %u", STR_ARG(w->name), rows) : 0;
}

static int run_warmup(struct registry *r, const struct repo_model *m, struct model_version *v, const struct config_warmup *w,
                      struct error *err)
{
    uint32_t max = v->contract.max_batch;
    if (!max)
        return run_rows(r, m, v, w, 1, err);
    if (w->batch_size)
        return w->batch_size > max
                   ? error_set(err, STATUS_INVALID, "warm-up \"%.*s\" has batch_size %u, and max_batch_size is %u",
                               STR_ARG(w->name), w->batch_size, max)
                   : run_rows(r, m, v, w, w->batch_size, err);
    int rc = 0;
    for (uint32_t rows = 1; rows < max && !rc; rows *= 2)
        rc = run_rows(r, m, v, w, rows, err);
    for (uint32_t k = 0; k < v->policy.n_preferred && !rc; k++)
        rc = run_rows(r, m, v, w, v->policy.preferred_rows[k], err);
    return rc ? rc : run_rows(r, m, v, w, max, err);
}

int registry__warmup_run(struct registry *r, const struct repo_model *m, struct model_version *v, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; i < v->config.n_warmup && !rc; i++)
        rc = run_warmup(r, m, v, &v->config.warmup[i], err);
    return rc;
}
