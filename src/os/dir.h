/* dir.h: folders, and opening a name that somebody else chose without leaving the folder it belongs to.
 *
 * os_open_beneath is the only way to open what a repository, a model file (ONNX external data) or a request names. The kernel
 * resolves the path itself (openat2 with RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS), so no check can be raced by swapping a
 * component for a link. Where openat2 is missing (before Linux 5.6) or filtered by seccomp, a walk opens one component after the other
 * with O_NOFOLLOW: stricter, since then also links that would stay inside are refused. Only regular files and folders are
 * given out: a FIFO in a repository must not hang its loader. Any thread; may block on a disk. */
#ifndef INFERD_OS_DIR_H
#define INFERD_OS_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "os/file.h"

/* Open a folder. The caller closes *fd with os_close. */
int os_dir_open(const char *path, int *fd, struct error *err) MUST_CHECK;

/* Open `rel` (relative, no ".." component, at most 4096 bytes; "." is the folder itself) read-only beneath the open folder `dir`.
 * `want`: OS_FILE_REGULAR or OS_FILE_DIRECTORY; anything else there is INVALID. `follow_out`: links may lead out of the folder
 * (the operator allowed it); the path itself still may not. Leaving it: FORBIDDEN; absent: NOT_FOUND. */
int os_open_beneath(int dir, const char *rel, enum os_file_kind want, bool follow_out, int *fd, struct error *err) MUST_CHECK;

struct os_dir_entry {
    char *name;
    enum os_file_kind kind; /* of the entry itself: a link is OS_FILE_SYMLINK */
};
struct os_dir_list {
    struct os_dir_entry *entries; /* sorted by name, bytewise; "." and ".." left out */
    size_t n;
};
/* List an open folder (the descriptor's position does not matter and stays). More than `limit` entries: TOO_LARGE. The caller
 * releases `out`, which is set also on failure. */
int os_dir_list(int dir, size_t limit, struct os_dir_list *out, struct error *err) MUST_CHECK;
void os_dir_list_release(struct os_dir_list *l); /* idempotent */

/* Make the folder and its missing parents. Being there already is success; `mode` is for those made. */
int os_dir_make(const char *path, uint32_t mode, struct error *err) MUST_CHECK;

#endif
