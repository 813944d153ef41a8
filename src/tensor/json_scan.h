/* json_scan.h: for tensor/ only: a pull scanner over strict JSON text (RFC 8259), no tree, no allocation of its own.
 *
 * The caller asks for what it expects next; the scanner checks and moves on. An error says what was expected, what stands
 * there and at which byte. After an error the scanner is not used again. */
#ifndef INFERD_TENSOR_JSON_SCAN_H
#define INFERD_TENSOR_JSON_SCAN_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

struct json_scan {
    const char *p, *end, *start;
};

static inline struct json_scan json_scan_of(struct str text)
{
    return (struct json_scan){text.p, text.p + text.n, text.p};
}

/* Move to the next byte that is not white space; returns it, or 0 at the end. */
static inline char json_peek(struct json_scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t'))
        s->p++;
    return s->p < s->end ? *s->p : 0;
}

/* What stands at the scanner, for messages: "a string", "the number 1.5", "the word NaN", "the end of the text". A constant, or
 * written into `text` of JSON_TOKEN_TEXT bytes. */
#define JSON_TOKEN_TEXT 64
const char *json_token_text(const struct json_scan *s, char *text);

/* STATUS_INVALID: "the request's JSON: expected <what>, but <token> stands at byte N". */
int json_expected(const struct json_scan *s, const char *what, struct error *err);

/* Members of an object, elements of an array. Start with *first = true at the '{' or '['. 1: a member or element follows
 * (the scanner is at its value), 0: the end was passed, negative: error. Keys are decoded like strings. */
int json_member(struct json_scan *s, bool *first, struct arena *a, struct str *key, struct error *err) MUST_CHECK;
int json_element(struct json_scan *s, bool *first, struct error *err) MUST_CHECK;

/* A string value: a view of the text when it has no escapes, else decoded into the arena. */
int json_string(struct json_scan *s, struct arena *a, struct str *out, struct error *err) MUST_CHECK;
int json_bool(struct json_scan *s, bool *out, struct error *err) MUST_CHECK;
/* A whole number within int64. */
int json_i64(struct json_scan *s, int64_t *out, struct error *err) MUST_CHECK;

/* Check and pass one value of any kind, at most `depth` levels deep. */
int json_skip(struct json_scan *s, int depth, struct error *err) MUST_CHECK;

#define JSON_STRING_SLACK 8
/* The string behind an opening quote at p - 1: decodes it to dst (NULL: only checks) and stores the decoded length; dst needs
 * JSON_STRING_SLACK bytes more than that (copies go by eight bytes). Returns the byte behind the closing quote, or NULL with
 * *why (a constant: "is not valid UTF-8" ...) and *bad (where). */
const char *json_string_decode(const char *p, const char *end, char *dst, size_t *n, const char **why, const char **bad);

/* Eight bytes of a JSON string's inside: a set top bit in each that needs a look (a control character, quote, backslash, or
 * not ASCII); exact up to the lowest one. */
static inline uint64_t json_string8_stop(uint64_t v)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t quote = v ^ ones * '"', slash = v ^ ones * '\\';
    return (v | (v - ones * 0x20) | (quote - ones) | (slash - ones)) & tops;
}

#endif
