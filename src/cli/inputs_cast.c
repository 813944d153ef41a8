/* inputs_cast.c: numbers of one dtype as another, for files whose array is not quite what the model takes. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "cli/inputs_priv.h"

/* Whole numbers keep 64 bits; everything else goes through a double. */
struct number {
    enum { NUMBER_REAL, NUMBER_SIGNED, NUMBER_UNSIGNED } kind;
    double d;
    int64_t i;
    uint64_t u;
};

static struct number load_signed(int64_t i)
{
    return (struct number){NUMBER_SIGNED, (double)i, i, (uint64_t)i};
}
static struct number load_unsigned(uint64_t u)
{
    return (struct number){NUMBER_UNSIGNED, (double)u, (int64_t)u, u};
}
static struct number load_real(double d)
{
    return (struct number){NUMBER_REAL, d, 0, 0};
}

static struct number load(enum dtype t, const uint8_t *p)
{
    uint16_t h;
    uint64_t u = 0;
    float f;
    double d;
    switch (t) {
    case DTYPE_INT8:
        return load_signed((int8_t)*p);
    case DTYPE_INT16:
        memcpy(&h, p, 2);
        return load_signed((int16_t)h);
    case DTYPE_INT32:
        memcpy(&u, p, 4);
        return load_signed((int32_t)(uint32_t)u);
    case DTYPE_INT64:
        memcpy(&u, p, 8);
        return load_signed((int64_t)u);
    case DTYPE_FP16:
    case DTYPE_BF16:
        memcpy(&h, p, 2);
        return load_real((double)(t == DTYPE_FP16 ? f16_to_f32(h) : bf16_to_f32(h)));
    case DTYPE_FP32:
        memcpy(&f, p, 4);
        return load_real((double)f);
    case DTYPE_FP64:
        memcpy(&d, p, 8);
        return load_real(d);
    default:
        memcpy(&u, p, dtype_bytes(t));
        return load_unsigned(u);
    }
}

/* Saturating; NaN is 0. */
static int64_t to_signed(struct number v, int64_t lo, int64_t hi)
{
    if (v.kind == NUMBER_SIGNED)
        return v.i < lo ? lo : v.i > hi ? hi : v.i;
    if (v.kind == NUMBER_UNSIGNED)
        return v.u > (uint64_t)hi ? hi : (int64_t)v.u;
    if (isnan(v.d))
        return 0;
    return v.d <= (double)lo ? lo : v.d >= (double)hi ? hi : (int64_t)v.d;
}

static uint64_t to_unsigned(struct number v, uint64_t hi)
{
    if (v.kind == NUMBER_SIGNED)
        return v.i < 0 ? 0 : (uint64_t)v.i > hi ? hi : (uint64_t)v.i;
    if (v.kind == NUMBER_UNSIGNED)
        return v.u > hi ? hi : v.u;
    if (isnan(v.d) || v.d <= 0)
        return 0;
    return v.d >= (double)hi ? hi : (uint64_t)v.d;
}

static void store(enum dtype t, struct number v, uint8_t *p)
{
    size_t width = dtype_bytes(t);
    double d = v.d;
    float f = (float)d;
    uint16_t h;
    uint64_t u;
    switch (t) {
    case DTYPE_BOOL:
        *p = v.d != 0;
        return;
    case DTYPE_FP16:
    case DTYPE_BF16:
        h = t == DTYPE_FP16 ? f32_to_f16(f) : f32_to_bf16(f);
        memcpy(p, &h, 2);
        return;
    case DTYPE_FP32:
        memcpy(p, &f, 4);
        return;
    case DTYPE_FP64:
        memcpy(p, &d, 8);
        return;
    case DTYPE_INT8:
    case DTYPE_INT16:
    case DTYPE_INT32:
    case DTYPE_INT64: {
        int64_t hi = width == 8 ? INT64_MAX : ((int64_t)1 << (8 * width - 1)) - 1;
        u = (uint64_t)to_signed(v, -hi - 1, hi);
        break;
    }
    default:
        u = to_unsigned(v, width == 8 ? UINT64_MAX : ((uint64_t)1 << (8 * width)) - 1);
    }
    memcpy(p, &u, width);
}

int inputs__cast(struct tensor *t, enum dtype to, struct error *err)
{
    size_t from_bytes = dtype_bytes(t->dtype), to_bytes = dtype_bytes(to);
    if (!from_bytes || !to_bytes)
        return error_set(err, STATUS_INVALID, "%s can't be converted to %s", dtype_name(t->dtype), dtype_name(to));
    size_t n = t->data.n / from_bytes;
    struct slab *s = n <= SIZE_MAX / 8 ? slab_create(n ? n * to_bytes : 1) : NULL;
    if (!s)
        return error_set(err, STATUS_NOMEM, "not enough memory");
    s->n = n * to_bytes;
    for (size_t i = 0; i < n; i++)
        store(to, load(t->dtype, t->data.p + i * from_bytes), s->data + i * to_bytes);
    tensor_release(t);
    t->dtype = to;
    t->data = (struct slice){s->data, s->n, s};
    return 0;
}
