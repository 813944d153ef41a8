/* model_read.c: the generic half of reading a model configuration: walks a tree by a table, and the single values. */
#include <stdarg.h>
#include <stdio.h>

#include "base/size.h"
#include "base/status.h"
#include "conf/model_fields.h"
#include "conf/suggest.h"

size_t model_path_push(struct reader *r, const char *fmt, ...)
{
    size_t mark = r->path_n, room = sizeof r->path - mark;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(r->path + mark, room, fmt, ap);
    va_end(ap);
    r->path_n = mark + (n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1);
    return mark;
}

void model_path_pop(struct reader *r, size_t mark)
{
    r->path_n = mark;
    r->path[mark] = 0;
}

int model_error(struct reader *r, const struct node *n, const char *fmt, ...)
{
    struct error inner;
    va_list ap;
    va_start(ap, fmt);
    (void)error_vset(&inner, STATUS_INVALID, fmt, ap);
    va_end(ap);
    return node_error(r->err, r->where, n->line, STATUS_INVALID, "%s%s%s", r->path, r->path_n ? ": " : "", inner.text);
}

int model_no_memory(struct reader *r)
{
    return node_error(r->err, r->where, 0, STATUS_NOMEM, "not enough memory for the model's configuration");
}

#define WARNINGS_MAX 64

int model_warn(struct reader *r, const struct node *n, const char *fmt, ...)
{
    struct model_config *c = r->config;
    struct error inner, full;
    va_list ap;
    va_start(ap, fmt);
    (void)error_vset(&inner, STATUS_INVALID, fmt, ap);
    va_end(ap);
    node_error(&full, r->where, n->line, STATUS_INVALID, "%s: %s", r->path, inner.text);
    if (c->n_warnings == WARNINGS_MAX)
        return 0;
    if (!c->warnings && !(c->warnings = arena_array(r->arena, WARNINGS_MAX, sizeof *c->warnings)))
        return model_no_memory(r);
    char *copy = arena_strdup(r->arena, str_of(full.text));
    if (!copy)
        return model_no_memory(r);
    c->warnings[c->n_warnings++] = str_of(copy);
    return 0;
}

/* ---- single values ---- */

static const char *describe(const struct node *n)
{
    return n->kind == NODE_LIST ? (n->repeated ? "several values" : "a list") : "a map";
}

static int need_scalar(struct reader *r, const struct node *n)
{
    if (n->kind == NODE_SCALAR)
        return 0;
    return model_error(r, n, "one value is expected here, not %s", describe(n));
}

int model_read_string(struct reader *r, const struct node *n, struct str *out)
{
    int rc = need_scalar(r, n);
    if (rc == 0 && r->format == MODEL_PBTXT && !n->quoted)
        return model_error(r, n, "'%.*s' is not a string; put it in double quotes", STR_ARG(n->text));
    if (rc == 0 && n->text.n && memchr(n->text.p, 0, n->text.n))
        return model_error(r, n, "a NUL byte is not accepted");
    if (rc == 0)
        *out = n->text;
    return rc;
}

int model_read_bool(struct reader *r, const struct node *n, bool *out)
{
    static const char *const pbtxt_true[] = {"True", "t", "1"}, *const pbtxt_false[] = {"False", "f", "0"};
    int rc = need_scalar(r, n);
    if (rc < 0)
        return rc;
    bool bare = !n->quoted, is_true = bare && str_eqz(n->text, "true"), is_false = bare && str_eqz(n->text, "false");
    for (size_t i = 0; bare && r->format == MODEL_PBTXT && i < 3; i++) {
        is_true = is_true || str_eqz(n->text, pbtxt_true[i]);
        is_false = is_false || str_eqz(n->text, pbtxt_false[i]);
    }
    if (!is_true && !is_false)
        return model_error(r, n, "'%.*s' is not accepted; give true or false", STR_ARG(n->text));
    *out = is_true;
    return 0;
}

int model_read_u64(struct reader *r, const struct node *n, uint64_t min, uint64_t max, uint64_t *out)
{
    uint64_t v;
    int rc = need_scalar(r, n);
    if (rc < 0)
        return rc;
    /* protobuf's JSON writes 64-bit integers as strings, so quotes are no fault there */
    bool quotes_ok = r->format == MODEL_JSON || !n->quoted;
    if (!quotes_ok || !str_to_u64(n->text, &v) || v < min || v > max)
        return model_error(r, n, "'%.*s' is not accepted; give a whole number in %llu..%llu", STR_ARG(n->text),
                           (unsigned long long)min, (unsigned long long)max);
    *out = v;
    return 0;
}

