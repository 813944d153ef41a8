/* normal.h: what text goes through before a tokeniser cuts it: Unicode normalisation forms, BERT's clean-up, SentencePiece's character map,
 * and the small rewritings that tokenizer.json declares. A tokeniser has a list of steps; each reads the text that the one before made.
 *
 * Bytes that are no UTF-8 are left as they are by every step but BERT's and the character map's, which make U+FFFD of each, as the
 * libraries do whose models these are. Pure; any thread. Sources: Unicode Annex 15; Devlin et al. 2019 (BERT's tokenization.py); the file
 * format of SentencePiece's precompiled_charsmap (a Darts double array and the texts it points to). */
#ifndef INFERD_TEXT_NORMAL_H
#define INFERD_TEXT_NORMAL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

enum normal_kind {
    NORMAL_NFC,
    NORMAL_NFD,
    NORMAL_NFKC,
    NORMAL_NFKD,
    NORMAL_LOWERCASE,     /* full mapping, character by character */
    NORMAL_STRIP_ACCENTS, /* characters of category Mn go */
    NORMAL_BERT_CLEAN,    /* controls and U+FFFD go, every white space becomes a space */
    NORMAL_BERT_CJK,      /* a space on both sides of every CJK ideograph */
    NORMAL_CHARSMAP,      /* a: the map; longest match first */
    NORMAL_REPLACE,       /* every a (not empty) becomes b */
    NORMAL_REPLACE_RUNS,  /* two or more spaces become one b */
    NORMAL_STRIP,         /* white space at the left and at the right end goes */
    NORMAL_SQUEEZE,       /* SentencePiece: spaces at both ends go, runs of spaces become one */
    NORMAL_PREPEND,       /* a in front, unless the text is empty */
    NORMAL_NMT,           /* controls go, odd blanks become spaces (the rule set "nmt" of SentencePiece) */
};

struct normal_step {
    enum normal_kind kind;
    struct str a, b;
    bool left, right; /* STRIP */
};

/* Is the step well-formed? INVALID: an empty `a` of REPLACE, a character map whose sizes don't fit or whose texts end outside of it. */
int normal_check(const struct normal_step *s, struct error *err) MUST_CHECK;

/* Append what the steps make of `text` to `out`; out->failed when memory runs out. Steps must have passed normal_check. O(n) a step. */
void normal_apply(const struct normal_step *steps, size_t n_steps, struct str text, struct buf *out);

#endif
