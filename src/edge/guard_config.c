/* guard_config.c: input and output policies from YAML (guard.h has an example). A mistake names file, line, and what is accepted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "conf/yaml.h"
#include "edge/guard.h"
#include "edge/identity.h"

#define SET_ARENA_BYTES (16u << 10)
#define SET_BYTES_MAX   (64u << 20)
#define RULES_MAX       1024
#define LITERALS_MAX    10000
#define RATE_MIN        1e-6
#define RATE_MAX        0.5
#define RECORD_ROWS     2000
#define RECORD_ROWS_MAX 1000000

struct reader {
    const char *where;
    struct guard_set *set;
    struct arena *arena; /* the set's */
    struct error *err;
};

static int bad(const struct reader *r, const struct node *n, const char *accepted)
{
    static const char *const kinds[] = {[NODE_LIST] = "this list", [NODE_MAP] = "this map"};
    if (n->kind != NODE_SCALAR)
        return node_error(r->err, r->where, n->line, STATUS_INVALID, "%.*s: %s is not accepted; give %s", STR_ARG(n->key),
                          kinds[n->kind], accepted);
    return node_error(r->err, r->where, n->line, STATUS_INVALID, "%.*s: \"%.*s\" is not accepted; give %s", STR_ARG(n->key),
                      STR_ARG(n->text), accepted);
}

static int no_memory(const struct reader *r)
{
    return error_set(r->err, STATUS_NOMEM, "out of memory for the guard's policies");
}

/* One key of a map and what reads it into `to`. */
struct field {
    const char *key;
    int (*read)(const struct reader *r, const struct node *n, void *to);
    size_t offset;
};

