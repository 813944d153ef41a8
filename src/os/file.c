/* file.c: see file.h. Every call that a signal may interrupt is retried here, so nobody above knows EINTR. */
#include "os/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "base/status.h"
#include "os/sys_error.h"

void os_close(int fd)
{
    if (fd >= 0)
        close(fd); /* not retried on EINTR: Linux has closed it by then */
}

static int open_retry(const char *path, int flags)
{
    int fd;
    do
        fd = open(path, flags | O_CLOEXEC | O_NOCTTY);
    while (fd < 0 && errno == EINTR);
    return fd;
}

int os_file_open(const char *path, int *fd, struct error *err)
{
    *fd = open_retry(path, O_RDONLY);
    return *fd < 0 ? os_error_set(err, errno, "cannot open %s", path) : 0;
}

int os_file_lock(const char *path, int *fd, struct error *err)
{
    int rc;
    do
        *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW, 0600);
    while (*fd < 0 && errno == EINTR);
    if (*fd < 0)
        return os_error_set(err, errno, "cannot open %s", path);
    do
        rc = flock(*fd, LOCK_EX);
    while (rc < 0 && errno == EINTR);
    if (rc == 0)
        return 0;
    rc = os_error_set(err, errno, "cannot lock %s", path);
    os_close(*fd);
    *fd = -1;
    return rc;
}

static uint64_t ns_of(struct timespec ts)
{
    return ts.tv_sec < 0 ? 0 : (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void describe(const struct stat *st, struct os_file_info *out)
{
    *out = (struct os_file_info){
        .kind = S_ISREG(st->st_mode)   ? OS_FILE_REGULAR
                : S_ISDIR(st->st_mode) ? OS_FILE_DIRECTORY
                : S_ISLNK(st->st_mode) ? OS_FILE_SYMLINK
                                       : OS_FILE_OTHER,
        .mode = st->st_mode & 07777,
        .size_bytes = (uint64_t)st->st_size,
        .mtime_ns = ns_of(st->st_mtim),
        .ctime_ns = ns_of(st->st_ctim),
        .inode = st->st_ino,
        .device = st->st_dev,
    };
}

int os_file_info(const char *path, struct os_file_info *out, struct error *err)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return os_error_set(err, errno, "cannot look at %s", path);
    describe(&st, out);
    return 0;
}

int os_file_info_fd(int fd, struct os_file_info *out, struct error *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return os_error_set(err, errno, "cannot look at an open file");
    describe(&st, out);
    return 0;
}

int os_file_read_fd(int fd, const char *name, size_t limit_bytes, struct buf *out, struct error *err)
{
    struct stat st;
    size_t start = out->n, chunk = 4096;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        if ((uint64_t)st.st_size > limit_bytes)
            return error_set(err, STATUS_TOO_LARGE, "%s has %llu bytes, the limit is %zu", name, (unsigned long long)st.st_size,
                             limit_bytes);
        chunk = (size_t)st.st_size + 1; /* one more, so that the end is seen without growing */
    }
    for (;;) {
        char *at = buf_reserve(out, chunk);
        if (!at)
            return error_set(err, STATUS_NOMEM, "no memory to read %s", name);
        ssize_t got = read(fd, at, out->cap - out->n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return os_error_set(err, errno, "cannot read %s", name);
        if (got == 0)
            return 0;
        out->n += (size_t)got;
        if (out->n - start > limit_bytes)
            return error_set(err, STATUS_TOO_LARGE, "%s is larger than the limit of %zu bytes", name, limit_bytes);
        chunk = 4096;
    }
}

int os_file_read(const char *path, size_t limit_bytes, struct buf *out, struct error *err)
{
    int fd, rc = os_file_open(path, &fd, err);
    if (rc < 0)
        return rc;
    rc = os_file_read_fd(fd, path, limit_bytes, out, err);
    os_close(fd);
    return rc;
}

int os_file_read_at(int fd, uint64_t offset, void *p, size_t n, struct error *err)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)p + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return os_error_set(err, errno, "cannot read a file");
        if (got == 0)
            return error_set(err, STATUS_INVALID, "the file ends %zu bytes early", n - done);
        done += (size_t)got;
    }
    return 0;
}

