/* kserve.c: model metadata, request bodies and answers of KServe v2, as a client sees them. */
#include "cli/kserve.h"

#include <math.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "tensor/infer_json_encode.h"
#include "wire/json.h"

static int no_memory(struct error *err)
{
    return error_set(err, STATUS_NOMEM, "not enough memory");
}

static bool keep(struct arena *a, struct str s, struct str *out)
{
    char *copy = arena_strdup(a, s);
    *out = (struct str){copy, copy ? s.n : 0};
    return copy != NULL;
}

static int parse_shape(yyjson_val *v, struct shape *out)
{
    size_t i, n;
    yyjson_val *d;
    *out = (struct shape){0};
    if (!yyjson_is_arr(v) || yyjson_arr_size(v) > TENSOR_RANK_MAX)
        return STATUS_INVALID;
    yyjson_arr_foreach(v, i, n, d)
    {
        if (!yyjson_is_int(d))
            return STATUS_INVALID;
        out->dim[out->rank++] = yyjson_get_sint(d);
    }
    return 0;
}

/* ---- the model ---- */

static int parse_ios(yyjson_val *root, const char *key, struct arena *a, struct kserve_io *out, size_t *n_out,
                     struct error *err)
{
    yyjson_val *list, *v;
    size_t i, n;
    int rc = json_get_arr(root, key, JSON_REQUIRED, &list, NULL, err);
    if (rc < 0)
        return rc;
    if (yyjson_arr_size(list) > KSERVE_IO_MAX)
        return error_set(err, STATUS_INVALID, "the model has more than %d %s", KSERVE_IO_MAX, key);
    yyjson_arr_foreach(list, i, n, v)
    {
        struct kserve_io *io = &out[(*n_out)++];
        struct str name, type;
        rc = json_get_str(v, "name", JSON_REQUIRED, &name, NULL, err);
        if (rc == 0)
            rc = json_get_str(v, "datatype", JSON_REQUIRED, &type, NULL, err);
        if (rc < 0)
            return rc;
        io->dtype = dtype_parse(type);
        if (io->dtype == DTYPE_INVALID || parse_shape(yyjson_obj_get(v, "shape"), &io->shape) < 0)
            return error_set(err, STATUS_INVALID, "the metadata of '%.*s' has a datatype or shape that inferd doesn't know",
                             STR_ARG(name));
        if (!keep(a, name, &io->name))
            return no_memory(err);
    }
    return 0;
}

static void parse_optional(yyjson_val *config, struct kserve_model *m)
{
    yyjson_val *list = yyjson_obj_get(config, "input"), *v;
    size_t i, n;
    yyjson_arr_foreach(list, i, n, v)
    {
        struct str name = json_str(yyjson_obj_get(v, "name"));
        for (size_t k = 0; k < m->n_inputs; k++)
            if (str_eq(m->inputs[k].name, name))
                m->inputs[k].optional = yyjson_get_bool(yyjson_obj_get(v, "optional"));
    }
}

static bool keep_versions(struct arena *a, yyjson_val *list, struct str *out)
{
    struct buf text;
    size_t i, n;
    yyjson_val *v;
    buf_init(&text);
    yyjson_arr_foreach(list, i, n, v)
    {
        struct str version = json_str(v);
        buf_printf(&text, "%s%.*s", i ? ", " : "", STR_ARG(version));
    }
    bool kept = !text.failed && keep(a, buf_str(&text), out);
    buf_release(&text);
    return kept;
}

static int parse_model(yyjson_val *root, yyjson_val *config, struct arena *a, struct kserve_model *m, struct error *err)
{
    struct str name, platform = STR("");
    yyjson_val *versions = yyjson_obj_get(root, "versions");
    int rc = json_get_str(root, "name", JSON_REQUIRED, &name, NULL, err);
    if (rc == 0)
        rc = json_get_str(root, "platform", JSON_OPTIONAL, &platform, NULL, err);
    if (rc == 0)
        rc = parse_ios(root, "inputs", a, m->inputs, &m->n_inputs, err);
    if (rc == 0)
        rc = parse_ios(root, "outputs", a, m->outputs, &m->n_outputs, err);
    if (rc < 0)
        return rc;
    if (!keep(a, name, &m->name) || !keep(a, platform, &m->platform) || !keep_versions(a, versions, &m->versions))
        return no_memory(err);
    int64_t max_batch = yyjson_get_sint(yyjson_obj_get(config, "max_batch_size"));
    m->max_batch = max_batch > 0 && max_batch <= UINT32_MAX ? (uint32_t)max_batch : 0;
    parse_optional(config, m);
    return 0;
}

int kserve_model_parse(struct str metadata, struct str config, struct arena *a, struct kserve_model *out, struct error *err)
{
    struct json meta, conf = {0};
    *out = (struct kserve_model){0};
    int rc = json_parse(&meta, metadata, NULL, err);
    if (rc < 0)
        return error_prefix(err, "the server's metadata of the model");
    if (config.n)
        rc = json_parse(&conf, config, NULL, err);
    if (rc == 0)
        rc = parse_model(meta.root, conf.root, a, out, err);
    json_release(&meta);
    json_release(&conf);
    return rc;
}

