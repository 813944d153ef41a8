/* The inference request over gRPC: messages encoded by Google's protobuf from Triton's schema (infer_proto_vectors.h) decode to
 * hand-made bytes, wrong ones are refused with a sentence that names the input; each is cut at every byte, and the answer is compared
 * byte by byte with Google's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/size.h"
#include "tensor/infer_proto.h"
#include "tensor/infer_proto_vectors.h"

struct fixture {
    struct arena a;
    struct infer_proto m;
    struct error err;
    struct slab *slab; /* the message, exactly as large, so that the sanitizers see a read past it */
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    arena_init(&f->a, 4096, 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    infer_proto_release(&f->m);
    slab_unref(f->slab);
    arena_release(&f->a);
    free(f);
    return 0;
}

static void free_exact(struct slab *s)
{
    free(s->data);
    free(s);
}

static struct slab *exact(const uint8_t *data, size_t n)
{
    struct slab *s = calloc(1, sizeof *s);
    s->free_fn = free_exact;
    s->data = malloc(n ? n : 1);
    s->n = s->cap = n;
    memcpy(s->data, data, n);
    atomic_init(&s->refs, 1);
    return s;
}

static int decode(struct fixture *f, const uint8_t *data, size_t n)
{
    infer_proto_release(&f->m);
    slab_unref(f->slab);
    f->slab = exact(data, n);
    f->err = (struct error){0};
    return infer_proto_decode((struct slice){f->slab->data, n, f->slab}, &f->a, NULL, &f->m, &f->err);
}

#define DECODE(f, v) decode(f, v, sizeof v)

#define REFUSED(f, v, part)                                                                                                    \
    do {                                                                                                                       \
        assert_int_equal(DECODE(f, v), STATUS_INVALID);                                                                        \
        if (!strstr((f)->err.text, part))                                                                                      \
            fail_msg("\"%s\" is not in \"%s\"", part, (f)->err.text);                                                          \
        assert_int_equal((f)->m.request.n_inputs, 0);                                                                          \
    } while (0)

static void the_whole_request(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(DECODE(f, v_raw), 0);
    const struct infer_json *r = &f->m.request;
    assert_true(str_eqz(f->m.model_name, "add") && str_eqz(f->m.model_version, "3") && str_eqz(r->id, "call-7"));
    assert_int_equal(r->n_inputs, 2);
    const struct tensor *a = &r->inputs[0], *b = &r->inputs[1];
    assert_true(str_eqz(a->name, "A") && a->dtype == DTYPE_INT32 && a->shape.rank == 2);
    assert_true(a->shape.dim[0] == 1 && a->shape.dim[1] == 4);
    static const int32_t want[] = {1, -2, 3, 1 << 30};
    assert_int_equal(a->data.n, sizeof want);
    assert_memory_equal(a->data.p, want, sizeof want);
    assert_true(str_eqz(b->name, "B") && b->dtype == DTYPE_BYTES);
    assert_memory_equal(b->data.p, "\2\0\0\0hi\0\0\0\0", 10);
    /* no copy: both lie inside the message */
    assert_true(a->data.owner == f->slab && a->data.p > f->slab->data && a->data.p < f->slab->data + f->slab->n);
    assert_int_equal(atomic_load(&f->slab->refs), 3);
    assert_int_equal(r->n_outputs, 1);
    assert_true(str_eqz(r->outputs[0].name, "SUM") && r->outputs[0].classification == 3);
    assert_int_equal(r->priority, 2);
    assert_int_equal(r->timeout_us, 1500);
    assert_int_equal(r->n_params, 3);
    const struct infer_param *p = infer_param_find(r->params, r->n_params, "note");
    assert_true(p && p->kind == INFER_PARAM_STRING && str_eqz(p->s, "x"));
    p = infer_param_find(r->params, r->n_params, "ratio");
    assert_true(p && p->kind == INFER_PARAM_DOUBLE && p->d == 0.5);
    p = infer_param_find(r->params, r->n_params, "deep");
    assert_true(p && p->kind == INFER_PARAM_BOOL && p->b);
}

