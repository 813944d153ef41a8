/* chat_template_expr.c: the expressions of chat templates, by recursive descent over the tokens of chat_template_scan.c. */
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "text/chat_template_parse_priv.h"

#define LIST_MAX 4096

static int parse_signed(struct parser *p, bool suffixes, const struct expr **out);

struct expr *parse__make(struct parser *p, enum expr_kind kind)
{
    struct expr *e = ARENA_NEW(&p->t->arena, struct expr);
    if (e) {
        e->kind = kind;
        e->line = p->line;
    }
    return e;
}

/* Grow an expression's item list. */
int parse__add_item(struct parser *p, struct expr *e, const struct expr *item, struct str name)
{
    if ((e->n_items & (e->n_items - 1)) == 0) { /* 0, 1, 2, 4, 8, ...: room is used up */
        size_t cap = e->n_items ? e->n_items * 2 : 1;
        const struct expr **items = arena_array(&p->t->arena, cap, sizeof *items);
        struct str *names = arena_array(&p->t->arena, cap, sizeof *names);
        if (!items || !names || cap > LIST_MAX)
            return items && names ? parse__fail(p, "more than %d elements", LIST_MAX) : parse__no_memory(p);
        if (e->n_items) {
            memcpy(items, e->items, e->n_items * sizeof *items);
            memcpy(names, e->names, e->n_items * sizeof *names);
        }
        e->items = items;
        e->names = names;
    }
    e->items[e->n_items] = item;
    e->names[e->n_items++] = name;
    return 0;
}

/* Arguments up to ")"; the "(" is read. */
static int parse_args(struct parser *p, struct expr *e)
{
    while (!parse__is_op(p, ")")) {
        const struct expr *item;
        struct str name = {0};
        int rc = parse__expr(p, &item);
        if (rc == 0 && parse__is_op(p, "=")) {
            if (item->kind != EXPR_NAME)
                return parse__fail(p, "a keyword argument needs a name");
            name = item->name;
            rc = parse__next(p);
            if (rc == 0)
                rc = parse__expr(p, &item);
        }
        if (rc == 0)
            rc = parse__add_item(p, e, item, name);
        if (rc == 0 && !parse__is_op(p, ")"))
            rc = parse__expect_op(p, ",");
        if (rc < 0)
            return rc;
    }
    return parse__next(p);
}

/* Elements up to `close`; a trailing comma is allowed. *comma tells (a) from (a,). */
static int parse_elements(struct parser *p, struct expr *e, const char *close, bool pairs, bool *comma)
{
    while (!parse__is_op(p, close)) {
        const struct expr *item;
        int rc = parse__expr(p, &item);
        if (rc == 0)
            rc = parse__add_item(p, e, item, (struct str){0});
        if (rc == 0 && pairs) {
            rc = parse__expect_op(p, ":");
            if (rc == 0)
                rc = parse__expr(p, &item);
            if (rc == 0)
                rc = parse__add_item(p, e, item, (struct str){0});
        }
        if (rc < 0)
            return rc;
        if (parse__is_op(p, close))
            break;
        if (comma)
            *comma = true;
        rc = parse__expect_op(p, ",");
        if (rc < 0)
            return rc;
    }
    return parse__next(p);
}

static int parse_bracket(struct parser *p, const struct expr **out)
{
    bool round = parse__is_op(p, "("), square = parse__is_op(p, "["), comma = false;
    struct expr *e = parse__make(p, round ? EXPR_TUPLE : square ? EXPR_LIST : EXPR_DICT);
    int rc = e ? parse__next(p) : parse__no_memory(p);
    if (rc == 0)
        rc = parse_elements(p, e, round ? ")" : square ? "]" : "}", !round && !square, &comma);
    if (rc == 0)
        *out = round && e->n_items == 1 && !comma ? e->items[0] : e;
    return rc;
}

