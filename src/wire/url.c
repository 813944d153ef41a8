/* url.c: request targets. See url.h for the contract; grammar: RFC 3986 (2.1, 3.2, 3.3), RFC 9112 (3.2). */
#include "wire/url.h"

#include "base/status.h"

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_visible(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < 0x21 || (unsigned char)s.p[i] > 0x7e)
            return false;
    return true;
}

static struct str after(struct str s, size_t n)
{
    return (struct str){s.p + n, s.n - n};
}

static bool skip_scheme(struct str *s)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < 2; i++) {
        size_t n = strlen(schemes[i]);
        if (s->n >= n && str_ieqz((struct str){s->p, n}, schemes[i])) {
            *s = after(*s, n);
            return true;
        }
    }
    return false;
}

int url_parse_target(struct str target, struct url_target *out, struct error *err)
{
    *out = (struct url_target){.query = STR("")};
    if (target.n == 0 || !is_visible(target))
        return error_set(err, STATUS_INVALID, "the request target is empty or holds a byte that must be percent-encoded");
    if (memchr(target.p, '#', target.n))
        return error_set(err, STATUS_INVALID, "the request target holds a fragment ('#'); clients keep that to themselves");
    if (str_eqz(target, "*")) {
        out->path = target;
        return 0;
    }
    struct str rest = target;
    if (rest.p[0] != '/') {
        if (!skip_scheme(&rest))
            return error_set(err, STATUS_INVALID, "the request target must begin with '/' or with http:// or https://");
        size_t n = 0;
        while (n < rest.n && rest.p[n] != '/' && rest.p[n] != '?')
            n++;
        out->authority = (struct str){rest.p, n};
        if (n == 0 || !url_is_authority(out->authority))
            return error_set(err, STATUS_INVALID, "the request target's host is not a host name, an address or host:port");
        rest = after(rest, n);
    }
    const char *q = memchr(rest.p, '?', rest.n);
    size_t path_n = q ? (size_t)(q - rest.p) : rest.n;
    out->path = path_n ? (struct str){rest.p, path_n} : STR("/");
    if (q)
        out->query = after(rest, path_n + 1);
    return 0;
}

/* unreserved, sub-delims and pct-encoded of reg-name; the escapes' digits are checked. */
static bool is_reg_name(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i], low = (char)(c | 0x20);
        if ((low >= 'a' && low <= 'z') || (c >= '0' && c <= '9') || (c && strchr("-._~!$&'()*+,;=", c)))
            continue;
        if (c != '%' || s.n - i < 3 || hex_value(s.p[i + 1]) < 0 || hex_value(s.p[i + 2]) < 0)
            return false;
        i += 2;
    }
    return true;
}

/* The characters of an IPv6 literal with an optional zone, between the brackets. */
static bool is_ip_literal(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (hex_value(s.p[i]) < 0 && !(s.p[i] && strchr(":.%-_~gGhHiIjJkKlLmMnNoOpPqQrRsStTuUvVwWxXyYzZ", s.p[i])))
            return false;
    return s.n > 1;
}

bool url_is_authority(struct str s)
{
    struct str port;
    if (s.n && s.p[0] == '[') {
        const char *end = memchr(s.p, ']', s.n);
        if (!end || !is_ip_literal((struct str){s.p + 1, (size_t)(end - s.p) - 1}))
            return false;
        port = after(s, (size_t)(end - s.p) + 1);
        if (port.n && port.p[0] != ':')
            return false;
    } else {
        const char *colon = s.n ? memchr(s.p, ':', s.n) : NULL;
        size_t n = colon ? (size_t)(colon - s.p) : s.n;
        if (!is_reg_name((struct str){s.p, n}))
            return false;
        port = after(s, n);
    }
    uint64_t v;
    return port.n <= 1 || (str_to_u64(after(port, 1), &v) && v <= 65535);
}

