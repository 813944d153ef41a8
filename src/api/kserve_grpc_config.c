/* kserve_grpc_config.c: a model's configuration as Triton's ModelConfig message.
 *
 * conf renders the configuration as JSON, in the form that Triton's HTTP answer has: protobuf's own JSON, with the schema's field names.
 * So the message is that JSON walked along a table of names, numbers and kinds (proto/model_config.proto); a second rendering would be
 * a second truth. A name that the table doesn't have is our bug, found by the test that compares the two answers. */
#include <stdlib.h>

#include "api/kserve_grpc_priv.h"
#include "base/check.h"
#include "base/status.h"
#include "conf/model_config.h"
#include "model/registry.h"
#include "wire/json.h"

enum kind { KIND_STRING, KIND_INT, KIND_BOOL, KIND_ENUM, KIND_MESSAGE };
enum member_shape { ONE, LIST, MAP, MAP_BY_NUMBER };

struct member {
    const char *name;
    uint32_t number;
    enum kind kind;
    enum member_shape shape;
    const struct member *members; /* of KIND_MESSAGE, ended by a NULL name */
    const char *const *words;     /* of KIND_ENUM, by number, ended by NULL */
};

static const char *const data_types[] = {
    "TYPE_INVALID", "TYPE_BOOL",  "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64", "TYPE_INT8", "TYPE_INT16",
    "TYPE_INT32",   "TYPE_INT64", "TYPE_FP16",  "TYPE_FP32",   "TYPE_FP64",   "TYPE_STRING", "TYPE_BF16", NULL};
static const char *const formats[] = {"FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW", NULL};
static const char *const instance_kinds[] = {"KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL", NULL};
static const char *const priorities[] = {"PRIORITY_DEFAULT", "PRIORITY_MAX", "PRIORITY_MIN", NULL};
static const char *const timeout_actions[] = {"REJECT", "DELAY", NULL};

/* clang-format off */
#define STRING(n, i) {n, i, KIND_STRING, ONE, NULL, NULL}
#define STRINGS(n, i) {n, i, KIND_STRING, LIST, NULL, NULL}
#define STRING_MAP(n, i) {n, i, KIND_STRING, MAP, NULL, NULL}
#define INT(n, i) {n, i, KIND_INT, ONE, NULL, NULL}
#define INTS(n, i) {n, i, KIND_INT, LIST, NULL, NULL}
#define BOOL(n, i) {n, i, KIND_BOOL, ONE, NULL, NULL}
#define ENUM(n, i, w) {n, i, KIND_ENUM, ONE, NULL, w}
#define MESSAGE(n, i, m) {n, i, KIND_MESSAGE, ONE, m, NULL}
#define MESSAGES(n, i, m) {n, i, KIND_MESSAGE, LIST, m, NULL}
#define MESSAGE_MAP(n, i, m) {n, i, KIND_MESSAGE, MAP, m, NULL}
#define END {NULL, 0, KIND_STRING, ONE, NULL, NULL}

static const struct member empty[] = {END};
static const struct member enable[] = {BOOL("enable", 1), END};
static const struct member latest[] = {INT("num_versions", 1), END};
static const struct member specific[] = {INTS("versions", 1), END};
static const struct member version_policy[] = {MESSAGE("latest", 1, latest), MESSAGE("all", 2, empty), MESSAGE("specific", 3, specific), END};
static const struct member input[] = {
    STRING("name", 1), ENUM("data_type", 2, data_types), ENUM("format", 3, formats), INTS("dims", 4), BOOL("is_shape_tensor", 6),
    BOOL("allow_ragged_batch", 7), BOOL("optional", 8), BOOL("is_non_linear_format_io", 9), END};
static const struct member output[] = {
    STRING("name", 1), ENUM("data_type", 2, data_types), INTS("dims", 3), STRING("label_filename", 4), BOOL("is_shape_tensor", 6),
    BOOL("is_non_linear_format_io", 7), END};
static const struct member optimization[] = {
    ENUM("priority", 2, priorities), MESSAGE("input_pinned_memory", 5, enable), MESSAGE("output_pinned_memory", 6, enable),
    INT("gather_kernel_buffer_threshold", 7), BOOL("eager_batching", 8), END};
static const struct member queue_policy[] = {
    ENUM("timeout_action", 1, timeout_actions), INT("default_timeout_microseconds", 2), BOOL("allow_timeout_override", 3),
    INT("max_queue_size", 4), END};
