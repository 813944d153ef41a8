/* model_fields.c: the table of Triton's ModelConfig (protobuf package `inference`, as of 2026): every field it has is a row here,
 * served or not. */
#include "conf/model_fields.h"

#include <stdio.h>

#include "base/size.h"

#define STRING(t, member, key)                                                                                                 \
    {                                                                                                                          \
        .name = key, .kind = FIELD_STRING, .offset = offsetof(t, member)                                                       \
    }
#define BOOL(t, member, key)                                                                                                   \
    {                                                                                                                          \
        .name = key, .kind = FIELD_BOOL, .offset = offsetof(t, member)                                                         \
    }
#define I64(t, member, key, lo, hi)                                                                                            \
    {                                                                                                                          \
        .name = key, .kind = FIELD_I64, .offset = offsetof(t, member), .min = lo, .max = hi                                    \
    }
#define U32(t, member, key, lo, hi)                                                                                            \
    {                                                                                                                          \
        .name = key, .kind = FIELD_U32, .offset = offsetof(t, member), .min = lo, .max = hi                                    \
    }
#define U64(t, member, key)                                                                                                    \
    {                                                                                                                          \
        .name = key, .kind = FIELD_U64, .offset = offsetof(t, member), .max = UINT64_MAX                                       \
    }
#define MESSAGE(off, key, m)                                                                                                   \
    {                                                                                                                          \
        .name = key, .kind = FIELD_MESSAGE, .offset = off, .message = m                                                        \
    }
#define CUSTOM(key, fn)                                                                                                        \
    {                                                                                                                          \
        .name = key, .kind = FIELD_CUSTOM, .read = fn                                                                          \
    }
#define NOT_SERVED(key)                                                                                                        \
    {                                                                                                                          \
        .name = key, .kind = FIELD_NOT_SERVED                                                                                  \
    }
#define NOT_SERVED_UNLESS(key, word)                                                                                           \
    {                                                                                                                          \
        .name = key, .kind = FIELD_NOT_SERVED, .usual = word                                                                   \
    }
#define IGNORED(key)                                                                                                           \
    {                                                                                                                          \
        .name = key, .kind = FIELD_IGNORED                                                                                     \
    }
#define OUR_CUSTOM(key, fn)                                                                                                    \
    {                                                                                                                          \
        .name = key, .kind = FIELD_CUSTOM, .ours = true, .read = fn                                                            \
    }
#define OUR_U32(t, member, key, lo, hi)                                                                                        \
    {                                                                                                                          \
        .name = key, .kind = FIELD_U32, .ours = true, .offset = offsetof(t, member), .min = lo, .max = hi                      \
    }
#define OUR_U64(t, member, key)                                                                                                \
    {                                                                                                                          \
        .name = key, .kind = FIELD_U64, .ours = true, .offset = offsetof(t, member), .max = UINT64_MAX                         \
    }
#define TABLE(rows)                                                                                                            \
    {                                                                                                                          \
        .fields = rows, .n = COUNT_OF(rows)                                                                                    \
    }

#define DIM_MAX  (1ll << 40)
#define ROWS_MAX 1000000u

const char *const model_data_types[] = {
    "TYPE_INVALID", "TYPE_BOOL",  "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64", "TYPE_INT8", "TYPE_INT16",
    "TYPE_INT32",   "TYPE_INT64", "TYPE_FP16",  "TYPE_FP32",   "TYPE_FP64",   "TYPE_STRING", "TYPE_BF16", NULL};

static struct str model_data_type(struct str name)
{
    if (str_eq(name, STR("BYTES")) || str_eq(name, STR("TYPE_BYTES")))
        name = STR("TYPE_STRING");
    for (size_t i = 1; model_data_types[i]; i++)
        if (str_eqz(name, model_data_types[i]) || str_eqz(name, model_data_types[i] + 5))
            return str_of(model_data_types[i]);
    return (struct str){0};
}

/* TYPE_INVALID is protobuf's default: the same as leaving the field out. */
static int read_data_type(struct reader *r, const struct node *n, struct str *out)
{
    int index;
    struct str known = n->kind == NODE_SCALAR ? model_data_type(n->text) : (struct str){0};
    int rc = 0;
    if (!known.n)
        rc = model_read_enum(r, n, model_data_types, &index);
    if (rc == 0)
        *out = known.n ? known : index == 0 ? (struct str){0} : str_of(model_data_types[index]);
    return rc;
}

