/* model_config_json.c: a model's configuration in the form in which Triton answers GET /v2/models/{m}/config.
 *
 * That form is protobuf's JSON with the proto's own field names, enums by name, primitive fields always present, messages only
 * where set, and 64-bit integers as numbers (Triton rewrites protobuf's strings to numbers). perf_analyzer and Model Analyzer
 * read it. Fields that inferd does not serve appear with their defaults; inferd's own settings appear as `parameters`, spelled
 * as config.pbtxt would carry them, so that the answer can be given back to a load request. */
#include <stdio.h>

#include "base/format.h"
#include "base/size.h"
#include "conf/model_config.h"

static void key(struct buf *out, const char *name)
{
    if (out->n && out->p[out->n - 1] != '{' && out->p[out->n - 1] != '[')
        buf_append_c(out, ',');
    buf_append_c(out, '"');
    buf_append_z(out, name);
    buf_append_z(out, "\":");
}

static void comma(struct buf *out)
{
    if (out->n && out->p[out->n - 1] != '[' && out->p[out->n - 1] != '{')
        buf_append_c(out, ',');
}

static void put_str(struct buf *out, const char *name, struct str v)
{
    key(out, name);
    buf_append_json_str(out, v);
}

static void put_u64(struct buf *out, const char *name, uint64_t v)
{
    key(out, name);
    buf_append_u64(out, v);
}

static void put_bool(struct buf *out, const char *name, bool v)
{
    key(out, name);
    buf_append_z(out, v ? "true" : "false");
}

static void put_raw(struct buf *out, const char *name, const char *json)
{
    key(out, name);
    buf_append_z(out, json);
}

static void put_dims(struct buf *out, const int64_t *dims, int n)
{
    key(out, "dims");
    buf_append_c(out, '[');
    for (int i = 0; i < n; i++) {
        comma(out);
        buf_append_i64(out, dims[i]);
    }
    buf_append_c(out, ']');
}

static struct str or_str(struct str v, const char *fallback)
{
    return v.n ? v : str_of(fallback);
}

static void put_ios(struct buf *out, const char *name, const struct config_io *v, size_t n, bool input)
{
    key(out, name);
    buf_append_c(out, '[');
    for (size_t i = 0; i < n; i++) {
        comma(out);
        buf_append_c(out, '{');
        put_str(out, "name", v[i].name);
        put_str(out, "data_type", or_str(v[i].data_type, "TYPE_INVALID"));
        if (input)
            put_raw(out, "format", "\"FORMAT_NONE\"");
        put_dims(out, v[i].dims, v[i].n_dims);
        if (!input)
            put_str(out, "label_filename", v[i].label_filename);
        put_bool(out, "is_shape_tensor", false);
        if (input) {
            put_bool(out, "allow_ragged_batch", false);
            put_bool(out, "optional", v[i].optional);
        }
        put_bool(out, "is_non_linear_format_io", false);
        buf_append_c(out, '}');
    }
    buf_append_c(out, ']');
}

static void put_version_policy(struct buf *out, const struct model_config *c)
{
    key(out, "version_policy");
    if (c->version_policy == VERSION_POLICY_ALL) {
        buf_append_z(out, "{\"all\":{}}");
        return;
    }
    if (c->version_policy == VERSION_POLICY_LATEST) {
        buf_printf(out, "{\"latest\":{\"num_versions\":%u}}", c->latest_versions ? c->latest_versions : 1);
        return;
    }
    buf_append_z(out, "{\"specific\":{\"versions\":[");
    for (size_t i = 0; i < c->n_specific_versions; i++) {
        uint64_t number;
        comma(out);
        if (str_to_u64(c->specific_versions[i], &number))
            buf_append_u64(out, number);
        else
            buf_append_json_str(out, c->specific_versions[i]); /* semver, which Triton doesn't have */
    }
    buf_append_z(out, "]}}");
}

static void put_queue_policy(struct buf *out, const struct config_queue_policy *p)
{
    buf_append_c(out, '{');
    put_str(out, "timeout_action", p->delay ? STR("DELAY") : STR("REJECT"));
    put_u64(out, "default_timeout_microseconds", p->default_timeout_us);
    put_bool(out, "allow_timeout_override", p->allow_timeout_override);
    put_u64(out, "max_queue_size", p->max_queue_size);
    buf_append_c(out, '}');
}

static bool is_set(const struct config_queue_policy *p)
{
    return p->delay || p->default_timeout_us || p->allow_timeout_override || p->max_queue_size;
}

