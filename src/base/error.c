/* error.c: formatting of error sentences into the caller's fixed buffer. */
#include "base/error.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"

static void clean(char *text, int len_wanted)
{
    if (len_wanted >= ERROR_TEXT_BYTES)
        memcpy(text + ERROR_TEXT_BYTES - 4, "...", 4);
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if (*p < 0x20 || *p == 0x7f)
            *p = '?';
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
    int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    clean(err->text, n);
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
    char old[ERROR_TEXT_BYTES];
    memcpy(old, err->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    size_t used = n < 0 ? 0 : (size_t)n < sizeof err->text ? (size_t)n : sizeof err->text - 1;
    int m = snprintf(err->text + used, sizeof err->text - used, ": %s", old);
    clean(err->text, (int)used + m);
    return err->code;
}
