/* hf_tokenizer.c: tokenizer.json and tokenizer_config.json as a tokenizer_spec, with token texts spelled as GGUF spells them.
 *
 * Byte-level BPE keeps its alphabet. BPE with byte fallback is SentencePiece's: its merges become scores (minus the rank), so that
 * the pair with the lowest rank is the one with the best score. Unigram comes with scores. WordPiece's "##ing" becomes "ing" and a
 * word's start gets U+2581 in front. Added tokens are control (special) or user-defined tokens. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "engine/llm/file/hf_priv.h"

#define SPACE_MARK "\xe2\x96\x81"
#define TOKENS_MAX (1u << 24)
#define NO_MERGE   -1e9f /* a piece that no merge makes */

struct vocab {
    struct model_desc *d;
    struct str *tokens; /* as the file spells them, until spell() */
    float *scores;
    int32_t *types;
    uint8_t *flags;
    size_t n;
    struct map by_text;
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

static int copy_str(struct vocab *v, struct str s, struct str *out)
{
    char *p = arena_strdup(&v->d->arena, s);
    if (!p)
        return nomem(v->err);
    *out = (struct str){p, s.n};
    return 0;
}

static int allocate(struct vocab *v, uint64_t n)
{
    if (n == 0 || n > TOKENS_MAX)
        return bad(v->err, "the vocabulary must have 1 to 16777216 tokens");
    v->n = (size_t)n;
    v->tokens = arena_array(&v->d->arena, v->n, sizeof *v->tokens);
    v->scores = arena_array(&v->d->arena, v->n, sizeof *v->scores);
    v->types = arena_array(&v->d->arena, v->n, sizeof *v->types);
    v->flags = arena_array(&v->d->arena, v->n, sizeof *v->flags);
    return v->tokens && v->scores && v->types && v->flags ? 0 : nomem(v->err);
}

static int set_token(struct vocab *v, uint64_t id, struct str text, int32_t type)
{
    if (id >= v->n)
        return bad(v->err, "a token's id is far beyond the number of tokens");
    if (v->tokens[id].p) {
        if (!str_eq(v->tokens[id], text))
            return error_set(v->err, STATUS_INVALID, "tokenizer.json: the id %llu is given to two tokens",
                             (unsigned long long)id);
        v->types[id] = type; /* an added token that is in the vocabulary too */
        return 0;
    }
    int rc = copy_str(v, text, &v->tokens[id]);
    v->types[id] = type;
    return rc;
}

/* The largest id + 1 over both lists; ids that are far apart would make us allocate what the file doesn't hold. */
static int count_tokens(struct vocab *v, yyjson_val *vocab, yyjson_val *added, uint64_t *out)
{
    uint64_t n = yyjson_is_arr(vocab) ? yyjson_arr_size(vocab) : 0,
             entries = n + yyjson_obj_size(vocab) + yyjson_arr_size(added);
    size_t i, m;
    yyjson_val *key, *val;
    if (yyjson_is_obj(vocab)) {
        yyjson_obj_foreach(vocab, i, m, key, val)
        {
            if (!yyjson_is_uint(val))
                return bad(v->err, "model.vocab must give whole numbers");
            n = MAX_OF(n, yyjson_get_uint(val) + 1);
        }
    }
    yyjson_arr_foreach(added, i, m, val)
    {
        yyjson_val *id = yyjson_obj_get(val, "id");
        if (!yyjson_is_uint(id) || !yyjson_is_str(yyjson_obj_get(val, "content")))
            return bad(v->err, "added_tokens must be objects with \"id\" and \"content\"");
        n = MAX_OF(n, yyjson_get_uint(id) + 1);
    }
    if (n > 2 * entries + 4096)
        return bad(v->err, "a token's id is far beyond the number of tokens");
    *out = n;
    return 0;
}

/* Ids that nobody has: GGUF's writers name them so. */
static int fill_holes(struct vocab *v)
{
    char name[32];
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < v->n; i++) {
        if (v->tokens[i].p)
            continue;
        int n = snprintf(name, sizeof name, "[PAD%zu]", i);
        v->types[i] = TOKEN_UNUSED;
        rc = copy_str(v, (struct str){name, (size_t)n}, &v->tokens[i]);
    }
    return rc;
}

