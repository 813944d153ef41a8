/* json.c: limits around yyjson's reader and the typed getters. See json.h. */
#include "wire/json.h"

#include <inttypes.h>

#include "base/status.h"

/* Skip a string whose opening quote is at p[-1]; returns behind the closing quote, or `end`. */
static const char *skip_string(const char *p, const char *end)
{
    while (p < end) {
        const char *q = memchr(p, '"', (size_t)(end - p));
        if (!q)
            return end;
        size_t slashes = 0;
        while (q - slashes > p && q[-1 - (ptrdiff_t)slashes] == '\\')
            slashes++;
        p = q + 1;
        if (slashes % 2 == 0)
            return p;
    }
    return end;
}

uint32_t json_scan_depth(struct str text, uint32_t stop_at)
{
    /* 1: opens, 2: closes, 3: quote. Everything else is skipped by one load and one test a byte. */
    static const uint8_t kind[256] = {['['] = 1, ['{'] = 1, [']'] = 2, ['}'] = 2, ['"'] = 3};
    uint32_t depth = 0, deepest = 0;
    const char *p = text.p, *end = text.p + text.n;
    while (p < end) {
        uint8_t k = kind[(unsigned char)*p++];
        if (__builtin_expect(k == 0, 1))
            continue;
        if (k == 3) {
            p = skip_string(p, end);
        } else if (k == 2) {
            depth -= depth > 0;
        } else if (++depth > deepest) {
            deepest = depth;
            if (deepest >= stop_at)
                return deepest;
        }
    }
    return deepest;
}

bool json_opens_at_most(struct str text, uint32_t n)
{
    const uint64_t ones = 0x0101010101010101u;
    size_t i = 0, found = 0;
    for (; i + 8 <= text.n && found <= n; i += 8) {
        uint64_t x;
        memcpy(&x, text.p + i, 8);
        x = (x | ones * 0x20) ^ ones * '{';                              /* 0 in each byte that is '[' or '{' */
        x = ~(((x & ones * 0x7f) + ones * 0x7f) | x | ones * 0x7f) >> 7; /* 1 there, 0 elsewhere */
        found += (size_t)(x * ones >> 56);
    }
    for (; i < text.n; i++)
        found += text.p[i] == '[' || text.p[i] == '{';
    return found <= n;
}

int json_parse(struct json *j, struct str text, const struct json_limits *limits, struct error *err)
{
    *j = (struct json){0};
    size_t max_bytes = limits ? limits->max_bytes : 0;
    uint32_t max_depth = limits && limits->max_depth ? limits->max_depth : JSON_DEPTH_DEFAULT;
    if (text.n == 0)
        return error_set(err, STATUS_INVALID, "the JSON text is empty");
    if (max_bytes && text.n > max_bytes)
        return error_set(err, STATUS_TOO_LARGE, "the JSON text has %zu bytes; at most %zu are accepted", text.n, max_bytes);
    if (json_scan_depth(text, max_depth + 1) > max_depth)
        return error_set(err, STATUS_INVALID, "the JSON text is nested deeper than %" PRIu32 " levels", max_depth);
    yyjson_read_err e;
    /* Without YYJSON_READ_INSITU the text is copied and not written to; the API is not const-correct. */
    j->doc = yyjson_read_opts((char *)(uintptr_t)text.p, text.n, YYJSON_READ_NOFLAG, NULL, &e);
    if (!j->doc && e.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION)
        return error_set(err, STATUS_NOMEM, "out of memory for a JSON text of %zu bytes", text.n);
    if (!j->doc)
        return error_set(err, STATUS_INVALID, "the JSON text is malformed at byte %zu: %s", e.pos, e.msg);
    j->root = yyjson_doc_get_root(j->doc);
    return 0;
}

void json_release(struct json *j)
{
    yyjson_doc_free(j->doc);
    *j = (struct json){0};
}

const char *json_type_name(yyjson_val *v)
{
    switch (yyjson_get_type(v)) {
    case YYJSON_TYPE_NULL:
        return "null";
    case YYJSON_TYPE_BOOL:
        return "a boolean";
    case YYJSON_TYPE_NUM:
        return yyjson_is_int(v) ? "an integer" : "a number";
    case YYJSON_TYPE_STR:
        return "a string";
    case YYJSON_TYPE_ARR:
        return "an array";
    case YYJSON_TYPE_OBJ:
        return "an object";
    default:
        return "absent";
    }
}

int json_get_any(yyjson_val *obj, const char *key, enum json_need need, yyjson_val **out, bool *found, struct error *err)
{
    if (found)
        *found = false;
    if (!yyjson_is_obj(obj))
        return error_set(err, STATUS_INVALID, "expected an object with '%s', got %s", key, json_type_name(obj));
    yyjson_val *k, *hit = NULL;
    yyjson_obj_iter it = yyjson_obj_iter_with(obj);
    size_t n = strlen(key);
    while ((k = yyjson_obj_iter_next(&it))) {
        if (yyjson_get_len(k) != n || memcmp(yyjson_get_str(k), key, n) != 0)
            continue;
        if (hit)
            return error_set(err, STATUS_INVALID, "'%s' is given twice in one object", key);
        hit = yyjson_obj_iter_get_val(k);
    }
    if (!hit && need == JSON_REQUIRED)
        return error_set(err, STATUS_INVALID, "'%s' is missing", key);
    if (hit)
        *out = hit;
    if (found)
        *found = hit != NULL;
    return 0;
}

