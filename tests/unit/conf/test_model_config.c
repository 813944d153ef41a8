/* Model configurations. Expected values by hand from Triton's documentation of ModelConfig (its proto's field names, defaults and
 * JSON form); tests/wire/test_model_config.py compares with google.protobuf over the real proto. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "conf/model_config.h"

typedef int (*reader_fn)(struct str, const char *, struct arena *, struct model_config *, struct error *);

struct loaded {
    struct arena arena;
    struct model_config c;
};

static void load(struct loaded *l, reader_fn read, const char *text)
{
    struct error err = {0};
    arena_init(&l->arena, 16384, 0);
    model_config_init(&l->c);
    if (read(str_of(text), "m/file", &l->arena, &l->c, &err) != 0)
        fail_msg("%s", err.text);
}

static void unload(struct loaded *l)
{
    arena_release(&l->arena);
}

static void refuses(reader_fn read, const char *text, const char *want)
{
    struct loaded l;
    struct error err = {0};
    arena_init(&l.arena, 16384, 0);
    model_config_init(&l.c);
    assert_int_equal(read(str_of(text), "m/file", &l.arena, &l.c, &err), STATUS_INVALID);
    assert_string_equal(err.text, want);
    unload(&l);
}

static void warns(reader_fn read, const char *text, const char *want)
{
    struct loaded l;
    load(&l, read, text);
    assert_int_equal(l.c.n_warnings, want ? 1 : 0);
    if (want)
        assert_string_equal(l.c.warnings[0].p, want);
    unload(&l);
}

#define IS(s, z) assert_true(str_eqz((s), (z)))

static const char resnet_pbtxt[] =
    "name: \"resnet\"\n"
    "platform: \"onnxruntime_onnx\"\n"
    "max_batch_size: 16\n"
    "input [\n"
    "  { name: \"data\" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, 224, -1 ] }\n"
    "]\n"
    "output { name: \"prob\" data_type: TYPE_FP16 dims: 1000 label_filename: \"labels.txt\" }\n"
    "instance_group [ { count: 2 kind: KIND_CPU }, { kind: KIND_CPU } ]\n"
    "version_policy: { specific: { versions: [1, 3] } }\n"
    "dynamic_batching {\n"
    "  preferred_batch_size: [ 4, 8 ]\n"
    "  max_queue_delay_microseconds: 100\n"
    "  preserve_ordering: true\n"
    "  priority_levels: 2\n"
    "  default_priority_level: 1\n"
    "  default_queue_policy { max_queue_size: 100 }\n"
    "  priority_queue_policy {\n"
    "    key: 2\n"
    "    value { timeout_action: DELAY default_timeout_microseconds: 9000 allow_timeout_override: true }\n"
    "  }\n"
    "}\n"
    "model_warmup {\n"
    "  name: \"w\" batch_size: 4\n"
    "  inputs { key: \"data\" value { data_type: TYPE_FP32 dims: [3, 224, 224] random_data: true } }\n"
    "}\n"
    "response_cache { enable: true }\n"
    "parameters { key: \"intra_op\" value: { string_value: \"2\" } }\n"
    "parameters { key: \"x\" value: { string_value: \"y\" } }\n";

static const char resnet_yaml[] =
    "name: resnet\n"
    "platform: onnxruntime_onnx\n"
    "max_batch_size: 16\n"
    "input:\n"
    "  - {name: data, data_type: FP32, dims: [3, 224, -1]}\n"
    "output:\n"
    "  - {name: prob, data_type: TYPE_FP16, dims: [1000], label_filename: labels.txt}\n"
    "instance_group:\n"
    "  - {count: 2, kind: KIND_CPU}\n"
    "  - {}\n"
    "version_policy: {specific: {versions: [1, 3]}}\n"
    "dynamic_batching:\n"
    "  preferred_batch_size: [4, 8]\n"
    "  max_queue_delay_microseconds: 100\n"
    "  preserve_ordering: true\n"
    "  priority_levels: 2\n"
    "  default_priority_level: 1\n"
    "  default_queue_policy: {max_queue_size: 100}\n"
    "  priority_queue_policy:\n"
    "    2: {timeout_action: DELAY, default_timeout_microseconds: 9000, allow_timeout_override: true}\n"
    "model_warmup:\n"
    "  - name: w\n"
    "    batch_size: 4\n"
    "    inputs: {data: {data_type: FP32, dims: [3, 224, 224], random_data: true}}\n"
    "response_cache: {enable: true}\n"
    "parameters:\n"
    "  intra_op: 2\n"
    "  x: {string_value: y}\n";

static void check_resnet(const struct model_config *c)
{
    IS(c->name, "resnet");
    IS(c->platform, "onnxruntime_onnx");
    assert_int_equal(c->max_batch_size, 16);
    assert_int_equal(c->n_inputs, 1);
    IS(c->inputs[0].name, "data");
    IS(c->inputs[0].data_type, "TYPE_FP32");
    assert_int_equal(c->inputs[0].n_dims, 3);
    assert_int_equal(c->inputs[0].dims[2], -1);
    assert_int_equal(c->n_outputs, 1);
    assert_int_equal(c->outputs[0].n_dims, 1);
    assert_int_equal(c->outputs[0].dims[0], 1000);
    IS(c->outputs[0].label_filename, "labels.txt");
    assert_int_equal(c->instances_min, 3);
    assert_int_equal(c->instances_max, 3);
    assert_int_equal(c->version_policy, VERSION_POLICY_SPECIFIC);
    assert_int_equal(c->n_specific_versions, 2);
    IS(c->specific_versions[1], "3");
    assert_int_equal(c->batching, CONFIG_BATCHING_FIXED);
    assert_int_equal(c->n_preferred, 2);
    assert_int_equal(c->preferred_batch_size[1], 8);
    assert_int_equal(c->max_queue_delay_us, 100);
    assert_true(c->preserve_ordering);
    assert_int_equal(c->default_priority_level, 1);
    assert_int_equal(c->default_queue_policy.max_queue_size, 100);
    assert_false(c->has_priority_queue_policy[1]);
    assert_true(c->has_priority_queue_policy[2]);
    assert_true(c->priority_queue_policy[2].delay);
    assert_int_equal(c->priority_queue_policy[2].default_timeout_us, 9000);
    assert_true(c->priority_queue_policy[2].allow_timeout_override);
    assert_int_equal(c->n_warmup, 1);
    assert_int_equal(c->warmup[0].batch_size, 4);
    assert_int_equal(c->warmup[0].count, 1);
    IS(c->warmup[0].inputs[0].name, "data");
    assert_int_equal(c->warmup[0].inputs[0].kind, WARMUP_RANDOM);
    assert_int_equal(c->warmup[0].inputs[0].n_dims, 3);
    assert_int_equal(c->response_cache_bytes, 64 << 20);
    assert_int_equal(c->n_parameters, 2);
    IS(c->parameters[0].key, "intra_op");
    IS(c->parameters[0].value, "2");
    IS(c->parameters[1].value, "y");
    assert_int_equal(c->n_warnings, 0);
}

static void all_three_spellings(void **state)
{
    (void)state;
    struct loaded l, again;
    struct buf json = {0}, second = {0};
    load(&l, model_config_from_pbtxt, resnet_pbtxt);
    check_resnet(&l.c);
    model_config_render_json(&l.c, false, &json);
    unload(&l);
    load(&l, model_config_from_yaml, resnet_yaml);
    check_resnet(&l.c);
    unload(&l);
    /* what GET .../config gives can be posted back; inferd's policy rides as a parameter and is taken out again */
    load(&again, model_config_from_json, buf_z(&json));
    check_resnet(&again.c);
    model_config_render_json(&again.c, false, &second);
    assert_string_equal(buf_z(&json), buf_z(&second));
    unload(&again);
    buf_release(&json);
    buf_release(&second);
}

