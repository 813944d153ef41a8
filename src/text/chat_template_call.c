/* chat_template_call.c: operators, attributes, and the functions and methods that templates call. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "text/chat_template_priv.h"

#define RANGE_MAX 100000

enum builtin {
    FN_RANGE,
    FN_NAMESPACE,
    FN_DICT,
    FN_RAISE,
    FN_STRFTIME, /* functions */
    M_STRIP,
    M_LSTRIP,
    M_RSTRIP,
    M_SPLIT,
    M_STARTSWITH,
    M_ENDSWITH,
    M_REPLACE,
    M_UPPER,
    M_LOWER,
    M_TITLE,
    M_CAPITALIZE,
    M_JOIN,
    M_FIND,
    M_COUNT,
    M_FORMAT, /* of strings */
    M_GET,
    M_ITEMS,
    M_KEYS,
    M_VALUES,
    M_UPDATE, /* of dicts */
    M_APPEND,
    M_POP,
    M_INDEX,
    M_EXTEND,
    M_INSERT, /* of lists */
    FN_COUNT_OF,
};

static const struct {
    const char *name;
    enum value_kind of; /* VALUE_UNDEFINED: a global function */
} builtins[FN_COUNT_OF] = {
    [FN_RANGE] = {"range", VALUE_UNDEFINED},
    [FN_NAMESPACE] = {"namespace", VALUE_UNDEFINED},
    [FN_DICT] = {"dict", VALUE_UNDEFINED},
    [FN_RAISE] = {"raise_exception", VALUE_UNDEFINED},
    [FN_STRFTIME] = {"strftime_now", VALUE_UNDEFINED},
    [M_STRIP] = {"strip", VALUE_STR},
    [M_LSTRIP] = {"lstrip", VALUE_STR},
    [M_RSTRIP] = {"rstrip", VALUE_STR},
    [M_SPLIT] = {"split", VALUE_STR},
    [M_STARTSWITH] = {"startswith", VALUE_STR},
    [M_ENDSWITH] = {"endswith", VALUE_STR},
    [M_REPLACE] = {"replace", VALUE_STR},
    [M_UPPER] = {"upper", VALUE_STR},
    [M_LOWER] = {"lower", VALUE_STR},
    [M_TITLE] = {"title", VALUE_STR},
    [M_CAPITALIZE] = {"capitalize", VALUE_STR},
    [M_JOIN] = {"join", VALUE_STR},
    [M_FIND] = {"find", VALUE_STR},
    [M_COUNT] = {"count", VALUE_STR},
    [M_FORMAT] = {"format", VALUE_STR},
    [M_GET] = {"get", VALUE_DICT},
    [M_ITEMS] = {"items", VALUE_DICT},
    [M_KEYS] = {"keys", VALUE_DICT},
    [M_VALUES] = {"values", VALUE_DICT},
    [M_UPDATE] = {"update", VALUE_DICT},
    [M_APPEND] = {"append", VALUE_LIST},
    [M_POP] = {"pop", VALUE_LIST},
    [M_INDEX] = {"index", VALUE_LIST},
    [M_EXTEND] = {"extend", VALUE_LIST},
    [M_INSERT] = {"insert", VALUE_LIST},
};

/* ---- operators ---- */

static int overflow(struct render *r)
{
    return render__fail(r, STATUS_INVALID, "a number overflows");
}
static bool is_number(const struct value *v)
{
    return v->kind == VALUE_INT || v->kind == VALUE_FLOAT || v->kind == VALUE_BOOL;
}
static double as_double(const struct value *v)
{
    return v->kind == VALUE_FLOAT ? v->f : v->kind == VALUE_INT ? (double)v->i : v->b;
}
static int64_t as_int(const struct value *v)
{
    return v->kind == VALUE_BOOL ? v->b : v->i;
}

