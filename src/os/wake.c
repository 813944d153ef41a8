/* wake.c: eventfd in counting-to-one use, and the deadline form of poll. */
#include "os/wake.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/wake_priv.h"
#include "os/sys_error.h"

int poll__until(struct pollfd *fds, nfds_t n, uint64_t until_ns)
{
    for (;;) {
        struct timespec ts = {0}, *timeout = NULL;
        if (until_ns != UINT64_MAX) {
            uint64_t now = os_monotonic_ns(), left = until_ns > now ? until_ns - now : 0;
            ts = (struct timespec){(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
            timeout = &ts;
        }
        int ready = ppoll(fds, n, timeout, NULL);
        if (ready >= 0 || errno != EINTR)
            return ready;
    }
}

int os_wake_init(struct os_wake *w, struct error *err)
{
    w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return w->fd < 0 ? os_error_set(err, errno, "cannot make an eventfd") : 0;
}

void os_wake_release(struct os_wake *w)
{
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
}

void os_wake_signal(struct os_wake *w)
{
    int saved = errno;
    uint64_t one = 1;
    ssize_t rc = write(w->fd, &one, sizeof one); /* EAGAIN: the counter is full, so it is signalled */
    (void)rc;
    errno = saved;
}

bool os_wake_wait(struct os_wake *w, uint64_t until_ns)
{
    struct pollfd p = {.fd = w->fd, .events = POLLIN};
    uint64_t count;
    return poll__until(&p, 1, until_ns) > 0 && read(w->fd, &count, sizeof count) == (ssize_t)sizeof count;
}
