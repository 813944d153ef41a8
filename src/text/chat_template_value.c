/* chat_template_value.c: values of a render: strings with marks, lists, dicts; Python's truth, equality, order and text forms. */
#include <math.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "text/chat_template_priv.h"
#include "text/unicode.h"

#define DEEP 100 /* nesting of values that are walked */

static int no_memory(struct render *r)
{
    return render__fail(r, STATUS_EXHAUSTED, "the values of the template take more memory than allowed");
}

/* ---- strings ---- */

void builder_init(struct builder *b, struct arena *a)
{
    *b = (struct builder){.a = a};
}

static void mark(struct builder *b, bool trusted)
{
    if (b->n_runs && b->runs[b->n_runs - 1].trusted == trusted) {
        b->runs[b->n_runs - 1].end = b->n;
        return;
    }
    if (b->n_runs == b->runs_cap) {
        size_t cap = b->runs_cap ? b->runs_cap * 2 : 4;
        struct mark_run *runs = arena_array(b->a, cap, sizeof *runs);
        if (!runs) {
            b->failed = true;
            return;
        }
        if (b->n_runs)
            memcpy(runs, b->runs, b->n_runs * sizeof *runs);
        b->runs = runs;
        b->runs_cap = cap;
    }
    b->runs[b->n_runs++] = (struct mark_run){b->n, trusted};
}

void builder_add(struct builder *b, const char *p, size_t n, bool trusted)
{
    if (!n || b->failed)
        return;
    if (b->cap - b->n < n) {
        size_t cap = MAX_OF(b->cap * 2, MAX_OF(b->n + n, (size_t)64));
        char *grown = arena_alloc(b->a, cap);
        if (!grown) {
            b->failed = true;
            return;
        }
        if (b->n)
            memcpy(grown, b->p, b->n);
        b->p = grown;
        b->cap = cap;
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
    mark(b, trusted);
}

void builder_add_text(struct builder *b, const struct text *t, size_t from, size_t n)
{
    size_t start = 0, to = from + n;
    for (size_t i = 0; i < t->n_runs && start < to; start = t->runs[i++].end) {
        size_t lo = MAX_OF(start, from), hi = MIN_OF(t->runs[i].end, to);
        if (lo < hi)
            builder_add(b, t->p + lo, hi - lo, t->runs[i].trusted);
    }
}

int builder_take(struct render *r, struct builder *b, struct text *out)
{
    if (b->failed)
        return no_memory(r);
    *out = (struct text){b->p ? b->p : "", b->n, b->runs, b->n_runs};
    return 0;
}

int value_str(struct render *r, struct str s, bool trusted, struct value *out)
{
    struct mark_run *run = s.n ? ARENA_NEW(r->a, struct mark_run) : NULL;
    if (s.n && !run)
        return no_memory(r);
    if (run)
        *run = (struct mark_run){s.n, trusted};
    *out = (struct value){.kind = VALUE_STR, .s = {s.p ? s.p : "", s.n, run, s.n ? 1 : 0}};
    return 0;
}

int value_sub(struct render *r, const struct text *t, size_t from, size_t n, struct value *out)
{
    struct builder b;
    builder_init(&b, r->a);
    builder_add_text(&b, t, from, n);
    out->kind = VALUE_STR;
    return builder_take(r, &b, &out->s);
}

size_t text_length(const struct text *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++)
        n += ((unsigned char)t->p[i] & 0xc0) != 0x80;
    return n;
}

size_t text_offset(const struct text *t, size_t code_points)
{
    size_t i = 0;
    while (i < t->n && code_points) {
        i++;
        while (i < t->n && ((unsigned char)t->p[i] & 0xc0) == 0x80)
            i++;
        code_points--;
    }
    return i;
}

/* ---- containers ---- */

