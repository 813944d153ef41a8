/* guard_input.c: one input, or one text, against the rules for it.
 *
 * Values are looked at in two ways: a pass without branches says whether all are good (compilers make vectors of it); only when one isn't does
 * a second pass find the first, to name it. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "edge/guard.h"
#include "edge/guard_stats.h"
#include "edge/identity.h"

#define SPAN_BYTES 64
#define BLOCK      256

const char *guard_mode_name(enum guard_mode m)
{
    static const char *const names[] = {"refuse", "flag", "log"};
    return names[m];
}

const char *guard_check_name(enum guard_check c)
{
    static const char *const names[GUARD_CHECKS] = {"content_type", "body",  "json_depth", "dtype", "shape", "range",
                                                    "finite",       "image", "text",       "deny",  "score"};
    return names[c];
}

/* ---- values ---- */

/* Elements as doubles; loads are by memcpy, since tensors promise no alignment. */
#define LOAD_AS(TYPE, CONVERT)                                                                                                 \
    for (size_t i = 0; i < n; i++) {                                                                                           \
        TYPE raw;                                                                                                              \
        memcpy(&raw, p + i * sizeof raw, sizeof raw);                                                                          \
        out[i] = (double)CONVERT(raw);                                                                                         \
    }                                                                                                                          \
    break
#define AS_IS(x) (x)

void guard_load_f64(const struct tensor *t, size_t first, size_t n, double *out)
{
    const uint8_t *p = t->data.p + first * dtype_bytes(t->dtype);
    switch (t->dtype) {
    case DTYPE_BOOL:
    case DTYPE_UINT8:
        LOAD_AS(uint8_t, AS_IS);
    case DTYPE_UINT16:
        LOAD_AS(uint16_t, AS_IS);
    case DTYPE_UINT32:
        LOAD_AS(uint32_t, AS_IS);
    case DTYPE_UINT64:
        LOAD_AS(uint64_t, AS_IS);
    case DTYPE_INT8:
        LOAD_AS(int8_t, AS_IS);
    case DTYPE_INT16:
        LOAD_AS(int16_t, AS_IS);
    case DTYPE_INT32:
        LOAD_AS(int32_t, AS_IS);
    case DTYPE_INT64:
        LOAD_AS(int64_t, AS_IS);
    case DTYPE_FP16:
        LOAD_AS(uint16_t, f16_to_f32);
    case DTYPE_BF16:
        LOAD_AS(uint16_t, bf16_to_f32);
    case DTYPE_FP32:
        LOAD_AS(float, AS_IS);
    case DTYPE_FP64:
        LOAD_AS(double, AS_IS);
    default:
        memset(out, 0, n * sizeof *out);
    }
}

/* The usual case, in vectors: without double's width. A bound that no float has is moved inwards to the next that is one. */
static bool all_f32(const uint8_t *p, size_t n, double least, double most)
{
    float a = (float)least, b = (float)most;
    a = (double)a < least ? nextafterf(a, INFINITY) : a;
    b = (double)b > most ? nextafterf(b, -INFINITY) : b;
    int bad = 0;
    for (size_t i = 0; i < n; i++) {
        float v;
        memcpy(&v, p + i * sizeof v, sizeof v);
        bad |= !(v >= a) | !(v <= b); /* a NaN fails both */
    }
    return !bad;
}

static bool all_good(const struct tensor *t, size_t n, double least, double most)
{
    double x[BLOCK];
    int bad = 0;
    if (t->dtype == DTYPE_FP32)
        return all_f32(t->data.p, n, least, most);
    for (size_t at = 0; at < n && !bad; at += BLOCK) {
        size_t k = MIN_OF((size_t)BLOCK, n - at);
        guard_load_f64(t, at, k, x);
        for (size_t i = 0; i < k; i++)
            bad |= !(x[i] >= least) | !(x[i] <= most);
    }
    return !bad;
}

