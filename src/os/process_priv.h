/* process_priv.h: for process.c and its test only. */
#ifndef INFERD_OS_PROCESS_PRIV_H
#define INFERD_OS_PROCESS_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/* /proc/pid/stat: number of threads (field 20), start in clock ticks after boot (field 22), rss in pages (24), virtual bytes (23).
 * The name in field 2 may hold spaces and parentheses. */
struct process__stat {
    uint64_t threads, start_ticks, virtual_bytes, rss_pages;
};
bool process__parse_stat(struct str text, struct process__stat *out);

#endif