static int int_power(struct render *r, int64_t a, int64_t b, struct value *out)
{
    int64_t x = 1;
    if (b < 0) {
        *out = (struct value){.kind = VALUE_FLOAT, .f = pow((double)a, (double)b)};
        return 0;
    }
    for (; b > 0; b--)
        if (__builtin_mul_overflow(x, a, &x) || render__step(r) < 0)
            return overflow(r);
    *out = value_int(x);
    return 0;
}

static int ints(struct render *r, enum binary_op op, int64_t a, int64_t b, struct value *out)
{
    int64_t x = 0;
    bool bad = false;
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        return render__fail(r, STATUS_INVALID, "division by zero");
    switch (op) {
    case OP_ADD:
        bad = __builtin_add_overflow(a, b, &x);
        break;
    case OP_SUB:
        bad = __builtin_sub_overflow(a, b, &x);
        break;
    case OP_MUL:
        bad = __builtin_mul_overflow(a, b, &x);
        break;
    case OP_DIV:
        *out = (struct value){.kind = VALUE_FLOAT, .f = (double)a / (double)b};
        return 0;
    case OP_POW:
        return int_power(r, a, b, out);
    default: /* floor division and its remainder */
        if (a == INT64_MIN && b == -1)
            return overflow(r);
        x = a / b - (a % b != 0 && (a < 0) != (b < 0));
        if (op == OP_MOD)
            x = a - x * b;
    }
    *out = value_int(x);
    return bad ? overflow(r) : 0;
}

static int floats(struct render *r, enum binary_op op, double a, double b, struct value *out)
{
    out->kind = VALUE_FLOAT;
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        return render__fail(r, STATUS_INVALID, "division by zero");
    out->f = op == OP_ADD        ? a + b
             : op == OP_SUB      ? a - b
             : op == OP_MUL      ? a * b
             : op == OP_DIV      ? a / b
             : op == OP_POW      ? pow(a, b)
             : op == OP_FLOORDIV ? floor(a / b)
                                 : a - floor(a / b) * b;
    return 0;
}

/* str or list times a number. */
static int repeat(struct render *r, const struct value *v, int64_t times, struct value *out)
{
    struct builder b;
    builder_init(&b, r->a);
    int rc = v->kind == VALUE_LIST ? value_list(r, 4, v->l->tuple, out) : 0;
    for (int64_t i = 0; rc == 0 && i < times; i++) {
        rc = render__step(r);
        if (v->kind == VALUE_STR)
            builder_add_text(&b, &v->s, 0, v->s.n);
        for (size_t k = 0; rc == 0 && v->kind == VALUE_LIST && k < v->l->n; k++)
            rc = list_push(r, out->l, &v->l->v[k]);
        if (b.failed)
            break;
    }
    if (rc < 0 || v->kind == VALUE_LIST)
        return rc;
    out->kind = VALUE_STR;
    return builder_take(r, &b, &out->s);
}

static int concat(struct render *r, const struct value *a, const struct value *b, struct value *out)
{
    struct builder to;
    builder_init(&to, r->a);
    int rc = value_append(r, &to, a, false);
    if (rc == 0)
        rc = value_append(r, &to, b, false);
    out->kind = VALUE_STR;
    return rc == 0 ? builder_take(r, &to, &out->s) : rc;
}

static int add_lists(struct render *r, const struct value *a, const struct value *b, struct value *out)
{
    int rc = value_list(r, a->l->n + b->l->n, a->l->tuple, out);
    for (size_t i = 0; rc == 0 && i < a->l->n; i++)
        rc = list_push(r, out->l, &a->l->v[i]);
    for (size_t i = 0; rc == 0 && i < b->l->n; i++)
        rc = list_push(r, out->l, &b->l->v[i]);
    return rc;
}

