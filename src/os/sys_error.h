/* sys_error.h: the border where errno becomes a status code and a sentence. errno doesn't travel past os/.
 * Any thread; never blocks. */
#ifndef INFERD_OS_SYS_ERROR_H
#define INFERD_OS_SYS_ERROR_H

#include "base/error.h"

/* ENOENT, ENOTDIR: NOT_FOUND; EACCES, EPERM, ELOOP, EXDEV, EROFS: FORBIDDEN; ENOMEM: NOMEM; EMFILE, ENFILE, ENOSPC, EDQUOT:
 * EXHAUSTED; EEXIST, ENOTEMPTY, EBUSY: CONFLICT; EAGAIN: AGAIN; anything else: IO. `errno_value` > 0. */
int os_status_of_errno(int errno_value);

/* Fill `err` with the formatted sentence followed by ": " and the system's words for `errno_value`; returns
 * os_status_of_errno(errno_value). */
int os_error_set(struct error *err, int errno_value, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
