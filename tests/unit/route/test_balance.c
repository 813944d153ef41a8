/* test_balance.c: the policies. Sequences and bounds by hand from the rules they cite. */
#include "route/rig.h"

#include "base/map.h"

static struct upstream_options weighted(const char *name, uint32_t weight)
{
    return (struct upstream_options){.name = str_of(name), .weight = weight};
}

/* nginx's own example for its smooth round robin. */
static void round_robin_is_smooth(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &(struct pool_options){.policy = BALANCE_ROUND_ROBIN});
    rig_set(&r, (struct upstream_options[]){weighted("a", 5), weighted("b", 1), weighted("c", 1)}, 3);
    char got[15] = {0};
    for (int i = 0; i < 14; i++)
        got[i] = rig_ask(&r, NULL, 0, PICK_OK);
    assert_string_equal(got, "aabacaaaabacaa");
    rig_release(&r);
}

static void least_conn_counts_in_flight(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &(struct pool_options){.policy = BALANCE_LEAST_CONN});
    rig_set(&r, (struct upstream_options[]){weighted("a", 2), weighted("b", 1)}, 2);
    struct pick k[6];
    unsigned a = 0;
    for (int i = 0; i < 6; i++) {
        k[i] = rig_pick(&r, NULL);
        a += rig_name(&k[i]) == 'a';
    }
    assert_int_equal(a, 4); /* 4/2 = 2/1 */
    for (int i = 0; i < 6; i++)
        if (rig_name(&k[i]) == 'b')
            pool_done(r.p, &k[i], PICK_OK, r.now);
    struct pick next = rig_pick(&r, NULL);
    assert_int_equal(rig_name(&next), 'b');
    pool_done(r.p, &next, PICK_OK, r.now);
    for (int i = 0; i < 6; i++)
        if (rig_name(&k[i]) == 'a')
            pool_done(r.p, &k[i], PICK_OK, r.now);
    rig_release(&r);
}

/* One upstream ten times slower than three others gets far less than a quarter; when it recovers, it comes back. */
static void p2c_follows_latency(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &(struct pool_options){.policy = BALANCE_P2C, .seed = 7});
    rig_equal(&r, 4);
    unsigned slow = 0;
    for (int i = 0; i < 4000; i++) {
        struct pick k = rig_pick(&r, NULL);
        bool d = rig_name(&k) == 'd';
        slow += i >= 1000 && d;
        r.now += d ? 100 * MS : 10 * MS;
        pool_done(r.p, &k, PICK_OK, r.now);
    }
    assert_in_range(slow, 0, 150); /* an even share of 3000 were 750 */
    unsigned back = 0;
    for (int i = 0; i < 8000; i++) {
        struct pick k = rig_pick(&r, NULL);
        back += i >= 6000 && rig_name(&k) == 'd';
        r.now += 10 * MS;
        pool_done(r.p, &k, PICK_OK, r.now);
    }
    assert_in_range(back, 300, 700);
    rig_release(&r);
}

static char hashed(struct rig *r, uint64_t key)
{
    return rig_ask(r, &(struct pick_request){.hash = key * 0x9e3779b97f4a7c15u}, 0, PICK_OK);
}

/* Shares follow weights; when one of n leaves, its keys move and no others do. */
static void hash_moves_only_the_lost_keys(void **state)
{
    (void)state;
    struct rig r;
    enum { KEYS = 4000 };
    char before[KEYS];
    unsigned share[256] = {0};
    rig_init(&r, &(struct pool_options){.policy = BALANCE_HASH});
    struct upstream_options list[] = {weighted("a", 1), weighted("b", 1), weighted("c", 2), weighted("d", 1)};
    rig_set(&r, list, 4);
    for (unsigned i = 0; i < KEYS; i++) {
        before[i] = hashed(&r, i);
        share[(unsigned char)before[i]]++;
    }
    assert_in_range(share['a'], 700, 900); /* 800, four deviations either way: sqrt(4000 x 0.2 x 0.8) = 25 */
    assert_in_range(share['c'], 1475, 1725);
    rig_set(&r, list, 3);
    for (unsigned i = 0; i < KEYS; i++)
        if (before[i] != 'd')
            assert_int_equal(hashed(&r, i), before[i]);
        else
            assert_int_not_equal(hashed(&r, i), 'd');
    rig_release(&r);
}

/* One hot key: no upstream gets more than ceil(1.25 x mean). */
static void hash_is_bounded(void **state)
{
    (void)state;
    struct rig r;
    struct pick k[64];
    rig_init(&r, &(struct pool_options){.policy = BALANCE_HASH});
    rig_equal(&r, 8);
    for (int i = 0; i < 64; i++)
        k[i] = rig_pick(&r, &(struct pick_request){.hash = 42});
    uint32_t most = 0;
    for (char c = 'a'; c <= 'h'; c++)
        most = MAX_OF(most, rig_view(&r, c).in_flight);
    assert_in_range(most, 8, 10);
    for (int i = 0; i < 64; i++)
        pool_done(r.p, &k[i], PICK_OK, r.now);
    rig_release(&r);
}

