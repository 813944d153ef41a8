/* gguf_write.c: the writer of gguf_write.h; the layout is drawn in gguf.h. */
#include "engine/llm/file/gguf_write.h"

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"

static void put_u32(struct buf *b, uint32_t v)
{
    buf_append(b, &v, sizeof v);
}
static void put_u64(struct buf *b, uint64_t v)
{
    buf_append(b, &v, sizeof v);
}

static void put_str(struct buf *b, struct str s)
{
    put_u64(b, s.n);
    buf_append_str(b, s);
}

void gguf_writer_init(struct gguf_writer *w, size_t alignment)
{
    ASSERT(alignment >= 8 && (alignment & (alignment - 1)) == 0);
    *w = (struct gguf_writer){.alignment = alignment};
    buf_init(&w->kvs);
    buf_init(&w->tensors);
}

void gguf_writer_release(struct gguf_writer *w)
{
    buf_release(&w->kvs);
    buf_release(&w->tensors);
}

static void put_key(struct gguf_writer *w, struct str key, enum gguf_type type)
{
    put_str(&w->kvs, key);
    put_u32(&w->kvs, (uint32_t)type);
    w->n_kv++;
}

/* A scalar in as many bytes as its type has: the low ones of the 64-bit value, since the format is little-endian. */
static void put_scalar(struct buf *b, const struct gguf_kv *kv)
{
    float f32 = (float)kv->f;
    switch (kv->type) {
    case GGUF_U8:
    case GGUF_I8:
    case GGUF_BOOL:
        buf_append(b, &kv->u, 1);
        break;
    case GGUF_U16:
    case GGUF_I16:
        buf_append(b, &kv->u, 2);
        break;
    case GGUF_U32:
    case GGUF_I32:
        buf_append(b, &kv->u, 4);
        break;
    case GGUF_F32:
        buf_append(b, &f32, 4);
        break;
    default:
        buf_append(b, &kv->u, 8);
    }
}

void gguf_writer_kv(struct gguf_writer *w, const struct gguf_kv *kv)
{
    put_key(w, kv->key, kv->type);
    if (kv->type == GGUF_STRING) {
        put_str(&w->kvs, kv->s);
    } else if (kv->type == GGUF_ARRAY) {
        put_u32(&w->kvs, (uint32_t)kv->a.type);
        put_u64(&w->kvs, kv->a.n);
        buf_append(&w->kvs, kv->a.data, kv->a.bytes);
    } else {
        put_scalar(&w->kvs, kv);
    }
}

void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t v)
{
    put_key(w, str_of(key), GGUF_U32);
    put_u32(&w->kvs, v);
}

void gguf_writer_f32(struct gguf_writer *w, const char *key, float v)
{
    put_key(w, str_of(key), GGUF_F32);
    buf_append(&w->kvs, &v, sizeof v);
}

void gguf_writer_str(struct gguf_writer *w, const char *key, struct str v)
{
    put_key(w, str_of(key), GGUF_STRING);
    put_str(&w->kvs, v);
}

int gguf_writer_tensor(struct gguf_writer *w, struct str name, enum weight_type type, uint32_t n_dims, const uint64_t *dims,
                       size_t *bytes, struct error *err)
{
    uint64_t rows = 1;
    size_t end;
    ASSERT(n_dims >= 1 && n_dims <= GGUF_DIMS_MAX);
    for (uint32_t i = 1; i < n_dims; i++)
        if (__builtin_mul_overflow(rows, dims[i], &rows))
            return error_set(err, STATUS_INVALID, "GGUF: tensor \"%.*s\": the product of its dims overflows", STR_ARG(name));
    if (!weight_bytes(type, rows, dims[0], bytes))
        return error_set(err, STATUS_INVALID, "GGUF: tensor \"%.*s\": rows of %llu values can't be stored as %s", STR_ARG(name),
                         (unsigned long long)dims[0], weight_type_info((uint32_t)type)->name);
    put_str(&w->tensors, name);
    put_u32(&w->tensors, n_dims);
    buf_append(&w->tensors, dims, n_dims * sizeof *dims);
    put_u32(&w->tensors, (uint32_t)type);
    put_u64(&w->tensors, w->data_bytes);
    if (!size_align(*bytes, w->alignment, &end) || !size_add(w->data_bytes, end, &end))
        return error_set(err, STATUS_INVALID, "GGUF: tensor \"%.*s\": the file's size overflows", STR_ARG(name));
    w->data_bytes = end;
    w->n_tensors++;
    return 0;
}

int gguf_writer_header(const struct gguf_writer *w, struct buf *out, struct error *err)
{
    size_t start = out->n;
    buf_append_z(out, "GGUF");
    put_u32(out, 3);
    put_u64(out, w->n_tensors);
    put_u64(out, w->n_kv);
    buf_append_str(out, buf_str(&w->kvs));
    buf_append_str(out, buf_str(&w->tensors));
    for (size_t i = gguf_writer_pad_bytes(w, out->n - start); i; i--)
        buf_append_c(out, 0);
    if (w->kvs.failed || w->tensors.failed || out->failed)
        return error_set(err, STATUS_NOMEM, "out of memory while writing a GGUF header");
    return 0;
}
