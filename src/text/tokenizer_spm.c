/* tokenizer_spm.c: SentencePiece BPE (Kudo and Richardson 2018): a symbol a character, spaces as U+2581, merged by the score of the joined
 * token; what is no token in the end is written byte by byte. */
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "text/tokenizer_merge.h"
#include "text/unicode.h"

#define SPACE "\xe2\x96\x81"

static bool pair(const struct merger *m, const struct symbol *l, const struct symbol *r, double *key, int32_t *id)
{
    if ((size_t)l->n + r->n > m->t->longest_text)
        return false;
    *id = tokenizer__find(m->t, (struct str){m->text.p + l->at, (size_t)l->n + r->n});
    if (*id == TOKEN_NONE)
        return false;
    *key = -(double)m->t->tokens[*id].score;
    return true;
}

static int push_bytes(const struct tokenizer *t, struct str bytes, size_t max_tok, struct token_list *out, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < bytes.n; i++) {
        int32_t id = t->byte_id[(unsigned char)bytes.p[i]];
        if (id == TOKEN_NONE && t->unk != TOKEN_NONE)
            return tokenizer__push(out, t->unk, max_tok, err); /* one for the whole character */
        rc = id == TOKEN_NONE ? error_set(err, STATUS_INVALID, "the vocabulary has neither bytes nor an unknown token")
                              : tokenizer__push(out, id, max_tok, err);
    }
    return rc;
}

/* Spaces become U+2581. */
static void normalise(const struct tokenizer *t, struct str text, bool prefix_space, struct buf *to)
{
    (void)t;
    if (prefix_space)
        buf_append_z(to, SPACE);
    for (size_t i = 0, from = 0; i <= text.n; i++) {
        if (i < text.n && text.p[i] != ' ')
            continue;
        buf_append(to, text.p + from, i - from);
        if (i < text.n)
            buf_append_z(to, SPACE);
        from = i + 1;
    }
}

int tokenizer__spm(const struct tokenizer *t, struct str text, bool prefix_space, size_t max_tok, struct token_list *out,
                   struct error *err)
{
    struct buf norm;
    struct merger m;
    buf_init(&norm);
    normalise(t, text, prefix_space, &norm);
    int rc = norm.failed            ? error_set(err, STATUS_NOMEM, "out of memory while tokenising")
             : norm.n >= UINT32_MAX ? error_set(err, STATUS_TOO_LARGE, "the text is too long to tokenise")
                                    : merger_init(&m, t, buf_str(&norm), (uint32_t)norm.n, err);
    if (rc < 0) {
        buf_release(&norm);
        return rc;
    }
    m.pair = pair;
    for (uint32_t at = 0; at < norm.n; m.n_sym++) {
        int32_t cp;
        uint32_t n = (uint32_t)unicode_next(norm.p + at, norm.n - at, &cp);
        m.sym[m.n_sym] = (struct symbol){tokenizer__find(t, (struct str){norm.p + at, n}), at, n,
                                         m.n_sym ? m.n_sym - 1 : UINT32_MAX, m.n_sym + 1};
        at += n;
    }
    if (m.n_sym)
        m.sym[m.n_sym - 1].next = UINT32_MAX;
    merger_run(&m);
    for (uint32_t i = m.n_sym ? 0 : UINT32_MAX; rc == 0 && i != UINT32_MAX; i = m.sym[i].next) {
        const struct symbol *s = &m.sym[i];
        rc = s->id != TOKEN_NONE ? tokenizer__push(out, s->id, max_tok, err)
                                 : push_bytes(t, (struct str){norm.p + s->at, s->n}, max_tok, out, err);
    }
    merger_release(&m);
    buf_release(&norm);
    return rc;
}
