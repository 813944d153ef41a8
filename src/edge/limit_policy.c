/* limit_policy.c: see limit_policy.h.
 *
 *   rules:                                # the first that matches says how much a request matters; none: normal
 *     - {class: core, match: {class: gold, model: "fraud*"}}
 *     - {class: low, best: normal, match: {tenant: "crawler-*"}}
 *   models:                               # the first that matches
 *     - match: "fraud*"
 *       limit: {min: 4, max: 500, burst: 10, tolerance: 2}       # or adaptive (the default), or off
 *       breaker: {errors: 50%, slow: 2s, slow_rate: 50%, minimum: 20, window: 10s, open: 5s, probes: 3}   # or on (the default), or off
 *       fallback: fraud-light
 *       cache: true */
#include "edge/limit_policy.h"

#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "conf/yaml.h"
#include "edge/identity.h"

#define SECOND_NS 1000000000ull

static const struct limit_options limit_defaults = {
    .adaptive = true, .least = 0, .most = 0, .burst = UINT32_MAX, .tolerance = 2, .epoch_ns = 30 * SECOND_NS};
static const struct breaker_options breaker_defaults = {
    .error_rate = 0.5, .slow_rate = 0.5, .minimum = 20, .window_ns = 10 * SECOND_NS, .open_ns = 5 * SECOND_NS, .probes = 3};

struct reader {
    const char *where;
    struct error *err;
};

static int bad(const struct reader *r, const struct node *n, const char *accepted)
{
    return node_error(r->err, r->where, n->line, STATUS_INVALID, "%.*s: \"%.*s\" is not accepted; give %s", STR_ARG(n->key),
                      STR_ARG(n->text), accepted);
}

static int unknown(const struct reader *r, const struct node *n, const char *what, const char *has)
{
    return node_error(r->err, r->where, n->line, STATUS_INVALID, "%s has no \"%.*s\"; it has %s", what, STR_ARG(n->key), has);
}

/* ---- values ---- */

int limit_class_parse(struct str name)
{
    for (int c = 0; c < LIMIT_CLASSES; c++)
        if (str_eqz(name, limit_class_name((enum limit_class)c)))
            return c;
    return -1;
}

static int read_class(const struct reader *r, const struct node *n, enum limit_class *out)
{
    int c = n->kind == NODE_SCALAR ? limit_class_parse(n->text) : -1;
    if (c < 0)
        return bad(r, n, "core, high, normal or low");
    *out = (enum limit_class)c;
    return 0;
}

static int read_pattern(const struct reader *r, const struct node *n, const char **out)
{
    if (n->kind != NODE_SCALAR || !edge_pattern_valid(n->text))
        return bad(r, n, "names with * and ?, separated by commas");
    *out = n->text.p; /* NUL-terminated, in the arena */
    return 0;
}

static int read_count(const struct reader *r, const struct node *n, uint32_t least, uint32_t *out)
{
    uint64_t v;
    char accepted[64];
    if (n->kind == NODE_SCALAR && str_to_u64(n->text, &v) && v >= least && v <= LIMIT_REQUESTS_MAX) {
        *out = (uint32_t)v;
        return 0;
    }
    snprintf(accepted, sizeof accepted, "a whole number from %u to %u", least, LIMIT_REQUESTS_MAX);
    return bad(r, n, accepted);
}

static int read_time(const struct reader *r, const struct node *n, uint64_t least_ns, uint64_t *out)
{
    uint64_t v;
    if (n->kind == NODE_SCALAR && str_to_duration_ns(n->text, &v) && v >= least_ns && v <= 3600 * SECOND_NS) {
        *out = v;
        return 0;
    }
    return bad(r, n, "a time with its unit, up to 1h, such as 250ms or 10s");
}

/* "50%" or 0.5. */
static int read_share(const struct reader *r, const struct node *n, double *out)
{
    struct str t = n->text;
    double v, scale = 1;
    if (n->kind == NODE_SCALAR && t.n && t.p[t.n - 1] == '%') {
        t.n--;
        scale = 100;
    }
    if (n->kind != NODE_SCALAR || !str_to_f64(t, &v) || !(v >= 0 && v <= scale))
        return bad(r, n, "a share, from 0 to 100%");
    *out = v / scale;
    return 0;
}

