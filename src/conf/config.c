/* config.c: text into struct config, row by row, and the rules that no single row can check. */
#include "conf/config.h"

#include <stdio.h>

#include "base/check.h"
#include "base/log.h"
#include "base/size.h"
#include "base/status.h"
#include "conf/node.h"
#include "conf/options.h"
#include "conf/yaml.h"

static_assert((int)LOG_DEBUG == 0 && (int)LOG_OFF == 4, "the words of log.level are in the order of enum log_level");

static void *at(struct config *c, const struct option *row)
{
    return (char *)c + row->offset;
}
static const char **text_at(struct config *c, const struct option *row)
{
    return (const char **)at(c, row);
}

static int no_memory(struct error *err)
{
    return error_set(err, STATUS_NOMEM, "not enough memory for the configuration");
}

/* Where a value comes from, for messages and for config.source. */
struct origin {
    enum config_source source;
    const char *where; /* file, or NULL for a flag */
    int line;
    const char *flag; /* as typed */
};

static int bad_value(const struct option *row, struct str value, const struct origin *o, struct error *err)
{
    char accepts[256];
    option_accepts(row, accepts, sizeof accepts);
    if (o->where)
        return node_error(err, o->where, o->line, STATUS_INVALID, "%s: '%.*s' is not accepted; give %s", row->name,
                          STR_ARG(value), accepts);
    return error_set(err, STATUS_INVALID, "--%s: '%.*s' is not accepted; give %s", o->flag, STR_ARG(value), accepts);
}

/* ---- single values ---- */

static bool parse_bool(struct str v, bool *out)
{
    *out = str_ieqz(v, "true");
    return *out || str_ieqz(v, "false");
}

static bool parse_number(const struct option *row, struct str v, uint64_t *out)
{
    bool ok;
    if (row->type == OPTION_COUNT)
        ok = str_to_u64(v, out);
    else if (row->type == OPTION_DURATION)
        ok = str_to_duration_ns(v, out) || (str_to_u64(v, out) && *out == 0);
    else
        ok = str_to_bytes(v, out);
    return ok && *out >= row->min && *out <= row->max;
}

static int word_index(const struct option *row, struct str v)
{
    for (int i = 0; row->words[i]; i++)
        if (str_eqz(v, row->words[i]))
            return i;
    return -1;
}

static bool string_ok(const struct option *row, struct str v)
{
    bool clean = v.n == 0 || !memchr(v.p, 0, v.n);
    return clean && (row->type == OPTION_LIST ? v.n <= 4095 : v.n <= row->max) && (!row->valid || row->valid(v));
}

/* Any type but OPTION_LIST. False: not accepted. *rc is set when memory ran out. */
static bool set_scalar(struct config *c, const struct option *row, struct str v, int *rc)
{
    uint64_t number;
    int word;
    char *copy;
    switch (row->type) {
    case OPTION_BOOL:
        return parse_bool(v, at(c, row));
    case OPTION_COUNT:
    case OPTION_BYTES32:
        if (!parse_number(row, v, &number))
            return false;
        *(uint32_t *)at(c, row) = (uint32_t)number;
        return true;
    case OPTION_BYTES:
    case OPTION_DURATION:
        return parse_number(row, v, at(c, row));
    case OPTION_ENUM:
        word = word_index(row, v);
        if (word >= 0)
            *(int *)at(c, row) = word;
        return word >= 0;
    case OPTION_WORD:
        word = word_index(row, v);
        if (word >= 0)
            *text_at(c, row) = row->words[word];
        return word >= 0;
    case OPTION_STRING:
        if (!string_ok(row, v))
            return false;
        copy = arena_strdup(&c->arena, v);
        *rc = copy ? 0 : STATUS_NOMEM;
        if (copy)
            *text_at(c, row) = copy;
        return true;
    case OPTION_LIST:
        break;
    }
    return false;
}

/* ---- lists ---- */

