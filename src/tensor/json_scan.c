/* json_scan.c: see json_scan.h. */
#include "tensor/json_scan.h"

#include <stdio.h>

#include "base/status.h"
#include "tensor/json_number.h"
#include "tensor/tensor_priv.h"

static bool word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '+' || c == '-' ||
           c == '.';
}

const char *json_token_text(const struct json_scan *s, char *text)
{
    if (s->p >= s->end)
        return "the end of the text";
    size_t n = 0;
    while (s->p + n < s->end && n < 36 && word_char(s->p[n]))
        n++;
    bool cut = s->p + n < s->end && n == 36;
    switch (*s->p) {
    case '"':
        return "a string";
    case '[':
        return "an array";
    case '{':
        return "an object";
    default:
        if (!n && *s->p > ' ' && *s->p < 0x7f)
            snprintf(text, JSON_TOKEN_TEXT, "'%c'", *s->p);
        else if (!n)
            snprintf(text, JSON_TOKEN_TEXT, "the byte 0x%02x", (unsigned char)*s->p);
        else
            snprintf(text, JSON_TOKEN_TEXT, "%.*s%s", (int)n, s->p, cut ? "..." : "");
        return text;
    }
}

int json_expected(const struct json_scan *s, const char *what, struct error *err)
{
    char token[JSON_TOKEN_TEXT];
    return error_set(err, STATUS_INVALID, "the request's JSON: expected %s, but %s stands at byte %zu", what,
                     json_token_text(s, token), (size_t)(s->p - s->start));
}

/* Four hex digits at p, or -1. */
static int hex4(const char *p, const char *end)
{
    int v = 0;
    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i], low = (char)(c | 0x20);
        int d = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
        if (d < 0)
            return -1;
        v = v << 4 | d;
    }
    return v;
}

/* The escape behind a backslash at p - 1 as UTF-8 in out[4]; moves *p behind it. 0: not an escape. */
static size_t escape(const char **p, const char *end, char *out, const char **why)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *at = *p < end && **p ? strchr(from, **p) : NULL;
    if (at) {
        *out = to[at - from];
        ++*p;
        return 1;
    }
    *why = "has a backslash that starts no JSON escape";
    if (*p == end || **p != 'u')
        return 0;
    int c = hex4(*p + 1, end);
    if (c < 0)
        return 0;
    *p += 5;
    if (c < 0xd800 || c > 0xdfff)
        return str_utf8_put((uint32_t)c, out);
    *why = "has half of a surrogate pair";
    int low = c < 0xdc00 && end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u' ? hex4(*p + 2, end) : -1;
    if (low < 0xdc00 || low > 0xdfff)
        return 0;
    *p += 6;
    return str_utf8_put(0x10000 + ((uint32_t)(c - 0xd800) << 10) + (uint32_t)(low - 0xdc00), out);
}

const char *json_string_decode(const char *p, const char *end, char *dst, size_t *n, const char **why, const char **bad)
{
    size_t at = 0;
    char text[4];
    for (;;) {
        if (end - p >= 8) {
            uint64_t v = load_u64(p), stop = json_string8_stop(v);
            if (dst)
                memcpy(dst + at, &v, 8);
            if (!stop) {
                at += 8;
                p += 8;
                continue;
            }
            at += (size_t)__builtin_ctzll(stop) >> 3;
            p += __builtin_ctzll(stop) >> 3;
        }
        *bad = p;
        if (p == end) {
            *why = "has no closing quote";
            return NULL;
        }
        unsigned char c = (unsigned char)*p;
        const char *from = p;
        size_t len;
        if (c == '"') {
            *n = at;
            return p + 1;
        }
        if (c == '\\') {
            p++;
            len = escape(&p, end, text, why);
            from = text;
        } else {
            *why = c < 0x20 ? "has a control character that is not escaped" : "is not valid UTF-8";
            len = c < 0x20 ? 0 : str_utf8_at((struct str){p, (size_t)(end - p)}, 0);
            p += len;
        }
        if (!len)
            return NULL;
        if (dst)
            memcpy(dst + at, from, len);
        at += len;
    }
}

int json_string(struct json_scan *s, struct arena *a, struct str *out, struct error *err)
{
    const char *why = "", *bad = NULL;
    size_t n;
    if (json_peek(s) != '"')
        return json_expected(s, "a string", err);
    const char *text = s->p + 1;
    const char *next = json_string_decode(text, s->end, NULL, &n, &why, &bad);
    if (!next)
        return error_set(err, STATUS_INVALID, "the request's JSON: the string at byte %zu %s (byte %zu)",
                         (size_t)(s->p - s->start), why, (size_t)(bad - s->start));
    s->p = next;
    *out = (struct str){text, n};
    if (n == (size_t)(next - text) - 1)
        return STATUS_OK; /* no escapes: an escape is always longer than what it stands for */
    char *copy = arena_alloc(a, n + JSON_STRING_SLACK);
    if (!copy)
        return error_set(err, STATUS_NOMEM, "no memory for a string of %zu bytes in the request", n);
    json_string_decode(text, s->end, copy, &n, &why, &bad);
    out->p = copy;
    return STATUS_OK;
}

