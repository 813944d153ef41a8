/* gguf_tokenizer.c: the tokenizer.* keys of a GGUF file as a tokenizer_spec, and what both kinds of file share about tokens.
 *
 * What a file leaves out is what ggml's writers leave out for its kind of vocabulary: SentencePiece adds a BOS and a leading space,
 * byte-level BPE neither (but for the pre-tokenisers of Llama 3 and Mistral's Tekken), WordPiece puts CLS and SEP around. */
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "engine/llm/file/desc_priv.h"
#include "text/normal.h"

#define TOKENS_MAX (1u << 24)

static int nomem(struct error *err)
{
    return error_set(err, STATUS_NOMEM, "out of memory while reading a vocabulary");
}

static int read_strings(const struct gguf *g, const char *key, struct arena *a, const struct str **out, size_t *n,
                        struct error *err)
{
    struct gguf_array list;
    size_t at = 0;
    *n = 0;
    if (!gguf_kv(g, key))
        return 0;
    if (!gguf_get_array(g, key, &list) || list.type != GGUF_STRING || list.n > TOKENS_MAX)
        return error_set(err, STATUS_INVALID, "GGUF: \"%s\" must be a list of at most %u strings", key, TOKENS_MAX);
    struct str *v = arena_array(a, (size_t)list.n, sizeof *v);
    if (!v)
        return nomem(err);
    while (*n < list.n && gguf_array_next_str(&list, &at, &v[*n]))
        ++*n;
    *out = v;
    return 0;
}

/* A numeric list as long as the vocabulary; absent is fine. */
static int check_list(const struct gguf *g, const char *key, size_t n, struct gguf_array *list, bool *found, struct error *err)
{
    *found = gguf_kv(g, key) != NULL;
    if (*found && (!gguf_get_array(g, key, list) || list->type == GGUF_STRING || list->n != n))
        return error_set(err, STATUS_INVALID, "GGUF: \"%s\" must be a list of %zu numbers, one a token", key, n);
    return 0;
}

static int read_scores(const struct gguf *g, struct model_desc *d, struct error *err)
{
    struct gguf_array list;
    bool found;
    size_t n = d->tokenizer.n_tokens;
    int rc = check_list(g, "tokenizer.ggml.scores", n, &list, &found, err);
    if (rc < 0 || !found)
        return rc;
    float *v = arena_array(&d->arena, n, sizeof *v);
    if (!v)
        return nomem(err);
    for (size_t i = 0; i < n; i++) {
        v[i] = (float)gguf_array_f64(&list, i);
        if (v[i] != v[i])
            return error_set(err, STATUS_INVALID, "GGUF: tokenizer.ggml.scores has NaN at %zu", i);
    }
    d->tokenizer.scores = v;
    return 0;
}

static int read_types(const struct gguf *g, struct model_desc *d, int32_t **out, struct error *err)
{
    struct gguf_array list;
    bool found;
    size_t n = d->tokenizer.n_tokens;
    int rc = check_list(g, "tokenizer.ggml.token_type", n, &list, &found, err);
    if (rc < 0)
        return rc;
    int32_t *v = arena_array(&d->arena, n, sizeof *v);
    if (!v)
        return nomem(err);
    for (size_t i = 0; i < n; i++) {
        int64_t type = found ? gguf_array_i64(&list, i) : TOKEN_NORMAL;
        if (type < 0 || type > TOKEN_BYTE)
            return error_set(err, STATUS_INVALID, "GGUF: tokenizer.ggml.token_type has %lld at %zu; accepted: 0 to %d",
                             (long long)type, i, TOKEN_BYTE);
        v[i] = type == 0 ? TOKEN_NORMAL : (int32_t)type;
    }
    *out = v;
    return 0;
}