/* The list gets room for `more` entries behind `keep` old ones. */
static int list_grow(struct config *c, struct config_list *l, size_t keep, size_t more)
{
    const char **v = (const char **)arena_array(&c->arena, keep + more + 1, sizeof *v);
    if (!v)
        return STATUS_NOMEM;
    for (size_t i = 0; i < keep; i++)
        v[i] = l->v[i];
    *l = (struct config_list){v, keep};
    return 0;
}

static int list_add(struct config *c, const struct option *row, struct str v, const struct origin *o, struct error *err)
{
    struct config_list *l = at(c, row);
    if (!string_ok(row, v) || v.n == 0 || l->n >= row->max)
        return bad_value(row, v, o, err);
    const char *copy = arena_strdup(&c->arena, v);
    if (!copy)
        return no_memory(err);
    l->v[l->n++] = copy;
    return 0;
}

/* "a,b" behind the first `keep` entries; spaces around entries are dropped, an empty text adds none. */
static int list_set_text(struct config *c, const struct option *row, struct str text, size_t keep, const struct origin *o,
                         struct error *err)
{
    size_t commas = 0;
    struct str part;
    for (size_t i = 0; i < text.n; i++)
        commas += text.p[i] == ',';
    if (list_grow(c, at(c, row), keep, commas + 1) < 0)
        return no_memory(err);
    if (!str_trim(text).n)
        return 0;
    int rc = 0;
    while (rc == 0 && str_cut(&text, ',', &part))
        rc = list_add(c, row, str_trim(part), o, err);
    return rc;
}

static int set_text(struct config *c, const struct option *row, struct str value, const struct origin *o, struct error *err)
{
    size_t index = option_index(row);
    int rc = 0;
    if (row->type == OPTION_LIST) {
        const struct config_list *l = at(c, row);
        bool adds = o->source == CONFIG_FLAG && c->source[index] == CONFIG_FLAG;
        rc = list_set_text(c, row, value, adds ? l->n : 0, o, err);
    } else if (!set_scalar(c, row, value, &rc)) {
        rc = bad_value(row, value, o, err);
    } else if (rc < 0) {
        rc = no_memory(err);
    }
    if (rc == 0) {
        c->source[index] = (uint8_t)o->source;
        c->line[index] = o->line;
    }
    return rc;
}

int config_init(struct config *c, struct error *err)
{
    *c = (struct config){0};
    arena_init(&c->arena, 4096, 0);
    for (size_t i = 0; i < option_count(); i++) {
        const struct option *row = option_at(i);
        struct origin o = {.source = CONFIG_DEFAULT, .flag = row->name};
        int rc = set_text(c, row, str_of(row->initial), &o, err);
        if (rc < 0) {
            config_release(c);
            return rc;
        }
    }
    return 0;
}

void config_release(struct config *c)
{
    arena_release(&c->arena);
}

/* ---- flags ---- */

int config_apply_flag(struct config *c, struct str name, struct str value, struct error *err)
{
    char flag[96], full[512], hint[160];
    struct origin o = {.source = CONFIG_FLAG, .flag = flag};
    snprintf(flag, sizeof flag, "%.*s", STR_ARG(name));
    size_t n;
    const struct option_alias *aliases = option_aliases(&n);
    const struct option *row = option_find(name);
    for (size_t i = 0; i < n && !row; i++) {
        if (!str_eqz(name, aliases[i].flag))
            continue;
        row = option_find(str_of(aliases[i].option));
        if (!aliases[i].format)
            break;
        snprintf(full, sizeof full, "127.0.0.1:%.*s", STR_ARG(value));
        uint64_t port;
        if (!str_to_u64(value, &port) || port > 65535)
            return error_set(err, STATUS_INVALID, "--%s: '%.*s' is not accepted; give a port in 0..65535", flag,
                             STR_ARG(value));
        value = str_of(full);
    }
    if (row)
        return set_text(c, row, value, &o, err);
    struct suggest s;
    suggest_init(&s, name);
    option_suggest(&s, true);
    return error_set(err, STATUS_NOT_FOUND, "there is no option --%.*s%s", STR_ARG(name), suggest_text(&s, hint, sizeof hint));
}

