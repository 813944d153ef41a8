/* list.h: intrusive, circular, doubly linked list. The head is a node of its own; a node that is not in a list points
 * to itself, so that list_remove is idempotent and O(1). One thread at a time. */
#ifndef INFERD_BASE_LIST_H
#define INFERD_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/size.h"

struct list {
    struct list *next, *prev;
};

static inline void list_init(struct list *l)
{
    l->next = l->prev = l;
}
static inline bool list_empty(const struct list *l)
{
    return l->next == l;
}

static inline void list_insert_before(struct list *at, struct list *node)
{
    node->prev = at->prev;
    node->next = at;
    at->prev->next = node;
    at->prev = node;
}

static inline void list_push_back(struct list *head, struct list *node)
{
    list_insert_before(head, node);
}
static inline void list_push_front(struct list *head, struct list *node)
{
    list_insert_before(head->next, node);
}

static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

/* First node without removing it, or NULL when empty. */
static inline struct list *list_first(struct list *head)
{
    return list_empty(head) ? NULL : head->next;
}
static inline struct list *list_last(struct list *head)
{
    return list_empty(head) ? NULL : head->prev;
}

static inline struct list *list_pop_front(struct list *head)
{
    struct list *n = list_first(head);
    if (n)
        list_remove(n);
    return n;
}

#define LIST_ENTRY(node, type, member) CONTAINER_OF(node, type, member)
/* `next_` is read before the body runs, so the body may remove `it`. */
#define LIST_EACH(it, head)                                                                                                    \
    for (struct list *it = (head)->next, *it##_next_ = it->next; it != (head); it = it##_next_, it##_next_ = it->next)

#endif
