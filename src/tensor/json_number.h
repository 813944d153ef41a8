/* json_number.h: decimal text <-> binary numbers, correctly rounded and shortest, for the JSON codec of tensors.
 *
 * Reading. json_decimal_scan checks the JSON grammar and gives the first 19 significant digits as an integer and a power
 * of ten; digits are taken eight at a time in one register (SWAR). json_decimal_f64 is exact by Clinger's fast path where
 * both parts are exact doubles, else by Eisel and Lemire (Lemire 2021, "Number Parsing at a Gigabyte per Second"; no
 * fallback needed below 20 digits by Mushtak and Lemire 2022), else, with more digits than 19 that matter, by the C
 * library's strtod. The narrow floats are rounded once: the correctly rounded double decides, except where it lies exactly
 * between two of the narrow type's numbers; then the decimal text itself is compared with the double's exact expansion.
 *
 * Writing. The shortest decimal that reads back to the same number, and of those the closest: Schubfach (Giulietti 2021,
 * "The Schubfach way to render doubles"), one routine for all four float types, since it only asks for significand,
 * exponent and the width of the rounding interval.
 *
 * Pure; any thread; no locale (strtod is only given digits and an exponent, never a point). */
#ifndef INFERD_TENSOR_JSON_NUMBER_H
#define INFERD_TENSOR_JSON_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/tensor_priv.h"

struct json_decimal {
    uint64_t w; /* up to 19 significant digits */
    int64_t q;  /* value = w x 10^q, when !more */
    bool neg;
    bool whole;             /* no point and no exponent in the text */
    bool more;              /* nonzero digits behind the 19 were left out: the value is above w x 10^q, below (w + 1) x 10^q */
    const char *text, *end; /* the token */
};

static const uint64_t json_pow10_u64[9] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};

/* Eight bytes at `v`: a set top bit in each that is no digit, exact up to the lowest one. */
static inline uint64_t json_digits8_stop(uint64_t v)
{
    uint64_t t = v ^ 0x3030303030303030u;
    return ((t + 0x7676767676767676u) | t) & 0x8080808080808080u;
}

/* The value of the n leading digits of the eight bytes at `v`, 1 <= n <= 8. */
static inline uint64_t json_digits8_value(uint64_t v, unsigned n)
{
    uint64_t t = (v ^ 0x3030303030303030u) << (64 - 8 * n); /* leading places become zeros */
    t = (t * 10 + (t >> 8)) & 0x00ff00ff00ff00ffu;
    t = (t * 100 + (t >> 16)) & 0x0000ffff0000ffffu;
    return (t * 10000 + (t >> 32)) & 0xffffffffu;
}

/* Digits from p on, folded into *w (modulo 2^64: the caller counts them). Returns the first byte that is none. Eight more
 * digits are a predicted branch and a constant step, so that the next load doesn't wait for this one; only the last, partial
 * group's length is computed. */
static inline const char *json_digits(const char *p, const char *end, uint64_t *w)
{
    while (end - p >= 8) {
        uint64_t v = load_u64(p), stop = json_digits8_stop(v);
        if (stop) {
            unsigned n = (unsigned)__builtin_ctzll(stop) >> 3;
            if (n)
                *w = *w * json_pow10_u64[n] + json_digits8_value(v, n);
            return p + n;
        }
        *w = *w * 100000000 + json_digits8_value(v, 8);
        p += 8;
    }
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        *w = *w * 10 + (uint64_t)(*p - '0');
    return p;
}

/* Redo w, q and more for a number with over 19 digits; q_end is the power of ten of its last digit. */
void json_decimal_long(struct json_decimal *d, int64_t q_end);

/* The exponent part; p is behind the 'e'. Saturates. NULL: no digits. */
static inline const char *json_exponent(const char *p, const char *end, int64_t *q)
{
    bool neg = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    const char *first = p;
    int64_t e = 0;
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        e = e < 100000000 ? e * 10 + (*p - '0') : e;
    *q += neg ? -e : e;
    return p == first ? NULL : p;
}

