/* pad.c: the gather of members into a padded batch. See pad.h; the way back is in pad_cut.c.
 *
 * A member's block is laid into the batch by recursion over its axes: below the last axis that is padded everything is one
 * contiguous run, and each level fills what its axis lacks. Sub-products of dims can't overflow once the whole target is
 * known to fit and to have an element. */
#include "tensor/pad.h"

#include <math.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "tensor/tensor_priv.h"

/* ---- fill values ---- */

static int fill_whole(enum dtype t, double v, int64_t min, uint64_t max, struct pad_fill *out, struct error *err)
{
    /* The upper bound of a 64-bit type is not a double; the next double above it is excluded instead. */
    if (!(v >= (double)min && v <= (double)max) || v != floor(v) || (max == UINT64_MAX && v >= 0x1p64) ||
        (max == INT64_MAX && v >= 0x1p63))
        return error_set(err, STATUS_INVALID, "padding value %g: %s takes whole numbers from %lld to %llu", v, dtype_name(t),
                         (long long)min, (unsigned long long)max);
    uint64_t u = v < 0 ? (uint64_t)(int64_t)v : (uint64_t)v;
    memcpy(out->element, &u, sizeof u);
    return STATUS_OK;
}

static int fill_float(enum dtype t, double v, struct pad_fill *out, struct error *err)
{
    bool finite = true;
    if (t == DTYPE_FP64) {
        memcpy(out->element, &v, sizeof v);
    } else if (t == DTYPE_FP32) {
        float f = (float)v;
        finite = isfinite(f);
        memcpy(out->element, &f, sizeof f);
    } else {
        uint16_t h = t == DTYPE_FP16 ? f32_to_f16(f64_to_f32_odd(v)) : f32_to_bf16(f64_to_f32_odd(v));
        finite = isfinite(t == DTYPE_FP16 ? f16_to_f32(h) : bf16_to_f32(h));
        memcpy(out->element, &h, sizeof h);
    }
    if (isfinite(v) && !finite)
        return error_set(err, STATUS_INVALID, "padding value %g is beyond the range of %s", v, dtype_name(t));
    return STATUS_OK;
}

int pad_fill_set(enum dtype t, double v, struct pad_fill *out, struct error *err)
{
    *out = (struct pad_fill){{0}};
    switch (t) {
    case DTYPE_BOOL:
        return fill_whole(t, v, 0, 1, out, err);
    case DTYPE_UINT8:
        return fill_whole(t, v, 0, UINT8_MAX, out, err);
    case DTYPE_UINT16:
        return fill_whole(t, v, 0, UINT16_MAX, out, err);
    case DTYPE_UINT32:
        return fill_whole(t, v, 0, UINT32_MAX, out, err);
    case DTYPE_UINT64:
        return fill_whole(t, v, 0, UINT64_MAX, out, err);
    case DTYPE_INT8:
        return fill_whole(t, v, INT8_MIN, INT8_MAX, out, err);
    case DTYPE_INT16:
        return fill_whole(t, v, INT16_MIN, INT16_MAX, out, err);
    case DTYPE_INT32:
        return fill_whole(t, v, INT32_MIN, INT32_MAX, out, err);
    case DTYPE_INT64:
        return fill_whole(t, v, INT64_MIN, INT64_MAX, out, err);
    case DTYPE_BYTES:
        if (v == 0)
            return STATUS_OK;
        return error_set(err, STATUS_INVALID, "padding value %g: BYTES are padded with empty strings, written as 0", v);
    default:
        return fill_float(t, v, out, err);
    }
}

/* ---- shapes and sizes ---- */

static int disagree(const struct tensor *t, const struct shape *want, const char *how, struct error *err)
{
    char a[160], b[160];
    return error_set(err, STATUS_INVALID, "'%.*s': %s of shape %s %s %s", NAME_ARG(t->name), dtype_name(t->dtype),
                     shape_format(&t->shape, a, sizeof a), how, shape_format(want, b, sizeof b));
}

