/* normal.c: the steps of normal.h, over utf8proc. A list of steps runs in two buffers that change places. */
#include "text/normal_priv.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/size.h"
#include "base/status.h"
#include "text/unicode.h"

#define TEXT_MAX 64 /* bytes that a step may put in place of one */

/* ---- characters ---- */

/* Is `cp` one of the ideographs that BERT treats as a word of its own? */
static bool is_cjk(int32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
           (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

/* Categories Cc, Cf, Co and (as no character at all) Cs. What is unassigned may be assigned tomorrow and stays. */
static bool is_control(int32_t cp)
{
    utf8proc_category_t c = utf8proc_category(cp);
    return c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CO || c == UTF8PROC_CATEGORY_CS;
}

static bool is_space(int32_t cp)
{
    return unicode_class(cp) & UNICODE_SPACE;
}

static void put(struct buf *out, int32_t cp)
{
    char text[4];
    buf_append(out, text, unicode_put(cp, text));
}

/* ---- normalisation forms ---- */

static void map_valid(struct str text, utf8proc_option_t options, struct buf *out)
{
    utf8proc_uint8_t *p = NULL;
    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)text.p, (utf8proc_ssize_t)text.n, &p, options);
    if (n >= 0)
        buf_append(out, (const char *)p, (size_t)n);
    else
        out->failed = true; /* the text is valid: only memory can be short */
    free(p);
}

/* Stretches of valid UTF-8 are mapped, other bytes are kept. ASCII alone, which is most of it, is its own normal form. */
static void form(struct str text, utf8proc_option_t options, struct buf *out)
{
    for (size_t i = 0, n; i < text.n; i += n) {
        int32_t cp;
        bool ascii = true;
        struct str rest = {text.p + i, text.n - i};
        for (n = 0; n < rest.n;) {
            size_t len = unicode_next(rest.p + n, rest.n - n, &cp);
            if (cp < 0)
                break;
            ascii = ascii && len == 1;
            n += len;
        }
        rest.n = n;
        if (ascii)
            buf_append(out, rest.p, rest.n);
        else
            map_valid(rest, options, out);
        if (i + n < text.n)
            buf_append_c(out, text.p[i + n++]);
    }
}

/* ---- character by character ---- */

static void lower(int32_t cp, struct buf *out)
{
    put(out, utf8proc_tolower(cp));
    if (cp == 0x130) /* the only character whose lower case is two */
        put(out, 0x307);
}

static void nmt(int32_t c, struct buf *out)
{
    if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f)
        return;
    bool blank = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 || (c >= 0x200b && c <= 0x200f) || c == 0x2028 ||
                 c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd;
    put(out, blank ? ' ' : c);
}

static void bert_clean(int32_t c, struct buf *out)
{
    bool blank = c == '\t' || c == '\n' || c == '\r';
    if (c <= 0 || c == 0xfffd || (!blank && is_control(c)))
        return;
    put(out, blank || is_space(c) ? ' ' : c);
}

static void bert_cjk(int32_t c, struct buf *out)
{
    bool alone = is_cjk(c);
    if (alone)
        buf_append_c(out, ' ');
    put(out, c);
    if (alone)
        buf_append_c(out, ' ');
}

static void each(const struct normal_step *s, struct str text, struct buf *out)
{
    for (size_t i = 0, n; i < text.n; i += n) {
        int32_t cp;
        n = unicode_next(text.p + i, text.n - i, &cp);
        if (cp < 0 && s->kind != NORMAL_BERT_CLEAN) {
            buf_append(out, text.p + i, n);
            continue;
        }
        switch (s->kind) {
        case NORMAL_LOWERCASE:
            lower(cp, out);
            break;
        case NORMAL_BERT_CLEAN:
            bert_clean(cp, out);
            break;
        case NORMAL_BERT_CJK:
            bert_cjk(cp, out);
            break;
        case NORMAL_NMT:
            nmt(cp, out);
            break;
        default: /* NORMAL_STRIP_ACCENTS */
            if (utf8proc_category(cp) != UTF8PROC_CATEGORY_MN)
                put(out, cp);
        }
    }
}

/* ---- rewriting ---- */