/* ---- rules ---- */

static int read_match(const struct reader *r, const struct node *map, struct limit_rule *out)
{
    int rc = map->kind == NODE_MAP ? 0 : bad(r, map, "a map of class, tenant, model and route");
    for (const struct node *c = map->first; rc == 0 && c; c = c->next) {
        if (str_eqz(c->key, "class"))
            rc = read_pattern(r, c, &out->quota_class);
        else if (str_eqz(c->key, "tenant"))
            rc = read_pattern(r, c, &out->tenant);
        else if (str_eqz(c->key, "model"))
            rc = read_pattern(r, c, &out->model);
        else if (str_eqz(c->key, "route"))
            rc = read_pattern(r, c, &out->route);
        else
            rc = unknown(r, c, "match", "class, tenant, model and route");
    }
    return rc;
}

static int read_rule(const struct reader *r, const struct node *map, struct limit_rule *out)
{
    bool has_class = false, has_best = false;
    int rc = map->kind == NODE_MAP ? 0 : bad(r, map, "a map of class, best and match");
    for (const struct node *c = map->first; rc == 0 && c; c = c->next) {
        if (str_eqz(c->key, "class")) {
            rc = read_class(r, c, &out->class);
            has_class = true;
        } else if (str_eqz(c->key, "best")) {
            rc = read_class(r, c, &out->best);
            has_best = true;
        } else if (str_eqz(c->key, "match")) {
            rc = read_match(r, c, out);
        } else {
            rc = unknown(r, c, "a rule", "class, best and match");
        }
    }
    if (rc == 0 && !has_class)
        return node_error(r->err, r->where, map->line, STATUS_INVALID, "a rule needs a class: core, high, normal or low");
    if (!has_best)
        out->best = out->class;
    if (rc == 0 && out->best > out->class)
        return node_error(r->err, r->where, map->line, STATUS_INVALID,
                          "best: %s is less important than the rule's class, %s; that may always be asked for",
                          limit_class_name(out->best), limit_class_name(out->class));
    return rc;
}

/* ---- models ---- */

static int read_limit(const struct reader *r, const struct node *n, struct limit_model_policy *out)
{
    struct limit_options *o = &out->limit;
    int rc = 0;
    out->limited = !str_eqz(n->text, "off");
    if (n->kind == NODE_SCALAR && (!out->limited || str_eqz(n->text, "adaptive")))
        return 0;
    if (n->kind != NODE_MAP)
        return bad(r, n, "adaptive, off or a map of min, max, burst, tolerance and remeasure");
    for (const struct node *c = n->first; rc == 0 && c; c = c->next) {
        if (str_eqz(c->key, "min")) {
            rc = read_count(r, c, 1, &o->least);
        } else if (str_eqz(c->key, "max")) {
            rc = read_count(r, c, 1, &o->most);
        } else if (str_eqz(c->key, "burst")) {
            rc = read_count(r, c, 0, &o->burst);
        } else if (str_eqz(c->key, "remeasure")) {
            rc = read_time(r, c, SECOND_NS, &o->epoch_ns);
        } else if (str_eqz(c->key, "tolerance")) {
            if (c->kind != NODE_SCALAR || !str_to_f64(c->text, &o->tolerance) || !(o->tolerance >= 1.1 && o->tolerance <= 100))
                rc = bad(r, c, "a number from 1.1 to 100");
        } else {
            rc = unknown(r, c, "limit", "min, max, burst, tolerance and remeasure");
        }
    }
    if (rc == 0 && o->most && o->least > o->most)
        return node_error(r->err, r->where, n->line, STATUS_INVALID, "limit: min is %u and max %u; min must not be more",
                          o->least, o->most);
    return rc;
}