static void nothing_given(void **state)
{
    (void)state;
    struct loaded l;
    struct buf json = {0};
    load(&l, model_config_from_pbtxt, "");
    assert_int_equal(l.c.max_batch_size, -1);
    assert_int_equal(l.c.batching, CONFIG_BATCHING_UNSET);
    assert_true(l.c.max_queue_delay_us == UINT64_MAX);
    assert_int_equal(l.c.version_policy, VERSION_POLICY_LATEST);
    assert_int_equal(l.c.latest_versions, 1);
    assert_int_equal(l.c.instances_min, 0);
    model_config_render_json(&l.c, false, &json);
    assert_string_equal(
        buf_z(&json),
        "{\"name\":\"\",\"platform\":\"\",\"backend\":\"\",\"runtime\":\"\",\"version_policy\":{\"latest\":{\"num_versions\":1}"
        "},"
        "\"input\":[],\"output\":[],\"batch_input\":[],\"batch_output\":[],\"optimization\":{\"priority\":"
        "\"PRIORITY_DEFAULT\",\"input_pinned_memory\":{\"enable\":true},\"output_pinned_memory\":{\"enable\":true},"
        "\"gather_kernel_buffer_threshold\":0,\"eager_batching\":false},\"instance_group\":[{\"name\":\"\",\"kind\":\"KIND_"
        "CPU\","
        "\"count\":1,\"gpus\":[],\"secondary_devices\":[],\"profile\":[],\"passive\":false,\"host_policy\":\"\"}],"
        "\"default_model_filename\":\"\",\"cc_model_filenames\":{},\"metric_tags\":{},\"parameters\":{},\"model_warmup\":[],"
        "\"model_transaction_policy\":{\"decoupled\":false}}");
    buf_release(&json);
    unload(&l);
}

