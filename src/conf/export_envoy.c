/* export_envoy.c: the plan as Envoy's bootstrap file: one listener, one table of routes in our order, a cluster a pool that speaks to servers what the
 * client spoke (HTTP/1.1, or HTTP/2 and so gRPC). Strings are written as JSON, which YAML's flow style is. Works from Envoy 1.24 on. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "conf/export_priv.h"

#define MANY 65536 /* requests at once to a cluster: no bound of ours */

#define TYPE "\"@type\": type.googleapis.com/envoy.extensions."

static void text(struct export_plan *p, struct str s)
{
    buf_append_json_str(p->out, s);
}

static void textz(struct export_plan *p, const char *z)
{
    buf_append_json_str(p->out, str_of(z));
}

/* Percent signs are special in header values. */
static void format(struct export_plan *p, struct str s)
{
    struct buf b;
    buf_init(&b);
    for (size_t i = 0; i < s.n; i++)
        buf_append_z(&b, s.p[i] == '%' ? "%%" : (char[2]){s.p[i], 0});
    buf_append_json_str(p->out, buf_str(&b));
    p->out->failed |= b.failed;
    buf_release(&b);
}

static void seconds(struct export_plan *p, const char *before, uint64_t ns, const char *behind)
{
    unsigned long long ms = export__ms(ns);
    buf_printf(p->out, "%s%llu.%03llus%s", before, ms / 1000, ms % 1000, behind);
}

static void address(struct export_plan *p, const struct export_address *a)
{
    if (a->path) {
        buf_append_z(p->out, "{pipe: {path: ");
        textz(p, a->path);
        buf_append_z(p->out, "}}");
        return;
    }
    buf_append_z(p->out, "{socket_address: {address: ");
    text(p, a->host.n ? a->host : STR("::"));
    buf_printf(p->out, ", port_value: %.*s%s}}", STR_ARG(a->port), a->host.n ? "" : ", ipv4_compat: true");
}

/* ---- routes ---- */

static void header_match(struct export_plan *p, struct str name, const char *how, struct str value)
{
    buf_append_z(p->out, "            - {name: ");
    text(p, name);
    buf_printf(p->out, ", %s", how);
    if (value.p)
        text(p, value);
    buf_append_z(p->out, value.p ? "}}\n" : "}\n");
}

static void regex_match(struct export_plan *p, const char *name, const struct buf *regex)
{
    header_match(p, str_of(name), "string_match: {safe_regex: {regex: ", buf_str(regex));
    p->out->n--; /* one more brace: the expression is a map of its own */
    buf_append_z(p->out, "}\n");
    p->out->failed |= regex->failed;
}

static void match(struct export_plan *p, const struct gateway_route *r)
{
    struct buf *out = p->out, b;
    const char *path = export__path_regex(p, r);
    struct str name, value;
    buf_init(&b);
    buf_append_z(out, "        - match:\n            ");
    if (path) { /* the whole path has to agree, so an open end says so */
        size_t n = strlen(path);
        bool closed = path[n - 1] == '$';
        buf_printf(&b, "%.*s%s", (int)(n - closed - 1), path + 1, closed ? "" : ".*");
        buf_append_z(out, "safe_regex: {regex: ");
        text(p, buf_str(&b));
        buf_append_z(out, "}\n");
        buf_clear(&b);
    } else {
        buf_append_z(out, "prefix: \"/\"\n");
    }
    if (r->percent < 100)
        buf_printf(out, "            runtime_fraction: {default_value: {numerator: %.0f, denominator: TEN_THOUSAND}}\n",
                   r->percent * 100);
    if (r->header[0] || r->host[0] || r->methods.n)
        buf_append_z(out, "            headers:\n");
    if (r->header[0]) {
        export__header(r->header, &name, &value);
        header_match(p, name, value.p ? "string_match: {exact: " : "present_match: true", value);
    }
    if (r->host[0]) {
        buf_append_z(&b, "(?i)");
        export__host_regex(&b, r->host);
        regex_match(p, ":authority", &b);
        buf_clear(&b);
    }
    for (size_t i = 0; i < r->methods.n; i++) {
        buf_append_z(&b, i ? "|" : "");
        export__regex(&b, str_of(r->methods.v[i]));
    }
    if (r->methods.n)
        regex_match(p, ":method", &b);
    out->failed |= b.failed;
    buf_release(&b);
}