static int parse_literal(struct parser *p, const struct expr **out)
{
    static const struct {
        const char *word;
        struct value v;
    } words[] = {{"true", {.kind = VALUE_BOOL, .b = true}},
                 {"True", {.kind = VALUE_BOOL, .b = true}},
                 {"false", {.kind = VALUE_BOOL, .b = false}},
                 {"False", {.kind = VALUE_BOOL, .b = false}},
                 {"none", {.kind = VALUE_NONE}},
                 {"None", {.kind = VALUE_NONE}}};
    struct expr *e = parse__make(p, EXPR_LITERAL);
    if (!e)
        return parse__no_memory(p);
    *out = e;
    if (p->tok.kind == TOK_INT)
        e->value = (struct value){.kind = VALUE_INT, .i = p->tok.i};
    else if (p->tok.kind == TOK_FLOAT)
        e->value = (struct value){.kind = VALUE_FLOAT, .f = p->tok.f};
    else if (p->tok.kind == TOK_NAME) {
        e->kind = EXPR_NAME;
        e->name = p->tok.text;
        for (size_t i = 0; i < COUNT_OF(words); i++) {
            if (!str_eqz(p->tok.text, words[i].word))
                continue;
            e->kind = EXPR_LITERAL;
            e->value = words[i].v;
        }
    } else if (p->tok.kind == TOK_STR) {
        struct mark_run *run = ARENA_NEW(&p->t->arena, struct mark_run);
        if (!run)
            return parse__no_memory(p);
        *run = (struct mark_run){p->tok.text.n, true};
        e->value = (struct value){.kind = VALUE_STR, .s = {p->tok.text.p, p->tok.text.n, run, p->tok.text.n ? 1 : 0}};
    } else {
        return parse__fail(p, "expected an expression, found \"%.*s\"", STR_ARG(p->tok.text));
    }
    return parse__next(p);
}

static int parse_primary(struct parser *p, const struct expr **out)
{
    return parse__is_op(p, "(") || parse__is_op(p, "[") || parse__is_op(p, "{") ? parse_bracket(p, out) : parse_literal(p, out);
}

/* a[...]: an item or a slice; the "[" is read. */
static int parse_subscript(struct parser *p, const struct expr *a, const struct expr **out)
{
    struct expr *e = parse__make(p, EXPR_ITEM);
    if (!e)
        return parse__no_memory(p);
    e->a = a;
    *out = e;
    size_t part = 0;
    const struct expr *parts[3] = {NULL, NULL, NULL};
    bool slice = false;
    while (!parse__is_op(p, "]")) {
        int rc = 0;
        if (parse__is_op(p, ":")) {
            slice = true;
            if (++part > 2)
                return parse__fail(p, "a slice has at most three parts");
            rc = parse__next(p);
        } else {
            rc = parse__expr(p, &parts[part]);
        }
        if (rc < 0)
            return rc;
    }
    if (slice) {
        e->kind = EXPR_SLICE;
        for (int i = 0; i < 3; i++) {
            int rc = parse__add_item(p, e, parts[i], (struct str){0});
            if (rc < 0)
                return rc;
        }
    } else if (!(e->b = parts[0])) {
        return parse__fail(p, "an empty subscript");
    }
    return parse__next(p);
}

/* name, optional arguments: of a filter or a test with parentheses. */
static int parse_named(struct parser *p, struct expr *e)
{
    if (p->tok.kind != TOK_NAME)
        return parse__fail(p, "expected a name, found \"%.*s\"", STR_ARG(p->tok.text));
    e->name = p->tok.text;
    int rc = parse__next(p);
    if (rc == 0 && parse__is_op(p, "(")) {
        rc = parse__next(p);
        if (rc == 0)
            rc = parse_args(p, e);
    }
    return rc;
}

int parse__filter(struct parser *p, const struct expr *a, const struct expr **out)
{
    struct expr *e = parse__make(p, EXPR_FILTER);
    if (!e)
        return parse__no_memory(p);
    e->a = a;
    *out = e;
    int rc = parse_named(p, e);
    if (rc == 0 && !call__is_filter(e->name))
        return parse__fail(p, "the filter \"%.*s\" is not supported", STR_ARG(e->name));
    return rc;
}

int parse__postfix(struct parser *p, const struct expr **out)
{
    int rc = parse_primary(p, out);
    while (rc == 0) {
        const struct expr *a = *out;
        if (parse__is_op(p, ".")) {
            struct expr *e = parse__make(p, EXPR_ATTR);
            rc = e ? parse__next(p) : parse__no_memory(p);
            if (rc == 0 && p->tok.kind != TOK_NAME && p->tok.kind != TOK_INT)
                rc = parse__fail(p, "expected a name behind \".\"");
            if (rc == 0) {
                e->a = a;
                e->name = p->tok.text;
                *out = e;
                rc = parse__next(p);
            }
        } else if (parse__is_op(p, "[")) {
            rc = parse__next(p);
            if (rc == 0)
                rc = parse_subscript(p, a, out);
        } else if (parse__is_op(p, "(")) {
            struct expr *e = parse__make(p, EXPR_CALL);
            rc = e ? parse__next(p) : parse__no_memory(p);
            if (rc == 0) {
                e->a = a;
                *out = e;
                rc = parse_args(p, e);
            }
        } else {
            break;
        }
    }
    return rc;
}

