/* grammar_number.c: numbers between two bounds as automata over their digits.
 *
 * A number of L digits before the point is compared digit by digit with both bounds: while all digits so far equal a bound's, the next one is
 * limited by it ("tight"); after the first difference it is free. So a state is (place, tight below, tight above), and for multiples the
 * remainder so far: a few dozen states for any bounds. Negative numbers are the mirrored interval behind a minus sign; "-0" is left out. */
#include "base/size.h"
#include "base/status.h"
#include "text/grammar_priv.h"

#define DIGITS_MAX   18u
#define MULTIPLE_MAX 1000u

/* ---- decimals ---- */

/* Digits and the power of ten of the last one. */
static bool scan(struct str text, struct gdecimal *d, char *digits, size_t *n, int64_t *exp10)
{
    struct gread r = {text, 0};
    bool point = false;
    *d = (struct gdecimal){.negative = gr_take(&r, '-')};
    *n = 0;
    *exp10 = 0;
    for (int c; (c = gr_peek(&r)) >= 0 && (c == '.' || (c >= '0' && c <= '9')); r.at++) {
        if (c == '.') {
            point = true;
            continue;
        }
        *exp10 -= point;
        if (*n || c != '0') {
            if (*n == 2 * DIGITS_MAX)
                return false;
            digits[(*n)++] = (char)c;
        }
    }
    if (gr_take(&r, 'e') || gr_take(&r, 'E')) {
        uint32_t e;
        bool minus = gr_take(&r, '-');
        if (!minus)
            gr_take(&r, '+');
        if (!gr_number(&r, &e) || e > 1000)
            return false;
        *exp10 += minus ? -(int64_t)e : (int64_t)e;
    }
    while (*n && digits[*n - 1] == '0')
        (*n)--, (*exp10)++;
    return true;
}

bool gdecimal_read(struct str text, struct gdecimal *d)
{
    char digits[2 * DIGITS_MAX];
    size_t n;
    int64_t e;
    if (!scan(text, d, digits, &n, &e) || (int64_t)n + e > (int64_t)DIGITS_MAX || e < -(int64_t)DIGITS_MAX)
        return false;
    for (int64_t place = (int64_t)n + e - 1; n && place >= MIN_OF(e, 0); place--) { /* the power of ten of each digit */
        int64_t i = (int64_t)n + e - 1 - place;
        char c = place >= e && i < (int64_t)n ? digits[i] : '0';
        if (place >= 0)
            d->whole[d->n_whole++] = c;
    }
    for (int64_t place = -1; n && place >= e; place--) {
        int64_t i = (int64_t)n + e - 1 - place;
        d->fraction[d->n_fraction++] = i >= 0 ? digits[i] : '0';
    }
    d->negative &= n > 0;
    return true;
}

static int compare_magnitude(const struct gdecimal *a, const struct gdecimal *b)
{
    if (a->n_whole != b->n_whole)
        return a->n_whole < b->n_whole ? -1 : 1;
    int c = memcmp(a->whole, b->whole, a->n_whole);
    if (!c)
        c = memcmp(a->fraction, b->fraction, MIN_OF(a->n_fraction, b->n_fraction));
    return c ? c : (a->n_fraction > b->n_fraction) - (a->n_fraction < b->n_fraction);
}

int gdecimal_compare(const struct gdecimal *a, const struct gdecimal *b)
{
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    return a->negative ? compare_magnitude(b, a) : compare_magnitude(a, b);
}

/* ---- the automaton of a range of non-negative numbers ---- */

struct range {
    struct gbuild *b;
    const struct gbound *lo, *hi; /* of magnitudes; hi may be unset */
    uint32_t to, multiple, n_fraction;
    unsigned length;
    uint32_t *node; /* [DIGITS_MAX + 1][2][2][multiple] */
};

static uint32_t *cell(const struct range *r, unsigned at, bool low, bool high, uint32_t rest)
{
    return &r->node[((at * 2u + low) * 2u + high) * r->multiple + rest];
}

static unsigned whole_digit(const struct gdecimal *d, unsigned at)
{
    return at < d->n_whole ? (unsigned)(d->whole[at] - '0') : 0;
}
static unsigned fraction_digit(const struct gdecimal *d, unsigned at)
{
    return at < d->n_fraction ? (unsigned)(d->fraction[at] - '0') : 0;
}

/* May the number end here, `at` digits behind the point? Where it has followed a bound all along, it equals it or stops short of it. */
static bool may_end(const struct range *r, unsigned at, bool low, bool high)
{
    if (low && (at < r->lo->at.n_fraction || r->lo->exclusive))
        return false;
    return !high || at < r->hi->at.n_fraction || !r->hi->exclusive;
}

