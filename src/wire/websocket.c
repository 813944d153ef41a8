/* websocket.c: the handshake's fields and the frames' edges. A frame (RFC 6455, 5.2):
 *
 *     | FIN RSV opcode | MASK length |  length of 16 or 64 bits  |  mask, 4 bytes  | payload ...
 *         byte 0           byte 1      where byte 1 says 126, 127   where MASK is 1
 *
 * Extensions change what the payload is, never where it ends. */
#include "wire/websocket.h"

#include <string.h>

#include "base/size.h"
#include "base/status.h"

#define OPCODE_CLOSE 8u
#define FIN          0x80u
#define MASKED       0x80u
#define LENGTH_16    126u
#define LENGTH_64    127u

struct str websocket_header(const struct http_header *headers, size_t n, const char *name, size_t *times)
{
    struct str found = {0};
    *times = 0;
    for (size_t i = 0; i < n; i++)
        if (str_ieqz(headers[i].name, name) && (*times)++ == 0)
            found = headers[i].value;
    return found;
}

/* Does any field of this name list the token? */
static bool lists(const struct http_header *h, size_t n, const char *name, const char *token)
{
    for (size_t i = 0; i < n; i++)
        if (str_ieqz(h[i].name, name) && http1_list_has(h[i].value, token))
            return true;
    return false;
}

bool websocket_is_upgrade(const struct http_header *headers, size_t n)
{
    return lists(headers, n, "upgrade", "websocket") && lists(headers, n, "connection", "upgrade");
}

/* Base64 of 16 bytes: 22 characters, of which the last holds 2 bits only, and "==". */
static bool is_key(struct str s)
{
    static const char last[] = "AQgw";
    if (s.n != WEBSOCKET_KEY_CHARS || s.p[22] != '=' || s.p[23] != '=' || !memchr(last, s.p[21], sizeof last - 1))
        return false;
    for (size_t i = 0; i < 21; i++) {
        char c = s.p[i], low = (char)(c | 0x20);
        if (!((low >= 'a' && low <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/'))
            return false;
    }
    return true;
}

int websocket_check_request(const struct http_header *headers, size_t n, struct error *err)
{
    size_t times;
    struct str version = websocket_header(headers, n, "sec-websocket-version", &times);
    if (times != 1 || !str_eqz(version, WEBSOCKET_VERSION))
        return error_set(err, STATUS_INVALID, "a WebSocket needs one Sec-WebSocket-Version header, and it must be %s%s%.*s",
                         WEBSOCKET_VERSION, times ? ", not " : "", (int)MIN_OF(version.n, (size_t)16),
                         version.p ? version.p : "");
    struct str key = websocket_header(headers, n, "sec-websocket-key", &times);
    if (times != 1 || !is_key(key))
        return error_set(err, STATUS_INVALID,
                         "a WebSocket needs one Sec-WebSocket-Key header, the base64 of 16 bytes (24 characters)");
    return 0;
}

/* ---- frames ---- */

/* The length field is in. */
static void head_done(struct websocket_frames *f)
{
    unsigned small = f->head[1] & 0x7fu;
    uint64_t length = 0;
    size_t bytes = small == LENGTH_64 ? 8 : small == LENGTH_16 ? 2 : 0;
    for (size_t i = 0; i < bytes; i++)
        length = length << 8 | f->head[2 + i];
    length = bytes ? length : small;
    if (length >> 63) {
        f->lost = true;
        return;
    }
    f->closing |= (f->head[0] & 0x0fu) == OPCODE_CLOSE;
    f->left = length + (f->head[1] & MASKED ? 4 : 0); /* the mask counts as payload: its bytes don't matter */
    f->head_n = 0;
}

static void head_byte(struct websocket_frames *f, uint8_t byte)
{
    f->head[f->head_n++] = byte;
    if (f->head_n == 1)
        f->need = 2;
    else if (f->head_n == 2)
        f->need = (uint8_t)((byte & 0x7fu) == LENGTH_64 ? 10 : (byte & 0x7fu) == LENGTH_16 ? 4 : 2);
    if (f->head_n >= 2 && f->head_n == f->need)
        head_done(f);
}

void websocket_frames_take(struct websocket_frames *f, const void *data, size_t n)
{
    const uint8_t *p = data;
    while (n && !f->lost) {
        if (f->left) {
            size_t take = (size_t)MIN_OF(f->left, (uint64_t)n);
            f->left -= take;
            p += take;
            n -= take;
        } else {
            head_byte(f, *p++);
            n--;
        }
    }
}

bool websocket_frames_may_close(const struct websocket_frames *f)
{
    return !f->lost && !f->closing && f->left == 0 && f->head_n == 0;
}

size_t websocket_write_close(uint8_t out[WEBSOCKET_CLOSE_BYTES], unsigned code, bool client, uint32_t mask)
{
    uint8_t *payload = out + (client ? 6 : 2);
    out[0] = FIN | OPCODE_CLOSE;
    out[1] = (uint8_t)(2u | (client ? MASKED : 0u));
    payload[0] = (uint8_t)(code >> 8);
    payload[1] = (uint8_t)code;
    if (!client)
        return 4;
    for (int i = 0; i < 4; i++)
        out[2 + i] = (uint8_t)(mask >> (24 - 8 * i));
    payload[0] ^= out[2];
    payload[1] ^= out[3];
    return 8;
}
