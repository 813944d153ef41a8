/* grammar_vocab.c: a vocabulary as tries in preorder, one array walked from front to back: a dead end skips its subtree by one jump.
 *
 * Plain tokens are whole characters that stand for themselves inside a JSON string, by their number. Where a grammar does not tell such characters
 * apart (in a free or counted string), all of up to so many are allowed, and only the trie of the other tokens is walked. */
#include <stdlib.h>

#include "base/size.h"
#include "base/status.h"
#include "text/grammar_priv.h"

struct entry {
    struct str bytes;
    int32_t id;
};

static int by_bytes(const void *x, const void *y)
{
    const struct entry *a = x, *b = y;
    int c = memcmp(a->bytes.p, b->bytes.p, MIN_OF(a->bytes.n, b->bytes.n));
    if (c)
        return c;
    if (a->bytes.n != b->bytes.n)
        return a->bytes.n < b->bytes.n ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

/* How many characters, if all of them stand for themselves in a JSON string and they are few enough; else 0. */
static uint32_t plain_chars(struct str s)
{
    uint32_t chars = 0;
    for (size_t i = 0, n; i < s.n; i += n, chars++) {
        unsigned char c = (unsigned char)s.p[i];
        n = str_utf8_at(s, i);
        if (!n || c < 0x20 || c == '"' || c == '\\')
            return 0;
    }
    return chars <= PLAIN_CHARS_MAX ? chars : 0;
}

static bool bit(const uint64_t *m, int32_t i)
{
    return m[i / 64] >> (i % 64) & 1;
}

static void set_bit(uint64_t *m, int32_t i)
{
    m[i / 64] |= UINT64_C(1) << (i % 64);
}

/* Nodes below depth `to` are complete: their subtrees end here. */
static void close_path(struct trie *t, uint32_t *path, size_t from, size_t to)
{
    for (; from > to; from--)
        t->nodes[path[from]].end = t->n;
}

/* Entries are sorted; those of equal bytes follow each other, the first one is in the trie, `same` leads to the others. */
static void fill_trie(struct trie *t, const struct entry *e, size_t n, const uint64_t *skip, uint32_t *path, int32_t *same)
{
    const struct entry *last = NULL;
    int32_t last_id = TOKEN_NONE;
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        if (skip && bit(skip, e[i].id))
            continue;
        while (last && at < last->bytes.n && at < e[i].bytes.n && last->bytes.p[at] == e[i].bytes.p[at])
            at++;
        if (last && at == e[i].bytes.n && at == last->bytes.n) {
            same[last_id] = e[i].id;
            last_id = e[i].id;
            continue;
        }
        close_path(t, path, last ? last->bytes.n : 0, at);
        for (; at < e[i].bytes.n; at++) {
            path[at + 1] = t->n;
            t->nodes[t->n++] =
                (struct trie_node){.token = TOKEN_NONE, .depth = (uint16_t)(at + 1), .byte = (uint8_t)e[i].bytes.p[at]};
        }
        t->nodes[path[at]].token = e[i].id;
        last = &e[i];
        last_id = e[i].id;
    }
    close_path(t, path, last ? last->bytes.n : 0, 0);
}

static bool make_trie(struct trie *t, const struct entry *e, size_t n, const uint64_t *skip, uint32_t max_bytes, int32_t *same)
{
    size_t total = 1;
    for (size_t i = 0; i < n; i++)
        total += e[i].bytes.n; /* a bound: shared starts are counted once each */
    uint32_t *path = calloc((size_t)max_bytes + 1, sizeof *path);
    if (total < UINT32_MAX)
        t->nodes = calloc(total, sizeof *t->nodes);
    if (path && t->nodes)
        fill_trie(t, e, n, skip, path, same);
    free(path);
    if (!path || !t->nodes)
        return false;
    void *fit = realloc(t->nodes, ((size_t)t->n + 1) * sizeof *t->nodes);
    t->nodes = fit ? fit : t->nodes;
    return true;
}

/* Tokens with bytes of their own that text may use; the longest of them. */
static size_t collect(struct grammar_vocab *v, struct entry *e)
{
    size_t n = 0;
    for (uint32_t i = 0; i < v->n_tok; i++) {
        struct str bytes = tokenizer_bytes(v->tokenizer, (int32_t)i, false);
        v->same[i] = TOKEN_NONE;
        if (tokenizer_is_eog(v->tokenizer, (int32_t)i)) {
            set_bit(v->ends, (int32_t)i);
        } else if (bytes.n && bytes.n <= UINT16_MAX) {
            e[n++] = (struct entry){bytes, (int32_t)i};
            v->max_bytes = MAX_OF(v->max_bytes, (uint32_t)bytes.n);
            uint32_t chars = plain_chars(bytes);
            for (uint32_t k = chars; chars && k <= PLAIN_CHARS_MAX; k++)
                set_bit(v->plain[k], (int32_t)i);
        }
    }
    return n;
}

static bool make_plain(struct grammar_vocab *v)
{
    uint64_t *bits = calloc((size_t)v->n_words * PLAIN_CHARS_MAX + 1, sizeof *bits);
    for (uint32_t k = 1; bits && k <= PLAIN_CHARS_MAX; k++)
        v->plain[k] = bits + (size_t)(k - 1) * v->n_words;
    return bits != NULL;
}

int grammar_vocab_create(const struct tokenizer *t, uint32_t n_ids, struct grammar_vocab **out, struct error *err)
{
    struct grammar_vocab *v = calloc(1, sizeof *v);
    size_t n_tok = n_ids, n = 0;
    struct entry *e = calloc(n_tok + 1, sizeof *e);
    bool ok = v && e;
    if (ok) {
        v->tokenizer = t;
        v->n_tok = n_ids;
        v->n_words = (v->n_tok + 63) / 64;
        v->same = calloc(n_tok + 1, sizeof *v->same);
        v->ends = calloc(v->n_words + 1, sizeof *v->ends);
        ok = v->same && v->ends && make_plain(v);
    }
    if (ok) {
        n = collect(v, e);
        if (n)
            qsort(e, n, sizeof *e, by_bytes);
        ok = make_trie(&v->all, e, n, NULL, v->max_bytes, v->same) &&
             make_trie(&v->rest, e, n, v->plain[PLAIN_CHARS_MAX], v->max_bytes, v->same);
    }
    free(e);
    if (!ok) {
        grammar_vocab_destroy(v);
        return error_set(err, STATUS_NOMEM, "no memory to prepare the vocabulary for constrained output");
    }
    *out = v;
    return 0;
}

void grammar_vocab_destroy(struct grammar_vocab *v)
{
    if (!v)
        return;
    free(v->all.nodes);
    free(v->rest.nodes);
    free(v->same);
    free(v->plain[1]); /* one block */
    free(v->ends);
    free(v);
}