int value_list(struct render *r, size_t cap, bool tuple, struct value *out)
{
    struct list_value *l = ARENA_NEW(r->a, struct list_value);
    struct value *v = arena_array(r->a, cap ? cap : 1, sizeof *v);
    if (!l || !v)
        return no_memory(r);
    *l = (struct list_value){.v = v, .cap = cap ? cap : 1, .tuple = tuple};
    *out = (struct value){.kind = VALUE_LIST, .l = l};
    return 0;
}

int value_dict(struct render *r, struct value *out)
{
    struct dict_value *d = ARENA_NEW(r->a, struct dict_value);
    if (!d)
        return no_memory(r);
    *out = (struct value){.kind = VALUE_DICT, .d = d};
    return 0;
}

int list_push(struct render *r, struct list_value *l, const struct value *v)
{
    if (l->n == l->cap) {
        struct value *grown = arena_array(r->a, l->cap * 2, sizeof *grown);
        if (!grown)
            return no_memory(r);
        memcpy(grown, l->v, l->n * sizeof *grown);
        l->v = grown;
        l->cap *= 2;
    }
    l->v[l->n++] = *v;
    return 0;
}

const struct value *dict_get(const struct dict_value *d, const struct value *key)
{
    for (size_t i = 0; i < d->n; i++)
        if (value_equal(d->v[i].key, key))
            return d->v[i].val;
    return NULL;
}

const struct value *dict_get_name(const struct dict_value *d, struct str name)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->v[i].key->kind == VALUE_STR && str_eq(text_str(&d->v[i].key->s), name))
            return d->v[i].val;
    return NULL;
}

int dict_put(struct render *r, struct dict_value *d, const struct value *key, const struct value *v)
{
    struct value *slot = (struct value *)dict_get(d, key);
    if (slot) {
        *slot = *v;
        return 0;
    }
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 4;
        struct dict_entry *grown = arena_array(r->a, cap, sizeof *grown);
        if (!grown)
            return no_memory(r);
        if (d->n)
            memcpy(grown, d->v, d->n * sizeof *grown);
        d->v = grown;
        d->cap = cap;
    }
    struct value *pair = arena_array(r->a, 2, sizeof *pair);
    if (!pair)
        return no_memory(r);
    pair[0] = *key;
    pair[1] = *v;
    d->v[d->n++] = (struct dict_entry){&pair[0], &pair[1]};
    return 0;
}

/* ---- Python's view ---- */

const char *value_type(const struct value *v)
{
    static const char *const names[] = {"undefined", "None", "bool", "int",   "float",
                                        "str",       "list", "dict", "macro", "function"};
    return names[v->kind];
}

bool value_truth(const struct value *v)
{
    switch (v->kind) {
    case VALUE_BOOL:
        return v->b;
    case VALUE_INT:
        return v->i != 0;
    case VALUE_FLOAT:
        return v->f != 0;
    case VALUE_STR:
        return v->s.n > 0;
    case VALUE_LIST:
        return v->l->n > 0;
    case VALUE_DICT:
        return v->d->is_namespace || v->d->n > 0;
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    default:
        return true;
    }
}

static bool is_number(const struct value *v)
{
    return v->kind == VALUE_BOOL || v->kind == VALUE_INT || v->kind == VALUE_FLOAT;
}
static double as_double(const struct value *v)
{
    return v->kind == VALUE_FLOAT ? v->f : v->kind == VALUE_INT ? (double)v->i : v->b;
}
static int64_t as_int(const struct value *v)
{
    return v->kind == VALUE_BOOL ? v->b : v->i;
}

static bool equal_lists(const struct list_value *a, const struct list_value *b, int depth);
static bool equal_deep(const struct value *a, const struct value *b, int depth);

static bool equal_dicts(const struct dict_value *a, const struct dict_value *b, int depth)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const struct value *other = dict_get(b, a->v[i].key);
        if (!other || !equal_deep(a->v[i].val, other, depth))
            return false;
    }
    return true;
}

