/* health.c: liveness and readiness, from atomics only: these answers never wait for a load, a queue or an engine.
 *
 * live:  200 as long as an I/O thread runs.
 * ready: 200 when the process is past start, not stopping, and the registry says ready (its README defines the set); 503
 *        otherwise. `?verbose` adds the state of every version that the caller may see: none where the probe is open
 *        and comes without credentials. */
#include "api/api_priv.h"
#include "model/registry.h"

void api__live(struct api *a, struct http_request *r, struct api_call *call)
{
    struct slice body = slice_borrow("{\"live\":true}", 13);
    (void)a, (void)call;
    http_reply(r, 200, "application/json", NULL, 0, &body, 1);
}

struct verbose {
    struct buf *out;
    bool comma;
    const struct api_call *call;
};

static void append_row(void *ctx, const struct index_row *row)
{
    struct verbose *v = ctx;
    if (v->call->who && !(v->call->who->scopes & EDGE_READ))
        return;
    if (!api__shows(v->call, row->model))
        return;
    buf_append_z(v->out, v->comma ? ",{\"model\":" : "{\"model\":");
    v->comma = true;
    buf_append_json_str(v->out, row->model);
    buf_append_z(v->out, ",\"version\":");
    buf_append_json_str(v->out, row->version);
    buf_printf(v->out, ",\"state\":\"%s\",\"reason\":", version_state_name(row->state));
    buf_append_json_str(v->out, row->reason);
    buf_append_c(v->out, '}');
}

bool api__is_ready(const struct api *a)
{
    return atomic_load_explicit(&a->phase, memory_order_acquire) == API_SERVING && registry_ready(a->o.registry);
}

void api__ready(struct api *a, struct http_request *r, struct api_call *call)
{
    int phase = atomic_load_explicit(&a->phase, memory_order_acquire);
    bool ready = api__is_ready(a);
    bool verbose;
    struct error err = {0};
    int rc = api__query_flag(r, "verbose", false, &verbose, &err);
    if (rc < 0) {
        api__reply_error(r, rc, &err);
        return;
    }
    if (verbose) {
        static const char *const phases[] = {"starting", "serving", "stopping", "draining", "closed"};
        struct buf out;
        struct verbose v = {&out, false, call};
        buf_init(&out);
        buf_printf(&out, "{\"ready\":%s,\"phase\":\"%s\",\"models\":[", ready ? "true" : "false", phases[phase]);
        registry_index(a->o.registry, false, append_row, &v);
        buf_append_z(&out, "]}");
        api__reply_json(r, ready ? 200 : 503, &out);
        return;
    }
    struct slice body = ready ? slice_borrow("{\"ready\":true}", 14) : slice_borrow("{\"ready\":false}", 15);
    http_reply(r, ready ? 200 : 503, "application/json", NULL, 0, &body, 1);
}
