/* coding.c: zlib and libzstd behind one streaming face with bounds. See coding.h.
 *
 * "deflate" means zlib (RFC 9110 8.4.1.2), but some senders leave the wrapper out; the first two bytes tell: a zlib header
 * has method 8, a window of at most 32 KiB and a check sum modulo 31, and a raw stream that fakes it is not produced by any
 * encoder in use. The zlib state is therefore set up when both bytes are there. */
#include "wire/coding.h"

#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/size.h"
#include "base/status.h"

struct coding {
    enum coding_kind kind;
    uint64_t in_bytes, out_bytes, max_out_bytes;
    uint32_t max_ratio;
    bool ended;      /* at the end of a member or frame: more may follow, or nothing */
    bool z_ready;    /* zlib's state exists */
    uint8_t peek[2]; /* deflate: bytes held until the wrapper is known */
    size_t n_peek;
    z_stream z;
    ZSTD_DStream *zstd;
};

int coding_parse(struct str value, enum coding_kind *out, struct error *err)
{
    static const struct {
        const char *name;
        enum coding_kind kind;
    } known[] = {{"", CODING_IDENTITY},   {"identity", CODING_IDENTITY}, {"gzip", CODING_GZIP},
                 {"x-gzip", CODING_GZIP}, {"deflate", CODING_DEFLATE},   {"zstd", CODING_ZSTD}};
    struct str v = str_trim(value);
    for (size_t i = 0; i < COUNT_OF(known); i++)
        if (str_ieqz(v, known[i].name)) {
            *out = known[i].kind;
            return 0;
        }
    if (v.n && memchr(v.p, ',', v.n))
        return error_set(err, STATUS_MEDIA_TYPE,
                         "the body has more than one Content-Encoding; at most one of gzip, deflate, zstd is accepted");
    return error_set(err, STATUS_MEDIA_TYPE, "Content-Encoding '%.*s' is not known; gzip, deflate and zstd are", STR_ARG(v));
}

static int z_start(struct coding *c, int window_bits, struct error *err)
{
    if (inflateInit2(&c->z, window_bits) != Z_OK)
        return error_set(err, STATUS_NOMEM, "out of memory for decompressing the body");
    c->z_ready = true;
    return 0;
}

int coding_create(enum coding_kind kind, uint64_t max_out_bytes, uint32_t max_ratio, struct coding **out, struct error *err)
{
    struct coding *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(err, STATUS_NOMEM, "out of memory for decompressing the body");
    c->kind = kind;
    c->max_out_bytes = max_out_bytes;
    c->max_ratio = max_ratio;
    int rc = 0;
    if (kind == CODING_GZIP) {
        rc = z_start(c, 15 + 16, err);
    } else if (kind == CODING_ZSTD) {
        c->zstd = ZSTD_createDStream();
        if (!c->zstd || ZSTD_isError(ZSTD_DCtx_setParameter(c->zstd, ZSTD_d_windowLogMax, CODING_ZSTD_WINDOW_LOG)))
            rc = error_set(err, STATUS_NOMEM, "out of memory for decompressing the body");
    }
    if (rc) {
        coding_destroy(c);
        return rc;
    }
    *out = c;
    return 0;
}

void coding_destroy(struct coding *c)
{
    if (!c)
        return;
    if (c->z_ready)
        inflateEnd(&c->z);
    ZSTD_freeDStream(c->zstd);
    free(c);
}

static int malformed(struct error *err)
{
    return error_set(err, STATUS_INVALID, "the compressed body is malformed");
}

static int garbage(struct error *err)
{
    return error_set(err, STATUS_INVALID, "there are bytes behind the end of the compressed body");
}

/* zlib over what the struct z_stream points at; avail_* are at most UINT_MAX. */
static int z_run(struct coding *c, struct error *err)
{
    int rc = inflate(&c->z, Z_NO_FLUSH);
    if (rc == Z_STREAM_END)
        c->ended = true;
    else if (rc == Z_MEM_ERROR)
        return error_set(err, STATUS_NOMEM, "out of memory for decompressing the body");
    else if (rc != Z_OK && rc != Z_BUF_ERROR)
        return malformed(err);
    return 0;
}

