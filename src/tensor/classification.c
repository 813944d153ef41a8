/* classification.c: see classification.h. The k best of a row are kept in a sorted window
 * while k is small, which is what classification is for: the cost is one comparison per element that is not
 * among them. A k near the row's length sorts the row instead. */
#include "tensor/classification.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "tensor/tensor_priv.h"

/* One element, as a key that orders like its value: NaN lowest, then by value. */
struct ranked {
    uint64_t key;
    uint64_t index;
};

static uint64_t float_key(double v)
{
    uint64_t u;
    if (v != v)
        return 0;
    v += 0.0; /* -0 equals 0 */
    memcpy(&u, &v, sizeof u);
    return u >> 63 ? ~u : u | 1ull << 63;
}

static uint64_t load_bits(const uint8_t *p, size_t each, size_t i)
{
    uint64_t u = 0;
    memcpy(&u, p + i * each, each);
    return u;
}

static int64_t sign_extend(uint64_t u, size_t each)
{
    return (int64_t)(u << (64 - 8 * each)) >> (64 - 8 * each);
}

static double load_float(enum dtype t, const uint8_t *p, size_t i)
{
    uint64_t u = load_bits(p, dtype_bytes(t), i);
    float f;
    double d;
    switch (t) {
    case DTYPE_FP16:
        return (double)f16_to_f32((uint16_t)u);
    case DTYPE_BF16:
        return (double)bf16_to_f32((uint16_t)u);
    case DTYPE_FP32:
        memcpy(&f, &u, sizeof f);
        return (double)f;
    default:
        memcpy(&d, &u, sizeof d);
        return d;
    }
}

static bool is_float(enum dtype t)
{
    return t == DTYPE_FP16 || t == DTYPE_BF16 || t == DTYPE_FP32 || t == DTYPE_FP64;
}

static bool is_signed(enum dtype t)
{
    return t == DTYPE_INT8 || t == DTYPE_INT16 || t == DTYPE_INT32 || t == DTYPE_INT64;
}

static uint64_t key_of(enum dtype t, const uint8_t *p, size_t i)
{
    if (is_float(t))
        return float_key(load_float(t, p, i));
    uint64_t u = load_bits(p, dtype_bytes(t), i);
    return is_signed(t) ? (uint64_t)sign_extend(u, dtype_bytes(t)) ^ 1ull << 63 : u;
}

/* Triton's text: std::to_string of the element. Room for 400: a double's 309 digits before the point. */
#define VALUE_TEXT 400
static int value_text(enum dtype t, const uint8_t *p, size_t i, char *text)
{
    if (is_float(t))
        return snprintf(text, VALUE_TEXT, "%f", load_float(t, p, i));
    uint64_t u = load_bits(p, dtype_bytes(t), i);
    if (is_signed(t))
        return snprintf(text, VALUE_TEXT, "%lld", (long long)sign_extend(u, dtype_bytes(t)));
    return snprintf(text, VALUE_TEXT, "%llu", (unsigned long long)u);
}

static bool before(const struct ranked *a, const struct ranked *b)
{
    return a->key != b->key ? a->key > b->key : a->index < b->index;
}

static int compare(const void *a, const void *b)
{
    return before(a, b) ? -1 : 1;
}

/* The k first in order of n elements of a row into best[0..k). */
static void rank_window(enum dtype t, const uint8_t *row, size_t n, size_t k, struct ranked *best)
{
    size_t have = 0;
    for (size_t i = 0; i < n; i++) {
        struct ranked r = {key_of(t, row, i), i};
        if (have == k && !before(&r, &best[k - 1]))
            continue;
        size_t at = have < k ? have++ : k - 1;
        for (; at > 0 && before(&r, &best[at - 1]); at--)
            best[at] = best[at - 1];
        best[at] = r;
    }
}

static void rank_sort(enum dtype t, const uint8_t *row, size_t n, struct ranked *all)
{
    for (size_t i = 0; i < n; i++)
        all[i] = (struct ranked){key_of(t, row, i), i};
    qsort(all, n, sizeof *all, compare);
}

static void append_class(const struct tensor *t, const uint8_t *row, const struct ranked *r, const struct str *labels,
                         size_t n_labels, struct buf *out)
{
    char text[VALUE_TEXT + 32];
    int n = value_text(t->dtype, row, (size_t)r->index, text);
    n += snprintf(text + n, sizeof text - (size_t)n, ":%llu", (unsigned long long)r->index);
    struct str label = r->index < n_labels ? labels[r->index] : (struct str){NULL, 0};
    uint32_t len = (uint32_t)n + (label.n ? (uint32_t)label.n + 1 : 0);
    buf_append(out, &len, sizeof len);
    buf_append(out, text, (size_t)n);
    if (label.n) {
        buf_append_c(out, ':');
        buf_append_str(out, label);
    }
}

int classification_top(const struct tensor *t, bool batched, uint32_t k, const struct str *labels, size_t n_labels,
                       struct tensor *out, struct error *err)
{
    ASSERT(k >= 1);
    *out = (struct tensor){.name = t->name, .dtype = DTYPE_BYTES};
    size_t each = dtype_bytes(t->dtype);
    if (!each)
        return error_set(err, STATUS_INVALID,
                         "output '%.*s' is %s: only numbers can be ranked as classes; ask for it "
                         "without the parameter classification",
                         NAME_ARG(t->name), dtype_name(t->dtype));
    bool has_batch = batched && t->shape.rank > 0;
    size_t total = t->data.n / each, rows = has_batch ? (size_t)t->shape.dim[0] : 1;
    size_t classes = rows ? total / rows : 0, top = MIN_OF(classes, (size_t)k);
    bool sort = top > 64 && top > classes / 64;
    struct ranked *best = malloc((sort ? classes : top ? top : 1) * sizeof *best);
    struct buf text;
    buf_init(&text);
    for (size_t r = 0; best && top && r < rows; r++) {
        const uint8_t *row = t->data.p + r * classes * each;
        if (sort)
            rank_sort(t->dtype, row, classes, best);
        else
            rank_window(t->dtype, row, classes, top, best);
        for (size_t i = 0; i < top; i++)
            append_class(t, row, &best[i], labels, n_labels, &text);
    }
    struct slab *s = best && !text.failed ? slab_create(text.n) : NULL;
    free(best);
    if (s) {
        if (text.n)
            memcpy(s->data, text.p, text.n);
        s->n = text.n;
        if (has_batch)
            out->shape.dim[out->shape.rank++] = t->shape.dim[0];
        out->shape.dim[out->shape.rank++] = (int64_t)top;
        out->data = (struct slice){s->data, s->n, s};
    }
    buf_release(&text);
    return s ? STATUS_OK : error_set(err, STATUS_NOMEM, "no memory for the classes of output '%.*s'", NAME_ARG(t->name));
}
