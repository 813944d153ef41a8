/* http2_head.c: heads of HTTP/2 requests and replies.
 *
 * nghttp2 has checked each field when it comes here (RFC 9113, 8.2 and 8.3): characters, lower case, pseudo-headers known, once, in
 * front and complete, no connection-specific fields, "te" only as trailers, content-length a number that the body keeps. What is added:
 * sizes, the scheme, one authority for ":authority" and "host", and the same rules for the target as over HTTP/1.1 (wire/url.h). */
#include <string.h>

#include "base/size.h"
#include "wire/http2_priv.h"

#define FIELD_OVERHEAD 32 /* RFC 9113, 10.5.1 */

static void set_error(struct http2_stream *s, int status, const char *text)
{
    if (s->error_status)
        return;
    s->error_status = status;
    s->error_text = text;
}

static bool grow(struct http2_stream *s)
{
    uint32_t cap = s->header_cap ? s->header_cap * 2 : 16;
    struct http_header *more = arena_array(s->arena, cap, sizeof *more);
    if (!more)
        return false;
    if (s->n_headers)
        memcpy(more, s->headers, s->n_headers * sizeof *more);
    s->headers = more;
    s->header_cap = cap;
    return true;
}

static bool copy(struct http2_stream *s, struct str from, struct str *to)
{
    char *p = arena_strdup(s->arena, from);
    *to = (struct str){p, p ? from.n : 0};
    return p != NULL;
}

static bool push(struct http2_stream *s, struct str name, struct str value)
{
    struct http_header *h;
    if (s->n_headers == s->header_cap && !grow(s))
        return false;
    h = &s->headers[s->n_headers];
    if (!copy(s, name, &h->name) || !copy(s, value, &h->value))
        return false;
    s->n_headers++;
    return true;
}

static bool pseudo(struct http2 *h, struct http2_stream *s, struct str name, struct str value)
{
    if (str_eqz(name, ":method"))
        return copy(s, value, &s->method);
    if (str_eqz(name, ":scheme"))
        return copy(s, value, &s->scheme);
    if (str_eqz(name, ":authority"))
        return copy(s, value, &s->authority);
    if (!str_eqz(name, ":path"))
        return true;
    if (value.n > h->max_url_bytes) {
        set_error(s, 414, "the request target is longer than is accepted here");
        return true;
    }
    return copy(s, value, &s->path);
}

static bool field(struct http2 *h, struct http2_stream *s, struct str name, struct str value)
{
    if (s->n_headers >= h->max_headers) {
        set_error(s, 431, "the request has more header fields than are accepted here");
        return true;
    }
    if (str_eqz(name, "content-length")) {
        s->has_length = str_to_u64(value, &s->content_length);
        if (!s->has_length)
            set_error(s, 400, "the Content-Length is not a number that can be served");
    } else if (str_eqz(name, "expect")) {
        s->expect_continue = str_ieqz(value, "100-continue");
        if (!s->expect_continue)
            set_error(s, 417, "the only expectation that can be met is '100-continue'");
    }
    return push(s, name, value);
}

bool http2__head_add(struct http2 *h, struct http2_stream *s, struct str name, struct str value)
{
    s->head_bytes += name.n + value.n + FIELD_OVERHEAD;
    if (s->head_bytes > h->max_header_bytes) {
        set_error(s, 431, "the header fields are larger than is accepted here");
        return s->head_bytes <= 4ull * h->max_header_bytes;
    }
    if (!(name.n && name.p[0] == ':' ? pseudo(h, s, name, value) : field(h, s, name, value)))
        set_error(s, 503, "out of memory for the request's header fields");
    return true;
}

static struct str host_field(const struct http2_stream *s)
{
    for (uint32_t i = 0; i < s->n_headers; i++)
        if (str_eqz(s->headers[i].name, "host"))
            return s->headers[i].value;
    return (struct str){0};
}