static void typed_contents(void **state)
{
    static const struct {
        const uint8_t *v;
        size_t n;
        enum dtype dtype;
        size_t bytes;
        const char *data;
    } cases[] = {
        {v_typed_bool, sizeof v_typed_bool, DTYPE_BOOL, 3, "\1\0\1"},
        {v_typed_int8, sizeof v_typed_int8, DTYPE_INT8, 3, "\x80\x7f\xff"},
        {v_typed_int16, sizeof v_typed_int16, DTYPE_INT16, 4, "\x00\x80\xff\x7f"},
        {v_typed_int32, sizeof v_typed_int32, DTYPE_INT32, 8, "\0\0\0\x80\xff\xff\xff\x7f"},
        {v_typed_int64, sizeof v_typed_int64, DTYPE_INT64, 16, "\0\0\0\0\0\0\0\x80\xff\xff\xff\xff\xff\xff\xff\x7f"},
        {v_typed_uint8, sizeof v_typed_uint8, DTYPE_UINT8, 2, "\0\xff"},
        {v_typed_uint16, sizeof v_typed_uint16, DTYPE_UINT16, 4, "\1\0\xff\xff"},
        {v_typed_uint32, sizeof v_typed_uint32, DTYPE_UINT32, 8, "\7\0\0\0\xff\xff\xff\xff"},
        {v_typed_uint64, sizeof v_typed_uint64, DTYPE_UINT64, 16, "\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"},
        {v_typed_fp32, sizeof v_typed_fp32, DTYPE_FP32, 8, "\0\0\xc0\x3f\0\0\x80\xbe"},
        {v_typed_fp64, sizeof v_typed_fp64, DTYPE_FP64, 16, "\x9c\x75\x00\x88\x3c\xe4\x37\x7e\0\0\0\0\0\0\x04\xc0"},
        {v_typed_bytes, sizeof v_typed_bytes, DTYPE_BYTES, 16, "\1\0\0\0a\0\0\0\0\3\0\0\0\xff\0z"},
        {v_typed_empty, sizeof v_typed_empty, DTYPE_FP32, 0, ""},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        assert_int_equal(decode(f, cases[i].v, cases[i].n), 0);
        const struct tensor *t = &f->m.request.inputs[0];
        assert_int_equal(t->dtype, cases[i].dtype);
        assert_int_equal(t->data.n, cases[i].bytes);
        if (cases[i].bytes)
            assert_memory_equal(t->data.p, cases[i].data, cases[i].bytes);
        assert_int_equal(tensor_check(t, NULL), 0);
    }
    assert_int_equal(DECODE(f, v_typed_fp32), 0); /* one run of floats stays where it is */
    assert_true(f->m.request.inputs[0].data.owner == f->slab);
}

/* Elements one by one and in several runs, which Google's own encoder doesn't write: field 2, "\x10\5" is the element 5, "\x12\2\6\7" the
 * run 6 7. */
static void unpacked_contents(void **state)
{
    struct fixture *f = *state;
    static const uint8_t ints[] = "\x0a\1a\x2a\x17\x0a\1A\x12\5INT32\x1a\1\4\x2a\x08\x10\5\x12\2\6\7\x10\x08";
    assert_int_equal(decode(f, ints, sizeof ints - 1), 0);
    assert_memory_equal(f->m.request.inputs[0].data.p, "\5\0\0\0\6\0\0\0\7\0\0\0\x08\0\0\0", 16);
    static const uint8_t floats[] = "\x0a\1a\x2a\x18\x0a\1A\x12\4"
                                    "FP32\x18\2\x2a\x0b\x35\0\0\x80\x3f\x32\4\0\0\0\x40";
    assert_int_equal(decode(f, floats, sizeof floats - 1), 0);
    assert_memory_equal(f->m.request.inputs[0].data.p, "\0\0\x80\x3f\0\0\0\x40", 8);
    /* a run that ends inside a number */
    static const uint8_t cut[] = "\x0a\1a\x2a\x15\x0a\1A\x12\5INT32\x1a\1\2\x2a\x06\x12\4\5\6\x80\x80";
    assert_int_equal(decode(f, cut, sizeof cut - 1), STATUS_INVALID);
    assert_non_null(strstr(f->err.text, "int_contents"));
}

static void refusals(void **state)
{
    struct fixture *f = *state;
    REFUSED(f, v_int8_out_of_range, "input 'A': the element 128 is out of the range of INT8");
    REFUSED(f, v_uint16_out_of_range, "the element 65536 is out of the range of UINT16");
    REFUSED(f, v_wrong_field, "input 'A' is INT32, whose elements go into int_contents, but fp32_contents came");
    REFUSED(f, v_fp16_typed, "FP16 has no typed contents");
    REFUSED(f, v_too_few, "has 3 elements, but 2 came in int_contents");
    REFUSED(f, v_huge_shape, "more elements than fit 63 bits");
    REFUSED(f, v_big_shape, "has 1099511627776 elements, but 1 came");
    REFUSED(f, v_mixed, "input 'B' has typed 'contents' and the request has raw_input_contents");
    REFUSED(f, v_raw_count, "2 inputs but 1 raw_input_contents");
    REFUSED(f, v_raw_size, "input 'A': INT32 of shape [2] takes 8 bytes, but 4 came");
    REFUSED(f, v_raw_bool, "input 'A'");
    REFUSED(f, v_twice_input, "input 'A' is given twice");
    REFUSED(f, v_no_name, "inputs[0] has no name");
    REFUSED(f, v_no_datatype, "input 'A' has no datatype");
    REFUSED(f, v_bad_datatype, "datatype 'FLOAT'");
    REFUSED(f, v_negative_dim, "negative dimension");
    REFUSED(f, v_rank_17, "more than 16 dimensions");
    REFUSED(f, v_inputs_65, "more than 64 inputs");
    REFUSED(f, v_twice_output, "output 'S' is requested twice");
    REFUSED(f, v_sequence, "sequence_id");
    REFUSED(f, v_shared_memory, "shared_memory_region");
    REFUSED(f, v_params_65, "more than 64 parameters");
    REFUSED(f, v_valueless, "parameter 'x' has no value");
    REFUSED(f, v_uint64_over, "parameter 'x' is 9223372036854775808");
    REFUSED(f, v_priority_wrong, "parameter 'priority'");
    assert_int_equal(DECODE(f, v_final_response), 0);
    assert_int_equal(f->m.request.n_params, 1);
    assert_true(str_eqz(f->m.request.params[0].key, "kept"));
    assert_int_equal(DECODE(f, v_sequence_zero), 0); /* "no sequence" is what inferd does */
}

