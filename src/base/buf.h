/* buf.h: the two byte containers of inferd.
 *
 * struct buf    one growable, contiguous, owned byte array: for building text and replies.
 * struct slab   one refcounted block of received or computed bytes; immutable once shared.
 * struct slice  a view into a slab that may hold a reference to it.
 *
 * Received bodies stay in the slab they were read into; tensors, batches and replies point into them by slice, so
 * nothing is copied until a tensor enters a batch. Refcounts are atomic: slices cross threads, a struct buf does not. */
#ifndef INFERD_BASE_BUF_H
#define INFERD_BASE_BUF_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

struct buf {
    char *p;
    size_t n, cap;
    bool failed; /* an allocation failed or a limit was passed; appends since then did nothing */
};

void buf_init(struct buf *b); /* allocates nothing */
void buf_release(struct buf *b);
static inline void buf_clear(struct buf *b)
{
    b->n = 0, b->failed = false;
}

/* Make room for `more` bytes behind n. Returns a pointer to them, or NULL (b->failed set). */
char *buf_reserve(struct buf *b, size_t more);
/* Appends. After a failed allocation they do nothing and set b->failed: check once, at the end. */
void buf_append(struct buf *b, const void *p, size_t n);
void buf_append_str(struct buf *b, struct str s);
void buf_append_z(struct buf *b, const char *z);
void buf_append_c(struct buf *b, char c);
void buf_append_utf8(struct buf *b, uint32_t c); /* a character, at most U+10FFFF */
void buf_append_u64(struct buf *b, uint64_t v);
void buf_append_i64(struct buf *b, int64_t v);
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Append `s` as a JSON string with its quotes: control characters, quote and backslash escaped; bytes that are not
 * UTF-8 become U+FFFD. */
void buf_append_json_str(struct buf *b, struct str s);
static inline struct str buf_str(const struct buf *b)
{
    return (struct str){b->p, b->n};
}
/* NUL-terminate (not counted) and return the text; "" when empty or failed. Borrowed. */
const char *buf_z(struct buf *b);

/* A refcounted block. `data` is `cap` bytes long; who fills it keeps `n`. */
struct slab {
    _Atomic uint32_t refs;
    void (*free_fn)(struct slab *s); /* last unref calls it; NULL: free(s) */
    size_t cap, n;
    uint8_t *data; /* aligned to 64 when made by slab_create */
};

/* New block of `cap` bytes with one reference, data aligned to 64; NULL when out of memory. */
struct slab *slab_create(size_t cap);
static inline struct slab *slab_ref(struct slab *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}
/* Drop one reference; NULL is accepted. The releasing decrement pairs with the acquire of the last one. */
void slab_unref(struct slab *s);

/* `p[0..n)`; when `owner` is set the slice holds one reference to it, else the bytes are borrowed. */
struct slice {
    const uint8_t *p;
    size_t n;
    struct slab *owner;
};

static inline struct slice slice_of(struct slab *s, size_t at, size_t n)
{
    return (struct slice){s->data + at, n, slab_ref(s)};
}
static inline struct slice slice_borrow(const void *p, size_t n)
{
    return (struct slice){p, n, NULL};
}
/* Move a buffer's bytes into a slab of their own without copying; the buffer is empty afterwards. p == NULL: the buffer had failed,
 * was empty, or there is no memory. */
struct slice slice_take(struct buf *b);
static inline void slice_release(struct slice *s)
{
    slab_unref(s->owner);
    *s = (struct slice){0};
}

#endif
