/* chat_template_parse.c: from template text to a syntax tree: the statements of chat templates. Scanner: chat_template_scan.c;
 * expressions: chat_template_expr.c. Nesting is bounded, so a template can't overflow the C stack. */
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "text/chat_template_parse_priv.h"

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

/* The rest of an end tag whose name was read: {% endif %}. */
static int finish_end(struct parser *p)
{
    int rc = parse__next(p);
    return rc == 0 ? parse__expect_end(p) : rc;
}

/* The end of a block's first tag, its body up to the end tag `ends` names, and the rest of that. */
static int parse_block(struct parser *p, struct stmt *s, const char *const *ends)
{
    int rc = parse__expect_end(p);
    if (rc == 0)
        rc = parse_body(p, &s->body, ends);
    return rc == 0 ? finish_end(p) : rc;
}

/* What may follow the body of an if or for: {% else %} and its body; then the rest of the end tag. */
static int parse_else(struct parser *p, struct stmt *s, const char *const *ends)
{
    int rc = 0;
    if (parse__is_word(p, "else")) {
        rc = finish_end(p);
        if (rc == 0)
            rc = parse_body(p, &s->other, ends);
    }
    return rc == 0 ? finish_end(p) : rc;
}

static int parse_if(struct parser *p, struct stmt *s)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif", NULL};
    int rc = parse__next(p);
    if (rc == 0)
        rc = parse__expr(p, &s->expr);
    if (rc == 0)
        rc = parse__expect_end(p);
    if (rc == 0)
        rc = parse_body(p, &s->body, ends);
    if (rc < 0)
        return rc;
    if (parse__is_word(p, "elif")) {
        struct stmt *other = make_stmt(p, STMT_IF);
        s->other = other;
        if (other && ++p->depth > NESTING_MAX)
            return parse__fail(p, "an if has more than %d branches", NESTING_MAX);
        rc = other ? parse_if(p, other) : parse__no_memory(p);
        p->depth--;
        return rc;
    }
    return parse_else(p, s, last);
}

static int parse_for(struct parser *p, struct stmt *s)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
    int rc = parse__next(p);
    if (rc == 0)
        rc = parse__targets(p, &s->target);
    if (rc == 0)
        rc = parse__is_word(p, "in") ? parse__next(p) : parse__fail(p, "expected \"in\"");
    if (rc == 0)
        rc = parse__logic(p, true, &s->expr); /* without inline if: that is the loop's filter */
    if (rc == 0 && parse__is_word(p, "if")) {
        rc = parse__next(p);
        if (rc == 0)
            rc = parse__expr(p, &s->filter);
    }
    if (rc == 0 && parse__is_word(p, "recursive"))
        return parse__fail(p, "recursive loops are not supported");
    if (rc == 0)
        rc = parse__expect_end(p);
    if (rc == 0)
        rc = parse_body(p, &s->body, ends);
    return rc == 0 ? parse_else(p, s, last) : rc;
}

static int parse_set(struct parser *p, struct stmt *s)
{
    static const char *const ends[] = {"endset", NULL};
    int rc = parse__next(p);
    if (rc == 0)
        rc = parse__targets(p, &s->target);
    if (rc < 0)
        return rc;
    if (parse__is_op(p, "=")) {
        rc = parse__next(p);
        if (rc == 0)
            rc = parse__tuple(p, &s->expr);
        return rc == 0 ? parse__expect_end(p) : rc;
    }
    s->kind = STMT_SET_BLOCK;
    rc = parse__filters(p, &s->expr);
    return rc == 0 ? parse_block(p, s, ends) : rc;
}

/* Parameters of a macro or a call block up to ")"; the "(" is read. */
static int parse_params(struct parser *p, struct stmt *s)
{
    struct expr *list = parse__make(p, EXPR_LIST); /* borrowed as a growing array of (default, name) */
    if (!list)
        return parse__no_memory(p);
    while (!parse__is_op(p, ")")) {
        const struct expr *value = NULL;
        if (p->tok.kind != TOK_NAME)
            return parse__fail(p, "expected a parameter's name");
        struct str name = p->tok.text;
        int rc = parse__next(p);
        if (rc == 0 && parse__is_op(p, "=")) {
            rc = parse__next(p);
            if (rc == 0)
                rc = parse__expr(p, &value);
        }
        if (rc == 0)
            rc = parse__add_item(p, list, value, name);
        if (rc == 0 && !parse__is_op(p, ")"))
            rc = parse__expect_op(p, ",");
        if (rc < 0)
            return rc;
    }
    s->params = list->names;
    s->defaults = list->items;
    s->n_params = list->n_items;
    return parse__next(p);
}

