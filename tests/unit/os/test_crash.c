/* Crash reports: a child crashes in a known way; the report on its stderr and in the file must name signal, thread, request,
 * build id and the function. The build id is compared with what readelf says where it is installed. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/check.h"
#include "os/crash.h"
#include "os/dir.h"
#include "os/file.h"
#include "os/thread.h"

static char folder[64];

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/inferd-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* Not static: dladdr knows exported names only. */
void crash_here_null(void);
void crash_here_abort(void);
void crash_here_assert(void);
void crash_here_trap(void);
int crash_here_overflow(volatile char *from, int depth);

__attribute__((noinline)) void crash_here_null(void)
{
    uintptr_t volatile at = 8; /* hidden from the compiler, which would refuse */
    *(volatile int *)at = 1;
}
__attribute__((noinline)) void crash_here_abort(void)
{
    abort();
}
__attribute__((noinline)) void crash_here_assert(void)
{
    ASSERT(1 + 1 == 3);
}
__attribute__((noinline)) void crash_here_trap(void)
{
    volatile int rc = raise(SIGILL); /* used, so that this is no tail call and the frame is seen */
    (void)rc;
}
__attribute__((noinline)) int crash_here_overflow(volatile char *from, int depth)
{
    volatile char frame[4096];
    frame[0] = *from;
    return depth ? crash_here_overflow(frame, depth - 1) + frame[0] : 0;
}

static void overflow(void)
{
    crash_here_overflow(&(volatile char){1}, 1 << 20);
} /* 4 GiB of stack */

static void run_in_thread(void *arg)
{
    check_set_request("req-42\n\033[31m");
    (*(void (**)(void))arg)();
}

/* Run `how` in a named thread of a child; its stderr is appended to `out`; returns the signal that ended it. */
static int crash(void (*how)(void), struct buf *out)
{
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct os_thread t;
        struct error err;
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        dup2(ends[1], STDERR_FILENO);
        if (os_crash_install(folder, "9.8.7", &err) == 0 && os_thread_start(&t, "io-0", run_in_thread, &how, NULL) == 0)
            os_thread_join(&t);
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(os_file_read_fd(ends[0], "pipe", 1 << 20, out, NULL), 0);
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void newest_file(struct buf *out)
{
    int dir;
    struct os_dir_list l;
    char path[400];
    assert_int_equal(os_dir_open(folder, &dir, NULL), 0);
    assert_int_equal(os_dir_list(dir, 1000, &l, NULL), 0);
    assert_int_equal(l.n, 1);
    snprintf(path, sizeof path, "%s/%s", folder, l.entries[0].name);
    assert_int_equal(os_file_read(path, 1 << 20, out, NULL), 0);
    struct os_file_info info;
    assert_int_equal(os_file_info(path, &info, NULL), 0);
    assert_int_equal(info.mode, 0600);
    unlink(path);
    os_dir_list_release(&l);
    os_close(dir);
}

static void reported(void (*how)(void), int number, const char *name, const char *function)
{
    struct buf text = {0}, file = {0};
    char want[200];
    assert_int_equal(crash(how, &text), number);
    buf_z(&text);
    newest_file(&file);
    const char *report = strstr(text.p, "inferd: crashed by ");
    assert_non_null(report);
    assert_string_equal(report, buf_z(&file)); /* stderr and file say the same */
    snprintf(want, sizeof want, "inferd: crashed by %s (code ", name);
    assert_non_null(strstr(report, want));
    snprintf(want, sizeof want, "\nversion 9.8.7, build id %s\n", os_build_id());
    assert_non_null(strstr(report, want));
    assert_non_null(strstr(report, ", thread io-0 ("));
    assert_non_null(strstr(report, "), request req-42??[31m\n")); /* nothing in an id can steer a terminal */
    assert_non_null(strstr(report, "\n#0 0x"));
    snprintf(want, sizeof want, "(%s+0x", function);
    assert_non_null(strstr(report, want));
    buf_release(&text);
    buf_release(&file);
}

static void null_pointer(void **state)
{
    (void)state;
    reported(crash_here_null, SIGSEGV, "SIGSEGV", "crash_here_null");
    struct buf text = {0}, file = {0};
    crash(crash_here_null, &text);
    newest_file(&file);
    assert_non_null(strstr(buf_z(&file), ", address 0x8), time "));
    buf_release(&text);
    buf_release(&file);
}

static void aborts(void **state)
{
    (void)state;
    reported(crash_here_abort, SIGABRT, "SIGABRT", "crash_here_abort");
}

static void failed_assert(void **state)
{
    (void)state;
    reported(crash_here_assert, SIGABRT, "SIGABRT", "crash_here_assert");
}

static void sent_signal(void **state)
{
    (void)state;
    reported(crash_here_trap, SIGILL, "SIGILL", "crash_here_trap");
}

static void stack_overflow(void **state)
{
    (void)state;
    reported(overflow, SIGSEGV, "SIGSEGV", "crash_here_overflow");
}

static void old_reports_go(void **state)
{
    (void)state;
    struct os_dir_list l;
    int dir, status;
    for (int i = 0; i < 30; i++) {
        char path[200];
        snprintf(path, sizeof path, "%s/crash-17000000%02d-1.txt", folder, i);
        assert_int_equal(os_file_write_atomic(path, "x", 1, 0600, NULL), 0);
    }
    pid_t pid = fork();
    if (pid == 0) {
        struct error err;
        _exit(os_crash_install(folder, "1", &err) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(os_dir_open(folder, &dir, NULL), 0);
    assert_int_equal(os_dir_list(dir, 1000, &l, NULL), 0);
    assert_int_equal(l.n, 20);
    assert_string_equal(l.entries[0].name, "crash-1700000010-1.txt");
    os_dir_list_release(&l);
    os_close(dir);
}

static void build_id_is_readelfs(void **state)
{
    (void)state;
    char line[300], want[100] = "none";
    FILE *p = popen("readelf -n /proc/$PPID/exe 2>/dev/null", "r");
    assert_non_null(p);
    size_t lines = 0;
    while (fgets(line, sizeof line, p)) {
        lines++;
        sscanf(line, " Build ID: %99s", want);
    }
    pclose(p);
    if (!lines)
        skip(); /* no readelf here */
    assert_string_equal(os_build_id(), want);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {T(null_pointer),
                                       T(aborts),
                                       T(failed_assert),
                                       T(sent_signal),
                                       T(stack_overflow),
                                       T(old_reports_go),
                                       cmocka_unit_test(build_id_is_readelfs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
