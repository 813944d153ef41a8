/* heap.h: intrusive pairing heap: deadlines, timers, priority queues.
 *
 * No allocation: the node is embedded in the element. push O(1), pop and remove O(log n) amortised, min O(1).
 * Fredman, Sedgewick, Sleator, Tarjan, "The pairing heap", Algorithmica 1 (1986); two-pass merging. One thread. */
#ifndef INFERD_BASE_HEAP_H
#define INFERD_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>

struct heap_node {
    struct heap_node *child; /* first child */
    struct heap_node *next;  /* next sibling */
    struct heap_node *prev;  /* previous sibling, or the parent for a first child; self when not in a heap */
};

struct heap {
    struct heap_node *root;
    bool (*less)(const struct heap_node *a, const struct heap_node *b);
    size_t n;
};

void heap_init(struct heap *h, bool (*less)(const struct heap_node *, const struct heap_node *));
void heap_node_init(struct heap_node *n);
/* Whether `n` is in a heap (any heap). */
bool heap_contains(const struct heap_node *n);
/* `n` must not be in a heap. */
void heap_push(struct heap *h, struct heap_node *n);
/* Smallest node, or NULL. */
static inline struct heap_node *heap_min(const struct heap *h)
{
    return h->root;
}
struct heap_node *heap_pop(struct heap *h);
/* Remove `n`, which must be in `h`. */
void heap_remove(struct heap *h, struct heap_node *n);
/* True when order and links hold everywhere; for tests. O(n). */
bool heap_validate(const struct heap *h);

#endif
