/* trace_context.c: see trace_context.h. */
#include "obs/trace_context.h"

#include <string.h>

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* 2n lower-case hex digits; false on anything else. */
static bool read_hex(const char *p, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int high = digit(p[2 * i]), low = digit(p[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool all_zero(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

bool trace_context_parse(struct str header, struct trace_context *out)
{
    struct trace_context t;
    uint8_t version;
    const char *p = header.p;
    if (header.n < TRACEPARENT_BYTES || !read_hex(p, &version, 1) || version == 0xff)
        return false;
    if (header.n > TRACEPARENT_BYTES && (version == 0 || p[TRACEPARENT_BYTES] != '-'))
        return false;
    if (p[2] != '-' || p[35] != '-' || p[52] != '-')
        return false;
    if (!read_hex(p + 3, t.trace_id, 16) || !read_hex(p + 36, t.span_id, 8) || !read_hex(p + 53, &t.flags, 1))
        return false;
    if (all_zero(t.trace_id, 16) || all_zero(t.span_id, 8))
        return false;
    *out = t;
    return true;
}

static void set_span(struct trace_context *t, uint64_t random)
{
    random += random == 0;
    memcpy(t->span_id, &random, sizeof t->span_id);
}

void trace_context_start(struct trace_context *out, const uint64_t random[3], bool sampled)
{
    memcpy(out->trace_id, random, sizeof out->trace_id);
    if (all_zero(out->trace_id, sizeof out->trace_id))
        out->trace_id[15] = 1;
    set_span(out, random[2]);
    out->flags = sampled;
}

void trace_context_child(const struct trace_context *parent, uint64_t random, struct trace_context *out)
{
    memcpy(out->trace_id, parent->trace_id, sizeof out->trace_id);
    set_span(out, random);
    out->flags = parent->flags & 1;
}

static char *write_hex(char *at, const uint8_t *p, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        *at++ = hex[p[i] >> 4];
        *at++ = hex[p[i] & 15];
    }
    return at;
}

void trace_context_format(const struct trace_context *t, char out[TRACEPARENT_BYTES + 1])
{
    char *at = out;
    memcpy(at, "00-", 3);
    at = write_hex(at + 3, t->trace_id, sizeof t->trace_id);
    *at++ = '-';
    at = write_hex(at, t->span_id, sizeof t->span_id);
    *at++ = '-';
    at = write_hex(at, &t->flags, 1);
    *at = 0;
}
