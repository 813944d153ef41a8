/* guard_forward.c: the guard's part in requests that another server answers: what can be told of a body without its model's contract. What can't is
 * refused when the configuration is read (edge/guard_routes.c). */
#include "api/guard.h"

#include "api/guard_priv.h"
#include "base/status.h"

/* The JSON of a body: all of it, the part before binary tensors, or none. */
static struct str json_of(const struct http_request *r)
{
    struct str all = {(const char *)r->body.p, r->body.n}, text = str_trim(all);
    struct str head = http_header_get(r, "inference-header-content-length");
    uint64_t n;
    if (head.p && str_to_u64(head, &n) && n <= all.n)
        return (struct str){all.p, (size_t)n};
    return text.n && (text.p[0] == '{' || text.p[0] == '[') ? all : (struct str){0};
}

/* Calls and tunnels pass as they come. A tunnel's model may be named in what it carries: then every policy might hold. */
static int refuse_unseen(struct api_call *call, bool any, struct error *err)
{
    const struct api_guard *g = call->guard;
    for (size_t i = 0; i < g->set->n_inputs; i++)
        if ((g->inputs >> i & 1) || (any && g->set->inputs[i].forwarded)) {
            call->verdict = EDGE_BAD_INPUT;
            return error_set(
                err, STATUS_UNIMPLEMENTED,
                "the input policy \"%s\" holds here, and gRPC calls and WebSockets that are sent on to other servers can't be "
                "looked at: use requests over HTTP",
                g->set->inputs[i].name);
        }
    return 0;
}

int api__guard_forward_head(struct http_request *r, struct api_call *call, struct error *err)
{
    if (!call->guard || !call->match.model.n)
        return 0;
    api__guard_choose(call->guard);
    return api__guard_head(r, call, err);
}

int api__guard_forward(struct http_request *r, struct api_call *call, struct str model, struct error *err)
{
    struct api_guard *g = call->guard;
    bool known = g->known;
    g->who.model = model;
    if (!known)
        api__guard_choose(g);
    bool tunnel = !call->is_grpc && gateway_asks_upgrade(r);
    if (call->is_grpc || tunnel)
        return refuse_unseen(call, tunnel && !model.n, err);
    struct str json = json_of(r);
    int rc = known ? 0 : api__guard_head(r, call, err);
    if (rc == 0)
        rc = api__guard_body(call, &g->who, r->body.n, r->request_id.p, &g->flagged, err);
    if (rc == 0 && json.n)
        rc = api__guard_depth(call, &g->who, json, r->request_id.p, &g->flagged, err);
    if (rc < 0) {
        call->verdict = EDGE_BAD_INPUT;
        return rc;
    }
    api__guard_headers(r, call, 0);
    return 0;
}
