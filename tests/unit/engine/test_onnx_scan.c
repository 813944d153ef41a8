/* test_onnx_scan.c: the reader of ONNX files. The files were written by the `onnx` package (tests/data/make_models.py); hand-made bytes
 * are drawn beside their test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "engine/onnx/scan.h"

static char bytes[1 << 20];
static struct arena arena;
static struct onnx_scan scan;
static struct error err;

static size_t read_model(const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/models/%s/model.onnx", TEST_DATA, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    return n;
}

static int scan_bytes(const char *p, size_t n)
{
    arena_clear(&arena);
    err = (struct error){0};
    return onnx_scan((struct str){p, n}, &arena, &scan, &err);
}

static void scan_model(const char *name)
{
    if (scan_bytes(bytes, read_model(name)))
        fail_msg("%s: %s", name, err.text);
}

static void reads_a_model(void **state)
{
    (void)state;
    scan_model("simple");
    assert_int_equal(scan.ir_version, 8);
    assert_true(str_eqz(scan.producer, "inferd tests"));
    assert_true(str_eqz(scan.doc, "sum and difference"));
    assert_true(str_eqz(scan.graph_name, "simple"));
    assert_int_equal(scan.opsets->number, 17);
    assert_int_equal(scan.n_nodes, 2);
    assert_int_equal(scan.n_inputs, 2);
    assert_int_equal(scan.n_outputs, 2);
    assert_true(str_eqz(scan.inputs->next->name, "INPUT1"));
    assert_int_equal(scan.inputs->elem_type, 6);
    assert_int_equal(scan.inputs->rank, 2);
    assert_int_equal(scan.inputs->dim[0], -1);
    assert_int_equal(scan.inputs->dim[1], 16);
    assert_true(str_eqz(scan.inputs->dim_names[0], "batch"));
    assert_int_equal(scan.initializer_bytes, 0);
    assert_null(scan.external);
    assert_int_equal(onnx_scan_check(&scan, &err), 0);
    scan_model("scalar");
    assert_true(scan.inputs->has_shape);
    assert_int_equal(scan.inputs->rank, 0);
    scan_model("optional");
    assert_int_equal(scan.initializer_bytes, 8); /* two floats */
    scan_model("slow");
    assert_int_equal(scan.n_nodes, 3);  /* the loop and its body's two */
    assert_int_equal(scan.n_inputs, 2); /* the body's are not the model's */
}

static void finds_external_data_everywhere(void **state)
{
    (void)state;
    static const struct {
        const char *model, *location;
    } cases[] = {{"external", "data/weights.bin"},
                 {"external_attribute", "../external/data/weights.bin"},
                 {"external_branch", "../external/data/weights.bin"},
                 {"external_memory", "*/_ORT_MEM_ADDR_/*"},
                 {"external_absolute", "/etc/hostname"}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        scan_model(cases[k].model);
        assert_int_equal(scan.n_external, 1); /* two tensors in one file count once */
        assert_true(str_eqz(scan.external->value, cases[k].location));
    }
}

/* A message field: number, length, content. */
static size_t put(char *p, int field, const char *content, size_t n)
{
    p[0] = (char)(field << 3 | 2);
    p[1] = (char)n;
    memmove(p + 2, content, n);
    return n + 2;
}

static void bounds_hold(void **state)
{
    (void)state;
    /* Graphs in attributes in nodes in graphs, built from the inside out: 7 { 1 { 5 { 6 { 1 ... */
    static char deep[4096], tmp[4096];
    size_t n = 0;
    for (int level = 0; level < 120; level++) {
        static const int fields[] = {5, 1, 6};
        char head[4] = {(char)((level == 119 ? 7 : fields[level % 3]) << 3 | 2)};
        size_t h = 1;
        if (n < 128) {
            head[h++] = (char)n;
        } else {
            head[h++] = (char)(n & 127) | (char)128;
            head[h++] = (char)(n >> 7);
        }
        memcpy(tmp, deep, n);
        memcpy(deep, head, h);
        memcpy(deep + h, tmp, n);
        n += h;
    }
    assert_int_equal(scan_bytes(deep, n), STATUS_INVALID);
    assert_string_equal(err.text, "the ONNX model nests deeper than 100 messages");

    char model[256], graph[128], value[64], type[32];
    /* A dim of INT64_MIN and one that is absent, then 20 dims: all dynamic, and the rank is refused. */
    size_t t = put(type, 2, "\12\13\10\200\200\200\200\200\200\200\200\200\1\12\0", 15);
    t += put(type + t, 1, "", 0); /* elem_type with the wrong wire type is skipped */
    size_t v = put(value, 1, "x", 1);
    char tensor[64];
    size_t tn = put(tensor, 1, type, t);
    v += put(value + v, 2, tensor, tn);
    size_t g = put(graph, 11, value, v);
    g += put(graph + g, 12, value, v);
    size_t m = put(model, 7, graph, g);
    model[m++] = 8, model[m++] = 9; /* IR version 9 */
    assert_int_equal(scan_bytes(model, m), 0);
    assert_int_equal(scan.inputs->rank, 2);
    assert_int_equal(scan.inputs->dim[0], -1);
    assert_int_equal(scan.inputs->dim[1], -1);
    assert_int_equal(onnx_scan_check(&scan, &err), STATUS_UNIMPLEMENTED); /* no element type */

    static const char *const broken[] = {
        "\377", "\12\377\377\377\377\377\377\377\377\377\1", "\13", "\14", "\15\0", "\11\0\0", "\0\1", "\10"};
    for (size_t k = 0; k < sizeof broken / sizeof broken[0]; k++)
        assert_int_equal(scan_bytes(broken[k], strlen(broken[k]) ? strlen(broken[k]) : 2), STATUS_INVALID);
    assert_int_equal(scan_bytes("", 0), STATUS_INVALID);
    assert_int_equal(scan_bytes("ORTM....", 8), STATUS_INVALID);
}

static void survives_every_cut(void **state)
{
    (void)state;
    static const char *const models[] = {"zoo", "slow", "external_branch", "map", "maybe"};
    for (size_t k = 0; k < sizeof models / sizeof models[0]; k++) {
        size_t n = read_model(models[k]);
        for (size_t cut = 0; cut < n; cut++) {
            char *copy = malloc(cut ? cut : 1); /* so that ASan sees a read past the end */
            memcpy(copy, bytes, cut);
            int rc = scan_bytes(copy, cut);
            assert_true(rc == 0 || rc == STATUS_INVALID);
            free(copy);
        }
    }
}

static void types_have_names(void **state)
{
    (void)state;
    assert_int_equal(onnx_dtype(16), DTYPE_BF16);
    assert_int_equal(onnx_dtype(14), DTYPE_INVALID);
    assert_int_equal(onnx_dtype(-1), DTYPE_INVALID);
    assert_int_equal(onnx_dtype(1000), DTYPE_INVALID);
    assert_string_equal(onnx_type_name(20), "FLOAT8E5M2FNUZ");
    assert_string_equal(onnx_type_name(99), "an unknown type");
}

static int setup(void **state)
{
    (void)state;
    arena_init(&arena, 4096, 1 << 20);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_release(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_model),    cmocka_unit_test(finds_external_data_everywhere),
        cmocka_unit_test(bounds_hold),      cmocka_unit_test(survives_every_cut),
        cmocka_unit_test(types_have_names),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
