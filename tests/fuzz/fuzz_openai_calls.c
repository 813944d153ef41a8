/* fuzz_openai_calls: a model's text taken apart: any cutting gives the same pieces, and nothing that was no call is lost.
 * The first byte chooses format, thinking and where the text is cut. */
#include <stdlib.h>
#include <string.h>

#include "api/openai_calls.h"
#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
    struct buf text;
    int kind;
    unsigned calls;
    size_t content;
};

static void note(void *ctx, enum calls_piece kind, struct str text)
{
    struct seen *s = ctx;
    ASSERT(kind == CALLS_BEGIN || text.n);
    ASSERT(kind != CALLS_ARGUMENTS || s->calls);
    if (s->kind != (int)kind || kind == CALLS_BEGIN)
        buf_printf(&s->text, "\n%d ", (int)kind);
    s->kind = (int)kind;
    s->calls += kind == CALLS_BEGIN;
    s->content += kind == CALLS_CONTENT ? text.n : 0;
    buf_append_str(&s->text, text);
}

static void take(struct seen *s, uint8_t how, struct str text, size_t step)
{
    const struct calls_sink sink = {note, s};
    struct calls c;
    *s = (struct seen){.kind = -1};
    calls_init(&c, (enum calls_format)(how % 6), "f", how & 64, how & 128);
    for (size_t at = 0; at < text.n; at += step)
        calls_push(&c, (struct str){text.p + at, step < text.n - at ? step : text.n - at}, &sink);
    calls_finish(&c, &sink);
    ASSERT(c.n_calls == s->calls);
    calls_release(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen a, b;
    if (!size)
        return 0;
    struct str text = {(const char *)data + 1, size - 1};
    take(&a, data[0], text, text.n + 1);
    take(&b, data[0], text, 1 + data[0] % 7u);
    ASSERT(a.text.n == b.text.n && (!a.text.n || memcmp(a.text.p, b.text.p, a.text.n) == 0));
    ASSERT(a.calls || (data[0] & 192) || a.content == text.n || data[0] % 6 >= CALLS_ARRAY);
    buf_release(&a.text);
    buf_release(&b.text);
    return 0;
}
