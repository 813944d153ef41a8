/* notify.c: sd_notify(3) over a connected Unix datagram socket. */
#include "os/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/status.h"
#include "base/str.h"
#include "os/clock.h"
#include "os/sys_error.h"

static uint64_t watchdog_from_environment(void)
{
    uint64_t usec, pid;
    const char *for_pid = getenv("WATCHDOG_PID");
    if (for_pid && (!str_to_u64(str_of(for_pid), &pid) || pid != (uint64_t)getpid()))
        return 0;
    if (!str_to_u64(str_of(getenv("WATCHDOG_USEC")), &usec) || usec > UINT64_MAX / 1000)
        return 0;
    return usec * 1000;
}

int os_notify_open(struct os_notify *out, struct error *err)
{
    *out = (struct os_notify){.fd = -1};
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (!path || !*path)
        return 0;
    size_t n = strlen(path);
    if (n >= sizeof to.sun_path || (path[0] != '/' && path[0] != '@'))
        return error_set(err, STATUS_INVALID, "NOTIFY_SOCKET is %s: a Unix socket path or @name of up to 107 bytes is expected",
                         path);
    memcpy(to.sun_path, path, n);
    if (path[0] == '@')
        to.sun_path[0] = 0; /* abstract name space */
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, len) < 0) {
        int rc = os_error_set(err, errno, "cannot reach NOTIFY_SOCKET %s", path);
        if (fd >= 0)
            close(fd);
        return rc;
    }
    out->fd = fd;
    out->watchdog_ns = watchdog_from_environment();
    return 0;
}

void os_notify_close(struct os_notify *n)
{
    if (n->fd >= 0)
        close(n->fd);
    n->fd = -1;
}

static void tell(struct os_notify *n, const char *text)
{
    if (n->fd >= 0)
        send(n->fd, text, strlen(text), MSG_NOSIGNAL);
}

void os_notify_ready(struct os_notify *n, const char *status)
{
    char text[512];
    int head = snprintf(text, sizeof text, "READY=1\n");
    if (status)
        snprintf(text + head, sizeof text - (size_t)head, "STATUS=%s", status);
    for (char *p = text + head; *p; p++)
        if (*p == '\n')
            *p = ' ';
    tell(n, text);
}

void os_notify_stopping(struct os_notify *n)
{
    tell(n, "STOPPING=1\n");
}

void os_notify_watchdog(struct os_notify *n)
{
    tell(n, "WATCHDOG=1\n");
}

void os_notify_reloading(struct os_notify *n)
{
    char text[80];
    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%llu\n", (unsigned long long)(os_monotonic_ns() / 1000));
    tell(n, text);
}
