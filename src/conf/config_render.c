/* config_render.c: the option table and a configuration as text: help, reference page, effective YAML. */
#include <stdio.h>

#include "conf/config.h"
#include "conf/options.h"

static void append_list(struct buf *out, const struct config_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            buf_append_c(out, ',');
        buf_append_z(out, l->v[i]);
    }
}

void config_render_value(const struct config *c, const struct option *row, struct buf *out)
{
    const void *p = (const char *)c + row->offset;
    char text[32];
    switch (row->type) {
    case OPTION_BOOL:
        buf_append_z(out, *(const bool *)p ? "true" : "false");
        break;
    case OPTION_COUNT:
        buf_append_u64(out, *(const uint32_t *)p);
        break;
    case OPTION_BYTES:
        buf_append_z(out, option_format_bytes(*(const uint64_t *)p, text, sizeof text));
        break;
    case OPTION_BYTES32:
        buf_append_z(out, option_format_bytes(*(const uint32_t *)p, text, sizeof text));
        break;
    case OPTION_DURATION:
        buf_append_z(out, option_format_duration(*(const uint64_t *)p, text, sizeof text));
        break;
    case OPTION_ENUM:
        buf_append_z(out, row->words[*(const int *)p]);
        break;
    case OPTION_WORD:
    case OPTION_STRING:
        buf_append_z(out, *(const char *const *)p);
        break;
    case OPTION_LIST:
        append_list(out, p);
        break;
    }
}

/* A YAML scalar: strings always in double quotes (JSON's escapes are YAML's), "$" doubled. */
static void append_yaml_string(struct buf *out, const char *z)
{
    struct buf escaped;
    buf_init(&escaped);
    for (; *z; z++) {
        buf_append_c(&escaped, *z);
        if (*z == '$')
            buf_append_c(&escaped, '$');
    }
    if (escaped.failed)
        out->failed = true;
    else
        buf_append_json_str(out, buf_str(&escaped));
    buf_release(&escaped);
}

static void append_yaml_value(const struct config *c, const struct option *row, struct buf *out)
{
    const void *p = (const char *)c + row->offset;
    if (row->type == OPTION_STRING) {
        append_yaml_string(out, *(const char *const *)p);
    } else if (row->type == OPTION_LIST) {
        const struct config_list *l = p;
        buf_append_c(out, '[');
        for (size_t i = 0; i < l->n; i++) {
            if (i)
                buf_append_z(out, ", ");
            append_yaml_string(out, l->v[i]);
        }
        buf_append_c(out, ']');
    } else {
        config_render_value(c, row, out);
    }
}

void config_render_yaml(const struct config *c, struct buf *out)
{
    const char *section = "";
    size_t section_n = 0;
    for (size_t i = 0; i < option_count(); i++) {
        const struct option *row = option_at(i);
        const char *dot = strchr(row->name, '.');
        size_t n = dot ? (size_t)(dot - row->name) : 0;
        if (n && (n != section_n || strncmp(section, row->name, n) != 0))
            buf_printf(out, "%.*s:\n", (int)n, row->name);
        section = row->name;
        section_n = n;
        buf_printf(out, "%s%s: ", n ? "  " : "", n ? dot + 1 : row->name);
        append_yaml_value(c, row, out);
        if (c->source[i] == CONFIG_FILE)
            buf_printf(out, "  # %s:%d", c->where, c->line[i]);
        else if (c->source[i] == CONFIG_FLAG)
            buf_append_z(out, "  # flag");
        buf_append_c(out, '\n');
    }
}

static void append_range(struct buf *out, const struct option *row)
{
    char accepts[256];
    buf_append_z(out, option_accepts(row, accepts, sizeof accepts));
    if (row->type == OPTION_COUNT && *row->unit)
        buf_printf(out, " (%s)", row->unit);
}

