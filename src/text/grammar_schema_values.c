/* grammar_schema_values.c: strings, numbers, arrays and listed values of a JSON Schema. */
#include "base/buf.h"
#include "base/size.h"
#include "base/status.h"
#include "text/grammar_schema_priv.h"

#define FRACTION_MAX 16u

/* ---- strings ---- */

static struct str raw(yyjson_val *v)
{
    return (struct str){yyjson_get_raw(v), yyjson_get_len(v)};
}

/* The one value of `key` in the set; several different ones can't be met at once. */
static bool only(struct schema *s, const struct sset *set, const char *key, struct str *out)
{
    bool found = false;
    for (uint32_t i = 0; i < set->n; i++) {
        yyjson_val *v = schema__get(set, i, key);
        if (!v)
            continue;
        if (!yyjson_is_str(v))
            schema__fail(s, key, "must be a string");
        else if (found && !str_eq(*out, json_str(v)))
            schema__fail(s, key, "several that apply at once are not supported");
        *out = json_str(v);
        found = true;
    }
    return found;
}

/* A string whose inside matches the regular expression, which must not allow more lengths than `want`. */
static void draw_regex(struct schema *s, const char *keyword, struct str regex, struct gspan want, uint32_t from, uint32_t to)
{
    struct gbuild *b = s->b;
    struct error err = {0}, *outer = b->err;
    struct gspan is = {0};
    uint32_t open = gb_z(b, from, "\""), close = gb_node(b);
    if (b->rc < 0)
        return;
    b->json = true;
    b->err = &err;
    uint32_t rule = grammar__regex(b, regex, true, &is);
    b->json = false;
    b->err = outer;
    if (b->rc < 0) {
        int code = b->rc;
        b->rc = 0;
        if (code == STATUS_INVALID)
            schema__fail(s, keyword, "%s", err.text);
        else
            gb_fail(b, code, "%s", err.text);
        return;
    }
    if (is.min < want.min || is.max > want.max)
        schema__fail(
            s, is.min < want.min ? "minLength" : "maxLength",
            "is supported beside %s only where that alone sees to it: put the length into the pattern, as in ^[a-z]{1,10}$",
            keyword);
    gb_call(b, open, rule, close);
    gb_byte(b, close, '"', '"', to);
}

static void draw_counted(struct schema *s, uint32_t min, uint32_t max, uint32_t from, uint32_t to)
{
    struct gbuild *b = s->b;
    uint32_t open = gb_z(b, from, "\""), close = gb_node(b);
    if (max < min)
        return;
    gb_repeat(b, open, gjson_rule(&s->j, GJSON_CHAR), min, max, close);
    gb_byte(b, close, '"', '"', to);
}

void schema__string(struct schema *s, const struct sset *set, uint32_t from, uint32_t to)
{
    struct str pattern = {0}, format = {0};
    uint32_t min = schema__most(s, set, "minLength", G_UNBOUNDED), max = schema__least(s, set, "maxLength", G_UNBOUNDED);
    bool has_pattern = only(s, set, "pattern", &pattern), has_format = only(s, set, "format", &format);
    struct gspan want = {min == G_UNBOUNDED ? 0 : min, max};
    const char *regex = has_format ? grammar__format_regex(format) : NULL;
    if (has_format && !regex)
        schema__fail(s, "format", "'%.*s' is not supported; supported: %s", (int)MIN_OF(format.n, (size_t)40), format.p,
                     grammar__format_names());
    else if (has_pattern && has_format)
        schema__fail(s, "pattern", "together with format is not supported");
    else if (has_pattern || has_format)
        draw_regex(s, has_pattern ? "pattern" : "format", has_pattern ? pattern : str_of(regex), want, from, to);
    else if (want.min || want.max != G_UNBOUNDED)
        draw_counted(s, want.min, want.max, from, to);
    else
        gb_call(s->b, from, gjson_rule(&s->j, GJSON_STRING), to);
}

/* ---- numbers ---- */

/* Make `bound` the tighter of itself and the value of `key`; sign: +1 for lower bounds, -1 for upper ones. */
static void tighten(struct schema *s, yyjson_val *v, const char *key, bool exclusive, int sign, struct gbound *bound)
{
    struct gbound own = {.set = true, .exclusive = exclusive};
    if (!v)
        return;
    if (!yyjson_is_raw(v)) {
        schema__fail(s, key, "must be a number");
    } else if (!gdecimal_read(raw(v), &own.at)) {
        schema__fail(s, key, "is %.*s; supported: numbers of at most 18 digits before and behind the point",
                     (int)MIN_OF(raw(v).n, (size_t)40), raw(v).p);
    } else {
        int c = bound->set ? gdecimal_compare(&own.at, &bound->at) * sign : 1;
        if (c > 0 || (c == 0 && exclusive))
            *bound = own;
    }
}

