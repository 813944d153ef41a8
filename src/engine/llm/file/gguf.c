/* gguf.c: the bounds-checked reader of gguf.h. One cursor; every read goes through `take`. */
#include "engine/llm/file/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"

/* Limits far above any real file, so that counts can't make us allocate what the file can't back. */
#define KV_MAX         65536u
#define TENSORS_MAX    1048576u
#define NAME_MAX_BYTES 512u

struct cursor {
    const uint8_t *p;
    size_t n, at;
};

static const uint8_t type_bytes[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

static int short_file(const struct cursor *c, const char *field, struct error *err)
{
    return error_set(err, STATUS_INVALID, "GGUF: %s at byte %zu runs past the end of the file (%zu bytes)", field, c->at, c->n);
}

static int take(struct cursor *c, size_t n, const uint8_t **out, const char *field, struct error *err)
{
    if (n > c->n - c->at)
        return short_file(c, field, err);
    *out = c->p + c->at;
    c->at += n;
    return 0;
}

static int take_u32(struct cursor *c, uint32_t *out, const char *field, struct error *err)
{
    const uint8_t *p = NULL;
    int rc = take(c, 4, &p, field, err);
    if (rc == 0)
        memcpy(out, p, 4);
    return rc;
}

static int take_u64(struct cursor *c, uint64_t *out, const char *field, struct error *err)
{
    const uint8_t *p = NULL;
    int rc = take(c, 8, &p, field, err);
    if (rc == 0)
        memcpy(out, p, 8);
    return rc;
}

static int take_str(struct cursor *c, struct str *out, const char *field, struct error *err)
{
    uint64_t n;
    const uint8_t *p = NULL;
    int rc = take_u64(c, &n, field, err);
    if (rc < 0)
        return rc;
    if (n > c->n - c->at)
        return error_set(err, STATUS_INVALID, "GGUF: %s at byte %zu has length %llu, more than the %zu bytes left", field,
                         c->at - 8, (unsigned long long)n, c->n - c->at);
    rc = take(c, (size_t)n, &p, field, err);
    *out = (struct str){(const char *)p, (size_t)n};
    return rc;
}

/* One number at `p` into the union member of its type. */
static void load_scalar(enum gguf_type type, const uint8_t *p, struct gguf_kv *kv)
{
    float f32;
    switch (type) {
    case GGUF_U8:
    case GGUF_BOOL:
        kv->u = p[0];
        break;
    case GGUF_I8:
        kv->i = (int8_t)p[0];
        break;
    case GGUF_U16:
        kv->u = (uint64_t)p[0] | (uint64_t)p[1] << 8;
        break;
    case GGUF_I16:
        kv->i = (int16_t)(p[0] | p[1] << 8);
        break;
    case GGUF_U32:
        kv->u = 0;
        memcpy(&kv->u, p, 4);
        break;
    case GGUF_I32: {
        int32_t i;
        memcpy(&i, p, 4);
        kv->i = i;
        break;
    }
    case GGUF_F32:
        memcpy(&f32, p, 4);
        kv->f = (double)f32;
        break;
    case GGUF_F64:
        memcpy(&kv->f, p, 8);
        break;
    default:
        memcpy(&kv->u, p, 8);
    }
}

static int take_array(struct cursor *c, struct gguf_array *a, struct error *err)
{
    uint32_t type;
    int rc = take_u32(c, &type, "array element type", err);
    if (rc == 0)
        rc = take_u64(c, &a->n, "array count", err);
    if (rc < 0)
        return rc;
    if (type >= GGUF_TYPE_COUNT || type == GGUF_ARRAY)
        return error_set(err, STATUS_INVALID, "GGUF: array element type %u is not supported (0..12 but not 9)", type);
    a->type = (enum gguf_type)type;
    a->data = c->p + c->at;
    size_t start = c->at, bytes;
    const uint8_t *skip;
    if (type != GGUF_STRING) {
        if (!size_mul((size_t)a->n, type_bytes[type], &bytes))
            return error_set(err, STATUS_INVALID, "GGUF: array count %llu overflows", (unsigned long long)a->n);
        rc = take(c, bytes, &skip, "array", err);
    } else {
        struct str s;
        if (a->n > (c->n - c->at) / 8) /* each string has at least its length */
            return error_set(err, STATUS_INVALID, "GGUF: array count %llu is more than the file can hold",
                             (unsigned long long)a->n);
        for (uint64_t i = 0; rc == 0 && i < a->n; i++)
            rc = take_str(c, &s, "array string", err);
    }
    a->bytes = c->at - start;
    return rc;
}

static int take_kv(struct cursor *c, struct gguf_kv *kv, struct error *err)
{
    uint32_t type;
    const uint8_t *p = NULL;
    int rc = take_str(c, &kv->key, "key", err);
    if (rc == 0)
        rc = take_u32(c, &type, "value type", err);
    if (rc < 0)
        return rc;
    if (!kv->key.n || kv->key.n > NAME_MAX_BYTES)
        return error_set(err, STATUS_INVALID, "GGUF: a key has %zu bytes; accepted: 1 to %u", kv->key.n, NAME_MAX_BYTES);
    if (type >= GGUF_TYPE_COUNT)
        return error_set(err, STATUS_INVALID, "GGUF: key \"%.*s\" has unknown value type %u (0..12)", STR_ARG(kv->key), type);
    kv->type = (enum gguf_type)type;
    if (type == GGUF_STRING)
        rc = take_str(c, &kv->s, "string value", err);
    else if (type == GGUF_ARRAY)
        rc = take_array(c, &kv->a, err);
    else if ((rc = take(c, type_bytes[type], &p, "value", err)) == 0)
        load_scalar(kv->type, p, kv);
    if (rc == 0 && type == GGUF_BOOL && kv->u > 1)
        return error_set(err, STATUS_INVALID, "GGUF: key \"%.*s\": a bool must be 0 or 1, not %llu", STR_ARG(kv->key),
                         (unsigned long long)kv->u);
    return rc < 0 ? error_prefix(err, "key \"%.*s\"", STR_ARG(kv->key)) : 0;
}

static int check_dims(struct gguf_tensor *t, struct error *err)
{
    uint64_t rows = 1;
    for (uint32_t d = 0; d < GGUF_DIMS_MAX; d++) {
        if (t->dims[d] == 0 || t->dims[d] > INT64_MAX)
            return error_set(err, STATUS_INVALID, "GGUF: tensor \"%.*s\": dim %u is %llu; accepted: 1 to 2^63-1",
                             STR_ARG(t->name), d, (unsigned long long)t->dims[d]);
        if (d && __builtin_mul_overflow(rows, t->dims[d], &rows))
            return error_set(err, STATUS_INVALID, "GGUF: tensor \"%.*s\": the product of its dims overflows", STR_ARG(t->name));
    }
    const struct weight_type_info *info = weight_type_info(t->type);
    if (t->dims[0] % info->block_elems)
        return error_set(err, STATUS_INVALID, "GGUF: tensor \"%.*s\": row length %llu is not a multiple of %s's block of %u",
                         STR_ARG(t->name), (unsigned long long)t->dims[0], info->name, info->block_elems);
    if (!weight_bytes(t->type, rows, t->dims[0], &t->bytes))
        return error_set(err, STATUS_INVALID, "GGUF: tensor \"%.*s\": its size overflows", STR_ARG(t->name));
    return 0;
}

static int take_tensor(struct cursor *c, struct gguf_tensor *t, uint64_t *offset, struct error *err)
{
    uint32_t type = 0;
    int rc = take_str(c, &t->name, "tensor name", err);
    if (rc == 0)
        rc = take_u32(c, &t->n_dims, "number of dims", err);
    if (rc < 0)
        return rc;
    if (!t->name.n || t->name.n > NAME_MAX_BYTES)
        return error_set(err, STATUS_INVALID, "GGUF: a tensor name has %zu bytes; accepted: 1 to %u", t->name.n,
                         NAME_MAX_BYTES);
    if (t->n_dims < 1 || t->n_dims > GGUF_DIMS_MAX)
        return error_set(err, STATUS_INVALID, "GGUF: tensor \"%.*s\" has %u dims; accepted: 1 to %d", STR_ARG(t->name),
                         t->n_dims, GGUF_DIMS_MAX);
    for (uint32_t d = 0; d < GGUF_DIMS_MAX; d++)
        t->dims[d] = 1;
    for (uint32_t d = 0; rc == 0 && d < t->n_dims; d++)
        rc = take_u64(c, &t->dims[d], "tensor dim", err);
    if (rc == 0)
        rc = take_u32(c, &type, "tensor type", err);
    if (rc == 0)
        rc = take_u64(c, offset, "tensor offset", err);
    if (rc < 0)
        return error_prefix(err, "tensor \"%.*s\"", STR_ARG(t->name));
    const struct weight_type_info *info = weight_type_info(type);
    if (!info)
        return error_set(err, STATUS_INVALID, "GGUF: tensor \"%.*s\" has unknown type %u", STR_ARG(t->name), type);
    if (!info->block_elems)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "GGUF: tensor \"%.*s\" has type %s, which is not supported; supported: F32 F16 "
                         "BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K",
                         STR_ARG(t->name), info->name);
    t->type = (enum weight_type)type;
    return check_dims(t, err);
}

