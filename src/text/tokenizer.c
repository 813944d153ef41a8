/* tokenizer.c: vocabularies, special tokens, and the way between text and ids; the splitters are in tokenizer_<model>.c.
 *
 * Text is first cut at special tokens (only those that the span may contain), then each stretch between them is normalised, cut at the added
 * tokens that are looked for in normalised text, and what is left goes to the model's splitter. Candidates for a special token are
 * found by their first byte, longest first. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "text/normal.h"
#include "text/pretokenize.h"
#include "text/tokenizer_priv.h"
#include "text/unicode.h"

/* ---- lists ---- */

void token_list_release(struct token_list *l)
{
    free(l->v);
    *l = (struct token_list){0};
}

int token_list_push(struct token_list *l, int32_t id)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64, bytes;
        int32_t *v = size_mul(cap, sizeof *v, &bytes) ? realloc(l->v, bytes) : NULL;
        if (!v)
            return STATUS_NOMEM;
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = id;
    return 0;
}

int tokenizer__push(struct token_list *out, int32_t id, size_t max_tok, struct error *err)
{
    if (max_tok && out->n >= max_tok)
        return error_set(err, STATUS_TOO_LARGE, "the text has more than %zu tokens", max_tok);
    return token_list_push(out, id) < 0 ? error_set(err, STATUS_NOMEM, "out of memory while tokenising") : 0;
}

/* ---- creation ---- */

static int copy_tokens(struct tokenizer *t, const struct tokenizer_spec *s, struct error *err)
{
    t->tokens = arena_array(&t->arena, s->n_tokens, sizeof *t->tokens);
    if (!t->tokens)
        return error_set(err, STATUS_NOMEM, "no memory for a vocabulary of %zu tokens", s->n_tokens);
    t->n_tokens = s->n_tokens;
    for (size_t i = 0; i < s->n_tokens; i++) {
        struct vocab_token *v = &t->tokens[i];
        const char *text = arena_strdup(&t->arena, s->tokens[i]);
        if (!text)
            return error_set(err, STATUS_NOMEM, "no memory for a vocabulary of %zu tokens", s->n_tokens);
        *v = (struct vocab_token){.text = {text, s->tokens[i].n},
                                  .score = s->scores ? s->scores[i] : 0,
                                  .type = s->types ? (enum token_type)s->types[i] : TOKEN_NORMAL};
        v->bytes = v->text;
        t->longest_text = MAX_OF(t->longest_text, v->text.n);
        /* of two tokens with the same text the first counts, as in llama.cpp */
        if (!map_get(&t->by_text, v->text) && map_put(&t->by_text, v->text, v) < 0)
            return error_set(err, STATUS_NOMEM, "no memory for a vocabulary of %zu tokens", s->n_tokens);
    }
    return 0;
}

static bool is_special(enum token_type type)
{
    return type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED || type == TOKEN_UNKNOWN;
}

struct special_entry {
    size_t len;
    int32_t id;
};

static int longer_first(const void *a, const void *b)
{
    const struct special_entry *x = a, *y = b;
    return x->len != y->len ? (x->len > y->len ? -1 : 1) : x->id - y->id;
}

/* What is looked for in text: the token's own, or what the normaliser makes of it. */
static int set_found_text(struct tokenizer *t, size_t i, struct error *err)
{
    const struct vocab_token *v = &t->tokens[t->specials[i]];
    struct buf to;
    t->found_text[i] = v->text;
    if (!tokenizer__in_normalized(t, t->specials[i]))
        return 0;
    buf_init(&to);
    normal_apply(t->normal, t->n_normal, v->text, &to);
    char *p = to.failed ? NULL : arena_strdup(&t->arena, buf_str(&to));
    if (p && to.n) {
        t->found_text[i] = (struct str){p, to.n};
        t->any_normalized = true;
    }
    buf_release(&to);
    return p ? 0 : error_set(err, STATUS_NOMEM, "no memory for special tokens");
}

static int collect_specials(struct tokenizer *t, struct error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n_tokens; i++)
        n += is_special(t->tokens[i].type) && t->tokens[i].text.n > 0;
    struct special_entry *list = calloc(n ? n : 1, sizeof *list);
    t->specials = arena_array(&t->arena, n ? n : 1, sizeof *t->specials);
    t->found_text = arena_array(&t->arena, n ? n : 1, sizeof *t->found_text);
    if (!list || !t->specials || !t->found_text) {
        free(list);
        return error_set(err, STATUS_NOMEM, "no memory for special tokens");
    }
    for (size_t i = 0; i < t->n_tokens; i++)
        if (is_special(t->tokens[i].type) && t->tokens[i].text.n > 0)
            list[t->n_specials++] = (struct special_entry){t->tokens[i].text.n, (int32_t)i};
    qsort(list, n, sizeof *list, longer_first);
    for (size_t i = 0; i < n; i++)
        t->specials[i] = list[i].id;
    free(list);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = set_found_text(t, i, err);
    return rc;
}