static int arithmetic(struct render *r, enum binary_op op, const struct value *a, const struct value *b, struct value *out)
{
    static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "**"};
    if (is_number(a) && is_number(b))
        return a->kind == VALUE_FLOAT || b->kind == VALUE_FLOAT ? floats(r, op, as_double(a), as_double(b), out)
                                                                : ints(r, op, as_int(a), as_int(b), out);
    if (op == OP_ADD && a->kind == VALUE_STR && b->kind == VALUE_STR)
        return concat(r, a, b, out);
    if (op == OP_ADD && a->kind == VALUE_LIST && b->kind == VALUE_LIST)
        return add_lists(r, a, b, out);
    if (op == OP_MUL && (a->kind == VALUE_STR || a->kind == VALUE_LIST) && b->kind == VALUE_INT)
        return repeat(r, a, b->i, out);
    if (op == OP_MUL && a->kind == VALUE_INT && (b->kind == VALUE_STR || b->kind == VALUE_LIST))
        return repeat(r, b, a->i, out);
    const struct value *missing = a->kind == VALUE_UNDEFINED ? a : b->kind == VALUE_UNDEFINED ? b : NULL;
    if (missing)
        return render__fail(r, STATUS_INVALID, "'%.*s' is undefined", STR_ARG(missing->undefined));
    return render__fail(r, STATUS_INVALID, "%s %s %s is not possible", value_type(a), signs[op], value_type(b));
}

int call__binary(struct render *r, enum binary_op op, const struct value *a, const struct value *b, struct value *out)
{
    int order = 0, rc = 0;
    bool yes = false;
    switch (op) {
    case OP_CONCAT:
        return concat(r, a, b, out);
    case OP_EQ:
    case OP_NE:
        *out = value_bool(value_equal(a, b) == (op == OP_EQ));
        return 0;
    case OP_IN:
    case OP_NOT_IN:
        rc = value_contains(r, b, a, &yes);
        *out = value_bool(yes == (op == OP_IN));
        return rc;
    case OP_LT:
    case OP_LE:
    case OP_GT:
    case OP_GE:
        rc = value_compare(r, a, b, &order);
        *out = value_bool(op == OP_LT ? order < 0 : op == OP_LE ? order <= 0 : op == OP_GT ? order > 0 : order >= 0);
        return rc;
    default:
        return arithmetic(r, op, a, b, out);
    }
}

/* ---- attributes ---- */

static int bind_method(struct render *r, int id, const struct value *self, struct value *out)
{
    struct value *copy = ARENA_NEW(r->a, struct value);
    if (!copy)
        return render__fail(r, STATUS_EXHAUSTED, "the values of the template take more memory than allowed");
    *copy = *self;
    *out = (struct value){.kind = VALUE_BUILTIN, .fn = {id, copy}};
    return 0;
}

int call__attribute(struct render *r, const struct value *v, struct str name, struct value *out)
{
    uint64_t index;
    for (int id = 0; id < FN_COUNT_OF; id++) {
        bool mine = builtins[id].of == v->kind || (id == M_POP && v->kind == VALUE_DICT);
        if (builtins[id].of != VALUE_UNDEFINED && mine && str_eqz(name, builtins[id].name) &&
            !(v->kind == VALUE_DICT && v->d->is_namespace))
            return bind_method(r, id, v, out);
    }
    const struct value *found = v->kind == VALUE_DICT ? dict_get_name(v->d, name) : NULL;
    if (v->kind == VALUE_LIST && str_to_u64(name, &index) && index < v->l->n)
        found = &v->l->v[index];
    *out = found ? *found : value_undefined(name);
    return 0;
}

int call__item(struct render *r, const struct value *v, const struct value *key, struct value *out)
{
    *out = value_undefined(key->kind == VALUE_STR ? text_str(&key->s) : STR("item"));
    if (v->kind == VALUE_DICT) {
        const struct value *found = dict_get(v->d, key);
        if (found)
            *out = *found;
        else if (key->kind == VALUE_STR)
            return call__attribute(r, v, text_str(&key->s), out);
        return 0;
    }
    if ((v->kind != VALUE_LIST && v->kind != VALUE_STR) || key->kind != VALUE_INT)
        return 0;
    int64_t n = v->kind == VALUE_LIST ? (int64_t)v->l->n : (int64_t)text_length(&v->s), i = key->i < 0 ? key->i + n : key->i;
    if (i < 0 || i >= n)
        return 0;
    if (v->kind == VALUE_LIST) {
        *out = v->l->v[i];
        return 0;
    }
    size_t from = text_offset(&v->s, (size_t)i), to = text_offset(&v->s, (size_t)i + 1);
    return value_sub(r, &v->s, from, to - from, out);
}

