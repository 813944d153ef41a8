/* grammar_regex.c: regular expressions, of those that ECMA-262 (with the u flag), PCRE and Python read alike: literals, ., classes, \d \w \s and their
 * negations, groups (plain, (?: and named), |, quantifiers * + ? {m} {m,} {m,n} (lazy ones are the same set of texts), ^ and $ at the two ends of
 * an outermost alternative. What looks around or back (assertions, \b, back references), flags, \p{…} and unknown escapes are refused by name.
 *
 * As a JSON Schema pattern it is searched for: an alternative that is not anchored may have anything before or behind it. */
#include "base/size.h"
#include "base/status.h"
#include "text/grammar_priv.h"

struct regex {
    struct gbuild *b;
    struct gread r;
    bool search;
    bool at_start, anchored_end; /* of an outermost alternative: nothing read yet; $ was read */
};

static void fail(struct regex *x, size_t at, const char *what)
{
    struct str near = {x->r.s.p + at, MIN_OF(x->r.s.n - at, (size_t)20)};
    gb_fail(x->b, STATUS_INVALID, "the regular expression at byte %zu (%.*s): %s", at, STR_ARG(near), what);
}

/* ---- sets ---- */

static const struct grange digit[] = {{'0', '9'}};
static const struct grange word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const struct grange space[] = {{9, 13},          {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
                                      {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
static const struct grange line_end[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

static void add_all(struct regex *x, struct gset *s, const struct grange *v, size_t n, bool negate)
{
    struct gset own = {0};
    for (size_t i = 0; i < n; i++)
        gset_add(x->b, &own, v[i].lo, v[i].hi);
    if (negate)
        gset_negate(x->b, &own);
    for (size_t i = 0; i < own.n; i++)
        gset_add(x->b, s, own.v[i].lo, own.v[i].hi);
    gset_release(&own);
}

/* \d and its like into `s`. */
static bool class_escape(struct regex *x, int c, struct gset *s)
{
    switch (c) {
    case 'd':
    case 'D':
        add_all(x, s, digit, COUNT_OF(digit), c == 'D');
        return true;
    case 'w':
    case 'W':
        add_all(x, s, word, COUNT_OF(word), c == 'W');
        return true;
    case 's':
    case 'S':
        add_all(x, s, space, COUNT_OF(space), c == 'S');
        return true;
    default:
        return false;
    }
}

/* Behind \u: HHHH, a pair of surrogates, or {H…}. */
static bool unicode_escape(struct regex *x, uint32_t *code)
{
    uint32_t low;
    if (gr_take(&x->r, '{')) {
        unsigned n = 0;
        for (*code = 0; n < 6 && gr_hex(&x->r, 1, &low); n++)
            *code = *code << 4 | low;
        return n && gr_take(&x->r, '}');
    }
    if (!gr_hex(&x->r, 4, code))
        return false;
    if (*code < 0xd800 || *code > 0xdbff)
        return true;
    if (!gr_take(&x->r, '\\') || !gr_take(&x->r, 'u') || !gr_hex(&x->r, 4, &low) || low < 0xdc00 || low > 0xdfff)
        return false;
    *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    return true;
}

/* Behind a backslash: one character. */
static bool char_escape(struct regex *x, uint32_t *code)
{
    static const char from[] = "tnvfr", to[] = "\t\n\v\f\r", itself[] = "^$\\.*+?()[]{}|/-";
    size_t at = x->r.at - 1;
    int c = gr_peek(&x->r);
    const char *p = c > 0 ? strchr(from, c) : NULL;
    x->r.at += c >= 0;
    if (p) {
        *code = (unsigned char)to[p - from];
    } else if (c > 0 && strchr(itself, c)) {
        *code = (uint32_t)c;
    } else if (c == '0' && !(gr_peek(&x->r) >= '0' && gr_peek(&x->r) <= '9')) {
        *code = 0;
    } else if (!((c == 'x' && gr_hex(&x->r, 2, code)) || (c == 'u' && unicode_escape(x, code))) || *code > G_CODE_MAX ||
               (*code >= 0xd800 && *code <= 0xdfff)) {
        fail(x, at,
             c == 'b' || c == 'B'   ? "word boundaries are not supported"
             : c >= '1' && c <= '9' ? "back references are not supported"
             : c == 'p' || c == 'P' ? "Unicode properties are not supported"
             : c < 0                ? "a backslash at the end"
                                    : "unknown or malformed escape");
        return false;
    }
    return true;
}

/* One member of a class: a character, or a set such as \d (*is_set; added to `s`). */
static bool member(struct regex *x, struct gset *s, uint32_t *code, bool *is_set)
{
    size_t at = x->r.at;
    *is_set = false;
    if (gr_take(&x->r, '\\')) {
        if (gr_take(&x->r, 'b')) { /* inside a class: backspace */
            *code = '\b';
            return true;
        }
        if (gr_peek(&x->r) >= 0 && class_escape(x, gr_peek(&x->r), s)) {
            x->r.at++;
            *is_set = true;
            return true;
        }
        return char_escape(x, code);
    }
    if (gr_peek(&x->r) == '[' && x->r.at + 1 < x->r.s.n && strchr(":.=", x->r.s.p[x->r.at + 1])) {
        fail(x, at, "POSIX classes are not supported");
        return false;
    }
    if (gr_code(&x->r, code))
        return true;
    fail(x, at, "a class without its ]");
    return false;
}

static void class(struct regex *x, struct gset *s)
{
    size_t begin = x->r.at - 1;
    bool negate = gr_take(&x->r, '^'), set_lo, set_hi;
    uint32_t lo, hi;
    while (x->b->rc == 0 && !gr_take(&x->r, ']')) {
        size_t at = x->r.at;
        if (gr_peek(&x->r) < 0) {
            fail(x, begin, "a class without its ]");
            return;
        }
        if (!member(x, s, &lo, &set_lo))
            return;
        hi = lo;
        bool range = gr_peek(&x->r) == '-' && x->r.at + 1 < x->r.s.n && x->r.s.p[x->r.at + 1] != ']';
        if (range) {
            x->r.at++;
            if (!member(x, s, &hi, &set_hi))
                return;
            if (set_lo || set_hi || hi < lo)
                fail(x, at, "a range must go from a lower to a higher character");
        }
        if (!set_lo)
            gset_add(x->b, s, lo, hi);
    }
    if (negate)
        gset_negate(x->b, s);
}

static void put_set(struct regex *x, struct gexpr *e, struct gset *s)
{
    uint32_t from, to;
    gx_item(e, &from, &to);
    gset_normalise(s);
    if (!s->n)
        gb_fail(x->b, STATUS_INVALID, "the regular expression at byte %zu: a class that no character is in", x->r.at);
    gb_set(x->b, from, s, to);
    gset_release(s);
}

static void put_code(struct regex *x, struct gexpr *e, uint32_t code)
{
    uint32_t from, to;
    gx_item(e, &from, &to);
    gb_eps(x->b, gb_code(x->b, from, code), to);
}

/* ---- the outermost alternatives ---- */

static void anything(struct regex *x, struct gexpr *e)
{
    struct gset all = {0};
    gset_add(x->b, &all, 0, G_CODE_MAX);
    put_set(x, e, &all);
    gx_quantify(e, 0, G_UNBOUNDED);
}

static void begin_alternative(struct regex *x, struct gexpr *e)
{
    bool anchored = gr_take(&x->r, '^');
    while (anchored && gr_take(&x->r, '^'))
        ;
    x->anchored_end = false;
    if (x->search && !anchored)
        anything(x, e);
    x->at_start = true; /* a quantifier can't take hold of what was put in */
}

static void end_alternative(struct regex *x, struct gexpr *e)
{
    if (x->search && !x->anchored_end)
        anything(x, e);
}

/* $ must be the last of an outermost alternative. */
static void anchor(struct regex *x, struct gexpr *e, int c)
{
    size_t at = x->r.at++;
    int next = gr_peek(&x->r);
    if (c == '$' && e->depth == 0 && (next < 0 || next == '|' || next == '$'))
        x->anchored_end = true;
    else
        fail(x, at, "^ and $ are supported only at the ends of an outermost alternative");
}

/* ---- items ---- */

static void group(struct regex *x, struct gexpr *e)
{
    size_t at = x->r.at - 1;
    if (gr_take(&x->r, '?')) {
        bool named = gr_take(&x->r, 'P');
        if (!named && gr_take(&x->r, ':')) {
            ; /* a group without a number */
        } else if (gr_take(&x->r, '<') && gr_peek(&x->r) != '=' && gr_peek(&x->r) != '!') {
            while (gr_peek(&x->r) >= 0 && gr_peek(&x->r) != '>' && gr_peek(&x->r) != ')')
                x->r.at++;
            if (!gr_take(&x->r, '>'))
                fail(x, at, "a group's name without its >");
        } else {
            fail(x, at, "of the groups with (? only (?: and named ones are supported: no lookaround, flags or conditions");
        }
    }
    gx_open(e);
}

static bool braces(struct regex *x, uint32_t *min, uint32_t *max)
{
    bool ok = gr_number(&x->r, min);
    *max = *min;
    if (ok && gr_take(&x->r, ',')) {
        if (!gr_number(&x->r, max))
            *max = G_UNBOUNDED;
    }
    return ok && *max >= *min && gr_take(&x->r, '}');
}

static void quantifier(struct regex *x, struct gexpr *e, int c)
{
    size_t at = x->r.at++;
    uint32_t min = c == '+', max = c == '?' ? 1 : G_UNBOUNDED;
    if (c == '{' && !braces(x, &min, &max)) {
        fail(x, at, "expected {m}, {m,} or {m,n} with m <= n; a brace that is meant as itself is written \\{");
        return;
    }
    if (!gx_has_item(e) || x->at_start) {
        fail(x, at, "nothing to repeat");
        return;
    }
    gx_quantify(e, min, max);
    gr_take(&x->r, '?'); /* lazy: the same texts */
    int next = gr_peek(&x->r);
    if (next == '*' || next == '+' || next == '?' || next == '{')
        fail(x, x->r.at, "a quantifier on a quantifier (possessive ones are not supported)");
}

static void item(struct regex *x, struct gexpr *e)
{
    struct gset s = {0};
    uint32_t code;
    size_t at = x->r.at;
    if (gr_take(&x->r, '(')) {
        group(x, e);
    } else if (gr_take(&x->r, '[')) {
        class(x, &s);
        put_set(x, e, &s);
    } else if (gr_take(&x->r, '.')) {
        add_all(x, &s, line_end, COUNT_OF(line_end), true);
        put_set(x, e, &s);
    } else if (gr_take(&x->r, '\\')) {
        if (gr_peek(&x->r) >= 0 && class_escape(x, gr_peek(&x->r), &s)) {
            x->r.at++;
            put_set(x, e, &s);
        } else if (char_escape(x, &code)) {
            put_code(x, e, code);
        }
    } else if (gr_code(&x->r, &code)) {
        put_code(x, e, code);
    } else {
        fail(x, at, "not UTF-8");
    }
    x->at_start = false;
    gset_release(&s);
}

static void step(struct regex *x, struct gexpr *e)
{
    int c = gr_peek(&x->r);
    if (c == '|') {
        x->r.at++;
        if (e->depth == 0)
            end_alternative(x, e);
        gx_alternative(e);
        if (e->depth == 0)
            begin_alternative(x, e);
    } else if (c == ')') {
        if (e->depth == 0) {
            fail(x, x->r.at, "a ) without its (");
            return;
        }
        x->r.at++;
        gx_close(e);
    } else if (c == '^' || c == '$') {
        anchor(x, e, c);
    } else if (c == '*' || c == '+' || c == '?' || c == '{') {
        quantifier(x, e, c);
    } else {
        item(x, e);
    }
}

uint32_t grammar__regex(struct gbuild *b, struct str source, bool search, struct gspan *span)
{
    struct regex x = {.b = b, .r = {source, 0}, .search = search};
    struct gexpr e;
    uint32_t from, to;
    if (!gx_begin(&e, b))
        return 0;
    begin_alternative(&x, &e);
    while (b->rc == 0 && gr_peek(&x.r) >= 0)
        step(&x, &e);
    if (b->rc == 0 && e.depth)
        fail(&x, source.n, "a ( without its )");
    end_alternative(&x, &e);
    if (b->rc < 0)
        return 0;
    struct gspan own = gx_end(&e, &from, &to);
    if (span)
        *span = own;
    return gb_rule_of(b, STR("the regular expression"), from, to);
}
