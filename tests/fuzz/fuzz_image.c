/* Pictures: no input may crash or pass the limits; what decodes can be resized and laid out. The last two bytes choose channels,
 * filter and size. */
#include <stdint.h>
#include <stdlib.h>

#include "base/status.h"
#include "tensor/image.h"

static void check(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct image_limits limits = {.side = 512, .pixels = 1 << 16};
    static const struct image_layout layout = {DTYPE_FP16, true, true, 1.0f / 255, {0.5f, 0.5f, 0.5f}, {0.5f, 0.5f, 0.5f}};
    struct image im, small;
    struct tensor t;
    struct error err = {0};
    if (size < 2)
        return 0;
    unsigned a = data[size - 1], b = data[size - 2];
    int rc = image_decode((struct str){(const char *)data, size - 2}, a & 1 ? 1 : 3, &limits, &im, &err);
    check(rc == STATUS_OK || (err.code == rc && err.text[0] && !im.pixels.owner));
    if (rc)
        return 0;
    check(im.width <= 512 && im.height <= 512 && im.pixels.n == (size_t)im.width * im.height * im.channels);
    check(image_resize(&im, 1 + b % 40, 1 + b / 7, (enum image_filter)(a / 2 % 3), &small, &err) == STATUS_OK);
    check(image_tensor(&small, &layout, &t, &err) == STATUS_OK);
    tensor_release(&t);
    image_release(&small);
    image_release(&im);
    return 0;
}
