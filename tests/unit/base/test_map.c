/* The hash table against a plain array; the hash against make_siphash.py (checked there with the paper's vector). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/map.h"
#include "base/rand.h"

static void hash_is_siphash_1_3(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed;
        size_t n;
        uint64_t want;
    } cases[] = {
        {0x0u, 0, 0x61d1b8495b88d5e1u},
        {0x0u, 1, 0xbdbb744947faec88u},
        {0x1u, 7, 0x865af1896d88dbb5u},
        {0x1u, 8, 0x0efddd08abc13f40u},
        {0x123456789abcdefu, 15, 0xc38a4620d3828762u},
        {0xffffffffffffffffu, 64, 0x99087a07ff64a5aeu},
        {0x2au, 255, 0xea2c2f38a9683498u},
    };
    uint8_t bytes[257];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t misaligned = 0; misaligned < 2; misaligned++) {
            for (size_t k = 0; k < cases[i].n; k++)
                bytes[misaligned + k] = (uint8_t)k;
            assert_true(hash_bytes(bytes + misaligned, cases[i].n, cases[i].seed) == cases[i].want);
        }
    }
    assert_true(hash_bytes(NULL, 0, 0) == cases[0].want);
}

/* Any flipped bit of key or seed changes about half of the result. */
static void hash_avalanches(void **state)
{
    (void)state;
    uint8_t key[20] = "models/resnet50/1";
    uint64_t base = hash_bytes(key, sizeof key, 7), flips = 0;
    for (size_t bit = 0; bit < 8 * sizeof key; bit++) {
        key[bit / 8] ^= (uint8_t)(1 << bit % 8);
        flips += (uint64_t)__builtin_popcountll(base ^ hash_bytes(key, sizeof key, 7));
        key[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t bit = 0; bit < 64; bit++)
        flips += (uint64_t)__builtin_popcountll(base ^ hash_bytes(key, sizeof key, 7 ^ (1ull << bit)));
    assert_in_range(flips, 224 * 30, 224 * 34);
}

static void basics(void **state)
{
    (void)state;
    struct map m;
    int a, b;
    map_init(&m, 1);
    assert_null(map_get(&m, STR("x")));
    assert_null(map_remove(&m, STR("x")));
    assert_int_equal(map_put(&m, STR("x"), &a), 0);
    assert_int_equal(map_put(&m, STR(""), &b), 0); /* an empty key is a key */
    assert_ptr_equal(map_get(&m, STR("x")), &a);
    assert_ptr_equal(map_get(&m, (struct str){0}), &b);
    assert_int_equal(map_put(&m, STR("x"), &b), 0); /* replaces */
    assert_int_equal(m.n, 2);
    assert_ptr_equal(map_remove(&m, STR("x")), &b);
    assert_null(map_get(&m, STR("x")));
    assert_int_equal(m.n, 1);
    map_release(&m);
    assert_null(map_get(&m, STR("")));
    assert_int_equal(map_put(&m, STR("y"), &a), 0); /* usable again */
    map_release(&m);
}

/* Random puts and removals; the array says what must be there. Small tables make long probe chains and wrap-around common. */
static void against_array(void **state)
{
    (void)state;
    enum { KEYS = 300 };
    char names[KEYS][16];
    bool there[KEYS];
    struct rand r;
    rand_init(&r, 3);
    for (int i = 0; i < KEYS; i++)
        snprintf(names[i], sizeof names[i], "k%d", i);
    for (size_t keys = 5; keys <= KEYS; keys = keys * 3 + 7) {
        struct map m;
        map_init(&m, rand_u64(&r));
        memset(there, 0, sizeof there);
        size_t n = 0;
        for (int step = 0; step < 20000; step++) {
            size_t i = rand_below(&r, keys);
            struct str key = str_of(names[i]);
            if (there[i]) {
                assert_ptr_equal(map_remove(&m, key), names[i]);
                n--;
            } else {
                assert_int_equal(map_put(&m, key, names[i]), 0);
                n++;
            }
            there[i] = !there[i];
            assert_int_equal(m.n, n);
            size_t probe = rand_below(&r, keys);
            assert_ptr_equal(map_get(&m, str_of(names[probe])), there[probe] ? names[probe] : NULL);
            if (step % 500)
                continue;
            for (size_t k = 0; k < keys; k++)
                assert_ptr_equal(map_get(&m, str_of(names[k])), there[k] ? names[k] : NULL);
            bool seen[KEYS] = {0};
            struct str each;
            void *value;
            size_t at = 0, count = 0;
            while (map_next(&m, &at, &each, &value)) {
                size_t k = (size_t)((char(*)[16])value - names);
                assert_true(there[k] && !seen[k] && str_eqz(each, names[k]));
                seen[k] = true;
                count++;
            }
            assert_int_equal(count, n);
            assert_true(m.n * 4 <= m.cap * 3); /* never over three quarters full */
        }
        map_release(&m);
    }
}

static void iterates_without_outputs(void **state)
{
    (void)state;
    struct map m;
    size_t at = 0, n = 0;
    map_init(&m, 9);
    assert_false(map_next(&m, &at, NULL, NULL));
    assert_int_equal(map_put(&m, STR("a"), &m) | map_put(&m, STR("b"), &m), 0);
    for (at = 0; map_next(&m, &at, NULL, NULL);)
        n++;
    assert_int_equal(n, 2);
    map_release(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash_is_siphash_1_3), cmocka_unit_test(hash_avalanches),          cmocka_unit_test(basics),
        cmocka_unit_test(against_array),       cmocka_unit_test(iterates_without_outputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
