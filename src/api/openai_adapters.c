/* openai_adapters.c: LoRA adapters as models: loaded and unloaded on the admin listener (vLLM's calls), found by name, listed.
 *
 *   POST /v1/load_lora_adapter   {"lora_name": "sql", "lora_path": "sql-v2", "model": "base"}   model: needed when several could take it
 *   POST /v1/unload_lora_adapter {"lora_name": "sql"}
 *
 * lora_path is beneath the folder `llm.adapter_path`; nothing outside it can be named. Which adapters there are is the engines' to know: a
 * reload of a model starts without any. */
#include <stdlib.h>

#include "api/openai_priv.h"
#include "base/size.h"
#include "base/status.h"
#include "os/dir.h"

struct search {
    struct api *api;
    struct str name;
    bool found;
    struct model_version *version; /* the result, with a reference */
    uint32_t n;                    /* models that take adapters */
};

static void compare(void *ctx, struct str name)
{
    struct search *s = ctx;
    s->found |= str_eq(s->name, name);
}

/* A serving version that takes adapters, with a reference; NULL when the row is none. */
static struct model_version *taker(struct api *a, const struct index_row *row)
{
    struct model_version *v;
    if (!row->version.n || registry_find(a->o.registry, row->model, row->version, &v, NULL) < 0)
        return NULL;
    if (model_version_contract(v)->face == ENGINE_TOKEN && model_version_ops(v)->adapter_each)
        return v;
    model_version_unref(v);
    return NULL;
}

static void look(void *ctx, const struct index_row *row)
{
    struct search *s = ctx;
    struct model_version *v = s->version ? NULL : taker(s->api, row);
    if (!v)
        return;
    s->found = false;
    model_version_ops(v)->adapter_each(model_version_engine(v), compare, s);
    if (s->found)
        s->version = v;
    else
        model_version_unref(v);
}

struct model_version *openai__find_adapter(struct api *a, struct str name)
{
    struct search s = {.api = a, .name = name};
    registry_index(a->o.registry, true, look, &s);
    return s.version;
}

/* ---- load, unload ---- */

static void count_taker(void *ctx, const struct index_row *row)
{
    struct search *s = ctx;
    struct model_version *v = taker(s->api, row);
    if (!v)
        return;
    s->n++;
    model_version_unref(s->version);
    s->version = v;
}

/* The model that the body names, or the only one that could be meant. */
static int find_base(struct gen_call *c, struct error *err)
{
    struct search s = {.api = c->api};
    struct str model = {0};
    int rc = openai__str(c, c->doc.root, "model", JSON_OPTIONAL, &model, err);
    if (rc < 0 || model.n)
        return rc < 0 ? rc : generate__find(c, model, (struct str){0}, err);
    registry_index(c->api->o.registry, true, count_taker, &s);
    if (s.n == 1) {
        c->version = s.version;
        return 0;
    }
    model_version_unref(s.version);
    return openai__invalid(c, "model", err, "%u models could take the adapter: say which by model", s.n);
}

static int load(struct gen_call *c, struct str name, struct str path, struct error *err)
{
    const struct engine_ops *ops = model_version_ops(c->version);
    int dir = -1;
    struct model_version *taken = openai__find_adapter(c->api, name), *same;
    model_version_unref(taken);
    if (taken || registry_find(c->api->o.registry, name, (struct str){0}, &same, NULL) == 0) {
        if (!taken)
            model_version_unref(same);
        return generate__fault(c, error_set(err, STATUS_CONFLICT, "the name \"%.*s\" is taken", STR_ARG(name)), "lora_name",
                               NULL);
    }
    if (!ops->adapter_load)
        return openai__invalid(c, "model", err, "this model takes no adapters");
    if (!c->api->o.adapter_path || !c->api->o.adapter_path[0])
        return openai__invalid(c, "lora_path", err, "no adapters can be loaded: llm.adapter_path is not set");
    struct error own = {0};
    if (os_dir_open(c->api->o.adapter_path, &dir, &own) < 0) {
        LOG(c->api->o.log, LOG_ERROR, "adapter_folder_unusable", LOG_S("reason", own.text));
        return error_set(err, STATUS_UNAVAILABLE, "the folder of adapters can't be opened");
    }
    const char *z = arena_strdup(&c->arena, path);
    int rc = z ? ops->adapter_load(model_version_engine(c->version), name, dir, z, err)
               : error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
    os_close(dir);
    return generate__fault(c, rc, rc == STATUS_CONFLICT ? "lora_name" : "lora_path", NULL);
}

static int body(struct gen_call *c, struct str *name, struct error *err)
{
    int rc = generate__parse_body(c, err);
    if (rc == 0)
        rc = openai__str(c, c->doc.root, "lora_name", JSON_REQUIRED, name, err);
    if (rc == 0 && !str_is_model_name(*name))
        rc = openai__invalid(c, "lora_name", err, "lora_name: a model name has 1 to 128 characters of A-Z a-z 0-9 . _ -");
    return rc;
}

static void say(struct gen_call *c, struct str name, const char *what)
{
    buf_append_z(&c->out, "{\"status\":\"success\",");
    openai__member(&c->out, "lora_name", name);
    buf_append_c(&c->out, ',');
    openai__member(&c->out, "model", model_version_model(c->version));
    buf_printf(&c->out, ",\"state\":\"%s\"}", what);
}

static int prepare_load(struct gen_call *c, struct error *err)
{
    struct str name, path;
    int rc = body(c, &name, err);
    if (rc == 0)
        rc = openai__str(c, c->doc.root, "lora_path", JSON_REQUIRED, &path, err);
    if (rc == 0)
        rc = find_base(c, err);
    if (rc == 0)
        rc = load(c, name, path, err);
    if (rc == 0)
        say(c, name, "loaded");
    return rc;
}

static int prepare_unload(struct gen_call *c, struct error *err)
{
    struct str name;
    int rc = body(c, &name, err);
    if (rc < 0)
        return rc;
    c->version = openai__find_adapter(c->api, name);
    if (!c->version)
        return generate__fault(c, error_set(err, STATUS_NOT_FOUND, "no adapter \"%.*s\" is loaded", STR_ARG(name)), "lora_name",
                               NULL);
    rc = model_version_ops(c->version)->adapter_unload(model_version_engine(c->version), name, err);
    if (rc == 0)
        say(c, name, "unloaded");
    return rc;
}

void api__adapter_load(struct api *a, struct http_request *r, struct api_call *call)
{
    static const struct gen_protocol p = {.prepare = prepare_load, .only_prepare = true};
    generate__start(a, r, call, &p);
}

void api__adapter_unload(struct api *a, struct http_request *r, struct api_call *call)
{
    static const struct gen_protocol p = {.prepare = prepare_unload, .only_prepare = true};
    generate__start(a, r, call, &p);
}