static int take_header(struct cursor *c, struct gguf *g, uint64_t *n_tensors, uint64_t *n_kv, struct error *err)
{
    const uint8_t *magic = NULL;
    int rc = take(c, 4, &magic, "magic", err);
    if (rc == 0 && memcmp(magic, "GGUF", 4) != 0)
        return error_set(err, STATUS_INVALID, "this is not a GGUF file: it does not begin with \"GGUF\"");
    if (rc == 0)
        rc = take_u32(c, &g->version, "version", err);
    if (rc == 0 && (g->version < 2 || g->version > 3))
        return error_set(err, STATUS_INVALID, "GGUF version %u is not supported (2 and 3 are; big-endian files are not)",
                         g->version);
    if (rc == 0)
        rc = take_u64(c, n_tensors, "tensor count", err);
    if (rc == 0)
        rc = take_u64(c, n_kv, "key/value count", err);
    if (rc < 0)
        return rc;
    /* the smallest key/value takes 13 bytes, the smallest tensor description 33 */
    if (*n_kv > KV_MAX || *n_kv > (c->n - c->at) / 13)
        return error_set(err, STATUS_INVALID, "GGUF: key/value count %llu is more than the file can hold or the limit of %u",
                         (unsigned long long)*n_kv, KV_MAX);
    if (*n_tensors > TENSORS_MAX || *n_tensors > (c->n - c->at) / 33)
        return error_set(err, STATUS_INVALID, "GGUF: tensor count %llu is more than the file can hold or the limit of %u",
                         (unsigned long long)*n_tensors, TENSORS_MAX);
    return 0;
}