/* ---- inputs and outputs ---- */

static int read_io_type(struct reader *r, const struct node *n, void *base)
{
    return read_data_type(r, n, &((struct config_io *)base)->data_type);
}

static int read_dims(struct reader *r, const struct node *n, int64_t *dims, int *n_dims)
{
    size_t count = 0;
    int rc = model_read_ints(r, n, -1, DIM_MAX, dims, MODEL_CONFIG_RANK_MAX, &count);
    *n_dims = (int)count;
    return rc;
}

static int read_io_dims(struct reader *r, const struct node *n, void *base)
{
    struct config_io *io = base;
    int rc = read_dims(r, n, io->dims, &io->n_dims);
    io->n_dims = io->n_dims ? io->n_dims : -1; /* protobuf can't tell an empty list from none */
    return rc;
}

static int read_axis(struct reader *r, const struct node *n, void *base)
{
    struct config_padding *p = base;
    int64_t v;
    int rc = model_read_i64(r, n, -1, MODEL_CONFIG_RANK_MAX, &v);
    if (rc == 0 && v == 0)
        return model_error(r, n, "axis 0 is the batch; axes behind it are 1 and more, -1 is all that are dynamic");
    if (rc == 0)
        p->axis = (int)v;
    return rc;
}

static int read_buckets(struct reader *r, const struct node *n, void *base)
{
    struct config_padding *p = base;
    size_t count = 0;
    int rc = model_read_ints(r, n, 1, DIM_MAX, p->buckets, MODEL_CONFIG_LIST_MAX, &count);
    p->n_buckets = (int)count;
    return rc;
}

static int read_fill(struct reader *r, const struct node *n, void *base)
{
    return model_read_f64(r, n, &((struct config_padding *)base)->value);
}

static const struct field padding_fields[] = {
    CUSTOM("axis", read_axis),
    CUSTOM("buckets", read_buckets),
    CUSTOM("value", read_fill),
    STRING(struct config_padding, mask_input, "mask_input"),
};
static const struct message padding_message = TABLE(padding_fields);

static int read_padding_item(struct reader *r, const struct node *n, size_t i, void *ctx)
{
    struct config_io *io = ctx;
    if (i == COUNT_OF(io->padding))
        return model_error(r, n, "more than %zu padded axes", COUNT_OF(io->padding));
    io->padding[i].axis = -1;
    io->n_padding = (int)i + 1;
    return model_read_message(r, &padding_message, n, &io->padding[i]);
}

static int read_padding(struct reader *r, const struct node *n, void *base)
{
    return model_each(r, n, read_padding_item, base);
}

struct cut {
    struct str input;
    int axis; /* -1: unset */
};

static int read_cut_axis(struct reader *r, const struct node *n, void *base)
{
    struct cut *c = base;
    int64_t v;
    int rc = model_read_i64(r, n, 1, MODEL_CONFIG_RANK_MAX, &v);
    if (rc == 0)
        c->axis = (int)v;
    return rc;
}

static const struct field cut_fields[] = {CUSTOM("axis", read_cut_axis), STRING(struct cut, input, "input")};
static const struct message cut_message = TABLE(cut_fields);

static int read_cut_item(struct reader *r, const struct node *n, size_t i, void *ctx)
{
    struct config_io *io = ctx;
    struct cut cut = {.axis = -1};
    if (i == COUNT_OF(io->cut_axis))
        return model_error(r, n, "more than %zu axes are cut", COUNT_OF(io->cut_axis));
    int rc = model_read_message(r, &cut_message, n, &cut);
    if (rc == 0 && (cut.axis < 0 || !cut.input.n))
        return model_error(r, n, "both 'axis' and 'input' are needed");
    if (rc < 0)
        return rc;
    io->cut_axis[i] = cut.axis;
    io->cut_input[i] = cut.input;
    if (i + 1 < COUNT_OF(io->cut_axis))
        io->cut_axis[i + 1] = -1;
    return 0;
}

static int read_cut(struct reader *r, const struct node *n, void *base)
{
    return model_each(r, n, read_cut_item, base);
}

