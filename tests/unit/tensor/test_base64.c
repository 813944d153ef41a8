/* Base64: RFC 4648 section 10's vectors, both ways. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tensor/base64.h"

static void test_vectors(void **state)
{
    static const char *const rows[][2] = {{"", ""},
                                          {"f", "Zg=="},
                                          {"fo", "Zm8="},
                                          {"foo", "Zm9v"},
                                          {"foob", "Zm9vYg=="},
                                          {"fooba", "Zm9vYmE="},
                                          {"foobar", "Zm9vYmFy"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char out[16];
        uint8_t back[16];
        size_t n = strlen(rows[i][0]), size = base64_encoded_size(n), got;
        assert_int_equal(size, strlen(rows[i][1]));
        base64_encode((const uint8_t *)rows[i][0], n, out);
        assert_memory_equal(out, rows[i][1], size);
        assert_true(base64_decode((struct str){out, size}, back, &got));
        assert_int_equal(got, n);
        assert_memory_equal(back, rows[i][0], n);
    }
    static const uint8_t high[] = {0xfb, 0xff, 0xfe};
    char out[4];
    base64_encode(high, 3, out);
    assert_memory_equal(out, "+//+", 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
