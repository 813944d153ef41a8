/* chat_template_parse_priv.h: for chat_template_{scan,expr,parse}.c only: the parser's state, and what the three have of each other.
 *
 * Functions that return int give 0, or a negative status with the parser's error set: INVALID names the template's line; NOMEM. */
#ifndef INFERD_TEXT_CHAT_TEMPLATE_PARSE_PRIV_H
#define INFERD_TEXT_CHAT_TEMPLATE_PARSE_PRIV_H

#include "text/chat_template_priv.h"

#define NESTING_MAX 200 /* of expressions and statements: no template overflows the C stack */

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

/* ---- chat_template_scan.c ---- */

/* Set the error: the text behind "chat template, line N". INVALID. */
int parse__fail(struct parser *p, const char *fmt, ...) PRINTF_LIKE(2, 3);
int parse__no_memory(struct parser *p);
/* Whether the source goes on with `z`. */
bool parse__at(const struct parser *p, const char *z);
/* Go on by `n` bytes, counting lines. */
void parse__skip(struct parser *p, size_t n);
/* Text up to the next tag, with the whitespace rules; *tag is '{', '%', '#' or 0 at the end. */
struct str parse__text(struct parser *p, char *tag);
/* Over the comment whose "{#" is read. */
int parse__comment(struct parser *p);
/* The next token inside a tag, into p->tok. */
int parse__next(struct parser *p);
/* Whether the token is that operator, or that name. */
bool parse__is_op(const struct parser *p, const char *op);
bool parse__is_word(const struct parser *p, const char *word);
/* The token must be this operator (and is passed), or the tag's end (which stays). */
int parse__expect_op(struct parser *p, const char *op);
int parse__expect_end(struct parser *p);

/* ---- chat_template_expr.c; `*out` lives in the template's arena ---- */

/* A new expression, NULL without memory. */
struct expr *parse__make(struct parser *p, enum expr_kind kind);
/* Grow an expression's item list. */
int parse__add_item(struct parser *p, struct expr *e, const struct expr *item, struct str name);
/* A whole expression. */
int parse__expr(struct parser *p, const struct expr **out);
/* The same without an inline if; with `or_level` false without "or". */
int parse__logic(struct parser *p, bool or_level, const struct expr **out);
/* A primary with its attributes, items, calls and filters. */
int parse__postfix(struct parser *p, const struct expr **out);
/* a, b, c without parentheses is a tuple: expressions, and what can be assigned to. */
int parse__tuple(struct parser *p, const struct expr **out);
int parse__targets(struct parser *p, const struct expr **out);
/* One filter of `a`; and "| filter" as often as there are some, *out being what they work on (NULL: the text of a block). */
int parse__filter(struct parser *p, const struct expr *a, const struct expr **out);
int parse__filters(struct parser *p, const struct expr **out);

#endif
