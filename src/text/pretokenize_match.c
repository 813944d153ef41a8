/* pretokenize_match.c: the scanners of pretokenize.c's stages. Each looks at every character a bounded number of times; none has state.
 * The expressions of those that are not in pretokenize.c:
 *   gpt-4o      [^\r\n\p{L}\p{N}]?U*L+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?U+L*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|
 *               ` ?[^\s\p{L}\p{N}]+[\r\n/]*`|\s*[\r\n]+|\s+(?!\S)|\s+       with U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], L = [\p{Ll}\p{Lm}\p{Lo}\p{M}]
 *   tekken      the same without contractions and with \p{N}. (llama.cpp has [^a-z] and [^A-Z] for U and L, which cuts letters with case outside of
 *               ASCII elsewhere than the models were trained with.)
 *   deepseek-llm    [\r\n], \s?[letters with case]+, \s?[punctuation]+, \s+$, [CJK]+, \p{N}+: lists below
 *   deepseek-coder  [\r\n], \s?\p{L}+, \s?\p{P}+, [CJK]+, \p{N}
 *   deepseek-v3     \p{N}{1,3}, [一-龥぀-ゟ゠-ヿ]+, then
 *                   [ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
#include "base/size.h"
#include "text/pretokenize_priv.h"
#include "text/unicode.h"

/* ---- characters ---- */

struct pre_char pre_look(struct str t, size_t i)
{
    struct pre_char a = {0};
    if (i < t.n) {
        a.len = unicode_next(t.p + i, t.n - i, &a.cp);
        a.cls = unicode_class(a.cp);
    }
    return a;
}

bool pre_is_letter(struct pre_char a)
{
    return a.cls & UNICODE_LETTER;
}

static bool is_letter_or_mark(struct pre_char a)
{
    return a.cls & (UNICODE_LETTER | UNICODE_MARK);
}

bool pre_is_number(struct pre_char a)
{
    return a.cls & UNICODE_NUMBER;
}

bool pre_is_ascii_digit(struct pre_char a)
{
    return a.cp >= '0' && a.cp <= '9';
}

static bool is_space(struct pre_char a)
{
    return a.cls & UNICODE_SPACE;
}

bool pre_is_newline(struct pre_char a)
{
    return a.len && (a.cp == '\r' || a.cp == '\n');
}

static bool is_newline_or_slash(struct pre_char a)
{
    return pre_is_newline(a) || a.cp == '/';
}

static bool is_other(struct pre_char a)
{
    return a.len && !(a.cls & (UNICODE_LETTER | UNICODE_NUMBER | UNICODE_SPACE));
}

static bool is_other_unmarked(struct pre_char a)
{
    return is_other(a) && !(a.cls & UNICODE_MARK);
}

bool pre_is_punct(struct pre_char a)
{
    return a.cls & UNICODE_PUNCT;
}

static bool is_punct_or_symbol(struct pre_char a)
{
    return a.cls & (UNICODE_PUNCT | UNICODE_SYMBOL);
}

static bool is_ascii_letter(struct pre_char a)
{
    return (a.cp >= 'a' && a.cp <= 'z') || (a.cp >= 'A' && a.cp <= 'Z');
}

bool pre_is_falcon_punct(struct pre_char a)
{
    return a.cls & UNICODE_PUNCT || (a.cp < 128 && a.cls & UNICODE_SYMBOL);
}

static bool is_upper_like(struct pre_char a)
{
    return is_letter_or_mark(a) && !(a.cls & UNICODE_LOWER);
}

static bool is_lower_like(struct pre_char a)
{
    return is_letter_or_mark(a) && !(a.cls & UNICODE_UPPER);
}

/* ---- lists of characters ---- */

struct range {
    int32_t first, last;
};