static int index_tokens(struct vocab *v)
{
    for (size_t i = 0; i < v->n; i++)
        if (!map_get(&v->by_text, v->tokens[i]) && map_put(&v->by_text, v->tokens[i], &v->tokens[i]) < 0)
            return nomem(v->err);
    return 0;
}

static int32_t id_of(const struct vocab *v, struct str text)
{
    const struct str *t = text.p ? map_get(&v->by_text, text) : NULL;
    return t ? (int32_t)(t - v->tokens) : TOKEN_NONE;
}

/* "normalized" left out means: unless it is special. */
static uint8_t flags_of(yyjson_val *t, bool special)
{
    static const struct {
        const char *key;
        uint8_t flag;
    } rows[] = {{"lstrip", TOKEN_FLAG_LSTRIP},
                {"rstrip", TOKEN_FLAG_RSTRIP},
                {"single_word", TOKEN_FLAG_SINGLE_WORD},
                {"normalized", TOKEN_FLAG_NORMALIZED}};
    uint8_t flags = !special && !yyjson_obj_get(t, "normalized") ? TOKEN_FLAG_NORMALIZED : 0;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (yyjson_is_true(yyjson_obj_get(t, rows[i].key)))
            flags |= rows[i].flag;
    return flags;
}

static int read_added(struct vocab *v, yyjson_val *added)
{
    size_t i, n;
    yyjson_val *t;
    int rc = 0;
    yyjson_arr_foreach(added, i, n, t)
    {
        bool special = yyjson_is_true(yyjson_obj_get(t, "special"));
        uint64_t id = yyjson_get_uint(yyjson_obj_get(t, "id"));
        if (rc == 0)
            rc = set_token(v, id, json_str(yyjson_obj_get(t, "content")), special ? TOKEN_CONTROL : TOKEN_USER_DEFINED);
        if (rc == 0)
            v->flags[id] = flags_of(t, special);
    }
    return rc;
}

/* {"piece": id} (BPE, WordPiece) or [["piece", score]] (Unigram). */
static int read_vocab(struct vocab *v, yyjson_val *vocab, yyjson_val *added)
{
    uint64_t count;
    size_t i, n;
    yyjson_val *key, *val;
    int rc = count_tokens(v, vocab, added, &count);
    if (rc == 0)
        rc = allocate(v, count);
    if (rc == 0 && yyjson_is_obj(vocab)) {
        yyjson_obj_foreach(vocab, i, n, key, val) if (rc == 0) rc =
            set_token(v, yyjson_get_uint(val), json_str(key), TOKEN_NORMAL);
    } else if (rc == 0 && yyjson_is_arr(vocab)) {
        yyjson_arr_foreach(vocab, i, n, val)
        {
            yyjson_val *piece = yyjson_arr_get(val, 0), *score = yyjson_arr_get(val, 1);
            if (rc == 0 && (!yyjson_is_str(piece) || !yyjson_is_num(score) || !isfinite(yyjson_get_num(score))))
                return bad(v->err, "model.vocab must be a list of [piece, score]");
            if (rc == 0)
                rc = set_token(v, i, json_str(piece), TOKEN_NORMAL);
            if (rc == 0)
                v->scores[i] = (float)yyjson_get_num(score);
        }
    } else if (rc == 0) {
        rc = bad(v->err, "model.vocab is missing");
    }
    if (rc == 0)
        rc = read_added(v, added);
    if (rc == 0)
        rc = fill_holes(v);
    return rc < 0 ? rc : index_tokens(v);
}

/* ---- merges ---- */

static bool pair_of(yyjson_val *merge, struct str *left, struct str *right)
{
    if (yyjson_is_str(merge)) {
        struct str rest = json_str(merge);
        return str_cut(&rest, ' ', left) && rest.p && (*right = rest, true) && left->n && right->n;
    }
    *left = json_str(yyjson_arr_get(merge, 0));
    *right = json_str(yyjson_arr_get(merge, 1));
    return yyjson_arr_size(merge) == 2 && left->n && right->n;
}