int pad_shape(const struct tensor *const *members, size_t n, struct shape *out, struct error *err)
{
    ASSERT(n >= 1);
    *out = members[0]->shape;
    for (size_t i = 0; i < n; i++) {
        const struct tensor *t = members[i];
        if (t->dtype != members[0]->dtype || t->shape.rank != out->rank || t->shape.rank == 0)
            return disagree(t, &members[0]->shape, "can't share a batch with shape", err);
        for (size_t k = 1; k < out->rank; k++)
            out->dim[k] = MAX_OF(out->dim[k], t->shape.dim[k]);
        if (i && __builtin_add_overflow(out->dim[0], t->shape.dim[0], &out->dim[0]))
            return disagree(t, out, "has too many rows for one batch with shape", err);
    }
    return STATUS_OK;
}

/* Every member fits into the target; *elements: of all members. */
static int check_members(const struct tensor *const *members, size_t n, const struct shape *target, uint64_t *elements,
                         struct error *err)
{
    int64_t rows = 0;
    ASSERT(n >= 1);
    *elements = 0;
    for (size_t i = 0; i < n; i++) {
        const struct tensor *t = members[i];
        uint64_t own;
        if (t->dtype != members[0]->dtype || t->shape.rank != target->rank || target->rank == 0)
            return disagree(t, target, "can't be laid into a batch of shape", err);
        for (size_t k = 1; k < target->rank; k++)
            if (t->shape.dim[k] > target->dim[k])
                return disagree(t, target, "is longer than the batch it is laid into:", err);
        if (__builtin_add_overflow(rows, t->shape.dim[0], &rows) || rows > target->dim[0])
            return disagree(t, target, "and the members before it have more rows than the batch of shape", err);
        if (!shape_elements(&t->shape, &own) || __builtin_add_overflow(*elements, own, elements))
            return disagree(t, target, "has no usable size for a batch of shape", err);
    }
    return STATUS_OK;
}

int pad_bytes(const struct tensor *const *members, size_t n, const struct shape *target, size_t *bytes, struct error *err)
{
    uint64_t own, all;
    int rc = check_members(members, n, target, &own, err);
    if (rc)
        return rc;
    enum dtype t = members[0]->dtype;
    bool ok = shape_elements(target, &all) && all >= own;
    if (ok && t == DTYPE_BYTES) {
        ok = size_mul((size_t)(all - own), 4, bytes);
        for (size_t i = 0; ok && i < n; i++)
            ok = size_add(*bytes, members[i]->data.n, bytes);
    } else {
        ok = ok && tensor_bytes(t, target, bytes);
    }
    return ok ? STATUS_OK : disagree(members[0], target, "can't be padded: no memory holds a batch of shape", err);
}

/* ---- the copy ---- */

struct gather {
    uint8_t *dst;
    const uint8_t *src; /* rest of the current member */
    enum dtype dtype;
    size_t each; /* bytes of an element; 0 for BYTES */
    const uint8_t *fill;
    bool zero_fill;
    const struct shape *from, *to;
    size_t run_axis;                        /* from here on inwards the member and the batch have the same dims */
    uint64_t to_inner[TENSOR_RANK_MAX + 1]; /* elements of the batch below each axis; [rank] unused */
};

static void copy_elements(struct gather *g, uint64_t n)
{
    size_t bytes = (size_t)n * g->each;
    if (!g->each) {
        bytes = 0;
        for (uint64_t i = 0; i < n; i++)
            bytes += 4 + (size_t)load_u32(g->src + bytes);
    }
    memcpy(g->dst, g->src, bytes);
    g->dst += bytes;
    g->src += bytes;
}

static void fill_elements(struct gather *g, uint64_t n)
{
    size_t bytes = (size_t)n * (g->each ? g->each : 4);
    if (g->zero_fill || !g->each)
        memset(g->dst, 0, bytes);
    else if (g->each == 1)
        memset(g->dst, g->fill[0], bytes);
    else
        for (size_t at = 0; at < bytes; at += g->each)
            memcpy(g->dst + at, g->fill, g->each);
    g->dst += bytes;
}

