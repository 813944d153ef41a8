/* headers.c: what is sent on. A message is always written anew, never passed through as bytes: hop-by-hop fields end here (RFC 9110, 7.6.1),
 * what names the client is ours to say (X-Forwarded-*, Forwarded, Via), and no header of ours can be forged from outside. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "gateway/gateway_priv.h"

#define NS_PER_MS 1000000u

/* Tables of views: a comparison then ends at the length, nearly always. Every header of every message is looked up here. */
#define NAME(literal)                                                                                                          \
    {                                                                                                                          \
        "" literal, sizeof(literal) - 1                                                                                        \
    }
/* Never passed on, in either direction. */
static const struct str hop_by_hop[] = {NAME("connection"),
                                        NAME("keep-alive"),
                                        NAME("proxy-connection"),
                                        NAME("proxy-authenticate"),
                                        NAME("proxy-authorization"),
                                        NAME("te"),
                                        NAME("trailer"),
                                        NAME("transfer-encoding"),
                                        NAME("upgrade"),
                                        NAME("http2-settings")};
/* Written by us, or untrue behind us: bodies are decoded when they come in. */
static const struct str ours_request[] = {NAME("content-length"),
                                          NAME("content-encoding"),
                                          NAME("host"),
                                          NAME("expect"),
                                          NAME("via"),
                                          NAME("forwarded"),
                                          NAME("x-request-id"),
                                          NAME("traceparent"),
                                          NAME("x-inferd-timeout-ms"),
                                          NAME("x-real-ip")};
static const struct str ours_answer[] = {NAME("content-length"), NAME("content-type"), NAME("date"), NAME("server"),
                                         NAME("x-request-id")};

static bool one_of(struct str name, const struct str *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (name.n == list[i].n && str_ieq(name, list[i]))
            return true;
    return false;
}

static bool begins(struct str name, const char *prefix)
{
    size_t n = strlen(prefix);
    return name.n >= n && str_ieqz((struct str){name.p, n}, prefix);
}

static bool named(const struct gateway_words *w, struct str name)
{
    for (size_t i = 0; i < w->n; i++) {
        const char *colon = strchr(w->v[i], ':');
        struct str each = {w->v[i], colon ? (size_t)(colon - w->v[i]) : strlen(w->v[i])};
        if (str_ieq(name, str_trim(each)))
            return true;
    }
    return false;
}

/* Is `name` listed in a Connection header from the `first` on? */
static bool connection_lists(const struct http_header *h, size_t n, size_t first, struct str name)
{
    for (size_t i = first; i < n; i++) {
        struct str list = h[i].value, part;
        if (!str_ieqz(h[i].name, "connection"))
            continue;
        while (str_cut(&list, ',', &part))
            if (str_ieq(str_trim(part), name))
                return true;
    }
    return false;
}

/* Where the first Connection header is, `n` when there is none. */
static size_t first_connection(const struct http_header *h, size_t n)
{
    size_t i = 0;
    while (i < n && !str_ieqz(h[i].name, "connection"))
        i++;
    return i;
}

bool headers__looped(const struct gateway *g, const struct http_request *r)
{
    size_t n = strlen(g->via);
    for (size_t i = 0; i < r->n_headers; i++) {
        struct str v = r->headers[i].value;
        if (!str_ieqz(r->headers[i].name, "via"))
            continue;
        for (size_t at = 0; at + n <= v.n; at++)
            if (memcmp(v.p + at, g->via, n) == 0)
                return true;
    }
    return false;
}

/* `connection`: where the first Connection header is. */
static bool goes_on(const struct forward *f, const struct http_header *h, size_t connection)
{
    const struct gateway_route *t = f->target.route;
    if (one_of(h->name, hop_by_hop, COUNT_OF(hop_by_hop)) || one_of(h->name, ours_request, COUNT_OF(ours_request)) ||
        begins(h->name, "x-forwarded-") || begins(h->name, "x-inferd-"))
        return f->r->body_raw && str_ieqz(h->name, "content-encoding"); /* only a body that was collected was decoded */
    if (f->p->o.report.headers && str_ieqz(h->name, "endpoint-load-metrics-format"))
        return false;
    if (f->hints.grpc && str_ieqz(h->name, "grpc-timeout"))
        return false; /* what is left of it is written anew */
    if (f->hints.own_credentials && (str_ieqz(h->name, "authorization") || str_ieqz(h->name, "x-api-key")))
        return false;
    if (named(&t->remove_headers, h->name) || named(&t->set_headers, h->name))
        return false;
    return !connection_lists(f->r->headers, f->r->n_headers, connection, h->name);
}

