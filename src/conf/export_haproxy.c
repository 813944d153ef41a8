/* export_haproxy.c: the plan in HAProxy's words: one frontend that names a backend by our routes in their order, and two backends a route: one speaks
 * HTTP/1.1 to the servers, one HTTP/2 for gRPC. A backend a route and not a pool, because timeouts, rewriting and retries are the route's. Works from
 * HAProxy 2.4 on. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "conf/export_priv.h"

/* In single quotes, where nothing is special but the quote itself. */
static void quoted(struct export_plan *p, struct str s)
{
    buf_append_c(p->out, '\'');
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '\'')
            buf_append_z(p->out, "'\\''");
        else if ((unsigned char)s.p[i] >= 0x20)
            buf_append_c(p->out, s.p[i]);
    buf_append_c(p->out, '\'');
}

/* The same for a log-format, where % is special. */
static void quoted_format(struct export_plan *p, struct str s)
{
    buf_append_c(p->out, '\'');
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '\'')
            buf_append_z(p->out, "'\\''");
        else if (s.p[i] == '%')
            buf_append_z(p->out, "%%");
        else if ((unsigned char)s.p[i] >= 0x20)
            buf_append_c(p->out, s.p[i]);
    buf_append_c(p->out, '\'');
}

static void address(struct export_plan *p, const struct export_address *a)
{
    bool v6 = a->host.n && memchr(a->host.p, ':', a->host.n);
    buf_printf(p->out, "%s%.*s%s:%.*s", v6 ? "[" : "", STR_ARG(a->host.n ? a->host : STR("*")), v6 ? "]" : "",
               STR_ARG(a->port));
}

/* ---- the frontend ---- */

static void tls_words(struct export_plan *p)
{
    const struct config *c = p->c;
    buf_append_z(p->out, " ssl");
    for (size_t i = 0; i < c->tls.certificates.n; i++) {
        buf_append_z(p->out, " crt ");
        quoted(p, str_of(c->tls.certificates.v[i]));
    }
    buf_append_z(p->out, c->tls.min_version == CONFIG_TLS_13 ? " alpn h2,http/1.1 ssl-min-ver TLSv1.3"
                                                             : " alpn h2,http/1.1 ssl-min-ver TLSv1.2");
    if (c->tls.client_auth == CONFIG_CLIENT_NONE)
        return;
    buf_append_z(p->out, " ca-file ");
    quoted(p, str_of(c->tls.client_ca));
    buf_append_z(p->out, c->tls.client_auth == CONFIG_CLIENT_REQUIRED ? " verify required" : " verify optional");
    if (c->tls.crl[0]) {
        buf_append_z(p->out, " crl-file ");
        quoted(p, str_of(c->tls.crl));
    }
}

static void bind_line(struct export_plan *p, const struct export_address *a)
{
    buf_append_z(p->out, "    bind ");
    address(p, a);
    if (p->tls)
        tls_words(p);
    buf_append_c(p->out, '\n');
}

/* ACLs of one route; true: it has conditions. All of one name are alternatives, so each has its own. */
static void route_acls(struct export_plan *p, size_t i, struct buf *condition)
{
    const struct gateway_route *r = p->routes[i].o;
    const char *path = export__path_regex(p, r);
    struct buf *out = p->out;
    struct str name, value;
    if (path) {
        buf_printf(out, "    acl route%zu_path path_reg '%s'\n", i, path);
        buf_printf(condition, " route%zu_path", i);
    }
    if (r->host[0]) {
        buf_printf(out, "    acl route%zu_host req.hdr(host) -i -m reg '^", i);
        export__host_regex(out, r->host);
        buf_append_z(out, "$'\n");
        buf_printf(condition, " route%zu_host", i);
    }
    if (r->methods.n) {
        buf_printf(out, "    acl route%zu_method method", i);
        for (size_t m = 0; m < r->methods.n; m++) {
            buf_append_c(out, ' ');
            quoted(p, str_of(r->methods.v[m]));
        }
        buf_printf(condition, " route%zu_method", i);
        buf_append_c(out, '\n');
    }
    if (r->header[0]) {
        export__header(r->header, &name, &value);
        buf_printf(out, "    acl route%zu_header req.fhdr(%.*s) -m %s", i, STR_ARG(name), value.p ? "str " : "found");
        if (value.p)
            quoted(p, value);
        buf_printf(condition, " route%zu_header", i);
        buf_append_c(out, '\n');
    }
    if (r->percent < 100) {
        buf_printf(out, "    acl route%zu_share rand(10000) lt %.0f\n", i, r->percent * 100);
        buf_printf(condition, " route%zu_share", i);
    }
}