static void retries(struct export_plan *p, const struct export_route *r)
{
    static const char *const answers[] = {"502", "503", "504"};
    const struct gateway_pool *o = r->pool->o;
    const struct gateway_words *on = &o->retry.on;
    struct buf *out = p->out;
    bool reset = r->o->idempotent && export__has_word(on, "reset"), any = false;
    if (o->retry.attempts <= 1 || !on->n)
        return;
    /* the draw among few servers falls on the one that just failed again and again: 16 draws for another */
    buf_printf(out,
               "            retry_policy:\n              num_retries: %u\n              retry_on: "
               "\"connect-failure,refused-stream%s%s\"\n",
               o->retry.attempts - 1, reset ? ",reset" : "", r->o->idempotent ? ",retriable-status-codes" : "");
    buf_append_z(out, "              host_selection_retry_max_attempts: 16\n              retry_host_predicate: [{name: "
                      "previous_hosts, typed_config: "
                      "{" TYPE "retry.host.previous_hosts.v3.PreviousHostsPredicate}}]\n");
    for (size_t i = 0; r->o->idempotent && i < COUNT_OF(answers); i++)
        if (export__has_word(on, answers[i])) {
            buf_printf(out, "%s%s", any ? ", " : "              retriable_status_codes: [", answers[i]);
            any = true;
        }
    buf_append_z(out, any ? "]\n" : "");
}

static void hash_policy(struct export_plan *p, const struct gateway_pool *o)
{
    if ((enum export_balance)o->balance != EXPORT_HASH)
        return;
    buf_append_z(p->out, "            hash_policy: [");
    if (o->hash_header[0]) {
        buf_append_z(p->out, "{header: {header_name: ");
        textz(p, o->hash_header);
        buf_append_z(p->out, "}}");
    } else {
        buf_append_z(p->out, o->hash_key == GATEWAY_HASH_CLIENT ? "{connection_properties: {source_ip: true}}"
                                                                : "{header: {header_name: \":path\"}}");
    }
    buf_append_z(p->out, "]\n");
}

static void route_headers(struct export_plan *p, const struct gateway_route *o)
{
    struct buf *out = p->out;
    struct str name, value;
    if (o->set_headers.n)
        buf_append_z(out, "          request_headers_to_add:\n");
    for (size_t i = 0; i < o->set_headers.n; i++) {
        export__header(o->set_headers.v[i], &name, &value);
        buf_append_z(out, "          - {header: {key: ");
        text(p, name);
        buf_append_z(out, ", value: ");
        format(p, value);
        buf_append_z(out, "}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}\n");
    }
    if (o->remove_headers.n)
        buf_append_z(out, "          request_headers_to_remove: [");
    for (size_t i = 0; i < o->remove_headers.n; i++) {
        buf_append_z(out, i ? ", " : "");
        textz(p, o->remove_headers.v[i]);
    }
    buf_append_z(out, o->remove_headers.n ? "]\n" : "");
}

static void route(struct export_plan *p, const struct export_route *r)
{
    struct buf *out = p->out;
    match(p, r->o);
    /* no time for the whole answer: it may be a stream for as long as it says something */
    buf_printf(out, "          route:\n            cluster: %s\n            timeout: 0s\n", r->pool->name);
    seconds(p, "            idle_timeout: ", r->o->idle_timeout, "\n");
    if (r->o->websocket)
        buf_append_z(out, "            upgrade_configs: [{upgrade_type: websocket}]\n");
    if (r->o->rewrite_model[0]) {
        buf_append_z(out, "            regex_rewrite: {pattern: {regex: \"^/v2/models/[^/?]+\"}, substitution: \"/v2/models/");
        buf_append_z(out, r->o->rewrite_model); /* a model's name: letters, digits, - _ . and : */
        buf_append_z(out, "\"}\n");
    }
    retries(p, r);
    hash_policy(p, r->pool->o);
    route_headers(p, r->o);
}

