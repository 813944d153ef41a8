/* dns.h: questions to the domain name system that getaddrinfo can't ask: SRV records, and a server of one's own choice. glibc's resolver.
 *
 * Everything blocks, for some seconds at most; threads of their own only. */
#ifndef INFERD_OS_DNS_H
#define INFERD_OS_DNS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "os/sock.h"

struct os_dns_srv {
    char target[256];
    uint16_t port, priority, weight;
};

/* `server`: "192.0.2.1:53" (IPv4), or "": those of /etc/resolv.conf.
 * NOT_FOUND: no answer, an error, or no record of the kind, also when the answer can't be read; INVALID: `server` is no such address. */
int os_dns_srv(const char *server, const char *name, struct os_dns_srv *out, size_t max, size_t *n,
               struct error *err) MUST_CHECK;
/* Every A and AAAA record of `name`, with `port`. */
int os_dns_addresses(const char *server, const char *name, uint16_t port, struct os_addr *out, size_t max, size_t *n,
                     struct error *err) MUST_CHECK;

#endif
