/* client.c: whose request it is behind trusted proxies, and what browsers ask before they send one for a web page (CORS, the Fetch standard).
 *
 * Answers to an allowed page name its origin, never "*" beside a list, and say that they depend on it. Nothing here uses cookies, so
 * credentials mode is never allowed; keys and tokens go in headers. A page that isn't allowed gets the answer that everybody gets, and
 * its browser keeps it from it. */
#include "api/api_priv.h"
#include "base/size.h"
#include "base/status.h"
#include "edge/client.h"

#define FORWARDED_MAX 16

void api__find_client(struct api *a, struct http_request *r)
{
    struct str values[FORWARDED_MAX];
    struct address peer, client;
    char text[ADDRESS_TEXT_BYTES];
    size_t n = 0;
    if (!a->o.n_proxies || !address_parse_port(r->peer, &peer))
        return;
    for (size_t i = 0; i < r->n_headers; i++)
        if (str_ieqz(r->headers[i].name, "x-forwarded-for")) {
            if (n == FORWARDED_MAX) /* the last ones are those that our proxies wrote */
                memmove(values, values + 1, (FORWARDED_MAX - 1) * sizeof *values);
            n = MIN_OF(n + 1, (size_t)FORWARDED_MAX);
            values[n - 1] = r->headers[i].value;
        }
    if (!client_address(a->o.proxies, a->o.n_proxies, &peer, values, n, &client))
        return;
    address_text(&client, text);
    const char *z = arena_printf(r->arena, strchr(text, ':') ? "[%s]:0" : "%s:0", text);
    if (z)
        r->peer = str_of(z);
}

void api__add_headers(struct http_request *r, const struct http_header *headers, size_t n)
{
    struct http_header *all = arena_array(r->arena, r->n_reply_headers + n, sizeof *all);
    if (!all)
        return;
    if (r->n_reply_headers)
        memcpy(all, r->reply_headers, r->n_reply_headers * sizeof *all);
    memcpy(all + r->n_reply_headers, headers, n * sizeof *all);
    r->reply_headers = all;
    r->n_reply_headers += n;
}

bool api__cors(struct api *a, struct http_request *r)
{
    if (!a->o.n_origins)
        return false;
    struct str origin = http_header_get(r, "origin");
    bool allowed = origin.n && cors_allows(a->o.origins, a->o.n_origins, origin);
    const struct http_header headers[] = {{STR("Vary"), STR("Origin")},
                                          {STR("Access-Control-Allow-Origin"), origin},
                                          {STR("Access-Control-Expose-Headers"), STR("*")}};
    api__add_headers(r, headers, allowed ? COUNT_OF(headers) : 1);
    return r->method == HTTP_OPTIONS && origin.n && http_header_get(r, "access-control-request-method").n;
}

void api__preflight(struct api *a, struct http_request *r)
{
    /* "*" stands for every header but Authorization */
    static const char methods[] = "GET, HEAD, POST", names[] = "authorization, *";
    const char *age = arena_printf(r->arena, "%llu", (unsigned long long)(a->o.cors_max_age_ns / 1000000000u));
    const struct http_header headers[] = {{STR("Access-Control-Allow-Methods"), str_of(methods)},
                                          {STR("Access-Control-Allow-Headers"), str_of(names)},
                                          {STR("Access-Control-Max-Age"), str_of(age ? age : "0")}};
    bool allowed = cors_allows(a->o.origins, a->o.n_origins, http_header_get(r, "origin"));
    http_reply(r, 204, NULL, headers, allowed ? COUNT_OF(headers) : 0, NULL, 0);
}