static void use_backend(struct export_plan *p, size_t i)
{
    struct buf condition;
    buf_init(&condition);
    route_acls(p, i, &condition);
    const char *also = buf_z(&condition);
    p->out->failed |= condition.failed;
    buf_printf(p->out, "    use_backend route%zu_grpc if grpc%s\n", i, also);
    if (condition.n)
        buf_printf(p->out, "    use_backend route%zu if%s\n", i, also);
    else /* what comes later is never reached; of several default_backend the last would win */
        buf_printf(p->out, "    use_backend route%zu\n", i);
    buf_release(&condition);
}

static void frontend(struct export_plan *p)
{
    const struct config *c = p->c;
    struct buf *out = p->out;
    buf_append_z(out, "\nfrontend inferd\n");
    bind_line(p, &p->listen);
    if (p->grpc.port.n)
        bind_line(p, &p->grpc);
    if (c->limits.max_connections_per_address)
        buf_printf(out,
                   "    stick-table type ipv6 size 100k expire 10m store conn_cur\n    tcp-request connection track-sc0 src\n"
                   "    tcp-request connection reject if { sc0_conn_cur gt %u }\n",
                   c->limits.max_connections_per_address);
    /* what names the client is the front's to say */
    buf_append_z(out, "    http-request del-header x-forwarded-for\n    http-request set-header x-forwarded-for %[src]\n"
                      "    http-request set-header x-forwarded-proto https if { ssl_fc }\n"
                      "    http-request set-header x-forwarded-proto http if !{ ssl_fc }\n"
                      "    unique-id-format %{+X}o%pid-%Ts-%rt\n"
                      "    http-request set-header x-request-id %[unique-id] unless { req.hdr(x-request-id) -m found }\n"
                      "    acl grpc req.hdr(content-type) -i -m beg application/grpc\n");
    for (size_t i = 0; i < p->n_routes; i++)
        use_backend(p, i);
}

/* ---- the backends ---- */

static void balance_of(struct export_plan *p, const struct gateway_pool *o)
{
    switch ((enum export_balance)o->balance) {
    case EXPORT_ROUND_ROBIN:
        buf_append_z(p->out, "    balance roundrobin\n");
        return;
    case EXPORT_LEAST_CONN:
    case EXPORT_LLM:
        buf_append_z(p->out, "    balance leastconn\n");
        return;
    case EXPORT_P2C:
        buf_append_z(p->out, "    balance random(2)\n");
        return;
    case EXPORT_HASH:
        break;
    }
    if (o->hash_header[0])
        buf_printf(p->out, "    balance hdr(%s)\n", o->hash_header);
    else
        buf_append_z(p->out, o->hash_key == GATEWAY_HASH_CLIENT ? "    balance source\n" : "    balance uri\n");
    buf_append_z(p->out, "    hash-type consistent\n    hash-balance-factor 125\n"); /* the bound of our own `hash` */
}

static void retries(struct export_plan *p, const struct export_route *r)
{
    static const char *const words[][2] = {{"connect", "conn-failure"},
                                           {"reset", "empty-response junk-response"},
                                           {"timeout", "response-timeout"},
                                           {"502", "502"},
                                           {"503", "503"},
                                           {"504", "504"}};
    const struct gateway_pool *o = r->pool->o;
    struct buf *out = p->out;
    buf_printf(out, "    retries %u\n", o->retry.attempts - 1);
    if (o->retry.attempts <= 1 || !o->retry.on.n)
        return;
    buf_append_z(out, "    option redispatch 1\n");
    size_t before = out->n;
    buf_append_z(out, "    retry-on");
    size_t named = out->n;
    for (size_t i = 0; i < (r->o->idempotent ? COUNT_OF(words) : 1); i++)
        if (export__has_word(&o->retry.on, words[i][0]))
            buf_printf(out, " %s", words[i][1]);
    if (out->n == named)
        out->n = before;
    else
        buf_append_c(out, '\n');
}

