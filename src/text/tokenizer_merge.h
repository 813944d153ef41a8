/* tokenizer_merge.h: for text/tokenizer*.c only: the greedy merging that BPE and SentencePiece share.
 *
 * Symbols are a linked list over an array; a heap holds the pairs that could merge, best first. A merged pair makes its neighbours'
 * entries stale; they are recognised by their recorded ids when they come up. O(n log n). */
#ifndef INFERD_TEXT_TOKENIZER_MERGE_H
#define INFERD_TEXT_TOKENIZER_MERGE_H

#include "text/tokenizer_priv.h"

struct symbol {
    int32_t id;          /* token, or TOKEN_NONE: these bytes are no token; a dead symbol has n == 0 */
    uint32_t at, n;      /* bytes in the text */
    uint32_t prev, next; /* UINT32_MAX: none */
};

struct candidate {
    double key;    /* smaller is better */
    uint32_t left; /* symbol index: ties go to the leftmost */
    int32_t id;    /* of the merged token */
    uint32_t n;    /* bytes of both; an entry is stale when they differ */
};

struct merger {
    const struct tokenizer *t;
    struct str text;
    struct symbol *sym;
    uint32_t n_sym;
    struct candidate *heap;
    size_t n_heap;
    /* The token that symbols l and r make and its key; false: they don't merge. */
    bool (*pair)(const struct merger *m, const struct symbol *l, const struct symbol *r, double *key, int32_t *id);
};

/* Room for `n` symbols; NOMEM. */
int merger_init(struct merger *m, const struct tokenizer *t, struct str text, uint32_t n, struct error *err) MUST_CHECK;
void merger_release(struct merger *m);
/* Merge until nothing merges. Live symbols are then reached from sym[0] by `next`. */
void merger_run(struct merger *m);

#endif
