/* json_decode_values.c: the inner loops of reading JSON data: runs of elements of one dtype, no nesting.
 *
 * One loop (read_run) is instantiated for each dtype by inlining its element reader; per element it costs the scan of the
 * digits, one conversion and one predictable branch for ", ". Readers return NULL for anything that is not a value of the
 * dtype; why it isn't is worked out by json_decode.c on the way to the error message, where time doesn't matter. */
#include <math.h>

#include "base/size.h"
#include "tensor/base64.h"
#include "tensor/json_decode.h"
#include "tensor/json_number.h"

#define INLINE static inline __attribute__((always_inline))

/* Reads the element at p into *out and moves it on; returns the byte behind the element, or NULL. */
typedef const char *(*read_fn)(const char *p, const char *end, uint8_t **out, struct json_run *run);

INLINE const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    return p;
}

INLINE enum json_run_end read_run(read_fn read, size_t max, struct json_run *run)
{
    const char *p = skip_space(run->at, run->end), *end = run->end;
    uint8_t *out = run->out;
    size_t n = 0;
    enum json_run_end rc = JSON_RUN_CLOSED;
    if (p < end && *p == ']') {
        p++;
        goto done;
    }
    for (;;) {
        rc = JSON_RUN_TOO_MANY;
        if (n == max)
            break;
        rc = JSON_RUN_BAD;
        const char *next = read(p, end, &out, run);
        if (!next)
            break;
        n++;
        p = next;
        if (__builtin_expect(p >= end || *p != ',', 0)) {
            p = skip_space(p, end);
            if (p < end && *p == ']') {
                p++;
                rc = JSON_RUN_CLOSED;
                break;
            }
            rc = JSON_RUN_SYNTAX;
            if (p >= end || *p != ',')
                break;
        }
        p++;
        p += p < end && *p == ' ';
        if (__builtin_expect(p < end && *p <= ' ', 0))
            p = skip_space(p, end);
    }
done:
    run->at = p;
    run->n = n;
    run->out = out;
    return rc;
}

/* Whole numbers: no point, no exponent. `signed_max` + neg is the largest magnitude of a negative number. */
INLINE const char *read_whole(const char *p, const char *end, uint8_t **out, size_t width, uint64_t max, uint64_t neg_max)
{
    bool neg = p < end && *p == '-';
    p += neg;
    const char *first = p;
    uint64_t w = 0;
    p = json_digits(p, end, &w);
    size_t digits = (size_t)(p - first);
    if (__builtin_expect(digits == 0 || digits > 19 || (*first == '0' && digits > 1), 0)) {
        uint64_t last = digits == 20 ? (uint64_t)(p[-1] - '0') : 0;
        if (digits != 20 || *first == '0')
            return NULL;
        w = 0;
        json_digits(first, first + 19, &w); /* all 19 digits fit; the 20th may not */
        if (__builtin_mul_overflow(w, 10, &w) || __builtin_add_overflow(w, last, &w))
            return NULL;
    }
    if (__builtin_expect(w > (neg ? neg_max : max), 0))
        return NULL;
    if (__builtin_expect(p < end && (*p == '.' || (*p | 0x20) == 'e'), 0))
        return NULL;
    w = neg ? 0 - w : w;
    memcpy(*out, &w, width); /* little-endian: the low bytes */
    *out += width;
    return p;
}

INLINE const char *read_u8(const char *p, const char *end, uint8_t **out, struct json_run *run)
{
    (void)run;
    return read_whole(p, end, out, 1, UINT8_MAX, 0);
}

INLINE const char *read_u16(const char *p, const char *end, uint8_t **out, struct json_run *run)
{
    (void)run;
    return read_whole(p, end, out, 2, UINT16_MAX, 0);
}

INLINE const char *read_u32(const char *p, const char *end, uint8_t **out, struct json_run *run)
{
    (void)run;
    return read_whole(p, end, out, 4, UINT32_MAX, 0);
}

INLINE const char *read_u64(const char *p, const char *end, uint8_t **out, struct json_run *run)
{
    (void)run;
    return read_whole(p, end, out, 8, UINT64_MAX, 0);
}

INLINE const char *read_i8(const char *p, const char *end, uint8_t **out, struct json_run *run)
{
    (void)run;
    return read_whole(p, end, out, 1, INT8_MAX, 1u << 7);
}

INLINE const char *read_i16(const char *p, const char *end, uint8_t **out, struct json_run *run)
{
    (void)run;
    return read_whole(p, end, out, 2, INT16_MAX, 1u << 15);
}

INLINE const char *read_i32(const char *p, const char *end, uint8_t **out, struct json_run *run)
{
    (void)run;
    return read_whole(p, end, out, 4, INT32_MAX, 1u << 31);
}

INLINE const char *read_i64(const char *p, const char *end, uint8_t **out, struct json_run *run)
{
    (void)run;
    return read_whole(p, end, out, 8, INT64_MAX, 1ull << 63);
}

