/* export_nginx.c: the plan in nginx's words.
 *
 * nginx's own order of locations is not ours (the first route that matches), and a location can't ask for a method, a header or a share. So a `map`,
 * whose expressions are tried in their order, names the route, and `try_files` goes to the location of that name; a file of it is never found.
 * A pool is two upstream blocks, because kept connections of HTTP/1.1 and of gRPC must not be mixed. Works from nginx 1.19 on. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "conf/export_priv.h"

static void quoted(struct export_plan *p, struct str s)
{
    buf_append_c(p->out, '"');
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '"' || s.p[i] == '\\')
            buf_append_c(p->out, '\\');
        buf_append_c(p->out, s.p[i]);
    }
    buf_append_c(p->out, '"');
}

/* nginx has no way to write a dollar sign that is only that, nor a line's end. */
static bool can_quote(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '$' || (unsigned char)s.p[i] < 0x20)
            return false;
    return true;
}

static void balance_of(struct export_plan *p, const struct gateway_pool *o)
{
    switch ((enum export_balance)o->balance) {
    case EXPORT_ROUND_ROBIN:
        break;
    case EXPORT_LEAST_CONN:
    case EXPORT_LLM:
        buf_append_z(p->out, "    least_conn;\n");
        break;
    case EXPORT_P2C:
        buf_append_z(p->out, "    random two least_conn;\n");
        break;
    case EXPORT_HASH:
        buf_append_z(p->out, "    hash ");
        if (o->hash_header[0]) {
            buf_append_z(p->out, "$http_");
            for (const char *at = o->hash_header; *at; at++)
                buf_append_c(p->out, *at == '-' ? '_' : (char)(*at >= 'A' && *at <= 'Z' ? *at + 32 : *at));
        } else {
            buf_append_z(p->out, o->hash_key == GATEWAY_HASH_CLIENT ? "$remote_addr" : "$uri");
        }
        buf_append_z(p->out, " consistent;\n");
        break;
    }
}

static void server_line(struct export_plan *p, const struct gateway_pool *o, const struct gateway_server *s)
{
    struct buf *out = p->out;
    buf_printf(out, "    server %s", s->address);
    if (s->weight != 1)
        buf_printf(out, " weight=%u", s->weight);
    buf_printf(out, " max_fails=%u fail_timeout=%llus", s->max_fails ? s->max_fails : o->max_fails,
               (s->max_fails ? s->fail_timeout : o->eject_base) / (1000 * EXPORT_MS));
    if (s->max_conns)
        buf_printf(out, " max_conns=%u", s->max_conns);
    buf_append_z(out, s->backup ? " backup;\n" : ";\n");
}

static void upstream_block(struct export_plan *p, const struct export_pool *pool, const char *suffix)
{
    buf_printf(p->out, "upstream %s%s {\n    zone pool_%s%s 256k;\n", pool->name, suffix, pool->name, suffix);
    balance_of(p, pool->o);
    for (size_t i = 0; i < pool->o->n_servers; i++)
        server_line(p, pool->o, &pool->o->servers[i]);
    if (pool->o->keepalive)
        buf_printf(p->out, "    keepalive %u;\n    keepalive_requests 1000000;\n    keepalive_timeout %llums;\n",
                   pool->o->keepalive, export__ms(pool->o->keepalive_timeout));
    buf_append_z(p->out, "}\n");
}

/* ---- which route ---- */

/* A variable that is 1 where the route's header and share agree. False: it has neither. */
static bool condition(struct export_plan *p, size_t i)
{
    const struct gateway_route *r = p->routes[i].o;
    struct str name, value;
    if (r->header[0]) {
        export__header(r->header, &name, &value);
        buf_append_z(p->out, "map $http_");
        for (size_t at = 0; at < name.n; at++)
            buf_append_c(p->out, name.p[at] == '-'
                                     ? '_'
                                     : (char)(name.p[at] >= 'A' && name.p[at] <= 'Z' ? name.p[at] + 32 : name.p[at]));
        buf_printf(p->out, " $inferd_h%zu { default 0; \"~^", i);
        if (value.p) {
            export__regex(p->out, value);
            buf_append_z(p->out, "$\" 1; }\n");
        } else {
            buf_append_z(p->out, ".\" 1; }\n");
        }
    }
    if (r->percent < 100)
        buf_printf(p->out, "split_clients \"${request_id}%zu\" $inferd_p%zu { %.2f%% 1; * 0; }\n", i, i, r->percent);
    return r->header[0] || r->percent < 100;
}