/* ---- clusters ---- */

static void balance_of(struct export_plan *p, const struct gateway_pool *o)
{
    static const char *const words[] = {[EXPORT_ROUND_ROBIN] = "ROUND_ROBIN",
                                        [EXPORT_LEAST_CONN] = "LEAST_REQUEST",
                                        [EXPORT_P2C] = "LEAST_REQUEST",
                                        [EXPORT_HASH] = "RING_HASH",
                                        [EXPORT_LLM] = "LEAST_REQUEST"};
    static const char *const slow[] = {[EXPORT_ROUND_ROBIN] = "round_robin_lb_config",
                                       [EXPORT_LEAST_CONN] = "least_request_lb_config",
                                       [EXPORT_P2C] = "least_request_lb_config",
                                       [EXPORT_LLM] = "least_request_lb_config"};
    buf_printf(p->out, "    lb_policy: %s\n", words[o->balance]);
    if ((enum export_balance)o->balance == EXPORT_HASH)
        buf_append_z(
            p->out,
            "    common_lb_config: {consistent_hashing_lb_config: {hash_balance_factor: 125}}\n"); /* the bound of our own `hash` */
    else if (o->slow_start) {
        buf_printf(p->out, "    %s: {slow_start_config: {", slow[o->balance]);
        seconds(p, "slow_start_window: ", o->slow_start, "}}\n");
    }
}

static void servers(struct export_plan *p, const struct export_pool *pool, bool backup)
{
    const struct gateway_pool *o = pool->o;
    bool begun = false;
    for (size_t i = 0; i < o->n_servers; i++) {
        const struct gateway_server *s = &o->servers[i];
        struct export_address a = export__address(s->address);
        if (s->backup != backup)
            continue;
        if (!begun)
            buf_printf(p->out, "      - priority: %d\n        lb_endpoints:\n", backup);
        begun = true;
        buf_append_z(p->out, "        - {endpoint: {address: ");
        address(p, &a);
        buf_printf(p->out, "}, load_balancing_weight: %u}\n", s->weight);
    }
}

static void health(struct export_plan *p, const struct gateway_pool *o)
{
    struct buf *out = p->out;
    if (o->check.path[0] || o->check.grpc) {
        seconds(p, "    health_checks:\n    - timeout: ", o->check.timeout, "\n");
        seconds(p, "      interval: ", o->check.interval, "\n");
        seconds(p, "      no_traffic_interval: ", o->check.interval, "\n");
        buf_printf(out, "      unhealthy_threshold: %u\n      healthy_threshold: %u\n", o->check.fall, o->check.rise);
        buf_append_z(out, o->check.grpc ? "      grpc_health_check: {service_name: "
                                        : "      http_health_check: {host: inferd, path: ");
        textz(p, o->check.grpc ? o->check.service : o->check.path);
        buf_append_z(out, o->check.grpc ? "}\n" : ", expected_statuses: [{start: 200, end: 300}]}\n");
    }
    buf_printf(
        out,
        "    outlier_detection:\n      consecutive_gateway_failure: %u\n      enforcing_consecutive_gateway_failure: 100\n"
        "      enforcing_success_rate: 0\n      max_ejection_percent: %u\n",
        o->max_fails, (unsigned)(100 - 100 * MIN_OF(o->min_healthy, (uint32_t)o->n_servers) / o->n_servers));
    seconds(p, "      base_ejection_time: ", o->eject_base, "\n");
    seconds(p, "      max_ejection_time: ", o->eject_max, "\n");
    buf_append_z(
        out,
        "      successful_active_health_check_uneject_host: false\n"); /* as ours: passing a check is not answering inference */
}

