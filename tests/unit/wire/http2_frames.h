/* http2_frames.h: HTTP/2 frames by hand, for the tests: what a client sends is written here byte by byte from RFC 9113 and RFC 7541 (literals without
 * indexing, no Huffman), and what the server sends is taken apart here; only header blocks of replies go through nghttp2's inflater. */
#ifndef TESTS_HTTP2_FRAMES_H
#define TESTS_HTTP2_FRAMES_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"

enum { F_DATA, F_HEADERS, F_PRIORITY, F_RST, F_SETTINGS, F_PUSH, F_PING, F_GOAWAY, F_WINDOW, F_CONTINUATION };
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4, PADDED = 8 };

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

static inline void put_be(struct buf *b, uint32_t v, int bytes)
{
    while (bytes-- > 0)
        buf_append_c(b, (char)(v >> (8 * bytes)));
}

static inline void put_frame(struct buf *b, int type, int flags, uint32_t stream, const void *payload, size_t n)
{
    put_be(b, (uint32_t)n, 3);
    buf_append_c(b, (char)type);
    buf_append_c(b, (char)flags);
    put_be(b, stream, 4);
    buf_append(b, payload, n);
}

/* An integer of RFC 7541, 5.1 with a prefix of 7 bits (the eighth 0). */
static inline void put_int7(struct buf *b, size_t n)
{
    if (n < 127) {
        buf_append_c(b, (char)n);
        return;
    }
    buf_append_c(b, 127);
    for (n -= 127; n >= 128; n >>= 7)
        buf_append_c(b, (char)(0x80 | (n & 0x7f)));
    buf_append_c(b, (char)n);
}

static inline void put_field_n(struct buf *b, const char *name, const char *value, size_t value_n)
{
    buf_append_c(b, 0);
    put_int7(b, strlen(name));
    buf_append_z(b, name);
    put_int7(b, value_n);
    buf_append(b, value, value_n);
}

static inline void put_field(struct buf *b, const char *name, const char *value)
{
    put_field_n(b, name, value, strlen(value));
}

/* A whole head of `method` and `path`, with more fields "name=value|name=value". */
static inline void put_head(struct buf *b, uint32_t stream, const char *method, const char *path, const char *more, bool end)
{
    struct buf block;
    struct str rest = str_of(more), field, name;
    buf_init(&block);
    put_field(&block, ":method", method);
    put_field(&block, ":scheme", "http");
    put_field(&block, ":authority", "h");
    put_field(&block, ":path", path);
    while (rest.n && str_cut(&rest, '|', &field) && str_cut(&field, '=', &name)) {
        buf_append_c(&block, 0);
        put_int7(&block, name.n);
        buf_append_str(&block, name);
        put_int7(&block, field.n);
        buf_append_str(&block, field);
    }
    put_frame(b, F_HEADERS, END_HEADERS | (end ? END_STREAM : 0), stream, block.p, block.n);
    buf_release(&block);
}

static inline void put_hello(struct buf *b)
{
    buf_append_z(b, PREFACE);
    put_frame(b, F_SETTINGS, 0, 0, NULL, 0);
}

static inline void put_data(struct buf *b, uint32_t stream, const char *text, bool end)
{
    put_frame(b, F_DATA, end ? END_STREAM : 0, stream, text, strlen(text));
}

static inline void put_u32_frame(struct buf *b, int type, uint32_t stream, uint32_t v)
{
    struct buf p;
    buf_init(&p);
    put_be(&p, v, 4);
    put_frame(b, type, 0, stream, p.p, 4);
    buf_release(&p);
}

static inline void put_setting(struct buf *b, uint16_t id, uint32_t v)
{
    struct buf p;
    buf_init(&p);
    put_be(&p, id, 2);
    put_be(&p, v, 4);
    put_frame(b, F_SETTINGS, 0, 0, p.p, 6);
    buf_release(&p);
}

static inline uint32_t get_be(const uint8_t *p, int bytes)
{
    uint32_t v = 0;
    for (int i = 0; i < bytes; i++)
        v = v << 8 | p[i];
    return v;
}

/* What a server sent, as a line a frame: "HEADERS 1 end :status=200 x=y", "DATA 1 end 5 hello", "RST 1 8", "GOAWAY 5 11". Data of more
 * than 200 bytes is shown by its length. Returns the bytes used: whole frames only. */
static inline size_t show_frames(nghttp2_hd_inflater *hd, const uint8_t *p, size_t n, struct buf *out)
{
    static const char *const names[] = {"DATA", "HEADERS", "PRIORITY", "RST",    "SETTINGS",
                                        "PUSH", "PING",    "GOAWAY",   "WINDOW", "CONTINUATION"};
    size_t at = 0;
    while (n - at >= 9) {
        const uint8_t *f = p + at;
        size_t len = get_be(f, 3);
        uint8_t type = f[3], flags = f[4];
        if (n - at < 9 + len)
            break;
        at += 9 + len;
        buf_printf(out, "%s %u", type < 10 ? names[type] : "?", get_be(f + 5, 4));
        if (type <= F_HEADERS && flags & END_STREAM)
            buf_append_z(out, " end");
        if ((type == F_SETTINGS || type == F_PING) && flags & ACK)
            buf_append_z(out, " ack");
        f += 9;
        if (type == F_DATA && len <= 200)
            buf_printf(out, " %zu %.*s", len, (int)len, (const char *)f);
        else if (type == F_DATA)
            buf_printf(out, " %zu", len);
        else if (type == F_RST || type == F_WINDOW)
            buf_printf(out, " %u", get_be(f, 4));
        else if (type == F_GOAWAY)
            buf_printf(out, " %u %u", get_be(f, 4), get_be(f + 4, 4));
        for (size_t i = 0; type == F_SETTINGS && i + 6 <= len; i += 6)
            buf_printf(out, " %u=%u", get_be(f + i, 2), get_be(f + i + 2, 4));
        while (type == F_HEADERS && len) {
            nghttp2_nv nv;
            int what = 0;
            ssize_t used = nghttp2_hd_inflate_hd2(hd, &nv, &what, f, len, 1);
            if (used < 0) {
                buf_append_z(out, " BAD HPACK");
                break;
            }
            f += used;
            len -= (size_t)used;
            if (what & NGHTTP2_HD_INFLATE_EMIT && !str_eqz((struct str){(char *)nv.name, nv.namelen}, "date"))
                buf_printf(out, " %.*s=%.*s", (int)nv.namelen, (char *)nv.name, (int)nv.valuelen, (char *)nv.value);
            if (what & NGHTTP2_HD_INFLATE_FINAL) {
                nghttp2_hd_inflate_end_headers(hd);
                break;
            }
        }
        buf_append_c(out, '\n');
    }
    return at;
}

#endif