/* ---- arguments ---- */

const struct value *args_get(const struct args *a, size_t index, const char *name)
{
    size_t positional = 0;
    for (size_t i = 0; i < a->n; i++)
        if (a->names[i].n ? name && str_eqz(a->names[i], name) : positional++ == index)
            return &a->v[i];
    return NULL;
}

static int need_str(struct render *r, const struct args *a, size_t index, const char *what, struct text *out)
{
    const struct value *v = args_get(a, index, NULL);
    if (!v || v->kind != VALUE_STR)
        return render__fail(r, STATUS_INVALID, "%s needs a string, not %s", what, v ? value_type(v) : "nothing");
    *out = v->s;
    return 0;
}

/* ---- functions ---- */

struct value call__global(struct str name)
{
    for (int id = 0; id < FN_COUNT_OF; id++)
        if (builtins[id].of == VALUE_UNDEFINED && str_eqz(name, builtins[id].name))
            return (struct value){.kind = VALUE_BUILTIN, .fn = {id, NULL}};
    return value_undefined(name);
}

static int fn_range(struct render *r, const struct args *a, struct value *out)
{
    int64_t part[3] = {0, 0, 1};
    for (size_t i = 0; i < a->n && i < 3; i++) {
        if (a->v[i].kind != VALUE_INT)
            return render__fail(r, STATUS_INVALID, "range needs whole numbers");
        part[i] = a->v[i].i;
    }
    int64_t from = a->n > 1 ? part[0] : 0, to = a->n > 1 ? part[1] : part[0], step = part[2];
    if (a->n < 1 || a->n > 3 || step == 0)
        return render__fail(r, STATUS_INVALID, "range takes one to three numbers, the last not 0");
    int rc = value_list(r, 8, false, out);
    for (int64_t i = from; rc == 0 && (step > 0 ? i < to : i > to); i += step) {
        struct value v = value_int(i);
        if (out->l->n >= RANGE_MAX)
            return render__fail(r, STATUS_EXHAUSTED, "range gives more than %d numbers", RANGE_MAX);
        rc = list_push(r, out->l, &v);
    }
    return rc;
}

static int fn_dict(struct render *r, const struct args *a, bool is_namespace, struct value *out)
{
    int rc = value_dict(r, out);
    for (size_t i = 0; rc == 0 && i < a->n; i++) {
        struct value key;
        if (!a->names[i].n && a->v[i].kind == VALUE_DICT) {
            for (size_t k = 0; rc == 0 && k < a->v[i].d->n; k++)
                rc = dict_put(r, out->d, a->v[i].d->v[k].key, a->v[i].d->v[k].val);
            continue;
        }
        if (!a->names[i].n)
            return render__fail(r, STATUS_INVALID, "an entry needs a name");
        rc = value_str(r, a->names[i], true, &key);
        if (rc == 0)
            rc = dict_put(r, out->d, &key, &a->v[i]);
    }
    if (rc == 0)
        out->d->is_namespace = is_namespace;
    return rc;
}

static int fn_raise(struct render *r, const struct args *a)
{
    struct text t = {.p = "", .n = 0};
    if (a->n && a->v[0].kind == VALUE_STR)
        t = a->v[0].s;
    return error_set(r->err, STATUS_INVALID, "%.*s", (int)MIN_OF(t.n, (size_t)400), t.p);
}

/* Days since 1970 to a civil date (Hinnant, "chrono-compatible low-level date algorithms"). */
static void civil(int64_t days, int *year, int *month, int *day)
{
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097, doe = days - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365, doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    int64_t mp = (5 * doy + 2) / 153;
    *day = (int)(doy - (153 * mp + 2) / 5 + 1);
    *month = (int)(mp < 10 ? mp + 3 : mp - 9);
    *year = (int)(yoe + era * 400 + (*month <= 2));
}

