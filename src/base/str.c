/* str.c: byte-view comparison and strict whole-string parsers. No locale, no allocation. */
#include "base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static unsigned char lower(unsigned char c)
{
    return c >= 'A' && c <= 'Z' ? (unsigned char)(c + 32) : c;
}

/* Eight bytes at once: 0x20 is set in those from 'A' to 'Z' (the high bit of each byte tells whether it is one). */
static uint64_t lower8(const char *p)
{
    const uint64_t ones = 0x0101010101010101u;
    uint64_t x, low;
    memcpy(&x, p, 8);
    low = x & ones * 0x7f;
    return x | ((low + ones * (0x80 - 'A')) & ~(low + ones * (0x7f - 'Z')) & ~x & ones * 0x80) >> 2;
}

bool str_ieq(struct str a, struct str b)
{
    size_t i = 0;
    if (a.n != b.n)
        return false;
    for (; i + 8 <= a.n; i += 8)
        if (lower8(a.p + i) != lower8(b.p + i))
            return false;
    if (i && i < a.n) /* the rest, with some of what was looked at already */
        return lower8(a.p + a.n - 8) == lower8(b.p + a.n - 8);
    for (; i < a.n; i++)
        if (lower((unsigned char)a.p[i]) != lower((unsigned char)b.p[i]))
            return false;
    return true;
}

bool str_starts(struct str s, struct str prefix)
{
    return s.n >= prefix.n && (prefix.n == 0 || memcmp(s.p, prefix.p, prefix.n) == 0);
}

bool str_ends(struct str s, struct str suffix)
{
    return s.n >= suffix.n && (suffix.n == 0 || memcmp(s.p + s.n - suffix.n, suffix.p, suffix.n) == 0);
}

size_t str_utf8_put(uint32_t c, void *out)
{
    uint8_t *p = out;
    if (c < 0x80) {
        p[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        p[0] = (uint8_t)(0xc0 | c >> 6), p[1] = (uint8_t)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        p[0] = (uint8_t)(0xe0 | c >> 12), p[1] = (uint8_t)(0x80 | (c >> 6 & 63)), p[2] = (uint8_t)(0x80 | (c & 63));
        return 3;
    }
    p[0] = (uint8_t)(0xf0 | c >> 18), p[1] = (uint8_t)(0x80 | (c >> 12 & 63));
    p[2] = (uint8_t)(0x80 | (c >> 6 & 63)), p[3] = (uint8_t)(0x80 | (c & 63));
    return 4;
}

size_t str_utf8_at(struct str s, size_t at)
{
    const unsigned char *p = (const unsigned char *)s.p + at;
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
    if (!n || n > s.n - at)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) ||
        (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return n;
}

char *str_dup(struct str s)
{
    char *copy = malloc(s.n + 1);
    if (!copy)
        return NULL;
    if (s.n)
        memcpy(copy, s.p, s.n);
    copy[s.n] = 0;
    return copy;
}

struct str str_trim(struct str s)
{
    while (s.n && (s.p[0] == ' ' || s.p[0] == '\t'))
        s.p++, s.n--;
    while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

bool str_cut(struct str *rest, char sep, struct str *part)
{
    if (!rest->p)
        return false;
    const char *at = rest->n ? memchr(rest->p, sep, rest->n) : NULL;
    if (!at) {
        *part = *rest;
        *rest = (struct str){NULL, 0};
        return true;
    }
    *part = (struct str){rest->p, (size_t)(at - rest->p)};
    rest->n -= part->n + 1;
    rest->p = at + 1;
    return true;
}

bool str_to_u64(struct str s, uint64_t *out)
{
    uint64_t v = 0;
    if (!s.n)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        unsigned d = (unsigned char)s.p[i] - (unsigned)'0';
        if (d > 9 || __builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, d, &v))
            return false;
    }
    *out = v;
    return true;
}

bool str_to_i64(struct str s, int64_t *out)
{
    bool negative = s.n && s.p[0] == '-';
    uint64_t v;
    if (!str_to_u64(negative ? (struct str){s.p + 1, s.n - 1} : s, &v))
        return false;
    if (v > (uint64_t)INT64_MAX + (negative ? 1 : 0))
        return false;
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

bool str_to_f64(struct str s, double *out)
{
    char z[64];
    if (!s.n || s.n >= sizeof z)
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (!strchr("0123456789+-.eE", s.p[i]) || !s.p[i])
            return false;
    memcpy(z, s.p, s.n);
    z[s.n] = 0;
    char *end;
    double v = strtod(z, &end);
    if (*end || !isfinite(v))
        return false;
    *out = v;
    return true;
}

struct unit {
    const char *name;
    uint64_t factor;
};

static bool parse_unit(struct str s, const struct unit *units, size_t n_units, uint64_t *out)
{
    size_t digits = 0;
    uint64_t v;
    while (digits < s.n && s.p[digits] >= '0' && s.p[digits] <= '9')
        digits++;
    if (!str_to_u64((struct str){s.p, digits}, &v))
        return false;
    struct str suffix = str_trim((struct str){s.p + digits, s.n - digits});
    for (size_t i = 0; i < n_units; i++)
        if (str_ieqz(suffix, units[i].name))
            return !__builtin_mul_overflow(v, units[i].factor, out);
    return false;
}

bool str_to_bytes(struct str s, uint64_t *out)
{
    static const struct unit units[] = {
        {"", 1},
        {"b", 1},
        {"kb", 1000},
        {"mb", 1000000},
        {"gb", 1000000000},
        {"k", 1ull << 10},
        {"m", 1ull << 20},
        {"g", 1ull << 30},
        {"kib", 1ull << 10},
        {"mib", 1ull << 20},
        {"gib", 1ull << 30},
        {"tib", 1ull << 40},
    };
    return parse_unit(s, units, sizeof units / sizeof units[0], out);
}

bool str_to_duration_ns(struct str s, uint64_t *out)
{
    static const struct unit units[] = {
        {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {"m", 60000000000ull}, {"h", 3600000000000ull},
    };
    return parse_unit(s, units, sizeof units / sizeof units[0], out);
}

bool str_is_model_name(struct str name)
{
    if (name.n < 1 || name.n > 128 || str_eq(name, STR(".")) || str_eq(name, STR("..")))
        return false;
    for (size_t i = 0; i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i], l = lower(c);
        if (!(l >= 'a' && l <= 'z') && !(c >= '0' && c <= '9') && c != '.' && c != '_' && c != '-')
            return false;
    }
    return true;
}

#define DISTANCE_MAX 64

unsigned str_distance(struct str a, struct str b)
{
    if (a.n > DISTANCE_MAX || b.n > DISTANCE_MAX)
        return 255;
    unsigned row[3][DISTANCE_MAX + 1]; /* rows i-2, i-1 and i of the matrix, rotated */
    for (size_t j = 0; j <= b.n; j++)
        row[0][j] = (unsigned)j;
    for (size_t i = 1; i <= a.n; i++) {
        unsigned *now = row[i % 3], *prev = row[(i - 1) % 3], *before = row[(i + 1) % 3];
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= b.n; j++) {
            unsigned char x = lower((unsigned char)a.p[i - 1]), y = lower((unsigned char)b.p[j - 1]);
            unsigned best = prev[j - 1] + (x != y);
            best = best < prev[j] + 1 ? best : prev[j] + 1;
            best = best < now[j - 1] + 1 ? best : now[j - 1] + 1;
            if (i > 1 && j > 1 && x == lower((unsigned char)b.p[j - 2]) && lower((unsigned char)a.p[i - 2]) == y &&
                before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[a.n % 3][b.n];
}
