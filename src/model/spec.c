/* spec.c: from a version on the disk and its config to what version_build needs: engine, file, labels, bytes. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "model/registry_priv.h"
#include "os/dir.h"

#define SPEC_LABEL_BYTES (16u << 20)

static int engine_count(const struct registry_options *o)
{
    int n = 0;
    while (o->engines && o->engines[n])
        n++;
    return n;
}

/* "onnxruntime" serves backend "onnxruntime" and platform "onnxruntime_onnx"; "fake" serves "inferd_fake". */
static int engine_named(const struct registry_options *o, struct str name)
{
    if (str_starts(name, STR("inferd_")))
        name = (struct str){name.p + 7, name.n - 7};
    for (int e = 0; e < engine_count(o); e++) {
        struct str own = str_of(o->engines[e]->name);
        if (str_eq(name, own) || (str_starts(name, own) && name.p[own.n] == '_'))
            return e;
    }
    return -1;
}

static int engine_by_suffix(const struct registry_options *o, struct str file)
{
    for (int e = 0; e < engine_count(o); e++)
        for (size_t f = 0; o->engines[e]->files && o->engines[e]->files[f]; f++) {
            const char *dot = strrchr(o->engines[e]->files[f], '.');
            if (dot && str_ends(file, str_of(dot)))
                return e;
        }
    return -1;
}

static int no_model_file(const struct registry_options *o, const struct repo_model *m, const struct repo_version *rv,
                         struct error *err)
{
    char list[160] = "one that an engine knows";
    size_t n = 0;
    for (int e = 0; e < engine_count(o); e++)
        for (size_t f = 0; o->engines[e]->files && o->engines[e]->files[f] && n + 1 < sizeof list; f++)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", o->engines[e]->files[f]);
    return error_set(
        err, STATUS_INVALID,
        "model \"%.*s\" version %.*s has no model file: expected %s; a model in another format must be exported to one of them",
        STR_ARG(m->name), STR_ARG(rv->name), list);
}

static int pick_engine(const struct registry_options *o, const struct repo_model *m, const struct repo_version *rv,
                       const struct model_config *cfg, int *engine, struct error *err)
{
    struct str named = cfg->backend.n ? cfg->backend : cfg->platform;
    int e = -1;
    if (named.n) {
        e = engine_named(o, named);
        if (e < 0) {
            char list[160];
            size_t n = 0;
            list[0] = 0;
            for (int k = 0; k < engine_count(o) && n + 1 < sizeof list; k++)
                n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", k ? ", " : "", o->engines[k]->name);
            return error_set(err, STATUS_INVALID, "model \"%.*s\": there is no engine \"%.*s\": this server has %s",
                             STR_ARG(m->name), STR_ARG(named), list);
        }
    } else if (cfg->default_model_filename.n) {
        e = engine_by_suffix(o, cfg->default_model_filename);
    } else if (rv->file) {
        e = (int)rv->engine;
    }
    if (e < 0)
        return no_model_file(o, m, rv, err);
    *engine = e;
    return 0;
}

static int read_labels(const struct repo *repo, const struct repo_model *m, struct str file, struct arena *a,
                       struct str **lines, size_t *n, struct error *err)
{
    struct buf text;
    buf_init(&text);
    const char *name = arena_strdup(a, file);
    int rc =
        name ? repo_read(repo, m, name, SPEC_LABEL_BYTES, &text, err) : error_set(err, STATUS_NOMEM, "no memory for labels");
    char *copy = rc ? NULL : arena_strdup(a, buf_str(&text));
    size_t count = 1;
    for (size_t i = 0; copy && i < text.n; i++)
        count += copy[i] == '\n';
    struct str rest = copy ? (struct str){copy, text.n} : (struct str){0}, line;
    *lines = copy ? arena_array(a, count, sizeof **lines) : NULL;
    *n = 0;
    while (*lines && str_cut(&rest, '\n', &line)) {
        if (line.n && line.p[line.n - 1] == '\r')
            line.n--;
        (*lines)[(*n)++] = line;
    }
    if (*n && (*lines)[*n - 1].n == 0)
        (*n)--; /* the newline at the end */
    buf_release(&text);
    if (!rc && !*lines)
        rc = error_set(err, STATUS_NOMEM, "no memory for labels");
    return rc ? error_prefix(err, "label file \"%.*s\"", STR_ARG(file)) : 0;
}

static int all_labels(const struct repo *repo, const struct repo_model *m, const struct model_config *cfg, struct arena *a,
                      struct version_spec *out, struct error *err)
{
    struct config_labels *l = arena_array(a, cfg->n_outputs + 1, sizeof *l);
    if (!l)
        return error_set(err, STATUS_NOMEM, "no memory for labels");
    out->labels = l;
    int rc = 0;
    for (size_t i = 0; i < cfg->n_outputs && !rc; i++)
        if (cfg->outputs[i].label_filename.n)
            rc = read_labels(repo, m, cfg->outputs[i].label_filename, a, &l[i].lines, &l[i].n, err);
    return rc;
}

static const char *file_of(const struct registry_options *o, const struct repo_version *rv, const struct model_config *cfg,
                           int engine, struct arena *a)
{
    if (cfg->default_model_filename.n)
        return arena_strdup(a, cfg->default_model_filename);
    if (rv->file && (int)rv->engine == engine)
        return rv->file;
    return o->engines[engine]->files ? o->engines[engine]->files[0] : "model";
}

int registry__spec(const struct repo *repo, const struct repo_model *m, const struct repo_version *rv, struct model_config *cfg,
                   struct arena *a, struct version_spec *out, struct error *err)
{
    int engine = -1, fd = -1;
    *out = (struct version_spec){.model = m->name, .name = rv->name, .load = {.dir_fd = -1}};
    int rc = pick_engine(repo->o, m, rv, cfg, &engine, err);
    if (!rc)
        rc = all_labels(repo, m, cfg, a, out, err);
    if (!rc)
        rc = repo_version_open(repo, m, rv, &fd, err);
    if (rc)
        return rc;
    out->ops = repo->o->engines[engine];
    out->engine = repo->o->engine_state ? repo->o->engine_state[engine] : NULL;
    out->load.dir_fd = fd;
    out->load.name = arena_strdup(a, m->name);
    out->load.dir_path = strcmp(rv->dir, ".") == 0 ? m->root->path : arena_printf(a, "%s/%s", m->root->path, rv->dir);
    out->load.file = file_of(repo->o, rv, cfg, engine, a);
    out->load.log = repo->o->log;
    out->load.follow_symlinks = repo->o->follow_symlinks;
    out->load.n_instances = cfg->instances_min ? cfg->instances_min : 1;
    rc = out->load.dir_path && out->load.file && out->load.name ? seal_vault_open(repo, m, rv, cfg, fd, &out->vault, err)
                                                                : error_set(err, STATUS_NOMEM, "no memory to load a model");
    if (rc)
        registry__spec_release(out);
    else
        out->load.files = seal_vault_files(out->vault);
    return rc;
}

void registry__spec_release(struct version_spec *spec)
{
    seal_vault_close(spec->vault);
    os_close(spec->load.dir_fd);
    spec->vault = NULL;
    spec->load.files = NULL;
    spec->load.dir_fd = -1;
}

uint64_t registry__estimate(const struct version_spec *spec, const struct repo_version *rv)
{
    uint64_t bytes = 0;
    if (spec->ops->estimate && !spec->ops->estimate(spec->engine, &spec->load, &bytes, NULL))
        return bytes;
    return rv->bytes + rv->bytes / 10 * 3;
}