static void batching_choice(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int want;
    } cases[] = {
        {"max_batch_size: 8", CONFIG_BATCHING_UNSET},
        {"dynamic_batching { }", CONFIG_BATCHING_DEADLINE},
        {"dynamic_batching { max_queue_delay_microseconds: 0 }", CONFIG_BATCHING_DEADLINE},
        {"dynamic_batching { max_queue_delay_microseconds: 1 }", CONFIG_BATCHING_FIXED},
        {"dynamic_batching { preferred_batch_size: 4 }", CONFIG_BATCHING_FIXED},
        {"dynamic_batching { preferred_batch_size: 4 } parameters { key: \"batching\" value { string_value: \"deadline\" } }",
         CONFIG_BATCHING_DEADLINE},
        {"parameters { key: \"batching\" value { string_value: \"none\" } } dynamic_batching { }", CONFIG_BATCHING_NONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct loaded l;
        load(&l, model_config_from_pbtxt, cases[i].text);
        assert_int_equal(l.c.batching, cases[i].want);
        assert_int_equal(l.c.n_parameters, 0);
        unload(&l);
    }
}

static void check_ours(const struct model_config *c)
{
    const struct config_padding *p = &c->inputs[0].padding[0];
    assert_int_equal(c->inputs[0].n_padding, 1);
    assert_int_equal(p->axis, 1);
    assert_int_equal(p->n_buckets, 3);
    assert_int_equal(p->buckets[2], 64);
    assert_true(p->value == -1.5);
    IS(p->mask_input, "mask");
    assert_int_equal(c->inputs[1].n_padding, 0);
    assert_int_equal(c->outputs[0].cut_axis[0], 2);
    assert_int_equal(c->outputs[0].cut_axis[1], -1);
    IS(c->outputs[0].cut_input[0], "ids.x");
    assert_int_equal(c->batching, CONFIG_BATCHING_DEADLINE);
    assert_int_equal(c->default_deadline_ms, 250);
    assert_int_equal(c->max_queue_rows, 77);
    assert_int_equal(c->max_queue_bytes, 1000000);
    assert_int_equal(c->response_cache_bytes, 1 << 20);
    assert_int_equal(c->instances_min, 1);
    assert_int_equal(c->instances_max, 6);
    assert_int_equal(c->n_labels, 1);
    IS(c->labels[0].key, "stable");
    IS(c->labels[0].value, "1.2.0");
    assert_int_equal(c->n_parameters, 0);
}

