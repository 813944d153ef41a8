/* contract.c: merging what the model file says with what the config says.
 *
 * The batch rule. max_batch_size > 0: dim 0 of every input and output is the batch axis, and config dims leave it out (Triton's
 * convention); the file's dim 0 must be dynamic, because a fixed one cannot hold a batch. max_batch_size 0: no batch axis, dims
 * are whole. Unset: when the file itself looks batchable (engine_contract.batchable) the default maximum applies, else none.
 *
 * Padding. An input with a `padding` entry pads the named axis, or every dynamic axis behind the batch when none is named. An
 * output axis follows the padded axis when the config says so (cut) or when both carry the same symbolic name in the file. */
#include "model/contract_priv.h"

#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"

int contract_find(const struct engine_io *io, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(io[i].name, name))
            return (int)i;
    return -1;
}

const char *contract_shape(const struct contract *c, const struct engine_io *io, char *text, size_t cap)
{
    size_t n = 0;
    if (cap)
        text[0] = 0;
    for (int d = 0; d < io->shape.rank && n < cap; d++) {
        if (d == 0 && c->max_batch)
            n += (size_t)snprintf(text + n, cap - n, "batch");
        else
            n += (size_t)snprintf(text + n, cap - n, "%s%lld", d ? "," : "", (long long)io->shape.dim[d]);
    }
    return text;
}

/* The names of a list, for "whose inputs are ..." messages. */
static const char *names(const struct engine_io *io, size_t n, char *text, size_t cap)
{
    size_t at = 0;
    text[0] = 0;
    for (size_t i = 0; i < n && at + 1 < cap; i++)
        at += (size_t)snprintf(text + at, cap - at, "%s\"%.*s\"", i ? ", " : "", STR_ARG(io[i].name));
    return text;
}

static int merge_dims(struct engine_io *io, const struct config_io *ci, bool batch, const char *what, struct error *err)
{
    if (ci->n_dims < 0)
        return 0;
    int lead = batch ? 1 : 0;
    char have[160];
    shape_format(&io->shape, have, sizeof have);
    if (ci->n_dims + lead != io->shape.rank)
        return error_set(err, STATUS_INVALID,
                         "%s \"%.*s\": the config has %d dims%s, the model has shape %s: give %d dims, or leave dims out", what,
                         STR_ARG(io->name), ci->n_dims, batch ? " behind the batch axis" : "", have, io->shape.rank - lead);
    for (int d = 0; d < ci->n_dims; d++) {
        int64_t *file = &io->shape.dim[d + lead], want = ci->dims[d];
        if (want < 0)
            continue;
        if (*file >= 0 && *file != want)
            return error_set(err, STATUS_INVALID, "%s \"%.*s\": dim %d is %lld in the config and %lld in the model (%s)", what,
                             STR_ARG(io->name), d, (long long)want, (long long)*file, have);
        *file = want;
    }
    return 0;
}

static int merge_io(struct engine_io *io, size_t n, const struct config_io *list, size_t n_list, bool batch, const char *what,
                    struct error *err)
{
    char text[256];
    for (size_t i = 0; i < n_list; i++) {
        const struct config_io *ci = &list[i];
        int at = contract_find(io, n, ci->name);
        if (at < 0)
            return error_set(err, STATUS_INVALID, "%s \"%.*s\" of the config is not in the model, whose %ss are %s", what,
                             STR_ARG(ci->name), what, names(io, n, text, sizeof text));
        if (ci->data_type.n) {
            enum dtype t = dtype_parse(ci->data_type);
            if (t == DTYPE_INVALID)
                return error_set(err, STATUS_INVALID, "%s \"%.*s\": unknown data type \"%.*s\"", what, STR_ARG(ci->name),
                                 STR_ARG(ci->data_type));
            if (t != io[at].dtype)
                return error_set(err, STATUS_INVALID, "%s \"%.*s\": the config says %s, the model has %s", what,
                                 STR_ARG(ci->name), dtype_name(t), dtype_name(io[at].dtype));
        }
        int rc = merge_dims(&io[at], ci, batch, what, err);
        if (rc)
            return rc;
        io[at].optional |= ci->optional;
    }
    return 0;
}

