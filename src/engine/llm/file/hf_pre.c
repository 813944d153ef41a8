/* hf_pre.c: which pre-tokeniser a tokenizer.json declares, by the name that GGUF files use for the same one.
 *
 * A tokenizer.json spells its pre-tokeniser out as a list of parts, most of them regular expressions. We do not run them: the ones in use are few,
 * text/ has a hand-written scanner for each, and this table recognises them literally. One that is not in the table is refused with its
 * expression, since tokens cut in another place are wrong answers. */
#include "base/size.h"
#include "base/status.h"
#include "engine/llm/file/hf_priv.h"

#define CONTRACTIONS  "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define PREFIXED      "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define BLANKS        "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define TAIL          "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" BLANKS
#define UPPER         "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER         "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED         "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+"
#define CASED2        "[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*"
#define CASED_TAIL    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" BLANKS
#define CODER_CJK     "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
#define DEEPSEEK3_CJK "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
#define DEEPSEEK3                                                                                                              \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "                      \
    "?[\\p{P}\\p{S}]+[\\r\\n]*" BLANKS

#define PARTS_MAX 6

/* Parts that are no expression of a Split; known by their addresses. A ByteLevel without its own expression does not cut and is no part. */
static const char words[] = "ByteLevel", each_digit[] = "Digits";

