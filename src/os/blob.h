/* blob.h: a whole file below a folder, in anonymous memory.
 *
 * For model files: up to gigabytes, needed once while loading. They are read instead of mapped, since a file that is cut while
 * somebody uses its mapping gives SIGBUS; and into pages of their own instead of malloc's, since those go back to the
 * system at release. Any thread; may block on a disk. Errors name the file as asked for, never the folder's path. */
#ifndef INFERD_OS_BLOB_H
#define INFERD_OS_BLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct os_blob {
    const uint8_t *p; /* page-aligned; NULL when n is 0 */
    size_t n;
    bool secret; /* zeroed before it is given back */
};

/* Memory for `n` bytes to be filled at *p (NULL when n is 0). `secret`: left out of core dumps and of children. NOMEM. */
int os_blob_alloc(size_t n, bool secret, struct os_blob *out, uint8_t **p, struct error *err) MUST_CHECK;
/* Give the whole pages inside [at, at + n) back; what is read there afterwards is undefined. */
void os_blob_drop(const struct os_blob *b, const void *at, size_t n);

/* Read the regular file `rel` beneath the open folder `dir` (os_open_beneath decides what that allows). More than
 * `limit_bytes`: TOO_LARGE with both numbers. A file that changes its size meanwhile: UNAVAILABLE (a copy is going on). NOMEM. */
int os_blob_read(int dir, const char *rel, bool follow_out, uint64_t limit_bytes, struct os_blob *out,
                 struct error *err) MUST_CHECK;
void os_blob_release(struct os_blob *b); /* idempotent; accepts a zeroed one */

#endif
