/* infer_proto.c: ModelInferRequest. See infer_proto.h.
 *
 * Two passes over the message. The first counts inputs, outputs, raw contents and parameters and checks the bounds; the second reads
 * them into arrays of the right size. A sub-message is read where it lies, by a function of its own for each kind, so nesting is
 * as deep as the schema and no deeper. */
#include "tensor/infer_proto.h"

#include "base/size.h"
#include "base/status.h"
#include "tensor/infer_json_priv.h"
#include "tensor/infer_proto_priv.h"
#include "tensor/tensor_priv.h"

#define CONTENTS_BYTES_DEFAULT ((size_t)256 << 20)

/* Field numbers of the schema. */
enum { REQUEST_MODEL = 1, REQUEST_VERSION, REQUEST_ID, REQUEST_PARAMETERS, REQUEST_INPUTS, REQUEST_OUTPUTS, REQUEST_RAW };
enum { INPUT_NAME = 1, INPUT_DATATYPE, INPUT_SHAPE, INPUT_PARAMETERS, INPUT_CONTENTS };
enum { OUTPUT_NAME = 1, OUTPUT_PARAMETERS };
enum { ENTRY_KEY = 1, ENTRY_VALUE };
enum { PARAM_BOOL = 1, PARAM_INT64, PARAM_STRING, PARAM_DOUBLE, PARAM_UINT64 };

struct decoder {
    struct arena *arena;
    struct infer_proto *out;
    struct slice message;
    struct str *contents; /* [n_inputs] typed contents; p == NULL: none */
    struct str *raw;      /* [n_raw] */
    size_t n_raw, bytes_left;
    size_t raw_at;
    struct infer_param *params; /* [n_params] of the request */
    size_t n_params, params_at;
};

static int no_memory(struct error *err)
{
    return error_set(err, STATUS_NOMEM, "no memory for the request: it is larger than what one request may take");
}

/* ---- parameters ---- */

/* InferParameter, a oneof: the last one counts. */
static int read_choice(struct str message, struct infer_param *p, bool *set, struct error *err)
{
    struct pb_reader r = pb_reader_of(message);
    struct pb_field f;
    uint64_t u;
    int rc;
    while ((rc = pb_next(&r, &f, err)) == 1) {
        if (f.number < PARAM_BOOL || f.number > PARAM_UINT64)
            continue;
        *set = true;
        switch (f.number) {
        case PARAM_BOOL:
            p->kind = INFER_PARAM_BOOL;
            rc = pb_get_bool(&f, "bool_param", &p->b, err);
            break;
        case PARAM_INT64:
            p->kind = INFER_PARAM_INT;
            rc = pb_get_i64(&f, "int64_param", &p->i, err);
            break;
        case PARAM_STRING:
            p->kind = INFER_PARAM_STRING;
            rc = pb_get_string(&f, "string_param", &p->s, err);
            break;
        case PARAM_DOUBLE:
            p->kind = INFER_PARAM_DOUBLE;
            rc = pb_get_f64(&f, "double_param", &p->d, err);
            break;
        default:
            p->kind = INFER_PARAM_INT;
            rc = pb_get_u64(&f, "uint64_param", &u, err);
            if (rc == 0 && u > INT64_MAX)
                return error_set(err, STATUS_INVALID, "parameter '%.*s' is %llu; whole numbers go to 9223372036854775807",
                                 NAME_ARG(p->key), (unsigned long long)u);
            if (rc == 0)
                p->i = (int64_t)u;
        }
        if (rc)
            return rc;
    }
    return rc;
}