/* ":authority" becomes "host", unless the client sent that too: then they have to be the same. */
static void settle_authority(struct http2_stream *s)
{
    struct str host = host_field(s);
    if (host.p && s->authority.p && !str_ieq(host, s->authority)) {
        set_error(s, 400, "':authority' and 'host' name different servers");
        return;
    }
    struct str name = host.p ? host : s->authority;
    if (!url_is_authority(name)) {
        set_error(s, 400, "':authority' is not a host with an optional port");
        return;
    }
    if (host.p)
        return;
    if (!push(s, STR("host"), name)) {
        set_error(s, 503, "out of memory for the request's header fields");
        return;
    }
    struct http_header last = s->headers[s->n_headers - 1];
    memmove(s->headers + 1, s->headers, (s->n_headers - 1) * sizeof *s->headers);
    s->headers[0] = last;
}

void http2__head_end(struct http2_stream *s, bool has_body)
{
    struct error err;
    s->has_body = has_body;
    s->expect_continue = s->expect_continue && has_body;
    if (s->error_status)
        return;
    if (str_eqz(s->method, "CONNECT")) {
        set_error(s, 501, "CONNECT is not served here");
        return;
    }
    if (!str_eqz(s->scheme, "http") && !str_eqz(s->scheme, "https")) {
        set_error(s, 400, "the scheme is neither http nor https");
        return;
    }
    if (s->path.n == 0 || (s->path.p[0] != '/' && !str_eqz(s->path, "*")) || url_parse_target(s->path, &s->url, &err)) {
        set_error(s, 400, "the request target is not '/path?query' of visible ASCII characters");
        return;
    }
    settle_authority(s);
}

/* --- replies --- */

static bool is_value(struct str v)
{
    for (size_t i = 0; i < v.n; i++) {
        unsigned char c = (unsigned char)v.p[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

static bool has_upper(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] >= 'A' && s.p[i] <= 'Z')
            return true;
    return false;
}

/* The name in lower case. .p == NULL: out of memory. */
static struct str lowered(struct arena *a, struct str s)
{
    if (!has_upper(s))
        return s;
    char *p = arena_strdup(a, s);
    for (size_t i = 0; p && i < s.n; i++)
        if (p[i] >= 'A' && p[i] <= 'Z')
            p[i] = (char)(p[i] | 0x20);
    return (struct str){p, s.n};
}

static nghttp2_nv make(struct str name, struct str value)
{
    /* the library takes its input as not const and does not write to it */
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name.p, (uint8_t *)(uintptr_t)value.p, name.n, value.n, NGHTTP2_NV_FLAG_NONE};
}

/* Fields behind the first `*at` of `nv`. False: out of memory. */
static bool add_fields(struct arena *a, nghttp2_nv *nv, size_t *filled, const struct http_header *headers, size_t n)
{
    size_t at = *filled;
    for (size_t i = 0; i < n; i++) {
        struct str name = lowered(a, headers[i].name), value = str_trim(headers[i].value);
        if (!name.p)
            return false;
        if (!http1_is_token(name) || !is_value(value))
            continue;
        nv[at] = make(name, value);
        if (str_eqz(name, "x-request-id")) /* never the same: not worth a place in the table */
            nv[at].flags = NGHTTP2_NV_FLAG_NO_INDEX;
        at++;
    }
    *filled = at;
    return true;
}

nghttp2_nv *http2__make_nv(struct arena *a, int status, const struct http_header *headers, size_t n, size_t *n_out)
{
    nghttp2_nv *nv = arena_array(a, n + 1, sizeof *nv);
    *n_out = 0;
    if (nv && status) {
        char *digits = arena_printf(a, "%03d", status);
        if (!digits)
            return NULL;
        nv[(*n_out)++] = make(STR(":status"), str_of(digits));
    }
    return nv && add_fields(a, nv, n_out, headers, n) ? nv : NULL;
}

nghttp2_nv *http2__make_request_nv(struct arena *a, const struct http_header *pseudo, size_t n_pseudo,
                                   const struct http_header *headers, size_t n, size_t *n_out)
{
    nghttp2_nv *nv = arena_array(a, n_pseudo + n, sizeof *nv);
    for (*n_out = 0; nv && *n_out < n_pseudo; (*n_out)++)
        nv[*n_out] = make(pseudo[*n_out].name, pseudo[*n_out].value);
    return nv && add_fields(a, nv, n_out, headers, n) ? nv : NULL;
}