int model_read_i64(struct reader *r, const struct node *n, int64_t min, int64_t max, int64_t *out)
{
    int64_t v;
    int rc = need_scalar(r, n);
    if (rc < 0)
        return rc;
    bool quotes_ok = r->format == MODEL_JSON || !n->quoted;
    if (!quotes_ok || !str_to_i64(n->text, &v) || v < min || v > max)
        return model_error(r, n, "'%.*s' is not accepted; give a whole number in %lld..%lld", STR_ARG(n->text), (long long)min,
                           (long long)max);
    *out = v;
    return 0;
}

int model_read_f64(struct reader *r, const struct node *n, double *out)
{
    int rc = need_scalar(r, n);
    if (rc == 0 && (n->quoted || !str_to_f64(n->text, out)))
        return model_error(r, n, "'%.*s' is not a number", STR_ARG(n->text));
    return rc;
}

static const char *list_words(const char *const *words, char *text, size_t cap)
{
    size_t at = 0;
    text[0] = 0;
    for (size_t i = 0; words[i] && at < cap; i++)
        at += (size_t)snprintf(text + at, cap - at, "%s%s", i == 0 ? "" : words[i + 1] ? ", " : " or ", words[i]);
    return text;
}

int model_read_enum(struct reader *r, const struct node *n, const char *const *words, int *out)
{
    char text[320];
    uint64_t number;
    int rc = need_scalar(r, n), count = 0;
    if (rc < 0)
        return rc;
    for (; words[count]; count++)
        if (str_eqz(n->text, words[count])) {
            *out = count;
            return 0;
        }
    if (r->format != MODEL_YAML && !n->quoted && str_to_u64(n->text, &number) && number < (uint64_t)count) {
        *out = (int)number;
        return 0;
    }
    return model_error(r, n, "'%.*s' is not accepted; give %s", STR_ARG(n->text), list_words(words, text, sizeof text));
}

int model_read_ints(struct reader *r, const struct node *n, int64_t min, int64_t most, int64_t *v, size_t max, size_t *count)
{
    const struct node *item = n->kind == NODE_LIST ? n->first : n;
    for (; item; item = item->next) {
        if (*count == max)
            return model_error(r, item, "more than %zu values", max);
        int rc = model_read_i64(r, item, min, most, &v[*count]);
        if (rc < 0)
            return rc;
        ++*count;
        if (n->kind != NODE_LIST)
            break;
    }
    return 0;
}

/* ---- repeated and map fields ---- */

/* YAML's and JSON's null is the same as leaving the field out; protobuf has no null. */
static bool is_null(const struct reader *r, const struct node *n)
{
    return r->format != MODEL_PBTXT && node_is_null(n);
}

size_t model_count(const struct reader *r, const struct node *n)
{
    if (n->kind == NODE_LIST)
        return n->n;
    return is_null(r, n) ? 0 : 1;
}

int model_each(struct reader *r, const struct node *n,
               int (*each)(struct reader *r, const struct node *item, size_t i, void *ctx), void *ctx)
{
    if (n->kind != NODE_LIST)
        return is_null(r, n) ? 0 : each(r, n, 0, ctx);
    size_t i = 0;
    for (const struct node *item = n->first; item; item = item->next, i++) {
        size_t mark = model_path_push(r, "[%zu]", i);
        int rc = each(r, item, i, ctx);
        model_path_pop(r, mark);
        if (rc < 0)
            return rc;
    }
    return 0;
}

size_t model_count_entries(const struct reader *r, const struct node *n)
{
    return r->format == MODEL_PBTXT ? model_count(r, n) : n->n;
}

struct entries {
    int (*each)(struct reader *r, struct str key, const struct node *value, void *ctx);
    void *ctx;
};

