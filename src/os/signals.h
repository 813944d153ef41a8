/* signals.h: signals as events that the main thread waits for. No handler runs code of ours.
 *
 * The main thread calls os_signals_open before it starts any other thread: the signals are blocked there and in every thread
 * that follows, and arrive on a signalfd. SIGPIPE is ignored: a peer that went away is an error of the write. */
#ifndef INFERD_OS_SIGNALS_H
#define INFERD_OS_SIGNALS_H

#include <signal.h>
#include <stdint.h>

#include "base/error.h"
#include "os/wake.h"

enum os_signal {
    OS_SIGNAL_NONE,   /* the time came, or os_signals_wake */
    OS_SIGNAL_STOP,   /* SIGTERM, SIGINT: shut down; a second one forces */
    OS_SIGNAL_RELOAD, /* SIGHUP: read the configuration again */
    OS_SIGNAL_REOPEN, /* SIGUSR1: reopen log files */
};

struct os_signals {
    int fd;
    struct os_wake wake;
    sigset_t before; /* the mask that os_signals_close restores */
};

int os_signals_open(struct os_signals *s, struct error *err) MUST_CHECK;
/* Restore the signal mask and close both descriptors. SIGPIPE stays ignored, and so are from here on the signals that ask a running
 * process for something (SIGHUP, SIGUSR1): a log rotation that meets a process on its way out must not kill it. */
void os_signals_close(struct os_signals *s);
/* Wait for the next signal, os_signals_wake, or monotonic `until_ns` (UINT64_MAX: for ever). One thread at a time. Several
 * deliveries of one signal while nobody waits are one. */
enum os_signal os_signals_wait(struct os_signals *s, uint64_t until_ns);
/* End a wait from another thread. Never blocks. */
void os_signals_wake(struct os_signals *s);

#endif