/* Filters and tests bind tighter than arithmetic, looser than a call: a.b | f is t. */
static int parse_test(struct parser *p, const struct expr *a, const struct expr **out)
{
    struct expr *e = parse__make(p, EXPR_TEST);
    if (!e)
        return parse__no_memory(p);
    e->a = a;
    *out = e;
    if (parse__is_word(p, "not")) {
        e->negated = true;
        int rc = parse__next(p);
        if (rc < 0)
            return rc;
    }
    if (p->tok.kind != TOK_NAME)
        return parse__fail(p, "expected a test behind \"is\"");
    int rc = parse_named(p, e);
    if (rc == 0 && !call__is_test(e->name))
        return parse__fail(p, "the test \"%.*s\" is not supported", STR_ARG(e->name));
    /* `x is equalto y`, `x is in y`: an argument without parentheses */
    bool starts_value =
        p->tok.kind == TOK_STR || p->tok.kind == TOK_INT || p->tok.kind == TOK_FLOAT || parse__is_op(p, "[") ||
        (p->tok.kind == TOK_NAME && !parse__is_word(p, "and") && !parse__is_word(p, "or") && !parse__is_word(p, "else") &&
         !parse__is_word(p, "is") && !parse__is_word(p, "if") && !parse__is_word(p, "in") && !parse__is_word(p, "not"));
    if (rc == 0 && !e->n_items && starts_value) {
        const struct expr *argument;
        rc = parse_signed(p, false, &argument);
        if (rc == 0)
            rc = parse__add_item(p, e, argument, (struct str){0});
    }
    return rc;
}

static int parse_suffixes(struct parser *p, const struct expr **out)
{
    int rc = 0;
    while (rc == 0 && (parse__is_op(p, "|") || parse__is_word(p, "is"))) {
        bool filter = parse__is_op(p, "|");
        rc = parse__next(p);
        if (rc == 0)
            rc = filter ? parse__filter(p, *out, out) : parse_test(p, *out, out);
    }
    return rc;
}

/* A sign takes what is behind it without filters; those apply to the signed value: -3|abs is 3. */
static int parse_signed(struct parser *p, bool suffixes, const struct expr **out)
{
    int rc = 0;
    if (parse__is_op(p, "-") || parse__is_op(p, "+")) {
        struct expr *e = parse__make(p, parse__is_op(p, "-") ? EXPR_NEG : EXPR_POS);
        if (!e)
            return parse__no_memory(p);
        if (++p->depth > NESTING_MAX)
            return parse__fail(p, "expressions are nested more than %d deep", NESTING_MAX);
        *out = e;
        rc = parse__next(p);
        if (rc == 0)
            rc = parse_signed(p, false, &e->a);
        p->depth--;
    } else {
        rc = parse__postfix(p, out);
    }
    return rc == 0 && suffixes ? parse_suffixes(p, out) : rc;
}

static int parse_unary(struct parser *p, const struct expr **out)
{
    int rc = parse_signed(p, true, out);
    while (rc == 0 && parse__is_op(p, "**")) {
        struct expr *e = parse__make(p, EXPR_BINARY);
        rc = e ? parse__next(p) : parse__no_memory(p);
        if (rc < 0)
            break;
        e->op = OP_POW;
        e->a = *out;
        *out = e;
        rc = parse_signed(p, true, &e->b);
    }
    return rc;
}

struct level {
    struct {
        const char *op;
        enum binary_op id;
    } ops[6];
    size_t n;
};

/* From loose to tight. Jinja: comparisons, then + -, then ~, then * / // %. */
static const struct level levels[] = {
    {{{"==", OP_EQ}, {"!=", OP_NE}, {"<=", OP_LE}, {">=", OP_GE}, {"<", OP_LT}, {">", OP_GT}}, 6},
    {{{"+", OP_ADD}, {"-", OP_SUB}}, 2},
    {{{"~", OP_CONCAT}}, 1},
    {{{"*", OP_MUL}, {"//", OP_FLOORDIV}, {"/", OP_DIV}, {"%", OP_MOD}}, 4},
};

/* Is the current token an operator of this level? Level 0 also has `in` and `not in`; *second: one more word is to be read. */
static bool operator_of(struct parser *p, size_t level, enum binary_op *op, bool *second)
{
    *second = false;
    for (size_t i = 0; i < levels[level].n; i++) {
        if (parse__is_op(p, levels[level].ops[i].op)) {
            *op = levels[level].ops[i].id;
            return true;
        }
    }
    if (level == 0 && parse__is_word(p, "in")) {
        *op = OP_IN;
        return true;
    }
    if (level == 0 && parse__is_word(p, "not")) {
        *op = OP_NOT_IN;
        *second = true;
        return true;
    }
    return false;
}

