/* test_limit_gate.c: models' limits and breakers together: what a refusal says, what stays counted over a change of rules, and threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"
#include "base/status.h"
#include "edge/limit_gate.h"
#include "obs/metrics.h"
#include "os/thread.h"

#define S 1000000000ull

static struct limit_gate *gate_of(const char *yaml, struct metrics *m)
{
    struct limit_gate *g = NULL;
    struct error err = {0};
    int rc = limit_gate_create(str_of(yaml), "o.yaml", m, NULL, &g, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    return g;
}

static enum limit_reason begin(struct limit_gate *g, const char *model, uint64_t now, struct limit_ticket *t)
{
    uint64_t wait;
    return limit_gate_begin(g, str_of(model), LIMIT_NORMAL, 0, 1, now, t, &wait);
}

static void end(struct limit_gate *g, struct limit_ticket *t, enum breaker_outcome outcome, uint64_t now)
{
    const struct limit_result r = {.outcome = outcome};
    limit_gate_end(g, t, &r, now);
    assert_null(t->state);
    limit_gate_end(g, t, &r, now); /* an empty one is fine */
}

static void replace(struct limit_gate *g, const char *yaml, int rc)
{
    struct error err = {0};
    assert_int_equal(limit_gate_replace(g, str_of(yaml), "o.yaml", &err), rc);
}

static void assert_shows(struct limit_gate *g, const char *what)
{
    struct buf out;
    buf_init(&out);
    limit_gate_render(g, 9 * S, &out);
    if (!strstr(buf_z(&out), what))
        fail_msg("%s\nis not in %s", what, buf_z(&out));
    buf_release(&out);
}

static void test_no_rule_no_limit(void **state)
{
    (void)state;
    struct limit_gate *g = gate_of("models: [{match: a}]", NULL);
    struct limit_ticket t;
    for (int i = 0; i < 5000; i++)
        assert_int_equal(begin(g, "b", S, &t), LIMIT_NONE);
    assert_null(t.state);
    assert_shows(g, "\"models\":[]");
    limit_gate_destroy(g);
}

/* A request that the limit refuses gives the breaker's probe back; one that the breaker refuses takes no place. */
static void test_breaker_and_limit_together(void **state)
{
    (void)state;
    struct limit_gate *g =
        gate_of("models: [{match: a, limit: {max: 1, burst: 0}, breaker: {minimum: 1, open: 1s, probes: 1}}]", NULL);
    struct limit_ticket one, two;
    uint64_t wait;
    assert_int_equal(begin(g, "a", S, &one), LIMIT_NONE);
    assert_int_equal(begin(g, "a", S, &two), LIMIT_SATURATED);
    end(g, &one, BREAKER_ERROR, S);
    assert_int_equal(limit_gate_begin(g, STR("a"), LIMIT_NORMAL, 0, 1, S + S / 2, &one, &wait), LIMIT_BREAKER);
    assert_int_equal(wait, S / 2);
    assert_shows(g, "\"in_flight\":{\"core\":0,\"high\":0,\"normal\":0,\"low\":0}");
    assert_int_equal(begin(g, "a", 2 * S, &one), LIMIT_NONE); /* the probe */
    assert_int_equal(begin(g, "a", 2 * S, &two), LIMIT_BREAKER);
    end(g, &one, BREAKER_OK, 2 * S);
    assert_shows(g, "\"state\":\"closed\"");
    limit_gate_destroy(g);
}

static void test_rules_change_under_requests(void **state)
{
    (void)state;
    struct limit_gate *g = gate_of("models: [{match: a, limit: {max: 2, burst: 0}, fallback: b}]", NULL);
    struct limit_ticket one, two, three;
    assert_int_equal(begin(g, "a", S, &one), LIMIT_NONE);
    const struct limit_policy *old = limit_gate_policy(g);
    replace(g, "models: [{match: c}]", 0);
    assert_int_equal(begin(g, "a", S, &two), LIMIT_NONE); /* nothing is said about it now */
    assert_null(two.state);
    replace(g, "models: [{match: a, limit: {max: 1, burst: 0}}]", 0);
    assert_int_equal(begin(g, "a", S, &three), LIMIT_SATURATED); /* the first one still counts */
    end(g, &one, BREAKER_OK, S);
    assert_int_equal(begin(g, "a", S, &three), LIMIT_NONE);
    replace(g, "models: [{match: a, fallback: a}]", STATUS_INVALID);
    assert_shows(g, "\"limit\":1,");
    end(g, &three, BREAKER_OK, S);
    assert_string_equal(old->models[0].fallback, "b"); /* a request may still refer to it */
    limit_gate_destroy(g);
}

