/* wake_priv.h: for siblings: poll(2) with a deadline on the monotonic clock. */
#ifndef INFERD_OS_WAKE_PRIV_H
#define INFERD_OS_WAKE_PRIV_H

#include <poll.h>
#include <stdint.h>

/* poll(2) until something is ready or monotonic `until_ns` (UINT64_MAX: for ever), continued after signals. Returns how many are
 * ready; 0: the time came; -1: poll failed. */
int poll__until(struct pollfd *fds, nfds_t n, uint64_t until_ns);

#endif
