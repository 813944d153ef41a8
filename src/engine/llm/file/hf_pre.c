/* hf_pre.c: which pre-tokeniser a tokenizer.json declares, by the name that GGUF files use for the same one.
 *
 * A tokenizer.json spells its pre-tokeniser out as regular expressions. We do not run them: the ones in use are few, text/ has a
 * hand-written scanner for each, and this table recognises them literally. One that is not in the table is refused with its
 * expression, since tokens cut in another place are wrong answers. */
#include "base/size.h"
#include "base/status.h"
#include "engine/llm/file/hf_priv.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER        "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED        "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+"
#define CASED2       "[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*"
#define CASED_TAIL   " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct {
    const char *regex, *name;
} splits[] = {
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" TAIL, "llama-bpe"},
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" TAIL, "qwen2"},
    {CONTRACTIONS
     "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "qwen35"},
    {CASED "|" CASED2 "|\\p{N}|" CASED_TAIL, "tekken"},
    {CASED CONTRACTIONS "?|" CASED2 CONTRACTIONS "?|\\p{N}{1,3}|" CASED_TAIL, "gpt-4o"},
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", "gpt-2"},
};

static struct str type_of(yyjson_val *obj)
{
    return json_str(yyjson_obj_get(obj, "type"));
}

static int split_name(yyjson_val *split, struct str *out, struct error *err)
{
    struct str regex = json_str(yyjson_obj_get(yyjson_obj_get(split, "pattern"), "Regex"));
    for (size_t i = 0; regex.p && i < COUNT_OF(splits); i++)
        if (str_eqz(regex, splits[i].regex))
            return *out = str_of(splits[i].name), 0;
    return error_set(err, STATUS_UNIMPLEMENTED, "tokenizer.json: the pre-tokeniser's pattern \"%.*s\" is not a known one",
                     STR_ARG(regex));
}

/* The parts of a sequence: a Split gives the name; Digits before a ByteLevel with its own expression is StarCoder's and SmolLM's. */
struct found {
    struct str split;
    bool digits, byte_level, own_regex;
};

static int look_at(yyjson_val *part, struct found *f, struct error *err)
{
    struct str type = type_of(part);
    if (str_eqz(type, "Split") && !f->split.p)
        return split_name(part, &f->split, err);
    if (str_eqz(type, "Digits") && yyjson_is_true(yyjson_obj_get(part, "individual_digits"))) {
        f->digits = true;
    } else if (str_eqz(type, "ByteLevel")) {
        yyjson_val *use = yyjson_obj_get(part, "use_regex");
        if (yyjson_is_true(yyjson_obj_get(part, "add_prefix_space")))
            return error_set(err, STATUS_UNIMPLEMENTED, "tokenizer.json: ByteLevel's add_prefix_space is not supported");
        f->byte_level = true;
        f->own_regex = !use || yyjson_is_true(use);
    } else {
        return error_set(err, STATUS_UNIMPLEMENTED, "tokenizer.json: the pre-tokeniser \"%.*s\" is not supported here",
                         STR_ARG(type));
    }
    return 0;
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
    if (!f.byte_level || (f.split.p && (f.digits || f.own_regex)) || (!f.split.p && !f.own_regex))
        return error_set(err, STATUS_UNIMPLEMENTED, "tokenizer.json: this combination of pre-tokenisers is not a known one");
    *out = f.split.p ? f.split : f.digits ? STR("smollm") : STR("gpt-2");
    return 0;
}
