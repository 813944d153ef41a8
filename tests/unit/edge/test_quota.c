/* test_quota.c: quotas under a clock of our own. Expected figures are computed by hand from the policy; the random run is checked against a
 * count kept beside it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/rand.h"
#include "base/size.h"
#include "base/status.h"
#include "edge/quota.h"
#include "edge/quota_state.h"

#define S    1000000000ull
#define DAY  86400ull
#define NOON (20000 * DAY + 43200) /* 2024-10-04T12:00:00Z */

struct rig {
    struct arena arena;
    struct quota *q;
    uint64_t now_ns, now_s;
    struct quota_verdict v;
};

static void open_rig(struct rig *r, const char *yaml, uint32_t meters, uint32_t reservations)
{
    struct quota_policy *p;
    struct error err = {0};
    size_t n;
    *r = (struct rig){.now_ns = 5 * S, .now_s = NOON};
    arena_init(&r->arena, 4096, 0);
    int rc = quota_policies_parse(str_of(yaml), "q.yaml", &r->arena, &p, &n, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    r->q = quota_create(
        &(struct quota_options){.policies = p, .n_policies = n, .meters = meters, .reservations = reservations, .seed = 7});
    assert_non_null(r->q);
}

static void close_rig(struct rig *r)
{
    quota_destroy(r->q);
    arena_release(&r->arena);
}

static void tick(struct rig *r, uint64_t ns)
{
    r->now_ns += ns;
    r->now_s = NOON + (r->now_ns - 5 * S) / S;
}

/* The reservation, or 0 when refused. With no policy that applies: 0 as well, and v.limit is 0. */
static uint64_t take(struct rig *r, const char *key, const char *model, uint64_t rows, uint64_t tokens)
{
    const struct quota_ask a = {.key = str_of(key),
                                .tenant = STR("t"),
                                .quota_class = STR("gold"),
                                .model = str_of(model),
                                .route = STR("infer"),
                                .runs = true,
                                .rows = rows,
                                .tokens = tokens,
                                .now_ns = r->now_ns,
                                .now_s = r->now_s};
    uint64_t id;
    int rc = quota_reserve(r->q, &a, &id, &r->v);
    assert_int_equal(rc, rc ? STATUS_EXHAUSTED : 0);
    return rc ? 0 : id;
}

static void test_rate_is_exact(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r, "policies: [{name: p, per: key, requests_per_second: 3, requests_per_second_burst: 5}]", 0, 0);
    for (int i = 0; i < 5; i++)
        assert_true(take(&r, "a", "m", 0, 0));
    assert_int_equal(r.v.remaining, 0);
    assert_false(take(&r, "a", "m", 0, 0));
    assert_int_equal(r.v.limit, 3);
    assert_int_equal(r.v.wait_ns, 333333334); /* a third of a second, rounded up */
    assert_int_equal(r.v.reset_ns, 1666666667);
    assert_true(take(&r, "b", "m", 0, 0)); /* its own count */
    tick(&r, 333333333);
    assert_false(take(&r, "a", "m", 0, 0));
    assert_int_equal(r.v.wait_ns, 1);
    tick(&r, 1);
    assert_true(take(&r, "a", "m", 0, 0));
    assert_false(take(&r, "a", "m", 0, 0));
    /* a day at 7 tries a second: three a second pass, none more, whatever the rounding of the steps */
    int passed = 0;
    for (int i = 0; i < 7 * 86400; i++) {
        tick(&r, i % 7 == 6 ? S / 7 + 6 : S / 7 - 1);
        uint64_t id = take(&r, "a", "m", 0, 0);
        passed += id != 0;
        quota_settle(r.q, id, 0, r.now_ns, r.now_s);
    }
    assert_in_range(passed, 3 * 86400 - 2, 3 * 86400 + 1);
    close_rig(&r);
}

