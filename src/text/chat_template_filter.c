/* chat_template_filter.c: the filters and tests of Jinja that chat templates use, each a few lines over the values; two tables say which there are. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "text/chat_template_priv.h"
#include "wire/json.h"

typedef int filter_fn(struct render *r, const struct value *v, const struct args *a, struct value *out);
typedef int test_fn(struct render *r, const struct value *v, const struct args *a, bool *out);

/* ---- help ---- */

/* The method of the same name does it. */
static int by_method(struct render *r, const char *method, const struct value *v, const struct args *a, struct value *out)
{
    struct value fn, text = *v;
    int rc = 0;
    if (v->kind != VALUE_STR) {
        struct builder b;
        builder_init(&b, r->a);
        rc = value_append(r, &b, v, false);
        text.kind = VALUE_STR;
        if (rc == 0)
            rc = builder_take(r, &b, &text.s);
    }
    if (rc == 0)
        rc = call__attribute(r, &text, str_of(method), &fn);
    return rc == 0 ? call__invoke(r, &fn, a, out) : rc;
}

/* a.b.c of an item, as map(attribute="b.c") and friends read it. */
static int attribute_of(struct render *r, const struct value *item, const struct text *path, struct value *out)
{
    struct str rest = text_str(path), name;
    *out = *item;
    while (rest.p && str_cut(&rest, '.', &name)) {
        struct value from = *out;
        if (from.kind == VALUE_UNDEFINED)
            return 0;
        int rc = call__attribute(r, &from, name, out);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static const struct value *string_arg(const struct args *a, size_t index, const char *name)
{
    const struct value *v = args_get(a, index, name);
    return v && v->kind == VALUE_STR ? v : NULL;
}

static bool flag(const struct args *a, size_t index, const char *name, bool fallback)
{
    const struct value *v = args_get(a, index, name);
    return v ? value_truth(v) : fallback;
}

/* As Jinja's select and map: what is false (none, undefined, empty) has no items. */
static int items_of(struct render *r, const struct value *v, struct list_value **out)
{
    struct value empty;
    if (value_truth(v))
        return value_iterate(r, v, out);
    int rc = value_list(r, 1, false, &empty);
    *out = rc == 0 ? empty.l : NULL;
    return rc;
}

static int copy_list(struct render *r, const struct value *v, struct value *out)
{
    struct list_value *l;
    int rc = value_iterate(r, v, &l);
    if (rc == 0)
        rc = value_list(r, l->n, false, out);
    for (size_t i = 0; rc == 0 && i < l->n; i++)
        rc = list_push(r, out->l, &l->v[i]);
    return rc;
}

/* ---- strings ---- */

static int f_trim(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    return by_method(r, "strip", v, a, out);
}
static int f_upper(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    return by_method(r, "upper", v, a, out);
}
static int f_lower(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    return by_method(r, "lower", v, a, out);
}
/* Jinja's own title: words begin behind blanks and - ( { [ <, unlike Python's str.title. */
static int f_title(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    struct builder b;
    int rc = by_method(r, "lower", v, &(struct args){0}, out);
    (void)a;
    builder_init(&b, r->a);
    if (rc < 0)
        return rc;
    builder_add_text(&b, &out->s, 0, out->s.n);
    for (size_t i = 0; i < b.n; i++) {
        bool start = i == 0 || strchr(" \t\n\r\v\f-({[<", b.p[i - 1]);
        if (start && b.p[i] >= 'a' && b.p[i] <= 'z')
            b.p[i] = (char)(b.p[i] & ~0x20);
    }
    return builder_take(r, &b, &out->s);
}
static int f_capitalize(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    return by_method(r, "capitalize", v, a, out);
}
static int f_replace(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    return by_method(r, "replace", v, a, out);
}

static int f_string(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    struct builder b;
    (void)a;
    builder_init(&b, r->a);
    int rc = value_append(r, &b, v, false);
    out->kind = VALUE_STR;
    return rc == 0 ? builder_take(r, &b, &out->s) : rc;
}

static int f_safe(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    (void)r, (void)a;
    *out = *v;
    return 0;
}

/* Every line but the first (unless told) is moved right. */
static int f_indent(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    const struct value *width = args_get(a, 0, "width");
    int64_t n = width && width->kind == VALUE_INT ? MIN_OF(MAX_OF(width->i, (int64_t)0), (int64_t)1000) : 4;
    bool first = flag(a, 1, "first", false), blank = flag(a, 2, "blank", false);
    struct builder b;
    if (v->kind != VALUE_STR)
        return render__fail(r, STATUS_INVALID, "indent needs a string");
    builder_init(&b, r->a);
    for (size_t i = 0, start = 0, line = 0; i <= v->s.n; i++) {
        if (i < v->s.n && v->s.p[i] != '\n')
            continue;
        bool indent = (line > 0 || first) && (i > start || blank || line == 0);
        for (int64_t k = 0; indent && k < n; k++)
            builder_add(&b, " ", 1, true);
        builder_add_text(&b, &v->s, start, MIN_OF(i + 1, v->s.n) - start);
        start = i + 1;
        line++;
    }
    out->kind = VALUE_STR;
    return builder_take(r, &b, &out->s);
}

static int f_tojson(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    const struct value *indent = args_get(a, 0, "indent"), *separators = args_get(a, 1, "separators");
    int width = indent && indent->kind == VALUE_INT ? (int)MIN_OF(MAX_OF(indent->i, (int64_t)0), (int64_t)100) : -1;
    struct str item = width >= 0 ? STR(",") : STR(", "), key = STR(": ");
    struct builder b;
    if (separators && separators->kind == VALUE_LIST && separators->l->n == 2 && separators->l->v[0].kind == VALUE_STR &&
        separators->l->v[1].kind == VALUE_STR) {
        item = text_str(&separators->l->v[0].s);
        key = text_str(&separators->l->v[1].s);
    }
    builder_init(&b, r->a);
    int rc = value_tojson(r, &b, v, width, 0, item, key, flag(a, 99, "sort_keys", false));
    out->kind = VALUE_STR;
    return rc == 0 ? builder_take(r, &b, &out->s) : rc;
}

/* A model's arguments as text back into values: user text. */
static int f_from_json(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    (void)a;
    if (v->kind != VALUE_STR)
        return render__fail(r, STATUS_INVALID, "from_json needs a string");
    struct json j;
    struct error why = {0};
    if (json_parse(&j, text_str(&v->s), NULL, &why) < 0)
        return render__fail(r, STATUS_INVALID, "from_json: %s", why.text);
    int rc = value_from_json(r, j.root, false, true, out);
    json_release(&j);
    return rc;
}

/* ---- numbers ---- */

static int f_int(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    const struct value *fallback = args_get(a, 0, "default");
    int64_t i;
    double f;
    (void)r;
    if (v->kind == VALUE_INT)
        *out = *v;
    else if (v->kind == VALUE_BOOL)
        *out = value_int(v->b);
    else if (v->kind == VALUE_FLOAT && v->f > -9e18 && v->f < 9e18)
        *out = value_int((int64_t)v->f);
    else if (v->kind == VALUE_STR && str_to_i64(str_trim(text_str(&v->s)), &i))
        *out = value_int(i);
    else if (v->kind == VALUE_STR && str_to_f64(str_trim(text_str(&v->s)), &f) && f > -9e18 && f < 9e18)
        *out = value_int((int64_t)f);
    else
        *out = fallback ? *fallback : value_int(0);
    return 0;
}

static int f_float(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    const struct value *fallback = args_get(a, 0, "default");
    (void)r;
    *out = fallback ? *fallback : (struct value){.kind = VALUE_FLOAT, .f = 0};
    if (v->kind == VALUE_FLOAT || v->kind == VALUE_INT || v->kind == VALUE_BOOL)
        *out = (struct value){.kind = VALUE_FLOAT,
                              .f = v->kind == VALUE_FLOAT ? v->f
                                   : v->kind == VALUE_INT ? (double)v->i
                                                          : v->b};
    else if (v->kind == VALUE_STR) {
        double f;
        if (str_to_f64(str_trim(text_str(&v->s)), &f))
            *out = (struct value){.kind = VALUE_FLOAT, .f = f};
    }
    return 0;
}

static int f_abs(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    (void)a;
    *out = *v;
    if (v->kind == VALUE_INT && v->i != INT64_MIN)
        out->i = v->i < 0 ? -v->i : v->i;
    else if (v->kind == VALUE_FLOAT)
        out->f = fabs(v->f);
    else
        return render__fail(r, STATUS_INVALID, "abs needs a number");
    return 0;
}

static int f_round(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    const struct value *digits = args_get(a, 0, "precision");
    double f = v->kind == VALUE_FLOAT ? v->f : v->kind == VALUE_INT ? (double)v->i : NAN;
    double scale = pow(10, digits && digits->kind == VALUE_INT ? (double)digits->i : 0);
    if (isnan(f))
        return render__fail(r, STATUS_INVALID, "round needs a number");
    *out = (struct value){.kind = VALUE_FLOAT, .f = rint(f * scale) / scale};
    return 0;
}

/* ---- lists ---- */

static int f_length(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    (void)a;
    if (v->kind == VALUE_STR)
        *out = value_int((int64_t)text_length(&v->s));
    else if (v->kind == VALUE_LIST)
        *out = value_int((int64_t)v->l->n);
    else if (v->kind == VALUE_DICT)
        *out = value_int((int64_t)v->d->n);
    else if (v->kind == VALUE_UNDEFINED)
        *out = value_int(0);
    else
        return render__fail(r, STATUS_INVALID, "a %s has no length", value_type(v));
    return 0;
}

static int f_default(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    const struct value *fallback = args_get(a, 0, "default_value");
    bool use = v->kind == VALUE_UNDEFINED || (flag(a, 1, "boolean", false) && !value_truth(v));
    if (use && !fallback)
        return value_str(r, (struct str){0}, true, out);
    *out = use ? *fallback : *v;
    return 0;
}

static int f_join(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    const struct value *sep = string_arg(a, 0, "d"), *path = string_arg(a, 1, "attribute");
    struct list_value *l;
    struct builder b;
    int rc = value_iterate(r, v, &l);
    builder_init(&b, r->a);
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        struct value item = l->v[i];
        if (i && sep)
            builder_add_text(&b, &sep->s, 0, sep->s.n);
        if (path)
            rc = attribute_of(r, &l->v[i], &path->s, &item);
        if (rc == 0)
            rc = value_append(r, &b, &item, false);
    }
    out->kind = VALUE_STR;
    return rc == 0 ? builder_take(r, &b, &out->s) : rc;
}

static int f_items(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    struct value fn;
    if (v->kind == VALUE_UNDEFINED)
        return value_list(r, 1, false, out);
    if (v->kind != VALUE_DICT)
        return render__fail(r, STATUS_INVALID, "items needs a dict, not a %s", value_type(v));
    int rc = call__attribute(r, v, STR("items"), &fn);
    return rc == 0 ? call__invoke(r, &fn, a, out) : rc;
}

static int f_list(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    (void)a;
    return copy_list(r, v, out);
}

static int ends_of(struct render *r, const struct value *v, bool last, struct value *out)
{
    struct list_value *l;
    int rc = value_iterate(r, v, &l);
    if (rc == 0)
        *out = l->n ? l->v[last ? l->n - 1 : 0] : value_undefined(STR("the end of an empty list"));
    return rc;
}
static int f_first(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    return (void)a, ends_of(r, v, false, out);
}
static int f_last(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    return (void)a, ends_of(r, v, true, out);
}

static int f_reverse(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    struct list_value *l;
    struct builder b;
    (void)a;
    int rc = value_iterate(r, v, &l);
    builder_init(&b, r->a);
    if (rc == 0 && v->kind != VALUE_STR)
        rc = value_list(r, l->n, false, out);
    for (size_t i = rc == 0 ? l->n : 0; rc == 0 && i-- > 0;) {
        if (v->kind == VALUE_STR)
            builder_add_text(&b, &l->v[i].s, 0, l->v[i].s.n);
        else
            rc = list_push(r, out->l, &l->v[i]);
    }
    if (rc < 0 || v->kind != VALUE_STR)
        return rc;
    out->kind = VALUE_STR;
    return builder_take(r, &b, &out->s);
}

static int f_unique(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    struct list_value *l;
    (void)a;
    int rc = value_iterate(r, v, &l);
    if (rc == 0)
        rc = value_list(r, l->n, false, out);
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        bool seen = false;
        rc = value_contains(r, out, &l->v[i], &seen);
        if (rc == 0 && !seen)
            rc = list_push(r, out->l, &l->v[i]);
        if (rc == 0)
            rc = render__step(r);
    }
    return rc;
}