static bool word(struct json_scan *s, const char *w)
{
    size_t n = strlen(w);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, w, n) != 0)
        return false;
    s->p += n;
    return true;
}

int json_bool(struct json_scan *s, bool *out, struct error *err)
{
    json_peek(s);
    if (word(s, "true"))
        *out = true;
    else if (word(s, "false"))
        *out = false;
    else
        return json_expected(s, "true or false", err);
    return STATUS_OK;
}

/* A whole number's sign and magnitude; false when it is none, or beyond 64 bits. */
static bool whole(struct json_scan *s, bool *neg, uint64_t *magnitude)
{
    struct json_decimal d;
    json_peek(s);
    const char *next = json_decimal_scan(s->p, s->end, &d);
    if (!next || !d.whole || d.q > 1)
        return false;
    *neg = d.neg;
    *magnitude = d.w;
    /* 20 digits: the scan kept 19 of them. */
    if (d.q == 1 && (__builtin_mul_overflow(d.w, 10, magnitude) ||
                     __builtin_add_overflow(*magnitude, (uint64_t)(next[-1] - '0'), magnitude)))
        return false;
    s->p = next;
    return true;
}

int json_i64(struct json_scan *s, int64_t *out, struct error *err)
{
    bool neg;
    uint64_t m;
    struct json_scan at = *s;
    if (!whole(&at, &neg, &m) || m > (uint64_t)INT64_MAX + neg) {
        json_peek(s);
        return json_expected(s, "a whole number from -9223372036854775808 to 9223372036854775807", err);
    }
    *out = neg ? (int64_t)(0 - m) : (int64_t)m;
    s->p = at.p;
    return STATUS_OK;
}

/* Common to objects and arrays: 1 when an element follows, 0 behind the end. */
static int next_item(struct json_scan *s, bool *first, char open, char close, const char *what, struct error *err)
{
    if (*first) {
        if (json_peek(s) != open)
            return json_expected(s, open == '{' ? "an object" : "an array", err);
        s->p++;
        *first = false;
        if (json_peek(s) != close)
            return 1;
    } else if (json_peek(s) == ',') {
        s->p++;
        json_peek(s);
        return 1;
    } else if (json_peek(s) != close) {
        return json_expected(s, what, err);
    }
    s->p++;
    return 0;
}

int json_element(struct json_scan *s, bool *first, struct error *err)
{
    return next_item(s, first, '[', ']', "',' or ']' behind an element", err);
}

int json_member(struct json_scan *s, bool *first, struct arena *a, struct str *key, struct error *err)
{
    int rc = next_item(s, first, '{', '}', "',' or '}' behind a member", err);
    if (rc <= 0)
        return rc;
    if (json_peek(s) != '"')
        return json_expected(s, "a member's name in quotes", err);
    rc = json_string(s, a, key, err);
    if (rc)
        return rc;
    if (json_peek(s) != ':')
        return json_expected(s, "':' behind a member's name", err);
    s->p++;
    json_peek(s);
    return 1;
}

static int skip_string(struct json_scan *s, struct error *err)
{
    const char *why = "", *bad = NULL;
    size_t n;
    const char *next = json_string_decode(s->p + 1, s->end, NULL, &n, &why, &bad);
    if (!next)
        return error_set(err, STATUS_INVALID, "the request's JSON: the string at byte %zu %s (byte %zu)",
                         (size_t)(s->p - s->start), why, (size_t)(bad - s->start));
    s->p = next;
    return STATUS_OK;
}

static int skip_object(struct json_scan *s, int depth, struct error *err)
{
    bool first = true;
    int rc;
    while ((rc = next_item(s, &first, '{', '}', "',' or '}' behind a member", err)) == 1) {
        if (json_peek(s) != '"')
            return json_expected(s, "a member's name in quotes", err);
        if ((rc = skip_string(s, err)) != 0)
            return rc;
        if (json_peek(s) != ':')
            return json_expected(s, "':' behind a member's name", err);
        s->p++;
        if ((rc = json_skip(s, depth, err)) != 0)
            return rc;
    }
    return rc;
}

static int skip_array(struct json_scan *s, int depth, struct error *err)
{
    bool first = true;
    int rc;
    while ((rc = json_element(s, &first, err)) == 1)
        if ((rc = json_skip(s, depth, err)) != 0)
            return rc;
    return rc;
}

int json_skip(struct json_scan *s, int depth, struct error *err)
{
    struct json_decimal d;
    const char *next;
    char c = json_peek(s);
    if ((c == '{' || c == '[') && depth <= 0)
        return error_set(err, STATUS_INVALID, "the request's JSON is nested too deeply at byte %zu", (size_t)(s->p - s->start));
    if (c == '{')
        return skip_object(s, depth - 1, err);
    if (c == '[')
        return skip_array(s, depth - 1, err);
    if (c == '"')
        return skip_string(s, err);
    if (c == 't' || c == 'f' || c == 'n') {
        if (word(s, "true") || word(s, "false") || word(s, "null"))
            return STATUS_OK;
    } else if ((next = json_decimal_scan(s->p, s->end, &d)) != NULL) {
        s->p = next;
        return STATUS_OK;
    }
    return json_expected(s, "a value", err);
}
