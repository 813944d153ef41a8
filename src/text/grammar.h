/* grammar.h: constrained output: from a JSON Schema, "any JSON", a regular expression, a GBNF-style grammar or a list of choices
 * to the set of tokens that may come next.
 *
 * All kinds compile to one context-free grammar over bytes. A state is a set of pushdown stacks; a mask is computed by walking the
 * vocabulary's trie along them and cached per state, so that after warm-up a step costs a lookup. A compiled grammar is immutable
 * and shared (refcounted); a state belongs to one sequence, is small, and can be copied (speculation, n > 1).
 * Fails closed: what can't be compiled is an error that names the keyword or the position; a keyword that is not supported is never
 * skipped. */
#ifndef INFERD_TEXT_GRAMMAR_H
#define INFERD_TEXT_GRAMMAR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"
#include "text/tokenizer.h"

enum grammar_kind {
    GRAMMAR_JSON_SCHEMA,
    GRAMMAR_JSON, /* source "" or "object": any object; "value": any value */
    GRAMMAR_REGEX,
    GRAMMAR_GBNF,
    GRAMMAR_CHOICE /* JSON array of strings */
};

struct grammar_limits {
    size_t max_source_bytes; /* 0: 1 MiB */
    uint32_t max_rules;      /* 0: 20,000 after expansion */
    uint32_t max_depth;      /* nesting in the source; 0: 64 */
    uint64_t max_compile_ns; /* by a step count calibrated to it; 0: 2 s */
    uint32_t max_stacks;     /* ambiguity of a state; 0: 1,024 */
};

/* Vocabulary prepared for masks (token trie); made once per model, borrowed by grammars. `t` must outlive it. `n_ids`: how many the model
 * chooses from; ids that the tokenizer has no text for are never allowed. NOMEM only. */
struct grammar_vocab;
int grammar_vocab_create(const struct tokenizer *t, uint32_t n_ids, struct grammar_vocab **out, struct error *err) MUST_CHECK;
void grammar_vocab_destroy(struct grammar_vocab *v);

struct grammar;
/* The kind of a name ("json_schema", "json", "regex", "gbnf", "choice"). False: none of that name. */
bool grammar_kind_of(struct str name, enum grammar_kind *out);
/* INVALID: keyword, position and reason; EXHAUSTED: a limit, named; NOMEM. Not on the step thread: may take as long as the limit. */
int grammar_compile(struct grammar_vocab *v, enum grammar_kind kind, struct str source, const struct grammar_limits *limits,
                    struct grammar **out, struct error *err) MUST_CHECK;
struct grammar *grammar_ref(struct grammar *g);
void grammar_unref(struct grammar *g);
/* Memory that it holds now, with what it remembers; states not counted. Any thread. */
size_t grammar_bytes(struct grammar *g);

/* Tokens of the shortest valid output, the end-of-generation token not counted; for the check against max_tokens. Exact when a search of a
 * few milliseconds gets there, else a lower bound. */
uint32_t grammar_shortest_tok(const struct grammar *g);

/* States of one grammar may be made, used and destroyed on any threads; one state by one thread at a time. */
struct grammar_state;
int grammar_state_create(struct grammar *g, struct grammar_state **out, struct error *err) MUST_CHECK; /* takes a reference */
int grammar_state_copy(const struct grammar_state *s, struct grammar_state **out, struct error *err) MUST_CHECK;
void grammar_state_destroy(struct grammar_state *s);

/* Would `id` be allowed now? Cheap: sample first, check, and mask only on refusal. End-of-generation tokens are allowed exactly
 * when the output may end here. */
bool grammar_allows(struct grammar_state *s, int32_t id);
/* Bit i of mask (vocabulary size bits, 64 per word) set: token i allowed. Borrowed until the state changes. NULL: out of memory, too
 * ambiguous, or no token of the vocabulary goes on here: the request fails, it does not go unconstrained. */
const uint64_t *grammar_mask(struct grammar_state *s);
/* Advance by a token that was allowed; false: it was not, or a limit was hit (the state is then unusable: fail the request). */
bool grammar_accept(struct grammar_state *s, int32_t id);
/* The output may end here / must end here (only end-of-generation tokens are allowed). */
bool grammar_can_end(const struct grammar_state *s);
bool grammar_must_end(const struct grammar_state *s);

#endif
