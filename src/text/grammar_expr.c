/* grammar_expr.c: what regular expressions and GBNF have in common: alternatives of sequences of quantified items, in groups.
 *
 * An item stays pending until the next one, so that a quantifier can still wrap it. Every item has a start node of its own: a loop back to it
 * never reaches what stands before. Counted repetitions become rules (grammar_priv.h: REPEAT), so {1,1000000000} costs one edge. */
#include "base/size.h"
#include "base/status.h"
#include "text/grammar_priv.h"

static struct gx_group *top(const struct gexpr *x)
{
    return &x->v[x->depth];
}

static void fresh(struct gexpr *x)
{
    uint32_t start = gb_node(x->b), end = gb_node(x->b);
    *top(x) = (struct gx_group){.start = start, .end = end, .at = start, .all = {G_UNBOUNDED, 0}};
}

bool gx_begin(struct gexpr *x, struct gbuild *b)
{
    *x = (struct gexpr){.b = b};
    x->v = arena_array(&b->arena, (size_t)b->max_depth + 1, sizeof *x->v);
    if (!x->v) {
        gb_fail(b, STATUS_NOMEM, "no memory to compile the grammar");
        return false;
    }
    fresh(x);
    return b->rc == 0;
}

static uint32_t saturate(uint64_t n)
{
    return (uint32_t)MIN_OF(n, (uint64_t)G_UNBOUNDED);
}

static uint32_t times(uint32_t a, uint32_t b)
{
    return a == 0 || b == 0 ? 0 : a == G_UNBOUNDED || b == G_UNBOUNDED ? G_UNBOUNDED : saturate((uint64_t)a * b);
}

static void join(struct gexpr *x)
{
    struct gx_group *g = top(x);
    if (!g->pending)
        return;
    gb_eps(x->b, g->at, g->from);
    g->at = g->to;
    g->pending = false;
    g->joined.min = saturate((uint64_t)g->joined.min + g->item.min);
    g->joined.max = saturate((uint64_t)g->joined.max + g->item.max);
}

void gx_item(struct gexpr *x, uint32_t *from, uint32_t *to)
{
    struct gx_group *g = top(x);
    join(x);
    g->from = *from = gb_node(x->b);
    g->to = *to = gb_node(x->b);
    g->pending = true;
    g->item = (struct gspan){1, 1};
}

bool gx_has_item(const struct gexpr *x)
{
    return top(x)->pending;
}

void gx_quantify(struct gexpr *x, uint32_t min, uint32_t max)
{
    struct gbuild *b = x->b;
    struct gx_group *g = top(x);
    uint32_t from = gb_node(b), to = gb_node(b);
    if (max == G_UNBOUNDED && min <= 1) {
        gb_eps(b, from, g->from);
        gb_eps(b, g->to, min ? to : from);
        gb_eps(b, min ? to : from, min ? g->from : to);
    } else if (min == 0 && max == 1) {
        gb_eps(b, from, g->from);
        gb_eps(b, g->to, to);
        gb_eps(b, from, to);
    } else {
        gb_repeat(b, from, gb_rule_of(b, (struct str){0}, g->from, g->to), min, max, to);
    }
    g->from = from;
    g->to = to;
    g->item = (struct gspan){times(g->item.min, min), times(g->item.max, max)};
}

void gx_alternative(struct gexpr *x)
{
    struct gx_group *g = top(x);
    join(x);
    gb_eps(x->b, g->at, g->end);
    g->at = g->start;
    g->all = (struct gspan){MIN_OF(g->all.min, g->joined.min), MAX_OF(g->all.max, g->joined.max)};
    g->joined = (struct gspan){0, 0};
}

bool gx_open(struct gexpr *x)
{
    if (x->depth == x->b->max_depth) {
        gb_fail(x->b, STATUS_EXHAUSTED, "groups are nested more than %u deep", x->b->max_depth);
        return false;
    }
    join(x);
    x->depth++;
    fresh(x);
    return x->b->rc == 0;
}

void gx_close(struct gexpr *x)
{
    gx_alternative(x);
    struct gx_group inner = *top(x);
    x->depth--;
    struct gx_group *g = top(x);
    g->from = inner.start;
    g->to = inner.end;
    g->pending = true;
    g->item = inner.all;
}

struct gspan gx_end(struct gexpr *x, uint32_t *from, uint32_t *to)
{
    gx_alternative(x);
    *from = top(x)->start;
    *to = top(x)->end;
    return top(x)->all;
}

/* ---- reading ---- */

bool gr_code(struct gread *r, uint32_t *code)
{
    size_t n = r->at < r->s.n ? str_utf8_at(r->s, r->at) : 0;
    const unsigned char *p = (const unsigned char *)r->s.p + r->at;
    if (!n)
        return false;
    *code = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++)
        *code = *code << 6 | (p[i] & 0x3f);
    r->at += n;
    return true;
}

bool gr_hex(struct gread *r, unsigned n, uint32_t *code)
{
    *code = 0;
    for (unsigned i = 0; i < n; i++, r->at++) {
        int c = gr_peek(r), low = c | 0x20;
        if (c >= '0' && c <= '9')
            *code = *code << 4 | (uint32_t)(c - '0');
        else if (c >= 0 && low >= 'a' && low <= 'f')
            *code = *code << 4 | (uint32_t)(low - 'a' + 10);
        else
            return false;
    }
    return true;
}

bool gr_number(struct gread *r, uint32_t *n)
{
    uint64_t v = 0;
    size_t from = r->at;
    for (int c; (c = gr_peek(r)) >= '0' && c <= '9'; r->at++)
        v = MIN_OF(v * 10 + (uint64_t)(c - '0'), UINT64_C(1) << 31);
    *n = (uint32_t)v;
    return r->at > from;
}