static int fn_strftime(struct render *r, const struct args *a, struct value *out)
{
    static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                         "July",    "August",   "September", "October", "November", "December"};
    static const char *const days[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
    struct text f;
    struct builder b;
    int year, month, day, rc = need_str(r, a, 0, "strftime_now", &f);
    int64_t date = r->now_s / 86400, time = r->now_s % 86400;
    if (rc < 0)
        return rc;
    civil(date, &year, &month, &day);
    int weekday = (int)((date + 4) % 7);
    builder_init(&b, r->a);
    for (size_t i = 0; i < f.n; i++) {
        char t[32];
        if (f.p[i] != '%' || i + 1 == f.n) {
            builder_add_text(&b, &f, i, 1);
            continue;
        }
        switch (f.p[++i]) {
        case 'Y':
            snprintf(t, sizeof t, "%04d", year);
            break;
        case 'y':
            snprintf(t, sizeof t, "%02d", year % 100);
            break;
        case 'm':
            snprintf(t, sizeof t, "%02d", month);
            break;
        case 'd':
            snprintf(t, sizeof t, "%02d", day);
            break;
        case 'H':
            snprintf(t, sizeof t, "%02d", (int)(time / 3600));
            break;
        case 'M':
            snprintf(t, sizeof t, "%02d", (int)(time / 60 % 60));
            break;
        case 'S':
            snprintf(t, sizeof t, "%02d", (int)(time % 60));
            break;
        case 'B':
            snprintf(t, sizeof t, "%s", months[month - 1]);
            break;
        case 'b':
            snprintf(t, sizeof t, "%.3s", months[month - 1]);
            break;
        case 'A':
            snprintf(t, sizeof t, "%s", days[weekday]);
            break;
        case 'a':
            snprintf(t, sizeof t, "%.3s", days[weekday]);
            break;
        case '%':
            snprintf(t, sizeof t, "%%");
            break;
        default:
            return render__fail(r, STATUS_INVALID, "strftime_now: %%%c is not supported", f.p[i]);
        }
        builder_add(&b, t, strlen(t), true);
    }
    out->kind = VALUE_STR;
    return builder_take(r, &b, &out->s);
}

/* ---- methods of strings ---- */

static bool in_set(const struct text *set, char c)
{
    return set ? memchr(set->p, c, set->n) != NULL : c == ' ' || (c >= 9 && c <= 13);
}

static int strip(struct render *r, const struct text *t, int id, const struct args *a, struct value *out)
{
    const struct value *v = args_get(a, 0, NULL);
    const struct text *set = v && v->kind == VALUE_STR ? &v->s : NULL;
    size_t from = 0, to = t->n;
    while (id != M_RSTRIP && from < to && in_set(set, t->p[from]))
        from++;
    while (id != M_LSTRIP && to > from && in_set(set, t->p[to - 1]))
        to--;
    return value_sub(r, t, from, to - from, out);
}

static int push_part(struct render *r, const struct text *t, size_t from, size_t to, struct list_value *l)
{
    struct value part;
    int rc = value_sub(r, t, from, to - from, &part);
    return rc == 0 ? list_push(r, l, &part) : rc;
}

static int split_blanks(struct render *r, const struct text *t, struct list_value *l)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < t->n;) {
        while (i < t->n && in_set(NULL, t->p[i]))
            i++;
        size_t from = i;
        while (i < t->n && !in_set(NULL, t->p[i]))
            i++;
        if (i > from)
            rc = push_part(r, t, from, i, l);
    }
    return rc;
}

