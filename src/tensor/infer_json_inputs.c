/* infer_json_inputs.c: the `inputs` of a request: JSON data, the binary tail, and raw requests. See infer_json.h. */
#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "tensor/infer_json_priv.h"
#include "tensor/json_decode.h"
#include "tensor/tensor_priv.h"

enum { SEEN_NAME = 1, SEEN_SHAPE = 2, SEEN_DATATYPE = 4, SEEN_PARAMETERS = 8, SEEN_DATA = 16 };
#define SEEN_ENOUGH (SEEN_NAME | SEEN_SHAPE | SEEN_DATATYPE) /* to decode numbers where they stand */
#define NO_BINARY   UINT64_MAX

/* One input while its object is read. */
struct input {
    struct tensor *t;
    unsigned seen;
    bool decoded, decoded_base64;
    size_t charged;              /* of bytes_left, for what is decoded */
    const char *data, *data_end; /* where the value of `data` is */
    struct infer_param *params;
    size_t n_params;
    uint64_t binary_size;
    bool base64;
};

static int read_shape(struct json_scan *s, struct shape *shape, struct error *err)
{
    bool first = true;
    int rc;
    while ((rc = json_element(s, &first, err)) == 1) {
        if (shape->rank == TENSOR_RANK_MAX)
            return error_set(err, STATUS_INVALID, "shape has more than %d dimensions", TENSOR_RANK_MAX);
        int64_t *dim = &shape->dim[shape->rank];
        if ((rc = json_i64(s, dim, err)) != 0)
            return rc;
        if (*dim < 0)
            return error_set(err, STATUS_INVALID, "shape has the negative dimension %lld; a request's dimensions are 0 or more",
                             (long long)*dim);
        shape->rank++;
    }
    return rc;
}

static int read_datatype(struct infer_json_decoder *d, struct tensor *t, struct error *err)
{
    struct str text;
    int rc = json_string(&d->s, d->arena, &text, err);
    if (rc)
        return rc;
    t->dtype = str_starts(text, STR("TYPE_")) ? DTYPE_INVALID : dtype_parse(text);
    if (t->dtype == DTYPE_INVALID)
        return error_set(err, STATUS_INVALID,
                         "datatype '%.*s' is not one of BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, "
                         "FP16, FP32, FP64, BF16, BYTES",
                         NAME_ARG(text));
    return STATUS_OK;
}

static int decode_data(struct infer_json_decoder *d, struct input *in, struct json_scan *at, struct error *err)
{
    struct json_decode_options opt = {in->base64, d->bytes_left, in->data_end};
    int rc = json_decode_data(at, in->t, &opt, err);
    if (rc)
        return rc;
    /* Counted before the release, so that what an input holds is what it is charged. */
    in->charged = MIN_OF(d->bytes_left, in->t->data.owner->cap);
    d->bytes_left -= in->charged;
    in->decoded = true;
    in->decoded_base64 = in->base64;
    return STATUS_OK;
}

/* The value of `data`: decoded now when name, shape and datatype are known. A parameter behind it may still say that strings are base64:
 * that is rare, and then they are decoded again (finish_input). */
static int read_data(struct infer_json_decoder *d, struct input *in, struct error *err)
{
    int rc = 0;
    in->data = d->s.p;
    if ((in->seen & SEEN_ENOUGH) == SEEN_ENOUGH) {
        if (in->seen & SEEN_PARAMETERS)
            rc = infer_json__input_params(in->t->name, in->params, in->n_params, &in->binary_size, &in->base64, err);
        if (!rc)
            rc = decode_data(d, in, &d->s, err);
        in->data_end = d->s.p;
        return rc;
    }
    rc = json_skip(&d->s, TENSOR_RANK_MAX + 1, err);
    in->data_end = d->s.p;
    return rc;
}

static const char *const member_names[] = {"name", "shape", "datatype", "parameters", "data"}; /* by bit */

static int member_index(struct str key)
{
    return STR_IS(key, "name")         ? 0
           : STR_IS(key, "shape")      ? 1
           : STR_IS(key, "datatype")   ? 2
           : STR_IS(key, "parameters") ? 3
           : STR_IS(key, "data")       ? 4
                                       : -1;
}

static int input_member(struct infer_json_decoder *d, struct input *in, struct str key, struct error *err)
{
    int index = member_index(key);
    unsigned bit = index < 0 ? 0 : 1u << index;
    if (in->seen & bit)
        return infer_json__twice(member_names[index], "input", in->t->name, err);
    int rc;
    switch (bit) {
    case SEEN_NAME:
        rc = json_string(&d->s, d->arena, &in->t->name, err);
        break;
    case SEEN_SHAPE:
        rc = read_shape(&d->s, &in->t->shape, err);
        break;
    case SEEN_DATATYPE:
        rc = read_datatype(d, in->t, err);
        break;
    case SEEN_PARAMETERS:
        rc = infer_json__params(d, &in->params, &in->n_params, err);
        break;
    case SEEN_DATA:
        in->seen |= SEEN_DATA;
        return read_data(d, in, err); /* names the input itself */
    default:
        return json_skip(&d->s, INFER_JSON_DEPTH_MAX, err);
    }
    in->seen |= bit;
    if (rc && in->t->name.n && bit != SEEN_NAME)
        return error_prefix(err, "input '%.*s'", NAME_ARG(in->t->name));
    if (rc)
        return error_prefix(err, "inputs[%zu]", d->out->n_inputs);
    return STATUS_OK;
}