static int read_kvs(struct cursor *c, struct gguf *g, struct error *err)
{
    for (size_t i = 0; i < g->n_kv; i++) {
        int rc = take_kv(c, &g->kv[i], err);
        if (rc < 0)
            return rc;
        if (map_get(&g->kv_by_key, g->kv[i].key))
            return error_set(err, STATUS_INVALID, "GGUF: key \"%.*s\" occurs twice", STR_ARG(g->kv[i].key));
        if (map_put(&g->kv_by_key, g->kv[i].key, &g->kv[i]) < 0)
            return error_set(err, STATUS_NOMEM, "out of memory while reading GGUF keys");
    }
    uint64_t align = 32;
    const struct gguf_kv *kv = gguf_kv(g, "general.alignment");
    if (kv && (!gguf_get_u64(g, "general.alignment", &align) || align < 8 || align > 1u << 20 || (align & (align - 1))))
        return error_set(err, STATUS_INVALID, "GGUF: general.alignment must be a power of two from 8 to 1048576");
    g->alignment = (size_t)align;
    return 0;
}

/* Data regions may not overlap: a file that stores one tensor under two names is either broken or hostile. Descriptions come in
 * any order, so the regions are sorted by offset and compared with their neighbour. */
struct region {
    uint64_t offset, bytes;
    const struct gguf_tensor *t;
};

