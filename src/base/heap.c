/* heap.c: the pairing heap of heap.h. Invariants: a root has prev == NULL; a detached node has prev == itself; a first
 * child's prev is its parent, any other child's prev is its left sibling. Merging is iterative: no recursion on depth. */
#include "base/heap.h"

#include "base/check.h"

void heap_init(struct heap *h, bool (*less)(const struct heap_node *, const struct heap_node *))
{
    *h = (struct heap){.less = less};
}

void heap_node_init(struct heap_node *n)
{
    *n = (struct heap_node){.prev = n};
}

bool heap_contains(const struct heap_node *n)
{
    return n->prev != n;
}

/* Two roots (or NULL) become one; the loser is the winner's first child. */
static struct heap_node *merge(struct heap *h, struct heap_node *a, struct heap_node *b)
{
    if (!a || !b)
        return a ? a : b;
    if (h->less(b, a)) {
        struct heap_node *t = a;
        a = b;
        b = t;
    }
    b->next = a->child;
    if (a->child)
        a->child->prev = b;
    b->prev = a;
    a->child = b;
    a->next = a->prev = NULL;
    return a;
}

/* Merge the sibling list `first` into one root: pairs left to right, then the pairs right to left. */
static struct heap_node *merge_siblings(struct heap *h, struct heap_node *first)
{
    struct heap_node *pairs = NULL;
    while (first) {
        struct heap_node *a = first, *b = a->next;
        first = b ? b->next : NULL;
        a->next = a->prev = NULL;
        if (b)
            b->next = b->prev = NULL;
        a = merge(h, a, b);
        a->next = pairs; /* a stack, linked by next */
        pairs = a;
    }
    struct heap_node *root = NULL;
    while (pairs) {
        struct heap_node *rest = pairs->next;
        pairs->next = NULL;
        root = merge(h, root, pairs);
        pairs = rest;
    }
    return root;
}

void heap_push(struct heap *h, struct heap_node *n)
{
    ASSERT(!heap_contains(n));
    *n = (struct heap_node){0};
    h->root = merge(h, h->root, n);
    h->n++;
}

struct heap_node *heap_pop(struct heap *h)
{
    struct heap_node *n = h->root;
    if (n)
        heap_remove(h, n);
    return n;
}

void heap_remove(struct heap *h, struct heap_node *n)
{
    ASSERT(heap_contains(n) && h->n > 0);
    struct heap_node *below = merge_siblings(h, n->child);
    if (n == h->root) {
        h->root = below;
    } else {
        if (n->prev->child == n)
            n->prev->child = n->next;
        else
            n->prev->next = n->next;
        if (n->next)
            n->next->prev = n->prev;
        h->root = merge(h, h->root, below);
    }
    h->n--;
    heap_node_init(n);
}

bool heap_validate(const struct heap *h)
{
    /* Depth-first by links, without a stack: down to the child, else to the next sibling, else up. */
    size_t seen = 0;
    const struct heap_node *at = h->root;
    if (at && (at->prev || at->next))
        return false;
    while (at) {
        seen++;
        for (const struct heap_node *c = at->child, *left = at; c; left = c, c = c->next)
            if (c->prev != left || h->less(c, at))
                return false;
        if (at->child) {
            at = at->child;
            continue;
        }
        while (at && !at->next) { /* climb: leftmost sibling's prev is the parent */
            while (at->prev && at->prev->child != at)
                at = at->prev;
            at = at->prev;
        }
        at = at ? at->next : NULL;
    }
    return seen == h->n;
}
