/* chat_template_scan.c: the scanner of chat templates: text between tags, and the tokens inside a tag.
 *
 * Whitespace as transformers sets Jinja up: trim_blocks (the newline behind a block tag goes) and lstrip_blocks (blanks before a block tag
 * that begins its line go), besides the explicit "-" and "+" of tags. */
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "text/chat_template_parse_priv.h"
#include "text/unicode.h"

int parse__fail(struct parser *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    error_vset(p->err, STATUS_INVALID, fmt, ap);
    va_end(ap);
    error_prefix(p->err, "chat template, line %u", p->line);
    return STATUS_INVALID;
}

int parse__no_memory(struct parser *p)
{
    return error_set(p->err, STATUS_NOMEM, "out of memory while reading a chat template");
}

bool parse__at(const struct parser *p, const char *z)
{
    size_t n = strlen(z);
    return p->src.n - p->at >= n && memcmp(p->src.p + p->at, z, n) == 0;
}

void parse__skip(struct parser *p, size_t n)
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
        return parse__no_memory(p);
    parse__skip(p, 1);
    while (p->at < p->src.n && p->src.p[p->at] != quote) {
        char c = p->src.p[p->at];
        parse__skip(p, 1);
        if (c != '\\' || p->at >= p->src.n) {
            out[n++] = c;
            continue;
        }
        c = p->src.p[p->at];
        parse__skip(p, 1);
        if (c == 'u' && p->src.n - p->at >= 4) {
            int32_t cp = 0;
            for (int k = 0; k < 4; k++) {
                const char *digits = "0123456789abcdef", h = (char)(p->src.p[p->at + (size_t)k] | 0x20), *d = strchr(digits, h);
                cp = d && h ? cp * 16 + (int32_t)(d - digits) : 0xd800;
            }
            if (cp >= 0xd800 && cp < 0xe000)
                return parse__fail(p, "bad \\u escape in a string");
            parse__skip(p, 4);
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
        return parse__fail(p, "a string is not closed");
    parse__skip(p, 1);
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
        return parse__fail(p, "\"%.*s\" is not a number", STR_ARG(text));
    return 0;
}

/* The end of the tag: "%}", "-%}", "+%}", "}}" or "-}}". */
static bool read_end(struct parser *p)
{
    if (p->braces)
        return false;
    const char *plain = p->block_tag ? "%}" : "}}", *minus = p->block_tag ? "-%}" : "-}}";
    bool trim = parse__at(p, minus), plus = p->block_tag && parse__at(p, "+%}");
    if (!trim && !plus && !parse__at(p, plain))
        return false;
    parse__skip(p, trim || plus ? 3 : 2);
    p->trim_text = trim;
    p->trim_newline = p->block_tag && !trim && !plus;
    p->tok = (struct token){.kind = TOK_END_TAG};
    return true;
}

int parse__next(struct parser *p)
{
    static const char *const ops[] = {"==", "!=", "<=", ">=", "//", "**", "+", "-", "*", "/", "%", "~", "(",
                                      ")",  "[",  "]",  "{",  "}",  ",",  ":", ".", "|", "=", "<", ">"};
    while (p->at < p->src.n && strchr(" \t\r\n", p->src.p[p->at]) && p->src.p[p->at])
        parse__skip(p, 1);
    if (p->at >= p->src.n)
        return parse__fail(p, "a tag is not closed");
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
        if (!parse__at(p, ops[i]))
            continue;
        p->tok = (struct token){.kind = TOK_OP, .text = str_of(ops[i])};
        p->braces += ops[i][0] == '{';
        p->braces -= ops[i][0] == '}' && p->braces;
        parse__skip(p, p->tok.text.n);
        return 0;
    }
    return parse__fail(p, "unexpected character '%c'", c);
}

bool parse__is_op(const struct parser *p, const char *op)
{
    return p->tok.kind == TOK_OP && str_eqz(p->tok.text, op);
}
bool parse__is_word(const struct parser *p, const char *word)
{
    return p->tok.kind == TOK_NAME && str_eqz(p->tok.text, word);
}

int parse__expect_op(struct parser *p, const char *op)
{
    return parse__is_op(p, op) ? parse__next(p) : parse__fail(p, "expected \"%s\", found \"%.*s\"", op, STR_ARG(p->tok.text));
}

int parse__expect_end(struct parser *p)
{
    return p->tok.kind == TOK_END_TAG ? 0
                                      : parse__fail(p, "unexpected \"%.*s\" before the end of the tag", STR_ARG(p->tok.text));
}

/* Text up to the next tag, with the whitespace rules; *tag is '{', '%', '#' or 0 at the end. */
struct str parse__text(struct parser *p, char *tag)
{
    if (p->trim_newline && (parse__at(p, "\n") || parse__at(p, "\r\n")))
        parse__skip(p, parse__at(p, "\n") ? 1 : 2);
    while (p->trim_text && p->at < p->src.n && strchr(" \t\r\n", p->src.p[p->at]))
        parse__skip(p, 1);
    p->trim_text = p->trim_newline = false;
    size_t start = p->at;
    *tag = 0;
    while (p->at < p->src.n && !*tag) {
        if (p->src.p[p->at] == '{' && p->at + 1 < p->src.n && strchr("{%#", p->src.p[p->at + 1]))
            *tag = p->src.p[p->at + 1];
        else
            parse__skip(p, 1);
    }
    struct str text = {p->src.p + start, p->at - start};
    if (!*tag)
        return text;
    parse__skip(p, 2);
    p->braces = 0;
    bool minus = parse__at(p, "-"), plus = parse__at(p, "+");
    if (minus || (plus && *tag == '%'))
        parse__skip(p, 1);
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

int parse__comment(struct parser *p)
{
    while (p->at < p->src.n && !parse__at(p, "#}") && !parse__at(p, "-#}"))
        parse__skip(p, 1);
    if (p->at >= p->src.n)
        return parse__fail(p, "a comment is not closed");
    p->trim_text = parse__at(p, "-#}");
    p->trim_newline = !p->trim_text;
    parse__skip(p, p->trim_text ? 3 : 2);
    return 0;
}
