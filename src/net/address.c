/* address.c: see address.h. */
#include "net/address.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"

static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

static bool parse_v4(struct str t, uint8_t out[4])
{
    struct str part;
    for (int i = 0; i < 4; i++) {
        uint64_t v;
        if (!str_cut(&t, '.', &part) || part.n == 0 || part.n > 3 || (part.n > 1 && part.p[0] == '0') ||
            !str_to_u64(part, &v) || v > 255)
            return false;
        out[i] = (uint8_t)v;
    }
    return t.p == NULL;
}

static bool parse_group(struct str t, uint16_t *out)
{
    uint32_t v = 0;
    for (size_t i = 0; i < t.n; i++) {
        char c = t.p[i];
        int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (d < 0)
            return false;
        v = v << 4 | (uint32_t)d;
    }
    *out = (uint16_t)v;
    return t.n >= 1 && t.n <= 4;
}

/* Groups of one side of "::"; at the end of the whole an IPv4 address may stand for the last two. -1: malformed. */
static int parse_groups(struct str t, uint16_t *out, int room, bool last)
{
    struct str part;
    int n = 0;
    while (str_cut(&t, ':', &part)) {
        uint8_t v4[4];
        if (last && !t.p && memchr(part.p, '.', part.n)) {
            if (n + 2 > room || !parse_v4(part, v4))
                return -1;
            out[n++] = (uint16_t)(v4[0] << 8 | v4[1]);
            out[n++] = (uint16_t)(v4[2] << 8 | v4[3]);
        } else if (n == room || !parse_group(part, &out[n])) {
            return -1;
        } else {
            n++;
        }
    }
    return n;
}

static const char *find_gap(struct str t)
{
    for (size_t i = 0; i + 1 < t.n; i++)
        if (t.p[i] == ':' && t.p[i + 1] == ':')
            return t.p + i;
    return NULL;
}

static bool parse_v6(struct str t, uint8_t out[16])
{
    uint16_t front[8] = {0}, back[8] = {0}, all[8] = {0};
    const char *gap = find_gap(t);
    struct str before = {t.p, gap ? (size_t)(gap - t.p) : t.n}, after = {0};
    if (gap)
        after = (struct str){gap + 2, t.n - before.n - 2};
    int n = before.n ? parse_groups(before, front, 8, !gap) : 0, m = after.n ? parse_groups(after, back, 8, true) : 0;
    if (n < 0 || m < 0 || (gap ? n + m > 7 : n != 8))
        return false;
    memcpy(all, front, (size_t)n * 2);
    memcpy(all + 8 - m, back, (size_t)m * 2);
    for (int i = 0; i < 8; i++) {
        out[2 * i] = (uint8_t)(all[i] >> 8);
        out[2 * i + 1] = (uint8_t)all[i];
    }
    return true;
}

bool address_parse(struct str t, struct address *out)
{
    if (t.n == 0 || t.n >= ADDRESS_TEXT_BYTES)
        return false;
    if (memchr(t.p, ':', t.n))
        return parse_v6(t, out->bytes);
    memcpy(out->bytes, mapped, sizeof mapped);
    return parse_v4(t, out->bytes + 12);
}

static bool is_port(struct str t)
{
    uint64_t v;
    return t.n >= 1 && t.n <= 5 && str_to_u64(t, &v) && v <= 65535;
}

bool address_parse_port(struct str t, struct address *out)
{
    if (t.n && t.p[0] == '[') {
        const char *end = memchr(t.p, ']', t.n);
        if (!end)
            return false;
        struct str host = {t.p + 1, (size_t)(end - t.p) - 1}, rest = {end + 1, t.n - (size_t)(end - t.p) - 1};
        if (rest.n && (rest.p[0] != ':' || !is_port((struct str){rest.p + 1, rest.n - 1})))
            return false;
        return memchr(host.p, ':', host.n) && address_parse(host, out);
    }
    const char *colon = t.n ? memchr(t.p, ':', t.n) : NULL;
    if (colon && !memchr(colon + 1, ':', t.n - (size_t)(colon - t.p) - 1)) {
        size_t n = (size_t)(colon - t.p);
        return is_port((struct str){colon + 1, t.n - n - 1}) && address_parse((struct str){t.p, n}, out);
    }
    return address_parse(t, out);
}

const char *address_text(const struct address *a, char out[ADDRESS_TEXT_BYTES])
{
    const uint8_t *b = a->bytes;
    size_t n = 0;
    int gap = -1;
    if (memcmp(b, mapped, sizeof mapped) == 0) {
        snprintf(out, ADDRESS_TEXT_BYTES, "%u.%u.%u.%u", b[12], b[13], b[14], b[15]);
        return out;
    }
    for (int i = 0; i < 8;) {
        int zeros = 0;
        while (gap < 0 && i + zeros < 8 && !b[2 * (i + zeros)] && !b[2 * (i + zeros) + 1])
            zeros++;
        if (zeros >= 2) {
            gap = i;
            n += (size_t)snprintf(out + n, ADDRESS_TEXT_BYTES - n, "%s", i == 0 ? "::" : ":");
            i += zeros;
            continue;
        }
        n += (size_t)snprintf(out + n, ADDRESS_TEXT_BYTES - n, "%x%s", (unsigned)(b[2 * i] << 8 | b[2 * i + 1]),
                              i < 7 ? ":" : "");
        i++;
    }
    return out;
}

int network_parse(struct str text, struct network *out, struct error *err)
{
    const char *slash = text.n ? memchr(text.p, '/', text.n) : NULL;
    struct str host = {text.p, slash ? (size_t)(slash - text.p) : text.n};
    bool v4 = host.n && !memchr(host.p, ':', host.n);
    uint64_t bits = v4 ? 32 : 128, most = bits;
    bool ok = address_parse(host, &out->base);
    if (ok && slash)
        ok = str_to_u64((struct str){slash + 1, text.n - host.n - 1}, &bits) && bits <= most;
    if (!ok)
        return error_set(err, STATUS_INVALID, "\"%.*s\" is no network; give ADDRESS or ADDRESS/BITS, as in 10.0.0.0/8",
                         STR_ARG(text));
    out->bits = (uint8_t)(v4 ? bits + 96 : bits);
    return 0;
}

bool network_has(const struct network *n, const struct address *a)
{
    size_t whole = n->bits / 8, rest = n->bits % 8;
    if (memcmp(n->base.bytes, a->bytes, whole) != 0)
        return false;
    return rest == 0 || ((n->base.bytes[whole] ^ a->bytes[whole]) >> (8 - rest)) == 0;
}

bool networks_have(const struct network *list, size_t n, const struct address *a)
{
    for (size_t i = 0; i < n; i++)
        if (network_has(&list[i], a))
            return true;
    return false;
}