static int compare_regions(const void *a, const void *b)
{
    const struct region *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int check_overlap(const struct gguf *g, struct region *r, struct error *err)
{
    qsort(r, g->n_tensors, sizeof *r, compare_regions);
    for (size_t i = 1; i < g->n_tensors; i++)
        if (r[i].offset < r[i - 1].offset + r[i - 1].bytes)
            return error_set(err, STATUS_INVALID, "GGUF: tensors \"%.*s\" and \"%.*s\" overlap", STR_ARG(r[i - 1].t->name),
                             STR_ARG(r[i].t->name));
    return 0;
}

static int read_tensors(struct cursor *c, struct gguf *g, struct region *regions, struct error *err)
{
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        int rc = take_tensor(c, t, &regions[i].offset, err);
        if (rc < 0)
            return rc;
        regions[i].t = t;
        regions[i].bytes = t->bytes;
        if (map_get(&g->tensor_by_name, t->name))
            return error_set(err, STATUS_INVALID, "GGUF: tensor \"%.*s\" occurs twice", STR_ARG(t->name));
        if (map_put(&g->tensor_by_name, t->name, t) < 0)
            return error_set(err, STATUS_NOMEM, "out of memory while reading GGUF tensors");
    }
    return 0;
}

static int place_data(struct cursor *c, struct gguf *g, const struct region *regions, struct error *err)
{
    size_t base;
    if (!size_align(c->at, g->alignment, &base))
        return short_file(c, "tensor data", err);
    base = g->n_tensors ? base : c->at;
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        uint64_t offset = regions[i].offset;
        if (offset % g->alignment)
            return error_set(err, STATUS_INVALID, "GGUF: tensor \"%.*s\": offset %llu is not a multiple of the alignment %zu",
                             STR_ARG(t->name), (unsigned long long)offset, g->alignment);
        if (base > c->n || offset > c->n - base || t->bytes > c->n - base - offset)
            return error_set(err, STATUS_INVALID,
                             "GGUF: tensor \"%.*s\": offset %llu + %zu bytes runs past the end of the file", STR_ARG(t->name),
                             (unsigned long long)offset, t->bytes);
        t->data = c->p + base + offset;
    }
    return 0;
}

int gguf_parse(const uint8_t *p, size_t n, struct arena *a, struct gguf *out, struct error *err)
{
    struct cursor c = {p, n, 0};
    struct gguf *g = out;
    uint64_t n_tensors, n_kv;
    *g = (struct gguf){0};
    map_init(&g->kv_by_key, 0x67677566);
    map_init(&g->tensor_by_name, 0x67677566);
    int rc = take_header(&c, g, &n_tensors, &n_kv, err);
    if (rc < 0)
        return rc;
    g->n_kv = (size_t)n_kv;
    g->n_tensors = (size_t)n_tensors;
    g->kv = arena_array(a, g->n_kv, sizeof *g->kv);
    g->tensors = arena_array(a, g->n_tensors, sizeof *g->tensors);
    struct region *regions = arena_array(a, g->n_tensors, sizeof *regions);
    if (!g->kv || !g->tensors || !regions)
        rc = error_set(err, STATUS_NOMEM, "out of memory while reading a GGUF file");
    if (rc == 0)
        rc = read_kvs(&c, g, err);
    if (rc == 0)
        rc = read_tensors(&c, g, regions, err);
    if (rc == 0)
        rc = place_data(&c, g, regions, err);
    if (rc == 0)
        rc = check_overlap(g, regions, err);
    if (rc < 0)
        gguf_release(g);
    return rc;
}

void gguf_release(struct gguf *g)
{
    map_release(&g->kv_by_key);
    map_release(&g->tensor_by_name);
}