static int split(struct render *r, const struct text *t, const struct args *a, struct value *out)
{
    const struct value *sep = args_get(a, 0, "sep"), *most = args_get(a, 1, "maxsplit");
    int64_t left = most && most->kind == VALUE_INT && most->i >= 0 ? most->i : INT64_MAX;
    int rc = value_list(r, 4, false, out);
    if (rc == 0 && (!sep || sep->kind == VALUE_NONE))
        return split_blanks(r, t, out->l);
    if (rc == 0 && (sep->kind != VALUE_STR || !sep->s.n))
        return render__fail(r, STATUS_INVALID, "split needs a separator that is not empty");
    size_t from = 0;
    for (const char *at; rc == 0 && left > 0 && from <= t->n && t->n - from >= sep->s.n &&
                         (at = memmem(t->p + from, t->n - from, sep->s.p, sep->s.n)) != NULL;
         left--) {
        rc = push_part(r, t, from, (size_t)(at - t->p), out->l);
        from = (size_t)(at - t->p) + sep->s.n;
    }
    return rc == 0 ? push_part(r, t, from, t->n, out->l) : rc;
}

static int starts_or_ends(struct render *r, const struct text *t, bool ends, const struct args *a, struct value *out)
{
    const struct value *v = args_get(a, 0, NULL);
    const struct value *list = v && v->kind == VALUE_LIST ? v->l->v : v;
    size_t n = v && v->kind == VALUE_LIST ? v->l->n : 1;
    *out = value_bool(false);
    for (size_t i = 0; v && i < n; i++) {
        if (list[i].kind != VALUE_STR)
            return render__fail(r, STATUS_INVALID, "startswith and endswith need strings");
        struct str s = text_str(t), x = text_str(&list[i].s);
        out->b |= ends ? str_ends(s, x) : str_starts(s, x);
    }
    return 0;
}

static int replace(struct render *r, const struct text *t, const struct args *a, struct value *out)
{
    struct text from, to;
    const struct value *most = args_get(a, 2, "count");
    int64_t left = most && most->kind == VALUE_INT && most->i >= 0 ? most->i : INT64_MAX;
    int rc = need_str(r, a, 0, "replace", &from);
    if (rc == 0)
        rc = need_str(r, a, 1, "replace", &to);
    if (rc < 0)
        return rc;
    struct builder b;
    size_t at = 0;
    builder_init(&b, r->a);
    while (at <= t->n && left-- > 0) {
        const char *found = from.n ? (at < t->n ? memmem(t->p + at, t->n - at, from.p, from.n) : NULL) : t->p + at;
        if (!found)
            break;
        size_t i = (size_t)(found - t->p);
        builder_add_text(&b, t, at, i - at);
        builder_add_text(&b, &to, 0, to.n);
        at = i + from.n;
        if (!from.n) { /* between all characters, as Python */
            if (at < t->n)
                builder_add_text(&b, t, at, 1);
            at++;
        }
    }
    if (at < t->n)
        builder_add_text(&b, t, at, t->n - at);
    out->kind = VALUE_STR;
    return builder_take(r, &b, &out->s);
}

/* upper, lower, title, capitalize: of ASCII letters; others stay, which is all that templates need them for. */
static int change_case(struct render *r, const struct text *t, int id, struct value *out)
{
    struct builder b;
    bool in_word = false;
    builder_init(&b, r->a);
    builder_add_text(&b, t, 0, t->n);
    for (size_t i = 0; i < b.n; i++) {
        char c = b.p[i], low = (char)(c | 0x20);
        bool letter = low >= 'a' && low <= 'z';
        bool up = id == M_UPPER || (id == M_TITLE && !in_word) || (id == M_CAPITALIZE && i == 0);
        if (letter)
            b.p[i] = (char)(up ? low & ~0x20 : low);
        in_word = letter;
    }
    out->kind = VALUE_STR;
    return builder_take(r, &b, &out->s);
}

static int join(struct render *r, const struct text *sep, const struct args *a, struct value *out)
{
    struct list_value *l;
    struct builder b;
    const struct value *v = args_get(a, 0, NULL);
    int rc = v ? value_iterate(r, v, &l) : render__fail(r, STATUS_INVALID, "join needs a list");
    builder_init(&b, r->a);
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        if (i)
            builder_add_text(&b, sep, 0, sep->n);
        rc = value_append(r, &b, &l->v[i], false);
    }
    out->kind = VALUE_STR;
    return rc == 0 ? builder_take(r, &b, &out->s) : rc;
}

