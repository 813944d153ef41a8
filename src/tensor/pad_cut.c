/* pad_cut.c: rows and true lengths of one request out of a batch's output. See pad.h.
 *
 * The kept part starts at the first element of its rows. Inside the innermost axis that is cut it is one run of memory; it is
 * one run altogether when no outer axis has a second element, and then a view will do. Otherwise a cursor over the batch
 * takes and skips runs; BYTES are measured in a first pass, since their elements differ in size. */
#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "tensor/pad.h"
#include "tensor/tensor_priv.h"

struct cutter {
    const uint8_t *src;
    uint8_t *dst; /* NULL: only measure */
    size_t n;     /* bytes taken */
    size_t each;  /* 0 for BYTES */
    const struct shape *from, *to;
    size_t last;                     /* innermost axis that is cut */
    uint64_t inner[TENSOR_RANK_MAX]; /* elements of the batch below each axis */
};

static size_t span(const struct cutter *c, uint64_t elements)
{
    size_t n = 0;
    if (c->each)
        return (size_t)elements * c->each;
    for (uint64_t i = 0; i < elements; i++)
        n += 4 + (size_t)load_u32(c->src + n);
    return n;
}

static void take(struct cutter *c, uint64_t elements)
{
    size_t n = span(c, elements);
    if (c->dst)
        memcpy(c->dst + c->n, c->src, n);
    c->n += n;
    c->src += n;
}

static void cut_block(struct cutter *c, size_t axis)
{
    uint64_t kept = (uint64_t)c->to->dim[axis], all = (uint64_t)c->from->dim[axis];
    if (axis == c->last)
        take(c, kept * c->inner[axis]);
    else
        for (uint64_t i = 0; i < kept; i++)
            cut_block(c, axis + 1);
    if (kept < all)
        c->src += span(c, (all - kept) * c->inner[axis]);
}

static int bad_cut(const struct tensor *t, const char *what, long long at, long long length, struct error *err)
{
    char shape[160];
    return error_set(err, STATUS_INVALID, "'%.*s': an output of shape %s has no %s %lld of length %lld", NAME_ARG(t->name),
                     shape_format(&t->shape, shape, sizeof shape), what, at, length);
}

/* Checks; the cut shape, and the innermost axis that loses something (0: none does). */
static int cut_shape(const struct tensor *batch, int64_t first, int64_t rows, const struct pad_cut *cuts, size_t n_cuts,
                     struct shape *out, size_t *last, struct error *err)
{
    const struct shape *s = &batch->shape;
    if (s->rank == 0 || first < 0 || rows < 0 || rows > s->dim[0] || first > s->dim[0] - rows)
        return bad_cut(batch, "rows from", first, rows, err);
    *out = *s;
    out->dim[0] = rows;
    *last = 0;
    for (size_t i = 0; i < n_cuts; i++) {
        size_t axis = cuts[i].axis;
        if (axis == 0 || axis >= s->rank || cuts[i].length < 0 || cuts[i].length > s->dim[axis])
            return bad_cut(batch, "axis", (long long)axis, cuts[i].length, err);
        out->dim[axis] = MIN_OF(out->dim[axis], cuts[i].length);
        if (out->dim[axis] < s->dim[axis])
            *last = MAX_OF(*last, axis);
    }
    return STATUS_OK;
}

static int cut_copy(struct cutter *c, struct tensor *view, const struct shape *to, struct error *err)
{
    struct cutter measure = *c;
    size_t bytes = 0;
    if (c->each)
        (void)tensor_bytes(view->dtype, to, &bytes); /* a part of what is in memory: can't overflow */
    else
        cut_block(&measure, 0), bytes = measure.n;
    struct slab *s = slab_create(bytes);
    if (!s)
        return error_set(err, STATUS_NOMEM, "'%.*s': no memory for %zu bytes of output", NAME_ARG(view->name), bytes);
    c->dst = s->data;
    cut_block(c, 0);
    ASSERT(c->n == bytes);
    s->n = bytes;
    slice_release(&view->data);
    view->data = (struct slice){s->data, bytes, s};
    return STATUS_OK;
}

int pad_cut(const struct tensor *batch, int64_t first, int64_t rows, const struct pad_cut *cuts, size_t n_cuts,
            struct tensor *out, struct error *err)
{
    struct shape to;
    size_t last;
    uint64_t kept;
    *out = *batch;
    out->data = (struct slice){0};
    int rc = cut_shape(batch, first, rows, cuts, n_cuts, &to, &last, err);
    if (rc)
        return rc;
    tensor_rows(batch, first, rows, out);
    struct shape from = out->shape;
    out->shape = to;
    if (last == 0)
        return STATUS_OK;
    if (!shape_elements(&to, &kept) || kept == 0) {
        out->data.n = 0;
        return STATUS_OK;
    }
    struct cutter c = {.src = out->data.p, .each = dtype_bytes(batch->dtype), .from = &from, .to = &to, .last = last};
    c.inner[from.rank - 1] = 1;
    for (size_t k = from.rank - 1; k-- > 0;)
        c.inner[k] = c.inner[k + 1] * (uint64_t)from.dim[k + 1];
    int64_t outer = 1;
    for (size_t k = 0; k < last; k++)
        outer = outer == 1 ? to.dim[k] : outer;
    if (outer != 1) {
        rc = cut_copy(&c, out, &to, err);
        if (rc)
            tensor_release(out);
        return rc;
    }
    take(&c, (uint64_t)to.dim[last] * c.inner[last]);
    out->data.n = c.n;
    return STATUS_OK;
}
