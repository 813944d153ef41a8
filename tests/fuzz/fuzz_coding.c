/* Compressed bodies: byte 0 chooses the coding, byte 1 the pieces; the output never passes its bounds, and pieces do not change
 * what comes out of a stream that decodes. */
#include <stdint.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/size.h"
#include "wire/coding.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_OUT = 200000, ROOM = 1000 };

static int decode(enum coding_kind kind, const uint8_t *p, size_t n, size_t step, struct buf *out)
{
    struct coding *c;
    struct error err;
    uint8_t room[ROOM];
    if (coding_create(kind, MAX_OUT, 50, &c, &err))
        return -1;
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < n;) {
        size_t give = MIN_OF(step, n - at), used, made;
        do {
            rc = coding_step(c, p + at, give, &used, room, ROOM, &made, &err);
            if (used > give || made > ROOM)
                abort();
            buf_append(out, room, made);
            at += used;
            give -= used;
        } while (rc == 0 && made == ROOM);
        if (rc == 0 && give)
            abort(); /* room is left, input is left */
    }
    if (rc == 0)
        rc = coding_finish(c, &err);
    if (out->n > MAX_OUT + ROOM)
        abort();
    coding_destroy(c);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    enum coding_kind kind = (enum coding_kind)(CODING_GZIP + data[0] % 3);
    struct buf whole, cut;
    buf_init(&whole);
    buf_init(&cut);
    int a = decode(kind, data + 2, size - 2, SIZE_MAX, &whole), b = decode(kind, data + 2, size - 2, 1 + data[1] % 50, &cut);
    if (a == 0 && b == 0 && (whole.n != cut.n || (whole.n && memcmp(whole.p, cut.p, whole.n))))
        abort();
    buf_release(&whole);
    buf_release(&cut);
    return 0;
}
