/* loop.c: the event loop of loop.h.
 *
 * An iteration: look for posted work, wait (not at all when there is some), then posted work, timers, I/O, deferred tasks.
 *
 * Posted work is a Treiber stack that the loop takes whole and reverses: push is one exchange-loop, order per sender holds, and
 * there is no ABA because nothing is popped singly. The wake-up is a Dekker handshake: the loop sets `asleep` and then looks
 * at the stack once more; a poster pushes and then looks at `asleep`; both are sequentially consistent, so at least one of
 * them sees the other. A busy loop is therefore never written to, and the eventfd is edge-triggered and never read.
 *
 * A poster's message may be handled, and be the one that ends the loop, before its loop_post has returned; `callers` keeps
 * loop_destroy waiting for it.
 *
 * An fd that is removed (its owner may be freed at the end of the iteration) has its pending events of the current batch
 * cleared; that is a scan of at most OS_POLL_BATCH entries and only happens when something closes.
 *
 * Rejected: edge-triggered readiness for sockets. It would save epoll_ctl calls that we make only when a socket blocks, and
 * costs a read that returns EAGAIN for every request, plus the bookkeeping to never lose an edge while reading is paused. */
#include "net/loop.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/poll.h"

#define NS_PER_S 1000000000ull
#define WALL_NS  100000000ull /* the wall clock may be that late */

struct loop {
    int poll_fd, wake_fd;
    uint64_t now_ns, wall_s, wall_until_ns;
    struct heap timers;
    struct loop_task *deferred, **deferred_tail;
    struct {
        void *p;
        void (*free_fn)(void *p);
    } local[LOOP_SLOTS];
    struct os_poll_event events[OS_POLL_BATCH];
    size_t n_events, at_event;
    bool busy_poll;
    /* other threads write below: on a cache line of its own */
    _Alignas(64) _Atomic(struct loop_task *) posted;
    _Atomic bool asleep, stopping;
    _Atomic uint32_t callers; /* threads inside loop_post or loop_stop */
};

static bool timer_less(const struct heap_node *a, const struct heap_node *b)
{
    return CONTAINER_OF(a, const struct loop_timer, node)->at_ns < CONTAINER_OF(b, const struct loop_timer, node)->at_ns;
}

int loop_create(struct loop **out, struct error *err)
{
    struct loop *l = aligned_alloc(64, (sizeof *l + 63) / 64 * 64);
    if (!l)
        return error_set(err, STATUS_NOMEM, "out of memory for an event loop");
    *l = (struct loop){.poll_fd = -1, .wake_fd = -1, .now_ns = os_monotonic_ns()};
    l->deferred_tail = &l->deferred;
    heap_init(&l->timers, timer_less);
    int rc = os_poll_create(&l->poll_fd, err);
    if (rc == 0)
        rc = os_wakeup_create(&l->wake_fd, err);
    if (rc == 0)
        rc = os_poll_add(l->poll_fd, l->wake_fd, OS_POLL_READ | OS_POLL_EDGE, NULL, err);
    if (rc) {
        loop_destroy(l);
        return rc;
    }
    *out = l;
    return 0;
}

/* Everything posted so far, oldest first. The acquire pairs with the release of loop_post. */
static void run_posted(struct loop *l)
{
    if (!atomic_load_explicit(&l->posted, memory_order_relaxed))
        return;
    struct loop_task *t = atomic_exchange_explicit(&l->posted, NULL, memory_order_acquire), *ordered = NULL;
    while (t) {
        struct loop_task *next = t->next;
        t->next = ordered;
        ordered = t;
        t = next;
    }
    while (ordered) {
        struct loop_task *next = ordered->next;
        ordered->run(ordered);
        ordered = next;
    }
}

static void run_timers(struct loop *l)
{
    struct heap_node *n;
    while ((n = heap_min(&l->timers))) {
        struct loop_timer *t = CONTAINER_OF(n, struct loop_timer, node);
        if (t->at_ns > l->now_ns)
            return;
        heap_pop(&l->timers);
        t->fire(t);
    }
}

static void run_io(struct loop *l)
{
    for (l->at_event = 0; l->at_event < l->n_events; l->at_event++) {
        struct os_poll_event *e = &l->events[l->at_event];
        struct loop_fd *w = e->user;
        if (!w) /* the wake-up, or removed meanwhile */
            continue;
        uint32_t got = (e->events & OS_POLL_READ ? LOOP_READ : 0u) | (e->events & OS_POLL_WRITE ? LOOP_WRITE : 0u);
        if (e->events & (OS_POLL_RDHUP | OS_POLL_DEAD))
            got |= LOOP_HANGUP;
        if (e->events & OS_POLL_DEAD)
            got |= LOOP_DEAD;
        w->ready(w, got);
    }
    l->n_events = l->at_event = 0;
}

static void run_deferred(struct loop *l)
{
    while (l->deferred) {
        struct loop_task *t = l->deferred;
        l->deferred = NULL;
        l->deferred_tail = &l->deferred;
        while (t) {
            struct loop_task *next = t->next;
            t->run(t);
            t = next;
        }
    }
}

