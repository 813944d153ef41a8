/* blob.c: see blob.h. */
#include "os/blob.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status.h"
#include "os/dir.h"
#include "os/file.h"
#include "os/sys_error.h"

/* A read of hundreds of MB is tens of ms inside the kernel, where a thread that serves requests can't take the CPU back from this one:
 * in small parts it can between any two. */
#define BLOB_PART_BYTES ((size_t)1 << 20)
#define WIPE_PAGES      256u

/* Fill `dst` with exactly n bytes and make sure that the file ends there. */
static int read_exact(int fd, const char *rel, uint8_t *dst, size_t n, struct error *err)
{
    size_t at = 0;
    uint8_t beyond;
    for (;;) {
        size_t part = n - at < BLOB_PART_BYTES ? n - at : BLOB_PART_BYTES;
        ssize_t got = at < n ? pread(fd, dst + at, part, (off_t)at) : pread(fd, &beyond, 1, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return os_error_set(err, errno, "cannot read %s", rel);
        if (at == n && got == 0)
            return 0;
        if (at == n || got == 0)
            return error_set(err, STATUS_UNAVAILABLE, "%s changed while it was read; is it still being copied?", rel);
        at += (size_t)got;
    }
}

int os_blob_alloc(size_t n, bool secret, struct os_blob *out, uint8_t **p, struct error *err)
{
    *out = (struct os_blob){0};
    *p = NULL;
    if (n == 0)
        return 0;
    void *m = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED)
        return error_set(err, STATUS_NOMEM, "no memory for %zu bytes", n);
    if (secret) { /* best effort: kernels have known both for ten years */
        madvise(m, n, MADV_DONTDUMP);
        madvise(m, n, MADV_WIPEONFORK);
    }
    *p = m;
    *out = (struct os_blob){m, n, secret};
    return 0;
}

static int read_open(int fd, const char *rel, uint64_t limit_bytes, struct os_blob *out, struct error *err)
{
    struct os_file_info info;
    int rc = os_file_info_fd(fd, &info, err);
    if (rc < 0)
        return rc;
    if (info.size_bytes > limit_bytes || info.size_bytes > SIZE_MAX / 2)
        return error_set(err, STATUS_TOO_LARGE, "%s has %llu bytes, the limit is %llu", rel,
                         (unsigned long long)info.size_bytes, (unsigned long long)limit_bytes);
    uint8_t *p;
    rc = os_blob_alloc((size_t)info.size_bytes, false, out, &p, err);
    if (rc)
        return error_prefix(err, "%s", rel);
    rc = read_exact(fd, rel, p, out->n, err);
    if (rc)
        os_blob_release(out);
    return rc;
}

int os_blob_read(int dir, const char *rel, bool follow_out, uint64_t limit_bytes, struct os_blob *out, struct error *err)
{
    int fd;
    *out = (struct os_blob){0};
    int rc = os_open_beneath(dir, rel, OS_FILE_REGULAR, follow_out, &fd, err);
    if (rc < 0)
        return rc;
    rc = read_open(fd, rel, limit_bytes, out, err);
    os_close(fd);
    return rc;
}

/* Zero what of [p, p + n) is in memory: pages that were dropped are not fetched again for it. `p` is page-aligned. */
static void wipe(uint8_t *p, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char there[WIPE_PAGES];
    for (size_t at = 0; at < n; at += WIPE_PAGES * page) {
        size_t part = n - at < WIPE_PAGES * page ? n - at : WIPE_PAGES * page;
        if (mincore(p + at, part, there) != 0) {
            explicit_bzero(p + at, part);
            continue;
        }
        for (size_t k = 0; k * page < part; k++)
            if (there[k] & 1)
                explicit_bzero(p + at + k * page, part - k * page < page ? part - k * page : page);
    }
}

void os_blob_drop(const struct os_blob *b, const void *at, size_t n)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)at + page - 1) / page * page,
              end = ((uintptr_t)at + n) / page * page;
    if (end <= from)
        return;
    if (b->secret)
        wipe((uint8_t *)from, end - from);
    madvise((void *)from, end - from, MADV_DONTNEED);
}

void os_blob_release(struct os_blob *b)
{
    uint8_t *p = (uint8_t *)(uintptr_t)b->p;
    if (p && b->secret)
        wipe(p, b->n);
    if (p)
        munmap(p, b->n);
    *b = (struct os_blob){0};
}
