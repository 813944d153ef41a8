/* server_edge.c: the edge of a running server: its key file, its audit log, and what it says about itself at start.
 *
 * The key file is looked at once a second and read again when its size, time or inode changed: `inferd keys` replaces it by rename, so
 * what is read is always whole. */
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "cli/edge_check.h"
#include "cli/server_priv.h"
#include "edge/edge.h"
#include "edge/jwt.h"
#include "edge/keys.h"
#include "net/tls.h"
#include "obs/access_log.h"
#include "os/file.h"

#define WATCH_NS     1000000000u
#define AUDIT_SLOTS  4096
#define WRITE_OTHERS 0022

/* ---- keys ---- */

/* Remember the file as it is now; true when it is another one than before. */
static bool file_changed(struct server *s)
{
    struct edge_watch *w = &s->keys_watch;
    struct os_file_info info;
    if (os_file_info(s->first_config->auth.keys_file, &info, NULL) < 0)
        return true; /* reading it will say why */
    bool same = info.size_bytes == w->size_bytes && info.mtime_ns == w->mtime_ns && info.inode == w->inode;
    w->size_bytes = info.size_bytes;
    w->mtime_ns = info.mtime_ns;
    w->inode = info.inode;
    if (!same && info.mode & WRITE_OTHERS)
        LOG(s->log, LOG_WARN, "keys_file_writable", LOG_S("file", s->first_config->auth.keys_file),
            LOG_S("hint", "others than its owner may write it, and so give themselves any scope: chmod 600"));
    return !same;
}

static int read_keys(struct server *s, struct error *err)
{
    const char *path = s->first_config->auth.keys_file;
    struct buf text;
    size_t n = 0;
    buf_init(&text);
    int rc = os_file_read(path, KEY_FILE_MAX, &text, err);
    if (rc == 0)
        rc = edge_set_keys(s->edge, buf_str(&text), path, &n, err);
    buf_release(&text);
    if (rc == 0)
        LOG(s->log, LOG_INFO, "keys_read", LOG_U("keys", n));
    return rc;
}

void server__tick_edge(struct server *s, uint64_t now_ns)
{
    struct edge_watch *w = &s->keys_watch;
    struct error err = {0};
    if (s->tls)
        tls_context_tick(s->tls, now_ns);
    server__tick_jwks(s, now_ns);
    server__tick_quota(s, now_ns);
    if (!s->first_config->auth.keys_file[0] || now_ns < w->next_ns)
        return;
    w->next_ns = now_ns + WATCH_NS;
    if (!file_changed(s))
        return;
    bool failed = read_keys(s, &err) < 0;
    if (failed && !w->failing)
        LOG(s->log, LOG_ERROR, "keys_unusable", LOG_S("reason", err.text), LOG_S("effect", "the old keys stay in force"));
    w->failing = failed;
}

int server__reload_edge(struct server *s, struct error *err)
{
    int rc = s->first_config->auth.keys_file[0] ? read_keys(s, err) : 0;
    return rc ? rc : server__reload_overload(s, err);
}

/* ---- start ---- */

static int start_audit(struct server *s, struct error *err)
{
    const struct config *c = s->first_config;
    char path[4096];
    struct access_log_options o = {.format = LOG_FORMAT_JSON,
                                   .audit = true,
                                   .slots = AUDIT_SLOTS,
                                   .metrics = s->metrics,
                                   .log = s->log,
                                   .path = c->audit.file};
    if (str_eqz(str_of(c->audit.file), "off") || (!c->audit.file[0] && !server__state_dir(s)))
        return 0;
    if (!c->audit.file[0]) {
        int n = snprintf(path, sizeof path, "%s/audit.log", server__state_dir(s));
        if (n < 0 || (size_t)n >= sizeof path)
            return error_set(err, STATUS_INVALID, "state_dir: the path is too long");
        o.path = path;
    }
    return access_log_create(&o, &s->audit, err);
}

static int start_tls(struct server *s, struct error *err)
{
    struct tls_options o;
    cli_tls_options(s->first_config, &o);
    o.metrics = s->metrics;
    o.log = s->log;
    int rc = o.n ? tls_context_create(&o, &s->tls, err) : 0;
    return rc < 0 ? error_prefix(err, "tls") : 0;
}

/* Whoever can reach an address should be in no doubt about what that gives him. */
static void tell_open(struct server *s, const char *name, const struct config_list *listen, const char *what)
{
    for (size_t i = 0; i < listen->n; i++) {
        if (config_listen_is_loopback(str_of(listen->v[i])))
            continue;
        if (!config_has_auth(s->first_config, name))
            LOG(s->log, LOG_WARN, "open_without_authentication", LOG_S("listener", name), LOG_S("address", listen->v[i]),
                LOG_S("anybody_may", what));
        if (!config_has_tls(s->first_config, name))
            LOG(s->log, LOG_WARN, "open_without_tls", LOG_S("listener", name), LOG_S("address", listen->v[i]),
                LOG_S("anybody_on_the_way_may", "read and change requests, answers and credentials"));
    }
}

static struct jwt_rules *make_rules(const struct config *c)
{
    struct jwt_rules *r = malloc(sizeof *r);
    if (r)
        *r = (struct jwt_rules){.issuer = c->jwt.issuer,
                                .audience = c->jwt.audience,
                                .scope_claim = c->jwt.scope_claim,
                                .scope_prefix = c->jwt.scope_prefix,
                                .tenant_claim = c->jwt.tenant_claim,
                                .skew_s = (uint32_t)(c->jwt.skew / 1000000000u)};
    return r;
}

static int read_client_rules(struct server *s, struct error *err)
{
    const struct config *c = s->first_config;
    s->proxies = calloc(c->proxy.trusted.n + 1, sizeof *s->proxies);
    if (!s->proxies)
        return error_set(err, STATUS_NOMEM, "out of memory while starting");
    return cli_client_rules(c, s->proxies, err);
}

int server__start_edge(struct server *s, struct error *err)
{
    const struct config *c = s->first_config;
    int rules = read_client_rules(s, err);
    if (rules < 0)
        return rules;
    if (c->jwt.keys[0] && !(s->jwt_rules = make_rules(c)))
        return error_set(err, STATUS_NOMEM, "out of memory while starting");
    const struct edge_options o = {.keys = c->auth.keys_file[0] != 0, .tokens = s->jwt_rules, .metrics = s->metrics};
    s->edge = edge_create(&o);
    if (!s->edge)
        return error_set(err, STATUS_NOMEM, "out of memory while starting");
    int rc = start_audit(s, err);
    if (rc == 0)
        rc = start_tls(s, err);
    if (rc == 0 && s->jwt_rules)
        rc = server__start_jwks(s, err);
    if (rc == 0)
        rc = server__start_quota(s, err);
    if (rc == 0)
        rc = server__start_guard(s, err);
    if (rc == 0)
        rc = server__start_overload(s, err);
    if (rc == 0 && o.keys) {
        file_changed(s);
        rc = read_keys(s, err);
        if (rc < 0)
            error_prefix(err, "auth.keys_file");
    }
    if (rc < 0)
        return rc;
    tell_open(s, "http", &c->http.listen, "run models, read everything about them, and load and unload them in explicit mode");
    tell_open(s, "http", &c->grpc.listen, "do the same, over gRPC");
    tell_open(s, "metrics", &c->metrics.listen, "read the names, load and health of every model");
    tell_open(s, "agent", &c->agent.listen, "read how loaded this server is");
    tell_open(s, "admin", &c->admin.listen, "reload the configuration, change the log level, load and unload models");
    return 0;
}