static const struct member dynamic_batching[] = {
    INTS("preferred_batch_size", 1), INT("max_queue_delay_microseconds", 2), BOOL("preserve_ordering", 3), INT("priority_levels", 4),
    INT("default_priority_level", 5), MESSAGE("default_queue_policy", 6, queue_policy),
    {"priority_queue_policy", 7, KIND_MESSAGE, MAP_BY_NUMBER, queue_policy, NULL}, END};
static const struct member instance_group[] = {
    STRING("name", 1), INT("count", 2), INTS("gpus", 3), ENUM("kind", 4, instance_kinds), STRINGS("profile", 5), BOOL("passive", 7),
    MESSAGES("secondary_devices", 8, empty), STRING("host_policy", 9), END};
static const struct member parameter[] = {STRING("string_value", 1), END};
static const struct member warmup_input[] = {
    ENUM("data_type", 1, data_types), INTS("dims", 2), BOOL("zero_data", 3), BOOL("random_data", 4), STRING("input_data_file", 5), END};
static const struct member warmup[] = {
    STRING("name", 1), INT("batch_size", 2), MESSAGE_MAP("inputs", 3, warmup_input), INT("count", 4), END};
static const struct member transaction_policy[] = {BOOL("decoupled", 1), END};
static const struct member config[] = {
    STRING("name", 1), STRING("platform", 2), MESSAGE("version_policy", 3, version_policy), INT("max_batch_size", 4),
    MESSAGES("input", 5, input), MESSAGES("output", 6, output), MESSAGES("instance_group", 7, instance_group),
    STRING("default_model_filename", 8), STRING_MAP("cc_model_filenames", 9), STRING_MAP("metric_tags", 10),
    MESSAGE("dynamic_batching", 11, dynamic_batching), MESSAGE("optimization", 12, optimization), MESSAGE_MAP("parameters", 14, parameter),
    MESSAGES("model_warmup", 16, warmup), STRING("backend", 17), MESSAGE("model_transaction_policy", 19, transaction_policy),
    MESSAGES("batch_input", 20, empty), MESSAGES("batch_output", 21, empty), MESSAGE("response_cache", 24, enable), STRING("runtime", 25),
    END};
/* clang-format on */

static const struct member *find(const struct member *members, struct str name)
{
    while (members->name && !str_eqz(name, members->name))
        members++;
    return members->name ? members : NULL;
}

static uint64_t enum_number(const struct member *m, struct str word)
{
    for (uint64_t i = 0; m->words[i]; i++)
        if (str_eqz(word, m->words[i]))
            return i;
    return 0;
}

/* One object that is being written: the way from the root to here, in place of recursion. */
struct open_object {
    const struct member *members;
    yyjson_obj_iter iter;
    const struct member *list; /* a list of messages or a map under way in it */
    yyjson_arr_iter items;
    yyjson_obj_iter entries;
    size_t opened, entry; /* marks in the buffer; entry: of the map entry around it, 0: none */
};
#define DEPTH_MAX 8 /* the table's own depth is 4 */

struct walk {
    struct buf *b;
    struct open_object stack[DEPTH_MAX];
    size_t depth;
};

static void put_scalar(struct buf *b, const struct member *m, uint32_t number, yyjson_val *v)
{
    switch (m->kind) {
    case KIND_STRING:
        pb_put_str(b, number, json_str(v));
        break;
    case KIND_INT:
        pb_put_u64(b, number, yyjson_is_sint(v) ? (uint64_t)yyjson_get_sint(v) : yyjson_get_uint(v));
        break;
    case KIND_BOOL:
        pb_put_bool(b, number, yyjson_get_bool(v));
        break;
    case KIND_ENUM:
        pb_put_u64(b, number, enum_number(m, json_str(v)));
        break;
    case KIND_MESSAGE:
        break;
    }
}

static void push(struct walk *w, const struct member *m, uint32_t number, yyjson_val *object, size_t entry)
{
    ASSERT(w->depth < DEPTH_MAX);
    struct open_object *o = &w->stack[w->depth++];
    *o = (struct open_object){.members = m->members, .opened = pb_open_message(w->b, number), .entry = entry};
    yyjson_obj_iter_init(object, &o->iter);
}

