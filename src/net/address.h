/* address.h: IP addresses as bytes: text to address, networks, and who is in them. IPv4 is kept as IPv4-mapped IPv6 (RFC 4291, 2.5.5.2), so
 * that "::ffff:10.0.0.1" and "10.0.0.1" are one address. Pure; any thread. */
#ifndef INFERD_NET_ADDRESS_H
#define INFERD_NET_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

struct address {
    uint8_t bytes[16];
};

#define ADDRESS_TEXT_BYTES 46

/* "192.0.2.1" or "2001:db8::1" (RFC 4291; no zone, no brackets, no leading zeros in IPv4). */
bool address_parse(struct str text, struct address *out);
/* The same with an optional port: "192.0.2.1:80", "[2001:db8::1]:80", "[2001:db8::1]": what proxies write. */
bool address_parse_port(struct str text, struct address *out);
/* RFC 5952, without its choice of the longest run of zeros: the first of at least two is shortened. Returns out. */
const char *address_text(const struct address *a, char out[ADDRESS_TEXT_BYTES]);

struct network {
    struct address base;
    uint8_t bits; /* of 128 */
};

/* "10.0.0.0/8", "2001:db8::/32", or an address alone. INVALID names the text and what is accepted. */
int network_parse(struct str text, struct network *out, struct error *err) MUST_CHECK;
bool network_has(const struct network *n, const struct address *a);
bool networks_have(const struct network *list, size_t n, const struct address *a);

#endif
