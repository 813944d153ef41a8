/* test_pool.c: who may be picked: service, checks, ejection, suspicion, levels, zones, room, slow start, membership. */
#include "route/rig.h"

#include "route/retry.h"

static int pick_status(struct rig *r, const struct pick_request *q, struct error *err)
{
    static const struct pick_request plain;
    struct pick k;
    int rc = pool_pick(r->p, q ? q : &plain, r->now, &k, err);
    if (!rc)
        pool_done(r->p, &k, PICK_CANCELLED, r->now);
    return rc;
}

/* How many of `n` requests each got. */
static void shares(struct rig *r, unsigned n, unsigned got[256])
{
    memset(got, 0, 256 * sizeof *got);
    for (unsigned i = 0; i < n; i++)
        got[(unsigned char)rig_ask(r, NULL, 0, PICK_OK)]++;
}

static void fail_until_ejected(struct rig *r, char who)
{
    for (int i = 0; i < 1000 && !rig_view(r, who).ejected; i++) {
        struct pick k = rig_pick(r, NULL);
        pool_done(r->p, &k, rig_name(&k) == who ? PICK_GATEWAY_FAILURE : PICK_OK, r->now);
    }
    assert_true(rig_view(r, who).ejected);
}

/* Five in a row eject, whatever lies between them in time; for 30 s and at most a tenth more; then 60 s. */
static void ejection_and_readmission(void **state)
{
    (void)state;
    struct rig r;
    unsigned got[256];
    rig_init(&r, &(struct pool_options){0});
    rig_equal(&r, 3);
    for (int i = 0; i < 5; i++) {
        assert_false(rig_view(&r, 'a').ejected);
        while (rig_ask(&r, NULL, 11 * SEC, PICK_GATEWAY_FAILURE) != 'a')
            ;        /* everybody fails, each sweep comes between two failures */
        if (i < 4) { /* the others are saved by one success */
            for (int k = 0; k < 3; k++) {
                struct pick p = rig_pick(&r, NULL);
                pool_done(r.p, &p, rig_name(&p) == 'a' ? PICK_CANCELLED : PICK_OK, r.now);
            }
            pool_tick(r.p, r.now);
        }
    }
    struct upstream_view v = rig_view(&r, 'a');
    assert_true(v.ejected);
    assert_in_range(v.ejected_until_ns - r.now, 30 * SEC, 33 * SEC);
    shares(&r, 100, got);
    assert_int_equal(got['a'], 0);
    r.now = v.ejected_until_ns;
    pool_tick(r.p, r.now);
    assert_int_equal(r.events[POOL_READMITTED], 1);
    shares(&r, 99, got);
    assert_int_equal(got['a'], 33);
    fail_until_ejected(&r, 'a');
    assert_in_range(rig_view(&r, 'a').ejected_until_ns - r.now, 60 * SEC, 66 * SEC);
    rig_release(&r);
}

static void a_check_does_not_readmit(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &(struct pool_options){0});
    rig_equal(&r, 2);
    fail_until_ejected(&r, 'b');
    for (int i = 0; i < 10; i++)
        pool_checked(r.p, rig_view(&r, 'b').upstream, true, r.now);
    assert_true(rig_view(&r, 'b').ejected);
    rig_release(&r);
}

/* Everything fails: one upstream stays by rule, and it is reported. */
static void min_healthy_is_kept(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &(struct pool_options){.min_healthy = 2});
    rig_equal(&r, 3);
    for (int i = 0; i < 300; i++)
        rig_ask(&r, NULL, 0, PICK_GATEWAY_FAILURE);
    unsigned usable = 0;
    for (char c = 'a'; c <= 'c'; c++)
        usable += rig_view(&r, c).usable;
    assert_int_equal(usable, 2);
    assert_true(r.events[POOL_EJECTION_REFUSED] > 0);
    assert_int_equal(r.events[POOL_EJECTED], 1);
    rig_release(&r);
}

/* The one that was left goes down by its checks: the ejected one is used rather than nobody, and it is said. */
static void last_resort(void **state)
{
    (void)state;
    struct rig r;
    struct error err;
    rig_init(&r, &(struct pool_options){.name = "p"});
    rig_equal(&r, 2);
    fail_until_ejected(&r, 'a');
    pool_checked(r.p, rig_view(&r, 'b').upstream, false, r.now);
    struct pick k = rig_pick(&r, NULL);
    assert_int_equal(rig_name(&k), 'a');
    assert_true(k.last_resort);
    assert_int_equal(r.events[POOL_LAST_RESORT], 1);
    pool_done(r.p, &k, PICK_OK, r.now);
    pool_checked(r.p, rig_view(&r, 'a').upstream, false, r.now);
    assert_int_equal(pick_status(&r, NULL, &err), STATUS_UNAVAILABLE);
    assert_string_equal(err.text, "no upstream of pool \"p\" is in service");
    rig_release(&r);
}

