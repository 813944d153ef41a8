/* grammar_build.c: the graph that compilers draw, one node and edge at a time, within limits.
 *
 * A compiler that meets an error records it once (gb_fail) and goes on or returns; everything after that is harmless, so that the code that
 * draws need not check each call. Sizes are bounded by max_rules: NODES_PER_RULE times as many nodes, and edges to match. */
#include <stdlib.h>

#include "base/size.h"
#include "base/status.h"
#include "text/grammar_priv.h"

#define NODES_PER_RULE 25u
#define EDGES_PER_NODE 2u
#define NS_PER_STEP    50u
#define ARENA_BYTES    ((size_t)64 << 20)

void gb_init(struct gbuild *b, const struct grammar_limits *l, struct error *err)
{
    uint64_t ns = l && l->max_compile_ns ? l->max_compile_ns : 2000000000u;
    *b = (struct gbuild){.err = err};
    b->max_rules = l && l->max_rules ? l->max_rules : 20000;
    b->max_rules = MIN_OF(b->max_rules, 1u << 20);
    b->max_depth = l && l->max_depth ? l->max_depth : 64;
    b->max_nodes = b->max_rules * NODES_PER_RULE;
    b->steps_left = ns / NS_PER_STEP;
    arena_init(&b->arena, 4096, ARENA_BYTES);
}

void gb_release(struct gbuild *b)
{
    free(b->nodes);
    free(b->edges);
    free(b->rules);
    arena_release(&b->arena);
    b->nodes = NULL, b->edges = NULL, b->rules = NULL;
}

int gb_fail(struct gbuild *b, int code, const char *fmt, ...)
{
    va_list ap;
    if (b->rc < 0)
        return b->rc;
    va_start(ap, fmt);
    b->rc = error_vset(b->err, code, fmt, ap);
    va_end(ap);
    return b->rc;
}

bool gb_spend(struct gbuild *b, uint64_t steps)
{
    if (b->rc == 0 && steps > b->steps_left)
        gb_fail(b, STATUS_EXHAUSTED, "the grammar takes too long to compile: simplify it");
    if (b->rc < 0)
        return false;
    b->steps_left -= steps;
    return true;
}

/* Room for one more of `size` bytes each. */
static void *grow(struct gbuild *b, void *v, uint32_t n, uint32_t *cap, size_t size)
{
    if (n < *cap)
        return v;
    uint32_t want = *cap ? *cap * 2 : 64;
    void *to = realloc(v, (size_t)want * size);
    if (!to) {
        gb_fail(b, STATUS_NOMEM, "no memory to compile the grammar");
        return v;
    }
    *cap = want;
    return to;
}

uint32_t gb_node(struct gbuild *b)
{
    if (!gb_spend(b, 1))
        return 0;
    if (b->n_nodes >= b->max_nodes) {
        gb_fail(b, STATUS_EXHAUSTED, "the grammar is too large: more than %u states after expansion", b->max_nodes);
        return 0;
    }
    b->nodes = grow(b, b->nodes, b->n_nodes, &b->cap_nodes, sizeof *b->nodes);
    if (b->rc < 0)
        return 0;
    b->nodes[b->n_nodes] = (struct gb_node){G_NONE, G_NONE};
    return b->n_nodes++;
}

static void add_edge(struct gbuild *b, uint32_t from, struct gedge e)
{
    if (!gb_spend(b, 1))
        return;
    if (b->n_edges / EDGES_PER_NODE >= b->max_nodes) {
        gb_fail(b, STATUS_EXHAUSTED, "the grammar is too large: %u transitions after expansion", b->n_edges);
        return;
    }
    b->edges = grow(b, b->edges, b->n_edges, &b->cap_edges, sizeof *b->edges);
    if (b->rc < 0)
        return;
    uint32_t at = b->n_edges++;
    b->edges[at] = (struct gb_edge){e, G_NONE};
    if (b->nodes[from].last == G_NONE)
        b->nodes[from].first = at;
    else
        b->edges[b->nodes[from].last].next = at;
    b->nodes[from].last = at;
}

