/* sys_error.c: the one table from errno to status. */
#include "os/sys_error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

int os_status_of_errno(int errno_value)
{
    switch (errno_value) {
    case ENOENT:
    case ENOTDIR:
        return STATUS_NOT_FOUND;
    case EACCES:
    case EPERM:
    case ELOOP:
    case EXDEV:
    case EROFS:
        return STATUS_FORBIDDEN;
    case ENOMEM:
        return STATUS_NOMEM;
    case EMFILE:
    case ENFILE:
    case ENOSPC:
    case EDQUOT:
        return STATUS_EXHAUSTED;
    case EEXIST:
    case ENOTEMPTY:
    case EBUSY:
        return STATUS_CONFLICT;
    case EAGAIN:
        return STATUS_AGAIN;
    default:
        return STATUS_IO;
    }
}

int os_error_set(struct error *err, int errno_value, const char *fmt, ...)
{
    char what[ERROR_TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return error_set(err, os_status_of_errno(errno_value), "%s: %s", what, strerror(errno_value));
}
