/* test_waitlist.c: who is next of those that wait, who has to go when it is full, and that nobody is lost. */
#include "route/rig.h"

#include "base/rand.h"
#include "route/waitlist.h"

struct person {
    struct waiter w;
    int id;
};

static struct waitlist *list_new(uint32_t max)
{
    struct waitlist *l = test_malloc(sizeof *l);
    waitlist_init(l, max);
    return l;
}

static void person_init(struct person *p, int id, enum wait_class class, uint64_t tenant, uint64_t cost)
{
    waiter_init(&p->w);
    p->id = id;
    p->w.class = class;
    p->w.tenant = tenant;
    p->w.cost = cost;
}

static int next(struct waitlist *l, uint64_t now)
{
    struct waiter *w = waitlist_next(l);
    if (w)
        waitlist_served(l, now);
    waitlist_validate(l);
    return w ? CONTAINER_OF(w, struct person, w)->id : -1;
}

static int add(struct waitlist *l, struct person *p)
{
    struct waiter *out;
    if (!waitlist_add(l, &p->w, &out))
        return -2;
    waitlist_validate(l);
    return out ? CONTAINER_OF(out, struct person, w)->id : -1;
}

static void in_order_of_arrival(void **state)
{
    (void)state;
    struct waitlist *l = list_new(10);
    struct person p[4];
    for (int i = 0; i < 4; i++) {
        person_init(&p[i], i, WAIT_NORMAL, 7, 1);
        assert_int_equal(add(l, &p[i]), -1);
    }
    waitlist_remove(l, &p[1].w); /* a client left */
    waitlist_remove(l, &p[1].w);
    assert_int_equal(next(l, 1), 0);
    struct waiter *out;
    assert_true(waitlist_add(l, &p[0].w, &out)); /* somebody was faster: it keeps its place */
    assert_int_equal(next(l, 2), 0);
    assert_int_equal(next(l, 3), 2);
    assert_int_equal(next(l, 4), 3);
    assert_int_equal(next(l, 5), -1);
    test_free(l);
}

/* Classes strictly. */
static void the_important_first(void **state)
{
    (void)state;
    struct waitlist *l = list_new(10);
    struct person p[4];
    for (int i = 0; i < 4; i++) {
        person_init(&p[i], i, (enum wait_class)(WAIT_LOW - i), 1, 1);
        assert_int_equal(add(l, &p[i]), -1);
    }
    for (int i = 3; i >= 0; i--)
        assert_int_equal(next(l, 1), i);
    test_free(l);
}

/* A tenant with 50 waiting and one that comes with two afterwards: its first is at most one turn behind, its second one more. */
static void tenants_take_turns(void **state)
{
    (void)state;
    struct waitlist *l = list_new(100);
    struct person a[50], b[2];
    for (int i = 0; i < 50; i++) {
        person_init(&a[i], i, WAIT_NORMAL, 1, 1);
        add(l, &a[i]);
    }
    for (int i = 0; i < 10; i++)
        assert_int_equal(next(l, 1), i);
    for (int i = 0; i < 2; i++) {
        person_init(&b[i], 100 + i, WAIT_NORMAL, 2, 1);
        add(l, &b[i]);
    }
    int at[2] = {-1, -1};
    for (int turn = 0; turn < 6; turn++) {
        int who = next(l, 1);
        if (who >= 100)
            at[who - 100] = turn;
    }
    assert_in_range(at[0], 0, 1);
    assert_in_range(at[1], 1, 3);
    test_free(l);
}

/* By cost: who asks for requests ten times as dear gets a tenth as many turns. */
static void turns_go_by_cost(void **state)
{
    (void)state;
    struct waitlist *l = list_new(400);
    struct person *p = test_malloc(400 * sizeof *p);
    for (int i = 0; i < 400; i++) {
        person_init(&p[i], i, WAIT_NORMAL, (uint64_t)(1 + i % 2), i % 2 ? 10 : 1);
        add(l, &p[i]);
    }
    int dear = 0;
    for (int i = 0; i < 110; i++)
        dear += next(l, 1) % 2;
    assert_in_range(dear, 9, 11);
    test_free(p);
    test_free(l);
}

