/* scan.c: the protobuf walk.
 *
 * Each message type has a function that loops over fields and looks at the few numbers it knows; everything else is skipped by its
 * length. A known field with an unexpected wire type is skipped too, as protobuf itself does. Groups (wire types 3 and 4) don't
 * occur in ONNX and are refused. Depth counts messages, with protobuf's own limit of 100. Each byte is looked at once a level
 * of the messages walked into, so time is linear in the file. */
#include "engine/onnx/scan.h"

#include <string.h>

#include "base/map.h"
#include "base/size.h"
#include "base/status.h"

#define DEPTH_MAX 100
#define LIST_MAX  4096 /* of opsets, metadata, external files, inputs, outputs, each */

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct field {
    uint32_t number;
    int wire;
    uint64_t value;   /* varint */
    struct str bytes; /* WIRE_BYTES; WIRE_32, WIRE_64: the raw bytes */
};

struct walk {
    struct onnx_scan *out;
    struct arena *arena;
    struct error *err;
    struct onnx_pair **opset_end, **metadata_end, **external_end;
    struct onnx_value **input_end, **output_end;
    size_t n_opsets, n_metadata;
    struct map seen; /* external locations so far */
    int depth;
};

static int malformed(struct walk *w)
{
    return error_set(w->err, STATUS_INVALID, "the file is not a readable ONNX model (its protobuf is cut or damaged)");
}

static bool read_varint(struct str *s, uint64_t *out)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64 && s->n; shift += 7) {
        uint8_t b = (uint8_t)*s->p;
        s->p++, s->n--;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            *out = v;
            return true;
        }
    }
    return false;
}

