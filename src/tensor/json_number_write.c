/* json_number_write.c: shortest decimals (Schubfach) and whole numbers as text. See json_number.h.
 *
 * A float is c x 2^q. The decimals that read back to it fill the interval between the midpoints to its neighbours:
 * [4c - 2, 4c + 2] x 2^(q-2), with the lower half only 1 wide at a power of two. One multiplication by a 128-bit power of ten
 * carries the three points to a scale where the interval holds at least one and at most twenty integers ("round to odd"
 * keeps comparisons exact); the answer is a multiple of ten inside, else the nearest integer inside. */
#include "base/check.h"
#include "tensor/json_number.h"
#include "tensor/json_pow5.h"

struct shortest {
    uint64_t digits;
    int exp; /* value = digits x 10^exp */
};

/* floor(cp x g / 2^128) with the lowest bit set when something was cut off. */
static inline uint64_t round_to_odd(const uint64_t g[2], uint64_t cp)
{
    unsigned __int128 x = (unsigned __int128)g[1] * cp;
    unsigned __int128 y = (unsigned __int128)g[0] * cp + (uint64_t)(x >> 64);
    return (uint64_t)(y >> 64) | ((uint64_t)y > 1);
}

/* Cut trailing zeros. */
static inline struct shortest trimmed(uint64_t digits, int exp)
{
    while (digits % 10 == 0 && digits)
        digits /= 10, exp++;
    return (struct shortest){digits, exp};
}

/* c != 0. `closer`: the lower neighbour is only half as far away. */
static struct shortest shortest_of(uint64_t c, int q, bool closer)
{
    if (q <= 0 && q > -53 && (c & ((1ull << -q) - 1)) == 0)
        return trimmed(c >> -q, 0); /* a whole number */
    uint64_t odd = c & 1;           /* interval ends belong to even significands */
    /* floor(log10(2^q)), for the shorter interval floor(log10(3/4 x 2^q)) */
    int k = (q * 1262611 - (closer ? 524031 : 0)) >> 22;
    int h = q + ((-k * 1741647) >> 19) + 1;
    uint64_t g[2] = {json_pow5[-k - JSON_POW5_FIRST][0], json_pow5[-k - JSON_POW5_FIRST][1]};
    g[1] += -k > JSON_POW5_EXACT_LAST; /* the table cuts these off; here they are rounded up */
    uint64_t low = round_to_odd(g, (4 * c - 2 + closer) << h) + odd;
    uint64_t mid = round_to_odd(g, (4 * c) << h);
    uint64_t high = round_to_odd(g, (4 * c + 2) << h) - odd;
    uint64_t s = mid / 4;
    if (s >= 10) {
        uint64_t ten = s / 10 * 40; /* multiples of ten around it, in quarters */
        bool below = low <= ten, above = ten + 40 <= high;
        if (below != above)
            return trimmed(s / 10 + above, k + 1);
    }
    bool below = low <= 4 * s, above = 4 * s + 4 <= high;
    if (below != above)
        return (struct shortest){s + above, k};
    uint64_t half = 4 * s + 2;
    return trimmed(s + (mid > half || (mid == half && (s & 1))), k);
}

static const char pairs[201] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
                               "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
                               "8081828384858687888990919293949596979899";

static inline unsigned decimal_length(uint64_t v)
{
    static const uint64_t pow10[20] = {0,
                                       10,
                                       100,
                                       1000,
                                       10000,
                                       100000,
                                       1000000,
                                       10000000,
                                       100000000,
                                       1000000000,
                                       10000000000,
                                       100000000000,
                                       1000000000000,
                                       10000000000000,
                                       100000000000000,
                                       1000000000000000,
                                       10000000000000000,
                                       100000000000000000,
                                       1000000000000000000,
                                       10000000000000000000u};
    unsigned bits = 64 - (unsigned)__builtin_clzll(v | 1),
             n = bits * 1233 >> 12; /* 1233 / 4096: log10(2), never too small by one */
    return n + (v >= pow10[n]);
}

