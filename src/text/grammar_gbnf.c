/* grammar_gbnf.c: grammars as llama.cpp's GBNF writes them.
 *
 *     root  ::= "a" item* ( "x" | [^0-9\n] ){2,5}   # comment
 *     item  ::= . "\x41" "\u00e9" "\U0001F600"
 *
 * A rule ends with its line, except inside parentheses and behind "|" and "::=". "." is any character. Token references (<...>) are refused:
 * a grammar is about text. Names may be used before they are defined; one that never is, is an error, and so is one defined twice. */
#include "base/map.h"
#include "base/status.h"
#include "text/grammar_priv.h"

struct symbol {
    struct str name;
    uint32_t rule;
    size_t used_at; /* where it was first used */
    bool defined;
};

struct gbnf {
    struct gbuild *b;
    struct gread r;
    struct map symbols;
};

static void fail(struct gbnf *g, size_t at, const char *what)
{
    size_t line = 1;
    for (size_t i = 0; i < at && i < g->r.s.n; i++)
        line += g->r.s.p[i] == '\n';
    struct str near = {g->r.s.p + at, g->r.s.n - at < 20 ? g->r.s.n - at : 20};
    if (near.n)
        gb_fail(g->b, STATUS_INVALID, "line %zu of the grammar: %s, but found: %.*s", line, what, STR_ARG(near));
    else
        gb_fail(g->b, STATUS_INVALID, "line %zu of the grammar: %s, but the text ends", line, what);
}

static void skip_space(struct gbnf *g, bool newlines)
{
    for (int c; (c = gr_peek(&g->r)) >= 0; g->r.at++) {
        if (c == '#')
            while (gr_peek(&g->r) >= 0 && gr_peek(&g->r) != '\n' && gr_peek(&g->r) != '\r')
                g->r.at++;
        c = gr_peek(&g->r);
        if (c != ' ' && c != '\t' && !(newlines && (c == '\n' || c == '\r')))
            return;
    }
}

static bool is_word(int c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '-' || c == '_';
}

static struct str name(struct gbnf *g)
{
    size_t from = g->r.at;
    while (gr_peek(&g->r) >= 0 && is_word(gr_peek(&g->r)))
        g->r.at++;
    return (struct str){g->r.s.p + from, g->r.at - from};
}

static struct symbol *symbol(struct gbnf *g, struct str key, size_t at)
{
    struct symbol *s = map_get(&g->symbols, key);
    if (s || !gb_spend(g->b, 1))
        return s;
    s = ARENA_NEW(&g->b->arena, struct symbol);
    if (!s || map_put(&g->symbols, key, s) < 0) {
        gb_fail(g->b, STATUS_NOMEM, "no memory to compile the grammar");
        return NULL;
    }
    *s = (struct symbol){key, gb_rule(g->b, key), at, false};
    return s;
}

static bool escape(struct gbnf *g, uint32_t *code)
{
    static const char from[] = "trn\\\"[]", to[] = "\t\r\n\\\"[]";
    size_t at = g->r.at - 1;
    int c = gr_peek(&g->r);
    const char *p = c > 0 ? strchr(from, c) : NULL;
    g->r.at++;
    if (p) {
        *code = (unsigned char)to[p - from];
        return true;
    }
    if (((c == 'x' && gr_hex(&g->r, 2, code)) || (c == 'u' && gr_hex(&g->r, 4, code)) ||
         (c == 'U' && gr_hex(&g->r, 8, code))) &&
        *code <= G_CODE_MAX && (*code < 0xd800 || *code > 0xdfff))
        return true;
    fail(g, at, "expected an escape: \\t \\r \\n \\\\ \\\" \\[ \\] \\xHH \\uHHHH \\UHHHHHHHH of a character");
    return false;
}

static bool character(struct gbnf *g, uint32_t *code)
{
    if (gr_take(&g->r, '\\'))
        return escape(g, code);
    if (gr_code(&g->r, code))
        return true;
    fail(g, g->r.at, "expected a character or the end of the literal or class");
    return false;
}

static void literal(struct gbnf *g, struct gexpr *x)
{
    uint32_t from, to, code;
    gx_item(x, &from, &to);
    while (!gr_take(&g->r, '"')) {
        if (!character(g, &code))
            return;
        from = gb_code(g->b, from, code);
    }
    gb_eps(g->b, from, to);
}

static void class(struct gbnf *g, struct gexpr *x)
{
    struct gset set = {0};
    uint32_t from, to, lo, hi;
    bool negate = gr_take(&g->r, '^'), ok = true;
    gx_item(x, &from, &to);
    while (ok && !gr_take(&g->r, ']')) {
        size_t at = g->r.at;
        ok = character(g, &lo);
        hi = lo;
        if (ok && gr_peek(&g->r) == '-' && g->r.at + 1 < g->r.s.n && g->r.s.p[g->r.at + 1] != ']') {
            g->r.at++;
            ok = character(g, &hi);
            if (ok && hi < lo)
                fail(g, at, "expected a range from low to high");
        }
        gset_add(g->b, &set, lo, hi);
        ok = ok && g->b->rc == 0;
    }
    if (negate)
        gset_negate(g->b, &set);
    else
        gset_normalise(&set);
    gb_set(g->b, from, &set, to);
    gset_release(&set);
}

