/* tensor.c: shapes, the size computation, the agreement check and row views. See tensor.h. */
#include "tensor/tensor.h"

#include <stdio.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "tensor/tensor_priv.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are little-endian in memory and on the wire");

bool shape_eq(const struct shape *a, const struct shape *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, a->rank * sizeof a->dim[0]) == 0;
}

bool shape_elements(const struct shape *s, uint64_t *out)
{
    int64_t n = 1;
    bool zero = false;
    if (s->rank > TENSOR_RANK_MAX)
        return false;
    for (size_t i = 0; i < s->rank; i++) {
        if (s->dim[i] < 0)
            return false;
        zero |= s->dim[i] == 0;
    }
    /* A zero anywhere makes the product 0, however large the others are. */
    for (size_t i = 0; i < s->rank && !zero; i++)
        if (__builtin_mul_overflow(n, s->dim[i], &n))
            return false;
    *out = zero ? 0 : (uint64_t)n;
    return true;
}

const char *shape_format(const struct shape *s, char *text, size_t cap)
{
    ASSERT(cap > 0);
    size_t at = 0;
    for (size_t i = 0; i < s->rank && at < cap; i++)
        at += (size_t)snprintf(text + at, cap - at, "%s%lld", i ? "," : "[", (long long)s->dim[i]);
    if (at < cap)
        snprintf(text + at, cap - at, "%s", s->rank ? "]" : "[]");
    return text;
}

bool tensor_bytes(enum dtype t, const struct shape *s, size_t *out)
{
    uint64_t n;
    size_t each = dtype_bytes(t);
    return each && shape_elements(s, &n) && n <= SIZE_MAX && size_mul((size_t)n, each, out);
}

static int check_bytes(const char *what, const struct tensor *t, uint64_t want, struct error *err)
{
    const uint8_t *p = t->data.p;
    size_t left = t->data.n;
    char shape[128];
    for (uint64_t i = 0; i < want; i++) {
        if (left < 4)
            return error_set(err, STATUS_INVALID,
                             "%s '%.*s': shape %s needs %llu BYTES elements, but the data ends inside the length of "
                             "element %llu (%zu of %zu bytes used)",
                             what, NAME_ARG(t->name), shape_format(&t->shape, shape, sizeof shape), (unsigned long long)want,
                             (unsigned long long)i, t->data.n - left, t->data.n);
        uint32_t len = load_u32(p);
        if (len > left - 4)
            return error_set(err, STATUS_INVALID,
                             "%s '%.*s': BYTES element %llu says it is %u bytes long, but only %zu bytes of the tensor's "
                             "%zu are left; each element is a little-endian u32 length and then its bytes",
                             what, NAME_ARG(t->name), (unsigned long long)i, len, left - 4, t->data.n);
        p += 4 + (size_t)len;
        left -= 4 + (size_t)len;
    }
    if (left)
        return error_set(err, STATUS_INVALID,
                         "%s '%.*s': shape %s has %llu BYTES elements, but %zu of the tensor's %zu bytes are left over "
                         "behind the last one",
                         what, NAME_ARG(t->name), shape_format(&t->shape, shape, sizeof shape), (unsigned long long)want, left,
                         t->data.n);
    return STATUS_OK;
}

static int check_bool(const char *what, const struct tensor *t, struct error *err)
{
    uint8_t seen = 0;
    for (size_t i = 0; i < t->data.n; i++)
        seen |= t->data.p[i];
    if (seen <= 1)
        return STATUS_OK;
    size_t at = 0;
    while (t->data.p[at] <= 1)
        at++;
    return error_set(err, STATUS_INVALID, "%s '%.*s': BOOL element %zu is the byte %u; only 0 and 1 are BOOL values", what,
                     NAME_ARG(t->name), at, t->data.p[at]);
}

int tensor__check(const char *what, const struct tensor *t, struct error *err)
{
    char shape[128];
    uint64_t n;
    size_t want;
    if (t->dtype == DTYPE_INVALID || (unsigned)t->dtype >= DTYPE_COUNT)
        return error_set(err, STATUS_INVALID, "%s '%.*s': the datatype is not one of the protocol's", what, NAME_ARG(t->name));
    if (!shape_elements(&t->shape, &n))
        return error_set(err, STATUS_INVALID, "%s '%.*s': shape %s has a negative dimension or more elements than fit 63 bits",
                         what, NAME_ARG(t->name), shape_format(&t->shape, shape, sizeof shape));
    if (t->dtype == DTYPE_BYTES)
        return check_bytes(what, t, n, err);
    if (!tensor_bytes(t->dtype, &t->shape, &want))
        return error_set(err, STATUS_INVALID, "%s '%.*s': %s of shape %s does not fit any memory", what, NAME_ARG(t->name),
                         dtype_name(t->dtype), shape_format(&t->shape, shape, sizeof shape));
    if (t->data.n != want)
        return error_set(err, STATUS_INVALID, "%s '%.*s': %s of shape %s takes %zu bytes, but %zu came", what,
                         NAME_ARG(t->name), dtype_name(t->dtype), shape_format(&t->shape, shape, sizeof shape), want,
                         t->data.n);
    return t->dtype == DTYPE_BOOL ? check_bool(what, t, err) : STATUS_OK;
}

int tensor_check(const struct tensor *t, struct error *err)
{
    return tensor__check("tensor", t, err);
}

/* Bytes that `n` length-prefixed elements at `p` take; the caller's tensor has passed tensor_check. */
static size_t bytes_span(const uint8_t *p, size_t left, uint64_t n)
{
    size_t at = 0;
    for (uint64_t i = 0; i < n; i++) {
        ASSERT(left - at >= 4 && load_u32(p + at) <= left - at - 4);
        at += 4 + (size_t)load_u32(p + at);
    }
    return at;
}

void tensor_rows(const struct tensor *t, int64_t first, int64_t rows, struct tensor *out)
{
    ASSERT(t->shape.rank > 0 && first >= 0 && rows >= 0 && rows <= t->shape.dim[0] && first <= t->shape.dim[0] - rows);
    struct shape row = t->shape;
    uint64_t each;
    size_t at, n;
    row.dim[0] = 1;
    /* With no row taken the other dims may multiply past the range (a zero-sized tensor); nothing is computed then. */
    bool ok = shape_elements(&row, &each);
    ASSERT(ok || t->data.n == 0);
    if (!ok)
        at = n = 0;
    else if (t->dtype == DTYPE_BYTES) {
        at = bytes_span(t->data.p, t->data.n, (uint64_t)first * each);
        n = bytes_span(t->data.p + at, t->data.n - at, (uint64_t)rows * each);
    } else {
        size_t row_bytes = (size_t)each * dtype_bytes(t->dtype);
        at = (size_t)first * row_bytes;
        n = (size_t)rows * row_bytes;
        ASSERT(at <= t->data.n && n <= t->data.n - at);
    }
    *out = *t;
    out->shape.dim[0] = rows;
    out->data.p = t->data.p ? t->data.p + at : NULL;
    out->data.n = n;
    if (out->data.owner)
        slab_ref(out->data.owner);
}