static bool equal_lists(const struct list_value *a, const struct list_value *b, int depth)
{
    if (a->n != b->n || a->tuple != b->tuple)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!equal_deep(&a->v[i], &b->v[i], depth))
            return false;
    return true;
}

static bool equal_deep(const struct value *a, const struct value *b, int depth)
{
    if (is_number(a) && is_number(b))
        return a->kind == VALUE_FLOAT || b->kind == VALUE_FLOAT ? as_double(a) == as_double(b) : as_int(a) == as_int(b);
    if (a->kind != b->kind || depth > DEEP)
        return false;
    switch (a->kind) {
    case VALUE_STR:
        return str_eq(text_str(&a->s), text_str(&b->s));
    case VALUE_LIST:
        return a->l == b->l || equal_lists(a->l, b->l, depth + 1);
    case VALUE_DICT:
        return a->d == b->d || equal_dicts(a->d, b->d, depth + 1);
    case VALUE_MACRO:
        return a->macro == b->macro;
    case VALUE_BUILTIN:
        return a->fn.id == b->fn.id;
    default:
        return true;
    }
}

bool value_equal(const struct value *a, const struct value *b)
{
    return equal_deep(a, b, 0);
}

int value_compare(struct render *r, const struct value *a, const struct value *b, int *out)
{
    if (is_number(a) && is_number(b)) {
        double x = as_double(a), y = as_double(b);
        *out = x < y ? -1 : x > y;
        return 0;
    }
    if (a->kind == VALUE_STR && b->kind == VALUE_STR) {
        int c = memcmp(a->s.p, b->s.p, MIN_OF(a->s.n, b->s.n));
        *out = c ? c : a->s.n < b->s.n ? -1 : a->s.n > b->s.n;
        return 0;
    }
    if (a->kind == VALUE_LIST && b->kind == VALUE_LIST) {
        for (size_t i = 0; i < a->l->n && i < b->l->n; i++) {
            int rc = value_compare(r, &a->l->v[i], &b->l->v[i], out);
            if (rc < 0 || *out)
                return rc;
        }
        *out = a->l->n < b->l->n ? -1 : a->l->n > b->l->n;
        return 0;
    }
    return render__fail(r, STATUS_INVALID, "%s and %s can't be compared", value_type(a), value_type(b));
}

/* repr(float): the shortest digits that read back, in Python's spelling. */
static void append_float(struct builder *b, double f)
{
    char text[64];
    if (isnan(f) || isinf(f)) {
        const char *z = isnan(f) ? "nan" : f > 0 ? "inf" : "-inf";
        builder_add(b, z, strlen(z), true);
        return;
    }
    int digits = 1;
    double back;
    do {
        snprintf(text, sizeof text, "%.*e", digits - 1, f);
        struct str s = str_of(text);
        if (!str_to_f64(s, &back))
            back = f;
    } while (back != f && ++digits <= 17);
    int exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    if (exponent < -4 || exponent >= 16) {
        char *e = strchr(text, 'e');
        char mantissa[32];
        snprintf(mantissa, sizeof mantissa, "%.*s", (int)(e - text), text);
        snprintf(text, sizeof text, "%se%s%02d", mantissa, exponent < 0 ? "-" : "+", exponent < 0 ? -exponent : exponent);
    } else {
        int decimals = digits - 1 - exponent;
        snprintf(text, sizeof text, "%.*f", decimals > 0 ? decimals : 1, f);
    }
    builder_add(b, text, strlen(text), true);
}