/* nginx: max_fails within fail_timeout takes it out for fail_timeout. */
static void nginx_max_fails(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &(struct pool_options){0});
    struct upstream_options list[] = {{.name = STR("a"), .max_fails = 2, .fail_timeout_ns = 10 * SEC}, {.name = STR("b")}};
    rig_set(&r, list, 2);
    while (rig_ask(&r, NULL, 0, PICK_GATEWAY_FAILURE) != 'a')
        ;
    r.now += 11 * SEC;
    while (rig_ask(&r, NULL, 0, PICK_GATEWAY_FAILURE) != 'a')
        ;
    assert_false(rig_view(&r, 'a').ejected); /* the first is out of the window */
    r.now += 9 * SEC;
    while (rig_ask(&r, NULL, 0, PICK_GATEWAY_FAILURE) != 'a')
        ;
    assert_int_equal(rig_view(&r, 'a').ejected_until_ns, r.now + 10 * SEC);
    rig_release(&r);
}

/* Six hosts, one with half its answers 500: below mean - 1.9 sigma. Rates: five of 1, one of 0.5: mean 0.917, sigma 0.186,
 * threshold 0.563. */
static void success_rate(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &(struct pool_options){0});
    rig_equal(&r, 6);
    pool_tick(r.p, r.now);
    for (int i = 0; i < 6 * 100; i++) {
        struct pick k = rig_pick(&r, NULL);
        pool_done(r.p, &k, rig_name(&k) == 'f' && i % 12 < 6 ? PICK_SERVER_ERROR : PICK_OK, r.now);
    }
    r.now += 10 * SEC;
    pool_tick(r.p, r.now);
    assert_true(rig_view(&r, 'f').ejected);
    assert_string_equal(r.last_reason, "success rate 0.500, the pool's mean is 0.917");
    assert_int_equal(r.events[POOL_EJECTED], 1);
    rig_release(&r);
}

static void slow_host(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &(struct pool_options){0});
    rig_equal(&r, 3);
    pool_tick(r.p, r.now);
    for (int i = 0; i < 3 * 50; i++) {
        struct pick k = rig_pick(&r, NULL);
        pool_done(r.p, &k, PICK_OK, k.at_ns + (rig_name(&k) == 'b' ? 51 * MS : 10 * MS));
    }
    r.now += 10 * SEC;
    pool_tick(r.p, r.now);
    assert_true(rig_view(&r, 'b').ejected);
    assert_string_equal(r.last_reason, "answers take 51.0 ms, the median upstream's 10.0 ms");
    rig_release(&r);
}

/* A try that timed out makes its upstream suspect: avoided at once, until a check passes. */
static void suspects_are_avoided(void **state)
{
    (void)state;
    struct rig r;
    unsigned got[256];
    rig_init(&r, &(struct pool_options){0});
    rig_equal(&r, 2);
    while (rig_ask(&r, NULL, 0, PICK_TIMEOUT) != 'a') /* both may be suspect by now; b answers again */
        ;
    pool_checked(r.p, rig_view(&r, 'b').upstream, true, r.now);
    shares(&r, 50, got);
    assert_int_equal(got['a'], 0);
    pool_checked(r.p, rig_view(&r, 'a').upstream, true, r.now);
    shares(&r, 50, got);
    assert_int_equal(got['a'], 25);
    rig_release(&r);
}

/* fall 3, rise 2; the very first check decides alone. */
static void checks(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &(struct pool_options){0});
    rig_equal(&r, 2);
    struct upstream *a = rig_view(&r, 'a').upstream, *b = rig_view(&r, 'b').upstream;
    pool_checked(r.p, a, true, r.now);
    pool_checked(r.p, b, false, r.now);
    assert_true(rig_view(&r, 'b').down);
    pool_checked(r.p, a, false, r.now);
    pool_checked(r.p, a, false, r.now);
    pool_checked(r.p, a, true, r.now);
    pool_checked(r.p, a, false, r.now);
    pool_checked(r.p, a, false, r.now);
    assert_false(rig_view(&r, 'a').down);
    pool_checked(r.p, a, false, r.now);
    assert_true(rig_view(&r, 'a').down);
    pool_checked(r.p, b, true, r.now);
    assert_true(rig_view(&r, 'b').down);
    pool_checked(r.p, b, true, r.now);
    assert_false(rig_view(&r, 'b').down);
    rig_release(&r);
}