/* ---- the request ---- */

static void append_dims(struct buf *out, const struct shape *s)
{
    buf_append_c(out, '[');
    for (int i = 0; i < s->rank; i++) {
        if (i)
            buf_append_c(out, ',');
        buf_append_i64(out, s->dim[i]);
    }
    buf_append_c(out, ']');
}

static int append_input(const struct kserve_request *r, const struct tensor *t, struct buf *body, struct error *err)
{
    buf_append_z(body, "{\"name\":");
    buf_append_json_str(body, t->name);
    buf_printf(body, ",\"datatype\":\"%s\",\"shape\":", dtype_name(t->dtype));
    append_dims(body, &t->shape);
    int rc = 0;
    if (r->json) {
        buf_append_z(body, ",\"data\":");
        rc = json_encode_data(t, body, err);
    } else {
        buf_printf(body, ",\"parameters\":{\"binary_data_size\":%zu}", t->data.n);
    }
    buf_append_c(body, '}');
    return rc;
}

static void append_outputs(const struct kserve_request *r, const struct kserve_model *m, struct buf *body)
{
    size_t n = r->n_outputs ? r->n_outputs : r->classes ? m->n_outputs : 0;
    if (!n)
        return;
    buf_append_z(body, ",\"outputs\":[");
    for (size_t i = 0; i < n; i++) {
        buf_append_z(body, i ? ",{\"name\":" : "{\"name\":");
        buf_append_json_str(body, r->n_outputs ? str_of(r->outputs[i]) : m->outputs[i].name);
        buf_printf(body, ",\"parameters\":{\"binary_data\":%s", r->json ? "false" : "true");
        if (r->classes)
            buf_printf(body, ",\"classification\":%u", r->classes);
        buf_append_z(body, "}}");
    }
    buf_append_c(body, ']');
}

int kserve_request_build(const struct kserve_request *r, const struct kserve_model *m, struct buf *body, size_t *header_bytes,
                         struct error *err)
{
    size_t start = body->n;
    int rc = 0;
    buf_append_c(body, '{');
    if (r->id) {
        buf_append_z(body, "\"id\":");
        buf_append_json_str(body, str_of(r->id));
        buf_append_c(body, ',');
    }
    buf_printf(body, "\"parameters\":{\"binary_data_output\":%s", r->json ? "false" : "true");
    if (r->timeout_us)
        buf_printf(body, ",\"timeout\":%llu", (unsigned long long)r->timeout_us);
    if (r->priority)
        buf_printf(body, ",\"priority\":%llu", (unsigned long long)r->priority);
    buf_append_z(body, "},\"inputs\":[");
    for (size_t i = 0; i < r->n_inputs && rc == 0; i++) {
        if (i)
            buf_append_c(body, ',');
        rc = append_input(r, &r->inputs[i], body, err);
    }
    buf_append_c(body, ']');
    append_outputs(r, m, body);
    buf_append_c(body, '}');
    *header_bytes = r->json ? 0 : body->n - start;
    for (size_t i = 0; i < r->n_inputs && rc == 0 && !r->json; i++)
        buf_append(body, r->inputs[i].data.p, r->inputs[i].data.n);
    return rc == 0 && body->failed ? no_memory(err) : rc;
}

/* ---- the answer ---- */

struct values {
    struct buf out;
    enum dtype dtype;
    uint64_t n;
    bool bad;
};

static void put_number(struct values *w, yyjson_val *v)
{
    double d = yyjson_get_num(v);
    float f = (float)d;
    uint16_t half;
    uint64_t u = yyjson_is_sint(v) ? (uint64_t)yyjson_get_sint(v) : yyjson_get_uint(v);
    switch (w->dtype) {
    case DTYPE_FP64:
        buf_append(&w->out, &d, 8);
        return;
    case DTYPE_FP32:
        buf_append(&w->out, &f, 4);
        return;
    case DTYPE_FP16:
        half = f32_to_f16(f);
        buf_append(&w->out, &half, 2);
        return;
    case DTYPE_BF16:
        half = f32_to_bf16(f);
        buf_append(&w->out, &half, 2);
        return;
    default:
        w->bad = w->bad || !yyjson_is_int(v);
        buf_append(&w->out, &u, dtype_bytes(w->dtype)); /* little-endian: the low bytes */
    }
}

/* Flat or nested arrays, depth bounded by the parser. */
static void put_values(struct values *w, yyjson_val *v)
{
    size_t i, n;
    yyjson_val *item;
    if (yyjson_is_arr(v)) {
        yyjson_arr_foreach(v, i, n, item)
        {
            put_values(w, item);
        }
        return;
    }
    w->n++;
    if (w->dtype == DTYPE_BYTES && yyjson_is_str(v)) {
        uint32_t size = (uint32_t)yyjson_get_len(v);
        buf_append(&w->out, &size, 4);
        buf_append(&w->out, yyjson_get_str(v), size);
    } else if (w->dtype == DTYPE_BOOL && yyjson_is_bool(v)) {
        buf_append_c(&w->out, yyjson_get_bool(v) ? 1 : 0);
    } else if (yyjson_is_num(v) && w->dtype != DTYPE_BYTES && w->dtype != DTYPE_BOOL) {
        put_number(w, v);
    } else {
        w->bad = true;
    }
}

