/* tokenizer_encode.c: from spans to ids: finding special tokens, normalising what is between them, and passing it to the splitter.
 *
 * Two passes, as in Hugging Face's `tokenizers`: most added tokens are found in the text as it came; those that are flagged so, in what the
 * normaliser made of a stretch between them. */
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "text/normal.h"
#include "text/tokenizer_priv.h"
#include "text/unicode.h"

struct encoding {
    const struct tokenizer *t;
    struct token_list *out;
    size_t max_tok;
    struct buf plain;   /* text since the last special token */
    struct buf normal;  /* what the normaliser made of it */
    bool after_special; /* or at the beginning */
    bool first;         /* nothing has been encoded yet */
    bool skip_space;    /* the last special token takes the white space behind it */
    struct error *err;
};

static int nomem(const struct encoding *e)
{
    return error_set(e->err, STATUS_NOMEM, "out of memory while tokenising");
}

/* ---- characters around a token ---- */

static size_t last_char(struct str s, int32_t *cp)
{
    size_t n = 1;
    while (n < 4 && n < s.n && ((unsigned char)s.p[s.n - n] & 0xc0) == 0x80)
        n++;
    if (unicode_next(s.p + s.n - n, n, cp) == n)
        return n;
    *cp = -1;
    return 1;
}

static bool is_space(int32_t cp)
{
    return unicode_class(cp) & UNICODE_SPACE;
}

static struct str without_left_space(struct str s)
{
    int32_t cp;
    for (size_t n; s.n && (n = unicode_next(s.p, s.n, &cp), is_space(cp)); s.p += n)
        s.n -= n;
    return s;
}

static struct str without_right_space(struct str s)
{
    int32_t cp;
    for (size_t n; s.n && (n = last_char(s, &cp), is_space(cp));)
        s.n -= n;
    return s;
}

static bool stands_alone(struct str text, size_t at, size_t n)
{
    int32_t before = -1, behind = -1;
    if (at)
        last_char((struct str){text.p, at}, &before);
    if (at + n < text.n)
        unicode_next(text.p + at + n, text.n - at - n, &behind);
    return !unicode_is_word(before) && !unicode_is_word(behind);
}

/* ---- stretches between special tokens ---- */

static int split(struct encoding *e, struct str text)
{
    const struct tokenizer *t = e->t;
    bool prefix = t->add_space_prefix && e->after_special && (e->first || !t->prefix_first_only);
    if (!text.n)
        return 0;
    e->after_special = e->first = false;
    switch (t->model) {
    case TOKENIZER_BPE:
        return tokenizer__bpe(t, text, e->max_tok, e->out, e->err);
    case TOKENIZER_SPM:
        return tokenizer__spm(t, text, prefix, e->max_tok, e->out, e->err);
    case TOKENIZER_UNIGRAM:
        return tokenizer__unigram(t, text, prefix, e->max_tok, e->out, e->err);
    case TOKENIZER_WORDPIECE:
        return tokenizer__wordpiece(t, text, e->max_tok, e->out, e->err);
    }
    return 0;
}

/* The index of the special token that `text` begins with, or -1. `normalized`: of those that are looked for in normalised text. */
static int special_at(const struct tokenizer *t, struct str text, bool control, bool normalized)
{
    for (size_t i = 0; i < t->n_specials; i++) {
        const struct vocab_token *v = &t->tokens[t->specials[i]];
        if (t->found_text[i].p[0] == text.p[0] && (control || v->type == TOKEN_USER_DEFINED) &&
            str_starts(text, t->found_text[i]) && tokenizer__in_normalized(t, t->specials[i]) == normalized)
            return (int)i;
    }
    return -1;
}

static unsigned flags_of(const struct tokenizer *t, int special)
{
    return t->flags ? t->flags[t->specials[special]] : 0;
}

static int push_special(struct encoding *e, int special)
{
    e->after_special = true;
    e->first = false;
    return tokenizer__push(e->out, e->t->specials[special], e->max_tok, e->err);
}

