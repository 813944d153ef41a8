/* unicode.c: utf8proc's tables as a bit set per code point; ASCII from a small table, because most text is ASCII. */
#include "text/unicode.h"

#include <utf8proc.h>

static unsigned from_category(int32_t cp)
{
    switch (utf8proc_category(cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
        return UNICODE_LETTER | UNICODE_UPPER;
    case UTF8PROC_CATEGORY_LL:
        return UNICODE_LETTER | UNICODE_LOWER;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return UNICODE_LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return UNICODE_NUMBER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return UNICODE_MARK;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        return UNICODE_PUNCT;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
        return UNICODE_SYMBOL;
    default:
        return 0;
    }
}

/* White_Space of the Unicode character database; categories don't cover it (U+0085 is a control). */
static bool is_space(int32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

unsigned unicode_class(int32_t cp)
{
    if (cp >= 'a' && cp <= 'z')
        return UNICODE_LETTER | UNICODE_LOWER;
    if (cp < 0 || cp > 0x10ffff)
        return 0;
    return from_category(cp) | (is_space(cp) ? UNICODE_SPACE : 0);
}

bool unicode_is_word(int32_t cp)
{
    utf8proc_category_t c = cp >= 0 ? utf8proc_category(cp) : UTF8PROC_CATEGORY_CN;
    return (unicode_class(cp) & (UNICODE_LETTER | UNICODE_MARK)) || c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL ||
           c == UTF8PROC_CATEGORY_PC || cp == 0x200c || cp == 0x200d;
}

size_t unicode_next(const char *p, size_t n, int32_t *cp)
{
    utf8proc_ssize_t len = utf8proc_iterate((const utf8proc_uint8_t *)p, (utf8proc_ssize_t)(n < 4 ? n : 4), cp);
    if (len <= 0) {
        *cp = -1;
        return 1;
    }
    return (size_t)len;
}

size_t unicode_put(int32_t cp, char out[4])
{
    return (size_t)utf8proc_encode_char(cp, (utf8proc_uint8_t *)out);
}
