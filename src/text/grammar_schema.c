/* grammar_schema.c: from a JSON Schema (2020-12, and the draft-07 spellings that people still send) to a grammar.
 *
 * What must hold at one place is a set of schema objects: $ref and allOf add to it, anyOf and oneOf choose one more. A set becomes a rule once;
 * the rule is known before it is drawn, so recursion through $ref closes by itself. Keywords are never skipped: each is known here as one
 * that says something, as an annotation, or it is refused by name. Where the language of a schema is too large to draw, a part of it is drawn
 * (docs/internals/grammars.md has the table): every output is valid, not every valid text can be an output.
 *
 * Recursion here is bounded by max_depth. */
#include <stdio.h>
#include <stdlib.h>

#include "base/size.h"
#include "base/status.h"
#include "text/grammar_schema_priv.h"

/* ---- messages ---- */

void schema__fail(struct schema *s, const char *keyword, const char *fmt, ...)
{
    char text[320];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    gb_fail(s->b, STATUS_INVALID, "schema keyword '%s' at #%s: %s", keyword, s->path, text);
}

size_t schema__enter(struct schema *s, const char *step, struct str name)
{
    size_t before = s->n_path, room = sizeof s->path - s->n_path;
    int n = snprintf(s->path + s->n_path, room, "/%s%s%.*s", step, name.n ? "/" : "", (int)MIN_OF(name.n, (size_t)60), name.p);
    if (n > 0 && (size_t)n < room)
        s->n_path += (size_t)n;
    else
        s->path[s->n_path] = 0; /* too deep to show: the nearest place that fits */
    return before;
}

void schema__leave(struct schema *s, size_t before)
{
    s->n_path = before;
    s->path[before] = 0;
}

/* ---- keywords ---- */

static const char *const constraints[] = {
    "type",
    "nullable",
    "enum",
    "const",
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "properties",
    "required",
    "items",
    "format",
    "pattern",
    "additionalProperties",
    "minProperties",
    "maxProperties",
    "prefixItems",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "multipleOf",
    "$defs",
    "definitions",
    "uniqueItems",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "additionalItems",
};
static const char *const annotations[] = {
    "title",    "description", "default", "examples", "example",       "deprecated",
    "readOnly", "writeOnly",   "$schema", "$comment", "discriminator",
};

static bool is_in(struct str key, const char *const *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (str_eqz(key, v[i]))
            return true;
    return false;
}

static bool is_annotation(struct str key)
{
    return is_in(key, annotations, COUNT_OF(annotations)) || str_starts(key, STR("x-")) || str_eqz(key, "$id") ||
           str_eqz(key, "$defs") || str_eqz(key, "definitions");
}

/* Every keyword is known; none occurs twice; those that can't be drawn have the value that says nothing. */
static void check_keywords(struct schema *s, yyjson_val *v)
{
    size_t i, n;
    yyjson_val *k, *e;
    if (!yyjson_obj_size(v))
        return;
    yyjson_obj_foreach(v, i, n, k, e)
    {
        struct str key = json_str(k);
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)MIN_OF(key.n, sizeof name - 1), key.p);
        if (!gb_spend(s->b, 1))
            return;
        if (!is_annotation(key) && !is_in(key, constraints, COUNT_OF(constraints)))
            schema__fail(s, name, "is not supported; remove it, or say the same with supported keywords");
        else if (yyjson_obj_getn(v, key.p, key.n) != e)
            schema__fail(s, name, "occurs twice");
        else if (str_eqz(key, "$id") && v != s->root)
            schema__fail(s, name, "is supported only at the root: references are resolved within the schema");
        else if (str_eqz(key, "uniqueItems") && !yyjson_is_false(e))
            schema__fail(s, name, "is not supported (true): it can't be expressed as a grammar");
        else if ((str_eqz(key, "nullable")) && !yyjson_is_bool(e))
            schema__fail(s, name, "must be true or false");
    }
}

