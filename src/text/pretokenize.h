/* pretokenize.h: cutting text into the pieces that BPE never merges across. text/'s own.
 *
 * A pre-tokeniser is published as one or more regular expressions. Each is a stage: it cuts what the stage before gave into its matches and what is
 * between them, as Hugging Face's Split (isolated) and llama.cpp do. The stages here are hand-written scanners of the same languages, so that no
 * input can make them backtrack; a cut remembers where the segment of each stage ends, so that the whole takes time linear in the text.
 */
#ifndef INFERD_TEXT_PRETOKENIZE_H
#define INFERD_TEXT_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

#define PRE_STAGES_MAX 6

struct pre_rules;

/* One text being cut. Caller's memory, nothing to release. */
struct pre_cut {
    const struct pre_rules *rules;
    struct str text;
    size_t at;                   /* what was given already */
    size_t ends[PRE_STAGES_MAX]; /* of each stage's segment around `at` */
};

/* The rules that a file means with `name` (tokenizer.ggml.pre); static. NULL when unknown. */
const struct pre_rules *pre_rules_find(struct str name);
/* "gpt-2, llama-bpe, ...": for messages; static. */
const char *pre_rules_known(void);

/* `text` must outlive the cut. */
void pre_cut_init(struct pre_cut *c, const struct pre_rules *r, struct str text);
/* The next piece, never empty; false at the end. */
bool pre_cut_next(struct pre_cut *c, struct str *piece);

#endif
