/* test_limit.c: the adaptive limit under a clock of our own. Expected figures are computed by hand from the formula in limit.h. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "base/size.h"
#include "edge/limit.h"

#define MS 1000000ull
#define S  (1000 * MS)

static struct limit_options options(uint32_t least, uint32_t most, uint32_t burst)
{
    return (struct limit_options){
        .adaptive = true, .least = least, .most = most, .burst = burst, .tolerance = 2, .epoch_ns = 30 * S};
}

static bool begin(struct limit *l, enum limit_class class)
{
    bool shared;
    return limit_begin(l, class, 0, &shared);
}

static uint32_t fill(struct limit *l, enum limit_class class)
{
    uint32_t n = 0;
    while (begin(l, class))
        n++;
    return n;
}

/* One whole window of answers that took `latency` each, of which the run took `run`. */
static void window(struct limit *l, uint64_t *now, uint64_t latency, uint64_t run, uint64_t size)
{
    for (int i = 0; i < 10; i++) {
        limit_sample(l, latency, run, size, *now);
        *now += i < 8 ? MS : LIMIT_WINDOW_NS;
    }
    *now += MS;
}

static void assert_close(double a, double b)
{
    if (fabs(a - b) > 1e-3 * fabs(b))
        fail_msg("%f is not %f", a, b);
}

static void test_burst(void **state)
{
    (void)state;
    struct limit l;
    struct limit_options o = options(1, 1000, UINT32_MAX);
    limit_init(&l, &o);
    assert_int_equal(limit_now(&l), 20);
    assert_int_equal(fill(&l, LIMIT_NORMAL), 25); /* and a quarter */
    for (int i = 0; i < 15; i++) {
        limit_end(&l, LIMIT_NORMAL, 0, false);
        if (i >= 5) {
            assert_true(begin(&l, LIMIT_NORMAL)); /* below the limit */
            limit_end(&l, LIMIT_NORMAL, 0, false);
        }
    }
    assert_int_equal(fill(&l, LIMIT_NORMAL), 10); /* from 10 to 20: the burst is used up */
    for (int i = 0; i < 11; i++)
        limit_end(&l, LIMIT_NORMAL, 0, false);
    assert_int_equal(fill(&l, LIMIT_NORMAL), 11 + 5); /* less than half was under way: there is a new one */
}

static void test_it_follows_the_gradient(void **state)
{
    (void)state;
    struct limit l;
    struct limit_options o = options(1, 1000, 0);
    uint64_t now = S;
    limit_init(&l, &o);
    assert_int_equal(fill(&l, LIMIT_NORMAL), 20);
    window(&l, &now, 40 * MS, 10 * MS, 1);
    assert_close(l.gradient, 0.5);  /* 2 * 10 / 40 */
    assert_close(l.limit, 18.8944); /* 0.8 * 20 + 0.2 * (0.5 * 20 + sqrt(20)) */
    window(&l, &now, 1000 * MS, 10 * MS, 1);
    assert_close(l.gradient, 0.5); /* never less at once */
    window(&l, &now, 15 * MS, 10 * MS, 1);
    assert_close(l.gradient, 1);
}

static void test_it_rises_only_when_used(void **state)
{
    (void)state;
    struct limit l;
    struct limit_options o = options(1, 1000, 0);
    uint64_t now = S;
    limit_init(&l, &o);
    for (int i = 0; i < 9; i++)
        assert_true(begin(&l, LIMIT_NORMAL));
    window(&l, &now, 10 * MS, 10 * MS, 1);
    assert_close(l.limit, 20); /* nine of twenty: nobody needs more */
    assert_true(begin(&l, LIMIT_NORMAL));
    window(&l, &now, 10 * MS, 10 * MS, 1);
    assert_close(l.limit, 20.8944); /* 16 + 0.2 * (20 + sqrt(20)) */
}

/* One instance, one request at a time: with L under way each takes L runs. L = 2 + sqrt(L) has the solution 4. */
static void test_it_settles_where_the_formula_says(void **state)
{
    (void)state;
    for (int from = 0; from < 2; from++) {
        struct limit l;
        struct limit_options o = options(1, 1000, 0);
        uint64_t now = S;
        limit_init(&l, &o);
        l.limit = from ? 200 : 1;
        l.in_flight[LIMIT_NORMAL] = 1000;
        for (int i = 0; i < 400; i++)
            window(&l, &now, (uint64_t)(l.limit * 10.0 * MS), 10 * MS, 1);
        assert_true(l.limit > 3.9 && l.limit < 4.1);
    }
}