static int write_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -1;
        p += put;
        n -= (size_t)put;
    }
    return 0;
}

/* The folder of `path` must reach the disk too, or the rename may be lost. Best effort: some file systems refuse it. */
static void sync_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *parent = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    int fd = parent ? open_retry(parent, O_RDONLY | O_DIRECTORY) : -1;
    if (fd >= 0)
        fsync(fd);
    os_close(fd);
    free(parent);
}

int os_file_write_atomic(const char *path, const void *p, size_t n, uint32_t mode, struct error *err)
{
    struct buf tmp = {0};
    buf_append_z(&tmp, path);
    buf_append_z(&tmp, ".tmp-XXXXXX");
    buf_append_c(&tmp, 0);
    if (tmp.failed) {
        buf_release(&tmp);
        return error_set(err, STATUS_NOMEM, "no memory to write %s", path);
    }
    int rc = 0, fd = mkostemp(tmp.p, O_CLOEXEC);
    if (fd < 0) {
        rc = os_error_set(err, errno, "cannot make a file beside %s", path);
    } else if (write_all(fd, p, n) < 0 || fchmod(fd, (mode_t)mode) < 0 || fsync(fd) < 0 || rename(tmp.p, path) < 0) {
        rc = os_error_set(err, errno, "cannot write %s", path);
        unlink(tmp.p);
    } else {
        sync_parent(path);
    }
    os_close(fd);
    buf_release(&tmp);
    return rc;
}

int os_file_rename(const char *from, const char *path, struct error *err)
{
    int rc = 0, fd = open_retry(from, O_RDONLY);
    if (fd < 0 || fsync(fd) < 0 || rename(from, path) < 0)
        rc = os_error_set(err, errno, "cannot move a file to %s", path);
    else
        sync_parent(path);
    os_close(fd);
    return rc;
}

int os_file_remove(const char *path, struct error *err)
{
    if (unlink(path) < 0 && errno != ENOENT)
        return os_error_set(err, errno, "cannot remove %s", path);
    return 0;
}

void os_file_touch(const char *path)
{
    (void)!utimensat(AT_FDCWD, path, NULL, 0);
}

int os_map_open(int fd, struct os_map *out, struct error *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return os_error_set(err, errno, "cannot look at an open file");
    *out = (struct os_map){(const uint8_t *)"", 0};
    if (st.st_size == 0)
        return 0;
    if ((uint64_t)st.st_size > SIZE_MAX)
        return error_set(err, STATUS_TOO_LARGE, "a file of %llu bytes cannot be mapped", (unsigned long long)st.st_size);
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        return os_error_set(err, errno, "cannot map a file of %llu bytes", (unsigned long long)st.st_size);
    *out = (struct os_map){p, (size_t)st.st_size};
    return 0;
}

void os_map_release(struct os_map *m)
{
    if (m->n)
        munmap((void *)(uintptr_t)m->p, m->n);
    *m = (struct os_map){0};
}

void os_map_drop(const struct os_map *m)
{
    if (m->n)
        madvise((void *)(uintptr_t)m->p, m->n, MADV_DONTNEED);
}

int os_exe_path(struct buf *out, struct error *err)
{
    for (size_t cap = 256; cap <= 65536; cap *= 2) {
        char *at = buf_reserve(out, cap);
        if (!at)
            return error_set(err, STATUS_NOMEM, "no memory for the path of the binary");
        ssize_t n = readlink("/proc/self/exe", at, cap);
        if (n < 0)
            return os_error_set(err, errno, "cannot read /proc/self/exe");
        if ((size_t)n < cap) {
            out->n += (size_t)n;
            return 0;
        }
    }
    return error_set(err, STATUS_IO, "the path of the binary is longer than 65536 bytes");
}
