/* wake.h: wakes one sleeping thread: an eventfd. Any thread (and a signal handler) signals; one thread waits. Signals
 * between two waits are one signal. */
#ifndef INFERD_OS_WAKE_H
#define INFERD_OS_WAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct os_wake {
    int fd; /* readable while signalled: may be watched by poll or epoll */
};

int os_wake_init(struct os_wake *w, struct error *err) MUST_CHECK;
void os_wake_release(struct os_wake *w);
/* Never blocks; async-signal-safe. Pairs with the wait: what was written before it is seen after it. */
void os_wake_signal(struct os_wake *w);
/* Until signalled (true; the signal is consumed) or monotonic `until_ns` (false); UINT64_MAX waits for ever. */
bool os_wake_wait(struct os_wake *w, uint64_t until_ns);

#endif
