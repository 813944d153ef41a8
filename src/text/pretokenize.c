/* pretokenize.c: which stages a pre-tokeniser has, by the names that GGUF files use, and the cut through them.
 * The families, as their models publish them:
 *   gpt-2       's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *   llama-bpe   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 *   qwen2       the same with \p{N}
 *   qwen35      as qwen2, with [\p{L}\p{M}]+ for \p{L}+ and [^\s\p{L}\p{M}\p{N}]+ for [^\s\p{L}\p{N}]+
 *   seed-coder  as qwen2, without the [\r\n]* behind other characters
 *   smollm, starcoder, refact, command-r   each \p{N} alone, then gpt-2
 *   minicpm5    \p{N}{1,3}, then llama-bpe with \p{N}+
 *   falcon      [\p{P}$+<=>^~|`]+, then gpt-2, then [0-9]{3}
 *   bloom       ` ?[^(\s|.,!?…。，、।۔،)]+`; viking: then \p{N}
 *   tekken, gpt-4o, deepseek-*   at their matchers in pretokenize_match.c
 * Several of llama.cpp's names mean a family whose expression is written in another way and gives the same pieces; they stand with it here. */
#include "base/size.h"
#include "text/pretokenize_priv.h"

static const struct pre_words gpt2 = {.digit_prefix = true};
static const struct pre_words llama3 = {
    .fold_contractions = true, .any_prefix = true, .max_digits = 3, .punct_newlines = true, .newline_runs = true};
static const struct pre_words qwen2 = {
    .fold_contractions = true, .any_prefix = true, .max_digits = 1, .punct_newlines = true, .newline_runs = true};
static const struct pre_words qwen35 = {.fold_contractions = true,
                                        .any_prefix = true,
                                        .max_digits = 1,
                                        .punct_newlines = true,
                                        .newline_runs = true,
                                        .marks = true};
static const struct pre_words seed_coder = {
    .fold_contractions = true, .any_prefix = true, .max_digits = 1, .newline_runs = true};

#define WORDS(w)                                                                                                               \
    {                                                                                                                          \
        .match = pre_match_words, .words = &(w)                                                                                \
    }
#define RUN(class, first, last)                                                                                                \
    {                                                                                                                          \
        .match = pre_match_run, .is = (class), .least = (first), .most = (last)                                                \
    }
#define RUN_BEHIND(pre, class)                                                                                                 \
    {                                                                                                                          \
        .match = pre_match_run, .is = (class), .prefix = (pre), .least = 1                                                     \
    }

struct pre_rules {
    const char *names;                       /* comma-separated values of tokenizer.ggml.pre; the first is the family's */
    struct pre_stage stages[PRE_STAGES_MAX]; /* until one without a matcher */
};

static const struct pre_rules rules[] = {
    {"gpt-2,gpt2,mpt,olmo,jais,phi-2,roberta-bpe,gigachat,a.x-4.0,mellum,exaone4,trillion,granite-docling", {WORDS(gpt2)}},
    {"llama-bpe,llama3,llama-v3,falcon3,falcon-h1,dbrx,smaug-bpe,pixtral,midm-2.0,lfm2,glm4,chatglm-bpe", {WORDS(llama3)}},
    {"qwen2,deepseek-r1-qwen,stablelm2,hunyuan,kormo,f2llmv2,megrez,solar-open,grok-2,bailingmoe,bailingmoe2,llada-moe",
     {WORDS(qwen2)}},
    {"qwen35", {WORDS(qwen35)}},
    {"seed-coder", {WORDS(seed_coder)}},
    {"smollm,starcoder,refact,command-r,codeshell,exaone,minerva-7b,mellum2", {RUN(pre_is_number, 1, 1), WORDS(gpt2)}},
    {"minicpm5", {RUN(pre_is_number, 1, 3), WORDS(llama3)}},
    {"falcon", {RUN(pre_is_falcon_punct, 1, 0), WORDS(gpt2), RUN(pre_is_ascii_digit, 3, 3)}},
    {"bloom,poro-chat,gpt3-finnish", {RUN_BEHIND(PREFIX_SPACE, pre_is_bloom_word)}},
    {"viking", {RUN_BEHIND(PREFIX_SPACE, pre_is_bloom_word), RUN(pre_is_number, 1, 1)}},
    {"tekken", {{.match = pre_match_cased, .max_digits = 1}}},
    {"gpt-4o,llama4,kanana2,talkie,minimax-m2", {{.match = pre_match_cased, .max_digits = 3, .contractions = true}}},
    {"deepseek-llm",
     {RUN(pre_is_newline, 1, 1),
      RUN_BEHIND(PREFIX_BLANK, pre_is_cased_letter),
      RUN_BEHIND(PREFIX_BLANK, pre_is_wide_punct),
      {.match = pre_match_trailing_blanks},
      RUN(pre_is_cjk, 1, 0),
      RUN(pre_is_number, 1, 0)}},
    {"deepseek-coder",
     {RUN(pre_is_newline, 1, 1), RUN_BEHIND(PREFIX_BLANK, pre_is_letter), RUN_BEHIND(PREFIX_BLANK, pre_is_punct),
      RUN(pre_is_cjk, 1, 0), RUN(pre_is_number, 1, 1)}},
    {"deepseek-v3,hunyuan-dense,joyai-llm",
     {RUN(pre_is_number, 1, 3), RUN(pre_is_han_kana, 1, 0), {.match = pre_match_deepseek3}}},
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
    return "gpt-2, llama-bpe (llama3), qwen2, qwen35, seed-coder, smollm, starcoder, refact, command-r, minicpm5, falcon, "
           "falcon3, bloom, "
           "viking, tekken, gpt-4o, deepseek-llm, deepseek-coder, deepseek-v3, and those that cut like them";
}

/* ---- the cut ---- */

void pre_cut_init(struct pre_cut *c, const struct pre_rules *r, struct str text)
{
    *c = (struct pre_cut){.rules = r, .text = text};
}

/* The length of the first segment of t that stage s gives: a match, or what is before the next one. */
static size_t segment(const struct pre_stage *s, struct str t)
{
    size_t skip = 0, n = s->match(s, t, &skip);
    for (size_t i = n; !n;) {
        i += skip ? skip : pre_look(t, i).len;
        skip = 0;
        if (i >= t.n || s->match(s, (struct str){t.p + i, t.n - i}, &skip))
            return MIN_OF(i, t.n);
    }
    return n;
}

bool pre_cut_next(struct pre_cut *c, struct str *piece)
{
    size_t end = c->text.n, begin = c->at;
    if (begin == end)
        return false;
    const struct pre_stage *s = c->rules->stages;
    for (size_t k = 0; k < PRE_STAGES_MAX && s[k].match; k++) {
        if (c->ends[k] == begin) /* its segment is used up; else the piece lies in it */
            c->ends[k] += segment(&s[k], (struct str){c->text.p + begin, end - begin});
        end = c->ends[k];
    }
    *piece = (struct str){c->text.p + begin, end - begin};
    c->at = end;
    return true;
}