static void set_eog(struct tokenizer *t, int32_t id)
{
    if (id >= 0)
        t->eog[id / 8] |= (uint8_t)(1u << (id % 8));
}

static int check_ids(const struct tokenizer_spec *s, struct error *err)
{
    const struct {
        const char *name;
        int32_t id;
    } ids[] = {{"bos", s->bos}, {"eos", s->eos}, {"eot", s->eot}, {"eom", s->eom},  {"unk", s->unk},
               {"sep", s->sep}, {"pad", s->pad}, {"cls", s->cls}, {"mask", s->mask}};
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        if (ids[i].id < TOKEN_NONE || (ids[i].id >= 0 && (size_t)ids[i].id >= s->n_tokens))
            return error_set(err, STATUS_INVALID, "tokenizer: %s token id %d is outside the vocabulary of %zu tokens",
                             ids[i].name, ids[i].id, s->n_tokens);
    for (size_t i = 0; i < s->n_eog; i++)
        if (s->eog[i] < 0 || (size_t)s->eog[i] >= s->n_tokens)
            return error_set(err, STATUS_INVALID, "tokenizer: end-of-generation id %d is outside the vocabulary", s->eog[i]);
    if (!s->n_tokens || s->n_tokens > INT32_MAX)
        return error_set(err, STATUS_INVALID, "tokenizer: a vocabulary of %zu tokens is not possible", s->n_tokens);
    return 0;
}

/* SentencePiece stores bytes as <0x41> and spaces as U+2581; WordPiece's mark of a word's beginning is one too. */
static int setup_spm(struct tokenizer *t, struct error *err)
{
    for (int b = 0; b < 256; b++)
        t->byte_id[b] = TOKEN_NONE;
    for (size_t i = 0; i < t->n_tokens; i++) {
        struct vocab_token *v = &t->tokens[i];
        unsigned byte;
        char name[8];
        if (v->type == TOKEN_BYTE && v->text.n == 6) {
            memcpy(name, v->text.p, 6);
            name[6] = 0;
            char *end;
            byte = name[0] == '<' && name[1] == '0' && name[2] == 'x' && name[5] == '>' ? (unsigned)strtoul(name + 3, &end, 16)
                                                                                        : 256;
            char *one = byte < 256 ? arena_alloc(&t->arena, 1) : NULL;
            if (byte > 255 || !one)
                return error_set(err, STATUS_INVALID, "tokenizer: byte token %zu is not of the form <0xNN>", i);
            *one = (char)byte;
            v->bytes = (struct str){one, 1};
            t->byte_id[byte] = (int32_t)i;
            continue;
        }
        char *p = arena_alloc(&t->arena, v->text.n);
        size_t n = 0;
        if (!p)
            return error_set(err, STATUS_NOMEM, "no memory for the vocabulary");
        for (size_t k = 0; k < v->text.n;) {
            bool space = v->text.n - k >= 3 && memcmp(v->text.p + k, "\xe2\x96\x81", 3) == 0 &&
                         (v->type == TOKEN_NORMAL || v->type == TOKEN_USER_DEFINED);
            p[n++] = space ? ' ' : v->text.p[k];
            k += space ? 3 : 1;
        }
        v->bytes = (struct str){p, n};
    }
    return 0;
}

static int setup_splitter(struct tokenizer *t, const struct tokenizer_spec *s, struct error *err)
{
    int rc = 0;
    switch (s->model) {
    case TOKENIZER_BPE:
        t->pre = pre_rules_find(s->pre);
        if (!t->pre)
            return error_set(err, STATUS_UNIMPLEMENTED, "tokenizer: pre-tokeniser \"%.*s\" is not supported; known: %s",
                             STR_ARG(s->pre), pre_rules_known());
        return tokenizer__bpe_setup(t, s, err);
    case TOKENIZER_SPM:
        return setup_spm(t, err);
    case TOKENIZER_UNIGRAM:
        rc = setup_spm(t, err);
        return rc < 0 ? rc : tokenizer__unigram_setup(t, s, err);
    case TOKENIZER_WORDPIECE:
        rc = setup_spm(t, err);
        return rc < 0 ? rc : tokenizer__wordpiece_setup(t, err);
    }
    return error_set(err, STATUS_INVALID, "tokenizer: there is no model %d", (int)s->model);
}