static int read_id(const struct gguf *g, const char *key, size_t n, int32_t *out, struct error *err)
{
    int64_t id;
    const struct gguf_kv *kv = gguf_kv(g, key);
    if (!kv)
        return 0;
    if (kv->type == GGUF_U32 && kv->u == UINT32_MAX) /* how some writers say "none" */
        return *out = TOKEN_NONE, 0;
    if (!gguf_get_i64(g, key, &id) || id < -1 || id >= (int64_t)n)
        return error_set(err, STATUS_INVALID, "GGUF: \"%s\" must be a token id below %zu", key, n);
    *out = (int32_t)id;
    return 0;
}

static int read_ids(const struct gguf *g, struct tokenizer_spec *s, struct error *err)
{
    const struct {
        const char *key;
        int32_t *out;
    } rows[] = {
        {"tokenizer.ggml.bos_token_id", &s->bos},       {"tokenizer.ggml.eos_token_id", &s->eos},
        {"tokenizer.ggml.eot_token_id", &s->eot},       {"tokenizer.ggml.eom_token_id", &s->eom},
        {"tokenizer.ggml.unknown_token_id", &s->unk},   {"tokenizer.ggml.seperator_token_id", &s->sep}, /* sic */
        {"tokenizer.ggml.separator_token_id", &s->sep}, {"tokenizer.ggml.padding_token_id", &s->pad},
        {"tokenizer.ggml.cls_token_id", &s->cls},       {"tokenizer.ggml.mask_token_id", &s->mask},
    };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < COUNT_OF(rows); i++)
        rc = read_id(g, rows[i].key, s->n_tokens, rows[i].out, err);
    return rc;
}

static bool one_of(struct str s, const char *const *names)
{
    for (; *names; names++)
        if (str_eqz(s, *names))
            return true;
    return false;
}

/* Defaults by kind; a small vocabulary has no token at a default id. */
static void set_defaults(struct tokenizer_spec *s)
{
    static const char *const llama3[] = {"llama3",  "llama-v3", "llama-bpe", "falcon3", "falcon-h1",
                                         "pixtral", "tekken",   "midm-2.0",  "lfm2",    NULL};
    int32_t n = (int32_t)s->n_tokens;
    switch (s->model) {
    case TOKENIZER_SPM:
        s->add_bos = s->add_space_prefix = true;
        s->bos = n > 1 ? 1 : TOKEN_NONE;
        s->eos = n > 2 ? 2 : TOKEN_NONE;
        s->unk = n > 0 ? 0 : TOKEN_NONE;
        break;
    case TOKENIZER_UNIGRAM:
        s->add_eos = s->add_space_prefix = true;
        s->eos = n > 1 ? 1 : TOKEN_NONE;
        s->unk = n > 2 ? 2 : TOKEN_NONE;
        break;
    case TOKENIZER_WORDPIECE:
        s->add_bos = s->add_eos = true;
        s->cls = n > 101 ? 101 : TOKEN_NONE;
        s->unk = n > 100 ? 100 : TOKEN_NONE;
        s->sep = n > 102 ? 102 : TOKEN_NONE;
        s->mask = n > 103 ? 103 : TOKEN_NONE;
        s->pad = n > 0 ? 0 : TOKEN_NONE;
        break;
    case TOKENIZER_BPE:
        s->add_bos = one_of(s->pre, llama3);
        s->ignore_merges = s->add_bos || str_eqz(s->pre, "minicpm5");
        break;
    }
}

static int read_model(const struct gguf *g, struct tokenizer_spec *s, struct error *err)
{
    static const struct {
        const char *name;
        enum tokenizer_model model;
    } models[] = {{"gpt2", TOKENIZER_BPE}, {"llama", TOKENIZER_SPM}, {"bert", TOKENIZER_WORDPIECE}, {"t5", TOKENIZER_UNIGRAM}};
    struct str name;
    if (!gguf_get_str(g, "tokenizer.ggml.model", &name))
        return error_set(err, STATUS_INVALID, "GGUF: the key \"tokenizer.ggml.model\" is missing or not a string");
    gguf_get_str(g, "tokenizer.ggml.pre", &s->pre);
    for (size_t i = 0; i < COUNT_OF(models); i++)
        if (str_eqz(name, models[i].name))
            return s->model = models[i].model, 0;
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "GGUF: tokenizer.ggml.model \"%.*s\" is not supported; supported: gpt2, llama, bert, t5", STR_ARG(name));
}

