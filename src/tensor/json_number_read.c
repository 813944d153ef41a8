/* json_number_read.c: the rarer paths of reading decimals. See json_number.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/size.h"
#include "tensor/json_number.h"
#include "tensor/json_pow5.h"
#include "tensor/tensor.h"

const double json_pow10_f64[23] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Walk the significant digits of a token: no sign, point, exponent or leading zeros. */
struct digits {
    const char *p, *end;
};

static struct digits digits_of(const struct json_decimal *d)
{
    struct digits s = {d->text + d->neg, d->end};
    for (const char *p = s.p; p < d->end; p++)
        if ((*p | 0x20) == 'e')
            s.end = p;
    while (s.p < s.end && (*s.p == '0' || *s.p == '.'))
        s.p++;
    return s;
}

/* The next digit, or -1 at the end. */
static int digits_next(struct digits *s)
{
    if (s->p < s->end && *s->p == '.')
        s->p++;
    return s->p < s->end ? *s->p++ - '0' : -1;
}

void json_decimal_long(struct json_decimal *d, int64_t q_end)
{
    struct digits s = digits_of(d);
    int64_t kept = 0, left = 0;
    int c;
    d->w = 0;
    for (; kept < 19 && (c = digits_next(&s)) >= 0; kept++)
        d->w = d->w * 10 + (uint64_t)c;
    for (; (c = digits_next(&s)) >= 0; left++)
        d->more |= c != 0;
    d->q = q_end + left;
}

/* w x 10^q as the bits of a double, w != 0 (Lemire 2021, algorithm 1, with the exact-tie rule of its section 6). */
static uint64_t eisel_lemire(uint64_t w, int64_t q)
{
    if (q < JSON_POW5_FIRST)
        return 0;
    if (q > 308)
        return 0x7ffull << 52;
    const uint64_t *g = json_pow5[q - JSON_POW5_FIRST];
    int lz = __builtin_clzll(w);
    w <<= lz;
    unsigned __int128 first = (unsigned __int128)w * g[0];
    uint64_t hi = (uint64_t)(first >> 64), lo = (uint64_t)first;
    if ((hi & 0x1ff) == 0x1ff) { /* the low word of the power may still carry in */
        uint64_t more = (uint64_t)((unsigned __int128)w * g[1] >> 64);
        lo += more;
        hi += lo < more;
    }
    int upper = (int)(hi >> 63), shift = upper + 64 - 52 - 3;
    uint64_t man = hi >> shift;
    /* floor(q x log2(10)) + 63, then the biased exponent */
    int64_t exp = (((152170 + 65536) * q) >> 16) + 63 + upper - lz + 1023;
    if (exp <= 0) { /* subnormal, or nothing */
        if (-exp + 1 >= 64)
            return 0;
        man >>= -exp + 1;
        man = (man + (man & 1)) >> 1;
        return man; /* a carry into bit 52 is exponent 1: the same bits */
    }
    /* Exactly between two doubles: only possible for these q, and only when nothing was cut off. */
    if (lo <= 1 && q >= -4 && q <= 23 && (man & 3) == 1 && man << shift == hi)
        man &= ~1ull;
    man = (man + (man & 1)) >> 1;
    if (man >= 2ull << 52) {
        man = 1ull << 52;
        exp++;
    }
    if (exp >= 0x7ff)
        return 0x7ffull << 52;
    return (man & ~(1ull << 52)) | (uint64_t)exp << 52;
}

/* Over 19 digits, and they matter: strtod on "<digits>e<exponent>". 800 digits decide every double (767 is the most that a
 * midpoint has); what is behind them is one sticky digit. */
static double by_strtod(const struct json_decimal *d)
{
    enum { KEEP = 800 };
    char text[KEEP + 40];
    struct digits s = digits_of(d);
    size_t n = 0;
    int c;
    bool sticky = false;
    while (n < KEEP && (c = digits_next(&s)) >= 0)
        text[n++] = (char)('0' + c);
    while ((c = digits_next(&s)) >= 0)
        sticky |= c != 0;
    if (sticky)
        text[n++] = '1';
    /* d->q belongs to the 19th significant digit. */
    int64_t q = d->q + 19 - (int64_t)n;
    snprintf(text + n, sizeof text - n, "e%lld", (long long)q);
    return strtod(text, NULL);
}

double json_decimal_f64_slow(const struct json_decimal *d)
{
    double v;
    uint64_t u = d->w ? eisel_lemire(d->w, d->q) : 0;
    if (d->more && u != eisel_lemire(d->w + 1, d->q))
        v = by_strtod(d);
    else
        memcpy(&v, &u, sizeof v);
    return json_signed(v, d->neg);
}

/* -1, 0, 1: the decimal's magnitude against that of `v`, exactly. Both nonzero, v finite. */
static int compare_exact(const struct json_decimal *d, double v)
{
    char exact[200]; /* 170 digits hold any midpoint of the narrow types (at most 113) */
    snprintf(exact, sizeof exact, "%.170e", fabs(v));
    int64_t exp = strtol(strchr(exact, 'e') + 1, NULL, 10);
    struct digits s = digits_of(d);
    size_t n = 0;
    struct digits count = s;
    while (digits_next(&count) >= 0)
        n++;
    /* Power of ten of the first significant digit. d->q is that of the last digit in w. */
    int64_t first = d->q + (int64_t)MIN_OF(n, (size_t)19) - 1;
    if (first != exp)
        return first < exp ? -1 : 1;
    for (size_t i = 0;; i++) {
        int a = digits_next(&s), b = i == 0 ? exact[0] - '0' : i <= 170 ? exact[i + 1] - '0' : 0;
        if (a < 0 && i > 170)
            return 0;
        if (MAX_OF(a, 0) != b)
            return MAX_OF(a, 0) < b ? -1 : 1;
    }
}

double json_decimal_settle(const struct json_decimal *d, double v)
{
    if (d->w == 0 || !isfinite(v) || (d->whole && !d->more && d->w <= 1ull << 53))
        return v; /* exact */
    if (v == 0)
        return d->neg ? -0x1p-1074 : 0x1p-1074; /* far below every narrow type's least number, but not nothing */
    int cmp = compare_exact(d, v);
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    u = cmp > 0 ? u + 1 : cmp < 0 ? u - 1 : u;
    memcpy(&v, &u, sizeof v);
    return v;
}

uint16_t json_decimal_f16(const struct json_decimal *d)
{
    double v = json_decimal_f64(d);
    if (json_may_tie(v, 10, -14))
        v = json_decimal_settle(d, v);
    return f32_to_f16(f64_to_f32_odd(v));
}

uint16_t json_decimal_bf16(const struct json_decimal *d)
{
    double v = json_decimal_f64(d);
    if (json_may_tie(v, 7, -126))
        v = json_decimal_settle(d, v);
    return f32_to_bf16(f64_to_f32_odd(v));
}
