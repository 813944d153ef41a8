/* infer_proto_contents.c: InferTensorContents: the typed form of a tensor's elements. See infer_proto.h.
 *
 * Each dtype has one field of the message; small integers travel as 32-bit ones. Elements come packed (one length-delimited run),
 * one by one, or in several runs: readers of protobuf must take them all. They are counted before memory is taken, so a tensor costs
 * what was sent for it (at most eight bytes for one of a run), whatever its shape says. A single run of floats is the tensor's bytes
 * already and stays where it is. */
#include "base/size.h"
#include "base/status.h"
#include "tensor/infer_proto_priv.h"
#include "tensor/tensor_priv.h"

enum {
    CONTENTS_BOOL = 1,
    CONTENTS_INT,
    CONTENTS_INT64,
    CONTENTS_UINT,
    CONTENTS_UINT64,
    CONTENTS_FP32,
    CONTENTS_FP64,
    CONTENTS_BYTES
};

static const char *const names[] = {"",
                                    "bool_contents",
                                    "int_contents",
                                    "int64_contents",
                                    "uint_contents",
                                    "uint64_contents",
                                    "fp32_contents",
                                    "fp64_contents",
                                    "bytes_contents"};

static unsigned field_of(enum dtype t)
{
    static const uint8_t fields[DTYPE_COUNT] = {
        [DTYPE_BOOL] = CONTENTS_BOOL,   [DTYPE_INT8] = CONTENTS_INT,    [DTYPE_INT16] = CONTENTS_INT,
        [DTYPE_INT32] = CONTENTS_INT,   [DTYPE_INT64] = CONTENTS_INT64, [DTYPE_UINT8] = CONTENTS_UINT,
        [DTYPE_UINT16] = CONTENTS_UINT, [DTYPE_UINT32] = CONTENTS_UINT, [DTYPE_UINT64] = CONTENTS_UINT64,
        [DTYPE_FP32] = CONTENTS_FP32,   [DTYPE_FP64] = CONTENTS_FP64,   [DTYPE_BYTES] = CONTENTS_BYTES,
    };
    return fields[t];
}

struct filler {
    struct tensor *t;
    unsigned field;
    size_t n, bytes;     /* elements counted, bytes that they take in the tensor */
    size_t runs;         /* fields that hold them */
    struct str last_run; /* packed */
    uint8_t *at;         /* filling: the next element */
};

static int wrong_encoding(const struct filler *s, struct error *err)
{
    return error_set(err, STATUS_INVALID, "input '%.*s': %s is not encoded as its type, or cut off", NAME_ARG(s->t->name),
                     names[s->field]);
}

/* ---- counting ---- */

static int count_elements(struct filler *s, const struct pb_field *f, struct error *err)
{
    size_t width = s->field == CONTENTS_FP32 ? 4 : s->field == CONTENTS_FP64 ? 8 : 0, n = 1;
    enum pb_wire alone = width == 4 ? PB_I32 : width == 8 ? PB_I64 : PB_VARINT;
    if (s->field == CONTENTS_BYTES) {
        if (f->wire != PB_LEN)
            return wrong_encoding(s, err);
        if (f->bytes.n > UINT32_MAX)
            return error_set(err, STATUS_INVALID, "input '%.*s': an element has more than 4 GiB", NAME_ARG(s->t->name));
        s->bytes += 4 + f->bytes.n; /* both are parts of the message: no overflow */
    } else if (f->wire == PB_LEN) {
        if (width && f->bytes.n % width)
            return wrong_encoding(s, err);
        n = width ? f->bytes.n / width : pb_varint_count(f->bytes);
        s->last_run = f->bytes;
    } else if (f->wire != alone) {
        return wrong_encoding(s, err);
    }
    s->n += n;
    s->runs++;
    return 0;
}

static int count_contents(struct filler *s, struct str contents, struct error *err)
{
    struct pb_reader r = pb_reader_of(contents);
    struct pb_field f;
    int rc;
    while ((rc = pb_next(&r, &f, err)) == 1) {
        if (f.number == s->field) {
            rc = count_elements(s, &f, err);
            if (rc)
                return rc;
        } else if (f.number >= CONTENTS_BOOL && f.number <= CONTENTS_BYTES && !(f.wire == PB_LEN && !f.bytes.n)) {
            return error_set(err, STATUS_INVALID, "input '%.*s' is %s, whose elements go into %s, but %s came",
                             NAME_ARG(s->t->name), dtype_name(s->t->dtype), names[s->field], names[f.number]);
        }
    }
    return rc;
}

/* ---- filling ---- */

static int out_of_range(const struct filler *s, int64_t v, struct error *err)
{
    return error_set(err, STATUS_INVALID, "input '%.*s': the element %lld is out of the range of %s", NAME_ARG(s->t->name),
                     (long long)v, dtype_name(s->t->dtype));
}