static void put_dynamic_batching(struct buf *out, const struct model_config *c)
{
    key(out, "dynamic_batching");
    buf_append_z(out, "{\"preferred_batch_size\":[");
    for (uint32_t i = 0; i < c->n_preferred; i++) {
        comma(out);
        buf_append_u64(out, c->preferred_batch_size[i]);
    }
    buf_append_c(out, ']');
    put_u64(out, "max_queue_delay_microseconds", c->max_queue_delay_us == UINT64_MAX ? 0 : c->max_queue_delay_us);
    put_bool(out, "preserve_ordering", c->preserve_ordering);
    put_u64(out, "priority_levels", c->priority_levels);
    put_u64(out, "default_priority_level", c->default_priority_level);
    if (is_set(&c->default_queue_policy)) {
        key(out, "default_queue_policy");
        put_queue_policy(out, &c->default_queue_policy);
    }
    put_raw(out, "priority_queue_policy", "{");
    for (size_t i = 1; i < COUNT_OF(c->priority_queue_policy); i++) {
        char level[16];
        if (!c->has_priority_queue_policy[i])
            continue;
        snprintf(level, sizeof level, "%zu", i);
        key(out, level);
        put_queue_policy(out, &c->priority_queue_policy[i]);
    }
    buf_append_z(out, "}}");
}

static void put_instance_group(struct buf *out, const struct model_config *c)
{
    key(out, "instance_group");
    buf_append_z(out, "[{");
    put_str(out, "name", c->name);
    put_raw(out, "kind", "\"KIND_CPU\"");
    put_u64(out, "count", c->instances_min ? c->instances_min : 1);
    put_raw(out, "gpus", "[]");
    put_raw(out, "secondary_devices", "[]");
    put_raw(out, "profile", "[]");
    put_bool(out, "passive", false);
    put_raw(out, "host_policy", "\"\"");
    buf_append_z(out, "}]");
}

/* ---- parameters: the model's own, then inferd's settings ---- */

static void put_parameter(struct buf *out, struct str name, struct str value)
{
    comma(out);
    buf_append_json_str(out, name);
    buf_append_z(out, ":{\"string_value\":");
    buf_append_json_str(out, value);
    buf_append_c(out, '}');
}

static void put_parameter_u64(struct buf *out, const char *name, uint64_t v)
{
    char text[24];
    if (!v)
        return;
    snprintf(text, sizeof text, "%llu", (unsigned long long)v);
    put_parameter(out, str_of(name), str_of(text));
}

/* "<prefix>.<tensor>.<field>" */
static void put_tensor_parameter(struct buf *out, const char *prefix, struct str tensor, const char *field, struct str value)
{
    struct buf name;
    buf_init(&name);
    buf_append_z(&name, prefix);
    buf_append_str(&name, tensor);
    buf_append_c(&name, '.');
    buf_append_z(&name, field);
    put_parameter(out, buf_str(&name), value);
    buf_release(&name);
}

static void put_padding(struct buf *out, const struct config_io *io)
{
    const struct config_padding *p = &io->padding[0];
    char text[32];
    struct buf buckets;
    if (io->n_padding == 0)
        return;
    snprintf(text, sizeof text, "%d", p->axis);
    put_tensor_parameter(out, "padding.", io->name, "axis", str_of(text));
    buf_init(&buckets);
    for (int i = 0; i < p->n_buckets; i++) {
        if (i)
            buf_append_c(&buckets, ',');
        buf_append_i64(&buckets, p->buckets[i]);
    }
    if (p->n_buckets)
        put_tensor_parameter(out, "padding.", io->name, "buckets", buf_str(&buckets));
    buf_release(&buckets);
    if (p->value != 0) {
        char number[FORMAT_NUMBER_BYTES];
        put_tensor_parameter(out, "padding.", io->name, "value", str_of(format_number(p->value, number)));
    }
    if (p->mask_input.n)
        put_tensor_parameter(out, "padding.", io->name, "mask_input", p->mask_input);
}

static void put_cut(struct buf *out, const struct config_io *io)
{
    char text[16];
    if (io->cut_axis[0] < 1)
        return;
    snprintf(text, sizeof text, "%d", io->cut_axis[0]);
    put_tensor_parameter(out, "cut.", io->name, "axis", str_of(text));
    put_tensor_parameter(out, "cut.", io->name, "input", io->cut_input[0]);
}

