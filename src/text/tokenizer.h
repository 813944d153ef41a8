/* tokenizer.h: text <-> token ids, byte-exact, for the vocabularies that models ship.
 *
 * Four models of splitting: BPE over byte-level symbols (GPT-2 family, with the pre-tokeniser the file names), SentencePiece BPE
 * (by score, with byte fallback), SentencePiece unigram (Viterbi) and WordPiece; each behind the file's normaliser (normal.h). A
 * tokenizer is immutable and refcount-free: the model owns it, any thread uses it. Nothing here reads a file: readers of GGUF
 * and tokenizer.json fill a spec. */
#ifndef INFERD_TEXT_TOKENIZER_H
#define INFERD_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

#define TOKEN_NONE (-1)

struct normal_step; /* normal.h */

enum tokenizer_model { TOKENIZER_BPE, TOKENIZER_SPM, TOKENIZER_UNIGRAM, TOKENIZER_WORDPIECE };

/* llama.cpp's token types, as in GGUF's tokenizer.ggml.token_type. */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

/* Everything a file says. Borrowed for tokenizer_create only; the tokenizer copies what it keeps. Token texts are as stored in
 * GGUF: for BPE in GPT-2's printable byte alphabet, for SPM and unigram with U+2581 for a space, for WordPiece with U+2581 in front of
 * what begins a word (and nothing in front of what "##" marks elsewhere). */
struct tokenizer_spec {
    enum tokenizer_model model;
    struct str pre; /* pre-tokeniser name as in tokenizer.ggml.pre: "llama-bpe", "qwen2", "smollm", "gpt-2", ... */
    const struct str *tokens;
    const float *scores;  /* [n_tokens] or NULL */
    const int32_t *types; /* [n_tokens] enum token_type, or NULL: all normal */
    size_t n_tokens;
    const struct str *merges; /* BPE: "left right" */
    size_t n_merges;
    int32_t bos, eos, eot, eom, unk, sep, pad, cls, mask; /* TOKEN_NONE where absent */
    const int32_t *eog;                                   /* further ids that end a generation */
    size_t n_eog;
    bool add_bos, add_eos, ignore_merges;
    bool add_space_prefix;  /* SPM, unigram: a space in front of the text, and of what follows a special token */
    bool prefix_first_only; /* not of what follows a special token */
    bool split_words; /* unigram: white space separates words, each with a space of its own in front; else only marks do */
    bool split_marks; /* unigram: every U+2581 begins a new stretch */
    uint32_t max_word_chars;          /* WordPiece: a longer word is unknown; 0: 100 */
    const struct normal_step *normal; /* what text goes through first, in this order (normal.h) */
    size_t n_normal;
    const uint8_t *flags; /* [n_tokens] TOKEN_FLAG_ bits of added tokens, or NULL */
};

/* How an added token is found in text (tokenizer.json's added_tokens). */
enum {
    TOKEN_FLAG_LSTRIP = 1,      /* takes the white space in front of it with it */
    TOKEN_FLAG_RSTRIP = 2,      /* and that behind it */
    TOKEN_FLAG_SINGLE_WORD = 4, /* not inside a word */
    TOKEN_FLAG_NORMALIZED = 8,  /* looked for in the normalised text; control tokens never are */
};

struct tokenizer;

/* INVALID: names the field (unknown pre-tokeniser lists the known; merge of unknown tokens; ids out of range); NOMEM. */
int tokenizer_create(const struct tokenizer_spec *spec, struct tokenizer **out, struct error *err) MUST_CHECK;
void tokenizer_destroy(struct tokenizer *t);

/* A growing array of ids. */
struct token_list {
    int32_t *v;
    size_t n, cap;
};
void token_list_release(struct token_list *l);
int token_list_push(struct token_list *l, int32_t id) MUST_CHECK; /* NOMEM only */

/* One stretch of a prompt. Only where `special` is set may the text of a control token become that token: text that users
 * wrote never does. */
struct text_span {
    struct str text;
    bool special;
};

/* Append the ids of the concatenated spans to `out`; word boundaries are as if the text were one string, except that a special
 * token ends a piece. `add_special`: add BOS/EOS (CLS/SEP) as the vocabulary says. Refuses more than `max_tok` ids (0: no bound)
 * with STATUS_TOO_LARGE, before spending time on the rest. Invalid UTF-8 is encoded byte by byte where the vocabulary has
 * bytes, else as U+FFFD (BERT leaves it out). A token of added_tokens is found as its flags say. O(n log n). */
int tokenizer_encode(const struct tokenizer *t, const struct text_span *spans, size_t n_spans, bool add_special, size_t max_tok,
                     struct token_list *out, struct error *err) MUST_CHECK;

/* How many ids there are; every id is below it. */
size_t tokenizer_size(const struct tokenizer *t);
/* The bytes that `id` stands for in the middle of a text (control tokens: empty unless `special`). Borrowed from `t`. An id out of
 * range is empty. SPM's leading-space rule is the caller's business only at position 0: see tokenizer_decode. */
struct str tokenizer_bytes(const struct tokenizer *t, int32_t id, bool special);
enum token_type tokenizer_type(const struct tokenizer *t, int32_t id);
bool tokenizer_is_eog(const struct tokenizer *t, int32_t id);
int32_t tokenizer_bos(const struct tokenizer *t);
int32_t tokenizer_eos(const struct tokenizer *t);
/* The id whose stored text is exactly `text`, or TOKEN_NONE. */
int32_t tokenizer_find(const struct tokenizer *t, struct str text);

/* Append the bytes of `ids`; `special`: write control tokens' text too. Drops SPM's artificial leading space. */
void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool special, struct buf *out);

#endif
