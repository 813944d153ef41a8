/* test_onnx.c: the ONNX engine on the small models of tests/data/models. Expected values are computed by hand. */
#include "engine/onnx_rig.h"

#include "os/clock.h"
#include "os/thread.h"

static struct engine *engine;

static void contract_of_simple(void **state)
{
    (void)state;
    struct rig r;
    rig_must_load(&r, engine, "simple");
    const struct engine_contract *c = engine_onnx.contract(r.m);
    assert_string_equal(c->platform, "onnxruntime_onnx");
    assert_string_equal(c->devices, "cpu");
    assert_true(str_eqz(c->description, "sum and difference"));
    assert_int_equal(c->n_inputs, 2);
    assert_int_equal(c->n_outputs, 2);
    assert_true(c->batchable);
    assert_true(str_eqz(c->inputs[1].name, "INPUT1"));
    assert_int_equal(c->inputs[1].dtype, DTYPE_INT32);
    assert_int_equal(c->inputs[1].shape.rank, 2);
    assert_int_equal(c->inputs[1].shape.dim[0], TENSOR_DIM_DYNAMIC);
    assert_int_equal(c->inputs[1].shape.dim[1], 16);
    assert_true(str_eqz(c->inputs[1].dim_names[0], "batch"));
    assert_false(c->inputs[0].optional);
    rig_end(&r);
}

static void runs_simple(void **state)
{
    (void)state;
    struct rig r;
    rig_must_load(&r, engine, "simple");
    static _Alignas(64) int32_t a[32], b[32];
    for (int i = 0; i < 32; i++)
        a[i] = i, b[i] = 100;
    rig_set(&r, 0, DTYPE_INT32, a, sizeof a, 2, 2, 16);
    rig_set(&r, 1, DTYPE_INT32, b, sizeof b, 2, 2, 16);
    for (int round = 0; round < 3; round++) {
        rig_must_run(&r);
        for (int i = 0; i < 32; i++) {
            assert_int_equal(((const int32_t *)r.out[0].data.p)[i], i + 100);
            assert_int_equal(((const int32_t *)r.out[1].data.p)[i], i - 100);
        }
        assert_int_equal(r.out[0].shape.dim[0], 2);
        assert_int_equal(r.out[0].data.n, sizeof a);
        assert_true(str_eqz(r.out[1].name, "OUTPUT1"));
        rig_drop_outputs(&r);
    }
    bool wanted[2] = {false, true};
    r.run.wanted = wanted;
    rig_must_run(&r);
    assert_int_equal(r.out[0].dtype, DTYPE_INVALID);
    assert_null(r.out[0].data.owner);
    assert_int_equal(((const int32_t *)r.out[1].data.p)[7], 7 - 100);
    rig_end(&r);
}

/* Outputs of several runs stay right side by side, also after their instance is gone. */
static void outputs_outlive_runs_and_instances(void **state)
{
    (void)state;
    struct rig r;
    rig_must_load(&r, engine, "simple");
    static _Alignas(64) int32_t a[16], b[16];
    struct tensor kept[5];
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 16; i++)
            a[i] = round * 1000, b[i] = i;
        rig_set(&r, 0, DTYPE_INT32, a, sizeof a, 2, 1, 16);
        rig_set(&r, 1, DTYPE_INT32, b, sizeof b, 2, 1, 16);
        rig_must_run(&r);
        kept[round] = r.out[0];
        r.out[0] = (struct tensor){0};
        rig_drop_outputs(&r);
    }
    engine_onnx.instance_destroy(r.i);
    r.i = NULL;
    for (int round = 0; round < 5; round++) {
        assert_int_equal(((const int32_t *)kept[round].data.p)[3], round * 1000 + 3);
        tensor_release(&kept[round]);
    }
    rig_end(&r);
}