/* A hint for frameworks that inferd doesn't have; but a misspelt one is a mistake all the same. */
static int read_format(struct reader *r, const struct node *n, void *base)
{
    static const char *const words[] = {"FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW", NULL};
    int v;
    (void)base;
    return model_read_enum(r, n, words, &v);
}

static const struct field input_fields[] = {
    STRING(struct config_io, name, "name"),
    CUSTOM("data_type", read_io_type),
    CUSTOM("format", read_format),
    CUSTOM("dims", read_io_dims),
    NOT_SERVED("reshape"),
    NOT_SERVED("is_shape_tensor"),
    NOT_SERVED("allow_ragged_batch"),
    BOOL(struct config_io, optional, "optional"),
    NOT_SERVED("is_non_linear_format_io"),
    OUR_CUSTOM("padding", read_padding),
};
static const struct message input_message = TABLE(input_fields);

static const struct field output_fields[] = {
    STRING(struct config_io, name, "name"),
    CUSTOM("data_type", read_io_type),
    CUSTOM("dims", read_io_dims),
    NOT_SERVED("reshape"),
    STRING(struct config_io, label_filename, "label_filename"),
    NOT_SERVED("is_shape_tensor"),
    NOT_SERVED("is_non_linear_format_io"),
    OUR_CUSTOM("cut", read_cut),
};
static const struct message output_message = TABLE(output_fields);

struct io_list {
    struct config_io *v;
    const struct message *message;
};

static int read_io(struct reader *r, const struct node *n, size_t i, void *ctx)
{
    struct io_list *l = ctx;
    l->v[i].n_dims = -1;
    l->v[i].cut_axis[0] = -1;
    return model_read_message(r, l->message, n, &l->v[i]);
}

static int read_ios(struct reader *r, const struct node *n, const struct message *m, struct config_io **v, size_t *count)
{
    struct io_list l = {NULL, m};
    *count = model_count(r, n);
    l.v = *v = arena_array(r->arena, *count, sizeof **v);
    return l.v ? model_each(r, n, read_io, &l) : model_no_memory(r);
}

static int read_inputs(struct reader *r, const struct node *n, void *base)
{
    struct model_config *c = base;
    return read_ios(r, n, &input_message, &c->inputs, &c->n_inputs);
}

static int read_outputs(struct reader *r, const struct node *n, void *base)
{
    struct model_config *c = base;
    return read_ios(r, n, &output_message, &c->outputs, &c->n_outputs);
}

/* ---- batching ---- */

static int read_timeout_action(struct reader *r, const struct node *n, void *base)
{
    static const char *const words[] = {"REJECT", "DELAY", NULL};
    int v;
    int rc = model_read_enum(r, n, words, &v);
    if (rc == 0)
        ((struct config_queue_policy *)base)->delay = v == 1;
    return rc;
}

static const struct field queue_policy_fields[] = {
    CUSTOM("timeout_action", read_timeout_action),
    U64(struct config_queue_policy, default_timeout_us, "default_timeout_microseconds"),
    BOOL(struct config_queue_policy, allow_timeout_override, "allow_timeout_override"),
    U32(struct config_queue_policy, max_queue_size, "max_queue_size", 0, UINT32_MAX),
};
static const struct message queue_policy_message = TABLE(queue_policy_fields);

static int read_level_policy(struct reader *r, struct str key, const struct node *value, void *ctx)
{
    struct model_config *c = ctx;
    uint64_t level;
    if (!str_to_u64(key, &level) || level < 1 || level >= COUNT_OF(c->priority_queue_policy))
        return model_error(r, value, "'%.*s' is not a priority level; levels are 1..%zu", STR_ARG(key),
                           COUNT_OF(c->priority_queue_policy) - 1);
    c->has_priority_queue_policy[level] = true;
    return model_read_message(r, &queue_policy_message, value, &c->priority_queue_policy[level]);
}

static int read_level_policies(struct reader *r, const struct node *n, void *base)
{
    return model_each_entry(r, n, read_level_policy, base);
}