/* repr(str): single quotes unless the text has those and no double ones. */
static void append_repr(struct builder *b, const struct text *t)
{
    bool single = memchr(t->p, '\'', t->n) != NULL, dbl = t->n && memchr(t->p, '"', t->n) != NULL;
    char quote = single && !dbl ? '"' : '\'';
    builder_add(b, &quote, 1, true);
    for (size_t i = 0; i < t->n; i++) {
        unsigned char c = (unsigned char)t->p[i];
        char escape[8];
        const char *found = c ? strchr("\n\r\t\\", c) : NULL;
        if (c == (unsigned char)quote || c == '\\')
            snprintf(escape, sizeof escape, "\\%c", c);
        else if (found)
            snprintf(escape, sizeof escape, "\\%c", "nrt\\"[found - "\n\r\t\\"]);
        else if (c < 0x20 || c == 0x7f)
            snprintf(escape, sizeof escape, "\\x%02x", c);
        else {
            builder_add_text(b, t, i, 1);
            continue;
        }
        builder_add(b, escape, strlen(escape), true);
    }
    builder_add(b, &quote, 1, true);
}

static int append_deep(struct render *r, struct builder *b, const struct value *v, bool repr, int depth);

static int append_list(struct render *r, struct builder *b, const struct list_value *l, int depth)
{
    builder_add(b, l->tuple ? "(" : "[", 1, true);
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            builder_add(b, ", ", 2, true);
        int rc = append_deep(r, b, &l->v[i], true, depth);
        if (rc < 0)
            return rc;
    }
    if (l->tuple && l->n == 1)
        builder_add(b, ",", 1, true);
    builder_add(b, l->tuple ? ")" : "]", 1, true);
    return 0;
}

static int append_dict(struct render *r, struct builder *b, const struct dict_value *d, int depth)
{
    builder_add(b, "{", 1, true);
    for (size_t i = 0; i < d->n; i++) {
        if (i)
            builder_add(b, ", ", 2, true);
        int rc = append_deep(r, b, d->v[i].key, true, depth);
        builder_add(b, ": ", 2, true);
        if (rc == 0)
            rc = append_deep(r, b, d->v[i].val, true, depth);
        if (rc < 0)
            return rc;
    }
    builder_add(b, "}", 1, true);
    return 0;
}

static int append_deep(struct render *r, struct builder *b, const struct value *v, bool repr, int depth)
{
    char text[32];
    const char *word = NULL;
    if (depth > DEEP)
        return render__fail(r, STATUS_EXHAUSTED, "a value is nested more than %d deep", DEEP);
    switch (v->kind) {
    case VALUE_UNDEFINED:
        word = repr ? "Undefined" : "";
        break;
    case VALUE_NONE:
        word = "None";
        break;
    case VALUE_BOOL:
        word = v->b ? "True" : "False";
        break;
    case VALUE_INT:
        snprintf(text, sizeof text, "%lld", (long long)v->i);
        word = text;
        break;
    case VALUE_FLOAT:
        append_float(b, v->f);
        break;
    case VALUE_STR:
        if (repr)
            append_repr(b, &v->s);
        else
            builder_add_text(b, &v->s, 0, v->s.n);
        break;
    case VALUE_LIST:
        return append_list(r, b, v->l, depth + 1);
    case VALUE_DICT:
        return append_dict(r, b, v->d, depth + 1);
    default:
        return render__fail(r, STATUS_INVALID, "a %s can't be written", value_type(v));
    }
    if (word)
        builder_add(b, word, strlen(word), true);
    return 0;
}

int value_append(struct render *r, struct builder *b, const struct value *v, bool repr)
{
    return append_deep(r, b, v, repr, 0);
}

int value_iterate(struct render *r, const struct value *v, struct list_value **out)
{
    struct value list;
    int rc = 0;
    if (v->kind == VALUE_LIST) {
        *out = v->l;
        return 0;
    }
    if (v->kind != VALUE_DICT && v->kind != VALUE_STR && v->kind != VALUE_UNDEFINED)
        return render__fail(r, STATUS_INVALID, "a %s can't be iterated over", value_type(v));
    rc = value_list(r, v->kind == VALUE_DICT ? v->d->n : 4, false, &list);
    for (size_t i = 0; rc == 0 && v->kind == VALUE_DICT && i < v->d->n; i++)
        rc = list_push(r, list.l, v->d->v[i].key);
    for (size_t i = 0; rc == 0 && v->kind == VALUE_STR && i < v->s.n;) {
        struct text rest = {v->s.p + i, v->s.n - i, NULL, 0};
        size_t n = text_offset(&rest, 1);
        struct value one;
        rc = value_sub(r, &v->s, i, n, &one);
        if (rc == 0)
            rc = list_push(r, list.l, &one);
        i += n;
    }
    *out = rc == 0 ? list.l : NULL;
    return rc;
}