/* Full: the more important and the ones with fewer push others out, from the end; equals are refused. */
static void a_full_list(void **state)
{
    (void)state;
    struct waitlist *l = list_new(4);
    struct person p[10];
    for (int i = 0; i < 4; i++) {
        person_init(&p[i], i, WAIT_NORMAL, 1, 1);
        assert_int_equal(add(l, &p[i]), -1);
    }
    person_init(&p[4], 4, WAIT_NORMAL, 1, 1);
    assert_int_equal(add(l, &p[4]), -2); /* the same tenant */
    person_init(&p[5], 5, WAIT_LOW, 2, 1);
    assert_int_equal(add(l, &p[5]), -2); /* less important */
    person_init(&p[6], 6, WAIT_NORMAL, 2, 1);
    assert_int_equal(add(l, &p[6]), 3); /* 4 of one tenant against none: its latest goes */
    person_init(&p[7], 7, WAIT_NORMAL, 2, 1);
    assert_int_equal(add(l, &p[7]), 2); /* 3 against 1 */
    person_init(&p[8], 8, WAIT_NORMAL, 2, 1);
    assert_int_equal(add(l, &p[8]), -2); /* 2 against 2 */
    person_init(&p[9], 9, WAIT_CORE, 1, 1);
    assert_int_equal(add(l, &p[9]), 1);
    assert_int_equal(next(l, 1), 9);
    int left = 0;
    while (next(l, 1) >= 0)
        left++;
    assert_int_equal(left, 3);
    struct waitlist *none = list_new(0);
    person_init(&p[0], 0, WAIT_CORE, 1, 1);
    assert_int_equal(add(none, &p[0]), -2);
    test_free(none);
    test_free(l);
}

/* Ten milliseconds between two grants, five wait: about 60 for the next. Less important ones don't count for the more important. */
static void how_long(void **state)
{
    (void)state;
    struct waitlist *l = list_new(100);
    struct person p[40];
    assert_int_equal(waitlist_expect_ns(l, WAIT_NORMAL), 0);
    for (int i = 0; i < 40; i++) {
        person_init(&p[i], i, WAIT_NORMAL, 1, 1);
        add(l, &p[i]);
    }
    for (uint64_t i = 1; i <= 35; i++)
        next(l, i * 10 * MS);
    assert_in_range(waitlist_expect_ns(l, WAIT_NORMAL), 59 * MS, 61 * MS);
    assert_in_range(waitlist_expect_ns(l, WAIT_CORE), 9 * MS, 11 * MS);
    test_free(l);
}

/* Ten thousand steps at random: every waiter leaves exactly once, by one of the three doors. */
static void nobody_is_lost(void **state)
{
    (void)state;
    enum { N = 64 };
    struct waitlist *l = list_new(20);
    struct person p[N];
    bool waits[N] = {false};
    struct rand r;
    rand_init(&r, 1);
    for (int i = 0; i < N; i++)
        person_init(&p[i], i, WAIT_NORMAL, 0, 1);
    for (int step = 0; step < 10000; step++) {
        int i = (int)rand_below(&r, N);
        if (!waits[i]) {
            person_init(&p[i], i, (enum wait_class)rand_below(&r, WAIT_CLASSES), rand_below(&r, 5), rand_below(&r, 100));
            int out = add(l, &p[i]);
            waits[i] = out != -2;
            if (out >= 0) {
                assert_true(waits[out] && out != i);
                waits[out] = false;
            }
        } else if (rand_below(&r, 2)) {
            waitlist_remove(l, &p[i].w);
            waits[i] = false;
        } else {
            int out = next(l, (uint64_t)step);
            assert_true(out >= 0 && waits[out]);
            waits[out] = false;
        }
        unsigned n = 0;
        for (int k = 0; k < N; k++) {
            assert_int_equal(waits[k], waiter_waits(&p[k].w));
            n += waits[k];
        }
        assert_int_equal(n, l->n);
        waitlist_validate(l);
    }
    test_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_order_of_arrival), cmocka_unit_test(the_important_first), cmocka_unit_test(tenants_take_turns),
        cmocka_unit_test(turns_go_by_cost),    cmocka_unit_test(a_full_list),         cmocka_unit_test(how_long),
        cmocka_unit_test(nobody_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
