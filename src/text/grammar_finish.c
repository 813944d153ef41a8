/* grammar_finish.c: from the drawn graph to an automaton that can always reach its end.
 *
 * 1. How many bytes each node is from the end of its rule, by Knuth's generalisation of Dijkstra's algorithm (1977): a call costs the
 *    called rule's length plus what follows. What stays at infinity can't end and is cut off, so no walk ever gets stuck.
 * 2. Left recursion: the graph of "can be reached without consuming a byte", calls included; a strongly connected part (Tarjan 1972) with a
 *    call inside is a rule that begins with itself.
 * 3. Nodes that only lead on are skipped, edges are laid out node by node, bytes that no edge tells apart share a class.
 * All iterative: a chain may be a million nodes long. */
#include <stdlib.h>

#include "base/size.h"
#include "base/status.h"
#include "text/grammar_priv.h"

struct finish {
    struct gbuild *b;
    uint32_t *dist;            /* [n_nodes] G_NONE: cannot end */
    uint32_t *rev_first, *rev; /* edges that depend on a node, as lists by node */
    uint32_t *heap, *heap_at, n_heap;
    uint32_t *owner; /* [n_edges] the node an edge leaves from */
};

static void *array(struct gbuild *b, size_t n, size_t size)
{
    void *p = calloc(n + 1, size);
    if (!p)
        gb_fail(b, STATUS_NOMEM, "no memory to compile the grammar");
    return p;
}

/* ---- distances ---- */

static bool needs_rule(const struct gedge *e)
{
    return e->kind == G_CALL || (e->kind == G_REPEAT && e->min > 0);
}

/* Dependencies as two compressed lists: edge i under its `to`, and under the start of the rule that it has to walk through. */
static void index_edges(struct finish *f)
{
    struct gbuild *b = f->b;
    for (uint32_t n = 0; n < b->n_nodes; n++)
        for (uint32_t i = b->nodes[n].first; i != G_NONE; i = b->edges[i].next)
            f->owner[i] = n;
    for (int pass = 0; pass < 2; pass++) { /* count, then place */
        for (uint32_t i = 0; i < b->n_edges; i++) {
            const struct gedge *e = &b->edges[i].e;
            uint32_t on[2] = {e->to, needs_rule(e) ? b->rules[e->rule].start : G_NONE};
            for (int k = 0; k < 2; k++)
                if (on[k] != G_NONE && pass == 0)
                    f->rev_first[on[k]]++;
                else if (on[k] != G_NONE)
                    f->rev[--f->rev_first[on[k]]] = i;
        }
        for (uint32_t n = 1; n <= b->n_nodes && pass == 0; n++)
            f->rev_first[n] += f->rev_first[n - 1];
    }
}

static void heap_swap(struct finish *f, uint32_t i, uint32_t k)
{
    uint32_t t = f->heap[i];
    f->heap[i] = f->heap[k], f->heap[k] = t;
    f->heap_at[f->heap[i]] = i, f->heap_at[f->heap[k]] = k;
}

static void heap_up(struct finish *f, uint32_t i)
{
    for (; i && f->dist[f->heap[i]] < f->dist[f->heap[(i - 1) / 2]]; i = (i - 1) / 2)
        heap_swap(f, i, (i - 1) / 2);
}

static uint32_t heap_pop(struct finish *f)
{
    uint32_t top = f->heap[0], i = 0;
    heap_swap(f, 0, --f->n_heap);
    for (;;) {
        uint32_t least = i, l = 2 * i + 1;
        if (l < f->n_heap && f->dist[f->heap[l]] < f->dist[f->heap[least]])
            least = l;
        if (l + 1 < f->n_heap && f->dist[f->heap[l + 1]] < f->dist[f->heap[least]])
            least = l + 1;
        if (least == i)
            return top;
        heap_swap(f, i, least);
        i = least;
    }
}

static void relax(struct finish *f, uint32_t node, uint64_t dist)
{
    uint32_t d = (uint32_t)MIN_OF(dist, (uint64_t)G_FAR);
    if (d >= f->dist[node])
        return;
    if (f->dist[node] == G_NONE) {
        f->heap[f->n_heap] = node;
        f->heap_at[node] = f->n_heap++;
    }
    f->dist[node] = d;
    heap_up(f, f->heap_at[node]);
}

/* Every node enters the heap once: distances of popped nodes are final, and an edge is only relaxed when all it needs is known. Reading
 * a distance that is in the heap but not final gives an upper bound that a later relaxation lowers. */
static void measure(struct finish *f)
{
    struct gbuild *b = f->b;
    for (uint32_t r = 0; r < b->n_rules; r++)
        relax(f, b->rules[r].end, 0);
    while (f->n_heap) {
        uint32_t n = heap_pop(f);
        for (uint32_t k = f->rev_first[n]; k < f->rev_first[n + 1]; k++) {
            const struct gedge *e = &b->edges[f->rev[k]].e;
            uint64_t d = f->dist[e->to];
            if (d == G_NONE)
                continue;
            if (needs_rule(e)) {
                uint64_t body = f->dist[b->rules[e->rule].start];
                if (body == G_NONE)
                    continue;
                d += e->kind == G_CALL ? body : body * e->min;
            }
            relax(f, f->owner[f->rev[k]], d + (e->kind == G_BYTE));
        }
    }
}