static int check_batch_axis(const struct engine_io *io, size_t n, const char *what, uint32_t max_batch, struct error *err)
{
    char have[160];
    for (size_t i = 0; i < n; i++)
        if (io[i].shape.rank < 1 || io[i].shape.dim[0] >= 0)
            return error_set(
                err, STATUS_INVALID,
                "max_batch_size is %u, but %s \"%.*s\" has shape %s, whose first dim is no dynamic batch axis: export "
                "the model with a dynamic batch axis, or set max_batch_size: 0",
                max_batch, what, STR_ARG(io[i].name), shape_format(&io[i].shape, have, sizeof have));
    return 0;
}

static int merge_batch(const struct engine_contract *file, const struct model_config *cfg, struct contract *out,
                       struct error *err)
{
    out->max_batch_declared = cfg->max_batch_size >= 0;
    if (cfg->max_batch_size > BATCH_ROWS_MAX)
        return error_set(err, STATUS_INVALID, "max_batch_size is %lld: at most %d is accepted", (long long)cfg->max_batch_size,
                         BATCH_ROWS_MAX);
    if (cfg->max_batch_size < 0)
        out->max_batch = file->batchable && file->n_inputs ? CONTRACT_DEFAULT_MAX_BATCH : 0;
    else
        out->max_batch = (uint32_t)cfg->max_batch_size;
    if (!out->max_batch)
        return 0;
    int rc = check_batch_axis(file->inputs, file->n_inputs, "input", out->max_batch, err);
    return rc ? rc : check_batch_axis(file->outputs, file->n_outputs, "output", out->max_batch, err);
}

static int add_pad(struct contract *out, size_t input, int axis, const struct config_padding *p, struct error *err)
{
    const struct engine_io *io = &out->c.inputs[input];
    struct input_rule *rule = &out->in[input];
    if (axis <= 0 || axis >= io->shape.rank || io->shape.dim[axis] >= 0)
        return error_set(err, STATUS_INVALID,
                         "input \"%.*s\": padding names axis %d, which is not a dynamic axis behind the batch",
                         STR_ARG(io->name), axis);
    if (rule->n_pad == CONTRACT_PAD_MAX)
        return error_set(err, STATUS_INVALID, "input \"%.*s\": at most %d axes can be padded", STR_ARG(io->name),
                         CONTRACT_PAD_MAX);
    struct pad_rule *r = &rule->pad[rule->n_pad++];
    r->axis = axis;
    r->n_buckets = p->n_buckets;
    memcpy(r->buckets, p->buckets, sizeof r->buckets);
    out->pads = true;
    return 0;
}

/* The mask input gets the same buckets on its axis 1, filled with 0, and may be left out by clients. */
static int add_mask(struct contract *out, struct engine_io *inputs, size_t input, const struct config_padding *p,
                    struct error *err)
{
    int at = contract_find(inputs, out->c.n_inputs, p->mask_input);
    if (at < 0 || (size_t)at == input)
        return error_set(err, STATUS_INVALID,
                         "input \"%.*s\": padding names the mask input \"%.*s\", which the model doesn't have",
                         STR_ARG(inputs[input].name), STR_ARG(p->mask_input));
    if (inputs[at].shape.rank != 2 || inputs[at].dtype == DTYPE_BYTES)
        return error_set(err, STATUS_INVALID, "mask input \"%.*s\" must be a numeric tensor of shape [batch, length]",
                         STR_ARG(p->mask_input));
    inputs[at].optional = true;
    out->in[at].mask_of = (int)input;
    out->in[at].fill = (struct pad_fill){0};
    return out->in[at].n_pad ? 0 : add_pad(out, (size_t)at, 1, p, err);
}

static int merge_padding(const struct model_config *cfg, struct contract *out, struct engine_io *inputs, struct error *err)
{
    for (size_t i = 0; i < cfg->n_inputs; i++) {
        const struct config_io *ci = &cfg->inputs[i];
        size_t at = (size_t)contract_find(inputs, out->c.n_inputs, ci->name);
        for (int k = 0; k < ci->n_padding; k++) {
            const struct config_padding *p = &ci->padding[k];
            if (!out->max_batch)
                return error_set(err, STATUS_INVALID, "input \"%.*s\": padding needs a batch axis (max_batch_size > 0)",
                                 STR_ARG(ci->name));
            int rc = pad_fill_set(inputs[at].dtype, p->value, &out->in[at].fill, err);
            if (rc)
                return error_prefix(err, "padding of input \"%.*s\"", STR_ARG(ci->name));
            if (p->axis >= 0)
                rc = add_pad(out, at, p->axis, p, err);
            else
                for (int d = 1; d < inputs[at].shape.rank && !rc; d++)
                    if (inputs[at].shape.dim[d] < 0)
                        rc = add_pad(out, at, d, p, err);
            if (!rc && p->mask_input.n)
                rc = add_mask(out, inputs, at, p, err);
            if (rc)
                return rc;
        }
    }
    return 0;
}