static void test_levels_are_all_or_none(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r,
             "policies:\n"
             "- {name: each, per: key, concurrent: 2}\n"
             "- {name: all, requests_per_day: 3}\n",
             0, 0);
    uint64_t a1 = take(&r, "a", "m", 0, 0), a2 = take(&r, "a", "m", 0, 0);
    assert_true(a1 && a2);
    assert_false(take(&r, "a", "m", 0, 0));
    assert_string_equal(r.v.policy, "each");
    assert_int_equal(r.v.unit, QUOTA_CONCURRENT);
    assert_true(take(&r, "b", "m", 0, 0)); /* the refused one took nothing of the day */
    assert_false(take(&r, "c", "m", 0, 0));
    assert_string_equal(r.v.policy, "all");
    assert_int_equal(r.v.wait_ns, 43200 * S); /* noon to midnight */
    quota_settle(r.q, a1, 0, r.now_ns, r.now_s);
    quota_settle(r.q, a1, 0, r.now_ns, r.now_s); /* over: nothing happens */
    quota_settle(r.q, a2, 0, r.now_ns, r.now_s);
    assert_false(take(&r, "a", "m", 0, 0));
    assert_string_equal(r.v.policy, "all");
    tick(&r, 43200 * S); /* midnight */
    assert_true(take(&r, "a", "m", 0, 0));
    close_rig(&r);
}

/* litellm#14457, #34732: what may be used is held before the run, what was not used goes back. */
static void test_a_hundred_at_once_with_a_budget_for_one(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r, "policies: [{name: p, per: tenant, tokens_per_day: 1000}]", 0, 0);
    uint64_t first = 0;
    int passed = 0;
    for (int i = 0; i < 100; i++) {
        uint64_t id = take(&r, "a", "m", 0, 600);
        passed += id != 0;
        first = first ? first : id;
    }
    assert_int_equal(passed, 1);
    assert_int_equal(r.v.remaining, 400);
    assert_true(quota_unit_is_budget(r.v.unit));
    quota_settle(r.q, first, 100, r.now_ns, r.now_s);
    uint64_t second = take(&r, "b", "m", 0, 900); /* 1000 - 100 */
    assert_true(second);
    quota_refund(r.q, second, r.now_ns, r.now_s);
    assert_true(take(&r, "b", "m", 0, 900));
    assert_false(take(&r, "b", "m", 0, 1001));
    assert_int_equal(r.v.wait_ns, 0); /* never */
    close_rig(&r);
}

static void test_tokens_per_minute_settle(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r, "policies: [{name: p, per: key, tokens_per_minute: 600}]", 0, 0);
    uint64_t id = take(&r, "a", "m", 0, 600);
    assert_true(id);
    assert_false(take(&r, "a", "m", 0, 1));
    assert_int_equal(r.v.wait_ns, S / 10); /* 10 a second */
    quota_settle(r.q, id, 200, r.now_ns, r.now_s);
    assert_false(take(&r, "a", "m", 0, 401));
    uint64_t two = take(&r, "a", "m", 0, 400);
    assert_true(two);
    quota_settle(r.q, two, 450, r.now_ns, r.now_s); /* ran past what it had reserved: the bucket is empty, not in debt */
    assert_false(take(&r, "a", "m", 0, 1));
    tick(&r, S);
    assert_true(take(&r, "a", "m", 0, 10));
    close_rig(&r);
}

static void test_more_rows(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r, "policies: [{name: p, per: key, requests_per_second: 10, rows_per_second: 100}]", 0, 0);
    uint64_t id = take(&r, "a", "m", 0, 0);
    assert_int_equal(quota_more(r.q, id, 60, 0, r.now_ns, r.now_s, &r.v), 0);
    assert_int_equal(r.v.remaining, 40);
    assert_int_equal(quota_more(r.q, id, 50, 0, r.now_ns, r.now_s, &r.v), STATUS_EXHAUSTED);
    assert_int_equal(r.v.wait_ns, S / 10);
    assert_int_equal(quota_more(r.q, id, 101, 0, r.now_ns, r.now_s, &r.v), STATUS_EXHAUSTED);
    assert_int_equal(r.v.wait_ns, 0);
    quota_refund(r.q, id, r.now_ns, r.now_s);
    assert_int_equal(quota_more(r.q, id, 1, 0, r.now_ns, r.now_s, &r.v), 0); /* it is over: nothing to hold it against */
    id = take(&r, "a", "m", 0, 0);
    assert_int_equal(quota_more(r.q, id, 100, 0, r.now_ns, r.now_s, &r.v), 0);
    close_rig(&r);
}