static void our_own_settings(void **state)
{
    (void)state;
    struct loaded l;
    struct buf json = {0};
    load(&l, model_config_from_yaml,
         "max_batch_size: 8\n"
         "input:\n"
         "  - name: ids.x\n"
         "    padding: {axis: 1, buckets: [16, 32, 64], value: -1.5, mask_input: mask}\n"
         "  - {name: mask, optional: true}\n"
         "output: {name: y, cut: {axis: 2, input: ids.x}}\n"
         "batching: deadline\n"
         "default_deadline_ms: 250\n"
         "max_queue_rows: 77\n"
         "max_queue_bytes: 1000000\n"
         "instance_group: [{min: 1, max: 6}]\n"
         "response_cache: {enable: true, size: 1MiB}\n"
         "labels: {stable: 1.2.0}\n");
    check_ours(&l.c);
    model_config_render_json(&l.c, false, &json);
    unload(&l);
    load(&l, model_config_from_json, buf_z(&json));
    check_ours(&l.c);
    unload(&l);
    buf_release(&json);
#define P(k, v) "parameters { key: \"" k "\" value { string_value: \"" v "\" } }\n"
    load(&l, model_config_from_pbtxt,
         P("padding.ids.x.axis", "1") P("padding.ids.x.buckets", "16, 32,64") P("padding.ids.x.value", "-1.5")
             P("padding.ids.x.mask_input", "mask") P("cut.y.axis", "2") P("cut.y.input", "ids.x") P("batching", "deadline")
                 P("default_deadline_ms", "250") P("max_queue_rows", "77") P("max_queue_bytes", "1000000")
                     P("instances_min", "1") P("instances_max", "6") P("response_cache_size", "1MiB")
                         P("label.stable",
                           "1.2.0") "input { name: \"ids.x\" } input { name: \"mask\" optional: true } output { name: \"y\" }");
    check_ours(&l.c);
    unload(&l);
}

/* What a file does not say stays unsaid in its JSON, so that it can be sent with a load. */
static void unset_stays_unset(void **state)
{
    (void)state;
    struct loaded l;
    struct buf json = {0};
    load(&l, model_config_from_yaml, "dynamic_batching: {preferred_batch_size: [4], max_queue_delay_microseconds: 9}\n");
    assert_int_equal(l.c.max_batch_size, -1);
    model_config_render_json(&l.c, false, &json);
    unload(&l);
    load(&l, model_config_from_json, buf_z(&json));
    assert_int_equal(l.c.max_batch_size, -1);
    assert_int_equal(l.c.batching, CONFIG_BATCHING_FIXED);
    assert_int_equal(l.c.preferred_batch_size[0], 4);
    assert_int_equal(l.c.max_queue_delay_us, 9);
    assert_int_equal(l.c.version_policy, VERSION_POLICY_LATEST);
    unload(&l);
    buf_release(&json);
}

/* Padding without an axis is of every dynamic axis, and stays that in the JSON that clients see. */
static void padding_of_every_axis(void **state)
{
    (void)state;
    static const char *const texts[] = {"input: [{name: x, padding: {}}]\n", "input: [{name: x, padding: {axis: -1}}]\n",
                                        "input: [{name: x}]\nparameters: {padding.x.axis: -1}\n"};
    for (size_t i = 0; i < 3; i++) {
        struct loaded l;
        struct buf json = {0};
        load(&l, model_config_from_yaml, texts[i]);
        assert_int_equal(l.c.inputs[0].n_padding, 1);
        assert_int_equal(l.c.inputs[0].padding[0].axis, -1);
        model_config_render_json(&l.c, false, &json);
        unload(&l);
        load(&l, model_config_from_json, buf_z(&json));
        assert_int_equal(l.c.inputs[0].n_padding, 1);
        assert_int_equal(l.c.inputs[0].padding[0].axis, -1);
        unload(&l);
        buf_release(&json);
    }
}

