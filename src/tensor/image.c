/* image.c: crops, and samples into elements. See image.h. */
#include "tensor/image.h"

#include <math.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "tensor/image_priv.h"
#include "tensor/tensor_priv.h"

int image_crop(const struct image *in, uint32_t x, uint32_t y, uint32_t width, uint32_t height, struct image *out,
               struct error *err)
{
    static const struct image_limits any = {IMAGE_SIDE_MAX, UINT64_MAX};
    const size_t ch = in->channels;
    *out = (struct image){0};
    if (!width || !height || width > in->width || x > in->width - width || height > in->height || y > in->height - height)
        return error_set(err, STATUS_INVALID, "a picture of %u x %u pixels has no %u x %u at (%u, %u)", in->width, in->height,
                         width, height, x, y);
    size_t from = (size_t)in->width * ch, to = (size_t)width * ch;
    const uint8_t *p = in->pixels.p + y * from + x * ch;
    if (width == in->width) {
        *out = (struct image){width, height, in->channels, {p, height * to, in->pixels.owner}};
        if (out->pixels.owner)
            slab_ref(out->pixels.owner);
        return STATUS_OK;
    }
    int rc = image__create(width, height, in->channels, &any, out, err);
    for (uint32_t i = 0; !rc && i < height; i++)
        memcpy(image__pixels(out) + i * to, p + i * from, to);
    return rc;
}

/* 256 samples to elements, once a channel. */
static void element_table(const struct image_layout *l, uint32_t channel, uint8_t *table)
{
    for (unsigned v = 0; v < 256; v++) {
        float f = ((float)v * l->scale - l->mean[channel]) / l->std[channel];
        uint16_t h = l->dtype == DTYPE_FP16 ? f32_to_f16(f) : f32_to_bf16(f);
        if (l->dtype == DTYPE_FP32)
            memcpy(table + 4 * (size_t)v, &f, sizeof f);
        else if (l->dtype == DTYPE_UINT8)
            table[v] = (uint8_t)v;
        else
            memcpy(table + 2 * (size_t)v, &h, sizeof h);
    }
}

/* Channel c of the picture into every `step`-th element from `to` on. */
static void spread(const struct image *in, uint32_t c, const uint8_t *table, size_t each, size_t step, uint8_t *to)
{
    size_t n = (size_t)in->width * in->height;
    const uint8_t *p = in->pixels.p + c;
    for (size_t i = 0; i < n; i++, p += in->channels, to += step * each)
        switch (each) { /* constant sizes: a move each */
        case 4:
            memcpy(to, table + 4 * (size_t)*p, 4);
            break;
        case 2:
            memcpy(to, table + 2 * (size_t)*p, 2);
            break;
        default:
            *to = *p;
        }
}

static int check_layout(const struct image *in, const struct image_layout *l, struct error *err)
{
    if (l->dtype != DTYPE_UINT8 && l->dtype != DTYPE_FP16 && l->dtype != DTYPE_BF16 && l->dtype != DTYPE_FP32)
        return error_set(err, STATUS_INVALID, "a picture becomes UINT8, FP16, BF16 or FP32, not %s", dtype_name(l->dtype));
    for (uint32_t c = 0; l->dtype != DTYPE_UINT8 && c < in->channels; c++)
        if (l->std[c] == 0 || !isfinite(l->std[c]) || !isfinite(l->mean[c]) || !isfinite(l->scale))
            return error_set(err, STATUS_INVALID,
                             "a picture is normalised by finite numbers and a std that is not 0, but "
                             "channel %u has scale %g, mean %g, std %g",
                             c, (double)l->scale, (double)l->mean[c], (double)l->std[c]);
    return STATUS_OK;
}

int image_tensor(const struct image *in, const struct image_layout *l, struct tensor *out, struct error *err)
{
    uint8_t table[256 * 4];
    size_t n = (size_t)in->width * in->height, each = dtype_bytes(l->dtype), bytes;
    *out = (struct tensor){0};
    int rc = check_layout(in, l, err);
    if (rc)
        return rc;
    struct slab *s = size_mul(n * in->channels, each, &bytes) ? slab_create(bytes) : NULL;
    if (!s)
        return error_set(err, STATUS_NOMEM, "no memory for a picture of %u x %u as %s", in->width, in->height,
                         dtype_name(l->dtype));
    s->n = bytes;
    for (uint32_t c = 0; c < in->channels; c++) {
        size_t place = l->bgr ? in->channels - 1 - c : c;
        element_table(l, c, table);
        spread(in, c, table, each, l->chw ? 1 : in->channels, s->data + place * each * (l->chw ? n : 1));
    }
    int64_t h = in->height, w = in->width, ch = in->channels;
    out->dtype = l->dtype;
    out->shape = l->chw ? (struct shape){3, {ch, h, w}} : (struct shape){3, {h, w, ch}};
    out->data = (struct slice){s->data, bytes, s};
    return STATUS_OK;
}
