/* The arena: alignment, disjointness, the limit, and what clear and trim keep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/rand.h"

static void pieces_are_aligned_and_disjoint(void **state)
{
    (void)state;
    enum { N = 500 };
    unsigned char *p[N];
    size_t n[N];
    struct arena a;
    struct rand r;
    rand_init(&r, 1);
    arena_init(&a, 1000, 0);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) {
            n[i] = rand_below(&r, 10) ? rand_below(&r, 100) : rand_below(&r, 20000);
            p[i] = arena_alloc(&a, n[i]);
            assert_non_null(p[i]);
            assert_int_equal((uintptr_t)p[i] % 16, 0);
            memset(p[i], i & 255, n[i]);
        }
        for (int i = 0; i < N; i++)
            for (size_t k = 0; k < n[i]; k++)
                assert_int_equal(p[i][k], i & 255);
        arena_clear(&a);
    }
    arena_release(&a);
    arena_release(&a);
}

static void steady_state_keeps_its_chunk(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 4096, 0);
    assert_int_equal(a.used_bytes, 0); /* init allocates nothing */
    void *first = arena_alloc(&a, 100);
    size_t used = a.used_bytes;
    for (int i = 0; i < 100; i++) {
        arena_clear(&a);
        assert_ptr_equal(arena_alloc(&a, 100), first);
        assert_non_null(arena_alloc(&a, 3000));
        assert_int_equal(a.used_bytes, used);
    }
    assert_non_null(arena_alloc(&a, 100000)); /* a second chunk */
    assert_true(a.used_bytes > 100000);
    arena_clear(&a);
    assert_int_equal(a.used_bytes, used); /* gone again */
    arena_trim(&a);
    assert_int_equal(a.used_bytes, 0);
    assert_non_null(arena_alloc(&a, 1));
    arena_release(&a);
}

/* A large first request must not stay with a kept-alive connection. */
static void clear_gives_an_oversized_chunk_back(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 4096, 0);
    assert_non_null(arena_alloc(&a, 1 << 20));
    arena_clear(&a);
    assert_int_equal(a.used_bytes, 0);
    arena_release(&a);
}

static void the_limit_holds(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 256, 10000);
    size_t got = 0;
    while (arena_alloc(&a, 16))
        got += 16;
    assert_true(a.used_bytes <= 10000);
    assert_true(got >= 9000); /* doubling chunks must not waste what is left of the limit */
    assert_null(arena_alloc(&a, 16));
    arena_clear(&a);
    assert_non_null(arena_alloc(&a, 16)); /* the arena lives on */
    assert_null(arena_alloc(&a, 10001));
    assert_non_null(arena_alloc(&a, 16));
    arena_release(&a);
}

static void absurd_sizes_are_refused(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 256, 0);
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_alloc(&a, SIZE_MAX - 40));
    assert_null(arena_array(&a, SIZE_MAX / 2, 3));
    assert_null(arena_strdup(&a, (struct str){"x", SIZE_MAX}));
    assert_non_null(arena_alloc(&a, 0));
    arena_release(&a);
}

static void zeroed_and_text(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 256, 0);
    memset(arena_alloc(&a, 200), 0xff, 200);
    arena_clear(&a);
    unsigned char *z = arena_zalloc(&a, 100), *array = arena_array(&a, 10, 7);
    for (int i = 0; i < 100; i++)
        assert_int_equal(z[i], 0);
    for (int i = 0; i < 70; i++)
        assert_int_equal(array[i], 0);
    assert_string_equal(arena_strdup(&a, STR("abc")), "abc");
    assert_string_equal(arena_strdup(&a, (struct str){0}), "");
    assert_string_equal(arena_printf(&a, "%d-%s", 42, "x"), "42-x");
    char big[3000];
    memset(big, 'q', sizeof big);
    assert_int_equal(strlen(arena_printf(&a, "%.*s", (int)sizeof big, big)), 3000);
    struct pair {
        int x, y;
    } *p = ARENA_NEW(&a, struct pair);
    assert_true(p->x == 0 && p->y == 0);
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_aligned_and_disjoint),
        cmocka_unit_test(steady_state_keeps_its_chunk),
        cmocka_unit_test(clear_gives_an_oversized_chunk_back),
        cmocka_unit_test(the_limit_holds),
        cmocka_unit_test(absurd_sizes_are_refused),
        cmocka_unit_test(zeroed_and_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
