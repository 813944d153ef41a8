/* json_decode.c: memory, nesting and error sentences around the runs of json_decode_values.c. See json_decode.h. */
#include "tensor/json_decode.h"

#include <stdio.h>

#include "base/size.h"
#include "base/status.h"
#include "tensor/json_number.h"
#include "tensor/tensor_priv.h"

#define STRING_TEXT_LIKELY 256 /* a BYTES element's text is hardly longer; see string_span */

struct walk {
    struct json_scan *s;
    struct tensor *t;
    const struct json_decode_options *opt;
    struct json_run run;
    uint64_t elements;
    bool nested;
    int64_t index[TENSOR_RANK_MAX]; /* where the walk is, outermost first */
    struct error *err;
};

#define PLACE_TEXT 200
/* "element 7" or "element [0][2][7]"; `n`: index in the current run. */
static const char *place(const struct walk *w, size_t level, size_t n, char *text)
{
    size_t at = (size_t)snprintf(text, PLACE_TEXT, "element ");
    if (!w->nested) {
        snprintf(text + at, PLACE_TEXT - at, "%zu", n);
        return text;
    }
    for (size_t i = 0; i <= level && at < PLACE_TEXT; i++)
        at += (size_t)snprintf(text + at, PLACE_TEXT - at, "[%lld]", i == level ? (long long)n : (long long)w->index[i]);
    return text;
}

static const struct {
    const char *takes;
} dtype_text[DTYPE_COUNT] = {
    [DTYPE_BOOL] = {"true, false, 0 and 1"},
    [DTYPE_UINT8] = {"whole numbers from 0 to 255"},
    [DTYPE_UINT16] = {"whole numbers from 0 to 65535"},
    [DTYPE_UINT32] = {"whole numbers from 0 to 4294967295"},
    [DTYPE_UINT64] = {"whole numbers from 0 to 18446744073709551615"},
    [DTYPE_INT8] = {"whole numbers from -128 to 127"},
    [DTYPE_INT16] = {"whole numbers from -32768 to 32767"},
    [DTYPE_INT32] = {"whole numbers from -2147483648 to 2147483647"},
    [DTYPE_INT64] = {"whole numbers from -9223372036854775808 to 9223372036854775807"},
    [DTYPE_FP16] = {"numbers from -65504 to 65504"},
    [DTYPE_BF16] = {"numbers from -3.3895314e38 to 3.3895314e38"},
    [DTYPE_FP32] = {"numbers from -3.4028235e38 to 3.4028235e38"},
    [DTYPE_FP64] = {"numbers from -1.7976931348623157e308 to 1.7976931348623157e308"},
    [DTYPE_BYTES] = {"strings"},
};

static bool starts_word(const struct json_scan *s, const char *w)
{
    size_t n = strlen(w);
    return (size_t)(s->end - s->p) >= n && memcmp(s->p, w, n) == 0;
}

/* The element at the run's end is not a value of the dtype: say why. */
static int bad_element(struct walk *w, size_t level)
{
    char token[JSON_TOKEN_TEXT], where[PLACE_TEXT];
    const struct tensor *t = w->t;
    struct json_scan at = {w->run.at, w->s->end, w->s->start};
    struct json_decimal d;
    const char *reason = "";
    if (t->dtype == DTYPE_BYTES && w->run.why)
        return error_set(w->err, STATUS_INVALID, "input '%.*s': %s of data is a string that %s", NAME_ARG(t->name),
                         place(w, level, w->run.n, where), w->run.why);
    if (at.p == at.end || *at.p == ']' || *at.p == ',' || *at.p == '}')
        return error_set(w->err, STATUS_INVALID, "input '%.*s': %s of data is missing (byte %zu of the JSON)",
                         NAME_ARG(t->name), place(w, level, w->run.n, where), (size_t)(at.p - at.start));
    if (*at.p == '[')
        reason = w->nested ? "; data is nested deeper than the shape has dimensions"
                           : "; data is either flat or nested exactly as the shape says";
    else if (starts_word(&at, "NaN") || starts_word(&at, "Inf") || starts_word(&at, "-Inf") || starts_word(&at, "nan"))
        reason = "; JSON has no NaN and no infinities: send this input as binary (parameter binary_data_size)";
    else if (dtype_bytes(t->dtype) && t->dtype != DTYPE_BOOL && *at.p != '"' && *at.p != '{' &&
             !json_decimal_scan(at.p, at.end, &d))
        reason = ", written as in JSON";
    return error_set(w->err, STATUS_INVALID, "input '%.*s': %s of data is %s, but %s takes %s%s", NAME_ARG(t->name),
                     place(w, level, w->run.n, where), json_token_text(&at, token), dtype_name(t->dtype),
                     dtype_text[t->dtype].takes, reason);
}