static int read_breaker(const struct reader *r, const struct node *n, struct limit_model_policy *out)
{
    struct breaker_options *o = &out->breaker;
    int rc = 0;
    out->breaks = !str_eqz(n->text, "off");
    if (n->kind == NODE_SCALAR && (!out->breaks || str_eqz(n->text, "on")))
        return 0;
    if (n->kind != NODE_MAP)
        return bad(r, n, "on, off or a map of errors, slow, slow_rate, minimum, window, open and probes");
    for (const struct node *c = n->first; rc == 0 && c; c = c->next) {
        if (str_eqz(c->key, "errors"))
            rc = read_share(r, c, &o->error_rate);
        else if (str_eqz(c->key, "slow"))
            rc = read_time(r, c, 1, &o->slow_ns);
        else if (str_eqz(c->key, "slow_rate"))
            rc = read_share(r, c, &o->slow_rate);
        else if (str_eqz(c->key, "minimum"))
            rc = read_count(r, c, 1, &o->minimum);
        else if (str_eqz(c->key, "window"))
            rc = read_time(r, c, SECOND_NS / 10, &o->window_ns);
        else if (str_eqz(c->key, "open"))
            rc = read_time(r, c, SECOND_NS / 1000, &o->open_ns);
        else if (str_eqz(c->key, "probes"))
            rc = read_count(r, c, 1, &o->probes);
        else
            rc = unknown(r, c, "breaker", "errors, slow, slow_rate, minimum, window, open and probes");
    }
    if (rc == 0 && ((o->error_rate == 0 && !o->slow_ns) || (o->slow_ns && o->slow_rate == 0)))
        return node_error(r->err, r->where, n->line, STATUS_INVALID,
                          "breaker: nothing could open it, or everything would; give errors, or slow and slow_rate, above 0");
    return rc;
}

static int read_model(const struct reader *r, const struct node *map, struct limit_model_policy *out)
{
    int rc = map->kind == NODE_MAP ? 0 : bad(r, map, "a map of match, limit, breaker, pressure, fallback and cache");
    *out = (struct limit_model_policy){
        .limited = true, .breaks = true, .pressure = true, .limit = limit_defaults, .breaker = breaker_defaults};
    for (const struct node *c = map->first; rc == 0 && c; c = c->next) {
        if (str_eqz(c->key, "match")) {
            rc = read_pattern(r, c, &out->match);
        } else if (str_eqz(c->key, "limit")) {
            rc = read_limit(r, c, out);
        } else if (str_eqz(c->key, "breaker")) {
            rc = read_breaker(r, c, out);
        } else if (str_eqz(c->key, "pressure")) {
            out->pressure = str_eqz(c->text, "on");
            rc = c->kind == NODE_SCALAR && (out->pressure || str_eqz(c->text, "off")) ? 0 : bad(r, c, "on or off");
        } else if (str_eqz(c->key, "fallback")) {
            out->fallback = c->text.p;
            rc = c->kind == NODE_SCALAR && str_is_model_name(c->text) ? 0 : bad(r, c, "the name of a model");
        } else if (str_eqz(c->key, "cache")) {
            out->cache = str_eqz(c->text, "true");
            rc = c->kind == NODE_SCALAR && (out->cache || str_eqz(c->text, "false")) ? 0 : bad(r, c, "true or false");
        } else {
            rc = unknown(r, c, "a model", "match, limit, breaker, pressure, fallback and cache");
        }
    }
    if (rc == 0 && !out->match)
        return node_error(r->err, r->where, map->line, STATUS_INVALID, "an entry of models needs a match: a name or a pattern");
    return rc;
}

/* ---- the whole ---- */

const struct limit_model_policy *limit_policy_model(const struct limit_policy *p, struct str model)
{
    for (size_t i = 0; i < p->n_models; i++)
        if (p->models[i].match && edge_pattern_match(str_of(p->models[i].match), model))
            return &p->models[i];
    return NULL;
}

static void each_part(const char *pattern, void (*each)(void *ctx, struct str model), void *ctx)
{
    struct str rest = str_of(pattern ? pattern : ""), part;
    while (str_cut(&rest, ',', &part))
        if (part.n && !memchr(part.p, '*', part.n) && !memchr(part.p, '?', part.n))
            each(ctx, part);
}

void limit_policy_each_name(const struct limit_policy *p, void (*each)(void *ctx, struct str model), void *ctx)
{
    for (size_t i = 0; i < p->n_rules; i++)
        each_part(p->rules[i].model, each, ctx);
    for (size_t i = 0; i < p->n_models; i++) {
        each_part(p->models[i].match, each, ctx);
        each_part(p->models[i].fallback, each, ctx);
    }
}

static bool fits(const char *pattern, struct str value)
{
    return !pattern || edge_pattern_match(str_of(pattern), value);
}

