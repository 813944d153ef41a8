/* text.c: see text_priv.h. */
#include <string.h>
#include <time.h>

#include "obs/text_priv.h"

void text__append_time(struct buf *out, uint64_t wall_ns)
{
    struct tm tm;
    time_t seconds = (time_t)(wall_ns / 1000000000u);
    gmtime_r(&seconds, &tm);
    buf_printf(out, "%04d-%02d-%02dT%02d:%02d:%02d.%06uZ", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min,
               tm.tm_sec, (unsigned)(wall_ns / 1000 % 1000000));
}

static bool is_plain(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c <= ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '=')
            return false;
    }
    return s.n > 0;
}

/* Length of the control character at `i` that JSON would let through: DEL, or C1 in its two-byte form; else 0. */
static size_t control_at(struct str s, size_t i)
{
    unsigned char c = (unsigned char)s.p[i];
    if (c == 0x7f)
        return 1;
    return c == 0xc2 && i + 1 < s.n && (unsigned char)s.p[i + 1] >= 0x80 && (unsigned char)s.p[i + 1] < 0xa0 ? 2 : 0;
}

/* As a JSON string, without its quotes. */
static void append_inside(struct buf *out, struct str s)
{
    size_t at = out->n;
    buf_append_json_str(out, s);
    if (out->failed)
        return;
    memmove(out->p + at, out->p + at + 1, out->n - at - 2);
    out->n -= 2;
}

void text__append_value(struct buf *out, struct str s)
{
    if (is_plain(s)) {
        buf_append_str(out, s);
        return;
    }
    buf_append_c(out, '"');
    size_t start = 0;
    for (size_t i = 0; i < s.n;) {
        size_t control = control_at(s, i);
        if (!control) {
            i++;
            continue;
        }
        append_inside(out, (struct str){s.p + start, i - start});
        buf_printf(out, "\\u%04x", (unsigned)(unsigned char)s.p[i + control - 1]);
        start = i += control;
    }
    append_inside(out, (struct str){s.p + start, s.n - start});
    buf_append_c(out, '"');
}

struct str text__cut(struct str s, size_t limit, bool *cut)
{
    *cut = s.n > limit;
    if (!*cut)
        return s;
    size_t n = limit;
    while (n > 0 && limit - n < 3 && ((unsigned char)s.p[n] & 0xc0) == 0x80)
        n--;
    return (struct str){s.p, n};
}