/* What the map looks at, and per route the beginning of its expression: a digit for each condition of any route. */
static void conditions_text(struct export_plan *p, size_t route, bool names)
{
    for (size_t i = 0; i < p->n_routes; i++) {
        const struct gateway_route *r = p->routes[i].o;
        if (r->header[0]) {
            if (names)
                buf_printf(p->out, "$inferd_h%zu", i);
            else
                buf_append_c(p->out, i == route ? '1' : '.');
        }
        if (r->percent < 100) {
            if (names)
                buf_printf(p->out, "$inferd_p%zu", i);
            else
                buf_append_c(p->out, i == route ? '1' : '.');
        }
    }
}

static void route_row(struct export_plan *p, size_t i)
{
    struct buf *out = p->out;
    const struct gateway_route *r = p->routes[i].o;
    const char *path = export__path_regex(p, r);
    buf_append_z(out, "    \"~^");
    conditions_text(p, i, false);
    buf_append_z(out, " ");
    for (size_t m = 0; m < r->methods.n; m++) {
        buf_append_z(out, m ? "|" : "(?:");
        export__regex(out, str_of(r->methods.v[m]));
    }
    buf_append_z(out, r->methods.n ? ") " : "[^ ]+ ");
    if (r->host[0])
        export__host_regex(out, r->host);
    else
        buf_append_z(out, "[^ ]*");
    buf_printf(out, " %s\" route%zu;\n", path ? path + 1 : "", i);
}

static void route_map(struct export_plan *p)
{
    bool any = false;
    for (size_t i = 0; i < p->n_routes; i++)
        any |= condition(p, i);
    bool websocket = false;
    for (size_t i = 0; i < p->n_routes; i++)
        websocket |= p->routes[i].o->websocket;
    if (websocket) /* anything else than an upgrade keeps its connection */
        buf_append_z(p->out, "\nmap $http_upgrade $inferd_connection {\n  default upgrade;\n  \"\" \"\";\n}\n");
    buf_append_z(p->out, any || websocket ? "\nmap \"" : "map \"");
    conditions_text(p, 0, true);
    buf_append_z(p->out, " $request_method $host $uri\" $inferd_route {\n");
    for (size_t i = 0; i < p->n_routes; i++)
        route_row(p, i);
    buf_append_z(p->out, "}\n");
}

/* ---- where to ---- */

static void next_upstream(struct export_plan *p, const struct export_route *r, const char *prefix)
{
    static const char *const answers[] = {"502", "503", "504"};
    const struct gateway_pool *o = r->pool->o;
    struct buf *out = p->out;
    const struct gateway_words *on = &o->retry.on;
    if (o->retry.attempts <= 1 || !on->n) {
        buf_printf(out, "    %s_next_upstream off;\n", prefix);
        return;
    }
    buf_printf(out, "    %s_next_upstream", prefix);
    if (export__has_word(on, "connect") || export__has_word(on, "reset"))
        buf_append_z(out, " error");
    if (export__has_word(on, "timeout"))
        buf_append_z(out, " timeout");
    for (size_t i = 0; i < COUNT_OF(answers); i++)
        if (export__has_word(on, answers[i]))
            buf_printf(out, " http_%s", answers[i]);
    buf_append_z(out, r->o->idempotent ? " non_idempotent;\n" : ";\n");
    buf_printf(out, "    %s_next_upstream_tries %u;\n", prefix, o->retry.attempts);
}

static void headers_of(struct export_plan *p, const struct export_route *r, const char *prefix)
{
    const struct gateway_route *o = r->o;
    struct str name, value;
    for (size_t i = 0; i < o->set_headers.n; i++) {
        export__header(o->set_headers.v[i], &name, &value);
        if (!can_quote(value)) {
            export__note(p, r->where, "set_headers: nginx can't write a dollar sign; %.*s is not set", STR_ARG(name));
            continue;
        }
        buf_printf(p->out, "    %s_set_header %.*s ", prefix, STR_ARG(name));
        quoted(p, value);
        buf_append_z(p->out, ";\n");
    }
    for (size_t i = 0; i < o->remove_headers.n; i++)
        buf_printf(p->out, "    %s_set_header %s \"\";\n", prefix, o->remove_headers.v[i]);
}