int kserve_json_data(yyjson_val *data, struct tensor *t, struct error *err)
{
    struct values w = {.dtype = t->dtype};
    uint64_t elements;
    buf_init(&w.out);
    put_values(&w, data);
    struct slab *s = w.out.failed ? NULL : slab_create(w.out.n ? w.out.n : 1);
    bool fits = !w.bad && shape_elements(&t->shape, &elements) && elements == w.n;
    if (s && w.out.n)
        memcpy(s->data, w.out.p, w.out.n);
    size_t bytes = w.out.n;
    buf_release(&w.out);
    if (!s)
        return no_memory(err);
    if (!fits) {
        slab_unref(s);
        return error_set(err, STATUS_INVALID, "the data of '%.*s' does not fit its datatype and shape", STR_ARG(t->name));
    }
    t->data = (struct slice){s->data, s->n = bytes, s};
    return 0;
}

static int parse_output(yyjson_val *v, struct str *tail, struct arena *a, struct tensor *t, struct error *err)
{
    struct str name, type;
    int rc = json_get_str(v, "name", JSON_REQUIRED, &name, NULL, err);
    if (rc == 0)
        rc = json_get_str(v, "datatype", JSON_REQUIRED, &type, NULL, err);
    if (rc < 0)
        return rc;
    t->dtype = dtype_parse(type);
    if (!keep(a, name, &t->name))
        return no_memory(err);
    if (t->dtype == DTYPE_INVALID || parse_shape(yyjson_obj_get(v, "shape"), &t->shape) < 0)
        return error_set(err, STATUS_INVALID, "output '%.*s' has no usable datatype or shape", STR_ARG(name));
    yyjson_val *size = yyjson_obj_get(yyjson_obj_get(v, "parameters"), "binary_data_size");
    if (!size)
        return kserve_json_data(yyjson_obj_get(v, "data"), t, err);
    if (!yyjson_is_uint(size) || yyjson_get_uint(size) > tail->n)
        return error_set(err, STATUS_INVALID, "the binary data of output '%.*s' is not all there", STR_ARG(name));
    size_t n = (size_t)yyjson_get_uint(size);
    t->data = slice_borrow(tail->p, n);
    *tail = (struct str){tail->p + n, tail->n - n};
    return tensor_check(t, err);
}

static int parse_answer(yyjson_val *root, struct str tail, struct arena *a, struct kserve_answer *out, struct error *err)
{
    struct str name = STR(""), version = STR(""), id = STR("");
    yyjson_val *list, *v;
    size_t i, n;
    int rc = json_get_str(root, "model_name", JSON_OPTIONAL, &name, NULL, err);
    if (rc == 0)
        rc = json_get_str(root, "model_version", JSON_OPTIONAL, &version, NULL, err);
    if (rc == 0)
        rc = json_get_str(root, "id", JSON_OPTIONAL, &id, NULL, err);
    if (rc == 0)
        rc = json_get_arr(root, "outputs", JSON_REQUIRED, &list, NULL, err);
    if (rc < 0)
        return rc;
    if (!keep(a, name, &out->model_name) || !keep(a, version, &out->model_version) || !keep(a, id, &out->id))
        return no_memory(err);
    if (yyjson_arr_size(list) > KSERVE_IO_MAX)
        return error_set(err, STATUS_INVALID, "the answer has more than %d outputs", KSERVE_IO_MAX);
    yyjson_arr_foreach(list, i, n, v)
    {
        rc = parse_output(v, &tail, a, &out->outputs[out->n_outputs++], err);
        if (rc < 0)
            return rc;
    }
    return tail.n ? error_set(err, STATUS_INVALID, "the answer has %zu bytes that belong to no output", tail.n) : 0;
}

int kserve_answer_parse(struct str body, size_t header_bytes, struct arena *a, struct kserve_answer *out, struct error *err)
{
    struct json head;
    size_t n = header_bytes ? header_bytes : body.n;
    *out = (struct kserve_answer){0};
    if (n > body.n)
        return error_set(err, STATUS_INVALID, "the answer is shorter than its header says");
    int rc = json_parse(&head, (struct str){body.p, n}, NULL, err);
    if (rc < 0)
        return error_prefix(err, "the server's answer");
    rc = parse_answer(head.root, (struct str){body.p + n, body.n - n}, a, out, err);
    json_release(&head);
    if (rc < 0)
        kserve_answer_release(out);
    return rc;
}

void kserve_answer_release(struct kserve_answer *a)
{
    for (size_t i = 0; i < a->n_outputs; i++)
        tensor_release(&a->outputs[i]);
    a->n_outputs = 0;
}
