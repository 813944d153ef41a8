/* table.c: the route table is matched linearly: each test is a comparison, and the first that fails ends it. */
#include "route/table.h"

#include <string.h>

#include "base/size.h"

/* "*.example.com" and the like are no regular expressions: a '*' at the end (or, for hosts, at the beginning) stands for any text. */
static bool pattern_matches(const char *pattern, struct str text)
{
    size_t n = strlen(pattern);
    if (n && pattern[n - 1] == '*')
        return text.n >= n - 1 && memcmp(text.p, pattern, n - 1) == 0;
    return str_eqz(text, pattern);
}

static struct str without_port(struct str host)
{
    size_t n = host.n;
    while (n && host.p[n - 1] >= '0' && host.p[n - 1] <= '9')
        n--;
    if (n && n < host.n && host.p[n - 1] == ':')
        host.n = n - 1;
    return host;
}

static bool host_matches(const char *pattern, struct str host)
{
    host = without_port(host);
    if (pattern[0] != '*')
        return str_ieqz(host, pattern);
    size_t n = strlen(pattern) - 1;
    return host.n > n && str_ieqz((struct str){host.p + host.n - n, n}, pattern + 1);
}

static bool header_matches(const char *want, const struct table_query *q)
{
    const char *colon = strchr(want, ':');
    struct str name = {want, colon ? (size_t)(colon - want) : strlen(want)};
    struct str value = colon ? str_trim(str_of(colon + 1)) : (struct str){0};
    for (size_t i = 0; i < q->n_headers; i++)
        if (str_ieq(q->headers[i].name, name) && (!colon || str_eq(q->headers[i].value, value)))
            return true;
    return false;
}

static bool method_matches(const struct gateway_words *w, struct str method)
{
    for (size_t i = 0; i < w->n; i++)
        if (str_eqz(method, w->v[i]))
            return true;
    return w->n == 0;
}

/* The share is a function of the request and of the route's place, so that two routes of 50 % are two draws. */
static bool share_matches(const struct gateway_route *t, uint64_t sticky, size_t index)
{
    if (t->percent >= 100)
        return true;
    uint64_t x = sticky + (index + 1) * 0x9e3779b97f4a7c15u; /* splitmix64's finaliser */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return (double)(x >> 11) * 0x1p-53 * 100 < t->percent;
}

static bool frame_matches(const struct gateway_route *t, const struct table_query *q)
{
    if (t->path[0] && !str_eqz(q->path, t->path))
        return false;
    size_t n = strlen(t->path_prefix);
    if (n && (q->path.n < n || memcmp(q->path.p, t->path_prefix, n) != 0))
        return false;
    return method_matches(&t->methods, q->method) && (!t->host[0] || host_matches(t->host, q->host)) &&
           (!t->header[0] || header_matches(t->header, q));
}

enum table_answer table_match(const struct gateway_config *c, const struct table_query *q, const struct gateway_route **out)
{
    for (size_t i = 0; i < c->n_routes; i++) {
        const struct gateway_route *t = &c->routes[i];
        if (!frame_matches(t, q) || !share_matches(t, q->sticky, i))
            continue;
        if (t->model[0] && !q->model_known)
            return TABLE_MODEL;
        if (t->model[0] && !pattern_matches(t->model, q->model))
            continue;
        *out = t;
        return TABLE_ROUTE;
    }
    return TABLE_NONE;
}
