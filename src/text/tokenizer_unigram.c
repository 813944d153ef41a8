/* tokenizer_unigram.c: SentencePiece's unigram model (Kudo 2018): of all ways to cut a text into pieces the one whose scores add up to most.
 *
 * Spaces are U+2581, one in front of the text. Viterbi over byte positions: best[i] is the best score of the first i bytes and the piece
 * that ends there. A character that is no piece by itself may stand for one unknown, 10 below the worst piece; neighbouring unknowns are
 * one, spelt in bytes where the vocabulary has them. Of equal cuts the one whose last piece begins first is taken, as in the
 * libraries. Where no piece goes on behind a space, a text is cut there first: that bounds the memory. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "text/normal.h"
#include "text/tokenizer_priv.h"
#include "text/unicode.h"

#define MARK        "\xe2\x96\x81"
#define MARK_N      (sizeof MARK - 1)
#define UNK_PENALTY 10.0
#define STRETCH_MAX ((size_t)16 << 20) /* bytes that one search covers */

static bool mark_at(struct str text, size_t i)
{
    return text.n - i >= MARK_N && memcmp(text.p + i, MARK, MARK_N) == 0;
}

int tokenizer__unigram_setup(struct tokenizer *t, const struct tokenizer_spec *spec, struct error *err)
{
    double worst = DBL_MAX;
    if (!spec->scores)
        return error_set(err, STATUS_INVALID, "tokenizer: a unigram vocabulary needs scores");
    if (t->unk == TOKEN_NONE)
        return error_set(err, STATUS_INVALID, "tokenizer: a unigram vocabulary needs an unknown token");
    for (size_t i = 0; i < t->n_tokens; i++) {
        struct str text = t->tokens[i].text;
        if (t->tokens[i].type != TOKEN_NORMAL)
            continue;
        worst = MIN_OF(worst, (double)t->tokens[i].score);
        for (size_t k = 1; k < text.n; k++)
            t->pieces_cross_words |= mark_at(text, k) && !(k >= MARK_N && mark_at(text, k - MARK_N));
    }
    t->unk_score = (worst == DBL_MAX ? 0 : worst) - UNK_PENALTY;
    t->has_bytes = true;
    for (int b = 0; b < 256; b++)
        t->has_bytes &= t->byte_id[b] != TOKEN_NONE;
    return tokenizer__pieces_setup(t, err);
}

/* ---- the search ---- */

struct cut {
    double score;  /* of everything up to here; -DBL_MAX: cannot be reached */
    uint32_t from; /* where its last piece begins */
    int32_t id;    /* that piece; TOKEN_NONE: unknown */
};

static void offer(struct cut *c, double score, size_t from, int32_t id)
{
    if (score > c->score)
        *c = (struct cut){score, (uint32_t)from, id};
}

/* All pieces that begin at `at`. */
static void extend(const struct tokenizer *t, struct str text, size_t at, struct cut *best)
{
    struct piece_walk w = tokenizer__walk(t);
    int32_t cp;
    size_t n_char = unicode_next(text.p + at, text.n - at, &cp);
    bool whole_char = false;
    for (size_t i = at; i < text.n && tokenizer__walk_on(t, &w, (unsigned char)text.p[i]); i++) {
        int32_t id = tokenizer__walk_end(t, &w);
        if (id == TOKEN_NONE)
            continue;
        whole_char |= w.depth == n_char;
        offer(&best[i + 1], best[at].score + (double)t->tokens[id].score, at, id);
    }
    if (!whole_char)
        offer(&best[at + n_char], best[at].score + t->unk_score, at, TOKEN_NONE);
}

static int push_unknown(const struct tokenizer *t, struct str text, size_t max_tok, struct token_list *out, struct error *err)
{
    int rc = 0;
    if (!t->has_bytes)
        return tokenizer__push(out, t->unk, max_tok, err);
    for (size_t i = 0; rc == 0 && i < text.n; i++)
        rc = tokenizer__push(out, t->byte_id[(unsigned char)text.p[i]], max_tok, err);
    return rc;
}

