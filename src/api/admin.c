/* admin.c: the admin listener and the metrics page. What an admin call does is the server's business (callbacks given in
 * api_options); here is only its HTTP. */
#include "api/api_priv.h"
#include "base/status.h"
#include "edge/guard_gate.h"
#include "edge/limit_gate.h"
#include "os/clock.h"
#include "wire/json.h"

/* Behind what the engines rendered, from `from` on. */
static void render_vllm(struct buf *out, size_t from)
{
    struct buf more;
    buf_init(&more);
    if (!out->failed)
        api__render_vllm((struct str){out->p + from, out->n - from}, &more);
    buf_append_str(out, buf_str(&more));
    out->failed |= more.failed;
    buf_release(&more);
}

void api__metrics(struct api *a, struct http_request *r, struct api_call *call)
{
    struct buf out;
    (void)call;
    buf_init(&out);
    unsigned compat = atomic_load_explicit(&a->compat, memory_order_relaxed);
    metrics_render(a->o.metrics, &out);
    size_t before = out.n;
    api__render_engines(a, &out);
    if (compat & API_COMPAT_VLLM)
        render_vllm(&out, before);
    if (compat & API_COMPAT_TRITON)
        api__render_triton(a, &out);
    struct slice body = slice_take(&out);
    if (!body.p) {
        http_reply_error(r, STATUS_NOMEM, "out of memory for this reply; try again later", 1);
        return;
    }
    http_reply(r, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, 0, &body, 1);
}

void api__admin_reload(struct api *a, struct http_request *r, struct api_call *call)
{
    struct error err = {0};
    struct buf out;
    (void)call;
    buf_init(&out);
    int rc = a->o.reload ? a->o.reload(a->o.ctx, &out, &err)
                         : error_set(&err, STATUS_UNIMPLEMENTED, "this server was started without a configuration file");
    if (rc < 0) {
        buf_release(&out);
        api__reply_error(r, rc, &err);
        return;
    }
    api__reply_json(r, 200, &out);
}

void api__admin_status(struct api *a, struct http_request *r, struct api_call *call)
{
    struct buf out;
    (void)call;
    buf_init(&out);
    buf_printf(&out, "{\"in_flight\":%llu", (unsigned long long)api_in_flight(a));
    if (a->o.status) {
        buf_append_c(&out, ',');
        a->o.status(a->o.ctx, &out);
    }
    buf_append_c(&out, '}');
    api__reply_json(r, 200, &out);
}

void api__admin_limits(struct api *a, struct http_request *r, struct api_call *call)
{
    struct buf out;
    (void)call;
    buf_init(&out);
    buf_append_c(&out, '{');
    if (a->o.limits)
        limit_gate_render(a->o.limits, os_monotonic_ns(), &out);
    else
        buf_append_z(&out, "\"rules\":0,\"models\":[]");
    buf_append_c(&out, '}');
    api__reply_json(r, 200, &out);
}

void api__admin_log_level(struct api *a, struct http_request *r, struct api_call *call)
{
    struct error err = {0};
    struct str name = {0};
    enum log_level level = LOG_INFO;
    struct json j = {0};
    (void)call;
    int rc = json_parse(&j, (struct str){(const char *)r->body.p, r->body.n}, NULL, &err);
    if (rc == 0)
        rc = json_get_str(j.root, "level", JSON_REQUIRED, &name, NULL, &err);
    if (rc == 0 && !log_level_parse(name, &level))
        rc = error_set(&err, STATUS_INVALID, "level \"%.*s\" is not known; accepted: debug, info, warn, error, off",
                       STR_ARG(name));
    if (rc == 0)
        rc = a->o.set_log_level ? a->o.set_log_level(a->o.ctx, level, &err)
                                : error_set(&err, STATUS_UNIMPLEMENTED, "the log level is fixed in this server");
    json_release(&j);
    if (rc < 0) {
        api__reply_error(r, rc, &err);
        return;
    }
    struct slice body = slice_borrow("{}", 2);
    http_reply(r, 200, "application/json", NULL, 0, &body, 1);
}

/* Recording what a model's good inputs are, and what the guard knows of it. Fitting a large recording takes seconds; only this listener waits. */
void api__admin_guard(struct api *a, struct http_request *r, struct api_call *call)
{
    struct error err = {0};
    struct guard_gate *g = a->o.guard;
    struct buf out;
    int rc = g ? 0 : error_set(&err, STATUS_CONFLICT, "nothing is guarded; set guard.file");
    if (rc == 0 && call->match.id == ROUTE_ADMIN_GUARD_RECORD)
        rc = guard_gate_record(g, call->match.model, &err);
    if (rc == 0 && call->match.id == ROUTE_ADMIN_GUARD_STOP)
        rc = guard_gate_stop(g, call->match.model, &err);
    if (rc == 0 && call->match.id == ROUTE_ADMIN_GUARD_SAVE)
        rc = guard_gate_save(g, call->match.model, &err);
    if (rc < 0) {
        api__reply_error(r, rc, &err);
        return;
    }
    buf_init(&out);
    buf_append_z(&out, "{\"references\":");
    guard_gate_status(g, &out);
    buf_append_c(&out, '}');
    api__reply_json(r, 200, &out);
}