static int bpe_merges(struct vocab *v, yyjson_val *merges)
{
    struct tokenizer_spec *s = &v->d->tokenizer;
    struct str *list = arena_array(&v->d->arena, yyjson_arr_size(merges) + 1, sizeof *list), left, right;
    size_t i, n;
    yyjson_val *m;
    if (!list)
        return nomem(v->err);
    yyjson_arr_foreach(merges, i, n, m)
    {
        if (!pair_of(m, &left, &right))
            return bad(v->err, "model.merges must be pairs of pieces");
        char *p = arena_alloc(&v->d->arena, left.n + right.n + 2);
        if (!p)
            return nomem(v->err);
        memcpy(p, left.p, left.n);
        p[left.n] = ' ';
        memcpy(p + left.n + 1, right.p, right.n);
        list[i] = (struct str){p, left.n + 1 + right.n};
    }
    s->merges = list;
    s->n_merges = yyjson_arr_size(merges);
    return 0;
}

static int spm_scores(struct vocab *v, yyjson_val *merges)
{
    struct buf both;
    struct str left, right;
    size_t i, n;
    yyjson_val *m;
    int rc = 0;
    for (i = 0; i < v->n; i++)
        v->scores[i] = v->types[i] == TOKEN_NORMAL ? NO_MERGE : 0;
    buf_init(&both);
    yyjson_arr_foreach(merges, i, n, m)
    {
        if (!pair_of(m, &left, &right)) {
            rc = bad(v->err, "model.merges must be pairs of pieces");
            break;
        }
        buf_clear(&both);
        buf_append_str(&both, left);
        buf_append_str(&both, right);
        int32_t id = both.failed ? TOKEN_NONE : id_of(v, buf_str(&both));
        if (id == TOKEN_NONE) {
            rc = both.failed ? nomem(v->err) : bad(v->err, "a merge makes a piece that is not in the vocabulary");
            break;
        }
        if (v->scores[id] == NO_MERGE)
            v->scores[id] = -(float)i;
    }
    buf_release(&both);
    return rc;
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void mark_bytes(struct vocab *v)
{
    for (size_t i = 0; i < v->n; i++) { /* "<0x0A>" */
        struct str t = v->tokens[i];
        if (v->types[i] == TOKEN_NORMAL && t.n == 6 && str_starts(t, STR("<0x")) && hex(t.p[3]) >= 0 && hex(t.p[4]) >= 0 &&
            t.p[5] == '>')
            v->types[i] = TOKEN_BYTE;
    }
}

/* ---- which kind ---- */

static bool has_byte_level(yyjson_val *pre)
{
    size_t i, n;
    yyjson_val *part;
    yyjson_arr_foreach(yyjson_obj_get(pre, "pretokenizers"), i, n, part)
    {
        if (yyjson_equals_str(yyjson_obj_get(part, "type"), "ByteLevel"))
            return true;
    }
    return yyjson_equals_str(yyjson_obj_get(pre, "type"), "ByteLevel");
}

static int read_bpe(struct vocab *v, yyjson_val *model, yyjson_val *pre)
{
    struct tokenizer_spec *s = &v->d->tokenizer;
    yyjson_val *merges = yyjson_obj_get(model, "merges");
    if (!yyjson_is_arr(merges))
        return bad(v->err, "model.merges is missing");
    if (s->model == TOKENIZER_BPE) {
        s->ignore_merges = yyjson_is_true(yyjson_obj_get(model, "ignore_merges"));
        int rc = hf__pre_name(pre, &s->pre, v->err);
        return rc < 0 ? rc : bpe_merges(v, merges);
    }
    mark_bytes(v);
    return spm_scores(v, merges);
}

static int read_unigram(struct vocab *v, yyjson_val *model)
{
    yyjson_val *unk = yyjson_obj_get(model, "unk_id");
    if (yyjson_is_uint(unk) && yyjson_get_uint(unk) < v->n)
        v->d->tokenizer.unk = (int32_t)yyjson_get_uint(unk);
    else if (unk && !yyjson_is_null(unk))
        return bad(v->err, "model.unk_id must be the id of a token");
    if (yyjson_is_true(yyjson_obj_get(model, "byte_fallback")))
        mark_bytes(v);
    return 0;
}

static int read_wordpiece(struct vocab *v, yyjson_val *model)
{
    yyjson_val *prefix = yyjson_obj_get(model, "continuing_subword_prefix");
    if (prefix && !yyjson_equals_str(prefix, "##"))
        return error_set(v->err, STATUS_UNIMPLEMENTED, "tokenizer.json: model.continuing_subword_prefix must be \"##\"");
    yyjson_val *most = yyjson_obj_get(model, "max_input_chars_per_word");
    if (most && (!yyjson_is_uint(most) || !yyjson_get_uint(most) || yyjson_get_uint(most) > 1u << 20))
        return bad(v->err, "model.max_input_chars_per_word must be a whole number from 1 to 1048576");
    v->d->tokenizer.max_word_chars = (uint32_t)yyjson_get_uint(most);
    return 0;
}

/* GGUF's spelling of WordPiece; done last, when nothing is looked up by the file's spelling any more. */
static int spell_wordpiece(struct vocab *v)
{
    for (size_t i = 0; i < v->n; i++) {
        struct str *t = &v->tokens[i];
        if (v->types[i] != TOKEN_NORMAL && v->types[i] != TOKEN_UNKNOWN)
            continue;
        if (str_starts(*t, STR("##")) && t->n > 2) {
            t->p += 2, t->n -= 2;
            continue;
        }
        char *p = arena_printf(&v->d->arena, SPACE_MARK "%.*s", STR_ARG(*t));
        if (!p)
            return nomem(v->err);
        *t = str_of(p);
    }
    return 0;
}

static int model_kind(yyjson_val *model, yyjson_val *pre, struct tokenizer_spec *s, struct error *err)
{
    struct str type = json_str(yyjson_obj_get(model, "type"));
    if (!yyjson_is_obj(model))
        return bad(err, "\"model\" is missing");
    if (!type.p && yyjson_obj_get(model, "merges")) /* before 2020-10 the type was not written */
        type = STR("BPE");
    if (str_eqz(type, "BPE"))
        s->model = has_byte_level(pre) ? TOKENIZER_BPE : TOKENIZER_SPM;
    else if (str_eqz(type, "Unigram"))
        s->model = TOKENIZER_UNIGRAM;
    else if (str_eqz(type, "WordPiece"))
        s->model = TOKENIZER_WORDPIECE;
    else
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "tokenizer.json: the model \"%.*s\" is not supported; supported: BPE, Unigram, WordPiece",
                         STR_ARG(type));
    return 0;
}

