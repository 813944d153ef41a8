/* Signals, wake-ups, the notify protocol and shared libraries. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"
#include "os/clock.h"
#include "os/dynlib.h"
#include "os/notify.h"
#include "os/signals.h"
#include "os/thread.h"
#include "os/wake.h"

static void signals_become_events(void **state)
{
    (void)state;
    static const struct {
        int number;
        enum os_signal want;
    } cases[] = {{SIGTERM, OS_SIGNAL_STOP}, {SIGINT, OS_SIGNAL_STOP}, {SIGHUP, OS_SIGNAL_RELOAD}, {SIGUSR1, OS_SIGNAL_REOPEN}};
    struct os_signals s;
    struct error err;
    assert_int_equal(os_signals_open(&s, &err), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kill(getpid(), cases[i].number); /* blocked: it waits on the descriptor */
        assert_int_equal(os_signals_wait(&s, UINT64_MAX), cases[i].want);
    }
    assert_int_equal(os_signals_wait(&s, os_monotonic_ns() + 1000000), OS_SIGNAL_NONE);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    assert_int_equal(write(ends[1], "x", 1), -1); /* SIGPIPE would have killed */
    close(ends[1]);
    kill(getpid(), SIGHUP); /* nobody waits any more: pending when we close, and their default is to kill */
    kill(getpid(), SIGUSR1);
    os_signals_close(&s);
    kill(getpid(), SIGHUP);
    kill(getpid(), SIGUSR1);
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    assert_false(sigismember(&now, SIGTERM));
}

static void wake_soon(void *arg)
{
    os_sleep_ns(5000000);
    os_signals_wake(arg);
}

static void a_wait_can_be_ended(void **state)
{
    (void)state;
    struct os_signals s;
    struct os_thread t;
    assert_int_equal(os_signals_open(&s, NULL), 0);
    assert_int_equal(os_thread_start(&t, "waker", wake_soon, &s, NULL), 0);
    assert_int_equal(os_signals_wait(&s, UINT64_MAX), OS_SIGNAL_NONE);
    assert_int_equal(os_signals_wait(&s, 0), OS_SIGNAL_NONE); /* consumed: doesn't spin */
    os_thread_join(&t);
    os_signals_close(&s);
}

struct ping {
    struct os_wake there, back;
    uint64_t rounds;
};

static void pong(void *arg)
{
    struct ping *p = arg;
    for (int i = 0; i < 1000; i++) {
        assert_true(os_wake_wait(&p->there, UINT64_MAX));
        p->rounds++;
        os_wake_signal(&p->back);
    }
}

static void wakes_order_memory(void **state)
{
    (void)state;
    struct ping p = {.rounds = 0};
    struct os_thread t;
    assert_int_equal(os_wake_init(&p.there, NULL) | os_wake_init(&p.back, NULL), 0);
    assert_false(os_wake_wait(&p.back, os_monotonic_ns() + 1000000));
    os_wake_signal(&p.back);
    os_wake_signal(&p.back);
    assert_true(os_wake_wait(&p.back, 0));
    assert_false(os_wake_wait(&p.back, 0)); /* two signals were one */
    assert_int_equal(os_thread_start(&t, "pong", pong, &p, NULL), 0);
    for (uint64_t i = 0; i < 1000; i++) {
        os_wake_signal(&p.there);
        assert_true(os_wake_wait(&p.back, UINT64_MAX));
        assert_int_equal(p.rounds, i + 1);
    }
    os_thread_join(&t);
    os_wake_release(&p.there);
    os_wake_release(&p.back);
}

static int listener(const char *name, char *env, size_t env_bytes)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), n = snprintf(at.sun_path + 1, 100, "%s-%d", name, (int)getpid());
    assert_int_equal(bind(fd, (struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)), 0);
    snprintf(env, env_bytes, "@%s", at.sun_path + 1);
    return fd;
}

static void received(int fd, const char *want)
{
    char text[600] = {0};
    assert_true(recv(fd, text, sizeof text - 1, MSG_DONTWAIT) >= 0);
    assert_string_equal(text, want);
}

static void notifies_as_sd_notify_says(void **state)
{
    (void)state;
    struct os_notify n;
    struct error err;
    char env[128], pid[16];
    int fd = listener("inferd-test-notify", env, sizeof env);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("NOTIFY_SOCKET", env, 1);
    setenv("WATCHDOG_USEC", "3000000", 1);
    setenv("WATCHDOG_PID", pid, 1);
    assert_int_equal(os_notify_open(&n, &err), 0);
    assert_true(n.watchdog_ns == 3000000000u);
    os_notify_ready(&n, "serving 3 models\non :8000");
    received(fd, "READY=1\nSTATUS=serving 3 models on :8000");
    os_notify_ready(&n, NULL);
    received(fd, "READY=1\n");
    os_notify_watchdog(&n);
    received(fd, "WATCHDOG=1\n");
    os_notify_stopping(&n);
    received(fd, "STOPPING=1\n");
    os_notify_reloading(&n);
    char text[200] = {0};
    unsigned long long usec = 0;
    assert_true(recv(fd, text, sizeof text - 1, MSG_DONTWAIT) > 0);
    assert_int_equal(sscanf(text, "RELOADING=1\nMONOTONIC_USEC=%llu\n", &usec), 1);
    assert_true(usec <= os_monotonic_ns() / 1000 && usec + 10000000 > os_monotonic_ns() / 1000);
    os_notify_close(&n);
    setenv("WATCHDOG_PID", "1", 1); /* for another process */
    assert_int_equal(os_notify_open(&n, &err), 0);
    assert_int_equal(n.watchdog_ns, 0);
    os_notify_close(&n);
    close(fd);
}

static void notify_without_listener(void **state)
{
    (void)state;
    struct os_notify n;
    struct error err;
    unsetenv("NOTIFY_SOCKET");
    assert_int_equal(os_notify_open(&n, &err), 0);
    os_notify_ready(&n, "nobody");
    os_notify_close(&n);
    setenv("NOTIFY_SOCKET", "/nonexistent/socket", 1);
    assert_int_equal(os_notify_open(&n, &err), STATUS_NOT_FOUND);
    os_notify_stopping(&n); /* still usable */
    setenv("NOTIFY_SOCKET", "vsock:2:1", 1);
    assert_int_equal(os_notify_open(&n, &err), STATUS_INVALID);
    unsetenv("NOTIFY_SOCKET");
}

static void loads_libraries(void **state)
{
    (void)state;
    void *lib = NULL;
    struct error err;
    assert_int_equal(os_dynlib_open("libm.so.6", &lib, &err), 0);
    void *symbol = os_dynlib_symbol(lib, "floor");
    double (*f)(double);
    assert_non_null(symbol);
    memcpy(&f, &symbol, sizeof f);
    assert_true(f(2.5) == 2.0);
    assert_null(os_dynlib_symbol(lib, "no_such_function"));
    assert_int_equal(os_dynlib_open("/nonexistent/lib.so", &lib, &err), STATUS_UNAVAILABLE);
    assert_non_null(strstr(err.text, "/nonexistent/lib.so"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals_become_events),   cmocka_unit_test(a_wait_can_be_ended),
        cmocka_unit_test(wakes_order_memory),      cmocka_unit_test(notifies_as_sd_notify_says),
        cmocka_unit_test(notify_without_listener), cmocka_unit_test(loads_libraries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