static void put_parameters(struct buf *out, const struct model_config *c)
{
    static const char *const batching[] = {NULL, "none", "fixed", "deadline"};
    put_raw(out, "parameters", "{");
    for (size_t i = 0; i < c->n_parameters; i++)
        put_parameter(out, c->parameters[i].key, c->parameters[i].value);
    if (c->batching != CONFIG_BATCHING_UNSET)
        put_parameter(out, STR("batching"), str_of(batching[c->batching]));
    put_parameter_u64(out, "default_deadline_ms", c->default_deadline_ms);
    put_parameter_u64(out, "max_queue_rows", c->max_queue_rows);
    put_parameter_u64(out, "max_queue_bytes", c->max_queue_bytes);
    if (c->instances_max > c->instances_min)
        put_parameter_u64(out, "instances_max", c->instances_max);
    put_parameter_u64(out, "response_cache_size", c->response_cache_bytes);
    for (size_t i = 0; i < c->n_labels; i++) {
        char label[160];
        snprintf(label, sizeof label, "label.%.*s", STR_ARG(c->labels[i].key));
        put_parameter(out, str_of(label), c->labels[i].value);
    }
    for (size_t i = 0; i < c->n_inputs; i++)
        put_padding(out, &c->inputs[i]);
    for (size_t i = 0; i < c->n_outputs; i++)
        put_cut(out, &c->outputs[i]);
    buf_append_c(out, '}');
}

static void put_warmup_input(struct buf *out, const struct config_warmup_input *in)
{
    comma(out);
    buf_append_json_str(out, in->name);
    buf_append_z(out, ":{");
    put_str(out, "data_type", or_str(in->data_type, "TYPE_INVALID"));
    put_dims(out, in->dims, in->n_dims);
    if (in->kind == WARMUP_FILE)
        put_str(out, "input_data_file", in->file);
    else
        put_bool(out, in->kind == WARMUP_ZERO ? "zero_data" : "random_data", true);
    buf_append_c(out, '}');
}

static void put_warmups(struct buf *out, const struct model_config *c)
{
    put_raw(out, "model_warmup", "[");
    for (size_t i = 0; i < c->n_warmup; i++) {
        const struct config_warmup *w = &c->warmup[i];
        comma(out);
        buf_append_c(out, '{');
        put_str(out, "name", w->name);
        put_u64(out, "batch_size", w->batch_size);
        put_raw(out, "inputs", "{");
        for (size_t k = 0; k < w->n_inputs; k++)
            put_warmup_input(out, &w->inputs[k]);
        buf_append_c(out, '}');
        put_u64(out, "count", w->count);
        buf_append_c(out, '}');
    }
    buf_append_c(out, ']');
}

void model_config_render_json(const struct model_config *c, bool decoupled, struct buf *out)
{
    bool batches = c->max_batch_size != 0 && c->batching >= CONFIG_BATCHING_FIXED;
    buf_append_c(out, '{');
    put_str(out, "name", c->name);
    put_str(out, "platform", c->platform);
    put_str(out, "backend", c->backend);
    put_raw(out, "runtime", "\"\"");
    put_version_policy(out, c);
    if (c->max_batch_size >= 0) /* unset only in a file's own configuration; the effective one has it */
        put_u64(out, "max_batch_size", (uint64_t)c->max_batch_size);
    put_ios(out, "input", c->inputs, c->n_inputs, true);
    put_ios(out, "output", c->outputs, c->n_outputs, false);
    put_raw(out, "batch_input", "[]");
    put_raw(out, "batch_output", "[]");
    put_raw(out, "optimization",
            "{\"priority\":\"PRIORITY_DEFAULT\",\"input_pinned_memory\":{\"enable\":true},\"output_pinned_memory\":{\"enable\":"
            "true},"
            "\"gather_kernel_buffer_threshold\":0,\"eager_batching\":false}");
    if (batches)
        put_dynamic_batching(out, c);
    put_instance_group(out, c);
    put_str(out, "default_model_filename", c->default_model_filename);
    put_raw(out, "cc_model_filenames", "{}");
    put_raw(out, "metric_tags", "{}");
    put_parameters(out, c);
    put_warmups(out, c);
    put_raw(out, "model_transaction_policy", decoupled ? "{\"decoupled\":true}" : "{\"decoupled\":false}");
    if (c->response_cache_bytes)
        put_raw(out, "response_cache", "{\"enable\":true}");
    buf_append_c(out, '}');
}
