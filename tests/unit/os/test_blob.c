/* test_blob.c: what leaves the folder is refused, what stays is read whole. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"
#include "os/blob.h"

static char root[64];
static int inside;

static void put(int dir, const char *name, const char *text)
{
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static int setup(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/inferd-blob-XXXXXX");
    assert_non_null(mkdtemp(root));
    int r = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(r, "in", 0700) | mkdirat(r, "in/sub", 0700), 0);
    inside = openat(r, "in", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    put(r, "secret", "secret");
    put(inside, "plain", "hello");
    put(inside, "empty", "");
    put(inside, "sub/deep", "deeper");
    assert_int_equal(symlinkat("../secret", inside, "out"), 0);
    assert_int_equal(symlinkat("/etc/passwd", inside, "abs"), 0);
    assert_int_equal(symlinkat("..", inside, "up"), 0);
    assert_int_equal(symlinkat("sub/deep", inside, "near"), 0);
    assert_int_equal(mkfifoat(inside, "fifo", 0600), 0);
    close(r);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    static const char *const names[] = {"plain", "empty", "sub/deep", "out", "abs", "up", "near", "fifo", "../secret"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlinkat(inside, names[i], 0);
    unlinkat(inside, "sub", AT_REMOVEDIR);
    unlinkat(inside, "../in", AT_REMOVEDIR);
    close(inside);
    return rmdir(root);
}

static void reads_what_is_inside(void **state)
{
    (void)state;
    struct os_blob b;
    struct error err;
    assert_int_equal(os_blob_read(inside, "plain", false, 100, &b, &err), 0);
    assert_int_equal(b.n, 5);
    assert_memory_equal(b.p, "hello", 5);
    os_blob_release(&b);
    assert_int_equal(os_blob_read(inside, "near", false, 100, &b, &err), 0);
    assert_memory_equal(b.p, "deeper", 6);
    os_blob_release(&b);
    assert_int_equal(os_blob_read(inside, "./sub/deep", false, 6, &b, &err), 0);
    os_blob_release(&b);
    assert_int_equal(os_blob_read(inside, "empty", false, 0, &b, &err), 0);
    assert_int_equal(b.n, 0);
    os_blob_release(&b);
    assert_int_equal(os_blob_read(inside, "plain", false, 4, &b, &err), STATUS_TOO_LARGE);
}

static void refuses_what_leads_out(void **state)
{
    (void)state;
    static const char *const names[] = {"../secret", "/etc/passwd", "out", "abs", "up/secret", "sub/../../secret"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct os_blob b;
        struct error err;
        assert_int_equal(os_blob_read(inside, names[i], false, 100, &b, &err), STATUS_FORBIDDEN);
        assert_null(strstr(err.text, root));
    }
    struct os_blob b;
    struct error err;
    assert_int_equal(os_blob_read(inside, "out", true, 100, &b, &err), 0);
    assert_memory_equal(b.p, "secret", 6);
    os_blob_release(&b);
    assert_int_equal(os_blob_read(inside, "../secret", true, 100, &b, &err), STATUS_FORBIDDEN);
}

static void names_the_other_troubles(void **state)
{
    (void)state;
    struct os_blob b;
    struct error err;
    assert_int_equal(os_blob_read(inside, "nothing", false, 100, &b, &err), STATUS_NOT_FOUND);
    assert_int_equal(os_blob_read(inside, "plain/x", false, 100, &b, &err), STATUS_NOT_FOUND);
    assert_int_equal(os_blob_read(inside, "sub", false, 100, &b, &err), STATUS_INVALID);
    assert_int_equal(os_blob_read(inside, "fifo", false, 100, &b, &err), STATUS_INVALID); /* and does not block */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_is_inside),
        cmocka_unit_test(refuses_what_leads_out),
        cmocka_unit_test(names_the_other_troubles),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