static int read_preferred(struct reader *r, const struct node *n, void *base)
{
    struct model_config *c = base;
    int64_t v[MODEL_CONFIG_LIST_MAX];
    size_t count = 0;
    int rc = model_read_ints(r, n, 1, ROWS_MAX, v, MODEL_CONFIG_LIST_MAX, &count);
    for (size_t i = 0; i < count; i++)
        c->preferred_batch_size[i] = (uint32_t)v[i];
    c->n_preferred = (uint32_t)count;
    return rc;
}

static const struct field dynamic_batching_fields[] = {
    CUSTOM("preferred_batch_size", read_preferred),
    U64(struct model_config, max_queue_delay_us, "max_queue_delay_microseconds"),
    BOOL(struct model_config, preserve_ordering, "preserve_ordering"),
    U32(struct model_config, priority_levels, "priority_levels", 0, 16),
    U32(struct model_config, default_priority_level, "default_priority_level", 0, 16),
    MESSAGE(offsetof(struct model_config, default_queue_policy), "default_queue_policy", &queue_policy_message),
    CUSTOM("priority_queue_policy", read_level_policies),
};
static const struct message dynamic_batching_message = TABLE(dynamic_batching_fields);

static int read_dynamic_batching(struct reader *r, const struct node *n, void *base)
{
    r->dynamic_batching = true;
    return model_read_message(r, &dynamic_batching_message, n, base);
}

static int read_batching(struct reader *r, const struct node *n, void *base)
{
    static const char *const words[] = {"none", "fixed", "deadline", NULL};
    int v;
    int rc = model_read_enum(r, n, words, &v);
    if (rc == 0)
        ((struct model_config *)base)->batching = CONFIG_BATCHING_NONE + v;
    return rc;
}

/* ---- instances ---- */

#define INSTANCES_MAX 1024

struct group {
    uint32_t count, min, max;
};

static int read_kind(struct reader *r, const struct node *n, void *base)
{
    static const char *const words[] = {"KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL", NULL};
    int v;
    (void)base;
    int rc = model_read_enum(r, n, words, &v);
    if (rc == 0 && v == 1)
        return model_warn(r, n, "KIND_GPU is ignored; onnxruntime.providers says which devices run models");
    return rc;
}

static const struct field group_fields[] = {
    IGNORED("name"),
    CUSTOM("kind", read_kind),
    U32(struct group, count, "count", 0, INSTANCES_MAX),
    NOT_SERVED("rate_limiter"),
    NOT_SERVED("gpus"),
    NOT_SERVED("secondary_devices"),
    NOT_SERVED("profile"),
    NOT_SERVED("passive"),
    NOT_SERVED("host_policy"),
    OUR_U32(struct group, min, "min", 1, INSTANCES_MAX),
    OUR_U32(struct group, max, "max", 1, INSTANCES_MAX),
};
static const struct message group_message = TABLE(group_fields);

static int read_group(struct reader *r, const struct node *n, size_t i, void *ctx)
{
    struct model_config *c = ctx;
    struct group g = {0};
    (void)i;
    int rc = model_read_message(r, &group_message, n, &g);
    if (rc < 0)
        return rc;
    uint32_t min = g.min ? g.min : g.count ? g.count : 1;
    uint32_t max = g.max ? g.max : g.count > min ? g.count : min;
    if (max < min)
        return model_error(r, n, "at most %u instances, but at least %u", max, min);
    c->instances_min += min;
    c->instances_max += max;
    return c->instances_max > INSTANCES_MAX ? model_error(r, n, "more than %d instances in all", INSTANCES_MAX) : 0;
}

static int read_groups(struct reader *r, const struct node *n, void *base)
{
    struct model_config *c = base;
    c->instances_min = c->instances_max = 0;
    return model_each(r, n, read_group, base);
}

/* ---- versions ---- */

static bool is_version(struct str v)
{
    for (size_t i = 0; i < v.n; i++)
        if (!strchr("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.+-", v.p[i]) || !v.p[i])
            return false;
    return v.n > 0 && v.n <= 64 && v.p[0] >= '0' && v.p[0] <= '9';
}

static int read_specific_item(struct reader *r, const struct node *n, size_t i, void *ctx)
{
    struct model_config *c = ctx;
    if (n->kind != NODE_SCALAR || !is_version(n->text))
        return model_error(r, n, "'%.*s' is not a version; give integers or semver (1.2.0)", STR_ARG(n->text));
    c->specific_versions[i] = n->text;
    return 0;
}

