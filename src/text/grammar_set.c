/* grammar_set.c: sets of code points, and the edges that read one: as UTF-8 (ranges cut where the encoding changes length or a continuation
 * byte wraps: Russ Cox 2010, "Regular expression matching in the wild"), or as a character is written inside a JSON string. There, what must
 * be escaped is written in its short form (\n) or as \u00xx, everything else as itself. */
#include <stdio.h>
#include <stdlib.h>

#include "base/size.h"
#include "base/status.h"
#include "text/grammar_priv.h"

void gset_add(struct gbuild *b, struct gset *s, uint32_t lo, uint32_t hi)
{
    if (!gb_spend(b, 1))
        return;
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 8;
        struct grange *v = realloc(s->v, cap * sizeof *v);
        if (!v) {
            gb_fail(b, STATUS_NOMEM, "no memory to compile the grammar");
            return;
        }
        s->v = v;
        s->cap = cap;
    }
    s->v[s->n++] = (struct grange){lo, hi};
}

static int by_low(const void *x, const void *y)
{
    const struct grange *a = x, *b = y;
    return a->lo < b->lo ? -1 : a->lo > b->lo;
}

/* Sorted and merged. */
static void merge(struct gset *s)
{
    size_t n = 0;
    if (s->n > 1)
        qsort(s->v, s->n, sizeof *s->v, by_low);
    for (size_t i = 0; i < s->n; i++) {
        if (n && s->v[i].lo <= s->v[n - 1].hi + 1)
            s->v[n - 1].hi = MAX_OF(s->v[n - 1].hi, s->v[i].hi);
        else
            s->v[n++] = s->v[i];
    }
    s->n = n;
}

void gset_normalise(struct gset *s)
{
    merge(s);
}

void gset_negate(struct gbuild *b, struct gset *s)
{
    struct gset out = {0};
    uint32_t at = 0;
    merge(s);
    for (size_t i = 0; i < s->n; i++) {
        if (s->v[i].lo > at)
            gset_add(b, &out, at, s->v[i].lo - 1);
        at = s->v[i].hi + 1;
    }
    if (at <= G_CODE_MAX)
        gset_add(b, &out, at, G_CODE_MAX);
    gset_release(s);
    *s = out;
}

void gset_release(struct gset *s)
{
    free(s->v);
    *s = (struct gset){0};
}

/* ---- UTF-8 ---- */

static unsigned encode(uint32_t c, uint8_t out[4])
{
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    unsigned n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (unsigned i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (uint8_t)(0x80 | (c & 0x3f));
    out[0] = (uint8_t)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c);
    return n;
}

/* lo..hi have the same length, and differ only in one byte behind which everything is the full range. */
static void put_block(struct gbuild *b, uint32_t from, uint32_t lo, uint32_t hi, uint32_t to)
{
    uint8_t l[4], h[4];
    unsigned n = encode(lo, l);
    encode(hi, h);
    for (unsigned i = 0; i < n; i++) {
        uint32_t next = i + 1 == n ? to : gb_node(b);
        gb_byte(b, from, l[i], h[i], next);
        from = next;
    }
}

/* Both ends have the same length of encoding. Cuts until only one byte differs with full ranges behind it; at most a few levels deep. */
static void put_range(struct gbuild *b, uint32_t from, uint32_t lo, uint32_t hi, uint32_t to)
{
    for (unsigned bits = 6; bits <= 18 && lo > 0x7f; bits += 6) {
        uint32_t mask = (1u << bits) - 1, cut;
        if ((lo & ~mask) == (hi & ~mask))
            break;
        if ((lo & mask) != 0)
            cut = (lo | mask) + 1;
        else if ((hi & mask) != mask)
            cut = hi & ~mask;
        else
            continue;
        put_range(b, from, lo, cut - 1, to);
        put_range(b, from, cut, hi, to);
        return;
    }
    put_block(b, from, lo, hi, to);
}

static void put_utf8(struct gbuild *b, uint32_t from, uint32_t lo, uint32_t hi, uint32_t to)
{
    static const struct grange parts[] = {{0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, G_CODE_MAX}};
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        uint32_t l = MAX_OF(lo, parts[i].lo), h = MIN_OF(hi, parts[i].hi);
        if (l <= h)
            put_range(b, from, l, h, to);
    }
}

/* ---- inside a JSON string ---- */

static void put_escaped(struct gbuild *b, uint32_t from, uint32_t code, uint32_t to)
{
    static const char short_form[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    char text[8] = {'\\', 0};
    for (const char *p = short_form; *p; p += 2)
        if ((uint32_t)(unsigned char)*p == code)
            text[1] = p[1];
    if (!text[1])
        snprintf(text, sizeof text, "\\u%04x", (unsigned)code & 0xff);
    gb_eps(b, gb_z(b, from, text), to);
}

static void put_json(struct gbuild *b, uint32_t from, uint32_t lo, uint32_t hi, uint32_t to)
{
    static const struct grange plain[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, G_CODE_MAX}};
    for (size_t i = 0; i < COUNT_OF(plain); i++) {
        uint32_t l = MAX_OF(lo, plain[i].lo), h = MIN_OF(hi, plain[i].hi);
        if (l <= h)
            put_utf8(b, from, l, h, to);
    }
    for (uint32_t c = lo; c <= hi && c <= '\\'; c++)
        if (c < 0x20 || c == '"' || c == '\\')
            put_escaped(b, from, c, to);
}

void gb_set(struct gbuild *b, uint32_t from, const struct gset *s, uint32_t to)
{
    for (size_t i = 0; i < s->n && b->rc == 0; i++) {
        if (b->json)
            put_json(b, from, s->v[i].lo, s->v[i].hi, to);
        else
            put_utf8(b, from, s->v[i].lo, s->v[i].hi, to);
    }
}

uint32_t gb_code(struct gbuild *b, uint32_t from, uint32_t code)
{
    struct grange one = {code, code};
    struct gset set = {&one, 1, 1};
    uint32_t to = gb_node(b);
    gb_set(b, from, &set, to);
    return to;
}