/* TLS to the servers, verified. */
static void upstream_tls(struct export_plan *p, const struct gateway_pool *o, const char *prefix)
{
    struct buf *out = p->out;
    if (!o->tls.ca[0])
        return;
    buf_printf(out,
               "    %s_ssl_server_name on;\n    %s_ssl_verify on;\n    %s_ssl_verify_depth 5;\n    %s_ssl_name \"%.*s\";\n",
               prefix, prefix, prefix, prefix, STR_ARG(export__tls_name(o)));
    buf_printf(out, "    %s_ssl_trusted_certificate ", prefix);
    quoted(p, str_of(export__tls_ca(o)));
    if (o->tls.certificate[0]) {
        buf_printf(out, ";\n    %s_ssl_certificate ", prefix);
        quoted(p, str_of(o->tls.certificate));
        buf_printf(out, ";\n    %s_ssl_certificate_key ", prefix);
        quoted(p, str_of(o->tls.key[0] ? o->tls.key : o->tls.certificate));
    }
    buf_append_z(out, ";\n");
}

/* What both kinds of a location have. */
static void location_common(struct export_plan *p, const struct export_route *r, const char *prefix)
{
    struct buf *out = p->out;
    if (r->o->rewrite_model[0]) {
        buf_append_z(out, "    rewrite ^/v2/models/[^/]+(.*)$ \"/v2/models/");
        buf_append_z(out, r->o->rewrite_model); /* a model's name: letters, digits, - _ . and : */
        buf_append_z(out, "$1\" break;\n");
    }
    buf_printf(out, "    %s_set_header Host $http_host;\n", prefix);
    buf_printf(out, "    %s_set_header X-Forwarded-For $remote_addr;\n    %s_set_header X-Forwarded-Proto $scheme;\n", prefix,
               prefix);
    buf_printf(out, "    %s_set_header X-Request-Id $inferd_request_id;\n", prefix);
    headers_of(p, r, prefix);
    buf_printf(out, "    %s_connect_timeout %llums;\n", prefix, export__ms(r->pool->o->connect_timeout));
    buf_printf(out, "    %s_read_timeout %llums;\n    %s_send_timeout %llums;\n", prefix, export__ms(r->o->idle_timeout),
               prefix, export__ms(r->o->idle_timeout));
    next_upstream(p, r, prefix);
    upstream_tls(p, r->pool->o, prefix);
}

static void locations(struct export_plan *p, size_t i)
{
    const struct export_route *r = &p->routes[i];
    struct buf *out = p->out;
    buf_printf(out, "\n  location @route%zu {\n    proxy_pass http%s://%s;\n", i, r->pool->o->tls.ca[0] ? "s" : "",
               r->pool->name);
    /* kept connections need both; answers are passed on as they come, events one by one */
    buf_append_z(out, "    proxy_http_version 1.1;\n    proxy_buffering off;\n");
    buf_append_z(out, r->o->websocket
                          ? "    proxy_set_header Connection $inferd_connection;\n    proxy_set_header Upgrade $http_upgrade;\n"
                          : "    proxy_set_header Connection \"\";\n");
    location_common(p, r, "proxy");
    buf_printf(out, "  }\n  location @route%zu_grpc {\n    grpc_pass grpc%s://%s_grpc;\n", i, r->pool->o->tls.ca[0] ? "s" : "",
               r->pool->name);
    location_common(p, r, "grpc");
    buf_append_z(out, "  }\n");
}

/* ---- the server ---- */

static void address(struct export_plan *p, const struct export_address *a)
{
    bool v6 = a->host.n && memchr(a->host.p, ':', a->host.n);
    buf_printf(p->out, "%s%.*s%s:%.*s", v6 ? "[" : "", STR_ARG(a->host.n ? a->host : STR("*")), v6 ? "]" : "",
               STR_ARG(a->port));
}