static int add_cut(struct contract *out, size_t output, int axis, size_t input, int input_axis)
{
    struct output_rule *rule = &out->out[output];
    for (int i = 0; i < rule->n_cut; i++)
        if (rule->cut[i].axis == axis)
            return 0;
    if (rule->n_cut < CONTRACT_PAD_MAX)
        rule->cut[rule->n_cut++] = (struct cut_rule){axis, (int)input, input_axis};
    return 0;
}

static int declared_cuts(const struct model_config *cfg, struct contract *out, struct error *err)
{
    for (size_t i = 0; i < cfg->n_outputs; i++) {
        const struct config_io *co = &cfg->outputs[i];
        int at = contract_find(out->c.outputs, out->c.n_outputs, co->name);
        for (int k = 0; k < 4 && co->cut_axis[k] > 0; k++) {
            int in = contract_find(out->c.inputs, out->c.n_inputs, co->cut_input[k]);
            if (in < 0 || !out->in[in].n_pad)
                return error_set(err, STATUS_INVALID, "output \"%.*s\": cut_from names \"%.*s\", which is not a padded input",
                                 STR_ARG(co->name), STR_ARG(co->cut_input[k]));
            if (co->cut_axis[k] >= out->c.outputs[at].shape.rank)
                return error_set(err, STATUS_INVALID, "output \"%.*s\": cut axis %d is outside its rank %d", STR_ARG(co->name),
                                 co->cut_axis[k], out->c.outputs[at].shape.rank);
            add_cut(out, (size_t)at, co->cut_axis[k], (size_t)in, out->in[in].pad[0].axis);
        }
    }
    return 0;
}

/* Axes with the same symbolic name in the file have the same length. */
static void inferred_cuts(struct contract *out)
{
    for (size_t o = 0; o < out->c.n_outputs; o++)
        for (int d = 1; d < out->c.outputs[o].shape.rank; d++)
            for (size_t i = 0; i < out->c.n_inputs; i++)
                for (int k = 0; k < out->in[i].n_pad; k++) {
                    struct str a = out->c.outputs[o].dim_names[d], b = out->c.inputs[i].dim_names[out->in[i].pad[k].axis];
                    if (a.n && str_eq(a, b))
                        add_cut(out, o, d, i, out->in[i].pad[k].axis);
                }
}

static bool is_uniform(const struct contract *c)
{
    for (size_t i = 0; i < c->c.n_inputs; i++) {
        if (c->c.inputs[i].optional)
            return false;
        for (int d = c->max_batch ? 1 : 0; d < c->c.inputs[i].shape.rank; d++)
            if (c->c.inputs[i].shape.dim[d] < 0)
                return false;
    }
    return true;
}

static void *copy(struct arena *a, const void *p, size_t n, size_t size)
{
    void *to = arena_array(a, n ? n : 1, size);
    if (to && n)
        memcpy(to, p, n * size);
    return to;
}

/* What a model that generates text shows as its tensors, as Triton's vLLM backend has them: api's protocols take them apart, no batch is ever
 * made of them. */
static struct engine_contract with_text_io(const struct engine_contract *file)
{
#define ROW(text, type, may_miss)                                                                                              \
    {                                                                                                                          \
        {text, sizeof text - 1}, type, {1, {1}}, may_miss,                                                                     \
        {                                                                                                                      \
            {                                                                                                                  \
                0                                                                                                              \
            }                                                                                                                  \
        }                                                                                                                      \
    }
    static const struct engine_io inputs[] = {ROW("text_input", DTYPE_BYTES, false),
                                              ROW("stream", DTYPE_BOOL, true),
                                              ROW("sampling_parameters", DTYPE_BYTES, true),
                                              ROW("exclude_input_in_output", DTYPE_BOOL, true),
                                              ROW("return_finish_reason", DTYPE_BOOL, true),
                                              ROW("return_num_input_tokens", DTYPE_BOOL, true),
                                              ROW("return_num_output_tokens", DTYPE_BOOL, true)};
    static const struct engine_io outputs[] = {ROW("text_output", DTYPE_BYTES, false), ROW("finish_reason", DTYPE_BYTES, false),
                                               ROW("num_input_tokens", DTYPE_UINT32, false),
                                               ROW("num_output_tokens", DTYPE_UINT32, false)};
#undef ROW
    struct engine_contract c = *file;
    if (c.face != ENGINE_TOKEN || c.embedding_dims || c.n_inputs)
        return c;
    c.inputs = inputs;
    c.n_inputs = COUNT_OF(inputs);
    c.outputs = outputs;
    c.n_outputs = COUNT_OF(outputs);
    return c;
}

