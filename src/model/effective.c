/* effective.c: what a version's configuration comes to once file and config are merged: the answer to GET .../config.
 *
 * Clients (perf_analyzer, tritonclient) plan by it, so nothing may be left unsaid: every input and output with Triton's type name and
 * its dims behind the batch axis, the batch size, the batching block, the instance count. */
#include "base/status.h"
#include "model/contract_priv.h"

/* The config's own entry for this tensor carries padding and labels that the model file has not; it is the base. */
static struct config_io base_of(const struct config_io *v, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(v[i].name, name))
            return v[i];
    struct config_io io = {.name = name, .n_dims = -1};
    for (size_t i = 0; i < COUNT_OF(io.cut_axis); i++)
        io.cut_axis[i] = -1;
    return io;
}

static const char *triton_type(enum dtype t, struct arena *a)
{
    return t == DTYPE_BYTES ? "TYPE_STRING" : arena_printf(a, "TYPE_%s", dtype_name(t));
}

static struct config_io *fill(const struct engine_io *io, size_t n, const struct config_io *given, size_t n_given,
                              bool batch_axis, struct arena *a)
{
    struct config_io *out = arena_array(a, n ? n : 1, sizeof *out);
    for (size_t i = 0; out && i < n; i++) {
        const char *type = triton_type(io[i].dtype, a);
        out[i] = base_of(given, n_given, io[i].name);
        if (!type)
            return NULL;
        out[i].data_type = str_of(type);
        out[i].optional = io[i].optional;
        out[i].n_dims = 0;
        for (int d = batch_axis ? 1 : 0; d < io[i].shape.rank; d++)
            out[i].dims[out[i].n_dims++] = io[i].shape.dim[d];
    }
    return out;
}

int contract_effective(const struct contract *c, struct str model, const char *backend, struct arena *a,
                       struct model_config *cfg, struct error *err)
{
    const struct engine_contract *k = &c->c;
    struct config_io *inputs = fill(k->inputs, k->n_inputs, cfg->inputs, cfg->n_inputs, c->max_batch > 0, a);
    struct config_io *outputs = fill(k->outputs, k->n_outputs, cfg->outputs, cfg->n_outputs, c->max_batch > 0, a);
    if (!inputs || !outputs)
        return error_set(err, STATUS_NOMEM, "no memory for the model's configuration");
    cfg->name = model;
    if (!cfg->platform.n)
        cfg->platform = str_of(k->platform);
    if (!cfg->backend.n)
        cfg->backend = str_of(backend);
    cfg->max_batch_size = c->max_batch;
    cfg->inputs = inputs;
    cfg->n_inputs = k->n_inputs;
    cfg->outputs = outputs;
    cfg->n_outputs = k->n_outputs;
    if (cfg->batching == CONFIG_BATCHING_UNSET)
        cfg->batching = c->max_batch > 1 ? CONFIG_BATCHING_DEADLINE : CONFIG_BATCHING_NONE;
    if (cfg->max_queue_delay_us == UINT64_MAX)
        cfg->max_queue_delay_us = 0;
    return 0;
}
