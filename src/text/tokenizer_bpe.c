/* tokenizer_bpe.c: byte-level BPE (Sennrich et al. 2016; GPT-2's byte alphabet): pieces of text, a symbol a byte, merged by rank. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "text/pretokenize.h"
#include "text/tokenizer_merge.h"
#include "text/unicode.h"

/* ---- GPT-2's alphabet: printable bytes are themselves, the others follow from U+0100 ---- */

static bool prints_as_itself(unsigned b)
{
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
}

static int32_t char_of_byte(unsigned byte)
{
    int32_t next = 256;
    for (unsigned b = 0; b < byte; b++)
        next += !prints_as_itself(b);
    return prints_as_itself(byte) ? (int32_t)byte : next;
}

struct alphabet {
    int32_t to_char[256];
    int16_t to_byte[512]; /* -1: not in the alphabet */
};

static void alphabet_init(struct alphabet *a)
{
    memset(a->to_byte, 0xff, sizeof a->to_byte);
    for (unsigned b = 0; b < 256; b++) {
        a->to_char[b] = char_of_byte(b);
        a->to_byte[a->to_char[b]] = (int16_t)b;
    }
}

/* The bytes that a stored text stands for; a text with characters outside the alphabet (an added token) stands for itself. */
static int set_bytes(struct tokenizer *t, const struct alphabet *a, struct vocab_token *v, struct error *err)
{
    char *p = arena_alloc(&t->arena, v->text.n ? v->text.n : 1);
    size_t n = 0;
    if (!p)
        return error_set(err, STATUS_NOMEM, "no memory for the vocabulary");
    for (size_t i = 0; i < v->text.n;) {
        int32_t cp;
        i += unicode_next(v->text.p + i, v->text.n - i, &cp);
        if (cp < 0 || cp >= 512 || a->to_byte[cp] < 0)
            return 0;
        p[n++] = (char)a->to_byte[cp];
    }
    v->bytes = (struct str){p, n};
    return 0;
}

/* ---- merges ---- */

static struct merge *slot_of(const struct tokenizer *t, uint64_t pair)
{
    uint64_t h = pair * 0x9e3779b97f4a7c15u;
    for (size_t i = (size_t)(h >> 20);; i++) {
        struct merge *m = &t->merges[i & t->merge_mask];
        if (m->pair == pair || m->pair == UINT64_MAX)
            return m;
    }
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* "left right": the first space behind the first byte separates, since a text of the alphabet has none. */
static int add_merge(struct tokenizer *t, struct str text, uint32_t rank, struct buf *joined, struct error *err)
{
    const char *space = text.n > 2 ? memchr(text.p + 1, ' ', text.n - 1) : NULL;
    if (!space)
        return error_set(err, STATUS_INVALID, "tokenizer: merge %u \"%.*s\" is not two texts with a space between", rank,
                         STR_ARG(text));
    struct str left = {text.p, (size_t)(space - text.p)}, right = {space + 1, text.n - left.n - 1};
    buf_clear(joined);
    buf_append_str(joined, left);
    buf_append_str(joined, right);
    if (joined->failed)
        return error_set(err, STATUS_NOMEM, "no memory for the merges");
    int32_t l = tokenizer__find(t, left), r = tokenizer__find(t, right), both = tokenizer__find(t, buf_str(joined));
    if (l == TOKEN_NONE || r == TOKEN_NONE || both == TOKEN_NONE)
        return error_set(err, STATUS_INVALID, "tokenizer: merge %u \"%.*s\" names a token that the vocabulary has not", rank,
                         STR_ARG(text));
    struct merge *m = slot_of(t, pair_of(l, r));
    if (m->pair == UINT64_MAX)
        *m = (struct merge){pair_of(l, r), rank, both};
    return 0;
}

int tokenizer__bpe_setup(struct tokenizer *t, const struct tokenizer_spec *spec, struct error *err)
{
    struct alphabet a;
    size_t slots = 64, bytes;
    alphabet_init(&a);
    while (slots < spec->n_merges * 2)
        slots *= 2;
    t->merges = size_mul(slots, sizeof *t->merges, &bytes) ? malloc(bytes) : NULL;
    if (!t->merges)
        return error_set(err, STATUS_NOMEM, "no memory for %zu merges", spec->n_merges);
    memset(t->merges, 0xff, bytes);
    t->merge_mask = slots - 1;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < t->n_tokens; i++)
        rc = set_bytes(t, &a, &t->tokens[i], err);
    for (unsigned b = 0; b < 256; b++) {
        char text[4];
        t->byte_id[b] = tokenizer__find(t, (struct str){text, unicode_put(a.to_char[b], text)});
    }
    struct buf joined;
    buf_init(&joined);
    for (size_t i = 0; rc == 0 && i < spec->n_merges; i++)
        rc = add_merge(t, spec->merges[i], (uint32_t)i, &joined, err);
    buf_release(&joined);
    return rc;
}

