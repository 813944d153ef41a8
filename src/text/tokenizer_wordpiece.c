/* tokenizer_wordpiece.c: BERT's WordPiece (Wu et al. 2016; Devlin et al. 2019): words are what stands between white space and punctuation, each
 * punctuation character is a word; a word is cut greedily into the longest piece that begins it, then the longest that goes on. A word with
 * a rest that no piece begins, or with too many characters, is unknown as a whole. */
#include "base/status.h"
#include "text/tokenizer_priv.h"
#include "text/unicode.h"

#define MARK "\xe2\x96\x81" /* in front of pieces that begin a word */

int tokenizer__wordpiece_setup(struct tokenizer *t, struct error *err)
{
    if (t->unk == TOKEN_NONE)
        return error_set(err, STATUS_INVALID, "tokenizer: a WordPiece vocabulary needs an unknown token");
    if (!t->max_word_chars)
        t->max_word_chars = 100;
    return tokenizer__pieces_setup(t, err);
}

static bool is_punctuation(int32_t cp, unsigned cls)
{
    return (cls & UNICODE_PUNCT) || (cp < 128 && (cls & UNICODE_SYMBOL));
}

/* The longest piece that `text` begins with: its id and its length in `text`. */
static int32_t longest(const struct tokenizer *t, struct str text, bool begins, size_t *n)
{
    struct piece_walk w = tokenizer__walk(t);
    int32_t best = TOKEN_NONE;
    for (size_t i = 0; begins && i < sizeof MARK - 1; i++)
        if (!tokenizer__walk_on(t, &w, (unsigned char)MARK[i]))
            return TOKEN_NONE;
    for (size_t i = 0; i < text.n && tokenizer__walk_on(t, &w, (unsigned char)text.p[i]); i++) {
        int32_t id = tokenizer__walk_end(t, &w);
        if (id != TOKEN_NONE) {
            best = id;
            *n = i + 1;
        }
    }
    return best;
}

static int encode_word(const struct tokenizer *t, struct str word, size_t n_chars, size_t max_tok, struct token_list *out,
                       struct error *err)
{
    size_t before = out->n, n = 0;
    bool known = n_chars <= t->max_word_chars;
    for (size_t at = 0; known && at < word.n; at += n) {
        int32_t id = longest(t, (struct str){word.p + at, word.n - at}, at == 0, &n);
        known = id != TOKEN_NONE;
        int rc = known ? tokenizer__push(out, id, max_tok, err) : 0;
        if (rc < 0)
            return rc;
    }
    if (known)
        return 0;
    out->n = before;
    return tokenizer__push(out, t->unk, max_tok, err);
}

int tokenizer__wordpiece(const struct tokenizer *t, struct str text, size_t max_tok, struct token_list *out, struct error *err)
{
    size_t begin = 0, n_chars = 0, n;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i <= text.n; i += n) {
        int32_t cp = -1;
        n = i < text.n ? unicode_next(text.p + i, text.n - i, &cp) : 1;
        unsigned cls = i < text.n ? unicode_class(cp) : UNICODE_SPACE;
        bool alone = is_punctuation(cp, cls);
        if (!alone && !(cls & UNICODE_SPACE)) {
            n_chars++;
            continue;
        }
        if (n_chars)
            rc = encode_word(t, (struct str){text.p + begin, i - begin}, n_chars, max_tok, out, err);
        if (rc == 0 && alone)
            rc = encode_word(t, (struct str){text.p + i, n}, 1, max_tok, out, err);
        begin = i + n;
        n_chars = 0;
    }
    return rc;
}
