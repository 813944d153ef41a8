/* rank.c: the treap of rank.h. A node's children come after it in `prio` (min-heap); sums are recomputed on the path from
 * the changed node to the root. Iterative throughout: a hostile order can't deepen the C stack. */
#include "sched/rank.h"

#include "base/check.h"
#include "base/size.h"

void rank_init(struct rank_tree *t, bool (*less)(const struct rank_node *, const struct rank_node *))
{
    *t = (struct rank_tree){.less = less, .seed = 0x9e3779b97f4a7c15u};
}

void rank_node_init(struct rank_node *n)
{
    *n = (struct rank_node){.up = n};
}

bool rank_contains(const struct rank_node *n)
{
    return n->up != n;
}

/* splitmix64 (Steele, Lea, Flood 2014): the priorities only have to be independent of the order of arrival. */
static uint32_t next_prio(struct rank_tree *t)
{
    uint64_t z = (t->seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)(z >> 32);
}

static void add_child(struct rank_node *n, const struct rank_node *c)
{
    if (!c)
        return;
    n->sum_rows += c->sum_rows;
    n->sum_nodes += c->sum_nodes;
    n->min_deadline_ns = MIN_OF(n->min_deadline_ns, c->min_deadline_ns);
    n->min_arrived_ns = MIN_OF(n->min_arrived_ns, c->min_arrived_ns);
}

static void resum(struct rank_node *n)
{
    n->sum_rows = n->rows;
    n->sum_nodes = 1;
    n->min_deadline_ns = n->deadline_ns;
    n->min_arrived_ns = n->arrived_ns;
    add_child(n, n->left);
    add_child(n, n->right);
}

static void resum_up(struct rank_node *n)
{
    for (; n; n = n->up)
        resum(n);
}

/* Put `now` where `was` hangs (below its parent, or as the root). */
static void replace(struct rank_tree *t, struct rank_node *was, struct rank_node *now)
{
    struct rank_node *up = was->up;
    if (!up)
        t->root = now;
    else if (up->left == was)
        up->left = now;
    else
        up->right = now;
    if (now)
        now->up = up;
}

/* Lift `n` above its parent, keeping the order; sums of the two are made right. */
static void rotate_up(struct rank_tree *t, struct rank_node *n)
{
    struct rank_node *p = n->up;
    replace(t, p, n);
    if (p->left == n) {
        p->left = n->right;
        if (p->left)
            p->left->up = p;
        n->right = p;
    } else {
        p->right = n->left;
        if (p->right)
            p->right->up = p;
        n->left = p;
    }
    p->up = n;
    resum(p);
    resum(n);
}

void rank_insert(struct rank_tree *t, struct rank_node *n)
{
    ASSERT(!rank_contains(n) && n->rows > 0);
    struct rank_node *up = NULL, **at = &t->root;
    bool leftmost = true;
    while (*at) {
        up = *at;
        if (t->less(n, up)) {
            at = &up->left;
        } else {
            at = &up->right;
            leftmost = false;
        }
    }
    n->left = n->right = NULL;
    n->up = up;
    n->prio = next_prio(t);
    *at = n;
    if (leftmost)
        t->first = n;
    resum_up(n);
    while (n->up && n->prio < n->up->prio)
        rotate_up(t, n);
}

struct rank_node *rank_next(const struct rank_node *n)
{
    if (n->right) {
        struct rank_node *at = n->right;
        while (at->left)
            at = at->left;
        return at;
    }
    while (n->up && n->up->right == n)
        n = n->up;
    return n->up;
}

void rank_remove(struct rank_tree *t, struct rank_node *n)
{
    ASSERT(rank_contains(n) && t->root);
    if (t->first == n)
        t->first = rank_next(n);
    while (n->left && n->right)
        rotate_up(t, n->left->prio < n->right->prio ? n->left : n->right);
    replace(t, n, n->left ? n->left : n->right);
    resum_up(n->up);
    n->left = n->right = NULL;
    n->up = n; /* the caller's fields stay: it may insert it again */
}

struct rank_span rank_all(const struct rank_tree *t)
{
    const struct rank_node *r = t->root;
    if (!r)
        return (struct rank_span){.min_deadline_ns = UINT64_MAX, .min_arrived_ns = UINT64_MAX};
    return (struct rank_span){r->sum_rows, r->sum_nodes, r->min_deadline_ns, r->min_arrived_ns};
}