static int copy_steps(struct tokenizer *t, const struct tokenizer_spec *s, struct error *err)
{
    if (!s->n_normal)
        return 0;
    t->normal = arena_array(&t->arena, s->n_normal, sizeof *t->normal);
    if (!t->normal)
        return error_set(err, STATUS_NOMEM, "no memory for a normaliser");
    for (size_t i = 0; i < s->n_normal; i++) {
        struct normal_step *step = &t->normal[t->n_normal++];
        *step = s->normal[i];
        step->a.p = arena_strdup(&t->arena, step->a);
        step->b.p = arena_strdup(&t->arena, step->b);
        if (!step->a.p || !step->b.p)
            return error_set(err, STATUS_NOMEM, "no memory for a normaliser");
        int rc = normal_check(step, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int copy_flags(struct tokenizer *t, const struct tokenizer_spec *s, struct error *err)
{
    if (!s->flags)
        return 0;
    t->flags = arena_array(&t->arena, s->n_tokens, sizeof *t->flags);
    if (!t->flags)
        return error_set(err, STATUS_NOMEM, "no memory for a vocabulary of %zu tokens", s->n_tokens);
    memcpy(t->flags, s->flags, s->n_tokens);
    return 0;
}

static int setup(struct tokenizer *t, const struct tokenizer_spec *s, struct error *err)
{
    int rc = check_ids(s, err);
    if (rc == 0)
        rc = copy_tokens(t, s, err);
    if (rc == 0)
        rc = copy_flags(t, s, err);
    if (rc == 0)
        rc = copy_steps(t, s, err);
    if (rc == 0)
        rc = collect_specials(t, err);
    t->eog = rc == 0 ? arena_zalloc(&t->arena, t->n_tokens / 8 + 1) : NULL;
    if (rc == 0 && !t->eog)
        rc = error_set(err, STATUS_NOMEM, "no memory for a vocabulary");
    if (rc < 0)
        return rc;
    set_eog(t, s->eos);
    set_eog(t, s->eot);
    set_eog(t, s->eom);
    for (size_t i = 0; i < s->n_eog; i++)
        set_eog(t, s->eog[i]);
    return setup_splitter(t, s, err);
}

int tokenizer_create(const struct tokenizer_spec *spec, struct tokenizer **out, struct error *err)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(err, STATUS_NOMEM, "no memory for a tokenizer");
    *t = (struct tokenizer){.model = spec->model,
                            .bos = spec->bos,
                            .eos = spec->eos,
                            .unk = spec->unk,
                            .sep = spec->sep,
                            .cls = spec->cls,
                            .add_bos = spec->add_bos,
                            .add_eos = spec->add_eos,
                            .add_space_prefix = spec->add_space_prefix,
                            .prefix_first_only = spec->prefix_first_only,
                            .split_words = spec->split_words,
                            .split_marks = spec->split_marks,
                            .max_word_chars = spec->max_word_chars,
                            .ignore_merges = spec->ignore_merges};
    arena_init(&t->arena, 1u << 16, 0);
    map_init(&t->by_text, 0x746f6b656e);
    int rc = setup(t, spec, err);
    if (rc < 0) {
        tokenizer_destroy(t);
        return rc;
    }
    *out = t;
    return 0;
}

void tokenizer_destroy(struct tokenizer *t)
{
    if (!t)
        return;
    map_release(&t->by_text);
    free(t->merges);
    arena_release(&t->arena);
    free(t);
}

/* ---- questions ---- */

size_t tokenizer_size(const struct tokenizer *t)
{
    return t->n_tokens;
}
int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}
int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}
int32_t tokenizer_find(const struct tokenizer *t, struct str text)
{
    return tokenizer__find(t, text);
}

struct str tokenizer_bytes(const struct tokenizer *t, int32_t id, bool special)
{
    if (id < 0 || (size_t)id >= t->n_tokens)
        return (struct str){0};
    const struct vocab_token *v = &t->tokens[id];
    bool hidden = v->type == TOKEN_CONTROL || v->type == TOKEN_UNKNOWN || v->type == TOKEN_UNUSED;
    return hidden && !special ? (struct str){0} : v->bytes;
}

enum token_type tokenizer_type(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->n_tokens ? t->tokens[id].type : TOKEN_UNUSED;
}

bool tokenizer_is_eog(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->n_tokens && (t->eog[id / 8] >> (id % 8) & 1);
}

void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool special, struct buf *out)
{
    size_t start = out->n;
    for (size_t i = 0; i < n; i++)
        buf_append_str(out, tokenizer_bytes(t, ids[i], special));
    bool leading = t->model == TOKENIZER_WORDPIECE || (t->model != TOKENIZER_BPE && t->add_space_prefix);
    if (leading && out->n > start && out->p[start] == ' ') {
        memmove(out->p + start, out->p + start + 1, out->n - start - 1);
        out->n--;
    }
}
