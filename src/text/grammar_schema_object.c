/* grammar_schema_object.c: objects: members in the order in which the schema declares them, those that aren't required may be left out.
 *
 *     start --{ ws--> choose(0) ...                       choose(i): a member is due, the i-th or, past optional ones, a later one
 *     choose(i) --member i--> behind(i+1)                 behind(i): members up to i are written or left out
 *     behind(i) --, ws--> choose(i)                       behind(i) --ws }--> end, when none from i on is required
 *
 * Members that are not declared are drawn only where additionalProperties is there (true or a schema), behind the declared ones, with keys that
 * differ from all declared ones; where nothing is declared, any members. Keys are written in the shortest way, so that "differs" is about text. */
#include "base/size.h"
#include "base/status.h"
#include "text/grammar_schema_priv.h"

#define PROPERTIES_MAX 2000u
#define NAME_BYTES_MAX 1024u /* draw_keys goes as deep */
#define OPTIONAL_MAX   500u  /* in a row: each is a stack of its own behind a comma */

struct property {
    struct str name;
    bool required;
};

struct object {
    struct schema *s;
    const struct sset *set;
    struct property *v;
    uint32_t n, cap;
    bool extras;               /* members that are not declared may be written */
    uint32_t *choose, *behind; /* [n + 1] nodes */
};

/* ---- what is declared ---- */

static struct property *find(struct object *o, struct str name)
{
    for (uint32_t i = 0; i < o->n; i++)
        if (str_eq(o->v[i].name, name))
            return &o->v[i];
    return NULL;
}

static struct property *declare(struct object *o, struct str name)
{
    struct property *p = find(o, name);
    if (p || !gb_spend(o->s->b, 1 + o->n))
        return p;
    if (o->n == o->cap) {
        gb_fail(o->s->b, STATUS_EXHAUSTED, "at #%s: more than %u properties", o->s->path, PROPERTIES_MAX);
        return NULL;
    }
    if (name.n > NAME_BYTES_MAX)
        gb_fail(o->s->b, STATUS_EXHAUSTED, "at #%s: a property's name has more than %u bytes", o->s->path, NAME_BYTES_MAX);
    o->v[o->n] = (struct property){name, false};
    return &o->v[o->n++];
}

static void read_properties(struct object *o)
{
    struct schema *s = o->s;
    size_t k, n;
    yyjson_val *key, *e;
    for (uint32_t i = 0; i < o->set->n; i++) {
        yyjson_val *props = schema__get(o->set, i, "properties");
        if (props && !yyjson_is_obj(props)) {
            schema__fail(s, "properties", "must be an object of schemas");
            return;
        }
        if (!yyjson_obj_size(props))
            continue;
        yyjson_obj_foreach(props, k, n, key, e)
        {
            struct str name = json_str(key);
            if (gb_spend(s->b, 1 + yyjson_obj_size(props)) && yyjson_obj_getn(props, name.p, name.n) != e)
                schema__fail(s, "properties", "'%.*s' occurs twice", (int)MIN_OF(name.n, (size_t)60), name.p);
            declare(o, name);
        }
    }
}

static void read_required(struct object *o)
{
    size_t k, n;
    yyjson_val *e;
    for (uint32_t i = 0; i < o->set->n; i++) {
        yyjson_val *names = schema__get(o->set, i, "required");
        if (names && !yyjson_is_arr(names))
            schema__fail(o->s, "required", "must be an array of names");
        yyjson_arr_foreach(names, k, n, e)
        {
            struct property *p = yyjson_is_str(e) ? declare(o, json_str(e)) : NULL;
            if (!yyjson_is_str(e))
                schema__fail(o->s, "required", "must be an array of names");
            if (p)
                p->required = true;
        }
    }
}

/* Does additionalProperties of part i apply to this name? */
static yyjson_val *additional(const struct object *o, uint32_t i, struct str name)
{
    yyjson_val *props = schema__get(o->set, i, "properties");
    return name.p && yyjson_obj_getn(props, name.p, name.n) ? NULL : schema__get(o->set, i, "additionalProperties");
}

/* All that part by part is said about a member (name.p NULL: about those that are not declared). */
static void gather(struct object *o, struct str name, struct sset *out)
{
    *out = (struct sset){0};
    for (uint32_t i = 0; i < o->set->n; i++) {
        yyjson_val *own = name.p ? yyjson_obj_getn(schema__get(o->set, i, "properties"), name.p, name.n) : NULL;
        yyjson_val *rest = additional(o, i, name);
        if (own)
            schema__add(o->s, out, own, G_NONE);
        if (rest)
            schema__add(o->s, out, rest, G_NONE);
    }
}

