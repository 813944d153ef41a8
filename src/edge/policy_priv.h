/* policy_priv.h: for policy*.c only. */
#ifndef INFERD_EDGE_POLICY_PRIV_H
#define INFERD_EDGE_POLICY_PRIV_H

#include "edge/policy.h"

/* A built-in: a pattern that finds candidates, and a check that a pattern can't do. */
struct policy_builtin {
    const char *name, *pattern;
    /* (optional) How much of the candidate `text[0..n)` really is one; 0: none of it. */
    size_t (*check)(const char *text, size_t n);
};
/* NULL: there is none of that name. */
const struct policy_builtin *policy__builtin(struct str name);

struct pcre2_real_code_8;

struct policy_rule {
    char *name, *replacement;
    enum policy_action action;
    const struct policy_builtin *builtin;
    struct pcre2_real_code_8 *code;
    size_t lookbehind_bytes; /* that a search may look at before its start */
};

/* policy_json.c: what redactor_push does with a REDACTOR_JSON, on top of one for text. */
struct policy_json;
struct policy_json *policy__json_create(size_t limit_bytes);
void policy__json_destroy(struct policy_json *j);
void policy__json_reset(struct policy_json *j);
/* EXHAUSTED: a number or a name longer than the limit. */
int policy__json_push(struct policy_json *j, struct redactor *text, struct str s, bool last, struct buf *out) MUST_CHECK;
/* policy_stream.c: redactor_push for text, whatever the redactor's form. */
int policy__text_push(struct redactor *r, struct str text, bool last, struct buf *out) MUST_CHECK;

#endif