static int z_step(struct coding *c, const uint8_t *in, size_t n, size_t *in_used, uint8_t *out, size_t room, size_t *out_n,
                  struct error *err)
{
    if (c->ended) {
        if (n == 0)
            return 0;
        if (c->kind != CODING_GZIP || in[0] != 0x1f) /* only gzip has members */
            return garbage(err);
        if (inflateReset(&c->z) != Z_OK)
            return malformed(err);
        c->ended = false;
    }
    size_t take = MIN_OF(n, (size_t)UINT32_MAX / 2), space = MIN_OF(room, (size_t)UINT32_MAX / 2);
    c->z.next_in = (Bytef *)(uintptr_t)in; /* not written to: zlib's API is not const-correct */
    c->z.avail_in = (uInt)take;
    c->z.next_out = out;
    c->z.avail_out = (uInt)space;
    int rc = z_run(c, err);
    *in_used = take - c->z.avail_in;
    *out_n = space - c->z.avail_out;
    return rc;
}

/* Hold the first two bytes back until the wrapper is known, then feed them first. */
static int deflate_step(struct coding *c, const uint8_t *in, size_t n, size_t *in_used, uint8_t *out, size_t room,
                        size_t *out_n, struct error *err)
{
    if (!c->z_ready) {
        while (c->n_peek < 2 && *in_used < n)
            c->peek[c->n_peek++] = in[(*in_used)++];
        if (c->n_peek < 2)
            return 0;
        bool wrapped = (c->peek[0] & 15) == 8 && c->peek[0] >> 4 <= 7 && (c->peek[0] << 8 | c->peek[1]) % 31 == 0;
        int rc = z_start(c, wrapped ? 15 : -15, err);
        size_t held = 0, got = 0;
        if (rc == 0)
            rc = z_step(c, c->peek, 2, &held, out, room, &got, err);
        if (rc == 0 && held < 2) /* the stream ended inside its first two bytes */
            rc = garbage(err);
        *out_n = got;
        return rc;
    }
    return z_step(c, in, n, in_used, out, room, out_n, err);
}

static int zstd_step(struct coding *c, const uint8_t *in, size_t n, size_t *in_used, uint8_t *out, size_t room, size_t *out_n,
                     struct error *err)
{
    ZSTD_inBuffer i = {in, n, 0};
    ZSTD_outBuffer o = {out, room, 0};
    if (n == 0 && c->ended)
        return 0;
    size_t rc = ZSTD_decompressStream(c->zstd, &o, &i);
    *in_used = i.pos;
    *out_n = o.pos;
    if (ZSTD_isError(rc)) {
        if (ZSTD_getErrorCode(rc) == ZSTD_error_memory_allocation)
            return error_set(err, STATUS_NOMEM, "out of memory for decompressing the body");
        if (ZSTD_getErrorCode(rc) == ZSTD_error_frameParameter_windowTooLarge)
            return error_set(err, STATUS_TOO_LARGE, "the zstd body needs a window of more than 8 MiB");
        return c->ended && i.pos == 0 ? garbage(err) : malformed(err);
    }
    if (i.pos || o.pos)
        c->ended = rc == 0;
    return 0;
}

static int check_bounds(struct coding *c, struct error *err)
{
    if (c->out_bytes > c->max_out_bytes)
        return error_set(err, STATUS_TOO_LARGE, "the body is larger than %llu bytes when decompressed",
                         (unsigned long long)c->max_out_bytes);
    if (c->max_ratio && c->out_bytes > CODING_RATIO_FREE_BYTES && c->out_bytes / c->max_ratio > c->in_bytes)
        return error_set(err, STATUS_TOO_LARGE, "the body decompresses to more than %u times its size", c->max_ratio);
    return 0;
}

int coding_step(struct coding *c, const uint8_t *in, size_t n, size_t *in_used, uint8_t *out, size_t out_room, size_t *out_n,
                struct error *err)
{
    *in_used = *out_n = 0;
    for (;;) {
        size_t used = 0, made = 0;
        const uint8_t *from = in + *in_used;
        uint8_t *to = out + *out_n;
        size_t left = n - *in_used, room = out_room - *out_n;
        int rc = c->kind == CODING_ZSTD      ? zstd_step(c, from, left, &used, to, room, &made, err)
                 : c->kind == CODING_DEFLATE ? deflate_step(c, from, left, &used, to, room, &made, err)
                                             : z_step(c, from, left, &used, to, room, &made, err);
        *in_used += used;
        *out_n += made;
        c->in_bytes += used;
        c->out_bytes += made;
        if (rc == 0)
            rc = check_bounds(c, err);
        if (rc)
            return rc;
        if (*out_n == out_room || (used == 0 && made == 0) || (*in_used == n && made == 0))
            return 0;
    }
}

int coding_finish(struct coding *c, struct error *err)
{
    return c->ended ? 0 : error_set(err, STATUS_INVALID, "the compressed body ends before its end mark");
}
