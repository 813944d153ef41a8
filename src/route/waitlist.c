/* waitlist.c: a heap of virtual start times a class, and a queue a tenant. */
#include "route/waitlist.h"

#include "base/check.h"
#include "base/size.h"

#define GAP_SHARE 8 /* a new gap counts one in so many */

static struct waiter *of_node(const struct heap_node *n)
{
    return CONTAINER_OF(n, struct waiter, node);
}

static bool sooner(const struct heap_node *x, const struct heap_node *y)
{
    const struct waiter *a = of_node(x), *b = of_node(y);
    return a->start != b->start ? a->start < b->start : a->seq < b->seq;
}

void waitlist_init(struct waitlist *l, uint32_t max)
{
    *l = (struct waitlist){.max = max};
    for (size_t c = 0; c < WAIT_CLASSES; c++) {
        heap_init(&l->bands[c].order, sooner);
        for (size_t i = 0; i < WAIT_SLOTS; i++)
            list_init(&l->bands[c].flows[i].waiters);
    }
}

void waiter_init(struct waiter *w)
{
    *w = (struct waiter){.class = WAIT_NORMAL, .cost = 1};
    list_init(&w->in_flow);
    heap_node_init(&w->node);
}

static struct wait_flow *flow_of(struct waitlist *l, const struct waiter *w)
{
    return &l->bands[w->class].flows[w->tenant % WAIT_SLOTS];
}

static struct waiter *latest(struct wait_flow *f)
{
    struct list *last = list_last(&f->waiters);
    return last ? LIST_ENTRY(last, struct waiter, in_flow) : NULL;
}

/* Who is worse off for `w`: the latest of the tenant with the most waiting in the least important class below it; or in its own class, if that
 * tenant would still have more than the newcomer's. NULL: nobody. */
static struct waiter *victim(struct waitlist *l, const struct waiter *w)
{
    size_t c = WAIT_CLASSES;
    while (c-- > (size_t)w->class) {
        struct wait_band *b = &l->bands[c];
        struct wait_flow *most = NULL;
        if (!b->n)
            continue;
        for (size_t i = 0; i < WAIT_SLOTS; i++)
            if (b->flows[i].n && (!most || b->flows[i].n > most->n))
                most = &b->flows[i];
        if (c > (size_t)w->class || most->n > flow_of(l, w)->n + 1)
            return latest(most);
        return NULL;
    }
    return NULL;
}

bool waitlist_add(struct waitlist *l, struct waiter *w, struct waiter **evicted)
{
    struct wait_flow *f = flow_of(l, w);
    bool again = w->seq != 0;
    ASSERT(!waiter_waits(w));
    *evicted = NULL;
    if (!again && l->n >= l->max) {
        *evicted = victim(l, w);
        if (!*evicted)
            return false;
        waitlist_remove(l, *evicted);
    }
    if (!again) {
        w->seq = ++l->seq;
        w->start = MAX_OF(l->virtual_now, f->finish);
        f->finish = w->start + MAX_OF(w->cost, (uint64_t)1);
    }
    if (again)
        list_push_front(&f->waiters, &w->in_flow);
    else
        list_push_back(&f->waiters, &w->in_flow);
    heap_push(&l->bands[w->class].order, &w->node);
    f->n++;
    l->bands[w->class].n++;
    l->n++;
    return true;
}

void waitlist_remove(struct waitlist *l, struct waiter *w)
{
    struct wait_flow *f = flow_of(l, w);
    if (!waiter_waits(w))
        return;
    if (latest(f) == w && f->n > 1) /* what it would have taken is free again */
        f->finish = w->start;
    list_remove(&w->in_flow);
    heap_remove(&l->bands[w->class].order, &w->node);
    f->n--;
    l->bands[w->class].n--;
    l->n--;
}

struct waiter *waitlist_next(struct waitlist *l)
{
    for (size_t c = 0; c < WAIT_CLASSES; c++) {
        struct heap_node *first = heap_min(&l->bands[c].order);
        if (!first)
            continue;
        struct waiter *w = of_node(first);
        waitlist_remove(l, w);
        l->virtual_now = MAX_OF(l->virtual_now, w->start);
        return w;
    }
    return NULL;
}

void waitlist_served(struct waitlist *l, uint64_t now_ns)
{
    uint64_t gap = l->gone_ns && now_ns > l->gone_ns ? now_ns - l->gone_ns : 0;
    if (gap)
        l->gap_ns = l->gap_ns ? l->gap_ns - l->gap_ns / GAP_SHARE + gap / GAP_SHARE : gap;
    l->gone_ns = l->n ? now_ns : 0;
}

uint64_t waitlist_expect_ns(const struct waitlist *l, enum wait_class class)
{
    uint64_t ahead = 1, ns;
    for (size_t c = 0; c <= (size_t) class; c++)
        ahead += l->bands[c].n;
    return __builtin_mul_overflow(ahead, l->gap_ns, &ns) ? UINT64_MAX : ns;
}

void waitlist_validate(const struct waitlist *l)
{
    uint32_t all = 0;
    for (size_t c = 0; c < WAIT_CLASSES; c++) {
        const struct wait_band *b = &l->bands[c];
        uint32_t n = 0;
        ASSERT(heap_validate(&b->order) && b->order.n == b->n);
        for (size_t i = 0; i < WAIT_SLOTS; i++) {
            uint32_t in = 0;
            for (const struct list *it = b->flows[i].waiters.next; it != &b->flows[i].waiters; it = it->next)
                in++;
            ASSERT(in == b->flows[i].n);
            n += in;
        }
        ASSERT(n == b->n);
        all += n;
    }
    ASSERT(all == l->n);
}
