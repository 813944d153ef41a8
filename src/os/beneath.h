/* beneath.h: read files that live below a folder, and nowhere else.
 *
 * Every file of a model is opened relative to a folder descriptor, and the kernel (openat2, RESOLVE_BENEATH) refuses what
 * would leave that folder: absolute paths, "..", symbolic links that point out, magic links. Content is read into
 * anonymous memory instead of being mapped: a file that is cut while somebody uses it then gives an error, not SIGBUS,
 * and the pages go back to the system at release. Any thread; may block on the disk. Errors never hold the folder's path,
 * only the name asked for. */
#ifndef INFERD_OS_BENEATH_H
#define INFERD_OS_BENEATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

/* Open the regular file `path` below `dir_fd` for reading (close-on-exec). `allow_outside`: links may leave the folder (the
 * operator allowed it); absolute paths and ".." are still refused. `size` may be NULL. NOT_FOUND: no such file;
 * FORBIDDEN: it would leave the folder, or permission; INVALID: not a regular file or an unusable name; IO: the rest.
 * The caller closes `*fd`. */
int os_beneath_open(int dir_fd, const char *path, bool allow_outside, int *fd, uint64_t *size, struct error *err) MUST_CHECK;

struct os_blob {
    const uint8_t *p; /* page-aligned; NULL when n is 0 */
    size_t n;
};

/* The whole file, up to `limit` bytes (TOO_LARGE above, with both numbers). A file that changes its size while it is read
 * is an error (UNAVAILABLE: a copy is going on). NOMEM. Release with os_blob_release. */
int os_beneath_read(int dir_fd, const char *path, bool allow_outside, uint64_t limit, struct os_blob *out,
                    struct error *err) MUST_CHECK;
void os_blob_release(struct os_blob *b); /* also a zeroed one */

#endif
