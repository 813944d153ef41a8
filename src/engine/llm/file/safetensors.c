/* safetensors.c: the bounds-checked reader of safetensors.h. */
#include "engine/llm/file/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "wire/json.h"

#define HEADER_MAX  (100u << 20) /* the reference implementation's limit */
#define TENSORS_MAX 1048576u

static const struct {
    const char *name;
    uint32_t bytes;
} dtypes[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"U16", 2}, {"I16", 2}, {"F16", 2},
              {"BF16", 2}, {"U32", 4}, {"I32", 4}, {"F32", 4},     {"U64", 8},     {"I64", 8}, {"F64", 8}};

static uint32_t dtype_bytes(struct str name)
{
    for (size_t i = 0; i < COUNT_OF(dtypes); i++)
        if (str_eqz(name, dtypes[i].name))
            return dtypes[i].bytes;
    return 0;
}

static int bad(const struct safetensors_tensor *t, const char *what, struct error *err)
{
    return error_set(err, STATUS_INVALID, "safetensors: tensor \"%.*s\": %s", STR_ARG(t->name), what);
}

static int read_shape(yyjson_val *obj, struct safetensors_tensor *t, uint64_t *count, struct error *err)
{
    yyjson_val *shape = yyjson_obj_get(obj, "shape");
    if (!yyjson_is_arr(shape) || yyjson_arr_size(shape) > SAFETENSORS_DIMS_MAX)
        return bad(t, "\"shape\" must be a list of at most 8 sizes", err);
    *count = 1;
    t->n_dims = (uint32_t)yyjson_arr_size(shape);
    size_t i, n;
    yyjson_val *v;
    yyjson_arr_foreach(shape, i, n, v)
    {
        if (!yyjson_is_uint(v) || yyjson_get_uint(v) == 0)
            return bad(t, "a size in \"shape\" is not a whole number above 0", err);
        t->shape[i] = yyjson_get_uint(v);
        if (__builtin_mul_overflow(*count, t->shape[i], count))
            return bad(t, "the product of \"shape\" overflows", err);
    }
    return 0;
}

/* One member of the header. `data`, `data_bytes`: what lies behind the header. */
static int read_tensor(yyjson_val *obj, struct safetensors_tensor *t, const uint8_t *data, size_t data_bytes, struct arena *a,
                       struct error *err)
{
    uint64_t count, bytes, begin, end;
    if (!yyjson_is_obj(obj))
        return bad(t, "its description must be an object", err);
    int rc = json_get_str(obj, "dtype", JSON_REQUIRED, &t->dtype, NULL, err);
    if (rc < 0)
        return error_prefix(err, "safetensors: tensor \"%.*s\"", STR_ARG(t->name));
    uint32_t size = dtype_bytes(t->dtype);
    if (!size)
        return error_set(err, STATUS_UNIMPLEMENTED, "safetensors: tensor \"%.*s\" has the unknown dtype \"%.*s\"",
                         STR_ARG(t->name), STR_ARG(t->dtype));
    char *copy = arena_strdup(a, t->dtype);
    if (!copy)
        return error_set(err, STATUS_NOMEM, "out of memory while reading a safetensors file");
    t->dtype.p = copy;
    rc = read_shape(obj, t, &count, err);
    if (rc < 0)
        return rc;
    yyjson_val *offsets = yyjson_obj_get(obj, "data_offsets");
    yyjson_val *b = yyjson_arr_get(offsets, 0), *e = yyjson_arr_get(offsets, 1);
    if (!yyjson_is_arr(offsets) || yyjson_arr_size(offsets) != 2 || !yyjson_is_uint(b) || !yyjson_is_uint(e))
        return bad(t, "\"data_offsets\" must be two whole numbers", err);
    begin = yyjson_get_uint(b), end = yyjson_get_uint(e);
    if (begin > end || end > data_bytes)
        return bad(t, "\"data_offsets\" runs past the end of the file", err);
    if (__builtin_mul_overflow(count, size, &bytes) || bytes != end - begin)
        return bad(t, "\"data_offsets\" is not as long as dtype and shape say", err);
    t->data = data + begin;
    t->bytes = (size_t)bytes;
    return 0;
}

static int compare_places(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    return x->data < y->data ? -1 : x->data > y->data;
}

static int check_cover(const struct safetensors *s, const uint8_t *data, size_t bytes, struct error *err)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < s->n; i++) {
        if (s->v[i].data != at)
            return bad(&s->v[i], "its data overlaps the one before or leaves a gap", err);
        at += s->v[i].bytes;
    }
    if (at != data + bytes)
        return error_set(err, STATUS_INVALID, "safetensors: %zu bytes at the end belong to no tensor",
                         (size_t)(data + bytes - at));
    return 0;
}

static int read_header(yyjson_val *root, const uint8_t *data, size_t bytes, struct arena *a, struct safetensors *out,
                       struct error *err)
{
    size_t i, n;
    yyjson_val *key, *obj;
    if (!yyjson_is_obj(root) || yyjson_obj_size(root) > TENSORS_MAX)
        return error_set(err, STATUS_INVALID, "safetensors: the header must be an object of at most %u members", TENSORS_MAX);
    out->v = arena_array(a, yyjson_obj_size(root), sizeof *out->v);
    if (!out->v)
        return error_set(err, STATUS_NOMEM, "out of memory while reading a safetensors file");
    yyjson_obj_foreach(root, i, n, key, obj)
    {
        struct str name = {yyjson_get_str(key), yyjson_get_len(key)};
        if (str_eqz(name, "__metadata__"))
            continue;
        struct safetensors_tensor *t = &out->v[out->n];
        char *copy = arena_strdup(a, name);
        if (!copy)
            return error_set(err, STATUS_NOMEM, "out of memory while reading a safetensors file");
        t->name = (struct str){copy, name.n};
        int rc = read_tensor(obj, t, data, bytes, a, err);
        if (rc < 0)
            return rc;
        out->n++;
    }
    qsort(out->v, out->n, sizeof *out->v, compare_places);
    return check_cover(out, data, bytes, err);
}

int safetensors_parse(const uint8_t *p, size_t n, struct arena *a, struct safetensors *out, struct error *err)
{
    struct json j;
    uint64_t header;
    *out = (struct safetensors){0};
    if (n < 8)
        return error_set(err, STATUS_INVALID, "safetensors: the file has %zu bytes, less than its header's length field", n);
    memcpy(&header, p, 8);
    if (header > HEADER_MAX || header > n - 8)
        return error_set(err, STATUS_INVALID,
                         "safetensors: the header's length %llu is more than the file holds or the limit of %u",
                         (unsigned long long)header, HEADER_MAX);
    int rc = json_parse(&j, (struct str){(const char *)p + 8, (size_t)header}, NULL, err);
    if (rc < 0)
        return error_prefix(err, "safetensors: the header");
    rc = read_header(j.root, p + 8 + header, n - 8 - (size_t)header, a, out, err);
    json_release(&j);
    return rc;
}