static void draw_fraction(struct range *r, uint32_t from, bool low, bool high)
{
    uint32_t now[2][2] = {{0}}, next[2][2] = {{0}};
    bool live[2][2] = {{false}}, more[2][2];
    now[low][high] = gb_z(r->b, from, ".");
    live[low][high] = true;
    for (unsigned at = 0; at < r->n_fraction && r->b->rc == 0; at++) {
        memset(more, 0, sizeof more);
        for (int s = 0; s < 4; s++) {
            bool l = s >> 1, h = s & 1;
            if (!live[l][h])
                continue;
            unsigned least = l ? fraction_digit(&r->lo->at, at) : 0, most = h ? fraction_digit(&r->hi->at, at) : 9;
            for (unsigned d = least; d <= most; d++) {
                bool nl = l && d == least, nh = h && d == most;
                if (!more[nl][nh]) {
                    more[nl][nh] = true;
                    next[nl][nh] = gb_node(r->b);
                    if (may_end(r, at + 1, nl, nh))
                        gb_eps(r->b, next[nl][nh], r->to);
                }
                gb_byte(r->b, now[l][h], (uint8_t)('0' + d), (uint8_t)('0' + d), next[nl][nh]);
            }
        }
        memcpy(now, next, sizeof now);
        memcpy(live, more, sizeof live);
    }
}

/* The node of a state, with all that follows it drawn when it is new. Recursion is as deep as there are digits. */
static uint32_t draw_whole(struct range *r, unsigned at, bool low, bool high, uint32_t rest)
{
    uint32_t *known = cell(r, at, low, high, rest);
    if (*known != G_NONE || r->b->rc < 0)
        return *known;
    uint32_t node = *known = gb_node(r->b);
    if (at == r->length) {
        if (rest == 0 && may_end(r, 0, low, high))
            gb_eps(r->b, node, r->to);
        if (r->n_fraction)
            draw_fraction(r, node, low, high);
        return node;
    }
    unsigned least = low ? whole_digit(&r->lo->at, at) : 0, most = high ? whole_digit(&r->hi->at, at) : 9;
    unsigned first = at == 0 && r->length > 1 ? MAX_OF(least, 1u) : least;
    for (unsigned d = first; d <= most && r->b->rc == 0; d++) {
        uint32_t next = draw_whole(r, at + 1, low && d == least, high && d == most, (rest * 10 + d) % r->multiple);
        gb_byte(r->b, node, (uint8_t)('0' + d), (uint8_t)('0' + d), next);
    }
    return node;
}

static void draw_magnitudes(struct gbuild *b, uint32_t from, const struct gbound *lo, const struct gbound *hi,
                            uint32_t n_fraction, uint32_t multiple, uint32_t to)
{
    struct range r = {.b = b, .lo = lo, .hi = hi, .to = to, .multiple = multiple, .n_fraction = n_fraction};
    unsigned shortest = MAX_OF(lo->at.n_whole, 1u), longest = hi->set ? MAX_OF(hi->at.n_whole, 1u) : DIGITS_MAX;
    size_t cells = (size_t)(DIGITS_MAX + 1) * 4 * multiple;
    if (hi->set && gdecimal_compare(&lo->at, &hi->at) > 0)
        return;
    r.node = arena_array(&b->arena, cells, sizeof *r.node);
    if (!r.node) {
        gb_fail(b, STATUS_NOMEM, "no memory to compile the grammar");
        return;
    }
    for (r.length = shortest; r.length <= longest && b->rc == 0; r.length++) {
        memset(r.node, 0xff, cells * sizeof *r.node);
        gb_eps(b, from, draw_whole(&r, 0, r.length == shortest, hi->set && r.length == longest, 0));
    }
}

bool gnumber_multiple_ok(uint32_t multiple)
{
    return multiple >= 1 && multiple <= MULTIPLE_MAX;
}

void gnumber_range(struct gbuild *b, uint32_t from, const struct gbound *lo, const struct gbound *hi, uint32_t n_fraction,
                   uint32_t multiple, uint32_t to)
{
    static const struct gbound zero = {.set = true}, above_zero = {.set = true, .exclusive = true};
    if (!hi->set || !hi->at.negative) {
        bool from_zero = !lo->set || lo->at.negative;
        draw_magnitudes(b, from, from_zero ? &zero : lo, hi, n_fraction, multiple, to);
    }
    if (!lo->set || lo->at.negative) {
        struct gbound least = hi->set && hi->at.negative ? *hi : above_zero, most = *lo;
        least.at.negative = most.at.negative = false;
        draw_magnitudes(b, gb_z(b, from, "-"), &least, &most, n_fraction, multiple, to);
    }
}
