/* proxy_header.h: the PROXY protocol, versions 1 and 2 (HAProxy's proxy-protocol.txt): the few bytes in front of a connection by which a
 * balancer says whose it is.
 *
 * The bytes behind the header belong to TLS or HTTP and must not be read with it, so the parser also says how many may be read without going
 * too far. Pure. */
#ifndef INFERD_NET_PROXY_HEADER_H
#define INFERD_NET_PROXY_HEADER_H

#include "net/address.h"

#define PROXY_HEADER_MAX 536 /* version 2 with addresses of any family and some 300 bytes of extensions */

struct proxy_header {
    bool has_source; /* false: LOCAL or UNKNOWN: the balancer speaks for itself */
    struct address source;
};

/* What the `n` bytes so far are. 0: the whole header. AGAIN: *want more bytes may be read, not more. INVALID: not one, or too long. */
int proxy_header_parse(const char *p, size_t n, size_t *want, struct proxy_header *out);

#endif