/* One { key: ... value: ... }; a missing half is empty, as in protobuf. */
static int pbtxt_entry(struct reader *r, const struct node *item, size_t i, void *ctx)
{
    static const struct node nothing = {.kind = NODE_SCALAR, .quoted = true, .text = {"", 0}};
    const struct entries *e = ctx;
    (void)i;
    if (item->kind != NODE_MAP)
        return model_error(r, item, "{ key: ... value: ... } is expected here");
    for (const struct node *c = item->first; c; c = c->next)
        if (!str_eqz(c->key, "key") && !str_eqz(c->key, "value"))
            return model_error(r, c, "unknown field '%.*s'; a map entry has 'key' and 'value'", STR_ARG(c->key));
    const struct node *key = node_get(item, "key"), *value = node_get(item, "value");
    if (key && key->kind != NODE_SCALAR)
        return model_error(r, key, "the key must be one value");
    return e->each(r, key ? key->text : STR(""), value ? value : &nothing, e->ctx);
}

int model_each_entry(struct reader *r, const struct node *n,
                     int (*each)(struct reader *r, struct str key, const struct node *value, void *ctx), void *ctx)
{
    struct entries e = {each, ctx};
    if (r->format == MODEL_PBTXT)
        return model_each(r, n, pbtxt_entry, &e);
    if (is_null(r, n))
        return 0;
    if (n->kind != NODE_MAP)
        return model_error(r, n, "a map is expected here");
    for (const struct node *c = n->first; c; c = c->next) {
        size_t mark = model_path_push(r, "[%.*s]", (int)(c->key.n < 64 ? c->key.n : 64), c->key.p);
        int rc = each(r, c->key, c, ctx);
        model_path_pop(r, mark);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- messages ---- */

/* Empty, 0, false, or a map or list of nothing else: what a rendered default looks like. */
static bool is_default(const struct node *n, const char *usual)
{
    if (n->kind == NODE_SCALAR)
        return node_is_null(n) || n->text.n == 0 || str_eqz(n->text, "0") || str_eqz(n->text, "false") ||
               (usual && str_eqz(n->text, usual));
    for (const struct node *c = n->first; c; c = c->next)
        if (!is_default(c, usual))
            return false;
    return true;
}

static int read_field(struct reader *r, const struct field *f, const struct node *n, void *base)
{
    void *p = (char *)base + f->offset;
    uint64_t u = 0;
    int rc;
    switch (f->kind) {
    case FIELD_STRING:
        return model_read_string(r, n, p);
    case FIELD_BOOL:
        return model_read_bool(r, n, p);
    case FIELD_I64:
        return model_read_i64(r, n, f->min, (int64_t)f->max, p);
    case FIELD_U32:
        rc = model_read_u64(r, n, (uint64_t)f->min, f->max, &u);
        if (rc == 0)
            *(uint32_t *)p = (uint32_t)u;
        return rc;
    case FIELD_U64:
        return model_read_u64(r, n, (uint64_t)f->min, f->max, p);
    case FIELD_MESSAGE:
        return model_read_message(r, f->message, n, p);
    case FIELD_CUSTOM:
        return f->read(r, n, base);
    case FIELD_NOT_SERVED:
        return is_default(n, f->usual) ? 0 : model_warn(r, n, "inferd does not have this; it is ignored");
    case FIELD_IGNORED:
        return 0;
    }
    return 0;
}

static int unknown_field(struct reader *r, const struct message *m, const struct node *n)
{
    char hint[160];
    struct suggest s;
    suggest_init(&s, n->key);
    for (size_t i = 0; i < m->n; i++)
        if (!m->fields[i].ours || r->format != MODEL_PBTXT)
            suggest_offer(&s, m->fields[i].name);
    return model_error(r, n, "unknown field '%.*s'%s", STR_ARG(n->key), suggest_text(&s, hint, sizeof hint));
}

static const struct field *find_field(const struct reader *r, const struct message *m, struct str name)
{
    for (size_t i = 0; i < m->n; i++)
        if (str_eqz(name, m->fields[i].name) && (!m->fields[i].ours || r->format != MODEL_PBTXT))
            return &m->fields[i];
    return NULL;
}

int model_read_message(struct reader *r, const struct message *m, const struct node *map, void *base)
{
    if (is_null(r, map))
        return 0;
    if (map->kind != NODE_MAP)
        return model_error(r, map, map->repeated ? "given more than once" : "a map of fields is expected here");
    for (const struct node *n = map->first; n; n = n->next) {
        const struct field *f = find_field(r, m, n->key);
        if (!f)
            return unknown_field(r, m, n);
        size_t mark = model_path_push(r, "%s%s", r->path_n ? "." : "", f->name);
        int rc = is_null(r, n) ? 0 : read_field(r, f, n, base);
        model_path_pop(r, mark);
        if (rc < 0)
            return rc;
    }
    return 0;
}
