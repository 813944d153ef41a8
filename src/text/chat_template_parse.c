/* chat_template_parse.c: from template text to a syntax tree: a scanner for text and tags, a tokeniser inside tags, recursive descent.
 *
 * Whitespace as transformers sets Jinja up: trim_blocks (the newline behind a block tag goes) and lstrip_blocks (blanks before a block tag
 * that begins its line go), besides the explicit "-" and "+" of tags. Nesting is bounded, so a template can't overflow the C stack.
 *
 * Exception: the file is longer than others: it is one grammar, whose functions call each other in a ring over one parser state. */
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "text/chat_template_priv.h"
#include "text/unicode.h"

#define NESTING_MAX 200
#define LIST_MAX    4096

enum token_kind { TOK_END_TAG, TOK_NAME, TOK_INT, TOK_FLOAT, TOK_STR, TOK_OP, TOK_EOF };

struct token {
    enum token_kind kind;
    struct str text; /* source text; of a string, its decoded bytes */
    double f;
    int64_t i;
};

struct parser {
    struct chat_template *t;
    struct str src;
    size_t at;
    uint32_t line, depth, braces; /* braces: open { in this tag, whose } don't end it */
    bool block_tag;               /* inside {% %} rather than {{ }} */
    bool trim_text;               /* the text that follows loses its leading blanks ("-%}") */
    bool trim_newline;            /* ... or one newline (trim_blocks) */
    struct token tok;
    struct error *err;
};

static int fail(struct parser *p, const char *fmt, ...) PRINTF_LIKE(2, 3);
static int fail(struct parser *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    error_vset(p->err, STATUS_INVALID, fmt, ap);
    va_end(ap);
    error_prefix(p->err, "chat template, line %u", p->line);
    return STATUS_INVALID;
}

static int no_memory(struct parser *p)
{
    return error_set(p->err, STATUS_NOMEM, "out of memory while reading a chat template");
}

static bool at(const struct parser *p, const char *z)
{
    size_t n = strlen(z);
    return p->src.n - p->at >= n && memcmp(p->src.p + p->at, z, n) == 0;
}

static void skip(struct parser *p, size_t n)
{
    for (; n && p->at < p->src.n; n--)
        p->line += p->src.p[p->at++] == '\n';
}

/* ---- tokens inside a tag ---- */

static bool is_name_char(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
}

static int read_string(struct parser *p, char quote)
{
    char *out = arena_alloc(&p->t->arena, p->src.n - p->at);
    size_t n = 0;
    if (!out)
        return no_memory(p);
    skip(p, 1);
    while (p->at < p->src.n && p->src.p[p->at] != quote) {
        char c = p->src.p[p->at];
        skip(p, 1);
        if (c != '\\' || p->at >= p->src.n) {
            out[n++] = c;
            continue;
        }
        c = p->src.p[p->at];
        skip(p, 1);
        if (c == 'u' && p->src.n - p->at >= 4) {
            int32_t cp = 0;
            for (int k = 0; k < 4; k++) {
                const char *digits = "0123456789abcdef", h = (char)(p->src.p[p->at + (size_t)k] | 0x20), *d = strchr(digits, h);
                cp = d && h ? cp * 16 + (int32_t)(d - digits) : 0xd800;
            }
            if (cp >= 0xd800 && cp < 0xe000)
                return fail(p, "bad \\u escape in a string");
            skip(p, 4);
            n += unicode_put(cp, out + n);
            continue;
        }
        const char *from = "nrtbf0", *to = "\n\r\t\b\f\0", *found = c ? strchr(from, c) : NULL;
        if (found) {
            out[n++] = to[found - from];
            continue;
        }
        if (c != '\\' && c != '\'' && c != '"' && c != '\n')
            out[n++] = '\\';
        if (c != '\n')
            out[n++] = c;
    }
    if (p->at >= p->src.n)
        return fail(p, "a string is not closed");
    skip(p, 1);
    p->tok = (struct token){.kind = TOK_STR, .text = {out, n}};
    return 0;
}

