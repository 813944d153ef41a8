/* The loop: order of phases, delivery, ordering per sender, removal while events are pending, hang-up without interest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/check.h"
#include "base/size.h"
#include "net/loop.h"
#include "os/clock.h"
#include "os/thread.h"

#define MS 1000000ull

static struct loop *make_loop(void)
{
    struct loop *l;
    struct error err;
    assert_int_equal(loop_create(&l, &err), 0);
    return l;
}

static struct loop *stop_me; /* the loop under test, for callbacks without a context */
static char trace[64];
static size_t trace_n;

static void note(char c)
{
    assert_true(trace_n < sizeof trace - 1);
    trace[trace_n++] = c;
    trace[trace_n] = 0;
}

static void stop_timer(struct loop_timer *t)
{
    (void)t;
    note('s');
    loop_stop(stop_me);
}
static void timer_a(struct loop_timer *t)
{
    (void)t, note('a');
}
static void timer_b(struct loop_timer *t)
{
    (void)t, note('b');
}

static void test_timers(void **state)
{
    (void)state;
    struct loop *l = stop_me = make_loop();
    struct loop_timer a, b, c, never;
    trace_n = 0;
    loop_timer_init(&a, timer_a);
    loop_timer_init(&b, timer_b);
    loop_timer_init(&c, stop_timer);
    loop_timer_init(&never, timer_a);
    uint64_t t0 = os_monotonic_ns();
    loop_timer_start(l, &c, t0 + 30 * MS);
    loop_timer_start(l, &a, t0 + 500 * MS);
    loop_timer_start(l, &a, t0 + 20 * MS); /* restart */
    loop_timer_start(l, &b, t0 + 10 * MS);
    loop_timer_start(l, &never, t0 + 5 * MS);
    loop_timer_stop(l, &never);
    loop_timer_stop(l, &never);
    loop_run(l);
    assert_string_equal(trace, "bas");
    assert_true(os_monotonic_ns() - t0 >= 30 * MS);
    loop_destroy(l);
}

/* posts from several threads */
enum { SENDERS = 4, EACH = 20000 };
struct message {
    struct loop_task task;
    int sender, number;
};
static int last_seen[SENDERS], received;

static void receive(struct loop_task *t)
{
    struct message *m = CONTAINER_OF(t, struct message, task);
    assert_int_equal(m->number, last_seen[m->sender] + 1);
    last_seen[m->sender] = m->number;
    if (++received == SENDERS * EACH)
        loop_stop(stop_me);
}

static void send_all(void *arg)
{
    struct message *m = arg;
    for (int i = 0; i < EACH; i++)
        loop_post(stop_me, &m[i].task);
}

static void test_post(void **state)
{
    (void)state;
    struct loop *l = stop_me = make_loop();
    struct message *m = calloc(SENDERS * EACH, sizeof *m);
    struct os_thread t[SENDERS];
    struct error err;
    received = 0;
    for (int s = 0; s < SENDERS; s++) {
        last_seen[s] = -1;
        for (int i = 0; i < EACH; i++)
            m[s * EACH + i] = (struct message){{.run = receive}, s, i};
        assert_int_equal(os_thread_start(&t[s], "sender", send_all, &m[s * EACH], &err), 0);
    }
    loop_run(l);
    for (int s = 0; s < SENDERS; s++)
        os_thread_join(&t[s]);
    assert_int_equal(received, SENDERS * EACH);
    loop_destroy(l);
    free(m);
}

/* A sleeping loop is woken by one post, each time: ping-pong between two loops. */
struct pong {
    struct loop_task task;
    struct loop *here, *there;
    struct pong *other;
    int left;
};

static void bounce(struct loop_task *t)
{
    struct pong *p = CONTAINER_OF(t, struct pong, task);
    if (p->left-- == 0) {
        loop_stop(p->here);
        loop_stop(p->there);
        return;
    }
    loop_post(p->there, &p->other->task);
}

static void run_loop(void *arg)
{
    loop_run(arg);
}

static void test_wake_up(void **state)
{
    (void)state;
    struct loop *l1 = make_loop(), *l2 = make_loop();
    struct pong p1 = {{.run = bounce}, l1, l2, NULL, 5000}, p2 = {{.run = bounce}, l2, l1, &p1, 5000};
    struct os_thread t1, t2;
    struct error err;
    p1.other = &p2;
    assert_int_equal(os_thread_start(&t1, "l1", run_loop, l1, &err), 0);
    assert_int_equal(os_thread_start(&t2, "l2", run_loop, l2, &err), 0);
    loop_post(l1, &p1.task);
    os_thread_join(&t1);
    os_thread_join(&t2);
    assert_true(p1.left <= 0 || p2.left <= 0);
    loop_destroy(l1);
    loop_destroy(l2);
}