/* What a sort compares: the item, or an attribute of it; text without case unless told. */
static int sort_key(struct render *r, const struct value *item, const struct value *path, bool fold, struct value *out)
{
    static const struct args none = {0};
    int rc = path ? attribute_of(r, item, &path->s, out) : (*out = *item, 0);
    if (rc == 0 && fold && out->kind == VALUE_STR) {
        struct value text = *out;
        rc = by_method(r, "lower", &text, &none, out);
    }
    return rc;
}

/* Merge sort: stable, as Python's. keys[i] belongs to v[i]; tmp has room for both. */
static int merge_sort(struct render *r, struct value *v, struct value *keys, struct value *tmp, size_t n, bool reverse)
{
    if (n < 2)
        return 0;
    size_t half = n / 2, i = 0, k = half;
    int rc = merge_sort(r, v, keys, tmp, half, reverse);
    if (rc == 0)
        rc = merge_sort(r, v + half, keys + half, tmp, n - half, reverse);
    for (size_t at = 0; rc == 0 && at < n; at++) {
        int order = 0;
        if (i < half && k < n)
            rc = value_compare(r, &keys[k], &keys[i], &order);
        bool left = k >= n || (i < half && (reverse ? order <= 0 : order >= 0));
        size_t from = left ? i++ : k++;
        tmp[2 * at] = v[from];
        tmp[2 * at + 1] = keys[from];
        if (rc == 0)
            rc = render__step(r);
    }
    for (size_t at = 0; rc == 0 && at < n; at++) {
        v[at] = tmp[2 * at];
        keys[at] = tmp[2 * at + 1];
    }
    return rc;
}

