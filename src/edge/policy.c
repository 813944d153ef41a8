/* policy.c: rules: from a specification to a compiled pattern. See policy.h.
 *
 * Patterns are checked for what would make a match depend on where the text was cut: \G and \K (where the search began), \C (half a
 * character), verbs such as (*COMMIT) (which end the search for later starts). A list of literals becomes one alternation, the longest
 * first, so that the longest of those that start at one place is taken. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "edge/policy.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/size.h"
#include "base/status.h"
#include "edge/policy_priv.h"

#define UTF8_BYTES_MAX   4
#define LOOKBEHIND_MIN   4 /* characters that are always kept */
#define PARENS_DEPTH_MAX 64
#define MESSAGE_BYTES    160

const char *policy_action_name(enum policy_action a)
{
    static const char *const names[] = {"redact", "refuse", "log"};
    return names[a];
}

const char *policy_rule_name(const struct policy_rule *r)
{
    return r->name;
}

enum policy_action policy_rule_action(const struct policy_rule *r)
{
    return r->action;
}

static int no_memory(struct error *err)
{
    return error_set(err, STATUS_NOMEM, "out of memory for a rule");
}

/* What in a pattern would depend on where the text is cut; NULL: nothing. */
static const char *find_unsafe(const char *p)
{
    for (; *p; p++) {
        if (p[0] == '(' && p[1] == '*')
            return "(*";
        if (p[0] == '\\' && p[1]) {
            if (p[1] == 'G' || p[1] == 'K' || p[1] == 'C')
                return p[1] == 'G' ? "\\G" : p[1] == 'K' ? "\\K" : "\\C";
            p++;
        }
    }
    return NULL;
}

static int compile(struct policy_rule *r, struct str pattern, bool ignore_case, struct error *err)
{
    int code;
    PCRE2_SIZE at;
    uint32_t behind = 0, empty = 0;
    uint32_t options = PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C | (ignore_case ? PCRE2_CASELESS : 0);
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context)
        return no_memory(err);
    pcre2_set_parens_nest_limit(context, PARENS_DEPTH_MAX);
    r->code = pcre2_compile((PCRE2_SPTR)pattern.p, pattern.n, options, &code, &at, context);
    pcre2_compile_context_free(context);
    if (!r->code) {
        char text[MESSAGE_BYTES];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
        return error_set(err, STATUS_INVALID, "the regular expression is wrong at character %zu: %s", (size_t)at, text);
    }
    pcre2_pattern_info(r->code, PCRE2_INFO_MAXLOOKBEHIND, &behind);
    pcre2_pattern_info(r->code, PCRE2_INFO_MATCHEMPTY, &empty);
    r->lookbehind_bytes = UTF8_BYTES_MAX * (size_t)MAX_OF(behind, (uint32_t)LOOKBEHIND_MIN);
    if (empty)
        return error_set(err, STATUS_INVALID,
                         "the regular expression matches an empty text; it must need a character at least");
    return 0;
}

static int compile_regex(struct policy_rule *r, const struct policy_rule_spec *s, struct error *err)
{
    struct str pattern = str_of(s->regex);
    const char *unsafe = find_unsafe(s->regex);
    if (!pattern.n || pattern.n > POLICY_PATTERN_MAX)
        return error_set(err, STATUS_INVALID, "the regular expression has %zu bytes; 1 to %d are accepted", pattern.n,
                         POLICY_PATTERN_MAX);
    if (unsafe)
        return error_set(err, STATUS_INVALID, "the regular expression has %s, which can't be used in a stream", unsafe);
    return compile(r, pattern, s->ignore_case, err);
}

static int longest_first(const void *a, const void *b)
{
    const struct str *x = a, *y = b;
    return x->n < y->n ? 1 : x->n > y->n ? -1 : memcmp(x->p, y->p, x->n);
}

/* Quoted for PCRE2: everything but letters, digits and what isn't ASCII behind a backslash. */
static void append_quoted(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        bool plain = c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!plain && c > ' ')
            buf_append_c(out, '\\');
        if (c <= ' ')
            buf_printf(out, "\\x%02x", c);
        else
            buf_append_c(out, (char)c);
    }
}

