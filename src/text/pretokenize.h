/* pretokenize.h: cutting text into the pieces that BPE never merges across. text/'s own.
 *
 * Every pre-tokeniser here is published as a regular expression; these are hand-written scanners of the same languages, so that no input
 * can make them backtrack. One scanner with a few switches covers the family that most models use:
 *
 *   contraction | [prefix] letters+ | digits{1,k} | [ ]others+ [newlines] | blanks newlines | blanks before a word | blanks
 */
#ifndef INFERD_TEXT_PRETOKENIZE_H
#define INFERD_TEXT_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

struct pre_rules {
    const char *names;      /* comma-separated values of tokenizer.ggml.pre */
    bool fold_contractions; /* 'S as well as 's */
    bool any_prefix; /* a letter run may take any one non-letter, non-digit, non-newline character with it; else only a space */
    unsigned max_digits;     /* digits in one piece; 0: no bound */
    bool digit_prefix;       /* a digit run may take a space with it */
    bool split_digits_first; /* every digit is a piece of its own before anything else is looked at */
    bool punct_newlines;     /* a run of other characters takes the newlines behind it */
    bool newline_runs;       /* blanks that end in newlines are one piece */
    bool marks;              /* combining marks belong to letter runs */
};

/* NULL when unknown. */
const struct pre_rules *pre_rules_find(struct str name);
/* "default, gpt-2, llama-bpe, ...": for messages; static. */
const char *pre_rules_known(void);

/* Length of the first piece of `text` (n > 0); at least 1. */
size_t pretokenize_next(const struct pre_rules *r, struct str text);

#endif
