/* inputs.c: the tensors of a request: bookkeeping, generated data, JSON data. Files are in inputs_file.c. */
#include "cli/inputs.h"

#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "cli/inputs_priv.h"
#include "wire/json.h"

void inputs_init(struct inputs *in)
{
    *in = (struct inputs){0};
    arena_init(&in->arena, 4096, 0);
}

void inputs_release(struct inputs *in)
{
    for (size_t i = 0; i < in->n; i++)
        tensor_release(&in->tensors[i]);
    for (size_t i = 0; i < in->n_files; i++)
        buf_release(&in->files[i]);
    arena_release(&in->arena);
}

bool inputs__has(const struct inputs *in, struct str name)
{
    for (size_t i = 0; i < in->n; i++)
        if (str_eq(in->tensors[i].name, name))
            return true;
    return false;
}

const struct kserve_io *inputs__find(const struct kserve_model *m, struct str name, struct error *err)
{
    for (size_t i = 0; i < m->n_inputs; i++)
        if (str_eq(m->inputs[i].name, name))
            return &m->inputs[i];
    struct suggest s;
    char hint[160];
    suggest_init(&s, name);
    for (size_t i = 0; i < m->n_inputs; i++)
        suggest_offer(&s, m->inputs[i].name.p);
    (void)error_set(err, STATUS_NOT_FOUND, "the model has no input '%.*s'%s", STR_ARG(name),
                    suggest_text(&s, hint, sizeof hint));
    return NULL;
}

int inputs__put(struct inputs *in, const struct kserve_io *io, struct tensor *t, struct error *err)
{
    t->name = io->name;
    if (inputs__has(in, io->name) || in->n == KSERVE_IO_MAX) {
        tensor_release(t);
        return error_set(err, STATUS_INVALID, "input '%.*s' is given twice", STR_ARG(io->name));
    }
    in->tensors[in->n++] = *t;
    return 0;
}

/* A missing batch axis of one row is put in front: people have one picture, not a batch of one. */
void inputs__add_batch_axis(const struct kserve_io *io, struct shape *s)
{
    if (s->rank + 1 != io->shape.rank || (io->shape.dim[0] != TENSOR_DIM_DYNAMIC && io->shape.dim[0] != 1))
        return;
    for (int i = s->rank; i > 0; i--)
        s->dim[i] = s->dim[i - 1];
    s->dim[0] = 1;
    s->rank++;
}

/* ---- generated ---- */

static int parse_dims(struct str text, struct shape *out, struct error *err, const char *whole)
{
    struct str part;
    *out = (struct shape){0};
    while (text.n && str_cut(&text, ',', &part)) {
        int64_t d;
        if (out->rank == TENSOR_RANK_MAX || !str_to_i64(str_trim(part), &d) || d < 0)
            return error_set(err, STATUS_INVALID, "'%s' is not accepted; give NAME=DIM,DIM,...", whole);
        out->dim[out->rank++] = d;
    }
    return 0;
}

/* The shape option for `io`, if any: 1 found, 0 none. */
static int shape_option(const struct inputs_generate *g, const struct kserve_io *io, struct shape *out, struct error *err)
{
    for (size_t i = 0; i < g->shapes.n; i++) {
        const char *equals = strrchr(g->shapes.v[i], '=');
        if (!equals)
            return error_set(err, STATUS_INVALID, "--shape: '%s' is not accepted; give NAME=DIM,DIM,...", g->shapes.v[i]);
        if (!str_eq((struct str){g->shapes.v[i], (size_t)(equals - g->shapes.v[i])}, io->name))
            continue;
        int rc = parse_dims(str_of(equals + 1), out, err, g->shapes.v[i]);
        return rc < 0 ? rc : 1;
    }
    return 0;
}

static void fill_whole(struct inputs_generate *g, enum dtype t, uint8_t *p, size_t width)
{
    double top = t == DTYPE_INT8 ? 128 : t == DTYPE_UINT8 ? 256 : t == DTYPE_INT16 ? 32768 : t == DTYPE_UINT16 ? 65536 : 1e18;
    uint64_t v = (uint64_t)(rand_f64(&g->rand) * MIN_OF(g->int_below, top));
    memcpy(p, &v, width);
}

static void fill_one(struct inputs_generate *g, enum dtype t, uint8_t *p)
{
    double d = rand_f64(&g->rand);
    float f = (float)d;
    uint16_t half = t == DTYPE_FP16 ? f32_to_f16(f) : f32_to_bf16(f);
    switch (t) {
    case DTYPE_BOOL:
        *p = d < 0.5;
        break;
    case DTYPE_FP64:
        memcpy(p, &d, 8);
        break;
    case DTYPE_FP32:
        memcpy(p, &f, 4);
        break;
    case DTYPE_FP16:
    case DTYPE_BF16:
        memcpy(p, &half, 2);
        break;
    default:
        fill_whole(g, t, p, dtype_bytes(t));
    }
}

#define RANDOM_STRING_BYTES 16

