/* rank.h: an ordered set of queued items that can answer questions about any prefix of itself in O(log n): how many rows
 * are ahead of this one, how much of the queue fits in a batch, which deadline and arrival in that part is the earliest.
 *
 * A treap (Seidel and Aragon, "Randomized search trees", Algorithmica 1996) with the sums kept in each node, intrusive and
 * with parent links, so that an item can be removed by its address. Expected O(log n) for every operation; the first node
 * is cached, so looking at the head is O(1). A heap (base/heap.h) would be smaller but can't answer the prefix questions,
 * and a batcher asks them at each admission and each decision. One thread. The nodes are the caller's memory. */
#ifndef INFERD_SCHED_RANK_H
#define INFERD_SCHED_RANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rank_node {
    struct rank_node *left, *right, *up; /* up == self: not in a tree */
    uint32_t prio;                       /* heap order of the treap, pseudo-random */
    uint32_t rows;                       /* set by the caller before rank_insert */
    uint64_t deadline_ns, arrived_ns;    /* likewise */
    uint64_t sum_rows;                   /* of the subtree, as the next two */
    uint64_t min_deadline_ns, min_arrived_ns;
    uint32_t sum_nodes;
};

struct rank_tree {
    struct rank_node *root, *first;
    bool (*less)(const struct rank_node *a, const struct rank_node *b); /* a strict total order */
    uint64_t seed;
};

/* A prefix of the order. Empty: rows 0 and both times UINT64_MAX. */
struct rank_span {
    uint64_t rows;
    uint32_t nodes;
    uint64_t min_deadline_ns, min_arrived_ns;
};

/* `less` must be a strict total order that doesn't change for nodes in the tree. */
void rank_init(struct rank_tree *t, bool (*less)(const struct rank_node *, const struct rank_node *));
/* A node in no tree; also its caller's fields are zeroed. */
void rank_node_init(struct rank_node *n);
/* Whether the node is in a tree. */
bool rank_contains(const struct rank_node *n);

/* `n` must not be in a tree; its rows (> 0), deadline_ns and arrived_ns are read now and must not change while it is in. */
void rank_insert(struct rank_tree *t, struct rank_node *n);
/* `n` must be in `t`. */
void rank_remove(struct rank_tree *t, struct rank_node *n);

/* The first node, or NULL. O(1). */
static inline struct rank_node *rank_first(const struct rank_tree *t)
{
    return t->first;
}
/* The node after `n`, or NULL. Amortised O(1) over a walk. */
struct rank_node *rank_next(const struct rank_node *n);
/* Whole tree. O(1). */
struct rank_span rank_all(const struct rank_tree *t);
/* Rows of all nodes strictly before `key`, which need not be in the tree; their number in `nodes` (may be NULL). */
uint64_t rank_rows_before(const struct rank_tree *t, const struct rank_node *key, uint32_t *nodes);
/* The longest prefix that holds at most `max_rows` rows. */
struct rank_span rank_prefix(const struct rank_tree *t, uint64_t max_rows);
/* The first node after that prefix, or NULL when it holds all. */
struct rank_node *rank_after(const struct rank_tree *t, uint64_t max_rows);
/* The node with the earliest deadline in that prefix, or NULL when it is empty. */
struct rank_node *rank_prefix_urgent(const struct rank_tree *t, uint64_t max_rows);

/* True when order, heap order, links and sums hold everywhere; for tests. O(n). */
bool rank_validate(const struct rank_tree *t);

#endif