static void unknown_and_unserved(void **state)
{
    (void)state;
    refuses(model_config_from_pbtxt, "name: \"a\"\nmax_batchsize: 4\n",
            "m/file:2: unknown field 'max_batchsize'; did you mean 'max_batch_size'?");
    refuses(model_config_from_pbtxt, "dynamic_batching {\n  prefered_batch_size: 4 }",
            "m/file:2: dynamic_batching: unknown field 'prefered_batch_size'; did you mean 'preferred_batch_size'?");
    refuses(model_config_from_pbtxt, "input { name: \"x\" }\ninput {\n nam: \"y\" }",
            "m/file:3: input[1]: unknown field 'nam'; did you mean 'name'?");
    refuses(model_config_from_yaml, "qwertz: 1\n", "m/file:1: unknown field 'qwertz'");
    refuses(model_config_from_pbtxt, "batching: deadline", "m/file:1: unknown field 'batching'");
    warns(model_config_from_pbtxt, "sequence_batching { max_sequence_idle_microseconds: 5 }",
          "m/file:1: sequence_batching: inferd does not have this; it is ignored");
    warns(model_config_from_pbtxt, "input {\n name: \"x\"\n allow_ragged_batch: true }",
          "m/file:3: input.allow_ragged_batch: inferd does not have this; it is ignored");
    warns(model_config_from_pbtxt, "optimization { graph { level: 1 } }",
          "m/file:1: optimization.graph: inferd does not have this; it is ignored");
    warns(model_config_from_pbtxt, "instance_group { kind: KIND_GPU }",
          "m/file:1: instance_group.kind: KIND_GPU is ignored; onnxruntime.providers says which devices run models");
    warns(model_config_from_pbtxt, "model_transaction_policy { decoupled: true }",
          "m/file:1: model_transaction_policy.decoupled: whether a model answers several times is seen from the model; it is "
          "ignored");
    /* defaults, as a rendered configuration holds them, say nothing */
    warns(model_config_from_json,
          "{\"batch_input\":[],\"cc_model_filenames\":{},\"input\":[{\"name\":\"x\",\"is_shape_tensor\":false}],"
          "\"optimization\":{\"priority\":\"PRIORITY_DEFAULT\",\"eager_batching\":false},\"model_operations\":null}",
          NULL);
}

static void values(void **state)
{
    (void)state;
    refuses(model_config_from_pbtxt, "\nmax_batch_size: -1",
            "m/file:2: max_batch_size: '-1' is not accepted; give a whole number in 0..1000000");
    refuses(model_config_from_pbtxt, "max_batch_size: \"4\"",
            "m/file:1: max_batch_size: '4' is not accepted; give a whole number in 0..1000000");
    refuses(model_config_from_pbtxt, "max_batch_size: 4 max_batch_size: 4",
            "m/file:1: max_batch_size: one value is expected here, not several values");
    refuses(model_config_from_pbtxt, "name: resnet", "m/file:1: name: 'resnet' is not a string; put it in double quotes");
    refuses(model_config_from_pbtxt, "input { name: \"x\" data_type: TYPE_FP8 }",
            "m/file:1: input.data_type: 'TYPE_FP8' is not accepted; give TYPE_INVALID, TYPE_BOOL, TYPE_UINT8, TYPE_UINT16, "
            "TYPE_UINT32, "
            "TYPE_UINT64, TYPE_INT8, TYPE_INT16, TYPE_INT32, TYPE_INT64, TYPE_FP16, TYPE_FP32, TYPE_FP64, TYPE_STRING or "
            "TYPE_BF16");
    refuses(model_config_from_pbtxt, "input { name: \"x\" dims: -2 }",
            "m/file:1: input.dims: '-2' is not accepted; give a whole number in -1..1099511627776");
    refuses(model_config_from_pbtxt, "input { name: \"x\" dims: 0 }",
            "m/file: input 'x': dims are at least 1, or -1 for any size");
    refuses(model_config_from_pbtxt, "input { dims: 1 }", "m/file: input[0]: a name is needed");
    refuses(model_config_from_pbtxt, "input { name: \"x\" } input { name: \"x\" }", "m/file: input 'x' is there twice");
    refuses(model_config_from_pbtxt, "input { name: \"x\" dims: [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1] }",
            "m/file:1: input.dims: more than 16 values");
    refuses(model_config_from_pbtxt, "version_policy { all { } latest { num_versions: 1 } }",
            "m/file:1: version_policy: only one of latest, all and specific can be given");
    refuses(model_config_from_pbtxt, "version_policy { latest { num_versions: 0 } }",
            "m/file:1: version_policy.latest.num_versions: '0' is not accepted; give a whole number in 1..1000000");
    refuses(model_config_from_yaml, "version_policy: {specific: {versions: [../x]}}\n",
            "m/file:1: version_policy.specific.versions[0]: '../x' is not a version; give integers or semver (1.2.0)");
    refuses(model_config_from_yaml, "labels: {'../up': 1}\n",
            "m/file:1: labels[../up]: '../up' is not a label; give a word of letters, digits, '.', '_' and '-' that does not "
            "begin with a digit");
    refuses(model_config_from_pbtxt, "dynamic_batching { preserve_ordering: yes }",
            "m/file:1: dynamic_batching.preserve_ordering: 'yes' is not accepted; give true or false");
    refuses(model_config_from_pbtxt, "dynamic_batching { priority_levels: 2 }",
            "m/file: priority_levels needs a default_priority_level in 1..2");
    refuses(model_config_from_pbtxt, "max_batch_size: 4 dynamic_batching { preferred_batch_size: [2, 8] }",
            "m/file: preferred_batch_size 8 is above max_batch_size 4");
    refuses(model_config_from_pbtxt, "parameters { key: \"a\" value: \"b\" }",
            "m/file:1: parameters: a parameter is { string_value: \"...\" }");
    refuses(model_config_from_pbtxt, "parameters { key: \"max_queue_rows\" value { string_value: \"0\" } }",
            "m/file:1: parameters.max_queue_rows: '0' is not accepted; give a whole number in 1..4294967295");
    refuses(model_config_from_yaml, "instance_group: [{min: 4, max: 2}]\n",
            "m/file:1: instance_group[0]: at most 2 instances, but at least 4");
    refuses(model_config_from_yaml, "input: [{name: x, padding: {axis: 0}}]\n",
            "m/file:1: input[0].padding.axis: axis 0 is the batch; axes behind it are 1 and more, -1 is all that are dynamic");
    refuses(model_config_from_yaml, "input: [{name: x, padding: {axis: 1, buckets: [4, 4]}}]\n",
            "m/file: input 'x': padding buckets must ascend");
    refuses(model_config_from_yaml, "input: [{name: x}]\noutput: [{name: y, cut: {axis: 1, input: z}}]\n",
            "m/file: output 'y': cut: there is no input 'z'");
    refuses(model_config_from_yaml, "name: ../x\n",
            "m/file: name '../x' is not accepted; give 1 to 128 letters, digits, '.', '_' and '-'");
    refuses(model_config_from_json, "[]", "m/file: a map of fields is expected here");
    refuses(model_config_from_json, "{\"max_batch_size\":\"x\"}",
            "m/file: max_batch_size: 'x' is not accepted; give a whole number in 0..1000000");
}

