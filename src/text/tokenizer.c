/* tokenizer.c: vocabularies, special tokens, and the way between text and ids; the splitters are in tokenizer_bpe.c and tokenizer_spm.c.
 *
 * Text is first cut at special tokens (only those that the span may contain), then each stretch between them goes to the model's
 * splitter. Candidates for a special token are found by its first byte, longest first. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "text/pretokenize.h"
#include "text/tokenizer_priv.h"

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

static int collect_specials(struct tokenizer *t, struct error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n_tokens; i++)
        n += is_special(t->tokens[i].type) && t->tokens[i].text.n > 0;
    struct special_entry *list = calloc(n ? n : 1, sizeof *list);
    t->specials = arena_array(&t->arena, n ? n : 1, sizeof *t->specials);
    if (!list || !t->specials) {
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
    return 0;
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

/* SentencePiece stores bytes as <0x41> and spaces as U+2581. */
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

static int setup(struct tokenizer *t, const struct tokenizer_spec *s, struct error *err)
{
    int rc = check_ids(s, err);
    if (rc == 0)
        rc = copy_tokens(t, s, err);
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
    switch (s->model) {
    case TOKENIZER_BPE:
        t->pre = pre_rules_find(s->pre);
        if (!t->pre)
            return error_set(err, STATUS_UNIMPLEMENTED, "tokenizer: pre-tokeniser \"%.*s\" is not supported; known: %s",
                             STR_ARG(s->pre), pre_rules_known());
        return tokenizer__bpe_setup(t, s, err);
    case TOKENIZER_SPM:
        return setup_spm(t, err);
    default:
        return error_set(err, STATUS_UNIMPLEMENTED, "tokenizer: only BPE and SentencePiece BPE vocabularies are supported");
    }
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
                            .ignore_merges = spec->ignore_merges,
                            .remove_extra_whitespaces = spec->remove_extra_whitespaces};
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

/* ---- encoding ---- */

struct encoding {
    const struct tokenizer *t;
    struct token_list *out;
    size_t max_tok;
    struct buf plain;   /* text since the last special token */
    bool after_special; /* or at the beginning */
    struct error *err;
};

static int flush(struct encoding *e)
{
    if (e->plain.failed)
        return error_set(e->err, STATUS_NOMEM, "out of memory while tokenising");
    if (!e->plain.n)
        return 0;
    int rc = e->t->model == TOKENIZER_BPE ? tokenizer__bpe(e->t, buf_str(&e->plain), e->max_tok, e->out, e->err)
                                          : tokenizer__spm(e->t, buf_str(&e->plain), e->t->add_space_prefix && e->after_special,
                                                           e->max_tok, e->out, e->err);
    buf_clear(&e->plain);
    e->after_special = false;
    return rc;
}

/* The special token that `text` begins with, or TOKEN_NONE. */
static int32_t special_at(const struct tokenizer *t, struct str text, bool control)
{
    for (size_t i = 0; i < t->n_specials; i++) {
        const struct vocab_token *v = &t->tokens[t->specials[i]];
        if (v->text.p[0] == text.p[0] && (control || v->type == TOKEN_USER_DEFINED) && str_starts(text, v->text))
            return t->specials[i];
    }
    return TOKEN_NONE;
}

static int encode_span(struct encoding *e, const struct text_span *span)
{
    bool starts[256] = {false};
    const struct tokenizer *t = e->t;
    for (size_t i = 0; i < t->n_specials; i++)
        starts[(unsigned char)t->tokens[t->specials[i]].text.p[0]] = true;
    size_t from = 0;
    for (size_t i = 0; i < span->text.n;) {
        int32_t id = starts[(unsigned char)span->text.p[i]]
                         ? special_at(t, (struct str){span->text.p + i, span->text.n - i}, span->special)
                         : TOKEN_NONE;
        if (id == TOKEN_NONE) {
            i++;
            continue;
        }
        buf_append(&e->plain, span->text.p + from, i - from);
        int rc = flush(e);
        if (rc == 0)
            rc = tokenizer__push(e->out, id, e->max_tok, e->err);
        if (rc < 0)
            return rc;
        e->after_special = true;
        i += t->tokens[id].text.n;
        from = i;
    }
    buf_append(&e->plain, span->text.p + from, span->text.n - from);
    return 0;
}

int tokenizer_encode(const struct tokenizer *t, const struct text_span *spans, size_t n_spans, bool add_special, size_t max_tok,
                     struct token_list *out, struct error *err)
{
    struct encoding e = {.t = t, .out = out, .max_tok = max_tok, .after_special = true, .err = err};
    int rc = 0;
    buf_init(&e.plain);
    if (add_special && t->add_bos && t->bos != TOKEN_NONE)
        rc = tokenizer__push(out, t->bos, max_tok, err);
    for (size_t i = 0; rc == 0 && i < n_spans; i++)
        rc = encode_span(&e, &spans[i]);
    if (rc == 0)
        rc = flush(&e);
    if (rc == 0 && add_special && t->add_eos && t->eos != TOKEN_NONE)
        rc = tokenizer__push(out, t->eos, max_tok, err);
    buf_release(&e.plain);
    return rc;
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
    if (t->model == TOKENIZER_SPM && t->add_space_prefix && out->n > start && out->p[start] == ' ') {
        memmove(out->p + start, out->p + start + 1, out->n - start - 1);
        out->n--;
    }
}