INLINE const char *read_bool(const char *p, const char *end, uint8_t **out, struct json_run *run)
{
    size_t left = (size_t)(end - p), n;
    (void)run;
    if (left >= 4 && memcmp(p, "true", 4) == 0)
        **out = 1, n = 4;
    else if (left >= 5 && memcmp(p, "false", 5) == 0)
        **out = 0, n = 5;
    else if (left >= 1 && (*p == '0' || *p == '1') &&
             !(left > 1 && (p[1] == '.' || (p[1] | 0x20) == 'e' || (p[1] >= '0' && p[1] <= '9'))))
        **out = *p == '1', n = 1;
    else
        return NULL;
    ++*out;
    return p + n;
}

INLINE const char *read_f64(const char *p, const char *end, uint8_t **out, struct json_run *run)
{
    struct json_decimal d;
    (void)run;
    p = json_decimal_scan(p, end, &d);
    if (__builtin_expect(!p, 0))
        return NULL;
    double v = json_decimal_f64(&d);
    memcpy(*out, &v, sizeof v);
    *out += sizeof v;
    return isfinite(v) ? p : NULL;
}

INLINE const char *read_f32(const char *p, const char *end, uint8_t **out, struct json_run *run)
{
    struct json_decimal d;
    (void)run;
    p = json_decimal_scan(p, end, &d);
    if (__builtin_expect(!p, 0))
        return NULL;
    float v = json_decimal_f32(&d);
    memcpy(*out, &v, sizeof v);
    *out += sizeof v;
    return isfinite(v) ? p : NULL;
}

INLINE const char *read_half(const char *p, const char *end, uint8_t **out, bool bf16)
{
    struct json_decimal d;
    p = json_decimal_scan(p, end, &d);
    if (__builtin_expect(!p, 0))
        return NULL;
    uint16_t v = bf16 ? json_decimal_bf16(&d) : json_decimal_f16(&d);
    memcpy(*out, &v, sizeof v);
    *out += sizeof v;
    return (v & 0x7fff) < (bf16 ? 0x7f80 : 0x7c00) ? p : NULL;
}

INLINE const char *read_f16(const char *p, const char *end, uint8_t **out, struct json_run *run)
{
    (void)run;
    return read_half(p, end, out, false);
}

INLINE const char *read_bf16(const char *p, const char *end, uint8_t **out, struct json_run *run)
{
    (void)run;
    return read_half(p, end, out, true);
}

/* u32 length, then the bytes. The caller made room for what the text can decode to. */
static const char *read_string(const char *p, const char *end, uint8_t **out, struct json_run *run)
{
    const char *bad;
    size_t n;
    run->why = NULL;
    if (p >= end || *p != '"')
        return NULL;
    const char *next = json_string_decode(p + 1, end, (char *)*out + 4, &n, &run->why, &bad);
    if (!next)
        return NULL;
    run->why = "is longer than 4 GiB";
    if (n > UINT32_MAX)
        return NULL;
    store_u32(*out, (uint32_t)n);
    *out += 4 + n;
    return next;
}

static const char *read_base64(const char *p, const char *end, uint8_t **out, struct json_run *run)
{
    uint8_t *at = *out;
    const char *next = read_string(p, end, out, run);
    if (!next)
        return NULL;
    size_t n;
    run->why = "is not base64 (RFC 4648: A-Z a-z 0-9 + / in groups of four, padded with =)";
    if (!base64_decode((struct str){(const char *)at + 4, (size_t)(*out - at) - 4}, at + 4, &n))
        return NULL;
    store_u32(at, (uint32_t)n);
    *out = at + 4 + n;
    return next;
}

enum json_run_end json_run_read(enum dtype t, bool base64, size_t max, struct json_run *run)
{
    switch (t) {
    case DTYPE_BOOL:
        return read_run(read_bool, max, run);
    case DTYPE_UINT8:
        return read_run(read_u8, max, run);
    case DTYPE_UINT16:
        return read_run(read_u16, max, run);
    case DTYPE_UINT32:
        return read_run(read_u32, max, run);
    case DTYPE_UINT64:
        return read_run(read_u64, max, run);
    case DTYPE_INT8:
        return read_run(read_i8, max, run);
    case DTYPE_INT16:
        return read_run(read_i16, max, run);
    case DTYPE_INT32:
        return read_run(read_i32, max, run);
    case DTYPE_INT64:
        return read_run(read_i64, max, run);
    case DTYPE_FP16:
        return read_run(read_f16, max, run);
    case DTYPE_BF16:
        return read_run(read_bf16, max, run);
    case DTYPE_FP32:
        return read_run(read_f32, max, run);
    case DTYPE_FP64:
        return read_run(read_f64, max, run);
    case DTYPE_BYTES:
        return read_run(base64 ? read_base64 : read_string, max, run);
    default:
        return JSON_RUN_BAD;
    }
}
