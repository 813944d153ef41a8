/* check.c: `inferd check`: what would be served, and where each value comes from. Loads each model's file to read its contract, but
 * makes no instance and serves nothing. One model's trouble is printed with it and does not stop the others. */
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "model/registry_priv.h"
#include "os/dir.h"

static const char *source(bool from_config)
{
    return from_config ? "config" : "model file";
}

static void print_io(struct buf *out, const struct contract *c, const struct engine_io *io, const struct input_rule *rule,
                     const char *what, bool in_config)
{
    char shape[256];
    buf_printf(out, "    %-7s %-24.*s %-6s [%s]%s  (%s)\n", what, STR_ARG(io->name), dtype_name(io->dtype),
               contract_shape(c, io, shape, sizeof shape), io->optional ? " optional" : "", source(in_config));
    for (int k = 0; rule && k < rule->n_pad; k++) {
        const struct pad_rule *p = &rule->pad[k];
        buf_printf(out, "            axis %d is padded to ", p->axis);
        for (int b = 0; b < p->n_buckets; b++)
            buf_printf(out, "%s%lld", b ? ", " : "", (long long)p->buckets[b]);
        buf_append_z(out, p->n_buckets ? "\n" : "powers of two\n");
    }
    if (rule && rule->mask_of >= 0)
        buf_printf(out, "            is the mask of \"%.*s\": made when left out\n", STR_ARG(c->c.inputs[rule->mask_of].name));
}

static bool in_list(const struct config_io *list, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(list[i].name, name))
            return true;
    return false;
}

static void print_policy(struct buf *out, const struct contract *c, const struct model_config *cfg,
                         uint64_t default_deadline_ms)
{
    struct batch_policy p;
    contract_policy(c, cfg, &p);
    static const char *const modes[] = {"none: every request runs alone", "fixed (Triton's rules)", "deadline (learned)"};
    if (c->max_batch)
        buf_printf(out, "    batch   1..%u (%s)\n", c->max_batch,
                   c->max_batch_declared ? "config" : "default for a model with a dynamic first axis");
    else
        buf_printf(out, "    batch   none (%s)\n", c->max_batch_declared ? "config" : "the model has no dynamic first axis");
    buf_printf(out, "    policy  %s, added wait at most %llu us%s\n", modes[p.mode],
               (unsigned long long)(p.max_queue_delay_ns / 1000),
               p.mode == BATCH_DEADLINE && !p.max_queue_delay_ns ? " beyond what is learned" : "");
    buf_printf(out, "    queue   %u rows", p.max_queue_rows ? p.max_queue_rows : 64 * p.max_rows);
    if (p.max_queue_bytes)
        buf_printf(out, ", %llu bytes", (unsigned long long)p.max_queue_bytes);
    uint64_t deadline = cfg->default_deadline_ms ? cfg->default_deadline_ms : default_deadline_ms;
    uint32_t min = cfg->instances_min ? cfg->instances_min : 1;
    buf_printf(out, "; instances %u..%u; default deadline ", min, MAX_OF(min, cfg->instances_max));
    if (deadline)
        buf_printf(out, "%llu ms\n", (unsigned long long)deadline);
    else
        buf_append_z(out, "none\n");
}

static void print_contract(struct buf *out, const struct contract *c, const struct model_config *cfg,
                           uint64_t default_deadline_ms)
{
    buf_printf(out, "    serves  %s on %s\n", c->c.platform, c->c.devices ? c->c.devices : "cpu");
    for (size_t i = 0; i < c->c.n_inputs; i++)
        print_io(out, c, &c->c.inputs[i], &c->in[i], "input", in_list(cfg->inputs, cfg->n_inputs, c->c.inputs[i].name));
    for (size_t i = 0; i < c->c.n_outputs; i++)
        print_io(out, c, &c->c.outputs[i], NULL, "output", in_list(cfg->outputs, cfg->n_outputs, c->c.outputs[i].name));
    if (c->c.face == ENGINE_BATCH)
        print_policy(out, c, cfg, default_deadline_ms);
    else
        buf_printf(out, "    context %zu tokens\n", c->c.context_tokens);
}

