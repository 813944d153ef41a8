/* sandbox.h: this process gives up the files that it doesn't need (Landlock, Linux 5.13 and later; see landlock(7)).
 *
 * From the call on, this thread and all that it starts later can open, make, rename and remove files only beneath the paths that are listed, and
 * can execute no program at all. What is open already stays open. It can't be undone, and it adds to what permissions say, it replaces nothing.
 * Not covered: sockets, ioctl on devices that may be opened, and metadata (stat) of any file. */
#ifndef INFERD_OS_SANDBOX_H
#define INFERD_OS_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct os_sandbox_path {
    const char *path; /* a folder with all beneath it, or a file; one that isn't there is left out */
    bool write;       /* also write, make and remove */
};

/* Call before any other thread is started: threads that run already keep their access. UNIMPLEMENTED: this kernel has no Landlock, or it is off;
 * nothing has changed then. IO: the system refused. */
int os_sandbox_files(const struct os_sandbox_path *paths, size_t n, struct error *err) MUST_CHECK;

#endif
