/* cli.c: flags by table. */
#include "cli/cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "cli/config_args.h"
#include "conf/options.h"
#include "os/file.h"
#include "os/terminal.h"

struct cli_style cli_style(FILE *f)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    bool plain = (no_color && *no_color) || !term || strcmp(term, "dumb") == 0 || !os_is_terminal(f == stderr ? 2 : 1);
    if (plain)
        return (struct cli_style){"", "", "", "", "", "", ""};
    return (struct cli_style){"\033[1m", "\033[2m", "\033[31m", "\033[32m", "\033[33m", "\033[36m", "\033[0m"};
}

static void complain(const char *fmt, va_list ap)
{
    struct cli_style style = cli_style(stderr);
    fflush(stdout);
    fprintf(stderr, "%sinferd:%s ", style.red, style.off);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
}

int cli_fail(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    complain(fmt, ap);
    va_end(ap);
    return CLI_FAILED;
}

int cli_refuse(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    complain(fmt, ap);
    va_end(ap);
    return CLI_USAGE;
}

int cli_usage_error(const struct cli_command *command, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    complain(fmt, ap);
    va_end(ap);
    fprintf(stderr, "See: inferd %s --help\n", command->name);
    return CLI_USAGE;
}

/* ---- help ---- */

/* `text` from `column` on, folded at `width` with `indent` spaces in front of each line. Line ends in it count as spaces. */
static void print_folded(const char *text, int indent, int column, int width)
{
    const char *end = text + strlen(text);
    int room = width - indent > 30 ? width - indent : 30;
    while (end > text && end[-1] == '\n')
        end--;
    while (text < end) {
        int n = (int)(end - text);
        if (n > room) {
            n = room;
            while (n > 0 && text[n] != ' ' && text[n] != '\n')
                n--;
            n = n ? n : room;
        }
        printf("%*s", indent - column, "");
        for (int i = 0; i < n; i++)
            putchar(text[i] == '\n' ? ' ' : text[i]);
        putchar('\n');
        column = 0;
        text += n;
        while (text < end && (*text == ' ' || *text == '\n'))
            text++;
    }
}

static void print_flag(const struct cli_flag *f, int width)
{
    char left[96];
    int n = snprintf(left, sizeof left, "  %c%c%s--%s%s%s", f->letter ? '-' : ' ', f->letter ? f->letter : ' ',
                     f->letter ? ", " : "  ", f->name, f->value ? " " : "", f->value ? f->value : "");
    printf("%s", left);
    if (n > 28)
        printf("\n"), n = 0;
    print_folded(f->help, 30, n, width);
}

static void print_aliases(int width)
{
    size_t n;
    const struct option_alias *aliases = option_aliases(&n);
    putchar('\n');
    print_folded(
        "Every option of the configuration is a flag too, as in --limits.max_headers=80; `inferd config --help` lists them. "
        "Shorter ones:",
        0, 0, width);
    for (size_t i = 0; i < n; i++) {
        const struct cli_flag f = {
            .name = aliases[i].flag, .value = aliases[i].format ? "PORT" : "VALUE", .help = aliases[i].help};
        print_flag(&f, width);
    }
}

static void print_help(const struct cli_spec *spec)
{
    const struct cli_command *c = spec->command;
    struct cli_style style = cli_style(stdout);
    int width = os_terminal_columns(1) < 100 ? os_terminal_columns(1) : 100;
    printf("%susage:%s inferd %s [options]%s%s\n\n", style.bold, style.off, c->name, *c->arguments ? " " : "", c->arguments);
    print_folded(c->summary, 0, 0, width);
    if (*c->details) {
        putchar('\n');
        print_folded(c->details, 0, 0, width);
    }
    printf("\n%sOptions%s\n", style.bold, style.off);
    for (size_t i = 0; i < spec->n_flags; i++)
        print_flag(&spec->flags[i], width);
    const struct cli_flag config = {
        .name = "config", .letter = 'c', .value = "FILE", .help = "The server's configuration file."};
    const struct cli_flag help = {.name = "help", .letter = 'h', .help = "This text."};
    if (spec->config)
        print_flag(&config, width);
    print_flag(&help, width);
    if (spec->config)
        print_aliases(width);
}

/* ---- values ---- */

