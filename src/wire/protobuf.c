/* protobuf.c: reading the wire format. See protobuf.h. */
#include "wire/protobuf.h"

#include <string.h>

#include "base/size.h"
#include "base/status.h"

#define FIELD_NUMBER_MAX ((1u << 29) - 1)
#define CONTINUES        0x80u

bool pb_varint(const uint8_t **p, const uint8_t *end, uint64_t *out)
{
    const uint8_t *at = *p;
    uint64_t v = 0;
    if (at < end && !(*at & CONTINUES)) {
        *out = *at;
        *p = at + 1;
        return true;
    }
    for (unsigned shift = 0; at < end && shift < 64; shift += 7) {
        uint8_t b = *at++;
        if (shift == 63 && b > 1)
            return false; /* beyond 64 bits */
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & CONTINUES)) {
            *out = v;
            *p = at;
            return true;
        }
    }
    return false;
}

size_t pb_varint_count(struct str packed)
{
    const uint8_t *p = (const uint8_t *)packed.p;
    size_t n = 0;
    for (size_t i = 0; i < packed.n; i++)
        n += p[i] < CONTINUES;
    return n;
}

static int malformed(const struct pb_reader *r, const char *why, struct error *err)
{
    return error_set(err, STATUS_INVALID, "the message is not valid protobuf: %s, %zu bytes before its end", why,
                     (size_t)(r->end - r->p));
}

static int read_tag(struct pb_reader *r, uint32_t *number, unsigned *wire, struct error *err)
{
    uint64_t tag;
    if (!pb_varint(&r->p, r->end, &tag))
        return malformed(r, "a field's key is cut off or longer than 64 bits", err);
    if (tag >> 3 == 0 || tag >> 3 > FIELD_NUMBER_MAX)
        return malformed(r, "a field's number is not in 1..536870911", err);
    *number = (uint32_t)(tag >> 3);
    *wire = tag & 7;
    return 0;
}

static int read_fixed(struct pb_reader *r, size_t n, uint64_t *out, struct error *err)
{
    if ((size_t)(r->end - r->p) < n)
        return malformed(r, "a field of fixed size is cut off", err);
    *out = 0;
    memcpy(out, r->p, n); /* little-endian, as the machine is (asserted in tensor.c) */
    r->p += n;
    return 0;
}

static int read_value(struct pb_reader *r, struct pb_field *f, unsigned wire, struct error *err)
{
    f->wire = (enum pb_wire)wire;
    switch (wire) {
    case PB_VARINT:
        return pb_varint(&r->p, r->end, &f->value) ? 0 : malformed(r, "a number is cut off or longer than 64 bits", err);
    case PB_I64:
        return read_fixed(r, 8, &f->value, err);
    case PB_I32:
        return read_fixed(r, 4, &f->value, err);
    case PB_LEN:
        if (!pb_varint(&r->p, r->end, &f->value))
            return malformed(r, "a length is cut off or longer than 64 bits", err);
        if (f->value > (size_t)(r->end - r->p))
            return malformed(r, "a field is longer than the message", err);
        f->bytes = (struct str){(const char *)r->p, (size_t)f->value};
        r->p += f->value;
        return 0;
    default:
        return malformed(r, "a field's wire type is 6 or 7", err);
    }
}

/* Behind the start of group `number`: to behind its end. The stack of open groups is an array, not the call stack. */
static int skip_group(struct pb_reader *r, uint32_t number, struct error *err)
{
    uint32_t open[PB_GROUP_DEPTH_MAX];
    size_t depth = 0;
    struct pb_field skipped;
    unsigned wire;
    open[depth++] = number;
    while (depth) {
        int rc = read_tag(r, &number, &wire, err);
        if (rc == 0 && wire == PB_GROUP && depth == COUNT_OF(open))
            rc = malformed(r, "groups are nested too deeply", err);
        if (rc == 0 && wire == PB_GROUP_END && number != open[depth - 1])
            rc = malformed(r, "a group ends that did not begin", err);
        if (rc)
            return rc;
        if (wire == PB_GROUP)
            open[depth++] = number;
        else if (wire == PB_GROUP_END)
            depth--;
        else if ((rc = read_value(r, &skipped, wire, err)) != 0)
            return rc;
    }
    return 0;
}

int pb_next(struct pb_reader *r, struct pb_field *f, struct error *err)
{
    unsigned wire;
    while (r->p < r->end) {
        int rc = read_tag(r, &f->number, &wire, err);
        if (rc == 0 && wire == PB_GROUP_END)
            rc = malformed(r, "a group ends that did not begin", err);
        if (rc)
            return rc;
        if (wire != PB_GROUP) {
            rc = read_value(r, f, wire, err);
            return rc ? rc : 1;
        }
        rc = skip_group(r, f->number, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int wrong_wire(const struct pb_field *f, const char *what, const char *takes, struct error *err)
{
    static const char *const names[] = {"a varint", "64 fixed bits", "length-delimited",
                                        "a group",  "a group's end", "32 fixed bits"};
    return error_set(err, STATUS_INVALID, "%s (field %u) was sent as %s, but it is %s", what, f->number, names[f->wire], takes);
}

int pb_get_bytes(const struct pb_field *f, const char *what, struct str *out, struct error *err)
{
    if (f->wire != PB_LEN)
        return wrong_wire(f, what, "length-delimited", err);
    *out = f->bytes;
    return 0;
}

int pb_get_string(const struct pb_field *f, const char *what, struct str *out, struct error *err)
{
    int rc = pb_get_bytes(f, what, out, err);
    for (size_t at = 0, n; rc == 0 && at < out->n; at += n) {
        n = str_utf8_at(*out, at);
        if (!n)
            return error_set(err, STATUS_INVALID, "%s (field %u) is not UTF-8 at byte %zu; a string must be", what, f->number,
                             at);
    }
    return rc;
}

int pb_get_u64(const struct pb_field *f, const char *what, uint64_t *out, struct error *err)
{
    if (f->wire != PB_VARINT)
        return wrong_wire(f, what, "a varint", err);
    *out = f->value;
    return 0;
}

int pb_get_i64(const struct pb_field *f, const char *what, int64_t *out, struct error *err)
{
    uint64_t v;
    int rc = pb_get_u64(f, what, &v, err);
    if (rc == 0)
        memcpy(out, &v, sizeof v);
    return rc;
}

int pb_get_bool(const struct pb_field *f, const char *what, bool *out, struct error *err)
{
    uint64_t v;
    int rc = pb_get_u64(f, what, &v, err);
    if (rc == 0)
        *out = v != 0;
    return rc;
}

int pb_get_f64(const struct pb_field *f, const char *what, double *out, struct error *err)
{
    if (f->wire != PB_I64)
        return wrong_wire(f, what, "64 fixed bits", err);
    memcpy(out, &f->value, sizeof *out);
    return 0;
}