static void every_datatype_passes(void **state)
{
    (void)state;
    struct rig r;
    rig_must_load(&r, engine, "zoo");
    const struct engine_contract *c = engine_onnx.contract(r.m);
    static const enum dtype order[] = {DTYPE_BOOL, DTYPE_UINT8, DTYPE_UINT16, DTYPE_UINT32, DTYPE_UINT64,
                                       DTYPE_INT8, DTYPE_INT16, DTYPE_INT32,  DTYPE_INT64,  DTYPE_FP16,
                                       DTYPE_FP32, DTYPE_FP64,  DTYPE_BF16,   DTYPE_BYTES};
    static const uint8_t text[] = "\3\0\0\0a\0b\0\0\0\0\5\0\0\0hello\1\0\0\0\0"; /* "a\0b", "", "hello", "\0" */
    static _Alignas(64) uint8_t data[14][32];
    assert_int_equal(c->n_inputs, 14);
    for (size_t k = 0; k < 14; k++) {
        assert_int_equal(c->inputs[k].dtype, order[k]);
        for (size_t i = 0; i < 32; i++)
            data[k][i] = order[k] == DTYPE_BOOL ? i % 2 : (uint8_t)(i * 7 + k);
        if (order[k] == DTYPE_BYTES)
            rig_set(&r, k, DTYPE_BYTES, text, sizeof text - 1, 2, 2, 2);
        else
            rig_set(&r, k, order[k], data[k], 4 * dtype_bytes(order[k]), 2, 2, 2);
    }
    rig_must_run(&r);
    for (size_t k = 0; k < 14; k++) {
        assert_int_equal(r.out[k].dtype, order[k]);
        assert_int_equal(r.out[k].data.n, r.in[k].data.n);
        assert_memory_equal(r.out[k].data.p, r.in[k].data.p, r.in[k].data.n);
        assert_int_equal(tensor_check(&r.out[k], &r.err), 0);
    }
    rig_drop_outputs(&r);
    /* No rows at all. */
    for (size_t k = 0; k < 14; k++)
        rig_set(&r, k, order[k], NULL, 0, 2, 0, 2);
    rig_must_run(&r);
    for (size_t k = 0; k < 14; k++) {
        assert_int_equal(r.out[k].shape.dim[0], 0);
        assert_int_equal(r.out[k].data.n, 0);
    }
    rig_drop_outputs(&r);
    /* Strings that don't fit their data. */
    for (size_t k = 0; k < 13; k++)
        rig_set(&r, k, order[k], data[k], 2 * dtype_bytes(order[k]), 2, 1, 2);
    static const struct {
        const char *p;
        size_t n;
    } broken[] = {
        {"\1\0\0\0a", 5}, {"\1\0\0\0a\2\0\0\0b", 10}, {"\1\0\0\0a\1\0\0\0b!", 11}, {"\377\377\377\377\0\0\0\0", 8}, {"", 0}};
    for (size_t k = 0; k < 5; k++) {
        rig_set(&r, 13, DTYPE_BYTES, broken[k].p, broken[k].n, 2, 1, 2);
        assert_int_equal(rig_run(&r), STATUS_INVALID);
    }
    rig_end(&r);
}

static void scalars_and_found_shapes(void **state)
{
    (void)state;
    struct rig r;
    rig_must_load(&r, engine, "scalar");
    assert_false(engine_onnx.contract(r.m)->batchable);
    float a = 6, b = 7;
    rig_set(&r, 0, DTYPE_FP32, &a, 4, 0);
    rig_set(&r, 1, DTYPE_FP32, &b, 4, 0);
    rig_must_run(&r);
    assert_int_equal(r.out[0].shape.rank, 0);
    assert_true(*(const float *)r.out[0].data.p == 42.0f);
    rig_end(&r);

    rig_must_load(&r, engine, "nonzero");
    assert_false(engine_onnx.contract(r.m)->batchable);
    float x[5] = {0, 1, 0, 0, 5};
    rig_set(&r, 0, DTYPE_FP32, x, sizeof x, 1, 5);
    rig_must_run(&r);
    assert_int_equal(r.out[0].shape.dim[1], 2);
    assert_int_equal(((const int64_t *)r.out[0].data.p)[1], 4);
    rig_end(&r);

    rig_must_load(&r, engine, "length"); /* the output's axis 0 is the input's axis 1 by name */
    assert_false(engine_onnx.contract(r.m)->batchable);
    rig_end(&r);
    rig_must_load(&r, engine, "static");
    assert_false(engine_onnx.contract(r.m)->batchable);
    rig_end(&r);
}

