/* hf_normalizer.c: the "normalizer" of a tokenizer.json as a list of steps (text/normal.h), and its Metaspace.
 *
 * What SentencePiece's BPE does by itself (a space in front, U+2581 for spaces) is a flag there and no step. A normaliser that is not
 * known is refused by name: text that is cut after another one gives other tokens. */
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "engine/llm/file/hf_priv.h"
#include "text/normal.h"

#define SPACE_MARK "\xe2\x96\x81"
#define STEPS_MAX  32

struct steps {
    struct model_desc *d;
    struct normal_step *v; /* [STEPS_MAX] */
    struct error *err;
};

static int nomem(struct error *err)
{
    return error_set(err, STATUS_NOMEM, "out of memory while reading tokenizer.json");
}

static int bad(struct error *err, const char *what)
{
    return error_set(err, STATUS_INVALID, "tokenizer.json: %s", what);
}

static int add(struct steps *s, enum normal_kind kind, struct str a, struct str b)
{
    struct tokenizer_spec *t = &s->d->tokenizer;
    if (t->n_normal == STEPS_MAX)
        return bad(s->err, "the normaliser has more than 32 steps");
    struct normal_step *step = &s->v[t->n_normal];
    *step = (struct normal_step){.kind = kind, .a = a, .b = b, .left = true, .right = true};
    step->a.p = arena_strdup(&s->d->arena, a);
    step->b.p = arena_strdup(&s->d->arena, b);
    if (!step->a.p || !step->b.p)
        return nomem(s->err);
    t->n_normal++;
    return 0;
}

static int add_plain(struct steps *s, enum normal_kind kind)
{
    return add(s, kind, (struct str){0}, (struct str){0});
}

static const char b64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int read_charsmap(struct steps *s, struct str text)
{
    char *out = arena_alloc(&s->d->arena, text.n / 4 * 3 + 3);
    size_t n = 0;
    uint32_t acc = 0;
    if (!out)
        return nomem(s->err);
    while (text.n && text.p[text.n - 1] == '=')
        text.n--;
    for (size_t i = 0; i < text.n; i++) {
        const char *at = text.p[i] ? strchr(b64, text.p[i]) : NULL;
        if (!at)
            return bad(s->err, "precompiled_charsmap is not base64");
        acc = acc << 6 | (uint32_t)(at - b64);
        if (i % 4)
            out[n++] = (char)(acc >> (6 - 2 * (i % 4)) & 0xff);
    }
    return n ? add(s, NORMAL_CHARSMAP, (struct str){out, n}, (struct str){0}) : 0;
}

/* A flag of BertNormalizer that is on unless it says false. */
static bool on(yyjson_val *obj, const char *key)
{
    return !yyjson_is_false(yyjson_obj_get(obj, key));
}

static int read_bert(struct steps *s, yyjson_val *obj)
{
    yyjson_val *strip = yyjson_obj_get(obj, "strip_accents");
    bool lower = on(obj, "lowercase"), accents = strip && !yyjson_is_null(strip) ? yyjson_is_true(strip) : lower;
    int rc = on(obj, "clean_text") ? add_plain(s, NORMAL_BERT_CLEAN) : 0;
    if (rc == 0 && on(obj, "handle_chinese_chars"))
        rc = add_plain(s, NORMAL_BERT_CJK);
    if (rc == 0 && accents)
        rc = add_plain(s, NORMAL_NFD);
    if (rc == 0 && accents)
        rc = add_plain(s, NORMAL_STRIP_ACCENTS);
    return rc == 0 && lower ? add_plain(s, NORMAL_LOWERCASE) : rc;
}

static int read_replace(struct steps *s, yyjson_val *obj)
{
    yyjson_val *pattern = yyjson_obj_get(obj, "pattern");
    struct str from = json_str(yyjson_obj_get(pattern, "String")), regex = json_str(yyjson_obj_get(pattern, "Regex"));
    struct str content = json_str(yyjson_obj_get(obj, "content"));
    if (s->d->tokenizer.model == TOKENIZER_SPM && str_eqz(from, " ") && str_eqz(content, SPACE_MARK))
        return 0;
    if (from.n)
        return add(s, NORMAL_REPLACE, from, content);
    if (str_eqz(regex, " {2,}"))
        return add(s, NORMAL_REPLACE_RUNS, (struct str){0}, content);
    return error_set(s->err, STATUS_UNIMPLEMENTED,
                     "tokenizer.json: a normaliser replaces the pattern \"%.*s\", which is not a known one", STR_ARG(regex));
}

static int read_strip(struct steps *s, yyjson_val *obj)
{
    int rc = add_plain(s, NORMAL_STRIP);
    if (rc == 0) {
        s->v[s->d->tokenizer.n_normal - 1].left = on(obj, "strip_left");
        s->v[s->d->tokenizer.n_normal - 1].right = on(obj, "strip_right");
    }
    return rc;
}

