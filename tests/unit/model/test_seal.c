/* test_seal.c: the parts of sealed and signed models that a process can't show: known answers, zeroed memory, the vault's memory bound. Whole
 * files, tampering and the independent decoding are in tests/wire/test_sealed.py. */
#include "harness.h"

#include "model/seal_sign.h"

#define KEY "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

/* Made with the Python package cryptography 50.0.2: key bytes 0..31, salt 0x20..0x3f, chunk size 4096, content "hello world". */
static const char SEALED[] =
    "494e46445345414c010000000010000048fdc8aa39d02d16202122232425262728292a2b2c2d2e2f30313233343536373839"
    "3a3b3c3d3e3f0b000000000000005c0c9462c39418616402fc6583fdecd3e2cb2bce3410fae8d15457";
/* SHA-256("inferd seal key" || 0..31), first 8 bytes, by Python's hashlib. */
static const char KEY_ID[] = "48fdc8aa39d02d16";

static size_t unhex(const char *hex, uint8_t *out)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        unsigned v;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &v), 1);
        out[i] = (uint8_t)v;
    }
    return n;
}

static int read_memory(void *ctx, uint64_t offset, void *p, size_t n, struct error *err)
{
    (void)err;
    memcpy(p, (const uint8_t *)ctx + offset, n);
    return 0;
}

static void test_known_file(void **state)
{
    (void)state;
    uint8_t file[256], digest[32], expected[32];
    char id[SEAL_ID_TEXT];
    struct seal_keys keys = {.n = 0};
    struct os_blob out;
    struct error err = {0};
    assert_int_equal(seal_keys_add(&keys, STR(KEY "\n"), "key", &err), 0);
    seal_id_text(keys.v[0].id, id);
    assert_string_equal(id, KEY_ID);
    struct seal_source s = {.read = read_memory, .ctx = file, .name = "f"};
    s.bytes = unhex(SEALED, file);
    assert_int_equal(seal_open(&s, &keys, 100, digest, &out, &err), 0);
    assert_int_equal(out.n, 11);
    assert_memory_equal(out.p, "hello world", 11);
    assert_true(out.secret);
    assert_true(sign_digest(file, s.bytes, expected));
    assert_memory_equal(digest, expected, 32);
    os_blob_release(&out);
    assert_null(out.p);
    assert_int_equal(seal_open(&s, &keys, 10, NULL, &out, &err), STATUS_TOO_LARGE);
    seal_keys_wipe(&keys);
    assert_int_equal(keys.n, 0);
    for (size_t i = 0; i < sizeof keys; i++)
        assert_int_equal(((const uint8_t *)&keys)[i], 0);
    assert_int_equal(seal_open(&s, &keys, 100, NULL, &out, &err), STATUS_FORBIDDEN);
    assert_non_null(strstr(err.text, KEY_ID));
}

/* A released page is zero even for who still reads it: shown on a drop inside, which keeps the mapping. */
static void test_dropped_pages_are_empty(void **state)
{
    (void)state;
    struct os_blob b;
    uint8_t *p;
    assert_int_equal(os_blob_alloc(5 * 4096 + 10, true, &b, &p, NULL), 0);
    memset(p, 0xaa, b.n);
    os_blob_drop(&b, p + 100, 3 * 4096);
    for (size_t i = 0; i < b.n; i++)
        assert_int_equal(p[i], i >= 4096 && i < 3 * 4096 ? 0 : 0xaa);
    os_blob_drop(&b, p + 1, 4094); /* no whole page */
    assert_int_equal(p[1], 0xaa);
    os_blob_release(&b);
    assert_int_equal(os_blob_alloc(0, true, &b, &p, NULL), 0);
    os_blob_release(&b);
}

static void test_keys_as_text(void **state)
{
    (void)state;
    struct seal_keys keys = {.n = 0};
    struct error err = {0};
    assert_int_equal(seal_keys_add(&keys, STR("# none\n\n " KEY " , " KEY "\r\n"), "t", &err), 0);
    assert_int_equal(keys.n, 1); /* the same key once */
    static const char *const bad[] = {"x", KEY "0", "0001", "zz0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(seal_keys_add(&keys, str_of(bad[i]), "t", &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, "t, line 1"));
        assert_null(strstr(err.text, "0001"));
    }
}

static void test_paths(void **state)
{
    (void)state;
    static const char *const good[] = {"a", "a/b.c", "..a", "a b", "\xc3\xa4"};
    static const char *const bad[] = {"", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\nb", "a\x7f"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(sign_path_valid(str_of(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(sign_path_valid(str_of(bad[i])));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_file),
        cmocka_unit_test(test_dropped_pages_are_empty),
        cmocka_unit_test(test_keys_as_text),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
