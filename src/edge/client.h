/* client.h: whose request it is, when proxies stand in between; and which web pages may send one (CORS). Pure; any thread. */
#ifndef INFERD_EDGE_CLIENT_H
#define INFERD_EDGE_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"
#include "net/address.h"

/* The client's address by x-forwarded-for. `values`: the header's values in the order they came, as if joined by commas. Read from the right,
 * as proxies append: the first address that is no trusted proxy's is the client's; what stands left of it was sent by him and is nobody's
 * word. Nothing is believed unless the peer itself is a trusted proxy. False: the peer is the client. */
bool client_address(const struct network *trusted, size_t n_trusted, const struct address *peer, const struct str *values,
                    size_t n_values, struct address *out);

/* Is `origin` ("https://app.example:8443") allowed by the list? An entry of a star alone allows all; one whose name begins with a star and a dot
 * allows every name below. */
bool cors_allows(const char *const *origins, size_t n, struct str origin);
/* Is it a well-formed entry of such a list? */
bool cors_origin_valid(struct str entry);

#endif
