/* test_sandbox.c: a child enters the sandbox and tries what it must and must not be able to do. Without Landlock there is nothing to see but the
 * error that says so. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"
#include "os/sandbox.h"

static char dir[256], path[8][300];

enum { READ_DIR, READ_FILE, WRITE_DIR, OUTSIDE, LONE, MISSING };

static void write_file(const char *name)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
}

static int can_open(const char *folder, const char *name, int flags)
{
    char full[600];
    snprintf(full, sizeof full, "%s%s", folder, name);
    int fd = open(full, flags, 0600);
    if (fd >= 0)
        close(fd);
    return fd >= 0 ? 0 : errno;
}

static void *in_a_thread(void *arg)
{
    *(int *)arg = can_open(path[OUTSIDE], "/f", O_RDONLY);
    return NULL;
}

/* What went wrong, as the child's exit status; 0: nothing. */
static int child(void)
{
    struct os_sandbox_path allowed[] = {
        {path[READ_DIR], false}, {path[WRITE_DIR], true}, {path[LONE], false}, {path[MISSING], false}};
    struct error err = {0};
    int inherited = open(path[OUTSIDE], O_RDONLY | O_DIRECTORY), seen = 0;
    pthread_t t;
    if (os_sandbox_files(allowed, 4, &err) != 0)
        return err.code == STATUS_UNIMPLEMENTED ? 100 : 1;
    if (can_open(path[READ_DIR], "/f", O_RDONLY) != 0 || can_open(path[READ_DIR], "/f", O_WRONLY) != EACCES ||
        can_open(path[READ_DIR], "/new", O_WRONLY | O_CREAT) != EACCES)
        return 2;
    if (can_open(path[WRITE_DIR], "/new", O_RDWR | O_CREAT | O_TRUNC) != 0 || unlink(path[5]) == 0)
        return 3;
    char from[400], to[400];
    snprintf(from, sizeof from, "%s/new", path[WRITE_DIR]);
    snprintf(to, sizeof to, "%s/renamed", path[WRITE_DIR]);
    if (rename(from, to) != 0 || unlink(to) != 0)
        return 4;
    if (can_open(path[OUTSIDE], "/f", O_RDONLY) != EACCES || openat(inherited, "f", O_RDONLY) >= 0)
        return 5;
    if (can_open(path[LONE], "", O_RDONLY) != 0 || can_open(path[LONE], "", O_WRONLY) != EACCES)
        return 6;
    if (pthread_create(&t, NULL, in_a_thread, &seen) != 0 || pthread_join(t, NULL) != 0 || seen != EACCES)
        return 7;
    execl("/bin/true", "true", (char *)NULL);
    return errno == EACCES ? 0 : 8;
}

static void test_what_is_left(void **state)
{
    (void)state;
    long version = syscall(444, NULL, 0, 1);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(child());
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), version >= 1 ? 0 : 100);
    assert_int_equal(can_open(path[OUTSIDE], "/f", O_RDONLY), 0); /* the parent is as it was */
}

int main(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/inferd-sandbox-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(dir))
        return 1;
    const char *const names[] = {"read", "read/f", "write", "outside", "outside/lone", "missing"};
    for (int i = 0; i < 6; i++)
        snprintf(path[i], sizeof path[i], "%s/%s", dir, names[i]);
    mkdir(path[READ_DIR], 0700);
    mkdir(path[WRITE_DIR], 0700);
    mkdir(path[OUTSIDE], 0700);
    char file[400];
    snprintf(file, sizeof file, "%s/f", path[OUTSIDE]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_is_left)};
    write_file(path[READ_FILE]);
    write_file(file);
    write_file(path[LONE]);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path[READ_FILE]), unlink(file), unlink(path[LONE]);
    rmdir(path[READ_DIR]), rmdir(path[WRITE_DIR]), rmdir(path[OUTSIDE]), rmdir(dir);
    return rc;
}
