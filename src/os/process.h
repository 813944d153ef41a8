/* process.h: what this process uses, and the limits it can move. Any thread; reads /proc, may block shortly. */
#ifndef INFERD_OS_PROCESS_H
#define INFERD_OS_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct os_process_usage {
    uint64_t rss_bytes;         /* resident memory */
    uint64_t virtual_bytes;     /* address space */
    uint64_t cpu_ns;            /* user + system, all threads, since the start */
    uint64_t open_fds, max_fds; /* max: the soft RLIMIT_NOFILE */
    uint64_t threads;
    uint64_t start_wall_ns; /* since 1970; the kernel's clock tick (10 ms) is its precision */
};

/* What can't be read is 0. Costs some system calls, and on kernels before 6.2 a listing of the open descriptors: once a scrape,
 * not once a request. */
void os_process_read(struct os_process_usage *out);
/* Resident memory alone; 0 when unreadable. */
uint64_t os_process_rss_bytes(void);

/* First thing in main: descriptors 0 to 2 that whoever started us has closed lead to /dev/null, where what is written to standard output
 * still fails. Otherwise the next file or connection would get the number, and the log be written into it. */
void os_stdio_open(void);

/* Raise the soft limit of open descriptors to `want`, or to the hard limit where that is lower; never lowers it. *got is the limit in
 * force afterwards. Fails only when the system refuses. */
int os_fd_limit_raise(uint64_t want, uint64_t *got, struct error *err) MUST_CHECK;

/* Once, at the start of a server: blocks of 8 MiB and more are mappings of their own and go back when they are freed, and an arena keeps
 * at most 16 MiB at its end. Left alone, glibc raises both with the first large block that is freed, to 32 and 64 MiB, and then every
 * arena (up to eight a CPU) keeps that much of a burst for ever: malloc_trim doesn't reach the end of any arena but the first.
 * The price is the page faults of large bodies: a few ms for 16 MiB. */
void os_memory_tune(void);

/* No core dumps of this process, and no other process of this user may read its memory (PR_SET_DUMPABLE), for good. False: refused. */
bool os_process_hide(void);

/* Give freed heap pages back to the system (malloc_trim): after a model unloads. Takes the allocator's locks, may take ms. */
void os_memory_trim(void);

#endif
