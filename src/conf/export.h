/* export.h: `inferd export`: a configuration of nginx, Envoy or HAProxy that does in front of inferd what ours says.
 *
 * Our configuration goes in, text comes out. Pools, servers, routes, retries, checks, TLS, limits and timeouts are said in the front's own words;
 * what it has no words for is named, key by key, in `notes`, and again at the head of the text. Nothing is dropped in silence: a front that
 * quietly routes otherwise than the file says is worse than none. Authorisation, quotas and everything about models stay with inferd behind it.
 *
 * Pure: no files are read, no names looked up. One thread. */
#ifndef INFERD_CONF_EXPORT_H
#define INFERD_CONF_EXPORT_H

#include "base/buf.h"
#include "base/error.h"
#include "conf/config.h"

enum export_kind { EXPORT_NGINX, EXPORT_ENVOY, EXPORT_HAPROXY };

struct export_options {
    enum export_kind kind;
    const char *listen;         /* "HOST:PORT", "*:PORT", "[::1]:PORT"; "": *:443 with TLS, *:80 without */
    const char *grpc_listen;    /* a further address for gRPC and HTTP/2; "": none. nginx needs it where there is no TLS */
    const char *const *servers; /* replicas of inferd that answer what no route takes; none: http.listen */
    size_t n_servers;
};

/* Append the front's configuration to `out` and a line for each thing that it can't say to `notes`. `c` is borrowed and was checked.
 * INVALID: an address that can't be used in front (unix:/ to listen on, port 0); a name or address that would be more than one word in the front's
 * file. NOMEM. */
int export_front(const struct config *c, const struct export_options *o, struct buf *out, struct buf *notes,
                 struct error *err) MUST_CHECK;

#endif