static void an_output_that_is_an_input_is_a_copy(void **state)
{
    (void)state;
    struct rig r;
    rig_must_load(&r, engine, "pass");
    float x[2] = {1, 2};
    rig_set(&r, 0, DTYPE_FP32, x, sizeof x, 2, 1, 2);
    rig_must_run(&r);
    x[0] = x[1] = 99; /* the batcher's buffer is used again */
    assert_true(((const float *)r.out[0].data.p)[0] == 1.0f && ((const float *)r.out[0].data.p)[1] == 2.0f);
    assert_true(((const float *)r.out[1].data.p)[1] == -2.0f);
    assert_true(((const float *)r.out[2].data.p)[2] == 3.0f);
    rig_end(&r);
}

static void optional_inputs_have_defaults(void **state)
{
    (void)state;
    struct rig r;
    rig_must_load(&r, engine, "optional");
    assert_int_equal(engine_onnx.contract(r.m)->n_inputs, 1); /* a weight is not an input unless asked for */
    rig_end(&r);
    struct engine_option o = {STR("optional_inputs"), STR("true")};
    assert_int_equal(rig_load(&r, engine, "optional", &o, 1), 0);
    assert_int_equal(engine_onnx.contract(r.m)->n_inputs, 2);
    assert_true(engine_onnx.contract(r.m)->inputs[1].optional);
    float x[2] = {1, 2}, bias[2] = {100, 200};
    rig_set(&r, 0, DTYPE_FP32, x, sizeof x, 2, 1, 2);
    r.in[1] = (struct tensor){.dtype = DTYPE_INVALID};
    rig_must_run(&r);
    assert_true(((const float *)r.out[0].data.p)[1] == 22.0f);
    rig_drop_outputs(&r);
    rig_set(&r, 1, DTYPE_FP32, bias, sizeof bias, 1, 2);
    rig_must_run(&r);
    assert_true(((const float *)r.out[0].data.p)[1] == 202.0f);
    rig_end(&r);
}

static void input_faults_are_the_callers(void **state)
{
    (void)state;
    struct rig r;
    float x[8] = {0};
    rig_must_load(&r, engine, "broadcast");
    rig_set(&r, 0, DTYPE_FP32, x, 12, 1, 3);
    rig_set(&r, 1, DTYPE_FP32, x, 20, 1, 5);
    assert_int_equal(rig_run(&r), STATUS_INVALID);
    assert_non_null(strstr(r.err.text, "3 by 5"));
    assert_null(strchr(r.err.text, '/'));
    assert_null(strstr(r.err.text, "::"));
    assert_null(strstr(r.err.text, "0x"));
    rig_set(&r, 1, DTYPE_FP32, x, 12, 1, 3); /* the instance works on */
    rig_must_run(&r);
    rig_drop_outputs(&r);
    rig_set(&r, 1, DTYPE_FP32, x, 8, 1, 3); /* fewer bytes than the shape says */
    assert_int_equal(rig_run(&r), STATUS_INVALID);
    rig_set(&r, 1, DTYPE_FP32, x, 12, 2, 1, 3); /* another rank than the model's */
    assert_int_equal(rig_run(&r), STATUS_INVALID);
    rig_set(&r, 1, DTYPE_INT32, x, 12, 1, 3);
    assert_int_equal(rig_run(&r), STATUS_INVALID);
    assert_string_equal(r.err.text, "input 'b' must be FP32, it is INT32");
    rig_end(&r);

    rig_must_load(&r, engine, "gather");
    int64_t i[2] = {1, 7};
    rig_set(&r, 0, DTYPE_INT64, i, sizeof i, 1, 2);
    assert_int_equal(rig_run(&r), STATUS_INVALID);
    assert_non_null(strstr(r.err.text, "out of"));
    rig_end(&r);

    rig_must_load(&r, engine, "cast");
    rig_set(&r, 0, DTYPE_BYTES, "\3\0\0\0abc", 7, 1, 1);
    assert_int_equal(rig_run(&r), STATUS_INVALID);
    rig_end(&r);
}

