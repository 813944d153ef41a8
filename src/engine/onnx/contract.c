/* contract.c: what a loaded session takes and gives.
 *
 * The session is the authority (it knows shapes that it inferred); the scan was only the gate before it. The batch axis: axis 0 of
 * every input and output must be dynamic. Among inputs, names that differ ("batch", "length") say that the axes differ. An
 * output's name may differ from the inputs' (exporters make up new names for every output), unless it is the name of
 * another input axis: then it is that axis. */
#include <string.h>

#include "base/status.h"
#include "engine/onnx/onnx_priv.h"

enum side { INPUT, OUTPUT, OVERRIDABLE };

static OrtStatus *get_name(struct engine_model *m, enum side side, size_t i, char **out)
{
    const OrtApi *api = m->e->api;
    return side == INPUT    ? api->SessionGetInputName(m->session, i, m->e->allocator, out)
           : side == OUTPUT ? api->SessionGetOutputName(m->session, i, m->e->allocator, out)
                            : api->SessionGetOverridableInitializerName(m->session, i, m->e->allocator, out);
}

static OrtStatus *get_type(struct engine_model *m, enum side side, size_t i, OrtTypeInfo **out)
{
    const OrtApi *api = m->e->api;
    return side == INPUT    ? api->SessionGetInputTypeInfo(m->session, i, out)
           : side == OUTPUT ? api->SessionGetOutputTypeInfo(m->session, i, out)
                            : api->SessionGetOverridableInitializerTypeInfo(m->session, i, out);
}

static int keep_text(struct engine_model *m, const char *z, struct str *out, struct error *err)
{
    char *copy = arena_strdup(&m->arena, str_of(z));
    if (!copy)
        return error_set(err, STATUS_NOMEM, "no memory for the model's contract");
    *out = (struct str){copy, strlen(copy)};
    return STATUS_OK;
}

static int read_dims(struct engine_model *m, const OrtTensorTypeAndShapeInfo *info, struct engine_io *io, struct error *err)
{
    const OrtApi *api = m->e->api;
    size_t rank;
    const char *symbols[TENSOR_RANK_MAX];
    int rc = onnx__take(api, api->GetDimensionsCount(info, &rank), ONNX_CALLING, err, "the model's shapes");
    if (rc)
        return rc;
    if (rank > TENSOR_RANK_MAX)
        return error_set(err, STATUS_UNIMPLEMENTED, "'%.*s' has %zu dims, at most %d are possible", STR_ARG(io->name), rank,
                         TENSOR_RANK_MAX);
    io->shape.rank = (uint8_t)rank;
    rc = onnx__take(api, api->GetDimensions(info, io->shape.dim, rank), ONNX_CALLING, err, "the model's shapes");
    if (!rc)
        rc = onnx__take(api, api->GetSymbolicDimensions(info, symbols, rank), ONNX_CALLING, err, "the model's shapes");
    for (size_t d = 0; d < rank && !rc; d++) {
        if (io->shape.dim[d] >= 0)
            continue;
        io->shape.dim[d] = TENSOR_DIM_DYNAMIC;
        if (symbols[d] && symbols[d][0])
            rc = keep_text(m, symbols[d], &io->dim_names[d], err);
    }
    return rc;
}

static int read_io(struct engine_model *m, enum side side, size_t i, struct engine_io *io, ONNXTensorElementDataType *type,
                   const char **name, struct error *err)
{
    const OrtApi *api = m->e->api;
    char *text = NULL;
    OrtTypeInfo *info = NULL;
    const OrtTensorTypeAndShapeInfo *tensor = NULL;
    int rc = onnx__take(api, get_name(m, side, i, &text), ONNX_CALLING, err, "the model's names");
    if (!rc) {
        rc = keep_text(m, text, &io->name, err);
        *name = io->name.p;
        m->e->allocator->Free(m->e->allocator, text);
    }
    if (!rc)
        rc = onnx__take(api, get_type(m, side, i, &info), ONNX_CALLING, err, "the model's types");
    if (!rc)
        rc = onnx__take(api, api->CastTypeInfoToTensorInfo(info, &tensor), ONNX_CALLING, err, "the model's types");
    if (!rc && !tensor)
        rc = error_set(err, STATUS_UNIMPLEMENTED, "'%.*s' is not a dense tensor", STR_ARG(io->name));
    if (!rc)
        rc = onnx__take(api, api->GetTensorElementType(tensor, type), ONNX_CALLING, err, "the model's types");
    if (!rc && (io->dtype = onnx_dtype((int32_t)*type)) == DTYPE_INVALID)
        rc = error_set(err, STATUS_UNIMPLEMENTED, "'%.*s' has elements of %s, which the protocol has no datatype for",
                       STR_ARG(io->name), onnx_type_name((int32_t)*type));
    if (!rc)
        rc = read_dims(m, tensor, io, err);
    if (info)
        api->ReleaseTypeInfo(info);
    io->optional = side == OVERRIDABLE;
    return rc;
}

