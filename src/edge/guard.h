/* guard.h: what may come in and what may go out: policies over inputs and outputs of models, from YAML.
 *
 *   inputs:
 *   - name: vision
 *     match: {model: "resnet*", tenant: "*", route: infer}     # patterns as edge_pattern_match; all optional
 *     mode: refuse                                             # or flag (reply header), log
 *     max_body: 10MB
 *     tensors: [{input: X, dtype: FP32, shape: [-1, 3, 32..512, 32..512], range: [0, 1]}]
 *   outputs:
 *   - name: pii
 *     match: {model: "chat*"}
 *     rules: [{builtin: card}, {regex: "...", name: codename, action: refuse}]
 *
 * (docs/guide/guards.md has all of it.) Every policy that matches a request holds for it, in the file's order.
 *
 * A set is immutable and refcounted: a request keeps the one it began with. Checks are pure: tensors and text in, a finding out; they
 * allocate nothing. Any thread. */
#ifndef INFERD_EDGE_GUARD_H
#define INFERD_EDGE_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "edge/guard_stats.h"
#include "edge/policy.h"
#include "tensor/tensor.h"

#define GUARD_POLICIES_MAX 64        /* of each kind: a request remembers those that flagged it in a word */
#define GUARD_BODY_DEFAULT 10000000u /* bytes; of a request that an input policy matches */
#define GUARD_DEPTH_MAX    100

enum guard_mode { GUARD_REFUSE, GUARD_FLAG, GUARD_LOG };
/* "refuse", "flag", "log". Constants. */
const char *guard_mode_name(enum guard_mode m);

/* What was found wrong; labels of the metric. */
enum guard_check {
    GUARD_CONTENT_TYPE,
    GUARD_BODY,
    GUARD_DEPTH,
    GUARD_DTYPE,
    GUARD_SHAPE,
    GUARD_RANGE,
    GUARD_FINITE,
    GUARD_IMAGE,
    GUARD_TEXT,
    GUARD_DENIED, /* a rule of `deny` matched */
    GUARD_SCORE,  /* unlike the reference */
    GUARD_CHECKS
};
/* "content_type" and so on. Constants. */
const char *guard_check_name(enum guard_check c);

/* Patterns; NULL: any. */
struct guard_match {
    const char *tenant, *quota_class, *model, *route;
};

/* `asked`: the model that was asked for where another answers in its place, or an adapter of it; its policies hold as well. Empty: the same. */
struct guard_who {
    struct str tenant, quota_class, model, asked, route;
};

struct guard_text {
    uint64_t max_bytes, max_chars, max_tokens; /* 0: no limit */
    bool control;                              /* control characters but tab and line ends are accepted */
    bool any_bytes;                            /* need not be UTF-8 */
};

enum guard_layout { GUARD_NO_IMAGE, GUARD_HWC, GUARD_CHW };

struct guard_image {
    enum guard_layout layout;
    int64_t width[2], height[2], channels[2]; /* least, most */
};

struct guard_tensor {
    const char *input; /* a pattern */
    unsigned dtypes;   /* a bit for each enum dtype; 0: any */
    bool has_shape, has_range, finite, has_text;
    uint8_t rank;
    int64_t least[TENSOR_RANK_MAX], most[TENSOR_RANK_MAX];
    double range[2];
    struct guard_image image;
    struct guard_text text;
};

struct metric;
struct guard_slot; /* guard_gate.c: what became of a reference */

struct guard_input {
    const char *name;
    struct guard_match match;
    enum guard_mode mode;
    bool forwarded;           /* holds for what the gateway sends on, too */
    const char *const *types; /* [n_types] content types; none: any */
    size_t n_types;
    uint64_t max_body;            /* bytes */
    uint32_t max_depth;           /* of JSON; 0: the parser's own */
    struct guard_tensor *tensors; /* [n_tensors] */
    size_t n_tensors;
    bool has_text;
    struct guard_text text;                  /* of prompts */
    const struct policy_rule *const *denied; /* [n_denied] in prompts and BYTES inputs */
    size_t n_denied;
    struct guard_reference_rule *reference; /* NULL: none */
    struct metric **hits;                   /* [GUARD_CHECKS]; the gate's */
    struct guard_slot *slot;                /* of the reference; the gate's */
};

struct guard_reference_rule {
    const char *input; /* a name; NULL: the only one */
    const char *file;  /* NULL: the gate's own place */
    unsigned methods;  /* of enum guard_method, a bit each */
    double rate;       /* false positives */
    enum guard_mode mode;
    uint64_t record_rows;
};

struct guard_output {
    const char *name;
    struct guard_match match;
    bool forwarded;                         /* see above */
    const struct policy_rule *const *rules; /* [n_rules] */
    size_t n_rules, hold_bytes;
    struct metric **hits; /* [n_rules]; the gate's */
};

struct guard_set {
    _Atomic uint32_t refs;
    struct arena arena;
    struct guard_input *inputs;   /* [n_inputs] */
    struct guard_output *outputs; /* [n_outputs] */
    size_t n_inputs, n_outputs;
    struct policy_rule **rules; /* [n_rules] all of them, owned */
    size_t n_rules;
};

/* With one reference. INVALID names file, line, and what is accepted; NOMEM. */
int guard_set_parse(struct str text, const char *where, struct guard_set **out, struct error *err) MUST_CHECK;
struct gateway_config;
/* Of what the gateway sends on, the guard sees the body as bytes, and nothing of the answer. INVALID: a policy asks for more and may match what one of
 * these routes sends on; the sentence names both. */
int guard_check_routes(const struct guard_set *s, const struct gateway_config *routes, struct error *err) MUST_CHECK;
struct guard_set *guard_set_ref(struct guard_set *s);
void guard_set_unref(struct guard_set *s); /* NULL is accepted */

/* Does a policy hold for this request? An empty model, which isn't known yet, matches only policies for any. */
bool guard_matches(const struct guard_match *m, const struct guard_who *who);

/* ---- checks: 0, or INVALID with *check and a sentence that names input, value, position and what is accepted ---- */

/* May a body call itself this? MEDIA_TYPE. */
int guard_check_type(const struct guard_input *p, struct str type, enum guard_check *check, struct error *err) MUST_CHECK;
/* One input against all rules for it. `denied`: a redactor over p->denied, or NULL where there are none. */
int guard_check_tensor(const struct guard_input *p, const struct tensor *t, struct redactor *denied, enum guard_check *check,
                       struct error *err) MUST_CHECK;
/* Text of a prompt; `field` is its name in errors. */
int guard_check_text(const struct guard_text *limits, struct str text, const char *field, enum guard_check *check,
                     struct error *err) MUST_CHECK;
/* Rules of `deny`. Text that a rule only redacts is refused as well: there is nobody to give the rest to. */
int guard_check_denied(struct redactor *denied, struct str text, const char *field, enum guard_check *check,
                       struct error *err) MUST_CHECK;

#endif
