/* model_config.c: the three texts into one struct: parse to a tree, walk it by the table (model_fields.c), settle what depends on
 * several fields, check the whole. */
#include "conf/model_config.h"

#include "base/size.h"
#include "base/status.h"
#include "conf/model_fields.h"
#include "conf/pbtxt.h"
#include "conf/yaml.h"

void model_config_init(struct model_config *c)
{
    *c = (struct model_config){.max_batch_size = -1, .max_queue_delay_us = UINT64_MAX, .latest_versions = 1};
}

/* Move `parameters` to the end: the padding and cut parameters name inputs that may stand below them in the file. */
static void parameters_last(struct node *root)
{
    struct node *all = root->first, *late = NULL;
    root->first = root->last = NULL;
    root->n = 0;
    for (struct node *n = all, *next; n; n = next) {
        next = n->next;
        if (str_eqz(n->key, "parameters") && !late)
            late = n;
        else
            node_append(root, n);
    }
    if (late)
        node_append(root, late);
}

static int read_tree(struct node *root, enum model_format format, const char *where, struct arena *a, struct model_config *c,
                     struct error *err)
{
    struct error local = {0};
    struct reader r = {.where = where, .format = format, .arena = a, .err = &local, .config = c};
    if (root->kind == NODE_MAP)
        parameters_last(root);
    int rc = root->kind == NODE_MAP ? model_read_message(&r, &model_message, root, c)
                                    : model_error(&r, root, "a map of fields is expected here");
    if (rc == 0 && r.dynamic_batching && c->batching == CONFIG_BATCHING_UNSET) {
        bool fixed = c->n_preferred > 0 || (c->max_queue_delay_us != UINT64_MAX && c->max_queue_delay_us > 0);
        c->batching = fixed ? CONFIG_BATCHING_FIXED : CONFIG_BATCHING_DEADLINE;
    }
    if (rc == 0 && c->instances_max < c->instances_min)
        c->instances_max = c->instances_min;
    if (rc == 0)
        rc = model_config_validate(c, where, &local);
    return rc < 0 ? error_set(err, local.code, "%s", local.text) : 0;
}

int model_config_from_yaml(struct str text, const char *where, struct arena *a, struct model_config *c, struct error *err)
{
    struct node *root;
    int rc = yaml_parse(text, where, a, &root, err);
    return rc == 0 ? read_tree(root, MODEL_YAML, where, a, c, err) : rc;
}

int model_config_from_pbtxt(struct str text, const char *where, struct arena *a, struct model_config *c, struct error *err)
{
    struct node *root;
    int rc = pbtxt_parse(text, where, a, &root, err);
    return rc == 0 ? read_tree(root, MODEL_PBTXT, where, a, c, err) : rc;
}

int model_config_from_json(struct str text, const char *where, struct arena *a, struct model_config *c, struct error *err)
{
    struct node *root;
    int rc = json_tree_parse(text, where, a, &root, err);
    return rc == 0 ? read_tree(root, MODEL_JSON, where, a, c, err) : rc;
}

/* ---- checks of the whole ---- */

static bool has_io(const struct config_io *v, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(v[i].name, name))
            return true;
    return false;
}

static int check_io(const struct config_io *v, size_t n, const char *kind, const char *where, struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (!v[i].name.n)
            return error_set(err, STATUS_INVALID, "%s: %s[%zu]: a name is needed", where, kind, i);
        if (has_io(v, i, v[i].name))
            return error_set(err, STATUS_INVALID, "%s: %s '%.*s' is there twice", where, kind, STR_ARG(v[i].name));
        for (int d = 0; d < v[i].n_dims; d++)
            if (v[i].dims[d] == 0)
                return error_set(err, STATUS_INVALID, "%s: %s '%.*s': dims are at least 1, or -1 for any size", where, kind,
                                 STR_ARG(v[i].name));
    }
    return 0;
}

static int check_padding(const struct model_config *c, const struct config_io *io, const char *where, struct error *err)
{
    for (int p = 0; p < io->n_padding; p++) {
        const struct config_padding *pad = &io->padding[p];
        for (int b = 1; b < pad->n_buckets; b++)
            if (pad->buckets[b] <= pad->buckets[b - 1])
                return error_set(err, STATUS_INVALID, "%s: input '%.*s': padding buckets must ascend", where,
                                 STR_ARG(io->name));
        if (pad->mask_input.n && c->n_inputs && !has_io(c->inputs, c->n_inputs, pad->mask_input))
            return error_set(err, STATUS_INVALID, "%s: input '%.*s': there is no input '%.*s' for the mask", where,
                             STR_ARG(io->name), STR_ARG(pad->mask_input));
    }
    return 0;
}

