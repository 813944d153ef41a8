/* export.c: the plan that the three writers work from, and what they share.
 *
 * The plan is our gateway's configuration with one route added at the end: what no route takes goes to inferd itself, which is the servers named on
 * the command line, or http.listen. The head of the text carries every note, so it is written last and put in front. */
#include "conf/export_priv.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "conf/options.h"
#include "conf/yaml.h"

static const char *const titles[] = {[EXPORT_NGINX] = "nginx", [EXPORT_ENVOY] = "Envoy", [EXPORT_HAPROXY] = "HAProxy"};

void export__note(struct export_plan *p, const char *where, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (char *at = text; *at; at++) /* it becomes a comment */
        if ((unsigned char)*at < 0x20)
            *at = '?';
    buf_printf(p->notes, "%s: %s\n", where, text);
}

void export__regex(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        unsigned char b = (unsigned char)text.p[i];
        bool plain =
            (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z') || (b >= '0' && b <= '9') || b == '_' || b == '/' || b == '-';
        if (plain)
            buf_append_c(out, (char)b);
        else if (b == '.')
            buf_append_z(out, "\\.");
        else
            buf_printf(out, "\\x%02x", b);
    }
}

void export__host_regex(struct buf *out, const char *pattern)
{
    bool below = pattern[0] == '*';
    buf_append_z(out, below ? "[^/]+" : "");
    export__regex(out, str_of(pattern + below));
    buf_append_z(out, "(:[0-9]+)?");
}

const char *export__path_regex(struct export_plan *p, const struct gateway_route *r)
{
    struct buf b;
    buf_init(&b);
    if (r->model[0]) {
        size_t n = strlen(r->model);
        bool begins = r->model[n - 1] == '*';
        buf_append_z(&b, "^/v2/models/");
        export__regex(&b, (struct str){r->model, n - begins});
        buf_append_z(&b, begins ? "[^/]*(/|$)" : "(/|$)");
    } else if (r->path[0]) {
        buf_append_c(&b, '^');
        export__regex(&b, str_of(r->path));
        buf_append_c(&b, '$');
    } else if (r->path_prefix[0] && strcmp(r->path_prefix, "/") != 0) {
        buf_append_c(&b, '^');
        export__regex(&b, str_of(r->path_prefix));
    }
    const char *text = b.n ? arena_strdup(p->arena, buf_str(&b)) : NULL;
    p->out->failed |= b.failed || (b.n && !text);
    buf_release(&b);
    return text;
}

void export__header(const char *text, struct str *name, struct str *value)
{
    const char *colon = strchr(text, ':');
    *name = str_trim((struct str){text, colon ? (size_t)(colon - text) : strlen(text)});
    *value = colon ? str_trim(str_of(colon + 1)) : (struct str){0};
}

unsigned long long export__ms(uint64_t ns)
{
    return MAX_OF(ns / EXPORT_MS, 1);
}

bool export__has_word(const struct gateway_words *w, const char *word)
{
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->v[i], word) == 0)
            return true;
    return false;
}

struct export_address export__address(const char *text)
{
    if (strncmp(text, "unix:", 5) == 0)
        return (struct export_address){.path = text + 5};
    const char *colon = strrchr(text, ':');
    struct str host = {text, colon ? (size_t)(colon - text) : strlen(text)};
    if (host.n > 1 && host.p[0] == '[')
        host = (struct str){host.p + 1, host.n - 2};
    if (str_eqz(host, "*"))
        host.n = 0;
    return (struct export_address){.host = host, .port = colon ? str_of(colon + 1) : (struct str){0}};
}

bool export__is_set(const struct export_plan *p, const char *option)
{
    return p->c->source[option_index(option_find(str_of(option)))] != CONFIG_DEFAULT;
}

struct str export__tls_name(const struct gateway_pool *o)
{
    return o->tls.name[0] ? str_of(o->tls.name) : export__address(o->servers[0].address).host;
}

bool export__is_ip(struct str host)
{
    size_t digits = 0, colons = 0;
    for (size_t i = 0; i < host.n; i++) {
        digits += (host.p[i] >= '0' && host.p[i] <= '9') || host.p[i] == '.';
        colons += host.p[i] == ':';
    }
    return colons || digits == host.n;
}

const char *export__tls_ca(const struct gateway_pool *o)
{
    return strcmp(o->tls.ca, "system") == 0 ? "/etc/ssl/certs/ca-certificates.crt" : o->tls.ca;
}

/* ---- what would be more than a word in the front's file ---- */

