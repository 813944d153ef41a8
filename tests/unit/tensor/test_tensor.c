/* Shapes, sizes, the agreement check and row views; expected values by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/status.h"
#include "tensor/tensor.h"

static struct shape shape_of(int rank, ...)
{
    struct shape s = {.rank = (uint8_t)rank};
    va_list ap;
    va_start(ap, rank);
    for (int i = 0; i < rank; i++)
        s.dim[i] = va_arg(ap, int64_t);
    va_end(ap);
    return s;
}
#define I(x) ((int64_t)(x))

static void shapes_count_and_print(void **state)
{
    (void)state;
    char text[128];
    uint64_t n;
    struct shape s = shape_of(3, I(2), I(-1), I(224));
    assert_string_equal(shape_format(&s, text, sizeof text), "[2,-1,224]");
    assert_string_equal(shape_format(&s, text, 6), "[2,-1");
    assert_string_equal(shape_format(&s, text, 1), "");
    assert_false(shape_elements(&s, &n));
    s = shape_of(0);
    assert_string_equal(shape_format(&s, text, sizeof text), "[]");
    assert_true(shape_elements(&s, &n));
    assert_int_equal(n, 1);
    s = shape_of(2, I(3), I(0));
    assert_true(shape_elements(&s, &n));
    assert_int_equal(n, 0);
    s = shape_of(2, I(1) << 32, I(1) << 31);
    assert_false(shape_elements(&s, &n));
    s = shape_of(2, I(1) << 32, (I(1) << 31) - 1);
    assert_true(shape_elements(&s, &n));
    size_t bytes;
    assert_false(tensor_bytes(DTYPE_FP32, &s, &bytes));
    s = shape_of(3, I(1) << 40, I(1) << 40, I(0));
    assert_true(tensor_bytes(DTYPE_FP64, &s, &bytes));
    assert_int_equal(bytes, 0);
    s = shape_of(2, I(3), I(5));
    assert_true(tensor_bytes(DTYPE_FP16, &s, &bytes));
    assert_int_equal(bytes, 30);
    assert_false(tensor_bytes(DTYPE_BYTES, &s, &bytes));
    struct shape same = shape_of(2, I(3), I(5)), other = shape_of(2, I(5), I(3)), longer = shape_of(3, I(3), I(5), I(1));
    assert_true(shape_eq(&s, &same));
    assert_false(shape_eq(&s, &other));
    assert_false(shape_eq(&s, &longer));
    s.rank = 17;
    assert_false(shape_elements(&s, &n));
}

static void check_names_expected_and_found(void **state)
{
    (void)state;
    struct error err;
    uint8_t data[32] = {0};
    struct tensor t = {STR("x"), DTYPE_FP32, shape_of(2, I(2), I(3)), slice_borrow(data, 24)};
    assert_int_equal(tensor_check(&t, &err), STATUS_OK);
    t.data.n = 20;
    assert_int_equal(tensor_check(&t, &err), STATUS_INVALID);
    assert_string_equal(err.text, "tensor 'x': FP32 of shape [2,3] takes 24 bytes, but 20 came");
    t.shape.dim[0] = -2;
    assert_int_equal(tensor_check(&t, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "negative"));
    t = (struct tensor){STR("b"), DTYPE_BOOL, shape_of(1, I(3)), slice_borrow("\1\0\2", 3)};
    assert_int_equal(tensor_check(&t, &err), STATUS_INVALID);
    assert_string_equal(err.text, "tensor 'b': BOOL element 2 is the byte 2; only 0 and 1 are BOOL values");
    t.dtype = DTYPE_INVALID;
    assert_int_equal(tensor_check(&t, &err), STATUS_INVALID);
}

static void check_walks_bytes(void **state)
{
    (void)state;
    struct error err;
    static const char ab[] = "\2\0\0\0ab\0\0\0\0\1\0\0\0"; /* "ab", "", "\0" with the literal's own NUL as its byte */
    struct tensor t = {STR("s"), DTYPE_BYTES, shape_of(1, I(3)), slice_borrow(ab, sizeof ab)};
    assert_int_equal(tensor_check(&t, &err), STATUS_OK);
    t.data.n--;
    assert_int_equal(tensor_check(&t, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "element 2 says it is 1 bytes"));
    t.data.n -= 1;
    assert_int_equal(tensor_check(&t, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "inside the length of element 2"));
    t.data.n = sizeof ab;
    t.shape.dim[0] = 2;
    assert_int_equal(tensor_check(&t, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "5 of the tensor's 15 bytes are left over"));
    t = (struct tensor){STR("s"), DTYPE_BYTES, shape_of(1, I(1)), slice_borrow("\xff\xff\xff\xff", 4)};
    assert_int_equal(tensor_check(&t, &err), STATUS_INVALID);
    t = (struct tensor){STR("s"), DTYPE_BYTES, shape_of(2, I(0), I(4)), slice_borrow(NULL, 0)};
    assert_int_equal(tensor_check(&t, &err), STATUS_OK);
}

static void rows_are_views(void **state)
{
    (void)state;
    struct slab *s = slab_create(24);
    for (int i = 0; i < 24; i++)
        s->data[i] = (uint8_t)i;
    struct tensor t = {STR("x"), DTYPE_UINT16, shape_of(3, I(3), I(2), I(2)), slice_of(s, 0, 24)}, r;
    tensor_rows(&t, 1, 2, &r);
    assert_ptr_equal(r.data.p, s->data + 8);
    assert_int_equal(r.data.n, 16);
    assert_int_equal(r.shape.dim[0], 2);
    assert_int_equal(s->refs, 3);
    tensor_release(&r);
    tensor_release(&t);
    slab_unref(s);

    static const char ab[] = "\2\0\0\0ab\0\0\0\0\1\0\0\0c\0\0\0\0"; /* "ab", "", "c", "" */
    t = (struct tensor){STR("s"), DTYPE_BYTES, shape_of(2, I(2), I(2)), slice_borrow(ab, 19)};
    struct error err;
    assert_int_equal(tensor_check(&t, &err), STATUS_OK);
    tensor_rows(&t, 1, 1, &r);
    assert_int_equal(r.data.n, 9);
    assert_memory_equal(r.data.p, ab + 10, 9);
    t = (struct tensor){STR("z"), DTYPE_FP32, shape_of(3, I(0), I(1) << 40, I(1) << 40), slice_borrow(NULL, 0)};
    tensor_rows(&t, 0, 0, &r);
    assert_int_equal(r.data.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_count_and_print),
        cmocka_unit_test(check_names_expected_and_found),
        cmocka_unit_test(check_walks_bytes),
        cmocka_unit_test(rows_are_views),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