static int find(struct render *r, const struct text *t, bool count, const struct args *a, struct value *out)
{
    struct text what;
    int rc = need_str(r, a, 0, "find", &what);
    *out = value_int(count ? 0 : -1);
    for (size_t i = 0; rc == 0 && what.n && i + what.n <= t->n; i++) {
        if (memcmp(t->p + i, what.p, what.n) != 0)
            continue;
        if (!count) {
            struct text before = {t->p, i, NULL, 0};
            *out = value_int((int64_t)text_length(&before));
            break;
        }
        out->i++;
        i += what.n - 1;
    }
    return rc;
}

/* str.format with {}, {0} and {name}; format specifications are refused. */
static int format(struct render *r, const struct text *t, const struct args *a, struct value *out)
{
    struct builder b;
    size_t next = 0;
    int rc = 0;
    builder_init(&b, r->a);
    for (size_t i = 0; rc == 0 && i < t->n; i++) {
        char c = t->p[i];
        if ((c == '{' || c == '}') && i + 1 < t->n && t->p[i + 1] == c) {
            builder_add_text(&b, t, i++, 1);
            continue;
        }
        if (c != '{') {
            builder_add_text(&b, t, i, 1);
            continue;
        }
        const char *end = memchr(t->p + i, '}', t->n - i);
        struct str field = {t->p + i + 1, end ? (size_t)(end - t->p) - i - 1 : 0};
        char name[64];
        uint64_t index;
        const struct value *v = NULL;
        if (end && field.n < sizeof name) {
            memcpy(name, field.p, field.n);
            name[field.n] = 0;
            v = !field.n                    ? args_get(a, next++, NULL)
                : str_to_u64(field, &index) ? args_get(a, (size_t)index, NULL)
                                            : args_get(a, SIZE_MAX, name);
        }
        if (!v)
            return render__fail(r, STATUS_INVALID, "format: no argument for {%.*s}", STR_ARG(field));
        rc = value_append(r, &b, v, false);
        i += field.n + 1;
    }
    out->kind = VALUE_STR;
    return rc == 0 ? builder_take(r, &b, &out->s) : rc;
}

static int string_method(struct render *r, int id, const struct text *t, const struct args *a, struct value *out)
{
    switch (id) {
    case M_STRIP:
    case M_LSTRIP:
    case M_RSTRIP:
        return strip(r, t, id, a, out);
    case M_SPLIT:
        return split(r, t, a, out);
    case M_STARTSWITH:
    case M_ENDSWITH:
        return starts_or_ends(r, t, id == M_ENDSWITH, a, out);
    case M_REPLACE:
        return replace(r, t, a, out);
    case M_JOIN:
        return join(r, t, a, out);
    case M_FORMAT:
        return format(r, t, a, out);
    case M_FIND:
    case M_COUNT:
        return find(r, t, id == M_COUNT, a, out);
    default:
        return change_case(r, t, id, out);
    }
}

/* ---- methods of dicts and lists ---- */

static int dict_list(struct render *r, int id, const struct dict_value *d, struct value *out)
{
    int rc = value_list(r, d->n, false, out);
    for (size_t i = 0; rc == 0 && i < d->n; i++) {
        struct value pair;
        if (id != M_ITEMS) {
            rc = list_push(r, out->l, id == M_KEYS ? d->v[i].key : d->v[i].val);
            continue;
        }
        rc = value_list(r, 2, true, &pair);
        if (rc == 0)
            rc = list_push(r, pair.l, d->v[i].key);
        if (rc == 0)
            rc = list_push(r, pair.l, d->v[i].val);
        if (rc == 0)
            rc = list_push(r, out->l, &pair);
    }
    return rc;
}