static int read_charsmap(const struct gguf *g, struct str *out, struct error *err)
{
    const char *key = "tokenizer.ggml.precompiled_charsmap";
    struct gguf_array list;
    if (!gguf_kv(g, key))
        return 0;
    if (!gguf_get_array(g, key, &list) || (list.type != GGUF_U8 && list.type != GGUF_I8))
        return error_set(err, STATUS_INVALID, "GGUF: \"%s\" must be a list of bytes", key);
    *out = (struct str){(const char *)list.data, (size_t)list.n};
    return 0;
}

/* GGUF names no normaliser: the kind of vocabulary has one. WordPiece's is that of BERT's uncased models. */
static int read_normalizer(const struct gguf *g, struct model_desc *d, struct error *err)
{
    static const enum normal_kind bert[] = {NORMAL_BERT_CLEAN, NORMAL_BERT_CJK, NORMAL_NFD, NORMAL_STRIP_ACCENTS,
                                            NORMAL_LOWERCASE};
    struct tokenizer_spec *s = &d->tokenizer;
    struct str map = {0};
    bool squeeze = false;
    int rc = read_charsmap(g, &map, err);
    gguf_get_bool(g, "tokenizer.ggml.remove_extra_whitespaces", &squeeze);
    struct normal_step *v = arena_array(&d->arena, COUNT_OF(bert) + 2, sizeof *v);
    if (rc < 0 || !v)
        return rc < 0 ? rc : nomem(err);
    for (size_t i = 0; s->model == TOKENIZER_WORDPIECE && i < COUNT_OF(bert); i++)
        v[s->n_normal++].kind = bert[i];
    if (s->model == TOKENIZER_UNIGRAM && map.n)
        v[s->n_normal++] = (struct normal_step){.kind = NORMAL_CHARSMAP, .a = map};
    if (s->model == TOKENIZER_UNIGRAM && squeeze)
        v[s->n_normal++].kind = NORMAL_SQUEEZE;
    s->normal = v;
    return 0;
}

static bool name_has(struct str name, const char *part)
{
    size_t n = strlen(part);
    for (size_t i = 0; i + n <= name.n; i++)
        if (str_ieqz((struct str){name.p + i, n}, part))
            return true;
    return false;
}

/* GGUF has no place for the flags of added tokens. Phi-3's, whose markers take the white space behind them, are known by the model's name, as
 * in llama.cpp. */
static int read_flags(const struct gguf *g, struct model_desc *d, const int32_t *types, struct error *err)
{
    static const char *const plain[] = {"<unk>", "<s>", "<|endoftext|>", NULL};
    struct tokenizer_spec *s = &d->tokenizer;
    struct str name = {0};
    gguf_get_str(g, "general.name", &name);
    if (!name_has(name, "phi-3") && !name_has(name, "phi3"))
        return 0;
    uint8_t *flags = arena_array(&d->arena, s->n_tokens, sizeof *flags);
    if (!flags)
        return nomem(err);
    for (size_t i = 0; i < s->n_tokens; i++) {
        bool special = types[i] == TOKEN_CONTROL || types[i] == TOKEN_USER_DEFINED || types[i] == TOKEN_UNKNOWN;
        if ((special && !one_of(s->tokens[i], plain)) || str_eqz(s->tokens[i], "</s>"))
            flags[i] = TOKEN_FLAG_RSTRIP;
    }
    s->flags = flags;
    return 0;
}

