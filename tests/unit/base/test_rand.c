/* xoshiro256** and splitmix64 against published sequences; the derived forms by their statistics. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rand.h"

/* splitmix64 from the published reference code (Vigna 2015), seed 1234567: the first outputs fill the state. */
static void seeding_is_splitmix64(void **state)
{
    (void)state;
    struct rand r;
    rand_init(&r, 1234567);
    assert_true(r.s[0] == 6457827717110365317u);
    assert_true(r.s[1] == 3203168211198807973u);
    assert_true(r.s[2] == 9817491932198370423u);
    assert_true(r.s[3] == 4593380528125082431u);
    rand_init(&r, 0);
    assert_true(r.s[0] == 0xe220a8397b1dcdafu);
}

/* xoshiro256** from the published reference code (Blackman and Vigna 2018), state 1, 2, 3, 4. */
static void generator_is_xoshiro256starstar(void **state)
{
    (void)state;
    static const uint64_t want[] = {11520u,
                                    0u,
                                    1509978240u,
                                    1215971899390074240u,
                                    1216172134540287360u,
                                    607988272756665600u,
                                    16172922978634559625u,
                                    8476171486693032832u,
                                    10595114339597558777u,
                                    2904607092377533576u};
    struct rand r = {{1, 2, 3, 4}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_true(rand_u64(&r) == want[i]);
}

static void below_is_uniform(void **state)
{
    (void)state;
    struct rand r;
    rand_init(&r, 1);
    for (uint64_t n = 1; n <= 20; n++) {
        uint64_t seen[20] = {0};
        for (int i = 0; i < 20000; i++) {
            uint64_t v = rand_below(&r, n);
            assert_true(v < n);
            seen[v]++;
        }
        double chi = 0, expected = 20000.0 / (double)n;
        for (uint64_t v = 0; v < n; v++)
            chi += ((double)seen[v] - expected) * ((double)seen[v] - expected) / expected;
        assert_true(chi < 60); /* 99.999 % of chi squared with 19 degrees of freedom is 57.6 at most */
    }
    for (int i = 0; i < 1000; i++)
        assert_true(rand_below(&r, UINT64_MAX) < UINT64_MAX);
    uint64_t high = 0; /* n just over half the range: plain modulo would favour the low part two to one */
    for (int i = 0; i < 10000; i++)
        high += rand_below(&r, (UINT64_MAX / 2) + 2) > UINT64_MAX / 4;
    assert_in_range(high, 4700, 5300);
}

static void unit_interval(void **state)
{
    (void)state;
    struct rand r;
    double sum = 0, squares = 0;
    rand_init(&r, 2);
    for (int i = 0; i < 100000; i++) {
        double v = rand_f64(&r);
        assert_true(v >= 0 && v < 1);
        sum += v;
        squares += v * v;
    }
    assert_true(sum > 49500 && sum < 50500);         /* 50000, standard deviation 91 */
    assert_true(squares > 33000 && squares < 33670); /* 33333 */
    struct rand top = {{0, 0xffffffffffffffffu, 0, 0}};
    assert_true(rand_f64(&top) < 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seeding_is_splitmix64),
        cmocka_unit_test(generator_is_xoshiro256starstar),
        cmocka_unit_test(below_is_uniform),
        cmocka_unit_test(unit_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
