/* infer_json_encode.c: see infer_json_encode.h. Data arrays are written in chunks: room for a chunk of the longest texts is
 * reserved once, then the loop only writes and advances. */
#include "tensor/infer_json_encode.h"

#include "base/size.h"
#include "base/status.h"
#include "tensor/json_number.h"
#include "tensor/json_scan.h"
#include "tensor/tensor_priv.h"

#define CHUNK 256 /* elements between two looks at the buffer's room */

#define INLINE static inline __attribute__((always_inline))

/* Write element i of `p`; returns the length, or 0 when JSON can't carry it. */
typedef size_t (*write_fn)(const uint8_t *p, size_t i, char *out);

#define LOAD(type, p, i)                                                                                                       \
    __extension__({                                                                                                            \
        type v_;                                                                                                               \
        memcpy(&v_, (p) + (i) * sizeof v_, sizeof v_);                                                                         \
        v_;                                                                                                                    \
    })

INLINE size_t write_u8(const uint8_t *p, size_t i, char *out)
{
    return json_write_u64(LOAD(uint8_t, p, i), out);
}

INLINE size_t write_u16(const uint8_t *p, size_t i, char *out)
{
    return json_write_u64(LOAD(uint16_t, p, i), out);
}

INLINE size_t write_u32(const uint8_t *p, size_t i, char *out)
{
    return json_write_u64(LOAD(uint32_t, p, i), out);
}

INLINE size_t write_u64(const uint8_t *p, size_t i, char *out)
{
    return json_write_u64(LOAD(uint64_t, p, i), out);
}

INLINE size_t write_i8(const uint8_t *p, size_t i, char *out)
{
    return json_write_i64(LOAD(int8_t, p, i), out);
}

INLINE size_t write_i16(const uint8_t *p, size_t i, char *out)
{
    return json_write_i64(LOAD(int16_t, p, i), out);
}

INLINE size_t write_i32(const uint8_t *p, size_t i, char *out)
{
    return json_write_i64(LOAD(int32_t, p, i), out);
}

INLINE size_t write_i64(const uint8_t *p, size_t i, char *out)
{
    return json_write_i64(LOAD(int64_t, p, i), out);
}

INLINE size_t write_bool(const uint8_t *p, size_t i, char *out)
{
    memcpy(out, p[i] ? "true " : "false", 5);
    return p[i] ? 4 : 5;
}

INLINE size_t write_f32(const uint8_t *p, size_t i, char *out)
{
    float v = LOAD(float, p, i);
    return v - v == 0 ? json_write_f32(v, out) : 0;
}

INLINE size_t write_f64(const uint8_t *p, size_t i, char *out)
{
    double v = LOAD(double, p, i);
    return v - v == 0 ? json_write_f64(v, out) : 0;
}

INLINE size_t write_f16(const uint8_t *p, size_t i, char *out)
{
    uint16_t v = LOAD(uint16_t, p, i);
    return (v & 0x7c00) != 0x7c00 ? json_write_f16(v, out) : 0;
}

INLINE size_t write_bf16(const uint8_t *p, size_t i, char *out)
{
    uint16_t v = LOAD(uint16_t, p, i);
    return (v & 0x7f80) != 0x7f80 ? json_write_bf16(v, out) : 0;
}

/* n elements with commas between; returns how many were written: n, or the index of one that JSON can't carry. */
INLINE size_t write_all(write_fn write, const uint8_t *p, size_t n, struct buf *out)
{
    for (size_t i = 0; i < n;) {
        size_t stop = MIN_OF(n, i + CHUNK);
        char *at = buf_reserve(out, (stop - i) * (JSON_FLOAT_TEXT + 1)), *start = at;
        if (!at)
            return n;
        for (; i < stop; i++) {
            size_t len = write(p, i, at);
            if (!len)
                return i;
            at += len;
            *at++ = ',';
        }
        out->n += (size_t)(at - start);
        if (i == CHUNK &&
            n > 2 * CHUNK) { /* room for all as long as these, so that growing copies nothing; a wrong guess costs a copy */
            size_t each = (size_t)(at - start) / CHUNK + 1, all;
            if (size_mul(n - i, each, &all))
                (void)buf_reserve(out, all + CHUNK * (JSON_FLOAT_TEXT + 1));
        }
    }
    if (n)
        out->n--; /* the last comma */
    return n;
}

