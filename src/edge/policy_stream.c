/* policy_stream.c: rules over a text that comes in pieces. What comes out is defined by policy.h; here is how.
 *
 *     text: [ looked at, given out | undecided ........ | half a character ]
 *            0                     given                end               n
 *
 * Each rule searches on its own from `clean`: no match of it starts before. A search sees the text up to `hold` bytes behind `clean` (its window)
 * and has one of three outcomes, each independent of all text behind the window:
 *
 *     full      the match [start, end) is certain
 *     partial   one may start at p and was cut off: clean = p. When the window ends before the text does and p is where it began, it is
 *               judged by the window alone, as if the text ended there
 *     none      clean = the window's end
 *
 * The first match is certain once no rule may still have an earlier one. A rule that only logs holds nothing back.
 * Text that is given out stays until no search may look back at it. PCRE2 searches a copy in which bytes that are no UTF-8 are a control
 * character each: its own way with them (PCRE2_MATCH_INVALID_UTF) gives other answers for a text that is cut. A character cut in two waits for
 * its other half. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "edge/policy_priv.h"

#define MATCH_LIMIT    500000u /* steps of one search: some ten milliseconds */
#define HEAP_LIMIT_KIB 8192u
#define TRIM_BYTES     4096u
#define NO_CHARACTER   0x1a
#define NOWHERE        SIZE_MAX

struct scan {
    const struct policy_rule *rule;
    pcre2_match_data *match;
    size_t clean, start, end; /* start NOWHERE: no certain match */
    uint64_t hits;
};

struct redactor {
    struct buf text; /* as it came */
    struct buf seen; /* as it is searched: the same bytes but for what is no UTF-8, as far as characters are whole */
    size_t given, hold, n;
    bool trimmed, changed, gave_up;
    const struct policy_rule *refused_by;
    pcre2_match_context *context;
    struct policy_json *json;
    struct scan scans[];
};

/* ---- life ---- */

struct redactor *redactor_create(const struct policy_rule *const *rules, size_t n, size_t hold_bytes, enum redactor_form form)
{
    ASSERT(n <= POLICY_RULES_MAX);
    struct redactor *r = calloc(1, sizeof *r + n * sizeof r->scans[0]);
    if (!r)
        return NULL;
    r->hold = hold_bytes ? hold_bytes : POLICY_HOLD_DEFAULT;
    r->n = n;
    r->context = pcre2_match_context_create(NULL);
    r->json = form == REDACTOR_JSON ? policy__json_create(r->hold) : NULL;
    bool ok = r->context && (form != REDACTOR_JSON || r->json);
    for (size_t i = 0; ok && i < n; i++) {
        r->scans[i] = (struct scan){
            .rule = rules[i], .match = pcre2_match_data_create_from_pattern(rules[i]->code, NULL), .start = NOWHERE};
        ok = r->scans[i].match != NULL;
    }
    if (!ok) {
        redactor_destroy(r);
        return NULL;
    }
    pcre2_set_match_limit(r->context, MATCH_LIMIT);
    pcre2_set_heap_limit(r->context, HEAP_LIMIT_KIB);
    return r;
}

void redactor_destroy(struct redactor *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n; i++)
        pcre2_match_data_free(r->scans[i].match);
    pcre2_match_context_free(r->context);
    policy__json_destroy(r->json);
    buf_release(&r->text);
    buf_release(&r->seen);
    free(r);
}

static void forget(struct redactor *r)
{
    buf_clear(&r->text);
    buf_clear(&r->seen);
    r->given = 0;
    r->trimmed = false;
    for (size_t i = 0; i < r->n; i++) {
        r->scans[i].clean = 0;
        r->scans[i].start = NOWHERE;
    }
}

const struct policy_rule *redactor_refused_by(const struct redactor *r)
{
    return r->refused_by;
}

bool redactor_gave_up(const struct redactor *r)
{
    return r->gave_up;
}

uint64_t redactor_hits(const struct redactor *r, size_t i)
{
    return r->scans[i].hits;
}

bool redactor_changed(const struct redactor *r)
{
    return r->changed;
}