static void any(struct gbnf *g, struct gexpr *x)
{
    struct grange all = {0, G_CODE_MAX};
    struct gset set = {&all, 1, 1};
    uint32_t from, to;
    gx_item(x, &from, &to);
    gb_set(g->b, from, &set, to);
}

static void quantifier(struct gbnf *g, struct gexpr *x, int c)
{
    size_t at = g->r.at++;
    uint32_t min = c == '+', max = c == '?' ? 1 : G_UNBOUNDED;
    if (c == '{') {
        skip_space(g, true);
        bool ok = gr_number(&g->r, &min);
        max = min;
        skip_space(g, true);
        if (ok && gr_take(&g->r, ',')) {
            skip_space(g, true);
            max = G_UNBOUNDED;
            if (gr_number(&g->r, &max))
                ok = max >= min;
            else
                max = G_UNBOUNDED;
            skip_space(g, true);
        }
        if (!ok || !gr_take(&g->r, '}')) {
            fail(g, at, "expected {m}, {m,} or {m,n} with m <= n");
            return;
        }
    }
    if (!gx_has_item(x))
        fail(g, at, "expected something to repeat before the quantifier");
    else
        gx_quantify(x, min, max);
}

static void reference(struct gbnf *g, struct gexpr *x)
{
    size_t at = g->r.at;
    struct symbol *s = symbol(g, name(g), at);
    uint32_t from, to;
    gx_item(x, &from, &to);
    if (s)
        gb_call(g->b, from, s->rule, to);
}

/* One item, quantifier or parenthesis. False: the alternatives end here. */
static bool item(struct gbnf *g, struct gexpr *x)
{
    int c = gr_peek(&g->r);
    if (c == '*' || c == '+' || c == '?' || c == '{') {
        quantifier(g, x, c);
    } else if (c >= 0 && is_word(c)) {
        reference(g, x);
    } else if (gr_take(&g->r, '"')) {
        literal(g, x);
    } else if (gr_take(&g->r, '[')) {
        class(g, x);
    } else if (gr_take(&g->r, '.')) {
        any(g, x);
    } else if (gr_take(&g->r, '(')) {
        gx_open(x);
    } else if (c == ')' && x->depth) {
        g->r.at++;
        gx_close(x);
    } else if (gr_take(&g->r, '|')) {
        gx_alternative(x);
        skip_space(g, true);
    } else {
        return false;
    }
    skip_space(g, x->depth > 0);
    return g->b->rc == 0;
}

static void rule(struct gbnf *g)
{
    size_t at = g->r.at;
    struct gexpr x;
    uint32_t from, to;
    struct str key = name(g);
    if (!key.n) {
        fail(g, at, "expected the name of a rule");
        return;
    }
    struct symbol *s = symbol(g, key, at);
    skip_space(g, false);
    if (!s || !gr_take(&g->r, ':') || !gr_take(&g->r, ':') || !gr_take(&g->r, '=')) {
        fail(g, g->r.at, "expected ::= behind the name of a rule");
        return;
    }
    if (s->defined)
        fail(g, at, "expected a name that has not been defined before");
    s->defined = true;
    skip_space(g, true);
    if (!gx_begin(&x, g->b))
        return;
    while (item(g, &x))
        ;
    if (g->b->rc == 0 && x.depth)
        fail(g, g->r.at, "expected ) or more of the group");
    gx_end(&x, &from, &to);
    struct grule r = g->b->rc == 0 ? g->b->rules[s->rule] : (struct grule){0};
    gb_eps(g->b, r.start, from);
    gb_eps(g->b, to, r.end);
    int c = gr_peek(&g->r);
    if (c >= 0 && c != '\n' && c != '\r')
        fail(g, g->r.at, c == '<' ? "expected text: tokens can't be named" : "expected an item, | or the end of the rule");
}

static void check_defined(struct gbnf *g)
{
    size_t at = 0;
    struct str key;
    void *v;
    while (g->b->rc == 0 && map_next(&g->symbols, &at, &key, &v)) {
        const struct symbol *s = v;
        if (!s->defined)
            fail(g, s->used_at, "expected the name of a rule that is defined somewhere");
    }
}

uint32_t grammar__gbnf(struct gbuild *b, struct str source)
{
    struct gbnf g = {.b = b, .r = {source, 0}};
    map_init(&g.symbols, (uintptr_t)b * 0x9e3779b97f4a7c15u); /* an address: nobody outside can foresee collisions */
    skip_space(&g, true);
    while (b->rc == 0 && gr_peek(&g.r) >= 0) {
        rule(&g);
        skip_space(&g, true);
    }
    check_defined(&g);
    struct symbol *root = map_get(&g.symbols, STR("root"));
    if (!root)
        gb_fail(b, STATUS_INVALID, "the grammar has no rule named root");
    map_release(&g.symbols);
    return b->rc == 0 ? root->rule : 0;
}