/* ---- the file ---- */

struct file {
    struct config *c;
    const char *where;
    const char *(*env)(const char *);
    struct error *err;
};

static bool is_env_name(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char ch = s.p[i];
        bool letter = (ch >= 'A' && ch <= 'Z') || (ch >= 'a' && ch <= 'z') || ch == '_';
        if (!letter && !(i > 0 && ch >= '0' && ch <= '9'))
            return false;
    }
    return s.n > 0 && s.n < 128;
}

/* The value of "NAME" or "NAME:-default" (what stands between the braces). */
static int expand_one(struct file *f, int line, struct str inside, struct buf *out)
{
    struct str name = inside, fallback = {0};
    char z[128];
    for (size_t i = 0; i + 1 < inside.n; i++)
        if (inside.p[i] == ':' && inside.p[i + 1] == '-') {
            name.n = i;
            fallback = (struct str){inside.p + i + 2, inside.n - i - 2};
            break;
        }
    if (!is_env_name(name))
        return node_error(f->err, f->where, line, STATUS_INVALID,
                          "${%.*s} does not name a variable; write $$ for a dollar sign", STR_ARG(inside));
    snprintf(z, sizeof z, "%.*s", STR_ARG(name));
    const char *v = f->env ? f->env(z) : NULL;
    if (v && *v)
        buf_append_z(out, v);
    else if (fallback.p)
        buf_append_str(out, fallback);
    else
        return node_error(f->err, f->where, line, STATUS_INVALID,
                          "the environment variable %s is not set; ${%s:-value} gives a default", z, z);
    return 0;
}

/* Replace ${...} and $$ in `text`; the result lives in the config's arena. */
static int expand(struct file *f, int line, struct str *text)
{
    struct buf out;
    int rc = 0;
    if (!text->n || !memchr(text->p, '$', text->n))
        return 0;
    buf_init(&out);
    for (size_t i = 0; rc == 0 && i < text->n; i++) {
        bool more = i + 1 < text->n;
        if (text->p[i] == '$' && more && text->p[i + 1] == '{') {
            const char *from = text->p + i + 2, *close = memchr(from, '}', text->n - i - 2);
            if (!close) {
                rc = node_error(f->err, f->where, line, STATUS_INVALID, "'${' is not closed");
                break;
            }
            rc = expand_one(f, line, (struct str){from, (size_t)(close - from)}, &out);
            i = (size_t)(close - text->p);
        } else {
            buf_append_c(&out, text->p[i]);
            i += text->p[i] == '$' && more && text->p[i + 1] == '$';
        }
    }
    const char *copy = rc == 0 && !out.failed ? arena_strdup(&f->c->arena, buf_str(&out)) : NULL;
    if (rc == 0 && !copy)
        rc = no_memory(f->err);
    *text = (struct str){copy, out.n};
    buf_release(&out);
    return rc;
}

static int apply_list(struct file *f, const struct option *row, const struct node *n, const struct origin *o)
{
    if (list_grow(f->c, at(f->c, row), 0, n->n) < 0)
        return no_memory(f->err);
    int rc = 0;
    for (const struct node *item = n->first; item && rc == 0; item = item->next) {
        struct origin each = *o;
        struct str v = item->text;
        each.line = item->line;
        if (item->kind != NODE_SCALAR)
            return bad_value(row, STR("{...}"), &each, f->err);
        rc = expand(f, item->line, &v);
        if (rc == 0)
            rc = list_add(f->c, row, v, &each, f->err);
    }
    size_t index = option_index(row);
    f->c->source[index] = CONFIG_FILE;
    f->c->line[index] = o->line;
    return rc;
}