static int parse_macro(struct parser *p, struct stmt *s)
{
    static const char *const ends[] = {"endmacro", NULL};
    int rc = parse__next(p);
    if (rc == 0 && p->tok.kind != TOK_NAME)
        return parse__fail(p, "expected the macro's name");
    s->text = p->tok.text;
    if (rc == 0)
        rc = parse__next(p);
    if (rc == 0)
        rc = parse__expect_op(p, "(");
    if (rc == 0)
        rc = parse_params(p, s);
    return rc == 0 ? parse_block(p, s, ends) : rc;
}

static int parse_call(struct parser *p, struct stmt *s)
{
    static const char *const ends[] = {"endcall", NULL};
    int rc = parse__next(p);
    if (rc == 0 && parse__is_op(p, "(")) {
        rc = parse__next(p);
        if (rc == 0)
            rc = parse_params(p, s);
    }
    if (rc == 0)
        rc = parse__postfix(p, &s->expr);
    if (rc == 0 && s->expr->kind != EXPR_CALL)
        return parse__fail(p, "a call block needs a call");
    return rc == 0 ? parse_block(p, s, ends) : rc;
}

static int parse_filter_block(struct parser *p, struct stmt *s)
{
    static const char *const ends[] = {"endfilter", NULL};
    int rc = parse__next(p);
    if (rc == 0)
        rc = parse__filter(p, NULL, &s->expr);
    if (rc == 0)
        rc = parse__filters(p, &s->expr);
    return rc == 0 ? parse_block(p, s, ends) : rc;
}

static int parse_generation(struct parser *p, struct stmt *s)
{
    static const char *const ends[] = {"endgeneration", NULL};
    int rc = parse__next(p);
    return rc == 0 ? parse_block(p, s, ends) : rc;
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
        if (!parse__is_word(p, table[i].word))
            continue;
        struct stmt *s = make_stmt(p, table[i].kind);
        *out = s;
        return s ? table[i].parse(p, s) : parse__no_memory(p);
    }
    return parse__fail(p, "the statement \"%.*s\" is not supported", STR_ARG(p->tok.text));
}

static bool is_one_of(const struct parser *p, const char *const *words)
{
    for (; *words; words++)
        if (parse__is_word(p, *words))
            return true;
    return false;
}

static int parse_output(struct parser *p, const struct stmt **out)
{
    struct stmt *s = make_stmt(p, STMT_OUTPUT);
    *out = s;
    p->block_tag = false;
    int rc = s ? parse__next(p) : parse__no_memory(p);
    if (rc == 0)
        rc = parse__tuple(p, &s->expr);
    return rc == 0 ? parse__expect_end(p) : rc;
}

/* Statements until one of `ends` (whose name is then the current token), or until the text's end when ends is empty. */
static int parse_body(struct parser *p, const struct stmt **out, const char *const *ends)
{
    const struct stmt **link = out;
    if (++p->depth > NESTING_MAX)
        return parse__fail(p, "statements are nested more than %d deep", NESTING_MAX);
    for (;;) {
        char tag;
        const struct stmt *s = NULL;
        struct str text = parse__text(p, &tag);
        int rc = 0;
        if (text.n) {
            struct stmt *t = make_stmt(p, STMT_TEXT);
            if (!t)
                return parse__no_memory(p);
            t->text = text;
            *link = t;
            link = &t->next;
        }
        if (!tag)
            return *ends ? parse__fail(p, "\"%s\" is missing", ends[0]) : (p->depth--, 0);
        if (tag == '#') {
            rc = parse__comment(p);
        } else if (tag == '{') {
            rc = parse_output(p, &s);
        } else {
            p->block_tag = true;
            rc = parse__next(p);
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
