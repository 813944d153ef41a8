/* .npy files: no input may crash; what is read agrees with its shape, and written and read again it is the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "tensor/npy.h"

static void check(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tensor t, back;
    struct error err = {0};
    struct buf b;
    int rc = npy_read(slice_borrow(data, size), &t, &err);
    check(rc == STATUS_OK || (err.code == rc && err.text[0] && !t.data.owner));
    if (rc)
        return 0;
    check(tensor_check(&t, &err) == STATUS_OK);
    buf_init(&b);
    check(npy_write(&t, &b, &err) == STATUS_OK); /* strings read from a file have no trailing NULs */
    check(npy_read(slice_borrow(b.p, b.n), &back, &err) == STATUS_OK);
    check(back.dtype == t.dtype && shape_eq(&back.shape, &t.shape) && back.data.n == t.data.n);
    check(t.data.n == 0 || memcmp(back.data.p, t.data.p, t.data.n) == 0);
    tensor_release(&back);
    tensor_release(&t);
    buf_release(&b);
    return 0;
}
