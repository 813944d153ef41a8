/* tokenizer_priv.h: for text/tokenizer*.c only: the vocabulary, and the splitters behind one interface. */
#ifndef INFERD_TEXT_TOKENIZER_PRIV_H
#define INFERD_TEXT_TOKENIZER_PRIV_H

#include "base/arena.h"
#include "base/map.h"
#include "text/tokenizer.h"

struct vocab_token {
    struct str text;  /* as stored */
    struct str bytes; /* what it stands for */
    float score;
    enum token_type type;
};

/* A BPE merge: the pair (left, right) of token ids becomes `id`, the lower the rank the earlier. */
struct merge {
    uint64_t pair; /* left << 32 | right; UINT64_MAX: empty slot */
    uint32_t rank;
    int32_t id;
};

struct pre_rules; /* pretokenize.h */

struct tokenizer {
    enum tokenizer_model model;
    const struct pre_rules *pre;
    struct vocab_token *tokens;
    size_t n_tokens;
    struct map by_text;   /* text -> &tokens[i] */
    struct merge *merges; /* open addressing */
    size_t merge_mask;
    int32_t byte_id[256]; /* BPE: the token of one byte; SPM: <0xNN>; TOKEN_NONE where absent */
    int32_t *specials;    /* ids matched in text, longest text first */
    size_t n_specials;
    uint8_t *eog; /* bit set */
    size_t longest_text;
    int32_t bos, eos, unk, sep, cls;
    bool add_bos, add_eos, add_space_prefix, prefix_first_only, split_words, split_marks, ignore_merges;
    uint32_t max_word_chars;
    struct normal_step *normal;
    size_t n_normal;
    uint8_t *flags;         /* [n_tokens] or NULL */
    struct str *found_text; /* [n_specials]: what is looked for: normalised where the flag says so */
    bool any_normalized;    /* a token is looked for in normalised text */
    int32_t *pieces;        /* WordPiece, unigram: normal tokens by text */
    size_t n_pieces;
    double unk_score;        /* unigram: of a character that no piece has */
    bool pieces_cross_words; /* unigram: a piece goes on behind a space */
    bool has_bytes;          /* unigram: all 256 byte tokens */
    struct arena arena;
};

static inline int32_t tokenizer__id(const struct tokenizer *t, const struct vocab_token *v)
{
    return (int32_t)(v - t->tokens);
}
static inline int32_t tokenizer__find(const struct tokenizer *t, struct str text)
{
    const struct vocab_token *v = map_get(&t->by_text, text);
    return v ? tokenizer__id(t, v) : TOKEN_NONE;
}

/* Is the added token `id` looked for in normalised text? */
static inline bool tokenizer__in_normalized(const struct tokenizer *t, int32_t id)
{
    return t->n_normal && t->flags && (t->flags[id] & TOKEN_FLAG_NORMALIZED) && t->tokens[id].type == TOKEN_USER_DEFINED;
}

/* One stretch of plain text (no special tokens in it) to ids. `first`: it begins the prompt. NOMEM, TOO_LARGE (max_tok). */
int tokenizer__bpe(const struct tokenizer *t, struct str text, size_t max_tok, struct token_list *out,
                   struct error *err) MUST_CHECK;
int tokenizer__spm(const struct tokenizer *t, struct str text, bool prefix_space, size_t max_tok, struct token_list *out,
                   struct error *err) MUST_CHECK;

int tokenizer__wordpiece(const struct tokenizer *t, struct str text, size_t max_tok, struct token_list *out,
                         struct error *err) MUST_CHECK;
int tokenizer__unigram(const struct tokenizer *t, struct str text, bool prefix_space, size_t max_tok, struct token_list *out,
                       struct error *err) MUST_CHECK;
int tokenizer__wordpiece_setup(struct tokenizer *t, struct error *err) MUST_CHECK;
int tokenizer__unigram_setup(struct tokenizer *t, const struct tokenizer_spec *spec, struct error *err) MUST_CHECK;

/* tokenizer_pieces.c: the pieces sorted by text; a walk narrows them byte by byte to those that begin with what was walked. */
struct piece_walk {
    size_t lo, hi, depth; /* pieces[lo..hi) have `depth` bytes in common */
};
int tokenizer__pieces_setup(struct tokenizer *t, struct error *err) MUST_CHECK;
static inline struct piece_walk tokenizer__walk(const struct tokenizer *t)
{
    return (struct piece_walk){0, t->n_pieces, 0};
}
/* False: no piece goes on with `byte`; the walk is over. */
bool tokenizer__walk_on(const struct tokenizer *t, struct piece_walk *w, unsigned char byte);
/* The piece that is what was walked, or TOKEN_NONE. */
int32_t tokenizer__walk_end(const struct tokenizer *t, const struct piece_walk *w);

/* tokenizer_bpe.c: byte <-> printable character of GPT-2's alphabet. */
int tokenizer__bpe_setup(struct tokenizer *t, const struct tokenizer_spec *spec, struct error *err) MUST_CHECK;

int tokenizer__push(struct token_list *out, int32_t id, size_t max_tok, struct error *err) MUST_CHECK;

#endif