/* Text that is normal already, with the added tokens that are looked for there. */
static int encode_normal(struct encoding *e, struct str text)
{
    const struct tokenizer *t = e->t;
    size_t from = 0;
    int rc = 0;
    for (size_t i = 0; t->any_normalized && rc == 0 && i < text.n;) {
        int s = special_at(t, (struct str){text.p + i, text.n - i}, false, true);
        size_t n = s >= 0 ? t->found_text[s].n : 1;
        unsigned flags = s >= 0 ? flags_of(t, s) : 0;
        if (s < 0 || ((flags & TOKEN_FLAG_SINGLE_WORD) && !stands_alone(text, i, n))) {
            i += n;
            continue;
        }
        struct str before = {text.p + from, i - from};
        rc = split(e, flags & TOKEN_FLAG_LSTRIP ? without_right_space(before) : before);
        if (rc == 0)
            rc = push_special(e, s);
        from = i += n;
        if (flags & TOKEN_FLAG_RSTRIP)
            from = i = text.n - without_left_space((struct str){text.p + i, text.n - i}).n;
    }
    return rc < 0 ? rc : split(e, (struct str){text.p + from, text.n - from});
}

static int flush(struct encoding *e)
{
    const struct tokenizer *t = e->t;
    int rc = 0;
    if (e->plain.failed)
        return nomem(e);
    if (e->plain.n && !t->n_normal) {
        rc = split(e, buf_str(&e->plain));
    } else if (e->plain.n) {
        buf_clear(&e->normal);
        normal_apply(t->normal, t->n_normal, buf_str(&e->plain), &e->normal);
        rc = e->normal.failed ? nomem(e) : encode_normal(e, buf_str(&e->normal));
    }
    buf_clear(&e->plain);
    return rc;
}

/* ---- spans ---- */

static void add_plain(struct encoding *e, struct str text)
{
    if (e->skip_space)
        text = without_left_space(text);
    if (text.n)
        e->skip_space = false;
    buf_append_str(&e->plain, text);
}

static int encode_span(struct encoding *e, const struct text_span *span)
{
    bool starts[256] = {false};
    const struct tokenizer *t = e->t;
    struct str text = span->text;
    for (size_t i = 0; i < t->n_specials; i++)
        starts[(unsigned char)t->found_text[i].p[0]] = true;
    size_t from = 0;
    for (size_t i = 0; i < text.n;) {
        int s =
            starts[(unsigned char)text.p[i]] ? special_at(t, (struct str){text.p + i, text.n - i}, span->special, false) : -1;
        size_t n = s >= 0 ? t->found_text[s].n : 1;
        unsigned flags = s >= 0 ? flags_of(t, s) : 0;
        if (s < 0 || ((flags & TOKEN_FLAG_SINGLE_WORD) && !stands_alone(text, i, n))) {
            i += n;
            continue;
        }
        add_plain(e, (struct str){text.p + from, i - from});
        if (flags & TOKEN_FLAG_LSTRIP)
            e->plain.n = without_right_space(buf_str(&e->plain)).n;
        int rc = flush(e);
        if (rc == 0)
            rc = push_special(e, s);
        if (rc < 0)
            return rc;
        e->skip_space = flags & TOKEN_FLAG_RSTRIP;
        from = i += n;
    }
    add_plain(e, (struct str){text.p + from, text.n - from});
    return 0;
}

int tokenizer_encode(const struct tokenizer *t, const struct text_span *spans, size_t n_spans, bool add_special, size_t max_tok,
                     struct token_list *out, struct error *err)
{
    struct encoding e = {.t = t, .out = out, .max_tok = max_tok, .after_special = true, .first = true, .err = err};
    int32_t head = t->model == TOKENIZER_WORDPIECE ? t->cls : t->bos, tail = t->model == TOKENIZER_WORDPIECE ? t->sep : t->eos;
    int rc = 0;
    buf_init(&e.plain);
    buf_init(&e.normal);
    if (add_special && t->add_bos && head != TOKEN_NONE)
        rc = tokenizer__push(out, head, max_tok, err);
    for (size_t i = 0; rc == 0 && i < n_spans; i++)
        rc = encode_span(&e, &spans[i]);
    if (rc == 0)
        rc = flush(&e);
    if (rc == 0 && add_special && t->add_eos && tail != TOKEN_NONE)
        rc = tokenizer__push(out, tail, max_tok, err);
    buf_release(&e.plain);
    buf_release(&e.normal);
    return rc;
}
