/* export_notes.c: what a front has no words for. A row a key: whether the file says something else than the default, who of the three can say it, and
 * what happens instead. A key that a writer says needs no row; tests/wire/test_fronts.py finds one that is neither said nor here. */
#include <string.h>

#include "base/size.h"
#include "conf/export_priv.h"

#define NGINX   (1u << EXPORT_NGINX)
#define ENVOY   (1u << EXPORT_ENVOY)
#define HAPROXY (1u << EXPORT_HAPROXY)
#define NOBODY  0u

struct row {
    bool asked;       /* the file wants it */
    unsigned said_by; /* these say it */
    const char *text;
};

static void put(struct export_plan *p, const char *where, const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (rows[i].asked && !(rows[i].said_by & 1u << p->o->kind))
            export__note(p, where, "%s", rows[i].text);
}

/* Does any server of the pool have one? */
struct of_servers {
    bool zone, max_conns, max_fails, fail_timeout, slow_start, names;
};

static struct of_servers look(const struct gateway_pool *o, const struct gateway_server *usual)
{
    struct of_servers s = {0};
    struct str first = export__address(o->servers[0].address).host;
    for (size_t i = 0; i < o->n_servers; i++) {
        const struct gateway_server *each = &o->servers[i];
        s.zone |= each->zone[0] != 0;
        s.max_conns |= each->max_conns != 0;
        s.max_fails |= each->max_fails != usual->max_fails;
        s.fail_timeout |= each->fail_timeout != usual->fail_timeout;
        s.slow_start |= each->slow_start != 0;
        s.names |= !str_eq(export__address(each->address).host, first);
    }
    return s;
}

static void note_servers(struct export_plan *p, const struct export_pool *pool)
{
    const struct gateway_pool *o = pool->o, *d = p->usual;
    struct of_servers s = look(o, &d->servers[0]);
    bool tls = o->tls.ca[0] != 0;
    const struct row rows[] = {
        {o->servers_file[0] || o->servers_port[0], NOBODY,
         "servers_file: the front knows the servers that this file names, no others"},
        {s.zone || o->zone_header[0] || o->geo.file[0], NOBODY,
         "zone, zone_header, geo: all servers are one zone to the front"},
        {s.max_conns, NGINX | HAPROXY, "max_conns: Envoy bounds requests to a cluster, not to a server"},
        {s.max_conns, ENVOY | HAPROXY, "max_conns: requests past it don't wait in nginx, they get 502"},
        {s.max_fails && !o->check.path[0], NGINX,
         "max_fails of a server: HAProxy counts only beside checks, Envoy has it for the whole cluster"},
        {s.max_fails && o->check.path[0], NGINX | HAPROXY, "max_fails of a server: Envoy has it for the whole cluster"},
        {s.fail_timeout, NGINX, "fail_timeout: the pool's rules hold"},
        {s.slow_start || o->slow_start, ENVOY | HAPROXY, "slow_start is in nginx's commercial part only"},
        {s.slow_start, NGINX | HAPROXY, "slow_start of a single server: Envoy has it for the whole cluster"},
        {tls && s.names && !o->tls.name[0], NOBODY,
         "tls.name is not set and the servers have different hosts: the front asks all of them to prove the first one's"},
        {tls && export__is_ip(export__tls_name(o)), ENVOY,
         "tls: names are compared, addresses are not: nginx then refuses every server, HAProxy verifies the authority alone; "
         "set tls.name"},
        {strcmp(o->tls.ca, "system") == 0, NOBODY,
         "tls.ca system is written as /etc/ssl/certs/ca-certificates.crt, where Debian keeps it"},
        {o->tls.key[0], NGINX | ENVOY,
         "tls.key: HAProxy reads it from the certificate's file, or from one beside it with .key at the end of its name"},
        {o->protocol == EXPORT_HTTP2, ENVOY | HAPROXY,
         "protocol http2: nginx speaks it to servers for gRPC only, and HTTP/1.1 for the rest"},
        {o->protocol == EXPORT_AUTO, ENVOY | HAPROXY, "protocol auto: nginx speaks HTTP/1.1, and HTTP/2 for gRPC"},
        {o->ping_interval != d->ping_interval, NOBODY, "ping_interval: the front's own rules find dead connections"},
        {o->keepalive_min != d->keepalive_min, NOBODY, "keepalive_min: fronts connect when they need to"},
    };
    put(p, pool->where, rows, COUNT_OF(rows));
}

