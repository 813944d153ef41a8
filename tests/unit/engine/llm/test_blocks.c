/* test_blocks.c: the KV block pool: counts, reuse by content, eviction order, sharing; a random walk against a naive model that keeps
 * whole prefixes in a list. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rand.h"
#include "engine/llm/blocks.h"

#define T KV_BLOCK_TOK

static void fill(int32_t *tokens, size_t n, int32_t first)
{
    for (size_t i = 0; i < n; i++)
        tokens[i] = first + (int32_t)i;
}

static void expect_counts(const struct blocks *b, uint32_t free, uint32_t used, uint32_t cached)
{
    struct blocks_stats s;
    blocks_stats(b, &s);
    assert_int_equal(s.free, free);
    assert_int_equal(s.used, used);
    assert_int_equal(s.cached, cached);
    assert_int_equal(s.free + s.used + s.cached, s.total);
    assert_true(blocks_validate(b));
}

/* A sequence of `n` full blocks of tokens: reuse what matches, compute and seal the rest. */
static uint32_t run_sequence(struct blocks *b, uint64_t salt, const int32_t *tokens, uint32_t n, uint32_t *table)
{
    uint32_t hit = blocks_match(b, salt, tokens, (size_t)n * T, n, table);
    for (uint32_t i = hit; i < n; i++) {
        uint32_t id = blocks_alloc(b);
        assert_int_not_equal(id, KV_BLOCK_NONE);
        table[i] = blocks_seal(b, id, i ? table[i - 1] : KV_BLOCK_NONE, salt, tokens + (size_t)i * T);
    }
    return hit;
}

static void give_back(struct blocks *b, const uint32_t *table, uint32_t n)
{
    while (n-- > 0)
        blocks_unref(b, table[n]);
}

static void prefix_is_found_again(void **state)
{
    (void)state;
    struct blocks *b = blocks_create(8, 1);
    int32_t tokens[4 * T];
    uint32_t table[4], again[4];
    fill(tokens, 4 * T, 0);
    assert_int_equal(run_sequence(b, 0, tokens, 3, table), 0);
    expect_counts(b, 5, 3, 0);
    give_back(b, table, 3);
    expect_counts(b, 5, 0, 3);
    /* 3 blocks and a part: only full blocks match */
    assert_int_equal(blocks_match(b, 0, tokens, 3 * T + 5, 4, again), 3);
    assert_memory_equal(table, again, 3 * sizeof *table);
    give_back(b, again, 3);
    /* another salt, another first token, a bound on the blocks */
    assert_int_equal(blocks_match(b, 7, tokens, 3 * T, 4, again), 0);
    assert_int_equal(blocks_match(b, 0, tokens, 3 * T, 2, again), 2);
    give_back(b, again, 2);
    tokens[0] = 99;
    assert_int_equal(blocks_match(b, 0, tokens, 3 * T, 4, again), 0);
    expect_counts(b, 5, 0, 3);
    blocks_destroy(b);
}

static void tails_are_evicted_first(void **state)
{
    (void)state;
    struct blocks *b = blocks_create(4, 1);
    int32_t tokens[4 * T];
    uint32_t table[4], again[4];
    fill(tokens, 4 * T, 0);
    run_sequence(b, 0, tokens, 4, table);
    give_back(b, table, 4);
    uint32_t taken = blocks_alloc(b);
    assert_int_equal(taken, table[3]);
    assert_int_equal(blocks_match(b, 0, tokens, 4 * T, 4, again), 3);
    expect_counts(b, 0, 4, 0);
    assert_int_equal(blocks_alloc(b), KV_BLOCK_NONE);
    give_back(b, again, 3);
    blocks_unref(b, taken);
    expect_counts(b, 1, 0, 3);
    blocks_destroy(b);
}

static void equal_work_is_shared_at_seal(void **state)
{
    (void)state;
    struct blocks *b = blocks_create(8, 1);
    int32_t tokens[T];
    fill(tokens, T, 5);
    uint32_t x = blocks_alloc(b), y = blocks_alloc(b);
    assert_int_equal(blocks_seal(b, x, KV_BLOCK_NONE, 0, tokens), x);
    assert_int_equal(blocks_seal(b, y, KV_BLOCK_NONE, 0, tokens), x);
    assert_int_equal(blocks_refs(b, x), 2);
    assert_false(blocks_writable(b, x));
    expect_counts(b, 7, 1, 0);
    blocks_unref(b, x);
    blocks_unref(b, x);
    expect_counts(b, 7, 0, 1);
    blocks_forget(b);
    expect_counts(b, 8, 0, 0);
    blocks_destroy(b);
}

/* Random sequences over a tiny alphabet of blocks, so that prefixes collide all the time. */
static void random_walk(void **state)
{
    (void)state;
    enum { POOL = 24, LIVE = 6, DEPTH = 6 };
    struct blocks *b = blocks_create(POOL, 42);
    struct {
        uint32_t table[DEPTH], n;
    } live[LIVE] = {0};
    struct rand r;
    rand_init(&r, 3);
    uint64_t hits = 0;
    for (int step = 0; step < 20000; step++) {
        size_t at = rand_below(&r, LIVE);
        if (live[at].n) {
            give_back(b, live[at].table, live[at].n);
            live[at].n = 0;
        } else {
            int32_t tokens[DEPTH * T];
            uint32_t n = 1 + (uint32_t)rand_below(&r, DEPTH);
            for (uint32_t i = 0; i < n; i++)
                fill(tokens + i * T, T, 1000 * (int32_t)rand_below(&r, 2));
            uint32_t hit = blocks_match(b, 0, tokens, (size_t)n * T, n, live[at].table);
            uint32_t need = n - hit;
            hits += hit;
            if (blocks_available(b) < need) {
                give_back(b, live[at].table, hit);
                continue;
            }
            for (uint32_t i = hit; i < n; i++)
                live[at].table[i] =
                    blocks_seal(b, blocks_alloc(b), i ? live[at].table[i - 1] : KV_BLOCK_NONE, 0, tokens + i * T);
            live[at].n = n;
        }
        if (step % 16 == 0)
            assert_true(blocks_validate(b));
    }
    for (size_t i = 0; i < LIVE; i++)
        give_back(b, live[i].table, live[i].n);
    struct blocks_stats s;
    blocks_stats(b, &s);
    assert_int_equal(s.used, 0);
    assert_true(hits > 0 && s.evictions > 0);
    assert_true(blocks_validate(b));
    blocks_destroy(b);
}

static void refuses_absurd_sizes(void **state)
{
    (void)state;
    assert_null(blocks_create(0, 1));
    assert_null(blocks_create(KV_BLOCK_NONE, 1));
    blocks_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefix_is_found_again),        cmocka_unit_test(tails_are_evicted_first),
        cmocka_unit_test(equal_work_is_shared_at_seal), cmocka_unit_test(random_walk),
        cmocka_unit_test(refuses_absurd_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