static uint64_t wait_ns(struct loop *l)
{
    if (l->busy_poll || atomic_load(&l->posted) || atomic_load(&l->stopping))
        return 0;
    struct heap_node *n = heap_min(&l->timers);
    if (!n)
        return UINT64_MAX;
    uint64_t at = CONTAINER_OF(n, struct loop_timer, node)->at_ns, now = loop_update_now(l);
    return at > now ? at - now : 0;
}

void loop_busy_poll(struct loop *l)
{
    l->busy_poll = true;
}

void loop_run(struct loop *l)
{
    while (!atomic_load_explicit(&l->stopping, memory_order_relaxed)) {
        atomic_store(&l->asleep, true);
        l->n_events = os_poll_wait(l->poll_fd, l->events, wait_ns(l));
        atomic_store_explicit(&l->asleep, false, memory_order_relaxed);
        loop_update_now(l);
        run_posted(l);
        run_timers(l);
        run_io(l);
        run_deferred(l);
    }
}

void loop_destroy(struct loop *l)
{
    if (!l)
        return;
    while (atomic_load_explicit(&l->callers, memory_order_acquire)) /* pairs with leave() */
        os_sleep_ns(1000);
    run_posted(l);
    run_deferred(l);
    for (int i = 0; i < LOOP_SLOTS; i++)
        if (l->local[i].p && l->local[i].free_fn)
            l->local[i].free_fn(l->local[i].p);
    os_close(l->wake_fd);
    os_close(l->poll_fd);
    free(l);
}

static void enter(struct loop *l)
{
    atomic_fetch_add_explicit(&l->callers, 1, memory_order_relaxed);
}
static void leave(struct loop *l)
{
    atomic_fetch_sub_explicit(&l->callers, 1, memory_order_release);
}

void loop_stop(struct loop *l)
{
    enter(l);
    atomic_store(&l->stopping, true);
    os_wakeup_signal(l->wake_fd);
    leave(l);
}

uint64_t loop_now_ns(const struct loop *l)
{
    return l->now_ns;
}

uint64_t loop_update_now(struct loop *l)
{
    l->now_ns = os_monotonic_ns();
    return l->now_ns;
}

uint64_t loop_wall_s(struct loop *l)
{
    if (l->now_ns >= l->wall_until_ns) {
        uint64_t wall = os_wall_ns();
        l->wall_s = wall / NS_PER_S;
        l->wall_until_ns = l->now_ns + MIN_OF(NS_PER_S - wall % NS_PER_S, WALL_NS);
    }
    return l->wall_s;
}

static uint32_t to_poll(uint32_t interest)
{
    return (interest & LOOP_READ ? OS_POLL_READ : 0u) | (interest & LOOP_WRITE ? OS_POLL_WRITE : 0u) |
           (interest & LOOP_NO_RDHUP ? 0u : OS_POLL_RDHUP);
}

int loop_fd_add(struct loop *l, struct loop_fd *w, uint32_t interest, struct error *err)
{
    w->interest = interest;
    return os_poll_add(l->poll_fd, w->fd, to_poll(interest), w, err);
}

void loop_fd_set(struct loop *l, struct loop_fd *w, uint32_t interest)
{
    if (w->interest == interest)
        return;
    struct error err;
    w->interest = interest;
    WARN_ON(os_poll_set(l->poll_fd, w->fd, to_poll(interest), w, &err) != 0);
}

void loop_fd_remove(struct loop *l, struct loop_fd *w)
{
    os_poll_remove(l->poll_fd, w->fd);
    for (size_t i = l->at_event; i < l->n_events; i++)
        if (l->events[i].user == w)
            l->events[i].user = NULL;
}

void loop_timer_init(struct loop_timer *t, void (*fire)(struct loop_timer *t))
{
    *t = (struct loop_timer){.fire = fire};
    heap_node_init(&t->node);
}

void loop_timer_start(struct loop *l, struct loop_timer *t, uint64_t at_ns)
{
    loop_timer_stop(l, t);
    t->at_ns = at_ns;
    heap_push(&l->timers, &t->node);
}

void loop_timer_stop(struct loop *l, struct loop_timer *t)
{
    if (heap_contains(&t->node))
        heap_remove(&l->timers, &t->node);
}

void loop_burst_begin(struct loop *l)
{
    enter(l);
}

void loop_burst_post(struct loop *l, struct loop_task *t)
{
    struct loop_task *head = atomic_load_explicit(&l->posted, memory_order_relaxed);
    do
        t->next = head;
    while (!atomic_compare_exchange_weak(&l->posted, &head, t));
}

void loop_burst_end(struct loop *l)
{
    if (atomic_load(&l->asleep) && atomic_exchange(&l->asleep, false))
        os_wakeup_signal(l->wake_fd);
    leave(l);
}

void loop_post(struct loop *l, struct loop_task *t)
{
    loop_burst_begin(l);
    loop_burst_post(l, t);
    loop_burst_end(l);
}

void *loop_local(const struct loop *l, enum loop_slot slot)
{
    return l->local[slot].p;
}

void loop_set_local(struct loop *l, enum loop_slot slot, void *local, void (*free_fn)(void *local))
{
    l->local[slot].p = local;
    l->local[slot].free_fn = free_fn;
}

void loop_defer(struct loop *l, struct loop_task *t)
{
    t->next = NULL;
    *l->deferred_tail = t;
    l->deferred_tail = &t->next;
}