static int dict_method(struct render *r, int id, struct dict_value *d, const struct args *a, struct value *out)
{
    const struct value *key = args_get(a, 0, "key"), *other = args_get(a, 1, "default");
    if (id == M_UPDATE) {
        *out = value_none();
        if (!key || key->kind != VALUE_DICT)
            return render__fail(r, STATUS_INVALID, "update needs a dict");
        for (size_t i = 0; i < key->d->n; i++) {
            int rc = dict_put(r, d, key->d->v[i].key, key->d->v[i].val);
            if (rc < 0)
                return rc;
        }
        return 0;
    }
    if (id != M_GET && id != M_POP)
        return dict_list(r, id, d, out);
    if (!key)
        return render__fail(r, STATUS_INVALID, "get and pop need a key");
    const struct value *found = dict_get(d, key);
    *out = found ? *found : other ? *other : value_none();
    for (size_t i = 0; id == M_POP && found && i < d->n; i++) {
        if (d->v[i].val != found)
            continue;
        memmove(&d->v[i], &d->v[i + 1], (d->n - i - 1) * sizeof *d->v);
        d->n--;
    }
    return 0;
}

static int list_method(struct render *r, int id, struct list_value *l, const struct args *a, struct value *out)
{
    const struct value *v = args_get(a, 0, NULL);
    *out = value_none();
    if (id == M_POP) {
        int64_t i = v && v->kind == VALUE_INT ? v->i : -1;
        i = i < 0 ? i + (int64_t)l->n : i;
        if (i < 0 || (size_t)i >= l->n)
            return render__fail(r, STATUS_INVALID, "pop: no such element");
        *out = l->v[i];
        memmove(&l->v[i], &l->v[i + 1], (l->n - (size_t)i - 1) * sizeof *l->v);
        l->n--;
        return 0;
    }
    if (!v)
        return render__fail(r, STATUS_INVALID, "the method needs an argument");
    if (id == M_APPEND)
        return list_push(r, l, v);
    if (id == M_EXTEND) {
        struct list_value *more;
        int rc = value_iterate(r, v, &more);
        for (size_t i = 0, n = rc == 0 ? more->n : 0; rc == 0 && i < n; i++)
            rc = list_push(r, l, &more->v[i]);
        return rc;
    }
    if (id == M_INSERT) {
        const struct value *item = args_get(a, 1, NULL);
        if (v->kind != VALUE_INT || !item)
            return render__fail(r, STATUS_INVALID, "insert needs a position and a value");
        int64_t n = (int64_t)l->n, i = v->i < 0 ? MAX_OF(v->i + n, (int64_t)0) : MIN_OF(v->i, n);
        struct value copy = *item;
        int rc = list_push(r, l, &copy);
        if (rc == 0) {
            memmove(&l->v[i + 1], &l->v[i], (size_t)(n - i) * sizeof *l->v);
            l->v[i] = copy;
        }
        return rc;
    }
    for (size_t i = 0; i < l->n; i++) {
        if (value_equal(&l->v[i], v)) {
            *out = value_int((int64_t)i);
            return 0;
        }
    }
    return render__fail(r, STATUS_INVALID, "index: no such element");
}

int call__invoke(struct render *r, const struct value *fn, const struct args *a, struct value *out)
{
    if (fn->kind == VALUE_UNDEFINED)
        return render__fail(r, STATUS_INVALID, "'%.*s' is undefined", STR_ARG(fn->undefined));
    if (fn->kind != VALUE_BUILTIN)
        return render__fail(r, STATUS_INVALID, "a %s can't be called", value_type(fn));
    const struct value *self = fn->fn.self;
    switch (fn->fn.id) {
    case FN_RANGE:
        return fn_range(r, a, out);
    case FN_NAMESPACE:
    case FN_DICT:
        return fn_dict(r, a, fn->fn.id == FN_NAMESPACE, out);
    case FN_RAISE:
        return fn_raise(r, a);
    case FN_STRFTIME:
        return fn_strftime(r, a, out);
    default:
        return self->kind == VALUE_STR    ? string_method(r, fn->fn.id, &self->s, a, out)
               : self->kind == VALUE_DICT ? dict_method(r, fn->fn.id, self->d, a, out)
                                          : list_method(r, fn->fn.id, self->l, a, out);
    }
}
