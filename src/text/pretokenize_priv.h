/* pretokenize_priv.h: private to pretokenize*.c: one stage of a pre-tokeniser. */
#ifndef INFERD_TEXT_PRETOKENIZE_PRIV_H
#define INFERD_TEXT_PRETOKENIZE_PRIV_H

#include <stdint.h>

#include "text/pretokenize.h"

/* A character of a text with its UNICODE_ bits. */
struct pre_char {
    int32_t cp;
    unsigned cls;
    size_t len; /* 0 at the end */
};

/* The switches of the family that most models use:
 *   contraction | [prefix] letters+ | digits{1,k} | [ ]others+ [newlines] | blanks newlines | blanks before a word | blanks */
struct pre_words {
    bool fold_contractions; /* 'S as well as 's */
    bool any_prefix; /* a letter run may take any one non-letter, non-digit, non-newline character with it; else only a space */
    unsigned max_digits; /* digits in one piece; 0: no bound */
    bool digit_prefix;   /* a digit run may take a space with it */
    bool punct_newlines; /* a run of other characters takes the newlines behind it */
    bool newline_runs;   /* blanks that end in newlines are one piece */
    bool marks;          /* combining marks belong to letter runs */
};

enum pre_prefix { PREFIX_NONE, PREFIX_SPACE, PREFIX_BLANK }; /* "", " ?", "\s?" */

struct pre_stage {
    /* The length of the match at the beginning of t (n > 0), or 0; then *skip, if set, is how many bytes can't begin one either. */
    size_t (*match)(const struct pre_stage *s, struct str t, size_t *skip);
    const struct pre_words *words; /* pre_match_words */
    bool (*is)(struct pre_char c); /* pre_match_run: prefix, then `least` to `most` (0: any number) of these */
    enum pre_prefix prefix;
    unsigned least, most;
    bool contractions;   /* pre_match_cased: a contraction belongs to the word before it */
    unsigned max_digits; /* pre_match_cased */
};

struct pre_char pre_look(struct str t, size_t i);

size_t pre_match_words(const struct pre_stage *s, struct str t, size_t *skip);
size_t pre_match_run(const struct pre_stage *s, struct str t, size_t *skip);
/* \s+$ */
size_t pre_match_trailing_blanks(const struct pre_stage *s, struct str t, size_t *skip);
/* Words that a change of case ends (GPT-4o, Tekken). */
size_t pre_match_cased(const struct pre_stage *s, struct str t, size_t *skip);
/* DeepSeek V3's last expression. */
size_t pre_match_deepseek3(const struct pre_stage *s, struct str t, size_t *skip);

/* Classes for pre_match_run. */
bool pre_is_newline(struct pre_char c);
bool pre_is_letter(struct pre_char c);
bool pre_is_number(struct pre_char c);
bool pre_is_ascii_digit(struct pre_char c);
bool pre_is_punct(struct pre_char c);        /* \p{P} */
bool pre_is_falcon_punct(struct pre_char c); /* \p{P} and ASCII's $+<=>^~|` */
bool pre_is_cased_letter(struct pre_char c); /* DeepSeek LLM's list of letters with case */
bool pre_is_wide_punct(struct pre_char c);   /* its list of punctuation, ASCII and full-width */
bool pre_is_cjk(struct pre_char c);          /* its list of scripts without spaces */
bool pre_is_han_kana(struct pre_char c);     /* DeepSeek V3's */
bool pre_is_bloom_word(struct pre_char c);   /* whatever is neither white space nor one of Bloom's separators */

#endif