static void refuses_what_the_protocol_cant_say(void **state)
{
    (void)state;
    static const struct {
        const char *name, *says;
        int rc;
    } cases[] = {
        {"sequence", "input 'words' is a sequence", STATUS_UNIMPLEMENTED},
        {"map", "output 'scores' is a sequence", STATUS_UNIMPLEMENTED},
        {"maybe", "input 'maybe' is an optional", STATUS_UNIMPLEMENTED},
        {"complex", "input 'x' has elements of COMPLEX64", STATUS_UNIMPLEMENTED},
        {"float8", "output 'y' has elements of FLOAT8E4M3FN", STATUS_UNIMPLEMENTED},
        {"int4", "output 'y' has elements of INT4", STATUS_UNIMPLEMENTED},
        {"unknown_op", "NoSuchOp", STATUS_INVALID},
        {"external_up", "leaves its folder", STATUS_FORBIDDEN},
        {"external_absolute", "/etc/hostname", STATUS_FORBIDDEN},
        {"external_memory", "is not a file", STATUS_FORBIDDEN},
        {"external_missing", "nothing.bin", STATUS_NOT_FOUND},
        {"external_link", "link.bin", STATUS_FORBIDDEN},
        {"external_attribute", "leaves its folder", STATUS_FORBIDDEN},
        {"external_branch", "leaves its folder", STATUS_FORBIDDEN},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct rig r;
        int rc = rig_load(&r, engine, cases[k].name, NULL, 0);
        if (rc != cases[k].rc || !strstr(r.err.text, cases[k].says))
            fail_msg("%s: %d %s", cases[k].name, rc, r.err.text);
        assert_null(strstr(r.err.text, TEST_DATA));
        rig_end(&r);
    }
}

static void external_data_inside_works(void **state)
{
    (void)state;
    struct rig r;
    float x[2] = {1, 10};
    const float want[3] = {30, 41, 52}; /* [1 10] x [[0 1 2][3 4 5]] */
    rig_must_load(&r, engine, "external");
    struct engine_memory mem;
    engine_onnx.memory(r.m, &mem);
    assert_int_equal(mem.weights_bytes, 32);
    rig_set(&r, 0, DTYPE_FP32, x, sizeof x, 2, 1, 2);
    rig_must_run(&r);
    assert_memory_equal(r.out[0].data.p, want, sizeof want);
    rig_end(&r);
    rig_must_load(&r, engine, "external_branch_inside");
    bool yes = true;
    rig_set(&r, 0, DTYPE_BOOL, &yes, 1, 0);
    rig_set(&r, 1, DTYPE_FP32, x, sizeof x, 2, 1, 2);
    rig_must_run(&r);
    assert_memory_equal(r.out[0].data.p, want, sizeof want);
    rig_end(&r);
}

struct cancelled {
    struct rig *r;
    int rc;
    _Atomic bool done;
};

static void run_slow(void *arg)
{
    struct cancelled *c = arg;
    c->rc = rig_run(c->r);
    c->done = true;
}

