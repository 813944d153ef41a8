/* test_sha256.c: the examples of FIPS 180-4 (NIST's SHA256.pdf), whole and split at every byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/sha256.h"

static void hex_of(struct sha256 *s, char out[65])
{
    uint8_t digest[32];
    sha256_finish(s, digest);
    for (int i = 0; i < 32; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

static void examples(void **state)
{
    (void)state;
    static const struct {
        const char *text, *digest;
    } cases[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        size_t n = strlen(cases[c].text);
        for (size_t cut = 0; cut <= 2 * n + 1; cut++) {
            struct sha256 s;
            char hex[65];
            sha256_init(&s);
            s.by_cpu = s.by_cpu && cut % 2; /* both implementations */
            sha256_add(&s, cases[c].text, cut / 2);
            sha256_add(&s, cases[c].text + cut / 2, n - cut / 2);
            hex_of(&s, hex);
            assert_string_equal(hex, cases[c].digest);
        }
    }
}

static void a_million_times_a(void **state)
{
    (void)state;
    char *p = malloc(1000000), hex[65];
    memset(p, 'a', 1000000);
    for (int plain = 0; plain < 2; plain++) {
        struct sha256 s;
        sha256_init(&s);
        s.by_cpu = s.by_cpu && !plain;
        for (size_t at = 0, step = 1; at < 1000000; at += step, step = step % 997 + 1)
            sha256_add(&s, p + at, 1000000 - at < step ? 1000000 - at : step);
        hex_of(&s, hex);
        assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(examples), cmocka_unit_test(a_million_times_a)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