static int sort_list(struct render *r, struct list_value *l, const struct value *path, bool fold, bool reverse)
{
    struct value *keys = arena_array(r->a, l->n ? l->n : 1, sizeof *keys), *tmp = arena_array(r->a, 2 * l->n + 1, sizeof *tmp);
    if (!keys || !tmp)
        return render__fail(r, STATUS_EXHAUSTED, "the values of the template take more memory than allowed");
    for (size_t i = 0; i < l->n; i++) {
        int rc = sort_key(r, &l->v[i], path, fold, &keys[i]);
        if (rc < 0)
            return rc;
    }
    return merge_sort(r, l->v, keys, tmp, l->n, reverse);
}

static int f_sort(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    int rc = copy_list(r, v, out);
    return rc == 0 ? sort_list(r, out->l, string_arg(a, 2, "attribute"), !flag(a, 1, "case_sensitive", false),
                               flag(a, 0, "reverse", false))
                   : rc;
}

static int f_dictsort(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    const struct value *by = string_arg(a, 1, "by");
    struct value path;
    int rc = f_items(r, v, &(struct args){0}, out);
    if (rc == 0)
        rc = value_str(r, by && str_eq(text_str(&by->s), STR("value")) ? STR("1") : STR("0"), true, &path);
    return rc == 0 ? sort_list(r, out->l, &path, !flag(a, 0, "case_sensitive", false), flag(a, 2, "reverse", false)) : rc;
}

