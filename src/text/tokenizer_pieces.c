/* tokenizer_pieces.c: finding the pieces that a text begins with: a trie without nodes. The pieces lie sorted by their bytes; those that share a
 * beginning are neighbours, and each further byte narrows the range by two binary searches. O(log n) a byte, no memory but the order. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "text/tokenizer_priv.h"

struct piece {
    struct str text;
    int32_t id;
};

static int by_text(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    int c = memcmp(x->text.p, y->text.p, MIN_OF(x->text.n, y->text.n));
    if (c)
        return c;
    return x->text.n != y->text.n ? (x->text.n < y->text.n ? -1 : 1) : x->id - y->id;
}

int tokenizer__pieces_setup(struct tokenizer *t, struct error *err)
{
    struct piece *v = calloc(t->n_tokens, sizeof *v);
    t->pieces = arena_array(&t->arena, t->n_tokens, sizeof *t->pieces);
    if (!v || !t->pieces) {
        free(v);
        return error_set(err, STATUS_NOMEM, "no memory for a vocabulary of %zu tokens", t->n_tokens);
    }
    for (size_t i = 0; i < t->n_tokens; i++)
        if (t->tokens[i].type == TOKEN_NORMAL && t->tokens[i].text.n)
            v[t->n_pieces++] = (struct piece){t->tokens[i].text, (int32_t)i};
    qsort(v, t->n_pieces, sizeof *v, by_text);
    for (size_t i = 0; i < t->n_pieces; i++)
        t->pieces[i] = v[i].id;
    free(v);
    return 0;
}

/* Byte `depth` of piece `i`; -1 where it ends, which sorts first. */
static int byte_at(const struct tokenizer *t, size_t i, size_t depth)
{
    struct str text = t->tokens[t->pieces[i]].text;
    return depth < text.n ? (unsigned char)text.p[depth] : -1;
}

/* The first piece of [lo, hi) whose byte is at least `byte`. */
static size_t lower_bound(const struct tokenizer *t, size_t lo, size_t hi, size_t depth, int byte)
{
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (byte_at(t, mid, depth) < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

bool tokenizer__walk_on(const struct tokenizer *t, struct piece_walk *w, unsigned char byte)
{
    w->lo = lower_bound(t, w->lo, w->hi, w->depth, byte);
    w->hi = lower_bound(t, w->lo, w->hi, w->depth, byte + 1);
    w->depth++;
    return w->lo < w->hi;
}

int32_t tokenizer__walk_end(const struct tokenizer *t, const struct piece_walk *w)
{
    return w->lo < w->hi && t->tokens[t->pieces[w->lo]].text.n == w->depth ? t->pieces[w->lo] : TOKEN_NONE;
}