static void cancel_ends_a_run_and_not_the_next(void **state)
{
    (void)state;
    struct rig r;
    rig_must_load(&r, engine, "slow");
    int64_t trips = 50000000; /* minutes */
    float x[4] = {0.5f, 1, 2, 3};
    engine_onnx.cancel(r.i); /* nothing runs */
    for (int round = 0; round < 3; round++) {
        rig_set(&r, 0, DTYPE_INT64, &trips, 8, 0);
        rig_set(&r, 1, DTYPE_FP32, x, sizeof x, 1, 4);
        struct cancelled c = {.r = &r};
        struct os_thread t;
        assert_int_equal(os_thread_start(&t, "slow", run_slow, &c, &r.err), 0);
        os_sleep_ns(20000000);
        uint64_t t0 = os_monotonic_ns();
        while (!c.done) {
            engine_onnx.cancel(r.i);
            os_sleep_ns(100000);
        }
        os_thread_join(&t);
        assert_int_equal(c.rc, STATUS_CANCELLED);
        assert_true(os_monotonic_ns() - t0 < 5000000000);
        engine_onnx.cancel(r.i); /* late: must not poison the next run */
        int64_t few = 3;
        rig_set(&r, 0, DTYPE_INT64, &few, 8, 0);
        rig_must_run(&r);
        rig_drop_outputs(&r);
    }
    rig_end(&r);
}

struct worker {
    struct engine_model *m;
    struct os_thread t;
    size_t index;
    int wrong;
};

static void work(void *arg)
{
    struct worker *w = arg;
    struct error err;
    struct engine_instance *i;
    _Alignas(64) int32_t a[16], b[16];
    if (engine_onnx.instance_create(w->m, w->index, &i, &err)) {
        w->wrong = 1000000;
        return;
    }
    for (int round = 0; round < 500; round++) {
        for (int k = 0; k < 16; k++)
            a[k] = round * 31 + (int)w->index, b[k] = k;
        struct tensor in[2] = {{STR("INPUT0"), DTYPE_INT32, {2, {1, 16}}, slice_borrow(a, sizeof a)},
                               {STR("INPUT1"), DTYPE_INT32, {2, {1, 16}}, slice_borrow(b, sizeof b)}},
                      out[2];
        struct engine_run run = {in, 2, NULL, out};
        if (engine_onnx.run(i, &run, &err)) {
            w->wrong++;
            continue;
        }
        for (int k = 0; k < 16; k++)
            w->wrong += ((const int32_t *)out[0].data.p)[k] != a[k] + k;
        tensor_release(&out[0]);
        tensor_release(&out[1]);
    }
    engine_onnx.instance_destroy(i);
}

static void instances_share_a_session(void **state)
{
    (void)state;
    struct rig r;
    rig_must_load(&r, engine, "simple");
    struct worker w[4] = {0};
    for (size_t k = 0; k < 4; k++) {
        w[k] = (struct worker){.m = r.m, .index = k};
        assert_int_equal(os_thread_start(&w[k].t, "worker", work, &w[k], &r.err), 0);
    }
    for (size_t k = 0; k < 4; k++) {
        os_thread_join(&w[k].t);
        assert_int_equal(w[k].wrong, 0);
    }
    rig_end(&r);
}

static void providers_fall_back_or_fail(void **state)
{
    (void)state;
    struct rig r;
    struct engine_option o[] = {{STR("providers"), STR("cuda, tensorrt,openvino,xnnpack,cpu")},
                                {STR("strict_providers"), STR("false")},
                                {STR("cuda.device_id"), STR("0")}};
    assert_int_equal(rig_load(&r, engine, "simple", o, 3), 0); /* this build of the library has only the CPU */
    assert_string_equal(engine_onnx.contract(r.m)->devices, "cpu");
    rig_end(&r);
    o[1].value = STR("true");
    assert_int_equal(rig_load(&r, engine, "simple", o, 3), STATUS_UNAVAILABLE);
    assert_non_null(strstr(r.err.text, "'cuda'"));
    rig_end(&r);
}