static int apply_row(struct file *f, const struct option *row, const struct node *n)
{
    struct origin o = {.source = CONFIG_FILE, .where = f->where, .line = n->line};
    size_t index = option_index(row);
    struct str v = n->text;
    if (f->c->source[index] == CONFIG_FILE)
        return node_error(f->err, f->where, n->line, STATUS_INVALID, "%s is there twice; the first is in line %d", row->name,
                          f->c->line[index]);
    if (n->kind == NODE_LIST && row->type == OPTION_LIST)
        return apply_list(f, row, n, &o);
    if (n->kind != NODE_SCALAR)
        return bad_value(row, n->kind == NODE_LIST ? STR("[...]") : STR("{...}"), &o, f->err);
    if (node_is_null(n))
        v = row->type == OPTION_STRING || row->type == OPTION_LIST ? STR("") : STR("null");
    int rc = expand(f, n->line, &v);
    return rc == 0 ? set_text(f->c, row, v, &o, f->err) : rc;
}

static bool is_section(const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; i < option_count(); i++)
        if (!strncmp(option_at(i)->name, path, n) && option_at(i)->name[n] == '.')
            return true;
    return false;
}

static int unknown_key(struct file *f, const char *path, const struct node *n)
{
    char hint[160];
    struct suggest s;
    suggest_init(&s, str_of(path));
    option_suggest(&s, false);
    if (n->kind == NODE_MAP)
        for (size_t i = 0; i < option_count(); i++) { /* a misspelt section */
            const char *name = option_at(i)->name, *dot = strchr(name, '.');
            char *section = dot ? arena_strdup(&f->c->arena, (struct str){name, (size_t)(dot - name)}) : NULL;
            if (section)
                suggest_offer(&s, section);
        }
    return node_error(f->err, f->where, n->line, STATUS_INVALID, "there is no option '%s'%s", path,
                      suggest_text(&s, hint, sizeof hint));
}

/* Every scalar below. */
static int expand_all(struct file *f, struct node *n)
{
    int rc = n->kind == NODE_SCALAR ? expand(f, n->line, &n->text) : 0;
    for (struct node *i = n->first; i && rc == 0; i = i->next)
        rc = expand_all(f, i);
    return rc;
}

/* The two sections that are lists of maps. */
static int apply_gateway(struct file *f, struct node *root)
{
    struct node *upstreams = node_get(root, "upstreams"), *routes = node_get(root, "routes");
    if (upstreams && node_is_null(upstreams))
        upstreams = NULL;
    if (routes && node_is_null(routes))
        routes = NULL;
    int rc = upstreams ? expand_all(f, upstreams) : 0;
    if (rc == 0 && routes)
        rc = expand_all(f, routes);
    return rc ? rc : gateway_config_read(upstreams, routes, f->where, &f->c->arena, &f->c->gateway, f->err);
}

static bool is_gateway(const char *path)
{
    return strcmp(path, "upstreams") == 0 || strcmp(path, "routes") == 0;
}

static int apply_map(struct file *f, const char *prefix, const struct node *map)
{
    int rc = 0;
    for (const struct node *n = map->first; n && rc == 0; n = n->next) {
        char path[192];
        int len = snprintf(path, sizeof path, "%s%s%.*s", prefix, *prefix ? "." : "", STR_ARG(n->key));
        const struct option *row = option_find((struct str){path, strlen(path)});
        if (is_gateway(path))
            rc = 0; /* apply_gateway */
        else if (len >= (int)sizeof path)
            rc = node_error(f->err, f->where, n->line, STATUS_INVALID, "a key is too long");
        else if (row)
            rc = apply_row(f, row, n);
        else if (is_section(path) && node_is_null(n))
            rc = 0; /* a section whose rows are all commented out */
        else if (is_section(path) && n->kind == NODE_MAP)
            rc = apply_map(f, path, n);
        else if (is_section(path))
            rc = node_error(f->err, f->where, n->line, STATUS_INVALID, "'%s' is a section; give its options below it", path);
        else
            rc = unknown_key(f, path, n);
    }
    return rc;
}

