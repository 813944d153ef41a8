/* text.c: see text_priv.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "obs/text_priv.h"

/* Year, month and day of a day number since 1970-01-01: Howard Hinnant, "chrono-compatible low-level date algorithms",
 * civil_from_days. Years run from March, so that the leap day is the last of its year; an era has 400 years. */
static void civil(uint64_t days, unsigned *year, unsigned *month, unsigned *day)
{
    uint64_t z = days + 719468, era = z / 146097, of_era = z % 146097;
    uint64_t year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    uint64_t of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100), shifted = (5 * of_year + 2) / 153;
    *day = (unsigned)(of_year - (153 * shifted + 2) / 5 + 1);
    *month = (unsigned)(shifted < 10 ? shifted + 3 : shifted - 9);
    *year = (unsigned)(era * 400 + year_of_era + (*month <= 2));
}

static void put_digits(char *at, unsigned v, int n)
{
    while (n-- > 0) {
        at[n] = (char)('0' + v % 10);
        v /= 10;
    }
}

void text__append_time(struct buf *out, uint64_t wall_ns)
{
    char text[] = "0000-00-00T00:00:00.000000Z"; /* filled in by hand: printf would be most of a line's cost */
    unsigned year, month, day;
    uint64_t seconds = wall_ns / 1000000000u;
    unsigned of_day = (unsigned)(seconds % 86400);
    civil(seconds / 86400, &year, &month, &day);
    put_digits(text, year, 4);
    put_digits(text + 5, month, 2);
    put_digits(text + 8, day, 2);
    put_digits(text + 11, of_day / 3600, 2);
    put_digits(text + 14, of_day / 60 % 60, 2);
    put_digits(text + 17, of_day % 60, 2);
    put_digits(text + 20, (unsigned)(wall_ns / 1000 % 1000000), 6);
    buf_append(out, text, sizeof text - 1);
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

void text__append_f64(struct buf *out, double v)
{
    char text[32];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    buf_append_z(out, text);
}