static int wrong_count(struct walk *w, size_t level, const char *more, unsigned long long n, unsigned long long want)
{
    char where[PLACE_TEXT] = "data", shape[128];
    size_t at = 4;
    for (size_t i = 0; w->nested && i < level && at < sizeof where; i++)
        at += (size_t)snprintf(where + at, sizeof where - at, "[%lld]", (long long)w->index[i]);
    return error_set(w->err, STATUS_INVALID, "input '%.*s': %s has %s%llu elements, but shape %s asks for %llu there",
                     NAME_ARG(w->t->name), where, more, n, shape_format(&w->t->shape, shape, sizeof shape), want);
}

/* Elements up to a ']': exactly `want`. The scanner is behind the '['. */
static int read_run(struct walk *w, size_t level, uint64_t want)
{
    w->run.at = w->s->p;
    enum json_run_end end = json_run_read(w->t->dtype, w->opt->base64, (size_t)want, &w->run);
    w->s->p = w->run.at;
    switch (end) {
    case JSON_RUN_CLOSED:
        if (w->run.n != want)
            return wrong_count(w, level, "", w->run.n, want);
        return STATUS_OK;
    case JSON_RUN_TOO_MANY:
        return wrong_count(w, level, "more than ", w->run.n, want);
    case JSON_RUN_BAD:
        return bad_element(w, level);
    default:
        json_expected(w->s, "',' or ']' behind an element of data", w->err);
        return error_prefix(w->err, "input '%.*s'", NAME_ARG(w->t->name));
    }
}

/* One nested array at the scanner's '[', which holds dimension `level`. */
static int read_level(struct walk *w, size_t level)
{
    int64_t want = w->t->shape.dim[level];
    if (level + 1 == w->t->shape.rank) {
        w->s->p++;
        return read_run(w, level, (uint64_t)want);
    }
    bool first = true;
    int rc;
    for (w->index[level] = 0; (rc = json_element(w->s, &first, w->err)) == 1; w->index[level]++) {
        if (w->index[level] == want)
            return wrong_count(w, level, "more than ", (unsigned long long)want, (unsigned long long)want);
        if (json_peek(w->s) != '[') {
            char token[JSON_TOKEN_TEXT], where[PLACE_TEXT], shape[128];
            return error_set(w->err, STATUS_INVALID,
                             "input '%.*s': %s of data is %s, but shape %s asks for an array there (ragged nesting)",
                             NAME_ARG(w->t->name), place(w, level, (size_t)w->index[level], where),
                             json_token_text(w->s, token), shape_format(&w->t->shape, shape, sizeof shape));
        }
        if ((rc = read_level(w, level + 1)) != 0)
            return rc;
    }
    if (rc)
        return error_prefix(w->err, "input '%.*s'", NAME_ARG(w->t->name));
    if (w->index[level] != want)
        return wrong_count(w, level, "", (unsigned long long)w->index[level], (unsigned long long)want);
    return STATUS_OK;
}

/* A bare value: the element of a scalar. */
static int read_scalar(struct walk *w)
{
    struct json_scan at = *w->s;
    int rc = json_skip(&at, 0, w->err);
    if (rc)
        return error_prefix(w->err, "input '%.*s'", NAME_ARG(w->t->name));
    w->run.at = w->s->p;
    w->run.end = at.p; /* the run ends behind the value, for want of a bracket */
    enum json_run_end end = json_run_read(w->t->dtype, w->opt->base64, 1, &w->run);
    if (end == JSON_RUN_BAD || w->run.n != 1)
        return bad_element(w, 0);
    w->s->p = at.p;
    return STATUS_OK;
}