/* ---- cutting ---- */

static uint32_t rule_dist(const struct finish *f, uint32_t rule)
{
    return f->dist[f->b->rules[rule].start];
}

/* Edges to what can't end are turned into self-loops of nothing (EPS to itself), which the layout leaves out. */
static void cut(struct finish *f)
{
    struct gbuild *b = f->b;
    for (uint32_t i = 0; i < b->n_edges; i++) {
        struct gedge *e = &b->edges[i].e;
        bool calls = e->kind == G_CALL || e->kind == G_REPEAT, dead = f->dist[e->to] == G_NONE;
        if (calls && !dead && rule_dist(f, e->rule) == G_NONE) {
            if (e->kind == G_REPEAT && e->min == 0)
                *e = (struct gedge){.kind = G_EPS, .to = e->to};
            else
                dead = true;
        } else if (e->kind == G_REPEAT && !dead && rule_dist(f, e->rule) == 0) {
            e->min = 0; /* x{m,n} of what may be empty is x{0,n} */
        }
        if (dead)
            *e = (struct gedge){.kind = G_EPS, .to = f->owner[i]};
    }
}

/* ---- left recursion ---- */

/* The k-th way (k = 0: into the called rule, 1: past it) from edge `e` without a byte, or G_NONE. */
static uint32_t silent(const struct finish *f, const struct gedge *e, int k)
{
    if (e->kind == G_EPS)
        return k ? G_NONE : e->to;
    if (e->kind == G_BYTE)
        return G_NONE;
    if (k == 0)
        return f->b->rules[e->rule].start;
    return rule_dist(f, e->rule) == 0 || (e->kind == G_REPEAT && e->min == 0) ? e->to : G_NONE;
}

struct tarjan {
    uint32_t *index, *low, *part, *stack, *calls, *call_edge, *call_way;
    uint32_t n_stack, n_index, n_parts;
};

static void close_part(struct tarjan *t, uint32_t n)
{
    uint32_t m;
    if (t->low[n] != t->index[n])
        return;
    do {
        m = t->stack[--t->n_stack];
        t->part[m] = t->n_parts;
    } while (m != n);
    t->n_parts++;
}

static void open_node(const struct finish *f, struct tarjan *t, uint32_t depth, uint32_t n)
{
    t->index[n] = t->low[n] = ++t->n_index;
    t->stack[t->n_stack++] = n;
    t->calls[depth] = n;
    t->call_edge[depth] = f->b->nodes[n].first;
    t->call_way[depth] = 0;
}

/* Depth-first from `root`, with the recursion's frames in calls/call_edge/call_way. */
static void visit(const struct finish *f, struct tarjan *t, uint32_t root)
{
    uint32_t depth = 0;
    open_node(f, t, 0, root);
    for (;;) {
        uint32_t n = t->calls[depth], i = t->call_edge[depth];
        if (i == G_NONE) {
            close_part(t, n);
            if (depth == 0)
                return;
            depth--;
            t->low[t->calls[depth]] = MIN_OF(t->low[t->calls[depth]], t->low[n]);
            continue;
        }
        uint32_t to = silent(f, &f->b->edges[i].e, (int)t->call_way[depth]);
        if (++t->call_way[depth] == 2) {
            t->call_way[depth] = 0;
            t->call_edge[depth] = f->b->edges[i].next;
        }
        if (to == G_NONE)
            continue;
        if (!t->index[to])
            open_node(f, t, ++depth, to);
        else if (t->part[to] == G_NONE)
            t->low[n] = MIN_OF(t->low[n], t->index[to]);
    }
}

static void report(const struct finish *f, uint32_t rule)
{
    struct str name = f->b->rules[rule].name;
    if (name.n)
        gb_fail(f->b, STATUS_INVALID, "%.*s begins with itself (left recursion): it must read something before it comes back",
                STR_ARG(name));
    else
        gb_fail(f->b, STATUS_INVALID,
                "a group begins with itself (left recursion): it must read something before it comes back");
}

static void check_recursion(struct finish *f)
{
    struct gbuild *b = f->b;
    struct tarjan t = {0};
    size_t n = b->n_nodes;
    uint32_t *all = array(b, n * 7, sizeof *all);
    if (!all)
        return;
    t.index = all, t.low = all + n, t.part = all + 2 * n, t.stack = all + 3 * n;
    t.calls = all + 4 * n, t.call_edge = all + 5 * n, t.call_way = all + 6 * n;
    memset(t.part, 0xff, n * sizeof *t.part);
    for (uint32_t i = 0; i < n; i++)
        if (!t.index[i])
            visit(f, &t, i);
    for (uint32_t i = 0; i < b->n_edges && b->rc == 0; i++) {
        const struct gedge *e = &b->edges[i].e;
        if ((e->kind == G_CALL || e->kind == G_REPEAT) && t.part[f->owner[i]] == t.part[b->rules[e->rule].start])
            report(f, e->rule);
    }
    free(all);
}

