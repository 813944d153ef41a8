/* access.c: where protocols meet the authorisation point (edge/edge.h). Decisions are the edge's; here a request becomes the question, and
 * an answer becomes what HTTP asks for beside it: WWW-Authenticate on 401 (RFC 9110, 15.5.2). */
#include "api/api_priv.h"
#include "base/status.h"
#include "net/loop.h"

static void take_once(struct str *out, struct str value, bool *repeated)
{
    *repeated |= out->p != NULL;
    *out = value.p ? value : STR("");
}

static void read_credentials(const struct http_request *r, struct edge_credentials *c)
{
    *c = (struct edge_credentials){.certificate = r->peer_names, .n_certificate = r->n_peer_names};
    for (size_t i = 0; i < r->n_headers; i++) {
        const struct http_header *h = &r->headers[i];
        if (h->name.n == 13 && str_ieq(h->name, STR("authorization")))
            take_once(&c->authorization, h->value, &c->repeated);
        else if (h->name.n == 9 && str_ieq(h->name, STR("x-api-key")))
            take_once(&c->api_key, h->value, &c->repeated);
    }
}

int api__authorise(struct api *a, struct http_request *r, struct api_call *call, struct error *err)
{
    static const struct http_header challenge[] = {{{"WWW-Authenticate", 16}, {"Bearer realm=\"inferd\"", 21}}};
    struct edge *e = a->o.edge;
    if (!edge_is_closed(e))
        return 0;
    struct edge_ask ask = {.need = route_need(call->match.id), .model = call->match.model, .now_s = loop_wall_s(r->loop)};
    ask.need.open |= a->open[call->match.id];
    read_credentials(r, &ask.credentials);
    int rc = edge_authorise(e, &ask, &call->who, &call->verdict, err);
    if (rc == STATUS_UNAUTHENTICATED)
        api__add_headers(r, challenge, 1);
    return rc;
}

int api__authorise_model(struct api *a, struct api_call *call, struct str model, struct error *err)
{
    return edge_authorise_model(a->o.edge, call->who, model, &call->verdict, err);
}

bool api__shows(const struct api_call *call, struct str model)
{
    if (!edge_is_closed(call->api->o.edge))
        return true;
    return call->who && edge_sees_model(call->who, model);
}

bool api__is_admin(enum route_id id)
{
    return route_need(id).scope == EDGE_ADMIN;
}
