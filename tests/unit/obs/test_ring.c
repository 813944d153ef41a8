/* The ring: order, bounds, wrap-around, and many producers at once with every record accounted for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "obs/ring.h"
#include "os/clock.h"
#include "os/thread.h"

static void fills_and_empties_in_order(void **state)
{
    (void)state;
    static struct ring r; /* aligned to a cache line, which gcc 12's fake stacks of the address sanitizer are not */
    uint64_t v;
    assert_true(ring_init(&r, 5, sizeof v));
    assert_int_equal(r.slots, 8);
    assert_false(ring_pop(&r, &v));
    uint64_t next_in = 0, next_out = 0;
    for (int round = 0; round < 100; round++) { /* goes round many times, at every offset */
        for (int i = 0; i < 1 + round % 8; i++, next_in++)
            assert_true(ring_push(&r, &next_in));
        assert_int_equal(ring_length(&r), next_in - next_out);
        while (next_out < next_in) {
            assert_true(ring_pop(&r, &v));
            assert_int_equal(v, next_out++);
        }
        assert_false(ring_pop(&r, &v));
    }
    for (uint64_t i = 0; i < 8; i++)
        assert_true(ring_push(&r, &i));
    assert_false(ring_push(&r, &next_in)); /* full refuses */
    assert_int_equal(ring_length(&r), 8);
    assert_true(ring_pop(&r, &v));
    assert_true(ring_push(&r, &next_in));
    ring_release(&r);
}

static void refuses_absurd_sizes(void **state)
{
    (void)state;
    static struct ring r;
    assert_false(ring_init(&r, SIZE_MAX, 8));
    assert_false(ring_init(&r, 4, SIZE_MAX / 2));
}

enum { PRODUCERS = 4, EACH = 20000 };

struct record {
    uint64_t producer, number, check[6];
};

struct shared {
    struct ring ring;
    _Atomic uint64_t refused;
};

struct producer {
    struct shared *shared;
    uint64_t id;
    struct os_thread thread;
};

static void produce(void *arg)
{
    struct producer *p = arg;
    for (uint64_t i = 0; i < EACH; i++) {
        struct record r = {p->id, i, {0}};
        for (size_t k = 0; k < 6; k++)
            r.check[k] = p->id * 1000000 + i + k;
        if (!ring_push(&p->shared->ring, &r))
            atomic_fetch_add(&p->shared->refused, 1);
    }
}

static void nothing_is_lost_or_torn(void **state)
{
    (void)state;
    struct shared s = {.refused = 0};
    struct producer p[PRODUCERS];
    uint64_t last[PRODUCERS] = {0}, taken = 0;
    assert_true(ring_init(&s.ring, 64, sizeof(struct record)));
    for (size_t i = 0; i < PRODUCERS; i++) {
        p[i] = (struct producer){.shared = &s, .id = i};
        assert_int_equal(os_thread_start(&p[i].thread, "producer", produce, &p[i], NULL), 0);
    }
    while (taken + s.refused < PRODUCERS * EACH) {
        struct record r;
        if (!ring_pop(&s.ring, &r))
            continue;
        taken++;
        assert_true(r.producer < PRODUCERS);
        assert_true(r.number + 1 > last[r.producer]); /* in order for each producer */
        last[r.producer] = r.number + 1;
        for (size_t k = 0; k < 6; k++)
            assert_true(r.check[k] == r.producer * 1000000 + r.number + k);
    }
    for (size_t i = 0; i < PRODUCERS; i++)
        os_thread_join(&p[i].thread);
    assert_int_equal(ring_length(&s.ring), 0);
    assert_true(taken > 0);
    ring_release(&s.ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_and_empties_in_order),
        cmocka_unit_test(refuses_absurd_sizes),
        cmocka_unit_test(nothing_is_lost_or_torn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