/* ---- layout ---- */

/* The node that `n` only leads on to, if that is all it does; a long chain is followed a bit at a time. */
static uint32_t skip(const struct finish *f, const struct automaton *a, uint32_t n)
{
    for (unsigned i = 0; i < 64; i++) {
        uint32_t at = f->b->nodes[n].first;
        if (a->nodes[n].accept || at == G_NONE || f->b->edges[at].next != G_NONE || f->b->edges[at].e.kind != G_EPS ||
            f->b->edges[at].e.to == n)
            return n;
        n = f->b->edges[at].e.to;
    }
    return n;
}

static void lay_edges(struct finish *f, struct automaton *a, uint32_t n)
{
    const struct gbuild *b = f->b;
    struct gnode *node = &a->nodes[n];
    node->first = a->n_edges;
    for (int bytes = 1; bytes >= 0; bytes--)
        for (uint32_t i = b->nodes[n].first; i != G_NONE; i = b->edges[i].next) {
            struct gedge e = b->edges[i].e;
            if ((e.kind == G_BYTE) != bytes || (e.kind == G_EPS && e.to == n))
                continue;
            e.to = skip(f, a, e.to);
            a->counts |= e.kind == G_REPEAT;
            node->n_byte += (uint32_t)bytes;
            a->edges[a->n_edges++] = e;
        }
    node->n = a->n_edges - node->first;
}

static void mark_tails(struct automaton *a)
{
    for (uint32_t i = 0; i < a->n_edges; i++) {
        struct gedge *e = &a->edges[i];
        e->tail = e->kind == G_CALL && a->nodes[e->to].accept && a->nodes[e->to].n == 0;
    }
}

static void lay_classes(struct automaton *a)
{
    bool border[257] = {false};
    for (uint32_t i = 0; i < a->n_edges; i++)
        if (a->edges[i].kind == G_BYTE)
            border[a->edges[i].lo] = border[a->edges[i].hi + 1] = true;
    for (unsigned c = 0; c < 256; c++) {
        if (c == 0 || border[c])
            a->byte_of[a->n_classes++] = (uint8_t)c;
        a->class_of[c] = (uint8_t)(a->n_classes - 1);
    }
}

static void lay_out(struct finish *f, uint32_t root, struct automaton *a)
{
    struct gbuild *b = f->b;
    a->nodes = array(b, b->n_nodes, sizeof *a->nodes);
    a->edges = array(b, b->n_edges, sizeof *a->edges);
    a->rules = array(b, b->n_rules, sizeof *a->rules);
    if (b->rc < 0)
        return;
    a->n_nodes = b->n_nodes;
    a->n_rules = b->n_rules;
    a->root = root;
    for (uint32_t r = 0; r < b->n_rules; r++)
        a->nodes[b->rules[r].end].accept = true;
    for (uint32_t r = 0; r < b->n_rules; r++)
        a->rules[r] = (struct grule){skip(f, a, b->rules[r].start), b->rules[r].end, {0}};
    for (uint32_t n = 0; n < b->n_nodes; n++)
        lay_edges(f, a, n);
    mark_tails(a);
    lay_classes(a);
    a->dist = f->dist;
    f->dist = NULL;
}

static bool allocate(struct finish *f)
{
    struct gbuild *b = f->b;
    f->dist = array(b, b->n_nodes, sizeof *f->dist);
    f->rev_first = array(b, (size_t)b->n_nodes + 1, sizeof *f->rev_first);
    f->rev = array(b, (size_t)b->n_edges * 2, sizeof *f->rev);
    f->owner = array(b, b->n_edges, sizeof *f->owner);
    f->heap = array(b, b->n_nodes, sizeof *f->heap);
    f->heap_at = array(b, b->n_nodes, sizeof *f->heap_at);
    if (b->rc == 0)
        memset(f->dist, 0xff, b->n_nodes * sizeof *f->dist);
    return b->rc == 0;
}

int automaton_finish(struct gbuild *b, uint32_t root, struct automaton *out)
{
    struct finish f = {.b = b};
    *out = (struct automaton){0};
    if (b->rc == 0 && gb_spend(b, (uint64_t)b->n_nodes + b->n_edges) && allocate(&f)) {
        index_edges(&f);
        measure(&f);
        check_recursion(&f);
        if (rule_dist(&f, root) == G_NONE)
            gb_fail(b, STATUS_INVALID,
                    "no text can ever match it: every way through needs itself again, or something impossible");
        else if (rule_dist(&f, root) >= G_FAR)
            gb_fail(b, STATUS_INVALID, "the shortest text that matches it is longer than %u bytes", G_FAR);
        cut(&f);
        if (b->rc == 0)
            lay_out(&f, root, out);
    }
    free(f.dist);
    free(f.rev_first);
    free(f.rev);
    free(f.owner);
    free(f.heap);
    free(f.heap_at);
    if (b->rc < 0)
        automaton_release(out);
    return b->rc;
}

void automaton_release(struct automaton *a)
{
    free(a->nodes);
    free(a->edges);
    free(a->rules);
    free(a->dist);
    *a = (struct automaton){0};
}