const struct gguf_tensor *gguf_tensor(const struct gguf *g, struct str name)
{
    return map_get(&g->tensor_by_name, name);
}
const struct gguf_kv *gguf_kv(const struct gguf *g, const char *key)
{
    return map_get(&g->kv_by_key, str_of(key));
}

static bool is_unsigned(enum gguf_type t)
{
    return t == GGUF_U8 || t == GGUF_U16 || t == GGUF_U32 || t == GGUF_U64;
}
static bool is_signed(enum gguf_type t)
{
    return t == GGUF_I8 || t == GGUF_I16 || t == GGUF_I32 || t == GGUF_I64;
}

bool gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out)
{
    const struct gguf_kv *kv = gguf_kv(g, key);
    if (!kv || !(is_unsigned(kv->type) || (is_signed(kv->type) && kv->i >= 0)))
        return false;
    *out = is_unsigned(kv->type) ? kv->u : (uint64_t)kv->i;
    return true;
}

bool gguf_get_i64(const struct gguf *g, const char *key, int64_t *out)
{
    const struct gguf_kv *kv = gguf_kv(g, key);
    if (!kv || !(is_signed(kv->type) || (is_unsigned(kv->type) && kv->u <= INT64_MAX)))
        return false;
    *out = is_signed(kv->type) ? kv->i : (int64_t)kv->u;
    return true;
}

bool gguf_get_f64(const struct gguf *g, const char *key, double *out)
{
    const struct gguf_kv *kv = gguf_kv(g, key);
    if (!kv)
        return false;
    if (kv->type == GGUF_F32 || kv->type == GGUF_F64)
        *out = kv->f;
    else if (is_unsigned(kv->type))
        *out = (double)kv->u;
    else if (is_signed(kv->type))
        *out = (double)kv->i;
    else
        return false;
    return true;
}

bool gguf_get_bool(const struct gguf *g, const char *key, bool *out)
{
    const struct gguf_kv *kv = gguf_kv(g, key);
    if (!kv || kv->type != GGUF_BOOL)
        return false;
    *out = kv->u != 0;
    return true;
}

bool gguf_get_str(const struct gguf *g, const char *key, struct str *out)
{
    const struct gguf_kv *kv = gguf_kv(g, key);
    if (!kv || kv->type != GGUF_STRING)
        return false;
    *out = kv->s;
    return true;
}

bool gguf_get_array(const struct gguf *g, const char *key, struct gguf_array *out)
{
    const struct gguf_kv *kv = gguf_kv(g, key);
    if (!kv || kv->type != GGUF_ARRAY)
        return false;
    *out = kv->a;
    return true;
}

bool gguf_array_next_str(const struct gguf_array *a, size_t *at, struct str *out)
{
    uint64_t n;
    ASSERT(a->type == GGUF_STRING);
    if (*at >= a->bytes)
        return false;
    memcpy(&n, a->data + *at, 8); /* lengths were checked by gguf_parse */
    *out = (struct str){(const char *)a->data + *at + 8, (size_t)n};
    *at += 8 + (size_t)n;
    return true;
}

int64_t gguf_array_i64(const struct gguf_array *a, uint64_t i)
{
    struct gguf_kv kv = {0};
    ASSERT(i < a->n && a->type != GGUF_STRING);
    load_scalar(a->type, a->data + i * type_bytes[a->type], &kv);
    if (a->type == GGUF_F32 || a->type == GGUF_F64)
        return kv.f > -0x1p63 && kv.f < 0x1p63 ? (int64_t)kv.f : 0;
    return is_signed(a->type) ? kv.i : (int64_t)kv.u;
}

double gguf_array_f64(const struct gguf_array *a, uint64_t i)
{
    struct gguf_kv kv = {0};
    ASSERT(i < a->n && a->type != GGUF_STRING);
    load_scalar(a->type, a->data + i * type_bytes[a->type], &kv);
    if (a->type == GGUF_F32 || a->type == GGUF_F64)
        return kv.f;
    return is_signed(a->type) ? (double)kv.i : (double)kv.u;
}