static int check_literals(const struct policy_rule_spec *s, struct error *err)
{
    size_t total = 0;
    for (size_t i = 0; i < s->n_literals; i++) {
        struct str t = s->literals[i];
        total += t.n;
        if (!t.n || t.n > POLICY_HOLD_MIN * 4)
            return error_set(err, STATUS_INVALID, "literal %zu has %zu bytes; 1 to %d are accepted", i, t.n,
                             POLICY_HOLD_MIN * 4);
    }
    if (total > POLICY_LITERALS_BYTES)
        return error_set(err, STATUS_INVALID, "the literals have %zu bytes together; at most %d are accepted", total,
                         POLICY_LITERALS_BYTES);
    return 0;
}

static int compile_literals(struct policy_rule *r, const struct policy_rule_spec *s, struct error *err)
{
    struct buf pattern;
    int rc = check_literals(s, err);
    if (rc < 0)
        return rc;
    struct str *sorted = calloc(s->n_literals, sizeof *sorted);
    if (!sorted)
        return no_memory(err);
    memcpy(sorted, s->literals, s->n_literals * sizeof *sorted);
    qsort(sorted, s->n_literals, sizeof *sorted, longest_first);
    buf_init(&pattern);
    buf_append_z(&pattern, s->words ? "(?<![\\p{L}\\p{N}_])(?:" : "(?:");
    for (size_t i = 0; i < s->n_literals; i++) {
        if (i)
            buf_append_c(&pattern, '|');
        append_quoted(&pattern, sorted[i]);
    }
    buf_append_z(&pattern, s->words ? ")(?![\\p{L}\\p{N}_])" : ")");
    rc = pattern.failed ? no_memory(err) : compile(r, buf_str(&pattern), s->ignore_case, err);
    buf_release(&pattern);
    free(sorted);
    return rc;
}

static int compile_builtin(struct policy_rule *r, const struct policy_rule_spec *s, struct error *err)
{
    r->builtin = policy__builtin(str_of(s->builtin));
    if (r->builtin)
        return compile(r, str_of(r->builtin->pattern), false, err);
    return error_set(err, STATUS_INVALID, "there is no built-in \"%s\"; there are card, cn_id, us_ssn, phone, email and secret",
                     s->builtin);
}

static int set_texts(struct policy_rule *r, const struct policy_rule_spec *s, struct error *err)
{
    struct buf text;
    struct str given = str_of(s->replacement);
    for (size_t i = 0; i < given.n; i += str_utf8_at(given, i) ? str_utf8_at(given, i) : given.n)
        if ((unsigned char)given.p[i] < ' ' || given.p[i] == 0x7f || !str_utf8_at(given, i))
            return error_set(err, STATUS_INVALID, "the replacement has a character that can't be shown at byte %zu", i);
    if (given.n > POLICY_REPLACEMENT_MAX)
        return error_set(err, STATUS_INVALID, "the replacement has %zu bytes; at most %d are accepted", given.n,
                         POLICY_REPLACEMENT_MAX);
    buf_init(&text);
    if (s->replacement)
        buf_append_z(&text, s->replacement);
    else
        buf_printf(&text, "[REDACTED:%s]", s->name);
    r->replacement = text.failed ? NULL : str_dup(buf_str(&text));
    r->name = str_dup(str_of(s->name));
    buf_release(&text);
    return r->name && r->replacement ? 0 : no_memory(err);
}

int policy_rule_create(const struct policy_rule_spec *s, struct policy_rule **out, struct error *err)
{
    int given = (s->builtin != NULL) + (s->regex != NULL) + (s->n_literals > 0);
    if (given != 1)
        return error_set(err, STATUS_INVALID, "a rule has one of builtin, regex and literals; this one has %s",
                         given ? "several" : "none");
    struct policy_rule *r = calloc(1, sizeof *r);
    if (!r)
        return no_memory(err);
    r->action = s->action;
    int rc = set_texts(r, s, err);
    if (rc == 0)
        rc = s->builtin ? compile_builtin(r, s, err) : s->regex ? compile_regex(r, s, err) : compile_literals(r, s, err);
    if (rc < 0) {
        policy_rule_destroy(r);
        return rc;
    }
    *out = r;
    return 0;
}

void policy_rule_destroy(struct policy_rule *r)
{
    if (!r)
        return;
    pcre2_code_free(r->code);
    free(r->name);
    free(r->replacement);
    free(r);
}
