/* Padding and cutting: hand-made examples, and random shapes against an oracle that places every element by its index. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "tensor/pad.h"

static uint64_t random_state = 1234567;
static uint64_t rnd(uint64_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % below;
}

static void fill_values(void **state)
{
    (void)state;
    struct pad_fill f;
    struct error err;
    assert_int_equal(pad_fill_set(DTYPE_FP32, 0.1, &f, &err), STATUS_OK);
    assert_memory_equal(f.element, (&(const float){0.1f}), 4);
    assert_int_equal(pad_fill_set(DTYPE_FP32, -INFINITY, &f, &err), STATUS_OK);
    assert_int_equal(pad_fill_set(DTYPE_FP32, 1e39, &f, &err), STATUS_INVALID);
    assert_int_equal(pad_fill_set(DTYPE_FP16, 0.1, &f, &err), STATUS_OK);
    assert_memory_equal(f.element, "\x66\x2e", 2);
    assert_int_equal(pad_fill_set(DTYPE_FP16, 65520, &f, &err), STATUS_INVALID);
    /* 1 + 2^-11 + 2^-40 is above the tie between 1 and the next half; through float it would be the tie */
    assert_int_equal(pad_fill_set(DTYPE_FP16, 1 + 0x1p-11 + 0x1p-40, &f, &err), STATUS_OK);
    assert_memory_equal(f.element, "\x01\x3c", 2);
    assert_int_equal(pad_fill_set(DTYPE_BF16, -2, &f, &err), STATUS_OK);
    assert_memory_equal(f.element, "\x00\xc0", 2);
    assert_int_equal(pad_fill_set(DTYPE_INT64, -3, &f, &err), STATUS_OK);
    assert_memory_equal(f.element, (&(const int64_t){-3}), 8);
    assert_int_equal(pad_fill_set(DTYPE_INT8, -128, &f, &err), STATUS_OK);
    assert_int_equal(f.element[0], 0x80);
    assert_int_equal(pad_fill_set(DTYPE_INT8, 128, &f, &err), STATUS_INVALID);
    assert_string_equal(err.text, "padding value 128: INT8 takes whole numbers from -128 to 127");
    assert_int_equal(pad_fill_set(DTYPE_UINT8, 0.5, &f, &err), STATUS_INVALID);
    assert_int_equal(pad_fill_set(DTYPE_UINT64, 0x1p64, &f, &err), STATUS_INVALID);
    assert_int_equal(pad_fill_set(DTYPE_INT64, 0x1p63, &f, &err), STATUS_INVALID);
    assert_int_equal(pad_fill_set(DTYPE_INT64, -0x1p63, &f, &err), STATUS_OK);
    assert_int_equal(pad_fill_set(DTYPE_INT32, NAN, &f, &err), STATUS_INVALID);
    assert_int_equal(pad_fill_set(DTYPE_BOOL, 1, &f, &err), STATUS_OK);
    assert_int_equal(pad_fill_set(DTYPE_BOOL, 2, &f, &err), STATUS_INVALID);
    assert_int_equal(pad_fill_set(DTYPE_BYTES, 0, &f, &err), STATUS_OK);
    assert_int_equal(pad_fill_set(DTYPE_BYTES, 1, &f, &err), STATUS_INVALID);
}