uint64_t rank_rows_before(const struct rank_tree *t, const struct rank_node *key, uint32_t *nodes)
{
    uint64_t rows = 0;
    uint32_t count = 0;
    for (const struct rank_node *n = t->root; n;) {
        if (t->less(n, key)) {
            rows += n->rows + (n->left ? n->left->sum_rows : 0);
            count += 1 + (n->left ? n->left->sum_nodes : 0);
            n = n->right;
        } else {
            n = n->left;
        }
    }
    if (nodes)
        *nodes = count;
    return rows;
}

static void span_add(struct rank_span *s, uint64_t rows, uint32_t nodes, uint64_t deadline_ns, uint64_t arrived_ns)
{
    s->rows += rows;
    s->nodes += nodes;
    s->min_deadline_ns = MIN_OF(s->min_deadline_ns, deadline_ns);
    s->min_arrived_ns = MIN_OF(s->min_arrived_ns, arrived_ns);
}

/* Walk down the edge of the prefix. `urgent` becomes the subtree (or the single node) of it that holds the earliest deadline. */
static struct rank_span walk_prefix(const struct rank_tree *t, uint64_t max_rows, struct rank_node **urgent,
                                    bool *urgent_is_tree)
{
    struct rank_span s = {.min_deadline_ns = UINT64_MAX, .min_arrived_ns = UINT64_MAX};
    for (struct rank_node *n = t->root; n;) {
        struct rank_node *l = n->left;
        uint64_t left_rows = l ? l->sum_rows : 0;
        if (s.rows + left_rows > max_rows) {
            n = l;
            continue;
        }
        if (l) {
            if (!*urgent || l->min_deadline_ns < s.min_deadline_ns) {
                *urgent = l;
                *urgent_is_tree = true;
            }
            span_add(&s, l->sum_rows, l->sum_nodes, l->min_deadline_ns, l->min_arrived_ns);
        }
        if (s.rows + n->rows > max_rows)
            break;
        if (!*urgent || n->deadline_ns < s.min_deadline_ns) {
            *urgent = n;
            *urgent_is_tree = false;
        }
        span_add(&s, n->rows, 1, n->deadline_ns, n->arrived_ns);
        n = n->right;
    }
    return s;
}

struct rank_span rank_prefix(const struct rank_tree *t, uint64_t max_rows)
{
    if (t->root && t->root->sum_rows <= max_rows)
        return rank_all(t);
    struct rank_node *urgent = NULL;
    bool is_tree = false;
    return walk_prefix(t, max_rows, &urgent, &is_tree);
}

struct rank_node *rank_after(const struct rank_tree *t, uint64_t max_rows)
{
    struct rank_node *after = NULL;
    uint64_t rows = 0;
    for (struct rank_node *n = t->root; n;) {
        uint64_t upto = rows + (n->left ? n->left->sum_rows : 0) + n->rows;
        if (upto > max_rows) {
            after = n;
            n = n->left;
        } else {
            rows = upto;
            n = n->right;
        }
    }
    return after;
}

struct rank_node *rank_prefix_urgent(const struct rank_tree *t, uint64_t max_rows)
{
    struct rank_node *n = NULL;
    bool is_tree = false;
    walk_prefix(t, max_rows, &n, &is_tree);
    while (n && is_tree && n->deadline_ns != n->min_deadline_ns)
        n = n->left && n->left->min_deadline_ns == n->min_deadline_ns ? n->left : n->right;
    return n;
}

static bool node_ok(const struct rank_tree *t, const struct rank_node *n)
{
    struct rank_node want = *n;
    resum(&want);
    if (want.sum_rows != n->sum_rows || want.sum_nodes != n->sum_nodes || want.min_deadline_ns != n->min_deadline_ns ||
        want.min_arrived_ns != n->min_arrived_ns)
        return false;
    const struct rank_node *child[2] = {n->left, n->right};
    for (int i = 0; i < 2; i++)
        if (child[i] && (child[i]->up != n || child[i]->prio < n->prio))
            return false;
    return (!n->left || t->less(n->left, n)) && (!n->right || t->less(n, n->right));
}

bool rank_validate(const struct rank_tree *t)
{
    if (!t->root)
        return !t->first;
    if (t->root->up)
        return false;
    uint32_t seen = 0;
    const struct rank_node *last = NULL;
    for (const struct rank_node *n = t->first; n; last = n, n = rank_next(n), seen++)
        if (!node_ok(t, n) || (last && !t->less(last, n)))
            return false;
    return seen == t->root->sum_nodes;
}