static bool dim0_dynamic(const struct engine_io *io)
{
    return io->shape.rank > 0 && io->shape.dim[0] == TENSOR_DIM_DYNAMIC;
}

/* Is `name` a dynamic axis other than axis 0 of some input? */
static bool names_other_axis(const struct engine_model *m, struct str name)
{
    for (size_t i = 0; i < m->contract.n_inputs; i++)
        for (size_t d = 1; d < m->inputs[i].shape.rank; d++)
            if (str_eq(m->inputs[i].dim_names[d], name))
                return true;
    return false;
}

static bool is_batchable(const struct engine_model *m)
{
    struct str name = {0};
    for (size_t i = 0; i < m->contract.n_inputs; i++) {
        struct str own = m->inputs[i].dim_names[0];
        if (!dim0_dynamic(&m->inputs[i]) || (own.n && name.n && !str_eq(own, name)))
            return false;
        if (own.n)
            name = own;
    }
    for (size_t i = 0; i < m->contract.n_outputs; i++) {
        struct str own = m->outputs[i].dim_names[0];
        if (!dim0_dynamic(&m->outputs[i]) || (own.n && !str_eq(own, name) && names_other_axis(m, own)))
            return false;
    }
    return m->contract.n_inputs > 0;
}

static int make_arrays(struct engine_model *m, size_t n_in, size_t n_out, struct error *err)
{
    m->inputs = arena_array(&m->arena, n_in, sizeof m->inputs[0]);
    m->outputs = arena_array(&m->arena, n_out, sizeof m->outputs[0]);
    m->input_names = arena_array(&m->arena, n_in, sizeof m->input_names[0]);
    m->output_names = arena_array(&m->arena, n_out, sizeof m->output_names[0]);
    m->input_types = arena_array(&m->arena, n_in, sizeof m->input_types[0]);
    if (!m->inputs || !m->outputs || !m->input_names || !m->output_names || !m->input_types)
        return error_set(err, STATUS_NOMEM, "no memory for the model's contract");
    return STATUS_OK;
}

int onnx__contract_read(struct engine_model *m, const struct onnx_scan *scan, bool optional_inputs, struct error *err)
{
    const OrtApi *api = m->e->api;
    size_t n_in = 0, n_extra = 0, n_out = 0;
    int rc = onnx__take(api, api->SessionGetInputCount(m->session, &n_in), ONNX_CALLING, err, "the model's inputs");
    if (!rc && optional_inputs)
        rc = onnx__take(api, api->SessionGetOverridableInitializerCount(m->session, &n_extra), ONNX_CALLING, err,
                        "the model's inputs");
    if (!rc)
        rc = onnx__take(api, api->SessionGetOutputCount(m->session, &n_out), ONNX_CALLING, err, "the model's outputs");
    if (!rc)
        rc = make_arrays(m, n_in + n_extra, n_out, err);
    ONNXTensorElementDataType type;
    for (size_t i = 0; i < n_in + n_extra && !rc; i++)
        rc = i < n_in ? read_io(m, INPUT, i, &m->inputs[i], &m->input_types[i], &m->input_names[i], err)
                      : read_io(m, OVERRIDABLE, i - n_in, &m->inputs[i], &m->input_types[i], &m->input_names[i], err);
    for (size_t i = 0; i < n_out && !rc; i++)
        rc = read_io(m, OUTPUT, i, &m->outputs[i], &type, &m->output_names[i], err);
    char *doc = rc ? NULL : arena_strdup(&m->arena, scan->doc);
    if (!rc && !doc)
        rc = error_set(err, STATUS_NOMEM, "no memory for the model's contract");
    if (rc)
        return rc;
    m->contract = (struct engine_contract){
        .face = ENGINE_BATCH,
        .platform = "onnxruntime_onnx",
        .inputs = m->inputs,
        .outputs = m->outputs,
        .n_inputs = n_in + n_extra,
        .n_outputs = n_out,
        .description = {doc, scan->doc.n},
        .devices = m->devices,
    };
    m->contract.batchable = is_batchable(m);
    return STATUS_OK;
}
