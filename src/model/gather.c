/* gather.c: many requests' inputs into one batch's, and the batch's outputs back into each request's own.
 *
 * An input of a request that runs alone goes to the engine as it is, without a copy, when its bytes are aligned, owned and need no
 * padding: the batch holds a reference meanwhile, so the request may be answered (and freed) before the engine is done. Everything
 * else is copied into buffers that the instance keeps from batch to batch.
 *
 * What is kept follows what is used: a buffer above GATHER_KEEP_BYTES is given back when it is more than twice the largest batch of the
 * last one or two windows of GATHER_WINDOW batches, and all of them when the instance has been idle for GATHER_IDLE_NS. So neither one
 * giant request nor the busiest hour decides what a model holds on to, and sizes that alternate cost no allocation. */
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "model/version_priv.h"
#include "tensor/pad.h"

#define GATHER_ALIGN      64
#define GATHER_KEEP_BYTES (1u << 20)
#define GATHER_WINDOW     64
#define GATHER_IDLE_NS    10000000000u

/* A buffer of at least `bytes` for input k, ours alone. */
static struct slab *buffer_get(struct instance *i, size_t k, size_t bytes)
{
    struct gather_buffer *b = &i->buffer[k];
    struct slab *s = b->slab;
    b->peak = MAX_OF(b->peak, bytes);
    bool shared = s && atomic_load_explicit(&s->refs, memory_order_acquire) != 1; /* an engine passed it through as an output */
    bool oversized = s && s->cap > GATHER_KEEP_BYTES && s->cap / 2 > MAX_OF(b->peak, b->before);
    if (s && s->cap >= bytes && s->cap && !shared && !oversized)
        return s;
    slab_unref(s);
    b->slab = NULL;
    size_t cap;
    if (!size_align(bytes ? bytes : 1, 4096, &cap))
        return NULL;
    return b->slab = slab_create(cap);
}

static void next_window(struct instance *i)
{
    for (size_t k = 0; k < i->v->contract.c.n_inputs; k++) {
        i->buffer[k].before = i->buffer[k].peak;
        i->buffer[k].peak = 0;
    }
}

uint64_t gather_trim_at(const struct instance *i)
{
    for (size_t k = 0; k < i->v->contract.c.n_inputs; k++)
        if (i->buffer[k].slab)
            return i->served_ns + GATHER_IDLE_NS;
    return SCHED_NEVER;
}

void gather_trim(struct instance *i)
{
    for (size_t k = 0; k < i->v->contract.c.n_inputs; k++) {
        slab_unref(i->buffer[k].slab);
        i->buffer[k] = (struct gather_buffer){0};
    }
}

static void use_buffer(struct instance *i, size_t k, struct slab *s, size_t bytes, const struct shape *shape)
{
    const struct engine_io *io = &i->v->contract.c.inputs[k];
    s->n = bytes;
    i->inputs[k] = (struct tensor){.name = io->name, .dtype = io->dtype, .shape = *shape, .data = slice_of(s, 0, bytes)};
}

static int no_memory(const struct instance *i, size_t bytes, struct error *err)
{
    return error_set(err, STATUS_NOMEM, "no memory for a batch of %zu bytes of model \"%.*s\"", bytes, STR_ARG(i->v->model));
}

/* Alone and unpadded: by reference where possible, else one memcpy. */
static int pass_alone(struct instance *i, size_t k, const struct tensor *t, struct error *err)
{
    bool aligned = t->dtype == DTYPE_BYTES || (uintptr_t)t->data.p % GATHER_ALIGN == 0;
    if (aligned && t->data.owner) {
        i->inputs[k] = *t;
        i->inputs[k].name = i->v->contract.c.inputs[k].name;
        slab_ref(t->data.owner);
        return 0;
    }
    struct slab *s = buffer_get(i, k, t->data.n);
    if (!s)
        return no_memory(i, t->data.n, err);
    if (t->data.n)
        memcpy(s->data, t->data.p, t->data.n);
    use_buffer(i, k, s, t->data.n, &t->shape);
    return 0;
}

/* Members in i->members[0..m), all present: check that they fit one padded shape, and gather. */
static int gather_present(struct instance *i, size_t k, size_t m, int64_t rows, struct error *err)
{
    const struct contract *c = &i->v->contract;
    struct shape target, other;
    contract_padded(c, k, &i->members[0]->shape, &target);
    for (size_t j = 1; j < m; j++) {
        contract_padded(c, k, &i->members[j]->shape, &other);
        other.dim[0] = target.dim[0];
        if (!shape_eq(&target, &other))
            return error_set(err, STATUS_INVALID, "two shape classes met in one batch");
    }
    if (m == 1 && shape_eq(&target, &i->members[0]->shape))
        return pass_alone(i, k, i->members[0], err);
    target.dim[0] = rows;
    size_t bytes;
    int rc = pad_bytes(i->members, m, &target, &bytes, err);
    if (rc)
        return rc;
    struct slab *s = buffer_get(i, k, bytes);
    if (!s)
        return no_memory(i, bytes, err);
    rc = pad_gather(i->members, m, &target, &c->in[k].fill, s->data, bytes, err);
    if (!rc)
        use_buffer(i, k, s, bytes, &target);
    return rc;
}