/* Ascending. */
static const struct range cased_letters[] = {
    {0x41, 0x5a},       {0x61, 0x7a},       {0xb5, 0xb5},       {0xc0, 0xd6},       {0xd8, 0xf6},       {0xf8, 0x1ba},
    {0x1bc, 0x1bf},     {0x1c4, 0x293},     {0x295, 0x2af},     {0x370, 0x373},     {0x376, 0x376},     {0x377, 0x377},
    {0x37b, 0x37d},     {0x37f, 0x37f},     {0x386, 0x386},     {0x388, 0x38a},     {0x38c, 0x38c},     {0x38e, 0x3a1},
    {0x3a3, 0x3f5},     {0x3f7, 0x481},     {0x48a, 0x52f},     {0x531, 0x556},     {0x10a0, 0x10c5},   {0x13a0, 0x13f5},
    {0x13f8, 0x13fd},   {0x1c90, 0x1cba},   {0x1cbd, 0x1cbf},   {0x1d00, 0x1d2b},   {0x1d6b, 0x1d77},   {0x1d79, 0x1d9a},
    {0x1e00, 0x1f15},   {0x1f18, 0x1f1d},   {0x1f20, 0x1f45},   {0x1f48, 0x1f4d},   {0x1f50, 0x1f57},   {0x1f59, 0x1f59},
    {0x1f5b, 0x1f5b},   {0x1f5d, 0x1f5d},   {0x1f5f, 0x1f7d},   {0x1f80, 0x1fb4},   {0x1fb6, 0x1fbc},   {0x1fbe, 0x1fbe},
    {0x1fc2, 0x1fc4},   {0x1fc6, 0x1fcc},   {0x1fd0, 0x1fd3},   {0x1fd6, 0x1fdb},   {0x1fe0, 0x1fec},   {0x1ff2, 0x1ff4},
    {0x1ff6, 0x1ffc},   {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210a, 0x2113},   {0x2115, 0x2115},   {0x2119, 0x211d},
    {0x2124, 0x2124},   {0x2126, 0x2126},   {0x2128, 0x2128},   {0x212a, 0x212d},   {0x212f, 0x2134},   {0x2139, 0x2139},
    {0x213c, 0x213f},   {0x2145, 0x2149},   {0x214e, 0x214e},   {0x2183, 0x2183},   {0x2184, 0x2184},   {0x2c00, 0x2c7b},
    {0x2c7e, 0x2ce4},   {0x2ceb, 0x2cee},   {0x2cf2, 0x2cf2},   {0x2cf3, 0x2cf3},   {0xa640, 0xa66d},   {0xa680, 0xa69b},
    {0xa722, 0xa76f},   {0xa771, 0xa787},   {0xa78b, 0xa78e},   {0xab70, 0xabbf},   {0xfb00, 0xfb06},   {0xfb13, 0xfb17},
    {0xff21, 0xff3a},   {0xff41, 0xff5a},   {0x10400, 0x1044f}, {0x104b0, 0x104d3}, {0x104d8, 0x104fb}, {0x10c80, 0x10cb2},
    {0x10cc0, 0x10cf2}, {0x118a0, 0x118df}, {0x1e900, 0x1e943}};
static const struct range wide_punct[] = {{'!', '/'},       {':', '~'},       {0x2018, 0x201f},
                                          {0x3000, 0x3002}, {0xff01, 0xff0f}, {0xff1a, 0xff5e}};
static const struct range cjk[] = {{0x800, 0x9fa5}, {0xac00, 0xd7ff}};
static const struct range han_kana[] = {{0x3040, 0x30ff}, {0x4e00, 0x9fa5}};
static const struct range bloom_separators[] = {{'!', '!'},     {'(', ')'},       {',', ','},       {'.', '.'},
                                                {'?', '?'},     {'|', '|'},       {0x60c, 0x60c},   {0x6d4, 0x6d4},
                                                {0x964, 0x964}, {0x2026, 0x2026}, {0x3001, 0x3002}, {0xff0c, 0xff0c}};

static bool in_ranges(const struct range *v, size_t n, int32_t cp)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (v[mid].last < cp)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && v[low].first <= cp;
}