static void an_example_by_hand(void **state)
{
    (void)state;
    struct error err;
    const int32_t a[] = {1, 2, 3, 4}, b[] = {5, 6, 7};
    struct tensor ta = {STR("x"), DTYPE_INT32, {2, {2, 2}}, slice_borrow(a, 16)};
    struct tensor tb = {STR("x"), DTYPE_INT32, {2, {1, 3}}, slice_borrow(b, 12)};
    const struct tensor *m[] = {&ta, &tb};
    struct shape s, want = {2, {3, 3}};
    size_t bytes;
    assert_int_equal(pad_shape(m, 2, &s, &err), STATUS_OK);
    assert_true(shape_eq(&s, &want));
    s.dim[0] = 4;
    s.dim[1] = 4;
    assert_int_equal(pad_bytes(m, 2, &s, &bytes, &err), STATUS_OK);
    assert_int_equal(bytes, 64);
    int32_t out[16];
    struct pad_fill fill;
    assert_int_equal(pad_fill_set(DTYPE_INT32, -1, &fill, &err), STATUS_OK);
    assert_int_equal(pad_gather(m, 2, &s, &fill, out, 64, &err), STATUS_OK);
    const int32_t expected[] = {1, 2, -1, -1, 3, 4, -1, -1, 5, 6, 7, -1, -1, -1, -1, -1};
    assert_memory_equal(out, expected, 64);
    assert_int_equal(pad_gather(m, 2, &s, &fill, out, 60, &err), STATUS_INTERNAL);
    float mask[16];
    assert_int_equal(pad_mask(DTYPE_FP32, (const int64_t[]){2, 1}, (const int64_t[]){2, 3}, 2, 4, 4, mask, 64, &err),
                     STATUS_OK);
    const float expected_mask[] = {1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0};
    assert_memory_equal(mask, expected_mask, 64);
    assert_int_equal(pad_mask(DTYPE_FP32, (const int64_t[]){2, 1}, (const int64_t[]){2, 5}, 2, 4, 4, mask, 64, &err),
                     STATUS_INVALID);
    assert_int_equal(pad_mask(DTYPE_FP32, (const int64_t[]){2, 3}, (const int64_t[]){2, 3}, 2, 4, 4, mask, 64, &err),
                     STATUS_INVALID);
    assert_int_equal(pad_mask(DTYPE_BYTES, (const int64_t[]){1}, (const int64_t[]){1}, 1, 4, 4, mask, 64, &err),
                     STATUS_INVALID);
}

static void what_does_not_fit_is_named(void **state)
{
    (void)state;
    struct error err;
    int32_t z[8] = {0};
    struct tensor a = {STR("x"), DTYPE_INT32, {2, {2, 2}}, slice_borrow(z, 16)}, b = a;
    const struct tensor *m[] = {&a, &b};
    struct shape s;
    size_t bytes;
    b.dtype = DTYPE_UINT32;
    assert_int_equal(pad_shape(m, 2, &s, &err), STATUS_INVALID);
    b = a;
    b.shape.rank = 1;
    assert_int_equal(pad_shape(m, 2, &s, &err), STATUS_INVALID);
    a.shape.rank = b.shape.rank = 0;
    assert_int_equal(pad_shape(m, 2, &s, &err), STATUS_INVALID);
    a.shape.rank = 2;
    b = a;
    assert_int_equal(pad_bytes(m, 2, &(struct shape){2, {3, 2}}, &bytes, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "more rows than the batch of shape [3,2]"));
    assert_int_equal(pad_bytes(m, 2, &(struct shape){2, {4, 1}}, &bytes, &err), STATUS_INVALID);
    assert_string_equal(err.text, "'x': INT32 of shape [2,2] is longer than the batch it is laid into: [4,1]");
    assert_int_equal(pad_bytes(m, 2, &(struct shape){2, {4, INT64_MAX / 4}}, &bytes, &err), STATUS_INVALID);
    assert_int_equal(pad_bytes(m, 2, &(struct shape){2, {INT64_MAX, 2}}, &bytes, &err), STATUS_INVALID);
    struct tensor out;
    assert_int_equal(pad_cut(&a, 1, 2, NULL, 0, &out, &err), STATUS_INVALID);
    assert_int_equal(pad_cut(&a, -1, 1, NULL, 0, &out, &err), STATUS_INVALID);
    assert_int_equal(pad_cut(&a, 0, 1, &(struct pad_cut){1, 3}, 1, &out, &err), STATUS_INVALID);
    assert_int_equal(pad_cut(&a, 0, 1, &(struct pad_cut){2, 1}, 1, &out, &err), STATUS_INVALID);
    assert_int_equal(pad_cut(&a, 0, 1, &(struct pad_cut){0, 1}, 1, &out, &err), STATUS_INVALID);
    assert_int_equal(out.data.n, 0);
}

/* ---- the oracle: every element is a string; for fixed dtypes its bytes, for BYTES with its length ---- */

#define MAX_ELEMENTS 4096
struct elements {
    size_t n;
    uint8_t text[MAX_ELEMENTS][16];
    size_t len[MAX_ELEMENTS];
};