static const struct {
    const char *name, *parts[PARTS_MAX]; /* until NULL */
} known[] = {
    {"gpt-2", {words}},
    {"gpt-2", {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"}},
    {"smollm", {each_digit, words}},
    {"llama-bpe", {CONTRACTIONS PREFIXED "\\p{N}{1,3}" TAIL}},
    {"qwen2", {CONTRACTIONS PREFIXED "\\p{N}" TAIL}},
    {"qwen35", {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" BLANKS}},
    {"seed-coder", {CONTRACTIONS PREFIXED "\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" BLANKS}},
    {"bailingmoe",
     {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| "
      "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"minicpm5", {"\\p{N}{1,3}", CONTRACTIONS PREFIXED "\\p{N}+" TAIL}},
    {"tekken", {CASED "|" CASED2 "|\\p{N}|" CASED_TAIL}},
    {"gpt-4o", {CASED CONTRACTIONS "?|" CASED2 CONTRACTIONS "?|\\p{N}{1,3}|" CASED_TAIL}},
    {"deepseek-coder", {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CODER_CJK, each_digit}},
    {"deepseek-v3", {"\\p{N}{1,3}", DEEPSEEK3_CJK, DEEPSEEK3}},
};

static struct str type_of(yyjson_val *obj)
{
    return json_str(yyjson_obj_get(obj, "type"));
}

/* One element of an expression: a line break as a character and as an escape are the same; other escapes are two characters. */
static int element(struct str *s)
{
    int c = (unsigned char)s->p[0];
    size_t n = c == '\\' && s->n > 1 ? 2 : 1;
    if (n == 2)
        c = s->p[1] == 'n' ? '\n' : s->p[1] == 'r' ? '\r' : 256 + (unsigned char)s->p[1];
    *s = (struct str){s->p + n, s->n - n};
    return c;
}

static bool is_regex(const char *part)
{
    return part != words && part != each_digit;
}

static bool same(struct str a, const char *part)
{
    struct str b = str_of(part);
    if (!is_regex(a.p) || !is_regex(part))
        return a.p == part;
    while (a.n && b.n)
        if (element(&a) != element(&b))
            return false;
    return a.n == b.n;
}

/* What a file declares, part by part. */
struct found {
    struct str parts[PARTS_MAX];
    size_t n;
    bool byte_level;
};

static int add(struct found *f, struct str part, struct error *err)
{
    if (f->n == PARTS_MAX)
        return error_set(err, STATUS_UNIMPLEMENTED, "tokenizer.json: more than %d pre-tokenisers in a row are not supported",
                         PARTS_MAX);
    f->parts[f->n++] = part;
    return 0;
}

/* Every match a piece, and what is between them. Where an expression matches everything, as all do that are used so, dropping what is between
 * the matches (OpenAI's way of writing it) is the same. */
static int add_split(struct found *f, yyjson_val *split, struct error *err)
{
    struct str regex = json_str(yyjson_obj_get(yyjson_obj_get(split, "pattern"), "Regex"));
    struct str behavior = json_str(yyjson_obj_get(split, "behavior"));
    bool invert = yyjson_is_true(yyjson_obj_get(split, "invert"));
    if (!regex.p)
        return error_set(err, STATUS_UNIMPLEMENTED, "tokenizer.json: a Split without a regular expression is not supported");
    if (!(str_eqz(behavior, "Isolated") && !invert) && !(str_eqz(behavior, "Removed") && invert))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "tokenizer.json: a Split's behavior \"%.*s\"%s is not supported; supported: Isolated",
                         STR_ARG(behavior), invert ? " with invert" : "");
    return add(f, regex, err);
}

static int look_at(yyjson_val *part, struct found *f, struct error *err)
{
    struct str type = type_of(part);
    if (str_eqz(type, "Split"))
        return add_split(f, part, err);
    if (str_eqz(type, "Digits") && yyjson_is_true(yyjson_obj_get(part, "individual_digits")))
        return add(f, str_of(each_digit), err);
    if (!str_eqz(type, "ByteLevel"))
        return error_set(err, STATUS_UNIMPLEMENTED, "tokenizer.json: the pre-tokeniser \"%.*s\" is not supported here",
                         STR_ARG(type));
    if (yyjson_is_true(yyjson_obj_get(part, "add_prefix_space")))
        return error_set(err, STATUS_UNIMPLEMENTED, "tokenizer.json: ByteLevel's add_prefix_space is not supported");
    yyjson_val *use = yyjson_obj_get(part, "use_regex");
    f->byte_level = true;
    return !use || yyjson_is_true(use) ? add(f, str_of(words), err) : 0;
}

/* How many parts of known[i] the file begins with; all of them when it is that one. */
static size_t agreeing(const struct found *f, size_t i)
{
    size_t n = 0;
    while (n < f->n && known[i].parts[n] && same(f->parts[n], known[i].parts[n]))
        n++;
    return n;
}

static int recognise(const struct found *f, struct str *out, struct error *err)
{
    size_t best = 0;
    for (size_t i = 0; i < COUNT_OF(known); i++) {
        size_t n = agreeing(f, i);
        if (n == f->n && (n == PARTS_MAX || !known[i].parts[n]))
            return *out = str_of(known[i].name), 0;
        best = MAX_OF(best, n);
    }
    if (best == f->n || !is_regex(f->parts[best].p))
        return error_set(err, STATUS_UNIMPLEMENTED, "tokenizer.json: this combination of pre-tokenisers is not a known one");
    return error_set(err, STATUS_UNIMPLEMENTED, "tokenizer.json: the pre-tokeniser's pattern \"%.*s\" is not a known one",
                     STR_ARG(f->parts[best]));
}

int hf__pre_name(yyjson_val *pre_tokenizer, struct str *out, struct error *err)
{
    struct found f = {0};
    yyjson_val *list = yyjson_obj_get(pre_tokenizer, "pretokenizers"), *part;
    size_t i, n;
    int rc = 0;
    if (str_eqz(type_of(pre_tokenizer), "Sequence")) {
        yyjson_arr_foreach(list, i, n, part) if (rc == 0) rc = look_at(part, &f, err);
    } else {
        rc = look_at(pre_tokenizer, &f, err);
    }
    if (rc < 0)
        return rc;
    if (!f.byte_level || !f.n)
        return error_set(err, STATUS_UNIMPLEMENTED, "tokenizer.json: this combination of pre-tokenisers is not a known one");
    return recognise(&f, out, err);
}