static void test_an_operators_max_goes_before_what_keeps_busy(void **state)
{
    (void)state;
    struct limit_gate *g = gate_of("models: [{match: a, limit: {max: 3}}, {match: b}]", NULL);
    struct limit_ticket t;
    uint64_t wait;
    assert_int_equal(limit_gate_begin(g, STR("a"), LIMIT_NORMAL, 0, 64, S, &t, &wait), LIMIT_NONE);
    assert_shows(g, "\"limit\":3,\"gradient\":1.000,\"busy_at\":64");
    end(g, &t, BREAKER_OK, S);
    assert_int_equal(limit_gate_begin(g, STR("b"), LIMIT_NORMAL, 0, 64, S, &t, &wait), LIMIT_NONE);
    assert_shows(g, "\"limit\":64,\"gradient\":1.000,\"busy_at\":64");
    end(g, &t, BREAKER_OK, S);
    limit_gate_destroy(g);
}

struct worker {
    struct os_thread thread;
    struct limit_gate *g;
    uint64_t passed;
};

static void work(void *arg)
{
    struct worker *w = arg;
    for (int i = 0; i < 20000; i++) {
        char model[3] = {(char)('a' + i % 26), (char)('a' + i / 26 % 26), 0};
        struct limit_ticket t;
        if (begin(w->g, model, S + (uint64_t)i * 1000, &t) != LIMIT_NONE)
            continue;
        w->passed++;
        const struct limit_result r = {.outcome = BREAKER_OK, .latency_ns = 2000, .run_ns = 1000, .size = 1};
        limit_gate_end(w->g, &t, &r, S + (uint64_t)i * 1000);
    }
}

static void test_threads(void **state)
{
    (void)state;
    struct metrics *m = metrics_create();
    struct limit_gate *g = gate_of("models: [{match: '*', limit: {max: 1, burst: 0}}]", m);
    struct worker w[4] = {0};
    struct buf out;
    for (size_t i = 0; i < COUNT_OF(w); i++) {
        w[i].g = g;
        assert_int_equal(os_thread_start(&w[i].thread, "w", work, &w[i], NULL), 0);
    }
    for (int i = 0; i < 20; i++)
        replace(g, i % 2 ? "models: [{match: '*', limit: {max: 1, burst: 0}}]" : "models: [{match: '*', limit: {max: 2}}]", 0);
    buf_init(&out);
    metrics_render(m, &out);
    for (size_t i = 0; i < COUNT_OF(w); i++) {
        os_thread_join(&w[i].thread);
        assert_true(w[i].passed > 0);
    }
    buf_release(&out);
    limit_gate_render(g, 9 * S, &out);
    size_t models = 0; /* of each nothing is under way any more */
    for (const char *at = buf_z(&out); (at = strstr(at, "\"in_flight\":{")); at++, models++)
        assert_memory_equal(at + 13, "\"core\":0,\"high\":0,\"normal\":0,\"low\":0}", 37);
    assert_int_equal(models, 26 * 26);
    buf_release(&out);
    limit_gate_destroy(g);
    metrics_destroy(m);
}

/* What is shown (at 9 s) is a burst of the last second; an older one is over although no request has come since. */
static void test_a_burst_that_is_over_is_not_shown(void **state)
{
    static const struct {
        uint64_t at;
        const char *shown;
    } cases[] = {{8 * S + S / 2, "\"saturated\":true"}, {S, "\"saturated\":false"}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct limit_gate *g = gate_of("models: [{match: a, limit: {max: 1, burst: 0}}]", NULL);
        struct limit_ticket t, refused;
        assert_int_equal(begin(g, "a", cases[i].at, &t), LIMIT_NONE);
        assert_int_equal(begin(g, "a", cases[i].at, &refused), LIMIT_SATURATED);
        end(g, &t, BREAKER_OK, cases[i].at);
        assert_shows(g, cases[i].shown);
        limit_gate_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_rule_no_limit),
        cmocka_unit_test(test_breaker_and_limit_together),
        cmocka_unit_test(test_rules_change_under_requests),
        cmocka_unit_test(test_an_operators_max_goes_before_what_keeps_busy),
        cmocka_unit_test(test_a_burst_that_is_over_is_not_shown),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