/* ---- special tokens ---- */

static void template_ends(const struct vocab *v, yyjson_val *single, int32_t *first, int32_t *last)
{
    yyjson_val *head = yyjson_obj_get(yyjson_arr_get_first(single), "SpecialToken");
    yyjson_val *tail = yyjson_obj_get(yyjson_arr_get_last(single), "SpecialToken");
    *first = id_of(v, json_str(yyjson_obj_get(head, "id")));
    *last = id_of(v, json_str(yyjson_obj_get(tail, "id")));
}

/* What the post-processor puts around a text. True when it has a say. */
static bool post_processor(const struct vocab *v, yyjson_val *post, int32_t *first, int32_t *last)
{
    struct str type = json_str(yyjson_obj_get(post, "type"));
    size_t i, n;
    yyjson_val *part;
    if (str_eqz(type, "TemplateProcessing"))
        return template_ends(v, yyjson_obj_get(post, "single"), first, last), true;
    if (str_eqz(type, "BertProcessing") || str_eqz(type, "RobertaProcessing")) {
        *first = id_of(v, json_str(yyjson_arr_get(yyjson_obj_get(post, "cls"), 0)));
        *last = id_of(v, json_str(yyjson_arr_get(yyjson_obj_get(post, "sep"), 0)));
        return true;
    }
    yyjson_arr_foreach(yyjson_obj_get(post, "processors"), i, n, part)
    {
        struct str inner = json_str(yyjson_obj_get(part, "type"));
        if (!str_eqz(inner, "Sequence") && post_processor(v, part, first, last))
            return true;
    }
    return false;
}

/* "bos_token": "<s>" or {"content": "<s>", ...} */
static int32_t named(const struct vocab *v, yyjson_val *config, const char *key)
{
    yyjson_val *t = yyjson_obj_get(config, key);
    if (yyjson_is_obj(t))
        t = yyjson_obj_get(t, "content");
    return yyjson_is_str(t) ? id_of(v, json_str(t)) : TOKEN_NONE;
}

