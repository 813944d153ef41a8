/* spec.h: what speculation decides, without doing it: guesses by prompt lookup, and whether guessing pays. Pure; the step thread's.
 *
 * A guess is computed as one more column of the step in which the sequence decodes, and is right when it equals what the target samples there
 * for that (seed, choice, position). So the output never depends on guesses, only the speed does, and these decisions may use the clock.
 *
 * Whether it pays: the gate learns what a step of c columns costs (exponential averages; between known counts, interpolated) and each sequence
 * how often its guesses are right. A guess is worth a column when the probability that it and all before it are right reaches a threshold; a step
 * takes the threshold (perhaps: none) for which expected tokens / expected cost is largest. A sequence that hasn't guessed for a while tries
 * again, since costs and texts change. Sources: Leviathan et al. 2023 (speculative
 * decoding); Saxena 2023 (prompt lookup). */
#ifndef INFERD_ENGINE_LLM_SPEC_H
#define INFERD_ENGINE_LLM_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPEC_GUESS_MAX 16 /* guesses a sequence and step */
#define SPEC_COLS_MAX  64 /* steps with more columns aren't worth guesses */

/* What followed the last earlier occurrence of the longest suffix (4 to 2 tokens) of tokens[n] that occurs earlier: up to `max` tokens into
 * `out`. Returns how many. Looks back at most 16384 tokens. */
uint32_t spec_lookup(const int32_t *tokens, uint32_t n, uint32_t max, int32_t *out);

/* One sequence's record. Zero-initialised is "nothing known": the gate's average is taken. */
struct spec_record {
    float right; /* share of guesses that were right, an average */
    bool known;
    uint32_t idle; /* steps in which it could have guessed since it last did */
    uint32_t wait; /* how many of them until it tries again */
};

struct spec_gate {
    double cost_ns[SPEC_COLS_MAX + 1]; /* of a step of decodes with so many columns; 0: never seen */
    double guess_ns;                   /* of making one guess for every sequence (a draft model's step); 0: free */
    float right;                       /* over all sequences */
};
void spec_gate_init(struct spec_gate *g);

/* A sequence that could guess up to `len` > 0 tokens, and how many it should. */
struct spec_want {
    struct spec_record *record;
    uint32_t len, guess;
};

/* Decide for all sequences that could guess, beside `n_decode` decodes (theirs included); the columns stay within `max_cols`. */
void spec_gate_plan(struct spec_gate *g, struct spec_want *wants, uint32_t n_wants, uint32_t n_decode, uint32_t max_cols);

/* A step of decodes alone took `ns` for so many columns. */
void spec_gate_cost(struct spec_gate *g, uint32_t n_cols, uint64_t ns);
/* Making up to `k` guesses for the sequences of a step took `ns`. */
void spec_gate_guess_cost(struct spec_gate *g, uint32_t k, uint64_t ns);
/* Of `n` > 0 guesses the first `right` were right. */
void spec_gate_outcome(struct spec_gate *g, struct spec_record *r, uint32_t n, uint32_t right);

#endif