/* Next field of a message: 1 with `f` filled, 0 at the end, negative when malformed. */
static int next_field(struct walk *w, struct str *s, struct field *f)
{
    uint64_t tag, n;
    if (s->n == 0)
        return 0;
    *f = (struct field){0};
    if (!read_varint(s, &tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
        return malformed(w);
    f->number = (uint32_t)(tag >> 3);
    f->wire = (int)(tag & 7);
    switch (f->wire) {
    case WIRE_VARINT:
        return read_varint(s, &f->value) ? 1 : malformed(w);
    case WIRE_64:
        n = 8;
        break;
    case WIRE_32:
        n = 4;
        break;
    case WIRE_BYTES:
        if (!read_varint(s, &n))
            return malformed(w);
        break;
    default:
        return malformed(w);
    }
    if (n > s->n)
        return malformed(w);
    f->bytes = (struct str){s->p, (size_t)n};
    s->p += n, s->n -= n;
    return 1;
}

typedef int (*walk_fn)(struct walk *w, struct str s, void *arg);

static int descend(struct walk *w, walk_fn fn, struct str s, void *arg)
{
    if (++w->depth > DEPTH_MAX)
        return error_set(w->err, STATUS_INVALID, "the ONNX model nests deeper than %d messages", DEPTH_MAX);
    int rc = fn(w, s, arg);
    w->depth--;
    return rc;
}

static bool is_bytes(const struct field *f, uint32_t number)
{
    return f->number == number && f->wire == WIRE_BYTES;
}
static bool is_varint(const struct field *f, uint32_t number)
{
    return f->number == number && f->wire == WIRE_VARINT;
}

static struct onnx_pair *add_pair(struct walk *w, struct onnx_pair ***end, size_t *n, const char *what)
{
    if (++*n > LIST_MAX) {
        error_set(w->err, STATUS_INVALID, "the ONNX model has more than %d %s", LIST_MAX, what);
        return NULL;
    }
    struct onnx_pair *p = ARENA_NEW(w->arena, struct onnx_pair);
    if (!p) {
        error_set(w->err, STATUS_NOMEM, "no memory to read the ONNX model");
        return NULL;
    }
    **end = p;
    *end = &p->next;
    return p;
}

static int pair_failed(struct walk *w, size_t n)
{
    return n > LIST_MAX || !w->err ? STATUS_INVALID : w->err->code;
}

static int read_pair(struct walk *w, struct str s, void *arg)
{
    struct onnx_pair *p = arg;
    struct field f;
    int rc;
    while ((rc = next_field(w, &s, &f)) > 0) {
        if (is_bytes(&f, 1))
            p->key = f.bytes;
        else if (is_bytes(&f, 2))
            p->value = f.bytes;
        else if (is_varint(&f, 2))
            p->number = (int64_t)f.value;
    }
    return rc;
}

/* ---- tensors ---- */

static int add_external(struct walk *w, struct str location)
{
    if (map_get(&w->seen, location))
        return STATUS_OK;
    struct onnx_pair *p = add_pair(w, &w->external_end, &w->out->n_external, "external data files");
    if (!p)
        return pair_failed(w, w->out->n_external);
    p->value = location;
    if (map_put(&w->seen, location, p))
        return error_set(w->err, STATUS_NOMEM, "no memory to read the ONNX model");
    return STATUS_OK;
}

/* Field numbers of typed data: float 4, int32 5, string 6, int64 7, raw 9, double 10, uint64 11. Scalars outside packed fields
 * come one field each and are counted by their wire size. `arg` is not NULL for the main graph's initializers. */
static int walk_tensor(struct walk *w, struct str s, void *arg)
{
    struct field f;
    int rc;
    while ((rc = next_field(w, &s, &f)) > 0) {
        switch (f.number) {
        case 4:
        case 5:
        case 6:
        case 7:
        case 9:
        case 10:
        case 11:
            w->out->initializer_bytes += f.wire == WIRE_VARINT ? 8 : f.bytes.n;
            break;
        case 13:
            if (f.wire == WIRE_BYTES) {
                struct onnx_pair entry = {0};
                rc = descend(w, read_pair, f.bytes, &entry);
                if (!rc && str_eqz(entry.key, "location"))
                    rc = add_external(w, entry.value);
                if (!rc && str_eqz(entry.key, "location") && !arg)
                    w->out->external_inside = entry.value;
                if (rc)
                    return rc;
            }
            break;
        default:
            break;
        }
    }
    return rc;
}

static int walk_sparse(struct walk *w, struct str s, void *arg)
{
    (void)arg;
    struct field f;
    int rc;
    while ((rc = next_field(w, &s, &f)) > 0)
        if ((is_bytes(&f, 1) || is_bytes(&f, 2)) && (rc = descend(w, walk_tensor, f.bytes, NULL)))
            return rc;
    return rc;
}

/* ---- graphs ---- */

static int walk_graph(struct walk *w, struct str s, void *arg);

static int walk_attribute(struct walk *w, struct str s, void *arg)
{
    (void)arg;
    struct field f;
    int rc;
    while ((rc = next_field(w, &s, &f)) > 0) {
        walk_fn fn = NULL;
        if (f.wire == WIRE_BYTES)
            fn = f.number == 5 || f.number == 10    ? walk_tensor
                 : f.number == 6 || f.number == 11  ? walk_graph
                 : f.number == 22 || f.number == 23 ? walk_sparse
                                                    : NULL;
        if (fn && (rc = descend(w, fn, f.bytes, NULL)))
            return rc;
    }
    return rc;
}

static int walk_node(struct walk *w, struct str s, void *arg)
{
    (void)arg;
    struct field f;
    int rc;
    w->out->n_nodes++;
    while ((rc = next_field(w, &s, &f)) > 0) {
        if (is_bytes(&f, 4) && str_eqz(f.bytes, "EPContext"))
            w->out->compiled_context = true;
        if (is_bytes(&f, 5) && (rc = descend(w, walk_attribute, f.bytes, NULL)))
            return rc;
    }
    return rc;
}

static int walk_function(struct walk *w, struct str s, void *arg)
{
    (void)arg;
    struct field f;
    int rc;
    while ((rc = next_field(w, &s, &f)) > 0) {
        walk_fn fn = is_bytes(&f, 7) ? walk_node : is_bytes(&f, 11) ? walk_attribute : NULL;
        if (fn && (rc = descend(w, fn, f.bytes, NULL)))
            return rc;
    }
    return rc;
}

static int read_dim(struct walk *w, struct str s, void *arg)
{
    struct onnx_value *v = arg;
    struct field f;
    int rc;
    int64_t dim = TENSOR_DIM_DYNAMIC;
    struct str name = {0};
    while ((rc = next_field(w, &s, &f)) > 0) { /* a oneof: the last one counts */
        if (is_varint(&f, 1))
            dim = (int64_t)f.value, name = (struct str){0};
        else if (is_bytes(&f, 2))
            dim = TENSOR_DIM_DYNAMIC, name = f.bytes;
    }
    if (v->rank < TENSOR_RANK_MAX) {
        v->dim[v->rank] = dim < 0 ? TENSOR_DIM_DYNAMIC : dim;
        v->dim_names[v->rank] = name;
    }
    v->rank++;
    return rc;
}

static int read_shape(struct walk *w, struct str s, void *arg)
{
    struct onnx_value *v = arg;
    struct field f;
    int rc;
    v->has_shape = true;
    while ((rc = next_field(w, &s, &f)) > 0)
        if (is_bytes(&f, 1) && (rc = descend(w, read_dim, f.bytes, v)))
            return rc;
    return rc;
}

static int read_tensor_type(struct walk *w, struct str s, void *arg)
{
    struct onnx_value *v = arg;
    struct field f;
    int rc;
    while ((rc = next_field(w, &s, &f)) > 0) {
        if (is_varint(&f, 1))
            v->elem_type = (int32_t)f.value;
        else if (is_bytes(&f, 2) && (rc = descend(w, read_shape, f.bytes, v)))
            return rc;
    }
    return rc;
}

static int read_type(struct walk *w, struct str s, void *arg)
{
    static const enum onnx_kind kinds[] = {[1] = ONNX_KIND_TENSOR, [4] = ONNX_KIND_SEQUENCE, [5] = ONNX_KIND_MAP,
                                           [7] = ONNX_KIND_OPAQUE, [8] = ONNX_KIND_SPARSE,   [9] = ONNX_KIND_OPTIONAL};
    struct onnx_value *v = arg;
    struct field f;
    int rc;
    while ((rc = next_field(w, &s, &f)) > 0) {
        if (f.wire == WIRE_BYTES && f.number < COUNT_OF(kinds) && kinds[f.number] != ONNX_KIND_NONE)
            v->kind = kinds[f.number];
        if (is_bytes(&f, 1) && (rc = descend(w, read_tensor_type, f.bytes, v)))
            return rc;
    }
    return rc;
}

static int read_value(struct walk *w, struct str s, void *arg)
{
    struct onnx_value *v = arg;
    struct field f;
    int rc;
    while ((rc = next_field(w, &s, &f)) > 0) {
        if (is_bytes(&f, 1))
            v->name = f.bytes;
        else if (is_bytes(&f, 2) && (rc = descend(w, read_type, f.bytes, v)))
            return rc;
    }
    return rc;
}

static int add_value(struct walk *w, struct str s, struct onnx_value ***end, size_t *n, const char *what)
{
    if (++*n > LIST_MAX)
        return error_set(w->err, STATUS_INVALID, "the ONNX model has more than %d %s", LIST_MAX, what);
    struct onnx_value *v = ARENA_NEW(w->arena, struct onnx_value);
    if (!v)
        return error_set(w->err, STATUS_NOMEM, "no memory to read the ONNX model");
    **end = v;
    *end = &v->next;
    return descend(w, read_value, s, v);
}

/* `arg` is not NULL for the main graph, whose inputs and outputs are the model's. */
static int walk_graph(struct walk *w, struct str s, void *arg)
{
    struct field f;
    int rc;
    while ((rc = next_field(w, &s, &f)) > 0) {
        if (f.wire != WIRE_BYTES)
            continue;
        if (f.number == 1)
            rc = descend(w, walk_node, f.bytes, NULL);
        else if (f.number == 5)
            rc = descend(w, walk_tensor, f.bytes, arg);
        else if (f.number == 15)
            rc = descend(w, walk_sparse, f.bytes, NULL);
        else if (arg && f.number == 2)
            w->out->graph_name = f.bytes, rc = 0;
        else if (arg && f.number == 11)
            rc = add_value(w, f.bytes, &w->input_end, &w->out->n_inputs, "inputs");
        else if (arg && f.number == 12)
            rc = add_value(w, f.bytes, &w->output_end, &w->out->n_outputs, "outputs");
        else
            rc = 0;
        if (rc)
            return rc;
    }
    return rc;
}

static int model_pair(struct walk *w, struct str s, struct onnx_pair ***end, size_t *n, const char *what)
{
    struct onnx_pair *p = add_pair(w, end, n, what);
    return p ? descend(w, read_pair, s, p) : pair_failed(w, *n);
}

static int model_field(struct walk *w, const struct field *f)
{
    struct onnx_scan *o = w->out;
    if (is_varint(f, 1))
        o->ir_version = (int64_t)f->value;
    else if (is_varint(f, 5))
        o->model_version = (int64_t)f->value;
    if (f->wire != WIRE_BYTES)
        return STATUS_OK;
    switch (f->number) {
    case 2:
        o->producer = f->bytes;
        return STATUS_OK;
    case 3:
        o->producer_version = f->bytes;
        return STATUS_OK;
    case 4:
        o->domain = f->bytes;
        return STATUS_OK;
    case 6:
        o->doc = f->bytes;
        return STATUS_OK;
    case 7:
        return descend(w, walk_graph, f->bytes, o);
    case 8:
        return model_pair(w, f->bytes, &w->opset_end, &w->n_opsets, "opset imports");
    case 14:
        return model_pair(w, f->bytes, &w->metadata_end, &w->n_metadata, "metadata entries");
    case 25:
        return descend(w, walk_function, f->bytes, NULL);
    default:
        return STATUS_OK;
    }
}

static int walk_model(struct walk *w, struct str bytes)
{
    struct field f;
    int rc;
    while ((rc = next_field(w, &bytes, &f)) > 0)
        if ((rc = model_field(w, &f)))
            return rc;
    if (!rc && (w->out->ir_version <= 0 || (!w->out->n_outputs && !w->out->n_nodes)))
        return error_set(w->err, STATUS_INVALID, "the file is not an ONNX model (it has no IR version or no graph)");
    return rc;
}

int onnx_scan(struct str bytes, struct arena *a, struct onnx_scan *out, struct error *err)
{
    struct error local;
    *out = (struct onnx_scan){0};
    struct walk w = {.out = out,
                     .arena = a,
                     .err = err ? err : &local,
                     .opset_end = &out->opsets,
                     .metadata_end = &out->metadata,
                     .external_end = &out->external,
                     .input_end = &out->inputs,
                     .output_end = &out->outputs};
    map_init(&w.seen, 0);
    int rc = walk_model(&w, bytes);
    map_release(&w.seen);
    return rc;
}

enum dtype onnx_dtype(int32_t elem_type)
{
    static const enum dtype types[] = {
        [1] = DTYPE_FP32,  [2] = DTYPE_UINT8,   [3] = DTYPE_INT8,    [4] = DTYPE_UINT16, [5] = DTYPE_INT16,
        [6] = DTYPE_INT32, [7] = DTYPE_INT64,   [8] = DTYPE_BYTES,   [9] = DTYPE_BOOL,   [10] = DTYPE_FP16,
        [11] = DTYPE_FP64, [12] = DTYPE_UINT32, [13] = DTYPE_UINT64, [16] = DTYPE_BF16};
    return elem_type >= 0 && (size_t)elem_type < COUNT_OF(types) ? types[elem_type] : DTYPE_INVALID;
}

const char *onnx_type_name(int32_t elem_type)
{
    static const char *const names[] = {
        "UNDEFINED", "FLOAT",      "UINT8",      "INT8",         "UINT16",         "INT16",      "INT32",
        "INT64",     "STRING",     "BOOL",       "FLOAT16",      "DOUBLE",         "UINT32",     "UINT64",
        "COMPLEX64", "COMPLEX128", "BFLOAT16",   "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ",
        "UINT4",     "INT4",       "FLOAT4E2M1", "FLOAT8E8M0",   "UINT2",          "INT2"};
    return elem_type >= 0 && (size_t)elem_type < COUNT_OF(names) ? names[elem_type] : "an unknown type";
}

static int check_value(const struct onnx_value *v, const char *what, struct error *err)
{
    static const char *const kinds[] = {[ONNX_KIND_NONE] = "a value without a type",
                                        [ONNX_KIND_SEQUENCE] = "a sequence",
                                        [ONNX_KIND_MAP] = "a map",
                                        [ONNX_KIND_OPTIONAL] = "an optional",
                                        [ONNX_KIND_SPARSE] = "a sparse tensor",
                                        [ONNX_KIND_OPAQUE] = "an opaque value"};
    if (v->kind != ONNX_KIND_TENSOR)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s '%.*s' is %s; only models whose inputs and outputs are dense tensors can be served", what,
                         STR_ARG(v->name), kinds[v->kind]);
    if (onnx_dtype(v->elem_type) == DTYPE_INVALID)
        return error_set(err, STATUS_UNIMPLEMENTED, "%s '%.*s' has elements of %s, which the protocol has no datatype for",
                         what, STR_ARG(v->name), onnx_type_name(v->elem_type));
    if (v->rank > TENSOR_RANK_MAX)
        return error_set(err, STATUS_UNIMPLEMENTED, "%s '%.*s' has %zu dims, at most %d are possible", what, STR_ARG(v->name),
                         v->rank, TENSOR_RANK_MAX);
    return STATUS_OK;
}

int onnx_scan_check(const struct onnx_scan *s, struct error *err)
{
    int rc = STATUS_OK;
    for (const struct onnx_value *v = s->inputs; v && !rc; v = v->next)
        rc = check_value(v, "input", err);
    for (const struct onnx_value *v = s->outputs; v && !rc; v = v->next)
        rc = check_value(v, "output", err);
    if (!rc && s->compiled_context)
        rc = error_set(err, STATUS_UNIMPLEMENTED,
                       "the model holds a context compiled for one device (EPContext); serve the model it was made from");
    return rc;
}