/* Does the part say anything that has not been used? */
static bool says_something(const struct spart *p)
{
    size_t i, n;
    yyjson_val *k, *e;
    if (!yyjson_obj_size(p->v))
        return false;
    yyjson_obj_foreach(p->v, i, n, k, e)
    {
        struct str key = json_str(k);
        bool used = (p->used & USED_REF && str_eqz(key, "$ref")) || (p->used & USED_ALL_OF && str_eqz(key, "allOf")) ||
                    (p->used & USED_ANY_OF && str_eqz(key, "anyOf")) || (p->used & USED_ONE_OF && str_eqz(key, "oneOf"));
        if (!used && !is_annotation(key) && !str_eqz(key, "uniqueItems"))
            return true;
    }
    return false;
}

yyjson_val *schema__get(const struct sset *set, uint32_t i, const char *key)
{
    return yyjson_obj_get(set->part[i].v, key);
}

/* ---- sets ---- */

void schema__add(struct schema *s, struct sset *set, yyjson_val *v, uint32_t parent)
{
    if (yyjson_is_bool(v)) {
        set->never |= yyjson_is_false(v);
        return;
    }
    if (!yyjson_is_obj(v)) {
        gb_fail(s->b, STATUS_INVALID, "at #%s: a schema must be an object, true or false, not %s", s->path, json_type_name(v));
        return;
    }
    for (uint32_t i = parent; i != G_NONE; i = set->part[i].parent)
        if (set->part[i].v == v && set->part[i].used & (USED_REF | USED_ALL_OF)) {
            schema__fail(s, "$ref", "refers to itself without anything in between");
            return;
        }
    for (uint32_t i = 0; i < set->n; i++)
        if (set->part[i].v == v && !(set->part[i].used & CHOSEN))
            return;
    if (set->n == SET_PARTS_MAX) {
        gb_fail(s->b, STATUS_EXHAUSTED, "at #%s: more than %d schemas apply at once", s->path, SET_PARTS_MAX);
        return;
    }
    check_keywords(s, v);
    set->part[set->n++] = (struct spart){v, 0, parent};
}

/* %XX of a URI fragment. */
static struct str unescape(struct schema *s, struct str f)
{
    char *out = arena_alloc(&s->b->arena, f.n + 1);
    struct gread r = {f, 0};
    size_t n = 0;
    uint32_t code;
    if (!out)
        return f;
    for (int c; (c = gr_peek(&r)) >= 0;) {
        size_t at = r.at++;
        if (c == '%' && gr_hex(&r, 2, &code))
            out[n++] = (char)code;
        else
            out[n++] = f.p[at], r.at = at + 1;
    }
    return (struct str){out, n};
}

static void resolve(struct schema *s, struct sset *set, uint32_t i, yyjson_val *ref)
{
    struct str text = json_str(ref);
    yyjson_val *v = NULL;
    set->part[i].used |= USED_REF;
    if (!yyjson_is_str(ref) || !text.n || text.p[0] != '#' || (text.n > 1 && text.p[1] != '/')) {
        schema__fail(s, "$ref", "'%.*s' is not supported: only references within the schema (#, #/…)",
                     (int)MIN_OF(text.n, (size_t)80), text.p ? text.p : "");
        return;
    }
    struct str pointer = unescape(s, (struct str){text.p + 1, text.n - 1});
    v = pointer.n ? yyjson_ptr_getn(s->root, pointer.p, pointer.n) : s->root;
    if (!v) {
        schema__fail(s, "$ref", "'%.*s' leads nowhere", (int)MIN_OF(text.n, (size_t)80), text.p);
        return;
    }
    schema__add(s, set, v, i);
}

/* A part whose branch was chosen says less than the same schema untouched, so both may be there. */
static int by_place(const void *x, const void *y)
{
    const struct spart *a = x, *b = y;
    if (a->v != b->v)
        return a->v < b->v ? -1 : 1;
    return (int)(a->used & CHOSEN) - (int)(b->used & CHOSEN);
}

