/* .npy: files that numpy wrote (make_data.py), hand-made broken ones, and what we write compared with numpy's own bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"
#include "tensor/npy.h"

#include "tensor/file.h"

static void expect_file(const char *name, const char *want_name, enum dtype dtype, struct shape shape)
{
    struct error err;
    struct tensor t;
    struct slice file = test_file(name), want = test_file(want_name);
    if (npy_read(file, &t, &err))
        fail_msg("%s: %s", name, err.text);
    assert_int_equal(t.dtype, dtype);
    assert_true(shape_eq(&t.shape, &shape));
    assert_int_equal(t.data.n, want.n);
    assert_memory_equal(t.data.p ? t.data.p : (const uint8_t *)"", want.p, want.n);
    tensor_release(&t);
    test_file_free(file);
    test_file_free(want);
}

static void numpys_files(void **state)
{
    (void)state;
    struct shape s = {3, {2, 3, 4}};
    expect_file("f4_c.npy", "f4_c.bin", DTYPE_FP32, s);
    expect_file("v2.npy", "f4_c.bin", DTYPE_FP32, s);
    expect_file("f4_fortran.npy", "f4_fortran.bin", DTYPE_FP32, s);
    expect_file("i8_big.npy", "i8_big.bin", DTYPE_INT64, s);
    expect_file("u2_big_fortran.npy", "u2_big_fortran.bin", DTYPE_UINT16, s);
    expect_file("f2.npy", "f2.bin", DTYPE_FP16, s);
    expect_file("b1.npy", "b1.bin", DTYPE_BOOL, s);
    expect_file("u1.npy", "u1.bin", DTYPE_UINT8, s);
    expect_file("scalar.npy", "scalar.bin", DTYPE_FP64, (struct shape){0, {0}});
    expect_file("empty.npy", "empty.bin", DTYPE_INT32, (struct shape){2, {0, 3}});
    expect_file("f8_1d.npy", "f8_1d.bin", DTYPE_FP64, (struct shape){1, {2}});
    expect_file("unicode.npy", "unicode.bin", DTYPE_BYTES, (struct shape){2, {2, 3}});
    expect_file("unicode_big_fortran.npy", "unicode.bin", DTYPE_BYTES, (struct shape){2, {2, 3}});
    struct slice file = test_file("bytes.npy");
    struct tensor t;
    struct error err;
    assert_int_equal(npy_read(file, &t, &err), STATUS_OK);
    assert_int_equal(t.data.n, 17);
    assert_memory_equal(t.data.p, "\2\0\0\0ab\0\0\0\0\3\0\0\0\xff\0\1", 17);
    tensor_release(&t);
    test_file_free(file);
}

static void what_is_not_taken(void **state)
{
    (void)state;
    static const struct {
        const char *name, *part;
    } bad[] = {{"bad_object.npy", "objects are never loaded"},
               {"bad_complex.npy", "its type '<c16' is not one of"},
               {"bad_struct.npy", "structures are not taken"},
               {"bad_date.npy", "its type '<M8[D]' is not one of"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct slice file = test_file(bad[i].name);
        struct tensor t;
        struct error err;
        assert_int_equal(npy_read(file, &t, &err), STATUS_INVALID);
        if (!strstr(err.text, bad[i].part))
            fail_msg("%s: says '%s'", bad[i].name, err.text);
        test_file_free(file);
    }
}

static void broken_files(void **state)
{
    (void)state;
    static const struct {
        const char *dict, *part;
    } bad[] = {
        {"", "not a dict"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), ", "dict"},
        {"{'descr': '<f4', 'fortran_order': False}", "lacks one of"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "repeated key 'descr'"},
        {"{'descr': '<f4', 'other': 1, 'fortran_order': False, 'shape': (1,)}", "key 'other'"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", "True or False"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 1}", "not a tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "whole number"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "whole number"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", "does not fit"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "does not fit the 4 bytes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", "behind the dict"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}", "more than 16"},
        {"{'descr': '<f3', 'fortran_order': False, 'shape': (1,)}", "no type 'f' of 3"},
        {"{'descr': '<f99999999999999999999', 'fortran_order': False, 'shape': (1,)}", "is not one of"},
        {"{'descr': '<U4611686018427387905', 'fortran_order': False, 'shape': (1,)}", "no type 'U'"},
        {"{'descr': '|S0', 'fortran_order': False, 'shape': (9223372036854775807,)}", "does not fit"},
        {"{'descr': '<U1', 'fortran_order': False, 'shape': (1,)}", "not Unicode"},
        {"{'descr': '|b1', 'fortran_order': False, 'shape': (4,)}", "BOOL element 2 is the byte 128"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint8_t file[256] = "\x93NUMPY\1\0";
        size_t n = strlen(bad[i].dict);
        file[8] = (uint8_t)n;
        memcpy(file + 10, bad[i].dict, n);
        memcpy(file + 10 + n, "\0\0\x80\x3f", 4); /* 1.0f */
        struct tensor t;
        struct error err;
        assert_int_equal(npy_read(slice_borrow(file, 10 + n + 4), &t, &err), STATUS_INVALID);
        if (!strstr(err.text, bad[i].part))
            fail_msg("%s: says '%s', want '%s'", bad[i].dict, err.text, bad[i].part);
        assert_int_equal(t.data.n, 0);
    }
    struct slice file = test_file("v2.npy");
    for (size_t n = 0; n < file.n; n++) { /* cut anywhere */
        uint8_t *p = malloc(n ? n : 1);
        memcpy(p, file.p, n);
        struct tensor t;
        struct error err;
        assert_int_equal(npy_read(slice_borrow(p, n), &t, &err), STATUS_INVALID);
        free(p);
    }
    test_file_free(file);
}