/* ---- one rule's search ---- */

static bool is_continuation(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* The first byte at or before `at` that no character is cut by. */
static size_t character_start(const struct redactor *r, size_t at)
{
    while (at > 0 && at < r->seen.n && is_continuation(r->seen.p[at]))
        at--;
    return at;
}

static size_t character_end(const struct redactor *r, size_t at)
{
    at++;
    while (at < r->seen.n && is_continuation(r->seen.p[at]))
        at++;
    return at;
}

/* How many bytes the character at `at` wants, by its first one. */
static size_t wanted_bytes(char c)
{
    unsigned char b = (unsigned char)c;
    return b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : b >= 0xc0 ? 2 : 1;
}

/* Copy what came into what is searched, up to a character that may still become whole. */
static void look(struct redactor *r, bool last)
{
    struct str t = buf_str(&r->text);
    for (size_t at = r->seen.n; at < t.n && !r->seen.failed;) {
        size_t n = str_utf8_at(t, at);
        if (!n && !last && t.n - at < wanted_bytes(t.p[at]))
            return;
        if (n)
            buf_append(&r->seen, t.p + at, n);
        else
            buf_append_c(&r->seen, NO_CHARACTER);
        at += n ? n : 1;
    }
}

static int search(struct redactor *r, struct scan *s, size_t window, uint32_t options)
{
    options |= PCRE2_NO_UTF_CHECK | (r->trimmed ? PCRE2_NOTBOL : 0);
    return pcre2_match(s->rule->code, (PCRE2_SPTR)r->seen.p, window, s->clean, options, s->match, r->context);
}

static int give_up(struct redactor *r, const struct scan *s)
{
    r->refused_by = s->rule;
    r->gave_up = true;
    return STATUS_FORBIDDEN;
}

/* PCRE2 found [start, end): is it one? */
static void take_match(struct redactor *r, struct scan *s)
{
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(s->match);
    const struct policy_builtin *b = s->rule->builtin;
    size_t n = at[1] - at[0], real = b && b->check ? b->check(r->seen.p + at[0], n) : n;
    if (!real) {
        s->clean = character_end(r, at[0]);
        return;
    }
    s->hits++;
    if (s->rule->action == POLICY_LOG) {
        s->clean = at[0] + real;
        return;
    }
    s->clean = s->start = at[0];
    s->end = at[0] + real;
}

/* One search. 1: go on searching; 0: nothing more to be had from this text. */
static int step(struct redactor *r, struct scan *s, size_t end, bool last)
{
    size_t window = s->clean + r->hold < end ? character_start(r, s->clean + r->hold) : end;
    bool whole = window == end;
    int rc = search(r, s, window, whole && last ? 0 : PCRE2_PARTIAL_HARD | (whole ? 0 : PCRE2_NOTEOL));
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(s->match);
    if (rc == PCRE2_ERROR_PARTIAL && !whole && at[0] == s->clean) {
        rc = search(r, s, window, PCRE2_ANCHORED | PCRE2_NOTEOL);
        if (rc == PCRE2_ERROR_NOMATCH) {
            s->clean = character_end(r, s->clean);
            return 1;
        }
    }
    if (rc >= 0) {
        take_match(r, s);
        return s->start == NOWHERE;
    }
    if (rc == PCRE2_ERROR_PARTIAL) {
        s->clean = at[0];
        return !whole;
    }
    if (rc != PCRE2_ERROR_NOMATCH)
        return give_up(r, s);
    s->clean = window;
    return !whole;
}

/* Find the rule's first certain match, or how far there is none. */
static int advance(struct redactor *r, struct scan *s, size_t end, bool last)
{
    int more = 1;
    while (more > 0 && s->start == NOWHERE && s->clean < end)
        more = step(r, s, end, last);
    return more < 0 ? more : 0;
}

/* ---- all rules together ---- */

/* The first match, if it is certain that none comes before it; else NULL and in *limit how much of the text is free of matches. */
static struct scan *first_match(struct redactor *r, size_t end, size_t *limit)
{
    struct scan *best = NULL;
    *limit = end;
    for (size_t i = 0; i < r->n; i++) {
        struct scan *s = &r->scans[i];
        if (s->rule->action == POLICY_LOG)
            continue;
        *limit = MIN_OF(*limit, s->clean);
        if (s->start != NOWHERE && (!best || s->start < best->start))
            best = s;
    }
    for (size_t i = 0; best && i < r->n; i++) {
        const struct scan *s = &r->scans[i];
        bool open = s->rule->action != POLICY_LOG && s->start == NOWHERE && s->clean < end;
        if (open && (s->clean < best->start || (s->clean == best->start && s < best)))
            return NULL;
    }
    return best;
}

static void give(struct redactor *r, size_t to, struct buf *out)
{
    if (to > r->given) {
        buf_append(out, r->text.p + r->given, to - r->given);
        r->given = to;
    }
}

/* Put the match's replacement into its place; searches go on behind it. */
static int apply(struct redactor *r, struct scan *m, struct buf *out)
{
    size_t end = m->end;
    give(r, m->start, out);
    if (m->rule->action == POLICY_REFUSE) {
        r->refused_by = m->rule;
        return STATUS_FORBIDDEN;
    }
    buf_append_z(out, m->rule->replacement);
    r->changed = true;
    r->given = end;
    for (size_t i = 0; i < r->n; i++) {
        struct scan *s = &r->scans[i];
        if (s->rule->action == POLICY_LOG || s->clean >= end)
            continue;
        s->hits -= s != m && s->start != NOWHERE; /* it lies in what is gone: not a match after all */
        s->start = NOWHERE;
        s->clean = end;
    }
    return 0;
}

/* Drop what no search looks back at any more. */
static void trim(struct redactor *r)
{
    size_t keep = r->given, behind = 0;
    for (size_t i = 0; i < r->n; i++) {
        keep = MIN_OF(keep, r->scans[i].clean);
        behind = MAX_OF(behind, r->scans[i].rule->lookbehind_bytes);
    }
    if (keep < behind + TRIM_BYTES)
        return;
    keep = character_start(r, keep - behind);
    memmove(r->text.p, r->text.p + keep, r->text.n - keep);
    memmove(r->seen.p, r->seen.p + keep, r->seen.n - keep);
    r->text.n -= keep;
    r->seen.n -= keep;
    r->given -= keep;
    r->trimmed = true;
    for (size_t i = 0; i < r->n; i++) {
        struct scan *s = &r->scans[i];
        s->clean -= keep;
        if (s->start != NOWHERE) {
            s->start -= keep;
            s->end -= keep;
        }
    }
}

static int scan_all(struct redactor *r, size_t end, bool last, struct buf *out)
{
    for (;;) {
        size_t limit;
        for (size_t i = 0; i < r->n; i++) {
            int rc = advance(r, &r->scans[i], end, last);
            if (rc < 0)
                return rc;
        }
        struct scan *m = first_match(r, end, &limit);
        if (!m) {
            give(r, limit, out);
            return 0;
        }
        int rc = apply(r, m, out);
        if (rc < 0)
            return rc;
    }
}

int policy__text_push(struct redactor *r, struct str text, bool last, struct buf *out)
{
    buf_append_str(&r->text, text);
    look(r, last);
    if (r->text.failed || r->seen.failed)
        return STATUS_NOMEM;
    int rc = scan_all(r, r->seen.n, last, out);
    if (rc == 0 && out->failed)
        rc = STATUS_NOMEM;
    if (rc < 0)
        return rc;
    if (last)
        forget(r);
    else
        trim(r);
    return 0;
}

int redactor_push(struct redactor *r, struct str text, bool last, struct buf *out)
{
    if (r->refused_by)
        return STATUS_FORBIDDEN;
    if (!r->json)
        return policy__text_push(r, text, last, out);
    int rc = policy__json_push(r->json, r, text, last, out);
    if (rc != STATUS_EXHAUSTED)
        return rc;
    r->refused_by = r->n ? r->scans[0].rule : NULL;
    r->gave_up = true;
    return STATUS_FORBIDDEN;
}