int contract_merge(const struct engine_contract *of_file, const struct model_config *cfg, struct arena *a, struct contract *out,
                   struct error *err)
{
    const struct engine_contract shown = with_text_io(of_file), *file = &shown;
    *out = (struct contract){.c = *file, .bucket_mask = UINT64_MAX};
    if (file->n_inputs > INFER_IO_MAX || file->n_outputs > INFER_IO_MAX)
        return error_set(err, STATUS_INVALID, "the model has %zu inputs and %zu outputs: at most %d of each are served",
                         file->n_inputs, file->n_outputs, INFER_IO_MAX);
    struct engine_io *inputs = copy(a, file->inputs, file->n_inputs, sizeof *inputs);
    struct engine_io *outputs = copy(a, file->outputs, file->n_outputs, sizeof *outputs);
    out->in = arena_array(a, file->n_inputs + 1, sizeof *out->in);
    out->out = arena_array(a, file->n_outputs + 1, sizeof *out->out);
    if (!inputs || !outputs || !out->in || !out->out)
        return error_set(err, STATUS_NOMEM, "no memory for the model's contract");
    out->c.inputs = inputs;
    out->c.outputs = outputs;
    for (size_t i = 0; i < file->n_inputs; i++)
        out->in[i].mask_of = -1;
    if (file->face == ENGINE_TOKEN)
        return 0;
    int rc = merge_batch(file, cfg, out, err);
    if (!rc)
        rc = merge_io(inputs, file->n_inputs, cfg->inputs, cfg->n_inputs, out->max_batch > 0, "input", err);
    if (!rc)
        rc = merge_io(outputs, file->n_outputs, cfg->outputs, cfg->n_outputs, out->max_batch > 0, "output", err);
    if (!rc)
        rc = merge_padding(cfg, out, inputs, err);
    if (!rc)
        rc = declared_cuts(cfg, out, err);
    if (!rc)
        inferred_cuts(out);
    out->uniform = is_uniform(out);
    return rc;
}

/* Times of a config can be anything that fits 64 bits: what is past the end of the clock is never. */
static uint64_t ns_of_us(uint64_t us)
{
    return us > SCHED_NEVER / 1000 ? SCHED_NEVER : us * 1000;
}

static void queue_policy(const struct config_queue_policy *from, struct batch_queue_policy *to)
{
    to->delay_on_timeout = from->delay;
    to->default_timeout_ns = ns_of_us(from->default_timeout_us);
    to->allow_timeout_override = from->allow_timeout_override;
    to->max_queue_items = from->max_queue_size;
}

void contract_policy(const struct contract *c, const struct model_config *cfg, struct batch_policy *out)
{
    *out = (struct batch_policy){.max_rows = c->max_batch ? c->max_batch : 1, .mode = BATCH_DEADLINE};
    if (cfg->batching == CONFIG_BATCHING_NONE)
        out->mode = BATCH_NONE;
    if (cfg->batching == CONFIG_BATCHING_FIXED)
        out->mode = BATCH_FIXED;
    for (uint32_t i = 0; i < cfg->n_preferred && out->n_preferred < BATCH_PREFERRED_MAX; i++)
        if (cfg->preferred_batch_size[i] <= out->max_rows)
            out->preferred_rows[out->n_preferred++] = cfg->preferred_batch_size[i];
    out->max_queue_delay_ns = cfg->max_queue_delay_us == UINT64_MAX ? 0 : ns_of_us(cfg->max_queue_delay_us);
    out->preserve_ordering = cfg->preserve_ordering;
    out->priority_levels = MIN_OF(cfg->priority_levels, (uint32_t)BATCH_PRIORITIES_MAX);
    out->default_priority_level = cfg->default_priority_level;
    for (uint32_t level = 0; level <= BATCH_PRIORITIES_MAX; level++) {
        bool own = level && level < COUNT_OF(cfg->has_priority_queue_policy) && cfg->has_priority_queue_policy[level];
        queue_policy(own ? &cfg->priority_queue_policy[level] : &cfg->default_queue_policy, &out->queue[level]);
    }
    out->max_queue_rows = cfg->max_queue_rows;
    out->max_queue_bytes = cfg->max_queue_bytes;
}
