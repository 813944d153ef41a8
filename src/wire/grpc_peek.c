/* grpc_peek.c: a state per byte of framing, bytes of fields skipped by count.
 *
 *     PREFIX (5 bytes) -> KEY -> VARINT | LENGTH -> NAME or SKIP | SKIP (fixed) -> KEY ... until the message's length is used up -> PREFIX
 */
#include "wire/grpc_peek.h"

#include <string.h>

#include "base/size.h"
#include "base/status.h"

enum state { PREFIX, KEY, VARINT, LENGTH, NAME, SKIP };
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_LEN = 2, WIRE_32 = 5 };

void grpc_peek_init(struct grpc_peek *p)
{
    memset(p, 0, sizeof *p);
}

/* The message is used up, in the middle of a field: `whole` is false. */
static int end_message(struct grpc_peek *p, bool whole, struct error *err)
{
    if (!whole)
        return error_set(err, STATUS_INVALID, "the call's message is no valid protobuf: a field is longer than the message");
    if (!p->named && p->known && p->name_n)
        return error_set(err, STATUS_INVALID,
                         "a message of this call names no model; the first one named \"%s\": name it in each", p->name);
    p->known = true;
    p->state = PREFIX;
    p->n_prefix = 0;
    return 0;
}

static int begin_message(struct grpc_peek *p, struct error *err)
{
    if (p->prefix[0] > 1)
        return error_set(err, STATUS_INVALID, "the call's message has a flag byte of %u; it is 0 or 1", p->prefix[0]);
    if (p->prefix[0] == 1)
        return error_set(
            err, STATUS_UNIMPLEMENTED,
            "this call is routed by its model's name, which can't be read from a compressed message: send it uncompressed");
    p->left = (uint32_t)p->prefix[1] << 24 | (uint32_t)p->prefix[2] << 16 | (uint32_t)p->prefix[3] << 8 | p->prefix[4];
    p->named = false;
    p->state = KEY;
    p->value = p->shift = 0;
    return p->left ? 0 : end_message(p, true, err);
}

static int begin_name(struct grpc_peek *p, uint64_t n, struct error *err)
{
    if (p->named)
        return error_set(err, STATUS_INVALID, "a message of this call names its model twice; name it once");
    if (n > GRPC_PEEK_NAME)
        return error_set(err, STATUS_INVALID, "the model's name has %llu bytes; at most %d are accepted", (unsigned long long)n,
                         GRPC_PEEK_NAME);
    if (p->known && n != p->name_n)
        return error_set(err, STATUS_INVALID, "a message of this call names another model than the first one did, \"%s\"",
                         p->name);
    p->named = true;
    p->name_n = (size_t)n;
    p->at = 0;
    return 0;
}

static void next_field(struct grpc_peek *p)
{
    p->state = KEY;
    p->value = p->shift = 0;
}

static void name_complete(struct grpc_peek *p)
{
    p->name[p->name_n] = 0;
    p->known = true;
    next_field(p);
}

/* A field's key is complete. */
static int begin_field(struct grpc_peek *p, struct error *err)
{
    p->wire = p->value & 7;
    p->field = (uint32_t)MIN_OF(p->value >> 3, (uint64_t)UINT32_MAX);
    p->value = p->shift = 0;
    switch (p->wire) {
    case WIRE_VARINT:
        p->state = VARINT;
        return 0;
    case WIRE_LEN:
        p->state = LENGTH;
        return 0;
    case WIRE_64:
    case WIRE_32:
        p->state = SKIP;
        p->skip = p->wire == WIRE_64 ? 8 : 4;
        return 0;
    default:
        return error_set(err, STATUS_INVALID, "the call's message is no valid protobuf: wire type %u", p->wire);
    }
}

static int begin_bytes(struct grpc_peek *p, struct error *err)
{
    int rc = 0;
    if (p->value > p->left)
        return end_message(p, false, err);
    p->skip = p->value;
    p->state = SKIP;
    if (p->field == 1) {
        rc = begin_name(p, p->value, err);
        p->state = NAME;
    }
    if (rc == 0 && p->skip == 0 && p->field == 1)
        name_complete(p);
    else if (p->skip == 0)
        next_field(p);
    return rc;
}

/* One byte of a varint. */
static int take_varint(struct grpc_peek *p, uint8_t byte, struct error *err)
{
    if (p->shift > 63)
        return error_set(err, STATUS_INVALID, "the call's message is no valid protobuf: a number is too long");
    p->value |= (uint64_t)(byte & 0x7f) << p->shift;
    p->shift += 7;
    if (byte & 0x80)
        return 0;
    if (p->state == KEY)
        return begin_field(p, err);
    if (p->state == LENGTH)
        return begin_bytes(p, err);
    next_field(p);
    return 0;
}

/* Bytes of a field; returns how many were used. */
static size_t take_bytes(struct grpc_peek *p, const uint8_t *data, size_t n, int *rc, struct error *err)
{
    size_t take = (size_t)MIN_OF((uint64_t)n, p->skip);
    if (p->state == NAME) {
        if (p->known && memcmp(p->name + p->at, data, take) != 0)
            *rc = error_set(err, STATUS_INVALID, "a message of this call names another model than the first one did, \"%s\"",
                            p->name);
        else
            memcpy(p->name + p->at, data, take);
        p->at += take;
    }
    p->skip -= take;
    if (p->skip == 0 && *rc == 0 && p->state == NAME)
        name_complete(p);
    else if (p->skip == 0)
        next_field(p);
    return take;
}

int grpc_peek_feed(struct grpc_peek *p, const uint8_t *data, size_t n, struct error *err)
{
    int rc = 0;
    while (n && rc == 0) {
        if (p->state == PREFIX) {
            p->prefix[p->n_prefix++] = *data++;
            n--;
            if (p->n_prefix == sizeof p->prefix)
                rc = begin_message(p, err);
            continue;
        }
        size_t used = 1;
        p->left -= p->state == NAME || p->state == SKIP ? 0 : 1;
        if (p->state == NAME || p->state == SKIP) {
            used = take_bytes(p, data, (size_t)MIN_OF((uint64_t)n, p->left), &rc, err);
            p->left -= used;
        } else {
            rc = take_varint(p, *data, err);
        }
        data += used;
        n -= used;
        if (rc == 0 && p->left == 0)
            rc = end_message(p, p->state == KEY && p->shift == 0, err);
    }
    return rc;
}