static void views_and_references(void **state)
{
    (void)state;
    struct slice file = test_file("f4_c.npy");
    struct slab *s = slab_create(file.n);
    memcpy(s->data, file.p, file.n);
    struct tensor t;
    struct error err;
    assert_int_equal(npy_read((struct slice){s->data, file.n, s}, &t, &err), STATUS_OK);
    assert_ptr_equal(t.data.owner, s);
    assert_ptr_equal(t.data.p, s->data + file.n - 96);
    assert_int_equal(s->refs, 2);
    tensor_release(&t);
    slab_unref(s);
    test_file_free(file);
}

static void written_as_numpy_writes(void **state)
{
    (void)state;
    static const char *const names[] = {"f4_c.npy",   "f2.npy",    "b1.npy",    "u1.npy",
                                        "scalar.npy", "empty.npy", "f8_1d.npy", "bytes.npy"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct slice file = test_file(names[i]);
        struct tensor t;
        struct error err;
        struct buf b;
        buf_init(&b);
        assert_int_equal(npy_read(file, &t, &err), STATUS_OK);
        assert_int_equal(npy_write(&t, &b, &err), STATUS_OK);
        assert_int_equal(b.n, file.n);
        assert_memory_equal(b.p, file.p, file.n);
        buf_release(&b);
        tensor_release(&t);
        test_file_free(file);
    }
    struct error err;
    struct buf b;
    buf_init(&b);
    struct tensor t = {STR("s"), DTYPE_BYTES, {1, {1}}, slice_borrow("\2\0\0\0a\0", 6)}, back;
    assert_int_equal(npy_write(&t, &b, &err), STATUS_INVALID);
    const uint16_t h[] = {0x3f80, 0xc000};
    t = (struct tensor){STR("h"), DTYPE_BF16, {1, {2}}, slice_borrow(h, 4)};
    assert_int_equal(npy_write(&t, &b, &err), STATUS_OK);
    assert_int_equal(npy_read(slice_borrow(b.p, b.n), &back, &err), STATUS_OK);
    assert_int_equal(back.dtype, DTYPE_FP32);
    assert_memory_equal(back.data.p, ((const float[]){1, -2}), 8);
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numpys_files),         cmocka_unit_test(what_is_not_taken),       cmocka_unit_test(broken_files),
        cmocka_unit_test(views_and_references), cmocka_unit_test(written_as_numpy_writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
