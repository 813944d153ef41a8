/* notify.h: telling systemd (or any supervisor that speaks sd_notify(3)) how we are: one datagram of VAR=value lines to
 * $NOTIFY_SOCKET. Written by hand: the protocol is ten lines, libsystemd is a library. Where nobody listens every call does
 * nothing. Main thread, or any one thread at a time; never blocks. */
#ifndef INFERD_OS_NOTIFY_H
#define INFERD_OS_NOTIFY_H

#include <stdint.h>

#include "base/error.h"

struct os_notify {
    int fd;               /* -1: nobody listens */
    uint64_t watchdog_ns; /* send os_notify_watchdog at least this often (half is wise); 0: no watchdog */
};

/* Read NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. An unset NOTIFY_SOCKET is success; one that can't be reached is IO or NOT_FOUND
 * (log it and go on: *out is usable). */
int os_notify_open(struct os_notify *out, struct error *err) MUST_CHECK;
void os_notify_close(struct os_notify *n);

void os_notify_ready(struct os_notify *n,
                     const char *status);      /* READY=1; status may be NULL, a line shown by systemctl status */
void os_notify_reloading(struct os_notify *n); /* RELOADING=1 with the time; os_notify_ready ends it */
void os_notify_stopping(struct os_notify *n);  /* STOPPING=1 */
void os_notify_watchdog(struct os_notify *n);  /* WATCHDOG=1 */

#endif
