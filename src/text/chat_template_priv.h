/* chat_template_priv.h: for text/chat_template*.c only: syntax tree, values, and the state of a render.
 *
 * Strings carry marks: a string is bytes plus runs that say which bytes are template text and which came from the arguments. Every operation that
 * makes a string (concatenation, slicing, filters, methods) copies the marks with the bytes through one builder. Everything of a render lives
 * in the caller's arena; nothing is freed before the whole. */
#ifndef INFERD_TEXT_CHAT_TEMPLATE_PRIV_H
#define INFERD_TEXT_CHAT_TEMPLATE_PRIV_H

#include "base/arena.h"
#include "text/chat_template.h"

/* ---- syntax tree (immutable, in the template's arena) ---- */

enum expr_kind {
    EXPR_LITERAL, /* value */
    EXPR_NAME,    /* name */
    EXPR_LIST,    /* items */
    EXPR_TUPLE,   /* items */
    EXPR_DICT,    /* items: key, value, key, value... */
    EXPR_ATTR,    /* a.name */
    EXPR_ITEM,    /* a[b] */
    EXPR_SLICE,   /* a[items[0] : items[1] : items[2]], NULL where left out */
    EXPR_CALL,    /* a(items, names) */
    EXPR_FILTER,  /* a | name(items, names) */
    EXPR_TEST,    /* a is [not] name(items) */
    EXPR_NOT,
    EXPR_NEG,
    EXPR_POS,
    EXPR_BINARY, /* op a b */
    EXPR_AND,
    EXPR_OR,
    EXPR_IF, /* a if b else c */
};

enum binary_op {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_CONCAT,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN
};

enum value_kind {
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STR,
    VALUE_LIST,
    VALUE_DICT,
    VALUE_MACRO,
    VALUE_BUILTIN
};

struct mark_run {
    size_t end; /* the run covers up to here */
    bool trusted;
};

struct text {
    const char *p;
    size_t n;
    const struct mark_run *runs;
    size_t n_runs;
};

struct value;

struct list_value {
    struct value *v;
    size_t n, cap;
    bool tuple;
};

struct dict_entry {
    struct value *key, *val;
};

struct dict_value {
    struct dict_entry *v; /* in order of insertion; small, so looked up by scan */
    size_t n, cap;
    bool is_namespace;
};

struct stmt;

struct value {
    enum value_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        struct text s;
        struct list_value *l;
        struct dict_value *d;
        const struct stmt *macro;
        struct str undefined; /* the name, for messages */
        struct {
            int id;                   /* enum builtin of chat_template_call.c */
            const struct value *self; /* bound method's object; NULL: a function */
        } fn;
    };
};

struct expr {
    enum expr_kind kind;
    uint32_t line;
    enum binary_op op;
    bool negated; /* EXPR_TEST: is not */
    struct str name;
    struct value value;
    const struct expr *a, *b, *c;
    const struct expr **items;
    struct str *names; /* of keyword arguments; n == 0 for positional ones */
    size_t n_items;
};

enum stmt_kind {
    STMT_TEXT,
    STMT_OUTPUT,
    STMT_IF,
    STMT_FOR,
    STMT_SET,
    STMT_SET_BLOCK,
    STMT_MACRO,
    STMT_CALL,
    STMT_FILTER,
    STMT_BREAK,
    STMT_CONTINUE,
    STMT_BODY
};

struct stmt {
    enum stmt_kind kind;
    uint32_t line;
    const struct stmt *next;   /* in its body */
    struct str text;           /* STMT_TEXT; the name of a macro */
    const struct expr *expr;   /* output; condition; iterable; assigned value; called expression; filter chain over NULL */
    const struct expr *target; /* of set: name, attribute or tuple; of for: name or tuple */
    const struct expr *filter; /* for ... if */
    const struct stmt *body, *other; /* other: else / elif chain */
    struct str *params;              /* macro and call */
    const struct expr **defaults;    /* NULL entries: none */
    size_t n_params;
};

struct chat_template {
    struct arena arena;
    const struct stmt *body;
};

/* Parse into t->arena. */
int chat_template__parse(struct chat_template *t, struct str source, struct error *err) MUST_CHECK;

/* ---- a render ---- */

struct binding {
    struct str name;
    struct value v;
    struct binding *next;
};

struct scope {
    struct binding *first;
    struct scope *parent;
};

struct builder {
    struct arena *a;
    char *p;
    size_t n, cap;
    struct mark_run *runs;
    size_t n_runs, runs_cap;
    bool failed;
};

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

struct render {
    struct arena *a;     /* values */
    struct builder *out; /* where output goes now */
    struct scope *scope, *root;
    struct error *err;
    uint64_t steps_left;
    uint32_t depth, max_depth;
    size_t max_output;
    int64_t now_s;
    uint32_t line; /* of what runs, for messages */
    enum flow flow;
};

