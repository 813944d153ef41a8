/* error.c: formatting of error sentences into the caller's fixed buffer. */
#include "base/error.h"

#include <stdint.h>
#include <string.h>

#include "base/format.h"
#include "base/size.h"
#include "base/status.h"

#define ECHO_MAX 64 /* of a text that a message repeats, where the whole would be too long */

/* `behind` follows the sentence; "": nothing does. */
static void fill(struct error *err, const char *behind, const char *fmt, va_list ap)
{
    size_t cap = sizeof err->text, most = cap - 1, room = most - MIN_OF(strlen(behind), most);
    size_t n = format_text(err->text, cap, SIZE_MAX, fmt, ap);
    if (n > room)
        n = format_text(err->text, cap, ECHO_MAX, fmt, ap);
    size_t used = strlen(err->text), more = strlen(behind);
    if (used == n && more <= most - used) {
        memcpy(err->text + used, behind, more + 1);
        return;
    }
    /* still too long: as much as there is room for, whole characters only, and "..." */
    size_t keep = most - 3;
    if (used == n) {
        size_t take = MIN_OF(more, most - used);
        memcpy(err->text + used, behind, take);
        used += take;
    }
    used = MIN_OF(used, keep);
    while (used && ((unsigned char)err->text[used] & 0xc0) == 0x80)
        used--;
    memcpy(err->text + used, "...", 4);
}

int error_vset(struct error *err, int code, const char *fmt, va_list ap)
{
    if (!err)
        return code;
    err->code = code;
    size_t whole = strcspn(fmt, "%");
    if (!fmt[whole] &&
        whole < sizeof err->text) { /* a sentence as it stands: the usual "not found" of requests that go elsewhere */
        memcpy(err->text, fmt, whole + 1);
        return code;
    }
    fill(err, "", fmt, ap);
    return code;
}

int error_set(struct error *err, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    error_vset(err, code, fmt, ap);
    va_end(ap);
    return code;
}

int error_prefix(struct error *err, const char *fmt, ...)
{
    if (!err)
        return STATUS_INTERNAL;
    if (!err->code)
        return err->code;
    char behind[ERROR_TEXT_BYTES + 2] = ": ";
    memcpy(behind + 2, err->text, sizeof err->text);
    va_list ap;
    va_start(ap, fmt);
    fill(err, behind, fmt, ap);
    va_end(ap);
    return err->code;
}
