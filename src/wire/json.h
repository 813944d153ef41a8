/* json.h: reading JSON that somebody else wrote: yyjson behind limits, and typed getters whose errors name
 * the field.
 *
 * yyjson parses without recursion but has no depth limit, and callers walk its tree; so the depth is checked
 * by a scan before the parse, and nothing deeper than the limit ever becomes a tree. Strict RFC 8259: no
 * comments, no trailing commas, no NaN, valid UTF-8, nothing behind the value, no byte order mark. A key that
 * a getter asks for and that occurs twice is an error, because two readers would disagree about which one
 * counts.
 *
 * Include <yyjson.h> for walking arrays and objects. Writing JSON: base/buf.h (buf_append_json_str). Any
 * thread. */
#ifndef INFERD_WIRE_JSON_H
#define INFERD_WIRE_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <yyjson.h>

#include "base/error.h"
#include "base/str.h"

#define JSON_DEPTH_DEFAULT 100

struct json_limits {
    size_t max_bytes;   /* 0: none */
    uint32_t max_depth; /* of nested arrays and objects; 0: JSON_DEPTH_DEFAULT */
};

/* A parsed document; the tree and its strings live until json_release. */
struct json {
    yyjson_doc *doc;
    yyjson_val *root;
};

/* Parse `text` (copied; need not outlive the call). `limits` may be NULL. STATUS_INVALID with the position
 * and the reason (too deep counts as invalid), STATUS_TOO_LARGE, STATUS_NOMEM. On failure there is nothing to
 * release. */
int json_parse(struct json *j, struct str text, const struct json_limits *limits, struct error *err) MUST_CHECK;
void json_release(struct json *j); /* a zeroed struct is accepted */

/* Depth of nesting in `text` without parsing it, stopping at `stop_at`. For codecs that parse by themselves.
 */
uint32_t json_scan_depth(struct str text, uint32_t stop_at);
/* Are there at most `n` brackets that open, those within strings counted, too? Then nothing is nested deeper; told some times as fast. */
bool json_opens_at_most(struct str text, uint32_t n);

enum json_need { JSON_OPTIONAL, JSON_REQUIRED };

/* Typed members of `obj`. 0 and `*out` set; or 0 and `*out` untouched when the member is absent or null and
 * optional; or STATUS_INVALID with the field's name, what it must be and what it is. `*found` (may be NULL)
 * tells the first two apart. Borrowed from the document. When `obj` is not an object, STATUS_INVALID. */
int json_get_str(yyjson_val *obj, const char *key, enum json_need need, struct str *out, bool *found,
                 struct error *err) MUST_CHECK;
int json_get_bool(yyjson_val *obj, const char *key, enum json_need need, bool *out, bool *found, struct error *err) MUST_CHECK;
/* Integers only (1.0 is refused: it is not written as an integer), within [min, max]. */
int json_get_u64(yyjson_val *obj, const char *key, enum json_need need, uint64_t min, uint64_t max, uint64_t *out, bool *found,
                 struct error *err) MUST_CHECK;
int json_get_i64(yyjson_val *obj, const char *key, enum json_need need, int64_t min, int64_t max, int64_t *out, bool *found,
                 struct error *err) MUST_CHECK;
/* Any number, as a double within [min, max]. */
int json_get_f64(yyjson_val *obj, const char *key, enum json_need need, double min, double max, double *out, bool *found,
                 struct error *err) MUST_CHECK;
int json_get_obj(yyjson_val *obj, const char *key, enum json_need need, yyjson_val **out, bool *found,
                 struct error *err) MUST_CHECK;
int json_get_arr(yyjson_val *obj, const char *key, enum json_need need, yyjson_val **out, bool *found,
                 struct error *err) MUST_CHECK;
/* The member whatever its type (null included). */
int json_get_any(yyjson_val *obj, const char *key, enum json_need need, yyjson_val **out, bool *found,
                 struct error *err) MUST_CHECK;

/* "an object", "a string", ...: for messages. Never NULL. */
const char *json_type_name(yyjson_val *v);
static inline struct str json_str(yyjson_val *v)
{
    return (struct str){yyjson_get_str(v), yyjson_get_len(v)};
}

#endif