int value_contains(struct render *r, const struct value *in, const struct value *v, bool *out)
{
    *out = false;
    if (in->kind == VALUE_STR) {
        if (v->kind != VALUE_STR)
            return render__fail(r, STATUS_INVALID, "a %s is looked for in a string", value_type(v));
        *out = v->s.n == 0 || (in->s.n && memmem(in->s.p, in->s.n, v->s.p, v->s.n));
        return 0;
    }
    if (in->kind == VALUE_DICT) {
        *out = dict_get(in->d, v) != NULL;
        return 0;
    }
    if (in->kind == VALUE_UNDEFINED)
        return 0;
    if (in->kind != VALUE_LIST)
        return render__fail(r, STATUS_INVALID, "nothing is contained in a %s", value_type(in));
    for (size_t i = 0; !*out && i < in->l->n; i++)
        *out = value_equal(&in->l->v[i], v);
    return 0;
}

/* ---- JSON ---- */

/* A string of the document; copied where the document won't outlive the render. */
static int json_text(struct render *r, yyjson_val *j, bool trusted, bool copy, struct value *out)
{
    struct str s = {yyjson_get_str(j), yyjson_get_len(j)};
    if (copy && !(s.p = arena_strdup(r->a, s)))
        return no_memory(r);
    return value_str(r, s, trusted, out);
}

static int from_json(struct render *r, yyjson_val *j, bool trusted, bool copy, int depth, struct value *out)
{
    size_t i, n;
    yyjson_val *key, *item;
    struct value k, v;
    int rc = 0;
    if (depth > DEEP)
        return render__fail(r, STATUS_EXHAUSTED, "the arguments are nested more than %d deep", DEEP);
    switch (yyjson_get_type(j)) {
    case YYJSON_TYPE_BOOL:
        *out = value_bool(yyjson_get_bool(j));
        return 0;
    case YYJSON_TYPE_NUM:
        *out = yyjson_is_real(j) ? (struct value){.kind = VALUE_FLOAT, .f = yyjson_get_real(j)} : value_int(yyjson_get_sint(j));
        return 0;
    case YYJSON_TYPE_STR:
        return json_text(r, j, trusted, copy, out);
    case YYJSON_TYPE_ARR:
        rc = value_list(r, yyjson_arr_size(j), false, out);
        yyjson_arr_foreach(j, i, n, item)
        {
            if (rc == 0)
                rc = from_json(r, item, trusted, copy, depth + 1, &v);
            if (rc == 0)
                rc = list_push(r, out->l, &v);
        }
        return rc;
    case YYJSON_TYPE_OBJ:
        rc = value_dict(r, out);
        yyjson_obj_foreach(j, i, n, key, item)
        {
            if (rc == 0)
                rc = json_text(r, key, trusted, copy, &k);
            if (rc == 0)
                rc = from_json(r, item, trusted, copy, depth + 1, &v);
            if (rc == 0)
                rc = dict_put(r, out->d, &k, &v);
        }
        return rc;
    default:
        *out = value_none();
        return 0;
    }
}

int value_from_json(struct render *r, yyjson_val *j, bool trusted, bool copy, struct value *out)
{
    return from_json(r, j, trusted, copy, 0, out);
}

