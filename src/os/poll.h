/* poll.h: epoll and eventfd without errno: what net/loop.c stands on. Readiness is level-triggered; a wake-up is
 * edge-triggered, so that it need not be read. */
#ifndef INFERD_POLL_H
#define INFERD_POLL_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    OS_POLL_READ = 1,
    OS_POLL_WRITE = 2,
    OS_POLL_RDHUP = 4, /* the peer will send no more */
    OS_POLL_DEAD = 8,  /* both directions are gone, or an error is pending; reported whether asked for or not */
    OS_POLL_EDGE = 16, /* interest only: edge-triggered */
};

struct os_poll_event {
    void *user;
    uint32_t events; /* POLL_* */
};

#define OS_POLL_BATCH 128

/* A poll descriptor; close with os_close (os/file.h). Errors as os_error_set. Any thread. */
int os_poll_create(int *out, struct error *err) MUST_CHECK;
/* Watch `fd` with this interest and user pointer / change it. Errors as os_error_set. The fd leaves by itself when it is closed. */
int os_poll_add(int poll, int fd, uint32_t interest, void *user, struct error *err) MUST_CHECK;
int os_poll_set(int poll, int fd, uint32_t interest, void *user, struct error *err) MUST_CHECK;
void os_poll_remove(int poll, int fd);
/* Block until something is ready or `timeout_ns` passed (0: only look; UINT64_MAX: no limit), or a signal came. Fills at
 * most OS_POLL_BATCH events and returns how many. */
size_t os_poll_wait(int poll, struct os_poll_event *out, uint64_t timeout_ns);

/* A descriptor that becomes readable when signalled. Errors as os_error_set. */
int os_wakeup_create(int *out, struct error *err) MUST_CHECK;
void os_wakeup_signal(int fd); /* any thread, async-signal-safe */

#endif
