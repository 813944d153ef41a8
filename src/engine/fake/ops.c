/* ops.c: what a fake model computes. Plain loops over every datatype; integers wrap, halves go through float. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "engine/fake/script_priv.h"

static uint32_t load_u32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void store_u32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v, p[1] = (uint8_t)(v >> 8), p[2] = (uint8_t)(v >> 16), p[3] = (uint8_t)(v >> 24);
}

/* Element i as a double (exact up to 2^53, enough for triggers and sums). */
static double load_number(enum dtype t, const uint8_t *p, size_t i)
{
    union {
        uint8_t u8;
        uint16_t u16;
        uint32_t u32;
        uint64_t u64;
        int8_t i8;
        int16_t i16;
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
    } v = {0};
    size_t n = dtype_bytes(t);
    memcpy(&v, p + i * n, n);
    switch (t) {
    case DTYPE_BOOL:
    case DTYPE_UINT8:
        return v.u8;
    case DTYPE_UINT16:
        return v.u16;
    case DTYPE_UINT32:
        return v.u32;
    case DTYPE_UINT64:
        return (double)v.u64;
    case DTYPE_INT8:
        return v.i8;
    case DTYPE_INT16:
        return v.i16;
    case DTYPE_INT32:
        return v.i32;
    case DTYPE_INT64:
        return (double)v.i64;
    case DTYPE_FP16:
        return f16_to_f32(v.u16);
    case DTYPE_BF16:
        return bf16_to_f32(v.u16);
    case DTYPE_FP32:
        return v.f32;
    case DTYPE_FP64:
        return v.f64;
    default:
        return NAN;
    }
}

static void store_number(enum dtype t, uint8_t *p, size_t i, double d)
{
    uint64_t u = d < 0 ? (uint64_t)(int64_t)d : (uint64_t)d;
    uint16_t h = t == DTYPE_FP16 ? f32_to_f16((float)d) : t == DTYPE_BF16 ? f32_to_bf16((float)d) : (uint16_t)u;
    float f = (float)d;
    size_t n = dtype_bytes(t);
    const void *from = t == DTYPE_FP32                                       ? (const void *)&f
                       : t == DTYPE_FP64                                     ? (const void *)&d
                       : t == DTYPE_FP16 || t == DTYPE_BF16 || n == sizeof h ? (const void *)&h
                                                                             : (const void *)&u;
    memcpy(p + i * n, from, n); /* integers: the low bytes */
}

bool fake_matches(const struct fake_trigger *trigger, const struct tensor *t)
{
    uint64_t n;
    if (!trigger->on || t->dtype == DTYPE_INVALID || !shape_elements(&t->shape, &n))
        return false;
    const uint8_t *p = t->data.p, *end = p + t->data.n;
    if (t->dtype == DTYPE_BYTES) {
        for (; end - p >= 4; p += 4 + load_u32(p))
            if (load_u32(p) <= (size_t)(end - p) - 4 && str_eq(trigger->text, (struct str){(const char *)p + 4, load_u32(p)}))
                return true;
        return false;
    }
    for (size_t i = 0; i < n && !isnan(trigger->number); i++)
        if (load_number(t->dtype, p, i) == trigger->number)
            return true;
    return false;
}

/* a ± b for n elements; integers as unsigned, so that they wrap without undefined behaviour. */
static void combine(enum dtype t, bool sub, const uint8_t *a, const uint8_t *b, uint8_t *out, size_t n)
{
    size_t size = dtype_bytes(t);
    for (size_t i = 0; i < n; i++) {
        if (t == DTYPE_FP64 || t == DTYPE_FP32 || t == DTYPE_FP16 || t == DTYPE_BF16) {
            double x = load_number(t, a, i), y = load_number(t, b, i);
            if (t == DTYPE_FP64)
                store_number(t, out, i, sub ? x - y : x + y);
            else
                store_number(t, out, i, sub ? (float)x - (float)y : (float)x + (float)y);
            continue;
        }
        uint64_t x = 0, y = 0;
        memcpy(&x, a + i * size, size);
        memcpy(&y, b + i * size, size);
        uint64_t r = t == DTYPE_BOOL ? (sub ? x ^ y : x | y) : sub ? x - y : x + y;
        memcpy(out + i * size, &r, size);
    }
}

static struct slab *new_slab(size_t n, struct error *err)
{
    struct slab *s = slab_create(n);
    if (!s)
        error_set(err, STATUS_NOMEM, "no memory for an output of %zu bytes", n);
    else
        s->n = n;
    return s;
}

static bool next_decimal(const uint8_t **p, const uint8_t *end, int64_t *v)
{
    if (end - *p < 4)
        return false;
    uint32_t n = load_u32(*p);
    if (n > (size_t)(end - *p) - 4 || !str_to_i64((struct str){(const char *)*p + 4, n}, v))
        return false;
    *p += 4 + n;
    return true;
}

/* BYTES: decimal integers in, decimal integers out. */
static int combine_text(bool sub, const struct tensor *a, const struct tensor *b, struct slab **out, struct error *err)
{
    uint64_t n;
    size_t cap;
    if (!shape_elements(&a->shape, &n) || !size_mul(n, 4 + 24, &cap))
        return error_set(err, STATUS_INVALID, "input '%.*s' is too large", STR_ARG(a->name));
    struct slab *s = new_slab(cap, err);
    if (!s)
        return STATUS_NOMEM;
    const uint8_t *p = a->data.p, *q = b->data.p;
    size_t at = 0;
    for (uint64_t i = 0; i < n; i++) {
        int64_t x, y;
        if (!next_decimal(&p, a->data.p + a->data.n, &x) || !next_decimal(&q, b->data.p + b->data.n, &y)) {
            slab_unref(s);
            return error_set(err, STATUS_INVALID, "element %" PRIu64 " of '%.*s' or '%.*s' is not a decimal integer", i,
                             STR_ARG(a->name), STR_ARG(b->name));
        }
        char text[24];
        int len =
            snprintf(text, sizeof text, "%" PRId64, (int64_t)(sub ? (uint64_t)x - (uint64_t)y : (uint64_t)x + (uint64_t)y));
        store_u32(s->data + at, (uint32_t)len);
        memcpy(s->data + at + 4, text, (size_t)len);
        at += 4 + (size_t)len;
    }
    s->n = at;
    *out = s;
    return STATUS_OK;
}