static int read_specific_versions(struct reader *r, const struct node *n, void *base)
{
    struct model_config *c = base;
    c->n_specific_versions = model_count(r, n);
    c->specific_versions = arena_array(r->arena, c->n_specific_versions, sizeof *c->specific_versions);
    return c->specific_versions ? model_each(r, n, read_specific_item, base) : model_no_memory(r);
}

static const struct field latest_fields[] = {U32(struct model_config, latest_versions, "num_versions", 1, 1000000)};
static const struct message latest_message = TABLE(latest_fields);
static const struct field specific_fields[] = {CUSTOM("versions", read_specific_versions)};
static const struct message specific_message = TABLE(specific_fields);
static const struct message all_message = {NULL, 0};

/* Presence counts (`all { }`), so this walks the choices itself. */
static int read_version_policy(struct reader *r, const struct node *n, void *base)
{
    static const struct {
        const char *name;
        const struct message *message;
    } choices[] = {{"latest", &latest_message}, {"all", &all_message}, {"specific", &specific_message}};
    struct model_config *c = base;
    if (n->kind != NODE_MAP)
        return model_error(r, n, "give one of latest { num_versions }, all { } or specific { versions }");
    if (n->n > 1)
        return model_error(r, n->first->next, "only one of latest, all and specific can be given");
    for (size_t i = 0; n->first && i < COUNT_OF(choices); i++) {
        if (!str_eqz(n->first->key, choices[i].name))
            continue;
        c->version_policy = VERSION_POLICY_LATEST + (int)i;
        size_t mark = model_path_push(r, ".%s", choices[i].name);
        int rc = model_read_message(r, choices[i].message, n->first, base);
        if (rc == 0 && c->version_policy == VERSION_POLICY_SPECIFIC && !c->n_specific_versions)
            rc = model_error(r, n->first, "at least one version is needed");
        model_path_pop(r, mark);
        return rc;
    }
    return n->first ? model_error(r, n->first, "unknown field '%.*s'; give latest, all or specific", STR_ARG(n->first->key))
                    : 0;
}

static int add_pair(struct reader *r, struct config_pair **v, size_t *n, size_t cap, struct str key, struct str value)
{
    if (!*v && !(*v = arena_array(r->arena, cap, sizeof **v)))
        return model_no_memory(r);
    (*v)[(*n)++] = (struct config_pair){key, value};
    return 0;
}

#define LABELS_MAX 64

static int add_label(struct reader *r, const struct node *n, struct str label, struct str version)
{
    struct model_config *c = r->config;
    if (!str_is_model_name(label) || is_version(label))
        return model_error(
            r, n, "'%.*s' is not a label; give a word of letters, digits, '.', '_' and '-' that does not begin with a digit",
            STR_ARG(label));
    if (!is_version(version))
        return model_error(r, n, "'%.*s' is not a version; give an integer or semver (1.2.0)", STR_ARG(version));
    if (c->n_labels == LABELS_MAX)
        return model_error(r, n, "more than %d labels", LABELS_MAX);
    return add_pair(r, &c->labels, &c->n_labels, LABELS_MAX, label, version);
}

static int read_label(struct reader *r, struct str key, const struct node *value, void *ctx)
{
    struct str version;
    (void)ctx;
    int rc = model_read_string(r, value, &version);
    return rc == 0 ? add_label(r, value, key, version) : rc;
}

static int read_labels(struct reader *r, const struct node *n, void *base)
{
    return model_each_entry(r, n, read_label, base);
}

/* ---- warm-up ---- */

static int read_warmup_type(struct reader *r, const struct node *n, void *base)
{
    return read_data_type(r, n, &((struct config_warmup_input *)base)->data_type);
}

static int read_warmup_dims(struct reader *r, const struct node *n, void *base)
{
    struct config_warmup_input *in = base;
    return read_dims(r, n, in->dims, &in->n_dims);
}

static int read_warmup_flag(struct reader *r, const struct node *n, void *base, int kind)
{
    bool on;
    int rc = model_read_bool(r, n, &on);
    if (rc == 0 && on)
        ((struct config_warmup_input *)base)->kind = kind;
    return rc;
}