static bool in_range(const struct cli_flag *f, double v)
{
    return !(f->max > f->min) || (v >= f->min && v <= f->max);
}

static bool is_word(const struct cli_flag *f, const char *v)
{
    for (size_t i = 0; f->words[i]; i++)
        if (strcmp(v, f->words[i]) == 0)
            return true;
    return false;
}

static bool set_value(const struct cli_flag *f, void *out, const char *z)
{
    struct str v = str_of(z);
    uint64_t u;
    double d;
    switch (f->type) {
    case CLI_BOOL:
        *(bool *)out = str_eq(v, STR("true"));
        return *(bool *)out || str_eq(v, STR("false"));
    case CLI_COUNT:
        if (!str_to_u64(v, &u) || u > UINT32_MAX || !in_range(f, (double)u))
            return false;
        *(uint32_t *)out = (uint32_t)u;
        return true;
    case CLI_NUMBER:
        if (!str_to_f64(v, &d) || !in_range(f, d))
            return false;
        *(double *)out = d;
        return true;
    case CLI_BYTES:
        return str_to_bytes(v, out);
    case CLI_DURATION:
        if (!str_to_duration_ns(v, &u) || !in_range(f, (double)u * 1e-9))
            return false;
        *(uint64_t *)out = u;
        return true;
    case CLI_WORD:
    case CLI_STRING:
        if (f->type == CLI_WORD && !is_word(f, z))
            return false;
        *(const char **)out = z;
        return true;
    case CLI_LIST: {
        struct cli_list *l = out;
        if (l->n == CLI_LIST_MAX)
            return false;
        l->v[l->n++] = z;
        return true;
    }
    }
    return false;
}

static const char *accepts(const struct cli_flag *f, char *text, size_t cap)
{
    size_t at = 0;
    switch (f->type) {
    case CLI_BOOL:
        return "true or false";
    case CLI_COUNT:
    case CLI_NUMBER:
        if (f->max > f->min)
            snprintf(text, cap, "a %snumber in %.15g..%.15g", f->type == CLI_COUNT ? "whole " : "", f->min, f->max);
        else
            snprintf(text, cap, "a %snumber", f->type == CLI_COUNT ? "whole " : "");
        return text;
    case CLI_BYTES:
        return "a size like 64MiB";
    case CLI_DURATION:
        if (f->max > f->min)
            snprintf(text, cap, "a time like 250ms, in %gs..%gs", f->min, f->max);
        else
            snprintf(text, cap, "a time like 250ms");
        return text;
    case CLI_WORD:
        for (size_t i = 0; f->words[i] && at < cap; i++)
            at += (size_t)snprintf(text + at, cap - at, "%s%s", i == 0 ? "" : f->words[i + 1] ? ", " : " or ", f->words[i]);
        return text;
    case CLI_LIST:
        snprintf(text, cap, "it at most %d times", CLI_LIST_MAX);
        return text;
    case CLI_STRING:
        break;
    }
    return "text";
}

/* ---- parsing ---- */

struct parse {
    const struct cli_spec *spec;
    int argc, at;
    char **argv;
};

/* The value of a flag that came without '='. NULL at the end of the line. */
static const char *next_value(struct parse *p)
{
    return p->at + 1 < p->argc ? p->argv[++p->at] : NULL;
}

static int set_flag(struct parse *p, const struct cli_flag *f, const char *value)
{
    char text[256];
    if (f->type == CLI_BOOL && !value)
        value = "true";
    if (!value)
        value = next_value(p);
    if (!value)
        return cli_usage_error(p->spec->command, "--%s needs a value: %s", f->name, f->value ? f->value : "VALUE");
    void *out = f->out ? f->out : (char *)p->spec->options + f->at;
    if (!set_value(f, out, value))
        return cli_usage_error(p->spec->command, "--%s: '%s' is not accepted; give %s", f->name, value,
                               accepts(f, text, sizeof text));
    return CLI_GO;
}

static int unknown_flag(const struct parse *p, struct str name, const char *shown)
{
    struct suggest s;
    char hint[160];
    suggest_init(&s, name);
    for (size_t i = 0; i < p->spec->n_flags; i++)
        suggest_offer(&s, p->spec->flags[i].name);
    if (p->spec->config)
        option_suggest(&s, true);
    suggest_offer(&s, "help");
    return cli_usage_error(p->spec->command, "there is no option %s%s", shown, suggest_text(&s, hint, sizeof hint));
}

