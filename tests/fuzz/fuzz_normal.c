/* fuzz_normal.c: any bytes through any step of a normaliser. The first byte picks the step; a character map comes first, behind its length in two
 * bytes. A normal form of a normal form is itself; valid UTF-8 stays valid. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "text/normal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_utf8(struct str s)
{
    for (size_t i = 0, n; i < s.n; i += n)
        if (!(n = str_utf8_at(s, i)))
            return false;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf once, twice;
    struct error err = {0};
    if (size < 3)
        return 0;
    struct normal_step step = {.kind = (enum normal_kind)(data[0] % (NORMAL_NMT + 1)), .left = true, .right = true};
    struct str text = {(const char *)data + 3, size - 3};
    size_t n = (size_t)data[1] | (size_t)data[2] << 8;
    if (step.kind == NORMAL_CHARSMAP || step.kind == NORMAL_REPLACE || step.kind == NORMAL_PREPEND) {
        n = n < text.n ? n : text.n;
        step.a = (struct str){text.p, n};
        text.p += n, text.n -= n;
    }
    if (normal_check(&step, &err) < 0)
        return 0;
    buf_init(&once);
    buf_init(&twice);
    normal_apply(&step, 1, text, &once);
    ASSERT(!once.failed);
    if (step.kind <= NORMAL_NFKD || step.kind == NORMAL_BERT_CLEAN || step.kind == NORMAL_STRIP ||
        step.kind == NORMAL_SQUEEZE) {
        normal_apply(&step, 1, buf_str(&once), &twice);
        ASSERT(str_eq(buf_str(&once), buf_str(&twice)));
    }
    if (is_utf8(text) && step.kind != NORMAL_CHARSMAP && step.kind != NORMAL_REPLACE && step.kind != NORMAL_PREPEND)
        ASSERT(is_utf8(buf_str(&once)));
    buf_release(&once);
    buf_release(&twice);
    return 0;
}