static void sort(struct sset *set)
{
    uint32_t n = 0;
    if (set->n > 1)
        qsort(set->part, set->n, sizeof set->part[0], by_place);
    for (uint32_t i = 0; i < set->n; i++)
        if (!n || by_place(&set->part[n - 1], &set->part[i]) != 0)
            set->part[n++] = set->part[i];
    set->n = n;
}

void schema__normalise(struct schema *s, struct sset *set)
{
    uint32_t n = 0;
    size_t k, max;
    yyjson_val *e;
    for (uint32_t i = 0; i < set->n && s->b->rc == 0; i++) {
        struct spart *p = &set->part[i];
        yyjson_val *ref = p->used & USED_REF ? NULL : schema__get(set, i, "$ref");
        yyjson_val *all = p->used & USED_ALL_OF ? NULL : schema__get(set, i, "allOf");
        if (ref)
            resolve(s, set, i, ref);
        if (all && (!yyjson_is_arr(all) || yyjson_arr_size(all) == 0))
            schema__fail(s, "allOf", "must be an array of at least one schema");
        if (all) {
            p->used |= USED_ALL_OF;
            yyjson_arr_foreach(all, k, max, e) schema__add(s, set, e, i);
        }
    }
    for (uint32_t i = 0; i < set->n; i++)
        if (says_something(&set->part[i]))
            set->part[n++] = set->part[i];
    set->n = n;
    for (uint32_t i = 0; i < n; i++)
        set->part[i].parent = G_NONE;
    sort(set);
}

/* ---- types ---- */

static uint32_t type_bit(struct schema *s, yyjson_val *v)
{
    static const struct {
        const char *name;
        uint32_t bits;
    } names[] = {{"null", T_NULL},     {"boolean", T_BOOLEAN},           {"string", T_STRING}, {"integer", T_INTEGER},
                 {"object", T_OBJECT}, {"number", T_NUMBER | T_INTEGER}, {"array", T_ARRAY}};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (yyjson_is_str(v) && str_eqz(json_str(v), names[i].name))
            return names[i].bits;
    schema__fail(s, "type", "'%.*s' is none of null, boolean, string, integer, number, object, array",
                 (int)MIN_OF(json_str(v).n, (size_t)40), json_str(v).p ? json_str(v).p : json_type_name(v));
    return 0;
}

static uint32_t declared_types(struct schema *s, const struct sset *set, uint32_t i)
{
    yyjson_val *type = schema__get(set, i, "type"), *e;
    uint32_t bits = 0;
    size_t k, n;
    if (!type)
        return T_ALL;
    if (yyjson_is_arr(type)) {
        yyjson_arr_foreach(type, k, n, e) bits |= type_bit(s, e);
    } else {
        bits = type_bit(s, type);
    }
    return bits | (yyjson_is_true(schema__get(set, i, "nullable")) ? T_NULL : 0);
}

static uint32_t implied_types(const struct sset *set, uint32_t i)
{
    static const struct {
        const char *key;
        uint32_t bits;
    } rows[] = {
        {"properties", T_OBJECT},       {"required", T_OBJECT},      {"additionalProperties", T_OBJECT},
        {"minProperties", T_OBJECT},    {"maxProperties", T_OBJECT}, {"items", T_ARRAY},
        {"prefixItems", T_ARRAY},       {"minItems", T_ARRAY},       {"maxItems", T_ARRAY},
        {"minLength", T_STRING},        {"maxLength", T_STRING},     {"pattern", T_STRING},
        {"format", T_STRING},           {"minimum", T_NUMBER},       {"maximum", T_NUMBER},
        {"exclusiveMinimum", T_NUMBER}, {"multipleOf", T_NUMBER},    {"exclusiveMaximum", T_NUMBER},
    };
    uint32_t bits = 0;
    for (size_t k = 0; k < COUNT_OF(rows); k++)
        if (schema__get(set, i, rows[k].key))
            bits |= rows[k].bits == T_NUMBER ? T_NUMBER | T_INTEGER : rows[k].bits;
    return bits;
}

