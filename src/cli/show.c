/* show.c: values as text. The recursion over axes is bounded by TENSOR_RANK_MAX. */
#include "cli/show.h"

#include <math.h>
#include <string.h>

#include "base/size.h"
#include "cli/cli.h"
#include "cli/table.h"

#define EDGE_ITEMS  3  /* at each end of an axis that is cut */
#define WHOLE_ITEMS 64 /* tensors up to this many elements are shown whole */

/* The next element of a BYTES tensor from *at on; false at the end. */
static bool next_bytes(const struct tensor *t, size_t *at, struct str *out)
{
    uint32_t n;
    if (*at + 4 > t->data.n)
        return false;
    memcpy(&n, t->data.p + *at, 4);
    if (n > t->data.n - *at - 4)
        return false;
    *out = (struct str){(const char *)t->data.p + *at + 4, n};
    *at += 4 + (size_t)n;
    return true;
}

/* ---- numbers ---- */

static double number_at(const struct tensor *t, size_t i)
{
    const uint8_t *p = t->data.p + i * dtype_bytes(t->dtype);
    uint16_t h;
    uint64_t u = 0;
    float f;
    double d;
    switch (t->dtype) {
    case DTYPE_FP16:
    case DTYPE_BF16:
        memcpy(&h, p, 2);
        return (double)(t->dtype == DTYPE_FP16 ? f16_to_f32(h) : bf16_to_f32(h));
    case DTYPE_FP32:
        memcpy(&f, p, 4);
        return (double)f;
    case DTYPE_FP64:
        memcpy(&d, p, 8);
        return d;
    case DTYPE_INT8:
        return (double)(int8_t)*p;
    case DTYPE_INT16:
        memcpy(&h, p, 2);
        return (double)(int16_t)h;
    case DTYPE_INT32:
        memcpy(&u, p, 4);
        return (double)(int32_t)(uint32_t)u;
    case DTYPE_INT64:
        memcpy(&u, p, 8);
        return (double)(int64_t)u;
    default:
        memcpy(&u, p, dtype_bytes(t->dtype));
        return (double)u;
    }
}

static bool is_real(enum dtype t)
{
    return t == DTYPE_FP16 || t == DTYPE_BF16 || t == DTYPE_FP32 || t == DTYPE_FP64;
}

static void element_text(const struct tensor *t, size_t i, char *text, size_t cap)
{
    uint64_t u = 0;
    if (t->dtype == DTYPE_BOOL)
        snprintf(text, cap, "%s", t->data.p[i] ? "true" : "false");
    else if (is_real(t->dtype))
        snprintf(text, cap, "%.*g", t->dtype == DTYPE_FP64 ? 8 : t->dtype == DTYPE_FP32 ? 6 : 4, number_at(t, i));
    else if (t->dtype == DTYPE_INT64) /* exact past 2^53 */
        memcpy(&u, t->data.p + 8 * i, 8), snprintf(text, cap, "%lld", (long long)u);
    else if (t->dtype == DTYPE_UINT64)
        memcpy(&u, t->data.p + 8 * i, 8), snprintf(text, cap, "%llu", (unsigned long long)u);
    else
        snprintf(text, cap, "%.0f", number_at(t, i));
}

/* ---- text ---- */

#define TEXT_SHOWN 2000

static void print_text(struct str s, bool all, FILE *f)
{
    size_t n = all || s.n <= TEXT_SHOWN ? s.n : TEXT_SHOWN;
    fputc('"', f);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", f);
        else if (c < 0x20 || c == 0x7f)
            fprintf(f, "\\x%02x", c);
        else
            fputc(c, f);
    }
    fputc('"', f);
    if (n < s.n)
        fprintf(f, "... (%zu bytes)", s.n);
}

/* ---- the nest ---- */

struct nest {
    const struct tensor *t;
    const struct show_options *o;
    FILE *f;
    bool whole;
    size_t offset[4 * EDGE_ITEMS]; /* unused for numbers */
};

/* Where element `i` of a BYTES tensor begins. */
static struct str bytes_at(const struct tensor *t, size_t i)
{
    size_t at = 0;
    struct str s = {0};
    for (size_t k = 0; k <= i; k++)
        if (!next_bytes(t, &at, &s))
            break;
    return s;
}

static int print_element(struct nest *n, size_t i)
{
    char text[48];
    if (n->t->dtype == DTYPE_BYTES) {
        print_text(bytes_at(n->t, i), n->o->all, n->f);
        return 0;
    }
    element_text(n->t, i, text, sizeof text);
    return fprintf(n->f, "%s", text);
}

