/* node.c: building and reading the configuration tree, and the JSON reader (the smallest of the three, so it lives here). */
#include "conf/node.h"

#include <stdio.h>
#include <yyjson.h>

#include "base/map.h"
#include "base/status.h"

int node_error(struct error *err, const char *where, int line, int code, const char *fmt, ...)
{
    struct error inner;
    va_list ap;
    va_start(ap, fmt);
    (void)error_vset(&inner, code, fmt, ap);
    va_end(ap);
    if (line > 0)
        return error_set(err, code, "%s:%d: %s", where, line, inner.text);
    return error_set(err, code, "%s: %s", where, inner.text);
}

static struct node *no_memory(struct node_source *s, int line)
{
    node_error(s->err, s->where, line, STATUS_NOMEM, "not enough memory to read the file");
    return NULL;
}

struct node *node_new(struct node_source *s, enum node_kind kind, int line)
{
    if (s->count >= NODE_COUNT_MAX) {
        node_error(s->err, s->where, line, STATUS_INVALID, "the file has more than %d values", NODE_COUNT_MAX);
        return NULL;
    }
    struct node *n = ARENA_NEW(s->arena, struct node);
    if (!n)
        return no_memory(s, line);
    s->count++;
    n->kind = kind;
    n->line = line;
    return n;
}

bool node_set_text(struct node_source *s, struct node *scalar, const char *p, size_t n)
{
    char *copy = arena_strdup(s->arena, (struct str){p, n});
    if (!copy)
        return no_memory(s, scalar->line) != NULL;
    scalar->text = (struct str){copy, n};
    return true;
}

void node_append(struct node *parent, struct node *child)
{
    child->next = NULL;
    if (parent->last)
        parent->last->next = child;
    else
        parent->first = child;
    parent->last = child;
    parent->n++;
}

struct node *node_get(const struct node *map, const char *key)
{
    if (!map || map->kind != NODE_MAP)
        return NULL;
    for (struct node *c = map->first; c; c = c->next)
        if (str_eqz(c->key, key))
            return c;
    return NULL;
}

bool node_is_null(const struct node *n)
{
    return n->kind == NODE_SCALAR && !n->quoted &&
           (n->text.n == 0 || str_eq(n->text, STR("~")) || str_eq(n->text, STR("null")));
}

static int duplicate(struct node_source *s, const struct node *first, const struct node *again)
{
    if (again->line == 0)
        return node_error(s->err, s->where, 0, STATUS_INVALID, "the key '%.*s' is there twice", STR_ARG(again->key));
    return node_error(s->err, s->where, again->line, STATUS_INVALID, "the key '%.*s' is there twice; the first is in line %d",
                      STR_ARG(again->key), first->line);
}

int node_check_duplicates(struct node_source *s, const struct node *parent)
{
    struct map seen;
    int rc = 0;
    map_init(&seen, 0x9e3779b97f4a7c15ull);
    for (struct node *c = parent->first; c && rc == 0; c = c->next) {
        const struct node *first = map_get(&seen, c->key);
        if (first)
            rc = duplicate(s, first, c);
        else if (map_put(&seen, c->key, c) < 0)
            rc = node_error(s->err, s->where, c->line, STATUS_NOMEM, "not enough memory to read the file");
    }
    map_release(&seen);
    return rc;
}

/* ---- JSON ---- */

static struct node *json_node(struct node_source *s, yyjson_val *v, int depth);

static bool json_children(struct node_source *s, struct node *n, yyjson_val *v, int depth)
{
    size_t at, max;
    yyjson_val *key, *item;
    if (yyjson_is_arr(v)) {
        yyjson_arr_foreach(v, at, max, item)
        {
            struct node *c = json_node(s, item, depth + 1);
            if (!c)
                return false;
            node_append(n, c);
        }
        return true;
    }
    yyjson_obj_foreach(v, at, max, key, item)
    {
        struct node *c = json_node(s, item, depth + 1);
        char *copy = c ? arena_strdup(s->arena, (struct str){yyjson_get_str(key), yyjson_get_len(key)}) : NULL;
        if (!copy)
            return false;
        c->key = (struct str){copy, yyjson_get_len(key)};
        node_append(n, c);
    }
    return node_check_duplicates(s, n) == 0;
}

static struct node *json_scalar(struct node_source *s, yyjson_val *v)
{
    struct node *n = node_new(s, NODE_SCALAR, 0);
    if (!n)
        return NULL;
    struct str text = STR("null");
    if (yyjson_is_bool(v))
        text = yyjson_get_bool(v) ? STR("true") : STR("false");
    else if (yyjson_is_raw(v))
        text = (struct str){yyjson_get_raw(v), yyjson_get_len(v)};
    else if (yyjson_is_str(v))
        text = (struct str){yyjson_get_str(v), yyjson_get_len(v)};
    n->quoted = yyjson_is_str(v);
    return node_set_text(s, n, text.p, text.n) ? n : NULL;
}

static struct node *json_node(struct node_source *s, yyjson_val *v, int depth)
{
    if (depth >= NODE_DEPTH_MAX) {
        node_error(s->err, s->where, 0, STATUS_INVALID, "the JSON is nested deeper than %d levels", NODE_DEPTH_MAX);
        return NULL;
    }
    if (!yyjson_is_ctn(v))
        return json_scalar(s, v);
    struct node *n = node_new(s, yyjson_is_arr(v) ? NODE_LIST : NODE_MAP, 0);
    return n && json_children(s, n, v, depth) ? n : NULL;
}

int json_tree_parse(struct str text, const char *where, struct arena *a, struct node **root, struct error *err)
{
    struct error local = {0};
    struct node_source s = {.where = where, .arena = a, .err = &local};
    if (text.n > NODE_TEXT_MAX)
        return node_error(err, where, 0, STATUS_INVALID, "the text is larger than %u bytes", NODE_TEXT_MAX);
    yyjson_read_err problem;
    yyjson_doc *doc = yyjson_read_opts((char *)(uintptr_t)(text.n ? text.p : " "), text.n ? text.n : 1,
                                       YYJSON_READ_NUMBER_AS_RAW, NULL, &problem);
    if (!doc)
        return node_error(err, where, 0, STATUS_INVALID, "not JSON at byte %zu: %s", problem.pos, problem.msg);
    *root = json_node(&s, yyjson_doc_get_root(doc), 0);
    yyjson_doc_free(doc);
    if (*root)
        return 0;
    return error_set(err, local.code ? local.code : STATUS_NOMEM, "%s", local.code ? local.text : "not enough memory");
}
