/* quota_policy.c: policies from YAML.
 *
 *   policies:
 *     - name: keys                    # [a-z0-9_-], once
 *       per: key                      # key, tenant, model, route, or a list of them; none: one count for all
 *       match: {class: gold, tenant: "acme*", model: "llm-*", route: infer}
 *       requests_per_second: 50
 *       requests_per_second_burst: 100
 *       concurrent: 8
 *       requests_per_day: 100000
 *       shared: false                 # count it in this process alone, also where others are shared */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "conf/yaml.h"
#include "edge/identity.h"
#include "edge/quota.h"

struct reader {
    const char *where;
    struct arena *arena;
    struct error *err;
};

static int bad(const struct reader *r, const struct node *n, const char *accepted)
{
    return node_error(r->err, r->where, n->line, STATUS_INVALID, "%.*s: \"%.*s\" is not accepted; give %s", STR_ARG(n->key),
                      STR_ARG(n->text), accepted);
}

static int read_count(const struct reader *r, const struct node *n, uint64_t *out)
{
    if (n->kind == NODE_SCALAR && str_to_u64(n->text, out) && *out >= 1 && *out <= QUOTA_LIMIT_MAX)
        return 0;
    return bad(r, n, "a whole number from 1 to 1000000000000");
}

static int add_per(const struct reader *r, const struct node *n, unsigned *per)
{
    static const char *const words[] = {"key", "tenant", "model", "route"};
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (n->kind == NODE_SCALAR && str_eqz(n->text, words[i])) {
            *per |= 1u << i;
            return 0;
        }
    return bad(r, n, "key, tenant, model or route");
}

static int read_per(const struct reader *r, const struct node *n, unsigned *per)
{
    int rc = 0;
    if (n->kind != NODE_LIST)
        return add_per(r, n, per);
    for (const struct node *c = n->first; rc == 0 && c; c = c->next)
        rc = add_per(r, c, per);
    return rc;
}

static int read_match(const struct reader *r, const struct node *map, struct quota_policy *p)
{
    const struct {
        const char *key;
        const char **out;
    } fields[] = {{"class", &p->quota_class}, {"tenant", &p->tenant}, {"model", &p->model}, {"route", &p->route}};
    if (map->kind != NODE_MAP)
        return bad(r, map, "a map of class, tenant, model and route");
    for (const struct node *c = map->first; c; c = c->next) {
        size_t i = 0;
        while (i < COUNT_OF(fields) && !str_eqz(c->key, fields[i].key))
            i++;
        if (i == COUNT_OF(fields))
            return node_error(r->err, r->where, c->line, STATUS_INVALID,
                              "match has no \"%.*s\"; it has class, tenant, model and route", STR_ARG(c->key));
        if (c->kind != NODE_SCALAR || !edge_pattern_valid(c->text))
            return bad(r, c, "names with * and ?, separated by commas");
        *fields[i].out = c->text.p; /* NUL-terminated, in the arena */
    }
    return 0;
}

/* "requests_per_second" or, for rates, "requests_per_second_burst". */
static bool find_limit(struct str key, struct quota_policy *p, uint64_t **out)
{
    char burst[64];
    for (int u = 0; u < QUOTA_UNITS; u++) {
        const char *name = quota_unit_name((enum quota_unit)u);
        snprintf(burst, sizeof burst, "%s_burst", name);
        bool rate = u <= QUOTA_TOKENS_PER_MINUTE;
        if (str_eqz(key, name))
            *out = &p->limit[u];
        else if (rate && str_eqz(key, burst))
            *out = &p->burst[u];
        else
            continue;
        return true;
    }
    return false;
}

static int read_field(const struct reader *r, const struct node *n, struct quota_policy *p)
{
    uint64_t *limit;
    if (str_eqz(n->key, "per"))
        return read_per(r, n, &p->per);
    if (str_eqz(n->key, "match"))
        return read_match(r, n, p);
    if (str_eqz(n->key, "name")) {
        if (n->kind != NODE_SCALAR || !edge_label_valid(n->text))
            return bad(r, n, "1 to 64 characters of A-Z a-z 0-9 . _ - @ : /");
        p->name = n->text.p;
        return 0;
    }
    if (str_eqz(n->key, "shared")) {
        bool yes = str_eqz(n->text, "true");
        if (n->kind != NODE_SCALAR || (!yes && !str_eqz(n->text, "false")))
            return bad(r, n, "true or false");
        p->said = yes ? 1 : -1;
        return 0;
    }
    if (find_limit(n->key, p, &limit))
        return read_count(r, n, limit);
    return node_error(
        r->err, r->where, n->line, STATUS_INVALID,
        "a policy has no \"%.*s\"; it has name, per, match, shared and limits such as requests_per_second, concurrent or "
        "tokens_per_day",
        STR_ARG(n->key));
}

static int check(const struct reader *r, const struct node *n, const struct quota_policy *all, size_t i)
{
    const struct quota_policy *p = &all[i];
    bool any = false;
    if (!p->name)
        return node_error(r->err, r->where, n->line, STATUS_INVALID, "a policy needs a name");
    for (size_t k = 0; k < i; k++)
        if (strcmp(all[k].name, p->name) == 0)
            return node_error(r->err, r->where, n->line, STATUS_INVALID, "the policy \"%s\" is there twice", p->name);
    for (int u = 0; u < QUOTA_UNITS; u++) {
        any |= p->limit[u] != 0;
        if (p->burst[u] && !p->limit[u])
            return node_error(r->err, r->where, n->line, STATUS_INVALID, "the policy \"%s\" has %s_burst but not %s", p->name,
                              quota_unit_name((enum quota_unit)u), quota_unit_name((enum quota_unit)u));
    }
    if (!any)
        return node_error(r->err, r->where, n->line, STATUS_INVALID, "the policy \"%s\" limits nothing", p->name);
    return 0;
}

size_t quota_policies_share(struct quota_policy *policies, size_t n, bool by_default)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        policies[i].shared = policies[i].said > 0 || (by_default && policies[i].said == 0);
        count += policies[i].shared;
    }
    return count;
}

static int read_all(const struct reader *r, const struct node *list, struct quota_policy *out)
{
    size_t i = 0;
    for (const struct node *n = list->first; n; n = n->next, i++) {
        if (n->kind != NODE_MAP)
            return node_error(r->err, r->where, n->line, STATUS_INVALID, "a policy is a map with a name and limits");
        int rc = 0;
        for (const struct node *c = n->first; rc == 0 && c; c = c->next)
            rc = read_field(r, c, &out[i]);
        if (rc == 0)
            rc = check(r, n, out, i);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int quota_policies_parse(struct str text, const char *where, struct arena *arena, struct quota_policy **out, size_t *n,
                         struct error *err)
{
    struct reader r = {where, arena, err};
    struct node *root;
    int rc = yaml_parse(text, where, arena, &root, err);
    if (rc < 0)
        return rc;
    const struct node *list = node_get(root, "policies");
    if (!list || list->kind != NODE_LIST || root->n != 1)
        return node_error(err, where, root->line, STATUS_INVALID,
                          "the file must be a map with one key, \"policies\", that holds a list");
    if (list->n > QUOTA_POLICIES_MAX)
        return node_error(err, where, list->line, STATUS_INVALID, "%zu policies are given; at most %d are accepted", list->n,
                          QUOTA_POLICIES_MAX);
    *n = list->n;
    *out = arena_array(arena, MAX_OF(list->n, (size_t)1), sizeof **out);
    return *out ? read_all(&r, list, *out) : error_set(err, STATUS_NOMEM, "out of memory for the quota policies");
}