/* The headers of a request as they are collected; `failed`: out of memory. */
struct list_of {
    struct arena *arena;
    struct http_header *h;
    size_t n;
    bool failed;
};

static void add(struct list_of *l, struct str name, struct str value)
{
    l->h[l->n++] = (struct http_header){name, value};
}

static void add_made(struct list_of *l, struct str name, char *value)
{
    if (value)
        add(l, name, str_of(value));
    else
        l->failed = true;
}

#define OWN_HEADERS 9

/* A grpc-timeout: at most 8 digits and a unit. */
static char *timeout_text(struct arena *a, uint64_t ns)
{
    static const struct {
        uint64_t ns;
        char unit;
    } units[] = {{1000, 'u'}, {1000000, 'm'}, {1000000000, 'S'}, {60000000000, 'M'}};
    for (size_t i = 0; i < COUNT_OF(units); i++)
        if (ns / units[i].ns < 100000000)
            return arena_printf(a, "%llu%c", (unsigned long long)MAX_OF(ns / units[i].ns, (uint64_t)1), units[i].unit);
    return arena_printf(a, "99999999H");
}

static void add_own(struct forward *f, struct list_of *l, struct str host, uint64_t now_ns)
{
    const struct http_request *r = f->r;
    struct str via = http_header_get(r, "via");
    add(l, STR("X-Forwarded-For"), http_peer_address(r));
    add(l, STR("X-Forwarded-Proto"), r->secure ? STR("https") : STR("http"));
    if (host.n)
        add(l, STR("X-Forwarded-Host"), host);
    const char *own = r->version == 20 ? f->g->via_http2 : f->g->via_http1;
    if (via.n)
        add_made(l, STR("Via"), arena_printf(l->arena, "%.*s, %s", (int)MIN_OF(via.n, (size_t)160), via.p, own));
    else
        add(l, STR("Via"), str_of(own));
    add(l, STR("X-Request-Id"), r->request_id);
    if (r->traceparent.n)
        add(l, STR("Traceparent"), r->traceparent);
    if (f->p->o.report.headers)
        add(l, STR("endpoint-load-metrics-format"), STR("text"));
    if (f->deadline_ns == UINT64_MAX)
        return;
    if (f->hints.grpc) {
        add_made(l, STR("grpc-timeout"), timeout_text(l->arena, f->deadline_ns > now_ns ? f->deadline_ns - now_ns : 1));
        return;
    }
    uint64_t left = f->deadline_ns > now_ns ? MAX_OF((f->deadline_ns - now_ns) / NS_PER_MS, (uint64_t)1) : 1;
    add_made(l, STR("X-Inferd-Timeout-Ms"), arena_printf(l->arena, "%llu", (unsigned long long)left));
}

/* "/v2/models/OLD/..." with another name; other paths as they are. NULL in .p: out of memory. */
static struct str path_of(const struct forward *f)
{
    static const char prefix[] = "/v2/models/";
    const char *name = f->target.route->rewrite_model;
    struct str path = f->r->path;
    size_t end = sizeof prefix - 1;
    if (!name[0] || !begins(path, prefix))
        return path;
    while (end < path.n && path.p[end] != '/')
        end++;
    char *other = arena_printf(f->r->arena, "%s%s%.*s", prefix, name, (int)(path.n - end), path.p + end);
    return (struct str){other, other ? strlen(other) : 0};
}

/* `set_headers`; a Host among them is the authority. */
static void add_set(struct forward *f, struct list_of *l, struct str *authority)
{
    const struct gateway_words *set = &f->target.route->set_headers;
    for (size_t i = 0; i < set->n; i++) {
        const char *colon = strchr(set->v[i], ':');
        if (!colon)
            continue;
        struct str name = str_trim((struct str){set->v[i], (size_t)(colon - set->v[i])}), value = str_trim(str_of(colon + 1));
        if (str_ieqz(name, "host"))
            *authority = value;
        else
            add(l, name, value);
    }
}

/* Can it be sent by every protocol? */
static bool is_sendable(const struct http_header *h)
{
    for (size_t i = 0; i < h->value.n; i++)
        if (((unsigned char)h->value.p[i] < 0x20 && h->value.p[i] != '\t') || h->value.p[i] == 0x7f)
            return false;
    return http1_is_token(h->name);
}