static bool wants_extras(struct object *o)
{
    bool said = false;
    struct sset extra;
    for (uint32_t i = 0; i < o->set->n; i++)
        said |= schema__get(o->set, i, "additionalProperties") != NULL;
    gather(o, (struct str){0}, &extra);
    return !extra.never && (said || o->n == 0);
}

/* ---- drawing ---- */

/* "name": value, as a rule. G_NONE: nothing is valid there. */
static uint32_t member(struct object *o, struct str name)
{
    struct schema *s = o->s;
    struct gbuild *b = s->b;
    struct sset value;
    size_t before = schema__enter(s, "properties", name);
    gather(o, name, &value);
    uint32_t rule = gb_rule(b, (struct str){0});
    if (b->rc == 0) {
        struct grule r = b->rules[rule];
        uint32_t at = gjson_put_str(&s->j, r.start, name);
        at = gjson_put(&s->j, gb_z(b, at, ":"), GJSON_WS);
        gb_call(b, at, schema__rule(s, &value), r.end);
    }
    schema__leave(s, before);
    return rule;
}

/* Characters of a key behind a common start with declared names: those that go on like one, and all others. */
struct key_trie {
    struct gbuild *b;
    uint32_t rest, close; /* inside a key that differs already; behind the closing quote */
};

/* At `from`, names v[0..n) (sorted by their bytes) share the first `at` bytes. Depth is a name's length. */
static void draw_keys(struct key_trie *t, const struct property *v, uint32_t n, size_t at, uint32_t from)
{
    struct gbuild *b = t->b;
    struct gset others = {0};
    uint32_t i = 0;
    bool ends = n && v[0].name.n == at;
    while (i < n && b->rc == 0) {
        if (v[i].name.n == at) {
            i++;
            continue;
        }
        struct gread r = {v[i].name, at};
        uint32_t code, first = i;
        if (!gr_code(&r, &code))
            break;
        while (i < n && str_starts(v[i].name, (struct str){v[first].name.p, r.at}))
            i++;
        gset_add(b, &others, code, code);
        draw_keys(t, v + first, i - first, r.at, gb_code(b, from, code));
    }
    gset_negate(b, &others);
    gb_set(b, from, &others, t->rest);
    gset_release(&others);
    if (!ends)
        gb_byte(b, from, '"', '"', t->close);
}

static void sort_names(struct property *v, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t k = i; k > 0; k--) {
            size_t m = MIN_OF(v[k].name.n, v[k - 1].name.n);
            int c = memcmp(v[k - 1].name.p, v[k].name.p, m);
            if (c < 0 || (c == 0 && v[k - 1].name.n <= v[k].name.n))
                break;
            struct property p = v[k];
            v[k] = v[k - 1], v[k - 1] = p;
        }
}

/* A member whose key is none of the declared ones. */
static uint32_t extra_member(struct object *o)
{
    struct schema *s = o->s;
    struct gbuild *b = s->b;
    struct sset value;
    struct key_trie t = {b, gb_node(b), gb_node(b)};
    struct property *sorted = arena_array(&b->arena, o->n, sizeof *sorted);
    size_t before = schema__enter(s, "additionalProperties", (struct str){0});
    struct grange all = {0, G_CODE_MAX};
    uint32_t rule = gb_rule(b, (struct str){0});
    gather(o, (struct str){0}, &value);
    if (!sorted)
        gb_fail(b, STATUS_NOMEM, "no memory to compile the schema");
    if (b->rc == 0 && gb_spend(b, (uint64_t)o->n * o->n)) {
        struct grule r = b->rules[rule];
        if (o->n)
            memcpy(sorted, o->v, o->n * sizeof *sorted);
        sort_names(sorted, o->n);
        b->json = true;
        draw_keys(&t, sorted, o->n, 0, gb_z(b, r.start, "\""));
        gb_set(b, t.rest, &(struct gset){&all, 1, 1}, t.rest);
        b->json = false;
        gb_byte(b, t.rest, '"', '"', t.close);
        uint32_t at = gjson_put(&s->j, gb_z(b, t.close, ":"), GJSON_WS);
        gb_call(b, at, schema__rule(s, &value), r.end);
    }
    schema__leave(s, before);
    return rule;
}