/* Ten of ten primaries: no backup is used. Seven of ten: 1.4 x 0.7 = 0.98 of the traffic stays. Five: 0.7. None: all to the backups. */
static void levels_spill(void **state)
{
    (void)state;
    struct rig r;
    static const char names[] = "abcdefghijxy";
    struct upstream_options list[12] = {0};
    rig_init(&r, &(struct pool_options){.seed = 3});
    for (int i = 0; i < 12; i++)
        list[i] = (struct upstream_options){.name = {names + i, 1}, .level = i >= 10};
    rig_set(&r, list, 12);
    static const struct {
        int healthy;
        unsigned least, most; /* of 4000 to the backups; four deviations */
    } cases[] = {{10, 0, 0}, {7, 45, 115}, {5, 1084, 1316}, {0, 4000, 4000}};
    for (size_t c = 0; c < COUNT_OF(cases); c++) {
        unsigned got[256];
        for (int i = 0; i < 10; i++) {
            struct upstream_report rep = {.has_says = true, .says = i < cases[c].healthy ? UPSTREAM_READY : UPSTREAM_DRAINING};
            pool_reported(r.p, rig_view(&r, names[i]).upstream, &rep, r.now);
        }
        shares(&r, 4000, got);
        assert_in_range(got['x'] + got['y'], cases[c].least, cases[c].most);
    }
    rig_release(&r);
}

/* Two zones of two. Even: all stays local. The local zone with one of three weights: it keeps (1/4) / (1/2) of its traffic. A zone with one
 * usable upstream turns zones off. */
static void zones(void **state)
{
    (void)state;
    struct rig r;
    unsigned got[256];
    rig_init(&r, &(struct pool_options){.local_zone = 1, .seed = 5});
    struct upstream_options list[] = {{.name = STR("a"), .zone = 1},
                                      {.name = STR("b"), .zone = 1},
                                      {.name = STR("c"), .zone = 2},
                                      {.name = STR("d"), .zone = 2}};
    rig_set(&r, list, 4);
    shares(&r, 400, got);
    assert_int_equal(got['a'] + got['b'], 400);
    list[2].weight = list[3].weight = 3;
    rig_set(&r, list, 4);
    shares(&r, 4000, got);
    assert_in_range(got['a'] + got['b'], 1873, 2127);
    list[2].weight = list[3].weight = 1;
    rig_set(&r, list, 4);
    fail_until_ejected(&r, 'a');
    shares(&r, 300, got);
    assert_int_equal(got['b'], 100);
    rig_release(&r);
}

static void room(void **state)
{
    (void)state;
    struct rig r;
    struct error err;
    rig_init(&r, &(struct pool_options){.name = "p"});
    rig_set(&r, (struct upstream_options[]){{.name = STR("a"), .max_conns = 1}, {.name = STR("b"), .max_conns = 2}}, 2);
    struct pick k[3];
    for (int i = 0; i < 3; i++)
        k[i] = rig_pick(&r, NULL);
    assert_int_equal(pick_status(&r, NULL, &err), STATUS_EXHAUSTED);
    assert_string_equal(err.text, "all 2 upstreams of pool \"p\" that can be used are full");
    for (int i = 0; i < 3; i++)
        pool_done(r.p, &k[i], PICK_OK, r.now);
    assert_int_equal(pick_status(&r, NULL, &err), 0);
    rig_release(&r);
}

static void tried_ones_are_left_out(void **state)
{
    (void)state;
    struct rig r;
    struct error err;
    rig_init(&r, &(struct pool_options){.name = "p"});
    rig_equal(&r, 2);
    struct pick_request q = {.tried = {rig_view(&r, 'a').upstream}, .n_tried = 1};
    for (int i = 0; i < 10; i++)
        assert_int_equal(rig_ask(&r, &q, 0, PICK_OK), 'b');
    q.tried[q.n_tried++] = rig_view(&r, 'b').upstream;
    assert_int_equal(pick_status(&r, &q, &err), STATUS_UNAVAILABLE);
    assert_string_equal(err.text, "every upstream of pool \"p\" that is in service was tried already");
    rig_release(&r);
}