static size_t write_numbers(enum dtype t, const uint8_t *p, size_t n, struct buf *out)
{
    switch (t) {
    case DTYPE_BOOL:
        return write_all(write_bool, p, n, out);
    case DTYPE_UINT8:
        return write_all(write_u8, p, n, out);
    case DTYPE_UINT16:
        return write_all(write_u16, p, n, out);
    case DTYPE_UINT32:
        return write_all(write_u32, p, n, out);
    case DTYPE_UINT64:
        return write_all(write_u64, p, n, out);
    case DTYPE_INT8:
        return write_all(write_i8, p, n, out);
    case DTYPE_INT16:
        return write_all(write_i16, p, n, out);
    case DTYPE_INT32:
        return write_all(write_i32, p, n, out);
    case DTYPE_INT64:
        return write_all(write_i64, p, n, out);
    case DTYPE_FP16:
        return write_all(write_f16, p, n, out);
    case DTYPE_BF16:
        return write_all(write_bf16, p, n, out);
    case DTYPE_FP32:
        return write_all(write_f32, p, n, out);
    default:
        return write_all(write_f64, p, n, out);
    }
}

static bool is_utf8(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        if (n - i >= 8 && !(load_u64(p + i) & 0x8080808080808080u)) {
            i += 8;
            continue;
        }
        size_t len = str_utf8_at((struct str){(const char *)p, n}, i);
        if (!len)
            return false;
        i += len;
    }
    return true;
}

/* Most strings need no escape and are ASCII: those are looked at eight bytes at a time and copied. */
static bool encode_plain(const uint8_t *p, size_t n, struct buf *out)
{
    size_t i = 0;
    while (n - i >= 8 && !json_string8_stop(load_u64(p + i)))
        i += 8;
    for (; i < n; i++)
        if (p[i] < 0x20 || p[i] > 0x7f || p[i] == '"' || p[i] == '\\')
            return false;
    char *at = buf_reserve(out, n + 2);
    if (!at)
        return true;
    at[0] = '"';
    if (n)
        memcpy(at + 1, p, n);
    at[n + 1] = '"';
    out->n += n + 2;
    return true;
}

static int encode_strings(const struct tensor *t, struct buf *out, struct error *err)
{
    size_t at = 0;
    for (size_t i = 0; at < t->data.n; i++) {
        uint32_t len = load_u32(t->data.p + at);
        const uint8_t *p = t->data.p + at + 4;
        if (i)
            buf_append_c(out, ',');
        if (!encode_plain(p, len, out)) {
            if (!is_utf8(p, len))
                return error_set(err, STATUS_INVALID,
                                 "output '%.*s': element %zu is not UTF-8 text, which JSON can't carry; ask for this output "
                                 "as binary (parameter binary_data: true)",
                                 NAME_ARG(t->name), i);
            buf_append_json_str(out, (struct str){(const char *)p, len});
        }
        at += 4 + (size_t)len;
    }
    return STATUS_OK;
}

static int out_of_memory(struct error *err)
{
    return error_set(err, STATUS_NOMEM, "no memory for the response's JSON");
}

int json_encode_data(const struct tensor *t, struct buf *out, struct error *err)
{
    buf_append_c(out, '[');
    if (t->dtype == DTYPE_BYTES) {
        int rc = encode_strings(t, out, err);
        if (rc)
            return rc;
    } else {
        size_t n = t->data.n / dtype_bytes(t->dtype), done = write_numbers(t->dtype, t->data.p, n, out);
        if (done < n)
            return error_set(err, STATUS_INVALID,
                             "output '%.*s': element %zu is NaN or infinite, which JSON can't carry; ask for this output as "
                             "binary (parameter binary_data: true)",
                             NAME_ARG(t->name), done);
    }
    buf_append_c(out, ']');
    return out->failed ? out_of_memory(err) : STATUS_OK;
}

