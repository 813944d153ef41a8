/* model_file.c: the spelling is told by the file's name, as in a repository. */
#include "cli/model_file.h"

#include "base/status.h"
#include "cli/cli.h"
#include "conf/model_config.h"
#include "conf/node.h"

static bool ends(const char *path, const char *suffix)
{
    return str_ends(str_of(path), str_of(suffix));
}

static int read_as_named(const char *path, struct str text, struct arena *a, struct model_config *c, struct error *err)
{
    if (ends(path, ".yaml") || ends(path, ".yml"))
        return model_config_from_yaml(text, path, a, c, err);
    if (ends(path, ".json"))
        return model_config_from_json(text, path, a, c, err);
    return model_config_from_pbtxt(text, path, a, c, err);
}

int cli_model_config_json(const char *path, struct buf *out, struct error *err)
{
    struct model_config c;
    struct arena arena;
    struct buf text;
    arena_init(&arena, 65536, 0);
    buf_init(&text);
    model_config_init(&c);
    int rc = cli_read_file(path, NODE_TEXT_MAX, &text, err);
    if (rc == 0)
        rc = read_as_named(path, buf_str(&text), &arena, &c, err);
    for (size_t i = 0; rc == 0 && i < c.n_warnings; i++)
        fprintf(stderr, "warning: %.*s\n", STR_ARG(c.warnings[i]));
    if (rc == 0)
        model_config_render_json(&c, false, out);
    if (rc == 0 && out->failed)
        rc = error_set(err, STATUS_NOMEM, "not enough memory for the model's configuration");
    buf_release(&text);
    arena_release(&arena);
    return rc;
}