static int put_varint(struct filler *s, uint64_t v, struct error *err)
{
    size_t width = dtype_bytes(s->t->dtype);
    if (s->field == CONTENTS_BOOL) {
        v = v != 0;
    } else if (s->field == CONTENTS_INT) {
        /* int32 travels as its sign-extended 64 bits; protobuf's own readers look at the lower half only */
        int32_t i = (int32_t)(uint32_t)v, least = width == 1 ? INT8_MIN : width == 2 ? INT16_MIN : INT32_MIN;
        if (i < least || i > -(least + 1))
            return out_of_range(s, i, err);
        v = (uint64_t)(int64_t)i;
    } else if (s->field == CONTENTS_UINT) {
        v = (uint32_t)v;
        if (v > (width == 1 ? UINT8_MAX : width == 2 ? UINT16_MAX : UINT32_MAX))
            return out_of_range(s, (int64_t)v, err);
    }
    memcpy(s->at, &v, width); /* little-endian */
    s->at += width;
    return 0;
}

static int put_run(struct filler *s, struct str run, struct error *err)
{
    const uint8_t *p = (const uint8_t *)run.p, *end = p + run.n;
    uint64_t v;
    int rc = 0;
    while (rc == 0 && p < end)
        rc = pb_varint(&p, end, &v) ? put_varint(s, v, err) : wrong_encoding(s, err);
    return rc;
}

static int put_field(struct filler *s, const struct pb_field *f, struct error *err)
{
    if (s->field == CONTENTS_BYTES) {
        store_u32(s->at, (uint32_t)f->bytes.n);
        if (f->bytes.n)
            memcpy(s->at + 4, f->bytes.p, f->bytes.n);
        s->at += 4 + f->bytes.n;
        return 0;
    }
    bool fixed = s->field == CONTENTS_FP32 || s->field == CONTENTS_FP64;
    if (!fixed)
        return f->wire == PB_LEN ? put_run(s, f->bytes, err) : put_varint(s, f->value, err);
    size_t n = f->wire == PB_LEN ? f->bytes.n : dtype_bytes(s->t->dtype);
    if (n)
        memcpy(s->at, f->wire == PB_LEN ? (const void *)f->bytes.p : (const void *)&f->value, n);
    s->at += n;
    return 0;
}

static int fill(struct filler *s, struct str contents, size_t *bytes_left, struct error *err)
{
    if (s->bytes > *bytes_left)
        return error_set(
            err, STATUS_TOO_LARGE,
            "input '%.*s': the typed contents of the request need more memory than one request may take; send them "
            "as raw_input_contents",
            NAME_ARG(s->t->name));
    struct slab *slab = slab_create(s->bytes);
    if (!slab)
        return error_set(err, STATUS_NOMEM, "no memory for input '%.*s'", NAME_ARG(s->t->name));
    *bytes_left -= s->bytes;
    slab->n = s->bytes;
    s->at = slab->data;
    s->t->data = (struct slice){slab->data, s->bytes, slab};
    struct pb_reader r = pb_reader_of(contents);
    struct pb_field f;
    int rc;
    while ((rc = pb_next(&r, &f, err)) == 1)
        if (f.number == s->field && (rc = put_field(s, &f, err)) != 0)
            return rc;
    return rc;
}

int infer_proto__contents(struct tensor *t, struct str contents, struct slab *owner, size_t *bytes_left, struct error *err)
{
    struct filler s = {.t = t, .field = field_of(t->dtype)};
    uint64_t elements;
    char shape[200];
    if (!s.field)
        return error_set(err, STATUS_INVALID, "input '%.*s': %s has no typed contents; send it as raw_input_contents",
                         NAME_ARG(t->name), dtype_name(t->dtype));
    if (!shape_elements(&t->shape, &elements))
        return error_set(err, STATUS_INVALID,
                         "input '%.*s': shape %s has a negative dimension or more elements than fit 63 bits", NAME_ARG(t->name),
                         shape_format(&t->shape, shape, sizeof shape));
    int rc = count_contents(&s, contents, err);
    if (rc)
        return rc;
    if (s.n != elements)
        return error_set(err, STATUS_INVALID, "input '%.*s': %s of shape %s has %llu elements, but %zu came in %s",
                         NAME_ARG(t->name), dtype_name(t->dtype), shape_format(&t->shape, shape, sizeof shape),
                         (unsigned long long)elements, s.n, names[s.field]);
    if (s.field != CONTENTS_BYTES)
        s.bytes = s.n * dtype_bytes(t->dtype); /* n <= bytes of the message */
    bool in_place = s.runs == 1 && s.last_run.p && (s.field == CONTENTS_FP32 || s.field == CONTENTS_FP64);
    if (in_place)
        t->data = (struct slice){(const uint8_t *)s.last_run.p, s.last_run.n, owner ? slab_ref(owner) : NULL};
    return in_place ? 0 : fill(&s, contents, bytes_left, err);
}