static bool make_nodes(struct object *o)
{
    struct gbuild *b = o->s->b;
    uint32_t row = 0;
    o->choose = arena_array(&b->arena, (size_t)o->n + 1, sizeof *o->choose);
    o->behind = arena_array(&b->arena, (size_t)o->n + 1, sizeof *o->behind);
    if (!o->choose || !o->behind) {
        gb_fail(b, STATUS_NOMEM, "no memory to compile the schema");
        return false;
    }
    for (uint32_t i = 0; i <= o->n; i++) {
        row = i < o->n && !o->v[i].required ? row + 1 : 0;
        if (row > OPTIONAL_MAX)
            gb_fail(b, STATUS_EXHAUSTED, "at #%s: more than %u properties in a row that are not required", o->s->path,
                    OPTIONAL_MAX);
        o->choose[i] = gb_node(b);
        o->behind[i] = gb_node(b);
    }
    return b->rc == 0;
}

static void draw_members(struct object *o, uint32_t from, uint32_t to)
{
    struct schema *s = o->s;
    struct gbuild *b = s->b;
    bool done = true; /* none from i on is required */
    uint32_t close = gb_node(b);
    gb_byte(b, close, '}', '}', to);
    if (o->extras)
        gb_call(b, o->choose[o->n], extra_member(o), o->behind[o->n]);
    for (uint32_t i = o->n; b->rc == 0; i--) {
        if (i < o->n) {
            gb_call(b, o->choose[i], member(o, o->v[i].name), o->behind[i + 1]);
            if (!o->v[i].required)
                gb_eps(b, o->choose[i], o->choose[i + 1]);
            done &= !o->v[i].required;
        }
        gb_eps(b, gjson_put(&s->j, gb_z(b, o->behind[i], ","), GJSON_WS), o->choose[i]);
        if (done)
            gb_eps(b, gjson_put(&s->j, o->behind[i], GJSON_WS), close);
        if (i == 0)
            break;
    }
    uint32_t open = gjson_put(&s->j, gb_z(b, from, "{"), GJSON_WS);
    gb_eps(b, open, o->choose[0]);
    if (done)
        gb_eps(b, open, close);
}

/* Only members that are not declared, between min and max of them. A key may come twice, so more than one can't be promised. */
static void draw_map(struct object *o, uint32_t min, uint32_t max, uint32_t from, uint32_t to)
{
    struct schema *s = o->s;
    struct gbuild *b = s->b;
    uint32_t open = gjson_put(&s->j, gb_z(b, from, "{"), GJSON_WS), close = gb_node(b), first = gb_node(b), last = gb_node(b);
    uint32_t more = gb_rule(b, (struct str){0}), one = max ? extra_member(o) : 0;
    struct grule r = b->rc == 0 ? b->rules[more] : (struct grule){0};
    if (min == 0)
        gb_eps(b, open, close);
    if (max) {
        gb_call(b, gjson_put(&s->j, gb_z(b, r.start, ","), GJSON_WS), one, r.end);
        gb_call(b, open, one, first);
        gb_repeat(b, first, more, 0, max == G_UNBOUNDED ? max : max - 1, last);
        gb_eps(b, gjson_put(&s->j, last, GJSON_WS), close);
    }
    gb_byte(b, close, '}', '}', to);
}

static void check_counts(struct object *o, uint32_t min, uint32_t max)
{
    uint32_t n_required = 0;
    for (uint32_t i = 0; i < o->n; i++)
        n_required += o->v[i].required;
    if (min > n_required && !(o->n == 0 && min == 1))
        schema__fail(o->s, "minProperties",
                     "is supported up to the number of required properties, or 1 where none are declared");
    if (o->n && (max < o->n || (max != G_UNBOUNDED && o->extras)))
        schema__fail(o->s, "maxProperties", "is supported from the number of declared properties on, without additional ones");
}

void schema__object(struct schema *s, const struct sset *set, uint32_t from, uint32_t to)
{
    struct object o = {.s = s, .set = set, .cap = PROPERTIES_MAX};
    uint32_t min = schema__most(s, set, "minProperties", G_UNBOUNDED),
             max = schema__least(s, set, "maxProperties", G_UNBOUNDED);
    size_t most = 1;
    for (uint32_t i = 0; i < set->n; i++)
        most += yyjson_obj_size(schema__get(set, i, "properties")) + yyjson_arr_size(schema__get(set, i, "required"));
    o.cap = (uint32_t)MIN_OF(most, (size_t)PROPERTIES_MAX);
    o.v = arena_array(&s->b->arena, o.cap, sizeof *o.v);
    if (!o.v) {
        gb_fail(s->b, STATUS_NOMEM, "no memory to compile the schema");
        return;
    }
    read_properties(&o);
    read_required(&o);
    o.extras = wants_extras(&o);
    min = min == G_UNBOUNDED ? 0 : min;
    check_counts(&o, min, max);
    if (s->b->rc < 0 || max < min)
        return;
    if (o.n == 0)
        draw_map(&o, min, o.extras ? max : 0, from, to);
    else if (make_nodes(&o))
        draw_members(&o, from, to);
}
