/* str.h: a borrowed view of bytes, and the strict parsers over it.
 *
 * A `struct str` never owns and need not be NUL-terminated. Whoever hands one out says how long it lives. */
#ifndef INFERD_BASE_STR_H
#define INFERD_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct str {
    const char *p; /* may be NULL when n is 0 */
    size_t n;
};

#define STR(literal) ((struct str){"" literal, sizeof(literal) - 1})
/* For printf("%.*s", STR_ARG(s)); lengths over 4096 are cut, since such text is only shown. */
#define STR_ARG(s) (int)((s).n > 4096 ? 4096 : (s).n), ((s).p ? (s).p : "")

static inline struct str str_of(const char *z)
{
    return (struct str){z, z ? strlen(z) : 0};
}
static inline bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}
static inline bool str_eqz(struct str a, const char *z)
{
    return str_eq(a, str_of(z));
}

/* ASCII case-insensitive equality (header names, content codings). */
bool str_ieq(struct str a, struct str b);
static inline bool str_ieqz(struct str a, const char *z)
{
    size_t n = strlen(z); /* of a literal: known when this is compiled, so that most comparisons end here */
    return a.n == n && str_ieq(a, (struct str){z, n});
}
bool str_starts(struct str s, struct str prefix);
bool str_ends(struct str s, struct str suffix);

/* Length of the UTF-8 sequence that starts at s.p[at] (at < s.n), or 0 when there is none (RFC 3629: no surrogates, no overlong
 * forms, nothing past U+10FFFF). */
size_t str_utf8_at(struct str s, size_t at);
/* The character `c` (at most U+10FFFF) as 1 to 4 bytes of UTF-8; how many. */
size_t str_utf8_put(uint32_t c, void *out);

/* A NUL-terminated copy that the caller frees; NULL: out of memory. */
char *str_dup(struct str s);

/* Drop leading and trailing spaces and tabs. */
struct str str_trim(struct str s);

/* Cut `*rest` at the first `sep`: returns the part before it and moves `*rest` behind it (to empty at the end).
 * Returns false when `*rest` was already exhausted (p == NULL). */
bool str_cut(struct str *rest, char sep, struct str *part);

/* Whole-string decimal parsers: true only when all of `s` is digits (with an optional leading '-' for i64) and the
 * value fits. No spaces, no '+', no hex. */
bool str_to_u64(struct str s, uint64_t *out);
bool str_to_i64(struct str s, int64_t *out);
/* Whole-string decimal floating point in the JSON grammar plus leading '+'/'.'-less forms; finite only. */
bool str_to_f64(struct str s, double *out);

/* Sizes and times for people: "64MiB", "10MB", "512" (bytes); "250ms", "2s", one number and one unit of
 * ns us ms s m h. Returns false on anything else or on overflow. */
bool str_to_bytes(struct str s, uint64_t *out);
bool str_to_duration_ns(struct str s, uint64_t *out);

/* True when `name` is a model name: [A-Za-z0-9._-]{1,128}, and not "." or "..". */
bool str_is_model_name(struct str name);

/* Case-insensitive Damerau-Levenshtein distance, cut off at 255; for "did you mean" hints. Bounded to 64 characters. */
unsigned str_distance(struct str a, struct str b);

#endif