static int read_warmup_zero(struct reader *r, const struct node *n, void *base)
{
    return read_warmup_flag(r, n, base, WARMUP_ZERO);
}

static int read_warmup_random(struct reader *r, const struct node *n, void *base)
{
    return read_warmup_flag(r, n, base, WARMUP_RANDOM);
}

static int read_warmup_file(struct reader *r, const struct node *n, void *base)
{
    struct config_warmup_input *in = base;
    in->kind = WARMUP_FILE;
    return model_read_string(r, n, &in->file);
}

static const struct field warmup_input_fields[] = {
    CUSTOM("data_type", read_warmup_type),       CUSTOM("dims", read_warmup_dims),
    CUSTOM("zero_data", read_warmup_zero),       CUSTOM("random_data", read_warmup_random),
    CUSTOM("input_data_file", read_warmup_file),
};
static const struct message warmup_input_message = TABLE(warmup_input_fields);

static int read_warmup_input(struct reader *r, struct str key, const struct node *value, void *ctx)
{
    struct config_warmup *w = ctx;
    struct config_warmup_input *in = &w->inputs[w->n_inputs++];
    in->name = key;
    return model_read_message(r, &warmup_input_message, value, in);
}

static int read_warmup_inputs(struct reader *r, const struct node *n, void *base)
{
    struct config_warmup *w = base;
    w->inputs = arena_array(r->arena, model_count_entries(r, n), sizeof *w->inputs);
    return w->inputs ? model_each_entry(r, n, read_warmup_input, w) : model_no_memory(r);
}

static const struct field warmup_fields[] = {
    STRING(struct config_warmup, name, "name"),
    U32(struct config_warmup, batch_size, "batch_size", 0, ROWS_MAX),
    CUSTOM("inputs", read_warmup_inputs),
    U32(struct config_warmup, count, "count", 0, 10000),
};
static const struct message warmup_message = TABLE(warmup_fields);

static int read_warmup(struct reader *r, const struct node *n, size_t i, void *ctx)
{
    struct config_warmup *w = &((struct model_config *)ctx)->warmup[i];
    int rc = model_read_message(r, &warmup_message, n, w);
    w->count = w->count ? w->count : 1;
    return rc;
}

static int read_warmups(struct reader *r, const struct node *n, void *base)
{
    struct model_config *c = base;
    c->n_warmup = model_count(r, n);
    c->warmup = arena_array(r->arena, c->n_warmup, sizeof *c->warmup);
    return c->warmup ? model_each(r, n, read_warmup, base) : model_no_memory(r);
}

/* ---- the rest ---- */

#define CACHE_DEFAULT_BYTES (64ull << 20)

struct cache {
    bool enable;
    uint64_t size;
};

static int read_cache_size(struct reader *r, const struct node *n, void *base)
{
    struct cache *c = base;
    struct str text;
    int rc = model_read_string(r, n, &text);
    if (rc == 0 && (!str_to_bytes(text, &c->size) || c->size < 4096))
        return model_error(r, n, "'%.*s' is not accepted; give a size of at least 4KiB", STR_ARG(text));
    return rc;
}

static const struct field cache_fields[] = {BOOL(struct cache, enable, "enable"), OUR_CUSTOM("size", read_cache_size)};
static const struct message cache_message = TABLE(cache_fields);

static int read_cache(struct reader *r, const struct node *n, void *base)
{
    struct model_config *c = base;
    struct cache cache = {false, CACHE_DEFAULT_BYTES};
    int rc = model_read_message(r, &cache_message, n, &cache);
    if (rc == 0)
        c->response_cache_bytes = cache.enable ? cache.size : 0;
    return rc;
}

static int read_decoupled(struct reader *r, const struct node *n, void *base)
{
    bool on;
    (void)base;
    int rc = model_read_bool(r, n, &on);
    if (rc == 0 && on)
        return model_warn(r, n, "whether a model answers several times is seen from the model; it is ignored");
    return rc;
}

static const struct field transaction_fields[] = {CUSTOM("decoupled", read_decoupled)};
static const struct message transaction_message = TABLE(transaction_fields);