static int check_version(const struct repo *repo, const struct repo_model *m, const struct repo_version *rv,
                         struct model_config *cfg, struct arena *a, struct buf *out, struct error *err)
{
    struct version_spec spec = {.load = {.dir_fd = -1}};
    struct engine_model *model = NULL;
    struct contract contract;
    int rc = registry__spec(repo, m, rv, cfg, a, &spec, err);
    struct engine_option *options = rc ? NULL : arena_array(a, cfg->n_parameters + 1, sizeof *options);
    for (size_t i = 0; options && i < cfg->n_parameters; i++)
        options[i] = (struct engine_option){cfg->parameters[i].key, cfg->parameters[i].value};
    spec.load.options = options;
    spec.load.n_options = options ? cfg->n_parameters : 0;
    if (!rc)
        rc = spec.ops->load(spec.engine, &spec.load, &model, err);
    if (!rc)
        rc = contract_merge(spec.ops->contract(model), cfg, a, &contract, err);
    if (!rc) {
        buf_printf(out, "  version %.*s: %s, about %llu MiB to load\n", STR_ARG(rv->name), spec.load.file,
                   (unsigned long long)((registry__estimate(&spec, rv) + (1u << 20) - 1) >> 20));
        print_contract(out, &contract, cfg, repo->o->default_deadline_ns / 1000000);
    }
    if (model)
        spec.ops->unload(model);
    registry__spec_release(&spec);
    return rc;
}

static int check_versions(const struct repo *repo, const struct repo_model *m, struct arena *a, struct buf *out,
                          struct error *err)
{
    struct model_config cfg;
    int rc = repo_config(repo, m, a, &cfg, err);
    bool *wanted = rc ? NULL : arena_array(a, m->n_versions + 1, sizeof *wanted);
    if (!rc && !wanted)
        rc = error_set(err, STATUS_NOMEM, "no memory to check a model");
    if (!rc)
        rc = repo_wanted(m, &cfg, wanted, err);
    for (size_t i = 0; !rc && i < cfg.n_warnings; i++)
        buf_printf(out, "  warning: %.*s\n", STR_ARG(cfg.warnings[i]));
    for (size_t i = 0; !rc && i < m->n_versions; i++)
        if (wanted[i])
            rc = check_version(repo, m, &m->versions[i], &cfg, a, out, err);
        else
            buf_printf(out, "  version %.*s: not served (version_policy)\n", STR_ARG(m->versions[i].name));
    for (size_t i = 0; !rc && i < cfg.n_labels; i++)
        buf_printf(out, "  label   %.*s -> version %.*s\n", STR_ARG(cfg.labels[i].key), STR_ARG(cfg.labels[i].value));
    return rc;
}

static int check_model(const struct repo *repo, const struct repo_model *m, struct buf *out)
{
    struct arena a;
    struct error err = {0};
    arena_init(&a, 16384, 0);
    buf_printf(out, "model %.*s\n", STR_ARG(m->name));
    const char *file = m->config_file ? strrchr(m->config_file, '/') : NULL;
    buf_printf(out, "  config  %s\n",
               m->config_file ? (file ? file + 1 : m->config_file) : "none: all is read from the model file");
    for (size_t i = 0; i < m->n_warnings; i++)
        buf_printf(out, "  warning: %s\n", m->warnings[i]);
    int rc = m->problem ? error_set(&err, STATUS_INVALID, "%s", m->problem) : check_versions(repo, m, &a, out, &err);
    if (rc)
        buf_printf(out, "  ERROR: %s\n", err.text);
    arena_release(&a);
    return rc;
}

/* Nothing that a model could be loaded from: neither a config nor a file that an engine knows. */
static bool is_bare(const struct repo_model *m)
{
    bool bare = !m->config_file;
    for (size_t i = 0; i < m->n_versions; i++)
        bare &= !m->versions[i].file;
    return bare;
}

int registry_check(const struct registry_options *o, struct buf *out, struct error *err)
{
    struct repo repo;
    struct arena a;
    struct repo_model *models = NULL;
    size_t n = 0, bad = 0, bare = 0;
    int rc = repo_open(&repo, o, err);
    if (rc)
        return rc;
    arena_init(&a, 65536, 0);
    rc = repo_scan(&repo, &a, &models, &n, err);
    for (size_t i = 0; i < n && !rc; i++)
        bad += check_model(&repo, &models[i], out) != 0, bare += is_bare(&models[i]);
    if (!rc && !n)
        buf_append_z(out, "no models: a repository holds a folder a model, with version folders or the model file in it\n");
    if (!rc && bad && bare == n)
        rc = error_set(
            err, STATUS_INVALID,
            "this is no model repository: %zu folders, and a model file or a config in none of them; a repository has a "
            "folder a model, with the model file in it or in version folders (NAME/1/model.onnx)",
            n);
    else if (!rc && bad)
        rc = error_set(err, STATUS_INVALID, "%zu of %zu models would not be served: see ERROR above", bad, n);
    arena_release(&a);
    repo_release(&repo);
    return rc;
}