static void note_balance(struct export_plan *p, const struct export_pool *pool)
{
    const struct gateway_pool *o = pool->o, *d = p->usual;
    bool hash = o->balance == EXPORT_HASH;
    const struct row rows[] = {
        {o->balance == EXPORT_LLM, NOBODY,
         "balance llm reads prompts and the replicas' reports, which no front does; least_conn instead"},
        {hash && !o->hash_header[0] && (o->hash_key == GATEWAY_HASH_MODEL || o->hash_key == GATEWAY_HASH_USER), NOBODY,
         "hash_key model and user are in the body, which no front reads; the path is hashed instead"},
        {hash, ENVOY | HAPROXY, "hash is not bounded by load in nginx"},
        {o->report.path[0] || o->report.headers || (o->report.agent_port && p->o->kind != EXPORT_HAPROXY), NOBODY,
         "report: what the replicas say of their load is not asked"},
        {o->hedge.after || o->hedge.percentile, NOBODY, "hedge: no second server is asked while the first is silent"},
        {o->queue != d->queue, ENVOY | HAPROXY, "queue: nothing waits in nginx"},
        {o->queue_timeout != d->queue_timeout, HAPROXY,
         "queue_timeout: waiting requests wait as long as a connection may take"},
        {o->max_requests != 0, ENVOY, "max_requests: servers are bounded one by one (max_conns), the pool is not"},
        {o->keepalive != d->keepalive, NGINX | HAPROXY, "keepalive: Envoy keeps the connections it has needed"},
        {o->resolve_interval != d->resolve_interval, NOBODY,
         "resolve_interval: nginx and HAProxy look names up when they start, Envoy every 5 s"},
    };
    put(p, pool->where, rows, COUNT_OF(rows));
}

static void note_health(struct export_plan *p, const struct export_pool *pool)
{
    const struct gateway_pool *o = pool->o, *d = p->usual;
    const struct row rows[] = {
        {o->check.path[0] || o->check.grpc, ENVOY | HAPROXY,
         "check: nginx without its commercial part has no active checks; failing requests tell it"},
        {o->check.body[0] || o->check.expect[0], NGINX | HAPROXY,
         "check.body, check.expect: Envoy sends a GET and looks at the status"},
        {o->check.grpc, NGINX | ENVOY, "check.grpc: HAProxy sends no gRPC; there is no check"},
        {o->min_healthy != d->min_healthy, ENVOY,
         "min_healthy: when every server has failed, nginx asks them all again, HAProxy answers 503"},
        {o->max_fails != d->max_fails && !o->check.path[0], NGINX | ENVOY,
         "max_fails: HAProxy counts failing requests only beside checks"},
        {o->eject_base != d->eject_base, NGINX | ENVOY, "eject_base: a check brings a server back in HAProxy, not a time"},
        {o->eject_max != d->eject_max, ENVOY, "eject_max: every ejection is as long as the first"},
        {o->retry.budget_percent != d->retry.budget_percent || o->retry.budget_least != d->retry.budget_least, ENVOY,
         "retry.budget_*: retries are bounded by request only"},
        {o->retry.buffer != d->retry.buffer, NOBODY,
         "retry.buffer: the front's own buffers say which bodies can be sent again"},
        {export__has_word(&o->retry.on, "timeout"), NGINX | HAPROXY,
         "retry.on timeout: Envoy's time for a try is for all of its answer, which would cut streams"},
    };
    put(p, pool->where, rows, COUNT_OF(rows));
}

