/* grpc_health.c: grpc.health.v1.Health: readiness in the form that gRPC's own balancers and probes ask for.
 *
 * `service` is empty (the server as a whole, as /v2/health/ready has it), the full name of a service that is served here (the same
 * answer), or a model's name (does a version of it serve?). A model that the caller may not know of is unknown. Watch looks at the state
 * a few times a second, from atomics and the registry's snapshot, and sends what has changed. */
#include "api/grpc_descriptors.h"
#include "api/kserve_grpc_priv.h"
#include "base/status.h"
#include "model/registry.h"

enum serving { SERVING = 1, NOT_SERVING = 2, SERVICE_UNKNOWN = 3 };

static bool is_service(struct str name)
{
    for (size_t i = 0; i < grpc_n_services; i++)
        if (str_eqz(name, grpc_services[i]))
            return true;
    return false;
}

static enum serving state_of(struct grpc_call *g, struct str service)
{
    struct model_version *v;
    if (!service.n || is_service(service))
        return api__is_ready(g->api) ? SERVING : NOT_SERVING;
    if (!str_is_model_name(service) || !api__shows(g->call, service))
        return SERVICE_UNKNOWN;
    int rc = registry_find(g->api->o.registry, service, (struct str){0}, &v, NULL);
    if (rc < 0)
        return registry_is_unready(rc) ? NOT_SERVING : SERVICE_UNKNOWN;
    model_version_unref(v);
    return SERVING;
}

static int read_service(struct str message, struct str *service, struct error *err)
{
    struct pb_reader r = pb_reader_of(message);
    struct pb_field f;
    int rc = 0;
    *service = (struct str){0};
    while (rc == 0 && (rc = pb_next(&r, &f, err)) == 1)
        rc = f.number == 1 ? pb_get_string(&f, "service", service, err) : 0;
    return rc;
}

void api__grpc_health_check(struct grpc_call *g, struct str message)
{
    struct error err = {0};
    struct str service;
    struct buf b;
    enum serving state = SERVICE_UNKNOWN;
    int rc = read_service(message, &service, &err);
    if (rc == 0)
        state = state_of(g, service);
    if (rc == 0 && state == SERVICE_UNKNOWN)
        rc = error_set(&err, STATUS_NOT_FOUND, "unknown service \"%.*s\": it is a service's full name, a model's, or empty",
                       STR_ARG(service));
    if (rc < 0) {
        api__grpc_fail(g, rc, err.text, 0);
        return;
    }
    api__grpc_begin(&b);
    pb_put_u64(&b, 1, state);
    api__grpc_reply(g, &b);
}

/* ---- Watch ---- */

struct watch {
    struct grpc_stream s;
    bool asked;
    struct str service; /* in the request's arena */
    enum serving told;
};

static void tell(struct watch *w)
{
    struct error err = {0};
    struct slice frame;
    struct buf b;
    enum serving state = state_of(w->s.g, w->service);
    if (state == w->told)
        return;
    w->told = state;
    api__grpc_begin(&b);
    pb_put_u64(&b, 1, state);
    int rc = api__grpc_frame(w->s.g, &b, &frame, &err);
    if (rc < 0)
        api__grpc_stream_finish(&w->s, rc, err.text);
    else
        api__grpc_stream_send(&w->s, frame);
}

static int on_message(struct grpc_stream *s, struct grpc_message *m, struct error *err)
{
    struct watch *w = CONTAINER_OF(s, struct watch, s);
    struct str service;
    int rc = w->asked ? error_set(err, STATUS_UNIMPLEMENTED, "Watch takes one request")
                      : read_service((struct str){(const char *)m->data.p, m->data.n}, &service, err);
    if (rc == 0) {
        w->asked = true;
        w->service = (struct str){arena_strdup(s->g->request->arena, service), service.n};
        if (!w->service.p)
            rc = error_set(err, STATUS_NOMEM, "out of memory for this call; try again later");
    }
    slice_release(&m->data);
    if (rc == 0)
        tell(w);
    return rc;
}

static void on_input_end(struct grpc_stream *s)
{
    struct watch *w = CONTAINER_OF(s, struct watch, s);
    if (!w->asked)
        api__grpc_stream_finish(s, STATUS_INVALID, "Watch was called without a request");
}

static void on_tick(struct grpc_stream *s)
{
    struct watch *w = CONTAINER_OF(s, struct watch, s);
    if (w->asked && s->writable)
        tell(w);
}

const struct grpc_stream_ops api__grpc_health_watch = {
    .bytes = sizeof(struct watch),
    .message = on_message,
    .input_end = on_input_end,
    .tick = on_tick,
};