static void test_matching(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r,
             "policies:\n"
             "- {name: silver, per: key, match: {class: silver}, requests_per_day: 1}\n"
             "- {name: llm, per: [key, model], match: {class: g*, model: 'llm-*,chat'}, requests_per_day: 2}\n"
             "- {name: reads, match: {route: model_*}, requests_per_day: 1}\n",
             0, 0);
    for (int i = 0; i < 5; i++)
        assert_false(take(&r, "a", "other", 0, 0));
    assert_int_equal(r.v.limit, 0); /* nothing applied */
    assert_true(take(&r, "a", "llm-1", 0, 0) && take(&r, "a", "llm-1", 0, 0));
    assert_false(take(&r, "a", "llm-1", 0, 0));
    assert_true(take(&r, "a", "llm-2", 0, 0) && take(&r, "b", "llm-1", 0, 0) && take(&r, "a", "chat", 0, 0));
    struct quota_ask read = {.key = STR("a"), .route = STR("model_ready"), .now_ns = r.now_ns, .now_s = r.now_s};
    uint64_t id;
    assert_int_equal(quota_reserve(r.q, &read, &id, &r.v), 0);
    assert_int_equal(quota_reserve(r.q, &read, &id, &r.v), STATUS_EXHAUSTED);
    read.route = STR("live"); /* a policy that names no route is for runs only */
    assert_int_equal(quota_reserve(r.q, &read, &id, &r.v), 0);
    assert_int_equal(id, 0);
    close_rig(&r);
}

static void test_expiry(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r, "policies: [{name: p, concurrent: 1, tokens_per_day: 100}]", 0, 0);
    uint64_t id = take(&r, "a", "m", 0, 80);
    quota_note(r.q, id, 30);
    tick(&r, 3600 * S - 1);
    assert_int_equal(quota_expire(r.q, r.now_ns, r.now_s), 0);
    assert_false(take(&r, "a", "m", 0, 10));
    tick(&r, 1);
    assert_int_equal(quota_expire(r.q, r.now_ns, r.now_s), 1);
    assert_false(take(&r, "a", "m", 0, 71));
    assert_true(take(&r, "a", "m", 0, 70));
    close_rig(&r);
}

static void test_restart(void **state)
{
    (void)state;
    static const char yaml[] = "policies: [{name: p, per: key, requests_per_day: 10, tokens_per_month: 1000}]";
    struct rig r, s;
    struct buf out;
    struct error err = {0};
    open_rig(&r, yaml, 0, 0);
    assert_false(quota_is_dirty(r.q));
    uint64_t a = take(&r, "a", "m", 0, 300);
    take(&r, "a", "m", 0, 500); /* under way when the process is killed */
    quota_settle(r.q, a, 200, r.now_ns, r.now_s);
    assert_true(quota_is_dirty(r.q));
    buf_init(&out);
    quota_save(r.q, r.now_s, &out);
    assert_false(quota_is_dirty(r.q));
    open_rig(&s, yaml, 0, 0);
    assert_int_equal(quota_load(s.q, buf_str(&out), s.now_s, &err), 0);
    assert_false(take(&s, "a", "m", 0, 801));
    assert_true(take(&s, "a", "m", 0, 800));
    for (int i = 0; i < 8; i++)
        assert_true(take(&s, "a", "m", 0, 0));
    assert_false(take(&s, "a", "m", 0, 0)); /* one from before and nine now */
    close_rig(&s);
    open_rig(&s, yaml, 0, 0);
    assert_int_equal(quota_load(s.q, buf_str(&out), s.now_s + DAY, &err), 0); /* the day is over, the month is not */
    s.now_s += DAY;
    assert_false(take(&s, "a", "m", 0, 801));
    for (int i = 0; i < 10; i++)
        assert_true(take(&s, "a", "m", 0, 0));
    assert_int_equal(quota_load(s.q, STR("p\tx\n"), s.now_s, &err), STATUS_INVALID);
    assert_int_equal(quota_load(s.q, STR("gone\trequests_per_day\t1\t1\t\n"), s.now_s, &err), 0);
    close_rig(&s);
    close_rig(&r);
    buf_release(&out);
}