/* Letters, digits and the bytes of `also`. */
static bool only(struct str s, const char *also)
{
    for (size_t i = 0; i < s.n; i++) {
        char b = s.p[i];
        if (!((b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z') || (b >= '0' && b <= '9') || (b && strchr(also, b))))
            return false;
    }
    return s.n > 0;
}

static int check_header(const char *where, const char *text, struct error *err)
{
    struct str name, value;
    export__header(text, &name, &value);
    if (!text[0] || only(name, "-_"))
        return 0;
    return error_set(err, STATUS_INVALID, "%s: the header's name '%.*s' can't be exported: letters, digits, - and _ can", where,
                     STR_ARG(name));
}

static int check_pool(const struct export_pool *pool, struct error *err)
{
    if (!pool->o->n_servers)
        return error_set(err, STATUS_INVALID,
                         "%s can't be exported: its servers come from servers_file, which no front reads; name them in servers",
                         pool->where);
    for (size_t i = 0; i < pool->o->n_servers; i++)
        if (!only(str_of(pool->o->servers[i].address), "-_.:[]/"))
            return error_set(err, STATUS_INVALID,
                             "%s: the address '%s' can't be exported: HOST:PORT, [IPV6]:PORT and unix:/PATH of letters, "
                             "digits, - _ . and / can",
                             pool->where, pool->o->servers[i].address);
    return check_header(pool->where, pool->o->hash_header, err);
}

static int check_route(const struct export_route *r, struct error *err)
{
    const struct gateway_words *lists[] = {&r->o->set_headers, &r->o->remove_headers};
    int rc = check_header(r->where, r->o->header, err);
    for (size_t l = 0; l < COUNT_OF(lists); l++)
        for (size_t i = 0; rc == 0 && i < lists[l]->n; i++)
            rc = check_header(r->where, lists[l]->v[i], err);
    if (rc == 0 && r->o->rewrite_model[0] && !only(str_of(r->o->rewrite_model), "-_.:"))
        rc = error_set(err, STATUS_INVALID, "%s: rewrite_model '%s' can't be exported: letters, digits, - _ . and : can",
                       r->where, r->o->rewrite_model);
    return rc;
}

static int plan_check(const struct export_plan *p, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < p->n_pools; i++)
        rc = check_pool(&p->pools[i], err);
    for (size_t i = 0; rc == 0 && i < p->n_routes; i++)
        rc = check_route(&p->routes[i], err);
    return rc;
}

/* ---- the plan ---- */

static const char *clean_name(struct export_plan *p, const char *name, size_t index)
{
    char *copy = arena_printf(p->arena, "%s", name);
    bool changed = false;
    for (char *at = copy; at && *at; at++) {
        bool plain =
            (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9') || *at == '_' || *at == '-';
        changed |= !plain;
        *at = plain ? *at : '_';
    }
    return changed && copy ? arena_printf(p->arena, "%s_%zu", copy, index) : copy;
}

/* Where inferd itself is for who stands on its machine. */
static int own_address(struct export_plan *p, const char **out, struct error *err)
{
    const struct config_list *l = &p->c->http.listen;
    if (!l->n)
        return error_set(err, STATUS_INVALID,
                         "http.listen is empty: name the servers behind the front as arguments, HOST:PORT");
    struct export_address a = export__address(l->v[0]);
    if (!a.path && str_eqz(a.port, "0"))
        return error_set(err, STATUS_INVALID,
                         "http.listen %s has no fixed port: name the servers behind the front as arguments, HOST:PORT",
                         l->v[0]);
    bool any = !a.path && (a.host.n == 0 || str_eqz(a.host, "0.0.0.0") || str_eqz(a.host, "::"));
    *out = any ? arena_printf(p->arena, "127.0.0.1:%.*s", STR_ARG(a.port)) : l->v[0];
    return *out ? 0 : error_set(err, STATUS_NOMEM, "out of memory for the front's configuration");
}

static const char *free_name(const struct gateway_config *g)
{
    for (size_t i = 0; i < g->n_pools; i++)
        if (strcmp(g->pools[i].name, "inferd") == 0)
            return "inferd-itself";
    return "inferd";
}

/* Pool and route of what nothing else takes, through our own reader, which fills in what is not said. */
static int read_last(struct export_plan *p, struct gateway_config *out, struct error *err)
{
    const char *name = free_name(&p->c->gateway), *own = NULL;
    struct node *root = NULL;
    struct buf text;
    int rc = p->o->n_servers ? 0 : own_address(p, &own, err);
    if (rc)
        return rc;
    buf_init(&text);
    buf_printf(&text, "upstreams: [{name: %s, balance: least_conn, check: {path: /v2/health/ready}, servers: [", name);
    for (size_t i = 0; i < MAX_OF(p->o->n_servers, (size_t)1); i++) {
        buf_append_z(&text, i ? ", " : "");
        buf_append_json_str(&text, str_of(own ? own : p->o->servers[i]));
    }
    buf_printf(&text, "]}]\nroutes: [{upstream: %s, max_body: %llu}]\n", name, (unsigned long long)p->c->limits.max_body_bytes);
    struct str whole = text.failed ? (struct str){0} : buf_str(&text);
    rc = whole.p ? yaml_parse(whole, "the front's own pool", p->arena, &root, err) : STATUS_NOMEM;
    if (rc == 0)
        rc = gateway_config_read(node_get(root, "upstreams"), node_get(root, "routes"), "servers", p->arena, out, err);
    buf_release(&text);
    return rc;
}

static int plan_listen(struct export_plan *p, struct error *err)
{
    const char *text = p->o->listen[0] ? p->o->listen : p->tls ? "*:443" : "*:80";
    p->listen = export__address(text);
    if (p->listen.path || str_eqz(p->listen.port, "0") || !config_listen_valid(str_of(text)))
        return error_set(err, STATUS_INVALID,
                         "--listen: '%s' is not an address of the front; HOST:PORT, [IPV6]:PORT or *:PORT is", text);
    if (!p->o->grpc_listen[0])
        return 0;
    p->grpc = export__address(p->o->grpc_listen);
    if (p->grpc.path || str_eqz(p->grpc.port, "0") || !config_listen_valid(str_of(p->o->grpc_listen)))
        return error_set(err, STATUS_INVALID,
                         "--grpc-listen: '%s' is not an address of the front; HOST:PORT, [IPV6]:PORT or *:PORT is",
                         p->o->grpc_listen);
    return 0;
}

static const struct export_pool *pool_named(const struct export_plan *p, const char *name)
{
    for (size_t i = 0; i < p->n_pools; i++)
        if (strcmp(p->pools[i].o->name, name) == 0)
            return &p->pools[i];
    return &p->pools[p->n_pools - 1]; /* local */
}

static int plan_build(struct export_plan *p, const struct gateway_config *last, struct error *err)
{
    const struct gateway_config *g = &p->c->gateway;
    p->n_pools = g->n_pools + 1;
    p->n_routes = g->n_routes + 1;
    p->pools = arena_array(p->arena, p->n_pools, sizeof *p->pools);
    p->routes = arena_array(p->arena, p->n_routes, sizeof *p->routes);
    if (!p->pools || !p->routes)
        return error_set(err, STATUS_NOMEM, "out of memory for the front's configuration");
    for (size_t i = 0; i < p->n_pools; i++) {
        const struct gateway_pool *o = i < g->n_pools ? &g->pools[i] : &last->pools[0];
        p->pools[i] = (struct export_pool){o, clean_name(p, o->name, i), arena_printf(p->arena, "upstreams[%s]", o->name)};
        p->out->failed |= !p->pools[i].name || !p->pools[i].where;
    }
    for (size_t i = 0; i < p->n_routes; i++) {
        const struct gateway_route *o = i < g->n_routes ? &g->routes[i] : &last->routes[0];
        p->routes[i] = (struct export_route){o, pool_named(p, o->upstream), arena_printf(p->arena, "routes[%zu]", i)};
        p->out->failed |= !p->routes[i].where;
    }
    return 0;
}

/* The notes as comments, then the text. */
static void put_head(struct export_plan *p, const struct buf *text)
{
    struct buf *out = p->out;
    struct str rest = buf_str(p->notes), line;
    buf_printf(out,
               "# %s in front of inferd, written by `inferd export`. Behind it, set proxy.trusted to this front's address, so "
               "that inferd\n"
               "# believes its x-forwarded-for.\n",
               titles[p->o->kind]);
    while (rest.n && str_cut(&rest, '\n', &line))
        if (line.n)
            buf_printf(out, "# not said: %.*s\n", STR_ARG(line));
    buf_append_c(out, '\n');
    buf_append_str(out, buf_str(text));
}

int export_front(const struct config *c, const struct export_options *o, struct buf *out, struct buf *notes, struct error *err)
{
    struct arena arena;
    struct buf text;
    struct gateway_config last = {0};
    buf_init(&text);
    arena_init(&arena, 8192, 0);
    struct export_plan p = {.c = c, .o = o, .arena = &arena, .out = &text, .notes = notes, .tls = config_has_tls(c, "http")};
    int rc = plan_listen(&p, err);
    if (!rc)
        rc = read_last(&p, &last, err);
    if (!rc)
        rc = plan_build(&p, &last, err);
    p.usual = last.pools;
    if (!rc)
        rc = plan_check(&p, err);
    if (!rc) {
        export__notes(&p);
        switch (o->kind) {
        case EXPORT_NGINX:
            export__nginx(&p);
            break;
        case EXPORT_HAPROXY:
            export__haproxy(&p);
            break;
        case EXPORT_ENVOY:
            export__envoy(&p);
            break;
        }
        p.out = out;
        put_head(&p, &text);
        if (text.failed || notes->failed || out->failed)
            rc = error_set(err, STATUS_NOMEM, "out of memory for the front's configuration");
    }
    buf_release(&text);
    arena_release(&arena);
    return rc;
}
