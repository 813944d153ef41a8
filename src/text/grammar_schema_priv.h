/* grammar_schema_priv.h: for text/grammar_schema*.c only: JSON Schema as conjunctions of schema objects. */
#ifndef INFERD_TEXT_GRAMMAR_SCHEMA_PRIV_H
#define INFERD_TEXT_GRAMMAR_SCHEMA_PRIV_H

#include <yyjson.h>

#include "base/map.h"
#include "text/grammar_priv.h"
#include "wire/json.h"

#define SET_PARTS_MAX 24

/* What has been taken out of a part already. */
enum { USED_REF = 1, USED_ALL_OF = 2, USED_ANY_OF = 4, USED_ONE_OF = 8, CHOSEN = USED_ANY_OF | USED_ONE_OF };

struct spart {
    yyjson_val *v; /* an object; numbers in it are raw text */
    uint32_t used, parent;
};

/* What must hold together: every part, less what was used of it. */
struct sset {
    uint32_t n;
    bool never; /* nothing is valid */
    struct spart part[SET_PARTS_MAX];
};

/* Types as bits; NUMBER stands for numbers that are not integers. */
enum {
    T_NULL = 1,
    T_BOOLEAN = 2,
    T_STRING = 4,
    T_INTEGER = 8,
    T_NUMBER = 16,
    T_OBJECT = 32,
    T_ARRAY = 64,
    T_ALL = 127,
};

struct schema {
    struct gbuild *b;
    struct gjson j;
    yyjson_val *root;
    struct map rules; /* of sets that have been begun */
    uint32_t depth;
    char path[160]; /* where we are, for messages */
    size_t n_path;
};

/* grammar_schema.c */
void schema__fail(struct schema *s, const char *keyword, const char *fmt, ...) PRINTF_LIKE(3, 4);
size_t schema__enter(struct schema *s, const char *step, struct str name); /* returns what to pass to schema__leave */
void schema__leave(struct schema *s, size_t before);
/* `v` (a schema: object or boolean) joins `set`. */
void schema__add(struct schema *s, struct sset *set, yyjson_val *v, uint32_t parent);
/* Resolve references and allOf, drop what says nothing, put into order. */
void schema__normalise(struct schema *s, struct sset *set);
/* The rule of a set; changes it. */
uint32_t schema__rule(struct schema *s, struct sset *set);
uint32_t schema__types(struct schema *s,
                       const struct sset *set); /* what `type` allows, or else the keywords imply; T_ALL: anything */
/* Member `key` of part i, unless it was used. */
yyjson_val *schema__get(const struct sset *set, uint32_t i, const char *key);
/* The highest value of `key` (minLength …) or the lowest (maxLength …) over all parts; `none` when there is none. */
uint32_t schema__most(struct schema *s, const struct sset *set, const char *key, uint32_t none);
uint32_t schema__least(struct schema *s, const struct sset *set, const char *key, uint32_t none);

/* grammar_schema_values.c: draw one type from `from` to `to`. */
void schema__string(struct schema *s, const struct sset *set, uint32_t from, uint32_t to);
void schema__number(struct schema *s, const struct sset *set, bool integer, uint32_t from, uint32_t to);
void schema__array(struct schema *s, const struct sset *set, uint32_t from, uint32_t to);
/* const and enum: the values that all parts list and whose type is allowed. False: no part has one. */
bool schema__enum(struct schema *s, const struct sset *set, uint32_t types, uint32_t from, uint32_t to);
/* Do all parts that list values list this one? */
bool schema__listed(struct schema *s, const struct sset *set, yyjson_val *value);

/* grammar_schema_object.c */
void schema__object(struct schema *s, const struct sset *set, uint32_t from, uint32_t to);

/* grammar_schema_one_of.c: do the branches exclude each other, as far as can be told? Fails, naming two that may not. */
void schema__check_one_of(struct schema *s, yyjson_val *branches);

#endif