static int extreme(struct render *r, const struct value *v, const struct args *a, bool most, struct value *out)
{
    int rc = copy_list(r, v, out);
    if (rc == 0)
        rc = sort_list(r, out->l, string_arg(a, 1, "attribute"), !flag(a, 0, "case_sensitive", false), most);
    if (rc == 0)
        *out = out->l->n ? out->l->v[0] : value_undefined(STR("the extreme of an empty list"));
    return rc;
}
static int f_min(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    return extreme(r, v, a, false, out);
}
static int f_max(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    return extreme(r, v, a, true, out);
}

static int f_sum(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    const struct value *path = string_arg(a, 0, "attribute");
    struct list_value *l;
    int rc = value_iterate(r, v, &l);
    *out = value_int(0);
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        struct value item = l->v[i], sum = *out;
        if (path)
            rc = attribute_of(r, &l->v[i], &path->s, &item);
        if (rc == 0)
            rc = call__binary(r, OP_ADD, &sum, &item, out);
    }
    return rc;
}

static int f_map(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    const struct value *path = string_arg(a, 99, "attribute"), *name = string_arg(a, 0, NULL),
                       *fallback = args_get(a, 99, "default");
    struct args rest = {a->n ? a->v + 1 : NULL, a->n ? a->names + 1 : NULL, a->n ? a->n - 1 : 0};
    struct list_value *l;
    int rc = items_of(r, v, &l);
    if (rc == 0)
        rc = value_list(r, l->n, false, out);
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        struct value item;
        if (path)
            rc = attribute_of(r, &l->v[i], &path->s, &item);
        else if (name)
            rc = call__filter(r, text_str(&name->s), &l->v[i], &rest, &item);
        else
            rc = render__fail(r, STATUS_INVALID, "map needs a filter or an attribute");
        if (rc == 0 && path && item.kind == VALUE_UNDEFINED && fallback)
            item = *fallback;
        if (rc == 0)
            rc = list_push(r, out->l, &item);
    }
    return rc;
}