/* The wall clock jumps a day ahead and is set back: nothing is given away, nothing stays used for ever. */
static void test_clock_jumps(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r, "policies: [{name: p, requests_per_day: 10}]", 0, 0);
    for (int i = 0; i < 4; i++)
        quota_settle(r.q, take(&r, "a", "m", 0, 0), 0, r.now_ns, r.now_s);
    r.now_s += DAY;
    for (int i = 0; i < 3; i++)
        quota_settle(r.q, take(&r, "a", "m", 0, 0), 0, r.now_ns, r.now_s);
    assert_int_equal(r.v.remaining, 7);
    r.now_s -= DAY;
    uint64_t id = take(&r, "a", "m", 0, 0);
    assert_int_equal(r.v.remaining, 2); /* four, three and this one */
    r.now_s -= 30 * DAY;                /* never seen before: what is used stays used */
    take(&r, "a", "m", 0, 0);
    assert_int_equal(r.v.remaining, 1);
    quota_refund(r.q, id, r.now_ns, r.now_s); /* its day is later than this one */
    take(&r, "a", "m", 0, 0);
    assert_int_equal(r.v.remaining, 1);
    struct buf out;
    struct error err = {0};
    buf_init(&out);
    quota_save(r.q, r.now_s + DAY, &out); /* tomorrow nothing is used */
    assert_int_equal(out.n, 0);
    close_rig(&r);
    /* a file from a clock that was ahead counts now */
    open_rig(&r, "policies: [{name: p, requests_per_day: 10}]", 0, 0);
    buf_printf(&out, "p\trequests_per_day\t%llu\t9\t\n", (unsigned long long)(NOON / DAY + 5));
    assert_int_equal(quota_load(r.q, buf_str(&out), r.now_s, &err), 0);
    take(&r, "a", "m", 0, 0);
    assert_int_equal(r.v.remaining, 0);
    buf_release(&out);
    close_rig(&r);
}

