/* policy_json.c: rules over the values in a JSON text that comes in pieces: arguments of calls, answers that a schema shaped.
 *
 * In the text itself a value may hide behind escapes ("a\u0040b.cn"), and a replacement may break it. So each string is decoded, goes through
 * the redactor as a text of its own, and is encoded again; what stands outside of strings, a number or a name, is taken whole, and one in
 * which something was replaced becomes a string. What isn't JSON comes out as little JSON as it was. */
#include <stdlib.h>

#include "base/status.h"
#include "edge/policy_priv.h"

enum where { OUTSIDE, SCALAR, STRING, ESCAPE, HEX };

struct policy_json {
    enum where where;
    size_t limit;
    struct buf scalar;     /* as it comes */
    struct buf value, got; /* decoded, on its way in; and what came out */
    uint32_t unit, high;   /* of \uXXXX; the first half of a pair, 0: none */
    int digits;
};

struct policy_json *policy__json_create(size_t limit_bytes)
{
    struct policy_json *j = calloc(1, sizeof *j);
    if (j)
        j->limit = limit_bytes;
    return j;
}

void policy__json_destroy(struct policy_json *j)
{
    if (!j)
        return;
    buf_release(&j->scalar);
    buf_release(&j->value);
    buf_release(&j->got);
    free(j);
}

void policy__json_reset(struct policy_json *j)
{
    j->where = OUTSIDE;
    j->high = 0;
    buf_clear(&j->scalar);
    buf_clear(&j->value);
    buf_clear(&j->got);
}

/* Inside a string's quotes. Bytes that are no UTF-8 stay what they are. */
static void append_encoded(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        const char *at = c ? strchr("\"\\\nn\tt\rr\bb\ff", c) : NULL;
        if (c == '"' || c == '\\') {
            buf_append_c(out, '\\');
            buf_append_c(out, (char)c);
        } else if (c < ' ' && at) {
            buf_append_c(out, '\\');
            buf_append_c(out, at[1]);
        } else if (c < ' ') {
            buf_printf(out, "\\u%04x", c);
        } else {
            buf_append_c(out, (char)c);
        }
    }
}

/* A half of a pair without its other half is no character. */
static void drop_half(struct policy_json *j)
{
    if (j->high)
        buf_append_utf8(&j->value, 0xfffd);
    j->high = 0;
}

/* What was decoded so far, through the redactor. */
static int give_value(struct policy_json *j, struct redactor *text, bool last, struct buf *out)
{
    int rc = j->value.failed ? STATUS_NOMEM : policy__text_push(text, buf_str(&j->value), last, &j->got);
    append_encoded(out, buf_str(&j->got));
    buf_clear(&j->value);
    buf_clear(&j->got);
    return rc;
}

static int give_scalar(struct policy_json *j, struct redactor *text, struct buf *out)
{
    int rc = policy__text_push(text, buf_str(&j->scalar), true, &j->got);
    bool same = str_eq(buf_str(&j->got), buf_str(&j->scalar));
    if (rc == 0 && same) {
        buf_append_str(out, buf_str(&j->scalar));
    } else if (rc == 0) {
        buf_append_c(out, '"');
        append_encoded(out, buf_str(&j->got));
        buf_append_c(out, '"');
    }
    buf_clear(&j->scalar);
    buf_clear(&j->got);
    j->where = OUTSIDE;
    return rc;
}

static bool is_scalar(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || strchr("+-._", c) || (c & 0x80);
}

static int take_outside(struct policy_json *j, struct redactor *text, char c, struct buf *out)
{
    if (c && is_scalar(c)) {
        j->where = SCALAR;
        buf_append_c(&j->scalar, c);
        return j->scalar.failed ? STATUS_NOMEM : j->scalar.n > j->limit ? STATUS_EXHAUSTED : 0;
    }
    int rc = j->where == SCALAR ? give_scalar(j, text, out) : 0;
    if (rc < 0)
        return rc;
    buf_append_c(out, c);
    j->where = c == '"' ? STRING : OUTSIDE;
    return 0;
}

static int take_string(struct policy_json *j, struct redactor *text, char c, struct buf *out)
{
    if (c == '\\') {
        j->where = ESCAPE;
        return 0;
    }
    drop_half(j);
    if (c != '"') {
        buf_append_c(&j->value, c);
        return 0;
    }
    int rc = give_value(j, text, true, out);
    if (rc == 0)
        buf_append_c(out, '"');
    j->where = OUTSIDE;
    return rc;
}

static void take_escape(struct policy_json *j, char c)
{
    const char *at = c ? strchr("n\nt\tr\rb\bf\f", c) : NULL;
    j->where = STRING;
    if (c == 'u') {
        j->where = HEX;
        j->digits = 0;
        j->unit = 0;
        return;
    }
    drop_half(j);
    if (at && c >= 'a')
        buf_append_c(&j->value, at[1]);
    else if (c == '"' || c == '\\' || c == '/')
        buf_append_c(&j->value, c);
    else { /* no escape: what stands there */
        buf_append_c(&j->value, '\\');
        buf_append_c(&j->value, c);
    }
}

static void take_unit(struct policy_json *j)
{
    uint32_t u = j->unit;
    j->where = STRING;
    if (j->high && u >= 0xdc00 && u <= 0xdfff) {
        buf_append_utf8(&j->value, 0x10000 + ((j->high - 0xd800) << 10) + (u - 0xdc00));
        j->high = 0;
        return;
    }
    drop_half(j);
    if (u >= 0xd800 && u <= 0xdbff)
        j->high = u;
    else
        buf_append_utf8(&j->value, u >= 0xdc00 && u <= 0xdfff ? 0xfffd : u);
}

/* False: `c` is no digit; the escape is broken, and `c` is the next character of the string. */
static bool take_hex(struct policy_json *j, char c)
{
    int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (d < 0) {
        drop_half(j);
        buf_append_utf8(&j->value, 0xfffd);
        j->where = STRING;
        return false;
    }
    j->unit = j->unit << 4 | (uint32_t)d;
    if (++j->digits == 4)
        take_unit(j);
    return true;
}

static int take(struct policy_json *j, struct redactor *text, char c, struct buf *out)
{
    if (j->where == HEX && take_hex(j, c))
        return 0;
    if (j->where == ESCAPE) {
        take_escape(j, c);
        return 0;
    }
    return j->where == STRING ? take_string(j, text, c, out) : take_outside(j, text, c, out);
}

/* The text ends, in whatever: a value that was cut short goes out as far as it came. */
static int end_text(struct policy_json *j, struct redactor *text, struct buf *out)
{
    int rc = 0;
    if (j->where == SCALAR)
        rc = give_scalar(j, text, out);
    else if (j->where != OUTSIDE) {
        drop_half(j);
        rc = give_value(j, text, true, out);
    }
    policy__json_reset(j);
    return rc;
}

int policy__json_push(struct policy_json *j, struct redactor *text, struct str s, bool last, struct buf *out)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s.n; i++)
        rc = take(j, text, s.p[i], out);
    if (rc == 0 && last)
        return end_text(j, text, out);
    if (rc == 0 && j->value.n)
        rc = give_value(j, text, false, out);
    return rc == 0 && out->failed ? STATUS_NOMEM : rc;
}