/* A client of HTTP/2 may send its cookies in pieces; elsewhere they are one field (RFC 9113, 8.2.3). */
static void add_or_join(struct list_of *l, const struct http_header *h, struct http_header **cookie)
{
    if (!str_ieqz(h->name, "cookie")) {
        add(l, h->name, h->value);
    } else if (!*cookie) {
        *cookie = &l->h[l->n];
        add(l, h->name, h->value);
    } else {
        struct str was = (*cookie)->value;
        char *both = arena_printf(l->arena, "%.*s; %.*s", (int)was.n, was.p, (int)h->value.n, h->value.p);
        l->failed |= !both;
        if (both)
            (*cookie)->value = (struct str){both, was.n + 2 + h->value.n};
    }
}

int headers__request(struct forward *f, uint64_t now_ns, struct error *err)
{
    const struct http_request *r = f->r;
    struct list_of l = {.arena = r->arena};
    struct http_header *cookie = NULL;
    size_t connection = first_connection(r->headers, r->n_headers);
    struct str host = http_header_get(r, "host"), authority = host.n ? host : upstream_name(f->pick.upstream);
    l.h = arena_array(r->arena, r->n_headers + f->target.route->set_headers.n + OWN_HEADERS, sizeof *l.h);
    struct str path = path_of(f);
    if (!l.h || !path.p)
        return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
    add_own(f, &l, host, now_ns);
    for (size_t i = 0; i < r->n_headers; i++) {
        if (!goes_on(f, &r->headers[i], connection))
            continue;
        if (!is_sendable(&r->headers[i]))
            return error_set(err, STATUS_INVALID, "the header %.*s can't be sent on", STR_ARG(r->headers[i].name));
        add_or_join(&l, &r->headers[i], &cookie);
    }
    add_set(f, &l, &authority);
    struct str length = f->up.streamed ? http_header_get(r, "content-length") : (struct str){0};
    uint64_t bytes = f->up.total;
    bool has_body = f->up.streamed || f->up.total || r->method == HTTP_POST || r->method == HTTP_PUT || r->method == HTTP_PATCH;
    bool known = !f->up.streamed || (length.p && str_to_u64(length, &bytes));
    f->request = (struct exchange_request){.method = r->method_text,
                                           .path = path,
                                           .query = r->query,
                                           .authority = authority,
                                           .headers = l.h,
                                           .n_headers = l.n,
                                           .body = !has_body ? EXCHANGE_NO_BODY
                                                   : known   ? EXCHANGE_LENGTH
                                                             : EXCHANGE_STREAM,
                                           .length = bytes,
                                           .head = r->method == HTTP_HEAD,
                                           .upgrade = f->upgrade ? STR("websocket") : (struct str){0}};
    return l.failed ? error_set(err, STATUS_NOMEM, "out of memory for this request; try again later") : 0;
}

struct http_header *headers__trailers(struct forward *f, size_t *n)
{
    const struct exchange *x = &f->x;
    struct http_header *out = x->n_trailers ? arena_array(f->r->arena, x->n_trailers, sizeof *out) : NULL;
    *n = 0;
    for (size_t i = 0; out && i < x->n_trailers; i++)
        if (!one_of(x->trailers[i].name, hop_by_hop, COUNT_OF(hop_by_hop)) &&
            !one_of(x->trailers[i].name, ours_answer, COUNT_OF(ours_answer)))
            out[(*n)++] = x->trailers[i];
    return out;
}

struct http_header *headers__answer(struct forward *f, size_t *n, const char **content_type)
{
    const struct exchange *x = &f->x;
    struct http_header *out = arena_array(f->r->arena, x->n_headers + 1, sizeof *out);
    struct str type = exchange_header(x, "content-type");
    size_t connection = first_connection(x->headers, x->n_headers);
    *n = 0;
    *content_type = type.p ? arena_strdup(f->r->arena, type) : NULL;
    if (!out || (type.p && !*content_type))
        return NULL;
    for (size_t i = 0; i < x->n_headers; i++) {
        struct str name = x->headers[i].name;
        if (!one_of(name, hop_by_hop, COUNT_OF(hop_by_hop)) && !one_of(name, ours_answer, COUNT_OF(ours_answer)) &&
            !(f->p->o.report.headers && str_ieqz(name, "endpoint-load-metrics")) &&
            !connection_lists(x->headers, x->n_headers, connection, name))
            out[(*n)++] = x->headers[i];
    }
    return out;
}