int desc__gguf_tokenizer(const struct gguf *g, struct model_desc *d, struct error *err)
{
    struct tokenizer_spec *s = &d->tokenizer;
    int32_t *types = NULL;
    s->bos = s->eos = s->eot = s->eom = s->unk = s->sep = s->pad = s->cls = s->mask = TOKEN_NONE;
    int rc = read_model(g, s, err);
    if (rc == 0)
        rc = read_strings(g, "tokenizer.ggml.tokens", &d->arena, &s->tokens, &s->n_tokens, err);
    if (rc == 0 && !s->n_tokens)
        rc = error_set(err, STATUS_INVALID, "GGUF: \"tokenizer.ggml.tokens\" is missing or empty");
    if (rc == 0)
        rc = read_strings(g, "tokenizer.ggml.merges", &d->arena, &s->merges, &s->n_merges, err);
    if (rc == 0)
        rc = read_scores(g, d, err);
    if (rc == 0)
        rc = read_types(g, d, &types, err);
    if (rc < 0)
        return rc;
    set_defaults(s);
    rc = read_ids(g, s, err);
    if (rc == 0)
        rc = read_normalizer(g, d, err);
    if (rc < 0)
        return rc;
    if (s->model == TOKENIZER_WORDPIECE && s->cls == TOKEN_NONE)
        s->cls = s->bos;
    gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &s->add_bos);
    gguf_get_bool(g, "tokenizer.ggml.add_eos_token", &s->add_eos);
    gguf_get_bool(g, "tokenizer.ggml.add_sep_token", &s->add_eos);
    gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &s->add_space_prefix);
    gguf_get_str(g, "tokenizer.chat_template", &d->chat_template);
    gguf_get_str(g, "tokenizer.chat_template.tool_use", &d->chat_template_tools);
    rc = desc__tokenizer_finish(d, types, err);
    return rc < 0 ? rc : read_flags(g, d, types, err);
}

/* ---- end of generation ---- */

/* Texts that end a turn or a message in the chat formats in use; a model that has such a token means it so. The set is the one that
 * the field's servers recognise. */
static const char *const turn_ends[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>",    "<end_of_turn>", "<|endoftext|>",      "<|end_of_text|>",       "<|end_of_turn|>",
    "<EOT>",      "_<EOT>",     "<|return|>", "<|call|>",      "<end_of_utterance>", "<｜end▁of▁sentence｜>", NULL};
static const char *const message_ends[] = {"<|eom_id|>", NULL};

#define EOG_MAX 16

int desc__tokenizer_finish(struct model_desc *d, int32_t *types, struct error *err)
{
    struct tokenizer_spec *s = &d->tokenizer;
    int32_t *eog = arena_array(&d->arena, EOG_MAX + s->n_eog, sizeof *eog);
    size_t n = 0;
    if (!eog)
        return nomem(err);
    for (; n < s->n_eog; n++)
        eog[n] = s->eog[n];
    size_t limit = n + EOG_MAX;
    for (size_t i = 0; i < s->n_tokens && n < limit; i++) {
        if (s->tokens[i].n < 5 || s->tokens[i].n > 32 || (s->tokens[i].p[0] != '<' && s->tokens[i].p[0] != '_'))
            continue;
        bool turn = one_of(s->tokens[i], turn_ends), message = !turn && one_of(s->tokens[i], message_ends);
        if (!turn && !message)
            continue;
        types[i] = TOKEN_CONTROL;
        eog[n++] = (int32_t)i;
        if (message && s->eom == TOKEN_NONE)
            s->eom = (int32_t)i;
        if (turn && s->eot == TOKEN_NONE && (int32_t)i != s->eos && !str_eqz(s->tokens[i], "<|endoftext|>") &&
            !str_eqz(s->tokens[i], "<|end_of_text|>"))
            s->eot = (int32_t)i;
    }
    s->types = types;
    s->eog = eog;
    s->n_eog = n;
    return 0;
}