static const struct field optimization_fields[] = {
    NOT_SERVED("graph"),
    NOT_SERVED_UNLESS("priority", "PRIORITY_DEFAULT"),
    NOT_SERVED("cuda"),
    NOT_SERVED("execution_accelerators"),
    IGNORED("input_pinned_memory"),
    IGNORED("output_pinned_memory"),
    NOT_SERVED("gather_kernel_buffer_threshold"),
    NOT_SERVED("eager_batching"),
};
static const struct message optimization_message = TABLE(optimization_fields);

#define PARAMETERS_MAX 256

static int take_parameter(struct reader *r, struct str key, const struct node *value, void *ctx)
{
    struct model_config *c = ctx;
    struct str text = {0};
    if (value->kind == NODE_MAP) {
        if (value->n > 1 || (value->first && !str_eqz(value->first->key, "string_value")))
            return model_error(r, value, "a parameter is { string_value: \"...\" }");
        int rc = value->first ? model_read_string(r, value->first, &text) : 0;
        if (rc < 0)
            return rc;
    } else if (r->format == MODEL_PBTXT && value->text.n) {
        return model_error(r, value, "a parameter is { string_value: \"...\" }");
    } else {
        int rc = model_read_string(r, value, &text);
        if (rc < 0)
            return rc;
    }
    int rc = model_read_parameter(r, value, key, text);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (c->n_parameters == PARAMETERS_MAX)
        return model_error(r, value, "more than %d parameters", PARAMETERS_MAX);
    return add_pair(r, &c->parameters, &c->n_parameters, PARAMETERS_MAX, key, text);
}

static int read_parameters(struct reader *r, const struct node *n, void *base)
{
    return model_each_entry(r, n, take_parameter, base);
}

static const struct field model_config_fields[] = {
    STRING(struct model_config, name, "name"),
    STRING(struct model_config, platform, "platform"),
    STRING(struct model_config, backend, "backend"),
    IGNORED("runtime"),
    CUSTOM("version_policy", read_version_policy),
    I64(struct model_config, max_batch_size, "max_batch_size", 0, ROWS_MAX),
    CUSTOM("input", read_inputs),
    CUSTOM("output", read_outputs),
    NOT_SERVED("batch_input"),
    NOT_SERVED("batch_output"),
    MESSAGE(0, "optimization", &optimization_message),
    CUSTOM("dynamic_batching", read_dynamic_batching),
    NOT_SERVED("sequence_batching"),
    NOT_SERVED("ensemble_scheduling"),
    CUSTOM("instance_group", read_groups),
    STRING(struct model_config, default_model_filename, "default_model_filename"),
    NOT_SERVED("cc_model_filenames"),
    IGNORED("metric_tags"),
    CUSTOM("parameters", read_parameters),
    CUSTOM("model_warmup", read_warmups),
    NOT_SERVED("model_operations"),
    MESSAGE(0, "model_transaction_policy", &transaction_message),
    NOT_SERVED("model_repository_agents"),
    CUSTOM("response_cache", read_cache),
    NOT_SERVED("model_metrics"),
    OUR_CUSTOM("batching", read_batching),
    OUR_CUSTOM("labels", read_labels),
    OUR_U64(struct model_config, default_deadline_ms, "default_deadline_ms"),
    OUR_U32(struct model_config, max_queue_rows, "max_queue_rows", 1, UINT32_MAX),
    OUR_U64(struct model_config, max_queue_bytes, "max_queue_bytes"),
};
const struct message model_message = TABLE(model_config_fields);

/* ---- inferd's own settings as parameters ---- */

static struct config_io *find_io(struct config_io *v, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(v[i].name, name))
            return &v[i];
    return NULL;
}