static int config_flag(struct parse *p, struct str name, const char *value, bool boolean)
{
    struct error err = {0};
    if (!value)
        value = boolean ? "true" : next_value(p);
    if (!value)
        return cli_usage_error(p->spec->command, "--%.*s needs a value", STR_ARG(name));
    if (cli_config_add(p->spec->config, name, str_of(value), &err) < 0)
        return cli_usage_error(p->spec->command, "%s", err.text);
    return CLI_GO;
}

static const struct cli_flag *find_flag(const struct cli_spec *spec, struct str name)
{
    for (size_t i = 0; i < spec->n_flags; i++)
        if (str_eqz(name, spec->flags[i].name))
            return &spec->flags[i];
    return NULL;
}

static int long_flag(struct parse *p, const char *arg)
{
    const char *equals = strchr(arg + 2, '='), *value = equals ? equals + 1 : NULL;
    struct str name = {arg + 2, equals ? (size_t)(equals - arg) - 2 : strlen(arg + 2)};
    const struct cli_flag *f = find_flag(p->spec, name);
    bool boolean;
    if (f)
        return set_flag(p, f, value);
    if (str_eq(name, STR("help"))) {
        print_help(p->spec);
        return CLI_OK;
    }
    if (!value && str_starts(name, STR("no-"))) {
        f = find_flag(p->spec, (struct str){name.p + 3, name.n - 3});
        if (f && f->type == CLI_BOOL)
            return set_flag(p, f, "false");
    }
    if (p->spec->config && str_eq(name, STR("config"))) {
        p->spec->config->file = value ? value : next_value(p);
        return p->spec->config->file ? CLI_GO : cli_usage_error(p->spec->command, "--config needs a value: FILE");
    }
    if (p->spec->config && cli_config_knows(name, &boolean))
        return config_flag(p, name, value, boolean);
    return unknown_flag(p, name, arg);
}

static int short_flag(struct parse *p, const char *arg)
{
    if (arg[1] == 'h' && !arg[2]) {
        print_help(p->spec);
        return CLI_OK;
    }
    for (size_t i = 0; i < p->spec->n_flags; i++)
        if (p->spec->flags[i].letter == arg[1] && !(p->spec->flags[i].type == CLI_BOOL && arg[2]))
            return set_flag(p, &p->spec->flags[i], arg[2] ? arg + 2 : NULL);
    if (p->spec->config && arg[1] == 'c') {
        p->spec->config->file = arg[2] ? arg + 2 : next_value(p);
        return p->spec->config->file ? CLI_GO : cli_usage_error(p->spec->command, "-c needs a value: FILE");
    }
    return unknown_flag(p, str_of(arg + 1), arg);
}

int cli_parse(const struct cli_spec *spec, int argc, char **argv, struct cli_list *arguments)
{
    struct parse p = {.spec = spec, .argc = argc, .argv = argv};
    bool only_arguments = false;
    arguments->n = 0;
    for (p.at = 1; p.at < argc; p.at++) {
        const char *arg = argv[p.at];
        int code = CLI_GO;
        if (!only_arguments && strcmp(arg, "--") == 0) {
            only_arguments = true;
            continue;
        }
        if (!only_arguments && arg[0] == '-' && arg[1] == '-')
            code = long_flag(&p, arg);
        else if (!only_arguments && arg[0] == '-' && arg[1])
            code = short_flag(&p, arg);
        else if (arguments->n == spec->max_arguments || arguments->n == CLI_LIST_MAX)
            code = cli_usage_error(spec->command, "'%s' is one argument too many", arg);
        else
            arguments->v[arguments->n++] = arg;
        if (code != CLI_GO)
            return code;
    }
    if (arguments->n < spec->min_arguments)
        return cli_usage_error(spec->command, "an argument is missing: inferd %s %s", spec->command->name,
                               spec->command->arguments);
    return CLI_GO;
}

int cli_read_file(const char *path, size_t limit_bytes, struct buf *out, struct error *err)
{
    if (strcmp(path, "-") == 0)
        return os_file_read_fd(0, "standard input", limit_bytes, out, err);
    return os_file_read(path, limit_bytes, out, err);
}
