/* test_rank.c: the ordered set against a sorted array that is searched end to end. */
#include "sched/rig.h"

#include "base/rand.h"
#include "sched/rank.h"

#define N 200

struct thing {
    struct rank_node node;
    uint64_t key;
};

static bool thing_less(const struct rank_node *a, const struct rank_node *b)
{
    const struct thing *x = CONTAINER_OF(a, struct thing, node), *y = CONTAINER_OF(b, struct thing, node);
    return x->key < y->key;
}

/* The same answers from an array of the members, sorted by insertion. */
static void compare(struct rank_tree *t, struct thing *all, const bool *in, uint64_t limit)
{
    struct thing *sorted[N];
    size_t n = 0;
    for (size_t i = 0; i < N; i++)
        if (in[i]) {
            size_t at = n++;
            for (; at && sorted[at - 1]->key > all[i].key; at--)
                sorted[at] = sorted[at - 1];
            sorted[at] = &all[i];
        }
    assert_true(rank_validate(t));
    struct rank_node *walk = rank_first(t);
    uint64_t before = 0, rows = 0, deadline = UINT64_MAX, arrived = UINT64_MAX;
    uint32_t nodes = 0;
    bool in_prefix = true;
    for (size_t i = 0; i < n; i++, walk = rank_next(walk)) {
        assert_ptr_equal(walk, &sorted[i]->node);
        uint32_t count;
        assert_int_equal(rank_rows_before(t, walk, &count), before);
        assert_int_equal(count, i);
        before += sorted[i]->node.rows;
        in_prefix = in_prefix && before <= limit;
        if (in_prefix) {
            rows = before;
            nodes++;
            deadline = MIN_OF(deadline, sorted[i]->node.deadline_ns);
            arrived = MIN_OF(arrived, sorted[i]->node.arrived_ns);
        }
    }
    assert_null(walk);
    struct rank_span s = rank_prefix(t, limit);
    assert_int_equal(s.rows, rows);
    assert_int_equal(s.nodes, nodes);
    assert_true(s.min_deadline_ns == deadline && s.min_arrived_ns == arrived);
    assert_ptr_equal(rank_after(t, limit), nodes < n ? &sorted[nodes]->node : NULL);
    struct rank_node *urgent = rank_prefix_urgent(t, limit);
    assert_true(nodes ? urgent && urgent->deadline_ns == deadline : !urgent);
    if (urgent)
        assert_true(rank_rows_before(t, urgent, NULL) + urgent->rows <= limit);
}

static void test_against_sorted_array(void **state)
{
    (void)state;
    struct rand rnd;
    rand_init(&rnd, 7);
    struct rank_tree t;
    static struct thing all[N];
    bool in[N] = {0};
    rank_init(&t, thing_less);
    for (size_t i = 0; i < N; i++)
        rank_node_init(&all[i].node);
    for (int step = 0; step < 4000; step++) {
        size_t i = rand_below(&rnd, N);
        if (in[i]) {
            rank_remove(&t, &all[i].node);
            assert_false(rank_contains(&all[i].node));
        } else {
            all[i].key = rand_below(&rnd, 1000) * N + i; /* distinct */
            all[i].node.rows = 1 + (uint32_t)rand_below(&rnd, 8);
            all[i].node.deadline_ns = rand_below(&rnd, 50);
            all[i].node.arrived_ns = rand_below(&rnd, 50);
            rank_insert(&t, &all[i].node);
        }
        in[i] = !in[i];
        compare(&t, all, in, rand_below(&rnd, 300));
    }
}

/* Sorted input, the worst case of a plain search tree, stays shallow. */
static void test_depth_of_sorted_input(void **state)
{
    (void)state;
    enum { MANY = 100000 };
    struct thing *all = calloc(MANY, sizeof *all);
    struct rank_tree t;
    rank_init(&t, thing_less);
    for (size_t i = 0; i < MANY; i++) {
        rank_node_init(&all[i].node);
        all[i].key = i;
        all[i].node.rows = 1;
        rank_insert(&t, &all[i].node);
    }
    size_t deepest = 0;
    for (size_t i = 0; i < MANY; i++) {
        size_t depth = 0;
        for (struct rank_node *n = &all[i].node; n->up; n = n->up)
            depth++;
        deepest = MAX_OF(deepest, depth);
    }
    assert_true(deepest < 64); /* about 4.3 ln n expected */
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_sorted_array),
        cmocka_unit_test(test_depth_of_sorted_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
