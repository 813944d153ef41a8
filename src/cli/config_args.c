/* config_args.c: file and flags into a checked configuration. */
#include "cli/config_args.h"

#include <stdlib.h>

#include "base/size.h"
#include "base/status.h"
#include "cli/cli.h"
#include "conf/config.h"
#include "conf/node.h"
#include "conf/options.h"

bool cli_config_knows(struct str name, bool *boolean)
{
    size_t n;
    const struct option_alias *aliases = option_aliases(&n);
    const struct option *row = option_find(name);
    for (size_t i = 0; i < n && !row; i++)
        if (str_eqz(name, aliases[i].flag))
            row = option_find(str_of(aliases[i].option));
    *boolean = row && row->type == OPTION_BOOL;
    return row != NULL;
}

int cli_config_add(struct cli_config *a, struct str name, struct str value, struct error *err)
{
    if (a->n_flags == COUNT_OF(a->flags))
        return error_set(err, STATUS_EXHAUSTED, "more than %zu options on the command line", COUNT_OF(a->flags));
    a->flags[a->n_flags++] = (struct cli_config_flag){name, value};
    return 0;
}

static const char *environment(const char *name)
{
    return getenv(name);
}

static int apply_file(const struct cli_config *a, struct config *c, struct error *err)
{
    struct buf text;
    buf_init(&text);
    int rc = cli_read_file(a->file, NODE_TEXT_MAX, &text, err);
    if (rc == 0)
        rc = config_apply_yaml(c, buf_str(&text), a->file, environment, err);
    buf_release(&text);
    return rc;
}

/* Repository arguments replace what the file says, as flags do. */
static int apply_paths(struct config *c, const struct cli_list *paths, struct error *err)
{
    if (!paths || !paths->n)
        return 0;
    const char **v = (const char **)arena_array(&c->arena, paths->n + 1, sizeof *v);
    if (!v)
        return error_set(err, STATUS_NOMEM, "not enough memory for the configuration");
    for (size_t i = 0; i < paths->n; i++)
        v[i] = paths->v[i];
    size_t row = option_index(option_find(STR("repository.paths")));
    c->repository.paths = (struct config_list){v, paths->n};
    c->source[row] = CONFIG_FLAG;
    return 0;
}

int cli_config_load(const struct cli_config *a, const struct cli_list *paths, struct config *out, struct error *err)
{
    int rc = config_init(out, err);
    if (rc < 0)
        return rc;
    if (a->file)
        rc = apply_file(a, out, err);
    for (size_t i = 0; rc == 0 && i < a->n_flags; i++)
        rc = config_apply_flag(out, a->flags[i].name, a->flags[i].value, err);
    if (rc == 0)
        rc = apply_paths(out, paths, err);
    if (rc == 0)
        rc = config_check(out, err);
    if (rc < 0)
        config_release(out);
    return rc;
}