/* A batch of sixteen takes four times as long as one of one, and is no congestion: the limit stays above one batch that runs and one that waits. */
static void test_batches_are_not_congestion(void **state)
{
    (void)state;
    struct limit l;
    struct limit_options o = options(1, 1000, 0);
    uint64_t now = S;
    limit_init(&l, &o);
    l.in_flight[LIMIT_NORMAL] = 1000;
    window(&l, &now, 10 * MS, 10 * MS, 1); /* alone at first */
    for (int i = 0; i < 400; i++)          /* batches of 16: with L under way each waits for L / 16 of them */
        window(&l, &now, (uint64_t)(MAX_OF(l.limit / 16, 1.0) * 40 * MS), 40 * MS, 16);
    assert_close(l.limit, 38.1789); /* L = 2 * 16 + sqrt(L) */
}

static void test_bounds(void **state)
{
    (void)state;
    struct limit l;
    struct limit_options o = options(8, 24, 0);
    uint64_t now = S;
    limit_init(&l, &o);
    l.in_flight[LIMIT_NORMAL] = 1000;
    for (int i = 0; i < 100; i++)
        window(&l, &now, 900 * MS, 10 * MS, 1);
    assert_int_equal(limit_now(&l), 8);
    for (int i = 0; i < 100; i++)
        window(&l, &now, 10 * MS, 10 * MS, 1);
    assert_int_equal(limit_now(&l), 24);
    o.most = 10;
    limit_configure(&l, &o);
    assert_int_equal(limit_now(&l), 10);
    o.adaptive = false;
    o.most = 77;
    limit_configure(&l, &o);
    window(&l, &now, 900 * MS, 10 * MS, 1);
    assert_int_equal(limit_now(&l), 77);
}

/* A model that became slower for good is believed after two epochs, and no sooner. */
static void test_the_minimum_is_measured_again(void **state)
{
    (void)state;
    struct limit l;
    struct limit_options o = options(1, 1000, 0);
    uint64_t now = S;
    limit_init(&l, &o);
    window(&l, &now, 10 * MS, 10 * MS, 1);
    window(&l, &now, 60 * MS, 60 * MS, 1);
    assert_close(l.gradient, 0.5); /* 2 * 10 / 60, at least 1/2 */
    now += 30 * S;
    window(&l, &now, 30 * MS, 30 * MS, 1);
    assert_close(l.gradient, 2.0 / 3); /* 2 * 10 / 30: the epoch before still counts */
    now += 30 * S;
    window(&l, &now, 40 * MS, 30 * MS, 1);
    assert_close(l.gradient, 1); /* 2 * 30 / 40: ten is forgotten */
    now += 61 * S;               /* a whole epoch without a request: nothing is left */
    window(&l, &now, 500 * MS, 500 * MS, 1);
    assert_close(l.gradient, 1);
}

/* Where run and wait can't be told apart, an epoch at the limit ends with a window at half of it. */
static void test_a_blind_minimum_is_probed(void **state)
{
    (void)state;
    struct limit l;
    struct limit_options o = options(4, 1000, 0);
    uint64_t now = S;
    limit_init(&l, &o);
    fill(&l, LIMIT_NORMAL);
    window(&l, &now, 10 * MS, 0, 100);
    while (begin(&l, LIMIT_NORMAL)) /* reached, in this epoch */
        ;
    double before = l.limit;
    now += 30 * S;
    limit_sample(&l, 10 * MS, 0, 100, now);
    assert_close(l.limit, before / 2);
    window(&l, &now, 8 * MS, 0, 100);
    assert_close(l.limit, before);              /* restored, whatever it measured */
    assert_int_equal(l.least_ns[0][6], 8 * MS); /* 64 <= 100 < 128 */
    now += 30 * S;
    limit_sample(&l, 10 * MS, 0, 100, now); /* the limit was not reached in this one */
    assert_close(l.limit, before);
}

static void test_the_least_important_are_refused_first(void **state)
{
    (void)state;
    struct limit l;
    struct limit_options o = options(1, 20, 0);
    limit_init(&l, &o);
    for (int i = 0; i < 15; i++)
        assert_true(begin(&l, LIMIT_LOW));
    for (int i = 0; i < 10; i++)
        assert_true(begin(&l, LIMIT_HIGH));
    assert_false(begin(&l, LIMIT_LOW)); /* 25 count for it */
    assert_true(begin(&l, LIMIT_NORMAL));
    assert_true(begin(&l, LIMIT_CORE));
    assert_int_equal(limit_counted(&l, LIMIT_CORE), 1);
    assert_int_equal(limit_counted(&l, LIMIT_HIGH), 11);
    assert_int_equal(limit_counted(&l, LIMIT_LOW), 27);
    assert_int_equal(fill(&l, LIMIT_CORE), 19); /* its own twenty, whatever the others have */
    assert_false(begin(&l, LIMIT_HIGH));
}

