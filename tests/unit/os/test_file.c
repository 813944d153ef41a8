/* Files and folders: expected values are what this test wrote with plain stdio and system calls. */
#include <errno.h>
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
#include "os/dir.h"
#include "os/dir_priv.h"
#include "os/file.h"
#include "os/sys_error.h"

struct tree {
    char root[64]; /* a temporary folder with a file outside.txt beside the folder "repo" */
    char repo[80];
    int fd; /* of repo */
};

static char *path_in(const struct tree *t, const char *rel)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", t->root, rel);
    return path;
}

static void put(const struct tree *t, const char *rel, const char *text)
{
    FILE *f = fopen(path_in(t, rel), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int setup(void **state)
{
    struct tree *t = calloc(1, sizeof *t);
    snprintf(t->root, sizeof t->root, "/tmp/inferd-test-XXXXXX");
    assert_non_null(mkdtemp(t->root));
    snprintf(t->repo, sizeof t->repo, "%s/repo", t->root);
    assert_int_equal(mkdir(t->repo, 0755), 0);
    assert_int_equal(os_dir_open(t->repo, &t->fd, NULL), 0);
    put(t, "outside.txt", "secret");
    assert_int_equal(mkdir(path_in(t, "repo/m"), 0755), 0);
    put(t, "repo/m/model.onnx", "weights");
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct tree *t = *state;
    char command[128];
    os_close(t->fd);
    snprintf(command, sizeof command, "rm -rf %s", t->root);
    assert_int_equal(system(command), 0);
    free(t);
    return 0;
}

static void read_whole(void **state)
{
    struct tree *t = *state;
    struct buf b = {0};
    struct error err = {0};
    char *model = path_in(t, "repo/m/model.onnx");
    assert_int_equal(os_file_read(model, 7, &b, &err), 0);
    assert_true(str_eqz(buf_str(&b), "weights"));
    assert_int_equal(os_file_read(model, 7, &b, &err), 0); /* appends */
    assert_true(str_eqz(buf_str(&b), "weightsweights"));
    assert_int_equal(os_file_read(model, 6, &b, &err), STATUS_TOO_LARGE);
    assert_int_equal(os_file_read(path_in(t, "repo/absent"), 6, &b, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "No such file"));
    assert_int_equal(os_file_read(t->repo, 6, &b, &err), STATUS_IO); /* EISDIR */
    buf_clear(&b);
    assert_int_equal(os_file_read("/proc/self/stat", 1 << 16, &b, &err), 0); /* its size says 0 */
    assert_true(b.n > 10);
    buf_clear(&b);
    assert_int_equal(os_file_read("/proc/self/stat", 4, &b, &err), STATUS_TOO_LARGE);
    buf_release(&b);
}

static void read_empty_and_at(void **state)
{
    struct tree *t = *state;
    struct buf b = {0};
    struct error err;
    char bytes[8] = {0};
    int fd;
    put(t, "empty", "");
    assert_int_equal(os_file_read(path_in(t, "empty"), 0, &b, &err), 0);
    assert_int_equal(b.n, 0);
    buf_release(&b);
    assert_int_equal(os_file_open(path_in(t, "outside.txt"), &fd, &err), 0);
    assert_int_equal(os_file_read_at(fd, 2, bytes, 4, &err), 0);
    assert_memory_equal(bytes, "cret", 4);
    assert_int_equal(os_file_read_at(fd, 3, bytes, 4, &err), STATUS_INVALID);
    os_close(fd);
}

static void write_atomic(void **state)
{
    struct tree *t = *state;
    struct buf b = {0};
    struct error err;
    struct os_file_info before, after;
    char *path = path_in(t, "state.json");
    char copy[512];
    snprintf(copy, sizeof copy, "%s", path);
    assert_int_equal(os_file_write_atomic(copy, "old", 3, 0600, &err), 0);
    assert_int_equal(os_file_info(copy, &before, &err), 0);
    assert_int_equal(before.mode, 0600);
    assert_int_equal(os_file_write_atomic(copy, "newer", 5, 0644, &err), 0);
    assert_int_equal(os_file_info(copy, &after, &err), 0);
    assert_int_equal(after.size_bytes, 5);
    assert_int_equal(after.mode, 0644);
    assert_int_not_equal(before.inode, after.inode);
    assert_int_equal(os_file_read(copy, 100, &b, &err), 0);
    assert_true(str_eqz(buf_str(&b), "newer"));
    buf_release(&b);
    assert_int_equal(os_file_write_atomic(path_in(t, "no/such/folder"), "x", 1, 0644, &err), STATUS_NOT_FOUND);
    /* over a folder: fails, and leaves no temporary file behind */
    assert_true(os_file_write_atomic(path_in(t, "repo"), "x", 1, 0644, &err) < 0);
    struct os_dir_list l;
    int root;
    assert_int_equal(os_dir_open(t->root, &root, &err), 0);
    assert_int_equal(os_dir_list(root, 100, &l, &err), 0);
    for (size_t i = 0; i < l.n; i++)
        assert_null(strstr(l.entries[i].name, ".tmp-"));
    os_dir_list_release(&l);
    os_close(root);
}

static void info_says_kind_and_times(void **state)
{
    struct tree *t = *state;
    struct os_file_info info;
    struct error err;
    struct timespec times[2] = {{1000, 5}, {1700000000, 123456789}};
    char *path = path_in(t, "outside.txt");
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_int_equal(os_file_info(path, &info, &err), 0);
    assert_int_equal(info.kind, OS_FILE_REGULAR);
    assert_int_equal(info.size_bytes, 6);
    assert_true(info.mtime_ns == 1700000000123456789u);
    assert_int_equal(os_file_info(t->repo, &info, &err), 0);
    assert_int_equal(info.kind, OS_FILE_DIRECTORY);
}

static void map_file(void **state)
{
    struct tree *t = *state;
    struct os_map m;
    struct error err;
    int fd;
    assert_int_equal(os_open_beneath(t->fd, "m/model.onnx", OS_FILE_REGULAR, false, &fd, &err), 0);
    assert_int_equal(os_map_open(fd, &m, &err), 0);
    os_close(fd);
    assert_int_equal(m.n, 7);
    assert_memory_equal(m.p, "weights", 7);
    os_map_release(&m);
    os_map_release(&m);
    put(t, "empty", "");
    assert_int_equal(os_file_open(path_in(t, "empty"), &fd, &err), 0);
    assert_int_equal(os_map_open(fd, &m, &err), 0);
    assert_int_equal(m.n, 0);
    assert_non_null(m.p);
    os_map_release(&m);
    os_close(fd);
}

static int beneath(const struct tree *t, const char *rel, enum os_file_kind want, bool out)
{
    struct error err = {0};
    int fd, rc = os_open_beneath(t->fd, rel, want, out, &fd, &err);
    assert_true((rc == 0) == (fd >= 0));
    if (rc < 0)
        assert_int_equal(err.code, rc);
    os_close(fd);
    return rc;
}

static void beneath_paths(void **state)
{
    struct tree *t = *state;
    assert_int_equal(beneath(t, "m/model.onnx", OS_FILE_REGULAR, false), 0);
    assert_int_equal(beneath(t, "m//model.onnx", OS_FILE_REGULAR, false), 0);
    assert_int_equal(beneath(t, "./m/./model.onnx", OS_FILE_REGULAR, false), 0);
    assert_int_equal(beneath(t, ".", OS_FILE_DIRECTORY, false), 0);
    assert_int_equal(beneath(t, "m/", OS_FILE_DIRECTORY, false), 0);
    assert_int_equal(beneath(t, "m", OS_FILE_REGULAR, false), STATUS_INVALID);
    assert_int_equal(beneath(t, "m/model.onnx", OS_FILE_DIRECTORY, false), STATUS_INVALID);
    assert_int_equal(beneath(t, "m/absent", OS_FILE_REGULAR, false), STATUS_NOT_FOUND);
    assert_int_equal(beneath(t, "m/model.onnx/x", OS_FILE_REGULAR, false), STATUS_NOT_FOUND);
    assert_int_equal(beneath(t, "", OS_FILE_REGULAR, false), STATUS_INVALID);
    for (int out = 0; out < 2; out++) { /* names that leave are refused also where links may leave */
        assert_int_equal(beneath(t, "../outside.txt", OS_FILE_REGULAR, out), STATUS_FORBIDDEN);
        assert_int_equal(beneath(t, "m/../../outside.txt", OS_FILE_REGULAR, out), STATUS_FORBIDDEN);
        assert_int_equal(beneath(t, "m/..", OS_FILE_DIRECTORY, out), STATUS_FORBIDDEN);
        assert_int_equal(beneath(t, "/etc/passwd", OS_FILE_REGULAR, out), STATUS_FORBIDDEN);
    }
    char *big = malloc(5001);
    memset(big, 'a', 5000);
    big[5000] = 0;
    assert_int_equal(beneath(t, big, OS_FILE_REGULAR, false), STATUS_INVALID);
    free(big);
}

static void beneath_links(void **state)
{
    struct tree *t = *state;
    assert_int_equal(symlink("../outside.txt", path_in(t, "repo/out")), 0);
    assert_int_equal(symlink("/etc/passwd", path_in(t, "repo/absolute")), 0);
    assert_int_equal(symlink("m/model.onnx", path_in(t, "repo/in")), 0);
    assert_int_equal(symlink("..", path_in(t, "repo/up")), 0);
    assert_int_equal(symlink("loop", path_in(t, "repo/loop")), 0);
    assert_int_equal(symlink("/proc/self/fd/0", path_in(t, "repo/magic")), 0);
    assert_int_equal(beneath(t, "out", OS_FILE_REGULAR, false), STATUS_FORBIDDEN);
    assert_int_equal(beneath(t, "absolute", OS_FILE_REGULAR, false), STATUS_FORBIDDEN);
    assert_int_equal(beneath(t, "up/outside.txt", OS_FILE_REGULAR, false), STATUS_FORBIDDEN);
    assert_int_equal(beneath(t, "loop", OS_FILE_REGULAR, false), STATUS_FORBIDDEN);
    assert_int_equal(beneath(t, "magic", OS_FILE_REGULAR, false), STATUS_FORBIDDEN);
    assert_int_equal(beneath(t, "out", OS_FILE_REGULAR, true), 0);
    assert_int_equal(beneath(t, "up/outside.txt", OS_FILE_REGULAR, true), 0);
    /* a link that stays inside (a Kubernetes ConfigMap volume is made of them) works where the kernel resolves */
    int rc = beneath(t, "in", OS_FILE_REGULAR, false);
    assert_true(rc == 0 || rc == STATUS_FORBIDDEN);
}

static void beneath_walk_without_openat2(void **state)
{
    struct tree *t = *state;
    assert_int_equal(symlink("m", path_in(t, "repo/link")), 0);
    int fd = dir__walk(t->fd, "m/model.onnx", O_RDONLY);
    assert_true(fd >= 0);
    char text[8] = {0};
    assert_int_equal(read(fd, text, sizeof text), 7);
    os_close(fd);
    fd = dir__walk(t->fd, "m//./", O_RDONLY);
    assert_true(fd >= 0);
    os_close(fd);
    assert_int_equal(dir__walk(t->fd, "link/model.onnx", O_RDONLY), -ELOOP);
    assert_int_equal(dir__walk(t->fd, "link", O_RDONLY), -ELOOP);
    assert_int_equal(dir__walk(t->fd, "m/absent", O_RDONLY), -ENOENT);
    assert_int_equal(dir__walk(t->fd, "m/model.onnx/x", O_RDONLY), -ENOTDIR);
    /* no descriptor may leak: the next one is the lowest free again */
    int a = dup(t->fd);
    close(a);
    assert_int_equal(dir__walk(t->fd, "m/absent/b/c", O_RDONLY), -ENOENT);
    int b = dup(t->fd);
    close(b);
    assert_int_equal(a, b);
}

static void beneath_fifo_does_not_hang(void **state)
{
    struct tree *t = *state;
    assert_int_equal(mkfifo(path_in(t, "repo/pipe"), 0644), 0);
    alarm(10);
    assert_int_equal(beneath(t, "pipe", OS_FILE_REGULAR, false), STATUS_INVALID);
    assert_int_equal(beneath(t, "pipe", OS_FILE_REGULAR, true), STATUS_INVALID);
    alarm(0);
}

static void list_sorted_and_bounded(void **state)
{
    struct tree *t = *state;
    struct os_dir_list l;
    struct error err;
    put(t, "repo/b", "");
    put(t, "repo/a", "");
    put(t, "repo/.hidden", "");
    assert_int_equal(symlink("a", path_in(t, "repo/z")), 0);
    static const char *const names[] = {".hidden", "a", "b", "m", "z"};
    static const enum os_file_kind kinds[] = {OS_FILE_REGULAR, OS_FILE_REGULAR, OS_FILE_REGULAR, OS_FILE_DIRECTORY,
                                              OS_FILE_SYMLINK};
    for (int again = 0; again < 2; again++) { /* the same descriptor lists twice */
        assert_int_equal(os_dir_list(t->fd, 5, &l, &err), 0);
        assert_int_equal(l.n, 5);
        for (size_t i = 0; i < 5; i++) {
            assert_string_equal(l.entries[i].name, names[i]);
            assert_int_equal(l.entries[i].kind, kinds[i]);
        }
        os_dir_list_release(&l);
    }
    assert_int_equal(os_dir_list(t->fd, 4, &l, &err), STATUS_TOO_LARGE);
    assert_int_equal(l.n, 0);
    os_dir_list_release(&l);
    for (int i = 0; i < 40; i++) {
        char name[32];
        snprintf(name, sizeof name, "repo/m/%02d", i);
        put(t, name, "");
    }
    int fd;
    assert_int_equal(os_open_beneath(t->fd, "m", OS_FILE_DIRECTORY, false, &fd, &err), 0);
    assert_int_equal(os_dir_list(fd, 1000, &l, &err), 0);
    assert_int_equal(l.n, 41);
    assert_string_equal(l.entries[39].name, "39");
    os_dir_list_release(&l);
    os_close(fd);
}

static void make_folders(void **state)
{
    struct tree *t = *state;
    struct os_file_info info;
    struct error err;
    char deep[512];
    snprintf(deep, sizeof deep, "%s/x/y//z/", t->root);
    assert_int_equal(os_dir_make(deep, 0750, &err), 0);
    assert_int_equal(os_dir_make(deep, 0750, &err), 0);
    assert_int_equal(os_file_info(deep, &info, &err), 0);
    assert_int_equal(info.kind, OS_FILE_DIRECTORY);
    assert_int_equal(os_dir_make(path_in(t, "outside.txt/x"), 0750, &err), STATUS_CONFLICT); /* EEXIST */
    assert_int_equal(os_dir_make(path_in(t, "outside.txt"), 0750, &err), STATUS_CONFLICT);
    assert_int_equal(os_dir_make("/", 0750, &err), 0);
}

static void own_path(void **state)
{
    (void)state;
    struct buf b = {0};
    struct error err;
    assert_int_equal(os_exe_path(&b, &err), 0);
    assert_true(str_ends(buf_str(&b), STR("/unit_os_test_file")));
    buf_release(&b);
}

static void errno_border(void **state)
{
    (void)state;
    struct error err;
    assert_int_equal(os_status_of_errno(ENOENT), STATUS_NOT_FOUND);
    assert_int_equal(os_status_of_errno(EACCES), STATUS_FORBIDDEN);
    assert_int_equal(os_status_of_errno(EMFILE), STATUS_EXHAUSTED);
    assert_int_equal(os_status_of_errno(EIO), STATUS_IO);
    assert_int_equal(os_error_set(&err, ENOENT, "cannot open %s", "a\nb"), STATUS_NOT_FOUND);
    assert_string_equal(err.text, "cannot open a\\nb: No such file or directory");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(read_whole),
        T(read_empty_and_at),
        T(write_atomic),
        T(map_file),
        T(info_says_kind_and_times),
        T(beneath_paths),
        T(beneath_links),
        T(beneath_walk_without_openat2),
        T(beneath_fifo_does_not_hang),
        T(make_folders),
        T(list_sorted_and_bounded),
        T(own_path),
        T(errno_border),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