static int read_number(struct parser *p)
{
    size_t start = p->at;
    bool real = false;
    while (p->at < p->src.n) {
        char c = p->src.p[p->at];
        bool dot = c == '.' && !real && p->at + 1 < p->src.n && p->src.p[p->at + 1] >= '0' && p->src.p[p->at + 1] <= '9';
        size_t digit = p->at + 1 + (p->at + 1 < p->src.n && strchr("+-", p->src.p[p->at + 1]));
        bool exponent = (c | 0x20) == 'e' && digit < p->src.n && p->src.p[digit] >= '0' && p->src.p[digit] <= '9';
        if (!(c >= '0' && c <= '9') && c != '_' && !dot && !exponent)
            break;
        real |= dot || exponent;
        p->at = exponent ? digit : p->at + 1;
    }
    struct str text = {p->src.p + start, p->at - start};
    p->tok = (struct token){.kind = real ? TOK_FLOAT : TOK_INT, .text = text};
    if (real ? !str_to_f64(text, &p->tok.f) : !str_to_i64(text, &p->tok.i))
        return fail(p, "\"%.*s\" is not a number", STR_ARG(text));
    return 0;
}

/* The end of the tag: "%}", "-%}", "+%}", "}}" or "-}}". */
static bool read_end(struct parser *p)
{
    if (p->braces)
        return false;
    const char *plain = p->block_tag ? "%}" : "}}", *minus = p->block_tag ? "-%}" : "-}}";
    bool trim = at(p, minus), plus = p->block_tag && at(p, "+%}");
    if (!trim && !plus && !at(p, plain))
        return false;
    skip(p, trim || plus ? 3 : 2);
    p->trim_text = trim;
    p->trim_newline = p->block_tag && !trim && !plus;
    p->tok = (struct token){.kind = TOK_END_TAG};
    return true;
}

static int next(struct parser *p)
{
    static const char *const ops[] = {"==", "!=", "<=", ">=", "//", "**", "+", "-", "*", "/", "%", "~", "(",
                                      ")",  "[",  "]",  "{",  "}",  ",",  ":", ".", "|", "=", "<", ">"};
    while (p->at < p->src.n && strchr(" \t\r\n", p->src.p[p->at]) && p->src.p[p->at])
        skip(p, 1);
    if (p->at >= p->src.n)
        return fail(p, "a tag is not closed");
    if (read_end(p))
        return 0;
    char c = p->src.p[p->at];
    if (c == '"' || c == '\'')
        return read_string(p, c);
    if (c >= '0' && c <= '9')
        return read_number(p);
    if (is_name_char(c, true)) {
        size_t start = p->at;
        while (p->at < p->src.n && is_name_char(p->src.p[p->at], false))
            p->at++;
        p->tok = (struct token){.kind = TOK_NAME, .text = {p->src.p + start, p->at - start}};
        return 0;
    }
    for (size_t i = 0; i < COUNT_OF(ops); i++) {
        if (!at(p, ops[i]))
            continue;
        p->tok = (struct token){.kind = TOK_OP, .text = str_of(ops[i])};
        p->braces += ops[i][0] == '{';
        p->braces -= ops[i][0] == '}' && p->braces;
        skip(p, p->tok.text.n);
        return 0;
    }
    return fail(p, "unexpected character '%c'", c);
}

static bool is_op(const struct parser *p, const char *op)
{
    return p->tok.kind == TOK_OP && str_eqz(p->tok.text, op);
}
static bool is_word(const struct parser *p, const char *word)
{
    return p->tok.kind == TOK_NAME && str_eqz(p->tok.text, word);
}

static int expect_op(struct parser *p, const char *op)
{
    return is_op(p, op) ? next(p) : fail(p, "expected \"%s\", found \"%.*s\"", op, STR_ARG(p->tok.text));
}

static int expect_end(struct parser *p)
{
    return p->tok.kind == TOK_END_TAG ? 0 : fail(p, "unexpected \"%.*s\" before the end of the tag", STR_ARG(p->tok.text));
}

/* ---- expressions ---- */

static int parse_expr(struct parser *p, const struct expr **out);
static int parse_signed(struct parser *p, bool suffixes, const struct expr **out);

static struct expr *make(struct parser *p, enum expr_kind kind)
{
    struct expr *e = ARENA_NEW(&p->t->arena, struct expr);
    if (e) {
        e->kind = kind;
        e->line = p->line;
    }
    return e;
}