/* Bytes of text up to the end of a BYTES tensor's data. The whole rest stands for it where the data probably is most of that: memory
 * that stays untouched costs less than passing over the text twice. */
static int string_span(struct walk *w, size_t left, size_t *out)
{
    struct json_scan end = *w->s;
    *out = left;
    if (!w->opt->value_end && w->elements >= left / STRING_TEXT_LIKELY && left <= w->opt->bytes_max / 2)
        return STATUS_OK;
    int rc = w->opt->value_end ? STATUS_OK : json_skip(&end, TENSOR_RANK_MAX + 1, w->err);
    if (rc)
        return error_prefix(w->err, "input '%.*s'", NAME_ARG(w->t->name));
    *out = (size_t)((w->opt->value_end ? w->opt->value_end : end.p) - w->s->p);
    return STATUS_OK;
}

/* Bytes that the decoded data can take at most. For BYTES the text's span decides: an element "..." with its quotes and a
 * separator is at least three bytes longer than its content, and takes four more in the tensor. */
static int capacity(struct walk *w, size_t *out)
{
    const struct tensor *t = w->t;
    char shape[128];
    size_t left = (size_t)(w->s->end - w->s->p);
    if (!shape_elements(&t->shape, &w->elements))
        return error_set(w->err, STATUS_INVALID,
                         "input '%.*s': shape %s has a negative dimension or more elements than fit 63 bits", NAME_ARG(t->name),
                         shape_format(&t->shape, shape, sizeof shape));
    if (w->elements > left / 2 + 1)
        return error_set(w->err, STATUS_INVALID,
                         "input '%.*s': shape %s has %llu elements, but only %zu bytes of JSON are left for its data",
                         NAME_ARG(t->name), shape_format(&t->shape, shape, sizeof shape), (unsigned long long)w->elements,
                         left);
    if (t->dtype == DTYPE_BYTES) {
        int rc = string_span(w, left, out);
        if (rc)
            return rc;
        *out += (size_t)w->elements + 4 + JSON_STRING_SLACK;
    } else if (!tensor_bytes(t->dtype, &t->shape, out)) {
        return error_set(w->err, STATUS_INVALID, "input '%.*s': %s of shape %s does not fit any memory", NAME_ARG(t->name),
                         dtype_name(t->dtype), shape_format(&t->shape, shape, sizeof shape));
    }
    if (*out > w->opt->bytes_max)
        return error_set(w->err, STATUS_TOO_LARGE,
                         "input '%.*s': its data takes %zu bytes of memory, and JSON data of one request may take %zu "
                         "more; send it as binary",
                         NAME_ARG(t->name), *out, w->opt->bytes_max);
    return STATUS_OK;
}

static int read_value(struct walk *w)
{
    if (json_peek(w->s) != '[') {
        if (w->t->shape.rank == 0)
            return read_scalar(w);
        json_expected(w->s, "an array of data", w->err);
        return error_prefix(w->err, "input '%.*s'", NAME_ARG(w->t->name));
    }
    struct json_scan inner = *w->s;
    inner.p++;
    if (json_peek(&inner) == '[' && w->t->shape.rank > 1) {
        w->nested = true;
        return read_level(w, 0);
    }
    w->s->p++;
    return read_run(w, 0, w->elements);
}

int json_decode_data(struct json_scan *s, struct tensor *t, const struct json_decode_options *opt, struct error *err)
{
    struct walk w = {.s = s, .t = t, .opt = opt, .err = err};
    size_t cap;
    t->data = (struct slice){0};
    json_peek(s);
    int rc = capacity(&w, &cap);
    if (rc)
        return rc;
    struct slab *slab = slab_create(cap);
    if (!slab)
        return error_set(err, STATUS_NOMEM, "input '%.*s': no memory for its %zu bytes", NAME_ARG(t->name), cap);
    w.run.out = slab->data;
    w.run.end = s->end;
    rc = read_value(&w);
    if (rc) {
        slab_unref(slab);
        return rc;
    }
    slab->n = (size_t)(w.run.out - slab->data);
    t->data = (struct slice){slab->data, slab->n, slab};
    return STATUS_OK;
}