/* Read a number in JSON's grammar (RFC 8259 section 6) from p on. Returns the byte behind it, or NULL when there is none:
 * also for "01", "1.", ".5", "+1". What follows the number is not looked at. */
static inline const char *json_decimal_scan(const char *p, const char *end, struct json_decimal *d)
{
    d->text = p;
    d->neg = p < end && *p == '-';
    p += d->neg;
    const char *first = p;
    d->w = p < end ? (uint64_t)(unsigned char)(*p - '0') : 10;
    d->more = false;
    d->whole = true;
    if (__builtin_expect(d->w > 9, 0))
        return NULL;
    p++;
    size_t digits = 1;
    if (p < end && *p >= '0' && *p <= '9') {
        if (d->w == 0)
            return NULL;
        p = json_digits(p, end, &d->w);
        digits = (size_t)(p - first);
    }
    int64_t q = 0;
    if (p < end && *p == '.') {
        const char *frac = ++p;
        p = json_digits(p, end, &d->w);
        if (p == frac)
            return NULL;
        q = frac - p;
        digits += (size_t)(p - frac);
        d->whole = false;
    }
    if (p < end && (*p | 0x20) == 'e') {
        p = json_exponent(p + 1, end, &q);
        if (!p)
            return NULL;
        d->whole = false;
    }
    d->q = q;
    d->end = p;
    if (__builtin_expect(digits > 19, 0))
        json_decimal_long(d, q);
    return p;
}

/* The nearest double, ties to even; infinity when the value rounds past the largest. Sign applied. */
double json_decimal_f64_slow(const struct json_decimal *d);

extern const double json_pow10_f64[23];

/* -v where neg, without a branch: signs are often random. */
static inline double json_signed(double v, bool neg)
{
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    u |= (uint64_t)neg << 63;
    memcpy(&v, &u, sizeof v);
    return v;
}

static inline double json_decimal_f64(const struct json_decimal *d)
{
    if (__builtin_expect(d->w <= 1ull << 53 && d->q >= -22 && d->q <= 22 && !d->more, 1)) {
        double v = (double)d->w;
        v = d->q < 0 ? v / json_pow10_f64[-d->q] : v * json_pow10_f64[d->q];
        return json_signed(v, d->neg);
    }
    return json_decimal_f64_slow(d);
}

/* `v` is json_decimal_f64(d). Where the decimal is not exactly v, move v by one unit towards the decimal's true side, so
 * that rounding it again to fewer bits rounds the decimal itself. Only needed where v may lie exactly between two numbers of
 * the narrower type: with `man_bits` stored significand bits and least normal exponent `min_exp`, json_may_tie says so (and
 * says yes too often below the normal range). */
double json_decimal_settle(const struct json_decimal *d, double v);

static inline bool json_may_tie(double v, int man_bits, int min_exp)
{
    uint64_t u, mask = (1ull << (52 - man_bits)) - 1;
    memcpy(&u, &v, sizeof u);
    return (u & mask) == (mask >> 1) + 1 || (int)(u >> 52 & 0x7ff) < min_exp + 1023;
}

/* The nearest float / half / bfloat16; infinity on overflow. */
static inline float json_decimal_f32(const struct json_decimal *d)
{
    double v = json_decimal_f64(d);
    if (__builtin_expect(json_may_tie(v, 23, -126), 0))
        v = json_decimal_settle(d, v);
    return (float)v;
}
uint16_t json_decimal_f16(const struct json_decimal *d);
uint16_t json_decimal_bf16(const struct json_decimal *d);

/* ---- writing ---- */

#define JSON_FLOAT_TEXT 32 /* room that one number takes at most */

/* The shortest decimal of a finite number into `out` (room for JSON_FLOAT_TEXT; not terminated); returns its length. Whole
 * numbers get ".0"; exponents are used below 1e-5 and from 1e16 on, as in Python's repr. */
size_t json_write_f64(double v, char *out);
size_t json_write_f32(float v, char *out);
size_t json_write_f16(uint16_t v, char *out);
size_t json_write_bf16(uint16_t v, char *out);

/* A whole number; room for 20. */
size_t json_write_u64(uint64_t v, char *out);
size_t json_write_i64(int64_t v, char *out);

#endif