static int generate_data(struct inputs_generate *g, struct tensor *t, struct error *err)
{
    uint64_t elements;
    size_t element = t->dtype == DTYPE_BYTES ? 4 + (g->zero ? 0 : RANDOM_STRING_BYTES) : dtype_bytes(t->dtype), bytes;
    bool fits = shape_elements(&t->shape, &elements) && elements <= SIZE_MAX && size_mul((size_t)elements, element, &bytes);
    struct slab *s = fits && bytes < (size_t)1 << 32 ? slab_create(bytes ? bytes : 1) : NULL;
    if (!s)
        return error_set(err, STATUS_NOMEM, "an input of that shape does not fit into memory");
    memset(s->data, 0, bytes);
    s->n = bytes;
    t->data = (struct slice){s->data, bytes, s};
    for (uint64_t i = 0; i < elements && !g->zero; i++) {
        uint8_t *p = s->data + i * element;
        uint32_t n = RANDOM_STRING_BYTES;
        if (t->dtype != DTYPE_BYTES) {
            fill_one(g, t->dtype, p);
            continue;
        }
        memcpy(p, &n, 4);
        for (uint32_t k = 0; k < n; k++)
            p[4 + k] = (uint8_t)('a' + rand_below(&g->rand, 26));
    }
    return 0;
}

static int generate_one(struct inputs *in, const struct kserve_model *m, const struct kserve_io *io, struct inputs_generate *g,
                        struct error *err)
{
    struct tensor t = {.dtype = io->dtype};
    int given = shape_option(g, io, &t.shape, err);
    if (given < 0)
        return given;
    if (!given && io->optional)
        return 0;
    for (int d = 0; !given && d < io->shape.rank; d++) {
        bool batch = d == 0 && (m->max_batch > 0 || io->shape.dim[0] == TENSOR_DIM_DYNAMIC);
        int64_t dim = batch ? g->rows : io->shape.dim[d];
        t.shape.dim[t.shape.rank++] = dim < 0 ? g->dynamic : dim;
    }
    int rc = generate_data(g, &t, err);
    return rc == 0 ? inputs__put(in, io, &t, err) : rc;
}

int inputs_generate(struct inputs *in, const struct kserve_model *m, struct inputs_generate *g, struct error *err)
{
    for (size_t i = 0; i < g->shapes.n; i++) {
        const char *equals = strrchr(g->shapes.v[i], '=');
        if (equals && !inputs__find(m, (struct str){g->shapes.v[i], (size_t)(equals - g->shapes.v[i])}, err))
            return STATUS_NOT_FOUND;
    }
    int rc = 0;
    for (size_t i = 0; i < m->n_inputs && rc == 0; i++)
        if (!inputs__has(in, m->inputs[i].name))
            rc = generate_one(in, m, &m->inputs[i], g, err);
    return rc;
}

/* ---- JSON ---- */

/* Nested lists say their shape; the data check finds ragged ones, since the counts then disagree. */
static void shape_of(yyjson_val *v, struct shape *out)
{
    *out = (struct shape){0};
    while (yyjson_is_arr(v) && out->rank < TENSOR_RANK_MAX) {
        out->dim[out->rank++] = (int64_t)yyjson_arr_size(v);
        v = yyjson_arr_get_first(v);
    }
}

static int64_t fixed_elements(const struct shape *s)
{
    uint64_t n;
    return shape_elements(s, &n) && n <= INT64_MAX ? (int64_t)n : -1;
}

int inputs__put_json(struct inputs *in, const struct kserve_io *io, yyjson_val *v, struct error *err)
{
    struct tensor t = {.name = io->name, .dtype = io->dtype};
    shape_of(v, &t.shape);
    struct shape one = io->shape;
    if (one.rank && one.dim[0] == TENSOR_DIM_DYNAMIC)
        one.dim[0] = 1;
    if (t.shape.rank <= 1 && io->shape.rank > 1 && fixed_elements(&one) == (t.shape.rank ? t.shape.dim[0] : 1))
        t.shape = one; /* flat data of a fixed shape, or a bare number */
    inputs__add_batch_axis(io, &t.shape);
    int rc = kserve_json_data(v, &t, err);
    return rc == 0 ? inputs__put(in, io, &t, err) : rc;
}

int inputs_add_json(struct inputs *in, const struct kserve_model *m, const char *text, struct error *err)
{
    struct json j;
    const char *equals = strchr(text, '=');
    if (!equals)
        return error_set(err, STATUS_INVALID, "'%s' is not accepted; give NAME=JSON", text);
    const struct kserve_io *io = inputs__find(m, (struct str){text, (size_t)(equals - text)}, err);
    if (!io)
        return STATUS_NOT_FOUND;
    int rc = json_parse(&j, str_of(equals + 1), NULL, err);
    if (rc < 0)
        return error_prefix(err, "input '%.*s'", STR_ARG(io->name));
    rc = inputs__put_json(in, io, j.root, err);
    json_release(&j);
    return rc;
}
