/* The client's side of KServe v2: expected bytes by hand from the Open Inference Protocol and its binary tensor extension. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "cli/kserve.h"

static struct arena arena;

static int set_up(void **state)
{
    (void)state;
    arena_init(&arena, 4096, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    arena_release(&arena);
    return 0;
}

static const char metadata[] =
    "{\"name\":\"m\",\"versions\":[\"1\",\"2\"],\"platform\":\"onnxruntime_onnx\","
    "\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,2]},{\"name\":\"o\",\"datatype\":"
    "\"INT64\",\"shape\":[]}],\"outputs\":[{\"name\":\"y\",\"datatype\":\"BYTES\",\"shape\":[-1,1]}]}";

static void model(void **state)
{
    (void)state;
    struct kserve_model m;
    struct error err = {0};
    const char config[] = "{\"max_batch_size\":8,\"input\":[{\"name\":\"o\",\"optional\":true}]}";
    assert_int_equal(kserve_model_parse(str_of(metadata), str_of(config), &arena, &m, &err), 0);
    assert_true(str_eqz(m.name, "m") && str_eqz(m.versions, "1, 2") && str_eqz(m.platform, "onnxruntime_onnx"));
    assert_int_equal(m.max_batch, 8);
    assert_int_equal(m.n_inputs, 2);
    assert_int_equal(m.inputs[0].dtype, DTYPE_FP32);
    assert_int_equal(m.inputs[0].shape.dim[0], -1);
    assert_int_equal(m.inputs[1].shape.rank, 0);
    assert_true(m.inputs[1].optional && !m.inputs[0].optional);
    assert_int_equal(m.outputs[0].dtype, DTYPE_BYTES);
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"name\":\"m\",\"inputs\":[],\"outputs\":1}",
        "{\"name\":\"m\",\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP8\",\"shape\":[1]}],\"outputs\":[]}",
        "{\"name\":\"m\",\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":\"1\"}],\"outputs\":[]}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(kserve_model_parse(str_of(bad[i]), STR(""), &arena, &m, &err), STATUS_INVALID);
}

static const float two[] = {1.5f, -2.5f};
static const int64_t nine = 9;

static void requests(void **state)
{
    (void)state;
    const struct tensor inputs[] = {
        {STR("x"), DTYPE_FP32, {2, {1, 2}}, slice_borrow(two, 8)},
        {STR("o"), DTYPE_INT64, {0}, slice_borrow(&nine, 8)},
    };
    struct kserve_model m;
    struct buf body = {0};
    struct error err = {0};
    size_t header;
    assert_int_equal(kserve_model_parse(str_of(metadata), STR(""), &arena, &m, &err), 0);
    struct kserve_request r = {.inputs = inputs, .n_inputs = 2, .id = "7", .timeout_us = 5, .priority = 2};
    const char head[] =
        "{\"id\":\"7\",\"parameters\":{\"binary_data_output\":true,\"timeout\":5,\"priority\":2},\"inputs\":[{\"name\":\"x\","
        "\"datatype\":\"FP32\",\"shape\":[1,2],\"parameters\":{\"binary_data_size\":8}},{\"name\":\"o\",\"datatype\":\"INT64\","
        "\"shape\":[],\"parameters\":{\"binary_data_size\":8}}]}";
    assert_int_equal(kserve_request_build(&r, &m, &body, &header, &err), 0);
    assert_int_equal(header, strlen(head));
    assert_memory_equal(body.p, head, header);
    assert_int_equal(body.n, header + 16);
    assert_memory_equal(body.p + header, "\x00\x00\xc0\x3f\x00\x00\x20\xc0\x09\x00\x00\x00\x00\x00\x00\x00", 16);
    buf_clear(&body);
    const char *names[] = {"y"};
    r = (struct kserve_request){.inputs = inputs, .n_inputs = 1, .json = true, .outputs = names, .n_outputs = 1, .classes = 3};
    assert_int_equal(kserve_request_build(&r, &m, &body, &header, &err), 0);
    assert_int_equal(header, 0);
    assert_string_equal(
        buf_z(&body),
        "{\"parameters\":{\"binary_data_output\":false},\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,2],"
        "\"data\":[1.5,-2.5]}],\"outputs\":[{\"name\":\"y\",\"parameters\":{\"binary_data\":false,\"classification\":3}}]}");
    buf_release(&body);
}

static void answers(void **state)
{
    (void)state;
    const char head[] = "{\"model_name\":\"m\",\"model_version\":\"2\",\"id\":\"7\",\"outputs\":["
                        "{\"name\":\"a\",\"datatype\":\"FP32\",\"shape\":[2],\"parameters\":{\"binary_data_size\":8}},"
                        "{\"name\":\"j\",\"datatype\":\"INT64\",\"shape\":[1,2],\"data\":[[9223372036854775807,-1]]},"
                        "{\"name\":\"s\",\"datatype\":\"BYTES\",\"shape\":[1],\"parameters\":{\"binary_data_size\":6}},"
                        "{\"name\":\"b\",\"datatype\":\"BOOL\",\"shape\":[2],\"data\":[true,false]},"
                        "{\"name\":\"h\",\"datatype\":\"FP16\",\"shape\":[1],\"data\":[1.5]},"
                        "{\"name\":\"t\",\"datatype\":\"BYTES\",\"shape\":[2],\"data\":[\"\",\"xy\"]}]}";
    char text[1024];
    size_t n = sizeof head - 1;
    struct kserve_answer a;
    struct error err = {0};
    memcpy(text, head, n);
    memcpy(text + n, two, 8);
    memcpy(text + n + 8, "\2\0\0\0hi", 6);
    assert_int_equal(kserve_answer_parse((struct str){text, n + 14}, n, &arena, &a, &err), 0);
    assert_true(str_eqz(a.model_name, "m") && str_eqz(a.model_version, "2") && str_eqz(a.id, "7"));
    assert_int_equal(a.n_outputs, 6);
    assert_memory_equal(a.outputs[0].data.p, two, 8);
    assert_memory_equal(a.outputs[1].data.p, "\xff\xff\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff\xff", 16);
    assert_memory_equal(a.outputs[2].data.p, "\2\0\0\0hi", 6);
    assert_memory_equal(a.outputs[3].data.p, "\1\0", 2);
    assert_memory_equal(a.outputs[4].data.p, "\x00\x3e", 2);
    assert_memory_equal(a.outputs[5].data.p, "\0\0\0\0\2\0\0\0xy", 10);
    kserve_answer_release(&a);
    for (size_t cut = 1; cut <= 14; cut++) /* cut off anywhere in the tail, or bytes too many */
        assert_int_equal(kserve_answer_parse((struct str){text, n + 14 - cut}, n, &arena, &a, &err), STATUS_INVALID);
    assert_int_equal(kserve_answer_parse((struct str){text, n + 15}, n, &arena, &a, &err), STATUS_INVALID);
    assert_int_equal(kserve_answer_parse((struct str){text, n}, n + 1, &arena, &a, &err), STATUS_INVALID);
}