uint32_t schema__types(struct schema *s, const struct sset *set)
{
    uint32_t bits = T_ALL, implied = 0;
    for (uint32_t i = 0; i < set->n; i++) {
        bits &= declared_types(s, set, i);
        implied |= implied_types(set, i);
    }
    return bits == T_ALL && implied ? implied : bits;
}

/* ---- counts ---- */

/* A count: a whole number from 0, at most UINT32_MAX - 1. */
static bool count_of(struct schema *s, const char *key, yyjson_val *v, uint32_t *out)
{
    uint64_t u;
    struct str text = {yyjson_get_raw(v), yyjson_get_len(v)};
    if (yyjson_is_raw(v) && str_to_u64(text, &u)) {
        *out = (uint32_t)MIN_OF(u, (uint64_t)UINT32_MAX - 1);
        return true;
    }
    schema__fail(s, key, "must be a whole number from 0");
    return false;
}

uint32_t schema__most(struct schema *s, const struct sset *set, const char *key, uint32_t none)
{
    uint32_t most = none, n;
    for (uint32_t i = 0; i < set->n; i++) {
        yyjson_val *v = schema__get(set, i, key);
        if (v && count_of(s, key, v, &n))
            most = most == none ? n : MAX_OF(most, n);
    }
    return most;
}

uint32_t schema__least(struct schema *s, const struct sset *set, const char *key, uint32_t none)
{
    uint32_t least = none, n;
    for (uint32_t i = 0; i < set->n; i++) {
        yyjson_val *v = schema__get(set, i, key);
        if (v && count_of(s, key, v, &n))
            least = least == none ? n : MIN_OF(least, n);
    }
    return least;
}

/* ---- drawing ---- */

static void draw_types(struct schema *s, const struct sset *set, uint32_t types, uint32_t from, uint32_t to)
{
    struct gbuild *b = s->b;
    if (types & T_NULL)
        gb_eps(b, gb_z(b, from, "null"), to);
    if (types & T_BOOLEAN)
        gb_call(b, from, gjson_rule(&s->j, GJSON_LITERAL_BOOL), to);
    if (types & T_STRING)
        schema__string(s, set, from, to);
    if (types & (T_NUMBER | T_INTEGER))
        schema__number(s, set, !(types & T_NUMBER), from, to);
    if (types & T_OBJECT)
        schema__object(s, set, from, to);
    if (types & T_ARRAY)
        schema__array(s, set, from, to);
}

/* One of the branches of part i's `key`, together with the rest of the set. */
static void draw_branches(struct schema *s, const struct sset *set, uint32_t i, const char *key, uint32_t used, uint32_t from,
                          uint32_t to)
{
    yyjson_val *branches = schema__get(set, i, key), *e;
    size_t k, n;
    if (!yyjson_is_arr(branches) || yyjson_arr_size(branches) == 0) {
        schema__fail(s, key, "must be an array of at least one schema");
        return;
    }
    if (used == USED_ONE_OF)
        schema__check_one_of(s, branches);
    yyjson_arr_foreach(branches, k, n, e)
    {
        struct sset one = *set;
        size_t before = schema__enter(s, key, (struct str){0});
        one.part[i].used |= used;
        schema__add(s, &one, e, G_NONE);
        if (s->b->rc == 0)
            gb_call(s->b, from, schema__rule(s, &one), to);
        schema__leave(s, before);
    }
}