static size_t count(const struct shape *s)
{
    uint64_t n;
    assert_true(shape_elements(s, &n));
    assert_true(n <= MAX_ELEMENTS);
    return (size_t)n;
}

static void random_element(struct elements *e, size_t i, enum dtype t)
{
    size_t each = dtype_bytes(t), n = each ? each : rnd(8);
    e->len[i] = each ? each : n + 4;
    if (!each)
        memcpy(e->text[i], (&(const uint32_t){(uint32_t)n}), 4);
    for (size_t k = 0; k < n; k++)
        e->text[i][k + (each ? 0 : 4)] = (uint8_t)(t == DTYPE_BOOL ? rnd(2) : rnd(256));
}

static struct slice pack(const struct elements *e, size_t n)
{
    struct slab *s = slab_create(n * 16);
    for (size_t i = 0; i < n; i++) {
        memcpy(s->data + s->n, e->text[i], e->len[i]);
        s->n += e->len[i];
    }
    return (struct slice){s->data, s->n, s};
}

/* The index of element `i` of a tensor of shape `from` in one of shape `to`, `row` rows further; false: not inside. */
static bool place(size_t i, const struct shape *from, const struct shape *to, int64_t row, size_t *at)
{
    int64_t index[TENSOR_RANK_MAX];
    for (size_t k = from->rank; k-- > 0;) {
        index[k] = (int64_t)i % from->dim[k];
        i /= (size_t)from->dim[k];
    }
    index[0] += row;
    *at = 0;
    for (size_t k = 0; k < to->rank; k++) {
        if (index[k] < 0 || index[k] >= to->dim[k])
            return false;
        *at = *at * (size_t)to->dim[k] + (size_t)index[k];
    }
    return true;
}

static const enum dtype dtypes[] = {DTYPE_BOOL, DTYPE_FP16, DTYPE_INT32, DTYPE_FP64, DTYPE_BYTES};
static struct elements own[4], whole, part;

static void gather_once(size_t rank, enum dtype t)
{
    struct tensor m[4];
    const struct tensor *members[4];
    struct shape target;
    struct pad_fill fill;
    struct error err;
    size_t n = 1 + rnd(4), bytes;
    for (size_t i = 0; i < n; i++) {
        m[i] = (struct tensor){STR("x"), t, {.rank = (uint8_t)rank}, {0}};
        for (size_t k = 0; k < rank; k++)
            m[i].shape.dim[k] = rnd(8) ? 1 + (int64_t)rnd(rank > 4 ? 2 : 4) : 0;
        for (size_t k = 0; k < count(&m[i].shape); k++)
            random_element(&own[i], k, t);
        m[i].data = pack(&own[i], count(&m[i].shape));
        members[i] = &m[i];
    }
    assert_int_equal(pad_shape(members, n, &target, &err), STATUS_OK);
    for (size_t k = 0; k < rank; k++)
        target.dim[k] += (int64_t)(rnd(3) == 0);
    if (target.rank > 4 && count(&target) > 3000)
        goto out;
    assert_int_equal(pad_fill_set(t, t == DTYPE_BYTES ? 0 : 1, &fill, &err), STATUS_OK);
    size_t total = count(&target);
    for (size_t i = 0; i < total; i++) {
        whole.len[i] = dtype_bytes(t) ? dtype_bytes(t) : 4;
        memset(whole.text[i], 0, 16);
        memcpy(whole.text[i], fill.element, t == DTYPE_BYTES ? 0 : whole.len[i]);
    }
    int64_t row = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0, at; k < count(&m[i].shape); k++) {
            assert_true(place(k, &m[i].shape, &target, row, &at));
            whole.len[at] = own[i].len[k];
            memcpy(whole.text[at], own[i].text[k], 16);
        }
        row += m[i].shape.dim[0];
    }
    struct slice want = pack(&whole, total);
    assert_int_equal(pad_bytes(members, n, &target, &bytes, &err), STATUS_OK);
    assert_int_equal(bytes, want.n);
    uint8_t *got = malloc(bytes ? bytes : 1);
    assert_int_equal(pad_gather(members, n, &target, &fill, got, bytes, &err), STATUS_OK);
    assert_memory_equal(got, want.p, bytes);
    free(got);
    slice_release(&want);