/* One entry of a map<string, InferParameter> behind the `n` that are there. */
static int read_param(const struct pb_field *field, struct infer_param *params, size_t n, struct error *err)
{
    struct infer_param *p = &params[n];
    struct str entry, value = {0};
    struct pb_field f;
    bool set = false;
    int rc = pb_get_bytes(field, "a parameter", &entry, err);
    struct pb_reader r = pb_reader_of(entry);
    *p = (struct infer_param){0};
    while (rc == 0 && (rc = pb_next(&r, &f, err)) == 1) {
        rc = f.number == ENTRY_KEY     ? pb_get_string(&f, "a parameter's name", &p->key, err)
             : f.number == ENTRY_VALUE ? pb_get_bytes(&f, "a parameter's value", &value, err)
                                       : 0;
    }
    if (rc == 0)
        rc = read_choice(value, p, &set, err);
    if (rc)
        return rc;
    if (!set)
        return error_set(err, STATUS_INVALID, "parameter '%.*s' has no value", NAME_ARG(p->key));
    for (size_t i = 0; i < n; i++)
        if (str_eq(params[i].key, p->key))
            return error_set(err, STATUS_INVALID, "parameter '%.*s' is given twice", NAME_ARG(p->key));
    return 0;
}

static int too_many_params(struct error *err)
{
    return error_set(err, STATUS_INVALID, "an object has more than %d parameters", INFER_JSON_PARAMS_MAX);
}

/* ---- inputs ---- */

static int read_dims(struct tensor *t, const struct pb_field *f, struct error *err)
{
    uint64_t v;
    const uint8_t *p, *end;
    if (f->wire != PB_LEN && f->wire != PB_VARINT)
        return error_set(err, STATUS_INVALID, "input '%.*s': its shape was not sent as varints", NAME_ARG(t->name));
    p = (const uint8_t *)f->bytes.p;
    end = f->wire == PB_LEN ? p + f->bytes.n : p;
    for (bool alone = f->wire == PB_VARINT; alone || p < end; alone = false) {
        v = f->value;
        if (!alone && !pb_varint(&p, end, &v))
            return error_set(err, STATUS_INVALID, "input '%.*s': a number of its shape is cut off", NAME_ARG(t->name));
        if (t->shape.rank == TENSOR_RANK_MAX)
            return error_set(err, STATUS_INVALID, "input '%.*s' has more than %d dimensions", NAME_ARG(t->name),
                             TENSOR_RANK_MAX);
        memcpy(&t->shape.dim[t->shape.rank++], &v, sizeof v);
    }
    return 0;
}

struct input_state {
    struct tensor *tensor;
    struct str *contents;
    bool has_type;
    struct infer_param params[INFER_JSON_PARAMS_MAX];
    size_t n_params;
};

static int read_input_field(struct input_state *s, const struct pb_field *f, struct error *err)
{
    struct tensor *t = s->tensor;
    struct str type;
    int rc = 0;
    switch (f->number) {
    case INPUT_NAME:
        return pb_get_string(f, "an input's name", &t->name, err);
    case INPUT_DATATYPE:
        rc = pb_get_string(f, "an input's datatype", &type, err);
        t->dtype = rc ? DTYPE_INVALID : dtype_parse(type);
        s->has_type = true;
        if (rc == 0 && t->dtype == DTYPE_INVALID)
            rc = error_set(err, STATUS_INVALID, "input '%.*s': datatype '%.*s' is not one of the protocol's", NAME_ARG(t->name),
                           NAME_ARG(type));
        return rc;
    case INPUT_SHAPE:
        return read_dims(t, f, err);
    case INPUT_PARAMETERS:
        if (s->n_params == INFER_JSON_PARAMS_MAX)
            return too_many_params(err);
        rc = read_param(f, s->params, s->n_params, err);
        s->n_params += rc == 0;
        return rc;
    case INPUT_CONTENTS:
        if (s->contents->p)
            return error_set(err, STATUS_INVALID, "input '%.*s' has 'contents' twice", NAME_ARG(t->name));
        return pb_get_bytes(f, "an input's contents", s->contents, err);
    default:
        return 0;
    }
}