enum limit_class limit_policy_class(const struct limit_policy *p, const struct limit_ask *ask)
{
    enum limit_class class = LIMIT_NORMAL, best = LIMIT_NORMAL;
    for (size_t i = 0; i < p->n_rules; i++) {
        const struct limit_rule *r = &p->rules[i];
        if (!fits(r->quota_class, ask->quota_class) || !fits(r->tenant, ask->tenant) || !fits(r->model, ask->model) ||
            !fits(r->route, ask->route))
            continue;
        class = r->class;
        best = r->best;
        break;
    }
    return ask->asked < 0 ? class : MAX_OF((enum limit_class)ask->asked, best);
}

/* From each entry along the fallbacks: one that is met again would answer for itself. A walk that gets caught in a ring further on says
 * nothing: an entry of that ring will. */
static int check_chain(const struct reader *r, const struct node *n, const struct limit_policy *p, size_t i)
{
    const struct limit_model_policy *first = &p->models[i], *m = first;
    size_t steps = 0;
    while (m && m->fallback && steps <= p->n_models) {
        m = limit_policy_model(p, str_of(m->fallback));
        steps++;
        if (m == first)
            return node_error(r->err, r->where, n->line, STATUS_INVALID,
                              "fallback: \"%s\" leads back to \"%s\"; give the last model an entry of its own, above this one, "
                              "without a fallback",
                              first->fallback, first->match);
    }
    if (steps > LIMIT_CHAIN_MAX && steps <= p->n_models)
        return node_error(r->err, r->where, n->line, STATUS_INVALID, "fallback: %zu models in a row; at most %d are accepted",
                          steps, LIMIT_CHAIN_MAX);
    return 0;
}

static int check_chains(const struct reader *r, const struct node *list, const struct limit_policy *p)
{
    const struct node *n = list ? list->first : NULL;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < p->n_models; i++, n = n->next)
        rc = check_chain(r, n, p, i);
    return rc;
}

static int read_lists(const struct reader *r, const struct node *root, struct arena *arena, struct limit_policy *out)
{
    const struct node *rules = node_get(root, "rules"), *models = node_get(root, "models");
    if (root->kind != NODE_MAP || !(rules || models) || root->n != (rules != NULL) + (size_t)(models != NULL) ||
        (rules && rules->kind != NODE_LIST) || (models && models->kind != NODE_LIST))
        return node_error(r->err, r->where, root->line, STATUS_INVALID,
                          "the file must be a map with the keys rules and models, or one of them, each of which holds a list");
    out->n_rules = rules ? rules->n : 0;
    out->n_models = models ? models->n : 0;
    if (out->n_rules > LIMIT_RULES_MAX || out->n_models > LIMIT_MODELS_MAX)
        return node_error(r->err, r->where, root->line, STATUS_INVALID,
                          "%zu rules and %zu models are given; at most %d and %d are accepted", out->n_rules, out->n_models,
                          LIMIT_RULES_MAX, LIMIT_MODELS_MAX);
    out->rules = arena_array(arena, MAX_OF(out->n_rules, (size_t)1), sizeof *out->rules);
    out->models = arena_array(arena, MAX_OF(out->n_models, (size_t)1), sizeof *out->models);
    if (!out->rules || !out->models)
        return error_set(r->err, STATUS_NOMEM, "out of memory for the rules of overload");
    int rc = 0;
    size_t i = 0;
    for (const struct node *n = rules ? rules->first : NULL; rc == 0 && n; n = n->next)
        rc = read_rule(r, n, &out->rules[i++]);
    for (size_t k = 0; k < i; k++)
        out->asks |= out->rules[k].best != out->rules[k].class;
    i = 0;
    for (const struct node *n = models ? models->first : NULL; rc == 0 && n; n = n->next)
        rc = read_model(r, n, &out->models[i++]);
    return rc ? rc : check_chains(r, models, out);
}

int limit_policy_parse(struct str text, const char *where, struct arena *arena, struct limit_policy *out, struct error *err)
{
    struct reader r = {where, err};
    struct node *root;
    *out = (struct limit_policy){0};
    int rc = yaml_parse(text, where, arena, &root, err);
    return rc ? rc : read_lists(&r, root, arena, out);
}
