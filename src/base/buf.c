/* buf.c: growable buffers and refcounted blocks. See buf.h. */
#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"

void buf_init(struct buf *b)
{
    *b = (struct buf){0};
}

void buf_release(struct buf *b)
{
    free(b->p);
    buf_init(b);
}

char *buf_reserve(struct buf *b, size_t more)
{
    size_t need;
    if (b->failed)
        return NULL;
    if (b->cap - b->n >= more && b->p)
        return b->p + b->n;
    if (!size_add(b->n, MAX_OF(more, (size_t)1), &need))
        goto fail;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need)
        if (!size_mul(cap, 2, &cap))
            goto fail;
    char *p = realloc(b->p, cap);
    if (!p)
        goto fail;
    b->p = p;
    b->cap = cap;
    return p + b->n;
fail:
    b->failed = true;
    return NULL;
}

void buf_append(struct buf *b, const void *p, size_t n)
{
    char *at = buf_reserve(b, n);
    if (!at || !n)
        return;
    memcpy(at, p, n);
    b->n += n;
}

void buf_append_str(struct buf *b, struct str s)
{
    buf_append(b, s.p, s.n);
}
void buf_append_z(struct buf *b, const char *z)
{
    buf_append(b, z, strlen(z));
}
void buf_append_c(struct buf *b, char c)
{
    buf_append(b, &c, 1);
}

void buf_append_utf8(struct buf *b, uint32_t c)
{
    char out[4];
    buf_append(b, out, str_utf8_put(c, out));
}

void buf_append_u64(struct buf *b, uint64_t v)
{
    char text[20];
    size_t at = sizeof text;
    do
        text[--at] = (char)('0' + v % 10);
    while (v /= 10);
    buf_append(b, text + at, sizeof text - at);
}

void buf_append_i64(struct buf *b, int64_t v)
{
    if (v < 0)
        buf_append_c(b, '-');
    buf_append_u64(b, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *at = n < 0 ? NULL : buf_reserve(b, (size_t)n + 1);
    if (!at)
        return;
    va_start(ap, fmt);
    vsnprintf(at, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->n += (size_t)n;
}

static void append_escape(struct buf *b, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    switch (c) {
    case '"':
        buf_append(b, "\\\"", 2);
        return;
    case '\\':
        buf_append(b, "\\\\", 2);
        return;
    case '\n':
        buf_append(b, "\\n", 2);
        return;
    case '\r':
        buf_append(b, "\\r", 2);
        return;
    case '\t':
        buf_append(b, "\\t", 2);
        return;
    default:
        buf_append(b, (char[]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]}, 6);
    }
}

void buf_append_json_str(struct buf *b, struct str s)
{
    buf_append_c(b, '"');
    size_t start = 0, i = 0;
    while (i < s.n) {
        unsigned char c = (unsigned char)s.p[i];
        size_t len = str_utf8_at(s, i);
        if (len && c >= 0x20 && c != '"' && c != '\\') {
            i += len;
            continue;
        }
        buf_append(b, s.p + start, i - start);
        if (len)
            append_escape(b, c);
        else
            buf_append(b, "\xef\xbf\xbd", 3);
        start = ++i;
    }
    buf_append(b, s.p + start, s.n - start);
    buf_append_c(b, '"');
}

const char *buf_z(struct buf *b)
{
    char *at = buf_reserve(b, 1);
    if (!at)
        return "";
    *at = 0;
    return b->p;
}

#define DATA_ALIGN 64
static_assert(sizeof(struct slab) <= DATA_ALIGN, "the header fits in front of aligned data");

struct slab *slab_create(size_t cap)
{
    size_t total;
    if (!size_add(cap, DATA_ALIGN, &total) || !size_align(total, DATA_ALIGN, &total))
        return NULL;
    struct slab *s = aligned_alloc(DATA_ALIGN, total);
    if (!s)
        return NULL;
    *s = (struct slab){.cap = cap, .data = (uint8_t *)s + DATA_ALIGN};
    atomic_init(&s->refs, 1);
    return s;
}

void slab_unref(struct slab *s)
{
    if (!s)
        return;
    uint32_t before = atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel);
    ASSERT(before > 0);
    if (before > 1)
        return;
    if (s->free_fn)
        s->free_fn(s);
    else
        free(s);
}

static void free_taken(struct slab *s)
{
    free(s->data);
    free(s);
}

struct slice slice_take(struct buf *b)
{
    struct slab *s = b->failed || !b->p ? NULL : malloc(sizeof *s);
    if (!s) {
        buf_release(b);
        return (struct slice){0};
    }
    *s = (struct slab){.free_fn = free_taken, .cap = b->cap, .n = b->n, .data = (uint8_t *)b->p};
    atomic_init(&s->refs, 1);
    buf_init(b);
    return (struct slice){s->data, s->n, s};
}