static void put_scalar_list(struct buf *b, const struct member *m, yyjson_val *list)
{
    size_t i, n;
    yyjson_val *v;
    if (!yyjson_arr_size(list))
        return;
    size_t opened = m->kind == KIND_STRING ? 0 : pb_open_message(b, m->number);
    yyjson_arr_foreach(list, i, n, v)
    {
        if (m->kind == KIND_STRING)
            pb_append_bytes(b, m->number, json_str(v));
        else if (yyjson_is_int(v)) /* packed; a version that is no number (semver) has no place in this message */
            pb_append_varint(b, yyjson_is_sint(v) ? (uint64_t)yyjson_get_sint(v) : yyjson_get_uint(v));
    }
    if (opened)
        pb_close_message(b, opened);
}

static size_t open_entry(struct buf *b, const struct member *m, struct str key)
{
    size_t entry = pb_open_message(b, m->number);
    uint64_t number;
    if (m->shape == MAP)
        pb_append_bytes(b, 1, key);
    else if (str_to_u64(key, &number))
        pb_append_u64(b, 1, number);
    return entry;
}

static void put_string_map(struct buf *b, const struct member *m, yyjson_val *map)
{
    size_t i, n;
    yyjson_val *key, *v;
    yyjson_obj_foreach(map, i, n, key, v)
    {
        size_t entry = open_entry(b, m, json_str(key));
        pb_append_bytes(b, 2, json_str(v));
        pb_close_message(b, entry);
    }
}

/* The next message of the list or map under way in `o`; false when there is none. */
static bool next_in_list(struct walk *w, struct open_object *o)
{
    const struct member *m = o->list;
    yyjson_val *key, *v;
    if (m->shape == LIST) {
        if (!(v = yyjson_arr_iter_next(&o->items)))
            return false;
        push(w, m, m->number, v, 0);
        return true;
    }
    if (!(key = yyjson_obj_iter_next(&o->entries)))
        return false;
    push(w, m, 2, yyjson_obj_iter_get_val(key), open_entry(w->b, m, json_str(key)));
    return true;
}

static int put_member(struct walk *w, struct open_object *o, yyjson_val *key, struct error *err)
{
    yyjson_val *v = yyjson_obj_iter_get_val(key);
    const struct member *m = find(o->members, json_str(key));
    if (!m)
        return error_set(err, STATUS_INTERNAL, "the configuration's field \"%.*s\" has no place in its message",
                         STR_ARG(json_str(key)));
    if (m->kind == KIND_MESSAGE && m->shape == ONE) {
        push(w, m, m->number, v, 0);
    } else if (m->kind == KIND_MESSAGE) {
        o->list = m;
        if (m->shape == LIST)
            yyjson_arr_iter_init(v, &o->items);
        else
            yyjson_obj_iter_init(v, &o->entries);
    } else if (m->shape == ONE) {
        put_scalar(w->b, m, m->number, v);
    } else if (m->shape == LIST) {
        put_scalar_list(w->b, m, v);
    } else {
        put_string_map(w->b, m, v);
    }
    return 0;
}

static int walk_object(struct buf *b, yyjson_val *root, struct error *err)
{
    struct walk w = {.b = b, .depth = 1};
    yyjson_val *key;
    int rc = 0;
    w.stack[0] = (struct open_object){.members = config};
    yyjson_obj_iter_init(root, &w.stack[0].iter);
    while (rc == 0 && w.depth) {
        struct open_object *o = &w.stack[w.depth - 1];
        if (o->list) {
            if (!next_in_list(&w, o))
                o->list = NULL;
        } else if ((key = yyjson_obj_iter_next(&o->iter))) {
            rc = put_member(&w, o, key, err);
        } else {
            if (o->opened)
                pb_close_message(b, o->opened);
            if (o->entry)
                pb_close_message(b, o->entry);
            w.depth--;
        }
    }
    return rc;
}

int api__grpc_append_config(struct buf *b, const struct model_version *v, struct error *err)
{
    struct json j;
    struct buf text;
    buf_init(&text);
    model_config_render_json(model_version_config(v), api__generates(v), &text);
    int rc = text.failed ? error_set(err, STATUS_NOMEM, "out of memory for this answer; try again later")
                         : json_parse(&j, buf_str(&text), NULL, err);
    buf_release(&text);
    if (rc)
        return rc;
    rc = walk_object(b, j.root, err);
    json_release(&j);
    return rc;
}
