/* pretokenize.c: the scanner of pretokenize.h. Looks at each character once or twice; no state between pieces.
 * The families, as their models publish them:
 *   gpt-2       's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *   llama-bpe   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 *   qwen2       the same with \p{N}
 *   qwen35      as qwen2, with [\p{L}\p{M}]+ for \p{L}+ and [^\s\p{L}\p{M}\p{N}]+ for [^\s\p{L}\p{N}]+
 *   smollm, starcoder, refact, command-r   each \p{N} alone, then gpt-2 */
#include "text/pretokenize.h"

#include "base/size.h"
#include "text/unicode.h"

static const struct pre_rules rules[] = {
    {.names = "gpt-2,gpt2,mpt,olmo,jais,phi-2,roberta-bpe,gpt3-finnish", .digit_prefix = true},
    {.names = "llama3,llama-v3,llama-bpe,falcon3,dbrx,smaug-bpe,pixtral",
     .fold_contractions = true,
     .any_prefix = true,
     .max_digits = 3,
     .punct_newlines = true,
     .newline_runs = true},
    {.names = "qwen2,deepseek-r1-qwen,stablelm2,hunyuan",
     .fold_contractions = true,
     .any_prefix = true,
     .max_digits = 1,
     .punct_newlines = true,
     .newline_runs = true},
    {.names = "qwen35",
     .fold_contractions = true,
     .any_prefix = true,
     .max_digits = 1,
     .punct_newlines = true,
     .newline_runs = true,
     .marks = true},
    {.names = "smollm,starcoder,refact,command-r,codeshell,exaone,minerva-7b",
     .digit_prefix = true,
     .split_digits_first = true},
};

static bool in_list(const char *names, struct str name)
{
    struct str rest = str_of(names), one;
    while (rest.p && str_cut(&rest, ',', &one))
        if (str_eq(one, name))
            return true;
    return false;
}

const struct pre_rules *pre_rules_find(struct str name)
{
    for (size_t i = 0; i < COUNT_OF(rules); i++)
        if (in_list(rules[i].names, name))
            return &rules[i];
    return NULL;
}

const char *pre_rules_known(void)
{
    return "gpt-2, mpt, olmo, jais, phi-2, roberta-bpe, llama-bpe (llama3), falcon3, dbrx, smaug-bpe, pixtral, qwen2, "
           "deepseek-r1-qwen, "
           "stablelm2, hunyuan, qwen35, smollm, starcoder, refact, command-r, codeshell, exaone, minerva-7b";
}

/* ---- characters ---- */

struct at {
    int32_t cp;
    unsigned cls;
    size_t len; /* 0 at the end */
};

static struct at look(struct str t, size_t i)
{
    struct at a = {0};
    if (i < t.n) {
        a.len = unicode_next(t.p + i, t.n - i, &a.cp);
        a.cls = unicode_class(a.cp);
    }
    return a;
}

static bool is_letter(struct at a)
{
    return a.cls & UNICODE_LETTER;
}
static bool is_letter_or_mark(struct at a)
{
    return a.cls & (UNICODE_LETTER | UNICODE_MARK);
}
static bool is_number(struct at a)
{
    return a.cls & UNICODE_NUMBER;
}
static bool is_space(struct at a)
{
    return a.cls & UNICODE_SPACE;
}
static bool is_newline(struct at a)
{
    return a.len && (a.cp == '\r' || a.cp == '\n');
}
static bool is_other(struct at a)
{
    return a.len && !(a.cls & (UNICODE_LETTER | UNICODE_NUMBER | UNICODE_SPACE));
}

static bool is_other_unmarked(struct at a)
{
    return is_other(a) && !(a.cls & UNICODE_MARK);
}

static size_t run(struct str t, size_t i, bool (*is)(struct at a), unsigned most)
{
    struct at a;
    for (unsigned n = 0; (!most || n < most) && (a = look(t, i)).len && is(a); n++)
        i += a.len;
    return i;
}

/* ---- alternatives, in the order of the expression; each returns the end of its match or 0 ---- */

static size_t contraction(const struct pre_rules *r, struct str t)
{
    static const char *const tails[] = {"re", "ve", "ll", "s", "t", "m", "d"};
    if (t.n < 2 || t.p[0] != '\'')
        return 0;
    for (size_t i = 0; i < COUNT_OF(tails); i++) {
        struct str tail = str_of(tails[i]), have = {t.p + 1, MIN_OF(t.n - 1, tail.n)};
        if (r->fold_contractions ? str_ieq(have, tail) : str_eq(have, tail))
            return 1 + tail.n;
    }
    /* (?i:'s) also folds the long s, U+017F */
    if (r->fold_contractions && t.n >= 3 && t.p[1] == '\xc5' && t.p[2] == '\xbf')
        return 3;
    return 0;
}

static size_t letters(const struct pre_rules *r, struct str t)
{
    struct at first = look(t, 0);
    bool (*is)(struct at a) = r->marks ? is_letter_or_mark : is_letter;
    if (is(first))
        return run(t, first.len, is, 0);
    bool prefix = r->any_prefix ? !is_number(first) && !is_newline(first) : first.cp == ' ';
    return prefix && is(look(t, first.len)) ? run(t, first.len, is, 0) : 0;
}

static size_t digits(const struct pre_rules *r, struct str t)
{
    struct at first = look(t, 0);
    size_t start = r->digit_prefix && first.cp == ' ' ? 1 : 0;
    return is_number(look(t, start)) ? run(t, start, is_number, r->max_digits) : 0;
}

static size_t others(const struct pre_rules *r, struct str t)
{
    size_t start = t.p[0] == ' ' ? 1 : 0;
    bool (*is)(struct at a) = r->marks ? is_other_unmarked : is_other;
    if (!is(look(t, start)))
        return 0;
    size_t end = run(t, start, is, 0);
    return r->punct_newlines ? run(t, end, is_newline, 0) : end;
}

static size_t blanks(const struct pre_rules *r, struct str t)
{
    size_t end = run(t, 0, is_space, 0), last_newline = 0, last = 0;
    for (size_t i = 0; i < end;) {
        struct at a = look(t, i);
        last = i;
        i += a.len;
        if (is_newline(a))
            last_newline = i;
    }
    if (!end)
        return 0;
    if (r->newline_runs && last_newline)
        return last_newline;
    /* \s+(?!\S): leave the last blank to the word behind */
    return end < t.n && last > 0 ? last : end;
}

static size_t piece(const struct pre_rules *r, struct str t)
{
    size_t end = contraction(r, t);
    if (!end)
        end = letters(r, t);
    if (!end)
        end = digits(r, t);
    if (!end)
        end = others(r, t);
    if (!end)
        end = blanks(r, t);
    return end ? end : look(t, 0).len;
}

size_t pretokenize_next(const struct pre_rules *r, struct str text)
{
    if (!r->split_digits_first)
        return piece(r, text);
    struct at first = look(text, 0);
    if (is_number(first))
        return first.len;
    size_t end = first.len; /* the stretch up to the next digit is a text of its own */
    for (struct at a; (a = look(text, end)).len && !is_number(a);)
        end += a.len;
    return piece(r, (struct str){text.p, end});
}