static void task_p(struct loop_task *t)
{
    (void)t, note('p');
}
static void task_d(struct loop_task *t)
{
    (void)t, note('d');
}
static struct loop_task deferred = {.run = task_d};
static struct loop_fd fd_one, fd_two;

static void io_one(struct loop_fd *w, uint32_t events)
{
    (void)w;
    assert_true(events & LOOP_READ);
    note('i');
    loop_defer(stop_me, &deferred);
    /* both are ready in this batch: the second must not be called any more */
    loop_fd_remove(stop_me, &fd_one);
    loop_fd_remove(stop_me, &fd_two);
    loop_stop(stop_me);
}

static void test_phases_and_removal(void **state)
{
    (void)state;
    struct loop *l = stop_me = make_loop();
    struct loop_task p = {.run = task_p};
    struct loop_timer t;
    struct error err;
    int s[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
    assert_int_equal(write(s[0], "x", 1) + write(s[1], "x", 1), 2);
    trace_n = 0;
    fd_one = (struct loop_fd){.fd = s[0], .ready = io_one};
    fd_two = (struct loop_fd){.fd = s[1], .ready = io_one};
    assert_int_equal(loop_fd_add(l, &fd_one, LOOP_READ, &err), 0);
    assert_int_equal(loop_fd_add(l, &fd_two, LOOP_READ, &err), 0);
    loop_timer_init(&t, timer_a);
    loop_timer_start(l, &t, os_monotonic_ns());
    loop_post(l, &p);
    loop_run(l);
    assert_string_equal(trace, "paid");
    close(s[0]);
    close(s[1]);
    loop_destroy(l);
}

static uint32_t seen_events;
static void io_record(struct loop_fd *w, uint32_t events)
{
    seen_events = events;
    loop_fd_remove(stop_me, w);
    loop_stop(stop_me);
}

/* With no interest at all a peer's end is still reported; with LOOP_NO_RDHUP only its death. */
static void test_hangup(void **state)
{
    (void)state;
    struct error err;
    for (int death = 0; death < 2; death++) {
        struct loop *l = stop_me = make_loop();
        int s[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
        struct loop_fd w = {.fd = s[0], .ready = io_record};
        assert_int_equal(loop_fd_add(l, &w, 0, &err), 0);
        assert_int_equal(shutdown(s[1], SHUT_WR), 0);
        if (death) {
            loop_fd_set(l, &w, LOOP_NO_RDHUP);
            close(s[1]);
        }
        loop_run(l);
        assert_true(seen_events & LOOP_HANGUP);
        assert_int_equal(!!(seen_events & LOOP_DEAD), death);
        close(s[0]);
        if (!death)
            close(s[1]);
        loop_destroy(l);
    }
}

/* What is posted after the loop has stopped still runs, in loop_destroy. */
static void test_destroy_runs_posted(void **state)
{
    (void)state;
    struct loop *l = make_loop();
    struct loop_task p = {.run = task_p};
    trace_n = 0;
    loop_stop(l);
    loop_run(l);
    loop_post(l, &p);
    loop_destroy(l);
    assert_string_equal(trace, "p");
    loop_destroy(NULL);
}

/* A burst leaves a sleeping loop asleep until its end; the loop's own object goes with it. */
static _Atomic int burst_ran, local_freed;
static void burst_task(struct loop_task *t)
{
    (void)t;
    if (++burst_ran == 3)
        loop_stop(stop_me);
}
static void free_local(void *local)
{
    local_freed += *(int *)local;
}

static void test_burst(void **state)
{
    (void)state;
    struct loop *l = stop_me = make_loop();
    struct loop_task t[3] = {{.run = burst_task}, {.run = burst_task}, {.run = burst_task}};
    struct os_thread thread;
    struct error err;
    int local = 7;
    assert_null(loop_local(l, LOOP_SLOT_INFER));
    loop_set_local(l, LOOP_SLOT_INFER, &local, free_local);
    assert_ptr_equal(loop_local(l, LOOP_SLOT_INFER), &local);
    assert_int_equal(os_thread_start(&thread, "loop", run_loop, l, &err), 0);
    os_sleep_ns(50 * MS); /* it sleeps by now */
    loop_burst_begin(l);
    for (int i = 0; i < 3; i++)
        loop_burst_post(l, &t[i]);
    os_sleep_ns(20 * MS);
    assert_int_equal(burst_ran, 0);
    loop_burst_end(l);
    os_thread_join(&thread);
    assert_int_equal(burst_ran, 3);
    loop_destroy(l);
    assert_int_equal(local_freed, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timers),  cmocka_unit_test(test_post),
        cmocka_unit_test(test_wake_up), cmocka_unit_test(test_phases_and_removal),
        cmocka_unit_test(test_hangup),  cmocka_unit_test(test_destroy_runs_posted),
        cmocka_unit_test(test_burst),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