/* TLS to the servers, verified. ALPN is what the connection's protocol asks for. */
static void upstream_tls(struct export_plan *p, const struct gateway_pool *o)
{
    struct buf *out = p->out;
    struct str name = export__tls_name(o);
    if (!o->tls.ca[0])
        return;
    buf_append_z(out, "    transport_socket:\n      name: envoy.transport_sockets.tls\n      typed_config:\n"
                      "        " TYPE "transport_sockets.tls.v3.UpstreamTlsContext\n        sni: ");
    text(p, name);
    buf_append_z(out, "\n        common_tls_context:\n          validation_context:\n            trusted_ca: {filename: ");
    textz(p, export__tls_ca(o));
    buf_printf(out, "}\n            match_typed_subject_alt_names: [{san_type: %s, matcher: {exact: ",
               export__is_ip(name) ? "IP_ADDRESS" : "DNS");
    text(p, name);
    buf_append_z(out, "}}]\n");
    if (!o->tls.certificate[0])
        return;
    buf_append_z(out, "          tls_certificates: [{certificate_chain: {filename: ");
    textz(p, o->tls.certificate);
    buf_append_z(out, "}, private_key: {filename: ");
    textz(p, o->tls.key[0] ? o->tls.key : o->tls.certificate);
    buf_append_z(out, "}}]\n");
}

static void cluster(struct export_plan *p, const struct export_pool *pool)
{
    const struct gateway_pool *o = pool->o;
    struct buf *out = p->out;
    bool is_local = strncmp(o->servers[0].address, "unix:", 5) == 0;
    buf_printf(out, "  - name: %s\n    type: %s\n", pool->name, is_local ? "STATIC" : "STRICT_DNS");
    seconds(p, "    connect_timeout: ", o->connect_timeout, "\n");
    balance_of(p, o);
    buf_append_z(out, "    typed_extension_protocol_options:\n      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:\n"
                      "        " TYPE "upstreams.http.v3.HttpProtocolOptions\n"
                      "        ");
    seconds(p, "common_http_protocol_options: {idle_timeout: ", o->keepalive_timeout, "}\n        ");
    buf_append_z(out, (enum export_protocol)o->protocol == EXPORT_HTTP2 ? "explicit_http_config: {http2_protocol_options: {}}\n"
                      : (enum export_protocol)o->protocol == EXPORT_AUTO
                          ? "auto_config: {http_protocol_options: {}, http2_protocol_options: {}}\n"
                          : "use_downstream_protocol_config: {http_protocol_options: {}, "
                            "http2_protocol_options: {}}\n");
    upstream_tls(p, o);
    buf_printf(out,
               "    circuit_breakers:\n      thresholds:\n      - {max_connections: 65536, max_requests: %u, "
               "max_pending_requests: %u, "
               "retry_budget: {budget_percent: {value: %u}, min_retry_concurrency: %u}}\n",
               o->max_requests ? o->max_requests : MANY, MAX_OF(o->queue, 1u), o->retry.budget_percent, o->retry.budget_least);
    health(p, o);
    buf_printf(out, "    load_assignment:\n      cluster_name: %s\n      endpoints:\n", pool->name);
    servers(p, pool, false);
    servers(p, pool, true);
}

/* ---- the listener ---- */

