/* model_fields.h: private to the model_config*.c files: the table form in which Triton's ModelConfig is described.
 *
 * One message is one array of rows; a row names a field, says how its value is read and where it goes. Fields that Triton
 * knows and inferd does not serve are rows too: they warn, unless they hold their default. Rows marked `ours` are inferd's own
 * keys, accepted in model.yaml and JSON; config.pbtxt spells them as `parameters`, because protobuf has no place for them. */
#ifndef INFERD_CONF_MODEL_FIELDS_H
#define INFERD_CONF_MODEL_FIELDS_H

#include "conf/model_config.h"
#include "conf/node.h"

enum model_format { MODEL_YAML, MODEL_PBTXT, MODEL_JSON };

struct reader {
    const char *where;
    enum model_format format;
    struct arena *arena;
    struct error *err;
    struct model_config *config;
    bool dynamic_batching; /* the block was there */
    char path[256];        /* of the value being read: "input[0].dims" */
    size_t path_n;
};

enum field_kind {
    FIELD_STRING,     /* struct str */
    FIELD_BOOL,       /* bool */
    FIELD_I64,        /* int64_t */
    FIELD_U32,        /* uint32_t */
    FIELD_U64,        /* uint64_t */
    FIELD_MESSAGE,    /* a struct of its own at the offset */
    FIELD_CUSTOM,     /* read() */
    FIELD_NOT_SERVED, /* warn unless default */
    FIELD_IGNORED,    /* without meaning for inferd, and harmless */
};

struct field {
    const char *name;
    enum field_kind kind;
    bool ours;
    size_t offset;
    int64_t min;
    uint64_t max;
    const struct message *message;
    int (*read)(struct reader *r, const struct node *n, void *base);
    const char *usual; /* FIELD_NOT_SERVED: a value that means the default; NULL: only empty, 0 and false do */
};

struct message {
    const struct field *fields;
    size_t n;
};

extern const struct message model_message;

/* Every child of `map` through the rows of `m` into `base`. */
int model_read_message(struct reader *r, const struct message *m, const struct node *map, void *base) MUST_CHECK;

/* Single values; each complains with the current path, the value and what is accepted. */
int model_read_string(struct reader *r, const struct node *n, struct str *out) MUST_CHECK;
int model_read_bool(struct reader *r, const struct node *n, bool *out) MUST_CHECK;
int model_read_u64(struct reader *r, const struct node *n, uint64_t min, uint64_t max, uint64_t *out) MUST_CHECK;
int model_read_i64(struct reader *r, const struct node *n, int64_t min, int64_t max, int64_t *out) MUST_CHECK;
int model_read_f64(struct reader *r, const struct node *n, double *out) MUST_CHECK;
/* Index of the scalar in `words` (NULL-terminated), or of its number (protobuf allows both). */
int model_read_enum(struct reader *r, const struct node *n, const char *const *words, int *out) MUST_CHECK;
/* A list of integers, or one alone. `more` is counted up from *count; more than `max` in all is an error. */
int model_read_ints(struct reader *r, const struct node *n, int64_t min, int64_t most, int64_t *v, size_t max,
                    size_t *count) MUST_CHECK;

/* Call each() for every element of a repeated field (a list, or a single value) with path "name[i]". */
int model_each(struct reader *r, const struct node *n,
               int (*each)(struct reader *r, const struct node *item, size_t i, void *ctx), void *ctx) MUST_CHECK;
/* The same for a map field: { key: "k" value ... } in pbtxt, k: value elsewhere. Path "name[k]". */
int model_each_entry(struct reader *r, const struct node *n,
                     int (*each)(struct reader *r, struct str key, const struct node *value, void *ctx), void *ctx) MUST_CHECK;
/* How many calls the two above would make. */
size_t model_count(const struct reader *r, const struct node *n);
size_t model_count_entries(const struct reader *r, const struct node *n);

/* Path bookkeeping: push returns the mark that pop takes. */
size_t model_path_push(struct reader *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
void model_path_pop(struct reader *r, size_t mark);

/* Complain about `n` at the current path; warn puts a whole sentence into config->warnings (at most 64 of them). */
int model_error(struct reader *r, const struct node *n, const char *fmt, ...) PRINTF_LIKE(3, 4);
int model_warn(struct reader *r, const struct node *n, const char *fmt, ...) PRINTF_LIKE(3, 4);
int model_no_memory(struct reader *r); /* STATUS_NOMEM */

/* "TYPE_FP32" or "FP32" (and "STRING"/"BYTES") to Triton's spelling, by number in protobuf; empty when unknown. */
extern const char *const model_data_types[]; /* in the order of Triton's enum, NULL-terminated */

/* inferd's own settings that config.pbtxt carries as parameters: taken when `key` is one of them. 1: taken, 0: not ours. */
int model_read_parameter(struct reader *r, const struct node *n, struct str key, struct str value) MUST_CHECK;

#endif