/* The member's sub-block from `axis` inwards, at the current place of both sides. */
static void lay_block(struct gather *g, size_t axis)
{
    int64_t have = g->from->dim[axis];
    if (axis + 1 >= g->run_axis)
        copy_elements(g, (uint64_t)have * g->to_inner[axis]);
    else
        for (int64_t i = 0; i < have; i++)
            lay_block(g, axis + 1);
    if (axis > 0 && have < g->to->dim[axis])
        fill_elements(g, (uint64_t)(g->to->dim[axis] - have) * g->to_inner[axis]);
}

static void lay_member(struct gather *g, const struct tensor *t)
{
    g->src = t->data.p;
    g->from = &t->shape;
    g->run_axis = t->shape.rank;
    while (g->run_axis > 1 && t->shape.dim[g->run_axis - 1] == g->to->dim[g->run_axis - 1])
        g->run_axis--;
    if (t->data.n == 0 && t->shape.dim[0] > 0) /* rows without content: only filling */
        fill_elements(g, (uint64_t)t->shape.dim[0] * g->to_inner[0]);
    else if (t->data.n)
        lay_block(g, 0);
}

int pad_gather(const struct tensor *const *members, size_t n, const struct shape *target, const struct pad_fill *fill,
               void *dst, size_t bytes, struct error *err)
{
    size_t want;
    int rc = pad_bytes(members, n, target, &want, err);
    if (rc)
        return rc;
    if (want != bytes)
        return error_set(err, STATUS_INTERNAL, "'%.*s': a batch buffer has %zu bytes instead of %zu",
                         NAME_ARG(members[0]->name), bytes, want);
    if (want == 0)
        return STATUS_OK;
    struct gather g = {.dst = dst, .dtype = members[0]->dtype, .each = dtype_bytes(members[0]->dtype), .to = target};
    g.fill = fill->element;
    g.zero_fill = load_u64(fill->element) == 0;
    g.to_inner[target->rank - 1] = 1;
    for (size_t k = target->rank - 1; k-- > 0;)
        g.to_inner[k] = g.to_inner[k + 1] * (uint64_t)target->dim[k + 1];
    int64_t rows = 0;
    for (size_t i = 0; i < n; i++) {
        lay_member(&g, members[i]);
        rows += members[i]->shape.dim[0];
    }
    fill_elements(&g, (uint64_t)(target->dim[0] - rows) * g.to_inner[0]);
    ASSERT((size_t)(g.dst - (uint8_t *)dst) == bytes);
    return STATUS_OK;
}

int pad_mask(enum dtype t, const int64_t *rows, const int64_t *lengths, size_t n, int64_t rows_total, int64_t length, void *dst,
             size_t bytes, struct error *err)
{
    struct shape shape = {2, {rows_total, length}};
    struct pad_fill one;
    size_t want, each = dtype_bytes(t);
    int64_t used = 0;
    if (!tensor_bytes(t, &shape, &want) || pad_fill_set(t, 1, &one, NULL))
        return error_set(err, STATUS_INVALID, "a mask can't be %s of %lld rows of %lld", dtype_name(t), (long long)rows_total,
                         (long long)length);
    for (size_t i = 0; i < n; i++)
        if (rows[i] < 0 || lengths[i] < 0 || lengths[i] > length || __builtin_add_overflow(used, rows[i], &used) ||
            used > rows_total)
            return error_set(err, STATUS_INVALID, "a mask of %lld rows of %lld can't hold %lld more rows of length %lld",
                             (long long)rows_total, (long long)length, (long long)rows[i], (long long)lengths[i]);
    if (want != bytes)
        return error_set(err, STATUS_INTERNAL, "a mask buffer has %zu bytes instead of %zu", bytes, want);
    if (want)
        memset(dst, 0, want);
    uint8_t *row = dst;
    for (size_t i = 0; i < n && want; i++)
        for (int64_t r = 0; r < rows[i]; r++, row += (size_t)length * each)
            for (int64_t k = 0; k < lengths[i]; k++)
                memcpy(row + (size_t)k * each, one.element, each);
    return STATUS_OK;
}