static void expect_damage(struct str file, const char *words)
{
    struct error err = {0};
    struct str lines;
    assert_int_equal(quota_state_open(file, &lines, &err), STATUS_INVALID);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

/* The digest is of coreutils' sha256sum over the two lines above it. */
static void test_state_file(void **state)
{
    (void)state;
    static const char file[] = "inferd-quota 1\np\trequests_per_day\t20000\t3\t\n"
                               "sha256 a69ad607c16e651e02153ee91f8dd830e02983857f50f5dd1047af6148fe52e9\n";
    struct buf out;
    struct error err = {0};
    struct str lines;
    buf_init(&out);
    quota_state_begin(&out);
    buf_append_z(&out, "p\trequests_per_day\t20000\t3\t\n");
    quota_state_end(&out);
    assert_true(str_eqz(buf_str(&out), file));
    assert_int_equal(quota_state_open(str_of(file), &lines, &err), 0);
    assert_true(str_eqz(lines, "p\trequests_per_day\t20000\t3\t\n"));
    for (size_t n = 0; n < sizeof file - 1; n++) { /* cut anywhere */
        char copy[sizeof file];
        memcpy(copy, file, sizeof copy);
        expect_damage((struct str){file, n}, "it ");
        copy[n] ^= 1;
        assert_int_equal(quota_state_open((struct str){copy, sizeof file - 1}, &lines, &err), STATUS_INVALID);
    }
    expect_damage(STR("inferd-quota 2\nx\nsha256 0\n"), "version 1");
    expect_damage(STR("p\trequests_per_day\t20000\t3\t\n"), "does not begin");
    buf_clear(&out);
    quota_state_begin(&out);
    quota_state_end(&out);
    assert_int_equal(quota_state_open(buf_str(&out), &lines, &err), 0);
    assert_int_equal(lines.n, 0);
    buf_release(&out);
}

static void test_months(void **state)
{
    (void)state;
    /* seconds to the next month, from the calendar */
    static const struct {
        uint64_t now_s, left_s;
    } cases[] = {{1709164800 /* 2024-02-29T00 */, DAY},    {1735689599 /* 2024-12-31T23:59:59 */, 1},
                 {1740700800 /* 2025-02-28T00 */, DAY},    {1704067200 /* 2024-01-01T00 */, 31 * DAY},
                 {951696000 /* 2000-02-28T00 */, 2 * DAY}, {4107456000 /* 2100-02-28T00 */, DAY}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct rig r;
        open_rig(&r, "policies: [{name: p, requests_per_month: 1}]", 0, 0);
        r.now_s = cases[i].now_s;
        assert_true(take(&r, "a", "m", 0, 0));
        assert_int_equal(r.v.reset_ns, cases[i].left_s * S);
        r.now_s += cases[i].left_s - 1;
        assert_false(take(&r, "a", "m", 0, 0));
        r.now_s++;
        assert_true(take(&r, "a", "m", 0, 0));
        close_rig(&r);
    }
}

static void test_pools(void **state)
{
    (void)state;
    struct rig r;
    char key[16];
    open_rig(&r, "policies: [{name: p, per: key, requests_per_second: 1, concurrent: 5}]", 4, 8);
    uint64_t ids[4];
    for (int i = 0; i < 4; i++) {
        snprintf(key, sizeof key, "k%d", i);
        ids[i] = take(&r, key, "m", 0, 0);
        assert_true(ids[i]);
    }
    assert_false(take(&r, "k9", "m", 0, 0)); /* a fifth caller can't be counted: refused, not let through */
    assert_true(r.v.full && r.v.wait_ns);
    quota_settle(r.q, ids[0], 0, r.now_ns, r.now_s);
    assert_false(take(&r, "k9", "m", 0, 0)); /* k0's bucket is not full again yet */
    tick(&r, S);
    assert_true(take(&r, "k9", "m", 0, 0)); /* now k0 is forgotten */
    tick(&r, S);
    assert_true(take(&r, "k1", "m", 0, 0)); /* k1, pinned by its request, was not */
    assert_int_equal(r.v.remaining, 0);
    close_rig(&r);
}

/* Ten thousand keys of a thousand tenants, at random, against counts kept here. */
static void test_many(void **state)
{
    (void)state;
    static uint32_t used[10000], by_tenant[1000];
    struct rig r;
    struct rand rand;
    char key[16], tenant[16];
    rand_init(&rand, 1);
    open_rig(&r, "policies:\n- {name: k, per: key, requests_per_day: 20}\n- {name: t, per: tenant, requests_per_day: 150}\n",
             16384, 65536);
    for (int i = 0; i < 300000; i++) {
        uint32_t k = (uint32_t)(rand_u64(&rand) % 10000), t = k / 10;
        snprintf(key, sizeof key, "key%u", k);
        snprintf(tenant, sizeof tenant, "tenant%u", t);
        const struct quota_ask a = {
            .key = str_of(key), .tenant = str_of(tenant), .runs = true, .now_ns = r.now_ns, .now_s = r.now_s};
        uint64_t id;
        bool want = used[k] < 20 && by_tenant[t] < 150;
        assert_int_equal(quota_reserve(r.q, &a, &id, &r.v) == 0, want);
        used[k] += want, by_tenant[t] += want;
        if (id && rand_u64(&rand) % 2)
            quota_settle(r.q, id, 0, r.now_ns, r.now_s);
        else if (id) {
            quota_refund(r.q, id, r.now_ns, r.now_s);
            used[k]--, by_tenant[t]--;
        }
    }
    close_rig(&r);
}

static void test_bad_files(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"[]", "q.yaml:1: the file must be a map"},
        {"policies: {}", "q.yaml:1: the file must be a map"},
        {"policies: [{requests_per_day: 1}]", "q.yaml:1: a policy needs a name"},
        {"policies:\n- {name: a}\n", "q.yaml:2: the policy \"a\" limits nothing"},
        {"policies:\n- {name: a, concurrent: 1}\n- {name: a, concurrent: 1}\n", "q.yaml:3: the policy \"a\" is there twice"},
        {"policies: [{name: a, concurrent: 0}]", "q.yaml:1: concurrent: \"0\" is not accepted; give a whole number"},
        {"policies: [{name: a, concurrent: 1.5}]", "q.yaml:1: concurrent: \"1.5\""},
        {"policies: [{name: a, concurrent: 1, per: user}]",
         "q.yaml:1: per: \"user\" is not accepted; give key, tenant, model or route"},
        {"policies: [{name: a, concurrent: 1, match: {modell: x}}]", "q.yaml:1: match has no \"modell\""},
        {"policies: [{name: a, concurrent: 1, match: {model: 'x y'}}]", "q.yaml:1: model: \"x y\""},
        {"policies: [{name: a, request_per_day: 1}]", "q.yaml:1: a policy has no \"request_per_day\""},
        {"policies: [{name: a, concurrent: 1, concurrent_burst: 2}]", "q.yaml:1: a policy has no \"concurrent_burst\""},
        {"policies: [{name: a, concurrent: 1, rows_per_second_burst: 2}]",
         "q.yaml:1: the policy \"a\" has rows_per_second_burst but not"},
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct quota_policy *p;
        struct error err = {0};
        struct arena arena;
        size_t n;
        arena_init(&arena, 1024, 0);
        assert_int_equal(quota_policies_parse(str_of(bad[i][0]), "q.yaml", &arena, &p, &n, &err), STATUS_INVALID);
        if (strncmp(err.text, bad[i][1], strlen(bad[i][1])) != 0)
            fail_msg("case %zu: \"%s\" does not begin with \"%s\"", i, err.text, bad[i][1]);
        arena_release(&arena);
    }
}

