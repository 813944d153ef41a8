/* grammar_schema_one_of.c: oneOf means exactly one. A grammar can only choose a branch, so the branches must exclude each other: by their types, by
 * the values they list, or by a property that both require (or one forbids) and that differs in the same sense. That is what generated
 * schemas of tagged unions look like. What can't be shown is refused: anyOf says what the grammar would do. */
#include "base/status.h"
#include "text/grammar_schema_priv.h"

#define PROPERTY_DEPTH 3

static void gather(struct schema *s, yyjson_val *v, struct sset *out)
{
    *out = (struct sset){0};
    schema__add(s, out, v, G_NONE);
    schema__normalise(s, out);
}

/* The first list of values in the set; const counts as one. */
static bool lists(const struct sset *set, yyjson_val **list, yyjson_val **one)
{
    for (uint32_t i = 0; i < set->n; i++) {
        *list = schema__get(set, i, "enum");
        *one = schema__get(set, i, "const");
        if (*one || yyjson_is_arr(*list))
            return true;
    }
    return false;
}

static bool values_differ(struct schema *s, const struct sset *a, const struct sset *b)
{
    yyjson_val *list, *one, *e, *list_b, *one_b;
    size_t i, n;
    if (!lists(a, &list, &one) || !lists(b, &list_b, &one_b))
        return false;
    if (one)
        return !schema__listed(s, b, one);
    yyjson_arr_foreach(list, i, n, e) if (schema__listed(s, b, e)) return false;
    return true;
}

static bool requires(const struct sset *set, struct str name)
{
    size_t k, n;
    yyjson_val *e;
    for (uint32_t i = 0; i < set->n; i++) {
        yyjson_val *names = schema__get(set, i, "required");
        yyjson_arr_foreach(names, k, n, e) if (yyjson_is_str(e) && str_eq(json_str(e), name)) return true;
    }
    return false;
}

static yyjson_val *property(const struct sset *set, struct str name)
{
    yyjson_val *v = NULL;
    for (uint32_t i = 0; i < set->n && !v; i++)
        v = yyjson_obj_getn(schema__get(set, i, "properties"), name.p, name.n);
    return v;
}

static bool forbids(const struct sset *set, struct str name)
{
    for (uint32_t i = 0; i < set->n; i++)
        if (yyjson_is_false(schema__get(set, i, "additionalProperties")) &&
            !yyjson_obj_getn(schema__get(set, i, "properties"), name.p, name.n))
            return true;
    return false;
}

static bool exclude(struct schema *s, const struct sset *a, const struct sset *b, int depth);

static bool property_differs(struct schema *s, const struct sset *a, const struct sset *b, int depth)
{
    struct sset pa, pb;
    size_t k, n;
    yyjson_val *e;
    for (uint32_t i = 0; i < a->n && s->b->rc == 0; i++) {
        yyjson_val *names = schema__get(a, i, "required");
        yyjson_arr_foreach(names, k, n, e)
        {
            if (!yyjson_is_str(e))
                continue;
            struct str name = json_str(e);
            if (forbids(b, name))
                return true;
            if (!requires(b, name) || !property(a, name) || !property(b, name))
                continue;
            gather(s, property(a, name), &pa);
            gather(s, property(b, name), &pb);
            if (exclude(s, &pa, &pb, depth + 1))
                return true;
        }
    }
    return false;
}

static bool exclude(struct schema *s, const struct sset *a, const struct sset *b, int depth)
{
    uint32_t both = schema__types(s, a) & schema__types(s, b);
    if (s->b->rc < 0 || a->never || b->never || both == 0 || values_differ(s, a, b))
        return true;
    return both == T_OBJECT && depth < PROPERTY_DEPTH && (property_differs(s, a, b, depth) || property_differs(s, b, a, depth));
}

void schema__check_one_of(struct schema *s, yyjson_val *branches)
{
    size_t n = yyjson_arr_size(branches);
    struct sset a, b;
    if (n > 64) {
        schema__fail(s, "oneOf", "has %zu branches; at most 64 are accepted", n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n && s->b->rc == 0; k++) {
            gather(s, yyjson_arr_get(branches, i), &a);
            gather(s, yyjson_arr_get(branches, k), &b);
            if (s->b->rc == 0 && !exclude(s, &a, &b, 0))
                schema__fail(
                    s, "oneOf",
                    "branches %zu and %zu are not known to exclude each other (by type, by values, or by a required property "
                    "that differs); use anyOf",
                    i, k);
        }
}