static int elementwise(const struct fake_rule *r, const struct engine_io *io, const struct tensor *in, struct tensor *out,
                       struct slab **s, struct error *err)
{
    const struct tensor *a = &in[r->a], *b = &in[r->b];
    if (a->dtype == DTYPE_INVALID)
        return error_set(err, STATUS_INVALID, "output '%.*s' needs an input that was left out", STR_ARG(io->name));
    out->shape = a->shape;
    if (r->op == FAKE_COPY || b->dtype == DTYPE_INVALID) { /* an optional second operand counts as zero */
        if (!(*s = new_slab(a->data.n, err)))
            return STATUS_NOMEM;
        if (a->data.n)
            memcpy((*s)->data, a->data.p, a->data.n);
        return STATUS_OK;
    }
    if (!shape_eq(&a->shape, &b->shape))
        return error_set(err, STATUS_INVALID, "inputs '%.*s' and '%.*s' have different shapes", STR_ARG(a->name),
                         STR_ARG(b->name));
    if (a->dtype == DTYPE_BYTES)
        return combine_text(r->op == FAKE_SUB, a, b, s, err);
    if (!(*s = new_slab(a->data.n, err)))
        return STATUS_NOMEM;
    combine(a->dtype, r->op == FAKE_SUB, a->data.p, b->data.p, (*s)->data, a->data.n / dtype_bytes(a->dtype));
    return STATUS_OK;
}

/* Every element of the output has the value `r->fill`. */
static int fill(const struct fake_rule *r, const struct engine_io *io, uint64_t n, struct slab **s, struct error *err)
{
    size_t each = io->dtype == DTYPE_BYTES ? 4 + r->fill.n : dtype_bytes(io->dtype), total;
    double d = 0;
    if (!size_mul(n, each, &total))
        return error_set(err, STATUS_INVALID, "output '%.*s' is too large", STR_ARG(io->name));
    if (!(*s = new_slab(total, err)))
        return STATUS_NOMEM;
    (void)str_to_f64(r->fill, &d);
    for (uint64_t i = 0; i < n; i++) {
        if (io->dtype == DTYPE_BYTES) {
            store_u32((*s)->data + i * each, (uint32_t)r->fill.n);
            if (r->fill.n)
                memcpy((*s)->data + i * each + 4, r->fill.p, r->fill.n);
        } else {
            store_number(io->dtype, (*s)->data, i, d);
        }
    }
    return STATUS_OK;
}

/* Per row: the sum of input a, or the number of rows. */
static int per_row(const struct fake_rule *r, const struct engine_io *io, const struct tensor *in, int64_t rows, uint64_t n,
                   struct slab **s, struct error *err)
{
    const struct tensor *a = &in[r->a];
    uint64_t elements = 0;
    if (r->op == FAKE_ROW_SUM && (a->dtype == DTYPE_INVALID || !shape_elements(&a->shape, &elements)))
        return error_set(err, STATUS_INVALID, "output '%.*s' needs an input that was left out", STR_ARG(io->name));
    uint64_t row = rows > 0 ? elements / (uint64_t)rows : 0;
    if (r->op == FAKE_ROW_SUM && n != (uint64_t)rows)
        return error_set(err, STATUS_INVALID, "output '%.*s' must have one element per row", STR_ARG(io->name));
    if (!(*s = new_slab(n * dtype_bytes(io->dtype), err)))
        return STATUS_NOMEM;
    for (uint64_t i = 0; i < n; i++) {
        double sum = (double)rows;
        if (r->op == FAKE_ROW_SUM) {
            sum = 0;
            for (uint64_t j = i * row; j < (i + 1) * row; j++)
                sum += load_number(a->dtype, a->data.p, j);
        }
        store_number(io->dtype, (*s)->data, i, sum);
    }
    return STATUS_OK;
}

int fake_compute(const struct fake_rule *rule, const struct engine_io *io, const struct tensor *inputs, int64_t rows,
                 struct tensor *out, struct error *err)
{
    struct slab *s = NULL;
    uint64_t n;
    int rc;
    *out = (struct tensor){.name = io->name, .dtype = io->dtype, .shape = io->shape};
    if (rule->op == FAKE_COPY || rule->op == FAKE_ADD || rule->op == FAKE_SUB) {
        rc = elementwise(rule, io, inputs, out, &s, err);
    } else {
        for (int i = 0; i < out->shape.rank; i++)
            if (out->shape.dim[i] == TENSOR_DIM_DYNAMIC)
                out->shape.dim[i] = i == 0 ? rows : 1;
        if (!shape_elements(&out->shape, &n) || n > SIZE_MAX / 64)
            return error_set(err, STATUS_INVALID, "output '%.*s' is too large", STR_ARG(io->name));
        rc = rule->op == FAKE_FILL ? fill(rule, io, n, &s, err) : per_row(rule, io, inputs, rows, n, &s, err);
    }
    if (rc || !s) { /* they come together; the analyser can't know */
        *out = (struct tensor){0};
        return rc;
    }
    out->data = (struct slice){s->data, s->n, s}; /* the slab's first reference moves into the slice */
    return STATUS_OK;
}