static int read_input(struct decoder *d, const struct pb_field *field, struct error *err)
{
    struct infer_json *q = &d->out->request;
    struct input_state s = {.tensor = &q->inputs[q->n_inputs], .contents = &d->contents[q->n_inputs]};
    struct str message;
    struct pb_field f;
    uint64_t binary_size;
    bool base64;
    int rc = pb_get_bytes(field, "an input", &message, err);
    struct pb_reader r = pb_reader_of(message);
    while (rc == 0 && (rc = pb_next(&r, &f, err)) == 1)
        rc = read_input_field(&s, &f, err);
    if (rc == 0)
        rc = infer_json__input_params(s.tensor->name, s.params, s.n_params, &binary_size, &base64, err);
    if (rc)
        return rc;
    if (!s.tensor->name.n)
        return error_set(err, STATUS_INVALID, "inputs[%zu] has no name", q->n_inputs);
    if (!s.has_type)
        return error_set(err, STATUS_INVALID, "input '%.*s' has no datatype", NAME_ARG(s.tensor->name));
    for (size_t i = 0; i < q->n_inputs; i++)
        if (str_eq(q->inputs[i].name, s.tensor->name))
            return error_set(err, STATUS_INVALID, "input '%.*s' is given twice", NAME_ARG(s.tensor->name));
    q->n_inputs++;
    return 0;
}

/* ---- requested outputs ---- */

static int read_output(struct decoder *d, const struct pb_field *field, struct error *err)
{
    struct infer_json *q = &d->out->request;
    struct infer_json_output *o = &q->outputs[q->n_outputs];
    struct infer_param params[INFER_JSON_PARAMS_MAX];
    struct str message;
    struct pb_field f;
    size_t n = 0;
    bool has_binary;
    int rc = pb_get_bytes(field, "a requested output", &message, err);
    struct pb_reader r = pb_reader_of(message);
    while (rc == 0 && (rc = pb_next(&r, &f, err)) == 1) {
        rc = 0;
        if (f.number == OUTPUT_NAME)
            rc = pb_get_string(&f, "a requested output's name", &o->name, err);
        if (f.number == OUTPUT_PARAMETERS)
            rc = n == INFER_JSON_PARAMS_MAX ? too_many_params(err) : read_param(&f, params, n++, err);
    }
    if (rc == 0)
        rc = infer_json__output_params(o, params, n, &has_binary, err);
    if (rc)
        return rc;
    if (!o->name.n)
        return error_set(err, STATUS_INVALID, "outputs[%zu] has no name", q->n_outputs);
    for (size_t i = 0; i < q->n_outputs; i++)
        if (str_eq(q->outputs[i].name, o->name))
            return error_set(err, STATUS_INVALID, "output '%.*s' is requested twice; ask for it once", NAME_ARG(o->name));
    q->n_outputs++;
    return 0;
}

/* ---- the request ---- */

static int count_fields(struct decoder *d, struct error *err)
{
    struct infer_json *q = &d->out->request;
    struct pb_reader r = pb_reader_of((struct str){(const char *)d->message.p, d->message.n});
    struct pb_field f;
    size_t inputs = 0, outputs = 0;
    int rc;
    while ((rc = pb_next(&r, &f, err)) == 1) {
        inputs += f.number == REQUEST_INPUTS;
        outputs += f.number == REQUEST_OUTPUTS;
        d->n_raw += f.number == REQUEST_RAW;
        d->n_params += f.number == REQUEST_PARAMETERS;
    }
    if (rc)
        return rc;
    if (inputs > INFER_JSON_IO_MAX || outputs > INFER_JSON_IO_MAX || d->n_raw > INFER_JSON_IO_MAX)
        return error_set(err, STATUS_INVALID, "the request has more than %d inputs, outputs or raw contents",
                         INFER_JSON_IO_MAX);
    if (d->n_params > INFER_JSON_PARAMS_MAX)
        return too_many_params(err);
    q->inputs = arena_array(d->arena, inputs, sizeof *q->inputs);
    q->outputs = arena_array(d->arena, outputs, sizeof *q->outputs);
    d->contents = arena_array(d->arena, inputs, sizeof *d->contents);
    d->raw = arena_array(d->arena, d->n_raw, sizeof *d->raw);
    d->params = arena_array(d->arena, d->n_params, sizeof *d->params);
    return q->inputs && q->outputs && d->contents && d->raw && d->params ? 0 : no_memory(err);
}