static bool is_real(enum dtype t)
{
    return t == DTYPE_FP16 || t == DTYPE_BF16 || t == DTYPE_FP32 || t == DTYPE_FP64;
}

/* "[0,2,1]" of element `i`. */
static const char *position(const struct shape *s, size_t i, char *out, size_t cap)
{
    size_t index[TENSOR_RANK_MAX], at = 0;
    for (size_t d = s->rank; d-- > 0;) {
        size_t n = s->dim[d] > 0 ? (size_t)s->dim[d] : 1;
        index[d] = i % n;
        i /= n;
    }
    out[0] = 0;
    for (size_t d = 0; d < s->rank && at < cap - 1; d++)
        at += (size_t)snprintf(out + at, cap - at, "%c%zu", d ? ',' : '[', index[d]);
    if (at < cap - 1)
        snprintf(out + at, cap - at, "%s", s->rank ? "]" : "[]");
    return out;
}

static int found(enum guard_check *check, enum guard_check what)
{
    *check = what;
    return STATUS_INVALID;
}

static int check_values(const struct guard_tensor *g, const struct tensor *t, enum guard_check *check, struct error *err)
{
    char at[160];
    size_t size = dtype_bytes(t->dtype), n = size ? t->data.n / size : 0, i = 0;
    double least = g->has_range ? g->range[0] : -DBL_MAX, most = g->has_range ? g->range[1] : DBL_MAX, v = 0;
    /* what is no number is in no range; where any range is right, only real numbers can fail */
    if (!n || !(g->has_range || (g->finite && is_real(t->dtype))) || all_good(t, n, least, most))
        return 0;
    for (guard_load_f64(t, 0, 1, &v); i + 1 < n && v >= least && v <= most;)
        guard_load_f64(t, ++i, 1, &v);
    position(&t->shape, i, at, sizeof at);
    if (isfinite(v)) {
        error_set(err, STATUS_INVALID, "input \"%.*s\": the value %g at %s is not accepted; accepted: %g to %g",
                  STR_ARG(t->name), v, at, least, most);
        return found(check, GUARD_RANGE);
    }
    error_set(err, STATUS_INVALID, "input \"%.*s\": the value at %s is %s; accepted: finite numbers%s", STR_ARG(t->name), at,
              isnan(v) ? "NaN"
              : v > 0  ? "infinite"
                       : "minus infinite",
              g->has_range ? " within the range" : "");
    return found(check, GUARD_FINITE);
}

/* ---- shapes ---- */

static const char *span_text(int64_t least, int64_t most, char *out, size_t cap)
{
    if (most == INT64_MAX && least <= 0)
        snprintf(out, cap, "any");
    else if (most == INT64_MAX)
        snprintf(out, cap, "%" PRId64 " or more", least);
    else if (least == most)
        snprintf(out, cap, "%" PRId64, least);
    else
        snprintf(out, cap, "%" PRId64 "..%" PRId64, least, most);
    return out;
}

static int check_dtype(const struct guard_tensor *g, const struct tensor *t, enum guard_check *check, struct error *err)
{
    char accepted[128] = "";
    if (!g->dtypes || g->dtypes & 1u << t->dtype)
        return 0;
    for (int d = 0; d < DTYPE_COUNT; d++)
        if (g->dtypes & 1u << d) {
            size_t at = strlen(accepted);
            snprintf(accepted + at, sizeof accepted - at, "%s%s", at ? ", " : "", dtype_name((enum dtype)d));
        }
    error_set(err, STATUS_INVALID, "input \"%.*s\" has data type %s; accepted: %s", STR_ARG(t->name), dtype_name(t->dtype),
              accepted);
    return found(check, GUARD_DTYPE);
}

