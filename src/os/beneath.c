/* beneath.c: openat2 with RESOLVE_BENEATH, and a walk of our own where the kernel (or a seccomp filter) has no openat2.
 *
 * The walk opens each component with O_NOFOLLOW, so it refuses every symbolic link: stricter, never looser. */
#include "os/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/status.h"

#define OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

/* Relative, no empty or ".." component. */
static bool name_is_inside(const char *path)
{
    struct str rest = str_of(path), part;
    if (rest.n == 0 || path[0] == '/')
        return false;
    while (str_cut(&rest, '/', &part))
        if (part.n == 0 || str_eqz(part, ".."))
            return false;
    return true;
}

static int walk(int dir_fd, const char *path)
{
    char part[256];
    int at = dir_fd, fd = -1;
    for (const char *p = path; p;) {
        const char *slash = strchr(p, '/');
        size_t n = slash ? (size_t)(slash - p) : strlen(p);
        if (n >= sizeof part) {
            errno = ENAMETOOLONG;
            fd = -1;
        } else {
            memcpy(part, p, n);
            part[n] = 0;
            fd = openat(at, part, OPEN_FLAGS | O_NOFOLLOW | (slash ? O_DIRECTORY : 0));
        }
        int saved = errno;
        if (at != dir_fd)
            close(at);
        errno = saved;
        if (fd < 0)
            return -1;
        at = fd;
        p = slash ? slash + 1 : NULL;
    }
    return fd;
}

static int open_confined(int dir_fd, const char *path)
{
    struct open_how how = {.flags = OPEN_FLAGS, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    long fd;
    int tries = 0;
    do
        fd = syscall(SYS_openat2, dir_fd, path, &how, sizeof how);
    while (fd < 0 && (errno == EINTR || (errno == EAGAIN && ++tries < 32))); /* EAGAIN: a rename raced with the check */
    if (fd < 0 && (errno == ENOSYS || errno == EPERM))
        return walk(dir_fd, path);
    return (int)fd;
}

static int open_failed(const char *path, int e, struct error *err)
{
    switch (e) {
    case ENOENT:
    case ENOTDIR:
        return error_set(err, STATUS_NOT_FOUND, "there is no file '%.200s' in the model's folder", path);
    case EXDEV:
    case ELOOP:
        return error_set(err, STATUS_FORBIDDEN,
                         "'%.200s' leads out of the model's folder; put the file inside it or allow symbolic links", path);
    case EACCES:
        return error_set(err, STATUS_FORBIDDEN, "no permission to read '%.200s'", path);
    default:
        return error_set(err, STATUS_IO, "cannot open '%.200s': %s", path, strerrordesc_np(e));
    }
}

int os_beneath_open(int dir_fd, const char *path, bool allow_outside, int *fd, uint64_t *size, struct error *err)
{
    if (!name_is_inside(path))
        return error_set(err, STATUS_FORBIDDEN, "'%.200s' is not a path inside the model's folder", path);
    int f = allow_outside ? openat(dir_fd, path, OPEN_FLAGS) : open_confined(dir_fd, path);
    if (f < 0)
        return open_failed(path, errno, err);
    struct stat st;
    int rc = STATUS_OK;
    if (fstat(f, &st) != 0)
        rc = error_set(err, STATUS_IO, "cannot stat '%.200s': %s", path, strerrordesc_np(errno));
    else if (!S_ISREG(st.st_mode))
        rc = error_set(err, STATUS_INVALID, "'%.200s' is not a regular file", path);
    if (rc) {
        close(f);
        return rc;
    }
    if (size)
        *size = (uint64_t)st.st_size;
    *fd = f;
    return STATUS_OK;
}

/* Fill `dst` with exactly n bytes and make sure that the file ends there. */
static int read_exact(int fd, const char *path, uint8_t *dst, size_t n, struct error *err)
{
    size_t at = 0;
    uint8_t beyond;
    for (;;) {
        ssize_t got = at < n ? pread(fd, dst + at, n - at, (off_t)at) : pread(fd, &beyond, 1, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set(err, STATUS_IO, "cannot read '%.200s': %s", path, strerrordesc_np(errno));
        if (at == n && got == 0)
            return STATUS_OK;
        if (at == n || got == 0)
            return error_set(err, STATUS_UNAVAILABLE, "'%.200s' changed while it was read; is it still being copied?", path);
        at += (size_t)got;
    }
}

int os_beneath_read(int dir_fd, const char *path, bool allow_outside, uint64_t limit, struct os_blob *out, struct error *err)
{
    int fd;
    uint64_t size;
    int rc = os_beneath_open(dir_fd, path, allow_outside, &fd, &size, err);
    if (rc)
        return rc;
    void *p = NULL;
    if (size > limit || size > SIZE_MAX / 2) {
        rc = error_set(err, STATUS_TOO_LARGE, "'%.200s' has %llu bytes, the limit is %llu", path, (unsigned long long)size,
                       (unsigned long long)limit);
        goto out;
    }
    if (size > 0) {
        p = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) {
            rc = error_set(err, STATUS_NOMEM, "no memory for the %llu bytes of '%.200s'", (unsigned long long)size, path);
            goto out;
        }
    }
    rc = read_exact(fd, path, p, (size_t)size, err);
    if (rc && p)
        munmap(p, (size_t)size);
    if (!rc)
        *out = (struct os_blob){p, (size_t)size};
out:
    close(fd);
    return rc;
}

void os_blob_release(struct os_blob *b)
{
    if (b->p)
        munmap((void *)(uintptr_t)b->p, b->n);
    *b = (struct os_blob){0};
}