int config_apply_yaml(struct config *c, struct str text, const char *where, const char *(*env)(const char *name),
                      struct error *err)
{
    struct arena scratch;
    struct node *root;
    const char *name = arena_strdup(&c->arena, str_of(where));
    if (!name)
        return no_memory(err);
    c->where = name;
    arena_init(&scratch, 16384, 0);
    struct file f = {.c = c, .where = name, .env = env, .err = err};
    int rc = yaml_parse(text, name, &scratch, &root, err);
    if (rc == 0 && root->kind != NODE_MAP)
        rc = node_error(err, name, root->line, STATUS_INVALID, "the file must be a map of options");
    if (rc == 0)
        rc = apply_map(&f, "", root);
    if (rc == 0)
        rc = apply_gateway(&f, root);
    arena_release(&scratch);
    return rc;
}

/* ---- reload ---- */

static bool same_list(const struct config_list *a, const struct config_list *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (strcmp(a->v[i], b->v[i]) != 0)
            return false;
    return true;
}

static bool same(const struct option *row, struct config *a, struct config *b)
{
    const void *x = at(a, row), *y = at(b, row);
    switch (row->type) {
    case OPTION_BOOL:
        return *(const bool *)x == *(const bool *)y;
    case OPTION_COUNT:
    case OPTION_BYTES32:
        return *(const uint32_t *)x == *(const uint32_t *)y;
    case OPTION_BYTES:
    case OPTION_DURATION:
        return *(const uint64_t *)x == *(const uint64_t *)y;
    case OPTION_ENUM:
        return *(const int *)x == *(const int *)y;
    case OPTION_WORD:
    case OPTION_STRING:
        return strcmp(*(const char *const *)x, *(const char *const *)y) == 0;
    case OPTION_LIST:
        return same_list(x, y);
    }
    return true;
}

static int copy_list(struct config *to, struct config_list *l, const struct config_list *from)
{
    int rc = list_grow(to, l, 0, from->n);
    while (rc == 0 && l->n < from->n) {
        const char *copy = arena_strdup(&to->arena, str_of(from->v[l->n]));
        rc = copy ? 0 : STATUS_NOMEM;
        if (copy)
            l->v[l->n++] = copy;
    }
    return rc;
}

/* Give `to` the row's value of `from`, copied. */
static int copy_row(struct config *to, const struct config *from, const struct option *row)
{
    static const size_t sizes[] = {
        [OPTION_BOOL] = sizeof(bool),        [OPTION_COUNT] = sizeof(uint32_t),    [OPTION_BYTES] = sizeof(uint64_t),
        [OPTION_BYTES32] = sizeof(uint32_t), [OPTION_DURATION] = sizeof(uint64_t), [OPTION_ENUM] = sizeof(int),
        [OPTION_WORD] = sizeof(char *)};
    const void *value = (const char *)from + row->offset;
    size_t index = option_index(row);
    to->source[index] = from->source[index];
    to->line[index] = from->line[index];
    if (row->type == OPTION_LIST)
        return copy_list(to, at(to, row), value);
    if (row->type == OPTION_STRING) {
        const char *copy = arena_strdup(&to->arena, str_of(*(const char *const *)value));
        *text_at(to, row) = copy;
        return copy ? 0 : STATUS_NOMEM;
    }
    memcpy(at(to, row), value, sizes[row->type]);
    return 0;
}

int config_reconcile(struct config *fresh, const struct config *running,
                     void (*changed)(void *ctx, const struct option *row, bool applies), void *ctx, struct error *err)
{
    int n = 0;
    for (size_t i = 0; i < option_count(); i++) {
        const struct option *row = option_at(i);
        if (same(row, fresh, (struct config *)(uintptr_t)running))
            continue;
        n++;
        if (changed)
            changed(ctx, row, row->reloadable);
        if (!row->reloadable && copy_row(fresh, running, row) < 0)
            return no_memory(err);
    }
    return n;
}