static void tls_lines(struct export_plan *p)
{
    const struct config *c = p->c;
    struct buf *out = p->out;
    for (size_t i = 0; i < c->tls.certificates.n; i++) {
        buf_append_z(out, "  ssl_certificate ");
        quoted(p, str_of(c->tls.certificates.v[i]));
        buf_append_z(out, ";\n  ssl_certificate_key ");
        quoted(p, str_of(c->tls.keys.n ? c->tls.keys.v[i] : c->tls.certificates.v[i]));
        buf_append_z(out, ";\n");
        break; /* one of a kind: see the notes */
    }
    buf_append_z(out,
                 c->tls.min_version == CONFIG_TLS_13 ? "  ssl_protocols TLSv1.3;\n" : "  ssl_protocols TLSv1.2 TLSv1.3;\n");
    buf_append_z(out, "  ssl_session_cache shared:inferd_tls:10m;\n");
    if (c->tls.client_auth == CONFIG_CLIENT_NONE)
        return;
    buf_append_z(out, "  ssl_client_certificate ");
    quoted(p, str_of(c->tls.client_ca));
    buf_printf(out, ";\n  ssl_verify_client %s;\n", c->tls.client_auth == CONFIG_CLIENT_REQUIRED ? "on" : "optional");
    if (c->tls.crl[0]) {
        buf_append_z(out, "  ssl_crl ");
        quoted(p, str_of(c->tls.crl));
        buf_append_z(out, ";\n");
    }
}

static void limit_lines(struct export_plan *p)
{
    const struct config *c = p->c;
    struct buf *out = p->out;
    buf_printf(out,
               "client_header_timeout %llums;\nclient_body_timeout %llums;\nkeepalive_timeout %llums;\nsend_timeout %llums;\n",
               export__ms(c->limits.header_timeout), export__ms(c->limits.body_timeout), export__ms(c->limits.idle_timeout),
               export__ms(c->limits.write_timeout));
    buf_printf(out, "large_client_header_buffers 4 %uk;\n",
               MAX_OF(MAX_OF(c->limits.max_header_bytes, c->limits.max_url_bytes) / 1024, 8u));
    buf_append_z(out, "client_body_buffer_size 256k;\ntcp_nodelay on;\nserver_tokens off;\nunderscores_in_headers off;\n");
    if (c->limits.max_connections_per_address)
        buf_printf(out, "limit_conn_zone $binary_remote_addr zone=inferd_clients:10m;\nlimit_conn inferd_clients %u;\n",
                   c->limits.max_connections_per_address);
}

/* nginx looks at a body's length before it knows the route: the largest limit of all holds there. */
static void body_limit(struct export_plan *p)
{
    uint64_t most = 0;
    for (size_t i = 0; i < p->n_routes; i++)
        most = MAX_OF(most, p->routes[i].o->max_body);
    buf_printf(p->out, "  client_max_body_size %llu;\n", (unsigned long long)most);
}

static void server_block(struct export_plan *p)
{
    struct buf *out = p->out;
    buf_append_z(out, "\nserver {\n  listen ");
    address(p, &p->listen);
    buf_append_z(out, p->tls ? " ssl http2;\n" : ";\n"); /* one port speaks both only where ALPN tells which */
    if (p->grpc.port.n) {
        buf_append_z(out, "  listen ");
        address(p, &p->grpc);
        buf_append_z(out, p->tls ? " ssl http2;\n" : " http2;\n");
    }
    if (p->tls)
        tls_lines(p);
    buf_printf(out, "  http2_max_concurrent_streams %u;\n", p->c->limits.http2_max_streams);
    body_limit(p);
    buf_append_z(out, "\n  location / { try_files /.never @$inferd_route$inferd_kind; }\n");
    for (size_t i = 0; i < p->n_routes; i++)
        locations(p, i);
    buf_append_z(out, "}\n");
}

void export__nginx(struct export_plan *p)
{
    struct buf *out = p->out;
    buf_append_z(out, "# For the http block: put it into /etc/nginx/conf.d/.\n");
    limit_lines(p);
    buf_append_z(out, "\n");
    for (size_t i = 0; i < p->n_pools; i++) {
        upstream_block(p, &p->pools[i], "");
        upstream_block(p, &p->pools[i], "_grpc");
    }
    buf_append_z(out, "\n# Which route: the first row that matches, as in inferd's own file.\n");
    buf_append_z(out, "map $content_type $inferd_kind { default \"\"; \"~*^application/grpc\" _grpc; }\n"
                      "map $http_x_request_id $inferd_request_id { default $http_x_request_id; \"\" $request_id; }\n");
    route_map(p);
    server_block(p);
}