/* TLS to the server, verified; gRPC wants HTTP/2, which ALPN agrees on. */
static void server_tls(struct export_plan *p, const struct gateway_pool *o, bool grpc)
{
    struct str name = export__tls_name(o);
    buf_append_z(p->out, " ssl verify required ca-file ");
    quoted(p, str_of(export__tls_ca(o)));
    if (!export__is_ip(name)) {
        buf_append_z(p->out, " verifyhost ");
        quoted(p, name);
    }
    if (!export__is_ip(name))
        buf_printf(p->out, " sni str(%.*s) check-sni %.*s", STR_ARG(name), STR_ARG(name));
    if (o->tls.certificate[0]) {
        buf_append_z(p->out, " crt ");
        quoted(p, str_of(o->tls.certificate));
    }
    buf_append_z(p->out, grpc || (enum export_protocol)o->protocol == EXPORT_HTTP2 ? " alpn h2 check-alpn http/1.1"
                         : (enum export_protocol)o->protocol == EXPORT_AUTO        ? " alpn h2,http/1.1 check-alpn http/1.1"
                                                                                   : " alpn http/1.1");
}

static void server_line(struct export_plan *p, const struct export_pool *pool, size_t i, bool grpc)
{
    const struct gateway_pool *o = pool->o;
    const struct gateway_server *s = &o->servers[i];
    struct buf *out = p->out;
    bool is_local = strncmp(s->address, "unix:", 5) == 0;
    buf_printf(out, "    server %s%zu %s", pool->name, i, is_local ? "unix@" : "");
    buf_append_z(out, is_local ? s->address + 5 : s->address);
    buf_printf(out, " weight %u", MIN_OF(s->weight, 256u));
    if (s->weight > 256)
        export__note(p, pool->where, "weight %u: HAProxy's end at 256", s->weight);
    if (s->backup)
        buf_append_z(out, " backup");
    if (s->max_conns)
        buf_printf(out, " maxconn %u maxqueue %u", s->max_conns, o->queue);
    uint64_t slow = s->slow_start ? s->slow_start : o->slow_start;
    if (slow)
        buf_printf(out, " slowstart %llums", export__ms(slow));
    if (o->keepalive)
        buf_printf(out, " pool-max-conn %u pool-purge-delay %llums", o->keepalive, export__ms(o->keepalive_timeout));
    if (o->report.agent_port)
        buf_printf(out, " agent-check agent-port %u agent-inter %llums", o->report.agent_port, export__ms(o->report.interval));
    if (o->tls.ca[0])
        server_tls(p, o, grpc);
    else if (grpc || (enum export_protocol)o->protocol == EXPORT_HTTP2)
        buf_append_z(out, " proto h2");
    if (o->check.path[0])
        buf_printf(out, " check inter %llums fall %u rise %u observe layer7 error-limit %u on-error mark-down%s",
                   export__ms(o->check.interval), o->check.fall, o->check.rise, s->max_fails ? s->max_fails : o->max_fails,
                   grpc && !o->tls.ca[0] ? " check-proto h1" : "");
    if (p->c->proxy.protocol && o == p->pools[p->n_pools - 1].o)
        buf_append_z(out, " send-proxy-v2 check-send-proxy");
    buf_append_c(out, '\n');
}

static void headers_of(struct export_plan *p, const struct gateway_route *o)
{
    struct str name, value;
    for (size_t i = 0; i < o->remove_headers.n; i++)
        buf_printf(p->out, "    http-request del-header %s\n", o->remove_headers.v[i]);
    for (size_t i = 0; i < o->set_headers.n; i++) {
        export__header(o->set_headers.v[i], &name, &value);
        buf_printf(p->out, "    http-request set-header %.*s ", STR_ARG(name));
        quoted_format(p, value);
        buf_append_c(p->out, '\n');
    }
    if (o->rewrite_model[0]) /* a model's name: letters, digits, - _ . and : */
        buf_printf(p->out, "    http-request replace-path '^/v2/models/[^/]+(.*)$' '/v2/models/%s\\1'\n", o->rewrite_model);
}