/* json.dumps(ensure_ascii=False) of a string; what is escaped keeps the mark of what it stands for. */
static void json_string(struct builder *b, const struct text *t)
{
    builder_add(b, "\"", 1, true);
    for (size_t i = 0; i < t->n; i++) {
        unsigned char c = (unsigned char)t->p[i];
        char escape[8];
        const char *found = c ? strchr("\"\\\n\r\t\b\f", c) : NULL;
        if (found)
            snprintf(escape, sizeof escape, "\\%c", "\"\\nrtbf"[found - "\"\\\n\r\t\b\f"]);
        else if (c < 0x20)
            snprintf(escape, sizeof escape, "\\u%04x", c);
        else {
            builder_add_text(b, t, i, 1);
            continue;
        }
        builder_add(b, escape, strlen(escape), true);
    }
    builder_add(b, "\"", 1, true);
}

static void new_line(struct builder *b, int indent, int level)
{
    if (indent < 0)
        return;
    builder_add(b, "\n", 1, true);
    for (int i = 0; i < indent * level; i++)
        builder_add(b, " ", 1, true);
}

static int json_dict(struct render *r, struct builder *b, const struct dict_value *d, int indent, int level,
                     struct str item_sep, struct str key_sep, bool sort_keys)
{
    struct dict_entry *order = arena_array(r->a, d->n ? d->n : 1, sizeof *order);
    if (!order)
        return no_memory(r);
    for (size_t i = 0; i < d->n; i++) { /* insertion sort: objects in templates are small */
        size_t k = i;
        for (int c = 1; sort_keys && k > 0; k--) {
            int rc = value_compare(r, d->v[i].key, order[k - 1].key, &c);
            if (rc < 0)
                return rc;
            if (c >= 0)
                break;
            order[k] = order[k - 1];
        }
        order[k] = d->v[i];
    }
    builder_add(b, "{", 1, true);
    for (size_t i = 0; i < d->n; i++) {
        if (i)
            builder_add(b, item_sep.p, item_sep.n, true);
        new_line(b, indent, level + 1);
        if (order[i].key->kind == VALUE_STR) {
            json_string(b, &order[i].key->s);
        } else {
            builder_add(b, "\"", 1, true);
            int rc = value_append(r, b, order[i].key, false);
            if (rc < 0)
                return rc;
            builder_add(b, "\"", 1, true);
        }
        builder_add(b, key_sep.p, key_sep.n, true);
        int rc = value_tojson(r, b, order[i].val, indent, level + 1, item_sep, key_sep, sort_keys);
        if (rc < 0)
            return rc;
    }
    if (d->n)
        new_line(b, indent, level);
    builder_add(b, "}", 1, true);
    return 0;
}

int value_tojson(struct render *r, struct builder *b, const struct value *v, int indent, int level, struct str item_sep,
                 struct str key_sep, bool sort_keys)
{
    const char *word = v->kind == VALUE_NONE ? "null" : v->kind == VALUE_BOOL ? (v->b ? "true" : "false") : NULL;
    if (level > DEEP)
        return render__fail(r, STATUS_EXHAUSTED, "a value is nested more than %d deep", DEEP);
    if (word) {
        builder_add(b, word, strlen(word), true);
        return 0;
    }
    switch (v->kind) {
    case VALUE_INT:
    case VALUE_FLOAT:
        return value_append(r, b, v, false);
    case VALUE_STR:
        json_string(b, &v->s);
        return 0;
    case VALUE_DICT:
        return json_dict(r, b, v->d, indent, level, item_sep, key_sep, sort_keys);
    case VALUE_LIST:
        break;
    default:
        return render__fail(r, STATUS_INVALID, "tojson: a value of type %s has no JSON form", value_type(v));
    }
    builder_add(b, "[", 1, true);
    for (size_t i = 0; i < v->l->n; i++) {
        if (i)
            builder_add(b, item_sep.p, item_sep.n, true);
        new_line(b, indent, level + 1);
        int rc = value_tojson(r, b, &v->l->v[i], indent, level + 1, item_sep, key_sep, sort_keys);
        if (rc < 0)
            return rc;
    }
    if (v->l->n)
        new_line(b, indent, level);
    builder_add(b, "]", 1, true);
    return 0;
}