/* The object is complete: is everything there, and does it fit together? */
static int finish_input(struct infer_json_decoder *d, struct input *in, struct error *err)
{
    struct str name = in->t->name;
    if (!name.n)
        return error_set(err, STATUS_INVALID, "inputs[%zu] has no name", d->out->n_inputs);
    for (size_t i = 1; i < 3; i++)
        if (!(in->seen & 1u << i))
            return error_set(err, STATUS_INVALID, "input '%.*s' has no '%s'", NAME_ARG(name), member_names[i]);
    for (size_t i = 0; i < d->out->n_inputs; i++)
        if (str_eq(d->out->inputs[i].name, name))
            return error_set(err, STATUS_INVALID, "input '%.*s' is given twice", NAME_ARG(name));
    int rc = infer_json__input_params(name, in->params, in->n_params, &in->binary_size, &in->base64, err);
    if (rc)
        return rc;
    if (in->base64 && in->t->dtype != DTYPE_BYTES)
        return error_set(err, STATUS_INVALID, "input '%.*s': content_type base64 is for BYTES, not for %s", NAME_ARG(name),
                         dtype_name(in->t->dtype));
    if (in->binary_size != NO_BINARY && (in->seen & SEEN_DATA))
        return error_set(err, STATUS_INVALID,
                         "input '%.*s' has both 'data' and the parameter binary_data_size; give one of them", NAME_ARG(name));
    if (in->binary_size == NO_BINARY && !(in->seen & SEEN_DATA))
        return error_set(err, STATUS_INVALID,
                         "input '%.*s' has neither 'data' nor the parameter binary_data_size; give one of them",
                         NAME_ARG(name));
    if (!in->data || (in->decoded && in->base64 == in->decoded_base64))
        return STATUS_OK;
    if (in->decoded) {
        d->bytes_left += in->charged;
        slice_release(&in->t->data);
    }
    struct json_scan at = d->s;
    at.p = in->data;
    return decode_data(d, in, &at, err);
}

static int input_object(struct infer_json_decoder *d, struct input *in, struct error *err)
{
    bool first = true;
    struct str key;
    int rc;
    while ((rc = json_member(&d->s, &first, d->arena, &key, err)) == 1)
        if ((rc = input_member(d, in, key, err)) != 0)
            return rc;
    return rc ? rc : finish_input(d, in, err);
}

/* Most requests have a handful of inputs, so room for all 64 is not taken (and cleared) at once: 4, 16, 64. */
static bool room_for_input(struct infer_json_decoder *d)
{
    struct infer_json *r = d->out;
    size_t n = r->n_inputs;
    if (n != 0 && n != 4 && n != 16)
        return true;
    struct tensor *inputs = arena_array(d->arena, n ? 4 * n : 4, sizeof *inputs);
    uint64_t *binary = arena_array(d->arena, n ? 4 * n : 4, sizeof *binary);
    if (!inputs || !binary)
        return false;
    if (n) {
        memcpy(inputs, r->inputs, n * sizeof *inputs);
        memcpy(binary, d->binary, n * sizeof *binary);
    }
    r->inputs = inputs;
    d->binary = binary;
    return true;
}

int infer_json__inputs(struct infer_json_decoder *d, struct error *err)
{
    struct infer_json *r = d->out;
    bool first = true;
    int rc;
    while ((rc = json_element(&d->s, &first, err)) == 1) {
        if (r->n_inputs == INFER_JSON_IO_MAX)
            return error_set(err, STATUS_INVALID, "the request has more than %d inputs", INFER_JSON_IO_MAX);
        if (!room_for_input(d))
            return infer_json__nomem(err);
        struct input in = {.t = &r->inputs[r->n_inputs], .binary_size = NO_BINARY};
        if ((rc = input_object(d, &in, err)) != 0) {
            tensor_release(in.t);
            return rc;
        }
        d->binary[r->n_inputs++] = in.binary_size;
    }
    return rc;
}