/* Grow an expression's item list. */
static int add_item(struct parser *p, struct expr *e, const struct expr *item, struct str name)
{
    if ((e->n_items & (e->n_items - 1)) == 0) { /* 0, 1, 2, 4, 8, ...: room is used up */
        size_t cap = e->n_items ? e->n_items * 2 : 1;
        const struct expr **items = arena_array(&p->t->arena, cap, sizeof *items);
        struct str *names = arena_array(&p->t->arena, cap, sizeof *names);
        if (!items || !names || cap > LIST_MAX)
            return items && names ? fail(p, "more than %d elements", LIST_MAX) : no_memory(p);
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
    while (!is_op(p, ")")) {
        const struct expr *item;
        struct str name = {0};
        int rc = parse_expr(p, &item);
        if (rc == 0 && is_op(p, "=")) {
            if (item->kind != EXPR_NAME)
                return fail(p, "a keyword argument needs a name");
            name = item->name;
            rc = next(p);
            if (rc == 0)
                rc = parse_expr(p, &item);
        }
        if (rc == 0)
            rc = add_item(p, e, item, name);
        if (rc == 0 && !is_op(p, ")"))
            rc = expect_op(p, ",");
        if (rc < 0)
            return rc;
    }
    return next(p);
}

/* Elements up to `close`; a trailing comma is allowed. *comma tells (a) from (a,). */
static int parse_elements(struct parser *p, struct expr *e, const char *close, bool pairs, bool *comma)
{
    while (!is_op(p, close)) {
        const struct expr *item;
        int rc = parse_expr(p, &item);
        if (rc == 0)
            rc = add_item(p, e, item, (struct str){0});
        if (rc == 0 && pairs) {
            rc = expect_op(p, ":");
            if (rc == 0)
                rc = parse_expr(p, &item);
            if (rc == 0)
                rc = add_item(p, e, item, (struct str){0});
        }
        if (rc < 0)
            return rc;
        if (is_op(p, close))
            break;
        if (comma)
            *comma = true;
        rc = expect_op(p, ",");
        if (rc < 0)
            return rc;
    }
    return next(p);
}

static int parse_bracket(struct parser *p, const struct expr **out)
{
    bool round = is_op(p, "("), square = is_op(p, "["), comma = false;
    struct expr *e = make(p, round ? EXPR_TUPLE : square ? EXPR_LIST : EXPR_DICT);
    int rc = e ? next(p) : no_memory(p);
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
    struct expr *e = make(p, EXPR_LITERAL);
    if (!e)
        return no_memory(p);
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
            return no_memory(p);
        *run = (struct mark_run){p->tok.text.n, true};
        e->value = (struct value){.kind = VALUE_STR, .s = {p->tok.text.p, p->tok.text.n, run, p->tok.text.n ? 1 : 0}};
    } else {
        return fail(p, "expected an expression, found \"%.*s\"", STR_ARG(p->tok.text));
    }
    return next(p);
}

static int parse_primary(struct parser *p, const struct expr **out)
{
    return is_op(p, "(") || is_op(p, "[") || is_op(p, "{") ? parse_bracket(p, out) : parse_literal(p, out);
}

/* a[...]: an item or a slice; the "[" is read. */
static int parse_subscript(struct parser *p, const struct expr *a, const struct expr **out)
{
    struct expr *e = make(p, EXPR_ITEM);
    if (!e)
        return no_memory(p);
    e->a = a;
    *out = e;
    size_t part = 0;
    const struct expr *parts[3] = {NULL, NULL, NULL};
    bool slice = false;
    while (!is_op(p, "]")) {
        int rc = 0;
        if (is_op(p, ":")) {
            slice = true;
            if (++part > 2)
                return fail(p, "a slice has at most three parts");
            rc = next(p);
        } else {
            rc = parse_expr(p, &parts[part]);
        }
        if (rc < 0)
            return rc;
    }
    if (slice) {
        e->kind = EXPR_SLICE;
        for (int i = 0; i < 3; i++) {
            int rc = add_item(p, e, parts[i], (struct str){0});
            if (rc < 0)
                return rc;
        }
    } else if (!(e->b = parts[0])) {
        return fail(p, "an empty subscript");
    }
    return next(p);
}

