/* file.h: whole files: read, write atomically, describe, map. Folders and "open beneath" are in os/dir.h.
 *
 * Paths are the operator's (configuration, state, the repository's root); names that come from a repository or a request go
 * through os_open_beneath. Error texts name the path: they are for logs and the operator, never for a client. Every descriptor
 * is close-on-exec. Any thread; everything here may block on a disk. */
#ifndef INFERD_OS_FILE_H
#define INFERD_OS_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

enum os_file_kind { OS_FILE_REGULAR, OS_FILE_DIRECTORY, OS_FILE_SYMLINK, OS_FILE_OTHER };

struct os_file_info {
    enum os_file_kind kind;
    uint32_t mode; /* permission bits */
    uint64_t size_bytes;
    uint64_t mtime_ns, ctime_ns; /* wall clock, since 1970 */
    uint64_t inode, device;
};

/* Open for reading. The caller closes *fd with os_close. NOT_FOUND, FORBIDDEN, EXHAUSTED (descriptors), IO. */
int os_file_open(const char *path, int *fd, struct error *err) MUST_CHECK;
/* Close; a negative fd is ignored. */
void os_close(int fd);

/* Describe a path (following links) or an open descriptor. */
int os_file_info(const char *path, struct os_file_info *out, struct error *err) MUST_CHECK;
int os_file_info_fd(int fd, struct os_file_info *out, struct error *err) MUST_CHECK;

/* Append the whole content to `out` (initialised by the caller, who releases it). More than `limit_bytes`: TOO_LARGE. Works on
 * files that have no size (/proc, pipes). `name` is only for error texts. */
int os_file_read(const char *path, size_t limit_bytes, struct buf *out, struct error *err) MUST_CHECK;
int os_file_read_fd(int fd, const char *name, size_t limit_bytes, struct buf *out, struct error *err) MUST_CHECK;
/* Exactly `n` bytes at `offset`; a shorter file is INVALID. */
int os_file_read_at(int fd, uint64_t offset, void *p, size_t n, struct error *err) MUST_CHECK;

/* Replace `path` by these bytes so that a reader, and a reader after a power cut, sees the old or the new content and never a
 * mixture: temporary file in the same folder, fsync, rename, fsync of the folder. `mode`: permission bits, e.g. 0644. */
int os_file_write_atomic(const char *path, const void *p, size_t n, uint32_t mode, struct error *err) MUST_CHECK;

/* Take the lock that the file `path` (made when it isn't there, mode 0600) stands for; waits for other processes that hold it. Closing *fd
 * gives it back. */
int os_file_lock(const char *path, int *fd, struct error *err) MUST_CHECK;

/* Move a finished file over `path` in the same folder, as atomically and durably as os_file_write_atomic does. */
int os_file_rename(const char *from, const char *path, struct error *err) MUST_CHECK;
/* Remove; a file that isn't there is success. */
int os_file_remove(const char *path, struct error *err) MUST_CHECK;
/* Set a file's modification time to now, best effort (caches that forget by age). */
void os_file_touch(const char *path);

/* A read-only mapping of a whole file. An empty file gives n = 0 and p = "". Truncating a mapped file elsewhere makes later
 * reads SIGBUS: map only files that are replaced by rename, or read them. The descriptor may be closed afterwards. */
struct os_map {
    const uint8_t *p;
    size_t n;
};
int os_map_open(int fd, struct os_map *out, struct error *err) MUST_CHECK;
void os_map_release(struct os_map *m); /* idempotent */
/* Give the mapping's resident pages back (MADV_DONTNEED); they are read from the file again on the next access. */
void os_map_drop(const struct os_map *m);

/* Append the path of the running binary to `out`. */
int os_exe_path(struct buf *out, struct error *err) MUST_CHECK;

#endif
