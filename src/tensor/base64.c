/* base64.c: see base64.h. */
#include "tensor/base64.h"

static int sextet(unsigned char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_decode(struct str text, uint8_t *out, size_t *n)
{
    size_t at = 0;
    if (text.n % 4)
        return false;
    for (size_t i = 0; i < text.n; i += 4) {
        const unsigned char *p = (const unsigned char *)text.p + i;
        bool last = i + 4 == text.n;
        size_t pad = last && p[3] == '=' ? 1 + (p[2] == '=') : 0;
        int a = sextet(p[0]), b = sextet(p[1]), c = pad > 1 ? 0 : sextet(p[2]), d = pad ? 0 : sextet(p[3]);
        if ((a | b | c | d) < 0)
            return false;
        uint32_t v = (uint32_t)a << 18 | (uint32_t)b << 12 | (uint32_t)c << 6 | (uint32_t)d;
        if (v & ((1u << 8 * pad) - 1))
            return false;
        out[at++] = (uint8_t)(v >> 16);
        if (pad < 2)
            out[at++] = (uint8_t)(v >> 8);
        if (pad < 1)
            out[at++] = (uint8_t)v;
    }
    *n = at;
    return true;
}

void base64_encode(const uint8_t *p, size_t n, char *out)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t left = (uint32_t)(n - i < 3 ? n - i : 3);
        uint32_t group = (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) | (left > 2 ? p[i + 2] : 0u);
        *out++ = letters[group >> 18];
        *out++ = letters[group >> 12 & 63];
        *out++ = left > 1 ? letters[group >> 6 & 63] : '=';
        *out++ = left > 2 ? letters[group & 63] : '=';
    }
}