/* `text` folded at 96 columns with `indent` spaces in front of each line. */
static void append_folded(struct buf *out, const char *text, int indent)
{
    const char *end = text + strlen(text);
    while (text < end) {
        size_t n = (size_t)(end - text), room = (size_t)(96 - indent);
        if (n > room) {
            n = room;
            while (n > 0 && text[n] != ' ')
                n--;
            n = n ? n : room;
        }
        buf_printf(out, "%*s%.*s\n", indent, "", (int)n, text);
        text += n;
        while (*text == ' ')
            text++;
    }
}

void config_render_help(struct buf *out)
{
    size_t n_groups, n_aliases;
    const struct option_group *groups = option_groups(&n_groups);
    const struct option_alias *aliases = option_aliases(&n_aliases);
    buf_append_z(out, "Each option is a key of inferd.yaml (limits.max_headers is max_headers below limits) and a flag\n"
                      "(--limits.max_headers=80). Flags win over the file. Options marked * are applied by a reload.\n");
    for (size_t g = 0; g < n_groups; g++) {
        buf_printf(out, "\n%s\n", groups[g].title);
        for (size_t i = 0; i < groups[g].n; i++) {
            const struct option *row = &groups[g].rows[i];
            buf_printf(out, "  %s%s = %s\n", row->name, row->reloadable ? "*" : "", *row->initial ? row->initial : "(empty)");
            append_folded(out, row->help, 6);
            buf_append_z(out, "      accepts ");
            append_range(out, row);
            buf_append_c(out, '\n');
        }
    }
    buf_append_z(out, "\nShort flags\n");
    for (size_t i = 0; i < n_aliases; i++)
        buf_printf(out, "  --%-20s %s\n", aliases[i].flag, aliases[i].help);
}

void config_render_markdown(struct buf *out)
{
    size_t n_groups, n_aliases;
    const struct option_group *groups = option_groups(&n_groups);
    const struct option_alias *aliases = option_aliases(&n_aliases);
    buf_append_z(
        out,
        "# Configuration reference\n\n"
        "Generated by `inferd config --markdown` from the option table (`src/conf/options.c`); do not edit.\n\n"
        "Each option is a key of `inferd.yaml` (`limits.max_headers` is `max_headers` below `limits`) and a flag\n"
        "(`--limits.max_headers=80`). The defaults come first, then the file, then the flags. Sizes take `KiB`, `MiB`, `GiB`,\n"
        "`TiB` (and `KB`, `MB`, `GB` in thousands); times take one number and one of `ns`, `us`, `ms`, `s`, `m`, `h`. Lists "
        "are\n"
        "YAML lists in the file and `a,b` on the command line, where a flag given again adds to the list. Values in the file "
        "may\n"
        "hold `${NAME}` or `${NAME:-default}` from the environment; `$$` is a dollar sign. An unknown key, a key given twice "
        "or\n"
        "a value out of range is an error that names the file, the line and what is accepted.\n\n"
        "*Reload: yes* marks what SIGHUP or `POST /admin/reload` applies to a running server; the other rows need a restart, "
        "and\n"
        "a reload that finds them changed names them.\n");
    for (size_t g = 0; g < n_groups; g++) {
        buf_printf(out, "\n## %s\n\n| option | default | accepts | reload | what it does |\n| --- | --- | --- | --- | --- |\n",
                   groups[g].title);
        for (size_t i = 0; i < groups[g].n; i++) {
            const struct option *row = &groups[g].rows[i];
            buf_printf(out, "| `%s` | %s%s%s | ", row->name, *row->initial ? "`" : "", *row->initial ? row->initial : "empty",
                       *row->initial ? "`" : "");
            append_range(out, row);
            buf_printf(out, " | %s | %s |\n", row->reloadable ? "yes" : "no", row->help);
        }
    }
    buf_append_z(out, "\n## Short flags\n\n| flag | what it does |\n| --- | --- |\n");
    for (size_t i = 0; i < n_aliases; i++)
        buf_printf(out, "| `--%s` | %s |\n", aliases[i].flag, aliases[i].help);
    buf_append_z(
        out,
        "\n# `upstreams` and `routes`\n\nLists of maps, in the file only; a reload swaps them. See docs/guide/gateway.md.\n");
    gateway_config_render_markdown(out);
}