static void bad_answers(void **state)
{
    (void)state;
    static const char *const outputs[] = {
        "{}",
        "{\"name\":\"a\",\"datatype\":\"FP32\",\"shape\":[2],\"data\":[1]}",
        "{\"name\":\"a\",\"datatype\":\"FP32\",\"shape\":[1],\"data\":[\"1\"]}",
        "{\"name\":\"a\",\"datatype\":\"INT32\",\"shape\":[1],\"data\":[1.5]}",
        "{\"name\":\"a\",\"datatype\":\"BOOL\",\"shape\":[1],\"data\":[1]}",
        "{\"name\":\"a\",\"datatype\":\"BYTES\",\"shape\":[1],\"data\":[1]}",
        "{\"name\":\"a\",\"datatype\":\"FP32\",\"shape\":[-1],\"data\":[1]}",
        "{\"name\":\"a\",\"datatype\":\"FP32\",\"shape\":[4611686018427387904,4],\"data\":[]}",
        "{\"name\":\"a\",\"datatype\":\"FP32\",\"shape\":[1],\"parameters\":{\"binary_data_size\":4}}",
        "{\"name\":\"a\",\"datatype\":\"FP32\",\"shape\":[1],\"parameters\":{\"binary_data_size\":-4}}",
        "{\"name\":\"a\",\"datatype\":\"FP99\",\"shape\":[1],\"data\":[1]}",
    };
    struct kserve_answer a;
    struct error err = {0};
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        char text[512];
        snprintf(text, sizeof text, "{\"outputs\":[%s]}", outputs[i]);
        assert_int_equal(kserve_answer_parse(str_of(text), 0, &arena, &a, &err), STATUS_INVALID);
        assert_int_equal(a.n_outputs, 0);
    }
    assert_int_equal(kserve_answer_parse(STR("{\"outputs\":{}}"), 0, &arena, &a, &err), STATUS_INVALID);
    assert_int_equal(kserve_answer_parse(STR(""), 0, &arena, &a, &err), STATUS_INVALID);
}

static void paths(void **state)
{
    (void)state;
    struct buf b = {0};
    kserve_model_path(&b, "a/b c", NULL);
    assert_string_equal(buf_z(&b), "/v2/models/a%2Fb%20c");
    buf_clear(&b);
    kserve_model_path(&b, "m", "1.2.0");
    assert_string_equal(buf_z(&b), "/v2/models/m/versions/1.2.0");
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(model, set_up, tear_down),
        cmocka_unit_test_setup_teardown(requests, set_up, tear_down),
        cmocka_unit_test_setup_teardown(answers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bad_answers, set_up, tear_down),
        cmocka_unit_test(paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