/* Issue 5: 64 simultaneous requests over 8 equal replicas, max/min <= 2; with one shared prompt as well. */
static void llm_spreads_a_burst(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        struct rig r;
        struct pick k[64];
        char text[4096];
        uint64_t blocks[PREFIX_BLOCKS_MAX];
        memset(text, 'x', sizeof text);
        size_t n = prefix_hash((struct str){text, sizeof text}, 0, blocks, PREFIX_BLOCKS_MAX);
        assert_int_equal(n, 16);
        rig_init(&r, &(struct pool_options){.policy = BALANCE_LLM});
        rig_equal(&r, 8);
        struct pick_request q = {.tokens = 500, .prefix = blocks, .n_prefix = shared ? n : 0};
        for (int i = 0; i < 64; i++)
            k[i] = rig_pick(&r, &q);
        uint32_t most = 0, least = 64;
        for (char c = 'a'; c <= 'h'; c++) {
            most = MAX_OF(most, rig_view(&r, c).in_flight);
            least = MIN_OF(least, rig_view(&r, c).in_flight);
        }
        assert_true(most <= 2 * least);
        for (int i = 0; i < 64; i++)
            pool_done(r.p, &k[i], PICK_OK, r.now);
        rig_release(&r);
    }
}

/* A conversation goes back to where its beginning is, also when another replica is a little less busy. */
static void llm_keeps_a_conversation(void **state)
{
    (void)state;
    struct rig r;
    char text[8192];
    uint64_t blocks[PREFIX_BLOCKS_MAX];
    memset(text, 'y', sizeof text);
    rig_init(&r, &(struct pool_options){.policy = BALANCE_LLM});
    rig_equal(&r, 4);
    struct pick_request q = {.tokens = 100, .prefix = blocks};
    q.n_prefix = prefix_hash((struct str){text, 1024}, 0, blocks, PREFIX_BLOCKS_MAX);
    char home = rig_ask(&r, &q, MS, PICK_OK);
    for (size_t turn = 2; turn <= 8; turn++) {
        rig_ask(&r, NULL, MS, PICK_OK); /* others come and go */
        q.n_prefix = prefix_hash((struct str){text, turn * 1024}, 0, blocks, PREFIX_BLOCKS_MAX);
        assert_int_equal(rig_ask(&r, &q, MS, PICK_OK), home);
    }
    rig_release(&r);
}

static void report(struct rig *r, char who, uint32_t queued, double kv, uint64_t adapter)
{
    struct upstream_report rep = {.has_load = true,
                                  .queued = queued,
                                  .kv_use = kv,
                                  .has_adapters = true,
                                  .adapters = {adapter},
                                  .n_adapters = adapter != 0};
    pool_reported(r->p, rig_view(r, who).upstream, &rep, r->now);
}

/* Reported load decides between equals, until the report is older than 200 ms. */
static void llm_reads_fresh_reports(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &(struct pool_options){.policy = BALANCE_LLM});
    rig_equal(&r, 2);
    for (int i = 0; i < 4; i++) {
        report(&r, 'a', 9, 0.9, 0);
        report(&r, 'b', 0, 0.1, 0);
        assert_int_equal(rig_ask(&r, NULL, MS, PICK_OK), 'b');
    }
    r.now += 201 * MS;
    char first = rig_ask(&r, NULL, 0, PICK_OK), second = rig_ask(&r, NULL, 0, PICK_OK);
    assert_int_not_equal(first, second); /* equals again: they take turns */
    report(&r, 'a', 20, 0.95, 0); /* of the other nothing is known: that is better than this, and worse than an empty one */
    for (int i = 0; i < 4; i++)
        assert_int_equal(rig_ask(&r, NULL, 0, PICK_OK), 'b');
    report(&r, 'a', 0, 0.1, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(rig_ask(&r, NULL, 0, PICK_OK), 'a');
    report(&r, 'a', 0, 0.5, 77);
    report(&r, 'b', 0, 0.5, 0);
    assert_int_equal(rig_ask(&r, &(struct pick_request){.adapter = 77}, 0, PICK_OK), 'a');
    rig_release(&r);
}

static void prefix_sets(void **state)
{
    (void)state;
    struct prefix_set *s = prefix_set_create(64);
    uint64_t a[8], b[8];
    char text[2048];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i / 256 + 'a');
    assert_int_equal(prefix_hash((struct str){text, 255}, 1, a, 8), 0);
    assert_int_equal(prefix_hash((struct str){text, 2048}, 1, a, 8), 8);
    text[5 * 256] = '!';
    assert_int_equal(prefix_hash((struct str){text, 2048}, 1, b, 8), 8);
    prefix_set_add(s, a, 8);
    assert_int_equal(prefix_set_match(s, a, 8), 8);
    assert_int_equal(prefix_set_match(s, b, 8), 5); /* and everything behind the change differs */
    prefix_hash((struct str){text, 2048}, 2, b, 8);
    assert_int_equal(prefix_set_match(s, b, 8), 0); /* another model */
    for (uint64_t i = 1; i < 4096; i++) {           /* others push it out */
        uint64_t h = hash_bytes(&i, 8, 3);
        prefix_set_add(s, &h, 1);
    }
    assert_int_equal(prefix_set_match(s, a, 8), 0);
    prefix_set_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_robin_is_smooth),
        cmocka_unit_test(least_conn_counts_in_flight),
        cmocka_unit_test(p2c_follows_latency),
        cmocka_unit_test(hash_moves_only_the_lost_keys),
        cmocka_unit_test(hash_is_bounded),
        cmocka_unit_test(llm_spreads_a_burst),
        cmocka_unit_test(llm_keeps_a_conversation),
        cmocka_unit_test(llm_reads_fresh_reports),
        cmocka_unit_test(prefix_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
