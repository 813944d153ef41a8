/* unicode.h: text/'s own view of Unicode, over utf8proc: code points, the character classes that pre-tokenisers ask for. Pure. */
#ifndef INFERD_TEXT_UNICODE_H
#define INFERD_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bits of unicode_class. */
enum {
    UNICODE_LETTER = 1,  /* \p{L} */
    UNICODE_NUMBER = 2,  /* \p{N} */
    UNICODE_SPACE = 4,   /* \s: White_Space */
    UNICODE_MARK = 8,    /* \p{M} */
    UNICODE_PUNCT = 16,  /* \p{P} */
    UNICODE_SYMBOL = 32, /* \p{S} */
    UNICODE_UPPER = 64,  /* \p{Lu} \p{Lt} */
    UNICODE_LOWER = 128, /* \p{Ll} */
};

/* The UNICODE_ bits of a code point; 0 for one that is unassigned or none at all. */
unsigned unicode_class(int32_t cp);

/* \w of Unicode's regular expressions (UTS 18, annex C): letters, marks, digits and letter numbers, connectors, joiners. */
bool unicode_is_word(int32_t cp);

/* Decode one code point of p[0..n), n > 0: *cp and its length in bytes; an invalid byte gives -1 and length 1. */
size_t unicode_next(const char *p, size_t n, int32_t *cp);
/* Encode; returns the length (1..4). cp must be valid. */
size_t unicode_put(int32_t cp, char out[4]);

#endif