/* v < 10^8 as exactly eight digits: the four pairs don't wait for each other. */
static inline void write_eight(uint32_t v, char *out)
{
    uint32_t high = v / 10000, low = v % 10000;
    memcpy(out, pairs + (size_t)2 * (high / 100), 2);
    memcpy(out + 2, pairs + (size_t)2 * (high % 100), 2);
    memcpy(out + 4, pairs + (size_t)2 * (low / 100), 2);
    memcpy(out + 6, pairs + (size_t)2 * (low % 100), 2);
}

/* v as exactly n digits. */
static inline void write_digits(uint64_t v, char *out, unsigned n)
{
    while (n > 8) {
        uint64_t high = v / 100000000;
        write_eight((uint32_t)(v - high * 100000000), out + (n -= 8));
        v = high;
    }
    uint32_t r = (uint32_t)v;
    for (; n >= 2; r /= 100)
        memcpy(out + (n -= 2), pairs + (size_t)2 * (r % 100), 2);
    if (n)
        out[0] = (char)('0' + r);
}

size_t json_write_u64(uint64_t v, char *out)
{
    unsigned n = decimal_length(v);
    write_digits(v, out, n);
    return n;
}

size_t json_write_i64(int64_t v, char *out)
{
    *out = '-';
    return v < 0 ? 1 + json_write_u64(0 - (uint64_t)v, out + 1) : json_write_u64((uint64_t)v, out);
}

/* d.dddde-7 */
static size_t write_scientific(uint64_t digits, unsigned n, int point, char *out)
{
    char *p = out;
    write_digits(digits, p + 1, n);
    p[0] = p[1];
    p[1] = '.';
    p += n == 1 ? 1 : n + 1;
    *p++ = 'e';
    p += json_write_i64(point - 1, p);
    return (size_t)(p - out);
}

static size_t write_decimal(struct shortest s, char *out)
{
    unsigned n = decimal_length(s.digits);
    int point = (int)n + s.exp; /* the point stands behind this many digits */
    if (point > 16 || point < -4)
        return write_scientific(s.digits, n, point, out);
    if (point <= 0) { /* 0.000ddd */
        memcpy(out, "0.0000", 6);
        write_digits(s.digits, out + 2 - point, n);
        return n + 2 - (size_t)point;
    }
    if ((unsigned)point >= n) { /* ddd000.0 */
        write_digits(s.digits, out, n);
        memset(out + n, '0', (size_t)point - n);
        memcpy(out + point, ".0", 2);
        return (size_t)point + 2;
    }
    write_digits(s.digits, out + 1, n); /* dd.ddd */
    memmove(out, out + 1, (size_t)point);
    out[point] = '.';
    return n + 1;
}

/* bits: the magnitude; man_bits stored significand bits, exponent bias `bias`. */
static inline size_t write_float(uint64_t bits, bool neg, int man_bits, int bias, char *out)
{
    char *p = out;
    *p = '-';
    p += neg;
    if (bits == 0) {
        memcpy(p, "0.0", 3);
        return (size_t)(p - out) + 3;
    }
    uint64_t man = bits & ((1ull << man_bits) - 1);
    int exp = (int)(bits >> man_bits);
    uint64_t c = exp ? man | 1ull << man_bits : man;
    int q = (exp ? exp : 1) - bias - man_bits;
    return (size_t)(p - out) + write_decimal(shortest_of(c, q, man == 0 && exp > 1), p);
}

size_t json_write_f64(double v, char *out)
{
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    DASSERT((u >> 52 & 0x7ff) != 0x7ff);
    return write_float(u & ~(1ull << 63), u >> 63, 52, 1023, out);
}

size_t json_write_f32(float v, char *out)
{
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    DASSERT((u >> 23 & 0xff) != 0xff);
    return write_float(u & 0x7fffffffu, u >> 31, 23, 127, out);
}

size_t json_write_f16(uint16_t v, char *out)
{
    return write_float(v & 0x7fff, v >> 15, 10, 15, out);
}

size_t json_write_bf16(uint16_t v, char *out)
{
    return write_float(v & 0x7fff, v >> 15, 7, 127, out);
}
