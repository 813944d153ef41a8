/* image_resize.c: separable resampling. See image.h.
 *
 * Each output pixel of an axis is a weighted sum of a run of input pixels. Weights are computed once per axis in double,
 * normalised, and rounded to 22-bit fixed point; rows are resampled first, then columns, with 8 bits between the passes. With
 * the triangle filter these are exactly Pillow's steps (its Resample.c), so the result is Pillow's, bit for bit. */
#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "tensor/image_priv.h"

#define WEIGHT_BITS 22

/* The run of input pixels for each output pixel of one axis. */
struct axis {
    uint32_t in, out, taps; /* taps: room for weights of one output pixel */
    uint32_t *first, *n;    /* [out] */
    int32_t *weight;        /* [out][taps] */
};

static void axis_release(struct axis *a)
{
    free(a->first);
    free(a->n);
    free(a->weight);
}

static double triangle(double x)
{
    return fabs(x) < 1 ? 1 - fabs(x) : 0;
}

/* Weights of output pixel `i`, unnormalised; they start at input pixel *first. */
static uint32_t run_of(const struct axis *a, enum image_filter filter, uint32_t i, double *w, uint32_t *first)
{
    double scale = (double)a->in / a->out;
    if (filter == IMAGE_AREA) {
        double from = i * scale, to = MIN_OF((i + 1) * scale, (double)a->in);
        *first = MIN_OF((uint32_t)from, a->in - 1);
        uint32_t n = 0;
        for (uint32_t k = *first; k < a->in && k < to && n < a->taps; k++)
            w[n++] = MIN_OF(k + 1.0, to) - MAX_OF((double)k, from);
        return n;
    }
    double stretch = filter == IMAGE_BILINEAR && scale > 1 ? scale : 1, centre = (i + 0.5) * scale;
    double low = centre - stretch + 0.5, high = centre + stretch + 0.5;
    *first = low < 0 ? 0 : (uint32_t)low;
    uint32_t end = high > a->in ? a->in : (uint32_t)high, n = end - *first;
    ASSERT(end > *first && n <= a->taps);
    for (uint32_t k = 0; k < n; k++)
        w[k] = triangle((*first + k - centre + 0.5) * (1 / stretch));
    return n;
}

static int axis_init(struct axis *a, uint32_t in, uint32_t out, enum image_filter filter)
{
    double scale = MAX_OF((double)in / out, 1.0);
    *a = (struct axis){.in = in, .out = out, .taps = (uint32_t)ceil(scale) * 2 + 1};
    a->first = calloc(out, sizeof *a->first);
    a->n = calloc(out, sizeof *a->n);
    a->weight = calloc((size_t)out * a->taps, sizeof *a->weight);
    double *w = calloc(a->taps, sizeof *w);
    if (!a->first || !a->n || !a->weight || !w) {
        free(w);
        axis_release(a);
        return STATUS_NOMEM;
    }
    for (uint32_t i = 0; i < out; i++) {
        double sum = 0;
        a->n[i] = run_of(a, filter, i, w, &a->first[i]);
        for (uint32_t k = 0; k < a->n[i]; k++)
            sum += w[k];
        for (uint32_t k = 0; k < a->n[i]; k++)
            a->weight[(size_t)i * a->taps + k] = (int32_t)(0.5 + w[k] * (1 / sum) * (1 << WEIGHT_BITS));
    }
    free(w);
    return STATUS_OK;
}

static inline uint8_t narrow(int32_t sum)
{
    sum >>= WEIGHT_BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* One row along x. Inlined for each channel count, so that the sums are registers. */
static inline __attribute__((always_inline)) void row_along_x(const uint8_t *row, const struct axis *a, size_t ch, uint8_t *out)
{
    for (uint32_t x = 0; x < a->out; x++) {
        const int32_t *w = a->weight + (size_t)x * a->taps;
        const uint8_t *p = row + a->first[x] * ch;
        int32_t r = 1 << (WEIGHT_BITS - 1), g = r, b = r;
        for (uint32_t k = 0, n = a->n[x]; k < n; k++, p += ch) {
            r += p[0] * w[k];
            if (ch == 3) {
                g += p[1] * w[k];
                b += p[2] * w[k];
            }
        }
        *out++ = narrow(r);
        if (ch == 3) {
            *out++ = narrow(g);
            *out++ = narrow(b);
        }
    }
}

/* Rows of `in` resampled along x. */
static void along_x(const struct image *in, const struct axis *a, uint8_t *out)
{
    const size_t from = (size_t)in->width * in->channels, to = (size_t)a->out * in->channels;
    const uint8_t *row = in->pixels.p;
    for (uint32_t y = 0; y < in->height; y++, row += from, out += to)
        if (in->channels == 3)
            row_along_x(row, a, 3, out);
        else
            row_along_x(row, a, 1, out);
}

/* Columns: a whole row of sums at a time, so that memory is walked along rows. */
static void along_y(const uint8_t *in, size_t stride, const struct axis *a, int32_t *sums, uint8_t *out)
{
    for (uint32_t y = 0; y < a->out; y++) {
        for (size_t i = 0; i < stride; i++)
            sums[i] = 1 << (WEIGHT_BITS - 1);
        for (uint32_t k = 0; k < a->n[y]; k++) {
            const uint8_t *row = in + (size_t)(a->first[y] + k) * stride;
            const int32_t w = a->weight[(size_t)y * a->taps + k];
            for (size_t i = 0; i < stride; i++)
                sums[i] += row[i] * w;
        }
        for (size_t i = 0; i < stride; i++)
            *out++ = narrow(sums[i]);
    }
}

static int resample(const struct image *in, const struct axis *x, const struct axis *y, struct image *out, struct error *err)
{
    static const struct image_limits any = {IMAGE_SIDE_MAX, UINT64_MAX};
    struct image between;
    int rc = image__create(x->out, in->height, in->channels, &any, &between, err);
    if (rc)
        return rc;
    size_t stride = (size_t)x->out * in->channels;
    int32_t *sums = malloc(stride * sizeof *sums);
    rc = sums ? image__create(x->out, y->out, in->channels, &any, out, err)
              : error_set(err, STATUS_NOMEM, "no memory to resize a picture");
    if (!rc) {
        along_x(in, x, image__pixels(&between));
        along_y(between.pixels.p, stride, y, sums, image__pixels(out));
    }
    free(sums);
    image_release(&between);
    return rc;
}

int image_resize(const struct image *in, uint32_t width, uint32_t height, enum image_filter filter, struct image *out,
                 struct error *err)
{
    struct axis x, y;
    *out = (struct image){0};
    if (!width || !height || width > IMAGE_SIDE_MAX || height > IMAGE_SIDE_MAX)
        return error_set(err, STATUS_INVALID, "a picture can't be resized to %u x %u pixels: sides are 1 to %d", width, height,
                         IMAGE_SIDE_MAX);
    if (width == in->width && height == in->height)
        return image_crop(in, 0, 0, width, height, out, err);
    if (axis_init(&x, in->width, width, filter))
        return error_set(err, STATUS_NOMEM, "no memory to resize a picture");
    if (axis_init(&y, in->height, height, filter)) {
        axis_release(&x);
        return error_set(err, STATUS_NOMEM, "no memory to resize a picture");
    }
    int rc = resample(in, &x, &y, out, err);
    axis_release(&x);
    axis_release(&y);
    return rc;
}