/* What a typed getter takes, and how messages call it. */
struct kind {
    bool (*is)(yyjson_val *v);
    const char *name;
};
static const struct kind string_kind = {yyjson_is_str, "a string"}, bool_kind = {yyjson_is_bool, "true or false"},
                         integer_kind = {yyjson_is_int, "an integer"}, number_kind = {yyjson_is_num, "a number"},
                         object_kind = {yyjson_is_obj, "an object"}, array_kind = {yyjson_is_arr, "an array"};

/* The member when it is there and not null, and then of that kind. `*v` is NULL when there is nothing to read. */
static int get(yyjson_val *obj, const char *key, enum json_need need, const struct kind *kind, yyjson_val **v, bool *found,
               struct error *err)
{
    bool there;
    *v = NULL;
    int rc = json_get_any(obj, key, need, v, &there, err);
    if (found)
        *found = false;
    if (rc)
        return rc;
    if (*v && yyjson_is_null(*v) && need == JSON_OPTIONAL)
        *v = NULL;
    if (*v && !kind->is(*v))
        return error_set(err, STATUS_INVALID, "'%s' must be %s, but it is %s", key, kind->name, json_type_name(*v));
    if (found)
        *found = *v != NULL;
    return 0;
}

int json_get_str(yyjson_val *obj, const char *key, enum json_need need, struct str *out, bool *found, struct error *err)
{
    yyjson_val *v;
    int rc = get(obj, key, need, &string_kind, &v, found, err);
    if (!rc && v)
        *out = json_str(v);
    return rc;
}

int json_get_bool(yyjson_val *obj, const char *key, enum json_need need, bool *out, bool *found, struct error *err)
{
    yyjson_val *v;
    int rc = get(obj, key, need, &bool_kind, &v, found, err);
    if (!rc && v)
        *out = yyjson_get_bool(v);
    return rc;
}

int json_get_u64(yyjson_val *obj, const char *key, enum json_need need, uint64_t min, uint64_t max, uint64_t *out, bool *found,
                 struct error *err)
{
    yyjson_val *v;
    int rc = get(obj, key, need, &integer_kind, &v, found, err);
    if (rc || !v)
        return rc;
    if (!yyjson_is_uint(v) || yyjson_get_uint(v) < min || yyjson_get_uint(v) > max)
        return error_set(err, STATUS_INVALID, "'%s' must be between %" PRIu64 " and %" PRIu64, key, min, max);
    *out = yyjson_get_uint(v);
    return 0;
}

int json_get_i64(yyjson_val *obj, const char *key, enum json_need need, int64_t min, int64_t max, int64_t *out, bool *found,
                 struct error *err)
{
    yyjson_val *v;
    int rc = get(obj, key, need, &integer_kind, &v, found, err);
    if (rc || !v)
        return rc;
    bool fits = !yyjson_is_uint(v) || yyjson_get_uint(v) <= INT64_MAX;
    int64_t i = fits ? (yyjson_is_uint(v) ? (int64_t)yyjson_get_uint(v) : yyjson_get_sint(v)) : 0;
    if (!fits || i < min || i > max)
        return error_set(err, STATUS_INVALID, "'%s' must be between %" PRId64 " and %" PRId64, key, min, max);
    *out = i;
    return 0;
}

int json_get_f64(yyjson_val *obj, const char *key, enum json_need need, double min, double max, double *out, bool *found,
                 struct error *err)
{
    yyjson_val *v;
    int rc = get(obj, key, need, &number_kind, &v, found, err);
    if (rc || !v)
        return rc;
    double d = yyjson_get_num(v);
    if (!(d >= min && d <= max))
        return error_set(err, STATUS_INVALID, "'%s' must be between %g and %g", key, min, max);
    *out = d;
    return 0;
}

/* An object or array: the value itself. */
static int get_node(yyjson_val *obj, const char *key, enum json_need need, const struct kind *kind, yyjson_val **out,
                    bool *found, struct error *err)
{
    yyjson_val *v;
    int rc = get(obj, key, need, kind, &v, found, err);
    if (!rc && v)
        *out = v;
    return rc;
}

int json_get_obj(yyjson_val *obj, const char *key, enum json_need need, yyjson_val **out, bool *found, struct error *err)
{
    return get_node(obj, key, need, &object_kind, out, found, err);
}

int json_get_arr(yyjson_val *obj, const char *key, enum json_need need, yyjson_val **out, bool *found, struct error *err)
{
    return get_node(obj, key, need, &array_kind, out, found, err);
}