/* name, optional arguments: of a filter or a test with parentheses. */
static int parse_named(struct parser *p, struct expr *e)
{
    if (p->tok.kind != TOK_NAME)
        return fail(p, "expected a name, found \"%.*s\"", STR_ARG(p->tok.text));
    e->name = p->tok.text;
    int rc = next(p);
    if (rc == 0 && is_op(p, "(")) {
        rc = next(p);
        if (rc == 0)
            rc = parse_args(p, e);
    }
    return rc;
}

static int parse_filter(struct parser *p, const struct expr *a, const struct expr **out)
{
    struct expr *e = make(p, EXPR_FILTER);
    if (!e)
        return no_memory(p);
    e->a = a;
    *out = e;
    int rc = parse_named(p, e);
    if (rc == 0 && !call__is_filter(e->name))
        return fail(p, "the filter \"%.*s\" is not supported", STR_ARG(e->name));
    return rc;
}

static int parse_postfix(struct parser *p, const struct expr **out)
{
    int rc = parse_primary(p, out);
    while (rc == 0) {
        const struct expr *a = *out;
        if (is_op(p, ".")) {
            struct expr *e = make(p, EXPR_ATTR);
            rc = e ? next(p) : no_memory(p);
            if (rc == 0 && p->tok.kind != TOK_NAME && p->tok.kind != TOK_INT)
                rc = fail(p, "expected a name behind \".\"");
            if (rc == 0) {
                e->a = a;
                e->name = p->tok.text;
                *out = e;
                rc = next(p);
            }
        } else if (is_op(p, "[")) {
            rc = next(p);
            if (rc == 0)
                rc = parse_subscript(p, a, out);
        } else if (is_op(p, "(")) {
            struct expr *e = make(p, EXPR_CALL);
            rc = e ? next(p) : no_memory(p);
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
    struct expr *e = make(p, EXPR_TEST);
    if (!e)
        return no_memory(p);
    e->a = a;
    *out = e;
    if (is_word(p, "not")) {
        e->negated = true;
        int rc = next(p);
        if (rc < 0)
            return rc;
    }
    if (p->tok.kind != TOK_NAME)
        return fail(p, "expected a test behind \"is\"");
    int rc = parse_named(p, e);
    if (rc == 0 && !call__is_test(e->name))
        return fail(p, "the test \"%.*s\" is not supported", STR_ARG(e->name));
    /* `x is equalto y`, `x is in y`: an argument without parentheses */
    bool starts_value = p->tok.kind == TOK_STR || p->tok.kind == TOK_INT || p->tok.kind == TOK_FLOAT || is_op(p, "[") ||
                        (p->tok.kind == TOK_NAME && !is_word(p, "and") && !is_word(p, "or") && !is_word(p, "else") &&
                         !is_word(p, "is") && !is_word(p, "if") && !is_word(p, "in") && !is_word(p, "not"));
    if (rc == 0 && !e->n_items && starts_value) {
        const struct expr *argument;
        rc = parse_signed(p, false, &argument);
        if (rc == 0)
            rc = add_item(p, e, argument, (struct str){0});
    }
    return rc;
}

static int parse_suffixes(struct parser *p, const struct expr **out)
{
    int rc = 0;
    while (rc == 0 && (is_op(p, "|") || is_word(p, "is"))) {
        bool filter = is_op(p, "|");
        rc = next(p);
        if (rc == 0)
            rc = filter ? parse_filter(p, *out, out) : parse_test(p, *out, out);
    }
    return rc;
}

/* A sign takes what is behind it without filters; those apply to the signed value: -3|abs is 3. */
static int parse_signed(struct parser *p, bool suffixes, const struct expr **out)
{
    int rc = 0;
    if (is_op(p, "-") || is_op(p, "+")) {
        struct expr *e = make(p, is_op(p, "-") ? EXPR_NEG : EXPR_POS);
        if (!e)
            return no_memory(p);
        if (++p->depth > NESTING_MAX)
            return fail(p, "expressions are nested more than %d deep", NESTING_MAX);
        *out = e;
        rc = next(p);
        if (rc == 0)
            rc = parse_signed(p, false, &e->a);
        p->depth--;
    } else {
        rc = parse_postfix(p, out);
    }
    return rc == 0 && suffixes ? parse_suffixes(p, out) : rc;
}

static int parse_unary(struct parser *p, const struct expr **out)
{
    int rc = parse_signed(p, true, out);
    while (rc == 0 && is_op(p, "**")) {
        struct expr *e = make(p, EXPR_BINARY);
        rc = e ? next(p) : no_memory(p);
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
        if (is_op(p, levels[level].ops[i].op)) {
            *op = levels[level].ops[i].id;
            return true;
        }
    }
    if (level == 0 && is_word(p, "in")) {
        *op = OP_IN;
        return true;
    }
    if (level == 0 && is_word(p, "not")) {
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
        struct expr *e = make(p, EXPR_BINARY);
        rc = e ? next(p) : no_memory(p);
        if (rc == 0 && second)
            rc = is_word(p, "in") ? next(p) : fail(p, "expected \"in\" behind \"not\"");
        if (rc < 0)
            return rc;
        e->op = op;
        e->a = level == 0 && chain ? chain : *out;
        rc = parse_level(p, level + 1, &e->b);
        if (rc < 0)
            return rc;
        if (level == 0 && chain) {
            struct expr *both = make(p, EXPR_AND);
            if (!both)
                return no_memory(p);
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
    if (!is_word(p, "not"))
        return parse_level(p, 0, out);
    struct expr *e = make(p, EXPR_NOT);
    if (!e)
        return no_memory(p);
    if (++p->depth > NESTING_MAX)
        return fail(p, "expressions are nested more than %d deep", NESTING_MAX);
    *out = e;
    int rc = next(p);
    if (rc == 0)
        rc = parse_not(p, &e->a);
    p->depth--;
    return rc;
}

static int parse_logic(struct parser *p, bool or_level, const struct expr **out)
{
    int rc = or_level ? parse_logic(p, false, out) : parse_not(p, out);
    while (rc == 0 && is_word(p, or_level ? "or" : "and")) {
        struct expr *e = make(p, or_level ? EXPR_OR : EXPR_AND);
        rc = e ? next(p) : no_memory(p);
        if (rc < 0)
            break;
        e->a = *out;
        *out = e;
        rc = or_level ? parse_logic(p, false, &e->b) : parse_not(p, &e->b);
    }
    return rc;
}

static int parse_expr(struct parser *p, const struct expr **out)
{
    if (++p->depth > NESTING_MAX)
        return fail(p, "expressions are nested more than %d deep", NESTING_MAX);
    int rc = parse_logic(p, true, out);
    while (rc == 0 && is_word(p, "if")) {
        struct expr *e = make(p, EXPR_IF);
        rc = e ? next(p) : no_memory(p);
        if (rc < 0)
            break;
        e->a = *out;
        *out = e;
        rc = parse_logic(p, true, &e->b);
        if (rc == 0 && is_word(p, "else")) {
            rc = next(p);
            if (rc == 0)
                rc = parse_expr(p, &e->c);
        }
    }
    p->depth--;
    return rc;
}

/* a, b, c without parentheses is a tuple (set targets, for iterables). */
static int parse_tuple(struct parser *p, const struct expr **out)
{
    int rc = parse_expr(p, out);
    if (rc < 0 || !is_op(p, ","))
        return rc;
    struct expr *e = make(p, EXPR_TUPLE);
    if (!e)
        return no_memory(p);
    rc = add_item(p, e, *out, (struct str){0});
    while (rc == 0 && is_op(p, ",")) {
        const struct expr *item;
        rc = next(p);
        if (rc == 0 && (p->tok.kind == TOK_END_TAG || is_op(p, "=")))
            break;
        if (rc == 0)
            rc = parse_expr(p, &item);
        if (rc == 0)
            rc = add_item(p, e, item, (struct str){0});
    }
    *out = e;
    return rc;
}

/* ---- statements ---- */

static int parse_body(struct parser *p, const struct stmt **out, const char *const *ends);

static struct stmt *make_stmt(struct parser *p, enum stmt_kind kind)
{
    struct stmt *s = ARENA_NEW(&p->t->arena, struct stmt);
    if (s) {
        s->kind = kind;
        s->line = p->line;
    }
    return s;
}

/* Text up to the next tag, with the whitespace rules; *tag is '{', '%', '#' or 0 at the end. */
static struct str read_text(struct parser *p, char *tag)
{
    if (p->trim_newline && (at(p, "\n") || at(p, "\r\n")))
        skip(p, at(p, "\n") ? 1 : 2);
    while (p->trim_text && p->at < p->src.n && strchr(" \t\r\n", p->src.p[p->at]))
        skip(p, 1);
    p->trim_text = p->trim_newline = false;
    size_t start = p->at;
    *tag = 0;
    while (p->at < p->src.n && !*tag) {
        if (p->src.p[p->at] == '{' && p->at + 1 < p->src.n && strchr("{%#", p->src.p[p->at + 1]))
            *tag = p->src.p[p->at + 1];
        else
            skip(p, 1);
    }
    struct str text = {p->src.p + start, p->at - start};
    if (!*tag)
        return text;
    skip(p, 2);
    p->braces = 0;
    bool minus = at(p, "-"), plus = at(p, "+");
    if (minus || (plus && *tag == '%'))
        skip(p, 1);
    if (minus) {
        while (text.n && strchr(" \t\r\n", text.p[text.n - 1]))
            text.n--;
    } else if (*tag != '{' && !plus) { /* lstrip_blocks */
        size_t n = text.n;
        while (n && (text.p[n - 1] == ' ' || text.p[n - 1] == '\t'))
            n--;
        if (n ? text.p[n - 1] == '\n' : start == 0 || p->src.p[start - 1] == '\n')
            text.n = n;
    }
    return text;
}

static int skip_comment(struct parser *p)
{
    while (p->at < p->src.n && !at(p, "#}") && !at(p, "-#}"))
        skip(p, 1);
    if (p->at >= p->src.n)
        return fail(p, "a comment is not closed");
    p->trim_text = at(p, "-#}");
    p->trim_newline = !p->trim_text;
    skip(p, p->trim_text ? 3 : 2);
    return 0;
}

/* The rest of an end tag whose name was read: {% endif %}. */
static int finish_end(struct parser *p)
{
    int rc = next(p);
    return rc == 0 ? expect_end(p) : rc;
}

static int parse_if(struct parser *p, struct stmt *s)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    int rc = next(p);
    if (rc == 0)
        rc = parse_expr(p, &s->expr);
    if (rc == 0)
        rc = expect_end(p);
    if (rc == 0)
        rc = parse_body(p, &s->body, ends);
    if (rc < 0)
        return rc;
    if (is_word(p, "elif")) {
        struct stmt *other = make_stmt(p, STMT_IF);
        s->other = other;
        if (other && ++p->depth > NESTING_MAX)
            return fail(p, "an if has more than %d branches", NESTING_MAX);
        rc = other ? parse_if(p, other) : no_memory(p);
        p->depth--;
        return rc;
    }
    if (is_word(p, "else")) {
        static const char *const last[] = {"endif", NULL};
        rc = finish_end(p);
        if (rc == 0)
            rc = parse_body(p, &s->other, last);
    }
    return rc == 0 ? finish_end(p) : rc;
}

static int parse_targets(struct parser *p, const struct expr **out)
{
    int rc = parse_postfix(p, out);
    if (rc < 0 || !is_op(p, ","))
        return rc;
    struct expr *e = make(p, EXPR_TUPLE);
    if (!e)
        return no_memory(p);
    rc = add_item(p, e, *out, (struct str){0});
    while (rc == 0 && is_op(p, ",")) {
        const struct expr *item;
        rc = next(p);
        if (rc == 0)
            rc = parse_postfix(p, &item);
        if (rc == 0)
            rc = add_item(p, e, item, (struct str){0});
    }
    *out = e;
    return rc;
}

static int parse_for(struct parser *p, struct stmt *s)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
    int rc = next(p);
    if (rc == 0)
        rc = parse_targets(p, &s->target);
    if (rc == 0)
        rc = is_word(p, "in") ? next(p) : fail(p, "expected \"in\"");
    if (rc == 0)
        rc = parse_logic(p, true, &s->expr); /* without inline if: that is the loop's filter */
    if (rc == 0 && is_word(p, "if")) {
        rc = next(p);
        if (rc == 0)
            rc = parse_expr(p, &s->filter);
    }
    if (rc == 0 && is_word(p, "recursive"))
        return fail(p, "recursive loops are not supported");
    if (rc == 0)
        rc = expect_end(p);
    if (rc == 0)
        rc = parse_body(p, &s->body, ends);
    if (rc == 0 && is_word(p, "else")) {
        rc = finish_end(p);
        if (rc == 0)
            rc = parse_body(p, &s->other, last);
    }
    return rc == 0 ? finish_end(p) : rc;
}

static int parse_set(struct parser *p, struct stmt *s)
{
    static const char *const ends[] = {"endset", NULL};
    int rc = next(p);
    if (rc == 0)
        rc = parse_targets(p, &s->target);
    if (rc < 0)
        return rc;
    if (is_op(p, "=")) {
        rc = next(p);
        if (rc == 0)
            rc = parse_tuple(p, &s->expr);
        return rc == 0 ? expect_end(p) : rc;
    }
    s->kind = STMT_SET_BLOCK;
    while (rc == 0 && is_op(p, "|")) {
        rc = next(p);
        if (rc == 0)
            rc = parse_filter(p, s->expr, &s->expr);
    }
    if (rc == 0)
        rc = expect_end(p);
    if (rc == 0)
        rc = parse_body(p, &s->body, ends);
    return rc == 0 ? finish_end(p) : rc;
}

/* Parameters of a macro or a call block up to ")"; the "(" is read. */
static int parse_params(struct parser *p, struct stmt *s)
{
    struct expr *list = make(p, EXPR_LIST); /* borrowed as a growing array of (default, name) */
    if (!list)
        return no_memory(p);
    while (!is_op(p, ")")) {
        const struct expr *value = NULL;
        if (p->tok.kind != TOK_NAME)
            return fail(p, "expected a parameter's name");
        struct str name = p->tok.text;
        int rc = next(p);
        if (rc == 0 && is_op(p, "=")) {
            rc = next(p);
            if (rc == 0)
                rc = parse_expr(p, &value);
        }
        if (rc == 0)
            rc = add_item(p, list, value, name);
        if (rc == 0 && !is_op(p, ")"))
            rc = expect_op(p, ",");
        if (rc < 0)
            return rc;
    }
    s->params = list->names;
    s->defaults = list->items;
    s->n_params = list->n_items;
    return next(p);
}

static int parse_macro(struct parser *p, struct stmt *s)
{
    static const char *const ends[] = {"endmacro", NULL};
    int rc = next(p);
    if (rc == 0 && p->tok.kind != TOK_NAME)
        return fail(p, "expected the macro's name");
    s->text = p->tok.text;
    if (rc == 0)
        rc = next(p);
    if (rc == 0)
        rc = expect_op(p, "(");
    if (rc == 0)
        rc = parse_params(p, s);
    if (rc == 0)
        rc = expect_end(p);
    if (rc == 0)
        rc = parse_body(p, &s->body, ends);
    return rc == 0 ? finish_end(p) : rc;
}

static int parse_call(struct parser *p, struct stmt *s)
{
    static const char *const ends[] = {"endcall", NULL};
    int rc = next(p);
    if (rc == 0 && is_op(p, "(")) {
        rc = next(p);
        if (rc == 0)
            rc = parse_params(p, s);
    }
    if (rc == 0)
        rc = parse_postfix(p, &s->expr);
    if (rc == 0 && s->expr->kind != EXPR_CALL)
        return fail(p, "a call block needs a call");
    if (rc == 0)
        rc = expect_end(p);
    if (rc == 0)
        rc = parse_body(p, &s->body, ends);
    return rc == 0 ? finish_end(p) : rc;
}

static int parse_filter_block(struct parser *p, struct stmt *s)
{
    static const char *const ends[] = {"endfilter", NULL};
    int rc = next(p);
    if (rc == 0)
        rc = parse_filter(p, NULL, &s->expr);
    while (rc == 0 && is_op(p, "|")) {
        rc = next(p);
        if (rc == 0)
            rc = parse_filter(p, s->expr, &s->expr);
    }
    if (rc == 0)
        rc = expect_end(p);
    if (rc == 0)
        rc = parse_body(p, &s->body, ends);
    return rc == 0 ? finish_end(p) : rc;
}

static int parse_generation(struct parser *p, struct stmt *s)
{
    static const char *const ends[] = {"endgeneration", NULL};
    int rc = finish_end(p);
    if (rc == 0)
        rc = parse_body(p, &s->body, ends);
    return rc == 0 ? finish_end(p) : rc;
}

static int parse_jump(struct parser *p, struct stmt *s)
{
    (void)s;
    return finish_end(p);
}

static int parse_statement(struct parser *p, const struct stmt **out)
{
    static const struct {
        const char *word;
        enum stmt_kind kind;
        int (*parse)(struct parser *p, struct stmt *s);
    } table[] = {{"if", STMT_IF, parse_if},
                 {"for", STMT_FOR, parse_for},
                 {"set", STMT_SET, parse_set},
                 {"macro", STMT_MACRO, parse_macro},
                 {"call", STMT_CALL, parse_call},
                 {"filter", STMT_FILTER, parse_filter_block},
                 {"generation", STMT_BODY, parse_generation},
                 {"break", STMT_BREAK, parse_jump},
                 {"continue", STMT_CONTINUE, parse_jump}};
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        if (!is_word(p, table[i].word))
            continue;
        struct stmt *s = make_stmt(p, table[i].kind);
        *out = s;
        return s ? table[i].parse(p, s) : no_memory(p);
    }
    return fail(p, "the statement \"%.*s\" is not supported", STR_ARG(p->tok.text));
}

static bool is_one_of(const struct parser *p, const char *const *words)
{
    for (; *words; words++)
        if (is_word(p, *words))
            return true;
    return false;
}

static int parse_output(struct parser *p, const struct stmt **out)
{
    struct stmt *s = make_stmt(p, STMT_OUTPUT);
    *out = s;
    p->block_tag = false;
    int rc = s ? next(p) : no_memory(p);
    if (rc == 0)
        rc = parse_tuple(p, &s->expr);
    return rc == 0 ? expect_end(p) : rc;
}

/* Statements until one of `ends` (whose name is then the current token), or until the text's end when ends is empty. */
static int parse_body(struct parser *p, const struct stmt **out, const char *const *ends)
{
    const struct stmt **link = out;
    if (++p->depth > NESTING_MAX)
        return fail(p, "statements are nested more than %d deep", NESTING_MAX);
    for (;;) {
        char tag;
        const struct stmt *s = NULL;
        struct str text = read_text(p, &tag);
        int rc = 0;
        if (text.n) {
            struct stmt *t = make_stmt(p, STMT_TEXT);
            if (!t)
                return no_memory(p);
            t->text = text;
            *link = t;
            link = &t->next;
        }
        if (!tag)
            return *ends ? fail(p, "\"%s\" is missing", ends[0]) : (p->depth--, 0);
        if (tag == '#') {
            rc = skip_comment(p);
        } else if (tag == '{') {
            rc = parse_output(p, &s);
        } else {
            p->block_tag = true;
            rc = next(p);
            if (rc == 0 && is_one_of(p, ends)) {
                p->depth--;
                return 0;
            }
            if (rc == 0)
                rc = parse_statement(p, &s);
        }
        if (rc < 0)
            return rc;
        if (s) {
            *link = s;
            link = &((struct stmt *)s)->next;
        }
    }
}

int chat_template__parse(struct chat_template *t, struct str source, struct error *err)
{
    static const char *const no_ends[] = {NULL};
    struct parser p = {.t = t, .src = source, .line = 1, .err = err};
    /* Jinja drops one newline at the very end (keep_trailing_newline is off) */
    if (p.src.n && p.src.p[p.src.n - 1] == '\n')
        p.src.n--;
    return parse_body(&p, &t->body, no_ends);
}