static void tls(struct export_plan *p)
{
    const struct config *c = p->c;
    struct buf *out = p->out;
    buf_append_z(out, "    - transport_socket:\n        name: envoy.transport_sockets.tls\n        typed_config:\n"
                      "          " TYPE "transport_sockets.tls.v3.DownstreamTlsContext\n");
    buf_printf(
        out,
        "          require_client_certificate: %s\n          common_tls_context:\n            alpn_protocols: [h2, http/1.1]\n"
        "            tls_params: {tls_minimum_protocol_version: %s}\n            tls_certificates:\n",
        c->tls.client_auth == CONFIG_CLIENT_REQUIRED ? "true" : "false",
        c->tls.min_version == CONFIG_TLS_13 ? "TLSv1_3" : "TLSv1_2");
    for (size_t i = 0; i < c->tls.certificates.n; i++) {
        buf_append_z(out, "            - {certificate_chain: {filename: ");
        textz(p, c->tls.certificates.v[i]);
        buf_append_z(out, "}, private_key: {filename: ");
        textz(p, c->tls.keys.n ? c->tls.keys.v[i] : c->tls.certificates.v[i]);
        buf_append_z(out, "}}\n");
    }
    if (c->tls.client_auth != CONFIG_CLIENT_NONE) {
        buf_append_z(out, "            validation_context: {trusted_ca: {filename: ");
        textz(p, c->tls.client_ca);
        buf_append_z(out, "}");
        if (c->tls.crl[0]) {
            buf_append_z(out, ", crl: {filename: ");
            textz(p, c->tls.crl);
            buf_append_z(out, "}");
        }
        buf_append_z(out, "}\n");
    }
}

/* All routes, as far to the right as the listener has them. */
static void routes(struct export_plan *p)
{
    struct buf all, *out = p->out;
    struct str rest, line;
    buf_init(&all);
    p->out = &all;
    for (size_t i = 0; i < p->n_routes; i++)
        route(p, &p->routes[i]);
    p->out = out;
    rest = buf_str(&all);
    while (rest.n && str_cut(&rest, '\n', &line))
        buf_printf(out, "      %.*s\n", STR_ARG(line));
    out->failed |= all.failed;
    buf_release(&all);
}

/* The first one has the routes; another one names them. */
static void listener(struct export_plan *p, const char *name, const struct export_address *a, bool first)
{
    const struct config *c = p->c;
    struct buf *out = p->out;
    buf_printf(out, "  - name: %s\n    address: ", name);
    address(p, a);
    buf_append_z(out, "\n    filter_chains:\n");
    if (p->tls)
        tls(p);
    buf_printf(out, "    %s filters:\n      - name: envoy.filters.network.http_connection_manager\n        typed_config:\n",
               p->tls ? " " : "-");
    buf_append_z(out, "          " TYPE "filters.network.http_connection_manager.v3.HttpConnectionManager\n"
                      "          stat_prefix: inferd\n          codec_type: AUTO\n          use_remote_address: true\n"
                      "          normalize_path: true\n          path_with_escaped_slashes_action: REJECT_REQUEST\n"
                      "          preserve_external_request_id: true\n");
    buf_printf(out, "          max_request_headers_kb: %u\n", MAX_OF(c->limits.max_header_bytes / 1024, 1u));
    seconds(p, "          common_http_protocol_options: {idle_timeout: ", c->limits.idle_timeout, "");
    buf_printf(out, ", max_headers_count: %u, headers_with_underscores_action: REJECT_REQUEST}\n", c->limits.max_headers);
    buf_printf(out, "          http2_protocol_options: {max_concurrent_streams: %u, initial_stream_window_size: %u}\n",
               c->limits.http2_max_streams, c->limits.http2_window_bytes);
    seconds(p, "          request_headers_timeout: ", c->limits.header_timeout, "\n");
    buf_append_z(
        out, "          stream_idle_timeout: 0s\n          http_filters:\n          - {name: envoy.filters.http.router, "
             "typed_config: {" TYPE
             "filters.http.router.v3.Router}}\n          route_config:\n            name: inferd\n            virtual_hosts:\n"
             "            - name: inferd\n              domains: [\"*\"]\n");
    buf_append_z(out, first ? "              routes: &routes\n" : "              routes: *routes\n");
    if (first)
        routes(p);
}

void export__envoy(struct export_plan *p)
{
    struct buf *out = p->out;
    buf_append_z(out, "static_resources:\n  listeners:\n");
    listener(p, "inferd", &p->listen, true);
    if (p->grpc.port.n)
        listener(p, "inferd-grpc", &p->grpc, false);
    buf_append_z(out, "  clusters:\n");
    for (size_t i = 0; i < p->n_pools; i++)
        cluster(p, &p->pools[i]);
}