static int read_field(struct decoder *d, const struct pb_field *f, struct error *err)
{
    struct infer_proto *m = d->out;
    switch (f->number) {
    case REQUEST_MODEL:
        return pb_get_string(f, "model_name", &m->model_name, err);
    case REQUEST_VERSION:
        return pb_get_string(f, "model_version", &m->model_version, err);
    case REQUEST_ID:
        return pb_get_string(f, "id", &m->request.id, err);
    case REQUEST_PARAMETERS:
        return read_param(f, d->params, d->params_at++, err);
    case REQUEST_INPUTS:
        return read_input(d, f, err);
    case REQUEST_OUTPUTS:
        return read_output(d, f, err);
    case REQUEST_RAW:
        return pb_get_bytes(f, "raw_input_contents", &d->raw[d->raw_at++], err);
    default:
        return 0;
    }
}

/* ---- data ---- */

static int take_raw(struct decoder *d, size_t i, struct error *err)
{
    struct tensor *t = &d->out->request.inputs[i];
    if (d->contents[i].p)
        return error_set(err, STATUS_INVALID,
                         "input '%.*s' has typed 'contents' and the request has raw_input_contents; send every input raw, or "
                         "every input typed",
                         NAME_ARG(t->name));
    struct slab *owner = d->message.owner;
    t->data = (struct slice){(const uint8_t *)d->raw[i].p, d->raw[i].n, owner ? slab_ref(owner) : NULL};
    return tensor__check("input", t, err);
}

static int take_data(struct decoder *d, struct error *err)
{
    struct infer_json *q = &d->out->request;
    int rc = 0;
    if (d->n_raw && d->n_raw != q->n_inputs)
        return error_set(
            err, STATUS_INVALID,
            "the request has %zu inputs but %zu raw_input_contents; there must be one for each input, in their order",
            q->n_inputs, d->n_raw);
    for (size_t i = 0; rc == 0 && i < q->n_inputs; i++)
        rc = d->n_raw ? take_raw(d, i, err)
                      : infer_proto__contents(&q->inputs[i], d->contents[i], d->message.owner, &d->bytes_left, err);
    return rc;
}

/* "Tell me of the end by an empty response where a request may have many": every request here has one, which says that it is the last. */
static void drop_final_response(struct decoder *d)
{
    size_t kept = 0;
    for (size_t i = 0; i < d->n_params; i++)
        if (d->params[i].kind != INFER_PARAM_BOOL || !STR_IS(d->params[i].key, "triton_enable_empty_final_response"))
            d->params[kept++] = d->params[i];
    d->n_params = kept;
}

int infer_proto_decode(struct slice message, struct arena *a, const struct infer_json_limits *limits, struct infer_proto *out,
                       struct error *err)
{
    *out = (struct infer_proto){0};
    struct decoder d = {
        .arena = a,
        .out = out,
        .message = message,
        .bytes_left = limits && limits->tensor_bytes ? limits->tensor_bytes : CONTENTS_BYTES_DEFAULT,
    };
    struct pb_reader r = pb_reader_of((struct str){(const char *)message.p, message.n});
    struct pb_field f;
    int rc = count_fields(&d, err);
    while (rc == 0 && (rc = pb_next(&r, &f, err)) == 1)
        rc = read_field(&d, &f, err);
    if (rc == 0) {
        drop_final_response(&d);
        rc = infer_json__request_params(&out->request, d.params, d.n_params, err);
    }
    if (rc == 0)
        rc = take_data(&d, err);
    if (rc) {
        struct str id = out->request.id;
        infer_json_release(&out->request);
        out->request.id = id;
    }
    return rc;
}

void infer_proto_release(struct infer_proto *m)
{
    infer_json_release(&m->request);
}
