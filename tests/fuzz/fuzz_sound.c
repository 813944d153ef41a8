/* Sound files of strangers: no input may crash, leak or pass the limits. The last byte chooses the rate. */
#include <stdint.h>
#include <stdlib.h>

#include "base/status.h"
#include "tensor/sound.h"

static void check(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct sound_limits limits = {.frames = 20000, .channels = 8};
    struct tensor t;
    struct error err = {0};
    uint32_t rate;
    if (size < 1)
        return 0;
    int rc =
        sound_decode((struct str){(const char *)data, size - 1}, data[size - 1] % 8 == 0 ? 16000 : 0, &limits, &t, &rate, &err);
    check(rc == STATUS_OK || (err.code == rc && err.text[0] && !t.data.owner));
    if (rc)
        return 0;
    check(t.shape.dim[0] <= 20000 && tensor_check(&t, &err) == STATUS_OK);
    tensor_release(&t);
    return 0;
}