/* Decoded bytes of `s` into `to` (at least s.n bytes); the number of them, or SIZE_MAX on a bad escape. */
static size_t decode_into(char *to, struct str s, bool form)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == '%') {
            int hi = s.n - i > 2 ? hex_value(s.p[i + 1]) : -1;
            int lo = hi >= 0 ? hex_value(s.p[i + 2]) : -1;
            if (lo < 0 || (hi == 0 && lo == 0))
                return SIZE_MAX;
            c = (char)(hi << 4 | lo);
            i += 2;
        } else if (form && c == '+') {
            c = ' ';
        }
        to[n++] = c;
    }
    return n;
}

int url_decode(struct arena *a, struct str s, bool form, struct str *out, struct error *err)
{
    *out = s;
    if (s.n == 0 || (!memchr(s.p, '%', s.n) && !(form && memchr(s.p, '+', s.n))))
        return 0;
    char *to = arena_alloc(a, s.n);
    if (!to)
        return error_set(err, STATUS_NOMEM, "out of memory for the decoded URL");
    size_t n = decode_into(to, s, form);
    if (n == SIZE_MAX)
        return error_set(err, STATUS_INVALID,
                         "the URL holds a broken percent escape (or %%00): each '%%' takes two hex digits");
    *out = (struct str){to, n};
    return 0;
}

int url_split_path(struct arena *a, struct str path, struct str *segs, size_t max, size_t *n, struct error *err)
{
    *n = 0;
    if (path.n == 0 || path.p[0] != '/')
        return error_set(err, STATUS_INVALID, "the URL's path must begin with '/'");
    if (path.n == 1)
        return 0;
    size_t start = 1;
    for (size_t i = 1; i <= path.n; i++) {
        if (i < path.n && path.p[i] != '/')
            continue;
        struct str seg;
        int rc = url_decode(a, (struct str){path.p + start, i - start}, false, &seg, err);
        if (rc)
            return rc;
        if (str_eqz(seg, ".") || str_eqz(seg, ".."))
            return error_set(err, STATUS_INVALID, "the URL's path holds a '.' or '..' segment; send the resolved path");
        if (*n == max)
            return error_set(err, STATUS_NOT_FOUND, "no such path");
        segs[(*n)++] = seg;
        start = i + 1;
    }
    return 0;
}

/* The byte at path.p[*at], decoded, and behind it; -1: a bad escape. */
static int next_byte(struct str path, size_t *at)
{
    unsigned char b = (unsigned char)path.p[(*at)++];
    if (b != '%')
        return b;
    int high = path.n - *at >= 2 ? hex_value(path.p[*at]) : -1, low = path.n - *at >= 2 ? hex_value(path.p[*at + 1]) : -1;
    *at += 2;
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

int url_check_path(struct str path, struct error *err)
{
    size_t at = 0, n = 0, dots = 0; /* of the segment; bytes behind a ';' are not counted */
    bool parameter = false;
    while (at <= path.n) {
        int b = at < path.n ? next_byte(path, &at) : (at++, '/');
        if (b <= 0)
            return error_set(err, STATUS_INVALID,
                             "the URL's path holds a %%00 or a '%%' that two hexadecimal digits do not follow");
        if (b == '/' || b == '\\') {
            if (n && n <= 2 && dots == n)
                return error_set(err, STATUS_INVALID, "the URL's path holds a '.' or '..' segment; send the resolved path");
            n = dots = 0;
            parameter = false;
        } else if (b == ';' || parameter) {
            parameter = true;
        } else {
            n++;
            dots += b == '.';
        }
    }
    return 0;
}

int url_query_get(struct arena *a, struct str query, const char *name, struct str *out, struct error *err)
{
    struct str rest = query, part;
    while (rest.n && str_cut(&rest, '&', &part)) {
        struct str value = part, raw_key, key;
        str_cut(&value, '=', &raw_key);
        int rc = url_decode(a, raw_key, true, &key, err);
        if (rc)
            return rc;
        if (str_eqz(key, name))
            return url_decode(a, value, true, out, err);
    }
    return STATUS_NOT_FOUND;
}