static int read_fields(const struct reader *r, const struct node *map, const char *what, const struct field *f, size_t n_fields,
                       void *to)
{
    if (map->kind != NODE_MAP)
        return node_error(r->err, r->where, map->line, STATUS_INVALID, "%s is a map", what);
    for (const struct node *c = map->first; c; c = c->next) {
        size_t i = 0;
        while (i < n_fields && !str_eqz(c->key, f[i].key))
            i++;
        if (i == n_fields) {
            char keys[256] = "";
            size_t at = 0;
            for (i = 0; i < n_fields && at < sizeof keys - 1; i++)
                at += (size_t)snprintf(keys + at, sizeof keys - at, "%s%s", i ? ", " : "", f[i].key);
            return node_error(r->err, r->where, c->line, STATUS_INVALID, "%s has no \"%.*s\"; it has %s", what, STR_ARG(c->key),
                              keys);
        }
        int rc = f[i].read(r, c, (char *)to + f[i].offset);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- scalars ---- */

static int read_name(const struct reader *r, const struct node *n, void *to)
{
    if (n->kind != NODE_SCALAR || !edge_label_valid(n->text))
        return bad(r, n, "1 to 64 characters of A-Z a-z 0-9 . _ - @ : /");
    *(const char **)to = n->text.p;
    return 0;
}

static int read_string(const struct reader *r, const struct node *n, void *to)
{
    if (n->kind != NODE_SCALAR || memchr(n->text.p, 0, n->text.n))
        return bad(r, n, "a text");
    *(const char **)to = n->text.p;
    return 0;
}

static int read_pattern(const struct reader *r, const struct node *n, void *to)
{
    if (n->kind != NODE_SCALAR || !edge_pattern_valid(n->text))
        return bad(r, n, "names with * and ?, separated by commas");
    *(const char **)to = n->text.p;
    return 0;
}

static int read_bytes(const struct reader *r, const struct node *n, void *to)
{
    uint64_t *out = to;
    return n->kind == NODE_SCALAR && str_to_bytes(n->text, out) && *out ? 0 : bad(r, n, "a size from 1, such as 10MB or 64KiB");
}

static int read_count(const struct reader *r, const struct node *n, void *to)
{
    uint64_t *out = to;
    return n->kind == NODE_SCALAR && str_to_u64(n->text, out) && *out ? 0 : bad(r, n, "a whole number from 1");
}

static int read_rows(const struct reader *r, const struct node *n, void *to)
{
    uint64_t *out = to;
    bool ok = n->kind == NODE_SCALAR && str_to_u64(n->text, out) && *out >= GUARD_ROWS_MIN && *out <= RECORD_ROWS_MAX;
    return ok ? 0 : bad(r, n, "a whole number from 20 to 1000000");
}

static int read_hold(const struct reader *r, const struct node *n, void *to)
{
    uint64_t v = 0;
    bool ok = n->kind == NODE_SCALAR && str_to_bytes(n->text, &v) && v >= POLICY_HOLD_MIN && v <= POLICY_HOLD_MAX;
    *(size_t *)to = (size_t)v;
    return ok ? 0 : bad(r, n, "a size from 64 to 64KiB");
}

static int read_depth(const struct reader *r, const struct node *n, void *to)
{
    uint64_t v = 0;
    bool ok = n->kind == NODE_SCALAR && str_to_u64(n->text, &v) && v >= 1 && v <= GUARD_DEPTH_MAX;
    *(uint32_t *)to = (uint32_t)v;
    return ok ? 0 : bad(r, n, "a whole number from 1 to 100");
}

static int read_bool(const struct reader *r, const struct node *n, void *to)
{
    bool yes = n->kind == NODE_SCALAR && str_eqz(n->text, "true"), no = n->kind == NODE_SCALAR && str_eqz(n->text, "false");
    *(bool *)to = yes;
    return yes || no ? 0 : bad(r, n, "true or false");
}

static int read_rate(const struct reader *r, const struct node *n, void *to)
{
    double *out = to;
    bool ok = n->kind == NODE_SCALAR && str_to_f64(n->text, out) && *out >= RATE_MIN && *out <= RATE_MAX;
    return ok ? 0 : bad(r, n, "a share from 0.000001 to 0.5");
}

static int read_word(const struct reader *r, const struct node *n, const char *const *words, size_t n_words,
                     const char *accepted, int *out)
{
    for (size_t i = 0; i < n_words; i++)
        if (n->kind == NODE_SCALAR && str_eqz(n->text, words[i])) {
            *out = (int)i;
            return 0;
        }
    return bad(r, n, accepted);
}

static int read_mode(const struct reader *r, const struct node *n, void *to)
{
    static const char *const words[] = {"refuse", "flag", "log"};
    int v = 0, rc = read_word(r, n, words, COUNT_OF(words), "refuse, flag or log", &v);
    *(enum guard_mode *)to = (enum guard_mode)v;
    return rc;
}

static int read_action(const struct reader *r, const struct node *n, void *to)
{
    static const char *const words[] = {"redact", "refuse", "log"};
    int v = 0, rc = read_word(r, n, words, COUNT_OF(words), "redact, refuse or log", &v);
    *(enum policy_action *)to = (enum policy_action)v;
    return rc;
}

/* "32..512", "3" or -1 for any. */
static int read_span(const struct reader *r, const struct node *n, void *to)
{
    int64_t *span = to;
    const char *dots = n->kind == NODE_SCALAR && n->text.n ? strstr(n->text.p, "..") : NULL;
    struct str low = n->text, high = n->text;
    if (dots) {
        low.n = (size_t)(dots - n->text.p);
        high = (struct str){dots + 2, n->text.n - low.n - 2};
    }
    if (n->kind != NODE_SCALAR || !str_to_i64(low, &span[0]) || !str_to_i64(high, &span[1]) || span[0] < -1 ||
        span[0] > span[1] || (dots && span[0] < 0))
        return bad(r, n, "a whole number, a span such as 32..512, or -1 for any");
    if (span[0] == -1) {
        span[0] = 0;
        span[1] = INT64_MAX;
    }
    return 0;
}

static int read_match(const struct reader *r, const struct node *n, void *to)
{
    static const struct field fields[] = {{"tenant", read_pattern, offsetof(struct guard_match, tenant)},
                                          {"class", read_pattern, offsetof(struct guard_match, quota_class)},
                                          {"model", read_pattern, offsetof(struct guard_match, model)},
                                          {"route", read_pattern, offsetof(struct guard_match, route)}};
    return read_fields(r, n, "match", fields, COUNT_OF(fields), to);
}

/* ---- lists ---- */

/* Call `each` for every child of a list, or for the one scalar that stands for a list. */
static int read_list(const struct reader *r, const struct node *n, const char *accepted,
                     int (*each)(const struct reader *r, const struct node *n, void *to), void *to)
{
    if (n->kind == NODE_SCALAR)
        return each(r, n, to);
    if (n->kind != NODE_LIST || !n->n)
        return bad(r, n, accepted);
    int rc = 0;
    for (const struct node *c = n->first; rc == 0 && c; c = c->next)
        rc = each(r, c, to);
    return rc;
}

static int add_dtype(const struct reader *r, const struct node *n, void *to)
{
    enum dtype t = n->kind == NODE_SCALAR ? dtype_parse(n->text) : DTYPE_INVALID;
    *(unsigned *)to |= 1u << t;
    return t == DTYPE_INVALID ? bad(r, n, "a data type such as FP32, UINT8 or BYTES") : 0;
}

static int read_dtypes(const struct reader *r, const struct node *n, void *to)
{
    return read_list(r, n, "data types", add_dtype, to);
}

static int add_method(const struct reader *r, const struct node *n, void *to)
{
    int v = 0;
    const char *const words[] = {guard_method_name(0), guard_method_name(1), guard_method_name(2)};
    int rc = read_word(r, n, words, COUNT_OF(words), "robust_z, mahalanobis or total_variation", &v);
    *(unsigned *)to |= 1u << v;
    return rc;
}

static int read_methods(const struct reader *r, const struct node *n, void *to)
{
    return read_list(r, n, "a list of robust_z, mahalanobis, total_variation", add_method, to);
}

struct texts {
    const char **v;
    size_t n;
};

static int add_type(const struct reader *r, const struct node *n, void *to)
{
    struct texts *t = to;
    if (n->kind != NODE_SCALAR || !n->text.n || !memchr(n->text.p, '/', n->text.n))
        return bad(r, n, "a content type such as application/json");
    t->v[t->n++] = n->text.p;
    return 0;
}

static int read_types(const struct reader *r, const struct node *n, void *to)
{
    struct guard_input *p = to;
    struct texts t = {arena_array(r->arena, MAX_OF(n->n, (size_t)1), sizeof *t.v), 0};
    int rc = t.v ? read_list(r, n, "a list of content types", add_type, &t) : no_memory(r);
    p->types = t.v;
    p->n_types = t.n;
    return rc;
}

/* ---- rules over text ---- */

struct literals {
    struct str *v;
    size_t n;
};

static int add_literal(const struct reader *r, const struct node *n, void *to)
{
    struct literals *l = to;
    if (n->kind != NODE_SCALAR || !n->text.n)
        return bad(r, n, "a text");
    l->v[l->n++] = n->text;
    return 0;
}

static int read_literals(const struct reader *r, const struct node *n, void *to)
{
    struct policy_rule_spec *s = to;
    if (n->n > LITERALS_MAX)
        return node_error(r->err, r->where, n->line, STATUS_INVALID, "%zu literals are given; at most %d are accepted", n->n,
                          LITERALS_MAX);
    struct literals l = {arena_array(r->arena, MAX_OF(n->n, (size_t)1), sizeof *l.v), 0};
    int rc = l.v ? read_list(r, n, "a list of texts", add_literal, &l) : no_memory(r);
    s->literals = l.v;
    s->n_literals = l.n;
    return rc;
}

static int read_rule(const struct reader *r, const struct node *n, bool denies, struct policy_rule **out)
{
    static const struct field fields[] = {{"name", read_name, offsetof(struct policy_rule_spec, name)},
                                          {"builtin", read_string, offsetof(struct policy_rule_spec, builtin)},
                                          {"regex", read_string, offsetof(struct policy_rule_spec, regex)},
                                          {"literals", read_literals, 0},
                                          {"ignore_case", read_bool, offsetof(struct policy_rule_spec, ignore_case)},
                                          {"words", read_bool, offsetof(struct policy_rule_spec, words)},
                                          {"action", read_action, offsetof(struct policy_rule_spec, action)},
                                          {"replacement", read_string, offsetof(struct policy_rule_spec, replacement)}};
    struct policy_rule_spec s = {.action = denies ? POLICY_REFUSE : POLICY_REDACT};
    struct error why = {0};
    int rc = read_fields(r, n, "a rule", fields, COUNT_OF(fields), &s);
    if (rc < 0)
        return rc;
    if (!s.name)
        s.name = s.builtin ? s.builtin : s.regex ? "regex" : "literals";
    if (denies && (s.action != POLICY_REFUSE || s.replacement))
        return node_error(r->err, r->where, n->line, STATUS_INVALID,
                          "the rule \"%s\": what is denied has no action of its own: the policy's mode says what comes of it",
                          s.name);
    if (r->set->n_rules == RULES_MAX)
        return node_error(r->err, r->where, n->line, STATUS_INVALID, "there are more than %d rules", RULES_MAX);
    rc = policy_rule_create(&s, out, &why);
    if (rc < 0)
        return node_error(r->err, r->where, n->line, rc, "the rule \"%s\": %s", s.name, why.text);
    r->set->rules[r->set->n_rules++] = *out;
    return 0;
}

static int read_rules(const struct reader *r, const struct node *n, bool denies, const struct policy_rule *const **out,
                      size_t *n_out)
{
    if (n->kind != NODE_LIST || !n->n || n->n > POLICY_RULES_MAX)
        return node_error(r->err, r->where, n->line, STATUS_INVALID, "%.*s is a list of 1 to %d rules", STR_ARG(n->key),
                          POLICY_RULES_MAX);
    struct policy_rule **v = arena_array(r->arena, n->n, sizeof *v);
    if (!v)
        return no_memory(r);
    *out = (const struct policy_rule *const *)v;
    *n_out = n->n;
    size_t i = 0;
    for (const struct node *c = n->first; c; c = c->next, i++) {
        int rc = read_rule(r, c, denies, &v[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- inputs ---- */

static int read_text(const struct reader *r, const struct node *n, void *to)
{
    static const struct field fields[] = {{"max_bytes", read_bytes, offsetof(struct guard_text, max_bytes)},
                                          {"max_chars", read_count, offsetof(struct guard_text, max_chars)},
                                          {"max_tokens", read_count, offsetof(struct guard_text, max_tokens)},
                                          {"control", read_bool, offsetof(struct guard_text, control)},
                                          {"any_bytes", read_bool, offsetof(struct guard_text, any_bytes)}};
    return read_fields(r, n, "text", fields, COUNT_OF(fields), to);
}

static int read_tensor_text(const struct reader *r, const struct node *n, void *to)
{
    struct guard_tensor *t = to;
    t->has_text = true;
    int rc = read_text(r, n, &t->text);
    return rc == 0 && t->text.max_tokens ? node_error(r->err, r->where, n->line, STATUS_INVALID,
                                                      "max_tokens is for prompts: a tensor's text is in nobody's tokens")
                                         : rc;
}

static int read_prompt(const struct reader *r, const struct node *n, void *to)
{
    struct guard_input *p = to;
    p->has_text = true;
    return read_text(r, n, &p->text);
}

static int read_layout(const struct reader *r, const struct node *n, void *to)
{
    static const char *const words[] = {"", "hwc", "chw"};
    int v = 0, rc = read_word(r, n, words, COUNT_OF(words), "hwc or chw", &v);
    *(enum guard_layout *)to = (enum guard_layout)v;
    return rc == 0 && !v ? bad(r, n, "hwc or chw") : rc;
}

static int read_image(const struct reader *r, const struct node *n, void *to)
{
    static const struct field fields[] = {{"layout", read_layout, offsetof(struct guard_image, layout)},
                                          {"width", read_span, offsetof(struct guard_image, width)},
                                          {"height", read_span, offsetof(struct guard_image, height)},
                                          {"channels", read_span, offsetof(struct guard_image, channels)}};
    struct guard_image *g = to;
    *g = (struct guard_image){
        .layout = GUARD_CHW, .width = {1, INT64_MAX}, .height = {1, INT64_MAX}, .channels = {1, INT64_MAX}};
    return read_fields(r, n, "image", fields, COUNT_OF(fields), to);
}

static int read_shape(const struct reader *r, const struct node *n, void *to)
{
    struct guard_tensor *t = to;
    if (n->kind != NODE_LIST || n->n > TENSOR_RANK_MAX)
        return bad(r, n, "a list of dimensions, such as [-1, 3, 32..512, 32..512]");
    t->has_shape = true;
    for (const struct node *c = n->first; c; c = c->next) {
        int64_t span[2];
        int rc = read_span(r, c, span);
        if (rc < 0)
            return rc;
        t->least[t->rank] = span[0];
        t->most[t->rank++] = span[1];
    }
    return 0;
}

static int read_range(const struct reader *r, const struct node *n, void *to)
{
    struct guard_tensor *t = to;
    t->has_range = true;
    bool ok = n->kind == NODE_LIST && n->n == 2 && n->first->kind == NODE_SCALAR && n->last->kind == NODE_SCALAR &&
              str_to_f64(n->first->text, &t->range[0]) && str_to_f64(n->last->text, &t->range[1]) && t->range[0] <= t->range[1];
    return ok ? 0 : bad(r, n, "two numbers, the least value first and the greatest second");
}

static int read_tensor(const struct reader *r, const struct node *n, void *to)
{
    static const struct field fields[] = {{"input", read_pattern, offsetof(struct guard_tensor, input)},
                                          {"dtype", read_dtypes, offsetof(struct guard_tensor, dtypes)},
                                          {"shape", read_shape, 0},
                                          {"range", read_range, 0},
                                          {"finite", read_bool, offsetof(struct guard_tensor, finite)},
                                          {"image", read_image, offsetof(struct guard_tensor, image)},
                                          {"text", read_tensor_text, 0}};
    struct guard_tensor *t = to;
    t->input = "*";
    return read_fields(r, n, "an entry of tensors", fields, COUNT_OF(fields), t);
}

static int read_tensors(const struct reader *r, const struct node *n, void *to)
{
    struct guard_input *p = to;
    if (n->kind != NODE_LIST || !n->n)
        return bad(r, n, "a list of rules for inputs");
    p->tensors = arena_array(r->arena, n->n, sizeof *p->tensors);
    int rc = p->tensors ? 0 : no_memory(r);
    for (const struct node *c = n->first; rc == 0 && c; c = c->next)
        rc = read_tensor(r, c, &p->tensors[p->n_tensors++]);
    return rc;
}

static int read_denied(const struct reader *r, const struct node *n, void *to)
{
    struct guard_input *p = to;
    return read_rules(r, n, true, &p->denied, &p->n_denied);
}

static int read_reference(const struct reader *r, const struct node *n, void *to)
{
    static const struct field fields[] = {{"input", read_string, offsetof(struct guard_reference_rule, input)},
                                          {"file", read_string, offsetof(struct guard_reference_rule, file)},
                                          {"methods", read_methods, offsetof(struct guard_reference_rule, methods)},
                                          {"false_positive_rate", read_rate, offsetof(struct guard_reference_rule, rate)},
                                          {"mode", read_mode, offsetof(struct guard_reference_rule, mode)},
                                          {"record_rows", read_rows, offsetof(struct guard_reference_rule, record_rows)}};
    struct guard_reference_rule *x = ARENA_NEW(r->arena, struct guard_reference_rule);
    if (!x)
        return no_memory(r);
    *(struct guard_reference_rule **)to = x;
    *x = (struct guard_reference_rule){.rate = 0.01, .mode = GUARD_FLAG, .record_rows = RECORD_ROWS};
    int rc = read_fields(r, n, "reference", fields, COUNT_OF(fields), x);
    if (!x->methods)
        x->methods = 1u << GUARD_ROBUST_Z | 1u << GUARD_MAHALANOBIS;
    return rc;
}

static int check_input(const struct reader *r, const struct node *n, const struct guard_input *p)
{
    bool image = false;
    for (size_t i = 0; i < p->n_tensors; i++)
        image |= p->tensors[i].image.layout != GUARD_NO_IMAGE;
    if (!p->reference)
        return 0;
    if (!p->match.model || strpbrk(p->match.model, "*?,"))
        return node_error(r->err, r->where, n->line, STATUS_INVALID,
                          "the policy \"%s\" has a reference, which is one model's: match.model must be its name", p->name);
    if (p->reference->methods & 1u << GUARD_TOTAL_VARIATION && !image)
        return node_error(r->err, r->where, n->line, STATUS_INVALID,
                          "the policy \"%s\" asks for total_variation, but none of its tensors is an image", p->name);
    return 0;
}

static int read_input(const struct reader *r, const struct node *n, struct guard_input *p)
{
    static const struct field fields[] = {{"name", read_name, offsetof(struct guard_input, name)},
                                          {"match", read_match, offsetof(struct guard_input, match)},
                                          {"mode", read_mode, offsetof(struct guard_input, mode)},
                                          {"forwarded", read_bool, offsetof(struct guard_input, forwarded)},
                                          {"content_types", read_types, 0},
                                          {"max_body", read_bytes, offsetof(struct guard_input, max_body)},
                                          {"json_depth", read_depth, offsetof(struct guard_input, max_depth)},
                                          {"tensors", read_tensors, 0},
                                          {"text", read_prompt, 0},
                                          {"deny", read_denied, 0},
                                          {"reference", read_reference, offsetof(struct guard_input, reference)}};
    p->max_body = GUARD_BODY_DEFAULT;
    p->forwarded = true;
    p->hits = arena_array(r->arena, GUARD_CHECKS, sizeof *p->hits);
    int rc = p->hits ? read_fields(r, n, "an input policy", fields, COUNT_OF(fields), p) : no_memory(r);
    return rc ? rc : check_input(r, n, p);
}

static int read_output_rules(const struct reader *r, const struct node *n, void *to)
{
    struct guard_output *p = to;
    return read_rules(r, n, false, &p->rules, &p->n_rules);
}

static int read_output(const struct reader *r, const struct node *n, struct guard_output *p)
{
    static const struct field fields[] = {{"name", read_name, offsetof(struct guard_output, name)},
                                          {"match", read_match, offsetof(struct guard_output, match)},
                                          {"forwarded", read_bool, offsetof(struct guard_output, forwarded)},
                                          {"rules", read_output_rules, 0},
                                          {"hold_bytes", read_hold, offsetof(struct guard_output, hold_bytes)}};
    p->hold_bytes = POLICY_HOLD_DEFAULT;
    p->forwarded = true;
    int rc = read_fields(r, n, "an output policy", fields, COUNT_OF(fields), p);
    if (rc == 0 && !p->n_rules)
        rc = node_error(r->err, r->where, n->line, STATUS_INVALID, "an output policy needs rules");
    p->hits = rc == 0 ? arena_array(r->arena, p->n_rules, sizeof *p->hits) : NULL;
    return rc == 0 && !p->hits ? no_memory(r) : rc;
}

/* ---- the whole ---- */

static int check_name(const struct reader *r, const struct node *n, const char *name, const char *other)
{
    if (!name)
        return node_error(r->err, r->where, n->line, STATUS_INVALID, "a policy needs a name");
    if (other && strcmp(name, other) == 0)
        return node_error(r->err, r->where, n->line, STATUS_INVALID, "the policy \"%s\" is there twice", name);
    return 0;
}

static int check_list(const struct reader *r, const struct node *n)
{
    if (n->kind != NODE_LIST || n->n > GUARD_POLICIES_MAX)
        return node_error(r->err, r->where, n->line, STATUS_INVALID, "%.*s is a list of at most %d policies", STR_ARG(n->key),
                          GUARD_POLICIES_MAX);
    return 0;
}

static int read_inputs(const struct reader *r, const struct node *n, void *to)
{
    struct guard_set *s = to;
    int rc = check_list(r, n);
    if (rc == 0 && !(s->inputs = arena_array(r->arena, n->n, sizeof *s->inputs)))
        rc = no_memory(r);
    for (const struct node *c = n->first; rc == 0 && c; c = c->next) {
        struct guard_input *p = &s->inputs[s->n_inputs++];
        rc = read_input(r, c, p);
        if (rc == 0)
            rc = check_name(r, c, p->name, NULL);
        for (size_t k = 0; rc == 0 && k + 1 < s->n_inputs; k++)
            rc = check_name(r, c, p->name, s->inputs[k].name);
        for (size_t k = 0; rc == 0 && p->reference && k + 1 < s->n_inputs; k++)
            if (s->inputs[k].reference && strcmp(s->inputs[k].match.model, p->match.model) == 0)
                rc =
                    node_error(r->err, r->where, c->line, STATUS_INVALID,
                               "the policies \"%s\" and \"%s\" have a reference each of one model", s->inputs[k].name, p->name);
    }
    return rc;
}

static int read_outputs(const struct reader *r, const struct node *n, void *to)
{
    struct guard_set *s = to;
    int rc = check_list(r, n);
    if (rc == 0 && !(s->outputs = arena_array(r->arena, n->n, sizeof *s->outputs)))
        rc = no_memory(r);
    for (const struct node *c = n->first; rc == 0 && c; c = c->next) {
        struct guard_output *p = &s->outputs[s->n_outputs++];
        rc = read_output(r, c, p);
        if (rc == 0)
            rc = check_name(r, c, p->name, NULL);
        for (size_t k = 0; rc == 0 && k + 1 < s->n_outputs; k++)
            rc = check_name(r, c, p->name, s->outputs[k].name);
    }
    return rc;
}

int guard_set_parse(struct str text, const char *where, struct guard_set **out, struct error *err)
{
    static const struct field fields[] = {{"inputs", read_inputs, 0}, {"outputs", read_outputs, 0}};
    struct node *root;
    struct guard_set *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(err, STATUS_NOMEM, "out of memory for the guard's policies");
    atomic_init(&s->refs, 1);
    arena_init(&s->arena, SET_ARENA_BYTES, SET_BYTES_MAX);
    struct reader r = {where, s, &s->arena, err};
    s->rules = arena_array(&s->arena, RULES_MAX, sizeof(struct policy_rule *));
    int rc = s->rules ? yaml_parse(text, where, &s->arena, &root, err) : no_memory(&r);
    if (rc == 0)
        rc = read_fields(&r, root, "the file", fields, COUNT_OF(fields), s);
    if (rc < 0) {
        guard_set_unref(s);
        return rc;
    }
    *out = s;
    return 0;
}

struct guard_set *guard_set_ref(struct guard_set *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

/* The releasing decrement pairs with the acquire of the last one. */
void guard_set_unref(struct guard_set *s)
{
    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < s->n_rules; i++)
        policy_rule_destroy(s->rules[i]);
    arena_release(&s->arena);
    free(s);
}

static bool one_matches(const char *pattern, struct str name)
{
    return !pattern || edge_pattern_match(str_of(pattern), name);
}

bool guard_matches(const struct guard_match *m, const struct guard_who *who)
{
    return one_matches(m->route, who->route) &&
           (one_matches(m->model, who->model) || (who->asked.n && one_matches(m->model, who->asked))) &&
           one_matches(m->tenant, who->tenant) && one_matches(m->quota_class, who->quota_class);
}