static void protobuf_spellings(void **state)
{
    (void)state;
    struct loaded l;
    /* enums by number, booleans as t and 1, int64 as JSON strings, an empty oneof, hex */
    load(&l, model_config_from_pbtxt,
         "input { name: \"x\" data_type: 9 optional: t } version_policy { all {} } max_batch_size: 0x10 "
         "dynamic_batching { preserve_ordering: 1 }");
    IS(l.c.inputs[0].data_type, "TYPE_INT64");
    assert_true(l.c.inputs[0].optional);
    assert_int_equal(l.c.version_policy, VERSION_POLICY_ALL);
    assert_int_equal(l.c.max_batch_size, 16);
    assert_true(l.c.preserve_ordering);
    unload(&l);
    load(&l, model_config_from_json,
         "{\"input\":[{\"name\":\"x\",\"dims\":[\"4\",-1]}],\"dynamic_batching\":{\"max_queue_delay_microseconds\":\"7\"}}");
    assert_int_equal(l.c.inputs[0].dims[0], 4);
    assert_int_equal(l.c.max_queue_delay_us, 7);
    unload(&l);
}

/* Every allocation may fail; the arena's limit makes each one of them fail in turn. */
static void out_of_memory(void **state)
{
    (void)state;
    int failures = 0, rc = STATUS_NOMEM;
    for (size_t limit = 256; rc != 0 && limit < (1 << 20); limit += 256) {
        struct loaded l;
        struct error err = {0};
        arena_init(&l.arena, 64, limit);
        model_config_init(&l.c);
        rc = model_config_from_yaml(str_of(resnet_yaml), "m/file", &l.arena, &l.c, &err);
        assert_true(rc == 0 || rc == STATUS_NOMEM);
        failures += rc != 0;
        unload(&l);
    }
    assert_int_equal(rc, 0);
    assert_true(failures > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_three_spellings), cmocka_unit_test(nothing_given),         cmocka_unit_test(batching_choice),
        cmocka_unit_test(our_own_settings),    cmocka_unit_test(unknown_and_unserved),  cmocka_unit_test(values),
        cmocka_unit_test(protobuf_spellings),  cmocka_unit_test(padding_of_every_axis), cmocka_unit_test(unset_stays_unset),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
