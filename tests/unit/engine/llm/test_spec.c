/* test_spec.c: prompt lookup against a brute-force search, and the gate against machines whose costs and texts are known: it must come close to the
 * best fixed guess length where guessing pays, and lose next to nothing where it doesn't. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/size.h"
#include "engine/llm/spec.h"

static uint32_t seed = 1;

static double uniform(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (double)(seed >> 8) / 16777216.0;
}

/* ---- lookup ---- */

/* The definition, word for word: the longest suffix of 4 to 2 tokens that occurs earlier, at its last place. */
static uint32_t brute(const int32_t *t, uint32_t n, uint32_t max, int32_t *out)
{
    for (uint32_t len = 4; len >= 2; len--) {
        for (uint32_t end = n; end-- > len;) { /* an occurrence that ends before `end` */
            if (memcmp(t + end - len, t + n - len, len * sizeof *t) != 0)
                continue;
            uint32_t given = 0;
            for (; given < max && end + given < n; given++)
                out[given] = t[end + given];
            return given;
        }
        if (n <= len && len == 2)
            break;
    }
    return 0;
}

static void lookup_is_the_definition(void **state)
{
    (void)state;
    int32_t t[200], got[16], want[16];
    uint32_t found = 0;
    for (int round = 0; round < 5000; round++) {
        uint32_t n = 1 + (uint32_t)(uniform() * 199), words = 2 + (uint32_t)(uniform() * 12), max = (uint32_t)(uniform() * 17);
        for (uint32_t i = 0; i < n; i++)
            t[i] = (int32_t)(uniform() * words);
        uint32_t expected = n > 2 ? brute(t, n, max, want) : 0;
        assert_int_equal(expected, spec_lookup(t, n, max, got));
        assert_memory_equal(want, got, expected * sizeof *got);
        found += expected > 0;
    }
    assert_true(found > 1000);
}

static void lookup_of_little(void **state)
{
    (void)state;
    static const int32_t same[] = {5, 5, 5, 5}, cycle[] = {1, 2, 3, 1, 2};
    int32_t out[8];
    assert_int_equal(0, spec_lookup(same, 0, 8, out));
    assert_int_equal(0, spec_lookup(same, 1, 8, out));
    assert_int_equal(0, spec_lookup(same, 2, 8, out));
    assert_int_equal(1, spec_lookup(same, 3, 8, out));
    assert_int_equal(5, out[0]);
    assert_int_equal(3, spec_lookup(cycle, 5, 8, out));
    assert_int_equal(3, out[0]);
    assert_int_equal(1, out[1]);
    assert_int_equal(2, out[2]);
    assert_int_equal(0, spec_lookup(cycle, 5, 0, out));
}

/* ---- the gate ---- */

struct machine {
    double first, column; /* a step costs first + column * c */
    double guess;         /* of one guess for all */
    double right[8];      /* of each sequence */
    uint32_t n;
    double noise;
};

static double step_cost(const struct machine *m, uint32_t cols)
{
    return (m->first + m->column * cols) * (1 + m->noise * (uniform() - 0.5));
}

/* How many of n guesses are right in a row. */
static uint32_t outcome(double p, uint32_t n)
{
    uint32_t right = 0;
    while (right < n && uniform() < p)
        right++;
    return right;
}