/* select, reject, selectattr, rejectattr: keep the items (or those with an attribute) that pass a test, or are true. */
static int choose(struct render *r, const struct value *v, const struct args *a, bool attribute, bool keep, struct value *out)
{
    size_t skip = attribute ? 1 : 0;
    const struct value *path = attribute ? string_arg(a, 0, NULL) : NULL, *test = string_arg(a, skip, NULL);
    struct args rest = {a->v + MIN_OF(a->n, skip + 1), a->names + MIN_OF(a->n, skip + 1),
                        a->n > skip + 1 ? a->n - skip - 1 : 0};
    struct list_value *l;
    int rc = items_of(r, v, &l);
    if (rc == 0 && attribute && !path)
        return render__fail(r, STATUS_INVALID, "selectattr and rejectattr need an attribute");
    if (rc == 0)
        rc = value_list(r, l->n, false, out);
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        struct value item = l->v[i];
        bool yes = false;
        if (path)
            rc = attribute_of(r, &l->v[i], &path->s, &item);
        if (rc == 0 && test)
            rc = call__test(r, text_str(&test->s), &item, &rest, &yes);
        if (rc == 0 && (test ? yes : value_truth(&item)) == keep)
            rc = list_push(r, out->l, &l->v[i]);
    }
    return rc;
}
static int f_select(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    return choose(r, v, a, false, true, out);
}
static int f_reject(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    return choose(r, v, a, false, false, out);
}
static int f_selectattr(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    return choose(r, v, a, true, true, out);
}
static int f_rejectattr(struct render *r, const struct value *v, const struct args *a, struct value *out)
{
    return choose(r, v, a, true, false, out);
}

