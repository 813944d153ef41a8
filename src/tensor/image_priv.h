/* image_priv.h: for the image*.c files only: the decoders behind image_decode. */
#ifndef INFERD_TENSOR_IMAGE_PRIV_H
#define INFERD_TENSOR_IMAGE_PRIV_H

#include "tensor/image.h"

/* Room for width x height x channels bytes as the picture's pixels. STATUS_INVALID for no pixels, STATUS_TOO_LARGE with the
 * limit that was passed (`limits` is complete here), STATUS_NOMEM. */
int image__create(uint32_t width, uint32_t height, uint32_t channels, const struct image_limits *limits, struct image *out,
                  struct error *err) MUST_CHECK;
static inline uint8_t *image__pixels(struct image *i)
{
    return i->pixels.owner->data;
}

/* One a format. The format's first bytes have been seen. On error `out` may hold pixels: the caller releases. */
int image__jpeg(struct str file, uint32_t channels, const struct image_limits *limits, struct image *out,
                struct error *err) MUST_CHECK;

#endif
