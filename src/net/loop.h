/* loop.h: one thread's event loop over epoll: file descriptors, timers, and work posted from other threads.
 *
 * Objects registered with a loop are loop-owned: touched on its thread only and freed no earlier than the end of the current
 * iteration (loop_defer). Phases of an iteration, in order: posted work, timers, I/O, deferred frees. The only functions other
 * threads may call are loop_post and loop_stop. */
#ifndef INFERD_NET_LOOP_H
#define INFERD_NET_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/heap.h"

struct loop;

enum {
    LOOP_READ = 1,
    LOOP_WRITE = 2,
    LOOP_HANGUP = 4,   /* event: the peer sends no more (EPOLLRDHUP), or the connection is dead */
    LOOP_DEAD = 8,     /* event, together with HANGUP: reset, error, or closed in both directions */
    LOOP_NO_RDHUP = 16 /* interest: the peer's end is known; report only DEAD from now on */
};

/* A watched fd, embedded in its owner. Level-triggered. HANGUP (EPOLLRDHUP | EPOLLHUP | EPOLLERR) is always delivered, also
 * while nothing is asked for (but see LOOP_NO_RDHUP). */
struct loop_fd {
    int fd;
    uint32_t interest; /* as registered */
    void (*ready)(struct loop_fd *w, uint32_t events);
};

/* A one-shot timer, embedded. */
struct loop_timer {
    struct heap_node node;
    uint64_t at_ns;
    void (*fire)(struct loop_timer *t);
};

/* Work from another thread, embedded in the message; delivered once, in order per sender. */
struct loop_task {
    struct loop_task *next;
    void (*run)(struct loop_task *t);
};

int loop_create(struct loop **out, struct error *err) MUST_CHECK;
void loop_destroy(struct loop *l); /* after loop_run returned; runs what is still posted */
/* Until loop_stop. */
void loop_run(struct loop *l);
void loop_stop(struct loop *l); /* any thread, async-signal-safe */
/* Never sleep for events: the thread keeps its core. Before loop_run. For measuring without the time that a core takes to wake. */
void loop_busy_poll(struct loop *l);

/* Monotonic time read once at the top of the iteration. */
uint64_t loop_now_ns(const struct loop *l);
/* Read the clock again now (after long work). */
uint64_t loop_update_now(struct loop *l);

/* Wall clock in seconds since 1970, as of the iteration. Read from the system ten times a second: when somebody sets it, that is seen a tenth
 * of a second later. Loop's thread. */
uint64_t loop_wall_s(struct loop *l);

/* Watch w->fd; `interest`: LOOP_READ, LOOP_WRITE, LOOP_NO_RDHUP or 0. `w` must stay valid until removed. STATUS_IO and others
 * of the system. */
int loop_fd_add(struct loop *l, struct loop_fd *w, uint32_t interest, struct error *err) MUST_CHECK;
/* Change the interest; free when it is the same. */
void loop_fd_set(struct loop *l, struct loop_fd *w, uint32_t interest);
void loop_fd_remove(struct loop *l, struct loop_fd *w); /* does not close it; pending events of this iteration are dropped */

void loop_timer_init(struct loop_timer *t, void (*fire)(struct loop_timer *t));
void loop_timer_start(struct loop *l, struct loop_timer *t, uint64_t at_ns); /* restarts when running */
void loop_timer_stop(struct loop *l, struct loop_timer *t);                  /* idempotent */

/* Any thread. Lock-free; an eventfd write only when the loop sleeps. */
void loop_post(struct loop *l, struct loop_task *t);
/* A burst of posts that wakes the loop once, at its end, so that a loop on the same core does not run in between. Any thread. The
 * loop stays valid from begin to end, whatever the posted tasks do to it; posts of a burst may be run before its end. */
void loop_burst_begin(struct loop *l);
void loop_burst_post(struct loop *l, struct loop_task *t);
void loop_burst_end(struct loop *l);

/* Objects that users of the loop keep one of a loop, NULL at first. Loop thread only. `free_fn` (may be NULL) gets it in loop_destroy, after
 * everything posted has run, while the loop still can remove descriptors and timers. */
enum loop_slot { LOOP_SLOT_INFER, LOOP_SLOT_GATEWAY, LOOP_SLOTS };
void *loop_local(const struct loop *l, enum loop_slot slot);
void loop_set_local(struct loop *l, enum loop_slot slot, void *local, void (*free_fn)(void *local));
/* Run `t` at the end of this iteration; loop thread only. */
void loop_defer(struct loop *l, struct loop_task *t);

#endif