static void draw(struct schema *s, const struct sset *set, uint32_t from, uint32_t to)
{
    if (set->never)
        return; /* nothing leads on: whoever needs it is cut off */
    for (uint32_t i = 0; i < set->n; i++) {
        if (!(set->part[i].used & USED_ANY_OF) && schema__get(set, i, "anyOf")) {
            draw_branches(s, set, i, "anyOf", USED_ANY_OF, from, to);
            return;
        }
        if (!(set->part[i].used & USED_ONE_OF) && schema__get(set, i, "oneOf")) {
            draw_branches(s, set, i, "oneOf", USED_ONE_OF, from, to);
            return;
        }
    }
    uint32_t types = schema__types(s, set);
    if (schema__enum(s, set, types, from, to))
        return;
    if (types == T_ALL)
        gb_call(s->b, from, gjson_rule(&s->j, GJSON_VALUE), to);
    else
        draw_types(s, set, types, from, to);
}

static uint32_t *known_rule(struct schema *s, const struct sset *set)
{
    uint64_t key[2 * SET_PARTS_MAX + 1];
    size_t n = 0;
    memset(key, 0, sizeof key);
    key[n++] = set->never;
    for (uint32_t i = 0; i < set->n; i++) {
        key[n++] = (uintptr_t)set->part[i].v;
        key[n++] = set->part[i].used & CHOSEN;
    }
    struct str k = {(const char *)key, n * sizeof key[0]};
    uint32_t *rule = map_get(&s->rules, k);
    if (rule)
        return rule;
    rule = ARENA_NEW(&s->b->arena, uint32_t);
    void *kept = arena_alloc(&s->b->arena, k.n);
    if (!rule || !kept) {
        gb_fail(s->b, STATUS_NOMEM, "no memory to compile the schema");
        return NULL;
    }
    memcpy(kept, key, k.n);
    *rule = G_NONE;
    if (map_put(&s->rules, (struct str){kept, k.n}, rule) < 0) {
        gb_fail(s->b, STATUS_NOMEM, "no memory to compile the schema");
        return NULL;
    }
    return rule;
}

uint32_t schema__rule(struct schema *s, struct sset *set)
{
    schema__normalise(s, set);
    uint32_t *rule = s->b->rc == 0 ? known_rule(s, set) : NULL;
    if (!rule)
        return 0;
    if (*rule != G_NONE)
        return *rule;
    if (s->depth >= s->b->max_depth) {
        gb_fail(s->b, STATUS_EXHAUSTED, "the schema is nested more than %u deep, at #%s", s->b->max_depth, s->path);
        return 0;
    }
    char *name = arena_printf(&s->b->arena, "the schema at #%s", s->path);
    *rule = gb_rule(s->b, str_of(name));
    if (s->b->rc < 0)
        return 0;
    uint32_t result = *rule;
    struct grule r = s->b->rules[result];
    s->depth++;
    draw(s, set, r.start, r.end);
    s->depth--;
    return result;
}

static uint32_t compile(struct gbuild *b, yyjson_val *root)
{
    struct schema s = {.b = b, .j = {.b = b}, .root = root};
    struct sset set = {0};
    map_init(&s.rules, (uintptr_t)b * 0x9e3779b97f4a7c15u); /* an address: nobody outside can foresee collisions */
    schema__add(&s, &set, root, G_NONE);
    uint32_t rule = b->rc == 0 ? schema__rule(&s, &set) : 0;
    map_release(&s.rules);
    return rule;
}

uint32_t grammar__schema(struct gbuild *b, struct str source)
{
    yyjson_read_err why = {0};
    if (json_scan_depth(source, b->max_depth * 4) >= b->max_depth * 4) {
        gb_fail(b, STATUS_EXHAUSTED, "the schema is nested too deeply");
        return 0;
    }
    char *text = arena_strdup(&b->arena, source);
    yyjson_doc *doc = text ? yyjson_read_opts(text, source.n, YYJSON_READ_NUMBER_AS_RAW, NULL, &why) : NULL;
    if (!doc) {
        gb_fail(b, STATUS_INVALID, "the schema is not valid JSON: %s at byte %zu", why.msg ? why.msg : "no memory", why.pos);
        return 0;
    }
    uint32_t rule = compile(b, yyjson_doc_get_root(doc));
    yyjson_doc_free(doc);
    return rule;
}