static int parse_level(struct parser *p, size_t level, const struct expr **out)
{
    int rc = level == COUNT_OF(levels) ? parse_unary(p, out) : parse_level(p, level + 1, out);
    enum binary_op op;
    bool second;
    const struct expr *chain = NULL; /* a < b < c is (a < b) and (b < c) */
    while (rc == 0 && level < COUNT_OF(levels) && operator_of(p, level, &op, &second)) {
        struct expr *e = parse__make(p, EXPR_BINARY);
        rc = e ? parse__next(p) : parse__no_memory(p);
        if (rc == 0 && second)
            rc = parse__is_word(p, "in") ? parse__next(p) : parse__fail(p, "expected \"in\" behind \"not\"");
        if (rc < 0)
            return rc;
        e->op = op;
        e->a = level == 0 && chain ? chain : *out;
        rc = parse_level(p, level + 1, &e->b);
        if (rc < 0)
            return rc;
        if (level == 0 && chain) {
            struct expr *both = parse__make(p, EXPR_AND);
            if (!both)
                return parse__no_memory(p);
            both->a = *out;
            both->b = e;
            *out = both;
        } else {
            *out = e;
        }
        chain = e->b;
    }
    return rc;
}

static int parse_not(struct parser *p, const struct expr **out)
{
    if (!parse__is_word(p, "not"))
        return parse_level(p, 0, out);
    struct expr *e = parse__make(p, EXPR_NOT);
    if (!e)
        return parse__no_memory(p);
    if (++p->depth > NESTING_MAX)
        return parse__fail(p, "expressions are nested more than %d deep", NESTING_MAX);
    *out = e;
    int rc = parse__next(p);
    if (rc == 0)
        rc = parse_not(p, &e->a);
    p->depth--;
    return rc;
}

int parse__logic(struct parser *p, bool or_level, const struct expr **out)
{
    int rc = or_level ? parse__logic(p, false, out) : parse_not(p, out);
    while (rc == 0 && parse__is_word(p, or_level ? "or" : "and")) {
        struct expr *e = parse__make(p, or_level ? EXPR_OR : EXPR_AND);
        rc = e ? parse__next(p) : parse__no_memory(p);
        if (rc < 0)
            break;
        e->a = *out;
        *out = e;
        rc = or_level ? parse__logic(p, false, &e->b) : parse_not(p, &e->b);
    }
    return rc;
}

int parse__expr(struct parser *p, const struct expr **out)
{
    if (++p->depth > NESTING_MAX)
        return parse__fail(p, "expressions are nested more than %d deep", NESTING_MAX);
    int rc = parse__logic(p, true, out);
    while (rc == 0 && parse__is_word(p, "if")) {
        struct expr *e = parse__make(p, EXPR_IF);
        rc = e ? parse__next(p) : parse__no_memory(p);
        if (rc < 0)
            break;
        e->a = *out;
        *out = e;
        rc = parse__logic(p, true, &e->b);
        if (rc == 0 && parse__is_word(p, "else")) {
            rc = parse__next(p);
            if (rc == 0)
                rc = parse__expr(p, &e->c);
        }
    }
    p->depth--;
    return rc;
}

/* `*out` is the first of several: read the others into a tuple. A comma behind the last is allowed before what can't begin an element. */
static int parse_commas(struct parser *p, int (*element)(struct parser *p, const struct expr **out), const struct expr **out)
{
    struct expr *e = parse__make(p, EXPR_TUPLE);
    if (!e)
        return parse__no_memory(p);
    int rc = parse__add_item(p, e, *out, (struct str){0});
    while (rc == 0 && parse__is_op(p, ",")) {
        const struct expr *item;
        rc = parse__next(p);
        if (rc == 0 && (p->tok.kind == TOK_END_TAG || parse__is_op(p, "=")))
            break;
        if (rc == 0)
            rc = element(p, &item);
        if (rc == 0)
            rc = parse__add_item(p, e, item, (struct str){0});
    }
    *out = e;
    return rc;
}

int parse__tuple(struct parser *p, const struct expr **out)
{
    int rc = parse__expr(p, out);
    return rc == 0 && parse__is_op(p, ",") ? parse_commas(p, parse__expr, out) : rc;
}

int parse__targets(struct parser *p, const struct expr **out)
{
    int rc = parse__postfix(p, out);
    return rc == 0 && parse__is_op(p, ",") ? parse_commas(p, parse__postfix, out) : rc;
}

int parse__filters(struct parser *p, const struct expr **out)
{
    int rc = 0;
    while (rc == 0 && parse__is_op(p, "|")) {
        rc = parse__next(p);
        if (rc == 0)
            rc = parse__filter(p, *out, out);
    }
    return rc;
}