static void note_route(struct export_plan *p, const struct export_route *r)
{
    const struct gateway_route *o = r->o;
    const struct row rows[] = {
        {o->model[0], NOBODY,
         "model is seen in the path /v2/models/NAME only; a request that names it in its body or a gRPC message takes a later "
         "route"},
        {o->rewrite_model[0], NOBODY, "rewrite_model changes the path only, not a name in a body or a gRPC message"},
        {o->timeout, NOBODY,
         "timeout bounds the beginning of an answer, which the front can't tell from its middle; inferd takes "
         "x-inferd-timeout-ms from clients"},
        {o->try_timeout, NOBODY, "try_timeout is not said: idle_timeout bounds the wait for the first byte, too"},
        {o->priority != EXPORT_NORMAL, HAPROXY, "priority: the front's waiting requests have none"},
        {o->fallback[0], NOBODY, "fallback: the other pool is not asked; give this pool backup servers"},
    };
    put(p, r->where, rows, COUNT_OF(rows));
}

static void note_server(struct export_plan *p)
{
    const struct config *c = p->c;
    bool tls = config_has_tls(c, "http");
    const struct row rows[] = {
        {tls, NOBODY,
         "tls: it ends at the front, which speaks plain HTTP to these servers: serve them without http in tls.listeners, on an "
         "address that only "
         "the front reaches"},
        {tls && c->tls.client_auth != CONFIG_CLIENT_NONE, NOBODY,
         "tls.client_auth: the front checks client certificates, so inferd behind it sees none: give callers keys or tokens"},
        {tls && c->tls.keys.n, NGINX | ENVOY,
         "tls.keys: HAProxy reads a certificate's key from the same file, or from one beside it with .key at the end of its "
         "name"},
        {tls && c->tls.certificates.n > 1, ENVOY | HAPROXY,
         "tls.certificates: an nginx server block has one certificate of a kind, the first; add a block with server_name for "
         "each other"},
        {c->proxy.protocol, HAPROXY,
         "proxy.protocol: the front sends x-forwarded-for, not a PROXY header: set it to false behind it"},
        {export__is_set(p, "limits.max_connections"), HAPROXY,
         "limits.max_connections: it is worker_connections in nginx's own events block, and Envoy's overload manager"},
        {c->limits.max_connections_per_address, NGINX | HAPROXY,
         "limits.max_connections_per_address: Envoy counts connections, but not by address"},
        {!p->tls && !p->grpc.port.n, ENVOY | HAPROXY,
         "grpc: without TLS nginx needs a port of its own for gRPC and HTTP/2: give --grpc-listen"},
    };
    put(p, "server", rows, COUNT_OF(rows));
}

/* Both of these look at a body before they know the route, or only hold it whole. */
static void note_bodies(struct export_plan *p)
{
    uint64_t least = UINT64_MAX, most = 0;
    for (size_t i = 0; i < p->n_routes; i++) {
        least = MIN_OF(least, p->routes[i].o->max_body);
        most = MAX_OF(most, p->routes[i].o->max_body);
    }
    if (p->o->kind == EXPORT_NGINX && least != most)
        export__note(
            p, "routes",
            "max_body: nginx knows no route yet when it looks at a body's length: the largest, %llu bytes, holds for all",
            (unsigned long long)most);
    if (p->o->kind == EXPORT_ENVOY)
        export__note(
            p, "routes",
            "max_body: Envoy bounds bodies only by holding them whole; inferd behind it bounds them (the largest: %llu bytes)",
            (unsigned long long)most);
}

void export__notes(struct export_plan *p)
{
    note_server(p);
    for (size_t i = 0; i < p->n_pools; i++) {
        note_servers(p, &p->pools[i]);
        note_balance(p, &p->pools[i]);
        note_health(p, &p->pools[i]);
    }
    for (size_t i = 0; i < p->n_routes; i++)
        note_route(p, &p->routes[i]);
    note_bodies(p);
}