static void read_specials(const struct vocab *v, yyjson_val *root, yyjson_val *config)
{
    struct tokenizer_spec *s = &v->d->tokenizer;
    int32_t first = TOKEN_NONE, last = TOKEN_NONE;
    struct str unk = json_str(yyjson_obj_get(yyjson_obj_get(root, "model"), "unk_token"));
    s->bos = named(v, config, "bos_token");
    s->eos = named(v, config, "eos_token");
    s->sep = named(v, config, "sep_token");
    s->pad = named(v, config, "pad_token");
    s->cls = named(v, config, "cls_token");
    s->mask = named(v, config, "mask_token");
    if (s->unk == TOKEN_NONE)
        s->unk = unk.p ? id_of(v, unk) : named(v, config, "unk_token");
    if (post_processor(v, yyjson_obj_get(root, "post_processor"), &first, &last)) {
        s->add_bos = first != TOKEN_NONE;
        s->add_eos = last != TOKEN_NONE;
    } else {
        s->add_bos = yyjson_is_true(yyjson_obj_get(config, "add_bos_token"));
        s->add_eos = yyjson_is_true(yyjson_obj_get(config, "add_eos_token"));
    }
    int32_t *head = s->model == TOKENIZER_WORDPIECE ? &s->cls : &s->bos,
            *tail = s->model == TOKENIZER_WORDPIECE ? &s->sep : &s->eos;
    if (first != TOKEN_NONE)
        *head = first;
    if (last != TOKEN_NONE)
        *tail = last;
    if (s->unk != TOKEN_NONE && s->model != TOKENIZER_BPE)
        v->types[s->unk] = TOKEN_UNKNOWN;
}

/* "chat_template": text, or [{"name": "default", "template": text}, {"name": "tool_use", ...}]. */
static int read_templates(struct vocab *v, yyjson_val *config)
{
    yyjson_val *t = yyjson_obj_get(config, "chat_template"), *one;
    size_t i, n;
    int rc = 0;
    if (yyjson_is_str(t))
        return copy_str(v, json_str(t), &v->d->chat_template);
    yyjson_arr_foreach(t, i, n, one)
    {
        yyjson_val *name = yyjson_obj_get(one, "name"), *text = yyjson_obj_get(one, "template");
        if (rc == 0 && yyjson_is_str(text) && yyjson_equals_str(name, "default"))
            rc = copy_str(v, json_str(text), &v->d->chat_template);
        if (rc == 0 && yyjson_is_str(text) && yyjson_equals_str(name, "tool_use"))
            rc = copy_str(v, json_str(text), &v->d->chat_template_tools);
    }
    return rc;
}

static int read_all(struct vocab *v, yyjson_val *root, yyjson_val *config)
{
    struct tokenizer_spec *s = &v->d->tokenizer;
    yyjson_val *model = yyjson_obj_get(root, "model"), *pre = yyjson_obj_get(root, "pre_tokenizer");
    int rc = model_kind(model, pre, s, v->err);
    if (rc == 0)
        rc = read_vocab(v, yyjson_obj_get(model, "vocab"), yyjson_obj_get(root, "added_tokens"));
    if (rc == 0)
        rc = hf__read_normalizer(yyjson_obj_get(root, "normalizer"), v->d, v->err);
    if (rc == 0 && s->model != TOKENIZER_BPE)
        rc = hf__read_pre_words(pre, s, v->err);
    if (rc < 0)
        return rc;
    if (s->model == TOKENIZER_UNIGRAM)
        rc = read_unigram(v, model);
    else if (s->model == TOKENIZER_WORDPIECE)
        rc = read_wordpiece(v, model);
    else
        rc = read_bpe(v, model, pre);
    if (rc < 0)
        return rc;
    read_specials(v, root, config);
    rc = read_templates(v, config);
    if (rc == 0 && s->model == TOKENIZER_WORDPIECE)
        rc = spell_wordpiece(v);
    s->tokens = v->tokens;
    s->n_tokens = v->n;
    s->flags = v->flags;
    s->scores = s->model == TOKENIZER_BPE || s->model == TOKENIZER_WORDPIECE ? NULL : v->scores;
    return rc < 0 ? rc : desc__tokenizer_finish(v->d, v->types, v->err);
}

int hf__read_tokenizer(yyjson_val *root, yyjson_val *config, struct model_desc *d, struct error *err)
{
    struct vocab v = {.d = d, .err = err};
    struct tokenizer_spec *s = &d->tokenizer;
    s->bos = s->eos = s->eot = s->eom = s->unk = s->sep = s->pad = s->cls = s->mask = TOKEN_NONE;
    map_init(&v.by_text, 0x746f6b65);
    int rc = read_all(&v, root, config);
    map_release(&v.by_text);
    return rc;
}