static void encode_params(const struct infer_param *params, size_t n, struct buf *out)
{
    char text[JSON_FLOAT_TEXT];
    buf_append_c(out, '{');
    for (size_t i = 0; i < n; i++) {
        const struct infer_param *p = &params[i];
        if (i)
            buf_append_c(out, ',');
        buf_append_json_str(out, p->key);
        buf_append_c(out, ':');
        switch (p->kind) {
        case INFER_PARAM_BOOL:
            buf_append_z(out, p->b ? "true" : "false");
            break;
        case INFER_PARAM_INT:
            buf_append_i64(out, p->i);
            break;
        case INFER_PARAM_DOUBLE: /* not a number: null, JSON's nearest */
            if (p->d - p->d == 0)
                buf_append(out, text, json_write_f64(p->d, text));
            else
                buf_append_z(out, "null");
            break;
        case INFER_PARAM_STRING:
            buf_append_json_str(out, p->s);
            break;
        }
    }
    buf_append_c(out, '}');
}

static int encode_output(const struct infer_json_reply_output *o, struct buf *out, struct error *err)
{
    const struct tensor *t = o->tensor;
    buf_append_z(out, "{\"name\":");
    buf_append_json_str(out, t->name);
    buf_append_z(out, ",\"datatype\":\"");
    buf_append_z(out, dtype_name(t->dtype));
    buf_append_z(out, "\",\"shape\":[");
    for (size_t i = 0; i < t->shape.rank; i++) {
        if (i)
            buf_append_c(out, ',');
        buf_append_i64(out, t->shape.dim[i]);
    }
    buf_append_c(out, ']');
    int rc = STATUS_OK;
    if (o->binary) {
        buf_append_z(out, ",\"parameters\":{\"binary_data_size\":");
        buf_append_u64(out, t->data.n);
        buf_append_c(out, '}');
    } else {
        buf_append_z(out, ",\"data\":");
        rc = json_encode_data(t, out, err);
    }
    buf_append_c(out, '}');
    return rc;
}

static void encode_opening(const struct infer_json_reply *r, struct buf *head)
{
    buf_append_z(head, "{\"model_name\":");
    buf_append_json_str(head, r->model_name);
    if (r->model_version.n) {
        buf_append_z(head, ",\"model_version\":");
        buf_append_json_str(head, r->model_version);
    }
    if (r->id.n) {
        buf_append_z(head, ",\"id\":");
        buf_append_json_str(head, r->id);
    }
    if (r->n_params) {
        buf_append_z(head, ",\"parameters\":");
        encode_params(r->params, r->n_params, head);
    }
    buf_append_z(head, ",\"outputs\":[");
}

int infer_json_encode(const struct infer_json_reply *r, struct buf *head, struct slice *tail, size_t *n_tail,
                      size_t *header_bytes, struct error *err)
{
    size_t start = head->n;
    bool binary = false;
    *n_tail = 0;
    *header_bytes = 0;
    encode_opening(r, head);
    for (size_t i = 0; i < r->n_outputs; i++) {
        if (i)
            buf_append_c(head, ',');
        int rc = encode_output(&r->outputs[i], head, err);
        if (rc)
            return rc;
        binary |= r->outputs[i].binary;
    }
    buf_append_z(head, "]}");
    if (head->failed)
        return out_of_memory(err);
    for (size_t i = 0; i < r->n_outputs; i++)
        if (r->outputs[i].binary) {
            struct slice s = r->outputs[i].tensor->data;
            if (s.owner)
                slab_ref(s.owner);
            tail[(*n_tail)++] = s;
        }
    *header_bytes = binary ? head->n - start : 0;
    return STATUS_OK;
}
