/* hf_pooling.c: how a folder of sentence-transformers makes one vector of a text: modules.json lists what runs behind the transformer.
 *
 * Pooling (its own config.json says which) and Normalize are read; a module that would change the vector in another way (Dense, ...) is refused by
 * name. A folder without modules.json keeps what its architecture does. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "engine/llm/file/hf_priv.h"

static const struct {
    const char *key, *name;
    enum llm_pooling pooling; /* NONE: not supported */
} modes[] = {{"pooling_mode_cls_token", "cls", LLM_POOL_CLS},
             {"pooling_mode_mean_tokens", "mean", LLM_POOL_MEAN},
             {"pooling_mode_lasttoken", "lasttoken", LLM_POOL_LAST},
             {"pooling_mode_max_tokens", "max", LLM_POOL_NONE},
             {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", LLM_POOL_NONE},
             {"pooling_mode_weightedmean_tokens", "weightedmean", LLM_POOL_NONE}};

/* Two spellings: a flag a mode, or "pooling_mode": "mean". */
static int read_modes(yyjson_val *root, enum llm_pooling *out, struct error *err)
{
    size_t n = 0, chosen = 0;
    struct str mode = json_str(yyjson_obj_get(root, "pooling_mode"));
    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        if (!yyjson_is_true(yyjson_obj_get(root, modes[i].key)) && !str_eqz(mode, modes[i].name))
            continue;
        n++;
        chosen = i;
    }
    if (n != 1)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%zu ways of pooling are switched on; supported: one of cls, mean, lasttoken", n);
    if (modes[chosen].pooling == LLM_POOL_NONE)
        return error_set(err, STATUS_UNIMPLEMENTED, "\"%s\" is not supported; supported: cls, mean, lasttoken",
                         modes[chosen].key);
    *out = modes[chosen].pooling;
    return 0;
}

static int read_pooling(int dir_fd, struct str path, struct model_desc *d, struct error *err)
{
    char name[256];
    struct json j;
    if (path.n > 200)
        return error_set(err, STATUS_INVALID, "modules.json: a path has %zu bytes; accepted: up to 200", path.n);
    snprintf(name, sizeof name, "%.*s%sconfig.json", STR_ARG(path), path.n ? "/" : "");
    int rc = hf__read_json(d->maps, dir_fd, name, JSON_REQUIRED, &j, err);
    if (rc < 0)
        return rc;
    rc = read_modes(j.root, &d->h.pooling, err);
    json_release(&j);
    return rc < 0 ? error_prefix(err, "%s", name) : 0;
}

static int read_module(int dir_fd, yyjson_val *module, struct model_desc *d, struct error *err)
{
    struct str type = json_str(yyjson_obj_get(module, "type")), path = json_str(yyjson_obj_get(module, "path"));
    if (str_ends(type, STR(".Transformer")))
        return 0;
    if (str_ends(type, STR(".Pooling")))
        return read_pooling(dir_fd, path, d, err);
    if (str_ends(type, STR(".Normalize")))
        return d->h.embd_normalize = true, 0;
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "modules.json: the module \"%.*s\" is not supported; supported: Transformer, Pooling, Normalize",
                     STR_ARG(type));
}

int hf__read_pooling(int dir_fd, struct model_desc *d, struct error *err)
{
    struct json j;
    size_t i, n;
    yyjson_val *module;
    int rc = hf__read_json(d->maps, dir_fd, "modules.json", JSON_OPTIONAL, &j, err);
    if (rc < 0 || !j.doc)
        return rc;
    d->h.embd_normalize = false;
    d->h.pooling = LLM_POOL_NONE;
    if (!yyjson_is_arr(j.root))
        rc = error_set(err, STATUS_INVALID, "modules.json: a list of modules is expected");
    yyjson_arr_foreach(j.root, i, n, module) if (rc == 0) rc = read_module(dir_fd, module, d, err);
    json_release(&j);
    return rc;
}