static int check_shape(const struct guard_tensor *g, const struct tensor *t, enum guard_check *check, struct error *err)
{
    char shape[256], span[SPAN_BYTES];
    if (!g->has_shape)
        return 0;
    if (t->shape.rank != g->rank) {
        error_set(err, STATUS_INVALID, "input \"%.*s\" has shape %s; accepted: %u dimensions", STR_ARG(t->name),
                  shape_format(&t->shape, shape, sizeof shape), g->rank);
        return found(check, GUARD_SHAPE);
    }
    for (uint8_t d = 0; d < g->rank; d++)
        if (t->shape.dim[d] < g->least[d] || t->shape.dim[d] > g->most[d]) {
            error_set(err, STATUS_INVALID, "input \"%.*s\" has shape %s; dimension %u is %" PRId64 ", accepted: %s",
                      STR_ARG(t->name), shape_format(&t->shape, shape, sizeof shape), d, t->shape.dim[d],
                      span_text(g->least[d], g->most[d], span, sizeof span));
            return found(check, GUARD_SHAPE);
        }
    return 0;
}

static int check_image(const struct guard_tensor *g, const struct tensor *t, enum guard_check *check, struct error *err)
{
    static const char *const words[] = {"height", "width", "channels"};
    const struct guard_image *m = &g->image;
    const int64_t *const spans[] = {m->height, m->width, m->channels};
    char span[SPAN_BYTES], shape[256];
    uint8_t rank = t->shape.rank;
    if (m->layout == GUARD_NO_IMAGE)
        return 0;
    if (rank < 3 || rank > 4) {
        error_set(err, STATUS_INVALID,
                  "input \"%.*s\" has shape %s; accepted: an image in %s, with or without a batch dimension", STR_ARG(t->name),
                  shape_format(&t->shape, shape, sizeof shape), m->layout == GUARD_HWC ? "hwc" : "chw");
        return found(check, GUARD_IMAGE);
    }
    for (int i = 0; i < 3; i++) {
        int at = rank - 3 + (m->layout == GUARD_HWC ? i : (i + 1) % 3);
        if (t->shape.dim[at] >= spans[i][0] && t->shape.dim[at] <= spans[i][1])
            continue;
        error_set(err, STATUS_INVALID, "input \"%.*s\": the image's %s is %" PRId64 "; accepted: %s", STR_ARG(t->name),
                  words[i], t->shape.dim[at], span_text(spans[i][0], spans[i][1], span, sizeof span));
        return found(check, GUARD_IMAGE);
    }
    return 0;
}

/* ---- text ---- */

static int refuse_text(enum guard_check *check, struct error *err, const char *field, const char *fmt, ...) PRINTF_LIKE(4, 5);
static int refuse_text(enum guard_check *check, struct error *err, const char *field, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    error_vset(err, STATUS_INVALID, fmt, ap);
    va_end(ap);
    error_prefix(err, "%s", field);
    return found(check, GUARD_TEXT);
}

static bool is_control(unsigned char c)
{
    return (c < ' ' && c != '\t' && c != '\n' && c != '\r') || c == 0x7f;
}

/* U+0080 to U+009F are control characters as well. */
static bool is_high_control(struct str text, size_t at)
{
    return (unsigned char)text.p[at] == 0xc2 && (unsigned char)text.p[at + 1] < 0xa0;
}

int guard_check_text(const struct guard_text *g, struct str text, const char *field, enum guard_check *check, struct error *err)
{
    uint64_t chars = 0;
    if (g->max_bytes && text.n > g->max_bytes)
        return refuse_text(check, err, field, "it has %zu bytes; accepted: at most %" PRIu64, text.n, g->max_bytes);
    for (size_t at = 0; at < text.n; chars++) {
        size_t n = str_utf8_at(text, at);
        if (!n && !g->any_bytes)
            return refuse_text(check, err, field, "the byte 0x%02x at offset %zu is not valid UTF-8; accepted: UTF-8",
                               (unsigned char)text.p[at], at);
        if (!g->control && (is_control((unsigned char)text.p[at]) || (n == 2 && is_high_control(text, at))))
            return refuse_text(check, err, field,
                               "the control character 0x%02x at offset %zu is not accepted; accepted: text, tabs and line ends",
                               (unsigned char)text.p[at + (n == 2)], at);
        at += n ? n : 1;
    }
    if (g->max_chars && chars > g->max_chars)
        return refuse_text(check, err, field, "it has %" PRIu64 " characters; accepted: at most %" PRIu64, chars, g->max_chars);
    return 0;
}

