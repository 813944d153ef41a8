/* grpc_coding.c: compression of single gRPC messages. See grpc_frame.h. */
#include <string.h>
#include <zlib.h>

#include "base/size.h"
#include "base/status.h"
#include "wire/grpc_frame.h"

#define INFLATE_FIRST_BYTES 4096u
#define DEFLATE_LEVEL       1 /* a call waits for it */
#define MEM_LEVEL           8
#define ROOM_MIN            64u /* what coding_step asks for */

int grpc_coding_parse(struct str value, enum coding_kind *out, struct error *err)
{
    struct str v = str_trim(value);
    *out = CODING_IDENTITY;
    if (!v.n || str_ieqz(v, "identity"))
        return 0;
    *out = str_ieqz(v, "gzip") ? CODING_GZIP : CODING_DEFLATE;
    if (*out == CODING_GZIP || str_ieqz(v, "deflate"))
        return 0;
    return error_set(err, STATUS_UNIMPLEMENTED, "grpc-encoding '%.*s' is not known here; " GRPC_ACCEPTED " are", STR_ARG(v));
}

const char *grpc_coding_name(enum coding_kind kind)
{
    return kind == CODING_GZIP ? "gzip" : kind == CODING_DEFLATE ? "deflate" : "identity";
}

bool grpc_coding_accepted(struct str list, enum coding_kind kind)
{
    struct str part;
    while (str_cut(&list, ',', &part))
        if (str_ieqz(str_trim(part), grpc_coding_name(kind)))
            return true;
    return false;
}

static struct slab *grown(struct slab *s, uint64_t max_bytes)
{
    size_t cap = s ? (size_t)MIN_OF((uint64_t)s->cap * 2, max_bytes) + ROOM_MIN : INFLATE_FIRST_BYTES;
    struct slab *bigger = slab_create(MAX_OF(cap, s ? s->n + ROOM_MIN : 0));
    if (bigger && s) {
        memcpy(bigger->data, s->data, s->n);
        bigger->n = s->n;
    }
    slab_unref(s);
    return bigger;
}

int grpc_inflate(enum coding_kind kind, struct slice message, uint64_t max_bytes, uint32_t max_ratio, struct slice *out,
                 struct error *err)
{
    struct coding *c;
    struct slab *s = NULL;
    if (kind == CODING_IDENTITY)
        return error_set(err, STATUS_INVALID, "a message is marked as compressed, but the call has no grpc-encoding");
    int rc = coding_create(kind, max_bytes, max_ratio, &c, err);
    if (rc)
        return rc;
    for (size_t at = 0, used, made, room; rc == 0;) {
        if (!s || s->cap - s->n < ROOM_MIN)
            s = grown(s, max_bytes);
        if (!s) {
            rc = error_set(err, STATUS_NOMEM, "out of memory for decompressing a message; try again later");
            break;
        }
        room = s->cap - s->n;
        rc = coding_step(c, message.p + at, message.n - at, &used, s->data + s->n, room, &made, err);
        s->n += made;
        at += used;
        if (rc == 0 && made < room)
            break;
    }
    if (rc == 0)
        rc = coding_finish(c, err);
    coding_destroy(c);
    if (rc) {
        slab_unref(s);
        return rc;
    }
    *out = (struct slice){s->data, s->n, s};
    return 0;
}

/* Feed all slices; `b` has room for the worst case, so that zlib never waits for more. */
static bool run_deflate(z_stream *z, const struct slice *slices, size_t n)
{
    int rc = Z_OK;
    for (size_t i = 0; i < n && rc == Z_OK; i++) {
        z->next_in = (Bytef *)(uintptr_t)slices[i].p; /* not written to */
        z->avail_in = (uInt)slices[i].n;
        if (slices[i].n)
            rc = deflate(z, Z_NO_FLUSH);
    }
    return rc == Z_OK && deflate(z, Z_FINISH) == Z_STREAM_END;
}

int grpc_deflate(enum coding_kind kind, const struct slice *slices, size_t n, struct slice *out, struct error *err)
{
    z_stream z = {0};
    struct buf b;
    size_t total = 0;
    for (size_t i = 0; i < n; i++)
        if (!size_add(total, slices[i].n, &total) || total > INT32_MAX)
            return error_set(err, STATUS_TOO_LARGE, "the answer has more than 2 GiB, which a gRPC message can't carry");
    if (deflateInit2(&z, DEFLATE_LEVEL, Z_DEFLATED, kind == CODING_GZIP ? 31 : 15, MEM_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK)
        return error_set(err, STATUS_NOMEM, "out of memory for compressing the answer; try again later");
    size_t most = deflateBound(&z, total);
    buf_init(&b);
    char *room = buf_reserve(&b, GRPC_PREFIX_BYTES + most);
    bool ok = room != NULL;
    if (ok) {
        z.next_out = (Bytef *)room + GRPC_PREFIX_BYTES;
        z.avail_out = (uInt)most;
        ok = run_deflate(&z, slices, n);
        b.n = GRPC_PREFIX_BYTES + most - z.avail_out;
    }
    deflateEnd(&z);
    *out = ok ? slice_take(&b) : (struct slice){0};
    if (!out->p) {
        buf_release(&b);
        return error_set(err, STATUS_NOMEM, "out of memory for compressing the answer; try again later");
    }
    grpc_prefix_write(out->owner->data, true, (uint32_t)(out->n - GRPC_PREFIX_BYTES));
    return 0;
}
