/* signals.c: signalfd. See signals.h. */
#include "os/signals.h"

#include <errno.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/size.h"
#include "os/wake_priv.h"
#include "os/sys_error.h"

static const struct {
    int number;
    enum os_signal meaning;
} handled[] = {{SIGTERM, OS_SIGNAL_STOP}, {SIGINT, OS_SIGNAL_STOP}, {SIGHUP, OS_SIGNAL_RELOAD}, {SIGUSR1, OS_SIGNAL_REOPEN}};

int os_signals_open(struct os_signals *s, struct error *err)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < COUNT_OF(handled); i++)
        sigaddset(&set, handled[i].number);
    int rc = os_wake_init(&s->wake, err);
    if (rc < 0)
        return rc;
    s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->fd < 0) {
        rc = os_error_set(err, errno, "cannot make a signalfd");
        os_wake_release(&s->wake);
        return rc;
    }
    pthread_sigmask(SIG_BLOCK, &set, &s->before);
    sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
    return 0;
}

void os_signals_close(struct os_signals *s)
{
    /* Ignoring one drops what is pending of it, too. */
    for (size_t i = 0; i < COUNT_OF(handled); i++)
        if (handled[i].meaning != OS_SIGNAL_STOP)
            sigaction(handled[i].number, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
    pthread_sigmask(SIG_SETMASK, &s->before, NULL);
    close(s->fd);
    os_wake_release(&s->wake);
}

enum os_signal os_signals_wait(struct os_signals *s, uint64_t until_ns)
{
    struct pollfd fds[2] = {{.fd = s->fd, .events = POLLIN}, {.fd = s->wake.fd, .events = POLLIN}};
    struct signalfd_siginfo info;
    if (poll__until(fds, 2, until_ns) <= 0)
        return OS_SIGNAL_NONE;
    if (read(s->fd, &info, sizeof info) == (ssize_t)sizeof info)
        for (size_t i = 0; i < COUNT_OF(handled); i++)
            if ((int)info.ssi_signo == handled[i].number)
                return handled[i].meaning;
    os_wake_wait(&s->wake, 0); /* consume it */
    return OS_SIGNAL_NONE;
}

void os_signals_wake(struct os_signals *s)
{
    os_wake_signal(&s->wake);
}