/* However a message is cut, it is refused or means less; nothing is read past the end. */
static void cut_at_every_byte(void **state)
{
    struct fixture *f = *state;
    for (size_t n = 0; n < sizeof v_raw; n++) {
        int rc = decode(f, v_raw, n);
        assert_true(rc == 0 || rc == STATUS_INVALID);
        assert_true(rc == 0 || f->err.text[0]);
    }
    for (size_t n = 0; n < sizeof v_typed_bytes; n++)
        assert_true(decode(f, v_typed_bytes, n) <= 0);
}

static void memory_limit(void **state)
{
    struct fixture *f = *state;
    struct infer_json_limits limits = {.tensor_bytes = 7};
    f->slab = exact(v_typed_int32, sizeof v_typed_int32);
    struct slice message = {f->slab->data, f->slab->n, f->slab};
    assert_int_equal(infer_proto_decode(message, &f->a, &limits, &f->m, &f->err), STATUS_TOO_LARGE);
    limits.tensor_bytes = 8;
    assert_int_equal(infer_proto_decode(message, &f->a, &limits, &f->m, &f->err), 0);
}

static struct tensor output(const char *name, enum dtype dtype, int rank, int64_t d0, int64_t d1, const void *data, size_t n)
{
    return (struct tensor){str_of(name), dtype, {(uint8_t)rank, {d0, d1}}, slice_borrow(data, n)};
}

static void reply_equals_googles(void **state)
{
    struct fixture *f = *state;
    static const int32_t small[] = {5, -5};
    struct slab *large = slab_create(3000);
    for (size_t i = 0; i < 3000; i++)
        large->data[i] = (uint8_t)(i % 251);
    struct tensor t[3] = {output("SMALL", DTYPE_INT32, 2, 1, 2, small, sizeof small),
                          output("LARGE", DTYPE_UINT8, 1, 3000, 0, large->data, 3000),
                          output("NONE", DTYPE_FP32, 1, 0, 0, NULL, 0)};
    t[1].data.owner = large;
    const struct tensor *outputs[] = {&t[0], &t[1], &t[2]};
    struct infer_param final = {.key = STR("triton_final_response"), .kind = INFER_PARAM_BOOL, .b = false};
    struct infer_proto_reply r = {
        STR("add"), STR("3"), STR("call-7"), &final, 1, outputs, 3, INFER_PROTO_COPY_BYTES,
    };
    for (int pass = 0; pass < 2; pass++) {
        struct slice slices[7];
        uint8_t *head, whole[4096];
        size_t n, bytes, at = 0;
        assert_int_equal(infer_proto_encode(&r, 5, slices, &n, &head, &bytes, &f->err), 0);
        assert_int_equal(n, pass ? 1 : 3); /* text, LARGE by reference, text; or all of it copied */
        assert_int_equal(atomic_load(&large->refs), pass ? 1 : 2);
        assert_ptr_equal(head, slices[0].p);
        for (size_t i = 0; i < n; i++) {
            memcpy(whole + at, slices[i].p, slices[i].n);
            at += slices[i].n;
            slice_release(&slices[i]);
        }
        assert_int_equal(bytes, sizeof v_reply);
        assert_int_equal(at, 5 + sizeof v_reply);
        assert_memory_equal(whole + 5, v_reply, sizeof v_reply);
        r.copy_bytes = SIZE_MAX;
    }
    slab_unref(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_whole_request, setup, teardown),
        cmocka_unit_test_setup_teardown(typed_contents, setup, teardown),
        cmocka_unit_test_setup_teardown(unpacked_contents, setup, teardown),
        cmocka_unit_test_setup_teardown(refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(cut_at_every_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(reply_equals_googles, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