static void options_are_checked(void **state)
{
    (void)state;
    static const struct {
        struct engine_option o;
        const char *says; /* NULL: accepted */
    } cases[] = {
        {{STR("providers"), STR("cuda,gpu")},
         "the value 'cuda,gpu' of 'providers' is not a list of cpu, cuda, tensorrt, openvino, xnnpack"},
        {{STR("graph_optimization"), STR("most")},
         "the value 'most' of 'graph_optimization' is not none, basic, extended or all"},
        {{STR("graph_optimization"), STR("basic")}, NULL},
        {{STR("intra_op_thread_count"), STR("2")}, NULL},
        {{STR("intra_op_threads"), STR("-1")}, "the value '-1' of 'intra_op_threads' is not a whole number"},
        {{STR("execution_mode"), STR("1")}, NULL},
        {{STR("enable_mem_arena"), STR("0")}, NULL},
        {{STR("arena_shrink"), STR("true")}, NULL},
        {{STR("mem_pattern"), STR("maybe")}, "the value 'maybe' of 'mem_pattern' is not auto, true or false"},
        {{STR("session.disable_prepacking"), STR("1")}, NULL},
        {{STR("session.model_external_initializers_file_folder_path"), STR("/")},
         "the parameter 'session.model_external_initializers_file_folder_path' cannot be set from a model's configuration"},
        {{STR("somebody.elses"), STR("business")}, NULL},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct rig r;
        int rc = rig_load(&r, engine, "simple", &cases[k].o, 1);
        if (cases[k].says) {
            assert_int_equal(rc, STATUS_INVALID);
            assert_string_equal(r.err.text, cases[k].says);
        } else {
            assert_int_equal(rc, 0);
            static _Alignas(64) int32_t a[16];
            rig_set(&r, 0, DTYPE_INT32, a, sizeof a, 2, 1, 16);
            rig_set(&r, 1, DTYPE_INT32, a, sizeof a, 2, 1, 16);
            rig_must_run(&r);
        }
        rig_end(&r);
    }
}

static void a_missing_library_is_one_sentence(void **state)
{
    (void)state;
    struct engine_option o = {STR("onnxruntime.library"), STR("/nowhere/libonnxruntime.so")};
    struct engine *e = rig_engine(&o, 1);
    struct rig r;
    for (int round = 0; round < 2; round++) { /* the second load tries again */
        assert_int_equal(rig_load(&r, e, "simple", NULL, 0), STATUS_UNAVAILABLE);
        assert_string_equal(r.err.text, "the ONNX Runtime library that the option onnxruntime.library names cannot be loaded");
    }
    engine_onnx.close(e);
}

static void damaged_files_are_refused(void **state)
{
    (void)state;
    char dir[] = "/tmp/inferd-onnx-XXXXXX", path[128], from[1024];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/model.onnx", dir);
    snprintf(from, sizeof from, "%s/models/zoo/model.onnx", TEST_DATA);
    static char bytes[65536];
    FILE *f = fopen(from, "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    for (size_t cut = 0; cut < n; cut += 1 + n / 40) {
        f = fopen(path, "wb");
        assert_int_equal(fwrite(bytes, 1, cut, f), cut);
        fclose(f);
        struct rig r;
        int rc = rig_load_at(&r, engine, dir, NULL, 0);
        assert_true(rc == STATUS_INVALID || rc == STATUS_UNIMPLEMENTED || rc == STATUS_INTERNAL);
        assert_null(strstr(r.err.text, dir));
    }
    unlink(path);
    rmdir(dir);
}

int main(void)
{
    if (rig_must_skip())
        return 0;
    engine = rig_engine(NULL, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_of_simple),
        cmocka_unit_test(runs_simple),
        cmocka_unit_test(outputs_outlive_runs_and_instances),
        cmocka_unit_test(every_datatype_passes),
        cmocka_unit_test(scalars_and_found_shapes),
        cmocka_unit_test(an_output_that_is_an_input_is_a_copy),
        cmocka_unit_test(optional_inputs_have_defaults),
        cmocka_unit_test(input_faults_are_the_callers),
        cmocka_unit_test(refuses_what_the_protocol_cant_say),
        cmocka_unit_test(external_data_inside_works),
        cmocka_unit_test(cancel_ends_a_run_and_not_the_next),
        cmocka_unit_test(instances_share_a_session),
        cmocka_unit_test(providers_fall_back_or_fail),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(a_missing_library_is_one_sentence),
        cmocka_unit_test(damaged_files_are_refused),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    engine_onnx.close(engine);
    return rc;
}