static int check_batching(const struct model_config *c, const char *where, struct error *err)
{
    if (c->default_priority_level > c->priority_levels)
        return error_set(err, STATUS_INVALID, "%s: default_priority_level %u is above priority_levels %u", where,
                         c->default_priority_level, c->priority_levels);
    if (c->priority_levels && !c->default_priority_level)
        return error_set(err, STATUS_INVALID, "%s: priority_levels needs a default_priority_level in 1..%u", where,
                         c->priority_levels);
    for (uint32_t i = 1; i < COUNT_OF(c->has_priority_queue_policy); i++)
        if (c->has_priority_queue_policy[i] && i > c->priority_levels)
            return error_set(err, STATUS_INVALID, "%s: priority_queue_policy names level %u but priority_levels is %u", where,
                             i, c->priority_levels);
    for (uint32_t i = 0; c->max_batch_size >= 0 && i < c->n_preferred; i++)
        if (c->preferred_batch_size[i] > (uint64_t)c->max_batch_size)
            return error_set(err, STATUS_INVALID, "%s: preferred_batch_size %u is above max_batch_size %lld", where,
                             c->preferred_batch_size[i], (long long)c->max_batch_size);
    return 0;
}

static int check_warmup(const struct model_config *c, const char *where, struct error *err)
{
    for (size_t i = 0; i < c->n_warmup; i++) {
        const struct config_warmup *w = &c->warmup[i];
        if (w->batch_size > 1 && c->max_batch_size >= 0 && w->batch_size > (uint64_t)c->max_batch_size)
            return error_set(err, STATUS_INVALID, "%s: model_warmup '%.*s': batch_size %u is above max_batch_size %lld", where,
                             STR_ARG(w->name), w->batch_size, (long long)c->max_batch_size);
        for (size_t k = 0; k < w->n_inputs; k++) {
            const struct config_warmup_input *in = &w->inputs[k];
            if (c->n_inputs && !has_io(c->inputs, c->n_inputs, in->name))
                return error_set(err, STATUS_INVALID, "%s: model_warmup '%.*s': there is no input '%.*s'", where,
                                 STR_ARG(w->name), STR_ARG(in->name));
            for (int d = 0; d < in->n_dims; d++)
                if (in->dims[d] < 1)
                    return error_set(err, STATUS_INVALID,
                                     "%s: model_warmup '%.*s': input '%.*s': every dim must be given, at least 1", where,
                                     STR_ARG(w->name), STR_ARG(in->name));
            if (in->kind == WARMUP_FILE && !in->file.n)
                return error_set(err, STATUS_INVALID, "%s: model_warmup '%.*s': input_data_file is empty", where,
                                 STR_ARG(w->name));
        }
    }
    return 0;
}

int model_config_validate(const struct model_config *c, const char *where, struct error *err)
{
    if (c->name.n && !str_is_model_name(c->name))
        return error_set(err, STATUS_INVALID,
                         "%s: name '%.*s' is not accepted; give 1 to 128 letters, digits, '.', '_' and '-'", where,
                         STR_ARG(c->name));
    int rc = check_io(c->inputs, c->n_inputs, "input", where, err);
    if (rc == 0)
        rc = check_io(c->outputs, c->n_outputs, "output", where, err);
    for (size_t i = 0; rc == 0 && i < c->n_inputs; i++)
        rc = check_padding(c, &c->inputs[i], where, err);
    for (size_t i = 0; rc == 0 && i < c->n_outputs; i++)
        for (size_t k = 0; rc == 0 && k < COUNT_OF(c->outputs[i].cut_axis) && c->outputs[i].cut_axis[k] > 0; k++)
            if (c->n_inputs && !has_io(c->inputs, c->n_inputs, c->outputs[i].cut_input[k]))
                rc = error_set(err, STATUS_INVALID, "%s: output '%.*s': cut: there is no input '%.*s'", where,
                               STR_ARG(c->outputs[i].name), STR_ARG(c->outputs[i].cut_input[k]));
    if (rc == 0)
        rc = check_batching(c, where, err);
    return rc == 0 ? check_warmup(c, where, err) : rc;
}