void gb_byte(struct gbuild *b, uint32_t from, uint8_t lo, uint8_t hi, uint32_t to)
{
    add_edge(b, from, (struct gedge){.kind = G_BYTE, .lo = lo, .hi = hi, .to = to});
}

void gb_eps(struct gbuild *b, uint32_t from, uint32_t to)
{
    add_edge(b, from, (struct gedge){.kind = G_EPS, .to = to});
}

void gb_call(struct gbuild *b, uint32_t from, uint32_t rule, uint32_t to)
{
    add_edge(b, from, (struct gedge){.kind = G_CALL, .rule = rule, .to = to});
}

void gb_repeat(struct gbuild *b, uint32_t from, uint32_t rule, uint32_t min, uint32_t max, uint32_t to)
{
    if (max == 0) {
        gb_eps(b, from, to);
    } else if (min == 1 && max == 1) {
        gb_call(b, from, rule, to);
    } else if (max == G_UNBOUNDED) { /* the first ones counted, then a loop */
        uint32_t loop = gb_node(b);
        gb_repeat(b, from, rule, min, min, loop);
        gb_call(b, loop, rule, loop);
        gb_eps(b, loop, to);
    } else {
        add_edge(b, from, (struct gedge){.kind = G_REPEAT, .rule = rule, .min = min, .max = max, .to = to});
    }
}

uint32_t gb_rule_of(struct gbuild *b, struct str name, uint32_t start, uint32_t end)
{
    if (!gb_spend(b, 1))
        return 0;
    if (b->n_rules >= b->max_rules) {
        gb_fail(b, STATUS_EXHAUSTED, "the grammar is too large: more than %u rules after expansion", b->max_rules);
        return 0;
    }
    b->rules = grow(b, b->rules, b->n_rules, &b->cap_rules, sizeof *b->rules);
    if (b->rc < 0)
        return 0;
    b->rules[b->n_rules] = (struct grule){start, end, name};
    return b->n_rules++;
}

uint32_t gb_rule(struct gbuild *b, struct str name)
{
    uint32_t start = gb_node(b), end = gb_node(b);
    return gb_rule_of(b, name, start, end);
}

uint32_t gb_bytes(struct gbuild *b, uint32_t from, struct str s)
{
    for (size_t i = 0; i < s.n && b->rc == 0; i++) {
        uint32_t to = gb_node(b);
        gb_byte(b, from, (uint8_t)s.p[i], (uint8_t)s.p[i], to);
        from = to;
    }
    return from;
}

uint32_t gb_z(struct gbuild *b, uint32_t from, const char *z)
{
    return gb_bytes(b, from, str_of(z));
}

/* ---- tries ---- */

static int by_bytes(const void *x, const void *y)
{
    const struct str *a = x, *b = y;
    int c = memcmp(a->p ? a->p : "", b->p ? b->p : "", MIN_OF(a->n, b->n));
    return c ? c : a->n < b->n ? -1 : a->n > b->n;
}

static size_t common(struct str a, struct str b)
{
    size_t n = 0;
    while (n < a.n && n < b.n && a.p[n] == b.p[n])
        n++;
    return n;
}

/* Sorted strings share the path of their common start with the one before; `path` holds the nodes of the last one. */
void gb_any_of(struct gbuild *b, uint32_t from, struct str *s, size_t n, uint32_t to)
{
    size_t longest = 0;
    for (size_t i = 0; i < n; i++)
        longest = MAX_OF(longest, s[i].n);
    uint32_t *path = arena_array(&b->arena, longest + 1, sizeof *path);
    if (!path) {
        gb_fail(b, STATUS_NOMEM, "no memory to compile the grammar");
        return;
    }
    qsort(s, n, sizeof *s, by_bytes);
    path[0] = from;
    for (size_t i = 0; i < n && b->rc == 0; i++) {
        size_t at = i ? common(s[i - 1], s[i]) : 0;
        if (i && at == s[i].n && at == s[i - 1].n)
            continue; /* the same once more */
        for (; at < s[i].n; at++) {
            path[at + 1] = gb_node(b);
            gb_byte(b, path[at], (uint8_t)s[i].p[at], (uint8_t)s[i].p[at], path[at + 1]);
        }
        gb_eps(b, path[s[i].n], to);
    }
}