/* Fails the render: "line N: ...". */
int render__fail(struct render *r, int status, const char *fmt, ...) PRINTF_LIKE(3, 4);
int render__step(struct render *r) MUST_CHECK;
int render__eval(struct render *r, const struct expr *e, struct value *out) MUST_CHECK;
int render__body(struct render *r, const struct stmt *s) MUST_CHECK;
int render__bind(struct render *r, struct scope *s, struct str name, const struct value *v) MUST_CHECK;
int render__assign(struct render *r, const struct expr *target, const struct value *v) MUST_CHECK;
/* Run a macro with evaluated arguments; `caller` (may be NULL) is bound to the name "caller". */
struct args {
    struct value *v;
    const struct str *names; /* n == 0: positional */
    size_t n;
};
int render__macro(struct render *r, const struct stmt *macro, const struct args *args, const struct value *caller,
                  struct value *out) MUST_CHECK;

/* ---- values (chat_template_value.c) ---- */

void builder_init(struct builder *b, struct arena *a);
void builder_add(struct builder *b, const char *p, size_t n, bool trusted);
void builder_add_text(struct builder *b, const struct text *t, size_t from, size_t n);
int builder_take(struct render *r, struct builder *b, struct text *out) MUST_CHECK;

static inline struct value value_bool(bool b)
{
    return (struct value){.kind = VALUE_BOOL, .b = b};
}
static inline struct value value_int(int64_t i)
{
    return (struct value){.kind = VALUE_INT, .i = i};
}
static inline struct value value_none(void)
{
    return (struct value){.kind = VALUE_NONE};
}
static inline struct value value_undefined(struct str name)
{
    return (struct value){.kind = VALUE_UNDEFINED, .undefined = name};
}
/* A string of constant bytes, all of one mark. NOMEM. */
int value_str(struct render *r, struct str s, bool trusted, struct value *out) MUST_CHECK;
int value_list(struct render *r, size_t cap, bool tuple, struct value *out) MUST_CHECK;
int value_dict(struct render *r, struct value *out) MUST_CHECK;
int list_push(struct render *r, struct list_value *l, const struct value *v) MUST_CHECK;
int dict_put(struct render *r, struct dict_value *d, const struct value *key, const struct value *v) MUST_CHECK;
const struct value *dict_get(const struct dict_value *d, const struct value *key);
const struct value *dict_get_name(const struct dict_value *d, struct str name);

const char *value_type(const struct value *v); /* Python's word */
bool value_truth(const struct value *v);
bool value_equal(const struct value *a, const struct value *b);
/* <0, 0, >0; fails on types that have no order. */
int value_compare(struct render *r, const struct value *a, const struct value *b, int *out) MUST_CHECK;
/* str(v) as Python, appended. */
int value_append(struct render *r, struct builder *b, const struct value *v, bool repr) MUST_CHECK;
/* The items that iterating gives: list items, dict keys, characters. */
int value_iterate(struct render *r, const struct value *v, struct list_value **out) MUST_CHECK;
int value_contains(struct render *r, const struct value *in, const struct value *v, bool *out) MUST_CHECK;
/* Code points of a string. */
size_t text_length(const struct text *t);
size_t text_offset(const struct text *t, size_t code_points);
int value_sub(struct render *r, const struct text *t, size_t from, size_t n, struct value *out) MUST_CHECK;
static inline struct str text_str(const struct text *t)
{
    return (struct str){t->p, t->n};
}

/* From JSON; strings are user text unless `trusted`, and point into the document unless `copy`. */
int value_from_json(struct render *r, yyjson_val *j, bool trusted, bool copy, struct value *out) MUST_CHECK;
int value_tojson(struct render *r, struct builder *b, const struct value *v, int indent, int level, struct str item_sep,
                 struct str key_sep, bool sort_keys) MUST_CHECK;

/* ---- what can be called (chat_template_call.c, chat_template_filter.c) ---- */

/* Attribute or method of a value. Missing: undefined. */
int call__attribute(struct render *r, const struct value *v, struct str name, struct value *out) MUST_CHECK;
int call__item(struct render *r, const struct value *v, const struct value *key, struct value *out) MUST_CHECK;
int call__invoke(struct render *r, const struct value *fn, const struct args *args, struct value *out) MUST_CHECK;
/* Global functions: range, namespace, dict, raise_exception, strftime_now. Undefined when there is none. */
struct value call__global(struct str name);
int call__filter(struct render *r, struct str name, const struct value *v, const struct args *args,
                 struct value *out) MUST_CHECK;
int call__test(struct render *r, struct str name, const struct value *v, const struct args *args, bool *out) MUST_CHECK;
bool call__is_filter(struct str name);
bool call__is_test(struct str name);
/* Methods of strings, by the id that call__attribute bound. */
int call__binary(struct render *r, enum binary_op op, const struct value *a, const struct value *b,
                 struct value *out) MUST_CHECK;

/* Argument `index`, or the one named `name`; NULL when not given. */
const struct value *args_get(const struct args *a, size_t index, const char *name);

#endif