static int binary_input(struct infer_json_decoder *d, struct tensor *t, uint64_t size, size_t *at, struct error *err)
{
    size_t left = d->tail.n - *at, want;
    char shape[128];
    if (t->dtype != DTYPE_BYTES && tensor_bytes(t->dtype, &t->shape, &want) && want != size)
        return error_set(err, STATUS_INVALID, "input '%.*s': binary_data_size is %llu, but %s of shape %s takes %zu bytes",
                         NAME_ARG(t->name), (unsigned long long)size, dtype_name(t->dtype),
                         shape_format(&t->shape, shape, sizeof shape), want);
    if (size > left)
        return error_set(err, STATUS_INVALID,
                         "input '%.*s': binary_data_size is %llu, but only %zu of the %zu bytes behind the JSON are left",
                         NAME_ARG(t->name), (unsigned long long)size, left, d->tail.n);
    t->data = (struct slice){d->tail.p ? d->tail.p + *at : NULL, (size_t)size, d->tail.owner};
    if (t->data.owner)
        slab_ref(t->data.owner);
    *at += (size_t)size;
    return tensor__check("input", t, err);
}

int infer_json__binary(struct infer_json_decoder *d, struct error *err)
{
    size_t at = 0;
    for (size_t i = 0; i < d->out->n_inputs; i++) {
        int rc = d->binary[i] == NO_BINARY ? STATUS_OK : binary_input(d, &d->out->inputs[i], d->binary[i], &at, err);
        if (rc)
            return rc;
    }
    if (at != d->tail.n)
        return error_set(err, STATUS_INVALID,
                         "%zu bytes are left over behind the JSON and the inputs' binary data: the sizes given by "
                         "binary_data_size add up to %zu of the %zu bytes",
                         d->tail.n - at, at, d->tail.n);
    return STATUS_OK;
}

/* ---- raw requests ---- */

/* The one dynamic dim besides the batch takes what is left of the size; `each` elements are in the other dims. */
static int raw_shape(struct tensor *t, const struct shape *contract, bool batched, size_t bytes, struct error *err)
{
    int dynamic = -1;
    char shape[128];
    t->shape = *contract;
    if (batched && t->shape.rank)
        t->shape.dim[0] = 1;
    for (int i = 0; i < t->shape.rank; i++) {
        if (t->shape.dim[i] >= 0)
            continue;
        if (dynamic >= 0)
            return error_set(err, STATUS_INVALID,
                             "input '%.*s' has shape %s with more than one variable dimension; a raw request's bytes "
                             "don't say which shape is meant: send a JSON header with the shape",
                             NAME_ARG(t->name), shape_format(contract, shape, sizeof shape));
        dynamic = i;
        t->shape.dim[i] = 1;
    }
    size_t unit;
    if (dynamic < 0 || t->dtype == DTYPE_BYTES)
        return STATUS_OK;
    if (!tensor_bytes(t->dtype, &t->shape, &unit) || unit == 0 || bytes % unit)
        return error_set(err, STATUS_INVALID,
                         "input '%.*s': a raw request of %zu bytes is not a whole number of %s elements of shape %s",
                         NAME_ARG(t->name), bytes, dtype_name(t->dtype), shape_format(contract, shape, sizeof shape));
    t->shape.dim[dynamic] = (int64_t)(bytes / unit);
    return STATUS_OK;
}

/* The body is the content of the tensor's one element. */
static int raw_bytes(struct tensor *t, struct slice body, struct error *err)
{
    uint64_t n;
    char shape[128];
    size_t cap;
    if (!shape_elements(&t->shape, &n) || n != 1)
        return error_set(err, STATUS_INVALID,
                         "input '%.*s': a raw request carries one BYTES element, but shape %s asks for another number; "
                         "send a JSON header",
                         NAME_ARG(t->name), shape_format(&t->shape, shape, sizeof shape));
    if (body.n > UINT32_MAX || !size_add(body.n, 4, &cap))
        return error_set(err, STATUS_INVALID, "input '%.*s': a BYTES element can't be longer than 4 GiB", NAME_ARG(t->name));
    struct slab *s = slab_create(cap);
    if (!s)
        return error_set(err, STATUS_NOMEM, "input '%.*s': no memory for its %zu bytes", NAME_ARG(t->name), cap);
    store_u32(s->data, (uint32_t)body.n);
    if (body.n)
        memcpy(s->data + 4, body.p, body.n);
    s->n = cap;
    t->data = (struct slice){s->data, cap, s};
    return STATUS_OK;
}

int infer_json_raw(struct str name, enum dtype dtype, const struct shape *contract, bool batched, struct slice body,
                   struct arena *a, struct infer_json *out, struct error *err)
{
    *out = (struct infer_json){.binary_output = true};
    struct tensor *t = ARENA_NEW(a, struct tensor);
    if (!t)
        return infer_json__nomem(err);
    t->name = name;
    t->dtype = dtype;
    int rc = raw_shape(t, contract, batched, body.n, err);
    if (rc)
        return rc;
    if (dtype == DTYPE_BYTES) {
        if ((rc = raw_bytes(t, body, err)) != 0)
            return rc;
    } else {
        t->data = body;
        if ((rc = tensor__check("input", t, err)) != 0)
            return rc;
        if (body.owner)
            slab_ref(body.owner);
    }
    out->inputs = t;
    out->n_inputs = 1;
    return STATUS_OK;
}