bool pre_is_cased_letter(struct pre_char a)
{
    return in_ranges(cased_letters, COUNT_OF(cased_letters), a.cp);
}

bool pre_is_wide_punct(struct pre_char a)
{
    return in_ranges(wide_punct, COUNT_OF(wide_punct), a.cp);
}

bool pre_is_cjk(struct pre_char a)
{
    return in_ranges(cjk, COUNT_OF(cjk), a.cp);
}

bool pre_is_han_kana(struct pre_char a)
{
    return in_ranges(han_kana, COUNT_OF(han_kana), a.cp);
}

bool pre_is_bloom_word(struct pre_char a)
{
    return a.len && !is_space(a) && !in_ranges(bloom_separators, COUNT_OF(bloom_separators), a.cp);
}

/* ---- runs ---- */

/* The end of the run of at most `most` (0: any number) characters of the class from i on. */
static size_t run(struct str t, size_t i, bool (*is)(struct pre_char a), unsigned most)
{
    struct pre_char a;
    for (unsigned n = 0; (!most || n < most) && (a = pre_look(t, i)).len && is(a); n++)
        i += a.len;
    return i;
}

static size_t run_from(const struct pre_stage *s, struct str t, size_t i)
{
    struct pre_char a;
    unsigned n = 0;
    for (; (!s->most || n < s->most) && (a = pre_look(t, i)).len && s->is(a); n++)
        i += a.len;
    return n >= s->least ? i : 0;
}

size_t pre_match_run(const struct pre_stage *s, struct str t, size_t *skip)
{
    struct pre_char first = pre_look(t, 0);
    bool prefix = s->prefix == PREFIX_SPACE ? first.cp == ' ' : s->prefix == PREFIX_BLANK && is_space(first);
    size_t end = prefix ? run_from(s, t, first.len) : 0;
    (void)skip;
    return end ? end : run_from(s, t, 0);
}

size_t pre_match_trailing_blanks(const struct pre_stage *s, struct str t, size_t *skip)
{
    size_t end = run(t, 0, is_space, 0);
    (void)s;
    *skip = end;
    return end == t.n ? end : 0;
}

/* ---- alternatives, in the order of the expressions; each returns the end of its match or 0 ---- */

static size_t contraction(bool fold, struct str t)
{
    static const char *const tails[] = {"re", "ve", "ll", "s", "t", "m", "d"};
    if (t.n < 2 || t.p[0] != '\'')
        return 0;
    for (size_t i = 0; i < COUNT_OF(tails); i++) {
        struct str tail = str_of(tails[i]), have = {t.p + 1, MIN_OF(t.n - 1, tail.n)};
        if (fold ? str_ieq(have, tail) : str_eq(have, tail))
            return 1 + tail.n;
    }
    /* (?i:'s) also folds the long s, U+017F */
    if (fold && t.n >= 3 && t.p[1] == '\xc5' && t.p[2] == '\xbf')
        return 3;
    return 0;
}

static size_t letters(const struct pre_words *w, struct str t)
{
    struct pre_char first = pre_look(t, 0);
    bool (*is)(struct pre_char a) = w->marks ? is_letter_or_mark : pre_is_letter;
    if (is(first))
        return run(t, first.len, is, 0);
    bool prefix = w->any_prefix ? !pre_is_number(first) && !pre_is_newline(first) : first.cp == ' ';
    return prefix && is(pre_look(t, first.len)) ? run(t, first.len, is, 0) : 0;
}

static size_t digits(const struct pre_words *w, struct str t)
{
    struct pre_char first = pre_look(t, 0);
    size_t start = w->digit_prefix && first.cp == ' ' ? 1 : 0;
    return pre_is_number(pre_look(t, start)) ? run(t, start, pre_is_number, w->max_digits) : 0;
}