/* Tokens a unit of time with every sequence guessing `k` tokens, or (k == UINT32_MAX) as the gate says. */
static double rate(const struct machine *m, uint32_t k, uint32_t steps)
{
    struct spec_gate g;
    struct spec_record records[8] = {0};
    struct spec_want wants[8];
    double tokens = 0, time = 0;
    spec_gate_init(&g);
    for (uint32_t s = 0; s < steps; s++) {
        uint32_t cols = m->n, longest = 0;
        for (uint32_t i = 0; i < m->n; i++)
            wants[i] = (struct spec_want){.record = &records[i], .len = 8, .guess = k};
        if (k == UINT32_MAX)
            spec_gate_plan(&g, wants, m->n, m->n, SPEC_COLS_MAX);
        for (uint32_t i = 0; i < m->n; i++) {
            uint32_t n = wants[i].guess, right = outcome(m->right[i], n);
            assert_true(n <= 8);
            cols += n;
            longest = MAX_OF(longest, n);
            tokens += 1 + right;
            if (n && k == UINT32_MAX)
                spec_gate_outcome(&g, &records[i], n, right);
        }
        assert_true(cols <= SPEC_COLS_MAX || k != UINT32_MAX);
        double t = step_cost(m, cols);
        spec_gate_cost(&g, cols, (uint64_t)t);
        spec_gate_guess_cost(&g, longest, (uint64_t)(m->guess * longest));
        time += t + m->guess * longest;
    }
    return tokens / time;
}

static void compare(const struct machine *m, double least)
{
    double best = 0, off = rate(m, 0, 20000);
    for (uint32_t k = 0; k <= 8; k++)
        best = MAX_OF(best, rate(m, k, 20000));
    double ours = rate(m, UINT32_MAX, 20000);
    print_message("off %.4g, best fixed %.4g (x %.2f), gate %.4g (%.3f of the best)\n", off, best, best / off, ours,
                  ours / best);
    assert_true(ours >= least * best);
}

static void close_to_the_best(void **state)
{
    (void)state;
    static const struct machine machines[] = {
        /* memory bound, one sequence, a repetitive text: eight columns cost 1.5 times one */
        {1e6, 7e4, 0, {0.9}, 1, 0.2},
        {1e6, 7e4, 0, {0.5}, 1, 0.2},
        /* compute bound: a column costs nearly a step */
        {1e5, 9e5, 0, {0.8}, 1, 0.2},
        /* guesses are never right: the price is what it takes to find out */
        {1e6, 7e4, 0, {0.0}, 1, 0.2},
        {1e6, 3e5, 0, {0.02, 0.0, 0.01, 0.0}, 4, 0.2},
        /* eight sequences, all good */
        {1e6, 7e4, 0, {0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8}, 8, 0.2},
        /* compute-bound sequences that never repeat: looking again costs little */
        {4e6, 4e5, 0, {0}, 8, 0.2},
        /* a draft model at a fifth of the cost; and one that costs as much as the target */
        {1e6, 7e4, 2e5, {0.85}, 1, 0.2},
        {1e6, 7e4, 1e6, {0.95}, 1, 0.2},
    };
    for (size_t i = 0; i < COUNT_OF(machines); i++)
        compare(&machines[i], 0.96);
    /* two that repeat themselves among two that don't: better than any common length */
    const struct machine mixed = {1e6, 2e5, 0, {0.9, 0.0, 0.9, 0.0}, 4, 0.2};
    compare(&mixed, 1.02);
}

static void nothing_without_knowledge_or_room(void **state)
{
    (void)state;
    struct spec_gate g;
    struct spec_record r[2] = {0};
    struct spec_want w[2] = {{&r[0], 8, 99}, {&r[1], 8, 99}};
    spec_gate_init(&g);
    spec_gate_plan(&g, w, 2, 2, SPEC_COLS_MAX); /* what two decodes cost isn't known */
    assert_int_equal(0, w[0].guess + w[1].guess);
    spec_gate_cost(&g, 2, 1000000);
    spec_gate_plan(&g, w, 2, 2, SPEC_COLS_MAX);
    assert_true(w[0].guess > 0 && w[1].guess > 0);
    spec_gate_plan(&g, w, 2, 2, 2);
    assert_int_equal(0, w[0].guess + w[1].guess);
    for (int i = 0; i < 200; i++) {
        spec_gate_plan(&g, w, 2, 2, 3);
        assert_true(w[0].guess + w[1].guess <= 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lookup_is_the_definition), cmocka_unit_test(lookup_of_little),
                                       cmocka_unit_test(close_to_the_best),
                                       cmocka_unit_test(nothing_without_knowledge_or_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
