/* test_contract.c: file and config into one contract, golden refusals, shape classes, labels, optional inputs, padding. */
#include "model/harness.h"

#include "model/contract_priv.h"
#include "model/version_priv.h"

static struct engine_io io(const char *name, enum dtype t, int rank, const int64_t *dims)
{
    struct engine_io x = {.name = str_of(name), .dtype = t, .shape = {.rank = (uint8_t)rank}};
    for (int d = 0; d < rank; d++)
        x.shape.dim[d] = dims[d];
    return x;
}

struct merged {
    struct arena a;
    struct model_config cfg;
    struct contract c;
    struct error err;
    int rc;
};

/* inputs ids INT64 [-1,-1], mask INT64 [-1,-1], fixed FP32 [-1,3]; output y FP32 [-1,4] */
static const char *merge(struct merged *m, const char *yaml)
{
    static struct engine_io in[3], out[1];
    in[0] = io("ids", DTYPE_INT64, 2, (const int64_t[]){-1, -1});
    in[1] = io("mask", DTYPE_INT64, 2, (const int64_t[]){-1, -1});
    in[2] = io("fixed", DTYPE_FP32, 2, (const int64_t[]){-1, 3});
    out[0] = io("y", DTYPE_FP32, 2, (const int64_t[]){-1, 4});
    struct engine_contract file = {
        .platform = "test", .inputs = in, .outputs = out, .n_inputs = 3, .n_outputs = 1, .batchable = true, .devices = "cpu"};
    memset(m, 0, sizeof *m);
    arena_init(&m->a, 4096, 0);
    model_config_init(&m->cfg);
    if (yaml[0] && model_config_from_yaml(str_of(yaml), "m/model.yaml", &m->a, &m->cfg, &m->err))
        fail_msg("%s", m->err.text);
    m->rc = contract_merge(&file, &m->cfg, &m->a, &m->c, &m->err);
    return m->err.text;
}

static void refused(const char *yaml, const char *text)
{
    struct merged m;
    assert_string_equal(merge(&m, yaml), text);
    assert_int_equal(m.rc, STATUS_INVALID);
    arena_release(&m.a);
}

static void merging(void **state)
{
    (void)state;
    struct merged m;
    merge(&m, "");
    assert_int_equal(m.rc, 0);
    assert_int_equal(m.c.max_batch, CONTRACT_DEFAULT_MAX_BATCH);
    assert_false(m.c.max_batch_declared);
    assert_false(m.c.uniform);
    arena_release(&m.a);
    merge(&m, "max_batch_size: 0\n");
    assert_int_equal(m.c.max_batch, 0);
    arena_release(&m.a);
    merge(&m, "max_batch_size: 4\ninput:\n  - {name: ids, dims: [16]}\n  - {name: mask, optional: true}\n");
    assert_int_equal(m.rc, 0);
    assert_int_equal(m.c.c.inputs[0].shape.dim[1], 16);
    assert_true(m.c.c.inputs[1].optional);
    arena_release(&m.a);

    refused("input:\n  - {name: idz}\n",
            "input \"idz\" of the config is not in the model, whose inputs are \"ids\", \"mask\", \"fixed\"");
    refused("output:\n  - {name: z}\n", "output \"z\" of the config is not in the model, whose outputs are \"y\"");
    refused("input:\n  - {name: ids, data_type: TYPE_FP32}\n", "input \"ids\": the config says FP32, the model has INT64");
    refused("max_batch_size: 2\ninput:\n  - {name: fixed, dims: [4]}\n",
            "input \"fixed\": dim 0 is 4 in the config and 3 in the model ([-1,3])");
    refused("max_batch_size: 2\ninput:\n  - {name: fixed, dims: [3, 1]}\n",
            "input \"fixed\": the config has 2 dims behind the batch axis, the model has shape [-1,3]: give 1 dims, or leave "
            "dims out");
    refused("max_batch_size: 5000\n", "max_batch_size is 5000: at most 4096 is accepted");
    refused("max_batch_size: 2\ninput:\n  - {name: fixed, padding: [{axis: 1}]}\n",
            "input \"fixed\": padding names axis 1, which is not a dynamic axis behind the batch");
    refused("max_batch_size: 2\ninput:\n  - {name: ids, padding: [{axis: 1, value: 0.5}]}\n",
            "padding of input \"ids\": padding value 0.5: INT64 takes whole numbers from -9223372036854775808 to "
            "9223372036854775807");
}