/* draft-04: a boolean that makes minimum exclusive. */
static bool old_exclusive(const struct sset *set, uint32_t i, const char *key)
{
    return yyjson_is_true(schema__get(set, i, key));
}

static void bounds(struct schema *s, const struct sset *set, struct gbound *lo, struct gbound *hi)
{
    for (uint32_t i = 0; i < set->n; i++) {
        yyjson_val *above = schema__get(set, i, "exclusiveMinimum"), *below = schema__get(set, i, "exclusiveMaximum");
        tighten(s, schema__get(set, i, "minimum"), "minimum", old_exclusive(set, i, "exclusiveMinimum"), 1, lo);
        tighten(s, schema__get(set, i, "maximum"), "maximum", old_exclusive(set, i, "exclusiveMaximum"), -1, hi);
        tighten(s, yyjson_is_bool(above) ? NULL : above, "exclusiveMinimum", true, 1, lo);
        tighten(s, yyjson_is_bool(below) ? NULL : below, "exclusiveMaximum", true, -1, hi);
    }
}

/* A step of 10^-k limits the digits behind the point, a whole one makes an integer of it. */
static void multiple(struct schema *s, yyjson_val *v, bool *integer, uint32_t *n_fraction, uint32_t *step)
{
    struct gdecimal d;
    uint32_t m = 0;
    if (yyjson_is_raw(v) && gdecimal_read(raw(v), &d) && !d.negative) {
        for (unsigned i = 0; i < d.n_whole && m <= UINT32_MAX / 20; i++)
            m = m * 10 + (uint32_t)(d.whole[i] - '0');
        if (d.n_fraction == 0 && gnumber_multiple_ok(m)) {
            *integer = true;
            *step = m;
            return;
        }
        bool power = d.n_whole == 0 && d.n_fraction > 0 && d.fraction[d.n_fraction - 1] == '1';
        for (unsigned i = 0; power && i + 1 < d.n_fraction; i++)
            power = d.fraction[i] == '0';
        if (power && d.n_fraction <= FRACTION_MAX) {
            *n_fraction = MIN_OF(*n_fraction, d.n_fraction);
            return;
        }
    }
    schema__fail(s, "multipleOf", "supported: whole numbers from 1 to 1000, and 0.1, 0.01, …");
}

void schema__number(struct schema *s, const struct sset *set, bool integer, uint32_t from, uint32_t to)
{
    struct gbound lo = {0}, hi = {0};
    uint32_t n_fraction = FRACTION_MAX, step = 1;
    bool stepped = false;
    bounds(s, set, &lo, &hi);
    for (uint32_t i = 0; i < set->n; i++) {
        yyjson_val *v = schema__get(set, i, "multipleOf");
        if (v && stepped)
            schema__fail(s, "multipleOf", "several that apply at once are not supported");
        if (v)
            multiple(s, v, &integer, &n_fraction, &step);
        stepped |= v != NULL;
    }
    if (s->b->rc < 0)
        return;
    if (!lo.set && !hi.set && !stepped)
        gb_call(s->b, from, gjson_rule(&s->j, integer ? GJSON_INTEGER : GJSON_NUMBER), to);
    else
        gnumber_range(s->b, from, &lo, &hi, integer ? 0 : n_fraction, step, to);
}

/* ---- arrays ---- */

static yyjson_val *prefix_of(const struct sset *set, uint32_t i)
{
    yyjson_val *prefix = schema__get(set, i, "prefixItems"), *items = schema__get(set, i, "items");
    return prefix ? prefix : yyjson_is_arr(items) ? items : NULL;
}

static yyjson_val *rest_of(const struct sset *set, uint32_t i)
{
    yyjson_val *items = schema__get(set, i, "items");
    return yyjson_is_arr(items) ? schema__get(set, i, "additionalItems") : items;
}

/* The rule of element k (G_NONE: of those behind all prefixes). *open: some part says what these are. */
static uint32_t element(struct schema *s, const struct sset *set, uint32_t k, bool *open)
{
    struct sset one = {0};
    size_t before = schema__enter(s, "items", (struct str){0});
    *open = true;
    for (uint32_t i = 0; i < set->n; i++) {
        yyjson_val *prefix = prefix_of(set, i), *rest = rest_of(set, i);
        yyjson_val *v = k < yyjson_arr_size(prefix) ? yyjson_arr_get(prefix, k) : rest;
        *open &= k < yyjson_arr_size(prefix) || rest || !prefix;
        if (v)
            schema__add(s, &one, v, G_NONE);
    }
    *open &= !one.never;
    uint32_t rule = schema__rule(s, &one);
    schema__leave(s, before);
    return rule;
}

