/* pbtxt.c: recursive descent over protobuf text format; depth bounded by NODE_DEPTH_MAX. */
#include "conf/pbtxt.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/status.h"

struct scanner {
    struct node_source src;
    const char *at, *end;
    int line, depth;
    struct buf text; /* scratch of the string being read */
};

static int fail(struct scanner *s, const char *what)
{
    return node_error(s->src.err, s->src.where, s->line, STATUS_INVALID, "%s", what);
}

static void skip_space(struct scanner *s)
{
    for (; s->at < s->end; s->at++) {
        if (*s->at == '#')
            while (s->at + 1 < s->end && s->at[1] != '\n')
                s->at++;
        else if (*s->at == '\n')
            s->line++;
        else if (!strchr(" \t\r\v\f", *s->at) || !*s->at)
            return;
    }
}

/* The next byte that matters, 0 at the end. */
static char peek(struct scanner *s)
{
    skip_space(s);
    return s->at < s->end ? *s->at : 0;
}

static bool accept(struct scanner *s, char c)
{
    if (peek(s) != c)
        return false;
    s->at++;
    return true;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int hex_digit(char c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static struct str identifier(struct scanner *s)
{
    const char *from = s->at;
    while (s->at < s->end && (is_letter(*s->at) || (s->at > from && is_digit(*s->at))))
        s->at++;
    return (struct str){from, (size_t)(s->at - from)};
}

/* ---- strings ---- */

/* Up to `max` digits of `base` at s->at; false when there is none. */
static bool digits(struct scanner *s, int base, int max, uint32_t *out)
{
    int n = 0;
    for (*out = 0; n < max && s->at < s->end; n++, s->at++) {
        int d = hex_digit(*s->at);
        if (d < 0 || d >= base)
            break;
        *out = *out * (uint32_t)base + (uint32_t)d;
    }
    return n > 0;
}

/* \uXXXX and \UXXXXXXXX; a pair of \u surrogates makes one character. */
static int unicode_escape(struct scanner *s, int width)
{
    uint32_t c, low;
    const char *from = s->at;
    if (!digits(s, 16, width, &c) || s->at - from != width)
        return fail(s, "\\u takes 4 and \\U takes 8 hex digits");
    if (c >= 0xd800 && c < 0xdc00 && s->end - s->at >= 6 && s->at[0] == '\\' && s->at[1] == 'u') {
        s->at += 2;
        if (!digits(s, 16, 4, &low) || low < 0xdc00 || low > 0xdfff)
            return fail(s, "a high surrogate needs a low one behind it");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return fail(s, "not a Unicode character");
    buf_append_utf8(&s->text, c);
    return 0;
}

static int escape(struct scanner *s)
{
    static const char from[] = "abfnrtv?\\'\"", to[] = "\a\b\f\n\r\t\v?\\'\"";
    uint32_t v;
    if (s->at == s->end)
        return fail(s, "a string is not closed");
    char c = *s->at;
    const char *simple = c ? strchr(from, c) : NULL;
    if (simple) {
        s->at++;
        buf_append_c(&s->text, to[simple - from]);
        return 0;
    }
    if (c >= '0' && c <= '7') {
        (void)digits(s, 8, 3, &v);
        if (v > 255)
            return fail(s, "an octal escape is larger than \\377");
        buf_append_c(&s->text, (char)v);
        return 0;
    }
    s->at++;
    if (c == 'u' || c == 'U')
        return unicode_escape(s, c == 'u' ? 4 : 8);
    if ((c == 'x' || c == 'X') && digits(s, 16, 2, &v)) {
        buf_append_c(&s->text, (char)v);
        return 0;
    }
    return fail(s, "an unknown escape in a string");
}

static int one_string(struct scanner *s)
{
    char quote = *s->at++;
    while (s->at < s->end && *s->at != quote) {
        char c = *s->at++;
        if (c == '\n')
            return fail(s, "a string ends at the end of its line; write \\n for a line break");
        if (c != '\\')
            buf_append_c(&s->text, c);
        else if (escape(s) < 0)
            return STATUS_INVALID;
    }
    if (s->at == s->end)
        return fail(s, "a string is not closed");
    s->at++;
    return 0;
}

/* One or more adjacent literals. */
static struct node *string(struct scanner *s)
{
    struct node *n = node_new(&s->src, NODE_SCALAR, s->line);
    buf_clear(&s->text);
    while (n && (peek(s) == '"' || peek(s) == '\''))
        if (one_string(s) < 0)
            return NULL;
    if (!n)
        return NULL;
    if (s->text.failed) {
        node_error(s->src.err, s->src.where, s->line, STATUS_NOMEM, "not enough memory to read the file");
        return NULL;
    }
    n->quoted = true;
    return node_set_text(&s->src, n, s->text.p ? s->text.p : "", s->text.n) ? n : NULL;
}

/* ---- numbers and words ---- */

static struct node *scalar_text(struct scanner *s, const char *sign, const char *p, size_t n)
{
    char text[72];
    struct node *node = node_new(&s->src, NODE_SCALAR, s->line);
    if (!node)
        return NULL;
    int len = snprintf(text, sizeof text, "%s%.*s", sign, (int)n, p);
    if (len >= (int)sizeof text) {
        fail(s, "a number or word is longer than 71 characters");
        return NULL;
    }
    return node_set_text(&s->src, node, text, (size_t)len) ? node : NULL;
}

/* Octal (leading 0) and hex integers become decimal. */
static struct node *based_integer(struct scanner *s, const char *sign, struct str t, int base)
{
    uint64_t v = 0;
    char text[24];
    for (size_t i = base == 16 ? 2 : 1; i < t.n; i++) {
        int d = hex_digit(t.p[i]);
        if (d < 0 || d >= base || __builtin_mul_overflow(v, (uint64_t)base, &v) || __builtin_add_overflow(v, (uint64_t)d, &v)) {
            fail(s, base == 16 ? "not a hexadecimal integer of 64 bits"
                               : "not an octal integer of 64 bits (a leading 0 means octal)");
            return NULL;
        }
    }
    snprintf(text, sizeof text, "%llu", (unsigned long long)v);
    return scalar_text(s, sign, text, strlen(text));
}

static struct node *number(struct scanner *s, const char *sign)
{
    const char *from = s->at;
    bool hex = s->end - from > 2 && from[0] == '0' && (from[1] == 'x' || from[1] == 'X');
    bool real = false;
    while (s->at < s->end) {
        char c = *s->at;
        bool exponent = !hex && (c == 'e' || c == 'E');
        if (exponent && s->end - s->at > 1 && (s->at[1] == '+' || s->at[1] == '-'))
            s->at++;
        else if (!is_digit(c) && !is_letter(c) && c != '.')
            break;
        real = real || exponent || c == '.' || (!hex && (c == 'f' || c == 'F'));
        s->at++;
    }
    struct str t = {from, (size_t)(s->at - from)};
    if (hex || (!real && t.n > 1 && t.p[0] == '0'))
        return based_integer(s, sign, t, hex ? 16 : 8);
    if (real && (t.p[t.n - 1] == 'f' || t.p[t.n - 1] == 'F'))
        t.n--;
    char z[72], *stop;
    snprintf(z, sizeof z, "%.*s", (int)(t.n < sizeof z ? t.n : sizeof z - 1), t.p);
    (void)strtod(z, &stop);
    if (t.n >= sizeof z || *stop || !t.n) {
        fail(s, "not a number");
        return NULL;
    }
    return scalar_text(s, sign, t.p, t.n);
}

static struct node *scalar(struct scanner *s)
{
    char c = peek(s);
    if (c == '"' || c == '\'')
        return string(s);
    const char *sign = "";
    if (c == '-') {
        s->at++;
        sign = "-";
        c = peek(s);
    }
    if (is_digit(c) || c == '.')
        return number(s, sign);
    if (is_letter(c)) {
        struct str word = identifier(s);
        return scalar_text(s, sign, word.p, word.n);
    }
    fail(s, c ? "a value is expected here" : "the file ends where a value is expected");
    return NULL;
}

/* ---- messages ---- */

static struct node *value(struct scanner *s);

/* Turn `first` into a list in place (unless it is one) and add `again` to it. */
static bool merge_repeated(struct scanner *s, struct node *first, struct node *again)
{
    if (first->kind != NODE_LIST) {
        struct node *copy = node_new(&s->src, first->kind, first->line);
        if (!copy)
            return false;
        struct node *next = first->next;
        struct str key = first->key;
        *copy = *first;
        *first = (struct node){.kind = NODE_LIST, .line = copy->line, .key = key, .next = next};
        node_append(first, copy);
    }
    first->repeated = true;
    if (again->kind != NODE_LIST) {
        node_append(first, again);
        return true;
    }
    for (struct node *c = again->first, *next; c; c = next) {
        next = c->next;
        node_append(first, c);
    }
    return true;
}

/* One field at s->at; hung into `message`, or merged with its earlier value. */
static int field(struct scanner *s, struct node *message, struct map *names)
{
    if (peek(s) == '[')
        return fail(s, "extension names and Any in [ ] are not accepted");
    struct str name = identifier(s);
    if (!name.n)
        return fail(s, "a field name is expected here");
    char c = peek(s);
    if (c == ':')
        s->at++;
    else if (c != '{' && c != '<' && c != '[')
        return node_error(s->src.err, s->src.where, s->line, STATUS_INVALID, "':' or '{' is expected behind '%.*s'",
                          STR_ARG(name));
    struct node *v = value(s), *first;
    if (!v)
        return STATUS_INVALID;
    if (c == '[' && v->first && v->first->kind != NODE_MAP)
        return node_error(s->src.err, s->src.where, v->line, STATUS_INVALID, "':' is expected behind '%.*s'", STR_ARG(name));
    if (!accept(s, ','))
        (void)accept(s, ';');
    first = map_get(names, name);
    if (first)
        return merge_repeated(s, first, v) ? 0 : STATUS_INVALID;
    char *copy = arena_strdup(s->src.arena, name);
    if (!copy || map_put(names, (struct str){copy, name.n}, v) < 0)
        return node_error(s->src.err, s->src.where, v->line, STATUS_NOMEM, "not enough memory to read the file");
    v->key = (struct str){copy, name.n};
    node_append(message, v);
    return 0;
}

/* Fields up to `close` ('}', '>' or 0 for the end of the text), which is consumed. */
static struct node *message(struct scanner *s, char close)
{
    struct node *m = node_new(&s->src, NODE_MAP, s->line);
    int opened = s->line, rc = m ? 0 : STATUS_INVALID;
    struct map names;
    map_init(&names, 0x9e3779b97f4a7c15ull);
    while (rc == 0 && peek(s) != close) {
        if (s->at == s->end)
            rc = node_error(s->src.err, s->src.where, s->line, STATUS_INVALID, "the '%c' of line %d is not closed",
                            close == '}' ? '{' : '<', opened);
        else
            rc = field(s, m, &names);
    }
    map_release(&names);
    if (rc == 0 && close)
        s->at++;
    else if (rc == 0 && s->at < s->end)
        rc = fail(s, "a NUL byte is not accepted");
    return rc == 0 ? m : NULL;
}

static struct node *list(struct scanner *s)
{
    struct node *l = node_new(&s->src, NODE_LIST, s->line);
    s->at++;
    if (!l || accept(s, ']'))
        return l;
    do {
        if (peek(s) == '[') {
            fail(s, "a list in a list is not accepted");
            return NULL;
        }
        struct node *v = value(s);
        if (!v)
            return NULL;
        node_append(l, v);
    } while (accept(s, ','));
    if (accept(s, ']'))
        return l;
    fail(s, "',' or ']' is expected in the list");
    return NULL;
}

static struct node *value(struct scanner *s)
{
    struct node *v = NULL;
    char c = peek(s);
    if (++s->depth > NODE_DEPTH_MAX) {
        node_error(s->src.err, s->src.where, s->line, STATUS_INVALID, "nested deeper than %d levels", NODE_DEPTH_MAX);
    } else if (c == '{' || c == '<') {
        s->at++;
        v = message(s, c == '{' ? '}' : '>');
    } else {
        v = c == '[' ? list(s) : scalar(s);
    }
    s->depth--;
    return v;
}

int pbtxt_parse(struct str text, const char *where, struct arena *a, struct node **root, struct error *err)
{
    struct error local = {0};
    if (text.n > NODE_TEXT_MAX)
        return node_error(err, where, 0, STATUS_INVALID, "the file is larger than %u bytes", NODE_TEXT_MAX);
    struct scanner s = {.src = {.where = where, .arena = a, .err = &local}, .at = text.n ? text.p : "", .line = 1};
    s.end = s.at + text.n;
    buf_init(&s.text);
    *root = message(&s, 0);
    buf_release(&s.text);
    if (*root)
        return 0;
    return error_set(err, local.code, "%s", local.text);
}