static void replace(struct str from, struct str to, struct str text, struct buf *out)
{
    size_t begin = 0;
    for (size_t i = 0; i + from.n <= text.n;) {
        if (memcmp(text.p + i, from.p, from.n) != 0) {
            i++;
            continue;
        }
        buf_append(out, text.p + begin, i - begin);
        buf_append_str(out, to);
        begin = i += from.n;
    }
    buf_append(out, text.p + begin, text.n - begin);
}

static void replace_runs(struct str to, struct str text, struct buf *out)
{
    for (size_t i = 0, n; i < text.n; i += n) {
        for (n = 0; i + n < text.n && text.p[i + n] == ' ';)
            n++;
        if (n > 1) {
            buf_append_str(out, to);
            continue;
        }
        n = 1;
        buf_append_c(out, text.p[i]);
    }
}

static struct str strip(const struct normal_step *s, struct str text)
{
    int32_t cp;
    size_t n;
    while (s->left && text.n && (n = unicode_next(text.p, text.n, &cp), is_space(cp)))
        text.p += n, text.n -= n;
    while (s->right && text.n) {
        for (n = 1; n < 4 && n < text.n && ((unsigned char)text.p[text.n - n] & 0xc0) == 0x80;)
            n++;
        if (unicode_next(text.p + text.n - n, n, &cp) != n || !is_space(cp))
            break;
        text.n -= n;
    }
    return text;
}

static void squeeze(struct str text, struct buf *out)
{
    while (text.n && text.p[0] == ' ')
        text.p++, text.n--;
    while (text.n && text.p[text.n - 1] == ' ')
        text.n--;
    replace_runs(STR(" "), text, out);
}

static void apply(const struct normal_step *s, struct str text, struct buf *out)
{
    switch (s->kind) {
    case NORMAL_NFC:
        form(text, UTF8PROC_STABLE | UTF8PROC_COMPOSE, out);
        break;
    case NORMAL_NFD:
        form(text, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, out);
        break;
    case NORMAL_NFKC:
        form(text, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT, out);
        break;
    case NORMAL_NFKD:
        form(text, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, out);
        break;
    case NORMAL_LOWERCASE:
    case NORMAL_STRIP_ACCENTS:
    case NORMAL_BERT_CLEAN:
    case NORMAL_BERT_CJK:
    case NORMAL_NMT:
        each(s, text, out);
        break;
    case NORMAL_CHARSMAP:
        normal__charsmap(s->a, text, out);
        break;
    case NORMAL_REPLACE:
        replace(s->a, s->b, text, out);
        break;
    case NORMAL_REPLACE_RUNS:
        replace_runs(s->b, text, out);
        break;
    case NORMAL_STRIP:
        buf_append_str(out, strip(s, text));
        break;
    case NORMAL_SQUEEZE:
        squeeze(text, out);
        break;
    case NORMAL_PREPEND:
        if (text.n)
            buf_append_str(out, s->a);
        buf_append_str(out, text);
        break;
    }
}

int normal_check(const struct normal_step *s, struct error *err)
{
    if (s->kind == NORMAL_REPLACE && !s->a.n)
        return error_set(err, STATUS_INVALID, "tokenizer: a normaliser replaces an empty text");
    if (s->kind != NORMAL_CHARSMAP && (s->a.n > TEXT_MAX || s->b.n > TEXT_MAX))
        return error_set(err, STATUS_INVALID, "tokenizer: a normaliser's text has %zu bytes; accepted: up to %d",
                         MAX_OF(s->a.n, s->b.n), TEXT_MAX);
    return s->kind == NORMAL_CHARSMAP ? normal__charsmap_check(s->a, err) : 0;
}

void normal_apply(const struct normal_step *steps, size_t n_steps, struct str text, struct buf *out)
{
    struct buf a, b;
    bool failed = false;
    buf_init(&a);
    buf_init(&b);
    for (size_t i = 0; i + 1 < n_steps; i++) {
        struct buf *to = i % 2 ? &b : &a;
        buf_clear(to);
        apply(&steps[i], text, to);
        failed |= to->failed;
        text = buf_str(to);
    }
    if (n_steps)
        apply(&steps[n_steps - 1], text, out);
    else
        buf_append_str(out, text);
    out->failed |= failed;
    buf_release(&a);
    buf_release(&b);
}
