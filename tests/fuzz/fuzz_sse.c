/* fuzz_sse: however a stream is cut, the same events come; what was read is written and read again as it was. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "wire/sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void note(void *ctx, struct str name, struct str data)
{
    struct buf *all = ctx;
    buf_append_c(all, '[');
    buf_append_str(all, name);
    buf_append_c(all, 0);
    buf_append_str(all, data);
}

static void again(void *ctx, struct str name, struct str data)
{
    struct buf one, *all = ctx;
    (void)name;
    buf_init(&one);
    sse_write(&one, NULL, data);
    struct sse_reader r = {0};
    struct buf back;
    buf_init(&back);
    sse_reader_push(&r, buf_str(&one), note, &back);
    ASSERT(r.failed ||
           (back.n == data.n + 2 && (!data.n || memchr(data.p, '\r', data.n) || memcmp(back.p + 2, data.p, data.n) == 0)));
    sse_reader_release(&r);
    buf_release(&back);
    buf_release(&one);
    buf_append_c(all, '.');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sse_reader whole = {0}, cut = {0}, third = {0};
    struct buf a, b, c;
    size_t at = size ? data[0] % size : 0;
    struct str text = {(const char *)data, size};
    buf_init(&a);
    buf_init(&b);
    buf_init(&c);
    sse_reader_push(&whole, text, note, &a);
    sse_reader_push(&cut, (struct str){text.p, at}, note, &b);
    sse_reader_push(&cut, (struct str){text.p + at, size - at}, note, &b);
    ASSERT(a.n == b.n && (!a.n || memcmp(a.p, b.p, a.n) == 0));
    sse_reader_push(&third, text, again, &c);
    sse_reader_release(&whole);
    sse_reader_release(&cut);
    sse_reader_release(&third);
    buf_release(&a);
    buf_release(&b);
    buf_release(&c);
    return 0;
}
