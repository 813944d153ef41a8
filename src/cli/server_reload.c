/* server_reload.c: applying a changed configuration to a running server.
 *
 * A reload builds a second configuration from the same file and flags, reconciles it with the running one (rows that can't change
 * keep their value and are named), and hands the live rows to those who use them. A file with an error changes nothing. */
#include <stdlib.h>

#include "base/status.h"
#include "cli/from_config.h"
#include "cli/server_priv.h"
#include "conf/options.h"
#include "gateway/gateway.h"
#include "os/clock.h"

struct report {
    struct buf applied, restart; /* JSON string lists, without brackets */
};

static void note_row(void *ctx, const struct option *row, bool applies)
{
    struct report *r = ctx;
    struct buf *out = applies ? &r->applied : &r->restart;
    if (out->n)
        buf_append_c(out, ',');
    buf_append_json_str(out, str_of(row->name));
}

/* Hand the live rows on. */
static void apply(struct server *s)
{
    const struct config *c = s->config;
    struct http_limits limits;
    server__http_limits(s, &limits);
    for (int i = 0; i < 3; i++)
        if (s->listeners[i])
            http_server_set_limits(s->listeners[i], &limits);
    s->log->level = c->log.level;
    api_set_compat(s->api, (unsigned)c->metrics.compat);
}

/* Pools and routes are swapped whole. A server that began without any has nobody to give them to. */
static int reload_gateway(struct server *s, const struct config *fresh, struct report *r, struct error *err)
{
    if (!s->gateway && !fresh->gateway.n_routes)
        return 0;
    struct buf *out = s->gateway ? &r->applied : &r->restart;
    if (out->n)
        buf_append_c(out, ',');
    buf_append_z(out, "\"upstreams\",\"routes\"");
    return s->gateway ? gateway_reload(s->gateway, &fresh->gateway, err) : 0;
}

static int replace(struct server *s, struct report *r, struct error *err)
{
    struct config *fresh = calloc(1, sizeof *fresh);
    int rc = fresh ? s->o.rebuild(s->o.ctx, fresh, err) : error_set(err, STATUS_NOMEM, "out of memory while reloading");
    if (rc < 0) {
        free(fresh);
        return rc;
    }
    rc = config_reconcile(fresh, s->config, note_row, r, err);
    if (rc >= 0)
        rc = server__reload_guard(s, fresh, err);
    if (rc >= 0)
        rc = reload_gateway(s, fresh, r, err);
    if (rc < 0) {
        config_release(fresh);
        free(fresh);
        return rc;
    }
    if (s->config != s->first_config) {
        config_release(s->config);
        free(s->config);
    }
    s->config = fresh;
    apply(s);
    return server__reload_edge(s, err);
}

int server__reload(struct server *s, struct buf *out, struct error *err)
{
    struct report r = {0};
    if (!s->o.rebuild)
        return error_set(err, STATUS_UNIMPLEMENTED, "this server has no configuration to read again");
    os_mutex_lock(&s->reload_lock);
    os_notify_reloading(&s->notify);
    int rc = replace(s, &r, err);
    os_notify_ready(&s->notify, "serving");
    os_mutex_unlock(&s->reload_lock);
    if (rc < 0)
        LOG(s->log, LOG_ERROR, "reload_failed", LOG_S("reason", err->text));
    else
        LOG(s->log, LOG_INFO, "reloaded", LOG_S("applied", buf_z(&r.applied)), LOG_S("needs_restart", buf_z(&r.restart)));
    if (rc == 0)
        buf_printf(out, "{\"applied\":[%s],\"needs_restart\":[%s]}", buf_z(&r.applied), buf_z(&r.restart));
    buf_release(&r.applied);
    buf_release(&r.restart);
    return rc;
}
