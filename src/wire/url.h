/* url.h: request targets: taking them apart and percent-decoding them, strictly.
 *
 * Decoding happens once and after splitting, so an encoded slash ("%2F") becomes a byte of its segment and
 * never a separator; what can't be in a name (a NUL, a truncated or non-hex escape, a "." or ".." segment in
 * any spelling) is refused with STATUS_INVALID instead of being repaired: two readers that repair differently
 * disagree about the route. Nothing here does I/O or keeps state; results point into the input or into the
 * caller's arena. Any thread. */
#ifndef INFERD_WIRE_URL_H
#define INFERD_WIRE_URL_H

#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

/* A request target (RFC 9112, 3.2). Parts are borrowed from it and still percent-encoded. */
struct url_target {
    struct str authority; /* of the absolute form; .p == NULL otherwise */
    struct str path;      /* begins with '/', or is "*" */
    struct str query;     /* behind the first '?', without it; may be empty */
};

/* Take `target` apart. Origin form ("/p?q"), absolute form ("http://host/p?q", http and https only) and "*".
 * Refuses with STATUS_INVALID an empty target, the authority form, a fragment, user information, and any byte
 * outside 0x21..0x7e. */
int url_parse_target(struct str target, struct url_target *out, struct error *err) MUST_CHECK;

/* True for an RFC 3986 host with an optional port: what a Host header may hold (it may be empty). Checks
 * characters and the port's range; does not resolve anything. */
bool url_is_authority(struct str s);

/* Split `path` (encoded, begins with '/') at '/' and decode each segment into `a`. "/" gives no segment,
 * "/a/b" two, "/a/" two of which the last is empty. STATUS_NOT_FOUND when there are more than `max`,
 * STATUS_INVALID on what is said above, STATUS_NOMEM. `segs` has room for `max`. A segment without '%' is
 * borrowed from `path`. */
int url_split_path(struct arena *a, struct str path, struct str *segs, size_t max, size_t *n, struct error *err) MUST_CHECK;

/* May `path` (encoded) be sent on to a server that reads it its own way? STATUS_INVALID where readers disagree about what it names: a "." or ".."
 * segment in any spelling, also between encoded slashes or backslashes ("..%2f", "..%5c") and before a ';' ("..;x"), a "%00", a bad escape. */
int url_check_path(struct str path, struct error *err) MUST_CHECK;

/* Percent-decode `s`; '+' becomes a space when `form` is set. Borrowed from `s` when there is nothing to
 * decode, else in `a`. STATUS_INVALID on a bad escape or "%00", STATUS_NOMEM. */
int url_decode(struct arena *a, struct str s, bool form, struct str *out, struct error *err) MUST_CHECK;

/* The decoded value of the first parameter `name` in `query` ("a=1&b=2"; a name without '=' has an empty
 * value). STATUS_NOT_FOUND when absent (no error text), else as url_decode. */
int url_query_get(struct arena *a, struct str query, const char *name, struct str *out, struct error *err) MUST_CHECK;

#endif
