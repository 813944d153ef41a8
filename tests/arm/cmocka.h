/* cmocka.h: the few macros of cmocka that the kernels' tests use, so that they can be cross-built without its library. A failure prints its
 * place and ends the program. Used by kernels.sh only. */
#ifndef INFERD_TESTS_ARM_CMOCKA_H
#define INFERD_TESTS_ARM_CMOCKA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};
#define cmocka_unit_test(f)                                                                                                    \
    {                                                                                                                          \
#f, f                                                                                                                  \
    }
#define CHECK(c)                                                                                                               \
    do {                                                                                                                       \
        if (!(c)) {                                                                                                            \
            printf("FAILED %s:%d: %s\n", __FILE__, __LINE__, #c);                                                              \
            exit(1);                                                                                                           \
        }                                                                                                                      \
    } while (0)
#define assert_true(c)               CHECK(c)
#define assert_false(c)              CHECK(!(c))
#define assert_null(c)               CHECK(!(c))
#define assert_non_null(c)           CHECK(c)
#define assert_int_equal(a, b)       CHECK((long long)(a) == (long long)(b))
#define assert_string_equal(a, b)    CHECK(!strcmp(a, b))
#define assert_memory_equal(a, b, n) CHECK(!memcmp(a, b, n))
#define fail()                       CHECK(0)

static inline int run_tests(const struct CMUnitTest *t, size_t n, int (*setup)(void **), int (*teardown)(void **))
{
    if (setup)
        CHECK(!setup(NULL));
    for (size_t i = 0; i < n; i++) {
        t[i].run(NULL);
        printf("ok %s\n", t[i].name);
    }
    return teardown ? teardown(NULL) : 0;
}
#define cmocka_run_group_tests(t, setup, teardown) run_tests(t, sizeof(t) / sizeof *(t), setup, teardown)

#endif