/* A mask that at least one member left out: member by member, sent ones gathered, the others made. */
static int gather_mask(struct instance *i, size_t k, const struct slot *slots, size_t n, int64_t rows, struct error *err)
{
    const struct contract *c = &i->v->contract;
    enum dtype dtype = c->c.inputs[k].dtype;
    struct shape shape = {.rank = 2, .dim = {rows, 0}};
    for (size_t j = 0; j < n; j++)
        shape.dim[1] =
            MAX_OF(shape.dim[1], pad_rule_length(&c->in[k].pad[0], contract_mask_length(c, k, slots[j].inf->inputs)));
    size_t bytes, at = 0;
    if (!tensor_bytes(dtype, &shape, &bytes))
        return error_set(err, STATUS_INVALID, "the mask \"%.*s\" is too large", STR_ARG(c->c.inputs[k].name));
    struct slab *s = buffer_get(i, k, bytes);
    if (!s)
        return no_memory(i, bytes, err);
    for (size_t j = 0; j < n; j++) {
        struct infer *inf = slots[j].inf;
        const struct tensor *t = &inf->inputs[k];
        int64_t mine = inf->rows, length = contract_mask_length(c, k, inf->inputs);
        struct shape part = {.rank = 2, .dim = {mine, shape.dim[1]}};
        size_t part_bytes = 0;
        int rc = tensor_bytes(dtype, &part, &part_bytes) ? 0 : STATUS_INVALID;
        if (!rc && t->dtype != DTYPE_INVALID)
            rc = pad_gather(&t, 1, &part, &c->in[k].fill, s->data + at, part_bytes, err);
        else if (!rc)
            rc = pad_mask(dtype, &mine, &length, 1, mine, shape.dim[1], s->data + at, part_bytes, err);
        if (rc)
            return rc;
        at += part_bytes;
    }
    use_buffer(i, k, s, bytes, &shape);
    return 0;
}

static int gather_one(struct instance *i, size_t k, const struct slot *slots, size_t n, int64_t rows, struct error *err)
{
    const struct contract *c = &i->v->contract;
    size_t m = 0;
    for (size_t j = 0; j < n; j++)
        if (slots[j].inf->inputs[k].dtype != DTYPE_INVALID)
            i->members[m++] = &slots[j].inf->inputs[k];
    if (m < n && c->in[k].mask_of >= 0 && slots[0].inf->inputs[c->in[k].mask_of].dtype != DTYPE_INVALID)
        return gather_mask(i, k, slots, n, rows, err);
    if (m == 0) {
        i->inputs[k] = (struct tensor){.name = c->c.inputs[k].name};
        return 0;
    }
    if (m < n)
        return error_set(err, STATUS_INVALID, "two shape classes met in one batch");
    if (!c->max_batch)
        return pass_alone(i, k, i->members[0], err);
    return gather_present(i, k, m, rows, err);
}

int gather_inputs(struct instance *i, size_t first, size_t n, struct error *err)
{
    int64_t rows = 0;
    int rc = 0;
    if (i->gathers++ % GATHER_WINDOW == 0)
        next_window(i);
    for (size_t j = first; j < first + n; j++)
        rows += i->slots[j].rows;
    for (size_t k = 0; k < i->v->contract.c.n_inputs && !rc; k++)
        rc = gather_one(i, k, &i->slots[first], n, rows, err);
    if (rc)
        gather_release(i);
    return rc;
}

void gather_release(struct instance *i)
{
    for (size_t k = 0; k < i->v->contract.c.n_inputs; k++) {
        tensor_release(&i->inputs[k]);
        i->inputs[k] = (struct tensor){0};
    }
}

static int scatter_one(struct instance *i, const struct infer *inf, size_t o, uint32_t at, uint32_t total, struct tensor *out,
                       struct error *err)
{
    const struct contract *c = &i->v->contract;
    const struct tensor *full = &i->outputs[o];
    struct pad_cut cuts[CONTRACT_PAD_MAX];
    size_t n = 0;
    bool follows = c->max_batch && full->shape.rank && full->shape.dim[0] == (int64_t)total;
    for (int k = 0; k < c->out[o].n_cut && follows; k++) {
        const struct cut_rule *r = &c->out[o].cut[k];
        const struct tensor *in = &inf->inputs[r->input];
        struct shape padded;
        if (in->dtype == DTYPE_INVALID || r->axis >= full->shape.rank)
            continue;
        contract_padded(c, (size_t)r->input, &in->shape, &padded);
        if (full->shape.dim[r->axis] == padded.dim[r->input_axis] && padded.dim[r->input_axis] != in->shape.dim[r->input_axis])
            cuts[n++] = (struct pad_cut){(uint8_t)r->axis, in->shape.dim[r->input_axis]};
    }
    int rc = 0;
    if (follows && (n || inf->rows != total)) {
        rc = pad_cut(full, at, inf->rows, cuts, n, out, err);
    } else {
        *out = *full;
        if (out->data.owner)
            slab_ref(out->data.owner);
    }
    out->name = c->c.outputs[o].name;
    return rc;
}

int scatter_outputs(struct instance *i, struct infer *inf, uint32_t at, uint32_t total, struct error *err)
{
    size_t n = i->v->contract.c.n_outputs;
    int rc = 0;
    for (size_t o = 0; o < n; o++) {
        inf->outputs[o] = (struct tensor){.name = i->v->contract.c.outputs[o].name};
        if (!rc && (!inf->wanted || inf->wanted[o]))
            rc = scatter_one(i, inf, o, at, total, &inf->outputs[o], err);
    }
    for (size_t o = 0; o < n && rc; o++)
        tensor_release(&inf->outputs[o]);
    return rc;
}