/* Turn the chain that ends at `n` round: next[i] is where the piece that begins at i ends (kept in from). */
static void forward(struct cut *best, size_t n)
{
    uint32_t end = UINT32_MAX, at = (uint32_t)n;
    int32_t id = TOKEN_NONE;
    for (;;) {
        uint32_t from = best[at].from;
        int32_t own = best[at].id;
        best[at].from = end;
        best[at].id = id;
        if (at == 0)
            return;
        end = at;
        id = own;
        at = from;
    }
}

static int search(const struct tokenizer *t, struct str text, struct cut *best, size_t max_tok, struct token_list *out,
                  struct error *err)
{
    int rc = 0;
    int32_t cp;
    for (size_t i = 0; i <= text.n; i++)
        best[i] = (struct cut){i ? -DBL_MAX : 0, 0, TOKEN_NONE};
    for (size_t i = 0; i < text.n; i += unicode_next(text.p + i, text.n - i, &cp))
        if (best[i].score > -DBL_MAX)
            extend(t, text, i, best);
    forward(best, text.n);
    for (size_t i = 0; rc == 0 && i < text.n;) {
        size_t end = best[i].from;
        if (best[i].id != TOKEN_NONE) {
            rc = tokenizer__push(out, best[i].id, max_tok, err);
        } else {
            while (end < text.n && best[end].id == TOKEN_NONE)
                end = best[end].from;
            rc = push_unknown(t, (struct str){text.p + i, end - i}, max_tok, out, err);
        }
        i = end;
    }
    return rc;
}

/* ---- stretches ---- */

/* Where the first stretch of `text` ends: before the next space behind something else, if no piece crosses it. */
static size_t stretch(const struct tokenizer *t, struct str text)
{
    if (t->pieces_cross_words && !t->split_marks)
        return text.n;
    for (size_t i = 1; i < text.n; i++)
        if (text.p[i] == MARK[0] && mark_at(text, i) && (t->split_marks || !(i >= MARK_N && mark_at(text, i - MARK_N))))
            return i;
    return text.n;
}

static int encode_marked(const struct tokenizer *t, struct str text, size_t max_tok, struct token_list *out, struct error *err)
{
    struct cut *best = NULL;
    size_t cap = 0;
    int rc = 0;
    while (rc == 0 && text.n) {
        size_t n = stretch(t, text);
        if (n > STRETCH_MAX) {
            rc = error_set(err, STATUS_TOO_LARGE, "the text has a word of %zu bytes; accepted: up to %zu", n, STRETCH_MAX);
            break;
        }
        if (n + 1 > cap) {
            free(best);
            cap = MAX_OF(n + 1, (size_t)256);
            best = malloc(cap * sizeof *best);
        }
        rc = best ? search(t, (struct str){text.p, n}, best, max_tok, out, err)
                  : error_set(err, STATUS_NOMEM, "out of memory while tokenising");
        text.p += n, text.n -= n;
    }
    free(best);
    return rc;
}

/* Append `text` with its spaces as marks; white space separates words where the file says so. */
static void mark_words(const struct tokenizer *t, struct str text, bool prefix, struct buf *to)
{
    bool inside = false;
    if (!t->split_words && prefix && text.n && text.p[0] != ' ' && !mark_at(text, 0))
        buf_append_z(to, MARK);
    for (size_t i = 0, n; i < text.n; i += n) {
        int32_t cp;
        n = unicode_next(text.p + i, text.n - i, &cp);
        bool space = t->split_words ? (unicode_class(cp) & UNICODE_SPACE) != 0 : cp == ' ';
        if (!space) {
            if (t->split_words && !inside && t->add_space_prefix && (prefix || to->n) && !mark_at(text, i))
                buf_append_z(to, MARK);
            buf_append(to, text.p + i, n);
        } else if (!t->split_words) {
            buf_append_z(to, MARK);
        }
        inside = !space;
    }
}

int tokenizer__unigram(const struct tokenizer *t, struct str text, bool prefix_space, size_t max_tok, struct token_list *out,
                       struct error *err)
{
    struct buf marked;
    buf_init(&marked);
    mark_words(t, text, prefix_space, &marked);
    int rc = marked.failed ? error_set(err, STATUS_NOMEM, "out of memory while tokenising")
                           : encode_marked(t, buf_str(&marked), max_tok, out, err);
    buf_release(&marked);
    return rc;
}
