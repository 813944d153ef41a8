/* guard_routes.c: which policies may meet requests that the gateway sends on, and whether they can do there what they say.
 *
 * A forwarded request is bytes: its content type, size and nesting can be looked at; tensors, prompts and what a model's reference is about
 * can't, since the contract is the other server's; and the answer streams through in whatever form the other server gives it. A policy that
 * asks for more must say that it isn't meant for such requests (`forwarded: false`), or match none: what is configured is never ignored in silence. */
#include "base/status.h"
#include "conf/gateway_config.h"
#include "edge/guard.h"
#include "edge/identity.h"

/* Is there a name that begins with `start` and that the glob matches? */
static bool may_begin(struct str glob, struct str start)
{
    for (size_t i = 0; i < start.n; i++) {
        if (i == glob.n)
            return false;
        if (glob.p[i] == '*')
            return true;
        if (glob.p[i] != '?' && glob.p[i] != start.p[i])
            return false;
    }
    return true;
}

/* `route`: a name, or a beginning and '*'; empty: any. */
static bool may_meet(const char *pattern, const char *route)
{
    struct str rest = str_of(pattern), model = str_of(route), part;
    if (!pattern || !model.n)
        return true;
    if (model.p[model.n - 1] != '*')
        return edge_pattern_match(rest, model);
    model.n--;
    while (str_cut(&rest, ',', &part))
        if (may_begin(part, model))
            return true;
    return false;
}

static int check(const struct gateway_config *g, const struct guard_match *m, const char *kind, const char *name,
                 const char *what, struct error *err)
{
    for (size_t i = 0; i < g->n_routes; i++) {
        const struct gateway_route *r = &g->routes[i];
        if (str_eqz(str_of(r->upstream), "local") || !may_meet(m->model, r->model))
            continue;
        return error_set(
            err, STATUS_INVALID,
            "the %s policy \"%s\" %s, which is not possible for what routes[%zu] sends on to \"%s\": narrow the policy's "
            "match.model, or say forwarded: false to leave such requests to the other server",
            kind, name, what, i, r->upstream);
    }
    return 0;
}

int guard_check_routes(const struct guard_set *s, const struct gateway_config *g, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->n_inputs; i++) {
        const struct guard_input *p = &s->inputs[i];
        if (p->forwarded && (p->n_tensors || p->has_text || p->n_denied || p->reference))
            rc = check(g, &p->match, "input", p->name, "has tensors, text, deny or reference", err);
    }
    for (size_t i = 0; rc == 0 && i < s->n_outputs; i++)
        if (s->outputs[i].forwarded)
            rc = check(g, &s->outputs[i].match, "output", s->outputs[i].name, "looks at answers", err);
    return rc;
}
