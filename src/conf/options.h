/* options.h: THE option table of the server. One row per option gives its parser, its range check, its default, its flag, its
 * line in `inferd config --help` and docs/reference/config.md, and whether a reload applies it. The rows are in options.c;
 * nothing else in inferd spells an option's name except to read its field of struct config. Immutable. */
#ifndef INFERD_CONF_OPTIONS_H
#define INFERD_CONF_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "conf/suggest.h"

enum option_type {
    OPTION_BOOL,     /* bool */
    OPTION_COUNT,    /* uint32_t */
    OPTION_BYTES,    /* uint64_t, "64MiB" */
    OPTION_BYTES32,  /* uint32_t, "32KiB" */
    OPTION_DURATION, /* uint64_t ns, "250ms" */
    OPTION_ENUM,     /* int, index into words */
    OPTION_WORD,     /* const char *, one of words */
    OPTION_STRING,   /* const char *, never NULL */
    OPTION_LIST,     /* struct config_list */
};

struct option {
    const char *name;    /* dotted */
    const char *initial; /* the default, as text */
    const char *help;    /* one line; says what the special values mean */
    const char *unit;    /* for people, "" where the type says it */
    enum option_type type;
    bool reloadable;
    size_t offset;               /* in struct config */
    uint64_t min, max;           /* of numbers; of the length for lists, in entries */
    const char *const *words;    /* OPTION_ENUM, OPTION_WORD: NULL-terminated */
    bool (*valid)(struct str v); /* (optional) a further check of a string or of each list entry */
    const char *accepts;         /* what `valid` accepts, for messages */
};

struct option_group {
    const char *name, *title;
    const struct option *rows;
    size_t n;
};

/* Flags that are shorter, or that Triton's users type. */
struct option_alias {
    const char *flag, *option;
    const char *format; /* the option's value, with one %s for the flag's; NULL: the same */
    const char *help;
};

/* The whole tables. */
const struct option_group *option_groups(size_t *n);
const struct option_alias *option_aliases(size_t *n);

/* Rows in table order, 0..option_count()-1. */
size_t option_count(void);
const struct option *option_at(size_t index);
size_t option_index(const struct option *row);
/* By dotted name; NULL when unknown. */
const struct option *option_find(struct str name);
/* Offer every name (aliases too when `flags`) to `s`. */
void option_suggest(struct suggest *s, bool flags);
/* "true or false", "a whole number in 1..1024", "a size in 1KiB..1TiB" into `text`; returns text. */
const char *option_accepts(const struct option *row, char *text, size_t cap);

/* A size or a duration with the largest unit that keeps it whole: "64MiB", "250ms", "0". Returns text. */
const char *option_format_bytes(uint64_t v, char *text, size_t cap);
const char *option_format_duration(uint64_t ns, char *text, size_t cap);

#endif
