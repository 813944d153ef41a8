/* cli.h: what the subcommands share: a table of flags that is also their --help, and the three exit codes.
 *
 *     const struct cli_flag flags[] = {{.name = "rate", .letter = 'r', .type = CLI_NUMBER, .out = &rate, .value = "N", .help = "..."}};
 *     const struct cli_spec spec = {.command = self, .flags = flags, .n_flags = COUNT_OF(flags)};
 *     int code = cli_parse(&spec, argc, argv, &arguments);
 *     if (code != CLI_GO) return code;
 *
 * A command with many flags has them as a constant table of rows for its struct of options instead (CLI_FLAG_*), and spec.options.
 *
 * Forms: --name=value, --name value, -n value, -nvalue, --name and --no-name for booleans, -- before arguments that begin with
 * a dash. An unknown flag is a usage error that names the nearest. Commands that run on the server's configuration accept every
 * option of it as a flag too (spec.config). Main thread only. */
#ifndef INFERD_CLI_CLI_H
#define INFERD_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/str.h"

enum cli_exit {
    CLI_GO = -1, /* not an exit: go on */
    CLI_OK = 0,
    CLI_FAILED = 1, /* the command was understood and did not work out */
    CLI_USAGE = 2,  /* the command line is wrong */
};

enum cli_type {
    CLI_BOOL,     /* bool */
    CLI_COUNT,    /* uint32_t */
    CLI_NUMBER,   /* double */
    CLI_BYTES,    /* uint64_t, "64MiB" */
    CLI_DURATION, /* uint64_t ns, "250ms" */
    CLI_STRING,   /* const char * */
    CLI_WORD,     /* const char *, one of words */
    CLI_LIST,     /* struct cli_list, the flag may be repeated */
};

#define CLI_LIST_MAX 64

struct cli_list {
    const char *v[CLI_LIST_MAX];
    size_t n;
};

struct cli_flag {
    const char *name; /* without dashes */
    char letter;      /* 0: none */
    enum cli_type type;
    void *out; /* holds the default when cli_parse is called; NULL: the value is at `at` of the spec's options */
    size_t at;
    const char *value; /* what the value is called in --help: "FILE" */
    const char *help;  /* one or two sentences */
    double min, max;   /* numbers, when max > min; durations in seconds */
    const char *const *words;
};

/* Rows of such a table: the struct, its member, the flag's name and letter; values also what they are called and their range. The
 * compiler refuses a member of another type. */
#define CLI_AT(type, s, member) (offsetof(s, member) + 0 * sizeof((type *)0 == &((s *)0)->member))
/* clang-format off */
#define CLI_FLAG_BOOL(s, m, n, l, text) {.name = n, .letter = l, .type = CLI_BOOL, .at = CLI_AT(bool, s, m), .help = text}
#define CLI_FLAG_COUNT(s, m, n, l, v, lo, hi, text) {.name = n, .letter = l, .type = CLI_COUNT, .at = CLI_AT(uint32_t, s, m), .value = v, .min = lo, .max = hi, .help = text}
#define CLI_FLAG_NUMBER(s, m, n, l, v, lo, hi, text) {.name = n, .letter = l, .type = CLI_NUMBER, .at = CLI_AT(double, s, m), .value = v, .min = lo, .max = hi, .help = text}
#define CLI_FLAG_TIME(s, m, n, l, lo, hi, text) {.name = n, .letter = l, .type = CLI_DURATION, .at = CLI_AT(uint64_t, s, m), .value = "TIME", .min = lo, .max = hi, .help = text}
#define CLI_FLAG_STRING(s, m, n, l, v, text) {.name = n, .letter = l, .type = CLI_STRING, .at = CLI_AT(const char *, s, m), .value = v, .help = text}
#define CLI_FLAG_WORD(s, m, n, l, w, text) {.name = n, .letter = l, .type = CLI_WORD, .at = CLI_AT(const char *, s, m), .value = "WORD", .words = w, .help = text}
#define CLI_FLAG_LIST(s, m, n, l, v, text) {.name = n, .letter = l, .type = CLI_LIST, .at = CLI_AT(struct cli_list, s, m), .value = v, .help = text}
/* clang-format on */

struct cli_config; /* cli/config_args.h */

struct cli_command {
    const char *name;
    const char *arguments;                                             /* "[MODEL|FOLDER]..." */
    const char *summary;                                               /* one line */
    const char *details;                                               /* further lines of --help, "" */
    int (*run)(const struct cli_command *self, int argc, char **argv); /* argv[0] is the subcommand; returns enum cli_exit */
};

struct cli_spec {
    const struct cli_command *command;
    const struct cli_flag *flags;
    size_t n_flags;
    void *options;             /* what flags with an offset write into; NULL: there are none */
    struct cli_config *config; /* takes the server's options; NULL: they are unknown here */
    size_t min_arguments, max_arguments;
};

/* Parse argv[1..). Strings and arguments are borrowed from argv. Prints --help to stdout (then CLI_OK) and mistakes to stderr (then
 * CLI_USAGE). */
int cli_parse(const struct cli_spec *spec, int argc, char **argv, struct cli_list *arguments);

/* "inferd: text" in red on a terminal, to stderr; returns CLI_FAILED. */
int cli_fail(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* The same, but returns CLI_USAGE: the configuration or an option is wrong. */
int cli_refuse(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* The same and a pointer to --help; returns CLI_USAGE. */
int cli_usage_error(const struct cli_command *command, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Escape sequences for stdout or stderr, or empty strings when it is no terminal, NO_COLOR is set or TERM is "dumb". */
struct cli_style {
    const char *bold, *dim, *red, *green, *yellow, *cyan, *off;
};
struct cli_style cli_style(FILE *f);

/* Whole file, or standard input for "-", into `out`. Error text names the file. */
struct buf;
int cli_read_file(const char *path, size_t limit_bytes, struct buf *out, struct error *err) MUST_CHECK;

#endif
