/* image.h: pictures into tensors: decode JPEG, PNG and WebP, resize, crop, normalise, lay out.
 *
 * A picture is 8 bits a sample, 1 (grey) or 3 (RGB) channels, rows packed one behind the other (HWC). Transparency is dropped, 16
 * bits a sample become 8, CMYK becomes RGB, animations are refused; EXIF orientation is not applied: all as Pillow's
 * Image.open(f).convert("RGB") does. Grey from a coloured picture is ITU-R 601 luma.
 *
 * What comes in is a stranger's: the format is told by its first bytes, never by a name; sides and pixels are bounded before
 * memory is taken; a progressive JPEG may not have endless scans; a truncated or corrupt file is an error, not a half-grey
 * picture. Decoding takes 3 bytes a pixel (a progressive JPEG up to 9 more), besides the result. All functions are pure and may run
 * on any thread; decoding a large picture takes tens of milliseconds, so not on an I/O thread. */
#ifndef INFERD_TENSOR_IMAGE_H
#define INFERD_TENSOR_IMAGE_H

#include "tensor/tensor.h"

struct image {
    uint32_t width, height;
    uint32_t channels;   /* 1 or 3 */
    struct slice pixels; /* [height, width, channels] */
};

struct image_limits {
    uint32_t side;   /* largest width or height; 0: 16384 */
    uint64_t pixels; /* width x height; 0: 33554432 (8K) */
};

#define IMAGE_SIDE_MAX 65500 /* of any picture, also a resized one */

/* Decode `file` to `channels` (1 or 3). STATUS_INVALID: not one of the three formats, corrupt, truncated, animated, or 0
 * pixels; STATUS_TOO_LARGE: beyond `limits` (may be NULL), with both numbers; STATUS_NOMEM. On error `out` is empty. */
int image_decode(struct str file, uint32_t channels, const struct image_limits *limits, struct image *out,
                 struct error *err) MUST_CHECK;

static inline void image_release(struct image *i)
{
    slice_release(&i->pixels);
}

enum image_filter {
    /* Linear between pixel centres; when shrinking, the triangle grows with the scale, so that every pixel counts (Pillow's
     * BILINEAR, torchvision's antialias=True). Bit for bit as Pillow. */
    IMAGE_BILINEAR,
    /* Linear between the four pixels around, also when shrinking (OpenCV's INTER_LINEAR, torch's interpolate). */
    IMAGE_BILINEAR_PLAIN,
    /* The mean of the area that an output pixel covers, with fractions at its edges (OpenCV's INTER_AREA). */
    IMAGE_AREA,
};

/* `in` at width x height (1..IMAGE_SIDE_MAX). When the size is the same, a view. STATUS_INVALID, STATUS_NOMEM. */
int image_resize(const struct image *in, uint32_t width, uint32_t height, enum image_filter filter, struct image *out,
                 struct error *err) MUST_CHECK;

/* The rectangle at (x, y). STATUS_INVALID when it is empty or not inside; STATUS_NOMEM. A view when it has whole rows. */
int image_crop(const struct image *in, uint32_t x, uint32_t y, uint32_t width, uint32_t height, struct image *out,
               struct error *err) MUST_CHECK;

/* How samples become elements: element = (sample x scale - mean[c]) / std[c]. */
struct image_layout {
    enum dtype dtype;      /* UINT8 (scale, mean and std are not looked at), FP16, BF16 or FP32 */
    bool chw;              /* channels first; else last */
    bool bgr;              /* blue first */
    float scale;           /* 1/255 for 0..1 */
    float mean[3], std[3]; /* in R, G, B order whatever `bgr` says; std is not 0 */
};

/* A tensor of shape [C,H,W] or [H,W,C] (no batch axis), without a name. STATUS_INVALID for another dtype or a std of 0;
 * STATUS_NOMEM. */
int image_tensor(const struct image *in, const struct image_layout *layout, struct tensor *out, struct error *err) MUST_CHECK;

#endif
