/* pull_hub.c: see pull_hub.h. */
#include "cli/pull_hub.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/size.h"
#include "base/status.h"
#include "wire/json.h"

static bool is_digest(struct str s)
{
    return s.n == 64 && strspn(s.p, "0123456789abcdef") >= 64;
}

/* Relative, no empty, "." or ".." part, no control characters. */
static bool is_safe_path(struct str s)
{
    struct str rest = s, part;
    if (!s.n || s.n > 1024 || s.p[0] == '/')
        return false;
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < 0x20 || s.p[i] == '\\' || s.p[i] == 0x7f)
            return false;
    while (str_cut(&rest, '/', &part))
        if (!part.n || str_eqz(part, ".") || str_eqz(part, ".."))
            return false;
    return true;
}

static int read_file(yyjson_val *v, struct arena *a, struct hub_file *out, struct error *err)
{
    struct str path = json_str(yyjson_obj_get(v, "rfilename")), digest;
    yyjson_val *lfs = yyjson_obj_get(v, "lfs"), *size = yyjson_obj_get(lfs, "size");
    if (!is_safe_path(path))
        return error_set(err, STATUS_INVALID, "the hub names a file \"%.*s\", which can't be a file of a model", STR_ARG(path));
    digest = json_str(yyjson_obj_get(lfs, "sha256"));
    size = size ? size : yyjson_obj_get(v, "size");
    *out = (struct hub_file){.path = arena_strdup(a, path), .size = yyjson_is_uint(size) ? yyjson_get_uint(size) : UINT64_MAX};
    if (is_digest(digest))
        out->sha256 = arena_strdup(a, digest);
    return out->path ? 0 : error_set(err, STATUS_NOMEM, "not enough memory");
}

int hub_listing_parse(struct str text, struct arena *a, struct hub_listing *out, struct error *err)
{
    struct json j;
    yyjson_val *list = NULL, *v;
    struct str sha = STR("main");
    size_t i, n;
    int rc = json_parse(&j, text, NULL, err);
    if (rc < 0)
        return error_prefix(err, "the hub's answer"), rc;
    *out = (struct hub_listing){0};
    rc = json_get_arr(j.root, "siblings", JSON_REQUIRED, &list, NULL, err);
    if (rc == 0)
        rc = json_get_str(j.root, "sha", JSON_OPTIONAL, &sha, NULL, err);
    out->files = arena_array(a, yyjson_arr_size(list) + 1, sizeof *out->files);
    out->revision = arena_strdup(a, sha);
    if (rc == 0 && (!out->files || !out->revision))
        rc = error_set(err, STATUS_NOMEM, "not enough memory");
    yyjson_arr_foreach(list, i, n, v)
    {
        if (rc == 0)
            rc = read_file(v, a, &out->files[out->n++], err);
    }
    json_release(&j);
    return rc;
}

/* ---- choosing ---- */

static bool ends(const char *path, const char *suffix)
{
    size_t n = strlen(path), m = strlen(suffix);
    return n >= m && strcasecmp(path + n - m, suffix) == 0;
}

static bool is_weights_folder_file(const char *path)
{
    static const char *const known[] = {"config.json",           "generation_config.json",  "tokenizer.json",
                                        "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
                                        "modules.json",          "1_Pooling/config.json",   "model.safetensors.index.json"};
    for (size_t i = 0; i < COUNT_OF(known); i++)
        if (strcmp(path, known[i]) == 0)
            return true;
    return strncmp(path, "model", 5) == 0 && ends(path, ".safetensors") && !strchr(path, '/');
}

/* "Q4_K_M" names model-Q4_K_M.gguf and model.Q4_K_M.gguf. */
static bool has_quantisation(const char *path, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = strcasestr(path, name); at; at = strcasestr(at + 1, name))
        if ((at == path || strchr("-._/", at[-1])) && strchr("-._", at[n] ? at[n] : '-'))
            return true;
    return false;
}

static void list_ggufs(const struct hub_listing *l, char *text, size_t cap)
{
    size_t n = 0;
    text[0] = 0;
    for (size_t i = 0; i < l->n && n + 1 < cap; i++)
        if (ends(l->files[i].path, ".gguf"))
            n += (size_t)snprintf(text + n, cap - n, "%s%s", n ? ", " : "", l->files[i].path);
}

/* The one GGUF file that `name` fits; *many: how many do. */
static const struct hub_file *find_gguf(const struct hub_listing *l, const char *name, size_t *many)
{
    const struct hub_file *found = NULL;
    *many = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (!ends(l->files[i].path, ".gguf") || (name && !has_quantisation(l->files[i].path, name)))
            continue;
        found = &l->files[i];
        ++*many;
    }
    return *many == 1 ? found : NULL;
}

static const struct hub_file *find_path(const struct hub_listing *l, const char *path)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->files[i].path, path) == 0)
            return &l->files[i];
    return NULL;
}

int hub_choose(const struct hub_listing *l, const char *wanted, struct arena *a, const struct hub_file ***out, size_t *n,
               bool *gguf, struct error *err)
{
    char there[300];
    size_t many;
    const struct hub_file *one = wanted ? find_path(l, wanted) : NULL;
    *out = (const struct hub_file **)arena_array(a, l->n + 1, sizeof **out);
    *n = 0;
    if (!*out)
        return error_set(err, STATUS_NOMEM, "not enough memory");
    if (!one)
        one = find_gguf(l, wanted, &many);
    if (!one && !wanted)
        one = find_gguf(l, "Q4_K_M", &many);
    list_ggufs(l, there, sizeof there);
    *gguf = one && ends(one->path, ".gguf");
    if (one) {
        if (strstr(one->path, "-of-0"))
            return error_set(err, STATUS_UNIMPLEMENTED, "%s is a part of a split GGUF file, which is not supported", one->path);
        (*out)[(*n)++] = one;
        return 0;
    }
    if (wanted)
        return error_set(err, STATUS_NOT_FOUND, "there is no file and no quantisation \"%s\"; GGUF files: %s", wanted,
                         there[0] ? there : "none");
    if (there[0])
        return error_set(err, STATUS_INVALID, "there are several GGUF files; name one, or its quantisation: %s", there);
    for (size_t i = 0; i < l->n; i++)
        if (is_weights_folder_file(l->files[i].path))
            (*out)[(*n)++] = &l->files[i];
    if (!find_path(l, "config.json") || !find_path(l, "tokenizer.json"))
        return error_set(err, STATUS_NOT_FOUND, "there is neither a GGUF file nor config.json with tokenizer.json");
    return 0;
}

const char *hub_model_name(const char *repository, struct arena *a)
{
    const char *slash = strrchr(repository, '/');
    char *name = arena_strdup(a, str_of(slash ? slash + 1 : repository));
    for (char *p = name; p && *p; p++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-", *p))
            *p = '-';
    return name;
}
