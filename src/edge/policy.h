/* policy.h: text that may not leave, or come in, as it is: what a rule looks for, and a redactor that looks in a stream.
 *
 * A rule is a built-in detector, a regular expression (PCRE2) or a list of literal texts, and what to do about a match: redact (put a
 * replacement in its place), refuse (the text ends before it), or log (count it, change nothing).
 *
 * What a redactor gives for a text depends on the text alone, never on the pieces it came in:
 *
 *   - from the left, the match that starts first counts; of several that start at one place, that of the first rule;
 *   - the next is looked for behind its end; what was before, redacted or not, may still be looked back at;
 *   - a match is at most `hold_bytes` long: where it starts is decided by so many bytes. What is longer is matched in pieces.
 *
 * It holds back what may still be (part of) a match, and nothing else: PCRE2 says where a match may have begun that the end of the text
 * cuts off (PCRE2_PARTIAL_HARD). Each search is bounded in steps and memory; one that passes the bound refuses the text, since it
 * could not be looked at ("ReDoS" fails closed). No machine code is made at run time: hardened systems forbid it.
 *
 * Rules are immutable and may be used by any thread; a redactor by one at a time. */
#ifndef INFERD_EDGE_POLICY_H
#define INFERD_EDGE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

#define POLICY_HOLD_MIN        64
#define POLICY_HOLD_MAX        65536
#define POLICY_HOLD_DEFAULT    4096
#define POLICY_PATTERN_MAX     4096
#define POLICY_LITERALS_BYTES  65536 /* of one list */
#define POLICY_REPLACEMENT_MAX 256
#define POLICY_RULES_MAX       64 /* of one redactor */

enum policy_action { POLICY_REDACT, POLICY_REFUSE, POLICY_LOG };
/* "redact", "refuse", "log". Constants. */
const char *policy_action_name(enum policy_action a);

struct policy_rule;

/* Exactly one of builtin, regex and literals. Everything is copied. */
struct policy_rule_spec {
    const char *name; /* in replies, metrics and logs */
    enum policy_action action;
    const char *builtin, *regex;
    const struct str *literals; /* [n_literals] */
    size_t n_literals;
    bool ignore_case, words; /* words (literals only): no letter, digit or _ before and behind */
    const char *replacement; /* NULL: "[REDACTED:name]" */
};

/* INVALID says what is wrong with the spec and what is accepted; NOMEM. */
int policy_rule_create(const struct policy_rule_spec *s, struct policy_rule **out, struct error *err) MUST_CHECK;
void policy_rule_destroy(struct policy_rule *r); /* NULL is accepted */
const char *policy_rule_name(const struct policy_rule *r);
enum policy_action policy_rule_action(const struct policy_rule *r);

/* The `i`th built-in's name; NULL past the end. */
const char *policy_builtin_name(size_t i);

/* TEXT: as it is. JSON: a JSON text; rules see the values of its strings (escapes decoded, encoded again) and its numbers and names, each for
 * itself; a number with a match becomes a string, so that what comes out is as much JSON as what went in. */
enum redactor_form { REDACTOR_TEXT, REDACTOR_JSON };

struct redactor;

/* `rules` [n], n at most POLICY_RULES_MAX, outlive it. hold_bytes 0: POLICY_HOLD_DEFAULT. NULL: out of memory. */
struct redactor *redactor_create(const struct policy_rule *const *rules, size_t n, size_t hold_bytes, enum redactor_form form);
void redactor_destroy(struct redactor *r); /* NULL is accepted */

/* The next piece; what may leave is appended to `out`. `last`: the text ends here, nothing is held back; the next push begins another text.
 * FORBIDDEN: a rule refuses it: what came before the match is in `out`, and nothing more may follow. NOMEM. */
int redactor_push(struct redactor *r, struct str text, bool last, struct buf *out) MUST_CHECK;

/* The rule that refused; NULL: none. */
const struct policy_rule *redactor_refused_by(const struct redactor *r);
/* It refused because a search passed its bound, not because of a match. */
bool redactor_gave_up(const struct redactor *r);
/* Matches of rule `i` so far, over all texts. */
uint64_t redactor_hits(const struct redactor *r, size_t i);
/* Was anything replaced so far, over all texts? */
bool redactor_changed(const struct redactor *r);

#endif