static uint32_t n_prefix(struct schema *s, const struct sset *set)
{
    size_t most = 0;
    for (uint32_t i = 0; i < set->n; i++) {
        yyjson_val *prefix = schema__get(set, i, "prefixItems");
        if (prefix && !yyjson_is_arr(prefix))
            schema__fail(s, "prefixItems", "must be an array of schemas");
        else if (schema__get(set, i, "additionalItems") && !yyjson_is_arr(schema__get(set, i, "items")))
            schema__fail(s, "additionalItems", "needs items to be an array");
        most = MAX_OF(most, yyjson_arr_size(prefix_of(set, i)));
    }
    return (uint32_t)MIN_OF(most, (size_t)UINT32_MAX / 2);
}

/* [ first, second … ] with one rule each, then any number of `rest`. May end wherever at least `min` are there. */
static void draw_tuple(struct schema *s, const struct sset *set, uint32_t n, uint32_t min, uint32_t max, uint32_t from,
                       uint32_t to)
{
    struct gbuild *b = s->b;
    bool open;
    uint32_t at = gjson_put(&s->j, gb_z(b, from, "["), GJSON_WS), last = gb_node(b), close = gb_node(b), i = 0;
    if (min == 0)
        gb_eps(b, at, close);
    for (; i < n && i < max && b->rc == 0; i++) {
        uint32_t behind = gb_node(b);
        at = i ? gjson_put(&s->j, gb_z(b, at, ","), GJSON_WS) : at;
        gb_call(b, at, element(s, set, i, &open), behind);
        if (i + 1 >= min)
            gb_eps(b, behind, last);
        at = behind;
    }
    uint32_t rest = element(s, set, G_NONE, &open);
    if (i == n && max > n && (open || min > n) && b->rc == 0) {
        uint32_t more = gb_rule(b, (struct str){0});
        struct grule r = b->rc == 0 ? b->rules[more] : (struct grule){0};
        gb_call(b, gjson_put(&s->j, gb_z(b, r.start, ","), GJSON_WS), rest, r.end);
        gb_repeat(b, at, more, min > n ? min - n : 0, max == G_UNBOUNDED ? max : max - n, last);
    }
    gb_eps(b, gjson_put(&s->j, last, GJSON_WS), close);
    gb_byte(b, close, ']', ']', to);
}

void schema__array(struct schema *s, const struct sset *set, uint32_t from, uint32_t to)
{
    bool open;
    uint32_t min = schema__most(s, set, "minItems", G_UNBOUNDED), max = schema__least(s, set, "maxItems", G_UNBOUNDED);
    uint32_t n = n_prefix(s, set);
    min = min == G_UNBOUNDED ? 0 : min;
    if (s->b->rc < 0 || max < min)
        return;
    if (n) {
        draw_tuple(s, set, n, min, max, from, to);
    } else {
        uint32_t rule = element(s, set, G_NONE, &open);
        gjson_list(&s->j, from, rule, min, open ? max : 0, to);
    }
}

/* ---- enum and const ---- */

static bool equal_to_any(yyjson_val *list, yyjson_val *value)
{
    size_t i, n;
    yyjson_val *e;
    yyjson_arr_foreach(list, i, n, e) if (yyjson_equals(e, value)) return true;
    return false;
}

bool schema__listed(struct schema *s, const struct sset *set, yyjson_val *value)
{
    for (uint32_t i = 0; i < set->n; i++) {
        yyjson_val *one = schema__get(set, i, "const"), *list = schema__get(set, i, "enum");
        if (!gb_spend(s->b, 1 + yyjson_arr_size(list)) || (one && !yyjson_equals(one, value)) ||
            (list && !equal_to_any(list, value)))
            return false;
    }
    return true;
}

static uint32_t type_of(yyjson_val *v)
{
    struct gdecimal d;
    switch (yyjson_get_type(v)) {
    case YYJSON_TYPE_NULL:
        return T_NULL;
    case YYJSON_TYPE_BOOL:
        return T_BOOLEAN;
    case YYJSON_TYPE_STR:
        return T_STRING;
    case YYJSON_TYPE_RAW:
        return gdecimal_read(raw(v), &d) && d.n_fraction == 0 ? T_INTEGER : T_NUMBER;
    case YYJSON_TYPE_OBJ:
        return T_OBJECT;
    default:
        return T_ARRAY;
    }
}