static void print_axis(struct nest *n, int axis, size_t first, size_t stride)
{
    const struct shape *s = &n->t->shape;
    int64_t dim = s->dim[axis];
    bool last = axis + 1 == s->rank, text = n->t->dtype == DTYPE_BYTES;
    size_t inner = dim ? stride / (size_t)dim : 0;
    int column = axis + 1;
    fputc('[', n->f);
    for (int64_t i = 0; i < dim; i++) {
        if (!n->whole && dim > 2 * EDGE_ITEMS && i == EDGE_ITEMS) {
            fprintf(n->f, last && !text ? "..., " : "...,\n%*s", last && !text ? 0 : axis + 3, "");
            i = dim - EDGE_ITEMS;
        }
        if (last)
            column += print_element(n, first + (size_t)i) + 2;
        else
            print_axis(n, axis + 1, first + (size_t)i * inner, inner);
        if (i + 1 == dim)
            break;
        fputs(",", n->f);
        if (!last || text || column > n->o->width - 12) {
            fprintf(n->f, "\n%*s", axis + 3, "");
            column = axis + 3;
        } else {
            fputc(' ', n->f);
        }
    }
    fputc(']', n->f);
}

static void print_summary(const struct tensor *t, uint64_t n, FILE *f)
{
    double min = INFINITY, max = -INFINITY, sum = 0;
    uint64_t nans = 0;
    for (uint64_t i = 0; i < n; i++) {
        double v = number_at(t, i);
        nans += isnan(v);
        if (isnan(v))
            continue;
        min = fmin(min, v);
        max = fmax(max, v);
        sum += v;
    }
    if (n > nans)
        fprintf(f, "  min %.6g  mean %.6g  max %.6g", min, sum / (double)(n - nans), max);
    if (nans)
        fprintf(f, "  NaN %llu times", (unsigned long long)nans);
}

void show_tensor(const struct tensor *t, const struct show_options *o, FILE *f)
{
    struct cli_style style = cli_style(f);
    char shape[256];
    uint64_t n;
    if (!shape_elements(&t->shape, &n))
        return;
    fprintf(f, "%s%.*s%s  %s %s", style.bold, STR_ARG(t->name), style.off, dtype_name(t->dtype),
            shape_format(&t->shape, shape, sizeof shape));
    if (n > 16 && t->dtype != DTYPE_BYTES && t->dtype != DTYPE_BOOL)
        print_summary(t, n, f);
    fputs("\n  ", f);
    struct nest nest = {.t = t, .o = o, .f = f, .whole = o->all || n <= WHOLE_ITEMS};
    if (t->shape.rank)
        print_axis(&nest, 0, 0, n);
    else
        print_element(&nest, 0);
    fputc('\n', f);
}

/* ---- classes ---- */

struct class_row {
    double value;
    struct str index, label;
};

static bool parse_class(struct str s, struct class_row *out)
{
    struct str value;
    *out = (struct class_row){0};
    if (!str_cut(&s, ':', &value) || !s.p || !str_to_f64(value, &out->value))
        return false;
    if (!str_cut(&s, ':', &out->index))
        return false;
    out->label = s.p ? s : (struct str){0};
    return true;
}

#define BAR_COLUMNS 30

static void add_class(struct table *table, size_t rank, const struct class_row *row, double top)
{
    char bar[3 * BAR_COLUMNS + 1] = "";
    int n = top > 0 && row->value > 0 ? (int)(row->value / top * BAR_COLUMNS + 0.5) : 0;
    for (int i = 0; i < n && i < BAR_COLUMNS; i++)
        memcpy(bar + 3 * i, "\xe2\x96\x88", 4); /* FULL BLOCK */
    table_cell(table, "%zu", rank);
    if (row->label.n)
        table_cell(table, "%.*s", STR_ARG(row->label));
    else
        table_cell(table, "class %.*s", STR_ARG(row->index));
    table_cell(table, "%g", row->value);
    table_cell(table, "%s", bar);
}

bool show_classes(const struct tensor *t, FILE *f)
{
    static const char *const titles[] = {">", "CLASS", ">VALUE", "", NULL};
    struct cli_style style = cli_style(f);
    struct class_row row;
    struct str s;
    size_t at = 0, rank = 0, per_row = t->shape.rank ? (size_t)t->shape.dim[t->shape.rank - 1] : 0;
    double top = 0;
    if (t->dtype != DTYPE_BYTES || !per_row)
        return false;
    while (next_bytes(t, &at, &s))
        if (!parse_class(s, &row))
            return false;
    struct table table;
    table_init(&table, titles);
    for (at = 0; next_bytes(t, &at, &s); rank++) {
        bool ok = parse_class(s, &row); /* has passed above */
        top = rank % per_row == 0 ? row.value : top;
        if (ok)
            add_class(&table, rank % per_row + 1, &row, top);
    }
    fprintf(f, "%s%.*s%s\n", style.bold, STR_ARG(t->name), style.off);
    table_print(&table, f);
    table_release(&table);
    return true;
}