/* "padding.<input>.<field>" and "cut.<output>.<field>": the tensor's name may hold dots. */
static int read_tensor_parameter(struct reader *r, const struct node *n, struct str rest, struct str value, bool padding)
{
    struct model_config *c = r->config;
    struct node text = {.kind = NODE_SCALAR, .line = n->line, .text = value}, items[MODEL_CONFIG_LIST_MAX + 1];
    size_t dot = rest.n;
    while (dot > 0 && rest.p[dot - 1] != '.')
        dot--;
    struct str name = {rest.p, dot ? dot - 1 : 0}, field = {rest.p + dot, rest.n - dot}, part;
    struct config_io *io = padding ? find_io(c->inputs, c->n_inputs, name) : find_io(c->outputs, c->n_outputs, name);
    if (!io)
        return model_error(r, n, "there is no %s '%.*s'", padding ? "input" : "output", STR_ARG(name));
    struct node map = {.kind = NODE_MAP, .line = n->line}, list = {.kind = NODE_LIST, .line = n->line};
    text.quoted = str_eq(field, STR("mask_input")) || str_eq(field, STR("input"));
    for (size_t i = 0; str_eq(field, STR("buckets")) && str_cut(&value, ',', &part); i++) {
        if (i == COUNT_OF(items))
            return model_error(r, n, "more than %d values", MODEL_CONFIG_LIST_MAX);
        items[i] = (struct node){.kind = NODE_SCALAR, .line = n->line, .text = str_trim(part)};
        node_append(&list, &items[i]);
    }
    struct node *one = list.n ? &list : &text;
    one->key = field;
    node_append(&map, one);
    if (padding) {
        if (!io->n_padding)
            io->padding[0].axis = -1;
        io->n_padding = 1;
        return model_read_message(r, &padding_message, &map, &io->padding[0]) < 0 ? r->err->code : 1;
    }
    struct cut cut = {.input = io->cut_input[0], .axis = io->cut_axis[0]};
    if (model_read_message(r, &cut_message, &map, &cut) < 0)
        return r->err->code;
    io->cut_axis[0] = cut.axis;
    io->cut_axis[1] = -1;
    io->cut_input[0] = cut.input;
    return 1;
}

/* Keys that are also fields of model.yaml, with the same reader behind them. */
static int read_plain_parameter(struct reader *r, const struct node *n, struct str key, struct str value)
{
    static const char *const names[] = {"batching", "default_deadline_ms", "max_queue_rows", "max_queue_bytes"};
    struct node text = {.kind = NODE_SCALAR, .line = n->line, .text = value, .key = key};
    struct node map = {.kind = NODE_MAP, .line = n->line};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (!str_eqz(key, names[i]))
            continue;
        enum model_format format = r->format;
        node_append(&map, &text);
        r->format = MODEL_YAML; /* where these keys are fields */
        int rc = model_read_message(r, &model_message, &map, r->config);
        r->format = format;
        return rc < 0 ? rc : 1;
    }
    return 0;
}

static int read_instance_parameter(struct reader *r, const struct node *n, struct str value, uint32_t *out)
{
    struct node text = {.kind = NODE_SCALAR, .line = n->line, .text = value};
    uint64_t v;
    int rc = model_read_u64(r, &text, 1, INSTANCES_MAX, &v);
    if (rc == 0)
        *out = (uint32_t)v;
    return rc < 0 ? rc : 1;
}

int model_read_parameter(struct reader *r, const struct node *n, struct str key, struct str value)
{
    struct model_config *c = r->config;
    struct node text = {.kind = NODE_SCALAR, .line = n->line, .text = value};
    struct cache cache;
    bool padding = str_starts(key, STR("padding.")), cut = str_starts(key, STR("cut."));
    int rc = read_plain_parameter(r, n, key, value);
    if (rc != 0)
        return rc;
    if (padding || cut) {
        size_t skip = padding ? 8 : 4;
        enum model_format format = r->format;
        r->format = MODEL_YAML;
        rc = read_tensor_parameter(r, n, (struct str){key.p + skip, key.n - skip}, value, padding);
        r->format = format;
        return rc;
    }
    if (str_starts(key, STR("label."))) {
        rc = add_label(r, n, (struct str){key.p + 6, key.n - 6}, value);
        return rc < 0 ? rc : 1;
    }
    if (str_eqz(key, "instances_min"))
        return read_instance_parameter(r, n, value, &c->instances_min);
    if (str_eqz(key, "instances_max"))
        return read_instance_parameter(r, n, value, &c->instances_max);
    if (!str_eqz(key, "response_cache_size"))
        return 0;
    text.quoted = true;
    rc = read_cache_size(r, &text, &cache);
    if (rc == 0)
        c->response_cache_bytes = cache.size;
    return rc < 0 ? rc : 1;
}