out:
    for (size_t i = 0; i < n; i++)
        tensor_release(&m[i]);
}

static void random_batches(void **state)
{
    (void)state;
    for (int round = 0; round < 4000; round++)
        gather_once(1 + rnd(6), dtypes[rnd(5)]);
}

static void cut_once(size_t rank, enum dtype t)
{
    struct tensor batch = {STR("y"), t, {.rank = (uint8_t)rank}, {0}}, out;
    struct pad_cut cuts[TENSOR_RANK_MAX];
    struct error err;
    size_t n_cuts = 0;
    for (size_t k = 0; k < rank; k++)
        batch.shape.dim[k] = rnd(12) ? 1 + (int64_t)rnd(rank > 4 ? 3 : 5) : 0;
    size_t total = count(&batch.shape);
    for (size_t i = 0; i < total; i++)
        random_element(&whole, i, t);
    batch.data = pack(&whole, total);
    int64_t first = (int64_t)rnd((uint64_t)batch.shape.dim[0] + 1);
    int64_t rows = (int64_t)rnd((uint64_t)(batch.shape.dim[0] - first) + 1);
    struct shape want_shape = batch.shape;
    want_shape.dim[0] = rows;
    for (size_t k = 1; k < rank; k++)
        if (rnd(2)) {
            int64_t length = (int64_t)rnd((uint64_t)batch.shape.dim[k] + 1);
            cuts[n_cuts++] = (struct pad_cut){(uint8_t)k, length};
            want_shape.dim[k] = length;
        }
    size_t kept = count(&want_shape), at;
    for (size_t i = 0; i < kept; i++) {
        assert_true(place(i, &want_shape, &batch.shape, first, &at));
        part.len[i] = whole.len[at];
        memcpy(part.text[i], whole.text[at], 16);
    }
    struct slice want = pack(&part, kept);
    assert_int_equal(pad_cut(&batch, first, rows, cuts, n_cuts, &out, &err), STATUS_OK);
    assert_true(shape_eq(&out.shape, &want_shape));
    assert_int_equal(out.data.n, want.n);
    assert_memory_equal(out.data.p ? out.data.p : (const uint8_t *)"", want.p, want.n);
    assert_int_equal(tensor_check(&out, &err), STATUS_OK);
    tensor_release(&out);
    slice_release(&want);
    assert_int_equal(batch.data.owner->refs, 1);
    tensor_release(&batch);
}

static void random_cuts(void **state)
{
    (void)state;
    for (int round = 0; round < 4000; round++)
        cut_once(1 + rnd(6), dtypes[rnd(5)]);
}

static void contiguous_cuts_are_views(void **state)
{
    (void)state;
    struct error err;
    struct slab *s = slab_create(4 * 3 * 4 * 4);
    struct tensor y = {STR("y"), DTYPE_FP32, {3, {4, 3, 4}}, slice_of(s, 0, s->cap)}, out;
    assert_int_equal(pad_cut(&y, 1, 2, NULL, 0, &out, &err), STATUS_OK);
    assert_ptr_equal(out.data.owner, s);
    tensor_release(&out);
    assert_int_equal(pad_cut(&y, 2, 1, &(struct pad_cut){1, 2}, 1, &out, &err), STATUS_OK); /* one row, the outermost axis */
    assert_ptr_equal(out.data.p, s->data + 2 * 48);
    assert_int_equal(out.data.n, 32);
    tensor_release(&out);
    assert_int_equal(pad_cut(&y, 1, 2, &(struct pad_cut){1, 3}, 1, &out, &err), STATUS_OK); /* nothing is lost */
    assert_ptr_equal(out.data.owner, s);
    tensor_release(&out);
    assert_int_equal(pad_cut(&y, 1, 2, &(struct pad_cut){1, 2}, 1, &out, &err), STATUS_OK);
    assert_ptr_not_equal(out.data.owner, s);
    tensor_release(&out);
    tensor_release(&y);
    assert_int_equal(s->refs, 1);
    slab_unref(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fill_values),    cmocka_unit_test(an_example_by_hand), cmocka_unit_test(what_does_not_fit_is_named),
        cmocka_unit_test(random_batches), cmocka_unit_test(random_cuts),        cmocka_unit_test(contiguous_cuts_are_views),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