static const struct {
    const char *name;
    filter_fn *fn;
} filters[] = {
    {"from_json", f_from_json},
    {"tojson", f_tojson},
    {"length", f_length},
    {"count", f_length},
    {"trim", f_trim},
    {"string", f_string},
    {"default", f_default},
    {"d", f_default},
    {"join", f_join},
    {"items", f_items},
    {"upper", f_upper},
    {"lower", f_lower},
    {"safe", f_safe},
    {"dictsort", f_dictsort},
    {"list", f_list},
    {"replace", f_replace},
    {"select", f_select},
    {"reject", f_reject},
    {"selectattr", f_selectattr},
    {"map", f_map},
    {"first", f_first},
    {"last", f_last},
    {"rejectattr", f_rejectattr},
    {"int", f_int},
    {"float", f_float},
    {"indent", f_indent},
    {"reverse", f_reverse},
    {"unique", f_unique},
    {"sort", f_sort},
    {"title", f_title},
    {"capitalize", f_capitalize},
    {"abs", f_abs},
    {"round", f_round},
    {"min", f_min},
    {"max", f_max},
    {"sum", f_sum},
};

bool call__is_filter(struct str name)
{
    for (size_t i = 0; i < COUNT_OF(filters); i++)
        if (str_eqz(name, filters[i].name))
            return true;
    return false;
}

int call__filter(struct render *r, struct str name, const struct value *v, const struct args *a, struct value *out)
{
    struct value in = *v; /* `out` may be `v` */
    int rc = render__step(r);
    for (size_t i = 0; rc == 0 && i < COUNT_OF(filters); i++)
        if (str_eqz(name, filters[i].name))
            return filters[i].fn(r, &in, a, out);
    return rc == 0 ? render__fail(r, STATUS_INVALID, "the filter \"%.*s\" is not supported", STR_ARG(name)) : rc;
}

/* ---- tests ---- */

static bool is_defined(const struct value *v)
{
    return v->kind != VALUE_UNDEFINED;
}
static bool is_undefined(const struct value *v)
{
    return v->kind == VALUE_UNDEFINED;
}
static bool is_none(const struct value *v)
{
    return v->kind == VALUE_NONE;
}
static bool is_string(const struct value *v)
{
    return v->kind == VALUE_STR;
}
static bool is_mapping(const struct value *v)
{
    return v->kind == VALUE_DICT;
}
static bool is_iterable(const struct value *v)
{
    return v->kind == VALUE_STR || v->kind == VALUE_LIST || v->kind == VALUE_DICT || v->kind == VALUE_UNDEFINED;
}
static bool is_sequence(const struct value *v)
{
    return v->kind == VALUE_STR || v->kind == VALUE_LIST || v->kind == VALUE_DICT || v->kind == VALUE_UNDEFINED;
}
static bool is_number(const struct value *v)
{
    return v->kind == VALUE_INT || v->kind == VALUE_FLOAT || v->kind == VALUE_BOOL;
}
static bool is_integer(const struct value *v)
{
    return v->kind == VALUE_INT;
}
static bool is_float(const struct value *v)
{
    return v->kind == VALUE_FLOAT;
}
static bool is_boolean(const struct value *v)
{
    return v->kind == VALUE_BOOL;
}
static bool is_true(const struct value *v)
{
    return v->kind == VALUE_BOOL && v->b;
}
static bool is_false(const struct value *v)
{
    return v->kind == VALUE_BOOL && !v->b;
}
static bool is_callable(const struct value *v)
{
    return v->kind == VALUE_MACRO || v->kind == VALUE_BUILTIN;
}
static bool is_odd(const struct value *v)
{
    return v->kind == VALUE_INT && v->i % 2 != 0;
}
static bool is_even(const struct value *v)
{
    return v->kind == VALUE_INT && v->i % 2 == 0;
}