/* ---- encoding ---- */

static bool pair(const struct merger *m, const struct symbol *l, const struct symbol *r, double *key, int32_t *id)
{
    if (l->id < 0 || r->id < 0)
        return false;
    const struct merge *found = slot_of(m->t, pair_of(l->id, r->id));
    if (found->pair == UINT64_MAX)
        return false;
    *key = found->rank;
    *id = found->id;
    return true;
}

/* The whole piece as one token, for vocabularies that look there first. */
static int32_t whole(const struct tokenizer *t, struct str piece)
{
    char text[256];
    size_t n = 0;
    if (!t->ignore_merges || piece.n > sizeof text / 2)
        return TOKEN_NONE;
    for (size_t i = 0; i < piece.n; i++)
        n += unicode_put(char_of_byte((unsigned char)piece.p[i]), text + n);
    return tokenizer__find(t, (struct str){text, n});
}

static int encode_piece(const struct tokenizer *t, struct str piece, size_t max_tok, struct token_list *out, struct error *err)
{
    struct merger m;
    int32_t id = piece.n == 1 ? t->byte_id[(unsigned char)piece.p[0]] : whole(t, piece);
    if (id != TOKEN_NONE)
        return tokenizer__push(out, id, max_tok, err);
    int rc = piece.n < UINT32_MAX ? merger_init(&m, t, piece, (uint32_t)piece.n, err)
                                  : error_set(err, STATUS_TOO_LARGE, "the text is too long to tokenise");
    if (rc < 0)
        return rc;
    m.pair = pair;
    m.n_sym = (uint32_t)piece.n;
    for (uint32_t i = 0; i < m.n_sym; i++)
        m.sym[i] = (struct symbol){t->byte_id[(unsigned char)piece.p[i]], i, 1, i ? i - 1 : UINT32_MAX,
                                   i + 1 < m.n_sym ? i + 1 : UINT32_MAX};
    merger_run(&m);
    for (uint32_t i = 0; rc == 0 && i != UINT32_MAX; i = m.sym[i].next) {
        /* A byte without a token is left out, as llama.cpp and Hugging Face's BPE do. Never the unknown token: SmolLM2's is its
         * end-of-text token, which must not come from anybody's text. */
        if (m.sym[i].id != TOKEN_NONE)
            rc = tokenizer__push(out, m.sym[i].id, max_tok, err);
    }
    merger_release(&m);
    return rc;
}

int tokenizer__bpe(const struct tokenizer *t, struct str text, size_t max_tok, struct token_list *out, struct error *err)
{
    struct pre_cut cut;
    struct str piece;
    int rc = 0;
    pre_cut_init(&cut, t->pre, text);
    while (rc == 0 && pre_cut_next(&cut, &piece))
        rc = encode_piece(t, piece, max_tok, out, err);
    return rc;
}