static int read_prepend(struct steps *s, struct str text)
{
    struct tokenizer_spec *t = &s->d->tokenizer;
    if (t->model == TOKENIZER_SPM && str_eqz(text, SPACE_MARK))
        return t->add_space_prefix = true, 0;
    return add(s, NORMAL_PREPEND, text, (struct str){0});
}

static int read_step(struct steps *s, yyjson_val *obj, struct str type)
{
    static const struct {
        const char *type;
        enum normal_kind kind;
    } plain[] = {{"NFC", NORMAL_NFC},
                 {"NFD", NORMAL_NFD},
                 {"NFKC", NORMAL_NFKC},
                 {"NFKD", NORMAL_NFKD},
                 {"Nmt", NORMAL_NMT},
                 {"Lowercase", NORMAL_LOWERCASE},
                 {"StripAccents", NORMAL_STRIP_ACCENTS}};
    for (size_t i = 0; i < COUNT_OF(plain); i++)
        if (str_eqz(type, plain[i].type))
            return add_plain(s, plain[i].kind);
    if (str_eqz(type, "BertNormalizer"))
        return read_bert(s, obj);
    if (str_eqz(type, "Replace"))
        return read_replace(s, obj);
    if (str_eqz(type, "Precompiled"))
        return read_charsmap(s, json_str(yyjson_obj_get(obj, "precompiled_charsmap")));
    if (str_eqz(type, "Prepend"))
        return read_prepend(s, json_str(yyjson_obj_get(obj, "prepend")));
    if (str_eqz(type, "Strip"))
        return read_strip(s, obj);
    return error_set(s->err, STATUS_UNIMPLEMENTED, "tokenizer.json: the normaliser \"%.*s\" is not supported", STR_ARG(type));
}

static int read_any(struct steps *s, yyjson_val *obj, uint32_t depth)
{
    struct str type = json_str(yyjson_obj_get(obj, "type"));
    size_t i, n;
    yyjson_val *part;
    int rc = 0;
    if (!obj || yyjson_is_null(obj))
        return 0;
    if (!str_eqz(type, "Sequence") || depth >= 4)
        return read_step(s, obj, type);
    yyjson_arr_foreach(yyjson_obj_get(obj, "normalizers"), i, n, part) if (rc == 0) rc = read_any(s, part, depth + 1);
    return rc;
}

int hf__read_normalizer(yyjson_val *obj, struct model_desc *d, struct error *err)
{
    struct steps s = {.d = d, .v = arena_array(&d->arena, STEPS_MAX, sizeof *s.v), .err = err};
    if (!s.v)
        return nomem(err);
    d->tokenizer.normal = s.v;
    return read_any(&s, obj, 0);
}

/* ---- pre-tokenisers of SentencePiece and WordPiece ---- */

/* Metaspace: a space in front of the first word unless told otherwise; two spellings. */
static int read_metaspace(yyjson_val *pre, struct tokenizer_spec *s, struct error *err)
{
    yyjson_val *scheme = yyjson_obj_get(pre, "prepend_scheme"), *mark = yyjson_obj_get(pre, "replacement");
    if (mark && !yyjson_equals_str(mark, SPACE_MARK))
        return error_set(err, STATUS_UNIMPLEMENTED, "tokenizer.json: Metaspace's replacement must be U+2581");
    s->add_space_prefix =
        scheme ? !yyjson_equals_str(scheme, "never") : !yyjson_is_false(yyjson_obj_get(pre, "add_prefix_space"));
    s->prefix_first_only = yyjson_equals_str(scheme, "first");
    s->split_marks = on(pre, "split");
    return 0;
}

static int read_pre(yyjson_val *pre, struct tokenizer_spec *s, struct error *err)
{
    struct str type = json_str(yyjson_obj_get(pre, "type"));
    bool spm = s->model == TOKENIZER_SPM || s->model == TOKENIZER_UNIGRAM;
    if (spm && str_eqz(type, "Metaspace"))
        return read_metaspace(pre, s, err);
    if (s->model == TOKENIZER_UNIGRAM && str_eqz(type, "WhitespaceSplit"))
        return s->split_words = true, 0;
    if (s->model == TOKENIZER_WORDPIECE && str_eqz(type, "BertPreTokenizer"))
        return 0;
    return error_set(err, STATUS_UNIMPLEMENTED, "tokenizer.json: the pre-tokeniser \"%.*s\" is not supported for this model",
                     STR_ARG(type));
}

int hf__read_pre_words(yyjson_val *pre, struct tokenizer_spec *s, struct error *err)
{
    size_t i, n;
    yyjson_val *part;
    int rc = 0;
    if (!pre || yyjson_is_null(pre))
        return s->model == TOKENIZER_WORDPIECE ? bad(err, "a WordPiece model needs the pre-tokeniser BertPreTokenizer") : 0;
    if (!yyjson_equals_str(yyjson_obj_get(pre, "type"), "Sequence"))
        return read_pre(pre, s, err);
    yyjson_arr_foreach(yyjson_obj_get(pre, "pretokenizers"), i, n, part) if (rc == 0) rc = read_pre(part, s, err);
    return rc;
}