static void test_a_tenant_cannot_lock_others_out(void **state)
{
    (void)state;
    struct limit l;
    struct limit_options o = options(1, 20, 0);
    bool shared, of_two[20];
    limit_init(&l, &o);
    for (int i = 0; i < 20; i++)
        assert_true(limit_begin(&l, LIMIT_NORMAL, 1, &shared));
    assert_false(limit_begin(&l, LIMIT_NORMAL, 1, &shared));
    assert_false(limit_begin(&l, LIMIT_NORMAL, 0, &shared)); /* nobody's */
    for (int i = 0; i < 10; i++)
        assert_true(limit_begin(&l, LIMIT_NORMAL, 2, &of_two[i])); /* half of twenty */
    assert_false(limit_begin(&l, LIMIT_NORMAL, 2, &shared));
    for (int i = 0; i < 6; i++)
        assert_true(limit_begin(&l, LIMIT_NORMAL, 3, &shared)); /* a third */
    assert_false(limit_begin(&l, LIMIT_NORMAL, 3, &shared));
    for (int i = 0; i < 25; i++) /* the first tenant's twenty, and five of the second: eleven are left of 36 */
        limit_end(&l, LIMIT_NORMAL, i < 20 ? 1 : 2, true);
    assert_int_equal(limit_counted(&l, LIMIT_LOW), 11);
    assert_int_equal(l.shares.active[LIMIT_NORMAL], 2);
    for (int i = 0; i < 9; i++)
        assert_true(limit_begin(&l, LIMIT_NORMAL, 1, &shared)); /* there is room: shares don't matter */
    for (int i = 0; i < 20; i++)                                /* more important ones leave no share */
        assert_true(limit_begin(&l, LIMIT_CORE, 9, &shared));
    assert_false(limit_begin(&l, LIMIT_NORMAL, 4, &shared));
}

/* Against a plain count: tenants come and go in any order, more of them than there are slots. */
static void test_shares_random(void **state)
{
    (void)state;
    static struct limit l;
    struct limit_options o = options(LIMIT_REQUESTS_MAX, LIMIT_REQUESTS_MAX, 0);
    static struct {
        uint64_t tenant;
        bool shared;
    } live[2000];
    static uint32_t count[400];
    size_t n = 0;
    struct rand r;
    rand_init(&r, 11);
    memset(count, 0, sizeof count);
    limit_init(&l, &o);
    for (int step = 0; step < 100000; step++) {
        if (n < COUNT_OF(live) && (n == 0 || rand_below(&r, 100) < (step % 20000 < 10000 ? 60u : 40u))) {
            uint64_t tenant = 1 + rand_below(&r, 400);
            assert_true(limit_begin(&l, LIMIT_NORMAL, tenant, &live[n].shared));
            live[n].tenant = tenant;
            count[tenant - 1] += live[n].shared;
            n++;
        } else {
            size_t i = rand_below(&r, n);
            limit_end(&l, LIMIT_NORMAL, live[i].tenant, live[i].shared);
            count[live[i].tenant - 1] -= live[i].shared;
            live[i] = live[--n];
        }
        if (step % 100)
            continue;
        uint32_t active = 0, sum = 0, have = 0;
        for (size_t t = 0; t < COUNT_OF(count); t++) {
            active += count[t] > 0;
            sum += count[t];
        }
        for (size_t i = 0; i < LIMIT_TENANTS; i++)
            have += l.shares.slots[i].n;
        assert_int_equal(l.shares.active[LIMIT_NORMAL], active);
        assert_int_equal(l.shares.used, active);
        assert_int_equal(have, sum);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_burst),
        cmocka_unit_test(test_it_follows_the_gradient),
        cmocka_unit_test(test_it_rises_only_when_used),
        cmocka_unit_test(test_it_settles_where_the_formula_says),
        cmocka_unit_test(test_batches_are_not_congestion),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_the_minimum_is_measured_again),
        cmocka_unit_test(test_a_blind_minimum_is_probed),
        cmocka_unit_test(test_the_least_important_are_refused_first),
        cmocka_unit_test(test_a_tenant_cannot_lock_others_out),
        cmocka_unit_test(test_shares_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
