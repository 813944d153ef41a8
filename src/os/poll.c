/* poll.c: epoll and eventfd. Timeouts are in nanoseconds through epoll_pwait2 (Linux 5.11); where the kernel or a sandbox
 * lacks it, they are rounded up to milliseconds, so that a timer never fires early and never spins. */
#include "os/poll.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "os/sys_error.h"

static uint32_t to_epoll(uint32_t interest)
{
    return (interest & OS_POLL_READ ? EPOLLIN : 0u) | (interest & OS_POLL_WRITE ? EPOLLOUT : 0u) |
           (interest & OS_POLL_RDHUP ? EPOLLRDHUP : 0u) | (interest & OS_POLL_EDGE ? EPOLLET : 0u);
}

static uint32_t from_epoll(uint32_t events)
{
    return (events & EPOLLIN ? OS_POLL_READ : 0u) | (events & EPOLLOUT ? OS_POLL_WRITE : 0u) |
           (events & EPOLLRDHUP ? OS_POLL_RDHUP : 0u) | (events & (EPOLLHUP | EPOLLERR) ? OS_POLL_DEAD : 0u);
}

int os_poll_create(int *out, struct error *err)
{
    *out = epoll_create1(EPOLL_CLOEXEC);
    return *out < 0 ? os_error_set(err, errno, "cannot create an epoll descriptor") : 0;
}

static int control(int poll, int op, int fd, uint32_t interest, void *user, struct error *err)
{
    struct epoll_event e = {.events = to_epoll(interest), .data.ptr = user};
    if (epoll_ctl(poll, op, fd, &e) == 0)
        return 0;
    return os_error_set(err, errno, "cannot watch descriptor %d", fd);
}

int os_poll_add(int poll, int fd, uint32_t interest, void *user, struct error *err)
{
    return control(poll, EPOLL_CTL_ADD, fd, interest, user, err);
}

int os_poll_set(int poll, int fd, uint32_t interest, void *user, struct error *err)
{
    return control(poll, EPOLL_CTL_MOD, fd, interest, user, err);
}

void os_poll_remove(int poll, int fd)
{
    struct epoll_event e = {0};
    epoll_ctl(poll, EPOLL_CTL_DEL, fd, &e);
}

static int wait_ms(int poll, struct epoll_event *e, uint64_t timeout_ns)
{
    uint64_t ms = timeout_ns / 1000000u + (timeout_ns % 1000000u != 0);
    return epoll_wait(poll, e, OS_POLL_BATCH, timeout_ns == UINT64_MAX ? -1 : (int)(ms > 3600000 ? 3600000 : ms));
}

size_t os_poll_wait(int poll, struct os_poll_event *out, uint64_t timeout_ns)
{
    struct epoll_event e[OS_POLL_BATCH];
    int n;
    if (timeout_ns == 0 || timeout_ns == UINT64_MAX) {
        n = wait_ms(poll, e, timeout_ns);
    } else {
        struct timespec ts = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
        n = epoll_pwait2(poll, e, OS_POLL_BATCH, &ts, NULL);
        if (n < 0 && errno == ENOSYS)
            n = wait_ms(poll, e, timeout_ns);
    }
    ASSERT(n >= 0 || errno == EINTR);
    for (int i = 0; i < n; i++)
        out[i] = (struct os_poll_event){e[i].data.ptr, from_epoll(e[i].events)};
    return n > 0 ? (size_t)n : 0;
}

int os_wakeup_create(int *out, struct error *err)
{
    *out = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return *out < 0 ? os_error_set(err, errno, "cannot create an eventfd") : 0;
}

void os_wakeup_signal(int fd)
{
    int saved = errno;
    uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof one); /* EAGAIN after 2^64 - 2 unread signals: it is readable then */
    (void)n;
    errno = saved;
}
