/* grpc_frame.c: message prefixes and header values. See grpc_frame.h; compression is in grpc_coding.c. */
#include "wire/grpc_frame.h"

#include <string.h>

#include "base/size.h"
#include "base/status.h"

#define FIRST_BYTES    (64u << 10) /* of a message of which nothing has come yet */
#define GROWTH         4
#define TIMEOUT_DIGITS 8

void grpc_prefix_write(uint8_t *p, bool compressed, uint32_t n)
{
    p[0] = compressed;
    p[1] = (uint8_t)(n >> 24);
    p[2] = (uint8_t)(n >> 16);
    p[3] = (uint8_t)(n >> 8);
    p[4] = (uint8_t)n;
}

static int read_prefix(const uint8_t *p, uint64_t limit, uint32_t *length, struct error *err)
{
    if (p[0] > 1)
        return error_set(err, STATUS_INVALID, "a message's first byte is %u; it must be 0 (plain) or 1 (compressed)", p[0]);
    *length = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
    if (*length > limit)
        return error_set(err, STATUS_TOO_LARGE, "the message has %u bytes; at most %llu are accepted here", *length,
                         (unsigned long long)limit);
    return 0;
}

int grpc_split(struct slice body, uint64_t limit, struct grpc_message *m, struct error *err)
{
    uint32_t length;
    if (body.n < GRPC_PREFIX_BYTES)
        return error_set(err, STATUS_INVALID, "the request ends after %zu bytes, before its message begins", body.n);
    int rc = read_prefix(body.p, limit, &length, err);
    if (rc)
        return rc;
    size_t left = body.n - GRPC_PREFIX_BYTES;
    if (left < length)
        return error_set(err, STATUS_INVALID, "the request's message has %u bytes by its prefix, but only %zu came", length,
                         left);
    if (left > length)
        return error_set(err, STATUS_UNIMPLEMENTED, "%zu bytes follow the request's message; this method takes one",
                         left - length);
    m->compressed = body.p[0] == 1;
    m->data = (struct slice){body.p + GRPC_PREFIX_BYTES, length, body.owner};
    return 0;
}

/* ---- a stream of messages ---- */

void grpc_reader_init(struct grpc_reader *r, uint64_t limit_bytes)
{
    *r = (struct grpc_reader){.limit_bytes = limit_bytes};
}

void grpc_reader_release(struct grpc_reader *r)
{
    slab_unref(r->slab);
    *r = (struct grpc_reader){0};
}

size_t grpc_reader_bytes(const struct grpc_reader *r)
{
    return r->slab ? r->slab->cap : 0;
}

static int make_room(struct grpc_reader *r, struct error *err)
{
    size_t have = r->slab ? r->slab->n : 0;
    if (r->slab && (r->slab->cap > have || have == r->length))
        return 0;
    size_t cap = MIN_OF((size_t)r->length, MAX_OF(have * GROWTH, (size_t)FIRST_BYTES));
    struct slab *bigger = slab_create(cap);
    if (!bigger)
        return error_set(err, STATUS_NOMEM, "out of memory for a message of %u bytes; try again later", r->length);
    if (have)
        memcpy(bigger->data, r->slab->data, have);
    bigger->n = have;
    slab_unref(r->slab);
    r->slab = bigger;
    return 0;
}

int grpc_read(struct grpc_reader *r, const uint8_t **data, size_t *n, struct grpc_message *m, struct error *err)
{
    while (r->n_prefix < GRPC_PREFIX_BYTES) {
        if (!*n)
            return 0;
        r->prefix[r->n_prefix++] = *(*data)++;
        --*n;
        if (r->n_prefix == GRPC_PREFIX_BYTES) {
            int rc = read_prefix(r->prefix, r->limit_bytes, &r->length, err);
            if (rc)
                return rc;
        }
    }
    while (!r->slab || r->slab->n < r->length) {
        if (!*n && r->length)
            return 0;
        int rc = make_room(r, err);
        if (rc)
            return rc;
        size_t take = MIN_OF(*n, r->slab->cap - r->slab->n);
        take = MIN_OF(take, r->length - r->slab->n);
        if (take)
            memcpy(r->slab->data + r->slab->n, *data, take);
        r->slab->n += take;
        *data += take;
        *n -= take;
        if (!r->length)
            break;
    }
    *m = (struct grpc_message){{r->slab->data, r->slab->n, r->slab}, r->prefix[0] == 1};
    r->slab = NULL;
    r->n_prefix = 0;
    return 1;
}

int grpc_reader_finish(const struct grpc_reader *r, struct error *err)
{
    if (!r->n_prefix && !r->slab)
        return 0;
    if (r->n_prefix < GRPC_PREFIX_BYTES)
        return error_set(err, STATUS_INVALID, "the stream ends inside a message's prefix");
    return error_set(err, STATUS_INVALID, "the stream ends inside a message: %zu of %u bytes came", r->slab ? r->slab->n : 0,
                     r->length);
}

/* ---- header values ---- */

int grpc_timeout_parse(struct str v, uint64_t *ns, struct error *err)
{
    static const struct {
        char unit;
        uint64_t ns;
    } units[] = {{'n', 1}, {'u', 1000}, {'m', 1000000}, {'S', 1000000000}, {'M', 60000000000u}, {'H', 3600000000000u}};
    uint64_t count;
    if (v.n >= 2 && v.n <= TIMEOUT_DIGITS + 1 && str_to_u64((struct str){v.p, v.n - 1}, &count))
        for (size_t i = 0; i < COUNT_OF(units); i++)
            if (v.p[v.n - 1] == units[i].unit) {
                if (__builtin_mul_overflow(count, units[i].ns, ns))
                    *ns = UINT64_MAX;
                return 0;
            }
    return error_set(err, STATUS_INVALID, "grpc-timeout is '%.*s'; it takes 1 to 8 digits and one of the units H M S m u n",
                     STR_ARG(v));
}

void grpc_message_append(struct buf *b, struct str text)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t i = 0; i < text.n; i++) {
        uint8_t c = (uint8_t)text.p[i];
        if (c >= 0x20 && c <= 0x7e && c != '%')
            buf_append_c(b, (char)c);
        else
            buf_append(b, (char[]){'%', hex[c >> 4], hex[c & 15]}, 3);
    }
}