/* One that joins a running pool starts with a tenth of its weight: 0.1 / 1.1 of the requests; halfway 0.5 / 1.5. */
static void slow_start(void **state)
{
    (void)state;
    struct rig r;
    unsigned got[256];
    rig_init(&r, &(struct pool_options){.slow_start_ns = 10 * SEC});
    rig_equal(&r, 1);
    assert_true(rig_view(&r, 'a').share == 1); /* a pool that begins has nobody to be slow beside */
    rig_equal(&r, 2);
    shares(&r, 1100, got);
    assert_in_range(got['b'], 99, 101);
    r.now += 5 * SEC;
    shares(&r, 1500, got);
    assert_in_range(got['b'], 499, 501);
    r.now += 5 * SEC;
    shares(&r, 1000, got);
    assert_in_range(got['b'], 499, 501);
    rig_release(&r);
}

/* What is in flight on an upstream that is taken out ends in peace; one that stays keeps its state. */
static void membership(void **state)
{
    (void)state;
    struct rig r;
    struct error err;
    struct upstream_view v;
    rig_init(&r, &(struct pool_options){0});
    rig_equal(&r, 3);
    fail_until_ejected(&r, 'a');
    struct pick k = rig_pick(&r, &(struct pick_request){.tried = {rig_view(&r, 'b').upstream}, .n_tried = 1});
    assert_int_equal(rig_name(&k), 'c');
    rig_equal(&r, 2);
    assert_true(rig_view(&r, 'a').ejected);
    for (int i = 0; i < 10; i++)
        assert_int_equal(rig_ask(&r, NULL, 0, PICK_OK), 'b');
    assert_true(pool_look(r.p, 2, r.now, &v)); /* c is still there, for its pick */
    pool_done(r.p, &k, PICK_OK, r.now);
    assert_false(pool_look(r.p, 2, r.now, &v));
    struct upstream_options twice[] = {{.name = STR("x")}, {.name = STR("x")}}, heavy[] = {{.name = STR("x"), .weight = 1001}};
    assert_int_equal(pool_set(r.p, twice, 2, r.now, &err), STATUS_INVALID);
    assert_string_equal(err.text, "upstream \"x\" is listed twice; use its weight");
    assert_int_equal(pool_set(r.p, heavy, 1, r.now, &err), STATUS_INVALID);
    assert_string_equal(err.text, "upstream \"x\" has weight 1001; a weight is 1 to 1000");
    assert_true(pool_look(r.p, 1, r.now, &v)); /* as before */
    rig_release(&r);
}

/* 20 % of the active requests, at least 3. */
static void retry_budget(void **state)
{
    (void)state;
    struct retry_budget b;
    retry_budget_init(&b, 0, 0);
    for (int i = 0; i < 3; i++)
        assert_true(retry_begin(&b));
    assert_false(retry_begin(&b));
    for (int i = 0; i < 100; i++)
        retry_request_begin(&b);
    for (int i = 3; i < 20; i++)
        assert_true(retry_begin(&b));
    assert_false(retry_begin(&b));
    assert_int_equal(b.refused, 2);
    retry_end(&b);
    assert_true(retry_begin(&b));
    for (int i = 0; i < 100; i++)
        retry_request_end(&b);
    assert_false(retry_begin(&b));
}

/* A bound over all: the third has to wait wherever there is room, until one of the two is over. */
static void max_requests_of_the_pool(void **state)
{
    (void)state;
    struct rig r;
    struct error err;
    rig_init(&r, &(struct pool_options){.name = "p", .max_requests = 2});
    rig_equal(&r, 4);
    struct pick a = rig_pick(&r, NULL), b = rig_pick(&r, NULL);
    assert_int_equal(pick_status(&r, NULL, &err), STATUS_EXHAUSTED);
    assert_string_equal(err.text, "pool \"p\" has its max_requests in flight");
    pool_done(r.p, &a, PICK_GATEWAY_FAILURE, r.now);
    assert_int_equal(pick_status(&r, NULL, &err), 0);
    pool_done(r.p, &b, PICK_OK, r.now);
    rig_release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(max_requests_of_the_pool),
        cmocka_unit_test(ejection_and_readmission),
        cmocka_unit_test(a_check_does_not_readmit),
        cmocka_unit_test(min_healthy_is_kept),
        cmocka_unit_test(last_resort),
        cmocka_unit_test(nginx_max_fails),
        cmocka_unit_test(success_rate),
        cmocka_unit_test(slow_host),
        cmocka_unit_test(suspects_are_avoided),
        cmocka_unit_test(checks),
        cmocka_unit_test(levels_spill),
        cmocka_unit_test(zones),
        cmocka_unit_test(room),
        cmocka_unit_test(tried_ones_are_left_out),
        cmocka_unit_test(slow_start),
        cmocka_unit_test(membership),
        cmocka_unit_test(retry_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
