/* image_decode.c: which format it is, the limits, PNG and WebP. JPEG has a file of its own. See image.h. */
#include <spng.h>
#include <webp/decode.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "tensor/image_priv.h"

#define SIDE_DEFAULT   16384
#define PIXELS_DEFAULT ((uint64_t)32 << 20)

int image__create(uint32_t width, uint32_t height, uint32_t channels, const struct image_limits *limits, struct image *out,
                  struct error *err)
{
    uint64_t pixels = (uint64_t)width * height;
    size_t bytes;
    if (pixels == 0)
        return error_set(err, STATUS_INVALID, "the picture has no pixels (%u x %u)", width, height);
    if (width > limits->side || height > limits->side || width > IMAGE_SIDE_MAX || height > IMAGE_SIDE_MAX)
        return error_set(err, STATUS_TOO_LARGE, "the picture is %u x %u pixels, and a side may have %u", width, height,
                         MIN_OF(limits->side, (uint32_t)IMAGE_SIDE_MAX));
    if (pixels > limits->pixels)
        return error_set(err, STATUS_TOO_LARGE, "the picture is %u x %u = %llu pixels, and %llu are allowed", width, height,
                         (unsigned long long)pixels, (unsigned long long)limits->pixels);
    struct slab *s = size_mul((size_t)pixels, channels, &bytes) ? slab_create(bytes) : NULL;
    if (!s)
        return error_set(err, STATUS_NOMEM, "no memory for a picture of %u x %u pixels", width, height);
    s->n = bytes;
    *out = (struct image){width, height, channels, {s->data, bytes, s}};
    return STATUS_OK;
}

/* RGB to ITU-R 601 luma in place: `rgb` has 3 channels and afterwards 1 (same memory). */
static void to_grey(struct image *rgb)
{
    uint8_t *p = image__pixels(rgb);
    size_t n = (size_t)rgb->width * rgb->height;
    for (size_t i = 0; i < n; i++) /* 0.299, 0.587, 0.114 in 16 bits; they add up to one */
        p[i] = (uint8_t)((p[3 * i] * 19595u + p[3 * i + 1] * 38470u + p[3 * i + 2] * 7471u + 32768u) >> 16);
    rgb->channels = 1;
    rgb->pixels.n = rgb->pixels.owner->n = n;
}

/* ---- PNG ---- */

static int png_failed(int code, struct error *err)
{
    return error_set(err, code == SPNG_EMEM ? STATUS_NOMEM : STATUS_INVALID, "the PNG picture can't be decoded: %s",
                     spng_strerror(code));
}

static int png_pixels(spng_ctx *ctx, uint32_t channels, const struct image_limits *limits, struct image *out, struct error *err)
{
    struct spng_ihdr head;
    size_t bytes;
    int code = spng_get_ihdr(ctx, &head);
    if (code)
        return png_failed(code, err);
    int rc = image__create(head.width, head.height, 3, limits, out, err);
    if (rc)
        return rc;
    code = spng_decoded_image_size(ctx, SPNG_FMT_RGB8, &bytes);
    if (!code && bytes != out->pixels.n)
        code = SPNG_EBUFSIZ;
    if (!code)
        code = spng_decode_image(ctx, image__pixels(out), bytes, SPNG_FMT_RGB8, 0);
    if (code)
        return png_failed(code, err);
    if (channels == 1)
        to_grey(out);
    return STATUS_OK;
}

static int decode_png(struct str file, uint32_t channels, const struct image_limits *limits, struct image *out,
                      struct error *err)
{
    spng_ctx *ctx = spng_ctx_new(0);
    if (!ctx)
        return png_failed(SPNG_EMEM, err);
    /* Wrong checksums: pixels are an error, side information is dropped. Chunks of side information are bounded. */
    spng_set_crc_action(ctx, SPNG_CRC_ERROR, SPNG_CRC_DISCARD);
    spng_set_chunk_limits(ctx, 1 << 20, 4 << 20);
    int code = spng_set_png_buffer(ctx, file.p, file.n);
    int rc = code ? png_failed(code, err) : png_pixels(ctx, channels, limits, out, err);
    spng_ctx_free(ctx);
    return rc;
}

/* ---- WebP ---- */

static int decode_webp(struct str file, uint32_t channels, const struct image_limits *limits, struct image *out,
                       struct error *err)
{
    WebPBitstreamFeatures f;
    const uint8_t *p = (const uint8_t *)file.p;
    if (WebPGetFeatures(p, file.n, &f) != VP8_STATUS_OK)
        return error_set(err, STATUS_INVALID, "the WebP picture can't be decoded: its header is broken or cut off");
    if (f.has_animation)
        return error_set(err, STATUS_INVALID, "the WebP picture is an animation; send one frame");
    int rc = image__create((uint32_t)f.width, (uint32_t)f.height, 3, limits, out, err);
    if (rc)
        return rc;
    if (!WebPDecodeRGBInto(p, file.n, image__pixels(out), out->pixels.n, f.width * 3))
        return error_set(err, STATUS_INVALID, "the WebP picture can't be decoded: it is corrupt or cut off");
    if (channels == 1)
        to_grey(out);
    return STATUS_OK;
}

int image_decode(struct str file, uint32_t channels, const struct image_limits *limits, struct image *out, struct error *err)
{
    struct image_limits l = limits ? *limits : (struct image_limits){0};
    int rc;
    ASSERT(channels == 1 || channels == 3);
    l.side = l.side ? l.side : SIDE_DEFAULT;
    l.pixels = l.pixels ? l.pixels : PIXELS_DEFAULT;
    *out = (struct image){0};
    if (str_starts(file, STR("\xff\xd8\xff")))
        rc = image__jpeg(file, channels, &l, out, err);
    else if (str_starts(file, STR("\x89PNG\r\n\x1a\n")))
        rc = decode_png(file, channels, &l, out, err);
    else if (file.n >= 12 && memcmp(file.p, "RIFF", 4) == 0 && memcmp(file.p + 8, "WEBP", 4) == 0)
        rc = decode_webp(file, channels, &l, out, err);
    else
        rc = error_set(err, STATUS_INVALID, "the data (%zu bytes) is not a JPEG, PNG or WebP picture", file.n);
    if (rc) {
        image_release(out);
        *out = (struct image){0};
    }
    return rc;
}