int guard_check_denied(struct redactor *denied, struct str text, const char *field, enum guard_check *check, struct error *err)
{
    struct buf rest;
    buf_init(&rest);
    int rc = redactor_push(denied, text, true, &rest);
    buf_release(&rest);
    if (rc != STATUS_FORBIDDEN)
        return rc < 0 ? error_set(err, rc, "out of memory for this request; try again later") : 0;
    error_set(err, STATUS_INVALID, "%s: the text is not accepted by the rule \"%s\"%s", field,
              policy_rule_name(redactor_refused_by(denied)),
              redactor_gave_up(denied) ? ", which could not be applied to it in time" : "");
    return found(check, GUARD_DENIED);
}

/* Each element of a BYTES tensor, whose lengths have been checked. */
static int check_elements(const struct guard_text *g, const struct tensor *t, struct redactor *denied, enum guard_check *check,
                          struct error *err)
{
    size_t i = 0;
    char field[256];
    for (size_t at = 0; at + 4 <= t->data.n; i++) {
        uint32_t n;
        memcpy(&n, t->data.p + at, sizeof n);
        if (n > t->data.n - at - 4)
            return 0;
        struct str text = {(const char *)t->data.p + at + 4, n};
        snprintf(field, sizeof field, "input \"%.*s\", element %zu", (int)MIN_OF(t->name.n, (size_t)128), t->name.p, i);
        int rc = g ? guard_check_text(g, text, field, check, err) : 0;
        if (rc == 0 && denied)
            rc = guard_check_denied(denied, text, field, check, err);
        if (rc < 0)
            return rc;
        at += 4 + (size_t)n;
    }
    return 0;
}

/* ---- all of it ---- */

int guard_check_tensor(const struct guard_input *p, const struct tensor *t, struct redactor *denied, enum guard_check *check,
                       struct error *err)
{
    bool bytes = t->dtype == DTYPE_BYTES;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < p->n_tensors; i++) {
        const struct guard_tensor *g = &p->tensors[i];
        if (!edge_pattern_match(str_of(g->input), t->name))
            continue;
        rc = check_dtype(g, t, check, err);
        if (rc == 0)
            rc = check_shape(g, t, check, err);
        if (rc == 0)
            rc = check_image(g, t, check, err);
        if (rc == 0 && !bytes)
            rc = check_values(g, t, check, err);
        if (rc == 0 && bytes && g->has_text)
            rc = check_elements(&g->text, t, NULL, check, err);
    }
    return rc == 0 && bytes && denied ? check_elements(NULL, t, denied, check, err) : rc;
}

int guard_check_type(const struct guard_input *p, struct str type, enum guard_check *check, struct error *err)
{
    char accepted[256] = "";
    struct str rest = type, first = type;
    str_cut(&rest, ';', &first);
    first = str_trim(first);
    for (size_t i = 0; i < p->n_types; i++)
        if (str_ieqz(first, p->types[i]))
            return 0;
    if (!p->n_types)
        return 0;
    for (size_t i = 0; i < p->n_types; i++) {
        size_t at = strlen(accepted);
        snprintf(accepted + at, sizeof accepted - at, "%s%s", at ? ", " : "", p->types[i]);
    }
    *check = GUARD_CONTENT_TYPE;
    return error_set(err, STATUS_MEDIA_TYPE, "content type \"%.*s\" is not accepted for this model; accepted: %s",
                     STR_ARG(first), accepted);
}