/* An object or array that is listed, with white space between its parts. Depth was bounded when the schema was read. */
static uint32_t put_value(struct schema *s, uint32_t from, yyjson_val *v)
{
    struct gbuild *b = s->b;
    size_t i, n;
    yyjson_val *k, *e;
    if (yyjson_is_str(v))
        return gjson_put_str(&s->j, from, json_str(v));
    if (yyjson_is_raw(v))
        return gb_bytes(b, from, raw(v));
    if (!yyjson_is_ctn(v))
        return gb_z(b, from, yyjson_is_null(v) ? "null" : yyjson_is_true(v) ? "true" : "false");
    bool object = yyjson_is_obj(v);
    from = gjson_put(&s->j, gb_z(b, from, object ? "{" : "["), GJSON_WS);
    if (object && yyjson_obj_size(v)) {
        yyjson_obj_foreach(v, i, n, k, e)
        {
            from = i ? gjson_put(&s->j, gb_z(b, from, ","), GJSON_WS) : from;
            from = gjson_put(&s->j, gb_z(b, gjson_put_str(&s->j, from, json_str(k)), ":"), GJSON_WS);
            from = put_value(s, from, e);
        }
    } else if (!object) {
        yyjson_arr_foreach(v, i, n, e)
        {
            from = i ? gjson_put(&s->j, gb_z(b, from, ","), GJSON_WS) : from;
            from = put_value(s, from, e);
        }
    }
    if (yyjson_get_len(v))
        from = gjson_put(&s->j, from, GJSON_WS);
    return gb_z(b, from, object ? "}" : "]");
}

/* A scalar's text; scalars share a trie. */
static bool scalar_text(struct schema *s, yyjson_val *v, struct str *out)
{
    if (yyjson_is_raw(v)) {
        *out = raw(v);
    } else if (yyjson_is_str(v)) {
        struct buf text;
        buf_init(&text);
        buf_append_json_str(&text, json_str(v));
        out->n = text.n;
        out->p = text.failed ? NULL : arena_strdup(&s->b->arena, buf_str(&text));
        buf_release(&text);
        if (!out->p)
            gb_fail(s->b, STATUS_NOMEM, "no memory to compile the schema");
    } else {
        *out = yyjson_is_null(v) ? STR("null") : yyjson_is_true(v) ? STR("true") : STR("false");
    }
    return s->b->rc == 0;
}

/* One listed value, if its type is allowed and all parts list it: drawn, or its text kept for the trie. */
static void add_listed(struct schema *s, const struct sset *set, uint32_t types, yyjson_val *v, uint32_t from, uint32_t to,
                       struct str *texts, size_t *n)
{
    if (!(types & type_of(v)) || !schema__listed(s, set, v))
        return;
    if (yyjson_is_ctn(v))
        gb_eps(s->b, put_value(s, from, v), to);
    else if (scalar_text(s, v, &texts[*n]))
        (*n)++;
}

static void draw_listed(struct schema *s, const struct sset *set, uint32_t types, yyjson_val *list, uint32_t from, uint32_t to)
{
    struct str *texts = arena_array(&s->b->arena, yyjson_arr_size(list), sizeof *texts);
    size_t n = 0, i, max;
    yyjson_val *v;
    if (!texts) {
        gb_fail(s->b, STATUS_NOMEM, "no memory to compile the schema");
        return;
    }
    yyjson_arr_foreach(list, i, max, v) add_listed(s, set, types, v, from, to, texts, &n);
    gb_any_of(s->b, from, texts, n, to);
}

static void draw_const(struct schema *s, const struct sset *set, uint32_t types, yyjson_val *v, uint32_t from, uint32_t to)
{
    struct str text;
    size_t n = 0;
    add_listed(s, set, types, v, from, to, &text, &n);
    gb_any_of(s->b, from, &text, n, to);
}

/* Beside a list of values only `type` is looked at; what else would have to be checked value by value is refused. */
static void check_alone(struct schema *s, const struct sset *set)
{
    static const char *const others[] = {
        "pattern",       "format",        "minLength",        "maxLength",        "minimum",
        "maximum",       "items",         "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
        "minItems",      "maxItems",      "properties",       "required",         "additionalProperties",
        "minProperties", "maxProperties", "prefixItems"};
    for (uint32_t i = 0; i < set->n; i++)
        for (size_t k = 0; k < COUNT_OF(others); k++)
            if (schema__get(set, i, others[k]))
                schema__fail(s, others[k], "together with enum or const is not supported");
}

bool schema__enum(struct schema *s, const struct sset *set, uint32_t types, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < set->n; i++) {
        yyjson_val *one = schema__get(set, i, "const"), *list = schema__get(set, i, "enum");
        if (!one && !list)
            continue;
        check_alone(s, set);
        if (list && !yyjson_is_arr(list))
            schema__fail(s, "enum", "must be an array of values");
        else if (one)
            draw_const(s, set, types, one, from, to);
        else
            draw_listed(s, set, types, list, from, to);
        return true;
    }
    return false;
}
