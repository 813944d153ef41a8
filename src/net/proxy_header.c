/* proxy_header.c: see proxy_header.h. Both versions have at least 12 bytes, and these tell them apart:
 *
 *   1:  "PROXY TCP4 192.0.2.1 192.0.2.2 4711 443\r\n"                  at most 107 bytes
 *   2:  signature (12) | version, command | family, protocol | length (2, big-endian) | addresses | extensions */
#include "net/proxy_header.h"

#include <string.h>

#include "base/status.h"

#define FIRST_BYTES 12
#define V2_HEAD     16
#define V1_MAX      107

static const char signature[FIRST_BYTES] = {'\r', '\n', '\r', '\n', 0, '\r', '\n', 'Q', 'U', 'I', 'T', '\n'};
static const char front[] = "PROXY ";

static int parse_v1(const char *p, size_t n, size_t *want, struct proxy_header *out)
{
    struct str line = {p, n}, family, source, rest;
    if (p[n - 1] != '\n') {
        *want = 1;
        return n < V1_MAX ? STATUS_AGAIN : STATUS_INVALID;
    }
    if (n < 2 || p[n - 2] != '\r')
        return STATUS_INVALID;
    rest = (struct str){line.p + sizeof front - 1, n - (sizeof front - 1) - 2};
    if (!str_cut(&rest, ' ', &family))
        return STATUS_INVALID;
    if (str_eq(family, STR("UNKNOWN")))
        return 0;
    if ((!str_eq(family, STR("TCP4")) && !str_eq(family, STR("TCP6"))) || !str_cut(&rest, ' ', &source) ||
        !address_parse(source, &out->source))
        return STATUS_INVALID;
    out->has_source = true;
    return 0;
}

static int parse_v2(const unsigned char *p, size_t n, size_t *want, struct proxy_header *out)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (n < V2_HEAD) {
        *want = V2_HEAD - n;
        return STATUS_AGAIN;
    }
    size_t length = (size_t)p[14] << 8 | p[15], family = p[13] >> 4;
    if (p[12] >> 4 != 2 || (p[12] & 15) > 1 || V2_HEAD + length > PROXY_HEADER_MAX)
        return STATUS_INVALID;
    if (n < V2_HEAD + length) {
        *want = V2_HEAD + length - n;
        return STATUS_AGAIN;
    }
    bool local = (p[12] & 15) == 0;
    if (local || (family != 1 && family != 2))
        return 0;
    if (length < (family == 1 ? 12u : 36u))
        return STATUS_INVALID;
    if (family == 1)
        memcpy(out->source.bytes, mapped, sizeof mapped);
    memcpy(out->source.bytes + (family == 1 ? 12 : 0), p + V2_HEAD, family == 1 ? 4 : 16);
    out->has_source = true;
    return 0;
}

int proxy_header_parse(const char *p, size_t n, size_t *want, struct proxy_header *out)
{
    *out = (struct proxy_header){0};
    size_t seen = n < FIRST_BYTES ? n : FIRST_BYTES, seen_v1 = n < sizeof front - 1 ? n : sizeof front - 1;
    bool v2 = memcmp(p, signature, seen) == 0, v1 = memcmp(p, front, seen_v1) == 0;
    if (!v1 && !v2)
        return STATUS_INVALID;
    if (n < FIRST_BYTES) {
        *want = FIRST_BYTES - n;
        return STATUS_AGAIN;
    }
    return v2 ? parse_v2((const unsigned char *)p, n, want, out) : parse_v1(p, n, want, out);
}
