/* The intrusive list and heap, each step compared with a plain array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/heap.h"
#include "base/list.h"
#include "base/rand.h"

struct item {
    struct list node;
    struct heap_node heap;
    uint64_t key;
    int id;
};

static struct item *item_of(struct list *l)
{
    return LIST_ENTRY(l, struct item, node);
}

static void list_basics(void **state)
{
    (void)state;
    struct list head;
    struct item a = {.id = 1}, b = {.id = 2}, c = {.id = 3};
    list_init(&head);
    list_init(&a.node);
    assert_true(list_empty(&head));
    assert_null(list_first(&head));
    assert_null(list_last(&head));
    assert_null(list_pop_front(&head));
    list_remove(&a.node); /* not in a list: no effect */
    list_push_back(&head, &b.node);
    list_push_front(&head, &a.node);
    list_push_back(&head, &c.node);
    assert_int_equal(item_of(list_first(&head))->id, 1);
    assert_int_equal(item_of(list_last(&head))->id, 3);
    int sum = 0;
    LIST_EACH(it, &head)
    {
        sum = sum * 10 + item_of(it)->id;
        list_remove(it); /* the body may remove the current node */
    }
    assert_int_equal(sum, 123);
    assert_true(list_empty(&head));
    list_remove(&b.node); /* again */
}

/* Random pushes, inserts and removals against an array of ids. */
static void list_against_array(void **state)
{
    (void)state;
    enum { N = 40 };
    struct item items[N];
    int order[N];
    size_t n = 0;
    struct list head;
    struct rand r;
    rand_init(&r, 1);
    list_init(&head);
    for (int i = 0; i < N; i++) {
        items[i].id = i;
        list_init(&items[i].node);
    }
    for (int step = 0; step < 20000; step++) {
        int id = (int)rand_below(&r, N);
        size_t at = 0;
        while (at < n && order[at] != id)
            at++;
        if (at < n) {
            list_remove(&items[id].node);
            memmove(order + at, order + at + 1, (n - at - 1) * sizeof *order);
            n--;
        } else {
            size_t to = rand_below(&r, n + 1);
            struct list *before = to == n ? &head : &items[order[to]].node;
            list_insert_before(before, &items[id].node);
            memmove(order + to + 1, order + to, (n - to) * sizeof *order);
            order[to] = id;
            n++;
        }
        size_t seen = 0;
        LIST_EACH(it, &head)
        {
            assert_true(seen < n);
            assert_int_equal(item_of(it)->id, order[seen]);
            assert_ptr_equal(it->next->prev, it);
            seen++;
        }
        assert_int_equal(seen, n);
    }
}

static bool less(const struct heap_node *a, const struct heap_node *b)
{
    return CONTAINER_OF(a, struct item, heap)->key < CONTAINER_OF(b, struct item, heap)->key;
}

/* Random pushes, pops and removals; after every step the heap is valid and its minimum is the array's. */
static void heap_against_sorted_array(void **state)
{
    (void)state;
    enum { N = 120 };
    static const uint64_t key_ranges[] = {3, 100, UINT64_MAX}; /* many equal keys, some, none */
    struct item items[N];
    struct rand r;
    rand_init(&r, 2);
    for (size_t round = 0; round < 3; round++) {
        struct heap h;
        heap_init(&h, less);
        for (int i = 0; i < N; i++)
            heap_node_init(&items[i].heap);
        for (int step = 0; step < 6000; step++) {
            struct item *it = &items[rand_below(&r, N)];
            uint64_t action = rand_below(&r, 10);
            if (action == 0) {
                struct heap_node *min = heap_min(&h), *popped = heap_pop(&h);
                assert_ptr_equal(min, popped);
                assert_true(!popped || !heap_contains(popped));
            } else if (heap_contains(&it->heap)) {
                heap_remove(&h, &it->heap);
                assert_false(heap_contains(&it->heap));
            } else {
                it->key = rand_below(&r, key_ranges[round]);
                heap_push(&h, &it->heap);
                assert_true(heap_contains(&it->heap));
            }
            assert_true(heap_validate(&h));
            uint64_t least = UINT64_MAX;
            size_t n = 0;
            for (int i = 0; i < N; i++) {
                if (!heap_contains(&items[i].heap))
                    continue;
                n++;
                least = items[i].key < least ? items[i].key : least;
            }
            assert_int_equal(h.n, n);
            assert_true(n ? CONTAINER_OF(heap_min(&h), struct item, heap)->key == least : !heap_min(&h));
        }
        uint64_t last = 0;
        while (h.n) { /* what is left comes out in order */
            struct item *it = CONTAINER_OF(heap_pop(&h), struct item, heap);
            assert_true(it->key >= last);
            last = it->key;
            assert_true(heap_validate(&h));
        }
        assert_null(heap_pop(&h));
    }
}

/* Ascending pushes make one long child list, descending ones a chain as deep as the heap: no recursion may overflow. */
static void heap_extremes(void **state)
{
    (void)state;
    enum { N = 200000 };
    struct item *items = calloc(N, sizeof *items);
    for (int descending = 0; descending < 2; descending++) {
        struct heap h;
        heap_init(&h, less);
        for (size_t i = 0; i < N; i++) {
            heap_node_init(&items[i].heap);
            items[i].key = descending ? N - i : i;
            heap_push(&h, &items[i].heap);
        }
        assert_true(heap_validate(&h));
        for (size_t i = 0; i < N; i++)
            assert_int_equal(CONTAINER_OF(heap_pop(&h), struct item, heap)->key, i + (size_t)descending);
    }
    free(items);
}

static void validate_sees_damage(void **state)
{
    (void)state;
    struct item items[10];
    struct heap h;
    heap_init(&h, less);
    for (size_t i = 0; i < 10; i++) {
        heap_node_init(&items[i].heap);
        items[i].key = i;
        heap_push(&h, &items[i].heap);
    }
    assert_true(heap_validate(&h));
    items[0].key = 5; /* the root is no longer the least */
    assert_false(heap_validate(&h));
    items[0].key = 0;
    h.n++;
    assert_false(heap_validate(&h));
    h.n--;
    struct heap_node *child = h.root->child;
    child->prev = NULL;
    assert_false(heap_validate(&h));
    child->prev = h.root;
    assert_true(heap_validate(&h));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_basics),   cmocka_unit_test(list_against_array),   cmocka_unit_test(heap_against_sorted_array),
        cmocka_unit_test(heap_extremes), cmocka_unit_test(validate_sees_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