static int compare_test(struct render *r, enum binary_op op, const struct value *v, const struct args *a, bool *out)
{
    const struct value *other = args_get(a, 0, NULL);
    struct value yes;
    if (!other)
        return render__fail(r, STATUS_INVALID, "the test needs an argument");
    int rc = call__binary(r, op, v, other, &yes);
    *out = rc == 0 && yes.b;
    return rc;
}
static int t_eq(struct render *r, const struct value *v, const struct args *a, bool *out)
{
    return compare_test(r, OP_EQ, v, a, out);
}
static int t_ne(struct render *r, const struct value *v, const struct args *a, bool *out)
{
    return compare_test(r, OP_NE, v, a, out);
}
static int t_lt(struct render *r, const struct value *v, const struct args *a, bool *out)
{
    return compare_test(r, OP_LT, v, a, out);
}
static int t_le(struct render *r, const struct value *v, const struct args *a, bool *out)
{
    return compare_test(r, OP_LE, v, a, out);
}
static int t_gt(struct render *r, const struct value *v, const struct args *a, bool *out)
{
    return compare_test(r, OP_GT, v, a, out);
}
static int t_ge(struct render *r, const struct value *v, const struct args *a, bool *out)
{
    return compare_test(r, OP_GE, v, a, out);
}
static int t_in(struct render *r, const struct value *v, const struct args *a, bool *out)
{
    return compare_test(r, OP_IN, v, a, out);
}

static int t_divisible(struct render *r, const struct value *v, const struct args *a, bool *out)
{
    const struct value *by = args_get(a, 0, NULL);
    if (v->kind != VALUE_INT || !by || by->kind != VALUE_INT || by->i == 0)
        return render__fail(r, STATUS_INVALID, "divisibleby needs whole numbers");
    *out = by->i != -1 ? v->i % by->i == 0 : true;
    return 0;
}

static const struct {
    const char *name;
    bool (*kind)(const struct value *v); /* what only looks at the value; else fn */
    test_fn *fn;
} tests[] = {
    {"defined", is_defined, NULL},
    {"undefined", is_undefined, NULL},
    {"none", is_none, NULL},
    {"string", is_string, NULL},
    {"mapping", is_mapping, NULL},
    {"iterable", is_iterable, NULL},
    {"sequence", is_sequence, NULL},
    {"number", is_number, NULL},
    {"integer", is_integer, NULL},
    {"float", is_float, NULL},
    {"boolean", is_boolean, NULL},
    {"true", is_true, NULL},
    {"false", is_false, NULL},
    {"callable", is_callable, NULL},
    {"odd", is_odd, NULL},
    {"even", is_even, NULL},
    {"equalto", NULL, t_eq},
    {"eq", NULL, t_eq},
    {"==", NULL, t_eq},
    {"ne", NULL, t_ne},
    {"!=", NULL, t_ne},
    {"lt", NULL, t_lt},
    {"lessthan", NULL, t_lt},
    {"<", NULL, t_lt},
    {"le", NULL, t_le},
    {"<=", NULL, t_le},
    {"gt", NULL, t_gt},
    {"greaterthan", NULL, t_gt},
    {">", NULL, t_gt},
    {"ge", NULL, t_ge},
    {">=", NULL, t_ge},
    {"in", NULL, t_in},
    {"divisibleby", NULL, t_divisible},
};

bool call__is_test(struct str name)
{
    for (size_t i = 0; i < COUNT_OF(tests); i++)
        if (str_eqz(name, tests[i].name))
            return true;
    return false;
}

int call__test(struct render *r, struct str name, const struct value *v, const struct args *a, bool *out)
{
    int rc = render__step(r);
    for (size_t i = 0; rc == 0 && i < COUNT_OF(tests); i++)
        if (str_eqz(name, tests[i].name))
            return tests[i].kind ? (*out = tests[i].kind(v), 0) : tests[i].fn(r, v, a, out);
    return rc == 0 ? render__fail(r, STATUS_INVALID, "the test \"%.*s\" is not supported", STR_ARG(name)) : rc;
}