/* A GET, or a canary: a real inference. One answer is looked at twice: its status, and what has to be in it. */
static void http_check(struct export_plan *p, const struct gateway_pool *o)
{
    struct buf *out = p->out;
    buf_printf(out, "    timeout check %llums\n    option httpchk\n    http-check send meth %s uri ",
               export__ms(o->check.timeout), o->check.body[0] ? "POST" : "GET");
    quoted(p, str_of(o->check.path));
    buf_append_z(out, " ver HTTP/1.1 hdr Host inferd");
    if (o->check.body[0]) {
        buf_append_z(out, " hdr Content-Type ");
        quoted_format(p, str_of(o->check.content_type));
        buf_append_z(out, " body ");
        quoted(p, str_of(o->check.body));
    }
    buf_append_z(out, "\n    http-check expect status 200-299\n");
    if (!o->check.expect[0])
        return;
    buf_append_z(out, "    http-check expect string ");
    quoted(p, str_of(o->check.expect));
    buf_append_c(out, '\n');
}

static void backend(struct export_plan *p, size_t i, bool grpc)
{
    const struct export_route *r = &p->routes[i];
    const struct gateway_pool *o = r->pool->o;
    struct buf *out = p->out;
    buf_printf(out, "\nbackend route%zu%s\n", i, grpc ? "_grpc" : "");
    balance_of(p, o);
    buf_printf(out, "    timeout connect %llums\n    timeout server %llums\n    timeout queue %llums\n",
               export__ms(o->connect_timeout), export__ms(r->o->idle_timeout), export__ms(o->queue_timeout));
    if (r->o->websocket)
        buf_printf(out, "    timeout tunnel %llums\n", export__ms(r->o->idle_timeout));
    buf_append_z(out, "    http-reuse always\n    option allbackups\n");
    retries(p, r);
    /* a chunked body has no length to see: inferd's own limit holds for it */
    buf_printf(out, "    http-request deny deny_status 413 if { req.hdr_val(content-length) gt %llu }\n",
               (unsigned long long)r->o->max_body);
    if (r->o->priority != EXPORT_NORMAL) /* 0 is what all others have; the lower, the sooner */
        buf_printf(out, "    http-request set-priority-class int(%d)\n", r->o->priority - EXPORT_NORMAL);
    headers_of(p, r->o);
    if (o->check.path[0]) {
        http_check(p, o);
    }
    for (size_t s = 0; s < o->n_servers; s++)
        server_line(p, r->pool, s, grpc);
}

void export__haproxy(struct export_plan *p)
{
    const struct config *c = p->c;
    struct buf *out = p->out;
    uint32_t head = c->limits.max_header_bytes + c->limits.max_url_bytes;
    buf_append_z(out, "global\n");
    if (export__is_set(p, "limits.max_connections")) /* else HAProxy takes what the process may open */
        buf_printf(out, "    maxconn %u\n", c->limits.max_connections);
    buf_printf(out, "    tune.bufsize %u\n    tune.h2.max-concurrent-streams %u\n", MAX_OF(head + 8192, 16384u),
               c->limits.http2_max_streams);
    /* the client's timeout is the longest silence of any route: it holds while an answer streams, too */
    uint64_t silence = c->limits.body_timeout;
    for (size_t i = 0; i < p->n_routes; i++)
        silence = MAX_OF(silence, p->routes[i].o->idle_timeout);
    buf_printf(out, "\ndefaults\n    mode http\n    timeout connect 1s\n    timeout client %llums\n    timeout server %llums\n",
               export__ms(silence), export__ms(silence));
    buf_printf(out, "    timeout http-request %llums\n    timeout http-keep-alive %llums\n    option http-no-delay\n",
               export__ms(c->limits.header_timeout), export__ms(c->limits.idle_timeout));
    frontend(p);
    for (size_t i = 0; i < p->n_routes; i++) {
        backend(p, i, false);
        backend(p, i, true);
    }
}