/* Policies that several servers share have their limits changed while they are in use (quota_shared.c). */
static void test_limits_change(void **state)
{
    struct arena arena;
    struct quota_policy *p;
    struct rig r = {.now_ns = 5 * S, .now_s = NOON};
    size_t n;
    (void)state;
    arena_init(&arena, 4096, 0);
    assert_int_equal(quota_policies_parse(STR("policies: [{name: a, requests_per_day: 4}]"), "q", &arena, &p, &n, NULL), 0);
    r.q = quota_create(&(struct quota_options){.policies = p, .n_policies = n});
    assert_true(take(&r, "x", "m", 0, 0));
    p[0].limit[QUOTA_REQUESTS_PER_DAY] = 2;
    quota_limits_changed(r.q);
    assert_true(take(&r, "x", "m", 0, 0));
    assert_int_equal(r.v.limit, 2);
    assert_false(take(&r, "x", "m", 0, 0));
    p[0].limit[QUOTA_REQUESTS_PER_DAY] = 3;
    quota_limits_changed(r.q);
    assert_true(take(&r, "x", "m", 0, 0));
    assert_false(take(&r, "x", "m", 0, 0));
    quota_destroy(r.q);
    arena_release(&arena);
}

/* A caller's meter is found again without a search, unless it was given to another caller meanwhile. */
static void test_meters_change_hands(void **state)
{
    struct rig r;
    open_rig(&r,
             "policies: [{name: a, per: key, requests_per_second: 2}, {name: b, per: [key, model], requests_per_second: 5}]", 2,
             0);
    for (int round = 0; round < 3; round++) {
        assert_true(take(&r, "x", "m", 0, 0));
        assert_true(take(&r, "x", "m", 0, 0));
        assert_false(take(&r, "x", "m", 0, 0));
        quota_expire(r.q, r.now_ns + 2 * 3600 * S, r.now_s);
        assert_false(take(&r, "y", "m", 0, 0)); /* there are two meters, and they are not at rest */
        assert_true(r.v.full);
        tick(&r, 2 * S);
        assert_true(take(&r, "y", "m", 0, 0)); /* x's meters are y's now: with what y has, not with what x left */
        assert_true(take(&r, "y", "m", 0, 0));
        assert_false(take(&r, "y", "m", 0, 0));
        assert_string_equal(r.v.policy, "a");
        quota_expire(r.q, r.now_ns + 2 * 3600 * S, r.now_s);
        tick(&r, 2 * S);
    }
    close_rig(&r);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate_is_exact),
        cmocka_unit_test(test_levels_are_all_or_none),
        cmocka_unit_test(test_a_hundred_at_once_with_a_budget_for_one),
        cmocka_unit_test(test_tokens_per_minute_settle),
        cmocka_unit_test(test_more_rows),
        cmocka_unit_test(test_matching),
        cmocka_unit_test(test_expiry),
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_clock_jumps),
        cmocka_unit_test(test_state_file),
        cmocka_unit_test(test_months),
        cmocka_unit_test(test_pools),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_meters_change_hands),
        cmocka_unit_test(test_limits_change),
        cmocka_unit_test(test_bad_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