/* ` ?[is]+[tail]*` */
static size_t others(struct str t, bool (*is)(struct pre_char a), bool (*tail)(struct pre_char a))
{
    size_t start = t.p[0] == ' ' ? 1 : 0;
    if (!is(pre_look(t, start)))
        return 0;
    size_t end = run(t, start, is, 0);
    return tail ? run(t, end, tail, 0) : end;
}

/* [\s*[\r\n]+|] \s+(?!\S)|\s+ */
static size_t blanks(bool newline_runs, struct str t)
{
    size_t end = run(t, 0, is_space, 0), last_newline = 0, last = 0;
    for (size_t i = 0; i < end;) {
        struct pre_char a = pre_look(t, i);
        last = i;
        i += a.len;
        if (pre_is_newline(a))
            last_newline = i;
    }
    if (!end)
        return 0;
    if (newline_runs && last_newline)
        return last_newline;
    /* \s+(?!\S): leave the last blank to the word behind */
    return end < t.n && last > 0 ? last : end;
}

size_t pre_match_words(const struct pre_stage *s, struct str t, size_t *skip)
{
    const struct pre_words *w = s->words;
    size_t end = contraction(w->fold_contractions, t);
    (void)skip;
    if (!end)
        end = letters(w, t);
    if (!end)
        end = digits(w, t);
    if (!end)
        end = others(t, w->marks ? is_other_unmarked : is_other, w->punct_newlines ? pre_is_newline : NULL);
    if (!end)
        end = blanks(w->newline_runs, t);
    return end;
}

/* ---- words that a change of case ends ---- */

/* U*L+ from i on. Letters without case and marks are in both: where nothing but U follows them, L+ gets the last of them and U* what is before. */
static size_t upper_then_lower(struct str t, size_t i)
{
    struct pre_char a;
    size_t both_end = 0;
    for (; (a = pre_look(t, i)).len && is_upper_like(a); i += a.len)
        if (is_lower_like(a))
            both_end = i + a.len;
    return is_lower_like(a) ? run(t, i, is_lower_like, 0) : both_end;
}

/* U+L* */
static size_t uppers_then_lower(struct str t, size_t i)
{
    size_t end = run(t, i, is_upper_like, 0);
    return end > i ? run(t, end, is_lower_like, 0) : 0;
}

static size_t cased_word(const struct pre_stage *s, struct str t)
{
    struct pre_char first = pre_look(t, 0);
    bool prefix = !pre_is_newline(first) && !pre_is_letter(first) && !pre_is_number(first);
    size_t end = prefix ? upper_then_lower(t, first.len) : 0;
    if (!end)
        end = upper_then_lower(t, 0);
    if (!end && prefix)
        end = uppers_then_lower(t, first.len);
    if (!end)
        end = uppers_then_lower(t, 0);
    return end && s->contractions ? end + contraction(true, (struct str){t.p + end, t.n - end}) : end;
}

size_t pre_match_cased(const struct pre_stage *s, struct str t, size_t *skip)
{
    size_t end = cased_word(s, t);
    (void)skip;
    if (!end)
        end = run(t, 0, pre_is_number, s->max_digits);
    if (!end)
        end = others(t, is_other, is_newline_or_slash);
    if (!end)
        end = blanks(true, t);
    return end;
}

/* ---- DeepSeek V3 ---- */

size_t pre_match_deepseek3(const struct pre_stage *s, struct str t, size_t *skip)
{
    struct pre_char first = pre_look(t, 0), second = pre_look(t, first.len);
    (void)s;
    (void)skip;
    if (first.cp < 128 && is_punct_or_symbol(first) && is_ascii_letter(second))
        return run(t, first.len, is_ascii_letter, 0);
    if (!pre_is_newline(first) && !pre_is_letter(first) && !is_punct_or_symbol(first) && is_letter_or_mark(second))
        return run(t, first.len, is_letter_or_mark, 0);
    if (is_letter_or_mark(first))
        return run(t, 0, is_letter_or_mark, 0);
    size_t end = others(t, is_punct_or_symbol, pre_is_newline);
    return end ? end : blanks(true, t);
}