static void buckets(void **state)
{
    (void)state;
    struct pad_rule declared = {.axis = 1, .n_buckets = 3, .buckets = {16, 64, 128}}, twos = {.axis = 1};
    assert_int_equal(pad_rule_length(&declared, 1), 16);
    assert_int_equal(pad_rule_length(&declared, 16), 16);
    assert_int_equal(pad_rule_length(&declared, 17), 64);
    assert_int_equal(pad_rule_length(&declared, 128), 128);
    assert_int_equal(pad_rule_length(&declared, 129), 129); /* longer than any: on its own */
    assert_int_equal(pad_rule_length(&twos, 0), 1);
    assert_int_equal(pad_rule_length(&twos, 1), 1);
    assert_int_equal(pad_rule_length(&twos, 5), 8);
    assert_int_equal(pad_rule_length(&twos, 1024), 1024);
}

/* Different lengths without padding never share a run, also when their classes collide. */
static void collision(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    put(&w, "m/1/model.fake",
        "input = X INT32 [-1,len]\noutput = Y INT32 [-1,len] copy X\noutput = S INT32 [-1,1] row_sum X\n"
        "base_us = 5000\n");
    world_start(&w);
    struct model_version *v;
    assert_int_equal(registry_find(w.r, STR("m"), STR(""), &v, NULL), 0);
    v->contract.bucket_mask = 0; /* nothing has been asked yet */
    enum { N = 24 };
    struct call calls[N];
    int32_t x[4] = {1, 1, 1, 1};
    for (int i = 0; i < N; i++) {
        int64_t len = 1 + i % 4;
        assert_int_equal(call_init(&calls[i], w.r, "m", ""), 0);
        call_input(&calls[i], "X", DTYPE_INT32, x, (size_t)len, 2, (const int64_t[]){1, len});
        assert_int_equal(call_submit(&calls[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        int32_t sum;
        call_wait(&calls[i]);
        assert_int_equal(calls[i].inf.status, 0);
        assert_int_equal(calls[i].outputs[0].shape.dim[1], 1 + i % 4);
        memcpy(&sum, calls[i].outputs[1].data.p, 4);
        assert_int_equal(sum, 1 + i % 4);
        call_release(&calls[i]);
    }
    model_version_unref(v);
    world_release(&w);
}

/* An optional input that some leave out: those share batches among themselves. */
static void optional(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    put(&w, "m/1/model.fake",
        "input = A INT32 [-1,1]\ninput = B INT32 [-1,1] optional\noutput = Y INT32 [-1,1] add A B\n"
        "base_us = 5000\n");
    world_start(&w);
    enum { N = 12 };
    struct call calls[N];
    for (int32_t i = 0; i < N; i++) {
        int32_t hundred = 100;
        assert_int_equal(call_init(&calls[i], w.r, "m", ""), 0);
        if (i % 2)
            call_column(&calls[i], "B", &hundred, 1);
        call_column(&calls[i], "A", &i, 1);
        assert_int_equal(call_submit(&calls[i]), 0);
    }
    for (int32_t i = 0; i < N; i++) {
        int32_t y;
        call_wait(&calls[i]);
        assert_int_equal(calls[i].inf.status, 0);
        memcpy(&y, calls[i].outputs[0].data.p, 4);
        assert_int_equal(y, i % 2 ? i + 100 : i);
        call_release(&calls[i]);
    }
    world_release(&w);
}

/* Some members send the mask, others leave it out: the same batch serves both. A mask of another length is refused. */
static void masks(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    put(&w, "m/1/model.fake",
        "input = ids INT32 [-1,len]\ninput = mask INT32 [-1,len]\noutput = S INT32 [-1,1] row_sum mask\n"
        "output = R INT32 [-1,1] rows\nbase_us = 30000\n");
    put(&w, "m/model.yaml",
        "max_batch_size: 8\ninput:\n  - {name: ids, padding: [{axis: 1, mask_input: mask}]}\n  - {name: mask}\n");
    world_start(&w);
    enum { N = 9 };
    struct call calls[N];
    int32_t ids[8] = {7, 7, 7, 7, 7, 7, 7, 7}, twos[8] = {2, 2, 2, 2, 2, 2, 2, 2}, most = 0;
    for (int i = 0; i < N; i++) {
        int64_t len = 5 + i % 4; /* all in the class of 8 */
        assert_int_equal(call_init(&calls[i], w.r, "m", ""), 0);
        call_input(&calls[i], "ids", DTYPE_INT32, ids, (size_t)len, 2, (const int64_t[]){1, len});
        if (i % 2)
            call_input(&calls[i], "mask", DTYPE_INT32, twos, (size_t)len, 2, (const int64_t[]){1, len});
        assert_int_equal(call_submit(&calls[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        int32_t sum, rows;
        call_wait(&calls[i]);
        assert_int_equal(calls[i].inf.status, 0);
        memcpy(&sum, calls[i].outputs[0].data.p, 4);
        memcpy(&rows, calls[i].outputs[1].data.p, 4);
        most = rows > most ? rows : most;
        assert_int_equal(sum, (5 + i % 4) * (i % 2 ? 2 : 1));
        call_release(&calls[i]);
    }
    assert_in_range(most, 3, 8);
    struct call c;
    assert_int_equal(call_init(&c, w.r, "m", ""), 0);
    call_input(&c, "ids", DTYPE_INT32, ids, 5, 2, (const int64_t[]){1, 5});
    call_input(&c, "mask", DTYPE_INT32, twos, 4, 2, (const int64_t[]){1, 4});
    assert_int_equal(call_submit(&c), STATUS_INVALID);
    assert_string_equal(c.inf.error.text,
                        "input \"mask\" is the mask of \"ids\" and must have its length 5, got 4: send a mask of that "
                        "length, or none");
    call_release(&c);
    world_release(&w);
}

static void labels(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    put(&w, "m/1/model.fake", "input = X FP32 [-1,3]\noutput = A FP32 [-1,3] copy X\noutput = B FP32 [-1,3] copy X\n");
    put(&w, "m/config.pbtxt", "output [ { name: \"B\" data_type: TYPE_FP32 dims: [ 3 ] label_filename: \"names.txt\" } ]\n");
    put(&w, "m/names.txt", "cat\r\ndog\n\nbird\n");
    put(&w, "n/1/model.fake", "input = X FP32 [-1,3]\noutput = A FP32 [-1,3] copy X\n");
    put(&w, "n/config.pbtxt", "output [ { name: \"A\" label_filename: \"../m/names.txt\" } ]\n");
    put(&w, "o/1/model.fake", IDENTITY "instance_fail = no device is left\n");
    world_start(&w);
    struct model_version *v;
    size_t n = 9;
    assert_int_equal(registry_find(w.r, STR("m"), STR(""), &v, NULL), 0);
    assert_null(model_version_labels(v, 0, &n));
    assert_int_equal(n, 0);
    const struct str *lines = model_version_labels(v, 1, &n);
    assert_int_equal(n, 4);
    assert_true(str_eqz(lines[0], "cat") && str_eqz(lines[1], "dog") && str_eqz(lines[2], "") && str_eqz(lines[3], "bird"));
    model_version_unref(v);
    struct error err;
    assert_int_equal(registry_find(w.r, STR("n"), STR(""), &v, &err), STATUS_UNAVAILABLE);
    assert_null(strstr(err.text, w.dir)); /* no paths for clients */
    assert_int_equal(registry_find(w.r, STR("o"), STR(""), &v, &err), STATUS_UNAVAILABLE);
    assert_non_null(strstr(err.text, "no device is left"));
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merging),  cmocka_unit_test(buckets), cmocka_unit_test(collision),
        cmocka_unit_test(optional), cmocka_unit_test(masks),   cmocka_unit_test(labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
